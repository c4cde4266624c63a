//! Simulates a description and reports the result.

use super::hardware::{Hardware, at_least_one};
use super::request::RequestScripts;
use crate::engine::{
    Interval, Net, Register, Registers, Run, RunResult, Station, StationUse, StopCondition, Time, Timeline,
};
use bywash_model::{Architecture, Description};
use serde::Serialize;

/// Seed and length of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// Seed of the random numbers. The same seed gives the same run.
    pub seed: u64,
    /// End of the simulation.
    pub stop: Stop,
}

impl Options {
    /// Sets the seed.
    pub fn seed(self, seed: u64) -> Options {
        Options { seed, ..self }
    }

    /// Sets the end of the simulation.
    pub fn stop(self, stop: Stop) -> Options {
        Options { stop, ..self }
    }
}

/// End of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stop {
    /// Ends after this number of requests. The warm-up before them has a tenth as many requests, but at least
    /// 100 per thread, which lets the longest queues reach their steady state.
    Requests(u64),
    /// Ends after this number of simulated seconds. The warm-up before them takes a tenth of that.
    Seconds(f64),
}

impl Default for Options {
    /// Returns seed 1 and 100,000 requests, which take about a second to simulate.
    fn default() -> Options {
        Options { seed: 1, stop: Stop::Requests(100_000) }
    }
}

/// Error for a description that cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// More threads of a description, or processes of a trace, than a simulation supports. Holds their
    /// number.
    #[error("{0} threads are too many to simulate; at most {THREADS_MAX}")]
    TooManyThreads(f64),
    /// A request size above 2^31 bytes. Holds the size in bytes.
    #[error("requests of {0} bytes are too large to simulate; at most {BYTES_MAX}")]
    TooLarge(f64),
    /// Too many devices of one kind.
    #[error("{what}: {count} are too many to simulate; at most {DEVICES_MAX}")]
    TooManyDevices {
        /// Kind of the devices.
        what: &'static str,
        /// Number of devices in the description.
        count: f64,
    },
    /// A simulation of 0 requests or 0 seconds, or a replay of an empty trace.
    #[error("the simulation has no requests or no time; give at least one request")]
    Nothing,
}

const THREADS_MAX: u32 = 1_000_000;
const BYTES_MAX: u32 = 1 << 31;
const DEVICES_MAX: u32 = 4096;
/// Length of the warm-up, as a share of the measured requests or of the measured time.
const WARM_UP: f64 = 0.1;
/// Least number of warm-up requests per thread.
const WARM_UP_EACH: f64 = 100.0;

/// Result of a simulation. All values except `is_whole` and `events` are measured after the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// I/O architecture that was simulated.
    pub architecture: Architecture,
    /// Seed of the run.
    pub seed: u64,
    /// Number of requests served.
    pub requests: u64,
    /// Measured time, in simulated seconds.
    pub seconds: f64,
    /// Throughput in bytes per second, with 95 % confidence.
    pub throughput: Interval,
    /// Throughput in requests per second, with 95 % confidence.
    pub rate: Interval,
    /// Response times, in seconds.
    pub latency: Latency,
    /// Utilisation of all resources, in the order in which the machine's stations are created.
    pub resources: Vec<ResourceUtilisation>,
    /// Name of the resource that worked the largest share of the time.
    pub binding: String,
    /// Processor seconds per request, including the time that processors waited for memory.
    pub processor_seconds: f64,
    /// Number of events, including those of the warm-up.
    pub events: u64,
    /// True if the simulation reached its end. A stopped simulation has wider errors.
    pub is_whole: bool,
}

/// Distribution of response times, in seconds. Quantiles have an error of at most 1.6 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Mean, with 95 % confidence.
    pub mean: Interval,
    /// Median.
    pub p50: f64,
    /// Quantile of 90 %.
    pub p90: f64,
    /// Quantile of 99 %.
    pub p99: f64,
    /// Quantile of 99.9 %.
    pub p999: f64,
    /// Longest response time, with the error of a quantile.
    pub max: f64,
}

/// Utilisation of one kind of station.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResourceUtilisation {
    /// Name of the resource.
    pub name: String,
    /// Number of servers over all stations of this kind.
    pub count: u32,
    /// Mean share of the time that a server was occupied, 0 to 1.
    pub utilisation: f64,
    /// Mean share of the time that a server worked, 0 to 1. It is below `utilisation` if jobs kept a server
    /// while they waited for something else.
    pub working: f64,
    /// Share of the time that the busiest station worked, 0 to 1.
    pub busiest: f64,
    /// Mean number of waiting jobs, summed over all stations of this kind.
    pub waiting: f64,
}

/// Net of a description, and the meaning of its stations.
pub(super) struct Prepared {
    net: Net,
    rows: Vec<(&'static str, Station, u32)>,
}

impl Prepared {
    /// Combines `net` with the rows of stations to report. Station 0 of the net must be the processors.
    pub(super) fn new(net: Net, rows: Vec<(&'static str, Station, u32)>) -> Prepared {
        Prepared { net, rows }
    }

    /// Returns the net.
    pub(super) fn net(&self) -> &Net {
        &self.net
    }
}

/// Checks that `description` is small enough to be simulated.
///
/// # Errors
/// [`Error::TooManyThreads`], [`Error::TooLarge`] or [`Error::TooManyDevices`] if the threads, the request
/// size, or the number of disks or interfaces exceeds its limit.
pub fn within_limits(description: &Description) -> Result<(), Error> {
    let (machine, work) = (&description.machine, &description.workload());
    if work.load.threads > f64::from(THREADS_MAX) {
        return Err(Error::TooManyThreads(work.load.threads));
    }
    if work.request_bytes() > f64::from(BYTES_MAX) {
        return Err(Error::TooLarge(work.request_bytes()));
    }
    for (what, count) in [("disks", machine.disks.count), ("interfaces", machine.interfaces.count)] {
        if count > f64::from(DEVICES_MAX) {
            return Err(Error::TooManyDevices { what, count });
        }
    }
    Ok(())
}

/// Builds the net of `description` under `architecture`.
///
/// # Errors
/// Same as [`within_limits`].
fn prepare(description: &Description, architecture: Architecture) -> Result<Prepared, Error> {
    within_limits(description)?;
    let (machine, work) = (&description.machine, &description.workload());
    let mut net = Net::new();
    let hardware = Hardware::new(&mut net, machine);
    let serving = RequestScripts::new(&hardware, machine, work, architecture);
    let thread = net.script(serving.thread());
    for number in 0..at_least_one(work.load.threads) {
        let mut registers = Registers::default();
        if serving.is_in_order() {
            registers.picks[Register::Disk as usize] = number % hardware.counts[1];
            registers.picks[Register::Interface as usize] = number % hardware.counts[0];
        }
        net.start_with(thread, registers);
    }
    Ok(Prepared { rows: hardware.rows, net })
}

/// Simulates `description` under `architecture`. Calls `watch` from time to time with the share that is done,
/// 0 to 1, and stops if `watch` returns false.
///
/// # Errors
/// [`Error::Nothing`] if `options.stop` is not positive and finite; otherwise same as [`within_limits`].
pub fn simulate(
    description: &Description,
    architecture: Architecture,
    options: &Options,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<Report, Error> {
    let end = end(options.stop, description)?;
    let prepared = prepare(description, architecture)?;
    let outcome = Run::new(&prepared.net, options.seed).run_until(end, watch);
    Ok(report(&prepared, &outcome, architecture, options.seed))
}

/// Like [`simulate`], but also records the first `spans` spans of occupied servers.
///
/// # Errors
/// Same as [`simulate`].
pub fn simulate_timeline(
    description: &Description,
    architecture: Architecture,
    options: &Options,
    spans: usize,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<(Report, Timeline), Error> {
    let end = end(options.stop, description)?;
    let prepared = prepare(description, architecture)?;
    let mut outcome = Run::new(&prepared.net, options.seed).with_timeline(spans).run_until(end, watch);
    let timeline = outcome.timeline.take().map(|timeline| *timeline).unwrap_or_default();
    Ok((report(&prepared, &outcome, architecture, options.seed), timeline))
}

fn end(stop: Stop, description: &Description) -> Result<StopCondition, Error> {
    match stop {
        Stop::Requests(requests) if requests > 0 => {
            let warm_up = (requests as f64 * WARM_UP).max(description.load.threads * WARM_UP_EACH);
            Ok(StopCondition::Requests { warm_up: warm_up.ceil() as u64, requests })
        }
        Stop::Seconds(seconds) if seconds > 0.0 && seconds.is_finite() => Ok(StopCondition::Time {
            warm_up: Time::from_seconds(seconds * WARM_UP),
            time: Time::from_seconds(seconds),
        }),
        _ => Err(Error::Nothing),
    }
}

pub(super) fn report(
    prepared: &Prepared,
    outcome: &RunResult,
    architecture: Architecture,
    seed: u64,
) -> Report {
    let resources: Vec<ResourceUtilisation> =
        prepared.rows.iter().map(|row| in_row(row, &outcome.stations)).collect();
    let gap = outcome.gaps.mean_interval();
    // The rate is the reciprocal of the mean gap, so both have the same relative error.
    let uncertain = gap.half_width / gap.mean.max(f64::MIN_POSITIVE);
    let around = |mean: f64| Interval { mean, half_width: mean * uncertain };
    let busiest = resources.iter().max_by(|one, other| one.working.total_cmp(&other.working));
    let processors = &outcome.stations[0];
    let response = outcome.response.distribution();
    Report {
        architecture,
        seed,
        requests: outcome.finished,
        seconds: outcome.seconds,
        throughput: around(outcome.bytes as f64 / outcome.seconds.max(f64::MIN_POSITIVE)),
        rate: around(outcome.rate()),
        latency: Latency {
            mean: outcome.response.mean_interval(),
            p50: response.quantile(0.5),
            p90: response.quantile(0.9),
            p99: response.quantile(0.99),
            p999: response.quantile(0.999),
            max: response.quantile(1.0),
        },
        binding: busiest.map(|resource| resource.name.clone()).unwrap_or_default(),
        processor_seconds: processors.utilisation * f64::from(processors.servers) * outcome.seconds
            / outcome.finished.max(1) as f64,
        resources,
        events: outcome.events,
        is_whole: outcome.is_whole,
    }
}

fn in_row(
    (name, first, count): &(&'static str, Station, u32),
    stations: &[StationUse],
) -> ResourceUtilisation {
    let first = first.index();
    let row = &stations[first..first + *count as usize];
    let sum = |of: fn(&StationUse) -> f64| row.iter().map(of).sum::<f64>();
    ResourceUtilisation {
        name: (*name).into(),
        count: row.iter().map(|station| station.servers).sum(),
        utilisation: sum(|station| station.utilisation) / f64::from(*count),
        working: sum(|station| station.working) / f64::from(*count),
        busiest: row.iter().map(|station| station.working).fold(0.0, f64::max),
        waiting: sum(|station| station.waiting),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_model::closed::closed;
    use bywash_model::machine::{DiskScheduling, Flash, Interconnect, Memory, Rotating, Topology};
    use bywash_model::units::{Cycles, Rate, Share, Size, Time};
    use bywash_model::work::{Mechanisms, Request};
    use bywash_model::{Machine, Workload};

    fn run(description: &Description, architecture: Architecture, requests: u64) -> Report {
        let options = Options { seed: 3, stop: Stop::Requests(requests) };
        simulate(description, architecture, &options, &mut |_| true).unwrap()
    }

    fn requests() -> [Request; 6] {
        let share = Share(0.3);
        [
            Request::Web { file: Size(16384.0), miss: share },
            Request::Video { file: Size(100_000.0) },
            Request::Streams { block: Size(65536.0), writes: share },
            Request::Blocks { block: Size(4096.0), writes: share, in_order: false },
            Request::Database {
                page: Size(8192.0),
                pages: 3.0,
                miss: share,
                log: Size(1000.0),
                compute: Cycles(1e5),
            },
            Request::Dynamic { page: Size(8192.0), compute: Cycles(1e5), data: Size(4096.0) },
        ]
    }

    /// Returns a machine with every part that a description can have.
    fn detailed(shape: Topology, is_flash: bool) -> Machine {
        let mut machine = Machine::carrera_2003();
        machine.processors.count = 2.0;
        machine.memory = Some(Memory {
            rate: Rate(1e9),
            banks: 4.0,
            latency: Time(60e-9),
            l1: Size(8192.0),
            l2: Size(131072.0),
            l2_latency: Time(5e-9),
            write_buffer: Size(2048.0),
            file_cache: Size(0.0),
        });
        machine.interconnect = Interconnect {
            shape,
            latency: Time(1e-6),
            packet: Size(256.0),
            overhead: Size(24.0),
            arbitration: Time(10e-9),
            // A machine with flash is a newer one, whose bridge holds several blocks.
            pending: if is_flash { 8.0 } else { 1.0 },
            ..Interconnect::ideal(Rate(1e9))
        };
        machine.disks.cache = Size(262_144.0);
        machine.disks.segments = 4.0;
        if is_flash {
            let (latency, write) = (Time(80e-6), Time(20e-6));
            machine.disks.flash =
                Some(Flash { latency, spread: 0.3, channels: 8.0, write, queues: 2.0, depth: 4.0 });
        } else {
            let (seek, track, turn) = (Time(1e-3), Time(1e-6), Time(4e-3));
            machine.disks.rotating =
                Some(Rotating { seek, track, tracks: 100.0, turn, order: DiskScheduling::Elevator });
        }
        machine
    }

    #[test]
    fn everything_is_served_by_every_structure_on_every_machine() {
        for shape in [Topology::Bus, Topology::Switch] {
            for is_flash in [false, true] {
                for request in requests() {
                    for architecture in Architecture::ALL {
                        for spin in [false, true] {
                            let mut description =
                                Description::new(detailed(shape, is_flash), Workload::new(request));
                            description.load.threads = 9.0;
                            description.load.spin = spin;
                            description.costs.interrupt = Cycles(3000.0);
                            description.costs.switch = Cycles(2000.0);
                            let report = run(&description, architecture, 300);
                            assert!(
                                report.is_whole && report.requests == 300,
                                "{request:?} {architecture:?}"
                            );
                            for row in &report.resources {
                                assert!(
                                    row.working <= row.utilisation + 0.05 && row.utilisation < 1.0 + 1e-9,
                                    "{row:?} of {request:?} {architecture:?} {shape:?}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn one_thread_takes_what_the_model_says() {
        // A single thread never waits. The simulation adds no times to those of the model.
        for architecture in Architecture::ALL {
            for request in [requests()[0], requests()[2]] {
                let mut description = Description::new(Machine::carrera_2003(), Workload::new(request));
                description.load.threads = 1.0;
                let wanted = closed(&description.machine, &description.workload(), architecture).response;
                let found = run(&description, architecture, 20_000).latency.mean;
                // The tolerance covers direct transfers: there each device has its own link, and the model
                // charges the interconnect for both ends.
                assert!(
                    (found.mean / wanted - 1.0).abs() < 0.04,
                    "{architecture:?} {request:?}: {found:?} {wanted}"
                );
            }
        }
    }

    #[test]
    fn each_mechanism_spares_the_host() {
        let work = Workload::new(Request::Streams { block: Size(16384.0), writes: Share(0.0) });
        let mut description = Description::new(detailed(Topology::Switch, true), work);
        description.load.threads = 4.0;
        (description.costs.call, description.costs.interrupt) = (Cycles(5000.0), Cycles(8000.0));
        let mut cost = |mechanisms| {
            description.mechanisms = mechanisms;
            run(&description, Architecture::UserLevel, 2000).processor_seconds
        };
        let none = cost(Mechanisms::NONE);
        let each = [
            Mechanisms { initiation: true, ..Mechanisms::NONE },
            Mechanisms { transfer: true, ..Mechanisms::NONE },
            Mechanisms { notification: true, ..Mechanisms::NONE },
        ]
        .map(&mut cost);
        let all = cost(Mechanisms::ALL);
        assert!(each.iter().all(|one| *one < none && *one > all), "{none} {each:?} {all}");
    }

    #[test]
    fn a_seed_is_a_report() {
        let description = Description::new(detailed(Topology::Bus, false), Workload::web(0.1));
        let one = run(&description, Architecture::Conventional, 500);
        assert_eq!(one, run(&description, Architecture::Conventional, 500));
    }

    #[test]
    fn who_stops_it_gets_what_there_is() {
        let description = Description::new(Machine::carrera_2003(), Workload::web(0.1));
        let options = Options { seed: 1, stop: Stop::Requests(10_000_000) };
        let mut heard = 0;
        let report = simulate(&description, Architecture::Active, &options, &mut |share| {
            assert!((0.0..=1.0).contains(&share));
            heard += 1;
            heard < 40
        });
        let report = report.unwrap();
        assert!(!report.is_whole && report.requests < 10_000_000);
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        let mut description = Description::new(Machine::carrera_2003(), Workload::web(0.1));
        let nothing = Options { seed: 1, stop: Stop::Requests(0) };
        let refused = |description: &Description, options: &Options| {
            simulate(description, Architecture::Active, options, &mut |_| true).unwrap_err()
        };
        assert_eq!(refused(&description, &nothing), Error::Nothing);
        description.load.threads = 1e9;
        assert_eq!(refused(&description, &Options::default()), Error::TooManyThreads(1e9));
    }
}
