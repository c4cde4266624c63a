//! What can be read and written: memory, a file or a block device, behind one interface.
//!
//! A [`Device`] takes commands, as many at a time as it is deep, and gives them out when they are done. It has one user,
//! who polls, or sleeps on a descriptor; commands cost no allocation. It knows nothing of whoever the commands are
//! carried out for: who may do what has been decided before.
//!
//! ```
//! use bywash_device::{Command, Device, Memory, MemoryOptions, Span};
//! use std::sync::Arc;
//!
//! let mut device = Memory::new(MemoryOptions::new(1 << 20))?;
//! let mut memory = *b"hello";
//! let mut block = vec![0; 507];
//! // SAFETY: both pieces are there until the command is done, below, and nobody looks at them before.
//! let spans = unsafe { [Span::new(memory.as_mut_ptr(), 5), Span::new(block.as_mut_ptr(), 507)] };
//! device.submit(Command::write(7, 4096, &spans)).expect("nothing else is under way");
//! while device.under_way() > 0 {
//!     device.poll(&mut |done| assert_eq!((done.token, done.result), (7, Ok(()))));
//! }
//! # Ok::<_, bywash_device::Error>(())
//! ```
//!
//! # Rules
//!
//! What whoever uses a device may rely on, and what `tests/conformance.rs` holds every device to.
//!
//! **Blocks.** Offsets and lengths are multiples of the logical block, of 512 bytes or more. A block is read and written
//! as a whole: nobody ever sees a part of one write and a part of another in it, neither in a read nor after a crash.
//! A command of several blocks has no such promise: after a failure or a crash any of its blocks may have been written.
//! Neither has whoever looks past the device: at a `mem:` device's memory that is mapped, or at the file.
//!
//! **Order.** Commands under way are done in any order. Two that overlap, at least one of which changes the device, take
//! effect in the order in which they were submitted: a read sees the writes that were submitted before it, and none that
//! was submitted after it. Commands that do not overlap have no order: who needs one waits for the first to be done.
//!
//! **Compare and write** of one block is one step: no other command of the device comes between.
//!
//! **Durability.** A write that is done may be in a volatile cache; after a crash each of its blocks has the contents of
//! any write to it since the last that is durable, or of that. A flush that is done has made durable everything that was
//! *done*, which is to say was given out by [`Device::poll`] or carried out at once ([`Device::carry_out`]), before the
//! flush was submitted; of what was under way it says nothing. A durable write ([`Command::write_durable`], FUA) is
//! durable when it is done, and says nothing of others. Durable means: on the medium, as the kernel and the device say
//! (fdatasync(2)); a `mem:` device's medium is memory, and lasts as long as somebody has it.
//!
//! **Discard** is advice. What was discarded reads as it was before, or as zeros, or as whatever the medium makes of it,
//! until it is written. **Write zeroes** is a write.
//!
//! **Failures.** A command that cannot be carried out fails ([`Failure`]), and no other one does. A file that others can
//! make shorter meanwhile ([`File::passed`]) fails the reads of what is gone; what is written there is there again.
//!
//! **Rights.** What may not be written is not changed, and of what may not be read nothing is told, by no command
//! ([`Access`]).
//!
//! **Time.** A command is given out exactly once, however late; no clock ends it, and nobody can call it back. What the
//! kernel has begun it does not let go of when it is asked to (io_uring takes back what waits in its own queues, and not
//! what a disk has been told), so there would still be memory that nobody may use. Whoever gives up on a device that does
//! not answer submits nothing more, keeps polling it for what comes after all, and drops it where waiting hurts nobody.
//!
//! **Memory.** A command's memory belongs to it until it is done, or the device was dropped: dropping waits until the
//! kernel has let go of it. The memory may be written by others meanwhile; see [`Span`].
//!
//! **Mapped memory.** Where a device has [`Chunks`], others can map them: they see what the commands see, byte by byte.
//! What a chunk's holder can do ends when it is replaced, in between two commands; offsets and contents stay.
//!
//! # What is here
//!
//! - [`Device`], [`Geometry`], [`Access`]: the interface
//! - [`Command`], [`Operation`], [`Done`], [`Failure`], [`Full`]: what is asked, and what became of it
//! - [`Span`], [`SPANS_MAX`], [`Owner`], [`Region`], [`Pinned`], [`REGION_MAX`], [`RegionId`]: the memory that
//!   goes along
//! - [`Spec`], [`Medium`], [`read_size`]: devices as text
//! - [`Memory`], [`MemoryOptions`]: a device of memory; [`Chunks`]: its memory, for others to map; [`Keep`], [`Shape`],
//!   [`Spare`], [`Retired`]: to take it away from them again
//! - [`File`], [`FileOptions`], [`Kind`], [`Using`]: a device of a file or a block device; [`PassedOptions`], [`Holder`]:
//!   of one that somebody else has opened
//! - [`read_alone`], [`write_alone`]: a device that nobody else uses yet, a call at a time
//! - [`Error`]: what can go wrong before there are commands
//! - `testing`, with the feature of that name: a device that fails and crashes as it is told

mod alone;
mod chunks;
mod command;
mod device;
mod error;
mod file;
mod memory;
mod pages;
mod region;
mod span;
mod spare;
mod spec;
#[cfg(feature = "testing")]
pub mod testing;

pub use alone::{read_alone, write_alone};
pub use chunks::{Chunks, Keep};
pub use command::{Command, Done, Failure, Full, Operation};
pub use device::{Access, Device, Geometry};
pub use error::Error;
pub use file::{File, FileOptions, Holder, Kind, PassedOptions, Using};
pub use memory::{Memory, MemoryOptions};
pub use region::{Pinned, REGION_MAX, Region, RegionId};
pub use span::{Owner, SPANS_MAX, Span};
pub use spare::{Retired, Shape, Spare};
pub use spec::{Medium, Spec, read_size};
