//! Hardware behind a device that can be handed to a client: who has it, and what that means for others.
//!
//! Invariant: only [`direct`](super::direct) changes the holder. Called by whoever opens volumes or drops devices.

use bywash_device::Grantable;
use std::sync::Arc;

/// Hardware behind a device, and who has it.
#[derive(Clone, Debug)]
pub(crate) struct Hardware {
    pub(crate) grantable: Arc<dyn Grantable>,
    pub(crate) holder: Holder,
}

/// Holder of hardware.
#[derive(Clone, Debug)]
pub(crate) enum Holder {
    /// The core serves the device.
    Core,
    /// The hardware is changing hands.
    Nobody,
    /// A client has the hardware by this grant.
    Client { client: u64, grant: u64 },
    /// Nobody should have the hardware, and it cannot be opened yet.
    Missing {
        /// True if it is certain that nobody reaches anything by it.
        is_cut_off: bool,
        /// Reason why it cannot be opened.
        why: String,
    },
}

impl Hardware {
    /// Makes the state of hardware whose device the core serves.
    pub(crate) fn of_device(grantable: Arc<dyn Grantable>) -> Hardware {
        Hardware { grantable, holder: Holder::Core }
    }

    /// Returns the grant by which a client has the hardware.
    pub(crate) fn held_by(&self, client: u64) -> Option<u64> {
        match self.holder {
            Holder::Client { client: holder, grant } if holder == client => Some(grant),
            _ => None,
        }
    }

    /// Returns the reason why the device `name` can neither be used nor be dropped now.
    pub(crate) fn obstacle(&self, name: &str) -> Option<String> {
        match &self.holder {
            Holder::Core => None,
            Holder::Nobody => Some(format!("device '{name}' is just changing hands; try again")),
            Holder::Client { client, .. } => Some(format!(
                "client {client} has device '{name}' to itself, by a direct grant; end it, or take the grant back by \
                 `bywash volume revoke`"
            )),
            Holder::Missing { why, .. } => {
                Some(format!("device '{name}' was taken back from a client, and cannot be opened yet: {why}"))
            }
        }
    }
}
