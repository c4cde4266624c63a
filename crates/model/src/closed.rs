//! The same server with a number of threads: mean-value analysis of the closed network of its resources.
//!
//! A thread takes a request, passes every resource, answers, thinks, and takes the next one. Then with N threads, by
//! Reiser and Lavenberg, *Mean-Value Analysis of Closed Multichain Queuing Networks* (JACM 27(2), 1980): who arrives at
//! a resource finds there what N - 1 threads leave there on the average, so
//!
//! ```text
//!     one server:       R(n) = D (1 + Q(n-1))
//!     c servers:        R(n) = D/c (1 + Q(n-1) + sum over j < c-1 of (c-1-j) p(j, n-1))
//!     the whole:        X(n) = n / (Z + sum R(n)),   Q(n) = X(n) R(n)
//! ```
//!
//! with p(j, n) the probability of j of n threads there. Processors are one queue with several servers; interfaces and
//! disks are several queues, as a file is on one disk and a connection at one interface; to each an equal share goes.
//!
//! Costs O(threads x processors) steps. Called by the command, and held against the simulator.

use crate::demand::{Architecture, Demand, Resource};
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
    /// How busy each resource is, 0 to 1, in the order of [`Resource::ALL`].
    pub utilisation: [f64; 6],
    /// Requests at each resource, waiting or served, in the order of [`Resource::ALL`].
    pub waiting: [f64; 6],
}

/// A place where threads wait.
#[derive(Clone, Debug)]
pub struct Station {
    /// Seconds of service for a request, over all visits.
    pub demand: f64,
    /// Servers at each queue.
    pub servers: u32,
    /// Queues, of which a request visits one.
    pub queues: f64,
}

/// One request of `work` on `machine` at a time for each of its threads.
pub fn closed(machine: &Machine, work: &Workload, architecture: Architecture) -> Closed {
    let demand = Demand::of(machine, work, architecture);
    let bytes = work.request_bytes();
    let stations: Vec<Station> = Resource::ALL
        .iter()
        .zip(demand.seconds.iter().zip(&demand.units))
        .map(|(resource, (seconds, units))| {
            let is_shared = *resource == Resource::Processors;
            Station {
                demand: seconds * bytes,
                servers: if is_shared { units.round().max(1.0) as u32 } else { 1 },
                queues: if is_shared { 1.0 } else { *units },
            }
        })
        .collect();
    let means = means(&stations, work.load.threads.round().max(1.0) as u32, work.load.think.0);
    let mut utilisation = [0.0; 6];
    let mut waiting = [0.0; 6];
    for (at, station) in stations.iter().enumerate() {
        utilisation[at] = means.rate * station.demand / (f64::from(station.servers) * station.queues);
        waiting[at] = means.at[at];
    }
    Closed {
        throughput: means.rate * bytes,
        requests: means.rate,
        response: means.response,
        utilisation,
        waiting,
    }
}

/// The means of a closed network.
#[derive(Clone, Debug)]
pub struct Means {
    /// Requests a second.
    pub rate: f64,
    /// Seconds in the network.
    pub response: f64,
    /// Requests at each station, over all its queues.
    pub at: Vec<f64>,
}

/// Those of `threads` that visit `stations` and think for `think` seconds.
pub fn means(stations: &[Station], threads: u32, think: f64) -> Means {
    let mut queues: Vec<Queue> = stations.iter().map(Queue::new).collect();
    let mut means = Means { rate: 0.0, response: 0.0, at: vec![0.0; stations.len()] };
    for population in 1..=threads {
        means.response = queues.iter_mut().map(Queue::residence).sum();
        means.rate = f64::from(population) / (think + means.response);
        for queue in &mut queues {
            queue.arrive(means.rate);
        }
    }
    for (at, queue) in means.at.iter_mut().zip(&queues) {
        *at = queue.length * queue.copies;
    }
    means
}

/// One of the equal queues of a station, with as many threads as were counted so far.
struct Queue {
    /// Seconds of service for a visit, and the visits of a request to this queue.
    service: f64,
    copies: f64,
    servers: u32,
    /// Requests here.
    length: f64,
    /// Seconds that a request spends here, for the next population.
    stay: f64,
    /// Probability of 0, 1, ... servers - 1 requests here.
    few: Vec<f64>,
}

impl Queue {
    fn new(station: &Station) -> Queue {
        let mut few = vec![0.0; station.servers.max(1) as usize];
        few[0] = 1.0;
        let copies = station.queues.max(f64::MIN_POSITIVE);
        Queue {
            service: station.demand,
            copies,
            servers: station.servers.max(1),
            length: 0.0,
            stay: 0.0,
            few,
        }
    }

    /// Seconds at this station for a request more.
    fn residence(&mut self) -> f64 {
        let servers = f64::from(self.servers);
        let idle: f64 =
            self.few.iter().enumerate().map(|(here, chance)| (servers - 1.0 - here as f64) * chance).sum();
        self.stay = self.service / servers * (1.0 + self.length + idle);
        self.stay
    }

    /// So many requests come a second, over all queues of the station.
    fn arrive(&mut self, rate: f64) {
        let each = rate / self.copies;
        self.length = each * self.stay;
        let servers = f64::from(self.servers);
        let work = each * self.service;
        for here in (1..self.few.len()).rev() {
            self.few[here] = work / here as f64 * self.few[here - 1];
        }
        let busy: f64 =
            self.few.iter().enumerate().skip(1).map(|(here, chance)| (servers - here as f64) * chance).sum();
        // A difference of nearly equal numbers when all are busy.
        self.few[0] = (1.0 - (work + busy) / servers).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::bound;

    fn one(demand: f64, servers: u32, queues: f64) -> Station {
        Station { demand, servers, queues }
    }

    #[test]
    fn a_single_thread_never_waits() {
        let means = means(&[one(0.2, 1, 1.0), one(0.3, 4, 1.0), one(0.5, 1, 8.0)], 1, 1.0);
        assert!((means.response - 1.0).abs() < 1e-12 && (means.rate - 0.5).abs() < 1e-12);
    }

    /// Balanced single servers: X(n) = n / (n + k - 1) / D, in closed form.
    #[test]
    fn balanced_queues_have_a_closed_form() {
        for threads in [1, 2, 10, 100] {
            let stations = vec![one(0.25, 1, 1.0); 5];
            let wanted = f64::from(threads) / (f64::from(threads) + 4.0) / 0.25;
            assert!((means(&stations, threads, 0.0).rate - wanted).abs() < 1e-9);
            let equal = means(&[one(0.25 * 5.0, 1, 5.0)], threads, 0.0).rate;
            assert!((equal - wanted).abs() < 1e-9, "five queues of a station are five stations");
        }
    }

    /// The machine repairman: threads that think and one station of several servers, in closed form.
    #[test]
    fn several_servers_follow_the_repairman() {
        let (threads, servers, think, service) = (12u32, 3u32, 2.0, 1.0);
        // Weights of n requests at the station: C(N, n) (S/Z)^n n! / (min(n, c)! c^(n - min(n, c))).
        let mut weights = vec![1.0f64];
        for n in 1..=threads {
            let before = weights[n as usize - 1];
            weights.push(before * f64::from(threads - n + 1) * service / think / f64::from(n.min(servers)));
        }
        let all: f64 = weights.iter().sum();
        let here: f64 = weights.iter().enumerate().map(|(n, weight)| n as f64 * weight).sum::<f64>() / all;
        let means = means(&[one(service, servers, 1.0)], threads, think);
        assert!((means.at[0] - here).abs() < 1e-9, "{} {here}", means.at[0]);
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
