//! CPU time and memory of a server's process, and CPU time of the kernel's threads.
//!
//! A client measures its own time (with that of its system calls and of the threads that io_uring makes for it). A server's
//! time is in proc_pid_stat(5), in ticks of 10 ms. Work of a loop device is done by any of the kernel's worker threads, and
//! interrupts on any core: the shares cannot be told apart from outside. So the time of all kernel threads of the machine is
//! taken together. For a run that is alone on its machine it is an upper bound of what the medium took.

use crate::error::{Attempt, Error};
use crate::usage::{Stat, ticks_to_seconds};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Parent of every kernel thread.
const KTHREADD: u32 = 2;
/// Names of mappings that are not a server's own: memory of devices and arenas.
const SHARED: [&str; 2] = ["/memfd:bywash-device", "/memfd:bywash-arena"];

/// CPU time until a moment, in ticks.
pub struct Snapshot {
    server: Option<u64>,
    /// Time of each kernel thread, since they come and go.
    kernel: HashMap<u32, u64>,
}

impl Snapshot {
    /// Takes a snapshot; `server` is a process, which has to exist.
    pub fn take(server: Option<u32>) -> Result<Snapshot, Error> {
        let all = Stat::of_all()?.into_iter();
        let kernel =
            all.filter(|(_, stat)| stat.parent == KTHREADD).map(|(id, stat)| (id, stat.own)).collect();
        let server = server.map(Stat::of).transpose()?;
        Ok(Snapshot { server: server.map(|stat| stat.own), kernel })
    }

    /// Returns the seconds since `earlier` of the server, if there is one, and of all kernel threads that exist now.
    pub fn since(&self, earlier: &Snapshot) -> (Option<f64>, f64) {
        let of_thread =
            |(id, now): (&u32, &u64)| now.saturating_sub(earlier.kernel.get(id).copied().unwrap_or(0));
        let server =
            self.server.zip(earlier.server).map(|(now, then)| ticks_to_seconds(now.saturating_sub(then)));
        (server, ticks_to_seconds(self.kernel.iter().map(of_thread).sum()))
    }
}

/// Returns the resident bytes of a process without the memory of devices and arenas.
pub fn own_bytes(process: u32) -> Result<u64, Error> {
    let path = PathBuf::from(format!("/proc/{process}/smaps"));
    let text = fs::read_to_string(&path).doing("read", &path)?;
    parse_smaps(&text).ok_or_else(|| io::Error::other("it lacks fields")).doing("parse", &path)
}

/// Parses proc_pid_smaps(5): a line for a mapping, which ends with its name, and lines for its sizes.
fn parse_smaps(smaps: &str) -> Option<u64> {
    let (mut is_own, mut kib) = (true, None);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Rss:") => {
                let size = words.next()?.parse::<u64>().ok()?;
                *kib.get_or_insert(0) += if is_own { size } else { 0 };
            }
            Some(word) if word.contains('-') && !word.ends_with(':') => {
                is_own = !SHARED.iter().any(|name| line.contains(name));
            }
            _ => {}
        }
    }
    kib.map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_process_that_works_and_its_memory_without_that_of_devices_and_arenas() {
        let here = std::process::id();
        let (before, begin) = (Snapshot::take(Some(here)).unwrap(), Instant::now());
        while begin.elapsed() < Duration::from_millis(200) {}
        let used = Snapshot::take(Some(here)).unwrap().since(&before);
        assert!(used.0.unwrap() > 0.02 && used.1 >= 0.0, "{used:?}");
        assert!(Snapshot::take(Some(u32::MAX)).is_err());
        let smaps = "55d0-55d1 r-xp 00000000 08:01 1 /usr/bin/bywash\nSize: 8 kB\nRss:                  8 kB\n\
                     7f00-7f01 rw-s 00000000 00:01 2 /memfd:bywash-arena (deleted)\nRss:                 64 kB\n\
                     7f02-7f03 rw-p 00000000 00:00 0\nRss:                  4 kB\n";
        assert_eq!((parse_smaps(smaps), parse_smaps("nothing")), (Some(12 << 10), None));
        assert!(own_bytes(here).unwrap() > 1 << 20);
    }
}
