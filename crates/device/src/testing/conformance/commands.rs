//! Cases of single commands.

use super::subject::{Area, Subject, pattern};
use crate::{Command, CommandError, Region};
use std::sync::Arc;

pub fn what_is_written_is_read(mut subject: Subject) {
    let block = subject.block();
    assert!(subject.read(0, subject.bytes() as usize).iter().all(|byte| *byte == 0));
    let (first, last, long) = (pattern(1, block), pattern(2, block), pattern(3, 256 << 10));
    subject.write(0, &first);
    subject.write(subject.bytes() - block as u64, &last);
    subject.write(3 * block as u64, &long);
    assert_eq!(subject.read(0, block), first);
    assert_eq!(subject.read(subject.bytes() - block as u64, block), last);
    assert_eq!(subject.read(3 * block as u64, long.len()), long);
    assert_eq!(subject.read(block as u64, 2 * block), vec![0; 2 * block]);
}

pub fn segments_are_filled_one_after_another(mut subject: Subject) {
    let block = subject.block();
    let bytes = pattern(4, 3 * block);
    let area = Area::new(16 * block);
    // Segment out of order, with an empty one, and with lengths that are no multiples of a block.
    for cuts in [
        vec![(8 * block, block), (0, block), (4 * block, block)],
        vec![(8 * block, block), (block, 0), (2 * block, 2 * block)],
        vec![(7, block + 5), (4 * block + 1, 2 * block - 12), (9 * block + 3, 7)],
    ] {
        let segments: Vec<_> = cuts.iter().map(|(at, length)| area.segment(*at, *length)).collect();
        let mut from = 0;
        for (at, length) in &cuts {
            area.put(*at, &bytes[from..from + length]);
            from += length;
        }
        let offset = 5 * block as u64;
        assert_eq!(subject.run(Command::write(1, offset, &segments), &area), Ok(()));
        assert_eq!(subject.read(offset, 3 * block), bytes);
        area.put(0, &vec![0xee; 16 * block]);
        assert_eq!(subject.run(Command::read(1, offset, &segments), &area), Ok(()));
        let mut read = Vec::new();
        for (at, length) in &cuts {
            read.extend(area.get(*at, *length));
        }
        assert_eq!(read, bytes);
        // Bytes beside the segments are unchanged.
        let others: usize = area.get(0, 16 * block).iter().filter(|byte| **byte == 0xee).count();
        let in_pattern = bytes.iter().filter(|byte| **byte == 0xee).count();
        assert_eq!(others, 13 * block + in_pattern);
        subject.write(offset, &vec![0; 3 * block]);
    }
}

pub fn memory_of_any_alignment_is_taken(mut subject: Subject) {
    let block = subject.block();
    // Longer than any bounce piece.
    let bytes = pattern(5, 300 << 10);
    let area = Area::new(bytes.len() + 4096);
    for shift in [1, 64, 511] {
        area.put(shift, &bytes);
        let segment = [area.segment(shift, bytes.len())];
        assert_eq!(subject.run(Command::write_durable(1, block as u64, &segment), &area), Ok(()));
        assert_eq!(subject.read(block as u64, bytes.len()), bytes);
        area.put(0, &vec![0; bytes.len() + 4096]);
        assert_eq!(subject.run(Command::read(1, block as u64, &segment), &area), Ok(()));
        assert_eq!(area.get(shift, bytes.len()), bytes);
        assert_eq!(subject.run(Command::write_zeroes(1, block as u64, bytes.len() as u64), &area), Ok(()));
    }
}

pub fn zeroes_are_written_and_nothing_else(mut subject: Subject) {
    let block = subject.block();
    let nothing = Area::new(0);
    let bytes = pattern(6, subject.bytes() as usize);
    for (first, count) in [(1, 1), (0, 8), (13, 100), (0, subject.bytes() as usize / block)] {
        subject.write(0, &bytes);
        let (from, to) = (first * block, (first + count) * block);
        let command = Command::write_zeroes(1, from as u64, (to - from) as u64);
        assert_eq!(subject.run(command, &nothing), Ok(()));
        let mut expected = bytes.clone();
        expected[from..to].fill(0);
        assert!(subject.read(0, subject.bytes() as usize) == expected, "{count} blocks from {first} on");
    }
}

pub fn what_is_discarded_reads_as_before_or_as_zeros(mut subject: Subject) {
    let block = subject.block();
    let nothing = Area::new(0);
    let bytes = pattern(7, subject.bytes() as usize);
    subject.write(0, &bytes);
    let (from, to) = (3 * block, 64 * block);
    assert_eq!(subject.run(Command::discard(1, from as u64, (to - from) as u64), &nothing), Ok(()));
    let read = subject.read(0, subject.bytes() as usize);
    assert!(read[..from] == bytes[..from] && read[to..] == bytes[to..]);
    for (now, before) in read[from..to].chunks(block).zip(bytes[from..to].chunks(block)) {
        assert!(now == before || now.iter().all(|byte| *byte == 0));
    }
    // A discarded block can be written again.
    subject.write(from as u64, &bytes[..block]);
    assert_eq!(subject.read(from as u64, block), bytes[..block]);
}

pub fn a_block_is_compared_and_written(mut subject: Subject) {
    let block = subject.block();
    let (old, new, other) = (pattern(8, block), pattern(9, block), pattern(10, block));
    let offset = 7 * block as u64;
    subject.write(offset, &old);
    let mut swap = |expected: &[u8], written: &[u8], cut: usize| {
        let area = Area::holding(&[expected, written].concat());
        let segments = [area.segment(0, cut), area.segment(cut, 2 * block - cut)];
        let result = subject.run(Command::compare_and_write(1, offset, &segments), &area);
        (result, subject.read(offset, block))
    };
    assert_eq!(swap(&other, &new, block), (Err(CommandError::Mismatch), old.clone()));
    let mut nearly = old.clone();
    nearly[block - 1] ^= 1;
    assert_eq!(swap(&nearly, &new, 5), (Err(CommandError::Mismatch), old.clone()));
    nearly = old.clone();
    nearly[0] ^= 128;
    assert_eq!(swap(&nearly, &new, block), (Err(CommandError::Mismatch), old.clone()));
    assert_eq!(swap(&old, &new, block + 3), (Ok(()), new.clone()));
    assert_eq!(swap(&old, &other, block), (Err(CommandError::Mismatch), new.clone()));
    assert_eq!(swap(&new, &new, 0), (Ok(()), new.clone()));
    assert_eq!(subject.read(offset + block as u64, block), vec![0; block]);
    assert_eq!(subject.read(offset - block as u64, block), vec![0; block]);
}

pub fn durable_writes_and_flushes_are_done(mut subject: Subject) {
    let block = subject.block();
    let bytes = pattern(11, 4 * block);
    let area = Area::holding(&bytes);
    let segments = [area.segment(0, block), area.segment(block, 3 * block)];
    assert_eq!(subject.run(Command::write_durable(1, 0, &segments), &area), Ok(()));
    assert_eq!(subject.run(Command::flush(1), &area), Ok(()));
    // Flushes beside other commands and other flushes in flight.
    for token in 0..8 {
        subject.submit(Command::write(token, token * 4 * block as u64, &segments), &area);
        subject.submit(Command::flush(token), &area);
    }
    assert!(subject.finish().iter().all(|done| done.result == Ok(())));
    assert_eq!(subject.read(28 * block as u64, 4 * block), bytes);
}

pub fn registered_memory_is_used_and_forgotten(mut subject: Subject) {
    let block = subject.block();
    let area = Area::holding(&pattern(12, 64 * block));
    let Some(pinner) = subject.device.pinner() else { return println!("left out: nothing is gained by it") };
    // SAFETY: the area owns its memory, and the test reads and writes it by copying only.
    let region = unsafe { Region::new(area.base(), 64 * block, area.clone()) };
    let memory = match region.pin(&*pinner) {
        Ok(memory) => Arc::new(memory),
        Err(error) => return println!("left out: {error}"),
    };
    let id = match subject.device.register(&memory) {
        Ok(id) => id,
        Err(error) => return println!("left out: {error}"),
    };
    let outside = Area::holding(&pattern(13, block));
    for (memory, at, number) in [(&area, 0, 0), (&area, 63 * block, 1), (&outside, 0, 2)] {
        let segment = [memory.segment(at, block)];
        let offset = number * block as u64;
        assert_eq!(subject.run(Command::write(1, offset, &segment).region(id), memory), Ok(()));
        assert_eq!(subject.read(offset, block), memory.get(at, block));
        memory.put(at, &vec![0; block]);
        assert_eq!(subject.run(Command::read(1, offset, &segment).region(id), memory), Ok(()));
        assert_eq!(subject.read(offset, block), memory.get(at, block));
    }
    if let Some(id) = id {
        // Unregister while a command that uses the region is in flight, and unregister twice.
        let segment = [area.segment(0, 8 * block)];
        subject.submit(Command::write(1, 0, &segment).region(Some(id)), &area);
        subject.device.unregister(id);
        subject.device.unregister(id);
        assert_eq!(subject.finish()[0].result, Ok(()));
        assert_eq!(subject.run(Command::write(1, 0, &segment).region(Some(id)), &area), Ok(()));
        // The new region's identifier differs, and the old identifier stays unknown.
        let other = subject.device.register(&memory).unwrap().unwrap();
        assert_ne!(id, other);
        subject.device.unregister(id);
        subject.device.unregister(other);
        // Unregistering frees the table entry and the buffer, so registering never fails.
        for _ in 0..1000 {
            let id = subject.device.register(&memory).unwrap().unwrap();
            subject.device.unregister(id);
        }
    }
    // The device holds no reference any more: dropping the last one releases the memory.
    assert_eq!(Arc::strong_count(&memory), 1);
    drop(memory);
    assert_eq!(Arc::strong_count(&area), 1);
}
