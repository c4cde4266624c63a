//! A Web server of static files that sends from a cache in containers: the first application of the third paper, for
//! real, written as a user of the library would.
//!
//! ```
//! use bywash_example_web::{Options, Server};
//! use clap::Parser;
//! use std::io::{Read, Write};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("hello.txt"), "hello")?;
//! let folder = folder.path().to_str().unwrap();
//! let server = Server::start(Options::parse_from(["bywash-web", folder, "--listen", "127.0.0.1:0"]))?;
//! let mut client = std::net::TcpStream::connect(server.address())?;
//! client.write_all(b"GET /hello.txt HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
//! let mut response = String::new();
//! client.read_to_string(&mut response)?;
//! assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nhello"));
//! assert_eq!(server.stop().requests, 1);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! The protocol is hyper's. Of the library it uses `bywash-container`: the cache is an arena, and each part of a file
//! that is cached is a container, whose bytes are handed to the socket where they are.
//!
//! What it shares with the video server (sockets, names, headers, memory) is in `examples/http`.
//!
//! - [`Server`], [`Options`], [`Totals`], [`Error`]: starting and stopping the server
//! - `response`: from a request to its response
//! - `body`: contents that are sent, and read ahead; `cache`: versions of files and their parts; `clock`: eviction

#![forbid(unsafe_code)]

mod body;
mod cache;
mod clock;
mod counters;
mod options;
mod response;
mod server;

pub use bywash_example_http::Error;
pub use counters::Totals;
pub use options::Options;
pub use server::Server;
