//! The servers that are compared: started, loaded, and their CPU time read.

use crate::{CACHE_BYTES, Figure, load};
use bywash_example_http::testing::{Running, cpu_seconds, free_address, pin, processors};
use rustix::process::{Signal, kill_process};
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Server with its configuration.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    /// Our server, which looks at a file again after a time.
    Bywash { check: &'static str },
    /// nginx, which opens each file for each request, or keeps files open and looks at them every second.
    Nginx { keeps_files: bool },
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

    /// Runs a side under load for a time, after a second to fill its cache.
    pub fn measure(&self, side: &Side, time: Duration) -> Result<Figure, Box<dyn Error>> {
        let mut server = self.start(side)?;
        let pid = server.pid();
        pin(Some(pid), self.processors[0])?;
        pin(None, self.processors[1])?;
        load::run(server.address, Duration::from_secs(1), 1)?;
        let (before, begin) = (cpu_seconds(pid)?, std::time::Instant::now());
        let requests = load::run(server.address, time, 1000)? as f64;
        let (cpu, elapsed) = (cpu_seconds(pid)? - before, begin.elapsed().as_secs_f64());
        Ok(Figure {
            requests_per_cpu_second: requests / cpu,
            requests_per_second: requests / elapsed,
            misses_percent: match side {
                Side::Bywash { .. } => misses_percent(&mut server)?,
                Side::Nginx { .. } => 0.0,
            },
        })
    }

    fn start(&self, side: &Side) -> Result<Running, Box<dyn Error>> {
        let address = free_address()?;
        let command = match side {
            Side::Bywash { check } => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_bywash-web"));
                command.arg(self.files).args(["--check", check, "--listen", &address.to_string()]);
                command.args(["--cache", &CACHE_BYTES.to_string(), "--part", "64K"]);
                command
            }
            Side::Nginx { keeps_files } => {
                let mut command = Command::new("/usr/sbin/nginx");
                command.arg("-c").arg(self.configure(address, *keeps_files)?).arg("-p").arg(self.temporary);
                command.arg("-e").arg(self.temporary.join("errors"));
                command
            }
        };
        Running::start(command, address)
    }

    /// Writes nginx's configuration: one process without a log, with all that makes it fast for this load.
    fn configure(&self, address: SocketAddr, keeps_files: bool) -> Result<PathBuf, Box<dyn Error>> {
        let cache =
            "open_file_cache max=65536 inactive=60s; open_file_cache_valid 1s; open_file_cache_min_uses 1;";
        let cache = if keeps_files { cache } else { "" };
        let (folder, files) = (self.temporary.display(), self.files.display());
        let text = format!(
            "daemon off; master_process off; pid {folder}/pid;\n\
             events {{ worker_connections 1024; multi_accept on; }}\n\
             http {{\n\
               access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; {cache}\n\
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

/// Stops our server, and reads from its counts how many parts were not in its cache.
fn misses_percent(server: &mut Running) -> Result<f64, Box<dyn Error>> {
    kill_process(server.pid(), Signal::TERM)?;
    let mut text = String::new();
    let mut output = BufReader::new(server.child.stderr.take().ok_or("no stderr")?);
    // The first line tells the address.
    output.read_line(&mut text)?;
    text.clear();
    output.take(10_000).read_to_string(&mut text)?;
    let count = |name: &str| -> Result<f64, Box<dyn Error>> {
        let rest = text.split_once(name).ok_or_else(|| format!("no count '{name}' in: {text}"))?.1;
        Ok(rest.split([',', '\n']).next().unwrap_or_default().trim().parse()?)
    };
    let (hits, misses) = (count("hits ")?, count("misses ")?);
    Ok(100.0 * misses / (hits + misses))
}
