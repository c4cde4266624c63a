//! The half of the model program that works with words: writes of all kinds, syncs, truncations, punches, appends.

use super::history::{Kind, SAME_SIZE, Target};
use super::program::{Arguments, Process};
use super::{LIMIT_BYTES, WORD, append_bytes};
use nix::fcntl::{FallocateFlags, copy_file_range, fallocate};
use nix::sys::sendfile::sendfile64;
use nix::sys::uio::pwritev;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

/// A file of words, as one process has it open.
struct Words {
    target: Target,
    path: PathBuf,
    file: File,
    synced: File,
    /// Syncs by it are the kernel's whatever commits otherwise (O_DIRECT).
    direct: File,
    /// Held shared by whoever writes within the file, exclusively by whoever changes its size.
    lock: File,
}

/// Files that contents are sent or copied from.
struct Sources {
    /// Not on the disk.
    sent: File,
    /// On the disk.
    copied: File,
}

impl Process<'_> {
    /// Works with the files of words and the appended one.
    pub(super) fn words(&mut self, arguments: &Arguments) -> io::Result<()> {
        let mut files = Vec::new();
        for target in Target::WORDS {
            let path = self.data.join(target.name());
            let mut open = File::options();
            open.read(true).write(true);
            let file = open.open(&path)?;
            // A careless program does not even open it as it should.
            let flag = if self.is_careless { 0 } else { nix::libc::O_DSYNC };
            let synced = open.custom_flags(flag).open(&path)?;
            let direct = File::options().read(true).custom_flags(nix::libc::O_DIRECT).open(&path)?;
            let lock = arguments.memory.join(target.name());
            let lock = File::options().write(true).create(true).truncate(false).open(lock)?;
            files.push(Words { target, path, file, synced, direct, lock });
        }
        let other = self.data.join(format!("copied-{}", std::process::id()));
        let sources = [arguments.memory.join(format!("sent-{}", std::process::id())), other];
        let open = |path: &PathBuf| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true).open(path)
        };
        let sources = Sources { sent: open(&sources[0])?, copied: open(&sources[1])? };
        let appended = File::options().append(true).open(self.data.join(Target::Appended.name()))?;
        for _ in 0..arguments.operations {
            let words = &files[self.random.below(files.len() as u64) as usize];
            let is_steady = words.target == Target::Steady;
            match self.random.below(100) {
                0..50 => self.write(words, &sources)?,
                50..62 if is_steady => self.write(words, &sources)?,
                50..58 => self.resize(words)?,
                58..62 => self.punch(words)?,
                62..84 => {
                    self.operation(Kind::Sync, words.target, [0, 0, SAME_SIZE], |process, _| {
                        let is_direct = !is_steady && process.random.chance(15);
                        let file = if is_direct { &words.direct } else { &words.file };
                        process.sync(file).map(|()| 0)
                    })?;
                }
                _ => self.append(&appended)?,
            }
        }
        Ok(())
    }

    /// Writes some words within the file.
    fn write(&mut self, words: &Words, sources: &Sources) -> io::Result<()> {
        flock(&words.lock, FlockOperation::LockShared)?;
        let size = words.file.metadata()?.len() / WORD * WORD;
        let longest = if self.random.chance(80) { 100 } else { 1500 };
        let length = (1 + self.random.below(longest)) * WORD;
        if size >= length {
            let offset = self.random.below((size - length) / WORD + 1) * WORD;
            // A log may leave such a file to the kernel for good.
            let is_synced = words.target == Target::MoreWords && self.random.chance(15);
            let kind = if is_synced { Kind::SyncedWrite } else { Kind::Write };
            self.operation(kind, words.target, [offset, length, SAME_SIZE], |process, operation| {
                let bytes = bytes_of(operation, length);
                match is_synced {
                    true => words.synced.write_all_at(&bytes, offset)?,
                    false => process.put(words, &bytes, offset, sources)?,
                }
                Ok(offset)
            })?;
        }
        Ok(flock(&words.lock, FlockOperation::Unlock)?)
    }

    /// Extends the file, perhaps over a hole, or cuts it short or grows it by ftruncate or O_TRUNC.
    fn resize(&mut self, words: &Words) -> io::Result<()> {
        flock(&words.lock, FlockOperation::LockExclusive)?;
        let size = words.file.metadata()?.len() / WORD * WORD;
        if self.random.chance(60) && size + (16 << 10) < LIMIT_BYTES {
            let hole = if self.random.chance(30) { self.random.below(1000) * WORD } else { 0 };
            let (offset, length) = (size + hole, (1 + self.random.below(500)) * WORD);
            let fields = [offset, length, offset + length];
            self.operation(Kind::Write, words.target, fields, |_, operation| {
                words.file.write_all_at(&bytes_of(operation, length), offset).map(|()| offset)
            })?;
        } else {
            let is_emptied = self.random.chance(10);
            let to = if is_emptied { 0 } else { self.random.below(LIMIT_BYTES / WORD) * WORD };
            self.commit_first(words, size)?;
            self.operation(Kind::Truncate, words.target, [0, to, to], |_, _| match is_emptied {
                true => File::options().write(true).truncate(true).open(&words.path).map(|_| 0),
                false => words.file.set_len(to).map(|()| 0),
            })?;
        }
        Ok(flock(&words.lock, FlockOperation::Unlock)?)
    }

    /// Writes within the file and syncs it, twice in half of the cases: the second sync is a commit of a log, whatever the file
    /// went through before. The caller keeps the size as it is.
    fn commit_first(&mut self, words: &Words, size: u64) -> io::Result<()> {
        let length = COMMITTED_WORDS * WORD;
        if size < length || self.random.chance(50) {
            return Ok(());
        }
        for _ in 0..2 {
            let offset = self.random.below((size - length) / WORD + 1) * WORD;
            let fields = [offset, length, SAME_SIZE];
            self.operation(Kind::Write, words.target, fields, |_, operation| {
                words.file.write_all_at(&bytes_of(operation, length), offset).map(|()| offset)
            })?;
            self.operation(Kind::Sync, words.target, [0, 0, SAME_SIZE], |process, _| {
                process.sync(&words.file).map(|()| 0)
            })?;
        }
        Ok(())
    }

    /// Makes a range zeroes, with and without freeing its blocks.
    fn punch(&mut self, words: &Words) -> io::Result<()> {
        flock(&words.lock, FlockOperation::LockShared)?;
        let offset = self.random.below(LIMIT_BYTES / WORD) * WORD;
        let length = (1 + self.random.below(1200)) * WORD;
        let how = match self.random.chance(70) {
            true => FallocateFlags::FALLOC_FL_PUNCH_HOLE,
            false => FallocateFlags::FALLOC_FL_ZERO_RANGE,
        };
        let flags = how | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        // Nobody changes the size meanwhile.
        let size = words.file.metadata()?.len() / WORD * WORD;
        self.commit_first(words, size)?;
        self.operation(Kind::Punch, words.target, [offset, length, SAME_SIZE], |_, _| {
            fallocate(&words.file, flags, offset as i64, length as i64)?;
            Ok(offset)
        })?;
        Ok(flock(&words.lock, FlockOperation::Unlock)?)
    }

    /// Writes bytes by one of several calls.
    fn put(&mut self, words: &Words, bytes: &[u8], offset: u64, sources: &Sources) -> io::Result<()> {
        let (file, end) = (&words.file, offset + bytes.len() as u64);
        let kinds = if words.target == Target::Steady { NOTED } else { 100 };
        match self.random.below(kinds) {
            0..65 => file.write_all_at(bytes, offset),
            65..75 => {
                let mut file = file;
                file.seek(SeekFrom::Start(offset))?;
                file.write_all(bytes)
            }
            75..NOTED => {
                let (begin, rest) = bytes.split_at(bytes.len() / 3);
                let written = pwritev(file, &[IoSlice::new(begin), IoSlice::new(rest)], offset as i64)?;
                file.write_all_at(&bytes[written..], offset + written as u64)
            }
            NOTED..95 => {
                sources.sent.write_all_at(bytes, 0)?;
                let (mut file, mut from) = (file, 0);
                file.seek(SeekFrom::Start(offset))?;
                while from < bytes.len() as i64 {
                    let left = bytes.len() - from as usize;
                    if sendfile64(file, &sources.sent, Some(&mut from), left)? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Ok(())
            }
            _ => {
                sources.copied.write_all_at(bytes, 0)?;
                let (mut from, mut to) = (0, offset as i64);
                while to < end as i64 {
                    let left = (end as i64 - to) as usize;
                    if copy_file_range(&sources.copied, Some(&mut from), file, Some(&mut to), left)? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Ok(())
            }
        }
    }

    /// Appends bytes of any length, and syncs the file in half of the cases.
    fn append(&mut self, appended: &File) -> io::Result<()> {
        let length = 1 + self.random.below(300);
        self.operation(Kind::Append, Target::Appended, [0, length, SAME_SIZE], |_, operation| {
            let mut file = appended;
            file.write_all(&append_bytes(operation, length))?;
            Ok(file.stream_position()? - length)
        })?;
        if self.random.chance(50) {
            self.operation(Kind::Sync, Target::Appended, [0, 0, SAME_SIZE], |process, _| {
                process.sync(appended).map(|()| 0)
            })?;
        }
        Ok(())
    }
}

/// Number of words that are written and synced before a file is cut short or punched.
const COMMITTED_WORDS: u64 = 50;
/// Share of writes that a log notes, in percent.
const NOTED: u64 = 90;

/// Returns words that each hold the number of an operation.
fn bytes_of(operation: u64, length: u64) -> Vec<u8> {
    operation.to_le_bytes().iter().copied().cycle().take(length as usize).collect()
}
