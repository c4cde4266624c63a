//! Reading of a log: the superblock that counts, the files, and the batches in order.
//!
//! A batch is whole or it is not there, and only the last one may be torn, since a batch is written when all before it
//! are durable. So a batch that cannot be read with a valid later one behind it is corruption, and reading stops with
//! [`Corruption`] instead of leaving records out.

use crate::head::Head;
use crate::layout::{
    BATCH_HEADER, BATCH_MAX, BLOCK, BatchHeader, Block, Damage, FileNumber, Geometry, Identity, Mark,
    RecordHeader, Superblock,
};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// File of a log, to read from.
pub trait Storage {
    /// Error of the log file.
    type Error;

    /// Reads whole blocks from block `block` on into `to`.
    ///
    /// # Errors
    /// The log file's, also if it ends before the last byte.
    fn read(&mut self, block: u64, to: &mut [u8]) -> Result<(), Self::Error>;
}

/// Reason why a log cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadError<E> {
    /// The log file failed.
    Storage(E),
    /// No copy of the superblock is valid: of the better one, the reason.
    Superblock(Damage),
    /// A batch is damaged that is not the last one.
    Corruption(Corruption),
}

/// Damaged batch with a valid later one behind it, or records that name files which are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// Number of the damaged batch.
    pub batch: u64,
    /// Number of the valid later batch; the same number if the damage is inside of the batch.
    pub later: u64,
}

impl fmt::Display for Corruption {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.batch == self.later {
            write!(to, "batch {} has a valid checksum, but its records are malformed", self.batch)
        } else {
            write!(to, "batch {} cannot be read, but the later batch {} can", self.batch, self.later)
        }
    }
}

/// Reads the superblock: the valid copy that was written last.
///
/// # Errors
/// [`ReadError::Storage`]; [`ReadError::Superblock`] if neither copy is valid.
pub fn superblock<S: Storage>(storage: &mut S) -> Result<Superblock, ReadError<S::Error>> {
    let mut block: Block = [0; BLOCK];
    let mut copies = [Err(Damage::Absent); 2];
    for (number, copy) in copies.iter_mut().enumerate() {
        storage.read(number as u64, &mut block).map_err(ReadError::Storage)?;
        *copy = Superblock::decode(&block);
    }
    match copies {
        [Ok(first), Ok(second)] => Ok(if first.writes > second.writes { first } else { second }),
        [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
        [Err(Damage::Absent), Err(damage)] | [Err(damage), Err(_)] => Err(ReadError::Superblock(damage)),
    }
}

/// File of a log, with the records of it that are dead.
#[derive(Clone, Debug)]
pub struct File {
    /// Block with the file's identity.
    block: Box<Block>,
    /// The file's last valid mark.
    pub mark: Option<Mark>,
}

impl File {
    /// Returns the identity of the file.
    ///
    /// # Panics
    /// Never: [`files`] has decoded the block.
    pub fn identity(&self) -> Identity<'_> {
        Identity::decode(&self.block).expect("decoded before")
    }

    /// Returns true if the record with this sequence number must be replayed.
    pub fn is_live(&self, sequence: u64) -> bool {
        self.mark.is_none_or(|mark| !mark.unlinked && sequence > mark.dead_up_to)
    }
}

/// Files of a log by their numbers.
pub type Files = BTreeMap<FileNumber, File>;

/// Reads the table of files: all that joined the log in the superblock's epoch.
///
/// # Errors
/// [`ReadError::Storage`]. An entry that cannot be read was never named by a durable record and is left out.
pub fn files<S: Storage>(storage: &mut S, superblock: &Superblock) -> Result<Files, ReadError<S::Error>> {
    let Geometry { files, .. } = superblock.geometry;
    let mut found = Files::new();
    let mut entry = vec![0; 3 * BLOCK];
    for slot in 0..files {
        storage.read(superblock.geometry.identity(slot), &mut entry).map_err(ReadError::Storage)?;
        let [identity, marks @ ..]: [&Block; 3] =
            [0, 1, 2].map(|part| entry[part * BLOCK..][..BLOCK].try_into().expect("a block"));
        let Ok(Identity { file, epoch, .. }) = Identity::decode(identity) else { continue };
        if file.slot != slot || epoch != superblock.epoch {
            continue;
        }
        let marks = marks.into_iter().filter_map(|block| Mark::decode(block).ok());
        let mark =
            marks.filter(|mark| (mark.file, mark.epoch) == (file, epoch)).max_by_key(|mark| mark.writes);
        found.insert(file, File { block: Box::new(*identity), mark });
    }
    Ok(found)
}

/// Reads all batches in order and calls `visit` with the records of each.
///
/// # Errors
/// [`ReadError::Storage`] and [`ReadError::Corruption`].
pub fn batches<S: Storage>(
    storage: &mut S,
    superblock: &Superblock,
    visit: impl FnMut(RecordHeader, &[u8]),
) -> Result<Head, ReadError<S::Error>> {
    let mut area = Area::new(storage, superblock);
    let mut used = Vec::new();
    let head = area.walk(superblock, u64::MAX, visit, &mut used)?;
    match area.later(head.number, &mut used)? {
        Some(later) => Err(ReadError::Corruption(Corruption { batch: head.number, later })),
        None => Ok(head),
    }
}

/// Reads the batches up to the one numbered `last` in order and calls `visit` with the records of each. Others may append
/// to the log meanwhile, if `last` is durable and no tail is moved.
///
/// # Errors
/// [`ReadError::Storage`]; [`ReadError::Corruption`] if a batch cannot be read or is malformed.
pub fn batches_up_to<S: Storage>(
    storage: &mut S,
    superblock: &Superblock,
    last: u64,
    visit: impl FnMut(RecordHeader, &[u8]),
) -> Result<(), ReadError<S::Error>> {
    let head = Area::new(storage, superblock).walk(superblock, last, visit, &mut Vec::new())?;
    if head.number > last {
        return Ok(());
    }
    Err(ReadError::Corruption(Corruption { batch: head.number, later: last }))
}

/// Returns the block of the area at which the batch numbered `wanted` begins, found by the headers of the batches from the
/// superblock's tail on, which are all durable; `None` if one of them is not there.
///
/// # Errors
/// The log file's.
pub fn find_batch<S: Storage>(
    storage: &mut S,
    superblock: &Superblock,
    wanted: u64,
) -> Result<Option<u64>, S::Error> {
    let geometry = superblock.geometry;
    let mut first: Block = [0; BLOCK];
    let (mut block, mut number) = (superblock.tail_block, superblock.tail_batch);
    while number <= wanted {
        let mut found = None;
        for beginning in [block, 0] {
            if beginning >= geometry.area_blocks() {
                continue;
            }
            storage.read(geometry.area_start() + beginning, &mut first)?;
            let header = BatchHeader::decode(&first).ok();
            let header = header.filter(|header| (header.epoch, header.number) == (superblock.epoch, number));
            if let Some(header) = header {
                found = Some((beginning, header.blocks()));
                break;
            }
        }
        let Some((beginning, blocks)) = found else { return Ok(None) };
        if number == wanted {
            return Ok(Some(beginning));
        }
        (block, number) = (beginning + blocks, number + 1);
    }
    Ok(None)
}

/// Block, header and checksum of a valid batch.
type Found = (u64, BatchHeader, u64);

/// Area of batches, and room for one of them.
struct Area<'a, S> {
    storage: &'a mut S,
    geometry: Geometry,
    epoch: u64,
    buffer: Vec<u8>,
}

impl<'a, S: Storage> Area<'a, S> {
    fn new(storage: &'a mut S, superblock: &Superblock) -> Area<'a, S> {
        let (geometry, epoch) = (superblock.geometry, superblock.epoch);
        Area { storage, geometry, epoch, buffer: vec![0; BATCH_MAX] }
    }

    /// Reads the batches from the superblock's tail up to the one numbered `last`, and returns the head behind them.
    fn walk(
        &mut self,
        superblock: &Superblock,
        last: u64,
        mut visit: impl FnMut(RecordHeader, &[u8]),
        used: &mut Vec<core::ops::Range<u64>>,
    ) -> Result<Head, ReadError<S::Error>> {
        let mut head = Head::empty(superblock.tail_block, superblock.tail_batch);
        let mut previous = None;
        let mut used_blocks = 0;
        while head.number <= last {
            let Some((block, header, checksum)) = self.next(&head, previous)? else { break };
            used_blocks += header.blocks();
            if used_blocks > self.geometry.area_blocks() {
                break;
            }
            let mut rest = &self.buffer[BATCH_HEADER..header.length as usize];
            let malformed = Corruption { batch: header.number, later: header.number };
            for _ in 0..header.records {
                let (record, bytes, behind) =
                    RecordHeader::decode(rest).map_err(|_| ReadError::Corruption(malformed))?;
                visit(record, bytes);
                rest = behind;
            }
            used.push(block..block + header.blocks());
            head = head.behind(block, header.blocks(), checksum);
            previous = Some(checksum);
        }
        Ok(head)
    }

    /// Finds the batch that `head` expects: behind the last one, or at the beginning of the area. Leaves it in the buffer
    /// and returns its block, header and checksum.
    fn next(&mut self, head: &Head, previous: Option<u64>) -> Result<Option<Found>, ReadError<S::Error>> {
        let beginnings = if head.block == 0 { &[0][..] } else { &[head.block, 0] };
        for block in beginnings {
            let Some((header, checksum)) = self.valid(*block)? else { continue };
            if header.number == head.number && previous.is_none_or(|previous| previous == header.previous) {
                return Ok(Some((*block, header, checksum)));
            }
        }
        Ok(None)
    }

    /// Reads the batch at a block, if there is a valid one of this epoch.
    fn valid(&mut self, block: u64) -> Result<Option<(BatchHeader, u64)>, ReadError<S::Error>> {
        if block >= self.geometry.area_blocks() {
            return Ok(None);
        }
        let at = self.geometry.area_start() + block;
        self.storage.read(at, &mut self.buffer[..BLOCK]).map_err(ReadError::Storage)?;
        let Ok(header) = BatchHeader::decode(&self.buffer[..BLOCK]) else { return Ok(None) };
        if header.epoch != self.epoch || block + header.blocks() > self.geometry.area_blocks() {
            return Ok(None);
        }
        let end = header.blocks() as usize * BLOCK;
        if end > BLOCK {
            self.storage.read(at + 1, &mut self.buffer[BLOCK..end]).map_err(ReadError::Storage)?;
        }
        Ok(header.check(&mut self.buffer).ok().map(|checksum| (header, checksum)))
    }

    /// Returns the number of a valid batch after the one numbered `expected`, which could not be read. Looks at the blocks
    /// outside of the batches in `used`, whose contents may look like anything.
    fn later(
        &mut self,
        expected: u64,
        used: &mut [core::ops::Range<u64>],
    ) -> Result<Option<u64>, ReadError<S::Error>> {
        used.sort_unstable_by_key(|range| range.start);
        let mut used = used.iter().peekable();
        let mut block = 0;
        while block < self.geometry.area_blocks() {
            while used.next_if(|range| range.end <= block).is_some() {}
            if let Some(range) = used.peek().filter(|range| range.contains(&block)) {
                block = range.end;
                continue;
            }
            if let Some((header, _)) = self.valid(block)? {
                if header.number > expected {
                    return Ok(Some(header.number));
                }
                block += header.blocks();
            } else {
                block += 1;
            }
        }
        Ok(None)
    }
}
