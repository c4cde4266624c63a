//! Cases of invalid commands: each fails by itself and changes nothing.

use super::subject::{Area, Subject, pattern};
use crate::{Command, CommandError, SEGMENTS_MAX};

pub fn what_is_outside_is_refused(mut subject: Subject) {
    let block = subject.block();
    let bytes = pattern(1, subject.bytes() as usize);
    subject.write(0, &bytes);
    let area = Area::holding(&pattern(2, 4 * block));
    let last = subject.bytes() - block as u64;
    let far = u64::MAX - (block as u64 - 1);
    for (offset, blocks) in
        [(last, 2), (subject.bytes(), 1), (subject.bytes() + 4096, 1), (1 << 63, 1), (far, 1), (far, 4)]
    {
        let length = (blocks * block) as u64;
        let segments = [area.segment(0, block), area.segment(block, (blocks - 1) * block)];
        let two = [area.segment(0, 2 * block)];
        for command in [
            Command::read(1, offset, &segments),
            Command::write(1, offset, &segments),
            Command::write_durable(1, offset, &segments),
            Command::discard(1, offset, length),
            Command::write_zeroes(1, offset, length),
        ] {
            let text = format!("{command:?}");
            assert_eq!(subject.run(command, &area), Err(CommandError::OutOfRange), "{text}");
        }
        if offset != last {
            let command = Command::compare_and_write(1, offset, &two);
            assert_eq!(subject.run(command, &area), Err(CommandError::OutOfRange));
        }
    }
    for (offset, length) in [(block as u64, u64::MAX - (block as u64 - 1)), (0, far), (0, 1 << 63)] {
        let command = Command::write_zeroes(1, offset, length);
        assert_eq!(subject.run(command, &area), Err(CommandError::OutOfRange));
    }
    assert!(subject.read(0, subject.bytes() as usize) == bytes, "something was written");
}

pub fn what_is_uneven_is_refused(mut subject: Subject) {
    let block = subject.block();
    let area = Area::holding(&pattern(3, 4 * block));
    for (offset, bytes) in
        [(1, block), (0, 1), (0, block - 1), (block as u64 / 2, block / 2), (u64::MAX, block)]
    {
        let segments = [area.segment(0, bytes)];
        for command in [
            Command::read(1, offset, &segments),
            Command::write(1, offset, &segments),
            Command::discard(1, offset, bytes as u64),
            Command::write_zeroes(1, offset, bytes as u64),
        ] {
            let text = format!("{command:?}");
            assert_eq!(subject.run(command, &area), Err(CommandError::Unaligned), "{text}");
        }
    }
    for bytes in [0, block, 2 * block - 1, 3 * block] {
        let segments = [area.segment(0, bytes)];
        let command = Command::compare_and_write(1, 0, &segments);
        assert_eq!(subject.run(command, &area), Err(CommandError::Unaligned));
    }
    assert!(subject.read(0, subject.bytes() as usize).iter().all(|byte| *byte == 0), "something was written");
}

pub fn nothing_is_read_and_written_as_well(mut subject: Subject) {
    let area = Area::new(0);
    for offset in [0, subject.bytes() / 2, subject.bytes()] {
        for command in [
            Command::read(1, offset, &[]),
            Command::write(1, offset, &[]),
            Command::write_durable(1, offset, &[area.segment(0, 0)]),
            Command::discard(1, offset, 0),
            Command::write_zeroes(1, offset, 0),
        ] {
            assert_eq!(subject.run(command, &area), Ok(()));
        }
    }
}

pub fn what_is_too_long_or_in_too_many_pieces_is_refused(mut subject: Subject) {
    let block = subject.block();
    let area = Area::new(32 * block);
    let segments: Vec<_> = (0..=SEGMENTS_MAX).map(|number| area.segment(number * block, block)).collect();
    let most = &segments[..SEGMENTS_MAX];
    assert_eq!(subject.run(Command::read(1, 0, &segments), &area), Err(CommandError::TooManySegments));
    area.put(0, &pattern(4, 32 * block));
    assert_eq!(subject.run(Command::write(1, 0, most), &area), Ok(()));
    assert_eq!(subject.read(0, SEGMENTS_MAX * block), area.get(0, SEGMENTS_MAX * block));
    // Segment whose sum of lengths overflows 64 bits.
    // SAFETY: the device refuses the command, so it never accesses the segments' memory.
    let endless = [unsafe { crate::Segment::new(area.base(), usize::MAX & !4095) }; 4];
    assert_eq!(subject.run(Command::read(1, 0, &endless), &area), Err(CommandError::TooLong));
}

pub fn a_full_device_gives_the_command_back(mut subject: Subject) {
    let block = subject.block();
    let depth = subject.device.depth();
    let area = Area::new(block);
    let segment = [area.segment(0, block)];
    // Twice, to check that the depth is the same afterwards.
    for _ in 0..2 {
        for token in 0..depth as u64 {
            // Every third command fails at once, and still counts as in flight.
            let offset = if token % 3 == 0 { subject.bytes() } else { 0 };
            subject.submit(Command::read(token, offset, &segment), &area);
        }
        assert_eq!(subject.device.in_flight(), depth);
        for operation in [Command::read(7, 0, &segment), Command::flush(7), Command::read(7, 1, &segment)] {
            let back = subject.device.submit(operation.owner(area.clone()));
            assert!(back.is_err());
        }
        let mut tokens: Vec<u64> = subject.finish().iter().map(|done| done.token).collect();
        tokens.sort_unstable();
        assert!(tokens.into_iter().eq(0..depth as u64));
    }
    assert_eq!(std::sync::Arc::strong_count(&area), 1, "an owner was kept");
}
