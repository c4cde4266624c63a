//! Bare shared memory, which no program could use as it is: nothing is checked, allocated or described, and nobody is told of
//! the other's end.
//!
//! - A bound of every transport: memory that one core writes and the other one sums, with nothing between them but a cache
//!   line each way.
//! - A bound of small messages: such a line alone.
//! - The least that two processes need to wake each other: the same with futex(2).
//!
//! A direction is a ring of slots, each a buffer and two cache lines: the number of the last message that the sender put there
//! and of the last one that the receiver took.
//!
//! SYNC: turn. A buffer's bytes are written before `sent` is stored and read behind its load; the receiver is through with them
//! before it stores `taken`, behind whose load they are written again.

use super::exchange::{Failure, Wire, check_length};
use super::words::{fill, sum};
use crate::interrupt;
use libc::{MAP_POPULATE, MAP_SHARED, PROT_READ, PROT_WRITE};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::thread::futex::{Flags, wait, wake};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use vm_memory::{FileOffset, MmapRegion};

const PAGE: usize = 4096;
/// Looks at a turn between two questions whether the bench was interrupted.
const LOOKS: u32 = 1 << 20;

/// Shape and manner of bare memory.
#[derive(Clone, Copy, Debug)]
pub struct Bare {
    /// Slots of a direction: a power of two.
    pub slots: usize,
    /// Bytes of a buffer. Without any, each message has to be answered, and `taken` is not used.
    pub bytes: usize,
    /// The receiver copies a message out and sums the copy.
    pub copies: bool,
    /// A receiver that waits sleeps on a futex; otherwise it spins.
    pub sleeps: bool,
}

/// A number in two cache lines, which some processors fetch together.
#[repr(align(128))]
struct Turn(AtomicU32);

#[repr(C)]
struct Slot {
    sent: Turn,
    taken: Turn,
}

impl Bare {
    /// Bytes from one buffer to the next: a page is the alignment of a large container.
    fn stride(&self) -> usize {
        self.bytes.next_multiple_of(if self.bytes < PAGE { align_of::<Slot>() } else { PAGE })
    }

    fn buffers_start(&self) -> usize {
        (self.slots * size_of::<Slot>()).next_multiple_of(PAGE)
    }

    fn direction_bytes(&self) -> usize {
        (self.buffers_start() + self.slots * self.stride()).next_multiple_of(PAGE)
    }

    pub fn create(&self) -> Result<OwnedFd, Failure> {
        let memory = memfd_create("bywash-bench", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, 2 * self.direction_bytes() as u64)?;
        Ok(memory)
    }

    /// Maps the memory; `second`: the directions are the other way around.
    #[expect(unsafe_code, reason = "memory of two processes can only be had by mapping it")]
    pub fn open(self, memory: &OwnedFd, second: bool) -> Result<End, Failure> {
        let (file, bytes) = (File::from(memory.try_clone()?), 2 * self.direction_bytes());
        let (access, flags) = (PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE);
        let memory = MmapRegion::build(Some(FileOffset::new(file, 0)), bytes, access, flags)?;
        // SAFETY: the mapping has two directions.
        let other = unsafe { memory.as_ptr().add(self.direction_bytes()) };
        let (to, from) = if second { (other, memory.as_ptr()) } else { (memory.as_ptr(), other) };
        let copy = vec![0; if self.copies { self.bytes } else { 0 }];
        let (buffers_start, stride) = (self.buffers_start(), self.stride());
        Ok(End { shape: self, to, from, buffers_start, stride, sent: 0, received: 0, copy, _memory: memory })
    }
}

pub struct End {
    shape: Bare,
    to: *mut u8,
    from: *mut u8,
    buffers_start: usize,
    stride: usize,
    sent: u32,
    received: u32,
    copy: Vec<u8>,
    _memory: MmapRegion,
}

impl End {
    /// Slot of a message in a direction, and the start of its buffer.
    #[expect(unsafe_code, reason = "the memory is only known by its address")]
    fn slot(&self, direction: *mut u8, number: u32) -> (&Slot, *mut u8) {
        let slot = number as usize & (self.shape.slots - 1);
        // SAFETY: a direction has all its slots and behind them their buffers. Slots begin at a page and are atomics, for
        // which all bytes are values.
        unsafe {
            let buffer = direction.add(self.buffers_start + slot * self.stride);
            (&*direction.cast::<Slot>().add(slot), buffer)
        }
    }

    fn store(&self, turn: &Turn, number: u32) {
        turn.0.store(number, Release);
        if self.shape.sleeps {
            // Nobody may sleep there.
            let _ = wake(&turn.0, Flags::empty(), 1);
        }
    }

    fn wait_for(&self, turn: &Turn, number: u32, sleeps: bool) -> Result<(), Failure> {
        let mut looks = 0u32;
        loop {
            let at = turn.0.load(Acquire);
            if at >= number {
                return Ok(());
            }
            looks = looks.wrapping_add(1);
            if sleeps || looks.is_multiple_of(LOOKS) {
                interrupt::check()?;
            }
            if sleeps {
                // Woken, or there is something already: looked at again.
                let _ = wait(&turn.0, Flags::empty(), at, None);
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl Wire for End {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Failure> {
        self.sent += 1;
        let (slot, buffer) = self.slot(self.to, self.sent);
        if self.shape.bytes == 0 {
            self.store(&slot.sent, self.sent);
            return Ok(0);
        }
        check_length(bytes.min(self.shape.bytes), bytes)?;
        self.wait_for(&slot.taken, self.sent.saturating_sub(self.shape.slots as u32), false)?;
        // SAFETY: the receiver has given the buffer back, or never had it.
        #[expect(unsafe_code, reason = "the turn says whose the bytes are")]
        let sum = fill(unsafe { std::slice::from_raw_parts_mut(buffer, bytes) }, seed);
        self.store(&slot.sent, self.sent);
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Failure> {
        self.received += 1;
        let number = self.received;
        let mut copy = std::mem::take(&mut self.copy);
        let (slot, buffer) = self.slot(self.from, number);
        self.wait_for(&slot.sent, number, self.shape.sleeps)?;
        if self.shape.bytes == 0 {
            return Ok(0);
        }
        check_length(bytes.min(self.shape.bytes), bytes)?;
        // SAFETY: the sender has handed the buffer on, and waits for the turn below.
        #[expect(unsafe_code, reason = "the turn says whose the bytes are")]
        let message = unsafe { std::slice::from_raw_parts(buffer, bytes) };
        let in_place = (!self.shape.copies).then(|| sum(message));
        if self.shape.copies {
            copy[..bytes].copy_from_slice(message);
        }
        slot.taken.0.store(number, Release);
        let found = in_place.unwrap_or_else(|| sum(&copy[..bytes]));
        self.copy = copy;
        Ok(found)
    }
}
