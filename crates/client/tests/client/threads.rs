//! Tests of several threads that share a client, and of callbacks.

use crate::{BYTES, Bench, options};
use bywash_client::{Access, Client, Error, PathChoice, QueueDispatcher, ReadPiece, Wait};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn threads_share_a_client_whose_channel_is_shallower_than_they_are_many() {
    for wait in [Wait::Adaptive, Wait::Sleep] {
        let bench = Bench::new();
        let options = options(PathChoice::Channel).depth(2).arena_bytes(8192).wait(wait);
        let client = Client::connect(&bench.socket, options).unwrap();
        let volume = client.open("slow", Access::ReadWrite).unwrap();
        let threads = 8;
        let each = BYTES / threads / 512 * 512;
        thread::scope(|scope| {
            for thread in 0..threads {
                let (volume, start) = (volume.clone(), thread * each);
                scope.spawn(move || {
                    for round in 0..20u8 {
                        let byte = thread as u8 * 20 + round;
                        let at = start + u64::from(round) * 512;
                        volume.write_at(&[byte; 1024], at).unwrap();
                        let mut bytes = [0; 1024];
                        volume.read_at(&mut bytes, at).unwrap();
                        assert_eq!(bytes, [byte; 1024]);
                    }
                });
            }
        });
    }
}

/// A call frees its memory after it has copied its bytes out. So a thread that waits for memory must not
/// block in reaping a completion then.
#[test]
fn an_arena_that_is_too_small_for_all_is_shared() {
    let bench = Bench::new();
    let options = options(PathChoice::Channel).depth(8).arena_bytes(4096).limit(Duration::from_secs(20));
    let client = Client::connect(&bench.socket, options).unwrap();
    let volume = client.open("slow", Access::ReadWrite).unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        for thread in 0..8u64 {
            let (volume, client) = (volume.clone(), client.clone());
            scope.spawn(move || {
                for round in 0..30u8 {
                    let at = thread * 8192;
                    volume.write_at(&[round; 4096], at).unwrap();
                    let (mut one, mut other) = ([0; 1024], [0; 512]);
                    let pieces = &mut [
                        ReadPiece { volume: &volume, offset: at, to: &mut one },
                        ReadPiece { volume: &volume, offset: at + 3584, to: &mut other },
                    ];
                    client.read_many(pieces).unwrap();
                    assert_eq!((one, other), ([round; 1024], [round; 512]));
                    assert!(volume.compare_and_write(at, &one, &[100; 1024]).unwrap());
                }
            });
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// The completions of abandoned requests are reaped by calls that wait for their room.
#[test]
fn what_was_abandoned_does_not_keep_its_room() {
    let bench = Bench::new();
    let options = options(PathChoice::Channel).depth(2).arena_bytes(4096).limit(Duration::from_millis(200));
    let client = Client::connect(&bench.socket, options).unwrap();
    let volume = client.open("slow", Access::ReadWrite).unwrap();
    volume.flush().unwrap();
    bench.world.knobs.hold.store(true, Relaxed);
    for at in [0, 512] {
        assert!(matches!(volume.write_at(&[1; 512], at), Err(Error::TimedOut { .. })));
    }
    let knobs = bench.world.knobs.clone();
    let later = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        knobs.hold.store(false, Relaxed);
    });
    volume.write_at(&[2; 512], 1024).unwrap();
    later.join().unwrap();
    let contents = bench.world.contents("slow");
    assert_eq!((contents[0], contents[512], contents[1024]), (1, 1, 2));
}

#[test]
fn who_gives_up_keeps_nobody_from_going_on() {
    let bench = Bench::new();
    let limit = Duration::from_millis(300);
    let options = options(PathChoice::Channel).depth(4).limit(limit);
    let client = Client::connect(&bench.socket, options).unwrap();
    let volume = client.open("slow", Access::ReadWrite).unwrap();
    volume.flush().unwrap();
    bench.world.knobs.hold.store(true, Relaxed);
    // The threads time out one after the other, and each hands the reaping on, even those that had no place.
    let outcomes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8u64)
            .map(|number| {
                let volume = volume.clone();
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(20 * number));
                    volume.write_at(&[number as u8; 512], number * 512)
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(380));
        bench.world.knobs.hold.store(false, Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(matches!(outcomes[0], Err(Error::TimedOut { .. })), "{outcomes:?}");
    assert!(outcomes[7].is_ok(), "{outcomes:?}");
    for _ in 0..20 {
        volume.read_at(&mut [0; 512], 0).unwrap();
    }
}

#[test]
fn mapped_volumes_are_shared_as_well() {
    let bench = Bench::new();
    let client = Client::connect(&bench.socket, options(PathChoice::Mapped)).unwrap();
    let volume = client.open("fast", Access::ReadWrite).unwrap();
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let volume = volume.clone();
            scope.spawn(move || {
                for round in 0..5000u64 {
                    let at = (thread * 100 + round % 100) * 512;
                    volume.write_at(&[round as u8; 512], at).unwrap();
                    let mut bytes = [0; 512];
                    volume.read_at(&mut bytes, at).unwrap();
                    assert_eq!(bytes, [round as u8; 512]);
                }
            });
        }
    });
}

#[test]
fn callbacks_come_for_every_request_of_either_way() {
    let bench = Bench::new();
    let client = Client::connect(&bench.socket, options(PathChoice::Automatic)).unwrap();
    let mut queue = client.queue().unwrap();
    let fast = queue.open("fast", Access::ReadWrite).unwrap();
    let slow = queue.open("slow", Access::ReadWrite).unwrap();
    let (send, receive) = channel();
    let (seen, own) = (Arc::new(AtomicUsize::new(0)), Arc::new(OnceLock::<Arc<QueueDispatcher>>::new()));
    let (count, within) = (seen.clone(), own.clone());
    let dispatcher = queue
        .dispatch(move |done| {
            let done = done.unwrap();
            done.outcome.unwrap();
            count.fetch_add(1, Relaxed);
            // The callback submits a further request for the first of each hundred requests.
            if done.user_data.is_multiple_of(100) {
                let dispatcher: &Arc<QueueDispatcher> = within.wait();
                assert!(dispatcher.is_own_callback());
                dispatcher.with(|queue| queue.flush(fast, 1)).unwrap();
            }
            send.send(done.user_data).unwrap();
        })
        .unwrap();
    let dispatcher = Arc::new(dispatcher);
    own.set(dispatcher.clone()).unwrap();
    for number in 0..200u64 {
        let volume = if number.is_multiple_of(2) { fast } else { slow };
        // Two places stay free for the requests of the callback, which cannot wait for a place.
        while dispatcher.with(|queue| queue.in_flight() + 2 >= queue.depth()) {
            thread::sleep(Duration::from_micros(100));
        }
        dispatcher.with(|queue| queue.write_from(volume, number * 512, &[3; 512], false, number)).unwrap();
    }
    for _ in 0..202 {
        receive.recv_timeout(Duration::from_secs(10)).unwrap();
    }
    assert_eq!(seen.load(Relaxed), 202);
    assert!(bench.world.contents("slow")[512..1024].iter().all(|byte| *byte == 3));
}

#[test]
fn a_dispatcher_gives_its_queue_back() {
    let bench = Bench::new();
    let client = Client::connect(&bench.socket, options(PathChoice::Automatic)).unwrap();
    let mut queue = client.queue().unwrap();
    let slow = queue.open("slow", Access::ReadWrite).unwrap();
    let dispatcher = queue.dispatch(|done| drop(done.unwrap())).unwrap();
    dispatcher.with(|queue| queue.flush(slow, 1)).unwrap();
    let mut queue = dispatcher.stop().unwrap_or_else(|_| panic!("it is no callback"));
    queue.flush(slow, 2).unwrap();
    while queue.reap().unwrap().user_data != 2 {}
}
