//! Classic BPF program by which a packet socket receives only packets of this protocol.
//!
//! Invariant: a packet that passes has the protocol's magic number and port, is not addressed to another
//! host, and comes from the given sender, if there is one. Called when a port is opened. (The socket is bound
//! to the EtherType.)

use crate::datagram::layout::{MAGIC, MAGIC_OFFSET, PORT_OFFSET};
use crate::datagram::socket;
use crate::mac::Mac;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Offset of the packet type, which tells to whom the frame is addressed.
const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
const OTHER_HOST: u32 = libc::PACKET_OTHERHOST as u32;
/// Offset of the sender's address in the Ethernet header.
const SOURCE: u32 = (libc::SKF_LL_OFF + 6) as u32;
/// Result of the filter for a packet that passes as a whole.
const ALL: u32 = u32::MAX;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Value to load, and the number that it must equal.
struct Test {
    load: u16,
    offset: u32,
    value: u32,
    passes_if_equal: bool,
}

/// Attaches the filter to a socket.
///
/// # Errors
/// The errno of setsockopt(2).
pub(super) fn attach(socket: BorrowedFd<'_>, port: u16, from: Option<Mac>) -> Result<(), Errno> {
    let mut program = program(port, from);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    socket::set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}

fn program(port: u16, from: Option<Mac>) -> Vec<libc::sock_filter> {
    let mut tests = vec![
        Test { load: LOAD_WORD, offset: PACKET_TYPE, value: OTHER_HOST, passes_if_equal: false },
        Test { load: LOAD_HALF, offset: MAGIC_OFFSET, value: MAGIC.into(), passes_if_equal: true },
        Test { load: LOAD_HALF, offset: PORT_OFFSET, value: port.into(), passes_if_equal: true },
    ];
    if let Some(Mac([a, b, c, d, e, f])) = from {
        let (high, low) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
        tests.push(Test { load: LOAD_WORD, offset: SOURCE, value: high, passes_if_equal: true });
        tests.push(Test { load: LOAD_HALF, offset: SOURCE + 4, value: low.into(), passes_if_equal: true });
    }
    let mut program = Vec::with_capacity(2 * tests.len() + 2);
    for (number, test) in tests.iter().enumerate() {
        // Distance of the jump to the last instruction, which rejects the packet.
        let refuse = (2 * (tests.len() - number - 1) + 1) as u8;
        let (equal, other) = if test.passes_if_equal { (0, refuse) } else { (refuse, 0) };
        program.push(libc::sock_filter { code: test.load, jt: 0, jf: 0, k: test.offset });
        program.push(libc::sock_filter { code: IF_EQUAL, jt: equal, jf: other, k: test.value });
    }
    program.push(libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: ALL });
    program.push(libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 });
    program
}
