//! Memory that moves between programs instead of being copied.
//!
//! Data lives in *containers*. A program allocates a container on a *path* to another program, fills it and
//! ships it; the other program receives it, looks inside or does not, and ships it on or frees it. Six
//! operations, the same on every path: [`alloc`](Path::alloc) and free (drop), [`ship`](Path::ship) and
//! [`receive`](Path::receive), [`map`](Received::map) and unmap (drop what it answered).
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
//! Nothing is copied on the way: containers are cut from an *arena* that both ends map once, when the path is
//! made (moving mappings about for each message costs more than copying does). What that means for those who
//! do not trust each other is chosen by [`Class`]. An arena is memory of whoever ships from it, and nobody else
//! can write it; it cannot be resized; it goes with the last process that has it.
//!
//! - [`Path`], [`Listener`], [`socket_pair`], [`Options`]: how two programs come together
//! - [`Container`], [`Received`], [`Message`]: what moves
//! - [`Wait`]: how an end waits; [`Stats`]: what it did
//! - with the feature `async`, what waits also as tasks of any executor: `receive_async` and its kin
//! - [`Error`]: what can go wrong
//!
//! Inside: `layout` is what the two ends say to each other, `lane` one direction of a path. The connection, the memory
//! and the waiting are `bywash-link`'s.

mod container;
mod lane;
mod layout;
mod not_shipped;
mod path;
mod stats;
#[cfg(feature = "async")]
mod tasks;

pub use bywash_link::{ArenaUse, Credentials, Error, HugePages, Wait, socket_pair};
pub use container::{Container, MESSAGE_PIECES_MAX, Mapped, Message, Received};
pub use not_shipped::NotShipped;
pub use path::{Cargo, Class, Listener, Options, Path};
pub use stats::Stats;
