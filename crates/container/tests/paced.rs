//! Messages that are shipped one at a time, each after the receiver has fallen asleep. Each should cost one
//! sleep and one wake-up, and almost nothing else.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_container::{Options, Path, Stats, Wait, socket_pair};
use std::thread;
use std::time::{Duration, Instant};

const MESSAGES: u64 = 1000;
const LIMIT: Duration = Duration::from_secs(60);
/// Greatest number of attempts to spin: the first two, and five of each kind, since the number of sleeps
/// between two attempts doubles from 64 on.
const VAIN_MAX: u64 = 12;
/// Allowed deviation of the number of sleeps on a busy machine, where the scheduler may suspend a thread for
/// longer than the timeout of a futex sleep.
const SLACK: u64 = MESSAGES / 10;

fn both(wait: Wait) -> (Path, Path) {
    let (here, there) = socket_pair().unwrap();
    let options = Options::new().arena_bytes(1 << 16).wait(wait);
    let theirs = options.clone();
    let there = thread::spawn(move || Path::over(there, &theirs).unwrap());
    (Path::over(here, &options).unwrap(), there.join().unwrap())
}

fn sleeps(stats: Stats) -> u64 {
    stats.futex_sleeps + stats.socket_sleeps
}

/// Waits until `path` has slept more often than `before`, and returns the number of its sleeps.
fn await_sleep(path: &Path, before: u64) -> u64 {
    let end = Instant::now() + LIMIT;
    loop {
        let now = sleeps(path.stats());
        if now > before {
            return now;
        }
        assert!(Instant::now() < end, "the receiver does not sleep: {:?}", path.stats());
        thread::yield_now();
    }
}

/// Ships `MESSAGES` messages, each when the other end sleeps; with `answers` the other end replies to each.
fn run(wait: Wait, answers: bool) -> (Stats, Stats) {
    let (client, server) = both(wait);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..MESSAGES {
                assert_eq!(server.receive().unwrap().len(), 64);
                if answers {
                    server.ship(server.alloc(64).unwrap()).unwrap();
                }
            }
        });
        let mut slept = 0;
        for _ in 0..MESSAGES {
            slept = await_sleep(&server, slept);
            client.ship(client.alloc(64).unwrap()).unwrap();
            if answers {
                client.receive().unwrap();
            }
        }
    });
    (client.stats(), server.stats())
}

/// Checks that an end neither spins before it sleeps nor interrupts other cores, and that it sleeps and wakes
/// its peer at most once a message.
fn check(stats: Stats, what: &str) {
    assert!(stats.vain_spins <= VAIN_MAX, "{what}: {stats:?}");
    assert!(stats.heavy_fences <= VAIN_MAX, "{what}: {stats:?}");
    assert!(stats.futex_wakes + stats.doorbells <= MESSAGES + SLACK, "{what}: {stats:?}");
    assert!(sleeps(stats) <= MESSAGES + SLACK, "{what}: {stats:?}");
}

#[test]
fn a_paced_message_is_a_sleep_and_a_wake_up() {
    for wait in [Wait::Sleep, Wait::Adaptive] {
        let (sender, receiver) = run(wait, false);
        check(sender, &format!("{wait:?}, the sender"));
        check(receiver, &format!("{wait:?}, the receiver"));
        assert!(sleeps(receiver) >= MESSAGES - SLACK, "{wait:?}: {receiver:?}");
        assert!(sender.futex_wakes + sender.doorbells >= MESSAGES - SLACK, "{wait:?}: {sender:?}");
        assert_eq!(sleeps(sender), 0, "{wait:?}: {sender:?}");
        assert_eq!((sender.spins, receiver.futex_wakes + receiver.doorbells), (0, 0), "{wait:?}");
    }
}

/// The client waits as long as the server's wake-up takes, and should not spin meanwhile.
#[test]
fn a_paced_request_is_a_sleep_and_a_wake_up_at_either_end() {
    for wait in [Wait::Sleep, Wait::Adaptive] {
        let (client, server) = run(wait, true);
        check(client, &format!("{wait:?}, the client"));
        check(server, &format!("{wait:?}, the server"));
        assert!(client.spins <= VAIN_MAX, "{wait:?}: {client:?}");
        assert!(sleeps(server) >= MESSAGES - SLACK, "{wait:?}: {server:?}");
    }
}
