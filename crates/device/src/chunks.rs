//! The memory of a `mem:` device: chunks, each a file of its own, mapped side by side.
//!
//! ```text
//!   addresses   │  chunk 0  │  chunk 1  │  chunk 2  │ 3 │     base + offset, whichever chunk that is
//!                     │           │           │       │
//!   memfds          file        file        file    file      what others can be given to map
//! ```
//!
//! A chunk is what can be given out: whoever has its file maps that chunk and nothing beside it, and the MMU holds him to
//! what he may do. What was given out cannot be taken back, so [`Chunks::replace`] puts another file in its place. The
//! addresses stay as they are, and the device's own way to its bytes knows nothing of chunks.
//!
//! All memory is taken at the beginning: a machine that has not so much says so then, and not with a fault later. Called
//! by [`Memory`](crate::Memory), and by whoever lets others map parts of it.

use crate::error::Error;
use crate::spare::{Retired, Shape, Spare, check_available, file};
use bywash_link::{File, HUGE_PAGE, HugePages, Mapping};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// Fewest bytes of a chunk.
pub(crate) const CHUNK_MIN: u64 = HUGE_PAGE as u64;
/// Most bytes of a chunk.
pub(crate) const CHUNK_MAX: u64 = 1 << 30;
/// Most chunks, if it is not said how large they are, and one of the largest would do.
const CHUNKS: u64 = 256;
/// Most chunks: each is an open file.
const CHUNKS_MAX: u64 = 1 << 14;

/// What becomes of the bytes of a chunk that is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// They stay.
    Contents,
    /// They become zeros.
    Nothing,
}

/// The memory of a device, in parts that can be mapped each for itself.
///
/// Whoever maps a chunk sees what the device reads and writes, at once and byte by byte: blocks are whole only for those
/// who go through the device. He can be given the right to read alone. The files are of a fixed size, and nobody but the
/// user whose process made the device can open them by /proc/self/fd for more than he was given; that user, and root,
/// could have traced the process as well.
///
/// A chunk that was given out for writing can also be given back by its holder, page by page (`FALLOC_FL_PUNCH_HOLE`):
/// it then reads as zeros there, and takes memory again when somebody touches it, wherever that comes from.
#[derive(Debug)]
pub struct Chunks {
    mapping: Mapping,
    files: Vec<File>,
    bytes: usize,
    chunk_bytes: usize,
    pages: HugePages,
    /// Of each chunk, bytes on pages of 2 MiB.
    huge_bytes: Vec<usize>,
}

impl Chunks {
    /// So many bytes of zeros, in chunks of `chunk_bytes` bytes; none: of a usual size.
    pub(crate) fn new(bytes: u64, chunk_bytes: Option<u64>, pages: HugePages) -> Result<Chunks, Error> {
        let unfit = |reason| Err(Error::Unfit { what: format!("memory of {bytes} bytes"), reason });
        check_available(bytes, pages)?;
        let chunk_bytes = chunk_bytes.unwrap_or(usual_chunk(bytes));
        let count = match check_chunk(chunk_bytes).and_then(|()| count(bytes, chunk_bytes)) {
            Ok(count) => count,
            Err(reason) => return unfit(reason),
        };
        if pages == HugePages::Reserved && !bytes.is_multiple_of(HUGE_PAGE as u64) {
            return unfit(format!("on reserved pages, give a multiple of {HUGE_PAGE} bytes"));
        }
        // As many bytes as the machine has left, so an address can count them.
        let mapping = Mapping::empty(bytes as usize)?;
        let mut chunks = Chunks {
            mapping,
            files: Vec::with_capacity(count),
            bytes: bytes as usize,
            chunk_bytes: chunk_bytes as usize,
            pages,
            huge_bytes: Vec::with_capacity(count),
        };
        for number in 0..count {
            let file = match file(chunks.shape(number)) {
                Err(Error::Memory(bywash_link::Error::Io { source, .. })) if is_many(&source) => {
                    let limit =
                        "raise the limit of open files (ulimit -n), or give larger chunks (chunk=SIZE)";
                    return unfit(format!("each of its {count} chunks is an open file: {source}; {limit}"));
                }
                file => file?,
            };
            chunks.mapping.put(number * chunks.chunk_bytes, &file)?;
            chunks.files.push(file);
            let huge_bytes = chunks.collapse(number);
            chunks.huge_bytes.push(huge_bytes);
        }
        Ok(chunks)
    }

    /// Where the first byte is; the others follow.
    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// Bytes that are on pages of 2 MiB.
    pub(crate) fn huge_bytes(&self) -> usize {
        self.huge_bytes.iter().sum()
    }

    /// Bytes of a chunk, but for the last, which may have fewer.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes as u64
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.bytes.div_ceil(self.chunk_bytes)
    }

    /// Bytes of chunk `number`.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn bytes(&self, number: usize) -> u64 {
        self.length(number) as u64
    }

    fn length(&self, number: usize) -> usize {
        assert!(number < self.count(), "there is no chunk {number}");
        self.chunk_bytes.min(self.bytes - number * self.chunk_bytes)
    }

    /// Chunk `number` as a file that can be mapped for reading, and by no means for writing.
    ///
    /// # Errors
    /// What the kernel says, which needs /proc for this.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn to_read(&self, number: usize) -> Result<OwnedFd, Error> {
        self.open(number, OFlags::RDONLY)
    }

    /// Chunk `number` as a file that can be mapped for reading and writing.
    ///
    /// # Errors
    /// As [`Chunks::to_read`].
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn to_write(&self, number: usize) -> Result<OwnedFd, Error> {
        self.open(number, OFlags::RDWR)
    }

    /// Each as an open file description of its own, which is all that its holder can change.
    fn open(&self, number: usize, access: OFlags) -> Result<OwnedFd, Error> {
        let path = format!("/proc/self/fd/{}", self.files[number].descriptor().as_raw_fd());
        open(&path, access | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| Error::io(format!("open chunk {number} of memory once more ({path})"), error))
    }

    /// Puts new memory in the place of chunk `number`, as [`Chunks::replace`] does. To make it, and to give the old one
    /// back, takes half a millisecond for a MiB, in which commands wait.
    ///
    /// # Errors
    /// The machine has not so much memory for the time being. The chunk is as it was then.
    ///
    /// # Panics
    /// As [`Chunks::replace`].
    pub fn renew(&mut self, number: usize, keep: Keep) -> Result<(), Error> {
        let spare = Spare::new(self.shape(number))?;
        self.replace(number, keep, spare).map(drop)
    }

    /// What memory has to be like that takes the place of chunk `number`.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn shape(&self, number: usize) -> Shape {
        Shape { bytes: self.length(number), pages: self.pages }
    }

    /// Puts `spare` in the place of chunk `number`. Whoever has the old one mapped shares nothing with the device from
    /// then on; what he has written before is kept with the rest, if that is, and what he writes meanwhile perhaps. When
    /// the old one is dropped he sees zeros.
    ///
    /// Commands wait as long as it takes to copy the contents, 50 us for a MiB, and hardly where nothing is kept.
    ///
    /// # Errors
    /// What the kernel says. The chunk is as it was then.
    ///
    /// # Panics
    /// If there is no such chunk, or the spare memory is of another shape; or if the kernel neither maps that nor the old
    /// one again.
    pub fn replace(&mut self, number: usize, keep: Keep, spare: Spare) -> Result<Retired, Error> {
        let (shape, offset) = (self.shape(number), number * self.chunk_bytes);
        assert_eq!(spare.shape, shape, "the spare memory was made for another chunk");
        let Spare { file, mapping, .. } = spare;
        if keep == Keep::Contents {
            let from = self.base().wrapping_add(offset).cast_const();
            // SAFETY: both are mapped in this length, at different places. Others may write to the old one meanwhile;
            // nobody else has the new one.
            unsafe { ptr::copy_nonoverlapping(from, mapping.base(), shape.bytes) };
        }
        if let Err(error) = self.mapping.put(offset, &file) {
            // The kernel takes away what was there before it looks whether it can map the new file.
            let back = self.mapping.put(offset, &self.files[number]);
            back.expect("memory that was mapped can be mapped again");
            return Err(error.into());
        }
        let old = std::mem::replace(&mut self.files[number], file);
        self.huge_bytes[number] = self.collapse(number);
        Ok(Retired(old))
    }

    /// Makes huge pages of a chunk, all of whose memory is there: the kernel makes none of what nobody has touched.
    fn collapse(&self, number: usize) -> usize {
        match self.pages {
            HugePages::Collapse => self.mapping.collapse_part(number * self.chunk_bytes, self.length(number)),
            HugePages::Reserved => self.length(number),
            HugePages::No => 0,
        }
    }
}

/// Bytes of a chunk of memory of so many bytes.
fn usual_chunk(bytes: u64) -> u64 {
    bytes.div_ceil(CHUNKS).clamp(CHUNK_MIN, CHUNK_MAX).next_power_of_two()
}

/// How many chunks of so many bytes there would be, if there can be as many.
fn count(bytes: u64, chunk_bytes: u64) -> Result<usize, String> {
    match bytes.div_ceil(chunk_bytes) {
        count @ ..=CHUNKS_MAX => Ok(count as usize),
        count => Err(format!("it would have {count} chunks, and can have {CHUNKS_MAX}; give larger ones")),
    }
}

/// Whether a chunk can have so many bytes.
///
/// # Errors
/// Why not, and what to give.
pub(crate) fn check_chunk(bytes: u64) -> Result<(), String> {
    match bytes.is_power_of_two() && (CHUNK_MIN..=CHUNK_MAX).contains(&bytes) {
        true => Ok(()),
        false => Err(format!("a chunk has 2M, 4M, 8M or so on up to 1G, and not {bytes} bytes")),
    }
}

fn is_many(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_as_large_as_it_takes_and_no_larger() {
        for (bytes, chunk) in [
            (512, 2 << 20),
            (512 << 20, 2 << 20),
            ((512 << 20) + 512, 4 << 20),
            (4 << 30, 16 << 20),
            (5 << 30, 32 << 20),
            (256 << 30, 1 << 30),
            (1 << 40, 1 << 30),
            (u64::MAX, 1 << 30),
        ] {
            assert_eq!(usual_chunk(bytes), chunk, "{bytes}");
        }
    }

    #[test]
    fn the_last_chunk_has_what_is_left() {
        let chunks = Chunks::new((4 << 20) + 1024, Some(2 << 20), HugePages::No).unwrap();
        assert_eq!((chunks.count(), chunks.chunk_bytes()), (3, 2 << 20));
        assert_eq!([0, 1, 2].map(|number| chunks.bytes(number)), [2 << 20, 2 << 20, 1024]);
        let whole = Chunks::new(4 << 20, Some(2 << 20), HugePages::No).unwrap();
        assert_eq!((whole.count(), whole.bytes(1)), (2, 2 << 20));
    }

    #[test]
    fn what_makes_no_chunks_is_refused() {
        for (bytes, chunk, pages, why) in [
            (4 << 20, 3 << 20, HugePages::Collapse, "2M, 4M, 8M"),
            (4 << 20, 1 << 20, HugePages::Collapse, "2M, 4M, 8M"),
            (4 << 20, 2 << 30, HugePages::Collapse, "2M, 4M, 8M"),
            (1 << 20, 2 << 20, HugePages::Reserved, "multiple of 2097152"),
        ] {
            let error = Chunks::new(bytes, Some(chunk), pages).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn chunks_are_counted() {
        assert_eq!(count(16384 << 21, 2 << 20), Ok(16384));
        assert!(count((16384 << 21) + 512, 2 << 20).unwrap_err().contains("can have 16384"));
    }

    #[test]
    fn the_memory_of_a_chunk_is_given_back() {
        let mut chunks = Chunks::new(4 << 20, Some(2 << 20), HugePages::No).unwrap();
        let old = chunks.files[0].descriptor().try_clone_to_owned().unwrap();
        let blocks = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_blocks * 512;
        assert_eq!(blocks(&old), 2 << 20);
        chunks.renew(0, Keep::Contents).unwrap();
        assert_eq!(blocks(&old), 0);
        // And the new one's is there already.
        assert_eq!(blocks(&chunks.to_read(0).unwrap()), 2 << 20);
    }
}
