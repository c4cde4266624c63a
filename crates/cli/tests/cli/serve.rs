//! `bywash serve`, `bywash volume`, `bywash serve status`: a server as its users have it.

use crate::place::{Place, stderr, stdout};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take here.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server; it is killed with the test.
struct Serving {
    child: Child,
    /// What it said before it served.
    said: String,
}

impl Serving {
    fn start(place: &Place, arguments: &[&str]) -> Serving {
        Serving::started(place.bywash(&["serve", "--socket", "socket"]).args(arguments))
    }

    fn started(command: &mut Command) -> Serving {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("serving at") {
            assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
        }
        Serving { child, said }
    }

    fn end(&mut self, signal: i32) -> Option<i32> {
        // SAFETY: a signal to a child that this test has started and not yet waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
        let end = Instant::now() + PATIENCE;
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

fn volume(place: &Place, arguments: &[&str]) -> Output {
    place.bywash(&["volume", "--socket", "socket"]).args(arguments).output().unwrap()
}

fn done(output: Output) -> String {
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(125));
    stderr(output)
}

#[test]
fn volumes_are_made_and_last() {
    let place = Place::new();
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
    assert_eq!((lines[2][0], lines[2][7], lines[2][8]), ("pages", "rw-r-----", "read-only"), "{list}");
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
fn its_status_is_a_table_json_and_metrics() {
    let place = Place::new();
    let serving = Serving::start(&place, &["--device", "fast=mem:4M", "--metrics", "127.0.0.1:0"]);
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
    let mut stream = TcpStream::connect(address.strip_suffix("/metrics").unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("\nbywash_device_bytes{device=\"fast\"} 4194304\n"), "{answer}");
}

#[test]
fn what_cannot_be_served_is_named() {
    let place = Place::new();
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
    ] {
        let output = place.bywash(&["serve"]).args(arguments).output().unwrap();
        let said = refused(&output);
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert!(!place.path().join("socket").exists());
    }
    let said = refused(&volume(&place, &["list"]));
    assert!(said.contains("socket") && said.contains("bywash serve"), "{said}");
}

#[test]
fn a_name_is_taken_over_from_a_server_that_died_and_from_no_other() {
    let place = Place::new();
    let mut serving = Serving::start(&place, &["--device", "fast=mem:4M"]);
    let second = place.bywash(&["serve", "--socket", "socket", "--device", "fast=mem:4M"]).output().unwrap();
    assert!(refused(&second).contains("listens at socket already"), "{}", stderr(&second));
    assert_eq!(serving.end(libc::SIGKILL), None);
    assert!(place.path().join("socket").exists());
    let _next = Serving::start(&place, &["--device", "fast=mem:4M"]);
    done(volume(&place, &["list"]));
}

#[test]
fn who_started_it_as_a_service_hears_when_it_serves() {
    let place = Place::new();
    let path = place.path().join("notify");
    let heard = UnixDatagram::bind(&path).unwrap();
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
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

/// A virtual machine that knows nothing of Bywash makes a file system on a volume, and finds it whole the next time.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_virtual_machine_has_a_volume_as_its_disk() {
    use bywash_guest::{Guest, script};
    let place = Place::new();
    let arguments = ["--policy", "volumes", "--device", "disk=file:disk,size=80M"];
    let mut serving = Serving::start(&place, &arguments);
    done(volume(&place, &["create", "root", "--device", "disk", "--size", "64M"]));
    assert_eq!(serving.end(libc::SIGTERM), Some(0));
    let mut missing = place.bywash(&["serve", "--socket", "socket"]);
    let missing = missing.args(arguments).args(["--vhost-user", "nothing=vm"]).output().unwrap();
    assert!(refused(&missing).contains("there is no volume 'nothing'"), "{}", stderr(&missing));
    let mut serving = Serving::start(&place, &[&arguments[..], &["--vhost-user", "root=vm"]].concat());
    assert!(serving.said.contains("volume root for virtual machines at vm"), "{}", serving.said);
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
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/bywash.service");
    let text = std::fs::read_to_string(unit).unwrap();
    let place = Place::new();
    // With a program that is there, as it is when the unit is installed.
    let installed = place.file("bywash.service", text.replace("@PREFIX@/bin/bywash", "/bin/true"));
    match Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&installed).output() {
        Ok(output) => {
            assert!(
                output.status.success() && !stderr(&output).contains("bywash.service"),
                "{}",
                stderr(&output)
            );
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => eprintln!("left out: {error}"),
        Err(error) => panic!("{error}"),
    }
}
