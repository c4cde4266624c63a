//! Values of requests in flight, by tag. One thread puts a value into a slot and sends the slot's number, its
//! tag, to the other party. Another thread learns from the other party that the tag is completed, and takes
//! the value.
//!
//! ```text
//!   Sent::put            the other party             Done::take
//!   slot = value         ...                         slot is UNDER_WAY?
//!   slot UNDER_WAY  ->   tag goes there and   ->     take the value
//!                        comes back                  slot IDLE, tag into the ring of free tags
//!        ^------------------------------------------------'
//! ```
//!
//! Invariant: [`SlotSender`] alone uses a slot while its tag is free, and [`SlotTaker`] alone while it is in
//! flight. The other party may name any tag at any time. If the tag is not in flight, nothing is taken. A tag
//! that is completed twice in a row may take the next value of that tag, but never touches a slot that is
//! being filled.

use crate::ring::{Consumer, Producer, Shared, words_needed};
use bywash_sync::Ordering::{Acquire, Relaxed, Release};
use bywash_sync::{AtomicU32, AtomicU64, Cell};
use std::sync::{Arc, Weak};

const IDLE: u32 = 0;
const UNDER_WAY: u32 = 1;

#[derive(Debug)]
struct Slot<T> {
    state: AtomicU32,
    /// Size of the value, as its sender gives it; valid while the slot is in flight.
    size: AtomicU64,
    value: Cell<Option<T>>,
}

/// The side that puts values into slots.
#[derive(Debug)]
pub struct SlotSender<T> {
    slots: Arc<[Slot<T>]>,
    /// First tag that was never used; so are all greater ones.
    unused: usize,
    /// Tags that were taken back without having been sent.
    spare: Vec<u32>,
    free: Consumer<1>,
}

/// The side that takes the values of completed tags.
#[derive(Debug)]
pub struct SlotTaker<T> {
    slots: Arc<[Slot<T>]>,
    free: Producer<1>,
}

/// Read access to the sizes of the values in flight, for a third party that counts them. It does not keep the
/// slots alive.
#[derive(Debug)]
pub struct SlotSizes<T>(Weak<[Slot<T>]>);

/// Makes `count` idle slots, a power of two, and their two sides.
pub fn slot_pair<T>(count: usize) -> (SlotSender<T>, SlotTaker<T>) {
    let idle = || Slot { state: AtomicU32::new(IDLE), size: AtomicU64::new(0), value: Cell::new(None) };
    let slots: Arc<[Slot<T>]> = (0..count).map(|_| idle()).collect();
    let memory = Shared::in_this_process(words_needed::<1>(count));
    let sent = SlotSender {
        slots: slots.clone(),
        unused: 0,
        spare: Vec::new(),
        free: Consumer::new(memory.clone(), count),
    };
    (sent, SlotTaker { slots, free: Producer::new(memory, count) })
}

impl<T> SlotSender<T> {
    /// Puts a value into a free slot and returns its tag.
    ///
    /// # Errors
    /// Returns the value if all slots are in flight.
    #[inline]
    pub fn put(&mut self, value: T) -> Result<u32, T> {
        self.put_sized(value, 0)
    }

    /// Like [`SlotSender::put`], for a value that counts with this size; see [`SlotSizes`].
    ///
    /// # Errors
    /// Returns the value if all slots are in flight.
    #[inline]
    pub fn put_sized(&mut self, value: T, size: u64) -> Result<u32, T> {
        let Some(tag) = self.free_tag() else { return Err(value) };
        let slot = &self.slots[tag as usize];
        // SAFETY: the tag was free, so `SlotTaker` does not use the slot: its last use ended before the tag
        // entered the ring of free tags, or it never had one.
        unsafe { slot.value.with(|place| *place = Some(value)) };
        slot.size.store(size, Relaxed);
        // SYNC: slot (release).
        slot.state.store(UNDER_WAY, Release);
        Ok(tag)
    }

    /// Returns read access to the sizes of the values in flight.
    pub fn sizes_in_flight(&self) -> SlotSizes<T> {
        SlotSizes(Arc::downgrade(&self.slots))
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

    /// Takes back a value that could not be sent after all; `None` if the other party completed the tag
    /// without having got it.
    pub fn cancel(&mut self, tag: u32) -> Option<T> {
        let slot = &self.slots[tag as usize];
        // SYNC: slot (acquire).
        slot.state.compare_exchange(UNDER_WAY, IDLE, Acquire, Relaxed).ok()?;
        self.spare.push(tag);
        // SAFETY: the exchange found the slot in flight and made it idle, so `SlotTaker` cannot take the
        // value; this side owns it now.
        unsafe { slot.value.with(Option::take) }
    }
}

impl<T> SlotSizes<T> {
    /// Returns the sizes of the values in flight, by tag; 0 for a slot that is not in flight. They may change
    /// at any moment.
    pub fn sizes(&self) -> Vec<u64> {
        let Some(slots) = self.0.upgrade() else { return Vec::new() };
        let size = |slot: &Slot<T>| match slot.state.load(Acquire) {
            UNDER_WAY => slot.size.load(Relaxed),
            _ => 0,
        };
        slots.iter().map(size).collect()
    }
}

impl<T> SlotTaker<T> {
    /// Takes the value of this tag; `None` if the tag is not in flight.
    #[inline(always)]
    pub fn take(&mut self, tag: u32) -> Option<T> {
        let slot = self.slots.get(tag as usize)?;
        // SYNC: slot (acquire). An exchange, since `cancel` may want the slot at the same time.
        slot.state.compare_exchange(UNDER_WAY, IDLE, Acquire, Relaxed).ok()?;
        // SAFETY: the exchange found the slot in flight and made it idle, so nobody else takes the value, and
        // no value is put in before the tag is pushed below.
        let value = unsafe { slot.value.with(Option::take) };
        // The ring has room for every tag, and each is free at most once; its consumer is in this process.
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
    fn every_slot_can_be_in_flight_and_none_twice() {
        let (mut sent, mut done) = slot_pair::<u32>(4);
        let tags: Vec<u32> = (0..4).map(|value| sent.put(value).unwrap()).collect();
        assert_eq!(tags, [0, 1, 2, 3]);
        assert_eq!(sent.put(9), Err(9));
        assert_eq!(done.take(2), Some(2));
        assert_eq!((done.take(2), done.take(4), done.take(u32::MAX)), (None, None, None));
        assert_eq!(sent.put(9), Ok(2));
        assert_eq!(sent.put(9), Err(9));
    }

    #[test]
    fn what_is_in_flight_is_counted() {
        let (mut sent, mut done) = slot_pair::<u32>(4);
        let in_flight = sent.sizes_in_flight();
        assert_eq!((sent.put_sized(7, 100), sent.put(8), sent.put_sized(9, 300)), (Ok(0), Ok(1), Ok(2)));
        assert_eq!(in_flight.sizes(), [100, 0, 300, 0]);
        assert_eq!((done.take(0), sent.cancel(2)), (Some(7), Some(9)));
        assert_eq!(in_flight.sizes(), [0; 4]);
        drop((sent, done));
        assert!(in_flight.sizes().is_empty());
    }

    #[test]
    fn what_was_not_sent_comes_back() {
        let (mut sent, mut done) = slot_pair::<u32>(1);
        let tag = sent.put(7).unwrap();
        assert_eq!(sent.cancel(tag), Some(7));
        assert_eq!(done.take(tag), None);
        assert_eq!(sent.put(8), Ok(tag));
        assert_eq!(done.take(tag), Some(8));
        assert_eq!(sent.cancel(tag), None);
    }

    /// Found by `fuzz/`: only the last of several tags that were taken back could be used again.
    #[test]
    fn no_slot_is_lost_when_several_were_not_sent() {
        let (mut sent, mut done) = slot_pair::<u32>(4);
        let tags: Vec<u32> = (0..4).map(|value| sent.put(value).unwrap()).collect();
        assert_eq!((sent.cancel(tags[0]), done.take(tags[1])), (Some(0), Some(1)));
        assert_eq!((sent.cancel(tags[2]), sent.cancel(tags[3])), (Some(2), Some(3)));
        assert_eq!((0..4).filter(|value| sent.put(*value).is_ok()).count(), 4);
    }

    /// Runs under Miri too: two threads, completions out of order.
    #[test]
    fn what_comes_back_is_what_was_sent() {
        const ROUNDS: u64 = if cfg!(miri) { 100 } else { 100_000 };
        let (mut sent, mut done) = slot_pair::<u64>(8);
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
                // Mostly the greatest tag first.
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

    /// The other party names the tag at any time, before it was sent and again after.
    #[test]
    fn a_slot_that_is_being_filled_is_nobodys() {
        loom::model(|| {
            let (mut sent, mut done) = slot_pair::<u32>(1);
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
            let (mut sent, mut done) = slot_pair::<u32>(1);
            let tag = sent.put(1).unwrap();
            let other = thread::spawn(move || done.take(tag));
            let back = sent.cancel(tag);
            let taken = other.join().unwrap();
            assert!(back.is_some() != taken.is_some());
            assert!(sent.put(2).is_ok());
        });
    }
}
