//! Figures of a run, and the rows that are made of them.

use crate::engine::{Metric, Runs};
use crate::number;

/// Figures of all clients of a run together.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub requests: u64,
    pub bytes: u64,
    /// Requests a second of each client.
    pub rates: Vec<f64>,
    /// Time from the first client's begin to the last one's end.
    pub seconds: f64,
    /// Nanoseconds that half of the requests and 99 % of them do not exceed, at depth 1 and of one client.
    pub latency: Option<[u32; 2]>,
    /// CPU time of the clients.
    pub client_seconds: f64,
    /// CPU time of the server, if there is one, and of the kernel's threads.
    pub server_seconds: Option<f64>,
    pub kernel_seconds: f64,
}

impl Figures {
    fn both_seconds(&self) -> f64 {
        self.client_seconds + self.server_seconds.unwrap_or(0.0)
    }

    fn ns_of_request(&self, seconds: f64) -> f64 {
        seconds * 1e9 / self.requests as f64
    }

    fn latency(&self, number: usize) -> f64 {
        self.latency.map_or(f64::NAN, |latency| latency[number].into())
    }
}

/// Figure of a run: name and unit in rows, whether less of it is better, and the figure.
#[derive(Clone, Copy)]
pub struct Figure(&'static str, &'static str, Better, fn(&Figures) -> f64);

#[derive(Clone, Copy)]
enum Better {
    Less,
    More,
}
use Better::{Less, More};

/// Latencies at depth 1.
pub const LATENCY: Figure = Figure("latency", "ns", Less, |run| run.latency(0));
pub const LATENCY_99: Figure = Figure("latency, 99 %", "ns", Less, |run| run.latency(1));
pub const REQUESTS: Figure = Figure("requests", "op/s", More, |run| run.requests as f64 / run.seconds);
pub const BANDWIDTH: Figure = Figure("throughput", "B/s", More, |run| run.bytes as f64 / run.seconds);
pub const CLIENT_CPU: Figure =
    Figure("cpu of clients", "ns/op", Less, |run| run.ns_of_request(run.client_seconds));
pub const SERVER_CPU: Figure = Figure("cpu of the server", "ns/op", Less, |run| {
    run.ns_of_request(run.server_seconds.unwrap_or(f64::NAN))
});
pub const BOTH_CPU: Figure =
    Figure("cpu of clients and server", "ns/op", Less, |run| run.ns_of_request(run.both_seconds()));
pub const ALL_CPU: Figure = Figure("cpu of clients, server and kernel threads", "ns/op", Less, |run| {
    run.ns_of_request(run.both_seconds() + run.kernel_seconds)
});
/// Requests for a CPU second of the clients and the server.
pub const EFFICIENCY: Figure = Figure("requests per CPU second", "op/CPU s", More, |run| {
    run.requests as f64 / run.both_seconds().max(1e-6)
});

impl Figure {
    pub fn metric(self) -> Metric<'static, Figures> {
        let Figure(name, unit, better, value) = self;
        match better {
            More => Metric::rate(name, unit, value),
            // A cost below the resolution of the kernel's clock counts as that.
            Less => Metric::cost(name, unit, value).ratio(|ours, peer| peer.max(1e-3) / ours.max(1e-3)),
        }
    }

    pub fn median(self, runs: &Runs<Figures>) -> Option<f64> {
        runs.median(self.3)
    }
}

/// CPU time of a request, of each process that has a part in it.
pub fn cpu_of(runs: &Runs<Figures>) -> String {
    let [client, both, all] = [CLIENT_CPU, BOTH_CPU, ALL_CPU].map(|figure| figure.median(runs));
    let ns = |value: f64| number::quantity(value, "ns");
    let mut text = format!("client {}", client.map_or("-".into(), ns));
    for (name, more, less) in [("server", both, client), ("kernel threads", all, both)] {
        let difference = more.zip(less).map(|(more, less)| more - less);
        if let Some(difference) = difference.filter(|value| *value >= 1.0) {
            text.push_str(&format!(", {name} {}", ns(difference)));
        }
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::error::Error;
    use crate::row::Row;

    /// Runs of a side with so many requests of 512 bytes in a second.
    pub fn runs(name: &str, requests: Result<u64, Error>) -> Runs<Figures> {
        let figures = |requests: u64| Figures {
            requests,
            bytes: requests * 512,
            rates: vec![requests as f64],
            seconds: 1.0,
            latency: Some([(1_000_000_000 / requests) as u32; 2]),
            client_seconds: 0.5,
            server_seconds: Some(0.25),
            kernel_seconds: 0.25,
        };
        Runs { name: name.into(), samples: requests.map(|requests| vec![figures(requests); 3]) }
    }

    #[test]
    fn figures_of_a_run() {
        let (ours, peer) = (runs("o", Ok(8_000_000)), runs("p", Ok(2_000_000)));
        assert_eq!(cpu_of(&peer), "client 250 ns, server 125 ns, kernel threads 125 ns");
        let row = |figure: Figure, goal| figure.metric().row(&Row::default(), &ours, &peer, Some(goal));
        let requests = row(REQUESTS, 3.0);
        assert_eq!((requests.ratio, requests.met, requests.runs), (Some(4.0), Some(true), 3));
        let latency = row(LATENCY, 5.0);
        assert_eq!((latency.ours, latency.peer_value, latency.met), (Some(125.0), Some(500.0), Some(false)));
        assert_eq!(row(BANDWIDTH, 1.0).ours, Some(8e6 * 512.0));
        assert!(Figures::default().latency(0).is_nan());
    }
}
