//! The error of the shipping operations, which hands back the containers that were not shipped.

use bywash_link::Error;

/// A failed shipment: its error, and the containers, which the caller owns again.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ShipError<T> {
    /// Reason of the failure.
    #[source]
    pub error: Error,
    /// The containers that were to be shipped, with their contents unchanged.
    pub shipment: T,
}
