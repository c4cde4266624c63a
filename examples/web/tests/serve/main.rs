//! The server as its clients see it, each test with a server of its own.

#![allow(clippy::unwrap_used)]

mod changes;
mod client;
mod limits;
mod program;
mod protocol;
mod sending;

use bywash_example_web::{Options, Server};
use clap::Parser;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Folder with files, and a server of it.
struct Site {
    folder: tempfile::TempDir,
    server: Server,
}

impl Site {
    /// Starts a server with further options, once its files are old enough to be cached.
    fn new(files: &[(&str, &[u8])], options: &[&str]) -> Site {
        let folder = tempfile::tempdir().unwrap();
        for (name, contents) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        }
        settle();
        let fixed = ["bywash-web", folder.path().to_str().unwrap(), "--listen", "127.0.0.1:0"];
        let options = Options::parse_from(fixed.iter().chain(options));
        Site { server: Server::start(options).unwrap(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn client(&self) -> client::Client {
        client::Client::connect(self.server.address())
    }

    /// Sends a GET over a connection of its own.
    fn get(&self, path: &str, fields: &str) -> client::Response {
        let mut client = self.client();
        client.send(&format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{fields}\r\n"));
        client.response()
    }
}

/// Waits until a change of a file is certain to be noticed.
fn settle() {
    std::thread::sleep(Duration::from_millis(150));
}

/// Waits until something is so, at most 10 s.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns contents of which each 8 bytes are different.
fn contents(bytes: usize) -> Vec<u8> {
    let words =
        (0..bytes as u64 / 8 + 1).flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    words.take(bytes).collect()
}
