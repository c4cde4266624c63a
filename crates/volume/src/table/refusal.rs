//! Reasons for refusing a request, which the client is told and the server counts.

use super::GrantNumber;
use crate::extent::Bytes;
use bywash_protocol::Access;

/// Reason for refusing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The number was never assigned to a grant.
    #[error("grant {grant} was never given; open a volume or pass a descriptor first")]
    Unknown {
        /// Number in the request.
        grant: GrantNumber,
    },
    /// The grant was revoked.
    #[error("grant {grant} was revoked; open its volume anew")]
    Revoked {
        /// Number in the request.
        grant: GrantNumber,
    },
    /// The grant does not allow the access.
    #[error("{wanted} access was requested, and the grant allows {right} access")]
    Right {
        /// Access that the request needs.
        wanted: Access,
        /// Access that the grant allows.
        right: Access,
    },
    /// The sum of offset and length exceeds 64 bits.
    #[error("{length} from {offset} on end beyond 64 bits")]
    Overflow {
        /// Offset in the request.
        offset: Bytes,
        /// Length in the request.
        length: Bytes,
    },
    /// The range extends beyond the end of the grant.
    #[error("{length} from {offset} on are not all within the grant, which has {granted}")]
    Bounds {
        /// Offset in the request.
        offset: Bytes,
        /// Length in the request.
        length: Bytes,
        /// Length of the grant.
        granted: Bytes,
    },
    /// A part of the range is not allocated on the device, or is to be written while other volumes have it, too: the grant
    /// is of a thin volume.
    #[error("{length} from {offset} on are not all of this volume alone; allocate or copy them first")]
    Unmapped {
        /// Offset in the request.
        offset: Bytes,
        /// Length in the request.
        length: Bytes,
    },
    /// The range is in more pieces on the device than one request may have, such as [`PIECES_MAX`](super::PIECES_MAX).
    #[error("the range has too many extents; request at most {served} from {offset} on")]
    Scattered {
        /// Offset in the request.
        offset: Bytes,
        /// Greatest length of a request at this offset.
        served: Bytes,
    },
}
