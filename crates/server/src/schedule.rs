//! Scheduler: chooses whose request is served next, by deficit round robin with rate limits.
//!
//! The algorithm is that of Shreedhar and Varghese, *Efficient Fair Queueing Using Deficit Round Robin*
//! (SIGCOMM 1995). Clients with requests stand in a circle. The client at the front may use [`QUANTUM`] times
//! its share, and then moves to the back with what it owes or has left. A client without requests keeps its
//! debt, but loses what it has left, so that idle clients do not save up service. A request is charged its
//! bytes plus [`REQUEST_CHARGE_BYTES`], so that many small requests cost as much as a few large ones. A
//! decision takes constant time for any number of clients, except that each client at a rate limit is passed
//! over once a round.
//!
//! A rate limit is a token bucket. It fills at the allowed rate and holds a hundredth of a second's worth. A
//! request may drive the bucket below zero; the client then waits until it is above zero again. So the limit
//! holds over any second, and a request larger than the bucket does not get stuck.
//!
//! A server uses two levels of schedules, for users and for their connections ([`ByUser`]), and limits what
//! users have in flight at a device that several of them use. A device of several cores has a schedule on each, which
//! tell one another now and then what they have served ([`Exchange`]).
//!
//! Called by the core's thread only. Times are in nanoseconds of a clock that never goes back.

mod exchange;
mod local;
mod users;
mod window;

use thiserror::Error;

pub use exchange::Exchange;
pub(crate) use users::ServedCommand;
pub use users::{ByUser, ConnectionKey};
pub(crate) use window::CommandCosts;

/// Limits of a client at one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Share of the device, in proportion to other clients' shares; 1 to [`SHARE_MAX`].
    pub share: u32,
    /// Greatest number of bytes per second; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// Greatest number of requests per second; `None` for no limit.
    pub requests_per_second: Option<u64>,
}

impl Default for Limits {
    /// A share of 1 and no rate limits.
    fn default() -> Limits {
        Limits { share: 1, bytes_per_second: None, requests_per_second: None }
    }
}

/// Greatest share of a client.
pub const SHARE_MAX: u32 = 1000;
/// Greatest number of clients of a schedule.
pub const CLIENTS_MAX: usize = 1 << 16;
/// Service that a share of 1 may use in a round, in bytes: a few large requests, or a batch of small ones.
pub const QUANTUM: i64 = 64 << 10;
/// Charge of a request besides its bytes, in bytes: about what could be moved while the request is handled.
pub const REQUEST_CHARGE_BYTES: i64 = 4 << 10;
/// Capacity of a token bucket, in seconds of its rate.
const BURST: f64 = 0.01;

/// Error for a client that cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The share is 0 or greater than [`SHARE_MAX`].
    #[error("a share of {0} is out of range; give 1 to {SHARE_MAX}")]
    Share(u32),
    /// A rate limit is 0, so that no request would ever be served.
    #[error("a limit of 0 a second admits nothing; leave the limit out, or refuse the client")]
    ZeroRate,
    /// The schedule holds [`CLIENTS_MAX`] clients already.
    #[error("{CLIENTS_MAX} clients are connected, the greatest number")]
    Full,
}

/// Key of a client in a schedule, valid until the client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey {
    slot: u32,
    /// Generation, which tells apart clients that used the same slot.
    turn: u32,
}

impl ClientKey {
    /// Returns a number below [`CLIENTS_MAX`] that is unique among the schedule's clients, for use as a table
    /// index.
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

/// Token bucket of a rate limit. A negative fill is a debt.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    per_ns: f64,
    most: f64,
    has: f64,
    filled_at: u64,
}

impl Bucket {
    fn new(per_second: u64) -> Bucket {
        let most = (per_second as f64 * BURST).max(1.0);
        Bucket { per_ns: per_second as f64 / 1e9, most, has: most, filled_at: 0 }
    }

    fn fill(&mut self, now: u64) {
        let past = now.saturating_sub(self.filled_at) as f64;
        self.has = (self.has + past * self.per_ns).min(self.most);
        self.filled_at = self.filled_at.max(now);
    }

    /// Returns the time at which the bucket has tokens again; 0 if it has some now.
    fn ready_at(&self) -> u64 {
        if self.has > 0.0 { 0 } else { self.filled_at + (-self.has / self.per_ns).ceil() as u64 + 1 }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    turn: u32,
    is_taken: bool,
    /// True if the client is passed over, whatever its deficit.
    is_held: bool,
    /// True if the client is in the circle.
    wants: bool,
    share: i64,
    deficit: i64,
    /// True if the client has at least one rate limit.
    is_limited: bool,
    buckets: [Option<Bucket>; 2],
}

/// Clients of one resource, and the order in which they are served.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    places: Vec<Entry>,
    free: Vec<u32>,
    /// Clients that have requests, as slots; the one at the front is served.
    circle: std::collections::VecDeque<u32>,
    /// True if the client at the front has received its quantum of this round.
    has_quantum: bool,
}

impl Schedule {
    /// Creates a schedule without clients.
    pub fn new() -> Schedule {
        Schedule::default()
    }

    /// Adds a client, which has no requests yet.
    ///
    /// # Errors
    /// [`Error::Share`] if the share is out of range, [`Error::ZeroRate`] if a rate is 0, [`Error::Full`] if
    /// there are [`CLIENTS_MAX`] clients.
    pub fn join(&mut self, limits: Limits) -> Result<ClientKey, Error> {
        if limits.share == 0 || limits.share > SHARE_MAX {
            return Err(Error::Share(limits.share));
        }
        let rates = [limits.bytes_per_second, limits.requests_per_second];
        if rates.contains(&Some(0)) {
            return Err(Error::ZeroRate);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.places.len() < CLIENTS_MAX => {
                self.places.push(Entry {
                    turn: 0,
                    is_taken: false,
                    is_held: false,
                    wants: false,
                    share: 0,
                    deficit: 0,
                    is_limited: false,
                    buckets: [None; 2],
                });
                self.places.len() as u32 - 1
            }
            None => return Err(Error::Full),
        };
        let place = &mut self.places[slot as usize];
        (place.is_taken, place.wants, place.deficit, place.is_held) = (true, false, 0, false);
        place.share = i64::from(limits.share);
        place.is_limited = rates != [None; 2];
        place.buckets = rates.map(|rate| rate.map(Bucket::new));
        Ok(ClientKey { slot, turn: place.turn })
    }

    /// Removes a client from the schedule and its circle. A client that has left already is ignored.
    pub fn leave(&mut self, client: ClientKey) {
        if self.place(client).is_none() {
            return;
        }
        self.deactivate(client);
        let place = &mut self.places[client.slot as usize];
        place.is_taken = false;
        place.turn = place.turn.wrapping_add(1);
        self.free.push(client.slot);
    }

    /// Notes that a client has requests: it enters the circle, unless it is there.
    #[inline]
    pub fn activate(&mut self, client: ClientKey) {
        if let Some(place) = self.place(client).filter(|place| !place.wants) {
            place.wants = true;
            self.circle.push_back(client.slot);
        }
    }

    /// Notes that a client has no more requests: it leaves the circle.
    #[inline]
    pub fn deactivate(&mut self, client: ClientKey) {
        let Some(place) = self.place(client).filter(|place| place.wants) else { return };
        // A debt stays: otherwise a client that sends one large request at a time would never pay for it.
        (place.wants, place.deficit) = (false, place.deficit.min(0));
        if self.circle.front() == Some(&client.slot) {
            self.has_quantum = false;
            self.circle.pop_front();
        } else {
            self.circle.retain(|slot| *slot != client.slot);
        }
    }

    /// Returns the client whose request is served next, or `None` if no client has requests or all of those
    /// wait for a rate limit or are held.
    #[inline]
    pub fn next(&mut self, now: u64) -> Option<ClientKey> {
        // The loop ends: a quantum per round pays off even the greatest debt after a limited number of
        // rounds, and a round in which no client is ready returns.
        let mut waiting = 0;
        while waiting < self.circle.len() {
            let slot = *self.circle.front()?;
            let place = &mut self.places[slot as usize];
            if place.is_held || (place.is_limited && !place.fill(now)) {
                waiting += 1;
                self.pass_on();
                continue;
            }
            if !std::mem::replace(&mut self.has_quantum, true) {
                place.deficit = (place.deficit + QUANTUM * place.share).min(QUANTUM * place.share);
            }
            if place.deficit > 0 {
                return Some(ClientKey { slot, turn: place.turn });
            }
            waiting = 0;
            self.pass_on();
        }
        None
    }

    /// Charges a client for a request that moves this number of bytes.
    #[inline]
    pub fn charge(&mut self, client: ClientKey, bytes: u64, now: u64) {
        let Some(place) = self.place(client) else { return };
        // The debt is capped, so that a client pays it off within a limited number of rounds.
        place.deficit = (place.deficit - cost_of(bytes)).max(-DEBT_MAX);
        if place.is_limited {
            place.drain(bytes as f64, 1.0, now);
        }
    }

    /// Returns what the client that [`Schedule::next`] has returned last may be charged before another one is next, at the
    /// same time; 0 or less if a rate limit has a say in that.
    #[inline]
    pub(crate) fn credit(&mut self, client: ClientKey) -> i64 {
        self.place(client).filter(|place| !place.is_limited).map_or(0, |place| place.deficit)
    }

    /// Charges a client for several requests that cost `cost` together.
    #[inline]
    pub(crate) fn charge_run(
        &mut self,
        client: ClientKey,
        cost: i64,
        (bytes, requests): (u64, u64),
        now: u64,
    ) {
        let Some(place) = self.place(client) else { return };
        place.deficit = (place.deficit - cost).max(-DEBT_MAX);
        if place.is_limited {
            place.drain(bytes as f64, requests as f64, now);
        }
    }

    /// Returns true if a client would be next if it had requests, since no client has any, and the client is neither held
    /// nor limited in its rate nor in debt for more than a quantum.
    #[inline]
    pub(crate) fn would_be_next(&mut self, client: ClientKey) -> bool {
        let is_idle = self.circle.is_empty();
        self.place(client).is_some_and(|place| {
            is_idle && !place.is_held && !place.is_limited && place.deficit + QUANTUM * place.share > 0
        })
    }

    /// Charges a client that [would be next](Schedule::would_be_next) as if it had entered the circle, had its turn, and
    /// left the circle.
    #[inline]
    pub(crate) fn charge_alone(&mut self, client: ClientKey, bytes: u64) {
        let Some(place) = self.place(client) else { return };
        let quantum = QUANTUM * place.share;
        place.deficit = ((place.deficit + quantum).min(quantum) - cost_of(bytes)).clamp(-DEBT_MAX, 0);
    }

    /// Charges a client for what was served elsewhere: the deficit by `cost`, but into no greater debt than `debt_max`; and
    /// rate limits by bytes and requests.
    pub(crate) fn charge_elsewhere(
        &mut self,
        client: ClientKey,
        (cost, debt_max): (i64, i64),
        (bytes, requests): (u64, u64),
        now: u64,
    ) {
        let Some(place) = self.place(client) else { return };
        let least = place.deficit.min(-debt_max.clamp(0, DEBT_MAX));
        place.deficit = (place.deficit - cost.clamp(0, DEBT_MAX)).max(least);
        if place.is_limited {
            place.drain(bytes as f64, requests as f64, now);
        }
    }

    /// Returns true if a client has requests.
    pub(crate) fn is_waiting(&mut self, client: ClientKey) -> bool {
        self.place(client).is_some_and(|place| place.wants)
    }

    /// Returns true if no client has requests.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.circle.is_empty()
    }

    /// Returns the earliest time at which a client with requests is below its rate limits; `None` if there is
    /// no such client that is not held.
    pub fn ready_at(&self) -> Option<u64> {
        let places = self.circle.iter().map(|slot| &self.places[*slot as usize]);
        places.filter(|place| !place.is_held).map(Entry::ready_at).min()
    }

    /// Holds a client, which is then passed over, or stops holding it.
    #[inline]
    pub fn hold(&mut self, client: ClientKey, is_held: bool) {
        if let Some(place) = self.place(client) {
            place.is_held = is_held;
        }
    }

    /// Moves the client at the front to the back.
    fn pass_on(&mut self) {
        self.circle.rotate_left(1);
        self.has_quantum = false;
    }

    #[inline]
    fn place(&mut self, client: ClientKey) -> Option<&mut Entry> {
        self.places.get_mut(client.slot as usize).filter(|place| place.is_taken && place.turn == client.turn)
    }
}

/// Greatest debt of a client, in bytes: 1,024 rounds of a share of 1.
const DEBT_MAX: i64 = QUANTUM << 10;

/// Returns the charge for a request that moves this number of bytes: no more than the greatest debt.
#[inline]
pub(crate) fn cost_of(bytes: u64) -> i64 {
    bytes.min((DEBT_MAX - REQUEST_CHARGE_BYTES) as u64) as i64 + REQUEST_CHARGE_BYTES
}

impl Entry {
    /// Fills the client's buckets. Returns true if each has tokens.
    #[inline(never)]
    fn fill(&mut self, now: u64) -> bool {
        self.buckets.iter_mut().flatten().for_each(|bucket| bucket.fill(now));
        self.ready_at() <= now
    }

    /// Takes the tokens of requests from the client's buckets.
    #[inline(never)]
    fn drain(&mut self, bytes: f64, requests: f64, now: u64) {
        for (bucket, used) in self.buckets.iter_mut().zip([bytes, requests]) {
            if let Some(bucket) = bucket {
                bucket.fill(now);
                bucket.has -= used;
            }
        }
    }

    fn ready_at(&self) -> u64 {
        self.buckets.iter().flatten().map(Bucket::ready_at).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns the bytes that each client moved, if all always have requests of their size and the device
    /// moves a byte in a nanosecond.
    fn contend(clients: &[(Limits, u64)], until: u64) -> Vec<u64> {
        let mut schedule = Schedule::new();
        let ids: Vec<ClientKey> = clients.iter().map(|(limits, _)| schedule.join(*limits).unwrap()).collect();
        ids.iter().for_each(|id| schedule.activate(*id));
        let (mut now, mut bytes) = (0, vec![0; ids.len()]);
        while now < until {
            match schedule.next(now) {
                Some(next) => {
                    let number = ids.iter().position(|id| *id == next).unwrap();
                    schedule.charge(next, clients[number].1, now);
                    bytes[number] += clients[number].1;
                    now += clients[number].1 + REQUEST_CHARGE_BYTES as u64;
                }
                None => now = schedule.ready_at().unwrap().max(now + 1),
            }
        }
        bytes
    }

    #[test]
    fn eight_equal_clients_get_the_same() {
        let got = contend(&[(Limits::default(), 4096); 8], SECOND);
        let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
        assert!((most - least) as f64 <= 0.02 * *most as f64, "{got:?}");
    }

    #[test]
    fn sizes_do_not_buy_more_time() {
        let got = contend(&[(Limits::default(), 512), (Limits::default(), 1 << 20)], SECOND);
        let time =
            |bytes: u64, size: u64| (bytes / size) as f64 * (size as f64 + REQUEST_CHARGE_BYTES as f64);
        let ratio = time(got[0], 512) / time(got[1], 1 << 20);
        assert!((0.97..1.03).contains(&ratio), "{ratio}: {got:?}");
    }

    #[test]
    fn limits_are_kept_and_leave_the_rest_to_others() {
        let limits = Limits { bytes_per_second: Some(10_000_000), ..Limits::default() };
        let requests = Limits { requests_per_second: Some(1000), ..Limits::default() };
        let got = contend(&[(limits, 65536), (requests, 4096), (Limits::default(), 4096)], 2 * SECOND);
        assert!((got[0] as f64 / 20e6 - 1.0).abs() < 0.03, "{got:?}");
        assert!((got[1] as f64 / 4096.0 / 2000.0 - 1.0).abs() < 0.03, "{got:?}");
        assert!(got[2] > 400_000_000, "{got:?}");
        // A client that is alone still waits for its bucket.
        let alone = contend(&[(limits, 1 << 20)], SECOND);
        assert!((alone[0] as f64 / 10e6 - 1.0).abs() < 0.15, "{alone:?}");
    }

    #[test]
    fn who_was_silent_has_saved_nothing() {
        let mut schedule = Schedule::new();
        let [one, other] = [(); 2].map(|()| schedule.join(Limits::default()).unwrap());
        schedule.activate(one);
        for now in 0..1000 {
            assert_eq!(schedule.next(now), Some(one));
            schedule.charge(one, 4096, now);
        }
        schedule.activate(other);
        let mut turns = 0;
        for now in 1000..2000 {
            let next = schedule.next(now).unwrap();
            turns += i32::from(next == other) - i32::from(next == one);
            schedule.charge(next, 4096, now);
        }
        assert!(turns.abs() < 20, "{turns}");
        schedule.deactivate(one);
        schedule.leave(other);
        assert_eq!((schedule.next(2000), schedule.ready_at()), (None, None));
    }

    /// A client that sends its next request only when the last one is done, as any program does that waits.
    #[test]
    fn who_asks_anew_each_time_has_no_more() {
        let mut schedule = Schedule::new();
        let [large, small] = [(); 2].map(|()| schedule.join(Limits::default()).unwrap());
        schedule.activate(small);
        let mut charged = [0i64; 2];
        for now in 0..100_000 {
            schedule.activate(large);
            let next = schedule.next(now).unwrap();
            let bytes = if next == large { 256 << 10 } else { 4096 };
            schedule.charge(next, bytes, now);
            charged[usize::from(next == small)] += bytes as i64 + REQUEST_CHARGE_BYTES;
            if next == large {
                schedule.deactivate(large);
            }
        }
        let ratio = charged[0] as f64 / charged[1] as f64;
        assert!((0.97..1.03).contains(&ratio), "{ratio}: {charged:?}");
    }

    #[test]
    fn a_client_that_left_is_nobody() {
        let mut schedule = Schedule::new();
        let gone = schedule.join(Limits::default()).unwrap();
        schedule.activate(gone);
        schedule.leave(gone);
        schedule.leave(gone);
        let there = schedule.join(Limits::default()).unwrap();
        assert_ne!(gone, there);
        schedule.activate(gone);
        assert_eq!(schedule.next(0), None);
        schedule.charge(gone, 1 << 30, 0);
        schedule.activate(there);
        assert_eq!(schedule.next(0), Some(there));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut schedule = Schedule::new();
        let mut refused = |limits| schedule.join(limits).unwrap_err();
        assert_eq!(refused(Limits { share: 0, ..Limits::default() }), Error::Share(0));
        assert_eq!(refused(Limits { share: 1001, ..Limits::default() }), Error::Share(1001));
        assert_eq!(refused(Limits { requests_per_second: Some(0), ..Limits::default() }), Error::ZeroRate);
    }

    proptest! {
        /// A client with requests is served before long, whatever requests others have, and whichever clients
        /// join or leave.
        #[test]
        fn nobody_starves(steps in proptest::collection::vec((0u8..6, 0usize..6, 0u64..1 << 22), 1..400)) {
            let mut schedule = Schedule::new();
            let mut clients: Vec<Option<ClientKey>> = vec![None; 6];
            for (what, who, bytes) in steps {
                match (what, clients[who]) {
                    (0, None) => clients[who] = Some(schedule.join(Limits::default()).unwrap()),
                    (1, Some(client)) => { schedule.leave(client); clients[who] = None; }
                    (2, Some(client)) => schedule.deactivate(client),
                    (3, Some(client)) => schedule.activate(client),
                    (_, Some(client)) => {
                        schedule.activate(client);
                        let next = schedule.next(0).unwrap();
                        schedule.charge(next, bytes, 0);
                    }
                    _ => {}
                }
            }
            let wanting: Vec<ClientKey> = clients.into_iter().flatten().collect();
            wanting.iter().for_each(|client| schedule.activate(*client));
            let mut seen = std::collections::HashSet::new();
            // The greatest debt in this test is 4 MiB, 64 quanta; in each round the others have about 8
            // requests each.
            for now in 0..64 * 8 * 6 * 2 {
                if let Some(next) = schedule.next(now) {
                    seen.insert(next);
                    schedule.charge(next, 4096, now);
                }
            }
            prop_assert_eq!(seen.len(), wanting.len());
        }
    }
}
