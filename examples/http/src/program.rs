//! A program that serves until SIGINT or SIGTERM, and tells its counts then and at SIGUSR1.

use crate::server::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Running server, as a program sees it.
pub trait Service {
    /// Returns the address at which the server listens.
    fn address(&self) -> SocketAddr;
    /// Returns the counts and the use of memory, in words.
    fn state(&self) -> String;
    /// Stops the server. Returns the counts, in words.
    fn stop(self) -> String;
}

/// Starts a server of `folder`, and runs it until a signal ends it. Everything is told on standard error, behind the name of
/// the program.
pub fn run<S: Service>(name: &str, folder: &str, start: impl FnOnce() -> Result<S, Error>) -> ExitCode {
    match serve(name, folder, start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve<S: Service>(
    name: &str,
    folder: &str,
    start: impl FnOnce() -> Result<S, Error>,
) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _context = runtime.enter();
    // Before the server starts, so that no signal ends the program without its counts.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut tell = signal(SignalKind::user_defined1())?;
    let server = start()?;
    eprintln!("{name}: serving {folder} at http://{}", server.address());
    runtime.block_on(async {
        loop {
            tokio::select! {
                _ = tell.recv() => eprintln!("{name}: {}", server.state()),
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
            }
        }
    });
    eprintln!("{name}: {}", server.stop());
    Ok(())
}
