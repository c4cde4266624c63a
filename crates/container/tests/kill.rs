//! A peer is killed at any moment, with SIGKILL, so that it cannot say goodbye.
//!
//! What could go wrong: the survivor waits for ever, for a message, for room, or for memory that the dead one
//! had; it receives half a message; it keeps mappings, descriptors or names of what is gone. A process in the
//! middle dies and those at both sides wait for each other; the last one of a chain dies and what it had never
//! comes back to the first.
//!
//! `BYWASH_STRESS_ROUNDS=5000 cargo test -p bywash-container --test kill` kills for longer, and
//! `BYWASH_STRESS_SEED` repeats a run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod choices;

use bywash_container::{Error, Message, Path, socket_pair};
use bywash_peers::{Belongings, Child, Random, WAITS, alone, check, fill, inherited_sockets, role, rounds};
use choices::{CLASSES, options};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Longest time from a death until everybody knows.
const LIMIT: Duration = Duration::from_secs(2);
/// What ends do: both ship and receive in turn, one ships, the other one receives.
const PATTERNS: [&str; 3] = ["ping-pong", "ship", "receive"];

/// Not a test by itself: what a child does. Its role is a class, a way of waiting, a pattern and a seed.
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

/// Acts until that is no longer possible.
fn act(path: &Path, pattern: &str, random: &mut Random) -> Error {
    // Some are kept for a while, so that they do not come back in the order in which they were shipped.
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
    // Several, in one entry or two.
    let cargo = (0..2 + random.below(12)).map(|_| {
        let mut container = path.alloc(random.size(12))?;
        fill(&mut container, random.number());
        Ok(container.into())
    });
    path.ship_all(cargo.collect::<Result<_, Error>>()?).map_err(|refused| refused.error)
}

fn receive(path: &Path, kept: &mut VecDeque<Message>) -> Result<(), Error> {
    let message = path.receive()?;
    for piece in message.pieces() {
        check(&piece.to_vec()?);
    }
    kept.push_back(message);
    Ok(())
}

/// Not that it closed its end, which a peer that is killed cannot have done.
fn says_that_the_peer_is_gone(error: &Error) -> bool {
    matches!(error, Error::PeerDied { .. })
}

/// Whatever is done on a path whose peer is gone says so, sooner or later and without waiting for ever.
fn everything_fails(path: &Path, random: &mut Random) {
    for pattern in ["receive", "ship", "ping-pong", "receive"] {
        let error = act(path, pattern, random);
        assert!(says_that_the_peer_is_gone(&error), "{pattern}: {error}");
    }
}

/// What a thread answers, within [`LIMIT`].
fn within_limit<T>(answer: &Receiver<T>, what: &str) -> T {
    match answer.recv_timeout(LIMIT) {
        Ok(answered) => answered,
        Err(RecvTimeoutError::Timeout) => panic!("{what} still waits {LIMIT:?} after the death of its peer"),
        Err(RecvTimeoutError::Disconnected) => panic!("{what} panicked"),
    }
}

/// Runs something of this process's aside.
fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> (Receiver<T>, thread::JoinHandle<()>) {
    let (tell, answer) = channel();
    let thread = thread::spawn(move || {
        let answered = work();
        // Nobody listens any more when the test has failed.
        let _ = tell.send(answered);
    });
    (answer, thread)
}

/// The other end of a pattern.
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
    let _alone = alone();
    let mut random = Random::seeded("kill");
    let mut before = None;
    for batch in 0..rounds(150).div_ceil(AT_A_TIME) {
        thread::scope(|scope| {
            for number in 0..AT_A_TIME {
                let mut random = Random(random.number());
                scope.spawn(move || kill_one(&format!("round {}", batch * AT_A_TIME + number), &mut random));
            }
        });
        let after = Belongings::now();
        // The first rounds make what a process makes once.
        assert_eq!(before.get_or_insert_with(Belongings::now), &after, "batch {batch}");
    }
}

/// Rounds that run beside each other: most of a round is waiting.
const AT_A_TIME: u64 = 4;

/// Kills one peer.
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
    // Now and then it dies before or while it presents itself.
    if random.below(8) != 0 {
        let _ = is_ready.recv_timeout(Duration::from_secs(20));
    }
    thread::sleep(Duration::from_micros(random.below(5000)));
    child.kill();
    within_limit(&answer, &what);
    survivor.join().unwrap();
}

/// What the survivor does until it knows, and afterwards.
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
        // Dead before it has said anything.
        Err(Error::PeerDied { .. } | Error::Io { .. }) => return,
        Err(other) => panic!("{other}"),
    };
    // Nobody listens if the peer is to die early.
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
    let _alone = alone();
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
    let _alone = alone();
    type Wish = fn(&Path) -> Error;
    let wishes: [(&str, Wish); 3] = [
        ("receive", |path| path.receive().unwrap_err()),
        ("alloc", |path| {
            // The peer takes nothing, so that the arena is used up.
            while let Some(container) = path.try_alloc(100_000).unwrap() {
                path.ship(container).unwrap();
            }
            path.alloc(100_000).unwrap_err()
        }),
        ("ship", |path| {
            loop {
                // The peer takes nothing, so that the ring (or the socket) is full.
                if let Err(refused) = path.ship(path.alloc(20).unwrap()) {
                    assert_eq!(refused.cargo.len(), 20);
                    return refused.error;
                }
            }
        }),
    ];
    let before = Belongings::now();
    for (name, wish) in wishes {
        for (class, wait) in CLASSES.iter().flat_map(|class| WAITS.map(|wait| (*class, wait))) {
            if (class, name) == ("sealed", "alloc") {
                // It waits for nobody.
                continue;
            }
            let what = format!("{name}, {class}, {wait}");
            let (here, there) = socket_pair().unwrap();
            // It presents itself by its first word, and then it waits for a second peer that never comes.
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
    assert_eq!(before, Belongings::now());
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
    let _alone = alone();
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
        let after = Belongings::now();
        assert_eq!(before.get_or_insert_with(Belongings::now), &after, "{what}");
    }
}

/// Kills the last of a chain of three while it has containers; the first one wants its memory back.
fn the_last_is_killed(waits: &[&'static str], rounds: u64) {
    let _alone = alone();
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
            // The whole arena: nothing of it is lost with the last one.
            path.alloc_within(1 << 20, LIMIT * 2).map(drop)
        });
        let (_, forwarder) = aside(move || {
            let from = Path::over(to_middle, &options("forward", wait).arena_bytes(0)).unwrap();
            let to = Path::over(middle, &options("forward", wait)).unwrap();
            ready.send(()).unwrap();
            while let Ok(message) = from.receive() {
                // What cannot go on is dropped. The path stays: whoever is in the middle may keep it.
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
        let after = Belongings::now();
        assert_eq!(before.get_or_insert_with(Belongings::now), &after, "{what}");
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

/// A path that is closed in good order: everything that was shipped before arrives, in both directions.
fn goodbye(class: &str, answered: u64) {
    let _alone = alone();
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
            // With answers that it has not read.
        });
        let path = Path::over(here, &options(class, "spin")).unwrap();
        for _ in 0..answered {
            // It may have left.
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

/// A middle that never calls `receive` but `try_receive` and `arm`, as an event loop does.
#[test]
fn an_event_loop_in_the_middle_gives_memory_back() {
    let _alone = alone();
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

/// CPU time of this thread.
fn thread_time() -> Duration {
    // SAFETY: the kernel writes to a live value, of which zeros are a valid one.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_middle_whose_last_is_gone_still_sleeps() {
    let _alone = alone();
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
