//! A long run of messages of mixed sizes does not use more and more memory.
//!
//! Failures that this looks for: blocks, tickets or descriptors leak one by one, so that after an hour the
//! arena is full or the process is large; something grows with each message; an arena takes more memory than
//! its size.
//!
//! Memory is read from /proc/self/smaps, which counts pages. The numbers of /proc/self/status are sums of
//! per-CPU counters, which lag by some hundred KiB. `BYWASH_STRESS_ROUNDS=100` runs for longer.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod choices;

use bywash_container::{Error, Message, Path, socket_pair};
use bywash_support::peers::{
    Child, Random, check, fill, inherited_sockets, memfd_mappings, memfds, role, rounds, serialise_test,
};
use choices::options;
use std::collections::VecDeque;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);
const ARENA: usize = 1 << 20;
/// Memory that a path may use besides its arenas, in bytes: rings, tickets, and the allocator's rounding.
const ALLOWANCE: usize = 256 << 10;

/// Memory and descriptors of this process; memory in bytes.
#[derive(Clone, Copy, Debug)]
struct Memory {
    /// Private memory.
    anonymous: usize,
    /// Resident shared memory of paths.
    shared: usize,
    /// Mapped shared memory of paths.
    mapped: usize,
    descriptors: usize,
}

fn memory() -> Memory {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let kib = |line: &str| line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10;
    let mut memory = Memory { anonymous: 0, shared: 0, mapped: 0, descriptors: memfds("bywash").len() };
    let mut of_a_path = false;
    for line in maps.lines() {
        match line.split_whitespace().next().unwrap() {
            "Anonymous:" => memory.anonymous += kib(line),
            "Rss:" if of_a_path => memory.shared += kib(line),
            "Size:" if of_a_path => memory.mapped += kib(line),
            first if !first.ends_with(':') => of_a_path = line.contains("memfd:bywash"),
            _ => {}
        }
    }
    memory
}

/// Checks the memory of a process with arenas of this total size, and that it has not grown since `warm`.
fn assert_bounded(warm: Memory, arenas: usize) {
    let now = memory();
    let descriptors = now.descriptors <= warm.descriptors;
    let own = now.anonymous <= warm.anonymous + ALLOWANCE;
    let shared = now.shared <= arenas + ALLOWANCE && now.mapped <= arenas + ALLOWANCE;
    assert!(own && shared && descriptors, "warm: {warm:?}, now: {now:?}, arenas: {arenas}");
}

/// Not a test by itself: the other end. Its role is a class, the size of its arena in bytes, the numbers of
/// messages and of warm-up messages, and 1 if it ships a message back for each.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let [arena, messages, warm_up, ping_pong] = [1, 2, 3, 4].map(|word: usize| words[word].parse().unwrap());
    let path = Path::over(inherited_sockets().remove(0), &options(words[0], "adaptive").arena_bytes(arena));
    let path = path.unwrap();
    let mut random = Random(9);
    let mut kept = VecDeque::new();
    let mut warm = None;
    for number in 0..messages {
        if number == warm_up {
            warm = Some(memory());
        }
        keep(&mut kept, path.receive_within(LONG).unwrap(), &mut random);
        if ping_pong == 1 {
            ship(&path, &mut random);
        }
    }
    // Both arenas are mapped once. A sealed path has none, and maps each container only while it is in use.
    let arenas = if words[0] == "sealed" { 0 } else { ARENA + arena };
    kept.clear();
    assert_bounded(warm.unwrap(), arenas);
    assert!(matches!(path.receive_within(LONG), Err(Error::Closed)));
}

/// Checks a message and keeps up to four for a while, so that they are dropped in another order.
fn keep(kept: &mut VecDeque<Message>, message: Message, random: &mut Random) {
    for piece in message.pieces() {
        check(&piece.to_vec().unwrap());
    }
    kept.push_back(message);
    while kept.len() as u64 > random.below(5) {
        kept.swap_remove_back(random.below(kept.len() as u64) as usize);
    }
}

/// Ships a message of one container, or of several.
fn ship(path: &Path, random: &mut Random) {
    let count = if random.below(8) == 0 { 1 + random.below(9) } else { 1 };
    let shipment = (0..count).map(|_| {
        let bits = if count == 1 { 17 } else { 13 };
        let mut container = path.alloc_within(random.size(bits), LONG).unwrap();
        fill(&mut container, random.number());
        container.into()
    });
    path.ship_all_within(shipment.collect(), LONG).unwrap();
}

/// Ships messages through a path to a child, and checks both processes.
fn run(class: &str, ping_pong: bool) {
    let _alone = serialise_test();
    let (warm_up, messages) = (2000, 2000 + 1000 * rounds(4));
    let their_arena = if ping_pong { ARENA } else { 0 };
    let (here, there) = socket_pair().unwrap();
    let role = format!("{class} {their_arena} {messages} {warm_up} {}", u64::from(ping_pong));
    let mut child = Child::start("child", &role, vec![there]);
    assert_eq!(memfd_mappings().count(), 0);
    let path = Path::over(here, &options(class, "adaptive").arena_bytes(ARENA)).unwrap();
    let mut random = Random(5);
    let mut kept = VecDeque::new();
    let mut warm = None;
    for number in 0..messages {
        if number == warm_up {
            warm = Some(memory());
        }
        ship(&path, &mut random);
        if ping_pong {
            keep(&mut kept, path.receive_within(LONG).unwrap(), &mut random);
        }
    }
    kept.clear();
    assert_bounded(warm.unwrap(), if class == "sealed" { 0 } else { ARENA + their_arena });
    if class != "sealed" {
        // All of the arena is free again, in one block.
        drop(path.alloc_within(ARENA, LONG).unwrap());
    }
    drop(path);
    assert!(child.finish(LONG).success(), "the child has grown, or failed");
    assert_eq!((memfd_mappings().count(), memfds("bywash").len()), (0, 0));
}

#[test]
fn one_way_does_not_grow() {
    if role().is_none() {
        run("checked", false);
    }
}

#[test]
fn both_ways_do_not_grow() {
    if role().is_none() {
        run("trusted", true);
    }
}

#[test]
fn sealed_containers_do_not_stay() {
    if role().is_none() {
        run("sealed", true);
    }
}

/// Paths that are made and dropped leave nothing behind, not even mapped addresses.
#[test]
fn paths_that_come_and_go_leave_nothing() {
    if role().is_some() {
        return;
    }
    let _alone = serialise_test();
    let one = |bytes: usize| {
        let (here, there) = socket_pair().unwrap();
        let options = options("checked", "adaptive").arena_bytes(bytes);
        let theirs = options.clone();
        let other = std::thread::spawn(move || Path::over(there, &theirs).unwrap());
        let path = Path::over(here, &options).unwrap();
        let peer = other.join().unwrap();
        path.ship(path.alloc(5000).unwrap()).unwrap();
        let message = peer.receive_within(LONG).unwrap();
        // A received message outlives its path.
        drop((path, peer));
        assert_eq!(message.to_vec().unwrap().len(), 5000);
    };
    let address_space = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmSize:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    };
    let sizes = [8192, ARENA, 3 << 20, 8 << 20];
    (0..50).for_each(|number| one(sizes[number % 4]));
    let (warm, addresses) = (memory(), address_space());
    (0..1000).for_each(|number| one(sizes[number % 4]));
    // Less than 1 KiB for each path, including the memory of other threads of this process.
    let now = memory();
    assert!(now.anonymous < warm.anonymous + (1 << 20), "warm: {warm:?}, now: {now:?}");
    // Stacks of threads that have just ended may still be mapped.
    assert!(address_space() < addresses + (16 << 20), "{} after {addresses}", address_space());
    assert_eq!((memfd_mappings().count(), memfds("bywash").len()), (0, 0));
}
