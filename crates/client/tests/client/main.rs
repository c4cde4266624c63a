//! Tests of the client against a minimal server and against malicious servers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod death;
mod hostile;
mod model;
mod paths;
mod revoke;
mod rights;
mod threads;
mod transfers;

use bywash_client::{Options, PathChoice};
use model::{Running, World};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// A server with two volumes of [`BYTES`] bytes: `fast`, in memory, and `slow`, in a file.
struct Bench {
    world: World,
    running: Option<Running>,
    socket: PathBuf,
    folder: TempDir,
}

const BYTES: u64 = 300 << 10;

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let world = World::default().memory("fast", BYTES).file("slow", &folder.path().join("slow"), BYTES);
        let socket = folder.path().join("socket");
        let running = Some(Running::start(&world, &socket));
        Bench { world, running, socket, folder }
    }

    fn kill(&mut self) {
        let _forking = forking();
        self.running = None;
    }

    fn start(&mut self) {
        self.running = Some(Running::start(&self.world, &self.socket));
    }
}

/// Locks out a server's death while a child is being forked. Until the child starts its program it holds
/// copies of the server's sockets, so that a server which dies meanwhile would seem to be alive.
fn forking() -> MutexGuard<'static, ()> {
    static FORKING: Mutex<()> = Mutex::new(());
    FORKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `is_so` returns true.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "{what} has not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn options(choice: PathChoice) -> Options {
    Options::new().choice(choice).limit(Duration::from_secs(5)).depth(8).arena_bytes(1 << 20)
}
