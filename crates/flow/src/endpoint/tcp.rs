//! `tcp:HOST:PORT`, `tcp-listen:[ADDRESS:]PORT`: a TCP connection.

use super::host::{Host, host_and_port};
use super::stream::{FORK, MAX, WHOLE, connections, listening, open};
use super::{Endpoint, EndpointKind, EndpointType, Listening, OpenContext, StreamEndpoint};
use crate::control::Control;
use crate::end::{
    Connected, ListeningSocket, OpenedStream, Sink, SinkSettings, Source, StreamSettings, connect_tcp,
};
use crate::error::Error;
use crate::facts::{End, Kind};
use bywash_options::{OptionRow, Row, Value, Words, flag, option};
use bywash_quantity::TimeUnit;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// A TCP connection as an end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tcp {
    /// Host name or address; empty for a listener at all addresses of this machine.
    host: String,
    /// Port number; 0 lets the kernel choose the port of a listener.
    port: u16,
    listening: Listening,
    settings: StreamSettings,
}

const TIMEOUT: OptionRow = OptionRow::new(
    "timeout",
    Value::Duration(TimeUnit::Second),
    "time without a sign of life after which the peer counts as dead, 3 at least",
)
.or("60");

pub(super) static CONNECT: EndpointKind = EndpointKind {
    row: Row {
        name: "tcp",
        address: "HOST:PORT",
        sentence: "connects by TCP; a sender that is killed or fails resets the connection",
        options: &[WHOLE, TIMEOUT],
    },
    parse: |words| parse(words, false),
};

pub(super) static LISTEN: EndpointKind = EndpointKind {
    row: Row {
        name: "tcp-listen",
        address: "[ADDRESS:]PORT",
        sentence: "listens for a TCP connection; port 0 is any, and is told",
        options: &[WHOLE, TIMEOUT, FORK, MAX],
    },
    parse: |words| parse(words, true),
};

/// Smallest timeout, since the kernel counts its three keepalive probes in whole seconds.
const TIMEOUT_MIN: Duration = Duration::from_secs(3);

fn parse(words: &mut Words<'_>, listen: bool) -> Result<Endpoint, Error> {
    let (host, port) = host_and_port(words, listen)?;
    let (whole, timeout) = (words.flag("whole")?, words.duration("timeout")?);
    let listening = listening(words, listen)?;
    let settings = StreamSettings { whole, timeout, max: connections(words, listening)? };
    words.check_all_taken()?;
    match timeout {
        Some(timeout) if timeout < TIMEOUT_MIN => {
            Err(words.error("'timeout': a peer has 3 seconds at the least to give a sign of life").into())
        }
        _ => Ok(Endpoint::new(Tcp { host, port, listening, settings })),
    }
}

impl Tcp {
    fn inspect(&self) -> End {
        let kind = if self.settings.whole { Kind::Framed } else { Kind::Stream };
        // Names other than `localhost` are not looked up.
        let is_local =
            self.host.parse::<IpAddr>().map_or(self.host == "localhost", |address| address.is_loopback());
        End { is_local, ..End::new(self.to_string(), kind) }
    }
}

impl EndpointType for Tcp {
    fn inspect_source(&self) -> Result<End, Error> {
        Ok(self.inspect())
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        Ok(self.inspect())
    }

    fn waits_for_peer(&self) -> bool {
        self.listening != Listening::Connects
    }

    fn open_source(&self, context: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        open(self, context).map(OpenedStream::BothWays)
    }

    fn open_sink(&self, context: &OpenContext<'_>, _: &SinkSettings) -> Result<OpenedStream<Sink>, Error> {
        open(self, context).map(OpenedStream::BothWays)
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Ok(())
    }

    fn stream(&self) -> Option<&dyn StreamEndpoint> {
        Some(self)
    }
}

impl StreamEndpoint for Tcp {
    fn listening(&self) -> Listening {
        self.listening
    }

    fn settings(&self) -> StreamSettings {
        self.settings
    }

    fn listen(&self, name: &str, control: &Control) -> Result<ListeningSocket, Error> {
        let listener = ListeningSocket::tcp((&self.host, self.port), self.settings, name, control)?;
        if self.port == 0 {
            // A peer can connect only once the user knows the port that the kernel has chosen.
            control.notify(format!("listening at {}", listener.address()?));
        }
        Ok(listener)
    }

    fn connect(&self, name: &str, control: &Control) -> Result<Connected, Error> {
        connect_tcp((&self.host, self.port), self.settings, name, control)
    }
}

impl fmt::Display for Tcp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "tcp{}:{}:{}", self.listening.suffix(), Host(&self.host), self.port)?;
        flag(out, "whole", self.settings.whole)?;
        option(out, "timeout", self.settings.timeout.map(|timeout| timeout.as_secs_f64()))?;
        flag(out, "fork", self.listening == Listening::Serves)?;
        option(out, "max", self.settings.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_the_kernel_has_chosen_is_told() {
        for text in ["tcp-listen:127.0.0.1:0", "tcp-listen:127.0.0.1:0,fork"] {
            let control = Control::new().unwrap();
            let endpoint: Endpoint = text.parse().unwrap();
            let listener = endpoint.kind.stream().unwrap().listen(text, &control).unwrap();
            assert_eq!(control.take_notices(), [format!("listening at {}", listener.address().unwrap())]);
        }
    }
}
