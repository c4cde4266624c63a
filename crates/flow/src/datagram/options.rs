//! Options of datagram endpoints, and of the relay between two.
//!
//! Plain values, made by [`crate::endpoint`].

use super::engine::Engine;
use crate::mac::Mac;
use std::time::Duration;

/// Default time after which a silent sender of a sequenced transfer counts as dead.
const SILENCE: Duration = Duration::from_secs(60);

/// Options of `udp:HOST:PORT` and `udp-listen:ADDR:PORT`.
#[derive(Clone, Debug, Default)]
pub(crate) struct UdpOptions {
    /// Host name or address and port, as `HOST:PORT`.
    pub address: String,
    /// True if packets carry headers with sequence numbers.
    pub sequenced: bool,
    /// Payload of a datagram in bytes; `None` for as many as the path carries.
    pub size: Option<usize>,
    /// Silence after the first datagram that ends a receiver; zero for never; `None` for a default.
    pub idle: Option<Duration>,
    /// Engine that the user forces; `None` for the best one.
    pub engine: Option<Engine>,
    /// Size of the socket's receive buffer in bytes; `None` for a default.
    pub receive_buffer: Option<usize>,
    /// Rate of a sender.
    pub rate: Rate,
}

/// Options of `eth:IFACE,to=MAC,port=N` and `eth-listen:IFACE,port=N[,from=MAC]`, which are always sequenced.
#[derive(Clone, Debug, Default)]
pub(crate) struct EthOptions {
    /// Name of the network device.
    pub interface: String,
    /// Destination of a sender, or the only accepted source of a receiver.
    pub mac: Option<Mac>,
    /// Number that distinguishes flows on one device.
    pub port: u16,
    /// Payload of a frame in bytes; `None` for as many as the device carries.
    pub size: Option<usize>,
    /// Silence after the first frame that ends a receiver; zero for never; `None` for a default.
    pub idle: Option<Duration>,
    /// Engine that the user forces; `None` for the best one.
    pub engine: Option<Engine>,
    /// Size of the receive ring or socket buffer in bytes; `None` for a default.
    pub receive_buffer: Option<usize>,
    /// Rate of a sender.
    pub rate: Rate,
}

/// A datagram endpoint of either network layer.
#[derive(Clone, Debug)]
pub(crate) enum DatagramEndpoint {
    Udp(UdpOptions),
    Eth(EthOptions),
}

impl DatagramEndpoint {
    /// Returns the idle time that the user gave; `None` if the user gave none, or never.
    pub(crate) fn idle(&self) -> Option<Duration> {
        self.said().filter(|idle| !idle.is_zero())
    }

    /// Returns the silence after which the sender of a sequenced transfer counts as dead; `None` for never.
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

/// Rate of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rate {
    /// As fast as the kernel accepts datagrams.
    #[default]
    Unlimited,
    /// Fixed rate, in payload bytes a second.
    Fixed(u64),
    /// Highest rate without loss, found before the data is sent. The receiver must be running and
    /// `sequenced`.
    Auto,
}

/// Options of a relay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RelayOptions {
    /// Silence after the first datagram that ends the relay; `None` for never.
    pub idle: Option<Duration>,
    /// Number of bytes after which the relay ends; `None` for no limit.
    pub limit: Option<u64>,
}
