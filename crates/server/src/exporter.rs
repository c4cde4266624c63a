//! Exports of volumes by the process that the server runs in.
//!
//! The server itself knows no protocol but its own: whoever starts it may also export volumes by others, and then tells
//! the server how ([`crate::Server::set_exporter`]).

use bywash_protocol::report::Export;
use bywash_protocol::{ExportProtocol, Refusal};

/// Exporter of the server's volumes to programs that are no clients. It uses the server as clients do.
///
/// The administrator's thread calls the methods that change exports, one after the other. They may wait for the server.
pub trait Exporter: Send + Sync {
    /// Exports a volume at an address with options, as the request of an administrator says.
    ///
    /// # Errors
    /// The refusal for the administrator, if the volume cannot be exported there.
    fn export(&self, volume: &str, protocol: ExportProtocol, address: &str) -> Result<(), Refusal>;

    /// Ends the exports of a volume: all, or only one. Returns when no request of theirs is in flight.
    ///
    /// # Errors
    /// The refusal for the administrator, if there is no such export, or requests in flight do not complete.
    fn unexport(&self, volume: &str, only: Option<(ExportProtocol, &str)>) -> Result<(), Refusal>;

    /// Tells that a volume has another size. Called by the administrator's thread; it must not wait for requests.
    fn resized(&self, volume: &str);

    /// Reports the exports. Called by the control thread: it must not wait for the server.
    fn report(&self) -> Vec<Export>;
}
