//! Options that every server of files has.

use bywash_quantity::TimeUnit;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Options of the folder, the listening socket, the threads, and the limits of connections.
#[derive(Clone, Debug, clap::Args)]
pub struct Listening {
    /// Folder whose files are served
    pub folder: PathBuf,
    /// Address and port to listen at; port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Number of threads; each accepts connections of its own
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
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

impl Listening {
    /// Returns what is wrong with values that each by itself are valid.
    pub fn fault(&self) -> Option<String> {
        Listening::within("--header", self.header, 8 << 10, 1 << 20)
    }

    /// Returns what is wrong with a size that must be `least` to `most` bytes.
    pub fn within(name: &str, value: u64, least: u64, most: u64) -> Option<String> {
        let is_wrong = !(least..=most).contains(&value);
        is_wrong.then(|| format!("{name} is {value} bytes; give it {least} to {most}"))
    }
}

/// Parses the value of an option that is a size.
///
/// # Errors
/// What is wrong with the text.
pub fn size(text: &str) -> Result<u64, String> {
    bywash_quantity::size(text).map_err(|error| error.to_string())
}

/// Parses the value of an option that is a time.
///
/// # Errors
/// What is wrong with the text.
pub fn time(text: &str) -> Result<Duration, String> {
    bywash_quantity::duration(text, TimeUnit::Second).map_err(|error| error.to_string())
}
