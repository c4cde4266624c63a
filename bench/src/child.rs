//! Running a program to its end: its output kept, its time limited, Ctrl-C noticed at once.

use crate::error::Error;
use crate::interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The longest that a single program may take; every case is sized for seconds.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Time that a program has to end before it is killed.
const GRACE: Duration = Duration::from_secs(20);
/// Characters of stderr that an error shows.
const TAIL_CHARACTERS: usize = 300;

/// A program that ended with status 0.
pub struct Finished {
    /// Its standard output, if that was kept.
    pub stdout: String,
    /// From just before it was started until it had ended.
    pub wall: Duration,
}

/// Runs `command` to its end and keeps what it writes.
///
/// # Errors
/// When it cannot be started, takes longer than [`LIMIT`] or ends with anything but status 0.
pub fn run(command: &mut Command) -> Result<Finished, Error> {
    let mut stdout = capture()?;
    command.stdout(share(&stdout)?);
    let wall = run_to(command)?;
    Ok(Finished { stdout: text(&mut stdout), wall })
}

/// Runs `command`, whose stdout the caller has set, to its end; answers the wall-clock time.
///
/// # Errors
/// Those of [`run`].
pub fn run_to(command: &mut Command) -> Result<Duration, Error> {
    interrupt::check()?;
    let mut stderr = capture()?;
    command.stdin(Stdio::null()).stderr(share(&stderr)?);
    let start = Instant::now();
    let mut child = start_child(command)?;
    let status = match wait(&mut child, LIMIT) {
        Ok(status) => status,
        Err(error) => {
            kill(&mut child);
            return Err(error);
        }
    };
    let wall = start.elapsed();
    let Some(status) = status else {
        kill(&mut child);
        return Err(failure(
            words(command),
            format!("did not end within {} s", LIMIT.as_secs()),
            &mut stderr,
        ));
    };
    if status.success() {
        return Ok(wall);
    }
    // Ctrl-C reaches the child too; what counts is that the user wants an end.
    interrupt::check()?;
    Err(failure(words(command), format!("ended with {status}"), &mut stderr))
}

/// Path of the running program.
///
/// # Errors
/// The kernel's, if it cannot be found.
pub fn this_program() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|error| Error::io("find", Path::new("this program"), error))
}

/// A command that runs this program as another process of `bench`; the words say which one and what it does.
///
/// # Errors
/// Those of [`this_program`].
pub fn peer<W: AsRef<OsStr>>(bench: &str, words: impl IntoIterator<Item = W>) -> Result<Command, Error> {
    let mut command = Command::new(this_program()?);
    command.args(["bench", "peer", bench]).args(words);
    Ok(command)
}

/// Starts `command`.
///
/// # Errors
/// The kernel's error with the program's name.
pub fn start_child(command: &mut Command) -> Result<Child, Error> {
    command.spawn().map_err(|error| Error::io("start", Path::new(command.get_program()), error))
}

/// Waits for `child`; `None` when it still runs after `limit`.
///
/// # Errors
/// [`Error::Interrupted`], or the kernel's.
pub fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, Error> {
    let here = Path::new("a program");
    let handle = pidfd_open(Pid::from_child(child), PidfdFlags::empty())
        .map_err(|errno| Error::io("watch", here, errno))?;
    let deadline = Instant::now() + limit;
    loop {
        interrupt::check()?;
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Ok(None),
            Ok(_) => return child.wait().map(Some).map_err(|error| Error::io("wait for", here, error)),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::io("wait for", here, errno)),
        }
    }
}

/// A program that runs beside the others (a server) and is ended when this is dropped.
pub struct Background {
    child: Child,
}

impl Background {
    /// Starts `command` with its output going nowhere but to `log`.
    ///
    /// # Errors
    /// [`Error::Io`] if `log` cannot be made or the program cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> Result<Background, Error> {
        let file = File::create(log).map_err(|error| Error::io("create", log, error))?;
        let again = file.try_clone().map_err(|error| Error::io("share", log, error))?;
        command.stdin(Stdio::null()).stdout(file).stderr(again);
        Ok(Background { child: start_child(command)? })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns true if it has ended by itself.
    pub fn ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Asks it to end with `signal` and waits until it has.
    ///
    /// # Errors
    /// When it does not end in time; it is then killed.
    pub fn stop(&mut self, signal: Signal) -> Result<(), Error> {
        if self.ended() {
            return Ok(());
        }
        let _ = kill_process(Pid::from_child(&self.child), signal);
        match wait(&mut self.child, GRACE)? {
            Some(_) => Ok(()),
            None => Err(Error::Failed {
                program: "the server".into(),
                how: format!("did not end within {} s of being asked to", GRACE.as_secs()),
                tail: String::new(),
            }),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if !self.ended() {
            kill(&mut self.child);
        }
    }
}

/// SIGTERM first, as a program that has children of its own (PostgreSQL) ends those with it.
pub(crate) fn kill(child: &mut Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let deadline = Instant::now() + Duration::from_secs(3);
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// A file in memory for the output of a program.
pub(crate) fn capture() -> Result<File, Error> {
    let file = memfd_create("bywash-bench-output", MemfdFlags::CLOEXEC)
        .map_err(|errno| Error::io("make memory for", Path::new("a program's output"), errno))?;
    Ok(File::from(file))
}

/// A second descriptor of that file.
pub(crate) fn share(file: &File) -> Result<File, Error> {
    file.try_clone().map_err(|error| Error::io("share", Path::new("a program's output"), error))
}

/// Everything in `file`, which the child wrote through the same position.
pub(crate) fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The error of `program`, with the end of its standard error.
pub(crate) fn failure(program: String, how: String, stderr: &mut File) -> Error {
    Error::Failed { program, how, tail: tail(&text(stderr)) }
}

/// The end of a program's output, in one line behind a colon; empty if there is no output.
pub(crate) fn tail(text: &str) -> String {
    let text = text.trim();
    let before = text.chars().count().saturating_sub(TAIL_CHARACTERS);
    let tail: String = text.chars().skip(before).map(|c| if c == '\n' { ' ' } else { c }).collect();
    if tail.is_empty() { tail } else { format!(": {tail}") }
}

/// The command as one would type it, without quoting.
pub fn words(command: &Command) -> String {
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    all.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_kept() {
        let finished = run(Command::new("printf").arg("a\nb")).unwrap();
        assert_eq!(finished.stdout, "a\nb");
        assert!(finished.wall < LIMIT);
    }

    #[test]
    fn a_failure_names_program_status_and_stderr() {
        let error = run(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).err().unwrap();
        let message = error.to_string();
        assert!(message.contains("sh -c") && message.contains("status: 3"), "{message}");
        assert!(message.ends_with("broken"), "{message}");
    }

    #[test]
    fn waiting_has_a_limit() {
        let mut child = start_child(Command::new("sleep").arg("30")).unwrap();
        assert!(wait(&mut child, Duration::from_millis(20)).unwrap().is_none());
        kill(&mut child);
        assert!(child.try_wait().unwrap().is_some());
    }

    #[test]
    fn a_background_program_ends_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let background =
            Background::start(Command::new("sleep").arg("30"), &folder.path().join("log")).unwrap();
        let pid = background.child.id();
        drop(background);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
