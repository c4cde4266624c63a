//! Sizes and times of a connection, and the handshake's settings.
//!
//! Invariant: what one connection holds in memory is bounded by the windows here. Called by `handshake`.

use super::identity::{Guard, Identity};
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

/// Bytes that may be on their way, kept by the sender until they are acknowledged and by the receiver until
/// they are in order and read. It fills 1 Gbit/s over 67 ms; on a short path 2 MiB would be as fast.
const WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// What is asked of the kernel for each of a socket's two queues. It gives less where `net.core.rmem_max`
/// says so.
const SOCKET_BYTES: usize = 4 * 1024 * 1024;

/// Signs of life per `patience`: one may be lost, and another one late.
const SIGNS_OF_LIFE: u32 = 4;

/// Streams of the peer at a time: the data, or the confirmation.
const STREAMS: VarInt = VarInt::from_u32(1);

/// Handshakes that a listener holds at a time, and the bytes that wait with each.
pub(super) const HANDSHAKES_MAX: usize = 16;
const HANDSHAKE_BYTES_MAX: u64 = 64 * 1024;

/// The application protocols: what who connects does to the stream.
const CONNECTOR_SENDS: &[u8] = b"bywash-flow-send/1";
const CONNECTOR_RECEIVES: &[u8] = b"bywash-flow-receive/1";

/// The settings of who connects, and the guard that knows what it saw.
pub(super) fn client(
    options: &ReliableOptions,
    role: Role,
    identity: Option<&Identity>,
) -> Result<(ClientConfig, Arc<Guard>), Error> {
    let provider = provider();
    let guard = Arc::new(Guard::new(options.pin, provider.clone()));
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(guard.clone());
    let mut tls = match identity {
        Some(identity) => builder
            .with_client_auth_cert(vec![identity.certificate.clone()], identity.key())
            .map_err(unusable)?,
        None => builder.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![protocol(role == Role::Sends).to_vec()];
    // One connection a flow: there is nothing to resume, and what is not resumed is verified.
    tls.resumption = Resumption::disabled();
    let crypto = QuicClientConfig::try_from(tls).map_err(unusable)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport(options)?);
    Ok((config, guard))
}

/// The settings of a listener.
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
        Some(pin) => builder.with_client_cert_verifier(Arc::new(Guard::new(Some(pin), provider))),
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

/// The settings of both sides' sockets in the library.
pub(super) fn endpoint() -> EndpointConfig {
    EndpointConfig::default()
}

/// A socket with the queues that a fast stream needs.
///
/// # Errors
/// What the kernel says.
pub(super) fn socket(address: SocketAddr) -> std::io::Result<UdpSocket> {
    use rustix::net::sockopt;
    let socket = UdpSocket::bind(address)?;
    // Shorter queues only make the stream slower, so what the kernel refuses is not an error.
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES));
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
    Ok(socket)
}

fn transport(options: &ReliableOptions) -> Result<Arc<TransportConfig>, Error> {
    let patience = options.patience;
    let idle = IdleTimeout::try_from(patience)
        .map_err(|_| Error::Usage(format!("nobody waits {} s for a peer", patience.as_secs())))?;
    let mut config = TransportConfig::default();
    config
        .max_concurrent_uni_streams(STREAMS)
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(WINDOW_BYTES.into())
        .receive_window(WINDOW_BYTES.into())
        .send_window(WINDOW_BYTES.into())
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(patience / SIGNS_OF_LIFE))
        .congestion_controller_factory(controller(options.congestion));
    Ok(Arc::new(config))
}

/// Who decides how much is on its way at a time. Measured in turns by `cost_of_a_stream`, both ends on two
/// cores: on a path that loses only what it cannot queue, CUBIC (RFC 9438) moves 0.6 GB/s and the library's
/// BBR 0.4, which paces and so hands the kernel shorter trains of segments. Where 1 % is lost by chance CUBIC
/// takes each loss for a queue that is full, and BBR moves 2.4 times as much. CUBIC is the default, since
/// local networks are of the first kind, it shares with TCP, and the library calls its BBR experimental.
///
/// The same measurement says to leave two other settings as they are: larger packets (8952 and 65000 bytes
/// over loopback) are slower than trains of 1452 bytes (UDP GSO), and AES-128 costs what AES-256 does.
fn controller(congestion: Congestion) -> Arc<dyn ControllerFactory + Send + Sync> {
    match congestion {
        Congestion::Cubic => Arc::new(CubicConfig::default()),
        Congestion::Bbr => Arc::new(BbrConfig::default()),
    }
}

/// ring: small, permissively licensed, and built with a C compiler alone.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::io("set up TLS for a reliable connection", std::io::Error::other(error))
}
