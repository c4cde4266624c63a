//! `bywash serve`, `bywash volume`, `bywash serve status`: a server as its users have it.

use crate::place::{TestFolder, bywash, stderr, stdout};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Timeout of everything in these tests.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A server; it is killed with the test.
pub struct Serving {
    child: Child,
    /// Lines that the server printed before it served.
    pub said: String,
}

impl Serving {
    pub fn start(place: &TestFolder, arguments: &[&str]) -> Serving {
        Serving::started(place.bywash(&["serve", "--socket", "socket"]).args(arguments))
    }

    /// `BYWASH_TEST_CORES` sets the number of the servers' cores.
    fn started(command: &mut Command) -> Serving {
        if let Some(cores) = std::env::var_os("BYWASH_TEST_CORES") {
            command.arg("--cores").arg(cores);
        }
        Serving::waited_for(command)
    }

    fn waited_for(command: &mut Command) -> Serving {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("serving at") {
            assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
        }
        Serving { child, said }
    }

    pub fn end(&mut self, signal: i32) -> Option<i32> {
        // SAFETY: a signal to a child that this test has started and not yet waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn volume(place: &TestFolder, arguments: &[&str]) -> Output {
    place.bywash(&["volume", "--socket", "socket"]).args(arguments).output().unwrap()
}

/// Runs `bywash volume` on the store, which no server has open meanwhile.
fn stored(place: &TestFolder, arguments: &[&str]) -> Output {
    place.bywash(&["volume", "--policy", "volumes"]).args(arguments).output().unwrap()
}

pub fn done(output: Output) -> String {
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

pub fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(125));
    stderr(output)
}

#[test]
fn standard_error_that_is_closed_or_full_ends_no_server() {
    for stderr in ["2>&-", "2>/dev/full"] {
        let place = TestFolder::new();
        // It has something to say at once, and each time that it changes its policy.
        let script =
            format!("exec \"$0\" serve --socket socket --device fast=mem:4M --limits limits {stderr}");
        place.file("limits", "");
        let mut serving = Serving::started(place.command("sh").args(["-c", &script]).arg(bywash()));
        done(volume(&place, &["create", "log", "--device", "fast", "--size", "1M"]));
        done(volume(&place, &["list"]));
        assert_eq!(serving.end(libc::SIGTERM), Some(0), "{stderr}");
    }
}

#[test]
fn volumes_are_made_and_last() {
    let place = TestFolder::new();
    let arguments =
        ["--policy", "volumes", "--device", "fast=mem:16M", "--device", "disk=file:disk,size=16M"];
    let mut serving = Serving::start(&place, &arguments);
    assert!(serving.said.contains("device fast: memory of 16777216 bytes"), "{}", serving.said);
    done(volume(&place, &["create", "log", "--device", "fast", "--size", "3M", "--owner", "root"]));
    done(volume(&place, &["create", "data", "--device", "disk", "--size", "1M", "--mode", "644"]));
    done(volume(&place, &["resize", "data", "2M"]));
    done(volume(&place, &["rename", "data", "pages"]));
    done(volume(&place, &["permit", "pages", "--mode", "640", "--read-only", "true"]));
    done(volume(&place, &["revoke", "log"]));
    let list = done(volume(&place, &["list"]));
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 3, "{list}");
    assert_eq!(lines[1][..4], ["log", "fast", "4", "MiB"]);
    assert_eq!((lines[2][0], lines[2][10], lines[2][11]), ("pages", "rw-r-----", "read-only"), "{list}");
    for (arguments, why) in [
        (&["create", "log", "--device", "fast", "--size", "1"][..], "there is a volume 'log' already"),
        (&["create", "x", "--device", "slow", "--size", "1"], "there are disk, fast"),
        (&["create", "x", "--device", "fast", "--size", "1G"], "are free"),
        (&["create", "x/y", "--device", "fast", "--size", "1"], "cannot be a name"),
        (&["create", "x", "--device", "fast", "--size", "1", "--owner", "nobody-by-that-name"], "no user"),
        (&["remove", "x"], "there is no volume 'x'"),
        (&["--policy", "volumes", "list"], "cannot be used with"),
    ] {
        let said = refused(&volume(&place, arguments));
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    // The store is the server's alone.
    let said = refused(&place.bywash(&["volume", "--policy", "volumes", "list"]).output().unwrap());
    assert!(said.contains("is in use"), "{said}");
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    assert!(!place.path().join("socket").exists());
    // While no server has it, it can be changed as well.
    done(place.bywash(&["volume", "--policy", "volumes", "remove", "log"]).output().unwrap());
    let _again = Serving::start(&place, &arguments);
    let json: serde_json::Value = serde_json::from_str(&done(volume(&place, &["list", "--json"]))).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 1);
    assert_eq!((&json[0]["name"], &json[0]["bytes"]), (&"pages".into(), &(2 << 20).into()));
}

#[test]
fn the_core_of_each_client_is_shown_if_there_are_several() {
    let place = TestFolder::new();
    let mut command =
        place.bywash(&["serve", "--socket", "socket", "--device", "fast=mem:4M", "--cores", "2"]);
    let status = |options: &[&str]| {
        let arguments = ["serve", "status", "--socket", "socket"];
        done(place.bywash(&arguments).args(options).output().unwrap())
    };
    // Not by `started`, which may choose the number of cores.
    let mut serving = Serving::waited_for(&mut command);
    let table = status(&["--once"]);
    assert!(table.contains("2 cores "), "{table}");
    let head = table.lines().find(|line| line.starts_with("client")).unwrap();
    assert!(head.ends_with("  core"), "{table}");
    let json: serde_json::Value = serde_json::from_str(&status(&["--json"])).unwrap();
    let cores: Vec<u64> =
        json["cores"].as_array().unwrap().iter().map(|core| core["core"].as_u64().unwrap()).collect();
    assert_eq!(cores, [0, 1]);
    // The client that asks.
    assert!(json["clients"][0]["core"].as_u64().unwrap() < 2, "{json}");
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    for cores in ["0", "65", "two"] {
        let arguments = ["serve", "--socket", "socket", "--device", "fast=mem:4M", "--cores", cores];
        let output = place.bywash(&arguments).output().unwrap();
        assert!(stderr(&output).contains("a number from 1 to 64"), "{}", stderr(&output));
    }
}

/// A thin volume is made by the server and in the store, and what it takes is shown.
#[test]
fn thin_volumes_show_what_they_take() {
    let place = TestFolder::new();
    let arguments = ["--device", "disk=file:disk,size=64M", "--policy", "volumes", "--metrics", "metrics"];
    let mut serving = Serving::start(&place, &arguments);
    let made = done(volume(&place, &["create", "images", "1G", "--device", "disk", "--thin"]));
    assert_eq!(made, "");
    let output = volume(&place, &["create", "odd", "1000001", "--device", "disk", "--thin"]);
    let said = stderr(&output);
    assert!(said.contains("volume 'odd' has 1048576 bytes: 1000001 rounded up to whole clusters"), "{said}");
    let listed = done(volume(&place, &["list"]));
    let line = listed.lines().find(|line| line.starts_with("images")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        (&words[2..9], words.last()),
        (&["1", "GiB", "0", "B", "0", "B", "0"][..], Some(&"thin")),
        "{listed}"
    );
    let told = || done(place.bywash(&["serve", "status", "--socket", "socket"]).output().unwrap());
    let status = told();
    let line = status.lines().skip_while(|line| !line.starts_with("thin volumes on")).nth(1).unwrap();
    assert!(line.starts_with("disk") && line.contains("0 B"), "{status}");
    // An ordinary volume takes most of the device, so that little is left for thin ones.
    done(volume(&place, &["create", "thick", "60M", "--device", "disk"]));
    assert!(told().contains("  LOW"), "{}", told());
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    done(stored(&place, &["create", "more", "1T", "--device", "disk", "--thin"]));
    let listed = done(stored(&place, &["list", "--json"]));
    let volumes: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let more = volumes.as_array().unwrap().iter().find(|volume| volume["name"] == "more").unwrap();
    assert_eq!(
        (&more["bytes"], &more["cluster"], &more["allocated"]),
        (&(1u64 << 40).into(), &(4 << 20).into(), &0.into())
    );
}

/// Snapshots are taken by the server, and cloned and rolled back to by the server and in the store.
#[test]
fn snapshots_are_taken_cloned_and_rolled_back_to() {
    let place = TestFolder::new();
    let arguments = ["--device", "disk=file:disk,size=64M", "--policy", "volumes"];
    let mut serving = Serving::start(&place, &arguments);
    done(volume(&place, &["create", "images", "1G", "--device", "disk", "--thin", "--mode", "660"]));
    done(volume(&place, &["create", "thick", "1M", "--device", "disk"]));
    done(volume(&place, &["snapshot", "images", "monday"]));
    done(volume(&place, &["clone", "monday", "trial"]));
    done(volume(&place, &["rollback", "images", "monday"]));
    for (arguments, why) in [
        (&["snapshot", "thick", "other"][..], "is not thin"),
        (&["snapshot", "monday", "other"], "'monday' is a snapshot"),
        (&["clone", "images", "other"], "is not a snapshot"),
        (&["rollback", "trial", "monday"], "'monday' is not a snapshot of volume 'trial'"),
        (&["permit", "monday", "--read-only", "false"], "nobody can write"),
    ] {
        let said = refused(&volume(&place, arguments));
        assert!(said.contains(why), "{said}");
    }
    let listed = done(volume(&place, &["list"]));
    for (name, what) in [
        ("images", "rw-rw---- thin"),
        ("monday", "rw-rw---- read-only snapshot of images"),
        ("trial", "rw-rw---- thin, clone of monday"),
    ] {
        let line = listed.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.ends_with(what), "{listed}");
    }
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    let said = refused(&stored(&place, &["snapshot", "images", "other"]));
    assert!(said.contains("taking a snapshot needs a running server"), "{said}");
    done(stored(&place, &["clone", "monday", "later"]));
    done(stored(&place, &["rollback", "images", "monday"]));
    done(stored(&place, &["remove", "images"]));
    let listed = done(stored(&place, &["list"]));
    let line = listed.lines().find(|line| line.starts_with("monday")).unwrap();
    assert!(line.ends_with("read-only snapshot"), "{listed}");
}

#[test]
fn its_status_is_a_table_json_and_metrics() {
    let place = TestFolder::new();
    let token = place.file("token", "0123456789abcdef\n");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let metrics = "tcp:127.0.0.1:0,token=token";
    let serving = Serving::start(&place, &["--device", "fast=mem:4M", "--metrics", metrics]);
    done(volume(&place, &["create", "log", "--device", "fast", "--size", "1"]));
    let status = |more: &[&str]| {
        done(place.bywash(&["serve", "status", "--socket", "socket"]).args(more).output().unwrap())
    };
    let table = status(&[]);
    for part in ["core", "fast", "4 MiB", "2 MiB", "bywash serve status"] {
        assert!(table.contains(part), "{part} is missing:\n{table}");
    }
    let json: serde_json::Value = serde_json::from_str(&status(&["--json"])).unwrap();
    assert_eq!(
        (&json["devices"][0]["name"], &json["devices"][0]["free"]),
        (&"fast".into(), &(2 << 20).into())
    );
    let address = serving.said.lines().find_map(|line| line.strip_prefix("metrics at http://")).unwrap();
    let ask = |header: &str| {
        let mut stream = TcpStream::connect(address.strip_suffix("/metrics").unwrap()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{header}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for header in ["", "Authorization: Bearer 0123456789abcdeg\r\n"] {
        let answer = ask(header);
        assert!(answer.starts_with("HTTP/1.1 401") && !answer.contains("fast"), "{answer}");
    }
    let answer = ask("Authorization: Bearer 0123456789abcdef\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("\nbywash_device_bytes{device=\"fast\"} 4194304\n"), "{answer}");
}

/// As the guide has it, with curl, which everybody has: whoever may not connect learns nothing, and whoever
/// holds connections half open stops nobody.
#[test]
fn metrics_are_told_at_a_socket_to_those_who_may() {
    let place = TestFolder::new();
    let metrics = "metrics,mode=620,group=0";
    let mut serving = Serving::start(&place, &["--device", "fast=mem:4M", "--metrics", metrics]);
    assert!(serving.said.contains("metrics at metrics, under /metrics"), "{}", serving.said);
    let path = place.path().join("metrics");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o620);
    let ask = || {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "10", "--unix-socket"]).arg(&path);
        curl.arg("http://localhost/metrics").output()
    };
    match ask() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return eprintln!("left out: {error}"),
        answer => assert!(done(answer.unwrap()).contains("bywash_device_bytes{device=\"fast\"}")),
    }
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut slow = UnixStream::connect(&path).unwrap();
        slow.write_all(b"GET /metrics HTTP/1.1\r\nX: ").unwrap();
        held.push(slow);
    }
    let began = Instant::now();
    assert!(done(ask().unwrap()).contains("bywash_uptime_seconds"));
    assert!(began.elapsed() < Duration::from_secs(4), "it waited for the others");
    // Clients that come and go by other names leave no trace but their user's counts.
    let told = |name: &str| {
        let text = done(ask().unwrap());
        text.lines().filter(|line| line.contains(name)).count()
    };
    let before = told("bywash_user_");
    for _ in 0..5 {
        done(volume(&place, &["list"]));
    }
    assert_eq!(told("client="), 0);
    let after = told("bywash_user_");
    done(volume(&place, &["list"]));
    assert!(after >= before && told("bywash_user_") == after);
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_device_is_known_by_its_label_and_not_by_its_name() {
    let place = TestFolder::new();
    let devices = ["--policy", "volumes", "--device", "a=file:a,size=4M", "--device", "b=file:b,size=4M"];
    let mut serving = Serving::start(&place, &devices);
    done(volume(&place, &["create", "secret", "1M", "--device", "a"]));
    let listed = done(volume(&place, &["devices"]));
    let id = |name: &str| {
        let line = listed.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    };
    let (a, b) = (id("a "), id("b "));
    assert!(a != b && a.len() == 36 && b.len() == 36, "{listed}");
    let status = done(place.bywash(&["serve", "status", "--socket", "socket"]).output().unwrap());
    assert!(status.contains(&a), "{status}");
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    let serve = |arguments: &[&str]| {
        let output =
            place.bywash(&["serve", "--socket", "socket", "--policy", "volumes"]).args(arguments).output();
        refused(&output.unwrap())
    };
    let path = |name: &str| place.path().join(name);
    let rename = |from: &str, to: &str| std::fs::rename(path(from), path(to)).unwrap();
    // Exchanged.
    rename("a", "c");
    rename("b", "a");
    rename("c", "b");
    let said = serve(&["--device", "a=file:a", "--device", "b=file:b"]);
    assert!(said.contains("given as 'a' is 'b' by its label") && said.contains("relabel"), "{said}");
    rename("a", "c");
    rename("b", "a");
    rename("c", "b");
    // Copied.
    std::fs::copy(path("a"), path("copy")).unwrap();
    let said = serve(&["--device", "a=file:a", "--device", "new=file:copy"]);
    assert!(said.contains("same label") && said.contains(&a), "{said}");
    // Cut.
    rename("a", "whole");
    std::fs::copy(path("whole"), path("a")).unwrap();
    let file = std::fs::File::options().write(true).open(path("a")).unwrap();
    file.set_len(3 << 20).unwrap();
    let said = serve(&["--device", "a=file:a"]);
    assert!(said.contains("when its label was written"), "{said}");
    // Blank, or somebody else's, in its place; and not there: none is made.
    file.set_len(0).unwrap();
    file.set_len(4 << 20).unwrap();
    let said = serve(&["--device", "a=file:a"]);
    assert!(said.contains("no label, but zeros") && said.contains(&a), "{said}");
    std::fs::remove_file(path("a")).unwrap();
    let said = serve(&["--device", "a=file:a,size=4M"]);
    assert!(said.contains("there is no file a") && said.contains("forget a --volumes"), "{said}");
    assert!(!path("a").exists());
    rename("whole", "a");
    // Without its store, and with another.
    let output = place.bywash(&["serve", "--socket", "socket", "--device", "a=file:a"]).output().unwrap();
    assert!(refused(&output).contains("give the store that knows it"), "{}", stderr(&output));
    let output = place.bywash(&["serve", "--socket", "socket", "--policy", "other", "--device", "a=file:a"]);
    let said = refused(&{ output }.output().unwrap());
    assert!(said.contains("this store does not know") && said.contains(&format!("--force {a}")), "{said}");
    // As it was, it is served, under another name if that is said.
    done(stored(&place, &["relabel", "a=file:a", "--to", "archive"]));
    let mut serving = Serving::start(&place, &["--policy", "volumes", "--device", "archive=file:a"]);
    let listed = done(volume(&place, &["list"]));
    assert!(listed.contains("secret") && listed.contains("archive"), "{listed}");
    let needs = refused(&volume(&place, &["forget", "b"]));
    assert!(needs.contains("--policy"), "{needs}");
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
}

/// A file that holds something is left alone, until whoever takes it has named what is lost.
#[test]
fn a_file_that_holds_something_is_adopted_by_name_only() {
    let place = TestFolder::new();
    let file = std::fs::File::create(place.path().join("disk")).unwrap();
    file.set_len(64 << 20).unwrap();
    drop(file);
    let made = Command::new("mkfs.ext4").arg("-q").arg(place.path().join("disk")).status();
    if made.is_err() {
        eprintln!("left out: there is no mkfs.ext4");
        return;
    }
    assert!(made.unwrap().success());
    let before = std::fs::read(place.path().join("disk")).unwrap();
    let serve =
        place.bywash(&["serve", "--socket", "socket", "--policy", "volumes", "--device", "disk=file:disk"]);
    let said = refused(&{ serve }.output().unwrap());
    assert!(said.contains("holds ext2, ext3 or ext4") && said.contains("adopt disk="), "{said}");
    for force in [&[][..], &["--force", "xfs"]] {
        let said = refused(&stored(&place, &[&["adopt", "disk=file:disk"], force].concat()));
        assert!(said.contains("--force 'ext2, ext3 or ext4'"), "{said}");
    }
    assert!(std::fs::read(place.path().join("disk")).unwrap() == before);
    done(stored(&place, &["adopt", "disk=file:disk", "--force", "ext2, ext3 or ext4"]));
    let mut serving = Serving::start(&place, &["--policy", "volumes", "--device", "disk=file:disk"]);
    // Nothing that was there before is shown to anybody.
    done(volume(&place, &["create", "all", "63M", "--device", "disk"]));
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    assert!(std::fs::read(place.path().join("disk")).unwrap()[1 << 20..].iter().all(|byte| *byte == 0));
    let said = refused(&stored(&place, &["forget", "disk"]));
    assert!(said.contains("--volumes"), "{said}");
    assert!(done(stored(&place, &["forget", "disk", "--volumes"])).contains("volume all is forgotten"));
}

#[test]
fn volumes_on_memory_are_gone_with_the_server_that_had_it() {
    let place = TestFolder::new();
    let arguments = ["--policy", "volumes", "--device", "fast=mem:8M"];
    let mut serving = Serving::start(&place, &arguments);
    done(volume(&place, &["create", "log", "2M", "--device", "fast"]));
    done(volume(&place, &["create", "data", "2M", "--device", "fast"]));
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    let _serving = Serving::start(&place, &arguments);
    let listed = done(volume(&place, &["list"]));
    assert_eq!(listed.lines().filter(|line| line.ends_with(" gone")).count(), 2, "{listed}");
    let said = refused(&volume(&place, &["resize", "log", "4M"]));
    assert!(said.contains("was memory, and ended"), "{said}");
    done(volume(&place, &["create", "log", "2M", "--device", "fast"]));
    done(volume(&place, &["remove", "data"]));
    let listed = done(volume(&place, &["list"]));
    assert!(!listed.contains("gone") && listed.lines().count() == 2, "{listed}");
}

/// Sizes have one form, and it is told when they are rounded.
#[test]
fn sizes_are_given_in_either_place_and_told_when_rounded() {
    let place = TestFolder::new();
    let _serving = Serving::start(&place, &["--device", "fast=mem:16M"]);
    let told = |arguments: &[&str]| {
        let output = volume(&place, arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    assert_eq!(told(&["create", "a", "2M", "--device", "fast"]), "");
    assert_eq!(told(&["create", "b", "--device", "fast", "--size", "2M"]), "");
    assert_eq!(told(&["resize", "a", "4M"]), "");
    let said = told(&["resize", "b", "--size", "3M"]);
    assert!(
        said.contains("has 4194304 bytes: 3145728 rounded up to whole blocks of device 'fast'"),
        "{said}"
    );
    let said = told(&["create", "c", "1", "--device", "fast"]);
    assert!(said.contains("has 2097152 bytes: 1 rounded up"), "{said}");
    for wrong in
        [&["resize", "a"][..], &["resize", "a", "4M", "--size", "4M"], &["create", "d", "--device", "fast"]]
    {
        let said = refused(&volume(&place, wrong));
        assert!(said.contains("SIZE"), "{wrong:?}: {said}");
    }
}

#[test]
fn what_cannot_be_served_is_named() {
    let place = TestFolder::new();
    place.file("text", "no socket");
    place.file("limits.toml", "[default]\nshare = 0\n");
    for (arguments, why) in [
        (&["--socket", "socket"][..], "--device"),
        (&["--socket", "socket", "--device", "fast=men:1M"], "there is no kind 'men'"),
        (
            &["--socket", "socket", "--device", "a=mem:4M", "--device", "a=mem:4M"],
            "two devices are named 'a'",
        ),
        (&["--socket", "socket", "--device", "a=mem:1M"], "at least 2097152"),
        (&["--socket", "socket", "--device", "a=file:nothing"], "nothing"),
        (&["--socket", "text", "--device", "a=mem:4M"], "listen at text"),
        (&["--socket", "socket", "--device", "a=mem:4M", "--policy", "text"], "is no store"),
        (&["--socket", "socket", "--device", "a=mem:4M", "--limits", "limits.toml"], "a share of 0"),
        (&["--socket", "socket", "--device", "a=mem:4M", "--poll-us", "x"], "forever"),
        (&["--socket", "socket", "--device", "a=mem:4M", "--cpu", "999"], "it may use"),
        (&["--socket", "socket", "--device", "a=mem:4M", "--cpu", "99999"], "it may use"),
        (&["--socket", "socket", "--device", "a=file:new,size=1000"], "at least 1052672"),
        (&["--socket", "socket", "--device", "a=file:new,size=2097153"], "multiple of"),
        (&["--socket", "socket", "--device", "a=mem:4M", "--metrics", "127.0.0.1:0"], "begins with 'tcp:'"),
        (&["--socket", "socket", "--device", "a=mem:4M", "--metrics", "tcp:127.0.0.1:0"], "or open"),
        (
            &["--socket", "socket", "--device", "a=mem:4M", "--metrics", "tcp:127.0.0.1:0,token=text"],
            "chmod o=",
        ),
        (
            &["--socket", "socket", "--device", "a=mem:4M", "--metrics", "text"],
            "cannot publish metrics at text",
        ),
        (&["--socket", "socket", "--device", "a=mem:4M", "--vhost-user", "v=vm,mode=x"], "octal"),
        (&["--socket", "socket", "--device", "a=mem:4M", "--nbd", "v=nbd"], "begins with 'unix:'"),
        (&["--socket", "socket", "--device", "a=mem:4M", "--nbd", "v=unix:nbd"], "there is no volume 'v'"),
        (&["--socket", "socket", "--device", "a=mem:4M", "--nbd", "v=tcp:0.0.0.0:0"], "or open if"),
        (
            &["--socket", "socket", "--device", "a=mem:4M", "--nbd", "v=tcp:[::]:0,open,key=text"],
            "and not open",
        ),
    ] {
        let output = place.bywash(&["serve"]).args(arguments).output().unwrap();
        let said = refused(&output);
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert!(!place.path().join("socket").exists() && !place.path().join("new").exists(), "{arguments:?}");
    }
    let said = refused(&volume(&place, &["list"]));
    assert!(said.contains("socket") && said.contains("bywash serve"), "{said}");
}

#[test]
fn a_name_is_taken_over_from_a_server_that_died_and_from_no_other() {
    let place = TestFolder::new();
    let mut serving = Serving::start(&place, &["--device", "fast=mem:4M"]);
    let second = place.bywash(&["serve", "--socket", "socket", "--device", "fast=mem:4M"]).output().unwrap();
    assert!(
        refused(&second).contains("a program that listens there; end that program"),
        "{}",
        stderr(&second)
    );
    assert_eq!(serving.end(libc::SIGKILL), None);
    assert!(place.path().join("socket").exists());
    let _next = Serving::start(&place, &["--device", "fast=mem:4M"]);
    done(volume(&place, &["list"]));
}

#[test]
fn who_started_it_as_a_service_hears_when_it_serves() {
    let place = TestFolder::new();
    let path = place.path().join("notify");
    let heard = UnixDatagram::bind(&path).unwrap();
    heard.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut command = place.bywash(&["serve", "--socket", "socket", "--device", "fast=mem:4M"]);
    let mut serving = Serving::started(command.env("NOTIFY_SOCKET", &path));
    let hear = || {
        let mut bytes = [0; 256];
        let length = heard.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    };
    assert_eq!(hear(), "READY=1");
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    assert_eq!(hear(), "STOPPING=1");
}

/// A frontend passes a socket that lingers when it is closed, and goes: the status shows the thread that
/// closes it.
#[test]
fn threads_that_are_stuck_are_shown() {
    let place = TestFolder::new();
    let arguments = ["--policy", "volumes", "--device", "disk=file:disk,size=16M"];
    let mut serving = Serving::start(&place, &arguments);
    done(volume(&place, &["create", "root", "--device", "disk", "--size", "4M"]));
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    let mut serving = Serving::start(&place, &[&arguments[..], &["--vhost-user", "root=vm"]].concat());
    let status =
        |form| done(place.bywash(&["serve", "status", "--socket", "socket", form]).output().unwrap());
    // GET_FEATURES, which has no descriptor, and is answered first: until then none is let in.
    let ask = [1u32, 1, 0].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let end = Instant::now() + 3 * TIMEOUT;
    let mut kept = Vec::new();
    loop {
        let export = &serde_json::from_str::<serde_json::Value>(&status("--json")).unwrap()["exports"][0];
        assert_eq!(export["volume"], "root");
        if export["leaving"].as_u64().unwrap() > 0 {
            break;
        }
        assert!(Instant::now() < end, "no thread is stuck: {export}");
        let mut frontend = UnixStream::connect(place.path().join("vm")).unwrap();
        frontend.write_all(&ask).unwrap();
        frontend.read_exact(&mut [0; 20]).unwrap();
        let frontend = std::os::fd::OwnedFd::from(frontend);
        let mut lingering = bywash_support::peers::Lingering::new();
        lingering.pass(|socket| bywash_support::peers::send(&frontend, &ask, &[socket.as_raw_fd()]));
        drop(frontend);
        // Not each of them gets stuck: now and then the kernel closes the socket here last.
        std::thread::sleep(Duration::from_millis(50));
        kept.push(lingering);
    }
    let table = status("--once");
    let row = table.lines().skip_while(|line| !line.starts_with("exported volume")).nth(1);
    let row: Vec<_> = row.unwrap_or_default().split_whitespace().collect();
    assert_eq!(row[0], "root", "{table}");
    assert!(row[3].parse::<u64>().unwrap() > 0, "{table}");
    drop(kept);
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
}

/// A virtual machine that knows nothing of Bywash makes a file system on a volume, and finds it whole the
/// next time.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_virtual_machine_has_a_volume_as_its_disk() {
    use bywash_support::guest::{Guest, script};
    let place = TestFolder::new();
    let arguments = ["--policy", "volumes", "--device", "disk=file:disk,size=80M"];
    let mut serving = Serving::start(&place, &arguments);
    done(volume(&place, &["create", "root", "--device", "disk", "--size", "64M"]));
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    let mut missing = place.bywash(&["serve", "--socket", "socket"]);
    let missing = missing.args(arguments).args(["--vhost-user", "nothing=vm"]).output().unwrap();
    assert!(refused(&missing).contains("there is no volume 'nothing'"), "{}", stderr(&missing));
    let mut serving =
        Serving::start(&place, &[&arguments[..], &["--vhost-user", "root=vm,mode=660,group=0"]].concat());
    assert!(serving.said.contains("volume root for virtual machines at vm"), "{}", serving.said);
    let mode = std::fs::metadata(place.path().join("vm")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let guest = Guest::new(&place.path().join("vm")).boot(script::FILE_SYSTEM);
    guest.wait_for_end();
    let status = done(place.bywash(&["serve", "status", "--socket", "socket", "--json"]).output().unwrap());
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let exported = status["clients"].as_array().unwrap().iter();
    let exported = exported.filter(|client| client["name"] == "vhost-user root").collect::<Vec<_>>();
    assert_eq!(exported.len(), 1);
    assert!(exported[0]["counts"]["writes"].as_u64().unwrap() > 10, "{status}");
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    assert!(!place.path().join("vm").exists());
}

#[test]
fn the_unit_is_one() {
    verify_unit("bywash.service", "bywash.service");
}

/// Has systemd verify a unit of the folder `dist`, installed under a name.
pub fn verify_unit(unit: &str, name: &str) {
    let unit = format!("{}/../../dist/{unit}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(unit).unwrap();
    let place = TestFolder::new();
    // With a program that is there, as it is when the unit is installed.
    let text = text.replace("@PREFIX@/bin/bywash", "/bin/true").replace("@SYSCONFDIR@", "/etc");
    let installed = place.file(name, text);
    match Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&installed).output() {
        Ok(output) => {
            assert!(output.status.success() && !stderr(&output).contains(name), "{}", stderr(&output));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => eprintln!("left out: {error}"),
        Err(error) => panic!("{error}"),
    }
}

/// `make install` installs every file with the service's configuration; `make uninstall` removes all but a changed
/// configuration.
#[test]
fn the_service_is_installed_with_its_configuration() {
    let place = TestFolder::new();
    let texts = ["man/man1/bywash.1", "completions/bywash", "completions/_bywash", "completions/bywash.fish"];
    for name in texts {
        place.file(&format!("target/release/{name}"), "built");
    }
    // Anything that strip(1) accepts.
    let binaries = ["bywash", "bywash-command"];
    let libraries = ["libbywash_shim.so", "libbywash_recorder.so", "libbywash.so", "libbywash.a"];
    for name in binaries.into_iter().chain(libraries) {
        let built = place.path().join("target/release").join(name);
        std::fs::copy(bywash(), built).unwrap();
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let (target, to) = (place.path().join("target"), place.path().join("root"));
    let make = |goal: &str| {
        let mut make = Command::new("make");
        make.args(["-s", "-C", root, goal, "PREFIX=/usr", &format!("DESTDIR={}", to.display())]);
        // Those of a `make` that runs this test are not for this one.
        make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env("CARGO_TARGET_DIR", &target);
        done(make.output().unwrap());
    };
    make("install");
    let unit = std::fs::read_to_string(to.join("usr/lib/systemd/system/bywash.service")).unwrap();
    let named = unit.lines().find_map(|line| line.strip_prefix("EnvironmentFile=")).unwrap();
    let config = to.join(named.strip_prefix('/').unwrap());
    let options = std::fs::read_to_string(&config).unwrap();
    let options = options.lines().find_map(|line| line.strip_prefix("BYWASH_SERVE=")).unwrap();
    // It serves as it was installed.
    let mut serving = Serving::start(&place, &options.split(' ').collect::<Vec<_>>());
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    std::fs::write(&config, "changed").unwrap();
    make("install");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "changed");
    make("uninstall");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "changed");
    std::fs::remove_file(&config).unwrap();
    make("install");
    make("uninstall");
    let left = Command::new("find").arg(&to).args(["-not", "-type", "d"]).output().unwrap();
    assert_eq!(done(left), "");
    assert!(!config.parent().unwrap().exists());
}
