//! Tests of a server that ends, or is killed by SIGKILL at an arbitrary moment, and is started again.
//!
//! Failures that this looks for: a call waits for ever; a request is lost, or completes twice; a write that
//! was reported as done is not in the volume; lent memory is not returned.
//!
//! `BYWASH_STRESS_ROUNDS=1000` kills more often, and `BYWASH_STRESS_SEED` repeats a run.

use crate::model::{Running, World};
use crate::{BYTES, Bench, forking, options, until};
use bywash_client::{Access, Client, Error, PathChoice, Queue, Reconnect, RequestMemory};
use bywash_support::peers::{Child, Random, role, rounds};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Greatest time until a client notices a server's death.
const SOON: Duration = Duration::from_secs(4);

/// Runs a server in a process of its own, given a socket and a file. Does nothing when run as a test.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let (socket, file) = role.split_once(' ').unwrap();
    let world = World::default().memory("fast", BYTES).file("slow", Path::new(file), BYTES);
    let _running = Running::start(&world, Path::new(socket));
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

/// Starts a server in a process of its own, and waits until it listens.
fn start(folder: &Path) -> Child {
    let (socket, file) = (folder.join("socket"), folder.join("slow"));
    let role = format!("{} {}", socket.display(), file.display());
    let forking = forking();
    let child = Child::start("death::child", &role, vec![]);
    drop(forking);
    let is_there = || Client::connect(&socket, options(PathChoice::Channel)).is_ok();
    until("a server", is_there);
    child
}

fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Gone { .. })
}

#[test]
fn without_reconnecting_everything_ends_with_an_error() {
    for choice in [PathChoice::Automatic, PathChoice::Channel] {
        let mut bench = Bench::new();
        let client = Client::connect(&bench.socket, options(choice)).unwrap();
        let volume = client.open("fast", Access::ReadWrite).unwrap();
        let other = client.open("slow", Access::ReadWrite).unwrap();
        volume.write_at(&[1; 512], 0).unwrap();
        let mut queue = client.queue().unwrap();
        let slow = queue.open("slow", Access::ReadWrite).unwrap();
        bench.world.knobs.hold.store(true, Relaxed);
        queue.write_from(slow, 0, &[1; 512], false, 1).unwrap();
        queue.read(slow, 0, vec![9; 512], 2).unwrap();
        queue.compare_and_write(slow, 0, &[0; 512], &[1; 512], 3).unwrap();
        let buffer = queue.alloc(512).unwrap();
        queue.read(slow, 0, buffer, 4).unwrap();
        let begun = Instant::now();
        let waiting = thread::spawn(move || other.write_at(&[1; 512], 0));
        thread::sleep(Duration::from_millis(20));
        bench.kill();
        assert!(is_gone(&waiting.join().unwrap().unwrap_err()));
        // Waiting returns without an error; reaping reports the server's death.
        queue.wait_for(4, SOON).unwrap();
        let mut ends: Vec<_> = (0..4).map(|_| queue.reap().unwrap()).collect();
        ends.sort_by_key(|done| done.user_data);
        for done in &ends {
            match (&done.outcome, &done.memory) {
                (Err(Error::OutcomeUnknown), None) => assert_eq!(done.user_data, 3),
                (Err(Error::Gone { .. }), Some(RequestMemory::Own(bytes))) => {
                    assert_eq!((done.user_data, bytes), (2, &vec![9; 512]));
                }
                // A buffer of the arena is not returned, since the server may still write to it.
                (Err(Error::Gone { .. }), None) => assert!([1, 4].contains(&done.user_data)),
                other => panic!("{other:?}"),
            }
        }
        assert!(is_gone(&queue.reap().unwrap_err()) && is_gone(&queue.flush(slow, 5).unwrap_err().error));
        assert!(
            is_gone(&queue.arm().unwrap_err()) && is_gone(&queue.open("slow", Access::Read).unwrap_err())
        );
        assert!(is_gone(&volume.flush().unwrap_err()));
        let open = client.open("slow", Access::Read).unwrap_err();
        assert!(is_gone(&open), "{open}");
        assert!(begun.elapsed() < SOON);
    }
}

#[test]
fn who_only_looks_finds_out_as_well() {
    let mut bench = Bench::new();
    let mut queue = Queue::connect(&bench.socket, options(PathChoice::Automatic)).unwrap();
    let fast = queue.open("fast", Access::ReadWrite).unwrap();
    let client = Client::connect(&bench.socket, options(PathChoice::Mapped)).unwrap();
    let volume = client.open("fast", Access::ReadWrite).unwrap();
    bench.kill();
    // The mapped memory stays accessible. The client checks now and then that the server is alive.
    let ended = (0..5000).find_map(|_| volume.write_at(&[1; 512], 0).err());
    assert!(is_gone(&ended.unwrap()));
    let ended = (0..5000).find_map(|number| {
        queue.write_from(fast, 0, &[1; 512], false, number).unwrap();
        queue.try_reap().unwrap().unwrap().outcome.err()
    });
    assert!(is_gone(&ended.unwrap()));
}

#[test]
fn a_client_connects_again_and_asks_again() {
    let mut bench = Bench::new();
    for choice in [PathChoice::Automatic, PathChoice::Channel] {
        let options = options(choice).reconnect(Reconnect::Within(SOON));
        let client = Client::connect(&bench.socket, options).unwrap();
        let fast = client.open("fast", Access::ReadWrite).unwrap();
        let slow = client.open("slow", Access::ReadWrite).unwrap();
        let path = bench.folder.path().join("passed");
        std::fs::write(&path, vec![7; 8192]).unwrap();
        let passed = client.open_descriptor(std::fs::File::open(&path).unwrap()).unwrap();
        let flushes = client.reconnects();
        for round in 1..4u8 {
            slow.write_at(&[round; 512], 0).unwrap();
            bench.world.knobs.hold.store(true, Relaxed);
            let (one, other) = (slow.clone(), slow.clone());
            let writing = thread::spawn(move || one.write_at(&[round + 10; 512], 512));
            let comparing = thread::spawn(move || other.compare_and_write(1024, &[0; 512], &[1; 512]));
            thread::sleep(Duration::from_millis(30));
            bench.kill();
            thread::sleep(Duration::from_millis(30));
            bench.world.knobs.hold.store(false, Relaxed);
            bench.start();
            writing.join().unwrap().unwrap();
            assert!(matches!(comparing.join().unwrap(), Err(Error::OutcomeUnknown)));
            let mut bytes = [0; 1024];
            slow.read_at(&mut bytes, 0).unwrap();
            assert_eq!((bytes[0], bytes[512]), (round, round + 10));
            // The bytes in the server's memory are lost, which one flush reports.
            assert!(is_gone(&fast.flush().unwrap_err()));
            assert_eq!(client.reconnects(), flushes + u64::from(round));
            fast.flush().unwrap();
            fast.write_at(&[round; 512], 0).unwrap();
            assert_eq!(bench.world.contents("fast")[0], round);
            passed.read_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, [7; 1024]);
        }
        assert_eq!(client.volumes().unwrap().iter().filter(|one| one.name == "fast").count(), 1);
        bench.kill();
        bench.start();
        client.revoke("fast").unwrap();
    }
}

#[test]
fn a_queue_submits_again_what_was_not_completed() {
    let mut bench = Bench::new();
    let options = options(PathChoice::Automatic).reconnect(Reconnect::Within(SOON));
    let mut queue = Queue::connect(&bench.socket, options).unwrap();
    let slow = queue.open("slow", Access::ReadWrite).unwrap();
    let fast = queue.open("fast", Access::ReadWrite).unwrap();
    let mut kept = queue.alloc(512).unwrap();
    kept.write(0, &[6; 512]);
    bench.world.knobs.hold.store(true, Relaxed);
    let mut buffer = queue.alloc(512).unwrap();
    buffer.write(0, &[1; 512]);
    queue.write(slow, 0, buffer, true, 0).unwrap();
    queue.write_from(slow, 512, &[2; 512], false, 1).unwrap();
    queue.compare_and_write(slow, 1024, &[0; 512], &[3; 512], 2).unwrap();
    queue.write_many(&[(slow, 1536, &[4; 512]), (fast, 0, &[5; 512])], false, 3).unwrap();
    queue.read(slow, 2048, vec![9; 512], 4).unwrap();
    queue.write_from(fast, 512, &[8; 512], false, 5).unwrap();
    bench.kill();
    bench.world.knobs.hold.store(false, Relaxed);
    bench.start();
    let mut ends: Vec<_> = (0..6).map(|_| queue.reap().unwrap()).collect();
    assert_eq!((queue.reconnects(), queue.in_flight()), (1, 0));
    ends.sort_by_key(|done| done.user_data);
    for done in ends {
        match done.user_data {
            2 => assert!(matches!(done.outcome, Err(Error::OutcomeUnknown))),
            // A request to mapped memory was carried out. It succeeds if it was reaped before the death was
            // noticed.
            5 => assert!(done.outcome.is_ok() || matches!(done.outcome, Err(Error::Gone { .. }))),
            _ => done.outcome.unwrap(),
        }
        match (done.user_data, done.memory) {
            (0, Some(RequestMemory::Arena(buffer))) => {
                // The returned buffer belongs to the new arena, and has the bytes of the old one.
                let mut bytes = [0; 512];
                buffer.read(0, &mut bytes);
                assert_eq!(bytes, [1; 512]);
                queue.write(slow, 4096, buffer, false, 6).unwrap();
            }
            (4, Some(RequestMemory::Own(bytes))) => assert_eq!(bytes, [0; 512]),
            (0 | 4, other) => panic!("{other:?}"),
            _ => {}
        }
    }
    queue.reap().unwrap().outcome.unwrap();
    // The buffer belongs to the arena of the old connection, so it is copied into the new arena.
    queue.write(slow, 4608, kept, false, 7).unwrap();
    queue.reap().unwrap().outcome.unwrap();
    let (slow, fast) = (bench.world.contents("slow"), bench.world.contents("fast"));
    assert_eq!([slow[0], slow[512], slow[1536], fast[0], slow[4096], slow[4608]], [1, 2, 4, 5, 1, 6]);
}

#[test]
fn a_volume_that_is_gone_is_an_error_of_its_own() {
    let mut bench = Bench::new();
    let options = options(PathChoice::Channel).reconnect(Reconnect::Within(SOON));
    let mut queue = Queue::connect(&bench.socket, options.clone()).unwrap();
    let (slow, fast) =
        (queue.open("slow", Access::ReadWrite).unwrap(), queue.open("fast", Access::ReadWrite).unwrap());
    bench.world.knobs.hold.store(true, Relaxed);
    queue.write_from(slow, 0, &[1; 512], false, 1).unwrap();
    queue.write_from(fast, 0, &[2; 512], false, 2).unwrap();
    Client::connect(&bench.socket, options).unwrap().rename("fast", "faster").unwrap();
    bench.kill();
    bench.world.knobs.hold.store(false, Relaxed);
    bench.start();
    let mut ends = [queue.reap().unwrap(), queue.reap().unwrap()];
    ends.sort_by_key(|done| done.user_data);
    assert!(ends[0].outcome.is_ok());
    let error = ends[1].outcome.as_ref().unwrap_err().to_string();
    assert!(error.contains("cannot open fast"), "{error}");
    assert!(queue.write_from(fast, 0, &[2; 512], false, 3).is_err());
    queue.close(slow).unwrap();
}

#[test]
fn nobody_comes_back() {
    let mut bench = Bench::new();
    let given = Duration::from_millis(200);
    let options = options(PathChoice::Automatic).reconnect(Reconnect::Within(given));
    let client = Client::connect(&bench.socket, options).unwrap();
    let slow = client.open("slow", Access::ReadWrite).unwrap();
    slow.flush().unwrap();
    bench.kill();
    let begun = Instant::now();
    let error = slow.flush().unwrap_err().to_string();
    assert!(error.contains("could not be connected to again"), "{error}");
    assert!(begun.elapsed() >= given && begun.elapsed() < SOON);
}

/// A server is killed at arbitrary moments, and started again each time. A queue, and a thread with calls
/// that wait, go on as if nothing had happened.
#[test]
fn a_server_is_killed_in_the_middle() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path());
    let mut random = Random::seeded("a_server_is_killed_in_the_middle");
    let socket = folder.path().join("socket");
    let options = options(PathChoice::Channel).reconnect(Reconnect::Within(Duration::from_secs(10)));
    let client = Client::connect(&socket, options).unwrap();
    let volume = client.open("slow", Access::ReadWrite).unwrap();
    let mut queue = client.queue().unwrap();
    let slow = queue.open("slow", Access::ReadWrite).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // This thread and the other one use different blocks of the volume.
            for number in 0u64.. {
                let (at, byte) = (number % 8 * 512, number as u8);
                volume.write_at(&[byte; 512], at).unwrap();
                let mut bytes = [0; 512];
                volume.read_at(&mut bytes, at).unwrap();
                assert_eq!(bytes, [byte; 512]);
                if stop.load(Relaxed) {
                    return;
                }
            }
        });
        scope.spawn(|| {
            let (mut last, mut is_in_flight) = ([0u8; 64], [false; 64]);
            for number in 0u64.. {
                let place = (number % 64) as usize;
                if !is_in_flight[place] {
                    last[place] = number as u8;
                    let at = (64 + place as u64) * 512;
                    match queue.write_from(slow, at, &[last[place]; 512], false, place as u64) {
                        Ok(()) => is_in_flight[place] = true,
                        Err(refused) => assert!(matches!(refused.error, Error::Full { .. }), "{refused}"),
                    }
                }
                if queue.in_flight() == queue.depth() {
                    let done = queue.reap().unwrap();
                    done.outcome.unwrap();
                    let place = done.user_data as usize;
                    assert!(std::mem::take(&mut is_in_flight[place]), "it was completed twice");
                }
                if stop.load(Relaxed) {
                    break;
                }
            }
            while queue.in_flight() > 0 {
                queue.reap().unwrap().outcome.unwrap();
            }
            for (place, byte) in last.into_iter().enumerate() {
                queue.read(slow, (64 + place as u64) * 512, vec![0; 512], 0).unwrap();
                let Some(RequestMemory::Own(bytes)) = queue.reap().unwrap().memory else { panic!("no room") };
                assert_eq!(bytes, [byte; 512], "block {place}");
            }
        });
        for _ in 0..rounds(8) {
            thread::sleep(Duration::from_micros(random.below(60_000)));
            child.kill();
            child = start(folder.path());
        }
        thread::sleep(Duration::from_millis(20));
        stop.store(true, Relaxed);
    });
}
