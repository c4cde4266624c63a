//! Passed files: which rights their descriptors give, what the holder can still do, and which files are
//! refused.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_device::{Access, Command, CommandError, Device, EngineKind, File, PassedOptions, Segment};
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_setfl, flock};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

const EIO: i32 = libc::EIO;

/// Memory of a command: two pages.
#[repr(align(4096))]
struct Pages([AtomicU8; 8192]);

impl Pages {
    fn filled(byte: u8) -> Arc<Pages> {
        Arc::new(Pages(std::array::from_fn(|_| AtomicU8::new(byte))))
    }

    /// Returns 4096 bytes from `from` on, which are page-aligned if `from` is 0.
    fn segment(self: &Arc<Pages>, from: usize) -> Segment {
        assert!(from <= 4096);
        // SAFETY: atomics, which may be written at any time; every command here owns its pages.
        unsafe { Segment::new(self.0.as_ptr().cast_mut().cast::<u8>().wrapping_add(from), 4096) }
    }

    fn is_all(&self, byte: u8) -> bool {
        self.0[..4096].iter().all(|there| there.load(Ordering::Relaxed) == byte)
    }
}

/// Returns options for each engine, and for the page cache.
fn ways() -> [PassedOptions; 3] {
    let usual = PassedOptions::default();
    [
        usual.clone(),
        PassedOptions { engine: Some(EngineKind::Threads), ..usual.clone() },
        PassedOptions { cached: true, ..usual },
    ]
}

fn run(device: &mut File, command: Command<'_>, pages: &Arc<Pages>) -> Result<(), CommandError> {
    device.submit(command.owner(pages.clone())).unwrap();
    let (mut result, end) = (None, Instant::now() + Duration::from_secs(60));
    while result.is_none() {
        device.reap(&mut |done| result = Some(done.result));
        assert!(Instant::now() < end, "stuck");
    }
    result.unwrap()
}

/// Makes a temporary folder on a disk and, if there is /dev/shm, one on tmpfs.
fn folders() -> Vec<tempfile::TempDir> {
    let memory = tempfile::tempdir_in("/dev/shm").ok();
    [tempfile::tempdir().unwrap()].into_iter().chain(memory).collect()
}

fn file(folder: &tempfile::TempDir, pages: usize) -> PathBuf {
    let path = folder.path().join("file");
    fs::write(&path, vec![7; pages * 4096]).unwrap();
    path
}

fn opened(path: &PathBuf, read: bool, write: bool) -> fs::File {
    fs::File::options().read(read).write(write).open(path).unwrap()
}

fn refused(file: impl Into<OwnedFd>) -> String {
    File::passed(file.into(), &PassedOptions::default()).unwrap_err().to_string()
}

#[test]
fn the_right_is_how_it_was_opened() {
    for options in ways() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, 4);
        for (read, write, access) in
            [(true, false, Access::Read), (false, true, Access::Write), (true, true, Access::ReadWrite)]
        {
            let mut device = File::passed(opened(&path, read, write).into(), &options).unwrap();
            assert_eq!((device.geometry().access, device.geometry().bytes), (access, 4 * 4096));
            let allowed = |is, failure| if is { Ok(()) } else { Err(failure) };
            // With aligned memory, which O_DIRECT accepts, and with unaligned memory.
            for from in [0, 1] {
                let page = Pages::filled(8);
                let segment = [page.segment(from)];
                let written = allowed(write, CommandError::ReadOnly);
                assert_eq!(run(&mut device, Command::write(1, 4096, &segment), &page), written);
                assert_eq!(run(&mut device, Command::write_durable(1, 4096, &segment), &page), written);
                assert_eq!(run(&mut device, Command::write_zeroes(1, 8192, 4096), &page), written);
                assert_eq!(run(&mut device, Command::discard(1, 8192, 4096), &page), written);
                assert_eq!(run(&mut device, Command::flush(1), &page), Ok(()));
                let page = Pages::filled(9);
                let result = run(&mut device, Command::read(1, 0, &[page.segment(from)]), &page);
                assert_eq!(result, allowed(read, CommandError::WriteOnly));
                assert_eq!(page.is_all(9), !read, "something was told");
            }
            let block = device.geometry().block as usize;
            let page = Pages::filled(7);
            // SAFETY: atomics, which may be written at any time; the command owns its pages.
            let two = [unsafe { Segment::new(page.segment(0).base(), 2 * block) }];
            let compared = run(&mut device, Command::compare_and_write(1, 0, &two), &page);
            assert_eq!(
                compared,
                match access {
                    Access::Read => Err(CommandError::ReadOnly),
                    Access::Write => Err(CommandError::WriteOnly),
                    Access::ReadWrite => Ok(()),
                }
            );
        }
        let expected = [vec![7; 4096], vec![8; 4096], vec![0; 4096], vec![7; 4096]].concat();
        assert!(fs::read(&path).unwrap() == expected);
    }
}

#[test]
fn its_holder_cannot_change_how_it_works() {
    for options in ways() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, 4);
        // The holder opens the file with O_APPEND, and keeps the open file description.
        let holder = fs::File::options().read(true).append(true).open(&path).unwrap();
        let passed: OwnedFd = holder.try_clone().unwrap().into();
        let mut device = File::passed(passed, &options).unwrap();
        let flags = fcntl_getfl(&holder).unwrap();
        for more in [OFlags::APPEND, OFlags::APPEND | OFlags::NONBLOCK, OFlags::DIRECT, OFlags::empty()] {
            // Setting O_DIRECT fails on a file system that lacks it.
            let _ = fcntl_setfl(&holder, (flags - OFlags::APPEND) | more);
            let page = Pages::filled(1);
            for from in [0, 3] {
                assert_eq!(run(&mut device, Command::write(1, 4096, &[page.segment(from)]), &page), Ok(()));
            }
        }
        let expected = [vec![7; 4096], vec![1; 4096], vec![7; 8192]].concat();
        assert!(fs::read(&path).unwrap() == expected, "{options:?}");
        // The flags of the holder's descriptor are as the holder set them.
        assert_eq!(fcntl_getfl(&holder).unwrap() & OFlags::DIRECT, OFlags::empty());
    }
}

#[test]
fn it_stays_its_holders_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, 4);
    let holder = opened(&path, true, true);
    flock(&holder, FlockOperation::NonBlockingLockExclusive).unwrap();
    let pass = || File::passed(opened(&path, true, true).into(), &PassedOptions::default()).unwrap();
    let (mut first, mut second) = (pass(), pass());
    let page = Pages::filled(1);
    assert_eq!(run(&mut first, Command::write(1, 0, &[page.segment(0)]), &page), Ok(()));
    holder.write_all_at(&[2; 4096], 4096).unwrap();
    let page = Pages::filled(0);
    assert_eq!(run(&mut second, Command::read(1, 0, &[page.segment(0)]), &page), Ok(()));
    assert!(page.is_all(1));
    assert_eq!(run(&mut second, Command::read(1, 4096, &[page.segment(0)]), &page), Ok(()));
    assert!(page.is_all(2));
    drop((first, second));
    // The holder's lock is still held.
    assert!(flock(opened(&path, true, false), FlockOperation::NonBlockingLockShared).is_err());
    // A file whose name was removed is accepted as well.
    fs::remove_file(&path).unwrap();
    assert!(File::passed(holder.into(), &PassedOptions::default()).is_ok());
}

#[test]
fn whole_blocks_of_it_are_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let cached = PassedOptions { cached: true, ..PassedOptions::default() };
    for (there, bytes) in [(100, None), (512, Some(512)), (10_000, Some(9728))] {
        fs::write(&path, vec![1; there]).unwrap();
        match (File::passed(opened(&path, true, true).into(), &cached), bytes) {
            (Ok(device), Some(bytes)) => assert_eq!(device.geometry().bytes, bytes),
            (Err(error), None) => {
                let error = error.to_string();
                assert!(error.contains("has 100 bytes, and needs a block of 512"), "{error}");
            }
            (device, _) => panic!("{there} bytes: {device:?}"),
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), there as u64);
    }
}

#[test]
fn of_a_file_that_becomes_shorter_the_rest_is_there() {
    for (folder, options) in folders().iter().flat_map(|folder| ways().map(|options| (folder, options))) {
        let path = file(folder, 16);
        let holder = opened(&path, true, true);
        let mut device = File::passed(holder.try_clone().unwrap().into(), &options).unwrap();
        let what = format!("{}, {options:?}", folder.path().display());
        let mut check = |holder: &fs::File, longer: Command<'_>, page: &Arc<Pages>, then: u8| {
            holder.set_len(4 * 4096).unwrap();
            let read = Pages::filled(1);
            assert_eq!(run(&mut device, Command::read(1, 0, &[read.segment(0)]), &read), Ok(()), "{what}");
            assert!(read.is_all(7));
            for at in [4, 8, 15] {
                let result = run(&mut device, Command::read(1, at * 4096, &[read.segment(0)]), &read);
                assert_eq!(result, Err(CommandError::Io(EIO)), "{what}");
            }
            assert_eq!(run(&mut device, Command::flush(1), &read), Ok(()), "{what}");
            // Writing extends the file as far as necessary.
            assert_eq!(run(&mut device, longer, page), Ok(()), "{what}");
            assert_eq!(holder.metadata().unwrap().len(), 9 * 4096, "{what}");
            for (at, byte) in [(3, 7), (5, 0), (8, then)] {
                let result = run(&mut device, Command::read(1, at * 4096, &[read.segment(0)]), &read);
                assert_eq!(result, Ok(()), "{what}");
                assert!(read.is_all(byte), "{what}");
            }
        };
        let page = Pages::filled(3);
        check(&holder, Command::write(1, 8 * 4096, &[page.segment(0)]), &page, 3);
        check(&holder, Command::write(1, 8 * 4096, &[page.segment(9)]), &page, 3);
        check(&holder, Command::write_zeroes(1, 8 * 4096, 4096), &page, 0);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn what_is_no_file_or_no_right_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, 4);
    let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let by_path = fs::File::options().read(true).custom_flags(libc::O_PATH).open(&path).unwrap();
    let neither = rustix::fs::open(&path, OFlags::RWMODE, rustix::fs::Mode::empty()).unwrap();
    for (descriptor, why) in [
        (pipe, "a pipe; pass a file"),
        (socket.into(), "a socket; pass a file"),
        (event, "no file; pass a file"),
        (fs::File::open(folder.path()).unwrap().into(), "a folder; pass a file"),
        (fs::File::open("/dev/zero").unwrap().into(), "a character device; pass a file"),
        (by_path.into(), "O_PATH"),
        (neither, "neither for reading nor for writing"),
        (fs::File::open("/proc/self/status").unwrap().into(), "keeps no data (type 0x9fa0)"),
    ] {
        let error = refused(descriptor);
        assert!(error.contains("what was passed cannot be a device") && error.contains(why), "{error}");
    }
    for options in [
        PassedOptions { depth: 0, ..PassedOptions::default() },
        PassedOptions { bounce_buffers: 0, ..PassedOptions::default() },
        PassedOptions { threads: 65, ..PassedOptions::default() },
    ] {
        let error = File::passed(opened(&path, true, true).into(), &options).unwrap_err().to_string();
        assert!(error.contains("has to be from 1 to"), "{error}");
    }
}

#[test]
fn files_that_are_no_data_are_refused_however_large_they_say_they_are() {
    // Some files of /sys show more to root than to others; they claim a size of 4096 bytes.
    let Some(name) = ["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/uevent_seqnum"]
        .into_iter()
        .find(|name| fs::metadata(name).is_ok_and(|status| status.len() == 4096))
    else {
        return println!("left out: there is no /sys here");
    };
    let error = refused(fs::File::open(name).unwrap());
    assert!(error.contains("keeps no data (type 0x62656572)"), "{error}");
}

#[test]
fn a_program_of_somebody_elses_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, 4);
    for mode in [0o4755, 0o2755] {
        let [read, write] = [false, true].map(|write| opened(&path, true, write));
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(refused(write).contains("take that bit away"));
        assert!(File::passed(read.into(), &PassedOptions::default()).is_ok());
    }
}

#[test]
fn what_this_user_may_not_open_is_refused_with_the_reason() {
    if !rustix::process::geteuid().is_root() {
        return println!("left out: only root can be another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, 4);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let [readable, passed] = [0; 2].map(|_| opened(&path, true, true));
    let other_user = std::thread::spawn(move || {
        const NOBODY: libc::c_long = 65534;
        // SAFETY: the arguments are plain numbers. Unlike the C library's function, the system call changes
        // this thread's user only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) }, 0);
        refused(passed)
    });
    let error = other_user.join().unwrap();
    assert!(error.contains("this process may not (Permission denied") && error.contains("user"), "{error}");
    assert!(File::passed(readable.into(), &PassedOptions::default()).is_ok());
}

#[test]
fn a_lease_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let holder = opened(&file(&folder, 4), true, true);
    // The kernel tells a lease's holder with SIGIO that somebody opens the file; this test ignores it.
    // SAFETY: the signal is ignored, so no handler can run.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    // SAFETY: the call takes plain numbers and accesses no memory.
    if unsafe { libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } != 0 {
        return println!("left out: no leases here: {}", std::io::Error::last_os_error());
    }
    let begun = Instant::now();
    let error = refused(holder.try_clone().unwrap());
    assert!(error.contains("lease"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_was_passed_is_let_go_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, 4);
    let opened_by_us = || {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        links.filter(|link| fs::read_link(link.as_ref().unwrap().path()).is_ok_and(|to| to == path)).count()
    };
    let device = File::passed(opened(&path, true, true).into(), &PassedOptions::default()).unwrap();
    assert_eq!(opened_by_us(), 1);
    drop(device);
    assert_eq!(opened_by_us(), 0);
}
