//! Tests of the operations of a store, their errors, and files that are not stores.

use super::change::WriteTables;
use super::*;
use crate::right::Mode;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

const BLOCK: u64 = 4096;

struct TestStore {
    store: Store,
    folder: TempDir,
}

impl TestStore {
    fn path(&self) -> PathBuf {
        self.folder.path().join("volumes")
    }

    /// Closes the store and opens it again, which checks its consistency.
    fn reopen(self) -> TestStore {
        let TestStore { store, folder } = self;
        drop(store);
        let store = Store::open(folder.path().join("volumes")).unwrap();
        TestStore { store, folder }
    }

    /// Makes a store with a device of `blocks` free blocks.
    fn with_blocks(blocks: u64) -> TestStore {
        let folder = tempfile::tempdir().unwrap();
        let place = TestStore { store: Store::open(folder.path().join("volumes")).unwrap(), folder };
        place.attach(blocks, NewBlocks::Cleared).unwrap();
        place
    }

    fn attach(&self, blocks: u64, contents: NewBlocks) -> Result<Device, Error> {
        self.store.attach_device("disk", Bytes(blocks * BLOCK), block(BLOCK), contents)
    }

    fn create(&self, name: &str, blocks: u64) -> Result<Volume, Error> {
        self.store.create(name, "disk", Bytes(blocks * BLOCK), private())
    }

    fn extents(&self, name: &str) -> Vec<(u64, u64)> {
        pairs(&self.store.get(name).unwrap().1)
    }

    fn to_clear(&self) -> Vec<(u64, u64)> {
        pairs(&self.store.to_clear("disk", usize::MAX).unwrap())
    }

    fn free(&self) -> u64 {
        self.store.device("disk").unwrap().free.0
    }
}

fn pairs(extents: &[Extent]) -> Vec<(u64, u64)> {
    extents.iter().map(|extent| (extent.start.0, extent.length.0)).collect()
}

fn block(size: u64) -> BlockSize {
    BlockSize::new(Bytes(size)).unwrap()
}

fn private() -> Ownership {
    Ownership { owner: 1000, group: 100, mode: Mode::PRIVATE, read_only: false }
}

#[test]
fn a_volume_is_what_was_asked_for_and_stays() {
    let place = TestStore::with_blocks(100);
    let made = place.create("data", 10).unwrap();
    assert_eq!((made.size(), made.extents, made.device.as_str()), (Bytes(10 * BLOCK), 1, "disk"));
    assert_eq!(made.ownership, private());
    let place = place.reopen();
    let (found, extents) = place.store.get("data").unwrap();
    assert_eq!(found, made);
    assert_eq!(found.spans(&extents).collect::<Vec<_>>(), [ByteRange::new(0, 10 * BLOCK)]);
    assert_eq!(place.store.list().unwrap(), [made]);
    assert_eq!(place.free(), 90);
}

#[test]
fn sizes_are_whole_blocks() {
    let place = TestStore::with_blocks(100);
    assert_eq!(place.store.create("one", "disk", Bytes(1), private()).unwrap().blocks, Blocks(1));
    assert_eq!(place.store.resize("one", Bytes(BLOCK + 1)).unwrap().blocks, Blocks(2));
    // A partial block at the end of a device is not used.
    let device = place.store.attach_device("odd", Bytes(3 * BLOCK + 512), block(BLOCK), NewBlocks::Cleared);
    assert_eq!(device.unwrap().blocks, Blocks(3));
}

#[test]
fn what_is_given_up_is_cleared_before_anybody_gets_it() {
    let place = TestStore::with_blocks(10);
    place.create("old", 10).unwrap();
    place.store.resize("old", Bytes(6 * BLOCK)).unwrap();
    assert_eq!(place.to_clear(), [(6, 4)]);
    place.store.remove("old").unwrap();
    // The two adjacent extents are one piece.
    let place = place.reopen();
    assert_eq!(place.to_clear(), [(0, 10)]);
    let refused = place.create("new", 1).unwrap_err();
    assert!(
        matches!(refused, Error::Full { asked: Blocks(1), free: Blocks(0), to_clear: Blocks(10), .. }),
        "{refused}"
    );
    // A part is reported as cleared, from the middle of the piece.
    place.store.cleared("disk", Extent::new(4, 2)).unwrap();
    assert_eq!((place.to_clear(), place.free()), (vec![(0, 4), (6, 4)], 2));
    place.create("new", 2).unwrap();
    assert_eq!(place.extents("new"), [(4, 2)]);
    place.store.cleared("disk", Extent::new(0, 4)).unwrap();
    place.store.cleared("disk", Extent::new(6, 4)).unwrap();
    let place = place.reopen();
    assert_eq!((place.to_clear(), place.free()), (vec![], 8));
}

#[test]
fn only_what_is_to_be_cleared_can_have_been() {
    let place = TestStore::with_blocks(10);
    place.create("a", 4).unwrap();
    place.create("b", 4).unwrap();
    place.store.remove("a").unwrap();
    for wrong in
        [(0, 5), (4, 1), (3, 2), (8, 2), (0, 0), (10, 1), (u64::MAX, 1), (1, u64::MAX), (0, u64::MAX)]
    {
        let extent = Extent::new(wrong.0, wrong.1);
        let refused = place.store.cleared("disk", extent).unwrap_err();
        assert!(matches!(refused, Error::NotToClear { extent: told, .. } if told == extent), "{wrong:?}");
    }
    assert_eq!(place.to_clear(), [(0, 4)]);
    place.reopen();
}

#[test]
fn growing_continues_the_last_extent_where_it_can() {
    let place = TestStore::with_blocks(100);
    place.create("a", 10).unwrap();
    assert_eq!(place.store.resize("a", Bytes(20 * BLOCK)).unwrap().extents, 1);
    place.create("b", 10).unwrap();
    let grown = place.store.resize("a", Bytes(30 * BLOCK)).unwrap();
    assert_eq!((grown.extents, place.extents("a")), (2, vec![(0, 20), (30, 10)]));
    // Shrinking removes blocks from the end.
    let shrunk = place.store.resize("a", Bytes(15 * BLOCK)).unwrap();
    assert_eq!(
        (shrunk.extents, place.extents("a"), place.to_clear()),
        (1, vec![(0, 15)], vec![(15, 5), (30, 10)])
    );
    assert_eq!(place.store.device("disk").unwrap().extents, 2);
    place.reopen();
}

#[test]
fn each_change_gives_a_generation_that_never_was() {
    let place = TestStore::with_blocks(100);
    let mut last = place.create("a", 10).unwrap().generation;
    let mut newer = |generation| {
        assert!(generation > last);
        last = generation;
    };
    newer(place.store.resize("a", Bytes(20 * BLOCK)).unwrap().generation);
    newer(place.store.resize("a", Bytes(5 * BLOCK)).unwrap().generation);
    newer(place.store.set_ownership("a", |ownership| ownership.read_only = true).unwrap().generation);
    newer(place.store.rename("a", "b").unwrap().generation);
    place.store.remove("b").unwrap();
    let again = place.create("a", 10).unwrap();
    assert_eq!(again.id, again.generation);
    newer(again.generation);
    // A refused operation is not a change.
    place.store.resize("a", Bytes(1000 * BLOCK)).unwrap_err();
    assert_eq!(place.store.get("a").unwrap().0, again);
}

#[test]
fn ownership_can_be_changed_one_by_one() {
    let place = TestStore::with_blocks(10);
    place.create("a", 1).unwrap();
    let mode = Mode::new(0o664).unwrap();
    place.store.set_ownership("a", |ownership| ownership.mode = mode).unwrap();
    place.store.set_ownership("a", |ownership| (ownership.owner, ownership.group) = (7, u32::MAX)).unwrap();
    let expected = Ownership { owner: 7, group: u32::MAX, mode, read_only: false };
    assert_eq!(place.reopen().store.get("a").unwrap().0.ownership, expected);
}

#[test]
fn names_are_refused_that_are_none_there_or_there_already() {
    let place = TestStore::with_blocks(10);
    place.create("a", 1).unwrap();
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    for name in ["", ".", "..", "-x", "a b", "a/b", "a,b", "a=b", "é", "a\n", "\0", &long] {
        assert!(matches!(place.create(name, 1), Err(Error::Name(_))), "{name}");
        assert!(matches!(place.store.rename("a", name), Err(Error::Name(_))), "{name}");
        let attached = place.store.attach_device(name, Bytes(BLOCK), block(BLOCK), NewBlocks::Cleared);
        assert!(matches!(attached, Err(Error::Name(_))), "{name}");
    }
    assert!(place.create(&long[1..], 1).is_ok() && place.create("_.-9", 1).is_ok());
    assert!(matches!(place.create("a", 1), Err(Error::Exists(_))));
    assert!(matches!(place.store.rename("a", "_.-9"), Err(Error::Exists(_))));
    for refused in [
        place.store.get("b").map(drop),
        place.store.remove("b"),
        place.store.resize("b", Bytes(1)).map(drop),
        place.store.rename("b", "c").map(drop),
        place.store.set_ownership("b", |_| ()).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::NoVolume(name)) if name == "b"));
    }
    for refused in [
        place.store.create("c", "tape", Bytes(1), private()).map(drop),
        place.store.device("tape").map(drop),
        place.store.forget_device("tape"),
        place.store.to_clear("tape", 1).map(drop),
        place.store.cleared("tape", Extent::new(0, 1)),
    ] {
        assert!(matches!(refused, Err(Error::NoDevice(name)) if name == "tape"));
    }
}

#[test]
fn sizes_at_the_ends_of_64_bits() {
    let place = TestStore::with_blocks(10);
    let whole = place.store.attach_device("all", Bytes(u64::MAX), block(512), NewBlocks::Cleared).unwrap();
    assert_eq!(whole.blocks, Blocks(u64::MAX >> 9));
    for size in [0, u64::MAX, u64::MAX - 510] {
        let refused = place.store.create("a", "all", Bytes(size), private());
        assert!(matches!(refused, Err(Error::Size { .. })), "{size}");
    }
    let largest = place.store.create("a", "all", Bytes(u64::MAX - 511), private()).unwrap();
    assert_eq!(largest.size(), Bytes(u64::MAX - 511));
    assert!(matches!(place.store.resize("a", Bytes(0)), Err(Error::Size { .. })));
    assert!(matches!(place.store.resize("a", Bytes(u64::MAX)), Err(Error::Size { .. })));
    place.store.resize("a", Bytes(1)).unwrap();
    let none = place.store.attach_device("none", Bytes(511), block(512), NewBlocks::Cleared);
    assert!(matches!(none, Err(Error::Size { .. })));
    place.reopen();
}

#[test]
fn a_device_may_grow_and_not_become_another() {
    let place = TestStore::with_blocks(10);
    place.create("a", 10).unwrap();
    assert_eq!(place.attach(10, NewBlocks::Uncleared).unwrap().to_clear, Blocks(0));
    let grown = place.attach(30, NewBlocks::Uncleared).unwrap();
    assert_eq!((grown.blocks, grown.free, grown.to_clear), (Blocks(30), Blocks(0), Blocks(20)));
    assert_eq!(place.attach(31, NewBlocks::Cleared).unwrap().free, Blocks(1));
    assert!(matches!(place.attach(30, NewBlocks::Cleared), Err(Error::OtherDevice { .. })));
    let other = place.store.attach_device("disk", Bytes(100 * BLOCK), block(512), NewBlocks::Cleared);
    assert!(matches!(other, Err(Error::OtherDevice { .. })));
    let place = place.reopen();
    assert_eq!(place.store.devices().unwrap(), [place.store.device("disk").unwrap()]);
}

#[test]
fn only_an_empty_device_is_forgotten() {
    let place = TestStore::with_blocks(10);
    place.create("a", 4).unwrap();
    let occupied = place.store.forget_device("disk");
    assert!(matches!(occupied, Err(Error::Occupied { volume, .. }) if volume == "a"));
    place.store.attach_device("other", Bytes(BLOCK), block(BLOCK), NewBlocks::Cleared).unwrap();
    place.store.remove("a").unwrap();
    place.store.forget_device("disk").unwrap();
    let place = place.reopen();
    // The new device gets the forgotten device's number, and none of its records.
    let again = place.attach(20, NewBlocks::Uncleared).unwrap();
    assert_eq!((again.free, again.to_clear, again.extents), (Blocks(0), Blocks(20), 0));
    place.reopen();
}

#[test]
fn a_volume_in_too_many_pieces_is_refused() {
    let place = TestStore::with_blocks(0x2_0002);
    // Every second block of the device is freed in one transaction, to save time.
    place
        .store
        .change(|change| {
            assert!(space::remove_extent(&mut change.free, 0, Extent::new(0, 0x2_0002))?);
            for start in (0..0x2_0002).step_by(2) {
                space::add_extent(&mut change.free, 0, Extent::new(start, 1))?;
                space::add_extent(&mut change.clearing, 0, Extent::new(start + 1, 1))?;
            }
            Ok(())
        })
        .unwrap();
    let refused = place.create("a", EXTENTS_MAX as u64 + 1).unwrap_err();
    assert!(matches!(refused, Error::Fragmented { needed: 65537, most: EXTENTS_MAX, .. }), "{refused}");
    assert_eq!(place.create("a", EXTENTS_MAX as u64).unwrap().extents, EXTENTS_MAX as u32);
    assert!(matches!(place.store.resize("a", Bytes(u64::from(u32::MAX))), Err(Error::Full { .. })));
    let one_more = place.store.resize("a", Bytes((EXTENTS_MAX as u64 + 1) * BLOCK));
    assert!(matches!(one_more, Err(Error::Fragmented { needed: 1, most: 0, .. })));
    place.reopen();
}

#[test]
fn one_at_a_time() {
    let place = TestStore::with_blocks(10);
    let refused = Store::open(place.path()).unwrap_err();
    assert!(matches!(&refused, Error::InUse { path } if *path == place.path()), "{refused}");
    let path = place.path();
    let TestStore { store, folder: _folder } = place;
    drop(store);
    Store::open(path).unwrap();
}

#[test]
fn a_store_is_its_makers_alone_and_nothing_else_is_left() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestStore::with_blocks(10);
    assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o600);
    let names: Vec<_> =
        fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["volumes"]);
}

#[test]
fn what_is_no_store_is_told_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for contents in [vec![], b"not a store\n".to_vec(), vec![0; 1 << 16]] {
        fs::write(&path, &contents).unwrap();
        let refused = Store::open(&path).unwrap_err();
        assert!(matches!(refused, Error::NotAStore { .. }), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), contents);
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(Store::open(folder.path()), Err(Error::Store { .. })));
    assert!(matches!(Store::open(folder.path().join("none/volumes")), Err(Error::Store { .. })));

    // A redb file of another program, without tables or with a table whose name this crate uses too.
    for table in [None, Some(redb::TableDefinition::<u64, u64>::new("header"))] {
        let database = redb::Database::create(&path).unwrap();
        if let Some(table) = table {
            let transaction = database.begin_write().unwrap();
            transaction.open_table(table).unwrap().insert(1, 2).unwrap();
            transaction.commit().unwrap();
        }
        drop(database);
        let refused = Store::open(&path).unwrap_err();
        assert!(matches!(refused, Error::NotAStore { .. }), "{refused}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_store_of_a_later_version_is_left_alone() {
    let place = TestStore::with_blocks(10);
    place
        .store
        .change(|change| {
            change.header.insert(layout::KEY_LAYOUT, layout::LAYOUT + 1).map_err(failed(WRITING)).map(drop)
        })
        .unwrap();
    let TestStore { store, folder } = place;
    drop(store);
    let refused = Store::open(folder.path().join("volumes")).unwrap_err();
    assert!(matches!(refused, Error::Newer { found: 5, known: 4, .. }), "{refused}");
}

/// Records that contradict each other, as operations never leave them.
#[test]
fn a_store_that_contradicts_itself_is_damaged() {
    type Wrong = fn(&mut WriteTables<'_>) -> Result<(), Error>;
    let wrongs: [(&str, Wrong); 9] = [
        ("free where a volume is", |change| change.free.insert((0, 2), 1).map_err(failed(WRITING)).map(drop)),
        ("free beyond the end", |change| change.free.insert((0, 10), 1).map_err(failed(WRITING)).map(drop)),
        ("neither", |change| change.free.remove((0, 6)).map_err(failed(WRITING)).map(drop)),
        ("on no device", |change| change.free.insert((7, 0), 1).map_err(failed(WRITING)).map(drop)),
        ("extents of nobody", |change| {
            change.extents.insert(99, [0; 16].as_slice()).map_err(failed(WRITING)).map(drop)
        }),
        ("a volume without extents", |change| {
            change.extents.insert(1, [].as_slice()).map_err(failed(WRITING)).map(drop)
        }),
        ("extents cut short", |change| {
            change.extents.insert(1, [0; 15].as_slice()).map_err(failed(WRITING)).map(drop)
        }),
        ("a generation to come", |change| {
            let record = VolumeRecord { generation: 1000, ..change.volume("a")? };
            change.put_volume("a", record).map(drop)
        }),
        ("another count of extents", |change| {
            let record = DeviceRecord { extents: 2, ..change.device("disk")? };
            change.put_device("disk", record)
        }),
    ];
    for (what, wrong) in wrongs {
        let place = TestStore::with_blocks(10);
        place.create("a", 6).unwrap();
        place.store.change(wrong).unwrap();
        let TestStore { store, folder } = place;
        drop(store);
        let refused = Store::open(folder.path().join("volumes")).map(drop);
        assert!(matches!(refused, Err(Error::Damaged(_))), "{what}: {refused:?}");
    }
}

/// Wherever bytes of the file are changed or cut off, it opens with its old contents or is refused.
#[test]
fn a_damaged_file_is_refused() {
    let place = TestStore::with_blocks(1000);
    for number in 0..50 {
        place.create(&format!("volume-{number}"), 1 + number % 7).unwrap();
    }
    let (path, before) = (place.path(), place.store.list().unwrap());
    let TestStore { store, folder: _folder } = place;
    drop(store);
    let whole = fs::read(&path).unwrap();
    let (mut refused, mut opened) = (0, 0);
    let mut hold = |bytes: &[u8], what: String| {
        fs::write(&path, bytes).unwrap();
        match Store::open(&path) {
            Ok(store) => {
                assert_eq!(store.list().unwrap(), before, "{what}");
                opened += 1;
            }
            Err(Error::Damaged(_) | Error::NotAStore { .. } | Error::Store { .. }) => refused += 1,
            Err(other) => panic!("{what}: {other}"),
        }
    };
    for at in (0..512).chain((512..whole.len()).step_by(997)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        hold(&bytes, format!("byte {at}"));
    }
    for length in (1..whole.len()).step_by(whole.len() / 50) {
        hold(&whole[..length], format!("the first {length} bytes"));
    }
    assert!(refused > 50 && opened > 50, "{refused} refused, {opened} opened");
}

impl TestStore {
    fn create_thin(&self, name: &str, blocks: u64) -> Volume {
        self.store.create_thin(name, "disk", Bytes(blocks * BLOCK), private()).unwrap()
    }

    fn mapped(&self, name: &str) -> Vec<(u64, u64, u64)> {
        let mapped = self.store.mapping(name).unwrap().1;
        mapped.iter().map(|one| (one.logical.0, one.extent.start.0, one.extent.length.0)).collect()
    }
}

#[test]
fn a_thin_volume_has_blocks_where_they_were_allocated() {
    let place = TestStore::with_blocks(1000);
    let made = place.create_thin("thin", 5000);
    // Whole clusters of 256 KiB; more than the device has.
    assert_eq!((made.blocks, made.cluster, made.allocated), (Blocks(5056), Some(Blocks(64)), Blocks(0)));
    assert_eq!((place.mapped("thin"), place.free()), (vec![], 1000));
    place.store.allocate(made.id, &[Extent::new(100, 1), Extent::new(130, 70), Extent::new(120, 2)]).unwrap();
    assert_eq!(place.mapped("thin"), [(64, 0, 192)]);
    place.store.allocate(made.id, &[Extent::new(0, 1), Extent::new(5055, 1), Extent::new(70, 5)]).unwrap();
    assert_eq!(place.mapped("thin"), [(0, 192, 64), (64, 0, 192), (4992, 256, 64)]);
    let place = place.reopen();
    // The next cluster of the volume continues on the device where it can, and extents merge.
    place.store.allocate(made.id, &[Extent::new(256, 64)]).unwrap();
    assert_eq!(place.mapped("thin"), [(0, 192, 64), (64, 0, 192), (256, 320, 64), (4992, 256, 64)]);
    let found = place.store.get("thin").unwrap().0;
    assert_eq!((found.allocated, found.extents, found.generation), (Blocks(384), 4, made.generation));
    // Only whole clusters are released, and they are cleared before anybody gets them.
    place.store.release(made.id, &[Extent::new(1, 200)]).unwrap();
    assert_eq!(place.mapped("thin"), [(0, 192, 64), (192, 128, 64), (256, 320, 64), (4992, 256, 64)]);
    assert_eq!((place.to_clear(), place.free()), (vec![(0, 128)], 616));
    // A smaller volume has no blocks behind its end.
    place.store.resize("thin", Bytes(200 * BLOCK)).unwrap();
    assert_eq!(place.mapped("thin"), [(0, 192, 64), (192, 128, 64)]);
    place.store.rename("thin", "slim").unwrap();
    let place = place.reopen();
    assert_eq!(place.store.thin_mapping(made.id).unwrap().0.name, "slim");
    place.store.remove("slim").unwrap();
    let place = place.reopen();
    assert_eq!(place.store.device("disk").unwrap().extents, 0);
    assert!(
        matches!(place.store.allocate(made.id, &[Extent::new(0, 1)]), Err(Error::NotThin(id)) if id == made.id)
    );
}

#[test]
fn a_volume_that_is_written_in_order_gets_clusters_ahead() {
    // Clusters of 64 blocks; an eighth of the device and its 64th stay.
    let place = TestStore::with_blocks(64 * 1000);
    let made = place.create_thin("thin", 64 * 800);
    // Clusters that the volume has, as runs.
    let runs = |place: &TestStore, name: &str| {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (logical, _, length) in place.mapped(name) {
            match runs.last_mut() {
                Some(last) if last.1 == logical / 64 => last.1 += length / 64,
                _ => runs.push((logical / 64, (logical + length) / 64)),
            }
        }
        runs
    };
    let write = |place: &TestStore, id: u64, cluster: u64| {
        place.store.allocate_ahead(id, &[Extent::new(64 * cluster + 7, 1)]).unwrap();
    };
    (0..4).for_each(|cluster| write(&place, made.id, cluster));
    assert_eq!(runs(&place, "thin"), [(0, 4)], "too short to guess");
    write(&place, made.id, 4);
    assert_eq!(runs(&place, "thin"), [(0, 6)], "a fourth of four clusters");
    let before = place.store.device("disk").unwrap();
    write(&place, made.id, 5);
    assert_eq!(place.store.device("disk").unwrap(), before, "what is there needs no commit");
    // Elsewhere nothing precedes, and nothing is guessed.
    write(&place, made.id, 20);
    write(&place, made.id, 30);
    assert_eq!(runs(&place, "thin"), [(0, 6), (20, 21), (30, 31)]);
    // Up to what is there, and a fourth or 64 clusters at most.
    let mut commits = 0;
    for cluster in 6..400 {
        let before = runs(&place, "thin");
        write(&place, made.id, cluster);
        let after = runs(&place, "thin");
        commits += u32::from(before != after);
        assert!(after[0].1 <= (cluster + 1 + (cluster / 4).min(64)).max(before[0].1), "{cluster}: {after:?}");
    }
    assert!(commits < 30, "{commits} commits for 394 clusters");
    let end = runs(&place, "thin")[0].1;
    // Of several ranges, only behind the last one.
    let both = [Extent::new(64 * (end + 70), 1), Extent::new(64 * end, 1)];
    place.store.allocate_ahead(made.id, &both).unwrap();
    assert_eq!(runs(&place, "thin"), [(0, end + 1), (end + 70, end + 71)]);
    // To the end of the volume.
    (0..800).for_each(|cluster| write(&place, made.id, cluster));
    assert_eq!((runs(&place, "thin"), place.free()), (vec![(0, 800)], 64 * 200));
    // While an eighth of the device is left.
    let other = place.create_thin("other", 64 * 400);
    for cluster in 0..100 {
        write(&place, other.id, cluster);
        let [(_, end)] = runs(&place, "other")[..] else { panic!("it is written in order") };
        assert!(end == cluster + 1 || place.free() >= 64 * (125 + 15), "{cluster}: {end}");
    }
    assert_eq!(runs(&place, "other"), [(0, 100)], "nothing ahead where little is left");
    place.reopen();
}

#[test]
fn thin_volumes_do_not_get_the_last_blocks() {
    let place = TestStore::with_blocks(640);
    let (one, other) = (place.create_thin("one", 1000), place.create_thin("other", 1000));
    place.store.allocate(one.id, &[Extent::new(0, 512)]).unwrap();
    assert_eq!(place.store.device("disk").unwrap().kept, Blocks(10));
    let refused = place.store.allocate(other.id, &[Extent::new(0, 65)]).unwrap_err();
    assert!(matches!(&refused, Error::PoolLow { asked: Blocks(128), left: Blocks(118), .. }), "{refused}");
    assert!(
        refused
            .to_string()
            .starts_with("thin volume 'other' needs 128 blocks of 4096 B more, and device 'disk'")
    );
    assert_eq!(place.mapped("other"), []);
    place.store.allocate(other.id, &[Extent::new(0, 64)]).unwrap();
    // What is allocated stays so; a volume that is not thin may have the rest.
    place.store.allocate(one.id, &[Extent::new(0, 512)]).unwrap();
    place.create("thick", 64).unwrap();
    let refused = place.store.allocate(one.id, &[Extent::new(600, 1)]).unwrap_err();
    assert!(matches!(refused, Error::PoolLow { left: Blocks(0), .. }), "{refused}");
    // Released blocks count, but have to be cleared first.
    place.store.release(one.id, &[Extent::new(0, 512)]).unwrap();
    let refused = place.store.allocate(other.id, &[Extent::new(100, 1)]).unwrap_err();
    assert!(matches!(refused, Error::Full { free: Blocks(0), to_clear: Blocks(512), .. }), "{refused}");
}

#[test]
fn clusters_grow_with_the_volume() {
    let place = TestStore::with_blocks(100);
    let gib = |gib: u64| place.store.create_thin(&format!("of-{gib}"), "disk", Bytes(gib << 30), private());
    for (size, cluster) in [(1, 64), (64, 64), (65, 128), (1024, 1024), (1 << 20, 1 << 20)] {
        let made = gib(size).unwrap();
        assert_eq!(made.cluster, Some(Blocks(cluster)), "{size} GiB");
        assert!(made.blocks.0 / cluster <= THIN_CLUSTERS_MAX && made.size() >= Bytes(size << 30));
    }
    let refused = place.store.resize("of-64", Bytes((64 << 30) + 1)).unwrap_err();
    assert!(matches!(refused, Error::ThinSize { most: Bytes(most), .. } if most == 64 << 30), "{refused}");
    let refused = place.store.create_thin("all", "disk", Bytes(u64::MAX), private()).unwrap_err();
    assert!(matches!(refused, Error::Size { .. }), "{refused}");
    place.reopen();
}

#[test]
fn records_of_thin_volumes_that_contradict_each_other_are_damage() {
    type Damage = fn(&mut WriteTables<'_>, u64);
    let damages: [Damage; 6] = [
        |change, id| drop(change.thin.remove(id).unwrap()),
        |change, id| drop(change.thin.insert(id, (64, 128, "other")).unwrap()),
        |change, id| drop(change.thin.insert(id, (64, 192, "thin")).unwrap()),
        |change, id| drop(change.mapped.remove((id, 64)).unwrap()),
        |change, id| drop(change.mapped.insert((id, 64), (0, 127)).unwrap()),
        |change, id| drop(change.mapped.insert((id + 1, 0), (0, 64)).unwrap()),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let place = TestStore::with_blocks(1000);
        let id = place.create_thin("thin", 1000).id;
        place.store.allocate(id, &[Extent::new(64, 128)]).unwrap();
        place.store.verify().unwrap();
        let done = |change: &mut WriteTables<'_>| {
            damage(change, id);
            Ok(())
        };
        place.store.change(done).unwrap();
        let refused = place.store.verify().unwrap_err();
        assert!(matches!(refused, Error::Damaged(_)), "{number}: {refused}");
    }
}

#[test]
fn what_snapshots_share_is_freed_by_the_last_of_them() {
    let place = TestStore::with_blocks(1000);
    let id = place.create_thin("thin", 5000).id;
    place.store.allocate(id, &[Extent::new(0, 192)]).unwrap();
    let snapshot = place.store.snapshot("thin", "snapshot").unwrap();
    assert!(snapshot.is_snapshot && snapshot.ownership.read_only && snapshot.id == snapshot.generation);
    assert_eq!((snapshot.origin.as_deref(), snapshot.allocated), (Some("thin"), Blocks(192)));
    assert_eq!(place.mapped("snapshot"), [(0, 0, 192)]);
    // One cluster is copied; its place is taken from the free blocks, and only as much as is needed of a small device.
    let room = CopyRoom { most: Blocks(64), taken: &[], only_free: false };
    let copies = place.store.plan_copies(id, &[Extent::new(70, 100)], room).unwrap();
    assert_eq!(copies.len(), 1);
    assert_eq!((copies[0].logical, copies[0].from), (Blocks(64), Extent::new(64, 64)));
    assert_eq!(place.store.device("disk").unwrap().to_clear, Blocks(1000 - 192 - 16));
    // Nobody else writes there meanwhile.
    let taken = [copies[0].to];
    let others = CopyRoom { most: Blocks(u64::MAX), taken: &taken, only_free: false };
    for other in place.store.plan_copies(id, &[Extent::new(0, 192)], others).unwrap() {
        assert!(
            other.to.end() <= Some(taken[0].start) || taken[0].end() <= Some(other.to.start),
            "{other:?}"
        );
    }
    place.store.copied(id, &copies).unwrap();
    let shared: Vec<bool> = place.store.mapping("thin").unwrap().1.iter().map(|one| one.is_shared).collect();
    assert_eq!(shared, [true, false, true]);
    assert_eq!(place.store.shared_blocks().unwrap()[&id], Blocks(128));
    let again = place.store.copied(id, &copies).unwrap_err();
    assert!(matches!(again, Error::CopyOutdated(ref name) if name == "thin"), "{again}");
    let place = place.reopen();
    place.store.clone_snapshot("snapshot", "clone").unwrap();
    place.store.remove("thin").unwrap();
    place.store.remove("snapshot").unwrap();
    assert_eq!(place.store.get("clone").unwrap().0.origin, None);
    let place = place.reopen();
    // The blocks of the copy, and none of the clone's.
    let clone = place.mapped("clone");
    assert_eq!(clone, [(0, 0, 192)]);
    place.store.remove("clone").unwrap();
    let device = place.store.device("disk").unwrap();
    assert_eq!((device.free.0 + device.to_clear.0, device.extents), (1000, 0));
    place.reopen();
}

#[test]
fn copies_go_to_free_blocks_only_if_that_is_said() {
    let place = TestStore::with_blocks(1000);
    let id = place.create_thin("thin", 5000).id;
    place.store.allocate(id, &[Extent::new(0, 448)]).unwrap();
    place.store.release(id, &[Extent::new(64, 384)]).unwrap();
    place.store.snapshot("thin", "snapshot").unwrap();
    let to_clear = place.store.to_clear("disk", 10).unwrap();
    assert_eq!(to_clear, [Extent::new(64, 384)]);
    let plan = |only_free| {
        let room = CopyRoom { most: Blocks(u64::MAX), taken: &[], only_free };
        place.store.plan_copies(id, &[Extent::new(0, 1)], room).unwrap()
    };
    assert!(to_clear[0].end() >= plan(false)[0].to.end());
    assert!(plan(true)[0].to.start >= Blocks(448));
    // What nothing shares needs no copy, whether it is allocated or not.
    assert_eq!(
        place
            .store
            .plan_copies(
                id,
                &[Extent::new(64, 4000)],
                CopyRoom { most: Blocks(1), taken: &[], only_free: true }
            )
            .unwrap(),
        []
    );
    place.store.verify().unwrap();
}

#[test]
fn records_of_snapshots_that_contradict_each_other_are_damage() {
    type Damage = fn(&mut WriteTables<'_>, u64, u64);
    let damages: [Damage; 8] = [
        // More users than there are, fewer, none recorded, and another part of the extent.
        |change, _, _| drop(change.shared.insert((0, 0), (128, 3)).unwrap()),
        |change, _, _| drop(change.shared.insert((0, 0), (64, 2)).unwrap()),
        |change, _, _| drop(change.shared.remove((0, 0)).unwrap()),
        |change, _, _| drop(change.shared.insert((0, 200), (64, 2)).unwrap()),
        |change, _, _| drop(change.shared.insert((7, 0), (64, 2)).unwrap()),
        |change, _, snapshot| drop(change.origins.remove(snapshot).unwrap()),
        |change, _, snapshot| drop(change.origins.insert(snapshot, snapshot + 1).unwrap()),
        |change, thin, _| drop(change.origins.insert(thin + 9, thin).unwrap()),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let place = TestStore::with_blocks(1000);
        let id = place.create_thin("thin", 1000).id;
        place.store.allocate(id, &[Extent::new(64, 128)]).unwrap();
        let snapshot = place.store.snapshot("thin", "snapshot").unwrap().id;
        place.store.verify().unwrap();
        let done = |change: &mut WriteTables<'_>| {
            damage(change, id, snapshot);
            Ok(())
        };
        place.store.change(done).unwrap();
        let refused = place.store.verify().unwrap_err();
        assert!(matches!(refused, Error::Damaged(_)), "{number}: {refused}");
    }
}

/// A device may have so many extents of all its volumes, and a part of them is left for writes.
#[test]
fn snapshots_leave_extents_for_writes() {
    let place = TestStore::with_blocks(1000);
    let id = place.create_thin("thin", 5000).id;
    place.store.allocate(id, &[Extent::new(0, 64), Extent::new(128, 64)]).unwrap();
    let few = |change: &mut WriteTables<'_>| {
        let on = change.device("disk")?;
        change.put_device("disk", layout::DeviceRecord { extents: SNAPSHOT_EXTENTS_MAX - 1, ..on })
    };
    place.store.change(few).unwrap();
    let refused = place.store.snapshot("thin", "snapshot").unwrap_err();
    assert!(matches!(refused, Error::Fragmented { needed: 2, most: 1, .. }), "{refused}");
    place.store.allocate(id, &[Extent::new(1280, 64)]).unwrap();
}
