//! Disks for every NBD client: devices served by the network block device protocol.
//!
//! NBD is spoken by the Linux kernel (nbd-client, `/dev/nbd0`), QEMU (`nbd:`), libnbd (nbdcopy, nbdfuse), fio,
//! and others: any of them can use a [`Device`] that this crate serves, over a Unix socket or TCP.
//!
//! ```no_run
//! use bywash_device::{Memory, MemoryOptions};
//! use bywash_nbd::{Disk, Event, Export, Options};
//! use std::os::unix::net::UnixListener;
//!
//! let listener = UnixListener::bind("/run/bywash/nbd.sock")?;
//! let disk = Disk::new("scratch", Memory::new(MemoryOptions::new(1 << 30))?);
//! let report = |event: Event| eprintln!("nbd: {event:?}");
//! let export = Export::start(listener, vec![disk], Options::new(), report)?;
//! // nbdcopy /dev/sdb 'nbd+unix:///scratch?socket=/run/bywash/nbd.sock'
//! std::thread::park();
//! drop(export);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! # The protocol
//!
//! As published in proto.md of the NBD project. Handshake: fixed newstyle, `NO_ZEROES`; the options `LIST`,
//! `INFO`, `GO`, `EXPORT_NAME`, `ABORT`, `STRUCTURED_REPLY`, `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
//! `STARTTLS` is refused (`ERR_POLICY`) unless the server has certificates (the feature `tls`), and required if it
//! has (`ERR_TLS_REQD`). Every other option is unknown (`ERR_UNSUP`).
//!
//! | request | carried out as |
//! |---|---|
//! | `READ` | a read, replied to simply or by structured chunks; `DF` is kept for every length |
//! | `WRITE` | a write, durable with `FUA` |
//! | `FLUSH` | a flush |
//! | `TRIM` | a discard; with `FUA` a flush behind it |
//! | `WRITE_ZEROES` | a write of zeros; with `NO_HOLE` by zeros as data; with `FUA` durable; `FAST_ZERO` gets `ENOTSUP`, since devices do not tell what is fast |
//! | `BLOCK_STATUS` | one extent of `base:allocation`, allocated: devices do not tell where they have holes |
//! | `DISC` | the end, when all requests in flight have completed |
//! | `CACHE`, `RESIZE` and others | `EINVAL`; they are not offered |
//!
//! # Guarantees
//!
//! **To the client**: the rules of the specification. Requests complete in any order. A completed flush has made
//! durable every write whose reply had been sent before, on this connection or another one, so that several
//! connections can use an export (`CAN_MULTI_CONN`). Requests are of whole blocks of the device, and others get
//! `EINVAL`. Requests longer than a command of the device are carried out in parts; then a structured reply to a
//! read tells which parts have failed. When a device has another size ([`Export::refresh`]), clients that connect are told
//! of it.
//!
//! **To the server**: no client needs to be trusted. Whatever a client sends, only the devices behind the
//! listener are accessed, within their sizes. A client that breaks the protocol is disconnected. So is one that
//! does not finish the handshake, does not go on with a message, or does not receive its replies in time. Memory
//! is bounded for each client and for all together, and so are requests in flight. Clients can use up the
//! processor time of the listener's thread, and no other resource.
//!
//! **After a client has disconnected**, its requests in flight complete. Writes that were not flushed may or may
//! not be there after a crash, as with any disk. A write of which only a part had arrived has no effect.
//!
//! **The transport** is neither encrypted nor authenticated by default: who can connect can use the exports.
//! [`check_loopback`] tells whether a TCP address can be reached from other machines. With the feature `tls` and
//! `Options::tls`, a client must use TLS with a certificate that a given authority has signed.
//!
//! # Contents
//!
//! - [`Export`], [`Options`], [`Event`], [`StatsHandle`], [`Stats`]: serving; disks can be added and removed meanwhile
//! - [`Disk`]: a device with its name
//! - [`Listener`], [`check_loopback`]: the socket at which clients connect
//! - [`Error`]: every error of this crate
//!
//! [`Device`]: bywash_device::Device

#![deny(unsafe_code)]

mod buffer;
mod connection;
mod disk;
mod engine;
mod event;
mod export;
mod handshake;
mod layout;
#[cfg(not(feature = "tls"))]
mod no_tls;
mod order;
mod pace;
mod raw;
mod reply;
mod request;
mod service;
mod socket;
mod stats;
#[cfg(feature = "tls")]
mod tls;
mod waiter;

#[cfg(not(feature = "tls"))]
use no_tls as tls;

pub use bywash_export::Error;
pub use disk::Disk;
pub use event::Event;
pub use export::{CLIENTS_MAX, DISKS_MAX, Export, Options, StatsHandle};
pub use socket::{CLOSING_MAX, Listener, check_loopback};
pub use stats::Stats;
#[cfg(feature = "tls")]
pub use tls::Tls;
