//! `bywash run`: starts a program with the preloaded library.
//!
//! Without `--stats` and `--report` this process becomes the program, and only environment variables remain
//! of bywash. With them it stays as the program's parent, passes signals on, and ends as the program ended.
//!
//! - [`library`]: finds the preloaded library
//! - [`environment`]: passes the flags to the library, in variables
//! - [`process`]: starting, signals, dying: the unsafe part
//! - [`supervisor`]: waiting for the program, job control

mod environment;
mod library;
mod process;
mod supervisor;

pub use library::{find as find_library, find_recorder};
pub use process::{ignored, survive_broken_pipes};

use crate::cli::RunArgs;
use crate::error::Failure;
use crate::log::RunCounts;
use crate::report::{self, ProgramEnd, Ran, Report};
use crate::standard::say;
use bywash_executable::{Finding, Target};
use bywash_session::{Session, settings};
use process::Image;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Carries out `bywash run` and returns the exit status. Does not return if the process becomes the program
/// or dies of the program's signal.
pub fn main(arguments: &RunArgs) -> Result<i32, Failure> {
    let library = library::find()?;
    let unserved = examine(&arguments.program[0]);
    let preloads = !unserved.as_ref().is_some_and(|finding| finding.reason.forbids_preloading());
    let mut variables = environment::variables(arguments, preloads.then_some(&library))?;
    // Held until this process becomes the program or ends, so that the log's keeper stays.
    let log = arguments.log.as_deref().map(|log| crate::log::attach(log, arguments.volatile)).transpose()?;
    if let Some(log) = &log {
        variables.push((settings::LOG.variable, Some(log.memory.clone().into())));
    }
    let program = Path::new(&arguments.program[0]);
    if !arguments.stats && arguments.report.is_none() {
        let image = Image::new(&arguments.program, &variables);
        return Err(Failure::start(program, image.exec()));
    }

    let reserved = process::reserve_standard_descriptors()
        .map_err(|source| Failure::Supervise { what: "open /dev/null", source })?;
    let file = arguments.report.as_deref().map(ReportFile::open).transpose()?;
    let counts = log.as_ref().map(|_| RunCounts::new()).transpose()?;
    if let Some(counts) = &counts {
        variables.push((settings::LOG_COUNTS.variable, Some(counts.path().into())));
    }
    let session =
        Session::create().map_err(|error| Failure::Session(std::io::Error::from_raw_os_error(error.0)))?;
    variables.push(("BYWASH_SESSION", Some(OsStr::from_bytes(session.path().as_bytes()).into())));

    let off = arguments.off || std::env::var_os("BYWASH_OFF").is_some_and(|value| value == "1");
    let started = Instant::now();
    let image = Image::new(&arguments.program, &variables);
    let (pid, end) = match supervisor::run(&image, program) {
        Ok(ended) => ended,
        Err(failure) => {
            if let Some(file) = file {
                file.take_back();
            }
            return Err(failure);
        }
    };
    let wall = started.elapsed();
    let log = arguments.log.as_deref().zip(counts).map(|(log, counts)| counts.read(log));
    let ran = Ran { pid, end, wall, off, unserved, log };
    let report = Report::new(&arguments.program, ran, &session);
    drop(reserved);
    publish(arguments, file, &report);
    Ok(end_as(end))
}

/// Starts a program with `library` preloaded instead of the library of `bywash run`, and with `variable` set;
/// waits for its end and passes signals on.
///
/// # Errors
/// [`Failure::NotFound`] or [`Failure::NotExecutable`] if the program cannot be started, and
/// [`Failure::Supervise`] if it cannot be waited for.
pub fn with_library(
    program: &[OsString],
    library: &Path,
    (variable, value): (&'static str, OsString),
) -> Result<ProgramEnd, Failure> {
    let before = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let preload = environment::preload(Some(library.as_os_str()), &before);
    let variables = [("LD_PRELOAD", Some(preload)), (variable, Some(value))];
    let image = Image::new(program, &variables);
    supervisor::run(&image, Path::new(&program[0])).map(|(_, end)| end)
}

/// Ends this process as a program has ended: returns its status, or dies of its signal.
pub fn end_as(end: ProgramEnd) -> i32 {
    match end {
        ProgramEnd::Exit(status) => status,
        ProgramEnd::Signal(signal) => process::die_of(signal),
    }
}

/// Examines the program that is to be started, if its file can be found and read.
fn examine(program: &OsStr) -> Option<Finding> {
    let name = CString::new(program.as_bytes()).ok()?;
    let path = std::env::var_os("PATH");
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let target = Target::Name(&name, path.as_deref().map(OsStr::as_bytes));
    bywash_executable::examine(&target, preloaded.as_bytes())
}

/// Writes the table and the report file, if requested. A failure is printed and does not change the exit
/// status.
fn publish(arguments: &RunArgs, file: Option<ReportFile>, report: &Report) {
    if arguments.stats {
        // A failure is ignored: standard error is gone, and with it the reader.
        let _ = io::stderr().write_all(report::table::render(report).as_bytes());
    }
    if let Some(Err(failure)) = file.map(|file| file.write(report)) {
        say(format_args!("bywash: {failure}"));
    }
}

/// File of `--report`. It is opened before the program starts, so that a file that cannot be written is found
/// in time, and emptied and written after the program has ended.
struct ReportFile {
    path: PathBuf,
    file: File,
    /// True if `open` created the file.
    made: bool,
}

impl ReportFile {
    fn open(path: &Path) -> Result<ReportFile, Failure> {
        let failed = |source| Failure::Report { path: path.into(), source };
        let (file, made) = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (OpenOptions::new().write(true).open(path).map_err(failed)?, false)
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(ReportFile { path: path.into(), file, made })
    }

    fn write(mut self, report: &Report) -> Result<(), Failure> {
        let mut text = report::json::render(report);
        text.push('\n');
        // Only a regular file has a length to cut; a terminal or a pipe has none.
        let emptied = match self.file.metadata() {
            Ok(metadata) if metadata.is_file() => self.file.set_len(0),
            other => other.map(|_| ()),
        };
        emptied
            .and_then(|()| self.file.write_all(text.as_bytes()))
            .map_err(|source| Failure::Report { path: self.path, source })
    }

    /// Leaves no empty file behind when the program could not be started.
    fn take_back(self) {
        if self.made {
            // What was made a moment ago and is gone already needs no removing.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
