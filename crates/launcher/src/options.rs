//! Command lines that the launcher parses: `run` with options whose values need no check.
//!
//! Invariant: a line that is parsed here has the same meaning as for the command (`cli::tests` checks this);
//! any other line, including a wrong one, is left to the command.

/// Options of a `bywash run` in the plain form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// True if `--off` was given.
    pub off: bool,
    /// True if `--writes` was given.
    pub writes: bool,
    /// Index of the program among the words after `bywash`.
    pub program: usize,
}

/// Parses the words after `bywash`; `None` leaves the line to the command.
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
            // A word that begins with a dash may be an option that only the command knows.
            _ => return (!word.is_empty() && !word.starts_with(b"-")).then_some(options),
        };
        if core::mem::replace(flag, true) {
            return None;
        }
        options.program += 1;
    }
    None
}
