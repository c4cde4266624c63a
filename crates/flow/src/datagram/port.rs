//! A port: where datagrams of any medium come and go.
//!
//! Invariant: a port never waits but in [`Control::wait`], and only to send. Called by the ends and by the relay;
//! implemented by [`super::udp::UdpPort`] and [`super::ether::EthPort`].

use super::engine::Engine;
use super::name::Name;
use super::run::Run;
use crate::control::Control;
use crate::error::Error;
use std::os::fd::BorrowedFd;

/// Where datagrams come and go.
pub(crate) trait Port: Send {
    /// What to wait for.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Hands on what is there without waiting; whether anything was.
    ///
    /// # Errors
    /// The kernel's, by the name of this port.
    fn receive(&mut self, take: &mut dyn FnMut(&[Run<'_>])) -> Result<bool, Error>;

    /// Sends all of it, to where this port leads or to who is named.
    ///
    /// # Errors
    /// The kernel's, by the name of this port, or that the flow was cancelled.
    fn send(&mut self, runs: &[Run<'_>], to: Option<&Name>, control: &Control) -> Result<(), Error>;

    /// What the kernel counted.
    fn health(&mut self) -> Health;

    /// By what the datagrams go.
    fn ways(&self) -> Ways;

    /// As the user wrote it.
    fn label(&self) -> &str;

    /// The number that packets here carry in the field of the port.
    fn number(&self) -> u16;

    /// Most bytes of a datagram on the way from here, as far as that is known.
    fn datagram_bytes_max(&self) -> Option<usize>;
}

/// What the kernel counted at a port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    /// Datagrams that it dropped because nobody fetched them in time.
    pub drops: u64,
    /// Bytes of the receive buffer.
    pub buffer: u64,
}

/// By what datagrams go.
#[derive(Clone, Debug)]
pub(crate) struct Ways {
    pub engine: Engine,
    /// Why it is not the engine that was begun with.
    pub fell_back: Option<String>,
}
