//! Other programs: started, waited for with a limit, ended, and their output and CPU time kept. Ctrl-C is noticed at once.
//!
//! The kernel adds a child's CPU time to its parent's when the parent waits for it (getrusage(2), RUSAGE_CHILDREN), with
//! that of the children that the child has waited for. So the time of a child is the rise of that sum while it is waited
//! for, and nothing else may wait meanwhile.

use crate::error::{Attempt, Error};
use crate::interrupt;
use crate::usage::Usage;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest that a single program may take; every case is sized for seconds.
pub const LIMIT: Duration = Duration::from_secs(120);
const GRACE: Duration = Duration::from_secs(20);
/// Time that a program has to end before it is killed, when nobody needs it any more.
const KILL: Duration = Duration::from_secs(3);
/// Characters of stderr that an error shows.
const TAIL_CHARACTERS: usize = 300;

/// A program that is running; ended when dropped.
pub struct Process {
    pub(crate) child: Child,
    begin: Instant,
    words: String,
    stderr: File,
    stdout: Option<File>,
}

pub struct Ended {
    pub cpu_seconds: f64,
    /// From just before it was started until it had ended.
    pub wall: Duration,
    pub stdout: String,
    failure: Option<Error>,
}

impl Ended {
    /// Returns the CPU seconds of a program that ended with status 0.
    pub fn success(self) -> Result<f64, Error> {
        self.failure.map_or(Ok(self.cpu_seconds), Err)
    }
}

/// Runs `command` to its end and keeps its output.
pub fn run(command: &mut Command) -> Result<Ended, Error> {
    run_within(command, LIMIT)
}

/// Runs `command` to its end, which has to come within `limit`, and keeps its output.
pub fn run_within(command: &mut Command, limit: Duration) -> Result<Ended, Error> {
    let mut ended = Process::start_telling(command.stdin(Stdio::null()))?.wait_for(limit)?;
    ended.failure.take().map_or(Ok(ended), Err)
}

pub fn this_program() -> Result<PathBuf, Error> {
    std::env::current_exe().doing("find", Path::new("this program"))
}

/// A command that runs this program as another process of `bench`; the words say which one and what it does.
pub fn peer<W: AsRef<OsStr>>(bench: &str, words: impl IntoIterator<Item = W>) -> Result<Command, Error> {
    let mut command = Command::new(this_program()?);
    command.args(["bench", "peer", bench]).args(words);
    Ok(command)
}

impl Process {
    pub fn start(command: &mut Command) -> Result<Process, Error> {
        Process::start_with(command, capture()?, None)
    }

    /// As [`Process::start`], and keeps the output.
    pub fn start_telling(command: &mut Command) -> Result<Process, Error> {
        Process::start_with(command, capture()?, Some(capture()?))
    }

    /// Starts `command`, a server, with its output going to the file `log`.
    pub fn start_logging(command: &mut Command, log: &Path) -> Result<Process, Error> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(log);
        let file = file.doing("create", log)?;
        Process::start_with(command.stdin(Stdio::null()), share(&file)?, Some(file))
    }

    fn start_with(command: &mut Command, stderr: File, stdout: Option<File>) -> Result<Process, Error> {
        interrupt::check()?;
        command.stderr(share(&stderr)?);
        if let Some(stdout) = &stdout {
            command.stdout(share(stdout)?);
        }
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        let words = all.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let begin = Instant::now();
        let child = command.spawn().doing("start", Path::new(command.get_program()))?;
        Ok(Process { child, begin, words, stderr, stdout })
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    pub fn wait(mut self) -> Result<Ended, Error> {
        self.wait_for(LIMIT)
    }

    /// Waits until the program has ended with status 0, and returns its CPU seconds.
    pub fn finish(self) -> Result<f64, Error> {
        self.wait()?.success()
    }

    /// Ends the program by SIGTERM, and returns its CPU seconds.
    pub fn end(mut self) -> Result<f64, Error> {
        self.signal(Signal::TERM);
        Ok(self.wait_for(GRACE)?.cpu_seconds)
    }

    pub fn stop(&mut self, signal: Signal) -> Result<(), Error> {
        if self.has_ended() {
            return Ok(());
        }
        self.signal(signal);
        self.wait_for(GRACE).map(drop)
    }

    fn signal(&self, signal: Signal) {
        // One that has ended by itself needs none.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    fn wait_for(&mut self, limit: Duration) -> Result<Ended, Error> {
        let (program, before) = (Path::new("a program"), Usage::now(None)?);
        let handle = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).doing("watch", program)?;
        if !has_ended_within(&handle, limit)? {
            return Err(self.failure(format!("did not end within {} s", limit.as_secs())));
        }
        let status = self.child.wait().doing("wait for", program)?;
        let (wall, cpu_seconds) = (self.begin.elapsed(), Usage::now(None)?.since(&before).cpu_seconds);
        // Ctrl-C reaches the child too, and is not its failure.
        interrupt::check()?;
        let failure = (!status.success()).then(|| self.failure(format!("ended with {status}")));
        let stdout = self.stdout.as_mut().map(text).unwrap_or_default();
        Ok(Ended { cpu_seconds, wall, stdout, failure })
    }

    /// The error of the program, with the end of its standard error.
    pub fn failure(&mut self, how: String) -> Error {
        Error::Failed { program: self.words.clone(), how, tail: tail(&text(&mut self.stderr)) }
    }
}

impl Drop for Process {
    /// Sends SIGTERM first, as a program that has children of its own (PostgreSQL) ends those with it.
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        self.signal(Signal::TERM);
        let deadline = Instant::now() + KILL;
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends a process that is no child of this one by `signal`, and waits until it has ended.
pub fn end_other(process: u32, signal: Signal) -> Result<(), Error> {
    let name = format!("process {process}");
    let id = Pid::from_raw(process as i32).ok_or_else(|| Error::failed(&name, "cannot be one".into()))?;
    let handle = match pidfd_open(id, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(()),
        opened => opened.doing("watch", Path::new(&name))?,
    };
    match pidfd_send_signal(&handle, signal) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => return Err(Error::io("end", Path::new(&name), errno)),
    }
    match has_ended_within(&handle, GRACE)? {
        true => Ok(()),
        false => Err(Error::failed(&name, format!("did not end within {} s", GRACE.as_secs()))),
    }
}

/// Waits until the process of `handle` has ended; false if it has not within `limit`.
fn has_ended_within(handle: &OwnedFd, limit: Duration) -> Result<bool, Error> {
    let deadline = Instant::now() + limit;
    loop {
        interrupt::check()?;
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => {}
            Ok(ended) => return Ok(ended > 0),
            Err(errno) => return Err(Error::io("wait for", Path::new("a process"), errno)),
        }
    }
}

fn capture() -> Result<File, Error> {
    let file = memfd_create("bywash-bench-output", MemfdFlags::CLOEXEC);
    file.map(File::from).doing("make memory for", Path::new("a program's output"))
}

fn share(file: &File) -> Result<File, Error> {
    file.try_clone().doing("share", Path::new("a program's output"))
}

/// Everything in `file`, which the child wrote through the same position.
fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The end of a program's output, in one line behind a colon; empty if there is no output.
pub(crate) fn tail(text: &str) -> String {
    let text = text.trim().replace('\n', " ");
    let before = text.chars().count().saturating_sub(TAIL_CHARACTERS);
    let tail: String = text.chars().skip(before).collect();
    if tail.is_empty() { tail } else { format!(": {tail}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_cpu_time_are_kept_and_a_failure_has_the_programs_own_words() {
        let busy = "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done); printf 'a\nb'";
        let ended = run(&mut shell(busy)).unwrap();
        assert!(ended.stdout == "a\nb" && ended.cpu_seconds > 0.005 && ended.wall < LIMIT);
        let error = run(&mut shell("echo told; echo broken >&2; exit 3")).err().unwrap().to_string();
        assert!(error.starts_with("sh -c echo told") && error.ends_with("status: 3: broken"), "{error}");
    }

    #[test]
    fn waiting_has_a_limit_and_a_program_ends_when_it_is_asked_to_or_dropped() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut server = Process::start_logging(&mut shell("exec sleep 30"), log.path()).unwrap();
        let error = server.wait_for(Duration::from_millis(20)).err().unwrap().to_string();
        assert!(error.contains("sleep 30 did not end within 0 s"), "{error}");
        let pid = server.id();
        drop(server);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        let mut sleep = Process::start(Command::new("sleep").arg("30")).unwrap();
        sleep.stop(Signal::TERM).unwrap();
        assert!(sleep.has_ended());
    }
}
