//! A client that writes its rings and its arena by hand, so that it can also write them wrong.

use crate::peer::Peer;
use bywash_channel::socket_pair;
use bywash_protocol::layout::{Opcode, Status};
use bywash_protocol::{ControlRequest, Refusal};
use bywash_support::peers::{Words, offered, send};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

/// Depth of the client's channel, in requests.
const DEPTH: usize = 4;
/// Offsets and sizes in the control memory, in words: see crates/link/src/ring/layout.rs and
/// crates/channel/src/layout.rs.
const RING_HEAD: usize = 32;
const REQUEST: usize = 8;
const COMPLETION: usize = 2;
const COMPLETIONS: usize = RING_HEAD + DEPTH * REQUEST;
/// Size of the control memory, in words.
pub const WORDS: usize = COMPLETIONS + RING_HEAD + DEPTH * COMPLETION;

/// Encodes the hello message of a channel's client: see crates/link/src/hello.rs.
pub fn hello(arena_bytes: u64, depth: u32) -> Vec<u8> {
    let mut hello = b"bywash c".to_vec();
    hello.extend([1u32, 1].iter().flat_map(|word| word.to_le_bytes()));
    hello.extend(arena_bytes.to_le_bytes());
    hello.extend([depth; 2].iter().flat_map(|word| word.to_le_bytes()));
    hello
}

/// The client with its channel.
pub struct ByHand {
    pub peer: Peer,
    pub socket: OwnedFd,
    pub control: Words,
    submitted: u64,
}

impl ByHand {
    /// Sets up a channel with an arena of this size.
    pub fn over(peer: Peer, arena: &OwnedFd, bytes: usize) -> Result<ByHand, Refusal> {
        let control = offered(WORDS * 8);
        // Mapped first: once the server has the files, they cannot be mapped for writing any more.
        let words = Words::map(&control, WORDS * 8);
        let (here, there) = socket_pair().unwrap();
        let files = [control.as_raw_fd(), arena.as_raw_fd()];
        assert!(send(&here, &hello(bytes as u64, DEPTH as u32), &files));
        peer.ask_with(ControlRequest::SetUpChannel {}, &[there.as_fd()])?;
        Ok(ByHand { peer, socket: here, control: words, submitted: 0 })
    }

    /// Sends a request whose buffer is this range of the arena. Returns its status, or `None` if it has not
    /// completed within `limit`.
    pub fn request(
        &mut self,
        opcode: Opcode,
        arguments: [u64; 6],
        (offset, length): (usize, usize),
        limit: Duration,
    ) -> Option<Status> {
        let (place, turn) = (self.submitted as usize % DEPTH, self.submitted / DEPTH as u64 + 1);
        let entry = RING_HEAD + place * REQUEST;
        self.control.set(entry + 1, (length as u64) << 32 | (offset / 64) as u64);
        (0..6).for_each(|number| self.control.set(entry + 2 + number, arguments[number]));
        self.control.at(entry).store((opcode as u64) << 32 | turn, Release);
        self.submitted += 1;
        let done = self.control.at(COMPLETIONS + RING_HEAD + place * COMPLETION);
        let end = Instant::now() + limit;
        while done.load(Acquire) & 0xffff_ffff != turn {
            // The server may sleep, so it needs a doorbell.
            send(&self.socket, &[1], &[]);
            if Instant::now() > end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.control.set(COMPLETIONS, self.submitted);
        Status::from_number((done.load(Acquire) >> 32) as u16)
    }
}
