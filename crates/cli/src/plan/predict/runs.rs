//! Runs of the program: by the kernel alone, with the recorder, and under `bywash run`; each from exec to exit.

use crate::cli::plan::PredictArgs;
use crate::error::Failure;
use crate::plan::measure::failed;
use crate::plan::record;
use crate::plan::repeat::Side;
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
    UnderRun(&'a Launch),
}

/// Start of a program under `bywash run`.
#[derive(Debug)]
pub struct Launch {
    /// Library that `bywash run` preloads.
    library: PathBuf,
    /// Launcher with its arguments, up to the program.
    words: Vec<OsString>,
    has_log: bool,
}

impl Launch {
    /// Prepares the start with a library, and with the commit log of these arguments.
    ///
    /// # Errors
    /// [`Failure::OwnPath`] if the launcher cannot be found.
    pub fn new(library: PathBuf, arguments: &PredictArgs) -> Result<Launch, Failure> {
        let mut words = vec![own_launcher()?.into_os_string(), "run".into()];
        if let Some(log) = &arguments.log {
            words.extend(["--log".into(), log.clone().into_os_string()]);
            words.extend(arguments.volatile.then(|| "--volatile".into()));
        }
        words.push("--".into());
        Ok(Launch { library, words, has_log: arguments.log.is_some() })
    }

    /// Returns true if the program's commits go to a log.
    pub fn has_log(&self) -> bool {
        self.has_log
    }

    /// Starts a program that does nothing, so that a log that cannot be used is found out before all else.
    ///
    /// # Errors
    /// [`Failure::Program`] with what the launcher says.
    pub fn try_once(&self) -> Result<(), Failure> {
        finish(self.command(OsStr::new("true")), OsStr::new("bywash run")).map(drop)
    }

    /// Returns the surroundings in which calls are made again.
    pub fn side(&self) -> Side<'_> {
        // Without a log the launcher only preloads the library, and its start would be repeated for each script.
        if self.has_log { Side::Launched(&self.words) } else { Side::Preloaded(&self.library, None) }
    }

    /// Creates a command that starts `program`.
    fn command(&self, program: &OsStr) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(program);
        command
    }
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
            Turn::UnderRun(launch) => launch.command(program),
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
pub fn starts(launch: &Launch) -> io::Result<Starts> {
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
        let loaded = time(Command::new("true").env("LD_PRELOAD", &launch.library))?;
        let run = time(launch.command(OsStr::new("true")).env_remove("LD_PRELOAD"))?;
        with.push(loaded - plain);
        launched.push(run - loaded);
    }
    let summary = |seconds: &[f64]| super::super::measure::rounds::summary(seconds);
    Ok(Starts { library: summary(&with)?, launcher: summary(&launched)? })
}
