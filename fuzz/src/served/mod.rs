//! A device server that is stepped, a client that keeps to the protocol, and those that do not.
//!
//! The server, its devices and volumes, and the good client live as long as the process; hostile clients are new for each
//! input. All of it is one thread, so that an input does the same each time; what stays from one input to the next is the
//! contents of volumes, grants of the good client, and where the server has put things.

mod connector;
mod good;
mod hostile;

pub use good::{Good, Volume};
pub use hostile::{Argument, Deed, Hostile, Known};

use bywash_link::{Messages, connect};
use bywash_protocol::{Answer, Ask, MESSAGE_BYTES_MAX, VERSION};
use bywash_server::Stepped;
use connector::Connector;
use std::fmt::Debug;
use std::fs;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// Whoever waits longer hangs.
const LIMIT: Duration = Duration::from_secs(8);
/// Longest time that the kernel may take to end what was closed.
pub const SETTLING: Duration = Duration::from_secs(1);
/// Bytes of a block.
pub const BLOCK: u64 = 512;
/// Bytes of a chunk.
pub const CHUNK: u64 = 2 << 20;

/// Name of the socket in its folder.
const SOCKET: &str = "socket";

/// A server at its socket.
pub struct Served {
    server: Stepped,
    connector: Connector,
    folder: tempfile::TempDir,
}

impl Served {
    /// Starts one with devices, each as `bywash serve --device` has it.
    pub fn start(devices: &[&str]) -> Served {
        let folder = tempfile::tempdir().unwrap();
        // Whoever connects is in it already, or gets there.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let connector = Connector::start(folder.path(), SOCKET);
        let mut options = bywash_server::Options::new(folder.path().join(SOCKET));
        options.devices = devices.iter().map(|device| device.parse().unwrap()).collect();
        // A client is looked at until it has nothing more, and then has to ring.
        options.patience.poll = Some(Duration::ZERO);
        Served { server: Stepped::start(options).unwrap(), connector, folder }
    }

    /// The server does one round of everything.
    pub fn step(&mut self) {
        self.server.step();
    }

    /// Steps the server until something is there.
    pub fn wait<T>(&mut self, what: &dyn Debug, mut there: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            self.step();
            if let Some(found) = there() {
                return found;
            }
            assert!(begun.elapsed() < LIMIT, "{what:?} takes {:?}", begun.elapsed());
        }
    }

    /// Asks, and waits for the answer; none: the server has closed the connection.
    pub fn ask(
        &mut self,
        messages: &Messages,
        ask: &Ask,
        descriptors: &[BorrowedFd<'_>],
    ) -> Option<(Answer, Vec<OwnedFd>)> {
        let bytes = ask.to_bytes().unwrap();
        let is_sent = self.wait(ask, || match messages.send(&bytes, descriptors, Duration::ZERO) {
            Ok(()) => Some(true),
            Err(bywash_link::Error::TimedOut) => None,
            Err(_) => Some(false),
        });
        if !is_sent {
            return None;
        }
        let packet = self.receive(messages, ask)?;
        Some((Answer::of_bytes(&packet.0).unwrap(), packet.1))
    }

    /// Waits for an answer; none: the server has closed the connection.
    pub fn receive(&mut self, messages: &Messages, what: &dyn Debug) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        self.wait(what, || match messages.try_receive() {
            Ok(Some(packet)) => Some(Some((packet.bytes, packet.descriptors))),
            Ok(None) => None,
            Err(bywash_link::Error::Closed) => Some(None),
            Err(error) => panic!("{what:?}: {error}"),
        })
    }

    /// A connection that has said hello.
    pub fn greet(&mut self, socket: OwnedFd) -> Messages {
        let messages = Messages::over(socket, MESSAGE_BYTES_MAX);
        match self.ask(&messages, &Ask::Hello { version: VERSION, name: "fuzz".into() }, &[]) {
            Some((Answer::Welcome { .. }, page)) if page.len() == 1 => messages,
            other => panic!("{other:?}"),
        }
    }

    /// A connection of this process's user, over which nothing was said.
    pub fn connection(&self) -> OwnedFd {
        connect(&self.folder.path().join(SOCKET)).unwrap()
    }

    /// A connection of another user's, over which nothing was said; where this process is not root, of its own user's.
    /// Answers whose it is.
    pub fn connection_of(&self, uid: u32) -> (u32, OwnedFd) {
        self.connector.connect(uid)
    }

    /// Steps the server until it has no more than so many clients.
    pub fn settle(&mut self, clients: usize) {
        let begun = Instant::now();
        while self.server.clients() > clients {
            self.step();
            assert!(begun.elapsed() < LIMIT, "who has left is still there");
        }
        // What it had is closed behind that.
        self.step();
    }
}
