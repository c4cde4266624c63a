//! The kernel's client as user space controls it: messages of generic netlink (netlink(7), `linux/nbd-netlink.h`).
//!
//! ```text
//!   message     length 4 │ type 2 │ flags 2 │ sequence 4 │ port 4 │ command 1 │ version 1 │ reserved 2 │ attributes
//!   attribute   length 2 │ type 2 │ value, filled up to 4
//! ```
//!
//! Numbers are in the order of this machine. Runs in the guest.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::os::fd::{AsRawFd, OwnedFd};

/// Type of an error or acknowledgement, and of the family of families.
const ERROR: u16 = 2;
const CONTROL: u16 = 0x10;
/// Flags of a request that wants an acknowledgement.
const REQUEST: u16 = 1 | 4;

const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const CONNECT: u8 = 1;
const RECONFIGURE: u8 = 3;
const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONN_TIMEOUT: u16 = 8;
const SOCKET_ITEM: u16 = 1;
const SOCKET: u16 = 1;

/// The kernel's client, which has the device `/dev/nbd0`.
pub struct Kernel {
    socket: OwnedFd,
    family: u16,
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [4 + value.len() as u16, kind].map(u16::to_ne_bytes).concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn number(kind: u16, value: u64) -> Vec<u8> {
    attribute(kind, &value.to_ne_bytes())
}

fn sockets<S: AsRawFd>(all: &[S]) -> Vec<u8> {
    let number = |socket: &S| (socket.as_raw_fd() as u32).to_ne_bytes();
    let item = |socket: &S| attribute(SOCKET_ITEM, &attribute(SOCKET, &number(socket)));
    attribute(SOCKETS, &all.iter().map(item).collect::<Vec<_>>().concat())
}

impl Kernel {
    pub fn open() -> Kernel {
        let protocol = Some(netlink::GENERIC);
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol).unwrap();
        let mut kernel = Kernel { socket, family: CONTROL };
        let reply = kernel.ask(GET_FAMILY, &[attribute(FAMILY_NAME, b"nbd\0")]).unwrap();
        // The attributes begin behind the two headers.
        let mut rest = &reply[20..];
        while kernel.family == CONTROL {
            let word = |at: usize| u16::from_ne_bytes([rest[at], rest[at + 1]]);
            let length = usize::from(word(0));
            if word(2) == FAMILY_ID {
                kernel.family = word(4);
            }
            rest = &rest[length.next_multiple_of(4)..];
        }
        kernel
    }

    /// Makes `/dev/nbd0` of an export, whose requests wait for as long as `dead_seconds` while there is no connection,
    /// and are sent again if they have no reply within `timeout_seconds`.
    pub fn connect<S: AsRawFd>(
        &mut self,
        connections: &[S],
        (bytes, flags): (u64, u16),
        timeout_seconds: u64,
        dead_seconds: u64,
    ) {
        let attributes = [
            attribute(INDEX, &0u32.to_ne_bytes()),
            number(SIZE_BYTES, bytes),
            number(BLOCK_SIZE_BYTES, 512),
            number(TIMEOUT, timeout_seconds),
            number(SERVER_FLAGS, flags.into()),
            number(DEAD_CONN_TIMEOUT, dead_seconds),
            sockets(connections),
        ];
        self.ask(CONNECT, &attributes).unwrap();
    }

    /// Gives the kernel a connection in the place of one that has ended. Returns its error number if it does not take it:
    /// ENOSPC as long as it has not noticed the end.
    pub fn replace<S: AsRawFd>(&mut self, connection: &S) -> Result<(), i32> {
        let index = attribute(INDEX, &0u32.to_ne_bytes());
        self.ask(RECONFIGURE, &[index, sockets(std::slice::from_ref(connection))]).map(drop)
    }

    /// Sends a request, and returns the first message of the reply, or the error number.
    fn ask(&mut self, command: u8, attributes: &[Vec<u8>]) -> Result<Vec<u8>, i32> {
        let attributes = attributes.concat();
        let mut message = (20 + attributes.len() as u32).to_ne_bytes().to_vec();
        message.extend([self.family, REQUEST].map(u16::to_ne_bytes).concat());
        // Sequence and port: there is one request at a time, and the kernel knows the port.
        message.extend([0; 8]);
        message.extend([command, 1, 0, 0]);
        message.extend(attributes);
        assert_eq!(send(&self.socket, &message, SendFlags::empty()).unwrap(), message.len());
        let mut first = None;
        // A reply is a message, if the request has one, and an acknowledgement or an error.
        loop {
            let mut reply = vec![0; 8192];
            let (length, _) = recv(&self.socket, &mut reply[..], RecvFlags::empty()).unwrap();
            reply.truncate(length);
            if u16::from_ne_bytes([reply[4], reply[5]]) != ERROR {
                first.get_or_insert(reply);
                continue;
            }
            let error = i32::from_ne_bytes([reply[16], reply[17], reply[18], reply[19]]);
            return if error == 0 { Ok(first.unwrap_or_default()) } else { Err(-error) };
        }
    }
}
