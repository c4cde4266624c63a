//! Waits for the program: signals, job control, the end.
//!
//! The program is in this process's group, as it would be without bywash, so signals of the terminal (Ctrl-C,
//! Ctrl-Z, a resize) reach it directly. Signals that another process sends to *this* process are meant for
//! the program and are passed on. The sender tells the two apart: the kernel or a process. A signal that a
//! process sends to the whole group with kill(2) looks like the latter and reaches the program twice, except
//! SIGCONT and signals that the program itself sent.
//!
//! When the terminal stops the program, this process stops too, so that the shell sees a stopped job. When it
//! is continued, it continues the program unless the shell already has. A program that was stopped in another
//! way (SIGSTOP, or no terminal) is just waited for: whoever stopped it may continue it alone.
//!
//! Orphans of the program are adopted by init as always: this process is no subreaper, since a daemon may
//! check its parent. The report gives the number of processes left running.

use super::process::{self, Arrival, ExitWatch, Failed, Image};
use crate::error::Failure;
use crate::report::ProgramEnd;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::path::Path;

/// Runs `image` to its end. Returns the program's process id and its end.
pub fn run(image: &Image, program: &Path) -> Result<(u32, ProgramEnd), Failure> {
    let watch = ExitWatch::begin(&passed_on())
        .map_err(|source| Failure::Supervise { what: "block signals", source })?;
    let child = image.spawn(&watch).map_err(|failed| match failed {
        Failed::Fork(source) => Failure::Supervise { what: "make a process", source },
        Failed::Start(source) => Failure::start(program, source),
    })?;
    process::survive_broken_pipes();
    loop {
        if let Some(end) = look(child)? {
            return Ok((child.as_raw_nonzero().get().unsigned_abs(), end));
        }
        // SIGCHLD is blocked, so a change since `look` is pending and wakes this wait.
        let arrival =
            watch.next().map_err(|source| Failure::Supervise { what: "wait for signals", source })?;
        handle(child, &arrival);
    }
}

/// Signals that are passed on when a process sends them: all that a program can handle, except SIGCHLD, which
/// reports the child's state, and SIGTTIN and SIGTTOU, which the terminal sends to its users. SIGALRM and the
/// other timers' signals are included because of timers that were set before exec.
fn passed_on() -> Vec<i32> {
    const OWN: [i32; 5] = [libc::SIGKILL, libc::SIGSTOP, libc::SIGCHLD, libc::SIGTTIN, libc::SIGTTOU];
    let standard = (1..=libc::SIGSYS).filter(|signal| !OWN.contains(signal));
    standard.chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).collect()
}

/// Checks without waiting if the child has ended, and follows it into a stop.
fn look(child: Pid) -> Result<Option<ProgramEnd>, Failure> {
    loop {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        match rustix::process::waitpid(Some(child), options) {
            Ok(None) => return Ok(None),
            Ok(Some((_, status))) => match end(status) {
                Some(end) => return Ok(Some(end)),
                None => follow_stop(child, status),
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(Failure::Supervise { what: "wait for the program", source: error.into() });
            }
        }
    }
}

fn end(status: WaitStatus) -> Option<ProgramEnd> {
    status.exit_status().map(ProgramEnd::Exit).or_else(|| status.terminating_signal().map(ProgramEnd::Signal))
}

fn follow_stop(child: Pid, status: WaitStatus) {
    let by_terminal = matches!(status.stopping_signal(), Some(libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU));
    let own_group = rustix::process::getpgid(Some(child)) == rustix::process::getpgid(None);
    if by_terminal && own_group && has_terminal() {
        process::send(rustix::process::getpid(), libc::SIGSTOP);
        continue_if_stopped(child);
    }
}

/// Returns true if this process has a controlling terminal (tty(4)).
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

fn handle(child: Pid, arrival: &Arrival) {
    let by_program = arrival.sender == Some(child.as_raw_nonzero().get());
    let own = arrival.sender == Some(rustix::process::getpid().as_raw_nonzero().get());
    match arrival.signal {
        libc::SIGCHLD => {}
        libc::SIGCONT => continue_if_stopped(child),
        // A timer stays with the process that called exec, so its signal arrives here and not at the program.
        signal @ (libc::SIGALRM | libc::SIGVTALRM | libc::SIGPROF) => process::send(child, signal),
        // The terminal sends a hang-up to the session's leader alone.
        libc::SIGHUP if arrival.sender.is_none() && leads_session() => process::send(child, libc::SIGHUP),
        signal if arrival.sender.is_some() && !by_program && !own => process::send(child, signal),
        _ => {}
    }
}

fn leads_session() -> bool {
    rustix::process::getsid(None) == Ok(rustix::process::getpid())
}

/// Continues the child if it is stopped. A shell continues the whole group, but another process may have
/// continued only this process.
fn continue_if_stopped(child: Pid) {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.as_raw_nonzero())).unwrap_or_default();
    // The state follows the program's name, which is in parentheses (proc_pid_stat(5)).
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    if state == Some('T') {
        process::send(child, Signal::CONT.as_raw());
    }
}
