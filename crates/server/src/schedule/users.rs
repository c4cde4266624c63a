//! Schedule in two levels: turns by users first, and by the connections of each user then.
//!
//! Both levels are deficit round robin: one [`Schedule`] of users with their shares and rates, and one for
//! the connections of each user, which are equal among themselves. So a user has one share and one rate for
//! any number of connections. A user whose last connection has left is remembered, with the user's debt and
//! used tokens: otherwise a user could reconnect instead of waiting.
//!
//! Called by the core, for each device.

use super::exchange::{Exchange, Heard, Served, Told};
use super::local::LocalUses;
use super::window::{CommandCosts, HoldChange, Windows};
use super::{ClientKey, Error, Limits, Schedule, cost_of};
use std::collections::HashMap;
use std::sync::Arc;

/// Part of a core's service, as its denominator, that users who are served well on other cores have in any case.
const LOCAL_PART: i64 = 16;
/// Number of users from which on those without connections are forgotten.
const REMEMBERED_MAX: usize = 1024;

/// Key of a connection in a [`ByUser`] schedule, valid until the connection leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    slot: u32,
    /// Generation, which tells apart connections that used the same slot.
    turn: u32,
}

impl ConnectionKey {
    /// Returns a small number that is unique among the schedule's connections, for use as a table index.
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

/// Command that a connection was served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedCommand {
    /// Number of bytes of its range, which the connection is charged.
    pub(crate) bytes: u64,
    /// Number of bytes that count against the user's window until the command completes; `None` if it has completed.
    pub(crate) in_flight_bytes: Option<u64>,
}

/// Consecutive turns of one connection, which are charged together at their end ([`ByUser::end_run`]).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnRun {
    pub(crate) member: ConnectionKey,
    /// Cost that the connection may still be charged before another one is next; 0 or less if that is not known.
    credit: i64,
    cost: i64,
    bytes: u64,
    requests: u64,
    in_flight: CommandCosts,
}

impl TurnRun {
    /// Adds a command that the connection was served. Returns true if the connection is next again, at the same time.
    #[inline]
    pub(crate) fn serve(&mut self, command: ServedCommand) -> bool {
        let cost = cost_of(command.bytes);
        self.credit -= cost;
        self.cost += cost;
        self.bytes += command.bytes;
        self.requests += 1;
        if let Some(bytes) = command.in_flight_bytes {
            self.in_flight.add(bytes);
        }
        self.credit > 0
    }
}

#[derive(Clone, Debug)]
struct User {
    uid: u32,
    /// Key of the user in the schedule of users.
    turn: ClientKey,
    share: i64,
    connections: Schedule,
    /// Slots of the user's members, by the index of their connection.
    members: Vec<u32>,
    count: usize,
    /// Service that the user was given since the last exchange.
    served: Served,
}

impl User {
    #[inline]
    fn note_served(&mut self, bytes: u64) {
        self.served.bytes += bytes;
        self.served.requests += 1;
    }
}

#[derive(Clone, Debug)]
struct Entry {
    turn: u32,
    /// Index of the user's key, and key in the user's schedule; `None` if the slot is free.
    connection: Option<(usize, ClientKey)>,
}

/// Schedule of a device, by users and their connections.
#[derive(Clone, Debug, Default)]
pub struct ByUser {
    users: Schedule,
    /// Users, by the index of their keys.
    by_index: Vec<Option<User>>,
    /// Index of each user's key, by the user's number.
    indices: HashMap<u32, usize>,
    places: Vec<Entry>,
    free: Vec<u32>,
    windows: Windows,
    /// Exchange with the schedules of other cores, which finds the windows then; `None` for one core.
    shared: Option<Shared>,
}

/// Part of a schedule that is exchanged with other cores.
#[derive(Clone, Debug)]
struct Shared {
    exchange: Arc<Exchange>,
    uses: LocalUses,
    /// Lists of the last exchange, kept for their memory.
    told: Vec<Told>,
    heard: Vec<Heard>,
}

impl ByUser {
    /// Creates a schedule without users.
    pub fn new() -> ByUser {
        ByUser::default()
    }

    /// Makes this the schedule of one of several cores of a device. Called before the first connection joins.
    pub fn share(&mut self, exchange: Arc<Exchange>) {
        let (uses, told, heard) = (LocalUses::default(), Vec::new(), Vec::new());
        self.shared = Some(Shared { exchange, uses, told, heard });
    }

    /// Tells the schedules of other cores what this one, on core `core`, has served, and takes over what they have. Does
    /// nothing if there is one core.
    pub fn exchange(&mut self, core: usize, now: u64) {
        let ByUser { users, by_index, shared: Some(shared), .. } = self else { return };
        let Shared { exchange, uses, told, heard } = shared;
        told.clear();
        for user in by_index.iter_mut().flatten() {
            let (used, served) = (uses.of(user.turn), std::mem::take(&mut user.served));
            let is_served = served.requests > 0 || used.in_flight > 0 || used.completed.1 > 0;
            if user.count == 0 && !is_served {
                continue;
            }
            told.push(Told {
                index: user.turn.index(),
                uid: user.uid,
                share: user.share,
                served,
                completed: std::mem::take(&mut used.completed),
                in_flight: used.in_flight,
                costliest: used.costliest,
                was_held: std::mem::take(&mut used.was_held),
                is_present: is_served || users.is_waiting(user.turn),
            });
        }
        exchange.tell(core, told, now, heard);
        // Those who get the least elsewhere, in proportion to their shares, are charged nothing.
        let all = || told.iter().zip(heard.iter());
        let present = || all().filter(|(told, _)| told.is_present);
        let least = present().map(|(told, heard)| heard.elsewhere.cost() / told.share);
        let least = least.min().unwrap_or(i64::MAX);
        let shares: i64 = present().map(|(told, _)| told.share).sum();
        let local: i64 = present().map(|(told, _)| told.served.cost()).sum();
        for (told, heard) in all() {
            let Some(user) = &by_index[told.index] else { continue };
            let served = heard.elsewhere;
            let cost = served.cost().saturating_sub(least.saturating_mul(told.share));
            // Who is absent would come back with a debt that grew while nobody waited.
            let cost = if told.is_present { cost } else { 0 };
            // The debt is paid off while the others are served that much each. All of them together are served less than
            // in the last interval by then, so that each client has a turn in every interval.
            let debt_max =
                (local - local / LOCAL_PART).saturating_mul(told.share) / (shares - told.share).max(1);
            users.charge_elsewhere(user.turn, (cost, debt_max), (served.bytes, served.requests), now);
            let used = uses.of(user.turn);
            used.limit = heard.limit;
            users.hold(user.turn, used.is_held());
        }
    }

    /// Adds a connection of a user. The limits hold for all connections of the user together; those of the
    /// first connection count while the user is remembered.
    ///
    /// # Errors
    /// Same as [`Schedule::join`].
    pub fn join(&mut self, uid: u32, limits: Limits) -> Result<ConnectionKey, Error> {
        let index = match self.indices.get(&uid) {
            Some(index) => *index,
            None => self.add_user(uid, limits)?,
        };
        let user = self.by_index[index].as_mut().ok_or(Error::Full)?;
        let connection = user.connections.join(Limits::default())?;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.places.push(Entry { turn: 0, connection: None });
            self.places.len() as u32 - 1
        });
        if user.members.len() <= connection.index() {
            user.members.resize(connection.index() + 1, 0);
        }
        user.members[connection.index()] = slot;
        user.count += 1;
        let place = &mut self.places[slot as usize];
        place.connection = Some((index, connection));
        Ok(ConnectionKey { slot, turn: place.turn })
    }

    /// Adds a user without connections. Returns the index of the user's key.
    fn add_user(&mut self, uid: u32, limits: Limits) -> Result<usize, Error> {
        self.forget_some();
        let turn = self.users.join(limits)?;
        let index = turn.index();
        if self.by_index.len() <= index {
            self.by_index.resize(index + 1, None);
        }
        let (share, served) = (i64::from(limits.share), Served::default());
        let user =
            User { uid, turn, share, connections: Schedule::new(), members: Vec::new(), count: 0, served };
        self.by_index[index] = Some(user);
        self.indices.insert(uid, index);
        Ok(index)
    }

    /// Removes a connection from the schedule. A connection that has left already is ignored.
    pub fn leave(&mut self, member: ConnectionKey) {
        let Some((user, connection)) = self.find(member) else { return };
        user.connections.leave(connection);
        user.count -= 1;
        let (turn, is_idle) = (user.turn, user.connections.is_idle());
        if is_idle {
            self.users.deactivate(turn);
        }
        let place = &mut self.places[member.slot as usize];
        place.connection = None;
        place.turn = place.turn.wrapping_add(1);
        self.free.push(member.slot);
    }

    /// Notes that a connection has requests.
    #[inline]
    pub fn wants(&mut self, member: ConnectionKey) {
        let Some((user, connection)) = self.find(member) else { return };
        user.connections.activate(connection);
        let turn = user.turn;
        self.users.activate(turn);
    }

    /// Notes that a connection has no more requests.
    #[inline]
    pub fn wants_nothing(&mut self, member: ConnectionKey) {
        let Some((user, connection)) = self.find(member) else { return };
        user.connections.deactivate(connection);
        if user.connections.is_idle() {
            let turn = user.turn;
            self.users.deactivate(turn);
        }
    }

    /// Returns the connection whose request is served next, or `None` if no connection has requests or the
    /// users of all of those wait for a limit.
    #[inline]
    pub fn next(&mut self, now: u64) -> Option<ConnectionKey> {
        let turn = self.users.next(now)?;
        let user = self.by_index[turn.index()].as_mut()?;
        // A user is in the circle only while one of the user's connections is, and connections have no limits
        // of their own.
        let connection = user.connections.next(now)?;
        let slot = user.members[connection.index()];
        Some(ConnectionKey { slot, turn: self.places[slot as usize].turn })
    }

    /// Charges a connection and its user for a request that moves this number of bytes.
    #[inline]
    pub fn served(&mut self, member: ConnectionKey, bytes: u64, now: u64) {
        let Some((user, connection)) = self.find(member) else { return };
        user.connections.charge(connection, bytes, now);
        user.note_served(bytes);
        let turn = user.turn;
        self.users.charge(turn, bytes, now);
    }

    /// Returns the connection whose request is served next, like [`ByUser::next`], for one or more turns.
    #[inline]
    pub(crate) fn next_run(&mut self, now: u64) -> Option<TurnRun> {
        let member = self.next(now)?;
        let (user, connection) = self.find(member)?;
        let (turn, credit) = (user.turn, user.connections.credit(connection));
        // What is in flight has a say in who is next, too, if other users are present, or other cores.
        let credit = match self.shared.is_none() && !self.windows.has_others(turn) {
            true => credit.min(self.users.credit(turn)),
            false => 0,
        };
        Some(TurnRun { member, credit, ..TurnRun::default() })
    }

    /// Charges the turns of a run to the connection and its user.
    #[inline]
    pub(crate) fn end_run(&mut self, run: &TurnRun, now: u64) {
        let TurnRun { member, cost, bytes, requests, in_flight, .. } = *run;
        let Some((user, connection)) = self.find(member) else { return };
        user.connections.charge_run(connection, cost, (bytes, requests), now);
        user.served.bytes += bytes;
        user.served.requests += requests;
        let (turn, share) = (user.turn, user.share);
        if in_flight.commands > 0 {
            self.note_in_flight(turn, share, in_flight, now);
        }
        self.users.charge_run(turn, cost, (bytes, requests), now);
    }

    /// Returns true if the connection would be next if it had requests, since none has any.
    #[inline]
    pub(crate) fn would_be_next(&mut self, member: ConnectionKey) -> bool {
        // While no user is in the circle, no connection of a user is.
        let Some((user, connection)) = self.find(member) else { return false };
        let (turn, would_be_next) = (user.turn, user.connections.would_be_next(connection));
        would_be_next && self.users.would_be_next(turn)
    }

    /// Charges a connection that [would be next](ByUser::would_be_next), and its user, as if it had had its turn between
    /// [`ByUser::wants`] and [`ByUser::wants_nothing`].
    #[inline]
    pub(crate) fn served_alone(&mut self, member: ConnectionKey, command: ServedCommand, now: u64) {
        let ServedCommand { bytes, in_flight_bytes } = command;
        let Some((user, connection)) = self.find(member) else { return };
        user.connections.charge_alone(connection, bytes);
        user.note_served(bytes);
        let (turn, share) = (user.turn, user.share);
        if let Some(bytes) = in_flight_bytes {
            self.note_in_flight(turn, share, CommandCosts::one(bytes), now);
        }
        self.users.charge_alone(turn, bytes);
    }

    /// Returns the key of a connection's user, for [`ByUser::completed`].
    pub(crate) fn user(&mut self, member: ConnectionKey) -> Option<ClientKey> {
        self.find(member).map(|(user, _)| user.turn)
    }

    /// Notes that a command of the connection is in flight. Returns the connection's user, for
    /// [`ByUser::completed`].
    pub fn submitted(&mut self, member: ConnectionKey, bytes: u64, now: u64) -> Option<ClientKey> {
        let (user, _) = self.find(member)?;
        let (turn, share) = (user.turn, user.share);
        self.note_in_flight(turn, share, CommandCosts::one(bytes), now);
        Some(turn)
    }

    #[inline]
    fn note_in_flight(&mut self, turn: ClientKey, share: i64, commands: CommandCosts, now: u64) {
        if let Some(shared) = &mut self.shared {
            let is_held = shared.uses.submitted(turn, commands);
            return self.users.hold(turn, is_held);
        }
        match self.windows.submitted(turn, share, commands, now) {
            HoldChange::None => {}
            HoldChange::User(is_held) => self.users.hold(turn, is_held),
            HoldChange::All => self.hold_all(),
        }
    }

    /// Notes that the device has completed a command of the user that was [submitted](ByUser::submitted).
    pub fn completed(&mut self, user: ClientKey, bytes: u64, now: u64) {
        self.completed_all(user, CommandCosts::one(bytes), now);
    }

    /// Like [`ByUser::completed`], for several commands of the user.
    #[inline]
    pub(crate) fn completed_all(&mut self, user: ClientKey, commands: CommandCosts, now: u64) {
        if let Some(shared) = &mut self.shared {
            let is_held = shared.uses.completed(user, commands);
            return self.users.hold(user, is_held);
        }
        match self.windows.completed(user, commands, now) {
            HoldChange::None => {}
            HoldChange::User(is_held) => self.users.hold(user, is_held),
            HoldChange::All => self.hold_all(),
        }
    }

    /// Holds every user whose window is full, and no other.
    #[cold]
    fn hold_all(&mut self) {
        let mut number = 0;
        while let Some(user) = self.windows.present(number) {
            number += 1;
            let is_held = self.windows.is_held(user);
            self.users.hold(user, is_held);
        }
    }

    /// Returns the earliest time at which a user with requests is below the user's rate limits; `None` if
    /// there is no such user.
    pub fn ready_at(&self) -> Option<u64> {
        self.users.ready_at()
    }

    #[inline]
    fn find(&mut self, member: ConnectionKey) -> Option<(&mut User, ClientKey)> {
        let place = self.places.get(member.slot as usize).filter(|place| place.turn == member.turn)?;
        let (index, connection) = place.connection?;
        self.by_index[index].as_mut().map(|user| (user, connection))
    }

    /// Forgets users without connections, if too many are remembered.
    fn forget_some(&mut self) {
        if self.indices.len() < REMEMBERED_MAX {
            return;
        }
        let ByUser { users, by_index, indices, .. } = self;
        indices.retain(|_, index| {
            let gone = by_index[*index].take_if(|user| user.count == 0);
            if let Some(user) = &gone {
                users.leave(user.turn);
            }
            gone.is_none()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::REQUEST_CHARGE_BYTES;
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns the bytes that each user moved, if each has this number of connections that always have
    /// requests.
    fn contend(users: &[(Limits, usize)], until: u64) -> Vec<u64> {
        let mut schedule = ByUser::new();
        let mut of = HashMap::new();
        for (uid, (limits, connections)) in users.iter().enumerate() {
            for _ in 0..*connections {
                let member = schedule.join(uid as u32, *limits).unwrap();
                schedule.wants(member);
                of.insert(member, uid);
            }
        }
        let (mut now, mut bytes) = (0, vec![0; users.len()]);
        while now < until {
            match schedule.next(now) {
                Some(next) => {
                    schedule.served(next, 4096, now);
                    bytes[of[&next]] += 4096;
                    now += 4096 + REQUEST_CHARGE_BYTES as u64;
                }
                None => now = schedule.ready_at().unwrap().max(now + 1),
            }
        }
        bytes
    }

    #[test]
    fn connections_buy_no_more_than_one_share() {
        let got = contend(&[(Limits::default(), 100), (Limits::default(), 1)], SECOND);
        let ratio = got[0] as f64 / got[1] as f64;
        assert!((0.97..1.03).contains(&ratio), "{got:?}");
        let three = Limits { share: 3, ..Limits::default() };
        let got = contend(&[(Limits::default(), 10), (three, 2)], SECOND);
        let ratio = got[1] as f64 / got[0] as f64;
        assert!((2.9..3.1).contains(&ratio), "{got:?}");
    }

    #[test]
    fn a_rate_is_that_of_all_connections() {
        let limits = Limits { bytes_per_second: Some(10_000_000), ..Limits::default() };
        let got = contend(&[(limits, 100), (Limits::default(), 1)], SECOND);
        assert!((got[0] as f64 / 10e6 - 1.0).abs() < 0.05, "{got:?}");
        assert!(got[1] > 100_000_000, "{got:?}");
    }

    #[test]
    fn who_connects_anew_has_not_waited() {
        let limits = Limits { requests_per_second: Some(1000), ..Limits::default() };
        let mut schedule = ByUser::new();
        let mut done = 0;
        for now in (0..SECOND).step_by(10_000) {
            let member = schedule.join(7, limits).unwrap();
            schedule.wants(member);
            while let Some(next) = schedule.next(now) {
                schedule.served(next, 512, now);
                done += 1;
            }
            schedule.leave(member);
        }
        assert!((900..1100).contains(&done), "{done}");
    }

    #[test]
    fn who_has_left_is_nobody() {
        let mut schedule = ByUser::new();
        let gone = schedule.join(7, Limits::default()).unwrap();
        schedule.wants(gone);
        schedule.leave(gone);
        schedule.leave(gone);
        assert_eq!(schedule.next(0), None);
        let there = schedule.join(7, Limits::default()).unwrap();
        assert_ne!(gone, there);
        schedule.wants(gone);
        assert_eq!(schedule.next(0), None);
        schedule.wants(there);
        assert_eq!(schedule.next(0), Some(there));
        for uid in 0..3 * REMEMBERED_MAX as u32 {
            let member = schedule.join(uid + 8, Limits::default()).unwrap();
            schedule.leave(member);
        }
        assert!(schedule.indices.len() <= REMEMBERED_MAX + 1);
        assert_eq!(schedule.next(0), Some(there));
    }

    /// Limits of users in tests: some have a share or a rate of their own.
    fn limits_of_user(uid: u32) -> Limits {
        match uid {
            1 => Limits { share: 3, ..Limits::default() },
            2 => Limits { requests_per_second: Some(5_000_000), ..Limits::default() },
            _ => Limits::default(),
        }
    }

    proptest! {
        /// Turns in runs are the same turns as one by one, whoever has requests, and lead to the same schedule.
        #[test]
        fn runs_are_the_same_turns(
            uids in proptest::collection::vec(0u32..3, 1..5),
            steps in proptest::collection::vec((0u8..4, 0usize..5, 0u64..1 << 18, any::<bool>()), 1..300),
        ) {
            let mut one_by_one = ByUser::new();
            let join = |uid: &u32| one_by_one.join(*uid, limits_of_user(*uid)).unwrap();
            let members: Vec<ConnectionKey> = uids.iter().map(join).collect();
            let mut in_runs = one_by_one.clone();
            let mut in_flight: Vec<(ClientKey, u64)> = Vec::new();
            let mut run: Option<TurnRun> = None;
            for (at, (what, who, bytes, is_queued)) in steps.into_iter().enumerate() {
                let (now, member) = (at as u64 / 8 * 1000, members[who % members.len()]);
                if what > 1 {
                    // A run is as long as it may be, and ends with the time of its beginning.
                    let open = run.take().or_else(|| in_runs.next_run(now));
                    let next = one_by_one.next(now);
                    prop_assert_eq!(open.map(|open| open.member), next);
                    let Some(mut open) = open else { continue };
                    let in_flight_bytes = is_queued.then_some(bytes);
                    let is_next = open.serve(ServedCommand { bytes, in_flight_bytes });
                    if is_queued {
                        in_flight.push((one_by_one.submitted(open.member, bytes, now).unwrap(), bytes));
                    }
                    one_by_one.served(open.member, bytes, now);
                    if !is_next || at % 8 == 7 {
                        in_runs.end_run(&open, now);
                    } else {
                        run = Some(open);
                    }
                    continue;
                }
                if let Some(open) = run.take() {
                    in_runs.end_run(&open, now);
                }
                if what == 0 {
                    one_by_one.wants(member);
                    in_runs.wants(member);
                } else if let Some((user, bytes)) = in_flight.pop() {
                    one_by_one.completed(user, bytes, now);
                    in_runs.completed(user, bytes, now);
                }
            }
        }

        /// A turn of a connection that would be next is the same turn as between entering the circle and leaving it.
        #[test]
        fn a_turn_alone_is_the_same_turn(
            uids in proptest::collection::vec(0u32..3, 1..5),
            steps in proptest::collection::vec((0usize..5, 0u64..1 << 30, any::<bool>()), 1..100),
        ) {
            let mut entering = ByUser::new();
            let join = |uid: &u32| entering.join(*uid, limits_of_user(*uid)).unwrap();
            let members: Vec<ConnectionKey> = uids.iter().map(join).collect();
            let mut alone = entering.clone();
            for (at, (who, bytes, is_queued)) in steps.into_iter().enumerate() {
                let (now, member) = (at as u64 * 1000, members[who % members.len()]);
                if !alone.would_be_next(member) {
                    continue;
                }
                entering.wants(member);
                prop_assert_eq!(entering.next(now), Some(member));
                if is_queued {
                    entering.submitted(member, bytes, now);
                }
                entering.served(member, bytes, now);
                entering.wants_nothing(member);
                let in_flight_bytes = is_queued.then_some(bytes);
                alone.served_alone(member, ServedCommand { bytes, in_flight_bytes }, now);
                prop_assert_eq!(format!("{alone:?}"), format!("{entering:?}"));
            }
        }
    }
}
