//! Engine of every bench: sides that take turns, and the rows that their runs make.
//!
//! # Declaring a case
//!
//! A bench is a list of cases, each a name and a function that returns rows. That function makes [`Side`]s, which return
//! samples of whatever type the bench likes, lets [`Rounds`] run them, and reads rows off the runs by [`Metric`]s:
//!
//! ```
//! use bywash_bench::engine::{Metric, Rounds, Side};
//! use bywash_bench::row::Row;
//!
//! let side = |name, seconds: f64| Side::new(name, move || Ok(seconds));
//! let runs = Rounds::new(5).run(vec![side("bywash", 0.5), side("cp", 1.0)])?;
//! let throughput = Metric::rate("throughput", "B/s", |seconds: &f64| 1e9 / seconds);
//! let head = Row::head("flow/disk", "1 GB", "tmpfs");
//! let row = throughput.row(&head, &runs[0], &runs[1], Some(1.5));
//! assert_eq!((row.ours, row.ratio, row.met), (Some(2e9), Some(2.0), Some(true)));
//! # Ok::<(), bywash_bench::Error>(())
//! ```
//!
//! A side that fails drops out and keeps its reason; the others go on. Only an interruption ends everything. Rows of the
//! reference against itself come from a second side of the same kind.

use crate::error::Error;
use crate::interrupt;
use crate::row::Row;
use crate::statistics::Summary;
use std::time::{Duration, Instant};

/// Time after which a case begins no further round, once it has [`ROUNDS_MIN`].
pub const LIMIT: Duration = Duration::from_secs(30);
/// Rounds of a case that has passed [`LIMIT`].
pub const ROUNDS_MIN: u32 = 3;

/// One of the programs or settings that a case compares: a name, and a closure that does one run. It brings back the state
/// that a run begins with before its clock starts.
pub struct Side<'a, S> {
    name: String,
    warm_up: Task<'a, ()>,
    run: Task<'a, S>,
}

type Task<'a, T> = Box<dyn FnMut() -> Result<T, Error> + 'a>;

impl<'a, S> Side<'a, S> {
    /// A side with the name that it has as the peer of a row, and one run of it.
    pub fn new(name: impl Into<String>, run: impl FnMut() -> Result<S, Error> + 'a) -> Side<'a, S> {
        Side { name: name.into(), warm_up: Box::new(|| Ok(())), run: Box::new(run) }
    }

    /// A side that cannot be run here.
    pub fn absent(name: impl Into<String>, error: Error) -> Side<'a, S>
    where
        S: 'a,
    {
        let mut error = Some(error);
        let gone = || Error::Unavailable("the side was left out before".into());
        Side::new(name, move || Err(error.take().unwrap_or_else(gone)))
    }

    /// Adds what is done once before the rounds, untimed (a check that all bytes arrive). A side of which it fails drops out.
    pub fn warm_up(self, first: impl FnMut() -> Result<(), Error> + 'a) -> Side<'a, S> {
        Side { warm_up: Box::new(first), ..self }
    }
}

/// All runs of a side, or the reason for which it has none.
#[derive(Debug)]
pub struct Runs<S> {
    /// Name of the side.
    pub name: String,
    /// One sample for each round.
    pub samples: Result<Vec<S>, Error>,
}

impl<S> Runs<S> {
    /// Makes one sample of each `repeats` that follow one another, as [`Rounds::repeats`] had them run.
    pub fn merged(self, repeats: u32, merge: impl Fn(&[S]) -> S) -> Runs<S> {
        let merged =
            |samples: Vec<S>| samples.chunks_exact(repeats.max(1) as usize).map(&merge).collect::<Vec<S>>();
        Runs { name: self.name, samples: self.samples.map(merged) }
    }

    /// The runs with another sample made of each.
    pub fn map<T>(self, make: impl Fn(S) -> T) -> Runs<T> {
        let samples = self.samples.map(|samples| samples.into_iter().map(make).collect());
        Runs { name: self.name, samples }
    }

    /// Median of a figure over the runs; `None` if there are none.
    pub fn median(&self, figure: impl Fn(&S) -> f64) -> Option<f64> {
        let samples = self.samples.as_ref().ok()?;
        Summary::of(&samples.iter().map(figure).collect::<Vec<_>>()).map(|summary| summary.median)
    }
}

/// Number and order of the runs of a case.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    count: u32,
    repeats: u32,
    limit: Duration,
}

impl Rounds {
    /// Rounds in which each side has one turn.
    pub fn new(count: u32) -> Rounds {
        Rounds { count, repeats: 1, limit: Duration::MAX }
    }

    /// Gives each side so many turns a round, for runs too short to be timed alone; see [`Runs::merged`].
    pub fn repeats(self, repeats: u32) -> Rounds {
        Rounds { repeats: repeats.max(1), ..self }
    }

    /// Ends the case early when it takes longer than [`LIMIT`], after [`ROUNDS_MIN`] rounds at least.
    pub fn limited(self) -> Rounds {
        Rounds { limit: LIMIT, ..self }
    }

    /// Runs the sides in turns; returns their runs in the order of `sides`.
    ///
    /// # Errors
    /// [`Error::Interrupted`] alone: the reason of a side that failed is in its [`Runs`].
    pub fn run<S>(&self, mut sides: Vec<Side<'_, S>>) -> Result<Vec<Runs<S>>, Error> {
        let mut runs: Vec<Runs<S>> = Vec::new();
        for side in &mut sides {
            interrupt::check()?;
            let warmed = uninterrupted((side.warm_up)())?;
            runs.push(Runs { name: side.name.clone(), samples: warmed.map(|()| Vec::new()) });
        }
        let begin = Instant::now();
        for round in 0..self.count {
            if round >= ROUNDS_MIN && begin.elapsed() > self.limit {
                break;
            }
            for turn in round * self.repeats..(round + 1) * self.repeats {
                for side in order(sides.len(), turn as usize) {
                    let Ok(samples) = &mut runs[side].samples else { continue };
                    interrupt::check()?;
                    match uninterrupted((sides[side].run)())? {
                        Ok(sample) => samples.push(sample),
                        Err(error) => runs[side].samples = Err(error),
                    }
                }
            }
        }
        Ok(runs)
    }
}

/// Order of the sides in a turn. Every second turn is the one before it backwards, and the side that begins changes with
/// each pair of turns, so that no side always follows the same one.
pub fn order(sides: usize, turn: usize) -> impl Iterator<Item = usize> {
    (0..sides).map(move |place| {
        let place = if turn.is_multiple_of(2) { place } else { sides - 1 - place };
        (place + turn / 2) % sides
    })
}

/// Takes an interruption out of the errors that only one side or case suffers.
pub fn uninterrupted<T>(outcome: Result<T, Error>) -> Result<Result<T, Error>, Error> {
    match outcome {
        Err(Error::Interrupted) => Err(Error::Interrupted),
        other => Ok(other),
    }
}

/// Figures of the runs of a side, or its name and the reason for which it has none.
type Figures<'r> = Result<Vec<f64>, (&'r str, &'r Error)>;

/// Figure that is read off a sample, and the ratio by which two sides are compared.
pub struct Metric<'a, S> {
    name: &'a str,
    unit: &'a str,
    figure: Box<dyn Fn(&S) -> f64 + 'a>,
    ratio: Box<dyn Fn(f64, f64) -> f64 + 'a>,
}

impl<'a, S> Metric<'a, S> {
    /// A figure of which more is better.
    pub fn rate(name: &'a str, unit: &'a str, figure: impl Fn(&S) -> f64 + 'a) -> Metric<'a, S> {
        Metric { name, unit, figure: Box::new(figure), ratio: Box::new(|ours, peer| ours / peer) }
    }

    /// A figure of which less is better.
    pub fn cost(name: &'a str, unit: &'a str, figure: impl Fn(&S) -> f64 + 'a) -> Metric<'a, S> {
        Metric::rate(name, unit, figure).ratio(|ours, peer| peer / ours)
    }

    /// Replaces the ratio, which is made of our figure and the peer's; larger = better for us.
    pub fn ratio(self, ratio: impl Fn(f64, f64) -> f64 + 'a) -> Metric<'a, S> {
        Metric { ratio: Box::new(ratio), ..self }
    }

    /// A row without figures, as a case declares it.
    pub fn head(&self, head: &Row, peer: &str, goal: Option<f64>) -> Row {
        Row { metric: self.name.into(), unit: self.unit.into(), peer: peer.into(), goal, ..head.clone() }
    }

    /// The row of `ours` against `peer`, or its reason if either has no runs. `head` has the bench, the case, the place and
    /// the note.
    pub fn row(&self, head: &Row, ours: &Runs<S>, peer: &Runs<S>, goal: Option<f64>) -> Row {
        let theirs = self.figures(peer);
        self.compared(self.head(head, &peer.name, goal), ours, |_| theirs)
    }

    /// The row of `ours` against a constant, such as a limit that it has to keep.
    pub fn row_of_limit(&self, head: &Row, ours: &Runs<S>, name: &str, limit: f64, goal: f64) -> Row {
        self.compared(self.head(head, name, Some(goal)), ours, |count| Ok(vec![limit; count]))
    }

    fn figures<'r>(&self, runs: &'r Runs<S>) -> Figures<'r> {
        let samples = runs.samples.as_ref().map_err(|error| (runs.name.as_str(), error))?;
        Ok(samples.iter().map(&self.figure).collect())
    }

    fn compared<'r>(&self, empty: Row, ours: &'r Runs<S>, theirs: impl FnOnce(usize) -> Figures<'r>) -> Row {
        let both = self.figures(ours).and_then(|mine| Ok((theirs(mine.len())?, mine)));
        let (theirs, mine) = match both {
            Ok(both) => both,
            Err((name, error)) => return empty.without_numbers(name, error),
        };
        let ratios: Vec<f64> =
            mine.iter().zip(&theirs).map(|(mine, its)| (self.ratio)(*mine, *its)).collect();
        let median = |values: &[f64]| Summary::of(values).map(|summary| summary.median);
        let (ours, peer_value, runs) = (median(&mine), median(&theirs), ratios.len() as u32);
        Row { ours, peer_value, runs, ..empty.with_ratio(Summary::of(&ratios)) }
    }

    /// The one of `peers` whose median is best; `None` if none has runs.
    pub fn best<'r>(&self, peers: impl IntoIterator<Item = &'r Runs<S>>) -> Option<&'r Runs<S>>
    where
        S: 'r,
    {
        let measured = peers.into_iter().filter_map(|peer| Some((peer, peer.median(&self.figure)?)));
        let better =
            |best: (_, f64), next: (_, f64)| if (self.ratio)(next.1, best.1) > 1.0 { next } else { best };
        measured.reduce(better).map(|best| best.0)
    }

    /// The one of `peers` whose median is worst; `None` if none has runs.
    pub fn worst<'r>(&self, peers: impl IntoIterator<Item = &'r Runs<S>>) -> Option<&'r Runs<S>>
    where
        S: 'r,
    {
        let measured = peers.into_iter().filter_map(|peer| Some((peer, peer.median(&self.figure)?)));
        let worse =
            |worst: (_, f64), next: (_, f64)| if (self.ratio)(next.1, worst.1) < 1.0 { next } else { worst };
        measured.reduce(worse).map(|worst| worst.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn sides_take_turns_after_a_warm_up_and_a_side_that_fails_drops_out() {
        let log = RefCell::new(String::new());
        let note = |what: &str| {
            log.borrow_mut().push_str(what);
            Ok(())
        };
        let side = |name: &'static str| Side::new(name, move || note(name));
        let broken = Side::absent("x", Error::Unavailable("no".into()));
        let lossy = side("l").warm_up(|| Err(Error::failed("a", "lost bytes".into())));
        let first = side("a").warm_up(|| note("A"));
        let runs = Rounds::new(2).repeats(2).run(vec![first, broken, side("b"), lossy]).unwrap();
        assert_eq!(*log.borrow(), "Aabbabaab");
        assert_eq!(runs[0].samples.as_ref().unwrap().len(), 4);
        let rate = Metric::rate("throughput", "B/s", |()| 1.0);
        let [absent, failed] = [1, 3].map(|peer| rate.row(&Row::default(), &runs[0], &runs[peer], Some(1.0)));
        assert_eq!((absent.note.as_str(), absent.failed, absent.met), ("not run: x: no", false, None));
        assert!(failed.failed && failed.met == Some(false) && failed.note.contains("lost bytes"));
        let interrupted = vec![side("a"), Side::absent("b", Error::Interrupted)];
        assert!(matches!(Rounds::new(1).run(interrupted), Err(Error::Interrupted)));
        // No side always follows the same one.
        let orders = [0, 1, 2, 3].map(|turn| order(3, turn).collect::<Vec<_>>());
        assert_eq!(orders, [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]]);
    }

    #[test]
    fn larger_ratios_are_better_for_us_whatever_the_metric() {
        let runs = |name: &str, samples: &[f64]| Runs { name: name.into(), samples: Ok(samples.to_vec()) };
        let (ours, peer) = (runs("ours", &[1.0, 1.0, 2.0]), runs("cp", &[2.0, 2.0, 2.0]));
        let head = Row::head("flow/disk", "1 GB", "tmpfs");
        let rate = Metric::rate("throughput", "B/s", |seconds: &f64| 1.0 / seconds);
        let time = Metric::cost("time", "s", |seconds: &f64| *seconds);
        for metric in [&rate, &time] {
            let row = metric.row(&head, &ours, &peer, Some(1.5));
            assert_eq!((row.ratio, row.met, row.runs), (Some(2.0), Some(true), 3));
            assert_eq!((row.case.as_str(), row.peer.as_str()), ("1 GB, tmpfs", "cp"));
        }
        let row = time.row(&head, &ours, &peer, Some(2.5));
        assert_eq!((row.ours, row.peer_value, row.met), (Some(1.0), Some(2.0), Some(false)));
        let row = time.row_of_limit(&head, &ours, "limit", 0.5, 1.0);
        assert_eq!((row.ratio, row.peer_value, row.met), (Some(0.5), Some(0.5), Some(false)));
        let failed = Runs { name: "broken".into(), samples: Err(Error::failed("x", "failed".into())) };
        let peers = [runs("slow", &[3.0]), failed, runs("fast", &[0.5])];
        assert_eq!(time.best(&peers).map(|best| best.name.as_str()), Some("fast"));
        assert!(time.best(&peers[1..2]).is_none());
        let mean = |some: &[f64]| some.iter().sum::<f64>() / some.len() as f64;
        assert_eq!(runs("a", &[1.0, 3.0, 5.0, 7.0]).merged(2, mean).samples.unwrap(), [2.0, 6.0]);
    }
}
