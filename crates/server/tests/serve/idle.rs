//! Cost of idle clients: memory and processor time of the server.

use crate::peer::Peer;
use crate::process::Serving;
use bywash_channel::{Options, Wait};
use bywash_support::cores::server_cores;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::time::Duration;

const CLIENTS: usize = 1000;
/// Size of the device, which does not count as the server's memory.
const DEVICE: u64 = 2 << 20;
/// Greatest number of bytes of a server with one core, and of each further core, which has tables and a stack of its own.
const MOST: u64 = 32 << 20;
const MOST_OF_CORE: u64 = 4 << 20;

/// A thousand clients with a grant and a channel each: the server's memory stays within the promised limit,
/// everything counted but the device, and the clients cost no processor time.
#[test]
fn a_thousand_clients_that_do_nothing() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let serving = Serving::start("fast=mem:2M,pages=4K", "[default]\nclients = 2000");
    let admin = serving.peer();
    admin.create("log", "fast", DEVICE);
    let empty = serving.process();
    let clients: Vec<Peer> = (0..CLIENTS)
        .map(|_| {
            let mut peer = serving.peer();
            peer.make_channel(Options::new().depth(64).arena_bytes(1 << 20).wait(Wait::Sleep));
            let grant = peer.open("log", bywash_protocol::Access::ReadWrite).unwrap().grant;
            // Each client has written once, so that the device's schedule knows it.
            peer.write(grant, 0, &[1; 512]).unwrap();
            peer
        })
        .collect();
    // The core still polls the last client for a while.
    std::thread::sleep(Duration::from_millis(500));
    let before = serving.process();
    std::thread::sleep(Duration::from_secs(1));
    let after = serving.process();
    let count = CLIENTS as u64;
    // Each client has written one page of its arena.
    let own = after.resident - DEVICE - count * 4096;
    eprintln!(
        "without clients {} KiB, {} descriptors; with {count} {} KiB ({} of them its own), {} descriptors; \
         each {} bytes ({} its own), {} descriptors; {} ms of a second",
        (empty.resident - DEVICE) >> 10,
        empty.descriptors,
        own >> 10,
        after.anonymous >> 10,
        after.descriptors,
        own.saturating_sub(empty.resident - DEVICE) / count,
        after.anonymous.saturating_sub(empty.anonymous) / count,
        (after.descriptors - empty.descriptors) as u64 / count,
        (after.ticks - before.ticks) * 10,
    );
    let most = MOST + (server_cores() as u64 - 1) * MOST_OF_CORE;
    assert!(own < most, "{own} bytes for {count} clients, and not less than {most}");
    assert!(after.ticks - before.ticks <= 5, "{} ms of a second", (after.ticks - before.ticks) * 10);
    // The idle clients are served when they send requests again.
    for mut peer in clients.into_iter().step_by(100) {
        let grant = peer.open("log", bywash_protocol::Access::ReadWrite).unwrap().grant;
        peer.write(grant, 0, &[1; 512]).unwrap();
    }
}
