//! Puts numbered packets in order, and records what is missing.
//!
//! ```text
//!     stream   |####|####|    |####|    |####|
//!                        ^next  `early: kept until the hole before it is filled or given up
//!     ready    |####|####|                      in order, to be taken
//! ```
//!
//! Invariant: the bytes taken are the stream from its beginning, every byte at its position, with zeros for
//! missing bytes; a packet is delivered once or never. Bounded: at most [`EARLY_BYTES_MAX`] and
//! [`EARLY_PACKETS_MAX`] wait for a hole, then the hole is given up; duplicates are recognised among the last
//! [`SEEN`] numbers. Called by [`super::receiver`], which takes all ready bytes before it offers more
//! packets. A packet in order costs one copy.

use super::layout::PAYLOAD_BYTES_MAX;
use super::missing::Missing;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// Greatest number of bytes that wait for a hole to be filled.
pub(crate) const EARLY_BYTES_MAX: usize = 4 << 20;
/// Greatest number of packets that wait for a hole to be filled.
pub(crate) const EARLY_PACKETS_MAX: usize = 4096;
/// Number of sequence numbers below the highest for which arrival is recorded.
pub(crate) const SEEN: u64 = 1 << 16;

/// Counters of a transfer's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Number of packets received in time, without duplicates.
    pub received: u64,
    pub received_bytes: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub late: u64,
    /// Number of packets with an impossible number or position.
    pub absurd: u64,
}

/// Next part of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Accepted<'a> {
    Bytes(&'a [u8]),
    Zeros(usize),
    /// Nothing is ready.
    Nothing,
}

enum Piece {
    Bytes(usize),
    Zeros(u64),
}

/// State of a stream that is being assembled.
pub(crate) struct Assembly {
    /// Position of the next byte in order.
    next: u64,
    ready: Vec<u8>,
    ready_taken: usize,
    pieces: VecDeque<Piece>,
    early: BTreeMap<u64, Vec<u8>>,
    early_bytes: usize,
    seen: Seen,
    tally: Tally,
    missing: Missing,
}

impl Assembly {
    pub(crate) fn new() -> Assembly {
        Assembly {
            next: 0,
            ready: Vec::new(),
            ready_taken: 0,
            pieces: VecDeque::new(),
            early: BTreeMap::new(),
            early_bytes: 0,
            seen: Seen::new(),
            tally: Tally::default(),
            missing: Missing::default(),
        }
    }

    /// Adds a packet that has arrived.
    pub(crate) fn offer(&mut self, sequence: u64, position: u64, payload: &[u8]) {
        let end = position.saturating_add(payload.len() as u64);
        // No packet is empty, and no earlier packet was longer than the protocol allows.
        if payload.is_empty()
            || position > sequence.saturating_mul(PAYLOAD_BYTES_MAX as u64)
            || end == u64::MAX
        {
            self.tally.absurd += 1;
            return;
        }
        let is_behind = sequence < self.seen.end;
        match self.seen.mark(sequence) {
            Mark::First => {}
            Mark::Again => return self.tally.duplicated += 1,
            Mark::Forgotten => return self.tally.late += 1,
        }
        if position < self.next {
            self.tally.late += 1;
            return;
        }
        if position == self.next {
            self.append(payload);
            self.append_early();
        } else if let Entry::Vacant(place) = self.early.entry(position) {
            place.insert(payload.to_vec());
            self.early_bytes += payload.len();
        } else {
            self.tally.absurd += 1;
            return;
        }
        self.tally.received += 1;
        self.tally.received_bytes += payload.len() as u64;
        self.tally.reordered += u64::from(is_behind);
        while self.early_bytes > EARLY_BYTES_MAX || self.early.len() > EARLY_PACKETS_MAX {
            self.give_up_hole();
        }
    }

    /// Ends the stream at `bytes` bytes; everything that has not arrived is given up.
    pub(crate) fn end(&mut self, bytes: u64) {
        while !self.early.is_empty() {
            self.give_up_hole();
        }
        self.skip_to(bytes);
    }

    /// Returns true if bytes are ready. If not, their buffer is emptied.
    pub(crate) fn is_ready(&mut self) -> bool {
        if self.pieces.is_empty() {
            self.ready.clear();
            self.ready_taken = 0;
        }
        !self.pieces.is_empty()
    }

    /// Returns the next part of the stream, at most `most` bytes.
    pub(crate) fn take(&mut self, most: usize) -> Accepted<'_> {
        match self.pieces.front_mut() {
            None => Accepted::Nothing,
            Some(Piece::Zeros(left)) => {
                let count = (*left).min(most as u64);
                *left -= count;
                if *left == 0 {
                    self.pieces.pop_front();
                }
                Accepted::Zeros(count as usize)
            }
            Some(Piece::Bytes(left)) => {
                let count = (*left).min(most);
                *left -= count;
                if *left == 0 {
                    self.pieces.pop_front();
                }
                self.ready_taken += count;
                Accepted::Bytes(&self.ready[self.ready_taken - count..self.ready_taken])
            }
        }
    }

    /// Returns the position up to which everything has arrived or was given up.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the highest sequence number received, plus one.
    pub(crate) fn sequence_end(&self) -> u64 {
        self.seen.end
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    pub(crate) fn missing(&self) -> &Missing {
        &self.missing
    }

    fn append(&mut self, payload: &[u8]) {
        self.ready.extend_from_slice(payload);
        self.next += payload.len() as u64;
        match self.pieces.back_mut() {
            Some(Piece::Bytes(bytes)) => *bytes += payload.len(),
            _ => self.pieces.push_back(Piece::Bytes(payload.len())),
        }
    }

    /// Appends the early packets that follow the data in order.
    fn append_early(&mut self) {
        while let Some(entry) = self.early.first_entry() {
            if *entry.key() > self.next {
                return;
            }
            let (position, payload) = entry.remove_entry();
            self.early_bytes -= payload.len();
            // Overlapping packets are not of a correct sender, and their bytes have arrived already.
            match position == self.next {
                true => self.append(&payload),
                false => self.tally.absurd += 1,
            }
        }
    }

    fn give_up_hole(&mut self) {
        if let Some(position) = self.early.first_key_value().map(|(position, _)| *position) {
            self.skip_to(position);
            self.append_early();
        }
    }

    fn skip_to(&mut self, position: u64) {
        if position <= self.next {
            return;
        }
        self.missing.add(self.next, position);
        self.pieces.push_back(Piece::Zeros(position - self.next));
        self.next = position;
    }
}

/// Record of the sequence numbers that have arrived, for the last [`SEEN`] below the highest.
struct Seen {
    bits: Vec<u64>,
    /// Highest sequence number received, plus one.
    end: u64,
}

enum Mark {
    First,
    Again,
    /// The number is too old for the record.
    Forgotten,
}

impl Seen {
    fn new() -> Seen {
        Seen { bits: vec![0; (SEEN / 64) as usize], end: 0 }
    }

    fn mark(&mut self, sequence: u64) -> Mark {
        if sequence.saturating_add(SEEN) < self.end {
            return Mark::Forgotten;
        }
        if sequence >= self.end {
            if sequence - self.end >= SEEN {
                self.bits.fill(0);
            } else {
                for between in self.end..=sequence {
                    let (word, bit) = Seen::place(between);
                    self.bits[word] &= !bit;
                }
            }
            self.end = sequence.saturating_add(1);
        }
        let (word, bit) = Seen::place(sequence);
        match self.bits[word] & bit {
            0 => {
                self.bits[word] |= bit;
                Mark::First
            }
            _ => Mark::Again,
        }
    }

    fn place(sequence: u64) -> (usize, u64) {
        let slot = sequence % SEEN;
        ((slot / 64) as usize, 1 << (slot % 64))
    }
}

#[cfg(test)]
#[path = "assembly_tests.rs"]
mod tests;
