//! Packets that wait for their time, in the order of their sequence numbers.
//!
//! Invariant: a packet leaves the buffer once, in order, or is counted as lost; the buffer holds no more than
//! [`PACKETS_MAX`] packets and the bytes that it was made for, whatever comes.

use std::collections::VecDeque;

/// Greatest distance between the first and the last packet, which is less than half of the sequence numbers.
const PACKETS_MAX: usize = 16_384;
/// Greatest jump of the sequence numbers that counts as loss and not as another stream (RFC 3550, appendix A.1).
const JUMP_MAX: i64 = 3_000;
/// Number of last packets of which it is known whether they came. A power of two.
const SEEN: usize = 4_096;

/// A packet that waits.
#[derive(Debug)]
pub(crate) struct Packet {
    /// Time in the stream, in ticks; timestamps that wrap around go on.
    pub(crate) ticks: i64,
    pub(crate) payload: Vec<u8>,
}

/// The packets that wait.
#[derive(Debug)]
pub(crate) struct JitterBuffer {
    /// Number of the first place, which is the next packet that leaves.
    first: i64,
    places: VecDeque<Option<Packet>>,
    /// Greatest number that has come.
    newest: i64,
    /// Bit for each of the last numbers: whether the packet came.
    seen: [u64; SEEN / 64],
    bytes: usize,
    bytes_max: usize,
    has_begun: bool,
    /// Memory of payloads that have left.
    spare: Vec<Vec<u8>>,
}

/// Greatest number of payloads whose memory is kept.
const SPARE_MAX: usize = 64;

/// Result of putting a packet into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    InOrder,
    /// It came behind a later one.
    Reordered,
    /// It came before.
    Duplicate,
    /// Its time is over.
    Late,
    /// There is no room.
    Full,
    /// Its number is far from the others.
    Jump,
}

impl JitterBuffer {
    pub(crate) fn new(bytes_max: usize) -> JitterBuffer {
        JitterBuffer {
            first: 0,
            places: VecDeque::new(),
            newest: 0,
            seen: [0; SEEN / 64],
            bytes: 0,
            bytes_max,
            has_begun: false,
            spare: Vec::new(),
        }
    }

    /// Forgets all packets, and begins anew with the next one. Returns the number of packets that were forgotten.
    pub(crate) fn restart(&mut self) -> u64 {
        let forgotten = self.places.iter().flatten().count();
        self.places.clear();
        (self.has_begun, self.bytes) = (false, 0);
        forgotten as u64
    }

    /// Puts a packet in its place.
    pub(crate) fn put(&mut self, sequence: u16, ticks: i64, payload: &[u8]) -> Placed {
        if !self.has_begun {
            let number = i64::from(sequence);
            (self.first, self.newest, self.has_begun) = (number, number - 1, true);
            self.seen = [0; SEEN / 64];
        }
        let number = self.newest + i64::from(sequence.wrapping_sub(self.newest as u16) as i16);
        if number > self.newest + JUMP_MAX || number <= self.newest - SEEN as i64 {
            return Placed::Jump;
        }
        let is_newest = number > self.newest;
        if !is_newest && self.is_seen(number) {
            return Placed::Duplicate;
        }
        if number < self.first {
            self.set_seen(number, true);
            return Placed::Late;
        }
        let place = (number - self.first) as usize;
        if place >= PACKETS_MAX || self.bytes + payload.len() > self.bytes_max {
            return Placed::Full;
        }
        for number in self.newest + 1..=number {
            self.set_seen(number, false);
        }
        self.set_seen(number, true);
        self.newest = self.newest.max(number);
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(payload);
        self.bytes += payload.len();
        self.places[place] = Some(Packet { ticks, payload: memory });
        if is_newest { Placed::InOrder } else { Placed::Reordered }
    }

    /// Returns the time in the stream of the next packet, in ticks; `None` if there is none.
    pub(crate) fn next_ticks(&self) -> Option<i64> {
        self.places.iter().flatten().next().map(|packet| packet.ticks)
    }

    /// Takes the next packet if its time is before `end`, and counts those that are missing before it into `lost`.
    pub(crate) fn take_before(&mut self, end: i64, lost: &mut u64) -> Option<Packet> {
        let at = self.places.iter().position(Option::is_some)?;
        if self.places[at].as_ref().is_none_or(|packet| packet.ticks >= end) {
            return None;
        }
        *lost += at as u64;
        self.first += at as i64 + 1;
        let packet = self.places.drain(..=at).next_back().flatten()?;
        self.bytes -= packet.payload.len();
        Some(packet)
    }

    /// Gives the memory of a payload back.
    pub(crate) fn give_back(&mut self, packet: Packet) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(packet.payload);
        }
    }

    fn is_seen(&self, number: i64) -> bool {
        let bit = number.rem_euclid(SEEN as i64) as usize;
        self.seen[bit / 64] >> (bit % 64) & 1 == 1
    }

    fn set_seen(&mut self, number: i64, is: bool) {
        let bit = number.rem_euclid(SEEN as i64) as usize;
        let mask = 1 << (bit % 64);
        match is {
            true => self.seen[bit / 64] |= mask,
            false => self.seen[bit / 64] &= !mask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn put(buffer: &mut JitterBuffer, number: i64) -> Placed {
        buffer.put(number as u16, 10 * number, &number.to_be_bytes())
    }

    #[test]
    fn packets_leave_in_order_however_they_come_and_numbers_wrap_around() {
        let mut buffer = JitterBuffer::new(1000);
        let mut lost = 0;
        for (number, placed) in [
            (65_533, Placed::InOrder),
            (65_535, Placed::InOrder),
            (65_534, Placed::Reordered),
            (65_536, Placed::InOrder),
            (65_536, Placed::Duplicate),
            (65_538, Placed::InOrder),
            (65_535, Placed::Duplicate),
        ] {
            assert_eq!(put(&mut buffer, number), placed, "{number}");
        }
        for number in [65_533, 65_534, 65_535, 65_536] {
            assert_eq!(buffer.next_ticks(), Some(10 * number));
            assert!(buffer.take_before(10 * number, &mut lost).is_none());
            let packet = buffer.take_before(10 * number + 1, &mut lost).unwrap();
            assert_eq!(packet.payload, number.to_be_bytes());
            buffer.give_back(packet);
        }
        assert_eq!(lost, 0);
        assert_eq!(buffer.take_before(i64::MAX, &mut lost).unwrap().ticks, 655_380);
        assert_eq!(
            (lost, put(&mut buffer, 65_537), put(&mut buffer, 65_537)),
            (1, Placed::Late, Placed::Duplicate)
        );
        assert_eq!((buffer.next_ticks(), buffer.bytes), (None, 0));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut buffer = JitterBuffer::new(20);
        assert_eq!((put(&mut buffer, 1), put(&mut buffer, 2)), (Placed::InOrder, Placed::InOrder));
        assert_eq!(put(&mut buffer, 3), Placed::Full);
        assert_eq!(put(&mut buffer, 3 + JUMP_MAX), Placed::Jump);
        assert_eq!(put(&mut buffer, 2 - SEEN as i64), Placed::Jump);
        let mut wide = JitterBuffer::new(1 << 20);
        let mut number = 0;
        while put(&mut wide, number) == Placed::InOrder {
            number += JUMP_MAX;
        }
        assert!(wide.places.len() <= PACKETS_MAX && number > PACKETS_MAX as i64 - 2 * JUMP_MAX);
        assert_eq!((wide.restart(), wide.bytes), (6, 0));
        assert_eq!(put(&mut wide, 40_000), Placed::InOrder);
    }

    proptest! {
        /// The buffer against a map of all numbers, for packets that come within 50 places of their own.
        #[test]
        fn each_packet_leaves_once_or_is_lost(
            steps in prop::collection::vec((0i64..50, any::<bool>()), 1..300),
            start in 0i64..200_000,
        ) {
            let mut buffer = JitterBuffer::new(1 << 20);
            let (mut model, mut first, mut newest) = (BTreeMap::new(), start, start);
            let (mut lost, mut left) = (0, 0);
            prop_assert_eq!(put(&mut buffer, start), Placed::InOrder);
            model.insert(start, false);
            for (number, (ahead, takes)) in steps.into_iter().enumerate() {
                let number = start + number as i64 + ahead - 20;
                let expected = match model.get(&number) {
                    _ if number < start => None,
                    Some(_) => Some(Placed::Duplicate),
                    None if number < first => Some(Placed::Late),
                    None if number > newest => Some(Placed::InOrder),
                    None => Some(Placed::Reordered),
                };
                if let Some(expected) = expected {
                    prop_assert_eq!(put(&mut buffer, number), expected);
                    model.insert(number, expected == Placed::Late);
                    newest = newest.max(number);
                }
                if takes && let Some(packet) = buffer.take_before(i64::MAX, &mut lost) {
                    let next = model.range(first..).find(|place| !*place.1).map(|place| *place.0);
                    prop_assert_eq!(next, Some(packet.ticks / 10));
                    first = packet.ticks / 10 + 1;
                    left += 1;
                }
            }
            prop_assert_eq!((first - start) as u64, lost + left);
        }
    }
}
