//! Drift of a sender's clock against the clock of this host.
//!
//! A packet's transit time is the time of its arrival less its time in the stream. It consists of the path's shortest
//! time, of the time in queues, and of what the sender's clock has gained or lost. Queues only ever add, so the least
//! transit time of each [`WINDOW_NS`] is close to the shortest one, and a line through those of [`WINDOWS_MAX`] windows
//! has the drift as its slope (as for the clock skews of Moon, Skelly and Towsley, INFOCOM 1999). If the path changes for
//! good, the windows before are forgotten.

use std::collections::VecDeque;

/// Time of a window, in nanoseconds of the stream.
const WINDOW_NS: i64 = 500_000_000;
/// Greatest number of windows that are kept: two minutes.
const WINDOWS_MAX: usize = 240;
/// Least number of windows for a slope: five seconds.
const WINDOWS_MIN: usize = 10;
/// Greatest drift that is believed; clocks of hosts are within a tenth of it.
const SLOPE_MAX: f64 = 2e-3;
/// Difference from the line that shows, in [`SHIFTED_WINDOWS`] windows in a row, that the path has changed.
const SHIFT_NS: f64 = 20e6;
const SHIFTED_WINDOWS: usize = 4;

/// Estimate of the least transit time and of its change.
#[derive(Debug, Default)]
pub(crate) struct Drift {
    /// Time in the stream and transit time of the fastest packet of each window, oldest first, in nanoseconds.
    windows: VecDeque<(i64, i64)>,
    /// Begin of the window that is filled, and its fastest packet so far.
    current: Option<(i64, (i64, i64))>,
    line: Option<Line>,
    /// Windows in a row that were far from the line, on the same side.
    shifted: usize,
    is_shifted_up: bool,
}

/// A line through the windows, relative to their mean, so that large numbers lose no digits.
#[derive(Clone, Copy, Debug)]
struct Line {
    media_ns: i64,
    transit_ns: f64,
    slope: f64,
}

impl Line {
    fn at(&self, media_ns: i64) -> f64 {
        self.transit_ns + self.slope * (media_ns - self.media_ns) as f64
    }
}

impl Drift {
    /// Notes a packet by its time in the stream and its transit time, in nanoseconds from any start.
    pub(crate) fn note(&mut self, media_ns: i64, transit_ns: i64) {
        let packet = (media_ns, transit_ns);
        match &mut self.current {
            Some((begin, fastest)) if (*begin..*begin + WINDOW_NS).contains(&media_ns) => {
                if transit_ns < fastest.1 {
                    *fastest = packet;
                }
            }
            // It came behind packets of the next window, which is filled already.
            Some((begin, _)) if media_ns < *begin => {}
            current => {
                if let Some((_, fastest)) = current.replace((media_ns, packet)) {
                    self.close(fastest);
                }
            }
        }
    }

    /// Returns the transit time of a packet that no queue held up, in nanoseconds; `None` before the first packet.
    pub(crate) fn floor_ns(&self, media_ns: i64) -> Option<i64> {
        let fastest = self.current?.1;
        let floor = match &self.line {
            Some(line) => line.at(media_ns) as i64,
            None => self.windows.iter().map(|window| window.1).min().unwrap_or(fastest.1),
        };
        // A packet that was faster than the line says was not held up.
        Some(floor.min(fastest.1))
    }

    /// Returns the drift in millionths, positive if the sender's clock is the faster one; 0 until enough came.
    pub(crate) fn ppm(&self) -> f64 {
        self.line.map_or(0.0, |line| -line.slope * 1e6)
    }

    /// Notes the fastest packet of a window that is over.
    fn close(&mut self, fastest: (i64, i64)) {
        let expected = match &self.line {
            Some(line) => Some(line.at(fastest.0)),
            None => self.windows.iter().map(|window| window.1 as f64).reduce(f64::min),
        };
        if let Some(expected) = expected {
            let difference = fastest.1 as f64 - expected;
            let is_up = difference > 0.0;
            let is_far = difference.abs() > SHIFT_NS;
            self.shifted = match (is_far, self.shifted > 0 && is_up == self.is_shifted_up) {
                (false, _) => 0,
                (true, false) => 1,
                (true, true) => self.shifted + 1,
            };
            self.is_shifted_up = is_up;
        }
        self.windows.push_back(fastest);
        if self.windows.len() > WINDOWS_MAX {
            self.windows.pop_front();
        }
        if self.shifted >= SHIFTED_WINDOWS {
            self.windows.drain(..self.windows.len() - SHIFTED_WINDOWS);
            self.shifted = 0;
        }
        self.line = self.fitted();
    }

    /// Returns the line of least squares through the windows; `None` if they are too few.
    fn fitted(&self) -> Option<Line> {
        let count = self.windows.len();
        if count < WINDOWS_MIN {
            return None;
        }
        let mean = |value: fn(&(i64, i64)) -> i64| {
            let first = value(&self.windows[0]);
            let sum: f64 = self.windows.iter().map(|window| (value(window) - first) as f64).sum();
            (first, sum / count as f64)
        };
        let (media, transit) = (mean(|window| window.0), mean(|window| window.1));
        let media_ns = media.0 + media.1 as i64;
        let transit_ns = transit.0 as f64 + transit.1;
        let (mut squares, mut products) = (0.0, 0.0);
        for window in &self.windows {
            let across = (window.0 - media_ns) as f64;
            squares += across * across;
            products += across * (window.1 as f64 - transit_ns);
        }
        let slope = if squares > 0.0 { (products / squares).clamp(-SLOPE_MAX, SLOPE_MAX) } else { 0.0 };
        Some(Line { media_ns, transit_ns, slope })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// Feeds packets of 20 ms whose sender's clock is faster by so many millionths; `queue` is the time in queues.
    fn fed(drift: &mut Drift, packets: std::ops::Range<i64>, ppm: f64, mut queue: impl FnMut(i64) -> i64) {
        for number in packets {
            let media = number * 20 * MS;
            let sent = (media as f64 / (1.0 + ppm * 1e-6)) as i64;
            drift.note(media, sent + 5_000 * MS + queue(number) - media);
        }
    }

    /// Queues of up to 30 ms, mostly short ones, without a pattern.
    fn queue(number: i64) -> i64 {
        let mixed = (number as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(31)
            .wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let share = (mixed >> 40) as f64 / (1u64 << 24) as f64;
        (share * share * 30e6) as i64
    }

    #[test]
    fn drift_is_found_below_the_noise_of_queues() {
        for ppm in [-500.0, -40.0, 0.0, 7.0, 500.0] {
            let mut drift = Drift::default();
            assert_eq!(drift.floor_ns(0), None);
            fed(&mut drift, 0..200, ppm, queue);
            assert_eq!(drift.ppm(), 0.0, "4 s are too few");
            fed(&mut drift, 200..6000, ppm, queue);
            assert!((drift.ppm() - ppm).abs() < 10.0, "{ppm}: {}", drift.ppm());
            let media = 6000 * 20 * MS;
            let floor = (media as f64 / (1.0 + ppm * 1e-6)) as i64 + 5_000 * MS - media;
            let error = drift.floor_ns(media).unwrap() - floor;
            assert!(error.abs() < 2 * MS, "{ppm}: {error}");
        }
    }

    #[test]
    fn a_drift_of_many_hours_is_as_exact_and_takes_no_more_memory() {
        let mut drift = Drift::default();
        fed(&mut drift, 0..50 * 3600 * 6, 300.0, queue);
        assert!((drift.ppm() - 300.0).abs() < 10.0, "{}", drift.ppm());
        assert_eq!(drift.windows.len(), WINDOWS_MAX);
    }

    #[test]
    fn a_path_that_becomes_longer_or_shorter_is_no_drift() {
        for step in [80 * MS, -80 * MS] {
            let mut drift = Drift::default();
            fed(&mut drift, 0..3000, 50.0, queue);
            let before = drift.floor_ns(3000 * 20 * MS).unwrap();
            fed(&mut drift, 3000..3200, 50.0, |number| queue(number) + step);
            let after = drift.floor_ns(3200 * 20 * MS).unwrap();
            assert!((after - before - step).abs() < 5 * MS, "{step}: {}", after - before);
            fed(&mut drift, 3200..6200, 50.0, |number| queue(number) + step);
            assert!((drift.ppm() - 50.0).abs() < 10.0, "{step}: {}", drift.ppm());
        }
    }

    #[test]
    fn packets_out_of_order_and_silence_do_not_matter() {
        let mut drift = Drift::default();
        fed(&mut drift, 0..2000, 100.0, queue);
        drift.note(0, -70_000 * MS);
        fed(&mut drift, 3000..6000, 100.0, queue);
        assert!((drift.ppm() - 100.0).abs() < 10.0, "{}", drift.ppm());
    }
}
