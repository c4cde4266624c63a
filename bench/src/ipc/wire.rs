//! The calls that all transports have, and how their ends wait.

use super::broken;
use crate::error::Error;
use serde::{Deserialize, Serialize};

/// One end of a transport.
pub trait Wire {
    /// Sends a message of `bytes`, each word of which is made from `seed`; returns their sum.
    ///
    /// # Errors
    /// [`Error::Failed`] if the transport breaks.
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Error>;

    /// Receives a message of `bytes`; returns the sum of its words.
    ///
    /// # Errors
    /// [`Error::Failed`] if the transport breaks or the message has another length.
    fn receive(&mut self, bytes: usize) -> Result<u64, Error>;
}

/// Checks the length of a message.
pub fn check_length(got: usize, wanted: usize) -> Result<(), Error> {
    match got == wanted {
        true => Ok(()),
        false => Err(broken(format!("received {got} bytes instead of {wanted}"))),
    }
}

/// Waiting of a container's or channel's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// It looks at memory.
    Spin,
    /// It sleeps on a futex.
    Sleep,
    /// It looks at memory for as long as that has paid recently, then sleeps.
    Adaptive,
}

impl From<Wait> for bywash_container::Wait {
    fn from(wait: Wait) -> bywash_container::Wait {
        match wait {
            Wait::Spin => bywash_container::Wait::Spin,
            Wait::Sleep => bywash_container::Wait::Sleep,
            Wait::Adaptive => bywash_container::Wait::Adaptive,
        }
    }
}
