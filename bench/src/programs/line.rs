//! A program on one of the sides of a comparison, from a command line with placeholders.
//!
//! Invariant: the sides differ in the environment of the started program and in nothing else. The runs that are
//! timed are as `bywash run` without `--stats` has them; what was really served at user level is counted in a
//! run of its own, into a session of its own.
//!
//! A line is `[NAME=VALUE]... PROGRAM [WORD]... [> FILE]`. Words end at spaces, before placeholders are replaced; a word that
//! is empty then is left out. The program is one of the C programs, or one of the path, and works in the folder `{work}`.
//! The words that start a program with a log (`bywash run --log`) stand before it, or where the line says `{launch}`.
//!
//! | placeholder | becomes |
//! |---|---|
//! | `{folder}`, `{output}` | the folder of the bench on the file system of the run, and a file there that is new |
//! | `{work}` | the folder that the program works in |
//! | `{ops}` | the number of operations |
//! | `{=NAME}`, `{?NAME}` | the path of the program NAME; the second, nothing if it is not installed |
//! | `{A\|B}` | `A`, or `B` in a quick run |
//! | `{A~B}` | `A`, or `B` on the side of the rival |
//! | `{loop}` | a script for `sh -c`, which runs a command again and again |
//! | `{sums}` | a query for the number of rows in sysbench's table, and their sum |
//! | `{bywash}`, `{empty}` | the path of the program `bywash`; the name of a library that does nothing |

use super::stage::Stage;
use super::{executables::hash, find};
use crate::child::{self, Process};
use crate::error::{Attempt, Error};
use bywash_session::{Counter, Session};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LIBRARY: &str = "libbywash_shim.so";
const LIBRARY_VARIABLE: &str = "BYWASH_LIBRARY";
/// A library that does nothing: glibc keeps it for old programs, and since 2.34 it is empty.
const EMPTY_LIBRARY: &str = "libutil.so.1";
/// Library that makes syncs do nothing.
const CARELESS_LIBRARY: &str = "libeatmydata.so";
/// Word in the place of what starts a program on a side.
const LAUNCH: &str = "{launch}";
/// A shell that runs a command again and again: `sh -c LOOP sh COUNT COMMAND...`.
const LOOP: &str = "n=$1; shift; i=0; while [ $i -lt $n ]; do \"$@\" || exit 1; i=$((i+1)); done";
const SUMS: &str = "SELECT COUNT(*), SUM(k) FROM sbtest1";

/// Side that serves the program's file I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Kernel,
    Bywash,
    /// The preloaded library, which counts what it does.
    Counted,
    /// The kernel, with the case's rival: the program's own way to map files, or an empty library.
    Rival,
    /// `bywash run` with a commit log.
    Logged,
    /// The kernel, with libeatmydata: nothing is durable.
    Careless,
}

/// Calls on files that the library counted in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub user: u64,
    pub kernel: u64,
}

pub fn find_library() -> Result<PathBuf, Error> {
    let here = child::this_program()?;
    let candidates: Vec<PathBuf> = match std::env::var_os(LIBRARY_VARIABLE) {
        Some(named) => vec![named.into()],
        None => ["", "..", "../lib", "../lib/bywash"].map(|to| here.with_file_name(to).join(LIBRARY)).into(),
    };
    let found = candidates.iter().find(|library| library.is_file()).ok_or_else(|| {
        Error::Usage(format!(
            "{} is not there: build it (cargo build --release -p bywash-shim), or name it by \
             {LIBRARY_VARIABLE}=/path/{LIBRARY}",
            candidates[0].display()
        ))
    })?;
    found.canonicalize().doing("find", found)
}

/// One run of a case on one side.
pub struct Run<'a> {
    pub mode: Mode,
    library: &'a Path,
    /// Words before those of the program, on the side with a log.
    launcher: Vec<OsString>,
    /// Session that counts, with a descriptor that started programs inherit: one that has changed its user cannot open the session
    /// by this process's descriptor in /proc.
    counted: Option<(Session, OwnedFd)>,
}

impl Run<'_> {
    /// Begins a run: everything that is started for it counts together.
    pub fn begin(library: &Path, mode: Mode) -> Result<Run<'_>, Error> {
        let counted = (mode == Mode::Counted).then(|| {
            let session = Session::create().map_err(|error| std::io::Error::from_raw_os_error(error.0));
            let session = session.doing("make", Path::new("a session"))?;
            let path = session.path();
            let path = Path::new(OsStr::from_bytes(path.as_bytes()));
            let file = File::options().read(true).write(true).open(path).doing("open", path)?;
            Ok::<_, Error>((session, rustix::io::dup(&file).doing("duplicate", path)?))
        });
        if mode == Mode::Careless && !can_be_preloaded(CARELESS_LIBRARY)? {
            return Err(Error::Missing { what: CARELESS_LIBRARY.into(), package: "libeatmydata1" });
        }
        Ok(Run { mode, library, launcher: Vec::new(), counted: counted.transpose()? })
    }

    /// Begins a run whose programs are started by the words of `launcher`: `bywash run` with a commit log.
    pub fn logged(library: &Path, launcher: Vec<OsString>) -> Run<'_> {
        Run { mode: Mode::Logged, library, launcher, counted: None }
    }

    /// A run of the kernel's side, for what is not measured.
    pub fn of_kernel() -> Run<'static> {
        Run { mode: Mode::Kernel, library: Path::new(""), launcher: Vec::new(), counted: None }
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.as_bytes().starts_with(b"BYWASH_") || name == "LD_PRELOAD" {
                command.env_remove(name);
            }
        }
        match self.mode {
            Mode::Bywash | Mode::Counted => command.env("LD_PRELOAD", self.library),
            Mode::Logged => command.env(LIBRARY_VARIABLE, self.library),
            Mode::Careless => command.env("LD_PRELOAD", CARELESS_LIBRARY),
            Mode::Kernel | Mode::Rival => &mut command,
        };
        if let Some((_, inherited)) = &self.counted {
            command.env("BYWASH_SESSION", format!("/proc/self/fd/{}", inherited.as_raw_fd()));
        }
        command.env("LC_ALL", "C");
        command
    }

    /// Calls that the library counted; none on the sides where nothing is counted.
    pub fn calls(&self) -> Calls {
        const USER: [Counter; 3] = [Counter::UserReads, Counter::UserWrites, Counter::UserSeeks];
        const KERNEL: [Counter; 4] =
            [Counter::KernelReads, Counter::KernelWrites, Counter::KernelSeeks, Counter::KernelSyncs];
        let records = self.counted.as_ref().map_or(Vec::new(), |counted| counted.0.records());
        let sum = |counters: &[Counter]| {
            records.iter().flat_map(|record| counters.iter().map(|counter| record.counter(*counter))).sum()
        };
        Calls { user: sum(&USER), kernel: sum(&KERNEL) }
    }

    /// Counts as a program with the library would; nothing on the other sides.
    #[cfg(test)]
    pub fn count_user_reads(&self, calls: u64) {
        if let Some(record) = self.counted.as_ref().and_then(|counted| counted.0.claim()) {
            record.describe(1, 0, 0, b"test");
            record.shard(0).add(Counter::UserReads, calls);
        }
    }
}

/// Output and figures of a program that has ended.
pub struct Told {
    /// Its output; of output that went to a file, the length and a hash.
    pub output: String,
    pub seconds: f64,
    pub operations: u64,
    /// CPU time of the program, from its start to its end.
    pub cpu_seconds: f64,
}

/// Surroundings of a line: the side, the number of operations, and the folder that the program works in.
pub struct Turn<'a> {
    pub stage: &'a Stage<'a>,
    pub run: &'a Run<'a>,
    pub operations: u64,
    pub work: &'a Path,
}

impl Turn<'_> {
    /// Runs the program of `line` to its end.
    pub fn told(&self, line: &str) -> Result<Told, Error> {
        let (line, file) = line.split_once(" > ").map_or((line, None), |(line, file)| (line, Some(file)));
        let (mut command, operations) = (self.command(line)?, self.operations);
        let Some(file) = file else {
            let ended = child::run(&mut command)?;
            let (seconds, cpu_seconds) = (ended.wall.as_secs_f64(), ended.cpu_seconds);
            return Ok(Told { output: ended.stdout, seconds, operations, cpu_seconds });
        };
        let path = PathBuf::from(self.replaced(file)?);
        let output = File::create(&path).doing("create", &path)?;
        let ended = Process::start(command.stdin(Stdio::null()).stdout(output))?.wait()?;
        let seconds = ended.wall.as_secs_f64();
        let cpu_seconds = ended.success()?;
        let content = fs::read(&path).doing("read", &path)?;
        let output = format!("{} bytes, {:016x}", content.len(), hash(&content));
        Ok(Told { output, seconds, operations, cpu_seconds })
    }

    pub fn command(&self, line: &str) -> Result<Command, Error> {
        let mut words = line.split(' ').peekable();
        let is_variable =
            |word: &&str| word.split_once('=').is_some_and(|(name, _)| !name.contains(['{', '-']));
        let variables: Vec<&str> = std::iter::from_fn(|| words.next_if(is_variable)).collect();
        let program = self.stage.programs.executable(words.next().unwrap_or_default())?;
        let mut all = vec![program.into_os_string()];
        for word in words {
            let word = if word == LAUNCH { word.into() } else { self.replaced(word)? };
            all.extend((!word.is_empty()).then(|| OsString::from(word)));
        }
        let launch = all.iter().position(|word| word == LAUNCH);
        all.splice(launch.map_or(0..0, |at| at..at + 1), self.run.launcher.iter().cloned());
        let mut command = self.run.command(&all[0]);
        command.args(&all[1..]).current_dir(self.work);
        for (name, value) in variables.iter().filter_map(|variable| variable.split_once('=')) {
            command.env(name, self.replaced(value)?);
        }
        Ok(command)
    }

    /// The word with its placeholders replaced.
    fn replaced(&self, word: &str) -> Result<String, Error> {
        let mut parts = word.split('{');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (name, rest) in parts.filter_map(|part| part.split_once('}')) {
            text += &self.value(name)?;
            text += rest;
        }
        Ok(text)
    }

    fn value(&self, name: &str) -> Result<String, Error> {
        let Turn { stage, run, .. } = self;
        Ok(match (name, name.split_once('|'), name.split_once('~')) {
            ("folder", ..) => stage.folder.display().to_string(),
            ("output", ..) => stage.output().display().to_string(),
            ("work", ..) => self.work.display().to_string(),
            ("ops", ..) => self.operations.to_string(),
            ("loop", ..) => LOOP.to_owned(),
            ("sums", ..) => SUMS.to_owned(),
            ("bywash", ..) => find_bywash()?.display().to_string(),
            ("empty", ..) => empty_library()?.to_owned(),
            (_, Some((full, quick)), _) => stage.pick(full, quick).to_owned(),
            (.., Some((_, rival))) if run.mode == Mode::Rival => rival.to_owned(),
            (.., Some((usual, _))) => usual.to_owned(),
            _ => match name.strip_prefix('?') {
                Some(name) => find(name).map_or(String::new(), |path| path.display().to_string()),
                None => stage.programs.executable(name.trim_start_matches('='))?.display().to_string(),
            },
        })
    }
}

/// The program `bywash`: this one, or the one that starts this one, beside it or above `lib/bywash`.
pub fn find_bywash() -> Result<PathBuf, Error> {
    let own = child::this_program()?;
    let candidates = ["bywash", "../../bin/bywash"].map(|path| own.with_file_name(path));
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Error::Unavailable(format!("the program bywash is neither beside {} nor in bin", own.display()))
    })
}

/// The name of the empty library.
fn empty_library() -> Result<&'static str, Error> {
    match can_be_preloaded(EMPTY_LIBRARY)? {
        true => Ok(EMPTY_LIBRARY),
        false => {
            Err(Error::Unavailable(format!("there is no empty library to compare with: {EMPTY_LIBRARY}")))
        }
    }
}

/// Returns whether a library can be preloaded. The loader complains about one that is not there, and goes on without it.
fn can_be_preloaded(library: &str) -> Result<bool, Error> {
    let mut command = Run::of_kernel().command("/bin/true");
    let output = command.env("LD_PRELOAD", library).output().doing("run", Path::new("/bin/true"))?;
    Ok(output.status.success() && output.stderr.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::stage::on_stage;

    #[test]
    fn only_our_side_preloads_and_a_line_has_an_environment_a_program_and_a_file() {
        let line = "X={1|2} sh -c {loop} sh {ops} echo {usual~rival} {?no-such-program} {=sh}";
        for mode in [Mode::Kernel, Mode::Bywash, Mode::Counted, Mode::Rival] {
            let run = Run::begin(Path::new("/lib/x.so"), mode).unwrap();
            let work = Path::new("/");
            let mut command =
                on_stage(true, |stage| Turn { stage, run: &run, operations: 3, work }.command(line)).unwrap();
            let set = |wanted: &str| {
                let mut all = command.get_envs();
                all.find(|(name, _)| *name == wanted).and_then(|(_, value)| value).map(OsStr::to_owned)
            };
            let preloaded = matches!(mode, Mode::Bywash | Mode::Counted).then(|| "/lib/x.so".into());
            assert_eq!((set("LD_PRELOAD"), set("X")), (preloaded, Some("2".into())), "{mode:?}");
            assert_eq!(set("BYWASH_SESSION").is_some(), mode == Mode::Counted, "{mode:?}");
            let output = command.env_remove("LD_PRELOAD").output().unwrap();
            let word = if mode == Mode::Rival { "rival" } else { "usual" };
            let line = format!("{word} {}\n", find("sh").unwrap().display());
            assert_eq!(String::from_utf8_lossy(&output.stdout), line.repeat(3));
        }
        let launcher = ["env", "X=log"].map(OsString::from).to_vec();
        let logged = Run::logged(Path::new("/lib/x.so"), launcher);
        for (line, words) in
            [("sh -c y", ["X=log", "SH", "-c", "y"]), ("sh y {launch} z", ["y", "env", "X=log", "z"])]
        {
            let turn = |stage: &Stage| {
                Turn { stage, run: &logged, operations: 0, work: Path::new("/") }.command(line)
            };
            let command = on_stage(true, turn).unwrap();
            let shell = find("sh").unwrap();
            let expected = words.map(|word| if word == "SH" { shell.as_os_str() } else { OsStr::new(word) });
            assert_eq!(command.get_args().collect::<Vec<_>>(), expected);
            assert!(command.get_envs().all(|(name, value)| name != "LD_PRELOAD" || value.is_none()));
        }
        let line = "sh -c {loop} sh 2 echo > {output}";
        let told = on_stage(true, |stage| {
            Turn { stage, run: &Run::of_kernel(), operations: 0, work: &stage.folder }.told(line)
        });
        assert!(told.unwrap().output.starts_with("2 bytes, "));
    }

    #[test]
    fn calls_are_added_over_processes_and_the_inherited_handle_survives_an_exec() {
        let run = Run::begin(Path::new("/nowhere/x.so"), Mode::Counted).unwrap();
        for _process in 0..2 {
            run.count_user_reads(5);
        }
        assert_eq!(run.calls(), Calls { user: 10, kernel: 0 });
        let mut command = run.command("sh");
        command.env_remove("LD_PRELOAD").args(["-c", "head -c 8 $BYWASH_SESSION"]);
        assert_eq!(command.output().unwrap().stdout, b"BYWASHSE");
        assert_eq!(Run::of_kernel().calls(), Calls::default());
    }
}
