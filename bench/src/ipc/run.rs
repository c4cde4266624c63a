//! One run: two processes, each on a core of its own, and what passes between them.

use super::wire::{WAYS, Way, Wire, name_of};
use super::words::sum_of;
use crate::error::Error;
use crate::interrupt;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What passes between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

const PATTERNS: [(&str, Pattern); 4] = [
    ("ping-pong", Pattern::PingPong),
    ("stream", Pattern::Stream),
    ("paced-ping-pong", Pattern::PacedPingPong),
    ("paced-stream", Pattern::PacedStream),
];

/// Usual time from one paced message to the next.
pub const PERIOD: Duration = Duration::from_millis(1);

impl Pattern {
    /// Returns whether each message is answered.
    fn answers(self) -> bool {
        matches!(self, Pattern::PingPong | Pattern::PacedPingPong)
    }

    /// Returns whether messages come one at a time, with pauses.
    fn is_paced(self) -> bool {
        matches!(self, Pattern::PacedPingPong | Pattern::PacedStream)
    }
}

/// Times that a run took, in seconds.
#[derive(Clone, Copy, Debug, Default)]
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

/// Messages before the clock starts.
pub const WARM_UP: u64 = 64;
/// Bytes of the message that ends a stream.
const LAST_BYTES: usize = 64;

/// The work of a run.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Which way.
    pub way: Way,
    /// In which pattern.
    pub pattern: Pattern,
    /// Bytes of a message.
    pub bytes: usize,
    /// Messages.
    pub messages: u64,
    /// Time from one paced message to the next: the first process's business alone.
    pub period: Duration,
    /// The cores of the two processes.
    pub cores: [usize; 2],
}

impl Work {
    /// The command line of the second process, behind the command's own name.
    fn arguments(&self, service: &str) -> [String; 7] {
        let pattern =
            PATTERNS.iter().find(|(_, pattern)| *pattern == self.pattern).map_or("?", |known| known.0);
        [
            "bench".into(),
            "peer".into(),
            "ipc".into(),
            format!("{}/{pattern}/{}/{}", name_of(self.way), self.cores[0], self.cores[1]),
            self.bytes.to_string(),
            self.messages.to_string(),
            service.into(),
        ]
    }

    /// What [`Work::arguments`] said.
    pub fn parse(what: &str, bytes: usize, messages: u64) -> Option<Work> {
        let parts: Vec<&str> = what.split('/').collect();
        let &[way, pattern, first, second] = parts.as_slice() else { return None };
        let way = WAYS.iter().find(|(name, _)| *name == way)?.1;
        let pattern = PATTERNS.iter().find(|(name, _)| *name == pattern)?.1;
        let cores = [first.parse().ok()?, second.parse().ok()?];
        Some(Work { way, pattern, bytes, messages, period: PERIOD, cores })
    }

    /// Does the work; answers what it took.
    ///
    /// # Errors
    /// What failed, on either side.
    pub fn run(&self) -> Result<Spent, Error> {
        interrupt::check()?;
        let ends = self.way.ends()?;
        let service = format!("bywash-bench-{}", std::process::id());
        let program =
            std::env::current_exe().map_err(|error| Error::failed("this program", error.to_string()))?;
        let mut command = Command::new(program);
        command
            .args(self.arguments(&service))
            .stdin(ends.theirs.0)
            .stdout(ends.theirs.1)
            .stderr(Stdio::inherit());
        let mut child =
            Second(command.spawn().map_err(|error| Error::failed("the second process", error.to_string()))?);
        drop(command);
        pin(self.cores[0]);
        let outcome = self.way.open(ends.ours, self.largest(), false, &service).and_then(|mut wire| {
            let warm_up = Work { period: self.period.min(PERIOD), ..*self };
            warm_up.first(wire.as_mut(), WARM_UP)?;
            let (before, begin) = (child.cpu()?, Instant::now());
            let cpu = self.first(wire.as_mut(), self.messages)?;
            let wall = begin.elapsed().as_secs_f64();
            Ok(Spent { wall, cpu: cpu + child.cpu()? - before })
        });
        let spent = outcome?;
        child.finish()?;
        Ok(spent)
    }

    fn largest(&self) -> usize {
        self.bytes.max(LAST_BYTES)
    }

    /// The first process's part; answers its processor time.
    fn first(&self, wire: &mut dyn Wire, messages: u64) -> Result<f64, Error> {
        if self.pattern.is_paced() {
            return self.first_paced(wire, messages);
        }
        let begin = own_cpu();
        let mut sent = 0u64;
        for number in 0..messages {
            sent = sent.wrapping_add(wire.send(self.bytes, number)?);
            if self.pattern.answers() {
                sent = sent.wrapping_sub(wire.receive(self.bytes)?);
            }
        }
        self.check_sum(wire, sent)?;
        Ok(own_cpu() - begin)
    }

    /// As [`Work::first`], where it waits for the time of each message by looking at the clock. What it does so is no part of
    /// sending, and is not in the processor time; a clock that is looked at, and no timer, so that its core is awake
    /// whatever the way.
    fn first_paced(&self, wire: &mut dyn Wire, messages: u64) -> Result<f64, Error> {
        let mut sent = 0u64;
        let mut cpu = 0.0;
        let begin = Instant::now();
        for number in 0..messages {
            let due = begin + self.period * (number as u32 + 1);
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            let before = own_cpu();
            sent = sent.wrapping_add(wire.send(self.bytes, number)?);
            if self.pattern.answers() {
                sent = sent.wrapping_sub(wire.receive(self.bytes)?);
            }
            cpu += own_cpu() - before;
        }
        self.check_sum(wire, sent)?;
        Ok(cpu)
    }

    /// Checks that both processes have seen the same words.
    fn check_sum(&self, wire: &mut dyn Wire, sent: u64) -> Result<(), Error> {
        // What came back were sums of the same words; or the last message's words count up from the sum that the other one
        // found.
        let agrees = match self.pattern.answers() {
            true => sent == 0,
            false => wire.receive(LAST_BYTES)? == sum_of(LAST_BYTES as u64 / 8, sent),
        };
        match agrees {
            true => Ok(()),
            false => Err(Error::failed("two processes", "the sums differ".into())),
        }
    }

    /// The second process: does its part, with its standard input and output as the ends.
    ///
    /// # Errors
    /// What failed.
    pub fn second(&self, service: &str) -> Result<(), Error> {
        pin(self.cores[1]);
        let end =
            |end: std::io::Result<OwnedFd>| end.map_err(|error| Error::failed("an end", error.to_string()));
        let ends = (
            end(std::io::stdin().as_fd().try_clone_to_owned())?,
            end(std::io::stdout().as_fd().try_clone_to_owned())?,
        );
        let mut wire = self.way.open(ends, self.largest(), true, service)?;
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
pub(super) fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

/// The second process, which does not outlive its run.
pub(super) struct Second(pub(super) Child);

/// Processor time of this process so far, in seconds.
pub(super) fn own_cpu() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

impl Second {
    /// Processor time of its first thread so far, in seconds: there is no other in it.
    fn cpu(&self) -> Result<f64, Error> {
        let name = format!("/proc/{}/schedstat", self.0.id());
        let failed = |error: String| Error::failed("the second process", format!("{name}: {error}"));
        let text = std::fs::read_to_string(&name).map_err(|error| failed(error.to_string()))?;
        let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse::<u64>().ok());
        nanoseconds.map(|nanoseconds| nanoseconds as f64 / 1e9).ok_or_else(|| failed(text.clone()))
    }

    pub(super) fn finish(&mut self) -> Result<(), Error> {
        let status = self.0.wait().map_err(|error| Error::failed("the second process", error.to_string()))?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::failed("the second process", status.to_string())),
        }
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // It has ended already, mostly.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
