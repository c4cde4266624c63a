//! Result of a load: counts, rates and response times.

use std::collections::BTreeMap;

use crate::clock::Time;

/// Times of many responses, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times(Vec<Time>);

impl Times {
    /// Sorts times.
    pub(super) fn new(mut times: Vec<Time>) -> Times {
        times.sort_unstable();
        Times(times)
    }

    /// Returns the number of times.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the mean; zero if there are no times.
    pub fn mean(&self) -> Time {
        let sum: u128 = self.0.iter().map(|time| u128::from(time.picoseconds())).sum();
        Time::from_picoseconds((sum / self.0.len().max(1) as u128) as u64)
    }

    /// Returns the least time that at least a share of the times, between 0 and 1, does not exceed; zero if there are
    /// no times. The share 1 gives the greatest time.
    pub fn quantile(&self, share: f64) -> Time {
        let rank = (share.clamp(0.0, 1.0) * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.clamp(1, self.0.len().max(1)) - 1).copied().unwrap_or(Time::ZERO)
    }

    /// Returns the times, the least first.
    pub fn sorted(&self) -> &[Time] {
        &self.0
    }
}

/// Result of a load, of the part that was measured.
///
/// Counted are the responses that were completed in that part, and the bytes that were received in it. A response time
/// begins when the request arrives: when its client has thought, or when the open source sends it. It contains the wait
/// for a connection and the connection's establishment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Length of the measured part.
    pub duration: Time,
    /// Number of responses by their status; those without HTTP have 0.
    pub statuses: BTreeMap<u16, u64>,
    /// Number of bytes of bodies.
    pub bytes: u64,
    /// Times to the first byte of a response.
    pub first_byte: Times,
    /// Times to the last byte of a response.
    pub whole: Times,
    /// Number of connections that were established.
    pub connections: u64,
    /// Number of requests in flight at the end, with those that wait for a connection.
    pub in_flight: u64,
    /// Number of instructions that the program has retired.
    pub instructions: u64,
    /// Number of system calls of the program that have returned.
    pub calls: u64,
    /// Output of the program, standard output and standard error, from the beginning of the load on.
    pub output: String,
}

impl Report {
    /// Returns the number of responses.
    pub fn responses(&self) -> u64 {
        self.whole.count() as u64
    }

    /// Returns the throughput in responses per second; zero if no time has passed.
    pub fn responses_per_second(&self) -> f64 {
        per_second(self.responses(), self.duration)
    }

    /// Returns the throughput in bytes of bodies per second; zero if no time has passed.
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.bytes, self.duration)
    }
}

/// Divides a count by a time.
fn per_second(count: u64, time: Time) -> f64 {
    if time == Time::ZERO { 0.0 } else { count as f64 * 1e12 / time.picoseconds() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let times = Times::new([40, 10, 30, 20].map(Time::from_nanoseconds).to_vec());
        for (share, nanoseconds) in
            [(0.0, 10), (0.25, 10), (0.26, 20), (0.5, 20), (0.75, 30), (0.99, 40), (1.0, 40)]
        {
            assert_eq!(times.quantile(share), Time::from_nanoseconds(nanoseconds), "{share}");
        }
        assert_eq!((times.mean(), times.count()), (Time::from_nanoseconds(25), 4));
        let none = Times::default();
        assert_eq!((none.mean(), none.quantile(0.5)), (Time::ZERO, Time::ZERO));
    }

    #[test]
    fn rates_are_per_second() {
        let whole = Times::new(vec![Time::from_nanoseconds(1); 50]);
        let report =
            Report { duration: Time::from_nanoseconds(100_000_000), bytes: 7, whole, ..Report::default() };
        assert_eq!((report.responses_per_second(), report.bytes_per_second()), (500.0, 70.0));
        assert_eq!(Report::default().responses_per_second(), 0.0);
    }
}
