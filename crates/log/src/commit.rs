//! Committing: appends what was written to a file since its last commit, and waits until it is durable.
//!
//! # Collecting
//!
//! A commit takes the lock of its file and then `append`, draws the next sequence number, takes the noted ranges and reads
//! them from the file into the collecting buffer. The sequence number is drawn before the file is read, and both happen
//! under one lock: of two records of the same bytes, the later one holds what was written later. A record exists when
//! `filled` covers it, which is stored last, so a process that is killed leaves no half record.
//!
//! # Writing
//!
//! Whoever finds nobody writing becomes the leader: it seals the collecting buffer, lets the other one collect, and writes
//! the sealed batch with one call. All whose records are in it return when it is durable. Batches are written one after
//! another, so a batch is acknowledged only when all before it are durable. If the leader is killed, its lock tells the
//! next one, which writes the sealed batch again: the same bytes at the same place.
//!
//! # The kernel's syncs
//!
//! When the kernel makes a file durable, its records in the log become older than the file. They are dead before the call
//! returns: a mark with the sequence number that was read before the kernel's sync began.

use crate::counts::Counts;
use crate::head::Head;
use crate::layout::{
    BATCH_HEADER, BATCH_MAX, BLOCK, BatchHeader, FileNumber, Geometry, Identity, Mark, RECORD_HEADER,
    RecordHeader,
};
use crate::log_file::LogFile;
use crate::mutants::{self, Mutant};
use crate::robust::{Locked, Previous};
use crate::shared::{Counter, Entry, Shared, State};
use crate::sys::{self, Errno, Undisturbed};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

#[cfg(feature = "mutants")]
mod faulty;

/// Blocks of the area that stay free for the two batches that can be under way.
const RESERVE: u64 = 2 * (BATCH_MAX / BLOCK) as u64;
/// Time between two looks at the state while a thread waits for a leader, in nanoseconds.
const LOOK_NS: u32 = 100_000_000;

/// Reason why a sync is left to the kernel.
pub type Refusal = Counter;

/// A log as one process uses it.
#[derive(Debug)]
pub struct Log {
    pub(crate) shared: Shared,
    geometry: Geometry,
    log_file: LogFile,
    /// Counts of the run that the process belongs to, beside those of the log.
    run: Option<&'static Counts>,
}

impl Log {
    /// Uses the log whose memory was opened.
    ///
    /// # Errors
    /// EPROTO if the memory states no valid geometry.
    pub fn new(shared: Shared) -> Result<Log, Errno> {
        let geometry = shared.geometry().ok_or(libc::EPROTO)?;
        Ok(Log { shared, geometry, log_file: LogFile::new(shared), run: None })
    }

    /// Counts for a run as well.
    #[must_use]
    pub fn counting_for(self, run: &'static Counts) -> Log {
        Log { run: Some(run), ..self }
    }

    /// Adds to a counter of the log, and of the run.
    pub fn count(&self, counter: Counter, amount: u64) {
        self.counts().for_each(|counts| counts.add(counter, amount));
    }

    fn counts(&self) -> impl Iterator<Item = &'static Counts> {
        [Some(&self.shared.header().counts), self.run].into_iter().flatten()
    }

    /// Returns the memory that the users of the log share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the log file of the log.
    pub fn log_file(&self) -> &LogFile {
        &self.log_file
    }

    /// Commits what was noted of the file of `entry`; `fd` is a descriptor of it from which can be read.
    ///
    /// # Errors
    /// The reason why the kernel must make the file durable: call [`Log::kernel_sync`] then.
    pub fn commit(&self, entry: &'static Entry, fd: c_int) -> Result<(), Refusal> {
        let begun_ns = sys::monotonic_ns();
        let undisturbed = Undisturbed::begin();
        #[cfg(feature = "mutants")]
        faulty::read_early(fd);
        let committed = match self.append(entry, fd, begun_ns) {
            Ok(Some(batch)) => self.wait_durable(batch, undisturbed).map(|()| Counter::Commits),
            Ok(None) => Ok(Counter::Clean),
            Err(reason) => Err(reason),
        };
        self.count(committed.unwrap_or_else(|reason| reason), 1);
        if committed == Ok(Counter::Commits) {
            let latency_ns = sys::monotonic_ns().saturating_sub(begun_ns);
            self.counts().for_each(|counts| counts.add_latency(latency_ns));
        }
        committed.map(|_| ())
    }

    /// Appends the noted ranges of a file; `now_ns` is the time of the monotonic clock. Returns the number of the batch that
    /// makes all of them durable; `None` if that batch is durable already. Signals are blocked.
    fn append(&self, entry: &'static Entry, fd: c_int, now_ns: u64) -> Result<Option<u64>, Refusal> {
        let header = self.shared.header();
        let _file = self.lock_entry(entry).ok_or(Counter::KernelUnsuited)?;
        loop {
            if !self.shared.is_running() {
                return Err(Counter::KernelStopped);
            }
            if entry.wants_kernel() {
                return Err(Counter::KernelChanged);
            }
            if entry.alone.load(SeqCst) != 0 {
                // What was noted before that sync began is durable when it ends.
                return Err(Counter::KernelFaster);
            }
            if entry.ranges.is_empty() {
                let newest = entry.newest.load(Relaxed);
                return Ok((newest > header.durable.load(Acquire)).then_some(newest));
            }
            let number = self.number_of(entry).ok_or(Counter::KernelUnsuited)?;
            let append = self.lock_append().ok_or(Counter::KernelUnsuited)?;
            if !self.has_room() {
                self.want_room();
                return Err(Counter::KernelFull);
            }
            let batch = header.collecting.load(Relaxed);
            // Of ranges behind the end of the file, which their writers have not written yet, there are no records.
            if let Some(newest) = self.collect(entry, number, fd, batch, now_ns)? {
                return Ok((newest > header.durable.load(Acquire)).then_some(newest));
            }
            // This batch is full: it is written before the next one collects.
            drop(append);
            self.wait_durable(batch, Undisturbed::begin())?;
        }
    }

    /// Writes the records of a commit into the collecting buffer, and returns the batch with the file's last record; `None`
    /// if they do not fit into the rest of the batch. The caller holds the entry's lock and `append`.
    fn collect(
        &self,
        entry: &'static Entry,
        file: FileNumber,
        fd: c_int,
        batch: u64,
        now_ns: u64,
    ) -> Result<Option<u64>, Refusal> {
        const ROOM: u64 = (BATCH_MAX - BATCH_HEADER) as u64;
        let header = self.shared.header();
        let filled = header.filled[(batch % 2) as usize].load(Relaxed);
        let sequence = header.sequence.load(Relaxed) + 1;
        header.sequence.store(sequence, Relaxed);
        entry.ranges.take(&entry.committing);
        // Read behind the ranges, since a write that they cover may have made the file longer.
        let size = match sys::identity_and_size(fd) {
            Ok((key, size)) if entry.has_key(key) => size,
            // The descriptor was closed meanwhile, or the entry given up.
            _ => return Err(self.give_back(entry, Counter::KernelUnsuited)),
        };
        let ranges = || entry.committing.iter().filter_map(|range| range.bytes(size));
        let needed: u64 = ranges().map(record_bytes).sum();
        if needed > ROOM {
            return Err(self.give_back(entry, Counter::KernelLarge));
        }
        if filled + needed > ROOM {
            self.note_again(entry);
            return Ok(None);
        }
        let (mut end, mut records, mut bytes) = (filled, 0, 0);
        for (offset, length) in ranges() {
            let at = BATCH_HEADER + end as usize;
            // SAFETY: the record with its padding ends within the buffer, as was compared, and `append` is held.
            let read = unsafe { self.read_into(batch, at + RECORD_HEADER, fd, offset, length as usize) };
            let Ok(length) = read else { return Err(self.give_back(entry, Counter::KernelUnsuited)) };
            if length == 0 {
                continue;
            }
            let size = size.max(offset + length as u64);
            let record = RecordHeader { sequence, file, offset, size, length: length as u32 };
            self.put(batch, at, &record.encode());
            let whole = RecordHeader::record_bytes(length);
            self.put(batch, at + RECORD_HEADER + length, &[0; 8][..whole - RECORD_HEADER - length]);
            end += whole as u64;
            records += 1;
            bytes += length as u64;
        }
        if records == 0 {
            entry.committing.clear();
            return Ok(Some(entry.newest.load(Relaxed)));
        }
        let buffer = (batch % 2) as usize;
        entry.sequence.store(sequence, Relaxed);
        entry.newest.store(batch, Relaxed);
        if entry.oldest.load(Relaxed) == 0 {
            entry.oldest_ns.store(now_ns, Relaxed);
            entry.oldest.store(batch, Relaxed);
        }
        header.records[buffer].fetch_add(records, Relaxed);
        // The records exist from here on.
        header.filled[buffer].store(end, Release);
        entry.committing.clear();
        self.count(Counter::Bytes, bytes);
        Ok(Some(batch))
    }

    /// Notes the ranges of a commit again that could not be appended; returns the reason.
    fn give_back(&self, entry: &'static Entry, reason: Refusal) -> Refusal {
        self.note_again(entry);
        reason
    }

    /// Notes the ranges again that a commit has taken.
    fn note_again(&self, entry: &'static Entry) {
        if !entry.ranges.put_back(&entry.committing) {
            entry.want_kernel();
        }
    }

    /// Reads bytes of a file into the buffer of a batch; fewer if the file ends before.
    ///
    /// # Safety
    /// The caller holds `append`, and the bytes lie within the buffer.
    unsafe fn read_into(
        &self,
        batch: u64,
        at: usize,
        fd: c_int,
        offset: u64,
        length: usize,
    ) -> Result<usize, Errno> {
        #[cfg(feature = "mutants")]
        // SAFETY: the caller promises that the bytes lie within the buffer, to which no references exist.
        if unsafe { faulty::copy_early(self.shared.buffer(batch).add(at), offset, length) } {
            return Ok(length);
        }
        let mut done = 0;
        while done < length {
            // SAFETY: the caller promises that the bytes lie within the buffer, to which no references exist.
            let read = unsafe {
                sys::read_at(
                    fd,
                    self.shared.buffer(batch).add(at + done),
                    length - done,
                    offset + done as u64,
                )
            };
            match read {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Copies bytes into the buffer of a batch.
    fn put(&self, batch: u64, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= BATCH_MAX, "a record ends in its buffer");
        // SAFETY: the bytes end within the buffer, as was just compared, to which no references exist.
        unsafe { self.shared.buffer(batch).add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Tells the keeper that the area or the table of files is full.
    fn want_room(&self) {
        let word = &self.shared.header().room_wanted;
        word.fetch_add(1, SeqCst);
        sys::wake(word);
    }

    /// Returns true if the area became half full when its end moved from one block to another: the keeper makes room then,
    /// before commits have to wait for it.
    fn has_passed_half(&self, before: u64, now: u64) -> bool {
        let area = self.geometry.area_blocks();
        let tail = self.shared.header().tail_block.load(Relaxed);
        let used = |end: u64| (end + area - tail) % area;
        used(before) < area / 2 && used(now) >= area / 2
    }

    /// Returns true if the area has room for the batches that can be under way.
    fn has_room(&self) -> bool {
        let header = self.shared.header();
        let durable = header.durable.load(Acquire);
        let head = Head {
            block: header.head_block[(durable % 2) as usize].load(Relaxed),
            number: u64::MAX,
            previous: 0,
        };
        let tail = (header.tail_block.load(Relaxed), header.tail_number.load(Relaxed));
        // An area without a durable batch has room for the two largest ones, also if one is being written.
        let is_empty = tail.1 > durable;
        is_empty || head.next_block(&self.geometry, tail, RESERVE).is_some()
    }

    /// Waits until a batch is durable, and writes it if nobody else does. Signals are let through while another thread
    /// writes.
    fn wait_durable(&self, batch: u64, undisturbed: Undisturbed) -> Result<(), Refusal> {
        let header = self.shared.header();
        let mut undisturbed = Some(undisturbed);
        loop {
            let changes = header.changes.load(SeqCst);
            if header.durable.load(Acquire) >= batch {
                return Ok(());
            }
            if !self.shared.is_running() {
                return Err(Counter::KernelStopped);
            }
            let blocked = undisturbed.take().unwrap_or_else(Undisturbed::begin);
            if let Some(lock) = header.write.try_lock() {
                self.lead(&lock, batch);
                drop(lock);
                undisturbed = Some(blocked);
            } else {
                drop(blocked);
                self.shared.wait_change(changes, LOOK_NS);
            }
        }
    }

    /// Writes the sealed batch, and seals one first if there is none and `wanted` is not durable.
    fn lead(&self, _write: &Locked<'_>, wanted: u64) {
        let header = self.shared.header();
        // Looked at under the lock: a keeper that ends takes it once, and from then on nobody writes the area.
        if header.durable.load(Acquire) >= wanted || !self.shared.is_running() {
            return;
        }
        let batch = match header.sealed.load(SeqCst) {
            0 => {
                let Some(_append) = self.lock_append() else { return };
                let batch = header.collecting.load(Relaxed);
                if header.filled[(batch % 2) as usize].load(Acquire) == 0 {
                    return;
                }
                let next = ((batch + 1) % 2) as usize;
                header.filled[next].store(0, Relaxed);
                header.records[next].store(0, Relaxed);
                // `lock_append` repairs it if the leader is killed between these stores.
                header.sealed.store(batch, SeqCst);
                header.collecting.store(batch + 1, SeqCst);
                batch
            }
            batch => batch,
        };
        #[cfg(feature = "mutants")]
        if mutants::is_chosen(Mutant::WrongOrder) && self.write_in_wrong_order(batch) {
            return;
        }
        if batch <= header.durable.load(Acquire) {
            // The leader before was killed when its batch was durable.
            header.sealed.store(0, SeqCst);
            self.shared.changed();
        } else if let Err(error) = self.write_batch(batch) {
            self.fail(error);
        }
    }

    /// Takes the lock of the collecting buffer, and repairs what its last owner left half done.
    fn lock_append(&self) -> Option<Locked<'static>> {
        let header = self.shared.header();
        let lock = header.append.lock()?;
        let sealed = header.sealed.load(SeqCst);
        if sealed != 0 && header.collecting.load(SeqCst) == sealed {
            header.collecting.store(sealed + 1, SeqCst);
        }
        Some(lock)
    }

    /// Writes a sealed batch behind the last one.
    fn write_batch(&self, batch: u64) -> Result<(), Errno> {
        let header = self.shared.header();
        let (buffer, before) = ((batch % 2) as usize, ((batch - 1) % 2) as usize);
        let length = BATCH_HEADER + header.filled[buffer].load(Acquire) as usize;
        let described = BatchHeader {
            epoch: header.epoch.load(Relaxed),
            number: batch,
            length: u32::try_from(length.min(BATCH_MAX)).unwrap_or_default(),
            records: header.records[buffer].load(Relaxed) as u32,
            previous: header.head_checksum[before].load(Relaxed),
        };
        let head = Head {
            block: header.head_block[before].load(Relaxed),
            number: batch,
            previous: described.previous,
        };
        let tail = (header.tail_block.load(Relaxed), header.tail_number.load(Relaxed));
        let block = head.next_block(&self.geometry, tail, described.blocks()).ok_or(libc::ENOSPC)?;
        let checksum = self.log_file.write_batch(
            self.geometry.area_start() + block,
            &described,
            self.shared.buffer(batch),
        )?;
        let next = head.behind(block, described.blocks(), checksum);
        // Beside those of the batch before, which count until `durable` is stored.
        header.head_checksum[buffer].store(next.previous, Relaxed);
        header.head_block[buffer].store(next.block, Relaxed);
        header.durable.store(batch, Release);
        header.sealed.store(0, SeqCst);
        if self.has_passed_half(head.block, next.block) {
            self.want_room();
        }
        self.count(Counter::Batches, 1);
        self.count(Counter::BatchBytes, described.blocks() * BLOCK as u64);
        self.shared.changed();
        Ok(())
    }

    /// Stops logging: the log file has failed. What waits for a batch is made durable by the kernel, as is every file from
    /// here on.
    fn fail(&self, error: Errno) {
        let header = self.shared.header();
        header.failure.store(error as u32, Relaxed);
        for entry in self.shared.entries() {
            entry.want_kernel();
        }
        self.shared.set_state(State::Failed);
    }

    /// Makes the kernel sync a file by `sync`, and its older records dead. `sync` returns true if the file is durable.
    ///
    /// # Errors
    /// The error number for which a mark could not be written: then the sync must be reported as failed.
    pub fn kernel_sync(&self, entry: &'static Entry, sync: impl FnOnce() -> bool) -> Result<bool, Errno> {
        let _undisturbed = Undisturbed::begin();
        let Some(file) = self.lock_entry(entry) else { return Ok(sync()) };
        self.synced(&file, entry, sync)
    }

    /// Begins a sync by the kernel of a file without live records, beside others of its kind. `None` if the file has live
    /// records, or the next sync must be one of all that belongs to it: [`Log::kernel_sync`].
    pub fn kernel_alone(&self, entry: &'static Entry) -> Option<KernelAlone> {
        let _undisturbed = Undisturbed::begin();
        let _file = self.lock_entry(entry)?;
        if entry.wants_kernel() || entry.oldest.load(Relaxed) != 0 {
            return None;
        }
        // Raised before the notes are cleared, under the lock that commits take: none of them believes that what was noted
        // is durable before the sync has ended.
        entry.alone.fetch_add(1, SeqCst);
        entry.ranges.clear();
        Some(KernelAlone(entry))
    }

    /// Begins a change of a file that ranges do not tell (truncation, punching, a writable mapping): makes the file durable
    /// by `sync` and its records dead if it has any, and the next sync the kernel's. Returns the file's lock, which is held
    /// until the change was made.
    ///
    /// # Errors
    /// EIO if `sync` returns false; the error number for which a mark could not be written. The change must not be made
    /// then: recovery would write the file's old records over it.
    pub fn begin_change(
        &self,
        entry: &'static Entry,
        sync: impl FnOnce() -> bool,
    ) -> Result<Option<Locked<'static>>, Errno> {
        let Some(file) = self.lock_entry(entry) else { return Ok(None) };
        if entry.oldest.load(Relaxed) != 0 && !self.synced(&file, entry, sync)? {
            return Err(libc::EIO);
        }
        entry.want_kernel();
        Ok(Some(file))
    }

    fn synced(
        &self,
        file: &Locked<'_>,
        entry: &'static Entry,
        sync: impl FnOnce() -> bool,
    ) -> Result<bool, Errno> {
        let sequence = entry.sequence.load(Relaxed);
        // What is noted up to here is covered by this sync. If it fails or is never finished, the next one is the kernel's
        // again.
        let wanted = entry.kernel_wanted.fetch_add(1, SeqCst) + 1;
        entry.ranges.clear();
        if !sync() {
            return Ok(false);
        }
        if entry.oldest.load(Relaxed) != 0 && !mutants::is_chosen(Mutant::MarkLate) {
            self.mark(file, entry, sequence, false)?;
            entry.oldest.store(0, Relaxed);
        }
        // Reasons that came up during the sync have made the number wanted greater.
        entry.kernel_done.store(wanted, SeqCst);
        Ok(true)
    }

    /// Makes all records of a file up to a sequence number dead, durably. Records that an earlier mark has made dead stay
    /// dead: the keeper's mark may come later than that of a program's sync that began after it.
    ///
    /// # Errors
    /// The error number of the log file.
    pub fn mark(
        &self,
        _lock: &Locked<'_>,
        entry: &'static Entry,
        dead_up_to: u64,
        unlinked: bool,
    ) -> Result<(), Errno> {
        let Some(file) = self.number_of(entry) else { return Ok(()) };
        let dead_before = entry.dead.load(Relaxed);
        // A log that has ended and has no live records of the file may be the next keeper's already.
        let is_gone = !self.shared.is_running() && entry.oldest.load(Relaxed) == 0;
        if is_gone || (dead_up_to <= dead_before && !unlinked) {
            return Ok(());
        }
        let dead_up_to = dead_up_to.max(dead_before);
        let writes = entry.marks.load(Relaxed) + 1;
        let epoch = self.shared.header().epoch.load(Relaxed);
        let mark = Mark { file, epoch, writes, dead_up_to, unlinked };
        self.log_file.write_block(self.geometry.mark(file.slot, writes), &mark.encode())?;
        entry.marks.store(writes, Relaxed);
        entry.dead.store(dead_up_to, Relaxed);
        self.count(Counter::Marks, 1);
        Ok(())
    }

    /// Gives a file a number in the log and writes its identity, durably. Without a number a file is not logged. The keeper
    /// may take it from a file without live records; then the file joins again. The next sync is the kernel's.
    ///
    /// # Errors
    /// The error number of the log file; ENOSPC if all numbers are taken; ENAMETOOLONG for a long path or handle; ESHUTDOWN
    /// if the log does not run, whose table of files is then the next keeper's.
    pub fn join(
        &self,
        _lock: &Locked<'_>,
        entry: &'static Entry,
        identity: &Identity<'_>,
    ) -> Result<(), Errno> {
        let header = self.shared.header();
        if self.number_of(entry).is_some() {
            return Ok(());
        }
        if !self.shared.is_running() {
            return Err(libc::ESHUTDOWN);
        }
        let owner = self.shared.index_of(entry) as u32 + 1;
        let Some(slot) = (0..self.geometry.files).find(|slot| self.take_number(*slot, owner)) else {
            self.want_room();
            return Err(libc::ENOSPC);
        };
        let incarnation = header.incarnations[slot as usize].fetch_add(1, SeqCst);
        let identity = Identity {
            file: FileNumber { slot, incarnation },
            epoch: header.epoch.load(Relaxed),
            ..*identity
        };
        let written = match identity.encode() {
            Some(block) => self.log_file.write_block(self.geometry.identity(slot), &block),
            None => Err(libc::ENAMETOOLONG),
        };
        match written {
            Ok(()) => {
                // The claim is durable after that, also if the file had a number before that was taken from it.
                entry.want_kernel();
                entry.slot.store(slot + 1, Release);
            }
            Err(_) => header.slots[slot as usize].store(0, SeqCst),
        }
        written
    }

    /// Locks a file against commits, marks and changes that ranges do not tell; `None` if this thread has it locked.
    pub fn lock_entry(&self, entry: &'static Entry) -> Option<Locked<'static>> {
        let lock = entry.lock.lock()?;
        if lock.previous == Previous::Died {
            // What a commit had taken and not appended is noted again. If it was appended, it is merely logged twice.
            if !entry.ranges.put_back(&entry.committing) {
                entry.want_kernel();
            }
        }
        Some(lock)
    }

    /// Returns the number of a file in the log, if it has one.
    pub fn number_of(&self, entry: &'static Entry) -> Option<FileNumber> {
        let slot = entry.slot.load(Acquire).checked_sub(1)?;
        let incarnation = self.shared.header().incarnations.get(slot as usize)?.load(Relaxed).wrapping_sub(1);
        Some(FileNumber { slot, incarnation })
    }
}

/// Sync by the kernel that is under way, until it is dropped ([`Log::kernel_alone`]).
#[derive(Debug)]
pub struct KernelAlone(&'static Entry);

impl KernelAlone {
    /// Says that the sync has failed: what was noted before it is not durable.
    pub fn fail(&self) {
        self.0.want_kernel();
    }
}

impl Drop for KernelAlone {
    fn drop(&mut self) {
        self.0.alone.fetch_sub(1, SeqCst);
    }
}

/// Size of the record of a range, in bytes.
fn record_bytes(range: (u64, u64)) -> u64 {
    RECORD_HEADER as u64 + range.1.next_multiple_of(8)
}
