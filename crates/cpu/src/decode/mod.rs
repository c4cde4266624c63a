//! Decoding: from the bits of an instruction to its operation and operands, and to text.
//!
//! [`TABLE`] and [`COMPRESSED`] have a row for each instruction; decoder, disassembler and tests read these
//! rows. Compressed instructions are decoded to the operation and operands of the instruction that they stand
//! for, so that whatever executes instructions knows nothing of them but their length.

mod format;
mod table;
mod text;

use crate::register::Register;
pub use format::Format;
pub use table::{COMPRESSED, Operation, Row, TABLE};
pub use text::disassemble;

/// Decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation; [`Operation::Illegal`] if the bits are no instruction.
    pub operation: Operation,
    /// Destination, an integer or a floating-point register.
    pub rd: Register,
    /// First source.
    pub rs1: Register,
    /// Second source.
    pub rs2: Register,
    /// Third source, of fused multiply-add.
    pub rs3: Register,
    /// Rounding mode in the instruction: 0 to 4, or 7 for the one in `frm`.
    pub rounding: u8,
    /// Length in bytes: 2 or 4.
    pub length: u8,
    /// Immediate operand, sign-extended; the number of a control register for its instructions.
    pub immediate: i64,
    /// Bits that were decoded: 16 of a compressed instruction, else 32.
    pub bits: u32,
}

/// Decodes an instruction from 32 bits, of which a compressed instruction uses the lower 16.
pub fn decode(bits: u32) -> Instruction {
    if bits & 3 == 3 { decode_full(bits) } else { decode_compressed(bits & 0xffff) }
}

impl Operation {
    /// Returns the row of the operation's instruction of 32 bits; `None` for what is no instruction.
    pub fn row(self) -> Option<&'static Row> {
        TABLE.get(self as usize)
    }
}

/// Decodes an instruction of 32 bits.
fn decode_full(bits: u32) -> Instruction {
    let rows = ROWS_BY_OPCODE[(bits >> 2 & 31) as usize];
    let found = TABLE[rows.0 as usize..rows.1 as usize].iter().find(|row| row.matches(bits));
    instruction(found, bits, 4)
}

/// Decodes an instruction of 16 bits.
fn decode_compressed(bits: u32) -> Instruction {
    instruction(COMPRESSED.iter().find(|row| row.matches(bits)), bits, 2)
}

/// Joins the row of an instruction and its operands.
fn instruction(row: Option<&Row>, bits: u32, length: u8) -> Instruction {
    let decoded = row.and_then(|row| row.format.operands(bits).map(|operands| (row.operation, operands)));
    let (operation, operands) = decoded.unwrap_or((Operation::Illegal, format::Operands::NONE));
    Instruction {
        operation,
        rd: operands.rd,
        rs1: operands.rs1,
        rs2: operands.rs2,
        rs3: operands.rs3,
        rounding: operands.rounding,
        length,
        immediate: operands.immediate,
        bits,
    }
}

/// First row of [`TABLE`] and the row behind the last, for each major opcode (bits 2 to 6).
const ROWS_BY_OPCODE: [(u16, u16); 32] = {
    let mut ranges = [(0, 0); 32];
    let mut row = 0;
    while row < TABLE.len() {
        let opcode = (TABLE[row].value >> 2 & 31) as usize;
        if ranges[opcode].1 == 0 {
            ranges[opcode].0 = row as u16;
        }
        ranges[opcode].1 = row as u16 + 1;
        row += 1;
    }
    ranges
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_decoded_to_its_operation_and_matches_no_other_row() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.value & !row.mask, 0, "{}: its value has bits outside its mask", row.mnemonic);
            assert_eq!(
                row.operation as usize, index,
                "{}: the enumeration is in another order",
                row.mnemonic
            );
            assert_eq!(decode(row.value).operation, row.operation, "{}", row.mnemonic);
            let matching: Vec<_> =
                TABLE.iter().filter(|other| other.matches(row.value)).map(|row| row.mnemonic).collect();
            assert_eq!(matching, [row.mnemonic]);
        }
    }

    #[test]
    fn each_compressed_row_is_reached() {
        for row in COMPRESSED {
            // All bits that the row leaves free are set, so that no operand is zero where zero is reserved.
            let bits = (row.value | !row.mask & 0xffff) & 0xffff;
            let decoded = decode(bits);
            assert_eq!(decoded.operation, row.operation, "{} {bits:#06x}", row.mnemonic);
            assert_eq!(decoded.length, 2);
        }
    }

    #[test]
    fn compressed_instructions_stand_for_full_ones() {
        // Pairs as the GNU assembler encodes them with and without compression.
        for (compressed, full) in [
            (0x1141, 0xff01_0113), // addi sp, sp, -16
            (0xe406, 0x0011_3423), // sd ra, 8(sp)
            (0x60a2, 0x0081_3083), // ld ra, 8(sp)
            (0x0141, 0x0101_0113), // addi sp, sp, 16
            (0x8082, 0x0000_8067), // ret
            (0x4501, 0x0000_0513), // li a0, 0
            (0x852e, 0x00b0_0533), // add a0, zero, a1
            (0x9532, 0x00c5_0533), // add a0, a0, a2
            (0x6585, 0x0000_15b7), // lui a1, 1
            (0x7139, 0xfc01_0113), // addi sp, sp, -64
            (0x1808, 0x0301_0513), // addi a0, sp, 48
            (0x4188, 0x0005_a503), // lw a0, 0(a1)
            (0x6588, 0x0085_b503), // ld a0, 8(a1)
            (0xe588, 0x00a5_b423), // sd a0, 8(a1)
            (0x8d6d, 0x00b5_7533), // and a0, a0, a1
            (0x9d0d, 0x40b5_053b), // subw a0, a0, a1
            (0x8509, 0x4025_5513), // srai a0, a0, 2
            (0x050e, 0x0035_1513), // slli a0, a0, 3
            (0x2505, 0x0015_051b), // addiw a0, a0, 1
            (0x9002, 0x0010_0073), // ebreak
        ] {
            let mut expected = decode(full);
            expected.length = 2;
            expected.bits = compressed;
            assert_eq!(decode(compressed), expected, "{compressed:#06x} for {full:#010x}");
        }
    }

    #[test]
    fn reserved_encodings_are_illegal() {
        for bits in [
            0x0000_0000,              // defined to be illegal
            0xffff_ffff,              // longer than 32 bits
            0x0000_4002,              // c.lwsp with rd = x0
            0x0000_2001,              // c.addiw with rd = x0
            0x0000_6081,              // c.lui without immediate
            0x0000_8002,              // c.jr x0
            0x0200_5053 | 0x20 << 25, // no such operation
            0x00b5_5053,              // fadd.s with the reserved rounding mode 5
            0x0000_2073,              // csrrs is legal: see below
        ] {
            let legal = bits == 0x0000_2073;
            assert_eq!(decode(bits).operation != Operation::Illegal, legal, "{bits:#010x}");
        }
    }
}
