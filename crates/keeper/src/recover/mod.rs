//! Recovery: what is in the log and not in the files goes into the files, and then the log is empty.
//!
//! # When files are written
//!
//! After a crash of the machine the page cache is gone, so the live records of each file are written into it in the order
//! in which they were committed, and the file is made durable. While the boot lasts in which a file joined the log, the page
//! cache is newer than the log: then files are only made durable, and never written.
//!
//! # Steps
//!
//! 1. The whole log is read and checked. Damage ends recovery.
//! 2. All files with live records are opened and checked ([`find`]). A file that is not there, or is not the one that was
//!    committed to, ends recovery.
//! 3. The superblock says in which boot files are written, durably, before the first write: they are newer than the boot
//!    from then on, and a recovery that was interrupted would otherwise refuse them.
//! 4. Records are written, file sizes extended, files made durable, and a mark for each file says that its records are dead.
//! 5. The log is emptied, and then the files' claims are removed.
//!
//! Recovery can be interrupted at any point and run again: writing a record twice is writing it once, since nothing else
//! writes the files meanwhile, and a file whose mark is written is left alone.

pub(crate) mod find;
mod replay;

use crate::contents::Contents;
use crate::error::Error;
use crate::log_file::{LogFile, Reader};
use crate::report::{Action, Recovered, RecoveredFile};
use bywash_log::join;
use bywash_log::layout::{FileNumber, Superblock};
use bywash_log::mutants::{self, Mutant};
use find::{Found, Rules};
use replay::Replay;
use rustix::process::{Resource, Rlimit};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Step that recovery is about to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write to the superblock that files are being written.
    Begin,
    /// Write a record into a file.
    Write,
    /// Make a file durable.
    Sync,
    /// Write a file's mark.
    Mark,
    /// Write the superblocks of the empty log.
    Empty,
    /// Remove a file's claim.
    Release,
}

/// Form of a recovery.
pub struct Recovery<'a> {
    /// Check everything and write nothing.
    pub is_dry_run: bool,
    /// The page cache is lost, although the boot is the same.
    pub has_crashed: bool,
    /// Files whose records are given up.
    pub given_up: &'a [PathBuf],
    /// Called before each step; false ends recovery with [`Error::Interrupted`].
    pub before: &'a mut dyn FnMut(Step) -> bool,
}

/// File with live records, and what is to be done with it.
struct Task {
    number: FileNumber,
    path: PathBuf,
    live: crate::contents::Live,
    found: Found,
}

/// Recovers a log that this process has locked, with the rights that this process has.
///
/// # Errors
/// Those of [`Contents::read`]; [`Error::File`] for a file that cannot be recovered; [`Error::Interrupted`]; [`Error::Io`].
pub fn recover(
    log_file: &LogFile,
    superblock: &mut Superblock,
    recovery: &mut Recovery<'_>,
) -> Result<Recovered, Error> {
    let mut reader = Reader::keeping(log_file);
    let contents = Contents::read_by(&mut reader, log_file, superblock)?;
    if contents.is_untouched(superblock) && superblock.recovery_boot == [0; 16] {
        return Ok(Recovered::new(log_file.path(), recovery.is_dry_run));
    }
    raise_descriptor_limit(contents.live.len());
    let boot = join::boot_id().map_err(Error::number("read the boot id for", log_file.path()))?;
    let rules = Rules {
        log: superblock.id,
        boot,
        has_crashed: recovery.has_crashed || mutants::is_chosen(Mutant::ReplayAfterKill),
        may_be_newer: superblock.recovery_boot == boot,
    };
    let tasks = tasks(&contents, &rules, recovery.given_up)?;
    let mut recovered = Recovered::new(log_file.path(), recovery.is_dry_run);
    recovered.files = tasks.iter().map(report).collect();
    if recovery.is_dry_run {
        return Ok(recovered);
    }
    let mut steps = Steps { log_file, before: recovery.before };
    if tasks.iter().any(|task| matches!(task.found, Found::Written(_))) {
        steps.take(Step::Begin)?;
        log_file.update(superblock, |superblock| superblock.recovery_boot = boot)?;
        Replay::new(&tasks)?.run(&mut reader, log_file, superblock, (&contents, &mut steps))?;
    }
    drop(reader);
    for task in &tasks {
        make_durable(log_file, superblock, &contents, task, &mut steps)?;
    }
    steps.take(Step::Empty)?;
    log_file.empty(superblock, (contents.head.block, contents.head.number))?;
    release(&contents, superblock.id, &mut steps)?;
    Ok(recovered)
}

/// Finds all files with live records.
fn tasks(contents: &Contents, rules: &Rules, given_up: &[PathBuf]) -> Result<Vec<Task>, Error> {
    let mut tasks = Vec::new();
    for (number, live) in &contents.live {
        let identity = contents.files[number].identity();
        let path = Path::new(OsStr::from_bytes(identity.path)).to_owned();
        let found = if given_up.contains(&path) {
            Found::GivenUp
        } else {
            find::find(&identity, rules).map_err(|problem| Error::File { problem })?
        };
        tasks.push(Task { number: *number, path, live: *live, found });
    }
    Ok(tasks)
}

/// Makes one file durable and its records dead.
fn make_durable(
    log_file: &LogFile,
    superblock: &Superblock,
    contents: &Contents,
    task: &Task,
    steps: &mut Steps<'_, '_>,
) -> Result<(), Error> {
    let synced = match &task.found {
        Found::GivenUp | Found::Released => return Ok(()),
        Found::Written(file) | Found::Synced(file) => {
            steps.take(Step::Sync)?;
            file.sync_all()
        }
        Found::WithItsFileSystem(folder) => {
            steps.take(Step::Sync)?;
            rustix::fs::syncfs(folder).map_err(Into::into)
        }
    };
    synced.map_err(Error::io("sync", &task.path))?;
    steps.take(Step::Mark)?;
    let writes = contents.files[&task.number].mark.map_or(0, |mark| mark.writes) + 1;
    let mark = bywash_log::layout::Mark {
        file: task.number,
        epoch: superblock.epoch,
        writes,
        dead_up_to: task.live.newest,
        unlinked: false,
    };
    log_file.write_block(superblock.geometry.mark(task.number.slot, writes), &mark.encode())
}

/// Removes the claims of all files that had joined the log. A file that is not there any more has none to remove.
fn release(contents: &Contents, log: [u8; 16], steps: &mut Steps<'_, '_>) -> Result<(), Error> {
    for file in contents.files.values() {
        steps.take(Step::Release)?;
        find::release(&file.identity(), log);
    }
    Ok(())
}

fn report(task: &Task) -> RecoveredFile {
    RecoveredFile {
        path: task.path.to_string_lossy().into_owned(),
        records: task.live.records,
        bytes: task.live.bytes,
        action: match task.found {
            Found::Written(_) => Action::Written,
            Found::Synced(_) | Found::WithItsFileSystem(_) => Action::Synced,
            Found::Released => Action::Released,
            Found::GivenUp => Action::GivenUp,
        },
    }
}

/// Raises the limit on descriptors, since each file with live records is open until it is durable.
fn raise_descriptor_limit(files: usize) {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let wanted = files as u64 + 64;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = limit.maximum.map_or(wanted, |most| most.min(wanted));
        // If the limit cannot be raised, opening a file fails and says so.
        let _ = rustix::process::setrlimit(
            Resource::Nofile,
            Rlimit { current: Some(current), maximum: limit.maximum },
        );
    }
}

/// Steps of a recovery, before each of which it can be ended.
struct Steps<'a, 'b> {
    log_file: &'a LogFile,
    before: &'a mut (dyn FnMut(Step) -> bool + 'b),
}

impl Steps<'_, '_> {
    fn take(&mut self, step: Step) -> Result<(), Error> {
        match (self.before)(step) {
            true => Ok(()),
            false => Err(Error::Interrupted(self.log_file.path().to_owned())),
        }
    }
}
