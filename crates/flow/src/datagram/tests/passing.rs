//! Relays between three hosts.

use super::*;
use crate::datagram::engine::Engine;
use crate::datagram::options::Rate;
use bywash_support::hosts::{Hosts, MTU};

pub(super) const SLOW: Rate = Rate::Fixed(10_000_000);
pub(super) const NONE: RelayOptions = RelayOptions { idle: None, limit: None };

/// Sends data through a relay in the middle, and compares what arrives.
pub(super) fn through(
    hosts: &Hosts,
    sender: &DatagramEndpoint,
    (from, to): (&DatagramEndpoint, &DatagramEndpoint),
    receiver: &DatagramEndpoint,
) -> [Accounting; 3] {
    let data = data(2_000_003, 31);
    let relay = pass_on(hosts.middle(), from, to, NONE);
    let received = receive(hosts.last(), receiver);
    let sent = send(hosts.first(), sender, &data);
    let received = received.end();
    let relayed = relay.stop();
    assert!(matches!(relayed.result, Err(Error::Cancelled)));
    sent.result.unwrap();
    received.result.unwrap();
    assert_same(&received.data, &data);
    [sent.account, relayed.account, received.account]
}

#[test]
fn udp_to_udp_by_every_engine() {
    let hosts = Hosts::three(MTU);
    let (middle, last) = (&hosts.middle().ports()[0], hosts.last().port());
    for engine in [Engine::Single, Engine::Batch, Engine::Offload] {
        let from = DatagramEndpoint::Udp(UdpOptions { engine: Some(engine), ..udp(middle, 7201) });
        let to = DatagramEndpoint::Udp(UdpOptions { engine: Some(engine), ..udp(last, 7201) });
        let sender = DatagramEndpoint::Udp(UdpOptions { rate: SLOW, ..udp(middle, 7201) });
        let [sent, relayed, received] =
            through(&hosts, &sender, (&from, &to), &DatagramEndpoint::Udp(udp(last, 7201)));
        let relayed = (relayed.engine, relayed.relayed.unwrap());
        assert_eq!(relayed.0, Some(engine));
        // The data, at least one end mark and one acknowledgement of the report.
        assert!(relayed.1.packets >= sent.packets_sent + 2, "{relayed:?}");
        assert!(relayed.1.packets_back > 0 && relayed.1.refused == 0);
        assert_eq!(received.packets_received, sent.packets_sent);
        // Datagrams that the kernel joined stay joined.
        assert_eq!(relayed.1.runs < relayed.1.packets / 2, engine == Engine::Offload, "{relayed:?}");
    }
}

#[test]
fn the_rate_is_found_through_a_relay() {
    let hosts = Hosts::three(MTU);
    let (middle, last) = (&hosts.middle().ports()[0], hosts.last().port());
    let (from, to) = (DatagramEndpoint::Udp(udp(middle, 7202)), DatagramEndpoint::Udp(udp(last, 7202)));
    let sender = DatagramEndpoint::Udp(UdpOptions { rate: Rate::Auto, ..udp(middle, 7202) });
    let [sent, relayed, received] = through(&hosts, &sender, (&from, &to), &to);
    assert!(sent.probing.unwrap().rate_chosen > 0);
    assert_eq!((received.lost, relayed.relayed.unwrap().unfit), (0, 0));
}

#[test]
fn ethernet_to_ethernet_with_the_same_port_and_another() {
    let hosts = Hosts::three(MTU);
    let [left, right] = hosts.middle().ports() else { panic!("two ports") };
    for engine in [Engine::Single, Engine::Ring] {
        for onwards in [20, 21] {
            let from = DatagramEndpoint::Eth(EthOptions { engine: Some(engine), ..eth(left, 20) });
            let to = DatagramEndpoint::Eth(EthOptions {
                engine: Some(engine),
                ..eth_to(right, hosts.last().port(), onwards)
            });
            let sender =
                DatagramEndpoint::Eth(EthOptions { rate: SLOW, ..eth_to(hosts.first().port(), left, 20) });
            let receiver = DatagramEndpoint::Eth(eth(hosts.last().port(), onwards));
            let [_, relayed, _] = through(&hosts, &sender, (&from, &to), &receiver);
            assert_eq!((relayed.engine, relayed.relayed.unwrap().unfit), (Some(engine), 0));
        }
    }
}

#[test]
fn between_udp_and_ethernet_with_headers_kept() {
    let hosts = Hosts::three(MTU);
    let [left, right] = hosts.middle().ports() else { panic!("two ports") };
    let last = hosts.last().port();
    // A payload of 1500 bytes fits Ethernet, and 1472 fit UDP.
    let size = Some(1400);
    let udp_sender = DatagramEndpoint::Udp(UdpOptions { rate: SLOW, size, ..udp(left, 7203) });
    let (from, to) = (DatagramEndpoint::Udp(udp(left, 7203)), DatagramEndpoint::Eth(eth_to(right, last, 22)));
    through(&hosts, &udp_sender, (&from, &to), &DatagramEndpoint::Eth(eth(last, 22)));

    let eth_sender =
        DatagramEndpoint::Eth(EthOptions { rate: SLOW, size, ..eth_to(hosts.first().port(), left, 23) });
    let (from, to) = (DatagramEndpoint::Eth(eth(left, 23)), DatagramEndpoint::Udp(udp(last, 7203)));
    through(&hosts, &eth_sender, (&from, &to), &DatagramEndpoint::Udp(udp(last, 7203)));
}

#[test]
fn headers_are_added_to_plain_datagrams_and_taken_away_again() {
    let hosts = Hosts::three(MTU);
    let [left, right] = hosts.middle().ports() else { panic!("two ports") };
    let (last, data) = (hosts.last().port(), data(500_000, 32));
    let idle = RelayOptions { idle: Some(Duration::from_millis(300)), limit: None };
    let plain = |port: &Port| UdpOptions {
        sequenced: false,
        idle: idle.idle,
        size: Some(1400),
        rate: SLOW,
        ..udp(port, 7204)
    };

    let to = DatagramEndpoint::Eth(eth_to(right, last, 24));
    let relay = pass_on(hosts.middle(), &DatagramEndpoint::Udp(plain(left)), &to, idle);
    let receiver = receive(hosts.last(), &DatagramEndpoint::Eth(eth(last, 24)));
    send(hosts.first(), &DatagramEndpoint::Udp(plain(left)), &data).result.unwrap();
    relay.end().result.unwrap();
    let received = receiver.end();
    received.result.unwrap();
    assert_same(&received.data, &data);

    let relay = pass_on(
        hosts.middle(),
        &DatagramEndpoint::Eth(eth(left, 25)),
        &DatagramEndpoint::Udp(plain(last)),
        idle,
    );
    let receiver = receive(hosts.last(), &DatagramEndpoint::Udp(plain(last)));
    let sender = DatagramEndpoint::Eth(EthOptions { rate: SLOW, ..eth_to(hosts.first().port(), left, 25) });
    let mut output = hosts.first().run(|| open_output(&sender, Ledger::default())).unwrap();
    output.put(&data, &Control::new().unwrap()).unwrap();
    assert_same(&receiver.end().data, &data);
    relay.end().result.unwrap();
}

#[test]
fn bounds_of_datagrams_are_kept_and_answers_come_back() {
    let hosts = Hosts::three(MTU);
    let (middle, last) = (&hosts.middle().ports()[0], hosts.last().port());
    let plain = |port: &Port| DatagramEndpoint::Udp(UdpOptions { sequenced: false, ..udp(port, 7205) });
    let relay =
        pass_on(hosts.middle(), &plain(middle), &plain(last), RelayOptions { limit: Some(1806), ..NONE });
    let server = hosts.last().run(|| UdpSocket::bind((last.address, 7205)).unwrap());
    let client = hosts.first().run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(SOON)).unwrap();
    }
    client.connect((middle.address, 7205)).unwrap();
    let mut room = [0; 2000];
    for length in [1, 1400, 0, 5, 400] {
        client.send(&data(length, length as u64)).unwrap();
        let (came, from) = arrival(&server, &mut room);
        assert_eq!(room[..came], data(length, length as u64));
        // The last datagram reaches the limit, which ends the relay.
        if length < 400 || length == 1400 {
            server.send_to(&room[..came], from).unwrap();
            assert_eq!(arrival(&client, &mut room).0, length);
        }
    }
    let relayed = relay.end();
    relayed.result.unwrap();
    let counts = relayed.account.relayed.unwrap();
    assert_eq!((counts.packets, counts.bytes, counts.packets_back), (5, 1806, 4));
}

#[test]
fn a_sink_that_is_not_there_yet_does_not_end_the_relay() {
    let hosts = Hosts::three(MTU);
    let (middle, last) = (&hosts.middle().ports()[0], hosts.last().port());
    let plain = |port: &Port| DatagramEndpoint::Udp(UdpOptions { sequenced: false, ..udp(port, 7206) });
    let relay = pass_on(hosts.middle(), &plain(middle), &plain(last), NONE);
    let client = hosts.first().run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    let say = |words: &[u8]| {
        client.send_to(words, (middle.address, 7206)).unwrap();
        thread::sleep(Duration::from_millis(50));
    };
    for _ in 0..4 {
        say(b"lost");
    }
    let server = hosts.last().run(|| UdpSocket::bind((last.address, 7206)).unwrap());
    server.set_read_timeout(Some(SOON)).unwrap();
    say(b"here");
    say(b"here");
    let mut room = [0; 10];
    let came = arrival(&server, &mut room).0;
    assert_eq!(&room[..came], b"here");
    relay.stop();
}

#[test]
fn a_sink_that_dies_is_noticed_by_the_sender_behind_the_relay() {
    let hosts = Hosts::three(MTU);
    let (middle, last) = (&hosts.middle().ports()[0], hosts.last().port());
    let (from, to) = (DatagramEndpoint::Udp(udp(middle, 7207)), DatagramEndpoint::Udp(udp(last, 7207)));
    let relay = pass_on(hosts.middle(), &from, &to, NONE);
    let receiver = receive(hosts.last(), &to);
    let sender = DatagramEndpoint::Udp(UdpOptions { rate: SLOW, ..udp(middle, 7207) });
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        receiver.stop()
    });
    let error = send(hosts.first(), &sender, &data(3_000_000, 33)).result.unwrap_err().to_string();
    assert!(error.contains("did not say what arrived"), "{error}");
    assert!(matches!(killer.join().unwrap().result, Err(Error::Cancelled)));
    let counts = relay.stop().account.relayed.unwrap();
    assert!(counts.refused > 0, "{counts:?}");
}
