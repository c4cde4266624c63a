//! A second pair of processes beside the first: what it costs the first, in comparison with being alone, and with a
//! neighbour that moves nothing but keeps its cores just as busy.
//!
//! With four cores or more every process has one and polls. With fewer each pair has one core, and its ends sleep.

use super::case::empty;
use super::run::{PERIOD, Pattern, Second, Work, pin};
use super::wire::Way;
use super::words::{fill, sum};
use crate::error::Error;
use crate::row::Row;
use crate::statistics::Summary;
use bywash_container::Wait;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

/// The name of a neighbour on the command line of the other processes: one that moves messages.
pub const PAIR: &str = "neighbour-pair";
/// As [`PAIR`], for one that only writes and sums them.
pub const WORK: &str = "neighbour-work";
/// The ratio that counts as "costs nothing", which no two runs alone reach every time either.
const NOTHING: f64 = 0.95;
/// Bytes of a message.
const BYTES: usize = 4 << 10;

/// Messages of a neighbour without a partner between two looks whether it shall end.
const LOOPS: u64 = 20_000;

/// Messages that a neighbour without a partner uses in turns: as much memory as a pair's.
const IN_TURN: usize = (4 << 20) / BYTES;

/// Beside whom the first pair works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// Nobody.
    Nobody,
    /// Another pair of processes.
    Pair,
    /// A process that writes and sums messages of its own on the other pair's cores.
    Work,
}

/// What a pair does, on cores of its own; `which` is 0 or 1.
fn work(which: usize, cores: usize, messages: u64) -> Work {
    let (way, own) = match cores {
        4.. => (Way::Trusted(Wait::Spin), [2 * which, 2 * which + 1]),
        _ => (Way::Trusted(Wait::Sleep), [which, which]),
    };
    Work { way, pattern: Pattern::Stream, bytes: BYTES, messages, period: PERIOD, cores: own }
}

fn failed(error: std::io::Error) -> Error {
    Error::failed("a neighbour", error.to_string())
}

/// The first pair beside a second one, against the first alone and beside work of another kind.
///
/// # Errors
/// What failed.
pub fn rows(quick: bool, pairs: u32, cores: usize) -> Result<Vec<Row>, Error> {
    let messages = if quick { 20_000 } else { 500_000 };
    let sides = [Beside::Pair, Beside::Nobody, Beside::Work];
    let mut seconds: [Vec<f64>; 3] = Default::default();
    for pair in 0..pairs {
        for turn in 0..sides.len() {
            let turn = if pair % 2 == 0 { turn } else { sides.len() - 1 - turn };
            seconds[turn].push(run(sides[turn], cores, messages)?);
        }
    }
    let value = |seconds: &[f64]| {
        Summary::of(seconds).map(|summary| (BYTES as u64 * messages) as f64 / summary.median)
    };
    let row = |other: usize, peer: &str, goal| {
        let ratios: Vec<f64> =
            seconds[0].iter().zip(&seconds[other]).map(|(ours, theirs)| theirs / ours).collect();
        Row {
            ours: value(&seconds[0]),
            peer: peer.into(),
            peer_value: value(&seconds[other]),
            runs: pairs,
            note: format!("bywash {} on both sides", work(0, cores, messages).way.waits()),
            ..empty("4 KiB, beside a second pair").with_ratio(Summary::of(&ratios), goal)
        }
    };
    // What a busy neighbour costs in the caches is the price of its core, whatever it does.
    Ok(vec![row(2, "beside writing and summing", Some(NOTHING)), row(1, "alone", None)])
}

/// Lets the first pair send so many messages; answers the seconds.
fn run(beside: Beside, cores: usize, messages: u64) -> Result<f64, Error> {
    let what = match beside {
        Beside::Nobody => return work(0, cores, messages).run().map(|spent| spent.wall),
        Beside::Pair => PAIR,
        Beside::Work => WORK,
    };
    let program = std::env::current_exe().map_err(failed)?;
    let child = Command::new(program)
        .args(["bench", "peer", "ipc", what, &cores.to_string(), &messages.to_string(), "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut neighbour = Second(child);
    // It says when it is at work.
    let ready = neighbour.0.stdout.as_mut().map(|out| out.read_exact(&mut [0]));
    ready.transpose().map_err(failed)?;
    let seconds = work(0, cores, messages).run()?.wall;
    // And ends when nobody holds the other end any more.
    drop(neighbour.0.stdin.take());
    neighbour.finish()?;
    Ok(seconds)
}

/// The neighbour: works until its standard input ends.
///
/// # Errors
/// What failed.
pub fn neighbour(what: &str, cores: usize, messages: u64) -> Result<(), Error> {
    let work = work(1, cores, messages);
    let mut messages = vec![0; IN_TURN * BYTES];
    let mut said = false;
    loop {
        if what == PAIR {
            work.run()?;
        } else {
            pin(work.cores[0]);
            let written: u64 = (0..work.messages.min(LOOPS))
                .map(|number| {
                    let message = &mut messages[(number as usize % IN_TURN) * BYTES..][..BYTES];
                    fill(message, number).wrapping_sub(sum(message))
                })
                .fold(0, u64::wrapping_add);
            if written != 0 {
                return Err(Error::failed("a neighbour", "the sums differ".into()));
            }
        }
        if !said {
            std::io::stdout().write_all(&[0]).and_then(|()| std::io::stdout().flush()).map_err(failed)?;
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
