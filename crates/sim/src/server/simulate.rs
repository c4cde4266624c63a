//! Simulates a description and reports the result.

use super::hardware::{Hardware, at_least_one};
use super::request::RequestScripts;
use crate::engine::{
    ARRIVALS_MAX, Interval, Net, Op, Register, Registers, Run, RunResult, ServiceTime, Station, StationUse,
    StopCondition, Time, Timeline,
};
use bywash_model::{Architecture, Demand, Description, MissingProcessor};
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
    /// 100 per thread of a closed load, which lets the longest queues reach their steady state, and at least
    /// 1000 of an open load.
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
    /// A replay that keeps computing, of a trace that does not tell it.
    #[error(
        "the trace does not tell how long each call took and how long the program computed before it; record it with \
         `bywash plan record`"
    )]
    Untimed,
    /// The architecture needs processors that the devices do not have.
    #[error(transparent)]
    MissingProcessor(#[from] MissingProcessor),
    /// More arrivals wait than a simulation keeps. Holds the mean size of a burst.
    #[error(
        "more than {ARRIVALS_MAX} requests wait for a thread: bursts of {0} requests on the average are too long for \
         this server; lower load.burst or load.arrivals"
    )]
    Flooded(f64),
    /// Arrivals so rare that the simulated time would exceed its range. Holds the requests and their rate.
    #[error("{0} requests at {1} a second take more than {SECONDS_MAX} s; give fewer requests, or a time")]
    TooRare(u64, f64),
}

const THREADS_MAX: u32 = 1_000_000;
const BYTES_MAX: u32 = 1 << 31;
const DEVICES_MAX: u32 = 4096;
/// Length of the warm-up, as a share of the measured requests or of the measured time.
const WARM_UP: f64 = 0.1;
/// Least number of warm-up requests per thread of a closed load.
const WARM_UP_EACH: f64 = 100.0;
/// Least number of warm-up requests of an open load.
const WARM_UP_OPEN: f64 = 1000.0;
/// Greatest simulated time of a run by requests, in seconds: half of what [`Time`] holds.
const SECONDS_MAX: f64 = 1e7;
/// Greatest number of requests from which the capacity of a server with an open load is determined.
const CAPACITY_REQUESTS: u64 = 20_000;
/// Share of the progress that determining the capacity counts for.
const CAPACITY_SHARE: f64 = 0.2;

/// State of the queues of a simulated server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadState {
    /// Queues neither grow nor shrink: the measurements are those of any longer run.
    #[default]
    Steady,
    /// Response times still rose at the end of the run, more than chance explains: the arrivals are near the
    /// capacity, and a longer run has longer response times.
    Rising,
    /// Requests arrive faster than the server serves them, or within the confidence interval of its capacity.
    /// Queues grow without end, so response times are infinite; all else is measured with all threads busy.
    Overloaded,
}

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
    /// State of the queues: steady for a closed load.
    pub load: LoadState,
    /// Number of requests that arrive per second, of an open load.
    pub offered: Option<f64>,
    /// Greatest rate at which the server serves requests, per second, with 95 % confidence: that with all
    /// threads always busy. Of an open load.
    pub capacity: Option<Interval>,
    /// Utilisation of all resources, in the order in which the machine's stations are created.
    pub resources: Vec<ResourceUtilisation>,
    /// Name of the resource that worked the largest share of the time.
    pub binding: String,
    /// Use of the host's processors.
    pub processors: ProcessorShares,
    /// Processor seconds per request, including the time that processors waited for memory.
    pub processor_seconds: f64,
    /// Number of events, including those of the warm-up.
    pub events: u64,
    /// True if the simulation reached its end. A stopped simulation has wider errors.
    pub is_whole: bool,
}

/// Shares of the time in which the host's processors compute, stall, spin, and are idle, 0 to 1 each, 1 in all. A
/// processor is taken while it computes, stalls or spins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessorShares {
    /// Share in which a processor computes, at the speed that it has with an idle memory.
    pub computing: f64,
    /// Share in which a processor waits for memory in a copy or a checksum.
    pub stalled: f64,
    /// Share in which a processor spins for a device, if the load spins.
    pub spinning: f64,
    /// Share in which no thread occupies a processor, because all wait for devices.
    pub idle: f64,
}

impl ProcessorShares {
    fn new(processors: &StationUse) -> ProcessorShares {
        let StationUse { utilisation, working, stalled, .. } = *processors;
        // Work counts from its beginning, so a short run may count more work than occupied time.
        let computing = working.min(utilisation);
        let stalled = stalled.min(utilisation - computing);
        let spinning = utilisation - computing - stalled;
        ProcessorShares { computing, stalled, spinning, idle: 1.0 - utilisation }
    }

    /// Returns the share in which a processor is taken.
    pub fn taken(&self) -> f64 {
        1.0 - self.idle
    }
}

/// Distribution of response times, in seconds. Quantiles have an error of at most 1.6 %; the bounds of their
/// 95 % confidence intervals include it. An upper bound is infinite where the run is too short for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Mean, with 95 % confidence.
    pub mean: Interval,
    /// Median.
    pub p50: f64,
    /// Least and greatest value of `p50`, with 95 % confidence.
    pub p50_bounds: [f64; 2],
    /// Quantile of 90 %.
    pub p90: f64,
    /// Least and greatest value of `p90`, with 95 % confidence.
    pub p90_bounds: [f64; 2],
    /// Quantile of 99 %.
    pub p99: f64,
    /// Least and greatest value of `p99`, with 95 % confidence.
    pub p99_bounds: [f64; 2],
    /// Quantile of 99.9 %.
    pub p999: f64,
    /// Least and greatest value of `p999`, with 95 % confidence.
    pub p999_bounds: [f64; 2],
    /// Longest response time, with the error of a quantile.
    pub max: f64,
}

impl Latency {
    /// Returns the distribution of response times without limit.
    fn infinite() -> Latency {
        const NEVER: f64 = f64::INFINITY;
        let (mean, bounds) = (Interval { mean: NEVER, half_width: NEVER }, [NEVER; 2]);
        Latency {
            mean,
            p50: NEVER,
            p50_bounds: bounds,
            p90: NEVER,
            p90_bounds: bounds,
            p99: NEVER,
            p99_bounds: bounds,
            p999: NEVER,
            p999_bounds: bounds,
            max: NEVER,
        }
    }
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
    /// Mean share of the time that a server's job stalled on memory, 0 to 1.
    pub stalled: f64,
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
/// [`Error::MissingProcessor`] if the machine cannot have the architecture; otherwise same as
/// [`within_limits`].
fn prepare(description: &Description, architecture: Architecture) -> Result<Prepared, Error> {
    within_limits(description)?;
    Demand::check(&description.machine, &description.workload(), architecture)?;
    let (machine, work) = (&description.machine, &description.workload());
    let mut net = Net::new();
    let hardware = Hardware::new(&mut net, machine, work, architecture);
    let serving = RequestScripts::new(&hardware, machine, work, architecture);
    let thread = net.script(serving.thread());
    for number in 0..at_least_one(work.load.threads) {
        let mut registers = Registers::default();
        registers.picks[Register::Thread as usize] = number;
        registers.picks[Register::Processor as usize] = number % at_least_one(machine.processors.count);
        if serving.is_in_order() {
            registers.picks[Register::Disk as usize] = number % hardware.counts[1];
            registers.picks[Register::Interface as usize] = number % hardware.counts[0];
        }
        net.start_with(thread, registers);
    }
    if work.load.is_open() {
        let source = net.script(arrivals(work.load.arrivals.0, work.load.burst));
        net.start(source, 1);
    }
    Ok(Prepared { rows: hardware.rows, net })
}

/// Returns the script of the arrivals: `rate` requests per second on the average, in bursts of geometric size
/// with mean `burst` ([`Load`](bywash_model::work::Load)).
fn arrivals(rate: f64, burst: f64) -> Vec<Op> {
    let mut script = vec![Op::Delay(ServiceTime::exponential(burst / rate)), Op::Arrive];
    if burst > 1.0 {
        script.push(Op::JumpWithProbability { chance: 1.0 - 1.0 / burst, to: 1 });
    }
    script.push(Op::Jump { to: 0 });
    script
}

/// Simulates `description` under `architecture`. Calls `watch` from time to time with the share that is done,
/// 0 to 1, and stops if `watch` returns false.
///
/// With an open load, the server is first simulated with all threads busy, which gives its capacity. If the
/// arrivals reach the capacity (or come within its confidence interval), the report is of that run, and its
/// response times are infinite.
///
/// # Errors
/// [`Error::Nothing`] if `options.stop` is not positive and finite; [`Error::MissingProcessor`] if the machine
/// cannot have the architecture; [`Error::Flooded`] if more requests wait than a simulation keeps;
/// [`Error::TooRare`] if the simulated time would be too long; otherwise same as [`within_limits`].
pub fn simulate(
    description: &Description,
    architecture: Architecture,
    options: &Options,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<Report, Error> {
    simulate_timeline(description, architecture, options, 0, watch).map(|(report, _)| report)
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
    if !description.load.is_open() {
        return run(description, architecture, options, spans, watch);
    }
    let saturated = capacity(description, architecture, options, &mut |share| watch(share * CAPACITY_SHARE))?;
    let watch = &mut |share| watch(CAPACITY_SHARE + share * (1.0 - CAPACITY_SHARE));
    simulate_arrivals(description, architecture, options, spans, &saturated, watch)
}

/// Simulates `description`, whose load is open, with all threads always busy. The throughput of the report is
/// the capacity of the server.
///
/// # Errors
/// Same as [`simulate`].
pub(super) fn capacity(
    description: &Description,
    architecture: Architecture,
    options: &Options,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<Report, Error> {
    let mut busy = *description;
    (busy.load.arrivals.0, busy.load.burst) = (0.0, 1.0);
    let stop = match options.stop {
        Stop::Requests(requests) => Stop::Requests(requests.min(CAPACITY_REQUESTS)),
        seconds @ Stop::Seconds(_) => seconds,
    };
    run(&busy, architecture, &options.stop(stop), 0, watch).map(|(report, _)| report)
}

/// Simulates the arrivals of `description`, for a server whose run with all threads busy is `saturated`.
///
/// # Errors
/// Same as [`simulate`].
pub(super) fn simulate_arrivals(
    description: &Description,
    architecture: Architecture,
    options: &Options,
    spans: usize,
    saturated: &Report,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<(Report, Timeline), Error> {
    let offered = Some(description.load.arrivals.0);
    let capacity = saturated.rate;
    // A run that was stopped, or is too short for an interval, says only its mean.
    let least =
        if capacity.half_width.is_finite() { capacity.mean - capacity.half_width } else { capacity.mean };
    let told = |report: Report| Report { offered, capacity: Some(capacity), ..report };
    if description.load.arrivals.0 >= least || !saturated.is_whole {
        let (load, latency) = if saturated.is_whole {
            (LoadState::Overloaded, Latency::infinite())
        } else {
            (LoadState::Steady, saturated.latency)
        };
        return Ok((told(Report { load, latency, ..saturated.clone() }), Timeline::default()));
    }
    let (report, timeline) = run(description, architecture, options, spans, watch)?;
    Ok((told(report), timeline))
}

fn run(
    description: &Description,
    architecture: Architecture,
    options: &Options,
    spans: usize,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<(Report, Timeline), Error> {
    let end = end(options.stop, description)?;
    let prepared = prepare(description, architecture)?;
    let mut run = Run::new(&prepared.net, options.seed);
    if spans > 0 {
        run = run.with_timeline(spans);
    }
    let mut outcome = run.run_until(end, watch);
    if outcome.is_flooded {
        return Err(Error::Flooded(description.load.burst));
    }
    let timeline = outcome.timeline.take().map(|timeline| *timeline).unwrap_or_default();
    let mut report = report(&prepared, &outcome, architecture, options.seed);
    if description.load.is_open() && outcome.response.rises() {
        report.load = LoadState::Rising;
    }
    Ok((report, timeline))
}

fn end(stop: Stop, description: &Description) -> Result<StopCondition, Error> {
    match stop {
        Stop::Requests(requests) if requests > 0 => {
            let load = &description.load;
            let least = if load.is_open() { WARM_UP_OPEN } else { load.threads * WARM_UP_EACH };
            let warm_up = (requests as f64 * WARM_UP).max(least);
            if load.is_open() && (warm_up + requests as f64) / load.arrivals.0 > SECONDS_MAX {
                return Err(Error::TooRare(requests, load.arrivals.0));
            }
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
            p50_bounds: outcome.response.quantile_bounds(0.5),
            p90: response.quantile(0.9),
            p90_bounds: outcome.response.quantile_bounds(0.9),
            p99: response.quantile(0.99),
            p99_bounds: outcome.response.quantile_bounds(0.99),
            p999: response.quantile(0.999),
            p999_bounds: outcome.response.quantile_bounds(0.999),
            max: response.quantile(1.0),
        },
        load: LoadState::Steady,
        offered: None,
        capacity: None,
        processors: ProcessorShares::new(processors),
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
        stalled: sum(|station| station.stalled) / f64::from(*count),
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
            misses: 1.0,
            three_phase: true,
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
            machine.disks.rotating = Some(Rotating {
                seek,
                track,
                tracks: 100.0,
                track_size: Size(65536.0),
                turn,
                order: DiskScheduling::Elevator,
            });
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

    /// Returns a server with one processor, on which each request computes for 1 ms, that `rate` requests reach
    /// in a second: M/D/1.
    fn computing(rate: f64, burst: f64) -> Description {
        let page = Request::Dynamic { page: Size(1.0), compute: Cycles(1.5e6), data: Size(0.0) };
        let mut description = Description::new(Machine::carrera_2003(), Workload::new(page));
        (description.load.arrivals.0, description.load.burst) = (rate, burst);
        description
    }

    #[test]
    fn arrivals_wait_as_queueing_theory_says() {
        for (load, burst, wanted) in [
            // M/D/1, and the same with geometric bursts of mean b, whose wait is longer by that for the requests
            // before it in its burst: (l + 2 (b - 1)) / (2 (1 - l)) service times.
            (0.7, 1.0, 1.0 + 0.7 / (2.0 * 0.3)),
            (0.5, 5.0, 1.0 + (0.5 + 2.0 * 4.0) / (2.0 * 0.5)),
        ] {
            let report = run(&computing(load * 1000.0, burst), Architecture::Conventional, 100_000);
            assert_eq!((report.load, report.offered), (LoadState::Steady, Some(load * 1000.0)));
            let found = report.latency.mean;
            assert!((found.mean / wanted * 1e3 - 1.0).abs() < 0.04, "{found:?}, wanted {wanted} ms");
            assert!((report.capacity.unwrap().mean / 1000.0 - 1.0).abs() < 0.001, "{:?}", report.capacity);
            let [low, high] = report.latency.p99_bounds;
            assert!(
                low < report.latency.p99 && report.latency.p99 < high && high < 1.4 * low,
                "{:?}",
                report.latency
            );
        }
    }

    #[test]
    fn every_kind_of_request_can_arrive_and_the_model_has_its_mean() {
        for request in requests() {
            for architecture in Architecture::ALL {
                let mut description =
                    Description::new(detailed(Topology::Switch, true), Workload::new(request));
                let most = closed(&description.machine, &description.workload(), architecture).requests;
                description.load.arrivals.0 = 0.3 * most;
                let report = run(&description, architecture, 3000);
                assert!(
                    report.is_whole && report.load != LoadState::Overloaded,
                    "{request:?} {architecture:?}"
                );
                let wanted =
                    bywash_model::performance(&description.machine, &description.workload(), architecture);
                let ratio = report.latency.mean.mean / wanted.response;
                assert!((0.4..2.5).contains(&ratio), "{request:?} {architecture:?}: {ratio}");
            }
        }
    }

    #[test]
    fn an_overloaded_server_is_no_matter_of_the_run_s_length() {
        for requests in [2000, 20_000] {
            let report = run(&computing(1001.0, 1.0), Architecture::Conventional, requests);
            assert_eq!(report.load, LoadState::Overloaded);
            assert!(report.latency.p50.is_infinite() && report.latency.mean.mean.is_infinite());
            assert!((report.rate.mean / 1000.0 - 1.0).abs() < 0.01 && report.resources[0].working > 0.99);
        }
        let near = run(&computing(995.0, 1.0), Architecture::Conventional, 20_000);
        assert_ne!(near.load, LoadState::Overloaded);
        let options = Options { seed: 1, stop: Stop::Requests(2_000_000) };
        let rare = simulate(&computing(1e-3, 1.0), Architecture::Conventional, &options, &mut |_| true);
        assert!(
            rare.unwrap_err().to_string().starts_with("2000000 requests at 0.001 a second take more than")
        );
    }

    #[test]
    fn devices_without_processors_are_refused_as_active_ones() {
        let mut description = Description::new(Machine::carrera_2003(), Workload::web(0.1));
        description.machine.interfaces.processor.0 = 0.0;
        let refused = simulate(&description, Architecture::Active, &Options::default(), &mut |_| true);
        assert!(matches!(refused, Err(Error::MissingProcessor(_))), "{refused:?}");
        assert!(run(&description, Architecture::UserLevel, 200).is_whole);
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
