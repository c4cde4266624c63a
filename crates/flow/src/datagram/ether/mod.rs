//! Ethernet ports: frames of the EtherType 0x0A0A, without IP headers (packet(7)).
//!
//! The socket has the type SOCK_DGRAM, for which the kernel adds and removes the Ethernet header, so that
//! header and payload of [`super::layout`] are sent and received as over UDP.
//!
//! - [`filter`] and [`ring`]: what a socket receives, and the memory for it
//! - [`xdp`]: the same without packet sockets, and a relay inside the kernel
//! - [`device`]: properties of network devices; [`neighbour`]: Ethernet addresses of neighbours
//!
//! Invariant: only frames with the EtherType, magic number and port of this protocol that are not addressed
//! to another host reach the socket, since the filter is attached before the socket is bound. Called by
//! [`super::open_input`], [`super::open_output`] and the relay.

mod device;
mod filter;
mod neighbour;
mod ring;
mod xdp;

use super::engine::{Engine, EngineFacts, Medium, choose};
use super::inbox::Inbox;
use super::layout::ETHER_TYPE;
use super::name::Name;
use super::options::EthOptions;
use super::outbox::{Outbox, SendError, SendMethod};
use super::port::{EngineState, Health, Port};
use super::run::Run;
use super::socket::{self, answer};
use crate::control::Control;
use crate::error::Error;
use crate::mac::Mac;
use device::Device;
use ring::Ring;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

pub(crate) use neighbour::mac_of;
pub(crate) use xdp::{Redirect, XdpPort};

/// Number of frames that one call receives without a ring.
const FRAMES: usize = 64;

/// Packet socket of one device.
pub(crate) struct EthPort {
    socket: OwnedFd,
    label: String,
    to: Option<Name>,
    number: u16,
    engine: Engine,
    arrivals: Arrivals,
    outbox: Outbox,
    mtu: usize,
    drops: u64,
    buffer: u64,
}

enum Arrivals {
    Inbox(Inbox),
    Ring(Ring),
}

impl EthPort {
    /// Opens a port that sends to `options.mac`.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no such device, the address is missing or the engine cannot be used;
    /// [`Error::Io`] if the socket cannot be set up, for instance without CAP_NET_RAW.
    pub(crate) fn connect(options: &EthOptions) -> Result<EthPort, Error> {
        let label = format!("eth:{}", options.interface);
        let mac = goal(options, &label)?;
        EthPort::new(options, label, Some(mac), None)
    }

    /// Opens a port that receives, from `options.mac` alone if it is given. Errors are those of
    /// [`EthPort::connect`].
    pub(crate) fn listen(options: &EthOptions) -> Result<EthPort, Error> {
        EthPort::new(options, format!("eth-listen:{}", options.interface), None, options.mac)
    }

    fn new(
        options: &EthOptions,
        label: String,
        to: Option<Mac>,
        from: Option<Mac>,
    ) -> Result<EthPort, Error> {
        let failed = |what: &str| {
            let what = format!("{what} {label}");
            move |error: Errno| Error::io(what, error)
        };
        let socket = open(&label)?;
        let Device { index, mtu, .. } = Device::inspect(&options.interface, &label)?;
        filter::attach(socket.as_fd(), options.port, from).map_err(failed("filter what comes to"))?;
        let buffer = options.receive_buffer.unwrap_or(socket::BUFFER_BYTES);
        let (engine, arrivals, buffer) = arrivals(&socket, options.engine, (buffer, mtu), &label)?;
        socket::want_send_buffer(socket.as_fd(), socket::BUFFER_BYTES)
            .map_err(failed("size the buffers of"))?;
        bind(socket.as_fd(), index).map_err(failed("bind"))?;
        let to = to.map(|mac| Name::of_link(link_address(index, Some(mac))));
        let outbox = Outbox::new();
        Ok(EthPort {
            socket,
            label,
            to,
            number: options.port,
            engine,
            arrivals,
            outbox,
            mtu,
            drops: 0,
            buffer,
        })
    }
}

/// Returns the engine, the receiving buffers, and their size in bytes.
fn arrivals(
    socket: &OwnedFd,
    forced: Option<Engine>,
    (buffer, mtu): (usize, usize),
    label: &str,
) -> Result<(Engine, Arrivals, u64), Error> {
    let wants_ring = forced.is_none_or(|engine| engine == Engine::Ring);
    let ring = if wants_ring { Ring::new(socket.as_fd(), buffer, mtu) } else { Err(Errno::NOTSUP) };
    let facts = EngineFacts { medium: Medium::Ethernet, offload: false, ring: ring.is_ok() };
    let engine = choose(facts, forced)?;
    if let (Engine::Ring, Ok(ring)) = (engine, ring) {
        let bytes = ring.bytes() as u64;
        return Ok((engine, Arrivals::Ring(ring), bytes));
    }
    socket::want_receive_buffer(socket.as_fd(), buffer)
        .map_err(|error| Error::io(format!("size the buffers of {label}"), error))?;
    let slots = if engine == Engine::Single { 1 } else { FRAMES };
    Ok((engine, Arrivals::Inbox(Inbox::new(slots)), socket::memory(socket.as_fd()).buffer))
}

impl Port for EthPort {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn receive(&mut self, take: &mut dyn FnMut(&[Run<'_>])) -> Result<bool, Error> {
        let came = match &mut self.arrivals {
            Arrivals::Ring(ring) => return Ok(ring.receive(take)),
            Arrivals::Inbox(inbox) => inbox.receive(self.socket.as_fd(), take),
        };
        match came {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(Error::io(format!("receive from {}", self.label), error)),
        }
    }

    fn send(&mut self, runs: &[Run<'_>], to: Option<&Name>, control: &Control) -> Result<(), Error> {
        let way = if self.engine == Engine::Single { SendMethod::Each } else { SendMethod::Many };
        let to = to.or(self.to.as_ref());
        match self.outbox.send(self.socket.as_fd(), runs, to, way, control) {
            Ok(_) => Ok(()),
            Err(SendError::Flow(error)) => Err(error),
            Err(SendError::Kernel(Errno::MSGSIZE)) => Err(Error::io(
                format!(
                    "send to {}: the frames are longer than its MTU of {}; give a smaller size=",
                    self.label, self.mtu
                ),
                Errno::MSGSIZE,
            )),
            Err(SendError::Kernel(error)) => Err(Error::io(format!("send to {}", self.label), error)),
        }
    }

    fn health(&mut self) -> Health {
        // Reading these counters resets them.
        let statistics: Result<libc::tpacket_stats_v3, Errno> =
            socket::get(self.socket.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS);
        self.drops += statistics.map_or(0, |statistics| statistics.tp_drops.into());
        Health { drops: self.drops, buffer: self.buffer }
    }

    fn engine_state(&self) -> EngineState {
        EngineState { engine: self.engine, fell_back: None }
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn number(&self) -> u16 {
        self.number
    }

    fn datagram_bytes_max(&self) -> Option<usize> {
        Some(self.mtu)
    }
}

/// Returns the address that a sender sends to.
fn goal(options: &EthOptions, label: &str) -> Result<Mac, Error> {
    options.mac.ok_or_else(|| {
        Error::Usage(format!("{label} goes nowhere: say to=MAC|IP, as in to=02:00:00:00:00:01"))
    })
}

/// Creates a packet socket that does not receive yet.
fn open(label: &str) -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None).map_err(|error| match error {
        Errno::PERM | Errno::ACCESS => Error::io(
            format!("open {label}: Ethernet frames need the capability CAP_NET_RAW; run it as root or give it that"),
            error,
        ),
        error => Error::io(format!("open {label}"), error),
    })
}

fn link_address(index: u32, mac: Option<Mac>) -> libc::sockaddr_ll {
    let mut bytes = [0; 8];
    if let Some(Mac(mac)) = mac {
        bytes[..6].copy_from_slice(&mac);
    }
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ETHER_TYPE.to_be(),
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: if mac.is_some() { 6 } else { 0 },
        sll_addr: bytes,
    }
}

/// Binds the socket, which receives from then on.
fn bind(socket: BorrowedFd<'_>, index: u32) -> Result<(), Errno> {
    let name = Name::of_link(link_address(index, None));
    let (pointer, length) = name.as_parts();
    // SAFETY: `name` holds an address of the length that it states, and lives through the call.
    answer(unsafe { libc::bind(socket.as_raw_fd(), pointer.cast(), length) } as isize).map(drop)
}
