//! The same work by several sides in turns, and the rows that come of it.
//!
//! First each side runs once outside of the measurement, and what arrived is compared with what was sent: this also
//! makes every page, buffer and program warm, and from then on each run gets the pages that the one before gave back.
//! Then the sides run in turns; which one is first, and in which direction it goes on, changes each time.

use crate::error::Error;
use crate::interrupt;
use crate::row::Row;
use crate::statistics::Summary;
use std::time::{Duration, Instant};

/// No measurement goes on for longer than this, once it has [`ROUNDS_MIN`] rounds.
pub const LIMIT: Duration = Duration::from_secs(30);
pub(crate) const ROUNDS_MIN: u32 = 3;

/// One side: its name, and how one run of it goes.
pub struct Side<'a> {
    /// What it is called as a peer.
    pub name: String,
    /// Runs it once.
    pub run: Box<dyn FnMut() -> Result<Outcome, Error> + 'a>,
}

impl<'a> Side<'a> {
    /// A side called `name`.
    pub fn new(name: impl Into<String>, run: impl FnMut() -> Result<Outcome, Error> + 'a) -> Side<'a> {
        Side { name: name.into(), run: Box::new(run) }
    }
}

/// What a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// From begin to end.
    pub seconds: f64,
    /// Of all processors, by the processes that are looked at.
    pub cpu_seconds: f64,
    /// Of the bytes, the share that did not arrive.
    pub lost: f64,
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.lost += other.lost;
    }

    /// What the run took longer than `other`: next to nothing if it did not.
    pub fn less(self, other: Outcome) -> Outcome {
        const LEAST_SECONDS: f64 = 1e-6;
        Outcome {
            seconds: (self.seconds - other.seconds).max(LEAST_SECONDS),
            cpu_seconds: (self.cpu_seconds - other.cpu_seconds).max(LEAST_SECONDS),
            lost: self.lost,
        }
    }

    fn over(self, count: u32) -> Outcome {
        let count = f64::from(count.max(1));
        Outcome {
            seconds: self.seconds / count,
            cpu_seconds: self.cpu_seconds / count,
            lost: self.lost / count,
        }
    }
}

/// What the runs begin with and leave behind; none of this is timed.
pub trait State {
    /// Brings back what every run begins with.
    ///
    /// # Errors
    /// The kernel's.
    fn clear(&self) -> Result<(), Error>;

    /// As [`State::clear`], and nothing of an earlier run can be taken for the next one's.
    ///
    /// # Errors
    /// The kernel's.
    fn scratch(&self) -> Result<(), Error> {
        self.clear()
    }

    /// Whether everything has arrived.
    ///
    /// # Errors
    /// That it has not.
    fn check(&self) -> Result<(), Error>;
}

/// The work.
pub struct Work<'a> {
    /// What it begins with and leaves behind.
    pub state: &'a dyn State,
    /// Runs that are added up, where one is too short to be timed.
    pub repeats: u32,
    /// Rounds.
    pub pairs: u32,
}

/// All runs of a side, or why it has none.
pub struct Runs {
    /// Its name.
    pub name: String,
    /// In order; as many for each side.
    pub outcomes: Result<Vec<Outcome>, Error>,
}

impl Runs {
    fn values(&self, metric: Metric, bytes: f64) -> Vec<f64> {
        let outcomes = self.outcomes.as_deref().unwrap_or_default();
        outcomes.iter().map(|outcome| metric.value(outcome, bytes)).collect()
    }
}

/// What is read off a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Bytes a second, of those that arrived.
    Throughput,
    /// CPU seconds for 10^9 bytes.
    Cpu,
    /// Milliseconds.
    Time,
    /// Percent of the bytes that arrived.
    Arrived,
}

impl Metric {
    /// As rows have it.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Throughput => "throughput",
            Metric::Cpu => "cpu",
            Metric::Time => "time",
            Metric::Arrived => "arrived",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Metric::Throughput => "B/s",
            Metric::Cpu => "s/GB",
            Metric::Time => "ms",
            Metric::Arrived => "%",
        }
    }

    fn value(self, outcome: &Outcome, bytes: f64) -> f64 {
        match self {
            Metric::Throughput => bytes * (1.0 - outcome.lost) / outcome.seconds,
            Metric::Arrived => 100.0 * (1.0 - outcome.lost),
            Metric::Cpu => outcome.cpu_seconds / (bytes / 1e9),
            Metric::Time => outcome.seconds * 1e3,
        }
    }

    /// Ours against the peer's, larger = better for us.
    fn ratio(self, ours: f64, peer: f64) -> f64 {
        match self {
            Metric::Throughput | Metric::Arrived => ours / peer,
            // What took less than the kernel counts took that much.
            Metric::Cpu => peer.max(1e-9) / ours.max(1e-9),
            Metric::Time => peer / ours,
        }
    }
}

/// Runs `sides` in turns. A side that fails drops out, and says why; the others go on.
///
/// # Errors
/// [`Error::Interrupted`], or that the state to begin with cannot be brought back.
pub fn run(mut sides: Vec<Side<'_>>, work: &Work<'_>) -> Result<Vec<Runs>, Error> {
    let mut runs: Vec<Runs> = Vec::new();
    for side in &mut sides {
        work.state.scratch()?;
        let outcome = (side.run)().and_then(|_| work.state.check());
        let outcomes = interruption(outcome)?.map(|()| Vec::new());
        runs.push(Runs { name: side.name.clone(), outcomes });
    }
    let begin = Instant::now();
    for round in 0..work.pairs {
        if round >= ROUNDS_MIN && begin.elapsed() > LIMIT {
            break;
        }
        run_round(&mut sides, &mut runs, work, round)?;
    }
    Ok(runs)
}

/// One round: each side as often as it is to be repeated, in turns too.
fn run_round(sides: &mut [Side<'_>], runs: &mut [Runs], work: &Work<'_>, round: u32) -> Result<(), Error> {
    let mut sums = vec![Outcome::default(); sides.len()];
    for repeat in 0..work.repeats {
        for side in order(sides.len(), (round * work.repeats + repeat) as usize) {
            interrupt::check()?;
            if runs[side].outcomes.is_ok() {
                work.state.clear()?;
                match interruption((sides[side].run)())? {
                    Ok(outcome) => sums[side].add(outcome),
                    Err(error) => runs[side].outcomes = Err(error),
                }
            }
        }
    }
    for (run, sum) in runs.iter_mut().zip(sums) {
        if let Ok(outcomes) = &mut run.outcomes {
            outcomes.push(sum.over(work.repeats));
        }
    }
    Ok(())
}

/// Whose turn it is, in the `number`th go: another one begins each time, and the direction changes, so that no side
/// has always the same one before it.
pub(crate) fn order(sides: usize, number: usize) -> impl Iterator<Item = usize> {
    (0..sides).map(move |turn| {
        let side = (turn + number) % sides;
        if number.is_multiple_of(2) { side } else { sides - 1 - side }
    })
}

/// Takes an interruption out of what else may have failed.
pub(crate) fn interruption<T>(outcome: Result<T, Error>) -> Result<Result<T, Error>, Error> {
    match outcome {
        Err(Error::Interrupted) => Err(Error::Interrupted),
        other => Ok(other),
    }
}

/// What rows have in common.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The bench.
    pub bench: &'static str,
    /// The case, without the place.
    pub what: String,
    /// The place.
    pub place: String,
    /// Bytes that a run moves.
    pub bytes: u64,
    /// What a reader must know of our runs.
    pub note: String,
}

impl Frame {
    /// A row without numbers.
    pub fn empty(&self, metric: Metric, peer: &str, goal: Option<f64>) -> Row {
        Row {
            bench: self.bench.into(),
            case: match self.place.as_str() {
                "" => self.what.clone(),
                place => format!("{}, {place}", self.what),
            },
            metric: metric.name().into(),
            unit: metric.unit().into(),
            peer: peer.into(),
            goal,
            place: self.place.clone(),
            note: self.note.clone(),
            ..Row::default()
        }
    }

    /// `ours` against `peer` by `metric`.
    pub fn row(&self, metric: Metric, ours: &Runs, peer: &Runs, goal: Option<f64>) -> Row {
        let empty = self.empty(metric, &peer.name, goal);
        for side in [ours, peer] {
            if let Err(error) = &side.outcomes {
                return empty.without_numbers(&side.name, error);
            }
        }
        let (mine, theirs) = (ours.values(metric, self.bytes as f64), peer.values(metric, self.bytes as f64));
        let ratios: Vec<f64> =
            mine.iter().zip(&theirs).map(|(mine, theirs)| metric.ratio(*mine, *theirs)).collect();
        let median = |values: &[f64]| Summary::of(values).map(|summary| summary.median);
        Row {
            ours: median(&mine),
            peer_value: median(&theirs),
            runs: ratios.len() as u32,
            ..empty.with_ratio(Summary::of(&ratios), goal)
        }
    }

    /// `ours` against that one of `peers` whose median is the best one by `metric`; none if none has run.
    pub fn row_of_best(
        &self,
        metric: Metric,
        ours: &Runs,
        peers: &[&Runs],
        called: &str,
        goal: Option<f64>,
    ) -> Option<Row> {
        let median =
            |runs: &Runs| Summary::of(&runs.values(metric, self.bytes as f64)).map(|summary| summary.median);
        let ran = peers.iter().filter_map(|peer| median(peer).map(|median| (*peer, median)));
        let best = ran.reduce(|best, next| if metric.ratio(next.1, best.1) > 1.0 { next } else { best })?.0;
        let note =
            format!("{called}: {}{}{}", best.name, if self.note.is_empty() { "" } else { "; " }, self.note);
        Some(Row { peer: called.into(), note, ..self.row(metric, ours, best, goal) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn runs(name: &str, seconds: &[f64]) -> Runs {
        let outcomes = seconds.iter().map(|seconds| Outcome {
            seconds: *seconds,
            cpu_seconds: seconds / 2.0,
            lost: 0.0,
        });
        Runs { name: name.into(), outcomes: Ok(outcomes.collect()) }
    }

    fn frame() -> Frame {
        Frame {
            bench: "flow/disk",
            what: "1 GB".into(),
            place: "tmpfs".into(),
            bytes: 1_000_000_000,
            note: String::new(),
        }
    }

    #[test]
    fn what_a_run_took_longer() {
        let outcome = |seconds, cpu_seconds| Outcome { seconds, cpu_seconds, lost: 0.5 };
        assert_eq!(outcome(3.0, 2.0).less(outcome(1.0, 1.5)), outcome(2.0, 0.5));
        assert_eq!(outcome(1.0, 2.0).less(outcome(1.5, 1.5)), outcome(1e-6, 0.5));
    }

    struct Checks {
        whole: bool,
        done: RefCell<u32>,
    }

    impl State for Checks {
        fn clear(&self) -> Result<(), Error> {
            Ok(())
        }

        fn check(&self) -> Result<(), Error> {
            *self.done.borrow_mut() += 1;
            if self.whole { Ok(()) } else { Err(Error::failed("a", "lost bytes".into())) }
        }
    }

    #[test]
    fn larger_ratios_are_better_for_us_whatever_the_metric() {
        let (ours, peer) = (runs("ours", &[1.0, 1.0, 2.0]), runs("cp", &[2.0, 2.0, 2.0]));
        for metric in [Metric::Throughput, Metric::Cpu, Metric::Time] {
            let row = frame().row(metric, &ours, &peer, Some(1.5));
            assert_eq!((row.ratio, row.met, row.runs), (Some(2.0), Some(true), 3), "{metric:?}");
        }
        let row = frame().row(Metric::Cpu, &ours, &peer, Some(2.5));
        assert_eq!((row.ours, row.peer_value, row.met), (Some(0.5), Some(1.0), Some(false)));
        assert_eq!((row.case.as_str(), row.unit.as_str()), ("1 GB, tmpfs", "s/GB"));
    }

    #[test]
    fn the_best_peer_is_found_and_named() {
        let ours = runs("ours", &[1.0]);
        let failed = Runs { name: "broken".into(), outcomes: Err(Error::failed("x", "failed".into())) };
        let (slow, fast) = (runs("slow", &[3.0]), runs("fast", &[0.5]));
        for metric in [Metric::Throughput, Metric::Cpu] {
            let row =
                frame().row_of_best(metric, &ours, &[&slow, &failed, &fast], "best mover", None).unwrap();
            assert_eq!(
                (row.ratio, row.peer.as_str(), row.note.as_str()),
                (Some(0.5), "best mover", "best mover: fast")
            );
        }
        assert!(frame().row_of_best(Metric::Cpu, &ours, &[&failed], "best mover", None).is_none());
    }

    #[test]
    fn sides_take_turns_after_a_run_that_is_checked() {
        let order = RefCell::new(Vec::new());
        let side = |name: &'static str| {
            let order = &order;
            Side::new(name, move || {
                order.borrow_mut().push(name);
                Ok(Outcome { seconds: 1.0, cpu_seconds: 1.0, lost: 0.0 })
            })
        };
        let broken = Side::new("broken", || Err(Error::Unavailable("no".into())));
        let checks = Checks { whole: true, done: RefCell::new(0) };
        let work = Work { state: &checks, repeats: 2, pairs: 2 };
        let runs = run(vec![side("a"), broken, side("b")], &work).unwrap();
        assert_eq!(*order.borrow(), ["a", "b", "a", "b", "a", "b", "b", "a", "b", "a"]);
        assert_eq!(*checks.done.borrow(), 2);
        let row = frame().row(Metric::Throughput, &runs[0], &runs[1], Some(1.0));
        assert_eq!((row.note.as_str(), row.failed, row.met), ("not run: broken: no", false, None));
        assert_eq!(runs[2].outcomes.as_ref().unwrap().len(), 2);
    }

    #[test]
    fn what_has_not_arrived_is_a_failure() {
        let checks = Checks { whole: false, done: RefCell::new(0) };
        let work = Work { state: &checks, repeats: 1, pairs: 2 };
        let runs = run(vec![Side::new("a", || Ok(Outcome::default()))], &work).unwrap();
        let row = frame().row(Metric::Throughput, &runs[0], &runs[0], Some(1.0));
        assert!(row.failed && row.met == Some(false) && row.note.contains("lost bytes"), "{}", row.note);
    }
}
