//! Tests of the store with power failures: of the writes since the last sync some reach the medium and some
//! do not, in any order, and a write may be torn.
//!
//! Failures that this looks for: the store does not open; an operation that had returned is lost; an
//! operation is there in part. `BYWASH_STRESS_SEED` repeats a run, `BYWASH_STRESS_ROUNDS` makes it longer.

use super::*;
use crate::right::Mode;
use crate::testing::PowerCutFile;
use bywash_support::peers::{Random, rounds};

/// Describes everything that can be read from a store.
fn state(store: &Store) -> String {
    let volumes: Vec<_> =
        store.list().unwrap().iter().map(|volume| store.mapping(&volume.name).unwrap()).collect();
    let devices = store.devices().unwrap();
    let clearing: Vec<_> =
        devices.iter().map(|device| store.to_clear(&device.name, usize::MAX).unwrap()).collect();
    format!("{volumes:?} {devices:?} {clearing:?}")
}

fn operate(store: &Store, random: &mut Random) {
    let name = format!("volume-{}", random.below(6));
    let size = Bytes((1 + random.below(40)) * 512);
    let ownership =
        Ownership { owner: random.below(3) as u32, group: 0, mode: Mode::PRIVATE, read_only: false };
    // Refused operations count as well: they must change nothing.
    let range = |random: &mut Random| {
        let id = store.list().unwrap().first().map_or(0, |volume| volume.id);
        (id, [Extent::new(random.below(6000), 1 + random.below(1200))])
    };
    let other = format!("volume-{}", random.below(6));
    let _ = match random.below(14) {
        9 | 10 => store.snapshot(&name, &other).map(drop),
        11 => store.clone_snapshot(&name, &other).map(drop),
        12 => store.rollback(&name, &other).map(drop),
        13 => {
            let (id, range) = range(random);
            let room = CopyRoom { most: Blocks(700), taken: &[], only_free: random.below(2) == 0 };
            let before = state(store);
            match store.plan_copies(id, &range, room) {
                // One change at a time: a plan that has made room is the change.
                Ok(copies) if !copies.is_empty() && state(store) == before => {
                    store.copied(id, &copies).map(drop)
                }
                planned => planned.map(drop),
            }
        }
        6 => store.create_thin(&name, "disk", Bytes((1 + random.below(8000)) * 512), ownership).map(drop),
        7 => {
            let (id, range) = range(random);
            match random.below(2) {
                0 => store.allocate(id, &range).map(drop),
                _ => store.allocate_ahead(id, &range).map(drop),
            }
        }
        8 => {
            let (id, range) = range(random);
            store.release(id, &range).map(drop)
        }
        0 | 1 => store.create(&name, "disk", size, ownership).map(drop),
        2 => store.resize(&name, size).map(drop),
        3 => store.remove(&name),
        4 => store.set_ownership(&name, |changed| *changed = ownership).map(drop),
        _ => store.to_clear("disk", 1).and_then(|pieces| match pieces.first() {
            Some(piece) => store.cleared("disk", *piece),
            None => Ok(()),
        }),
    };
}

#[test]
fn what_was_returned_is_there_after_a_failure() {
    let mut random = Random::seeded("power");
    let file = PowerCutFile::default();
    let store = file.open().unwrap();
    let block = BlockSize::new(Bytes(512)).unwrap();
    store.attach_device("disk", Bytes(12_000 * 512), block, NewBlocks::Cleared).unwrap();
    // The store is not closed first, since a power failure does not close it either.
    let mut bytes = file.durable();
    drop(store);
    let (mut undone, mut done) = (0, 0);
    for round in 0..rounds(60) {
        let file = PowerCutFile::with(bytes.clone());
        let mut store = file.open().unwrap();
        let (mut before, mut after) = (state(&store), state(&store));
        // The power fails between two operations, or during one.
        let mut idle_after = if random.below(4) == 0 { 1 + random.below(20) } else { 0 };
        file.fail_after(if idle_after > 0 { 0 } else { 1 + random.below(400) });
        let mut operations = 0;
        while !file.has_failed() {
            if random.below(20) == 0 {
                // The power may also fail while the store is closed or opened.
                drop(store);
                store = file.open().unwrap();
            } else {
                operate(&store, &mut random);
            }
            before = std::mem::replace(&mut after, state(&store));
            if idle_after > 0 {
                idle_after -= 1;
                if idle_after == 0 {
                    file.fail();
                    before.clone_from(&after);
                }
            }
            operations += 1;
            assert!(operations < 10_000, "nothing is written");
        }
        bytes = file.after_failure(&mut |below| random.below(below)).unwrap();
        let store = PowerCutFile::with(bytes.clone()).open().unwrap();
        let found = state(&store);
        assert!(
            found == before || found == after,
            "round {round}: {found}\nbefore: {before}\nafter: {after}"
        );
        if before != after {
            undone += u64::from(found == before);
            done += u64::from(found == after);
        }
    }
    eprintln!("the operation in flight was there {done} times, and was not {undone} times");
    assert!(undone + done > 0, "the power failed at no moment that matters");
}
