//! Commits of one run: memory in which the run's processes count them, and what is told of them at its end.

use crate::error::Failure;
use bywash_keeper::report::{Latency, counters};
use bywash_keeper::{Client, Error};
use bywash_log::counts::{self, Counts};
use rustix::fs::MemfdFlags;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Memory in which the processes of a run count their commits, as long as it lives.
pub struct RunCounts {
    memory: OwnedFd,
    counts: &'static Counts,
}

impl RunCounts {
    /// Makes the memory.
    ///
    /// # Errors
    /// [`Failure::Session`].
    pub fn new() -> Result<RunCounts, Failure> {
        let failed = |error: rustix::io::Errno| Failure::Session(error.into());
        let memory = rustix::fs::memfd_create(c"bywash-commits", MemfdFlags::CLOEXEC).map_err(failed)?;
        rustix::fs::ftruncate(&memory, counts::RUN_BYTES as u64).map_err(failed)?;
        let counts = counts::prepare_run(memory.as_raw_fd())
            .map_err(|number| Failure::Session(io::Error::from_raw_os_error(number)))?;
        Ok(RunCounts { memory, counts })
    }

    /// Returns the path by which the run's processes open the memory.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.memory.as_raw_fd())
    }

    /// Returns what was counted so far, and how far the checkpoints of the log are behind.
    pub fn read(&self, log: &Path) -> Counted {
        let lag = Lag::read(log);
        Counted {
            path: std::path::absolute(log).unwrap_or_else(|_| log.to_owned()),
            counters: counters(self.counts),
            latency: self.counts.latencies().map(Latency::from),
            no_lag_because: lag.as_ref().err().map(Error::to_string),
            lag: lag.ok().flatten(),
        }
    }
}

/// Commits of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Counted {
    /// Path of the log.
    pub path: PathBuf,
    /// Counters by their names.
    pub counters: BTreeMap<String, u64>,
    /// Latencies of the commits that the log absorbed; `None` if there was none.
    pub latency: Option<Latency>,
    /// Lag of the log's checkpoints; `None` if the keeper did not tell it.
    pub lag: Option<Lag>,
    /// Failure for which the keeper did not tell the lag.
    #[serde(skip)]
    pub no_lag_because: Option<String>,
}

/// Part of a log that waits for a checkpoint, which is of all runs of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lag {
    /// Bytes of the log from its oldest batch on.
    pub bytes: u64,
    /// Time for which the oldest live record has been waiting, in milliseconds; `None` if there is none.
    pub oldest_record_ms: Option<u64>,
}

impl Lag {
    /// Asks the keeper of a log; `None` if it has none any more.
    fn read(log: &Path) -> Result<Option<Lag>, Error> {
        let Some(client) = Client::connect(log)? else { return Ok(None) };
        let status = client.status()?;
        Ok(Some(Lag { bytes: status.used_bytes, oldest_record_ms: status.oldest_record_ms }))
    }
}
