//! Mean performance of a server under its load, closed or open.
//!
//! A closed load is solved by mean-value analysis ([`crate::closed`]). For an open load, the server with its
//! threads is one station that serves n requests at the rate X(n), the throughput of the closed network with n
//! threads (Chandy, Herzog and Woo, *Parametric Analysis of Queuing Networks*, IBM J. R&D 19(1), 1975); with
//! more requests than threads the rate stays X(N). Bursts of geometric size with mean b arrive at the rate
//! l / b. The probability p(n) of n requests in the server follows from the balance of the flows up and down
//! across each n, where every arriving request of a burst is followed by another one with probability
//! t = 1 - 1/b:
//!
//! ```text
//!     p(n) X(n) = l/b S(n),   S(n+1) = t S(n) + p(n),   S(1) = p(0)
//! ```
//!
//! and beyond N by a geometric series with the ratio t + l / (b X(N)), which is below 1 if l < X(N). The mean
//! response time is the mean number of requests divided by l (Little). The result is exact for one station of
//! one or several servers with exponential service times, with and without bursts (M/M/1, M/M/c, batch
//! arrivals), and for networks of such stations with Poisson arrivals and enough threads (Jackson); with few
//! threads or with bursts, a network is an approximation. It has no percentiles: these depend on the order of
//! service and on distributions that the means do not contain; the simulator has them.
//!
//! The command, the web page and the sweeps call it.

use crate::closed::{Network, at_least_one, closed, throughputs};
use crate::demand::Architecture;
use crate::machine::Machine;
use crate::units::PerSecond;
use crate::work::Workload;
use serde::Serialize;

/// Mean performance of a server under its load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Performance {
    /// Throughput, in bytes per second. An overloaded server has that of its capacity.
    pub throughput: f64,
    /// Throughput, in requests per second.
    pub requests: f64,
    /// Mean response time of a request, without think time, in seconds. Infinite for an overloaded server, on
    /// which response times grow without end.
    pub response: f64,
    /// Utilisation of each resource, 0 to 1, in the order of [`Resource::ALL`](crate::Resource::ALL).
    pub utilisation: [f64; 6],
    /// Mean number of requests in the server, waiting or in service. Infinite for an overloaded server.
    pub in_server: f64,
    /// Greatest throughput with the threads of the server, in requests per second. Arrivals at a higher rate
    /// overload the server.
    pub capacity: f64,
}

impl Performance {
    /// Returns true if requests arrive faster than the server can serve them.
    pub fn is_overloaded(&self) -> bool {
        self.response.is_infinite()
    }
}

/// Computes the mean performance of `machine` under `work` and `architecture`.
pub fn performance(machine: &Machine, work: &Workload, architecture: Architecture) -> Performance {
    if work.load.is_open() {
        open(machine, work, architecture)
    } else {
        with_clients(machine, work, architecture)
    }
}

fn with_clients(machine: &Machine, work: &Workload, architecture: Architecture) -> Performance {
    let closed = closed(machine, work, architecture);
    let capacity = if work.load.think.0 > 0.0 {
        let mut busy = *work;
        busy.load.think.0 = 0.0;
        crate::closed::closed(machine, &busy, architecture).requests
    } else {
        closed.requests
    };
    Performance {
        throughput: closed.throughput,
        requests: closed.requests,
        response: closed.response,
        utilisation: closed.utilisation,
        in_server: closed.requests * closed.response,
        capacity,
    }
}

fn open(machine: &Machine, work: &Workload, architecture: Architecture) -> Performance {
    let network = Network::new(machine, work, architecture);
    let threads = at_least_one(work.load.threads);
    let rates = throughputs(network.pool, &network.stations, threads, network.in_flight);
    // `throughputs` returns threads + 1 rates.
    let capacity = rates[threads as usize];
    let PerSecond(arrivals) = work.load.arrivals;
    let in_server = mean_number(&rates, arrivals, work.load.burst).unwrap_or(f64::INFINITY);
    let requests = arrivals.min(capacity);
    Performance {
        throughput: requests * work.request_bytes(),
        requests,
        response: in_server / arrivals,
        utilisation: network.utilisation(requests),
        in_server,
        capacity,
    }
}

/// Weights above this are scaled down, long before they overflow.
const WEIGHT_MAX: f64 = 1e200;

/// Returns the mean number of requests in a server that serves n requests at the rate `rates[n]`, and more
/// than it has rates at the last one. `rates[0]` is not used. Bursts of mean size `burst` bring `arrivals`
/// requests per second. Returns `None` if the server is overloaded.
pub fn mean_number(rates: &[f64], arrivals: f64, burst: f64) -> Option<f64> {
    let last = *rates.last()?;
    if arrivals >= last {
        return None;
    }
    let (bursts, follows) = (arrivals / burst, 1.0 - 1.0 / burst);
    // Sum of the weights, sum of the weights times the numbers of requests, and S(n) of the head of the module.
    let (mut all, mut numbers, mut above) = (1.0, 0.0, 1.0);
    for (number, rate) in rates.iter().enumerate().skip(1) {
        let weight = bursts * above / rate;
        all += weight;
        numbers += weight * number as f64;
        above = follows * above + weight;
        if all > WEIGHT_MAX {
            (all, numbers, above) = (all / WEIGHT_MAX, numbers / WEIGHT_MAX, above / WEIGHT_MAX);
        }
    }
    let ratio = follows + bursts / last;
    let (first, number) = (bursts * above / last, rates.len() as f64);
    all += first / (1.0 - ratio);
    numbers += first * (number / (1.0 - ratio) + ratio / ((1.0 - ratio) * (1.0 - ratio)));
    Some(numbers / all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed::{MultiServer, Station};
    use crate::units::{Cycles, Size, Time};
    use crate::work::Request;

    fn near(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
    }

    /// Mean response time with one rate for each number of requests.
    fn response(rates: &[f64], arrivals: f64, burst: f64) -> f64 {
        mean_number(rates, arrivals, burst).unwrap() / arrivals
    }

    #[test]
    fn one_server_follows_its_formula_with_and_without_bursts() {
        for load in [0.01, 0.5, 0.9, 0.999] {
            near(response(&[0.0, 2.0], 2.0 * load, 1.0), 0.5 / (1.0 - load));
            // M/M/1 with geometric bursts: b / (m - l).
            near(response(&[0.0, 2.0], 2.0 * load, 8.0), 8.0 * 0.5 / (1.0 - load));
        }
    }

    #[test]
    fn several_servers_follow_erlang() {
        for (servers, load) in [(4usize, 0.8), (32, 0.95), (500, 0.97)] {
            let offered = servers as f64 * load;
            // Erlang's B by its recursion, and C from it.
            let blocked =
                (1..=servers).fold(1.0, |blocked, n| offered * blocked / (n as f64 + offered * blocked));
            let waits = blocked / (1.0 - load * (1.0 - blocked));
            let rates: Vec<f64> = (0..=servers).map(|n| n as f64).collect();
            near(response(&rates, offered, 1.0), 1.0 + waits / (servers as f64 - offered));
        }
    }

    #[test]
    fn a_network_with_many_threads_is_jackson_s() {
        let pool = MultiServer { demand: 0.4, servers: 2 };
        let stations = [
            Station { demand: 0.1, queues: 1.0, servers: 1.0 },
            Station { demand: 0.6, queues: 4.0, servers: 1.0 },
        ];
        let arrivals = 4.0;
        let wanted = {
            let load = arrivals * 0.4 / 2.0;
            // M/M/2: R = D / (1 - load^2).
            0.4 / (1.0 - load * load) + 0.1 / (1.0 - arrivals * 0.1) + 0.6 / (1.0 - arrivals * 0.6 / 4.0)
        };
        let rates = throughputs(pool, &stations, 1000, 0.25);
        // Interpolated rates are off by a little.
        let found = response(&rates, arrivals, 1.0);
        assert!((found / (wanted + 0.25) - 1.0).abs() < 1e-6, "{found} {wanted}");
        let few = response(&throughputs(pool, &stations, 3, 0.25), 1.0, 1.0);
        assert!(few > 1.05 * response(&rates, 1.0, 1.0), "who waits for a thread waits longer");
    }

    #[test]
    fn interpolated_throughputs_are_those_of_mean_value_analysis() {
        let pool = MultiServer { demand: 0.3, servers: 40 };
        let stations = [Station { demand: 5.0, queues: 4.0, servers: 200.0 }];
        let rates = throughputs(pool, &stations, 2000, 0.01);
        assert_eq!(rates.len(), 2001);
        for threads in [1u32, 100, 129, 333, 777, 1500, 2000] {
            let wanted = crate::closed::means(pool, &stations, threads, 0.01).rate;
            let found = rates[threads as usize];
            assert!((found / wanted - 1.0).abs() < 0.01, "{threads}: {found} {wanted}");
        }
    }

    #[test]
    fn an_overloaded_server_has_no_response_time() {
        let page = Request::Dynamic { page: Size(4096.0), compute: Cycles(1.5e6), data: Size(0.0) };
        let mut work = Workload::new(page);
        work.load.arrivals = PerSecond(2000.0);
        let machine = Machine::carrera_2003();
        let told = performance(&machine, &work, Architecture::UserLevel);
        assert!(told.is_overloaded() && told.requests < 1000.0 && told.utilisation[0] > 0.999, "{told:?}");
        work.load.arrivals = PerSecond(100.0);
        let told = performance(&machine, &work, Architecture::UserLevel);
        assert!(!told.is_overloaded() && (told.requests - 100.0).abs() < 1e-9);
        near(told.in_server, 100.0 * told.response);
        assert!((told.utilisation[0] - 0.1).abs() < 0.01 && told.capacity > 900.0, "{told:?}");
    }

    #[test]
    fn a_closed_load_is_what_mean_value_analysis_says() {
        let (machine, mut work) = (Machine::carrera_2003(), Workload::web(0.1));
        work.load.think = Time(0.01);
        let told = performance(&machine, &work, Architecture::Active);
        let wanted = closed(&machine, &work, Architecture::Active);
        assert_eq!((told.response, told.throughput), (wanted.response, wanted.throughput));
        assert!(told.capacity >= told.requests && !told.is_overloaded());
    }
}
