//! The program's calls on files, made again with the library of `bywash run` and without, in turns.
//!
//! Each process of the recording has a script of its calls in their order, on the same offsets of the same
//! files; where a file was written, or is gone, on a stand-in of the size that it had. So the library decides
//! as it would decide in the program, pays for its decisions, and finds the page cache as the program did. Only
//! the program's computing between its calls is missing, and the calls of all threads of a process are made by
//! one.

use super::fastest::Requested;
use super::runs::Launch;
use crate::error::Failure;
use crate::plan::measure::failed;
use crate::plan::record::steps::Steps;
use crate::plan::repeat::{Class, FinishedScript, LENGTH_MAX, Repetition, SLOTS_MAX, Script, Side};
use bywash_session::recording::{Function, RecordedCall};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Greatest number of calls of all scripts.
const CALLS_MAX: usize = 2_000_000;
/// Least number of calls of a process for a script of its own.
const CALLS_MIN: usize = 50;
/// Greatest number of scripts: the processes with the most calls.
const SCRIPTS_MAX: usize = 24;
/// Greatest size of all stand-ins of a script, in bytes.
const STAND_INS_MAX: u64 = 1 << 30;
/// Length of a read that found the end of the file, whose length is not recorded.
const END_LENGTH: u32 = 4096;

/// Kind of a call that is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Reads at an offset.
    ReadAt,
    /// Reads at the descriptor's position.
    Read,
    /// Writes at an offset.
    WriteAt,
    /// Writes at the descriptor's position.
    Write,
    /// `lseek`.
    Seek,
    /// `fsync`.
    Sync,
    /// `fdatasync`.
    SyncData,
    /// Openings.
    Open,
    /// Closings.
    Close,
    /// Ends of processes, which close what is open.
    End,
}

impl Kind {
    /// All kinds, in the order of the report.
    pub const ALL: [Kind; 10] = [
        Kind::ReadAt,
        Kind::Read,
        Kind::WriteAt,
        Kind::Write,
        Kind::Seek,
        Kind::Sync,
        Kind::SyncData,
        Kind::Open,
        Kind::Close,
        Kind::End,
    ];

    /// Returns true if calls of the kind are not made on a file that is open.
    pub fn is_without_file(self) -> bool {
        matches!(self, Kind::Open | Kind::End)
    }

    /// Returns true if calls of the kind wait until changes are durable.
    pub fn is_sync(self) -> bool {
        matches!(self, Kind::Sync | Kind::SyncData)
    }

    /// Returns the kind of a recorded call; `None` if it is of another kind.
    pub fn from_function(function: Function) -> Option<Kind> {
        Some(match function {
            Function::ReadAt => Kind::ReadAt,
            Function::Read => Kind::Read,
            Function::WriteAt => Kind::WriteAt,
            Function::Write => Kind::Write,
            Function::Seek => Kind::Seek,
            Function::Sync => Kind::Sync,
            Function::SyncData => Kind::SyncData,
            Function::Open => Kind::Open,
            Function::Close => Kind::Close,
            Function::Exit => Kind::End,
            _ => return None,
        })
    }

    /// Name of the kind in a report.
    pub fn name(self) -> &'static str {
        match self {
            Kind::ReadAt => "reads at an offset",
            Kind::Read => "reads at the position",
            Kind::WriteAt => "writes at an offset",
            Kind::Write => "writes at the position",
            Kind::Seek => "seeks",
            Kind::Sync => "syncs",
            Kind::SyncData => "syncs of data",
            Kind::Open => "openings",
            Kind::Close => "closings",
            Kind::End => "ends of processes",
        }
    }

    fn class(self, times: &Repetition) -> Class {
        match self {
            Kind::ReadAt => times.read_at,
            Kind::Read => times.read,
            Kind::WriteAt => times.write_at,
            Kind::Write => times.write,
            Kind::Seek => times.seek,
            Kind::Sync => times.sync,
            Kind::SyncData => times.sync_data,
            Kind::Open => times.open,
            Kind::Close => times.close,
            Kind::End => times.end,
        }
    }
}

/// Times of one kind of call of a process, made again in several rounds, of which the fastest count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// Time of a call without the library in each round that counts, in seconds.
    pub without: Vec<f64>,
    /// Time of a call with the library in each round that counts, in seconds.
    pub with: Vec<f64>,
}

/// Calls that were made again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repeated {
    /// Times by number of the process in the recording, and kind.
    pub times: HashMap<(u32, Kind), Times>,
    /// Calls of these kinds in the recording that were not made again.
    pub left_out: usize,
}

/// Makes the calls of a recording again, in as many rounds as were requested or until they agree.
///
/// # Errors
/// [`Failure::Busy`] if the fastest rounds do not agree, and [`Failure::Measure`] if a script cannot be written or
/// run.
pub fn repeat(steps: &Steps, launch: &Launch, requested: Requested) -> Result<Repeated, Failure> {
    let (scripts, left_out) = scripts(steps, launch.has_log()).map_err(failed("the program's calls"))?;
    let (mut without, mut with) = (Rounds::default(), Rounds::default());
    while requested.goes_on(without.seconds.len(), &[&without.seconds, &with.seconds]) {
        // The side that comes first changes, so that neither has the warmer caches.
        let library_first = without.seconds.len() % 2 == 1;
        for with_library in [library_first, !library_first] {
            let (rounds, side) =
                if with_library { (&mut with, launch.side()) } else { (&mut without, Side::Kernel) };
            rounds.add(&scripts, &side).map_err(failed("the program's calls"))?;
        }
    }
    requested.refuse_disagreement("its calls without the library", &without.seconds)?;
    requested.refuse_disagreement("its calls with the library", &with.seconds)?;
    let mut repeated = Repeated { left_out, ..Repeated::default() };
    for (key, each) in without.counted(requested) {
        repeated.times.entry(key).or_default().without.push(each);
    }
    for (key, each) in with.counted(requested) {
        repeated.times.entry(key).or_default().with.push(each);
    }
    Ok(repeated)
}

/// Rounds in which all scripts were run on one side, with the library or without.
#[derive(Default)]
struct Rounds {
    /// Time of all calls of each round, in seconds.
    seconds: Vec<f64>,
    /// Time of a call by process and kind in each round, in seconds.
    calls: Vec<Vec<((u32, Kind), f64)>>,
}

impl Rounds {
    /// Runs all scripts once.
    fn add(&mut self, scripts: &[(u32, FinishedScript)], side: &Side<'_>) -> io::Result<()> {
        let (mut all, mut calls) = (0.0, Vec::new());
        for (process, script) in scripts {
            let times = script.repeat(side)?;
            for kind in Kind::ALL {
                let class = kind.class(&times);
                if class.count > 0 {
                    all += class.seconds;
                    calls.push(((*process, kind), class.seconds / class.count as f64));
                }
            }
        }
        self.seconds.push(all);
        self.calls.push(calls);
        Ok(())
    }

    /// Returns the times of calls in the rounds that count.
    fn counted(&self, requested: Requested) -> impl Iterator<Item = ((u32, Kind), f64)> {
        requested.fastest(&self.seconds).into_iter().flat_map(|round| self.calls[round].iter().copied())
    }
}

/// Returns a script for each process that made enough calls, and the number of calls that are in none.
fn scripts(steps: &Steps, has_log: bool) -> io::Result<(Vec<(u32, FinishedScript)>, usize)> {
    let mut processes: BTreeMap<u32, Vec<&RecordedCall>> = BTreeMap::new();
    let mut all = 0;
    for call in steps.calls.iter().filter(|call| !call.failed && Kind::from_function(call.function).is_some())
    {
        let is_counted = match call.function {
            Function::Open | Function::Exit => false,
            Function::Sync | Function::SyncData => has_log,
            _ => true,
        };
        all += usize::from(is_counted);
        if steps.is_on_file(call) {
            processes.entry(call.owner.process).or_default().push(call);
        }
    }
    let mut order: Vec<(u32, Vec<&RecordedCall>)> =
        processes.into_iter().filter(|(_, calls)| calls.len() >= CALLS_MIN).collect();
    order.sort_by_key(|(_, calls)| std::cmp::Reverse(calls.len()));
    order.truncate(SCRIPTS_MAX);
    let written = written(steps);
    let mut left = CALLS_MAX;
    let mut scripts = Vec::new();
    let mut made = 0;
    for (process, calls) in &order {
        let calls = &calls[..calls.len().min(left)];
        left -= calls.len();
        let (script, count) = script(steps, calls, &written, has_log)?;
        made += count;
        scripts.push((*process, script));
    }
    Ok((scripts, all.saturating_sub(made)))
}

/// Returns device and inode of the files that any process wrote.
fn written(steps: &Steps) -> HashSet<(u64, u64)> {
    let writes =
        steps.calls.iter().filter(|call| matches!(call.function, Function::Write | Function::WriteAt));
    writes
        .filter_map(|call| steps.files.get(call.file as usize))
        .map(|file| (file.device, file.inode))
        .collect()
}

/// Writes the script of a process; returns it with the number of its calls. Syncs are made again only for a
/// commit log: `bywash run` leaves them alone otherwise, and a disk's times differ from one to the next.
fn script(
    steps: &Steps,
    calls: &[&RecordedCall],
    written: &HashSet<(u64, u64)>,
    has_log: bool,
) -> io::Result<(FinishedScript, usize)> {
    let mut script = Script::new()?;
    let mut openings: HashMap<u32, Option<u32>> = HashMap::new();
    let mut stand_ins: HashMap<(u64, u64), u32> = HashMap::new();
    let (mut room, mut count) = (STAND_INS_MAX, 0);
    for call in calls {
        let file = &steps.files[call.file as usize];
        let next = openings.len() as u32;
        let slot = match openings.get(&call.file) {
            Some(slot) => *slot,
            None if next >= SLOTS_MAX => None,
            None => {
                let identity = (file.device, file.inode);
                let path = Path::new(&file.name);
                let is_there = path.metadata().is_ok_and(|there| (there.dev(), there.ino()) == identity);
                let slot = if is_there && !written.contains(&identity) {
                    script.open(next, path, false)?;
                    Some(next)
                } else if let Some(number) = stand_ins.get(&identity) {
                    script.open_stand_in(next, *number)?;
                    Some(next)
                } else if file.size <= room {
                    room -= file.size;
                    let number = stand_ins.len() as u32;
                    script.stand_in(number, file.size, &folder(path), has_log)?;
                    stand_ins.insert(identity, number);
                    script.open_stand_in(next, number)?;
                    Some(next)
                } else {
                    None
                };
                *openings.entry(call.file).or_insert(slot)
            }
        };
        let Some(slot) = slot else { continue };
        let (offset, length) = (call.offset.unwrap_or(0), call.length.min(LENGTH_MAX));
        let read = if length == 0 { END_LENGTH } else { length };
        count += 1;
        match call.function {
            Function::ReadAt if call.offset.is_some() => script.read_at(slot, offset, read)?,
            Function::ReadAt | Function::Read => script.call("read", slot, read, 0)?,
            Function::WriteAt if call.offset.is_some() => script.call("write-at", slot, length, offset)?,
            Function::WriteAt | Function::Write => script.call("write", slot, length, 0)?,
            Function::Seek => script.call("seek", slot, 0, offset)?,
            Function::Sync if has_log => script.call("sync", slot, 0, 0)?,
            Function::SyncData if has_log => script.call("sync-data", slot, 0, 0)?,
            Function::Close => script.call("close", slot, 0, 0)?,
            _ => count -= 1,
        }
    }
    Ok((script.finish()?, count))
}

/// Returns the folder in which the stand-in of a file is made: its own, so that it lies on the same file system.
fn folder(path: &Path) -> PathBuf {
    let own = path.parent().filter(|folder| tempfile::tempfile_in(folder).is_ok());
    own.map_or_else(std::env::temp_dir, Path::to_owned)
}
