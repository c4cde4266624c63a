//! Failures that these tests look for: a device that is not the one it was is served, or a power failure
//! while a device gets its label loses data.

use super::adopt::{adopt_open, relabel_open};
use super::labels::{LabelArea, look, write_first};
use super::{Identities, IdentityError};
use crate::error::Error;
use bywash_device::testing::{Crash, Fault, FaultEffect, Faulty};
use bywash_device::{Device, Memory, MemoryOptions, Operation, Spec, read_exclusive, write_exclusive};
use bywash_volume::{
    BlockSize, Bytes, DeviceId, Error as StoreError, Identity, Label, Mode, NewBlocks, Ownership, Store,
};
use std::path::Path;

const SIZE: u64 = 8 << 20;
const BLOCK: u64 = 4096;
const CRASHES: [Crash; 4] = [Crash::Lose, Crash::Keep, Crash::Prefix, Crash::Any];

fn blank(bytes: u64) -> Faulty<Memory> {
    over(Memory::new(MemoryOptions::new(bytes)).unwrap(), 1)
}

/// Creates a device like one of a file: without chunks.
fn over(memory: Memory, seed: u64) -> Faulty<Memory> {
    Faulty::over(memory, seed)
}

fn spec(name: &str) -> Spec {
    format!("{name}=file:/nowhere").parse().unwrap()
}

fn serve(store: &Store, name: &str, device: &mut dyn Device) -> Result<(), Error> {
    Identities::new(store, false, Vec::new()).identify(&spec(name), device)
}

fn label(device: &mut dyn Device) -> Label {
    match look(device).unwrap() {
        LabelArea::Label(label) => label,
        other => panic!("no label, but {}", other.what()),
    }
}

fn refusal(outcome: Result<(), Error>) -> IdentityError {
    match outcome {
        Err(Error::Identity(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn ownership() -> Ownership {
    Ownership { owner: 0, group: 0, mode: Mode::PRIVATE, read_only: false }
}

#[test]
fn a_blank_device_gets_a_label_and_is_known_by_it() {
    let store = Store::in_memory().unwrap();
    let mut device = blank(SIZE);
    serve(&store, "disk", &mut device).unwrap();
    let first = label(&mut device);
    assert_eq!((first.name.as_str(), first.size, first.sequence), ("disk", Bytes(SIZE), 0));
    assert_eq!(store.device("disk").unwrap().identity, Identity::Label { id: first.id, is_written: true });
    serve(&store, "disk", &mut device).unwrap();
    assert_eq!(label(&mut device), first);
}

/// A device that is exchanged, blank, foreign, not labelled or shortened is refused, with the command that
/// helps.
#[test]
fn a_device_that_is_another_one_is_refused() {
    let store = Store::in_memory().unwrap();
    let (mut a, mut b) = (blank(SIZE), blank(SIZE));
    serve(&store, "a", &mut a).unwrap();
    serve(&store, "b", &mut b).unwrap();
    let exchanged = serve(&store, "a", &mut b).unwrap_err().to_string();
    assert!(exchanged.contains("is 'b' by its label") && exchanged.contains("relabel"), "{exchanged}");
    let replaced = refusal(serve(&store, "a", &mut blank(SIZE)));
    assert!(matches!(replaced, IdentityError::NoLabel { .. }), "{replaced}");
    let mut foreign = blank(SIZE);
    serve(&Store::in_memory().unwrap(), "c", &mut foreign).unwrap();
    let other = refusal(serve(&store, "c", &mut foreign));
    assert!(matches!(&other, IdentityError::Foreign { labelled, .. } if labelled == "c"), "{other}");
    assert!(other.to_string().contains("adopt c="), "{other}");
    // A foreign device by the name of a known one.
    let known = serve(&store, "a", &mut foreign).unwrap_err();
    assert!(matches!(known, Error::Store(StoreError::OtherIdentity { .. })), "{known}");
    let mut both = Identities::new(&store, false, Vec::new());
    both.identify(&spec("a"), &mut a).unwrap();
    let twice = refusal(both.identify(&spec("x"), &mut a));
    assert!(matches!(twice, IdentityError::Twice { .. }), "{twice}");
    let mut holds = blank(SIZE);
    write_exclusive(&mut holds, 0, &[b"XFSB".to_vec(), vec![0; 508]].concat()).unwrap();
    let held = refusal(serve(&store, "d", &mut holds));
    assert!(matches!(&held, IdentityError::Holds { what, .. } if what == "XFS"), "{held}");
    let mut small = blank(SIZE / 2);
    let mut copy = label(&mut a);
    copy.sequence = 0;
    write_exclusive(&mut small, 0, &copy.to_bytes()).unwrap();
    let shrunk = refusal(serve(&store, "a", &mut small));
    assert!(matches!(shrunk, IdentityError::Shrunk { .. }), "{shrunk}");
    // None of the refusals has changed what the store knows.
    serve(&store, "a", &mut a).unwrap();
    serve(&store, "b", &mut b).unwrap();
}

/// Without a file of the store volumes end with the server, and so does the identity of their device.
#[test]
fn a_device_of_a_store_in_memory_is_free_for_the_next() {
    let mut device = blank(SIZE);
    let temporary = |device: &mut dyn Device| {
        Identities::new(&Store::in_memory().unwrap(), true, Vec::new()).identify(&spec("disk"), device)
    };
    temporary(&mut device).unwrap();
    let first = label(&mut device);
    temporary(&mut device).unwrap();
    let second = label(&mut device);
    assert!(first.is_temporary && second.is_temporary && first.id != second.id);
    // A lasting store takes the device, and then no other store does.
    let store = Store::in_memory().unwrap();
    serve(&store, "disk", &mut device).unwrap();
    assert!(!label(&mut device).is_temporary);
    let refused = refusal(temporary(&mut device));
    assert!(refused.to_string().contains("give the store that knows it"), "{refused}");
    serve(&store, "disk", &mut device).unwrap();
}

#[test]
fn what_is_adopted_has_to_be_named() {
    let store = Store::in_memory().unwrap();
    let mut device = blank(SIZE);
    let mut other = blank(SIZE);
    serve(&Store::in_memory().unwrap(), "elsewhere", &mut other).unwrap();
    let id = label(&mut other).id.to_string();
    write_exclusive(&mut device, 1536, &[7; 512]).unwrap();
    for (device, what) in [(&mut device, "data"), (&mut other, id.as_str())] {
        for lose in [None, Some("ext4"), Some("")] {
            let refused = adopt_open(&store, what, device, lose).unwrap_err().to_string();
            assert!(
                refused.contains(&format!("--force {what}"))
                    || refused.contains(&format!("--force '{what}'")),
                "{refused}"
            );
        }
        let adopted = adopt_open(&store, what, device, Some(what)).unwrap();
        assert_eq!(label(device).id, adopted);
        serve(&store, what, device).unwrap();
        let again = adopt_open(&store, "new", device, Some(&adopted.to_string())).unwrap_err();
        assert!(matches!(again, Error::Identity(IdentityError::Known { .. })), "{again}");
    }
    assert_eq!(read_exclusive(&mut device, 1536, 512).unwrap(), [0; 512]);
}

#[test]
fn a_label_is_written_again() {
    let store = Store::in_memory().unwrap();
    let mut device = blank(SIZE);
    serve(&store, "disk", &mut device).unwrap();
    let first = label(&mut device);
    let nothing = relabel_open(&store, "disk", &mut device, None, true).unwrap_err();
    assert!(matches!(nothing, Error::Identity(IdentityError::Unchanged(_))), "{nothing}");
    relabel_open(&store, "disk", &mut device, Some("archive"), false).unwrap();
    let second = label(&mut device);
    assert_eq!((second.id, second.name.as_str(), second.sequence), (first.id, "archive", 1));
    serve(&store, "archive", &mut device).unwrap();
    // Another program has overwritten the beginning.
    write_exclusive(&mut device, 0, &vec![1; 1 << 20]).unwrap();
    let refused = refusal(serve(&store, "archive", &mut device));
    assert!(matches!(refused, IdentityError::NoLabel { .. }), "{refused}");
    let unvouched = relabel_open(&store, "archive", &mut device, None, false).unwrap_err();
    assert!(matches!(unvouched, Error::Identity(IdentityError::NoLabel { .. })), "{unvouched}");
    assert_eq!(relabel_open(&store, "archive", &mut device, None, true).unwrap(), first.id);
    serve(&store, "archive", &mut device).unwrap();
    // A label of another store's device is never overwritten.
    let mut foreign = blank(SIZE);
    serve(&Store::in_memory().unwrap(), "archive", &mut foreign).unwrap();
    let stolen = relabel_open(&store, "archive", &mut foreign, None, true).unwrap_err();
    assert!(matches!(stolen, Error::Identity(IdentityError::Foreign { .. })), "{stolen}");
}

/// Runs `run` on a device until the power fails at its durable write number `skip`. Returns the memory after
/// the crash, and true if `run` ended before that.
fn until_power_fails(
    skip: u32,
    mut device: Faulty<Memory>,
    how: Crash,
    run: impl FnOnce(&mut dyn Device) -> Result<(), Error>,
) -> (Memory, bool) {
    let range = 0..u64::MAX;
    let (operation, what) = (Some(Operation::WriteDurable), FaultEffect::Fail(5));
    device.inject(Fault { operation, range, skip, times: u32::MAX, what });
    let is_over = run(&mut device).is_ok();
    (device.crash(how), is_over)
}

fn reopened(path: &Path) -> Store {
    Store::open(path).unwrap()
}

/// Wherever the power fails, the next start finishes the label of a new device.
#[test]
fn power_fails_while_a_new_device_gets_its_label() {
    let folder = tempfile::tempdir().unwrap();
    let mut rounds = 0;
    for how in CRASHES {
        for skip in 0.. {
            let path = folder.path().join(format!("{how:?}-{skip}"));
            let store = reopened(&path);
            let run = |device: &mut dyn Device| serve(&store, "disk", device);
            let (memory, is_over) = until_power_fails(skip, blank(SIZE), how, run);
            drop(store);
            let (store, mut device) = (reopened(&path), over(memory, 2));
            serve(&store, "disk", &mut device).unwrap();
            let id = label(&mut device).id;
            assert_eq!(store.device("disk").unwrap().identity, Identity::Label { id, is_written: true });
            rounds += 1;
            if is_over {
                break;
            }
        }
    }
    assert!(rounds > CRASHES.len(), "nothing ever failed");
}

/// The label is written, and the server ended before it recorded that.
#[test]
fn a_label_that_the_store_has_not_heard_of_counts() {
    let store = Store::in_memory().unwrap();
    let mut device = blank(SIZE);
    let id = DeviceId::random().unwrap();
    let block = BlockSize::new(Bytes(BLOCK)).unwrap();
    store.attach_labelled("disk", id, Bytes(SIZE), block, NewBlocks::Uncleared).unwrap();
    write_first(&mut device, id, "disk", false, None).unwrap();
    serve(&store, "disk", &mut device).unwrap();
    assert_eq!(store.device("disk").unwrap().identity, Identity::Label { id, is_written: true });
}

/// The same for a device that has grown, and that gets another name.
#[test]
fn power_fails_while_a_label_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    for how in CRASHES {
        for skip in 0.. {
            let path = folder.path().join(format!("{how:?}-{skip}"));
            let store = reopened(&path);
            let mut small = blank(SIZE);
            serve(&store, "disk", &mut small).unwrap();
            let id = label(&mut small).id;
            let mut large = blank(2 * SIZE);
            let head = read_exclusive(&mut small, 0, 1 << 20).unwrap();
            write_exclusive(&mut large, 0, &head).unwrap();
            let run = |device: &mut dyn Device| {
                serve(&store, "disk", device)?;
                relabel_open(&store, "disk", device, Some("archive"), false).map(drop)
            };
            let (memory, is_over) = until_power_fails(skip, large, how, run);
            drop(store);
            let (store, mut device) = (reopened(&path), over(memory, 2));
            let name = store.devices().unwrap().remove(0).name;
            serve(&store, &name, &mut device).unwrap();
            let now = label(&mut device);
            assert_eq!((now.id, now.size, &now.name), (id, Bytes(2 * SIZE), &name));
            if is_over {
                assert_eq!(name, "archive");
                break;
            }
        }
    }
}

/// Creates a device of a store from before labels, with two volumes and the remains of a removed one.
fn before_labels(store: &Store) -> Faulty<Memory> {
    let mut device = blank(SIZE);
    let block = BlockSize::new(Bytes(BLOCK)).unwrap();
    store.attach_device("disk", Bytes(SIZE), block, NewBlocks::Cleared).unwrap();
    for (name, blocks) in [("a", 100), ("secret", 30), ("b", 500)] {
        store.create(name, "disk", Bytes(blocks * BLOCK), ownership()).unwrap();
    }
    for name in ["a", "secret", "b"] {
        fill(store, name, &mut device);
    }
    store.remove("secret").unwrap();
    device
}

fn fill(store: &Store, name: &str, device: &mut dyn Device) {
    let (volume, extents) = store.get(name).unwrap();
    let mut number = 0u32;
    for span in volume.spans(&extents).collect::<Vec<_>>() {
        for at in (0..span.length.0).step_by(BLOCK as usize) {
            write_exclusive(device, span.start.0 + at, &contents(name, number)).unwrap();
            number += 1;
        }
    }
}

fn contents(name: &str, number: u32) -> Vec<u8> {
    let mut block = name.as_bytes()[..1].repeat(BLOCK as usize);
    block[..4].copy_from_slice(&number.to_le_bytes());
    block
}

fn hold(store: &Store, name: &str, device: &mut dyn Device) {
    let (volume, extents) = store.get(name).unwrap();
    let spans = volume
        .spans(&extents)
        .flat_map(|span| (0..span.length.0).step_by(BLOCK as usize).map(move |at| span.start.0 + at));
    for (number, at) in spans.collect::<Vec<_>>().into_iter().enumerate() {
        let found = read_exclusive(device, at, BLOCK as usize).unwrap();
        assert_eq!(found, contents(name, number as u32), "block {number} of {name}");
    }
}

/// Checks that blocks which the store considers free and cleared contain only zeros.
fn hold_free(store: &Store, device: &mut dyn Device) {
    let known = store.device("disk").unwrap();
    let mut is_other = vec![false; known.blocks.0 as usize];
    let mut mark = |start: u64, length: u64| is_other[start as usize..][..length as usize].fill(true);
    mark(0, known.reserved.0);
    for extent in store.to_clear("disk", usize::MAX).unwrap() {
        mark(extent.start.0, extent.length.0);
    }
    for volume in store.list().unwrap() {
        for extent in store.get(&volume.name).unwrap().1 {
            mark(extent.start.0, extent.length.0);
        }
    }
    for (block, _) in is_other.iter().enumerate().filter(|(_, is_other)| !**is_other) {
        let found = read_exclusive(device, block as u64 * BLOCK, BLOCK as usize).unwrap();
        assert!(found.iter().all(|byte| *byte == 0), "block {block} is free and has data");
    }
}

/// A device from before labels is refused with the command that helps. Wherever that command is interrupted,
/// running it again finishes.
#[test]
fn power_fails_while_a_device_from_before_labels_is_adopted() {
    let folder = tempfile::tempdir().unwrap();
    for how in CRASHES {
        for skip in 0.. {
            let path = folder.path().join(format!("{how:?}-{skip}"));
            let store = reopened(&path);
            let mut device = before_labels(&store);
            let refused = refusal(serve(&store, "disk", &mut device));
            assert!(matches!(refused, IdentityError::NeverLabelled(_)), "{refused}");
            let run = |device: &mut dyn Device| adopt_open(&store, "disk", device, None).map(drop);
            let (memory, is_over) = until_power_fails(skip, device, how, run);
            drop(store);
            let (store, mut device) = (reopened(&path), over(memory, 2));
            hold_free(&store, &mut device);
            if !is_over {
                // The device is served, or refused; then the same command helps.
                if serve(&store, "disk", &mut device).is_err() {
                    adopt_open(&store, "disk", &mut device, None).unwrap();
                }
            }
            serve(&store, "disk", &mut device).unwrap();
            for volume in ["a", "b"] {
                hold(&store, volume, &mut device);
            }
            hold_free(&store, &mut device);
            if is_over {
                break;
            }
        }
    }
}
