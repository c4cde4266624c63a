//! Volumes of a device server, from a program.
//!
//! ```text
//!     Volume ──── is it mapped? ──── yes ──► copy, fence, look at the grant's word       no server on the way
//!     Queue             └─────────── no ───► buffer of the arena, request, completion    no system call on the way
//! ```
//!
//! A [`Client`] connects to a server and opens [`Volume`]s, by name or by a descriptor. A volume is read and written at
//! positions, by calls that wait. A [`Queue`] has many requests under way at a time. Both go the shortest way that the medium
//! has ([`Path`]), and say which; rights are decided when a volume is opened, and held against every request by the
//! server, or by the processor where the medium's memory is mapped.
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
//! while queue.under_way() > 0 {
//!     let done = queue.reap()?;
//!     done.outcome?;
//! }
//! # Ok::<_, bywash_client::Error>(())
//! ```
//!
//! *Whose memory.* Any of the program's: it is copied through the arena, or once where the volume is mapped. A [`Buffer`]
//! of a queue's arena is not copied on its way. *Order, durability.* As [`bywash_protocol::layout`] says. *When the server
//! dies* every call ends with an error within the limit, or another server is connected to ([`Reconnect`]).
//!
//! - [`Client`], [`Options`], [`Choice`], [`Reconnect`], [`Wait`]: the connection
//! - [`Volume`], [`ReadPiece`], [`WritePiece`], [`Lent`]: calls that wait
//! - [`Queue`], [`VolumeId`], [`Range`], [`Buffer`], [`Room`], [`Completion`], [`QueueDispatcher`]: calls that do not
//! - [`NewVolume`], [`Permissions`], [`report`]: for administrators
//! - [`Error`]: what can go wrong
//!
//! Inside: `session` is what is said over the control socket, `mapped` the memory of grants and when an access counts, `calls`
//! how threads share a channel, `request` what a request says.

mod administer;
mod calls;
mod client;
mod error;
mod mapped;
mod options;
mod queue;
mod request;
mod session;
mod volume;

pub use administer::{NewVolume, Permissions};
pub use bywash_channel::{ArenaUse, Wait};
pub use bywash_protocol::{Access, Code, Refused, report};
pub use client::Client;
pub use error::Error;
pub use options::{Choice, Options, Path, Reconnect};
pub use queue::{Buffer, Completion, NotSubmitted, Queue, QueueDispatcher, Range, Room, VolumeId};
pub use volume::{Lent, ReadPiece, Volume, WritePiece};
