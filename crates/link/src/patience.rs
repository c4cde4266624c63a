//! Decides whether an adaptive end spins before it sleeps, and for how long, by what it has learned about its waits.
//!
//! To find something while spinning costs the time that it took to come; to sleep and be woken costs some microseconds of
//! processor time and tens of latency. An end is in one of two states:
//!
//! - It *spins*: as long as what it waits for comes meanwhile it spins for longer, up to [`LONGEST`]. Two waits in a row
//!   that spinning did not shorten end that. What was there already when it looked first was not waited for.
//! - It *sleeps at once*. It spins again when that is likely to pay, and each attempt in vain doubles the number of sleeps
//!   until the next one of its kind, from [`REST_MIN`] to [`REST_MAX`]:
//!   a *follow-up*, when the peer was awake as this end sent it something, so that the answer may come at once;
//!   a *probe*, when a sleep was so short that spinning would have found what it waited for. One sleep of every
//!   [`REST_MIN`] is measured, so that the others need no clock.
//!
//! An end that has just woken its peer waits at least as long as a wake-up takes. What it finds by spinning then proves
//! nothing: at a steady rate of requests it would spin for each wake-up of the server.
//!
//! All of it is pure but for the length of a look, which is measured once. Several threads may use one [`Patience`];
//! where they meet something learned may be lost.

use bywash_sync::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Looks between two questions how long an end has spun.
pub const LOOKS: u32 = 64;
/// Time that a fresh end spins for, and one that follows up.
const SHORT: Duration = Duration::from_micros(12);
/// Longest time that an end spins for.
const LONGEST: Duration = Duration::from_micros(100);
/// Longest sleep that spinning would have been better than: to wake a sleeper takes most of it.
const SHORT_SLEEP: Duration = Duration::from_micros(80);
/// Waits in a row that spinning did not shorten, after which an end sleeps at once.
const VAIN_MAX: u32 = 2;
/// Waits that spinning shortened until it counts as proven: then failed attempts before are forgotten.
const PROVEN: u32 = 16;
/// Fewest sleeps between two attempts to spin.
const REST_MIN: u32 = 64;
/// Most sleeps between two attempts to spin.
const REST_MAX: u32 = 4096;

/// State of the peer when this end last sent it something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Nothing was sent since the last wait.
    Unasked,
    /// It was awake.
    Awake,
    /// It slept and was woken.
    Woken,
}

/// Reason for which an end spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Spinning has paid so far.
    Habit,
    /// The peer was awake when something was sent to it.
    FollowUp,
    /// A sleep was short.
    Probe,
}

/// Sleeps to come until an attempt may be made again.
#[derive(Debug)]
struct Rest {
    left: AtomicU32,
    next: AtomicU32,
}

/// State of an adaptive end: the length of its next spin, and the sleeps until its next attempt to spin.
#[derive(Debug)]
pub struct Patience {
    /// Looks of the next spin; 0: the end sleeps at once.
    looks: AtomicU32,
    vain: AtomicU32,
    proofs: AtomicU32,
    follow_up: Rest,
    probe: Rest,
    /// The last sleep that was measured was short, and there was no probe since.
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

    /// An attempt was in vain.
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

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            looks: AtomicU32::new(looks_within(SHORT)),
            vain: AtomicU32::new(0),
            proofs: AtomicU32::new(0),
            follow_up: Rest::none(),
            probe: Rest::none(),
            is_probe_due: AtomicBool::new(false),
        }
    }
}

impl Patience {
    /// Returns whether this end sleeps without having spun, as a rule.
    #[inline]
    pub fn sleeps_at_once(&self) -> bool {
        self.looks.load(Relaxed) == 0
    }

    /// Returns whether spinning has paid each of the last times, so that a sleep is the exception. Until then each wait
    /// counts; from then on one that is over within [`LOOKS`] looks need not.
    #[inline]
    pub fn is_proven(&self) -> bool {
        self.proofs.load(Relaxed) >= PROVEN
    }

    /// Looks to take before a sleep, and the reason; none: sleep at once.
    pub fn spin(&self, peer: Peer) -> Option<(u32, Reason)> {
        let looks = self.looks.load(Relaxed);
        if looks > 0 {
            return Some((looks, Reason::Habit));
        }
        if peer == Peer::Awake && self.follow_up.is_over() {
            return Some((looks_within(SHORT), Reason::FollowUp));
        }
        if self.is_probe_due.swap(false, Relaxed) {
            return Some((looks_within(LONGEST), Reason::Probe));
        }
        None
    }

    /// Notes a wait that ended while the end was spinning.
    pub fn found(&self, reason: Reason, peer: Peer) {
        match reason {
            // No shorter than a wake-up of the peer: it says nothing of the time that an answer takes.
            Reason::Habit if peer == Peer::Woken => self.count_vain(),
            Reason::Habit => self.count_proof(),
            Reason::Probe if peer == Peer::Woken => self.probe.begin(),
            Reason::FollowUp | Reason::Probe => {
                // Until it is proven the attempt may turn out to have been in vain.
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

    /// Spinning was in vain.
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

    /// Counts a sleep; whether it is to be measured.
    pub fn sleep(&self) -> bool {
        self.follow_up.sleep();
        if !self.sleeps_at_once() {
            return false;
        }
        let measured = self.probe.is_over();
        self.probe.sleep();
        measured
    }

    /// A sleep that was to be measured took so long.
    pub fn slept(&self, duration: Duration) {
        self.is_probe_due.store(duration < SHORT_SLEEP, Relaxed);
        // The next measurement; a probe makes it later.
        self.probe.left.store(REST_MIN, Relaxed);
    }
}

/// Looks that a thread takes within so long, about; at least [`LOOKS`].
fn looks_within(time: Duration) -> u32 {
    /// Time that [`LOOKS`] looks take, in nanoseconds: processors pause for 10 to 140 cycles.
    static LOOKS_NS: OnceLock<u32> = OnceLock::new();
    let looks_ns = *LOOKS_NS.get_or_init(|| {
        // The shortest of some: the thread may be put off its core.
        let once = || {
            let begun = Instant::now();
            (0..LOOKS).for_each(|_| bywash_sync::pause());
            begun.elapsed().as_nanos() as u32
        };
        (0..8).map(|_| once()).min().unwrap_or(0).clamp(LOOKS, LOOKS * 1000)
    });
    (time.as_nanos() as u32 / looks_ns).max(1) * LOOKS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An end that does what its patience says. Each wait has a peer, and a time after which what it waits for comes.
    struct End {
        patience: Patience,
        spins: u32,
        vain: u32,
        sleeps: u32,
        spun: Duration,
    }

    impl End {
        fn new() -> End {
            End { patience: Patience::default(), spins: 0, vain: 0, sleeps: 0, spun: Duration::ZERO }
        }

        fn wait(&mut self, peer: Peer, after: Duration) {
            if let Some((looks, reason)) = self.patience.spin(peer) {
                if looks_within(after) <= looks {
                    self.spins += 1;
                    self.spun += after;
                    return self.patience.found(reason, peer);
                }
                self.vain += 1;
                self.spun += Duration::from_micros(u64::from(looks) * 100 / u64::from(looks_within(LONGEST)));
                self.patience.missed(reason);
            }
            self.sleeps += 1;
            if self.patience.sleep() {
                // To be woken takes some time.
                self.patience.slept(after + Duration::from_micros(20));
            }
        }
    }

    const MESSAGES: u32 = 10_000;

    #[test]
    fn paced_messages_are_slept_for() {
        for period in [90, 100, 1000, 10_000] {
            let mut end = End::new();
            (0..MESSAGES).for_each(|_| end.wait(Peer::Unasked, Duration::from_micros(period)));
            assert_eq!((end.vain, end.sleeps), (VAIN_MAX, MESSAGES), "every {period} us");
        }
    }

    /// The client's spin would be as long as the server takes to wake up.
    #[test]
    fn paced_requests_are_slept_for_by_both() {
        let (mut client, mut server) = (End::new(), End::new());
        for _ in 0..MESSAGES {
            client.wait(Peer::Woken, Duration::from_micros(30));
            server.wait(Peer::Woken, Duration::from_millis(1));
        }
        assert_eq!((server.vain, server.sleeps), (VAIN_MAX, MESSAGES));
        // A probe finds that the server must be woken; there are few.
        assert!(client.spins <= VAIN_MAX + 8, "{}", client.spins);
        assert!(client.spun < Duration::from_micros(100) * 10, "{:?}", client.spun);
    }

    /// A server that takes its time, and spins: the client's follow-ups are in vain.
    #[test]
    fn slow_answers_of_a_peer_that_spins_are_slept_for() {
        let mut end = End::new();
        (0..MESSAGES).for_each(|_| end.wait(Peer::Awake, Duration::from_millis(5)));
        assert!(end.vain <= VAIN_MAX + 9, "{}", end.vain);
    }

    #[test]
    fn answers_at_once_are_spun_for() {
        let mut end = End::new();
        // Two that are late, far apart, change nothing.
        for _ in 0..2 {
            (0..MESSAGES).for_each(|_| end.wait(Peer::Awake, Duration::from_nanos(300)));
            end.wait(Peer::Awake, Duration::from_millis(1));
            assert!(!end.patience.is_proven());
        }
        let mut end = End::new();
        (0..MESSAGES).for_each(|_| end.wait(Peer::Awake, Duration::from_nanos(300)));
        assert_eq!((end.spins, end.vain, end.sleeps), (MESSAGES, 0, 0));
        assert!(end.patience.is_proven());
    }

    /// After a slow time both sleep, and each wait takes two wake-ups until somebody probes.
    #[test]
    fn ends_that_sleep_find_back_to_spinning() {
        let (mut client, mut server) = (End::new(), End::new());
        for _ in 0..10 {
            client.wait(Peer::Woken, Duration::from_micros(30));
            server.wait(Peer::Woken, Duration::from_millis(1));
        }
        assert!(client.patience.sleeps_at_once() && server.patience.sleeps_at_once());
        let (at_once, wake_up) = (Duration::from_nanos(300), Duration::from_micros(30));
        // Whether the other one is asleep when somebody sends.
        let mut server_sleeps = true;
        let mut rounds = 0;
        while !(client.patience.is_proven() && server.patience.is_proven()) {
            let step = |end: &mut End, other_slept: bool| {
                let before = end.sleeps;
                match other_slept {
                    true => end.wait(Peer::Woken, wake_up),
                    false => end.wait(Peer::Awake, at_once),
                }
                end.sleeps > before
            };
            let client_sleeps = step(&mut client, server_sleeps);
            server_sleeps = step(&mut server, client_sleeps);
            rounds += 1;
            assert!(rounds < 4 * REST_MIN, "{client_sleeps} {server_sleeps}");
        }
    }

    /// Three a millisecond: two come at once, the third does not.
    #[test]
    fn a_sleep_among_successes_does_not_end_spinning() {
        let mut end = End::new();
        for _ in 0..MESSAGES {
            end.wait(Peer::Unasked, Duration::from_nanos(300));
            end.wait(Peer::Unasked, Duration::from_nanos(300));
            end.wait(Peer::Unasked, Duration::from_millis(1));
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
