//! The clock of frames: the time at which each is due, and which are dropped when they come too late.
//!
//! The first frame starts the clock. A frame that comes more than a period after it was due is dropped, so that the
//! ones behind it are in time again; but at most [`DROPPED_MAX`] in a row, so that something is seen of a stream that
//! is too slow for ever. A stream that is [`RESTART`] behind has stalled, and the clock starts anew.

use super::format::Rate;
use std::time::{Duration, Instant};

/// Greatest number of frames that are dropped one after the other.
const DROPPED_MAX: u32 = 3;
/// Lateness at which the clock is started anew.
const RESTART: Duration = Duration::from_secs(1);

/// The clock of a stream of frames.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Frames a second; `None` for as many as the display takes.
    rate: Option<Rate>,
    /// Time of the frame number `base`.
    start: Option<Instant>,
    base: u64,
    /// Number of the next frame.
    next: u64,
    dropped_in_row: u32,
}

/// Decision about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The frame is shown as soon as the display takes it.
    Now,
    /// The frame is shown at the first time, and is late from the second one on; if the display has not taken it by
    /// the third one, it is dropped.
    At(Instant, Instant, Instant),
    /// The frame is dropped.
    Drop,
}

impl Clock {
    pub(crate) fn new(rate: Option<Rate>) -> Clock {
        Clock { rate, start: None, base: 0, next: 0, dropped_in_row: 0 }
    }

    /// Decides about the next frame, which is there at `now`.
    pub(crate) fn turn(&mut self, now: Instant) -> Turn {
        let Some(rate) = self.rate else { return Turn::Now };
        let number = self.next;
        self.next += 1;
        let start = *self.start.get_or_insert(now);
        let due = |number: u64| start + Duration::from_nanos(rate.time_ns(number - self.base));
        let (begin, end) = (due(number), due(number + 1));
        if now.saturating_duration_since(begin) >= RESTART {
            (self.start, self.base) = (Some(now), number);
            let period = Duration::from_nanos(rate.time_ns(1));
            // It is late by all means.
            return Turn::At(now, now, now + period.max(RESTART));
        }
        if now >= end && self.dropped_in_row < DROPPED_MAX {
            return Turn::Drop;
        }
        Turn::At(begin, begin + (end - begin) / 2, end.max(now + (end - begin)))
    }

    /// Notes what became of the frame.
    pub(crate) fn note(&mut self, is_shown: bool) {
        self.dropped_in_row = if is_shown { 0 } else { self.dropped_in_row + 1 };
    }

    /// Returns the time until which the last frame is shown.
    pub(crate) fn end(&self) -> Option<Instant> {
        let (rate, start) = (self.rate?, self.start?);
        Some(start + Duration::from_nanos(rate.time_ns(self.next - self.base)))
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
}
