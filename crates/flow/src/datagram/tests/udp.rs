//! Plain UDP between endpoints of this crate, and with socat.

use super::*;
use crate::datagram::engine::Engine;
use crate::datagram::options::Rate;
use crate::datagram::socket::{BUFFER_BYTES, want_receive_buffer};
use bywash_support::hosts::{Hosts, MTU};
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Instant;

const ENGINES: [Engine; 3] = [Engine::Single, Engine::Batch, Engine::Offload];
/// Rate that a busy machine can receive with a default buffer, in bytes a second.
const SLOW: Rate = Rate::Fixed(20_000_000);
const IDLE: Option<Duration> = Some(Duration::from_millis(400));

fn plain(port: &Port, number: u16) -> UdpOptions {
    UdpOptions { sequenced: false, idle: IDLE, rate: SLOW, ..udp(port, number) }
}

#[test]
fn a_stream_passes_by_every_pair_of_engines() {
    let hosts = Hosts::two(MTU);
    let data = data(2_000_003, 1);
    for sending in ENGINES {
        for receiving in ENGINES {
            let there = plain(hosts.last().port(), 7001);
            let receiver = receive(
                hosts.last(),
                &DatagramEndpoint::Udp(UdpOptions { engine: Some(receiving), ..there.clone() }),
            );
            let sender = send(
                hosts.first(),
                &DatagramEndpoint::Udp(UdpOptions { engine: Some(sending), ..there }),
                &data,
            );
            sender.result.unwrap();
            let received = receiver.end();
            received.result.unwrap();
            assert_same(&received.data, &data);
            assert_eq!(sender.account.engine, Some(sending));
            assert_eq!(received.account.engine, Some(receiving));
            assert_eq!(sender.account.packets_sent, received.account.packets_received);
            assert_eq!((received.account.bytes_received, received.account.kernel_drops), (2_000_003, 0));
        }
    }
}

#[test]
fn datagrams_fit_the_way_or_are_as_asked() {
    for (mtu, size, longest) in [(1500, None, 1472), (9000, None, 8972), (1500, Some(100), 100)] {
        let hosts = Hosts::two(mtu);
        let socket = hosts.last().run(|| UdpSocket::bind((hosts.last().address(), 7002)).unwrap());
        // The datagrams wait in the buffer until all have been sent.
        want_receive_buffer(socket.as_fd(), BUFFER_BYTES).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        let place = DatagramEndpoint::Udp(UdpOptions { size, ..plain(hosts.last().port(), 7002) });
        send(hosts.first(), &place, &data(20_000, 2)).result.unwrap();
        let mut room = [0; 10_000];
        let lengths: Vec<usize> =
            (0..20_000usize.div_ceil(longest)).map(|_| arrival(&socket, &mut room).0).collect();
        let (last, others) = lengths.split_last().unwrap();
        assert!(others.iter().all(|length| *length == longest), "{lengths:?}");
        assert_eq!(others.len() * longest + last, 20_000);
    }
}

#[test]
fn version_6_passes_too() {
    let hosts = Hosts::two(MTU);
    let data = data(1_000_000, 3);
    let address = format!("[{}]:7003", hosts.last().port().address6);
    let there = DatagramEndpoint::Udp(UdpOptions { address, ..plain(hosts.last().port(), 0) });
    let receiver = receive(hosts.last(), &there);
    let sent = send(hosts.first(), &there, &data);
    sent.result.unwrap();
    assert_same(&receiver.end().data, &data);
    assert_eq!(sent.account.packets_sent, packets(1_000_000, 1452));
}

#[test]
fn an_empty_datagram_means_nothing_and_idle_ends_after_the_first() {
    let hosts = Hosts::two(MTU);
    let there = plain(hosts.last().port(), 7004);
    let receiver = receive(hosts.last(), &DatagramEndpoint::Udp(there));
    thread::sleep(2 * IDLE.unwrap());
    hosts.first().run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect((hosts.last().address(), 7004)).unwrap();
        for part in [&b"one"[..], b"", b"two"] {
            socket.send(part).unwrap();
        }
    });
    let begin = Instant::now();
    assert_eq!(receiver.end().data, b"onetwo");
    assert!(begin.elapsed() >= IDLE.unwrap() - Duration::from_millis(50));
}

#[test]
fn where_nobody_listens_the_sender_says_so() {
    let hosts = Hosts::two(MTU);
    for sequenced in [false, true] {
        let place = DatagramEndpoint::Udp(UdpOptions { sequenced, ..plain(hosts.last().port(), 7005) });
        let error = send(hosts.first(), &place, &data(1_000_000, 4)).result.unwrap_err().to_string();
        assert!(error.contains("udp:10.77.1.2:7005") && error.contains("nobody listens"), "{error}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let hosts = Hosts::two(MTU);
    let good = plain(hosts.last().port(), 7006);
    let cases = [
        (UdpOptions { address: "10.77.1.2".into(), ..good.clone() }, "udp:10.77.1.2"),
        (UdpOptions { size: Some(0), ..good.clone() }, "size=0"),
        (UdpOptions { size: Some(70_000), ..good.clone() }, "size=70000"),
        (UdpOptions { engine: Some(Engine::Ring), ..good.clone() }, "rings are for Ethernet"),
        (UdpOptions { rate: Rate::Auto, ..good.clone() }, "sequenced"),
        (UdpOptions { address: "192.0.2.1:9".into(), ..good.clone() }, "192.0.2.1:9"),
    ];
    for (options, words) in cases {
        let error =
            send(hosts.first(), &DatagramEndpoint::Udp(options), b"x").result.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let taken = DatagramEndpoint::Udp(good);
    let _first = receive(hosts.last(), &taken);
    let error = hosts.last().run(|| open_input(&taken, Ledger::default()).err().unwrap()).to_string();
    assert!(error.contains("listen at udp-listen:10.77.1.2:7006"), "{error}");
}

#[test]
fn a_receiver_that_waits_can_be_cancelled() {
    let hosts = Hosts::two(MTU);
    for sequenced in [false, true] {
        let place = DatagramEndpoint::Udp(UdpOptions { sequenced, ..plain(hosts.last().port(), 7007) });
        let receiver = receive(hosts.last(), &place);
        thread::sleep(Duration::from_millis(20));
        assert!(matches!(receiver.stop().result, Err(Error::Cancelled)));
    }
}

#[test]
fn to_socat_and_from_socat() {
    let hosts = Hosts::two(MTU);
    let data = data(300_000, 5);
    let there = plain(hosts.last().port(), 7008);

    let mut socat = Command::new("socat");
    socat.args(["-u", "-T", "2", "UDP-RECV:7008,rcvbuf=4000000", "-"]).stdout(Stdio::piped());
    let socat = hosts.last().spawn(&mut socat);
    wait_until_bound(hosts.last(), 7008);
    send(hosts.first(), &DatagramEndpoint::Udp(there.clone()), &data).result.unwrap();
    assert_same(&socat.wait_with_output().unwrap().stdout, &data);

    let receiver = receive(hosts.last(), &DatagramEndpoint::Udp(there));
    let mut socat = Command::new("socat");
    socat.args(["-u", "-b", "1400", "-", "UDP-SENDTO:10.77.1.2:7008"]).stdin(Stdio::piped());
    let mut socat = hosts.first().spawn(&mut socat);
    socat.stdin.take().unwrap().write_all(&data).unwrap();
    assert!(socat.wait().unwrap().success());
    assert_same(&receiver.end().data, &data);
}

/// Waits until a program listens at a UDP port. An attempt to bind it would take the port from the program.
fn wait_until_bound(host: &Host, port: u16) {
    let (begin, local) = (Instant::now(), format!(":{port:04X} 00000000:0000"));
    while !host.run(|| std::fs::read_to_string("/proc/thread-self/net/udp").unwrap()).contains(&local) {
        assert!(begin.elapsed() < SOON, "nobody listens at port {port}");
        thread::sleep(Duration::from_millis(5));
    }
}
