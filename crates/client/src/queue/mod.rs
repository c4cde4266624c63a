//! A queue of requests in flight, used by one thread, with neither a system call nor an allocation per
//! request.
//!
//! ```text
//!                   ┌─ mapped:  copied at once ──► ready ──────────────┐
//!     submit ───────┼─ channel: slot, arena, ring ──► server ──► ring ─┼──► reap: a fence, a look at each word
//!                   └─ direct:  slot, arena, command of a controller ──┘
//! ```
//!
//! A request to a mapped volume is carried out when it is submitted. When this or an earlier request is
//! reaped, the queue finds out whether the request counts: one fence, and one look at each grant, serve all
//! requests that are ready by then. A request to another volume takes a slot, whose number is the user data
//! of its request over the channel.
//!
//! Invariant: a submitted request is either in `ready` or in a slot until it is reaped. Together these are
//! never more than the depth.
//!
//! A request to a direct volume takes a slot, too, whose number is the token of its command, unless it was prepared as a
//! transfer.
//!
//! Modules: `direct` submits to hardware and reaps from it, `transfers` has requests that are prepared once, `volumes` opens and closes, `submit` has the requests of one
//! range, `many` those of several ranges, `pieces` those of scattered memory, `send` submits over the channel, `ready`
//! holds the completed requests of mapped volumes, `reap` returns completions, `dispatch` passes them to a callback.

mod direct;
mod dispatch;
mod joint;
mod many;
mod memory;
mod pieces;
mod ready;
mod reap;
mod send;
mod submit;
mod transfers;
mod volumes;

pub use dispatch::QueueDispatcher;
pub use many::Range;
pub use memory::{Buffer, Completion, RequestMemory, SubmitError};
pub use transfers::{TransferBuffer, TransferId, TransferKind};
pub use volumes::VolumeId;

use crate::client::make_channel;
use crate::direct::Direct;
use crate::error::Error;
use crate::options::Options;
use crate::request::RequestHeader;
use crate::session::Session;
use bywash_device::CommandError;
use bywash_protocol::layout::Opcode;
use joint::Joint;
use memory::KeptMemory;
use ready::Ready;
use send::Slot;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use transfers::Transfers;
use volumes::OpenVolume;

/// A queue of requests that are submitted without waiting, and reaped when they have completed.
///
/// One thread uses a queue, over a connection of its own. So nothing is locked, and the server's fair share
/// of each connection is the share of one such thread. Each thread that wants a queue makes one.
///
/// Requests in flight are carried out in any order. When the server dies and the queue connects again,
/// requests of the channel that were not completed are submitted again, as described at [`crate::Volume`].
/// Requests to mapped memory that were not reaped end with [`Error::Gone`], since the server's memory, which
/// they wrote, is gone, and so do requests to direct volumes, which may have been carried out. When a grant is revoked,
/// requests to its mapped memory end with [`Error::Revoked`],
/// except those that had been carried out when a request submitted before them was reaped.
pub struct Queue {
    socket: PathBuf,
    options: Options,
    session: Arc<Session>,
    channel: bywash_channel::Client,
    /// Hardware behind the volume of the same index, if it is direct. Dropped before the grants, with which the server takes
    /// it back, and before the memory that it accesses.
    hardware: Vec<Option<Direct>>,
    volumes: Vec<Option<OpenVolume>>,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    transfers: Transfers,
    /// Number of slots whose requests hardware has.
    direct_slots: usize,
    /// Number of requests that hardware has, those by transfers included, and of those in `direct_done`.
    direct_in_flight: usize,
    /// Requests of hardware that have completed: their tokens and results.
    direct_done: Vec<(u64, Result<(), CommandError>)>,
    /// Index of the hardware that is looked at next.
    next_hardware: usize,
    /// Number of looks at hardware.
    looks: u32,
    /// Descriptors of the channel and of all hardware, if there is hardware.
    joint: Option<Joint>,
    /// Number of times that the descriptor has changed.
    descriptors: u64,
    /// Requests to mapped volumes that are carried out, and others that need no channel, until they are
    /// reaped.
    ready: Ready,
    /// True if the next reap looks at `ready` first, false if at the channel.
    is_ready_next: bool,
    /// Memory that a device may still write to; freed with its channel.
    quarantined: Vec<bywash_channel::Buffer>,
    /// Error that ended the queue, so that nothing more can be submitted.
    end: Option<Error>,
}

impl Queue {
    /// Connects to the server that listens at `socket`.
    ///
    /// # Errors
    /// Same as [`crate::Client::connect`]; [`Error::Option`] also if the server does not allow the depth or
    /// the arena.
    pub fn connect(socket: impl Into<PathBuf>, options: Options) -> Result<Queue, Error> {
        // The caller limits the time of each reap. Ending an attempt to connect again would end the queue, so
        // there is no interrupt function.
        let options = Options { interrupt: None, ..options };
        let socket = socket.into();
        let end = Instant::now() + options.timeout;
        let session = Arc::new(Session::connect(&socket, &options, 0, end)?);
        let channel = make_channel(&session, &options, end)?;
        let depth = channel.depth();
        let slot = |_| Slot {
            user_data: 0,
            shape: RequestHeader::new(Opcode::Flush, false, 0, 0),
            volume: 0,
            keep: KeptMemory::Nothing,
            pieces: Vec::new(),
            commands: 0,
            failure: None,
            buffer: None,
        };
        Ok(Queue {
            socket,
            options,
            session,
            channel,
            hardware: Vec::new(),
            volumes: Vec::new(),
            slots: (0..depth).map(slot).collect(),
            free: (0..depth as u32).rev().collect(),
            transfers: Transfers::default(),
            direct_slots: 0,
            direct_in_flight: 0,
            direct_done: Vec::new(),
            next_hardware: 0,
            looks: 0,
            joint: None,
            descriptors: 0,
            ready: Ready::new(depth),
            is_ready_next: false,
            quarantined: Vec::new(),
            end: None,
        })
    }

    /// Returns the number by which the server's reports name this client.
    pub fn number(&self) -> u64 {
        self.session.client
    }

    /// Allocates memory of the arena, which can be submitted without a copy.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the arena can never allocate so much; [`Error::ArenaFull`] if it cannot now;
    /// the error that ended the queue, if it has ended.
    pub fn alloc(&self, bytes: usize) -> Result<Buffer, Error> {
        // A device may still write to memory of an arena whose connection has ended.
        self.check_end()?;
        let inner = self.channel.alloc(bytes).map_err(|error| self.link_error(error))?;
        Ok(Buffer { inner, generation: self.session.generation })
    }

    /// Returns the timeout that the options set, which calls without a timeout of their own use.
    pub fn limit(&self) -> Duration {
        self.options.timeout
    }

    /// Returns the greatest number of requests in flight.
    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of requests that were submitted and not yet reaped.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() - self.direct_slots + self.direct_in_flight + self.ready.len()
    }

    /// Returns the number of times that the queue has connected again. Each time its file descriptor changes, as it does
    /// when a direct volume is opened.
    pub fn reconnects(&self) -> u64 {
        self.session.generation
    }

    /// Returns the bytes of the arena that are never reused, because a device that missed its timeout may
    /// still write to them.
    pub fn lost_bytes(&self) -> usize {
        self.quarantined.iter().map(bywash_channel::Buffer::capacity).sum()
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
            .field("in_flight", &self.in_flight());
        queue.field("end", &self.end).finish_non_exhaustive()
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.joint.as_ref().map_or(self.channel.as_fd(), Joint::as_fd)
    }
}
