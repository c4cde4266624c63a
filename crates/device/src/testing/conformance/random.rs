//! Random commands, many in flight, compared with a model: bytes in memory that each command changes when it
//! is submitted.

use super::subject::{Area, Subject};
use crate::{Command, CommandError, SEGMENTS_MAX, Segment};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::Arc;

/// Number of commands in a run.
const COMMANDS: u64 = 1500;

struct Model {
    bytes: Vec<u8>,
    /// For each block, true if the block was discarded and may read as zeros.
    discarded: Vec<bool>,
}

struct Chance(ChaCha8Rng);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0.next_u64() % most
    }
}

/// Expected result of a command in flight.
struct Expected {
    result: Result<(), CommandError>,
    read: Option<Read>,
    area: Arc<Area>,
}

/// Expected data of a read.
struct Read {
    pieces: Vec<(usize, usize)>,
    bytes: Vec<u8>,
    /// For each block of the read, true if it was discarded.
    discarded: Vec<bool>,
}

pub fn commands_do_what_a_model_does(subject: Subject) {
    let given = std::env::var("BYWASH_DEVICE_SEED").ok().and_then(|seed| seed.parse().ok());
    let clock = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let seed: u64 = given.unwrap_or(clock.as_nanos() as u64);
    println!("again: BYWASH_DEVICE_SEED={seed} cargo test -p bywash-device --test conformance random");
    run(subject, Chance(ChaCha8Rng::seed_from_u64(seed)));
}

fn run(mut subject: Subject, mut chance: Chance) {
    let block = subject.block();
    let blocks = subject.bytes() as usize / block;
    let mut model = Model { bytes: vec![0; subject.bytes() as usize], discarded: vec![false; blocks] };
    let mut in_flight: HashMap<u64, Expected> = HashMap::new();
    for token in 0..COMMANDS {
        // Mostly few blocks, and half of the time around the seam, so that commands overlap.
        let most = if chance.below(10) == 0 { 200.min(blocks as u64 / 2) } else { 8 };
        let count = 1 + chance.below(most) as usize;
        let near = (subject.seam as usize / block).saturating_sub(16);
        let (from, places) = if chance.below(2) == 0 { (near, 32) } else { (0, blocks - count + 1) };
        let first = from + chance.below(places as u64) as usize;
        let (offset, bytes) = ((first * block) as u64, count * block);
        let range = first * block..first * block + bytes;
        let area = Area::new(bytes + 2 * block + 1024 * SEGMENTS_MAX);
        let pieces = cut(&mut chance, bytes);
        let segments: Vec<Segment> = pieces.iter().map(|(at, length)| area.segment(*at, *length)).collect();
        let mut expected = Expected { result: Ok(()), read: None, area: area.clone() };
        let command = match chance.below(20) {
            0..7 => {
                let discarded = model.discarded[first..first + count].to_vec();
                expected.read = Some(Read { pieces, bytes: model.bytes[range].to_vec(), discarded });
                Command::read(token, offset, &segments)
            }
            kind @ 7..14 => {
                let mut new = vec![0; bytes];
                chance.0.fill_bytes(&mut new);
                let mut from = 0;
                for (at, length) in &pieces {
                    area.put(*at, &new[from..from + length]);
                    from += length;
                }
                model.bytes[range].copy_from_slice(&new);
                model.discarded[first..first + count].fill(false);
                if kind == 7 {
                    Command::write_durable(token, offset, &segments)
                } else {
                    Command::write(token, offset, &segments)
                }
            }
            14 => Command::flush(token),
            15 => {
                model.discarded[first..first + count].fill(true);
                Command::discard(token, offset, bytes as u64)
            }
            16..18 => {
                model.bytes[range].fill(0);
                model.discarded[first..first + count].fill(false);
                Command::write_zeroes(token, offset, bytes as u64)
            }
            18 if !model.discarded[first] => {
                compare_and_write(&mut chance, &mut model, first * block, block, &mut expected);
                let segments = [expected.area.segment(64, 2 * block)];
                in_flight.insert(token, expected);
                subject.submit(Command::compare_and_write(token, offset, &segments), &area);
                settle(&mut subject, &mut in_flight, &mut chance, block);
                continue;
            }
            _ => {
                expected.result = Err(CommandError::OutOfRange);
                Command::write(token, subject.bytes() - bytes as u64 + block as u64, &segments)
            }
        };
        in_flight.insert(token, expected);
        subject.submit(command, &area);
        settle(&mut subject, &mut in_flight, &mut chance, block);
    }
    for done in subject.finish() {
        check(done.token, done.result, &mut in_flight, block);
    }
    assert!(in_flight.is_empty(), "commands were lost: {:?}", in_flight.keys());
    let read = subject.read(0, subject.bytes() as usize);
    assert_same(&read, &model.bytes, &model.discarded, block, "at the end");
}

/// Cuts `bytes` bytes into at most `SEGMENTS_MAX` pieces of memory (offset and length), most of them aligned.
fn cut(chance: &mut Chance, bytes: usize) -> Vec<(usize, usize)> {
    let shift = if chance.below(3) == 0 { chance.below(64) as usize } else { 0 };
    let unit = if chance.below(3) == 0 { 1 } else { 512 };
    let (mut pieces, mut at, mut left) = (Vec::new(), shift, bytes);
    while left > 0 && pieces.len() < SEGMENTS_MAX - 1 && chance.below(3) > 0 {
        let length = chance.below((left / unit) as u64 + 1) as usize * unit;
        pieces.push((at, length));
        (at, left) = (at + length + chance.below(2) as usize * unit, left - length);
    }
    pieces.push((at, left));
    pieces
}

fn compare_and_write(
    chance: &mut Chance,
    model: &mut Model,
    at: usize,
    block: usize,
    expected: &mut Expected,
) {
    let (mut old, mut new) = (model.bytes[at..at + block].to_vec(), vec![0; block]);
    chance.0.fill_bytes(&mut new);
    if chance.below(2) == 0 {
        old[chance.below(block as u64) as usize] ^= 1;
        expected.result = Err(CommandError::Mismatch);
    } else {
        model.bytes[at..at + block].copy_from_slice(&new);
    }
    expected.area.put(64, &[old, new].concat());
}

/// Reaps a random number of completions, at least one if the device is full.
fn settle(subject: &mut Subject, in_flight: &mut HashMap<u64, Expected>, chance: &mut Chance, block: usize) {
    let depth = subject.device.depth();
    let keep = if chance.below(20) == 0 { 0 } else { chance.below(depth as u64) as usize };
    let full = subject.device.in_flight() == depth;
    while subject.device.in_flight() > keep && (full || chance.below(4) == 0) {
        subject.device.reap(&mut |done| check(done.token, done.result, in_flight, block));
        if full && subject.device.in_flight() < depth {
            break;
        }
    }
}

fn check(token: u64, result: Result<(), CommandError>, in_flight: &mut HashMap<u64, Expected>, block: usize) {
    let expected = in_flight.remove(&token).expect("done once");
    assert_eq!(result, expected.result, "command {token}");
    if let Some(Read { pieces, bytes, discarded }) = expected.read {
        let mut read = Vec::new();
        for (at, length) in pieces {
            read.extend(expected.area.get(at, length));
        }
        assert_same(&read, &bytes, &discarded, block, &format!("read by command {token}"));
    }
}

fn assert_same(read: &[u8], expected: &[u8], discarded: &[bool], block: usize, what: &str) {
    for (number, (now, then)) in read.chunks(block).zip(expected.chunks(block)).enumerate() {
        let is_zero = discarded[number] && now.iter().all(|byte| *byte == 0);
        assert!(now == then || is_zero, "block {number} {what}");
    }
}
