//! The filter that lets only our packets reach a packet socket: a classic BPF program.
//!
//! Invariant: what passes has our magic number and port, was not meant for another host, and comes from the
//! sender that was named, if one was. Called when a port is opened. (The Ethernet type is what the socket is
//! bound to.)

use crate::datagram::layout::{MAGIC, MAGIC_OFFSET, PORT_OFFSET};
use crate::datagram::socket;
use crate::mac::Mac;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// For whom a frame was meant, as the kernel sees it.
const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
const OTHER_HOST: u32 = libc::PACKET_OTHERHOST as u32;
/// The sender's address in the Ethernet header.
const SOURCE: u32 = (libc::SKF_LL_OFF + 6) as u32;
/// What a filter answers to let all of a packet pass.
const ALL: u32 = u32::MAX;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// A value to load, and what to compare it with.
struct Test {
    load: u16,
    offset: u32,
    value: u32,
    passes_if_equal: bool,
}

/// Attaches the filter.
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
        // From the jump to the last instruction, which refuses.
        let refuse = (2 * (tests.len() - number - 1) + 1) as u8;
        let (equal, other) = if test.passes_if_equal { (0, refuse) } else { (refuse, 0) };
        program.push(libc::sock_filter { code: test.load, jt: 0, jf: 0, k: test.offset });
        program.push(libc::sock_filter { code: IF_EQUAL, jt: equal, jf: other, k: test.value });
    }
    program.push(libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: ALL });
    program.push(libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 });
    program
}
