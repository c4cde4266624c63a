//! Messages that a malicious peer sends through a socket.

use crate::files::{Kind, descriptors};
use crate::value::Value;
use arbitrary::Arbitrary;
use bywash_support::peers::send;
use std::os::fd::OwnedFd;

/// Message of a malicious peer: its bytes and descriptors.
#[derive(Arbitrary, Debug)]
pub enum Packet {
    /// Any bytes.
    Bytes(Vec<u8>, Vec<Kind>),
    /// More bytes than a receiver reads.
    Long(u16, Vec<Kind>),
    /// Message that passes on an arena: its number, and the size that it claims.
    Arena(u8, Value, Vec<Kind>),
    /// Message that ships sealed containers, with the lengths that it claims.
    Sealed(Vec<Value>, Vec<Kind>),
}

impl Packet {
    /// Sends the message; it is lost if the socket is full.
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

/// Encodes a hello message as drawn in crates/link/src/hello.rs.
pub fn hello(magic: &[u8; 8], version: u32, flags: u32, arena_bytes: u64, rings: [u32; 2]) -> Vec<u8> {
    let mut bytes = magic.to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(arena_bytes.to_le_bytes());
    rings.iter().for_each(|ring| bytes.extend(ring.to_le_bytes()));
    bytes
}
