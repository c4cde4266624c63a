//! The session's memory: one header, then records of one size.
//!
//! ```text
//!  0          4096                      4096 + RECORD_BYTES
//!  +----------+-------------------------+-------------------------+--
//!  | Header   | record 0                | record 1                |  ... capacity records (sparse)
//!  +----------+-------------------------+-------------------------+--
//!             |
//!             +-- RecordHeader   512 B   who: pid, parent, program, state
//!             +-- Shard x 8      4 KiB   counters; shards 0-6 belong to one thread each, 7 to all others
//!             +-- FileSlot x 24  7.5 KiB the files that mattered most
//! ```
//!
//! Every word is an atomic that any process of the session may write at any time; readers take what they
//! find and check lengths before they believe them. The memory is made by `memfd_create` (or a file) at
//! its full size, sealed against resizing, and sparse: a record that nobody claims takes no memory.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// `BYWASHSE`, little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BYWASHSE");
/// Rises with every change of this file or of the counters' order.
pub const VERSION: u32 = 5;
/// Processes (and programs started by exec) that one session can count apart.
pub const RECORDS_MAX: u32 = 65_536;
/// The header has a page of its own.
pub const HEADER_BYTES: usize = 4096;
/// One record: three pages.
pub const RECORD_BYTES: usize = 12_288;
/// The whole memory, nearly all of it never touched.
pub const SESSION_BYTES: usize = HEADER_BYTES + RECORDS_MAX as usize * RECORD_BYTES;
/// Counters of one shard.
pub const SHARD_COUNTERS: usize = 64;
/// Shards of a record; all but the last have a single writer at a time.
pub const SHARDS: usize = 8;
/// Files named in a record.
pub const FILE_SLOTS: usize = 24;
/// Bytes of a program's name and of a file's path that are kept.
pub const PROGRAM_BYTES: usize = 448;
/// Bytes of a file's path that are kept.
pub const PATH_BYTES: usize = 264;

/// The first page.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Records handed out so far, also those beyond the capacity.
    pub claimed: AtomicU32,
}

/// Head of a record: state and process of its owner.
#[repr(C)]
pub struct RecordHeader {
    /// 0 free, 1 in use by a process that counts, 2 a program that was executed without the library.
    pub state: AtomicU32,
    /// Process id as the process sees itself.
    pub pid: AtomicU32,
    /// Its parent's.
    pub parent: AtomicU32,
    /// Length of `program`.
    pub program_len: AtomicU32,
    /// CLOCK_MONOTONIC at the claim, in ns.
    pub started_ns: AtomicU64,
    /// Set of shards in use by a thread (bit per shard).
    pub shards_used: AtomicU64,
    /// Number of the reason for which the program was executed without the library.
    pub unserved: AtomicU32,
    reserved: [AtomicU32; 7],
    /// Path of the program.
    pub program: [AtomicU8; PROGRAM_BYTES],
}

/// The counters of one thread, or of all that found no shard of their own.
#[repr(C, align(64))]
pub struct ShardLayout {
    /// In the order of [`crate::Counter`].
    pub counters: [AtomicU64; SHARD_COUNTERS],
}

/// Counters of one file within a record.
#[repr(C)]
pub struct FileSlot {
    /// Calls served at user level.
    pub user_calls: AtomicU64,
    /// Bytes served at user level.
    pub user_bytes: AtomicU64,
    /// Calls served by the kernel.
    pub kernel_calls: AtomicU64,
    /// Bytes served by the kernel.
    pub kernel_bytes: AtomicU64,
    /// Hash of the path; 0: free.
    pub key: AtomicU64,
    /// Length of `path`.
    pub path_len: AtomicU64,
    reserved: AtomicU64,
    /// The path, cut at the front if it is longer.
    pub path: [AtomicU8; PATH_BYTES],
}

/// One process.
#[repr(C)]
pub struct RecordLayout {
    /// State and process of the record's owner.
    pub header: RecordHeader,
    /// Counters of the process, in shards.
    pub shards: [ShardLayout; SHARDS],
    /// Counters of files that the process opened.
    pub files: [FileSlot; FILE_SLOTS],
}

const _: () = {
    assert!(size_of::<Header>() <= HEADER_BYTES);
    assert!(size_of::<RecordHeader>() == 512);
    assert!(size_of::<ShardLayout>() == 512);
    assert!(size_of::<FileSlot>() == 320);
    assert!(size_of::<RecordLayout>() == 512 + 4096 + 7680);
    assert!(size_of::<RecordLayout>() <= RECORD_BYTES);
    assert!(RECORD_BYTES.is_multiple_of(4096));
    assert!(crate::Counter::COUNT <= SHARD_COUNTERS);
};

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn golden_offsets() {
        assert_eq!(MAGIC.to_le_bytes(), *b"BYWASHSE");
        assert_eq!(offset_of!(Header, version), 8);
        assert_eq!(offset_of!(Header, claimed), 12);
        assert_eq!(offset_of!(RecordHeader, started_ns), 16);
        assert_eq!(offset_of!(RecordHeader, program), 64);
        assert_eq!(offset_of!(RecordLayout, shards), 512);
        assert_eq!(offset_of!(RecordLayout, files), 4608);
        assert_eq!(offset_of!(FileSlot, path), 56);
        assert_eq!(SESSION_BYTES, 4096 + 65_536 * 12_288);
    }
}
