//! Events a second of the simulator's engine, and customers a second against SimPy.
//!
//! Both count customers alike: each arrives, waits, is served and is recorded. SimPy counts more events for that (a
//! request, a time-out, the end of a process), so events are not compared.
//!
//! Neither side warms up: both begin with an empty network and stop when the given number of customers has finished. The
//! simulated time and the mean response time of the later half must agree, or the case has failed.

use super::{Stage, Turn};
use crate::clock::thread_seconds;
use crate::engine::Metric;
use crate::error::Error;
use crate::interrupt;
use crate::row::Row;
use bywash_sim::engine::{Net, Op, Run, ServiceTime};
use serde::Serialize;
use serde_json::json;

const SIMPY: (&str, &str) = ("SimPy", include_str!("../../programs/queues.py"));
/// Goal, in events a second.
const GOAL_EVENTS: f64 = 1e7;
/// Goal, as a multiple of SimPy's customers a second.
const GOAL_SIMPY: f64 = 20.0;
/// Length of our turn, in seconds: the simulation is repeated until it is over.
const TURN: f64 = 0.3;
const TURN_QUICK: f64 = 0.03;
/// Divisor of the customers of a quick run.
const QUICK: u64 = 10;
/// Greatest relative difference of both sides' results: more than three standard deviations of the least certain
/// one of a quick run. The seeds are the same in every run.
const DIFFERENCE: f64 = 0.1;

/// Networks, each with the number of customers that finish in a run: about a second of SimPy.
pub(super) const NETS: [(&str, Shape, u64); 3] = [
    ("M/M/1, half busy", Shape { jobs: 0, pause: 2e-6, stations: 1, servers: 1, service: 1e-6 }, 100_000),
    ("64 jobs at 8 stations", Shape { jobs: 64, pause: 0.0, stations: 8, servers: 1, service: 1e-6 }, 20_000),
    (
        "M/M/16, most of 1,024 customers waiting",
        Shape { jobs: 1024, pause: 1e-5, stations: 1, servers: 16, service: 1e-6 },
        100_000,
    ),
];

/// A network of queues; all times are means of exponential distributions, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Shape {
    /// Customers that pause, visit every station, and pause again; 0 if customers arrive, are served once, and leave.
    jobs: u32,
    /// Time between two arrivals, or before a customer's next visit.
    pause: f64,
    stations: u32,
    /// Servers of each station.
    servers: u32,
    service: f64,
}

impl Shape {
    /// The network for our engine. A request begins when a customer arrives or has paused, and ends with the last service.
    fn net(&self) -> Net {
        let mut net = Net::new();
        let pause = (self.pause > 0.0).then(|| Op::Delay(ServiceTime::exponential(self.pause)));
        let mut visit = vec![Op::BeginRequest];
        for number in 0..self.stations {
            let station = net.station(format!("station {number}"), self.servers);
            visit.push(Op::Use { station, time: ServiceTime::exponential(self.service) });
        }
        visit.push(Op::EndRequest);
        let mut ops: Vec<Op> = pause.into_iter().collect();
        match self.jobs {
            0 => ops.push(Op::Send { script: net.script(visit) }),
            _ => ops.extend(visit),
        }
        ops.push(Op::Jump { to: 0 });
        let script = net.script(ops);
        net.start(script, self.jobs.max(1));
        net
    }
}

pub(super) fn measure(stage: &Stage, head: &Row, shape: Shape, customers: u64) -> Result<Vec<Row>, Error> {
    let (customers, turn) = if stage.quick { (customers / QUICK, TURN_QUICK) } else { (customers, TURN) };
    let order = |seed| json!({ "net": shape, "customers": customers, "seed": seed });
    let ours = || simulate(&shape, customers, turn);
    let (head, runs) = stage.against_python(head, ours, SIMPY, order, DIFFERENCE)?;
    let customers = customers as f64;
    let events = runs[0].median(|turn| turn.events / customers).unwrap_or_default();
    let versions = if head.note.is_empty() { String::new() } else { format!("; {}", head.note) };
    let head = Row { note: format!("{events:.1} events a customer{versions}"), ..head };
    let events = Metric::rate("events", "events/s", |turn: &Turn| turn.events / turn.seconds);
    let finished = Metric::rate("customers", "customers/s", |turn: &Turn| customers / turn.seconds);
    Ok(vec![
        events.row_of_limit(&head, &runs[0], "a goal of 10 M events/s", GOAL_EVENTS, 1.0),
        finished.row(&head, &runs[0], &runs[1], Some(GOAL_SIMPY)),
    ])
}

/// Simulates the network again and again for `seconds`, with another seed each time. All figures are those of the mean run;
/// the results are the simulated seconds until the last customer has finished, and the mean response of the later half.
fn simulate(shape: &Shape, customers: u64, seconds: f64) -> Result<Turn, Error> {
    let net = shape.net();
    let (mut runs, mut events, mut simulated, mut response) = (0u32, 0, 0.0, 0.0);
    let begin = thread_seconds();
    while thread_seconds() - begin < seconds {
        interrupt::check()?;
        let outcome = Run::new(&net, u64::from(runs)).until_finished(0, customers);
        runs += 1;
        events += outcome.events;
        simulated += outcome.seconds;
        response += outcome.response.mean_interval().mean;
    }
    let seconds = thread_seconds() - begin;
    let [seconds, simulated, response, events] =
        [seconds, simulated, response, events as f64].map(|sum| sum / f64::from(runs));
    Ok(Turn { seconds, results: vec![simulated, response], events, ..Turn::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_the_figures_of_queueing_theory() {
        let open = Shape { jobs: 0, pause: 2.0, stations: 1, servers: 1, service: 1.0 };
        let turn = simulate(&open, 20_000, 0.0001).unwrap();
        assert!((turn.events / 40_000.0 - 1.0).abs() < 0.01 && (turn.results[1] / 2.0 - 1.0).abs() < 0.1);
        assert!(turn.seconds > 0.0 && (turn.results[0] / 40_000.0 - 1.0).abs() < 0.05);
        // Balanced: X = N / (N + K - 1) / D; and servers that never rest.
        let balanced = Shape { jobs: 5, pause: 0.0, stations: 4, servers: 1, service: 1.0 };
        let crowded = Shape { jobs: 100, pause: 2.0, stations: 1, servers: 4, service: 1.0 };
        for (shape, rate) in [(balanced, 5.0 / 8.0), (crowded, 4.0)] {
            let outcome = Run::new(&shape.net(), 1).until_finished(1000, 100_000);
            assert!((outcome.rate() / rate - 1.0).abs() < 0.02, "{shape:?}");
        }
    }
}
