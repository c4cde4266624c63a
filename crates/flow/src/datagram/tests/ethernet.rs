//! Ethernet frames between endpoints of this crate, and as tcpdump sees them.

use super::*;
use crate::datagram::engine::Engine;
use crate::datagram::options::Rate;
use bywash_support::hosts::{Hosts, MTU};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const SLOW: Rate = Rate::Fixed(20_000_000);
/// Engines of which many sockets may use one device.
const ENGINES: [Engine; 3] = [Engine::Single, Engine::Batch, Engine::Ring];
const ALL: [Engine; 4] = [Engine::Single, Engine::Batch, Engine::Ring, Engine::Xdp];

#[test]
fn a_stream_passes_by_every_pair_of_engines() {
    let hosts = Hosts::two(MTU);
    let data = data(1_000_003, 21);
    let (here, there) = (hosts.first().port(), hosts.last().port());
    for sending in ALL {
        for receiving in ALL {
            let listen = EthOptions { engine: Some(receiving), ..eth(there, 5) };
            let receiver = receive(hosts.last(), &DatagramEndpoint::Eth(listen));
            let sender = EthOptions { engine: Some(sending), rate: SLOW, ..eth_to(here, there, 5) };
            let sent = send(hosts.first(), &DatagramEndpoint::Eth(sender), &data);
            sent.result.unwrap();
            let received = receiver.end();
            received.result.unwrap();
            assert_same(&received.data, &data);
            assert_eq!((sent.account.engine, received.account.engine), (Some(sending), Some(receiving)));
            assert_eq!(
                (received.account.packets_received, received.account.foreign),
                (packets(1_000_003, 1468), 0)
            );
        }
    }
}

#[test]
fn the_rate_is_found_and_short_frames_are_not_padded_into_the_stream() {
    let hosts = Hosts::two(MTU);
    for (bytes, rate) in [(3, Rate::Unlimited), (10_000_000, Rate::Auto)] {
        let data = data(bytes, 22);
        let receiver = receive(hosts.last(), &DatagramEndpoint::Eth(eth(hosts.last().port(), 6)));
        let sender = EthOptions { rate, ..eth_to(hosts.first().port(), hosts.last().port(), 6) };
        send(hosts.first(), &DatagramEndpoint::Eth(sender), &data).result.unwrap();
        let received = receiver.end();
        received.result.unwrap();
        assert_same(&received.data, &data);
    }
}

#[test]
fn only_our_port_from_whom_we_said_and_to_us_comes_through() {
    let hosts = Hosts::two(MTU);
    let (here, there) = (hosts.first().port(), hosts.last().port());
    let stranger = Mac([2, 0, 0, 0, 9, 9]);
    for engine in ENGINES {
        let listen = EthOptions { mac: Some(mac(here)), engine: Some(engine), ..eth(there, 7) };
        let receiver = receive(hosts.last(), &DatagramEndpoint::Eth(listen));
        let others = EthOptions { mac: Some(stranger), engine: Some(engine), ..eth(there, 8) };
        let deaf = receive(hosts.last(), &DatagramEndpoint::Eth(others));
        let good = EthOptions { rate: SLOW, ..eth_to(here, there, 7) };
        for wrong in
            [EthOptions { port: 8, ..good.clone() }, EthOptions { mac: Some(stranger), ..good.clone() }]
        {
            let mut output =
                hosts.first().run(|| open_output(&DatagramEndpoint::Eth(wrong), Ledger::default())).unwrap();
            output.put(&data(20_000, 23), &Control::new().unwrap()).unwrap();
        }
        let data = data(100_000, 24);
        send(hosts.first(), &DatagramEndpoint::Eth(good), &data).result.unwrap();
        let received = receiver.end();
        received.result.unwrap();
        assert_same(&received.data, &data);
        assert_eq!(received.account.foreign, 0);
        let deaf = deaf.stop();
        assert_eq!((deaf.data.len(), deaf.account.packets_received, deaf.account.foreign), (0, 0, 0));
    }
}

#[test]
fn frames_that_find_no_room_are_counted() {
    let hosts = Hosts::two(MTU);
    for engine in [Engine::Single, Engine::Ring, Engine::Xdp] {
        let listen =
            EthOptions { receive_buffer: Some(20_000), engine: Some(engine), ..eth(hosts.last().port(), 9) };
        let ledger = Ledger::default();
        let mut input =
            hosts.last().run(|| open_input(&DatagramEndpoint::Eth(listen), ledger.clone())).unwrap();
        let sender = DatagramEndpoint::Eth(eth_to(hosts.first().port(), hosts.last().port(), 9));
        let mut output = hosts.first().run(|| open_output(&sender, Ledger::default())).unwrap();
        let control = Control::new().unwrap();
        // Nobody receives yet.
        output.put(&data(2_000_000, 25), &control).unwrap();
        let finish = thread::spawn(move || output.finish(&Control::new().unwrap()));
        let (mut room, mut bytes) = (vec![0; BLOCK], 0);
        let error = loop {
            match input.next(&mut room, &control) {
                Ok([]) => panic!("frames were lost, and nobody said so"),
                Ok(block) => bytes += block.len(),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Lost(_)), "{error}");
        assert!(finish.join().unwrap().is_err());
        let account = ledger.read();
        assert_eq!(bytes, 2_000_000);
        assert!(account.kernel_drops > 0 && account.lost > 0, "{engine:?} {account:?}");
    }
}

#[test]
fn frames_wait_in_a_ring_while_nobody_reads_for_a_while() {
    let hosts = Hosts::two(MTU);
    // Slow and short: the ring has room for ten times as much, so that only time could run out.
    let data = data(800_000, 26);
    let ledger = Ledger::default();
    let listen = EthOptions { engine: Some(Engine::Ring), ..eth(hosts.last().port(), 12) };
    let mut input = hosts.last().run(|| open_input(&DatagramEndpoint::Eth(listen), ledger.clone())).unwrap();
    let rate = Rate::Fixed(5_000_000);
    let sender =
        DatagramEndpoint::Eth(EthOptions { rate, ..eth_to(hosts.first().port(), hosts.last().port(), 12) });
    let mut output = hosts.first().run(|| open_output(&sender, Ledger::default())).unwrap();
    let control = Control::new().unwrap();
    output.put(&data, &control).unwrap();
    let finish = thread::spawn(move || output.finish(&Control::new().unwrap()));
    let (mut came, mut room) = (Vec::new(), vec![0; BLOCK]);
    while let block @ [_, ..] = input.next(&mut room, &control).unwrap() {
        came.extend_from_slice(block);
    }
    finish.join().unwrap().unwrap();
    assert_same(&came, &data);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let hosts = Hosts::two(MTU);
    let good = eth_to(hosts.first().port(), hosts.last().port(), 10);
    let cases = [
        (EthOptions { interface: "none0".into(), ..good.clone() }, "no network device 'none0'"),
        (
            EthOptions { interface: "a name that is far too long".into(), ..good.clone() },
            "a name that is far too long",
        ),
        (EthOptions { mac: None, ..good.clone() }, "to=MAC|IP"),
        (EthOptions { engine: Some(Engine::Offload), ..good.clone() }, "UDP only"),
        (EthOptions { size: Some(1500), ..good.clone() }, "smaller size="),
    ];
    for (options, words) in cases {
        let error =
            send(hosts.first(), &DatagramEndpoint::Eth(options), &[0; 5000]).result.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn without_the_right_it_says_which() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let hosts = Hosts::two(MTU);
    let place = DatagramEndpoint::Eth(eth(hosts.last().port(), 11));
    let error = hosts.last().run(|| {
        let none = CapabilitySet::empty();
        // The namespace is that of this thread, which ends here.
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
            .unwrap();
        open_input(&place, Ledger::default()).err().unwrap().to_string()
    });
    assert!(error.contains("CAP_NET_RAW"), "{error}");
}

#[test]
fn tcpdump_sees_the_type_and_the_payload() {
    let hosts = Hosts::two(MTU);
    let (here, there) = (hosts.first().port(), hosts.last().port());
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-i", &there.interface, "-Z", "root", "-nn", "-e", "-X", "-c", "1", "--immediate-mode"]);
    tcpdump.args(["ether", "proto", "0x0a0a", "and", "ether[17]", "=", "1"]);
    let mut tcpdump = hosts.last().spawn(tcpdump.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut said = BufReader::new(tcpdump.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("listening on")), "tcpdump did not begin");
    let receiver = receive(hosts.last(), &DatagramEndpoint::Eth(eth(there, 0x1234)));
    let words = b"Bywash carries data around what only costs time.";
    send(hosts.first(), &DatagramEndpoint::Eth(eth_to(here, there, 0x1234)), words).result.unwrap();
    assert_eq!(receiver.end().data, words);
    let seen = String::from_utf8(tcpdump.wait_with_output().unwrap().stdout).unwrap();
    assert!(seen.contains("ethertype Unknown (0x0a0a)") || seen.contains("0x0a0a"), "{seen}");
    assert!(seen.contains(&format!("{} > {}", here.mac, there.mac)), "{seen}");
    // Bytes of magic number, version, kind, port and length.
    assert!(seen.contains("b7a5 0101 1234 0030"), "{seen}");
    assert!(seen.contains("Bywash.carries.d"), "{seen}");
}
