//! Client library of a device server: opens its volumes, and reads and writes them.
//!
//! ```text
//!     Volume ──── is it mapped? ──── yes ──► copy, fence, look at the grant's word       no server on the way
//!     Queue             no
//!                       └─ is it direct? ─── yes ──► command to an NVMe controller       no server on the way
//!                                 └───────── no ───► buffer, request, completion         no system call on the way
//! ```
//!
//! A [`Client`] connects to a server and opens [`Volume`]s, by name or by a file descriptor. A volume is read
//! and written at byte offsets by calls that block until they are done. A [`Queue`] keeps many requests in
//! flight. Both take the shortest path that the medium offers and report which one that is ([`VolumePath`]).
//! Access rights are decided when a volume is opened. They are enforced on every request, by the server or,
//! where the medium's memory is mapped, by the processor.
//!
//! ```no_run
//! use bywash_client::{Access, Client, Options};
//!
//! let client = Client::connect("/run/bywash/serve.socket", Options::new())?;
//! let volume = client.open("log", Access::ReadWrite)?;
//! volume.write_at(&[7; 4096], 8192)?;
//! volume.flush()?;
//! let mut bytes = [0; 4096];
//! volume.read_at(&mut bytes, 8192)?;
//!
//! let mut queue = client.queue()?;
//! let log = queue.open("log", Access::ReadWrite)?;
//! for number in 0..8 {
//!     queue.write_from(log, number * 4096, &[1; 4096], false, number).map_err(|refused| refused.error)?;
//! }
//! while queue.in_flight() > 0 {
//!     let done = queue.reap()?;
//!     done.outcome?;
//! }
//! # Ok::<_, bywash_client::Error>(())
//! ```
//!
//! *Memory.* A request may use any memory of the program. Its bytes are copied through the arena, or once
//! where the volume is mapped. A [`Buffer`] of a queue's arena is sent to the server without a copy. *Order,
//! durability.* Both are as specified in [`bywash_protocol::layout`]. *Death of the server.* Every call ends
//! with an error within the timeout, or the client connects to another server ([`Reconnect`]).
//!
//! *Direct grants.* Where a volume is a whole namespace of an NVMe controller, and the server trusts the user, the client
//! gets the controller's function to itself, and drives it. Rights, alignment and bounds are checked by this library; the
//! hardware limits the client to the namespace, and the IOMMU limits the controller to this process's memory. Memory that
//! a queue has allocated is not copied. When the grant is revoked or the server dies, requests in flight fail, and may have
//! been carried out; they are not submitted again. The ranges of a request are carried out one after the other by a
//! [`Client`], and side by side by a [`Queue`]. A program that only polls has no interrupts; the first call of [`Queue::arm`], or of a
//! function that waits longer than a short while, enables them.
//!
//! *Transfers.* A program that reads or writes the same buffers again and again prepares them ([`Queue::prepare`]). Such a
//! request is submitted with an offset alone, and takes a quarter of the instructions of another one where the volume is
//! direct.
//!
//! - [`Client`], [`Options`], [`PathChoice`], [`Reconnect`], [`Wait`]: the connection
//! - [`Volume`], [`ReadPiece`], [`WritePiece`], [`MappedMemory`]: calls that block
//! - [`Queue`], [`VolumeId`], [`Range`], [`Buffer`], [`RequestMemory`], [`Completion`], [`TransferId`], [`QueueDispatcher`]:
//!   calls that do not
//! - [`NewVolume`], [`Permissions`], [`report`]: for administrators
//! - [`Error`]: every error of this crate
//!
//! Modules: `session` speaks over the control socket, `direct` drives granted hardware, `mapped` holds the memory of grants and decides when an
//! access counts, `calls` lets threads share a channel, `request` encodes requests and decodes their
//! completions.

mod administer;
mod calls;
mod client;
mod direct;
mod error;
mod mapped;
mod options;
mod queue;
mod request;
mod session;
mod volume;

pub use administer::{NewVolume, Permissions};
pub use bywash_channel::{ArenaUse, Wait};
pub use bywash_protocol::{Access, ExportProtocol, Refusal, RefusalKind, report};
pub use client::Client;
pub use error::Error;
pub use options::{Options, PathChoice, Reconnect, VolumePath};
pub use queue::{
    Buffer, Completion, Queue, QueueDispatcher, Range, RequestMemory, SubmitError, TransferBuffer,
    TransferId, TransferKind, VolumeId,
};
pub use volume::{MappedMemory, ReadPiece, SharedMapping, Volume, WritePiece};
