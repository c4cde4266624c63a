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
        for target in [Target::Words, Target::MoreWords] {
            let path = self.data.join(target.name());
            let mut open = File::options();
            open.read(true).write(true);
            let file = open.open(&path)?;
            // A careless program does not even open it as it should.
            let flag = if self.is_careless { 0 } else { nix::libc::O_DSYNC };
            let synced = open.custom_flags(flag).open(&path)?;
            let lock = arguments.memory.join(target.name());
            let lock = File::options().write(true).create(true).truncate(false).open(lock)?;
            files.push(Words { target, path, file, synced, lock });
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
            let words = &files[self.random.below(2) as usize];
            match self.random.below(100) {
                0..50 => self.write(words, &sources)?,
                50..58 => self.resize(words)?,
                58..64 => self.punch(words)?,
                64..84 => {
                    self.operation(Kind::Sync, words.target, [0, 0, SAME_SIZE], |process, _| {
                        process.sync(&words.file).map(|()| 0)
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
            let is_synced = self.random.chance(15);
            let kind = if is_synced { Kind::SyncedWrite } else { Kind::Write };
            self.operation(kind, words.target, [offset, length, SAME_SIZE], |process, operation| {
                let bytes = bytes_of(operation, length);
                match is_synced {
                    true => words.synced.write_all_at(&bytes, offset)?,
                    false => process.put(&words.file, &bytes, offset, sources)?,
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
            self.operation(Kind::Truncate, words.target, [0, to, to], |_, _| match is_emptied {
                true => File::options().write(true).truncate(true).open(&words.path).map(|_| 0),
                false => words.file.set_len(to).map(|()| 0),
            })?;
        }
        Ok(flock(&words.lock, FlockOperation::Unlock)?)
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
        self.operation(Kind::Punch, words.target, [offset, length, SAME_SIZE], |_, _| {
            fallocate(&words.file, flags, offset as i64, length as i64)?;
            Ok(offset)
        })?;
        Ok(flock(&words.lock, FlockOperation::Unlock)?)
    }

    /// Writes bytes by one of several calls.
    fn put(&mut self, file: &File, bytes: &[u8], offset: u64, sources: &Sources) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        match self.random.below(100) {
            0..60 => file.write_all_at(bytes, offset),
            60..70 => {
                let mut file = file;
                file.seek(SeekFrom::Start(offset))?;
                file.write_all(bytes)
            }
            70..85 => {
                let (begin, rest) = bytes.split_at(bytes.len() / 3);
                let written = pwritev(file, &[IoSlice::new(begin), IoSlice::new(rest)], offset as i64)?;
                file.write_all_at(&bytes[written..], offset + written as u64)
            }
            85..93 => {
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

/// Returns words that each hold the number of an operation.
fn bytes_of(operation: u64, length: u64) -> Vec<u8> {
    operation.to_le_bytes().iter().copied().cycle().take(length as usize).collect()
}
