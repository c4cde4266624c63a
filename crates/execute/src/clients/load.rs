//! Load that clients put on a program.

use super::request::Mix;
use crate::clock::Time;

/// Arrivals of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arrivals {
    /// Clients that each wait for a response before their next request.
    Closed {
        /// Number of clients.
        clients: usize,
        /// Mean of the time from a response to the next request; it is distributed exponentially.
        think: Time,
    },
    /// Requests that arrive independently of the responses.
    Open {
        /// Mean number of requests per second.
        rate: f64,
        /// Mean number of requests that arrive at the same moment.
        burst: f64,
        /// Greatest number of connections; requests that find none free wait for one.
        connections: usize,
    },
}

/// Length of a part of a load: number of responses, or simulated time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Number of responses.
    Responses(u64),
    /// Time.
    Time(Time),
}

/// Load: requests to a port of the program, their arrivals, and how long they are measured.
///
/// A closed load has a number of clients that each send their next request when the response to the one before has
/// come, after a think time of exponential distribution. The arrivals of an open load are a batch Poisson process:
/// bursts begin at the times of a Poisson process, and the number of requests of a burst has a geometric distribution
/// on 1, 2, ...; a mean of 1 makes the arrivals Poisson.
///
/// ```
/// use bywash_execute::Time;
/// use bywash_execute::clients::{Body, Load, Mix, Request, Span};
///
/// let page = Request::get("/index.html").body(Body::Length(16384));
/// let load = Load::closed(8080, 64, Mix::uniform([page]))
///     .think(Time::from_nanoseconds(1_000_000))
///     .warm_up(Span::Responses(500))
///     .measure(Span::Time(Time::from_nanoseconds(2_000_000_000)))
///     .seed(7);
/// # drop(load);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Port of the program.
    pub(super) port: u16,
    /// Requests.
    pub(super) mix: Mix,
    /// Arrivals.
    pub(super) arrivals: Arrivals,
    /// True if a connection carries one request after the other, false if each has one of its own.
    pub(super) keeps_connections: bool,
    /// Part of the load before the measurement.
    pub(super) warm_up: Span,
    /// Part of the load that is measured.
    pub(super) measured: Span,
    /// Greatest time for which requests are in flight and nothing is received.
    pub(super) timeout: Time,
    /// Seed of all that is random.
    pub(super) seed: u64,
}

/// Number of measured responses without [`Load::measure`].
pub const MEASURED_RESPONSES: u64 = 1000;
/// Timeout without [`Load::timeout`]: a minute of simulated time.
pub const TIMEOUT: Time = Time::from_nanoseconds(60_000_000_000);
/// Greatest timeout: an hour of simulated time.
pub const TIMEOUT_MAX: Time = Time::from_nanoseconds(3_600_000_000_000);
/// Greatest number of connections of an open load without [`Load::connections`].
pub const OPEN_CONNECTIONS: usize = 1024;

impl Load {
    /// Makes the load of a number of clients without think time.
    pub fn closed(port: u16, clients: usize, mix: Mix) -> Load {
        Load::new(port, mix, Arrivals::Closed { clients, think: Time::ZERO })
    }

    /// Makes the load of requests that arrive at a rate, in requests per second.
    pub fn open(port: u16, rate: f64, mix: Mix) -> Load {
        Load::new(port, mix, Arrivals::Open { rate, burst: 1.0, connections: OPEN_CONNECTIONS })
    }

    /// Makes a load.
    fn new(port: u16, mix: Mix, arrivals: Arrivals) -> Load {
        Load {
            port,
            mix,
            arrivals,
            keeps_connections: true,
            warm_up: Span::Responses(0),
            measured: Span::Responses(MEASURED_RESPONSES),
            timeout: TIMEOUT,
            seed: 0,
        }
    }

    /// Sets the mean think time of a closed load.
    pub fn think(mut self, mean: Time) -> Load {
        if let Arrivals::Closed { think, .. } = &mut self.arrivals {
            *think = mean;
        }
        self
    }

    /// Sets the mean number of requests that arrive at the same moment in an open load, at least 1.
    pub fn burst(mut self, mean: f64) -> Load {
        if let Arrivals::Open { burst, .. } = &mut self.arrivals {
            *burst = mean;
        }
        self
    }

    /// Sets the greatest number of connections of an open load. Requests that find none free wait, and the wait is part
    /// of their response time.
    pub fn connections(mut self, limit: usize) -> Load {
        if let Arrivals::Open { connections, .. } = &mut self.arrivals {
            *connections = limit;
        }
        self
    }

    /// Gives each request a connection of its own, whose establishment is part of the response time. Otherwise
    /// connections are kept for the next request, unless the program ends them.
    pub fn connection_per_request(mut self) -> Load {
        self.keeps_connections = false;
        self
    }

    /// Sets the part of the load before the measurement.
    pub fn warm_up(mut self, span: Span) -> Load {
        self.warm_up = span;
        self
    }

    /// Sets the part of the load that is measured.
    pub fn measure(mut self, span: Span) -> Load {
        self.measured = span;
        self
    }

    /// Sets the greatest simulated time for which requests are in flight and nothing is received, and for which the
    /// clients wait until the program listens; at most [`TIMEOUT_MAX`].
    pub fn timeout(mut self, time: Time) -> Load {
        self.timeout = time;
        self
    }

    /// Sets the seed of all that is random.
    pub fn seed(mut self, seed: u64) -> Load {
        self.seed = seed;
        self
    }

    /// Returns the reason for which the load is impossible; `None` if it is possible.
    pub(super) fn fault(&self) -> Option<&'static str> {
        match self.arrivals {
            Arrivals::Closed { clients: 0, .. } => return Some("it has no clients; give it at least one"),
            Arrivals::Open { connections: 0, .. } => {
                return Some("it has no connections; allow at least one");
            }
            Arrivals::Open { rate, .. } if !(rate > 0.0 && rate.is_finite()) => {
                return Some("its rate is not a positive number; raise it");
            }
            Arrivals::Open { burst, .. } if !(burst >= 1.0 && burst.is_finite()) => {
                return Some("its mean burst is less than 1; raise it");
            }
            _ => {}
        }
        if self.timeout > TIMEOUT_MAX {
            return Some("its timeout is longer than an hour; shorten it");
        }
        match self.measured {
            Span::Responses(0) | Span::Time(Time::ZERO) => Some("nothing of it is measured; measure a part"),
            _ => self.mix.fault(),
        }
    }
}
