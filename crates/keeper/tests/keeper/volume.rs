//! Logs on volumes of a device server: through the channel, which the keeper uses for the programs, and in mapped memory.

use crate::keep::{Keeper, attach};
use crate::machine::{Logged, Machine, Program, claim};
use bywash_client::{Client, NewVolume, Permissions};
use bywash_keeper::report::LogState;
use bywash_keeper::{Access, Error, LogFile, NewLog, checkpoint_at, create, remove, status_at};
use bywash_log::join::CLAIM;
use bywash_log::ranges::Range;
use bywash_log::shared::Counter;
use bywash_log::sys;
use bywash_server::{Options, Server};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Size of each volume, in bytes.
const BYTES: u64 = 8 << 20;

/// Volumes of a server, and their devices.
const VOLUMES: [(&str, &str); 2] = [("durable", "disk"), ("volatile", "fast")];

/// A device server with two volumes: `durable`, on a file, and `volatile`, in memory.
struct Served {
    server: Option<Server>,
    folder: tempfile::TempDir,
}

impl Served {
    fn new() -> Served {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut served = Served { server: None, folder };
        served.start();
        for (volume, device) in VOLUMES {
            served.client().create(NewVolume::new(volume, device, BYTES)).unwrap();
        }
        served
    }

    fn start(&mut self) {
        let disk = format!("disk=file:{},size=32M", self.folder.path().join("disk").display());
        let options = Options::new(self.folder.path().join("socket"))
            .policy(self.folder.path().join("volumes"))
            .device(disk.parse().unwrap())
            .device("fast=mem:32M".parse().unwrap());
        self.server = Some(Server::start(options).unwrap());
    }

    fn client(&self) -> Client {
        Client::connect(self.folder.path().join("socket"), bywash_client::Options::new()).unwrap()
    }

    /// Returns the name of a log on a volume.
    fn log(&self, volume: &str, path: &str) -> PathBuf {
        format!("volume:{}/{volume},path={path}", self.folder.path().join("socket").display()).into()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.server.is_none() {
            self.start();
        }
        // The files of the logs' locks, which go with a log that is removed.
        for (volume, device) in VOLUMES {
            // A volume in memory is gone with its server, and its log's file of locks is found by it alone.
            let _ = self.client().create(NewVolume::new(volume, device, BYTES));
            let Ok(log_file) = LogFile::open(&self.log(volume, "channel"), Access::Read) else { continue };
            let _ = fs::remove_file(log_file.locks().1);
        }
    }
}

/// Writes and syncs as a program does whose log has failed: the kernel makes the file durable, and a mark that cannot be
/// written becomes the end of the log's claim.
fn write_without_log(program: &Program, file: &Logged, bytes: &[u8]) {
    assert!(file.entry.ranges.note(Range::new(0, bytes.len() as u64).unwrap()));
    file.file.write_all_at(bytes, 0).unwrap();
    let fd = file.file.as_raw_fd();
    assert_eq!(program.log.commit(file.entry, fd), Err(Counter::KernelStopped));
    if program.log.kernel_sync(file.entry, || file.file.sync_all().is_ok()).is_err() {
        sys::remove_attribute(fd, CLAIM).unwrap();
        file.file.sync_all().unwrap();
    }
}

/// All ways in which programs write a log on a volume.
const WAYS: [(&str, &str); 3] = [("durable", "channel"), ("volatile", "channel"), ("volatile", "mapped")];

#[test]
fn commits_on_a_volume_are_recovered() {
    for (volume, path) in WAYS {
        let served = Served::new();
        let Some(machine) = Machine::with_volume(served.log(volume, path)) else { return };
        let keeper = Keeper::start(&machine.log()).unwrap();
        let (_attached, program) = attach(&machine);
        let file = program.open(&machine.path("file"));
        assert!(program.commit(&file, 0, &[1; 5000]));
        let status = status_at(&machine.log()).unwrap();
        assert_eq!((status.state, status.keeper.unwrap().counters["commits"]), (LogState::InUse, 1));
        checkpoint_at(&machine.log()).unwrap();
        assert_eq!(status_at(&machine.log()).unwrap().files, []);
        assert!(program.commit(&file, 5000, &[2; 3000]));
        assert!(program.commit(&file, 100_000, &[3; 300_000]));
        keeper.kill();
        machine.cut_power();
        assert_eq!(&fs::read(machine.path("file")).unwrap(), &[1; 5000]);
        machine.recover(true, &mut |_| true).unwrap();
        let expected = [&[1; 5000][..], &[2; 3000], &[0; 92_000], &[3; 300_000]].concat();
        assert!(fs::read(machine.path("file")).unwrap() == expected, "{volume} {path}");
    }
}

#[test]
fn a_log_that_fills_is_emptied() {
    for (volume, path) in WAYS {
        let served = Served::new();
        let Some(machine) = Machine::with_volume(served.log(volume, path)) else { return };
        let keeper = Keeper::start(&machine.log()).unwrap();
        let (_attached, program) = attach(&machine);
        let file = program.open(&machine.path("file"));
        for round in 0..400u64 {
            program.commit(&file, round % 20 * 50_000, &[round as u8; 50_000]);
        }
        let content = fs::read(machine.path("file")).unwrap();
        keeper.end();
        assert_eq!(status_at(&machine.log()).unwrap().state, LogState::Empty);
        assert_eq!(claim(&machine.path("file")), None);
        machine.cut_power();
        assert!(fs::read(machine.path("file")).unwrap() == content, "{volume} {path}");
        remove(&machine.log()).unwrap();
        assert!(matches!(status_at(&machine.log()), Err(Error::NotALog(_))));
    }
}

/// Whoever lost the volume, or its server, goes on with the kernel, and nothing old is written later.
#[test]
fn a_revoked_volume_leaves_everything_to_the_kernel() {
    for (volume, path) in WAYS {
        let served = Served::new();
        let Some(machine) = Machine::with_volume(served.log(volume, path)) else { return };
        let mut keeper = Keeper::start(&machine.log()).unwrap();
        let (attached, program) = attach(&machine);
        let file = program.open(&machine.path("file"));
        assert!(program.commit(&file, 0, b"committed"));
        served.client().revoke(volume).unwrap();
        write_without_log(&program, &file, b"newer....");
        keeper.process.wait().unwrap();
        assert_eq!(claim(&machine.path("file")), None);
        drop(attached);
        machine.cut_power();
        assert_eq!(fs::read(machine.path("file")).unwrap(), b"newer....");
        machine.recover(true, &mut |_| true).unwrap();
        assert_eq!(fs::read(machine.path("file")).unwrap(), b"newer....");
    }
}

/// A server that is started again has the blocks of its durable devices.
#[test]
fn commits_wait_for_a_server_that_comes_back() {
    let mut served = Served::new();
    let Some(machine) = Machine::with_volume(served.log("durable", "channel")) else { return };
    let keeper = Keeper::start(&machine.log()).unwrap();
    let (_attached, program) = attach(&machine);
    let file = program.open(&machine.path("file"));
    assert!(program.commit(&file, 0, b"before"));
    served.server = None;
    std::thread::scope(|scope| {
        let committed = scope.spawn(|| program.commit(&file, 0, b"after."));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!committed.is_finished());
        served.start();
        assert!(committed.join().unwrap());
    });
    keeper.kill();
    machine.cut_power();
    machine.recover(true, &mut |_| true).unwrap();
    assert_eq!(fs::read(machine.path("file")).unwrap(), b"after.");
}

#[test]
fn a_server_whose_memory_is_gone_ends_the_log() {
    for path in ["channel", "mapped"] {
        let mut served = Served::new();
        let Some(machine) = Machine::with_volume(served.log("volatile", path)) else { return };
        let mut keeper = Keeper::start(&machine.log()).unwrap();
        let (_attached, program) = attach(&machine);
        let file = program.open(&machine.path("file"));
        assert!(program.commit(&file, 0, b"before"));
        served.server = None;
        keeper.process.wait().unwrap();
        write_without_log(&program, &file, b"after.");
        assert_eq!(claim(&machine.path("file")), None);
    }
}

/// A program whose keeper was killed cannot write the volume by itself.
#[test]
fn a_killed_keeper_leaves_the_channels_programs_to_the_kernel() {
    let served = Served::new();
    let Some(machine) = Machine::with_volume(served.log("durable", "channel")) else { return };
    let keeper = Keeper::start(&machine.log()).unwrap();
    let (attached, program) = attach(&machine);
    let file = program.open(&machine.path("file"));
    assert!(program.commit(&file, 0, b"committed"));
    keeper.kill();
    let begun = Instant::now();
    write_without_log(&program, &file, b"newer....");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    drop(attached);
    machine.cut_power();
    machine.recover(true, &mut |_| true).unwrap();
    assert_eq!(fs::read(machine.path("file")).unwrap(), b"newer....");
}

#[test]
fn volumes_are_refused_with_the_reason() {
    let served = Served::new();
    let refused = |log: PathBuf, new: NewLog, part: &str| {
        let message = create(&log, &new).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    refused(served.log("volatile", "channel"), NewLog::default(), "volume on a memory device");
    refused(served.log("volatile", "mapped"), NewLog::default(), "volume on a memory device");
    refused(served.log("durable", "mapped"), NewLog::default(), "not memory that can be mapped");
    refused(served.log("nothing", "channel"), NewLog::default(), "nothing");
    refused(served.log("durable", "both"), NewLog::default(), "path=channel nor path=mapped");
    let volume = served.client().open("durable", bywash_client::Access::ReadWrite).unwrap();
    volume.write_at_durable(&[1; 4096], 0).unwrap();
    refused(served.log("durable", "channel"), NewLog::default(), "holds other data");
    let new = NewLog { overwrites_device: true, ..NewLog::default() };
    create(&served.log("durable", "channel"), &new).unwrap();
    // Whoever may write a volume can forge records.
    served.client().permit("durable", Permissions::default().mode(0o620)).unwrap();
    let message = status_at(&served.log("durable", "channel")).unwrap_err().to_string();
    assert!(message.contains("can be written by others"), "{message}");
}
