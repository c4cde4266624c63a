//! A machine whose power can be cut: an ext4 on a loop device with the files, and a log outside of it.

use bywash_keeper::{Access, Error, LogFile, NewLog, Recovery, Step, create, recover, report::Recovered};
use bywash_log::commit::Log;
use bywash_log::join::{CLAIM, Described, join};
use bywash_log::layout::Superblock;
use bywash_log::ranges::Range;
use bywash_log::shared::{Counter, Entry, SHARED_BYTES, Shared, State};
use bywash_log::sys;
use bywash_support::disks::{FileSystem, LoopDevice};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A file system and a log.
pub struct Machine {
    pub disk: FileSystem,
    kind: &'static str,
    _folder: TempDir,
    log: PathBuf,
    /// Device of the log, if it is on one.
    device: Option<LoopDevice>,
}

/// A program that commits by itself, without a keeper.
pub struct Program {
    pub log: Log,
}

impl Machine {
    /// Makes both, or says why not.
    pub fn new() -> Option<Machine> {
        Machine::on("ext4", 48 << 20)
    }

    /// Makes both, with a file system of a kind and size.
    pub fn on(kind: &'static str, bytes: u64) -> Option<Machine> {
        let disk = match FileSystem::new(kind, bytes) {
            Ok(disk) => disk,
            Err(why) => {
                println!("left out: {why}");
                return None;
            }
        };
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let log = folder.path().join("log");
        create(&log, &NewLog { bytes: Some(8 << 20), ..NewLog::default() }).unwrap();
        Some(Machine { disk, kind, _folder: folder, log, device: None })
    }

    /// Makes both, with the log on a volume of a device server.
    pub fn with_volume(log: PathBuf) -> Option<Machine> {
        let machine = Machine::new()?;
        create(&log, &NewLog { is_volatile_allowed: true, ..NewLog::default() }).unwrap();
        Some(Machine { log, ..machine })
    }

    /// Makes both, with the log on a block device.
    pub fn with_device() -> Option<Machine> {
        let machine = Machine::new()?;
        let device = LoopDevice::new(8 << 20).unwrap();
        create(device.path(), &NewLog::default()).unwrap();
        Some(Machine { log: device.path().to_owned(), device: Some(device), ..machine })
    }

    /// Lets the log's device fail all writes, or no more.
    pub fn fail_log(&self, fails: bool) {
        let device = self.device.as_ref().unwrap().path();
        let flag = if fails { "--setro" } else { "--setrw" };
        assert!(Command::new("blockdev").arg(flag).arg(device).status().unwrap().success());
    }

    /// Ends the file system as a failure of its disk does: from here on nothing becomes durable.
    pub fn fail_disk(&self) {
        /// EXT4_IOC_SHUTDOWN (fs/ext4/ext4.h), and its flag to write nothing more, not even the journal.
        const SHUTDOWN: libc::c_ulong = 0x8004_587d;
        let no_flush = 2u32;
        let folder = File::open(self.disk.path()).unwrap();
        // SAFETY: the request reads a number of 32 bits.
        assert_eq!(unsafe { libc::ioctl(folder.as_raw_fd(), SHUTDOWN, &raw const no_flush) }, 0);
    }

    pub fn log(&self) -> PathBuf {
        self.log.clone()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.disk.path().join(name)
    }

    /// Cuts the power: what the file system has not written is gone. Mounts what is left, at the same place.
    pub fn cut_power(&self) {
        let (image, left) = (self.disk.folder().join("image"), self.disk.folder().join("left"));
        fs::copy(&image, &left).unwrap();
        let at = self.disk.path();
        assert!(Command::new("umount").arg("--lazy").arg(at).status().unwrap().success());
        fs::rename(&left, &image).unwrap();
        // The old one may still be there, with the same UUID.
        let options = if self.kind == "xfs" { "loop,nouuid" } else { "loop" };
        assert!(Command::new("mount").args(["-o", options]).arg(&image).arg(at).status().unwrap().success());
    }

    pub fn superblock(&self) -> Superblock {
        LogFile::open(&self.log(), Access::Read).unwrap().superblock().unwrap()
    }

    /// Recovers; `before` is called before each step and ends recovery by false.
    pub fn recover(
        &self,
        has_crashed: bool,
        before: &mut dyn FnMut(Step) -> bool,
    ) -> Result<Recovered, Error> {
        self.recover_without(&[], has_crashed, before)
    }

    pub fn recover_without(
        &self,
        given_up: &[PathBuf],
        has_crashed: bool,
        before: &mut dyn FnMut(Step) -> bool,
    ) -> Result<Recovered, Error> {
        let log_file = LogFile::open(&self.log(), Access::Write)?;
        lock(&log_file)?;
        let mut superblock = log_file.superblock()?;
        recover(
            &log_file,
            &mut superblock,
            &mut Recovery { is_dry_run: false, has_crashed, given_up, before },
        )
    }

    pub fn program(&self) -> Program {
        let log_file = LogFile::open(&self.log(), Access::Read).unwrap();
        // SAFETY: the name is a C string.
        let memory = unsafe { libc::memfd_create(c"log".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor was just made.
        assert_eq!(unsafe { libc::ftruncate(memory, SHARED_BYTES as i64) }, 0);
        let path = CString::new(log_file.path().as_os_str().as_bytes()).unwrap();
        let identity = log_file.identity().unwrap();
        let shared = Shared::prepare(memory, &log_file.superblock().unwrap(), identity, &path).unwrap();
        shared.set_state(State::Running);
        Program { log: Log::new(shared).unwrap() }
    }
}

/// Locks a log. A process that another test has just started holds our descriptors until it executes its program.
fn lock(log_file: &LogFile) -> Result<(), Error> {
    for _ in 0..100 {
        match log_file.lock() {
            Err(Error::InUse(_)) => std::thread::sleep(Duration::from_millis(10)),
            outcome => return outcome,
        }
    }
    log_file.lock()
}

/// A file as a program has it.
pub struct Logged {
    pub file: File,
    pub entry: &'static Entry,
}

impl Program {
    /// A program of a running keeper.
    pub fn attached(memory: &Path) -> Program {
        let path = CString::new(memory.as_os_str().as_bytes()).unwrap();
        Program { log: Log::new(Shared::open(&path).unwrap()).unwrap() }
    }

    /// Opens or makes a file, lets it join, and makes it durable by the kernel.
    pub fn open(&self, path: &Path) -> Logged {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path).unwrap();
        let key = sys::identity(file.as_raw_fd()).unwrap();
        let entry = self.log.shared().find_or_make(key).unwrap();
        let logged = Logged { file, entry };
        self.join(&logged);
        logged
    }

    pub fn join(&self, logged: &Logged) {
        let fd = logged.file.as_raw_fd();
        let described = Described::of_descriptor(fd).unwrap();
        let limit = Instant::now() + Duration::from_secs(5);
        while let Err(number) = join(&self.log, logged.entry, fd, &described) {
            assert!(number == libc::ENOSPC && Instant::now() < limit, "{number}");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(self.log.kernel_sync(logged.entry, || logged.file.sync_all().is_ok()).unwrap());
    }

    /// Writes and commits; returns false if the kernel made it durable.
    pub fn commit(&self, logged: &Logged, offset: u64, bytes: &[u8]) -> bool {
        let range = Range::new(offset, bytes.len() as u64).unwrap();
        assert!(logged.entry.ranges.note(range));
        logged.file.write_all_at(bytes, offset).unwrap();
        assert!(logged.entry.ranges.note(range));
        match self.log.commit(logged.entry, logged.file.as_raw_fd()) {
            Ok(()) => true,
            Err(Counter::KernelFull | Counter::KernelChanged | Counter::KernelStopped) => {
                assert!(self.log.kernel_sync(logged.entry, || logged.file.sync_data().is_ok()).unwrap());
                false
            }
            // The keeper has taken the file's number.
            Err(Counter::KernelUnsuited) => {
                self.join(logged);
                false
            }
            Err(reason) => panic!("{reason:?}"),
        }
    }
}

/// Returns the claim of a file.
pub fn claim(path: &Path) -> Option<[u8; 16]> {
    sys::attribute(File::open(path).unwrap().as_raw_fd(), CLAIM).unwrap()
}
