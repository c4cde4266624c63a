//! A disk for virtual machines, served by the standard protocol vhost-user-blk.
//!
//! A *frontend* (QEMU, cloud-hypervisor, ...) connects to a socket, passes its guest's memory, and tells
//! where in that memory the guest's virtqueues are. The guest's own virtio disk driver does the rest:
//! requests are read from the guest's memory, and their data is moved from and to that memory, without the
//! frontend and without a copy. A [`Device`] stores the disk's data.
//!
//! ```no_run
//! use bywash_device::Device;
//! use bywash_vhost::{Event, Export, Options};
//! use std::os::unix::net::UnixListener;
//!
//! fn serve(device: impl Device + 'static) -> Result<(), Box<dyn std::error::Error>> {
//!     let listener = UnixListener::bind("/run/bywash/disk.sock")?;
//!     let report = |event: Event| eprintln!("disk: {event:?}");
//!     let export = Export::start(listener, device, Options::new().queues(2), report)?;
//!     // qemu-system-x86_64 -machine q35,memory-backend=m -object memory-backend-memfd,id=m,size=1G,share=on
//!     //   -chardev socket,id=c,path=/run/bywash/disk.sock -device vhost-user-blk-pci,chardev=c,num-queues=2 ...
//!     std::thread::park();
//!     drop(export);
//!     Ok(())
//! }
//! ```
//!
//! # Guarantees
//!
//! **To the guest**: the behaviour of a block device of virtio 1.2, section 5.2: reads, writes, flushes,
//! discards, writes of zeros, the disk's name. A completed flush has made durable every write that completed
//! before the flush was submitted. Requests complete in any order. For a driver that has not negotiated
//! flushes, every write is durable before it completes. An unknown request completes with "unsupported", a
//! malformed one with "failed". When the device has another size ([`Export::refresh`]), the frontend is notified, and
//! tells the guest.
//!
//! **To the server**: neither the guest nor the frontend needs to be trusted. Only memory is mapped that
//! cannot shrink under the mapping, or whose missing pages are replaced by zeros (reserved huge pages). Whatever the rings contain, only the guest's memory is accessed, no more
//! requests are in flight than the rings have entries, and a ring with invalid contents is stopped. A
//! frontend that breaks the protocol is disconnected. Guest and frontend can use up the processor time of the
//! disk's thread, and no other resource.
//!
//! **After a frontend has disconnected**, all its requests in flight complete before the next frontend is
//! served. The next one finds the disk as after a power failure: writes that were not flushed may or may not
//! be there. A frontend may pass a descriptor whose reception, mapping or closing blocks. Only that
//! frontend's own thread then blocks, and the next frontend is served without it; at most [`STUCK_MAX`] such
//! threads exist.
//!
//! **After this process has died**, a frontend that has negotiated INFLIGHT_SHMFD holds a record of the
//! requests in flight. It can connect to the next server of the same disk, which carries those requests out
//! again. The guest waits meanwhile, and notices nothing else. Migration is not offered.
//!
//! # Contents
//!
//! - [`Export`], [`Options`], [`Event`], [`StatsHandle`], [`Stats`]: serving a disk
//! - [`OnVolume`]: a volume of a device server as a device
//! - [`Error`]: every error of this crate
//!
//! [`Device`]: bywash_device::Device

#![deny(unsafe_code)]

mod backend_channel;
mod chain;
mod disk;
mod export;
mod faults;
mod frontend;
mod inflight;
mod layout;
mod memory;
mod messages;
mod on_volume;
mod request;
mod ring;
mod stats;

pub use bywash_export::Error;
pub use export::{Event, Export, Options, QUEUES_MAX, STUCK_MAX, StatsHandle};
pub use on_volume::OnVolume;
pub use stats::Stats;
