//! `udp:HOST:PORT`, `udp-listen:[ADDRESS:]PORT`: UDP datagrams, or a QUIC stream with `reliable`.

use super::host::{Host, host_and_port};
use super::quic::Quic;
use super::{Direction, Endpoint, EndpointKind, EndpointType, OpenContext, UnnumberedDatagrams};
use crate::congestion::Congestion;
use crate::datagram::{self, DatagramEndpoint, Engine, Ledger, Rate, UdpOptions};
use crate::end::{OpenedStream, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::{End, Kind};
use crate::movers::Mover;
use bywash_options::{OptionRow, Row, Value, Words, flag, number, option};
use bywash_quantity::TimeUnit;
use std::fmt;
use std::time::Duration;

/// UDP datagrams as an end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Udp {
    /// Host name or address; empty for a receiver at all addresses of this machine.
    host: String,
    /// UDP port number.
    port: u16,
    /// True for the end that receives.
    listen: bool,
    /// Payload of a datagram, in bytes; `None` for as many as fit the network.
    size: Option<u32>,
    /// Receiver: silence after the first datagram that ends a plain flow or a relay, and makes a sequenced
    /// flow fail; zero for never; `None` for 60 s if sequenced, else never.
    idle: Option<Duration>,
    /// Plain receiver: true if datagrams that the kernel dropped do not make the flow fail.
    lossy: bool,
    /// True if the datagrams carry sequence numbers, so that loss is detected.
    sequenced: bool,
}

/// Names of the options that may be given only together with `reliable`.
const RELIABLE_OPTIONS: [&str; 5] = ["pin", "insecure", "identity", "timeout", "congestion"];

const OPTIONS: &[OptionRow] = &[
    OptionRow::new(
        "size",
        Value::Number,
        "payload of a datagram in bytes, at most; none: what the network carries",
    ),
    OptionRow::new(
        "idle",
        Value::Duration(TimeUnit::Second),
        "receiver: silence that ends it after the first datagram; none: never, if sequenced 60, which is an error",
    ),
    OptionRow::flag("lossy", "plain receiver: what the kernel drops is no failure"),
    OptionRow::flag("sequenced", "datagrams carry numbers, so that loss is known; both ends must say it"),
    OptionRow::flag("reliable", "a QUIC stream, which loses nothing; both ends must say it"),
    OptionRow::new("pin", Value::Text("FINGERPRINT"), "reliable: SHA-256 of the peer's certificate"),
    OptionRow::flag("insecure", "reliable: whoever answers at the address is trusted"),
    OptionRow::new("identity", Value::Text("FILE"), "reliable: file that keeps this end's certificate"),
    OptionRow::new(
        "timeout",
        Value::Duration(TimeUnit::Second),
        "reliable: greatest time that the peer may be silent",
    )
    .or("10"),
    OptionRow::new(
        "congestion",
        Value::Choice(Congestion::NAMES),
        "reliable: congestion control; bbr is for networks that lose packets at any rate",
    )
    .or("cubic"),
];

pub(super) static CONNECT: EndpointKind = EndpointKind {
    row: Row { name: "udp", address: "HOST:PORT", sentence: "sends UDP datagrams", options: OPTIONS },
    parse: |words| parse(words, false),
};

pub(super) static LISTEN: EndpointKind = EndpointKind {
    row: Row {
        name: "udp-listen",
        address: "[ADDRESS:]PORT",
        sentence: "receives UDP datagrams",
        options: OPTIONS,
    },
    parse: |words| parse(words, true),
};

fn parse(words: &mut Words<'_>, listen: bool) -> Result<Endpoint, Error> {
    let (host, port) = host_and_port(words, listen)?;
    let udp = Udp {
        host: host.clone(),
        port,
        listen,
        size: words.value("size", number)?,
        idle: words.duration("idle")?,
        lossy: words.flag("lossy")?,
        sequenced: words.flag("sequenced")?,
    };
    let reliable = words.flag("reliable")?;
    let quic = Quic {
        host,
        port,
        listen,
        pin: words.value("pin", fingerprint)?,
        insecure: words.flag("insecure")?,
        identity: words.path_value("identity")?,
        timeout: words.duration("timeout")?,
        congestion: words.value("congestion", Congestion::named)?,
    };
    words.check_all_taken()?;
    if udp.sequenced && reliable {
        return Err(words.error("what is reliable needs no numbers: give 'sequenced' or 'reliable'").into());
    }
    if udp.lossy && (udp.sequenced || reliable || !udp.listen) {
        return Err(words
            .error("lossy is for a receiver of plain datagrams, and nobody else loses any unsaid")
            .into());
    }
    match reliable {
        false if quic.has_options() => Err(words
            .error(format!("{} are for 'reliable', which is not there", RELIABLE_OPTIONS.join(", ")))
            .into()),
        false => Ok(Endpoint::new(udp)),
        true if udp.size.is_some() || udp.idle.is_some() => {
            Err(words.error("size and idle are for plain and sequenced datagrams, not for 'reliable'").into())
        }
        true => Ok(Endpoint::new(quic)),
    }
}

fn fingerprint(text: &str) -> Result<String, String> {
    let digits: String =
        text.chars().filter(|letter| *letter != ':').collect::<String>().to_ascii_lowercase();
    match digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        true => Ok(digits),
        false => Err(format!("'{text}' is no SHA-256 fingerprint: give its 64 hexadecimal digits")),
    }
}

impl Udp {
    /// Returns host and port as one text; an empty host becomes `::`.
    fn address(&self) -> String {
        let host = if self.host.is_empty() { "::" } else { &self.host };
        format!("{}:{}", Host(host), self.port)
    }
}

impl EndpointType for Udp {
    fn inspect_source(&self) -> Result<End, Error> {
        Ok(End::new(self.to_string(), Kind::Udp))
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
        Ok(Some(DatagramEndpoint::Udp(UdpOptions {
            address: self.address(),
            sequenced: self.sequenced,
            size: self.size.map(|size| size as usize),
            idle: self.idle,
            engine: via.and_then(Engine::from_mover),
            receive_buffer: None,
            rate,
        })))
    }

    fn unnumbered_datagrams(&self) -> Option<UnnumberedDatagrams> {
        (!self.sequenced).then_some(UnnumberedDatagrams { tolerates_drops: self.lossy })
    }
}

/// Opens an endpoint of datagrams as a source.
///
/// # Errors
/// Same as [`EndpointType::open_source`].
pub(super) fn open_source(
    endpoint: &dyn EndpointType,
    context: &OpenContext<'_>,
) -> Result<OpenedStream<Source>, Error> {
    let datagrams = endpoint.datagrams(Direction::Receive, context.via, Rate::Unlimited)?;
    let datagrams = datagrams.ok_or_else(|| {
        let name = context.name;
        Error::Usage(format!("{name} cannot be a source; datagrams have udp-listen: or eth-listen: there"))
    })?;
    let ledger = Ledger::default();
    let input = datagram::open_input(&datagrams, ledger.clone())?;
    Ok(OpenedStream::OneWay(Source::Datagrams(input, ledger)))
}

/// Opens an endpoint of datagrams as a sink.
///
/// # Errors
/// Same as [`EndpointType::open_sink`].
pub(super) fn open_sink(
    endpoint: &dyn EndpointType,
    context: &OpenContext<'_>,
    settings: &SinkSettings,
) -> Result<OpenedStream<Sink>, Error> {
    let datagrams = endpoint.datagrams(Direction::Send, context.via, settings.rate)?;
    let datagrams = datagrams.ok_or_else(|| {
        let name = context.name;
        Error::Usage(format!("{name} cannot be a sink; datagrams have udp: or eth: there"))
    })?;
    let ledger = Ledger::default();
    let output = datagram::open_output(&datagrams, ledger.clone())?;
    Ok(OpenedStream::OneWay(Sink::Datagrams(output, ledger)))
}

impl fmt::Display for Udp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.listen { "udp-listen" } else { "udp" };
        write!(out, "{name}:{}:{}", Host(&self.host), self.port)?;
        option(out, "size", self.size)?;
        option(out, "idle", self.idle.map(|idle| idle.as_secs_f64()))?;
        flag(out, "lossy", self.lossy)?;
        flag(out, "sequenced", self.sequenced)
    }
}
