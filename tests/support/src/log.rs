//! A commit log for a single test: its log file, and the memory that programs under the preloaded library share. The test is
//! the keeper, but checkpoints nothing.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use bywash_log::layout::{BLOCK, Geometry, Superblock};
use bywash_log::read::Storage;
pub use bywash_log::shared::{Counter, SHARED_BYTES, Shared, State};
use bywash_log::sys;
use std::ffi::CString;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// Log file, to read from.
#[derive(Debug)]
pub struct LogReader(File);

impl LogReader {
    /// Opens a log file.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub fn open(log_file: &Path) -> LogReader {
        LogReader(File::open(log_file).expect("a log"))
    }
}

impl Storage for LogReader {
    type Error = io::Error;

    fn read(&mut self, block: u64, to: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(to, block * BLOCK as u64)
    }
}

/// Returns an id for the log at a path: other logs have others.
fn id_of(log_file: &Path) -> [u8; 16] {
    let mut hasher = DefaultHasher::new();
    log_file.hash(&mut hasher);
    let half = hasher.finish().to_le_bytes();
    std::array::from_fn(|at| half[at % half.len()])
}

/// A log that is running.
#[derive(Debug)]
pub struct TestLog {
    log_file: PathBuf,
    memory: OwnedFd,
    shared: Shared,
}

impl TestLog {
    /// Makes a log of `blocks` blocks for `files` files at a path on a disk.
    ///
    /// # Panics
    /// If a call fails, or the log is too small.
    pub fn new(log_file: &Path, blocks: u64, files: u32) -> TestLog {
        let geometry = Geometry::new(blocks, files).expect("room for four batches");
        let superblock = Superblock {
            id: id_of(log_file),
            geometry,
            owner: 0,
            writes: 1,
            epoch: 9,
            tail_block: 0,
            tail_batch: 1,
            recovery_boot: [0; 16],
        };
        let file = File::create(log_file).expect("a log");
        file.write_all_at(&vec![0; geometry.blocks as usize * BLOCK], 0).expect("room on the disk");
        file.write_all_at(&superblock.encode(), superblock.block() * BLOCK as u64).expect("a superblock");
        file.sync_all().expect("a durable log");
        // SAFETY: the name is a C string, and the call makes a descriptor that nobody else has.
        let memory = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"log".as_ptr(), libc::MFD_CLOEXEC)) };
        // SAFETY: the call has integer arguments only.
        assert_eq!(unsafe { libc::ftruncate(memory.as_raw_fd(), SHARED_BYTES as i64) }, 0);
        let status = sys::status(file.as_raw_fd()).expect("the status of the log");
        let path = CString::new(log_file.as_os_str().as_bytes()).expect("a path");
        let shared = Shared::prepare(memory.as_raw_fd(), &superblock, status.identity(), &path)
            .expect("memory of the log");
        // Tests commit to files that they have just made.
        shared.header().age_ns.store(0, Relaxed);
        // And count what is absorbed, however fast the disk is.
        shared.header().without_trials.store(1, Relaxed);
        shared.set_state(State::Running);
        TestLog { log_file: log_file.to_owned(), memory, shared }
    }

    /// Returns the path of the log file.
    pub fn log_file(&self) -> &Path {
        &self.log_file
    }

    /// Returns the memory.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the path by which programs open the memory: the value of `BYWASH_LOG`.
    pub fn memory_path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.memory.as_raw_fd())
    }
}
