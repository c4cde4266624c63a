//! The recording's memory: a header, names of files, then chunks of calls.
//!
//! ```text
//!  0          4096                          CHUNKS_AT
//!  +----------+-----------------------------+----------+----------+--
//!  | Header   | FileEntry x 131,072, 256 B  | chunk 0  | chunk 1  |  ... as many as were asked for (sparse)
//!  +----------+-----------------------------+----------+----------+--
//!                                           |
//!                                           +-- ChunkHeader   64 B   owner, number of calls, state of the clock
//!                                           +-- CallSlot x 1,636, 40 B
//! ```
//!
//! Every word is an atomic that any process of the run may write at any time; the reader copies each once and
//! checks it before it believes it. A chunk has one writer, the thread that claimed it.

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};

/// `BYWASHRC`, little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BYWASHRC");
/// Version of the layout; rises with every change of this file.
pub const VERSION: u32 = 2;
/// Size of the header, in bytes: a page.
pub const HEADER_BYTES: usize = 4096;
/// Greatest number of files, programs and sockets that are named.
pub const FILES_MAX: u32 = 131_072;
/// Bytes of a name that are kept.
pub const NAME_BYTES: usize = 208;
/// Offset of the first chunk, in bytes.
pub const CHUNKS_AT: usize = HEADER_BYTES + FILES_MAX as usize * size_of::<FileEntry>();
/// Size of a chunk, in bytes.
pub const CHUNK_BYTES: usize = 65_536;
/// Number of calls that a chunk holds.
pub const CHUNK_CALLS: usize = (CHUNK_BYTES - size_of::<ChunkHeader>()) / size_of::<CallSlot>();
/// Greatest number of chunks of a recording: four GiB.
pub const CHUNKS_MAX: u32 = 65_536;
/// Bit of [`CallSlot::function`] that marks a call that failed.
pub const FAILED: u32 = 1 << 8;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Kind of a recorded call. The number is part of the layout: new kinds go to the end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Function { $($(#[$doc])* $name,)* }

        impl Function {
            /// All kinds, in the order of their numbers.
            pub const ALL: &'static [Function] = &[$(Function::$name,)*];
        }
    };
}

functions! {
    /// Start of a program in a process; the file is the program.
    Start,
    /// End of a process.
    Exit,
    /// `read`, `readv`: at the position of the descriptor.
    Read,
    /// `pread`, `preadv`.
    ReadAt,
    /// `write`, `writev`.
    Write,
    /// `pwrite`, `pwritev`.
    WriteAt,
    /// `fsync`.
    Sync,
    /// `fdatasync`.
    SyncData,
    /// `sync_file_range`.
    SyncRange,
    /// `lseek`.
    Seek,
    /// `open` and its kin.
    Open,
    /// `close`.
    Close,
    /// `recv`, `recvfrom`, `recvmsg`.
    Receive,
    /// `send`, `sendto`, `sendmsg`.
    Send,
    /// `sendfile`, `copy_file_range`, `splice`: data that the kernel moves between two descriptors.
    Transfer,
    /// `poll`, `select`, `epoll_wait`, `accept`, `connect` and their kin.
    Poll,
    /// `wait`, `waitpid` and their kin; the length is the process id.
    WaitChild,
    /// `pthread_cond_wait`, `pthread_join`, `sem_wait` and their kin.
    WaitThread,
    /// `sleep`, `nanosleep` and their kin.
    Sleep,
    /// `fork` and `vfork`; the length is the child's process id.
    Fork,
    /// `execve` and its kin, just before the program is replaced.
    Execute,
}

/// The first page.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Number of chunks of the memory.
    pub chunks: AtomicU32,
    /// Chunks handed out so far, also those beyond the capacity.
    pub chunks_claimed: AtomicU32,
    /// File entries handed out so far, also those beyond the capacity. Entry 0 belongs to nobody.
    pub files_claimed: AtomicU32,
    /// Processes that have recorded so far.
    pub processes: AtomicU32,
    /// Calls that a handler made while its thread added a call, and that were left out.
    pub nested: AtomicU32,
    /// Calls that found no chunk.
    pub lost: AtomicU64,
    /// Nanoseconds of a tick of the time-stamp counter, times 2^32.
    pub tick: AtomicU64,
    /// Ticks of a gap or call from which on the thread's processor time is looked at.
    pub long: AtomicU64,
}

/// A file, program, pipe or socket that calls refer to: one entry for each opening that was used.
#[repr(C)]
pub struct FileEntry {
    /// 0 free, 1 complete.
    pub state: AtomicU32,
    /// Type and permissions (`st_mode` of stat(2)).
    pub mode: AtomicU32,
    /// Number of the process that used the file first; see [`Header::processes`].
    pub process: AtomicU32,
    /// Flags of the opening (open(2)), as F_GETFL tells them.
    pub flags: AtomicU32,
    /// Device that has the file.
    pub device: AtomicU64,
    /// Number of the inode.
    pub inode: AtomicU64,
    /// Size at the first use, in bytes; of a socket, its address family.
    pub size: AtomicU64,
    /// Number of the descriptor.
    pub descriptor: AtomicI32,
    /// Length of `name`.
    pub name_len: AtomicU32,
    /// Path, cut at the front if it is longer.
    pub name: [AtomicU8; NAME_BYTES],
}

/// Head of a chunk.
#[repr(C)]
pub struct ChunkHeader {
    /// Number of the process, from 1; 0: nobody's.
    pub process: AtomicU32,
    /// Process id.
    pub pid: AtomicU32,
    /// Thread id.
    pub thread: AtomicU32,
    /// Process id of the parent.
    pub parent: AtomicU32,
    /// Calls in the chunk. All slots below are complete.
    pub used: AtomicU32,
    /// 1 while the thread adds a call.
    pub busy: AtomicU32,
    /// End of the last call, in ticks.
    pub last_end: AtomicU64,
    /// Time of the last look at the thread's processor time, in ticks.
    pub looked_at: AtomicU64,
    /// The thread's processor time at that look, in nanoseconds.
    pub processor_ns: AtomicU64,
    /// The recorder's own time since the last call, in ticks, where it was long.
    pub own: AtomicU64,
    /// When the chunk was claimed, in ticks.
    pub claimed_at: AtomicU64,
}

/// One call.
#[repr(C)]
pub struct CallSlot {
    /// Start, in ticks.
    pub start: AtomicU64,
    /// End, in ticks.
    pub end: AtomicU64,
    /// Offset in the file, in bytes; `u64::MAX` for a call at the descriptor's position.
    pub offset: AtomicU64,
    /// Bytes moved, or what the kind says.
    pub length: AtomicU32,
    /// Index of the file's entry; 0 if there is none.
    pub file: AtomicU32,
    /// Time between the last call's end and this one's start in which the thread did not compute for the
    /// program, in units of 100 ns.
    pub away: AtomicU32,
    /// [`Function`], and [`FAILED`].
    pub function: AtomicU32,
}

const _: () = {
    assert!(size_of::<Header>() <= HEADER_BYTES);
    assert!(size_of::<FileEntry>() == 256);
    assert!(size_of::<ChunkHeader>() == 64);
    assert!(size_of::<CallSlot>() == 40);
    assert!(CHUNKS_AT.is_multiple_of(4096));
    assert!(CHUNK_CALLS == 1636);
};

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn golden_offsets() {
        assert_eq!(MAGIC.to_le_bytes(), *b"BYWASHRC");
        assert_eq!(offset_of!(Header, chunks), 12);
        assert_eq!(offset_of!(Header, lost), 32);
        assert_eq!(offset_of!(FileEntry, device), 16);
        assert_eq!(offset_of!(FileEntry, name), 48);
        assert_eq!(offset_of!(ChunkHeader, last_end), 24);
        assert_eq!(offset_of!(CallSlot, length), 24);
        assert_eq!(offset_of!(CallSlot, function), 36);
        assert_eq!(CHUNKS_AT, 4096 + 131_072 * 256);
        for (number, function) in Function::ALL.iter().enumerate() {
            assert_eq!(*function as usize, number);
        }
    }
}
