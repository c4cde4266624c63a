//! What comes back when something could not be shipped.

use bywash_link::Error;

/// What was to be shipped, and why it was not.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotShipped<T> {
    /// Why.
    #[source]
    pub error: Error,
    /// What was given, unharmed.
    pub cargo: T,
}
