//! Pipes, event counters and timers: the sources of events that are neither files nor sockets.

use std::collections::VecDeque;

use crate::clock::Time;

/// Number of bytes that a pipe holds (`pipe(7)`).
pub const PIPE_BYTES: usize = 65_536;
/// Greatest length of a write that is not divided, in bytes (`PIPE_BUF`).
pub const ATOMIC_BYTES: usize = 4096;

/// Pipe.
#[derive(Clone, Debug, Default)]
pub struct Pipe {
    /// Bytes in it.
    bytes: VecDeque<u8>,
    /// Number of bytes that were ever read.
    pub read: u64,
    /// Number of file descriptions that read.
    pub readers: u32,
    /// Number of file descriptions that write.
    pub writers: u32,
}

impl Pipe {
    /// Makes a pipe with one description for each of its ends.
    pub fn new() -> Pipe {
        Pipe { readers: 1, writers: 1, ..Pipe::default() }
    }

    /// Returns the number of bytes in the pipe.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the pipe has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of bytes for which there is room.
    pub fn room(&self) -> usize {
        PIPE_BYTES - self.bytes.len()
    }

    /// Returns the offset of the next written byte in the stream of all.
    pub fn end(&self) -> u64 {
        self.read + self.bytes.len() as u64
    }

    /// Takes bytes out, at most `limit`.
    pub fn pop(&mut self, limit: usize) -> Vec<u8> {
        let count = limit.min(self.bytes.len());
        self.read += count as u64;
        self.bytes.drain(..count).collect()
    }

    /// Puts bytes in; the caller has checked that there is room.
    pub fn push(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.room());
        self.bytes.extend(bytes);
    }
}

/// Event counter (eventfd(2)).
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Value.
    pub value: u64,
    /// True if each read takes one (`EFD_SEMAPHORE`).
    pub is_semaphore: bool,
}

impl Counter {
    /// Greatest value.
    pub const MAX: u64 = u64::MAX - 1;

    /// Reads the counter; `None` if it is zero.
    pub fn take(&mut self) -> Option<u64> {
        let value = if self.is_semaphore { self.value.min(1) } else { self.value };
        self.value -= value;
        (value > 0).then_some(value)
    }
}

/// Timer with a descriptor (timerfd_create(2)), or the process's interval timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer {
    /// Time of the next expiration; `None` if disarmed.
    pub next: Option<Time>,
    /// Time between expirations; zero if it expires once.
    pub interval: Time,
    /// Number of expirations since the latest read.
    pub expirations: u64,
    /// True if absolute times are those of the real-time clock.
    pub is_real: bool,
}

impl Timer {
    /// Counts the expirations up to a time, and returns whether there were any.
    pub fn expire(&mut self, now: Time) -> bool {
        let Some(next) = self.next.filter(|&next| next <= now) else { return false };
        if self.interval == Time::ZERO {
            self.expirations += 1;
            self.next = None;
        } else {
            let count = 1 + now.since(next).picoseconds() / self.interval.picoseconds();
            self.expirations = self.expirations.saturating_add(count);
            let passed = self.interval.picoseconds().saturating_mul(count);
            self.next = Some(next + Time::from_picoseconds(passed));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_counts_missed_expirations() {
        let at = Time::from_nanoseconds;
        let mut timer = Timer { next: Some(at(10)), interval: at(5), ..Timer::default() };
        assert!(!timer.expire(at(9)));
        assert!(timer.expire(at(21)));
        assert_eq!((timer.expirations, timer.next), (3, Some(at(25))));
    }

    #[test]
    fn a_semaphore_gives_one_at_a_time() {
        let mut counter = Counter { value: 2, is_semaphore: true };
        assert_eq!([counter.take(), counter.take(), counter.take()], [Some(1), Some(1), None]);
    }
}
