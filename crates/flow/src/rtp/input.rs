//! The sockets of a receiver, and the source that its units come from.

use super::player;
use super::receiver::{Receiver, ReceiverOptions};
use super::{PACKET_BYTES_MAX, rtcp};
use crate::address;
use crate::block_io::Input;
use crate::control::Control;
use crate::datagram::want_receive_buffer;
use crate::error::Error;
use crate::timing::LiveStream;
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

/// Size of the receive buffer, in bytes.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// Greatest number of datagrams that are fetched before units that are due are played.
const FETCHED_MAX: usize = 256;
/// Greatest time between two looks at the socket of RTCP and at the clock.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Opens a source that receives a stream at an address of this machine; an empty host means all of them. `name` is the
/// endpoint's text.
///
/// # Errors
/// [`Error::Io`] if the address is unknown or taken; [`Error::Cancelled`] if the flow is cancelled.
pub(crate) fn open_receiver(
    host: &str,
    port: u16,
    options: ReceiverOptions,
    name: &str,
    control: &Control,
) -> Result<Box<dyn Input>, Error> {
    let mut last = None;
    for address in address::addresses(host, port, name, control)? {
        match bound(address) {
            Ok(socket) => {
                let input = RtpInput::new(socket, address, options, name)?;
                if input.reports.is_none() {
                    control.notify(format!(
                        "{name}: the next port, that of RTCP, cannot be had; neither the latency nor a goodbye will be known"
                    ));
                }
                return Ok(Box::new(input));
            }
            Err(error) => last = Some(error),
        }
    }
    Err(Error::io(format!("receive at {name}"), last.unwrap_or(ErrorKind::AddrNotAvailable.into())))
}

/// Binds a socket whose receive buffer is enlarged before the first datagram can come, and joins a group.
fn bound(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    want_receive_buffer(socket.as_fd(), RECEIVE_BUFFER_BYTES)?;
    rustix::net::bind(&socket, &address)?;
    let socket = UdpSocket::from(socket);
    match address.ip() {
        IpAddr::V4(group) if group.is_multicast() => {
            socket.join_multicast_v4(&group, &std::net::Ipv4Addr::UNSPECIFIED)?;
        }
        IpAddr::V6(group) if group.is_multicast() => socket.join_multicast_v6(&group, 0)?,
        _ => {}
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Source that receives a stream.
struct RtpInput {
    name: String,
    socket: UdpSocket,
    /// Socket of RTCP; `None` if the port has none or another program has it.
    reports: Option<UdpSocket>,
    receiver: Receiver,
    begin: Instant,
    timeout: Duration,
    /// Bytes that are ready, of which the first `taken` have been taken.
    ready: Vec<u8>,
    taken: usize,
    datagram: Box<[u8]>,
}

impl RtpInput {
    fn new(
        socket: UdpSocket,
        address: SocketAddr,
        options: ReceiverOptions,
        name: &str,
    ) -> Result<RtpInput, Error> {
        let port =
            socket.local_addr().map_err(|error| Error::io(format!("find the port of {name}"), error))?.port();
        let reports = rtcp::port(port).and_then(|port| bound(SocketAddr::new(address.ip(), port)).ok());
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(RtpInput {
            name: name.to_owned(),
            socket,
            reports,
            begin: Instant::now(),
            timeout: options.timeout,
            ready: player::header(options.description.format),
            taken: 0,
            datagram: vec![0; PACKET_BYTES_MAX + 1].into(),
            receiver: Receiver::new(options, u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX)),
        })
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Fetches the datagrams that have come. Returns false if there may be more.
    fn fetch(&mut self) -> Result<bool, Error> {
        for _ in 0..FETCHED_MAX {
            match self.socket.recv_from(&mut self.datagram) {
                Ok((bytes, from)) => {
                    let now_ns = self.now_ns();
                    self.receiver.packet(now_ns, from, &self.datagram[..bytes]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.fetch_reports();
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(format!("receive from {}", self.name), error)),
            }
        }
        Ok(false)
    }

    /// Fetches packets of RTCP. Without them the stream is the same, so an error of that socket is none of the stream.
    fn fetch_reports(&mut self) {
        let Some(reports) = &self.reports else { return };
        for _ in 0..FETCHED_MAX {
            let Ok((bytes, from)) = reports.recv_from(&mut self.datagram) else { return };
            self.receiver.control_packet(from, &self.datagram[..bytes]);
        }
    }

    /// Waits for a unit, and puts it into `ready`. Returns false at the end of the stream.
    fn receive(&mut self, control: &Control) -> Result<bool, Error> {
        loop {
            control.check()?;
            let is_all = self.fetch()?;
            let now_ns = self.now_ns();
            if self.receiver.is_over(now_ns) {
                return Ok(false);
            }
            let due_ns = self.receiver.due_ns();
            if due_ns.is_some_and(|due| due <= now_ns) {
                self.receiver.play(now_ns, &mut self.ready);
                if !self.ready.is_empty() {
                    return Ok(true);
                }
            } else if is_all {
                let look = self.begin + Duration::from_nanos(now_ns) + LOOK_INTERVAL.min(self.timeout);
                let due = due_ns.and_then(|due| self.begin.checked_add(Duration::from_nanos(due)));
                let until = due.map_or(look, |due| due.min(look));
                control.wait(self.socket.as_fd(), PollFlags::IN, Some(until))?;
            }
        }
    }
}

impl Input for RtpInput {
    fn next<'a>(&'a mut self, room: &'a mut [u8], control: &Control) -> Result<&'a [u8], Error> {
        if self.taken == self.ready.len() {
            self.ready.clear();
            self.taken = 0;
            if !self.receive(control)? {
                return Ok(&[]);
            }
        }
        let bytes = room.len().min(self.ready.len() - self.taken);
        let block = &self.ready[self.taken..self.taken + bytes];
        self.taken += bytes;
        Ok(block)
    }

    fn has_memory(&self) -> bool {
        true
    }

    fn live(&self) -> Option<LiveStream> {
        Some(self.receiver.account(&self.name))
    }
}
