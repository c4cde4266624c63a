//! Senders that end, start again or lie.

use super::*;
use proptest::prelude::*;

const FORMAT: RtpFormat = RtpFormat::Sound { channels: 1, rate: 8000 };

fn block(number: u64) -> Vec<u8> {
    vec![number as u8; 320]
}

/// Packets of 20 ms from `begin_ms` on.
fn sent(source: Source, begin_ms: u64, packets: u64) -> Vec<Arrival> {
    let packet = |number: u64| source.packet(number, number * 160, &block(number));
    (0..packets).map(|number| ((begin_ms + 20 * number) * MS, source.address, packet(number))).collect()
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_sender_that_starts_again_is_followed() {
    let first = Source::new(96);
    let second = Source { address: address(77), ssrc: 8, sequence: 3, timestamp: 12_345, ..first };
    let mut receiver = receiver(FORMAT, Concealment::Repeat);
    let mut arrivals = sent(first, 0, 50);
    arrivals.extend(sent(second, 1800, 50));
    let all = joined(&run(&mut receiver, arrivals, |_, _| {}));
    // Its first packet proves nothing.
    let both: Vec<u8> = (1..50).flat_map(block).collect();
    let begin = all.windows(both.len()).position(|window| window == both).unwrap();
    assert!(contains(&all[begin + both.len()..], &both));
    let (_, told) = account(&receiver);
    assert_eq!((told.sender_restarts, told.packets_foreign, told.packets_lost), (1, 1, 0), "{told:?}");
}

#[test]
fn a_sender_whose_times_jump_is_followed() {
    let source = Source::new(96);
    let mut receiver = receiver(FORMAT, Concealment::Repeat);
    let mut arrivals = sent(source, 0, 50);
    let jumped = Source { timestamp: source.timestamp.wrapping_add(1 << 30), ..source };
    arrivals.extend(sent(jumped, 0, 100).into_iter().skip(50));
    let all = joined(&run(&mut receiver, arrivals, |_, _| {}));
    assert!(contains(&all, &(51..100).flat_map(block).collect::<Vec<_>>()));
    let (_, told) = account(&receiver);
    assert_eq!((told.sender_restarts, told.packets_foreign), (1, 1), "{told:?}");
}

#[test]
fn what_others_send_changes_nothing() {
    let source = Source::new(96);
    let clean = joined(&run(&mut receiver(FORMAT, Concealment::Repeat), sent(source, 0, 500), |_, _| {}));
    let mut arrivals = sent(source, 0, 500);
    let mut foreign = 0;
    for number in 0..5000u64 {
        let at = (chance(number) * 10_000.0 * MS as f64) as u64 + MS;
        let stranger = Source { address: address(6), ssrc: number as u32, ..source };
        let bytes = match number % 4 {
            0 => noise(number as usize % 200, number),
            1 => stranger.packet(number * 7, number, &block(1)),
            // The true source from another address, and another source from the true address.
            2 => Source { address: address(6), ..source }.packet(number, 160 * number, &block(2)),
            _ => Source { ssrc: 9, ..source }.packet(number / 4, 160 * number, &block(3)),
        };
        arrivals.push((at, if number % 4 == 3 { source.address } else { stranger.address }, bytes));
        foreign += u64::from(at < 20 * 499 * MS);
    }
    arrivals.retain(|arrival| arrival.0 <= 20 * 499 * MS);
    let mut receiver = receiver(FORMAT, Concealment::Repeat);
    assert!(joined(&run(&mut receiver, arrivals, |_, _| {})) == clean);
    let (_, told) = account(&receiver);
    assert_eq!((told.packets, told.packets_lost, told.packets_foreign), (500, 0, foreign), "{told:?}");
}

#[test]
fn a_goodbye_ends_the_stream_and_reports_tell_the_latency() {
    let source = Source::new(96);
    let mut receiver = receiver(FORMAT, Concealment::Repeat);
    let mut number = 0;
    let unix_ns = 1_700_000_000_000_000_000;
    // The sender's clock of the day says that packets are sampled 30 ms before they arrive.
    let reported = report(&source, unix_ns + 1_000_000_000 - 30 * MS, 50 * 160, false);
    let goodbye = report(&source, unix_ns, 0, true);
    for (now, from, bytes) in sent(source, 0, 100) {
        while receiver.due_ns().is_some_and(|due| due <= now) {
            let due = receiver.due_ns().unwrap();
            let mut unit = Vec::new();
            receiver.play(due, &mut unit);
            assert!(unit == block(number));
            number += 1;
        }
        receiver.packet(now, from, &bytes);
        if number == 20 {
            receiver.control_packet(address(6), &reported);
            // Others cannot end the stream.
            receiver.control_packet(([192, 0, 2, 9], 6).into(), &goodbye);
            receiver.control_packet(address(6), &report(&Source { ssrc: 1, ..source }, 0, 0, true));
        }
    }
    assert!(!receiver.is_over(2100 * MS));
    receiver.control_packet(address(6), &goodbye);
    while !receiver.is_over(2100 * MS) {
        let due = receiver.due_ns().unwrap();
        let mut unit = Vec::new();
        receiver.play(due, &mut unit);
        assert!(unit == block(number));
        number += 1;
    }
    let (stream, told) = account(&receiver);
    assert_eq!((number, stream.units, told.units_concealed), (100, 100, 0));
    assert!(told.is_complete);
    let latency = told.latency.unwrap();
    assert!((latency.p50 - 0.130).abs() < 0.002, "{latency:?}");
}

#[test]
fn nothing_comes_and_nothing_ends() {
    let mut receiver = receiver(FORMAT, Concealment::Repeat);
    assert_eq!(receiver.due_ns(), None);
    assert!(!receiver.is_over(u64::MAX));
    receiver.control_packet(address(6), &report(&Source::new(96), 0, 0, true));
    assert!(!receiver.is_over(u64::MAX));
}

proptest! {
    /// A sender that is listened to and lies about everything: the output never grows faster than time passes, and memory is
    /// bounded.
    #[test]
    fn lies_make_no_more_than_time_allows(
        packets in prop::collection::vec((0u64..50, any::<u16>(), any::<u32>(), 0usize..2000, any::<bool>()), 1..200),
        kind in 0usize..3,
    ) {
        let picture = crate::rtp::raw_video::tests::picture(16, 8, crate::video::PixelFormat::Yuv420);
        let rate = crate::video::Rate { frames: 50, seconds: 1 };
        let format = [FORMAT, RtpFormat::Video { picture, rate }, RtpFormat::Transport][kind];
        let mut receiver = receiver(format, Concealment::Repeat);
        let source = Source::new(96);
        let (mut now, mut bytes, mut out, mut units) = (0, 0, Vec::new(), 0u64);
        for (number, (step, sequence, timestamp, length, is_wild)) in packets.into_iter().enumerate() {
            now += step * MS;
            let (sequence, timestamp) = match is_wild {
                true => (u64::from(sequence), u64::from(timestamp)),
                false => (number as u64, number as u64 * 160),
            };
            receiver.packet(now, source.address, &source.packet(sequence, timestamp, &noise(length, timestamp)));
            bytes += length;
            while receiver.due_ns().is_some_and(|due| due <= now) {
                receiver.play(now, &mut out);
                units += 1;
                prop_assert!(units < 100_000, "{units} units in {now} ns");
            }
        }
        let in_time = now / (20 * MS) + 60;
        if kind == 1 {
            prop_assert!(out.len() as u64 <= (in_time + 60) * (picture.frame_bytes() as u64 + 6), "{}", out.len());
        }
        if kind == 2 {
            prop_assert!(out.len() <= bytes);
        }
    }
}
