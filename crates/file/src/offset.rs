//! Position of an open file, kept by the kernel or for a while at user level.
//!
//! While an open file is private to the process, `read`, `write` and `lseek` can work on a position at user
//! level. The position is *taken* from the kernel, and *given* back before anybody else could look at the
//! kernel's position: before the descriptor is duplicated, inherited or passed to another process, and before
//! any system call that uses the kernel's position.
//!
//! ```text
//!          >= 0   ours: the position
//!     -1 - n      the kernel's, n calls that use it in flight
//!   TAKING        being taken
//! ```
//!
//! Invariant: the position is taken only while no call that uses the kernel's position is in flight. A read
//! or write moves the position by compare-exchange, so that two threads never get the same bytes, and no lock
//! is held during a copy.

use bywash_sync::{AtomicI64, Ordering, pause};

/// Value of a position that the kernel keeps while no call that uses it is in flight.
const KERNEL: i64 = -1;
/// Value while a thread reads the position from the kernel.
const TAKING: i64 = i64::MIN;

/// Position of an open file, in bytes, or the state that it is the kernel's.
pub struct Position(AtomicI64);

impl Position {
    /// Creates a position that the kernel keeps.
    #[cfg(not(loom))]
    pub const fn new() -> Position {
        Position(AtomicI64::new(KERNEL))
    }

    /// Creates a position that the kernel keeps.
    #[cfg(loom)]
    pub fn new() -> Position {
        Position(AtomicI64::new(KERNEL))
    }

    /// Returns the position to the kernel without telling it, for a new open file in the same table entry.
    pub fn reset(&self) {
        self.0.store(KERNEL, Ordering::Relaxed);
    }

    /// Returns the position in bytes if it is kept at user level.
    #[inline]
    pub fn ours(&self) -> Option<u64> {
        u64::try_from(self.0.load(Ordering::Acquire)).ok()
    }

    /// Moves the position from `from` to `to`; returns false if another thread moved the position or gave it
    /// back.
    #[inline]
    pub fn advance(&self, from: u64, to: u64) -> bool {
        self.0.compare_exchange(from as i64, to as i64, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Sets the position to `to`; returns false if the kernel keeps the position.
    pub fn put(&self, to: u64) -> bool {
        loop {
            match self.ours() {
                None => return false,
                Some(now) if self.advance(now, to) => return true,
                Some(_) => {}
            }
        }
    }

    /// Notes that a call that uses the kernel's position begins, and waits while another thread takes the
    /// position.
    ///
    /// # Errors
    /// The position in bytes, if it is kept at user level; the call is then not noted.
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

    /// Notes that a call noted by [`Position::begin_kernel_call`] has ended.
    #[inline]
    pub fn end_kernel_call(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes the position from the kernel; `read` asks the kernel for it. Returns false if a call that uses
    /// the kernel's position is in flight, if the position is taken already, or if `read` fails. The caller
    /// must block signals: a handler of this thread that waited for the end of the taking would wait for
    /// ever.
    pub fn take(&self, read: impl FnOnce() -> Option<u64>) -> bool {
        if self.0.compare_exchange(KERNEL, TAKING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        let position = read().and_then(|position| i64::try_from(position).ok());
        self.0.store(position.unwrap_or(KERNEL), Ordering::Release);
        position.is_some()
    }

    /// Gives the position back; `write` tells it to the kernel, again if another thread moved the position
    /// meanwhile. Returns true if the position was kept at user level.
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
