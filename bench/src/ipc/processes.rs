//! Processes of a run, and the messages between them.
//!
//! - [`Work`]: two processes, each on a core of its own
//! - [`forwarding`]: a third one in the middle, which ships on what it received, or a copy of it
//! - [`two_pairs`]: a second pair beside the first, whose price for the first is told in comparison with a neighbour that moves
//!   nothing but keeps its cores as busy. With four cores or more every process has one and polls. With fewer each pair has
//!   one core, and its ends sleep.

use super::exchange::{Exchange, Failure, Spent, pin};
use super::transport::{Ends, Transport, Waits, buffers, trusted};
use super::words::{fill, sum};
use super::{broken, head};
use crate::child::{self, Process};
use crate::engine::{Metric, Rounds, Side};
use crate::error::Error;
use crate::interrupt;
use crate::row::Row;
use bywash_container::{Options, Path, Wait, socket_pair};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Name of the program for iceoryx2, which lies beside the command where it could be built: so the command needs nothing of
/// what iceoryx2 needs to be built.
const ICEORYX2: &str = "bywash-bench-iceoryx2";
const FORWARDED_BYTES: usize = 64 << 10;
/// Ratio of the time in the middle, copying to shipping on.
const FORWARDED_GOAL: f64 = 5.0;
/// Longest time that the first process waits for the answer of the last one.
const ANSWER: Duration = Duration::from_secs(60);
/// The ratio that counts as "costs nothing", which no two runs alone reach every time either.
const NOTHING: f64 = 0.95;
const BYTES: usize = 4 << 10;
/// Messages that a neighbour without a partner uses in turns: as much memory as a pair's.
const IN_TURN: usize = (4 << 20) / BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Job {
    Second(Work),
    Middle {
        messages: u64,
        copies: bool,
    },
    Sink {
        messages: u64,
    },
    /// A neighbour of the first pair, which moves messages, or writes and sums them alone.
    Neighbour {
        moves: bool,
        cores: usize,
        messages: u64,
    },
}

impl Job {
    /// Does the part, with the standard input and output as the ends. The process ends with its parent, whatever it waits
    /// for.
    pub fn run(self) -> Result<(), Failure> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let ends =
            (std::io::stdin().as_fd().try_clone_to_owned()?, std::io::stdout().as_fd().try_clone_to_owned()?);
        match self {
            Job::Second(work) => work.second(ends),
            Job::Middle { messages, copies } => middle(ends, messages, copies),
            Job::Sink { messages } => sink(ends, messages),
            Job::Neighbour { moves, cores, messages } => neighbour(moves, cores, messages),
        }
    }

    fn start(self, stdin: impl Into<Stdio>, stdout: impl Into<Stdio>) -> Result<Process, Error> {
        let job = serde_json::to_string(&self).map_err(broken)?;
        Process::start(child::peer("ipc", [job])?.stdin(stdin).stdout(stdout))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub transport: Transport,
    pub exchange: Exchange,
}

impl Work {
    /// Does the work; fails if either process fails or they have not seen the same words.
    pub fn run(&self) -> Result<Spent, Error> {
        interrupt::check()?;
        if self.transport == Transport::Iceoryx2 { self.run_iceoryx2() } else { self.first().map_err(broken) }
    }

    fn first(&self) -> Result<Spent, Failure> {
        let [ours, theirs] = self.transport.ends(self.exchange.largest())?;
        let second = Job::Second(*self).start(theirs.0, theirs.1)?;
        pin(self.exchange.cores[0]);
        let mut wire = self.transport.open(ours, self.exchange.largest(), false)?;
        let spent = self.exchange.first(wire.as_mut(), second.id())?;
        drop(wire);
        second.finish()?;
        Ok(spent)
    }

    fn second(&self, ends: Ends) -> Result<(), Failure> {
        pin(self.exchange.cores[1]);
        let mut wire = self.transport.open(ends, self.exchange.largest(), true)?;
        self.exchange.second(wire.as_mut())
    }

    fn run_iceoryx2(&self) -> Result<Spent, Error> {
        let program = child::this_program()?.with_file_name(ICEORYX2);
        if !program.is_file() {
            let reason = std::fs::read_to_string(program.with_extension("reason")).unwrap_or_default();
            return Err(Error::Unavailable(match reason.trim() {
                "" => format!("{} is not there: make bench-peers builds it", program.display()),
                reason => format!("{ICEORYX2} could not be built: {reason}"),
            }));
        }
        let exchange = serde_json::to_string(&self.exchange).map_err(broken)?;
        let words = [exchange, buffers(self.exchange.bytes).to_string()];
        let output = child::run(Command::new(program).args(words))?.stdout;
        serde_json::from_str(&output)
            .map_err(|_| broken(format!("{ICEORYX2} gave '{}' instead of two times", output.trim())))
    }
}

/// Forwarding unmapped against forwarding a copy: the median time that the process in the middle had a message (it is put
/// off its core now and then, and wakes the last one now and then), and the throughput from end to end.
pub fn forwarding(quick: bool, rounds: Rounds) -> Result<Vec<Row>, Error> {
    let messages = if quick { 500 } else { 10_000 };
    let unmapped = Side::new("bywash", || forward(messages, false).map_err(broken));
    let copied = Side::new("forwarding a copy", || forward(messages, true).map_err(broken));
    let runs = rounds.run(vec![unmapped, copied])?;
    let head = Row { note: "every process spins, then sleeps".into(), ..head("64 KiB forwarded unmapped") };
    let bytes = (FORWARDED_BYTES as u64 * messages) as f64;
    let middle = Metric::cost("time in the middle", "ns", |run: &[f64; 2]| run[1] * 1e9);
    let whole = Metric::rate("throughput", "B/s", |run: &[f64; 2]| bytes / run[0]);
    Ok(vec![
        middle.row(&head, &runs[0], &runs[1], Some(FORWARDED_GOAL)),
        whole.row(&head, &runs[0], &runs[1], None),
    ])
}

fn options(bytes: usize) -> Options {
    // Three processes on two cores: an idle one must leave its core.
    Options::new().wait(Wait::Adaptive).arena_bytes((bytes * 8).max(1 << 20))
}

/// Sends messages through the middle, which ships copies on if it `copies`. Returns the seconds from the first message to
/// the answer of the last process, and those in the middle.
fn forward(messages: u64, copies: bool) -> Result<[f64; 2], Failure> {
    interrupt::check()?;
    let (to_middle, middle_in) = socket_pair()?;
    let (middle_out, sink_in) = socket_pair()?;
    let middle = Job::Middle { messages, copies }.start(middle_in, middle_out)?;
    let sink = Job::Sink { messages }.start(sink_in, Stdio::null())?;
    pin(0);
    let path = Path::over(to_middle, &trusted(options(FORWARDED_BYTES)))?;
    let begin = Instant::now();
    let mut sent = 0u64;
    for number in 0..messages {
        let mut shipment = path.alloc(FORWARDED_BYTES)?;
        sent = sent.wrapping_add(fill(&mut shipment, number));
        path.ship(shipment)?;
    }
    let answer = path.receive_within(ANSWER)?;
    let whole = begin.elapsed().as_secs_f64();
    let &[found, nanoseconds] = answer.to_vec()?.as_chunks::<8>().0 else {
        return Err("the process in the middle gave an answer of another length".into());
    };
    if u64::from_ne_bytes(found) != sent {
        return Err("the sums differ".into());
    }
    drop((answer, path));
    middle.finish()?;
    sink.finish()?;
    Ok([whole, u64::from_ne_bytes(nanoseconds) as f64 / 1e9])
}

fn middle((from, to): Ends, messages: u64, copies: bool) -> Result<(), Failure> {
    pin(1);
    let class = |options: Options| if copies { trusted(options) } else { options.forward() };
    let from = Path::over(from, &class(options(1)))?;
    let to = Path::over(to, &class(options(FORWARDED_BYTES)))?;
    let mut had = Vec::with_capacity(messages as usize);
    for _ in 0..messages {
        let message = from.receive()?;
        let begin = Instant::now();
        if copies {
            let mut copy = to.alloc(message.len())?;
            message.copy_to(&mut copy)?;
            drop(message);
            to.ship(copy)?;
        } else {
            to.ship_message(message)?;
        }
        had.push(begin.elapsed());
    }
    let found = to.receive()?.to_vec()?;
    let mut answer = from.alloc(16)?;
    answer[..8].copy_from_slice(&found);
    had.sort_unstable();
    let median = had.get(had.len() / 2).map_or(0, Duration::as_nanos) as u64;
    answer[8..].copy_from_slice(&median.to_ne_bytes());
    from.ship(answer)?;
    // Until the first process has it.
    let _ = from.receive();
    Ok(())
}

fn sink(ends: Ends, messages: u64) -> Result<(), Failure> {
    pin(0);
    let path = Path::over(ends.0, &trusted(options(1)))?;
    let mut found = 0u64;
    for _ in 0..messages {
        let message = path.receive()?;
        found = found.wrapping_add(sum(&message.first().map()?));
    }
    let mut answer = path.alloc(8)?;
    answer.copy_from_slice(&found.to_ne_bytes());
    path.ship(answer)?;
    let _ = path.receive();
    Ok(())
}

/// Work of a pair, on cores of its own; `which` is 0 or 1.
fn work(which: usize, cores: usize, messages: u64) -> Work {
    let (waits, cores) = match cores {
        4.. => (Waits::Spin, [2 * which, 2 * which + 1]),
        _ => (Waits::Sleep, [which, which]),
    };
    let exchange = Exchange { bytes: BYTES, messages, answered: false, period: None, cores };
    Work { transport: Transport::Trusted(waits), exchange }
}

/// The first pair beside a second one, against the first alone and beside a process that writes and sums messages of its own
/// on the other pair's cores.
pub fn two_pairs(quick: bool, rounds: Rounds, cores: usize) -> Result<Vec<Row>, Error> {
    let messages = if quick { 20_000 } else { 500_000 };
    let seconds = move || work(0, cores, messages).run().map(|spent| spent.wall);
    let beside = move |moves| {
        move || {
            let mut neighbour =
                Job::Neighbour { moves, cores, messages }.start(Stdio::null(), Stdio::piped())?;
            // It says when it is at work, and works until it is ended.
            let ready = neighbour.child.stdout.as_mut().map(|out| out.read_exact(&mut [0]));
            ready.transpose().map_err(broken)?;
            let seconds = seconds()?;
            match neighbour.has_ended() {
                true => Err(neighbour.failure("ended early".into())),
                false => neighbour.end().map(|_| seconds),
            }
        }
    };
    let sides = vec![
        Side::new("bywash", beside(true)),
        Side::new("alone", seconds),
        Side::new("beside writing and summing", beside(false)),
    ];
    let runs = rounds.run(sides)?;
    let note = format!("bywash {} on both sides", work(0, cores, messages).transport.waits());
    let head = Row { note, ..head("4 KiB, beside a second pair") };
    let bytes = (BYTES as u64 * messages) as f64;
    let throughput = Metric::rate("throughput", "B/s", |seconds: &f64| bytes / seconds);
    // What a busy neighbour costs in the caches is the price of its core, whatever it does.
    Ok(vec![
        throughput.row(&head, &runs[0], &runs[2], Some(NOTHING)),
        throughput.row(&head, &runs[0], &runs[1], None),
    ])
}

fn neighbour(moves: bool, cores: usize, messages: u64) -> Result<(), Failure> {
    let work = work(1, cores, messages);
    let mut memory = vec![0; IN_TURN * BYTES];
    for round in 0u64.. {
        if moves {
            work.run()?;
        } else {
            pin(work.exchange.cores[0]);
            for (number, message) in memory.chunks_exact_mut(BYTES).enumerate() {
                if fill(message, number as u64) != sum(message) {
                    return Err("the sums differ".into());
                }
            }
        }
        if round == 0 {
            std::io::stdout().write_all(&[0]).and_then(|()| std::io::stdout().flush())?;
        }
    }
    Ok(())
}
