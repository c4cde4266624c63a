//! CPU time of those who serve: a server's process, and the kernel's own threads.
//!
//! A client's time is its own (getrusage(2), with what the kernel does in its calls and in the threads that io_uring
//! makes for it). A server's is in proc_pid_stat(5), in ticks of 10 ms. A loop device's work is done by whichever of the
//! kernel's worker threads takes it, and interrupts by whoever is disturbed: nobody can tell them apart from outside. So
//! the time of all kernel threads of the machine is taken together. It has in it whatever else the kernel did meanwhile,
//! and is for a run alone on its machine an upper bound of what the medium took.

use crate::error::Error;
use crate::usage::stat_fields;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The process that is every kernel thread's parent.
const KTHREADD: u32 = 2;

/// CPU time until a moment.
pub struct Snapshot {
    server: Option<u64>,
    /// Of each kernel thread: they come and go.
    kernel: HashMap<u32, u64>,
}

/// What was used between two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// By the server, if there is one.
    pub server_seconds: Option<f64>,
    /// By all kernel threads of the machine that were there at the end.
    pub kernel_seconds: f64,
}

impl Snapshot {
    /// Now; `server` is its process.
    ///
    /// # Errors
    /// When the server has gone, or the kernel's files cannot be read.
    pub fn take(server: Option<u32>) -> Result<Snapshot, Error> {
        let server = match server {
            Some(id) => {
                let path = PathBuf::from(format!("/proc/{id}/stat"));
                let text = fs::read_to_string(&path).map_err(|error| Error::io("read", &path, error))?;
                Some(parse(&text).ok_or_else(|| unreadable(&path))?.ticks)
            }
            None => None,
        };
        let proc = Path::new("/proc");
        let entries = fs::read_dir(proc).map_err(|error| Error::io("list", proc, error))?;
        let kernel = entries
            .flatten()
            .filter_map(|entry| {
                let id: u32 = entry.file_name().to_str()?.parse().ok()?;
                // One that has gone meanwhile is none.
                let process = parse(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
                (process.parent == KTHREADD).then_some((id, process.ticks))
            })
            .collect();
        Ok(Snapshot { server, kernel })
    }

    /// What was used between `earlier` and this.
    pub fn since(&self, earlier: &Snapshot) -> Used {
        let seconds = |ticks: u64| ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let of_thread =
            |(id, now): (&u32, &u64)| now.saturating_sub(earlier.kernel.get(id).copied().unwrap_or(0));
        Used {
            server_seconds: self
                .server
                .zip(earlier.server)
                .map(|(now, then)| seconds(now.saturating_sub(then))),
            kernel_seconds: seconds(self.kernel.iter().map(of_thread).sum()),
        }
    }
}

struct Process {
    parent: u32,
    ticks: u64,
}

/// `ppid`, `utime` and `stime`: fields 4, 14 and 15.
fn parse(stat: &str) -> Option<Process> {
    let fields = stat_fields(stat)?;
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Process { parent: number(4)? as u32, ticks: number(14)? + number(15)? })
}

fn unreadable(path: &Path) -> Error {
    Error::io("make sense of", path, std::io::Error::other("it has too few fields"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_process_that_works_and_the_kernels_threads() {
        let stat = "7 (a ) b) S 2 5 6 7 8 9 10 11 12 13 14 15 16 17 18";
        let process = parse(stat).unwrap();
        assert_eq!((process.parent, process.ticks), (2, 14 + 15));
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
}
