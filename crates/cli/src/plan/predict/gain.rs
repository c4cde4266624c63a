//! The prediction: each kind of call takes as much more or less as it did when it was made again.

use super::calls::{Kind, Repeated, Times};
use super::runs::Starts;
use super::timeline::Timeline;
use crate::plan::record::steps::Steps;
use bywash_bench::statistics::Summary;
use bywash_session::recording::Function;
use bywash_sim::trace::CallKind;
use std::collections::{BTreeMap, HashMap};

/// A predicted time, and what it consists of.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Time by the kernel alone, as measured, in seconds.
    pub now: Summary,
    /// Time under `bywash run`, in seconds, and its bounds.
    pub then: Summary,
    /// Gain: time now over time then, and its bounds.
    pub gain: Summary,
    /// Time by the kernel alone that follows from the recording, in seconds.
    pub computed_now: f64,
    /// Changes by kind of call.
    pub changes: Vec<Change>,
    /// Programs that were started.
    pub starts: u32,
    /// Time that their starts take more, and that of the launcher, in seconds.
    pub start_seconds: f64,
    /// Sum of the threads' computing, in seconds.
    pub computing: f64,
    /// Time of all other calls, waits apart, in seconds.
    pub other_calls: f64,
    /// Calls on files that were not made again.
    pub left_out: usize,
    /// True if the recording is full and lacks calls.
    pub is_cut: bool,
    /// Waits of the recording without a recorded cause, in seconds.
    pub unexplained: f64,
}

/// Change of one kind of call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Kind of the calls.
    pub kind: Kind,
    /// Calls of this kind in the recording.
    pub calls: usize,
    /// Time of one, as recorded, in seconds.
    pub recorded: f64,
    /// Time of one, made again without the library, in seconds.
    pub without: f64,
    /// Time of one, made again with it, in seconds.
    pub with: f64,
    /// Predicted difference of all, in seconds.
    pub difference: f64,
}

/// Difference that the library makes for a call, in seconds: of the medians, with bounds by the quartiles of both
/// sides, which are independent of each other. `recorded`, if known, replaces the median without the library.
fn difference(times: &Times, recorded: Option<f64>) -> Option<Summary> {
    let (with, mut without) = (Summary::of(&times.with)?, Summary::of(&times.without)?);
    if let Some(recorded) = recorded.filter(|_| without.median > 0.0) {
        let scaled = |seconds: f64| seconds * recorded / without.median;
        without = Summary { low: scaled(without.low), median: recorded, high: scaled(without.high) };
    }
    let median = with.median - without.median;
    Some(Summary {
        low: median - (with.median - with.low).hypot(without.high - without.median),
        median,
        high: median + (with.high - with.median).hypot(without.median - without.low),
    })
}

/// Returns the mean recorded time of the syncs, by process and kind, in seconds. A sync writes what the program's other
/// calls have changed, such as names and sizes of files; the calls that are made again have changed less.
fn recorded_syncs(steps: &Steps) -> HashMap<(u32, Kind), f64> {
    let mut sums: HashMap<(u32, Kind), (f64, u32)> = HashMap::new();
    for (recorded, call) in steps.calls.iter().zip(&steps.trace.calls).filter(|(call, _)| !call.failed) {
        let kind = Kind::from_function(recorded.function).filter(|kind| kind.is_sync());
        if let (Some(kind), Some(timing), true) = (kind, call.timing, steps.is_on_file(recorded)) {
            let (seconds, count) = sums.entry((recorded.owner.process, kind)).or_default();
            *seconds += timing.end - call.at;
            *count += 1;
        }
    }
    sums.into_iter().map(|(key, (seconds, count))| (key, seconds / f64::from(count))).collect()
}

impl Prediction {
    /// Predicts from a recording, from its calls made again, and from the cost of starting programs.
    pub fn new(steps: &Steps, repeated: &Repeated, starts: Starts, now: Summary) -> Prediction {
        let syncs = recorded_syncs(steps);
        let differences = repeated.times.iter();
        let differences: HashMap<(u32, Kind), Summary> = differences
            .filter_map(|(key, times)| Some((*key, difference(times, syncs.get(key).copied())?)))
            .collect();
        let of_call = |index: usize, pick: fn(&Summary) -> f64| -> f64 {
            let call = &steps.calls[index];
            if call.function == Function::Start {
                return pick(&starts.library);
            }
            let kind = Kind::from_function(call.function).filter(|_| !call.failed);
            let on_file = kind.is_some_and(Kind::is_without_file) || steps.is_on_file(call);
            let difference =
                kind.filter(|_| on_file).and_then(|kind| differences.get(&(call.owner.process, kind)));
            difference.map_or(0.0, pick)
        };
        let timeline = Timeline::new(steps);
        let computed_now = timeline.seconds(&|_, recorded| recorded);
        let saved = |pick: fn(&Summary) -> f64| {
            let then = timeline.seconds(&|index, recorded| recorded + of_call(index, pick));
            then - computed_now + pick(&starts.launcher)
        };
        let [low, middle, high] = [saved(|one| one.low), saved(|one| one.median), saved(|one| one.high)];
        // Quartiles of the runs and of the differences are independent of each other.
        let then = now.median + middle;
        let spread = |run: f64, call: f64| run.hypot(call);
        let then = Summary {
            low: then - spread(now.median - now.low, middle - low),
            median: then,
            high: then + spread(now.high - now.median, high - middle),
        };
        let gain = |then: f64| now.median / then.max(f64::MIN_POSITIVE);
        let started = steps.calls.iter().filter(|call| call.function == Function::Start).count() as u32;
        let waits = |index: &usize| steps.trace.calls[*index].kind == CallKind::Wait;
        let duration = |index: usize| {
            let call = &steps.trace.calls[index];
            call.timing.map_or(0.0, |timing| timing.end - call.at)
        };
        let calls = 0..steps.calls.len();
        let on_files = |index: &usize| {
            Kind::from_function(steps.calls[*index].function).is_some()
                && steps.is_on_file(&steps.calls[*index])
        };
        Prediction {
            now,
            gain: Summary { low: gain(then.high), median: gain(then.median), high: gain(then.low) },
            then,
            computed_now,
            changes: changes(steps, repeated, &|index| of_call(index, |one| one.median)),
            starts: started,
            start_seconds: starts.library.median * f64::from(started) + starts.launcher.median,
            computing: steps
                .trace
                .calls
                .iter()
                .filter_map(|call| call.timing)
                .map(|timing| timing.computed)
                .sum(),
            other_calls: calls.clone().filter(|index| !waits(index) && !on_files(index)).map(duration).sum(),
            left_out: repeated.left_out,
            is_cut: steps.lost > 0,
            unexplained: calls
                .filter(|index| waits(index) && !timeline.has_cause(*index))
                .map(duration)
                .sum(),
        }
    }
}

fn changes(steps: &Steps, repeated: &Repeated, difference: &dyn Fn(usize) -> f64) -> Vec<Change> {
    let mut all: BTreeMap<Kind, (usize, f64, f64)> = BTreeMap::new();
    for (index, (recorded, call)) in steps.calls.iter().zip(&steps.trace.calls).enumerate() {
        let Some(kind) = Kind::from_function(recorded.function).filter(|_| !recorded.failed) else {
            continue;
        };
        if !kind.is_without_file() && !steps.is_on_file(recorded) {
            continue;
        }
        let (count, seconds, changed) = all.entry(kind).or_default();
        *count += 1;
        *seconds += call.timing.map_or(0.0, |timing| timing.end - call.at);
        *changed += difference(index);
    }
    let mean = |kind: Kind, side: fn(&Times) -> &[f64]| {
        let of_kind = repeated.times.iter().filter(|((_, of), _)| *of == kind);
        let medians: Vec<f64> =
            of_kind.filter_map(|(_, times)| Some(Summary::of(side(times))?.median)).collect();
        medians.iter().sum::<f64>() / medians.len().max(1) as f64
    };
    all.into_iter()
        .map(|(kind, (calls, seconds, difference))| Change {
            kind,
            calls,
            recorded: seconds / calls.max(1) as f64,
            without: mean(kind, |times| &times.without),
            with: mean(kind, |times| &times.with),
            difference,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::record::cost::Cost;
    use bywash_session::recording::{Owner, RecordedCall, RecordedFile, RecordedRun};

    const NONE: Summary = Summary { median: 0.0, low: 0.0, high: 0.0 };

    /// A thousand reads of 1 us, 1 us apart, of a process that then ends.
    fn reads() -> Steps {
        let owner = Owner { process: 1, pid: 7, thread: 7, parent: 1 };
        let call = |function, start: u64, end| {
            let (offset, length) = (Some(0), 4096);
            RecordedCall { owner, function, failed: false, start, end, offset, length, file: 1, away_ns: 0 }
        };
        let reads = (0..1000).map(|number| call(Function::ReadAt, number * 2000, number * 2000 + 1000));
        let calls = reads.chain([call(Function::Exit, 2_000_000, 2_000_000)]).collect();
        let file = RecordedFile { name: "/a".into(), mode: libc::S_IFREG, ..RecordedFile::default() };
        let run = RecordedRun { files: vec![RecordedFile::default(), file], calls, ..RecordedRun::default() };
        Steps::new(&run, 1e-9, Cost::default())
    }

    fn starts(seconds: f64) -> Starts {
        Starts { library: NONE, launcher: Summary { median: seconds, low: seconds, high: seconds } }
    }

    #[test]
    fn a_program_gains_what_its_calls_gain_and_pays_for_its_start() {
        let now = Summary { median: 2e-3, low: 1.9e-3, high: 2.1e-3 };
        let mut repeated = Repeated::default();
        let (without, with) = (vec![0.9e-6, 1e-6, 1.1e-6], vec![0.4e-6, 0.4e-6, 0.4e-6]);
        repeated.times.insert((1, Kind::ReadAt), Times { without, with });
        let prediction = Prediction::new(&reads(), &repeated, starts(1e-4), now);
        assert!((prediction.computed_now - 2e-3).abs() < 1e-9, "{prediction:?}");
        // A thousand times 0.6 us less, and 0.1 ms more.
        assert!((prediction.then.median - 1.5e-3).abs() < 1e-9, "{prediction:?}");
        assert!((prediction.gain.median - 2.0 / 1.5).abs() < 1e-6);
        assert!(
            prediction.gain.low < prediction.gain.median && prediction.gain.median < prediction.gain.high
        );
        let change = prediction.changes[0];
        assert!(
            change.kind == Kind::ReadAt && change.calls == 1000 && (change.difference + 6e-4).abs() < 1e-9
        );
    }

    /// The recorded calls are made syncs of 1 us, which take half of that when they are made again.
    #[test]
    fn syncs_save_what_they_took_in_the_program() {
        let mut steps = reads();
        for call in steps.calls.iter_mut().filter(|call| call.function == Function::ReadAt) {
            call.function = Function::SyncData;
        }
        let now = Summary { median: 2e-3, low: 2e-3, high: 2e-3 };
        let mut repeated = Repeated::default();
        let (without, with) = (vec![0.5e-6; 3], vec![0.1e-6; 3]);
        repeated.times.insert((1, Kind::SyncData), Times { without, with });
        let prediction = Prediction::new(&steps, &repeated, starts(0.0), now);
        assert!((prediction.then.median - 1.1e-3).abs() < 1e-9, "{prediction:?}");
    }

    #[test]
    fn calls_that_were_not_made_again_are_taken_as_they_are() {
        let now = Summary { median: 2e-3, low: 2e-3, high: 2e-3 };
        let repeated = Repeated { left_out: 1000, ..Repeated::default() };
        let prediction = Prediction::new(&reads(), &repeated, starts(0.0), now);
        assert!((prediction.gain.median - 1.0).abs() < 1e-9 && prediction.left_out == 1000);
    }
}
