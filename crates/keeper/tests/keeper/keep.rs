//! The keeper, as a process of its own, with this process as its program.

use crate::machine::{Logged, Machine, Program, claim};
use bywash_keeper::report::LogState;
use bywash_keeper::{
    Access, Attached, Client, Error, LogFile, Recovery, checkpoint_at, keep, recover_at, status_at,
};
use bywash_log::ranges::Range;
use bywash_log::shared::{Counter, State};
use bywash_log::sys;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// A keeper, killed when dropped.
pub struct Keeper {
    pub process: Child,
    /// Kept open, since the process writes to it until it ends.
    _output: BufReader<ChildStdout>,
    /// Name of the socket, which a killed keeper leaves behind.
    name: String,
}

impl Keeper {
    /// Starts a keeper and waits until it is ready, or for its failure.
    pub fn start(log: &Path) -> Result<Keeper, String> {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "keep::is_the_keeper", "--nocapture", "--ignored"])
            .env("LOG", log)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let lines = output.by_ref().lines().map_while(Result::ok);
        let outcome =
            lines.filter_map(|line| line.split_once("outcome: ").map(|(_, text)| text.to_owned())).next();
        let (device, inode) = LogFile::open(log, Access::Read).unwrap().identity().unwrap();
        let name = format!("log-{device:x}-{inode:x}");
        // One that was refused has none.
        let name = if outcome.as_deref() == Some("ready") { name } else { String::new() };
        let keeper = Keeper { process: child, _output: output, name };
        match outcome.as_deref() {
            Some("ready") => Ok(keeper),
            other => Err(other.unwrap_or("no outcome").to_owned()),
        }
    }

    /// Tells the keeper to end, and waits for that.
    pub fn end(mut self) {
        // SAFETY: the child was not reaped yet.
        unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        assert!(self.process.wait().unwrap().success());
    }

    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It has ended already after `end` and `kill`.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let runtime = std::env::var("XDG_RUNTIME_DIR").map(|folder| format!("{folder}/bywash"));
        for folder in runtime.into_iter().chain(["/run/bywash-log".into()]) {
            // It is in one of them, or was removed by the keeper.
            let _ = fs::remove_file(Path::new(&folder).join(&self.name));
        }
    }
}

#[test]
#[ignore = "the process of Keeper"]
fn is_the_keeper() {
    let Some(log) = std::env::var_os("LOG") else { return };
    // A volume of a test may be in memory.
    let is_volatile = log.to_string_lossy().starts_with("volume:");
    if let Err(error) = keep(Path::new(&log), is_volatile, || println!("outcome: ready")) {
        println!("outcome: {error}");
    }
}

pub fn attach(machine: &Machine) -> (Attached, Program) {
    let attached = Client::connect(&machine.log()).unwrap().unwrap().attach().unwrap().unwrap();
    let program = Program::attached(&attached.memory);
    (attached, program)
}

#[test]
fn commits_are_durable_before_and_after_the_keepers_checkpoint() {
    let Some(machine) = Machine::new() else { return };
    let keeper = Keeper::start(&machine.log()).unwrap();
    let (_attached, program) = attach(&machine);
    let file = program.open(&machine.path("file"));
    assert!(program.commit(&file, 0, &[1; 5000]));
    let status = status_at(&machine.log()).unwrap();
    let told = status.keeper.unwrap();
    assert_eq!((status.state, told.pid, told.counters["commits"]), (LogState::InUse, keeper.process.id(), 1));
    assert_eq!(Path::new(&status.files[0].path), machine.path("file"));
    checkpoint_at(&machine.log()).unwrap();
    assert_eq!(status_at(&machine.log()).unwrap().files, []);
    // The file system has it: a crash needs no recovery.
    let before = machine.superblock();
    assert_eq!(before.tail_batch, 2);
    assert!(program.commit(&file, 5000, &[2; 3000]));
    keeper.kill();
    machine.cut_power();
    assert_eq!(&fs::read(machine.path("file")).unwrap(), &[1; 5000]);
    let error = recover_here(&machine).unwrap_err();
    assert!(matches!(error, Error::Orphaned(_)), "{error}");
    machine.recover(true, &mut |_| true).unwrap();
    assert_eq!(fs::read(machine.path("file")).unwrap(), [&[1; 5000][..], &[2; 3000]].concat());
}

fn recover_here(machine: &Machine) -> Result<(), Error> {
    let mut recovery =
        Recovery { is_dry_run: false, has_crashed: true, given_up: &[], before: &mut |_| true };
    recover_at(&machine.log(), &mut recovery).map(drop)
}

#[test]
fn a_log_that_fills_is_emptied_behind_the_programs() {
    let Some(machine) = Machine::new() else { return };
    let keeper = Keeper::start(&machine.log()).unwrap();
    let (_attached, program) = attach(&machine);
    let files = ["a", "b", "c"].map(|name| program.open(&machine.path(name)));
    let mut logged = 0;
    for round in 0..300u64 {
        for file in &files {
            // Six times the size of the log.
            let is_logged = program.commit(file, round % 50 * 50_000, &[round as u8; 50_000]);
            logged += u64::from(is_logged);
        }
    }
    let shared = program.log.shared();
    // The log has room for 160 of them.
    assert!(logged > 250, "{logged} of 900 commits, {} full", shared.counted(Counter::KernelFull));
    let contents = ["a", "b", "c"].map(|name| fs::read(machine.path(name)).unwrap());
    keeper.kill();
    machine.cut_power();
    machine.recover(true, &mut |_| true).unwrap();
    let now = ["a", "b", "c"].map(|name| fs::read(machine.path(name)).unwrap());
    assert!(now == contents, "all 900 commits are durable");
}

#[test]
fn at_the_end_the_log_is_empty_and_programs_go_on_with_the_kernel() {
    let Some(machine) = Machine::new() else { return };
    let keeper = Keeper::start(&machine.log()).unwrap();
    let (_attached, program) = attach(&machine);
    let file = program.open(&machine.path("file"));
    assert!(program.commit(&file, 0, b"logged"));
    assert!(claim(&machine.path("file")).is_some());
    let epoch = machine.superblock().epoch;
    keeper.end();
    assert_eq!(program.log.shared().header().state.load(SeqCst), State::Ended as u32);
    assert_ne!(machine.superblock().epoch, epoch);
    assert_eq!(status_at(&machine.log()).unwrap().state, LogState::Empty);
    assert_eq!(claim(&machine.path("file")), None);
    assert!(!program.commit(&file, 0, b"kernel"));
    machine.cut_power();
    assert_eq!(fs::read(machine.path("file")).unwrap(), b"kernel");
    // The old program is in nobody's way.
    let keeper = Keeper::start(&machine.log()).unwrap();
    let (_attached, program) = attach(&machine);
    let file = program.open(&machine.path("file"));
    assert!(program.commit(&file, 0, b"logged again"));
    keeper.end();
}

#[test]
fn a_second_keeper_is_refused_and_one_after_a_killed_one_while_programs_are_there() {
    let Some(machine) = Machine::new() else { return };
    let keeper = Keeper::start(&machine.log()).unwrap();
    let refused = |part: &str| {
        let message = Keeper::start(&machine.log()).err().unwrap();
        assert!(message.contains(part), "{message}");
    };
    refused("is in use by a keeper");
    let (_attached, program) = attach(&machine);
    keeper.kill();
    refused("programs still append to log");
    // They do: their commits are not lost.
    let file = program.open(&machine.path("file"));
    assert!(program.commit(&file, 0, b"without a keeper"));
    machine.cut_power();
    machine.recover(true, &mut |_| true).unwrap();
    assert_eq!(fs::read(machine.path("file")).unwrap(), b"without a keeper");
}

#[test]
fn more_files_join_than_the_table_has_room_for() {
    let Some(machine) = Machine::new() else { return };
    let files_max = machine.superblock().geometry.files;
    let keeper = Keeper::start(&machine.log()).unwrap();
    let (_attached, program) = attach(&machine);
    for number in 0..3 * files_max {
        let file = program.open(&machine.path(&number.to_string()));
        program.commit(&file, 0, number.to_string().as_bytes());
    }
    // A file that has lost its number joins again.
    let first = program.open(&machine.path("0"));
    assert!(program.commit(&first, 0, b"again"));
    keeper.kill();
    machine.cut_power();
    machine.recover(true, &mut |_| true).unwrap();
    for number in 1..3 * files_max {
        let name = number.to_string();
        assert_eq!(fs::read_to_string(machine.path(&name)).unwrap(), name);
    }
    assert_eq!(fs::read(machine.path("0")).unwrap(), b"again");
}

#[test]
fn a_file_that_cannot_be_reached_by_its_name_is_checkpointed() {
    let Some(machine) = Machine::new() else { return };
    let keeper = Keeper::start(&machine.log()).unwrap();
    let (_attached, program) = attach(&machine);
    let (renamed, removed) = (program.open(&machine.path("a")), program.open(&machine.path("b")));
    assert!(program.commit(&renamed, 0, b"renamed") && program.commit(&removed, 0, b"removed"));
    fs::create_dir(machine.path("folder")).unwrap();
    fs::rename(machine.path("a"), machine.path("folder/a")).unwrap();
    fs::remove_file(machine.path("b")).unwrap();
    checkpoint_at(&machine.log()).unwrap();
    assert_eq!(machine.superblock().tail_batch, 3);
    machine.cut_power();
    assert_eq!(fs::read(machine.path("folder/a")).unwrap(), b"renamed");
    keeper.kill();
}

/// The log's device fails: nothing is lost, and nothing old is written later.
#[test]
fn a_log_that_fails_leaves_everything_to_the_kernel() {
    let Some(machine) = Machine::with_device() else { return };
    let mut keeper = Keeper::start(&machine.log()).unwrap();
    let (attached, program) = attach(&machine);
    let (old, new) = (program.open(&machine.path("old")), program.open(&machine.path("new")));
    assert!(program.commit(&old, 0, b"committed") && program.commit(&new, 0, b"committed"));
    machine.fail_log(true);
    new.file.write_all_at(b"newer....", 0).unwrap();
    assert!(new.entry.ranges.note(Range::new(0, 9).unwrap()));
    assert_eq!(program.log.commit(new.entry, new.file.as_raw_fd()), Err(Counter::KernelStopped));
    // The mark cannot be written, so the program gives the claim up; the keeper does it for the other file.
    let synced = program.log.kernel_sync(new.entry, || new.file.sync_all().is_ok());
    assert!(matches!(synced, Ok(true) | Err(_)), "{synced:?}");
    keeper.process.wait().unwrap();
    assert_eq!([claim(&machine.path("old")), claim(&machine.path("new"))], [None, None]);
    drop((attached, old, new));
    machine.cut_power();
    assert_eq!(fs::read(machine.path("old")).unwrap(), b"committed");
    assert_eq!(fs::read(machine.path("new")).unwrap(), b"newer....");
    machine.fail_log(false);
    machine.recover(true, &mut |_| true).unwrap();
    assert_eq!(fs::read(machine.path("new")).unwrap(), b"newer....");
}

/// A file that cannot be made durable keeps its records, and the program's next sync tells it.
#[test]
fn a_disk_that_fails_kills_no_record() {
    let Some(machine) = Machine::new() else { return };
    let keeper = Keeper::start(&machine.log()).unwrap();
    let (_attached, program) = attach(&machine);
    let file = program.open(&machine.path("file"));
    assert!(program.commit(&file, 0, &[7; 10_000]));
    machine.fail_disk();
    for _ in 0..3 {
        let message = checkpoint_at(&machine.log()).unwrap_err().to_string();
        assert!(message.contains("1 files could not be made durable"), "{message}");
    }
    assert_eq!(status_at(&machine.log()).unwrap().keeper.unwrap().files_failed, 1);
    assert!(file.entry.wants_kernel());
    assert!(!program.log.kernel_sync(file.entry, || file.file.sync_all().is_ok()).unwrap());
    keeper.kill();
    machine.cut_power();
    machine.recover(true, &mut |_| true).unwrap();
    assert_eq!(fs::read(machine.path("file")).unwrap(), [7; 10_000]);
}

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Commits to parts of shared files until told to end.
fn commit_at_random(program: &Program, files: &[Logged], writer: u64, seed: u64, is_ended: &AtomicBool) {
    const PART: u64 = 1 << 20;
    let mut random = Random(seed);
    while !is_ended.load(SeqCst) {
        let file = &files[random.next(files.len() as u64) as usize];
        let length = [100, 1000, 3000, 20_000][random.next(4) as usize];
        let offset = writer * PART + random.next(PART - length);
        program.commit(file, offset, &vec![random.next(255) as u8 + 1; length as usize]);
        if random.next(20) == 0 {
            // One more checkpoint, though there is room.
            let word = &program.log.shared().header().room_wanted;
            word.fetch_add(1, SeqCst);
            sys::wake(word);
        }
    }
}

/// The keeper is killed wherever it is, programs go on for a moment, and then the power is cut.
#[test]
fn wherever_the_keeper_is_when_the_power_is_cut_all_commits_are_there() {
    let rounds = std::env::var("BYWASH_STRESS_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    let first = std::env::var("BYWASH_SEED").map_or(1u64, |seed| seed.parse().unwrap());
    for seed in first..first + rounds {
        println!("BYWASH_SEED={seed} BYWASH_STRESS_ROUNDS=1");
        let Some(machine) = Machine::new() else { return };
        let keeper = Keeper::start(&machine.log()).unwrap();
        let (_attached, program) = attach(&machine);
        let files = ["a", "b", "c"].map(|name| program.open(&machine.path(name)));
        let mut random = Random((seed * 2 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let is_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let seed = random.next(u64::MAX) | 1;
                let (program, files, is_ended) = (&program, &files, &is_ended);
                scope.spawn(move || commit_at_random(program, files, writer, seed, is_ended));
            }
            std::thread::sleep(Duration::from_micros(100_000 + random.next(300_000)));
            // With whatever lock it has.
            keeper.kill();
            std::thread::sleep(Duration::from_micros(random.next(2000)));
            is_ended.store(true, SeqCst);
        });
        let expected = ["a", "b", "c"].map(|name| fs::read(machine.path(name)).unwrap());
        let shared = program.log.shared();
        let counted =
            [Counter::Commits, Counter::KernelFull, Counter::Checkpoints].map(|c| shared.counted(c));
        println!("commits, left to the kernel, checkpoints: {counted:?}");
        machine.cut_power();
        machine.recover(true, &mut |_| true).unwrap();
        for (name, content) in ["a", "b", "c"].iter().zip(&expected) {
            assert!(fs::read(machine.path(name)).unwrap() == *content, "{name} differs");
        }
    }
}
