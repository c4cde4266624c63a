//! Decides whether an adaptive end spins before it sleeps, and for how long, from its past waits.
//!
//! Finding something while spinning costs the processor time until it arrives. Sleeping and being woken cost
//! some microseconds of processor time, and tens of microseconds of latency. An end is in one of two states:
//!
//! - It *spins*. As long as the event that it waits for occurs meanwhile, it spins for longer the next time,
//!   up to [`LONGEST`]. Two waits in a row in which spinning was in vain end this state. An event that has
//!   occurred before the first look is not counted as a wait.
//! - It *sleeps at once*. It tries to spin again when that is likely to pay. Each attempt in vain doubles the
//!   number of sleeps until the next attempt of its kind, from [`REST_MIN`] to [`REST_MAX`]. A *follow-up* is
//!   an attempt after the peer was awake when this end sent it something, so that the reply may be quick. A
//!   *probe* is an attempt after a sleep that was so short that spinning would have found the event. One
//!   sleep of every [`REST_MIN`] is measured, so that the others need no clock.
//!
//! An end that has just woken its peer waits at least as long as a wake-up takes. Finding the reply by
//! spinning then proves nothing: at a steady rate of requests the end would spin during each wake-up of the
//! server.
//!
//! All functions are pure but for the length of a look, which is measured once. Several threads may use one
//! [`SpinPolicy`]; if their calls collide, a part of what was learned may be lost.

use bywash_sync::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Looks between two checks of the time that an end has spun.
pub const LOOKS: u32 = 64;
/// Time that a new end spins for, and one that follows up.
const SHORT: Duration = Duration::from_micros(12);
/// Longest time that an end spins for.
const LONGEST: Duration = Duration::from_micros(100);
/// Longest sleep that counts as short: spinning would have been better, since waking a sleeper takes most of
/// this time.
const SHORT_SLEEP: Duration = Duration::from_micros(80);
/// Waits in a row in which spinning was in vain, after which an end sleeps at once.
const VAIN_MAX: u32 = 2;
/// Waits in a row that spinning shortened, after which it counts as proven and earlier failed attempts are
/// forgotten.
const PROVEN: u32 = 16;
/// Smallest number of sleeps between two attempts to spin.
const REST_MIN: u32 = 64;
/// Greatest number of sleeps between two attempts to spin.
const REST_MAX: u32 = 4096;

/// State of the peer when this end last sent it something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Nothing was sent since the last wait.
    Unasked,
    /// The peer was awake.
    Awake,
    /// The peer slept and was woken.
    Woken,
}

/// Reason for which an end spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Spinning has paid so far.
    Habit,
    /// The peer was awake when something was sent to it.
    FollowUp,
    /// A measured sleep was short.
    Probe,
}

/// Number of sleeps until the next attempt to spin, and the number after that attempt.
#[derive(Debug)]
struct Rest {
    left: AtomicU32,
    next: AtomicU32,
}

/// State of an adaptive end: the length of its next spin, and the sleeps until its next attempt to spin.
#[derive(Debug)]
pub struct SpinPolicy {
    /// Looks of the next spin; 0: the end sleeps at once.
    looks: AtomicU32,
    vain: AtomicU32,
    proofs: AtomicU32,
    follow_up: Rest,
    probe: Rest,
    /// True if the last measured sleep was short and no probe followed yet.
    is_probe_due: AtomicBool,
}

impl Rest {
    fn none() -> Rest {
        Rest { left: AtomicU32::new(0), next: AtomicU32::new(REST_MIN) }
    }

    fn is_over(&self) -> bool {
        self.left.load(Relaxed) == 0
    }

    fn sleep(&self) {
        let left = self.left.load(Relaxed);
        if left > 0 {
            self.left.store(left - 1, Relaxed);
        }
    }

    /// Begins a rest after an attempt in vain, and doubles the next one.
    fn begin(&self) {
        let next = self.next.load(Relaxed);
        self.left.store(next, Relaxed);
        self.next.store((next * 2).min(REST_MAX), Relaxed);
    }

    fn forget(&self) {
        self.left.store(0, Relaxed);
        self.next.store(REST_MIN, Relaxed);
    }
}

impl Default for SpinPolicy {
    fn default() -> SpinPolicy {
        SpinPolicy {
            looks: AtomicU32::new(looks_within(SHORT)),
            vain: AtomicU32::new(0),
            proofs: AtomicU32::new(0),
            follow_up: Rest::none(),
            probe: Rest::none(),
            is_probe_due: AtomicBool::new(false),
        }
    }
}

impl SpinPolicy {
    /// Returns true if this end sleeps at once, unless an attempt to spin is due.
    #[inline]
    pub fn sleeps_at_once(&self) -> bool {
        self.looks.load(Relaxed) == 0
    }

    /// Returns true if spinning has paid each of the last 16 times, so that a sleep is the exception.
    /// Before that every wait must be recorded; afterwards a wait that ends within [`LOOKS`] looks need not
    /// be.
    #[inline]
    pub fn is_proven(&self) -> bool {
        self.proofs.load(Relaxed) >= PROVEN
    }

    /// Returns the number of looks to take before a sleep, and the reason; `None`: sleep at once.
    pub fn spin(&self, peer: PeerState) -> Option<(u32, Reason)> {
        let looks = self.looks.load(Relaxed);
        if looks > 0 {
            return Some((looks, Reason::Habit));
        }
        if peer == PeerState::Awake && self.follow_up.is_over() {
            return Some((looks_within(SHORT), Reason::FollowUp));
        }
        if self.is_probe_due.swap(false, Relaxed) {
            return Some((looks_within(LONGEST), Reason::Probe));
        }
        None
    }

    /// Returns about the time that a number of looks takes, for an end whose looks take longer than a pause of the processor.
    pub fn duration(looks: u32) -> Duration {
        Duration::from_nanos(u64::from(looks / LOOKS) * u64::from(looks_ns()))
    }

    /// Records a wait that ended while the end was spinning.
    pub fn found(&self, reason: Reason, peer: PeerState) {
        match reason {
            // The wait included a wake-up of the peer, so it says nothing about the time that a reply takes.
            Reason::Habit if peer == PeerState::Woken => self.count_vain(),
            Reason::Habit => self.count_proof(),
            Reason::Probe if peer == PeerState::Woken => self.probe.begin(),
            Reason::FollowUp | Reason::Probe => {
                // Until spinning is proven, the attempt counts as one in vain.
                if reason == Reason::Probe {
                    self.probe.begin()
                } else {
                    self.follow_up.begin()
                }
                self.looks.store(looks_within(SHORT), Relaxed);
                self.vain.store(0, Relaxed);
                self.proofs.store(0, Relaxed);
            }
        }
    }

    /// Records a spin in vain.
    pub fn missed(&self, reason: Reason) {
        match reason {
            Reason::Habit => self.count_vain(),
            Reason::FollowUp => self.follow_up.begin(),
            Reason::Probe => self.probe.begin(),
        }
    }

    fn count_proof(&self) {
        self.vain.store(0, Relaxed);
        let proofs = self.proofs.load(Relaxed) + 1;
        if proofs < PROVEN {
            self.proofs.store(proofs, Relaxed);
            let longer = self.looks.load(Relaxed) + LOOKS;
            self.looks.store(longer.min(looks_within(LONGEST)), Relaxed);
        } else if proofs == PROVEN {
            self.proofs.store(proofs, Relaxed);
            self.looks.store(looks_within(LONGEST), Relaxed);
            self.follow_up.forget();
            self.probe.forget();
        }
    }

    fn count_vain(&self) {
        let vain = self.vain.load(Relaxed) + 1;
        self.vain.store(vain, Relaxed);
        self.proofs.store(0, Relaxed);
        let less = (self.looks.load(Relaxed) / 2).max(looks_within(SHORT));
        self.looks.store(if vain < VAIN_MAX { less } else { 0 }, Relaxed);
    }

    /// Counts a sleep; true if the caller shall measure it and call [`SpinPolicy::slept`].
    pub fn sleep(&self) -> bool {
        self.follow_up.sleep();
        if !self.sleeps_at_once() {
            return false;
        }
        let measured = self.probe.is_over();
        self.probe.sleep();
        measured
    }

    /// Records the duration of a measured sleep.
    pub fn slept(&self, duration: Duration) {
        self.is_probe_due.store(duration < SHORT_SLEEP, Relaxed);
        // The next measurement follows after this many sleeps, or later if a probe is made.
        self.probe.left.store(REST_MIN, Relaxed);
    }
}

/// Returns about how many looks a thread takes within `time`: a multiple of [`LOOKS`], and at least one.
fn looks_within(time: Duration) -> u32 {
    (time.as_nanos() as u32 / looks_ns()).max(1) * LOOKS
}

/// Returns the time that [`LOOKS`] looks take, in nanoseconds. A processor's pause instruction takes 10 to 140 cycles.
fn looks_ns() -> u32 {
    static LOOKS_NS: OnceLock<u32> = OnceLock::new();
    *LOOKS_NS.get_or_init(|| {
        // The shortest of eight measurements, since the scheduler may suspend the thread during one.
        let once = || {
            let begun = Instant::now();
            (0..LOOKS).for_each(|_| bywash_sync::pause());
            begun.elapsed().as_nanos() as u32
        };
        (0..8).map(|_| once()).min().unwrap_or(0).clamp(LOOKS, LOOKS * 1000)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An end that follows its policy. Each wait has a state of the peer, and a time after which the event
    /// occurs.
    struct End {
        policy: SpinPolicy,
        spins: u32,
        vain: u32,
        sleeps: u32,
        spun: Duration,
    }

    impl End {
        fn new() -> End {
            End { policy: SpinPolicy::default(), spins: 0, vain: 0, sleeps: 0, spun: Duration::ZERO }
        }

        fn wait(&mut self, peer: PeerState, after: Duration) {
            if let Some((looks, reason)) = self.policy.spin(peer) {
                if looks_within(after) <= looks {
                    self.spins += 1;
                    self.spun += after;
                    return self.policy.found(reason, peer);
                }
                self.vain += 1;
                self.spun += Duration::from_micros(u64::from(looks) * 100 / u64::from(looks_within(LONGEST)));
                self.policy.missed(reason);
            }
            self.sleeps += 1;
            if self.policy.sleep() {
                // Being woken takes some time.
                self.policy.slept(after + Duration::from_micros(20));
            }
        }
    }

    const MESSAGES: u32 = 10_000;

    #[test]
    fn paced_messages_are_slept_for() {
        for period in [90, 100, 1000, 10_000] {
            let mut end = End::new();
            (0..MESSAGES).for_each(|_| end.wait(PeerState::Unasked, Duration::from_micros(period)));
            assert_eq!((end.vain, end.sleeps), (VAIN_MAX, MESSAGES), "every {period} us");
        }
    }

    /// The client would spin for as long as the server takes to wake up.
    #[test]
    fn paced_requests_are_slept_for_by_both() {
        let (mut client, mut server) = (End::new(), End::new());
        for _ in 0..MESSAGES {
            client.wait(PeerState::Woken, Duration::from_micros(30));
            server.wait(PeerState::Woken, Duration::from_millis(1));
        }
        assert_eq!((server.vain, server.sleeps), (VAIN_MAX, MESSAGES));
        // A probe finds that the server must be woken; probes are rare.
        assert!(client.spins <= VAIN_MAX + 8, "{}", client.spins);
        assert!(client.spun < Duration::from_micros(100) * 10, "{:?}", client.spun);
    }

    /// A slow server that spins: the client's follow-ups are in vain.
    #[test]
    fn slow_answers_of_a_peer_that_spins_are_slept_for() {
        let mut end = End::new();
        (0..MESSAGES).for_each(|_| end.wait(PeerState::Awake, Duration::from_millis(5)));
        assert!(end.vain <= VAIN_MAX + 9, "{}", end.vain);
    }

    #[test]
    fn answers_at_once_are_spun_for() {
        let mut end = End::new();
        // Two late replies, far apart, change nothing.
        for _ in 0..2 {
            (0..MESSAGES).for_each(|_| end.wait(PeerState::Awake, Duration::from_nanos(300)));
            end.wait(PeerState::Awake, Duration::from_millis(1));
            assert!(!end.policy.is_proven());
        }
        let mut end = End::new();
        (0..MESSAGES).for_each(|_| end.wait(PeerState::Awake, Duration::from_nanos(300)));
        assert_eq!((end.spins, end.vain, end.sleeps), (MESSAGES, 0, 0));
        assert!(end.policy.is_proven());
    }

    /// After a slow phase both ends sleep, and each wait takes two wake-ups until one of them probes.
    #[test]
    fn ends_that_sleep_find_back_to_spinning() {
        let (mut client, mut server) = (End::new(), End::new());
        for _ in 0..10 {
            client.wait(PeerState::Woken, Duration::from_micros(30));
            server.wait(PeerState::Woken, Duration::from_millis(1));
        }
        assert!(client.policy.sleeps_at_once() && server.policy.sleeps_at_once());
        let (at_once, wake_up) = (Duration::from_nanos(300), Duration::from_micros(30));
        // True if the server is asleep when the client sends.
        let mut server_sleeps = true;
        let mut rounds = 0;
        while !(client.policy.is_proven() && server.policy.is_proven()) {
            let step = |end: &mut End, other_slept: bool| {
                let before = end.sleeps;
                match other_slept {
                    true => end.wait(PeerState::Woken, wake_up),
                    false => end.wait(PeerState::Awake, at_once),
                }
                end.sleeps > before
            };
            let client_sleeps = step(&mut client, server_sleeps);
            server_sleeps = step(&mut server, client_sleeps);
            rounds += 1;
            assert!(rounds < 4 * REST_MIN, "{client_sleeps} {server_sleeps}");
        }
    }

    /// Three messages a millisecond: two arrive at once, the third does not.
    #[test]
    fn a_sleep_among_successes_does_not_end_spinning() {
        let mut end = End::new();
        for _ in 0..MESSAGES {
            end.wait(PeerState::Unasked, Duration::from_nanos(300));
            end.wait(PeerState::Unasked, Duration::from_nanos(300));
            end.wait(PeerState::Unasked, Duration::from_millis(1));
        }
        assert_eq!((end.spins, end.vain), (2 * MESSAGES, MESSAGES));
    }

    #[test]
    fn looks_are_as_many_as_fit() {
        assert!(looks_within(LONGEST) >= looks_within(SHORT));
        assert_eq!(looks_within(SHORT) % LOOKS, 0);
        assert!(looks_within(Duration::ZERO) == LOOKS);
    }
}
