//! What is under way, by tag: one thread puts something into a slot and sends the slot's number, its tag, to the
//! other party; another thread is told the tag when it is done, and takes what is in the slot.
//!
//! ```text
//!   Sent::put            the other party             Done::take
//!   slot = value         ...                         slot is UNDER_WAY?
//!   slot UNDER_WAY  ->   tag goes there and   ->     take the value
//!                        comes back                  slot IDLE, tag into the ring of free tags
//!        ^------------------------------------------------'
//! ```
//!
//! Invariant: a slot is used by [`Sent`] alone while its tag is free, and by [`Done`] alone while it is under way.
//! The other party may name any tag at any time: one that is not under way is answered with nothing, and one that
//! is done twice in a row may end the next one of that tag, but never a slot that is being filled.

use crate::{Consumer, Producer, Shared, words_needed};
use bywash_sync::Ordering::{Acquire, Relaxed, Release};
use bywash_sync::{AtomicU32, AtomicU64, Cell};
use std::sync::{Arc, Weak};

const IDLE: u32 = 0;
const UNDER_WAY: u32 = 1;

#[derive(Debug)]
struct Slot<T> {
    state: AtomicU32,
    /// Size of the value as its sender says, while it is under way.
    size: AtomicU64,
    value: Cell<Option<T>>,
}

/// The side that sends.
#[derive(Debug)]
pub struct Sent<T> {
    slots: Arc<[Slot<T>]>,
    /// Tags that were not used yet, from this one on.
    unused: usize,
    /// Tags that came back without having been sent.
    spare: Vec<u32>,
    free: Consumer<1>,
}

/// The side that is told what is done.
#[derive(Debug)]
pub struct Done<T> {
    slots: Arc<[Slot<T>]>,
    free: Producer<1>,
}

/// Sizes of what is under way, for somebody who counts it. It does not keep the slots.
#[derive(Debug)]
pub struct UnderWay<T>(Weak<[Slot<T>]>);

/// So many slots, a power of two, all idle.
pub fn slots<T>(count: usize) -> (Sent<T>, Done<T>) {
    let idle = || Slot { state: AtomicU32::new(IDLE), size: AtomicU64::new(0), value: Cell::new(None) };
    let slots: Arc<[Slot<T>]> = (0..count).map(|_| idle()).collect();
    let memory = Shared::in_this_process(words_needed::<1>(count));
    let sent = Sent {
        slots: slots.clone(),
        unused: 0,
        spare: Vec::new(),
        free: Consumer::new(memory.clone(), count),
    };
    (sent, Done { slots, free: Producer::new(memory, count) })
}

impl<T> Sent<T> {
    /// Puts something into a slot and answers its tag; gives it back when all slots are under way.
    ///
    /// # Errors
    /// What was given.
    #[inline]
    pub fn put(&mut self, value: T) -> Result<u32, T> {
        self.put_sized(value, 0)
    }

    /// As [`Sent::put`], for a value that counts as so large; see [`UnderWay`].
    ///
    /// # Errors
    /// What was given.
    #[inline]
    pub fn put_sized(&mut self, value: T, size: u64) -> Result<u32, T> {
        let Some(tag) = self.free_tag() else { return Err(value) };
        let slot = &self.slots[tag as usize];
        // SAFETY: the tag was free, and its last user has put it into the ring, or it is the first.
        unsafe { slot.value.with(|place| *place = Some(value)) };
        slot.size.store(size, Relaxed);
        // SYNC: slot (release).
        slot.state.store(UNDER_WAY, Release);
        Ok(tag)
    }

    /// The sizes of what is under way.
    pub fn under_way(&self) -> UnderWay<T> {
        UnderWay(Arc::downgrade(&self.slots))
    }

    #[inline]
    fn free_tag(&mut self) -> Option<u32> {
        if let Some(tag) = self.spare.pop() {
            return Some(tag);
        }
        if let Some([entry]) = self.free.pop() {
            return Some((entry >> 32) as u32);
        }
        let tag = self.unused;
        (tag < self.slots.len()).then(|| {
            self.unused += 1;
            tag as u32
        })
    }

    /// Takes back what could not be sent after all; `None` if the other party ended it without having got it.
    pub fn take_back(&mut self, tag: u32) -> Option<T> {
        let slot = &self.slots[tag as usize];
        // SYNC: slot (acquire).
        slot.state.compare_exchange(UNDER_WAY, IDLE, Acquire, Relaxed).ok()?;
        self.spare.push(tag);
        // SAFETY: it was under way and is this side's now: `Done` found nothing under way.
        unsafe { slot.value.with(Option::take) }
    }
}

impl<T> UnderWay<T> {
    /// By tag: the size of what is under way, 0 where nothing is. It may be over at once.
    pub fn sizes(&self) -> Vec<u64> {
        let Some(slots) = self.0.upgrade() else { return Vec::new() };
        let size = |slot: &Slot<T>| match slot.state.load(Acquire) {
            UNDER_WAY => slot.size.load(Relaxed),
            _ => 0,
        };
        slots.iter().map(size).collect()
    }
}

impl<T> Done<T> {
    /// Takes what was under way by this tag; `None` if nothing is.
    #[inline]
    pub fn take(&mut self, tag: u32) -> Option<T> {
        let slot = self.slots.get(tag as usize)?;
        // SYNC: slot (acquire). An exchange, since `take_back` may want the slot as well.
        slot.state.compare_exchange(UNDER_WAY, IDLE, Acquire, Relaxed).ok()?;
        // SAFETY: it was under way, and nobody else takes it.
        let value = unsafe { slot.value.with(Option::take) };
        // There is room for every tag, and each is free once; the consumer is of this process.
        let pushed = self.free.push(&[u64::from(tag) << 32]);
        assert_eq!(pushed, Ok(true), "more tags are free than there are");
        value
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_slot_can_be_under_way_and_none_twice() {
        let (mut sent, mut done) = slots::<u32>(4);
        let tags: Vec<u32> = (0..4).map(|value| sent.put(value).unwrap()).collect();
        assert_eq!(tags, [0, 1, 2, 3]);
        assert_eq!(sent.put(9), Err(9));
        assert_eq!(done.take(2), Some(2));
        assert_eq!((done.take(2), done.take(4), done.take(u32::MAX)), (None, None, None));
        assert_eq!(sent.put(9), Ok(2));
        assert_eq!(sent.put(9), Err(9));
    }

    #[test]
    fn what_is_under_way_is_counted() {
        let (mut sent, mut done) = slots::<u32>(4);
        let under_way = sent.under_way();
        assert_eq!((sent.put_sized(7, 100), sent.put(8), sent.put_sized(9, 300)), (Ok(0), Ok(1), Ok(2)));
        assert_eq!(under_way.sizes(), [100, 0, 300, 0]);
        assert_eq!((done.take(0), sent.take_back(2)), (Some(7), Some(9)));
        assert_eq!(under_way.sizes(), [0; 4]);
        drop((sent, done));
        assert!(under_way.sizes().is_empty());
    }

    #[test]
    fn what_was_not_sent_comes_back() {
        let (mut sent, mut done) = slots::<u32>(1);
        let tag = sent.put(7).unwrap();
        assert_eq!(sent.take_back(tag), Some(7));
        assert_eq!(done.take(tag), None);
        assert_eq!(sent.put(8), Ok(tag));
        assert_eq!(done.take(tag), Some(8));
        assert_eq!(sent.take_back(tag), None);
    }

    /// Found by `fuzz/`: only the last tag that was taken back came back.
    #[test]
    fn no_slot_is_lost_when_several_were_not_sent() {
        let (mut sent, mut done) = slots::<u32>(4);
        let tags: Vec<u32> = (0..4).map(|value| sent.put(value).unwrap()).collect();
        assert_eq!((sent.take_back(tags[0]), done.take(tags[1])), (Some(0), Some(1)));
        assert_eq!((sent.take_back(tags[2]), sent.take_back(tags[3])), (Some(2), Some(3)));
        assert_eq!((0..4).filter(|value| sent.put(*value).is_ok()).count(), 4);
    }

    /// Also what Miri runs: out of order, by two threads.
    #[test]
    fn what_comes_back_is_what_was_sent() {
        const ROUNDS: u64 = if cfg!(miri) { 100 } else { 100_000 };
        let (mut sent, mut done) = slots::<u64>(8);
        let memory = Shared::in_this_process(words_needed::<2>(8));
        let (mut there, mut here) = (Producer::<2>::new(memory.clone(), 8), Consumer::<2>::new(memory, 8));
        let other = std::thread::spawn(move || {
            let mut sum = 0;
            let mut held = BTreeMap::new();
            for number in 0..ROUNDS {
                let (tag, expected) = loop {
                    match here.pop() {
                        Some([tag, value]) => break ((tag >> 32) as u32, value),
                        None => std::thread::yield_now(),
                    }
                };
                held.insert(tag, expected);
                // The newest one first, mostly.
                if held.len() == 3 || number == ROUNDS - 1 {
                    while let Some((tag, expected)) = held.pop_last() {
                        let value = done.take(tag).unwrap();
                        assert_eq!(value, expected);
                        sum += value;
                    }
                }
            }
            sum
        });
        for value in 0..ROUNDS {
            let tag = loop {
                match sent.put(value) {
                    Ok(tag) => break tag,
                    Err(_) => std::thread::yield_now(),
                }
            };
            assert!(there.push(&[u64::from(tag) << 32, value]).unwrap());
        }
        assert_eq!(other.join().unwrap(), ROUNDS * (ROUNDS - 1) / 2);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    /// The other party names the tag whenever it likes, before it was sent and again after.
    #[test]
    fn a_slot_that_is_being_filled_is_nobodys() {
        loom::model(|| {
            let (mut sent, mut done) = slots::<u32>(1);
            let other = thread::spawn(move || [done.take(0), done.take(0)]);
            let first = sent.put(1).is_ok();
            let second = sent.put(2).is_ok();
            let taken: Vec<u32> = other.join().unwrap().into_iter().flatten().collect();
            assert!(first);
            assert!(second || taken.len() < 2);
            assert!(taken.is_empty() || taken[0] == 1);
            assert!(taken.len() < 2 || taken[1] == 2);
        });
    }

    #[test]
    fn only_one_side_takes_what_was_not_sent() {
        loom::model(|| {
            let (mut sent, mut done) = slots::<u32>(1);
            let tag = sent.put(1).unwrap();
            let other = thread::spawn(move || done.take(tag));
            let back = sent.take_back(tag);
            let taken = other.join().unwrap();
            assert!(back.is_some() != taken.is_some());
            assert!(sent.put(2).is_ok());
        });
    }
}
