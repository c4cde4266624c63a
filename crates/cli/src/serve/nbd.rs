//! Volumes for NBD clients, at Unix sockets and TCP addresses.
//!
//! Volumes with the same address are exports of one listener, which clients find by the volumes' names. Whoever may
//! connect to an address can use its volumes: by default the user who runs the server, and root; over TCP every user of this machine, or whoever
//! has a certificate. Called by `exports`.

use super::export::{NBD_CLIENTS, open};
use crate::cli::addresses::{NbdAddress, NbdArg, NbdTls};
use crate::error::Failure;
use bywash_link::SocketFile;
use bywash_nbd::{Disk, Event, Export, Listener, Options, Stats, Tls};
use bywash_protocol::report;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Volumes exported at one address; the exports end when this is dropped.
pub struct NbdExport {
    /// Name of the socket, which is dropped, and so removed, before the socket itself.
    _name: Option<SocketFile>,
    /// The address, with the port that it has got.
    pub address: NbdAddress,
    /// Names of the volumes.
    volumes: Mutex<Vec<String>>,
    export: Export,
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
        if let Some(other) = started.iter().find(|other| other.is_same_socket(&argument.address)) {
            return Err(failed(&argument.volume, contradicts(other)));
        }
        let volumes = arguments.iter().filter(|other| other.address == argument.address);
        let volumes: Vec<&str> = volumes.map(|argument| argument.volume.as_str()).collect();
        exports.push(NbdExport::start(socket, &argument.address, &volumes)?);
        started.push(&argument.address);
    }
    Ok(exports)
}

impl NbdExport {
    /// Exports volumes of the server at `socket` at an address.
    ///
    /// # Errors
    /// [`Failure::Export`] if the server or a volume cannot be opened, or the address cannot be bound.
    pub fn start(socket: &Path, address: &NbdAddress, volumes: &[&str]) -> Result<NbdExport, Failure> {
        let disks = volumes.iter().map(|volume| disk(socket, volume)).collect::<Result<Vec<_>, Failure>>()?;
        let all = volumes.join("', '");
        let mut options = Options::new();
        if let NbdAddress::Tcp { tls: Some(files), .. } = address {
            options = options.tls(tls(files).map_err(|what| failed(&all, what))?);
        }
        let unbound = |error: std::io::Error| failed(&all, format!("{}: {error}", address.shown()));
        let (listener, name, bound) = match address {
            NbdAddress::Unix(at) => {
                let (listener, name) = at.listen().map_err(unbound)?;
                (Listener::from(listener), Some(name), address.clone())
            }
            NbdAddress::Tcp { address, tls, is_open } => {
                let listener = TcpListener::bind(address).map_err(unbound)?;
                let address = listener.local_addr().map_err(unbound)?;
                let bound = NbdAddress::Tcp { address, tls: tls.clone(), is_open: *is_open };
                (Listener::from(listener), None, bound)
            }
        };
        let told = bound.shown();
        let report = move |event| match event {
            Event::Connected { client } => tracing::info!("{told}: NBD client {client} has connected"),
            Event::Disconnected { client } => tracing::info!("{told}: NBD client {client} is gone"),
            Event::CutOff { client: Some(client), error } => {
                tracing::warn!("{told}: NBD client {client}: {error}");
            }
            Event::CutOff { client: None, error } => tracing::warn!("{told}: {error}"),
            event => tracing::info!("{told}: {event:?}"),
        };
        let export = Export::start(listener, disks, options, report)
            .map_err(|error| failed(&all, error.to_string()))?;
        let volumes = Mutex::new(volumes.iter().map(|volume| (*volume).to_owned()).collect());
        Ok(NbdExport { _name: name, address: bound, volumes, export })
    }

    fn volumes(&self) -> MutexGuard<'_, Vec<String>> {
        // Whoever panicked has left no change half done: each change is one step.
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a volume of this name is exported here.
    pub fn has(&self, volume: &str) -> bool {
        self.volumes().iter().any(|other| other == volume)
    }

    /// Returns true if no other volume is exported here.
    pub fn is_only(&self, volume: &str) -> bool {
        self.volumes().iter().all(|other| other == volume)
    }

    /// Exports another volume here; `address` is the address with its options as given for this volume.
    ///
    /// # Errors
    /// [`Failure::Export`] if the options are others than those of the address, or the volume cannot be opened.
    pub fn add(&self, socket: &Path, volume: &str, address: &NbdAddress) -> Result<(), Failure> {
        if *address != self.address {
            return Err(failed(volume, contradicts(&self.address)));
        }
        let added = self.export.add(disk(socket, volume)?);
        added.map_err(|error| failed(volume, error.to_string()))?;
        self.volumes().push(volume.to_owned());
        Ok(())
    }

    /// Ends the export of a volume here, and disconnects the clients that use it.
    ///
    /// # Errors
    /// [`Failure::Export`] if its requests in flight do not complete in time; it is not exported any more.
    pub fn remove(&self, volume: &str) -> Result<(), Failure> {
        self.volumes().retain(|other| other != volume);
        self.export.remove(volume).map_err(|error| failed(volume, error.to_string()))
    }

    /// Has the size of a volume looked at again, if it is exported here.
    pub fn refresh(&self, volume: &str) {
        self.export.refresh(volume);
    }

    /// Returns the names of the volumes, with the URIs by which clients find them.
    pub fn uris(&self) -> Vec<(String, String)> {
        let (authority, query) = match &self.address {
            NbdAddress::Unix(at) => {
                let path = encoded(at.path.as_os_str().as_encoded_bytes(), b"/");
                ("nbd+unix://".to_owned(), format!("?socket={path}"))
            }
            NbdAddress::Tcp { address, tls: Some(_), .. } => (format!("nbds://{address}"), String::new()),
            NbdAddress::Tcp { address, tls: None, .. } => (format!("nbd://{address}"), String::new()),
        };
        let uri = |volume: &str| format!("{authority}/{}{query}", encoded(volume.as_bytes(), b""));
        self.volumes().iter().map(|volume| (volume.clone(), uri(volume))).collect()
    }

    /// Returns the state and counters of the exports at this address.
    pub fn report(&self) -> report::Export {
        let Stats { clients, requests, cut_off, .. } = self.export.stats();
        report::Export {
            volume: self.volumes().join(","),
            protocol: "nbd".to_owned(),
            address: self.address.shown(),
            frontends: clients,
            requests,
            cut_off,
            ..Default::default()
        }
    }
}

/// Opens a volume of the server at `socket` as an export.
fn disk(socket: &Path, volume: &str) -> Result<Disk, Failure> {
    let medium = open(socket, volume, "nbd", NBD_CLIENTS)?;
    Ok(Disk::new(volume, medium).description("a volume of bywash serve"))
}

fn contradicts(address: &NbdAddress) -> String {
    format!("{} has other options for another volume; give the same", address.shown())
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
