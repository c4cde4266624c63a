//! CPU time and memory of a server's process, and CPU time of the kernel's threads.
//!
//! A client measures its own time (with that of its system calls and of the threads that io_uring makes for it). A server's
//! time is in proc_pid_stat(5), in ticks of 10 ms. Work of a loop device is done by any of the kernel's worker threads, and
//! interrupts on any core: the shares cannot be told apart from outside. So the time of all kernel threads of the machine is
//! taken together. For a run that is alone on its machine it is an upper bound of what the medium took.

use crate::error::Error;
use crate::usage::stat_fields;
use std::collections::HashMap;
use std::fs;
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

/// CPU time between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Time of the server, if there is one.
    pub server_seconds: Option<f64>,
    /// Time of all kernel threads that existed at the end.
    pub kernel_seconds: f64,
}

impl Snapshot {
    /// Takes a snapshot; `server` is a process.
    ///
    /// # Errors
    /// [`Error::Io`] if the server has ended or the kernel's files cannot be read.
    pub fn take(server: Option<u32>) -> Result<Snapshot, Error> {
        let server = server.map(|id| {
            let path = PathBuf::from(format!("/proc/{id}/stat"));
            let text = fs::read_to_string(&path).map_err(|error| Error::io("read", &path, error))?;
            Ok(parse_stat(&text).ok_or_else(|| unreadable(&path))?.1)
        });
        let proc = Path::new("/proc");
        let entries = fs::read_dir(proc).map_err(|error| Error::io("list", proc, error))?;
        let kernel = entries
            .flatten()
            .filter_map(|entry| {
                let id: u32 = entry.file_name().to_str()?.parse().ok()?;
                // A process that has ended meanwhile is not counted.
                let (parent, ticks) = parse_stat(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
                (parent == KTHREADD).then_some((id, ticks))
            })
            .collect();
        Ok(Snapshot { server: server.transpose()?, kernel })
    }

    /// Returns the CPU time since `earlier`.
    pub fn since(&self, earlier: &Snapshot) -> Used {
        let seconds = |ticks: u64| ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let of_thread =
            |(id, now): (&u32, &u64)| now.saturating_sub(earlier.kernel.get(id).copied().unwrap_or(0));
        let server = self.server.zip(earlier.server);
        Used {
            server_seconds: server.map(|(now, then)| seconds(now.saturating_sub(then))),
            kernel_seconds: seconds(self.kernel.iter().map(of_thread).sum()),
        }
    }
}

/// Parses the parent and the ticks of a process: fields 4, 14 and 15 of proc_pid_stat(5).
fn parse_stat(stat: &str) -> Option<(u32, u64)> {
    let fields = stat_fields(stat)?;
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some((number(4)? as u32, number(14)? + number(15)?))
}

/// Returns the resident bytes of a process without the memory of devices and arenas.
///
/// # Errors
/// [`Error::Io`] if the kernel's file cannot be read.
pub fn own_bytes(process: u32) -> Result<u64, Error> {
    let path = PathBuf::from(format!("/proc/{process}/smaps"));
    let text = fs::read_to_string(&path).map_err(|error| Error::io("read", &path, error))?;
    parse_smaps(&text).ok_or_else(|| unreadable(&path))
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

fn unreadable(path: &Path) -> Error {
    Error::io("parse", path, std::io::Error::other("it lacks fields"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_process_that_works_and_the_kernels_threads() {
        let stat = "7 (a ) b) S 2 5 6 7 8 9 10 11 12 13 14 15 16 17 18";
        assert_eq!(parse_stat(stat), Some((2, 14 + 15)));
        let here = Some(std::process::id());
        let before = Snapshot::take(here).unwrap();
        let begin = Instant::now();
        let mut sum = 0u64;
        while begin.elapsed() < Duration::from_millis(200) {
            sum = std::hint::black_box(sum + 1);
        }
        let used = Snapshot::take(here).unwrap().since(&before);
        assert!(used.server_seconds.unwrap() > 0.02 && sum > 0, "{used:?}");
        assert!(used.kernel_seconds >= 0.0);
        assert!(Snapshot::take(Some(u32::MAX)).is_err());
        assert_eq!(Snapshot::take(None).unwrap().since(&before).server_seconds, None);
    }

    #[test]
    fn memory_of_devices_and_arenas_is_not_counted() {
        let smaps = "55d0-55d1 r-xp 00000000 08:01 1 /usr/bin/bywash\nSize: 8 kB\nRss:                  8 kB\n\
                     7f00-7f01 rw-s 00000000 00:01 2 /memfd:bywash-arena (deleted)\nRss:                 64 kB\n\
                     7f02-7f03 rw-p 00000000 00:00 0\nRss:                  4 kB\n";
        assert_eq!(parse_smaps(smaps), Some(12 << 10));
        assert_eq!(parse_smaps("nothing"), None);
        assert!(own_bytes(std::process::id()).unwrap() > 1 << 20);
    }
}
