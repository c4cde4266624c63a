//! Keeper of a commit log: makes the log, recovers it after a crash, and keeps it while programs commit to it.
//!
//! Programs append to the log by themselves (`bywash-log`). This crate is everything else: `bywash log` and the process that
//! `bywash run --log` starts are thin layers over it.
//!
//! ```
//! use bywash_keeper::{NewLog, create, remove, status_at};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("log");
//! create(&path, &NewLog { bytes: Some(8 << 20), is_volatile_allowed: true, ..NewLog::default() })?;
//! assert_eq!(status_at(&path)?.bytes, 8 << 20);
//! remove(&path)?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`create`], [`remove`]: a new log; `place`: where it may lie
//! - [`recover_at`], [`recover()`]: what is in the log goes into the files
//! - [`status_at`], [`checkpoint_at`]: of a log with or without a keeper
//! - [`keep()`]: the keeper; [`Client`]: its clients
//! - [`LogFile`], `contents`: reading and writing the log file
//! - [`Error`], [`Problem`]: failures, and files that recovery refuses
//! - `rights`: whose rights count; `runtime`: the keeper's socket
//! - [`report`]: what is told as JSON
//!
//! Invariant: a file is written by recovery only, and only after a crash of the machine. Unsafe code is confined to `sys` and
//! `keep/rewrite.rs`.

#![deny(unsafe_code)]

mod aligned;
mod client;
mod command;
mod contents;
mod create;
mod error;
mod keep;
mod log_file;
mod place;
mod problem;
mod recover;
pub mod report;
mod rights;
mod runtime;
mod sys;

pub use client::{Attached, Client};
pub use command::{checkpoint_at, recover_at, status_at};
pub use contents::{Contents, Live};
pub use create::{DEFAULT_BYTES, NewLog, create, remove};
pub use error::Error;
pub use keep::{IDLE_LIMIT, keep};
pub use log_file::{Access, LogFile, VolumeFile, VolumeName, absolute};
pub use problem::Problem;
pub use recover::{Recovery, Step, recover};
pub use sys::{close_inherited, close_output, log as log_to_system};
