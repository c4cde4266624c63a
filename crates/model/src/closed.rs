//! The same server with a number of threads: the closed network of its resources, by its means.
//!
//! A thread takes a request, passes every resource, answers, thinks, and takes the next one. Interfaces and disks are
//! several queues of one server, as a file is on one disk and a connection at one interface; to each an equal share goes.
//! For those, by Reiser and Lavenberg, *Mean-Value Analysis of Closed Multichain Queuing Networks* (JACM 27(2), 1980): who
//! arrives at a resource finds there what N - 1 threads leave there on the average, so
//!
//! ```text
//!     R(n) = D (1 + Q(n-1)),   X(n) = n / (Z + sum R(n)),   Q(n) = X(n) R(n)
//! ```
//!
//! The processors are one queue with c servers. To them all the rest is one station that serves n threads at the rate
//! X(n), and answers the same (Chandy, Herzog and Woo, *Parametric Analysis of Queuing Networks*, IBM J. R&D 19(1), 1975), so
//! the chance that j of N threads are at the processors goes by
//!
//! ```text
//!     p(j) / p(j-1) = D / min(j, c) X(N-j+1)
//! ```
//!
//! Only sums and products of what is positive: the mean-value analysis of several servers takes differences of nearly
//! equal numbers instead, and with tens of processors nothing is left of them.
//!
//! A drive of flash serves many at a time, each for as long as an access takes: a queue with c servers, at which who arrives
//! waits only for those that are more than the servers,
//!
//! ```text
//!     R(n) = D (1 + max(0, Q(n-1) - (c - 1)) / c)
//! ```
//!
//! which is the formula above for one server, exact for no more threads than servers and for many more, and between them too
//! short by what chance makes them wait. What moves its bytes is a station of its own. What is under way in the
//! interconnect keeps nothing busy: its latency passes as thinking does, and is part of the response.
//!
//! Costs O(threads) steps. Called by the command, and held against the simulator.

use crate::demand::{Architecture, Demand};
use crate::machine::Machine;
use crate::work::Workload;
use serde::Serialize;

/// What a number of threads comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Closed {
    /// Bytes a second.
    pub throughput: f64,
    /// Requests a second.
    pub requests: f64,
    /// Seconds from a request to its answer, on the average.
    pub response: f64,
    /// How busy each resource is, 0 to 1, in the order of [`Resource::ALL`](crate::Resource::ALL).
    pub utilisation: [f64; 6],
    /// Requests at each resource, waiting or served, in the order of [`Resource::ALL`](crate::Resource::ALL).
    pub waiting: [f64; 6],
}

/// Servers with one queue.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// Seconds of service for a request, over all visits.
    pub demand: f64,
    /// How many serve.
    pub servers: u32,
}

/// Queues, each with its servers.
#[derive(Clone, Copy, Debug)]
pub struct Station {
    /// Seconds of service for a request, over all visits.
    pub demand: f64,
    /// Queues, of which a request visits one.
    pub queues: f64,
    /// Servers of each.
    pub servers: f64,
}

impl Station {
    /// Seconds for a request that finds so many at its queue.
    fn stay(&self, length: f64) -> f64 {
        self.demand * (1.0 + (length - (self.servers - 1.0)).max(0.0) / self.servers)
    }
}

/// One request of `work` on `machine` at a time for each of its threads.
pub fn closed(machine: &Machine, work: &Workload, architecture: Architecture) -> Closed {
    let demand = Demand::of(machine, work, architecture);
    let bytes = work.request_bytes();
    let seconds = demand.seconds.map(|seconds| seconds * bytes);
    // In the order of `Resource::ALL`, of which the processors are the first.
    let pool = Pool { demand: seconds[0], servers: whole(demand.units[0]) };
    let mut stations: Vec<Station> = seconds[1..]
        .iter()
        .zip(&demand.units[1..])
        .map(|(demand, queues)| Station { demand: *demand, queues: *queues, servers: 1.0 })
        .collect();
    let under_way = work.operations() * machine.interconnect.latency.0;
    // Which resource each is of.
    let mut places: Vec<usize> = (1..seconds.len()).collect();
    if let Some([channels, link]) = drive(machine, work, &stations[DISKS - 1]) {
        stations[DISKS - 1] = channels;
        stations.push(link);
        places.push(DISKS);
    }
    let means = means(pool, &stations, whole(work.load.threads), work.load.think.0 + under_way);
    let mut utilisation = [0.0; 6];
    let mut waiting = [0.0; 6];
    (utilisation[0], waiting[0]) = (means.rate * pool.demand / f64::from(pool.servers), means.in_pool);
    for ((station, at), here) in stations.iter().zip(&places).zip(&means.at) {
        utilisation[*at] =
            (means.rate * station.demand / (station.queues * station.servers)).max(utilisation[*at]);
        waiting[*at] += here;
    }
    Closed {
        throughput: means.rate * bytes,
        requests: means.rate,
        response: means.response + under_way,
        utilisation,
        waiting,
    }
}

/// Of the disks in [`Resource::ALL`](crate::Resource::ALL).
const DISKS: usize = 4;

/// So many of what there is no half of.
fn whole(count: f64) -> u32 {
    count.round().max(1.0) as u32
}

/// The channels and the link of drives of flash, which together are `disks`; none if there are other ones, or nothing
/// passes them.
fn drive(machine: &Machine, work: &Workload, disks: &Station) -> Option<[Station; 2]> {
    let of = &machine.disks;
    let flash = of.flash.filter(|_| of.rotating.is_none() && disks.demand > 0.0)?;
    let (at_once, in_order) = work.disk_access();
    let readers = if in_order { work.load.threads / of.count } else { 0.0 };
    // What of a request passes a disk, and in how many accesses.
    let moved = disks.demand * of.rate_of(at_once, readers);
    let accesses = moved / of.at_once(at_once, readers);
    let channels = Station { demand: accesses * flash.mean(), servers: flash.channels.max(1.0), ..*disks };
    Some([channels, Station { demand: moved / of.rate.0, ..*disks }])
}

/// The means of a closed network.
#[derive(Clone, Debug)]
pub struct Means {
    /// Requests a second.
    pub rate: f64,
    /// Seconds in the network.
    pub response: f64,
    /// Requests at the pool.
    pub in_pool: f64,
    /// Requests at each station, over all its queues.
    pub at: Vec<f64>,
}

/// Those of `threads` that visit `pool` and `stations` and think for `think` seconds.
pub fn means(pool: Pool, stations: &[Station], threads: u32, think: f64) -> Means {
    let mut rates = Vec::with_capacity(threads as usize + 1);
    rates.push(0.0);
    Rest::new(stations, think).each(threads, |rest| rates.push(rest.rate));
    let chances = pool.chances(&rates);
    let expected = |of: &dyn Fn(usize) -> f64| -> f64 {
        chances.iter().enumerate().map(|(here, chance)| chance * of(here)).sum()
    };
    let everybody = f64::from(threads);
    // Where nobody spends time but at the pool, the rest passes any rate.
    let rate = if rates[1].is_finite() {
        expected(&|here| rates[rates.len() - 1 - here])
    } else {
        everybody.min(f64::from(pool.servers)) / pool.demand
    };
    let in_pool = expected(&|here| here as f64);
    let mut at = vec![0.0; stations.len()];
    let mut there = 0;
    Rest::new(stations, think).each(threads, |rest| {
        there += 1;
        let chance = chances[threads as usize - there];
        for (at, (length, station)) in at.iter_mut().zip(rest.lengths.iter().zip(stations)) {
            *at += chance * length * station.queues;
        }
    });
    Means { rate, response: everybody / rate - think, in_pool, at }
}

impl Pool {
    /// The chance of 0, 1, ... threads here, if the rest serves 0, 1, ... of them at `rates`.
    fn chances(self, rates: &[f64]) -> Vec<f64> {
        let all = rates.len() - 1;
        if !rates[1].is_finite() {
            return (0..=all).map(|here| if here == all { 1.0 } else { 0.0 }).collect();
        }
        // As logarithms: far from the mean they are smaller than numbers can be.
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

/// All but the pool, with as many threads as were counted so far.
struct Rest<'a> {
    stations: &'a [Station],
    think: f64,
    /// Requests at one queue of each station.
    lengths: Vec<f64>,
    /// Requests a second.
    rate: f64,
}

impl<'a> Rest<'a> {
    fn new(stations: &'a [Station], think: f64) -> Rest<'a> {
        Rest { stations, think, lengths: vec![0.0; stations.len()], rate: 0.0 }
    }

    /// Counts up to `threads` and shows each of the networks on the way.
    fn each(mut self, threads: u32, mut show: impl FnMut(&Rest<'_>)) {
        for population in 1..=threads {
            let stay = |(station, length): (&Station, &f64)| station.stay(*length);
            let response: f64 = self.stations.iter().zip(&self.lengths).map(stay).sum();
            self.rate = f64::from(population) / (self.think + response);
            for (station, length) in self.stations.iter().zip(&mut self.lengths) {
                // Nobody is where nothing takes time, however many pass.
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

    const NOTHING: Pool = Pool { demand: 0.0, servers: 1 };

    fn one(demand: f64, queues: f64) -> Station {
        Station { demand, queues, servers: 1.0 }
    }

    #[test]
    fn a_single_thread_never_waits() {
        let pool = Pool { demand: 0.3, servers: 4 };
        let means = means(pool, &[one(0.2, 1.0), one(0.5, 8.0)], 1, 1.0);
        assert!((means.response - 1.0).abs() < 1e-12 && (means.rate - 0.5).abs() < 1e-12);
    }

    /// Balanced single servers: X(n) = n / (n + k - 1) / D, in closed form.
    #[test]
    fn balanced_queues_have_a_closed_form() {
        for threads in [1, 2, 10, 100] {
            let wanted = f64::from(threads) / (f64::from(threads) + 4.0) / 0.25;
            let near = |rate: f64| assert!((rate - wanted).abs() < 1e-9, "{rate} {wanted}");
            near(means(NOTHING, &[one(0.25, 1.0); 5], threads, 0.0).rate);
            // Five queues of a station are five stations, and a pool of one server is one.
            near(means(NOTHING, &[one(0.25 * 5.0, 5.0)], threads, 0.0).rate);
            near(means(Pool { demand: 0.25, servers: 1 }, &[one(0.25, 1.0); 4], threads, 0.0).rate);
        }
    }

    /// The machine repairman: threads that think and one pool of several servers, in closed form.
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
        let means = means(Pool { demand: service, servers }, &[], threads, think);
        assert!((means.in_pool - here).abs() < 1e-9, "{} {here}", means.in_pool);
    }

    #[test]
    fn a_pool_alone_is_busy() {
        let means = means(Pool { demand: 0.5, servers: 4 }, &[], 3, 0.0);
        assert!((means.rate - 6.0).abs() < 1e-12 && (means.response - 0.5).abs() < 1e-12);
        assert_eq!(means.in_pool, 3.0);
    }

    /// Where tens of servers are nearly all busy, the textbook's recursion answered more than there can be.
    #[test]
    fn many_servers_never_do_more_than_they_can() {
        for servers in [2, 8, 32, 128] {
            let pool = Pool { demand: 0.01 * f64::from(servers), servers };
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

    /// A thread waits for one access however many the drive could do; as many threads as channels do not wait for
    /// each other.
    #[test]
    fn a_drive_of_flash_answers_one_thread_no_faster_than_it_can() {
        let mut machine = Machine::of_2003();
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
        let mut work = Workload::of(Request::Blocks { block, writes, in_order: false });
        let reads = |work: &Workload| closed(&machine, work, Architecture::Active);
        work.load.threads = 1.0;
        let one = reads(&work);
        assert!(one.response > latency && one.response < 1.3 * latency, "{one:?}");
        assert!((one.utilisation[4] - latency / one.response / channels).abs() < 1e-9);
        work.load.threads = channels;
        assert!(reads(&work).requests > 0.7 * channels * one.requests);
        let page = Request::Dynamic { page: Size(4096.0), compute: Cycles(1e3), data: Size(0.0) };
        assert!(reads(&Workload::of(page)).utilisation[4] == 0.0, "who reads nothing waits for no disk");
        work.load.threads = 1000.0;
        let most = bound(&machine, &work, Architecture::Active).throughput;
        assert!((reads(&work).throughput / most - 1.0).abs() < 0.01);
    }

    #[test]
    fn what_is_under_way_delays_one_thread_and_not_the_most() {
        let (mut machine, mut work) = (Machine::of_2003(), Workload::web(0.0));
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
        let machine = Machine::of_2003();
        for architecture in Architecture::ALL {
            let mut work = Workload::web(0.05);
            let most = bound(&machine, &work, architecture).throughput;
            work.load.threads = 1000.0;
            let many = closed(&machine, &work, architecture);
            assert!(many.throughput <= most * (1.0 + 1e-9) && many.throughput > 0.97 * most);
            work.load.threads = 2.0;
            assert!(closed(&machine, &work, architecture).throughput < 0.8 * most);
            let held: f64 = many.waiting.iter().sum();
            assert!((held - 1000.0).abs() < 1e-6, "everybody is somewhere");
        }
    }
}
