//! The server as its clients see it, each test with a server of its own.
//!
//! Times are checked from below only, or with seconds of room: other programs may use the machine.

#![allow(clippy::unwrap_used)]

mod admission;
mod changes;
mod clients;
mod pacing;
mod program;
mod protocol;

use bywash_example_http::testing::{Client, Response, contents, settle, wait_for};
use bywash_example_video::{Options, Server};
use clap::Parser;
use std::path::PathBuf;

/// Folder with files, and a server of it.
struct Site {
    folder: tempfile::TempDir,
    server: Server,
}

impl Site {
    /// Starts a server with further options, without a calibration.
    fn new(files: &[(&str, &[u8])], options: &[&str]) -> Site {
        // Not in memory: there the server could not read past the page cache.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for (name, contents) in files {
            std::fs::write(folder.path().join(name), contents).unwrap();
        }
        let fixed = ["bywash-video", folder.path().to_str().unwrap(), "--listen", "127.0.0.1:0"];
        let defaults = [["--memory", "16M"], ["--period", "500ms"], ["--calibration", "0"]];
        let defaults = defaults.iter().filter(|[name, _]| !options.contains(name)).flatten();
        let options = Options::try_parse_from(fixed.iter().chain(defaults).chain(options)).unwrap();
        Site { server: Server::start(options).unwrap(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn client(&self) -> Client {
        Client::connect(self.server.address())
    }

    /// Sends a GET over a connection of its own.
    fn get(&self, path: &str, fields: &str) -> Response {
        self.begin(path, fields).response()
    }

    /// Sends a GET over a connection of its own, and returns the connection.
    fn begin(&self, path: &str, fields: &str) -> Client {
        let mut client = self.client();
        client.send(&format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{fields}\r\n"));
        client
    }

    /// Waits until all streams have ended, and all memory is free.
    fn wait_for_the_end(&self) {
        wait_for("the end of all streams", || self.server.admitted().0 == 0 && self.server.memory().1 == 0);
        assert_eq!(self.server.admitted().1, 0);
    }
}
