//! The mapping of a session, claiming a record, reading them all.
//!
//! Invariant: only words inside the memory that was mapped are touched, and every length that another
//! process could have written is clamped before it is used. Called by the preloaded library (open, claim,
//! count: no allocation) and by the command (create, read).

use crate::counters::Counter;
use crate::layout::{
    FILE_SLOTS, FileSlot, HEADER_BYTES, Header, MAGIC, PATH_BYTES, PROGRAM_BYTES, RECORD_BYTES, RECORDS_MAX,
    RecordLayout, SESSION_BYTES, SHARDS, ShardLayout, VERSION,
};
use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::{CStr, c_int};
use core::fmt;
use core::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// States of a record.
const FREE: u32 = 0;
const COUNTING: u32 = 1;
const UNSERVED: u32 = 2;

/// Why a session cannot be made or opened: an error number of the kernel's (errno(3)), or EPROTO for a file that is no
/// session or one of another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub c_int);

impl Error {
    pub(crate) fn last() -> Error {
        // SAFETY: the C library's own errno of this thread.
        Error(unsafe { *libc::__errno_location() })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            libc::EPROTO => to.write_str("it is no session of this version"),
            number => write!(to, "the kernel answers with error {number} (errno(3))"),
        }
    }
}

impl core::error::Error for Error {}

/// A descriptor, closed when it goes.
struct Descriptor(c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's alone.
        unsafe { libc::close(self.0) };
    }
}

/// A session's memory, open in this process.
pub struct Session {
    fd: Descriptor,
    header: &'static Header,
}

impl Session {
    /// Makes a new session in anonymous memory; it is gone when the last process that has it open ends.
    ///
    /// # Errors
    /// The error of memfd_create(2), ftruncate(2) or mmap(2), if memory or descriptors are short.
    pub fn create() -> Result<Session, Error> {
        // SAFETY: the name is a C string; the descriptor that comes back is ours alone.
        let fd = unsafe {
            let raw =
                libc::memfd_create(c"bywash-session".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            if raw < 0 {
                return Err(Error::last());
            }
            Descriptor(raw)
        };
        // SAFETY: plain calls on a descriptor that we own.
        unsafe {
            if libc::ftruncate(fd.0, SESSION_BYTES as libc::off_t) != 0 {
                return Err(Error::last());
            }
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            if libc::fcntl(fd.0, libc::F_ADD_SEALS, seals) != 0 {
                return Err(Error::last());
            }
        }
        let session = Session { header: map_header(&fd)?, fd };
        session.header.version.store(VERSION, Relaxed);
        // SYNC: session-magic (release; `open` acquires): whoever sees the magic sees the version.
        session.header.magic.store(MAGIC, Release);
        Ok(session)
    }

    /// Opens the session that `path` names. Allocates nothing.
    ///
    /// # Errors
    /// The kernel's error, or EPROTO when the file is no session or of another version.
    pub fn open(path: &CStr) -> Result<Session, Error> {
        // SAFETY: `path` is a C string; the descriptor that comes back is ours alone.
        let fd = unsafe {
            let raw = libc::syscall(
                libc::SYS_openat,
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::O_RDWR | libc::O_CLOEXEC,
                0,
            );
            if raw < 0 {
                return Err(Error::last());
            }
            Descriptor(raw as c_int)
        };
        // SAFETY: an all-zero stat is a valid value, which fstat overwrites.
        let length = unsafe {
            let mut stat: libc::stat = core::mem::zeroed();
            if libc::fstat(fd.0, &raw mut stat) != 0 {
                return Err(Error::last());
            }
            stat.st_size
        };
        if length != SESSION_BYTES as libc::off_t {
            return Err(Error(libc::EPROTO));
        }
        let header = map_header(&fd)?;
        // SYNC: session-magic (acquire).
        if header.magic.load(Acquire) != MAGIC || header.version.load(Relaxed) != VERSION {
            return Err(Error(libc::EPROTO));
        }
        Ok(Session { fd, header })
    }

    /// The path under which other processes of this user open the session while this one lives.
    pub fn path(&self) -> CString {
        // SAFETY: no arguments, no errors.
        let path = format!("/proc/{}/fd/{}", unsafe { libc::getpid() }, self.fd.0);
        CString::new(path).unwrap_or_default()
    }

    /// Claims a record for this process; `None` when all are taken or memory is short. The record stays
    /// mapped for the life of the process; the session itself may be dropped.
    pub fn claim(&self) -> Option<Record> {
        let record = Record { layout: self.map_record(self.claim_index()?).ok()? };
        record.layout.header.shards_used.store(0, Relaxed);
        Some(record)
    }

    fn claim_index(&self) -> Option<u32> {
        let index = self.header.claimed.fetch_add(1, Relaxed);
        if index >= RECORDS_MAX {
            self.header.claimed.store(RECORDS_MAX, Relaxed);
            return None;
        }
        Some(index)
    }

    /// Notes in a record of its own that `program` is executed as process `pid` without the library, for the
    /// reason of this number. Answers the record's index, or `None` when the session cannot be opened or all
    /// records are taken. Leaves nothing mapped or open, so that a child of vfork may call it.
    pub fn note_unserved(path: &CStr, pid: u32, parent: u32, program: &[u8], reason: u32) -> Option<u32> {
        Session::visit(path, |session| {
            let index = session.claim_index()?;
            session.with_record(index, |layout| {
                layout.header.unserved.store(reason, Relaxed);
                Record { layout }.describe_as(UNSERVED, pid, parent, 0, program);
            })?;
            Some(index)
        })
    }

    /// Takes back what [`Session::note_unserved`] noted: the program could not be executed.
    pub fn retract(path: &CStr, index: u32) {
        Session::visit(path, |session| {
            session.with_record(index, |layout| layout.header.state.store(FREE, Relaxed))
        });
    }

    /// Opens the session for one visit, with nothing left behind.
    fn visit<T>(path: &CStr, then: impl FnOnce(&Session) -> Option<T>) -> Option<T> {
        let session = Session::open(path).ok()?;
        let result = then(&session);
        // SAFETY: `open` mapped the header, and no reference to it is left once `session` goes.
        unsafe { libc::munmap(core::ptr::from_ref(session.header).cast_mut().cast(), HEADER_BYTES) };
        result
    }

    /// Records of all processes that counted so far, copied.
    pub fn records(&self) -> Vec<RecordView> {
        self.copies(COUNTING, RecordView::copy)
    }

    /// Programs that were executed without the library so far.
    pub fn unserved(&self) -> Vec<Unserved> {
        self.copies(UNSERVED, Unserved::copy)
    }

    /// Copies of all records in this state.
    fn copies<T>(&self, state: u32, copy: fn(&RecordLayout) -> T) -> Vec<T> {
        let claimed = self.header.claimed.load(Relaxed).min(RECORDS_MAX);
        (0..claimed)
            .filter_map(|index| {
                self.with_record(index, |layout| {
                    // SYNC: record-state (acquire; `describe` releases).
                    (layout.header.state.load(Acquire) == state).then(|| copy(layout))
                })?
            })
            .collect()
    }

    /// Calls `then` with a record that is mapped meanwhile.
    fn with_record<T>(&self, index: u32, then: impl FnOnce(&'static RecordLayout) -> T) -> Option<T> {
        let layout = self.map_record(index).ok()?;
        let result = then(layout);
        // SAFETY: the mapping was made above, and none of the callers keeps the reference.
        unsafe { libc::munmap(core::ptr::from_ref(layout).cast_mut().cast(), RECORD_BYTES) };
        Some(result)
    }

    /// Returns true if processes were left uncounted because all records were taken.
    pub fn overflowed(&self) -> bool {
        self.header.claimed.load(Relaxed) >= RECORDS_MAX
    }

    fn map_record(&self, index: u32) -> Result<&'static RecordLayout, Error> {
        let offset = HEADER_BYTES + index as usize * RECORD_BYTES;
        let at = map(&self.fd, offset, RECORD_BYTES)?;
        // SAFETY: RECORD_BYTES were mapped shared, page-aligned; the layout consists of atomics only, for
        // which every bit pattern is valid.
        Ok(unsafe { &*at.cast::<RecordLayout>() })
    }
}

fn map_header(fd: &Descriptor) -> Result<&'static Header, Error> {
    // SAFETY: HEADER_BYTES are mapped shared and never unmapped; atomics only.
    Ok(unsafe { &*map(fd, 0, HEADER_BYTES)?.cast::<Header>() })
}

fn map(fd: &Descriptor, offset: usize, length: usize) -> Result<*mut u8, Error> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd.0,
            offset as libc::off_t,
        )
    };
    if at == libc::MAP_FAILED { Err(Error::last()) } else { Ok(at.cast()) }
}

/// The record of one process, while it counts.
#[derive(Clone, Copy)]
pub struct Record {
    layout: &'static RecordLayout,
}

impl Record {
    /// A record in memory of this process alone, for when there is no session.
    pub fn private() -> Option<Record> {
        // SAFETY: fresh zeroed memory of the record's size, never unmapped.
        unsafe {
            let at = libc::mmap(
                core::ptr::null_mut(),
                RECORD_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            (at != libc::MAP_FAILED).then(|| Record { layout: &*at.cast::<RecordLayout>() })
        }
    }

    /// Says whose record this is; from here on it shows up in [`Session::records`].
    pub fn describe(&self, pid: u32, parent: u32, started_ns: u64, program: &[u8]) {
        self.describe_as(COUNTING, pid, parent, started_ns, program);
    }

    fn describe_as(&self, state: u32, pid: u32, parent: u32, started_ns: u64, program: &[u8]) {
        let header = &self.layout.header;
        header.pid.store(pid, Relaxed);
        header.parent.store(parent, Relaxed);
        header.started_ns.store(started_ns, Relaxed);
        header.program_len.store(store_tail(&header.program, program) as u32, Relaxed);
        // SYNC: record-state (release; `records` acquires).
        header.state.store(state, Release);
    }

    /// The program that [`Record::describe`] named.
    pub fn copy_program(&self, to: &mut [u8; PROGRAM_BYTES]) -> usize {
        let length = (self.layout.header.program_len.load(Relaxed) as usize).min(PROGRAM_BYTES);
        for (byte, from) in to.iter_mut().zip(&self.layout.header.program[..length]) {
            *byte = from.load(Relaxed);
        }
        length
    }

    /// Takes a shard for one thread: exclusive while there are any, then the one that all others share.
    pub fn take_shard(&self) -> Shard {
        let used = &self.layout.header.shards_used;
        for index in 0..SHARDS - 1 {
            let bit = 1u64 << index;
            if used.load(Relaxed) & bit == 0 && used.fetch_or(bit, Acquire) & bit == 0 {
                return self.shard(index);
            }
        }
        self.shard(SHARDS - 1)
    }

    /// Gives a shard back when its thread ends.
    pub fn return_shard(&self, shard: Shard) {
        if shard.exclusive {
            self.layout.header.shards_used.fetch_and(!(1u64 << shard.index), Release);
        }
    }

    /// Shard `index` of this record, modulo their number.
    pub fn shard(&self, index: usize) -> Shard {
        let index = index % SHARDS;
        Shard { layout: &self.layout.shards[index], index: index as u32, exclusive: index + 1 < SHARDS }
    }

    /// Adds what a file contributed; the file with the fewest calls makes room.
    pub fn add_file(&self, path: &[u8], usage: [u64; 4]) {
        let key = hash(path) | 1;
        let files = &self.layout.files;
        let slot = files.iter().find(|slot| slot.key.load(Relaxed) == key).or_else(|| {
            let least = files.iter().min_by_key(|slot| slot.calls())?;
            (least.calls() < usage[0] + usage[2]).then(|| {
                least.key.store(key, Relaxed);
                for word in least.words() {
                    word.store(0, Relaxed);
                }
                least.path_len.store(store_tail(&least.path, path) as u64, Relaxed);
                least
            })
        });
        if let Some(slot) = slot {
            for (word, more) in slot.words().into_iter().zip(usage) {
                word.fetch_add(more, Relaxed);
            }
        }
    }
}

impl FileSlot {
    fn words(&self) -> [&AtomicU64; 4] {
        [&self.user_calls, &self.user_bytes, &self.kernel_calls, &self.kernel_bytes]
    }

    fn calls(&self) -> u64 {
        self.user_calls.load(Relaxed).saturating_add(self.kernel_calls.load(Relaxed))
    }
}

/// Stores `bytes`, cut at the front when they are too many; answers how many were kept.
fn store_tail(to: &[AtomicU8], bytes: &[u8]) -> usize {
    let kept = &bytes[bytes.len().saturating_sub(to.len())..];
    for (cell, byte) in to.iter().zip(kept) {
        cell.store(*byte, Relaxed);
    }
    kept.len()
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Counters that one thread adds to. An exclusive shard costs a load and a store per count, the shared one a locked
/// addition.
#[derive(Clone, Copy)]
pub struct Shard {
    layout: &'static ShardLayout,
    index: u32,
    exclusive: bool,
}

impl Shard {
    /// Adds `more` to `counter`.
    #[inline]
    pub fn add(&self, counter: Counter, more: u64) {
        let word = &self.layout.counters[counter as usize];
        if self.exclusive {
            word.store(word.load(Relaxed).wrapping_add(more), Relaxed);
        } else {
            word.fetch_add(more, Relaxed);
        }
    }
}

/// Counters of one file, as read from a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileUse {
    /// Its path, without what did not fit at the front.
    pub path: String,
    /// Calls served at user level.
    pub user_calls: u64,
    /// Bytes served at user level.
    pub user_bytes: u64,
    /// Calls served by the kernel.
    pub kernel_calls: u64,
    /// Bytes served by the kernel.
    pub kernel_bytes: u64,
}

/// A copy of one record.
#[derive(Clone, Debug)]
pub struct RecordView {
    pid: u32,
    parent: u32,
    started_ns: u64,
    program: String,
    counters: [u64; Counter::COUNT],
    files: Vec<FileUse>,
}

/// A program that was executed without the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// Process id.
    pub pid: u32,
    /// The parent's process id.
    pub parent: u32,
    /// Path of the program, or of the interpreter of a script.
    pub program: String,
    /// Number of the reason, as [`Session::note_unserved`] got it.
    pub reason: u32,
}

impl Unserved {
    fn copy(layout: &RecordLayout) -> Unserved {
        let header = &layout.header;
        Unserved {
            pid: header.pid.load(Relaxed),
            parent: header.parent.load(Relaxed),
            program: text(&header.program, header.program_len.load(Relaxed) as usize, PROGRAM_BYTES),
            reason: header.unserved.load(Relaxed),
        }
    }
}

impl RecordView {
    fn copy(layout: &RecordLayout) -> RecordView {
        let mut counters = [0u64; Counter::COUNT];
        for shard in &layout.shards {
            for (sum, word) in counters.iter_mut().zip(&shard.counters) {
                *sum = sum.wrapping_add(word.load(Relaxed));
            }
        }
        let header = &layout.header;
        RecordView {
            pid: header.pid.load(Relaxed),
            parent: header.parent.load(Relaxed),
            started_ns: header.started_ns.load(Relaxed),
            program: text(&header.program, header.program_len.load(Relaxed) as usize, PROGRAM_BYTES),
            counters,
            files: layout.files[..FILE_SLOTS].iter().filter_map(FileUse::copy).collect(),
        }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The parent's process id.
    pub fn parent(&self) -> u32 {
        self.parent
    }

    /// CLOCK_MONOTONIC at the start, in ns.
    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Path of the program.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// The sum over all threads.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// The files that mattered most, in no order.
    pub fn files(&self) -> &[FileUse] {
        &self.files
    }
}

impl FileUse {
    fn copy(slot: &FileSlot) -> Option<FileUse> {
        (slot.key.load(Relaxed) != 0).then(|| FileUse {
            path: text(&slot.path, slot.path_len.load(Relaxed) as usize, PATH_BYTES),
            user_calls: slot.user_calls.load(Relaxed),
            user_bytes: slot.user_bytes.load(Relaxed),
            kernel_calls: slot.kernel_calls.load(Relaxed),
            kernel_bytes: slot.kernel_bytes.load(Relaxed),
        })
    }
}

fn text(bytes: &[AtomicU8], length: usize, most: usize) -> String {
    let copy: Vec<u8> = bytes[..length.min(most)].iter().map(|byte| byte.load(Relaxed)).collect();
    String::from_utf8_lossy(&copy).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_from_two_shards_are_added_up() {
        let session = Session::create().unwrap();
        let record = Session::open(&session.path()).unwrap().claim().unwrap();
        record.describe(7, 1, 42, b"/bin/x");
        let (one, two) = (record.take_shard(), record.take_shard());
        one.add(Counter::KernelReads, 2);
        two.add(Counter::KernelReads, 3);
        record.return_shard(one);
        assert_eq!(record.take_shard().index, 0);
        let view = &session.records()[0];
        assert_eq!((view.pid(), view.parent(), view.started_ns()), (7, 1, 42));
        assert_eq!(view.counter(Counter::KernelReads), 5);
    }

    #[test]
    fn programs_without_the_library_are_noted_and_can_be_taken_back() {
        let session = Session::create().unwrap();
        let path = session.path();
        let first = Session::note_unserved(&path, 7, 1, b"/bin/x", 2).unwrap();
        assert!(Session::note_unserved(&path, 8, 1, b"/bin/y", 4).is_some());
        Session::retract(&path, first);
        let left = Unserved { pid: 8, parent: 1, program: "/bin/y".into(), reason: 4 };
        assert_eq!(session.unserved(), [left]);
        assert!(session.records().is_empty());
        assert_eq!(Session::note_unserved(c"/nowhere", 1, 1, b"", 1), None);
    }

    #[test]
    fn the_busiest_files_stay() {
        let session = Session::create().unwrap();
        let record = session.claim().unwrap();
        record.describe(1, 0, 0, b"p");
        for file in 0..100u64 {
            record.add_file(format!("/f{file}").as_bytes(), [file, 0, 1, 0]);
        }
        record.add_file(b"/f99", [1, 0, 0, 0]);
        let view = &session.records()[0];
        let best = view.files().iter().max_by_key(|file| file.user_calls).unwrap();
        assert_eq!((best.path.as_str(), best.user_calls), ("/f99", 100));
        assert_eq!(view.files().len(), FILE_SLOTS);
    }

    #[test]
    fn a_file_that_is_no_session_is_refused() {
        assert!(Session::open(c"/proc/self/exe").is_err());
        assert!(Session::open(c"/dev/null").is_err());
    }

    #[test]
    fn a_record_that_nobody_described_is_not_shown() {
        let session = Session::create().unwrap();
        session.claim().unwrap();
        assert!(session.records().is_empty());
    }
}
