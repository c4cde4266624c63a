//! Record locks of files (fcntl(2)).
//!
//! Traditional locks belong to the process, of which there is one: they never conflict with each other. Locks of
//! open file descriptions (`F_OFD_SETLK`) belong to the description, and conflict with those of others and with
//! the process's.

/// Locked range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Last byte, included.
    pub last: u64,
    /// True if it excludes readers, too.
    pub is_exclusive: bool,
    /// Number of the owning file description; 0 for the process.
    pub owner: u64,
}

/// Locks of a file.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    /// Locks of each owner, which do not overlap each other.
    ranges: Vec<LockRange>,
}

/// Greatest number of locks of a file.
pub const LOCKS_LIMIT: usize = 4096;

impl Locks {
    /// Returns a lock that conflicts with another one.
    pub fn conflict(&self, wanted: LockRange) -> Option<LockRange> {
        let conflicts = |range: &&LockRange| {
            range.owner != wanted.owner
                && range.start <= wanted.last
                && wanted.start <= range.last
                && (range.is_exclusive || wanted.is_exclusive)
        };
        self.ranges.iter().find(conflicts).copied()
    }

    /// Replaces what the owner has in a range: by a lock, or by none. Returns false at [`LOCKS_LIMIT`].
    pub fn set(&mut self, range: LockRange, is_locked: bool) -> bool {
        if self.ranges.len() + 2 > LOCKS_LIMIT {
            return false;
        }
        let mut kept = Vec::with_capacity(self.ranges.len() + 2);
        for other in self.ranges.drain(..) {
            if other.owner != range.owner || other.last < range.start || range.last < other.start {
                kept.push(other);
                continue;
            }
            if other.start < range.start {
                kept.push(LockRange { last: range.start - 1, ..other });
            }
            if other.last > range.last {
                kept.push(LockRange { start: range.last + 1, ..other });
            }
        }
        if is_locked {
            kept.push(range);
        }
        self.ranges = kept;
        true
    }

    /// Removes all locks of an owner.
    pub fn release(&mut self, owner: u64) {
        self.ranges.retain(|range| range.owner != owner);
    }

    /// Returns whether there are no locks.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_divided_and_conflict_with_others_only() {
        let lock = |start, last, is_exclusive, owner| LockRange { start, last, is_exclusive, owner };
        let mut locks = Locks::default();
        assert!(locks.set(lock(0, 99, true, 1), true));
        assert!(locks.set(lock(40, 59, true, 1), false));
        assert_eq!(locks.conflict(lock(40, 59, true, 2)), None);
        assert_eq!(locks.conflict(lock(59, 60, false, 2)), Some(lock(60, 99, true, 1)));
        assert_eq!(locks.conflict(lock(0, u64::MAX, true, 1)), None);
        assert!(locks.set(lock(60, 99, false, 1), true));
        assert_eq!(locks.conflict(lock(60, 60, false, 2)), None);
        locks.release(1);
        assert!(locks.is_empty());
    }
}
