//! Two processes, each on a core of its own, and the messages between them.

use super::transport::Transport;
use super::wire::Wire;
use super::words::sum_of;
use super::{Job, broken};
use crate::child::{self, Process};
use crate::error::Error;
use crate::interrupt;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Order of the messages between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pattern {
    /// One message there and one back, again and again.
    PingPong,
    /// Messages one way, and one back at the end.
    Stream,
    /// As [`Pattern::PingPong`], each a period after the one before.
    PacedPingPong,
    /// As [`Pattern::Stream`], each a period after the one before.
    PacedStream,
}

impl Pattern {
    /// Returns whether each message is answered.
    pub fn answers(self) -> bool {
        matches!(self, Pattern::PingPong | Pattern::PacedPingPong)
    }

    /// Returns whether messages come one at a time, with pauses.
    fn is_paced(self) -> bool {
        matches!(self, Pattern::PacedPingPong | Pattern::PacedStream)
    }
}

/// Times that a run took, or one message of it, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// From the first message to the end.
    pub wall: f64,
    /// Processor time of both processes. Where messages are paced, without what the first one does between them.
    pub cpu: f64,
}

impl Spent {
    /// The times of one message of so many.
    pub fn of_one(self, messages: u64) -> Spent {
        Spent { wall: self.wall / messages as f64, cpu: self.cpu / messages as f64 }
    }
}

/// Usual time from one paced message to the next.
pub const PERIOD: Duration = Duration::from_millis(1);
/// Messages before the clock starts.
pub const WARM_UP: u64 = 64;
/// Bytes of the message that ends a stream.
const LAST_BYTES: usize = 64;

/// The work of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Connection of the two processes.
    pub transport: Transport,
    /// Order of the messages.
    pub pattern: Pattern,
    /// Bytes of a message.
    pub bytes: usize,
    /// Number of messages.
    pub messages: u64,
    /// Time from one paced message to the next: the first process's business alone.
    pub period: Duration,
    /// The cores of the two processes.
    pub cores: [usize; 2],
}

impl Work {
    /// Does the work.
    ///
    /// # Errors
    /// [`Error::Failed`] if either process fails or they have not seen the same words, and [`Error::Interrupted`].
    pub fn run(&self) -> Result<Spent, Error> {
        interrupt::check()?;
        let [ours, theirs] = self.transport.ends()?;
        let second = start(&Job::Second(*self), theirs.0.into(), theirs.1.into())?;
        pin(self.cores[0]);
        let mut wire = self.transport.open(ours, self.largest(), false)?;
        let warm_up = Work { period: self.period.min(PERIOD), ..*self };
        warm_up.first(wire.as_mut(), WARM_UP)?;
        let (before, begin) = (cpu_of(&second)?, Instant::now());
        let cpu = self.first(wire.as_mut(), self.messages)?;
        let spent = Spent { wall: begin.elapsed().as_secs_f64(), cpu: cpu + cpu_of(&second)? - before };
        drop(wire);
        second.finish()?;
        Ok(spent)
    }

    fn largest(&self) -> usize {
        self.bytes.max(LAST_BYTES)
    }

    /// The first process's part; returns its processor time.
    ///
    /// It waits for the time of a paced message by looking at the clock. That is no part of sending, and is not in the
    /// processor time; a clock that is looked at, and no timer, so that its core is awake whatever the transport.
    fn first(&self, wire: &mut dyn Wire, messages: u64) -> Result<f64, Error> {
        let is_paced = self.pattern.is_paced();
        let (mut sent, mut paused) = (0u64, 0.0);
        let (begin, before) = (Instant::now(), own_cpu());
        for number in 0..messages {
            if is_paced {
                let pause = own_cpu();
                let due = begin + self.period * (number as u32 + 1);
                while Instant::now() < due {
                    std::hint::spin_loop();
                }
                paused += own_cpu() - pause;
            }
            sent = sent.wrapping_add(wire.send(self.bytes, number)?);
            if self.pattern.answers() {
                sent = sent.wrapping_sub(wire.receive(self.bytes)?);
            }
        }
        let last = own_cpu();
        // What came back were sums of the same words; or the last message's words count up from the sum that the other one
        // found.
        let agrees = match self.pattern.answers() {
            true => sent == 0,
            false => wire.receive(LAST_BYTES)? == sum_of(LAST_BYTES as u64 / 8, sent),
        };
        match agrees {
            true => Ok(if is_paced { last } else { own_cpu() } - before - paused),
            false => Err(broken("the sums differ")),
        }
    }

    /// The second process: does its part, with its standard input and output as the ends.
    ///
    /// # Errors
    /// [`Error::Failed`] if the transport breaks.
    pub fn second(&self) -> Result<(), Error> {
        pin(self.cores[1]);
        let end = |end: std::io::Result<OwnedFd>| end.map_err(broken);
        let ends = (
            end(std::io::stdin().as_fd().try_clone_to_owned())?,
            end(std::io::stdout().as_fd().try_clone_to_owned())?,
        );
        let mut wire = self.transport.open(ends, self.largest(), true)?;
        for messages in [WARM_UP, self.messages] {
            let mut received = 0u64;
            for number in 0..messages {
                received = received.wrapping_add(wire.receive(self.bytes)?);
                if self.pattern.answers() {
                    wire.send(self.bytes, number)?;
                }
            }
            if !self.pattern.answers() {
                wire.send(LAST_BYTES, received)?;
            }
        }
        Ok(())
    }
}

/// Keeps this process on a core. Where there is no such core it stays where it is, and the figures are the
/// worse for it.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

/// Processor time of this process so far, in seconds.
pub fn own_cpu() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Starts the process that does `job`.
///
/// # Errors
/// [`Error::Io`] if the program cannot be started.
pub fn start(job: &Job, stdin: Stdio, stdout: Stdio) -> Result<Process, Error> {
    let job = serde_json::to_string(job).map_err(broken)?;
    Process::start(child::peer("ipc", [job])?.stdin(stdin).stdout(stdout))
}

/// Processor time of the first thread of a process so far, in seconds: there is no other in it.
fn cpu_of(process: &Process) -> Result<f64, Error> {
    let name = format!("/proc/{}/schedstat", process.id());
    let text = std::fs::read_to_string(&name).map_err(|error| broken(format!("{name}: {error}")))?;
    let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse::<u64>().ok());
    nanoseconds.map(|nanoseconds| nanoseconds as f64 / 1e9).ok_or_else(|| broken(format!("{name}: {text}")))
}
