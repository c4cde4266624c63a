//! A program on one of the sides of a comparison: the same command, with or without the preloaded library.
//!
//! Invariant: the sides differ in the environment of the started program and in nothing else. The runs that are
//! timed are as `bywash run` without `--stats` has them; what was really served at user level is counted in a
//! run of its own, into a session of its own.

use crate::error::Error;
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

/// Starts programs on either side.
pub struct Launcher {
    library: PathBuf,
}

impl Launcher {
    /// Finds the library.
    ///
    /// # Errors
    /// When it is in none of the places where it could be; the message names them.
    pub fn find() -> Result<Launcher, Error> {
        if let Some(named) = std::env::var_os(LIBRARY_VARIABLE) {
            let library = PathBuf::from(named);
            return if library.is_file() {
                Ok(Launcher { library: absolute(library)? })
            } else {
                Err(Error::Usage(format!(
                    "{LIBRARY_VARIABLE} names {}, which is no file: correct it, or unset it to take the library \
                     beside the command",
                    library.display()
                )))
            };
        }
        let here = std::env::current_exe()
            .map_err(|error| Error::io("find", Path::new("the running command"), error))?;
        let folder = here.parent().unwrap_or(Path::new("/"));
        ["", "..", "../lib", "../lib/bywash"]
            .iter()
            .map(|relative| folder.join(relative).join(LIBRARY))
            .find(|library| library.is_file())
            .map_or_else(
                || {
                    Err(Error::Usage(format!(
                        "{LIBRARY} is not beside {}: build it (cargo build --release -p bywash-shim), or name it \
                         with {LIBRARY_VARIABLE}=/path/{LIBRARY}",
                        here.display()
                    )))
                },
                |library| Ok(Launcher { library: absolute(library)? }),
            )
    }

    /// With a library that was found already.
    #[cfg(test)]
    pub fn with_library(library: &Path) -> Launcher {
        Launcher { library: library.to_path_buf() }
    }

    /// Begins a run: from here until [`Run::calls`] everything started on this side counts together.
    ///
    /// # Errors
    /// When no session can be made.
    pub fn begin(&self, mode: Mode) -> Result<Run<'_>, Error> {
        let here = Path::new("a session");
        let session = match mode {
            Mode::Counted => {
                let made = Session::create().map_err(|error| std::io::Error::from_raw_os_error(error.0));
                Some(made.map_err(|error| Error::io("make", here, error))?)
            }
            Mode::Kernel | Mode::Bywash | Mode::Rival => None,
        };
        let inherited = session.as_ref().map(inherited_handle).transpose()?;
        Ok(Run { mode, library: &self.library, session, inherited })
    }
}

/// A second descriptor of the session's memory that started programs inherit: a program that has changed its
/// user cannot open the first one through /proc.
fn inherited_handle(session: &Session) -> Result<OwnedFd, Error> {
    let path = session.path();
    let path = Path::new(OsStr::from_bytes(path.as_bytes()));
    let open = File::options().read(true).write(true).open(path);
    let file = open.map_err(|error| Error::io("open", path, error))?;
    rustix::io::dup(&file).map_err(|errno| Error::io("duplicate", path, errno))
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
        let path = self.session.as_ref().map(Session::path);
        self.prepared(Command::new(program), path)
    }

    /// As [`Run::command`], for a program that will have another user than this process.
    pub fn command_of_other_user(&self, program: impl AsRef<OsStr>) -> Command {
        let handle = self.inherited.as_ref().map(|fd| format!("/proc/self/fd/{}", fd.as_raw_fd()));
        self.prepared(Command::new(program), handle.and_then(|path| CString::new(path).ok()))
    }

    fn prepared(&self, mut command: Command, session: Option<CString>) -> Command {
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

fn absolute(path: PathBuf) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(|error| Error::io("find", &path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn environment(mode: Mode) -> HashMap<String, Option<String>> {
        let launcher = Launcher { library: "/lib/x.so".into() };
        let run = launcher.begin(mode).unwrap();
        let command = run.command("true");
        let text = |word: &OsStr| word.to_string_lossy().into_owned();
        command.get_envs().map(|(name, value)| (text(name), value.map(text))).collect()
    }

    #[test]
    fn only_our_side_preloads() {
        let counted = environment(Mode::Counted);
        assert!(counted["BYWASH_SESSION"].as_ref().unwrap().starts_with("/proc/"));
        let timed = environment(Mode::Bywash);
        assert!(!timed.get("BYWASH_SESSION").is_some_and(Option::is_some));
        for ours in [counted, timed] {
            assert_eq!(ours["LD_PRELOAD"].as_deref(), Some("/lib/x.so"));
        }
        for mode in [Mode::Kernel, Mode::Rival] {
            let others = environment(mode);
            assert!(!others.values().flatten().any(|value| value.contains("/lib/x.so")), "{others:?}");
            assert!(!others.get("BYWASH_SESSION").is_some_and(Option::is_some));
        }
    }

    #[test]
    fn calls_are_added_over_processes() {
        let launcher = Launcher { library: "/lib/x.so".into() };
        let run = launcher.begin(Mode::Counted).unwrap();
        assert_eq!(run.calls(), Some(Calls::default()));
        for _process in 0..2 {
            let record = run.session.as_ref().unwrap().claim().unwrap();
            record.describe(1, 0, 0, b"p");
            record.shard(0).add(Counter::UserReads, 5);
            record.shard(1).add(Counter::KernelSyncs, 2);
        }
        assert_eq!(run.calls(), Some(Calls { user: 10, kernel: 4 }));
        assert_eq!(launcher.begin(Mode::Kernel).unwrap().calls(), None);
    }

    #[test]
    fn the_inherited_handle_survives_an_exec() {
        let launcher = Launcher { library: "/nowhere/x.so".into() };
        let run = launcher.begin(Mode::Counted).unwrap();
        let mut command = run.command_of_other_user("sh");
        command.env_remove("LD_PRELOAD").args(["-c", "head -c 8 $BYWASH_SESSION"]);
        assert_eq!(command.output().unwrap().stdout, b"BYWASHSE");
    }
}
