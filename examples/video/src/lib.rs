//! A video server that sends each client its own stream at the rate at which it is played, from containers: the second
//! application of the third paper, for real, written as a user of the library would.
//!
//! ```
//! use bywash_example_video::{Options, Server};
//! use clap::Parser;
//! use std::io::{Read, Write};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("film.mp4"), "frames")?;
//! let folder = folder.path().to_str().unwrap();
//! let options = ["bywash-video", folder, "--listen", "127.0.0.1:0", "--rate", "8Mbit", "--calibration", "0"];
//! let server = Server::start(Options::parse_from(options))?;
//! let mut client = std::net::TcpStream::connect(server.address())?;
//! client.write_all(b"GET /film.mp4 HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
//! let mut response = String::new();
//! client.read_to_string(&mut response)?;
//! assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nframes"));
//! let (totals, _) = server.stop();
//! assert_eq!((totals.streams, totals.chunks), (1, 1));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! The protocol is hyper's, and what it shares with the Web server (sockets, names, headers, memory) is in
//! `examples/http`. Of the library it uses `bywash-container`: one arena, from which each stream has its containers.
//!
//! - [`Server`], [`Options`], [`Totals`], [`DelayTotals`], [`Capacities`], [`Error`]: starting and stopping the server
//! - `response`: from a request to its response; `rates`: rates of files
//! - `admission`: streams that the machine can carry, and those that it cannot; `calibration`: its capacities, measured
//! - `schedule`: times and deadlines of chunks; `spread`: an even load for the disk; `delays`: percentiles
//! - `stream`: contents that are read ahead and sent in time; `chunks` and `buffers`: the
//!   containers of a stream
//! - `worker`: a thread; `reads`: reads by io_uring, or by threads

#![deny(unsafe_code)]

mod admission;
mod buffers;
mod calibration;
mod chunks;
mod counters;
mod delays;
mod options;
mod rates;
mod reads;
mod response;
mod schedule;
mod server;
mod spread;
mod stream;
mod worker;

pub use admission::Capacities;
pub use bywash_example_http::Error;
pub use counters::Totals;
pub use delays::DelayTotals;
pub use options::{Options, ReadsFrom};
pub use server::Server;
