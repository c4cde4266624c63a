//! Interrupted transfers are told from complete ones at every kind of endpoint, by this program and by others.

use super::{BackgroundChild, connect, flow, flows, free_port, names, noise, reset, wait_for, wait_for_port};
use crate::place::{TestFolder, stderr};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

/// A receiver into `to`, where something was before.
fn receiver(place: &TestFolder, words: &[&str]) -> BackgroundChild {
    place.file("to", "old");
    BackgroundChild::flow(place, &[words, &["to"]].concat())
}

/// It has failed, said why, and kept what was there before; what came is beside it.
fn assert_not_whole(place: &TestFolder, receiver: BackgroundChild, said: &str) {
    let failed = receiver.finish();
    let told = stderr(&failed);
    assert_eq!(failed.status.code(), Some(1), "{told}");
    assert!(told.contains(said), "'{said}' is not in: {told}");
    assert_eq!(fs::read(place.path().join("to")).unwrap(), b"old", "{told}");
}

#[test]
fn both_say_whole_or_nobody_does() {
    let place = TestFolder::new();
    let from = place.file("from", noise(3 << 20));
    let socket = |name: &str| place.path().join(name).exists();
    // Both.
    let both = receiver(&place, &["unix-listen:both,whole"]);
    wait_for("the socket", || socket("both"));
    flows(&place, &["from", "unix:both,whole"]);
    both.succeeds();
    super::assert_same(&from, &place.path().join("to"));
    // The sender alone: it is not greeted, and sends nothing.
    let plain = receiver(&place, &["unix-listen:sender"]);
    wait_for("the socket", || socket("sender"));
    let refused = flow(&place, &["from", "unix:sender,whole"]);
    assert!(stderr(&refused).contains("say 'whole' at both ends"), "{}", stderr(&refused));
    assert_eq!(refused.status.code(), Some(1));
    drop(plain);
    // The receiver alone.
    let framed = receiver(&place, &["unix-listen:receiver,whole"]);
    wait_for("the socket", || socket("receiver"));
    flow(&place, &["from", "unix:receiver"]);
    assert_not_whole(&place, framed, "the peer does not say 'whole'");
    // Both send.
    let sends = BackgroundChild::flow(&place, &["from", "unix-listen:sends,whole"]);
    wait_for("the socket", || socket("sends"));
    let refused = flow(&place, &["from", "unix:sends,whole"]);
    assert!(stderr(&refused).contains("both ends send"), "{}", stderr(&refused));
    assert!(!sends.finish().status.success());
    assert!(!place.path().join("to.partial").exists(), "data came before the refusal");
}

#[test]
fn nothing_at_all_can_be_whole_too() {
    let place = TestFolder::new();
    place.file("from", "");
    for (listen, to) in [("unix-listen:s,whole", "unix:s,whole"), ("mem-listen:s", "mem:s")] {
        let receiver = receiver(&place, &[listen]);
        wait_for("the socket", || place.path().join("s").exists());
        flows(&place, &["from", to]);
        receiver.succeeds();
        assert_eq!(fs::read(place.path().join("to")).unwrap(), b"");
        let _ = fs::remove_file(place.path().join("s"));
    }
}

#[test]
fn frames_pass_a_forwarder_both_ways() {
    let place = TestFolder::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = format!("tcp:{}", server.local_addr().unwrap());
    let outer = BackgroundChild::flow(&place, &["unix-listen:s,whole", &there]);
    wait_for("the socket", || place.path().join("s").exists());
    let port = free_port();
    let inner = BackgroundChild::flow(&place, &[&format!("tcp-listen:127.0.0.1:{port}"), "unix:s,whole"]);
    wait_for_port(port);
    let mut client = connect(port);
    client.write_all(&noise(1 << 20)).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let (mut accepted, _) = server.accept().unwrap();
    let mut came = Vec::new();
    accepted.read_to_end(&mut came).unwrap();
    assert!(came == noise(1 << 20));
    accepted.write_all(&noise(2 << 20)).unwrap();
    drop(accepted);
    came.clear();
    client.read_to_end(&mut came).unwrap();
    assert!(came == noise(2 << 20));
    outer.succeeds();
    inner.succeeds();
}

#[test]
fn a_program_on_the_way_that_fails_is_no_end_for_the_peer() {
    let place = TestFolder::new();
    place.file("from", noise(1 << 20));
    let port = free_port();
    let receiver = receiver(&place, &[&format!("tcp-listen:127.0.0.1:{port}")]);
    wait_for_port(port);
    let to = format!("tcp:127.0.0.1:{port}");
    let failed = flow(&place, &["from", "exec:head -c 1000; exit 3", &to]);
    assert!(stderr(&failed).contains("ended with the status 3"), "{}", stderr(&failed));
    assert_not_whole(&place, receiver, "Connection reset");
}

#[test]
fn a_wrong_hash_is_no_end_for_a_copy_on_the_way() {
    let place = TestFolder::new();
    place.file("from", noise(1 << 20));
    let port = free_port();
    let receiver = receiver(&place, &[&format!("tcp-listen:127.0.0.1:{port}")]);
    wait_for_port(port);
    let (tee, hash) = (format!("tee:tcp:127.0.0.1:{port}"), format!("sha256:{}", "00".repeat(32)));
    let failed = flow(&place, &["--expect-hash", &hash, "from", &tee, "null:"]);
    assert!(stderr(&failed).contains("was expected"), "{}", stderr(&failed));
    assert_not_whole(&place, receiver, "Connection reset");
}

/// Netcat ends as if all were well when it is killed: its socket is closed in order.
#[test]
fn a_plain_peer_is_held_against_a_size() {
    let place = TestFolder::new();
    place.file("from", noise(1 << 20));
    for (size, said) in
        [(1 << 20, None), ((1 << 20) + 1, Some("ended after 1048576 bytes, and 1048577 were expected"))]
    {
        let port = free_port();
        let receiver =
            receiver(&place, &["--expect-size", &size.to_string(), &format!("tcp-listen:127.0.0.1:{port}")]);
        wait_for_port(port);
        super::run(place.command("sh").args(["-c", &format!("nc -N 127.0.0.1 {port} < from")]));
        match said {
            None => drop(receiver.succeeds()),
            Some(said) => assert_not_whole(&place, receiver, said),
        }
    }
    place.file("to", "old");
    let failed = flow(&place, &["--expect-size", "1M", "zero:", "to"]);
    assert!(stderr(&failed).contains("has more than the 1048576 bytes"), "{}", stderr(&failed));
    assert_eq!(names(place.path()), ["from", "to", "to.partial", "to.partial.1"]);
}

/// A client and a server, and between them a forwarder of which one side resets.
fn through(place: &TestFolder, options: &[&str], suffix: &str) -> (BackgroundChild, TcpStream, TcpStream) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free_port();
    let here = format!("tcp-listen:127.0.0.1:{port}{suffix}");
    let there = format!("tcp:{}", server.local_addr().unwrap());
    let forwarder = BackgroundChild::flow(place, &[options, &[&here, &there]].concat());
    wait_for_port(port);
    let mut client = connect(port);
    let (mut accepted, _) = server.accept().unwrap();
    let mut one = [0];
    client.write_all(b"x").unwrap();
    accepted.read_exact(&mut one).unwrap();
    accepted.write_all(b"y").unwrap();
    client.read_exact(&mut one).unwrap();
    (forwarder, client, accepted)
}

#[test]
fn a_reset_passes_a_forwarder_as_a_reset() {
    let place = TestFolder::new();
    for suffix in ["", ",fork"] {
        for via in ["splice", "buffer"] {
            for from_the_client in [true, false] {
                let (_forwarder, client, accepted) = through(&place, &["--via", via], suffix);
                let (gone, mut stays) = if from_the_client { (client, accepted) } else { (accepted, client) };
                stays.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                reset(gone);
                let error = stays.read(&mut [0]).expect_err("a reset has become a clean end");
                assert_eq!(
                    error.kind(),
                    std::io::ErrorKind::ConnectionReset,
                    "{via}{suffix}, from the client: {from_the_client}"
                );
            }
        }
    }
}

#[test]
fn a_reset_while_the_other_direction_writes_passes_too() {
    let place = TestFolder::new();
    for suffix in ["", ",fork"] {
        for _ in 0..10 {
            let (_forwarder, client, mut accepted) = through(&place, &[], suffix);
            accepted.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            // As much as goes: the forwarder waits for room at the client's side, and hears of the reset
            // there first.
            accepted.set_nonblocking(true).unwrap();
            while accepted.write(&[7; 65536]).is_ok() {}
            accepted.set_nonblocking(false).unwrap();
            reset(client);
            let outcome = accepted.read(&mut [0]);
            assert!(outcome.is_err(), "a reset has become {outcome:?}");
        }
    }
}

#[test]
fn datagrams_that_the_kernel_drops_are_missing_unless_lossy_is_said() {
    let place = TestFolder::new();
    for (option, status) in [("", 1), (",lossy", 0)] {
        let port = free_port();
        let receiver = receiver(&place, &[&format!("udp-listen:127.0.0.1:{port},idle=1{option}")]);
        wait_for("somebody receives", || {
            let table = fs::read_to_string("/proc/net/udp").unwrap();
            table.lines().any(|line| line.contains(&format!(":{port:04X} ")))
        });
        receiver.signal("STOP");
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let datagram = noise(60_000);
        for _ in 0..1000 {
            sender.send_to(&datagram, ("127.0.0.1", port)).unwrap();
        }
        receiver.signal("CONT");
        let ended = receiver.finish();
        let said = stderr(&ended);
        assert_eq!(ended.status.code(), Some(status), "{said}");
        assert!(said.contains("dropped"), "{said}");
        let whole = fs::read(place.path().join("to")).unwrap() != b"old";
        assert_eq!(whole, status == 0);
    }
    assert_eq!(names(place.path()), ["to", "to.partial"]);
}

#[test]
fn a_part_is_gone_on_with() {
    let place = TestFolder::new();
    let data = noise(8 << 20);
    let from = place.file("from", &data);
    place.file("to", "old");
    for via in ["splice", "buffer", "copy-range", "direct"] {
        // An older part, and one that is damaged behind its third mebibyte.
        place.file("to.partial", &data[..1 << 20]);
        let mut damaged = data[..5 << 20].to_vec();
        damaged[(3 << 20) + 5000] ^= 1;
        place.file("to.partial.1", damaged);
        let resumed = flows(&place, &["--json", "--resume", "--via", via, "from", "to"]);
        assert!(stderr(&resumed).contains("to.partial.1 agrees with file:from for 3149824 bytes"));
        let json: serde_json::Value = serde_json::from_slice(&resumed.stdout).unwrap();
        assert_eq!(json["bytes"], (8 << 20) - 3_149_824, "{via}: {json}");
        super::assert_same(&from, &place.path().join("to"));
        assert_eq!(names(place.path()), ["from", "to", "to.partial"], "{via}");
        place.file("to", "old");
    }
    // A flow that fails goes on having its part.
    let again = BackgroundChild::flow(&place, &["--resume", "--rate", "4M", "from", "to"]);
    std::thread::sleep(Duration::from_millis(700));
    again.signal("KILL");
    again.finish();
    assert!(fs::metadata(place.path().join("to.partial")).unwrap().len() > 1 << 20);
    flows(&place, &["--resume", "from", "to"]);
    super::assert_same(&from, &place.path().join("to"));
    assert_eq!(names(place.path()), ["from", "to"]);
}

#[test]
fn what_is_no_part_of_the_source_is_not_gone_on_with() {
    let place = TestFolder::new();
    place.file("from", noise(1 << 20));
    place.file("to.partial", "something else");
    let refused = flow(&place, &["--resume", "from", "to"]);
    assert!(stderr(&refused).contains("to.partial is no beginning of file:from"), "{}", stderr(&refused));
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(fs::read(place.path().join("to.partial")).unwrap(), b"something else");
    for (words, said) in [
        (&["--resume", "tcp-listen:1", "to"][..], "is a stream"),
        (&["--resume", "--hash", "sha256", "from", "to"], "would not see what is there already"),
        (&["--resume", "from", "file:to,append"], "leaves no part"),
    ] {
        let refused = flow(&place, words);
        assert!(stderr(&refused).contains(said), "{words:?}: {}", stderr(&refused));
        assert_eq!(refused.status.code(), Some(125), "{words:?}");
    }
}

#[test]
fn a_peer_that_only_takes_its_time_is_waited_for() {
    let place = TestFolder::new();
    let from = place.file("from", noise(48 << 20));
    for option in ["", ",whole"] {
        let port = free_port();
        let receiver = receiver(&place, &[&format!("tcp-listen:127.0.0.1:{port}{option},timeout=3")]);
        wait_for_port(port);
        let sender =
            BackgroundChild::flow(&place, &["from", &format!("tcp:127.0.0.1:{port}{option},timeout=3")]);
        receiver.signal("STOP");
        // Longer than it may be silent: its kernel answers for it.
        std::thread::sleep(Duration::from_secs(8));
        receiver.signal("CONT");
        sender.succeeds();
        receiver.succeeds();
        super::assert_same(&from, &place.path().join("to"));
    }
}

#[test]
fn a_sender_gives_a_dead_link_up() {
    let (hosts, place) = (bywash_support::hosts::Hosts::two(bywash_support::hosts::MTU), TestFolder::new());
    place.file("from", noise(24 << 20));
    let at = format!("{}:7301", hosts.last().address());
    let receiver = hosts.last().run(|| BackgroundChild::flow(&place, &[&format!("tcp-listen:{at}"), "to"]));
    super::hosts::wait_for_socket(hosts.last(), "tcp", 7301);
    let words = ["--rate", "4M", "from", &format!("tcp:{at},timeout=3")];
    let sender = hosts.first().run(|| BackgroundChild::flow(&place, &words));
    std::thread::sleep(Duration::from_millis(700));
    // The other side's, so that nothing but silence tells this one.
    hosts.last().ip(&format!("link set {} down", hosts.last().port().interface));
    let failed = sender.finish();
    let said = stderr(&failed);
    assert!(said.contains("timed out") || said.contains("No route"), "{said}");
    assert_eq!(failed.status.code(), Some(1));
    drop(receiver);
}
