//! Calls on sockets: TCP over IPv4.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::descriptors::CLOSE_ON_EXEC;
use super::transfer::{NON_BLOCKING, wait_for};
use super::{Caller, Served, Stop, System, TRANSFER_LIMIT};
use crate::descriptor::Object;
use crate::errno::Errno;
use crate::machine::{Location, Path, Work};
use crate::poll::event;
use crate::socket::SocketId;
use crate::thread::Source;

/// Address family of IPv4 (`AF_INET`).
const INTERNET: u16 = 2;
/// Type of a stream (`SOCK_STREAM`).
const STREAM: u64 = 1;
/// Length of an address (`struct sockaddr_in`), in bytes.
const ADDRESS_BYTES: u32 = 16;
/// Number of bytes that are copied in one go.
const PART_BYTES: u64 = 64 << 10;

/// Flags of sendto(2) and recvfrom(2).
mod flag {
    pub const PEEK: u64 = 2;
    pub const DO_NOT_WAIT: u64 = 0x40;
    pub const WAIT_FOR_ALL: u64 = 0x100;
    pub const NO_SIGNAL: u64 = 0x4000;
    pub const MORE: u64 = 0x8000;
    pub const CLOSE_ON_EXEC: u64 = 0x4000_0000;
}

/// Options at the level of sockets (`SOL_SOCKET`).
mod option {
    pub const LEVEL: u32 = 1;
    pub const TYPE: u32 = 3;
    pub const ERROR: u32 = 4;
    pub const SEND_BYTES: u32 = 7;
    pub const RECEIVE_BYTES: u32 = 8;
    pub const LISTENS: u32 = 30;
    pub const DOMAIN: u32 = 39;
    /// Options that have no effect here: reuse of addresses, keeping alive, lingering, buffer sizes, reuse of ports.
    pub const WITHOUT_EFFECT: [u32; 8] = [2, 5, 6, SEND_BYTES, RECEIVE_BYTES, 9, 13, 15];
    /// Level of TCP, whose options (delays, keeping alive) have no effect here.
    pub const TCP_LEVEL: u32 = 6;
    /// Level of IP, whose option for the type of service (1) has no effect here.
    pub const IP_LEVEL: u32 = 0;
}

impl System {
    /// Serves socket(2).
    pub(super) fn socket(&mut self, caller: &Caller) -> Served {
        let [family, kind, protocol, ..] = caller.arguments;
        let flags = kind & (CLOSE_ON_EXEC | u64::from(NON_BLOCKING));
        if family != u64::from(INTERNET) {
            return Err(Errno::EAFNOSUPPORT.into());
        }
        if kind & !flags != STREAM {
            return Err(Errno::ESOCKTNOSUPPORT.into());
        }
        if protocol != 0 && protocol != 6 {
            return Err(Errno::EPROTONOSUPPORT.into());
        }
        let id = self.network.create()?;
        self.open_socket(id, flags)
    }

    /// Serves socketpair(2): there are no sockets that are not TCP.
    pub(super) fn socketpair(&mut self, _: &Caller) -> Served {
        Err(Errno::EAFNOSUPPORT.into())
    }

    /// Serves bind(2).
    pub(super) fn bind(&mut self, caller: &Caller) -> Served {
        let id = self.socket_of(caller)?;
        let address = self.read_address(caller.arguments[1], caller.arguments[2])?;
        self.network.bind(id, address)?;
        Ok(0)
    }

    /// Serves listen(2).
    pub(super) fn listen(&mut self, caller: &Caller) -> Served {
        let id = self.socket_of(caller)?;
        let backlog = usize::try_from(caller.arguments[1] as i32).unwrap_or(usize::MAX);
        self.network.listen(id, backlog)?;
        Ok(0)
    }

    /// Serves accept(2) and accept4(2).
    pub(super) fn accept(&mut self, caller: &Caller) -> Served {
        let [_, address, length, flags, ..] = caller.arguments;
        let id = self.socket_of(caller)?;
        let flags = if caller.number == 202 { 0 } else { flags };
        if flags & !(CLOSE_ON_EXEC | u64::from(NON_BLOCKING)) != 0 {
            return Err(Errno::EINVAL.into());
        }
        self.call_of(caller.thread)?.is_exclusive = true;
        if !self.descriptors.has_room(1) {
            return Err(Errno::EMFILE.into());
        }
        let is_waiting = self.descriptors.get(caller.descriptor(0))?.flags & NON_BLOCKING == 0;
        let accepted = match self.network.accept(id) {
            Ok(accepted) => accepted,
            Err(Errno::EAGAIN) => return Err(wait_for(Source::Socket(id), is_waiting)),
            Err(errno) => return Err(errno.into()),
        };
        self.work.push(Work::Path(Path::Accept));
        if self.network.readiness(id).is_readable {
            // More connections wait, and perhaps another thread for them.
            self.notify(Source::Socket(id), event::IN);
        }
        let remote = self.network.get(accepted)?.remote;
        let descriptor = self.open_socket(accepted, flags)?;
        self.write_address(address, length, remote)?;
        Ok(descriptor)
    }

    /// Serves connect(2).
    pub(super) fn connect(&mut self, caller: &Caller) -> Served {
        let id = self.socket_of(caller)?;
        let address = self.read_address(caller.arguments[1], caller.arguments[2])?;
        self.work.push(Work::Path(Path::Connect));
        let effects = self.network.connect(id, address)?;
        self.apply(effects);
        Ok(0)
    }

    /// Serves getsockname(2).
    pub(super) fn getsockname(&mut self, caller: &Caller) -> Served {
        let id = self.socket_of(caller)?;
        let local = self.network.get(id)?.local;
        self.write_address(caller.arguments[1], caller.arguments[2], local)
    }

    /// Serves getpeername(2).
    pub(super) fn getpeername(&mut self, caller: &Caller) -> Served {
        let id = self.socket_of(caller)?;
        let socket = self.network.get(id)?;
        if socket.state != crate::socket::State::Connected {
            return Err(Errno::ENOTCONN.into());
        }
        let remote = socket.remote;
        self.write_address(caller.arguments[1], caller.arguments[2], remote)
    }

    /// Serves shutdown(2).
    pub(super) fn shutdown(&mut self, caller: &Caller) -> Served {
        let id = self.socket_of(caller)?;
        let (receive, send) = match caller.arguments[1] {
            0 => (true, false),
            1 => (false, true),
            2 => (true, true),
            _ => return Err(Errno::EINVAL.into()),
        };
        let effects = self.network.shut(id, receive, send)?;
        self.apply(effects);
        // Threads that wait at this end see it, too.
        self.notify(Source::Socket(id), event::IN | event::OUT | event::HANG_UP);
        Ok(0)
    }

    /// Serves sendto(2).
    pub(super) fn sendto(&mut self, caller: &Caller) -> Served {
        let [_, address, length, flags, ..] = caller.arguments;
        self.send_buffers(caller, &[(address, length.min(TRANSFER_LIMIT))], flags)
    }

    /// Serves recvfrom(2).
    pub(super) fn recvfrom(&mut self, caller: &Caller) -> Served {
        let [_, address, length, flags, _, name_length] = caller.arguments;
        let count = self.receive_buffers(caller, &vec![(address, length.min(TRANSFER_LIMIT))], flags)?;
        if caller.arguments[4] != 0 && name_length != 0 {
            // A stream has no names of senders.
            self.memory.write(name_length, &[0; 4])?;
        }
        Ok(count)
    }

    /// Serves sendmsg(2), without control messages.
    pub(super) fn sendmsg(&mut self, caller: &Caller) -> Served {
        let [_, _, list, count, _, control] = self.memory.words(caller.arguments[1])?;
        if control != 0 {
            return Err(self.unsupported(caller, "with control messages", "descriptors cannot be passed"));
        }
        let buffers = self.buffers(list, count)?;
        self.send_buffers(caller, &buffers, caller.arguments[2])
    }

    /// Serves recvmsg(2), without control messages.
    pub(super) fn recvmsg(&mut self, caller: &Caller) -> Served {
        let message = caller.arguments[1];
        let [_, _, list, count, ..] = self.memory.words::<4>(message)?;
        let buffers = self.buffers(list, count)?;
        let received = self.receive_buffers(caller, &buffers, caller.arguments[2])?;
        // Neither a name nor control messages nor flags.
        self.memory.write(message.wrapping_add(8), &[0; 4])?;
        self.memory.set_words(message.wrapping_add(40), &[0])?;
        self.memory.write(message.wrapping_add(48), &[0; 4])?;
        Ok(received)
    }

    /// Serves setsockopt(2). Options that would need what is not modelled are refused.
    pub(super) fn setsockopt(&mut self, caller: &Caller) -> Served {
        let [_, level, name, address, length, _] = caller.arguments;
        let id = self.socket_of(caller)?;
        let (level, name) = (level as u32, name as u32);
        let is_known = match level {
            option::LEVEL => option::WITHOUT_EFFECT.contains(&name),
            option::TCP_LEVEL => name <= 30,
            option::IP_LEVEL => name == 1,
            _ => false,
        };
        if !is_known {
            return Err(Errno::ENOPROTOOPT.into());
        }
        if length < 4 {
            return Err(Errno::EINVAL.into());
        }
        let value = self.memory.word32(address)?;
        self.network.get_mut(id)?.options.insert((level, name), value);
        Ok(0)
    }

    /// Serves getsockopt(2).
    pub(super) fn getsockopt(&mut self, caller: &Caller) -> Served {
        let [_, level, name, address, length_address, _] = caller.arguments;
        let id = self.socket_of(caller)?;
        let (level, name) = (level as u32, name as u32);
        let length = self.memory.word32(length_address)?;
        let socket = self.network.get_mut(id)?;
        let value = match (level, name) {
            (option::LEVEL, option::TYPE) => STREAM as u32,
            (option::LEVEL, option::ERROR) => socket.error.take().map_or(0, |errno| errno.number().into()),
            (option::LEVEL, option::LISTENS) => {
                u32::from(matches!(socket.state, crate::socket::State::Listening { .. }))
            }
            (option::LEVEL, option::DOMAIN) => INTERNET.into(),
            (option::LEVEL, option::SEND_BYTES | option::RECEIVE_BYTES) => {
                crate::socket::RECEIVE_BYTES as u32
            }
            _ => match socket.options.get(&(level, name)) {
                Some(&value) => value,
                None if level == option::LEVEL && option::WITHOUT_EFFECT.contains(&name) => 0,
                None if level == option::TCP_LEVEL && name <= 10 => 0,
                None => return Err(Errno::ENOPROTOOPT.into()),
            },
        };
        let count = length.min(4);
        self.memory.write(address, &value.to_le_bytes()[..count as usize])?;
        self.memory.write(length_address, &count.to_le_bytes())?;
        Ok(0)
    }

    /// Sends the bytes of buffers.
    fn send_buffers(&mut self, caller: &Caller, buffers: &[(u64, u64)], flags: u64) -> Served {
        let known = flag::DO_NOT_WAIT | flag::NO_SIGNAL | flag::MORE;
        if flags & !known != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let id = self.socket_of(caller)?;
        let is_waiting = flags & flag::DO_NOT_WAIT == 0
            && self.descriptors.get(caller.descriptor(0))?.flags & NON_BLOCKING == 0;
        loop {
            let done = self.call_of(caller.thread)?.progress;
            let mut before = done;
            let next = buffers.iter().find_map(|&(address, length)| {
                let found = (before < length).then(|| (address.wrapping_add(before), length - before));
                before = before.saturating_sub(length);
                found
            });
            let Some((address, left)) = next else { return Ok(done) };
            let mut bytes = vec![0; left.min(PART_BYTES) as usize];
            let sent = self.memory.read(address, &mut bytes).map_err(Stop::from).and_then(|()| {
                let signals = flags & flag::NO_SIGNAL == 0;
                self.put_into_socket(caller, id, Location::Program(address), &bytes, is_waiting, signals)
            });
            match sent {
                Ok(count) => self.call_of(caller.thread)?.progress += count,
                Err(Stop::Error(_)) if done > 0 => return Ok(done),
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Receives bytes into buffers.
    fn receive_buffers(&mut self, caller: &Caller, buffers: &Vec<(u64, u64)>, flags: u64) -> Served {
        let known =
            flag::PEEK | flag::DO_NOT_WAIT | flag::WAIT_FOR_ALL | flag::NO_SIGNAL | flag::CLOSE_ON_EXEC;
        if flags & !known != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let id = self.socket_of(caller)?;
        let is_waiting = flags & flag::DO_NOT_WAIT == 0
            && self.descriptors.get(caller.descriptor(0))?.flags & NON_BLOCKING == 0;
        let total: u64 = buffers.iter().map(|&(_, length)| length).sum();
        if total == 0 {
            return Ok(0);
        }
        let is_all = flags & flag::WAIT_FOR_ALL != 0 && is_waiting;
        let enough = total.min(crate::socket::RECEIVE_BYTES as u64 / 2);
        if is_all && (self.network.available(id) as u64) < enough && !self.network.is_at_end(id) {
            // What has come stays until all has, or nothing more can.
            let is_ended = self.network.readiness(id).is_read_ended;
            if !is_ended {
                return Err(wait_for(Source::Socket(id), true));
            }
        }
        let (from, bytes) = self.take_from_socket(id, total, is_waiting, flags & flag::PEEK != 0)?;
        self.scatter(buffers, from, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Makes a descriptor of a socket; the socket is closed if that fails.
    fn open_socket(&mut self, id: SocketId, flags: u64) -> Served {
        let (status, on_exec) = (2 | flags as u32 & NON_BLOCKING, flags & CLOSE_ON_EXEC != 0);
        match self.descriptors.open(Object::Socket(id), status, on_exec, 0) {
            Ok(descriptor) => Ok(descriptor as u64),
            Err(errno) => {
                let effects = self.network.close(id);
                self.apply(effects);
                Err(errno.into())
            }
        }
    }

    /// Returns the socket of a call's first argument.
    fn socket_of(&self, caller: &Caller) -> Result<SocketId, Errno> {
        match self.descriptors.get(caller.descriptor(0))?.object {
            Object::Socket(id) => Ok(id),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// Reads an address (`struct sockaddr_in`).
    fn read_address(&mut self, address: u64, length: u64) -> Result<SocketAddrV4, Errno> {
        if length < u64::from(ADDRESS_BYTES) {
            return Err(Errno::EINVAL);
        }
        let bytes: [u8; 8] = self.memory.array(address)?;
        if u16::from_le_bytes([bytes[0], bytes[1]]) != INTERNET {
            return Err(Errno::EAFNOSUPPORT);
        }
        let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
        Ok(SocketAddrV4::new(ip, u16::from_be_bytes([bytes[2], bytes[3]])))
    }

    /// Writes an address, cut to the program's buffer, and its length.
    fn write_address(&mut self, address: u64, length_address: u64, value: SocketAddrV4) -> Served {
        if address == 0 {
            return Ok(0);
        }
        let room = self.memory.word32(length_address)?;
        let mut bytes = [0_u8; ADDRESS_BYTES as usize];
        bytes[..2].copy_from_slice(&INTERNET.to_le_bytes());
        bytes[2..4].copy_from_slice(&value.port().to_be_bytes());
        bytes[4..8].copy_from_slice(&value.ip().octets());
        self.memory.write(address, &bytes[..room.min(ADDRESS_BYTES) as usize])?;
        self.memory.write(length_address, &ADDRESS_BYTES.to_le_bytes())?;
        Ok(0)
    }
}
