//! A malicious peer that speaks the protocol of paths without the library.
//!
//! Failures that this looks for: a false statement in the handshake is believed, and memory is mapped that is
//! too small or that the peer can shrink (SIGBUS later); a word in shared memory is believed, and a piece
//! outside the arena is read; malformed entries make the victim wait for ever, spin, panic, or leak
//! descriptors. The malicious peer has a socket, a mapping of the control memory of both directions, and a
//! random number generator.
//!
//! `BYWASH_STRESS_ROUNDS=20000` runs for longer, and `BYWASH_STRESS_SEED` repeats a run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod choices;
mod liar;

use bywash_container::{Error, Listener, Message, Path, socket_pair};
use bywash_support::peers::{
    FIXED, LIMIT, OFFERED, Random, Resources, WAITS, memory, offered, rounds, send, serialise_test, timed,
    watch,
};
use choices::options;
use liar::*;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(5);

/// False handshakes, each with the words that the victim's error must contain.
#[test]
fn lies_in_the_set_up_are_errors() {
    let _watch = watch("lies_in_the_set_up_are_errors", Duration::from_secs(60));
    let _alone = serialise_test();
    let good_control = || offered(CONTROL_BYTES);
    let good_arena = || memory(ARENA, FIXED);
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let plain_file = || {
        let file = tempfile::tempfile().unwrap();
        file.set_len(CONTROL_BYTES as u64).unwrap();
        OwnedFd::from(file)
    };
    let both = || vec![good_control(), good_arena()];
    let honest = HONEST.bytes();
    let hello = |change: fn(&mut Hello)| {
        let mut hello = HONEST;
        change(&mut hello);
        hello.bytes()
    };
    let lies: Vec<(&str, Vec<u8>, Vec<OwnedFd>, &str)> = vec![
        ("one byte", vec![1], vec![], "is not an end"),
        ("rubbish", vec![0xff; 32], both(), "is not an end"),
        ("too long", [honest.clone(), vec![0]].concat(), both(), "is not an end"),
        ("too short", honest[..31].to_vec(), both(), "is not an end"),
        ("longer than any message", vec![0; 4096], vec![], ""),
        ("another magic", hello(|hello| hello.magic[7] = b'q'), both(), "is not an end"),
        ("an older version", hello(|hello| hello.version = 0), both(), "version 0"),
        ("a newer version", hello(|hello| hello.version = 2), both(), "version 2"),
        ("no depth", hello(|hello| hello.depth = 0), both(), "rings of 0"),
        ("an odd depth", hello(|hello| hello.depth = 3), both(), "rings of 3"),
        ("too much depth", hello(|hello| hello.depth = 1 << 31), both(), "rings"),
        ("no tickets", hello(|hello| hello.tickets = 0), both(), "and 0"),
        ("too many tickets", hello(|hello| hello.tickets = 1 << 17), both(), "rings"),
        ("a larger ring than its memory", hello(|hello| hello.depth *= 2), both(), "another size"),
        ("a smaller ring than its memory", hello(|hello| hello.depth /= 2), both(), "another size"),
        ("an arena larger than allowed", hello(|hello| hello.arena_bytes = u64::MAX), both(), "allowed"),
        ("an arena of 2^63", hello(|hello| hello.arena_bytes = 1 << 63), both(), "allowed"),
        ("sealed, to one that is not", hello(|hello| hello.flags = SEALED), both(), "sealed"),
        ("no memory", honest.clone(), vec![], "descriptors"),
        ("no arena", honest.clone(), vec![good_control()], "descriptors"),
        ("an arena without bytes", hello(|hello| hello.arena_bytes = 0), both(), "descriptors"),
        ("a descriptor too many", honest.clone(), vec![good_control(), good_arena(), null()], "descriptors"),
        ("control that is no memory", honest.clone(), vec![null(), good_arena()], "no memory"),
        ("control that is a file", honest.clone(), vec![plain_file(), good_arena()], "memory"),
        ("control not sealed", honest.clone(), vec![memory(CONTROL_BYTES, 0), good_arena()], "not sealed"),
        (
            "control that can shrink",
            honest.clone(),
            vec![memory(CONTROL_BYTES, libc::F_SEAL_GROW), good_arena()],
            "not sealed",
        ),
        ("control too small", honest.clone(), vec![memory(CONTROL_BYTES - 8, FIXED), good_arena()], "size"),
        ("control of no size", honest.clone(), vec![memory(0, FIXED), good_arena()], "size"),
        ("control too large", honest.clone(), vec![memory(CONTROL_BYTES + 8, FIXED), good_arena()], "size"),
        (
            "control without memory",
            honest.clone(),
            vec![memory(CONTROL_BYTES, OFFERED), good_arena()],
            "not taken the memory",
        ),
        (
            "control whose memory can be taken away",
            honest.clone(),
            vec![memory(CONTROL_BYTES, FIXED), good_arena()],
            "let be sealed",
        ),
        (
            "control that cannot be written",
            honest.clone(),
            vec![memory(CONTROL_BYTES, FROZEN), good_arena()],
            "",
        ),
        ("an arena that is no memory", honest.clone(), vec![good_control(), null()], "no memory"),
        ("an arena that is a file", honest.clone(), vec![good_control(), plain_file()], "memory"),
        ("an arena not sealed", honest.clone(), vec![good_control(), memory(ARENA, 0)], "not sealed"),
        (
            "an arena that can shrink",
            honest.clone(),
            vec![good_control(), memory(ARENA, libc::F_SEAL_GROW | libc::F_SEAL_SEAL)],
            "not sealed",
        ),
        ("an arena too small", honest.clone(), vec![good_control(), memory(ARENA / 2, FIXED)], "size"),
        ("an arena too large", honest.clone(), vec![good_control(), memory(ARENA * 2, FIXED)], "size"),
        ("the two the wrong way around", honest.clone(), vec![good_arena(), good_control()], "size"),
    ];
    let before = Resources::now();
    for (name, bytes, files, expected) in &lies {
        let (here, there) = socket_pair().unwrap();
        let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        assert!(send(&there, bytes, &numbers), "{name}");
        let victim = timed(name, || Path::over(here, &options("checked", "sleep").arena_bytes(ARENA)));
        let error = victim.map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
        drop(there);
        assert_eq!(before, Resources::now(), "{name} leaves something behind");
    }
}

#[test]
fn a_socket_that_says_nothing_or_ends_is_an_error() {
    let _alone = serialise_test();
    let before = Resources::now();
    let (here, _there) = socket_pair().unwrap();
    let mute = timed("mute", || Path::over(here, &options("checked", "sleep").handshake_timeout(SHORT)));
    assert!(matches!(mute, Err(Error::TimedOut)));
    let (here, there) = socket_pair().unwrap();
    let shut = thread::spawn(move || {
        thread::sleep(SHORT);
        drop(there);
    });
    let over = timed("over", || Path::over(here, &options("checked", "sleep")));
    assert!(matches!(over, Err(Error::PeerDied { pid: 0 })), "{over:?}");
    shut.join().unwrap();
    drop((mute, over, _there));
    assert_eq!(before, Resources::now());
}

/// Reads everything that the victim received. A piece outside the arena would be a fault, or contain other
/// bytes than the arena.
fn look_at(message: &Message, class: &str) {
    // The malicious peer's sealed memory contains zeros.
    let filling = if class == "sealed" { 0 } else { FILLING };
    for piece in message.pieces() {
        assert!(piece.len() <= ARENA, "a piece of {} bytes of an arena of {ARENA}", piece.len());
        match piece.to_vec() {
            Ok(bytes) if bytes.len() > 120 => assert!(bytes.iter().all(|byte| *byte == filling)),
            Ok(_) => {}
            Err(Error::NotMapped(_)) => assert_eq!(class, "forward"),
            Err(other) => panic!("{other}"),
        }
        if let Ok(inside) = piece.map() {
            assert_eq!(inside.len(), piece.len());
        }
    }
}

/// Calls one random function of the path; returns false if the path has ended.
fn use_path(path: &Path, class: &str, kept: &mut Vec<Message>, random: &mut Random) -> bool {
    let done = match random.below(6) {
        0 | 1 => timed("receive", || path.receive_within(SHORT)).map(|message| kept.push(message)),
        2 => timed("try_receive", || path.try_receive()).map(|message| kept.extend(message)),
        3 => timed("alloc", || path.alloc_within(ARENA / 4, SHORT)).map(drop),
        4 => timed("ship", || {
            let mut container = path.alloc_within(1 + random.below(9000) as usize, SHORT)?;
            container.fill(1);
            path.ship_within(container, SHORT).map_err(|refused| refused.error)
        }),
        _ => timed("arm", || path.arm()).map(drop),
    };
    if let Some(message) = kept.last() {
        look_at(message, class);
    }
    if random.below(2) == 0 {
        kept.clear();
    }
    match done {
        Ok(()) | Err(Error::TimedOut | Error::AllocTimedOut { .. }) => true,
        Err(Error::Protocol { .. } | Error::PeerDied { .. } | Error::Closed) => false,
        Err(other) => panic!("{other}"),
    }
}

/// Writes a random word or entry, valid enough to pass some of the victim's checks now and then.
fn lie(liar: &Liar, random: &mut Random) {
    let (more, most) = if random.below(2) == 0 { (MORE, 8) } else { (0, 1) };
    let words = if random.below(2) == 0 { &liar.to_victim } else { &liar.from_victim };
    let turn = 1 + random.below(3);
    let entry = RING_HEAD + random.below(u64::from(DEPTH)) as usize * ENTRY;
    let piece = entry + 1 + 2 * random.below(7) as usize;
    let returned = RETURNED + RING_HEAD + random.below(u64::from(TICKETS)) as usize;
    let ticket = random.below(u64::from(TICKETS) + 1);
    match random.below(9) {
        // Any value, anywhere.
        0 => words.set(random.below(CONTROL_WORDS as u64) as usize, random.number()),
        // The indices, the bells and the closed flag of either ring; the flag seldom, since it ends the path.
        1 => {
            let ring = random.one_of(&[0, RETURNED]);
            let value = [random.number(), random.below(9), u64::MAX, 0][random.below(4) as usize];
            words.set(ring + random.one_of(&[0, 0, 8, 16]), value);
        }
        2 if random.below(10) == 0 => words.set(24, 1),
        // An entry with contents.
        2 | 3 => words.set(entry, random.below(130) << 40 | 1 << 32 | turn),
        // Entries whose pieces and heads may be valid.
        4 | 5 => {
            let length = random.one_of(&[1, 121, 4096, ARENA as u64, ARENA as u64 + 1, u64::from(u32::MAX)]);
            let offset = random.one_of(&[0, 1, 64, 1000, ARENA as u64 / 64, u64::from(u32::MAX)]);
            words.set(piece, random.one_of(&[0, 0, 0, 1, 63, 64, 0xffff]) << 32 | ticket);
            words.set(piece + 1, length << 32 | offset);
            words.set(entry, random.number() & more | pieces(random.below(most + 1)) | turn);
        }
        // An entry with some valid pieces.
        6 => {
            for number in 0..7 {
                words.set(entry + 1 + 2 * number, random.below(u64::from(TICKETS)));
                words.set(entry + 2 + 2 * number, random.below(4096) << 32 | random.below(512));
            }
            words.set(entry, random.number() & more | pieces(1 + random.below(most.min(7))) | turn);
        }
        // A returned ticket.
        7 => words.set(returned, ticket << 32 | turn),
        _ => note(liar, random),
    }
}

/// Sends a message over the socket, with or without descriptors.
fn note(liar: &Liar, random: &mut Random) {
    let number = |random: &mut Random| random.below(4) as u16;
    let arena = liar.arena.as_raw_fd();
    let frozen = memory(4096, FROZEN);
    let files = [arena, frozen.as_raw_fd(), liar.socket.as_raw_fd()];
    let files: Vec<RawFd> = (0..random.below(4)).map(|_| random.one_of(&files)).collect();
    // The message is lost if the socket is full.
    let _ = match random.below(8) {
        0..3 => send(&liar.socket, &[1], &[]),
        3 => {
            let bytes = [&[2][..], &number(random).to_le_bytes(), &(ARENA as u64).to_le_bytes()].concat();
            send(&liar.socket, &bytes, &[arena])
        }
        4 => {
            let bytes = random.one_of(&[0, 1, ARENA as u64 * 2, 1 << 63]);
            let bytes = [&[2][..], &1u16.to_le_bytes(), &bytes.to_le_bytes()].concat();
            send(&liar.socket, &bytes, &files)
        }
        5 => {
            let length = random.one_of(&[0u64, 4096, 4097, u64::MAX]);
            send(&liar.socket, &[&[3][..], &length.to_le_bytes()].concat(), &[frozen.as_raw_fd()])
        }
        6 => {
            let lengths: Vec<u8> = files.iter().flat_map(|_| 4096u64.to_le_bytes()).collect();
            send(&liar.socket, &[&[3][..], &lengths].concat(), &files)
        }
        _ => {
            let bytes: Vec<u8> = (0..1 + random.below(600)).map(|_| random.number() as u8).collect();
            send(&liar.socket, &bytes, &files)
        }
    };
}

/// The peer's writes and the victim's calls alternate in one thread, so that a run can be repeated.
#[test]
fn lies_between_calls_are_errors_or_harmless() {
    let total = rounds(250);
    let _watch =
        watch("lies_between_calls_are_errors_or_harmless", Duration::from_secs(60) + LIMIT * total as u32);
    let _alone = serialise_test();
    let mut random = Random::seeded("hostile");
    let mut before = Resources::now();
    for round in 0..total {
        let class = random.one_of(&["checked", "trusted", "forward", "sealed"]);
        let wait = random.one_of(&WAITS);
        let (path, liar) = meet(class, wait);
        let mut kept = Vec::new();
        let lies = 1 + random.below(6);
        for _ in 0..40 {
            (0..lies).for_each(|_| lie(&liar, &mut random));
            if !use_path(&path, class, &mut kept, &mut random) && random.below(4) != 0 {
                break;
            }
        }
        drop(path);
        drop(kept);
        drop(liar);
        assert_eq!(before, Resources::now(), "round {round}: {class}, {wait}");
        before = Resources::now();
    }
}

/// The peer writes as fast as it can, in a thread, while the victim is in the middle of a call.
#[test]
fn lies_at_any_moment_are_errors_or_harmless() {
    let total = rounds(300);
    let _watch =
        watch("lies_at_any_moment_are_errors_or_harmless", Duration::from_secs(60) + LIMIT * total as u32);
    let _alone = serialise_test();
    let mut random = Random::seeded("hostile, at once");
    let mut before = None;
    for round in 0..total {
        let class = random.one_of(&["checked", "trusted", "forward", "sealed"]);
        let wait = random.one_of(&WAITS);
        let (path, liar) = meet(class, wait);
        let over = Arc::new(AtomicBool::new(false));
        let (seen, mut own) = (over.clone(), Random(random.number()));
        let lying = thread::spawn(move || {
            while !seen.load(Relaxed) {
                lie(&liar, &mut own);
            }
            liar
        });
        let mut kept = Vec::new();
        for _ in 0..20 {
            if !use_path(&path, class, &mut kept, &mut random) && random.below(4) != 0 {
                break;
            }
        }
        over.store(true, Relaxed);
        drop(path);
        drop(kept);
        drop(lying.join().unwrap());
        let now = Resources::now();
        assert_eq!(before.as_ref().unwrap_or(&now), &now, "round {round}: {class}");
        before = Some(Resources::now());
    }
}

/// A peer that leaves without dying ends the victim's call, which has no timeout.
#[test]
fn a_liar_that_leaves_lets_the_victim_go() {
    let _watch = watch("a_liar_that_leaves_lets_the_victim_go", Duration::from_secs(60));
    let _alone = serialise_test();
    for (class, wait) in ["checked", "sealed"].iter().flat_map(|class| WAITS.map(|wait| (*class, wait))) {
        let (path, liar) = meet(class, wait);
        let victim = thread::spawn(move || path.receive().map(drop));
        thread::sleep(Duration::from_millis(20));
        drop(liar);
        let start = Instant::now();
        let answer = victim.join().unwrap();
        assert!(matches!(answer, Err(Error::PeerDied { .. } | Error::Closed)), "{answer:?}");
        assert!(start.elapsed() < LIMIT, "{class}, {wait}: {:?}", start.elapsed());
    }
}

#[test]
fn a_message_that_was_begun_is_freed_with_its_path() {
    let _alone = serialise_test();
    let before = Resources::now();
    let (path, liar) = meet("checked", "sleep");
    put(&liar, 0, pieces(1) | MORE, &[(0, 200 << 32)]);
    assert!(path.try_receive().unwrap().is_none());
    drop((path, liar));
    assert_eq!(before, Resources::now());
}

#[test]
fn descriptors_of_an_empty_packet_are_closed() {
    let _alone = serialise_test();
    let before = Resources::now();
    let (path, liar) = meet("checked", "sleep");
    let sent = [liar.arena.as_raw_fd(); 10];
    assert!(send(&liar.socket, &[], &sent));
    let _ = path.receive_within(SHORT);
    drop((path, liar));
    assert_eq!(before, Resources::now());
}

#[test]
fn the_end_is_seen_behind_notes_that_nobody_wants() {
    let _alone = serialise_test();
    let (path, liar) = meet("checked", "sleep");
    let frozen = memory(4096, FROZEN);
    let unwanted = [&[3][..], &4096u64.to_le_bytes()].concat();
    (0..16).for_each(|_| assert!(send(&liar.socket, &unwanted, &[frozen.as_raw_fd()])));
    drop(liar);
    let answer = path.receive_within(LIMIT);
    assert!(!matches!(answer, Err(Error::TimedOut)), "{answer:?}");
}

#[test]
fn an_arena_of_an_odd_size_does_no_harm() {
    const ROUNDS: usize = 50;
    let _alone = serialise_test();
    let odd = (2 << 20) + 1;
    let address_space = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let before = address_space();
    for _ in 0..ROUNDS {
        let (here, there) = socket_pair().unwrap();
        let (control, arena) = (offered(CONTROL_BYTES), memory(odd, FIXED));
        let hello = Hello { arena_bytes: odd as u64, ..HONEST };
        assert!(send(&there, &hello.bytes(), &[control.as_raw_fd(), arena.as_raw_fd()]));
        // The victim may also refuse the arena with an error.
        drop(Path::over(here, &options("checked", "sleep").arena_bytes(ARENA)));
    }
    // Fewer than one leaked mapping for each round; other tests' threads map and unmap meanwhile.
    assert!(address_space() < before + ROUNDS / 2);
}

#[test]
fn memory_that_is_passed_on_is_limited_too() {
    let _alone = serialise_test();
    let most = 1 << 30;
    for class in ["checked", "sealed"] {
        let (path, liar) = meet_with(class, options(class, "sleep").peer_arena_bytes_max(most));
        let giant = memory(1 << 40, FROZEN);
        let size = (1u64 << 40).to_le_bytes();
        let note = match class {
            "sealed" => [&[3][..], &size].concat(),
            _ => [&[2, 1, 0][..], &size].concat(),
        };
        assert!(send(&liar.socket, &note, &[giant.as_raw_fd()]));
        if class == "checked" {
            put(&liar, 0, pieces(1), &[(1 << 32, 4096 << 32)]);
        }
        let answer = path.receive_within(SHORT);
        assert!(answer.is_err(), "{class}: {answer:?}");
    }
}

#[test]
fn a_peer_that_returned_what_it_has_not_is_not_heard_again() {
    let _alone = serialise_test();
    let (path, liar) = meet("checked", "sleep");
    liar.from_victim.set(RETURNED + RING_HEAD, 5 << 32 | 1);
    let mut held = Vec::new();
    let accused = loop {
        match path.alloc_within(ARENA / 4, SHORT) {
            Ok(container) => held.push(container),
            Err(error) => break error,
        }
    };
    assert!(matches!(accused, Error::Protocol { .. }), "{accused}");
    let again = path.alloc_within(ARENA / 4, SHORT);
    assert!(matches!(again, Err(Error::Protocol { .. } | Error::Closed)), "{again:?}");
    let received = path.receive_within(SHORT);
    assert!(matches!(received, Err(Error::Protocol { .. } | Error::Closed)), "{received:?}");
}

/// Found by `fuzz/`: an event loop slept on a path that had already failed.
#[test]
fn a_path_whose_peer_was_accused_cannot_be_armed() {
    let _alone = serialise_test();
    for class in ["checked", "sealed"] {
        let (path, liar) = meet(class, "sleep");
        assert!(send(&liar.socket, &[77, 77], &[]));
        assert!(matches!(path.arm(), Err(Error::Protocol { .. })), "{class}");
        let again = path.arm();
        assert!(matches!(again, Err(Error::Protocol { .. })), "{class}: {again:?}");
    }
}

/// A process in the middle has an honest peer that ships and a malicious one that receives. The malicious one
/// must not be able to end the path to the honest one.
#[test]
fn a_liar_at_the_end_of_a_chain_does_not_end_the_rest() {
    let _alone = serialise_test();
    let (a, b) = socket_pair().unwrap();
    let source = thread::spawn(move || Path::over(a, &options("checked", "sleep")).unwrap());
    let from = Path::over(b, &options("forward", "sleep")).unwrap();
    let source = source.join().unwrap();
    let (to, liar) = meet("forward", "sleep");
    source.ship(source.alloc(5000).unwrap()).unwrap();
    to.ship_message(from.receive_within(LIMIT).unwrap()).unwrap();
    assert!(send(&liar.socket, &[77, 77], &[]));
    let answer = from.receive_within(Duration::from_millis(100));
    assert!(matches!(answer, Err(Error::TimedOut)), "{answer:?}");
}

/// A hello message that is sent before the victim asks for credentials has none, unless the victim's socket
/// was made to receive them from the start.
#[test]
fn a_liar_in_a_hurry_is_known_all_the_same() {
    let _alone = serialise_test();
    let (path, _liar) = meet("checked", "sleep");
    assert_eq!(path.peer().pid, std::process::id());
}

/// The same through a name, where the listener's socket was made to receive credentials.
#[test]
fn a_liar_that_connects_in_a_hurry_is_known() {
    let _alone = serialise_test();
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("name");
    let listener = Listener::bind(&name).unwrap();
    let bytes = name.as_os_str().as_encoded_bytes();
    // SAFETY: a new socket, and a live address whose path ends in a zero byte, since it was zeroed and is
    // longer.
    let socket = unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        assert!(bytes.len() < address.sun_path.len());
        ptr::copy_nonoverlapping(bytes.as_ptr(), address.sun_path.as_mut_ptr().cast(), bytes.len());
        let length = size_of::<libc::sockaddr_un>() as u32;
        assert_eq!(libc::connect(socket, (&raw const address).cast(), length), 0);
        OwnedFd::from_raw_fd(socket)
    };
    let (control, arena) = (offered(CONTROL_BYTES), memory(ARENA, FIXED));
    assert!(send(&socket, &HONEST.bytes(), &[control.as_raw_fd(), arena.as_raw_fd()]));
    let path = listener.accept(&options("checked", "sleep")).unwrap();
    assert_eq!(path.peer().pid, std::process::id());
}
