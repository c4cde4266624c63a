//! The nets that both sides simulate.

use bywash_sim::engine::{Net, Op, ServiceTime};
use serde::Serialize;

/// What a net looks like; all times are means in seconds, of exponential distributions.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Shape {
    /// Customers come, are served once, and go.
    Open {
        /// From one that comes to the next.
        interval: f64,
        /// Servers of the station.
        servers: u32,
        /// What it takes to serve one.
        service: f64,
    },
    /// So many customers think, go to every station, and think again.
    Closed {
        /// Customers.
        jobs: u32,
        /// From the last station to the first one.
        think: f64,
        /// Stations.
        stations: u32,
        /// Servers of each.
        servers: u32,
        /// What it takes to serve one.
        service: f64,
    },
}

impl Shape {
    /// As the engine has it. A request is from where a customer comes, or has thought, to the end of the last
    /// service.
    pub fn net(&self) -> Net {
        let mut net = Net::new();
        match *self {
            Shape::Open { interval, servers, service } => {
                let station = net.station("station", servers);
                let time = ServiceTime::exponential(service);
                let passer_by = net.script(vec![Op::BeginRequest, Op::Use { station, time }, Op::EndRequest]);
                let arrivals = net.script(vec![
                    Op::Delay(ServiceTime::exponential(interval)),
                    Op::Send { script: passer_by },
                    Op::Jump { to: 0 },
                ]);
                net.start(arrivals, 1);
            }
            Shape::Closed { jobs, think, stations, servers, service } => {
                let mut ops = Vec::new();
                if think > 0.0 {
                    ops.push(Op::Delay(ServiceTime::exponential(think)));
                }
                ops.push(Op::BeginRequest);
                for number in 0..stations {
                    let station = net.station(format!("station {number}"), servers);
                    ops.push(Op::Use { station, time: ServiceTime::exponential(service) });
                }
                ops.extend([Op::EndRequest, Op::Jump { to: 0 }]);
                let regular = net.script(ops);
                net.start(regular, jobs);
            }
        }
        net
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_sim::engine::Run;

    #[test]
    fn shapes_are_the_nets_that_theory_knows() {
        let open = Shape::Open { interval: 2.0, servers: 1, service: 1.0 };
        let outcome = Run::new(&open.net(), 1).until_finished(1000, 100_000);
        assert!((outcome.response.mean_interval().mean / 2.0 - 1.0).abs() < 0.05);
        // Balanced: X = N / (N + K - 1) / D.
        let closed = Shape::Closed { jobs: 5, think: 0.0, stations: 4, servers: 1, service: 1.0 };
        let outcome = Run::new(&closed.net(), 1).until_finished(1000, 100_000);
        assert!((outcome.rate() / (5.0 / 8.0) - 1.0).abs() < 0.02);
        // Servers that never rest.
        let crowd = Shape::Closed { jobs: 100, think: 2.0, stations: 1, servers: 4, service: 1.0 };
        let outcome = Run::new(&crowd.net(), 1).until_finished(1000, 100_000);
        assert!((outcome.rate() / 4.0 - 1.0).abs() < 0.02);
    }
}
