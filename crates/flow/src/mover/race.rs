//! Which mover goes on: decided by what each has cost in this very flow.
//!
//! ```text
//!     | warm-up | A | B | C | C | B | A | winner ...........| winner ...........|  A B C C B A  | ...
//!       not       heat: small turns,      stretches, each     dearer than it was:
//!       counted   one way and back        held against the    another heat
//!                                         first one
//! ```
//!
//! A turn begins where the one before has stopped, so that the race moves the flow's own bytes and only the slower movers'
//! turns cost anything: a heat takes a sixteenth of a flow, more of one below 48 MiB and less of one above 384 MiB. The
//! first turn is nobody's, since pages and buffers that are touched for the first time cost whoever comes first. Turns go
//! one way and back (ABBA), so that what changes steadily on the way is charged to all alike, and a mover counts with its
//! cheaper turn, since what disturbs a turn from outside only ever makes it dearer. The mover that the plan would take
//! stays unless another is cheaper by more than [`MARGIN`].
//!
//! Invariant: pure: a race neither moves nor measures, and is driven by [`super::turns`]. It always names a mover as long as
//! one is left, whatever it is told.

use crate::plan::Mover;

/// Smallest turn, in bytes: some hundred times the cost of a system call. Every turn is a multiple of it, so that all
/// begin at the beginning of a page: from within one, each byte costs more for the rest of the flow.
const TURN_BYTES_MIN: u64 = 512 << 10;
/// Largest turn, in bytes: longer ones tell nothing more.
const TURN_BYTES_MAX: u64 = 4 << 20;
/// Turns of movers past the page cache, in bytes: they have several blocks under way, and must fill and empty a queue.
const TURN_BYTES_QUEUED: u64 = 16 << 20;
/// Turns of a flow whose length is not known, in bytes: a heat of two movers is over after five of them.
const TURN_BYTES_UNKNOWN: u64 = 1 << 20;
/// Part of a flow that one heat may take, where turns are not the smallest already.
const HEAT_SHARE: u64 = 16;
/// Turns that the winner has in one stretch.
const STRETCH_TURNS: u64 = 8;
/// Cost of the best other mover, as a part of the favourite's, at which it takes over.
const MARGIN: f64 = 0.98;
/// Cost of a turn, as a multiple of the best one's, from which on a mover does not run in the second half of a heat.
const HOPELESS: f64 = 1.3;
/// Cost of a stretch, as a multiple of the first one's, from which on the winner is doubted.
const DOUBT: f64 = 1.4;
/// Bytes between two heats, as a multiple of what a heat takes. What a mover costs can treble within a copy, as when the
/// page cache has no large pages left to give: it has lost by then what many heats cost.
const REST_HEATS: u64 = 4;

/// A turn: who moves next, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) mover: Mover,
    pub(crate) bytes: u64,
}

/// What one mover has done in a race.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    pub(crate) mover: Mover,
    /// Bytes that it has moved.
    pub(crate) bytes: u64,
    /// Lowest cost of a byte in the latest heat, in seconds; none: it has not run in it.
    pub(crate) cost: Option<f64>,
}

#[derive(Debug)]
enum Phase {
    WarmUp,
    /// Indices of the runners whose turns are still to come, the next one last.
    Heat(Vec<usize>),
    Steady {
        /// Cost of a byte in the first stretch.
        at_first: Option<f64>,
        /// Bytes since the heat.
        since: u64,
    },
}

/// A race between movers that are in it by the plan's order.
#[derive(Debug)]
pub(crate) struct Race {
    runners: Vec<Runner>,
    phase: Phase,
    /// Index of the mover that goes on.
    favourite: usize,
    turn_bytes: u64,
    heats: u32,
}

impl Race {
    /// A race over a flow of so many bytes, if that is known, before its first turn.
    pub(crate) fn new(movers: &[Mover], bytes: Option<u64>) -> Race {
        let runners: Vec<Runner> =
            movers.iter().map(|mover| Runner { mover: *mover, bytes: 0, cost: None }).collect();
        let turns = 2 * runners.len().max(1) as u64;
        let turn_bytes = match bytes {
            _ if movers.contains(&Mover::Direct) => TURN_BYTES_QUEUED,
            None => TURN_BYTES_UNKNOWN,
            Some(bytes) => {
                let share = bytes / HEAT_SHARE / turns;
                (share - share % TURN_BYTES_MIN).clamp(TURN_BYTES_MIN, TURN_BYTES_MAX)
            }
        };
        let phase = match runners.len() {
            0 | 1 => Phase::Steady { at_first: None, since: 0 },
            _ => Phase::WarmUp,
        };
        Race { runners, phase, favourite: 0, turn_bytes, heats: 0 }
    }

    /// The next turn; none: no mover is left.
    pub(crate) fn next(&self) -> Option<Turn> {
        let (number, bytes) = match &self.phase {
            Phase::WarmUp => (self.favourite, self.turn_bytes),
            Phase::Heat(order) => (*order.last()?, self.turn_bytes),
            Phase::Steady { .. } => (self.favourite, self.turn_bytes * STRETCH_TURNS),
        };
        self.runners.get(number).map(|runner| Turn { mover: runner.mover, bytes })
    }

    /// The turn has moved so many bytes at that cost in seconds. What is less than half a turn tells nothing of a mover.
    pub(crate) fn ran(&mut self, bytes: u64, seconds: f64) {
        let cost = (bytes >= self.turn_bytes / 2).then(|| seconds / bytes as f64);
        match &mut self.phase {
            Phase::WarmUp => {
                self.runners[self.favourite].bytes += bytes;
                self.begin_heat();
            }
            Phase::Heat(order) => {
                let Some(number) = order.pop() else { return self.decide() };
                let runner = &mut self.runners[number];
                runner.bytes += bytes;
                if let Some(cost) = cost {
                    runner.cost = Some(runner.cost.map_or(cost, |best| best.min(cost)));
                }
                self.drop_hopeless();
            }
            Phase::Steady { at_first, since } => {
                self.runners[self.favourite].bytes += bytes;
                *since += bytes;
                let heat = 2 * self.runners.len() as u64 * self.turn_bytes;
                match (cost, &at_first) {
                    (Some(cost), None) => *at_first = Some(cost),
                    (Some(cost), Some(first))
                        if cost > *first * DOUBT && *since >= heat * REST_HEATS && self.runners.len() > 1 =>
                    {
                        self.begin_heat();
                    }
                    _ => {}
                }
            }
        }
    }

    /// The kernel does not go along with the mover whose turn it is.
    pub(crate) fn is_unfit(&mut self, mover: Mover) {
        let Some(gone) = self.runners.iter().position(|runner| runner.mover == mover) else { return };
        self.runners.remove(gone);
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

    /// The movers that are left, and the one of them that goes on.
    pub(crate) fn standing(&self) -> (&[Runner], Option<Mover>) {
        (&self.runners, self.runners.get(self.favourite).map(|runner| runner.mover))
    }

    /// Heats that were run to their end.
    pub(crate) fn heats(&self) -> u32 {
        self.heats
    }

    fn begin_heat(&mut self) {
        self.runners.iter_mut().for_each(|runner| runner.cost = None);
        // The favourite is in the middle of no order: it begins, and ends.
        let others = (0..self.runners.len()).filter(|number| *number != self.favourite);
        let there: Vec<usize> = std::iter::once(self.favourite).chain(others).collect();
        self.phase = Phase::Heat(there.iter().chain(there.iter().rev()).copied().collect());
    }

    /// When each has run once, those that are far behind are spared their second turn.
    fn drop_hopeless(&mut self) {
        let best = self.runners.iter().filter_map(|runner| runner.cost).fold(f64::INFINITY, f64::min);
        if let Phase::Heat(order) = &mut self.phase {
            if order.len() <= self.runners.len() {
                let runners = &self.runners;
                order.retain(|number| runners[*number].cost.is_none_or(|cost| cost <= best * HOPELESS));
            }
            if order.is_empty() {
                self.decide();
            }
        }
    }

    fn decide(&mut self) {
        let cost = |number: usize| self.runners.get(number).and_then(|runner| runner.cost);
        let best = (0..self.runners.len())
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

    /// Runs a flow of `bytes` in which a byte costs `cost(mover, moved so far)` seconds. Answers who went on in the end,
    /// and the flow's cost as a multiple of that of the best single mover.
    fn simulate(movers: &[Mover], bytes: u64, cost: impl Fn(Mover, u64) -> f64) -> (Race, f64) {
        let mut race = Race::new(movers, Some(bytes));
        let (mut moved, mut seconds) = (0, 0.0);
        while moved < bytes {
            let turn = race.next().expect("a mover is left");
            let now = turn.bytes.min(bytes - moved);
            let took = cost(turn.mover, moved) * now as f64;
            race.ran(now, took);
            moved += now;
            seconds += took;
        }
        let alone =
            |mover: &Mover| (0..bytes / MIB).map(|at| cost(*mover, at * MIB) * MIB as f64).sum::<f64>();
        let best = movers.iter().map(alone).fold(f64::INFINITY, f64::min);
        (race, seconds / best)
    }

    fn goes_on(race: &Race) -> Mover {
        race.standing().1.unwrap()
    }

    /// Who wins by which costs, and what the race may cost at most.
    #[test]
    fn the_table() {
        let all = [Splice, Buffer, CopyRange];
        for (bytes, costs, winner, most) in [
            // The costs that were measured within tmpfs and ext4 on the one machine and on the other.
            (16 * MIB, [1.0, 1.25, 1.0], Splice, 1.05),
            (16 * MIB, [1.25, 1.0, 1.3], Buffer, 1.08),
            (64 * MIB, [1.25, 1.0, 1.3], Buffer, 1.05),
            (256 * MIB, [1.3, 1.2, 1.0], CopyRange, 1.05),
            (1024 * MIB, [1.3, 1.2, 1.0], CopyRange, 1.02),
            (1024 * MIB, [1.0, 1.0, 1.0], Splice, 1.001),
            // Differences within the noise change nothing.
            (1024 * MIB, [1.0, 0.985, 0.99], Splice, 1.021),
            (4096 * MIB, [3.0, 1.0, 2.0], Buffer, 1.02),
        ] {
            let cost = |mover: Mover, _| costs[all.iter().position(|known| *known == mover).unwrap()] / 1e9;
            let (race, times) = simulate(&all, bytes, cost);
            assert_eq!(goes_on(&race), winner, "{bytes} {costs:?}");
            assert!(times <= most, "{bytes} {costs:?}: {times}");
            assert_eq!(race.heats(), 1, "{bytes} {costs:?}");
        }
    }

    #[test]
    fn whoever_comes_first_does_not_pay_for_what_is_new_to_all() {
        // Pages are ten times as dear at first, and get cheaper steadily.
        for winner in [Splice, Buffer] {
            let own = |mover: Mover| if mover == winner { 1.0 } else { 1.15 };
            let cost = |mover: Mover, at: u64| {
                own(mover) * (1.0 + 9.0 * f64::from(at < 512 << 10) + 1.0 - at as f64 / (16 * MIB) as f64)
            };
            let (race, _) = simulate(&[Splice, Buffer], 16 * MIB, cost);
            assert_eq!(goes_on(&race), winner);
        }
    }

    #[test]
    fn a_turn_that_was_disturbed_is_forgiven() {
        let mut race = Race::new(&[Splice, Buffer], Some(64 * MIB));
        let turn = |race: &mut Race, seconds| {
            let turn = race.next().unwrap();
            race.ran(turn.bytes, seconds);
            turn.mover
        };
        // The favourite's first turn was slow for a reason of somebody else's, but not hopeless.
        let movers: Vec<Mover> =
            [9.0, 1.2, 1.1, 1.1, 0.9].iter().map(|seconds| turn(&mut race, *seconds)).collect();
        assert_eq!(movers, [Splice, Splice, Buffer, Buffer, Splice]);
        assert_eq!(goes_on(&race), Splice);
    }

    #[test]
    fn turns_begin_at_pages() {
        for bytes in (8 * MIB..600 * MIB).step_by(7_654_321).map(Some).chain([None]) {
            for movers in [&[Splice, Buffer][..], &[Splice, Buffer, CopyRange], &[Direct, Dontcache]] {
                let turn = Race::new(movers, bytes).next().unwrap().bytes;
                assert!(turn > 0 && turn.is_multiple_of(TURN_BYTES_MIN), "{bytes:?} {movers:?}: {turn}");
            }
        }
    }

    #[test]
    fn who_falls_off_is_doubted_and_replaced() {
        // Through the page cache until it is full, and then at the speed of the device.
        let cost = |mover: Mover, at: u64| match mover {
            Splice if at > 2048 * MIB => 4.0 / 1e9,
            Splice => 1.0 / 1e9,
            _ => 2.0 / 1e9,
        };
        let (race, _) = simulate(&[Dontcache, Splice], 8192 * MIB, cost);
        assert_eq!(goes_on(&race), Dontcache);
        assert_eq!(race.heats(), 2);
        let splice = race.standing().0.iter().find(|runner| runner.mover == Splice).unwrap().bytes;
        assert!((1900 * MIB..2300 * MIB).contains(&splice), "{splice}");
    }

    #[test]
    fn a_machine_with_moods_does_not_race_for_ever() {
        let mut chance = 1u64;
        let moods = move || {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            1.0 + (chance % 1000) as f64 / 500.0
        };
        let moods = std::cell::RefCell::new(moods);
        let (race, _) = simulate(&[Splice, Buffer, CopyRange], 4096 * MIB, |_, _| moods.borrow_mut()());
        // No more than one byte in five, and the first heat.
        assert!(race.heats() <= 1 + 4096 / (24 * 5), "{}", race.heats());
    }

    #[test]
    fn who_becomes_dear_early_is_replaced_early() {
        // As measured on a machine whose memory was in pieces.
        let cost = |mover: Mover, at: u64| match mover {
            Splice if at > 64 * MIB => 3.0 / 1e9,
            Splice => 0.8 / 1e9,
            _ => 1.0 / 1e9,
        };
        let (race, times) = simulate(&[CopyRange, Splice, Buffer, Dontcache], 1024 * MIB, cost);
        assert_eq!(goes_on(&race), CopyRange);
        assert!(times < 1.4, "{times}");
    }

    #[test]
    fn who_cannot_is_left_out() {
        let mut race = Race::new(&[Splice, Buffer, CopyRange], Some(64 * MIB));
        race.is_unfit(Splice);
        while race.heats() == 0 {
            let turn = race.next().unwrap();
            match turn.mover {
                CopyRange => race.is_unfit(CopyRange),
                mover => {
                    assert_eq!(mover, Buffer);
                    race.ran(turn.bytes, 1.0);
                }
            }
        }
        assert_eq!(goes_on(&race), Buffer);
        race.is_unfit(Buffer);
        assert!(race.next().is_none());
    }

    #[test]
    fn short_turns_tell_nothing() {
        // A source with holes everywhere: each turn ends after a page.
        let mut race = Race::new(&[Splice, Buffer], Some(64 * MIB));
        for _ in 0..100 {
            race.ran(4096, 1.0);
        }
        assert_eq!(goes_on(&race), Splice);
    }

    #[test]
    fn one_mover_has_no_heats_and_queues_get_long_turns() {
        let race = Race::new(&[Buffer], Some(64 * MIB));
        assert_eq!(race.next().unwrap().mover, Buffer);
        assert!(Race::new(&[], Some(1)).next().is_none());
        assert_eq!(Race::new(&[Splice, Buffer], None).next().unwrap().bytes, TURN_BYTES_UNKNOWN);
        assert_eq!(Race::new(&[Direct, Dontcache], Some(512 * MIB)).next().unwrap().bytes, TURN_BYTES_QUEUED);
    }
}
