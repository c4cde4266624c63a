//! The slots of requests in flight, found by tag, compared with a map.
//!
//! Failures that this looks for: a tag that the peer names at the wrong moment leads to a slot that is being
//! filled or was emptied already; a slot or a tag is lost for ever, or a tag is assigned twice.

#![no_main]

use arbitrary::Arbitrary;
use bywash_fuzz::Steps;
use bywash_link::ring::slot_pair;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Logarithm of the number of slots, modulo 5.
    size: u8,
    steps: Steps<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Put,
    /// The submitting side takes a request back by a tag, which may be in use or not.
    TakeBack(u8),
    /// The completing side takes a request by any tag, since the peer names it.
    Take(u8),
    TakeAny(u32),
}

fuzz_target!(|input: Input| {
    let count = 1 << (input.size % 5);
    let (mut sent, mut done) = slot_pair::<Box<usize>>(count);
    let mut in_flight = BTreeMap::new();
    for (number, step) in input.steps.into_iter().enumerate() {
        match step {
            Step::Put => match sent.put(Box::new(number)) {
                Ok(tag) => {
                    assert!((tag as usize) < count);
                    assert_eq!(in_flight.insert(tag, number), None, "tag {tag} was given out twice");
                }
                Err(back) => {
                    assert_eq!(*back, number);
                    assert_eq!(in_flight.len(), count, "a slot is lost");
                }
            },
            Step::TakeBack(tag) => {
                let tag = u32::from(tag) % count as u32;
                assert_eq!(sent.cancel(tag).as_deref().copied(), in_flight.remove(&tag));
            }
            Step::Take(tag) => {
                let tag = u32::from(tag) % count as u32;
                assert_eq!(done.take(tag).as_deref().copied(), in_flight.remove(&tag));
            }
            Step::TakeAny(tag) => assert_eq!(done.take(tag).as_deref().copied(), in_flight.remove(&tag)),
        }
    }
});
