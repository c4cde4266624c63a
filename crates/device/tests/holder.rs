//! Tests that a passed file is written with the rights of its holder: a server that runs as root takes
//! neither blocks of the file system's reserve for the holder, nor blocks beyond a quota.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_device::{Command, CommandError, Device, EngineKind, File, FileUser, PassedOptions, Segment};
use bywash_support::disks::FileSystem;
use rustix::fs::{Gid, Uid, fchown, fstatvfs};
use std::fs;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::{Duration, Instant};

/// User ID of a user who is neither root nor the owner of the file system.
const USER: u32 = 65534;
/// Group ID of the group that may use the file system's reserve.
const GROUP: u32 = 4242;
/// Size of a file system, in bytes; ext4 reserves a quarter of it.
const BYTES: u64 = 64 << 20;
/// Length of a command, in bytes.
const PIECE: usize = 64 << 10;
/// Part of the reserve that the kernel may use for a file's own metadata, in bytes; those allocations never
/// fail.
const MAPS: u64 = 256 << 10;

/// Page-aligned memory of commands.
#[repr(align(4096))]
struct AlignedMemory([AtomicU8; 2 * PIECE]);

/// Method of writing all of a file.
#[derive(Clone, Copy, Debug)]
enum Written {
    /// Write from memory at this offset: aligned memory, for which O_DIRECT is possible, or unaligned memory.
    From(usize),
    Durably,
    Zeroes,
}

fn holder(groups: Vec<u32>) -> FileUser {
    FileUser { uid: USER, gid: USER, groups }
}

/// Returns options for each engine, with and without the page cache, with the rights of `holder`.
fn ways(holder: &Option<FileUser>) -> [PassedOptions; 4] {
    let usual = PassedOptions { holder: holder.clone(), ..PassedOptions::default() };
    let threads = PassedOptions { engine: Some(EngineKind::Threads), ..usual.clone() };
    [
        PassedOptions { cached: true, ..usual.clone() },
        PassedOptions { engine: Some(EngineKind::Ring), ..usual },
        PassedOptions { cached: true, ..threads.clone() },
        threads,
    ]
}

fn run(device: &mut File, command: Command<'_>) -> Result<(), CommandError> {
    device.submit(command).unwrap();
    let (mut result, end) = (None, Instant::now() + Duration::from_secs(60));
    while result.is_none() {
        device.reap(&mut |done| result = Some(done.result));
        assert!(Instant::now() < end, "stuck");
    }
    result.unwrap()
}

/// Writes to the user's sparse file, which is as large as its file system, until a write fails. Returns the
/// free bytes of the file system, reserve included, and the failure.
fn fill(place: &FileSystem, options: &PassedOptions, how: Written) -> (u64, Option<CommandError>) {
    let path = place.path().join("file");
    let file = fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    fchown(&file, Some(Uid::from_raw(USER)), Some(Gid::from_raw(USER))).unwrap();
    file.set_len(BYTES).unwrap();
    fs::remove_file(&path).unwrap();
    let mut device = File::passed(file.into(), options).unwrap();
    let memory = Arc::new(AlignedMemory([const { AtomicU8::new(1) }; 2 * PIECE]));
    for at in (0..BYTES).step_by(PIECE) {
        let from = if let Written::From(from) = how { from } else { 0 };
        // SAFETY: within atomics, which may be written at any time; the command owns them.
        let segment = [unsafe { Segment::new(memory.0.as_ptr().cast_mut().cast::<u8>().add(from), PIECE) }];
        let command = match how {
            Written::From(_) => Command::write(1, at, &segment),
            Written::Durably => Command::write_durable(1, at, &segment),
            Written::Zeroes => Command::write_zeroes(1, at, PIECE as u64),
        };
        if let Err(failure) = run(&mut device, command.owner(memory.clone())) {
            let free = fstatvfs(fs::File::open(place.path()).unwrap()).unwrap();
            return (free.f_bfree * free.f_frsize, Some(failure));
        }
    }
    (0, None)
}

/// Makes an ext4 that reserves a quarter of its blocks for root and, with `group`, for that group. Returns
/// the file system and the size of the reserve, in bytes.
fn reserving(group: Option<u32>) -> Result<(FileSystem, u64), String> {
    let mount = group.map_or("loop".to_owned(), |group| format!("loop,resgid={group}"));
    let place = FileSystem::with_options("ext4", BYTES, &["-m", "25", "-b", "4096"], &mount)?;
    let free = fstatvfs(fs::File::open(place.path()).unwrap()).unwrap();
    Ok((place, (free.f_bfree - free.f_bavail) * free.f_frsize))
}

const ALL: [Written; 4] = [Written::From(0), Written::From(8), Written::Durably, Written::Zeroes];

#[test]
fn the_reserve_of_a_file_system_is_not_the_holders() {
    let (place, reserve) = match reserving(None) {
        Ok(made) => made,
        Err(why) => return println!("left out: {why}"),
    };
    assert!(reserve > BYTES / 8);
    for options in ways(&Some(holder(Vec::new()))) {
        for how in ALL {
            let (free, failure) = fill(&place, &options, how);
            let what = format!("{how:?}, {options:?}: {free} bytes left of {reserve}");
            assert_eq!(failure, Some(CommandError::Io(libc::ENOSPC)), "{what}");
            assert!(free + MAPS >= reserve, "{what}");
        }
    }
    // A holder whom the reserve is for may use it: root, unless the mount names another user.
    let root = Some(FileUser { uid: 0, gid: 0, groups: Vec::new() });
    for options in ways(&root) {
        let (free, _) = fill(&place, &options, Written::From(0));
        assert!(free < reserve / 2, "{options:?}: {free} bytes left of {reserve}");
    }
}

#[test]
fn the_holders_groups_count() {
    let (place, reserve) = match reserving(Some(GROUP)) {
        Ok(made) => made,
        Err(why) => return println!("left out: {why}"),
    };
    for (groups, has_it) in [(vec![GROUP], true), (vec![GROUP + 1], false)] {
        for options in ways(&Some(holder(groups.clone()))) {
            let (free, _) = fill(&place, &options, Written::From(0));
            assert_eq!(free < reserve / 2, has_it, "{options:?}: {free} bytes left of {reserve}");
        }
    }
}

/// Argument of `Q_SETQUOTA` of quotactl(2), `struct if_dqblk`.
#[repr(C)]
#[derive(Default)]
struct Quota {
    blocks_hard: u64,
    blocks_soft: u64,
    space: u64,
    inodes: [u64; 3],
    times: [u64; 2],
    valid: u32,
}

/// Limits the blocks that the user may allocate on a file system to `bytes` bytes.
fn limit(place: &FileSystem, bytes: u64) -> Result<(), String> {
    const SET_FOR_USER: libc::c_long = 0x80_0008 << 8;
    const LIMITS: u32 = 1;
    let quota =
        Quota { blocks_hard: bytes / 1024, blocks_soft: bytes / 1024, valid: LIMITS, ..Quota::default() };
    let folder = fs::File::open(place.path()).unwrap();
    // SAFETY: the kernel only reads `quota`, which has the layout of `struct if_dqblk`.
    let set = unsafe {
        libc::syscall(libc::SYS_quotactl_fd, folder.as_raw_fd(), SET_FOR_USER, USER, &raw const quota)
    };
    match set {
        0 => Ok(()),
        _ => Err(format!("quotactl_fd: {}", std::io::Error::last_os_error())),
    }
}

#[test]
fn quotas_hold() {
    const QUOTA: u64 = 8 << 20;
    // 300 MiB is the least size of an XFS file system.
    let kinds: [(&str, u64, &[&str], &str); 2] = [
        ("ext4", 2 * BYTES, &["-O", "quota", "-E", "quotatype=usrquota"], "loop,usrquota"),
        ("xfs", 320 << 20, &[], "loop,uquota"),
    ];
    for (kind, bytes, mkfs, mount) in kinds {
        let made = FileSystem::with_options(kind, bytes, mkfs, mount);
        let place = match made.and_then(|place| limit(&place, QUOTA).map(|()| place)) {
            Ok(place) => place,
            Err(why) => {
                println!("left out: {kind} with quotas: {why}");
                continue;
            }
        };
        for options in ways(&Some(holder(Vec::new()))) {
            for how in ALL {
                let (_, failure) = fill(&place, &options, how);
                let refused = matches!(failure, Some(CommandError::Io(libc::EDQUOT | libc::ENOSPC)));
                assert!(refused, "{kind}, {how:?}, {options:?}: {failure:?}");
            }
        }
    }
}
