//! Two sides in turns, of which the other one may be missing.
//!
//! Both compute on one core and wait for nothing, so their time is the processor's: what other programs take of a core
//! meanwhile is not in it.

use crate::error::Error;
use crate::row::Row;
use crate::statistics::Summary;
use rustix::time::{ClockId, clock_gettime};

/// What came of the rounds.
pub struct Turns<O, P> {
    /// Ours, in order.
    pub ours: Vec<O>,
    /// The peer's, as many, or why it has none.
    pub peer: Result<Vec<P>, Error>,
}

/// Seconds that this thread has had a processor.
pub fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// `pairs` rounds, of which every second one begins with the peer. A peer that fails drops out, and says why.
///
/// # Errors
/// What failed on our side, and [`Error::Interrupted`] on either.
pub fn take<O, P>(
    pairs: u32,
    mut ours: impl FnMut() -> Result<O, Error>,
    mut peer: impl FnMut() -> Result<P, Error>,
) -> Result<Turns<O, P>, Error> {
    let mut turns = Turns { ours: Vec::new(), peer: Ok(Vec::new()) };
    for pair in 0..pairs {
        if pair % 2 == 0 {
            turns.ours.push(ours()?);
        }
        if let Ok(before) = &mut turns.peer {
            match peer() {
                Ok(outcome) => before.push(outcome),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => turns.peer = Err(error),
            }
        }
        if pair % 2 == 1 {
            turns.ours.push(ours()?);
        }
    }
    Ok(turns)
}

/// The row of what took `ours` in each round, seconds or bytes, and the peer as in `peer`, told as `figure` has it.
pub fn row(
    row: Row,
    ours: &[f64],
    peer: &Result<Vec<f64>, Error>,
    goal: Option<f64>,
    figure: impl Fn(f64) -> f64,
) -> Row {
    let median = |taken: &[f64]| Summary::of(taken).map(|summary| figure(summary.median));
    let row = Row { ours: median(ours), goal, ..row };
    match peer {
        Err(error) => {
            let name = row.peer.clone();
            row.without_numbers(&name, error)
        }
        Ok(peer) => {
            let ratios: Vec<f64> = ours.iter().zip(peer).map(|(ours, peer)| peer / ours).collect();
            let row = Row { peer_value: median(peer), runs: ratios.len() as u32, ..row };
            row.with_ratio(Summary::of(&ratios), goal)
        }
    }
}

/// The row of what took `ours` in each round and may take `limit`.
pub fn row_of_limit(row: Row, ours: &[f64], limit: f64, figure: impl Fn(f64) -> f64) -> Row {
    self::row(row, ours, &Ok(vec![limit; ours.len()]), Some(1.0), figure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn who_begins_changes_and_who_fails_drops_out() {
        let order = RefCell::new(String::new());
        let ours = || {
            order.borrow_mut().push('o');
            Ok(1.0)
        };
        let peer = || {
            order.borrow_mut().push('p');
            if order.borrow().len() < 6 { Ok(2.0) } else { Err(Error::Unavailable("gone".into())) }
        };
        let turns = take(4, ours, peer).unwrap();
        assert_eq!(*order.borrow(), "oppoopo");
        assert_eq!(turns.ours.len(), 4);
        let row =
            row(Row { peer: "it".into(), ..Row::default() }, &turns.ours, &turns.peer, Some(1.5), |s| s);
        assert_eq!((row.ours, row.ratio, row.met), (Some(1.0), None, None));
        assert_eq!(row.note, "not run: it: gone");
        let ends = take(2, || Ok(()), || Err::<(), Error>(Error::Interrupted));
        assert!(matches!(ends, Err(Error::Interrupted)));
    }

    #[test]
    fn who_sleeps_has_no_processor() {
        let begin = processor_seconds();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let slept = processor_seconds() - begin;
        let mut sum = 0u64;
        while processor_seconds() - begin < slept + 0.01 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(slept < 0.04 && sum > 0, "{slept}");
    }

    #[test]
    fn ratios_are_those_of_the_rounds() {
        let row = row(Row::default(), &[1.0, 2.0, 1.0], &Ok(vec![20.0, 60.0, 30.0]), Some(20.0), |s| 1.0 / s);
        assert_eq!((row.ours, row.peer_value), (Some(1.0), Some(1.0 / 30.0)));
        assert_eq!((row.ratio, row.spread, row.met, row.runs), (Some(30.0), Some(5.0), Some(true), 3));
        let row = row_of_limit(Row::default(), &[0.1, 0.3, 0.4], 0.2, |s| s * 1e3);
        assert_eq!((row.ours, row.peer_value, row.met), (Some(300.0), Some(200.0), Some(false)));
    }
}
