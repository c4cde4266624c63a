//! Children of a test, and what a process has: descriptors, mappings, memory.
//!
//! A child is the test's own binary, run again with a role in its environment; the test function that is named
//! when it is started plays that role. Its sockets are inherited by number. A child never outlives its parent.

#![allow(dead_code, reason = "each test uses a part of this")]

use bywash_container::{Options, Wait};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const ROLE: &str = "BYWASH_TEST_ROLE";
const SOCKETS: &str = "BYWASH_TEST_SOCKETS";

/// What a child has been told to be; none: this is no child.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// The sockets that a child was given.
pub fn inherited_sockets() -> Vec<OwnedFd> {
    let numbers = std::env::var(SOCKETS).unwrap();
    let numbers = numbers.split(',').filter(|number| !number.is_empty());
    // SAFETY: the parent left these open for this process alone, which asks for them once.
    numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number.parse::<RawFd>().unwrap()) }).collect()
}

/// A running child.
pub struct Child(std::process::Child);

impl Child {
    /// Runs the test `player` of this binary in a process of its own, which keeps `sockets`.
    pub fn start(player: &str, role: &str, sockets: Vec<OwnedFd>) -> Child {
        let numbers: Vec<RawFd> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
        let listed: Vec<String> = numbers.iter().map(RawFd::to_string).collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", player, "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(SOCKETS, listed.join(",")).stdout(Stdio::null()).stdin(Stdio::null());
        // In the child and not before: else another child, started by another thread, would get them too.
        let prepare = move || {
            // SAFETY: system calls on numbers, which may be made between fork and exec.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                numbers.iter().for_each(|number| {
                    libc::fcntl(*number, libc::F_SETFD, 0);
                });
            }
            Ok(())
        };
        // SAFETY: `prepare` makes system calls only, and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn().unwrap();
        drop(sockets);
        Child(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits for its own end.
    pub fn finish(&mut self, limit: Duration) -> ExitStatus {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the child has not ended within {limit:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tests that look at what their process has run one after the other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What memory of paths is called.
const NAMES: [&str; 3] = ["bywash-control", "bywash-arena", "bywash-sealed"];

/// What this process has, of that which could be left behind.
#[derive(Debug, PartialEq, Eq)]
pub struct Belongings {
    descriptors: usize,
    mappings: usize,
    named: BTreeSet<String>,
}

impl Belongings {
    pub fn now() -> Belongings {
        let named = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let named = named.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Belongings {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            mappings: memfd_mappings().count(),
            // Others may use this folder meanwhile, by names of their own.
            named: named.filter(|name| NAMES.iter().any(|own| name.contains(own))).collect(),
        }
    }
}

/// Lines of /proc/self/maps for memory of paths.
pub fn memfd_mappings() -> impl Iterator<Item = String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("memfd:bywash"))
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}

/// Descriptors of this process for memory of that name.
pub fn memfds(name: &str) -> Vec<RawFd> {
    let wanted = format!("/memfd:{name}");
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
    entries
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with(&wanted)))
        .map(|entry| entry.file_name().to_string_lossy().parse().unwrap())
        .collect()
}

/// Numbers that follow from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// By the seed of the environment or of the clock; it is printed.
    pub fn seeded(test: &str) -> Random {
        let given = std::env::var("BYWASH_STRESS_SEED").ok().map(|seed| seed.parse().unwrap());
        let seed = given.unwrap_or_else(|| {
            std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 ^ u64::from(std::process::id()) << 40
        });
        eprintln!("{test}: to run it again, BYWASH_STRESS_SEED={seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// From [`SIZE_MIN`] to twice `1 << bits`, small ones as often as large ones.
    pub fn size(&mut self, bits: u64) -> usize {
        let magnitude = 1 << (4 + self.below(bits - 3));
        SIZE_MIN + self.below(magnitude) as usize
    }
}

/// How often a stress test goes around.
pub fn rounds(default: u64) -> u64 {
    std::env::var("BYWASH_STRESS_ROUNDS").map_or(default, |rounds| rounds.parse().unwrap())
}

/// A container tells by its first two words what the others must be.
pub const SIZE_MIN: usize = 16;

/// Fills a container with what follows from `seed`.
pub fn fill(bytes: &mut [u8], seed: u64) {
    let length = bytes.len();
    for (number, word) in bytes.chunks_mut(8).enumerate() {
        word.copy_from_slice(&expected_word(number as u64, seed, length)[..word.len()]);
    }
}

/// Panics if a container is not as it was filled.
pub fn check(bytes: &[u8]) {
    assert!(bytes.len() >= SIZE_MIN, "a container of {} bytes was never shipped", bytes.len());
    let seed = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    for (number, word) in bytes.chunks(8).enumerate() {
        let expected = expected_word(number as u64, seed, bytes.len());
        assert_eq!(word, &expected[..word.len()], "word {number} of a container of {} bytes", bytes.len());
    }
}

fn expected_word(number: u64, seed: u64, length: usize) -> [u8; 8] {
    let word = match number {
        0 => seed,
        1 => length as u64,
        _ => (seed ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    word.to_le_bytes()
}

/// The words that stand for a class and a way of waiting in a role.
pub const CLASSES: [&str; 3] = ["checked", "trusted", "sealed"];
/// As [`CLASSES`].
pub const WAITS: [&str; 3] = ["adaptive", "sleep", "spin"];

/// Options by those words.
pub fn options(class: &str, wait: &str) -> Options {
    let options = Options::new().arena_bytes(1 << 20).huge_pages(bywash_container::HugePages::No);
    let options = match class {
        "checked" => options,
        // SAFETY: the peer is this test, which uses the library as it is.
        "trusted" => unsafe { options.trusted() },
        "sealed" => options.sealed(),
        "forward" => options.forward(),
        other => panic!("no class: {other}"),
    };
    options.wait(match wait {
        "adaptive" => Wait::Adaptive,
        "sleep" => Wait::Sleep,
        "spin" => Wait::Spin,
        other => panic!("no way of waiting: {other}"),
    })
}
