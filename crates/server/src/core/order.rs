//! What the other threads ask of the core, and how they hear what became of it.
//!
//! The core owns channels, tables and devices, so that nothing on the way of a request is locked. Whoever wants
//! something of them sends an order, which the core carries out between two requests, and wakes it if it sleeps.

pub(crate) use crate::core::client::Gone;

use crate::bell::Bell;
use crate::core::client::Joining;
use crate::helpers::Foreign;
use bywash_channel as channel;
use bywash_device::{Device, Keep, Pinned, Retired, Shape, Spare};
use bywash_protocol::layout::Status;
use bywash_protocol::report::Counts;
use bywash_volume::{DeviceNumber, Grant, GrantNumber, Refusal, Span};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Instant;

/// Called with what became of an order, in the core's thread: it must be quick.
pub(crate) struct Reply<T>(Box<dyn FnOnce(T) + Send>);

impl<T> Reply<T> {
    pub(crate) fn new(call: impl FnOnce(T) + Send + 'static) -> Reply<T> {
        Reply(Box::new(call))
    }

    pub(crate) fn send(self, outcome: T) {
        (self.0)(outcome);
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a reply")
    }
}

/// A client, as the core knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientKey {
    /// Where the core has it.
    pub(crate) slot: usize,
    /// Of all clients that ever were.
    pub(crate) number: u64,
}

/// A chunk of a device that is memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) device: DeviceNumber,
    pub(crate) number: usize,
}

/// What the core is asked to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// To use a device: the server's own, or one of a file that a client of this user has passed.
    AddDevice { name: String, device: DeviceBox, owner: Option<u32>, reply: Reply<DeviceNumber> },
    /// To give a device back that no grant leads to any more, when no command is under way on it.
    RemoveDevice { device: DeviceNumber, reply: Reply<Option<DeviceBox>> },
    /// To know a client.
    Join { client: Joining, reply: Reply<Result<ClientKey, crate::schedule::Error>> },
    /// To serve a client's channel.
    Serve { client: ClientKey, channel: Foreign<Box<channel::Server>>, depth: u32 },
    /// To give a client a grant.
    Grant { client: ClientKey, grant: Grant, reply: Reply<Result<GrantNumber, bywash_volume::Error>> },
    /// To take one back. The reply comes when no request by it is under way any more.
    Revoke { client: ClientKey, grant: GrantNumber, reply: Reply<Result<(), Refusal>> },
    /// To let devices register a client's arena, which a helper has pinned.
    Pinned { client: ClientKey, memory: Foreign<Arc<Pinned>> },
    /// To look at a client's ring: somebody has read the doorbells that were in its socket. Over: the connection has ended,
    /// or the client has sent what cannot be.
    Heard { client: ClientKey, is_over: bool },
    /// To forget a client. What it had comes with the reply, to be dropped where nobody waits for that.
    Leave { client: ClientKey, reply: Reply<Option<Gone>> },
    /// To make a part of a device zeros, durably.
    Clear { device: DeviceNumber, span: Span, reply: Reply<Status> },
    /// A descriptor of each of some chunks, to be mapped for writing or only for reading.
    Chunks {
        first: Chunk,
        count: usize,
        writable: bool,
        reply: Reply<Result<Vec<OwnedFd>, bywash_device::Error>>,
    },
    /// What memory has to be like that takes the place of a chunk.
    Shape { chunk: Chunk, reply: Reply<Shape> },
    /// Other memory in the place of a chunk. What was there comes with the reply, to be dropped where nobody waits.
    Replace { chunk: Chunk, keep: Keep, spare: Spare, reply: Reply<Result<Retired, bywash_device::Error>> },
    /// What the core knows.
    Report { reply: Reply<CoreReport> },
    /// To stop: what was done is made durable first.
    Stop,
}

/// A device, without what it says of itself.
pub(crate) struct DeviceBox(pub(crate) Box<dyn Device>);

impl fmt::Debug for DeviceBox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a device")
    }
}

/// What the core tells of itself.
#[derive(Debug)]
pub(crate) struct CoreReport {
    pub(crate) devices: Vec<DeviceReport>,
    pub(crate) clients: Vec<ClientReport>,
    pub(crate) cpu_ns: u64,
}

/// Of a device.
#[derive(Debug)]
pub(crate) struct DeviceReport {
    pub(crate) number: DeviceNumber,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) block: u32,
    pub(crate) how: String,
    pub(crate) under_way: usize,
    pub(crate) is_stuck: bool,
    pub(crate) counts: Counts,
}

/// Of a client.
#[derive(Debug)]
pub(crate) struct ClientReport {
    pub(crate) key: ClientKey,
    pub(crate) depth: u32,
    pub(crate) under_way: usize,
    pub(crate) is_polled: bool,
    pub(crate) counts: Counts,
    pub(crate) grants: Vec<(GrantNumber, Counts)>,
}

/// Where orders go.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    sender: mpsc::Sender<Order>,
    bell: Arc<Bell>,
}

/// The core is not there any more: the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server stops")]
pub(crate) struct Stopped;

impl Orders {
    pub(crate) fn new() -> rustix::io::Result<(Orders, mpsc::Receiver<Order>, Arc<Bell>)> {
        let bell = Arc::new(Bell::new()?);
        let (sender, receiver) = mpsc::channel();
        Ok((Orders { sender, bell: bell.clone() }, receiver, bell))
    }

    /// Sends an order, whose reply comes by itself.
    pub(crate) fn send(&self, order: Order) -> Result<(), Stopped> {
        self.sender.send(order).map_err(|_| Stopped)?;
        self.bell.ring();
        Ok(())
    }

    /// Sends an order and waits for what becomes of it.
    pub(crate) fn ask<T: Send + 'static>(&self, order: impl FnOnce(Reply<T>) -> Order) -> Result<T, Stopped> {
        let (sender, receiver) = mpsc::channel();
        // Nobody waits any more where nobody takes it.
        self.send(order(Reply::new(move |outcome| drop(sender.send(outcome)))))?;
        self.wait(&receiver, None).map_err(|_| Stopped)
    }

    /// Waits for something that the core sends, until then at most.
    pub(crate) fn wait<T>(
        &self,
        receiver: &mpsc::Receiver<T>,
        until: Option<Instant>,
    ) -> Result<T, RecvTimeoutError> {
        #[cfg(feature = "testing")]
        if let Some(core) = crate::stepped::core_of(&self.bell) {
            return crate::stepped::step_until_there(&core, receiver, until);
        }
        match until {
            Some(until) => receiver.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }
}
