//! `--nbd`: volumes for NBD clients, at Unix sockets and TCP addresses.
//!
//! Volumes with the same address are exports of one listener, which clients find by the volumes' names. An
//! export is a client of the server like any other, in this process. Whoever may connect to its address can use
//! its volumes: by default the user who runs the server, and root; over TCP every user of this machine, or whoever
//! has a certificate.

use super::export::{NBD_CLIENTS, open};
use crate::cli::serve::{NbdAddress, NbdArg, NbdTls};
use crate::error::Failure;
use bywash_link::SocketFile;
use bywash_nbd::{Disk, Event, Export, Listener, Options, Stats, StatsHandle, Tls};
use bywash_protocol::report;
use std::net::TcpListener;
use std::path::Path;

/// Volumes exported at one address; the exports end when this is dropped.
pub struct NbdExport {
    /// Name of the socket, which is dropped, and so removed, before the socket itself.
    _name: Option<SocketFile>,
    /// Names of the volumes, and the URIs by which clients find them.
    pub volumes: Vec<(String, String)>,
    export: Export,
}

/// Returns a function that reports the state of the exports to the server's status.
pub fn telling(exports: &[NbdExport]) -> impl Fn() -> Vec<report::Export> + Send + Sync + use<> {
    let all: Vec<_> = exports.iter().map(|one| (names(&one.volumes), one.export.watch())).collect();
    let tell = |(volume, watch): &(String, StatsHandle)| {
        let Stats { clients, requests, cut_off, .. } = watch.stats();
        let (volume, protocol) = (volume.clone(), "nbd".to_owned());
        report::Export { volume, protocol, frontends: clients, requests, cut_off, ..Default::default() }
    };
    move || all.iter().map(tell).collect()
}

fn names(volumes: &[(String, String)]) -> String {
    volumes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(",")
}

/// Exports volumes of the server at `socket`, those with the same address together.
///
/// # Errors
/// [`Failure::Export`] if the server or a volume cannot be opened, if an address has different options for
/// different volumes, or if it cannot be bound.
pub fn start(socket: &Path, arguments: &[NbdArg]) -> Result<Vec<NbdExport>, Failure> {
    let mut exports: Vec<NbdExport> = Vec::new();
    let mut started: Vec<&NbdAddress> = Vec::new();
    for argument in arguments {
        if started.contains(&&argument.address) {
            continue;
        }
        if let Some(other) = started.iter().find(|other| same_socket(other, &argument.address)) {
            let what = format!("{} has other options for another volume; give the same", shown(other));
            return Err(failed(&argument.volume, what));
        }
        let volumes = arguments.iter().filter(|other| other.address == argument.address);
        let volumes: Vec<&str> = volumes.map(|argument| argument.volume.as_str()).collect();
        exports.push(start_one(socket, &argument.address, &volumes)?);
        started.push(&argument.address);
    }
    Ok(exports)
}

fn start_one(socket: &Path, address: &NbdAddress, volumes: &[&str]) -> Result<NbdExport, Failure> {
    let disk = |volume: &&str| {
        let medium = open(socket, volume, "nbd", NBD_CLIENTS)?;
        Ok(Disk::new(*volume, medium).description("a volume of bywash serve"))
    };
    let disks = volumes.iter().map(disk).collect::<Result<Vec<_>, Failure>>()?;
    let all = volumes.join("', '");
    let mut options = Options::new();
    if let NbdAddress::Tcp { tls: Some(files), .. } = address {
        options = options.tls(tls(files).map_err(|what| failed(&all, what))?);
    }
    let unbound = |error: std::io::Error| failed(&all, format!("{}: {error}", shown(address)));
    let (listener, name, authority, query) = match address {
        NbdAddress::Unix(at) => {
            let (listener, name) = at.listen().map_err(unbound)?;
            let path = encoded(at.path.as_os_str().as_encoded_bytes(), b"/");
            (Listener::from(listener), Some(name), "nbd+unix://".to_owned(), format!("?socket={path}"))
        }
        NbdAddress::Tcp { address, tls } => {
            let listener = TcpListener::bind(address).map_err(unbound)?;
            let scheme = if tls.is_some() { "nbds" } else { "nbd" };
            let authority = format!("{scheme}://{}", listener.local_addr().map_err(unbound)?);
            (Listener::from(listener), None, authority, String::new())
        }
    };
    let uri = |volume: &str| format!("{authority}/{}{query}", encoded(volume.as_bytes(), b""));
    let told = all.clone();
    let report = move |event| match event {
        Event::Connected { client } => tracing::info!("volume '{told}': NBD client {client} has connected"),
        Event::Disconnected { client } => tracing::info!("volume '{told}': NBD client {client} is gone"),
        Event::CutOff { client: Some(client), error } => {
            tracing::warn!("volume '{told}': NBD client {client}: {error}");
        }
        Event::CutOff { client: None, error } => tracing::warn!("volume '{told}': {error}"),
        event => tracing::info!("volume '{told}': {event:?}"),
    };
    let export =
        Export::start(listener, disks, options, report).map_err(|error| failed(&all, error.to_string()))?;
    let volumes = volumes.iter().map(|volume| ((*volume).to_owned(), uri(volume))).collect();
    Ok(NbdExport { _name: name, volumes, export })
}

/// Reads the certificates of TLS.
///
/// # Errors
/// The reason, as text, if a file cannot be read or used.
fn tls(files: &NbdTls) -> Result<Tls, String> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let NbdTls { certificate, key, authorities } = files;
    let (certificate, key, authorities) = (read(certificate)?, read(key)?, read(authorities)?);
    Tls::from_pem(&certificate, &key, &authorities).map_err(|error| error.to_string())
}

fn failed(volume: &str, what: String) -> Failure {
    Failure::Export { volume: volume.to_owned(), whom: NBD_CLIENTS, what }
}

/// Returns whether two addresses are the same socket, though with other options.
fn same_socket(one: &NbdAddress, other: &NbdAddress) -> bool {
    match (one, other) {
        (NbdAddress::Unix(one), NbdAddress::Unix(other)) => one.path == other.path,
        (NbdAddress::Tcp { address: one, .. }, NbdAddress::Tcp { address: other, .. }) => one == other,
        _ => false,
    }
}

fn shown(address: &NbdAddress) -> String {
    match address {
        NbdAddress::Unix(at) => at.path.display().to_string(),
        NbdAddress::Tcp { address, .. } => address.to_string(),
    }
}

/// Returns bytes as a part of a URI: others than letters, digits, `-._~` and those of `plain` as `%XX` (RFC 3986).
fn encoded(bytes: &[u8], plain: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || plain.contains(&byte) {
            text.push(char::from(byte));
        } else {
            text += &format!("%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_written_as_parts_of_a_uri() {
        assert_eq!(encoded(b"a-b_c.1", b""), "a-b_c.1");
        assert_eq!(encoded("x y/\u{e4}?".as_bytes(), b""), "x%20y%2F%C3%A4%3F");
        assert_eq!(encoded(b"/run/a b", b"/"), "/run/a%20b");
    }
}
