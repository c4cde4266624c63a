//! Hardware behind a device that can be handed to one process whole, so that no server takes part in its I/O.
//!
//! ```text
//!   open ──► device of this process ──dropped──► hand_over ──► descriptors for another process
//!     ▲                                                              │
//!     └──────── once the other process has closed them ◄── revoke ┘
//! ```
//!
//! Invariant: after [`Grantable::revoke`] the other process reaches no block any more, whether or not it has closed
//! its descriptors. Called by a server that grants its devices directly.

use crate::device::Device;
use crate::error::Error;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Hardware behind a device that can be handed to one process.
pub trait Grantable: fmt::Debug + Send + Sync {
    /// Opens the device in this process. Waits until the hardware is ready.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the hardware cannot be used, for example because the process that it was handed to has not
    /// closed it; [`Error::Io`] if a system call fails.
    fn open(&self) -> Result<Box<dyn Device>, Error>;

    /// Makes the hardware ready for another process, and opens descriptors that this process may be given. The device
    /// of this process was dropped before.
    ///
    /// # Errors
    /// Same as [`Grantable::open`].
    fn hand_over(&self) -> Result<Handover, Error>;

    /// Ends all access of the process that the hardware was handed to. Commands of this process in flight end without
    /// an effect, or with their whole effect.
    ///
    /// # Errors
    /// [`Error::Unfit`] or [`Error::Io`] if the hardware does not confirm that: it must not be handed to anybody then.
    fn revoke(&self) -> Result<(), Error>;

    /// Returns in words by which means the process that has the hardware could harm users of other parts of it, such as
    /// "its controller carries out Format NVM"; `None` if the hardware limits the process to its own part.
    fn hazard(&self) -> Option<String>;

    /// Describes the hardware in words.
    fn description(&self) -> String;
}

/// Hardware that another process may be given.
#[derive(Debug)]
pub struct Handover {
    /// Descriptors in the order that the driver in the other process expects.
    pub descriptors: Vec<OwnedFd>,
    /// Address of the hardware, as the driver in the other process parses it.
    pub address: String,
    /// Number of the namespace that the hardware has.
    pub namespace: u32,
}

/// One of the devices of a [`Spec`](crate::Spec).
pub struct DevicePart {
    /// Name of the part, which follows the device's name and a point; `None` for a device without parts.
    pub name: Option<String>,
    /// The open device.
    pub device: Box<dyn Device>,
    /// Hardware behind the device, if it can be handed to a process.
    pub grantable: Option<Arc<dyn Grantable>>,
}

impl fmt::Debug for DevicePart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "part {:?} of a device: {}", self.name, self.device.description())
    }
}
