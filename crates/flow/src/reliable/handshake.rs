//! Connection setup: one end listens, the other one connects, and each verifies its peer.
//!
//! Invariant: both sides have verified a connection as their options demand before it is returned (a
//! listener's handshake completes only after it has checked the connector's certificate), and the roles of
//! the two ends match. Every wait is limited by the option `timeout`, except that of a listener for its peer.
//! Called by [`super::open_input`] and [`super::open_output`].

use super::engine::{Close, Engine};
use super::errors::{self, GAVE_UP};
use super::identity::{Identity, NAME, PeerVerifier};
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

/// Greatest number of addresses of one host name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Greatest number of failed attempts that a listener reports, so that network scanners do not fill a log.
const REFUSALS_REPORTED_MAX: usize = 16;

/// An end that has its address and identity, but no peer yet.
pub(super) struct PendingConnection {
    engine: Engine,
    options: ReliableOptions,
    role: Role,
    attempt: Attempt,
}

enum Attempt {
    Listen(Endpoint),
    Connect { addresses: Vec<SocketAddr>, config: ClientConfig, verifier: Arc<PeerVerifier> },
}

impl PendingConnection {
    /// Resolves the host name; a listener is bound then. `notify` gets the listener's address and the
    /// fingerprint of this end's certificate.
    ///
    /// # Errors
    /// [`Error::Usage`] if the options or the identity file are wrong; [`Error::Io`] if the name cannot be
    /// resolved, the socket cannot be bound or the thread cannot be started; [`Error::Cancelled`] if the flow
    /// is cancelled.
    pub(super) fn prepare(
        options: &ReliableOptions,
        role: Role,
        control: &Control,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<PendingConnection, Error> {
        options.check()?;
        let engine = Engine::start()?;
        let attempt = match options.listen {
            true => {
                let addresses = addresses(&options.host, options.port, &options.to_string(), control)?;
                listen(&engine, options, role, &addresses, notify)?
            }
            false => {
                let addresses = addresses_to_try(options, control)?;
                let identity =
                    options.identity.as_deref().map(|path| Identity::get(Some(path))).transpose()?;
                if let Some(identity) = &identity {
                    notify(Notice::Connecting { fingerprint: identity.fingerprint() });
                }
                let (config, verifier) = transport::client(options, role, identity.as_ref())?;
                Attempt::Connect { addresses, config, verifier }
            }
        };
        Ok(PendingConnection { engine, options: options.clone(), role, attempt })
    }

    /// Connects to the peer, or waits for it.
    ///
    /// # Errors
    /// [`Error::Io`] if no peer can be reached or verified; [`Error::Cancelled`] if the flow is cancelled.
    pub(super) fn connect(
        self,
        control: &Control,
        notify: &mut dyn FnMut(Notice),
    ) -> Result<OpenConnection, Error> {
        let PendingConnection { engine, options, role, attempt } = self;
        let (endpoint, connection) = match attempt {
            Attempt::Listen(endpoint) => {
                let first = first_peer(&endpoint, &options, role, notify);
                let connection = engine.wait(control, None, first)?.flatten();
                let gone =
                    || Error::io(format!("listen at {options}"), io::Error::from(ErrorKind::NotConnected));
                let connection = connection.ok_or_else(gone)?;
                engine.spawn(refuse_others(endpoint.clone()));
                (endpoint, connection)
            }
            Attempt::Connect { addresses, config, verifier } => {
                connect(&engine, &options, role, &addresses, &config, &verifier, control)?
            }
        };
        Ok(OpenConnection { engine, endpoint, connection, options, code: GAVE_UP })
    }
}

/// An established connection to the verified peer, and the engine that runs it.
pub(super) struct OpenConnection {
    pub(super) engine: Engine,
    endpoint: Endpoint,
    pub(super) connection: Connection,
    pub(super) options: ReliableOptions,
    /// Code with which the connection is closed when it is dropped.
    pub(super) code: VarInt,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        // The side that closes repeats the close for a while; after a close by the peer there is nothing to
        // send.
        let first = self.connection.close_reason().is_none();
        self.engine.stop(first.then(|| Close {
            endpoint: self.endpoint.clone(),
            connection: self.connection.clone(),
            code: self.code,
            early: self.code == GAVE_UP,
        }));
    }
}

/// Resolves the listener's addresses, those of IPv4 first: a listener at `::` accepts both families, one at
/// 0.0.0.0 only IPv4.
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
    notify: &mut dyn FnMut(Notice),
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
    notify(Notice::Listening { address, fingerprint: identity.fingerprint() });
    Ok(Attempt::Listen(endpoint))
}

/// Binds a socket to the first address that is free.
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

/// Waits for the first peer that completes the handshake. A peer that fails in the handshake, or stalls, does
/// not end the wait.
async fn first_peer(
    endpoint: &Endpoint,
    options: &ReliableOptions,
    role: Role,
    notify: &mut dyn FnMut(Notice),
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
            Err(error) if told < REFUSALS_REPORTED_MAX => {
                told += 1;
                notify(Notice::Refused { address, reason: errors::explain(options, role, &error).1 });
            }
            Err(_) => {}
        }
    }
}

/// Refuses all later connections, since a flow has one peer.
async fn refuse_others(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        incoming.refuse();
    }
}

/// Tries one address after another, each for an equal part of the timeout.
fn connect(
    engine: &Engine,
    options: &ReliableOptions,
    role: Role,
    addresses: &[SocketAddr],
    config: &ClientConfig,
    verifier: &PeerVerifier,
    control: &Control,
) -> Result<(Endpoint, Connection), Error> {
    let doing = || format!("connect to {options}");
    let mut last = Error::io(doing(), io::Error::from(ErrorKind::NotFound));
    for (tried, address) in addresses.iter().enumerate() {
        let deadline = Instant::now() + options.timeout / addresses.len() as u32;
        let until = Some(deadline).filter(|_| tried + 1 < addresses.len());
        let (endpoint, connecting) = match start_handshake(engine, *address, config) {
            Ok(both) => both,
            Err(error) => {
                last = Error::io(doing(), error);
                continue;
            }
        };
        last = match engine.wait(control, until, connecting)? {
            Some(Ok(connection)) => return Ok((endpoint, connection)),
            Some(Err(ConnectionError::TimedOut)) | None => no_answer(options),
            Some(Err(error)) => match verifier.mismatch() {
                Some((pin, seen)) => wrong_certificate(options, pin, seen),
                None => errors::broken(doing(), options, role, &error),
            },
        };
    }
    Err(last)
}

/// Starts the handshake with an address, if there is a route to it.
fn start_handshake(
    engine: &Engine,
    address: SocketAddr,
    config: &ClientConfig,
) -> io::Result<(Endpoint, quinn::Connecting)> {
    let any: SocketAddr = match address.is_ipv6() {
        true => (Ipv6Addr::UNSPECIFIED, 0).into(),
        false => (Ipv4Addr::UNSPECIFIED, 0).into(),
    };
    // Without a route the library would repeat packets until the timeout, but the kernel reports it at once.
    UdpSocket::bind(any)?.connect(address)?;
    let _inside = engine.inside();
    let endpoint =
        Endpoint::new(transport::endpoint(), None, transport::socket(any)?, Arc::new(TokioRuntime))?;
    let connecting = endpoint.connect_with(config.clone(), address, NAME).map_err(io::Error::other)?;
    Ok((endpoint, connecting))
}

fn no_answer(options: &ReliableOptions) -> Error {
    let reason = format!(
        "nobody answered for {} s; is a reliable listener there, and does UDP get through?",
        options.timeout.as_secs_f32()
    );
    Error::io(format!("connect to {options}"), io::Error::new(ErrorKind::TimedOut, reason))
}

fn wrong_certificate(options: &ReliableOptions, pin: super::Fingerprint, seen: super::Fingerprint) -> Error {
    let reason = format!(
        "the listener's certificate has the fingerprint {seen}, but pin= names {pin}: somebody else answers there, or \
         the listener has a new identity"
    );
    Error::io(format!("connect to {options}"), io::Error::new(ErrorKind::PermissionDenied, reason))
}
