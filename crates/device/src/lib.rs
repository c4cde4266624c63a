//! Block devices behind one interface: memory, a file, or a block device of the kernel.
//!
//! A [`Device`] takes commands, up to its depth at a time, and reports each command's completion. A device
//! has one user, who polls it, or sleeps on a descriptor until it has completions. Commands allocate nothing.
//! A device knows nothing about the clients for whom commands are carried out: permissions have been checked
//! before.
//!
//! ```
//! use bywash_device::{Command, Device, Memory, MemoryOptions, Segment};
//! use std::sync::Arc;
//!
//! let mut device = Memory::new(MemoryOptions::new(1 << 20))?;
//! let mut memory = *b"hello";
//! let mut block = vec![0; 507];
//! // SAFETY: both pieces live until the command has completed, below, and nothing else accesses them before.
//! let segments = unsafe { [Segment::new(memory.as_mut_ptr(), 5), Segment::new(block.as_mut_ptr(), 507)] };
//! device.submit(Command::write(7, 4096, &segments)).expect("nothing else is in flight");
//! while device.in_flight() > 0 {
//!     device.reap(&mut |completion| assert_eq!((completion.token, completion.result), (7, Ok(()))));
//! }
//! # Ok::<_, bywash_device::Error>(())
//! ```
//!
//! # Rules
//!
//! Guarantees to the user of a device. The suite `testing::conformance` tests every device for them.
//!
//! **Blocks.** Offsets and lengths are multiples of the logical block, which has 512 bytes or more. A block
//! is read and written atomically: no read returns a mixture of two writes within one block, and neither does
//! a block after a crash. A command of several blocks is not atomic: after a failure or a crash any of its
//! blocks may have been written. Accesses that bypass the device, through the mapped memory of a `mem:`
//! device or to the file itself, may see torn blocks.
//!
//! **Order.** Commands in flight complete in any order. Two commands that overlap, at least one of which
//! changes the device, take effect in the order in which they were submitted: a read sees the writes that
//! were submitted before it, and none that was submitted after it. Commands that do not overlap are not
//! ordered: a user who needs an order waits until the first command has completed.
//!
//! **Compare and write** of one block is atomic: no other command of the device takes effect between the
//! comparison and the write.
//!
//! **Queues.** Several threads can use one device by a queue each ([`queues`]). All rules hold for the queues together,
//! except for the order of overlapping commands that are in flight on different queues: these take effect one after the
//! other, in any order. A command that was submitted after the completion of another one sees its effect, whatever the
//! queues, and a flush covers what had completed on any queue.
//!
//! **Durability.** A completed write may still be in a volatile cache. After a crash each of its blocks has
//! the contents of the last durable write to the block, or of any later write. A completed flush has made
//! durable every command that had *completed* before the flush was submitted, which means that
//! [`Device::reap`] had reported it or that [`Device::carry_out`] had carried it out. Commands that were in
//! flight then may or may not be durable. A durable write ([`Command::write_durable`], FUA) is durable when
//! it has completed, and has no effect on other writes. Durable means on the medium, as far as the kernel and
//! the device tell (fdatasync(2)). The medium of a `mem:` device is memory, which lasts as long as any
//! process holds it.
//!
//! **Discard** is a hint. Until a discarded block is written again, it reads as its old contents, as zeros,
//! or as anything else that the medium returns. **Write zeroes** is a write.
//!
//! **Failures.** A command that cannot be carried out fails with a [`CommandError`], and affects no other
//! command. If another process truncates a file ([`File::passed`]), reads beyond its new end fail; writes
//! there extend the file again.
//!
//! **Rights.** No command changes a device that may only be read, and no command reveals contents of a device
//! that may only be written ([`Access`]).
//!
//! **Time.** A command completes exactly once, however late. It has no timeout and cannot be cancelled. The
//! kernel does not give up an operation that it has begun (io_uring cancels requests in its own queues, but
//! not those that a disk is carrying out), so even after a cancellation the memory could not be reused. A
//! user who gives up on a device that does not respond submits nothing more, keeps polling for late
//! completions, and drops the device on a thread that may block.
//!
//! **Memory.** A command's memory belongs to the command until it completes or the device has been dropped;
//! dropping waits until the kernel no longer uses the memory. Others may write to the memory meanwhile; see
//! [`Segment`].
//!
//! **Mapped memory.** If a device has [`Chunks`], other processes can map them: these processes see the
//! effects of commands byte by byte. Replacing a chunk, which happens between two commands, ends the access
//! of those who have the old chunk mapped; offsets and contents stay the same.
//!
//! # What is here
//!
//! - [`Device`], [`Geometry`], [`Access`]: the interface
//! - [`Command`], [`Operation`], [`Completion`], [`CommandError`], [`QueueFull`]: commands and their
//!   completions
//! - [`Segment`], [`SEGMENTS_MAX`], [`MemoryOwner`], [`Region`], [`PinnedRegion`], [`REGION_MAX`],
//!   [`RegionId`]: the memory that commands read into and write from; [`Pinner`], [`Pinning`]: how a device has it pinned
//! - [`Spec`], [`device_kinds`]: the description of a device as text, and the kinds and options that exist;
//!   [`DeviceKind`], [`DeviceOptions`], [`DevicePart`]: kinds of devices of other crates
//! - [`Grantable`], [`Handover`]: hardware behind a device that can be handed to one process whole
//! - [`Memory`], [`MemoryOptions`]: a device of memory; [`Chunks`]: its memory, which others can map;
//!   [`ReplacedContents`], [`ChunkLayout`], [`SpareChunk`], [`RetiredChunk`]: replacing a chunk, which
//!   revokes access to it
//! - [`File`], [`FileOptions`], [`FileKind`], [`EngineKind`]: a device of a file or a block device;
//!   [`PassedOptions`], [`FileUser`]: a device of a file that another process has opened
//! - [`Order`], [`Pieces`], [`gather`], [`scatter`]: for devices in other crates, the order of overlapping commands,
//!   the pieces of bounce memory, and copies
//!   from and to segments
//! - [`queues`]: several queues of one device, for as many threads; [`Claims`], [`ClaimAttempt`]: how devices in other crates
//!   keep commands of different queues apart
//! - [`read_exclusive`], [`write_exclusive`], [`flush_exclusive`]: synchronous commands of a device that nobody else uses
//!   yet
//! - [`Error`]: errors of opening a device and of registering memory
//! - `testing`, with the feature of that name: the conformance suite of devices, and devices that fail, crash and
//!   stop on demand, for tests

mod alone;
mod chunks;
mod claims;
mod command;
mod device;
mod error;
mod file;
mod grantable;
mod memory;
mod order;
mod pages;
mod pieces;
mod region;
mod segment;
mod shared;
mod spare;
mod spec;
#[cfg(feature = "testing")]
pub mod testing;

pub use alone::{flush_exclusive, read_exclusive, write_exclusive};
pub use bywash_protocol::Access;
pub use chunks::{Chunks, ReplacedContents};
pub use claims::{ClaimAttempt, Claims};
pub use command::{Command, CommandError, Completion, Operation, QueueFull};
pub use device::{Device, Geometry};
pub use error::Error;
pub use file::{EngineKind, File, FileKind, FileOptions, FileUser, PassedOptions};
pub use grantable::{DevicePart, Grantable, Handover};
pub use memory::{Memory, MemoryOptions};
pub use order::Order;
pub use pieces::Pieces;
pub use region::{PinnedRegion, Pinner, Pinning, REGION_MAX, Region, RegionId};
pub use segment::{MemoryOwner, SEGMENTS_MAX, Segment, gather, scatter};
pub use shared::queues;
pub use spare::{ChunkLayout, RetiredChunk, SpareChunk};
pub use spec::{DeviceKind, DeviceOptions, Spec, device_kinds};
