//! A log on a simulated log file whose power is cut: what was acknowledged is read again, in order and whole; what was not
//! is read whole or not at all; and damage before the end is told from a torn end.

#![allow(clippy::unwrap_used)]

use bywash_log::head::Head;
use bywash_log::layout::{
    BATCH_HEADER, BATCH_MAX, BLOCK, BatchHeader, FileNumber, Geometry, RecordHeader, Superblock,
};
use bywash_log::read::{self, Corruption, ReadError, Storage};
use proptest::prelude::*;
use std::convert::Infallible;

/// Size of the unit in which a log file writes without being torn, in bytes.
const SECTOR: usize = 512;

#[derive(Clone)]
struct LogFile(Vec<u8>);

impl Storage for LogFile {
    type Error = Infallible;

    fn read(&mut self, block: u64, to: &mut [u8]) -> Result<(), Infallible> {
        let at = block as usize * BLOCK;
        to.copy_from_slice(&self.0[at..at + to.len()]);
        Ok(())
    }
}

/// Commit: the bytes that a record holds.
type Commit = Vec<u8>;

/// Writer of a log as its users write it, one batch after the other.
struct Writer {
    log_file: LogFile,
    superblock: Superblock,
    head: Head,
    sequence: u64,
    /// Block, number and commits of each batch that is live.
    live: Vec<(u64, u64, Vec<Commit>)>,
}

const FILE: FileNumber = FileNumber { slot: 0, incarnation: 0 };

impl Writer {
    fn new() -> Writer {
        let geometry = Geometry::new(2 + 3 + 1024, 1).unwrap();
        let log_file = LogFile(vec![0xa5; geometry.blocks as usize * BLOCK]);
        let superblock = Superblock {
            id: [1; 16],
            geometry,
            owner: 0,
            writes: 0,
            epoch: 77,
            tail_block: 0,
            tail_batch: 1,
            recovery_boot: [0; 16],
        };
        let mut writer =
            Writer { log_file, superblock, head: Head::empty(0, 1), sequence: 1, live: Vec::new() };
        writer.write_superblock();
        writer
    }

    fn write_superblock(&mut self) {
        self.superblock.writes += 1;
        let at = self.superblock.block() as usize * BLOCK;
        self.log_file.0[at..at + BLOCK].copy_from_slice(&self.superblock.encode());
    }

    /// Gives up the oldest batch, as a checkpoint does whose files are durable.
    fn checkpoint(&mut self) {
        let (block, number) = match self.live.get(1) {
            Some((block, number, _)) => (*block, *number),
            None => (self.head.block % self.superblock.geometry.area_blocks(), self.head.number),
        };
        self.live.remove(0);
        (self.superblock.tail_block, self.superblock.tail_batch) = (block, number);
        self.write_superblock();
    }

    /// Builds the next batch; returns the block that it goes to.
    fn build(&mut self, commits: &[Commit]) -> (u64, Vec<u8>, u64) {
        let mut batch = vec![0; BATCH_HEADER];
        for commit in commits {
            let (length, offset) = (commit.len() as u32, 0);
            let record =
                RecordHeader { sequence: self.sequence, file: FILE, offset, size: u64::from(length), length };
            self.sequence += 1;
            batch.extend(record.encode());
            batch.extend(commit);
            batch.resize(batch.len().next_multiple_of(8), 0);
        }
        let length = batch.len() as u32;
        batch.resize(batch.len().next_multiple_of(BLOCK), 0);
        let header = BatchHeader {
            epoch: self.superblock.epoch,
            number: self.head.number,
            length,
            records: commits.len() as u32,
            previous: self.head.previous,
        };
        let checksum = header.encode(&mut batch);
        let tail = |superblock: &Superblock| (superblock.tail_block, superblock.tail_batch);
        let block = loop {
            let geometry = &self.superblock.geometry;
            match self.head.next_block(geometry, tail(&self.superblock), header.blocks()) {
                Some(block) => break block,
                None => self.checkpoint(),
            }
        };
        (block, batch, checksum)
    }

    fn commit(&mut self, commits: &[Commit]) {
        let (block, batch, checksum) = self.build(commits);
        let at = (self.superblock.geometry.area_start() + block) as usize * BLOCK;
        self.log_file.0[at..at + batch.len()].copy_from_slice(&batch);
        self.live.push((block, self.head.number, commits.to_vec()));
        self.head = self.head.behind(block, (batch.len() / BLOCK) as u64, checksum);
    }

    fn expected(&self) -> Vec<Commit> {
        self.live.iter().flat_map(|(_, _, commits)| commits.clone()).collect()
    }
}

fn read_all(log_file: &LogFile) -> Result<(Vec<Commit>, Head), ReadError<Infallible>> {
    let mut log_file = log_file.clone();
    let superblock = read::superblock(&mut log_file)?;
    let (mut found, mut last) = (Vec::new(), 0);
    let head = read::batches(&mut log_file, &superblock, |record, bytes| {
        assert!(record.sequence > last, "records come in order");
        last = record.sequence;
        found.push(bytes.to_vec());
    })?;
    Ok((found, head))
}

fn commits() -> impl Strategy<Value = Vec<Commit>> {
    let size = prop_oneof![4 => 0usize..200, 2 => 200usize..20_000, 1 => 200_000usize..300_000];
    proptest::collection::vec((size, any::<u8>()).prop_map(|(size, byte)| vec![byte; size]), 1..4)
        .prop_filter("fits", |commits| {
            commits.iter().map(|commit| RecordHeader::record_bytes(commit.len())).sum::<usize>()
                < BATCH_MAX - BATCH_HEADER
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_was_acknowledged_is_read_and_a_torn_end_is_not(
        batches in proptest::collection::vec(commits(), 1..40),
        last in commits(),
        arrived in any::<u64>(),
    ) {
        let mut writer = Writer::new();
        for batch in &batches {
            writer.commit(batch);
        }
        let (found, head) = read_all(&writer.log_file).unwrap();
        prop_assert_eq!(found, writer.expected());
        prop_assert_eq!(head, writer.head);

        // The power is cut during the next write: some sectors arrive, in any order.
        let (block, batch, _) = writer.build(&last);
        let expected = writer.expected();
        let mut log_file = writer.log_file.clone();
        let at = (writer.superblock.geometry.area_start() + block) as usize * BLOCK;
        let sectors = batch.len() / SECTOR;
        for sector in (0..sectors).filter(|sector| arrived >> (sector % 64) & 1 != 0) {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            log_file.0[at + range.start..at + range.end].copy_from_slice(&batch[range]);
        }
        let (found, _) = read_all(&log_file).unwrap();
        let whole = [expected.clone(), last].concat();
        prop_assert!(found == expected || found == whole, "a batch is whole or not there");
    }

    #[test]
    fn damage_before_the_end_is_corruption(
        batches in proptest::collection::vec(commits(), 2..10),
        victim in any::<prop::sample::Index>(),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut writer = Writer::new();
        for batch in &batches {
            writer.commit(batch);
        }
        let victim = victim.index(writer.live.len() - 1);
        let (block, number, commits) = writer.live[victim].clone();
        let length = BATCH_HEADER + commits.iter().map(|commit| RecordHeader::record_bytes(commit.len())).sum::<usize>();
        let bit = bit.index(length * 8);
        let at = (writer.superblock.geometry.area_start() + block) as usize * BLOCK;
        writer.log_file.0[at + bit / 8] ^= 1 << (bit % 8);
        let error = read_all(&writer.log_file).unwrap_err();
        prop_assert!(
            matches!(error, ReadError::Corruption(Corruption { batch, later }) if batch == number && later > number),
            "{:?}", error
        );
    }
}

#[test]
fn a_torn_superblock_leaves_the_one_before() {
    let mut writer = Writer::new();
    writer.commit(&[b"a".to_vec()]);
    writer.commit(&[b"b".to_vec()]);
    writer.checkpoint();
    let newest = writer.superblock.block() as usize * BLOCK;
    assert_eq!(read_all(&writer.log_file).unwrap().0, [b"b"]);
    writer.log_file.0[newest + 100] ^= 1;
    assert_eq!(read_all(&writer.log_file).unwrap().0, [b"a", b"b"]);
    writer.log_file.0[BLOCK - newest + 100] ^= 1;
    assert!(matches!(read_all(&writer.log_file), Err(ReadError::Superblock(_))));
}

#[test]
fn an_emptied_log_has_no_batch_of_before() {
    let mut writer = Writer::new();
    for _ in 0..5 {
        writer.commit(&[vec![1; 5000]]);
    }
    // The epoch changes and the tail is at the beginning of the area, where batches of before still lie.
    writer.superblock.epoch += 1;
    (writer.superblock.tail_block, writer.superblock.tail_batch) = (0, 1);
    writer.write_superblock();
    assert_eq!(read_all(&writer.log_file).unwrap().0, Vec::<Commit>::new());
}
