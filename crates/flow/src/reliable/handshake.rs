//! How two ends find each other: one listens, one connects, and both know whom they have.
//!
//! Invariant: a connection that leaves this module has been verified as its options ask, by both sides of
//! them (a listener learns that the handshake is over only after it has checked who connects), and the two
//! ends' roles fit. Nothing waits longer than `patience` but a listener for its peer, and a flow that is
//! cancelled. Called by the ends.

use super::engine::{Engine, Farewell};
use super::errors::{self, GAVE_UP};
use super::identity::{Guard, Identity, NAME};
use super::transport::{self, HANDSHAKES_MAX};
use super::{Notice, ReliableOptions, Role};
use crate::address::addresses;
use crate::control::Control;
use crate::error::Error;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, TokioRuntime, VarInt};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Vain attempts that a listener tells of; what a network full of scanners does should not fill a log.
const REFUSALS_TOLD_MAX: usize = 16;

/// An end whose address and identity are there, and its peer not yet.
pub(super) struct PendingConnection {
    engine: Engine,
    options: ReliableOptions,
    role: Role,
    attempt: Attempt,
}

enum Attempt {
    Listen(Endpoint),
    Connect { addresses: Vec<SocketAddr>, config: ClientConfig, guard: Arc<Guard> },
}

impl PendingConnection {
    /// Looks the name up; a listener is bound afterwards, and `tell` hears where and with what fingerprint.
    ///
    /// # Errors
    /// What is wrong with the options, the identity or the address.
    pub(super) fn prepare(
        options: &ReliableOptions,
        role: Role,
        control: &Control,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<PendingConnection, Error> {
        options.check()?;
        let engine = Engine::start()?;
        let attempt = match options.listen {
            true => {
                let addresses = addresses(&options.host, options.port, &options.to_string(), control)?;
                listen(&engine, options, role, &addresses, tell)?
            }
            false => {
                let addresses = addresses_to_try(options, control)?;
                let identity =
                    options.identity.as_deref().map(|path| Identity::get(Some(path))).transpose()?;
                if let Some(identity) = &identity {
                    tell(Notice::Connecting { fingerprint: identity.fingerprint() });
                }
                let (config, guard) = transport::client(options, role, identity.as_ref())?;
                Attempt::Connect { addresses, config, guard }
            }
        };
        Ok(PendingConnection { engine, options: options.clone(), role, attempt })
    }

    /// Waits for the peer.
    ///
    /// # Errors
    /// Why there is none, or that the flow was cancelled.
    pub(super) fn meet(
        self,
        control: &Control,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<OpenConnection, Error> {
        let PendingConnection { engine, options, role, attempt } = self;
        let (endpoint, connection) = match attempt {
            Attempt::Listen(endpoint) => {
                let first = first_peer(&endpoint, &options, role, tell);
                let connection = engine.wait(control, None, first)?.flatten();
                let gone =
                    || Error::io(format!("listen at {options}"), io::Error::from(ErrorKind::NotConnected));
                let connection = connection.ok_or_else(gone)?;
                engine.spawn(refuse_others(endpoint.clone()));
                (endpoint, connection)
            }
            Attempt::Connect { addresses, config, guard } => {
                connect(&engine, &options, role, &addresses, &config, &guard, control)?
            }
        };
        Ok(OpenConnection { engine, endpoint, connection, options, code: GAVE_UP })
    }
}

/// A connection to the one peer, and what drives it.
pub(super) struct OpenConnection {
    pub(super) engine: Engine,
    endpoint: Endpoint,
    pub(super) connection: Connection,
    pub(super) options: ReliableOptions,
    /// What the peer hears when the connection is dropped.
    pub(super) code: VarInt,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        // Who closes repeats that until the peer must have heard it; who was told has nothing more to say.
        let first = self.connection.close_reason().is_none();
        self.engine.stop(first.then(|| Farewell {
            endpoint: self.endpoint.clone(),
            connection: self.connection.clone(),
            code: self.code,
            early: self.code == GAVE_UP,
        }));
    }
}

/// The addresses of the listener, those of IPv4 first: one at any address is reached by both, one at 0.0.0.0
/// not.
fn addresses_to_try(options: &ReliableOptions, control: &Control) -> Result<Vec<SocketAddr>, Error> {
    let mut addresses = addresses(&options.host, options.port, &options.to_string(), control)?;
    addresses.truncate(ADDRESSES_MAX);
    addresses.sort_by_key(SocketAddr::is_ipv6);
    Ok(addresses)
}

fn listen(
    engine: &Engine,
    options: &ReliableOptions,
    role: Role,
    addresses: &[SocketAddr],
    tell: &mut dyn FnMut(Notice),
) -> Result<Attempt, Error> {
    let failed = |error| Error::io(format!("listen at {options}"), error);
    let identity = Identity::get(options.identity.as_deref())?;
    let config = transport::server(options, role, &identity)?;
    let endpoint = {
        let _inside = engine.inside();
        let socket = first_free(addresses).map_err(failed)?;
        Endpoint::new(transport::endpoint(), Some(config), socket, Arc::new(TokioRuntime)).map_err(failed)?
    };
    let address = endpoint.local_addr().map_err(failed)?;
    tell(Notice::Listening { address, fingerprint: identity.fingerprint() });
    Ok(Attempt::Listen(endpoint))
}

/// A socket at the first of the addresses that can be had.
fn first_free(addresses: &[SocketAddr]) -> io::Result<UdpSocket> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in addresses {
        match transport::socket(*address) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The first who comes through the handshake. Those who fail in it, or hang in it, do not end the wait for
/// others.
async fn first_peer(
    endpoint: &Endpoint,
    options: &ReliableOptions,
    role: Role,
    tell: &mut dyn FnMut(Notice),
) -> Option<Connection> {
    let mut attempts = JoinSet::new();
    let mut told = 0;
    loop {
        let (address, result) = tokio::select! {
            incoming = endpoint.accept() => {
                let incoming = incoming?;
                if attempts.len() >= HANDSHAKES_MAX {
                    incoming.refuse();
                    continue;
                }
                let address = incoming.remote_address();
                attempts.spawn(async move { (address, incoming.await) });
                continue;
            }
            Some(Ok(done)) = attempts.join_next() => done,
        };
        match result {
            Ok(connection) => return Some(connection),
            Err(error) if told < REFUSALS_TOLD_MAX => {
                told += 1;
                tell(Notice::Refused { address, reason: errors::explain(options, role, &error).1 });
            }
            Err(_) => {}
        }
    }
}

/// A flow has one peer; who comes later hears so.
async fn refuse_others(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        incoming.refuse();
    }
}

/// Tries one address after another, each for its share of the patience.
fn connect(
    engine: &Engine,
    options: &ReliableOptions,
    role: Role,
    addresses: &[SocketAddr],
    config: &ClientConfig,
    guard: &Guard,
    control: &Control,
) -> Result<(Endpoint, Connection), Error> {
    let doing = || format!("connect to {options}");
    let mut last = Error::io(doing(), io::Error::from(ErrorKind::NotFound));
    for (tried, address) in addresses.iter().enumerate() {
        let deadline = Instant::now() + options.patience / addresses.len() as u32;
        let until = Some(deadline).filter(|_| tried + 1 < addresses.len());
        let (endpoint, connecting) = match knock(engine, *address, config) {
            Ok(both) => both,
            Err(error) => {
                last = Error::io(doing(), error);
                continue;
            }
        };
        last = match engine.wait(control, until, connecting)? {
            Some(Ok(connection)) => return Ok((endpoint, connection)),
            Some(Err(ConnectionError::TimedOut)) | None => silence(options),
            Some(Err(error)) => match guard.mismatch() {
                Some((pin, seen)) => impostor(options, pin, seen),
                None => errors::broken(doing(), options, role, &error),
            },
        };
    }
    Err(last)
}

/// Sends the first packet to an address that can be reached.
fn knock(
    engine: &Engine,
    address: SocketAddr,
    config: &ClientConfig,
) -> io::Result<(Endpoint, quinn::Connecting)> {
    let any: SocketAddr = match address.is_ipv6() {
        true => (Ipv6Addr::UNSPECIFIED, 0).into(),
        false => (Ipv4Addr::UNSPECIFIED, 0).into(),
    };
    // The library keeps trying where there is no route at all; the kernel says so at once.
    UdpSocket::bind(any)?.connect(address)?;
    let _inside = engine.inside();
    let endpoint =
        Endpoint::new(transport::endpoint(), None, transport::socket(any)?, Arc::new(TokioRuntime))?;
    let connecting = endpoint.connect_with(config.clone(), address, NAME).map_err(io::Error::other)?;
    Ok((endpoint, connecting))
}

fn silence(options: &ReliableOptions) -> Error {
    let reason = format!(
        "nobody answered for {} s; is a reliable listener there, and does UDP get through?",
        options.patience.as_secs_f32()
    );
    Error::io(format!("connect to {options}"), io::Error::new(ErrorKind::TimedOut, reason))
}

fn impostor(options: &ReliableOptions, pin: super::Fingerprint, seen: super::Fingerprint) -> Error {
    let reason = format!(
        "the listener's certificate has the fingerprint {seen}, but pin= names {pin}: somebody else answers there, or \
         the listener has a new identity"
    );
    Error::io(format!("connect to {options}"), io::Error::new(ErrorKind::PermissionDenied, reason))
}
