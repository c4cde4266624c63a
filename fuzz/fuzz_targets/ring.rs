//! Both ends of a ring, while a malicious peer overwrites its memory between two calls.
//!
//! Failures that this looks for: an index that the peer wrote leads out of the memory, wraps, or causes a
//! panic; an entry is overwritten before it was taken, or is taken twice, before any violation.

#![no_main]

use arbitrary::Arbitrary;
use bywash_fuzz::{Steps, Value};
use bywash_link::ring::layout::{CONSUMER_BELL, PRODUCER_BELL};
use bywash_link::ring::{Bell, Consumer, Producer, Shared, WakeMethod, words_needed};
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Logarithm of the number of entries; taken modulo 4.
    size: u8,
    words: EntryWords,
    steps: Steps<Step>,
}

#[derive(Arbitrary, Debug)]
enum EntryWords {
    One,
    Two,
    Three,
    Eight,
    Sixteen,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Push(u64),
    Pop,
    PopWithin(u8),
    Room(u8),
    Close,
    /// One side announces that it sleeps, and the other one may wake it.
    Bells {
        consumer: bool,
        futex: bool,
        rung: bool,
    },
    /// Malicious: a word is overwritten.
    Write(u8, Value),
    /// Malicious: an entry's turn is overwritten, which may make it look written.
    Turn(u8, u8),
}

fuzz_target!(|input: Input| {
    let capacity = 1 << (input.size % 4);
    match input.words {
        EntryWords::One => run::<1>(capacity, input.steps),
        EntryWords::Two => run::<2>(capacity, input.steps),
        EntryWords::Three => run::<3>(capacity, input.steps),
        EntryWords::Eight => run::<8>(capacity, input.steps),
        EntryWords::Sixteen => run::<16>(capacity, input.steps),
    }
});

/// Returns the entry for a number: words that all follow from it. The low half of the first word belongs to
/// the ring.
fn entry<const WORDS: usize>(number: u64) -> [u64; WORDS] {
    let mut entry = [number << 32; WORDS];
    (1..WORDS).for_each(|at| entry[at] = number.wrapping_mul(at as u64 + 1));
    entry
}

fn run<const WORDS: usize>(capacity: usize, steps: Steps<Step>) {
    // The vector has exactly the necessary words, so the sanitizer finds accesses beyond them.
    let words: Arc<Vec<AtomicU64>> =
        Arc::new((0..words_needed::<WORDS>(capacity)).map(|_| AtomicU64::new(0)).collect());
    // SAFETY: `Shared` keeps the vector alive, and its words do not move.
    let memory = unsafe { Shared::new(words.as_ptr(), words.len(), words.clone()) };
    let mut producer = Producer::<WORDS>::new(memory.clone(), capacity);
    let mut consumer = Consumer::<WORDS>::new(memory.clone(), capacity);
    let closing = consumer.closing();
    let bells = [CONSUMER_BELL, PRODUCER_BELL].map(|index| Bell::new(memory.clone(), index, false));
    let mut there: VecDeque<u64> = VecDeque::new();
    let (mut honest, mut closed) = (true, false);
    for step in steps {
        match step {
            Step::Push(number) => {
                let before = producer.pushed();
                let pushed = producer.push(&entry(number));
                assert_eq!(producer.pushed() - before, u64::from(pushed == Ok(true)));
                if honest {
                    assert_eq!(pushed, Ok(there.len() < capacity));
                    there.extend(pushed.is_ok_and(|pushed| pushed).then_some(number));
                }
            }
            Step::Pop | Step::PopWithin(_) => {
                let (ready, first) = (consumer.is_ready(), consumer.first_word());
                let popped = match step {
                    Step::PopWithin(looks) => consumer.pop_within(u32::from(looks)),
                    _ => consumer.pop(),
                };
                assert_eq!((ready, first), (popped.is_some(), popped.map(|entry| entry[0])));
                if honest {
                    let expected = there.pop_front().map(entry::<WORDS>);
                    assert_eq!(popped.map(|entry| entry[0] >> 32), expected.map(|entry| entry[0] >> 32));
                    assert_eq!(
                        popped.map(|entry| entry[1..].to_vec()),
                        expected.map(|entry| entry[1..].to_vec())
                    );
                }
            }
            Step::Room(wanted) => {
                let (wanted, room) = (usize::from(wanted), producer.room(usize::from(wanted)));
                assert!(room.is_err() || room.is_ok_and(|room| room <= capacity));
                if honest {
                    let free = capacity - there.len();
                    assert!(room.is_ok_and(|room| room <= free && room >= free.min(wanted)));
                }
            }
            Step::Close => {
                producer.close();
                closed = true;
            }
            Step::Bells { consumer, futex, rung } => {
                let bell = &bells[usize::from(consumer)];
                let sleeper = if futex { WakeMethod::Futex } else { WakeMethod::Signal };
                bell.set(sleeper);
                assert!(bell.is_set());
                if rung {
                    assert_eq!(bell.ring(), Some(sleeper));
                    // The bell has been rung, so this sleep returns at once.
                    bell.sleep(Duration::from_secs(60));
                }
                assert_eq!(bell.unset(), !rung);
                assert_eq!(bell.ring(), None);
            }
            Step::Write(at, value) => {
                words[usize::from(at) % words.len()].store(value.get(), Relaxed);
                bells.iter().for_each(|bell| {
                    bell.ring();
                });
                honest = false;
            }
            Step::Turn(slot, turn) => {
                let at = 32 + usize::from(slot) % capacity * WORDS;
                words[at].fetch_and(!0xffff_ffff, Relaxed);
                words[at].fetch_or(u64::from(turn % 6), Relaxed);
                honest = false;
            }
        }
        if honest {
            assert_eq!(closing.is_closed(), closed);
        }
    }
    // Without a violation the remaining entries still arrive.
    while honest && let Some(number) = there.pop_front() {
        assert_eq!(consumer.pop().map(|entry| entry[0] >> 32), Some(number & 0xffff_ffff));
    }
}
