//! One case on one place: the sides in turn, several times, and what that makes of it.
//!
//! Every run starts from the same state (the case brings it back), does the same work (the same number of
//! operations with the same seed, checked by a sum over the results) and is followed by a sync, so that the
//! device bytes of its writes are its own. Which side goes first changes from pair to pair. What was served at
//! user level is counted in one more run, because counting costs time that a user does not pay.

use crate::cases::{Amount, Case, Done, Metric, Reading, Stage};
use crate::error::Error;
use crate::interrupt;
use crate::launch::{Calls, Launcher, Side};
use crate::number;
use crate::row::Row;
use crate::statistics::Summary;
use crate::usage::{Snapshot, Usage};

/// Bytes added to both sides of a ratio of device bytes, so that nothing against nothing is 1 and a page of
/// metadata against nothing is not infinite.
const DEVICE_FLOOR_BYTES: f64 = 64.0 * 1024.0;
/// The peer of rows that have the kernel on both sides.
const KERNEL_ITSELF: &str = "kernel against itself";
/// Largest ratio of a limit to the time that was added: noise can make that nothing, and less.
const ADDED_RATIO_MAX: f64 = 100.0;
/// A quick run is this much shorter.
const QUICK_DIVISOR: f64 = 8.0;

/// One run of one side.
struct Outcome {
    done: Done,
    usage: Usage,
}

/// The runs of one side.
struct Runs {
    side: Side,
    outcomes: Vec<Outcome>,
}

/// All that was measured for a case.
struct Measured {
    sides: Vec<Runs>,
    calls: Calls,
    /// Operations of each run.
    operations: u64,
}

/// Measures `case`: one row for each of its metrics, one more for its own way to map files, and where one
/// of them misses its goal, one of the kernel against itself, which says how far the machine can be trusted.
///
/// # Errors
/// [`Error::Interrupted`] only: everything else becomes the note of a row.
pub fn measure(
    case: &mut Case,
    stage: &Stage,
    launcher: &Launcher,
    pairs: u32,
    progress: &dyn Fn(u32),
) -> Result<Vec<Row>, Error> {
    match run_all(case, stage, launcher, pairs, progress) {
        Ok(measured) => {
            let mut rows = rows_of(case, &stage.place.name, &measured);
            if rows.iter().any(|row| row.met == Some(false)) {
                rows.extend(against_itself(case, stage, launcher, measured.operations, pairs)?);
            }
            Ok(rows)
        }
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => Ok(rows_without_numbers(case, &stage.place.name, &error)),
    }
}

/// The rows of a case that could not be measured; the note says why.
pub fn rows_without_numbers(case: &Case, place: &str, error: &Error) -> Vec<Row> {
    let failed = !error.is_absence();
    let note = format!("{}: {error}", if failed { "failed" } else { "not run" });
    case.metrics
        .iter()
        .map(|metric| Row {
            met: (failed && metric.goal.is_some()).then_some(false),
            note: note.clone(),
            failed,
            ..empty_row(case, metric, place)
        })
        .collect()
}

fn run_all(
    case: &mut Case,
    stage: &Stage,
    launcher: &Launcher,
    pairs: u32,
    progress: &dyn Fn(u32),
) -> Result<Measured, Error> {
    case.work.prepare(stage)?;
    let operations = size_up(case, stage, launcher)?;
    let mut sides = vec![Side::Kernel, Side::Bywash];
    sides.extend(case.native.map(|_| Side::Native));
    let mut runs: Vec<Runs> = sides.into_iter().map(|side| Runs { side, outcomes: Vec::new() }).collect();
    for pair in 0..pairs {
        progress(pair);
        let count = runs.len();
        for turn in 0..count {
            let turn = if pair % 2 == 0 { turn } else { count - 1 - turn };
            let (outcome, _) = run_once(case, stage, launcher, runs[turn].side, operations)?;
            runs[turn].outcomes.push(outcome);
        }
        check_sums(&runs)?;
    }
    let (_, calls) = run_once(case, stage, launcher, Side::Counted, operations)?;
    Ok(Measured { sides: runs, calls: calls.unwrap_or_default(), operations })
}

/// The row of the kernel against itself, measured as the others are. None if that fails: the rows of the case
/// stand without it.
fn against_itself(
    case: &mut Case,
    stage: &Stage,
    launcher: &Launcher,
    operations: u64,
    pairs: u32,
) -> Result<Option<Row>, Error> {
    let mut runs = [(); 2].map(|()| Runs { side: Side::Kernel, outcomes: Vec::new() });
    for pair in 0..pairs {
        for turn in 0..2 {
            let turn = if pair % 2 == 0 { turn } else { 1 - turn };
            match run_once(case, stage, launcher, Side::Kernel, operations) {
                Ok((outcome, _)) => runs[turn].outcomes.push(outcome),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(_) => return Ok(None),
            }
        }
    }
    let metric = Metric { goal: None, ..case.metrics[0] };
    let row = row_of(case, &metric, &stage.place.name, &runs[1], &runs[0], Calls::default());
    Ok(row.map(|row| Row {
        peer: KERNEL_ITSELF.into(),
        calls_user: None,
        calls_kernel: None,
        note:
            "control: the kernel on both sides; a ratio as far from 1 as a miss says that the machine did it"
                .into(),
        ..row
    }))
}

/// The number of operations of a run; the trial also brings programs and data into memory.
fn size_up(case: &mut Case, stage: &Stage, launcher: &Launcher) -> Result<u64, Error> {
    match case.amount {
        Amount::Fixed => {
            if !stage.quick {
                run_once(case, stage, launcher, Side::Kernel, 0)?;
            }
            Ok(0)
        }
        Amount::For { first, seconds } => {
            let (trial, _) = run_once(case, stage, launcher, Side::Kernel, first)?;
            let wanted = if stage.quick { seconds / QUICK_DIVISOR } else { seconds };
            if seconds == 0.0 {
                return Ok(first);
            }
            // A trial too short to be timed well may not make a run endless, nor a slow one trivial.
            let factor = (wanted / trial.done.seconds).clamp(0.25, 1000.0);
            // A multiple of 64 keeps batches (transactions, groups of writes) whole.
            Ok(((first as f64 * factor) as u64).next_multiple_of(64))
        }
    }
}

fn run_once(
    case: &mut Case,
    stage: &Stage,
    launcher: &Launcher,
    side: Side,
    operations: u64,
) -> Result<(Outcome, Option<Calls>), Error> {
    interrupt::check()?;
    case.work.reset(stage)?;
    stage.place.sync()?;
    let run = launcher.begin(side)?;
    let before = Snapshot::take(stage.place.device.as_ref())?;
    let done = case.work.run(stage, &run, operations)?;
    stage.place.sync()?;
    let usage = Snapshot::take(stage.place.device.as_ref())?.since(&before);
    Ok((Outcome { done, usage }, run.calls()))
}

/// Every side's last run has the same sum.
fn check_sums(runs: &[Runs]) -> Result<(), Error> {
    let sum = |runs: &Runs| runs.outcomes.last().and_then(|outcome| outcome.done.sum.clone());
    let kernel = sum(&runs[0]);
    for other in &runs[1..] {
        if sum(other) != kernel {
            let show = |sum: Option<String>| sum.unwrap_or_else(|| "nothing".into());
            return Err(Error::Differs { ours: show(sum(other)), kernel: show(kernel) });
        }
    }
    Ok(())
}

fn rows_of(case: &Case, place: &str, measured: &Measured) -> Vec<Row> {
    let of = |side| measured.sides.iter().find(|runs| runs.side == side);
    let (Some(kernel), Some(ours)) = (of(Side::Kernel), of(Side::Bywash)) else { return Vec::new() };
    let row = |metric: &Metric, peer| row_of(case, metric, place, ours, peer, measured.calls);
    let mut rows: Vec<Row> = case.metrics.iter().filter_map(|metric| row(metric, kernel)).collect();
    if let (Some(rival), Some(native)) = (case.native, of(Side::Native)) {
        let metric = Metric { goal: rival.goal, ..case.metrics[0] };
        rows.extend(row(&metric, native).map(|row| Row {
            peer: rival.name.to_owned(),
            note: control_note(kernel, native).unwrap_or_default(),
            ..row
        }));
    }
    rows
}

/// What the native way gains by itself, against the kernel.
fn control_note(kernel: &Runs, native: &Runs) -> Option<String> {
    let ratios = ratios(Reading::Rate, native, kernel)?;
    Some(format!("control: the peer itself is {:.2} x the kernel", Summary::of(&ratios)?.median))
}

/// A row; none when the place has no such figure (device bytes without a device).
fn row_of(case: &Case, metric: &Metric, place: &str, ours: &Runs, peer: &Runs, calls: Calls) -> Option<Row> {
    let ratios = Summary::of(&ratios(metric.reading, ours, peer)?)?;
    let median = |runs: &Runs| {
        let values: Option<Vec<f64>> = runs.outcomes.iter().map(|one| reading(metric.reading, one)).collect();
        Summary::of(&values?).map(|summary| summary.median)
    };
    let usage =
        |runs: &Runs| Usage::median(&runs.outcomes.iter().map(|outcome| outcome.usage).collect::<Vec<_>>());
    Some(Row {
        ours: median(ours),
        peer_value: median(peer),
        ratio: Some(ratios.median),
        spread: Some(ratios.spread()),
        runs: ours.outcomes.len() as u32,
        // What is asked of us cannot have been reached by a run in which nothing of ours ran.
        met: metric.goal.map(|goal| ratios.median >= goal && (goal <= 1.0 || calls.user > 0)),
        note: match metric.reading {
            Reading::Added { limit_ns } => added_note(limit_ns, ratios.median),
            _ => calls_note(calls.user, calls.kernel),
        },
        ratio_low: Some(ratios.low),
        ratio_high: Some(ratios.high),
        calls_user: Some(calls.user),
        calls_kernel: Some(calls.kernel),
        ours_usage: Some(usage(ours)),
        peer_usage: Some(usage(peer)),
        ..empty_row(case, metric, place)
    })
}

/// Says how much time a process took longer with Bywash, at the median, and how much it may take.
fn added_note(limit_ns: u32, ratio: f64) -> String {
    let (limit, added) = (f64::from(limit_ns), f64::from(limit_ns) / ratio);
    let added =
        if ratio >= ADDED_RATIO_MAX { "next to nothing".to_owned() } else { number::quantity(added, "ns") };
    format!("{added} added, at most {} wanted", number::quantity(limit, "ns"))
}

fn calls_note(user: u64, kernel: u64) -> String {
    let all = user + kernel;
    if all == 0 {
        "the library counted no call at all: nothing was served at user level".into()
    } else if user == 0 {
        format!("nothing was served at user level ({} calls to the kernel)", number::grouped(kernel))
    } else {
        format!("{:.1} % of {} calls at user level", 100.0 * user as f64 / all as f64, number::grouped(all))
    }
}

/// Ours against the peer's, pair by pair, larger = better for us.
fn ratios(reading_of: Reading, ours: &Runs, peer: &Runs) -> Option<Vec<f64>> {
    let pairs = ours.outcomes.iter().zip(&peer.outcomes);
    pairs
        .map(|(ours, peer)| {
            let (ours, peer) = (reading(reading_of, ours)?, reading(reading_of, peer)?);
            Some(match reading_of {
                Reading::Rate => ours / peer,
                Reading::Added { limit_ns } => {
                    let limit = f64::from(limit_ns);
                    limit / (ours - peer).max(limit / ADDED_RATIO_MAX)
                }
                Reading::DeviceRead | Reading::DeviceWritten => {
                    (peer + DEVICE_FLOOR_BYTES) / (ours + DEVICE_FLOOR_BYTES)
                }
            })
        })
        .collect()
}

fn reading(reading: Reading, outcome: &Outcome) -> Option<f64> {
    match reading {
        Reading::Rate => Some(outcome.done.rate),
        Reading::DeviceRead => outcome.usage.device_read_bytes.map(|bytes| bytes as f64),
        Reading::DeviceWritten => outcome.usage.device_written_bytes.map(|bytes| bytes as f64),
        Reading::Added { .. } => Some(1e9 / outcome.done.rate),
    }
}

fn empty_row(case: &Case, metric: &Metric, place: &str) -> Row {
    Row {
        bench: format!("run/{}", case.bench),
        case: format!("{}, {place}", case.name),
        metric: metric.name().into(),
        unit: metric.unit.into(),
        peer: "kernel".into(),
        goal: metric.goal,
        place: place.into(),
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Native, Workload};
    use crate::launch::Run;
    use crate::place::{self, Kind};
    use crate::programs::Programs;
    use std::cell::RefCell;
    use std::path::Path;
    use std::rc::Rc;

    /// Twice as fast at user level, and tells in which order it was run.
    struct Pretend {
        order: Rc<RefCell<Vec<Side>>>,
        agrees: bool,
        user_calls: u64,
    }

    impl Workload for Pretend {
        fn prepare(&mut self, _: &Stage) -> Result<(), Error> {
            Ok(())
        }
        fn reset(&mut self, _: &Stage) -> Result<(), Error> {
            Ok(())
        }
        fn run(&mut self, _: &Stage, run: &Run, operations: u64) -> Result<Done, Error> {
            self.order.borrow_mut().push(run.side());
            let ours = matches!(run.side(), Side::Bywash | Side::Counted);
            run.count_user_reads(self.user_calls);
            let rate = if ours { 2000.0 } else { 1000.0 };
            let sum = if ours && !self.agrees { "other" } else { "same" };
            Ok(Done { rate, seconds: operations as f64 / rate, sum: Some(sum.into()) })
        }
    }

    fn measured(agrees: bool, goal: f64, user_calls: u64) -> (Vec<Row>, Vec<Side>) {
        let folder = tempfile::tempdir().unwrap();
        let library = std::env::current_exe().unwrap();
        let place = place::in_folder(folder.path());
        let programs = Programs::new(folder.path());
        let stage = Stage { place: &place, folder: folder.path().into(), programs: &programs, quick: false };
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut case = Case {
            bench: "micro",
            name: "pretend".into(),
            metrics: vec![Metric::rate("op/s", goal)],
            places: Kind::ALL,
            amount: Amount::For { first: 100, seconds: 1.0 },
            native: Some(Native::rival("kernel, differently", 1.9)),
            in_quick: true,
            work: Box::new(Pretend { order: Rc::clone(&order), agrees, user_calls }),
        };
        let launcher = Launcher::with_library(Path::new(&library));
        let rows = measure(&mut case, &stage, &launcher, 2, &|_| {}).unwrap();
        let order = order.borrow().clone();
        (rows, order)
    }

    #[test]
    fn sides_take_turns_and_the_order_changes() {
        let (_, order) = measured(true, 1.5, 3);
        let (k, b, n) = (Side::Kernel, Side::Bywash, Side::Native);
        assert_eq!(order, [k, k, b, n, n, b, k, Side::Counted]);
    }

    #[test]
    fn a_row_has_the_ratio_and_says_whether_the_goal_was_met() {
        let (rows, _) = measured(true, 1.5, 3);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].ratio, rows[0].spread, rows[0].met), (Some(2.0), Some(0.0), Some(true)));
        assert_eq!((rows[0].calls_user, rows[0].calls_kernel), (Some(3), Some(0)));
        assert_eq!((rows[1].peer.as_str(), rows[1].met), ("kernel, differently", Some(true)));
        assert!(rows[1].note.contains("1.00 x the kernel"), "{}", rows[1].note);
        assert_eq!(measured(true, 2.5, 3).0[0].met, Some(false));
    }

    #[test]
    fn a_miss_has_the_kernel_against_itself_beside_it() {
        let (rows, order) = measured(true, 2.5, 3);
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[2].peer.as_str(), rows[2].ratio, rows[2].goal), (KERNEL_ITSELF, Some(1.0), None));
        assert_eq!(order[order.len() - 4..], [Side::Kernel; 4]);
    }

    #[test]
    fn a_run_in_which_nothing_of_ours_ran_gains_nothing() {
        let (rows, _) = measured(true, 1.5, 0);
        assert_eq!((rows[0].ratio, rows[0].met), (Some(2.0), Some(false)));
        assert!(rows[0].note.contains("nothing was served at user level"), "{}", rows[0].note);
        assert_eq!(measured(true, 0.97, 0).0[0].met, Some(true));
    }

    #[test]
    fn different_results_are_a_failure() {
        let (rows, _) = measured(false, 1.5, 3);
        assert!(rows[0].failed && rows[0].ratio.is_none() && rows[0].met == Some(false));
        assert!(rows[0].note.contains("results differ"), "{}", rows[0].note);
    }

    #[test]
    fn what_is_added_is_held_against_its_limit() {
        let runs = |side, rate: f64| Runs {
            side,
            outcomes: vec![Outcome { done: Done { rate, seconds: 1.0, sum: None }, usage: Usage::default() }],
        };
        let kernel = runs(Side::Kernel, 1000.0);
        let reading = Reading::Added { limit_ns: 50_000 };
        let ratio = |rate| ratios(reading, &runs(Side::Bywash, rate), &kernel).unwrap()[0];
        // 1.25 ms instead of 1 ms, 1.025 ms, and less.
        assert!((ratio(800.0) - 0.2).abs() < 1e-9);
        assert!((ratio(1000.0 / 1.025) - 2.0).abs() < 1e-6);
        assert_eq!(ratio(2000.0), ADDED_RATIO_MAX);
        assert_eq!(added_note(50_000, 0.2), "250 us added, at most 50.0 us wanted");
        assert_eq!(added_note(50_000, ADDED_RATIO_MAX), "next to nothing added, at most 50.0 us wanted");
    }

    #[test]
    fn notes_say_how_much_was_served_at_user_level() {
        assert_eq!(calls_note(999, 1), "99.9 % of 1,000 calls at user level");
        assert!(calls_note(0, 5).starts_with("nothing was served at user level"));
    }
}
