//! Programs that run beside each other, and the CPU time of each.
//!
//! The kernel adds a child's time to its parent's when the parent waits for it (getrusage(2), RUSAGE_CHILDREN), with
//! that of the children that it has waited for itself. So the time of one is what that sum rises by while it is
//! waited for, and this module must be the only one that waits meanwhile.

use crate::child;
use crate::error::Error;
use crate::interrupt;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest that a program may take to listen.
const LISTENING: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_micros(500);
/// States of a socket that waits for others, in the tables of proc_pid_net(5): of TCP, and of UDP.
const LISTENS: &str = "0A";
const UNCONNECTED: &str = "07";

/// A program that has been started; ended when dropped.
pub struct Process {
    child: Child,
    words: String,
    stderr: File,
}

impl Process {
    /// Starts `command`, with nothing to read and its output going nowhere unless the caller has set where.
    ///
    /// # Errors
    /// The kernel's, with the program's name.
    pub fn start(mut command: Command) -> Result<Process, Error> {
        interrupt::check()?;
        let stderr = child::capture()?;
        command.stderr(child::share(&stderr)?);
        let child = child::start_child(&mut command)?;
        Ok(Process { child, words: child::words(&command), stderr })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended; answers its CPU seconds.
    ///
    /// # Errors
    /// When it takes longer than [`child::LIMIT`], or ends with anything but status 0.
    pub fn finish(mut self) -> Result<f64, Error> {
        let before = children_seconds()?;
        let how = match child::wait(&mut self.child, child::LIMIT)? {
            Some(status) if status.success() => return Ok(children_seconds()? - before),
            Some(status) => format!("ended with {status}"),
            None => format!("did not end within {} s", child::LIMIT.as_secs()),
        };
        // Ctrl-C reaches the child too; what counts is that the user wants an end.
        interrupt::check()?;
        Err(child::failure(self.words.clone(), how, &mut self.stderr))
    }

    /// Waits until it has ended, however that may be; answers what it wrote.
    ///
    /// # Errors
    /// When it takes longer than [`child::LIMIT`].
    pub fn told(mut self, stdout: &mut File) -> Result<String, Error> {
        match child::wait(&mut self.child, child::LIMIT)? {
            Some(_) => Ok(child::text(stdout)),
            None => {
                let how = format!("did not end within {} s", child::LIMIT.as_secs());
                Err(child::failure(self.words.clone(), how, &mut self.stderr))
            }
        }
    }

    /// Ends it, however it takes that; answers its CPU seconds.
    ///
    /// # Errors
    /// When it does not go.
    pub fn end(mut self) -> Result<f64, Error> {
        let before = children_seconds()?;
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        match child::wait(&mut self.child, LISTENING)? {
            Some(_) => Ok(children_seconds()? - before),
            None => Err(child::failure(self.words.clone(), "did not end".into(), &mut self.stderr)),
        }
    }

    /// Waits until somebody can be reached by `door` at `port` of the host that it runs in.
    ///
    /// # Errors
    /// That it has ended instead, or does not come to it.
    pub fn listens(&mut self, door: Door, port: u16) -> Result<(), Error> {
        let begin = Instant::now();
        while !door.is_open(self.child.id(), port) {
            interrupt::check()?;
            let ended = self.child.try_wait().ok().flatten().map(|status| format!("ended with {status}"));
            let late = (begin.elapsed() > LISTENING).then(|| format!("does not listen at port {port}"));
            if let Some(how) = ended.or(late) {
                return Err(child::failure(self.words.clone(), how, &mut self.stderr));
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

/// A command that reads nothing and whose output goes nowhere.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// The program that is running, to be run again.
///
/// # Errors
/// When it cannot be found.
pub fn this_program() -> Result<Command, Error> {
    let program =
        std::env::current_exe().map_err(|error| Error::failed("this program", error.to_string()))?;
    Ok(command(program))
}

fn children_seconds() -> Result<f64, Error> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_err(|errno| Error::failed("getrusage", std::io::Error::from(errno).to_string()))?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6)
}

/// Where others come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Door {
    /// Whether it is open in the host of this process.
    fn is_open(self, process: u32, port: u16) -> bool {
        let (tables, state) = match self {
            Door::Tcp => (["tcp", "tcp6"], LISTENS),
            Door::Udp => (["udp", "udp6"], UNCONNECTED),
        };
        tables.iter().any(|table| {
            let text = fs::read_to_string(format!("/proc/{process}/net/{table}"));
            text.is_ok_and(|text| has_listener(&text, port, state))
        })
    }
}

/// Whether `table`, as proc_pid_net(5) has it, has a socket in `state` at `port`.
fn has_listener(table: &str, port: u16, state: &str) -> bool {
    let address = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|local| local.ends_with(&address)) && fields.get(3) == Some(&state)
    })
}

/// An address of the loopback interface at which nobody listens.
///
/// # Errors
/// The kernel's.
pub fn free_address() -> Result<SocketAddr, Error> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map_err(|error| Error::failed("a socket", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_a_child_and_of_its_children() {
        let mut busy = command("sh");
        busy.args(["-c", "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done); true"]);
        let seconds = Process::start(busy).unwrap().finish().unwrap();
        assert!(seconds > 0.005, "{seconds}");
    }

    #[test]
    fn a_failure_has_the_programs_own_words() {
        let mut broken = command("sh");
        broken.args(["-c", "echo broken >&2; exit 3"]);
        let message = Process::start(broken).unwrap().finish().unwrap_err().to_string();
        assert!(message.contains("status: 3") && message.ends_with("broken"), "{message}");
    }

    #[test]
    fn listeners_are_found() {
        let here = std::process::id();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let receiver = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ports = [listener.local_addr().unwrap().port(), receiver.local_addr().unwrap().port()];
        assert!(Door::Tcp.is_open(here, ports[0]) && Door::Udp.is_open(here, ports[1]));
        drop((listener, receiver));
        assert!(!Door::Tcp.is_open(here, ports[0]) && !Door::Udp.is_open(here, ports[1]));
        let line = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 0100007F:8000 01 0";
        assert!(!has_listener(line, 8080, LISTENS));
    }
}
