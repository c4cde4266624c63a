//! Tests of requests that are allowed, of refusals and their reasons, and of the table against a naive one.

use super::*;
use proptest::prelude::*;

const DEVICE: DeviceNumber = DeviceNumber(3);

fn grant(right: Access, spans: &[(u64, u64)]) -> Grant {
    Grant::new(DEVICE, right, spans.iter().map(|&(start, length)| ByteRange::new(start, length))).unwrap()
}

/// Makes a table with one grant.
fn table_of(right: Access, spans: &[(u64, u64)]) -> (Table, GrantNumber) {
    let mut table = Table::new(4);
    let number = table.add(grant(right, spans)).unwrap();
    (table, number)
}

fn pieces(
    table: &Table,
    number: GrantNumber,
    offset: u64,
    length: u64,
) -> Result<Vec<(u64, u64)>, GrantError> {
    let pieces = table.check(number, Bytes(offset), Bytes(length), Access::Read)?;
    assert_eq!(pieces.device(), DEVICE);
    Ok(pieces.map(|piece| (piece.start.0, piece.length.0)).collect())
}

/// Asserts that the check of a grant that is one extent returns what the check of any grant does.
fn assert_flat_agrees(table: &Table, number: GrantNumber, offset: u64, length: u64, wanted: Access) {
    let (offset, length) = (Bytes(offset), Bytes(length));
    let flat = table.check_flat(number, offset, length, wanted);
    let checked = table.check(number, offset, length, wanted);
    let is_flat = table.find(number).is_ok_and(|grant| grant.extents() == 1);
    let expected = checked.ok().filter(|_| is_flat && length.0 > 0);
    let expected = expected.map(|pieces| (pieces.device(), pieces.only().unwrap()));
    assert_eq!(flat.map(|(device, start)| (device, ByteRange { start, length })), expected);
}

#[test]
fn a_request_is_where_its_extents_are() {
    let (table, number) = table_of(Access::Read, &[(1000, 100), (5000, 50), (0, 10)]);
    let found = |offset, length| pieces(&table, number, offset, length).unwrap();
    assert_eq!(found(0, 160), [(1000, 100), (5000, 50), (0, 10)]);
    assert_eq!(found(0, 1), [(1000, 1)]);
    assert_eq!(found(99, 2), [(1099, 1), (5000, 1)]);
    assert_eq!(found(120, 10), [(5020, 10)]);
    assert_eq!(found(100, 50), [(5000, 50)]);
    assert_eq!(found(149, 11), [(5049, 1), (0, 10)]);
    for nothing in [0, 1, 100, 150, 160] {
        assert_eq!(found(nothing, 0), []);
    }
}

#[test]
fn refusals_say_what_was_wrong() {
    let (mut table, number) = table_of(Access::Read, &[(0, 4096)]);
    let said = |table: &Table, number, offset, length, wanted| {
        table.check(number, Bytes(offset), Bytes(length), wanted).unwrap_err().to_string()
    };
    assert_eq!(
        said(&table, number, 0, 1, Access::Write),
        "write access was requested, and the grant allows read access"
    );
    assert_eq!(
        said(&table, number, 0, 1, Access::ReadWrite),
        "read-write access was requested, and the grant allows read access"
    );
    assert_eq!(
        said(&table, number, 4000, 97, Access::Read),
        "97 B from 4000 B on are not all within the grant, which has 4096 B"
    );
    assert_eq!(
        said(&table, number, 4097, 0, Access::Read),
        "0 B from 4097 B on are not all within the grant, which has 4096 B"
    );
    assert_eq!(
        said(&table, number, u64::MAX, 1, Access::Read),
        "1 B from 18446744073709551615 B on end beyond 64 bits"
    );
    let never = GrantNumber::from_word(7);
    assert_eq!(
        said(&table, never, 0, 1, Access::Read),
        "grant 7.0 was never given; open a volume or pass a descriptor first"
    );
    table.revoke(number).unwrap();
    assert_eq!(said(&table, number, 0, 1, Access::Read), "grant 0.1 was revoked; open its volume anew");
}

#[test]
fn rights_cover_what_they_say() {
    use Access::{Read, ReadWrite, Write};
    for (right, wanted, covers) in [
        (Read, Read, true),
        (Read, Write, false),
        (Read, ReadWrite, false),
        (Write, Read, false),
        (Write, Write, true),
        (Write, ReadWrite, false),
        (ReadWrite, Read, true),
        (ReadWrite, Write, true),
        (ReadWrite, ReadWrite, true),
    ] {
        let (table, number) = table_of(right, &[(0, 10)]);
        let checked = table.check(number, Bytes(0), Bytes(10), wanted).map(drop);
        let expected = if covers { Ok(()) } else { Err(GrantError::Right { wanted, right }) };
        assert_eq!(checked, expected);
        // A request of no bytes is checked for its right too.
        assert_eq!(table.check(number, Bytes(0), Bytes(0), wanted).map(drop), expected);
    }
}

#[test]
fn a_revoked_number_never_means_what_comes_after_it() {
    let mut table = Table::new(2);
    let mut numbers = Vec::new();
    for round in 1..100u64 {
        let number = table.add(grant(Access::Read, &[(round, 1)])).unwrap();
        assert_eq!(pieces(&table, number, 0, 1).unwrap(), [(round, 1)]);
        for old in &numbers {
            assert_eq!(pieces(&table, *old, 0, 1), Err(GrantError::Revoked { grant: *old }));
            assert!(matches!(table.revoke(*old), Err(GrantError::Revoked { .. })));
        }
        assert_eq!(table.revoke(number).unwrap().length(), Bytes(1));
        assert_eq!(pieces(&table, number, 0, 1), Err(GrantError::Revoked { grant: number }));
        // The number of the place's next grant is not known before that grant is added.
        let next = GrantNumber::new(number.place(), number.tag() + 1);
        assert_eq!(pieces(&table, next, 0, 1), Err(GrantError::Unknown { grant: next }));
        numbers.push(number);
    }
    assert_eq!(table.places.len(), 1);
}

#[test]
fn a_place_whose_tags_are_used_up_is_left() {
    let (mut table, first) = table_of(Access::Read, &[(0, 1)]);
    table.revoke(first).unwrap();
    table.places[0].last_tag = u32::MAX - 1;
    let last = table.add(grant(Access::Read, &[(0, 1)])).unwrap();
    assert_eq!((last.place(), last.tag()), (0, u32::MAX));
    table.revoke(last).unwrap();
    assert_eq!(pieces(&table, last, 0, 1), Err(GrantError::Revoked { grant: last }));
    let other = table.add(grant(Access::Read, &[(0, 1)])).unwrap();
    assert_eq!((other.place(), other.tag()), (1, 1));
}

#[test]
fn a_table_has_as_many_as_it_may() {
    let mut table = Table::new(3);
    let numbers: Vec<_> = (0..3).map(|_| table.add(grant(Access::Read, &[(0, 1)])).unwrap()).collect();
    assert!(matches!(table.add(grant(Access::Read, &[(0, 1)])), Err(Error::Grants { most: 3 })));
    table.revoke(numbers[1]).unwrap();
    let again = table.add(grant(Access::Read, &[(0, 1)])).unwrap();
    let mut there: Vec<_> = table.grants().map(|(number, _)| number).collect();
    there.sort_by_key(|number| number.place());
    assert_eq!(there, [numbers[0], again, numbers[2]]);
    assert!(matches!(Table::new(0).add(grant(Access::Read, &[(0, 1)])), Err(Error::Grants { most: 0 })));
    assert_eq!(Table::new(u32::MAX).grants_max, GRANTS_MAX);
}

#[test]
fn numbers_that_are_rubbish_are_unknown() {
    let (table, number) = table_of(Access::ReadWrite, &[(0, 4096)]);
    for word in
        [0, 1, u64::MAX, u64::from(u32::MAX), u64::MAX << 32, number.to_word() + 1, number.to_word() << 1]
    {
        let grant = GrantNumber::from_word(word);
        assert_eq!(
            table.check(grant, Bytes(0), Bytes(1), Access::Read).map(drop),
            Err(GrantError::Unknown { grant })
        );
    }
    assert_eq!(GrantNumber::from_word(number.to_word()), number);
}

#[test]
fn nothing_overflows_at_the_ends_of_64_bits() {
    let extremes = [0, 1, 2, 4095, 4096, 4097, 1 << 32, 1 << 63, u64::MAX - 1, u64::MAX];
    let grants: [&[(u64, u64)]; 4] =
        [&[(0, 4096)], &[(0, u64::MAX)], &[(u64::MAX - 1, 1), (0, u64::MAX - 2)], &[(u64::MAX - 4096, 4096)]];
    for spans in grants {
        let (table, number) = table_of(Access::Read, spans);
        let granted = spans.iter().map(|span| span.1).sum::<u64>();
        for offset in extremes {
            for length in extremes {
                let end = u128::from(offset) + u128::from(length);
                match pieces(&table, number, offset, length) {
                    Ok(found) => {
                        assert!(end <= u128::from(granted));
                        assert_eq!(found.iter().map(|piece| piece.1).sum::<u64>(), length);
                    }
                    Err(GrantError::Overflow { .. }) => assert!(end > u128::from(u64::MAX)),
                    Err(refusal) => {
                        assert!(end > u128::from(granted) && end <= u128::from(u64::MAX));
                        let (offset, length, granted) = (Bytes(offset), Bytes(length), Bytes(granted));
                        assert_eq!(refusal, GrantError::Bounds { offset, length, granted });
                    }
                }
            }
        }
    }
}

#[test]
fn a_request_falls_into_so_many_pieces_at_most() {
    let spans: Vec<(u64, u64)> = (0..1000).map(|number| (number * 20, 10)).collect();
    let (table, number) = table_of(Access::Read, &spans);
    let most = PIECES_MAX as u64 * 10;
    for offset in [0, 10, 730] {
        assert_eq!(pieces(&table, number, offset, most).unwrap().len(), PIECES_MAX);
        let refused = GrantError::Scattered { offset: Bytes(offset), served: Bytes(most) };
        assert_eq!(pieces(&table, number, offset, most + 1), Err(refused));
        // A request that begins within an extent is allowed less; the length in the refusal is then allowed.
        let (offset, served) = (Bytes(offset + 4), Bytes(most - 4));
        let refused = GrantError::Scattered { offset, served };
        assert_eq!(pieces(&table, number, offset.0, most), Err(refused));
        assert_eq!(pieces(&table, number, offset.0, served.0).unwrap().len(), PIECES_MAX);
    }
}

/// Makes a table with one grant of `length` bytes that has holes.
fn with_holes(length: u64, mapped: &[(u64, u64, u64)]) -> (Table, GrantNumber) {
    with_shared(length, &mapped.iter().map(|row| (*row, false)).collect::<Vec<_>>())
}

/// Makes a table with one grant of `length` bytes that has holes and shared extents.
fn with_shared(length: u64, mapped: &[((u64, u64, u64), bool)]) -> (Table, GrantNumber) {
    let mapped = mapped.iter().map(|(row, is_shared)| GrantExtent { is_shared: *is_shared, ..extent(*row) });
    let grant = Grant::with_holes(DEVICE, Access::ReadWrite, Bytes(length), mapped).unwrap();
    let mut table = Table::new(4);
    let number = table.add(grant).unwrap();
    (table, number)
}

/// Makes an extent at an offset, with a start and a length on the device, that is not shared.
fn extent((offset, start, length): (u64, u64, u64)) -> GrantExtent {
    GrantExtent { offset: Bytes(offset), range: ByteRange::new(start, length), is_shared: false }
}

fn parts(table: &Table, number: GrantNumber, offset: u64, length: u64) -> Vec<(u64, u64, Option<u64>)> {
    let parts = table.check_parts(number, Bytes(offset), Bytes(length), Access::Write, PIECES_MAX).unwrap();
    assert_eq!(parts.device(), DEVICE);
    parts
        .map(|part| {
            assert!(part.mapped.is_none_or(|range| range.length == part.length));
            (part.offset.0, part.length.0, part.mapped.map(|range| range.start.0))
        })
        .collect()
}

#[test]
fn a_hole_is_never_a_range_of_the_device() {
    let (mut table, number) = with_holes(100, &[(10, 500, 10), (20, 510, 5), (40, 0, 10)]);
    assert_eq!(
        parts(&table, number, 0, 100),
        [(0, 10, None), (10, 15, Some(500)), (25, 15, None), (40, 10, Some(0)), (50, 50, None)]
    );
    assert_eq!(parts(&table, number, 12, 20), [(12, 13, Some(502)), (25, 7, None)]);
    assert_eq!(parts(&table, number, 50, 0), []);
    assert_eq!(pieces(&table, number, 10, 15).unwrap(), [(500, 15)]);
    assert_eq!(pieces(&table, number, 40, 10).unwrap(), [(0, 10)]);
    for (offset, length) in [(0, 1), (9, 2), (24, 2), (25, 1), (39, 2), (49, 2), (99, 1), (0, 100)] {
        let refused = GrantError::Unmapped { offset: Bytes(offset), length: Bytes(length) };
        assert_eq!(pieces(&table, number, offset, length), Err(refused));
    }
    assert!(matches!(pieces(&table, number, 99, 2), Err(GrantError::Bounds { .. })));
    assert!(table.check_parts(number, Bytes(99), Bytes(2), Access::Read, PIECES_MAX).is_err());
    // Allocated, the number stays valid.
    let all = Grant::with_holes(DEVICE, Access::ReadWrite, Bytes(100), [extent((0, 700, 100))]);
    table.replace(number, all.unwrap()).unwrap();
    assert_eq!(pieces(&table, number, 0, 100).unwrap(), [(700, 100)]);
    assert_eq!(parts(&table, number, 0, 100), [(0, 100, Some(700))]);
    let (table, number) = with_holes(100, &[(10, 500, 10), (20, 600, 5), (40, 0, 10)]);
    let refused = table.check_parts(number, Bytes(5), Bytes(50), Access::Read, 4).map(drop);
    assert_eq!(refused, Err(GrantError::Scattered { offset: Bytes(5), served: Bytes(35) }));
    assert_eq!(table.check_parts(number, Bytes(5), Bytes(35), Access::Read, 4).unwrap().count(), 4);
    let (table, number) = with_holes(1 << 40, &[]);
    assert_eq!(parts(&table, number, 4096, 4096), [(4096, 4096, None)]);
    assert!(matches!(pieces(&table, number, 0, 1 << 40), Err(GrantError::Unmapped { .. })));
}

#[test]
fn what_is_shared_is_read_and_not_written() {
    let rows = [((0, 500, 10), true), ((10, 510, 5), false), ((15, 515, 5), true), ((30, 0, 10), true)];
    let (table, number) = with_shared(100, &rows);
    let written = |offset, length| {
        let checked = table.check(number, Bytes(offset), Bytes(length), Access::Write);
        checked.map(|pieces| pieces.map(|piece| (piece.start.0, piece.length.0)).collect::<Vec<_>>())
    };
    assert_eq!(pieces(&table, number, 0, 20).unwrap(), [(500, 10), (510, 5), (515, 5)]);
    assert_eq!(pieces(&table, number, 17, 3).unwrap(), [(517, 3)]);
    assert_eq!(pieces(&table, number, 30, 10).unwrap(), [(0, 10)]);
    assert_eq!(written(10, 5).unwrap(), [(510, 5)]);
    for (offset, length) in [(0, 1), (9, 2), (14, 2), (10, 6), (15, 1), (19, 2), (30, 1), (50, 1)] {
        let refused = GrantError::Unmapped { offset: Bytes(offset), length: Bytes(length) };
        assert_eq!(written(offset, length), Err(refused), "{offset}");
        let is_read = pieces(&table, number, offset, length).is_ok();
        assert_eq!(is_read, offset + length <= 20 || offset == 30, "{offset}");
    }
    let parts = table.check_parts(number, Bytes(5), Bytes(30), Access::Write, PIECES_MAX).unwrap();
    let parts: Vec<_> =
        parts.map(|part| (part.offset.0, part.mapped.map(|range| range.start.0), part.is_shared)).collect();
    assert_eq!(
        parts,
        [
            (5, Some(505), true),
            (10, Some(510), false),
            (15, Some(515), true),
            (20, None, false),
            (30, Some(0), true)
        ]
    );
    // Without holes, and at the end of what 64 bits can name.
    let (table, number) = with_shared(10, &[((0, (1 << 62) - 10, 10), true)]);
    assert_eq!(pieces(&table, number, 0, 10).unwrap(), [((1 << 62) - 10, 10)]);
    assert!(table.check(number, Bytes(9), Bytes(1), Access::ReadWrite).is_err());
    let shared = GrantExtent { is_shared: true, ..extent((0, 1 << 63, 10)) };
    let refused = Grant::with_holes(DEVICE, Access::Read, Bytes(10), [shared]);
    assert!(matches!(refused, Err(Error::Span(_))));
}

#[test]
fn a_map_with_holes_that_cannot_be_is_refused() {
    let made = |length: u64, mapped: &[(u64, u64, u64)]| {
        Grant::with_holes(DEVICE, Access::Read, Bytes(length), mapped.iter().map(|row| extent(*row)))
    };
    for (length, mapped) in [
        (0, &[][..]),
        (10, &[(0, 0, 0)]),
        (10, &[(5, 0, 6)]),
        (10, &[(5, 0, 2), (6, 10, 1)]),
        (10, &[(0, u64::MAX, 2)]),
        (u64::MAX, &[(u64::MAX, 0, 1)]),
        (u64::MAX, &[(0, u64::MAX - 5, 5)]),
    ] {
        assert!(matches!(made(length, mapped), Err(Error::Span(_))), "{length} {mapped:?}");
    }
    let many: Vec<_> =
        (0..GRANT_EXTENTS_MAX as u64 / 2 + 1).map(|number| (number * 4, number * 3, 1)).collect();
    let refused = made(u64::MAX / 2, &many);
    assert!(matches!(refused, Err(Error::GrantExtents { .. })));
    assert_eq!(made(u64::MAX / 2, &many[2..]).unwrap().extents(), GRANT_EXTENTS_MAX - 1);
}

/// Naive model of a grant: the place of each byte on the device.
struct Naive {
    right: Access,
    bytes: Vec<u64>,
}

impl Naive {
    fn check(&self, offset: u64, length: u64, wanted: Access) -> Option<Vec<u64>> {
        let end = offset.checked_add(length)?;
        let bytes = self.bytes.get(offset as usize..)?.get(..length as usize)?;
        (end <= self.bytes.len() as u64 && self.right.covers(wanted)).then(|| bytes.to_vec())
    }
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::ReadWrite)]
}

/// Random step: adds or revokes a grant, or checks a request with any number, offset and length.
#[derive(Clone, Debug)]
enum Step {
    Add(Access, Vec<(u64, u64)>, u32),
    Revoke(prop::sample::Index),
    Check(prop::sample::Index, u64, u64, Access),
    Rubbish(u64, u64, u64, Access),
}

fn steps() -> impl Strategy<Value = Step> {
    let spans = prop::collection::vec((0u64..1000, 1u64..30), 1..40);
    let near = || prop_oneof![4 => 0u64..600, 1 => (u64::MAX - 3)..=u64::MAX];
    prop_oneof![
        2 => (access(), spans, 0u32..4).prop_map(|(right, spans, shift)| Step::Add(right, spans, shift)),
        1 => any::<prop::sample::Index>().prop_map(Step::Revoke),
        10 => (any::<prop::sample::Index>(), near(), near(), access())
            .prop_map(|(which, offset, length, wanted)| Step::Check(which, offset, length, wanted)),
        1 => (any::<u64>(), near(), near(), access())
            .prop_map(|(word, offset, length, wanted)| Step::Rubbish(word, offset, length, wanted)),
    ]
}

proptest! {
    /// Rows of the map: gap in the grant before the extent, and the extent on the device.
    #[test]
    fn any_holes(
        rows in prop::collection::vec((0u64..40, 0u64..2000, 1u64..30, any::<bool>()), 0..80),
        end in 1u64..50,
        shift in 0u32..13,
        requests in prop::collection::vec((0u64..3000, 0u64..300), 1..100),
    ) {
        let (mut at, mut mapped, mut naive, mut shared) = (0, Vec::new(), Vec::new(), Vec::new());
        for (gap, start, length, is_shared) in rows {
            naive.resize(naive.len() + gap as usize, None);
            shared.resize(naive.len(), false);
            naive.extend((start..start + length).map(Some));
            shared.resize(naive.len(), is_shared);
            mapped.push((((at + gap) << shift, start << shift, length << shift), is_shared));
            at += gap + length;
        }
        naive.resize(naive.len() + end as usize, None);
        shared.resize(naive.len(), false);
        let (table, number) = with_shared((at + end) << shift, &mapped);
        for (offset, length) in requests {
            let Some(expected) = naive.get(offset as usize..(offset + length) as usize) else { continue };
            let found = parts(&table, number, offset << shift, length << shift);
            let blocks = found.iter().flat_map(|(_, length, start)| {
                (0..length >> shift).map(move |block| start.map(|start| (start >> shift) + block))
            });
            prop_assert_eq!(blocks.collect::<Vec<_>>(), expected);
            let may_write = expected.iter().all(Option::is_some)
                && !shared[offset as usize..(offset + length) as usize].contains(&true);
            let written = table.check(number, Bytes(offset << shift), Bytes(length << shift), Access::Write);
            assert_flat_agrees(&table, number, offset << shift, length << shift, Access::Write);
            assert_flat_agrees(&table, number, offset << shift, length << shift, Access::Read);
            prop_assert_eq!(written.is_ok(), may_write);
            let of_parts = table
                .check_parts(number, Bytes(offset << shift), Bytes(length << shift), Access::Write, PIECES_MAX)
                .unwrap()
                .flat_map(|part| vec![part.is_shared; (part.length.0 >> shift) as usize]);
            let are_shared = &shared[offset as usize..(offset + length) as usize];
            prop_assert_eq!(of_parts.collect::<Vec<_>>(), are_shared);
            let checked = pieces(&table, number, offset << shift, length << shift);
            match expected.iter().all(Option::is_some) {
                true => {
                    let ranges: Vec<_> = found.iter().map(|part| (part.2.unwrap(), part.1)).collect();
                    prop_assert_eq!(checked.unwrap(), ranges);
                }
                false => {
                    let is_refused = matches!(checked, Err(GrantError::Unmapped { .. }));
                    prop_assert!(is_refused);
                }
            }
        }
    }

    #[test]
    fn as_a_naive_table(steps in prop::collection::vec(steps(), 1..200)) {
        let mut table = Table::new(8);
        let mut all: Vec<(GrantNumber, Option<Naive>)> = Vec::new();
        for step in steps {
            match step {
                Step::Add(right, spans, shift) => {
                    // In units of 1, 2, 4 or 8 bytes.
                    let in_bytes = |(start, length): &(u64, u64)| (start << shift, length << shift);
                    let spans: Vec<(u64, u64)> = spans.iter().map(in_bytes).collect();
                    let bytes = spans.iter().flat_map(|&(start, length)| start..start + length).collect();
                    let live = all.iter().filter(|(_, naive)| naive.is_some()).count();
                    match table.add(grant(right, &spans)) {
                        Ok(number) => {
                            prop_assert!(live < 8 && all.iter().all(|(other, _)| *other != number));
                            all.push((number, Some(Naive { right, bytes })));
                        }
                        Err(_) => prop_assert_eq!(live, 8),
                    }
                }
                Step::Revoke(which) if !all.is_empty() => {
                    let (number, naive) = which.get_mut(&mut all);
                    prop_assert_eq!(table.revoke(*number).is_ok(), naive.take().is_some());
                }
                Step::Check(which, offset, length, wanted) if !all.is_empty() => {
                    let (number, naive) = which.get(&all);
                    let checked = table.check(*number, Bytes(offset), Bytes(length), wanted);
                    assert_flat_agrees(&table, *number, offset, length, wanted);
                    let Some(naive) = naive else {
                        prop_assert_eq!(checked.map(drop), Err(GrantError::Revoked { grant: *number }));
                        continue;
                    };
                    let found = checked.map(|pieces| {
                        pieces.flat_map(|piece| piece.start.0..piece.start.0 + piece.length.0).collect::<Vec<_>>()
                    });
                    prop_assert_eq!(found.ok(), naive.check(offset, length, wanted));
                }
                Step::Rubbish(word, offset, length, wanted) => {
                    let number = GrantNumber::from_word(word);
                    if all.iter().all(|(other, _)| *other != number) {
                        let refused = Err(GrantError::Unknown { grant: number });
                        let checked = table.check(number, Bytes(offset), Bytes(length), wanted);
                        prop_assert_eq!(checked.map(drop), refused);
                        assert_flat_agrees(&table, number, offset, length, wanted);
                    }
                }
                Step::Revoke(_) | Step::Check(..) => {}
            }
        }
    }
}
