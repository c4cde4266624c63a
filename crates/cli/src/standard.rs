//! Standard input, output and error as this command uses them.
//!
//! Invariant: nobody who reads what is told there can make the command fail: a standard error that is closed, full or
//! gone loses the words and nothing else. The macros that print panic there, and are denied in this crate. Called by
//! everything that tells something.

use rustix::fs::{Mode, OFlags};
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd};

/// Tells a line on standard error.
pub fn say(line: impl Display) {
    // In one write, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Standard error as a writer that does not fail.
pub struct Unfailing;

impl Write for Unfailing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes the numbers of standard descriptors that are closed, so that no file of this command's gets one of them and
/// is written what is meant for people. Each is opened the wrong way round, as gnulib's stdopen does it: whoever uses it
/// is told that it is no such descriptor, and not that all is well. Programs that are started find them closed.
pub fn take_closed_descriptors() {
    const NULL: &str = "/dev/null";
    // At most the three of them, and one more that tells that all are taken.
    while let Ok(lowest) = rustix::fs::open(NULL, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        let number = lowest.as_raw_fd();
        if number > 2 {
            return;
        }
        let taken = if number == 0 {
            drop(lowest);
            // The lowest number that is free is this one again: there is one thread.
            rustix::fs::open(NULL, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        } else {
            Ok(lowest)
        };
        match taken {
            // It stays open as long as the process lives.
            Ok(descriptor) => _ = descriptor.into_raw_fd(),
            Err(_) => return,
        }
    }
}
