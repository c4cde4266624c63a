//! The clock of a stream: the time at which each frame or other unit is due, and which are dropped when they come too
//! late.
//!
//! The first unit starts the clock. A unit that comes later than the clock tolerates is dropped, so that the ones behind
//! it are in time again. A stream that is far behind has stalled, and the clock starts anew. A display's clock drops at
//! most [`DROPPED_MAX`] units in a row, so that something is seen of a stream that is too slow for ever.

use super::format::Rate;
use std::time::{Duration, Instant};

/// Greatest number of frames that a display's clock drops one after the other.
const DROPPED_MAX: u32 = 3;
/// Shortest lateness at which a clock is started anew.
const RESTART: Duration = Duration::from_secs(1);

/// Lateness from which units are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// A unit is dropped if the next one is due.
    Unit,
    /// A unit is dropped if it is later than this.
    Time(Duration),
    /// No unit is dropped, and the clock is never started anew.
    Never,
}

/// The clock of a stream of units.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Frames a second; `None` for as many as the display takes.
    rate: Option<Rate>,
    tolerance: Tolerance,
    dropped_max: u32,
    /// Time of the unit that started the clock, and that unit's time in the stream, in nanoseconds.
    start: Option<(Instant, u64)>,
    /// Number of the next frame.
    next: u64,
    /// Time in the stream at which the last unit ends, in nanoseconds.
    end_ns: u64,
    dropped_in_row: u32,
    restarts: u64,
}

/// Decision about a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The frame is shown as soon as the display takes it.
    Now,
    /// The unit is shown at the first time, and is late from the second one on; if the display has not taken it by
    /// the third one, it is dropped.
    At(Instant, Instant, Instant),
    /// The unit is dropped.
    Drop,
}

impl Clock {
    /// Makes the clock of a display of frames.
    pub(crate) fn new(rate: Option<Rate>) -> Clock {
        Clock { rate, dropped_max: DROPPED_MAX, ..Clock::tolerating(Tolerance::Unit) }
    }

    /// Makes a clock of units whose times are given to [`Clock::turn_between`].
    pub(crate) fn tolerating(tolerance: Tolerance) -> Clock {
        let (rate, start, dropped_max) = (None, None, u32::MAX);
        Clock { rate, tolerance, dropped_max, start, next: 0, end_ns: 0, dropped_in_row: 0, restarts: 0 }
    }

    /// Decides about the next frame, which is there at `now`.
    pub(crate) fn turn(&mut self, now: Instant) -> Turn {
        let Some(rate) = self.rate else { return Turn::Now };
        let number = self.next;
        self.next += 1;
        self.turn_between(rate.time_ns(number), rate.time_ns(number + 1), now)
    }

    /// Decides about the unit from `begin_ns` to `end_ns` in the stream, which is there at `now`.
    pub(crate) fn turn_between(&mut self, begin_ns: u64, end_ns: u64, now: Instant) -> Turn {
        let (start, base) = *self.start.get_or_insert((now, begin_ns));
        self.end_ns = end_ns;
        let period = Duration::from_nanos(end_ns.saturating_sub(begin_ns));
        let begin = start + Duration::from_nanos(begin_ns.saturating_sub(base));
        let limit = match self.tolerance {
            Tolerance::Unit => period,
            Tolerance::Time(limit) => limit,
            Tolerance::Never => Duration::MAX,
        };
        let lateness = now.saturating_duration_since(begin);
        if self.tolerance != Tolerance::Never && lateness >= RESTART.max(limit.saturating_mul(2)) {
            self.start = Some((now, begin_ns));
            self.restarts += 1;
            // It is late by all means.
            return Turn::At(now, now, now + period.max(RESTART));
        }
        if lateness >= limit && !lateness.is_zero() && self.dropped_in_row < self.dropped_max {
            return Turn::Drop;
        }
        let end = begin + period;
        Turn::At(begin, begin + period / 2, end.max(now + period))
    }

    /// Notes what became of the unit.
    pub(crate) fn note(&mut self, is_shown: bool) {
        self.dropped_in_row = if is_shown { 0 } else { self.dropped_in_row + 1 };
    }

    /// Returns the time until which the last unit is shown.
    pub(crate) fn end(&self) -> Option<Instant> {
        let (start, base) = self.start?;
        Some(start + Duration::from_nanos(self.end_ns.saturating_sub(base)))
    }

    /// Returns how often the clock was started anew.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Option<Rate> = Some(Rate { frames: 10, seconds: 1 });

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn frames_are_due_one_after_the_other() {
        let begin = Instant::now();
        let mut clock = Clock::new(TEN);
        for number in 0..3 {
            let at = begin + ms(100 * number);
            assert_eq!(clock.turn(begin), Turn::At(at, at + ms(50), at + ms(100)));
            clock.note(true);
        }
        assert_eq!(clock.end(), Some(begin + ms(300)));
        assert_eq!(Clock::new(None).turn(begin), Turn::Now);
        assert_eq!(Clock::new(None).end(), None);
    }

    #[test]
    fn what_is_too_late_is_dropped_but_not_for_ever() {
        let begin = Instant::now();
        let mut clock = Clock::new(TEN);
        clock.turn(begin);
        clock.note(true);
        // All of them are there 650 ms after the beginning: those of 100 to 300 are dropped, that of 400 is shown.
        let now = begin + ms(650);
        for _ in 0..3 {
            assert_eq!(clock.turn(now), Turn::Drop);
            clock.note(false);
        }
        assert_eq!(clock.turn(now), Turn::At(begin + ms(400), begin + ms(450), now + ms(100)));
        clock.note(true);
        assert_eq!(clock.turn(now), Turn::Drop);
        clock.note(false);
        // That of 600 is in time.
        assert_eq!(clock.turn(now), Turn::At(begin + ms(600), begin + ms(650), now + ms(100)));
    }

    #[test]
    fn a_stream_that_stalled_starts_anew() {
        let begin = Instant::now();
        let mut clock = Clock::new(TEN);
        clock.turn(begin);
        let now = begin + ms(5000);
        assert_eq!(clock.turn(now), Turn::At(now, now, now + RESTART));
        let next = now + ms(100);
        assert_eq!(clock.turn(now), Turn::At(next, next + ms(50), next + ms(100)));
    }

    #[test]
    fn a_tolerance_decides_what_is_dropped() {
        let begin = Instant::now();
        let turn = |tolerance, late_ms: u64| {
            let mut clock = Clock::tolerating(tolerance);
            clock.turn_between(0, 10_000_000, begin);
            (clock.turn_between(10_000_000, 20_000_000, begin + ms(10 + late_ms)), clock.restarts())
        };
        let due = begin + ms(10);
        let at = |late_ms: u64| Turn::At(due, due + ms(5), due + ms(10 + late_ms));
        assert_eq!(turn(Tolerance::Unit, 9), (at(9), 0));
        assert_eq!(turn(Tolerance::Unit, 10), (Turn::Drop, 0));
        assert_eq!(turn(Tolerance::Time(ms(30)), 29), (at(29), 0));
        assert_eq!(turn(Tolerance::Time(ms(30)), 30), (Turn::Drop, 0));
        assert_eq!(turn(Tolerance::Time(ms(3000)), 2000), (at(2000), 0));
        assert_eq!(turn(Tolerance::Time(ms(3000)), 3000), (Turn::Drop, 0));
        let now = due + ms(6000);
        assert_eq!(turn(Tolerance::Time(ms(3000)), 6000), (Turn::At(now, now, now + RESTART), 1));
        assert_eq!(turn(Tolerance::Never, 60_000), (at(60_000), 0));
    }

    #[test]
    fn a_clock_of_units_drops_as_many_in_a_row_as_are_late() {
        let begin = Instant::now();
        let mut clock = Clock::tolerating(Tolerance::Unit);
        let unit = |number: u64| (number * 100_000_000, (number + 1) * 100_000_000);
        clock.turn_between(unit(0).0, unit(0).1, begin);
        let now = begin + ms(850);
        let dropped = (1..9).filter(|number| {
            let dropped = clock.turn_between(unit(*number).0, unit(*number).1, now) == Turn::Drop;
            clock.note(!dropped);
            dropped
        });
        assert_eq!(dropped.count(), 7);
    }
}
