//! Children of a test, and what a process has: descriptors, mappings, memory.
//!
//! A child is the test's own binary, run again with a role in its environment; the test function that is named
//! when it is started plays that role. Its sockets are inherited by number. A child never outlives its parent.

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

    /// Its number.
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

/// What memory of paths and channels is called.
const NAMES: [&str; 3] = ["bywash-control", "bywash-arena", "bywash-sealed"];

/// What this process has, of that which could be left behind.
#[derive(Debug, PartialEq, Eq)]
pub struct Belongings {
    descriptors: usize,
    mappings: usize,
    named: BTreeSet<String>,
}

impl Belongings {
    /// All of it.
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

/// Lines of /proc/self/maps for memory of paths and channels.
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
