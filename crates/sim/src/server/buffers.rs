//! Buffers in memory between which a request's data moves, and the passes of a processor over them. The builder
//! of request scripts (`request`) and the hardware call the module.
//!
//! ```text
//!     files     128 MiB of files in memory, of which a request picks one at random
//!     kernel    \
//!     socket     } one buffer of a piece's size for each thread, which each piece overwrites
//!     program   /
//! ```
//!
//! The engine (`engine::coherence`) simulates which parts of the buffers are in which processor's second-level
//! cache, and so the traffic of each access on the memory bus; nothing here decides it.

use super::hardware::at_least_one;
use crate::engine::{Access, Op, Region, Register, SECTOR};
use bywash_model::Workload;

/// Buffer that a part of a request's data is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// A file that a program or the kernel keeps in memory.
    File,
    /// The kernel's buffer of a file's data that it does not keep.
    Kernel,
    /// The kernel's buffer of data to or from the network.
    Socket,
    /// The program's own buffer.
    Program,
}

/// Pass of a processor over a request's data: it reads one buffer, overwrites one, or does both in a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Buffer that is read.
    pub reads: Option<Buffer>,
    /// Buffer that is overwritten.
    pub writes: Option<Buffer>,
}

/// Regions of memory of all buffers.
#[derive(Clone, Copy, Debug)]
pub struct Regions {
    regions: [Region; 4],
    /// Size of the pieces in which data is copied, in bytes.
    piece: f64,
}

/// Number of sectors of the files in memory: 128 MiB.
const FILE_SECTORS: u32 = 128 * 1024;
/// Largest number of threads with buffers of their own; more threads share them.
const THREADS_MAX: u32 = 4096;
/// Largest size of a thread's buffer, in sectors.
const PIECE_SECTORS_MAX: u32 = 1024;

impl Regions {
    /// Returns the regions for the requests and the threads of `work`.
    pub fn new(work: &Workload) -> Regions {
        let sectors = |bytes: f64, most: u32| ((bytes / f64::from(SECTOR)).ceil() as u32).clamp(1, most);
        let file = sectors(work.request_bytes(), FILE_SECTORS);
        let piece = work.costs.piece.0.min(work.request_bytes());
        let buffers = at_least_one(work.load.threads).min(THREADS_MAX);
        let files = Region { first: 0, buffers: FILE_SECTORS / file, sectors: file };
        let after = |before: Region| Region {
            first: before.end(),
            buffers,
            sectors: sectors(piece, PIECE_SECTORS_MAX),
        };
        let kernel = after(files);
        let socket = after(kernel);
        Regions { regions: [files, kernel, socket, after(socket)], piece }
    }

    /// Returns the number of sectors of all regions.
    pub fn sectors(&self) -> u32 {
        self.regions[Buffer::Program as usize].end()
    }

    /// Returns the operation by which a request picks its file in memory.
    pub fn pick_file(&self) -> Op {
        Op::Pick { register: Register::File, count: self.regions[Buffer::File as usize].buffers }
    }

    /// Returns the access to the current block of `buffer`. The job waits for what the access moves if `waits`.
    pub fn touch(&self, access: Access, buffer: Buffer, waits: bool) -> Op {
        let register = if buffer == Buffer::File { Register::File } else { Register::Thread };
        Op::Touch { access, region: self.regions[buffer as usize], buffer: register, waits }
    }

    /// Returns the bytes that a pass handles at a time: a piece of each of its buffers.
    pub fn bytes_at_once(&self, pass: Pass) -> f64 {
        self.piece * f64::from(u8::from(pass.reads.is_some()) + u8::from(pass.writes.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_model::units::Size;
    use bywash_model::work::Request;

    #[test]
    fn regions_do_not_overlap_and_are_bounded() {
        for (bytes, threads) in [(16384.0, 64.0), (1.0, 1.0), (2e9, 1e6)] {
            let mut work = Workload::new(Request::Video { file: Size(bytes) });
            (work.load.threads, work.costs.piece) = (threads, Size(1e9));
            let regions = Regions::new(&work);
            for pair in regions.regions.windows(2) {
                assert_eq!(pair[0].end(), pair[1].first);
            }
            assert!(regions.regions.iter().all(|region| region.buffers > 0 && region.sectors > 0));
            assert!(regions.sectors() <= FILE_SECTORS + 3 * THREADS_MAX * PIECE_SECTORS_MAX);
        }
    }
}
