//! Claims of ranges: keep overlapping commands of different queues of one device apart.
//!
//! ```text
//!   device   │ 4 KiB │ 4 KiB │ 4 KiB │ ...          a unit; units that are WORDS apart share a word
//!                │       │       │
//!   words    │ exclusive:1 │ waited:1 │ readers:30 │
//! ```
//!
//! A command claims the words of all units that it touches before it begins, and releases them when it has ended: for
//! itself alone if it changes the device, otherwise together with other readers. It claims all words or none, so that
//! nobody waits while holding a claim. A claim that fails marks the word as waited for: from then on only those who try
//! again get it, and no newcomer, so that a reader or a writer of a block that is always in use gets its turn.
//!
//! A discard claims nothing: it is a hint, which may take effect before or after any other command, and its range may be so
//! long that it would keep all others from the device.
//!
//! Invariant: while a range is claimed by a command that changes it, no other command has a claim of any of its units.
//! Called by devices of which several threads use one queue each.

use bywash_sync::{AtomicU32, Ordering, pause};
use std::ops::Range;

/// Binary logarithm of the size of a unit, in bytes.
const UNIT_BITS: u32 = 12;
/// Number of words, 256 KiB for each device: so many that commands of different volumes rarely meet at one.
#[cfg(not(loom))]
const WORDS: usize = 1 << 16;
#[cfg(loom)]
const WORDS: usize = 2;
/// Bit of a word that one command has claimed for itself.
const EXCLUSIVE: u32 = 1 << 31;
/// Bit of a word that somebody waits for. The lower bits count the readers.
const WAITED: u32 = 1 << 30;
/// Number of failed attempts after which a thread that waits lets others run.
const SPINS: u32 = 128;

/// Kind of attempt to claim a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAttempt {
    /// The first, which fails if somebody waits for the range.
    First,
    /// A later one.
    Again,
}

/// Ranges of one device that commands of its queues have claimed.
#[derive(Debug)]
pub struct Claims {
    words: Box<[AtomicU32; WORDS]>,
}

/// Claim that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    units: Range<u64>,
    changes: bool,
}

impl Claims {
    /// Makes claims of a device, none of which is claimed.
    #[expect(clippy::new_without_default, reason = "it takes 256 KiB, which nobody should ask for unawares")]
    pub fn new() -> Claims {
        let words: Box<[AtomicU32]> = (0..WORDS).map(|_| AtomicU32::new(0)).collect();
        Claims { words: words.try_into().expect("there are as many as asked for") }
    }

    /// Claims a range of the device, in bytes, for one command alone if `changes`, else together with others. Returns false if
    /// another command has a claim that excludes this one.
    #[inline]
    pub fn try_claim(&self, range: &Range<u64>, changes: bool, attempt: ClaimAttempt) -> bool {
        self.try_units(units(range), changes, attempt)
    }

    #[inline]
    fn try_units(&self, units: Range<u64>, changes: bool, attempt: ClaimAttempt) -> bool {
        // Most commands touch one unit.
        if units.end - units.start == 1 {
            return claim_word(self.word(units.start), changes, attempt);
        }
        for unit in units.clone() {
            if !claim_word(self.word(unit), changes, attempt) {
                self.release_units(units.start..unit, changes);
                return false;
            }
        }
        true
    }

    /// Releases a range that was claimed with the same arguments.
    #[inline]
    pub fn release(&self, range: &Range<u64>, changes: bool) {
        self.release_units(units(range), changes);
    }

    /// Claims a range, and waits for that as long as others use it: a thread that waits so claims nothing else, and
    /// those that it waits for copy memory.
    #[inline]
    pub(crate) fn claim(&self, range: Range<u64>, changes: bool) -> Claim<'_> {
        let units = units(&range);
        if !self.try_units(units.clone(), changes, ClaimAttempt::First) {
            self.wait_for(&units, changes);
        }
        Claim { claims: self, units, changes }
    }

    #[cold]
    fn wait_for(&self, units: &Range<u64>, changes: bool) {
        let mut attempts = 0;
        while !self.try_units(units.clone(), changes, ClaimAttempt::Again) {
            attempts += 1;
            // The one who has the claim may need this processor to end it.
            if attempts % SPINS == 0 { std::thread::yield_now() } else { pause() }
        }
    }

    #[inline]
    fn word(&self, unit: u64) -> &AtomicU32 {
        &self.words[unit as usize % WORDS]
    }

    #[inline]
    fn release_units(&self, units: Range<u64>, changes: bool) {
        for unit in units {
            // SYNC: claim (release): what the command has done is visible to those who claim the unit next.
            match changes {
                true => self.word(unit).fetch_and(!EXCLUSIVE, Ordering::Release),
                false => self.word(unit).fetch_sub(1, Ordering::Release),
            };
        }
    }
}

impl Drop for Claim<'_> {
    #[inline]
    fn drop(&mut self) {
        self.claims.release_units(self.units.clone(), self.changes);
    }
}

/// Returns the units that a range touches. As many as there are words stand for all of the device.
#[inline]
fn units(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    let (first, end) = (range.start >> UNIT_BITS, ((range.end - 1) >> UNIT_BITS) + 1);
    first..end.min(first + WORDS as u64)
}

#[inline]
fn claim_word(word: &AtomicU32, changes: bool, attempt: ClaimAttempt) -> bool {
    let value = word.load(Ordering::Relaxed);
    let (is_free, next) = match changes {
        true => (value == 0, EXCLUSIVE),
        false => (value & (EXCLUSIVE | WAITED) == 0, value + 1),
    };
    // SYNC: claim (acquire): what the former claimants have done is visible from here on.
    if is_free && word.compare_exchange(value, next, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        return true;
    }
    claim_contended(word, changes, attempt)
}

#[cold]
fn claim_contended(word: &AtomicU32, changes: bool, attempt: ClaimAttempt) -> bool {
    let mut value = word.load(Ordering::Relaxed);
    loop {
        let is_taken = if changes { value & !WAITED != 0 } else { value & EXCLUSIVE != 0 };
        let is_refused = is_taken || (value & WAITED != 0 && attempt == ClaimAttempt::First);
        let next = match (is_refused, changes) {
            (true, _) => value | WAITED,
            (false, true) => EXCLUSIVE,
            // No overflow: fewer than 2^30 commands are in flight.
            (false, false) => (value & !WAITED) + 1,
        };
        if next == value {
            return false;
        }
        // SYNC: claim (acquire): what the former claimants have done is visible from here on.
        match word.compare_exchange_weak(value, next, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return !is_refused,
            Err(now) => value = now,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_writers_do_not() {
        let claims = Claims::new();
        let first = |range: Range<u64>, changes| claims.try_claim(&range, changes, ClaimAttempt::First);
        assert!(first(0..512, false) && first(0..8192, false));
        assert!(!first(4096..4608, true));
        claims.release(&(0..8192), false);
        assert!(first(8192..8704, true) && !first(8000..8704, false));
        // The attempt that failed has kept no claim of its first unit, which somebody else waits for.
        assert!(claims.try_claim(&(4096..4608), true, ClaimAttempt::Again));
    }

    #[test]
    fn newcomers_leave_a_unit_to_those_who_wait() {
        let claims = Claims::new();
        let range = 0..4096;
        assert!(claims.try_claim(&range, false, ClaimAttempt::First));
        assert!(!claims.try_claim(&range, true, ClaimAttempt::First));
        assert!(!claims.try_claim(&range, false, ClaimAttempt::First), "a writer waits");
        claims.release(&range, false);
        assert!(!claims.try_claim(&range, true, ClaimAttempt::First), "it has not got its turn yet");
        assert!(claims.try_claim(&range, true, ClaimAttempt::Again));
        claims.release(&range, true);
        assert!(claims.try_claim(&range, true, ClaimAttempt::First));
    }

    #[test]
    fn units_are_those_that_are_touched() {
        for (range, expected) in [
            (0..0, 0..0),
            (4096..4096, 0..0),
            (0..1, 0..1),
            (4095..4097, 0..2),
            (8192..12288, 2..3),
            (4096..u64::MAX, 1..1 + WORDS as u64),
        ] {
            assert_eq!(units(&range), expected, "{range:?}");
        }
    }

    /// Two threads write whole ranges over each other and read them: no range is ever a mixture.
    #[test]
    fn ranges_that_overlap_exclude_one_another() {
        use bywash_sync::AtomicU64;
        const UNITS: u64 = 8;
        let claims = Claims::new();
        let contents: Vec<AtomicU64> = (0..UNITS).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 1..=2u64 {
                let (claims, contents) = (&claims, &contents);
                scope.spawn(move || {
                    for round in 0..20_000u64 {
                        let (start, changes) = ((round * thread) % UNITS, round % 3 != 0);
                        let end = (start + 1 + round % 4).min(UNITS);
                        let _claim = claims.claim(start << UNIT_BITS..end << UNIT_BITS, changes);
                        let all = &contents[start as usize..end as usize];
                        if changes {
                            all.iter().for_each(|one| one.store(round << 2 | thread, Ordering::Relaxed));
                        }
                        let seen: Vec<u64> = all.iter().map(|one| one.load(Ordering::Relaxed)).collect();
                        let again: Vec<u64> = all.iter().map(|one| one.load(Ordering::Relaxed)).collect();
                        assert_eq!(seen, again, "thread {thread}, round {round}");
                    }
                });
            }
        });
        assert!(claims.words.iter().all(|word| word.load(Ordering::Relaxed) & !WAITED == 0));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use bywash_sync::AtomicU64;
    use loom::thread;
    use std::sync::Arc;

    /// A writer and a reader of two units: the reader sees both writes or none.
    #[test]
    fn a_reader_sees_a_writer_before_or_after() {
        loom::model(|| {
            let shared = Arc::new((Claims::new(), AtomicU64::new(0), AtomicU64::new(0)));
            let theirs = shared.clone();
            let other = thread::spawn(move || {
                let (claims, one, two) = &*theirs;
                let range = 0..8192;
                if claims.try_claim(&range, true, ClaimAttempt::First) {
                    one.store(1, Ordering::Relaxed);
                    two.store(1, Ordering::Relaxed);
                    claims.release(&range, true);
                }
            });
            let (claims, one, two) = &*shared;
            let range = 0..8192;
            if claims.try_claim(&range, false, ClaimAttempt::First) {
                assert_eq!(one.load(Ordering::Relaxed), two.load(Ordering::Relaxed));
                claims.release(&range, false);
            }
            other.join().unwrap();
            assert!(claims.try_claim(&range, true, ClaimAttempt::Again), "a claim was left behind");
        });
    }
}
