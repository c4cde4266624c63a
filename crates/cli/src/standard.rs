//! Standard input, output and error as this command uses them.
//!
//! Invariant: no reader of standard error can make the command fail. A standard error that is closed, full or
//! gone loses the text and has no other effect. The macros that print panic in this case, and are denied in
//! this crate. All code that prints messages calls this module.

use rustix::fs::{Mode, OFlags};
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd};

/// Prints a line to standard error and ignores failures.
pub fn say(line: impl Display) {
    // One write for the whole line, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Standard error as a writer that never fails.
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

/// Opens /dev/null at the numbers of standard descriptors that are closed, so that no file of this command
/// gets one of these numbers and receives messages for people. Standard input is opened for writing and the
/// others for reading, as gnulib's stdopen does: using them fails instead of succeeding silently. Programs
/// that this command starts find the descriptors closed.
pub fn take_closed_descriptors() {
    const NULL: &str = "/dev/null";
    // Opens at most the three standard descriptors, and one more whose number shows that all three are taken.
    while let Ok(lowest) = rustix::fs::open(NULL, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        let number = lowest.as_raw_fd();
        if number > 2 {
            return;
        }
        let taken = if number == 0 {
            drop(lowest);
            // The lowest free number is 0 again, because this process has only one thread.
            rustix::fs::open(NULL, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        } else {
            Ok(lowest)
        };
        match taken {
            // The descriptor stays open for the life of the process.
            Ok(descriptor) => _ = descriptor.into_raw_fd(),
            Err(_) => return,
        }
    }
}
