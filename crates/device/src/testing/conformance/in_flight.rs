//! Cases of several commands in flight.

use super::subject::{Area, Subject, pattern};
use crate::{Command, CommandError};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub fn overlapping_commands_take_effect_in_order(mut subject: Subject) {
    let block = subject.block();
    let depth = subject.device.depth().min(60) as u64;
    for round in 0..20 {
        // Alternate writes and reads of ranges that overlap partly.
        let shift = |token: u64| (token % 3) * block as u64;
        let mut expected = vec![0; 8 * block];
        subject.write(0, &expected);
        let mut areas = Vec::new();
        for token in 0..depth {
            let (area, at) = (Area::new(5 * block), shift(token) as usize);
            let segment = [area.segment(0, 5 * block)];
            if token % 2 == 0 {
                let bytes = pattern(round * 1000 + token, 5 * block);
                area.put(0, &bytes);
                expected[at..at + 5 * block].copy_from_slice(&bytes);
                subject.submit(Command::write(token, shift(token), &segment), &area);
            } else {
                subject.submit(Command::read(token, shift(token), &segment), &area);
            }
            areas.push((area, expected[at..at + 5 * block].to_vec()));
        }
        assert!(subject.finish().iter().all(|done| done.result == Ok(())));
        for (token, (area, expected)) in areas.iter().enumerate() {
            assert!(area.get(0, 5 * block) == *expected, "round {round}, command {token}");
        }
        assert!(subject.read(0, 8 * block) == expected);
    }
}

pub fn no_block_is_ever_torn(mut subject: Subject) {
    let block = subject.block();
    let depth = subject.device.depth().min(48) as u64;
    let filled: Vec<_> = (0..depth).map(|token| Area::holding(&vec![token as u8 + 1; 4 * block])).collect();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        for (token, area) in (0..depth).zip(&filled) {
            let segment = [area.segment(0, 4 * block)];
            if token % 4 == 3 {
                subject.submit(Command::read(token, 0, &segment), area);
            } else {
                subject.submit(Command::write(token, 0, &segment), area);
            }
        }
        for done in subject.finish() {
            let bytes = filled[done.token as usize].get(0, 4 * block);
            for bytes in bytes.chunks(block) {
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "of two writes at once");
                seen.insert(bytes[0]);
            }
        }
    }
    assert!(seen.len() > 1);
}

pub fn of_those_who_compare_one_wins(mut subject: Subject) {
    let block = subject.block();
    let depth = subject.device.depth().min(48);
    let mut there = vec![0; block];
    for round in 0..20 {
        let areas: Vec<_> = (0..depth)
            .map(|number| {
                Area::holding(&[there.clone(), pattern(round * 100 + number as u64, block)].concat())
            })
            .collect();
        for (token, area) in areas.iter().enumerate() {
            let segment = [area.segment(0, 2 * block)];
            subject.submit(Command::compare_and_write(token as u64, 0, &segment), area);
            // Writes of the neighbouring block in between do not matter.
            if token % 16 == 0 {
                let offset = block as u64;
                subject.submit(Command::write(1000, offset, &[area.segment(0, block)]), area);
            }
        }
        let done = subject.finish();
        let of_those = done.iter().filter(|done| done.token < 1000);
        let winners: Vec<_> = of_those.clone().filter(|done| done.result == Ok(())).collect();
        assert_eq!(winners.len(), 1);
        assert_eq!(of_those.filter(|done| done.result == Err(CommandError::Mismatch)).count(), depth - 1);
        there = areas[winners[0].token as usize].get(block, block);
        assert_eq!(subject.read(0, block), there);
    }
}

pub fn whoever_sleeps_is_woken(mut subject: Subject) {
    let block = subject.block();
    let area = Area::holding(&pattern(1, 8 * block));
    for round in 0..200u64 {
        let token = round % 8;
        let segment = [area.segment(0, block * (1 + round as usize % 8))];
        match round % 7 {
            0 => subject.submit(Command::flush(token), &area),
            1 => subject.submit(Command::write_zeroes(token, 0, 8 * block as u64), &area),
            2 => subject.submit(Command::discard(token, 0, 8 * block as u64), &area),
            3 => subject.submit(Command::read(token, subject.bytes(), &segment), &area),
            4 => subject.submit(Command::read(token, 0, &segment), &area),
            _ => subject.submit(Command::write_durable(token, 0, &segment), &area),
        }
        let (mut count, end) = (0, Instant::now() + Duration::from_secs(20));
        while count == 0 {
            if !subject.device.arm() {
                let descriptor = subject.device.descriptor().expect("something to sleep on");
                let mut polled = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
                let limit = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
                match rustix::event::poll(&mut polled, Some(&limit)) {
                    Ok(woken) => assert_eq!(woken, 1, "round {round}: nobody woke us"),
                    Err(error) => assert_eq!(error, rustix::io::Errno::INTR),
                }
            }
            count += subject.device.reap(&mut |done| {
                assert_eq!(done.token, token);
                assert_eq!(done.result.is_ok(), round % 7 != 3);
            });
            assert!(Instant::now() < end);
        }
        assert_eq!((count, subject.device.in_flight()), (1, 0));
        assert!(!subject.device.arm(), "nothing is in flight, and there is something to look at");
    }
}

pub fn dropping_waits_for_what_is_in_flight(mut subject: Subject) {
    let block = subject.block();
    let depth = subject.device.depth().min(60);
    let area = Area::holding(&pattern(2, 64 * block));
    for token in 0..depth {
        let (offset, segment) =
            (token as u64 * 8 * block as u64 % (subject.bytes() / 2), [area.segment(3, 32 * block)]);
        match token % 4 {
            0 => subject.submit(Command::write(0, offset, &segment), &area),
            1 => subject.submit(Command::write_zeroes(0, offset, 32 * block as u64), &area),
            _ => subject.submit(Command::read(0, offset, &segment), &area),
        }
    }
    // After this poll the commands have begun, and some may have completed.
    subject.device.reap(&mut |_| {});
    drop(subject);
    assert_eq!(Arc::strong_count(&area), 1, "an owner was kept");
    let before = area.get(0, 64 * block);
    std::thread::sleep(Duration::from_millis(20));
    assert!(area.get(0, 64 * block) == before, "somebody still writes to it");
}
