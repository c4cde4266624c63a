//! A server of files over HTTP/1.1 whose responses are sent from containers, without what is in the responses: the part
//! that the Web server (`examples/web`) and the video server (`examples/video`) share.
//!
//! ```
//! use bywash_example_http::{FileHead, Folder, Found, file_name};
//! use hyper::header;
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("film.mp4"), "frames")?;
//! let folder = Folder::open(folder.path(), false)?;
//! let name = file_name("/film%2Emp4").unwrap();
//! let Found::File(_, version) = folder.open_file(&name)? else { panic!("a folder") };
//! let head = FileHead::new(&name, version);
//! assert_eq!((head.bytes(), &head.fields()[header::CONTENT_TYPE]), (6, &"video/mp4".parse()?));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Threads`], [`Handler`], [`Listening`], [`Error`]: threads that accept connections, and their limits; [`Connection`]: a
//!   socket with a time limit; [`run`]: a program that serves until a signal
//! - [`Folder`], [`Version`], [`file_name`]: names, and files that are opened below a folder
//! - [`FileHead`], [`Validators`], [`Part`]: header of a file, conditional requests, ranges
//! - [`page`], [`refusal`], [`status_of`]: responses without a file
//! - [`Memory`], [`Chunk`]: an arena, and containers that are handed to sockets
//! - [`counters!`]: counts of a thread and their sums
//! - `testing`: for tests and benches (feature `testing`)

#![forbid(unsafe_code)]

mod connection;
mod content_type;
mod counters;
mod file_head;
mod folder;
mod listening;
mod memory;
mod pages;
mod preconditions;
mod program;
mod server;
#[cfg(feature = "testing")]
pub mod testing;

pub use connection::Connection;
pub use counters::Counter;
pub use file_head::{FileHead, set};
pub use folder::{Folder, Found, Version, file_name};
pub use listening::{Listening, size, time};
pub use memory::{Chunk, Memory};
pub use pages::{not_modified, page, redirect, refusal, status_of, unsatisfiable};
pub use preconditions::{Part, Validators};
pub use program::{Service, run};
pub use server::{Error, Handler, Threads};
