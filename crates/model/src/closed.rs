//! Closed queueing network of a server with a limited number of threads: mean throughput, response time and
//! queue lengths.
//!
//! A thread takes a request, visits every resource, sends the response, thinks, and takes the next request.
//! Interfaces and disks are several queues with one server each, because a file is on one disk and a
//! connection uses one interface; each queue receives an equal share of the requests. For these the module
//! uses Reiser and Lavenberg, *Mean-Value Analysis of Closed Multichain Queuing Networks* (JACM 27(2), 1980):
//! an arriving request finds the mean queue length that one thread fewer causes. With n threads, service time
//! D, think time Z, response time R, throughput X and queue length Q,
//!
//! ```text
//!     R(n) = D (1 + Q(n-1)),   X(n) = n / (Z + sum R(n)),   Q(n) = X(n) R(n)
//! ```
//!
//! The processors are one queue with c servers. Seen from the processors, all other stations together act as
//! one station that serves n threads at the rate X(n) (Chandy, Herzog and Woo, *Parametric Analysis of
//! Queuing Networks*, IBM J. R&D 19(1), 1975). The probability p(j) that j of N threads are at the processors
//! therefore satisfies
//!
//! ```text
//!     p(j) / p(j-1) = D / min(j, c) X(N-j+1)
//! ```
//!
//! The recursion has only sums and products of positive numbers. Mean-value analysis for several servers
//! would subtract nearly equal numbers instead, and with tens of processors these differences lose all
//! digits.
//!
//! A flash drive serves several commands at a time, each for the duration of one access: a queue with c
//! servers, where an arriving command waits only for the commands that exceed the number of servers,
//!
//! ```text
//!     R(n) = D (1 + max(0, Q(n-1) - (c - 1)) / c)
//! ```
//!
//! This is the formula above for c = 1. It is exact up to c threads and in the limit of many threads; between
//! those it omits the waiting that random variation causes, so R is too small. The link that transfers the
//! drive's data is a station of its own. Data in flight in the interconnect occupies no server: the
//! interconnect's latency is added like think time, but counts as part of the response time.
//!
//! The computation takes O(threads) steps. The command and the web page call it, and the simulator's tests
//! compare against it.

use crate::demand::{Architecture, Demand};
use crate::machine::Machine;
use crate::work::Workload;
use serde::Serialize;

/// Means of a server with a given number of threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Closed {
    /// Throughput, in bytes per second.
    pub throughput: f64,
    /// Throughput, in requests per second.
    pub requests: f64,
    /// Mean response time of a request, without think time, in seconds.
    pub response: f64,
    /// Utilisation of each resource, 0 to 1, in the order of [`Resource::ALL`](crate::Resource::ALL).
    pub utilisation: [f64; 6],
    /// Mean number of requests at each resource, waiting or in service, in the order of
    /// [`Resource::ALL`](crate::Resource::ALL).
    pub queue_length: [f64; 6],
}

/// Station of several servers with one common queue: the processors.
#[derive(Clone, Copy, Debug)]
pub struct MultiServer {
    /// Service time of a request over all its visits, in seconds.
    pub demand: f64,
    /// Number of servers.
    pub servers: u32,
}

/// Station of several queues, each with its own servers.
#[derive(Clone, Copy, Debug)]
pub struct Station {
    /// Service time of a request over all its visits, in seconds.
    pub demand: f64,
    /// Number of queues. A request visits one of them.
    pub queues: f64,
    /// Number of servers of each queue.
    pub servers: f64,
}

impl Station {
    /// Returns the response time, in seconds, of a request that finds `length` requests in its queue.
    fn stay(&self, length: f64) -> f64 {
        self.demand * (1.0 + (length - (self.servers - 1.0)).max(0.0) / self.servers)
    }
}

/// Queueing network that a request passes: the stations of a machine, with a request's service times.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// The processors.
    pub pool: MultiServer,
    /// All other stations.
    pub stations: Vec<Station>,
    /// Index in `Resource::ALL` of each station's resource. The channels and the link of flash drives share
    /// one.
    places: Vec<usize>,
    /// Time for which a request's data is in flight in the interconnect, in seconds.
    pub in_flight: f64,
}

impl Network {
    /// Returns the network of `work` on `machine` under `architecture`.
    pub fn new(machine: &Machine, work: &Workload, architecture: Architecture) -> Network {
        let demand = Demand::new(machine, work, architecture);
        let bytes = work.request_bytes();
        let seconds = demand.seconds.map(|seconds| seconds * bytes);
        // `seconds` is in the order of `Resource::ALL`, which begins with the processors.
        let pool = MultiServer { demand: seconds[0], servers: at_least_one(demand.units[0]) };
        let mut stations: Vec<Station> = seconds[1..]
            .iter()
            .zip(&demand.units[1..])
            .map(|(demand, queues)| Station { demand: *demand, queues: *queues, servers: 1.0 })
            .collect();
        let in_flight = work.operations() * machine.interconnect.latency.0;
        let mut places: Vec<usize> = (1..seconds.len()).collect();
        if let Some([channels, link]) = flash_stations(machine, work, &stations[DISKS - 1]) {
            stations[DISKS - 1] = channels;
            stations.push(link);
            places.push(DISKS);
        }
        Network { pool, stations, places, in_flight }
    }

    /// Returns the utilisation of each resource, in the order of
    /// [`Resource::ALL`](crate::Resource::ALL), at a throughput of `rate` requests per second.
    pub fn utilisation(&self, rate: f64) -> [f64; 6] {
        let mut utilisation = [0.0; 6];
        utilisation[0] = rate * self.pool.demand / f64::from(self.pool.servers);
        for (station, at) in self.stations.iter().zip(&self.places) {
            utilisation[*at] =
                (rate * station.demand / (station.queues * station.servers)).max(utilisation[*at]);
        }
        utilisation
    }
}

/// Computes the means for `work` on `machine` under `architecture`, with one request in flight per thread.
pub fn closed(machine: &Machine, work: &Workload, architecture: Architecture) -> Closed {
    let network = Network::new(machine, work, architecture);
    let Network { pool, stations, places, in_flight } = &network;
    let means = means(*pool, stations, at_least_one(work.load.threads), work.load.think.0 + in_flight);
    let mut waiting = [0.0; 6];
    waiting[0] = means.in_pool;
    for (at, here) in places.iter().zip(&means.at) {
        waiting[*at] += here;
    }
    Closed {
        throughput: means.rate * work.request_bytes(),
        requests: means.rate,
        response: means.response + in_flight,
        utilisation: network.utilisation(means.rate),
        queue_length: waiting,
    }
}

/// Populations up to this one have a throughput computed for each; beyond, steps grow with the population.
const POPULATION_EACH: usize = 128;

/// Computes the throughput of the network for each number of requests in it from 0 to `threads`, in requests
/// per second, with a delay of `think` seconds outside the stations. Beyond 128 requests, throughputs between
/// populations an eighth apart are interpolated.
pub(crate) fn throughputs(pool: MultiServer, stations: &[Station], threads: u32, think: f64) -> Vec<f64> {
    let mut rest = Vec::with_capacity(threads as usize + 1);
    rest.push(0.0);
    WithoutPool::new(stations, think).each(threads, |solved| rest.push(solved.rate));
    let with_pool = |population: usize| pool.throughput(&rest[..=population]);
    let mut rates = vec![0.0];
    let all = threads as usize;
    for population in 1..=all.min(POPULATION_EACH) {
        rates.push(with_pool(population));
    }
    while rates.len() <= all {
        let from = rates.len() - 1;
        let to = (from + from / 8).min(all);
        let (before, after) = (rates[from], with_pool(to));
        let step = (after - before) / (to - from) as f64;
        rates.extend((1..=to - from).map(|distance| before + step * distance as f64));
    }
    rates
}

/// Index of the disks in [`Resource::ALL`](crate::Resource::ALL).
const DISKS: usize = 4;

/// Rounds a count to an integer of at least 1, for units that cannot be divided.
pub(crate) fn at_least_one(count: f64) -> u32 {
    count.round().max(1.0) as u32
}

/// Returns the channels and the link of flash drives, which replace the station `disks`. Returns `None` for
/// rotating disks, for disks without a flash description, and if no request uses the disks.
fn flash_stations(machine: &Machine, work: &Workload, disks: &Station) -> Option<[Station; 2]> {
    let of = &machine.disks;
    let flash = of.flash.filter(|_| of.rotating.is_none() && disks.demand > 0.0)?;
    let (at_once, in_order) = work.disk_access();
    let readers = if in_order { work.load.threads / of.count } else { 0.0 };
    // Bytes of a request that pass a disk, and the number of accesses that move these bytes.
    let moved = disks.demand * of.rate_of(at_once, readers);
    let accesses = moved / of.access_bytes(at_once, readers);
    let channels = Station { demand: accesses * flash.mean(), servers: flash.channels.max(1.0), ..*disks };
    Some([channels, Station { demand: moved / of.rate.0, ..*disks }])
}

/// Means of a closed queueing network.
#[derive(Clone, Debug)]
pub struct Means {
    /// Throughput, in requests per second.
    pub rate: f64,
    /// Mean response time, without think time, in seconds.
    pub response: f64,
    /// Mean number of requests at the pool, waiting or in service.
    pub in_pool: f64,
    /// Mean number of requests at each station, summed over its queues.
    pub at: Vec<f64>,
}

/// Computes the means of `threads` threads that visit `pool` and `stations` and think for `think` seconds.
pub fn means(pool: MultiServer, stations: &[Station], threads: u32, think: f64) -> Means {
    let mut rates = Vec::with_capacity(threads as usize + 1);
    rates.push(0.0);
    WithoutPool::new(stations, think).each(threads, |rest| rates.push(rest.rate));
    let chances = pool.chances(&rates);
    let expected = |of: &dyn Fn(usize) -> f64| -> f64 {
        chances.iter().enumerate().map(|(here, chance)| chance * of(here)).sum()
    };
    let everybody = f64::from(threads);
    let rate = pool.throughput(&rates);
    let in_pool = expected(&|here| here as f64);
    let mut at = vec![0.0; stations.len()];
    let mut there = 0;
    WithoutPool::new(stations, think).each(threads, |rest| {
        there += 1;
        let chance = chances[threads as usize - there];
        for (at, (length, station)) in at.iter_mut().zip(rest.lengths.iter().zip(stations)) {
            *at += chance * length * station.queues;
        }
    });
    Means { rate, response: everybody / rate - think, in_pool, at }
}

impl MultiServer {
    /// Returns the throughput of the pool and the rest of the network, which serves n requests at the rate
    /// `rates[n]`, for the last population of `rates`.
    fn throughput(self, rates: &[f64]) -> f64 {
        let all = rates.len() - 1;
        // If only the pool takes time, the rest of the network has an infinite rate and the pool alone decides.
        if !rates[1].is_finite() {
            return f64::from(self.servers).min(all as f64) / self.demand;
        }
        self.chances(rates).iter().enumerate().map(|(here, chance)| chance * rates[all - here]).sum()
    }

    /// Returns the probability of 0, 1, ... threads at the pool. `rates[n]` is the rate at which the rest of
    /// the network serves n threads.
    fn chances(self, rates: &[f64]) -> Vec<f64> {
        let all = rates.len() - 1;
        if !rates[1].is_finite() {
            return (0..=all).map(|here| if here == all { 1.0 } else { 0.0 }).collect();
        }
        // The weights are logarithms: far from the mean, the weights themselves underflow.
        let mut weights = vec![0.0; rates.len()];
        for here in 1..=all {
            let servers = f64::from(self.servers).min(here as f64);
            weights[here] = weights[here - 1] + (self.demand / servers * rates[all + 1 - here]).ln();
        }
        let most = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for weight in &mut weights {
            *weight = (*weight - most).exp();
        }
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }
}

/// The network without the pool, solved for the number of threads that [`WithoutPool::each`] has reached.
struct WithoutPool<'a> {
    stations: &'a [Station],
    think: f64,
    /// Mean number of requests in one queue of each station.
    lengths: Vec<f64>,
    /// Throughput, in requests per second.
    rate: f64,
}

impl<'a> WithoutPool<'a> {
    fn new(stations: &'a [Station], think: f64) -> WithoutPool<'a> {
        WithoutPool { stations, think, lengths: vec![0.0; stations.len()], rate: 0.0 }
    }

    /// Solves the network for 1, 2, ... `threads` threads and calls `show` after each solution.
    fn each(mut self, threads: u32, mut show: impl FnMut(&WithoutPool<'_>)) {
        for population in 1..=threads {
            let stay = |(station, length): (&Station, &f64)| station.stay(*length);
            let response: f64 = self.stations.iter().zip(&self.lengths).map(stay).sum();
            self.rate = f64::from(population) / (self.think + response);
            for (station, length) in self.stations.iter().zip(&mut self.lengths) {
                // A station without service time keeps a queue length of 0 at any rate, also at an infinite
                // one.
                if station.demand > 0.0 {
                    *length = self.rate / station.queues * station.stay(*length);
                }
            }
            show(&self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::bound;
    use crate::machine::Flash;
    use crate::units::{Cycles, Rate, Share, Size, Time};
    use crate::work::Request;

    const NOTHING: MultiServer = MultiServer { demand: 0.0, servers: 1 };

    fn one(demand: f64, queues: f64) -> Station {
        Station { demand, queues, servers: 1.0 }
    }

    #[test]
    fn a_single_thread_never_waits() {
        let pool = MultiServer { demand: 0.3, servers: 4 };
        let means = means(pool, &[one(0.2, 1.0), one(0.5, 8.0)], 1, 1.0);
        assert!((means.response - 1.0).abs() < 1e-12 && (means.rate - 0.5).abs() < 1e-12);
    }

    /// Balanced stations of one server: X(n) = n / (n + k - 1) / D, in closed form.
    #[test]
    fn balanced_queues_have_a_closed_form() {
        for threads in [1, 2, 10, 100] {
            let wanted = f64::from(threads) / (f64::from(threads) + 4.0) / 0.25;
            let near = |rate: f64| assert!((rate - wanted).abs() < 1e-9, "{rate} {wanted}");
            near(means(NOTHING, &[one(0.25, 1.0); 5], threads, 0.0).rate);
            // A station of five queues equals five stations, and a pool of one server equals a station of one
            // server.
            near(means(NOTHING, &[one(0.25 * 5.0, 5.0)], threads, 0.0).rate);
            near(means(MultiServer { demand: 0.25, servers: 1 }, &[one(0.25, 1.0); 4], threads, 0.0).rate);
        }
    }

    /// The machine repairman model, threads that think and one pool of several servers, in closed form.
    #[test]
    fn several_servers_follow_the_repairman() {
        let (threads, servers, think, service) = (12u32, 3u32, 2.0, 1.0);
        // Weights of n requests at the pool: C(N, n) (S/Z)^n n! / (min(n, c)! c^(n - min(n, c))).
        let mut weights = vec![1.0f64];
        for n in 1..=threads {
            let before = weights[n as usize - 1];
            weights.push(before * f64::from(threads - n + 1) * service / think / f64::from(n.min(servers)));
        }
        let all: f64 = weights.iter().sum();
        let here: f64 = weights.iter().enumerate().map(|(n, weight)| n as f64 * weight).sum::<f64>() / all;
        let means = means(MultiServer { demand: service, servers }, &[], threads, think);
        assert!((means.in_pool - here).abs() < 1e-9, "{} {here}", means.in_pool);
    }

    #[test]
    fn a_pool_alone_is_busy() {
        let means = means(MultiServer { demand: 0.5, servers: 4 }, &[], 3, 0.0);
        assert!((means.rate - 6.0).abs() < 1e-12 && (means.response - 0.5).abs() < 1e-12);
        assert_eq!(means.in_pool, 3.0);
    }

    /// The textbook's recursion exceeds the possible throughput when tens of servers are nearly saturated;
    /// this one must not.
    #[test]
    fn many_servers_never_do_more_than_they_can() {
        for servers in [2, 8, 32, 128] {
            let pool = MultiServer { demand: 0.01 * f64::from(servers), servers };
            for disks in [0.008, 0.0099, 0.01, 0.0101, 0.02] {
                let mut before = 0.0;
                for threads in [1, 4, 16, 64, 256, 1024] {
                    let means = means(pool, &[one(disks, 1.0), one(0.004, 2.0)], threads, 0.05);
                    let most = 1.0 / disks.max(0.01);
                    assert!(
                        means.rate > before && means.rate <= most * (1.0 + 1e-12),
                        "{servers} {disks}: {means:?}"
                    );
                    let held = means.in_pool + means.at.iter().sum::<f64>() + means.rate * 0.05;
                    assert!(
                        (held - f64::from(threads)).abs() < 1e-6,
                        "everybody is somewhere: {held} of {threads}"
                    );
                    before = means.rate * (1.0 - 1e-9);
                }
                assert!(before > 0.9 / disks.max(0.01), "{servers} {disks}: {before}");
            }
        }
    }

    /// One thread waits for its access even on a drive with many channels; as many threads as channels do not
    /// wait for each other.
    #[test]
    fn a_drive_of_flash_answers_one_thread_no_faster_than_it_can() {
        let mut machine = Machine::carrera_2003();
        let (latency, channels) = (1e-4, 8.0);
        machine.disks.count = 1.0;
        machine.disks.rate = Rate(1e9);
        machine.disks.flash = Some(Flash {
            latency: Time(latency),
            spread: 0.0,
            channels,
            write: Time(0.0),
            queues: 1.0,
            depth: 1024.0,
        });
        let (block, writes) = (Size(4096.0), Share(0.0));
        let mut work = Workload::new(Request::Blocks { block, writes, in_order: false });
        let reads = |work: &Workload| closed(&machine, work, Architecture::Active);
        work.load.threads = 1.0;
        let one = reads(&work);
        assert!(one.response > latency && one.response < 1.3 * latency, "{one:?}");
        assert!((one.utilisation[4] - latency / one.response / channels).abs() < 1e-9);
        work.load.threads = channels;
        assert!(reads(&work).requests > 0.7 * channels * one.requests);
        let page = Request::Dynamic { page: Size(4096.0), compute: Cycles(1e3), data: Size(0.0) };
        assert!(reads(&Workload::new(page)).utilisation[4] == 0.0, "who reads nothing waits for no disk");
        work.load.threads = 1000.0;
        let most = bound(&machine, &work, Architecture::Active).throughput;
        assert!((reads(&work).throughput / most - 1.0).abs() < 0.01);
    }

    #[test]
    fn what_is_in_flight_delays_one_thread_and_not_the_most() {
        let (mut machine, mut work) = (Machine::carrera_2003(), Workload::web(0.0));
        work.load.threads = 1.0;
        let before = closed(&machine, &work, Architecture::Conventional).response;
        machine.interconnect.latency = Time(1e-3);
        let after = closed(&machine, &work, Architecture::Conventional).response;
        assert!((after - before - 1e-3).abs() < 1e-12);
        work.load.threads = 1000.0;
        let most = bound(&machine, &work, Architecture::Conventional).throughput;
        assert!(closed(&machine, &work, Architecture::Conventional).throughput > 0.99 * most);
    }

    #[test]
    fn many_threads_come_near_the_bound_and_few_do_not() {
        let machine = Machine::carrera_2003();
        for architecture in Architecture::ALL {
            let mut work = Workload::web(0.05);
            let most = bound(&machine, &work, architecture).throughput;
            work.load.threads = 1000.0;
            let many = closed(&machine, &work, architecture);
            assert!(many.throughput <= most * (1.0 + 1e-9) && many.throughput > 0.97 * most);
            work.load.threads = 2.0;
            assert!(closed(&machine, &work, architecture).throughput < 0.8 * most);
            let held: f64 = many.queue_length.iter().sum();
            assert!((held - 1000.0).abs() < 1e-6, "everybody is somewhere");
        }
    }
}
