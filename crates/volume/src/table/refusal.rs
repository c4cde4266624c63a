//! Why a request is not served: told to the client, counted by the server.

use super::{GrantNumber, PIECES_MAX};
use crate::extent::Bytes;
use crate::right::Access;

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No grant was ever given by that number.
    #[error("grant {grant} was never given; open a volume or pass a descriptor first")]
    Unknown {
        /// As the request names it.
        grant: GrantNumber,
    },
    /// The grant was given and taken back.
    #[error("grant {grant} was revoked; open its volume anew")]
    Revoked {
        /// As the request names it.
        grant: GrantNumber,
    },
    /// The grant does not allow that.
    #[error("{wanted} was asked for, and the grant allows {right}")]
    Right {
        /// What the request does.
        wanted: Access,
        /// What the grant allows.
        right: Access,
    },
    /// Offset and length together are beyond 64 bits.
    #[error("{length} from {offset} on end beyond 64 bits")]
    Overflow {
        /// As asked.
        offset: Bytes,
        /// As asked.
        length: Bytes,
    },
    /// It is not all within the grant.
    #[error("{length} from {offset} on were asked for, and the grant has {granted}")]
    Bounds {
        /// As asked.
        offset: Bytes,
        /// As asked.
        length: Bytes,
        /// What the grant has.
        granted: Bytes,
    },
    /// It falls into too many pieces on the device.
    #[error(
        "the device has that in more than {PIECES_MAX} pieces; ask for {served} at most from {offset} on"
    )]
    Scattered {
        /// As asked.
        offset: Bytes,
        /// How long a request from there on can be.
        served: Bytes,
    },
}
