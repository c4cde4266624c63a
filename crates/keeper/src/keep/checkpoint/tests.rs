//! Tests of events between the steps of a checkpoint.

use super::*;
use crate::{Access, NewLog, create};
use bywash_log::join::{Described, join};
use bywash_log::ranges::Range;
use bywash_log::shared::{SHARED_BYTES, Shared};
use bywash_log::sys;
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// A log with a file, and a program's side of both.
struct Logged {
    checkpointer: Checkpointer,
    file: File,
    entry: &'static Entry,
    _folder: tempfile::TempDir,
}

impl Logged {
    /// Makes both, or says why not.
    fn new() -> Option<Logged> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let new = NewLog { bytes: Some(8 << 20), is_volatile_allowed: true, overwrites_device: false };
        create(&path, &new).unwrap();
        let log_file = Arc::new(LogFile::open(&path, Access::Write).unwrap());
        let superblock = log_file.superblock().unwrap();
        let memory = rustix::fs::memfd_create(c"log", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memory, SHARED_BYTES as u64).unwrap();
        let name = crate::sys::c_path(log_file.path()).unwrap();
        let shared =
            Shared::prepare(memory.as_raw_fd(), &superblock, log_file.identity().unwrap(), &name).unwrap();
        shared.set_state(State::Running);
        let log = Log::new(shared).unwrap();
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(folder.path().join("file")).unwrap();
        let described = match Described::of_descriptor(file.as_raw_fd()) {
            Ok(described) => described,
            Err(number) => {
                println!("left out: error {number} where temporary files are");
                return None;
            }
        };
        let entry = shared.find_or_make(sys::identity(file.as_raw_fd()).unwrap()).unwrap();
        join(&log, entry, file.as_raw_fd(), &described).unwrap();
        assert!(log.kernel_sync(entry, || file.sync_all().is_ok()).unwrap());
        let checkpointer = Checkpointer::new(log, log_file, superblock);
        Some(Logged { checkpointer, file, entry, _folder: folder })
    }

    fn commit(&self, bytes: &[u8]) {
        self.file.write_all_at(bytes, 0).unwrap();
        assert!(self.entry.ranges.note(Range::new(0, bytes.len() as u64).unwrap()));
        self.checkpointer.log.commit(self.entry, self.file.as_raw_fd()).unwrap();
    }

    /// Returns the greatest sequence number that is dead on the log file, 0 without a mark.
    fn dead(&self) -> u64 {
        let Checkpointer { log_file, superblock, .. } = &self.checkpointer;
        let files = read::files(&mut Reader::new(log_file), superblock).unwrap();
        files.values().next().unwrap().mark.map_or(0, |mark| mark.dead_up_to)
    }
}

#[test]
fn what_is_committed_during_the_sync_stays_alive() {
    let Some(mut logged) = Logged::new() else { return };
    logged.commit(b"before");
    let candidate = logged.checkpointer.candidate(logged.entry).unwrap();
    assert!(!logged.checkpointer.sync(&candidate).unwrap());
    logged.commit(b"during");
    logged.checkpointer.mark(&candidate, false).unwrap();
    assert_eq!((logged.dead(), logged.entry.oldest.load(Relaxed)), (1, 2));
    logged.checkpointer.move_tail().unwrap();
    assert_eq!(logged.checkpointer.superblock.tail_batch, 2);
    assert_eq!(logged.checkpointer.log_file.superblock().unwrap(), logged.checkpointer.superblock);
}

#[test]
fn a_mark_that_comes_later_than_the_kernels_brings_nothing_back() {
    let Some(mut logged) = Logged::new() else { return };
    logged.commit(b"first");
    let candidate = logged.checkpointer.candidate(logged.entry).unwrap();
    logged.checkpointer.sync(&candidate).unwrap();
    logged.commit(b"second");
    let log = &logged.checkpointer.log;
    assert!(log.kernel_sync(logged.entry, || logged.file.sync_all().is_ok()).unwrap());
    assert_eq!(logged.dead(), 2);
    logged.commit(b"third");
    logged.checkpointer.mark(&candidate, false).unwrap();
    assert_eq!((logged.dead(), logged.entry.oldest.load(Relaxed)), (2, 3));
}

#[test]
fn an_empty_log_has_no_live_record_and_another_period() {
    let Some(mut logged) = Logged::new() else { return };
    logged.commit(b"text");
    let epoch = logged.checkpointer.superblock.epoch;
    logged.checkpointer.log.shared().set_state(State::Ended);
    logged.checkpointer.drain();
    assert_eq!(logged.checkpointer.finish().unwrap(), 0);
    let superblock = logged.checkpointer.log_file.superblock().unwrap();
    assert!(superblock.epoch != epoch && superblock.tail_batch == 2);
    assert!(
        crate::Contents::read(&logged.checkpointer.log_file, &superblock).unwrap().is_untouched(&superblock)
    );
}
