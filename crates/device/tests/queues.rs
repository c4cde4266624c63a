//! Several queues of one device, each used by a thread: the rules hold for all of them together.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_device::testing::conformance::{Area, Subject};
use bywash_device::{Command, CommandError, Device, File, PassedOptions, ReplacedContents, Spec, queues};
use std::sync::Barrier;
use std::thread;

/// Size of the blocks that all devices here can write, in bytes.
const BLOCK: usize = 4096;
/// Number of queues of a device.
const QUEUES: usize = 3;

/// Opens devices with queues of their own, by io_uring or threads, and one that shares its only queue.
fn devices() -> Vec<(&'static str, Vec<Subject>, tempfile::TempDir)> {
    let specs = [
        "d=mem:4M,pages=4K",
        "d=file:FOLDER/ring,size=4M,depth=48",
        "d=file:FOLDER/threads,size=4M,depth=48,engine=threads",
        "d=file:FOLDER/cached,size=4M,depth=48,cached",
        "d=mem:4M,pages=4K,latency=2us,depth=48",
    ];
    let open = |text: &'static str| {
        let folder = tempfile::tempdir().unwrap();
        let spec: Spec = text.replace("FOLDER", &folder.path().display().to_string()).parse().unwrap();
        let all = queues(spec.open().unwrap(), QUEUES).unwrap();
        (text, all.into_iter().map(|queue| Subject::new(queue, vec![])).collect(), folder)
    };
    specs.map(open).into()
}

/// Runs `act` on each queue in a thread of its own, and returns the results.
fn on_each<T: Send>(all: Vec<Subject>, act: impl Fn(usize, &mut Subject) -> T + Sync) -> Vec<T> {
    let begin = Barrier::new(all.len());
    thread::scope(|scope| {
        let run = |(number, mut subject): (usize, Subject)| {
            let (act, begin) = (&act, &begin);
            scope.spawn(move || {
                begin.wait();
                act(number, &mut subject)
            })
        };
        let threads: Vec<_> = all.into_iter().enumerate().map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn no_block_is_torn_between_queues() {
    for (name, all, _folder) in devices() {
        let blocks = 4;
        on_each(all, |number, subject| {
            let areas: Vec<_> =
                (0..8u8).map(|at| Area::holding(&vec![number as u8 * 16 + at; blocks * BLOCK])).collect();
            for _ in 0..40 {
                for (token, area) in areas.iter().enumerate() {
                    let segment = [area.segment(0, blocks * BLOCK)];
                    match token % 2 {
                        0 => subject.submit(Command::write(token as u64, 0, &segment), area),
                        _ => subject.submit(Command::read(token as u64, 0, &segment), area),
                    }
                }
                for done in subject.finish() {
                    assert_eq!(done.result, Ok(()));
                    let bytes = areas[done.token as usize].get(0, blocks * BLOCK);
                    for block in bytes.chunks(BLOCK) {
                        assert!(block.iter().all(|byte| *byte == block[0]), "{name}: a torn block");
                    }
                }
            }
        });
    }
}

/// Every queue adds to one number by compare-and-write: no addition is lost.
#[test]
fn compare_and_write_is_atomic_across_queues() {
    const ADDITIONS: u64 = 60;
    for (name, all, _folder) in devices() {
        let block = all[0].block();
        on_each(all, |_, subject| {
            let mut added = 0;
            while added < ADDITIONS {
                let before = subject.read(8192, block);
                let mut after = before.clone();
                let number = u64::from_ne_bytes(before[..8].try_into().unwrap());
                after[..8].copy_from_slice(&(number + 1).to_ne_bytes());
                let area = Area::holding(&[before, after].concat());
                let segment = [area.segment(0, 2 * block)];
                match subject.run(Command::compare_and_write(7, 8192, &segment), &area) {
                    Ok(()) => added += 1,
                    Err(error) => assert_eq!(error, CommandError::Mismatch, "{name}"),
                }
            }
            // Others may still add; the last thread to come here sees them all.
            u64::from_ne_bytes(subject.read(8192, 8 * block)[..8].try_into().unwrap())
        })
        .into_iter()
        .max()
        .map(|most| assert_eq!(most, ADDITIONS * QUEUES as u64, "{name}"))
        .unwrap();
    }
}

/// A read by one queue sees the completed writes of all others, whatever it had in flight before.
#[test]
fn completed_writes_are_seen_by_all_queues() {
    for (name, mut all, _folder) in devices() {
        for round in 0..60u8 {
            let by = usize::from(round) % QUEUES;
            all[by].write(u64::from(round % 5) * 4096, &[round; BLOCK]);
            for subject in &mut all {
                let there = subject.read(u64::from(round % 5) * 4096, BLOCK);
                assert!(there.iter().all(|byte| *byte == round), "{name}, round {round}");
            }
        }
    }
}

/// The queues of a device share its depth, and none can use up that of another.
#[test]
fn each_queue_has_its_part_of_the_depth() {
    for text in ["d=file:FOLDER/disk,size=1M,depth=8", "d=mem:1M,pages=4K,latency=1s,depth=8"] {
        let folder = tempfile::tempdir().unwrap();
        let spec: Spec = text.replace("FOLDER", &folder.path().display().to_string()).parse().unwrap();
        let all = queues(spec.open().unwrap(), 4).unwrap();
        let area = Area::new(BLOCK);
        for queue in all {
            assert_eq!(queue.depth(), 2, "{text}");
            let mut subject = Subject::new(queue, vec![]);
            for _ in 0..2 {
                subject.submit(Command::read(0, 0, &[area.segment(0, BLOCK)]), &area);
            }
            let segment = [area.segment(0, BLOCK)];
            let more = Command::read(0, 0, &segment).owner(area.clone());
            assert!(subject.device.submit(more).is_err(), "{text}");
        }
    }
}

/// A queue with nothing in flight does not become ready when another's command completes, so that its thread sleeps on.
#[test]
fn an_idle_queue_wakes_nobody() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let is_ready = |queue: &Subject, seconds: i64| {
        let mut polled = [PollFd::from_borrowed_fd(queue.device.descriptor().unwrap(), PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).unwrap() > 0
    };
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let device = File::passed(file.into(), &PassedOptions::default()).unwrap();
    let all = queues(Box::new(device), 2).unwrap();
    let mut all = all.into_iter().map(|queue| Subject::new(queue, vec![]));
    let (mut busy, mut idle) = (all.next().unwrap(), all.next().unwrap());
    // It had something in flight once, and slept.
    for round in 0..3 {
        let area = Area::new(BLOCK);
        for queue in [&mut idle, &mut busy] {
            queue.submit(Command::read(1, 0, &[area.segment(0, BLOCK)]), &area);
            if !queue.device.arm() {
                assert!(is_ready(queue, 20), "round {round}: nobody was woken");
            }
        }
        idle.finish();
        // The completion of the other queue may be with the device still, or with that queue.
        assert!(!is_ready(&idle, 0), "round {round}: an idle queue is ready");
        assert_eq!(busy.finish().len(), 1);
    }
}

/// A block that is read and written by all queues all the time is served to each of them.
#[test]
fn nobody_starves_at_a_block_that_all_use() {
    for (name, all, _folder) in devices() {
        let counts = on_each(all, |number, subject| {
            let area = Area::new(BLOCK);
            for round in 0..300u64 {
                for token in 0..4 {
                    let segment = [area.segment(0, BLOCK)];
                    match (number + token + round as usize) % 3 {
                        0 => subject.submit(Command::write(token as u64, 0, &segment), &area),
                        _ => subject.submit(Command::read(token as u64, 0, &segment), &area),
                    }
                }
                assert_eq!(subject.finish().len(), 4);
            }
            number
        });
        assert_eq!(counts, [0, 1, 2], "{name}");
    }
}

/// Chunks are replaced while other queues write and read them: nothing that was completed is lost.
#[test]
fn chunks_are_replaced_under_commands_of_other_queues() {
    let spec: Spec = "d=mem:4M,chunk=2M,pages=4K".parse().unwrap();
    let mut all = queues(spec.open().unwrap(), 2).unwrap();
    let other = Subject::new(all.pop().unwrap(), vec![]);
    let mut first: Box<dyn Device> = all.pop().unwrap();
    assert!(first.chunks().is_some() && other.device.chunks().is_none());
    thread::scope(|scope| {
        let mut other = other;
        let writing = scope.spawn(move || {
            for round in 0..3000u32 {
                let offset = u64::from(round % 1024) * 4096;
                other.write(offset, &[round as u8; BLOCK]);
                assert!(other.read(offset, BLOCK) == [round as u8; BLOCK], "round {round}");
            }
        });
        let mut number = 0;
        while !writing.is_finished() {
            first.chunks_mut().unwrap().reallocate(number % 2, ReplacedContents::Copied).unwrap();
            number += 1;
        }
        assert!(number > 0);
        writing.join().unwrap();
    });
}
