//! Transfers on a controller in software: prepared once, submitted many times, among other commands and in trouble.
//!
//! `BYWASH_STRESS_SEED` runs the random tests with that one seed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_device::testing::conformance::{Area, pattern};
use bywash_device::{Command, CommandError, Device, Operation, Region, RegionId};
use bywash_nvme::testing::{Model, ModelNamespace, ModelOptions};
use bywash_nvme::{Nvme, Options, TransferId};
use bywash_support::peers::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Size of the namespace, in bytes.
const BYTES: u64 = 1 << 20;
const PAGE: usize = 4096;

struct Rig {
    model: Model,
    device: Nvme<Model>,
    area: Arc<Area>,
    region: RegionId,
}

impl Rig {
    /// Makes a controller, and registers `pages` pages of memory.
    fn new(options: ModelOptions, queues: u16, pages: usize) -> Rig {
        let model = Model::new(options);
        let options = Options { queues, depth: 32, ..Options::default() };
        let mut device = Nvme::open(model.clone(), &options).unwrap();
        let area = Area::new(pages * PAGE);
        let region = register(&mut device, &area, pages * PAGE);
        Rig { model, device, area, region }
    }

    fn prepare(&mut self, operation: Operation, at: usize, bytes: usize) -> Option<TransferId> {
        self.device.prepare(operation, self.region, self.area.segment(at, bytes))
    }

    /// Waits for one completion, and lets time pass meanwhile.
    fn next(&mut self) -> (u64, Result<(), CommandError>) {
        for _ in 0..200_000 {
            if let Some(done) = self.device.reap_one() {
                return done;
            }
            self.model.advance(Duration::from_millis(1));
        }
        panic!("{} commands are stuck: {:?}", self.device.in_flight(), self.model);
    }
}

fn usual() -> ModelOptions {
    ModelOptions::new(ModelNamespace::new(1, BYTES / 512, 9))
}

fn register(device: &mut Nvme<Model>, area: &Arc<Area>, bytes: usize) -> RegionId {
    // SAFETY: the area owns its memory, and tests read and write it by copying only.
    let region = unsafe { Region::new(area.base(), bytes, area.clone()) };
    let pinned = Arc::new(region.pin(&*device.pinner().unwrap()).unwrap());
    device.register(&pinned).unwrap().expect("its own pinner has pinned it")
}

#[test]
fn a_transfer_is_submitted_again_and_again() {
    // Of one page, of two, and of as many as need a list; whole pages and parts.
    for (at, bytes) in [(0, 512), (0, PAGE), (512, PAGE), (0, 2 * PAGE), (1024, 5 * PAGE), (0, 16 * PAGE)] {
        let mut rig = Rig::new(usual(), 1, 40);
        let write = rig.prepare(Operation::Write, at, bytes).unwrap();
        let read = rig.prepare(Operation::Read, 20 * PAGE + at, bytes).unwrap();
        for turn in 0..100u64 {
            let offset = turn * 512 * 7;
            rig.area.put(at, &pattern(turn, bytes));
            assert!(rig.device.submit_transfer(write, turn, offset));
            assert_eq!(rig.next(), (turn, Ok(())));
            assert!(rig.device.submit_transfer(read, turn + 1000, offset));
            assert_eq!(rig.next(), (turn + 1000, Ok(())));
            assert!(rig.area.get(20 * PAGE + at, bytes) == pattern(turn, bytes), "{at} {bytes} {turn}");
        }
        assert_eq!((rig.device.stats().bytes_copied, rig.model.counts().faults), (0, 0));
        assert_eq!((rig.device.stats().commands, rig.device.in_flight()), (200, 0));
    }
}

#[test]
fn a_transfer_has_one_command_in_flight_and_is_released_afterwards() {
    let mut rig = Rig::new(usual(), 1, 4);
    let read = rig.prepare(Operation::Read, 0, PAGE).unwrap();
    rig.model.hold();
    assert!(rig.device.submit_transfer(read, 1, 0));
    assert!(!rig.device.submit_transfer(read, 2, 0) && !rig.device.release(read));
    assert_eq!(rig.device.in_flight(), 1);
    rig.model.release();
    assert_eq!(rig.next(), (1, Ok(())));
    assert!(rig.device.release(read) && !rig.device.release(read));
    assert!(!rig.device.submit_transfer(read, 3, 0));
    assert_eq!(rig.device.in_flight(), 0);
    // Every slot can be one of a transfer, and is free for others again.
    let depth = rig.device.depth();
    let all: Vec<_> = (0..depth).map(|_| rig.prepare(Operation::Read, 0, PAGE).unwrap()).collect();
    assert_eq!(rig.prepare(Operation::Read, 0, PAGE), None);
    let segments = [rig.area.segment(0, PAGE)];
    assert!(rig.device.submit(Command::read(0, 0, &segments).owner(rig.area.clone())).is_err());
    for transfer in all {
        assert!(rig.device.submit_transfer(transfer, 7, 0));
    }
    let mut done = 0;
    while done < depth {
        done +=
            rig.device.reap_each(|completion| assert_eq!((completion.token, completion.result), (7, Ok(()))));
    }
}

#[test]
fn offsets_and_memory_that_do_not_fit_are_refused() {
    let mut rig = Rig::new(usual(), 1, 4);
    let read = rig.prepare(Operation::Read, 0, PAGE).unwrap();
    for (offset, result) in [
        (BYTES - PAGE as u64, Ok(())),
        (BYTES - 512, Err(CommandError::OutOfRange)),
        (BYTES, Err(CommandError::OutOfRange)),
        (u64::MAX - 511, Err(CommandError::OutOfRange)),
        (256, Err(CommandError::Unaligned)),
        (0, Ok(())),
    ] {
        assert!(rig.device.submit_transfer(read, offset, offset));
        assert_eq!(rig.next(), (offset, result));
    }
    assert_eq!(rig.prepare(Operation::Read, 0, 100), None);
    assert_eq!(rig.prepare(Operation::Read, 0, 0), None);
    assert_eq!(rig.prepare(Operation::Read, 2, 512), None);
    assert_eq!(rig.prepare(Operation::Flush, 0, 512), None);
    assert_eq!(rig.prepare(Operation::CompareAndWrite, 0, 1024), None);
    let other = Area::new(PAGE);
    assert_eq!(rig.device.prepare(Operation::Read, rig.region, other.segment(0, 512)), None);
    let options = Options { read_only: true, ..Options::default() };
    let mut device = Nvme::open(Model::new(usual()), &options).unwrap();
    let region = register(&mut device, &rig.area, PAGE);
    assert_eq!(device.prepare(Operation::Write, region, rig.area.segment(0, 512)), None);
}

#[test]
fn a_transfer_outlives_the_registration_of_its_memory() {
    let mut rig = Rig::new(usual(), 1, 4);
    let read = rig.prepare(Operation::Read, 0, PAGE).unwrap();
    let other = Area::new(PAGE);
    let another = register(&mut rig.device, &other, PAGE);
    assert!(rig.device.submit_transfer(read, 1, 0));
    assert_eq!(rig.next(), (1, Ok(())));
    // Another region's end has it looked up again, and that of its own has it copied.
    rig.device.unregister(another);
    assert!(rig.device.submit_transfer(read, 2, 0));
    assert_eq!((rig.next(), rig.device.stats().bytes_copied), ((2, Ok(())), 0));
    rig.device.unregister(rig.region);
    assert!(rig.device.submit_transfer(read, 3, 0));
    assert_eq!((rig.next(), rig.device.stats().bytes_copied), ((3, Ok(())), PAGE as u64));
    assert_eq!(rig.model.counts().faults, 0);
}

#[test]
fn errors_and_a_removed_controller_are_told() {
    let mut rig = Rig::new(usual(), 1, 4);
    let read = rig.prepare(Operation::Read, 0, PAGE).unwrap();
    assert!(rig.device.submit_transfer(read, 1, 0));
    assert_eq!(rig.next(), (1, Ok(())));
    // Unrecovered Read Error.
    rig.model.fail(8..9, 2, 0x81, 1);
    assert!(rig.device.submit_transfer(read, 2, PAGE as u64));
    assert_eq!(rig.next(), (2, Err(CommandError::Io(libc::EIO))));
    assert!(rig.device.submit_transfer(read, 3, PAGE as u64));
    assert_eq!(rig.next(), (3, Ok(())));
    rig.model.hold();
    assert!(rig.device.submit_transfer(read, 4, 0));
    rig.model.remove();
    assert_eq!(rig.next(), (4, Err(CommandError::Io(libc::ENODEV))));
    assert!(rig.device.submit_transfer(read, 5, 0));
    assert_eq!(rig.next(), (5, Err(CommandError::Io(libc::ENODEV))));
    assert!(rig.device.release(read));
}

/// Resets count against a controller only if no command completes between them, whichever way it is reaped.
#[test]
fn a_controller_whose_reads_complete_between_resets_is_not_given_up() {
    let mut rig = Rig::new(usual(), 1, 4);
    let read = rig.prepare(Operation::Read, 0, PAGE).unwrap();
    for round in 0..10 {
        // Nothing is in flight while the controller is reset.
        rig.model.break_down();
        while rig.model.counts().resets == round {
            assert_eq!(rig.device.reap_one(), None);
            rig.model.advance(Duration::from_millis(5));
        }
        for _ in 0..1000 {
            assert_eq!(rig.device.reap_one(), None);
            rig.model.advance(Duration::from_millis(1));
        }
        for token in 0..3 {
            assert!(rig.device.submit_transfer(read, token, 0));
            assert_eq!(rig.next(), (token, Ok(())), "after reset {round}");
        }
    }
}

#[test]
fn random_transfers_with_one_pair_of_queues_survive_random_trouble() {
    survive_random_trouble("random_transfers_with_one", 1);
}

#[test]
fn random_transfers_with_two_pairs_of_queues_survive_random_trouble() {
    survive_random_trouble("random_transfers_with_two", 2);
}

/// Command in flight: its memory, and the contents that it is to find there if it reads.
struct InFlight {
    at: usize,
    transfer: Option<TransferId>,
    read: Option<Vec<u8>>,
}

/// Random transfers and commands of single blocks while the controller breaks down, loses commands and takes its time, compared with a
/// map: no command is lost or doubled, and they take effect in the order of their submission.
fn survive_random_trouble(test: &str, queues: u16) {
    let mut random = Random::seeded(test);
    let seed = random.0;
    let mut chance = |below| random.below(below);
    let options = ModelOptions { queue_entries_max: 64, shuffle: Some(seed), ..usual() };
    let mut rig = Rig::new(options, queues, 64);
    let mut idle: Vec<(TransferId, bool, usize)> = (0..16)
        .map(|index| {
            let (is_write, at) = (index % 3 == 0, index * PAGE);
            let operation = if is_write { Operation::Write } else { Operation::Read };
            (rig.prepare(operation, at, 512).unwrap(), is_write, at)
        })
        .collect();
    let mut free: Vec<usize> = (16..64).map(|page| page * PAGE).collect();
    let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
    let mut in_flight: BTreeMap<u64, InFlight> = BTreeMap::new();
    for token in 1..6000u64 {
        let block = chance(40);
        let before = expected.get(&block).map_or_else(|| vec![0; 512], |token| pattern(*token, 512));
        while rig.device.in_flight() + 16 >= rig.device.depth() || free.is_empty() {
            rig.model.release();
            let done = rig.next();
            finish(&rig, done, &mut in_flight, &mut idle, &mut free);
        }
        let (at, transfer, is_write) = if chance(4) > 0 && !idle.is_empty() {
            let (transfer, is_write, at) = idle.swap_remove(chance(idle.len() as u64) as usize);
            (at, Some(transfer), is_write)
        } else {
            (free.pop().unwrap(), None, chance(3) == 0)
        };
        if is_write {
            rig.area.put(at, &pattern(token, 512));
            expected.insert(block, token);
        }
        match transfer {
            Some(transfer) => assert!(rig.device.submit_transfer(transfer, token, block * 512)),
            None => {
                let segments = [rig.area.segment(at, 512)];
                let operation = if is_write { Operation::Write } else { Operation::Read };
                // Some go around most of the driver, as transfers do, and others do not.
                let region = (chance(2) == 0).then_some(rig.region);
                let command = Command::new(token, operation, block * 512, 0, &segments);
                rig.device.submit(command.region(region)).unwrap();
            }
        }
        in_flight.insert(token, InFlight { at, transfer, read: (!is_write).then_some(before) });
        match chance(600) {
            0 => rig.model.break_down(),
            1 => rig.model.swallow(1),
            2..6 => rig.model.hold(),
            6..60 => rig.model.release(),
            60..200 => {
                let mut all = Vec::new();
                rig.device.reap_each(|done| all.push((done.token, done.result)));
                for done in all {
                    finish(&rig, done, &mut in_flight, &mut idle, &mut free);
                }
            }
            200..500 => {
                if let Some(done) = rig.device.reap_one() {
                    finish(&rig, done, &mut in_flight, &mut idle, &mut free);
                }
            }
            _ => rig.model.advance(Duration::from_millis(chance(40))),
        }
        if chance(500) == 0 {
            // What was unregistered has all transfers looked up again.
            let area = Area::new(PAGE);
            let region = register(&mut rig.device, &area, PAGE);
            rig.device.unregister(region);
        }
    }
    rig.model.release();
    while rig.device.in_flight() > 0 {
        let done = rig.next();
        finish(&rig, done, &mut in_flight, &mut idle, &mut free);
    }
    assert!(in_flight.is_empty(), "commands were lost: {:?}", in_flight.keys());
    for (block, token) in expected {
        let at = block as usize * 512;
        assert!(rig.model.contents(1)[at..at + 512] == pattern(token, 512), "block {block}");
    }
    println!("{:?}, {:?}", rig.device.stats(), rig.model.counts());
    assert_eq!(rig.model.counts().faults, 0);
    assert!(idle.iter().all(|(transfer, ..)| rig.device.release(*transfer)));
}

fn finish(
    rig: &Rig,
    (token, result): (u64, Result<(), CommandError>),
    in_flight: &mut BTreeMap<u64, InFlight>,
    idle: &mut Vec<(TransferId, bool, usize)>,
    free: &mut Vec<usize>,
) {
    let InFlight { at, transfer, read } = in_flight.remove(&token).expect("completed once");
    assert_eq!(result, Ok(()), "command {token}");
    let is_write = read.is_none();
    if let Some(read) = read {
        assert!(rig.area.get(at, 512) == read, "command {token}");
    }
    match transfer {
        Some(transfer) => idle.push((transfer, is_write, at)),
        None => free.push(at),
    }
}
