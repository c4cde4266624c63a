//! `eth:IFACE,to=MAC|IP,port=N`, `eth-listen:IFACE,port=N`: Ethernet frames of type 0x0A0A.

use super::udp::{open_sink, open_source};
use super::{Direction, Endpoint, EndpointKind, EndpointType, OpenContext};
use crate::datagram::{DatagramEndpoint, Engine, EthOptions, Rate, mac_of};
use crate::end::{OpenedStream, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::{End, Kind};
use crate::mac::Neighbour;
use crate::movers::Mover;
use bywash_options::{Escaped, OptionRow, Row, Value, Words, number, option};
use bywash_quantity::TimeUnit;
use std::fmt;
use std::time::Duration;

/// Ethernet frames as an end of a flow; always with sequence numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ethernet {
    /// Name of the network interface.
    interface: String,
    /// Number that tells apart several flows between two machines.
    port: u16,
    /// True for the end that receives.
    listen: bool,
    /// Machine to send to, or the only one to receive from; `None` for a receiver that accepts any.
    peer: Option<Neighbour>,
    /// Payload of a frame, in bytes; `None` for as many as fit the network.
    size: Option<u32>,
    /// Receiver: silence after the first frame that makes the flow fail, or ends a relay; zero for never;
    /// `None` for 60 s, in a relay never.
    idle: Option<Duration>,
}

const PORT: OptionRow =
    OptionRow::new("port", Value::Number, "number that tells apart flows between two machines; required");
const SIZE: OptionRow = OptionRow::new(
    "size",
    Value::Number,
    "payload of a frame in bytes, at most; none: what the network carries",
);
const IDLE: OptionRow = OptionRow::new(
    "idle",
    Value::Duration(TimeUnit::Second),
    "receiver: silence after the first frame that makes it fail; none: 60, in a relay never",
);

pub(super) static CONNECT: EndpointKind = EndpointKind {
    row: Row {
        name: "eth",
        address: "IFACE",
        sentence: "sends Ethernet frames of type 0x0A0A, which carry numbers; needs CAP_NET_RAW",
        options: &[
            OptionRow::new(
                "to",
                Value::Text("MAC|IP"),
                "machine to send to; required; an address of IPv4 is looked up in the table of `ip neighbour`",
            ),
            PORT,
            SIZE,
            IDLE,
        ],
    },
    parse: |words| parse(words, false),
};

pub(super) static LISTEN: EndpointKind = EndpointKind {
    row: Row {
        name: "eth-listen",
        address: "IFACE",
        sentence: "receives Ethernet frames of type 0x0A0A",
        options: &[
            OptionRow::new("from", Value::Text("MAC|IP"), "the only machine to receive from"),
            PORT,
            SIZE,
            IDLE,
        ],
    },
    parse: |words| parse(words, true),
};

/// Returns the name of the option for the other machine.
fn peer_option(listen: bool) -> &'static str {
    if listen { "from" } else { "to" }
}

fn parse(words: &mut Words<'_>, listen: bool) -> Result<Endpoint, Error> {
    let ethernet = Ethernet {
        interface: words.address()?.to_owned(),
        listen,
        peer: words.value(peer_option(listen), str::parse)?,
        port: words.value("port", number)?.ok_or_else(|| words.error("a port is missing: port=N"))?,
        size: words.value("size", number)?,
        idle: words.duration("idle")?,
    };
    words.check_all_taken()?;
    if ethernet.interface.is_empty() {
        return Err(words.error("an interface is missing behind the colon, as in eth:eth0").into());
    }
    if !listen && ethernet.peer.is_none() {
        return Err(words.error("to whom? Give to=MAC or to=IP, as in to=02:00:00:00:00:01").into());
    }
    Ok(Endpoint::new(ethernet))
}

impl EndpointType for Ethernet {
    fn inspect_source(&self) -> Result<End, Error> {
        Ok(End::new(self.to_string(), Kind::Ethernet))
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        self.inspect_source()
    }

    fn waits_for_peer(&self) -> bool {
        false
    }

    fn open_source(&self, context: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        open_source(self, context)
    }

    fn open_sink(
        &self,
        context: &OpenContext<'_>,
        settings: &SinkSettings,
    ) -> Result<OpenedStream<Sink>, Error> {
        open_sink(self, context, settings)
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Err(Error::Usage(format!("{self} cannot be the sink of several connections at once")))
    }

    fn datagrams(
        &self,
        direction: Direction,
        via: Option<Mover>,
        rate: Rate,
    ) -> Result<Option<DatagramEndpoint>, Error> {
        if self.listen != (direction == Direction::Receive) {
            return Ok(None);
        }
        Ok(Some(DatagramEndpoint::Eth(EthOptions {
            interface: self.interface.clone(),
            mac: self.peer.map(|peer| mac_of(peer, &self.interface)).transpose()?,
            port: self.port,
            size: self.size.map(|size| size as usize),
            idle: self.idle,
            engine: via.and_then(Engine::from_mover),
            receive_buffer: None,
            rate,
        })))
    }
}

impl fmt::Display for Ethernet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.listen { "eth-listen" } else { "eth" };
        write!(out, "{name}:{}", Escaped(&self.interface))?;
        option(out, peer_option(self.listen), self.peer)?;
        option(out, "port", Some(self.port))?;
        option(out, "size", self.size)?;
        option(out, "idle", self.idle.map(|idle| idle.as_secs_f64()))
    }
}
