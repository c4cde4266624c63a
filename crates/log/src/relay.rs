//! Writing through the keeper, for a log that programs have no descriptor of: a volume of a device server, of which the
//! keeper is the client.
//!
//! One request at a time lies in the memory of the log: its bytes, offset and length. Whoever has the lock writes it and
//! raises `asked`; the keeper's thread ([`Relay::serve`]) writes the bytes, durably, stores the error number and raises
//! `answered`. Both numbers are futexes. A requester that is killed leaves a request behind, whose answer the next one
//! waits for. The keeper's thread has the lock `serving` as long as it lives, so a requester finds out that it has ended.

use crate::layout::{BATCH_MAX, BLOCK};
use crate::robust::RobustMutex;
use crate::sys::{self, Errno};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Time between two looks at whether the other side lives, in nanoseconds.
const LOOK_NS: u32 = 100_000_000;

/// Request to the keeper. It lies in memory that processes share.
#[repr(C)]
#[derive(Debug)]
pub struct Relay {
    /// Lock of the words and bytes below, held by the requester.
    lock: RobustMutex,
    /// Lock that the keeper's thread has.
    serving: RobustMutex,
    /// Number of requests made.
    asked: AtomicU32,
    /// Number of requests carried out.
    answered: AtomicU32,
    /// Error number of the last request; 0: it succeeded.
    failure: AtomicU32,
    length: AtomicU32,
    offset: AtomicU64,
    bytes: [AtomicU8; BATCH_MAX],
}

impl Relay {
    /// Returns the locks, which are initialised before the memory is used.
    pub(crate) fn locks(&self) -> [&RobustMutex; 2] {
        [&self.lock, &self.serving]
    }

    /// Has the keeper write bytes at an offset, durably.
    ///
    /// # Errors
    /// The keeper's error number; EPIPE if it has ended; EINVAL for more bytes than a batch has; EDEADLK if this thread is
    /// just doing the same.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Errno> {
        if bytes.len() > BATCH_MAX {
            return Err(libc::EINVAL);
        }
        let _lock = self.lock.lock().ok_or(libc::EDEADLK)?;
        // That of a requester which was killed.
        self.wait_answer()?;
        // SAFETY: the memory has BATCH_MAX bytes, and is reached by raw pointers only. The lock keeps other requesters
        // away; the keeper copies it when `asked` has been raised.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address(), bytes.len()) };
        self.length.store(bytes.len() as u32, Relaxed);
        self.offset.store(offset, Relaxed);
        self.asked.fetch_add(1, SeqCst);
        sys::wake(&self.asked);
        self.wait_answer()?;
        match self.failure.load(Relaxed) {
            0 => Ok(()),
            number => Err(number as Errno),
        }
    }

    /// Waits until all requests are carried out. The caller has the lock.
    fn wait_answer(&self) -> Result<(), Errno> {
        loop {
            let answered = self.answered.load(Acquire);
            if answered == self.asked.load(Relaxed) {
                return Ok(());
            }
            sys::wait(&self.answered, answered, LOOK_NS);
            if self.answered.load(Acquire) == answered && self.serving.try_lock().is_some() {
                return Err(libc::EPIPE);
            }
        }
    }

    /// Carries out requests by `write` until `is_over` returns true, which is looked at ten times a second. Calls `ready`
    /// when requests can be made. `write` gets a copy, which nobody can change.
    pub fn serve(
        &self,
        ready: impl FnOnce(),
        mut write: impl FnMut(&[u8], u64) -> Result<(), Errno>,
        is_over: impl Fn() -> bool,
    ) {
        let Some(_serving) = self.serving.lock() else { return };
        let mut copy = alloc::vec![0; BATCH_MAX];
        ready();
        while !is_over() {
            let asked = self.asked.load(SeqCst);
            if asked == self.answered.load(Relaxed) {
                sys::wait(&self.asked, asked, LOOK_NS);
                continue;
            }
            let length = self.length.load(Relaxed) as usize;
            let outcome = if length <= BATCH_MAX && length.is_multiple_of(BLOCK) {
                // SAFETY: the memory has BATCH_MAX bytes; the requester does not write them until it has the answer, and
                // whoever breaks that gets other bytes written, nothing else.
                unsafe { core::ptr::copy_nonoverlapping(self.address(), copy.as_mut_ptr(), length) };
                write(&copy[..length], self.offset.load(Relaxed))
            } else {
                Err(libc::EINVAL)
            };
            self.failure.store(outcome.err().unwrap_or(0) as u32, Relaxed);
            self.answered.store(asked, SeqCst);
            sys::wake(&self.answered);
        }
    }

    fn address(&self) -> *mut u8 {
        self.bytes.as_ptr().cast_mut().cast()
    }
}
