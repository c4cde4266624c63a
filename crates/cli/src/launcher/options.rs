//! Command lines that the launcher reads: `run` with options that need no look at their values.
//!
//! Invariant: what is read here means what it means to the command (`cli::tests`); anything else, also what is wrong, is
//! the command's.

/// A `bywash run` of the plain form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `--off` was given.
    pub off: bool,
    /// `--writes` was given.
    pub writes: bool,
    /// Index of the program among the words behind `bywash`.
    pub program: usize,
}

/// Reads the words behind `bywash`; `None` when the command has to.
pub fn read<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<Options> {
    if words.next()? != b"run" {
        return None;
    }
    let mut options = Options { off: false, writes: false, program: 1 };
    let mut is_ended = false;
    for word in words {
        let flag = match word {
            b"--" if !is_ended => {
                is_ended = true;
                options.program += 1;
                continue;
            }
            b"--off" if !is_ended => &mut options.off,
            b"--writes" if !is_ended => &mut options.writes,
            // A dash can be the beginning of an option that is not known here.
            _ => return (!word.is_empty() && !word.starts_with(b"-")).then_some(options),
        };
        if core::mem::replace(flag, true) {
            return None;
        }
        options.program += 1;
    }
    None
}
