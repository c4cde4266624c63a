//! `fork`: many connections, more than there is room for, and the end of it.

use super::{BackgroundChild, connect, free_port, wait_for, wait_for_port};
use crate::place::{TestFolder, bywash, stderr};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Idle connections that a forwarder has to hold, where descriptors allow it, and the memory that each may
/// cost it.
const IDLE_MAX: u64 = 10_000;
const BYTES_MAX: u64 = 1024;

/// A server that answers each byte with the same byte, as long as there is somebody.
fn echoing() -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    thread::spawn(move || {
        for accepted in server.incoming() {
            let mut accepted = accepted.unwrap();
            thread::spawn(move || {
                let mut byte = [0];
                while accepted.read(&mut byte).is_ok_and(|came| came > 0) && accepted.write(&byte).is_ok() {}
            });
        }
    });
    address
}

/// A forwarder with so many descriptors, at the most.
fn forwarder(place: &TestFolder, descriptors: u32, options: &str, to: &str) -> (BackgroundChild, u16) {
    let port = free_port();
    let mut command = place.command("env");
    let script = format!("ulimit -n {descriptors} && exec \"$@\"");
    command.args(["--default-signal", "sh", "-c", &script, "sh"]).arg(bywash()).arg("flow");
    command.args([&format!("tcp-listen:127.0.0.1:{port},fork{options}"), to]);
    let forwarder = BackgroundChild::start(&mut command);
    wait_for_port(port);
    (forwarder, port)
}

fn answers(client: &mut TcpStream) -> std::io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(30)))?;
    client.write_all(b"x")?;
    client.read_exact(&mut [0])
}

/// A number of /proc/PID/status.
fn status(forwarder: &BackgroundChild, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", forwarder.0.id())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_stop_nobody() {
    // Both ends of all of them are this process's, which has others to test too.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let descriptors = maximum.unwrap_or(u64::MAX).min(IDLE_MAX * 2 + 1500);
    let count = (descriptors as usize - 1500) / 2;
    let place = TestFolder::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = format!("tcp:{}", server.local_addr().unwrap());
    let (forwarder, port) = forwarder(&place, descriptors as u32, "", &there);
    let before = status(&forwarder, "VmRSS:");
    let accepting =
        thread::spawn(move || (0..=count).map(|_| server.accept().unwrap().0).collect::<Vec<_>>());
    let idle: Vec<TcpStream> = (0..count).map(|_| connect(port)).collect();
    let mut active = connect(port);
    let accepted = accepting.join().unwrap();
    let each = (status(&forwarder, "VmRSS:") - before) * 1024 / count as u64;
    assert!(each <= BYTES_MAX, "an idle connection costs {each} bytes");
    let threads = status(&forwarder, "Threads:");
    assert!(threads < 64, "{threads} threads");
    // The last one is served, whichever of those accepted it is.
    active.write_all(b"question").unwrap();
    let mut came = [0; 8];
    wait_for("it comes out", || {
        accepted.iter().any(|one| {
            one.set_nonblocking(true).unwrap();
            (&*one).read(&mut came).is_ok_and(|bytes| bytes == 8)
        })
    });
    assert_eq!(&came, b"question");
    let begin = Instant::now();
    forwarder.signal("TERM");
    let ended = forwarder.finish();
    assert_eq!(ended.status.code(), Some(143), "{}", stderr(&ended));
    assert!(begin.elapsed() < Duration::from_secs(10), "it took {:?} to end", begin.elapsed());
    println!("{count} connections, {each} bytes each, {threads} threads, ended after {:?}", begin.elapsed());
    drop(idle);
}

#[test]
fn who_finds_no_room_is_refused_and_nobody_else_is_hurt() {
    let place = TestFolder::new();
    let there = format!("tcp:{}", echoing());
    // Three by a limit; by what 300 descriptors allow: 22.
    for (descriptors, options, room) in [(1024, ",max=3", 3), (300, "", 22)] {
        let (forwarder, port) = forwarder(&place, descriptors, options, &there);
        let mut served: Vec<TcpStream> = (0..room).map(|_| connect(port)).collect();
        served.iter_mut().for_each(|client| answers(client).unwrap());
        for _ in 0..5 {
            let mut refused = connect(port);
            let error = answers(&mut refused).expect_err("there is room for one more");
            assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
        }
        served.iter_mut().for_each(|client| answers(client).unwrap());
        // Whoever goes makes room.
        drop(served.pop());
        wait_for("there is room again", || answers(&mut connect(port)).is_ok());
        forwarder.signal("INT");
        let ended = forwarder.finish();
        let said = stderr(&ended);
        assert_eq!(ended.status.code(), Some(130), "{said}");
        assert!(said.contains(&format!("{room} are served already")), "{said}");
        assert!(said.contains(" refused"), "{said}");
    }
}

#[test]
fn descriptors_that_run_out_end_no_connection() {
    let place = TestFolder::new();
    let there = format!("tcp:{}", echoing());
    let (forwarder, port) = forwarder(&place, 1024, "", &there);
    let mut served: Vec<TcpStream> = (0..20).map(|_| connect(port)).collect();
    served.iter_mut().for_each(|client| answers(client).unwrap());
    // From outside, so that it comes as a surprise.
    let pid = forwarder.0.id().to_string();
    let is_open = |number: u32| fs::symlink_metadata(format!("/proc/{pid}/fd/{number}")).is_ok();
    let first_free = (0..).find(|number| !is_open(*number)).unwrap();
    super::run(place.command("prlimit").args(["--pid", &pid, &format!("--nofile={first_free}:")]));
    for _ in 0..5 {
        assert!(answers(&mut connect(port)).is_err(), "there is no descriptor for it");
    }
    served.iter_mut().for_each(|client| answers(client).unwrap());
    super::run(place.command("prlimit").args(["--pid", &pid, "--nofile=1024:"]));
    wait_for("there are descriptors again", || answers(&mut connect(port)).is_ok());
    forwarder.signal("TERM");
    let ended = forwarder.finish();
    assert_eq!(ended.status.code(), Some(143), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("no more descriptors"), "{}", stderr(&ended));
}

#[test]
fn connections_with_stages_have_room_for_each_other_too() {
    let place = TestFolder::new();
    let port = free_port();
    let mut command = place.command("env");
    command.arg("--default-signal").arg(bywash());
    command.args([
        "flow",
        &format!("tcp-listen:127.0.0.1:{port},fork,max=2"),
        "hash:sha256",
        "file:to,append",
    ]);
    let collector = BackgroundChild::start(&mut command);
    wait_for_port(port);
    let idle = [connect(port), connect(port)];
    let mut refused = connect(port);
    refused.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert!(refused.read(&mut [0]).is_err(), "an idle connection has made room");
    drop(idle);
    wait_for("what comes is appended", || {
        let mut client = connect(port);
        let _ = client.write_all(b"line\n");
        drop(client);
        fs::read(place.path().join("to")).is_ok_and(|text| text.starts_with(b"line\n"))
    });
    collector.signal("TERM");
    let ended = collector.finish();
    assert_eq!(ended.status.code(), Some(143), "{}", stderr(&ended));
}
