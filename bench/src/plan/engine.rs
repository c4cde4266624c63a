//! Events a second of the simulator's engine, and customers a second against SimPy.
//!
//! Customers are what both count alike: what one of them does (comes, waits, is served, is written down) is the same work
//! on both sides, while an event of SimPy is less than one of ours (a request, a time-out, the end of a process).
//!
//! Neither side warms up: both begin with an empty net and stop when so many have finished, and what they find (the time
//! that passed in the net, the mean response of the later half) must agree, or the case has failed.

use super::net::Shape;
use super::python::Script;
use super::turns::{self, Turns};
use super::{Part, Stage};
use crate::error::Error;
use crate::interrupt;
use crate::row::Row;
use bywash_sim::engine::Run;
use serde::{Deserialize, Serialize};

const QUEUES: Script = Script { name: "queues", source: include_str!("../../programs/queues.py") };
/// Events a second that are asked for.
const EVENTS: f64 = 1e7;
/// Times as many customers a second as SimPy.
const SIMPY: f64 = 20.0;
/// Seconds that our turn goes on for, however often the net has to run in it.
const TURN: f64 = 0.3;
const TURN_QUICK: f64 = 0.03;
/// What a quick run leaves of the customers.
const QUICK: u64 = 10;
/// How far from each other the two sides may be: more than three standard deviations of the least certain figure of a
/// quick run. The seeds are the same in every run, so that nobody is unlucky once.
const AGREEMENT: f64 = 0.1;

/// The nets, and how many customers finish in a run: about a second of SimPy.
const CASES: [(&str, Shape, u64); 3] = [
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

/// A turn of ours.
struct Ours {
    seconds_each: f64,
    events_each: f64,
    /// Of a run, on the average: seconds of the net's own time until the last customer had finished.
    simulated: f64,
    /// The mean of the last batches, which are half of all or more.
    response: f64,
}

#[derive(Serialize)]
struct Order {
    net: Shape,
    customers: u64,
    seed: u64,
}

/// A turn of SimPy's.
#[derive(Deserialize)]
struct Theirs {
    seconds: f64,
    simulated: f64,
    response: f64,
    versions: String,
}

/// A part for each net.
pub fn parts() -> Vec<Part> {
    let part = |(name, shape, customers): (&str, Shape, u64)| Part {
        bench: "plan/engine",
        case: name.into(),
        measure: Box::new(move |stage| measure(stage, shape, customers)),
    };
    CASES.into_iter().map(part).collect()
}

fn measure(stage: &Stage<'_>, shape: Shape, customers: u64) -> Result<Vec<Row>, Error> {
    let (customers, turn) = match stage.quick {
        true => (customers / QUICK, TURN_QUICK),
        false => (customers, TURN),
    };
    let mut seed = 0;
    let turns = turns::take(
        stage.pairs,
        || simulate(&shape, customers, turn),
        || {
            seed += 1;
            stage.python()?.run::<Theirs>(QUEUES, &Order { net: shape, customers, seed })
        },
    )?;
    Ok(rows(turns, customers))
}

/// Runs the net again and again for `seconds`, with another seed each time.
fn simulate(shape: &Shape, customers: u64, seconds: f64) -> Result<Ours, Error> {
    let net = shape.net();
    let (mut runs, mut events, mut simulated, mut response) = (0u32, 0, 0.0, 0.0);
    let begin = turns::processor_seconds();
    while turns::processor_seconds() - begin < seconds {
        interrupt::check()?;
        let outcome = Run::new(&net, u64::from(runs)).until_finished(0, customers);
        runs += 1;
        events += outcome.events;
        simulated += outcome.seconds;
        response += outcome.response.mean_interval().mean;
    }
    let (runs, all) = (f64::from(runs), f64::from(runs) * customers as f64);
    Ok(Ours {
        seconds_each: (turns::processor_seconds() - begin) / all,
        events_each: events as f64 / all,
        simulated: simulated / runs,
        response: response / runs,
    })
}

fn rows(turns: Turns<Ours, Theirs>, customers: u64) -> Vec<Row> {
    let Turns { ours, peer } = turns;
    let peer = peer.and_then(|theirs| agree(&ours, &theirs).map(|()| theirs));
    let events = mean(ours.iter().map(|turn| turn.events_each));
    let versions = peer.as_ref().ok().and_then(|theirs| Some(format!("; {}", theirs.first()?.versions)));
    let row = |metric: &str, peer: &str| Row {
        metric: metric.into(),
        unit: format!("{metric}/s"),
        peer: peer.into(),
        note: format!("{events:.1} events a customer{}", versions.clone().unwrap_or_default()),
        ..Row::default()
    };
    let each_event: Vec<f64> = ours.iter().map(|turn| turn.seconds_each / turn.events_each).collect();
    let each_customer: Vec<f64> = ours.iter().map(|turn| turn.seconds_each).collect();
    let theirs = peer.map(|turns| turns.iter().map(|turn| turn.seconds / customers as f64).collect());
    let limit = row("events", "a goal of 10 M events/s");
    vec![
        turns::row_of_limit(limit, &each_event, 1.0 / EVENTS, f64::recip),
        turns::row(row("customers", "SimPy"), &each_customer, &theirs, Some(SIMPY), f64::recip),
    ]
}

/// Whether both sides have found the same.
fn agree(ours: &[Ours], theirs: &[Theirs]) -> Result<(), Error> {
    let found = [
        (
            "seconds of the net",
            mean(ours.iter().map(|turn| turn.simulated)),
            mean(theirs.iter().map(|turn| turn.simulated)),
        ),
        (
            "mean response",
            mean(ours.iter().map(|turn| turn.response)),
            mean(theirs.iter().map(|turn| turn.response)),
        ),
    ];
    let near = 1.0 - AGREEMENT..1.0 + AGREEMENT;
    match found.iter().find(|(_, ours, theirs)| !near.contains(&(ours / theirs))) {
        None => Ok(()),
        Some((what, ours, theirs)) => {
            Err(Error::failed("the net", format!("has a {what} of {ours:e} s here and {theirs:e} s there")))
        }
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(seconds_each: f64) -> Ours {
        Ours { seconds_each, events_each: 2.0, simulated: 1.0, response: 2.0 }
    }

    fn theirs(seconds: f64, response: f64) -> Theirs {
        Theirs { seconds, simulated: 1.05, response, versions: "SimPy 4".into() }
    }

    #[test]
    fn customers_are_compared_and_events_are_counted() {
        let turns =
            Turns { ours: vec![ours(1e-7), ours(1e-7)], peer: Ok(vec![theirs(1.0, 2.1), theirs(1.0, 2.0)]) };
        let rows = rows(turns, 100_000);
        assert_eq!((rows[0].ours.map(f64::round), rows[0].met), (Some(2e7), Some(true)));
        let wanted = (Some(1e7), Some(1e5), Some(true));
        assert_eq!((rows[1].ours.map(f64::round), rows[1].peer_value.map(f64::round), rows[1].met), wanted);
        assert_eq!(rows[1].note, "2.0 events a customer; SimPy 4");
    }

    #[test]
    fn another_net_is_a_failure_and_no_peer_is_none() {
        let other = Turns { ours: vec![ours(1e-7)], peer: Ok(vec![theirs(1.0, 3.0)]) };
        let rows_of_other = rows(other, 100_000);
        assert!(
            rows_of_other[1].failed && rows_of_other[1].note.contains("mean response"),
            "{:?}",
            rows_of_other[1]
        );
        let alone = Turns { ours: vec![ours(1e-6)], peer: Err(Error::Unavailable("no pip".into())) };
        let alone = rows(alone, 100_000);
        assert_eq!((alone[0].met, alone[1].met, alone[1].failed), (Some(false), None, false));
        assert_eq!(
            (alone[1].ours.map(f64::round), alone[1].note.as_str()),
            (Some(1e6), "not run: SimPy: no pip")
        );
    }

    #[test]
    fn turns_find_what_theory_knows() {
        let open = Shape::Open { interval: 2.0, servers: 1, service: 1.0 };
        let turn = simulate(&open, 20_000, 0.0001).unwrap();
        assert!((turn.events_each - 2.0).abs() < 0.01 && (turn.response / 2.0 - 1.0).abs() < 0.1);
        assert!(turn.seconds_each > 0.0 && (turn.simulated / 40_000.0 - 1.0).abs() < 0.05);
    }
}
