//! Starting of programs, with a timeout on every wait, and without leaving processes behind.
//!
//! Invariant: every process that a program has started is killed when its [`Running`] is dropped, also by a
//! panic. Output goes to files outside the scenario's folder, so that a daemon that keeps its output open
//! cannot block the test.

use crate::installed;
use crate::process::{has_ended, kill_group, kill_tree};
use crate::stage::{ScenarioRun, Side};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A program that is about to run.
pub struct Program<'stage> {
    stage: &'stage ScenarioRun,
    path: PathBuf,
    command: Command,
    side: Side,
    covered: bool,
    input: Option<String>,
    limit: Duration,
}

impl<'stage> Program<'stage> {
    pub(crate) fn new(stage: &'stage ScenarioRun, name: &Path) -> Self {
        let path = installed::find(&name.to_string_lossy());
        let mut command = Command::new(&path);
        command.env_clear().current_dir(stage.folder()).stdin(Stdio::null()).process_group(0);
        command.env("PATH", installed::SEARCH).env("HOME", stage.spare()).env("TMPDIR", stage.spare());
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        Program { stage, path, command, side: stage.side(), covered: true, input: None, limit: LIMIT }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Runs the program in the folder `name` of the scenario's folder.
    pub fn at(mut self, name: &str) -> Self {
        self.command.current_dir(self.stage.path(name));
        self
    }

    /// Gives the program `text` as standard input, from a file.
    pub fn input(mut self, text: &str) -> Self {
        self.input = Some(text.to_owned());
        self
    }

    /// Runs the program as the user `name` if the tests run as root, and as the same user as the tests
    /// otherwise.
    ///
    /// # Panics
    /// If there is no such user.
    pub fn user(mut self, name: &str) -> Self {
        if rustix::process::getuid().is_root() {
            let (user, group) = ids(name);
            self.command.uid(user).gid(group);
        }
        self
    }

    /// Runs the program without the library on both sides.
    pub fn plain(mut self) -> Self {
        self.side = Side::Kernel;
        self
    }

    /// Declares that the library cannot be loaded into the program (set-uid, static), so that this is not
    /// required.
    pub fn uncovered(mut self) -> Self {
        self.covered = false;
        self
    }

    /// Sets the timeout in seconds, instead of 30 s.
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Starts the program and waits for its end.
    pub fn run(self) -> Finished<'stage> {
        self.start().wait()
    }

    /// Starts the program.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(mut self) -> Running<'stage> {
        if let (Side::Bywash, Some(preload)) = (self.side, self.stage.preload()) {
            self.command.envs(preload);
            if self.covered && !installed::is_script(&self.path) {
                self.stage.expect_loaded(&self.path);
            }
        }
        let number = self.stage.number();
        let mut line = shell_line(&self.command);
        let file = |kind: &str| self.stage.spare().join(format!("{number}.{kind}"));
        if let Some(text) = self.input {
            fs::write(file("in"), text).expect("a file for the input");
            self.command.stdin(File::open(file("in")).expect("the input's file"));
            line += &format!(" < {}", file("in").display());
        }
        self.stage.remember(&line);
        let outputs = ["out", "err"].map(file);
        let [stdout, stderr] = outputs.each_ref().map(|path| File::create(path).expect("a file for output"));
        let child = self.command.stdout(stdout).stderr(stderr).spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start {line}: {error}"));
        Running { stage: self.stage, child, ended: None, line, outputs, until: Instant::now() + self.limit }
    }
}

/// Default timeout of a program.
const LIMIT: Duration = Duration::from_secs(30);

/// A running program. Dropping this kills the program and its children.
pub struct Running<'stage> {
    stage: &'stage ScenarioRun,
    child: Child,
    ended: Option<ExitStatus>,
    line: String,
    outputs: [PathBuf; 2],
    until: Instant,
}

impl<'stage> Running<'stage> {
    /// Kills the program and all its descendants (SIGKILL).
    pub fn kill(&mut self) {
        if self.ended.is_none() {
            kill_tree(self.child.id());
            kill_group(self.child.id());
        }
    }

    /// Waits for the program's end.
    ///
    /// # Panics
    /// If the timeout expires.
    pub fn wait(mut self) -> Finished<'stage> {
        let status = loop {
            if let Some(status) = self.ended() {
                break status;
            }
            if Instant::now() > self.until {
                let [stdout, stderr] = self.outputs();
                panic!("{} did not end in time; it wrote:\n{stdout}\n{stderr}", self.line);
            }
            std::thread::sleep(POLL);
        };
        let [stdout, stderr] = self.outputs();
        Finished { stage: self.stage, status, line: std::mem::take(&mut self.line), stdout, stderr }
    }

    /// Waits until `ready` returns true.
    ///
    /// # Panics
    /// If the program ends first, or the timeout expires.
    pub fn wait_until(&mut self, what: &str, ready: impl Fn() -> bool) {
        while !ready() {
            let state = match self.ended() {
                Some(status) => format!("it ended ({status})"),
                None if Instant::now() > self.until => "its time was over".into(),
                None => {
                    std::thread::sleep(10 * POLL);
                    continue;
                }
            };
            let [stdout, stderr] = self.outputs();
            panic!("{}: waited for {what}, but {state}; it wrote:\n{stdout}\n{stderr}", self.line);
        }
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() && has_ended(self.child.id()) {
            // The other processes of the program's group must not outlive the program.
            kill_group(self.child.id());
            self.ended = Some(self.child.wait().expect("a child can be waited for"));
        }
        self.ended
    }

    fn outputs(&self) -> [String; 2] {
        self.outputs.each_ref().map(|path| {
            let bytes = fs::read(path).expect("the output's file");
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
}

/// Interval between two polls of a child.
const POLL: Duration = Duration::from_millis(3);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill();
            // The program was killed, so this wait is short, and an error cannot be reported from here.
            let _ = self.child.wait();
        }
    }
}

/// A program that has ended.
pub struct Finished<'stage> {
    stage: &'stage ScenarioRun,
    line: String,
    /// Exit status of the program.
    pub status: ExitStatus,
    /// Standard output of the program.
    pub stdout: String,
    /// Standard error of the program.
    pub stderr: String,
}

impl Finished<'_> {
    /// Returns the standard output of a program that has succeeded.
    ///
    /// # Panics
    /// If the program has failed.
    pub fn ok(self) -> String {
        assert!(
            self.status.success(),
            "{} failed ({}); it wrote:\n{}\n{}",
            self.line,
            self.status,
            self.stdout,
            self.stderr
        );
        self.stdout
    }

    /// Adds the exit status and all output to the transcript.
    pub fn note(self) -> Self {
        let how = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or(0)),
        };
        let command = self.line.rsplit(" -- ").next().unwrap_or_default();
        let note = format!("{command}\n{how}\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self.stage.note(note);
        self
    }
}

/// Returns a shell command that runs `command` again. The part before ` -- ` sets the folder and the
/// environment.
fn shell_line(command: &Command) -> String {
    let quote = |word: &OsStr| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+%@".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    let folder = command.get_current_dir().map_or_else(String::new, |folder| quote(folder.as_os_str()));
    let mut line = format!("env -C {folder} -i");
    for (key, value) in command.get_envs() {
        line += &format!(" {}={}", key.to_string_lossy(), quote(value.unwrap_or_default()));
    }
    line += " --";
    for word in std::iter::once(command.get_program()).chain(command.get_args()) {
        line += &format!(" {}", quote(word));
    }
    line
}

/// Returns the user and group numbers of the user `name`.
fn ids(name: &str) -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").expect("/etc/passwd");
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|user| user[0] == name);
    let number = |at: usize| fields.as_ref().and_then(|user| user.get(at)?.parse().ok());
    match (number(2), number(3)) {
        (Some(user), Some(group)) => (user, group),
        _ => panic!("there is no user {name}: the Debian package of the server makes it (`make packages`)"),
    }
}
