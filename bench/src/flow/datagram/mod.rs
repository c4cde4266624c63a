//! Datagrams and frames between hosts that are network namespaces of this machine.
//!
//! - `relay`: the highest rate at which the host in the middle of three passes everything on
//! - `transfer`: a file as datagrams, over its size and over the buffer, between two hosts and through a third one
//! - `station`: the programs in the hosts, and what they tell

mod relay;
mod station;
mod transfer;

use super::part::Part;

const BENCH: &str = "flow/datagram";

/// The parts of this bench.
pub fn parts(quick: bool) -> Vec<Part> {
    let mut parts = relay::parts();
    parts.extend(transfer::parts(quick));
    parts
}
