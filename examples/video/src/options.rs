//! Options of the server, which are those of its command line.

use crate::rates;
use bywash_example_http::{Listening, size, time};
use std::path::PathBuf;
use std::time::Duration;

/// Serves the files of a folder over HTTP/1.1, each response at the rate at which its file is played.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "bywash-video", version)]
pub struct Options {
    /// Options that every server of files has
    #[command(flatten)]
    pub listening: Listening,
    /// Rate of files that --rates does not name, such as 8Mbit or 1M (bytes per second)
    #[arg(long, value_name = "RATE", value_parser = rates::parse, default_value = "8Mbit")]
    pub rate: u64,
    /// File with the rates of files: a pattern of names and a rate in each line, such as 'films/*.mp4 8Mbit'
    #[arg(long, value_name = "FILE")]
    pub rates: Option<PathBuf>,
    /// Let clients choose the rate by ?rate=RATE, up to this one
    #[arg(long, value_name = "RATE", value_parser = rates::parse)]
    pub rate_max: Option<u64>,
    /// Memory of all streams; each takes twice what it sends in a period, and at least 512K
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    pub memory: u64,
    /// Time that a chunk is played for, from 50ms to 10s; a chunk has at least 256K
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s")]
    pub period: Duration,
    /// Rate that the network carries; streams beyond it are refused
    #[arg(long, value_name = "RATE", value_parser = rates::parse_any)]
    pub network: Option<u64>,
    /// Share of the disk's and the processors' capacity that streams are admitted for, from 1 to 100
    #[arg(long, value_name = "PERCENT", default_value = "80", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub share: u8,
    /// Time for measuring the disk and the processor at the start, at most 60s; with 0 they are known by their load only
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s")]
    pub calibration: Duration,
    /// Read from the disk, past the page cache; or through the page cache, which helps if many play the same
    #[arg(long, value_name = "FROM", value_enum, default_value = "disk")]
    pub reads: ReadsFrom,
}

/// Memory that reads go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ReadsFrom {
    /// None but the containers, where the file system can (O_DIRECT).
    Disk,
    /// The kernel's page cache.
    Cache,
}

impl Options {
    /// Returns what is wrong with values that each by itself are valid.
    pub fn fault(&self) -> Option<String> {
        let within = |name: &str, value: Duration, least: Duration, most: Duration| {
            let is_wrong = !(least..=most).contains(&value);
            is_wrong.then(|| format!("{name} is {value:?}; give it {least:?} to {most:?}"))
        };
        let (least, most) = (Duration::from_millis(50), Duration::from_secs(10));
        within("--period", self.period, least, most)
            .or_else(|| within("--calibration", self.calibration, Duration::ZERO, Duration::from_secs(60)))
            .or_else(|| self.listening.fault())
            .or_else(|| Listening::within("--memory", self.memory, 1 << 20, 1 << 40))
    }
}
