//! The program `bywash-web`: serves a folder until SIGINT or SIGTERM, and tells its counts then and at SIGUSR1.

#![forbid(unsafe_code)]

use bywash_example_web::{Options, Server};
use clap::Parser;
use std::error::Error;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bywash-web: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _context = runtime.enter();
    // Before the server starts, so that no signal ends the program without its counts.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut tell = signal(SignalKind::user_defined1())?;
    let folder = options.folder.display().to_string();
    let server = Server::start(options)?;
    eprintln!("bywash-web: serving {folder} at http://{}", server.address());
    runtime.block_on(async {
        loop {
            tokio::select! {
                _ = tell.recv() => {
                    let (size, used) = server.memory();
                    eprintln!("bywash-web: {}, memory {used} of {size}", server.totals());
                }
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
            }
        }
    });
    eprintln!("bywash-web: {}", server.stop());
    Ok(())
}
