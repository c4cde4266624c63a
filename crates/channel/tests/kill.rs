//! A peer is killed with SIGKILL at any moment, so that it cannot close its end.
//!
//! Failures that this looks for: the survivor waits for ever; it takes a completion or a request that is not
//! whole; it keeps mappings, descriptors or names of the ended channel.
//!
//! `BYWASH_STRESS_ROUNDS=5000 cargo test -p bywash-channel --test kill` kills for longer, and
//! `BYWASH_STRESS_SEED` repeats a run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_channel::{Client, Error, Options, Server, ServerOptions, Submission, socket_pair};
use bywash_support::peers::{
    Child, Random, Resources, SIZE_MIN, WAITS, check, fill, inherited_sockets, role, rounds, serialise_test,
    wait_by_name,
};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// Longest time from a death until the survivor has noticed.
const LIMIT: Duration = Duration::from_secs(2);
/// Number of rounds that run at the same time, since most of a round is waiting.
const AT_A_TIME: u64 = 4;

/// Not a test by itself: the child. Its role is a side, a way of waiting and a seed.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let socket = inherited_sockets().remove(0);
    play(socket, words[0], words[1], Random(words[2].parse().unwrap()), None);
}

/// Plays one side until an operation fails, and signals `begun` after the handshake.
fn play(socket: OwnedFd, side: &str, wait: &str, random: Random, begun: Option<Sender<()>>) {
    let wait = wait_by_name(wait);
    let options = Options::new().depth(16).arena_bytes(1 << 20).wait(wait);
    let tell = |begun: Option<Sender<()>>| begun.map(|begun| begun.send(()));
    let ended = match side {
        "client" => Client::over(socket, &options).map(|client| {
            tell(begun);
            ask(client, random)
        }),
        "server" => Server::over(socket, &ServerOptions::new().wait(wait)).map(|server| {
            tell(begun);
            answer(server, random)
        }),
        other => panic!("no side: {other}"),
    };
    match ended {
        Ok(Error::PeerDied { .. }) | Err(Error::PeerDied { .. }) => {}
        // The peer died in the middle of the handshake.
        Err(Error::Io { .. }) => {}
        Ok(other) | Err(other) => panic!("{other}"),
    }
}

/// Submits contents made from a seed, and expects other contents back, made from the seed that the completion
/// names.
fn ask(mut client: Client, mut random: Random) -> Error {
    loop {
        while (client.in_flight() as u64) < 1 + random.below(16) {
            let seed = random.number();
            let Ok(mut buffer) = client.alloc(random.size(14)) else { break };
            let mut bytes = vec![0; buffer.len()];
            fill(&mut bytes, seed);
            buffer.write(0, &bytes);
            let submission = Submission::new(1).arguments([seed, 0, 0, 0, 0, 0]).buffer(buffer);
            if let Err(refused) = client.submit(submission) {
                return refused.error;
            }
        }
        match client.reap() {
            Ok(done) => {
                let buffer = done.buffer.unwrap();
                let mut bytes = vec![0; buffer.len()];
                buffer.read(0, &mut bytes);
                check(&bytes);
                assert_eq!(bytes[..8], done.value.to_le_bytes());
            }
            Err(error) => {
                // Every further attempt fails too.
                assert!(client.reap().is_err() && client.reap_within(Duration::from_millis(1)).is_err());
                return error;
            }
        }
    }
}

/// Checks the contents of each request and completes it with other contents, now and then out of order.
fn answer(mut server: Server, mut random: Random) -> Error {
    let mut held = Vec::new();
    loop {
        let next = if held.is_empty() { server.next().map(Some) } else { server.try_next() };
        match next {
            Ok(Some(request)) => held.push(request),
            Ok(None) => {}
            Err(error) => return error,
        }
        while held.len() as u64 > random.below(5) {
            let request = held.swap_remove(random.below(held.len() as u64) as usize);
            let mut bytes = vec![0; request.len()];
            server.memory(&request).read(0, &mut bytes);
            assert!(bytes.len() >= SIZE_MIN);
            check(&bytes);
            assert_eq!(bytes[..8], request.arguments()[0].to_le_bytes());
            let seed = random.number();
            fill(&mut bytes, seed);
            server.memory(&request).write(0, &bytes);
            if let Err(error) = server.complete(request, 0, seed) {
                return error;
            }
        }
    }
}

#[test]
fn an_event_loop_hears_of_it_once_nothing_is_left() {
    if role().is_some() {
        return;
    }
    let _alone = serialise_test();
    let (here, there) = socket_pair().unwrap();
    let mut child = Child::start("child", "client sleep 1", vec![there]);
    let mut server = Server::over(here, &ServerOptions::new()).unwrap();
    let first = server.next().unwrap();
    child.kill();
    let end = std::time::Instant::now() + LIMIT;
    let error = loop {
        assert!(std::time::Instant::now() < end);
        match server.try_next() {
            Ok(Some(_)) => {}
            Ok(None) => match server.arm() {
                Ok(_) => thread::yield_now(),
                Err(error) => break error,
            },
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::PeerDied { .. }), "{error}");
    // The completion is lost, without an error.
    server.complete(first, 0, 0).unwrap();
}

#[test]
fn a_peer_that_is_killed_leaves_nothing_behind() {
    if role().is_some() {
        return;
    }
    let _alone = serialise_test();
    let mut random = Random::seeded("kill");
    let mut before = None;
    for batch in 0..rounds(120).div_ceil(AT_A_TIME) {
        thread::scope(|scope| {
            for number in 0..AT_A_TIME {
                let mut random = Random(random.number());
                scope.spawn(move || kill_one(&format!("round {}", batch * AT_A_TIME + number), &mut random));
            }
        });
        // The first rounds allocate what a process allocates once.
        assert_eq!(before.get_or_insert_with(Resources::now), &Resources::now(), "batch {batch}");
    }
}

/// Kills one peer, and checks the survivor.
fn kill_one(name: &str, random: &mut Random) {
    let (wait, their_wait) = (random.one_of(&WAITS), random.one_of(&WAITS));
    let (side, theirs) = random.one_of(&[("client", "server"), ("server", "client")]);
    let (here, there) = socket_pair().unwrap();
    let mut child = Child::start("child", &format!("{theirs} {their_wait} {}", random.number()), vec![there]);
    let own_random = Random(random.number());
    let (begun, has_begun) = channel();
    let (done, is_done) = channel();
    let survivor = thread::spawn(move || {
        play(here, side, wait, own_random, Some(begun));
        // The receiver is gone if the test has failed.
        let _ = done.send(());
    });
    // One in eight is killed before or during its handshake.
    if random.below(8) != 0 {
        let _ = has_begun.recv_timeout(Duration::from_secs(20));
    }
    thread::sleep(Duration::from_micros(random.below(5000)));
    child.kill();
    let heard = is_done.recv_timeout(LIMIT);
    assert!(heard.is_ok(), "{name}: a {side} that waits by {wait}: {heard:?} after the death of its peer");
    survivor.join().unwrap();
}

/// Not a test by itself: a server that completes one request, and then does nothing.
#[test]
fn idle_server() {
    if role().is_none() {
        return;
    }
    let mut server = Server::over(inherited_sockets().remove(0), &ServerOptions::new()).unwrap();
    let request = server.next().unwrap();
    server.complete(request, 0, 0).unwrap();
    thread::sleep(Duration::from_secs(600));
}

/// Like [`an_event_loop_hears_of_it_once_nothing_is_left`], but here the server dies.
#[test]
fn an_event_loop_hears_of_the_death_of_a_server() {
    if role().is_some() {
        return;
    }
    let _alone = serialise_test();
    let (here, there) = socket_pair().unwrap();
    let mut child = Child::start("idle_server", "server", vec![there]);
    let mut client = Client::over(here, &Options::new()).unwrap();
    client.submit(Submission::new(1)).unwrap();
    client.reap().unwrap();
    assert!(!client.arm().unwrap());
    child.kill();
    assert!(client.try_reap().unwrap().is_none());
    let armed = client.arm();
    assert!(matches!(armed, Err(Error::PeerDied { .. })), "{armed:?}");
}
