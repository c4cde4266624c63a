//! One case on one file system: the kernel, a log on each of some devices, libeatmydata, and the bare append, in turns.
//!
//! Every run starts from the same state, with a new log, does the same commits with the same seed, and leaves the same
//! rows, of which a sum is compared.

use super::Ground;
use super::cases::Case;
use super::commit_log::{Device, Keeper, Logs};
use crate::engine::{Metric, Runs, Side};
use crate::error::Error;
use crate::number;
use crate::place::Kind;
use crate::programs::line::{Mode, Run, Turn};
use crate::programs::output::{self, Commits, unreadable};
use crate::programs::stage::{Stage, check_sums};
use crate::row::Row;
use crate::table::share;

/// Sizes of a log, of a full run and of a quick one, in bytes: so small that most runs fill it several times.
const LOG_BYTES: [u64; 2] = [32 << 20, 8 << 20];
/// Least share of the bare append's rate on the disk.
const SHARE_OF_APPEND: f64 = 0.9;
const CARELESS: &str = "libeatmydata, not durable";

/// Commits of a run, and what it took.
pub struct Sample {
    pub commits: Commits,
    /// CPU time of the program.
    pub cpu_seconds: f64,
    /// Counters of the log's keeper; `None` without a log.
    pub keeper: Option<Keeper>,
}

/// Commits of a run, and the CPU time of the program.
pub type Worked = (Commits, f64);

/// Side of a case.
#[derive(Clone, Copy)]
enum Who {
    Kernel,
    Careless,
    Bare(&'static str),
    Log(Device),
}

/// Measures `case` on the file system of `kind`, with a log on each of `devices`.
pub fn measure(
    case: &Case,
    ground: &Ground,
    kind: Kind,
    devices: &[Device],
    head: &Row,
) -> Result<Vec<Row>, Error> {
    let stage = &ground.stage(case.bench, kind)?;
    case.data.prepare(stage)?;
    let bytes = stage.pick(LOG_BYTES[0], LOG_BYTES[1]);
    let logs = &Logs::prepare(&stage.folder, ground.other_disk(), devices, case.as_other, bytes)?;
    let once = |who, operations| run_once(case, logs, stage, who, operations);
    let trial = |operations| Ok(once(Who::Kernel, operations)?.commits.done.seconds);
    let operations = case.amount.size_up(stage.quick, trial)?;
    let side = |name: &str, who| Side::new(name, move || once(who, operations));
    let mut sides = vec![side("kernel", Who::Kernel), side(CARELESS, Who::Careless)];
    sides.extend(devices.iter().map(|device| side("bywash", Who::Log(*device))));
    sides.extend(case.bare.map(|(name, line)| side(name, Who::Bare(line))));
    let runs = ground.rounds.run(sides)?;
    let (programs, bare) = runs.split_at(2 + devices.len());
    check_sums(programs, |sample| sample.commits.done.sum.as_ref())?;
    let (kernel, careless) = (&programs[0], &programs[1]);
    let rows = devices.iter().zip(&programs[2..]).flat_map(|(device, ours)| {
        let head = Row { note: note(ours, *device), ..named(head, *device) };
        let [goal, bound] = case.goals.on(*device);
        let append = (!device.is_volatile()).then_some(SHARE_OF_APPEND);
        let [rate, costs @ ..] = metrics();
        let mut rows = vec![rate.row(&head, ours, kernel, goal)];
        rows.extend(costs.iter().map(|cost| cost.row(&head, ours, kernel, None)));
        rows.push(rate.row(&head, ours, careless, bound));
        rows.extend(bare.iter().map(|bare| rate.row(&head, ours, bare, append)));
        let absorbed = keepers(ours).absorbed();
        rows.into_iter().map(|row| with_gain(row, absorbed)).collect::<Vec<_>>()
    });
    Ok(rows.collect())
}

/// The head of a case's rows with the log on `device`.
fn named(head: &Row, device: Device) -> Row {
    let what = match device.name() {
        "" => head.what().to_owned(),
        device => format!("{}, {device}", head.what()),
    };
    Row::head(&head.bench, &what, &head.place)
}

/// The figures of a run, the rate first.
fn metrics() -> [Metric<'static, Sample>; 5] {
    let latency = |name, number: usize| {
        Metric::cost(name, "ns", move |sample: &Sample| sample.commits.latency_ns[number])
    };
    [
        Metric::rate("throughput", "commits/s", |sample: &Sample| sample.commits.done.rate),
        latency("latency", 0),
        latency("latency, 99 %", 1),
        latency("latency, 99.9 %", 2),
        Metric::cost("cpu a commit", "ns", |sample: &Sample| sample.cpu_seconds * 1e9 / sample.count()),
    ]
}

impl Sample {
    /// Number of commits.
    fn count(&self) -> f64 {
        self.commits.done.rate * self.commits.done.seconds
    }
}

/// The row, whose goal above 1 is not reached by a log that absorbed nothing.
fn with_gain(row: Row, absorbed: u64) -> Row {
    let counts = absorbed > 0 || row.goal.is_none_or(|goal| goal <= 1.0);
    Row { met: row.met.map(|met| met && counts), ..row }
}

/// Returns the sum of the counters of all runs' keepers.
fn keepers(runs: &Runs<Sample>) -> Keeper {
    let samples = runs.samples.as_deref().unwrap_or_default();
    Keeper::sum(samples.iter().filter_map(|sample| sample.keeper.as_ref()))
}

/// Says how many syncs the log absorbed, why the kernel made the others, and what the keeper did.
fn note(runs: &Runs<Sample>, device: Device) -> String {
    let (keeper, samples) = (keepers(runs), runs.samples.as_deref().unwrap_or_default());
    let commits: f64 = samples.iter().map(Sample::count).sum();
    let others: Vec<String> = keeper
        .by_kernel()
        .filter(|(_, count)| *count > 0)
        .map(|(why, count)| format!("{count} {why}"))
        .collect();
    let all = keeper.absorbed() + keeper.by_kernel().map(|(_, count)| count).sum::<u64>();
    let mut text = match (keeper.absorbed(), all) {
        (_, 0) => "the log was asked for no sync".to_owned(),
        (0, all) => format!("nothing was absorbed of {} syncs", number::grouped(all)),
        (absorbed, all) => format!("{} syncs absorbed", share(absorbed, all)),
    };
    if !others.is_empty() {
        text += &format!("; the kernel's: {}", others.join(", "));
    }
    let cpu = number::quantity(keeper.cpu_seconds * 1e9 / commits.max(1.0), "ns");
    let server = if device.is_volume() { " and server's" } else { "" };
    text + &format!("; {} checkpoints, keeper's{server} CPU {cpu} a commit", keeper.count("checkpoints"))
}

fn run_once(case: &Case, logs: &Logs, stage: &Stage, who: Who, operations: u64) -> Result<Sample, Error> {
    case.data.reset(stage)?;
    let log = match who {
        Who::Log(device) => Some(logs.create(device)?),
        _ => None,
    };
    stage.place.sync()?;
    let run = match (&log, who) {
        (Some(log), _) => Run::logged(stage.library, log.launcher()?),
        (None, Who::Careless) => Run::begin(stage.library, Mode::Careless)?,
        (None, _) => Run::of_kernel(),
    };
    let (commits, cpu_seconds) = match who {
        Who::Bare(line) => {
            let told = Turn { stage, run: &run, operations, work: &stage.work() }.told(line)?;
            let read = output::driver_commits(&told);
            (read.ok_or_else(|| unreadable("the bare append", &told.output))?, told.cpu_seconds)
        }
        _ => (case.run)(stage, &run, operations)?,
    };
    let keeper = log.map(|log| log.finish()).transpose()?;
    stage.place.sync()?;
    Ok(Sample { commits, cpu_seconds, keeper })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::output::Done;

    fn runs(rate: f64, counters: &[(&str, u64)]) -> Runs<Sample> {
        let counters = counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let sample = || Sample {
            commits: Commits {
                done: Done { rate, seconds: 2.0, sum: None },
                latency_ns: [1.0, 2.0, 3.0].map(|number| number * 1e9 / rate),
            },
            cpu_seconds: 0.5,
            keeper: Some(Keeper { counters: Clone::clone(&counters), cpu_seconds: 0.1, ..Keeper::default() }),
        };
        Runs { name: "bywash".into(), samples: Ok(vec![sample(), sample()]) }
    }

    #[test]
    fn figures_are_those_of_a_commit_and_less_time_is_better() {
        let (ours, kernel) = (runs(1000.0, &[]), runs(500.0, &[]));
        let rows = metrics().map(|metric| metric.row(&Row::default(), &ours, &kernel, None));
        let figures = rows.each_ref().map(|row| (row.metric.as_str(), row.ours.unwrap(), row.ratio.unwrap()));
        let expected = [
            ("throughput", 1000.0, 2.0),
            ("latency", 1e6, 2.0),
            ("latency, 99 %", 2e6, 2.0),
            ("latency, 99.9 %", 3e6, 2.0),
            ("cpu a commit", 250_000.0, 2.0),
        ];
        assert_eq!(figures, expected);
    }

    #[test]
    fn a_note_says_what_was_absorbed_and_a_gain_needs_some_of_it() {
        let some =
            runs(1000.0, &[("commits", 1990), ("kernel_first", 8), ("kernel_full", 2), ("checkpoints", 3)]);
        let text = "99.5 % of 4,000 syncs absorbed; the kernel's: 16 first, 4 full; 6 checkpoints, keeper's CPU 50.0 us a commit";
        assert_eq!(note(&some, Device::SameDisk), text);
        let none = note(&runs(1000.0, &[("kernel_changed", 7), ("kernel_first", 0)]), Device::Channel);
        assert!(none.starts_with("nothing was absorbed of 14 syncs; the kernel's: 14 changed; "), "{none}");
        assert!(none.ends_with("keeper's and server's CPU 50.0 us a commit"), "{none}");
        assert!(
            note(&runs(1.0, &[]), Device::SameDisk)
                .starts_with("the log was asked for no sync; 0 checkpoints")
        );
        let met = |goal, absorbed| {
            let row = Row { goal: Some(goal), met: Some(true), ..Row::default() };
            with_gain(row, absorbed).met
        };
        assert_eq!([met(1.3, 1), met(1.3, 0), met(0.97, 0)], [Some(true), Some(false), Some(true)]);
    }
}
