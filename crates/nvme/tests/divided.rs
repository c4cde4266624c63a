//! A controller in software whose pairs of queues belong to several threads: each has a device, and one's trouble is everybody's.
//!
//! `BYWASH_STRESS_SEED` runs the random test with that one seed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_device::testing::conformance::{Area, CASES, Subject, pattern};
use bywash_device::{Command, CommandError, Device, RegionId, queues};
use bywash_nvme::testing::{Model, ModelNamespace, ModelOptions};
use bywash_nvme::{Nvme, Options};
use bywash_support::peers::Random;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// Size of the namespace, in bytes.
const BYTES: u64 = 1 << 20;
/// Greatest time that something takes.
const LIMIT: Duration = Duration::from_secs(60);

fn usual() -> ModelOptions {
    ModelOptions::new(ModelNamespace::new(1, BYTES / 512, 9))
}

fn divide(model: &Model, options: &Options, count: usize) -> Vec<Box<dyn Device>> {
    let device = Nvme::open(model.clone(), options).unwrap();
    queues(Box::new(device), count).unwrap()
}

fn register(device: &mut dyn Device, area: &Arc<Area>, bytes: usize) -> Option<RegionId> {
    // SAFETY: the area owns its memory, and tests read and write it by copying only.
    let region = unsafe { bywash_device::Region::new(area.base(), bytes, area.clone()) };
    device.register(&Arc::new(region.pin(&*device.pinner().unwrap()).unwrap())).unwrap()
}

/// Reaps until a command has completed.
fn next(device: &mut dyn Device) -> (u64, Result<(), CommandError>) {
    let end = Instant::now() + LIMIT;
    let mut done = None;
    while done.is_none() {
        device.reap(&mut |completion| done = Some((completion.token, completion.result)));
        assert!(Instant::now() < end, "nothing completes: {}", device.description());
    }
    done.unwrap()
}

fn carry_out(
    device: &mut dyn Device,
    area: &Arc<Area>,
    offset: u64,
    write: bool,
) -> Result<(), CommandError> {
    let segments = [area.segment(0, 512)];
    let command =
        if write { Command::write(1, offset, &segments) } else { Command::read(1, offset, &segments) };
    device.submit(command.owner(area.clone())).unwrap();
    next(device).1
}

#[test]
fn each_queue_has_a_pair_of_its_own_and_a_part_of_the_depth() {
    let model = Model::new(usual());
    let all = divide(&model, &Options { depth: 32, ..Options::default() }, 4);
    assert_eq!(all.len(), 4);
    for device in &all {
        assert_eq!(device.depth(), 8);
        assert!(
            device.description().contains("a pair of queues for each thread"),
            "{}",
            device.description()
        );
        assert!(device.descriptor().is_some());
    }
    drop(all);
    assert_eq!((model.counts().shutdowns, model.mapped_bytes()), (1, 0));
}

#[test]
fn each_queue_passes_the_conformance_suite() {
    for (name, case) in CASES {
        println!("{name}");
        let model = Model::new(ModelOptions { shuffle: Some(9), ..usual() });
        let mut all = divide(&model, &Options { depth: 128, ..Options::default() }, 2);
        let (other, device) = (all.pop().unwrap(), all.pop().unwrap());
        case(Subject::new(device, vec![]));
        drop(other);
    }
}

#[test]
fn a_controller_with_too_few_queues_or_interrupts_is_used_in_turns() {
    for (queues_max, count, interrupts) in [(2, 4, true), (64, 16, true), (2, 3, false)] {
        let model = Model::new(ModelOptions { queues_max, ..usual() });
        let mut all = divide(&model, &Options { interrupts, ..Options::default() }, count);
        assert_eq!(all.len(), count);
        for (number, device) in all.iter_mut().enumerate() {
            assert!(device.description().contains("share under a lock"), "{}", device.description());
            let area = Area::holding(&pattern(number as u64, 512));
            carry_out(&mut **device, &area, 512 * number as u64, true).unwrap();
        }
        assert!(model.contents(1)[..512] == pattern(0, 512));
    }
}

#[test]
fn a_queue_with_nothing_in_flight_does_not_hold_up_the_reset_of_another() {
    let model = Model::new(usual());
    let timeout = Duration::from_millis(100);
    let options = Options { timeout, abort_timeout: timeout, ..Options::default() };
    let mut all = divide(&model, &options, 3);
    let (idle, rest) = all.split_first_mut().unwrap();
    let area = Area::holding(&pattern(1, 512));
    carry_out(&mut **idle, &area, 0, true).unwrap();
    for device in &mut *rest {
        carry_out(&mut **device, &area, 512, true).unwrap();
    }
    for round in 0..3 {
        model.swallow(1);
        model.ignore_aborts();
        let segments = [area.segment(0, 512)];
        rest[0].submit(Command::write(7, 1024, &segments).owner(area.clone())).unwrap();
        let end = Instant::now() + LIMIT;
        let mut done = 0;
        while done == 0 {
            done = rest[0]
                .reap(&mut |completion| assert_eq!((completion.token, completion.result), (7, Ok(()))));
            model.advance(Duration::from_millis(5));
            assert!(Instant::now() < end, "{}", rest[0].description());
        }
        assert_eq!(model.counts().resets, round + 2, "one is that by which the queues were divided");
    }
    // The others find the controller as it is now.
    let read = Area::new(512);
    carry_out(&mut **idle, &read, 1024, false).unwrap();
    assert!(read.get(0, 512) == pattern(1, 512));
    carry_out(&mut *rest[1], &read, 0, false).unwrap();
    assert!(read.get(0, 512) == pattern(1, 512));
}

#[test]
fn a_reset_waits_for_each_queue_with_commands_in_flight() {
    let model = Model::new(usual());
    let mut all = divide(&model, &Options::default(), 3);
    let area = Area::holding(&pattern(1, 512));
    let segments = [area.segment(0, 512)];
    model.hold();
    for (device, offset) in all.iter_mut().zip([0, 512]) {
        device.submit(Command::write(offset, offset, &segments).owner(area.clone())).unwrap();
    }
    let before = model.counts().resets;
    model.break_down();
    let mut reap = |number: usize| {
        for _ in 0..1000 {
            all[number].reap(&mut |_| panic!("the controller is broken"));
            model.advance(Duration::from_millis(1));
        }
    };
    reap(0);
    assert_eq!(model.counts().resets, before, "the second queue's thread may write a doorbell");
    reap(1);
    assert_eq!(model.counts().resets, before + 1);
    model.release();
    let end = Instant::now() + LIMIT;
    let mut done = 0;
    while done < 2 {
        for device in &mut all[..2] {
            done += device.reap(&mut |completion| assert_eq!(completion.result, Ok(())));
        }
        model.advance(Duration::from_millis(5));
        assert!(Instant::now() < end, "commands were lost");
    }
}

#[test]
fn a_reset_gives_the_controller_up_when_a_thread_is_stuck() {
    let model = Model::new(usual());
    let mut all = divide(&model, &Options::default(), 2);
    let area = Area::holding(&pattern(1, 512));
    let segments = [area.segment(0, 512)];
    model.hold();
    for device in &mut all {
        device.submit(Command::write(1, 0, &segments).owner(area.clone())).unwrap();
    }
    model.break_down();
    let mut results = Vec::new();
    for _ in 0..2000 {
        all[0].reap(&mut |completion| results.push(completion.result));
        model.advance(Duration::from_millis(10));
    }
    assert_eq!(results.len(), 1);
    assert!(results[0].is_err() && model.is_cut_off(), "{results:?}");
    assert!(all[0].description().contains("be left alone for a reset"), "{}", all[0].description());
    assert!(next(&mut *all[1]).1.is_err());
}

#[test]
fn a_thread_that_sleeps_is_woken_by_a_reset() {
    let model = Model::new(usual());
    let mut all = divide(&model, &Options::default(), 2);
    let area = Area::holding(&pattern(1, 512));
    let segments = [area.segment(0, 512)];
    model.hold();
    for (device, offset) in all.iter_mut().zip([0, 512]) {
        device.submit(Command::write(offset, offset, &segments).owner(area.clone())).unwrap();
        device.reap(&mut |_| panic!("it is held"));
    }
    assert!(!all[1].arm());
    model.break_down();
    let is_readable = |device: &dyn Device| {
        let descriptor = device.descriptor().unwrap();
        poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
            .unwrap()
            == 1
    };
    assert!(!is_readable(&*all[1]));
    let end = Instant::now() + LIMIT;
    while !is_readable(&*all[1]) {
        all[0].reap(&mut |_| panic!("the controller is broken"));
        model.advance(Duration::from_millis(5));
        assert!(Instant::now() < end, "nobody was woken");
    }
    model.release();
    let mut done = 0;
    while done < 2 {
        for device in &mut all {
            done += device.reap(&mut |completion| assert_eq!(completion.result, Ok(())));
        }
        model.advance(Duration::from_millis(5));
        assert!(Instant::now() < end, "commands were lost");
    }
}

#[test]
fn a_removed_controller_fails_the_commands_of_all() {
    let model = Model::new(usual());
    let mut all = divide(&model, &Options::default(), 3);
    let area = Area::new(512);
    let segments = [area.segment(0, 512)];
    model.hold();
    for device in &mut all {
        device.submit(Command::read(3, 0, &segments).owner(area.clone())).unwrap();
    }
    model.remove();
    for device in &mut all {
        let end = Instant::now() + LIMIT;
        let mut done = 0;
        while done == 0 {
            done = device.reap(&mut |done| assert_eq!(done.result, Err(CommandError::Io(libc::ENODEV))));
            model.advance(Duration::from_millis(1));
            assert!(Instant::now() < end, "{}", device.description());
        }
        assert_eq!(carry_out(&mut **device, &area, 0, false), Err(CommandError::Io(libc::ENODEV)));
    }
}

#[test]
fn what_a_dropped_queue_leaves_does_not_hold_up_the_others() {
    let model = Model::new(usual());
    let mut all = divide(&model, &Options::default(), 3);
    let area = Area::holding(&pattern(1, 512));
    let segments = [area.segment(0, 512)];
    model.swallow(1);
    let mut dropped = all.remove(1);
    dropped.submit(Command::read(1, 0, &segments).owner(area.clone())).unwrap();
    dropped.reap(&mut |_| panic!("it was swallowed"));
    let clock = model.clone();
    let ticking = thread::spawn(move || {
        for _ in 0..1000 {
            clock.advance(Duration::from_millis(10));
            thread::yield_now();
        }
    });
    drop(dropped);
    ticking.join().unwrap();
    model.break_down();
    for device in &mut all {
        carry_out(&mut **device, &area, 512, true).unwrap();
    }
    assert!(Arc::strong_count(&area) > 1, "memory that the controller may write to is kept");
    drop(all);
    assert_eq!(model.counts().faults, 0);
}

/// Each of several commands that wait for claims of other devices is tried again, not the first one alone.
#[test]
fn of_several_commands_that_wait_for_others_each_is_tried() {
    let model = Model::new(usual());
    let mut all = divide(&model, &Options::default(), 2);
    let (one, other) = all.split_at_mut(1);
    let (one, other) = (&mut *one[0], &mut *other[0]);
    let (area, two) = (Area::new(4096), Area::new(4096));
    let (block, blocks) = ([area.segment(0, 512)], [two.segment(0, 1024)]);
    model.hold();
    // Writes keep three comparisons of the other device away; the one that comes first is that of the second.
    for token in 0..3u64 {
        one.submit(Command::write(token, token * 4096, &block).owner(area.clone())).unwrap();
    }
    one.reap(&mut |_| panic!("it is held"));
    for token in [1, 0, 2u64] {
        let command = Command::compare_and_write(token, token * 4096, &blocks);
        other.submit(command.owner(two.clone())).unwrap();
    }
    other.reap(&mut |_| panic!("its range is in use"));
    assert_eq!(model.in_flight(), 3);
    model.release_some(1);
    assert_eq!(one.reap(&mut |completion| assert_eq!(completion.token, 0)), 1);
    for _ in 0..10 {
        other.reap(&mut |_| panic!("it is held"));
    }
    assert_eq!(model.in_flight(), 3, "the second comparison is under way");
    model.release();
    let mut done = 0;
    for _ in 0..20 {
        one.reap(&mut |completion| assert_eq!(completion.result, Ok(())));
        done += other.reap(&mut |completion| assert_eq!(completion.result, Ok(())));
    }
    assert_eq!(done, 3);
}

/// Threads add to one number by compare-and-write, and write the blocks beside it, by commands that go the short way, while the controller
/// breaks down: no addition is lost.
#[test]
fn compare_and_write_is_atomic_for_all_threads() {
    const ADDITIONS: u64 = 1000;
    for compare in [true, false] {
        let model = Model::new(ModelOptions { compare, ..usual() });
        let all = divide(&model, &Options::default(), 3);
        let (running, start) = (AtomicU32::new(3), Barrier::new(3));
        thread::scope(|scope| {
            for (number, mut device) in all.into_iter().enumerate() {
                let (running, start) = (&running, &start);
                scope.spawn(move || {
                    let _ending = Ending(running);
                    start.wait();
                    let (two, other) = (Area::new(4096), Area::holding(&pattern(number as u64, 4096)));
                    let region = register(&mut *device, &other, 4096);
                    let mut added = 0;
                    while added < ADDITIONS {
                        // A block of the same unit, whose writes share the claim.
                        let segments = [other.segment(0, 512)];
                        let command = Command::write(9, 512 * (number as u64 + 1), &segments).region(region);
                        device.submit(command).unwrap();
                        assert_eq!(next(&mut *device), (9, Ok(())));
                        assert_eq!(carry_out(&mut *device, &two, 0, false), Ok(()));
                        let before = two.get(0, 512);
                        let mut after = before.clone();
                        let value = u64::from_ne_bytes(before[..8].try_into().unwrap());
                        after[..8].copy_from_slice(&(value + 1).to_ne_bytes());
                        two.put(0, &[before, after].concat());
                        let segments = [two.segment(0, 1024)];
                        device
                            .submit(Command::compare_and_write(7, 0, &segments).owner(two.clone()))
                            .unwrap();
                        match next(&mut *device) {
                            (7, Ok(())) => added += 1,
                            (7, Err(error)) => assert_eq!(error, CommandError::Mismatch),
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
            let (model, running) = (&model, &running);
            scope.spawn(move || {
                let mut troubled = 0;
                while running.load(Ordering::Relaxed) > 0 {
                    let completed = model.counts().completed;
                    if completed > troubled + 400 {
                        model.break_down();
                        troubled = completed;
                    }
                    model.advance(Duration::from_millis(3));
                    thread::sleep(Duration::from_micros(100));
                }
            });
        });
        let value = u64::from_ne_bytes(model.contents(1)[..8].try_into().unwrap());
        println!("{:?}", model.counts());
        assert_eq!(value, 3 * ADDITIONS);
    }
}

/// Threads with a queue each write and read blocks of their own, in registered memory and in other memory, while the controller breaks down,
/// loses commands and fails to abort them: no command is lost or doubled, and each block has what was last written to it.
#[test]
fn random_commands_of_several_threads_survive_random_trouble() {
    let seed = Random::seeded("random_commands_of_several_threads").0;
    let threads = 3;
    let timeout = Duration::from_millis(500);
    let model = Model::new(ModelOptions { queue_entries_max: 16, shuffle: Some(seed), ..usual() });
    let options = Options { depth: 24, timeout, abort_timeout: timeout, ..Options::default() };
    let all = divide(&model, &options, threads);
    let (running, is_over) = (AtomicU32::new(threads as u32), AtomicBool::new(false));
    thread::scope(|scope| {
        for (number, device) in all.into_iter().enumerate() {
            let running = &running;
            scope.spawn(move || {
                let _ending = Ending(running);
                work(device, seed ^ (number as u64 + 1) << 40, number as u64 * 64);
            });
        }
        let (model, running, is_over) = (&model, &running, &is_over);
        scope.spawn(move || {
            let (mut random, mut troubled) = (Random(seed), 0);
            let mut chance = |below| random.below(below);
            while running.load(Ordering::Relaxed) > 0 {
                // A command that is repeated four times fails, so some have to complete in between.
                let completed = model.counts().completed;
                match chance(60) {
                    0 if completed > troubled + 200 => {
                        model.break_down();
                        troubled = completed;
                    }
                    1..3 if completed > troubled + 200 => {
                        model.swallow(1);
                        troubled = completed;
                    }
                    _ => model.advance(Duration::from_millis(chance(20))),
                }
                thread::sleep(Duration::from_micros(chance(300)));
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
    assert!(is_over.load(Ordering::Relaxed));
    println!("{:?}", model.counts());
    assert_eq!(model.counts().doorbells_while_stopped, 0);
    assert_eq!((model.counts().faults, model.counts().shutdowns, model.mapped_bytes()), (0, 1, 0));
}

/// Counts a thread down when it ends, however that is.
struct Ending<'a>(&'a AtomicU32);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory of a command in flight, what it is to find there if it reads, and the registered region.
type InFlight = (Arc<Area>, Option<Vec<u8>>, Option<RegionId>);

/// Writes and reads the 64 blocks from `first` on.
fn work(mut device: Box<dyn Device>, seed: u64, first: u64) {
    let mut random = Random(seed);
    let mut chance = |below| random.below(below);
    let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
    let mut in_flight: BTreeMap<u64, InFlight> = BTreeMap::new();
    let end = Instant::now() + LIMIT;
    let mut token = seed << 20;
    for step in 0..3000 {
        if device.in_flight() == device.depth() || step == 2999 {
            let most = if step == 2999 { 0 } else { device.depth() - 1 };
            finish(&mut *device, &mut in_flight, most, end);
        }
        if step == 2999 {
            break;
        }
        token += 1;
        let (block, is_write, area) = (first + chance(64), chance(2) == 0, Area::new(4096));
        let before = expected.get(&block).map_or_else(|| vec![0; 512], |token| pattern(*token, 512));
        if is_write {
            area.put(0, &pattern(token, 512));
            expected.insert(block, token);
        }
        let region = (chance(3) > 0).then(|| register(&mut *device, &area, 4096)).flatten();
        let segments = [area.segment(0, 512)];
        let command = match is_write {
            true => Command::write(token, block * 512, &segments),
            false => Command::read(token, block * 512, &segments),
        };
        device.submit(command.owner(area.clone()).region(region)).unwrap();
        in_flight.insert(token, (area, (!is_write).then_some(before), region));
        if chance(50) == 0 {
            device.arm();
        }
        if chance(30) == 0 {
            // Nothing is in flight for a while.
            finish(&mut *device, &mut in_flight, 0, end);
            thread::sleep(Duration::from_micros(chance(500)));
        }
    }
    assert!(in_flight.is_empty(), "commands were lost: {:?}", in_flight.keys());
    for (block, token) in expected {
        let area = Area::new(512);
        carry_out(&mut *device, &area, block * 512, false).unwrap();
        assert!(area.get(0, 512) == pattern(token, 512), "block {block}");
    }
}

/// Reaps until at most `most` commands are in flight.
fn finish(device: &mut dyn Device, in_flight: &mut BTreeMap<u64, InFlight>, most: usize, end: Instant) {
    while device.in_flight() > most {
        let mut ended = Vec::new();
        device.reap(&mut |done| {
            let (area, read, region) = in_flight.remove(&done.token).expect("completed once");
            assert_eq!(done.result, Ok(()), "command {}", done.token);
            if let Some(read) = read {
                assert!(area.get(0, 512) == read, "command {}", done.token);
            }
            ended.extend(region);
        });
        ended.into_iter().for_each(|region| device.unregister(region));
        assert!(Instant::now() < end, "commands are stuck: {}", device.description());
        thread::yield_now();
    }
}
