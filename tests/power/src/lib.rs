//! Power cuts: every request that reaches a disk is recorded, and for many moments the disk is built as a cut would have left
//! it. Then its file system is mounted, the program's data are recovered and checked against what had been acknowledged.
//!
//! A disk has a volatile cache: only what it completed before a flush was issued is sure. Each later write is there, lost or
//! torn, as chance has it.
//!
//! ```no_run
//! use bywash_power::campaign::Campaign;
//! use bywash_power::disk::Format;
//! use bywash_power::workload::model::Model;
//!
//! let campaign = Campaign::from_environment(30);
//! let program = std::path::Path::new("target/debug/bywash-power");
//! let outcome = campaign.run(program, &Model::new(Format::Ext4, 300)).expect("a machine");
//! assert_eq!(outcome.failure, None, "seed {}", campaign.seed);
//! ```
//!
//! - [`campaign`]: a recorded run of a workload, and the check after each cut
//! - [`kill`]: kills of a program and its log's keeper on a machine that goes on
//! - [`demo`]: the power cuts of `make demo`
//! - [`workload`]: programs that commit: the model, SQLite, servers
//! - [`model`]: a program of several processes and the states of its files that a cut may leave
//! - [`machine`]: mounted disks, the recorder below them
//! - [`disk`]: sizes and file systems of disks
//! - [`launch`]: programs, confined so that none outlives the test
//! - [`image`]: the plan of the cuts, and the disks after them
//! - [`recording`]: the recorded requests
//! - [`serve`]: the process that serves the recorded disks
//! - [`fuse`]: its messages
//! - [`random`]: reproducible random numbers
//!
//! Environment variables: `BYWASH_POWER_SEED` (as a failure prints it), `BYWASH_POWER_CUTS` (number of cuts of each test),
//! `BYWASH_POWER_REPLAY` (folder of a recording that a failure has kept), and those of [`launch::Launch`]. The seed chooses
//! the work and the cuts. Since several processes work at the same time, no two recordings are equal: a failure keeps its own.
//!
//! Tests of the tests, in `tests/mutants.rs`: a program that leaves its syncs out, a disk that ignores a flush, a disk that
//! loses a flushed write, and a log with each of the faults in `crates/log/src/mutants.rs`. Each must be convicted.

#![forbid(unsafe_code)]

pub mod campaign;
pub mod demo;
pub mod disk;
pub mod fuse;
pub mod image;
pub mod kill;
pub mod launch;
pub mod machine;
pub mod model;
pub mod random;
pub mod recording;
pub mod serve;
pub mod workload;
