//! What is known of the file or block device: how it is to be read and written, and what it can.
//!
//! What it cannot is found out when it is tried, once, and remembered here.

use super::{FileOptions, Kind};
use crate::device::{Access, Geometry};
use crate::error::Error;
use crate::pages::Pages;
use crate::span::Span;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags, fallocate,
    fcntl_getfl, fcntl_setfl, flock, fstat, fstatfs, fsync, ftruncate, ioctl_blkpbszget, ioctl_blksszget,
    open, seek, statx, unlink,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Most bytes of a command: the kernel takes two of these and not all of a third.
pub(super) const TRANSFER_MAX: u64 = 1 << 30;
/// Bytes of a block, unless the medium has larger ones.
const BLOCK: u32 = 512;
/// Alignment of files that go past the page cache and do not say what they want (Linux before 6.1).
const CAUTIOUS: u32 = 4096;
/// Zeros that are kept, to be written.
const ZEROES: usize = 64 << 10;
/// How long somebody else may still have it.
const PATIENCE: Duration = Duration::from_secs(1);
/// What statfs(2) says of tmpfs, which is the page cache.
pub(super) const TMPFS: i64 = 0x0102_1994;

/// How zeros get onto the medium: the best that it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zeroes {
    /// Of a block device: BLKZEROOUT.
    Ioctl,
    /// FALLOC_FL_ZERO_RANGE.
    Range,
    /// FALLOC_FL_PUNCH_HOLE.
    Hole,
    /// They are written.
    Written,
}

impl Zeroes {
    /// The next best, where a hole will do or will not.
    pub(super) fn next(self, holes: bool) -> Zeroes {
        if self == Zeroes::Range && holes { Zeroes::Hole } else { Zeroes::Written }
    }
}

/// An open file or block device.
#[derive(Debug)]
pub(super) struct Medium {
    pub(super) file: OwnedFd,
    pub(super) geometry: Geometry,
    pub(super) is_block: bool,
    /// What memory has to be a multiple of, past the page cache; else why it is not gone past.
    pub(super) direct: Result<u32, String>,
    pub(super) discards: bool,
    pub(super) zeroes: Zeroes,
    /// Whether a hole is as good as zeros: not where the file may have become shorter, and would stay so.
    pub(super) holes: bool,
    /// Never written to.
    zero_pages: Arc<Pages>,
}

impl Medium {
    /// Opens it, and takes it for this process alone.
    pub(super) fn open(options: &FileOptions) -> Result<Medium, Error> {
        match options.kind {
            Kind::File => open_file(options),
            Kind::Block => open_block(options),
        }
    }

    /// A regular file, already set to go past the page cache, or the reason why not. `holes`: nobody makes it shorter.
    pub(super) fn of_file(
        file: OwnedFd,
        geometry: Geometry,
        direct: Result<u32, String>,
        holes: bool,
    ) -> Medium {
        let zero_pages = zero_pages(geometry.block);
        let (is_block, zeroes) = (false, Zeroes::Range);
        Medium { file, geometry, is_block, direct, discards: true, zeroes, holes, zero_pages }
    }

    /// A block device, opened as it is to be used.
    pub(super) fn of_block(file: OwnedFd, name: &str, cached: bool, access: Access) -> Result<Medium, Error> {
        let bytes = seek(&file, SeekFrom::End(0)).map_err(|error| failed("find the size of", name, error))?;
        let block =
            ioctl_blksszget(&file).map_err(|error| failed("find the blocks of", name, error))?.max(BLOCK);
        let optimal = ioctl_blkpbszget(&file).unwrap_or(block).max(block);
        let bytes = bytes - bytes % u64::from(block);
        if bytes == 0 {
            return Err(unfit(name, "it has no block; is there a medium in it?"));
        }
        let wish = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
            .ok()
            .filter(|answer| StatxFlags::from_bits_retain(answer.stx_mask).contains(StatxFlags::DIOALIGN))
            .map(|answer| answer.stx_dio_mem_align)
            .filter(|alignment| *alignment > 0);
        let direct = if cached { Err("as asked".into()) } else { Ok(wish.unwrap_or(block)) };
        let geometry = Geometry { bytes, block, optimal, transfer_max: TRANSFER_MAX, access };
        let (is_block, zeroes, zero_pages) = (true, Zeroes::Ioctl, zero_pages(block));
        Ok(Medium { file, geometry, is_block, direct, discards: true, zeroes, holes: false, zero_pages })
    }

    /// Whether it takes such memory.
    pub(super) fn takes(&self, spans: &[Span]) -> bool {
        let Ok(alignment) = self.direct else { return true };
        let block = self.geometry.block as usize;
        spans.iter().all(|span| {
            (span.base() as usize).is_multiple_of(alignment as usize) && span.bytes().is_multiple_of(block)
        })
    }

    /// At most `most` bytes of zeros.
    pub(super) fn zeroes_span(&self, most: u64) -> Span {
        let bytes = most.min(self.zero_pages.bytes() as u64) as usize;
        // SAFETY: of the pages, which live until the kernel has let go of them: see `File::drop`.
        unsafe { Span::new(self.zero_pages.base(), bytes) }
    }
}

/// Zeros for all files and devices; for one of larger blocks, of its own.
fn zero_pages(block: u32) -> Arc<Pages> {
    static SHARED: OnceLock<Arc<Pages>> = OnceLock::new();
    match block as usize {
        ..=ZEROES => SHARED.get_or_init(|| Arc::new(Pages::new(ZEROES))).clone(),
        block => Arc::new(Pages::new(block)),
    }
}

pub(super) fn unfit(name: &str, reason: impl Into<String>) -> Error {
    Error::Unfit { what: name.to_owned(), reason: reason.into() }
}

pub(super) fn failed(what: &str, name: &str, error: Errno) -> Error {
    Error::io(format!("{what} {name}"), error)
}

fn flags(options: &FileOptions) -> OFlags {
    OFlags::CLOEXEC | if options.read_only { OFlags::RDONLY } else { OFlags::RDWR }
}

fn access(options: &FileOptions) -> Access {
    if options.read_only { Access::Read } else { Access::ReadWrite }
}

/// Tries for some time to have what somebody else has: the kernel takes its time to clean up behind a server that was
/// killed, whose io_uring it takes apart.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(Errno::BUSY | Errno::WOULDBLOCK) if Instant::now() < end => {
                std::thread::sleep(PATIENCE / 100)
            }
            outcome => return outcome,
        }
    }
}

/// Opens a file, or makes it: then it is there as a whole, or not at all.
fn open_file(options: &FileOptions) -> Result<Medium, Error> {
    let (path, name) = (&options.path, &options.name());
    let is_made = options.bytes.is_some() && !options.read_only && !path.exists();
    // One that somebody else makes meanwhile is not taken for this one.
    let create = if is_made { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
    // What is there may be a pipe that nobody writes to: it is not waited for.
    let file =
        open(path, flags(options) | create | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR).map_err(|error| {
            match error {
                Errno::NOENT => unfit(name, "there is no such file; give size=BYTES, and it is made"),
                error => failed("open", name, error),
            }
        })?;
    let medium = whole_file(options, file, is_made);
    if medium.is_err() && is_made {
        // It was made above; if it stays, it is empty and does no harm.
        let _ = unlink(path);
    }
    medium
}

/// Takes an open file for this process alone, as large as it is to be.
fn whole_file(options: &FileOptions, file: OwnedFd, is_made: bool) -> Result<Medium, Error> {
    let (path, name) = (&options.path, &options.name());
    let status = fstat(&file).map_err(|error| failed("look at", name, error))?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => {}
        FileType::BlockDevice => {
            return Err(unfit(name, "it is a block device; write block: in place of file:"));
        }
        _ => return Err(unfit(name, "it is no file")),
    }
    patiently(|| flock(&file, FlockOperation::NonBlockingLockExclusive)).map_err(|error| match error {
        Errno::WOULDBLOCK => unfit(name, "somebody else has locked it; end the server that uses it"),
        error => failed("lock", name, error),
    })?;
    wait_again(&file, name)?;
    let (direct, block) = past_the_cache(name, options.cached, &file)?;
    let bytes = sized(options, &file, status.st_size as u64, block)?;
    if is_made {
        // Its name has to be there after a crash as well.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fsync(&file)
            .and_then(|()| open(folder, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))
            .and_then(fsync)
            .map_err(|error| failed("make", name, error))?;
    }
    let optimal = u32::try_from(status.st_blksize).unwrap_or(block).max(block);
    let geometry = Geometry { bytes, block, optimal, transfer_max: TRANSFER_MAX, access: access(options) };
    Ok(Medium::of_file(file, geometry, direct, true))
}

/// Lets a file wait that was opened so as not to be waited for: older kernels' io_uring says EAGAIN of one that does
/// not, where it would else have let a thread wait.
pub(super) fn wait_again(file: &OwnedFd, name: &str) -> Result<(), Error> {
    fcntl_getfl(file)
        .and_then(|flags| fcntl_setfl(file, flags - OFlags::NONBLOCK))
        .map_err(|error| failed("open", name, error))
}

/// Sends the file's data past the page cache where that can be done, and answers what memory has to be a multiple of
/// then, or why not; and the bytes of a block.
pub(super) fn past_the_cache(
    name: &str,
    cached: bool,
    file: &OwnedFd,
) -> Result<(Result<u32, String>, u32), Error> {
    if cached {
        return Ok((Err("as asked".into()), BLOCK));
    }
    if fstatfs(file).is_ok_and(|status| status.f_type == TMPFS) {
        return Ok((Err("tmpfs is nothing else".into()), BLOCK));
    }
    let wish = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .ok()
        .filter(|answer| StatxFlags::from_bits_retain(answer.stx_mask).contains(StatxFlags::DIOALIGN));
    let (memory, block) = match wish {
        Some(wish) if wish.stx_dio_offset_align == 0 => {
            return Ok((Err("the file system does not let this file past it".into()), BLOCK));
        }
        Some(wish) => (wish.stx_dio_mem_align, wish.stx_dio_offset_align.max(BLOCK)),
        None => (CAUTIOUS, CAUTIOUS),
    };
    let flags = fcntl_getfl(file).map_err(|error| failed("look at", name, error))?;
    match fcntl_setfl(file, flags | OFlags::DIRECT) {
        Ok(()) => Ok((Ok(memory), block)),
        Err(error) => Ok((Err(format!("the file system has no O_DIRECT ({error})")), BLOCK)),
    }
}

/// Makes the file as large as it is wished to be; answers the bytes of the device.
fn sized(options: &FileOptions, file: &OwnedFd, there: u64, block: u32) -> Result<u64, Error> {
    let name = &options.name();
    let Some(wished) = options.bytes else {
        return match there - there % u64::from(block) {
            0 => Err(unfit(name, format!("it has not one block of {block} bytes; give size=BYTES"))),
            bytes => Ok(bytes),
        };
    };
    if wished == 0 || !wished.is_multiple_of(block.into()) || i64::try_from(wished).is_err() {
        let reason = format!("its size would be {wished} bytes, and has to be a multiple of {block}");
        return Err(unfit(name, reason));
    }
    if there > wished {
        let reason =
            format!("it has {there} bytes already, more than {wished}; give its size, or another file");
        return Err(unfit(name, reason));
    }
    if options.read_only {
        return match there == wished {
            true => Ok(wished),
            false => Err(unfit(name, "it may only be read, so it cannot be made larger")),
        };
    }
    let failed = |error| failed(&format!("take {wished} bytes for"), name, error);
    if !options.sparse {
        // Room that is missing is missing now, and not when somebody writes.
        match fallocate(file, FallocateFlags::empty(), 0, wished) {
            Ok(()) => return Ok(wished),
            // The file system cannot.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    if there < wished {
        ftruncate(file, wished).map_err(failed)?;
    }
    Ok(wished)
}

fn open_block(options: &FileOptions) -> Result<Medium, Error> {
    let (path, name) = (&options.path, &options.name());
    let direct = if options.cached { OFlags::empty() } else { OFlags::DIRECT };
    let look = rustix::fs::stat(path).map_err(|error| failed("open", name, error))?;
    if FileType::from_raw_mode(look.st_mode) != FileType::BlockDevice {
        return Err(unfit(name, "it is no block device; write file: in place of block:"));
    }
    // O_EXCL without O_CREAT, of a block device: nobody else uses it as this or as part of something.
    let open = || open(path, flags(options) | direct | OFlags::EXCL, Mode::empty());
    let file = patiently(open).map_err(|error| match error {
        Errno::BUSY => unfit(name, "it is mounted, or part of another device, or somebody has it open"),
        error => failed("open", name, error),
    })?;
    Medium::of_block(file, name, options.cached, access(options))
}
