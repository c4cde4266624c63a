//! A disk for virtual machines, served by the standard protocol vhost-user-blk.
//!
//! A *frontend* (QEMU, cloud-hypervisor, ...) connects to a socket, passes on its guest's memory, and says where in it
//! the guest leaves its requests. The guest's own driver of virtio disks does the rest: requests are read from its
//! memory and carried out into and from it, without the frontend and without a copy. What the disk is made of is a
//! [`Medium`].
//!
//! ```no_run
//! use bywash_vhost::{Event, Export, Medium, Options};
//! use std::os::unix::net::UnixListener;
//!
//! fn serve(medium: impl Medium + 'static) -> Result<(), Box<dyn std::error::Error>> {
//!     let listener = UnixListener::bind("/run/bywash/disk.sock")?;
//!     let report = |event: Event| eprintln!("disk: {event:?}");
//!     let export = Export::start(listener, medium, Options::new().queues(2), report)?;
//!     // qemu-system-x86_64 -machine q35,memory-backend=m -object memory-backend-memfd,id=m,size=1G,share=on
//!     //   -chardev socket,id=c,path=/run/bywash/disk.sock -device vhost-user-blk-pci,chardev=c,num-queues=2 ...
//!     std::thread::park();
//!     drop(export);
//!     Ok(())
//! }
//! ```
//!
//! # What may be relied on
//!
//! **The guest** gets what virtio 1.2, section 5.2 says of a block device: reads, writes, flushes (a flush that is done
//! has made durable every write that was done before it was asked for), discarding, writing zeros, the disk's name.
//! Requests are done in any order. A driver that has not agreed to flushes has every write made durable before it is
//! done. What is unknown is answered with "unsupported", what makes no sense with "failed".
//!
//! **Whoever serves** need not trust the guest nor the frontend. Only memory is mapped that cannot be taken away behind
//! the mapping. Whatever is in the rings, nothing but the guest's memory is touched, no more is under way than its rings
//! have entries, and a ring that makes no sense is stopped. A frontend that says what it must not is cut off. Either can
//! have the processor time of the disk's thread, and nothing of anybody else's.
//!
//! **When a frontend is gone**, everything that it had under way is done before the next one is served, which finds the
//! disk as it would after a failure of power: what was not flushed may be there or not. A frontend that has passed
//! something that does not let itself be received, mapped or closed holds up a thread of its own, and the next one is
//! served without it; of such threads there are [`STUCK_MAX`] at most.
//!
//! **When this process is gone**, a frontend that has agreed to that (INFLIGHT_SHMFD) has a record of what was under way,
//! and can connect to whoever serves the same disk next, who carries those requests out again: the guest waits, and
//! notices nothing else. Migration is not offered.
//!
//! # What is here
//!
//! - [`Export`], [`Options`], [`Event`], [`Watch`], [`Stats`]: serving a disk
//! - [`Medium`], [`Geometry`], [`Request`], [`Operation`], [`Piece`], [`Owner`], [`Done`], [`Failure`], [`Full`]: what a
//!   disk is made of
//! - [`OnVolume`]: a volume of a device server as a medium
//! - [`Error`]: what can go wrong

#![deny(unsafe_code)]

mod chain;
mod disk;
mod error;
mod export;
mod frontend;
mod layout;
mod medium;
mod memory;
mod messages;
mod on_volume;
mod record;
mod request;
mod ring;
mod stats;

pub use error::Error;
pub use export::{Event, Export, Options, QUEUES_MAX, STUCK_MAX, Watch};
pub use medium::{Done, Failure, Full, Geometry, Medium, Operation, Owner, Piece, Request};
pub use on_volume::OnVolume;
pub use stats::Stats;
