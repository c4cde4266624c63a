//! Bells: one side of a ring sleeps until the other has done something, at almost no cost while nobody
//! sleeps.
//!
//! A bell is one word. The sleeper writes how it wants to be woken, executes a fence, and looks once more for
//! the event that it waits for. The ringer, after each operation, executes a fence and looks at the bell.
//!
//! ```text
//!   sleeper                          ringer
//!   bell = FUTEX or SIGNAL           (an entry, or room for one)
//!   heavy fence                      light fence
//!   look at the ring again           look at the bell; if it is set, clear it and wake
//!   sleep
//! ```
//!
//! The heavy fence interrupts every core that runs a program with such a bell, which pays while sleeping is
//! the exception. If sleeping is the rule, a sleeper *wishes* for full fences on both sides, by a word beside
//! its bell. The ringer sees the wish when it wakes the sleeper next, and announces by a second word that it
//! executes full fences from now on. Then the sleeper needs no heavy one. The order of both changes keeps the
//! invariant:
//!
//! ```text
//!   to full fences                      to light fences
//!   pass full fences from now on        word = LIGHT
//!   heavy fence (for other threads)     full fence
//!   word = FULL                         pass light fences from now on
//! ```
//!
//! A sleeper reads the second word behind a full fence that follows the store to its bell. If it reads FULL,
//! it sees every entry that was sent with a light fence before, and every later light fence of the ringer is
//! behind the store to the bell.
//!
//! Invariant: either the sleeper sees the event, or the ringer sees the bell. A malicious party can leave the
//! other one asleep, which it can also do by sending nothing, or wake it for nothing. So every sleep has a
//! timeout.
//!
//! A sleeper that waits for many entries writes the number of the entry that shall wake it into the upper
//! half of the bell. Earlier entries do not wake it.

use crate::ring::shared::Shared;
use bywash_sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use bywash_sync::{AtomicBool, full_fence, heavy_shared_fence, light_shared_fence};

/// Way in which a sleeper wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeMethod {
    /// By futex(2) on the bell itself.
    Futex,
    /// By a message through the connection that the two sides have besides the memory.
    Signal,
}

/// Kind of fence that was executed before a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// A full fence of this core alone.
    Full,
    /// A fence on every core that runs a program with such a bell.
    Heavy,
}

const NOBODY: u64 = 0;
const FUTEX: u64 = 1;
const SIGNAL: u64 = 2;
/// Mask of the lower half of a bell: the way to be woken.
const WAKE_MASK: u64 = 0xffff_ffff;
/// Flag in the upper half of a bell: it contains a number of entries.
const COUNTS: u64 = 1 << 63;
/// Mask of the number of entries in the upper half of a bell: the low 31 bits of the number.
const ENTRIES: u64 = (1 << 31) - 1;

/// Offset from the bell of the word that announces the ringer's fences. Zero: light ones.
const FENCES: usize = 1;
/// Offset from the bell of the word that tells the fences that the sleeper wishes for.
const FENCE_REQUEST: usize = 2;
/// Value of both words for full fences.
const FULL: u64 = 1;

/// The bell of one side, as used by the sleeper or by the ringer.
#[derive(Debug)]
pub struct Bell {
    memory: Shared,
    index: usize,
    fences_prepared: bool,
    /// True while the ringer executes full fences.
    is_full: AtomicBool,
    /// True while a thread of the ringer changes the kind of fences, which the other threads then leave
    /// alone.
    is_changing: AtomicBool,
}

impl Bell {
    /// Makes the bell in word `index` ([`crate::ring::layout::CONSUMER_BELL`], [`crate::ring::layout::PRODUCER_BELL`]).
    /// `fences_prepared`: [`bywash_sync::prepare_shared_fences`] has succeeded on both sides.
    pub fn new(memory: Shared, index: usize, fences_prepared: bool) -> Bell {
        assert!(index < memory.len());
        Bell {
            memory,
            index,
            fences_prepared,
            is_full: AtomicBool::new(false),
            is_changing: AtomicBool::new(false),
        }
    }

    /// Rings after an operation. Returns how the sleeper must be woken, if one sleeps; a futex sleeper is
    /// woken right here.
    #[inline(always)]
    pub fn ring(&self) -> Option<WakeMethod> {
        self.fence();
        if self.memory.load(self.index) == NOBODY {
            return None;
        }
        self.wake()
    }

    /// Like [`Bell::ring`], after an entry was sent; `entries` is the number of entries sent so far.
    #[inline(always)]
    pub fn ring_for(&self, entries: u64) -> Option<WakeMethod> {
        self.fence();
        let word = self.memory.load(self.index);
        if word == NOBODY || !wakes(word, entries) {
            return None;
        }
        self.wake()
    }

    /// Orders the operation before the look at the bell.
    #[inline(always)]
    fn fence(&self) {
        // SYNC: fences (acquire): pairs with the change to light fences, after its full fence.
        if self.is_full.load(Acquire) { self.fence_fully() } else { light_shared_fence(self.fences_prepared) }
    }

    #[cold]
    fn fence_fully(&self) {
        full_fence();
        if self.wishes() != FULL {
            self.change(false);
        }
    }

    /// Changes to full fences if the sleeper wishes for them.
    fn follow_wish(&self) {
        if self.fences_prepared && !self.is_full.load(Relaxed) && self.wishes() == FULL {
            self.change(true);
        }
    }

    /// Changes the kind of fences that this side executes, in the order that the module's head gives.
    fn change(&self, to_full: bool) {
        // SYNC: changing (acquire).
        if self.is_changing.swap(true, Acquire) {
            return;
        }
        let said = self.memory.word(self.index + FENCES);
        if to_full {
            self.is_full.store(true, SeqCst);
            heavy_shared_fence(true);
            // SYNC: fences-passed (release).
            said.store(FULL, SeqCst);
        } else {
            said.store(0, SeqCst);
            full_fence();
            // SYNC: fences (release).
            self.is_full.store(false, Release);
        }
        // SYNC: changing (release).
        self.is_changing.store(false, Release);
    }

    fn wishes(&self) -> u64 {
        if self.index + FENCE_REQUEST < self.memory.len() {
            self.memory.load(self.index + FENCE_REQUEST)
        } else {
            0
        }
    }

    /// Tells the ringer which fences this side, the sleeper, prefers: full ones if sleeping is the rule.
    pub fn request_fences(&self, full: bool) {
        let wish = u64::from(full);
        if self.fences_prepared && self.wishes() != wish {
            self.memory.word(self.index + FENCE_REQUEST).store(wish, Relaxed);
        }
    }

    #[cold]
    fn wake(&self) -> Option<WakeMethod> {
        self.follow_wish();
        match self.memory.word(self.index).swap(NOBODY, SeqCst) & WAKE_MASK {
            FUTEX => {
                #[cfg(not(loom))]
                self.wake_futex();
                Some(WakeMethod::Futex)
            }
            SIGNAL => Some(WakeMethod::Signal),
            // The sleeper is awake already, or the word is invalid.
            _ => None,
        }
    }

    /// Announces that this side is about to sleep. The caller looks once more for the event that it waits for
    /// before it sleeps, and calls [`Bell::unset`] if the event has occurred.
    pub fn set(&self, how: WakeMethod) -> Fence {
        self.store(how, 0)
    }

    /// Like [`Bell::set`], but entries before number `entries` do not wake this side.
    pub fn set_until(&self, how: WakeMethod, entries: u64) -> Fence {
        self.store(how, COUNTS | (entries & ENTRIES) << 32)
    }

    fn store(&self, how: WakeMethod, when: u64) -> Fence {
        let how = match how {
            WakeMethod::Futex => FUTEX,
            WakeMethod::Signal => SIGNAL,
        };
        self.memory.word(self.index).store(how | when, SeqCst);
        full_fence();
        // SYNC: fences-passed (acquire): pairs with the ringer's announcement of full fences.
        if self.fences_prepared && self.memory.word(self.index + FENCES).load(SeqCst) != FULL {
            heavy_shared_fence(true);
            return Fence::Heavy;
        }
        Fence::Full
    }

    /// Cancels [`Bell::set`]. False: the bell has been rung already.
    pub fn unset(&self) -> bool {
        self.is_set() && self.memory.word(self.index).swap(NOBODY, SeqCst) != NOBODY
    }

    /// Returns true if nobody has rung since [`Bell::set`].
    pub fn is_set(&self) -> bool {
        self.memory.word(self.index).load(Relaxed) != NOBODY
    }
}

/// Returns true if a sleeper with this word shall be woken when `entries` entries have been sent.
fn wakes(word: u64, entries: u64) -> bool {
    if word & COUNTS == 0 {
        return true;
    }
    // A ring has far fewer entries than half of these numbers: so a number that seems to be further behind is
    // still to come.
    entries.wrapping_sub(word >> 32) & ENTRIES <= ENTRIES / 2
}

#[cfg(not(loom))]
mod futex {
    use super::{Bell, FUTEX};
    use core::sync::atomic::AtomicU32;
    use rustix::thread::futex::{Flags, Timespec, wait, wake};
    use std::time::Duration;

    impl Bell {
        /// Returns the half of the word that futex(2) examines.
        fn futex_word(&self) -> &AtomicU32 {
            // SAFETY: the low half of an aligned word that `memory` keeps mapped; only its address is used,
            // by futex(2).
            unsafe { &*self.memory.address(self.index).cast::<AtomicU32>() }
        }

        pub(super) fn wake_futex(&self) {
            // The error is ignored: it could only mean a bad address, and the address is valid.
            let _ = wake(self.futex_word(), Flags::empty(), 1);
        }

        /// Sleeps until the bell is rung, but no longer than `limit`. May return early.
        pub fn sleep(&self, limit: Duration) {
            let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
            // The result is ignored: rung, interrupted or expired, the caller looks for the event itself.
            let _ = wait(self.futex_word(), Flags::empty(), FUTEX as u32, Some(&limit));
        }
    }
}

#[cfg(loom)]
impl Bell {
    /// Lets another thread run, in place of a sleep: loom finds those who would not have been woken.
    pub fn sleep(&self, _limit: std::time::Duration) {
        bywash_sync::pause();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::ring::{Consumer, Producer, words_needed};
    use loom::thread;

    fn bell(memory: &Shared, index: usize) -> Bell {
        Bell::new(memory.clone(), index, false)
    }

    /// Pushes the entries 1 and 2 and calls `ring` after each, with the number of entries pushed so far. Returns the
    /// last entry for which `ring` returned true: the one that woke the consumer.
    fn push_two(memory: Shared, mut ring: impl FnMut(u64) -> bool) -> Option<u64> {
        let mut producer = Producer::<2>::new(memory, 2);
        let mut woken_by = None;
        for number in 1..=2u64 {
            assert!(producer.push(&[number << 32, number]).unwrap());
            if ring(producer.pushed()) {
                woken_by = Some(number);
            }
        }
        woken_by
    }

    #[test]
    fn entries_arrive_whole_and_in_order_and_nobody_oversleeps() {
        loom::model(|| {
            let memory = Shared::in_this_process(words_needed::<2>(2));
            let theirs = memory.clone();
            let other = thread::spawn(move || {
                let bell = bell(&theirs, crate::ring::layout::CONSUMER_BELL);
                push_two(theirs, |_| bell.ring().is_some()).is_some()
            });
            let mut consumer = Consumer::<2>::new(memory.clone(), 2);
            let bell = bell(&memory, crate::ring::layout::CONSUMER_BELL);
            bell.set(WakeMethod::Futex);
            let slept = !consumer.is_ready();
            let mut next = 1;
            while let Some(entry) = consumer.pop() {
                assert_eq!((entry[0] >> 32, entry[1]), (next, next));
                next += 1;
            }
            let woke = other.join().unwrap();
            // If the entry came after the last look, the producer must have seen the bell.
            assert!(!slept || woke, "asleep with an entry in the ring");
            while let Some(entry) = consumer.pop() {
                assert_eq!((entry[0] >> 32, entry[1]), (next, next));
                next += 1;
            }
            assert_eq!(next, 3);
        });
    }

    /// Fences change while entries are sent. In the model light fences are full fences too, and heavy ones
    /// affect no other thread. So this test checks only that changing the kind of fences breaks nothing else.
    #[test]
    fn nobody_oversleeps_while_fences_change() {
        loom::model(|| {
            let memory = Shared::in_this_process(words_needed::<2>(2));
            let theirs = memory.clone();
            let other = thread::spawn(move || {
                let bell = Bell::new(theirs.clone(), crate::ring::layout::CONSUMER_BELL, true);
                push_two(theirs, |_| bell.ring().is_some()).is_some()
            });
            let consumer = Consumer::<2>::new(memory.clone(), 2);
            let bell = Bell::new(memory, crate::ring::layout::CONSUMER_BELL, true);
            bell.request_fences(true);
            bell.set(WakeMethod::Futex);
            let slept = !consumer.is_ready();
            bell.request_fences(false);
            let woke = other.join().unwrap();
            assert!(!slept || woke, "asleep with an entry in the ring");
        });
    }

    #[test]
    fn who_waits_for_two_entries_is_woken_by_the_second() {
        loom::model(|| {
            let memory = Shared::in_this_process(words_needed::<2>(2));
            let theirs = memory.clone();
            let other = thread::spawn(move || {
                let bell = bell(&theirs, crate::ring::layout::CONSUMER_BELL);
                push_two(theirs, |pushed| bell.ring_for(pushed).is_some())
            });
            let consumer = Consumer::<2>::new(memory.clone(), 2);
            let bell = bell(&memory, crate::ring::layout::CONSUMER_BELL);
            bell.set_until(WakeMethod::Futex, consumer.taken() + 2);
            let slept = !consumer.has(2);
            let woken_by = other.join().unwrap();
            assert!(woken_by.is_none_or(|number| number == 2), "woken too early");
            assert!(!slept || woken_by.is_some(), "asleep with both in the ring");
        });
    }

    #[test]
    fn room_is_not_used_before_it_is_free_and_nobody_oversleeps() {
        loom::model(|| {
            let memory = Shared::in_this_process(words_needed::<2>(1));
            let mut producer = Producer::<2>::new(memory.clone(), 1);
            assert!(producer.push(&[1 << 32, 1]).unwrap());
            let theirs = memory.clone();
            let other = thread::spawn(move || {
                let mut consumer = Consumer::<2>::new(theirs.clone(), 1);
                let bell = bell(&theirs, crate::ring::layout::PRODUCER_BELL);
                let entry = consumer.pop().unwrap();
                assert_eq!((entry[0] >> 32, entry[1]), (1, 1));
                let woke = bell.ring().is_some();
                let second = consumer.pop();
                assert!(second.is_none_or(|entry| (entry[0] >> 32, entry[1]) == (2, 2)));
                woke
            });
            let bell = bell(&memory, crate::ring::layout::PRODUCER_BELL);
            bell.set(WakeMethod::Futex);
            let pushed = producer.push(&[2 << 32, 2]).unwrap();
            let woke = other.join().unwrap();
            assert!(pushed || woke, "asleep with room in the ring");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Holds even if the numbers of entries exceed the bits that the word has for them.
        #[test]
        #[cfg_attr(miri, ignore = "proptest takes minutes for a case there")]
        fn entries_wake_from_the_one_asked_for_on(taken in any::<u64>(), wanted in 1u64..1 << 16, there in 0u64..1 << 16) {
            let memory = Shared::in_this_process(1);
            let bell = Bell::new(memory, 0, false);
            bell.set_until(WakeMethod::Signal, taken.wrapping_add(wanted));
            let woken = bell.ring_for(taken.wrapping_add(there));
            prop_assert_eq!(woken, (there >= wanted).then_some(WakeMethod::Signal));
            prop_assert_eq!(bell.is_set(), there < wanted);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "membarrier is a system call by instruction")]
    fn fences_follow_the_wish_of_who_sleeps() {
        if !bywash_sync::prepare_shared_fences() {
            return;
        }
        let memory = Shared::in_this_process(4);
        let sleeper = Bell::new(memory.clone(), 0, true);
        let ringer = Bell::new(memory.clone(), 0, true);
        let ring = || {
            sleeper.set(WakeMethod::Signal);
            assert_eq!(ringer.ring(), Some(WakeMethod::Signal));
            memory.load(FENCES)
        };
        assert_eq!(ring(), 0);
        sleeper.request_fences(true);
        assert_eq!(ring(), FULL);
        assert_eq!((ringer.ring(), memory.load(FENCES)), (None, FULL));
        sleeper.request_fences(false);
        assert_eq!((ringer.ring(), memory.load(FENCES)), (None, 0));
        assert_eq!(ring(), 0);
        // If fences were not prepared, no wish is written.
        let plain = Bell::new(memory.clone(), 0, false);
        plain.request_fences(true);
        assert_eq!(memory.load(FENCE_REQUEST), 0);
    }

    #[test]
    fn who_asks_for_no_entry_is_woken_by_any() {
        let bell = Bell::new(Shared::in_this_process(1), 0, false);
        bell.set(WakeMethod::Signal);
        assert_eq!((bell.ring_for(0), bell.ring_for(0)), (Some(WakeMethod::Signal), None));
        bell.set_until(WakeMethod::Signal, 5);
        assert_eq!((bell.ring(), bell.is_set()), (Some(WakeMethod::Signal), false));
    }
}
