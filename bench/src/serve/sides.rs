//! The same workload by several sides in turns, and the rows that come of it.
//!
//! Each side has its turn in each round; which one begins, and in which direction it goes on, changes each time. A side
//! that cannot be had here, or fails, drops out and says why.

use super::client::Figures;
use crate::engine::{LIMIT, ROUNDS_MIN, order, uninterrupted as interruption};
use crate::error::Error;
use crate::interrupt;
use crate::row::Row;
use crate::statistics::Summary;
use std::time::Instant;

/// One side: its name, and how one run of it goes.
pub struct Side<'a> {
    /// As rows have it.
    pub name: String,
    /// Runs it once.
    pub run: Box<dyn FnMut() -> Result<Figures, Error> + 'a>,
}

/// All runs of a side, or why it has none.
pub struct Runs {
    /// Its name.
    pub name: String,
    /// In order; as many for each side.
    pub figures: Result<Vec<Figures>, Error>,
}

/// Runs `sides` in turns, `pairs` rounds of them, fewer if they take too long.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn run(mut sides: Vec<Side<'_>>, pairs: u32) -> Result<Vec<Runs>, Error> {
    let mut runs: Vec<Runs> =
        sides.iter().map(|side| Runs { name: side.name.clone(), figures: Ok(Vec::new()) }).collect();
    let begin = Instant::now();
    for round in 0..pairs {
        if round >= ROUNDS_MIN && begin.elapsed() > LIMIT {
            break;
        }
        for side in order(sides.len(), round as usize) {
            interrupt::check()?;
            if let Ok(figures) = &mut runs[side].figures {
                match interruption((sides[side].run)())? {
                    Ok(run) => figures.push(run),
                    Err(error) => runs[side].figures = Err(error),
                }
            }
        }
    }
    Ok(runs)
}

/// What is read off a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Half of all requests at depth 1 took no longer, ns.
    Latency,
    /// 99 of 100 requests at depth 1 took no longer, ns.
    Latency99,
    /// Requests a second.
    Requests,
    /// Bytes a second.
    Bandwidth,
    /// CPU ns of the clients for each request.
    ClientCpu,
    /// As that, and of the server's process, if there is one.
    BothCpu,
    /// As that, and of all kernel threads of the machine.
    AllCpu,
    /// Requests for each CPU second of the clients and the server.
    Efficiency,
}

impl Metric {
    /// As rows have it.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Latency => "latency",
            Metric::Latency99 => "latency, 99 %",
            Metric::Requests => "requests",
            Metric::Bandwidth => "throughput",
            Metric::ClientCpu => "cpu of clients",
            Metric::BothCpu => "cpu of clients and server",
            Metric::AllCpu => "cpu of clients, server and kernel threads",
            Metric::Efficiency => "requests per CPU second",
        }
    }

    /// Of its figures.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Latency | Metric::Latency99 => "ns",
            Metric::Requests => "op/s",
            Metric::Bandwidth => "B/s",
            Metric::ClientCpu | Metric::BothCpu | Metric::AllCpu => "ns/op",
            Metric::Efficiency => "op/CPU s",
        }
    }

    /// Of one run; none where it has no such figure.
    pub fn value(self, figures: &Figures) -> Option<f64> {
        let cpu = |seconds: f64| (figures.requests > 0).then(|| seconds * 1e9 / figures.requests as f64);
        let both = figures.client_seconds + figures.used.server_seconds.unwrap_or(0.0);
        match self {
            Metric::Latency => figures.latency.quantile(0.5),
            Metric::Latency99 => figures.latency.quantile(0.99),
            Metric::Requests => Some(figures.requests as f64 / figures.seconds),
            Metric::Bandwidth => Some(figures.bytes as f64 / figures.seconds),
            Metric::ClientCpu => cpu(figures.client_seconds),
            Metric::BothCpu => cpu(both),
            Metric::AllCpu => cpu(both + figures.used.kernel_seconds),
            Metric::Efficiency => Some(figures.requests as f64 / both.max(1e-6)),
        }
    }

    /// Order of two sides, the better one by the medians first. A side that has no figures comes before it, so that the
    /// reason is told.
    pub fn order(self, one: &Runs, other: &Runs) -> std::cmp::Ordering {
        let score = |runs: &Runs| runs.median(self).map_or(f64::INFINITY, |value| self.ratio(value, 1.0));
        score(other).total_cmp(&score(one))
    }

    /// Ours against the peer's, larger = better for us.
    fn ratio(self, ours: f64, peer: f64) -> f64 {
        match self {
            Metric::Requests | Metric::Bandwidth | Metric::Efficiency => ours / peer,
            // What took less than the kernel counts took that much.
            _ => peer.max(1e-3) / ours.max(1e-3),
        }
    }
}

impl Runs {
    /// The median of that figure.
    pub fn median(&self, metric: Metric) -> Option<f64> {
        Summary::of(&self.values(metric)).map(|summary| summary.median)
    }

    /// That figure of each run.
    pub fn values(&self, metric: Metric) -> Vec<f64> {
        let figures = self.figures.as_deref().unwrap_or_default();
        figures.iter().filter_map(|figures| metric.value(figures)).collect()
    }
}

/// `ours` against `peer` by `metric`; `empty` is the row's bench, case and place.
pub fn row(empty: Row, metric: Metric, ours: &Runs, peer: &Runs, goal: Option<f64>) -> Row {
    let empty = Row {
        metric: metric.name().into(),
        unit: metric.unit().into(),
        peer: peer.name.clone(),
        goal,
        ..empty
    };
    for side in [ours, peer] {
        if let Err(error) = &side.figures {
            return empty.without_numbers(&side.name, error);
        }
    }
    let (mine, theirs) = (ours.values(metric), peer.values(metric));
    let ratios: Vec<f64> =
        mine.iter().zip(&theirs).map(|(mine, theirs)| metric.ratio(*mine, *theirs)).collect();
    Row {
        ours: ours.median(metric),
        peer_value: peer.median(metric),
        runs: ratios.len() as u32,
        ..empty.with_ratio(Summary::of(&ratios), goal)
    }
}

#[cfg(test)]
mod tests {
    use super::super::histogram::Histogram;
    use super::super::processor::Used;
    use super::*;
    use std::cell::RefCell;

    fn figures(requests: u64) -> Figures {
        let mut latency = Histogram::default();
        (0..100).for_each(|_| latency.add(1_000_000_000 / requests));
        Figures {
            requests,
            bytes: requests * 512,
            rates: vec![requests as f64],
            seconds: 1.0,
            latency,
            client_seconds: 0.5,
            used: Used { server_seconds: Some(0.25), kernel_seconds: 0.25 },
        }
    }

    #[test]
    fn sides_take_turns_and_who_fails_drops_out() {
        let order = RefCell::new(String::new());
        let side = |name: &'static str, requests: u64| Side {
            name: name.into(),
            run: Box::new({
                let order = &order;
                move || {
                    order.borrow_mut().push_str(name);
                    match requests {
                        0 => Err(Error::Unavailable("it is not here".into())),
                        _ => Ok(figures(requests)),
                    }
                }
            }),
        };
        let runs = run(vec![side("o", 8_000_000), side("p", 2_000_000), side("x", 0)], 3).unwrap();
        assert_eq!(*order.borrow(), "opxpopo");
        let empty = || Row { bench: "serve".into(), case: "4 KiB".into(), ..Row::default() };
        let requests = row(empty(), Metric::Requests, &runs[0], &runs[1], Some(3.0));
        assert_eq!((requests.ratio, requests.met, requests.runs), (Some(4.0), Some(true), 3));
        let latency = row(empty(), Metric::Latency, &runs[0], &runs[1], Some(5.0));
        assert_eq!((latency.ours, latency.peer_value, latency.met), (Some(125.0), Some(500.5), Some(false)));
        let absent = row(empty(), Metric::Requests, &runs[0], &runs[2], Some(3.0));
        assert_eq!((absent.ratio, absent.met, absent.failed), (None, None, false));
        assert_eq!(absent.note, "not run: x: it is not here");
    }

    #[test]
    fn an_interruption_ends_all() {
        let side = Side { name: "o".into(), run: Box::new(|| Err(Error::Interrupted)) };
        assert!(matches!(run(vec![side], 2), Err(Error::Interrupted)));
    }

    #[test]
    fn whose_time_is_counted() {
        let figures = figures(1_000_000);
        let value = |metric: Metric| metric.value(&figures).unwrap();
        assert_eq!([Metric::ClientCpu, Metric::BothCpu, Metric::AllCpu].map(value), [500.0, 750.0, 1000.0]);
        assert_eq!(value(Metric::Bandwidth), 512e6);
        assert_eq!(Metric::Latency.value(&Figures::default()), None);
    }
}
