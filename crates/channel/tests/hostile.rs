//! A malicious peer that speaks the protocol of channels without the library.
//!
//! Failures that this looks for: a false statement in the handshake is believed, and memory is mapped that is
//! too small or that the peer can shrink (SIGBUS later); a word in shared memory is believed, and a server
//! reads or writes outside the arena, or a client takes a buffer that is not in flight; malformed entries
//! make the victim wait for ever, spin, panic, or leak descriptors.
//!
//! `BYWASH_STRESS_ROUNDS=20000` runs for longer, and `BYWASH_STRESS_SEED` repeats a run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_channel::{Client, Error, Options, Server, ServerOptions, Submission, Wait, socket_pair};
use bywash_support::peers::{
    FIXED, OFFERED, Random, Resources, WAITS, Words, backed_bytes, memory, offered, receive, rounds, send,
    serialise_test, timed, wait_by_name, watch,
};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Release;
use std::thread;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(5);
/// Number of ring entries: few, so that the rings wrap around often.
const DEPTH: u32 = 4;
/// Word offsets as drawn in crates/link/src/ring/layout.rs and src/layout.rs.
const RING_HEAD: usize = 32;
const REQUEST: usize = 8;
const COMPLETION: usize = 2;
const COMPLETIONS: usize = RING_HEAD + DEPTH as usize * REQUEST;
const CONTROL_WORDS: usize = COMPLETIONS + RING_HEAD + DEPTH as usize * COMPLETION;
const CONTROL_BYTES: usize = CONTROL_WORDS * 8;
const ARENA: usize = 1 << 16;
const CLIENT: u32 = 1;
const SERVER: u32 = 2;

/// Encodes a hello message as drawn in crates/link/src/hello.rs.
fn hello(flags: u32, arena: u64, rings: [u32; 2]) -> Vec<u8> {
    let mut bytes = b"bywash c".to_vec();
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(arena.to_le_bytes());
    rings.iter().for_each(|ring| bytes.extend(ring.to_le_bytes()));
    bytes
}

fn small() -> Options {
    Options::new().arena_bytes(ARENA).depth(DEPTH)
}

#[test]
fn lies_in_the_set_up_are_errors() {
    let _watch = watch("lies_in_the_set_up_are_errors", Duration::from_secs(60));
    let _alone = serialise_test();
    let good = || vec![offered(CONTROL_BYTES), offered(ARENA)];
    let honest = hello(CLIENT, ARENA as u64, [DEPTH; 2]);
    let with = |at: usize, byte: u8| {
        let mut bytes = honest.clone();
        bytes[at] = byte;
        bytes
    };
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let to_a_server: Vec<(&str, Vec<u8>, Vec<OwnedFd>, &str)> = vec![
        ("nothing", vec![], vec![], "died or was cut off"),
        ("rubbish", vec![0xff; 32], good(), "is not an end"),
        ("a path", with(7, b'p'), good(), "is not an end of a bywash channel"),
        ("another version", with(8, 2), good(), "version 2"),
        ("another server", hello(SERVER, ARENA as u64, [DEPTH; 2]), good(), "both are servers"),
        ("too deep", hello(CLIENT, ARENA as u64, [1 << 13; 2]), good(), "asks for 8192"),
        ("no depth", hello(CLIENT, ARENA as u64, [0, 0]), good(), "rings of 0"),
        ("two depths", hello(CLIENT, ARENA as u64, [DEPTH, 2]), good(), "rings of 4 and 2"),
        ("too large", hello(CLIENT, 1 << 40, [DEPTH; 2]), good(), "are allowed"),
        ("no memory", honest.clone(), vec![], "0 descriptors"),
        ("no arena", honest.clone(), vec![offered(CONTROL_BYTES)], "1 descriptors"),
        ("no control memory", honest.clone(), vec![null(), offered(ARENA)], "no memory"),
        ("short control memory", honest.clone(), vec![offered(CONTROL_BYTES - 8), offered(ARENA)], "size"),
        (
            "loose control memory",
            honest.clone(),
            vec![memory(CONTROL_BYTES, 0), offered(ARENA)],
            "not sealed",
        ),
        ("a loose arena", honest.clone(), vec![offered(CONTROL_BYTES), memory(ARENA, 0)], "not sealed"),
        ("a short arena", honest.clone(), vec![offered(CONTROL_BYTES), offered(ARENA / 2)], "size"),
        (
            "rings without memory",
            honest.clone(),
            vec![memory(CONTROL_BYTES, OFFERED), offered(ARENA)],
            "not taken the memory",
        ),
        (
            "rings whose memory can be taken away",
            honest.clone(),
            vec![memory(CONTROL_BYTES, FIXED), offered(ARENA)],
            "let be sealed",
        ),
        (
            "an arena whose memory can be taken away",
            honest.clone(),
            vec![offered(CONTROL_BYTES), memory(ARENA, FIXED)],
            "let be sealed",
        ),
        (
            "an arena that nobody can write to",
            honest.clone(),
            vec![offered(CONTROL_BYTES), memory(ARENA, OFFERED | libc::F_SEAL_FUTURE_WRITE)],
            "sealed against writing",
        ),
    ];
    let before = Resources::now();
    for (name, bytes, files, expected) in &to_a_server {
        let (here, there) = socket_pair().unwrap();
        let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        assert!(send(&there, bytes, &numbers), "{name}");
        let error =
            timed(name, || Server::over(here, &ServerOptions::new())).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
        drop(there);
        assert_eq!(before, Resources::now(), "{name} leaves something behind");
    }
    let to_a_client: Vec<(&str, Vec<u8>, Vec<OwnedFd>, &str)> = vec![
        ("another client", hello(CLIENT, 1 << 30, [DEPTH; 2]), vec![], "both are clients"),
        ("memory", hello(SERVER, 1 << 30, [DEPTH; 2]), good(), "passed memory"),
        ("less depth", hello(SERVER, 1 << 30, [1, 1]), vec![], "allows a depth of 1"),
        ("less memory", hello(SERVER, 1, [DEPTH; 2]), vec![], "arena of 1 bytes"),
    ];
    let before = Resources::now();
    for (name, bytes, files, expected) in &to_a_client {
        let (here, there) = socket_pair().unwrap();
        let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        assert!(send(&there, bytes, &numbers), "{name}");
        let error = timed(name, || Client::over(here, &small())).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
        drop(there);
        assert_eq!(before, Resources::now(), "{name} leaves something behind");
    }
    // A peer that sends no hello message at all.
    let (here, _there) = socket_pair().unwrap();
    let options = small().handshake_timeout(SHORT);
    assert!(matches!(timed("silence", || Client::over(here, &options)), Err(Error::TimedOut)));
}

/// A malicious peer, and the memory that it shares with its victim.
struct Liar {
    socket: OwnedFd,
    control: Words,
}

fn server_and_liar(wait: Wait) -> (Server, Liar) {
    server_and_liar_with(wait, &offered(ARENA))
}

fn server_and_liar_with(wait: Wait, arena: &OwnedFd) -> (Server, Liar) {
    let (here, there) = socket_pair().unwrap();
    let control = offered(CONTROL_BYTES);
    // Mapped first, since the server seals it against any new writable mapping.
    let words = Words::map(&control, CONTROL_BYTES);
    let bytes = hello(CLIENT, ARENA as u64, [DEPTH; 2]);
    assert!(send(&there, &bytes, &[control.as_raw_fd(), arena.as_raw_fd()]));
    let server = Server::over(here, &ServerOptions::new().wait(wait)).unwrap();
    receive(&there);
    (server, Liar { socket: there, control: words })
}

fn client_and_liar(wait: Wait) -> (Client, Liar) {
    let (here, there) = socket_pair().unwrap();
    assert!(send(&there, &hello(SERVER, 1 << 30, [DEPTH; 2]), &[]));
    let client = Client::over(here, &small().wait(wait)).unwrap();
    let (_, files) = receive(&there);
    (client, Liar { socket: there, control: Words::map(&files[0], CONTROL_BYTES) })
}

impl Liar {
    /// Writes a request where the server expects the one with this number, counted from 0.
    fn request(&self, number: u64, tag: u64, buffer: u64) {
        let at = RING_HEAD + (number as usize % DEPTH as usize) * REQUEST;
        self.control.set(at + 1, buffer);
        let turn = number / u64::from(DEPTH) + 1;
        self.control.at(at).store(tag << 48 | turn, Release);
    }

    /// Writes a completion where the client expects the one with this number, counted from 0.
    fn completion(&self, number: u64, tag: u64) {
        let at = COMPLETIONS + RING_HEAD + (number as usize % DEPTH as usize) * COMPLETION;
        let turn = number / u64::from(DEPTH) + 1;
        self.control.at(at).store(tag << 48 | turn, Release);
    }
}

fn accused(error: &Error, what: &str) -> bool {
    matches!(error, Error::Protocol { .. }) && error.to_string().contains(what)
}

#[test]
fn a_server_believes_no_request() {
    let _watch = watch("a_server_believes_no_request", Duration::from_secs(60));
    let _alone = serialise_test();
    let within = |offset: u64, length: u64| length << 32 | offset;
    for (name, tag, buffer, expected) in [
        ("a tag out of range", 4, 0, "depth 4"),
        ("a large tag", 0xffff, 0, "request 65535"),
        ("a buffer that is too long", 0, within(0, ARENA as u64 + 1), "65537 bytes at 0"),
        ("a buffer behind the arena", 0, within(1024, 1), "1 bytes at 65536"),
        ("a buffer that wraps", 0, within(u64::from(u32::MAX), u64::from(u32::MAX)), "arena of 65536"),
    ] {
        let (mut server, liar) = server_and_liar(Wait::Adaptive);
        liar.request(0, tag, buffer);
        let error = timed(name, || server.next_within(SHORT)).map(drop).unwrap_err();
        assert!(accused(&error, expected), "{name}: {error}");
        // After the violation the server takes no request, not even a valid one.
        liar.request(1, 1, 0);
        assert!(matches!(server.try_next(), Err(Error::Protocol { .. })), "{name}");
    }
    // A buffer may be the whole arena, and a tag may be used again only after its completion.
    let (mut server, liar) = server_and_liar(Wait::Adaptive);
    liar.request(0, 0, within(0, ARENA as u64));
    let request = server.next().unwrap();
    assert_eq!(server.memory(&request).len(), ARENA);
    server.memory(&request).write(ARENA - 1, &[1]);
    server.complete(request, 0, 0).unwrap();
    liar.request(1, 0, 0);
    let request = server.next().unwrap();
    liar.request(2, 0, 0);
    assert!(accused(&server.next().unwrap_err(), "again"));
    server.complete(request, 0, 0).unwrap();
    // The client's index of reaped completions does not move, runs ahead, or is correct.
    for (index, expected) in [(0, "does not take"), (u64::MAX, "index went"), (3, "")] {
        let (mut server, liar) = server_and_liar(Wait::Adaptive);
        let mut complete = |number: u64| {
            liar.request(number, number % u64::from(DEPTH), 0);
            let request = server.next().unwrap();
            server.complete(request, 0, 0)
        };
        (0..u64::from(DEPTH)).for_each(|number| complete(number).unwrap());
        liar.control.set(COMPLETIONS, index);
        let fifth = complete(u64::from(DEPTH));
        assert_eq!(fifth.is_ok(), expected.is_empty(), "{index}: {fifth:?}");
        assert!(fifth.is_ok() || accused(&fifth.unwrap_err(), expected), "{index}");
    }
}

#[test]
fn a_client_believes_no_completion() {
    let _watch = watch("a_client_believes_no_completion", Duration::from_secs(60));
    let _alone = serialise_test();
    for tag in [0, 1, 4, 0xffff] {
        let (mut client, liar) = client_and_liar(Wait::Adaptive);
        liar.completion(0, tag);
        let error = timed("nothing is in flight", || client.reap_within(SHORT)).map(drop).unwrap_err();
        assert!(accused(&error, "not in flight"), "{error}");
        assert!(matches!(client.try_reap(), Err(Error::Protocol { .. })));
    }
    let (mut client, liar) = client_and_liar(Wait::Adaptive);
    let buffer = client.alloc(100).unwrap();
    let tag = client.submit(Submission::new(1).buffer(buffer)).unwrap();
    liar.completion(0, tag.index() as u64);
    let done = client.reap().unwrap();
    assert_eq!((done.tag, done.buffer.unwrap().len()), (tag, 100));
    liar.completion(1, tag.index() as u64);
    assert!(accused(&client.reap().unwrap_err(), "not in flight"));
    // A server that completes requests but never takes their entries, until the ring of requests is full.
    let (mut client, liar) = client_and_liar(Wait::Adaptive);
    let refused = (0..100u64).find_map(|number| {
        let refused = client.submit(Submission::new(1)).err();
        liar.completion(number, 0);
        if refused.is_none() {
            client.reap().unwrap();
        }
        refused
    });
    assert!(accused(&refused.unwrap().error, "does not take"));
}

/// A page that the server touches first would be charged to it, and stay for as long as the client likes.
#[test]
fn a_server_takes_no_memory_for_a_client() {
    let _watch = watch("a_server_takes_no_memory_for_a_client", Duration::from_secs(60));
    let _alone = serialise_test();
    let (hole, page) = (4096, 4096);
    for (name, offset, length, is_taken) in [
        ("a page", 0, page, true),
        ("the end of one", page - 64, 64, true),
        ("nothing of a hole", page, 0, true),
        ("a hole", page, 64, false),
        ("a page and a byte", 0, page + 1, false),
        ("a page behind a hole", page + hole, ARENA - page - hole, true),
        ("all", 0, ARENA, false),
    ] {
        let arena = memory(ARENA, OFFERED);
        let words = Words::map(&arena, ARENA);
        (0..ARENA / 4096).filter(|page| *page != 1).for_each(|page| words.set(page * 512, 7));
        let (mut server, liar) = server_and_liar_with(Wait::Adaptive, &arena);
        liar.request(0, 0, (length as u64) << 32 | (offset / 64) as u64);
        match timed(name, || server.next_within(SHORT)) {
            Ok(request) => {
                assert!(is_taken, "{name}");
                server.memory(&request).write(0, &vec![1; length]);
            }
            Err(error) => assert!(!is_taken && accused(&error, "without taking"), "{name}: {error}"),
        }
        assert_eq!(backed_bytes(&arena), ARENA - hole, "{name}");
        // The client cannot punch holes either, which the server would have to populate again.
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: fallocate(2) on a descriptor that this test owns; the seals make it fail without any
        // change.
        assert_eq!(unsafe { libc::fallocate(arena.as_raw_fd(), punch, 0, ARENA as i64) }, -1, "{name}");
        assert_eq!(backed_bytes(&arena), ARENA - hole, "{name}");
    }
}

/// Submitting populates the pages of the attached bytes, and no others.
#[test]
fn a_client_takes_the_memory_of_what_it_submits() {
    let _watch = watch("a_client_takes_the_memory_of_what_it_submits", Duration::from_secs(60));
    let _alone = serialise_test();
    let (here, there) = socket_pair().unwrap();
    assert!(send(&there, &hello(SERVER, 1 << 30, [DEPTH; 2]), &[]));
    let mut client = Client::over(here, &small()).unwrap();
    let (_, files) = receive(&there);
    assert_eq!(backed_bytes(&files[0]), CONTROL_BYTES.next_multiple_of(4096));
    let mut buffer = client.alloc(3 * 4096).unwrap();
    assert_eq!(backed_bytes(&files[1]), 0);
    assert!(buffer.resize(4096 + 1));
    client.submit(Submission::new(1).buffer(buffer)).unwrap();
    assert_eq!(backed_bytes(&files[1]), 2 * 4096);
}

/// Found by `fuzz/`: a violation in a message of the socket was reported once and then forgotten.
#[test]
fn a_liar_that_was_found_out_through_the_socket_is_not_heard_again() {
    let _watch =
        watch("a_liar_that_was_found_out_through_the_socket_is_not_heard_again", Duration::from_secs(60));
    let _alone = serialise_test();
    let is_accused = |error: &Error| accused(error, "cannot be");
    for armed in [true, false] {
        let (mut server, liar) = server_and_liar(Wait::Adaptive);
        assert!(send(&liar.socket, &[3], &[]));
        let first = if armed { server.arm().map(drop) } else { server.next_within(SHORT).map(drop) };
        assert!(first.is_err_and(|error| is_accused(&error)), "armed: {armed}");
        liar.request(0, 0, 0);
        assert!(server.try_next().is_err_and(|error| is_accused(&error)), "armed: {armed}");
        let (mut client, liar) = client_and_liar(Wait::Adaptive);
        let tag = client.submit(Submission::new(1)).unwrap();
        assert!(send(&liar.socket, &[3], &[]));
        let first = if armed { client.arm().map(drop) } else { client.reap_within(SHORT).map(drop) };
        assert!(first.is_err_and(|error| is_accused(&error)), "armed: {armed}");
        liar.completion(0, tag.index() as u64);
        assert!(client.try_reap().is_err_and(|error| is_accused(&error)), "armed: {armed}");
    }
}

/// Random words at every position that the victim reads, while it works, cause errors but no fault, hang or
/// leak.
#[test]
fn rubbish_is_survived() {
    let _watch = watch("rubbish_is_survived", Duration::from_secs(600));
    let _alone = serialise_test();
    let mut random = Random::seeded("rubbish_is_survived");
    let mut before = None;
    for round in 0..rounds(300) {
        let wait = wait_by_name(random.one_of(&WAITS));
        let mut liars = random.clone();
        random.number();
        if round % 2 == 0 {
            let (mut server, liar) = server_and_liar(wait);
            let lying = thread::spawn(move || lie(&liar, &mut liars));
            while let Ok(request) = server.next_within(SHORT) {
                let memory = server.memory(&request);
                let mut bytes = vec![0; memory.len()];
                assert_eq!(memory.read(0, &mut bytes), memory.len());
                memory.write(memory.len() / 2, &bytes);
                if server.complete(request, 0, 0).is_err() {
                    break;
                }
            }
            let _ = server.arm();
            lying.join().unwrap();
        } else {
            let (mut client, liar) = client_and_liar(wait);
            let lying = thread::spawn(move || lie(&liar, &mut liars));
            for number in 0..100 {
                if let Ok(mut buffer) = client.alloc(1000) {
                    buffer.write(0, &[number; 1000]);
                    let _ = client.submit(Submission::new(1).buffer(buffer));
                }
                if client
                    .reap_within(Duration::from_micros(50))
                    .is_err_and(|error| !matches!(error, Error::TimedOut))
                {
                    break;
                }
            }
            let _ = client.arm();
            lying.join().unwrap();
        }
        // The first rounds allocate what a process allocates once.
        if round >= 4 {
            assert_eq!(before.get_or_insert_with(Resources::now), &Resources::now(), "round {round}");
        }
    }
}

/// Writes some words that are nearly valid, and some that are not.
fn lie(liar: &Liar, random: &mut Random) {
    for _ in 0..random.below(400) {
        let at = random.below(CONTROL_WORDS as u64) as usize;
        let turn = 1 + random.below(3);
        match random.below(8) {
            0 => liar.control.set(at, random.number()),
            1 => liar.control.set(at, random.below(6)),
            // Bells, indices and the closed flag.
            2 => liar.control.set(random.one_of(&[0, 8, 16, COMPLETIONS, COMPLETIONS + 8]), random.below(4)),
            3 => drop(send(&liar.socket, &[random.number() as u8], &[])),
            4 => drop(send(&liar.socket, &random.number().to_le_bytes(), &[liar.socket.as_raw_fd()])),
            5 => {
                let at = RING_HEAD + random.below(u64::from(DEPTH)) as usize * REQUEST;
                liar.control.set(at + 1, random.below(2000) << 32 | random.below(1100));
                liar.control.set(at, random.below(5) << 48 | turn);
            }
            6 => {
                let at = COMPLETIONS + RING_HEAD + random.below(u64::from(DEPTH)) as usize * COMPLETION;
                liar.control.set(at, random.below(5) << 48 | turn);
            }
            _ => thread::yield_now(),
        }
    }
}
