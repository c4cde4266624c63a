//! User-level, copy-free I/O for Linux.
//!
//! The operating system's part of a transfer, a system call and a copy, often costs more than the device or the other
//! program does. This crate is the front door of the libraries that leave that part out. Each is a module behind a
//! feature of the same name; the first four are on by default.
//!
//! | module | moves | privileges |
//! |---|---|---|
//! | [`container`] | memory between two programs: ownership is transferred, bytes are not copied | none |
//! | [`channel`] | requests and completions between two programs, 64 bytes and 16 bytes each | none |
//! | [`client`] | blocks between a program and the volumes of a device server (`bywash serve`) | rights to the volume |
//! | [`flow`] | a stream of bytes from a source to a sink: files, devices, sockets, programs | rights to both; Ethernet needs CAP_NET_RAW |
//! | `display` | frames between a program and a display server (Wayland, X11) | none |
//!
//! Programs that are not written in Rust use the C library (`bywash.h`, `libbywash.so`) or the Python package. Programs
//! that cannot be changed run under the command `bywash run`.
//!
//! # Containers
//!
//! ```
//! # #[cfg(feature = "container")] {
//! use bywash::container::{Options, Path, socket_pair};
//!
//! let (here, there) = socket_pair()?; // or Listener and Path::connect, between processes
//! let receiver = std::thread::spawn(|| Path::over(there, &Options::new())?.receive()?.to_vec());
//! let path = Path::over(here, &Options::new())?;
//! let mut container = path.alloc(5)?;
//! container.copy_from_slice(b"hello");
//! path.ship(container)?;
//! assert_eq!(receiver.join().unwrap()?, b"hello");
//! # }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Guide: `docs/guide/containers.md`.
//!
//! # Channels
//!
//! ```
//! # #[cfg(feature = "channel")] {
//! use bywash::channel::{Client, Options, Server, ServerOptions, Submission, socket_pair};
//!
//! let (here, there) = socket_pair()?; // or Listener and Client::connect, between processes
//! let service = std::thread::spawn(|| {
//!     let mut server = Server::over(there, &ServerOptions::new())?;
//!     let request = server.next()?;
//!     let sum = request.arguments()[0] + request.arguments()[1];
//!     server.complete(request, 0, sum)
//! });
//! let mut client = Client::over(here, &Options::new())?;
//! client.submit(Submission::new(1).arguments([2, 3, 0, 0, 0, 0]))?;
//! assert_eq!(client.reap()?.value, 5);
//! # service.join().unwrap()?;
//! # }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Guide: `docs/guide/channels.md`.
//!
//! # Volumes of a device server
//!
//! ```
//! # #[cfg(feature = "client")] {
//! use bywash::client::{Access, Client, Options};
//!
//! # let folder = tempfile::tempdir()?;
//! # let socket = folder.path().join("socket");
//! # let options = bywash_server::Options::new(&socket).device("fast=mem:16M,pages=4K".parse()?);
//! # let server = bywash_server::Server::start(options)?;
//! # let volume = bywash::client::NewVolume::new("log", "fast", 65536);
//! # Client::connect(&socket, Options::new())?.create(volume)?;
//! let client = Client::connect(&socket, Options::new())?; // of `bywash serve --socket ...`
//! let log = client.open("log", Access::ReadWrite)?;
//! log.write_at(&[7; 512], 4096)?; // whole blocks, at an offset in bytes
//! log.flush()?;
//! # drop(log);
//! # drop(client);
//! # server.stop();
//! # }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Guide: `docs/guide/serve.md`.
//!
//! # Flows
//!
//! ```
//! # #[cfg(feature = "flow")] {
//! use bywash::flow::Flow;
//!
//! # let folder = tempfile::tempdir()?;
//! # let (source, sink) = (folder.path().join("a"), folder.path().join("b"));
//! # std::fs::write(&source, "hello")?;
//! # let (source, sink) = (source.display(), sink.display());
//! let flow = Flow::new(format!("{source}").parse()?, format!("{sink}").parse()?);
//! let report = flow.start()?.wait()?;
//! assert_eq!(report.bytes, 5);
//! # }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Guide: `docs/guide/flow.md`.

#![forbid(unsafe_code)]

#[cfg(feature = "channel")]
pub use bywash_channel as channel;
#[cfg(feature = "client")]
pub use bywash_client as client;
#[cfg(feature = "container")]
pub use bywash_container as container;
#[cfg(feature = "display")]
pub use bywash_display as display;
#[cfg(feature = "flow")]
pub use bywash_flow as flow;

/// Programs of the guides, which the documentation tests run.
#[cfg(all(doctest, feature = "container", feature = "channel", feature = "flow"))]
mod guides {
    #[doc = include_str!("../../../docs/guide/channels.md")]
    mod channels {}
    #[doc = include_str!("../../../docs/guide/containers.md")]
    mod containers {}
    #[doc = include_str!("../../../docs/guide/flow.md")]
    mod flow {}
    #[cfg(feature = "display")]
    #[doc = include_str!("../../../docs/guide/displays.md")]
    mod displays {}
}
