//! TLS in a connection that has begun without it (`STARTTLS`), with certificates of both sides.
//!
//! A client must show a certificate that one of the given authorities has signed; the server demands TLS before
//! everything else ("FORCEDTLS" in the specification). Invariant: bytes that a client has sent before TLS are not
//! taken for bytes within it. Called by `socket` and `connection`.

use crate::raw::{Moved, Raw};
use bywash_export::Error;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, crypto::ring};
use std::io::{self, BufRead, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;

/// Certificate and key of a server, and the authorities whose certificates clients must have.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ServerConfig>);

impl Tls {
    /// Takes certificates and a key as texts in the form PEM: the server's certificate, behind it those that lead to its
    /// authority, if any; the server's key; and the certificates of the authorities of clients.
    ///
    /// # Errors
    /// [`Error::Tls`] if a text has no certificate or key, or one that cannot be used, or if the certificate and the
    /// key do not belong together.
    pub fn from_pem(certificate: &[u8], key: &[u8], authorities: &[u8]) -> Result<Tls, Error> {
        let failed = |what: &str, why: &dyn std::fmt::Display| Error::Tls(format!("{what}: {why}"));
        let chain = certificates("the server's certificate", certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| failed("the server's key", &error))?;
        let mut roots = RootCertStore::empty();
        for authority in certificates("the authorities", authorities)? {
            roots.add(authority).map_err(|error| failed("an authority", &error))?;
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| failed("the authorities", &error))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_client_cert_verifier(verifier).with_single_cert(chain, key))
            .map_err(|error| failed("the server's certificate", &error))?;
        Ok(Tls(Arc::new(config)))
    }

    /// Begins TLS with a client, which speaks first.
    ///
    /// # Errors
    /// [`Error::Tls`] if no session can be made.
    pub(crate) fn session(&self) -> Result<Session, Error> {
        let mut session =
            ServerConnection::new(self.0.clone()).map_err(|error| Error::Tls(error.to_string()))?;
        session.set_buffer_limit(Some(BUFFERED_MAX));
        Ok(Session { session, has_received: false })
    }
}

fn certificates(what: &str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match all {
        Ok(all) if all.is_empty() => Err(Error::Tls(format!("{what}: the text has no certificate"))),
        Ok(all) => Ok(all),
        Err(error) => Err(Error::Tls(format!("{what}: {error}"))),
    }
}

/// Greatest number of bytes that are encrypted and not sent.
const BUFFERED_MAX: usize = 256 << 10;

/// Greatest number of reads from a socket, each of some KiB, in a call that receives: records without bytes for the server
/// could come forever.
const READS_MAX: usize = 64;

/// TLS of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    session: ServerConnection,
    /// True if bytes wait that were taken from the socket, or may wait there.
    has_received: bool,
}

impl Session {
    /// Returns true if there may be bytes to receive of which poll(2) does not tell.
    pub(crate) fn has_received(&self) -> bool {
        self.has_received
    }

    /// Returns true if encrypted bytes wait to be sent.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.session.wants_write()
    }

    /// Receives bytes, as [`crate::socket::Socket::receive`].
    pub(crate) fn receive(&mut self, mut raw: Raw<'_>, parts: &mut [IoSliceMut<'_>]) -> Moved {
        for _ in 0..READS_MAX {
            match self.session.reader().read_vectored(parts) {
                Ok(0) => return Moved::Closed,
                Ok(bytes) => {
                    self.has_received = self.session.reader().fill_buf().is_ok_and(|rest| !rest.is_empty());
                    return Moved::Bytes(bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Moved::Closed,
            }
            self.has_received = false;
            match self.session.read_tls(&mut raw) {
                Ok(0) => return Moved::Closed,
                Ok(_) => {
                    let processed = self.session.process_new_packets();
                    // The rest of the handshake, or the reason of its end.
                    let flushed = self.flush(&mut raw);
                    if let Err(error) = processed {
                        return Moved::Failed(io::Error::other(error));
                    }
                    if let Err(error) = flushed
                        && error.kind() != ErrorKind::WouldBlock
                    {
                        return Moved::Closed;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Moved::Blocked,
                Err(error) => return Moved::Failed(error),
            }
        }
        // Other clients come first; poll(2) does not tell of what the session has taken from the socket.
        self.has_received = true;
        Moved::Blocked
    }

    /// Sends bytes, as [`crate::socket::Socket::send`]. Bytes that were encrypted count as sent.
    pub(crate) fn send(&mut self, mut raw: Raw<'_>, mut parts: &mut [IoSlice<'_>]) -> Moved {
        let mut taken = 0;
        loop {
            match self.flush(&mut raw) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && taken == 0 => return Moved::Blocked,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Moved::Bytes(taken),
                Err(_) => return Moved::Closed,
            }
            if parts.iter().all(|part| part.is_empty()) {
                return Moved::Bytes(taken);
            }
            match self.session.writer().write_vectored(parts) {
                Ok(bytes) => {
                    taken += bytes;
                    IoSlice::advance_slices(&mut parts, bytes);
                }
                Err(error) => return Moved::Failed(error),
            }
        }
    }

    /// Tells the client that the connection ends, if it receives that now.
    pub(crate) fn close(&mut self, mut raw: Raw<'_>) {
        self.session.send_close_notify();
        // The client finds out by the end of the connection otherwise.
        let _ = self.flush(&mut raw);
    }

    fn flush(&mut self, raw: &mut Raw<'_>) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(raw)?;
        }
        Ok(())
    }
}
