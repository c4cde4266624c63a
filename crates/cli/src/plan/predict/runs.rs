//! Runs of the program: by the kernel alone, with the recorder, and under `bywash run`; each from exec to exit.

use crate::error::Failure;
use crate::plan::measure::failed;
use crate::plan::record;
use bywash_bench::statistics::Summary;
use bywash_session::recording::{Recording, VARIABLE};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// A program, and what is to be done before each of its runs.
pub struct Program<'a> {
    words: &'a [OsString],
    before: Option<&'a OsStr>,
}

/// Kind of a run.
pub enum Turn<'a> {
    /// By the kernel alone.
    Plain,
    /// With the recorder, which writes to a recording.
    Recorded(&'a Path, &'a Recording),
    /// Under `bywash run`.
    UnderRun,
}

impl<'a> Program<'a> {
    /// Creates a program from its words, of which there is at least one.
    pub fn new(words: &'a [OsString], before: Option<&'a OsStr>) -> Program<'a> {
        Program { words, before }
    }

    /// Runs the program once; returns its time in seconds. Its output goes to a file without a name.
    ///
    /// # Errors
    /// [`Failure::Program`] if the program or the command before it fails, and those of starting it.
    pub fn run(&self, turn: &Turn<'_>) -> Result<f64, Failure> {
        if let Some(before) = self.before {
            let mut command = Command::new("sh");
            command.arg("-c").arg(before).env_remove("LD_PRELOAD");
            finish(command, before)?;
        }
        let program = &self.words[0];
        let mut command = match turn {
            Turn::UnderRun => {
                let mut command = Command::new(own_launcher()?);
                command.args(["run", "--"]).arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.args(&self.words[1..]).env_remove("LD_PRELOAD");
        if let Turn::Recorded(library, recording) = turn {
            command.env("LD_PRELOAD", library).env(VARIABLE, record::path(recording));
        }
        finish(command, program)
    }
}

/// Returns the path of `bywash`, which lies beside this command or in `bin`; the program starts as users start it.
fn own_launcher() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(Failure::OwnPath)?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [folder.join("bywash"), folder.join("../../bin/bywash")];
    Ok(places.into_iter().find(|place| place.is_file()).unwrap_or(own))
}

/// Runs a command to its end; returns its time in seconds.
fn finish(mut command: Command, name: &OsStr) -> Result<f64, Failure> {
    let file = || tempfile::tempfile().map_err(failed("a program without a file for its output"));
    let clone = |file: &File| file.try_clone().map_err(failed("a program without a file for its output"));
    let (output, mut said) = (file()?, file()?);
    command.stdin(Stdio::null()).stdout(output).stderr(clone(&said)?);
    let begin = Instant::now();
    let status = command.status().map_err(|source| Failure::start(Path::new(name), source))?;
    let seconds = begin.elapsed().as_secs_f64();
    if status.success() {
        return Ok(seconds);
    }
    let mut text = String::new();
    // What cannot be read is not shown.
    let _ = said.rewind().and_then(|()| said.read_to_string(&mut text));
    let last = text.lines().last().map_or(String::new(), |line| format!(": {line}"));
    Err(Failure::Program { program: name.display().to_string(), status: in_words(status), said: last })
}

fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "no status".into(),
    }
}

/// Additional cost of starting a program under `bywash run`, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Starts {
    /// For each program that loads the library.
    pub library: Summary,
    /// Once, for the launcher.
    pub launcher: Summary,
}

/// Turns that measure the start of a program.
const TURNS: usize = 60;

/// Measures the start of a small program, with the library and without, and under `bywash run`, in turns.
///
/// # Errors
/// Those of starting it.
pub fn starts(library: &Path) -> io::Result<Starts> {
    let launcher = own_launcher().map_err(|failure| io::Error::other(failure.to_string()))?;
    let time = |command: &mut Command| -> io::Result<f64> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let begin = Instant::now();
        let status = command.status()?;
        let seconds = begin.elapsed().as_secs_f64();
        if status.success() { Ok(seconds) } else { Err(io::Error::other(in_words(status))) }
    };
    let (mut with, mut launched) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let plain = time(Command::new("true").env_remove("LD_PRELOAD"))?;
        let loaded = time(Command::new("true").env("LD_PRELOAD", library))?;
        let run = time(Command::new(&launcher).args(["run", "--", "true"]).env_remove("LD_PRELOAD"))?;
        with.push(loaded - plain);
        launched.push(run - loaded);
    }
    let summary = |seconds: &[f64]| super::super::measure::rounds::summary(seconds);
    Ok(Starts { library: summary(&with)?, launcher: summary(&launched)? })
}
