//! UDP ports.
//!
//! Invariant: a port that sends is connected, so that it gets the errors that ICMP reports for its datagrams;
//! a port that listens is not connected, and sends only to given addresses. Called by [`super::open_input`],
//! [`super::open_output`] and the relay.

use super::engine::{Engine, EngineFacts, Medium, choose};
use super::inbox::Inbox;
use super::name::Name;
use super::options::UdpOptions;
use super::outbox::{Outbox, SendError, SendMethod};
use super::port::{EngineState, Health, Port};
use super::run::Run;
use super::socket;
use crate::address;
use crate::control::Control;
use crate::error::Error;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// Number of joined runs that one call receives.
const ROWS: usize = 16;
/// Number of datagrams that one call receives without joining.
const DATAGRAMS: usize = 64;
/// Size of the headers in front of a payload (without options), in bytes.
const V4_HEADERS_BYTES: usize = 20 + 8;
const V6_HEADERS_BYTES: usize = 40 + 8;
/// Greatest payload of a datagram, in bytes.
const PAYLOAD_BYTES_MAX: usize = 65_507;

/// A UDP socket with its engine and buffers.
pub(crate) struct UdpPort {
    socket: UdpSocket,
    label: String,
    engine: Engine,
    fell_back: Option<String>,
    inbox: Inbox,
    outbox: Outbox,
    datagram_bytes_max: Option<usize>,
}

impl UdpPort {
    /// Opens a port that sends to an address.
    ///
    /// # Errors
    /// [`Error::Usage`] if the address is malformed or the engine cannot be used; [`Error::Io`] if the name
    /// cannot be resolved or the socket cannot be set up.
    pub(crate) fn connect(options: &UdpOptions) -> Result<UdpPort, Error> {
        let label = format!("udp:{}", options.address);
        let refused = |error| Error::io(format!("reach {label}"), error);
        let mut last = None;
        for address in resolve(&options.address, &label)? {
            match connected(address) {
                Ok(socket) => {
                    let bytes = payload_bytes_max(&socket, address);
                    return UdpPort::new(socket, label, options, bytes);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(refused(last.unwrap_or(std::io::ErrorKind::AddrNotAvailable.into())))
    }

    /// Opens a port that receives at an address. Errors are those of [`UdpPort::connect`]; the address may
    /// also be taken.
    pub(crate) fn listen(options: &UdpOptions) -> Result<UdpPort, Error> {
        let label = format!("udp-listen:{}", options.address);
        let mut last = None;
        for address in resolve(&options.address, &label)? {
            match bound(address, receive_bytes(options)) {
                Ok(socket) => return UdpPort::new(socket, label, options, None),
                Err(error) => last = Some(error),
            }
        }
        let refused = last.unwrap_or(std::io::ErrorKind::AddrNotAvailable.into());
        Err(Error::io(format!("listen at {label}"), refused))
    }

    fn new(
        socket: UdpSocket,
        label: String,
        options: &UdpOptions,
        datagram_bytes_max: Option<usize>,
    ) -> Result<UdpPort, Error> {
        let wanted = socket::want_receive_buffer(socket.as_fd(), receive_bytes(options))
            .and_then(|()| socket::want_send_buffer(socket.as_fd(), socket::BUFFER_BYTES));
        wanted.map_err(|error| Error::io(format!("size the buffers of {label}"), error))?;
        let offload = knows_offload(socket.as_fd());
        let engine = choose(EngineFacts { medium: Medium::Udp, offload, ring: false }, options.engine)?;
        if engine == Engine::Offload {
            socket::set(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &1i32)
                .map_err(|error| Error::io(format!("have datagrams joined at {label}"), error))?;
        }
        let slots = match engine {
            Engine::Single => 1,
            Engine::Offload => ROWS,
            Engine::Batch | Engine::Ring | Engine::Xdp | Engine::XdpRedirect => DATAGRAMS,
        };
        let (inbox, outbox) = (Inbox::new(slots), Outbox::new());
        Ok(UdpPort { socket, label, engine, fell_back: None, inbox, outbox, datagram_bytes_max })
    }

    fn failed(&self, what: &str, error: Errno) -> Error {
        let label = &self.label;
        match error {
            Errno::CONNREFUSED => Error::io(format!("reach {label}, where nobody listens"), error),
            Errno::MSGSIZE => Error::io(
                format!("{what} {label}: the datagrams are too long for the way; give a smaller size="),
                error,
            ),
            _ => Error::io(format!("{what} {label}"), error),
        }
    }
}

impl Port for UdpPort {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn receive(&mut self, take: &mut dyn FnMut(&[Run<'_>])) -> Result<bool, Error> {
        match self.inbox.receive(self.socket.as_fd(), take) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(self.failed("receive from", error)),
        }
    }

    fn send(&mut self, runs: &[Run<'_>], to: Option<&Name>, control: &Control) -> Result<(), Error> {
        let way = match self.engine {
            Engine::Single => SendMethod::Each,
            Engine::Batch | Engine::Ring | Engine::Xdp | Engine::XdpRedirect => SendMethod::Many,
            Engine::Offload => SendMethod::Cut,
        };
        match self.outbox.send(self.socket.as_fd(), runs, to, way, control) {
            Ok(None) => Ok(()),
            Ok(Some(reason)) => {
                self.engine = Engine::Batch;
                self.fell_back = Some(format!("the kernel does not cut datagrams on this way: {reason}"));
                Ok(())
            }
            Err(SendError::Flow(error)) => Err(error),
            Err(SendError::Kernel(error)) => Err(self.failed("send to", error)),
        }
    }

    fn health(&mut self) -> Health {
        let memory = socket::memory(self.socket.as_fd());
        Health { drops: memory.drops.into(), buffer: memory.buffer }
    }

    fn engine_state(&self) -> EngineState {
        EngineState { engine: self.engine, fell_back: self.fell_back.clone() }
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn number(&self) -> u16 {
        0
    }

    fn datagram_bytes_max(&self) -> Option<usize> {
        self.datagram_bytes_max
    }
}

fn resolve(address: &str, label: &str) -> Result<Vec<SocketAddr>, Error> {
    let (host, port) = address::split(address)
        .ok_or_else(|| Error::Usage(format!("{label}: give HOST:PORT or ADDRESS:PORT")))?;
    address::addresses(host, port, label, &Control::new()?)
}

/// Returns the requested size of the receive buffer, in bytes.
fn receive_bytes(options: &UdpOptions) -> usize {
    options.receive_buffer.unwrap_or(socket::BUFFER_BYTES)
}

/// Binds a socket whose receive buffer is enlarged before the first datagram can arrive.
fn bound(address: SocketAddr, receive_bytes: usize) -> std::io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    socket::want_receive_buffer(socket.as_fd(), receive_bytes)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket.into())
}

fn connected(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    Ok(socket)
}

/// Returns the greatest payload that fits into one packet on the path, by the kernel's MTU; `None` if
/// unknown.
fn payload_bytes_max(socket: &UdpSocket, address: SocketAddr) -> Option<usize> {
    let (level, name, headers) = match address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU, V4_HEADERS_BYTES),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU, V6_HEADERS_BYTES),
    };
    let mtu: i32 = socket::get(socket.as_fd(), level, name).ok()?;
    let payload = usize::try_from(mtu).ok()?.checked_sub(headers)?;
    Some(payload.min(PAYLOAD_BYTES_MAX))
}

/// Checks that the kernel knows UDP_SEGMENT (Linux 4.18) and UDP_GRO (Linux 5.0): setting 0 changes nothing,
/// but fails for an unknown option.
fn knows_offload(socket: BorrowedFd<'_>) -> bool {
    let knows = |name| socket::set(socket, libc::SOL_UDP, name, &0i32).is_ok();
    knows(libc::UDP_SEGMENT) && knows(libc::UDP_GRO)
}
