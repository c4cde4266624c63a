//! Leaving: a file that was renamed or has lost its last name gives up its number, since recovery would not find it under
//! the path of its identity. And marks for a sync of many files at once (sync(2), syncfs(2)).
//!
//! The area may hold records under a number that was left, which are dead. So the number is taken again only when the tail
//! has passed the last of them.

use crate::commit::Log;
use crate::mutants::{self, Mutant};
use crate::robust::Locked;
use crate::shared::{Entry, LEFT};
use crate::sys::Errno;
use core::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

impl Log {
    /// Gives up the number of a file that has no live records: recovery need not find the file under the path that it had.
    /// The file may join the log again under another number.
    ///
    /// # Errors
    /// The error number of the log file.
    pub fn leave(&self, lock: &Locked<'_>, entry: &'static Entry) -> Result<(), Errno> {
        let Some(file) = self.number_of(entry) else { return Ok(()) };
        self.mark(lock, entry, entry.sequence.load(Relaxed), true)?;
        let header = self.shared.header();
        let last = entry.newest.load(Relaxed);
        entry.oldest.store(0, Relaxed);
        entry.slot.store(0, Release);
        header.left_at[file.slot as usize].store(last, Relaxed);
        header.slots[file.slot as usize].store(LEFT, SeqCst);
        Ok(())
    }

    /// Gives up the entry of a file that has lost its last name and has left the log. Others look for the file again and find
    /// nothing.
    pub fn give_up(&self, lock: Locked<'static>, entry: &'static Entry) {
        if self.number_of(entry).is_some() || entry.oldest.load(Relaxed) != 0 {
            return;
        }
        if let Some(_append) = self.shared.header().append.lock() {
            self.shared.free(entry);
        }
        drop(lock);
    }

    /// Returns true if a number belongs to no file, and no record under it is left in the area.
    pub fn is_free(&self, slot: u32) -> bool {
        self.free_value(slot).is_some()
    }

    /// Takes a number for an entry, whose index plus one is `owner`, if the number is free.
    pub(crate) fn take_number(&self, slot: u32, owner: u32) -> bool {
        let word = &self.shared.header().slots[slot as usize];
        self.free_value(slot)
            .is_some_and(|before| word.compare_exchange(before, owner, SeqCst, Relaxed).is_ok())
    }

    /// Returns the value of a number that is free.
    fn free_value(&self, slot: u32) -> Option<u32> {
        let header = self.shared.header();
        let value = header.slots[slot as usize].load(SeqCst);
        let is_passed = || header.left_at[slot as usize].load(Relaxed) < header.tail_number.load(Relaxed);
        (value == 0 || value == LEFT && is_passed()).then_some(value)
    }

    /// Returns the sequence number of a file's newest record; 0 if none is live. A commit that is reading the file is waited
    /// for: it may have read what a sync that begins now makes durable, so its record must be among those that are dead then.
    pub fn newest_record(&self, entry: &'static Entry) -> u64 {
        // Without a lock, this thread has it, and commits nothing meanwhile.
        let _lock = self.lock_entry(entry);
        if entry.oldest.load(Relaxed) == 0 { 0 } else { entry.sequence.load(Relaxed) }
    }

    /// Makes the records of a file dead up to a sequence number that was read before a sync of its whole file system began,
    /// which has succeeded.
    ///
    /// # Errors
    /// The error number of the log file.
    pub fn synced_up_to(&self, entry: &'static Entry, sequence: u64) -> Result<(), Errno> {
        let Some(lock) = self.lock_entry(entry) else { return Ok(()) };
        if entry.oldest.load(Relaxed) == 0 {
            // Another sync by the kernel has made all records dead meanwhile.
            return Ok(());
        }
        if mutants::is_chosen(Mutant::MarkLate) {
            return Ok(());
        }
        self.mark(&lock, entry, sequence, false)?;
        if entry.sequence.load(Relaxed) == sequence {
            entry.oldest.store(0, Relaxed);
        }
        Ok(())
    }
}
