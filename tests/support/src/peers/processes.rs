//! Child processes of a test, and the resources of a process: descriptors, mappings, names.
//!
//! A child is the test's own binary, started again with a role in its environment. The test function that is
//! named at the start plays that role. The child inherits its sockets by number, and never outlives its
//! parent.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const ROLE: &str = "BYWASH_TEST_ROLE";
const SOCKETS: &str = "BYWASH_TEST_SOCKETS";

/// Returns the role of a child; `None`: this process is no child.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Takes over the sockets that a child was given. To be called once.
pub fn inherited_sockets() -> Vec<OwnedFd> {
    let numbers = std::env::var(SOCKETS).unwrap();
    let numbers = numbers.split(',').filter(|number| !number.is_empty());
    // SAFETY: the parent left these descriptors open for this process alone, which takes them over once.
    numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number.parse::<RawFd>().unwrap()) }).collect()
}

/// A running child.
pub struct Child(std::process::Child);

impl Child {
    /// Runs the test `player` of this binary in a process of its own, which inherits `sockets`.
    pub fn start(player: &str, role: &str, sockets: Vec<OwnedFd>) -> Child {
        let numbers: Vec<RawFd> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
        let listed: Vec<String> = numbers.iter().map(RawFd::to_string).collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", player, "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(SOCKETS, listed.join(",")).stdout(Stdio::null()).stdin(Stdio::null());
        // Done in the child after the fork: otherwise a child that another thread starts would inherit the
        // sockets too.
        let prepare = move || {
            // SAFETY: prctl(2) and fcntl(2) on integers, which are allowed between fork and exec.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                numbers.iter().for_each(|number| {
                    libc::fcntl(*number, libc::F_SETFD, 0);
                });
            }
            Ok(())
        };
        // SAFETY: `prepare` makes only system calls and allocates nothing, as is required between fork and
        // exec.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn().unwrap();
        drop(sockets);
        Child(child)
    }

    /// Returns the process number.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Kills the child, and waits until it has ended.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits until the child has ended by itself; panics after `limit`.
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

/// Serialises tests that examine the resources of their process. A test runs alone while it holds the guard.
pub fn serialise_test() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names of the memory files of paths and channels.
const NAMES: [&str; 3] = ["bywash-control", "bywash-arena", "bywash-sealed"];

/// Resources of this process that a path or a channel could leave behind.
#[derive(Debug, PartialEq, Eq)]
pub struct Resources {
    descriptors: usize,
    mappings: usize,
    named: BTreeSet<String>,
}

impl Resources {
    /// Counts the resources of this moment.
    pub fn now() -> Resources {
        let named = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let named = named.map(|entry| entry.file_name().to_string_lossy().into_owned());
        Resources {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            mappings: memfd_mappings().count(),
            // Other programs may use this folder meanwhile, with other names.
            named: named.filter(|name| NAMES.iter().any(|own| name.contains(own))).collect(),
        }
    }
}

/// Returns the lines of /proc/self/maps for memory of paths and channels.
pub fn memfd_mappings() -> impl Iterator<Item = String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("memfd:bywash"))
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}

/// Returns this process's descriptors of memory files whose names begin with `name`.
pub fn memfds(name: &str) -> Vec<RawFd> {
    let wanted = format!("/memfd:{name}");
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten();
    entries
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with(&wanted)))
        .map(|entry| entry.file_name().to_string_lossy().parse().unwrap())
        .collect()
}
