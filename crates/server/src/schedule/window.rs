//! Windows: limits of what each user may have in flight at a device while several users compete for it.
//!
//! A device serves commands in an order of its own, mostly that of their submission. Therefore the part of
//! the device that a user gets is the user's part of all that is in flight (Little's law), whatever the order
//! of turns, and a user who fills a deep queue makes the others wait behind it. So while several users
//! compete for a device, each may have a *window* in flight: the user's share of what keeps the device busy,
//! and one command at least. A user who is alone has no window.
//!
//! The cost in flight that keeps a device busy is found by trial. A *round* measures the device's rate during
//! a few windows. Windows are doubled while that raises the rate by at least [`GAIN`], and halved while that
//! hardly lowers the rate; both are tried again now and then. A trial begins only after a round in which a
//! window held a user back. Costs are those of turns: bytes, plus [`REQUEST`] for each command.
//!
//! Called by [`super::ByUser`] for each command that is submitted or completed, and by [`super::exchange`] for the
//! commands of all cores of a device together. This module reads no clock
//! but the caller's, so that the same commands at the same times lead to the same windows.

use super::{ClientKey, REQUEST_CHARGE_BYTES};

/// Time after a user's last completion for which the user still counts as present, in nanoseconds.
const PRESENCE_NS: u64 = 1_000_000_000;
/// Number of windows that are served in a round before its measurement begins, and during the measurement.
const SETTLING: i64 = 1;
const MEASURED: i64 = 4;
/// Least number of commands of a measurement.
const COMMANDS: u32 = 32;
/// Part by which the rate must rise if windows twice as large are to be kept.
const GAIN: f64 = 1.0 / 16.0;
/// Rest between two trials, in lengths of a measurement.
const REST: u64 = 16;
/// Greatest window of a share of 1, in multiples of the smallest window: more than any device has in flight.
const WINDOW_MAX: i64 = 1 << 13;

/// Windows of all users of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    /// Usage of each user, by the user's index.
    users: Vec<Option<UserUsage>>,
    /// Users who are present: they have commands in flight, or had until recently.
    present: Vec<ClientKey>,
    /// Sum of the present users' shares.
    shares: i64,
    /// Cost that a share of 1 may have in flight.
    window: i64,
    round: Measurement,
    trial: Trial,
    /// True if the next trial is one of larger windows.
    tries_larger: bool,
    rested_at_ns: u64,
    looked_ns: u64,
    /// Least time of the settling and of the measurement of a round.
    round_ns: u64,
}

/// Commands that a user has in flight on all cores together, as an exchange knows them.
#[derive(Clone, Copy, Debug)]
pub(super) struct UseOfDevice {
    /// Cost of the commands in flight.
    pub(super) in_flight: i64,
    /// Cost of the costliest recent command.
    pub(super) costliest: i64,
    /// Number of parts that the user's window is divided into.
    pub(super) parts: i64,
    /// True if commands are in flight, or have completed since the last exchange.
    pub(super) is_using: bool,
}

/// Users whose holds have changed by a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldChange {
    /// Nobody. While only one user is present, nobody is held.
    None,
    /// The command's user, who is to be held if true.
    User(bool),
    /// Perhaps each of the users who are present.
    All,
}

/// Usage of the device by one user: the cost of the commands in flight.
#[derive(Clone, Debug)]
struct UserUsage {
    user: ClientKey,
    share: i64,
    cost: i64,
    /// Cost of the user's costliest recent command; it decays with each command.
    costliest: i64,
    /// Number of parts that the user's window is divided into, for as many cores.
    parts: i64,
    seen_ns: u64,
    is_present: bool,
}

impl UserUsage {
    /// Returns true if the user's window is full; `window` is that of a share of 1.
    #[inline]
    fn is_held(&self, window: i64) -> bool {
        self.cost >= window.saturating_mul(self.share).max(1)
    }
}

/// Measurement of the device's rate.
#[derive(Clone, Debug, Default)]
struct Measurement {
    /// Time at which the round began: `None` until its first command has completed.
    settling_since_ns: Option<u64>,
    /// Cost to be served before the measurement begins, and during it.
    settling: i64,
    measured: i64,
    began_ns: u64,
    served: i64,
    commands: u32,
    /// True if some user had to wait because of an in-flight limit since the measurement began.
    held: bool,
}

/// Trial of another window size, with the device's rate in the round before.
#[derive(Clone, Copy, Debug, Default)]
enum Trial {
    #[default]
    None,
    Larger {
        before: f64,
    },
    Smaller {
        before: f64,
    },
}

/// Returns the cost of a command with this number of bytes.
#[inline]
pub(super) fn cost_of(bytes: u64) -> i64 {
    bytes.min(1 << 30) as i64 + REQUEST_CHARGE_BYTES
}

/// Costs of some commands of one user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommandCosts {
    /// Sum of the costs.
    pub(super) cost: i64,
    costliest: i64,
    pub(crate) commands: u32,
}

impl CommandCosts {
    /// Returns the costs of one command with this number of bytes.
    #[inline]
    pub(crate) fn one(bytes: u64) -> CommandCosts {
        let cost = cost_of(bytes);
        CommandCosts { cost, costliest: cost, commands: 1 }
    }

    /// Adds a command with this number of bytes.
    #[inline]
    pub(crate) fn add(&mut self, bytes: u64) {
        let cost = cost_of(bytes);
        self.cost += cost;
        self.costliest = self.costliest.max(cost);
        self.commands += 1;
    }

    /// Returns the cost of the costliest recent command, if `before` was it before these, which decays with each command.
    #[inline]
    pub(super) fn costliest_with(&self, before: i64) -> i64 {
        let decay = before / 64 * i64::from(self.commands.min(64));
        self.costliest.max(before - decay)
    }
}

impl Windows {
    /// Notes that commands of a user were submitted. Returns who is to be held now.
    #[inline]
    pub(super) fn submitted(
        &mut self,
        user: ClientKey,
        share: i64,
        commands: CommandCosts,
        now: u64,
    ) -> HoldChange {
        let (is_contended, window) = (self.present.len() > 1, self.window);
        let known = self.user_mut(user, share);
        known.cost += commands.cost;
        known.costliest = commands.costliest_with(known.costliest);
        known.seen_ns = now;
        if !known.is_present {
            self.enter(user, share, now);
            return HoldChange::All;
        }
        if !is_contended {
            return HoldChange::None;
        }
        let is_held = known.is_held(window);
        self.round.held |= is_held;
        HoldChange::User(is_held)
    }

    /// Notes that commands of a user have completed. Returns who is to be held now.
    #[inline]
    pub(super) fn completed(&mut self, user: ClientKey, commands: CommandCosts, now: u64) -> HoldChange {
        let (CommandCosts { cost, commands, .. }, is_contended) = (commands, self.present.len() > 1);
        if let Some(known) = self.known(user) {
            // A user whose entry was replaced meanwhile is not found: the command still completes, uncounted.
            known.cost = (known.cost - cost).max(0);
            known.seen_ns = now;
        }
        let is_changed = is_contended && self.measure(cost, commands, now);
        if is_changed | (now.saturating_sub(self.looked_ns) > PRESENCE_NS / 4 && self.drop_absent(now)) {
            return HoldChange::All;
        }
        match is_contended {
            true => HoldChange::User(self.is_held(user)),
            false => HoldChange::None,
        }
    }

    /// Counts a user among those who are present.
    #[cold]
    fn enter(&mut self, user: ClientKey, share: i64, now: u64) {
        if let Some(known) = self.known(user) {
            known.is_present = true;
        }
        self.present.push(user);
        self.shares += share;
        self.begin_anew(now);
    }

    /// Makes windows that are found by rounds whose settling and measurement last at least `round_ns` nanoseconds each.
    pub(super) fn with_rounds_of(round_ns: u64) -> Windows {
        Windows { round_ns, ..Windows::default() }
    }

    /// Notes what a user has in flight on all cores together.
    pub(super) fn note_use(&mut self, user: ClientKey, share: i64, of_user: UseOfDevice, now: u64) {
        let UseOfDevice { in_flight, costliest, parts, is_using } = of_user;
        let known = self.user_mut(user, share);
        (known.cost, known.costliest, known.parts) = (in_flight, costliest, parts);
        if !is_using {
            return;
        }
        known.seen_ns = now;
        if !known.is_present {
            self.enter(user, share, now);
        }
    }

    /// Notes that some user had to wait because of an in-flight limit.
    pub(super) fn note_held(&mut self, was_held: bool) {
        self.round.held |= was_held;
    }

    /// Notes that this number of commands has completed, of this cost together.
    pub(super) fn note_completed(&mut self, cost: i64, commands: u32, now: u64) {
        if self.present.len() > 1 && commands > 0 {
            self.measure(cost, commands, now);
        }
    }

    /// Looks which users are still present, now and then.
    pub(super) fn look(&mut self, now: u64) {
        if now.saturating_sub(self.looked_ns) > PRESENCE_NS / 4 {
            self.drop_absent(now);
        }
    }

    /// Returns true if users other than this one are present, so that windows count.
    #[inline]
    pub(super) fn has_others(&self, user: ClientKey) -> bool {
        match self.present.as_slice() {
            [] => false,
            [only] => *only != user,
            _ => true,
        }
    }

    /// Returns the window of a share of 1; `None` unless several users are present.
    pub(super) fn contended(&self) -> Option<i64> {
        (self.present.len() > 1).then_some(self.window)
    }

    /// Returns true if the user's window is full while several users are present.
    pub(super) fn is_held(&mut self, user: ClientKey) -> bool {
        let (window, is_contended) = (self.window, self.present.len() > 1);
        let Some(known) = self.known(user) else { return false };
        let is_held = is_contended && known.is_held(window);
        self.round.held |= is_held;
        is_held
    }

    /// Returns the present user with this index, or `None` beyond the last.
    pub(super) fn present(&self, number: usize) -> Option<ClientKey> {
        self.present.get(number).copied()
    }

    #[inline]
    fn known(&mut self, user: ClientKey) -> Option<&mut UserUsage> {
        self.users.get_mut(user.index())?.as_mut().filter(|known| known.user == user)
    }

    #[inline]
    fn user_mut(&mut self, user: ClientKey, share: i64) -> &mut UserUsage {
        let index = user.index();
        if !matches!(self.users.get(index), Some(Some(known)) if known.user == user) {
            self.add(user, share);
        }
        self.users[index].as_mut().expect("it was there, or was added")
    }

    /// Adds a user who has nothing in flight. A user who had the same index has left, and stays in `present` until the next
    /// look at who is present.
    #[cold]
    fn add(&mut self, user: ClientKey, share: i64) {
        if self.users.len() <= user.index() {
            self.users.resize(user.index() + 1, None);
        }
        self.users[user.index()] =
            Some(UserUsage { user, share, cost: 0, costliest: 0, parts: 1, seen_ns: 0, is_present: false });
    }

    /// Removes users who have had nothing in flight for [`PRESENCE_NS`]. Returns true if there were any.
    fn drop_absent(&mut self, now: u64) -> bool {
        self.looked_ns = now;
        let before = self.present.len();
        let Windows { users, present, shares, .. } = self;
        *shares = 0;
        present.retain(|user| {
            let known = users.get_mut(user.index()).and_then(Option::as_mut);
            let Some(known) = known.filter(|known| known.user == *user) else { return false };
            known.is_present = known.cost > 0 || now.saturating_sub(known.seen_ns) <= PRESENCE_NS;
            *shares += if known.is_present { known.share } else { 0 };
            known.is_present
        });
        let is_changed = present.len() < before;
        if is_changed {
            self.begin_anew(now);
        }
        is_changed
    }

    /// Returns the smallest window of a share of 1: with it, even the smallest share allows the costliest
    /// command in each part.
    fn smallest(&self) -> i64 {
        let known = self.present.iter().filter_map(|user| self.users[user.index()].as_ref());
        let (costliest, share) = known.fold((1, i64::MAX), |(cost, share), known| {
            (cost.max(known.costliest * known.parts), share.min(known.share))
        });
        (costliest / share.max(1)).max(1)
    }

    /// Ends a trial without its conclusion and begins a new round, because other users are present now.
    fn begin_anew(&mut self, now: u64) {
        self.window = match self.trial {
            Trial::None => self.window,
            Trial::Larger { .. } => self.window / 2,
            Trial::Smaller { .. } => self.window.saturating_mul(2),
        };
        (self.trial, self.rested_at_ns) = (Trial::None, now);
        self.tries_larger = true;
        self.next_round();
    }

    fn next_round(&mut self) {
        let smallest = self.smallest();
        self.window = self.window.clamp(smallest, smallest * WINDOW_MAX);
        let all = self.window.saturating_mul(self.shares.max(1));
        self.round = Measurement {
            settling: all.saturating_mul(SETTLING),
            measured: all.saturating_mul(MEASURED),
            ..Measurement::default()
        };
    }

    /// Counts completed commands in the round. Returns true if this changed the windows.
    fn measure(&mut self, cost: i64, commands: u32, now: u64) -> bool {
        let round = &mut self.round;
        let since = *round.settling_since_ns.get_or_insert(now);
        if round.settling > 0 || now.saturating_sub(since) < self.round_ns {
            round.settling -= cost;
            (round.began_ns, round.held) = (now, false);
            return false;
        }
        round.served += cost;
        round.commands += commands;
        let elapsed = now.saturating_sub(round.began_ns);
        let is_short = elapsed == 0 || elapsed < self.round_ns;
        if round.served < round.measured || round.commands < COMMANDS || is_short {
            return false;
        }
        let rate = round.served as f64 / elapsed as f64;
        let (before, held) = (self.window, round.held);
        self.take_rate(rate, held, now, elapsed);
        self.next_round();
        self.window != before
    }

    /// Draws the conclusion from a round's rate.
    fn take_rate(&mut self, rate: f64, held: bool, now: u64, elapsed: u64) {
        match self.trial {
            Trial::None if held && now >= self.rested_at_ns => {
                let larger =
                    std::mem::replace(&mut self.tries_larger, false) || self.window <= self.smallest();
                self.tries_larger |= !larger;
                self.try_other(larger, rate);
            }
            // No user was held back, or the rest is not over: the windows stay.
            Trial::None => {}
            Trial::Larger { before } if rate >= before * (1.0 + GAIN) => self.try_other(true, rate),
            Trial::Larger { .. } => {
                self.window /= 2;
                self.rest(now, elapsed);
            }
            Trial::Smaller { before } if rate * (1.0 + GAIN) > before => self.rest(now, elapsed),
            Trial::Smaller { .. } => {
                self.window = self.window.saturating_mul(2);
                self.rest(now, elapsed);
            }
        }
    }

    fn try_other(&mut self, larger: bool, before: f64) {
        if larger {
            self.window = self.window.saturating_mul(2);
            self.trial = Trial::Larger { before };
        } else {
            self.window /= 2;
            self.trial = Trial::Smaller { before };
        }
    }

    fn rest(&mut self, now: u64, elapsed: u64) {
        self.trial = Trial::None;
        self.rested_at_ns = now.saturating_add(elapsed.saturating_mul(REST));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ByUser, Limits};
    use super::*;
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, VecDeque};

    const SECOND: u64 = 1_000_000_000;

    /// Model of a device that serves commands in the order of their submission.
    #[derive(Clone, Copy)]
    struct Slow {
        /// Number of commands that are served at the same time, each for `command_ns` and the time of its
        /// bytes.
        lanes: usize,
        command_ns: u64,
        bytes_per_second: u64,
        depth: usize,
    }

    /// A user who always has this number of commands waiting or in flight.
    #[derive(Clone, Copy)]
    struct Wanting {
        share: u32,
        commands: usize,
        bytes: u64,
        /// Time between a command's completion and the user's next one, in nanoseconds.
        thinks_ns: u64,
    }

    /// Work that the device did for a user.
    #[derive(Clone, Copy, Debug, Default)]
    struct Got {
        bytes: u64,
        commands: u64,
        waited_ns: u64,
    }

    impl Got {
        fn latency_ns(self) -> u64 {
            self.waited_ns / self.commands.max(1)
        }
    }

    const MANY: Wanting = Wanting { share: 1, commands: 512, bytes: 256 << 10, thinks_ns: 0 };
    const FEW: Wanting = Wanting { share: 1, commands: 4, bytes: 64 << 10, thinks_ns: 0 };
    const ONE: Wanting = Wanting { share: 1, commands: 1, bytes: 4 << 10, thinks_ns: 0 };
    /// A disk of 50 MB/s, as in the guide.
    const DISK: Slow = Slow { lanes: 1, command_ns: 20_000, bytes_per_second: 50_000_000, depth: 128 };
    /// A device that serves many commands at a time, each of them slowly.
    const FAR: Slow = Slow { lanes: 64, command_ns: 1_000_000, bytes_per_second: 1_000_000_000, depth: 128 };

    /// Event of the model: a command completes, or a user wants one.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Event {
        Done { user: usize, since: u64 },
        Wants { user: usize },
    }

    /// Serves the users, the first of them alone for a second. Returns what each got in the last two of five
    /// seconds.
    fn contend(device: Slow, users: &[Wanting]) -> Vec<Got> {
        let (begin, end) = (3 * SECOND, 5 * SECOND);
        let mut schedule = ByUser::new();
        let limits = |user: &Wanting| Limits { share: user.share, ..Limits::default() };
        let members: Vec<_> = users
            .iter()
            .enumerate()
            .map(|(uid, user)| schedule.join(uid as u32, limits(user)).unwrap())
            .collect();
        let mut waiting: Vec<VecDeque<u64>> = vec![VecDeque::new(); users.len()];
        // Keys of the users in the schedule, from their first command on.
        let mut known = vec![None; users.len()];
        let (mut queue, mut served, mut events) = (VecDeque::new(), 0, BinaryHeap::new());
        let mut got = vec![Got::default(); users.len()];
        for (user, wanting) in users.iter().enumerate() {
            let from = if user == 0 { 0 } else { SECOND };
            (0..wanting.commands).for_each(|_| events.push(Reverse((from, Event::Wants { user }))));
        }
        while let Some(Reverse((now, event))) = events.pop()
            && now < end
        {
            match event {
                Event::Wants { user } => {
                    waiting[user].push_back(now);
                    schedule.wants(members[user]);
                }
                Event::Done { user, since } => {
                    served -= 1;
                    schedule.completed(known[user].unwrap(), users[user].bytes, now);
                    events.push(Reverse((now + users[user].thinks_ns, Event::Wants { user })));
                    if now >= begin {
                        got[user].bytes += users[user].bytes;
                        got[user].commands += 1;
                        got[user].waited_ns += now - since;
                    }
                }
            }
            while queue.len() + served < device.depth
                && let Some(member) = schedule.next(now)
            {
                let user = members.iter().position(|other| *other == member).unwrap();
                let bytes = users[user].bytes;
                queue.push_back((user, waiting[user].pop_front().unwrap()));
                schedule.served(member, bytes, now);
                known[user] = schedule.submitted(member, bytes, now);
                if waiting[user].is_empty() {
                    schedule.wants_nothing(member);
                }
            }
            while served < device.lanes
                && let Some((user, since)) = queue.pop_front()
            {
                served += 1;
                let takes = device.command_ns + users[user].bytes * SECOND / device.bytes_per_second;
                events.push(Reverse((now + takes, Event::Done { user, since })));
            }
        }
        got
    }

    fn rate_of(got: &[Got]) -> u64 {
        got.iter().map(|got| got.bytes).sum::<u64>() / 2
    }

    #[test]
    fn a_deep_queue_of_large_commands_leaves_others_their_share() {
        let alone = rate_of(&contend(DISK, &[MANY]));
        let got = contend(DISK, &[MANY, FEW]);
        let part = got[1].bytes as f64 / (got[0].bytes + got[1].bytes) as f64;
        assert!((0.4..0.6).contains(&part), "{part}: {got:?}");
        assert!(rate_of(&got) as f64 > 0.95 * alone as f64, "{got:?}, {alone} alone");
        // A user with one small command at a time waits for a few large ones, not for a queue of them.
        let got = contend(DISK, &[MANY, ONE]);
        let large_ns = DISK.command_ns + MANY.bytes * SECOND / DISK.bytes_per_second;
        assert!(got[1].latency_ns() < 4 * large_ns, "{got:?}");
        assert!(rate_of(&got) as f64 > 0.95 * alone as f64, "{got:?}, {alone} alone");
    }

    #[test]
    fn a_device_that_does_much_at_a_time_is_kept_busy() {
        let alone = rate_of(&contend(FAR, &[MANY]));
        for other in [ONE, FEW, Wanting { thinks_ns: 100_000_000, ..ONE }] {
            let got = contend(FAR, &[MANY, other]);
            assert!(rate_of(&got) as f64 > 0.85 * alone as f64, "{got:?}, {alone} alone");
            assert!(got[1].latency_ns() < 3 * FAR.command_ns, "{got:?}");
        }
    }

    #[test]
    fn who_is_alone_has_the_whole_queue() {
        let deep = Wanting { bytes: 4096, ..MANY };
        for device in [DISK, FAR] {
            let got = contend(device, &[deep])[0];
            let takes = device.command_ns + 4096 * SECOND / device.bytes_per_second;
            let most = device.lanes as u64 * 2 * SECOND / takes;
            assert!(got.commands >= most * 99 / 100, "{got:?} of {most}");
        }
    }

    #[test]
    fn shares_reach_into_the_queue() {
        for (first, second) in [(1, 3), (3, 1), (1, 8)] {
            let got = contend(DISK, &[Wanting { share: first, ..MANY }, Wanting { share: second, ..MANY }]);
            let ratio = got[1].bytes as f64 / got[0].bytes as f64 * f64::from(first) / f64::from(second);
            assert!((0.85..1.15).contains(&ratio), "{first} to {second}: {ratio}, {got:?}");
        }
    }

    #[test]
    fn who_thinks_in_between_finds_no_queue() {
        let now_and_then = Wanting { thinks_ns: SECOND / 2, ..ONE };
        let got = contend(DISK, &[MANY, now_and_then]);
        let large_ns = DISK.command_ns + MANY.bytes * SECOND / DISK.bytes_per_second;
        assert!(got[1].latency_ns() < 4 * large_ns, "{got:?}");
    }

    #[test]
    fn many_users_of_different_kinds_all_have_theirs() {
        let got = contend(DISK, &[MANY, FEW, MANY, Wanting { commands: 64, bytes: 4096, ..MANY }, MANY]);
        let all: u64 = got.iter().map(|got| got.bytes + got.commands * REQUEST_CHARGE_BYTES as u64).sum();
        for got in &got {
            let part = (got.bytes + got.commands * REQUEST_CHARGE_BYTES as u64) as f64 / all as f64;
            assert!((0.12..0.35).contains(&part), "{part}: {got:?}");
        }
    }
}
