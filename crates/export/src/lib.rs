//! The basis of servers of disks: the thread of an export, its signals, and the errors of exports.
//!
//! An *export* serves devices to peers that connect to a socket, by one of the protocols that programs and virtual
//! machines use disks by. `bywash-vhost` and `bywash-nbd` are built on this crate, each with its own protocol.
//!
//! ```
//! use bywash_export::{ExportThread, Signal};
//! use rustix::event::Timespec;
//!
//! let stop = Signal::new()?;
//! let theirs = stop.clone();
//! let turn = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
//! let thread = ExportThread::start("clock", &stop, move || while !theirs.wait(&turn) { /* serves */ })?;
//! drop(thread); // gives the signal, and waits until the thread has ended
//! # Ok::<_, bywash_export::Error>(())
//! ```
//!
//! - [`ExportThread`], [`Signal`]: a thread that its owner stops and waits for
//! - [`prepare_listener`]: a socket at which peers connect that need not be trusted
//! - [`PollList`]: the list for poll(2), whose memory is used again in each turn
//! - [`Error`]: every error of exports

#![forbid(unsafe_code)]

mod error;
mod listener;
mod poll_list;
mod signal;
mod thread;

pub use error::Error;
pub use listener::prepare_listener;
pub use poll_list::PollList;
pub use signal::Signal;
pub use thread::{ExportThread, STOP_LIMIT};
