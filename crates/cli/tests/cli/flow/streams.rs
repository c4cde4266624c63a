//! Pipes, sockets, memory.

use super::{
    BackgroundChild, assert_same, connect, flow, flows, flows_in_32_mib, free_port, noise, wait_for,
    wait_for_port,
};
use crate::place::{TestFolder, stderr, stdout};
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::Stdio;

#[test]
fn through_tcp_by_every_mover() {
    let place = TestFolder::new();
    let from = place.file("from", noise((7 << 20) + 11));
    let sending: [&[&str]; 5] = [
        &["--via", "buffer"],
        &["--via", "uring"],
        &["--via", "zerocopy"],
        &["--via", "splice", "--by", "reference"],
        &["--via", "sendfile", "--by", "reference"],
    ];
    for receiving in ["splice", "buffer"] {
        for flags in sending {
            let port = free_port();
            let listen = format!("tcp-listen:127.0.0.1:{port}");
            let receiver = BackgroundChild::flow(&place, &["--via", receiving, &listen, "to"]);
            wait_for_port(port);
            flows(&place, &[flags, &["from", &format!("tcp:127.0.0.1:{port}")]].concat());
            receiver.succeeds();
            assert_same(&from, &place.path().join("to"));
        }
    }
}

#[test]
fn a_stream_takes_little_memory_whatever_its_size() {
    let place = TestFolder::new();
    let from = place.file("from", noise(40 << 20));
    for via in ["buffer", "uring", "zerocopy"] {
        let port = free_port();
        let receiver = BackgroundChild::flow(&place, &[&format!("tcp-listen:127.0.0.1:{port}"), "to"]);
        wait_for_port(port);
        flows_in_32_mib(&place, &["--via", via, "--block", "4M", "from", &format!("tcp:127.0.0.1:{port}")]);
        receiver.succeeds();
        assert_same(&from, &place.path().join("to"));
    }
}

#[test]
fn by_reference_is_asked_for() {
    let place = TestFolder::new();
    place.file("from", "x");
    let refused = flow(&place, &["--via", "sendfile", "from", "tcp:127.0.0.1:1"]);
    assert!(stderr(&refused).contains("--by reference"), "{}", stderr(&refused));
    assert_eq!(refused.status.code(), Some(125));
}

#[test]
fn through_unix_sockets_and_ipv6() {
    let place = TestFolder::new();
    let from = place.file("from", noise(3 << 20));
    let receiver = BackgroundChild::flow(&place, &["unix-listen:socket", "to"]);
    wait_for("the socket", || place.path().join("socket").exists());
    flows(&place, &["from", "unix:socket"]);
    receiver.succeeds();
    assert_same(&from, &place.path().join("to"));
    assert!(!place.path().join("socket").exists(), "the name goes with its listener");
    let port = free_port();
    let receiver = BackgroundChild::flow(&place, &[&format!("tcp-listen:[::1]:{port}"), "to6"]);
    wait_for_port(port);
    flows(&place, &["from", &format!("tcp:[::1]:{port}")]);
    receiver.succeeds();
    assert_same(&from, &place.path().join("to6"));
}

#[test]
fn through_memory() {
    let place = TestFolder::new();
    let from = place.file("from", noise((30 << 20) + 1));
    let receiver = BackgroundChild::flow(&place, &["mem-listen:path", "to"]);
    wait_for("the path", || place.path().join("path").exists());
    flows(&place, &["from", "mem:path"]);
    receiver.succeeds();
    assert_same(&from, &place.path().join("to"));
}

#[test]
fn a_forwarder_moves_both_ways() {
    let place = TestFolder::new();
    for via in ["splice", "buffer"] {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free_port();
        let (here, there) =
            (format!("tcp-listen:127.0.0.1:{port}"), format!("tcp:{}", server.local_addr().unwrap()));
        let forwarder = BackgroundChild::flow(&place, &["--via", via, &here, &there]);
        wait_for_port(port);
        let mut client = connect(port);
        let (mut accepted, _) = server.accept().unwrap();
        let (question, answer) = (noise(1 << 20), noise(3 << 20));
        let asked = question.clone();
        let answers = std::thread::spawn(move || {
            let mut came = Vec::new();
            accepted.read_to_end(&mut came).unwrap();
            accepted.write_all(&answer).unwrap();
            came == asked
        });
        client.write_all(&question).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut came = Vec::new();
        client.read_to_end(&mut came).unwrap();
        assert!(came == noise(3 << 20) && answers.join().unwrap(), "{via}");
        forwarder.succeeds();
    }
}

#[test]
fn one_way_is_one_way() {
    let place = TestFolder::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free_port();
    let (here, there) =
        (format!("tcp-listen:127.0.0.1:{port}"), format!("tcp:{}", server.local_addr().unwrap()));
    let forwarder = BackgroundChild::flow(&place, &["--one-way", &here, &there]);
    wait_for_port(port);
    let mut client = connect(port);
    let (mut accepted, _) = server.accept().unwrap();
    client.write_all(b"there").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut came = Vec::new();
    accepted.read_to_end(&mut came).unwrap();
    assert_eq!(came, b"there");
    forwarder.succeeds();
}

#[test]
fn pipes_of_every_kind() {
    let place = TestFolder::new();
    let data = noise(2 << 20);
    let from = place.file("from", &data);
    // Without a name.
    let mut command = place.bywash(&["flow", "-q", "-", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut feed = child.stdin.take().unwrap();
    let fed = data.clone();
    let feeding = std::thread::spawn(move || feed.write_all(&fed).unwrap());
    assert!(child.wait_with_output().unwrap().stdout == data);
    feeding.join().unwrap();
    // With one, whoever comes first.
    for reader_first in [true, false] {
        super::run(place.command("mkfifo").arg("fifo"));
        let write: &[&str] = &["from", "fifo"];
        let read: &[&str] = &["fifo", "to"];
        let (first, second) = if reader_first { (read, write) } else { (write, read) };
        let first = BackgroundChild::flow(&place, first);
        std::thread::sleep(std::time::Duration::from_millis(50));
        flows(&place, second);
        first.succeeds();
        assert_same(&from, &place.path().join("to"));
        fs::remove_file(place.path().join("fifo")).unwrap();
    }
}

#[test]
fn a_reader_that_has_enough_is_an_error_that_says_so() {
    let place = TestFolder::new();
    let script = format!(
        "'{}' flow zero: - | head -c 5 | wc -c; echo ${{PIPESTATUS[0]}}",
        crate::place::bywash().display()
    );
    let output = place.command("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(stdout(&output), "5\n1\n");
    assert!(
        stderr(&output).contains("write -: Broken pipe") || stderr(&output).contains("Broken pipe"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_is_made_up() {
    let place = TestFolder::new();
    flows(&place, &["--limit", "3M", "zero:", "zeros"]);
    assert!(fs::read(place.path().join("zeros")).unwrap() == vec![0; 3 << 20]);
    for name in ["one", "other"] {
        flows(&place, &["--limit", "1M", "random:,seed=5", name]);
    }
    assert_same(&place.path().join("one"), &place.path().join("other"));
    flows(&place, &["one", "null:"]);
}

#[test]
fn a_rate_is_kept() {
    let place = TestFolder::new();
    let begin = std::time::Instant::now();
    flows(&place, &["--rate", "2M", "--limit", "1M", "zero:", "null:"]);
    flows(&place, &["--limit", "1M", "zero:", "rate:2M", "to"]);
    assert!(begin.elapsed().as_secs_f64() > 0.75, "{:?}", begin.elapsed());
}

/// A receiver over QUIC at a port of its own; answers what `pin=` must say.
fn reliable_receiver(place: &TestFolder, port: u16) -> (BackgroundChild, String) {
    let listen = format!("udp-listen:127.0.0.1:{port},reliable");
    let mut receiver = BackgroundChild::flow(place, &[&listen, "to"]);
    let mut line = String::new();
    let mut lines = std::io::BufReader::new(receiver.0.stderr.as_mut().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    let pin = line.rsplit_once("pin=").unwrap_or_else(|| panic!("{line}")).1.trim().to_owned();
    (receiver, pin)
}

#[test]
fn through_quic_with_the_fingerprint_that_was_told() {
    let place = TestFolder::new();
    let from = place.file("from", noise((9 << 20) + 1));
    let port = free_port();
    let (receiver, pin) = reliable_receiver(&place, port);
    flows(&place, &["from", &format!("udp:127.0.0.1:{port},reliable,pin={pin}")]);
    receiver.succeeds();
    assert_same(&from, &place.path().join("to"));
}

#[test]
fn through_quic_only_to_whom_it_should_go() {
    let place = TestFolder::new();
    place.file("from", noise(1 << 20));
    let port = free_port();
    let (_receiver, _) = reliable_receiver(&place, port);
    let other = format!("udp:127.0.0.1:{port},reliable,pin={}", "00".repeat(32));
    let refused = flow(&place, &["from", &other]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    let unsaid = flow(&place, &["from", &format!("udp:127.0.0.1:{port},reliable")]);
    assert!(stderr(&unsaid).contains("pin=HEX") && unsaid.status.code() == Some(125), "{}", stderr(&unsaid));
    assert!(!place.path().join("to").exists());
}

#[test]
fn a_forwarder_that_forks_serves_many_at_once() {
    let place = TestFolder::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        for accepted in server.incoming() {
            let mut accepted = accepted.unwrap();
            std::thread::spawn(move || {
                let mut came = Vec::new();
                accepted.read_to_end(&mut came).unwrap();
                accepted.write_all(&came).unwrap();
            });
        }
    });
    let port = free_port();
    let mut command = place.command("env");
    command.arg("--default-signal").arg(crate::place::bywash()).arg("flow");
    command.args([format!("tcp-listen:127.0.0.1:{port},fork"), format!("tcp:{address}")]);
    let forwarder = BackgroundChild::start(&mut command);
    wait_for_port(port);
    let clients: Vec<_> = (0..20).map(|number| (number, connect(port))).collect();
    for (number, mut client) in clients {
        let asked = noise(100_000 + number);
        client.write_all(&asked).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut came = Vec::new();
        client.read_to_end(&mut came).unwrap();
        assert!(came == asked);
    }
    forwarder.signal("INT");
    let ended = forwarder.finish();
    assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("20 connections, 0 failed"), "{}", stderr(&ended));
    let refused = flow(&place, &[&format!("tcp-listen:127.0.0.1:{port},fork"), "to"]);
    assert!(stderr(&refused).contains("append to it"), "{}", stderr(&refused));
}
