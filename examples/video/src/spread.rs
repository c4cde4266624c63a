//! Phases of streams, so that the disk has an even load: streams of the same period are spread over it.
//!
//! A period is divided into slots. Streams of one slot are sent and read together, so that the disk is told once. A new stream gets, of the slots that begin within the next period, the one with the
//! fewest streams. Streams of different periods meet now and then whatever their phases are, and are spread apart.

use std::collections::HashMap;
use std::time::Duration;

/// Number of streams in each slot of each period that is in use.
#[derive(Debug, Default)]
pub struct Spread {
    periods: HashMap<Duration, [u32; SLOTS as usize]>,
}

/// Phase that a stream was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Time from the beginning of the stream to the beginning of its slot, more than 0 and at most a period.
    pub time: Duration,
    period: Duration,
    slot: usize,
}

impl Spread {
    /// Takes a phase for a stream that begins `now`, a time since any origin, which is the same for all calls.
    pub fn take(&mut self, period: Duration, now: Duration) -> Phase {
        let period = period.max(Duration::from_micros(u64::from(SLOTS)));
        let slots = self.periods.entry(period).or_default();
        let step = period / SLOTS;
        let behind = Duration::from_nanos((now.as_nanos() % step.as_nanos()) as u64);
        let current = (now.as_nanos() / step.as_nanos() % u128::from(SLOTS)) as usize;
        let candidates = (1..=SLOTS).map(|ahead| (ahead, (current + ahead as usize) % SLOTS as usize));
        let (ahead, slot) = candidates.min_by_key(|(_, slot)| slots[*slot]).unwrap_or((SLOTS, current));
        slots[slot] += 1;
        Phase { time: step * ahead - behind, period, slot }
    }

    /// Gives the phase of a stream back.
    pub fn give_back(&mut self, phase: Phase) {
        let Some(slots) = self.periods.get_mut(&phase.period) else { return };
        slots[phase.slot] = slots[phase.slot].saturating_sub(1);
        if slots.iter().all(|streams| *streams == 0) {
            self.periods.remove(&phase.period);
        }
    }
}

/// Number of slots of a period.
const SLOTS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(524);

    #[test]
    fn streams_are_spread_evenly_however_they_begin() {
        let mut spread = Spread::default();
        // All at once, which is the worst: 160 streams, ten in each slot.
        let phases: Vec<_> = (0..160).map(|_| spread.take(PERIOD, Duration::from_secs(77))).collect();
        assert!(phases.iter().all(|phase| phase.time > Duration::ZERO && phase.time <= PERIOD));
        for slot in 0..SLOTS {
            let (from, to) = (PERIOD / SLOTS * slot, PERIOD / SLOTS * (slot + 1));
            let inside = phases.iter().filter(|phase| phase.time > from && phase.time <= to).count();
            assert_eq!(inside, 10, "slot {slot}");
        }
    }

    #[test]
    fn a_later_stream_finds_the_gap() {
        let mut spread = Spread::default();
        let begin = Duration::from_secs(5);
        let phases: Vec<_> = (0..SLOTS).map(|_| spread.take(PERIOD, begin)).collect();
        spread.give_back(phases[11]);
        let later = begin + 3 * PERIOD + Duration::from_millis(100);
        let found = spread.take(PERIOD, later);
        // At the same time of the period as the one that is gone, within a slot.
        let time = |since: Duration, phase: Phase| (since + phase.time).as_nanos() % PERIOD.as_nanos();
        assert!(time(later, found).abs_diff(time(begin, phases[11])) <= (PERIOD / SLOTS).as_nanos());
    }

    #[test]
    fn nothing_is_kept_of_streams_that_ended() {
        let mut spread = Spread::default();
        let phases: Vec<_> =
            (1..100).map(|ms| spread.take(Duration::from_millis(ms), Duration::ZERO)).collect();
        phases.into_iter().for_each(|phase| spread.give_back(phase));
        assert!(spread.periods.is_empty());
    }
}
