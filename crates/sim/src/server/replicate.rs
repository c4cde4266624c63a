//! Several independent runs of one description: their mean, and a confidence interval that makes no
//! assumption about the correlation within a run. The command calls it.

use super::simulate::{
    Error, Latency, LoadState, Options, ProcessorShares, Report, ResourceUtilisation, capacity, simulate,
    simulate_arrivals,
};
use crate::engine::Interval;
use crate::many;
use bywash_model::{Architecture, Description};
use std::ops::Range;

/// Student's t for 95 % confidence, from 1 to 30 degrees of freedom.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// Student's t for 95 % confidence and more than 30 degrees of freedom.
const T_MANY: f64 = 1.96;

/// Runs the simulation `count` times on all cores, each with its own seed, and combines the reports. Every
/// run calls `go_on` from time to time with its share that is done, and stops if `go_on` returns false.
///
/// # Errors
/// Same as [`simulate`](super::simulate()).
pub fn replicate(
    description: &Description,
    architecture: Architecture,
    options: &Options,
    count: u32,
    go_on: &(dyn Fn(f64) -> bool + Sync),
) -> Result<Report, Error> {
    if count < 2 {
        return simulate(description, architecture, options, &mut |share| go_on(share));
    }
    if !description.load.is_open() {
        return each(options, 0..u64::from(count), |options| {
            simulate(description, architecture, options, &mut |share| go_on(share))
        });
    }
    // The capacity is determined once for all runs.
    let saturated = capacity(description, architecture, options, &mut |share| go_on(share * CAPACITY_SHARE))?;
    replicate_arrivals(description, architecture, options, 0..u64::from(count), &saturated, go_on)
}

/// Share of a run's progress that determining the capacity counts for.
const CAPACITY_SHARE: f64 = 0.1;

/// Simulates the arrivals of `description` once for each of `numbers`, each with its own seed, for a server
/// whose run with all threads busy is `saturated`, and combines the reports.
///
/// # Errors
/// Same as [`simulate`](super::simulate()).
pub(super) fn replicate_arrivals(
    description: &Description,
    architecture: Architecture,
    options: &Options,
    numbers: Range<u64>,
    saturated: &Report,
    go_on: &(dyn Fn(f64) -> bool + Sync),
) -> Result<Report, Error> {
    each(options, numbers, |options| {
        let watch = &mut |share| go_on(share);
        simulate_arrivals(description, architecture, options, 0, saturated, watch).map(|(report, _)| report)
    })
}

/// Runs `simulate` on all cores with the options of each of `numbers`, and combines the reports.
///
/// # Errors
/// Those of `simulate`.
pub(super) fn each(
    options: &Options,
    numbers: Range<u64>,
    simulate: impl Fn(&Options) -> Result<Report, Error> + Sync,
) -> Result<Report, Error> {
    let numbers: Vec<u64> = numbers.collect();
    let reports =
        many::each(&numbers, |number| simulate(&options.seed(many::seed_of(options.seed, *number))));
    let reports: Vec<Report> = reports.into_iter().collect::<Result<_, _>>()?;
    Ok(Report { seed: options.seed, ..combine(reports) })
}

/// Combines the reports of several runs of one description: means over the runs, with the confidence
/// intervals of these means.
///
/// # Panics
/// If `reports` is empty.
pub fn combine(reports: Vec<Report>) -> Report {
    let [first, ..] = &reports[..] else { panic!("a report of no runs") };
    if reports.len() == 1 {
        return first.clone();
    }
    let of = |value: &dyn Fn(&Report) -> f64| reports.iter().map(value).collect::<Vec<f64>>();
    let mean = |value: &dyn Fn(&Report) -> f64| of(value).iter().sum::<f64>() / reports.len() as f64;
    let around = |value: &dyn Fn(&Report) -> f64| interval(&of(value));
    let bounds = |value: &dyn Fn(&Report) -> f64| match around(value) {
        Interval { mean, .. } if mean.is_infinite() => [f64::INFINITY; 2],
        // The means over the runs have the error of the quantiles of each.
        Interval { mean, half_width } => {
            let half_width = half_width + QUANTILE_ERROR * mean;
            [(mean - half_width).max(0.0), mean + half_width]
        }
    };
    let resource = |number: usize| {
        let row = &first.resources[number];
        ResourceUtilisation {
            name: row.name.clone(),
            count: row.count,
            utilisation: mean(&|one| one.resources[number].utilisation),
            working: mean(&|one| one.resources[number].working),
            stalled: mean(&|one| one.resources[number].stalled),
            busiest: mean(&|one| one.resources[number].busiest),
            waiting: mean(&|one| one.resources[number].waiting),
        }
    };
    let resources: Vec<ResourceUtilisation> = (0..first.resources.len()).map(resource).collect();
    let busiest = resources.iter().max_by(|one, other| one.working.total_cmp(&other.working));
    Report {
        architecture: first.architecture,
        seed: first.seed,
        requests: reports.iter().map(|one| one.requests).sum(),
        seconds: reports.iter().map(|one| one.seconds).sum(),
        throughput: around(&|one| one.throughput.mean),
        rate: around(&|one| one.rate.mean),
        latency: Latency {
            mean: around(&|one| one.latency.mean.mean),
            p50: mean(&|one| one.latency.p50),
            p50_bounds: bounds(&|one| one.latency.p50),
            p90: mean(&|one| one.latency.p90),
            p90_bounds: bounds(&|one| one.latency.p90),
            p99: mean(&|one| one.latency.p99),
            p99_bounds: bounds(&|one| one.latency.p99),
            p999: mean(&|one| one.latency.p999),
            p999_bounds: bounds(&|one| one.latency.p999),
            max: of(&|one| one.latency.max).into_iter().fold(0.0, f64::max),
        },
        load: combined(reports.iter().map(|one| one.load)),
        offered: first.offered,
        capacity: first.capacity,
        binding: busiest.map(|row| row.name.clone()).unwrap_or_default(),
        processors: ProcessorShares {
            computing: mean(&|one| one.processors.computing),
            stalled: mean(&|one| one.processors.stalled),
            spinning: mean(&|one| one.processors.spinning),
            idle: mean(&|one| one.processors.idle),
        },
        processor_seconds: mean(&|one| one.processor_seconds),
        events: reports.iter().map(|one| one.events).sum(),
        is_whole: reports.iter().all(|one| one.is_whole),
        resources,
    }
}

/// Error of a run's quantile, relative to it.
const QUANTILE_ERROR: f64 = 0.008;
/// Share of the runs with rising response times above which those of all together count as rising.
const RISING: f64 = 0.25;

/// Returns the state of several runs: overloaded if one is, rising if more are than chance explains.
fn combined(states: impl Iterator<Item = LoadState> + Clone) -> LoadState {
    let count = |wanted| states.clone().filter(|one| *one == wanted).count();
    let all = states.clone().count() as f64;
    if count(LoadState::Overloaded) > 0 {
        LoadState::Overloaded
    } else if count(LoadState::Rising) as f64 > RISING * all {
        LoadState::Rising
    } else {
        LoadState::Steady
    }
}

/// Returns the mean of independent values, with 95 % confidence.
fn interval(values: &[f64]) -> Interval {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return Interval { mean, half_width: f64::INFINITY };
    }
    if mean.is_infinite() {
        return Interval { mean, half_width: f64::INFINITY };
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let t = T.get(values.len() - 2).copied().unwrap_or(T_MANY);
    Interval { mean, half_width: t * (variance / count).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::super::simulate::Stop;
    use super::*;
    use bywash_model::{Machine, Workload};

    #[test]
    fn replications_are_the_same_on_any_number_of_cores_and_close_to_one_long_run() {
        let description = Description::new(Machine::carrera_2003(), Workload::web(0.1));
        let run = |requests, count| {
            let options = Options { seed: 9, stop: Stop::Requests(requests) };
            replicate(&description, Architecture::Active, &options, count, &|_| true).unwrap()
        };
        let several = run(4000, 6);
        assert_eq!(several, run(4000, 6));
        assert_eq!((several.requests, several.seed), (24_000, 9));
        let long = run(40_000, 1).throughput;
        let allowed = 2.0 * (several.throughput.half_width + long.half_width);
        assert!((several.throughput.mean - long.mean).abs() < allowed, "{several:?} {long:?}");
        assert!(several.throughput.half_width < 0.05 * several.throughput.mean);
    }

    #[test]
    fn replications_of_arrivals_have_one_capacity_and_narrower_percentiles() {
        let mut description = Description::new(Machine::carrera_2003(), Workload::web(0.1));
        description.load.arrivals.0 = 8000.0;
        let options = Options { seed: 9, stop: Stop::Requests(4000) };
        let run = |count| replicate(&description, Architecture::Active, &options, count, &|_| true).unwrap();
        let (one, several) = (run(1), run(8));
        assert_eq!((several.load, several.offered), (LoadState::Steady, Some(8000.0)));
        assert_eq!(several.capacity, one.capacity);
        let wide = |report: &Report| report.latency.p90_bounds[1] - report.latency.p90_bounds[0];
        assert!(wide(&several) < wide(&one), "{one:?} {several:?}");
        description.load.arrivals.0 = 1e6;
        let over = replicate(&description, Architecture::Active, &options, 3, &|_| true).unwrap();
        assert_eq!(over.load, LoadState::Overloaded);
        assert!(over.latency.p99.is_infinite() && over.latency.p99_bounds == [f64::INFINITY; 2]);
    }

    #[test]
    fn the_interval_of_two_values_is_wide() {
        let of_two = interval(&[1.0, 3.0]);
        assert!((of_two.mean - 2.0).abs() < 1e-12 && (of_two.half_width - 12.706).abs() < 1e-9);
        assert_eq!(interval(&[5.0]).half_width, f64::INFINITY);
    }
}
