//! Messages that a liar sends through the socket.

use crate::files::{Kind, descriptors};
use crate::value::Value;
use arbitrary::Arbitrary;
use bywash_peers::send;
use std::os::fd::OwnedFd;

/// What a liar says, with what.
#[derive(Arbitrary, Debug)]
pub enum Packet {
    /// Any bytes.
    Bytes(Vec<u8>, Vec<Kind>),
    /// More bytes than anybody reads.
    Long(u16, Vec<Kind>),
    /// An arena of somebody else's.
    Arena(u8, Value, Vec<Kind>),
    /// Sealed containers.
    Sealed(Vec<Value>, Vec<Kind>),
}

impl Packet {
    /// Sends it; nobody hears it when the socket is full.
    pub fn send(&self, socket: &OwnedFd) {
        let (bytes, kinds) = match self {
            Packet::Bytes(bytes, kinds) => (bytes[..bytes.len().min(600)].to_vec(), kinds),
            Packet::Long(length, kinds) => (vec![1; usize::from(*length)], kinds),
            Packet::Arena(number, bytes, kinds) => {
                ([&[2, *number, 0][..], &bytes.get().to_le_bytes()].concat(), kinds)
            }
            Packet::Sealed(lengths, kinds) => {
                let lengths = lengths.iter().flat_map(|length| length.get().to_le_bytes());
                (std::iter::once(3).chain(lengths).collect(), kinds)
            }
        };
        send(socket, &bytes, &descriptors(kinds));
    }
}

/// How an end presents itself, as crates/link/src/hello.rs draws it.
pub fn hello(magic: &[u8; 8], version: u32, flags: u32, arena_bytes: u64, rings: [u32; 2]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(arena_bytes.to_le_bytes());
    rings.iter().for_each(|ring| bytes.extend(ring.to_le_bytes()));
    bytes
}
