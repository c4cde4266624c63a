//! A peer is killed with SIGKILL at any moment, so that it cannot close its end.
//!
//! Failures that this looks for: the survivor waits for ever, for a message, for room, or for memory that the
//! dead peer owned; it receives half a message; it keeps mappings, descriptors or names of the ended path. A
//! process in the middle of a chain dies and its neighbours wait for each other; the last one of a chain dies
//! and the containers that it owned are never returned to the first.
//!
//! `BYWASH_STRESS_ROUNDS=5000 cargo test -p bywash-container --test kill` kills for longer, and
//! `BYWASH_STRESS_SEED` repeats a run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod choices;

use bywash_container::{Error, Message, Path, socket_pair};
use bywash_support::peers::{
    Child, Random, Resources, WAITS, check, fill, inherited_sockets, role, rounds, serialise_test,
};
use choices::{CLASSES, options};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Longest time from a death until every survivor has noticed.
const LIMIT: Duration = Duration::from_secs(2);
/// Behaviours of an end: to ship and receive in turn, to ship only, to receive only.
const PATTERNS: [&str; 3] = ["ping-pong", "ship", "receive"];

/// Not a test by itself: the child. Its role is a class, a way of waiting, a pattern and a seed.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let mut sockets = inherited_sockets().into_iter();
    let mut next = || sockets.next().unwrap();
    let mut random = Random(words[3].parse().unwrap());
    if words[2] == "forward" {
        let from = Path::over(next(), &options("forward", words[1]).arena_bytes(0)).unwrap();
        let to = Path::over(next(), &options("forward", words[1])).unwrap();
        while let Ok(message) = from.receive() {
            if to.ship_message(message).is_err() {
                break;
            }
        }
        return;
    }
    if let Ok(path) = Path::over(next(), &options(words[0], words[1])) {
        let _ = act(&path, words[2], &mut random);
    }
}

/// Follows the pattern until an operation fails, and returns the error.
fn act(path: &Path, pattern: &str, random: &mut Random) -> Error {
    // Some messages are kept for a while, so that they are returned in another order than they were shipped.
    let mut kept: VecDeque<Message> = VecDeque::new();
    loop {
        let done = match pattern {
            "ping-pong" => ship(path, random).and_then(|()| receive(path, &mut kept)),
            "ship" => ship(path, random),
            "receive" => receive(path, &mut kept),
            other => panic!("no pattern: {other}"),
        };
        if let Err(error) = done {
            return error;
        }
        while kept.len() as u64 > random.below(6) {
            kept.swap_remove_back(random.below(kept.len() as u64) as usize);
        }
    }
}

fn ship(path: &Path, random: &mut Random) -> Result<(), Error> {
    if random.below(8) > 0 {
        let mut container = path.alloc(random.size(17))?;
        fill(&mut container, random.number());
        return path.ship(container).map_err(|refused| refused.error);
    }
    // Several containers, in one entry or two.
    let shipment = (0..2 + random.below(12)).map(|_| {
        let mut container = path.alloc(random.size(12))?;
        fill(&mut container, random.number());
        Ok(container.into())
    });
    path.ship_all(shipment.collect::<Result<_, Error>>()?).map_err(|refused| refused.error)
}

fn receive(path: &Path, kept: &mut VecDeque<Message>) -> Result<(), Error> {
    let message = path.receive()?;
    for piece in message.pieces() {
        check(&piece.to_vec()?);
    }
    kept.push_back(message);
    Ok(())
}

/// Returns true for a dead peer. `Error::Closed` would be wrong, since a killed peer cannot close its end.
fn says_that_the_peer_is_gone(error: &Error) -> bool {
    matches!(error, Error::PeerDied { .. })
}

/// Checks that every operation on a path whose peer is dead fails, sooner or later, and does not wait for
/// ever.
fn everything_fails(path: &Path, random: &mut Random) {
    for pattern in ["receive", "ship", "ping-pong", "receive"] {
        let error = act(path, pattern, random);
        assert!(says_that_the_peer_is_gone(&error), "{pattern}: {error}");
    }
}

/// Returns the result of a thread, which must arrive within [`LIMIT`].
fn within_limit<T>(answer: &Receiver<T>, what: &str) -> T {
    match answer.recv_timeout(LIMIT) {
        Ok(answered) => answered,
        Err(RecvTimeoutError::Timeout) => panic!("{what} still waits {LIMIT:?} after the death of its peer"),
        Err(RecvTimeoutError::Disconnected) => panic!("{what} panicked"),
    }
}

/// Runs `work` in a thread of this process.
fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> (Receiver<T>, thread::JoinHandle<()>) {
    let (tell, answer) = channel();
    let thread = thread::spawn(move || {
        let answered = work();
        // The receiver is gone if the test has failed.
        let _ = tell.send(answered);
    });
    (answer, thread)
}

/// Returns the pattern of the other end.
fn counterpart(pattern: &str) -> &str {
    match pattern {
        "ship" => "receive",
        "receive" => "ship",
        same => same,
    }
}

#[test]
fn a_peer_that_is_killed_leaves_nothing_behind() {
    if role().is_some() {
        return;
    }
    let _alone = serialise_test();
    let mut random = Random::seeded("kill");
    let mut before = None;
    for batch in 0..rounds(150).div_ceil(AT_A_TIME) {
        thread::scope(|scope| {
            for number in 0..AT_A_TIME {
                let mut random = Random(random.number());
                scope.spawn(move || kill_one(&format!("round {}", batch * AT_A_TIME + number), &mut random));
            }
        });
        let after = Resources::now();
        // The first rounds allocate what a process allocates once.
        assert_eq!(before.get_or_insert_with(Resources::now), &after, "batch {batch}");
    }
}

/// Number of rounds that run at the same time, since most of a round is waiting.
const AT_A_TIME: u64 = 4;

/// Kills one peer, and checks the survivor.
fn kill_one(name: &str, random: &mut Random) {
    let (class, wait) = (random.one_of(&CLASSES), random.one_of(&WAITS));
    let (their_wait, pattern) = (random.one_of(&WAITS), random.one_of(&PATTERNS));
    let what = format!("{name}: {class}, {wait}, {pattern}; peer {their_wait}");
    let (here, there) = socket_pair().unwrap();
    let role = format!("{class} {their_wait} {} {}", counterpart(pattern), random.number());
    let mut child = Child::start("child", &role, vec![there]);
    let mut own_random = Random(random.number());
    let (ready, is_ready) = channel();
    let (answer, survivor) = aside(move || survive(here, class, wait, pattern, &mut own_random, ready));
    // One in eight is killed before or during its handshake.
    if random.below(8) != 0 {
        let _ = is_ready.recv_timeout(Duration::from_secs(20));
    }
    thread::sleep(Duration::from_micros(random.below(5000)));
    child.kill();
    within_limit(&answer, &what);
    survivor.join().unwrap();
}

/// Follows the pattern until the peer has died, and then checks that everything fails.
fn survive(
    socket: OwnedFd,
    class: &str,
    wait: &str,
    pattern: &str,
    random: &mut Random,
    ready: std::sync::mpsc::Sender<()>,
) {
    let path = match Path::over(socket, &options(class, wait)) {
        Ok(path) => path,
        // The peer died before it sent its hello message.
        Err(Error::PeerDied { .. } | Error::Io { .. }) => return,
        Err(other) => panic!("{other}"),
    };
    // The receiver is gone if the peer is to be killed early.
    let _ = ready.send(());
    let error = act(&path, pattern, random);
    assert!(says_that_the_peer_is_gone(&error), "{error}");
    everything_fails(&path, random);
}

#[test]
fn an_event_loop_hears_of_it_once_nothing_is_left() {
    if role().is_some() {
        return;
    }
    let _alone = serialise_test();
    let (here, there) = socket_pair().unwrap();
    let mut child = Child::start("child", "checked sleep ship 1", vec![there]);
    let path = Path::over(here, &options("checked", "sleep")).unwrap();
    path.receive().unwrap();
    child.kill();
    let end = std::time::Instant::now() + LIMIT;
    let error = loop {
        assert!(std::time::Instant::now() < end);
        match path.try_receive() {
            Ok(Some(_)) => {}
            Ok(None) => match path.arm() {
                Ok(_) => thread::yield_now(),
                Err(error) => break error,
            },
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::PeerDied { .. }), "{error}");
}

#[test]
fn those_who_wait_already_hear_of_it() {
    if role().is_some() {
        return;
    }
    let _alone = serialise_test();
    type FatalCall = fn(&Path) -> Error;
    let wishes: [(&str, FatalCall); 3] = [
        ("receive", |path| path.receive().unwrap_err()),
        ("alloc", |path| {
            // The peer receives nothing, so the arena fills up.
            while let Some(container) = path.try_alloc(100_000).unwrap() {
                path.ship(container).unwrap();
            }
            path.alloc(100_000).unwrap_err()
        }),
        ("ship", |path| {
            loop {
                // The peer receives nothing, so the ring or the socket fills up.
                if let Err(refused) = path.ship(path.alloc(20).unwrap()) {
                    assert_eq!(refused.shipment.len(), 20);
                    return refused.error;
                }
            }
        }),
    ];
    let before = Resources::now();
    for (name, wish) in wishes {
        for (class, wait) in CLASSES.iter().flat_map(|class| WAITS.map(|wait| (*class, wait))) {
            if (class, name) == ("sealed", "alloc") {
                // A sealed path allocates without waiting for anybody.
                continue;
            }
            let what = format!("{name}, {class}, {wait}");
            let (here, there) = socket_pair().unwrap();
            // The child does its handshake, and then waits on a second socket for a peer that never sends
            // anything.
            let (_never, silent) = socket_pair().unwrap();
            let mut child = Child::start("silent_child", class, vec![there, silent]);
            let (ready, is_ready) = channel();
            let (answer, survivor) = aside(move || {
                let path = Path::over(here, &options(class, wait)).unwrap();
                ready.send(()).unwrap();
                let error = wish(&path);
                (says_that_the_peer_is_gone(&error), error)
            });
            is_ready.recv_timeout(Duration::from_secs(20)).unwrap();
            thread::sleep(Duration::from_millis(40));
            child.kill();
            let (gone, error) = within_limit(&answer, &what);
            assert!(gone, "{what}: {error}");
            survivor.join().unwrap();
        }
    }
    assert_eq!(before, Resources::now());
}

/// Not a test by itself: a child that makes a path and then does nothing with it.
#[test]
fn silent_child() {
    let Some(class) = role() else { return };
    let mut sockets = inherited_sockets().into_iter();
    let _path = Path::over(sockets.next().unwrap(), &options(&class, "sleep"));
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn the_middle_of_a_chain_is_killed() {
    if role().is_some() {
        return;
    }
    let _alone = serialise_test();
    let mut random = Random::seeded("middle");
    let mut before = None;
    for round in 0..rounds(40).div_ceil(4).max(30) {
        let (wait, their_wait) = (random.one_of(&WAITS), random.one_of(&WAITS));
        let what = format!("round {round}: {wait}, middle {their_wait}");
        let (a, to_middle) = socket_pair().unwrap();
        let (middle, b) = socket_pair().unwrap();
        let role = format!("forward {their_wait} forward 1");
        let mut child = Child::start("child", &role, vec![to_middle, middle]);
        let seed = random.number();
        let (ready, is_ready) = channel();
        let (first, source) = aside(move || {
            let path = Path::over(a, &options("checked", wait)).unwrap();
            let error = act(&path, "ship", &mut Random(seed));
            (says_that_the_peer_is_gone(&error), error)
        });
        let (last, sink) = aside(move || {
            let path = Path::over(b, &options("checked", wait)).unwrap();
            ready.send(()).unwrap();
            let error = act(&path, "receive", &mut Random(seed));
            (says_that_the_peer_is_gone(&error), error)
        });
        is_ready.recv_timeout(Duration::from_secs(20)).unwrap();
        thread::sleep(Duration::from_micros(random.below(5000)));
        child.kill();
        for (side, answer) in [("source", first), ("sink", last)] {
            let (gone, error) = within_limit(&answer, &format!("{what}: {side}"));
            assert!(gone, "{what}: {side}: {error}");
        }
        source.join().unwrap();
        sink.join().unwrap();
        drop(child);
        let after = Resources::now();
        assert_eq!(before.get_or_insert_with(Resources::now), &after, "{what}");
    }
}

/// Kills the last process of a chain of three while it owns containers; the first one must get its memory
/// back.
fn the_last_is_killed(waits: &[&'static str], rounds: u64) {
    let _alone = serialise_test();
    let mut random = Random::seeded("last");
    let mut before = None;
    for round in 0..rounds {
        let (wait, their_wait) = (random.one_of(waits), random.one_of(&WAITS));
        let what = format!("round {round}: middle {wait}, last {their_wait}");
        let (a, to_middle) = socket_pair().unwrap();
        let (middle, b) = socket_pair().unwrap();
        let role = format!("checked {their_wait} receive {}", random.number());
        let mut child = Child::start("child", &role, vec![b]);
        let seed = random.number();
        let (ready, is_ready) = channel();
        let (dead, is_dead) = channel::<()>();
        let (memory_is_back, source) = aside(move || {
            let path = Path::over(a, &options("checked", "adaptive")).unwrap();
            let mut random = Random(seed);
            while is_dead.try_recv().is_err() {
                ship(&path, &mut random).unwrap();
            }
            // The whole arena: nothing of it was lost with the last process.
            path.alloc_within(1 << 20, LIMIT * 2).map(drop)
        });
        let (_, forwarder) = aside(move || {
            let from = Path::over(to_middle, &options("forward", wait).arena_bytes(0)).unwrap();
            let to = Path::over(middle, &options("forward", wait)).unwrap();
            ready.send(()).unwrap();
            while let Ok(message) = from.receive() {
                // Messages that cannot be shipped on are dropped. The path itself stays: the middle process
                // may keep it.
                let _ = to.ship_message(message);
            }
        });
        is_ready.recv_timeout(Duration::from_secs(20)).unwrap();
        thread::sleep(Duration::from_micros(random.below(5000)));
        child.kill();
        dead.send(()).unwrap();
        let answer = memory_is_back.recv_timeout(LIMIT * 3);
        let back = answer.unwrap_or_else(|_| panic!("{what}: the first one still waits, or panicked"));
        assert!(back.is_ok(), "{what}: {}", back.unwrap_err());
        source.join().unwrap();
        forwarder.join().unwrap();
        drop(child);
        let after = Resources::now();
        assert_eq!(before.get_or_insert_with(Resources::now), &after, "{what}");
    }
}

#[test]
fn the_last_of_a_chain_is_killed_and_the_first_gets_its_memory_back() {
    if role().is_none() {
        the_last_is_killed(&["adaptive", "sleep"], rounds(40).div_ceil(4).max(30));
    }
}

#[test]
fn the_last_of_a_chain_is_killed_while_the_middle_spins() {
    if role().is_none() {
        the_last_is_killed(&["spin"], 3);
    }
}

/// A path that is closed in an orderly way delivers everything that was shipped before, in both directions.
fn goodbye(class: &str, answered: u64) {
    let _alone = serialise_test();
    for round in 0..rounds(40).max(40) * 10 {
        let (here, there) = socket_pair().unwrap();
        let theirs = options(class, "sleep");
        let other = thread::spawn(move || {
            let path = Path::over(there, &theirs).unwrap();
            for number in 0..5 {
                let mut container = path.alloc(200).unwrap();
                fill(&mut container, number);
                path.ship(container).unwrap();
            }
            // It leaves replies unread.
        });
        let path = Path::over(here, &options(class, "spin")).unwrap();
        for _ in 0..answered {
            // The peer may have left already.
            let Ok(mut container) = path.alloc(200) else { break };
            fill(&mut container, 0);
            let _ = path.ship_within(container, LIMIT);
        }
        if answered > 0 {
            other.join().unwrap();
        }
        for number in 0..5 {
            let heard = loop {
                match path.try_receive() {
                    Ok(None) => {}
                    heard => break heard,
                }
            };
            assert!(heard.is_ok(), "round {round}: {heard:?} instead of message {number}");
            check(&heard.unwrap().unwrap().to_vec().unwrap());
        }
        assert!(matches!(path.receive_within(LIMIT), Err(Error::Closed)));
    }
}

#[test]
fn what_was_shipped_before_the_end_arrives() {
    if role().is_none() {
        goodbye("checked", 0);
        goodbye("checked", 3);
    }
}

#[test]
fn what_was_sealed_before_the_end_arrives() {
    if role().is_none() {
        goodbye("sealed", 0);
    }
}

#[test]
fn what_was_sealed_before_an_end_without_reading_arrives() {
    if role().is_none() {
        goodbye("sealed", 3);
    }
}

/// The middle of a chain calls only `try_receive` and `arm`, like an event loop, and never `receive`.
#[test]
fn an_event_loop_in_the_middle_gives_memory_back() {
    let _alone = serialise_test();
    let (a, b) = socket_pair().unwrap();
    let (c, d) = socket_pair().unwrap();
    let (done, is_done) = channel::<()>();
    let middle = thread::spawn(move || {
        let from = Path::over(b, &options("forward", "adaptive").arena_bytes(0)).unwrap();
        let to = Path::over(c, &options("forward", "adaptive")).unwrap();
        while is_done.try_recv().is_err() {
            if let Ok(Some(message)) = from.try_receive() {
                to.ship_message(message).unwrap();
            } else if !from.arm().unwrap() {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let last = thread::spawn(move || {
        let path = Path::over(d, &options("checked", "adaptive")).unwrap();
        while path.receive().is_ok() {}
    });
    let path = Path::over(a, &options("checked", "adaptive")).unwrap();
    path.ship(path.alloc(1 << 20).unwrap()).unwrap();
    let back = path.alloc_within(1 << 20, LIMIT).map(drop);
    done.send(()).unwrap();
    middle.join().unwrap();
    last.join().unwrap();
    assert!(back.is_ok(), "{}", back.unwrap_err());
}

/// Returns the CPU time of this thread.
fn thread_time() -> Duration {
    // SAFETY: the kernel writes to a live timespec, for which all zeros are a valid value.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_middle_whose_last_is_gone_still_sleeps() {
    let _alone = serialise_test();
    let (a, b) = socket_pair().unwrap();
    let (c, d) = socket_pair().unwrap();
    let source = thread::spawn(move || Path::over(a, &options("checked", "sleep")).unwrap());
    let from = Path::over(b, &options("forward", "sleep")).unwrap();
    let source = source.join().unwrap();
    let last = thread::spawn(move || Path::over(d, &options("checked", "sleep")).unwrap());
    let to = Path::over(c, &options("forward", "sleep")).unwrap();
    let last = last.join().unwrap();
    source.ship(source.alloc(5000).unwrap()).unwrap();
    to.ship_message(from.receive_within(LIMIT).unwrap()).unwrap();
    drop(last);
    let before = thread_time();
    let waited = from.receive_within(Duration::from_secs(1));
    assert!(matches!(waited, Err(Error::TimedOut)), "{waited:?}");
    let took = thread_time() - before;
    assert!(took < Duration::from_millis(300), "waiting for a second took {took:?} of a processor");
}
