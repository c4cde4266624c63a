//! Layout of a log on its log file, in blocks of [`BLOCK`] bytes; all numbers are little-endian.
//!
//! ```text
//!   block 0, 1          superblock, two copies that are written in turn
//!   block 2 + 3 i       file i: identity
//!   block 3 + 3 i       file i: mark, first copy        i = 0 .. files
//!   block 4 + 3 i       file i: mark, second copy
//!   block 2 + 3 files   area of batches, written around
//! ```
//!
//! Each block of the first kinds ends with a checksum of the bytes before it (XXH3, 64 bits), so a block that was
//! torn by a power failure is told from a whole one. A superblock or a mark that is torn leaves its other copy. An
//! identity is written once, before the first record that names the file.
//!
//! `docs/formats/log.md` describes the same layout with its invariants.

use crate::checksum::checksum;
use crate::mutants::{self, Mutant};

/// Version of the layout.
pub const VERSION: u32 = 1;
/// Size of a block, in bytes: the unit in which a log is written.
pub const BLOCK: usize = 4096;
/// Size of the largest batch, in bytes; a commit that needs more is not logged.
pub const BATCH_MAX: usize = 1 << 20;
/// Greatest number of files that a log can have records of at a time.
pub const FILES_MAX: u32 = 4096;
/// Size of the longest file handle, in bytes (MAX_HANDLE_SZ of name_to_handle_at(2)).
pub const HANDLE_MAX: usize = 128;
/// Size of the longest path that is kept, in bytes; a file with a longer path is not logged.
pub const PATH_MAX: usize = 3072;
/// Size of a batch's header, in bytes.
pub const BATCH_HEADER: usize = 64;
/// Size of a record's header, in bytes.
pub const RECORD_HEADER: usize = 40;
/// Blocks of each file in the table of files: its identity and two copies of its mark.
const FILE_BLOCKS: u64 = 3;
/// Blocks before the table of files.
const SUPERBLOCKS: u64 = 2;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"BYWASHLG";
const IDENTITY_MAGIC: [u8; 8] = *b"BYWASHFI";
const MARK_MAGIC: [u8; 8] = *b"BYWASHMK";
const BATCH_MAGIC: [u8; 8] = *b"BYWASHBT";

/// One block of memory.
pub type Block = [u8; BLOCK];

/// Reason why a block or a batch cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The magic number is another one: nothing of this kind was written here.
    Absent,
    /// The checksum does not match: the block was torn or altered.
    Checksum,
    /// The version is another one.
    Version(u32),
    /// A length or number lies outside its range.
    Range,
}

/// Sizes of a log, which do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Number of blocks of the log file that the log uses.
    pub blocks: u64,
    /// Number of entries of the table of files.
    pub files: u32,
}

impl Geometry {
    /// Returns the geometry, if it leaves room for at least four of the largest batches.
    pub const fn new(blocks: u64, files: u32) -> Option<Geometry> {
        let geometry = Geometry { blocks, files };
        let is_valid = files > 0
            && files <= FILES_MAX
            && blocks < 1 << 40
            && blocks >= geometry.area_start() + 4 * (BATCH_MAX / BLOCK) as u64;
        if is_valid { Some(geometry) } else { None }
    }

    /// Returns the block of a file's identity.
    pub const fn identity(&self, slot: u32) -> u64 {
        SUPERBLOCKS + FILE_BLOCKS * slot as u64
    }

    /// Returns the block in which a mark of the file with this number of writes belongs.
    pub const fn mark(&self, slot: u32, writes: u64) -> u64 {
        self.identity(slot) + 1 + writes % 2
    }

    /// Returns the first block of the area of batches.
    pub const fn area_start(&self) -> u64 {
        SUPERBLOCKS + FILE_BLOCKS * self.files as u64
    }

    /// Returns the number of blocks of the area of batches.
    pub const fn area_blocks(&self) -> u64 {
        self.blocks - self.area_start()
    }
}

/// Superblock: identity of the log, and the batch at which recovery begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Random identity of the log (a UUID).
    pub id: [u8; 16],
    /// Sizes of the log.
    pub geometry: Geometry,
    /// User id of the log's owner.
    pub owner: u32,
    /// Number of superblocks written so far; of two valid copies the one with the greater number counts.
    pub writes: u64,
    /// Number of the period since the log was last emptied; batches, identities and marks of other periods are stale.
    pub epoch: u64,
    /// Block of the area at which the oldest batch begins that recovery has to read.
    pub tail_block: u64,
    /// Number of that batch.
    pub tail_batch: u64,
    /// Boot id under which a recovery has begun to write files; zeroes if none has.
    pub recovery_boot: [u8; 16],
}

impl Superblock {
    /// Writes the superblock into a block.
    pub fn encode(&self) -> Block {
        let mut block = [0; BLOCK];
        let mut to = Encoder::new(&mut block);
        to.bytes(&SUPERBLOCK_MAGIC);
        to.u32(VERSION);
        to.u32(BLOCK as u32);
        to.bytes(&self.id);
        to.u64(self.geometry.blocks);
        to.u32(self.geometry.files);
        to.u32(self.owner);
        to.u64(self.writes);
        to.u64(self.epoch);
        to.u64(self.tail_block);
        to.u64(self.tail_batch);
        to.bytes(&self.recovery_boot);
        seal(&mut block);
        block
    }

    /// Reads a superblock.
    ///
    /// # Errors
    /// [`Damage`], if the block holds no valid superblock of this version.
    pub fn decode(block: &Block) -> Result<Superblock, Damage> {
        let mut from = checked(block, SUPERBLOCK_MAGIC)?;
        let version = from.u32();
        if version != VERSION || from.u32() != BLOCK as u32 {
            return Err(Damage::Version(version));
        }
        let id = from.array();
        let geometry = Geometry::new(from.u64(), from.u32()).ok_or(Damage::Range)?;
        let superblock = Superblock {
            id,
            geometry,
            owner: from.u32(),
            writes: from.u64(),
            epoch: from.u64(),
            tail_block: from.u64(),
            tail_batch: from.u64(),
            recovery_boot: from.array(),
        };
        if superblock.tail_block >= geometry.area_blocks() { Err(Damage::Range) } else { Ok(superblock) }
    }

    /// Returns the block that this copy belongs in.
    pub const fn block(&self) -> u64 {
        self.writes % 2
    }
}

/// Name of a file among those of a log: an entry of the table of files, and the use of that entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber {
    /// Index of the entry.
    pub slot: u32,
    /// Number of files that had the entry before.
    pub incarnation: u32,
}

/// Identity of a file: what recovery needs to find the file again and to refuse any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// Number of the file in the log.
    pub file: FileNumber,
    /// Epoch of the log in which the file joined it.
    pub epoch: u64,
    /// UUID of the file system.
    pub filesystem: [u8; 16],
    /// Boot id (/proc/sys/kernel/random/boot_id) under which the file joined the log.
    pub boot: [u8; 16],
    /// Unique id of the mount (STATX_MNT_ID_UNIQUE) through which the file was reached.
    pub mount: u64,
    /// Inode number of the file.
    pub inode: u64,
    /// Type of the handle.
    pub handle_type: i32,
    /// Handle of the file (name_to_handle_at(2)), at most [`HANDLE_MAX`] bytes.
    pub handle: &'a [u8],
    /// Path of the file when it joined the log, at most [`PATH_MAX`] bytes.
    pub path: &'a [u8],
}

impl<'a> Identity<'a> {
    /// Writes the identity into a block; `None` if the handle or the path is too long.
    pub fn encode(&self) -> Option<Block> {
        if self.handle.len() > HANDLE_MAX || self.path.len() > PATH_MAX {
            return None;
        }
        let mut block = [0; BLOCK];
        let mut to = Encoder::new(&mut block);
        to.bytes(&IDENTITY_MAGIC);
        to.file(self.file);
        to.u64(self.epoch);
        to.bytes(&self.filesystem);
        to.bytes(&self.boot);
        to.u64(self.mount);
        to.u64(self.inode);
        to.u32(self.handle_type as u32);
        to.u32(self.handle.len() as u32);
        to.u64(self.path.len() as u64);
        to.bytes(self.handle);
        to.bytes(self.path);
        seal(&mut block);
        Some(block)
    }

    /// Reads an identity.
    ///
    /// # Errors
    /// [`Damage`], if the block holds no valid identity.
    pub fn decode(block: &'a Block) -> Result<Identity<'a>, Damage> {
        let mut from = checked(block, IDENTITY_MAGIC)?;
        let (file, epoch, filesystem, boot) = (from.file(), from.u64(), from.array(), from.array());
        let (mount, inode, handle_type) = (from.u64(), from.u64(), from.u32() as i32);
        let (handle, path) = (from.u32() as usize, from.u64());
        if handle > HANDLE_MAX || path > PATH_MAX as u64 {
            return Err(Damage::Range);
        }
        let handle = from.bytes(handle);
        let path = from.bytes(path as usize);
        Ok(Identity { file, epoch, filesystem, boot, mount, inode, handle_type, handle, path })
    }
}

/// Mark of a file: its records up to a sequence number are dead, because the file itself holds newer data durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Number of the file in the log.
    pub file: FileNumber,
    /// Epoch of the log in which the mark was written.
    pub epoch: u64,
    /// Number of marks of the file written so far; the valid copy with the greater number counts.
    pub writes: u64,
    /// Greatest sequence number that is dead.
    pub dead_up_to: u64,
    /// True if the file has lost its last name: its records need not be replayed, and it need not be found.
    pub unlinked: bool,
}

impl Mark {
    /// Writes the mark into a block.
    pub fn encode(&self) -> Block {
        let mut block = [0; BLOCK];
        let mut to = Encoder::new(&mut block);
        to.bytes(&MARK_MAGIC);
        to.file(self.file);
        to.u64(self.epoch);
        to.u64(self.writes);
        to.u64(self.dead_up_to);
        to.u64(self.unlinked.into());
        seal(&mut block);
        block
    }

    /// Reads a mark.
    ///
    /// # Errors
    /// [`Damage`], if the block holds no valid mark.
    pub fn decode(block: &Block) -> Result<Mark, Damage> {
        let mut from = checked(block, MARK_MAGIC)?;
        Ok(Mark {
            file: from.file(),
            epoch: from.u64(),
            writes: from.u64(),
            dead_up_to: from.u64(),
            unlinked: from.u64() != 0,
        })
    }
}

/// Header of a batch: a number of whole blocks that one write makes durable.
///
/// The batches of an epoch are numbered one by one. A batch follows its predecessor without a gap, or begins the area
/// again if it does not fit behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Epoch of the log.
    pub epoch: u64,
    /// Number of the batch.
    pub number: u64,
    /// Size of header and records, in bytes; the rest of the last block is zero.
    pub length: u32,
    /// Number of records.
    pub records: u32,
    /// Checksum of the batch before, so that no batch can follow another than its own predecessor.
    pub previous: u64,
}

impl BatchHeader {
    /// Offset of the checksum in the header.
    const CHECKSUM: usize = BATCH_HEADER - 8;

    /// Writes the header in front of the records that `batch` holds behind [`BATCH_HEADER`] bytes; returns the checksum
    /// of the batch.
    ///
    /// # Panics
    /// If `batch` is shorter than `length`.
    pub fn encode(&self, batch: &mut [u8]) -> u64 {
        let batch = &mut batch[..self.length as usize];
        batch[..BATCH_HEADER].fill(0);
        let mut to = Encoder::new(batch);
        to.bytes(&BATCH_MAGIC);
        to.u64(self.epoch);
        to.u64(self.number);
        to.u32(self.length);
        to.u32(self.records);
        to.u64(self.previous);
        let checksum = checksum(batch);
        batch[Self::CHECKSUM..BATCH_HEADER].copy_from_slice(&checksum.to_le_bytes());
        checksum
    }

    /// Reads the header of a batch from its first block, without looking at its checksum.
    ///
    /// # Errors
    /// [`Damage::Absent`] or [`Damage::Range`].
    pub fn decode(block: &[u8]) -> Result<BatchHeader, Damage> {
        let mut from = Decoder::new(block);
        if block.len() < BATCH_HEADER || from.array() != BATCH_MAGIC {
            return Err(Damage::Absent);
        }
        let (epoch, number, length, records) = (from.u64(), from.u64(), from.u32(), from.u32());
        let fits = (BATCH_HEADER..=BATCH_MAX).contains(&(length as usize));
        let header = BatchHeader { epoch, number, length, records, previous: from.u64() };
        if fits { Ok(header) } else { Err(Damage::Range) }
    }

    /// Compares the checksum of a whole batch, and returns it.
    ///
    /// # Errors
    /// [`Damage::Checksum`], if the batch was torn or altered; [`Damage::Range`], if `batch` is shorter than the header
    /// says.
    pub fn check(&self, batch: &mut [u8]) -> Result<u64, Damage> {
        let batch = batch.get_mut(..self.length as usize).ok_or(Damage::Range)?;
        let stored: [u8; 8] = Decoder::new(&batch[Self::CHECKSUM..]).array();
        batch[Self::CHECKSUM..BATCH_HEADER].fill(0);
        let computed = checksum(batch);
        batch[Self::CHECKSUM..BATCH_HEADER].copy_from_slice(&stored);
        let is_whole = computed.to_le_bytes() == stored || mutants::is_chosen(Mutant::ChecksumMissing);
        if is_whole { Ok(computed) } else { Err(Damage::Checksum) }
    }

    /// Returns the number of blocks of the batch.
    pub const fn blocks(&self) -> u64 {
        (self.length as usize).div_ceil(BLOCK) as u64
    }
}

/// Header of a record: bytes of a file that a commit makes durable. The bytes follow it, padded to a multiple of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Sequence number of the commit; all records of a commit have the same and lie in one batch.
    pub sequence: u64,
    /// Number of the file in the log.
    pub file: FileNumber,
    /// Offset of the bytes in the file.
    pub offset: u64,
    /// Size of the file at the commit, in bytes: recovery extends a shorter file to it.
    pub size: u64,
    /// Number of bytes.
    pub length: u32,
}

impl RecordHeader {
    /// Returns the size of a record with that many bytes of a file, in bytes.
    pub const fn record_bytes(length: usize) -> usize {
        RECORD_HEADER + length.next_multiple_of(8)
    }

    /// Writes the header.
    pub fn encode(&self) -> [u8; RECORD_HEADER] {
        let mut bytes = [0; RECORD_HEADER];
        let mut to = Encoder::new(&mut bytes);
        to.u64(self.sequence);
        to.file(self.file);
        to.u64(self.offset);
        to.u64(self.size);
        to.u32(self.length);
        bytes
    }

    /// Reads the record at the beginning of `batch`, and returns it with the bytes of the file and the rest of the
    /// batch.
    ///
    /// # Errors
    /// [`Damage::Range`], if the record is longer than the batch or leads behind the end of every file.
    pub fn decode(batch: &[u8]) -> Result<(RecordHeader, &[u8], &[u8]), Damage> {
        let mut from = Decoder::new(batch);
        if batch.len() < RECORD_HEADER {
            return Err(Damage::Range);
        }
        let (sequence, file, offset, size) = (from.u64(), from.file(), from.u64(), from.u64());
        let header = RecordHeader { sequence, file, offset, size, length: from.u32() };
        let length = header.length as usize;
        let end = offset.checked_add(length as u64).filter(|end| *end <= size && size <= i64::MAX as u64);
        let padded = length.checked_next_multiple_of(8).and_then(|padded| padded.checked_add(RECORD_HEADER));
        match (end, padded) {
            (Some(_), Some(whole)) if whole <= batch.len() => {
                Ok((header, &batch[RECORD_HEADER..RECORD_HEADER + length], &batch[whole..]))
            }
            _ => Err(Damage::Range),
        }
    }
}

/// Offset of the checksum in a block.
const CHECKSUM: usize = BLOCK - 8;

/// Writes the checksum of a block into its last eight bytes.
fn seal(block: &mut Block) {
    let sum = checksum(&block[..CHECKSUM]).to_le_bytes();
    block[CHECKSUM..].copy_from_slice(&sum);
}

/// Returns true if a block has the checksum that [`seal`] writes.
fn sealed(block: &Block) -> bool {
    block[CHECKSUM..] == checksum(&block[..CHECKSUM]).to_le_bytes()
}

/// Checks magic number and checksum of a block, and returns a decoder behind the magic number.
fn checked(block: &Block, magic: [u8; 8]) -> Result<Decoder<'_>, Damage> {
    let mut from = Decoder::new(block);
    if from.array() != magic {
        return Err(Damage::Absent);
    }
    if sealed(block) { Ok(from) } else { Err(Damage::Checksum) }
}

/// Writer of numbers and bytes, one behind the other.
struct Encoder<'a> {
    rest: &'a mut [u8],
}

impl<'a> Encoder<'a> {
    fn new(rest: &'a mut [u8]) -> Encoder<'a> {
        Encoder { rest }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (to, rest) = core::mem::take(&mut self.rest).split_at_mut(bytes.len());
        to.copy_from_slice(bytes);
        self.rest = rest;
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    fn file(&mut self, file: FileNumber) {
        self.u32(file.slot);
        self.u32(file.incarnation);
    }
}

/// Reader of numbers and bytes, one behind the other. Its callers know that the bytes are long enough.
struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    fn new(rest: &'a [u8]) -> Decoder<'a> {
        Decoder { rest }
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        bytes
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N));
        array
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    fn file(&mut self) -> FileNumber {
        FileNumber { slot: self.u32(), incarnation: self.u32() }
    }
}

const _: () = {
    assert!(RECORD_HEADER.is_multiple_of(8) && BATCH_HEADER.is_multiple_of(8));
    assert!(BATCH_MAX.is_multiple_of(BLOCK));
    // Magic, numbers, handle, path and checksum of an identity fit into a block.
    assert!(88 + HANDLE_MAX + PATH_MAX + 8 <= BLOCK);
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn superblock() -> Superblock {
        Superblock {
            id: [7; 16],
            geometry: Geometry::new(4096, 16).unwrap(),
            owner: 1000,
            writes: 3,
            epoch: 5,
            tail_block: 17,
            tail_batch: 42,
            recovery_boot: [0; 16],
        }
    }

    const FILE: FileNumber = FileNumber { slot: 3, incarnation: 9 };

    fn identity() -> Identity<'static> {
        Identity {
            file: FILE,
            epoch: 5,
            filesystem: [1; 16],
            boot: [2; 16],
            mount: 77,
            inode: 1234,
            handle_type: 1,
            handle: &[8; 8],
            path: b"/var/lib/x.db",
        }
    }

    fn mark() -> Mark {
        Mark { file: FILE, epoch: 5, writes: 2, dead_up_to: 99, unlinked: true }
    }

    #[test]
    fn golden_bytes() {
        let bytes = superblock().encode();
        assert_eq!(&bytes[..16], b"BYWASHLG\x01\0\0\0\0\x10\0\0");
        assert_eq!(
            &bytes[32..52],
            [&[0, 16][..], &[0; 6], &[16, 0, 0, 0], &[0xe8, 3, 0, 0], &[3, 0, 0, 0]].concat()
        );
        assert_eq!((bytes[64], bytes[72]), (17, 42));
        let bytes = identity().encode().unwrap();
        assert_eq!(&bytes[..16], b"BYWASHFI\x03\0\0\0\x09\0\0\0");
        assert_eq!(&bytes[88..96], [8; 8]);
        assert_eq!(&bytes[96..109], b"/var/lib/x.db");
        let bytes = mark().encode();
        assert_eq!((&bytes[..8], bytes[24], bytes[32], bytes[40]), (&b"BYWASHMK"[..], 2, 99, 1));
        let record = RecordHeader { sequence: 6, file: FILE, offset: 512, size: 4096, length: 100 }.encode();
        assert_eq!(
            (record[0], record[8], record[12], record[17], record[25], record[32]),
            (6, 3, 9, 2, 16, 100)
        );
    }

    #[test]
    fn blocks_are_read_as_they_were_written() {
        assert_eq!(Superblock::decode(&superblock().encode()), Ok(superblock()));
        assert_eq!(Identity::decode(&identity().encode().unwrap()), Ok(identity()));
        assert_eq!(Mark::decode(&mark().encode()), Ok(mark()));
        let path = [b'x'; PATH_MAX + 1];
        assert_eq!(Identity { path: &path, ..identity() }.encode(), None);
        assert!(Identity { path: &path[1..], ..identity() }.encode().is_some());
    }

    #[test]
    fn every_bit_is_checked() {
        for bit in (0..BLOCK * 8).step_by(61) {
            let flipped = |mut block: Block| {
                block[bit / 8] ^= 1 << (bit % 8);
                block
            };
            assert!(Superblock::decode(&flipped(superblock().encode())).is_err(), "bit {bit}");
            assert!(Identity::decode(&flipped(identity().encode().unwrap())).is_err(), "bit {bit}");
            assert!(Mark::decode(&flipped(mark().encode())).is_err(), "bit {bit}");
        }
        assert_eq!(Superblock::decode(&[0; BLOCK]), Err(Damage::Absent));
    }

    #[test]
    fn a_log_has_room_for_four_batches() {
        let least = 2 + 3 * 16 + 4 * 256;
        assert_eq!(Geometry::new(least - 1, 16), None);
        assert_eq!(Geometry::new(least, 16).unwrap().area_blocks(), 4 * 256);
        assert_eq!(Geometry::new(least, 0), None);
        let geometry = Geometry::new(least, 16).unwrap();
        assert_eq!((geometry.identity(0), geometry.mark(0, 0), geometry.mark(0, 1)), (2, 3, 4));
        assert_eq!((geometry.identity(15), geometry.area_start()), (47, 50));
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), BLOCK..=BLOCK)) {
            let mut block: Block = bytes.try_into().unwrap();
            for magic in [SUPERBLOCK_MAGIC, IDENTITY_MAGIC, MARK_MAGIC, BATCH_MAGIC] {
                block[..8].copy_from_slice(&magic);
                seal(&mut block);
                let _ = (Superblock::decode(&block), Identity::decode(&block), Mark::decode(&block));
                if let Ok(header) = BatchHeader::decode(&block) {
                    let _ = header.check(&mut block.clone());
                }
                let _ = RecordHeader::decode(&block);
            }
        }
    }
}
