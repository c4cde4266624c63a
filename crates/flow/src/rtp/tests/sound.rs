//! Sound: what was sent is what is played, however it comes; and the play-out follows the sender's clock.

use super::*;

/// Samples of a packet: 20 ms of mono at 8000 samples a second.
const SAMPLES: u64 = 160;
const PACKET_NS: u64 = 20 * MS;
const FORMAT: RtpFormat = RtpFormat::Sound { channels: 1, rate: 8000 };

fn payload(number: u64) -> Vec<u8> {
    noise(2 * SAMPLES as usize, number)
}

/// The samples of packets as they are played: least significant byte first.
fn played(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let swapped = |bytes: Vec<u8>| bytes.chunks(2).flat_map(|pair| [pair[1], pair[0]]).collect::<Vec<_>>();
    numbers.into_iter().flat_map(|number| swapped(payload(number))).collect()
}

/// Packets that are sent in time and arrive after 10 ms and a queue of up to `queue_ms`.
fn sent(source: Source, packets: std::ops::Range<u64>, queue_ms: f64) -> Vec<Arrival> {
    packets
        .map(|number| {
            let queue = (chance(number) * queue_ms * 1e6) as u64;
            let packet = source.packet(number, number * SAMPLES, &payload(number));
            (number * PACKET_NS + 10 * MS + queue, source.address, packet)
        })
        .collect()
}

#[test]
fn sound_is_the_same_and_even_however_packets_come() {
    let mut receiver = receiver(FORMAT, Concealment::Repeat);
    // Timestamps wrap around after 625 packets, and sequence numbers after 136.
    let mut arrivals = sent(Source::new(96), 0..2000, 60.0);
    let again: Vec<_> =
        arrivals.iter().step_by(7).map(|(at, from, bytes)| (at + 9 * MS, *from, bytes.clone())).collect();
    let duplicates = again.len() as u64;
    arrivals.extend(again);
    let units = run(&mut receiver, arrivals, |_, _| {});
    // Up to half a second of the end is made up, since nobody said that it was one.
    let all = joined(&units);
    assert!(all.starts_with(&played(0..2000)));
    assert!(units.len() <= 2000 + 25, "{}", units.len());
    let (stream, told) = account(&receiver);
    assert_eq!((told.packets, told.packets_duplicated), (2000 + duplicates, duplicates));
    assert_eq!((told.packets_lost, told.packets_late, told.packets_foreign), (0, 0, 0));
    assert!(told.packets_reordered > 300, "{told:?}");
    assert_eq!(told.units_concealed as usize, units.len() - 2000);
    assert_eq!(stream.lateness.unwrap().max, 0.0);
    assert!((0.01..0.03).contains(&stream.jitter_seconds), "{}", stream.jitter_seconds);
    for pair in units.windows(2) {
        let step = pair[1].0 - pair[0].0;
        assert!(step.abs_diff(PACKET_NS) <= PACKET_NS / 200 + 1, "{step}");
    }
}

#[test]
fn what_is_missing_is_the_block_before_or_silence() {
    for concealment in [Concealment::Repeat, Concealment::Silence] {
        let mut receiver = receiver(FORMAT, concealment);
        let is_lost = |number: u64| number > 0 && chance(number + 9_999) < 0.1;
        let mut arrivals = sent(Source::new(96), 0..1000, 20.0);
        let mut number = 0;
        arrivals.retain(|_| {
            number += 1;
            !is_lost(number - 1)
        });
        let lost = 1000 - arrivals.len();
        let units = run(&mut receiver, arrivals, |_, _| {});
        let mut last = Vec::new();
        for number in 0..1000 {
            last = match (is_lost(number), concealment) {
                (false, _) => played([number]),
                (true, Concealment::Repeat) => last,
                (true, Concealment::Silence) => vec![0; last.len()],
            };
            assert!(units[number as usize].1 == last, "{number}");
        }
        let (_, told) = account(&receiver);
        let at_end = (0..1000).rev().take_while(|number| is_lost(*number)).count();
        assert_eq!(told.packets_lost as usize, lost - at_end);
        assert_eq!(told.units_concealed as usize, lost - at_end + units.len() - 1000 + at_end);
    }
}

#[test]
fn a_clock_that_is_wrong_is_followed_for_an_hour() {
    for ppm in [-500.0, 500.0] {
        let mut receiver = receiver(FORMAT, Concealment::Repeat);
        let packets = 3600 * 50;
        let source = Source::new(96);
        // By the receiver's clock, the sender's packets come every 20 ms / (1 + ppm / 10^6).
        let sent_at = |number: u64| (number as f64 * PACKET_NS as f64 / (1.0 + ppm * 1e-6)) as u64;
        let arrivals = (0..packets).map(|number| {
            let queue = (chance(number) * chance(number + 1) * 40e6) as u64;
            let packet = source.packet(number, number * SAMPLES, &[0; 2 * SAMPLES as usize]);
            (sent_at(number) + 10 * MS + queue, source.address, packet)
        });
        // Without following, 100 ms are used up after 200 seconds.
        let (mut number, mut worst) = (0u64, 0);
        let units = run(&mut receiver, arrivals.collect(), |now, _| {
            if number < packets {
                let wait = now as i64 - (sent_at(number) + 10 * MS) as i64;
                worst = worst.max((wait - (BUFFER_MS * MS) as i64).abs());
            }
            number += 1;
        });
        let (_, told) = account(&receiver);
        assert_eq!((told.packets_lost, told.packets_late), (0, 0), "{ppm}");
        assert_eq!(told.units_concealed as usize, units.len() - packets as usize, "{ppm}");
        assert!(worst < 20 * MS as i64, "{ppm}: the buffer was off by {} ms", worst / MS as i64);
        assert!((told.drift_ppm - ppm).abs() < 10.0, "{ppm}: {}", told.drift_ppm);
    }
}

#[test]
fn a_path_that_becomes_longer_than_the_buffer_is_followed() {
    let mut receiver = receiver(FORMAT, Concealment::Repeat);
    let mut arrivals = sent(Source::new(96), 0..2000, 10.0);
    arrivals.iter_mut().skip(1000).for_each(|arrival| arrival.0 += 300 * MS);
    let units = run(&mut receiver, arrivals, |_, _| {});
    let tail = played(1500..2000);
    let all = joined(&units);
    assert!(all.windows(tail.len()).step_by(2).any(|part| part == tail), "the last 10 s are played");
    let (_, told) = account(&receiver);
    assert!(told.packets_lost < 200, "{told:?}");
}

#[test]
fn a_pause_is_left_out_but_for_half_a_second() {
    let mut receiver = receiver(FORMAT, Concealment::Repeat);
    let mut arrivals = sent(Source::new(96), 0..100, 0.0);
    // 1.5 seconds of nothing, in which the sender's clock went on.
    arrivals.extend(sent(Source::new(96), 175..300, 0.0));
    arrivals.iter_mut().for_each(|arrival| {
        let sequence = u16::from_be_bytes([arrival.2[2], arrival.2[3]]);
        if sequence.wrapping_sub(65_400) >= 175 {
            arrival.2[2..4].copy_from_slice(&sequence.wrapping_sub(75).to_be_bytes());
        }
    });
    let units = run(&mut receiver, arrivals, |_, _| {});
    let all = joined(&units);
    let (head, tail) = (played(0..100), played(175..300));
    let gap = played([99]).repeat(25);
    assert!(all.starts_with(&[head, gap, tail].concat()));
    let (_, told) = account(&receiver);
    assert_eq!((told.packets_lost, told.sender_restarts), (0, 0), "{told:?}");
}

#[test]
fn packets_of_any_length_make_the_same_sound() {
    let all = noise(2 * 8000, 3);
    let (mut arrivals, mut at, mut number) = (Vec::new(), 0, 0);
    let source = Source::new(96);
    while at < 8000u64 {
        let samples = (1 + (chance(number) * 300.0) as u64).min(8000 - at);
        let part = &all[2 * at as usize..2 * (at + samples) as usize];
        arrivals.push((at * 125_000, source.address, source.packet(number, at, part)));
        (at, number) = (at + samples, number + 1);
    }
    let mut receiver = receiver(FORMAT, Concealment::Silence);
    let units = run(&mut receiver, arrivals, |_, _| {});
    let expected: Vec<u8> = all.chunks(2).flat_map(|pair| [pair[1], pair[0]]).collect();
    assert!(joined(&units).starts_with(&expected));
    assert_eq!(account(&receiver).1.packets_lost, 0);
}

#[test]
fn packets_without_samples_are_no_sound() {
    let source = Source::new(96);
    let empty =
        |number: u64| (number * PACKET_NS, source.address, source.packet(number, number * SAMPLES, &[7]));
    let mut arrivals: Vec<_> = (0..10).map(empty).collect();
    arrivals.extend(sent(source, 10..60, 0.0));
    let mut receiver = receiver(FORMAT, Concealment::Repeat);
    let all = joined(&run(&mut receiver, arrivals, |_, _| {}));
    assert!(all.starts_with(&played(10..60)));
    assert_eq!(account(&receiver).1.packets_foreign, 10);
}
