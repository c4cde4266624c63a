//! Ports: sockets that send and receive datagrams of either network layer.
//!
//! Invariant: a port waits only in [`Control::wait`], and only to send. Called by the endpoints and the
//! relay; implemented by [`super::udp::UdpPort`] and the ports of [`super::ether`].

use super::engine::Engine;
use super::name::Name;
use super::run::Run;
use crate::control::Control;
use crate::error::Error;
use std::os::fd::BorrowedFd;

/// A socket that sends and receives datagrams.
pub(crate) trait Port: Send {
    /// Returns the descriptor that is readable when datagrams have arrived.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Passes on the available datagrams, without waiting. Returns true if there were any.
    ///
    /// # Errors
    /// [`Error::Io`] with the name of this port, if a system call fails.
    fn receive(&mut self, take: &mut dyn FnMut(&[Run<'_>])) -> Result<bool, Error>;

    /// Sends all datagrams, to `to` or, without it, to the peer of this port.
    ///
    /// # Errors
    /// [`Error::Io`] with the name of this port, if a system call fails; [`Error::Cancelled`] if the flow is
    /// cancelled.
    fn send(&mut self, runs: &[Run<'_>], to: Option<&Name>, control: &Control) -> Result<(), Error>;

    /// Returns the kernel's counters of the socket.
    fn health(&mut self) -> Health;

    /// Returns the engine in use.
    fn engine_state(&self) -> EngineState;

    /// Returns the text of the endpoint.
    fn label(&self) -> &str;

    /// Returns the number in the port field of this port's packets.
    fn number(&self) -> u16;

    /// Returns the greatest size of a datagram on the path, in bytes; `None` if unknown.
    fn datagram_bytes_max(&self) -> Option<usize>;
}

/// Kernel's counters of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    /// Number of datagrams dropped because the receive buffer was full.
    pub drops: u64,
    /// Size of the receive buffer, in bytes.
    pub buffer: u64,
}

/// Engine of a port.
#[derive(Clone, Debug)]
pub(crate) struct EngineState {
    pub engine: Engine,
    /// Reason why the engine chosen first was given up; `None` if it was not.
    pub fell_back: Option<String>,
}
