//! Stores of volumes whose file somebody else has changed: records that contradict each other, with redb's checksums in
//! order, and bytes of the file that are others.
//!
//! Failures that this looks for: opening such a file, or an operation of a store that was opened, panics or does not end; a store is
//! opened in which two volumes have the same blocks without sharing them; an operation leaves a store that is not opened
//! again.

#![no_main]

use arbitrary::Arbitrary;
use bywash_fuzz::Steps;
use bywash_volume::testing::{PowerCutFile, RecordAction, RecordEdit, alter};
use bywash_volume::{BlockSize, Blocks, Bytes, CopyRoom, Error, Extent, Mode, NewBlocks, Ownership, Store};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

const BLOCK: u64 = 512;
/// Size of the device, in blocks.
const BLOCKS: u64 = 9000;
const DEVICE: &str = "disk";
const NAMES: [&str; 6] = ["plain", "thin", "other", "snapshot", "clone", "new"];
/// Greatest number of edits of one input.
const EDITS_MAX: usize = 6;

#[derive(Arbitrary, Debug)]
enum Step {
    /// A record is changed, before the store is opened.
    Edit {
        action: u8,
        table: u8,
        record: u8,
        word: u8,
        difference: i8,
        scale: u8,
    },
    /// A byte of the file is another, before the store is opened.
    Flip {
        at: u32,
        bits: u8,
    },
    Create(u8, u16),
    CreateThin(u8, u16),
    Resize(u8, u16),
    Remove(u8),
    Rename(u8, u8),
    Snapshot(u8, u8),
    Clone(u8, u8),
    Rollback(u8, u8),
    Allocate(u8, u16, u16),
    Release(u8, u16, u16),
    Copy(u8, u16, u16),
    Clear(u8),
    Reopen,
}

fn ownership() -> Ownership {
    Ownership { owner: 1, group: 1, mode: Mode::PRIVATE, read_only: false }
}

/// File of a store with volumes of all kinds, blocks that are shared, and blocks that are to be cleared.
static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let file = PowerCutFile::default();
    let store = file.open().expect("a new store");
    let block = BlockSize::new(Bytes(BLOCK)).expect("a size of blocks");
    store.attach_device(DEVICE, Bytes(BLOCKS * BLOCK), block, NewBlocks::Cleared).expect("a new device");
    let made = || -> Result<(), Error> {
        store.create("gone", DEVICE, Bytes(100 * BLOCK), ownership())?;
        store.create("plain", DEVICE, Bytes(300 * BLOCK), ownership())?;
        store.remove("gone")?;
        let thin = store.create_thin("thin", DEVICE, Bytes(4096 * BLOCK), ownership())?;
        let other = store.create_thin("other", DEVICE, Bytes(2048 * BLOCK), ownership())?;
        store.allocate(thin.id, &[Extent::new(0, 600), Extent::new(2048, 512)])?;
        store.allocate(other.id, &[Extent::new(512, 1)])?;
        store.snapshot("thin", "snapshot")?;
        store.clone_snapshot("snapshot", "clone")?;
        store.release(thin.id, &[Extent::new(0, 512)])?;
        Ok(())
    };
    made().expect("the volumes of a new store");
    drop(store);
    file.durable()
});

/// Checks that no block is in two volumes that do not share it, and that all are within the device. Returns false if the
/// store says that it is damaged.
fn check(store: &Store) -> bool {
    let (Ok(volumes), Ok(devices)) = (store.list(), store.devices()) else { return false };
    let mut used: Vec<(u64, u64, bool, &str)> = Vec::new();
    for volume in volumes.iter().filter(|volume| !volume.is_gone) {
        let Ok((found, mapped)) = store.mapping(&volume.name) else { return false };
        let device = devices.iter().find(|device| device.name == found.device).expect("a device of a volume");
        let mut logical = Blocks(0);
        for one in mapped {
            assert!(one.logical >= logical, "two extents for the same blocks of {}", volume.name);
            logical = one.logical_end();
            let end = one.extent.end().expect("an extent within 64 bits").0;
            assert!(one.logical_end() <= found.blocks, "an extent behind the end of {}", volume.name);
            assert!(
                one.extent.start >= device.reserved && end <= device.blocks.0,
                "an extent outside of its device"
            );
            used.push((one.extent.start.0, end, one.is_shared, &device.name));
        }
    }
    used.sort_unstable_by(|one, other| (one.3, one.0, one.1).cmp(&(other.3, other.0, other.1)));
    for (at, one) in used.iter().enumerate() {
        for other in used[at + 1..].iter().take_while(|other| other.3 == one.3 && other.0 < one.1) {
            assert!(one.2 && other.2, "two volumes have the same blocks: {one:?}, {other:?}");
        }
    }
    true
}

/// Carries out an operation. What it refuses has no effect.
fn operate(store: &Store, step: Step) -> Result<(), Error> {
    let name = |number: u8| NAMES[usize::from(number) % NAMES.len()];
    let size = |blocks: u16| Bytes(u64::from(blocks) * BLOCK);
    let id = |number: u8| store.get(name(number)).map(|(volume, _)| volume.id);
    let range = |from: u16, length: u16| [Extent::new(from.into(), u64::from(length) % 2048)];
    match step {
        Step::Edit { .. } | Step::Flip { .. } | Step::Reopen => Ok(()),
        Step::Create(number, blocks) => {
            store.create(name(number), DEVICE, size(blocks), ownership()).map(drop)
        }
        Step::CreateThin(number, blocks) => {
            store.create_thin(name(number), DEVICE, size(blocks), ownership()).map(drop)
        }
        Step::Resize(number, blocks) => store.resize(name(number), size(blocks)).map(drop),
        Step::Remove(number) => store.remove(name(number)),
        Step::Rename(number, to) => store.rename(name(number), name(to)).map(drop),
        Step::Snapshot(number, to) => store.snapshot(name(number), name(to)).map(drop),
        Step::Clone(number, to) => store.clone_snapshot(name(number), name(to)).map(drop),
        Step::Rollback(number, to) => store.rollback(name(number), name(to)).map(drop),
        Step::Allocate(number, from, length) => match from % 2 {
            0 => store.allocate(id(number)?, &range(from, length)).map(drop),
            _ => store.allocate_ahead(id(number)?, &range(from, length)).map(drop),
        },
        Step::Release(number, from, length) => store.release(id(number)?, &range(from, length)).map(drop),
        Step::Copy(number, from, length) => {
            let room = CopyRoom { most: Blocks(1024), taken: &[], only_free: length % 2 == 0 };
            let id = id(number)?;
            let copies = store.plan_copies(id, &range(from, length), room)?;
            if copies.is_empty() { Ok(()) } else { store.copied(id, &copies).map(drop) }
        }
        Step::Clear(most) => {
            for extent in store.to_clear(DEVICE, usize::from(most % 4))? {
                store.cleared(DEVICE, extent)?;
            }
            Ok(())
        }
    }
}

fuzz_target!(|steps: Steps<Step>| {
    let (mut edits, mut flips, mut operations) = (Vec::new(), Vec::new(), Vec::new());
    for step in steps {
        match step {
            Step::Edit { action, table, record, word, difference, scale } if edits.len() < EDITS_MAX => {
                let action = match action % 4 {
                    0 => RecordAction::Add,
                    1 => RecordAction::Remove,
                    _ => RecordAction::Replace,
                };
                // By some blocks, by clusters, by more than there is.
                let difference = i64::from(difference) << [0, 9, 16, 56][usize::from(scale % 4)];
                edits.push(RecordEdit { action, table, record, word, difference: difference as u64 });
            }
            Step::Edit { .. } => {}
            Step::Flip { at, bits } => flips.push((at as usize, bits)),
            other => operations.push(other),
        }
    }
    let mut bytes = alter(SOUND.clone(), &edits).expect("edits of a sound file");
    let length = bytes.len();
    flips.iter().for_each(|(at, bits)| bytes[at % length] ^= bits);
    let file = PowerCutFile::with(bytes);
    let Ok(mut store) = file.open() else { return };
    if !check(&store) {
        // Bytes that no check of redb's covers, or pages that are not read before, are found now.
        assert!(!flips.is_empty(), "a store was opened that is damaged");
        return;
    }
    for step in operations {
        if matches!(step, Step::Reopen) {
            drop(store);
            store = file.open().expect("the store is opened again");
        } else if let Err(Error::Damaged(what)) = operate(&store, step) {
            panic!("an operation finds that a store is damaged which was opened: {what}");
        }
        assert!(check(&store), "an operation has damaged the store");
    }
    drop(store);
    file.open().expect("the store is opened again");
});
