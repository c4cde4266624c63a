//! One run: two processes, each on a core of its own, and what passes between them.

use super::wire::{WAYS, Way, Wire, name_of};
use super::words::sum_of;
use crate::error::Error;
use crate::interrupt;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// What passes between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One message there and one back, again and again.
    PingPong,
    /// Messages one way, and one back at the end.
    Stream,
}

const PATTERNS: [(&str, Pattern); 2] = [("ping-pong", Pattern::PingPong), ("stream", Pattern::Stream)];
/// Messages before the clock starts.
const WARM_UP: u64 = 64;
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
    /// The cores of the two processes.
    pub cores: [usize; 2],
}

impl Work {
    /// The command line of the second process, behind the command's own name.
    fn arguments(&self, service: &str) -> [String; 6] {
        let pattern =
            PATTERNS.iter().find(|(_, pattern)| *pattern == self.pattern).map_or("?", |known| known.0);
        [
            "bench".into(),
            "ipc-peer".into(),
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
        Some(Work { way, pattern, bytes, messages, cores })
    }

    /// Does the work; answers the seconds that it took.
    ///
    /// # Errors
    /// What failed, on either side.
    pub fn run(&self) -> Result<f64, Error> {
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
            self.first(wire.as_mut(), WARM_UP)?;
            let begin = Instant::now();
            self.first(wire.as_mut(), self.messages)?;
            Ok(begin.elapsed().as_secs_f64())
        });
        let seconds = outcome?;
        child.finish()?;
        Ok(seconds)
    }

    fn largest(&self) -> usize {
        self.bytes.max(LAST_BYTES)
    }

    /// The first process's part.
    fn first(&self, wire: &mut dyn Wire, messages: u64) -> Result<(), Error> {
        let mut sent = 0u64;
        for number in 0..messages {
            sent = sent.wrapping_add(wire.send(self.bytes, number)?);
            if self.pattern == Pattern::PingPong {
                sent = sent.wrapping_sub(wire.receive(self.bytes)?);
            }
        }
        match self.pattern {
            // What came back were sums of the same words.
            Pattern::PingPong if sent != 0 => Err(Error::failed("two processes", "the sums differ".into())),
            Pattern::PingPong => Ok(()),
            Pattern::Stream => {
                // The last message's words count up from the sum that the other one found.
                match wire.receive(LAST_BYTES)? == sum_of(LAST_BYTES as u64 / 8, sent) {
                    true => Ok(()),
                    false => Err(Error::failed("two processes", "the sums differ".into())),
                }
            }
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
                if self.pattern == Pattern::PingPong {
                    wire.send(self.bytes, number)?;
                }
            }
            if self.pattern == Pattern::Stream {
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

impl Second {
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
