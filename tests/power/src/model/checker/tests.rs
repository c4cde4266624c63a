//! Tests of the check, on histories made by hand.

use super::*;

/// A history of one file of words in which each operation ends before the next one begins.
fn history(operations: &[(Kind, u64, u64)]) -> Checker {
    let mut events = Vec::new();
    for (index, (kind, offset, length)) in operations.iter().enumerate() {
        let size = if *kind == Kind::Truncate { *length } else { SAME_SIZE };
        let number = index as u64 + 1;
        let (kind, offset, length) = (*kind, *offset, *length);
        for is_end in [false, true] {
            let position = Position(2 * number + u64::from(is_end));
            let target = Target::Words;
            events.push(Event { operation: number, is_end, kind, target, offset, length, size, position });
        }
    }
    Checker::new(&events)
}

fn check(checker: &Checker, words: &[u64], cut: u64) -> Result<u64, String> {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    if words.len() < 100 {
        bytes.resize(LIMIT_BYTES as usize / 2, 0);
    }
    fs::write(folder.path().join("words"), bytes).unwrap();
    checker.words(folder.path(), Target::Words, Position(cut))
}

#[test]
fn what_was_synced_is_there() {
    let checker = history(&[(Kind::Write, 0, 16), (Kind::Sync, 0, 0), (Kind::Write, 8, 8)]);
    assert_eq!(check(&checker, &[1, 1], 5), Ok(1));
    assert_eq!(check(&checker, &[1, 3], 9), Ok(1), "the disk may have more");
    assert!(check(&checker, &[1, 0], 5).unwrap_err().contains("older than"));
    assert_eq!(check(&checker, &[0, 0], 4), Ok(0), "not acknowledged");
    assert!(check(&checker, &[1, 7], 9).unwrap_err().contains("never written"));
    assert!(check(&checker, &[1, 3], 5).unwrap_err().contains("after the cut"));
}

#[test]
fn zeroes_come_from_truncations_and_punches() {
    let whole = LIMIT_BYTES / 2;
    let checker = history(&[
        (Kind::Write, 0, 16),
        (Kind::Truncate, 0, 8),
        (Kind::Truncate, 0, whole),
        (Kind::Sync, 0, 0),
        (Kind::Punch, 0, 8),
        (Kind::SyncedWrite, 8, 8),
    ]);
    assert_eq!(check(&checker, &[1, 0], 9), Ok(1));
    assert!(check(&checker, &[1, 1], 9).unwrap_err().contains("older than"), "regrown");
    assert_eq!(check(&checker, &[0, 0], 11), Ok(1));
    assert!(check(&checker, &[0, 0], 13).unwrap_err().contains("older than"));
    assert_eq!(check(&checker, &[1, 6], 13), Ok(1));
}

#[test]
fn a_sync_that_overlaps_with_a_truncation_leaves_a_size_between() {
    let event = |operation, is_end, kind, length, size| {
        let position = Position(operation);
        Event { operation, is_end, kind, target: Target::Words, offset: 0, length, size, position }
    };
    let (truncate, sync) = (Kind::Truncate, Kind::Sync);
    let checker = |syncs: [usize; 2]| {
        let mut events = vec![
            event(1, false, truncate, 1600, 1600),
            event(1, true, truncate, 1600, 1600),
            event(3, false, truncate, 800, 800),
            event(3, true, truncate, 800, 800),
        ];
        events.insert(syncs[0], event(2, false, sync, 0, SAME_SIZE));
        events.insert(syncs[1], event(2, true, sync, 0, SAME_SIZE));
        Checker::new(&events)
    };
    assert_eq!(check(&checker([2, 4]), &[0; 150], 9), Ok(1));
    assert!(check(&checker([2, 4]), &[0; 201], 9).is_err());
    assert!(check(&checker([2, 3]), &[0; 150], 9).is_err());
}

#[test]
fn sizes_follow_their_changes() {
    let checker = history(&[(Kind::Truncate, 0, 800), (Kind::Sync, 0, 0), (Kind::Truncate, 0, 1600)]);
    assert_eq!(check(&checker, &[0; 100], 5), Ok(1));
    assert_eq!(check(&checker, &[0; 200], 7), Ok(1));
    assert_eq!(check(&checker, &[0; 150], 7), Ok(1), "longer piece by piece");
    assert!(check(&checker, &[0; 201], 7).unwrap_err().contains("1608 bytes"));
    assert!(check(&checker, &[0], 5).is_err());
}

#[test]
fn a_synced_write_makes_no_foreign_extension_durable() {
    let extension = [(Kind::Truncate, 0, 800), (Kind::Sync, 0, 0), (Kind::Truncate, 0, 1600)];
    let checker = history(&[&extension[..], &[(Kind::SyncedWrite, 1200, 8)]].concat());
    assert_eq!(check(&checker, &[0; 100], 9), Ok(1));
    // Within the durable size it is durable by itself.
    let checker = history(&[&extension[..2], &[(Kind::SyncedWrite, 400, 8)]].concat());
    assert!(check(&checker, &[0; 100], 7).unwrap_err().contains("older than"));
}
