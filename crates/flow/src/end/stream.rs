//! Connected stream sockets, each of which can be a source and a sink at once.

use super::connection::Connected;
use super::framed::{self, FramedInput, FramedOutput, Role};
use super::null::Null;
use super::{DescriptorSink, DescriptorSource, Sink, SinkSettings, Source};
use crate::control::Control;
use crate::error::Error;
use crate::facts::Kind;

/// An open end. One that moves data both ways can be a source and a sink at once.
pub(crate) enum OpenedStream<T> {
    /// An end that moves data in one direction.
    OneWay(T),
    /// A stream socket, which moves data in both directions.
    BothWays(Stream),
}

/// A connected socket, after the handshake if its data travels in frames.
pub(crate) struct Stream {
    connected: Connected,
    /// Role of the peer, from the handshake; `None` without frames.
    peer: Option<Role>,
}

impl Stream {
    /// Performs the handshake of a connection whose data travels in frames; does nothing for other
    /// connections.
    ///
    /// # Errors
    /// Same as [`framed::handshake`].
    pub(crate) fn handshake(
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
            ..DescriptorSource::new(socket, Kind::Stream, name)
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
            ..DescriptorSink::new(socket, name, Kind::Stream, None, settings)
        };
        match whole {
            true => Sink::Framed(FramedOutput::new(sink)),
            false => Sink::Descriptor(sink),
        }
    }
}
