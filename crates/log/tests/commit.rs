//! Commits of several threads and processes to one log, some of which are killed: what a process was told to be durable is
//! in the log, and the log can be read.

#![allow(clippy::unwrap_used)]

use bywash_log::commit::Log;
use bywash_log::counts;
use bywash_log::join::{CLAIM, Described, join};
use bywash_log::ranges::Range;
use bywash_log::read;
use bywash_log::shared::{Counter, Entry};
use bywash_log::sys;
use bywash_support::log::{LogReader, TestLog};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Size of the part of the file that each writer has, in bytes.
const PART: u64 = 64 << 10;

/// A log, its memory, and a file that is logged.
struct Place {
    _folder: tempfile::TempDir,
    log_file: PathBuf,
    file: File,
    log: Log,
    entry: &'static Entry,
}

impl Place {
    fn new(blocks: u64) -> Place {
        // Not on a tmpfs, which has no O_DIRECT before Linux 6.6.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let log_file = folder.path().join("log");
        let shared = *TestLog::new(&log_file, blocks, 4).shared();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(folder.path().join("file"))
            .unwrap();
        let log = Log::new(shared).unwrap();
        let entry = shared.find_or_make(sys::identity(file.as_raw_fd()).unwrap()).unwrap();
        let described = Described::of_descriptor(file.as_raw_fd()).unwrap();
        join(&log, entry, file.as_raw_fd(), &described).unwrap();
        assert!(log.kernel_sync(entry, || file.sync_all().is_ok()).unwrap());
        Place { _folder: folder, log_file, file, log, entry }
    }

    /// Writes as the preloaded library does, and commits.
    fn write_and_commit(&self, offset: u64, bytes: &[u8]) {
        let range = Range::new(offset, bytes.len() as u64).unwrap();
        assert!(self.entry.ranges.note(range));
        self.file.write_all_at(bytes, offset).unwrap();
        assert!(self.entry.ranges.note(range));
        match self.log.commit(self.entry, self.file.as_raw_fd()) {
            Ok(()) => {}
            Err(Counter::KernelFull | Counter::KernelChanged) => {
                assert!(self.log.kernel_sync(self.entry, || self.file.sync_data().is_ok()).unwrap());
            }
            Err(reason) => panic!("{reason:?}"),
        }
    }

    /// Returns what recovery would make of an empty file: the live records, in order.
    fn replayed(&self) -> Vec<u8> {
        let mut log_file = LogReader::open(&self.log_file);
        let superblock = read::superblock(&mut log_file).unwrap();
        let files = read::files(&mut log_file, &superblock).unwrap();
        let mut contents = Vec::new();
        read::batches(&mut log_file, &superblock, |record, bytes| {
            if files[&record.file].is_live(record.sequence) {
                let end = record.offset as usize + bytes.len();
                contents.resize(contents.len().max(end), 0);
                contents[record.offset as usize..end].copy_from_slice(bytes);
            }
        })
        .unwrap();
        contents
    }
}

/// Writes blocks that tell their number, one commit each, and stores the number of each that is durable.
fn work(place: &Place, part: u64, commits: u64, acknowledged: &AtomicU64) {
    for number in 1..=commits {
        let offset = part * PART + number * 97 % (PART - 4096) / 8 * 8;
        let length = 8 + number * 31 % 4000 / 8 * 8;
        let block: Vec<u8> = number.to_le_bytes().repeat(length as usize / 8);
        place.write_and_commit(offset, &block);
        // The part begins with its last number, so that it can be found again.
        place.write_and_commit(part * PART, &number.to_le_bytes());
        acknowledged.store(number, Ordering::SeqCst);
    }
}

fn last_number(contents: &[u8], part: u64) -> u64 {
    let at = (part * PART) as usize;
    contents.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

#[test]
fn a_file_is_described_and_claimed() {
    let place = Place::new(20_000);
    let mut log_file = LogReader::open(&place.log_file);
    let superblock = read::superblock(&mut log_file).unwrap();
    let files = read::files(&mut log_file, &superblock).unwrap();
    let (number, file) = files.first_key_value().unwrap();
    let identity = file.identity();
    assert_eq!((number.slot, files.len(), identity.epoch), (0, 1, 9));
    let path = place.log_file.with_file_name("file");
    assert_eq!(identity.path, path.to_str().unwrap().as_bytes());
    assert!(identity.boot != [0; 16] && identity.filesystem != [0; 16] && !identity.handle.is_empty());
    let fd = place.file.as_raw_fd();
    assert_eq!(sys::attribute(fd, CLAIM), Ok(Some(superblock.id)));
    // Another log may not have records of the file at the same time.
    let described = Described::of_descriptor(fd).unwrap();
    sys::set_attribute(fd, CLAIM, &[2; 16]).unwrap();
    assert_eq!(join(&place.log, place.entry, fd, &described), Err(libc::EBUSY));
}

#[test]
fn threads_share_batches() {
    let place = Place::new(20_000);
    let acknowledged: [AtomicU64; 4] = Default::default();
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (place, acknowledged) = (&place, &acknowledged[part as usize]);
            scope.spawn(move || work(place, part, 100, acknowledged));
        }
    });
    let shared = place.log.shared();
    let (commits, batches) = (shared.counted(Counter::Commits), shared.counted(Counter::Batches));
    assert!(batches < commits, "{commits} commits in {batches} batches");
    let mut expected = std::fs::read(place.log_file.with_file_name("file")).unwrap();
    let mut replayed = place.replayed();
    let length = expected.len().max(replayed.len());
    expected.resize(length, 0);
    replayed.resize(length, 0);
    assert!(expected == replayed, "the log holds all that was written");
}

#[test]
fn commits_are_counted_for_the_log_and_for_the_run() {
    let mut place = Place::new(2000);
    // SAFETY: the name is a C string, and the call makes a descriptor that nobody else has.
    let memory = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"run".as_ptr(), libc::MFD_CLOEXEC)) };
    // SAFETY: the call has integer arguments only.
    assert_eq!(unsafe { libc::ftruncate(memory.as_raw_fd(), counts::RUN_BYTES as i64) }, 0);
    let run = counts::prepare_run(memory.as_raw_fd()).unwrap();
    place.write_and_commit(0, b"before");
    let path = CString::new(format!("/proc/self/fd/{}", memory.as_raw_fd())).unwrap();
    let (opened, shared) = (counts::open_run(&path).unwrap(), *place.log.shared());
    place.log = Log::new(shared).unwrap().counting_for(opened);
    let begun = Instant::now();
    for turn in 0..3 {
        place.write_and_commit(turn * 100, b"some");
    }
    let most_ns = begun.elapsed().as_nanos() as u64;
    let of_log = &shared.header().counts;
    assert_eq!((run.get(Counter::Commits), of_log.get(Counter::Commits)), (3, 4));
    assert!(run.get(Counter::Bytes) < of_log.get(Counter::Bytes));
    let latencies = run.latencies().unwrap();
    assert!(
        latencies.p50_ns <= latencies.p99_9_ns && latencies.p99_9_ns <= most_ns + most_ns / 16,
        "{latencies:?}"
    );
    assert_eq!(counts::open_run(c"/dev/null").map(|_| ()), Err(libc::EPROTO));
}

#[test]
fn a_full_log_leaves_syncs_to_the_kernel_and_its_records_are_dead() {
    let place = Place::new(2 + 3 * 4 + 4 * 256);
    let block = vec![7; 300_000];
    for number in 0..10 {
        place.write_and_commit(number * 300_000, &block);
    }
    assert!(place.log.shared().counted(Counter::KernelFull) > 0);
    assert!(place.log.shared().counted(Counter::Marks) > 0);
    assert_eq!(place.replayed(), b"");
}

#[test]
fn a_commit_without_writes_writes_nothing() {
    let place = Place::new(20_000);
    place.write_and_commit(0, b"once");
    place.log.commit(place.entry, place.file.as_raw_fd()).unwrap();
    let shared = place.log.shared();
    assert_eq!(
        [Counter::Commits, Counter::Clean, Counter::Batches].map(|counter| shared.counted(counter)),
        [1, 1, 1]
    );
}

#[test]
fn ranges_behind_the_end_of_the_file_are_not_waited_for() {
    let place = Place::new(20_000);
    assert!(place.entry.ranges.note(Range::new(1 << 20, 4096).unwrap()));
    place.log.commit(place.entry, place.file.as_raw_fd()).unwrap();
    assert_eq!(place.log.shared().counted(Counter::Batches), 0);
    assert!(place.entry.ranges.is_empty());
}

#[test]
fn a_descriptor_that_became_another_file_is_not_written() {
    let place = Place::new(20_000);
    place.write_and_commit(0, b"first");
    let victim = File::create(place.log_file.with_file_name("victim")).unwrap();
    // Replaced without a word to the library.
    // SAFETY: both descriptors are open.
    unsafe { libc::dup2(victim.as_raw_fd(), place.log.log_file().descriptor()) };
    place.write_and_commit(0, b"later");
    assert_eq!(victim.metadata().unwrap().len(), 0);
    assert_eq!(&place.replayed()[..5], b"later");
}

#[test]
fn processes_are_killed_and_what_they_were_told_is_durable() {
    let rounds = std::env::var("BYWASH_STRESS_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        let place = Place::new(60_000);
        // SAFETY: new shared memory of a page.
        let page = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        // SAFETY: the page is mapped for good and consists of numbers.
        let acknowledged: &[AtomicU64; 4] = unsafe { &*page.cast() };
        let children: Vec<i32> = (0..4)
            .map(|part| {
                // SAFETY: the child calls nothing that another thread could have locked, and ends by _exit.
                match unsafe { libc::fork() } {
                    0 => {
                        work(&place, part, 100_000, &acknowledged[part as usize]);
                        // SAFETY: ends the child.
                        unsafe { libc::_exit(0) }
                    }
                    child => child,
                }
            })
            .collect();
        for (number, child) in children.iter().enumerate() {
            std::thread::sleep(Duration::from_micros(15_000 + (round * 7919 + number as u64 * 977) % 9000));
            // SAFETY: kills and reaps a child of this process.
            unsafe {
                libc::kill(*child, libc::SIGKILL);
                libc::waitpid(*child, std::ptr::null_mut(), 0);
            }
        }
        let contents = place.replayed();
        for part in 0..4 {
            let told = acknowledged[part as usize].load(Ordering::SeqCst);
            let found = last_number(&contents, part);
            assert!(
                told <= found && found <= told + 1,
                "round {round}, part {part}: told {told}, found {found}"
            );
        }
        // Whoever is left goes on.
        place.write_and_commit(4 * PART, b"alive");
        assert_eq!(&place.replayed()[4 * PART as usize..][..5], b"alive");
    }
}

/// A sync of many files by the kernel (syncfs(2)) makes dead what was read before it began. A commit that has read the file
/// and not yet noted its record would otherwise stay live, and be written over what the sync made durable.
#[test]
fn a_sync_of_many_files_waits_for_a_commit_that_reads() {
    let place = Place::new(2 + 3 * 4 + 1024);
    place.write_and_commit(0, b"first");
    let before = place.log.newest_record(place.entry);
    assert!(before > 0);
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // Held by a commit while it reads the file.
        let lock = place.log.lock_entry(place.entry).unwrap();
        scope.spawn(|| send.send(place.log.newest_record(place.entry)).unwrap());
        assert!(receive.recv_timeout(Duration::from_millis(50)).is_err(), "it did not wait for the commit");
        // The commit notes its record.
        place.entry.sequence.store(before + 1, Ordering::Relaxed);
        drop(lock);
    });
    assert_eq!(receive.recv(), Ok(before + 1));
    assert!(place.log.kernel_sync(place.entry, || place.file.sync_all().is_ok()).unwrap());
    assert_eq!(place.log.newest_record(place.entry), 0);
}
