//! More than two processes: one in the middle that ships on what it received, or a copy of it; and a second pair beside the
//! first, whose price for the first is told in comparison with a neighbour that moves nothing but keeps its cores as busy.
//!
//! With four cores or more every process of two pairs has one and polls. With fewer each pair has one core, and its ends
//! sleep.

use super::exchange::{Exchange, Failure, pin};
use super::pair::{Work, standard_ends, start};
use super::transport::Transport;
use super::words::{fill, sum};
use super::{Job, broken, head, trusted};
use crate::engine::{Metric, Rounds, Side};
use crate::error::Error;
use crate::interrupt;
use crate::row::Row;
use bywash_container::{Options, Path, Wait, socket_pair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Bytes of a message that is forwarded.
const FORWARDED_BYTES: usize = 64 << 10;
/// Ratio of the time in the middle, copying to shipping on.
const FORWARDED_GOAL: f64 = 5.0;
/// Longest time that the first process waits for the answer of the last one.
const ANSWER: Duration = Duration::from_secs(60);
/// The ratio that counts as "costs nothing", which no two runs alone reach every time either.
const NOTHING: f64 = 0.95;
/// Bytes of a message of two pairs.
const BYTES: usize = 4 << 10;
/// Messages of a neighbour without a partner between two looks whether it shall end.
const LOOPS: u64 = 20_000;
/// Messages that a neighbour without a partner uses in turns: as much memory as a pair's.
const IN_TURN: usize = (4 << 20) / BYTES;

/// Times of a forwarding run, in seconds.
struct Forwarded {
    /// From the first message to the answer of the last process.
    whole: f64,
    /// Median time that the one in the middle had a message; it is put off its core now and then, and
    /// wakes the last one now and then.
    in_the_middle: f64,
}

/// Forwarding unmapped against forwarding a copy: the time in the middle, and the throughput from end to end.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn forwarding(quick: bool, rounds: Rounds) -> Result<Vec<Row>, Error> {
    let messages = if quick { 500 } else { 10_000 };
    let unmapped = Side::new("bywash", || forward(messages, false).map_err(broken));
    let copied = Side::new("forwarding a copy", || forward(messages, true).map_err(broken));
    let runs = rounds.run(vec![unmapped, copied])?;
    let head = Row { note: "every process spins, then sleeps".into(), ..head("64 KiB forwarded unmapped") };
    let bytes = (FORWARDED_BYTES as u64 * messages) as f64;
    let middle = Metric::cost("time in the middle", "ns", |run: &Forwarded| run.in_the_middle * 1e9);
    let whole = Metric::rate("throughput", "B/s", |run: &Forwarded| bytes / run.whole);
    Ok(vec![
        middle.row(&head, &runs[0], &runs[1], Some(FORWARDED_GOAL)),
        whole.row(&head, &runs[0], &runs[1], None),
    ])
}

fn options(bytes: usize) -> Options {
    // Three processes on two cores: an idle one must leave its core.
    Options::new().wait(Wait::Adaptive).arena_bytes((bytes * 8).max(1 << 20))
}

/// Sends messages through the middle, which ships copies on if it `copies`.
fn forward(messages: u64, copies: bool) -> Result<Forwarded, Failure> {
    interrupt::check()?;
    let (to_middle, middle_in) = socket_pair()?;
    let (middle_out, sink_in) = socket_pair()?;
    let middle = start(&Job::Middle { messages, copies }, middle_in.into(), middle_out.into())?;
    let sink = start(&Job::Sink { messages }, sink_in.into(), Stdio::null())?;
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
    let answer = answer.to_vec()?;
    let words: Vec<u64> = answer.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let &[found, nanoseconds] = words.as_slice() else {
        return Err("the process in the middle gave an answer of another length".into());
    };
    if found != sent {
        return Err("the sums differ".into());
    }
    drop(path);
    middle.finish()?;
    sink.finish()?;
    Ok(Forwarded { whole, in_the_middle: nanoseconds as f64 / 1e9 })
}

/// The process in the middle: from its standard input to its standard output.
pub fn middle(messages: u64, copies: bool) -> Result<(), Failure> {
    pin(1);
    let (from, to) = standard_ends()?;
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

/// The process at the end.
pub fn sink(messages: u64) -> Result<(), Failure> {
    pin(0);
    let path = Path::over(standard_ends()?.0, &trusted(options(1)))?;
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
    let (wait, cores) = match cores {
        4.. => (Wait::Spin, [2 * which, 2 * which + 1]),
        _ => (Wait::Sleep, [which, which]),
    };
    let exchange = Exchange { bytes: BYTES, messages, answered: false, period: None, cores };
    Work { transport: Transport::Trusted(wait), exchange }
}

/// The first pair beside a second one, against the first alone and beside a process that writes and sums messages of its own
/// on the other pair's cores.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn two_pairs(quick: bool, rounds: Rounds, cores: usize) -> Result<Vec<Row>, Error> {
    let messages = if quick { 20_000 } else { 500_000 };
    let seconds = move || work(0, cores, messages).run().map(|spent| spent.wall);
    let beside = move |moves| {
        move || {
            let job = Job::Neighbour { moves, cores, messages };
            let mut neighbour = start(&job, Stdio::piped(), Stdio::piped())?;
            // It says when it is at work.
            let ready = neighbour.child.stdout.as_mut().map(|out| out.read_exact(&mut [0]));
            ready.transpose().map_err(broken)?;
            let seconds = seconds()?;
            // And ends when nobody holds the other end any more.
            drop(neighbour.child.stdin.take());
            neighbour.finish()?;
            Ok(seconds)
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

/// The neighbour: works until its standard input ends. It moves messages, or writes and sums them alone.
pub fn neighbour(moves: bool, cores: usize, messages: u64) -> Result<(), Failure> {
    let work = work(1, cores, messages);
    let mut messages = vec![0; IN_TURN * BYTES];
    let mut said = false;
    loop {
        if moves {
            work.run()?;
        } else {
            pin(work.exchange.cores[0]);
            let difference = (0..work.exchange.messages.min(LOOPS)).fold(0u64, |difference, number| {
                let message = &mut messages[(number as usize % IN_TURN) * BYTES..][..BYTES];
                difference.wrapping_add(fill(message, number)).wrapping_sub(sum(message))
            });
            if difference != 0 {
                return Err("the sums differ".into());
            }
        }
        if !said {
            std::io::stdout().write_all(&[0]).and_then(|()| std::io::stdout().flush())?;
            said = true;
        }
        let input = std::io::stdin();
        let mut polled = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0) {
            return Ok(());
        }
    }
}
