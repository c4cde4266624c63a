//! Settings of the transport and of the TLS handshake.
//!
//! Invariant: the windows here bound the memory of a connection. Called by `handshake`.

use super::identity::{Identity, PeerVerifier};
use super::{Congestion, ReliableOptions, Role};
use crate::error::Error;
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::version::TLS13;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

/// Greatest number of bytes in flight: kept by the sender until they are acknowledged, and by the receiver
/// until they are in order and read. Enough for 1 Gbit/s at a round-trip time of 67 ms; on a short path 2 MiB
/// would be as fast.
const WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// Requested size of each of a socket's two buffers, in bytes. The kernel may give less
/// (`net.core.rmem_max`).
const SOCKET_BYTES: usize = 4 * 1024 * 1024;

/// Number of keep-alive packets in the idle timeout, so that one may be lost and another one late.
const KEEP_ALIVES: u32 = 4;

/// Greatest number of the peer's streams at a time: the data, or the confirmation.
const STREAMS: VarInt = VarInt::from_u32(1);

/// Greatest number of handshakes at a time of a listener, and of bytes buffered for each.
pub(super) const HANDSHAKES_MAX: usize = 16;
const HANDSHAKE_BYTES_MAX: u64 = 64 * 1024;

/// Application protocols (ALPN), which tell whether the connector sends or receives.
const CONNECTOR_SENDS: &[u8] = b"bywash-flow-send/1";
const CONNECTOR_RECEIVES: &[u8] = b"bywash-flow-receive/1";

/// Returns the settings of a connector, and the verifier that records the listener's certificate.
///
/// # Errors
/// [`Error::Io`] if the TLS library refuses the settings; [`Error::Usage`] if the timeout is too long.
pub(super) fn client(
    options: &ReliableOptions,
    role: Role,
    identity: Option<&Identity>,
) -> Result<(ClientConfig, Arc<PeerVerifier>), Error> {
    let provider = provider();
    let verifier = Arc::new(PeerVerifier::new(options.pin, provider.clone()));
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone());
    let mut tls = match identity {
        Some(identity) => builder
            .with_client_auth_cert(vec![identity.certificate.clone()], identity.key())
            .map_err(unusable)?,
        None => builder.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![protocol(role == Role::Sends).to_vec()];
    // A flow has one connection, so there is nothing to resume, and every certificate is verified.
    tls.resumption = Resumption::disabled();
    let crypto = QuicClientConfig::try_from(tls).map_err(unusable)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport(options)?);
    Ok((config, verifier))
}

/// Returns the settings of a listener. Errors are those of [`client`].
pub(super) fn server(
    options: &ReliableOptions,
    role: Role,
    identity: &Identity,
) -> Result<ServerConfig, Error> {
    let provider = provider();
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?;
    let builder = match options.pin {
        Some(pin) => builder.with_client_cert_verifier(Arc::new(PeerVerifier::new(Some(pin), provider))),
        None => builder.with_no_client_auth(),
    };
    let mut tls =
        builder.with_single_cert(vec![identity.certificate.clone()], identity.key()).map_err(unusable)?;
    tls.alpn_protocols = vec![protocol(role == Role::Receives).to_vec()];
    tls.send_tls13_tickets = 0;
    let crypto = QuicServerConfig::try_from(tls).map_err(unusable)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport(options)?);
    config.max_incoming(HANDSHAKES_MAX);
    config.incoming_buffer_size(HANDSHAKE_BYTES_MAX);
    config.incoming_buffer_size_total(HANDSHAKE_BYTES_MAX * HANDSHAKES_MAX as u64);
    Ok(config)
}

fn protocol(connector_sends: bool) -> &'static [u8] {
    if connector_sends { CONNECTOR_SENDS } else { CONNECTOR_RECEIVES }
}

/// Returns the library's settings of a socket, for both sides.
pub(super) fn endpoint() -> EndpointConfig {
    EndpointConfig::default()
}

/// Creates a UDP socket that is bound to `address`, with the largest kernel buffers that the system allows up to
/// those that a fast QUIC stream needs.
///
/// # Errors
/// The error of socket(2) or bind(2).
pub(super) fn socket(address: SocketAddr) -> std::io::Result<UdpSocket> {
    use rustix::net::sockopt;
    let socket = UdpSocket::bind(address)?;
    // Smaller buffers only make the stream slower, so a refusal by the kernel is not an error.
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES));
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
    Ok(socket)
}

fn transport(options: &ReliableOptions) -> Result<Arc<TransportConfig>, Error> {
    let timeout = options.timeout;
    let idle = IdleTimeout::try_from(timeout)
        .map_err(|_| Error::Usage(format!("nobody waits {} s for a peer", timeout.as_secs())))?;
    let mut config = TransportConfig::default();
    config
        .max_concurrent_uni_streams(STREAMS)
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(WINDOW_BYTES.into())
        .receive_window(WINDOW_BYTES.into())
        .send_window(WINDOW_BYTES.into())
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(timeout / KEEP_ALIVES))
        .congestion_controller_factory(controller(options.congestion));
    Ok(Arc::new(config))
}

/// Returns the congestion control. Measured by `cost_of_a_stream`, both ends on two cores: on a path that
/// loses packets only when a queue is full, CUBIC (RFC 9438) moves 0.6 GB/s and the library's BBR 0.4 GB/s,
/// since BBR paces and so gives the kernel shorter trains of segments. At 1 % random loss CUBIC takes each
/// loss for a full queue, and BBR moves 2.4 times as much. CUBIC is the default, since local networks are of
/// the first kind, CUBIC shares fairly with TCP, and the library calls its BBR experimental.
///
/// The same measurement shows that two other settings are best left alone: larger packets (8952 and 65000
/// bytes over loopback) are slower than trains of 1452 bytes (UDP GSO), and AES-128 costs as much as AES-256.
fn controller(congestion: Congestion) -> Arc<dyn ControllerFactory + Send + Sync> {
    match congestion {
        Congestion::Cubic => Arc::new(CubicConfig::default()),
        Congestion::Bbr => Arc::new(BbrConfig::default()),
    }
}

/// Returns the cryptographic library `ring`, which has a permissive licence and needs only a C compiler.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::io("set up TLS for a reliable connection", std::io::Error::other(error))
}
