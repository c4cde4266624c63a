//! A file or block device that another process passed as a descriptor; the descriptor proves its right to the
//! file.
//!
//! Invariant: nothing is done with a descriptor before the type of its file is known, and nothing is done
//! with the file that the holder could not do with the descriptor's access mode. All accesses use a new open
//! file description, opened through /proc/self/fd. The kernel then checks this process's permissions too, and
//! some files in /proc and the like would reveal more to this process than to the holder. Such files are
//! refused: their file systems report a capacity of 0, unlike those that store data. Called by
//! [`super::File::passed`].

use super::PassedOptions;
use super::medium::{Medium, TMPFS, failed, geometry, past_the_cache, unfit, wait_again};
use crate::error::Error;
use bywash_protocol::Access;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, StatxFlags, fcntl_getfl, fstat, fstatfs, open as open_path, statx,
};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};

/// Name of the file in errors.
pub(super) const NAME: &str = "what was passed";
/// Size of a bounce piece, in bytes.
pub(super) const PIECE: usize = 16 << 10;
/// File system type of FUSE in statfs(2).
const FUSE: i64 = 0x6573_5546;

/// Opens the passed file again, with the descriptor's access mode, after checking that it can be a device.
pub(super) fn open(descriptor: OwnedFd, options: &PassedOptions) -> Result<Medium, Error> {
    // STATX_DONT_SYNC avoids a request to a network file system; only the type and mode count here.
    let look = statx(
        &descriptor,
        "",
        AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC,
        StatxFlags::TYPE | StatxFlags::MODE,
    )
    .map_err(|error| failed("look at", NAME, error))?;
    let mode = look.stx_mode.into();
    let is_block = match FileType::from_raw_mode(mode) {
        FileType::RegularFile => false,
        FileType::BlockDevice => true,
        other => return Err(unfit(NAME, format!("it is {}; pass a file or a block device", noun(other)))),
    };
    let access = access_of(&descriptor)?;
    if !is_block {
        check_file_system(&descriptor, options)?;
        if access != Access::Read && changes_user(Mode::from_raw_mode(mode)) {
            return Err(unfit(
                NAME,
                "it runs as its owner or group (setuid, setgid): take that bit away first",
            ));
        }
    }
    let file = open_again(&descriptor, access, is_block, options)?;
    if is_block {
        return Medium::from_block_device(file, NAME, options.cached, access);
    }
    wait_again(&file, NAME)?;
    let (direct, block) = past_the_cache(NAME, options.cached, &file)?;
    let status = fstat(&file).map_err(|error| failed("look at", NAME, error))?;
    let there = status.st_size as u64;
    let bytes = there - there % u64::from(block);
    if bytes == 0 {
        return Err(unfit(NAME, format!("it has {there} bytes, and needs a block of {block} at least")));
    }
    let optimal = u32::try_from(status.st_blksize).unwrap_or(block).max(block);
    let geometry = geometry(bytes, block, optimal, access);
    Ok(Medium::from_file(file, geometry, direct, false))
}

/// Returns the access mode that the descriptor was opened with.
fn access_of(descriptor: &OwnedFd) -> Result<Access, Error> {
    let flags = fcntl_getfl(descriptor).map_err(|error| failed("look at", NAME, error))?;
    if flags.contains(OFlags::PATH) {
        return Err(unfit(
            NAME,
            "it was opened with O_PATH, which is no right to its contents; open it to read",
        ));
    }
    match flags & OFlags::RWMODE {
        OFlags::RDONLY => Ok(Access::Read),
        OFlags::WRONLY => Ok(Access::Write),
        OFlags::RDWR => Ok(Access::ReadWrite),
        _ => Err(unfit(NAME, "it was opened neither for reading nor for writing")),
    }
}

fn check_file_system(descriptor: &OwnedFd, options: &PassedOptions) -> Result<(), Error> {
    let status = fstatfs(descriptor).map_err(|error| failed("look at the file system of", NAME, error))?;
    match status.f_type {
        FUSE if !options.allow_fuse => {
            Err(unfit(NAME, "its file system is a program (FUSE), which others would have to wait for"))
        }
        // A tmpfs without a size limit, such as that of memfds, reports a capacity of 0 although it stores
        // data.
        TMPFS => Ok(()),
        _ if status.f_blocks == 0 => {
            let reason = format!("its file system keeps no data (type {:#x}); copy it first", status.f_type);
            Err(unfit(NAME, reason))
        }
        _ => Ok(()),
    }
}

/// Returns true if a program with this mode runs as its owner or group. The kernel clears these bits when an
/// ordinary user writes to the file, but not when a privileged one does.
fn changes_user(mode: Mode) -> bool {
    mode.contains(Mode::SUID) || mode.contains(Mode::SGID | Mode::XGRP)
}

fn open_again(
    descriptor: &OwnedFd,
    access: Access,
    is_block: bool,
    options: &PassedOptions,
) -> Result<OwnedFd, Error> {
    let access = match access {
        Access::Read => OFlags::RDONLY,
        Access::Write => OFlags::WRONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    let more = match (is_block, options.cached) {
        // With O_NONBLOCK, opening fails instead of waiting for the holder of a lease.
        (false, _) => OFlags::NONBLOCK,
        (true, false) => OFlags::DIRECT,
        (true, true) => OFlags::empty(),
    };
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    open_path(&path, access | more | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).map_err(|error| {
        match error {
            Errno::ACCESS | Errno::PERM => unfit(
                NAME,
                format!(
                    "it has to be opened once more, and this process may not ({error}); let its user do so"
                ),
            ),
            Errno::WOULDBLOCK => unfit(NAME, "somebody has a lease on it; give that up first"),
            Errno::NOENT => unfit(NAME, format!("there is no {path} to open it by; is /proc mounted?")),
            error => failed("open once more", NAME, error),
        }
    })
}

fn noun(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a folder",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::Symlink => "a symbolic link",
        _ => "no file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_others_are_known_by_their_bits() {
        for (mode, is_one) in
            [(0o755, false), (0o4755, true), (0o4644, true), (0o2755, true), (0o2644, false)]
        {
            assert_eq!(changes_user(Mode::from_raw_mode(mode)), is_one, "{mode:o}");
        }
    }
}
