//! Exchange between the schedules of one device on several cores, so that a user's share and rates hold for all clients
//! of the user together, whichever cores they are on.
//!
//! ```text
//!   core 0: turns, in flight ──┐ every EXCHANGE_INTERVAL ┌── users' sums, windows ──► core 0: limits, charges
//!   core 1: turns, in flight ──┴───────► Exchange ───────┴──────────────────────────► core 1: limits, charges
//! ```
//!
//! Between two exchanges a core decides alone, and touches nothing that another core touches. At an exchange it tells
//! what its users were served and have in flight, and takes over three things:
//!
//! - *Limits in flight.* The windows of all users ([`Windows`]) are found here, by the rate of the whole device. A core
//!   gets the part of a user's window that is due to it: an equal part for each core where the user is present.
//! - *Charges.* A user is charged for what other cores have served the user, as far as that exceeds what they have served
//!   the user of this core who got least of them. So a user who is served well elsewhere lets those go first who are
//!   served only here; and users who are served alike elsewhere are charged nothing. The debt is limited, so that each
//!   client has a turn in every interval.
//! - *Rates.* What other cores have served is taken from the buckets of rate limits in full.
//!
//! The lock is taken once in each core's interval, never on the path of a request. The same exchanges at the same times
//! lead to the same limits and charges. Called by [`super::ByUser`].

use super::window::{UseOfDevice, Windows};
use super::{ClientKey, REQUEST_CHARGE_BYTES};
use slab::Slab;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Time after a user's last request on a core for which the user still counts as present there, in nanoseconds.
const CORE_PRESENCE_NS: u64 = 50_000_000;
/// Least time of the settling and of the measurement of a round of windows, in nanoseconds: several exchanges, so that
/// all cores have taken the windows over.
const ROUND_NS: u64 = 10_000_000;
/// Number of users from which on absent ones are forgotten.
const REMEMBERED_MAX: usize = 1024;

/// Shared record of the use of one device, by which its schedules on several cores inform one another.
#[derive(Debug)]
pub struct Exchange(Mutex<State>);

#[derive(Debug)]
struct State {
    cores: usize,
    windows: Windows,
    users: HashMap<u32, SharedUser>,
    /// Indexes of the users' keys.
    indexes: Slab<()>,
    /// Generation of the users' keys, which tells apart users that had the same index.
    turn: u32,
}

/// A user of the device, on all cores.
#[derive(Debug)]
struct SharedUser {
    key: ClientKey,
    cores: Vec<CoreUsage>,
}

/// Use of the device by one user on one core: service so far, and commands in flight.
#[derive(Clone, Copy, Debug, Default)]
struct CoreUsage {
    /// Bytes and requests that the user was served since the exchange knows the user.
    served: Served,
    /// Service by all other cores that this core has taken over.
    taken: Served,
    in_flight: i64,
    costliest: i64,
    /// Time at which the user was last present on the core; `None` for never.
    seen_ns: Option<u64>,
    /// True if the user was away from the core before the last exchange: what others have served meanwhile is past.
    was_away: bool,
}

/// Numbers of bytes and requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) bytes: u64,
    pub(super) requests: u64,
}

/// Report of one core on one user, at an exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// Index of the user's key in the schedule of the core.
    pub(super) index: usize,
    pub(super) uid: u32,
    pub(super) share: i64,
    /// Service of the user since the last exchange.
    pub(super) served: Served,
    /// Cost and number of the user's commands that have completed since the last exchange.
    pub(super) completed: (i64, u32),
    /// Cost of the user's commands in flight, and of the costliest recent one.
    pub(super) in_flight: i64,
    pub(super) costliest: i64,
    /// True if the user was held back since the last exchange.
    pub(super) was_held: bool,
    /// True if the user had turns, commands or requests since the last exchange.
    pub(super) is_present: bool,
}

/// Reply to a core's report on one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// Cost that the user may have in flight on this core; `i64::MAX` if no other user is present.
    pub(super) limit: i64,
    /// Service of the user by other cores since this core's last exchange.
    pub(super) elsewhere: Served,
}

impl Served {
    /// Returns the cost of what was served, as turns are charged.
    pub(super) fn cost(self) -> i64 {
        let requests = self.requests.min(1 << 40) as i64 * REQUEST_CHARGE_BYTES;
        self.bytes.min(1 << 50) as i64 + requests
    }

    fn plus(self, other: Served) -> Served {
        Served { bytes: self.bytes + other.bytes, requests: self.requests + other.requests }
    }

    fn minus(self, other: Served) -> Served {
        Served { bytes: self.bytes - other.bytes, requests: self.requests - other.requests }
    }
}

impl Exchange {
    /// Makes an exchange for the schedules of a device on this number of cores.
    pub fn new(cores: usize) -> Exchange {
        let windows = Windows::with_rounds_of(ROUND_NS);
        Exchange(Mutex::new(State { cores, windows, users: HashMap::new(), indexes: Slab::new(), turn: 0 }))
    }

    /// Takes what core `core` tells of its users at time `now`, and puts into `heard` what it is told, in the same order.
    pub(super) fn tell(&self, core: usize, told: &[Told], now: u64, heard: &mut Vec<Heard>) {
        let mut state = self.lock();
        state.forget_some(now);
        told.iter().for_each(|told| state.take(core, told, now));
        state.windows.look(now);
        heard.clear();
        heard.extend(told.iter().map(|told| state.heard(core, told, now)));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A core that panicked has left sums that are right for what it had told.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, core: usize, told: &Told, now: u64) {
        let (indexes, turn, cores) = (&mut self.indexes, self.turn, self.cores);
        let user = self.users.entry(told.uid).or_insert_with(|| SharedUser {
            // The number of users is limited far below 2^32.
            key: ClientKey { slot: indexes.insert(()) as u32, turn },
            cores: vec![CoreUsage::default(); cores],
        });
        let usage = &mut user.cores[core];
        usage.was_away = !usage.is_present(now);
        usage.served = usage.served.plus(told.served);
        (usage.in_flight, usage.costliest) = (told.in_flight, told.costliest);
        if told.is_present {
            usage.seen_ns = Some(now);
        }
        let in_flight = user.cores.iter().map(|usage| usage.in_flight).sum();
        let costliest = user.cores.iter().map(|usage| usage.costliest).max().unwrap_or(0);
        let (key, parts) = (user.key, user.present_on(now));
        let is_using = in_flight > 0 || told.completed.1 > 0;
        let use_of_device = UseOfDevice { in_flight, costliest, parts, is_using };
        self.windows.note_use(key, told.share, use_of_device, now);
        self.windows.note_held(told.was_held);
        self.windows.note_completed(told.completed.0, told.completed.1, now);
    }

    fn heard(&mut self, core: usize, told: &Told, now: u64) -> Heard {
        let limit = |window: i64, parts: i64| (window.saturating_mul(told.share) / parts).max(1);
        // Every user that was told of is known.
        let Some(user) = self.users.get_mut(&told.uid) else {
            return Heard { limit: i64::MAX, elsewhere: Served::default() };
        };
        let parts = user.present_on(now);
        let others = user.cores.iter().enumerate().filter(|(number, _)| *number != core);
        let all = others.fold(Served::default(), |sum, (_, usage)| sum.plus(usage.served));
        let usage = &mut user.cores[core];
        let elsewhere = all.minus(std::mem::replace(&mut usage.taken, all));
        let elsewhere = if usage.was_away { Served::default() } else { elsewhere };
        let limit = self.windows.contended().map_or(i64::MAX, |window| limit(window, parts));
        Heard { limit, elsewhere }
    }

    /// Forgets users who are absent from all cores, if too many are remembered.
    fn forget_some(&mut self, now: u64) {
        if self.users.len() < REMEMBERED_MAX {
            return;
        }
        let State { users, indexes, turn, .. } = self;
        users.retain(|_, user| {
            let is_present = user.cores.iter().any(|usage| usage.is_present(now));
            if !is_present {
                indexes.remove(user.key.index());
                *turn = turn.wrapping_add(1);
            }
            is_present
        });
    }
}

impl CoreUsage {
    /// Returns true if the user is present on the core.
    fn is_present(&self, now: u64) -> bool {
        self.in_flight > 0 || self.seen_ns.is_some_and(|seen| now.saturating_sub(seen) <= CORE_PRESENCE_NS)
    }
}

impl SharedUser {
    /// Returns the number of cores on which the user is present, at least 1.
    fn present_on(&self, now: u64) -> i64 {
        (self.cores.iter().filter(|usage| usage.is_present(now)).count() as i64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ByUser, ConnectionKey, Limits};
    use super::*;
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, VecDeque};
    use std::sync::Arc;

    const SECOND: u64 = 1_000_000_000;
    /// Interval between two exchanges of a core.
    const INTERVAL: u64 = 2_000_000;
    const BYTES: u64 = 16 << 10;

    /// A client of a user on a core, which always has this number of commands waiting or in flight.
    #[derive(Clone, Copy)]
    struct Connection {
        uid: u32,
        core: usize,
        commands: usize,
    }

    fn of(uid: u32, core: usize, commands: usize) -> Connection {
        Connection { uid, core, commands }
    }

    fn join(all: &[Connection], limits: &[(u32, Limits)]) -> (Vec<ByUser>, Vec<ConnectionKey>) {
        let exchange = Arc::new(Exchange::new(CORES));
        let mut cores: Vec<ByUser> = (0..CORES).map(|_| ByUser::new()).collect();
        cores.iter_mut().for_each(|core| core.share(exchange.clone()));
        let limits_of = |uid: u32| {
            limits.iter().find(|(known, _)| *known == uid).map_or(Limits::default(), |(_, limits)| *limits)
        };
        let members =
            all.iter().map(|one| cores[one.core].join(one.uid, limits_of(one.uid)).unwrap()).collect();
        (cores, members)
    }

    const CORES: usize = 2;

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Event {
        Exchange { core: usize },
        Done { connection: usize },
        Begin,
    }

    /// Serves the connections by a device that carries out `lanes` commands at a time, each for `command_ns`, in the order
    /// of their submission, and takes 64 from each core. Returns the commands of each user in the last 2 of 4 seconds.
    fn contend(lanes: usize, command_ns: u64, all: &[Connection], limits: &[(u32, Limits)]) -> [u64; 3] {
        let (mut cores, members) = join(all, limits);
        let mut keys = vec![None; all.len()];
        let (mut queue, mut busy, mut in_flight) = (VecDeque::new(), 0, [0; CORES]);
        let (mut waiting, mut got) = (all.iter().map(|one| one.commands).collect::<Vec<_>>(), [0; 3]);
        let mut events = BinaryHeap::from([Reverse((0, Event::Begin))]);
        (0..CORES).for_each(|core| events.push(Reverse((1000 + core as u64, Event::Exchange { core }))));
        while let Some(Reverse((now, event))) = events.pop()
            && now < 4 * SECOND
        {
            match event {
                Event::Begin => members.iter().zip(all).for_each(|(key, one)| cores[one.core].wants(*key)),
                Event::Exchange { core } => {
                    cores[core].exchange(core, now);
                    events.push(Reverse((now + INTERVAL, event)));
                }
                Event::Done { connection } => {
                    let one = all[connection];
                    (busy, waiting[connection]) = (busy - 1, waiting[connection] + 1);
                    in_flight[one.core] -= 1;
                    cores[one.core].completed(keys[connection].unwrap(), BYTES, now);
                    cores[one.core].wants(members[connection]);
                    got[one.uid as usize] += u64::from(now >= 2 * SECOND);
                }
            }
            for (core, schedule) in cores.iter_mut().enumerate() {
                while in_flight[core] < 64
                    && let Some(next) = schedule.next(now)
                {
                    let connection = (0..all.len())
                        .find(|number| all[*number].core == core && members[*number] == next)
                        .unwrap();
                    if waiting[connection] == 0 {
                        schedule.wants_nothing(next);
                        continue;
                    }
                    schedule.served(next, BYTES, now);
                    keys[connection] = schedule.submitted(next, BYTES, now);
                    (waiting[connection], in_flight[core]) = (waiting[connection] - 1, in_flight[core] + 1);
                    queue.push_back(connection);
                }
            }
            while busy < lanes
                && let Some(connection) = queue.pop_front()
            {
                busy += 1;
                events.push(Reverse((now + command_ns, Event::Done { connection })));
            }
        }
        got
    }

    fn is_fair(what: &str, got: &[u64], shares: &[u64]) {
        let per_share: Vec<f64> =
            got.iter().zip(shares).map(|(got, share)| *got as f64 / *share as f64).collect();
        let mean = per_share.iter().sum::<f64>() / per_share.len() as f64;
        assert!(per_share.iter().all(|one| (one / mean - 1.0).abs() < 0.15), "{what}: {got:?}");
    }

    #[test]
    fn users_have_the_same_of_a_device_on_whichever_cores_they_are() {
        for (what, all) in [
            ("a core each", vec![of(0, 0, 64), of(1, 1, 64)]),
            ("many against few", vec![of(0, 0, 512), of(1, 1, 8)]),
            ("one on both", vec![of(0, 0, 64), of(0, 1, 64), of(1, 1, 64)]),
            ("both on both", vec![of(0, 0, 64), of(0, 1, 64), of(1, 0, 64), of(1, 1, 64)]),
            ("many connections", vec![of(0, 0, 64), of(0, 0, 64), of(0, 1, 64), of(0, 1, 64), of(1, 0, 64)]),
        ] {
            for (lanes, command_ns) in [(1, 50_000), (8, 200_000)] {
                let got = contend(lanes, command_ns, &all, &[]);
                is_fair(&format!("{what}, {lanes} lanes"), &got[..2], &[1, 1]);
                let most = 2 * SECOND / command_ns * lanes as u64;
                assert!(got[0] + got[1] > most * 9 / 10, "{what}, {lanes} lanes: {got:?} of {most}");
            }
        }
        let three = [(1, Limits { share: 3, ..Limits::default() })];
        let got = contend(4, 100_000, &[of(0, 0, 64), of(0, 1, 64), of(1, 1, 64)], &three);
        is_fair("a share of three", &got[..2], &[1, 3]);
    }

    #[test]
    fn a_rate_is_that_of_all_cores() {
        let rate = Limits { requests_per_second: Some(1000), ..Limits::default() };
        let got = contend(8, 10_000, &[of(0, 0, 64), of(0, 1, 64), of(1, 1, 64)], &[(0, rate)]);
        assert!((got[0] as f64 / 2000.0 - 1.0).abs() < 0.1, "{got:?}");
        assert!(got[1] > 100_000, "{got:?}");
    }

    /// Serves connections that always have requests on cores that carry out each at once, in 10 us. Returns the requests
    /// of each user in 2 s, and the longest time that any connection waited for its turn.
    fn compute(all: &[Connection]) -> ([u64; 3], u64) {
        let (mut cores, members) = join(all, &[]);
        members.iter().zip(all).for_each(|(key, one)| cores[one.core].wants(*key));
        let (mut got, mut last, mut longest) = ([0; 3], vec![0; all.len()], 0);
        for now in (0..2 * SECOND).step_by(10_000) {
            for (core, schedule) in cores.iter_mut().enumerate() {
                if (now + core as u64 * 10_000).is_multiple_of(INTERVAL) {
                    schedule.exchange(core, now);
                }
                let Some(next) = schedule.next(now) else { continue };
                schedule.served(next, BYTES, now);
                let found = (0..all.len()).find(|at| all[*at].core == core && members[*at] == next).unwrap();
                got[all[found].uid as usize] += 1;
                longest = longest.max(now - std::mem::replace(&mut last[found], now));
            }
        }
        let ends = last.iter().map(|last| 2 * SECOND - last).max();
        (got, longest.max(ends.unwrap_or(0)))
    }

    #[test]
    fn users_have_the_same_of_the_cores() {
        is_fair("a core each", &compute(&[of(0, 0, 1), of(1, 1, 1)]).0[..2], &[1, 1]);
        // The user who has a core alone leaves the other core to the other user, but for a turn now and then.
        let (got, longest) = compute(&[of(0, 0, 1), of(0, 1, 1), of(1, 1, 1)]);
        is_fair("one on both", &got[..2], &[1, 1]);
        assert_eq!(got[0] + got[1], 400_000, "a core was idle");
        assert!(longest <= 2 * INTERVAL, "a client waited {longest} ns for a turn");
        let all = [of(0, 0, 1), of(0, 1, 1), of(1, 0, 1), of(1, 1, 1), of(2, 1, 1)];
        let (got, longest) = compute(&all);
        is_fair("two on both, one on one", &got, &[1, 1, 1]);
        assert!(longest <= 2 * INTERVAL, "a client waited {longest} ns for a turn");
        // Who is alone has all cores.
        assert_eq!(compute(&[of(0, 0, 1), of(0, 1, 1)]).0[0], 400_000);
    }

    #[test]
    fn absent_users_are_forgotten() {
        let exchange = Exchange::new(2);
        let mut heard = Vec::new();
        for uid in 0..3 * REMEMBERED_MAX as u32 {
            let told = Told {
                index: 0,
                uid,
                share: 1,
                served: Served { bytes: 512, requests: 1 },
                completed: (1, 1),
                in_flight: 0,
                costliest: 1,
                was_held: false,
                is_present: true,
            };
            exchange.tell(0, &[told], u64::from(uid) * CORE_PRESENCE_NS, &mut heard);
            assert_eq!(heard.len(), 1);
        }
        let state = exchange.lock();
        assert!(state.users.len() <= REMEMBERED_MAX && state.indexes.len() == state.users.len());
    }
}
