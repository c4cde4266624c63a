//! Images of disks as a power cut leaves them.
//!
//! Everything that a disk completed before its last flush is there. Of every later write chance decides: it is there, it is
//! lost, or it is torn, which means that some of its units are there and others are not.

use crate::random::Random;
use crate::recording::{Kind, Position, Record, Recording};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Fate of the writes that are not covered by a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All are lost.
    Lost,
    /// All are there.
    Kept,
    /// Chance decides for each of them; the number is the seed.
    Chance(u64),
}

/// A moment at which the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Number of requests that all disks had completed by then.
    pub position: Position,
    /// Fate of the writes that were in the caches of the disks.
    pub fate: Fate,
}

/// Defect of all disks, for tests of the harness: a checker that does not notice it is blind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The disks keep what they promise.
    None,
    /// The last flush before each cut did nothing.
    FlushIgnored,
    /// One write that the last flush made durable is lost.
    WriteLost,
}

/// Chooses `count` cuts at or after `from`, in order of their positions: a quarter right after a flush, a quarter right before
/// one, when most writes can be lost or torn, the others anywhere; the last one is at the end.
pub fn plan(recording: &Recording, from: Position, count: usize, random: &mut Random) -> Vec<Cut> {
    let end = recording.end();
    let is_flush = |(_, record): &(usize, &Record)| record.kind == Kind::Flush;
    let after = |(index, _): (usize, &Record)| Position(index as u64 + 1);
    let flushes: Vec<Position> = recording.records.iter().enumerate().filter(is_flush).map(after).collect();
    let flushes: Vec<Position> = flushes.into_iter().filter(|position| *position >= from).collect();
    let mut cuts = vec![Cut { position: end, fate: Fate::Lost }];
    while cuts.len() < count {
        let position = if cuts.len() % 2 == 1 && !flushes.is_empty() {
            // If there are enough cuts for all flushes, each is taken, and only the rest is left to chance.
            let next = cuts.len() / 4;
            let is_next = count / 4 >= flushes.len() && next < flushes.len();
            let next = if is_next { next } else { random.below(flushes.len() as u64) as usize };
            let is_before = cuts.len() % 4 == 3;
            Position((flushes[next].0 - u64::from(is_before)).max(from.0))
        } else {
            Position(from.0 + random.below(end.0 - from.0 + 1))
        };
        let fate = match random.below(8) {
            0 => Fate::Lost,
            1 => Fate::Kept,
            _ => Fate::Chance(random.number()),
        };
        cuts.push(Cut { position, fate });
    }
    cuts.sort_by_key(|cut| cut.position);
    cuts
}

/// Image of one disk after each of a series of cuts.
#[derive(Debug)]
pub struct Image {
    disk: u32,
    tear_bytes: usize,
    /// The disk as it was before any of the records from `applied` on.
    durable: File,
    applied: usize,
    image: File,
}

impl Image {
    /// Begins with the disk as `base` has it. The file `image` becomes the disk after each cut; a file beside it, with the
    /// extension `durable`, has what was flushed.
    ///
    /// # Errors
    /// An error of the file system, such as a full memory.
    pub fn new(disk: u32, tear_bytes: usize, base: &Path, image: &Path) -> io::Result<Image> {
        let create =
            |path: &Path| File::options().read(true).write(true).create(true).truncate(true).open(path);
        let (durable, image) = (create(&image.with_extension("durable"))?, create(image)?);
        copy(&File::open(base)?, &durable)?;
        Ok(Image { disk, tear_bytes, durable, applied: 0, image })
    }

    /// Writes the image of a cut, whose position is not before that of an earlier one.
    ///
    /// # Errors
    /// An error of the file system, such as a full memory.
    pub fn cut(&mut self, recording: &Recording, cut: &Cut, fault: Fault) -> io::Result<()> {
        let end = cut.position.0 as usize;
        let mut flushed = recording.last_flush(self.disk, end);
        if fault == Fault::FlushIgnored {
            flushed = recording.last_flush(self.disk, flushed);
        }
        let own = |records: &'_ [Record]| -> Vec<Record> {
            records.iter().filter(|record| record.disk == self.disk).copied().collect()
        };
        let kept_back =
            if fault == Fault::WriteLost { recording.last_flush(self.disk, flushed) } else { flushed };
        for record in own(&recording.records[self.applied.min(kept_back)..kept_back]) {
            apply(&self.durable, recording, &record)?;
        }
        self.applied = self.applied.max(kept_back);
        copy(&self.durable, &self.image)?;
        if fault == Fault::WriteLost {
            let records = own(&recording.records[self.applied.min(flushed)..flushed]);
            let lost = records.iter().rposition(|record| record.kind == Kind::Write);
            for (index, record) in records.iter().enumerate() {
                if Some(index) != lost {
                    apply(&self.image, recording, record)?;
                }
            }
        }
        for (index, record) in own(&recording.records[flushed..end]).iter().enumerate() {
            self.cached(recording, record, cut.fate, index as u64)?;
        }
        Ok(())
    }

    /// Applies a request that no flush covers, as fate has it.
    fn cached(&self, recording: &Recording, record: &Record, fate: Fate, index: u64) -> io::Result<()> {
        let seed = match fate {
            Fate::Lost => return Ok(()),
            Fate::Kept => return apply(&self.image, recording, record),
            Fate::Chance(seed) => seed,
        };
        let mut random = Random::new(seed ^ (index << 32) ^ u64::from(self.disk));
        match random.below(20) {
            0..7 => Ok(()),
            7..14 => apply(&self.image, recording, record),
            // A transfer that was interrupted, or units that reached the disk out of order.
            14..17 => {
                let units = record.length.div_ceil(self.tear_bytes as u64).max(1);
                let there = random.below(units);
                self.torn(recording, record, |unit| unit < there)
            }
            _ => self.torn(recording, record, |_| random.chance(50)),
        }
    }

    /// Applies those units of a request that `is_there` chooses.
    fn torn(
        &self,
        recording: &Recording,
        record: &Record,
        mut is_there: impl FnMut(u64) -> bool,
    ) -> io::Result<()> {
        if record.kind == Kind::Flush {
            return Ok(());
        }
        let bytes = recording.bytes(record)?;
        let mut superblock = None;
        for (unit, part) in bytes.chunks(self.tear_bytes).enumerate() {
            let offset = record.offset + (unit * self.tear_bytes) as u64;
            let mut is_there = is_there(unit as u64);
            if SUPERBLOCK.contains(&offset) {
                is_there = *superblock.get_or_insert(is_there);
            }
            if is_there {
                self.image.write_all_at(part, offset)?;
            }
        }
        Ok(())
    }
}

/// Bytes of a disk that are never torn: ext4's superblock. The kernel mounts no ext4 whose superblock is torn, so no log could
/// help.
const SUPERBLOCK: std::ops::Range<u64> = 1024..2048;

/// Applies a whole request to a file.
///
/// # Errors
/// An error of the file system, such as a full memory.
pub fn apply(image: &File, recording: &Recording, record: &Record) -> io::Result<()> {
    match record.kind {
        Kind::Flush => Ok(()),
        Kind::Write => image.write_all_at(&recording.bytes(record)?, record.offset),
        Kind::Zero => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(image, flags, record.offset, record.length)?)
        }
    }
}

/// Makes `to` a copy of `from` with the same holes.
///
/// # Errors
/// An error of the file system, such as a full memory.
pub fn copy(from: &File, to: &File) -> io::Result<()> {
    let bytes = from.metadata()?.len();
    to.set_len(0)?;
    to.set_len(bytes)?;
    let mut buffer = vec![0; 1 << 18];
    let mut end = 0;
    loop {
        let start = match seek(from, SeekFrom::Data(end)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        end = seek(from, SeekFrom::Hole(start))?;
        let mut at = start;
        while at < end {
            let part = &mut buffer[..(1 << 18).min((end - at) as usize)];
            from.read_exact_at(part, at)?;
            to.write_all_at(part, at)?;
            at += part.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Recorder;

    const UNIT: usize = 512;

    /// A disk of eight units: unit 0 flushed, then units 1 to 4 written at once, a flush, unit 5.
    fn recorded() -> (tempfile::TempDir, Recording) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        File::create(path("base")).unwrap().set_len(8 * UNIT as u64).unwrap();
        let mut recorder = Recorder::create(&path("index"), &path("data")).unwrap();
        recorder.write(0, 0, &[1; UNIT]).unwrap();
        recorder.flush(0).unwrap();
        recorder.write(0, UNIT as u64, &[2; 4 * UNIT]).unwrap();
        recorder.flush(1).unwrap();
        recorder.flush(0).unwrap();
        recorder.write(0, 5 * UNIT as u64, &[3; UNIT]).unwrap();
        let recording = Recording::open(&path("index"), &path("data")).unwrap();
        (folder, recording)
    }

    fn units(folder: &tempfile::TempDir) -> Vec<u8> {
        std::fs::read(folder.path().join("image")).unwrap().iter().step_by(UNIT).copied().collect()
    }

    #[test]
    fn a_superblock_is_not_torn() {
        let (folder, recording) = recorded();
        let path = |name| folder.path().join(name);
        let mut image = Image::new(0, UNIT, &path("base"), &path("image")).unwrap();
        for seed in 0..200 {
            let cut = Cut { position: Position(4), fate: Fate::Chance(seed) };
            image.cut(&recording, &cut, Fault::None).unwrap();
            let units = units(&folder);
            assert_eq!(units[2], units[3], "seed {seed}");
        }
    }

    #[test]
    fn only_what_was_flushed_is_sure() {
        let (folder, recording) = recorded();
        let path = |name| folder.path().join(name);
        let mut image = Image::new(0, UNIT, &path("base"), &path("image")).unwrap();
        let mut cut = |position, fate| {
            image.cut(&recording, &Cut { position: Position(position), fate }, Fault::None).unwrap();
            units(&folder)
        };
        assert_eq!(cut(1, Fate::Lost), [0; 8]);
        assert_eq!(cut(2, Fate::Lost), [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(cut(3, Fate::Kept), [1, 2, 2, 2, 2, 0, 0, 0]);
        // The flush of another disk does not help.
        assert_eq!(cut(4, Fate::Lost), [1, 0, 0, 0, 0, 0, 0, 0]);
        let found: Vec<Vec<u8>> = (0..200).map(|seed| cut(4, Fate::Chance(seed))).collect();
        assert!(found.iter().any(|units| units[1..5] == [2, 0, 0, 0]), "no write was torn in the middle");
        assert!(found.iter().any(|units| units[1] == 0 && units[4] == 2), "no write was torn out of order");
        assert!(found.iter().all(|units| units[0] == 1 && units[5] == 0));
        assert_eq!(cut(6, Fate::Lost), [1, 2, 2, 2, 2, 0, 0, 0]);
        assert_eq!(cut(6, Fate::Kept), [1, 2, 2, 2, 2, 3, 0, 0]);
    }

    #[test]
    fn faults_lose_what_was_flushed() {
        let (folder, recording) = recorded();
        let path = |name| folder.path().join(name);
        for fault in [Fault::FlushIgnored, Fault::WriteLost] {
            let mut image = Image::new(0, UNIT, &path("base"), &path("image")).unwrap();
            image.cut(&recording, &Cut { position: Position(5), fate: Fate::Lost }, fault).unwrap();
            assert_eq!(units(&folder), [1, 0, 0, 0, 0, 0, 0, 0], "{fault:?}");
        }
    }

    #[test]
    fn every_flush_is_planned_if_there_are_enough_cuts() {
        let (_folder, recording) = recorded();
        let cuts = plan(&recording, Position(1), 20, &mut Random::new(7));
        assert_eq!((cuts.len(), cuts.last().unwrap().position), (20, Position(6)));
        for boundary in [2, 4, 5] {
            assert!(cuts.iter().any(|cut| cut.position == Position(boundary)), "{boundary}");
        }
        assert!(
            cuts.iter().all(|cut| cut.position >= Position(1)) && cuts.is_sorted_by_key(|cut| cut.position)
        );
    }
}
