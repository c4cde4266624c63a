//! Requests and completions between two programs that need not trust each other, without a system call on the
//! fast path.
//!
//! A *client* submits requests, up to the channel's depth at a time; a *server* takes them and completes
//! them, in any order. Requests and completions travel in two rings in shared memory ([`layout`]). Their data
//! is in buffers of an arena that both ends have mapped, so it is not copied unless one of them wants a copy.
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
//! A program chooses how it learns of completions and of requests: by polling ([`Client::try_reap`]), by
//! waiting ([`Client::reap`], which spins first and then sleeps: [`Wait`]), in an event loop ([`Client::arm`]
//! and the descriptor of [`AsFd`](std::os::fd::AsFd)), or by a callback ([`Reaper::dispatch`]). [`Stats`]
//! counts what was used.
//!
//! Each side of a ring has one user. A program that submits in one thread and reaps in another splits the end
//! ([`Client::split`], [`Server::split`]); a program with several producers gives each its own channel.
//!
//! - [`Client`], [`Submission`], [`Completion`], [`Buffer`], [`BufferAllocator`]: the end that submits requests
//! - [`Server`], [`Request`], [`RequestToken`], [`RequestWords`], [`RequestBuffer`], [`BufferAccess`]: the end that completes
//!   requests
//! - [`Listener`], [`socket_pair`], [`Options`], [`ServerOptions`]: connecting the two
//! - [`Dispatcher`]: callbacks; [`Wait`]: waiting; [`Stats`]: counts of operations
//! - [`Error`]: every error of this crate
//! - [`layout`]: the protocol between the two ends

mod buffer;
mod client;
mod control;
mod dispatch;
mod holders;
pub mod layout;
mod request;
mod server;
mod stats;

pub use buffer::{Buffer, BufferAllocator, RequestBuffer};
pub use bywash_link::{ArenaUse, Credentials, Error, HugePages, Wait, socket_pair};
pub use client::{Client, Completion, Incomplete, Options, Reaper, Submission, SubmitError, Submitter, Tag};
pub use dispatch::{DispatchError, Dispatcher};
pub use layout::{ARGUMENTS, DEPTH_MAX};
pub use request::{Request, RequestToken, RequestWords};
pub use server::{BufferAccess, Completer, Listener, RequestReceiver, Server, ServerOptions};
pub use stats::Stats;
