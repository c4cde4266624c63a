//! Claim of a file: the extended attribute that says which log may have records of the file, and where that log is.
//!
//! ```text
//!   offset  0   id of the log, 16 bytes
//!   offset 16   inode number of the file, 8 bytes: an attribute that was copied with a file claims nothing
//!   offset 24   name of the log: its absolute path, or volume:...; missing if the file system has no room for it
//! ```
//!
//! The claim is durable before the file's first commit, and removed when the log is emptied in order. So a claim that is found
//! by somebody who does not use the log means that the log is in use, or that it was not emptied: its records would undo what
//! others write. A claim of a log that has none is stale, and means nothing.

use crate::in_use;
use crate::layout::{BLOCK, Superblock};
use crate::read::{self, ReadError, Storage};
use crate::shared::LOG_PATH_MAX;
use crate::sys::{self, Errno};
use core::ffi::{CStr, c_int};

/// Name of the extended attribute.
pub const CLAIM: &CStr = c"user.bywash.log";
/// Size of a log's id, in bytes.
const ID: usize = size_of::<[u8; 16]>();
/// Offset of the log's path in the attribute, in bytes.
const PATH: usize = ID + size_of::<u64>();

/// Log that claims a file.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Id of the log.
    pub id: [u8; 16],
    /// Path of the log, with a zero byte behind it.
    path: [u8; LOG_PATH_MAX],
}

/// Meaning of a claim for those who do not use its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The log is another one by now, or has no records.
    Stale,
    /// The log is in use or has records, which would undo what others write.
    Live,
    /// The log cannot be looked at, for this error number; ENOENT: there is none at its path.
    Unknown(Errno),
}

impl Claim {
    /// Returns the claim of the file of a descriptor; `None` if no log claims it.
    ///
    /// # Errors
    /// The kernel's error number; ERANGE if the attribute is no claim.
    #[inline]
    pub fn of_descriptor(fd: c_int) -> Result<Option<Claim>, Errno> {
        // Most files have none, for which nothing is copied.
        match sys::read_attribute(fd, CLAIM, &mut []) {
            Err(libc::ENODATA) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Claim::read(fd, |value| sys::read_attribute(fd, CLAIM, value)),
        }
    }

    /// Returns the claim of the file of a descriptor that cannot be read from (O_PATH).
    ///
    /// # Errors
    /// As [`Claim::of_descriptor`].
    pub fn of_path_descriptor(fd: c_int) -> Result<Option<Claim>, Errno> {
        let mut path = [0; 32];
        sys::descriptor_path(fd, &mut path);
        let path = CStr::from_bytes_until_nul(&path).map_err(|_| libc::EINVAL)?;
        Claim::read(fd, |value| sys::read_attribute_at(path, CLAIM, value))
    }

    #[cold]
    #[inline(never)]
    fn read(
        fd: c_int,
        attribute: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Option<Claim>, Errno> {
        let mut value = [0; PATH + LOG_PATH_MAX - 1];
        let length = match attribute(&mut value) {
            Err(libc::ENODATA) => return Ok(None),
            other => other?,
        };
        let (id, rest) = value[..length].split_first_chunk::<ID>().ok_or(libc::ERANGE)?;
        let mut claim = Claim { id: *id, path: [0; LOG_PATH_MAX] };
        if let Some((inode, path)) = rest.split_first_chunk() {
            if u64::from_le_bytes(*inode) != sys::status(fd)?.inode {
                return Ok(None);
            }
            claim.path[..path.len()].copy_from_slice(path);
        }
        Ok(Some(claim))
    }

    /// Returns the path of the log; empty if the claim does not tell it.
    pub fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.path).unwrap_or(c"")
    }

    /// Looks at the log of the claim.
    pub fn standing(&self) -> Standing {
        match self.path().to_bytes() {
            b"" => return Standing::Unknown(libc::ENOENT),
            [b'/', ..] => {}
            // A volume, of which this process is no client.
            _ => return Standing::Unknown(libc::ENOTSUP),
        }
        let looked_at = with_open(self.path(), libc::O_PATH, |found| {
            // Whoever may write the file can name any path in its claim, and opening some devices does things.
            let kind = sys::status(found)?.mode & libc::S_IFMT;
            if kind != libc::S_IFREG && kind != libc::S_IFBLK {
                return Ok(Standing::Stale);
            }
            let mut path = [0; 32];
            sys::descriptor_path(found, &mut path);
            let path = CStr::from_bytes_until_nul(&path).map_err(|_| libc::EINVAL)?;
            with_open(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY, |fd| self.standing_of(fd))
        });
        looked_at.unwrap_or_else(Standing::Unknown)
    }

    fn standing_of(&self, fd: c_int) -> Result<Standing, Errno> {
        let superblock = match read::superblock(&mut Blocks(fd)) {
            Ok(superblock) if superblock.id == self.id => superblock,
            // Another log, or no log.
            Ok(_) | Err(ReadError::Superblock(_) | ReadError::Storage(libc::ENODATA)) => {
                return Ok(Standing::Stale);
            }
            Err(ReadError::Storage(error)) => return Err(error),
            Err(ReadError::Corruption(_)) => return Ok(Standing::Live),
        };
        let is_live = in_use::is_used(fd, superblock.epoch)? || has_batch(fd, &superblock)?;
        Ok(if is_live { Standing::Live } else { Standing::Stale })
    }
}

/// Calls `look` with a descriptor of the file at a path, which is closed then.
fn with_open<T>(path: &CStr, flags: c_int, look: impl FnOnce(c_int) -> Result<T, Errno>) -> Result<T, Errno> {
    let fd = sys::open(path, flags | libc::O_CLOEXEC)?;
    let result = look(fd);
    sys::close(fd);
    result
}

/// Returns true if the log has the batch with which its records would begin. A log that was emptied has none.
fn has_batch(fd: c_int, superblock: &Superblock) -> Result<bool, Errno> {
    read::find_batch(&mut Blocks(fd), superblock, superblock.tail_batch).map(|found| found.is_some())
}

/// Claims the file of a descriptor for a log, unless another one claims it whose records may be live.
///
/// # Errors
/// EBUSY if another log claims it; another error number of the kernel's.
pub fn claim(fd: c_int, id: [u8; 16], path: &CStr) -> Result<(), Errno> {
    match Claim::of_descriptor(fd) {
        Ok(Some(claim)) if claim.id == id && claim.path() == path => return Ok(()),
        Ok(Some(claim)) if claim.id != id && claim.standing() != Standing::Stale => return Err(libc::EBUSY),
        // An attribute that is no claim is written over.
        Ok(_) | Err(libc::ERANGE) => {}
        Err(error) => return Err(error),
    }
    let mut value = [0; PATH + LOG_PATH_MAX];
    value[..ID].copy_from_slice(&id);
    value[ID..PATH].copy_from_slice(&sys::status(fd)?.inode.to_le_bytes());
    let path = path.to_bytes();
    let length = PATH + path.len().min(LOG_PATH_MAX);
    value[PATH..length].copy_from_slice(&path[..length - PATH]);
    match sys::set_attribute(fd, CLAIM, &value[..length]) {
        Err(libc::ENOSPC | libc::E2BIG | libc::ERANGE) => sys::set_attribute(fd, CLAIM, &value[..PATH]),
        set => set,
    }
}

/// Blocks of a log that is open.
struct Blocks(c_int);

impl Storage for Blocks {
    type Error = Errno;

    fn read(&mut self, block: u64, to: &mut [u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < to.len() {
            let offset = block * BLOCK as u64 + done as u64;
            // SAFETY: the rest of the slice is writable, and nobody else has it.
            let read = unsafe { sys::read_at(self.0, to[done..].as_mut_ptr(), to.len() - done, offset) };
            match read {
                // The file ends: it is no log, or not whole.
                Ok(0) => return Err(libc::ENODATA),
                Ok(count) => done += count,
                Err(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
