//! Tests of devices and their identities: which device a name refers to, and what happens to volumes if it is
//! another.

use super::change::{begin, failed};
use super::*;
use crate::extent::ByteRange;
use crate::identity::DeviceId;
use crate::label::RESERVED_BYTES;
use crate::right::Mode;
use redb::TableHandle;

const BLOCK: u64 = 4096;
const RESERVED: u64 = RESERVED_BYTES / BLOCK;

fn id(byte: u8) -> DeviceId {
    DeviceId::from_bytes([byte; 16]).unwrap()
}

fn block(size: u64) -> BlockSize {
    BlockSize::new(Bytes(size)).unwrap()
}

fn ownership() -> Ownership {
    Ownership { owner: 1, group: 1, mode: Mode::PRIVATE, read_only: false }
}

fn attach(store: &Store, name: &str, byte: u8, blocks: u64) -> Result<Device, Error> {
    store.attach_labelled(name, id(byte), Bytes(blocks * BLOCK), block(BLOCK), NewBlocks::Cleared)
}

fn create(store: &Store, name: &str, device: &str, blocks: u64) {
    store.create(name, device, Bytes(blocks * BLOCK), ownership()).unwrap();
}

fn extents(store: &Store, name: &str) -> Vec<(u64, u64)> {
    store.get(name).unwrap().1.iter().map(|extent| (extent.start.0, extent.length.0)).collect()
}

#[test]
fn labels_have_the_first_blocks_and_volumes_the_others() {
    let store = Store::in_memory().unwrap();
    let device = attach(&store, "disk", 1, RESERVED + 10).unwrap();
    assert_eq!((device.reserved, device.free), (Blocks(RESERVED), Blocks(10)));
    create(&store, "all", "disk", 10);
    assert_eq!(extents(&store, "all"), [(RESERVED, 10)]);
    store.verify().unwrap();
    // A device that has grown gets free blocks at its end; the labels' part stays the same.
    let grown = attach(&store, "disk", 1, RESERVED + 15).unwrap();
    assert_eq!((grown.reserved, grown.free), (Blocks(RESERVED), Blocks(5)));
    store.verify().unwrap();
    let small = attach(&store, "small", 2, RESERVED).unwrap_err();
    assert!(matches!(small, Error::Size { .. }), "{small}");
}

/// Two devices of one size that were exchanged under their names are not mistaken for each other.
#[test]
fn a_name_does_not_make_a_device_another_one() {
    let store = Store::in_memory().unwrap();
    attach(&store, "a", 1, 1000).unwrap();
    attach(&store, "b", 2, 1000).unwrap();
    let exchanged = attach(&store, "a", 2, 1000).unwrap_err();
    assert!(
        matches!(&exchanged, Error::OtherName { given, known, .. } if given == "a" && known == "b"),
        "{exchanged}"
    );
    let foreign = attach(&store, "a", 3, 1000).unwrap_err();
    assert!(matches!(foreign, Error::OtherIdentity { .. }), "{foreign}");
    let vouched =
        store.attach_device("a", Bytes(1000 * BLOCK), block(BLOCK), NewBlocks::Cleared).unwrap_err();
    assert!(matches!(vouched, Error::OtherIdentity { .. }), "{vouched}");
    let memory = store.attach_memory("a", id(4), Bytes(1000 * BLOCK), block(BLOCK)).unwrap_err();
    assert!(matches!(memory, Error::OtherIdentity { .. }), "{memory}");
    let smaller = attach(&store, "a", 1, 999).unwrap_err();
    assert!(matches!(smaller, Error::OtherDevice { .. }), "{smaller}");
    // After the device was renamed in the store, it is accepted by its new name.
    store.rename_device("a", "c").unwrap();
    assert!(matches!(store.rename_device("c", "b"), Err(Error::DeviceExists(_))));
    assert!(matches!(attach(&store, "a", 1, 1000), Err(Error::OtherName { .. })));
    attach(&store, "c", 1, 1000).unwrap();
}

#[test]
fn a_label_counts_as_written_when_that_was_said() {
    let store = Store::in_memory().unwrap();
    attach(&store, "disk", 1, 1000).unwrap();
    for is_written in [false, true] {
        let known = store.device("disk").unwrap().identity;
        assert_eq!(known, Identity::Label { id: id(1), is_written });
        store.label_written("disk").unwrap();
        attach(&store, "disk", 1, 1000).unwrap();
    }
}

#[test]
fn volumes_on_memory_are_gone_with_it() {
    let store = Store::in_memory().unwrap();
    let memory = |byte, blocks| store.attach_memory("fast", id(byte), Bytes(blocks * BLOCK), block(BLOCK));
    memory(1, 100).unwrap();
    create(&store, "log", "fast", 60);
    create(&store, "data", "fast", 30);
    let generation = store.get("log").unwrap().0.generation;
    // The new memory may be smaller, since nothing of the old one is left.
    assert_eq!(memory(2, 50).unwrap().free, Blocks(50));
    store.verify().unwrap();
    for gone in [store.get("log").map(drop), store.resize("log", Bytes(BLOCK)).map(drop)] {
        assert!(matches!(gone, Err(Error::VolumeLost { .. })), "{gone:?}");
    }
    let listed = store.list().unwrap();
    assert!(listed.iter().all(|volume| volume.is_gone && volume.extents == 0));
    assert_eq!(listed.len(), 2);
    // A volume that is gone can be created anew, renamed, or removed.
    create(&store, "log", "fast", 10);
    let (made, _) = store.get("log").unwrap();
    assert!(made.generation > generation && !made.is_gone);
    store.rename("data", "other").unwrap();
    store.remove("other").unwrap();
    store.verify().unwrap();
    assert_eq!(store.device("fast").unwrap().free, Blocks(40));
}

#[test]
fn a_device_is_forgotten_with_its_volumes_if_that_is_said() {
    let store = Store::in_memory().unwrap();
    attach(&store, "a", 1, 1000).unwrap();
    attach(&store, "b", 2, 1000).unwrap();
    create(&store, "x", "a", 10);
    create(&store, "y", "b", 10);
    assert!(matches!(store.forget_device("a"), Err(Error::Occupied { .. })));
    assert_eq!(store.forget_device_with_volumes("a").unwrap(), ["x"]);
    store.verify().unwrap();
    assert!(store.get("x").is_err() && store.get("y").is_ok());
    // Another device can have the name afterwards.
    attach(&store, "a", 3, 500).unwrap();
    store.verify().unwrap();
}

/// Makes a store of the first layout, without labels and thin volumes.
fn store_before(path: &std::path::Path, make: impl FnOnce(&Store)) {
    let store = Store::open(path).unwrap();
    make(&store);
    let transaction = begin(&store.database).unwrap();
    {
        let devices = transaction.open_table(layout::DEVICES).unwrap();
        let mut before = transaction.open_table(layout::DEVICES_BEFORE).unwrap();
        for row in devices.iter().unwrap() {
            let (name, record) = row.unwrap();
            let record: [u8; 24] = record.value()[..24].try_into().unwrap();
            before.insert(name.value(), &record).unwrap();
        }
        let mut header = transaction.open_table(layout::HEADER).unwrap();
        header.insert(layout::KEY_LAYOUT, layout::LAYOUT_WITHOUT_LABELS).unwrap();
    }
    for table in [layout::DEVICES.name(), layout::THIN.name(), layout::MAPPED.name()] {
        let table = transaction.list_tables().unwrap().find(|found| found.name() == table).unwrap();
        transaction.delete_table(table).unwrap();
    }
    transaction.commit().map_err(failed::<redb::CommitError>("write")).unwrap();
}

/// Volumes of such a store keep their contents when their device gets a label: the blocks in its place move.
#[test]
fn a_store_from_before_labels_is_read_and_its_devices_get_labels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volumes");
    store_before(&path, |store| {
        store.attach_device("disk", Bytes(1000 * BLOCK), block(BLOCK), NewBlocks::Cleared).unwrap();
        for (name, blocks) in [("a", 100), ("b", 50), ("c", 200), ("d", 20), ("e", 300)] {
            create(store, name, "disk", blocks);
        }
        store.remove("b").unwrap();
        store.remove("d").unwrap();
    });
    let store = Store::open(&path).unwrap();
    let device = store.device("disk").unwrap();
    assert_eq!((device.identity, device.reserved, device.to_clear), (Identity::None, Blocks(0), Blocks(70)));
    let refused = attach(&store, "disk", 1, 1000).unwrap_err();
    assert!(matches!(refused, Error::OtherIdentity { .. }), "{refused}");
    // Simulated contents of every block of a volume: the volume's name, and the block's number in it.
    let mut contents = vec![None; 1000];
    for volume in store.list().unwrap() {
        for (number, at) in blocks_of(&store, &volume.name).into_iter().enumerate() {
            contents[at as usize] = Some((volume.name.clone(), number));
        }
    }
    let moves = store.make_room_for_label("disk").unwrap();
    drop(store);
    // After a crash between the two steps, the target blocks are not available to others.
    let store = Store::open(&path).unwrap();
    assert_eq!(store.device("disk").unwrap().identity, Identity::None);
    for BlockMove { to, .. } in &moves {
        let noted = store.to_clear("disk", usize::MAX).unwrap();
        assert!(noted.iter().any(|piece| piece.start <= to.start && to.end() <= piece.end()));
    }
    let again = store.make_room_for_label("disk").unwrap();
    for BlockMove { from, to } in &again {
        assert_eq!(from.length, to.length);
        for at in 0..from.length.0 {
            contents[(to.start.0 + at) as usize] = contents[(from.start.0 + at) as usize].take();
        }
    }
    let generation = store.get("a").unwrap().0.generation;
    let device = store.take_label("disk", id(1), &again).unwrap();
    assert_eq!(device.reserved, Blocks(RESERVED));
    drop(store);
    let store = Store::open(&path).unwrap();
    for (name, blocks) in [("a", 100), ("c", 200), ("e", 300)] {
        let found = blocks_of(&store, name);
        assert_eq!(found.len(), blocks);
        for (number, at) in found.into_iter().enumerate() {
            assert!(at >= RESERVED);
            assert_eq!(contents[at as usize], Some((name.to_owned(), number)));
        }
    }
    assert!(store.get("a").unwrap().0.generation > generation);
    attach(&store, "disk", 1, 1000).unwrap();
    assert!(matches!(store.make_room_for_label("disk"), Err(Error::OtherIdentity { .. })));
}

fn blocks_of(store: &Store, name: &str) -> Vec<u64> {
    let (volume, extents) = store.get(name).unwrap();
    let spans: Vec<ByteRange> = volume.spans(&extents).collect();
    spans.iter().flat_map(|span| span.start.0 / BLOCK..(span.start.0 + span.length.0) / BLOCK).collect()
}

#[test]
fn there_has_to_be_room_for_what_moves() {
    let store = Store::in_memory().unwrap();
    store.attach_device("disk", Bytes(1000 * BLOCK), block(BLOCK), NewBlocks::Cleared).unwrap();
    create(&store, "a", "disk", 900);
    let full = store.make_room_for_label("disk").unwrap_err();
    assert!(matches!(full, Error::Full { asked: Blocks(RESERVED), free: Blocks(100), .. }), "{full}");
    store.verify().unwrap();
}

/// Blocks that a volume shares with its snapshot move for both.
#[test]
fn what_is_shared_moves_for_all_who_have_it() {
    let store = Store::in_memory().unwrap();
    let size = Bytes(2000 * BLOCK);
    store.attach_device("disk", size, block(BLOCK), NewBlocks::Cleared).unwrap();
    let thin = store.create_thin("thin", "disk", Bytes(1 << 26), ownership()).unwrap().id;
    store.allocate(thin, &[Extent::new(0, 640)]).unwrap();
    store.snapshot("thin", "snapshot").unwrap();
    let room = CopyRoom { most: Blocks(64), taken: &[], only_free: false };
    let copies = store.plan_copies(thin, &[Extent::new(64, 1)], room).unwrap();
    store.copied(thin, &copies).unwrap();
    let moves = store.make_room_for_label("disk").unwrap();
    let moved: u64 = moves.iter().map(|one| one.from.length.0).sum();
    assert_eq!(moved, RESERVED, "each block moves once");
    store.take_label("disk", id(1), &moves).unwrap();
    store.verify().unwrap();
    for volume in ["thin", "snapshot"] {
        assert!(store.get(volume).unwrap().1.iter().all(|extent| extent.start.0 >= RESERVED), "{volume}");
    }
    assert_eq!(store.shared_blocks().unwrap()[&thin], Blocks(640 - 64));
    assert_eq!(store.forget_device_with_volumes("disk").unwrap(), ["snapshot", "thin"]);
    store.verify().unwrap();
}

/// Memory that ends takes its snapshots with it.
#[test]
fn snapshots_on_memory_are_gone_with_it() {
    let store = Store::in_memory().unwrap();
    let memory = |byte| store.attach_memory("fast", id(byte), Bytes(1000 * BLOCK), block(BLOCK)).unwrap();
    memory(1);
    let thin = store.create_thin("thin", "fast", Bytes(1 << 26), ownership()).unwrap().id;
    store.allocate(thin, &[Extent::new(0, 128)]).unwrap();
    store.snapshot("thin", "snapshot").unwrap();
    assert_eq!(memory(2).free, Blocks(1000));
    store.verify().unwrap();
    assert!(store.list().unwrap().iter().all(|volume| volume.is_gone && !volume.is_snapshot));
    let lost = store.snapshot("thin", "other").unwrap_err();
    assert!(matches!(lost, Error::VolumeLost { .. }), "{lost}");
    // A name that is gone is given to a snapshot of another volume.
    store.create_thin("new", "fast", Bytes(1 << 26), ownership()).unwrap();
    store.snapshot("new", "snapshot").unwrap();
    store.verify().unwrap();
}
