//! Everything that can go wrong: nothing that is not whole looks as if it were.

use super::{Beside, Mounted, connect, flow, free_port, names, noise, wait_for, wait_for_port};
use crate::place::{Place, stderr};
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;

#[test]
fn a_full_disk() {
    let full = Mounted::make("ext4", 8 << 20);
    full.place.file("from", noise(16 << 20));
    let folder = full.path();
    for mover in ["splice", "sendfile", "buffer", "mapped", "dontcache", "direct"] {
        let failed = flow(&full.place, &["--via", mover, "from", &format!("{folder}/to")]);
        assert_eq!(failed.status.code(), Some(1));
        let said = stderr(&failed);
        assert!(said.contains(&format!("write file:{folder}/to: No space left")), "{mover}: {said}");
        assert_eq!(names(folder.as_ref()), ["lost+found"], "{mover} leaves something behind");
    }
    // What was there stays.
    fs::write(format!("{folder}/to"), "old").unwrap();
    let failed = flow(&full.place, &["from", &format!("{folder}/to")]);
    assert!(!failed.status.success());
    assert_eq!(fs::read(format!("{folder}/to")).unwrap(), b"old");
}

#[test]
fn a_source_that_gets_shorter() {
    let place = Place::new();
    for mover in ["splice", "copy-range", "sendfile", "buffer", "mapped", "dontcache", "direct"] {
        let from = place.file("from", noise(8 << 20));
        let copying = Beside::flow(&place, &["--rate", "8M", "--via", mover, "from", "to"]);
        std::thread::sleep(std::time::Duration::from_millis(300));
        fs::OpenOptions::new().write(true).open(&from).unwrap().set_len(1000).unwrap();
        let failed = copying.finish();
        let said = stderr(&failed);
        assert!(said.contains("got shorter while it was read"), "{mover}: {said}");
        assert_eq!(failed.status.code(), Some(1));
        assert_eq!(names(place.path()), ["from", "to.partial"], "{mover}");
        fs::remove_file(place.path().join("to.partial")).unwrap();
    }
}

#[test]
fn a_source_that_gets_longer_is_copied_as_it_was() {
    let place = Place::new();
    let from = place.file("from", noise(4 << 20));
    let copying = Beside::flow(&place, &["--rate", "8M", "from", "to"]);
    std::thread::sleep(std::time::Duration::from_millis(200));
    fs::OpenOptions::new().append(true).open(&from).unwrap().write_all(b"more").unwrap();
    copying.succeeds();
    assert!(fs::read(place.path().join("to")).unwrap() == noise(4 << 20));
}

#[test]
fn a_signal_ends_it_in_good_order() {
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let place = Place::new();
        place.file("from", noise(8 << 20));
        let copying = Beside::start(
            place
                .command("env")
                .arg("--default-signal")
                .arg(crate::place::bywash())
                .args(["flow", "--rate", "4M", "from", "to"]),
        );
        std::thread::sleep(std::time::Duration::from_millis(500));
        copying.signal(signal);
        let ended = copying.finish();
        let said = stderr(&ended);
        assert!(said.contains("ended by a signal") && said.contains("to.partial"), "{said}");
        assert_eq!(ended.status.code(), Some(status));
        assert_eq!(names(place.path()), ["from", "to.partial"]);
        let partial = fs::read(place.path().join("to.partial")).unwrap();
        assert!(!partial.is_empty() && noise(8 << 20).starts_with(&partial));
    }
}

#[test]
fn a_signal_ends_every_wait() {
    let place = Place::new();
    super::run(place.command("mkfifo").arg("fifo"));
    place.file("from", "x");
    let port = free_port();
    let listening = format!("tcp-listen:127.0.0.1:{port}");
    let nobody = format!("unix-listen:{}", place.path().join("u").display());
    let waits: [&[&str]; 6] = [
        &[&listening, "to"],
        &[&nobody, "to"],
        &["mem-listen:m", "to"],
        &["fifo", "to"],
        &["from", "fifo"],
        &["from", "exec:sleep 100", "to"],
    ];
    for words in waits {
        let mut command = place.command("env");
        command.arg("--default-signal").arg(crate::place::bywash()).arg("flow").args(words);
        let waiting = Beside::start(&mut command);
        std::thread::sleep(std::time::Duration::from_millis(300));
        waiting.signal("INT");
        let ended = waiting.finish();
        assert_eq!(ended.status.code(), Some(130), "{words:?}: {}", stderr(&ended));
        assert!(!place.path().join("to").exists(), "{words:?}");
    }
}

#[test]
fn kill_9_leaves_nothing() {
    let place = Place::new();
    place.file("from", noise(8 << 20));
    place.file("to", "old");
    let mut copying = Beside::flow(&place, &["--rate", "4M", "from", "to"]);
    std::thread::sleep(std::time::Duration::from_millis(300));
    copying.0.kill().unwrap();
    copying.0.wait().unwrap();
    assert_eq!(names(place.path()), ["from", "to"]);
    assert_eq!(fs::read(place.path().join("to")).unwrap(), b"old");
}

#[test]
fn a_peer_that_dies_in_the_middle() {
    let place = Place::new();
    // Who sends: the connection is reset, and what came is no file.
    let port = free_port();
    let receiver = Beside::flow(&place, &[&format!("tcp-listen:127.0.0.1:{port}"), "to"]);
    wait_for_port(port);
    let mut sender = connect(port);
    sender.write_all(&noise(1 << 20)).unwrap();
    wait_for("it has come", || unread(&sender) == 0);
    reset(sender);
    let failed = receiver.finish();
    assert!(stderr(&failed).contains("Connection reset"), "{}", stderr(&failed));
    assert_eq!(names(place.path()), ["to.partial"]);
    // Who receives.
    place.file("from", noise(32 << 20));
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = Beside::flow(&place, &["from", &format!("tcp:{}", server.local_addr().unwrap())]);
    let (accepted, _) = server.accept().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    reset(accepted);
    let failed = sender.finish();
    let said = stderr(&failed);
    assert!(said.contains("Connection reset") || said.contains("Broken pipe"), "{said}");
    assert_eq!(failed.status.code(), Some(1));
}

/// Bytes that the peer's kernel has not acknowledged.
fn unread(socket: &std::net::TcpStream) -> u32 {
    let number = socket.as_raw_fd();
    let table = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
    assert!(!table.is_empty());
    // The queue of what is on its way is the first half of the fifth field of /proc/net/tcp.
    let local = format!(":{:04X}", socket.local_addr().unwrap().port());
    let lines = fs::read_to_string("/proc/net/tcp").unwrap();
    let queue = lines.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let here = fields.get(1)?;
        here.ends_with(&local).then(|| u32::from_str_radix(fields[4].split(':').next()?, 16).ok())?
    });
    queue.unwrap_or(0)
}

/// Closes a connection without a goodbye.
fn reset(socket: std::net::TcpStream) {
    rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO)).unwrap();
}

#[test]
fn a_program_with_the_library_that_dies() {
    let place = Place::new();
    let receiver = Beside::flow(&place, &["mem-listen:path", "to"]);
    wait_for("the path", || place.path().join("path").exists());
    place.file("from", noise(8 << 20));
    let mut sender = Beside::flow(&place, &["--rate", "4M", "from", "mem:path"]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    sender.0.kill().unwrap();
    sender.0.wait().unwrap();
    let failed = receiver.finish();
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    assert!(!place.path().join("to").exists());
}

#[test]
fn who_cannot_be_reached_is_named() {
    let place = Place::new();
    place.file("from", "x");
    for (words, said) in [
        (["from", "tcp:127.0.0.1:1"], "connect to tcp:127.0.0.1:1"),
        (["from", "unix:nobody"], "connect to unix:nobody"),
        (["from", "mem:nobody"], "mem:nobody"),
        (["from", "tcp:no-such-host.invalid:80"], "find the address of tcp:no-such-host.invalid:80"),
        (["tcp-listen:192.0.2.1:9", "to"], "listen at tcp-listen:192.0.2.1:9"),
    ] {
        let failed = flow(&place, &words);
        assert!(stderr(&failed).contains(said), "{words:?}: {}", stderr(&failed));
        assert_eq!(failed.status.code(), Some(1), "{words:?}");
    }
    assert_eq!(names(place.path()), ["from"]);
}

#[test]
fn wrong_usage_is_told_apart() {
    let place = Place::new();
    place.file("from", "x");
    for (words, said) in [
        (vec!["from"], "2 values required"),
        (vec!["from", "hash", "to"], "no stage"),
        (vec!["--via", "cp", "from", "to"], "there is no mover 'cp'"),
        (vec!["--block", "1", "from", "to"], "blocks of 1 B cannot be"),
        (vec!["null:", "to"], "null: has nothing to give"),
        (vec!["from", "zero:"], "takes nothing"),
        (vec!["udp:127.0.0.1:9", "udp:127.0.0.1:10"], "udp:127.0.0.1:9 cannot be a source"),
        (vec!["udp-listen:127.0.0.1:0", "udp-listen:127.0.0.1:10"], "cannot be a sink"),
    ] {
        let failed = flow(&place, &words);
        assert!(stderr(&failed).contains(said), "{words:?}: {}", stderr(&failed));
        assert_eq!(failed.status.code(), Some(125), "{words:?}");
    }
}
