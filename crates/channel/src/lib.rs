//! Requests and completions between two programs that need not trust each other, without a system call on the way.
//!
//! A *client* submits requests, as many at a time as the channel is deep; a *server* takes them and completes them,
//! in any order. Both are rings in memory that the two share ([`layout`]). Data goes along in buffers of an arena that
//! both have mapped, so it is not copied unless somebody wants a copy.
//!
//! ```
//! use bywash_channel::{Client, Options, Server, ServerOptions, Submission, socket_pair};
//!
//! // Two ends: here of two threads, usually of two processes (Listener, Client::connect).
//! let (here, there) = socket_pair()?;
//! let service = std::thread::spawn(move || {
//!     let mut server = Server::over(there, &ServerOptions::new())?;
//!     while let Ok(request) = server.next() {
//!         let mut bytes = [0; 5];
//!         let memory = server.memory(&request);
//!         memory.read(0, &mut bytes);
//!         bytes.make_ascii_uppercase();
//!         memory.write(0, &bytes);
//!         server.complete(request, 0, bytes.len() as u64)?;
//!     }
//!     Ok::<_, bywash_channel::Error>(())
//! });
//! let mut client = Client::over(here, &Options::new())?;
//! let mut buffer = client.alloc(5)?;
//! buffer.write(0, b"hello");
//! let tag = client.submit(Submission::new(1).buffer(buffer))?;
//! let done = client.reap()?;
//! assert_eq!((done.tag, done.status, done.value), (tag, 0, 5));
//! let mut answer = [0; 5];
//! done.buffer.unwrap().read(0, &mut answer);
//! assert_eq!(&answer, b"HELLO");
//! # drop(client);
//! # service.join().unwrap()?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! How one hears of completions, and of requests, is a matter of choice: looking ([`Client::try_reap`]), waiting
//! ([`Client::reap`], spinning first and then sleeping: [`Wait`]), an event loop ([`Client::arm`] and the descriptor
//! of [`AsFd`](std::os::fd::AsFd)), or a callback ([`Reaper::dispatch`]). [`Stats`] says what was used.
//!
//! Each side of a ring has one user. Who wants to submit in one thread and reap in another splits the end
//! ([`Client::split`], [`Server::split`]); who has several producers gives each a channel of its own.
//!
//! - [`Client`], [`Submission`], [`Completion`], [`Buffer`], [`Buffers`]: the side that asks
//! - [`Server`], [`Request`], [`Ticket`], [`Memory`], [`Memories`]: the side that answers
//! - [`Listener`], [`socket_pair`], [`Options`], [`ServerOptions`]: how the two come together
//! - [`Dispatcher`]: callbacks; [`Wait`]: waiting; [`Stats`]: what was done
//! - [`Error`]: what can go wrong
//! - [`layout`]: every byte that the two ends say to each other

mod buffer;
mod client;
mod control;
mod dispatch;
mod holders;
pub mod layout;
mod server;
mod stats;

pub use buffer::{Buffer, Buffers, Memory};
pub use bywash_link::{ArenaUse, Credentials, Error, HugePages, Wait, socket_pair};
pub use client::{Client, Completion, NotSubmitted, Options, Reaper, Submission, Submitter, Tag, Unanswered};
pub use dispatch::{Dispatcher, NotDispatched};
pub use layout::{ARGUMENTS, DEPTH_MAX};
pub use server::{Completer, Listener, Memories, Request, Requests, Server, ServerOptions, Ticket};
pub use stats::Stats;
