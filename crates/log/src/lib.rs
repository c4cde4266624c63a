//! Format of the commit log: what makes a commit durable without the file system.
//!
//! A program that calls fsync(2) waits until the file system has written the file. With a log, the ranges that were
//! written since the last commit are appended to the log by one write, and the file system writes the file later. After
//! a crash of the machine, recovery writes the ranges into the files again.
//!
//! ```
//! use bywash_log::layout::{BATCH_HEADER, BLOCK, BatchHeader, FileNumber, RecordHeader};
//!
//! // One commit of five bytes at offset 4096.
//! let file = FileNumber { slot: 0, incarnation: 0 };
//! let record = RecordHeader { sequence: 1, file, offset: 4096, size: 4101, length: 5 };
//! let mut batch = vec![0; BLOCK];
//! batch[BATCH_HEADER..][..40].copy_from_slice(&record.encode());
//! batch[BATCH_HEADER + 40..][..5].copy_from_slice(b"hello");
//! let length = (BATCH_HEADER + RecordHeader::record_bytes(5)) as u32;
//! let header = BatchHeader { epoch: 1, number: 1, length, records: 1, previous: 0 };
//! let checksum = header.encode(&mut batch);
//!
//! assert_eq!(BatchHeader::decode(&batch), Ok(header));
//! assert_eq!(header.check(&mut batch), Ok(checksum));
//! ```
//!
//! - [`layout`]: superblock, files, marks, batches and records on the log file
//! - [`head`]: the place of the next batch
//! - [`read`]: reading a log, and telling a torn end from corruption
//! - [`checksum`]: checksums of blocks and batches
//! - [`ranges`]: ranges of a file that were written since its last commit
//! - [`shared`]: memory that the users of a log share
//! - [`counts`]: counters and latencies, of a log and of one run
//! - [`commit`]: commits, and marks for files that the kernel made durable
//! - [`claim`]: claim of a file for one log, and whether it still means something
//! - [`join`]: identity of a file, by which recovery finds it again
//! - `leave`: files that are no longer where their identity says, and syncs of many files at once
//! - [`log_file`]: writing of the log by one process: `descriptor`, [`window`] or [`relay`], as [`write_method`] says
//! - [`in_use`]: locks by which a log counts as used
//! - [`trial`]: choice between the log and the kernel, by the time that both take
//! - [`mutants`]: deliberate faults for tests of the crash tests
//! - [`robust`]: a mutex that survives the death of its owner
//! - [`sys`]: system calls
//!
//! There is no standard library in it, since there is none in the preloaded library.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod checksum;
pub mod claim;
pub mod commit;
pub mod counts;
mod descriptor;
pub mod head;
pub mod in_use;
pub mod join;
pub mod layout;
mod leave;
pub mod log_file;
pub mod mutants;
pub mod ranges;
pub mod read;
pub mod relay;
pub mod robust;
pub mod shared;
pub mod sys;
pub mod trial;
pub mod window;
pub mod write_method;
