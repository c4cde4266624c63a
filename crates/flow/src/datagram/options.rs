//! What the user says about the datagram ends of a flow, and about a relay between two.
//!
//! Invariant: plain values; nothing is opened here. Made by who reads the words of the command.

use super::engine::Engine;
use crate::mac::Mac;
use std::time::Duration;

/// Silence of the sender of a sequenced transfer after which it counts as gone, where nothing else is said.
const SILENCE: Duration = Duration::from_secs(60);

/// `udp:HOST:PORT` and `udp-listen:ADDR:PORT`.
#[derive(Clone, Debug, Default)]
pub(crate) struct UdpOptions {
    /// `HOST:PORT`, names and numbers.
    pub address: String,
    /// Packets carry a header that tells what was lost.
    pub sequenced: bool,
    /// Payload bytes of a datagram; without it as many as fit the way.
    pub size: Option<usize>,
    /// Silence that ends a receiver after the first datagram; zero: none does.
    pub idle: Option<Duration>,
    /// By which calls; without it the best that works.
    pub engine: Option<Engine>,
    /// Bytes of the socket's receive buffer.
    pub receive_buffer: Option<usize>,
    /// How fast a sender sends.
    pub rate: Rate,
}

/// `eth:IFACE,to=MAC,port=N` and `eth-listen:IFACE,port=N[,from=MAC]`. Always sequenced.
#[derive(Clone, Debug, Default)]
pub(crate) struct EthOptions {
    /// The device's name.
    pub interface: String,
    /// `to=` of a sender; `from=` of a receiver, which then takes nothing from others.
    pub mac: Option<Mac>,
    /// Tells flows on one device apart.
    pub port: u16,
    /// As for UDP.
    pub size: Option<usize>,
    /// As for UDP.
    pub idle: Option<Duration>,
    /// As for UDP.
    pub engine: Option<Engine>,
    /// Bytes of the receive ring, or of the socket's receive buffer.
    pub receive_buffer: Option<usize>,
    /// As for UDP.
    pub rate: Rate,
}

/// A datagram end of either medium.
#[derive(Clone, Debug)]
pub(crate) enum DatagramEndpoint {
    Udp(UdpOptions),
    Eth(EthOptions),
}

impl DatagramEndpoint {
    /// Silence that the user said ends it; none: nothing was said, or that none does.
    pub(crate) fn idle(&self) -> Option<Duration> {
        self.said().filter(|idle| !idle.is_zero())
    }

    /// Silence in the middle of a sequenced transfer that means that its sender is gone; none: it is waited
    /// for.
    pub(crate) fn silence(&self) -> Option<Duration> {
        match self.said() {
            None => Some(SILENCE),
            Some(_) => self.idle(),
        }
    }

    fn said(&self) -> Option<Duration> {
        match self {
            DatagramEndpoint::Udp(options) => options.idle,
            DatagramEndpoint::Eth(options) => options.idle,
        }
    }
}

/// How fast a sender sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rate {
    /// As fast as the kernel takes it.
    #[default]
    Unlimited,
    /// So many payload bytes a second.
    Fixed(u64),
    /// The highest at which nothing is lost, found before the data is sent. Needs a sequenced receiver that
    /// answers.
    Auto,
}

/// How datagrams are passed on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RelayOptions {
    /// The relay ends when nothing came for so long after the first datagram.
    pub idle: Option<Duration>,
    /// It ends after so many payload bytes.
    pub limit: Option<u64>,
}
