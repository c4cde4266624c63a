//! What is under way, by tag, against a map.
//!
//! What could go wrong: a tag that the other party names at a wrong moment leads to a slot that is being filled, to
//! what was taken already, or to nothing for ever after: a tag that is lost, or given out twice.

#![no_main]

use arbitrary::Arbitrary;
use bywash_fuzz::Steps;
use bywash_ring::slots;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Slots, as a power of two.
    size: u8,
    steps: Steps<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Put,
    /// Of those that were given out.
    TakeBack(u8),
    /// Any: it is the other party that says it.
    Take(u8),
    TakeAny(u32),
}

fuzz_target!(|input: Input| {
    let count = 1 << (input.size % 5);
    let (mut sent, mut done) = slots::<Box<usize>>(count);
    let mut under_way = BTreeMap::new();
    for (number, step) in input.steps.into_iter().enumerate() {
        match step {
            Step::Put => match sent.put(Box::new(number)) {
                Ok(tag) => {
                    assert!((tag as usize) < count);
                    assert_eq!(under_way.insert(tag, number), None, "tag {tag} was given out twice");
                }
                Err(back) => {
                    assert_eq!(*back, number);
                    assert_eq!(under_way.len(), count, "a slot is lost");
                }
            },
            Step::TakeBack(tag) => {
                let tag = u32::from(tag) % count as u32;
                assert_eq!(sent.take_back(tag).as_deref().copied(), under_way.remove(&tag));
            }
            Step::Take(tag) => {
                let tag = u32::from(tag) % count as u32;
                assert_eq!(done.take(tag).as_deref().copied(), under_way.remove(&tag));
            }
            Step::TakeAny(tag) => assert_eq!(done.take(tag).as_deref().copied(), under_way.remove(&tag)),
        }
    }
});
