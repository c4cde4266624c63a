//! TCP over IPv4: sockets of the program and of clients, and what passes between them.
//!
//! A client is an end outside the machine, which the caller controls. What passes between a client and the
//! program goes through the network interface: [`Network`] returns it as an [`Arrival`], and the operating
//! system gives it to [`Network::arrive`] when the interface has completed it. Between two sockets of the program
//! (loopback) that is at once. Arrivals of one direction stay in order.
//!
//! Segments, losses and the sizes of windows in between are not modelled: a stream has a buffer of received bytes
//! with a limit, which counts what is on its way.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::errno::Errno;

/// Number of a socket.
pub type SocketId = u64;

/// Number of received bytes that a socket holds, with those on their way to it.
pub const RECEIVE_BYTES: usize = 256 << 10;
/// Greatest number of sockets, with those of clients.
pub const SOCKETS_LIMIT: usize = 65_536;
/// Greatest number of connections that wait to be accepted (`somaxconn`).
pub const BACKLOG_LIMIT: usize = 4096;
/// Address of the machine, to which clients connect.
pub const MACHINE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Address from which clients connect.
pub const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// First port of those that are chosen.
const FIRST_PORT: u16 = 32_768;

/// State of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Neither listens nor is connected.
    Fresh,
    /// Accepts connections.
    Listening {
        /// Greatest number of waiting connections.
        backlog: usize,
        /// Connections that wait to be accepted, the oldest first.
        queue: VecDeque<SocketId>,
    },
    /// Client's end whose request for a connection is on its way.
    Connecting,
    /// Client's end whose connection was refused.
    Refused,
    /// Connected, or was connected.
    Connected,
}

/// Socket of the program, or a client's end of a connection.
#[derive(Clone, Debug)]
pub struct Socket {
    /// State.
    pub state: State,
    /// Own address; port 0 before one was chosen.
    pub local: SocketAddrV4,
    /// Address of the other end.
    pub remote: SocketAddrV4,
    /// True for a client's end.
    pub is_client: bool,
    /// Error that the next call returns (`SO_ERROR`).
    pub error: Option<Errno>,
    /// Values of options that have no effect here, by level and name.
    pub options: BTreeMap<(u32, u32), u32>,
    /// Other end; it may be gone.
    peer: Option<SocketId>,
    /// Received bytes.
    received: VecDeque<u8>,
    /// Number of bytes that were ever read.
    read: u64,
    /// Number of bytes on their way to this socket.
    coming: usize,
    /// True if the other end sends no more, and all it has sent is received.
    has_ended: bool,
    /// True if this end sends no more.
    is_send_shut: bool,
    /// True if this end receives no more.
    is_receive_shut: bool,
    /// True if the other end was closed without reading everything, or something was sent to a closed one.
    is_reset: bool,
}

/// Thing that arrives at a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Request of a client for a connection to a port.
    Open {
        /// Client's end.
        client: SocketId,
        /// Port of the machine.
        port: u16,
    },
    /// Data.
    Data {
        /// Receiver.
        to: SocketId,
        /// Sender.
        from: SocketId,
        /// Bytes.
        bytes: Vec<u8>,
    },
    /// End of the data.
    End {
        /// Receiver.
        to: SocketId,
    },
    /// End of the connection, with the loss of data.
    Reset {
        /// Receiver.
        to: SocketId,
    },
}

impl Arrival {
    /// Returns the number of bytes of data.
    pub fn bytes(&self) -> u64 {
        if let Arrival::Data { bytes, .. } = self { bytes.len() as u64 } else { 0 }
    }

    /// Returns the receiver; for a request for a connection, its sender.
    pub fn socket(&self) -> SocketId {
        match *self {
            Arrival::Open { client, .. } => client,
            Arrival::Data { to, .. } | Arrival::End { to } | Arrival::Reset { to } => to,
        }
    }
}

/// Effect of an arrival, or of a call, on other sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Sockets that can be read from, or whose connection ended.
    pub readable: Vec<SocketId>,
    /// Sockets that can be written to again.
    pub writable: Vec<SocketId>,
    /// Things that set out.
    pub departures: Vec<Arrival>,
}

/// Readiness of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There is data, an end, or a connection to accept.
    pub is_readable: bool,
    /// Data can be sent, or sending fails at once.
    pub is_writable: bool,
    /// The other end sends no more.
    pub is_read_ended: bool,
    /// Neither end sends any more.
    pub is_hung_up: bool,
    /// There is an error.
    pub is_failed: bool,
}

/// Sockets of the machine and of its clients.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Sockets.
    sockets: BTreeMap<SocketId, Socket>,
    /// Bound sockets by their port.
    ports: BTreeMap<u16, SocketId>,
    /// Number of the latest socket.
    last: SocketId,
    /// Number of ports that were chosen.
    chosen: u16,
    /// Number of clients' ports that were chosen.
    client_ports: u16,
}

impl Network {
    /// Makes a socket.
    ///
    /// # Errors
    ///
    /// [`Errno::ENFILE`]: there are [`SOCKETS_LIMIT`].
    pub fn create(&mut self) -> Result<SocketId, Errno> {
        let unspecified = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        self.insert(unspecified, unspecified, State::Fresh, false, None)
    }

    /// Returns a socket.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`]: there is none with the number.
    pub fn get(&self, id: SocketId) -> Result<&Socket, Errno> {
        self.sockets.get(&id).ok_or(Errno::EBADF)
    }

    /// Returns a socket that can be changed.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`]: there is none with the number.
    pub fn get_mut(&mut self, id: SocketId) -> Result<&mut Socket, Errno> {
        self.sockets.get_mut(&id).ok_or(Errno::EBADF)
    }

    /// Gives a socket an address (bind(2)); port 0 chooses one.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if it has one, [`Errno::EADDRNOTAVAIL`] for an address that is not the machine's, and
    /// [`Errno::EADDRINUSE`].
    pub fn bind(&mut self, id: SocketId, address: SocketAddrV4) -> Result<(), Errno> {
        if self.get(id)?.local.port() != 0 {
            return Err(Errno::EINVAL);
        }
        if !is_local(*address.ip()) && !address.ip().is_unspecified() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let port = if address.port() == 0 { self.choose_port()? } else { address.port() };
        if self.ports.contains_key(&port) {
            return Err(Errno::EADDRINUSE);
        }
        self.ports.insert(port, id);
        self.get_mut(id)?.local = SocketAddrV4::new(*address.ip(), port);
        Ok(())
    }

    /// Lets a socket accept connections (listen(2)).
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] for a connected socket, and those of [`Network::bind`].
    pub fn listen(&mut self, id: SocketId, backlog: usize) -> Result<(), Errno> {
        if self.get(id)?.local.port() == 0 {
            self.bind(id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        }
        let wanted = backlog.clamp(1, BACKLOG_LIMIT);
        match &mut self.get_mut(id)?.state {
            state @ State::Fresh => *state = State::Listening { backlog: wanted, queue: VecDeque::new() },
            State::Listening { backlog, .. } => *backlog = wanted,
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Returns whether a socket listens at a port.
    pub fn is_listening(&self, port: u16) -> bool {
        let socket = self.ports.get(&port).and_then(|id| self.sockets.get(id));
        socket.is_some_and(|socket| matches!(socket.state, State::Listening { .. }))
    }

    /// Takes a waiting connection (accept(2)).
    ///
    /// # Errors
    ///
    /// [`Errno::EAGAIN`] if none waits, and [`Errno::EINVAL`] if the socket does not listen.
    pub fn accept(&mut self, id: SocketId) -> Result<SocketId, Errno> {
        match &mut self.get_mut(id)?.state {
            State::Listening { queue, .. } => queue.pop_front().ok_or(Errno::EAGAIN),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Connects a socket of the program to another one of it (connect(2)).
    ///
    /// # Errors
    ///
    /// [`Errno::ENETUNREACH`] for addresses that are not the machine's: no client accepts connections;
    /// [`Errno::ECONNREFUSED`] if nothing listens or the queue is full; [`Errno::EISCONN`].
    pub fn connect(&mut self, id: SocketId, address: SocketAddrV4) -> Result<Effects, Errno> {
        match self.get(id)?.state {
            State::Fresh => {}
            State::Connected => return Err(Errno::EISCONN),
            _ => return Err(Errno::EINVAL),
        }
        let ip = if address.ip().is_unspecified() { Ipv4Addr::LOCALHOST } else { *address.ip() };
        if !is_local(ip) {
            return Err(Errno::ENETUNREACH);
        }
        let remote = SocketAddrV4::new(ip, address.port());
        let local = self.get(id)?.local;
        let local = SocketAddrV4::new(ip, if local.port() == 0 { self.choose_port()? } else { local.port() });
        let accepted = self.admit(id, local, remote, address.port())?;
        let socket = self.get_mut(id)?;
        (socket.state, socket.local, socket.remote) = (State::Connected, local, remote);
        socket.peer = Some(accepted);
        let listener = self.ports.get(&address.port()).copied();
        Ok(Effects { readable: listener.into_iter().collect(), ..Effects::default() })
    }

    /// Lets a new client connect to a port of the machine.
    ///
    /// # Errors
    ///
    /// [`Errno::ENFILE`]: there are [`SOCKETS_LIMIT`] sockets.
    pub fn connect_client(&mut self, port: u16) -> Result<(SocketId, Arrival), Errno> {
        self.client_ports = self.client_ports.wrapping_add(1);
        let local = SocketAddrV4::new(CLIENTS, FIRST_PORT | self.client_ports);
        let remote = SocketAddrV4::new(MACHINE, port);
        let client = self.insert(local, remote, State::Connecting, true, None)?;
        Ok((client, Arrival::Open { client, port }))
    }

    /// Sends bytes, as many as the other end has room for, and returns their number; 0 if there is none.
    ///
    /// # Errors
    ///
    /// [`Errno::EPIPE`] if this end sends no more or the connection ended, and [`Errno::ENOTCONN`].
    pub fn send(&mut self, id: SocketId, bytes: &[u8]) -> Result<(usize, Effects), Errno> {
        let socket = self.get_mut(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        if socket.state != State::Connected {
            return Err(if socket.is_send_shut { Errno::EPIPE } else { Errno::ENOTCONN });
        }
        if socket.is_send_shut || socket.is_reset {
            return Err(Errno::EPIPE);
        }
        let count = bytes.len().min(self.room(id));
        let Some(to) = self.get(id)?.peer.filter(|_| count > 0) else { return Ok((0, Effects::default())) };
        if let Some(peer) = self.sockets.get_mut(&to) {
            peer.coming += count;
        }
        let data = Arrival::Data { to, from: id, bytes: bytes[..count].to_vec() };
        Ok((count, self.depart(id, data)))
    }

    /// Returns the number of bytes that can be sent at present.
    pub fn room(&self, id: SocketId) -> usize {
        let Some(socket) = self.sockets.get(&id) else { return 0 };
        match socket.peer.and_then(|peer| self.sockets.get(&peer)) {
            Some(peer) => RECEIVE_BYTES.saturating_sub(peer.received.len() + peer.coming),
            None => RECEIVE_BYTES,
        }
    }

    /// Returns the bytes that were received and not read, at most `limit`. Zero bytes with `true` are the end.
    ///
    /// # Errors
    ///
    /// [`Errno::EAGAIN`] if there is neither data nor an end, [`Errno::ECONNRESET`], and [`Errno::ENOTCONN`].
    pub fn receive(
        &mut self,
        id: SocketId,
        limit: usize,
        peek: bool,
    ) -> Result<(Vec<u8>, u64, Effects), Errno> {
        let room_before = self.room_at(id);
        let socket = self.get_mut(id)?;
        if socket.received.is_empty() {
            if let Some(error) = socket.error.take() {
                return Err(error);
            }
            if socket.has_ended || socket.is_receive_shut || socket.is_reset {
                return Ok((Vec::new(), socket.read, Effects::default()));
            }
            return Err(if socket.state == State::Connected { Errno::EAGAIN } else { Errno::ENOTCONN });
        }
        let count = limit.min(socket.received.len());
        let offset = socket.read;
        let (front, back) = socket.received.as_slices();
        let from_front = count.min(front.len());
        let bytes = [&front[..from_front], &back[..count - from_front]].concat();
        if !peek {
            socket.read += count as u64;
            socket.received.drain(..count);
        }
        let mut effects = Effects::default();
        if room_before == 0 && !peek {
            effects.writable.extend(socket.peer);
        }
        Ok((bytes, offset, effects))
    }

    /// Returns the number of received bytes.
    pub fn available(&self, id: SocketId) -> usize {
        self.sockets.get(&id).map_or(0, |socket| socket.received.len())
    }

    /// Returns the number of the receiving end of what a socket sends, and the offset of its next byte in the
    /// stream.
    pub fn destination(&self, id: SocketId) -> (SocketId, u64) {
        let peer = self.sockets.get(&id).and_then(|socket| socket.peer).unwrap_or(0);
        (peer, self.stream_end(peer))
    }

    /// Returns the offset behind the last byte that was sent to a socket, in its stream.
    pub fn stream_end(&self, id: SocketId) -> u64 {
        let end = |socket: &Socket| socket.read + socket.received.len() as u64 + socket.coming as u64;
        self.sockets.get(&id).map_or(0, end)
    }

    /// Returns whether the other end sends no more, and everything was read.
    pub fn is_at_end(&self, id: SocketId) -> bool {
        self.sockets.get(&id).is_none_or(|socket| {
            socket.received.is_empty() && (socket.has_ended || socket.is_reset || socket.is_receive_shut)
        })
    }

    /// Ends a connection's directions (shutdown(2)).
    ///
    /// # Errors
    ///
    /// [`Errno::ENOTCONN`].
    pub fn shut(&mut self, id: SocketId, receive: bool, send: bool) -> Result<Effects, Errno> {
        let socket = self.get_mut(id)?;
        if socket.state != State::Connected {
            return Err(Errno::ENOTCONN);
        }
        socket.is_receive_shut |= receive;
        let is_new = send && !socket.is_send_shut && !socket.is_reset;
        socket.is_send_shut |= send;
        match socket.peer.filter(|_| is_new) {
            Some(to) => Ok(self.depart(id, Arrival::End { to })),
            None => Ok(Effects::default()),
        }
    }

    /// Removes a socket, and with a listening one the connections that wait to be accepted.
    pub fn close(&mut self, id: SocketId) -> Effects {
        let Some(socket) = self.sockets.get(&id) else { return Effects::default() };
        if self.ports.get(&socket.local.port()) == Some(&id) {
            self.ports.remove(&socket.local.port());
        }
        let socket = socket.clone();
        let mut effects = Effects::default();
        if let State::Listening { queue, .. } = socket.state {
            for waiting in queue {
                let closed = self.close_connection(waiting, true);
                effects.readable.extend(closed.readable);
                effects.departures.extend(closed.departures);
            }
            self.sockets.remove(&id);
            return effects;
        }
        let has_unread = !socket.received.is_empty() || socket.coming > 0;
        self.close_connection(id, has_unread)
    }

    /// Lets something arrive that has passed the interface.
    pub fn arrive(&mut self, arrival: Arrival) -> Effects {
        match arrival {
            Arrival::Open { client, port } => self.open(client, port),
            Arrival::Data { to, from, bytes } => {
                let Some(socket) = self.sockets.get_mut(&to) else {
                    // Nobody is there any more.
                    return self.depart(to, Arrival::Reset { to: from });
                };
                socket.coming -= bytes.len();
                if !socket.is_reset && !socket.is_receive_shut {
                    socket.received.extend(bytes);
                }
                readable(to)
            }
            Arrival::End { to } => {
                if let Some(socket) = self.sockets.get_mut(&to) {
                    socket.has_ended = true;
                }
                readable(to)
            }
            Arrival::Reset { to } => {
                if let Some(socket) = self.sockets.get_mut(&to) {
                    // After the other end's end, only sending fails (as tcp_reset() in Linux has it).
                    socket.error = Some(if socket.has_ended { Errno::EPIPE } else { Errno::ECONNRESET });
                    socket.is_reset = true;
                    socket.received.clear();
                }
                Effects { writable: vec![to], ..readable(to) }
            }
        }
    }

    /// Returns what a socket is ready for.
    pub fn readiness(&self, id: SocketId) -> Readiness {
        let Some(socket) = self.sockets.get(&id) else { return Readiness::default() };
        let is_ended = socket.has_ended || socket.is_receive_shut;
        match &socket.state {
            State::Listening { queue, .. } => {
                Readiness { is_readable: !queue.is_empty(), ..Readiness::default() }
            }
            State::Connected => Readiness {
                is_readable: !socket.received.is_empty() || is_ended || socket.is_reset,
                is_writable: self.room(id) > 0 || socket.is_send_shut || socket.is_reset,
                is_read_ended: is_ended || socket.is_reset,
                is_hung_up: is_ended && socket.is_send_shut || socket.is_reset,
                is_failed: socket.error.is_some(),
            },
            _ => Readiness { is_writable: true, is_hung_up: true, ..Readiness::default() },
        }
    }

    /// Completes a client's request for a connection.
    fn open(&mut self, client: SocketId, port: u16) -> Effects {
        let Ok(socket) = self.get(client) else { return Effects::default() };
        let (local, remote) = (socket.local, socket.remote);
        let admitted = self.admit(client, local, remote, port);
        let listener = self.ports.get(&port).copied();
        if let Some(socket) = self.sockets.get_mut(&client) {
            socket.state = if admitted.is_ok() { State::Connected } else { State::Refused };
            socket.peer = admitted.ok();
        }
        Effects { readable: listener.into_iter().chain([client]).collect(), ..Effects::default() }
    }

    /// Makes the program's end of a new connection and lets it wait to be accepted.
    fn admit(
        &mut self,
        peer: SocketId,
        peer_address: SocketAddrV4,
        address: SocketAddrV4,
        port: u16,
    ) -> Result<SocketId, Errno> {
        let listener = *self.ports.get(&port).ok_or(Errno::ECONNREFUSED)?;
        match &self.get(listener)?.state {
            State::Listening { backlog, queue } if queue.len() < *backlog => {}
            _ => return Err(Errno::ECONNREFUSED),
        }
        let accepted = self.insert(address, peer_address, State::Connected, false, Some(peer))?;
        if let State::Listening { queue, .. } = &mut self.get_mut(listener)?.state {
            queue.push_back(accepted);
        }
        Ok(accepted)
    }

    /// Removes a connection's end and tells the other one.
    fn close_connection(&mut self, id: SocketId, is_reset: bool) -> Effects {
        let Some(socket) = self.sockets.get(&id) else { return Effects::default() };
        let (peer, has_sent_end, was_reset) = (socket.peer, socket.is_send_shut, socket.is_reset);
        let departure = match peer {
            Some(to) if is_reset && !was_reset => Some(Arrival::Reset { to }),
            Some(to) if !has_sent_end && !was_reset => Some(Arrival::End { to }),
            _ => None,
        };
        let effects = departure.map_or_else(Effects::default, |departure| self.depart(id, departure));
        self.sockets.remove(&id);
        effects
    }

    /// Sends something from a socket: through the interface if one of both ends is a client's, at once otherwise.
    fn depart(&mut self, from: SocketId, departure: Arrival) -> Effects {
        let to = departure.socket();
        let is_client = |id| self.sockets.get(&id).is_some_and(|socket| socket.is_client);
        if is_client(from) || is_client(to) {
            return Effects { departures: vec![departure], ..Effects::default() };
        }
        self.arrive(departure)
    }

    /// Returns the room in a socket's buffer of received bytes.
    fn room_at(&self, id: SocketId) -> usize {
        let used = self.sockets.get(&id).map_or(0, |socket| socket.received.len() + socket.coming);
        RECEIVE_BYTES.saturating_sub(used)
    }

    /// Adds a socket.
    fn insert(
        &mut self,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        state: State,
        is_client: bool,
        peer: Option<SocketId>,
    ) -> Result<SocketId, Errno> {
        if self.sockets.len() >= SOCKETS_LIMIT {
            return Err(Errno::ENFILE);
        }
        self.last += 1;
        let socket = Socket {
            state,
            local,
            remote,
            is_client,
            error: None,
            options: BTreeMap::new(),
            peer,
            received: VecDeque::new(),
            read: 0,
            coming: 0,
            has_ended: false,
            is_send_shut: false,
            is_receive_shut: false,
            is_reset: false,
        };
        self.sockets.insert(self.last, socket);
        Ok(self.last)
    }

    /// Returns a port that is not in use.
    fn choose_port(&mut self) -> Result<u16, Errno> {
        for _ in FIRST_PORT..=u16::MAX {
            let port = FIRST_PORT | self.chosen;
            self.chosen = (self.chosen + 1) % FIRST_PORT;
            if !self.ports.contains_key(&port) {
                return Ok(port);
            }
        }
        Err(Errno::EADDRINUSE)
    }
}

/// Returns whether an address is one of the machine's.
fn is_local(ip: Ipv4Addr) -> bool {
    ip.is_loopback() || ip == MACHINE
}

/// Makes the effect that a socket can be read from.
fn readable(id: SocketId) -> Effects {
    Effects { readable: vec![id], ..Effects::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
    }

    fn pair(network: &mut Network) -> (SocketId, SocketId, SocketId) {
        let listener = network.create().unwrap();
        network.bind(listener, address(80)).unwrap();
        network.listen(listener, 5).unwrap();
        let one = network.create().unwrap();
        assert_eq!(network.connect(one, address(80)).unwrap().readable, [listener]);
        let other = network.accept(listener).unwrap();
        (listener, one, other)
    }

    #[test]
    fn bytes_pass_in_both_directions_until_the_end() {
        let mut network = Network::default();
        let (_, one, other) = pair(&mut network);
        assert_eq!(network.send(one, b"hello").unwrap().1.readable, [other]);
        network.send(other, b"you").unwrap();
        network.shut(one, false, true).unwrap();
        assert_eq!(network.receive(other, 4, true).unwrap().0, b"hell");
        assert_eq!(network.receive(other, 9, false).unwrap().0, b"hello");
        assert_eq!(network.receive(other, 9, false).unwrap().0, b"");
        assert_eq!(network.receive(one, 9, false).unwrap().0, b"you");
        assert_eq!(network.receive(one, 9, false).map(|_| ()), Err(Errno::EAGAIN));
        assert_eq!(network.send(one, b"x").map(|_| ()), Err(Errno::EPIPE));
        let ready = network.readiness(other);
        assert!(ready.is_read_ended && !ready.is_hung_up && ready.is_writable);
    }

    #[test]
    fn the_first_write_to_a_closed_end_is_lost_and_the_second_fails() {
        let mut network = Network::default();
        let (_, one, other) = pair(&mut network);
        network.close(other);
        assert_eq!(network.send(one, b"x").unwrap().0, 1);
        assert_eq!(network.send(one, b"x").map(|_| ()), Err(Errno::EPIPE));
        let (_, one, other) = {
            let mut fresh = Network::default();
            let ends = pair(&mut fresh);
            network = fresh;
            ends
        };
        network.send(one, b"unread").unwrap();
        network.close(other);
        assert_eq!(network.receive(one, 9, false).map(|_| ()), Err(Errno::ECONNRESET));
        assert_eq!(network.receive(one, 9, false).unwrap().0, b"");
    }

    #[test]
    fn a_full_buffer_stops_the_sender_until_it_is_read() {
        let mut network = Network::default();
        let (_, one, other) = pair(&mut network);
        let bytes = vec![7; RECEIVE_BYTES + 5];
        assert_eq!(network.send(one, &bytes).unwrap().0, RECEIVE_BYTES);
        assert_eq!(network.send(one, &bytes).unwrap().0, 0);
        assert!(!network.readiness(one).is_writable);
        assert_eq!(network.receive(other, 10, false).unwrap().2.writable, [one]);
        assert_eq!(network.room(one), 10);
    }

    #[test]
    fn clients_reach_the_program_through_the_interface() {
        let mut network = Network::default();
        let (listener, ..) = pair(&mut network);
        let (client, open) = network.connect_client(80).unwrap();
        assert!(network.is_listening(80) && !network.is_listening(81));
        assert_eq!(network.arrive(open).readable, [listener, client]);
        let accepted = network.accept(listener).unwrap();
        let (count, effects) = network.send(client, b"get").unwrap();
        assert_eq!((count, network.available(accepted)), (3, 0));
        for departure in effects.departures {
            assert_eq!(network.arrive(departure).readable, [accepted]);
        }
        assert_eq!(network.receive(accepted, 9, false).unwrap().0, b"get");
        let (refused, open) = network.connect_client(81).unwrap();
        network.arrive(open);
        assert_eq!(network.get(refused).unwrap().state, State::Refused);
    }
}
