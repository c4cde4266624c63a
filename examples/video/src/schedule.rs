//! Pacing: the time at which each chunk of a stream is sent, and the deadline of each.
//!
//! A stream is sent in chunks of equal length, of which the first and the last may be shorter. The play-out clock of its
//! client begins with the stream. So chunk *i* is needed when all bytes before it have been played, at `play(i)`:
//!
//! ```text
//!   chunk       0 1        2        3        4
//!   sent        | |    |        |        |            phase behind the beginning, then one in each period
//!   deadline    '      |   '    |   '    |   '        play(i)
//!               0      phase    phase + period
//! ```
//!
//! Two chunks are sent at once, so that each later one is sent at least about one period before its deadline. The phase
//! spreads the streams over their periods (`spread`). All times are since the beginning of the stream, and are
//! computed from the number of bytes before a chunk, so that no error adds up.

use std::time::Duration;

/// Times of the chunks of one stream, since its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Rate at which the file is played, in bytes per second; not 0.
    rate: u64,
    first_bytes: u64,
    chunk_bytes: u64,
    /// Time at which the third chunk is sent.
    phase: Duration,
    /// Time for which the client took nothing, all in all: its clock stood still.
    paused: Duration,
}

impl Schedule {
    /// Returns the schedule of a stream of `rate` bytes per second in chunks of `chunk_bytes`, of which the first has
    /// `first_bytes`. The third chunk is sent at `phase`, at most one period behind the beginning.
    pub fn new(rate: u64, first_bytes: u64, chunk_bytes: u64, phase: Duration) -> Schedule {
        Schedule { rate: rate.max(1), first_bytes, chunk_bytes, phase, paused: Duration::ZERO }
    }

    /// Returns the time between two chunks.
    pub fn period(rate: u64, chunk_bytes: u64) -> Duration {
        time_of(chunk_bytes, rate.max(1))
    }

    /// Returns the time at which a chunk is sent.
    pub fn release(&self, chunk: u64) -> Duration {
        match chunk {
            0 | 1 => Duration::ZERO,
            _ => self.play(chunk) + self.phase - self.play(PREFILL) + self.paused,
        }
    }

    /// Returns the time at which a client that began to play at the beginning needs a chunk. The first chunk has a period.
    pub fn deadline(&self, chunk: u64) -> Duration {
        self.play(chunk.max(1)) + self.paused
    }

    /// Moves all that follows: the client has taken nothing for a time.
    pub fn pause(&mut self, time: Duration) {
        self.paused += time;
    }

    /// Returns the time at which all bytes before a chunk have been played.
    fn play(&self, chunk: u64) -> Duration {
        let before = chunk.checked_sub(1).map_or(0, |full| self.first_bytes + full * self.chunk_bytes);
        time_of(before, self.rate)
    }
}

fn time_of(bytes: u64, rate: u64) -> Duration {
    let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// Number of chunks that are sent at once.
pub const PREFILL: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn chunks_are_sent_once_a_period() {
        let schedule = Schedule::new(1_000_000, 500_000, 500_000, SECOND / 10);
        let times: Vec<_> = (0..5).map(|chunk| schedule.release(chunk).as_millis()).collect();
        assert_eq!(times, [0, 0, 100, 600, 1100]);
        let times: Vec<_> = (0..5).map(|chunk| schedule.deadline(chunk).as_millis()).collect();
        assert_eq!(times, [500, 500, 1000, 1500, 2000]);
    }

    #[test]
    fn a_chunk_is_sent_nearly_a_period_before_its_deadline() {
        let (rate, chunk) = (1_000_003, 262_144);
        let period = Schedule::period(rate, chunk);
        for first in [chunk, chunk - 4095] {
            let schedule = Schedule::new(rate, first, chunk, period);
            for index in 1..1000 {
                let slack = schedule.deadline(index) - schedule.release(index);
                assert!(slack >= period.mul_f64(0.98), "chunk {index}: {slack:?} of {period:?}");
            }
        }
    }

    #[test]
    fn no_error_adds_up() {
        // A day and more at a rate that divides nothing.
        let schedule = Schedule::new(999_983, 524_288, 524_288, SECOND / 3);
        let chunks = 200_000;
        let exact = 524_288.0 * (chunks - 2) as f64 / 999_983.0 + 1.0 / 3.0;
        assert!((schedule.release(chunks).as_secs_f64() - exact).abs() < 1e-6);
    }

    #[test]
    fn a_pause_moves_all_that_follows() {
        let mut schedule = Schedule::new(1_000_000, 500_000, 500_000, SECOND / 10);
        let (release, deadline) = (schedule.release(7), schedule.deadline(7));
        schedule.pause(3 * SECOND);
        assert_eq!(
            (schedule.release(7), schedule.deadline(7)),
            (release + 3 * SECOND, deadline + 3 * SECOND)
        );
    }
}
