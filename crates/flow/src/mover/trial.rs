//! Choice of the cheapest of several movers by their measured cost in the running flow.
//!
//! ```text
//!     | warm-up | A | B | C | C | B | A | winner ...........| winner ...........|  A B C C B A  | ...
//!       not       heat: small turns,      spans, each         dearer than it was:
//!       counted   one way and back        held against the    another heat
//!                                         first one
//! ```
//!
//! A turn begins where the one before stopped. The trial thus moves the flow's own bytes, and only the turns
//! of slower movers cost anything. With three movers, a heat takes a sixteenth of a flow, more below 48 MiB
//! and less above 384 MiB. The first turn is not counted, since the first mover would pay for pages and
//! buffers that are touched for the first time. The order of turns is reversed in the second half (ABBA), so
//! that a steady change costs all movers alike. A mover counts with its cheaper turn, since disturbance from
//! outside only adds cost. The favourite (before the first heat: the plan's first mover) wins unless another
//! one is cheaper by more than [`MARGIN`] says.
//!
//! Invariant: a trial is pure logic and neither moves bytes nor reads a clock. Whatever costs are reported, it
//! names a next mover as long as one is left. Driven by [`super::turns`].

use crate::movers::Mover;

/// Smallest turn, in bytes, whose copy costs some hundred times as much as a system call. All turns are
/// multiples of this size, so that each starts at a page boundary; a turn that starts within a page makes
/// each byte of the rest of the flow dearer.
const TURN_BYTES_MIN: u64 = 512 << 10;
/// Largest turn, in bytes; a longer one would not measure better.
const TURN_BYTES_MAX: u64 = 4 << 20;
/// Turn of a trial with `direct`, in bytes; several blocks in flight need a long turn to fill and drain their
/// queue.
const TURN_BYTES_QUEUED: u64 = 16 << 20;
/// Turn of a flow of unknown length, in bytes; two movers are compared after five of them.
const TURN_BYTES_UNKNOWN: u64 = 1 << 20;
/// Divisor of the flow's length for the length of one heat, unless turns have their smallest size already.
const HEAT_SHARE: u64 = 16;
/// Number of turns that make up one span of the winner.
const SPAN_TURNS: u64 = 8;
/// Cost of another mover, as a fraction of the favourite's, below which that mover wins.
const MARGIN: f64 = 0.98;
/// Cost of a turn, as a multiple of the best one, above which a mover is left out of the second half of a
/// heat.
const HOPELESS: f64 = 1.3;
/// Cost of a span, as a multiple of the first one, above which the winner must prove itself in another
/// heat.
const DOUBT: f64 = 1.4;
/// Smallest distance between two heats, as a multiple of the length of a heat. The cost of a mover can treble
/// during a copy, for example when the page cache runs out of large pages, and that would cost more than many
/// heats.
const REST_HEATS: u64 = 4;

/// The next step of a trial: the mover, and the number of bytes that it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) mover: Mover,
    pub(crate) bytes: u64,
}

/// State of one mover in a trial.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) mover: Mover,
    /// Bytes that this mover has moved.
    pub(crate) bytes: u64,
    /// Lowest cost of a byte in the latest heat, in seconds; `None` if the mover had no measured turn in it.
    pub(crate) cost: Option<f64>,
}

#[derive(Debug)]
enum Phase {
    WarmUp,
    /// Indices of the runners whose turns are still to come, the last element first.
    Heat(Vec<usize>),
    Steady {
        /// Cost of a byte in the first span, in seconds.
        at_first: Option<f64>,
        /// Bytes moved since the heat.
        since: u64,
    },
}

/// A trial between movers, which are kept in the plan's order.
#[derive(Debug)]
pub(crate) struct Trial {
    candidates: Vec<Candidate>,
    phase: Phase,
    /// Index of the mover that leads or has won.
    favourite: usize,
    turn_bytes: u64,
    heats: u32,
}

impl Trial {
    /// Creates a trial over a flow of `bytes` bytes (`None`: of unknown length), before its first turn.
    pub(crate) fn new(movers: &[Mover], bytes: Option<u64>) -> Trial {
        let candidates: Vec<Candidate> =
            movers.iter().map(|mover| Candidate { mover: *mover, bytes: 0, cost: None }).collect();
        let turns = 2 * candidates.len().max(1) as u64;
        let turn_bytes = match bytes {
            _ if movers.contains(&Mover::Direct) => TURN_BYTES_QUEUED,
            None => TURN_BYTES_UNKNOWN,
            Some(bytes) => {
                let share = bytes / HEAT_SHARE / turns;
                (share - share % TURN_BYTES_MIN).clamp(TURN_BYTES_MIN, TURN_BYTES_MAX)
            }
        };
        let phase = match candidates.len() {
            0 | 1 => Phase::Steady { at_first: None, since: 0 },
            _ => Phase::WarmUp,
        };
        Trial { candidates, phase, favourite: 0, turn_bytes, heats: 0 }
    }

    /// Returns the next turn; `None` if no mover is left.
    pub(crate) fn next(&self) -> Option<Turn> {
        let (number, bytes) = match &self.phase {
            Phase::WarmUp => (self.favourite, self.turn_bytes),
            Phase::Heat(order) => (*order.last()?, self.turn_bytes),
            Phase::Steady { .. } => (self.favourite, self.turn_bytes * SPAN_TURNS),
        };
        self.candidates.get(number).map(|candidate| Turn { mover: candidate.mover, bytes })
    }

    /// Records that the current turn moved `bytes` bytes at a cost of `seconds`. A turn of less than half its
    /// size is not measured.
    pub(crate) fn record_turn(&mut self, bytes: u64, seconds: f64) {
        let cost = (bytes >= self.turn_bytes / 2).then(|| seconds / bytes as f64);
        match &mut self.phase {
            Phase::WarmUp => {
                self.candidates[self.favourite].bytes += bytes;
                self.begin_heat();
            }
            Phase::Heat(order) => {
                let Some(number) = order.pop() else { return self.decide() };
                let candidate = &mut self.candidates[number];
                candidate.bytes += bytes;
                if let Some(cost) = cost {
                    candidate.cost = Some(candidate.cost.map_or(cost, |best| best.min(cost)));
                }
                self.drop_hopeless();
            }
            Phase::Steady { at_first, since } => {
                self.candidates[self.favourite].bytes += bytes;
                *since += bytes;
                let heat = 2 * self.candidates.len() as u64 * self.turn_bytes;
                match (cost, &at_first) {
                    (Some(cost), None) => *at_first = Some(cost),
                    (Some(cost), Some(first))
                        if cost > *first * DOUBT
                            && *since >= heat * REST_HEATS
                            && self.candidates.len() > 1 =>
                    {
                        self.begin_heat();
                    }
                    _ => {}
                }
            }
        }
    }

    /// Removes a mover that the kernel has refused.
    pub(crate) fn remove(&mut self, mover: Mover) {
        let Some(gone) = self.candidates.iter().position(|candidate| candidate.mover == mover) else {
            return;
        };
        self.candidates.remove(gone);
        if let Phase::Heat(order) = &mut self.phase {
            order.retain(|number| *number != gone);
            order.iter_mut().filter(|number| **number > gone).for_each(|number| *number -= 1);
        }
        self.favourite = match self.favourite {
            favourite if favourite == gone => 0,
            favourite => favourite - usize::from(favourite > gone),
        };
        if matches!(&self.phase, Phase::Heat(order) if order.is_empty()) {
            self.decide();
        }
    }

    /// Returns the movers that are left, and the favourite among them.
    pub(crate) fn candidates(&self) -> (&[Candidate], Option<Mover>) {
        (&self.candidates, self.candidates.get(self.favourite).map(|candidate| candidate.mover))
    }

    /// Returns the number of completed heats.
    pub(crate) fn heats(&self) -> u32 {
        self.heats
    }

    fn begin_heat(&mut self) {
        self.candidates.iter_mut().for_each(|candidate| candidate.cost = None);
        // The favourite runs first and last, so that its two turns are the furthest apart.
        let others = (0..self.candidates.len()).filter(|number| *number != self.favourite);
        let there: Vec<usize> = std::iter::once(self.favourite).chain(others).collect();
        self.phase = Phase::Heat(there.iter().chain(there.iter().rev()).copied().collect());
    }

    /// Ends the heat for movers that were far behind in its first half.
    fn drop_hopeless(&mut self) {
        let best =
            self.candidates.iter().filter_map(|candidate| candidate.cost).fold(f64::INFINITY, f64::min);
        if let Phase::Heat(order) = &mut self.phase {
            if order.len() <= self.candidates.len() {
                let candidates = &self.candidates;
                order.retain(|number| candidates[*number].cost.is_none_or(|cost| cost <= best * HOPELESS));
            }
            if order.is_empty() {
                self.decide();
            }
        }
    }

    fn decide(&mut self) {
        let cost = |number: usize| self.candidates.get(number).and_then(|candidate| candidate.cost);
        let best = (0..self.candidates.len())
            .filter_map(|number| cost(number).map(|cost| (number, cost)))
            .min_by(|one, other| one.1.total_cmp(&other.1));
        if let Some((number, best)) = best
            && cost(self.favourite).is_none_or(|favourite| best < favourite * MARGIN)
        {
            self.favourite = number;
        }
        self.heats += 1;
        self.phase = Phase::Steady { at_first: None, since: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mover::{Buffer, CopyRange, Direct, Dontcache, Splice};

    const MIB: u64 = 1 << 20;

    /// Simulates a flow of `bytes` bytes in which a byte costs `cost(mover, bytes moved so far)` seconds.
    /// Returns the trial, and the flow's cost as a multiple of the best single mover's.
    fn simulate(movers: &[Mover], bytes: u64, cost: impl Fn(Mover, u64) -> f64) -> (Trial, f64) {
        let mut trial = Trial::new(movers, Some(bytes));
        let (mut moved, mut seconds) = (0, 0.0);
        while moved < bytes {
            let turn = trial.next().expect("a mover is left");
            let now = turn.bytes.min(bytes - moved);
            let took = cost(turn.mover, moved) * now as f64;
            trial.record_turn(now, took);
            moved += now;
            seconds += took;
        }
        let alone =
            |mover: &Mover| (0..bytes / MIB).map(|at| cost(*mover, at * MIB) * MIB as f64).sum::<f64>();
        let best = movers.iter().map(alone).fold(f64::INFINITY, f64::min);
        (trial, seconds / best)
    }

    fn goes_on(trial: &Trial) -> Mover {
        trial.candidates().1.unwrap()
    }

    /// Tests the winner and the greatest cost of a trial for given costs of the movers.
    #[test]
    fn the_table() {
        let all = [Splice, Buffer, CopyRange];
        for (bytes, costs, winner, most) in [
            // Costs measured within tmpfs and within ext4, on two machines.
            (16 * MIB, [1.0, 1.25, 1.0], Splice, 1.05),
            (16 * MIB, [1.25, 1.0, 1.3], Buffer, 1.08),
            (64 * MIB, [1.25, 1.0, 1.3], Buffer, 1.05),
            (256 * MIB, [1.3, 1.2, 1.0], CopyRange, 1.05),
            (1024 * MIB, [1.3, 1.2, 1.0], CopyRange, 1.02),
            (1024 * MIB, [1.0, 1.0, 1.0], Splice, 1.001),
            // Differences within the noise do not change the mover.
            (1024 * MIB, [1.0, 0.985, 0.99], Splice, 1.021),
            (4096 * MIB, [3.0, 1.0, 2.0], Buffer, 1.02),
        ] {
            let cost = |mover: Mover, _| costs[all.iter().position(|known| *known == mover).unwrap()] / 1e9;
            let (trial, times) = simulate(&all, bytes, cost);
            assert_eq!(goes_on(&trial), winner, "{bytes} {costs:?}");
            assert!(times <= most, "{bytes} {costs:?}: {times}");
            assert_eq!(trial.heats(), 1, "{bytes} {costs:?}");
        }
    }

    #[test]
    fn whoever_comes_first_does_not_pay_for_what_is_new_to_all() {
        // The first pages cost ten times as much, and the cost then falls steadily.
        for winner in [Splice, Buffer] {
            let own = |mover: Mover| if mover == winner { 1.0 } else { 1.15 };
            let cost = |mover: Mover, at: u64| {
                own(mover) * (1.0 + 9.0 * f64::from(at < 512 << 10) + 1.0 - at as f64 / (16 * MIB) as f64)
            };
            let (trial, _) = simulate(&[Splice, Buffer], 16 * MIB, cost);
            assert_eq!(goes_on(&trial), winner);
        }
    }

    #[test]
    fn a_turn_that_was_disturbed_is_forgiven() {
        let mut trial = Trial::new(&[Splice, Buffer], Some(64 * MIB));
        let turn = |trial: &mut Trial, seconds| {
            let turn = trial.next().unwrap();
            trial.record_turn(turn.bytes, seconds);
            turn.mover
        };
        // The favourite's first turn was slow by a disturbance from outside, but not hopelessly so.
        let movers: Vec<Mover> =
            [9.0, 1.2, 1.1, 1.1, 0.9].iter().map(|seconds| turn(&mut trial, *seconds)).collect();
        assert_eq!(movers, [Splice, Splice, Buffer, Buffer, Splice]);
        assert_eq!(goes_on(&trial), Splice);
    }

    #[test]
    fn turns_begin_at_pages() {
        for bytes in (8 * MIB..600 * MIB).step_by(7_654_321).map(Some).chain([None]) {
            for movers in [&[Splice, Buffer][..], &[Splice, Buffer, CopyRange], &[Direct, Dontcache]] {
                let turn = Trial::new(movers, bytes).next().unwrap().bytes;
                assert!(turn > 0 && turn.is_multiple_of(TURN_BYTES_MIN), "{bytes:?} {movers:?}: {turn}");
            }
        }
    }

    #[test]
    fn who_falls_off_is_doubted_and_replaced() {
        // The page cache is fast until it is full; afterwards the device sets the speed.
        let cost = |mover: Mover, at: u64| match mover {
            Splice if at > 2048 * MIB => 4.0 / 1e9,
            Splice => 1.0 / 1e9,
            _ => 2.0 / 1e9,
        };
        let (trial, _) = simulate(&[Dontcache, Splice], 8192 * MIB, cost);
        assert_eq!(goes_on(&trial), Dontcache);
        assert_eq!(trial.heats(), 2);
        let splice = trial.candidates().0.iter().find(|candidate| candidate.mover == Splice).unwrap().bytes;
        assert!((1900 * MIB..2300 * MIB).contains(&splice), "{splice}");
    }

    #[test]
    fn a_machine_with_moods_does_not_race_for_ever() {
        let mut chance = 1u64;
        let costs = move || {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            1.0 + (chance % 1000) as f64 / 500.0
        };
        let costs = std::cell::RefCell::new(costs);
        let (trial, _) = simulate(&[Splice, Buffer, CopyRange], 4096 * MIB, |_, _| costs.borrow_mut()());
        // Heats may take at most one byte in five, besides the first heat.
        assert!(trial.heats() <= 1 + 4096 / (24 * 5), "{}", trial.heats());
    }

    #[test]
    fn who_becomes_dear_early_is_replaced_early() {
        // Costs measured on a machine with fragmented memory.
        let cost = |mover: Mover, at: u64| match mover {
            Splice if at > 64 * MIB => 3.0 / 1e9,
            Splice => 0.8 / 1e9,
            _ => 1.0 / 1e9,
        };
        let (trial, times) = simulate(&[CopyRange, Splice, Buffer, Dontcache], 1024 * MIB, cost);
        assert_eq!(goes_on(&trial), CopyRange);
        assert!(times < 1.4, "{times}");
    }

    #[test]
    fn who_cannot_is_left_out() {
        let mut trial = Trial::new(&[Splice, Buffer, CopyRange], Some(64 * MIB));
        trial.remove(Splice);
        while trial.heats() == 0 {
            let turn = trial.next().unwrap();
            match turn.mover {
                CopyRange => trial.remove(CopyRange),
                mover => {
                    assert_eq!(mover, Buffer);
                    trial.record_turn(turn.bytes, 1.0);
                }
            }
        }
        assert_eq!(goes_on(&trial), Buffer);
        trial.remove(Buffer);
        assert!(trial.next().is_none());
    }

    #[test]
    fn short_turns_tell_nothing() {
        // A source with a hole behind every page ends each turn after one page.
        let mut trial = Trial::new(&[Splice, Buffer], Some(64 * MIB));
        for _ in 0..100 {
            trial.record_turn(4096, 1.0);
        }
        assert_eq!(goes_on(&trial), Splice);
    }

    #[test]
    fn one_mover_has_no_heats_and_queues_get_long_turns() {
        let trial = Trial::new(&[Buffer], Some(64 * MIB));
        assert_eq!(trial.next().unwrap().mover, Buffer);
        assert!(Trial::new(&[], Some(1)).next().is_none());
        assert_eq!(Trial::new(&[Splice, Buffer], None).next().unwrap().bytes, TURN_BYTES_UNKNOWN);
        assert_eq!(
            Trial::new(&[Direct, Dontcache], Some(512 * MIB)).next().unwrap().bytes,
            TURN_BYTES_QUEUED
        );
    }
}
