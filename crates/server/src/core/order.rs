//! Orders that other threads send to the core, and the replies to them.
//!
//! A core alone owns channels, tables and its queues of devices, so that the path of a request takes no lock. A thread
//! that needs to change or read them sends an order and rings the core's bell; the core carries out orders
//! between two rounds.

use crate::bell::Bell;
use crate::core::copy::CopyMemory;
use crate::core::map::{MapChanged, ThinVolume};
use crate::core::pins::Pinned;
#[cfg(feature = "testing")]
use crate::core::stepped;
use crate::helpers::DropByHelper;
use crate::schedule::{Exchange, Limits};
use bywash_channel as channel;
use bywash_device::{ChunkLayout, Device, Pinner, ReplacedContents, RetiredChunk, SpareChunk};
use bywash_protocol::layout::Status;
use bywash_protocol::report::Counters;
use bywash_sync::AtomicU32;
use bywash_sync::Ordering::Relaxed;
use bywash_volume::{ByteRange, Bytes, DeviceNumber, Grant, GrantError, GrantNumber};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Instant;

/// Function that receives the result of an order. It is called on the core's thread and must return quickly.
pub(crate) struct OnDone<T>(Box<dyn FnOnce(T) + Send>);

impl<T> OnDone<T> {
    pub(crate) fn new(call: impl FnOnce(T) + Send + 'static) -> OnDone<T> {
        OnDone(Box::new(call))
    }

    pub(crate) fn send(self, outcome: T) {
        (self.0)(outcome);
    }
}

impl<T> fmt::Debug for OnDone<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a reply")
    }
}

/// Key by which other threads name a client to the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientKey {
    /// Number of the client's core.
    pub(crate) core: usize,
    /// Index of the client in the core's table.
    pub(crate) slot: usize,
    /// Number of the client, never reused: tells apart clients that had the same slot.
    pub(crate) number: u64,
}

/// Properties of a client that joins.
#[derive(Debug)]
pub(crate) struct NewClient {
    pub(crate) number: u64,
    pub(crate) uid: u32,
    pub(crate) limits: Limits,
    pub(crate) grants_max: u32,
}

/// Remains of a client that has left. Dropping them closes its channel and unmaps its memory.
#[derive(Debug)]
pub(crate) struct ClientRemains {
    /// Counters of the client's requests.
    pub(crate) counts: Counters,
    _held: Box<dyn fmt::Debug + Send>,
}

impl ClientRemains {
    /// Keeps `held` until the remains are dropped.
    pub(crate) fn new(counts: Counters, held: impl fmt::Debug + Send + 'static) -> ClientRemains {
        ClientRemains { counts, _held: Box::new(held) }
    }
}

/// A chunk of a memory device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) device: DeviceNumber,
    pub(crate) number: usize,
}

/// Operation that the core carries out for another thread.
#[derive(Debug)]
pub(crate) enum CoreOrder {
    /// Adds a device by a number that no other has: the core's queue of one of the server's own, or a file that a client
    /// of the user `owner` has passed. `exchange` is what a device of several cores has for its schedules.
    AddDevice {
        number: DeviceNumber,
        name: String,
        device: BoxedDevice,
        owner: Option<u32>,
        exchange: Option<Arc<Exchange>>,
        reply: OnDone<()>,
    },
    /// Removes a device that no grant refers to any more. The reply returns the device when no command is in
    /// flight.
    RemoveDevice { device: DeviceNumber, reply: OnDone<Option<BoxedDevice>> },
    /// Adds a client.
    Join { client: NewClient, reply: OnDone<Result<ClientKey, crate::schedule::Error>> },
    /// Begins to serve a client's channel.
    Serve { client: ClientKey, channel: DropByHelper<Box<channel::Server>>, depth: u32 },
    /// Gives a client a grant: of a thin volume, or of anything else.
    Grant {
        client: ClientKey,
        grant: Grant,
        thin: Option<ThinVolume>,
        reply: OnDone<Result<GrantNumber, bywash_volume::Error>>,
    },
    /// Replaces the maps of grants of a thin volume, as blocks of it were allocated or are to be released.
    Remap { grants: Vec<(ClientKey, GrantNumber, Grant)> },
    /// Continues the requests that waited for a change of a thin volume's map.
    Changed { volume: u64, change: MapChanged },
    /// Waits until no request to these ranges of a device is left. The ranges are in no map any more.
    Drain { device: DeviceNumber, spans: Vec<ByteRange>, reply: OnDone<()> },
    /// Waits until no request that writes a thin volume is left, except those that wait for a change of its map. No map of
    /// a grant allows to write the volume any more.
    DrainWrites { volume: u64, reply: OnDone<()> },
    /// Revokes a grant. The reply is sent when no request by it is in flight.
    Revoke { client: ClientKey, grant: GrantNumber, reply: OnDone<Result<(), GrantError>> },
    /// Lets the devices of a pinner register a client's arena, which a helper has pinned, or not.
    Pinned { client: ClientKey, pinner: Arc<dyn Pinner>, memory: Pinned },
    /// Polls a client's ring, after a helper has read the doorbells in its socket. `is_over` is true if the
    /// connection has ended or the client has sent something invalid.
    Heard { client: ClientKey, is_over: bool },
    /// Removes a client. The reply returns its remains when no request is in flight; dropping them may block.
    Leave { client: ClientKey, reply: OnDone<Option<ClientRemains>> },
    /// Writes zeros to a range of a device, durably.
    Clear { device: DeviceNumber, span: ByteRange, reply: OnDone<Status> },
    /// Copies a range of a device to the range that begins at byte `to`, through memory of at least that size. The copy is
    /// durable after [`CoreOrder::Flush`].
    Copy { device: DeviceNumber, from: ByteRange, to: Bytes, memory: Arc<CopyMemory>, reply: OnDone<Status> },
    /// Makes all that was written to a device durable.
    Flush { device: DeviceNumber, reply: OnDone<Status> },
    /// Returns descriptors of consecutive chunks, for mapping writable or read-only.
    Chunks {
        first: Chunk,
        count: usize,
        writable: bool,
        reply: OnDone<Result<Vec<OwnedFd>, bywash_device::Error>>,
    },
    /// Returns the shape of memory that can replace a chunk.
    Shape { chunk: Chunk, reply: OnDone<ChunkLayout> },
    /// Replaces a chunk's memory. The reply returns the old memory; dropping it may block.
    Replace {
        chunk: Chunk,
        keep: ReplacedContents,
        spare: SpareChunk,
        reply: OnDone<Result<RetiredChunk, bywash_device::Error>>,
    },
    /// Returns the state and counters of the core's devices and clients.
    Report { reply: OnDone<CoreReport> },
    /// Stops the core, which flushes the devices before it ends.
    Stop,
}

/// A device in a box, with a short `Debug` form.
pub(crate) struct BoxedDevice(pub(crate) Box<dyn Device>);

impl fmt::Debug for BoxedDevice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a device")
    }
}

/// State and counters of the core.
#[derive(Debug)]
pub(crate) struct CoreReport {
    pub(crate) core: usize,
    pub(crate) devices: Vec<DeviceReport>,
    pub(crate) clients: Vec<ClientReport>,
    pub(crate) cpu_ns: u64,
}

/// State and counters of a device.
#[derive(Debug)]
pub(crate) struct DeviceReport {
    pub(crate) number: DeviceNumber,
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) block: u32,
    pub(crate) how: String,
    pub(crate) in_flight: usize,
    pub(crate) is_stuck: bool,
    pub(crate) counts: Counters,
}

/// State and counters of a client.
#[derive(Debug)]
pub(crate) struct ClientReport {
    pub(crate) key: ClientKey,
    pub(crate) depth: u32,
    pub(crate) in_flight: usize,
    pub(crate) is_polled: bool,
    pub(crate) counts: Counters,
    pub(crate) grants: Vec<(GrantNumber, Counters)>,
}

/// Handle by which other threads send orders to a core.
#[derive(Clone, Debug)]
pub(crate) struct CoreHandle {
    /// Number of the core in its server.
    number: usize,
    load: Arc<CoreLoad>,
    sender: mpsc::Sender<CoreOrder>,
    bell: Arc<Bell>,
}

/// Error for an order to a core that has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server stops")]
pub(crate) struct CoreStopped;

/// Load of a core, as it last told.
#[derive(Debug, Default)]
struct CoreLoad {
    /// Number of clients that have sent requests lately.
    active: AtomicU32,
    clients: AtomicU32,
}

impl CoreHandle {
    pub(crate) fn new(
        number: usize,
    ) -> rustix::io::Result<(CoreHandle, mpsc::Receiver<CoreOrder>, Arc<Bell>)> {
        let bell = Arc::new(Bell::new()?);
        let (sender, receiver) = mpsc::channel();
        let load = Arc::new(CoreLoad::default());
        Ok((CoreHandle { number, load, sender, bell: bell.clone() }, receiver, bell))
    }

    /// Returns the number of the core in its server.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Makes the key of the core's client with this number in a slot of its table.
    pub(crate) fn key(&self, slot: usize, number: u64) -> ClientKey {
        ClientKey { core: self.number, slot, number }
    }

    /// Tells the core's load to those who choose a core for a client: how many of its clients are active, and how many
    /// there are.
    pub(crate) fn note_load(&self, active: usize, clients: usize) {
        // The number of clients is limited far below 2^32. Nothing else is read after these values.
        self.load.active.store(active as u32, Relaxed);
        self.load.clients.store(clients as u32, Relaxed);
    }

    /// Returns the numbers of active clients and of all clients.
    pub(crate) fn load(&self) -> (u32, u32) {
        (self.load.active.load(Relaxed), self.load.clients.load(Relaxed))
    }

    /// Sends an order. Its [`OnDone`] is called when the core has carried it out.
    pub(crate) fn send(&self, order: CoreOrder) -> Result<(), CoreStopped> {
        self.sender.send(order).map_err(|_| CoreStopped)?;
        self.bell.ring();
        Ok(())
    }

    /// Sends an order and waits for its reply.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        order: impl FnOnce(OnDone<T>) -> CoreOrder,
    ) -> Result<T, CoreStopped> {
        let (sender, receiver) = mpsc::channel();
        // The send fails only if the receiver was dropped and nobody waits any more.
        self.send(order(OnDone::new(move |outcome| drop(sender.send(outcome)))))?;
        self.wait(&receiver, None).map_err(|_| CoreStopped)
    }

    /// Waits for a message of the core, at most until `until`.
    pub(crate) fn wait<T>(
        &self,
        receiver: &mpsc::Receiver<T>,
        until: Option<Instant>,
    ) -> Result<T, RecvTimeoutError> {
        #[cfg(feature = "testing")]
        if stepped::is_here(&self.bell) {
            return stepped::step_until_there(receiver, until);
        }
        match until {
            Some(until) => receiver.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }
}
