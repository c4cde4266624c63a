//! The position of an open file: the kernel's, or ours for a while.
//!
//! As long as an open file is private to the process, `read`, `write` and `lseek` can work on a position at
//! user level. It is *taken* from the kernel once, and *given* back before anybody else could look at it:
//! before the descriptor is duplicated, inherited or passed on, and before any call of the kernel that uses
//! the position.
//!
//! ```text
//!          >= 0   ours: the position
//!     -1 - n      the kernel's, n calls that use it under way
//!   TAKING        being taken
//! ```
//!
//! Invariant: a position is ours only if no call that uses the kernel's position was under way when it was
//! read. Claims move it by compare-exchange before the bytes move, so that two threads never get the same
//! bytes, and no lock is held while copying.

use bywash_sync::{AtomicI64, Ordering, pause};

const KERNEL: i64 = -1;
const TAKING: i64 = i64::MIN;

/// Where the position of an open file is kept.
pub struct Position(AtomicI64);

impl Position {
    /// A position that is the kernel's.
    #[cfg(not(loom))]
    pub const fn new() -> Position {
        Position(AtomicI64::new(KERNEL))
    }

    /// A position that is the kernel's.
    #[cfg(loom)]
    pub fn new() -> Position {
        Position(AtomicI64::new(KERNEL))
    }

    /// Back to the kernel's, for a new open file in the same place.
    pub fn reset(&self) {
        self.0.store(KERNEL, Ordering::Relaxed);
    }

    /// The position, if it is ours.
    #[inline]
    pub fn ours(&self) -> Option<u64> {
        u64::try_from(self.0.load(Ordering::Acquire)).ok()
    }

    /// Moves our position from `from` to `to`; false when another thread moved or gave it.
    #[inline]
    pub fn advance(&self, from: u64, to: u64) -> bool {
        self.0.compare_exchange(from as i64, to as i64, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Puts our position somewhere else; false when it is not ours.
    pub fn put(&self, to: u64) -> bool {
        loop {
            match self.ours() {
                None => return false,
                Some(now) if self.advance(now, to) => return true,
                Some(_) => {}
            }
        }
    }

    /// Says that a call using the kernel's position begins; answers our position instead if it is ours.
    #[inline]
    pub fn begin_kernel_call(&self) -> Result<(), u64> {
        loop {
            let now = self.0.load(Ordering::Acquire);
            if now >= 0 {
                return Err(now as u64);
            }
            if now == TAKING {
                pause();
                continue;
            }
            if self.0.compare_exchange(now, now - 1, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(());
            }
        }
    }

    /// Such a call has ended.
    #[inline]
    pub fn end_kernel_call(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes the position over: `read` asks the kernel for it. False when it is in use. The caller keeps
    /// signals out, so that nobody waits for a thread that cannot run.
    pub fn take(&self, read: impl FnOnce() -> Option<u64>) -> bool {
        if self.0.compare_exchange(KERNEL, TAKING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        let position = read().and_then(|position| i64::try_from(position).ok());
        self.0.store(position.unwrap_or(KERNEL), Ordering::Release);
        position.is_some()
    }

    /// Gives the position back: `write` hands it to the kernel. True when it was ours.
    pub fn give(&self, mut write: impl FnMut(u64)) -> bool {
        loop {
            let now = self.0.load(Ordering::Acquire);
            if now == TAKING {
                pause();
                continue;
            }
            if now < 0 {
                return false;
            }
            write(now as u64);
            if self.0.compare_exchange(now, KERNEL, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return true;
            }
        }
    }
}

impl Default for Position {
    fn default() -> Position {
        Position::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn taken_claimed_and_given() {
        let position = Position::new();
        assert_eq!(position.ours(), None);
        assert!(position.take(|| Some(100)));
        assert_eq!(position.ours(), Some(100));
        assert_eq!(position.begin_kernel_call(), Err(100));
        assert!(position.advance(100, 150));
        assert!(!position.advance(100, 170));
        let mut handed = 0;
        assert!(position.give(|at| handed = at));
        assert_eq!(handed, 150);
        assert!(!position.give(|_| panic!("not ours")));
    }

    #[test]
    fn not_taken_during_a_kernel_call() {
        let position = Position::new();
        assert_eq!(position.begin_kernel_call(), Ok(()));
        assert_eq!(position.begin_kernel_call(), Ok(()));
        assert!(!position.take(|| panic!("in use")));
        position.end_kernel_call();
        position.end_kernel_call();
        assert!(!position.take(|| None));
        assert!(position.take(|| Some(0)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{sync::Arc, thread};

    #[test]
    fn no_byte_is_read_twice() {
        loom::model(|| {
            let position = Arc::new(Position::new());
            assert!(position.take(|| Some(0)));
            let other = {
                let position = position.clone();
                thread::spawn(move || claim(&position))
            };
            let mine = claim(&position);
            let theirs = other.join().unwrap();
            assert!(mine != theirs);
        });
    }

    fn claim(position: &Position) -> u64 {
        loop {
            let at = position.ours().unwrap();
            if position.advance(at, at + 1) {
                return at;
            }
        }
    }

    #[test]
    fn what_is_given_was_not_moved_on() {
        loom::model(|| {
            let position = Arc::new(Position::new());
            assert!(position.take(|| Some(0)));
            let other = {
                let position = position.clone();
                thread::spawn(move || position.advance(0, 10))
            };
            let mut handed = 0;
            position.give(|at| handed = at);
            let moved = other.join().unwrap();
            assert_eq!(handed, if moved { 10 } else { 0 });
        });
    }
}
