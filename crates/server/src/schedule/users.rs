//! Turns by users first, and by the connections of each user then.
//!
//! Two levels of the same deficit round robin: a [`Schedule`] of users, with their shares and rates, and one of each user's
//! connections, which are equal among themselves. So a user has one share and one rate, whatever the number of connections.
//! A user who has no connection left is remembered, with what the user owes and has used of its rate: else one could
//! connect anew instead of waiting.
//!
//! Called by the core, for each device.

use super::window::Windows;
use super::{Client, Error, Limits, Schedule};
use std::collections::HashMap;

/// Users without a connection that are remembered; when there are more they are forgotten.
const REMEMBERED_MAX: usize = 1024;

/// A connection in a [`ByUser`] schedule, until it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    slot: u32,
    /// Tells connections apart that had the same slot.
    turn: u32,
}

impl Member {
    /// For tables: a small number that is the connection's own until it leaves.
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

#[derive(Clone, Debug)]
struct User {
    /// The user among all users.
    turn: Client,
    share: i64,
    connections: Schedule,
    /// Slots of members, by a connection's index.
    members: Vec<u32>,
    count: usize,
}

#[derive(Clone, Debug)]
struct Place {
    turn: u32,
    /// None: it is free.
    connection: Option<(u32, Client)>,
}

/// Whose turn it is, by users.
#[derive(Clone, Debug, Default)]
pub struct ByUser {
    users: Schedule,
    by_uid: HashMap<u32, User>,
    /// Users, by their index in `users`.
    uids: Vec<u32>,
    places: Vec<Place>,
    free: Vec<u32>,
    windows: Windows,
}

impl ByUser {
    /// Nobody yet.
    pub fn new() -> ByUser {
        ByUser::default()
    }

    /// A connection more of a user, whose limits hold for all of the user's connections together.
    ///
    /// # Errors
    /// As [`Schedule::join`].
    pub fn join(&mut self, uid: u32, limits: Limits) -> Result<Member, Error> {
        if !self.by_uid.contains_key(&uid) {
            self.forget_some();
            let turn = self.users.join(limits)?;
            if self.uids.len() <= turn.index() {
                self.uids.resize(turn.index() + 1, 0);
            }
            self.uids[turn.index()] = uid;
            let share = i64::from(limits.share);
            let user = User { turn, share, connections: Schedule::new(), members: Vec::new(), count: 0 };
            self.by_uid.insert(uid, user);
        }
        let user = self.by_uid.get_mut(&uid).ok_or(Error::Full)?;
        let connection = user.connections.join(Limits::default())?;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { turn: 0, connection: None });
            self.places.len() as u32 - 1
        });
        if user.members.len() <= connection.index() {
            user.members.resize(connection.index() + 1, 0);
        }
        user.members[connection.index()] = slot;
        user.count += 1;
        let place = &mut self.places[slot as usize];
        place.connection = Some((uid, connection));
        Ok(Member { slot, turn: place.turn })
    }

    /// A connection is gone, with whatever it wanted.
    pub fn leave(&mut self, member: Member) {
        let Some((user, connection)) = self.find(member) else { return };
        user.connections.leave(connection);
        user.count -= 1;
        let (turn, is_idle) = (user.turn, user.connections.is_idle());
        if is_idle {
            self.users.wants_nothing(turn);
        }
        let place = &mut self.places[member.slot as usize];
        place.connection = None;
        place.turn = place.turn.wrapping_add(1);
        self.free.push(member.slot);
    }

    /// The connection has requests.
    #[inline]
    pub fn wants(&mut self, member: Member) {
        let Some((user, connection)) = self.find(member) else { return };
        user.connections.wants(connection);
        let turn = user.turn;
        self.users.wants(turn);
    }

    /// The connection has none any more.
    #[inline]
    pub fn wants_nothing(&mut self, member: Member) {
        let Some((user, connection)) = self.find(member) else { return };
        user.connections.wants_nothing(connection);
        if user.connections.is_idle() {
            let turn = user.turn;
            self.users.wants_nothing(turn);
        }
    }

    /// Whose request is taken next; none if nobody wants anything, or all who do have to wait for their limits.
    #[inline]
    pub fn next(&mut self, now: u64) -> Option<Member> {
        let turn = self.users.next(now)?;
        let user = self.by_uid.get_mut(&self.uids[turn.index()])?;
        // A user is in the circle as long as a connection is, and those have no limits of their own.
        let connection = user.connections.next(now)?;
        let slot = user.members[connection.index()];
        Some(Member { slot, turn: self.places[slot as usize].turn })
    }

    /// The connection's request was taken, which moves so many bytes.
    #[inline]
    pub fn served(&mut self, member: Member, bytes: u64, now: u64) {
        let Some((user, connection)) = self.find(member) else { return };
        user.connections.served(connection, bytes, now);
        let turn = user.turn;
        self.users.served(turn, bytes, now);
    }

    /// The device was given the connection's command, which it has not done yet; answers whose it is, for
    /// [`ByUser::completed`].
    pub fn submitted(&mut self, member: Member, bytes: u64, now: u64) -> Option<Client> {
        let (user, _) = self.find(member)?;
        let (turn, share) = (user.turn, user.share);
        let (is_held, is_changed) = self.windows.submitted(turn, share, bytes, now);
        self.users.hold(turn, is_held);
        if is_changed {
            self.hold_all();
        }
        Some(turn)
    }

    /// The device has done a user's command that was [submitted](ByUser::submitted).
    pub fn completed(&mut self, user: Client, bytes: u64, now: u64) {
        let is_changed = self.windows.completed(user, bytes, now);
        let is_held = self.windows.is_held(user);
        self.users.hold(user, is_held);
        if is_changed {
            self.hold_all();
        }
    }

    /// Looks for each user whether the user's window is full.
    #[cold]
    fn hold_all(&mut self) {
        let mut number = 0;
        while let Some(user) = self.windows.present(number) {
            number += 1;
            let is_held = self.windows.is_held(user);
            self.users.hold(user, is_held);
        }
    }

    /// When some user who waits for a limit need not any more; none if nobody does.
    pub fn ready_at(&self) -> Option<u64> {
        self.users.ready_at()
    }

    #[inline]
    fn find(&mut self, member: Member) -> Option<(&mut User, Client)> {
        let place = self.places.get(member.slot as usize).filter(|place| place.turn == member.turn)?;
        let (uid, connection) = place.connection?;
        self.by_uid.get_mut(&uid).map(|user| (user, connection))
    }

    /// Forgets users without connections where too many are remembered.
    fn forget_some(&mut self) {
        if self.by_uid.len() < REMEMBERED_MAX {
            return;
        }
        let ByUser { users, by_uid, .. } = self;
        by_uid.retain(|_, user| {
            if user.count == 0 {
                users.leave(user.turn);
            }
            user.count > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::REQUEST;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Bytes that each user got, where each has so many connections that always want something.
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
                    now += 4096 + REQUEST as u64;
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
        assert!(schedule.by_uid.len() <= REMEMBERED_MAX + 1);
        assert_eq!(schedule.next(0), Some(there));
    }
}
