//! Making and removing logs.

use crate::machine::Machine;
use bywash_keeper::report::LogState;
use bywash_keeper::{Error, NewLog, create, remove, status_at};
use bywash_support::disks::LoopDevice;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

const SMALL: NewLog = NewLog { bytes: Some(8 << 20), is_volatile_allowed: false, overwrites_device: false };

/// Returns a folder that is not on a tmpfs.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn a_log_has_all_its_blocks_and_is_its_owners() {
    let folder = folder();
    let path = folder.path().join("log");
    create(&path, &SMALL).unwrap();
    let status = fs::metadata(&path).unwrap();
    assert_eq!((status.len(), status.permissions().mode() & 0o777), (8 << 20, 0o600));
    assert!(status.blocks() * 512 >= 8 << 20, "{} blocks", status.blocks());
    let status = status_at(&path).unwrap();
    assert_eq!((status.state, status.bytes, status.files.len()), (LogState::Empty, 8 << 20, 0));
    // An empty log may be made anew, with another identity.
    create(&path, &SMALL).unwrap();
    assert_ne!(status_at(&path).unwrap().id, status.id);
    remove(&path).unwrap();
    assert!(!path.exists());
}

/// Calls `action` until the file is not locked: a process that another test has forked keeps the lock of `create` until it
/// executes a program.
fn when_free<T>(action: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..100 {
        match action() {
            Err(Error::InUse { .. }) => std::thread::sleep(std::time::Duration::from_millis(10)),
            other => return other,
        }
    }
    action()
}

#[test]
fn what_is_no_log_is_not_overwritten() {
    let folder = folder();
    let path = folder.path().join("precious");
    fs::write(&path, "text").unwrap();
    assert!(matches!(create(&path, &SMALL), Err(Error::Occupied { is_device: false, .. })));
    let removed = when_free(|| remove(&path));
    assert!(matches!(removed, Err(Error::NotALog(_))), "{removed:?}");
    assert_eq!(fs::read(&path).unwrap(), b"text");
    assert!(matches!(create(folder.path(), &SMALL), Err(Error::Kind(_))));
    fs::write(&path, "").unwrap();
    create(&path, &SMALL).unwrap();
}

#[test]
fn a_refused_log_leaves_no_file() {
    let folder = folder();
    let path = folder.path().join("log");
    let small = NewLog { bytes: Some(1 << 20), ..SMALL };
    let Err(Error::TooSmall { least, .. }) = create(&path, &small) else { panic!("made") };
    assert!(!path.exists());
    create(&path, &NewLog { bytes: Some(least), ..SMALL }).unwrap();
}

#[test]
fn memory_is_refused_unless_it_is_wanted() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("log");
    assert!(matches!(create(&path, &SMALL), Err(Error::Volatile { what: "a tmpfs", .. })));
    assert!(!path.exists());
    create(&path, &NewLog { is_volatile_allowed: true, ..SMALL }).unwrap();
}

#[test]
fn live_records_are_neither_overwritten_nor_removed() {
    let Some(machine) = Machine::new() else { return };
    let program = machine.program();
    let file = program.open(&machine.path("file"));
    assert!(program.commit(&file, 0, b"committed"));
    for refused in [create(&machine.log(), &SMALL).map(drop), remove(&machine.log())] {
        assert!(matches!(refused, Err(Error::Live { records: 1, .. })), "{refused:?}");
    }
    let status = status_at(&machine.log()).unwrap();
    assert_eq!((status.state, status.files[0].records), (LogState::Records, Some(1)));
    assert_eq!(PathBuf::from(&status.files[0].path), machine.path("file"));
}

#[test]
fn a_device_that_is_mounted_or_full_of_data_is_refused() {
    let device = match LoopDevice::new(16 << 20) {
        Ok(device) => device,
        Err(why) => return println!("left out: {why}"),
    };
    let whole = NewLog { bytes: None, ..SMALL };
    create(device.path(), &whole).unwrap();
    assert_eq!(status_at(device.path()).unwrap().bytes, 16 << 20);
    remove(device.path()).unwrap();
    assert!(matches!(status_at(device.path()), Err(Error::NotALog(_))));
    assert!(Command::new("mkfs.ext4").arg("-q").arg(device.path()).status().unwrap().success());
    assert!(matches!(create(device.path(), &whole), Err(Error::Occupied { is_device: true, .. })));
    bywash_support::disks::enter_own_mount_namespace().unwrap();
    let at = folder();
    assert!(Command::new("mount").arg(device.path()).arg(at.path()).status().unwrap().success());
    let forced = NewLog { overwrites_device: true, ..whole };
    assert!(matches!(create(device.path(), &forced), Err(Error::DeviceBusy(_))));
    assert!(Command::new("umount").arg(at.path()).status().unwrap().success());
    create(device.path(), &forced).unwrap();
}
