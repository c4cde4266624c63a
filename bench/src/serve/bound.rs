//! Bounds: what no way that carries out the same requests can be faster than, measured in the same rounds as
//! our ways.
//!
//! ```text
//!   copy         client ── copies the block ──► the volume's memory, mapped
//!   hand-over    client ── a cache line ──► another core ── copies the block ──► the volume's memory
//!                client ◄── a cache line ── another core
//!   staged       the same, with a copy by the client from its own memory to memory that the other core may see
//! ```
//!
//! A bound has the workload, the loop around it, the volume and its pages, the buffers' sizes and the cores
//! of the way that is held against it. It checks nothing, counts nothing, and serves one client: no program
//! could use it as it is. What a copy, a cache line and a miss cost differs between machines, so a goal
//! against a bound asks the same of each of them.

use super::calls::{Called, Calls, PAGE};
use super::engine::Engine;
use super::handover::HandOver;
use super::peer::{CLIENT_CORE, SERVER_CORE, cores};
use super::workload::{Direction, Workload};
use crate::error::Error;
use bywash_client::{Access, Client, MappedMemory, Options, PathChoice, Volume};
use bywash_sync::{light_shared_fence, prepare_shared_fences, read_fence};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A bound, by what its requests consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// A copy between the client's buffer and the mapped volume.
    Copy {
        /// Writes go past the caches, which for large ones may be faster.
        past_caches: bool,
        /// All clients copy on the core that our server has, as our server does for them.
        on_one_core: bool,
    },
    /// A cache line to another core, its copy between a shared buffer and the mapped volume, and a cache line
    /// back.
    HandOver {
        /// The client copies between memory of its own and the shared buffer besides.
        is_staged: bool,
    },
}

impl Bound {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Copy { past_caches: false, on_one_core: false } => "bound: a bare copy",
            Bound::Copy { past_caches: true, on_one_core: false } => "bound: a bare copy past the caches",
            Bound::Copy { past_caches: false, on_one_core: true } => "bound: a bare copy on one core",
            Bound::Copy { past_caches: true, on_one_core: true } => {
                "bound: a bare copy past the caches on one core"
            }
            Bound::HandOver { is_staged: false } => "bound: a bare hand-over and a copy",
            Bound::HandOver { is_staged: true } => "bound: a bare hand-over and two copies",
        }
    }

    /// Returns the note of a row that is held against this bound: which work binds.
    pub fn binds(self) -> &'static str {
        match self {
            Bound::Copy { on_one_core: false, .. } => "the client copies the bytes",
            Bound::Copy { on_one_core: true, .. } => "one core copies the bytes of all clients",
            Bound::HandOver { is_staged: false } => {
                "a cache line to the server's core, which copies the bytes, and one back"
            }
            Bound::HandOver { is_staged: true } => {
                "the client copies the bytes, a cache line to the server's core, which copies them again, and one back"
            }
        }
    }

    /// Cores that the clients run on; none: anywhere.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is one core, and nobody to hand anything over to.
    pub fn cores(self, clients: usize) -> Result<Vec<usize>, Error> {
        match self {
            Bound::HandOver { .. } if cores() == 1 => {
                Err(Error::Unavailable("a hand-over takes two cores, and there is one".into()))
            }
            Bound::HandOver { .. } => Ok(vec![CLIENT_CORE]),
            Bound::Copy { .. } if cores() == 1 => Ok(Vec::new()),
            Bound::Copy { on_one_core: true, .. } => Ok(vec![SERVER_CORE]),
            Bound::Copy { on_one_core: false, .. } if clients == 1 => Ok(vec![CLIENT_CORE]),
            Bound::Copy { .. } => Ok(Vec::new()),
        }
    }

    /// Opens a volume of the server at `socket`, for requests of `workload`.
    ///
    /// # Errors
    /// [`Error::Failed`] if the volume cannot be mapped, or is too small.
    pub fn open(self, socket: &Path, volume: &str, workload: &Workload) -> Result<Box<dyn Engine>, Error> {
        let bare =
            Bare::open(socket, volume, workload, matches!(self, Bound::Copy { past_caches: true, .. }))?;
        Ok(match self {
            Bound::Copy { .. } => Box::new(Calls::over(bare, workload)),
            Bound::HandOver { is_staged } => {
                Box::new(HandOver::start(bare, is_staged, SERVER_CORE, workload)?)
            }
        })
    }
}

/// The memory of a volume without anything around it.
pub(super) struct Bare {
    memory: MappedMemory,
    bytes: usize,
    past_caches: bool,
    has_fences: bool,
    // The grant lasts as long as they do.
    _volume: Volume,
    _client: Client,
}

impl Bare {
    fn open(socket: &Path, volume: &str, workload: &Workload, past_caches: bool) -> Result<Bare, Error> {
        let failed = |error: bywash_client::Error| Error::failed("a bound", error.to_string());
        let client = Client::connect(socket, Options::new().choice(PathChoice::Mapped)).map_err(failed)?;
        let volume = client.open(volume, Access::ReadWrite).map_err(failed)?;
        let memory = volume.map().map_err(failed)?;
        let bytes = memory.len();
        if (bytes as u64) < workload.medium_bytes {
            let why = format!("the volume has {bytes} bytes of {}", workload.medium_bytes);
            return Err(Error::failed("a bound", why));
        }
        let has_fences = prepare_shared_fences();
        Ok(Bare { memory, bytes, past_caches, has_fences, _volume: volume, _client: client })
    }

    /// Copies a block to or from `buffer`, with the fences that a client of mapped memory needs.
    ///
    /// # Safety
    /// `buffer` has room for `length` bytes, which nobody else touches meanwhile, and is in no volume.
    ///
    /// # Panics
    /// If the block ends beyond the volume.
    #[inline]
    #[expect(unsafe_code, reason = "the bytes go to and from memory that is mapped")]
    pub(super) unsafe fn copy(&self, direction: Direction, offset: u64, buffer: *mut u8, length: usize) {
        let offset = offset as usize;
        assert!(
            offset <= self.bytes && length <= self.bytes - offset,
            "the workload was held against the volume"
        );
        let place = self.memory.as_ptr().wrapping_add(offset);
        // SAFETY: the range is within the volume, mapped as long as `memory` is there; the buffer is the
        // caller's promise.
        unsafe {
            match direction {
                Direction::Read => place.cast_const().copy_to_nonoverlapping(buffer, length),
                Direction::Write if self.past_caches => copy_past_caches(buffer, place, length),
                Direction::Write => buffer.cast_const().copy_to_nonoverlapping(place, length),
            }
        }
        match direction {
            Direction::Read => read_fence(),
            Direction::Write => light_shared_fence(self.has_fences),
        }
    }
}

impl Called for Bare {
    #[inline]
    #[expect(unsafe_code, reason = "see `Bare::copy`")]
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Error> {
        // SAFETY: a slice of the program's own; none leads into the volume.
        unsafe { self.copy(Direction::Read, offset, bytes.as_mut_ptr(), bytes.len()) };
        Ok(bytes.len())
    }

    #[inline]
    #[expect(unsafe_code, reason = "see `Bare::copy`")]
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        // SAFETY: a slice of the program's own, which is only read; none leads into the volume.
        unsafe { self.copy(Direction::Write, offset, bytes.as_ptr().cast_mut(), bytes.len()) };
        Ok(bytes.len())
    }
}

/// Copies bytes with stores that leave the caches alone, as far as they are whole lines at the place they go
/// to.
///
/// # Safety
/// Both have `length` bytes, and neither is within the other.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "such stores are instructions of their own")]
unsafe fn copy_past_caches(from: *const u8, to: *mut u8, length: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const WORD: usize = size_of::<__m128i>();
    let whole = if to.addr().is_multiple_of(PAGE) { length / (4 * WORD) * 4 } else { 0 };
    // SAFETY: `whole` words are within both, and those of `to` are aligned since it begins at a page; the
    // rest follows them.
    unsafe {
        let (words, places) = (from.cast::<__m128i>(), to.cast::<__m128i>());
        for first in (0..whole).step_by(4) {
            let four = [0, 1, 2, 3].map(|word| _mm_loadu_si128(words.add(first + word)));
            four.into_iter()
                .enumerate()
                .for_each(|(word, value)| _mm_stream_si128(places.add(first + word), value));
        }
        let done = whole * WORD;
        from.add(done).copy_to_nonoverlapping(to.add(done), length - done);
        _mm_sfence();
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[expect(unsafe_code, reason = "as where there are such stores")]
unsafe fn copy_past_caches(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { from.copy_to_nonoverlapping(to, length) };
}
