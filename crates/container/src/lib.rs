//! Memory that moves between programs instead of being copied.
//!
//! Data lives in *containers*. A program allocates a container on a *path* to another program, fills it and
//! ships it, which moves its ownership. The other program receives the container, may look inside, and ships
//! it on or frees it. There are six operations, the same on every path: [`alloc`](Path::alloc) and free (drop
//! the container), [`ship`](Path::ship) and [`receive`](Path::receive), [`map`](Received::map) and unmap
//! (drop the mapping).
//!
//! ```
//! use bywash_container::{Options, Path, socket_pair};
//!
//! // Two ends: here of two threads, usually of two processes (Listener, Path::connect).
//! let (here, there) = socket_pair()?;
//! let other = std::thread::spawn(move || {
//!     let path = Path::over(there, &Options::new())?;
//!     let message = path.receive()?;
//!     Ok::<_, bywash_container::Error>(message.to_vec()?)
//! });
//! let path = Path::over(here, &Options::new())?;
//! let mut container = path.alloc(5)?;
//! container.copy_from_slice(b"hello");
//! path.ship(container)?;
//! assert_eq!(other.join().unwrap()?, b"hello");
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Shipping copies nothing but very small contents: containers are allocated in an *arena* that both ends map
//! once, when the path is made (changing mappings for each message costs more than copying does). [`Class`]
//! chooses what an end does with memory of a peer that it does not trust. An arena belongs to the end that
//! ships from it, and nobody else can write it unless both ends agree to that; an arena cannot be resized;
//! the kernel frees it with the last process that has it open.
//!
//! - [`Path`], [`Listener`], [`socket_pair`], [`Options`]: connecting two programs
//! - [`Container`], [`Received`], [`Message`]: the data that moves
//! - [`Pool`], [`Trust`]: containers for a process that maps an arena by itself, such as a display server;
//!   [`MemoryRange`]: descriptor, offset and length of a container's memory
//! - [`DeviceMemory`]: memory that a driver of the kernel made, such as a frame in a display adapter
//! - [`Wait`]: the way in which an end waits; [`Stats`]: counts of its operations
//! - feature `async`: the waiting operations as futures for any executor: `receive_async` and others
//! - [`Error`]: every error of this crate
//!
//! Inside: `layout` defines the protocol between the two ends, `lane` is one direction of a path. The
//! connection, the memory and the waiting are in `bywash-link`.

mod container;
mod device_memory;
mod lane;
mod layout;
mod path;
mod pool;
mod ship_error;
mod stats;
mod store;
#[cfg(feature = "async")]
mod tasks;

pub use bywash_link::{ArenaUse, Credentials, Error, HugePages, Wait, socket_pair};
pub use container::{Container, MESSAGE_PIECES_MAX, Mapped, Message, Received};
pub use device_memory::DeviceMemory;
pub use path::{Class, Listener, Options, Path, Shipment};
pub use pool::{MemoryRange, Pool, PoolContainer, PoolShipment, Trust};
pub use ship_error::ShipError;
pub use stats::Stats;
