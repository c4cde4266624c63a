//! A bare futex(2) beside shared memory: the least that two processes need to hand a message over and to wake each other.
//!
//! Each direction has a number of messages sent, which is the word that the receiver sleeps on, and room for [`ROOM`]
//! messages. Nothing is checked and nobody is told of the other's end: no program could use it as it is.

use super::broken;
use super::wire::{Wire, check_length};
use super::words::{fill, sum};
use crate::error::Error;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::thread::futex::{Flags, wait, wake};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Messages of a direction that there is room for: as many as a path has on their way.
const ROOM: usize = 256;
/// Words of a message.
const WORDS: usize = 8;

/// Memory of one direction.
#[repr(C, align(128))]
struct Direction {
    sent: AtomicU32,
    messages: [[AtomicU64; WORDS]; ROOM],
}

/// Bytes of memory that both processes map.
pub const BYTES: usize = 2 * size_of::<Direction>();

/// One end.
pub struct Futex {
    to: &'static Direction,
    from: &'static Direction,
    received: u32,
}

impl Futex {
    /// Maps the memory; `second`: the directions are the other way around.
    ///
    /// # Errors
    /// [`Error::Failed`] if the kernel does not map it.
    #[expect(unsafe_code, reason = "memory of two processes can only be had by mapping it")]
    pub fn open(memory: &OwnedFd, second: bool) -> Result<Futex, Error> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), BYTES, access, MapFlags::SHARED, memory, 0) };
        let base = base.map_err(broken)?;
        // SAFETY: it is as large as two directions, begins at a page, stays mapped until the process ends, and consists of
        // atomics, for which all bytes are values.
        let [one, other] = unsafe { &*base.cast::<[Direction; 2]>() };
        let (to, from) = if second { (other, one) } else { (one, other) };
        Ok(Futex { to, from, received: 0 })
    }
}

impl Wire for Futex {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Error> {
        check_length(bytes, WORDS * 8)?;
        let mut message = [0; WORDS * 8];
        let sum = fill(&mut message, seed);
        let number = self.to.sent.load(Relaxed);
        let slot = &self.to.messages[number as usize % ROOM];
        for (word, value) in slot.iter().zip(message.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*value), Relaxed);
        }
        self.to.sent.store(number.wrapping_add(1), Release);
        // Nobody may sleep there.
        let _ = wake(&self.to.sent, Flags::empty(), 1);
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Error> {
        check_length(bytes, WORDS * 8)?;
        while self.from.sent.load(Acquire) == self.received {
            // Woken, or there is something already: looked at again.
            let _ = wait(&self.from.sent, Flags::empty(), self.received, None);
        }
        let mut message = [0; WORDS * 8];
        let slot = &self.from.messages[self.received as usize % ROOM];
        for (value, word) in message.as_chunks_mut::<8>().0.iter_mut().zip(slot) {
            *value = word.load(Relaxed).to_ne_bytes();
        }
        self.received = self.received.wrapping_add(1);
        Ok(sum(&message))
    }
}
