//! `unix:PATH`, `unix-listen:PATH`: a Unix stream socket.

use super::stream::{FORK, MAX, WHOLE, connections, listening, open};
use super::{Endpoint, EndpointKind, EndpointType, Listening, OpenContext, StreamEndpoint};
use crate::control::Control;
use crate::end::{
    Connected, ListeningSocket, OpenedStream, Sink, SinkSettings, Source, StreamSettings, connect_unix,
};
use crate::error::Error;
use crate::facts::{End, Kind};
use bywash_options::{Escaped, Row, Words, flag, option};
use std::fmt;
use std::path::PathBuf;

/// A Unix stream socket as an end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Unix {
    /// Path of the socket.
    path: PathBuf,
    listening: Listening,
    settings: StreamSettings,
}

pub(super) static CONNECT: EndpointKind = EndpointKind {
    row: Row {
        name: "unix",
        address: "PATH",
        sentence: "connects to a Unix stream socket; a killed sender looks like one that has ended, except with whole",
        options: &[WHOLE],
    },
    parse: |words| parse(words, false),
};

pub(super) static LISTEN: EndpointKind = EndpointKind {
    row: Row {
        name: "unix-listen",
        address: "PATH",
        sentence: "listens for a connection at a Unix stream socket",
        options: &[WHOLE, FORK, MAX],
    },
    parse: |words| parse(words, true),
};

fn parse(words: &mut Words<'_>, listen: bool) -> Result<Endpoint, Error> {
    let (path, whole, listening) = (words.path()?, words.flag("whole")?, listening(words, listen)?);
    let settings = StreamSettings { whole, timeout: None, max: connections(words, listening)? };
    words.check_all_taken()?;
    Ok(Endpoint::new(Unix { path, listening, settings }))
}

impl Unix {
    fn inspect(&self) -> End {
        let kind = if self.settings.whole { Kind::Framed } else { Kind::Stream };
        End { is_local: true, ..End::new(self.to_string(), kind) }
    }
}

impl EndpointType for Unix {
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

impl StreamEndpoint for Unix {
    fn listening(&self) -> Listening {
        self.listening
    }

    fn settings(&self) -> StreamSettings {
        self.settings
    }

    fn listen(&self, name: &str, _: &Control) -> Result<ListeningSocket, Error> {
        ListeningSocket::unix(&self.path, self.settings, name)
    }

    fn connect(&self, name: &str, control: &Control) -> Result<Connected, Error> {
        connect_unix(&self.path, self.settings, name, control)
    }
}

impl fmt::Display for Unix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "unix{}:{}", self.listening.suffix(), Escaped(&self.path.to_string_lossy()))?;
        flag(out, "whole", self.settings.whole)?;
        flag(out, "fork", self.listening == Listening::Serves)?;
        option(out, "max", self.settings.max)
    }
}
