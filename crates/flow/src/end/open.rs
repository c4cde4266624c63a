//! Opens the endpoints that the user named. Called by [`crate::assembly`] and [`crate::serve`].

use super::connection::Connected;
use super::descriptor_sink::DescriptorSink;
use super::descriptor_source::DescriptorSource;
use super::framed::{self, FramedInput, FramedOutput, Role};
use super::generated::{Null, Random, Zeros};
use super::memory::{self, MemoryInput, MemoryOutput};
use super::socket::{self, ListeningSocket};
use super::storage::{self, SinkSettings};
use super::{Input, Output, Sink, Source};
use crate::control::Control;
use crate::datagram::{self, Ledger, Rate};
use crate::error::Error;
use crate::facts::Kind;
use crate::plan::Mover;
use crate::spec::{Endpoint, File, Listening, Tcp, Udp};
use std::os::fd::OwnedFd;
use std::path::Path;

/// An open end. One that moves data both ways can be a source and a sink at once.
pub(crate) enum Opened<T> {
    /// An end that moves data in one direction.
    OneWay(T),
    /// A stream socket, which moves data in both directions.
    BothWays(Stream),
}

/// A connected socket, after the handshake if its data travels in frames.
pub(crate) struct Stream {
    pub(crate) connected: Connected,
    /// Role of the peer, from the handshake; `None` without frames.
    peer: Option<Role>,
}

/// An endpoint that is about to be opened. A socket that listens does so already, so that a peer that
/// connects early is not refused.
pub(crate) struct PendingEnd<'a> {
    endpoint: &'a Endpoint,
    name: String,
    listener: Option<ListeningSocket>,
}

impl<'a> PendingEnd<'a> {
    pub(crate) fn new(endpoint: &'a Endpoint, control: &Control) -> Result<PendingEnd<'a>, Error> {
        let name = endpoint.to_string();
        let listener = match endpoint {
            Endpoint::Tcp(end) if end.listening != Listening::Connects => {
                Some(ListeningSocket::tcp(end, &name, control)?)
            }
            Endpoint::Unix(end) if end.listening != Listening::Connects => {
                Some(ListeningSocket::unix(end, &name)?)
            }
            _ => None,
        };
        if let (Some(listener), Endpoint::Tcp(Tcp { port: 0, .. })) = (&listener, endpoint) {
            // The kernel has chosen the port, and a peer can connect only once the user knows it.
            control.notify(format!("listening at {}", listener.address()?));
        }
        Ok(PendingEnd { endpoint, name, listener })
    }

    /// Returns true if the end is open only after a peer has acted.
    pub(crate) fn waits_for_peer(&self) -> bool {
        self.listener.is_some()
            || matches!(self.endpoint, Endpoint::Memory(end) if end.listening != Listening::Connects)
            || matches!(self.endpoint, Endpoint::Udp(end) if end.listen && end.reliable)
    }

    /// Returns the connected socket of a stream endpoint; `None` for other endpoints.
    fn stream(&self, role: Role, control: &Control) -> Result<Option<Stream>, Error> {
        let connected = match (&self.listener, self.endpoint) {
            (Some(listener), _) => listener.accept(control)?,
            (None, Endpoint::Tcp(_) | Endpoint::Unix(_)) => connect(self.endpoint, control)?,
            _ => return Ok(None),
        };
        handshaken(connected, role, &self.name, control).map(Some)
    }
}

/// Connects to a stream socket.
///
/// # Errors
/// [`Error::Io`] if the peer cannot be reached; [`Error::Usage`] if the endpoint is not a stream socket;
/// [`Error::Cancelled`] if the flow is cancelled.
pub(crate) fn connect(endpoint: &Endpoint, control: &Control) -> Result<Connected, Error> {
    let name = endpoint.to_string();
    match endpoint {
        Endpoint::Tcp(end) => socket::connect_tcp(end, &name, control),
        Endpoint::Unix(end) => socket::connect_unix(end, &name, control),
        _ => Err(Error::Usage(format!("{name} is no stream socket"))),
    }
}

/// Performs the handshake of a connection whose data travels in frames.
///
/// # Errors
/// Same as [`framed::handshake`].
pub(crate) fn handshaken(
    connected: Connected,
    role: Role,
    name: &str,
    control: &Control,
) -> Result<Stream, Error> {
    let peer = match connected.whole {
        true => Some(framed::handshake(&connected, role, name, control)?),
        false => None,
    };
    Ok(Stream { connected, peer })
}

impl Stream {
    /// Duplicates the socket, for the other direction.
    ///
    /// # Errors
    /// [`Error::Io`] if the descriptor cannot be duplicated.
    pub(crate) fn try_clone(&self) -> Result<Stream, Error> {
        let Connected { socket, connection, whole } = &self.connected;
        let socket = socket.try_clone().map_err(|error| Error::io("use a socket both ways", error))?;
        Ok(Stream {
            connected: Connected { socket, connection: *connection, whole: *whole },
            peer: self.peer,
        })
    }

    /// Returns the socket as a source. A framed peer that does not send gives an empty source.
    pub(crate) fn source(self, name: &str) -> Source {
        let Connected { socket, connection, whole } = self.connected;
        let source = DescriptorSource {
            connection: Some(connection),
            ..source_from_descriptor(socket, Kind::Stream, name)
        };
        match (whole, self.peer) {
            (true, Some(Role { sends: false, .. })) => Source::Other(Box::new(Null)),
            (true, _) => Source::Framed(FramedInput::new(source)),
            (false, _) => Source::Descriptor(source),
        }
    }

    /// Returns the socket as a sink.
    pub(crate) fn sink(self, name: &str, settings: &SinkSettings) -> Sink {
        let Connected { socket, connection, whole } = self.connected;
        let sink = DescriptorSink {
            connection: Some(connection),
            ..sink_from_descriptor(socket, Kind::Stream, name, settings)
        };
        match whole {
            true => Sink::Framed(FramedOutput::new(sink)),
            false => Sink::Descriptor(sink),
        }
    }
}

/// Opens a source.
///
/// # Errors
/// [`Error::Usage`] if the endpoint cannot be a source; [`Error::Io`] if it cannot be opened; [`Error::Data`]
/// if the handshake of a framed connection fails; [`Error::Cancelled`] if the flow is cancelled.
pub(crate) fn source(
    opening: PendingEnd<'_>,
    via: Option<Mover>,
    role: Role,
    control: &Control,
) -> Result<Opened<Source>, Error> {
    if let Some(stream) = opening.stream(role, control)? {
        return Ok(Opened::BothWays(stream));
    }
    let PendingEnd { endpoint, name, .. } = opening;
    Ok(Opened::OneWay(match endpoint {
        Endpoint::File(file) => Source::Descriptor(storage::open_source(file, &name, control)?),
        Endpoint::Raw { path, offset, length } => {
            block_device(path, &name)?;
            let file = File::from_device_range(path, *offset, *length);
            Source::Descriptor(storage::open_source(&file, &name, control)?)
        }
        Endpoint::Standard => Source::Descriptor(storage::standard_input()?),
        Endpoint::Zero => Source::Other(Box::new(Zeros::new())),
        Endpoint::Random { seed } => Source::Other(Box::new(Random::new(*seed)?)),
        Endpoint::Memory(end) => {
            Source::Other(Box::new(MemoryInput::new(end, memory::open(end, &name, control)?, &name)))
        }
        Endpoint::Udp(end) if end.reliable => Source::Other(reliable_input(end, control)?),
        Endpoint::Udp(_) | Endpoint::Ethernet(_) => {
            let datagrams = datagram::endpoint_of(endpoint, true, via, Rate::Unlimited)?;
            let datagrams = datagrams.ok_or_else(|| cannot_be(&name, "a source"))?;
            let ledger = Ledger::default();
            Source::Datagrams(datagram::open_input(&datagrams, ledger.clone())?, ledger)
        }
        Endpoint::Null => return Err(Error::Usage("null: has nothing to give; name it as the sink".into())),
        _ => return Err(cannot_be(&name, "a source")),
    }))
}

/// Opens a sink.
///
/// # Errors
/// [`Error::Usage`] if the endpoint cannot be a sink; [`Error::Io`] if it cannot be opened; [`Error::Data`]
/// if the handshake of a framed connection fails; [`Error::Cancelled`] if the flow is cancelled.
pub(crate) fn sink(
    opening: PendingEnd<'_>,
    settings: &SinkSettings,
    role: Role,
    control: &Control,
) -> Result<Opened<Sink>, Error> {
    if let Some(stream) = opening.stream(role, control)? {
        return Ok(Opened::BothWays(stream));
    }
    let PendingEnd { endpoint, name, .. } = opening;
    Ok(Opened::OneWay(match endpoint {
        Endpoint::File(file) => Sink::Descriptor(storage::open_sink(file, &name, settings, control)?),
        Endpoint::Raw { path, offset, length } => {
            block_device(path, &name)?;
            let file = File::from_device_range(path, *offset, *length);
            Sink::Descriptor(storage::open_sink(&file, &name, settings, control)?)
        }
        Endpoint::Standard => Sink::Descriptor(storage::standard_output(settings)?),
        Endpoint::Null => Sink::Other(Box::new(Null)),
        Endpoint::Udp(end) if end.reliable => Sink::Other(reliable_output(end, control)?),
        Endpoint::Udp(_) | Endpoint::Ethernet(_) => {
            let datagrams = datagram::endpoint_of(endpoint, false, settings.via, settings.rate)?;
            let datagrams = datagrams.ok_or_else(|| cannot_be(&name, "a sink"))?;
            let ledger = Ledger::default();
            Sink::Datagrams(datagram::open_output(&datagrams, ledger.clone())?, ledger)
        }
        Endpoint::Memory(end) => {
            Sink::Other(Box::new(MemoryOutput::new(end, memory::open(end, &name, control)?, &name)))
        }
        Endpoint::Zero | Endpoint::Random { .. } => {
            return Err(Error::Usage(format!("{name} takes nothing; name it as the source, or write null:")));
        }
        _ => return Err(cannot_be(&name, "a sink")),
    }))
}

/// Creates the error for an end that moves data in the other direction only.
fn cannot_be(name: &str, what: &str) -> Error {
    let other = if what == "a source" { "udp-listen: or eth-listen:" } else { "udp: or eth:" };
    Error::Usage(format!("{name} cannot be {what}; datagrams have {other} there"))
}

/// Checks that `path` is a block device.
///
/// # Errors
/// [`Error::Usage`] if it is something else; [`Error::Io`] if it does not exist or cannot be inspected.
fn block_device(path: &Path, name: &str) -> Result<(), Error> {
    match storage::stat_endpoint(path, name)? {
        Some(stat) if storage::kind_of(&stat) == Kind::Block => Ok(()),
        Some(_) => Err(Error::Usage(format!("{name} is no block device: write file:{}", path.display()))),
        None => Err(Error::io(format!("open {name}"), rustix::io::Errno::NOENT)),
    }
}

#[cfg(feature = "reliable")]
fn reliable_input(end: &Udp, control: &Control) -> Result<Box<dyn Input>, Error> {
    let options = crate::reliable::ReliableOptions::of(end)?;
    crate::reliable::open_input(&options, control, &mut |notice| control.notify(notice.to_string()))
}

#[cfg(feature = "reliable")]
fn reliable_output(end: &Udp, control: &Control) -> Result<Box<dyn Output>, Error> {
    let options = crate::reliable::ReliableOptions::of(end)?;
    crate::reliable::open_output(&options, control, &mut |notice| control.notify(notice.to_string()))
}

#[cfg(not(feature = "reliable"))]
fn reliable_input(_: &Udp, _: &Control) -> Result<Box<dyn Input>, Error> {
    Err(no_quic())
}

#[cfg(not(feature = "reliable"))]
fn reliable_output(_: &Udp, _: &Control) -> Result<Box<dyn Output>, Error> {
    Err(no_quic())
}

#[cfg(not(feature = "reliable"))]
fn no_quic() -> Error {
    Error::Usage("this was built without QUIC; build bywash-flow with the feature 'reliable'".into())
}

/// Creates a source from a socket or from a program's output.
pub(crate) fn source_from_descriptor(descriptor: OwnedFd, kind: Kind, name: &str) -> DescriptorSource {
    DescriptorSource {
        descriptor,
        name: name.into(),
        kind,
        position: None,
        end: None,
        read_behind: None,
        may_block: false,
        updates_offset: false,
        connection: None,
        bytes_read: 0,
    }
}

/// Creates a sink from a socket or from a program's input.
pub(crate) fn sink_from_descriptor(
    descriptor: OwnedFd,
    kind: Kind,
    name: &str,
    settings: &SinkSettings,
) -> DescriptorSink {
    storage::sink_from_descriptor(descriptor, name, kind, None, settings)
}
