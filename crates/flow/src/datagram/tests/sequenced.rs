//! Sequenced transfers over UDP: complete ones, damaged ones, and peers that die.

use super::lossy::{Lossy, Weather};
use super::*;
use crate::datagram::engine::Engine;
use crate::datagram::layout::{HEADER_BYTES, Header, PacketKind};
use crate::datagram::options::Rate;
use bywash_support::hosts::{Hosts, MTU};
use std::time::Instant;

const SLOW: Rate = Rate::Fixed(20_000_000);

#[test]
fn a_stream_arrives_whole_by_every_engine() {
    let hosts = Hosts::two(MTU);
    let data = data(3_000_001, 11);
    for engine in [Engine::Single, Engine::Batch, Engine::Offload] {
        let there = DatagramEndpoint::Udp(UdpOptions {
            rate: SLOW,
            engine: Some(engine),
            ..udp(hosts.last().port(), 7101)
        });
        let receiver = receive(hosts.last(), &there);
        let sent = send(hosts.first(), &there, &data);
        sent.result.unwrap();
        let received = receiver.end();
        received.result.unwrap();
        assert_same(&received.data, &data);
        for account in [&sent.account, &received.account] {
            assert_eq!(account.whole, Some(true));
            assert_eq!(
                (account.packets_sent, account.packets_received),
                (packets(3_000_001, 1440), packets(3_000_001, 1440)),
                "{account:?}"
            );
            assert_eq!((account.lost, account.duplicated, account.bytes_sent), (0, 0, 3_000_001));
        }
    }
}

#[test]
fn nothing_is_a_stream_too() {
    let hosts = Hosts::two(MTU);
    let there = DatagramEndpoint::Udp(udp(hosts.last().port(), 7102));
    let receiver = receive(hosts.last(), &there);
    send(hosts.first(), &there, &[]).result.unwrap();
    let received = receiver.end();
    received.result.unwrap();
    assert_eq!((received.data.len(), received.account.whole), (0, Some(true)));
}

#[test]
fn what_is_lost_is_named_at_both_ends_and_the_rest_is_in_its_place() {
    let hosts = Hosts::three(MTU);
    let data = data(4_000_000, 12);
    let middle = hosts.middle().ports()[0].clone();
    let weather = Weather { lose: 10, double: 10, swap: 20, dies_after: None };
    let there = udp(hosts.last().port(), 7103);
    let to: SocketAddr = there.address.parse().unwrap();
    let lossy = Lossy::start(hosts.middle(), (middle.address, 7103).into(), to, weather);
    let receiver = receive(hosts.last(), &DatagramEndpoint::Udp(there));
    let sender = DatagramEndpoint::Udp(UdpOptions { rate: SLOW, size: Some(1000), ..udp(&middle, 7103) });
    let sent = send(hosts.first(), &sender, &data);
    let received = receiver.end();
    let damage = lossy.stop();
    assert!(damage.lost > 10 && damage.doubled > 10, "{damage:?}");

    let account = received.account;
    assert_eq!((account.lost, account.duplicated, account.late), (damage.lost, damage.doubled, 0));
    assert!(account.reordered > 10 && account.whole == Some(false));
    let error = received.result.unwrap_err();
    assert!(matches!(error, Error::Lost(_)) && error.to_string().contains("are missing"), "{error}");
    let error = sent.result.unwrap_err().to_string();
    assert!(error.contains(&format!("misses {} of", damage.lost)), "{error}");
    assert_eq!((sent.account.whole, sent.account.lost), (Some(false), damage.lost));

    let mut expected = data;
    for range in &account.missing_ranges {
        expected[range.from as usize..range.to as usize].fill(0);
    }
    assert_same(&received.data, &expected);
    let missing: u64 = account.missing_ranges.iter().map(|range| range.to - range.from).sum();
    assert_eq!((missing, account.missing_ranges_merged), (account.missing_bytes, false));
    assert!(missing <= damage.lost * 1000 && missing > (damage.lost - 20) * 1000);
}

#[test]
fn duplicates_and_swaps_alone_do_no_harm() {
    let hosts = Hosts::three(MTU);
    let data = data(2_000_000, 13);
    let middle = hosts.middle().ports()[0].clone();
    let there = udp(hosts.last().port(), 7104);
    let weather = Weather { double: 100, swap: 200, ..Weather::default() };
    let to = there.address.parse().unwrap();
    let lossy = Lossy::start(hosts.middle(), (middle.address, 7104).into(), to, weather);
    let receiver = receive(hosts.last(), &DatagramEndpoint::Udp(there));
    let sender = DatagramEndpoint::Udp(UdpOptions { rate: SLOW, ..udp(&middle, 7104) });
    send(hosts.first(), &sender, &data).result.unwrap();
    let received = receiver.end();
    received.result.unwrap();
    assert_same(&received.data, &data);
    assert_eq!(received.account.duplicated, lossy.stop().doubled);
    assert!(received.account.reordered > 100);
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let hosts = Hosts::two(MTU);
    let data = data(8_000_000, 14);
    let there = udp(hosts.last().port(), 7105);
    let small = DatagramEndpoint::Udp(UdpOptions {
        receive_buffer: Some(20_000),
        engine: Some(Engine::Single),
        ..there.clone()
    });
    let receiver = receive(hosts.last(), &small);
    let sent = send(hosts.first(), &DatagramEndpoint::Udp(there), &data);
    let received = receiver.end();
    let account = received.account;
    assert!(account.kernel_drops > 0 && account.lost > 0 && account.whole == Some(false), "{account:?}");
    assert!(received.result.unwrap_err().to_string().contains("the kernel dropped"));
    assert!(sent.result.is_err());
    assert_eq!(received.data.len(), data.len());
}

#[test]
fn a_sender_that_dies_is_noticed() {
    let hosts = Hosts::three(MTU);
    let middle = hosts.middle().ports()[0].clone();
    let there = UdpOptions { idle: Some(Duration::from_millis(500)), ..udp(hosts.last().port(), 7106) };
    let to = there.address.parse().unwrap();
    let weather = Weather { dies_after: Some(100), ..Weather::default() };
    let lossy = Lossy::start(hosts.middle(), (middle.address, 7106).into(), to, weather);
    let receiver = receive(hosts.last(), &DatagramEndpoint::Udp(there));
    let sender = DatagramEndpoint::Udp(UdpOptions { rate: SLOW, ..udp(&middle, 7106) });
    let sent = send(hosts.first(), &sender, &data(1_000_000, 15));
    let error = receiver.end().result.unwrap_err().to_string();
    assert!(error.contains("fell silent after 144000 bytes"), "{error}");
    let error = sent.result.unwrap_err().to_string();
    assert!(error.contains("did not say what arrived") || error.contains("nobody listens"), "{error}");
    lossy.stop();
}

#[test]
fn a_sender_that_is_started_anew_is_noticed() {
    let hosts = Hosts::two(MTU);
    let there = udp(hosts.last().port(), 7107);
    let receiver = receive(hosts.last(), &DatagramEndpoint::Udp(there));
    hosts.first().run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect((hosts.last().address(), 7107)).unwrap();
        let packet = |transfer| {
            let mut packet = [7; HEADER_BYTES + 10];
            let header =
                Header { kind: PacketKind::Data, port: 0, length: 10, transfer, sequence: 0, position: 0 };
            header.write(packet.first_chunk_mut().unwrap());
            socket.send(&packet).unwrap();
        };
        packet(1);
        // While the first sender is alive, packets of another one are foreign.
        thread::sleep(Duration::from_millis(100));
        packet(2);
        thread::sleep(Duration::from_millis(1500));
        packet(2);
    });
    let received = receiver.end();
    let error = received.result.unwrap_err().to_string();
    assert!(error.contains("started anew after 10 bytes"), "{error}");
}

/// Waits until the sockets of a host have been read for this many datagrams (proc_pid_net(5), `snmp`).
fn wait_for_datagrams(host: &Host, wanted: u64) {
    let until = Instant::now() + SOON;
    loop {
        let text = host.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
        let mut numbers =
            text.lines().filter_map(|line| line.strip_prefix("Udp: ")?.split(' ').next()?.parse().ok());
        let read: u64 = numbers.next().expect("a line of numbers behind the line of names");
        if read >= wanted {
            return;
        }
        assert!(Instant::now() < until, "{read} of {wanted} datagrams were read");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_not_ours_is_counted_and_changes_nothing() {
    let hosts = Hosts::two(MTU);
    let there = udp(hosts.last().port(), 7108);
    let receiver = receive(hosts.last(), &DatagramEndpoint::Udp(there.clone()));
    hosts.first().run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for garbage in [&b"x"[..], &[0; 100], &[0xB7; 1400]] {
            socket.send_to(garbage, (hosts.last().address(), 7108)).unwrap();
        }
    });
    // Datagrams of two sockets may overtake each other, and a receiver does not wait for datagrams after its
    // end.
    wait_for_datagrams(hosts.last(), 3);
    let data = data(100_000, 16);
    send(hosts.first(), &DatagramEndpoint::Udp(UdpOptions { rate: SLOW, ..there }), &data).result.unwrap();
    let received = receiver.end();
    received.result.unwrap();
    assert_same(&received.data, &data);
    assert_eq!(received.account.foreign, 3);
}

#[test]
fn the_rate_is_found_and_holds() {
    let hosts = Hosts::two(MTU);
    let data = data(30_000_000, 17);
    let there = DatagramEndpoint::Udp(UdpOptions { rate: Rate::Auto, ..udp(hosts.last().port(), 7109) });
    let receiver = receive(hosts.last(), &there);
    let sent = send(hosts.first(), &there, &data);
    let probing = sent.account.probing.expect("the search is in the account");
    assert!(!probing.steps.is_empty() && probing.rate_chosen > 0);
    sent.result.unwrap();
    let received = receiver.end();
    received.result.unwrap();
    assert_same(&received.data, &data);
    assert_eq!((received.account.lost, received.account.kernel_drops, probing.lowered), (0, 0, 0));
}

#[test]
fn the_rate_of_a_slow_receiver_is_found_without_losing_data() {
    let hosts = Hosts::two(MTU);
    let data = data(5_000_000, 18);
    let there = UdpOptions { rate: Rate::Auto, ..udp(hosts.last().port(), 7110) };
    let small = UdpOptions { engine: Some(Engine::Single), receive_buffer: Some(300_000), ..there.clone() };
    let receiver = receive(hosts.last(), &DatagramEndpoint::Udp(small));
    send(hosts.first(), &DatagramEndpoint::Udp(there), &data).result.unwrap();
    let received = receiver.end();
    received.result.unwrap();
    assert_same(&received.data, &data);
}

#[test]
fn a_rate_cannot_be_found_where_nobody_answers() {
    let hosts = Hosts::two(MTU);
    let silent = hosts.last().run(|| UdpSocket::bind((hosts.last().address(), 7111)).unwrap());
    let place = DatagramEndpoint::Udp(UdpOptions { rate: Rate::Auto, ..udp(hosts.last().port(), 7111) });
    let begin = Instant::now();
    let error = send(hosts.first(), &place, b"x").result.unwrap_err().to_string();
    assert!(error.contains("nobody answers"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(6));
    drop(silent);
}
