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
use super::window::Windows;
use super::{ClientKey, Error, Limits, Schedule};
use std::collections::HashMap;
use std::sync::Arc;

/// Part of a core's service, as its denominator, that users who are served well on other cores have in any case.
const LOCAL_PART: i64 = 16;
/// Number of users from which on those without connections are forgotten.
const REMEMBERED_MAX: usize = 1024;

/// Key of a connection in a [`ByUser`] schedule, valid until the connection leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// What the user was served since the last exchange.
    served: Served,
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
        user.served.bytes += bytes;
        user.served.requests += 1;
        let turn = user.turn;
        self.users.charge(turn, bytes, now);
    }

    /// Notes that a command of the connection is in flight. Returns the connection's user, for
    /// [`ByUser::completed`].
    pub fn submitted(&mut self, member: ConnectionKey, bytes: u64, now: u64) -> Option<ClientKey> {
        let (user, _) = self.find(member)?;
        let (turn, share) = (user.turn, user.share);
        if let Some(shared) = &mut self.shared {
            let is_held = shared.uses.submitted(turn, bytes);
            self.users.hold(turn, is_held);
            return Some(turn);
        }
        let (is_held, is_changed) = self.windows.submitted(turn, share, bytes, now);
        self.users.hold(turn, is_held);
        if is_changed {
            self.hold_all();
        }
        Some(turn)
    }

    /// Notes that the device has completed a command of the user that was [submitted](ByUser::submitted).
    pub fn completed(&mut self, user: ClientKey, bytes: u64, now: u64) {
        if let Some(shared) = &mut self.shared {
            let is_held = shared.uses.completed(user, bytes);
            return self.users.hold(user, is_held);
        }
        let is_changed = self.windows.completed(user, bytes, now);
        let is_held = self.windows.is_held(user);
        self.users.hold(user, is_held);
        if is_changed {
            self.hold_all();
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
}
