//! The time in which a full log is recovered, against that of writing the same pages into the same file and syncing it.
//!
//! A program fills the log while its keeper is stopped, so that nothing is made durable meanwhile. Then the keeper is
//! killed, and the file gets back its old contents, as after a power failure that has lost all that the file system had not
//! written. Recovery has to bring back every page that was committed.

use super::Ground;
use super::cases::two_files;
use super::commit_log::{CommitLog, Device, Logs};
use crate::child::{self, Process};
use crate::engine::{Metric, Side};
use crate::error::{Attempt, Error};
use crate::interrupt;
use crate::place::Kind;
use crate::programs::line::{Run, Turn};
use crate::programs::output::{self, unreadable};
use crate::programs::stage::{Data, Stage};
use crate::row::Row;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Sizes of the log and of the file, of a full run and of a quick one, in bytes.
const BYTES: [u64; 2] = [36 << 20, 12 << 20];
/// Size of a page, as InnoDB has them.
const PAGE: u64 = 16 << 10;
/// Pages of a commit, each somewhere in the file: as many ranges as the library tells apart.
const PAGES: u64 = 32;
/// Size of such a commit in the log, in bytes: a header, and a record of each page, in whole blocks.
const COMMIT_BYTES: u64 = (64 + PAGES * (40 + PAGE)).next_multiple_of(4096);
/// Most commits: the next ones would be tried by the kernel, behind whose sync the log has nothing of the file.
const COMMITS_MAX: u64 = 60;
/// Part of a log that holds no commits before it counts as full, in bytes: its table, and room for two of the largest batches.
const RESERVE_BYTES: u64 = 4 << 20;
/// Age from which on the second sync of a file is absorbed.
const AGE: Duration = Duration::from_millis(1100);
/// Recovery may take half as long again.
const GOAL: f64 = 1.0 / 1.5;
/// Greatest time until a program has begun.
const LIMIT: Duration = Duration::from_secs(10);

/// Measures the recovery of a log on `device`, with the data on the file system of `kind`.
pub fn measure(ground: &Ground, kind: Kind, device: Device, head: &Row) -> Result<Vec<Row>, Error> {
    let stage = &ground.stage("recovery", kind)?;
    let data = &two_files("master", stage.pick(BYTES[0], BYTES[1]));
    data.prepare(stage)?;
    let bytes = stage.pick(BYTES[0], BYTES[1]);
    let logs = &Logs::prepare(&stage.folder, ground.other_disk(), &[device], "", bytes)?;
    let ours = Side::new("bywash", move || recover(logs, stage, device, data));
    let peer = Side::new("writing and syncing the same pages", move || write(stage, data));
    let runs = ground.rounds.run(vec![ours, peer])?;
    let commits = commits(stage.pick(BYTES[0], BYTES[1]));
    let head = Row { note: format!("{commits} commits of {PAGES} pages"), ..head.clone() };
    let time = Metric::cost("time of a page", "ns", |seconds: &f64| seconds * 1e9 / (commits * PAGES) as f64);
    Ok(vec![time.row(&head, &runs[0], &runs[1], Some(GOAL))])
}

/// Number of commits that fill a log of so many bytes.
fn commits(bytes: u64) -> u64 {
    ((bytes - RESERVE_BYTES) / COMMIT_BYTES).min(COMMITS_MAX)
}

/// The line that writes the pages of all commits, in a file as large as the log.
fn line(mode: &str, bytes: u64) -> String {
    format!("commit {{work}}/pages {mode} {PAGE} {} {bytes} 1 {PAGES}", commits(bytes))
}

/// Writes the pages, syncs the file, and returns the seconds of that.
fn write(stage: &Stage, data: &Data) -> Result<f64, Error> {
    let file = reset(stage, data)?;
    let line = line("once", fs::metadata(&file).doing("look at", &file)?.len());
    let told = Turn { stage, run: &Run::of_kernel(), operations: 0, work: &stage.work() }.told(&line)?;
    let read = output::driver_commits(&told).ok_or_else(|| unreadable("commit", &told.output))?;
    Ok(read.done.seconds)
}

/// Fills the log, recovers it, and returns the seconds of that.
fn recover(logs: &Logs, stage: &Stage, device: Device, data: &Data) -> Result<f64, Error> {
    let file = reset(stage, data)?;
    let before = fs::read(&file).doing("read", &file)?;
    let log = logs.create(device)?;
    std::thread::sleep(AGE);
    fill(&log, stage, before.len() as u64)?;
    let after = fs::read(&file).doing("read", &file)?;
    restore(&file, &before)?;
    let recovered = log.tool("recover", &["--crashed", "--json"])?;
    match fs::read(&file).doing("read", &file)? == after {
        true => Ok(recovered.wall.as_secs_f64()),
        false => Err(Error::failed("bywash log recover", "left a file without some of its commits".into())),
    }
}

/// Brings the data back, out of the page cache.
fn reset(stage: &Stage, data: &Data) -> Result<PathBuf, Error> {
    data.reset(stage)?;
    let file = stage.work().join("pages");
    drop_cache(&file)?;
    Ok(file)
}

/// Fills the log with commits, and ends its keeper.
fn fill(log: &CommitLog, stage: &Stage, bytes: u64) -> Result<(), Error> {
    let run = Run::logged(stage.library, log.launcher()?);
    let turn = Turn { stage, run: &run, operations: 0, work: &stage.work() };
    let mut command = turn.command(&line("in-place", bytes))?;
    let mut program = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::null()))?;
    wait_for_program(&program)?;
    let gone = || Error::failed("the keeper of the log", "has ended before the log was full".into());
    let keeper = log.status()?.keeper.ok_or_else(gone)?.pid;
    let id = Pid::from_raw(keeper as i32).ok_or_else(gone)?;
    kill_process(id, Signal::STOP).doing("stop", Path::new("the keeper of a log"))?;
    // It waits for this line.
    let begun = program.child.stdin.take().map(|mut input| input.write_all(b"\n"));
    let outcome = begun.transpose().doing("write to", Path::new("a program")).and_then(|_| program.finish());
    child::end_other(keeper, Signal::KILL)?;
    outcome.map(drop)
}

/// Waits until what has started the program has become it, and so uses the log.
fn wait_for_program(program: &Process) -> Result<(), Error> {
    let (name, deadline) = (PathBuf::from(format!("/proc/{}/comm", program.id())), Instant::now() + LIMIT);
    while !fs::read_to_string(&name).doing("read", &name)?.starts_with("commit") {
        interrupt::check()?;
        if Instant::now() > deadline {
            return Err(Error::failed(
                "bywash run",
                format!("started no program within {} s", LIMIT.as_secs()),
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Gives a file its contents of before, on the device and out of the page cache.
fn restore(file: &Path, before: &[u8]) -> Result<(), Error> {
    File::options()
        .write(true)
        .open(file)
        .and_then(|mut file| file.write_all(before))
        .doing("write", file)?;
    drop_cache(file)
}

/// Brings a file to the device, and drops it from the page cache.
fn drop_cache(file: &Path) -> Result<(), Error> {
    let open = File::open(file).doing("open", file)?;
    open.sync_all().doing("sync", file)?;
    rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed).doing("drop from the cache", file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_filled_by_commits_that_are_absorbed() {
        assert_eq!(COMMIT_BYTES, 129 * 4096);
        assert_eq!(BYTES.map(commits), [60, 15]);
        assert!(BYTES.iter().all(|bytes| commits(*bytes) * COMMIT_BYTES + RESERVE_BYTES <= *bytes));
    }
}
