//! kill -9 at any moment, thousands of times: of clients, which others do not notice and which leave nothing
//! behind; and of the server, after which clients continue with the next server.
//!
//! Failures that this looks for: another client's request fails or waits; the server keeps a descriptor, a
//! mapping, memory or a grant of a killed client; a request is lost or carried out twice; data that was
//! reported durable is lost.
//!
//! `BYWASH_STRESS_ROUNDS=5000` sets the number of kills, and `BYWASH_STRESS_SEED` repeats a run; by default a
//! test ends after some seconds.

use crate::peer::{LIMIT, Peer, pattern};
use crate::process::{Process, Serving};
use crate::registered::wait_until;
use bywash_channel::{Options as ChannelOptions, Submission, Wait};
use bywash_client::{Client, Options, PathChoice, Queue, Reconnect, RequestMemory};
use bywash_protocol::layout::{FUA, Opcode};
use bywash_protocol::{Access, ControlReply, ControlRequest};
use bywash_support::peers::{Child, Random, role, rounds};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time for which a test kills processes if no number of rounds is given.
const A_WHILE: Duration = Duration::from_secs(4);
/// Number of clients that live at the same time.
const AT_A_TIME: usize = 4;
const VOLUME: u64 = 2 << 20;

/// A client that does everything clients do, until it is killed.
#[test]
fn a_client() {
    let Some(role) = role() else { return };
    let (folder, seed) = role.split_once(' ').unwrap();
    let (folder, mut random) = (Path::new(folder), Random(seed.parse().unwrap()));
    loop {
        let mut peer = Peer::connect(&folder.join("socket"));
        let depth = 1 << random.below(7);
        let wait = random.one_of(&[Wait::Adaptive, Wait::Sleep]);
        peer.make_channel(ChannelOptions::new().depth(depth).arena_bytes(1 << 20).wait(wait));
        for _ in 0..random.below(6) {
            use_a_grant(&mut peer, folder, &mut random);
        }
    }
}

/// Opens a grant, reads and writes over the channel, asks for chunks, and closes. Requests may be refused, if
/// an administrator has just revoked the grant.
fn use_a_grant(peer: &mut Peer, folder: &Path, random: &mut Random) {
    let granted = match random.below(4) {
        0 => {
            let file = std::fs::File::open(folder.join("passed")).unwrap();
            peer.ask_with(ControlRequest::OpenDescriptor {}, &[file.as_fd()]).map(|(answer, _)| answer)
        }
        other => {
            let volume = ["fast-theirs", "slow-theirs"][other as usize % 2].into();
            peer.ask(ControlRequest::Open {
                volume,
                access: random.one_of(&[Access::Read, Access::ReadWrite]),
            })
        }
    };
    let Ok(ControlReply::Granted(granted)) = granted else { return };
    let grant = granted.grant;
    if granted.unmappable_reason.is_none() {
        // Nobody maps the chunks: the test needs only that the server has given out their descriptors.
        let _ = peer.ask(ControlRequest::Map { grant, from: 0 });
    }
    let channel = peer.channel.as_mut().unwrap();
    for _ in 0..random.below(200) {
        let length = 4096 << random.below(5);
        let Ok(buffer) = channel.alloc(length as usize) else { continue };
        let opcode = if granted.access.allows_write() { random.one_of(&[1, 2]) } else { 1 };
        let at = [grant, random.below((VOLUME - length) / 4096) * 4096, length, 0, 0, 0];
        if channel.in_flight() == channel.depth() {
            channel.reap_within(LIMIT).unwrap();
        }
        channel.submit(Submission::new(opcode).arguments(at).buffer(buffer)).unwrap();
    }
    if random.below(2) == 0 {
        while channel.in_flight() > 0 {
            channel.reap_within(LIMIT).unwrap();
        }
        let _ = peer.ask(ControlRequest::Close { grant });
    }
}

/// Runs a client that is not killed: it writes and reads. Returns the longest time that a pair of requests
/// took.
fn go_on(mut peer: Peer, volume: &str, stop: &AtomicBool) -> Duration {
    let grant = peer.open(volume, Access::ReadWrite).unwrap().grant;
    let (mut longest, mut number) = (Duration::ZERO, 0u64);
    while !stop.load(Relaxed) {
        number += 1;
        let (at, data) = (number % 128 * 8192, pattern(number, 8192));
        let began = Instant::now();
        peer.write(grant, at, &data).unwrap();
        assert!(peer.read(grant, at, 8192).unwrap() == data, "{volume} has other bytes at {at}");
        longest = longest.max(began.elapsed());
    }
    longest
}

#[test]
fn nobody_notices_clients_that_are_killed() {
    let serving = Serving::start("fast=mem:16M,pages=4K", "");
    // The kernel shows no buffers of a ring that is busy.
    let pins = serving.registered(0) > 0;
    std::fs::write(serving.folder().join("passed"), vec![7; VOLUME as usize]).unwrap();
    let admin = serving.peer();
    for (volume, device) in
        [("good", "fast"), ("fast-theirs", "fast"), ("slow-theirs", "disk"), ("slow-good", "disk")]
    {
        admin.create(volume, device, VOLUME);
    }
    let mut random = Random::seeded("nobody_notices_clients_that_are_killed");
    let (stop, wanted) = (AtomicBool::new(false), rounds(0));
    let (mut killed, mut before) = (0, None);
    let began = Instant::now();
    let longest = std::thread::scope(|scope| {
        let going_on = ["good", "slow-good"].map(|volume| {
            let (peer, stop) = (serving.peer().with_channel(), &stop);
            scope.spawn(move || go_on(peer, volume, stop))
        });
        let _stop = Stop(&stop);
        let mut children = std::collections::VecDeque::new();
        while killed < wanted || (wanted == 0 && began.elapsed() < A_WHILE) {
            let role = format!("{} {}", serving.folder().display(), random.number());
            children.push_back(Child::start("kill::a_client", &role, Vec::new()));
            std::thread::sleep(Duration::from_micros(random.below(8000)));
            if children.len() > AT_A_TIME {
                // Mostly the oldest client is killed, sometimes one that has hardly begun.
                let child = if random.below(4) == 0 { children.pop_back() } else { children.pop_front() };
                child.unwrap().kill();
                killed += 1;
            }
            if random.below(16) == 0 {
                let volume = random.one_of(&["fast-theirs", "slow-theirs"]).into();
                admin.ask(ControlRequest::Revoke { volume }).unwrap();
            }
            if killed == 20 && before.is_none() {
                children.clear();
                // One of the remaining clients gets its arena pinned after a while, which costs the server a
                // descriptor.
                wait_until("its arena is pinned", || !pins || serving.registered(4 << 20) > 0);
                before = Some(serving.settled(&admin, 3));
            }
        }
        drop(children);
        let after = serving.settled(&admin, 3);
        let before = before.expect("more than that were killed");
        eprintln!("{killed} clients were killed in {:?}: {before:?}, then {after:?}", began.elapsed());
        assert_eq!((before.descriptors, before.mappings), (after.descriptors, after.mappings));
        // The server keeps some memory for reuse: each of a user's helper threads has an arena of malloc's.
        // It does not grow with the number of clients: 400 clients left 4 MiB, and 1,600 left 6.
        assert!(after.anonymous < before.anonymous + (8 << 20), "{before:?}, then {after:?}");
        stop.store(true, Relaxed);
        going_on.map(|one| one.join().unwrap())
    });
    eprintln!("the longest that others took for a write and a read was {longest:?}");
    assert!(longest.iter().all(|longest| *longest < LIMIT / 4), "{longest:?}");
}

/// Ends the remaining clients, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The server is killed under a queue, and under a thread that waits; both reconnect to the next server. Each
/// write that was completed as durable is still there, and at the end each block has what was written last.
#[test]
fn clients_go_on_behind_a_server_that_is_killed() {
    let mut serving = Serving::start("fast=mem:4M,pages=4K", "");
    serving.peer().create("log", "disk", VOLUME);
    let mut random = Random::seeded("clients_go_on_behind_a_server_that_is_killed");
    let options = Options::new().choice(PathChoice::Channel).reconnect(Reconnect::Within(LIMIT)).limit(LIMIT);
    let client = Client::connect(serving.socket(), options.clone()).unwrap();
    let mut queue = Queue::connect(serving.socket(), options).unwrap();
    let (stop, wanted) = (AtomicBool::new(false), rounds(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let stopping = Stop(&stop);
        scope.spawn(|| {
            let volume = client.open("log", Access::ReadWrite).unwrap();
            for number in 0u64.. {
                let (at, data) = (number % 64 * 4096, pattern(number, 4096));
                volume.write_at_durable(&data, at).unwrap();
                let mut there = vec![0; 4096];
                volume.read_at(&mut there, at).unwrap();
                assert!(there == data, "write {number} was durable, and is not there");
                if stop.load(Relaxed) {
                    return;
                }
            }
        });
        let queued = scope.spawn(|| go_on_by_queue(&mut queue, &stop));
        let mut killed = 0;
        while killed < wanted || (wanted == 0 && began.elapsed() < A_WHILE) {
            std::thread::sleep(Duration::from_micros(random.below(80_000)));
            serving.kill();
            serving.start_again();
            killed += 1;
        }
        drop(stopping);
        let (done, reconnects) = queued.join().unwrap();
        eprintln!(
            "{killed} servers were killed in {:?}: {done} requests, {reconnects} reconnects",
            began.elapsed()
        );
        assert!(reconnects > 0 && killed > 3);
    });
}

/// Writes blocks in turn, none twice at a time. Returns the numbers of writes and of reconnects.
fn go_on_by_queue(queue: &mut Queue, stop: &AtomicBool) -> (u64, u64) {
    const BLOCKS: u64 = 64;
    let log = queue.open("log", Access::ReadWrite).unwrap();
    let place = |block: u64| (BLOCKS + block) * 4096;
    let (mut last, mut is_in_flight) = ([0u64; BLOCKS as usize], [false; BLOCKS as usize]);
    let mut number = 0u64;
    while !stop.load(Relaxed) {
        number += 1;
        let block = number % BLOCKS;
        while is_in_flight[block as usize] {
            let done = queue.reap().unwrap();
            done.outcome.unwrap();
            assert!(std::mem::take(&mut is_in_flight[done.user_data as usize]), "it was completed twice");
        }
        last[block as usize] = number;
        is_in_flight[block as usize] = true;
        let durable = number.is_multiple_of(3);
        queue.write_from(log, place(block), &pattern(number, 4096), durable, block).unwrap();
    }
    while queue.in_flight() > 0 {
        queue.reap().unwrap().outcome.unwrap();
    }
    for (block, number) in (0u64..).zip(last).filter(|(_, number)| *number > 0) {
        queue.read(log, place(block), vec![0; 4096], block).unwrap();
        let Some(RequestMemory::Own(there)) = queue.reap().unwrap().memory else { panic!("no room") };
        assert!(there == pattern(number, 4096), "block {block} is not what was written last");
    }
    (number, queue.reconnects())
}

impl Serving {
    /// Returns the state of the server's process when only this number of clients is left.
    fn settled(&self, admin: &Peer, clients: usize) -> Process {
        let end = Instant::now() + LIMIT;
        let report = || {
            let (answer, files) = admin.ask_with(ControlRequest::Status {}, &[]).unwrap();
            assert_eq!(answer, ControlReply::Report {});
            let status = std::fs::read_to_string(format!(
                "/proc/self/fd/{}",
                std::os::fd::AsRawFd::as_raw_fd(&files[0])
            ));
            serde_json::from_str::<bywash_protocol::report::Status>(&status.unwrap()).unwrap()
        };
        loop {
            let status = report();
            let is_settled = status.clients.len() == clients
                && status.devices.iter().filter(|device| device.name.starts_with("of client")).count() == 0;
            if is_settled {
                // Helpers drop what the clients held a moment later.
                std::thread::sleep(Duration::from_millis(100));
                return self.process();
            }
            assert!(Instant::now() < end, "they are not gone: {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_request_that_is_durable_is_so_when_its_client_is_killed() {
    // A write that was reported durable survives a kill of the client and of the server.
    let mut serving = Serving::start("fast=mem:4M,pages=4K", "");
    let mut peer = serving.peer().with_channel();
    peer.create("log", "disk", VOLUME);
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    peer.done(Opcode::Write, FUA, [grant, 4096, 4096, 0, 0, 0], Some(&pattern(9, 4096))).unwrap();
    serving.kill();
    serving.start_again();
    let mut peer = serving.peer().with_channel();
    let grant = peer.open("log", Access::Read).unwrap().grant;
    assert_eq!(peer.read(grant, 4096, 4096).unwrap(), pattern(9, 4096));
}
