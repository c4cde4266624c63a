//! CPU time and memory of a server's process, and CPU time of the kernel's threads.
//!
//! A client measures its own time (with that of its system calls and of the threads that io_uring makes for it). A server's
//! time is in proc_pid_stat(5), in ticks of 10 ms. Work of a loop device is done by any of the kernel's worker threads, and
//! interrupts on any core: the shares cannot be told apart from outside. So the time of all kernel threads of the machine is
//! taken together. For a run that is alone on its machine it is an upper bound of what the medium took.

use crate::error::{Attempt, Error};
use crate::usage::stat_fields;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
        let (mut kernel, proc) = (HashMap::new(), Path::new("/proc"));
        for entry in fs::read_dir(proc).doing("list", proc)?.flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A process that has ended meanwhile is not counted.
            if let Ok((KTHREADD, ticks)) = read(&entry.path().join("stat"), parse_stat) {
                kernel.insert(id, ticks);
            }
        }
        let server = server.map(|id| read(Path::new(&format!("/proc/{id}/stat")), parse_stat)).transpose()?;
        Ok(Snapshot { server: server.map(|(_, ticks)| ticks), kernel })
    }

    /// Returns the seconds since `earlier` of the server, if there is one, and of all kernel threads that exist now.
    pub fn since(&self, earlier: &Snapshot) -> (Option<f64>, f64) {
        let seconds = |ticks: u64| ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let of_thread =
            |(id, now): (&u32, &u64)| now.saturating_sub(earlier.kernel.get(id).copied().unwrap_or(0));
        let server = self.server.zip(earlier.server).map(|(now, then)| seconds(now.saturating_sub(then)));
        (server, seconds(self.kernel.iter().map(of_thread).sum()))
    }
}

/// Returns the resident bytes of a process without the memory of devices and arenas.
pub fn own_bytes(process: u32) -> Result<u64, Error> {
    read(&PathBuf::from(format!("/proc/{process}/smaps")), parse_smaps)
}

fn read<T>(path: &Path, parse: fn(&str) -> Option<T>) -> Result<T, Error> {
    let text = fs::read_to_string(path).doing("read", path)?;
    parse(&text).ok_or_else(|| io::Error::other("it lacks fields")).doing("parse", path)
}

/// Parses the parent and the ticks of a process: fields 4, 14 and 15 of proc_pid_stat(5).
fn parse_stat(stat: &str) -> Option<(u32, u64)> {
    let fields = stat_fields(stat)?;
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some((number(4)? as u32, number(14)? + number(15)?))
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
        assert_eq!(parse_stat("7 (a ) b) S 2 5 6 7 8 9 10 11 12 13 14 15 16 17 18"), Some((2, 14 + 15)));
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
