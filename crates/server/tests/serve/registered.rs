//! Arenas that clients use repeatedly are registered with the devices, and unregistered when their clients
//! leave.

use crate::peer::{LIMIT, pattern};
use crate::process::Serving;
use bywash_protocol::Access;
use std::time::Instant;

/// Size of a peer's arena, in bytes.
const ARENA: u64 = 4 << 20;
/// Size of a request, in bytes.
const PIECE: u64 = 64 << 10;

/// Returns true if an io_uring ring can clone the buffers that another ring has registered (Linux 6.13).
pub fn can_be_taken_over() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|byte: char| !byte.is_ascii_digit()).map_while(|text| text.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(6u32), Some(13u32))
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn an_arena_that_is_used_again_is_registered_and_forgotten_with_its_client() {
    let serving = Serving::start("fast=mem:8M,pages=4K", "");
    if serving.registered(0) == 0 || !can_be_taken_over() {
        return eprintln!("skipped: io_uring of this kernel registers nothing for others");
    }
    let mut peer = serving.peer().with_channel();
    peer.create("log", "disk", ARENA);
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    let mut through = |bytes: u64| {
        for at in (0..bytes).step_by(PIECE as usize) {
            let written = pattern(at, PIECE as usize);
            peer.write(grant, at % ARENA, &written).unwrap();
            assert!(peer.read(grant, at % ARENA, PIECE as usize).unwrap() == written, "at {at}");
        }
    };
    // An arena that is used little is not registered.
    through(ARENA / 2);
    assert_eq!(serving.registered(ARENA), 0);
    through(ARENA);
    // Once in the helper's ring and once in the device's.
    wait_until("it is registered", || {
        through(PIECE);
        serving.registered(ARENA) == 2
    });
    through(ARENA);
    drop(peer);
    wait_until("it is forgotten", || serving.registered(ARENA) == 0);
    // The ring's slot stays, for the next arena.
    assert!(serving.registered(0) > 0);
}
