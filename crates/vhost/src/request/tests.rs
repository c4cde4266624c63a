//! Chains of an honest guest, of a careless one, and of a fuzzer.

use super::*;
use crate::chain::Chain;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

const GEOMETRY: Geometry = Geometry {
    bytes: 1 << 20,
    block: 512,
    optimal: 4096,
    transfer_max: 64 << 10,
    range_max: 256 << 10,
    segments_max: 4,
    access: Access::ReadWrite,
};

/// Address and size of a segment of the guest's memory, in bytes.
type Piece = (usize, usize);

/// Two adjacent regions, a hole, and a third region.
const REGIONS: [(GuestAddress, usize); 3] =
    [(GuestAddress(0), 0x1_0000), (GuestAddress(0x1_0000), 0x1_0000), (GuestAddress(0x4_0000), 0x1_0000)];
const TABLE: u64 = 0x1000;
const ENTRIES: u16 = 16;
/// Addresses of a request's head, range, status and data.
const HEAD: u64 = 0x4000;
const RANGE: u64 = 0x4100;
const STATUS: u64 = 0x5000;
const DATA: u64 = 0x8000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

fn memory() -> Map {
    Map::from_ranges(&REGIONS).unwrap()
}

fn put_head(memory: &Map, kind: u32, sector: u64) {
    memory.write_slice(&kind.to_le_bytes(), GuestAddress(HEAD)).unwrap();
    memory.write_slice(&[0; 4], GuestAddress(HEAD + 4)).unwrap();
    memory.write_slice(&sector.to_le_bytes(), GuestAddress(HEAD + 8)).unwrap();
}

fn put_range(memory: &Map, sector: u64, sectors: u32, flags: u32) {
    memory.write_slice(&sector.to_le_bytes(), GuestAddress(RANGE)).unwrap();
    memory.write_slice(&sectors.to_le_bytes(), GuestAddress(RANGE + 8)).unwrap();
    memory.write_slice(&flags.to_le_bytes(), GuestAddress(RANGE + 12)).unwrap();
}

fn put_descriptors(memory: &Map, table: u64, descriptors: &[(u64, u32, u16, u16)]) {
    for (number, (at, bytes, flags, next)) in descriptors.iter().enumerate() {
        let descriptor = Descriptor::new(*at, *bytes, *flags, *next);
        memory.write_obj(descriptor, GuestAddress(table + 16 * number as u64)).unwrap();
    }
}

/// Makes a chain of these pieces, in this order: address, size in bytes, and true if the device may write to
/// it.
fn chained(pieces: &[(u64, u32, bool)]) -> Vec<(u64, u32, u16, u16)> {
    let last = pieces.len() - 1;
    let flags = |number, writable| if number == last { 0 } else { NEXT } | if writable { WRITE } else { 0 };
    let each = pieces.iter().enumerate();
    each.map(|(number, (at, bytes, writable))| (*at, *bytes, flags(number, *writable), number as u16 + 1))
        .collect()
}

/// Parses the chain that begins with descriptor `head`.
fn read_from(memory: &Map, head: u16, geometry: &Geometry) -> (ParsedChain, Vec<Piece>) {
    let chain = Chain::new(memory, TABLE, ENTRIES, head);
    let mut parts = Parts::default();
    let asked = parts.read(chain, memory, geometry);
    (asked, parts.segments.iter().map(|segment| (segment.base().addr(), segment.bytes())).collect())
}

fn read(memory: &Map, pieces: &[(u64, u32, bool)]) -> (ParsedChain, Vec<Piece>) {
    put_descriptors(memory, TABLE, &chained(pieces));
    read_from(memory, 0, &GEOMETRY)
}

fn host(memory: &Map, at: u64, bytes: usize) -> Piece {
    (memory.get_host_address(GuestAddress(at)).unwrap().addr(), bytes)
}

fn done(operation: Operation, offset: u64, length: u64) -> ParsedChain {
    ParsedChain { status: Some(GuestAddress(STATUS)), what: Ok(Action::Do { operation, offset, length }) }
}

fn refused(state: u8) -> ParsedChain {
    ParsedChain { status: Some(GuestAddress(STATUS)), what: Err(state) }
}

#[test]
fn an_honest_guest_gets_what_it_asks_for() {
    let memory = memory();
    let status = (STATUS, 1, true);
    put_head(&memory, blk::VIRTIO_BLK_T_IN, 8);
    let (asked, pieces) =
        read(&memory, &[(HEAD, 16, false), (DATA, 4096, true), (0x4_0000, 512, true), status]);
    assert_eq!(asked, done(Operation::Read, 4096, 4608));
    assert_eq!(pieces, [host(&memory, DATA, 4096), host(&memory, 0x4_0000, 512)]);

    put_head(&memory, blk::VIRTIO_BLK_T_OUT, 2047);
    let (asked, pieces) = read(&memory, &[(HEAD, 16, false), (DATA, 512, false), status]);
    assert_eq!(asked, done(Operation::Write, (1 << 20) - 512, 512));
    assert_eq!(pieces, [host(&memory, DATA, 512)]);

    put_head(&memory, blk::VIRTIO_BLK_T_FLUSH, 0);
    assert_eq!(read(&memory, &[(HEAD, 16, false), status]), (done(Operation::Flush, 0, 0), vec![]));

    for (kind, flags, operation) in [
        (blk::VIRTIO_BLK_T_DISCARD, 0, Operation::Discard),
        (blk::VIRTIO_BLK_T_WRITE_ZEROES, 0, Operation::WriteZeroes),
        (blk::VIRTIO_BLK_T_WRITE_ZEROES, 1, Operation::WriteZeroes),
    ] {
        put_head(&memory, kind, 0);
        put_range(&memory, 16, 512, flags);
        let (asked, _) = read(&memory, &[(HEAD, 16, false), (RANGE, 16, false), status]);
        assert_eq!(asked, done(operation, 8192, 256 << 10));
    }
}

#[test]
fn a_name_is_written_where_there_is_room() {
    let memory = memory();
    put_head(&memory, blk::VIRTIO_BLK_T_GET_ID, 0);
    let name = b"a name of 20 letters";
    for (rooms, written) in [
        (vec![(DATA, 20, true)], Some(20)),
        (vec![(DATA, 3, true), (DATA + 3, 100, true)], Some(20)),
        (vec![(DATA, 7, true)], Some(7)),
        (vec![], Some(0)),
        (vec![(DATA, 3, true), (0x3_0000, 17, true)], None),
    ] {
        let pieces = [&[(HEAD, 16, false)], &rooms[..], &[(STATUS, 1, true)]].concat();
        put_descriptors(&memory, TABLE, &chained(&pieces));
        let mut parts = Parts::default();
        memory.write_slice(&[0; 32], GuestAddress(DATA)).unwrap();
        let asked = parts.read(Chain::new(&memory, TABLE, ENTRIES, 0), &memory, &GEOMETRY);
        assert_eq!(asked, ParsedChain { status: Some(GuestAddress(STATUS)), what: Ok(Action::Identify) });
        assert_eq!(parts.write(name, &memory), written);
        let mut found = [0; 32];
        memory.read_slice(&mut found, GuestAddress(DATA)).unwrap();
        let written = written.unwrap_or(3);
        assert_eq!((&found[..written], &found[written..]), (&name[..written], &[0; 32][written..]));
    }
}

#[test]
fn where_descriptors_end_means_nothing() {
    let memory = memory();
    put_head(&memory, blk::VIRTIO_BLK_T_OUT, 3);
    // The head is spread over three descriptors, the last of which also contains data.
    let pieces = [(HEAD, 1, false), (HEAD + 1, 14, false), (HEAD + 15, 1 + 100, false), (DATA, 412, false)];
    let (asked, found) = read(&memory, &[&pieces[..], &[(STATUS, 1, true)]].concat());
    assert_eq!(asked, done(Operation::Write, 3 * 512, 512));
    assert_eq!(found, [host(&memory, HEAD + 16, 100), host(&memory, DATA, 412)]);
    // One descriptor contains the data and the status behind it; others are empty.
    put_head(&memory, blk::VIRTIO_BLK_T_IN, 3);
    let (asked, found) =
        read(&memory, &[(HEAD, 16, false), (0, 0, false), (STATUS - 512, 513, true), (7, 0, true)]);
    assert_eq!(asked, done(Operation::Read, 3 * 512, 512));
    assert_eq!(found, [host(&memory, STATUS - 512, 512)]);
    // The data continues in the next region.
    let (asked, found) = read(&memory, &[(HEAD, 16, false), (0xff00, 512, true), (STATUS, 1, true)]);
    assert_eq!(asked, done(Operation::Read, 3 * 512, 512));
    assert_eq!(found, [host(&memory, 0xff00, 256), host(&memory, 0x1_0000, 256)]);
    // The chain is in an indirect table.
    let own = chained(&[(HEAD, 16, false), (DATA, 512, true), (STATUS, 1, true)]);
    put_descriptors(&memory, 0x6000, &own);
    put_descriptors(&memory, TABLE, &[(0x6000, 48, INDIRECT, 0)]);
    assert_eq!(read_from(&memory, 0, &GEOMETRY).0, done(Operation::Read, 3 * 512, 512));
}

#[test]
fn what_cannot_be_is_refused() {
    let memory = memory();
    let status = (STATUS, 1, true);
    let head = (HEAD, 16, false);
    let put = |kind, sector| put_head(&memory, kind, sector);
    let (read_kind, write_kind) = (blk::VIRTIO_BLK_T_IN, blk::VIRTIO_BLK_T_OUT);
    for (kind, sector, data, state) in [
        (read_kind, 2047, (DATA, 1024, true), FAILED),
        (read_kind, 2048, (DATA, 512, true), FAILED),
        (read_kind, u64::MAX, (DATA, 512, true), FAILED),
        (read_kind, u64::MAX / 512, (DATA, 512, true), FAILED),
        (read_kind, 0, (DATA, 511, true), FAILED),
        (read_kind, 0, (DATA, 0, true), FAILED),
        (read_kind, 0, (0x1_ff00, 512, true), FAILED),
        (read_kind, 0, (0x3_0000, 512, true), FAILED),
        (read_kind, 0, (u64::MAX - 100, 512, true), FAILED),
        (read_kind, 0, (0, 65536 + 512, true), FAILED),
        (read_kind, 0, (0, u32::MAX - 17, true), FAILED),
        (read_kind, 0, (DATA, 512, false), FAILED),
        (write_kind, 0, (DATA, 512, true), FAILED),
        (write_kind, 2048, (DATA, 512, false), FAILED),
        (2, 0, (DATA, 512, false), UNSUPPORTED),
        (blk::VIRTIO_BLK_T_SECURE_ERASE, 0, (RANGE, 16, false), UNSUPPORTED),
        (u32::MAX, 0, (DATA, 512, true), UNSUPPORTED),
        (blk::VIRTIO_BLK_T_DISCARD, 0, (RANGE, 8, false), FAILED),
        (blk::VIRTIO_BLK_T_DISCARD, 0, (RANGE, 32, false), FAILED),
        (blk::VIRTIO_BLK_T_DISCARD, 0, (0x3_0000, 16, false), FAILED),
    ] {
        put(kind, sector);
        let asked = read(&memory, &[head, data, status]).0;
        assert_eq!(asked, refused(state), "{kind} {sector} {data:?}");
    }
    for (kind, range, state) in [
        (blk::VIRTIO_BLK_T_DISCARD, (0, 8, 1), UNSUPPORTED),
        (blk::VIRTIO_BLK_T_WRITE_ZEROES, (0, 8, 2), UNSUPPORTED),
        (blk::VIRTIO_BLK_T_WRITE_ZEROES, (2048, 8, 0), FAILED),
        (blk::VIRTIO_BLK_T_WRITE_ZEROES, (0, 513, 0), FAILED),
        (blk::VIRTIO_BLK_T_WRITE_ZEROES, (u64::MAX, u32::MAX, 0), FAILED),
        (blk::VIRTIO_BLK_T_DISCARD, (0, 0, 0), FAILED),
    ] {
        put(kind, 0);
        put_range(&memory, range.0, range.1, range.2);
        assert_eq!(read(&memory, &[head, (RANGE, 16, false), status]).0, refused(state), "{range:?}");
    }
    // A chain with more pieces than the device takes, and one with half a head.
    put(read_kind, 0);
    let many = [[head].as_slice(), &[(DATA, 512, true); 5], &[status]].concat();
    assert_eq!(read(&memory, &many).0, refused(FAILED));
    assert_eq!(read(&memory, &[(HEAD, 15, false), status]).0, refused(FAILED));
    // A chain of more than 4 GiB.
    let large = (0, u32::MAX, true);
    assert_eq!(read(&memory, &[head, large, large, status]).0, refused(FAILED));
    // A device that can only be read, and one with larger blocks.
    put(write_kind, 0);
    put_descriptors(&memory, TABLE, &chained(&[head, (DATA, 512, false), status]));
    let geometry = Geometry { access: Access::Read, ..GEOMETRY };
    assert_eq!(read_from(&memory, 0, &geometry).0, refused(FAILED));
    let geometry = Geometry { block: 4096, ..GEOMETRY };
    assert_eq!(read_from(&memory, 0, &geometry).0, refused(FAILED));
}

#[test]
fn a_chain_without_an_end_or_a_place_for_the_status_is_none() {
    let memory = memory();
    put_head(&memory, blk::VIRTIO_BLK_T_IN, 0);
    let none = ParsedChain { status: None, what: Err(FAILED) };
    let head = (HEAD, 16, NEXT, 1);
    for (what, descriptors) in [
        ("a loop", vec![head, (DATA, 512, NEXT | WRITE, 1)]),
        ("a loop to the head", vec![head, (DATA, 512, NEXT | WRITE, 0)]),
        ("an end outside of the table", vec![head, (DATA, 512, NEXT | WRITE, ENTRIES)]),
        ("no status", vec![head, (DATA, 512, 0, 0)]),
        ("a head alone", vec![(HEAD, 16, 0, 0)]),
        ("a status outside of memory", vec![head, (0x3_0000, 1, WRITE, 0)]),
        ("a status behind the last address", vec![head, (u64::MAX, 2, WRITE, 0)]),
        ("readable behind writable", vec![head, (STATUS, 1, WRITE | NEXT, 2), (DATA, 512, 0, 0)]),
        ("a table outside of memory", vec![(0x3_0000, 32, INDIRECT, 0)]),
        ("a table of odd size", vec![(0x6000, 33, INDIRECT, 0)]),
    ] {
        put_descriptors(&memory, TABLE, &descriptors);
        assert_eq!(read_from(&memory, 0, &GEOMETRY).0, none, "{what}");
    }
    // An indirect table within an indirect table, and one with more entries than the ring.
    put_descriptors(&memory, 0x6000, &[(0x6000, 16, INDIRECT, 0)]);
    put_descriptors(&memory, TABLE, &[(0x6000, 16, INDIRECT, 0)]);
    assert_eq!(read_from(&memory, 0, &GEOMETRY).0, none);
    let long: Vec<_> = [(HEAD, 16, false)].into_iter().chain([(DATA, 0, true); 16]).collect();
    put_descriptors(&memory, 0x6000, &chained(&long));
    put_descriptors(&memory, TABLE, &[(0x6000, 17 * 16, INDIRECT, 0)]);
    assert_eq!(read_from(&memory, 0, &GEOMETRY).0, none);
    // The number of the first descriptor is out of range.
    assert_eq!(read_from(&memory, ENTRIES, &GEOMETRY).0, none);
}

/// Addresses that are likely to find mistakes, and arbitrary ones.
fn address() -> impl Strategy<Value = u64> {
    let places = [HEAD, RANGE, STATUS, DATA, TABLE, 0x6000, 0xffff, 0x1_fff8, 0x3_ffff, 0x4_fe00, u64::MAX];
    prop_oneof![
        4 => (0..places.len(), 0u64..32).prop_map(move |(place, more)| places[place].wrapping_add(more)),
        1 => 0u64..0x6_0000,
        1 => any::<u64>(),
    ]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1u32), Just(16), Just(512), Just(48), 0u32..2000, any::<u32>()]
}

fn descriptor() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    (
        address(),
        length(),
        prop_oneof![4 => 0u16..4, 1 => any::<u16>()],
        prop_oneof![4 => 0u16..16, 1 => any::<u16>()],
    )
}

/// A request of an honest guest: type, sector and pieces.
fn honest() -> impl Strategy<Value = (u32, u64, Vec<(u64, u32, bool)>)> {
    let places = [DATA, DATA + 100, 0xfe00, 0xff00, 0x4_0000];
    let data = prop::collection::vec((0..places.len(), 1u32..4), 1..4);
    (0u32..6, 0u64..2100, data).prop_map(move |(kind, sector, data)| {
        let kinds = [
            blk::VIRTIO_BLK_T_IN,
            blk::VIRTIO_BLK_T_OUT,
            blk::VIRTIO_BLK_T_FLUSH,
            blk::VIRTIO_BLK_T_DISCARD,
            blk::VIRTIO_BLK_T_WRITE_ZEROES,
            blk::VIRTIO_BLK_T_GET_ID,
        ];
        let kind = kinds[kind as usize];
        let mut pieces = vec![(HEAD, 16, false)];
        match kind {
            blk::VIRTIO_BLK_T_IN | blk::VIRTIO_BLK_T_OUT => {
                let writable = kind == blk::VIRTIO_BLK_T_IN;
                pieces.extend(data.iter().map(|(place, sectors)| (places[*place], 512 * sectors, writable)));
            }
            blk::VIRTIO_BLK_T_DISCARD | blk::VIRTIO_BLK_T_WRITE_ZEROES => pieces.push((RANGE, 16, false)),
            blk::VIRTIO_BLK_T_GET_ID => pieces.push((DATA, 20, true)),
            _ => {}
        }
        pieces.push((STATUS, 1, true));
        (kind, sector, pieces)
    })
}

/// A request of an honest guest, some of whose descriptors were replaced by arbitrary ones.
#[test]
fn rubbish_comes_out_as_a_refusal_or_within_bounds() {
    let carried_out = Cell::new(0);
    let refused = Cell::new(0);
    let rubbish = prop_oneof![
        1 => Just(vec![]),
        2 => prop::collection::vec((0usize..8, descriptor()), 1..3),
        1 => prop::collection::vec((0usize..8, descriptor()), 8),
    ];
    let range = (prop_oneof![0u64..2100, any::<u64>()], prop_oneof![0u32..600, any::<u32>()], 0u32..3);
    let table = prop::collection::vec(descriptor(), 16);
    let all = (honest(), rubbish, range, table, 0u16..3, any::<bool>());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4096) };
    let tried = TestRunner::new(config).run(
        &all,
        |((kind, sector, pieces), rubbish, range, table, head, read_only)| {
            let memory = memory();
            let mut descriptors = chained(&pieces);
            descriptors.resize(8, (0, 0, 0, 0));
            for (at, descriptor) in rubbish {
                descriptors[at] = descriptor;
            }
            put_descriptors(&memory, TABLE, &descriptors);
            put_descriptors(&memory, 0x6000, &table);
            put_head(&memory, kind, sector);
            put_range(&memory, range.0, range.1, range.2);
            let access = if read_only { Access::Read } else { Access::ReadWrite };
            let geometry = Geometry { access, ..GEOMETRY };
            // The head is descriptor 0 in most cases, where the chain begins.
            let (asked, pieces) = read_from(&memory, head.saturating_sub(1), &geometry);
            match asked.what {
                Ok(_) => carried_out.set(carried_out.get() + 1),
                Err(_) => refused.set(refused.get() + 1),
            }
            check_bounds(&memory, &geometry, asked, &pieces)
        },
    );
    tried.unwrap();
    let (carried_out, refused) = (carried_out.get(), refused.get());
    assert!(
        carried_out > 300 && refused > 300,
        "{carried_out} carried out, {refused} refused: the rubbish is no good"
    );
}

fn check_bounds(
    memory: &Map,
    geometry: &Geometry,
    asked: ParsedChain,
    pieces: &[Piece],
) -> Result<(), TestCaseError> {
    if let Some(status) = asked.status {
        prop_assert!(memory.address_in_range(status));
    }
    let Ok(Action::Do { operation, offset, length }) = asked.what else { return Ok(()) };
    prop_assert!(asked.status.is_some());
    prop_assert!(geometry.access != Access::Read || matches!(operation, Operation::Read | Operation::Flush));
    prop_assert!(offset % 512 == 0 && length % 512 == 0 && offset + length <= geometry.bytes);
    prop_assert!(pieces.len() <= geometry.segments_max && length <= geometry.range_max);
    if matches!(operation, Operation::Read | Operation::Write) {
        prop_assert_eq!(pieces.iter().map(|(_, bytes)| *bytes as u64).sum::<u64>(), length);
        prop_assert!(length <= geometry.transfer_max);
    }
    for piece in pieces {
        let (base, end) = (piece.0, piece.0 + piece.1);
        let inside = memory.iter().any(|region| {
            let start = region.as_ptr() as usize;
            base >= start && end <= start + region.len() as usize
        });
        prop_assert!(inside, "{piece:?}");
    }
    Ok(())
}
