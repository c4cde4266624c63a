//! The server as its clients see it, each test with a server of its own.

#![allow(clippy::unwrap_used)]

mod changes;
mod limits;
mod program;
mod protocol;
mod sending;

use bywash_example_http::testing::{Client, Response, contents, settle, wait_for};
use bywash_example_web::{Options, Server};
use clap::Parser;
use std::fs;
use std::path::PathBuf;

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

    fn client(&self) -> Client {
        Client::connect(self.server.address())
    }

    /// Sends a GET over a connection of its own.
    fn get(&self, path: &str, fields: &str) -> Response {
        let mut client = self.client();
        client.send(&format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{fields}\r\n"));
        client.response()
    }
}
