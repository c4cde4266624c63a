//! Kills a process with SIGKILL at random moments in the middle of many operations.
//!
//! Failures that this looks for: the store does not open again, or contradicts itself; an operation that had
//! returned is lost; an operation that had not returned is there in part.
//!
//! The child carries out operations that a seed determines, and reports each one that has returned. The
//! parent carries out the same operations in another store, undisturbed: the child's store must have that
//! store's state after as many operations as the child has reported, or after one more.
//! `BYWASH_STRESS_ROUNDS=1000 cargo test -p bywash-volume --test store kill` kills more often.
//! `BYWASH_STRESS_SEED` repeats a run, except for the moments.

use crate::operation::{Operation, state};
use bywash_support::peers::{Child, Random, inherited_sockets, role, rounds};
use bywash_volume::{Error, Store};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Greatest time until the store of a killed process can be opened.
const LIMIT: Duration = Duration::from_secs(10);

/// Returns a folder where syncing is fast: the medium makes no difference for a killed process.
pub fn fast_folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// Entry point of the child, not a test by itself. Its role is the store's path, the seed of the operations,
/// and the number of operations that were carried out before.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let mut told = UnixStream::from(inherited_sockets().remove(0));
    let mut random = Random(words[1].parse().unwrap());
    let before: u64 = words[2].parse().unwrap();
    for _ in 0..before {
        Operation::random(&mut random);
    }
    let store = Store::open(words[0]).unwrap();
    loop {
        let _ = Operation::random(&mut random).run(&store);
        if told.write_all(&[1]).is_err() {
            return;
        }
    }
}

/// Opens the store of a process that was killed.
fn open_again(path: &Path) -> Store {
    let end = Instant::now() + LIMIT;
    loop {
        match Store::open(path) {
            Err(Error::InUse { .. }) if Instant::now() < end => thread::sleep(Duration::from_millis(1)),
            opened => return opened.unwrap(),
        }
    }
}

#[test]
fn killed_in_the_middle() {
    let mut random = Random::seeded("kill");
    let folder = tempfile::tempdir_in(fast_folder()).unwrap();
    let path = folder.path().join("volumes");
    let peace = Store::open(folder.path().join("peace")).unwrap();
    let seed = random.number();
    let mut operations = Random(seed);
    let (mut made, mut in_flight) = (0u64, 0u64);
    let rounds = rounds(60);
    for round in 0..rounds {
        let (mut here, there) = UnixStream::pair().unwrap();
        let role = format!("{} {seed} {made}", path.display());
        let mut child = Child::start("kill::child", &role, vec![OwnedFd::from(there)]);
        // The child is killed early, while it opens or creates the store, or later, during operations.
        if random.below(4) > 0 {
            here.read_exact(&mut [0]).unwrap();
            made += 1;
            operate(&peace, &mut operations);
        }
        thread::sleep(Duration::from_micros(random.below(100_000)));
        child.kill();
        let mut told = Vec::new();
        here.read_to_end(&mut told).unwrap();
        for _ in 0..told.len() {
            operate(&peace, &mut operations);
        }
        made += told.len() as u64;
        let found = state(&open_again(&path));
        if found != state(&peace) {
            operate(&peace, &mut operations);
            (made, in_flight) = (made + 1, in_flight + 1);
            assert_eq!(found, state(&peace), "round {round}, operation {made}");
        }
    }
    eprintln!("{made} operations, {rounds} kills; the operation in flight was there {in_flight} times");
    assert!(made > rounds, "hardly anything was done");
}

fn operate(store: &Store, operations: &mut Random) {
    let _ = Operation::random(operations).run(store);
}
