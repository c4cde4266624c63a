//! Peers that connect to a listener and send nothing, besides one that wants a path.
//!
//! Failures that this looks for: one silent connection keeps all others waiting until its handshake times
//! out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_container::{Error, Listener, Options, Path};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// Connects without the library, and sends no hello message.
fn silent(name: &std::path::Path) -> OwnedFd {
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(name).unwrap()).unwrap();
    socket
}

#[test]
fn a_silent_peer_keeps_no_other_one_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("socket");
    let listener = Listener::bind(&name).unwrap();
    let _silent: Vec<OwnedFd> = (0..3).map(|_| silent(&name)).collect();
    let begun = Instant::now();
    let limit = Duration::from_millis(200);
    assert!(listener.try_accept(&Options::new()).unwrap().is_none());
    let nobody = listener.accept_within(&Options::new(), limit).map(drop);
    assert!(matches!(nobody, Err(Error::TimedOut)), "{nobody:?}");
    let good = thread::spawn(move || {
        let path = Path::connect(&name, &Options::new()).unwrap();
        path.ship(path.alloc(5).unwrap()).unwrap();
    });
    let path = listener.accept(&Options::new()).unwrap();
    assert_eq!(path.receive().unwrap().len(), 5);
    good.join().unwrap();
    // A fraction of the 10 s that the handshake may take.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_peer_that_leaves_is_no_error_of_those_who_stay() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("socket");
    let listener = Listener::bind(&name).unwrap();
    drop(silent(&name));
    let good = thread::spawn(move || Path::connect(&name, &Options::new()).map(drop));
    assert!(listener.accept_within(&Options::new(), Duration::from_secs(10)).is_ok());
    good.join().unwrap().unwrap();
}
