//! Bounds that no transport can beat: a cache line that goes from core to core and back, and memory that one core writes and
//! another one sums, with nothing between them but a cache line each way.
//!
//! ```text
//!   sender    fills a buffer ── its turn ──►  the receiver sums it in place, or copies it out first
//!             waits for a buffer's turn before ◄── its turn
//! ```
//!
//! Nothing is allocated, checked or described: the buffers come by turns. Bytes that the other core has just touched are dear
//! to fetch from its nearest caches, and those of many buffers have to come from memory: the number of buffers that is the
//! fastest depends on the machine and on their size, so [`fastest`] tries several.
//!
//! SYNC: turn. A buffer's bytes are written before its turn is stored and read behind its load; the receiver is through with
//! them before it stores the turn back, behind whose load they are written again.

use super::broken;
use super::pair::{Pattern, Spent, own_cpu, pin};
use super::words::{fill, sum};
use crate::error::Error;
use crate::interrupt;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// Alignment of a buffer, in bytes: that of a large container.
const ALIGNMENT: usize = 4096;
/// Runs of each number of buffers that is tried.
const TRIES: usize = 3;

/// A receiver's manner of reading a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It sums the words in place.
    InPlace,
    /// It copies them out and sums the copy.
    Copied,
}

/// A cache line with the number of the last message that was handed on. Aligned to two, which some processors fetch together.
#[repr(align(128))]
#[derive(Default)]
struct Turn(AtomicU64);

impl Turn {
    fn hand_on(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }

    fn wait_for(&self, number: u64) {
        while self.0.load(Ordering::Acquire) < number {
            spin_loop();
        }
    }
}

/// A buffer and its turns.
struct Buffer {
    sent: Turn,
    taken: Turn,
    memory: UnsafeCell<Vec<u8>>,
    /// Offset of the bytes in the memory.
    start: usize,
}

// SAFETY: the bytes belong to the sender from the turn that was taken to the turn that is sent, and to the receiver from there
// to the turn that is taken; see the head of this module.
#[expect(unsafe_code, reason = "two threads have the bytes by turns")]
unsafe impl Sync for Buffer {}

impl Buffer {
    fn new(bytes: usize) -> Buffer {
        let mut memory = vec![0; bytes + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        memory.truncate(start + bytes);
        Buffer { sent: Turn::default(), taken: Turn::default(), memory: UnsafeCell::new(memory), start }
    }
}

/// The buffers of one direction.
struct Buffers(Vec<Buffer>);

impl Buffers {
    fn new(count: usize, bytes: usize) -> Buffers {
        Buffers((0..count).map(|_| Buffer::new(bytes)).collect())
    }

    fn buffer(&self, number: u64) -> &Buffer {
        &self.0[(number % self.0.len() as u64) as usize]
    }

    /// Fills a buffer as message `number`.
    fn send(&self, number: u64) -> u64 {
        let buffer = self.buffer(number);
        buffer.taken.wait_for(number.saturating_sub(self.0.len() as u64));
        // SAFETY: the receiver has given the buffer back, or never had it.
        #[expect(unsafe_code, reason = "the turn says whose the bytes are")]
        let memory = unsafe { &mut *buffer.memory.get() };
        let sum = fill(&mut memory[buffer.start..], number);
        buffer.sent.hand_on(number);
        sum
    }

    /// Sums message `number`; `copy` has room for a copy, if there is to be one.
    fn take(&self, number: u64, copy: Option<&mut Vec<u8>>) -> u64 {
        let buffer = self.buffer(number);
        buffer.sent.wait_for(number);
        // SAFETY: the sender has handed the buffer on, and waits for the turn below.
        #[expect(unsafe_code, reason = "the turn says whose the bytes are")]
        let memory = unsafe { &*buffer.memory.get() };
        let bytes = &memory[buffer.start..];
        let Some(copy) = copy else {
            let sum = sum(bytes);
            buffer.taken.hand_on(number);
            return sum;
        };
        copy.copy_from_slice(bytes);
        buffer.taken.hand_on(number);
        sum(copy)
    }
}

/// Runs `second` on core 1 and, once it has begun, `first` on core 0.
fn on_two_cores<A, B: Send>(
    first: impl FnOnce() -> A,
    second: impl FnOnce() -> B + Send,
) -> Result<(A, B), Error> {
    let begun = AtomicBool::new(false);
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            pin(1);
            begun.store(true, Ordering::Release);
            second()
        });
        pin(0);
        while !begun.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let first = first();
        Ok((first, second.join().map_err(|_| broken("a thread has panicked"))?))
    })
}

/// Sends a number there and back `messages` times, on one cache line for each direction.
///
/// # Errors
/// [`Error::Failed`] if a thread panics.
pub fn cache_line(messages: u64) -> Result<Spent, Error> {
    let (there, back) = (Turn::default(), Turn::default());
    let first = || {
        let (before, begin) = (own_cpu(), Instant::now());
        for number in 1..=messages {
            there.hand_on(number);
            back.wait_for(number);
        }
        Spent { wall: begin.elapsed().as_secs_f64(), cpu: own_cpu() - before }
    };
    let second = || {
        for number in 1..=messages {
            there.wait_for(number);
            back.hand_on(number);
        }
    };
    Ok(on_two_cores(first, second)?.0)
}

/// Hands `messages` of `bytes` bytes from one core to the other, in as many buffers as said: as a stream, or each answered by
/// one as large.
///
/// # Errors
/// [`Error::Failed`] if both have not summed the same, and [`Error::Interrupted`].
pub fn hand_over(
    pattern: Pattern,
    bytes: usize,
    messages: u64,
    buffers: usize,
    reading: Reading,
) -> Result<Spent, Error> {
    interrupt::check()?;
    let answers = pattern.answers();
    let there = Buffers::new(buffers, bytes);
    let back = Buffers::new(if answers { buffers } else { 0 }, bytes);
    let room = || (reading == Reading::Copied).then(|| vec![0; bytes]);
    // Every buffer is touched once before the clock starts.
    let (first, last) = (buffers as u64 + 1, buffers as u64 + messages);
    let receiver = || {
        let mut copy = room();
        let mut received = 0u64;
        for number in 1..=last {
            received = received.wrapping_add(there.take(number, copy.as_mut()));
            if answers {
                received = received.wrapping_sub(back.send(number));
            }
        }
        received
    };
    let sender = || {
        let mut copy = room();
        let mut sent = 0u64;
        let mut exchange = |number| {
            sent = sent.wrapping_add(there.send(number));
            if answers {
                sent = sent.wrapping_sub(back.take(number, copy.as_mut()));
            }
        };
        (1..first).for_each(&mut exchange);
        let (before, begin) = (own_cpu(), Instant::now());
        (first..=last).for_each(&mut exchange);
        if !answers {
            there.buffer(last).taken.wait_for(last);
        }
        (Spent { wall: begin.elapsed().as_secs_f64(), cpu: own_cpu() - before }, sent)
    };
    let ((spent, sent), received) = on_two_cores(sender, receiver)?;
    if received == sent { Ok(spent) } else { Err(broken("the sums differ")) }
}

/// Returns the number of buffers, at most `most`, with which [`hand_over`] has the smallest median time here. The median
/// counts, since rows compare medians, and a single lucky run says little.
///
/// # Errors
/// Those of [`hand_over`].
pub fn fastest(
    pattern: Pattern,
    bytes: usize,
    messages: u64,
    most: usize,
    reading: Reading,
) -> Result<usize, Error> {
    let mut tried: Vec<(usize, Vec<f64>)> = counts(most).map(|count| (count, Vec::new())).collect();
    for _ in 0..TRIES {
        for (count, walls) in &mut tried {
            walls.push(hand_over(pattern, bytes, messages, *count, reading)?.wall);
        }
    }
    for (_, walls) in &mut tried {
        walls.sort_by(f64::total_cmp);
    }
    let fastest = tried.iter().min_by(|one, other| one.1[TRIES / 2].total_cmp(&other.1[TRIES / 2]));
    Ok(fastest.map_or(most, |(count, _)| *count))
}

/// Numbers of buffers that are tried: `most`, and each a quarter of the one before.
fn counts(most: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(most), |count| Some(count / 4)).take_while(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_arrives_whatever_the_buffers() {
        for pattern in [Pattern::Stream, Pattern::PingPong] {
            for (buffers, reading) in [(1, Reading::InPlace), (3, Reading::Copied), (4, Reading::InPlace)] {
                let spent = hand_over(pattern, 4096, 50, buffers, reading).unwrap();
                assert!(spent.wall > 0.0 && spent.cpu > 0.0, "{pattern:?}, {buffers}: {spent:?}");
            }
        }
        assert!(cache_line(50).unwrap().wall > 0.0);
    }

    #[test]
    fn the_fastest_number_of_buffers_is_one_of_those_tried() {
        assert_eq!(counts(256).collect::<Vec<_>>(), [256, 64, 16, 4, 1]);
        assert_eq!(counts(8).collect::<Vec<_>>(), [8, 2]);
        let count = fastest(Pattern::Stream, 4096, 50, 16, Reading::InPlace).unwrap();
        assert!(counts(16).any(|tried| tried == count), "{count}");
    }

    #[test]
    fn a_spoilt_buffer_has_another_sum() {
        let buffers = Buffers::new(2, 64);
        let sent = buffers.send(1);
        let mut copy = vec![0; 64];
        assert_eq!(buffers.take(1, Some(&mut copy)), sent);
        let sent = buffers.send(2);
        // SAFETY: this thread is both sender and receiver.
        #[expect(unsafe_code, reason = "a buffer is spoilt while it is handed on")]
        let memory = unsafe { &mut *buffers.buffer(2).memory.get() };
        memory[buffers.buffer(2).start + 8] ^= 1;
        assert_ne!(buffers.take(2, None), sent);
    }
}
