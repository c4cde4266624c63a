//! The planner as a page: served, or written to a folder.
//!
//! The page is one file, which computes in the browser; see `web/`. This command contains the page if it was
//! built with the feature `page`.

use crate::cli::plan::WebArgs;
use crate::error::Failure;
use crate::http::{self, Content, Listener, Service};
use crate::signals::Signals;
use std::borrow::Cow;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

#[cfg(feature = "page")]
const PAGE: Option<&[u8]> = Some(include_bytes!(env!("BYWASH_PAGE")));
#[cfg(not(feature = "page"))]
const PAGE: Option<&[u8]> = None;

/// Added to the signal's number for the exit status after a signal.
const EXIT_SIGNAL: i32 = 128;

/// Carries out the command line and returns the exit status.
///
/// # Errors
/// [`Failure::PageMissing`] if this command was built without the page, [`Failure::Port`] if the port cannot
/// be bound, [`Failure::Write`] if the folder cannot be written, and [`Failure::Output`].
pub fn main(arguments: &WebArgs) -> Result<i32, Failure> {
    let page = PAGE.ok_or(Failure::PageMissing)?;
    match &arguments.export {
        Some(folder) => export(page, folder),
        None => offer(page, arguments.port),
    }
}

fn export(page: &[u8], folder: &Path) -> Result<i32, Failure> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| Failure::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let file = folder.join("index.html");
    fs::write(&file, page).map_err(failed(&file))?;
    writeln!(io::stdout(), "{}", file.display()).map_err(Failure::Output)?;
    Ok(0)
}

fn offer(page: &'static [u8], port: u16) -> Result<i32, Failure> {
    let refused = |source| Failure::Port { port, source };
    // Signals are caught before the address is printed, at which others may send one.
    let signals = Signals::listen();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    writeln!(io::stdout(), "http://{address}/").map_err(Failure::Output)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let site = move |path: &str| match path {
        "/" | "/index.html" => Ok(Content { kind: "text/html; charset=utf-8", bytes: Cow::Borrowed(page) }),
        _ => Err("there is only /\n"),
    };
    let (listener, service) = (Listener::Tcp(listener), Service::new(Box::new(site), None));
    loop {
        if let Some(signal) = signals.seen() {
            return Ok(EXIT_SIGNAL + signal);
        }
        http::turn(&listener, &service).map_err(refused)?;
    }
}
