//! Video: frames come back whole, what is missing is that of the frame before, and transport streams keep their packets.

use super::*;
use crate::rtp::raw_video::tests::{payloads, picture};
use crate::video::{PixelFormat, Rate};

const RATE: Rate = Rate { frames: 30_000, seconds: 1001 };

fn frame(number: u64) -> Vec<u8> {
    noise(picture(64, 32, PixelFormat::Yuv420).frame_bytes(), number)
}

fn format() -> RtpFormat {
    RtpFormat::Video { picture: picture(64, 32, PixelFormat::Yuv420), rate: RATE }
}

/// Packets of frames, spread over the frames' times; with the numbers of frame and packet.
fn sent(frames: u64) -> Vec<(u64, usize, Arrival)> {
    let source = Source::new(96);
    let (mut packets, mut sequence) = (Vec::new(), 0);
    for number in 0..frames {
        let begin = RATE.time_ns(number);
        let payloads = payloads(picture(64, 32, PixelFormat::Yuv420), &frame(number), 500);
        for (part, payload) in payloads.iter().enumerate() {
            let at = begin + part as u64 * 4 * MS + (chance(sequence) * 15e6) as u64;
            let packet = source.packet(sequence, (begin * 9 + 50_000) / 100_000, payload);
            packets.push((number, part, (at, source.address, packet)));
            sequence += 1;
        }
    }
    packets
}

/// The frames of units, without their headers.
fn frames(units: &Units) -> Vec<Vec<u8>> {
    units.iter().map(|unit| unit.1.strip_prefix(b"FRAME\n").unwrap().to_vec()).collect()
}

#[test]
fn frames_are_the_same_however_packets_come() {
    let mut receiver = receiver(format(), Concealment::Repeat);
    let units = run(&mut receiver, sent(200).into_iter().map(|packet| packet.2).collect(), |_, _| {});
    let got = frames(&units);
    assert!((0..200).all(|number| got[number as usize] == frame(number)));
    let (stream, told) = account(&receiver);
    assert_eq!((told.packets_lost, told.packets_foreign, stream.units_dropped), (0, 0, 0));
    assert!(told.packets_reordered > 100 && got.len() <= 216, "{told:?}");
    assert_eq!(told.units_concealed as usize, got.len() - 200);
    assert!(got[200..].iter().all(|repeated| *repeated == frame(199)));
}

#[test]
fn missing_parts_are_those_of_the_frame_before() {
    let mut receiver = receiver(format(), Concealment::Repeat);
    // Of frame 5 a packet is missing, frame 9 is missing as a whole, and of frame 12 all but the first.
    let is_there = |frame: u64, part: usize| !matches!((frame, part), (5, 2) | (9, _) | (12, 1..));
    let packets = sent(20).into_iter().filter(|packet| is_there(packet.0, packet.1)).map(|packet| packet.2);
    let got = frames(&run(&mut receiver, packets.collect(), |_, _| {}));
    for number in 0..20 {
        let got = &got[number as usize];
        match number {
            5 | 12 => {
                let (this, before) = (frame(number), frame(number - 1));
                let mixed = got.iter().zip(this.iter().zip(&before));
                assert!(mixed.into_iter().all(|(got, (this, before))| got == this || got == before));
                assert!(*got != this && *got != before);
            }
            9 => assert!(*got == frame(8)),
            _ => assert!(*got == frame(number), "{number}"),
        }
    }
    let (_, told) = account(&receiver);
    let in_frame = sent(1).len() as u64;
    assert_eq!(told.packets_lost, 1 + in_frame + in_frame - 1);
}

#[test]
fn a_sender_of_more_frames_than_are_played_is_played_at_the_receivers_rate() {
    let half = Rate { frames: 15_000, seconds: 1001 };
    let format = RtpFormat::Video { picture: picture(64, 32, PixelFormat::Yuv420), rate: half };
    let mut receiver = receiver(format, Concealment::Repeat);
    let units = run(&mut receiver, sent(100).into_iter().map(|packet| packet.2).collect(), |_, _| {});
    let (stream, told) = account(&receiver);
    assert!((48..=60).contains(&units.len()), "{}", units.len());
    assert!((45..=52).contains(&stream.units_dropped), "{stream:?}");
    assert_eq!(told.packets_lost, 0);
}

#[test]
fn packets_of_a_transport_stream_are_played_at_their_times() {
    let source = Source::new(96);
    let arrivals = (0..500u64).map(|number| {
        let at = number * 10 * MS + (chance(number) * 30e6) as u64;
        (at, source.address, source.packet(number, number * 900, &noise(188 * 7, number)))
    });
    let mut receiver = receiver(RtpFormat::Transport, Concealment::Repeat);
    let units = run(&mut receiver, arrivals.filter(|arrival| arrival.0 / MS % 50 != 7).collect(), |_, _| {});
    let sent: Vec<Vec<u8>> = (0..500).map(|number| noise(188 * 7, number)).collect();
    let mut next = sent.iter();
    assert!(
        units.iter().all(|unit| next.any(|packet| *packet == unit.1)),
        "packets are in order, and none is made up"
    );
    let (_, told) = account(&receiver);
    assert_eq!(told.packets + told.packets_lost, 500);
    assert_eq!(units.len() as u64, told.packets);
}
