//! A program on one of the sides of a comparison: the same command, with or without the preloaded library.
//!
//! Invariant: the sides differ in the environment of the started program and in nothing else. The runs that are
//! timed are as `bywash run` without `--stats` has them; what was really served at user level is counted in a
//! run of its own, into a session of its own.

use crate::child;
use crate::error::{Attempt, Error};
use bywash_session::{Counter, Session};
use rustix::fd::OwnedFd;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// File name of the preloaded library.
pub const LIBRARY: &str = "libbywash_shim.so";
/// Names the library by hand.
pub const LIBRARY_VARIABLE: &str = "BYWASH_LIBRARY";

/// Side that serves the program's file I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The kernel alone.
    Kernel,
    /// The preloaded library.
    Bywash,
    /// The preloaded library, which counts what it does.
    Counted,
    /// The kernel, with the case's rival: the program's own way to map files, or an empty library.
    Rival,
}

/// Calls on files that the library counted in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Served at user level.
    pub user: u64,
    /// Passed to the kernel.
    pub kernel: u64,
}

/// Starts programs on either side, with the library at this path.
pub struct Launcher(pub PathBuf);

impl Launcher {
    /// Finds the library.
    pub fn find() -> Result<Launcher, Error> {
        let here = child::this_program()?;
        let folder = here.parent().unwrap_or(Path::new("/"));
        let (candidates, remedy): (Vec<PathBuf>, String) = match std::env::var_os(LIBRARY_VARIABLE) {
            Some(named) => {
                let name = named.display();
                let remedy = format!(
                    "{LIBRARY_VARIABLE} names {name}, which is no file: correct it, or unset it to take the library \
                     beside the command"
                );
                (vec![named.into()], remedy)
            }
            None => {
                let remedy = format!(
                    "{LIBRARY} is not beside {}: build it (cargo build --release -p bywash-shim), or name it \
                     with {LIBRARY_VARIABLE}=/path/{LIBRARY}",
                    here.display()
                );
                let folders = ["", "..", "../lib", "../lib/bywash"];
                (folders.map(|relative| folder.join(relative).join(LIBRARY)).into(), remedy)
            }
        };
        let found = candidates.into_iter().find(|library| library.is_file());
        let library = found.ok_or(Error::Usage(remedy))?;
        library.canonicalize().doing("find", &library).map(Launcher)
    }

    /// Begins a run: from here until [`Run::calls`] everything started on this side counts together.
    pub fn begin(&self, mode: Mode) -> Result<Run<'_>, Error> {
        let make = || Session::create().map_err(|error| std::io::Error::from_raw_os_error(error.0));
        let session = (mode == Mode::Counted).then(make).transpose().doing("make", Path::new("a session"))?;
        let inherited = session.as_ref().map(inherited_handle).transpose()?;
        Ok(Run { mode, library: &self.0, session, inherited })
    }
}

/// A second descriptor of the session's memory that started programs inherit: a program that has changed its
/// user cannot open the first one through /proc.
fn inherited_handle(session: &Session) -> Result<OwnedFd, Error> {
    let path = session.path();
    let path = Path::new(OsStr::from_bytes(path.as_bytes()));
    let file = File::options().read(true).write(true).open(path).doing("open", path)?;
    rustix::io::dup(&file).doing("duplicate", path)
}

/// One run of a case on one side.
pub struct Run<'a> {
    mode: Mode,
    library: &'a Path,
    session: Option<Session>,
    inherited: Option<OwnedFd>,
}

impl Run<'_> {
    /// A run of the kernel's side, for what is not measured.
    pub fn of_kernel() -> Run<'static> {
        Run { mode: Mode::Kernel, library: Path::new(""), session: None, inherited: None }
    }

    /// The side that the run is on.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// A command that runs `program` on this side.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.prepared(program.as_ref(), self.session.as_ref().map(Session::path))
    }

    /// As [`Run::command`], for a program that will have another user than this process.
    pub fn command_of_other_user(&self, program: impl AsRef<OsStr>) -> Command {
        let handle = self.inherited.as_ref().map(|fd| format!("/proc/self/fd/{}", fd.as_raw_fd()));
        self.prepared(program.as_ref(), handle.and_then(|path| CString::new(path).ok()))
    }

    fn prepared(&self, program: &OsStr, session: Option<CString>) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        for (name, _) in std::env::vars_os() {
            if name.as_bytes().starts_with(b"BYWASH_") || name == "LD_PRELOAD" {
                command.env_remove(name);
            }
        }
        if matches!(self.mode, Mode::Bywash | Mode::Counted) {
            command.env("LD_PRELOAD", self.library);
        }
        if let Some(session) = session {
            command.env("BYWASH_SESSION", OsStr::from_bytes(session.as_bytes()));
        }
        command
    }

    /// Counts as a program with the library would; nothing on the other sides.
    #[cfg(test)]
    pub fn count_user_reads(&self, calls: u64) {
        if let Some(record) = self.session.as_ref().and_then(Session::claim) {
            record.describe(1, 0, 0, b"test");
            record.shard(0).add(Counter::UserReads, calls);
        }
    }

    /// Calls that the library counted; `None` on the sides where nothing is counted.
    pub fn calls(&self) -> Option<Calls> {
        const USER: [Counter; 3] = [Counter::UserReads, Counter::UserWrites, Counter::UserSeeks];
        const KERNEL: [Counter; 4] =
            [Counter::KernelReads, Counter::KernelWrites, Counter::KernelSeeks, Counter::KernelSyncs];
        let records = self.session.as_ref()?.records();
        let sum = |counters: &[Counter]| {
            records.iter().flat_map(|record| counters.iter().map(|counter| record.counter(*counter))).sum()
        };
        Some(Calls { user: sum(&USER), kernel: sum(&KERNEL) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_side_preloads_and_only_the_counted_run_has_a_session() {
        let launcher = Launcher("/lib/x.so".into());
        for mode in [Mode::Kernel, Mode::Bywash, Mode::Counted, Mode::Rival] {
            let run = launcher.begin(mode).unwrap();
            let command = run.command("true");
            let value = |wanted: &str| {
                let mut all = command.get_envs();
                all.find(|(name, _)| *name == wanted).and_then(|(_, value)| value).map(OsStr::to_owned)
            };
            let preloads = matches!(mode, Mode::Bywash | Mode::Counted);
            assert_eq!(value("LD_PRELOAD").is_some_and(|value| value == "/lib/x.so"), preloads, "{mode:?}");
            assert_eq!(value("BYWASH_SESSION").is_some(), mode == Mode::Counted, "{mode:?}");
            assert_eq!(run.calls().is_some(), mode == Mode::Counted);
        }
    }

    #[test]
    fn calls_are_added_over_processes_and_the_inherited_handle_survives_an_exec() {
        let launcher = Launcher("/nowhere/x.so".into());
        let run = launcher.begin(Mode::Counted).unwrap();
        for _process in 0..2 {
            let record = run.session.as_ref().unwrap().claim().unwrap();
            record.describe(1, 0, 0, b"p");
            record.shard(0).add(Counter::UserReads, 5);
            record.shard(1).add(Counter::KernelSyncs, 2);
        }
        assert_eq!(run.calls(), Some(Calls { user: 10, kernel: 4 }));
        let mut command = run.command_of_other_user("sh");
        command.env_remove("LD_PRELOAD").args(["-c", "head -c 8 $BYWASH_SESSION"]);
        assert_eq!(command.output().unwrap().stdout, b"BYWASHSE");
    }
}
