//! The exchange of messages between two processes, whatever the transport. The program bench/iceoryx2 has this file too.

use super::words::sum_of;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Any error of a transport.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Longest time from one paced message to the next before the clock starts.
const PERIOD: Duration = Duration::from_millis(1);
/// Messages before the clock starts.
const WARM_UP: u64 = 64;
/// Bytes of the message that ends a stream.
const LAST_BYTES: usize = 64;

/// One end of a transport.
pub trait Wire {
    /// Sends a message of `bytes`, each word of which is made from `seed`; returns their sum.
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Failure>;

    /// Receives a message of `bytes`; returns the sum of its words.
    fn receive(&mut self, bytes: usize) -> Result<u64, Failure>;
}

pub fn check_length(got: usize, wanted: usize) -> Result<(), Failure> {
    if got == wanted { Ok(()) } else { Err(format!("received {got} bytes instead of {wanted}").into()) }
}

/// Times that a run took, or one message of it, in seconds: from the first message to the end, and the processor time of both
/// processes. Where messages are paced, the latter is without what the first one does between them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    pub wall: f64,
    pub cpu: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    pub bytes: usize,
    pub messages: u64,
    /// Each message is answered by one as large; otherwise one message comes back at the end.
    pub answered: bool,
    /// Time from one message to the next, where messages are paced.
    pub period: Option<Duration>,
    pub cores: [usize; 2],
}

impl Exchange {
    pub fn largest(&self) -> usize {
        self.bytes.max(LAST_BYTES)
    }

    /// Does the first process's part; `second` is the id of the other one.
    pub fn first(&self, wire: &mut dyn Wire, second: u32) -> Result<Spent, Failure> {
        let period = self.period.map(|period| period.min(PERIOD));
        Exchange { messages: WARM_UP, period, ..*self }.lead(wire)?;
        let (before, begin) = (cpu_of(second)?, Instant::now());
        let cpu = self.lead(wire)?;
        Ok(Spent { wall: begin.elapsed().as_secs_f64(), cpu: cpu + cpu_of(second)? - before })
    }

    /// Sends the messages and checks what comes back; returns this process's processor time.
    ///
    /// It waits for the time of a paced message by looking at the clock, and not on a timer, so that its core is awake
    /// whatever the transport. That is no part of sending, and not in the processor time.
    fn lead(&self, wire: &mut dyn Wire) -> Result<f64, Failure> {
        let (mut sent, mut paused) = (0u64, 0.0);
        let (begin, before) = (Instant::now(), own_cpu());
        for number in 0..self.messages {
            if let Some(period) = self.period {
                let pause = own_cpu();
                while begin.elapsed() < period * (number as u32 + 1) {
                    std::hint::spin_loop();
                }
                paused += own_cpu() - pause;
            }
            sent = sent.wrapping_add(wire.send(self.bytes, number)?);
            if self.answered {
                sent = sent.wrapping_sub(wire.receive(self.bytes)?);
            }
        }
        let last = own_cpu();
        // Answers have the same words as what they answer; the words of a last message count up from the sum that the
        // other process found.
        let agrees = match self.answered {
            true => sent == 0,
            false => wire.receive(LAST_BYTES)? == sum_of(LAST_BYTES as u64 / 8, sent),
        };
        let end = if self.period.is_some() { last } else { own_cpu() };
        if agrees { Ok(end - before - paused) } else { Err("the sums differ".into()) }
    }

    pub fn second(&self, wire: &mut dyn Wire) -> Result<(), Failure> {
        for messages in [WARM_UP, self.messages] {
            let mut received = 0u64;
            for number in 0..messages {
                received = received.wrapping_add(wire.receive(self.bytes)?);
                if self.answered {
                    wire.send(self.bytes, number)?;
                }
            }
            if !self.answered {
                wire.send(LAST_BYTES, received)?;
            }
        }
        Ok(())
    }
}

/// Keeps this thread on a core. Where there is no such core it stays where it is, and the figures are the worse for it.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

fn own_cpu() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Processor time of the first thread of a process so far, in seconds: there is no other in it.
fn cpu_of(process: u32) -> Result<f64, Failure> {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat"))?;
    let nanoseconds: u64 = text.split_whitespace().next().ok_or("schedstat is empty")?.parse()?;
    Ok(nanoseconds as f64 / 1e9)
}
