//! Disks of the kernel that a process serves: devices as `/dev/ublkbN`, by the Linux driver ublk.
//!
//! Every program and every file system can use such a disk, as it can use any other one, and does not know that a process
//! serves it: the driver (Linux 6.0, `ublk_drv`) hands requests to the process by io_uring.
//!
//! ```no_run
//! use bywash_device::{Memory, MemoryOptions};
//! use bywash_ublk::{Disk, Export, Options};
//!
//! let memory = Memory::new(MemoryOptions::new(1 << 30))?;
//! let export = Export::start(Disk::new("scratch", memory), Options::new(), |event| eprintln!("{event:?}"))?;
//! println!("{}", export.path().display()); // such as /dev/ublkb0, for mkfs, mount, dd and all other programs
//! std::thread::park();
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! | request | carried out as |
//! |---|---|
//! | read, write | a read, a write; durable with FUA |
//! | flush | a flush |
//! | discard | a discard |
//! | write zeroes | a write of zeros; the flag NOUNMAP is not looked at, since devices decide what stays allocated |
//!
//! # Guarantees
//!
//! **To the kernel**: requests complete in any order. A completed flush has made durable every write that had completed
//! before. Requests are never longer than a command of the device, since the kernel was told its limits.
//!
//! **Copies**: the driver copies the data of each request once, between the pages of the program and memory of this process.
//!
//! **When the process ends**: a disk that nobody uses is deleted. One that is in use stays, and its requests wait, for ever if
//! need be: [`Export::start`] with its number goes on with it. So does it after SIGKILL, and requests that the killed process
//! had not completed are carried out again. Whoever wants to be rid of such a disk instead starts and removes it, after ending
//! its use.
//!
//! **The size** is the one that the device had at the start: this driver tells nobody of another one.
//!
//! **Rights**: making a disk needs CAP_SYS_ADMIN. Who may use it, the owner and mode of its file in `/dev` decide, as the
//! system sets them for disks.
//!
//! # Contents
//!
//! - [`Export`], [`Options`], [`Event`], [`Stats`]: serving a disk
//! - [`Disk`]: a device with its name
//! - [`CONTROL`]: the file by which the driver is found
//! - [`Error`]: every error of this crate

#![deny(unsafe_code)]

mod control;
mod export;
mod layout;
mod memory;
mod queue;
mod request;
mod stats;

pub use bywash_export::Error;
pub use control::CONTROL;
pub use export::{DEPTH_MAX, Disk, Event, Export, Options};
pub use stats::Stats;
