//! Programs that run beside each other, and the CPU time of each.
//!
//! The kernel adds a child's CPU time to its parent's when the parent waits for it (getrusage(2), RUSAGE_CHILDREN), with
//! that of the children that the child has waited for. So the time of a child is the rise of that sum while it is waited
//! for, and nothing else may wait meanwhile.

use crate::child;
use crate::error::Error;
use crate::interrupt;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Greatest time until a program listens, and until it ends when it is told to.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_micros(500);

/// Program that is running; killed when dropped.
pub struct Process {
    child: Child,
    words: String,
    stderr: File,
    /// Output, if it is kept.
    stdout: Option<File>,
}

/// Program that has ended.
pub struct Ended {
    pub cpu_seconds: f64,
    /// Output, if it was kept.
    pub stdout: String,
    failure: Option<Error>,
}

impl Ended {
    /// Returns the CPU seconds of a program that ended with status 0.
    ///
    /// # Errors
    /// [`Error::Failed`] for another status, with what the program wrote to stderr.
    pub fn success(self) -> Result<f64, Error> {
        self.failure.map_or(Ok(self.cpu_seconds), Err)
    }
}

impl Process {
    /// Starts `command`.
    ///
    /// # Errors
    /// [`Error::Io`] with the program's name.
    pub fn start(command: &mut Command) -> Result<Process, Error> {
        interrupt::check()?;
        let stderr = child::capture()?;
        command.stderr(child::share(&stderr)?);
        let child = child::start_child(command)?;
        Ok(Process { child, words: child::words(command), stderr, stdout: None })
    }

    /// Starts `command` as [`Process::start`] does, and keeps its output.
    ///
    /// # Errors
    /// [`Error::Io`] with the program's name.
    pub fn start_telling(command: &mut Command) -> Result<Process, Error> {
        let stdout = child::capture()?;
        command.stdout(child::share(&stdout)?);
        let mut process = Process::start(command)?;
        process.stdout = Some(stdout);
        Ok(process)
    }

    /// Takes the ends of the pipes that the caller has set as standard input and output.
    pub fn take_pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        self.child.stdin.take().zip(self.child.stdout.take())
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    /// [`Error::Failed`] if it takes longer than [`child::LIMIT`].
    pub fn wait(self) -> Result<Ended, Error> {
        self.wait_for(child::LIMIT)
    }

    /// Waits until the program has ended with status 0, and returns its CPU seconds.
    ///
    /// # Errors
    /// Those of [`Process::wait`] and [`Ended::success`].
    pub fn finish(self) -> Result<f64, Error> {
        self.wait()?.success()
    }

    /// Ends the program by SIGTERM, and returns its CPU seconds.
    ///
    /// # Errors
    /// [`Error::Failed`] if it does not end.
    pub fn end(self) -> Result<f64, Error> {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        Ok(self.wait_for(PATIENCE)?.cpu_seconds)
    }

    fn wait_for(mut self, limit: Duration) -> Result<Ended, Error> {
        let before = children_seconds()?;
        let Some(status) = child::wait(&mut self.child, limit)? else {
            return Err(self.failure(format!("did not end within {} s", limit.as_secs())));
        };
        let cpu_seconds = children_seconds()? - before;
        // Ctrl-C reaches the child too, and is not its failure.
        interrupt::check()?;
        let failure = (!status.success()).then(|| self.failure(format!("ended with {status}")));
        let stdout = self.stdout.as_mut().map(child::text).unwrap_or_default();
        Ok(Ended { cpu_seconds, stdout, failure })
    }

    fn failure(&mut self, how: String) -> Error {
        child::failure(self.words.clone(), how, &mut self.stderr)
    }

    /// Waits until the program listens at `port` of the host that it runs in.
    ///
    /// # Errors
    /// [`Error::Failed`] if it ends or does not listen in time.
    pub fn listens(&mut self, protocol: Protocol, port: u16) -> Result<(), Error> {
        let begin = Instant::now();
        while !protocol.is_open(self.child.id(), port) {
            interrupt::check()?;
            let ended = self.child.try_wait().ok().flatten().map(|status| format!("ended with {status}"));
            let late = (begin.elapsed() > PATIENCE).then(|| format!("does not listen at port {port}"));
            if let Some(how) = ended.or(late) {
                return Err(self.failure(how));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            child::kill(&mut self.child);
        }
    }
}

/// Makes a command that reads nothing and whose output is dropped.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    quiet(Command::new(program))
}

fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Makes a command of `bywash flow`.
///
/// # Errors
/// [`Error::Io`] if this program cannot be found.
pub fn flow<F: AsRef<OsStr>>(
    flags: impl IntoIterator<Item = F>,
    from: impl AsRef<OsStr>,
    to: impl AsRef<OsStr>,
) -> Result<Command, Error> {
    let mut command = command(child::this_program()?);
    command.arg("flow").args(flags).arg(from).arg(to);
    Ok(command)
}

/// Makes a command of the hand-written loop of that name, with a buffer of `block` bytes where it has one.
///
/// # Errors
/// [`Error::Io`] if this program cannot be found.
pub fn by_hand(name: &str, from: &str, to: &str, block: u64) -> Result<Command, Error> {
    child::peer("flow", [name, from, to, &block.to_string()]).map(quiet)
}

fn children_seconds() -> Result<f64, Error> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_err(|errno| Error::failed("getrusage", std::io::Error::from(errno).to_string()))?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6)
}

/// Protocol of a socket that waits for peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// Returns whether a socket of the host that `process` runs in waits at `port`.
    fn is_open(self, process: u32, port: u16) -> bool {
        // The states of sockets that wait, in the tables of proc_pid_net(5).
        let (tables, state) = match self {
            Protocol::Tcp => (["tcp", "tcp6"], "0A"),
            Protocol::Udp => (["udp", "udp6"], "07"),
        };
        tables.iter().any(|table| {
            let text = fs::read_to_string(format!("/proc/{process}/net/{table}"));
            text.is_ok_and(|text| has_listener(&text, port, state))
        })
    }
}

fn has_listener(table: &str, port: u16, state: &str) -> bool {
    let address = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|local| local.ends_with(&address)) && fields.get(3) == Some(&state)
    })
}

/// Returns an address of the loopback interface at which nobody listens.
///
/// # Errors
/// [`Error::Failed`] with the kernel's reason.
pub fn free_address() -> Result<SocketAddr, Error> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map_err(|error| Error::failed("a socket", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut shell = command("sh");
        shell.args(["-c", script]);
        Process::start_telling(&mut shell).unwrap()
    }

    #[test]
    fn cpu_time_of_a_child_and_of_its_children() {
        let busy = "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done); true";
        let seconds = shell(busy).finish().unwrap();
        assert!(seconds > 0.005, "{seconds}");
    }

    #[test]
    fn a_failure_has_the_programs_own_words() {
        let ended = shell("echo told; echo broken >&2; exit 3").wait().unwrap();
        assert_eq!(ended.stdout, "told\n");
        let message = ended.success().unwrap_err().to_string();
        assert!(message.contains("status: 3") && message.ends_with("broken"), "{message}");
        let error = Process::start(&mut command("/no/such-program")).err().unwrap();
        assert!(
            matches!(error, Error::Io { .. }) && error.to_string().contains("no/such-program"),
            "{error}"
        );
    }

    #[test]
    fn listeners_are_found() {
        let here = std::process::id();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let receiver = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ports = [listener.local_addr().unwrap().port(), receiver.local_addr().unwrap().port()];
        assert!(Protocol::Tcp.is_open(here, ports[0]) && Protocol::Udp.is_open(here, ports[1]));
        drop((listener, receiver));
        assert!(!Protocol::Tcp.is_open(here, ports[0]) && !Protocol::Udp.is_open(here, ports[1]));
        let line = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 0100007F:8000 01 0";
        assert!(!has_listener(line, 8080, "0A"));
    }
}
