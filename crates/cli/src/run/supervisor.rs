//! Waiting for the program: signals, job control, the end.
//!
//! The program is in this process's group, as it would be without bywash, so what the terminal sends
//! (Ctrl-C, Ctrl-Z, a resize) reaches it without our doing. What another process sends to *us* is meant for
//! the program and is passed on. The two are told apart by who sent them: the kernel or a process. What a
//! process sends to the whole group with kill(2) looks like the latter and reaches the program twice, except
//! SIGCONT and what the program itself sent.
//!
//! When the program is stopped by the terminal, this process stops too, so that the shell sees a stopped
//! job; continued, it continues the program unless the shell already has. A program stopped in another way
//! (SIGSTOP, or no terminal) is just waited for: whoever stopped it may continue it alone.
//!
//! Orphans of the program go to init as always: this process is no subreaper, since a daemon may look at
//! its parent. The report says how many processes were left running.

use super::process::{self, Arrival, Failed, Image, Watch};
use crate::error::Failure;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::path::Path;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this status.
    Exit(i32),
    /// This signal killed it.
    Signal(i32),
}

/// Runs `image` to its end. Answers the program's process id and how it ended.
pub fn run(image: &Image, program: &Path) -> Result<(u32, End), Failure> {
    let watch =
        Watch::begin(&passed_on()).map_err(|source| Failure::Supervise { what: "block signals", source })?;
    let child = image.spawn(&watch).map_err(|failed| match failed {
        Failed::Fork(source) => Failure::Supervise { what: "make a process", source },
        Failed::Start(source) => Failure::start(program, source),
    })?;
    process::survive_broken_pipes();
    loop {
        if let Some(end) = look(child)? {
            return Ok((child.as_raw_nonzero().get().unsigned_abs(), end));
        }
        // SIGCHLD is blocked, so a change since the look above is waiting here.
        let arrival =
            watch.next().map_err(|source| Failure::Supervise { what: "wait for signals", source })?;
        handle(child, &arrival);
    }
}

/// Signals that are passed on when a process sends them: all that a program can have a handler for, but for
/// SIGCHLD, which says how the child is, and SIGTTIN and SIGTTOU, which the terminal sends to whoever uses it.
/// SIGALRM and the other timers' are among them for a timer that was set before exec.
fn passed_on() -> Vec<i32> {
    const OWN: [i32; 5] = [libc::SIGKILL, libc::SIGSTOP, libc::SIGCHLD, libc::SIGTTIN, libc::SIGTTOU];
    let standard = (1..=libc::SIGSYS).filter(|signal| !OWN.contains(signal));
    standard.chain(libc::SIGRTMIN()..=libc::SIGRTMAX()).collect()
}

/// Looks whether the child has ended, without waiting; follows it into a stop.
fn look(child: Pid) -> Result<Option<End>, Failure> {
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

fn end(status: WaitStatus) -> Option<End> {
    status.exit_status().map(End::Exit).or_else(|| status.terminating_signal().map(End::Signal))
}

fn follow_stop(child: Pid, status: WaitStatus) {
    let by_terminal = matches!(status.stopping_signal(), Some(libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU));
    let own_group = rustix::process::getpgid(Some(child)) == rustix::process::getpgid(None);
    if by_terminal && own_group && has_terminal() {
        process::send(rustix::process::getpid(), libc::SIGSTOP);
        continue_if_stopped(child);
    }
}

/// Whether this process has a controlling terminal (tty(4)).
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

fn handle(child: Pid, arrival: &Arrival) {
    let by_program = arrival.sender == Some(child.as_raw_nonzero().get());
    let own = arrival.sender == Some(rustix::process::getpid().as_raw_nonzero().get());
    match arrival.signal {
        libc::SIGCHLD => {}
        libc::SIGCONT => continue_if_stopped(child),
        // Timers stay with the process that called exec; the program is another.
        signal @ (libc::SIGALRM | libc::SIGVTALRM | libc::SIGPROF) => process::send(child, signal),
        // A hang-up goes to the session's leader alone.
        libc::SIGHUP if arrival.sender.is_none() && leads_session() => process::send(child, libc::SIGHUP),
        signal if arrival.sender.is_some() && !by_program && !own => process::send(child, signal),
        _ => {}
    }
}

fn leads_session() -> bool {
    rustix::process::getsid(None) == Ok(rustix::process::getpid())
}

/// The shell continues the whole group; anybody else may have continued us alone.
fn continue_if_stopped(child: Pid) {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.as_raw_nonzero())).unwrap_or_default();
    // The state follows the program's name, which is in parentheses (proc_pid_stat(5)).
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    if state == Some('T') {
        process::send(child, Signal::CONT.as_raw());
    }
}
