//! Tests the assembly against a model that keeps everything.

use super::*;
use crate::datagram::missing::Range;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn byte(position: u64) -> u8 {
    (position.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 | 1
}

fn payload(position: u64, length: usize) -> Vec<u8> {
    (position..position + length as u64).map(byte).collect()
}

/// Takes everything that is ready, in pieces of at most `most` bytes.
fn drain(assembly: &mut Assembly, most: usize, into: &mut Vec<u8>) {
    while assembly.is_ready() {
        match assembly.take(most) {
            Accepted::Bytes(bytes) => into.extend_from_slice(bytes),
            Accepted::Zeros(count) => into.resize(into.len() + count, 0),
            Accepted::Nothing => return,
        }
    }
}

#[test]
fn a_hole_is_given_up_when_too_much_waits_and_what_fills_it_then_is_late() {
    let mut assembly = Assembly::new();
    let size = 1 << 10;
    let packets = (EARLY_PACKETS_MAX + 2) as u64;
    let mut out = Vec::new();
    for sequence in (0..packets).filter(|sequence| *sequence != 1) {
        assembly.offer(sequence, sequence * size, &payload(sequence * size, size as usize));
        drain(&mut assembly, 1 << 20, &mut out);
    }
    assert_eq!(out.len(), size as usize, "the hole is waited for");
    assembly.offer(packets, packets * size, &payload(packets * size, size as usize));
    drain(&mut assembly, 1 << 20, &mut out);
    assert_eq!(out.len() as u64, (packets + 1) * size);
    assert_eq!(assembly.missing().ranges(), [Range { from: size, to: 2 * size }]);
    assembly.offer(1, size, &payload(size, size as usize));
    assert_eq!(assembly.tally().late, 1);
    assert_eq!(assembly.tally().received, packets);
}

#[test]
fn positions_that_cannot_be_are_counted_and_move_nothing() {
    let mut assembly = Assembly::new();
    assembly.offer(0, 1, b"x");
    assembly.offer(1, u64::MAX, b"x");
    assembly.offer(u64::MAX, u64::MAX, b"x");
    assembly.offer(0, 0, b"");
    assert_eq!(assembly.tally().absurd, 4);
    assert_eq!(assembly.take(10), Accepted::Nothing);
    assert_eq!(assembly.next(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// With packets lost, swapped and duplicated within the window, every byte that arrived is at its
    /// position.
    #[test]
    fn as_the_model(
        lengths in prop::collection::vec(1usize..3000, 0..200),
        fate in prop::collection::vec((0u8..10, 0usize..40), 0..200),
        most in 1usize..5000,
    ) {
        let mut position = 0;
        let mut packets = Vec::new();
        for (sequence, length) in lengths.iter().enumerate() {
            packets.push((sequence as u64, position, *length));
            position += *length as u64;
        }
        let total = position;
        // Packets to offer, sorted by their time of arrival.
        let mut arrivals = Vec::new();
        for (number, packet) in packets.iter().enumerate() {
            let (luck, delay) = fate.get(number).copied().unwrap_or((5, 0));
            match luck {
                0 => {}
                1 => arrivals.extend([(number, *packet), (number + delay, *packet)]),
                2 => arrivals.push((number + delay, *packet)),
                _ => arrivals.push((number, *packet)),
            }
        }
        arrivals.sort_by_key(|(when, _)| *when);

        let mut assembly = Assembly::new();
        let (mut out, mut model) = (Vec::new(), vec![0; total as usize]);
        let (mut came, mut duplicated, mut reordered, mut highest) = (BTreeSet::new(), 0, 0, 0);
        for (_, (sequence, position, length)) in arrivals {
            assembly.offer(sequence, position, &payload(position, length));
            drain(&mut assembly, most, &mut out);
            if came.insert(sequence) {
                let place = position as usize..position as usize + length;
                model[place].copy_from_slice(&payload(position, length));
                reordered += u64::from(sequence < highest);
            } else {
                duplicated += 1;
            }
            highest = highest.max(sequence + 1);
        }
        assembly.end(total);
        drain(&mut assembly, most, &mut out);

        prop_assert_eq!(out, model);
        let tally = assembly.tally();
        prop_assert_eq!(tally.received, came.len() as u64);
        prop_assert_eq!((tally.duplicated, tally.reordered), (duplicated, reordered));
        prop_assert_eq!((tally.late, tally.absurd), (0, 0));
        let lost: u64 = packets.iter().filter(|p| !came.contains(&p.0)).map(|p| p.2 as u64).sum();
        prop_assert_eq!(assembly.missing().bytes(), lost);
        prop_assert_eq!(tally.received_bytes + lost, total);
        let in_ranges: u64 = assembly.missing().ranges().iter().map(|range| range.to - range.from).sum();
        prop_assert_eq!(in_ranges, lost);
    }

    /// For any numbers of a malicious sender, the assembly stays consistent and its memory bounded.
    #[test]
    fn liars_do_no_harm(packets in prop::collection::vec((0u64..300, 0u64..20_000, 0usize..1500), 0..300)) {
        let mut assembly = Assembly::new();
        let mut out = Vec::new();
        for (sequence, position, length) in packets {
            assembly.offer(sequence, position, &payload(position, length));
            drain(&mut assembly, 4096, &mut out);
            prop_assert!(assembly.early_bytes <= EARLY_BYTES_MAX);
            prop_assert_eq!(out.len() as u64, assembly.next());
        }
        assembly.end(30_000);
        drain(&mut assembly, 4096, &mut out);
        prop_assert_eq!(out.len() as u64, assembly.next());
    }
}
