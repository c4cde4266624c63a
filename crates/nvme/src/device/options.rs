//! Options of a device.

use crate::error::Error;
use std::time::Duration;

/// Greatest depth of a device.
pub const DEPTH_MAX: usize = 4096;
/// Greatest number of pairs of I/O queues of a device.
pub const QUEUES_MAX: u16 = 64;
/// Options of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of the namespace; `None` for the only one.
    pub namespace: Option<u32>,
    /// Greatest number of pairs of I/O queues, 1 to 64; the controller may grant fewer.
    pub queues: u16,
    /// Greatest number of commands in flight, 1 to 4096.
    pub depth: usize,
    /// True if completions cause interrupts, so that a user can sleep; otherwise the device can only be polled.
    pub interrupts: bool,
    /// True if shadow doorbells are used where the controller offers them: they save a guest from most writes of
    /// registers, each of which is an exit to the hypervisor.
    pub shadow_doorbells: bool,
    /// True if the device may only be read.
    pub read_only: bool,
    /// Time after which a command is aborted.
    pub timeout: Duration,
    /// Time after which an Abort command has not helped, so that the controller is reset.
    pub abort_timeout: Duration,
}

impl Default for Options {
    /// One pair of queues, depth 128, interrupts, shadow doorbells, 30 s and 5 s.
    fn default() -> Options {
        Options {
            namespace: None,
            queues: 1,
            depth: 128,
            interrupts: true,
            shadow_doorbells: true,
            read_only: false,
            timeout: Duration::from_secs(30),
            abort_timeout: Duration::from_secs(5),
        }
    }
}

impl Options {
    pub(super) fn check(&self) -> Result<(), Error> {
        let refused = |option, what: String| Err(Error::Option { option, what });
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return refused("depth", format!("is {}, and has to be from 1 to {DEPTH_MAX}", self.depth));
        }
        if !(1..=QUEUES_MAX).contains(&self.queues) {
            return refused("queues", format!("is {}, and has to be from 1 to {QUEUES_MAX}", self.queues));
        }
        if matches!(self.namespace, Some(0 | u32::MAX)) {
            return refused("namespace", "is no number of a namespace: they are from 1 to 4294967294".into());
        }
        Ok(())
    }
}
