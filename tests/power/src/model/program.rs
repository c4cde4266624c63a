//! The model program: several processes that write, sync, append, truncate, punch, rename, link and unlink at random.
//!
//! All calls on the disk go through the C library, so that a preloaded library sees them.

use super::history::{Event, Kind, SAME_SIZE, Target, Writer};
use super::{HISTORY, LIMIT_BYTES, UNSEEN_BYTES, WORD, version_bytes, version_length, version_word};
use crate::random::Random;
use crate::recording::Position;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// Folders and settings of the model program.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// Folder on the disk.
    pub data: PathBuf,
    /// Folder that no power cut harms.
    pub memory: PathBuf,
    /// Index of the recorder.
    pub index: PathBuf,
    /// Seed of everything that is left to chance.
    pub seed: u64,
    /// Operations of each process.
    pub operations: u64,
    /// Leaves each sync out and acknowledges all the same: a program that the checker has to convict.
    pub is_careless: bool,
}

/// Runs the processes of the model and waits for them. Some are killed in the middle of their work and started anew.
///
/// # Errors
/// An error of the system, or of a process that failed.
pub fn run(arguments: &Arguments) -> io::Result<()> {
    let mut random = Random::new(arguments.seed);
    let mut children: Vec<Child> =
        (0..PROCESSES).map(|number| start(arguments, number)).collect::<io::Result<_>>()?;
    for killed in 0..KILLS {
        std::thread::sleep(Duration::from_millis(10 + random.below(20)));
        let child = &mut children[random.below(PROCESSES - 1) as usize];
        child.kill()?;
        match child.wait()? {
            status if status.signal() == Some(Signal::KILL.as_raw()) => {
                *child = start(arguments, PROCESSES + killed)?;
            }
            status => ended(status)?,
        }
    }
    children.iter_mut().try_for_each(|child| ended(child.wait()?))
}

fn ended(status: ExitStatus) -> io::Result<()> {
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("a process of the model failed: {status}"))),
    }
}

fn start(arguments: &Arguments, number: u64) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("model-process").arg(&arguments.data).arg(&arguments.memory).arg(&arguments.index);
    let numbers = [arguments.seed, arguments.operations, u64::from(arguments.is_careless), number];
    command.args(numbers.map(|number| number.to_string())).spawn()
}

/// Number of processes at a time; the last of them works with names, all others with words.
const PROCESSES: u64 = 4;
/// Number of processes that are killed.
const KILLS: u64 = 4;

/// Runs one process of the model.
///
/// # Errors
/// An error of a call.
pub fn process(arguments: &Arguments, number: u64) -> io::Result<()> {
    let history = Writer::open(&arguments.memory.join(HISTORY), &arguments.index)?;
    let mut process = Process {
        random: Random::new(arguments.seed ^ (number + 1) << 40),
        history,
        next: (number + 1) << 40,
        is_careless: arguments.is_careless,
        data: &arguments.data,
    };
    match number == PROCESSES - 1 {
        true => process.names(arguments, arguments.operations / OPERATIONS_OF_A_VERSION),
        false => process.words(arguments),
    }
}

/// Steps in which a version is written: a young file joins a log with its third sync.
const STEPS_OF_A_VERSION: usize = 4;
/// Versions take longer than operations on words.
const OPERATIONS_OF_A_VERSION: u64 = 12;

/// One process of the model.
pub(super) struct Process<'a> {
    pub(super) random: Random,
    history: Writer,
    /// Number of the next operation.
    next: u64,
    pub(super) is_careless: bool,
    pub(super) data: &'a Path,
}

impl Process<'_> {
    /// Does an operation between two events. It gets the number of the operation and returns its offset.
    pub(super) fn operation(
        &mut self,
        kind: Kind,
        target: Target,
        [offset, length, size]: [u64; 3],
        work: impl FnOnce(&mut Self, u64) -> io::Result<u64>,
    ) -> io::Result<()> {
        let operation = self.next;
        self.next += 1;
        let position = Position::default();
        let event = Event { operation, is_end: false, kind, target, offset, length, size, position };
        self.history.add(event)?;
        let offset = work(self, operation)?;
        self.history.add(Event { is_end: true, offset, ..event })
    }

    /// Makes a file durable, by one of several calls.
    pub(super) fn sync(&mut self, file: &File) -> io::Result<()> {
        match self.random.below(100) {
            _ if self.is_careless => Ok(()),
            0..45 => file.sync_all(),
            45..97 => file.sync_data(),
            _ => Ok(nix::unistd::syncfs(file)?),
        }
    }

    pub(super) fn sync_folder(&mut self) -> io::Result<()> {
        if self.is_careless { Ok(()) } else { File::open(self.data)?.sync_all() }
    }

    fn names(&mut self, arguments: &Arguments, versions: u64) -> io::Result<()> {
        for version in 1..=versions {
            for target in [Target::Replaced, Target::Reused, Target::Linked, Target::Unseen] {
                let fields = [version, version_length(version), SAME_SIZE];
                self.operation(Kind::Version, target, fields, |process, _| {
                    match target {
                        Target::Replaced => process.replace(version)?,
                        Target::Reused => process.reuse(version)?,
                        Target::Unseen => process.unseen(version, &arguments.memory)?,
                        _ => process.link(version)?,
                    }
                    Ok(version)
                })?;
            }
        }
        Ok(())
    }

    /// Writes a version in steps, each over a part of the one before, with a sync after each. The last ones are commits.
    fn write_version(&mut self, file: &File, version: u64) -> io::Result<()> {
        let bytes = version_bytes(version);
        let part = bytes.len() / STEPS_OF_A_VERSION / WORD as usize * WORD as usize;
        for step in 1..=STEPS_OF_A_VERSION {
            let end = if step == STEPS_OF_A_VERSION { bytes.len() } else { step * part };
            file.write_all_at(&bytes[(step - 1) * part..end], ((step - 1) * part) as u64)?;
            file.write_all_at(&vec![0; bytes.len() - end], end as u64)?;
            self.sync(file)?;
        }
        Ok(())
    }

    /// Renames a complete file over the one before.
    fn replace(&mut self, version: u64) -> io::Result<()> {
        let (path, new) = (self.data.join(Target::Replaced.name()), self.data.join("replaced.new"));
        self.write_version(&File::create(&new)?, version)?;
        fs::rename(&new, &path)?;
        self.sync_folder()
    }

    /// Unlinks the file and makes it anew.
    fn reuse(&mut self, version: u64) -> io::Result<()> {
        let path = self.data.join(Target::Reused.name());
        fs::remove_file(&path)?;
        let file = File::options().write(true).create_new(true).open(&path)?;
        self.write_version(&file, version)?;
        self.sync_folder()
    }

    /// Writes a version over the one before as often as makes a file join a log and then commit.
    fn overwrite(&mut self, path: &Path, version: u64) -> io::Result<()> {
        let file = File::options().read(true).write(true).open(path)?;
        for _ in 0..STEPS_OF_A_VERSION {
            file.write_all_at(&version_bytes(version), 0)?;
            self.sync(&file)?;
        }
        Ok(())
    }

    /// Writes in place, and again through a second name, then renames that to the first.
    fn link(&mut self, version: u64) -> io::Result<()> {
        let (path, other) = (self.data.join(Target::Linked.name()), self.data.join("linked.other"));
        self.overwrite(&path, version)?;
        fs::hard_link(&path, &other)?;
        self.overwrite(&other, version)?;
        // Both are names of one file, which rename(2) leaves as they are.
        fs::remove_file(&path)?;
        fs::rename(&other, &path)?;
        self.sync_folder()
    }
}

/// Makes the files that the processes begin with.
///
/// # Errors
/// An error of the file system.
pub fn prepare(data: &Path) -> io::Result<()> {
    for target in Target::WORDS {
        fs::write(data.join(target.name()), vec![0; LIMIT_BYTES as usize / 2])?;
    }
    fs::write(data.join(Target::Appended.name()), [])?;
    for target in [Target::Replaced, Target::Reused, Target::Linked] {
        fs::write(data.join(target.name()), version_bytes(0))?;
    }
    let words = vec![version_word(0).to_le_bytes(); (UNSEEN_BYTES / WORD) as usize];
    fs::write(data.join(Target::Unseen.name()), words.concat())?;
    Ok(())
}
