//! The ends of a flow while it runs: where bytes come from, and where they go.
//!
//! Invariant: an end that waits does so in [`Control::wait`]; an end that fails names itself in its error. Called by
//! the movers.

mod behind;
mod connection;
mod framed;
mod made;
mod memory;
mod open;
mod reading;
mod resume;
mod socket;
pub(crate) mod storage;
mod target;
mod writing;

use crate::control::Control;
use crate::datagram::Ledger;
use crate::error::Error;
use crate::facts::Kind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::PathBuf;

pub(crate) use connection::{Connected, LOOK, refuse};
pub(crate) use framed::{FramedInput, FramedOutput, Role};
pub(crate) use made::Nowhere;
pub(crate) use open::{Opened, Opening, connect, greeted, reading, sink, source, writing};
pub(crate) use reading::Reading;
pub(crate) use resume::resume;
pub(crate) use socket::Gate;
pub(crate) use target::{check as check_target, folder_of, resolved};
pub(crate) use writing::Writing;

/// Where bytes come from, opened.
pub(crate) enum Source {
    /// A descriptor of the kernel's.
    Descriptor(Reading),
    /// A connection whose stream goes in frames.
    Framed(FramedInput),
    /// Datagrams, and the account of them.
    Datagrams(Box<dyn Input>, Ledger),
    /// Anything else.
    Other(Box<dyn Input>),
}

/// Where bytes go, opened.
pub(crate) enum Sink {
    /// A descriptor of the kernel's.
    Descriptor(Writing),
    /// A connection whose stream goes in frames.
    Framed(FramedOutput),
    /// Datagrams, and the account of them.
    Datagrams(Box<dyn Output>, Ledger),
    /// Anything else.
    Other(Box<dyn Output>),
}

impl Source {
    /// What it is, as far as movers care.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Source::Descriptor(reading) => reading.kind,
            Source::Framed(_) => Kind::Framed,
            Source::Datagrams(..) => Kind::Udp,
            Source::Other(_) => Kind::Made,
        }
    }

    /// Whether it has no more to give, and everything was taken: of pipes and sockets.
    pub(crate) fn is_at_end(&self) -> bool {
        let Source::Descriptor(reading) = self else { return true };
        let mut one = [PollFd::new(&reading.descriptor, PollFlags::IN)];
        // It is there, and this does not wait.
        let _ = poll(&mut one, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        one[0].revents() == PollFlags::HUP
    }

    /// Who shares the descriptor goes on behind what was read.
    pub(crate) fn tell_position(&self) {
        if let Source::Descriptor(reading) = self {
            reading.tell_position();
        }
    }

    /// Decides how a connection ends when it is closed: in order, or by a reset that the peer hears as an error.
    pub(crate) fn let_go(&self, in_order: bool) {
        match self {
            Source::Descriptor(reading) => reading.let_go(in_order),
            Source::Framed(input) => input.reading().let_go(in_order),
            _ => {}
        }
    }

    pub(crate) fn input(&mut self) -> &mut dyn Input {
        match self {
            Source::Descriptor(reading) => reading,
            Source::Framed(input) => input,
            Source::Datagrams(input, _) | Source::Other(input) => input.as_mut(),
        }
    }
}

impl Sink {
    /// What it is, as far as movers care.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Sink::Descriptor(writing) => writing.kind,
            Sink::Framed(_) => Kind::Framed,
            Sink::Datagrams(..) => Kind::Udp,
            Sink::Other(_) => Kind::Nowhere,
        }
    }

    /// As [`Source::let_go`].
    pub(crate) fn let_go(&self, in_order: bool) {
        match self {
            Sink::Descriptor(writing) => writing.let_go(in_order),
            Sink::Framed(output) => output.writing().let_go(in_order),
            _ => {}
        }
    }

    pub(crate) fn output(&mut self) -> &mut dyn Output {
        match self {
            Sink::Descriptor(writing) => writing,
            Sink::Framed(output) => output,
            Sink::Datagrams(output, _) | Sink::Other(output) => output.as_mut(),
        }
    }

    /// The whole flow has succeeded.
    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        match self {
            Sink::Descriptor(writing) => writing.commit(),
            _ => Ok(()),
        }
    }

    /// The flow has not come to its end; answers where what there is of it is kept.
    pub(crate) fn keep_partial(&mut self) -> Option<PathBuf> {
        match self {
            Sink::Descriptor(writing) => writing.keep_partial(),
            _ => None,
        }
    }
}

/// Where bytes come from, block by block.
pub(crate) trait Input: Send {
    /// The next block, at most as long as `room`; empty at the end. It may be in `room` or anywhere else.
    ///
    /// # Errors
    /// What failed, by the name of this end.
    fn next<'a>(&'a mut self, room: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error>;
}

/// Where bytes go, block by block.
pub(crate) trait Output: Send {
    /// Takes the whole block.
    ///
    /// # Errors
    /// What failed, by the name of this end.
    fn put(&mut self, block: &[u8], control: &Control) -> Result<(), Error>;

    /// No more comes: what is on its way is seen off.
    ///
    /// # Errors
    /// What failed, by the name of this end.
    fn finish(&mut self, control: &Control) -> Result<(), Error>;
}
