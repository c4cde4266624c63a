//! Both ends of a path in one process, each in its own thread.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_container::{Error, HugePages, Listener, Options, Path, Shipment, Wait, socket_pair};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_millis(30);

/// Makes a path and runs its two ends, the first in a thread.
fn both<A: Send + 'static, B>(
    one: &Options,
    other: &Options,
    first: impl FnOnce(Path) -> A + Send + 'static,
    second: impl FnOnce(Path) -> B,
) -> (A, B) {
    let (here, there) = socket_pair().unwrap();
    let options = one.clone();
    let thread = thread::spawn(move || first(Path::over(here, &options).unwrap()));
    let answer = second(Path::over(there, other).unwrap());
    (thread.join().unwrap(), answer)
}

fn small() -> Options {
    Options::new().arena_bytes(1 << 20).huge_pages(HugePages::No)
}

fn trusted() -> Options {
    // SAFETY: both ends are threads of this test, which use the library as intended and do not write to
    // shipped containers.
    unsafe { small().trusted() }
}

/// Fills `bytes` with a pattern that depends on position and seed.
fn fill(bytes: &mut [u8], seed: usize) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (at * 31 + seed * 7) as u8;
    }
}

#[test]
fn every_size_arrives_whole_and_in_order() {
    for wait in [Wait::Adaptive, Wait::Sleep, Wait::Spin] {
        for options in [small().wait(wait), trusted().wait(wait), small().sealed().wait(wait)] {
            const SIZES: [usize; 9] = [1, 8, 119, 120, 121, 4096, 5000, 65_536, 300_000];
            let rounds = if wait == Wait::Spin { 3 } else { 20 };
            both(
                &options,
                &options,
                move |path| {
                    for round in 0..rounds {
                        for size in SIZES {
                            let mut container = path.alloc(size).unwrap();
                            fill(&mut container, size + round);
                            path.ship(container).unwrap();
                        }
                    }
                    // Waits until the peer has received everything and closes.
                    assert!(matches!(path.receive(), Err(Error::Closed)));
                },
                move |path| {
                    for round in 0..rounds {
                        for size in SIZES {
                            let message = path.receive().unwrap();
                            let mut expected = vec![0; size];
                            fill(&mut expected, size + round);
                            assert_eq!(message.to_vec().unwrap(), expected);
                            if let Ok(inside) = message.first().map() {
                                assert_eq!(*inside, expected);
                            }
                        }
                    }
                },
            );
        }
    }
}

#[test]
fn what_was_shipped_before_the_end_arrives() {
    both(
        &small(),
        &small(),
        |path| {
            for number in 0..100u8 {
                let mut container = path.alloc(1000).unwrap();
                container[999] = number;
                path.ship(container).unwrap();
            }
        },
        |path| {
            thread::sleep(Duration::from_millis(50));
            for number in 0..100 {
                assert_eq!(path.receive().unwrap().to_vec().unwrap()[999], number);
            }
            assert!(matches!(path.receive(), Err(Error::Closed)));
            assert!(matches!(path.try_receive(), Err(Error::Closed)));
            let container = path.alloc(8).unwrap();
            let refused = path.ship(container).unwrap_err();
            assert!(matches!(refused.error, Error::Closed));
            assert_eq!(refused.shipment.len(), 8);
        },
    );
}

#[test]
fn an_arena_that_is_used_up_makes_wait_and_comes_back() {
    both(
        &small(),
        &small(),
        |path| {
            let mut shipped = 0;
            while let Some(container) = path.try_alloc(100_000).unwrap() {
                path.ship(container).unwrap();
                shipped += 1;
            }
            assert!((4..=10).contains(&shipped), "{shipped}");
            assert!(matches!(
                path.alloc_within(100_000, Duration::from_millis(20)),
                Err(Error::AllocTimedOut { .. })
            ));
            let mut go = path.alloc(1).unwrap();
            go[0] = shipped;
            path.ship(go).unwrap();
            // The peer drops all of them; then the whole arena can be allocated at once.
            let all = path.alloc(1 << 20).unwrap();
            assert_eq!(all.len(), 1 << 20);
            assert!(matches!(path.try_alloc((1 << 20) + 1), Err(Error::TooLarge { .. })));
        },
        |path| {
            thread::sleep(Duration::from_millis(60));
            let mut held = Vec::new();
            loop {
                let message = path.receive().unwrap();
                if message.len() == 1 {
                    assert_eq!(usize::from(message.to_vec().unwrap()[0]), held.len());
                    break;
                }
                held.push(message);
            }
            drop(held);
            assert!(matches!(path.receive(), Err(Error::Closed)));
        },
    );
}

#[test]
fn messages_of_several_containers() {
    both(
        &small(),
        &small(),
        |path| {
            let refused = path.ship_all(Vec::new()).unwrap_err();
            assert!(matches!(refused.error, Error::MessageSize { asked: 0, .. }));
            for count in [1, 2, 7, 8, 15, 64] {
                let shipment: Vec<Shipment> = (0..count)
                    .map(|number| {
                        let mut container = path.alloc(200 + number).unwrap();
                        fill(&mut container, number);
                        container.into()
                    })
                    .collect();
                path.ship_all(shipment).unwrap();
            }
            assert!(matches!(path.receive(), Err(Error::Closed)));
        },
        |path| {
            for count in [1, 2, 7, 8, 15, 64] {
                let message = path.receive().unwrap();
                assert_eq!(message.pieces().count(), count);
                for (number, piece) in message.pieces().enumerate() {
                    let mut expected = vec![0; 200 + number];
                    fill(&mut expected, number);
                    assert_eq!(piece.to_vec().unwrap(), expected);
                }
                assert_eq!(message.to_vec().unwrap().len(), message.len());
            }
        },
    );
}

#[test]
fn forwarding_maps_nothing_and_brings_everything_back() {
    let (a, to_middle) = socket_pair().unwrap();
    let (middle, b) = socket_pair().unwrap();
    let source = thread::spawn(move || {
        let path = Path::over(a, &small()).unwrap();
        for number in 0..2000usize {
            let mut container = path.alloc([50, 3000, 100_000][number % 3]).unwrap();
            fill(&mut container, number);
            path.ship(container).unwrap();
        }
        // All of it was returned, through the middle.
        drop(path.alloc_within(1 << 20, Duration::from_secs(10)).unwrap());
        path.ship(path.alloc(1).unwrap()).unwrap();
        assert!(matches!(path.receive(), Err(Error::Closed)));
    });
    let forwarder = thread::spawn(move || {
        let from = Path::over(to_middle, &small().forward().arena_bytes(0)).unwrap();
        let to = Path::over(middle, &small().forward()).unwrap();
        for _ in 0..2001 {
            let message = from.receive().unwrap();
            if message.len() > 120 {
                assert!(matches!(message.first().map(), Err(Error::NotMapped(_))));
            }
            to.ship_message(message).unwrap();
        }
        assert!(to.stats().forwarded > 1000);
        assert!(matches!(to.receive(), Err(Error::Closed)));
    });
    let path = Path::over(b, &small()).unwrap();
    for number in 0..2000usize {
        let message = path.receive().unwrap();
        let mut expected = vec![0; [50, 3000, 100_000][number % 3]];
        fill(&mut expected, number);
        assert_eq!(message.to_vec().unwrap(), expected);
    }
    assert_eq!(path.receive().unwrap().len(), 1);
    drop(path);
    forwarder.join().unwrap();
    source.join().unwrap();
}

#[test]
fn written_in_place_by_agreement() {
    // SAFETY: both ends are threads of this test, which use the library as intended and write only to
    // containers they own.
    let options = unsafe { small().trusted_to_write() };
    both(
        &options,
        &options,
        |path| {
            let mut container = path.alloc(5000).unwrap();
            container.fill(1);
            path.ship(container).unwrap();
            let back = path.receive().unwrap();
            assert!(back.first().map().unwrap().iter().all(|byte| *byte == 2));
        },
        |path| {
            let mut message = path.receive().unwrap();
            message.first_mut().map_mut().unwrap().fill(2);
            path.ship_message(message).unwrap();
            assert!(matches!(path.receive(), Err(Error::Closed)));
        },
    );
}

#[test]
fn an_event_loop_hears_of_a_message_and_of_the_end() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let readable = |path: &Path| {
        let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
        poll(&mut [PollFd::new(path, PollFlags::IN)], Some(&limit)).unwrap() == 1
    };
    both(
        &small(),
        &small(),
        |path| {
            for _ in 0..20 {
                thread::sleep(Duration::from_millis(2));
                path.ship(path.alloc(10).unwrap()).unwrap();
            }
        },
        |path| {
            let mut heard = 0;
            loop {
                match path.try_receive() {
                    Ok(Some(_)) => heard += 1,
                    Ok(None) => {
                        if !path.arm().unwrap() {
                            assert!(readable(&path), "nothing to hear after {heard}");
                        }
                    }
                    Err(Error::Closed) => break,
                    Err(other) => panic!("{other}"),
                }
            }
            assert_eq!(heard, 20);
        },
    );
}

#[test]
fn ends_that_do_not_fit_say_why() {
    let (here, there) = socket_pair().unwrap();
    let other = thread::spawn(move || Path::over(there, &small()).map(drop));
    let error = Path::over(here, &small().sealed()).unwrap_err();
    assert!(error.to_string().contains("sealed"), "{error}");
    let _ = other.join().unwrap();
    let (here, _there) = socket_pair().unwrap();
    let error = Path::over(here, &small().handshake_timeout(Duration::from_millis(10))).unwrap_err();
    assert!(matches!(error, Error::TimedOut));
    let (here, _there) = socket_pair().unwrap();
    let error = Path::over(here, &small().depth(3)).unwrap_err();
    assert!(error.to_string().contains("power of two"), "{error}");
}

#[test]
fn who_waits_for_room_sleeps() {
    use rustix::time::{ClockId, clock_gettime};
    for wait in [Wait::Sleep, Wait::Adaptive] {
        let options = small().depth(2).wait(wait);
        both(
            &options,
            &options,
            |path| {
                for _ in 0..2 {
                    path.ship(path.alloc(1000).unwrap()).unwrap();
                }
                let container = path.alloc(1000).unwrap();
                let refused = path.ship_within(container, Duration::from_millis(400)).unwrap_err();
                assert!(matches!(refused.error, Error::TimedOut));
                let used = clock_gettime(ClockId::ThreadCPUTime);
                assert!(used.tv_sec == 0 && used.tv_nsec < 200_000_000, "{used:?} while it waited");
            },
            |path| {
                thread::sleep(Duration::from_millis(500));
                assert_eq!(path.receive().unwrap().len(), 1000);
            },
        );
    }
}

#[test]
fn what_finds_no_room_comes_back() {
    both(
        &small().depth(2),
        &small(),
        |path| {
            let mut back = None;
            for number in 0.. {
                let mut container = path.alloc(1000).unwrap();
                fill(&mut container, number);
                back = path.try_ship(container).unwrap();
                if back.is_some() {
                    assert_eq!(number, 2);
                    break;
                }
            }
            assert!(matches!(
                path.ship_within(path.alloc(1).unwrap(), LIMIT).unwrap_err().error,
                Error::TimedOut
            ));
            // The peer sends this message before it receives the first two; then the ring has room.
            path.receive().unwrap();
            path.ship(back.unwrap()).unwrap();
            assert!(matches!(path.receive(), Err(Error::Closed)));
        },
        |path| {
            let mut container = path.alloc(1).unwrap();
            container.fill(0);
            std::thread::sleep(2 * LIMIT);
            path.ship(container).unwrap();
            for number in 0..3 {
                let mut expected = vec![0; 1000];
                fill(&mut expected, number);
                assert_eq!(path.receive().unwrap().to_vec().unwrap(), expected);
            }
        },
    );
}

#[test]
fn a_message_that_is_not_shipped_on_in_time_comes_back() {
    both(
        &small(),
        &small().depth(1),
        |path| {
            for number in 0..2 {
                let mut container = path.alloc(1000).unwrap();
                fill(&mut container, number);
                path.ship(container).unwrap();
            }
            // Late, so that the other end times out first.
            std::thread::sleep(3 * LIMIT);
            assert_eq!(path.receive().unwrap().len(), 1000);
            assert!(matches!(path.receive(), Err(Error::Closed)));
        },
        |path| {
            path.ship_message_within(path.receive().unwrap(), LIMIT).unwrap();
            let message = path.receive().unwrap();
            let refused = path.ship_message_within(message, LIMIT).unwrap_err();
            assert!(matches!(refused.error, Error::TimedOut));
            assert_eq!(refused.shipment.len(), 1);
        },
    );
}

#[test]
fn an_end_can_be_closed_while_others_hold_it() {
    let (here, there) = socket_pair().unwrap();
    let other = thread::spawn(move || Path::over(there, &small()).unwrap());
    let path = Arc::new(Path::over(here, &small()).unwrap());
    let other = other.join().unwrap();
    let mut container = other.alloc(1000).unwrap();
    fill(&mut container, 0);
    other.ship(container).unwrap();
    let mut container = path.alloc(1000).unwrap();
    fill(&mut container, 0);
    path.ship(container).unwrap();
    path.close();
    // Messages that were shipped before the close can be received, at both ends.
    assert_eq!(path.receive().unwrap().len(), 1000);
    assert!(matches!(path.receive(), Err(Error::Closed)));
    assert!(matches!(path.alloc(1000), Err(Error::Closed)));
    assert_eq!(other.receive().unwrap().len(), 1000);
    assert!(matches!(other.receive(), Err(Error::Closed)));
    // A thread that waits already is woken.
    let (here, there) = socket_pair().unwrap();
    let peer = thread::spawn(move || Path::over(there, &small()).unwrap());
    let path = Arc::new(Path::over(here, &small()).unwrap());
    let peer = peer.join().unwrap();
    let waiting = path.clone();
    let waiting = thread::spawn(move || waiting.receive().map(drop));
    thread::sleep(LIMIT);
    path.close();
    assert!(matches!(waiting.join().unwrap(), Err(Error::Closed)));
    // A timeout beyond the range of the clock means none; this call returns at once.
    assert!(matches!(peer.receive_within(Duration::MAX), Err(Error::Closed)));
}

#[test]
fn a_listener_that_nobody_wants_to_reach_does_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("path.sock");
    let listener = Listener::bind(&name).unwrap();
    assert!(listener.try_accept(&small()).unwrap().is_none());
    let there = thread::spawn(move || Path::connect(&name, &small()).map(drop));
    let path = listener.accept(&small()).unwrap();
    assert!(there.join().unwrap().is_ok() && listener.try_accept(&small()).unwrap().is_none());
    assert!(matches!(path.receive(), Err(Error::Closed)));
}
