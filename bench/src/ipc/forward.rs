//! Forwarding through a process in the middle: it ships on what it received, or a copy of it.

use super::case::empty;
use super::run::{Second, pin};
use super::wire::{container, trusted};
use super::words::{fill, sum};
use crate::error::Error;
use crate::row::Row;
use crate::statistics::Summary;
use bywash_container::{Options, Path, Wait, socket_pair};
use rustix::io::{FdFlags, fcntl_setfd};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The name of this pattern on the command line of the other processes.
pub const MIDDLE: &str = "middle";
/// As [`MIDDLE`], where it copies.
pub const MIDDLE_COPYING: &str = "middle-copying";
/// As [`MIDDLE`], for the process at the end.
pub const SINK: &str = "sink";

/// What a run found.
#[derive(Clone, Copy, Debug)]
struct Forwarded {
    /// From the first message to the answer of the last process.
    pub seconds: f64,
    /// That the one in the middle had a message, in the median; it is put off its core now and then, and
    /// wakes the last one now and then.
    pub seconds_in_the_middle: f64,
}

/// Bytes of a message that is forwarded.
const FORWARDED_BYTES: usize = 64 << 10;

/// Unmapped against copied: from end to end, and the time that the one in the middle takes.
///
/// # Errors
/// What failed.
pub fn rows(quick: bool, pairs: u32) -> Result<Vec<Row>, Error> {
    let messages = if quick { 500 } else { 10_000 };
    let (mut unmapped, mut copied) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        for turn in [pair % 2 == 0, pair % 2 != 0] {
            let runs = if turn { &mut unmapped } else { &mut copied };
            runs.push(run(FORWARDED_BYTES, messages, !turn)?);
        }
    }
    let row = |case: &str,
               metric: &str,
               unit: &str,
               goal,
               seconds: fn(&Forwarded) -> f64,
               value: &dyn Fn(f64) -> f64| {
        let all = |runs: &[Forwarded]| runs.iter().map(seconds).collect::<Vec<f64>>();
        let (ours, theirs) = (all(&unmapped), all(&copied));
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| theirs / ours).collect();
        let median = |seconds: &[f64]| Summary::of(seconds).map(|summary| value(summary.median));
        Row {
            metric: metric.into(),
            unit: unit.into(),
            ours: median(&ours),
            peer: "forwarding a copy".into(),
            peer_value: median(&theirs),
            runs: pairs,
            note: "every process spins, then sleeps".into(),
            ..empty(case).with_ratio(Summary::of(&ratios), goal)
        }
    };
    let bytes = (FORWARDED_BYTES as u64 * messages) as f64;
    Ok(vec![
        row(
            "64 KiB forwarded unmapped",
            "time in the middle",
            "ns",
            Some(5.0),
            |run| run.seconds_in_the_middle,
            &|seconds| seconds * 1e9,
        ),
        row("64 KiB forwarded unmapped", "throughput", "B/s", None, |run| run.seconds, &|seconds| {
            bytes / seconds
        }),
    ])
}

fn options(bytes: usize) -> Options {
    // Three processes on two cores: whoever has nothing to do must leave.
    Options::new().wait(Wait::Adaptive).arena_bytes((bytes * 8).max(1 << 20))
}

fn second(what: &str, bytes: usize, messages: u64, ends: (OwnedFd, OwnedFd)) -> Result<Second, Error> {
    let failed = |error: std::io::Error| Error::failed("another process", error.to_string());
    let program = std::env::current_exe().map_err(failed)?;
    let child = Command::new(program)
        .args(["bench", "peer", "ipc", what, &bytes.to_string(), &messages.to_string(), "-"])
        .stdin(ends.0)
        .stdout(ends.1)
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(failed)?;
    Ok(Second(child))
}

/// Sends `messages` of `bytes` through the middle, which ships copies on if it `copies`.
fn run(bytes: usize, messages: u64, copies: bool) -> Result<Forwarded, Error> {
    crate::interrupt::check()?;
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("/dev/null is there"));
    let (to_middle, middle_in) = socket_pair().map_err(container)?;
    let (middle_out, sink_in) = socket_pair().map_err(container)?;
    let what = if copies { MIDDLE_COPYING } else { MIDDLE };
    let mut middle = second(what, bytes, messages, (middle_in, middle_out))?;
    let mut sink = second(SINK, bytes, messages, (sink_in, null()))?;
    pin(0);
    let path = Path::over(to_middle, &trusted(options(bytes))).map_err(container)?;
    let begin = Instant::now();
    let mut sent = 0u64;
    for number in 0..messages {
        let mut shipment = path.alloc(bytes).map_err(container)?;
        sent = sent.wrapping_add(fill(&mut shipment, number));
        path.ship(shipment).map_err(container)?;
    }
    let answer = path.receive_within(Duration::from_secs(60)).map_err(container)?;
    let seconds = begin.elapsed().as_secs_f64();
    let answer = answer.to_vec().map_err(container)?;
    let words: Vec<u64> = answer.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let &[found, nanoseconds] = words.as_slice() else {
        return Err(Error::failed("the process in the middle", "gave an answer of another length".into()));
    };
    if found != sent {
        return Err(Error::failed("three processes", "the sums differ".into()));
    }
    drop(path);
    middle.finish()?;
    sink.finish()?;
    Ok(Forwarded { seconds, seconds_in_the_middle: nanoseconds as f64 / 1e9 })
}

/// The process in the middle: from its standard input to its standard output.
///
/// # Errors
/// What failed.
pub fn middle(bytes: usize, messages: u64, copies: bool) -> Result<(), Error> {
    pin(1);
    let (from, to) = (end(std::io::stdin().as_fd())?, end(std::io::stdout().as_fd())?);
    let how = |options: Options| if copies { trusted(options) } else { options.forward() };
    let from = Path::over(from, &how(options(1))).map_err(container)?;
    let to = Path::over(to, &how(options(bytes))).map_err(container)?;
    let mut had = Vec::with_capacity(messages as usize);
    for _ in 0..messages {
        let message = from.receive().map_err(container)?;
        let begin = Instant::now();
        if copies {
            let mut copy = to.alloc(message.len()).map_err(container)?;
            message.copy_to(&mut copy).map_err(container)?;
            drop(message);
            to.ship(copy).map_err(container)?;
        } else {
            to.ship_message(message).map_err(container)?;
        }
        had.push(begin.elapsed());
    }
    let found = to.receive().map_err(container)?.to_vec().map_err(container)?;
    let mut answer = from.alloc(16).map_err(container)?;
    answer[..8].copy_from_slice(&found);
    had.sort_unstable();
    let median = had.get(had.len() / 2).map_or(0, Duration::as_nanos) as u64;
    answer[8..].copy_from_slice(&median.to_ne_bytes());
    from.ship(answer).map_err(container)?;
    // Until the first process has it.
    let _ = from.receive();
    Ok(())
}

/// The process at the end.
///
/// # Errors
/// What failed.
pub fn sink(messages: u64) -> Result<(), Error> {
    pin(0);
    let path = Path::over(end(std::io::stdin().as_fd())?, &trusted(options(1))).map_err(container)?;
    let mut found = 0u64;
    for _ in 0..messages {
        let message = path.receive().map_err(container)?;
        found = found.wrapping_add(sum(&message.first().map().map_err(container)?));
    }
    let mut answer = path.alloc(8).map_err(container)?;
    answer.copy_from_slice(&found.to_ne_bytes());
    path.ship(answer).map_err(container)?;
    let _ = path.receive();
    Ok(())
}

fn end(descriptor: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    let failed = |error: std::io::Error| Error::failed("an end", error.to_string());
    let end = descriptor.try_clone_to_owned().map_err(failed)?;
    fcntl_setfd(&end, FdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    Ok(end)
}
