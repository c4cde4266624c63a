//! A malicious peer that speaks the protocol of paths without the library.

#![allow(dead_code, reason = "each test uses a part of this")]

use crate::choices::options;
use bywash_container::{Options, Path, socket_pair};
use bywash_support::peers::{FIXED, Words, memory, offered, receive, send};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Release;

/// Numbers of ring entries of the malicious peer and of the victim: few, so that the rings wrap around often.
pub const DEPTH: u32 = 4;
pub const TICKETS: u32 = 8;
/// Word offsets as drawn in crates/link/src/ring/layout.rs and src/layout.rs.
pub const RING_HEAD: usize = 32;
pub const ENTRY: usize = 16;
pub const RETURNED: usize = RING_HEAD + DEPTH as usize * ENTRY;
pub const CONTROL_WORDS: usize = RETURNED + RING_HEAD + TICKETS as usize;
pub const CONTROL_BYTES: usize = CONTROL_WORDS * 8;
pub const ARENA: usize = 1 << 16;
pub const SEALED: u32 = 1;
/// Byte that fills the malicious peer's arena.
pub const FILLING: u8 = 0x5a;

pub const FROZEN: i32 = FIXED | libc::F_SEAL_WRITE;

/// Hello message, as in the protocol of bywash-link.
#[derive(Clone, Copy)]
pub struct Hello {
    pub magic: [u8; 8],
    pub version: u32,
    pub flags: u32,
    pub arena_bytes: u64,
    pub depth: u32,
    pub tickets: u32,
}

pub const HONEST: Hello = Hello {
    magic: *b"bywash p",
    version: 1,
    flags: 0,
    arena_bytes: ARENA as u64,
    depth: DEPTH,
    tickets: TICKETS,
};

impl Hello {
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(self.arena_bytes.to_le_bytes());
        bytes.extend(self.depth.to_le_bytes());
        bytes.extend(self.tickets.to_le_bytes());
        bytes
    }
}

/// A peer that has done an honest handshake, and the memory that it can write.
pub struct Liar {
    pub socket: OwnedFd,
    /// Control memory of the direction to the victim: the entries that it receives and the tickets that it
    /// returns.
    pub to_victim: Words,
    /// Control memory of the direction from the victim: the entries that it ships and the tickets returned to
    /// it.
    pub from_victim: Words,
    pub arena: OwnedFd,
    /// Descriptors that the victim passed with its hello message: its control memory, and its arena if it has
    /// one.
    pub from_hello: Vec<OwnedFd>,
}

/// Connects a victim and a malicious peer.
pub fn meet(class: &str, wait: &str) -> (Path, Liar) {
    meet_with(class, options(class, wait))
}

/// Like [`meet`], but with these options for the victim.
pub fn meet_with(class: &str, options: Options) -> (Path, Liar) {
    let arena = memory(ARENA, FIXED);
    let words = Words::map(&arena, ARENA);
    (0..words.count).for_each(|index| words.set(index, u64::from_ne_bytes([FILLING; 8])));
    meet_over(class, options, arena)
}

/// Like [`meet_with`], but with this arena for the malicious peer.
pub fn meet_over(class: &str, options: Options, arena: OwnedFd) -> (Path, Liar) {
    let (here, there) = socket_pair().unwrap();
    let control = offered(CONTROL_BYTES);
    // Mapped first, since the victim seals it against any new writable mapping.
    let to_victim = Words::map(&control, CONTROL_BYTES);
    let hello = match class {
        "sealed" => Hello { flags: SEALED, arena_bytes: 0, ..HONEST },
        _ => HONEST,
    };
    let files = [control.as_raw_fd(), arena.as_raw_fd()];
    assert!(send(&there, &hello.bytes(), &files[..if class == "sealed" { 1 } else { 2 }]));
    let options = options.arena_bytes(ARENA).depth(DEPTH).containers_shipped_max(TICKETS);
    let path = Path::over(here, &options).unwrap();
    let (greeting, from_hello) = receive(&there);
    assert_eq!(greeting[..8], *b"bywash p");
    let from_victim = Words::map(&from_hello[0], CONTROL_BYTES);
    (path, Liar { socket: there, to_victim, from_victim, arena, from_hello })
}

/// Writes an entry into the ring that the victim receives from.
pub fn put(liar: &Liar, number: usize, head: u64, pieces: &[(u64, u64)]) {
    let entry = RING_HEAD + number * ENTRY;
    for (at, (first, second)) in pieces.iter().enumerate() {
        liar.to_victim.set(entry + 1 + 2 * at, *first);
        liar.to_victim.set(entry + 2 + 2 * at, *second);
    }
    liar.to_victim.at(entry).store(head | 1, Release);
}

/// Returns the head word of an entry with this number of pieces, without its turn.
pub fn pieces(count: u64) -> u64 {
    count << 40 | 2 << 32
}

/// Bit in the head word of an entry: the message continues in the next entry.
pub const MORE: u64 = 1 << 48;
