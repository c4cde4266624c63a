//! One case on one file system: the kernel, the preloaded library and a rival in turns, and the rows of that.
//!
//! Every run starts from the same state (its data is brought back), does the same work (the same number of operations with
//! the same seed, checked by a sum over the results) and is followed by a sync, so that the device bytes of its writes are
//! its own. Calls that were served at user level are counted in one more run, because counting costs time that a user does
//! not pay.

use super::{Case, Reading, head};
use crate::engine::{Metric, Rounds, Runs, Side};
use crate::error::Error;
use crate::number;
use crate::programs::line::{Calls, Mode, Run};
use crate::programs::output::Done;
use crate::programs::stage::{Stage, check_sums};
use crate::row::Row;
use crate::table::share;
use crate::usage::Usage;

/// Bytes added to both sides of a ratio of device bytes, so that nothing against nothing is 1 and a page of
/// metadata against nothing is not infinite.
const DEVICE_FLOOR_BYTES: f64 = 64.0 * 1024.0;
/// The peer of rows that have the kernel on both sides.
const KERNEL_ITSELF: &str = "kernel against itself";
/// Largest ratio of a limit to the time that was added: noise can make that nothing, and less.
const ADDED_RATIO_MAX: f64 = 100.0;

#[derive(Debug)]
struct Sample {
    done: Done,
    usage: Usage,
    calls: Calls,
}

pub fn declared(case: &Case, place: &str) -> Vec<Row> {
    let row = |(reading, goal): &(Reading, Option<f64>)| {
        metric(case, *reading).head(&head(case, place), "kernel", *goal)
    };
    case.readings.iter().map(row).collect()
}

fn metric(case: &Case, reading: Reading) -> Metric<'static, Sample> {
    match reading {
        Reading::Rate => Metric::rate("throughput", case.unit, |sample: &Sample| sample.done.rate),
        Reading::DeviceRead => Metric::cost("device bytes read", "B", |sample: &Sample| {
            sample.usage.device_read_bytes.unwrap_or(0) as f64
        })
        .ratio(|ours, peer| (peer + DEVICE_FLOOR_BYTES) / (ours + DEVICE_FLOOR_BYTES)),
        Reading::Added(limit_ns) => {
            let limit = f64::from(limit_ns);
            Metric::cost("time of one", "ns", |sample: &Sample| 1e9 / sample.done.rate)
                .ratio(move |ours, peer| limit / (ours - peer).max(limit / ADDED_RATIO_MAX))
        }
    }
}

/// Measures `case`: a row for each of its readings, one more against its rival, and where one of them misses its goal, one
/// of the kernel against itself, which says how far the machine can be trusted.
pub fn measure(case: &Case, stage: &Stage, rounds: Rounds) -> Result<Vec<Row>, Error> {
    case.data.prepare(stage)?;
    let trial = |operations| Ok(run_once(case, stage, Mode::Kernel, operations)?.done.seconds);
    let operations = case.amount.size_up(stage.quick, trial)?;
    let side = |name, mode| Side::new(name, move || run_once(case, stage, mode, operations));
    let mut sides = vec![side("kernel", Mode::Kernel), side("bywash", Mode::Bywash)];
    sides.extend(case.rival.map(|(name, _)| side(name, Mode::Rival)));
    let runs = rounds.run(sides)?;
    check_sums(&runs, |sample| sample.done.sum.as_ref())?;
    let (kernel, ours) = (&runs[0], &runs[1]);
    let calls = match ours.samples {
        Ok(_) => run_once(case, stage, Mode::Counted, operations)?.calls,
        Err(_) => Calls::default(),
    };
    let head = head(case, &stage.place.name);
    let has_device = |reading| reading != Reading::DeviceRead || stage.place.device.is_some();
    let readings = case.readings.iter().filter(|(reading, _)| has_device(*reading));
    let mut rows: Vec<Row> = readings
        .map(|(reading, goal)| {
            let row = metric(case, *reading).row(&head, ours, kernel, *goal);
            let note = match (reading, row.ratio) {
                (Reading::Added(limit_ns), Some(ratio)) => added_note(*limit_ns, ratio),
                _ => calls_note(calls),
            };
            with_calls(row, calls, note, ours, kernel)
        })
        .collect();
    let rate = || metric(case, case.readings[0].0);
    if let (Some((_, goal)), Some(rival)) = (case.rival, runs.get(2)) {
        let control = rate().row(&head, rival, kernel, None).ratio;
        let note = control
            .map_or(String::new(), |ratio| format!("control: the peer itself is {ratio:.2} x the kernel"));
        rows.push(with_calls(rate().row(&head, ours, rival, goal), calls, note, ours, rival));
    }
    if rows.iter().any(|row| row.met == Some(false)) {
        let both = rounds.run([0, 1].map(|_| side("kernel", Mode::Kernel)).into())?;
        let row = rate().row(&head, &both[1], &both[0], None);
        // Without it the rows of the case stand as they are.
        rows.extend(row.ratio.is_some().then(|| Row {
            peer: KERNEL_ITSELF.into(),
            note: "control: the kernel on both sides; a ratio as far from 1 as a miss says that the machine did it"
                .into(),
            ours_usage: usage(&both[1]),
            peer_usage: usage(&both[0]),
            ..row
        }));
    }
    Ok(rows)
}

/// The row with the calls that were counted and what both sides used. A goal above 1 is not reached by a run in which
/// nothing was served at user level.
fn with_calls(row: Row, calls: Calls, note: String, ours: &Runs<Sample>, peer: &Runs<Sample>) -> Row {
    if row.ratio.is_none() {
        return row;
    }
    let counts = calls.user > 0 || row.goal.is_none_or(|goal| goal <= 1.0);
    Row {
        met: row.met.map(|met| met && counts),
        note,
        calls_user: Some(calls.user),
        calls_kernel: Some(calls.kernel),
        ours_usage: usage(ours),
        peer_usage: usage(peer),
        ..row
    }
}

fn usage(runs: &Runs<Sample>) -> Option<Usage> {
    let samples = runs.samples.as_ref().ok()?;
    Some(Usage::median(&samples.iter().map(|sample| sample.usage).collect::<Vec<_>>()))
}

fn run_once(case: &Case, stage: &Stage, mode: Mode, operations: u64) -> Result<Sample, Error> {
    crate::interrupt::check()?;
    let device = stage.place.device.as_ref();
    case.data.reset(stage)?;
    stage.place.sync()?;
    let run = Run::begin(stage.library, mode)?;
    let before = Usage::now(device)?;
    let done = (case.run)(stage, &run, operations)?;
    stage.place.sync()?;
    Ok(Sample { done, usage: Usage::now(device)?.since(&before), calls: run.calls() })
}

/// Says how much time a process took longer with Bywash, at the median, and how much it may take.
fn added_note(limit_ns: u32, ratio: f64) -> String {
    let limit = f64::from(limit_ns);
    let added = match ratio >= ADDED_RATIO_MAX {
        true => "next to nothing".to_owned(),
        false => number::quantity(limit / ratio, "ns"),
    };
    format!("{added} added, at most {} wanted", number::quantity(limit, "ns"))
}

fn calls_note(calls: Calls) -> String {
    match (calls.user, calls.user + calls.kernel) {
        (_, 0) => "the library counted no call at all: nothing was served at user level".into(),
        (0, all) => {
            format!("nothing was served at user level ({} calls to the kernel)", number::grouped(all))
        }
        (user, all) => format!("{} calls at user level", share(user, all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::stage::{Amount, Data, on_stage};
    use crate::run::case;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Measures a program that is twice as fast at user level and tells in which order its sides were run.
    fn measured(agrees: bool, goal: f64, user_calls: u64) -> (Result<Vec<Row>, Error>, Vec<Mode>) {
        let order = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&order);
        let (figure, amount) = (("op/s", goal), Amount::For(100, 1.0));
        let pretend = case("micro", "pretend", figure, amount, Data::nothing(), move |_, run, operations| {
            log.borrow_mut().push(run.mode);
            let ours = matches!(run.mode, Mode::Bywash | Mode::Counted);
            run.count_user_reads(user_calls);
            let rate = if ours { 2000.0 } else { 1000.0 };
            let sum = if ours && !agrees { "other" } else { "same" };
            Ok(Done { rate, seconds: operations as f64 / rate, sum: Some(sum.into()) })
        });
        let pretend = Case { rival: Some(("kernel, differently", Some(1.9))), ..pretend };
        let rows = on_stage(false, |stage| measure(&pretend, stage, Rounds::new(2)));
        (rows, order.take())
    }

    #[test]
    fn sides_take_turns_each_peer_has_a_row_and_a_miss_the_kernel_against_itself() {
        let (rows, order) = measured(true, 1.5, 3);
        let (rows, (k, b, r)) = (rows.unwrap(), (Mode::Kernel, Mode::Bywash, Mode::Rival));
        assert_eq!(order, [k, k, b, r, r, b, k, Mode::Counted]);
        assert_eq!((rows.len(), rows[0].ratio, rows[0].met), (2, Some(2.0), Some(true)));
        assert_eq!((rows[0].calls_user, rows[0].calls_kernel), (Some(3), Some(0)));
        assert_eq!(rows[0].note, "100.0 % of 3 calls at user level");
        assert_eq!((rows[1].peer.as_str(), rows[1].met), ("kernel, differently", Some(true)));
        assert!(rows[1].note.contains("1.00 x the kernel"), "{}", rows[1].note);
        let (rows, order) = measured(true, 2.5, 3);
        let rows = rows.unwrap();
        assert_eq!((rows.len(), rows[0].met), (3, Some(false)));
        assert_eq!((rows[2].peer.as_str(), rows[2].ratio, rows[2].goal), (KERNEL_ITSELF, Some(1.0), None));
        assert_eq!(order[order.len() - 4..], [k; 4]);
    }

    #[test]
    fn a_gain_needs_calls_at_user_level_and_equal_results() {
        let rows = measured(true, 1.5, 0).0.unwrap();
        assert_eq!((rows[0].ratio, rows[0].met), (Some(2.0), Some(false)));
        assert!(rows[0].note.contains("nothing was served at user level"), "{}", rows[0].note);
        assert_eq!(measured(true, 0.97, 0).0.unwrap()[0].met, Some(true));
        let error = measured(false, 1.5, 3).0.unwrap_err();
        assert!(error.to_string().contains("computed other, and same") && !error.is_absence(), "{error}");
    }

    #[test]
    fn what_is_added_is_held_against_its_limit() {
        let runs = |rate: f64| {
            let (done, calls) = (Done { rate, seconds: 1.0, sum: None }, Calls::default());
            let samples = Ok(vec![Sample { done, usage: Usage::default(), calls }]);
            Runs { name: String::new(), samples }
        };
        let start = case("start", "", ("", 1.0), Amount::FREE, Data::nothing(), |_, _, _| unreachable!());
        let metric = metric(&start, Reading::Added(50_000));
        let ratio = |rate| metric.row(&Row::default(), &runs(rate), &runs(1000.0), None).ratio.unwrap();
        // 1.25 ms instead of 1 ms, 1.025 ms, and less.
        assert!((ratio(800.0) - 0.2).abs() < 1e-9);
        assert!((ratio(1000.0 / 1.025) - 2.0).abs() < 1e-6);
        assert_eq!(ratio(2000.0), ADDED_RATIO_MAX);
        assert_eq!(added_note(50_000, 0.2), "250 us added, at most 50.0 us wanted");
        assert_eq!(added_note(50_000, ADDED_RATIO_MAX), "next to nothing added, at most 50.0 us wanted");
    }
}
