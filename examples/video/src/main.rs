//! The program `bywash-video`: serves a folder until SIGINT or SIGTERM, and tells its counts then and at SIGUSR1.

#![forbid(unsafe_code)]

use bywash_example_video::{Options, Server};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = Options::parse();
    let folder = options.listening.folder.display().to_string();
    bywash_example_http::run("bywash-video", &folder, || Server::start(options))
}
