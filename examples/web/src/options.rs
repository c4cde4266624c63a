//! Options of the server, which are those of its command line.

use bywash_example_http::{Listening, size, time};
use std::time::Duration;

/// Serves the files of a folder over HTTP/1.1, from a cache in containers.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "bywash-web", version)]
pub struct Options {
    /// Options that every server of files has
    #[command(flatten)]
    pub listening: Listening,
    /// Memory of the cache, at least four times --part
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    pub cache: u64,
    /// Length of the parts in which files are read and cached, from 4K to 16M
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "128K")]
    pub part: u64,
    /// Greatest number of files whose properties are kept
    #[arg(long, value_name = "N", default_value = "65536", value_parser = clap::value_parser!(u32).range(1..))]
    pub files: u32,
    /// Greatest number of files that are kept open, for parts that are not in the cache
    #[arg(long, value_name = "N", default_value = "4096", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub open: u32,
    /// Time for which a file is taken to be unchanged; 0 looks at each file for each request
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s")]
    pub check: Duration,
}

impl Options {
    /// Returns what is wrong with values that each by itself are valid.
    pub fn fault(&self) -> Option<String> {
        Listening::within("--part", self.part, 4 << 10, 16 << 20)
            .or_else(|| self.listening.fault())
            .or_else(|| Listening::within("--cache", self.cache, 4 * self.part, 1 << 40))
    }
}
