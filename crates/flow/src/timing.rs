//! Times of live streams: how late units are passed on, how evenly packets come, and what the report says of it.
//!
//! Invariant: the account of a stream has the same size however long the stream is. Written by the stage `live:` and the
//! ends `rtp:` and `alsa:`, read for the report.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Greatest time that is told apart from longer ones: an hour, in nanoseconds.
const TIME_NS_MAX: u64 = 3_600_000_000_000;
/// Significant digits of the times that are counted.
const DIGITS: u8 = 2;

/// Account of a live stream at one stage or end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LiveStream {
    /// Text of the stage or end.
    pub name: String,
    /// Units that were passed on: frames, blocks of samples, or groups of packets.
    pub units: u64,
    /// Units that were dropped, since they were too late.
    pub units_dropped: u64,
    /// Number of times that the clock was started anew after the stream had stalled.
    pub restarts: u64,
    /// Time from when a unit was due until it was passed on; `None` if there was no unit.
    pub lateness: Option<Percentiles>,
    /// Interarrival jitter as RFC 3550 defines it, in seconds: of the units passed on, or of the packets received.
    pub jitter_seconds: f64,
    /// Account of the packets that were sent by RTP; `None` elsewhere.
    pub transmission: Option<Transmission>,
    /// Account of the packets that were received by RTP; `None` elsewhere.
    pub reception: Option<Reception>,
    /// Account of the samples that a sound device played or recorded; `None` elsewhere.
    pub sound: Option<SoundStream>,
}

/// Time of the units that a stage has left out of a stream so far, for the end behind it that gives the stream its
/// timestamps. Stage and end work in turns on one thread, so the end sees it as it was when its unit was passed on.
#[derive(Debug, Default)]
pub(crate) struct Omitted(AtomicU64);

impl Omitted {
    pub(crate) fn add(&self, time_ns: u64) {
        self.0.fetch_add(time_ns, Relaxed);
    }

    pub(crate) fn time_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Percentiles of a time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Percentiles {
    /// Time that half of the values do not exceed.
    pub p50: f64,
    /// Time that 90 % of the values do not exceed.
    pub p90: f64,
    /// Time that 99 % of the values do not exceed.
    pub p99: f64,
    /// Time that 99.9 % of the values do not exceed.
    pub p99_9: f64,
    /// Greatest value.
    pub max: f64,
}

/// Packets that an end sent by RTP.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Transmission {
    /// Packets sent.
    pub packets: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Packets that the kernel could not deliver, since nobody listens at the address.
    pub refused: u64,
}

/// Packets that an end received by RTP.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Reception {
    /// Packets of the stream.
    pub packets: u64,
    /// Packets that never came, or came too late.
    pub packets_lost: u64,
    /// Packets that came after a later one, and still in time.
    pub packets_reordered: u64,
    /// Packets that came twice.
    pub packets_duplicated: u64,
    /// Packets that came after their unit had been played.
    pub packets_late: u64,
    /// Packets that were no RTP, of another payload type or of another sender.
    pub packets_foreign: u64,
    /// Units that were made up from earlier ones, in whole or in part, since packets were missing.
    pub units_concealed: u64,
    /// Senders that took over from the first one, and jumps in the timestamps of one.
    pub sender_restarts: u64,
    /// Rate of the sender's clock against the receiver's, in millionths: positive if the sender's is faster.
    pub drift_ppm: f64,
    /// Time from when a unit was sampled, as the sender's clock of the day tells (RTCP), until it was played. It is true
    /// as far as the two hosts' clocks agree; `None` if no sender report came.
    pub latency: Option<Percentiles>,
    /// True if the sender said goodbye (RTCP BYE).
    pub is_complete: bool,
}

/// Samples that a sound device played or recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SoundStream {
    /// Format of a sample of one channel, such as `s16`; empty if no device was opened.
    pub format: String,
    /// Number of channels.
    pub channels: u16,
    /// Samples a second of each channel.
    pub rate: u32,
    /// Samples of each channel that were handed over.
    pub samples: u64,
    /// Number of times that the device had nothing to play.
    pub underruns: u64,
    /// Number of times that the device had no room for what it recorded, which was lost.
    pub overruns: u64,
    /// Time from when a sample was handed to the device until it is heard, or from when it was recorded until it was taken, as
    /// far as the device knows; `None` if it does not.
    pub latency: Option<Percentiles>,
}

/// Distribution of times, in constant memory.
#[derive(Clone, Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Times {
    pub(crate) fn new() -> Times {
        // The bounds are constants for which a histogram exists, as every test that makes one shows.
        Times(Histogram::new_with_bounds(1, TIME_NS_MAX, DIGITS).expect("valid bounds of a histogram"))
    }

    /// Counts a time; one of more than an hour counts as an hour.
    pub(crate) fn note(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns the percentiles; `None` if no time was counted.
    pub(crate) fn percentiles(&self) -> Option<Percentiles> {
        let times = &self.0;
        let max = times.max();
        // The value of a percentile is the upper edge of its bucket, which may exceed the greatest value.
        let seconds = |percent| times.value_at_percentile(percent).min(max) as f64 / 1e9;
        (!times.is_empty()).then(|| Percentiles {
            p50: seconds(50.0),
            p90: seconds(90.0),
            p99: seconds(99.0),
            p99_9: seconds(99.9),
            max: max as f64 / 1e9,
        })
    }
}

/// Interarrival jitter of RFC 3550, section 6.4.1: the mean deviation of the transit time from that of the packet
/// before, smoothed by 1/16.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Jitter {
    transit_ns: Option<i64>,
    mean_ns: f64,
}

impl Jitter {
    /// Notes the transit time of a packet: from its time in the stream until its arrival, in nanoseconds from any start.
    pub(crate) fn note(&mut self, transit_ns: i64) {
        if let Some(before) = self.transit_ns.replace(transit_ns) {
            let difference = transit_ns.saturating_sub(before).unsigned_abs() as f64;
            self.mean_ns += (difference - self.mean_ns) / 16.0;
        }
    }

    /// Forgets the last transit time, since the stream's times begin anew.
    pub(crate) fn restart(&mut self) {
        self.transit_ns = None;
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.mean_ns / 1e9
    }
}

/// Counters of units that are passed on in time.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    units: u64,
    dropped: u64,
    lateness: Times,
    jitter: Jitter,
}

impl Meter {
    pub(crate) fn new() -> Meter {
        Meter { units: 0, dropped: 0, lateness: Times::new(), jitter: Jitter::default() }
    }

    /// Notes a unit that was passed on, so long after it was due.
    pub(crate) fn passed(&mut self, lateness: Duration) {
        self.units += 1;
        self.lateness.note(lateness);
        self.jitter.note(i64::try_from(lateness.as_nanos()).unwrap_or(i64::MAX));
    }

    /// Notes a unit that was dropped.
    pub(crate) fn dropped(&mut self) {
        self.dropped += 1;
    }

    /// Returns the account of the stream at the stage or end `name`.
    pub(crate) fn account(&self, name: &str, restarts: u64) -> LiveStream {
        LiveStream {
            name: name.to_owned(),
            units: self.units,
            units_dropped: self.dropped,
            restarts,
            lateness: self.lateness.percentiles(),
            jitter_seconds: self.jitter.seconds(),
            transmission: None,
            reception: None,
            sound: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_times() {
        let mut times = Times::new();
        assert_eq!(times.percentiles(), None);
        for micros in 1..=1000 {
            times.note(Duration::from_micros(micros));
        }
        times.note(Duration::from_secs(100_000));
        let told = times.percentiles().unwrap();
        for (value, expected) in
            [(told.p50, 501e-6), (told.p90, 901e-6), (told.p99, 991e-6), (told.p99_9, 1e-3)]
        {
            assert!((value / expected - 1.0).abs() < 0.01, "{value} {expected}");
        }
        assert!((told.max / 3600.0 - 1.0).abs() < 0.02, "{}", told.max);
    }

    #[test]
    fn jitter_is_that_of_the_standard() {
        let mut jitter = Jitter::default();
        jitter.note(5_000_000_000);
        assert_eq!(jitter.seconds(), 0.0);
        jitter.note(5_000_016_000);
        assert!((jitter.seconds() - 1e-6).abs() < 1e-12, "{}", jitter.seconds());
        // Transit times that alternate by 1 ms have a jitter of 1 ms in the end.
        for number in 0..1000 {
            jitter.note(number % 2 * 1_000_000);
        }
        assert!((jitter.seconds() - 1e-3).abs() < 1e-6, "{}", jitter.seconds());
    }
}
