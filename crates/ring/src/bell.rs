//! How one side sleeps until the other has done something, with nothing to pay while nobody sleeps.
//!
//! A bell is one word. Whoever is about to sleep writes how it wants to be woken, passes a fence, and looks
//! once more whether what it waits for is there. Whoever has done something passes a fence and looks at the
//! bell.
//!
//! ```text
//!   sleeper                          ringer
//!   bell = FUTEX or SIGNAL           (an entry, or room for one)
//!   heavy fence                      light fence
//!   look at the ring again           look at the bell; if it is set, clear it and wake
//!   sleep
//! ```
//!
//! The heavy fence interrupts every core that runs a program with such a bell, which pays while sleeping is the
//! exception. Where it is the rule a sleeper *wishes* for full fences on both sides, by a word beside its bell. Who
//! rings sees the wish when it wakes the sleeper next, and says by a second word that it passes full fences from now
//! on: then the sleeper needs no heavy one. The order of both changes is what keeps the invariant:
//!
//! ```text
//!   to full fences                      to light fences
//!   pass full fences from now on        word = LIGHT
//!   heavy fence (for other threads)     full fence
//!   word = FULL                         pass light fences from now on
//! ```
//!
//! A sleeper reads the word behind a full fence that follows its bell. If it reads FULL, every entry that was sent with
//! a light fence before is visible to it, and every light fence to come lies behind its bell.
//!
//! Invariant: either the sleeper sees what was done, or the ringer sees the bell. A hostile party can leave
//! the other one asleep, as it can by sending nothing, or wake it for nothing; so every sleep has an end.
//!
//! Who waits for many entries says in the upper half of the word which one is to wake it: those before do not.

use crate::shared::Shared;
use bywash_sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use bywash_sync::{AtomicBool, full_fence, heavy_shared_fence, light_shared_fence};

/// How a sleeper wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeper {
    /// By futex(2) on the bell itself.
    Futex,
    /// By a message through whatever connects the two sides beside the memory.
    Signal,
}

/// Fence that the beginning of a sleep took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// One of this core alone.
    Full,
    /// One on every core that runs a program with such a bell.
    Heavy,
}

const NOBODY: u64 = 0;
const FUTEX: u64 = 1;
const SIGNAL: u64 = 2;
/// The half that says how.
const HOW: u64 = 0xffff_ffff;
/// The other half says how many entries there are to be, as much of that number as there is room for.
const COUNTS: u64 = 1 << 63;
const ENTRIES: u64 = (1 << 31) - 1;

/// Word behind the bell: the fences that who rings passes. Zero: light ones.
const FENCES: usize = 1;
/// Word behind that: the fences that the sleeper wishes for.
const WISH: usize = 2;
/// In both: full fences.
const FULL: u64 = 1;

/// One side's bell.
#[derive(Debug)]
pub struct Bell {
    memory: Shared,
    index: usize,
    fences_prepared: bool,
    /// Who rings passes full fences.
    is_full: AtomicBool,
    /// A thread that rings is changing that; the others leave it alone.
    is_changing: AtomicBool,
}

impl Bell {
    /// The bell in word `index` ([`crate::layout::CONSUMER_BELL`], [`crate::layout::PRODUCER_BELL`]).
    /// `fences_prepared`: both sides have called [`bywash_sync::prepare_shared_fences`] with success.
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

    /// Something was done: who sleeps, and must be woken? A sleeper by futex is woken right here.
    #[inline(always)]
    pub fn ring(&self) -> Option<Sleeper> {
        self.fence();
        if self.memory.load(self.index) == NOBODY {
            return None;
        }
        self.wake()
    }

    /// As [`Bell::ring`], where what was done is an entry, and there were so many with it.
    #[inline(always)]
    pub fn ring_for(&self, entries: u64) -> Option<Sleeper> {
        self.fence();
        let word = self.memory.load(self.index);
        if word == NOBODY || !wakes(word, entries) {
            return None;
        }
        self.wake()
    }

    /// Orders what was done before the look at the bell.
    #[inline(always)]
    fn fence(&self) {
        // SYNC: fences (acquire): the full fence of who changed to light ones.
        if self.is_full.load(Acquire) { self.fence_fully() } else { light_shared_fence(self.fences_prepared) }
    }

    #[cold]
    fn fence_fully(&self) {
        full_fence();
        if self.wishes() != FULL {
            self.change(false);
        }
    }

    /// Begins to pass full fences if the sleeper wishes for them.
    fn follow_wish(&self) {
        if self.fences_prepared && !self.is_full.load(Relaxed) && self.wishes() == FULL {
            self.change(true);
        }
    }

    /// Changes the fences that this side passes, in the order that the module tells.
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
        if self.index + WISH < self.memory.len() { self.memory.load(self.index + WISH) } else { 0 }
    }

    /// Says which fences this side, which sleeps, would rather have: full ones where sleeping is the rule.
    pub fn wish(&self, full: bool) {
        let wish = u64::from(full);
        if self.fences_prepared && self.wishes() != wish {
            self.memory.word(self.index + WISH).store(wish, Relaxed);
        }
    }

    #[cold]
    fn wake(&self) -> Option<Sleeper> {
        self.follow_wish();
        match self.memory.word(self.index).swap(NOBODY, SeqCst) & HOW {
            FUTEX => {
                #[cfg(not(loom))]
                self.wake_futex();
                Some(Sleeper::Futex)
            }
            SIGNAL => Some(Sleeper::Signal),
            // Nobody any more, or nonsense.
            _ => None,
        }
    }

    /// Says that this side is about to sleep. To be followed by another look at what it waits for, and by
    /// [`Bell::unset`] when it is there.
    pub fn set(&self, how: Sleeper) -> Fence {
        self.store(how, 0)
    }

    /// As [`Bell::set`], to sleep until there have been so many entries, whatever comes before.
    pub fn set_until(&self, how: Sleeper, entries: u64) -> Fence {
        self.store(how, COUNTS | (entries & ENTRIES) << 32)
    }

    fn store(&self, how: Sleeper, when: u64) -> Fence {
        let how = match how {
            Sleeper::Futex => FUTEX,
            Sleeper::Signal => SIGNAL,
        };
        self.memory.word(self.index).store(how | when, SeqCst);
        full_fence();
        // SYNC: fences-passed (acquire).
        if self.fences_prepared && self.memory.word(self.index + FENCES).load(SeqCst) != FULL {
            heavy_shared_fence(true);
            return Fence::Heavy;
        }
        Fence::Full
    }

    /// This side does not sleep. False: it has been rung already.
    pub fn unset(&self) -> bool {
        self.is_set() && self.memory.word(self.index).swap(NOBODY, SeqCst) != NOBODY
    }

    /// Whether nobody has rung since [`Bell::set`].
    pub fn is_set(&self) -> bool {
        self.memory.word(self.index).load(Relaxed) != NOBODY
    }
}

/// Whether a sleeper with this word is to be woken when there have been so many entries.
fn wakes(word: u64, entries: u64) -> bool {
    if word & COUNTS == 0 {
        return true;
    }
    // No ring has half as many places as there are such numbers: what seems to be that far behind is still to come.
    entries.wrapping_sub(word >> 32) & ENTRIES <= ENTRIES / 2
}

#[cfg(not(loom))]
mod futex {
    use super::{Bell, FUTEX};
    use core::sync::atomic::AtomicU32;
    use rustix::thread::futex::{Flags, Timespec, wait, wake};
    use std::time::Duration;

    impl Bell {
        /// The half of the word that futex(2) looks at.
        fn futex_word(&self) -> &AtomicU32 {
            // SAFETY: the low half of a word that stays mapped; only atomic operations are made on it.
            unsafe { &*self.memory.address(self.index).cast::<AtomicU32>() }
        }

        pub(super) fn wake_futex(&self) {
            // An error could only say that the address is bad, which it is not.
            let _ = wake(self.futex_word(), Flags::empty(), 1);
        }

        /// Sleeps until the bell is rung, but no longer than `limit`. May return early.
        pub fn sleep(&self, limit: Duration) {
            let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
            // Rung already, interrupted, or over: the caller looks for itself.
            let _ = wait(self.futex_word(), Flags::empty(), FUTEX as u32, Some(&limit));
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::{Consumer, Producer, words_needed};
    use loom::thread;

    fn bell(memory: &Shared, index: usize) -> Bell {
        Bell::new(memory.clone(), index, false)
    }

    #[test]
    fn entries_arrive_whole_and_in_order_and_nobody_oversleeps() {
        loom::model(|| {
            let memory = Shared::in_this_process(words_needed::<2>(2));
            let theirs = memory.clone();
            let other = thread::spawn(move || {
                let mut producer = Producer::<2>::new(theirs.clone(), 2);
                let bell = bell(&theirs, crate::layout::CONSUMER_BELL);
                let mut woke = false;
                for number in 1..=2u64 {
                    assert!(producer.push(&[number << 32, number]).unwrap());
                    woke |= bell.ring().is_some();
                }
                woke
            });
            let mut consumer = Consumer::<2>::new(memory.clone(), 2);
            let bell = bell(&memory, crate::layout::CONSUMER_BELL);
            bell.set(Sleeper::Futex);
            let slept = !consumer.is_ready();
            let mut next = 1;
            while let Some(entry) = consumer.pop() {
                assert_eq!((entry[0] >> 32, entry[1]), (next, next));
                next += 1;
            }
            let woke = other.join().unwrap();
            // With the entry behind the last look, the producer must have seen the bell.
            assert!(!slept || woke, "asleep with an entry in the ring");
            while let Some(entry) = consumer.pop() {
                assert_eq!((entry[0] >> 32, entry[1]), (next, next));
                next += 1;
            }
            assert_eq!(next, 3);
        });
    }

    /// Fences change while entries are sent. In the model light fences are full ones as well, and heavy ones reach
    /// nobody else: what is checked is that nothing but the fences' kind changes.
    #[test]
    fn nobody_oversleeps_while_fences_change() {
        loom::model(|| {
            let memory = Shared::in_this_process(words_needed::<2>(2));
            let theirs = memory.clone();
            let other = thread::spawn(move || {
                let mut producer = Producer::<2>::new(theirs.clone(), 2);
                let bell = Bell::new(theirs, crate::layout::CONSUMER_BELL, true);
                let mut woke = false;
                for number in 1..=2u64 {
                    assert!(producer.push(&[number << 32, number]).unwrap());
                    woke |= bell.ring().is_some();
                }
                woke
            });
            let consumer = Consumer::<2>::new(memory.clone(), 2);
            let bell = Bell::new(memory, crate::layout::CONSUMER_BELL, true);
            bell.wish(true);
            bell.set(Sleeper::Futex);
            let slept = !consumer.is_ready();
            bell.wish(false);
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
                let mut producer = Producer::<2>::new(theirs.clone(), 2);
                let bell = bell(&theirs, crate::layout::CONSUMER_BELL);
                let mut woken_by = None;
                for number in 1..=2u64 {
                    assert!(producer.push(&[number << 32, number]).unwrap());
                    if bell.ring_for(producer.pushed()).is_some() {
                        woken_by = Some(number);
                    }
                }
                woken_by
            });
            let consumer = Consumer::<2>::new(memory.clone(), 2);
            let bell = bell(&memory, crate::layout::CONSUMER_BELL);
            bell.set_until(Sleeper::Futex, consumer.taken() + 2);
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
                let bell = bell(&theirs, crate::layout::PRODUCER_BELL);
                let entry = consumer.pop().unwrap();
                assert_eq!((entry[0] >> 32, entry[1]), (1, 1));
                let woke = bell.ring().is_some();
                let second = consumer.pop();
                assert!(second.is_none_or(|entry| (entry[0] >> 32, entry[1]) == (2, 2)));
                woke
            });
            let bell = bell(&memory, crate::layout::PRODUCER_BELL);
            bell.set(Sleeper::Futex);
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

        /// Also when the numbers have outgrown the room that the word has for them.
        #[test]
        #[cfg_attr(miri, ignore = "proptest takes minutes for a case there")]
        fn entries_wake_from_the_one_asked_for_on(taken in any::<u64>(), wanted in 1u64..1 << 16, there in 0u64..1 << 16) {
            let memory = Shared::in_this_process(1);
            let bell = Bell::new(memory, 0, false);
            bell.set_until(Sleeper::Signal, taken.wrapping_add(wanted));
            let woken = bell.ring_for(taken.wrapping_add(there));
            prop_assert_eq!(woken, (there >= wanted).then_some(Sleeper::Signal));
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
            sleeper.set(Sleeper::Signal);
            assert_eq!(ringer.ring(), Some(Sleeper::Signal));
            memory.load(FENCES)
        };
        assert_eq!(ring(), 0);
        sleeper.wish(true);
        assert_eq!(ring(), FULL);
        assert_eq!((ringer.ring(), memory.load(FENCES)), (None, FULL));
        sleeper.wish(false);
        assert_eq!((ringer.ring(), memory.load(FENCES)), (None, 0));
        assert_eq!(ring(), 0);
        // Where fences were never prepared nothing is wished for.
        let plain = Bell::new(memory.clone(), 0, false);
        plain.wish(true);
        assert_eq!(memory.load(WISH), 0);
    }

    #[test]
    fn who_asks_for_no_entry_is_woken_by_any() {
        let bell = Bell::new(Shared::in_this_process(1), 0, false);
        bell.set(Sleeper::Signal);
        assert_eq!((bell.ring_for(0), bell.ring_for(0)), (Some(Sleeper::Signal), None));
        bell.set_until(Sleeper::Signal, 5);
        assert_eq!((bell.ring(), bell.is_set()), (Some(Sleeper::Signal), false));
    }
}
