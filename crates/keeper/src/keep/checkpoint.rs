//! Checkpoints: makes files durable, their records dead, and moves the tail of the log behind dead records.
//!
//! For each file with live records its last sequence number and the batch that collects are remembered under the file's
//! lock, the file is made durable without the lock, and then a mark makes all records up to that number dead. Later records
//! lie in the remembered batch or behind it. The lock is not held while the kernel writes, so programs go on committing.
//!
//! A file that cannot be made durable keeps its records. It is written again from the log ([`rewrite`](super::rewrite)) at
//! the next attempt, and the program's next sync is the kernel's, which reports the failure to the program.

use super::files::OpenFiles;
use super::rewrite::{Records, rewrite};
use crate::error::Error;
use crate::keep::files::Reached;
use crate::log_file::{LogFile, Reader};
use crate::sys;
use bywash_log::commit::Log;
use bywash_log::layout::{FileNumber, Superblock};
use bywash_log::read;
use bywash_log::shared::{Counter, Entry, State, entry_state};
use bywash_log::sys as log_sys;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// Time without a commit after which a file's number may be taken from it.
const UNUSED_LIMIT: Duration = Duration::from_millis(200);

/// Files of a running log, and the tail.
#[derive(Debug)]
pub struct Checkpointer {
    /// The log, as the keeper uses it.
    pub log: Log,
    log_file: Arc<LogFile>,
    superblock: Superblock,
    files: OpenFiles,
    /// Files that could not be made durable.
    failed: HashSet<FileNumber>,
    /// Files without live records when numbers were scarce: their last sequence number then, and the time.
    unused: HashMap<FileNumber, (u64, Instant)>,
}

/// Entry whose file is to be made durable.
struct Candidate {
    entry: &'static Entry,
    number: FileNumber,
    sequence: u64,
    collecting: u64,
    dead: u64,
    /// Time at which these were remembered ([`log_sys::monotonic_ns`]).
    now_ns: u64,
}

impl Checkpointer {
    /// Keeps the files of an empty log.
    pub fn new(log: Log, log_file: Arc<LogFile>, superblock: Superblock) -> Checkpointer {
        let files = OpenFiles::new(Arc::clone(&log_file), *log.shared());
        Checkpointer { log, log_file, superblock, files, failed: HashSet::new(), unused: HashMap::new() }
    }

    /// Opens the log for marks, so that they can be written at the end in any case.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn prepare(&self) -> Result<(), Error> {
        self.log.log_file().prepare().map_err(Error::number("open", self.log_file.path()))
    }

    /// Returns the number of files that could not be made durable.
    pub fn failed(&self) -> usize {
        self.failed.len()
    }

    /// Makes all files durable and moves the tail. Returns the number of files for which that failed.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Corrupt`] if the log file has failed.
    pub fn checkpoint(&mut self) -> Result<usize, Error> {
        let entries = self.used_entries().filter(|entry| entry.oldest.load(Relaxed) != 0);
        self.checkpoint_all(entries.collect())?;
        self.move_tail()?;
        Ok(self.failed.len())
    }

    /// Makes all files durable when nobody commits any more, and empties the log. Returns the number of files for which that
    /// failed: then the log is not empty.
    ///
    /// # Errors
    /// As [`Checkpointer::checkpoint`].
    pub fn finish(&mut self) -> Result<usize, Error> {
        // Every entry is locked once: a commit or a joining that has found the log running is complete then.
        self.checkpoint_all(self.used_entries().collect())?;
        if !self.failed.is_empty() {
            return Ok(self.failed.len());
        }
        let header = self.log.shared().header();
        let durable = header.durable.load(Acquire);
        let head = (header.head_block[(durable % 2) as usize].load(Relaxed), durable + 1);
        self.log_file.empty(&mut self.superblock, head)?;
        for number in self.used_entries().filter_map(|entry| self.log.number_of(entry)).collect::<Vec<_>>() {
            self.files.release(number);
        }
        Ok(0)
    }

    /// Makes all files durable when the log file has failed: by marks if they can be written, else by giving up claims.
    /// Returns the number of files for which neither worked.
    pub fn abandon(&mut self) -> usize {
        let mut left = 0;
        for entry in self.used_entries().collect::<Vec<_>>() {
            let Some(lock) = self.log.lock_entry(entry) else { continue };
            let live = entry.oldest.load(Relaxed) != 0;
            let Some(number) = self.log.number_of(entry).filter(|_| live) else { continue };
            let sequence = entry.sequence.load(Relaxed);
            let done = self.files.get(number).and_then(|file| {
                let is_unlinked = file.sync()?;
                let marked = self.log.mark(&lock, entry, sequence, is_unlinked);
                marked
                    .or_else(|_| file.disown().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)))
                    .map_err(io::Error::from_raw_os_error)
            });
            match done {
                Ok(()) => entry.oldest.store(0, Relaxed),
                Err(error) => {
                    left += 1;
                    sys::log(&format!(
                        "log {}: file {}: {error}",
                        self.log_file.path().display(),
                        number.slot
                    ));
                }
            }
        }
        left
    }

    /// Takes numbers from files without live records if few are left, so that other files can join.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn free_numbers(&mut self) -> Result<(), Error> {
        let header = self.log.shared().header();
        let files = self.superblock.geometry.files;
        let free = (0..files).filter(|slot| self.log.is_free(*slot)).count() as u32;
        if free > files / 8 {
            self.unused.clear();
            return Ok(());
        }
        let now = Instant::now();
        let mut unused = HashMap::new();
        let mut wanted = files / 2 - free;
        for entry in self.used_entries().collect::<Vec<_>>() {
            if wanted == 0 {
                break;
            }
            let Some(_lock) = self.log.lock_entry(entry) else { continue };
            let Some(number) = self.log.number_of(entry) else { continue };
            // No batch that recovery reads names the file: the superblock's tail is behind the last one that does.
            let is_dead = entry.oldest.load(Relaxed) == 0;
            if !is_dead || entry.newest.load(Relaxed) >= self.superblock.tail_batch {
                continue;
            }
            // A file that has just joined, or was committed to, is about to be committed to again.
            let sequence = entry.sequence.load(Relaxed);
            let seen = self.unused.get(&number).filter(|(before, _)| *before == sequence);
            let (_, since) = *unused.entry(number).or_insert(*seen.unwrap_or(&(sequence, now)));
            if now.duration_since(since) >= UNUSED_LIMIT {
                self.files.release(number);
                entry.slot.store(0, SeqCst);
                header.slots[number.slot as usize].store(0, SeqCst);
                wanted -= 1;
            }
        }
        self.unused = unused;
        Ok(())
    }

    fn used_entries(&self) -> impl Iterator<Item = &'static Entry> + use<> {
        let entries = self.log.shared().entries().iter();
        entries.filter(|entry| entry.state.load(Acquire) == entry_state::USED)
    }

    fn checkpoint_all(&mut self, entries: Vec<&'static Entry>) -> Result<(), Error> {
        let mut live = HashSet::new();
        for entry in entries {
            let Some(candidate) = self.candidate(entry) else { continue };
            live.insert(candidate.number);
            match self.sync(&candidate) {
                Ok(is_unlinked) => {
                    self.failed.remove(&candidate.number);
                    self.mark(&candidate, is_unlinked)?;
                }
                Err(error) => self.report(&candidate, &error),
            }
        }
        self.failed.retain(|number| live.contains(number));
        self.files.retain(|number| live.contains(&number));
        Ok(())
    }

    /// Remembers what of a file is made durable next; `None` if it has no live records.
    fn candidate(&self, entry: &'static Entry) -> Option<Candidate> {
        let header = self.log.shared().header();
        let _lock = self.log.lock_entry(entry)?;
        if entry.oldest.load(Relaxed) == 0 {
            return None;
        }
        Some(Candidate {
            entry,
            number: self.log.number_of(entry)?,
            sequence: entry.sequence.load(Relaxed),
            collecting: header.collecting.load(SeqCst),
            dead: entry.dead.load(Relaxed),
            now_ns: log_sys::monotonic_ns(),
        })
    }

    /// Makes a file durable. Returns true if it had lost its last name.
    fn sync(&mut self, candidate: &Candidate) -> Result<bool, Error> {
        let failed = || Error::io("sync a file of", self.log_file.path());
        let file = self.files.get(candidate.number).map_err(failed())?;
        if let (true, Reached::File(file)) = (self.failed.contains(&candidate.number), file) {
            let records = Records {
                log_file: &self.log_file,
                superblock: &self.superblock,
                number: candidate.number,
                dead: candidate.dead,
                last: self.log.shared().header().durable.load(Acquire),
            };
            if let Some(_lock) = self.log.lock_entry(candidate.entry) {
                rewrite(file, &records, &candidate.entry.ranges)?;
            }
        }
        file.sync().map_err(failed())
    }

    /// Makes the records of a file dead that were remembered.
    fn mark(&self, candidate: &Candidate, is_unlinked: bool) -> Result<(), Error> {
        let Candidate { entry, number, sequence, collecting, now_ns, .. } = *candidate;
        let Some(lock) = self.log.lock_entry(entry) else { return Ok(()) };
        // A program's own sync may have made all records dead meanwhile.
        if self.log.number_of(entry) != Some(number) || entry.oldest.load(Relaxed) == 0 {
            return Ok(());
        }
        self.log
            .mark(&lock, entry, sequence, is_unlinked)
            .map_err(Error::number("write a mark to", self.log_file.path()))?;
        let has_newer = entry.sequence.load(Relaxed) > sequence;
        let oldest = if has_newer { collecting.max(entry.oldest.load(Relaxed)) } else { 0 };
        // The newer records are younger than what was remembered.
        entry.oldest_ns.store(now_ns, Relaxed);
        entry.oldest.store(oldest, Relaxed);
        self.log.count(Counter::Checkpoints, 1);
        Ok(())
    }

    fn report(&mut self, candidate: &Candidate, error: &Error) {
        candidate.entry.want_kernel();
        if self.failed.insert(candidate.number) {
            let path = super::files::recorded_path(&self.log_file, self.log.shared(), candidate.number.slot);
            let path = path.unwrap_or_default();
            sys::log(&format!("{error} ('{}'); its records are kept, and it is tried again", path.display()));
        }
    }

    /// Moves the tail to the oldest batch that may have live records: first on the log file, then for the programs.
    fn move_tail(&mut self) -> Result<(), Error> {
        let Some(collecting) = self.collecting() else { return Ok(()) };
        let header = self.log.shared().header();
        let oldest = self.used_entries().map(|entry| entry.oldest.load(SeqCst)).filter(|batch| *batch != 0);
        let bound = oldest.fold(collecting, u64::min);
        let (durable, end) = self.end();
        let number = bound.min(durable + 1);
        if number <= self.superblock.tail_batch {
            return Ok(());
        }
        let block = if number == durable + 1 {
            end % self.superblock.geometry.area_blocks()
        } else {
            let found = read::find_batch(&mut Reader::new(&self.log_file), &self.superblock, number);
            let lost =
                || Error::io("find a batch of", self.log_file.path())(io::ErrorKind::InvalidData.into());
            found.map_err(Error::io("read", self.log_file.path()))?.ok_or_else(lost)?
        };
        self.log_file.update(&mut self.superblock, |superblock| {
            (superblock.tail_block, superblock.tail_batch) = (block, number);
        })?;
        if let Some(_write) = header.write.lock() {
            header.tail_block.store(block, Relaxed);
            header.tail_number.store(number, Relaxed);
        }
        Ok(())
    }

    /// Returns the number of the batch that collects. All records of earlier ones are counted in their entries' `oldest`,
    /// since a commit holds the lock of the collecting buffer until they are.
    fn collecting(&self) -> Option<u64> {
        let header = self.log.shared().header();
        let _append = header.append.lock()?;
        Some(header.collecting.load(SeqCst))
    }

    /// Returns the number of the last durable batch and the block behind it.
    fn end(&self) -> (u64, u64) {
        let header = self.log.shared().header();
        let mut durable = header.durable.load(SeqCst);
        loop {
            let end = header.head_block[(durable % 2) as usize].load(SeqCst);
            let again = header.durable.load(SeqCst);
            if again == durable {
                return (durable, end);
            }
            durable = again;
        }
    }

    /// Stops logging, since the log file has failed: every sync is the kernel's from here on.
    pub fn fail(&self, error: &Error) {
        let number = match error {
            Error::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            _ => libc::EIO,
        };
        let shared = self.log.shared();
        shared.header().failure.store(number as u32, Relaxed);
        self.used_entries().for_each(Entry::want_kernel);
        shared.set_state(State::Failed);
        self.drain();
    }

    /// Waits until nobody writes a batch; the state keeps others from beginning.
    pub fn drain(&self) {
        drop(self.log.shared().header().write.lock());
    }
}

#[cfg(test)]
mod tests;
