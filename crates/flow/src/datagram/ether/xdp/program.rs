//! The three programs that the kernel runs for every received frame, instruction by instruction (the kernel's
//! `Documentation/bpf/standardization/instruction-set.rst`).
//!
//! ```text
//!     frame        | to 6 | from 6 | type 2 | magic 2 | version, kind 2 | port 2 | ...
//!     r6 context   r7 its first byte   r8 behind its last
//! ```
//!
//! | program | frames of the protocol | other frames |
//! |---|---|---|
//! | [`Program::to_socket`] | go to the socket of their queue | pass |
//! | [`Program::onwards`] | are counted, addressed to the sink and sent by another device; the sender is
//! remembered | pass |
//! | [`Program::back`] | are counted and sent to the remembered sender | pass |
//!
//! Frames of the protocol are those that [`super::super::filter`] accepts: with its EtherType, magic number
//! and port, addressed to this host or a group, from the given sender. Invariant: other frames are not
//! changed, so that ARP and IP work as before. A frame costs some twenty instructions, which the kernel
//! compiles.

use crate::datagram::layout::{ETHER_TYPE, HEADER_BYTES, MAGIC, MAGIC_OFFSET, PORT_OFFSET};
use crate::mac::Mac;

/// Size of an Ethernet header, in bytes.
pub(super) const ETHERNET_BYTES: usize = 14;
/// Offsets of destination, source and EtherType in a frame.
const TO: i16 = 0;
const FROM: i16 = 6;
const TYPE: i16 = 12;
const MAGIC_AT: i16 = ETHERNET_BYTES as i16 + MAGIC_OFFSET as i16;
const PORT_AT: i16 = ETHERNET_BYTES as i16 + PORT_OFFSET as i16;
/// Offsets in `struct xdp_md`.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_DATA_END: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;
/// Result of a program that leaves a frame to the kernel.
const XDP_PASS: i32 = 2;

/// Numbers of the kernel's helper functions.
const MAP_LOOKUP_ELEM: i32 = 1;
const REDIRECT: i32 = 23;
const REDIRECT_MAP: i32 = 51;

/// Opcodes: class, size or operand source, and operation.
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_IMMEDIATE: u8 = 0x62;
const MOVE: u8 = 0xBF;
const MOVE_IMMEDIATE: u8 = 0xB7;
const ADD: u8 = 0x0F;
const ADD_IMMEDIATE: u8 = 0x07;
const SUBTRACT: u8 = 0x1F;
const OR: u8 = 0x4F;
const AND_IMMEDIATE: u8 = 0x57;
const SHIFT_LEFT: u8 = 0x67;
const SHIFT_RIGHT: u8 = 0x77;
const IF_GREATER: u8 = 0x2D;
const IF_EQUAL: u8 = 0x1D;
const IF_EQUAL_IMMEDIATE: u8 = 0x15;
const IF_NOT_EQUAL_IMMEDIATE: u8 = 0x55;
/// Like the opcode before, but for the lower 32 bits, so that the immediate is not sign-extended.
const IF_NOT_EQUAL_SHORT: u8 = 0x56;
const LOAD_WIDE: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Kind of a wide immediate: a map, or the address of an array's first value.
const PSEUDO_MAP: u8 = 1;
const PSEUDO_VALUE: u8 = 2;

/// Bits of an opcode for the size of a load or store.
#[derive(Clone, Copy)]
enum Size {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
    Double = 0x18,
}

/// An instruction (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    operation: u8,
    /// Destination register in the lower half, source register in the upper half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Properties of the frames of the protocol at a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameMatch {
    pub port: u16,
    /// Ethernet address of the device.
    pub here: Mac,
    pub from: Option<Mac>,
}

/// Destination and counters of redirected frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct RedirectTarget {
    /// Index of the outgoing device, and its Ethernet address.
    pub device: u32,
    pub from: Mac,
    pub port: u16,
    /// Descriptor of a map of [`COUNTERS`] for each processor, and the key of this direction in it.
    pub counters: i32,
    pub direction: u32,
    /// Descriptor of an array map with one value: the last sender.
    pub source: i32,
}

/// Number of counters of a direction: packets, and bytes behind the Ethernet header.
pub(super) const COUNTERS: usize = 2;

/// A program being built: its instructions, and the indices of the jumps to its end.
pub(super) struct Program {
    instructions: Vec<Instruction>,
    to_pass: Vec<usize>,
}

impl Program {
    /// Builds the program that passes frames of the protocol to the socket of their queue.
    pub(super) fn to_socket(ours: &FrameMatch, sockets: i32) -> Program {
        let mut program = Program::begin(ours);
        program.load(Size::Word, 2, 6, CONTEXT_QUEUE); // r2: the queue that it came by
        program.load_wide(1, PSEUDO_MAP, sockets); // r1: the map of sockets
        program.push(MOVE_IMMEDIATE, 3, 0, 0, XDP_PASS); // r3: if there is none for this queue
        program.push(CALL, 0, 0, 0, REDIRECT_MAP); // r0: what is to be done with it
        program.push(EXIT, 0, 0, 0, 0);
        program.end()
    }

    /// Builds the program that redirects frames of the protocol to `to`.
    pub(super) fn onwards(ours: &FrameMatch, leave: &RedirectTarget, to: Mac) -> Program {
        let mut program = Program::begin(ours);
        program.load(Size::Word, 2, 7, FROM); // r2: the sender, as eight bytes of which two are zero
        program.load(Size::Half, 3, 7, FROM + 4);
        program.push(SHIFT_LEFT, 3, 0, 0, 32);
        program.push(OR, 2, 3, 0, 0);
        program.load_wide(1, PSEUDO_VALUE, leave.source); // r1: where the sender is remembered
        program.load(Size::Double, 3, 1, 0);
        program.push(IF_EQUAL, 3, 2, 1, 0); // if it is another one,
        program.store(Size::Double, 1, 0, 2); // it is remembered
        program.count(leave);
        let (high, low) = parts(to);
        program.store_immediate(Size::Word, 7, TO, high);
        program.store_immediate(Size::Half, 7, TO + 4, low);
        program.leave(leave)
    }

    /// Builds the program that redirects frames of the protocol to the last sender; without one they pass.
    pub(super) fn back(ours: &FrameMatch, leave: &RedirectTarget) -> Program {
        let mut program = Program::begin(ours);
        program.load_wide(1, PSEUDO_VALUE, leave.source); // r9: who sent last
        program.load(Size::Double, 9, 1, 0);
        program.pass_if(IF_EQUAL_IMMEDIATE, 9, 0, 0);
        program.count(leave);
        program.store(Size::Word, 7, TO, 9);
        program.push(SHIFT_RIGHT, 9, 0, 0, 32);
        program.store(Size::Half, 7, TO + 4, 9);
        program.leave(leave)
    }

    pub(super) fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Builds the common beginning, behind which a frame is of the protocol, and r6, r7 and r8 are as drawn
    /// above.
    fn begin(ours: &FrameMatch) -> Program {
        let mut program = Program { instructions: Vec::with_capacity(64), to_pass: Vec::with_capacity(16) };
        program.push(MOVE, 6, 1, 0, 0); // r6: the context
        program.load(Size::Word, 7, 1, CONTEXT_DATA); // r7: the frame's first byte
        program.load(Size::Word, 8, 1, CONTEXT_DATA_END); // r8: behind its last
        program.push(MOVE, 0, 7, 0, 0); // shorter than both headers: not ours
        program.push(ADD_IMMEDIATE, 0, 0, 0, (ETHERNET_BYTES + HEADER_BYTES) as i32);
        program.pass_if(IF_GREATER, 0, 8, 0);
        program.pass_unless(Size::Half, TYPE, short(ETHER_TYPE));
        program.pass_unless(Size::Half, MAGIC_AT, short(MAGIC));
        program.pass_unless(Size::Half, PORT_AT, short(ours.port));
        // The destination is a group address or the address of this device.
        program.load(Size::Byte, 0, 7, TO);
        program.push(AND_IMMEDIATE, 0, 0, 0, 1); // the bit that says 'many'
        program.push(IF_NOT_EQUAL_IMMEDIATE, 0, 0, 4, 0); // over the next four
        program.pass_unless_address(TO, ours.here);
        if let Some(from) = ours.from {
            program.pass_unless_address(FROM, from);
        }
        program
    }

    /// Adds the instructions that count a frame for this processor. Uses r0 to r5.
    fn count(&mut self, leave: &RedirectTarget) {
        self.store_immediate(Size::Word, 10, -4, leave.direction as i32); // the key, on the stack
        self.load_wide(1, PSEUDO_MAP, leave.counters); // r1: the map
        self.push(MOVE, 2, 10, 0, 0); // r2: where the key is
        self.push(ADD_IMMEDIATE, 2, 0, 0, -4);
        self.push(CALL, 0, 0, 0, MAP_LOOKUP_ELEM); // r0: this processor's counters
        self.pass_if(IF_EQUAL_IMMEDIATE, 0, 0, 0); // never, but the kernel wants to see it
        self.load(Size::Double, 1, 0, 0); // packets
        self.push(ADD_IMMEDIATE, 1, 0, 0, 1);
        self.store(Size::Double, 0, 0, 1);
        self.push(MOVE, 2, 8, 0, 0); // r2: bytes behind the Ethernet header
        self.push(SUBTRACT, 2, 7, 0, 0);
        self.push(ADD_IMMEDIATE, 2, 0, 0, -(ETHERNET_BYTES as i32));
        self.load(Size::Double, 1, 0, 8);
        self.push(ADD, 1, 2, 0, 0);
        self.store(Size::Double, 0, 8, 1);
    }

    /// Adds the instructions that set the outgoing device's address and the port, and redirect the frame. The
    /// destination must have been written.
    fn leave(mut self, leave: &RedirectTarget) -> Program {
        let (high, low) = parts(leave.from);
        self.store_immediate(Size::Word, 7, FROM, high);
        self.store_immediate(Size::Half, 7, FROM + 4, low);
        self.store_immediate(Size::Half, 7, PORT_AT, short(leave.port));
        self.push(MOVE_IMMEDIATE, 1, 0, 0, leave.device as i32); // r1: the device
        self.push(MOVE_IMMEDIATE, 2, 0, 0, 0); // r2: no flags
        self.push(CALL, 0, 0, 0, REDIRECT); // r0: what is to be done with it
        self.push(EXIT, 0, 0, 0, 0);
        self.end()
    }

    /// Adds the common end, at which other frames pass.
    fn end(mut self) -> Program {
        let pass = self.instructions.len();
        for place in std::mem::take(&mut self.to_pass) {
            self.instructions[place].offset = (pass - place - 1) as i16;
        }
        self.push(MOVE_IMMEDIATE, 0, 0, 0, XDP_PASS);
        self.push(EXIT, 0, 0, 0, 0);
        self
    }

    fn pass_unless_address(&mut self, offset: i16, mac: Mac) {
        let (high, low) = parts(mac);
        self.pass_unless(Size::Word, offset, high);
        self.pass_unless(Size::Half, offset + 4, low);
    }

    /// Adds two instructions: the frame passes unless `value` is at the offset.
    fn pass_unless(&mut self, size: Size, offset: i16, value: i32) {
        self.load(size, 0, 7, offset);
        self.pass_if(IF_NOT_EQUAL_SHORT, 0, 0, value);
    }

    fn pass_if(&mut self, operation: u8, one: u8, other: u8, immediate: i32) {
        self.to_pass.push(self.instructions.len());
        self.push(operation, one, other, 0, immediate);
    }

    fn load(&mut self, size: Size, to: u8, from: u8, offset: i16) {
        self.push(LOAD | size as u8, to, from, offset, 0);
    }

    fn store(&mut self, size: Size, to: u8, offset: i16, from: u8) {
        self.push(STORE | size as u8, to, from, offset, 0);
    }

    fn store_immediate(&mut self, size: Size, to: u8, offset: i16, value: i32) {
        self.push(STORE_IMMEDIATE | size as u8, to, 0, offset, value);
    }

    /// Adds a wide load of two slots. For the address of a map's value, the second slot holds the offset in
    /// it.
    fn load_wide(&mut self, to: u8, what: u8, map: i32) {
        self.push(LOAD_WIDE, to, what, 0, map);
        self.push(0, 0, 0, 0, 0);
    }

    fn push(&mut self, operation: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.instructions.push(Instruction { operation, registers: from << 4 | to, offset, immediate });
    }
}

/// Returns two bytes in network order as this processor loads them.
fn short(value: u16) -> i32 {
    value.to_be().into()
}

/// Returns the first four and the last two bytes of an address as this processor loads them.
fn parts(Mac([a, b, c, d, e, f]): Mac) -> (i32, i32) {
    (i32::from_ne_bytes([a, b, c, d]), u16::from_ne_bytes([e, f]).into())
}

const _: () = assert!(size_of::<Instruction>() == 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_out_leads_to_the_last_two_instructions() {
        let mac = Mac([0xFE, 1, 2, 3, 4, 5]);
        let ours = FrameMatch { port: 7, here: mac, from: Some(mac) };
        let leave = RedirectTarget { device: 3, from: mac, port: 8, counters: 4, direction: 0, source: 5 };
        for program in
            [Program::to_socket(&ours, 3), Program::onwards(&ours, &leave, mac), Program::back(&ours, &leave)]
        {
            let instructions = program.instructions();
            let pass = instructions.len() - 2;
            assert_eq!(instructions[pass].immediate, XDP_PASS);
            let ways = instructions.iter().enumerate().filter(|(_, one)| matches!(one.operation & 7, 5 | 6));
            for (place, one) in ways.filter(|(_, one)| !matches!(one.operation, CALL | EXIT)) {
                let to = (place as i64 + 1 + i64::from(one.offset)) as usize;
                // A jump leads to the end, or over the following instructions: for a group address, or for a
                // known sender.
                assert!(to == pass || (one.offset == 4 || one.offset == 1), "{place}: {one:?}");
            }
        }
    }

    #[test]
    fn an_address_is_loaded_as_the_wire_has_it() {
        let (high, low) = parts(Mac([1, 2, 3, 4, 5, 6]));
        assert_eq!(high.to_ne_bytes(), [1, 2, 3, 4]);
        assert_eq!((low as u16).to_ne_bytes(), [5, 6]);
        assert_eq!((short(0x0102) as u16).to_ne_bytes(), [1, 2]);
    }
}
