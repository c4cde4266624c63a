//! Memory that the users of a log share: the batches being collected, the end of the log, and the files.
//!
//! ```text
//!   Header             state, end of the log, two locks, counters
//!   Entry x 4096       a file each: its lock, what was written since its last commit, its oldest record in the log
//!   buffer 0, 1        a batch that collects records, and the one that is being written
//!   Relay              a request to the keeper to write, for a log that programs have no descriptor of
//! ```
//!
//! The keeper of the log makes the memory; every program that commits maps it. All users belong to one user, who could
//! write the log's file as well. Words are atomics, buffers are reached by raw pointers only, and what an owner of a lock
//! leaves half done is repaired by the next (`robust`).
//!
//! # Locks
//!
//! Taken in this order: an entry's, `append`, `write`. `append` protects the collecting buffer and the sequence; `write`
//! protects the sealed buffer, the end of the log and its tail. The leader takes `append` within `write` for the moment in
//! which it seals a batch, which is safe because nobody waits for `write` while holding `append`.

pub use crate::counts::Counter;
use crate::counts::Counts;
use crate::in_use;
use crate::layout::{BATCH_MAX, FILES_MAX, Geometry, Superblock};
use crate::ranges::RangeSet;
use crate::relay::Relay;
use crate::robust::RobustMutex;
use crate::sys::{self, Errno};
use crate::trial::Trial;
use crate::write_method::{SOCKET_MAX, Window, WriteMethod};
use core::ffi::{CStr, c_int};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// `BYWASHLS`, little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"BYWASHLS");
/// Version of this layout.
const VERSION: u64 = 5;
/// Number of files that programs can have noted ranges of at a time.
pub const ENTRIES: usize = 4096;
/// Size of the longest path of a log, in bytes, with its zero byte.
pub const LOG_PATH_MAX: usize = 4096;

/// Usual value of [`Header::age_ns`]. Many younger files are removed at once (SQLite makes one for each transaction), and
/// joining the log would cost more than their few syncs.
pub const AGE_NS: u64 = 1_000_000_000;

/// Values of [`Header::method`].
mod method {
    pub const DESCRIPTOR: u32 = 0;
    pub const RELAY: u32 = 1;
    pub const WINDOW: u32 = 2;
}

/// States of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// The keeper is preparing the memory.
    Preparing = 0,
    /// Commits are logged.
    Running = 1,
    /// The keeper has ended in order: all files are durable, and every fsync is the kernel's.
    Ended = 2,
    /// The log file has failed: every fsync is the kernel's.
    Failed = 3,
}

/// First part of the memory.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    /// A [`State`].
    pub state: AtomicU32,
    /// Error number for which the log file failed.
    pub failure: AtomicU32,
    /// Process id of the keeper.
    pub keeper: AtomicU32,
    files: AtomicU32,
    blocks: AtomicU64,
    id: [AtomicU64; 2],
    /// Epoch of the log.
    pub epoch: AtomicU64,
    /// Device and inode number of the file at the log's path, or device number and zero for a device. For a volume of a
    /// device server that is the file whose locks count for the log.
    pub log_file: [AtomicU64; 2],
    /// A [`WriteMethod`].
    method: AtomicU32,
    /// Path of the keeper's socket, for [`WriteMethod::Window`].
    socket: [AtomicU8; SOCKET_MAX],
    /// Fields of the [`Window`], in their order.
    window: [AtomicU64; 5],
    /// Age from which a file joins the log at its first sync, in nanoseconds; a younger one joins at the third sync by a
    /// descriptor.
    pub age_ns: AtomicU64,
    /// 1 if no sync is left to the kernel because the kernel is faster ([`crate::trial`]): for tests that count.
    pub without_trials: AtomicU32,
    /// Number of entries that were made or given up so far: a program that remembers none for a file looks again when it
    /// changes.
    pub entries_changed: AtomicU64,

    /// Lock of the words up to `records`.
    pub append: RobustMutex,
    /// Sequence number of the last commit.
    pub sequence: AtomicU64,
    /// Number of the batch that collects records; its buffer is that number modulo 2.
    pub collecting: AtomicU64,
    /// Bytes of complete records in each buffer, behind the room for the batch's header.
    pub filled: [AtomicU64; 2],
    /// Complete records in each buffer.
    pub records: [AtomicU64; 2],

    /// Lock of the words up to `tail_number`.
    pub write: RobustMutex,
    /// Number of the batch that is sealed and not durable yet; 0: none.
    pub sealed: AtomicU64,
    /// Block behind each of the last two batches, by the batch's number modulo 2.
    pub head_block: [AtomicU64; 2],
    /// Checksum of each of the last two batches, by the batch's number modulo 2.
    pub head_checksum: [AtomicU64; 2],
    /// Block of the oldest batch.
    pub tail_block: AtomicU64,
    /// Number of the oldest batch; that of the next batch if there is none.
    pub tail_number: AtomicU64,

    /// Number of the last durable batch.
    pub durable: AtomicU64,
    /// Number that rises with each change of `durable` and of `state`; a futex.
    pub changes: AtomicU32,
    /// Number of threads that wait for a change; too great if one was killed.
    waiters: AtomicU32,
    /// Number of programs that wait for the keeper to make room; a futex that wakes it.
    pub room_wanted: AtomicU32,
    /// Counters and latencies since the log was opened.
    pub counts: Counts,
    /// Entry of the file with each number in the log, plus one; 0: the number is free; [`LEFT`].
    pub slots: [AtomicU32; FILES_MAX as usize],
    /// Number of files that had each number before.
    pub incarnations: [AtomicU32; FILES_MAX as usize],
    /// Batch with the last record under each number that its file has left ([`LEFT`]).
    pub left_at: [AtomicU64; FILES_MAX as usize],
    path: [AtomicU8; LOG_PATH_MAX],
    /// Name of the log, as commands take it; empty: its path.
    name: [AtomicU8; LOG_PATH_MAX],
}

/// Value in [`Header::slots`] of a number that its file has left and that the area may still hold records of.
pub const LEFT: u32 = u32::MAX;

/// States of an entry.
pub mod entry_state {
    /// Nobody uses the entry.
    pub const FREE: u32 = 0;
    /// Somebody is filling in the entry's key.
    pub const CLAIMED: u32 = 1;
    /// The entry belongs to the file of its key.
    pub const USED: u32 = 2;
}

/// File of which ranges are noted.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Entry {
    /// State of the entry (`entry_state`).
    pub state: AtomicU32,
    /// Number of the file in the log, plus one; 0: it has none.
    pub slot: AtomicU32,
    /// Device, inode number and time of creation.
    pub key: [AtomicU64; 3],
    /// Lock of commits, marks and changes that ranges do not tell.
    pub lock: RobustMutex,
    /// Lock of the positions of synchronous descriptors of the file, which are written at through second ones. Nobody who
    /// holds it takes another lock.
    pub position: RobustMutex,
    /// Number of reasons so far for which the next sync must be the kernel's.
    pub kernel_wanted: AtomicU64,
    /// Value of `kernel_wanted` before the last sync by the kernel.
    pub kernel_done: AtomicU64,
    /// 1 if every sync is the kernel's for good, because the file is written in a way that nobody notes.
    pub unloggable: AtomicU32,
    /// Number of the batch with the file's oldest live record; 0: there is none.
    pub oldest: AtomicU64,
    /// Time since which the file has had a live record, in nanoseconds ([`sys::monotonic_ns`]); counts if `oldest` is not 0.
    pub oldest_ns: AtomicU64,
    /// Number of the batch with the file's last record.
    pub newest: AtomicU64,
    /// Sequence number of the file's last record.
    pub sequence: AtomicU64,
    /// Number of marks written.
    pub marks: AtomicU64,
    /// Greatest sequence number that a mark has made dead.
    pub dead: AtomicU64,
    /// Number of syncs by the kernel under way that began when the file had no live record; commits are the kernel's
    /// meanwhile. It stays too great if a process is killed within one.
    pub(crate) alone: AtomicU32,
    /// Times of the file's syncs: of its data, and of all.
    pub trials: [Trial; 2],
    /// Ranges written since the last commit.
    pub ranges: RangeSet,
    /// Ranges that a commit has taken and whose records are not complete yet.
    pub committing: RangeSet,
}

impl Entry {
    /// Demands that the next sync of the file is the kernel's.
    pub fn want_kernel(&self) {
        self.kernel_wanted.fetch_add(1, Ordering::SeqCst);
    }

    /// Demands that every sync of the file is the kernel's from now on.
    pub fn want_kernel_for_good(&self) {
        self.unloggable.store(1, Ordering::SeqCst);
    }

    /// Returns true if the next sync must be the kernel's.
    pub fn wants_kernel(&self) -> bool {
        self.is_unloggable()
            || self.kernel_wanted.load(Ordering::SeqCst) != self.kernel_done.load(Ordering::SeqCst)
    }

    /// Returns true if every sync must be the kernel's.
    pub fn is_unloggable(&self) -> bool {
        self.unloggable.load(Ordering::SeqCst) != 0
    }
}

#[repr(C)]
struct Memory {
    header: Header,
    entries: [Entry; ENTRIES],
    buffers: [[AtomicU8; BATCH_MAX]; 2],
    relay: Relay,
}

/// Size of the memory, in bytes; nearly all of it is touched only when it is needed.
pub const SHARED_BYTES: usize = size_of::<Memory>().next_multiple_of(4096);

/// Mapped memory of a log. It stays mapped as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    memory: NonNull<Memory>,
}

// SAFETY: all parts of the memory that are reached by reference are atomics or robust mutexes.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`: references lead to atomics and mutexes only.
unsafe impl Sync for Shared {}

impl Shared {
    /// Prepares memory that is all zero and has [`SHARED_BYTES`] bytes, under the descriptor `fd`, for the log at `path`,
    /// which is empty and has that superblock. `log_file` is what [`sys::Status::identity`] tells of it. Programs write it by
    /// descriptors of their own until [`Shared::set_write_method`].
    ///
    /// # Errors
    /// EPROTO if the superblock's next batch has the number 0; the error number of mmap(2); ENOTSUP if the C library has no robust mutexes; ENAMETOOLONG for a long path.
    pub fn prepare(
        fd: c_int,
        superblock: &Superblock,
        log_file: (u64, u64),
        path: &CStr,
    ) -> Result<Shared, Errno> {
        if superblock.tail_batch == 0 {
            return Err(libc::EPROTO);
        }
        let shared = Shared::map(fd)?;
        let header = shared.header();
        let path = path.to_bytes_with_nul();
        if path.len() > LOG_PATH_MAX {
            return Err(libc::ENAMETOOLONG);
        }
        for (to, from) in header.path.iter().zip(path) {
            to.store(*from, Ordering::Relaxed);
        }
        let locks = [&header.append, &header.write]
            .into_iter()
            .chain(shared.relay().locks())
            .chain(shared.entries().iter().flat_map(|entry| [&entry.lock, &entry.position]));
        for lock in locks {
            // SAFETY: nobody else has the memory yet.
            if !unsafe { lock.init() } {
                return Err(libc::ENOTSUP);
            }
        }
        header.files.store(superblock.geometry.files, Ordering::Relaxed);
        header.blocks.store(superblock.geometry.blocks, Ordering::Relaxed);
        let id = u128::from_le_bytes(superblock.id);
        header.id[0].store(id as u64, Ordering::Relaxed);
        header.id[1].store((id >> 64) as u64, Ordering::Relaxed);
        header.epoch.store(superblock.epoch, Ordering::Relaxed);
        header.log_file[0].store(log_file.0, Ordering::Relaxed);
        header.log_file[1].store(log_file.1, Ordering::Relaxed);
        header.age_ns.store(AGE_NS, Ordering::Relaxed);
        // The log was emptied, so the next batch is the oldest one.
        let next = superblock.tail_batch;
        header.collecting.store(next, Ordering::Relaxed);
        header.tail_number.store(next, Ordering::Relaxed);
        header.tail_block.store(superblock.tail_block, Ordering::Relaxed);
        header.durable.store(next - 1, Ordering::Relaxed);
        header.head_block[((next - 1) % 2) as usize].store(superblock.tail_block, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        // SYNC: shared-magic (release; `open` acquires).
        header.magic.store(MAGIC, Ordering::Release);
        Ok(shared)
    }

    /// Opens memory that [`Shared::prepare`] has prepared in another process. Until this process ends or executes another
    /// program, the log counts as used (`in_use`), and so does it by the children that inherit the memory.
    ///
    /// # Errors
    /// The kernel's error number; EPROTO if the file is no memory of a log or one of another version; EAGAIN if the keeper
    /// is ending.
    pub fn open(path: &CStr) -> Result<Shared, Errno> {
        let fd = sys::open(path, libc::O_RDWR | libc::O_CLOEXEC)?;
        let shared = match sys::status(fd) {
            Ok(status) if status.size == SHARED_BYTES as u64 => Shared::map(fd),
            Ok(_) => Err(libc::EPROTO),
            Err(error) => Err(error),
        };
        sys::close(fd);
        let shared = shared?;
        let header = shared.header();
        // SYNC: shared-magic (acquire).
        if header.magic.load(Ordering::Acquire) != MAGIC || header.version.load(Ordering::Relaxed) != VERSION
        {
            return Err(libc::EPROTO);
        }
        let mut path = [0; LOG_PATH_MAX];
        let path = shared.path(&mut path).ok_or(libc::EPROTO)?;
        let [device, inode] = header.log_file.each_ref().map(|word| word.load(Ordering::Relaxed));
        in_use::hold(path, (device, inode), header.epoch.load(Ordering::Relaxed))?;
        Ok(shared)
    }

    fn map(fd: c_int) -> Result<Shared, Errno> {
        let memory = NonNull::new(sys::map_shared(fd, SHARED_BYTES)?.cast()).ok_or(libc::ENOMEM)?;
        Ok(Shared { memory })
    }

    /// Returns the header.
    pub fn header(&self) -> &'static Header {
        // SAFETY: the memory stays mapped for good, and consists of atomics and mutexes.
        unsafe { &(*self.memory.as_ptr()).header }
    }

    /// Returns the entries of files.
    pub fn entries(&self) -> &'static [Entry; ENTRIES] {
        // SAFETY: the memory stays mapped for good, and consists of atomics and mutexes.
        unsafe { &(*self.memory.as_ptr()).entries }
    }

    /// Returns the address of the buffer of a batch, which has [`BATCH_MAX`] bytes.
    pub fn buffer(&self, batch: u64) -> *mut u8 {
        // SAFETY: the place lies in the mapped memory; no reference is made.
        unsafe { (&raw mut (*self.memory.as_ptr()).buffers[(batch % 2) as usize]).cast() }
    }

    /// Returns the request to the keeper.
    pub fn relay(&self) -> &'static Relay {
        // SAFETY: the memory stays mapped for good, and consists of atomics and mutexes.
        unsafe { &(*self.memory.as_ptr()).relay }
    }

    /// Tells programs how they write the log; `socket` is the path of the keeper's. Called before the log runs.
    ///
    /// # Errors
    /// ENAMETOOLONG for a long path; EINVAL for a window without a word or with impossible sizes.
    pub fn set_write_method(&self, how: &WriteMethod, socket: &CStr) -> Result<(), Errno> {
        let header = self.header();
        let path = socket.to_bytes_with_nul();
        if path.len() > SOCKET_MAX {
            return Err(libc::ENAMETOOLONG);
        }
        for (to, from) in header.socket.iter().zip(path) {
            to.store(*from, Ordering::Relaxed);
        }
        let number = match how {
            WriteMethod::Descriptor => method::DESCRIPTOR,
            WriteMethod::Relay => method::RELAY,
            WriteMethod::Window(window) => {
                window.chunks().ok_or(libc::EINVAL)?;
                let Window { bytes, chunk_bytes, page_bytes, index, valid_up_to } = *window;
                for (to, from) in
                    header.window.iter().zip([bytes, chunk_bytes, page_bytes, index, valid_up_to])
                {
                    to.store(from, Ordering::Relaxed);
                }
                method::WINDOW
            }
        };
        header.method.store(number, Ordering::Release);
        Ok(())
    }

    /// Returns how programs write the log.
    ///
    /// # Errors
    /// EPROTO for an unknown way, or a window with impossible sizes.
    pub(crate) fn write_method(&self) -> Result<WriteMethod, Errno> {
        let header = self.header();
        match header.method.load(Ordering::Acquire) {
            method::DESCRIPTOR => Ok(WriteMethod::Descriptor),
            method::RELAY => Ok(WriteMethod::Relay),
            method::WINDOW => {
                let [bytes, chunk_bytes, page_bytes, index, valid_up_to] =
                    header.window.each_ref().map(|word| word.load(Ordering::Relaxed));
                let window = Window { bytes, chunk_bytes, page_bytes, index, valid_up_to };
                window.chunks().map(|_| WriteMethod::Window(window)).ok_or(libc::EPROTO)
            }
            _ => Err(libc::EPROTO),
        }
    }

    /// Tells programs the name of a log that is not the file at its path, such as a volume. Called before the log runs.
    ///
    /// # Errors
    /// ENAMETOOLONG for a long name.
    pub fn set_name(&self, name: &CStr) -> Result<(), Errno> {
        let name = name.to_bytes_with_nul();
        if name.len() > LOG_PATH_MAX {
            return Err(libc::ENAMETOOLONG);
        }
        self.header().name.iter().zip(name).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        Ok(())
    }

    /// Copies the name of the log, as commands take it, with its zero byte, into `to`; returns it if it is whole.
    pub fn name<'a>(&self, to: &'a mut [u8; LOG_PATH_MAX]) -> Option<&'a CStr> {
        let name = &self.header().name;
        if name[0].load(Ordering::Relaxed) == 0 {
            return self.path(to);
        }
        to.iter_mut().zip(name).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
        CStr::from_bytes_until_nul(to).ok()
    }

    /// Copies the path of the keeper's socket, with its zero byte, into `to`; returns it if there is one.
    pub(crate) fn socket<'a>(&self, to: &'a mut [u8; SOCKET_MAX]) -> Option<&'a CStr> {
        for (to, from) in to.iter_mut().zip(&self.header().socket) {
            *to = from.load(Ordering::Relaxed);
        }
        CStr::from_bytes_until_nul(to).ok().filter(|path| !path.is_empty())
    }

    /// Returns the sizes of the log.
    pub fn geometry(&self) -> Option<Geometry> {
        let header = self.header();
        Geometry::new(header.blocks.load(Ordering::Relaxed), header.files.load(Ordering::Relaxed))
    }

    /// Returns the id of the log.
    pub fn id(&self) -> [u8; 16] {
        let [low, high] = self.header().id.each_ref().map(|word| u128::from(word.load(Ordering::Relaxed)));
        (high << 64 | low).to_le_bytes()
    }

    /// Copies the path of the log, with its zero byte, into `to`; returns it if it is whole.
    pub fn path<'a>(&self, to: &'a mut [u8; LOG_PATH_MAX]) -> Option<&'a CStr> {
        for (to, from) in to.iter_mut().zip(&self.header().path) {
            *to = from.load(Ordering::Relaxed);
        }
        CStr::from_bytes_until_nul(to).ok()
    }

    /// Returns the value of a counter.
    pub fn counted(&self, counter: Counter) -> u64 {
        self.header().counts.get(counter)
    }

    /// Returns true if commits are logged.
    pub fn is_running(&self) -> bool {
        self.header().state.load(Ordering::Acquire) == State::Running as u32
    }

    /// Returns true if the storage of the log has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.header().state.load(Ordering::Acquire) == State::Failed as u32
    }

    /// Changes the state, and wakes all that wait.
    pub fn set_state(&self, state: State) {
        self.header().state.store(state as u32, Ordering::Release);
        self.changed();
    }

    /// Wakes all that wait for a batch.
    pub(crate) fn changed(&self) {
        let header = self.header();
        header.changes.fetch_add(1, Ordering::SeqCst);
        // SYNC: waiters. Whoever is not counted yet finds the number changed when the kernel compares it.
        if header.waiters.load(Ordering::SeqCst) != 0 {
            sys::wake(&header.changes);
        }
    }

    /// Waits until `changes` is no longer `seen`, for a limited time.
    pub(crate) fn wait_change(&self, seen: u32, nanoseconds: u32) {
        let header = self.header();
        header.waiters.fetch_add(1, Ordering::SeqCst);
        sys::wait(&header.changes, seen, nanoseconds);
        header.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Finds the entry of a file.
    pub fn find(&self, key: (u64, u64, u64)) -> Option<&'static Entry> {
        self.places(key)
            .map_while(|entry| match entry.state.load(Ordering::Acquire) {
                entry_state::FREE => None,
                state => Some((entry, state)),
            })
            .find(|(entry, state)| *state == entry_state::USED && entry.has_key(key))
            .map(|(entry, _)| entry)
    }

    /// Finds the entry of a file, or makes one; `None` if all are taken.
    pub fn find_or_make(&self, key: (u64, u64, u64)) -> Option<&'static Entry> {
        if let Some(entry) = self.find(key) {
            return Some(entry);
        }
        // One at a time, so that no file gets two entries.
        let _lock = self.header().append.lock()?;
        if let Some(entry) = self.find(key) {
            return Some(entry);
        }
        let entry =
            self.places(key).find(|entry| entry.state.load(Ordering::Acquire) != entry_state::USED)?;
        entry.state.store(entry_state::CLAIMED, Ordering::Relaxed);
        for (to, from) in entry.key.iter().zip([key.0, key.1, key.2]) {
            to.store(from, Ordering::Relaxed);
        }
        for word in
            [&entry.kernel_done, &entry.oldest, &entry.newest, &entry.sequence, &entry.marks, &entry.dead]
        {
            word.store(0, Ordering::Relaxed);
        }
        entry.slot.store(0, Ordering::Relaxed);
        entry.unloggable.store(0, Ordering::Relaxed);
        entry.alone.store(0, Ordering::Relaxed);
        entry.trials.iter().for_each(Trial::clear);
        entry.ranges.clear();
        entry.committing.clear();
        // The first sync is the kernel's.
        entry.kernel_wanted.store(1, Ordering::Relaxed);
        entry.state.store(entry_state::USED, Ordering::Release);
        self.header().entries_changed.fetch_add(1, Ordering::SeqCst);
        Some(entry)
    }

    /// Frees an entry. The caller holds its lock and `append`.
    pub(crate) fn free(&self, entry: &'static Entry) {
        let next = &self.entries()[(self.index_of(entry) + 1) % ENTRIES];
        // A search goes on behind a claimed entry and ends at a free one.
        let is_last = next.state.load(Ordering::Acquire) == entry_state::FREE;
        entry.state.store(if is_last { entry_state::FREE } else { entry_state::CLAIMED }, Ordering::Release);
        self.header().entries_changed.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the entries in the order in which a key is looked for.
    fn places(&self, key: (u64, u64, u64)) -> impl Iterator<Item = &'static Entry> {
        let mixed =
            (key.0 ^ key.1.rotate_left(17) ^ key.2.rotate_left(41)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (entries, start) = (self.entries(), (mixed >> 32) as usize);
        (0..ENTRIES).map(move |step| &entries[(start + step) % ENTRIES])
    }

    /// Returns the index of an entry.
    pub fn index_of(&self, entry: &'static Entry) -> usize {
        (core::ptr::from_ref(entry).addr() - self.entries().as_ptr().addr()) / size_of::<Entry>()
    }
}

impl Entry {
    /// Returns true if the entry belongs to the file with this identity.
    pub fn has_key(&self, key: (u64, u64, u64)) -> bool {
        self.key
            .iter()
            .zip([key.0, key.1, key.2])
            .all(|(there, wanted)| there.load(Ordering::Relaxed) == wanted)
    }
}
