//! A device server that is run step by step, a client that keeps to the protocol, and malicious clients.
//!
//! The server, its devices and volumes, and the good client live as long as the process; each input has new
//! hostile clients. Everything runs in one thread, so an input always does the same. Only the contents of
//! volumes, the good client's grants, and the server's choice of blocks stay from one input to the next.

mod connector;
mod good;
mod hostile;

pub use good::{Good, Volume};
pub use hostile::{Argument, Deed, Hostile, Known};

use bywash_link::{Messages, connect};
use bywash_protocol::{ControlReply, ControlRequest, MESSAGE_BYTES_MAX, VERSION};
use bywash_server::SteppedServer;
use connector::Connector;
use std::fmt::Debug;
use std::fs;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// Greatest time that any wait may take.
const LIMIT: Duration = Duration::from_secs(8);
/// Greatest time that the kernel may take to release closed resources.
pub const SETTLING: Duration = Duration::from_secs(1);
/// Size of a block, in bytes.
pub const BLOCK: u64 = 512;
/// Size of a chunk, in bytes.
pub const CHUNK: u64 = 2 << 20;

/// Name of the socket in its folder.
const SOCKET: &str = "socket";

/// Server with its socket.
pub struct Served {
    server: SteppedServer,
    connector: Connector,
    folder: tempfile::TempDir,
}

impl Served {
    /// Starts a server with devices, each specified as for `bywash serve --device`.
    pub fn start(devices: &[&str]) -> Served {
        let folder = tempfile::tempdir().unwrap();
        // Every user may search the folder, which connecting to the socket in it requires.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let connector = Connector::start(folder.path(), SOCKET);
        // The server polls a client only until there are no more requests; then the client has to ring the
        // doorbell.
        let options = bywash_server::Options::new(folder.path().join(SOCKET))
            .timeouts(bywash_server::Timeouts::default().poll(Duration::ZERO));
        let add = |options: bywash_server::Options, device: &&str| options.device(device.parse().unwrap());
        let options = devices.iter().fold(options, add);
        Served { server: SteppedServer::start(options).unwrap(), connector, folder }
    }

    /// Runs one round of the server's work.
    pub fn step(&mut self) {
        self.server.step();
    }

    /// Steps the server until `there` returns a value.
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

    /// Sends a request and waits for the answer. `None` if the server has closed the connection.
    pub fn ask(
        &mut self,
        messages: &Messages,
        ask: &ControlRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Option<(ControlReply, Vec<OwnedFd>)> {
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
        Some((ControlReply::from_bytes(&packet.0).unwrap(), packet.1))
    }

    /// Waits for an answer. `None` if the server has closed the connection.
    pub fn receive(&mut self, messages: &Messages, what: &dyn Debug) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        self.wait(what, || match messages.try_receive() {
            Ok(Some(packet)) => Some(Some((packet.bytes, packet.descriptors))),
            Ok(None) => None,
            Err(bywash_link::Error::Closed) => Some(None),
            Err(error) => panic!("{what:?}: {error}"),
        })
    }

    /// Makes the handshake on a connection.
    pub fn greet(&mut self, socket: OwnedFd) -> Messages {
        let messages = Messages::over(socket, MESSAGE_BYTES_MAX);
        match self.ask(&messages, &ControlRequest::Hello { version: VERSION, name: "fuzz".into() }, &[]) {
            Some((ControlReply::Welcome { .. }, page)) if page.len() == 1 => messages,
            other => panic!("{other:?}"),
        }
    }

    /// Makes a connection as this process's user, before the handshake.
    pub fn connection(&self) -> OwnedFd {
        connect(&self.folder.path().join(SOCKET)).unwrap()
    }

    /// Makes a connection as user `uid`, before the handshake; if this process is not root, as its own user.
    /// Returns the user ID as well.
    pub fn connection_of(&self, uid: u32) -> (u32, OwnedFd) {
        self.connector.connect(uid)
    }

    /// Steps the server until it has no more than `clients` clients.
    pub fn settle(&mut self, clients: usize) {
        let begun = Instant::now();
        while self.server.clients() > clients {
            self.step();
            assert!(begun.elapsed() < LIMIT, "who has left is still there");
        }
        // The server releases the resources of a client that has left in the next step.
        self.step();
    }
}
