//! Limits of clients, and fairness: no client exceeds them at another's cost.

use crate::peer::{LIMIT, Peer, Served};
use bywash_channel::{Submission, Wait};
use bywash_protocol::layout::Opcode;
use bywash_protocol::{Access, ControlRequest, RefusalKind};
use bywash_server::LimitsFile;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

fn limited(text: &str) -> Served {
    Served::with(&["fast=mem:16M,pages=4K"], |options| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits");
        std::fs::write(&path, text).unwrap();
        options.limits(LimitsFile::read(&path).unwrap())
    })
}

#[test]
fn as_many_as_may_be() {
    let served = limited("[default]\nclients = 3\ngrants = 2\ndescriptors = 1\ndepth = 8\narena = \"1M\"");
    let peer = served.peer();
    peer.create("log", "fast", 1);
    peer.open("log", Access::Read).unwrap();
    let second = peer.open("log", Access::Read).unwrap();
    assert_eq!(peer.open("log", Access::Read).unwrap_err().code, RefusalKind::Limit);
    peer.ask(ControlRequest::Close { grant: second.grant }).unwrap();
    peer.open("log", Access::Read).unwrap();
    let more = [served.peer(), served.peer()];
    let turned_away = std::panic::catch_unwind(|| Peer::connect(&served.socket));
    assert!(turned_away.is_err());
    drop(more);
    served.until("there is room again", |status| status.clients.len() == 1);
    let mut peer = served.peer();
    let options = || bywash_channel::Options::new().wait(Wait::Adaptive);
    for (depth, arena) in [(16, 1 << 16), (8, 2 << 20)] {
        served.until("there is room again", |status| status.clients.len() == 2);
        let peer = served.peer();
        let (here, there) = bywash_link::socket_pair().unwrap();
        let options = options().depth(depth).arena_bytes(arena);
        let making = std::thread::spawn(move || bywash_channel::Client::over(here, &options).map(drop));
        let asked = peer.ask_with(ControlRequest::SetUpChannel {}, &[std::os::fd::AsFd::as_fd(&there)]);
        assert_eq!(asked.unwrap_err().code, RefusalKind::Unfit);
        drop(there);
        assert!(making.join().unwrap().is_err());
    }
    peer.make_channel(options().depth(8).arena_bytes(1 << 20));
}

#[test]
fn a_rate_is_kept() {
    let served = limited("[default]\nrequests = 2000");
    let mut peer = served.peer().with_channel();
    peer.create("log", "fast", 1);
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    let (began, before) = (Instant::now(), served.status().core_cpu_ns);
    for _ in 0..1000 {
        peer.write(grant, 0, &[1; 512]).unwrap();
    }
    let (took, used) = (began.elapsed(), served.status().core_cpu_ns - before);
    // The core sleeps while the client waits for its rate limit.
    assert!(Duration::from_nanos(used) < took / 2, "{used} ns of {took:?}");
    // Half a second, less a burst of a hundredth of a second.
    assert!(took > Duration::from_millis(450) && took < LIMIT / 2, "{took:?}");
}

/// Returns the number of requests that each client completed while all send as many as they can.
fn served_within(served: &Served, shares: usize, time: Duration) -> Vec<u64> {
    let together = Arc::new(Barrier::new(shares));
    let clients: Vec<_> = (0..shares)
        .map(|_| {
            let (mut peer, together) = (served.peer().with_channel(), together.clone());
            std::thread::spawn(move || {
                let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
                together.wait();
                let end = Instant::now() + time;
                let channel = peer.channel.as_mut().unwrap();
                // As many requests as complete in a quarter of a second, so that a client that gets no
                // processor for a while still has some in flight.
                let mut buffers: Vec<_> = (0..64).map(|_| channel.alloc(512).unwrap()).collect();
                let mut done = 0u64;
                while Instant::now() < end {
                    while let Some(buffer) = buffers.pop() {
                        let at = [grant, 0, 512, 0, 0, 0];
                        let submission = Submission::new(Opcode::Write as u8).arguments(at);
                        channel.submit(submission.buffer(buffer)).unwrap();
                    }
                    buffers.extend(channel.reap_within(LIMIT).unwrap().buffer);
                    done += 1;
                }
                done
            })
        })
        .collect();
    clients.into_iter().map(|client| client.join().unwrap()).collect()
}

/// The device is the bottleneck: it moves a fixed number of bytes per second, and every client wants more.
#[test]
fn all_have_the_same_of_what_is_scarce() {
    let served = Served::with(&["fast=mem:16M,pages=4K,bandwidth=1M/s,depth=4"], |options| options);
    served.peer().create("log", "fast", 1);
    let done = served_within(&served, 8, Duration::from_secs(3));
    let mean = done.iter().sum::<u64>() as f64 / 8.0;
    let worst = done.iter().map(|done| (*done as f64 / mean - 1.0).abs()).fold(0.0, f64::max);
    assert!(worst < 0.10, "{done:?}");
}

/// Returns the usual time of a write: the best of several medians.
fn usual_time(peer: &mut Peer, grant: u64) -> Duration {
    let median = |_| {
        let mut times: Vec<Duration> = (0..500)
            .map(|_| {
                let began = Instant::now();
                peer.write(grant, 0, &[1; 512]).unwrap();
                began.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    (0..7).map(median).min().unwrap()
}

/// Passed files that nobody reads or writes are not polled, so that they cost other clients no time.
#[test]
fn files_that_nobody_uses_cost_nobody_anything() {
    let served = limited("[default]\ndescriptors = 1000");
    let mut peer = served.peer();
    peer.make_channel(bywash_channel::Options::new().depth(8).arena_bytes(1 << 16).wait(Wait::Spin));
    peer.create("log", "fast", 1);
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    let before = usual_time(&mut peer, grant);
    let path = served.folder.path().join("passed");
    std::fs::write(&path, [7; 4096]).unwrap();
    let other = served.peer();
    for _ in 0..1000 {
        let file = std::fs::File::open(&path).unwrap();
        other.ask_with(ControlRequest::OpenDescriptor {}, &[std::os::fd::AsFd::as_fd(&file)]).unwrap();
    }
    // While the server's core and this thread share a processor, a write takes as long as the core spins.
    // They do not share one for ever, so the measurement is repeated.
    let (end, most) = (Instant::now() + LIMIT, 2 * before + Duration::from_micros(5));
    while usual_time(&mut peer, grant) > most {
        assert!(
            Instant::now() < end,
            "a write takes more than {most:?} beside 1000 files, and {before:?} without"
        );
    }
}

/// A hundred idle clients are not polled, so that they cost no processor time.
#[test]
fn who_is_idle_costs_nothing() {
    let served = limited("[default]\nclients = 2000");
    let admin = served.peer();
    admin.create("log", "fast", 1);
    let peers: Vec<Peer> = (0..100)
        .map(|_| {
            let mut peer = served.peer();
            let options = bywash_channel::Options::new().depth(8).arena_bytes(4096).wait(Wait::Sleep);
            peer.make_channel(options);
            peer
        })
        .collect();
    served.until("nobody is polled", |status| {
        status.clients.len() == 101 && status.clients.iter().all(|client| !client.is_polled)
    });
    let before = served.status().core_cpu_ns;
    std::thread::sleep(Duration::from_secs(1));
    let used = served.status().core_cpu_ns - before;
    assert!(used < 20_000_000, "{used} ns of a second");
    // The idle clients are served when they send requests again.
    for mut peer in peers.into_iter().take(10) {
        let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
        peer.write(grant, 0, &[1; 512]).unwrap();
    }
}

/// Returns the memory of this process that the kernel has pinned, in bytes.
fn pinned() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

/// Registering a whole arena with a device would allocate all of its pages at the server's cost. The server
/// runs in this process: other tests pin only some bounce buffers, which the check allows for.
#[test]
fn no_more_of_an_arena_is_taken_than_is_used() {
    const ARENA: u64 = 12 << 20;
    let served = Served::file(1 << 20);
    let how = served.status().devices[0].how.clone();
    if !how.ends_with("by io_uring") {
        eprintln!("left out: the device is {how}");
        return;
    }
    let mut peer = served.peer();
    peer.make_channel(bywash_channel::Options::new().depth(8).arena_bytes(ARENA as usize));
    peer.create("log", "disk", 1 << 20);
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    let before = pinned();
    peer.write(grant, 0, &[1; 4096]).unwrap();
    let with = pinned();
    assert!(with < before + ARENA / 2, "{before} bytes before and {with} with the client's arena");
}

/// More clients ask for a channel at once than handshakes run at a time: all get theirs.
#[test]
fn who_comes_with_many_others_has_its_turn() {
    let served = limited("[default]\nclients = 200");
    let peers: Vec<Peer> = (0..100).map(|_| served.peer()).collect();
    let together = Arc::new(Barrier::new(peers.len()));
    let asked: Vec<_> = peers
        .into_iter()
        .map(|mut peer| {
            let together = together.clone();
            std::thread::spawn(move || {
                together.wait();
                peer.make_channel(
                    bywash_channel::Options::new().depth(8).arena_bytes(4096).wait(Wait::Sleep),
                );
                peer
            })
        })
        .collect();
    let peers: Vec<Peer> = asked.into_iter().map(|asked| asked.join().unwrap()).collect();
    served.until("all have channels", |status| status.clients.iter().all(|client| client.depth == 8));
    assert_eq!(peers.len(), 100);
}

/// A large request at a low rate limit takes longer than the request timeout. It does not time out, because
/// some of it is always being done.
#[test]
fn a_large_request_outlasts_the_time_limit_at_a_small_rate() {
    let served = Served::with(&["fast=mem:4M,pages=4K"], |options| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits");
        std::fs::write(&path, "[default]\nbandwidth = \"1M\"").unwrap();
        let timeouts = bywash_server::Timeouts::default().request(Duration::from_millis(600));
        options.limits(LimitsFile::read(&path).unwrap()).timeouts(timeouts)
    });
    let mut peer = served.peer().with_channel();
    peer.create("log", "fast", 4 << 20);
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    let began = Instant::now();
    peer.write(grant, 0, &vec![1; 2 << 20]).unwrap();
    assert!(began.elapsed() > Duration::from_millis(1200), "{:?}", began.elapsed());
}
