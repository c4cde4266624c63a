//! A passed file is written by the rights of its holder: what a file system keeps for others, and what quotas keep from
//! the file's owner, is not taken for the holder by a server that could take it for itself.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_device::{Command, Device, Failure, File, Holder, PassedOptions, Span, Using};
use bywash_disks::FileSystem;
use rustix::fs::{Gid, Uid, fchown, fstatvfs};
use std::fs;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::{Duration, Instant};

/// A user who is neither root nor the owner of the file system.
const USER: u32 = 65534;
/// A group that the file system's reserve may be for.
const GROUP: u32 = 4242;
/// Bytes of a file system, of which ext4 is told to keep a quarter.
const BYTES: u64 = 64 << 20;
/// Bytes of a command.
const PIECE: usize = 64 << 10;
/// Bytes of the reserve that a file's own maps may have taken: the kernel never fails those.
const MAPS: u64 = 256 << 10;

/// Memory of commands, on a page.
#[repr(align(4096))]
struct Memory([AtomicU8; 2 * PIECE]);

/// Way of writing all of a file: the kind of memory, and the call.
#[derive(Clone, Copy, Debug)]
enum Written {
    /// Memory that goes past the page cache as it is, and memory that does not.
    From(usize),
    Durably,
    Zeroes,
}

fn holder(groups: Vec<u32>) -> Holder {
    Holder { uid: USER, gid: USER, groups }
}

/// Each way to carry commands out, by the rights of `holder`.
fn ways(holder: &Option<Holder>) -> [PassedOptions; 4] {
    let usual = PassedOptions { holder: holder.clone(), ..PassedOptions::default() };
    let threads = PassedOptions { using: Some(Using::Threads), ..usual.clone() };
    [
        PassedOptions { cached: true, ..usual.clone() },
        PassedOptions { using: Some(Using::Ring), ..usual },
        PassedOptions { cached: true, ..threads.clone() },
        threads,
    ]
}

fn run(device: &mut File, command: Command<'_>) -> Result<(), Failure> {
    device.submit(command).unwrap();
    let (mut result, end) = (None, Instant::now() + Duration::from_secs(60));
    while result.is_none() {
        device.poll(&mut |done| result = Some(done.result));
        assert!(Instant::now() < end, "stuck");
    }
    result.unwrap()
}

/// Writes to a sparse file of the user's, as large as its file system, until that is refused; answers bytes written and
/// why not more.
fn fill(place: &FileSystem, options: &PassedOptions, how: Written) -> (u64, Option<Failure>) {
    let path = place.path().join("file");
    let file = fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    fchown(&file, Some(Uid::from_raw(USER)), Some(Gid::from_raw(USER))).unwrap();
    file.set_len(BYTES).unwrap();
    fs::remove_file(&path).unwrap();
    let mut device = File::passed(file.into(), options).unwrap();
    let memory = Arc::new(Memory([const { AtomicU8::new(1) }; 2 * PIECE]));
    for at in (0..BYTES).step_by(PIECE) {
        let from = if let Written::From(from) = how { from } else { 0 };
        // SAFETY: within atomics, which may be written at any time and go along as the owner.
        let span = [unsafe { Span::new(memory.0.as_ptr().cast_mut().cast::<u8>().add(from), PIECE) }];
        let command = match how {
            Written::From(_) => Command::write(1, at, &span),
            Written::Durably => Command::write_durable(1, at, &span),
            Written::Zeroes => Command::write_zeroes(1, at, PIECE as u64),
        };
        if let Err(failure) = run(&mut device, command.owner(memory.clone())) {
            let free = fstatvfs(fs::File::open(place.path()).unwrap()).unwrap();
            return (free.f_bfree * free.f_frsize, Some(failure));
        }
    }
    (0, None)
}

/// An ext4 that keeps a quarter of its blocks for root or, with `group`, for the members of that group too.
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
            assert_eq!(failure, Some(Failure::Io(libc::ENOSPC)), "{what}");
            assert!(free + MAPS >= reserve, "{what}");
        }
    }
    // Whom the reserve is for has it: root, if nothing else is said.
    let root = Some(Holder { uid: 0, gid: 0, groups: Vec::new() });
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

/// Lets the user have so many bytes on a file system.
fn limit(place: &FileSystem, bytes: u64) -> Result<(), String> {
    const SET_FOR_USER: libc::c_long = 0x80_0008 << 8;
    const LIMITS: u32 = 1;
    let quota =
        Quota { blocks_hard: bytes / 1024, blocks_soft: bytes / 1024, valid: LIMITS, ..Quota::default() };
    let folder = fs::File::open(place.path()).unwrap();
    // SAFETY: the kernel reads a `struct if_dqblk`, which `quota` is.
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
    // XFS is not made smaller than that.
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
                let refused = matches!(failure, Some(Failure::Io(libc::EDQUOT | libc::ENOSPC)));
                assert!(refused, "{kind}, {how:?}, {options:?}: {failure:?}");
            }
        }
    }
}
