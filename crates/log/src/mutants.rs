//! Deliberate faults of a log, for tests of its crash tests: each must be convicted by them (`tests/power`).
//!
//! They exist in builds with the feature `mutants` only, which nobody but those tests makes. There the environment variable
//! `MUTANT_OF_BYWASH` chooses one of them. In every other build [`is_chosen`] is the constant false, and no trace is left.

/// Promise of a log that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    /// Programs write the log without waiting until the disk has flushed it.
    FlushLeftOut = 1,
    /// A batch is written and acknowledged before the one before it.
    WrongOrder,
    /// The checksum of a batch is not compared.
    ChecksumMissing,
    /// The mark of a sync by the kernel is left to the next one, after the sync has returned.
    MarkLate,
    /// A commit reads the file before it draws its sequence number and takes the ranges.
    SequenceLate,
    /// Recovery writes files although the boot has not ended.
    ReplayAfterKill,
    /// Records are made dead after the truncation of their file.
    TruncationLate,
}

/// Returns true if this fault was chosen.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is_chosen(_mutant: Mutant) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub use chosen::{VARIABLE, is_chosen, pause};

#[cfg(feature = "mutants")]
mod chosen {
    use super::Mutant;
    use crate::sys;
    use core::ffi::CStr;
    use core::sync::atomic::Ordering::Relaxed;
    use core::sync::atomic::{AtomicU8, AtomicU32};

    /// Environment variable that names a fault.
    pub const VARIABLE: &CStr = c"MUTANT_OF_BYWASH";
    /// Names of the faults.
    const NAMES: [(&CStr, Mutant); 7] = [
        (c"flush-left-out", Mutant::FlushLeftOut),
        (c"wrong-order", Mutant::WrongOrder),
        (c"checksum-missing", Mutant::ChecksumMissing),
        (c"mark-late", Mutant::MarkLate),
        (c"sequence-late", Mutant::SequenceLate),
        (c"replay-after-kill", Mutant::ReplayAfterKill),
        (c"truncation-late", Mutant::TruncationLate),
    ];
    const UNKNOWN: u8 = u8::MAX;
    /// Number of the chosen fault; 0: none.
    static CHOSEN: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Returns true if the environment of this process chose this fault when it was first asked for.
    pub fn is_chosen(mutant: Mutant) -> bool {
        let mut chosen = CHOSEN.load(Relaxed);
        if chosen == UNKNOWN {
            chosen = named();
            CHOSEN.store(chosen, Relaxed);
        }
        chosen == mutant as u8
    }

    fn named() -> u8 {
        // SAFETY: the name is a C string. The test's program does not change its environment.
        let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
        if value.is_null() {
            return 0;
        }
        // SAFETY: a variable's value is a C string, which stays as it is.
        let value = unsafe { CStr::from_ptr(value) };
        let found = NAMES.iter().find(|(name, _)| *name == value);
        assert!(found.is_some() || value.is_empty(), "the variable names a fault");
        found.map_or(0, |(_, mutant)| *mutant as u8)
    }

    /// Lets others work for a time in ns, less than a second, in which a fault is open.
    pub fn pause(ns: u32) {
        sys::wait(&AtomicU32::new(0), 0, ns);
    }
}
