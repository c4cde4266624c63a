//! Events a second of the simulator's engine, and customers a second against SimPy.
//!
//! Both count customers alike: each arrives, waits, is served and is recorded. SimPy counts more events for that (a
//! request, a time-out, the end of a process), so events are not compared.
//!
//! Neither side warms up: both begin with an empty network and stop when the given number of customers has finished. The
//! simulated time and the mean response time of the later half must agree, or the case has failed.

use super::python::Script;
use super::{Stage, compare};
use crate::campaign::Declared;
use crate::clock::thread_seconds;
use crate::engine::{Metric, Runs, Side};
use crate::error::Error;
use crate::interrupt;
use crate::row::Row;
use bywash_sim::engine::{Net, Op, Run, ServiceTime};
use serde::{Deserialize, Serialize};

const QUEUES: Script = Script { name: "queues", source: include_str!("../../programs/queues.py") };
/// Goal, in events a second.
const EVENTS: f64 = 1e7;
/// Goal, as a multiple of SimPy's customers a second.
const SIMPY: f64 = 20.0;
/// Length of our turn, in seconds: the simulation is repeated until it is over.
const TURN: f64 = 0.3;
const TURN_QUICK: f64 = 0.03;
/// Divisor of the customers of a quick run.
const QUICK: u64 = 10;
/// Greatest relative difference of both sides' results: more than three standard deviations of the least certain
/// one of a quick run. The seeds are the same in every run.
const AGREEMENT: f64 = 0.1;

/// Networks, each with the number of customers that finish in a run: about a second of SimPy.
const NETS: [(&str, Shape, u64); 3] = [
    ("M/M/1, half busy", Shape::Open { interval: 2e-6, servers: 1, service: 1e-6 }, 100_000),
    (
        "64 jobs at 8 stations",
        Shape::Closed { jobs: 64, think: 0.0, stations: 8, servers: 1, service: 1e-6 },
        20_000,
    ),
    (
        "M/M/16, most of 1,024 customers waiting",
        Shape::Closed { jobs: 1024, think: 1e-5, stations: 1, servers: 16, service: 1e-6 },
        100_000,
    ),
];

/// A network of queues; all times are means of exponential distributions, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Shape {
    /// Customers arrive, are served once, and leave.
    Open { interval: f64, servers: u32, service: f64 },
    /// A fixed number of customers thinks, visits every station, and thinks again.
    Closed { jobs: u32, think: f64, stations: u32, servers: u32, service: f64 },
}

impl Shape {
    /// The network for our engine. A request begins when a customer arrives or has thought, and ends with the last service.
    fn net(&self) -> Net {
        let mut net = Net::new();
        match *self {
            Shape::Open { interval, servers, service } => {
                let station = net.station("station", servers);
                let time = ServiceTime::exponential(service);
                let customer = net.script(vec![Op::BeginRequest, Op::Use { station, time }, Op::EndRequest]);
                let arrivals = net.script(vec![
                    Op::Delay(ServiceTime::exponential(interval)),
                    Op::Send { script: customer },
                    Op::Jump { to: 0 },
                ]);
                net.start(arrivals, 1);
            }
            Shape::Closed { jobs, think, stations, servers, service } => {
                let mut ops = Vec::new();
                ops.extend((think > 0.0).then(|| Op::Delay(ServiceTime::exponential(think))));
                ops.push(Op::BeginRequest);
                for number in 0..stations {
                    let station = net.station(format!("station {number}"), servers);
                    ops.push(Op::Use { station, time: ServiceTime::exponential(service) });
                }
                ops.extend([Op::EndRequest, Op::Jump { to: 0 }]);
                let customer = net.script(ops);
                net.start(customer, jobs);
            }
        }
        net
    }
}

#[derive(Serialize)]
struct Order {
    net: Shape,
    customers: u64,
    seed: u64,
}

/// One run of a network; the mean of several, of ours.
#[derive(Debug, Deserialize)]
struct Turn {
    /// CPU time.
    seconds: f64,
    /// Simulated time until the last customer had finished, in seconds.
    simulated: f64,
    /// Mean response time of the later half of the customers, in seconds.
    response: f64,
    #[serde(default)]
    events: f64,
    #[serde(default)]
    versions: String,
}

pub(super) fn cases() -> Vec<Declared<Stage>> {
    let case = |(name, shape, customers)| {
        Declared::new(Row::head("plan/engine", name, ""), move |stage, head| {
            measure(stage, head, shape, customers)
        })
    };
    NETS.into_iter().map(case).collect()
}

fn measure(stage: &Stage, head: &Row, shape: Shape, customers: u64) -> Result<Vec<Row>, Error> {
    let (customers, turn) = if stage.quick { (customers / QUICK, TURN_QUICK) } else { (customers, TURN) };
    let mut seed = 0;
    let sides = vec![
        Side::new("bywash", || simulate(&shape, customers, turn)),
        Side::new("SimPy", || {
            seed += 1;
            stage.python()?.run(QUEUES, &Order { net: shape, customers, seed })
        }),
    ];
    Ok(rows(head, stage.rounds.run(sides)?, customers as f64))
}

/// Simulates the network again and again for `seconds`, with another seed each time.
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
    let each = |sum: f64| sum / f64::from(runs);
    Ok(Turn {
        seconds: each(thread_seconds() - begin),
        simulated: each(simulated),
        response: each(response),
        events: each(events as f64),
        versions: String::new(),
    })
}

fn rows(head: &Row, mut runs: Vec<Runs<Turn>>, customers: f64) -> Vec<Row> {
    compare(&mut runs, agree);
    let (ours, simpy) = (&runs[0], &runs[1]);
    let events = ours.samples.as_ref().map_or(0.0, |turns| mean(turns, |turn| turn.events) / customers);
    let versions =
        simpy.samples.as_ref().ok().and_then(|turns| Some(format!("; {}", turns.first()?.versions)));
    let head = Row {
        note: format!("{events:.1} events a customer{}", versions.unwrap_or_default()),
        ..head.clone()
    };
    let events = Metric::rate("events", "events/s", |turn: &Turn| turn.events / turn.seconds);
    let finished = Metric::rate("customers", "customers/s", |turn: &Turn| customers / turn.seconds);
    vec![
        events.row_of_limit(&head, ours, "a goal of 10 M events/s", EVENTS, 1.0),
        finished.row(&head, ours, simpy, Some(SIMPY)),
    ]
}

/// Checks that both sides have found the same, within [`AGREEMENT`].
fn agree(ours: &[Turn], theirs: &[Turn]) -> Result<(), Error> {
    let simulated = [ours, theirs].map(|turns| mean(turns, |turn| turn.simulated));
    let response = [ours, theirs].map(|turns| mean(turns, |turn| turn.response));
    for (name, [ours, theirs]) in [("simulated time", simulated), ("mean response", response)] {
        if (ours / theirs - 1.0).abs() > AGREEMENT {
            let how = format!("has a {name} of {ours:e} s here and {theirs:e} s in SimPy");
            return Err(Error::failed("the network", how));
        }
    }
    Ok(())
}

fn mean(turns: &[Turn], figure: impl Fn(&Turn) -> f64) -> f64 {
    turns.iter().map(figure).sum::<f64>() / turns.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(seconds: f64, response: f64) -> Turn {
        Turn { seconds, simulated: 1.0, response, events: 200_000.0, versions: "SimPy 4".into() }
    }

    fn rows_of(simpy: Result<Vec<Turn>, Error>) -> Vec<Row> {
        let ours = Runs { name: "bywash".into(), samples: Ok(vec![turn(0.01, 2.0), turn(0.01, 2.0)]) };
        rows(&Row::default(), vec![ours, Runs { name: "SimPy".into(), samples: simpy }], 1e5)
    }

    #[test]
    fn customers_are_compared_and_events_are_counted() {
        let rows = rows_of(Ok(vec![turn(1.0, 2.1), turn(1.0, 2.0)]));
        assert_eq!((rows[0].ours, rows[0].met), (Some(2e7), Some(true)));
        assert_eq!((rows[1].ours, rows[1].peer_value, rows[1].met), (Some(1e7), Some(1e5), Some(true)));
        assert_eq!(rows[1].note, "2.0 events a customer; SimPy 4");
    }

    #[test]
    fn another_result_is_a_failure_and_no_peer_is_none() {
        let rows = rows_of(Ok(vec![turn(1.0, 3.0)]));
        assert!(rows[1].failed && rows[1].note.contains("mean response"), "{:?}", rows[1]);
        let rows = rows_of(Err(Error::Unavailable("no pip".into())));
        assert_eq!((rows[0].met, rows[1].met, rows[1].failed), (Some(true), None, false));
        assert_eq!(rows[1].note, "not run: SimPy: no pip");
    }

    #[test]
    fn networks_have_the_figures_of_queueing_theory() {
        let open = Shape::Open { interval: 2.0, servers: 1, service: 1.0 };
        let turn = simulate(&open, 20_000, 0.0001).unwrap();
        assert!((turn.events / 40_000.0 - 1.0).abs() < 0.01 && (turn.response / 2.0 - 1.0).abs() < 0.1);
        assert!(turn.seconds > 0.0 && (turn.simulated / 40_000.0 - 1.0).abs() < 0.05);
        // Balanced: X = N / (N + K - 1) / D; and servers that never rest.
        let balanced = Shape::Closed { jobs: 5, think: 0.0, stations: 4, servers: 1, service: 1.0 };
        let crowded = Shape::Closed { jobs: 100, think: 2.0, stations: 1, servers: 4, service: 1.0 };
        for (shape, rate) in [(balanced, 5.0 / 8.0), (crowded, 4.0)] {
            let outcome = Run::new(&shape.net(), 1).until_finished(1000, 100_000);
            assert!((outcome.rate() / rate - 1.0).abs() < 0.02, "{shape:?}");
        }
    }
}
