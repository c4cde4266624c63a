//! Storage of a log as the keeper and the commands use it: a file or a block device, written durably and directly, or a
//! volume of a device server ([`volume`]), under a lock that one process at a time has.
//!
//! Invariant: a superblock is written to the copy that is not the valid one, so that a torn write leaves the one before.

mod volume;

pub use volume::{VolumeFile, VolumeName};

use crate::aligned::Aligned;
use crate::error::Error;
use bywash_log::layout::{BLOCK, Block, Damage, Superblock};
use bywash_log::read::{self, ReadError, Storage};
use bywash_log::{in_use, sys};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Size of a window in which [`Reader`] reads ahead, in bytes: several of the largest batches.
const WINDOW: usize = 4 << 20;
/// Number of windows that are kept of a log that is read more than once: those of one of the default size.
const KEPT_MAX: usize = 80;

/// Number of attempts to lock a log, and the time between two.
const LOCK_ATTEMPTS: u32 = 5;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// An open log file.
#[derive(Debug)]
pub struct LogFile {
    backing: Backing,
    path: PathBuf,
}

/// File, device or volume that a log lies in.
#[derive(Debug)]
enum Backing {
    File(File),
    Device(File),
    Volume(VolumeFile),
}

/// Returns the name of a log that means the same in every folder.
///
/// # Errors
/// [`Error::VolumeName`] or [`Error::Io`].
pub fn absolute(log: &Path) -> Result<PathBuf, Error> {
    match VolumeName::parse(log)? {
        Some(name) => Ok(name.absolute()?.path()),
        None => std::path::absolute(log).map_err(Error::io("find", log)),
    }
}

/// Rights with which a log file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read.
    Read,
    /// To read and write.
    Write,
}

impl LogFile {
    /// Opens the log file of an existing log; its path becomes absolute, without symbolic links.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Kind`], [`Error::NotDirect`] or [`Error::Io`]; for a volume [`Error::VolumeName`],
    /// [`Error::Volume`] or [`Error::Locks`].
    pub fn open(path: &Path, access: Access) -> Result<LogFile, Error> {
        if let Some(name) = VolumeName::parse(path)? {
            return LogFile::open_volume(name, access);
        }
        let real = path.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Missing(path.to_owned()),
            _ => Error::io("find", path)(error),
        })?;
        let flags = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR | OFlags::DSYNC,
        };
        LogFile::open_at(real, flags)
    }

    pub(crate) fn open_volume(name: VolumeName, access: Access) -> Result<LogFile, Error> {
        let name = name.absolute()?;
        let volume = VolumeFile::open(&name, access)?;
        Ok(LogFile { backing: Backing::Volume(volume), path: name.path() })
    }

    pub(crate) fn open_at(path: PathBuf, flags: OFlags) -> Result<LogFile, Error> {
        let kind = std::fs::metadata(&path).map_err(Error::io("look at", &path))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(Error::Kind(path));
        }
        let flags = flags | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::INVAL) => return Err(Error::NotDirect { path, source: Errno::INVAL.into() }),
            Err(Errno::BUSY) => return Err(Error::DeviceBusy(path)),
            Err(error) => return Err(Error::io("open", &path)(error.into())),
        };
        let kind = file.metadata().map_err(Error::io("look at", &path))?.file_type();
        if kind.is_block_device() {
            Ok(LogFile { backing: Backing::Device(file), path })
        } else if kind.is_file() {
            Ok(LogFile { backing: Backing::File(file), path })
        } else {
            Err(Error::Kind(path))
        }
    }

    /// Returns the path of the log file, or the name of the volume.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file, if the log is one.
    pub fn file(&self) -> Option<&File> {
        if let Backing::File(file) = &self.backing { Some(file) } else { None }
    }

    /// Returns the block device, if the log is on one.
    pub fn device(&self) -> Option<&File> {
        if let Backing::Device(device) = &self.backing { Some(device) } else { None }
    }

    /// Returns the volume, if the log is on one.
    pub fn volume(&self) -> Option<&VolumeFile> {
        if let Backing::Volume(volume) = &self.backing { Some(volume) } else { None }
    }

    /// Returns the file or device whose locks count for the log, and its path.
    pub fn locks(&self) -> (&File, &Path) {
        match &self.backing {
            Backing::File(file) | Backing::Device(file) => (file, &self.path),
            Backing::Volume(volume) => volume.locks(),
        }
    }

    /// Returns what users of the log compare ([`sys::Status::identity`]).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn identity(&self) -> Result<(u64, u64), Error> {
        let (file, path) = self.locks();
        let status = sys::status(file.as_raw_fd()).map_err(Error::number("look at", path))?;
        Ok(status.identity())
    }

    /// Returns owner and mode of the file, device or volume.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn owner_and_mode(&self) -> Result<(u32, u32), Error> {
        match &self.backing {
            Backing::Volume(volume) => Ok(volume.owner_and_mode()),
            Backing::File(file) | Backing::Device(file) => {
                let status = file.metadata().map_err(Error::io("look at", &self.path))?;
                Ok((status.uid(), status.mode()))
            }
        }
    }

    /// Takes the lock that keepers and commands have, for as long as the log file is open.
    ///
    /// # Errors
    /// [`Error::InUse`] if somebody else has it; [`Error::Io`].
    pub fn lock(&self) -> Result<(), Error> {
        let (file, path) = self.locks();
        for attempt in 1.. {
            match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                // A process that was just forked has its parent's lock until it executes its program.
                Err(Errno::WOULDBLOCK) if attempt < LOCK_ATTEMPTS => std::thread::sleep(LOCK_INTERVAL),
                Err(Errno::WOULDBLOCK) => return Err(Error::InUse(self.path.clone())),
                Err(error) => return Err(Error::io("lock", &self.path)(error.into())),
            }
        }
        // The file of a volume's locks is removed with the log.
        let is_there = std::fs::metadata(path).is_ok_and(|there| {
            file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
        });
        if is_there { Ok(()) } else { Err(Error::InUse(self.path.clone())) }
    }

    /// Checks that no program uses the log, whose keeper is not there.
    ///
    /// # Errors
    /// [`Error::Orphaned`] or [`Error::Io`].
    pub fn check_unused(&self, epoch: u64) -> Result<(), Error> {
        let used = in_use::is_used(self.locks().0.as_raw_fd(), epoch);
        let used = used.map_err(Error::number("look for locks of", &self.path))?;
        if used { Err(Error::Orphaned(self.path.clone())) } else { Ok(()) }
    }

    /// Reads the superblock that counts.
    ///
    /// # Errors
    /// [`Error::NotALog`], [`Error::Version`], [`Error::Superblock`] or [`Error::Io`].
    pub fn superblock(&self) -> Result<Superblock, Error> {
        let path = || self.path.clone();
        // Nothing behind the two copies is needed.
        match read::superblock(&mut Reader { window_bytes: 2 * BLOCK, ..Reader::new(self) }) {
            Ok(superblock) => Ok(superblock),
            Err(ReadError::Storage(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Error::NotALog(path()))
            }
            Err(ReadError::Storage(error)) => Err(Error::io("read", &self.path)(error)),
            Err(ReadError::Superblock(Damage::Absent)) => Err(Error::NotALog(path())),
            Err(ReadError::Superblock(Damage::Version(version))) => {
                Err(Error::Version { path: path(), version })
            }
            Err(ReadError::Superblock(damage)) => Err(Error::Superblock { path: path(), damage }),
            Err(ReadError::Corruption(corruption)) => Err(Error::Corrupt { path: path(), corruption }),
        }
    }

    /// Writes a superblock that follows `superblock`, durably: changed by `change`, to the other copy.
    ///
    /// # Errors
    /// [`Error::Io`]; `superblock` is as it was then.
    pub fn update(
        &self,
        superblock: &mut Superblock,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<(), Error> {
        let mut next = *superblock;
        change(&mut next);
        next.writes = superblock.writes + 1;
        self.write_block(next.block(), &next.encode())?;
        *superblock = next;
        Ok(())
    }

    /// Empties the log: both superblocks say that the next batch is the oldest, in a new period.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn empty(&self, superblock: &mut Superblock, head: (u64, u64)) -> Result<(), Error> {
        let epoch = random_number().map_err(Error::io("get random bytes for", &self.path))?;
        let change = |superblock: &mut Superblock| {
            superblock.epoch = epoch;
            superblock.tail_block = head.0 % superblock.geometry.area_blocks();
            superblock.tail_batch = head.1.max(1);
            superblock.recovery_boot = [0; 16];
        };
        self.update(superblock, change)?;
        // Nothing but the new period is left, so that damage of one copy cannot bring the old one back.
        self.update(superblock, |_| {})
    }

    /// Reads one block.
    ///
    /// # Errors
    /// The kernel's reason.
    pub(crate) fn read_block(&self, block: u64) -> io::Result<Block> {
        let mut aligned = Aligned::new(BLOCK);
        if self.read_at(aligned.bytes(), block * BLOCK as u64)? < BLOCK {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = [0; BLOCK];
        bytes.copy_from_slice(aligned.bytes());
        Ok(bytes)
    }

    /// Writes one block durably.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_block(&self, block: u64, bytes: &Block) -> Result<(), Error> {
        let mut aligned = Aligned::new(BLOCK);
        aligned.bytes().copy_from_slice(bytes);
        self.write_at(aligned.bytes(), block * BLOCK as u64).map_err(Error::io("write", &self.path))
    }

    /// Reads aligned bytes at an offset; fewer than `to` has at the end of the log.
    pub(crate) fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<usize> {
        match &self.backing {
            Backing::Volume(volume) => volume.read_at(to, at),
            Backing::File(file) | Backing::Device(file) => loop {
                match file.read_at(to, at) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    read => return read,
                }
            },
        }
    }

    /// Writes aligned bytes at an offset, durably if the log was opened to be written.
    pub(crate) fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match &self.backing {
            Backing::Volume(volume) => volume.write_all_at(bytes, at),
            Backing::File(file) | Backing::Device(file) => file.write_all_at(bytes, at),
        }
    }

    /// Makes all that was written to a log durable that was not opened for durable writes.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match &self.backing {
            Backing::Volume(_) => Ok(()),
            Backing::File(file) | Backing::Device(file) => file.sync_all(),
        }
    }
}

/// Reader of a log file that reads ahead. What it has read once it does not read again: whoever expects news makes a new one.
#[derive(Debug)]
pub struct Reader<'a> {
    log_file: &'a LogFile,
    /// Windows, the last one read behind the others.
    windows: Vec<Window>,
    /// Greatest number of windows that are kept.
    windows_max: usize,
    /// Size of a window, in bytes.
    window_bytes: usize,
}

/// Part of a log file in memory.
#[derive(Debug)]
struct Window {
    memory: Aligned,
    /// First block of the window, and the number of bytes in it.
    start: u64,
    length: usize,
}

impl Window {
    fn copy(&mut self, block: u64, to: &mut [u8]) -> bool {
        let Some(blocks) = block.checked_sub(self.start) else { return false };
        let at = blocks as usize * BLOCK;
        match self.memory.bytes()[..self.length].get(at..at.saturating_add(to.len())) {
            Some(found) => to.copy_from_slice(found),
            None => return false,
        }
        true
    }
}

impl<'a> Reader<'a> {
    /// Reads from a log file.
    pub fn new(log_file: &'a LogFile) -> Reader<'a> {
        Reader { log_file, windows: Vec::new(), windows_max: 1, window_bytes: WINDOW }
    }

    /// Reads from a log file that is read more than once: keeps what it has read of a log of usual size.
    pub fn keeping(log_file: &'a LogFile) -> Reader<'a> {
        Reader { windows_max: KEPT_MAX, ..Reader::new(log_file) }
    }

    fn copy(&mut self, block: u64, to: &mut [u8]) -> bool {
        self.windows.iter_mut().rev().any(|window| window.copy(block, to))
    }

    fn fill(&mut self, block: u64) -> io::Result<()> {
        let full = self.windows.len() >= self.windows_max;
        let reused = self.windows.pop_if(|_| full);
        let memory = reused.map_or_else(|| Aligned::new(self.window_bytes), |last| last.memory);
        let mut window = Window { memory, start: block, length: 0 };
        while window.length < self.window_bytes {
            let to = &mut window.memory.bytes()[window.length..];
            match self.log_file.read_at(to, block * BLOCK as u64 + window.length as u64) {
                Ok(0) => break,
                Ok(count) => window.length += count,
                // A bad block further on fails the read that needs it.
                Err(_) if window.length > 0 => break,
                Err(error) => return Err(error),
            }
            if !window.length.is_multiple_of(BLOCK) {
                break;
            }
        }
        self.windows.push(window);
        Ok(())
    }
}

impl Storage for Reader<'_> {
    type Error = io::Error;

    fn read(&mut self, block: u64, to: &mut [u8]) -> io::Result<()> {
        if self.copy(block, to) {
            return Ok(());
        }
        self.fill(block)?;
        if self.copy(block, to) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Returns a random number that is not zero.
pub(crate) fn random_number() -> io::Result<u64> {
    let bytes: [u8; 16] = random_bytes()?;
    let (first, second) = bytes.split_at(8);
    let number = first.iter().zip(second).fold(0, |number, (a, b)| number << 8 | u64::from(a ^ b));
    Ok(number.max(1))
}

/// Returns random bytes (getrandom(2)).
pub(crate) fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
