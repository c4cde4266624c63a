//! Everything that can go wrong: nothing that is not whole looks as if it were.

use super::{
    BackgroundChild, Mounted, connect, flow, free_port, names, noise, reset, wait_for, wait_for_port,
};
use crate::place::{TestFolder, stderr};
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[test]
fn a_full_disk() {
    let full = Mounted::make("ext4", 8 << 20);
    full.place.file("from", noise(16 << 20));
    let folder = full.path();
    for mover in ["splice", "sendfile", "buffer", "dontcache", "direct"] {
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
    let place = TestFolder::new();
    for mover in ["splice", "copy-range", "sendfile", "buffer", "dontcache", "direct"] {
        let from = place.file("from", noise(8 << 20));
        let copying = BackgroundChild::flow(&place, &["--rate", "8M", "--via", mover, "from", "to"]);
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
    let place = TestFolder::new();
    let from = place.file("from", noise(4 << 20));
    let copying = BackgroundChild::flow(&place, &["--rate", "8M", "from", "to"]);
    std::thread::sleep(std::time::Duration::from_millis(200));
    fs::OpenOptions::new().append(true).open(&from).unwrap().write_all(b"more").unwrap();
    copying.succeeds();
    assert!(fs::read(place.path().join("to")).unwrap() == noise(4 << 20));
}

#[test]
fn a_signal_ends_it_in_good_order() {
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let place = TestFolder::new();
        place.file("from", noise(8 << 20));
        let copying = BackgroundChild::start(
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
    let place = TestFolder::new();
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
        let waiting = BackgroundChild::start(&mut command);
        std::thread::sleep(std::time::Duration::from_millis(300));
        waiting.signal("INT");
        let ended = waiting.finish();
        assert_eq!(ended.status.code(), Some(130), "{words:?}: {}", stderr(&ended));
        for left in ["to", "u", "m"] {
            assert!(!place.path().join(left).exists(), "{words:?} leaves {left}");
        }
    }
}

/// The name goes in whichever way the flow ends; the socket of another program that has taken it since stays.
#[test]
fn a_listening_socket_goes_with_its_flow_and_no_other_does() {
    let place = TestFolder::new();
    place.file("from", "x");
    for (kind, connects, socket_type) in [("mem", "mem:s", "5"), ("unix", "unix:s", "1")] {
        let listens = format!("{kind}-listen:s");
        let there = || place.path().join("s").exists();
        let listening = || {
            let flow = BackgroundChild::flow(&place, &[&listens, "to"]);
            super::wait_for("it listens", there);
            flow
        };
        let receiver = listening();
        super::wait_for("it is let in", || flow(&place, &["from", connects]).status.success());
        receiver.succeeds();
        assert!(!there(), "{listens} after a success");
        // A peer that says what no peer of a path says.
        let receiver = listening();
        let mut stranger = place.command("socat");
        stranger.args(["-u", "OPEN:from", &format!("UNIX-CONNECT:s,type={socket_type}")]);
        super::wait_for("somebody is let in", || stranger.output().unwrap().status.success());
        assert_eq!(receiver.finish().status.success(), kind == "unix");
        assert!(!there(), "{listens} after a stranger");
        let receiver = listening();
        fs::remove_file(place.path().join("s")).unwrap();
        let newer = BackgroundChild::start(place.command("socat").args([
            "-u",
            &format!("UNIX-LISTEN:s,type={socket_type}"),
            "OPEN:/dev/null",
        ]));
        super::wait_for("the newer one listens", there);
        receiver.signal("TERM");
        assert_eq!(receiver.finish().status.code(), Some(143));
        assert!(there(), "{listens} removed somebody else's socket");
        drop(newer);
        fs::remove_file(place.path().join("s")).unwrap();
    }
}

#[test]
fn a_second_signal_soon_after_the_first_is_the_same_wish() {
    let place = TestFolder::new();
    place.file("from", noise(8 << 20));
    // timeout(1) tells its child and then its group, which the child is in too.
    let mut bounded = place.command("timeout");
    bounded.args(["0.5"]).arg(crate::place::bywash()).args(["flow", "--rate", "2M", "from", "to"]);
    let ended = BackgroundChild::start(&mut bounded).finish();
    assert_eq!(ended.status.code(), Some(124), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("kept as to.partial"), "{}", stderr(&ended));
    let partial = fs::read(place.path().join("to.partial")).unwrap();
    assert!(!partial.is_empty() && noise(8 << 20).starts_with(&partial));
    // Six in a row, sooner than anybody could look at the first.
    let copying = BackgroundChild::flow(&place, &["--rate", "2M", "from", "again"]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    for signal in ["TERM", "INT", "HUP", "TERM", "TERM", "INT"] {
        let pid = copying.0.id().to_string();
        // It may have ended by now.
        let _ = std::process::Command::new("kill").args(["-s", signal, &pid]).output().unwrap();
    }
    let ended = copying.finish();
    assert!(ended.status.code().is_some_and(|code| code > 128), "{}", stderr(&ended));
    assert!(place.path().join("again.partial").exists(), "{}", stderr(&ended));
}

/// Runs a script by `sh`, in which `$0` is the command.
fn shell(place: &TestFolder, script: &str) -> std::process::Output {
    place.command("sh").args(["-c", script]).arg(crate::place::bywash()).output().unwrap()
}

#[test]
fn standard_error_that_is_closed_or_full_changes_nothing() {
    let place = TestFolder::new();
    let from = place.file("from", noise(3 << 20));
    for stderr in ["2>&-", "2>/dev/full", "2>&- 0<&-", "0<&- 1>&- 2>&-"] {
        for (flags, to) in [("", "to"), ("--progress", "file:to,in-place"), ("--via buffer", "to")] {
            place.file("to", "old");
            let done = shell(&place, &format!("\"$0\" flow {flags} from {to} {stderr}"));
            assert_eq!(done.status.code(), Some(0), "{flags} {stderr}");
            super::assert_same(&from, &place.path().join("to"));
        }
        for (words, code) in
            [("flow missing to", 1), ("flow from x:y", 125), ("volume list --socket /none", 125)]
        {
            let failed = shell(&place, &format!("\"$0\" {words} {stderr}"));
            assert_eq!(failed.status.code(), Some(code), "{words} {stderr}");
        }
    }
    // A descriptor that is closed is not taken for one that takes everything.
    let lost = shell(&place, "\"$0\" flow from - >&-");
    assert_eq!(lost.status.code(), Some(1), "{}", stderr(&lost));
    let nothing = shell(&place, "\"$0\" flow - new <&-");
    assert_eq!(nothing.status.code(), Some(1), "{}", stderr(&nothing));
    assert!(!place.path().join("new").exists());
    let full = shell(&place, "\"$0\" flow --json from to >/dev/full");
    assert!(stderr(&full).contains("cannot write the report"), "{}", stderr(&full));
}

#[test]
fn what_fails_is_told_as_json_too() {
    let place = TestFolder::new();
    place.file("from", noise(100));
    for (words, code, said) in [
        (vec!["missing", "to"], 1, "open file:missing"),
        (vec!["from", "nowhere/to"], 1, "in the folder nowhere"),
        (vec!["from", "x:y"], 125, "no endpoint of the kind"),
        (vec!["--via", "zerocopy", "from", "to"], 125, "sends into sockets alone"),
        (vec!["--explain", "missing", "to"], 1, "open file:missing"),
        (vec!["from", "tcp:127.0.0.1:1"], 1, "refused"),
    ] {
        let failed = flow(&place, &[&["--json"], &words[..]].concat());
        assert_eq!(failed.status.code(), Some(code), "{words:?}: {}", stderr(&failed));
        let told: serde_json::Value =
            serde_json::from_slice(&failed.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        assert!(told["error"].as_str().unwrap().contains(said), "{words:?}: {told}");
        assert_eq!(told["whole"], false, "{words:?}: {told}");
        assert!(stderr(&failed).contains(said), "{words:?}: {}", stderr(&failed));
    }
}

#[test]
fn kill_9_leaves_nothing() {
    let place = TestFolder::new();
    place.file("from", noise(8 << 20));
    place.file("to", "old");
    let mut copying = BackgroundChild::flow(&place, &["--rate", "4M", "from", "to"]);
    std::thread::sleep(std::time::Duration::from_millis(300));
    copying.0.kill().unwrap();
    copying.0.wait().unwrap();
    assert_eq!(names(place.path()), ["from", "to"]);
    assert_eq!(fs::read(place.path().join("to")).unwrap(), b"old");
}

#[test]
fn a_peer_that_dies_in_the_middle() {
    let place = TestFolder::new();
    // Who sends: the connection is reset, and what came is no file.
    let port = free_port();
    let receiver = BackgroundChild::flow(&place, &[&format!("tcp-listen:127.0.0.1:{port}"), "to"]);
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
    let sender = BackgroundChild::flow(&place, &["from", &format!("tcp:{}", server.local_addr().unwrap())]);
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

#[test]
fn a_program_with_the_library_that_dies() {
    let place = TestFolder::new();
    let receiver = BackgroundChild::flow(&place, &["mem-listen:path", "to"]);
    wait_for("the path", || place.path().join("path").exists());
    place.file("from", noise(8 << 20));
    let mut sender = BackgroundChild::flow(&place, &["--rate", "4M", "from", "mem:path"]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    sender.0.kill().unwrap();
    sender.0.wait().unwrap();
    let failed = receiver.finish();
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    assert!(!place.path().join("to").exists());
}

#[test]
fn a_name_that_cannot_be_taken_is_refused_before_anybody_is_waited_for() {
    let mounted = Mounted::make("ext4", 8 << 20);
    let folder = mounted.path();
    fs::write(format!("{folder}/fixed"), "old").unwrap();
    fs::create_dir(format!("{folder}/own")).unwrap();
    super::run(mounted.place.command("chattr").args(["+i", &format!("{folder}/fixed")]));
    let listen = format!("tcp-listen:127.0.0.1:{}", free_port());
    for (to, said) in [
        ("nowhere/to".into(), "in the folder nowhere"),
        ("new/".into(), "is no folder yet: make it"),
        (format!("{folder}/fixed"), "immutable"),
    ] {
        let refused = flow(&mounted.place, &[&listen, &to]);
        assert!(stderr(&refused).contains(said), "{to}: {}", stderr(&refused));
    }
    super::run(mounted.place.command("chattr").args(["-i", &format!("{folder}/fixed")]));
}

#[test]
fn what_has_arrived_is_kept_when_its_folder_goes_meanwhile() {
    let place = TestFolder::new();
    place.file("from", noise(4 << 20));
    fs::create_dir(place.path().join("folder")).unwrap();
    let copying = BackgroundChild::flow(&place, &["--rate", "8M", "from", "folder/to"]);
    std::thread::sleep(std::time::Duration::from_millis(200));
    fs::remove_dir(place.path().join("folder")).unwrap();
    let failed = copying.finish();
    assert!(stderr(&failed).contains("everything has arrived, and is kept as"), "{}", stderr(&failed));
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(names(place.path()), ["from", "to.complete"]);
    super::assert_same(&place.path().join("from"), &place.path().join("to.complete"));
}

#[test]
fn who_cannot_be_reached_is_named() {
    let place = TestFolder::new();
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

/// The commands that the message names do what was meant.
#[test]
fn several_sources_and_trees_are_refused_with_commands_that_work() {
    let place = TestFolder::new();
    for file in ["a", "b c", "-d", "tree/leaf", "to/x"] {
        fs::create_dir_all(place.path().join(file).parent().unwrap()).unwrap();
        place.file(file, file);
    }
    let tree = ["tree/leaf"].as_slice();
    let packed = "tar -xf to.tar";
    for (words, unpack, made) in [
        (vec!["a", "b c", "./-d", "to/"], ":", ["to/a", "to/b c", "to/-d"].as_slice()),
        (vec!["a", "limit:9", "b c", "to"], ":", &["to/a", "to/b c"]),
        (vec!["a", "tree", "to"], ":", &["to/a", "to/tree/leaf"]),
        (vec!["a", "b c", "to.tar"], packed, &["a", "b c"]),
        (vec!["tree", "to"], "mv to/tree .", tree),
        (vec!["tree", "new"], "mv new tree", tree),
        (vec!["tree", "to/x"], "tar -xf to/x", tree),
        (vec!["tree", "-"], "tar -xf out", tree),
    ] {
        let refused = flow(&place, &words);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(125), "{words:?}: {said}");
        let line = said.lines().next().unwrap();
        let (_, remedy) = line.split_once("; ").unwrap();
        let command = remedy.split_once(": ").unwrap().1.split("; or ").next().unwrap();
        let bywash = crate::place::bywash();
        let mut shell = place.command("sh");
        let script = format!("bywash() {{ '{}' \"$@\"; }}; {{ {command}; }} > out", bywash.display());
        super::run(shell.args(["-c", &script]));
        if unpack != ":" {
            for gone in made {
                fs::remove_file(place.path().join(gone)).unwrap();
            }
            let _ = fs::remove_dir(place.path().join("tree"));
            super::run(place.command("sh").args(["-c", unpack]));
        }
        for file in made {
            let name = Path::new(file).strip_prefix("to").unwrap_or(Path::new(file));
            assert_eq!(
                fs::read(place.path().join(file)).unwrap(),
                name.to_str().unwrap().as_bytes(),
                "{command}"
            );
            if file.starts_with("to/") {
                fs::remove_file(place.path().join(file)).unwrap();
            }
        }
    }
    // A word that is the name of nothing is a stage that was misspelt.
    let misspelt = flow(&place, &["a", "hsh:sha256", "to"]);
    assert!(stderr(&misspelt).contains("no stage of the kind 'hsh'"), "{}", stderr(&misspelt));
}

/// Bytes of Latin-1, as old archives and cameras leave them.
#[test]
fn names_that_are_not_utf_8() {
    let place = TestFolder::new();
    let named = |bytes: &[u8]| place.path().join(std::ffi::OsStr::from_bytes(bytes));
    fs::write(named(b"caf\xe9"), b"x").unwrap();
    fs::create_dir(named(b"d\xe9p\xf4t")).unwrap();
    let words: [&[&[u8]]; 5] = [
        &[b"caf\xe9", b"\xff"],
        &[b"file:caf\xe9,offset=0", b"tee:\xfe", b"file:\xfd\\,,excl"],
        &[b"caf\xe9", b"d\xe9p\xf4t"],
        &[b"caf\xe9", b"file:plain,mode=0600"],
        &[b"--json", b"caf\xe9", b"\xfc"],
    ];
    for words in words {
        let output =
            place.bywash(&["flow"]).args(words.iter().map(|word| std::ffi::OsStr::from_bytes(word))).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    for made in [b"\xff".as_slice(), b"\xfe", b"\xfd,", b"d\xe9p\xf4t/caf\xe9", b"plain", b"\xfc"] {
        assert_eq!(fs::read(named(made)).unwrap(), b"x", "{}", String::from_utf8_lossy(made));
    }
    let missing =
        place.bywash(&["flow"]).arg(std::ffi::OsStr::from_bytes(b"no\xe9")).arg("to").output().unwrap();
    assert!(stderr(&missing).contains("open file:no\u{fffd}"), "{}", stderr(&missing));
}

#[test]
fn wrong_usage_is_told_apart() {
    let place = TestFolder::new();
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
