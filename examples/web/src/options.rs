//! Options of the server, which are those of its command line.

use bywash_quantity::TimeUnit;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Serves the files of a folder over HTTP/1.1, from a cache in containers.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "bywash-web", version)]
pub struct Options {
    /// Folder whose files are served
    pub folder: PathBuf,
    /// Address and port to listen at; port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Number of threads; each accepts connections of its own
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Memory of the cache, at least four times --part
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256M")]
    pub cache: u64,
    /// Length of the parts in which files are read and cached, from 4K to 16M
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "128K")]
    pub part: u64,
    /// Greatest number of files whose properties are kept
    #[arg(long, value_name = "N", default_value = "65536", value_parser = clap::value_parser!(u32).range(1..))]
    pub files: u32,
    /// Time for which a file is taken to be unchanged; 0 looks at each file for each request
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s")]
    pub check: Duration,
    /// Greatest number of connections; who comes beyond them is refused with status 503
    #[arg(long, value_name = "N", default_value = "4096", value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// Time within which a client must send the whole header of its next request
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s")]
    pub idle: Duration,
    /// Time within which a client must take some of a response
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s")]
    pub stalled: Duration,
    /// Greatest size of a request's header, from 8K to 1M
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "16K")]
    pub header: u64,
    /// Follow symbolic links that stay inside the folder
    #[arg(long)]
    pub links: bool,
}

impl Options {
    /// Returns what is wrong with values that each by itself are valid.
    pub fn fault(&self) -> Option<String> {
        let within = |name: &str, value: u64, least: u64, most: u64| {
            let is_wrong = !(least..=most).contains(&value);
            is_wrong.then(|| format!("{name} is {value} bytes; give it {least} to {most}"))
        };
        within("--part", self.part, 4 << 10, 16 << 20)
            .or_else(|| within("--header", self.header, 8 << 10, 1 << 20))
            .or_else(|| within("--cache", self.cache, 4 * self.part, 1 << 40))
    }
}

fn size(text: &str) -> Result<u64, String> {
    bywash_quantity::size(text).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<Duration, String> {
    bywash_quantity::duration(text, TimeUnit::Second).map_err(|error| error.to_string())
}
