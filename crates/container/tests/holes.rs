//! Pages of shipped memory that nobody has written are charged to the shipper, never to the receiver.
//!
//! Failures that this looks for: a hole is populated by the first process that touches it, and charged to
//! that process's memory cgroup. So a malicious peer that ships holes could have the receiver killed for
//! memory that it never asked for.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod choices;
mod liar;

use bywash_container::{Error, Options, Path, socket_pair};
use bywash_support::peers::{FIXED, Words, backed_bytes, memory, send};
use choices::options;
use liar::*;
use std::os::fd::AsRawFd;
use std::thread;

/// Seals after which the peer that brings the arena can no longer punch holes.
const UNWRITABLE: i32 = FIXED | libc::F_SEAL_FUTURE_WRITE;

/// Ships the whole arena of the malicious peer as one container, and returns the victim's copy of it.
fn copy_of_arena(path: &Path, liar: &Liar, number: usize) -> Vec<u8> {
    put(liar, number, pieces(1), &[(number as u64, (ARENA as u64) << 32)]);
    path.receive().unwrap().to_vec().unwrap()
}

#[test]
fn holes_are_read_without_taking_memory() {
    for seals in [FIXED, UNWRITABLE] {
        let (path, liar) = meet_over("checked", options("checked", "sleep"), memory(ARENA, seals));
        assert!(copy_of_arena(&path, &liar, 0).iter().all(|byte| *byte == 0));
        assert_eq!(backed_bytes(&liar.arena), 0, "reading took memory");
    }
}

#[test]
fn pages_between_holes_are_read_as_they_are() {
    let arena = memory(ARENA, FIXED & !libc::F_SEAL_SEAL);
    let words = Words::map(&arena, ARENA);
    // SAFETY: fcntl(2) on a descriptor that this test owns; it accesses no memory.
    let sealed = unsafe { libc::fcntl(arena.as_raw_fd(), libc::F_ADD_SEALS, UNWRITABLE) };
    assert_eq!(sealed, 0);
    words.set(2 * 512, 7);
    let (path, liar) = meet_over("checked", options("checked", "sleep"), arena);
    for number in 0..3 {
        let copy = copy_of_arena(&path, &liar, number);
        assert_eq!((copy[8192], copy.iter().filter(|byte| **byte != 0).count()), (7, 1));
        assert_eq!(backed_bytes(&liar.arena), 4096);
    }
}

#[test]
fn holes_that_are_punched_later_take_no_memory_either() {
    let (path, liar) = meet("checked", "sleep");
    assert!(copy_of_arena(&path, &liar, 0).iter().all(|byte| *byte == FILLING));
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: fallocate(2) on a descriptor that this test owns; it changes no memory that Rust refers to.
    assert_eq!(unsafe { libc::fallocate(liar.arena.as_raw_fd(), how, 0, ARENA as i64) }, 0);
    assert!(copy_of_arena(&path, &liar, 1).iter().all(|byte| *byte == 0));
    assert_eq!(backed_bytes(&liar.arena), 0);
}

#[test]
fn who_ships_takes_the_memory_of_what_it_ships() {
    for class in ["checked", "trusted"] {
        let (path, liar) = meet(class, "sleep");
        let own = &liar.from_hello[1];
        // A container of three pages and a byte, untouched, of which two pages and a byte are shipped.
        let mut container = path.alloc(3 * 4096 + 1).unwrap();
        assert_eq!(backed_bytes(own), 0);
        container.truncate(2 * 4096 + 1);
        path.ship(container).unwrap();
        assert_eq!(backed_bytes(own), 3 * 4096, "{class}");
    }
}

#[test]
fn sealed_holes_are_copied_and_not_mapped() {
    let (path, liar) = meet("sealed", "sleep");
    let hole = memory(ARENA, FROZEN);
    let note = [&[3][..], &(ARENA as u64).to_le_bytes()].concat();
    assert!(send(&liar.socket, &note, &[hole.as_raw_fd()]));
    let message = path.receive().unwrap();
    let refused = message.first().map().map(drop);
    assert!(matches!(refused, Err(Error::NotMapped(why)) if why.contains("copy it out")), "{refused:?}");
    assert_eq!(message.to_vec().unwrap(), [0; ARENA]);
    assert_eq!(backed_bytes(&hole), 0);
}

#[test]
fn what_was_sealed_untouched_can_be_mapped() {
    let (here, there) = socket_pair().unwrap();
    let other = thread::spawn(move || {
        let path = Path::over(there, &options("sealed", "sleep")).unwrap();
        path.ship(path.alloc(3 * 4096 + 1).unwrap()).unwrap();
        let _ = path.receive();
    });
    let path = Path::over(here, &options("sealed", "sleep")).unwrap();
    let message = path.receive().unwrap();
    assert!(message.first().map().unwrap().iter().all(|byte| *byte == 0));
    drop(path);
    other.join().unwrap();
}

#[test]
fn a_peer_brings_64_mib_unless_more_is_allowed() {
    for (allowed, fits) in [(None, false), (Some(66 << 20), true)] {
        let (here, there) = socket_pair().unwrap();
        let other = thread::spawn(move || {
            let _path = Path::over(there, &Options::new().arena_bytes(66 << 20));
        });
        let options = allowed.map_or(Options::new(), |bytes| Options::new().peer_arena_bytes_max(bytes));
        let made = Path::over(here, &options.arena_bytes(0)).map(drop);
        assert_eq!(made.is_ok(), fits, "{made:?}");
        assert!(fits || made.unwrap_err().to_string().contains("peer_arena_bytes_max"));
        other.join().unwrap();
    }
}
