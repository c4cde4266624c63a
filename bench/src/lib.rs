//! Benches that produce each number that Bywash publishes.
//!
//! `bywash bench run` runs real programs in interleaved pairs, once with the kernel alone and once with the
//! preloaded library, on several file systems, and makes one row of every case: the median of the ratios,
//! their spread, what the device read and wrote, and how many calls were served at user level.
//!
//! In reading order:
//!
//! - [`command`]: the flags and the exit status
//! - `campaign`: cases that are chosen by name and measured one after the other
//! - [`engine`]: sides that take turns, and the rows of a case; how a case is declared
//! - `run`: unmodified programs with the preloaded library against the kernel alone
//! - `log`: programs that commit, with a commit log against the kernel alone
//! - `ipc`: containers and channels against other transports between two processes
//! - `display`: frames that a display server maps against frames that are copied
//! - `flow`: flows against programs and hand-written loops that move the same bytes
//! - `plan`: the simulator's engine and the model against what one would write in Python
//! - `nvme`: instructions of our NVMe driver and of the kernel's paths, counted in a virtual machine
//! - [`serve`]: our device server against the kernel's memory and disk, and qemu-storage-daemon
//! - `child`: another program, and waiting for it with a limit
//! - `place`, `mount`, [`workspace`]: the file systems that cases run on, made and removed
//! - `programs`: programs as lines of words, and the small C programs that drive a library, compiled when they are needed
//! - `python`: environments with packages of Python, and scripts that run in one
//! - `usage`, `clock`: device bytes, page faults and CPU time of a run
//! - [`row`], [`statistics`], `machine`: the report
//! - `table`, `html`, `figure`, `number`: its forms for people
//! - [`interrupt`], [`error`], `say`: early ends, and messages on standard error
#![deny(unsafe_code)]
// Only the command uses this crate: its documentation is for those who change it, with private items.
#![allow(rustdoc::private_intra_doc_links)]
// They panic where nobody reads; see `say`.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod campaign;
mod child;
mod clock;
pub mod command;
mod display;
pub mod engine;
pub mod error;
mod figure;
mod flow;
mod html;
pub mod interrupt;
mod ipc;
mod log;
mod machine;
mod mount;
mod number;
mod nvme;
mod place;
mod plan;
mod programs;
mod python;
pub mod row;
mod run;
mod say;
pub mod serve;
pub mod statistics;
mod table;
mod usage;
pub mod workspace;

pub use error::Error;
pub use row::{Report, Row};
