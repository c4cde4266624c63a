//! Many requests under way at a time, from one thread, without a system call or an allocation on their way.
//!
//! ```text
//!                   ┌─ mapped:  copied at once ──► ready ──────────────┐
//!     submit ───────┤                                                  ├──► reap: a fence, a look at each word
//!                   └─ channel: slot, arena, ring ──► server ──► ring ─┘
//! ```
//!
//! A request of a mapped volume is done where it is submitted; whether it counts is found out when it is reaped, or one
//! before it: behind one fence, by one look at each grant, for all that are ready by then. One of another volume takes a
//! slot, whose number the channel carries.
//!
//! Invariant: a request that was submitted is either in `ready` or in a slot, until it is reaped; together they are
//! no more than the depth.
//!
//! Inside: `volumes` opens and closes, `submit` has requests of one range, `many` those of several, `pieces` those of
//! memory in pieces; `send` is what the channel carries, `ready` what is done, `reap` what comes out; `dispatch` calls back.

mod dispatch;
mod many;
mod memory;
mod pieces;
mod ready;
mod reap;
mod send;
mod submit;
mod volumes;

pub use dispatch::QueueDispatcher;
pub use many::Range;
pub use memory::{Buffer, Completion, NotSubmitted, Room};
pub use volumes::VolumeId;

use crate::client::make_channel;
use crate::error::Error;
use crate::options::Options;
use crate::request::Shape;
use crate::session::Session;
use bywash_protocol::layout::Opcode;
use memory::Keep;
use ready::Ready;
use send::Slot;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use volumes::Opened;

/// Requests that are submitted without waiting, and reaped when they are done.
///
/// One thread uses it, over a connection to the server of its own: so nothing is locked, and what the server gives to each
/// connection it gives to each such thread. Threads that want queues make one each.
///
/// Requests that are under way are done in any order. When the server goes and the queue connects again, those of the channel
/// that were not completed are submitted again, as [`crate::Volume`] says; those of mapped memory that were not reaped end
/// with [`Error::Gone`], since what they wrote went with the medium. When a grant is taken back, requests in mapped memory
/// end with [`Error::Revoked`] but for those that were done when one that was submitted before them was reaped.
pub struct Queue {
    socket: PathBuf,
    options: Options,
    session: Arc<Session>,
    channel: bywash_channel::Client,
    volumes: Vec<Option<Opened>>,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Requests that are done, but for a look whether they count.
    ready: Ready,
    /// Whose turn it is: what is ready, or the channel.
    is_ready_next: bool,
    /// Memory that a device may still write to; it goes with its channel.
    lost: Vec<bywash_channel::Buffer>,
    /// Why nothing can be submitted any more.
    end: Option<Error>,
}

impl Queue {
    /// Connects to the server that listens at `socket`.
    ///
    /// # Errors
    /// As [`crate::Client::connect`]; an option that the server does not allow.
    pub fn connect(socket: impl Into<PathBuf>, options: Options) -> Result<Queue, Error> {
        // Who reaps says how long; to end it while it connects again would end the queue.
        let options = Options { interrupt: None, ..options };
        let socket = socket.into();
        let end = Instant::now() + options.limit;
        let session = Arc::new(Session::connect(&socket, &options, 0, end)?);
        let channel = make_channel(&session, &options, end)?;
        let depth = channel.depth();
        let slot = |_| Slot {
            user_data: 0,
            shape: Shape::new(Opcode::Flush, false, 0, 0),
            volume: 0,
            keep: Keep::Nothing,
            pieces: Vec::new(),
        };
        Ok(Queue {
            socket,
            options,
            session,
            channel,
            volumes: Vec::new(),
            slots: (0..depth).map(slot).collect(),
            free: (0..depth as u32).rev().collect(),
            ready: Ready::new(depth),
            is_ready_next: false,
            lost: Vec::new(),
            end: None,
        })
    }

    /// The client's number, as reports name it.
    pub fn number(&self) -> u64 {
        self.session.client
    }

    /// Memory of the arena, to be submitted without being copied.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::UsedUp`].
    pub fn alloc(&self, bytes: usize) -> Result<Buffer, Error> {
        let inner = self.channel.alloc(bytes).map_err(|error| self.of_link(error))?;
        Ok(Buffer { inner, generation: self.session.generation })
    }

    /// How long calls wait that are told nothing else, as the options say.
    pub fn limit(&self) -> Duration {
        self.options.limit
    }

    /// Most requests that can be under way.
    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Requests that were submitted and not reaped.
    #[inline]
    pub fn under_way(&self) -> usize {
        self.in_channel() + self.ready.len()
    }

    /// How often the queue has connected again. Each time its descriptor is another one.
    pub fn reconnects(&self) -> u64 {
        self.session.generation
    }

    /// Bytes of the arena that are not used again, since a device that did not answer in time may still write there.
    pub fn lost_bytes(&self) -> usize {
        self.lost.iter().map(bywash_channel::Buffer::capacity).sum()
    }

    #[inline(always)]
    fn check_end(&self) -> Result<(), Error> {
        match &self.end {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut queue = formatter.debug_struct("Queue");
        queue
            .field("socket", &self.socket)
            .field("client", &self.number())
            .field("under_way", &self.under_way());
        queue.field("end", &self.end).finish_non_exhaustive()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
