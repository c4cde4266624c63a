//! Contents of a device after a crash: the rules of durability, tested on a device that makes use of all they
//! allow.
//!
//! A crash may lose any write that is not durable, any of its blocks, and an earlier write while a later one
//! survives. It may not lose what was flushed or written durably, tear a block, or restore contents that a
//! durable write has replaced. `BYWASH_DEVICE_SEED` runs that one seed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_device::testing::{Crash, Fault, FaultEffect, Faulty};
use bywash_device::{Command, CommandError, Device, Memory, MemoryOptions, Operation, Segment, Spec};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BLOCK: usize = 512;
const BLOCKS: u64 = 16;
/// Greatest length of a command, in blocks.
const LONGEST: u64 = 4;

/// Memory of a command: blocks, each of which has the same number in all its words.
struct Blocks(Vec<std::sync::atomic::AtomicU64>);

const WORDS: usize = BLOCK / 8;

impl Blocks {
    fn numbered(numbers: &[u64]) -> Arc<Blocks> {
        let words = numbers.iter().flat_map(|number| [*number; WORDS]);
        Arc::new(Blocks(words.map(Into::into).collect()))
    }

    fn segment(self: &Arc<Blocks>) -> Segment {
        // SAFETY: atomics, which may be written at any time; every command here owns its blocks.
        unsafe { Segment::new(self.0.as_ptr().cast_mut().cast(), self.0.len() * 8) }
    }

    /// Returns the number of each block. Panics if a block is torn.
    fn numbers(&self) -> Vec<u64> {
        let words: Vec<u64> =
            self.0.iter().map(|word| word.load(std::sync::atomic::Ordering::Relaxed)).collect();
        let whole = |block: &[u64]| {
            assert!(block.iter().all(|word| *word == block[0]), "a torn block");
            block[0]
        };
        words.chunks(WORDS).map(whole).collect()
    }
}

fn finish(device: &mut impl Device) -> Vec<(u64, Result<(), CommandError>)> {
    let (mut all, end) = (Vec::new(), Instant::now() + Duration::from_secs(60));
    while device.in_flight() > 0 {
        device.reap(&mut |done| all.push((done.token, done.result)));
        assert!(Instant::now() < end, "stuck");
    }
    all
}

fn write(device: &mut impl Device, token: u64, block: u64, numbers: &[u64]) {
    let blocks = Blocks::numbered(numbers);
    let (offset, segment) = (block * BLOCK as u64, [blocks.segment()]);
    assert!(device.submit(Command::write(token, offset, &segment).owner(blocks.clone())).is_ok());
}

fn read(device: &mut impl Device) -> Vec<u64> {
    let blocks = Blocks::numbered(&[7; BLOCKS as usize]);
    assert!(device.submit(Command::read(0, 0, &[blocks.segment()]).owner(blocks.clone())).is_ok());
    assert_eq!(finish(device), [(0, Ok(()))]);
    blocks.numbers()
}

fn memory() -> Memory {
    Memory::new(MemoryOptions::new(BLOCKS * BLOCK as u64)).unwrap()
}

/// Contents that a block may have after a crash, by a model independent of the device: the durable number,
/// and the numbers of the later writes in order, each with the time of its completion.
#[derive(Clone, Default)]
struct Possible {
    durable: u64,
    since: Vec<(u64, Option<u64>)>,
}

impl Possible {
    fn settle(&mut self, last: Option<usize>) {
        if let Some(last) = last {
            self.durable = self.since[last].0;
            self.since.drain(..=last);
        }
    }
}

enum Submitted {
    Write { block: u64, count: u64, durable: bool },
    Flush { at: u64 },
}

/// Model of the device: the commands in flight, and the possible contents of each block.
struct Model {
    blocks: Vec<Possible>,
    submitted: HashMap<u64, Submitted>,
    clock: u64,
}

impl Model {
    fn done(&mut self, token: u64) {
        self.clock += 1;
        match self.submitted.remove(&token).unwrap() {
            Submitted::Flush { at } => self.blocks.iter_mut().for_each(|block| {
                block.settle(block.since.iter().rposition(|(_, done)| done.is_some_and(|done| done <= at)));
            }),
            Submitted::Write { block, count, durable } => {
                for block in &mut self.blocks[block as usize..(block + count) as usize] {
                    match block.since.iter().position(|(number, _)| *number == token) {
                        Some(own) if durable => block.settle(Some(own)),
                        Some(own) => block.since[own].1 = Some(self.clock),
                        // The write was replaced by a later one that is durable.
                        None => {}
                    }
                }
            }
        }
    }
}

/// Makes random writes and flushes, crashes at a random time, and checks the contents.
fn run_and_crash<D: Device>(inner: D, seed: u64, crash: Crash) {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let mut below = move |most: u64| chance.next_u64() % most;
    let mut device = Faulty::over(inner, seed);
    let blocks = vec![Possible::default(); BLOCKS as usize];
    let mut model = Model { blocks, submitted: HashMap::new(), clock: 0 };
    for token in 1..=below(150) {
        let submitted = if below(8) == 0 {
            assert!(device.submit(Command::flush(token)).is_ok());
            Submitted::Flush { at: model.clock }
        } else {
            let count = 1 + below(LONGEST);
            let (block, durable) = (below(BLOCKS - count + 1), below(6) == 0);
            let blocks = Blocks::numbered(&vec![token; count as usize]);
            let (offset, segment) = (block * BLOCK as u64, [blocks.segment()]);
            let command = if durable { Command::write_durable } else { Command::write };
            assert!(device.submit(command(token, offset, &segment).owner(blocks.clone())).is_ok());
            (block..block + count).for_each(|at| model.blocks[at as usize].since.push((token, None)));
            Submitted::Write { block, count, durable }
        };
        model.submitted.insert(token, submitted);
        let mut polls = below(3) == 0;
        while polls {
            device.reap(&mut |done| {
                assert_eq!(done.result, Ok(()));
                model.done(done.token);
            });
            polls = device.in_flight() == device.depth();
        }
        if device.in_flight() == device.depth() {
            break;
        }
    }
    let mut after = device.crash(crash);
    for (at, (number, block)) in read(&mut after).into_iter().zip(model.blocks).enumerate() {
        let is_since = block.since.iter().any(|(since, _)| *since == number);
        assert!(
            number == block.durable || is_since,
            "block {at} has {number}; durable is {}, and {:?} since\nagain: BYWASH_DEVICE_SEED={seed} cargo test \
             -p bywash-device --features testing --test crash ({crash:?})",
            block.durable,
            block.since
        );
    }
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let given: Option<u64> = std::env::var("BYWASH_DEVICE_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = given.unwrap_or(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    println!("seeds from {first} on");
    first..first + if given.is_some() { 1 } else { count }
}

#[test]
fn what_is_durable_survives() {
    for seed in seeds(300) {
        for crash in [Crash::Lose, Crash::Keep, Crash::Prefix, Crash::Any] {
            run_and_crash(memory(), seed, crash);
        }
    }
}

#[test]
fn what_is_durable_survives_on_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for seed in seeds(10) {
        let path = folder.path().join(seed.to_string());
        let spec = format!("f=file:{},size={}", path.display(), BLOCKS * BLOCK as u64);
        run_and_crash(spec.parse::<Spec>().unwrap().open().unwrap(), seed, Crash::Any);
    }
}

#[test]
fn what_is_not_durable_is_lost_or_kept_as_told() {
    for (crash, expected) in [(Crash::Lose, [1, 1]), (Crash::Keep, [2, 2])] {
        let mut device = Faulty::over(memory(), 1);
        write(&mut device, 1, 0, &[1, 1]);
        finish(&mut device);
        assert!(device.submit(Command::flush(2)).is_ok());
        finish(&mut device);
        write(&mut device, 3, 0, &[2, 2]);
        finish(&mut device);
        assert_eq!(read(&mut device)[..2], [2, 2]);
        assert_eq!(read(&mut device.crash(crash))[..2], expected);
    }
}

#[test]
fn writes_are_torn_and_reordered_as_well() {
    let (mut torn, mut reordered, mut in_order) = (0, 0, 0);
    for seed in 0..100 {
        let mut device = Faulty::over(memory(), seed);
        write(&mut device, 1, 0, &[1, 1, 1, 1]);
        write(&mut device, 2, 8, &[2, 2, 2, 2]);
        finish(&mut device);
        let after = read(&mut device.crash(Crash::Any));
        let count = |number| after.iter().filter(|there| **there == number).count();
        torn += usize::from((1..4).contains(&count(1)));
        reordered += usize::from(count(1) < 4 && count(2) > 0);

        let mut device = Faulty::over(memory(), seed);
        write(&mut device, 1, 0, &[1, 1, 1, 1]);
        write(&mut device, 2, 8, &[2, 2, 2, 2]);
        finish(&mut device);
        let after = read(&mut device.crash(Crash::Prefix));
        let count = |number| after.iter().filter(|there| **there == number).count();
        assert!(count(2) == 0 || count(1) == 4, "{after:?}");
        in_order += usize::from(count(1) == 4 && (1..4).contains(&count(2)));
    }
    assert!(torn > 50 && reordered > 50 && in_order > 10, "{torn} {reordered} {in_order}");
}

#[test]
fn a_flush_covers_what_was_done_before_it_and_nothing_else() {
    let mut device = Faulty::over(memory(), 1);
    write(&mut device, 1, 0, &[1]);
    finish(&mut device);
    write(&mut device, 2, 1, &[2]);
    // The flush is submitted while the second write is in flight.
    assert!(device.submit(Command::flush(3)).is_ok());
    write(&mut device, 4, 2, &[4]);
    finish(&mut device);
    assert_eq!(read(&mut device.crash(Crash::Lose))[..3], [1, 0, 0]);
}

#[test]
fn a_flush_that_fails_covers_nothing() {
    let mut device = Faulty::over(memory(), 1);
    let what = FaultEffect::Fail(libc_eio());
    device.inject(Fault { operation: Some(Operation::Flush), range: 0..0, skip: 0, times: 1, what });
    write(&mut device, 1, 0, &[1]);
    finish(&mut device);
    assert!(device.submit(Command::flush(2)).is_ok());
    assert_eq!(finish(&mut device), [(2, Err(CommandError::Io(libc_eio())))]);
    assert_eq!(read(&mut device.crash(Crash::Lose))[0], 0);
}

fn libc_eio() -> i32 {
    rustix::io::Errno::IO.raw_os_error()
}

#[test]
fn commands_fail_where_they_are_told_to_and_nowhere_else() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let mut device = Faulty::over(memory(), seed);
        let range = 4 * BLOCK as u64..5 * BLOCK as u64;
        let what = FaultEffect::Fail(libc_eio());
        device.inject(Fault { operation: Some(Operation::Write), range, skip: 1, times: 1, what });
        for (token, block) in [(1, 2), (2, 5), (3, 1), (4, 3)] {
            write(&mut device, token, block, &[token; 4]);
        }
        let mut done = finish(&mut device);
        done.sort_by_key(|(token, _)| *token);
        let failed = Err(CommandError::Io(libc_eio()));
        assert_eq!(done, [(1, Ok(())), (2, Ok(())), (3, failed), (4, Ok(()))]);
        // The third write has written `written` of its blocks, from the first on.
        let after = read(&mut device);
        let written = after[1..3].iter().take_while(|number| **number == 3).count();
        assert_eq!(after[1..3][written..], [0, 1][written..]);
        assert_eq!(after[3..9], [4, 4, 4, 4, 2, 2]);
        lengths.insert(written);
    }
    assert_eq!(lengths.len(), 3);
}

#[test]
fn what_is_delayed_or_held_comes_later() {
    let mut device = Faulty::over(memory(), 1);
    let delay = Duration::from_millis(30);
    for (block, what) in [(0, FaultEffect::Delay(delay)), (1, FaultEffect::Hold)] {
        let range = block * BLOCK as u64..(block + 1) * BLOCK as u64;
        device.inject(Fault { operation: None, range, skip: 0, times: 1, what });
    }
    let begun = Instant::now();
    for block in 0..3 {
        write(&mut device, block, block, &[9]);
    }
    let mut done = Vec::new();
    while done.len() < 2 {
        assert!(device.arm() || done.is_empty());
        device.reap(&mut |command| done.push((command.token, begun.elapsed())));
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    assert_eq!((done[0].0, done[1].0), (2, 0));
    assert!(done[1].1 >= delay);
    assert_eq!((device.reap(&mut |_| {}), device.in_flight()), (0, 1));
    device.release();
    assert_eq!(finish(&mut device), [(1, Ok(()))]);
    assert_eq!(read(&mut device)[..3], [9, 9, 9]);
}
