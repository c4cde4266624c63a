//! The servers that are compared: started, loaded, and their CPU time read.

use crate::load::{self, BEGINNING};
use crate::{Figure, RATE, files};
use bywash_example_http::testing::{Running, cpu_seconds, free_address, pin, processors};
use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Server with its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Our server.
    Bywash {
        /// Value of `--reads`.
        reads: &'static str,
        /// Value of `--period`.
        period: &'static str,
    },
    /// nginx, with directives of its configuration.
    Nginx {
        /// Directives that say how files are read and sent.
        directives: &'static str,
    },
}

/// Folders that all sides use.
pub struct Sides<'a> {
    temporary: &'a Path,
    files: &'a Path,
    /// Processors of the server and of the client; the same one if there is but one.
    processors: [usize; 2],
}

impl<'a> Sides<'a> {
    pub fn new(temporary: &'a Path, files: &'a Path) -> Sides<'a> {
        Sides { temporary, files, processors: processors() }
    }

    /// Runs a side with so many streams, whose files are on the disk only.
    pub fn measure(&self, side: Side, streams: u32, time: Duration) -> Result<Figure, Box<dyn Error>> {
        files::forget(self.files)?;
        let server = self.start(side, streams)?;
        let pid = server.pid();
        pin(Some(pid), self.processors[0])?;
        pin(None, self.processors[1])?;
        let before = cpu_seconds(pid)?;
        let received = load::run(server.address, streams, time)?;
        let cpu = cpu_seconds(pid)? - before;
        let expected = f64::from(streams) * RATE as f64 * (time + BEGINNING / 2).as_secs_f64();
        Ok(Figure {
            cpu_ms_per_stream_second: 1e3 * cpu / (received.bytes as f64 / RATE as f64),
            late_bytes: received.late_bytes,
            refused: received.refused,
            delivered_share: received.bytes as f64 / expected,
        })
    }

    fn start(&self, side: Side, streams: u32) -> Result<Running, Box<dyn Error>> {
        let address = free_address()?;
        let command = match side {
            Side::Bywash { reads, period } => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_bywash-video"));
                command.arg(self.files).args(["--listen", &address.to_string(), "--calibration", "0"]);
                // Two chunks of a second for each stream, and some more.
                let memory = (64 << 20) + u64::from(streams) * 2 * RATE * 9 / 8;
                command.args(["--memory", &memory.to_string(), "--share", "100"]);
                command.args(["--rate", &format!("{}bit", 8 * RATE)]);
                command.args(["--reads", reads, "--period", period]);
                command
            }
            Side::Nginx { directives } => {
                let mut command = Command::new("/usr/sbin/nginx");
                command.arg("-c").arg(self.configure(address, directives)?).arg("-p").arg(self.temporary);
                command.arg("-e").arg(self.temporary.join("errors"));
                command
            }
        };
        Running::start(command, address)
    }

    /// Writes nginx's configuration: one process without a log.
    fn configure(&self, address: SocketAddr, directives: &str) -> Result<PathBuf, Box<dyn Error>> {
        let (folder, files) = (self.temporary.display(), self.files.display());
        let text = format!(
            "daemon off; master_process off; pid {folder}/pid;\n\
             events {{ worker_connections 4096; multi_accept on; }}\n\
             http {{\n\
               access_log off; open_file_cache max=1000 inactive=60s; {directives} limit_rate {RATE};\n\
               client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;\n\
               uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
               server {{ listen {address} backlog=4096; root {files}; }}\n\
             }}\n"
        );
        let path = self.temporary.join("nginx.conf");
        fs::write(&path, text)?;
        Ok(path)
    }
}
