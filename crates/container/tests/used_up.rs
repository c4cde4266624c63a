//! A full arena tells who holds its memory: this program, the peer, or nobody, if the free blocks are too
//! small.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_container::{Container, Error, HugePages, Options, Path, socket_pair};
use std::thread;
use std::time::Duration;

const ARENA: usize = 1 << 20;
const PIECE: usize = 64 << 10;
/// Number of containers that fill the arena.
const PIECES: usize = ARENA / PIECE;
const LIMIT: Duration = Duration::from_millis(20);

/// Two ends in this process, each with an arena of its own.
fn pair() -> (Path, Path) {
    let options = Options::new().arena_bytes(ARENA).huge_pages(HugePages::No);
    let (here, there) = socket_pair().unwrap();
    let theirs = options.clone();
    let other = thread::spawn(move || Path::over(there, &theirs).unwrap());
    let path = Path::over(here, &options).unwrap();
    (path, other.join().unwrap())
}

/// Allocates containers until the arena is full.
fn fill(path: &Path) -> Vec<Container> {
    std::iter::from_fn(|| path.try_alloc(PIECE).unwrap()).collect()
}

/// Reads the use of an end's arena: number and bytes of own containers, number and bytes of shipped ones, and
/// the size of the largest free block.
fn holders(path: &Path) -> [usize; 5] {
    let stats = path.stats();
    assert_eq!(stats.arena_bytes, ARENA as u64);
    [
        stats.arena_held,
        stats.arena_held_bytes,
        stats.arena_shipped,
        stats.arena_shipped_bytes,
        stats.arena_largest_free,
    ]
    .map(|figure| figure as usize)
}

/// Checks that an allocation times out, and that its error and text have the same figures as the counts.
fn assert_refused(path: &Path, asked: usize, expected: [usize; 5], text: &str) {
    assert_eq!(holders(path), expected);
    let error = path.alloc_within(asked, LIMIT).unwrap_err();
    let Error::AllocTimedOut { asked: named, arena } = &error else { panic!("{error}") };
    let [held, held_bytes, shipped, shipped_bytes, largest_free] = expected;
    assert_eq!((*named, arena.bytes, arena.largest_free), (asked, ARENA, largest_free));
    assert_eq!((arena.held, arena.held_bytes), (held, held_bytes));
    assert_eq!((arena.shipped, arena.shipped_bytes), (shipped, shipped_bytes));
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn by_this_program() {
    let (path, _peer) = pair();
    assert_eq!(holders(&path), [0, 0, 0, 0, ARENA]);
    let mut kept = fill(&path);
    assert_eq!(kept.len(), PIECES);
    let text =
        "this program holds 1048576 in 16 containers that it has not shipped, and the peer holds 0 in 0";
    assert_refused(&path, PIECE, [PIECES, ARENA, 0, 0, 0], text);
    kept.pop();
    assert_eq!(holders(&path), [PIECES - 1, ARENA - PIECE, 0, 0, PIECE]);
    drop(kept);
    assert_eq!(holders(&path), [0, 0, 0, 0, ARENA]);
}

#[test]
fn by_the_peer() {
    let (path, peer) = pair();
    fill(&path).into_iter().for_each(|container| path.ship(container).unwrap());
    let mut kept: Vec<_> = (0..PIECES).map(|_| peer.receive().unwrap()).collect();
    let text =
        "this program holds 0 in 0 containers that it has not shipped, and the peer holds 1048576 in 16";
    assert_refused(&path, PIECE, [0, 0, PIECES, ARENA, 0], text);
    // Returned containers are no longer counted as the peer's, even before the next allocation.
    kept.truncate(PIECES / 2);
    assert_eq!(holders(&path), [0, 0, PIECES / 2, ARENA / 2, ARENA / 2]);
    // The other direction has its own arena, which is empty.
    assert_eq!(holders(&peer), [0, 0, 0, 0, ARENA]);
}

#[test]
fn by_both() {
    let (path, peer) = pair();
    let mut mine = fill(&path);
    mine.drain(..3).for_each(|container| path.ship(container).unwrap());
    let _theirs: Vec<_> = (0..3).map(|_| peer.receive().unwrap()).collect();
    let text =
        "this program holds 851968 in 13 containers that it has not shipped, and the peer holds 196608 in 3";
    assert_refused(&path, 1000, [PIECES - 3, ARENA - 3 * PIECE, 3, 3 * PIECE, 0], text);
}

#[test]
fn by_pieces_between_which_too_little_is_free() {
    let (path, _peer) = pair();
    let kept: Vec<Container> =
        fill(&path).into_iter().enumerate().filter(|(at, _)| at % 2 == 0).map(|(_, one)| one).collect();
    assert_eq!(kept.len(), PIECES / 2);
    let text = "the largest free block has 65536";
    assert_refused(&path, 2 * PIECE, [PIECES / 2, ARENA / 2, 0, 0, PIECE], text);
}

#[test]
fn a_container_that_travels_in_an_entry_needs_no_arena() {
    let (path, _peer) = pair();
    let _kept = fill(&path);
    assert!(path.alloc_within(8, LIMIT).is_ok());
}
