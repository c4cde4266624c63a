//! `mem:PATH`, `mem-listen:PATH`: a path of containers, whose other end is another flow or any program with
//! the library.
//!
//! Invariant: the data is complete only after an empty container, which marks the end. A path that is closed
//! without one had a sender that gave up or was killed. With `plain`, closing the path is the end.

use super::{Endpoint, EndpointKind, EndpointType, OpenContext};
use crate::block_io::{Input, Output};
use crate::control::Control;
use crate::end::{OpenedStream, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::{End, Kind};
use bywash_container::{Listener, Message, Options, Path, Shipment};
use bywash_link::SocketFile;
use bywash_options::{Escaped, OptionRow, Row, Words, flag};
use rustix::event::PollFlags;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

/// A path of containers as an end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Memory {
    /// Path of the socket at which the two ends meet.
    path: PathBuf,
    /// True if this end waits for its peer.
    listen: bool,
    /// True if the sender marks the end by closing the path, not by an empty container.
    plain: bool,
}

const PLAIN: OptionRow = OptionRow::flag("plain", "the peer marks no end: closing the path is the end");

pub(super) static CONNECT: EndpointKind = EndpointKind {
    row: Row {
        name: "mem",
        address: "PATH",
        sentence: "connects to a path of containers: another flow, or a program with the library",
        options: &[PLAIN],
    },
    parse: |words| parse(words, false),
};

pub(super) static LISTEN: EndpointKind = EndpointKind {
    row: Row {
        name: "mem-listen",
        address: "PATH",
        sentence: "waits for a peer at a path of containers",
        options: &[PLAIN],
    },
    parse: |words| parse(words, true),
};

fn parse(words: &mut Words<'_>, listen: bool) -> Result<Endpoint, Error> {
    let memory = Memory { path: words.path()?, listen, plain: words.flag("plain")? };
    words.check_all_taken()?;
    Ok(Endpoint::new(memory))
}

impl EndpointType for Memory {
    fn inspect_source(&self) -> Result<End, Error> {
        Ok(End::new(self.to_string(), Kind::Memory))
    }

    fn inspect_sink(&self) -> Result<End, Error> {
        self.inspect_source()
    }

    fn waits_for_peer(&self) -> bool {
        self.listen
    }

    fn open_source(&self, context: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error> {
        let path = open(self, context.name, context.control)?;
        Ok(OpenedStream::OneWay(Source::Other(Box::new(MemoryInput::new(self, path, context.name)))))
    }

    fn open_sink(&self, context: &OpenContext<'_>, _: &SinkSettings) -> Result<OpenedStream<Sink>, Error> {
        let path = open(self, context.name, context.control)?;
        Ok(OpenedStream::OneWay(Sink::Other(Box::new(MemoryOutput::new(self, path, context.name)))))
    }

    fn check_shared_sink(&self) -> Result<(), Error> {
        Err(Error::Usage(format!("{self} cannot be the sink of several connections at once")))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.listen { "mem-listen" } else { "mem" };
        write!(out, "{name}:{}", Escaped(&self.path.to_string_lossy()))?;
        flag(out, "plain", self.plain)
    }
}

/// Time that one call waits for the path, between checks whether the flow was cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Size of a container, in bytes: half of a usual L2 cache, so that the peer finds the data there.
const CONTAINER_BYTES: usize = 256 << 10;
/// Size of the arena, in bytes, which limits the data in flight.
const ARENA_BYTES: usize = 8 << 20;

/// Connects to a path, or waits for a peer that connects. A listener's socket file is removed afterwards,
/// also after a failure.
///
/// # Errors
/// [`Error::Io`] if the path cannot be opened or poll(2) fails; [`Error::Cancelled`] if the flow is
/// cancelled.
fn open(end: &Memory, name: &str, control: &Control) -> Result<Path, Error> {
    let options = Options::new().arena_bytes(ARENA_BYTES);
    let failed = |error| failed("open", name, error);
    if !end.listen {
        return Path::connect(&end.path, &options).map_err(failed);
    }
    let listener = Listener::bind(&end.path).map_err(failed)?;
    // Declared after the listener, and so removed before the listener is closed.
    let _file = SocketFile::just_made(&end.path)
        .map_err(|error| Error::io(format!("open {name}"), std::io::Error::other(error)))?;
    loop {
        control.wait(listener.as_fd(), PollFlags::IN, None)?;
        if let Some(path) = listener.try_accept(&options).map_err(failed)? {
            return Ok(path);
        }
    }
}

fn failed(what: &str, name: &str, error: bywash_container::Error) -> Error {
    Error::io(format!("{what} {name}"), std::io::Error::other(error))
}

/// Repeats `attempt`, which has a short timeout of its own, until it returns anything but a timeout.
///
/// # Errors
/// Outer: [`Error::Cancelled`] if the flow is cancelled. Inner: the error of `attempt`.
fn wait<T>(
    control: &Control,
    mut attempt: impl FnMut() -> Result<T, bywash_container::Error>,
) -> Result<Result<T, bywash_container::Error>, Error> {
    loop {
        control.check()?;
        match attempt() {
            Err(bywash_container::Error::TimedOut | bywash_container::Error::AllocTimedOut { .. }) => {}
            other => return Ok(other),
        }
    }
}

/// Source of the data that another program ships.
struct MemoryInput {
    path: Path,
    name: String,
    /// Received containers that are not fully read, oldest first; `offset` bytes of the first one have been
    /// read.
    pieces: VecDeque<bywash_container::Received>,
    offset: usize,
    total: u64,
    end: EndMark,
}

/// Sign by which the end of the data is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndMark {
    /// An empty container marks the end; `came` is true once it has arrived.
    Marked { came: bool },
    /// The peer closes the path.
    Closing,
}

impl MemoryInput {
    fn new(end: &Memory, path: Path, name: &str) -> MemoryInput {
        let end = if end.plain { EndMark::Closing } else { EndMark::Marked { came: false } };
        MemoryInput { path, name: name.into(), pieces: VecDeque::new(), offset: 0, total: 0, end }
    }

    /// Decides whether the data is complete, after the peer has closed the path.
    ///
    /// # Errors
    /// [`Error::Data`] if an empty container must mark the end and has not arrived.
    fn closed(&self) -> Result<(), Error> {
        match self.end {
            EndMark::Marked { came: false } => Err(Error::Data(format!(
                "{} was closed after {} bytes, without the empty container that marks the end: the sender was killed or gave up, or knows of no mark (then say 'plain' here)",
                self.name, self.total
            ))),
            _ => Ok(()),
        }
    }
}

impl Input for MemoryInput {
    fn next<'a>(&'a mut self, room: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error> {
        loop {
            if self.end == (EndMark::Marked { came: true }) {
                return Ok(&[]);
            }
            if let Some(piece) = self.pieces.front() {
                if let (0, EndMark::Marked { came }) = (piece.len(), &mut self.end) {
                    *came = true;
                    continue;
                }
                let copied =
                    piece.copy_from(self.offset, room).map_err(|error| failed("read", &self.name, error))?;
                self.offset += copied;
                self.total += copied as u64;
                if copied > 0 {
                    return Ok(&room[..copied]);
                }
                self.pieces.pop_front();
                self.offset = 0;
                continue;
            }
            match wait(control, || self.path.receive_within(CANCEL_CHECK_INTERVAL))? {
                Ok(message) => self.pieces.extend(Message::into_pieces(message)),
                Err(bywash_container::Error::Closed) => return self.closed().map(|()| &[][..]),
                Err(error) => return Err(failed("read", &self.name, error)),
            }
        }
    }
}

/// Sink that ships the data to another program.
struct MemoryOutput {
    path: Path,
    name: String,
    /// True if an empty container marks the end.
    marks: bool,
}

impl MemoryOutput {
    fn new(end: &Memory, path: Path, name: &str) -> MemoryOutput {
        MemoryOutput { path, name: name.into(), marks: !end.plain }
    }

    fn ship(&self, piece: &[u8], control: &Control) -> Result<(), Error> {
        let failed = |error| failed("write", &self.name, error);
        let mut container =
            wait(control, || self.path.alloc_within(piece.len(), CANCEL_CHECK_INTERVAL))?.map_err(failed)?;
        container.copy_from_slice(piece);
        let mut left = Some(Shipment::from(container));
        wait(control, || match left.take() {
            None => Ok(()),
            Some(cargo) => self.path.ship_within(cargo, CANCEL_CHECK_INTERVAL).map_err(|refused| {
                left = Some(*refused.shipment);
                refused.error
            }),
        })?
        .map_err(failed)
    }
}

impl Output for MemoryOutput {
    fn put(&mut self, block: &[u8], control: &Control) -> Result<(), Error> {
        block.chunks(CONTAINER_BYTES).try_for_each(|piece| self.ship(piece, control))
    }

    fn finish(&mut self, control: &Control) -> Result<(), Error> {
        if self.marks {
            self.ship(&[], control)?;
        }
        self.path.close();
        Ok(())
    }
}
