//! Each instruction of the table: operands, result and flags as the specification has them; and, where cross
//! compiler and QEMU are installed, with many operands as QEMU has them.

#![allow(clippy::unwrap_used)] // helpers of the tests

mod system;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Command;

use bywash_cpu::decode::{Format, Row, TABLE};
use bywash_cpu::memory::{Permissions, Space};
use bywash_cpu::{Blocks, Exit, Hart, Register};

const CODE: u64 = 0x1_0000;
const DATA: u64 = 0x2_0000;
const ONES: u64 = u64::MAX;
const MIN: u64 = 1 << 63;
const MAX: u64 = MIN - 1;
const MIN_WORD: u64 = 0xffff_ffff_8000_0000;

/// Instruction, first and second operand, result. A load's first operand is the doubleword in memory, a
/// store's result the doubleword in memory that was all ones, a branch's result whether it is taken, a jump's
/// the distance of the next instruction.
#[rustfmt::skip]
const INTEGER: &[(&str, u64, u64, u64)] = &[
    ("lui", 0, 0x1234_5000, 0x1234_5000), ("lui", 0, 0x8000_0000, MIN_WORD),
    ("auipc", 0, 0x1000, CODE + 0x1000), ("auipc", 0, 0xffff_f000, CODE - 0x1000),
    ("jal", 0, 16, 16), ("jalr", CODE + 32, 5, 36),
    ("beq", 5, 5, 1), ("beq", 5, 6, 0), ("bne", 5, 6, 1), ("bne", ONES, ONES, 0),
    ("blt", ONES, 0, 1), ("blt", 0, 0, 0), ("bge", 0, ONES, 1), ("bge", 3, 3, 1), ("bge", MIN, MAX, 0),
    ("bltu", ONES, 0, 0), ("bltu", 0, ONES, 1), ("bgeu", ONES, 0, 1), ("bgeu", 7, 8, 0),
    ("lb", 0x80, 0, 0xffff_ffff_ffff_ff80), ("lb", 0x7f00, 1, 0x7f), ("lh", 0x8000, 0, 0xffff_ffff_ffff_8000),
    ("lh", 0x12_3456, 1, 0x1234), ("lw", 0x8000_0000, 0, MIN_WORD), ("lw", 0x7fff_ffff_0000_0000, 4, 0x7fff_ffff),
    ("ld", 0x0123_4567_89ab_cdef, 0, 0x0123_4567_89ab_cdef), ("lbu", 0xff, 0, 0xff), ("lhu", 0xffff, 0, 0xffff),
    ("lwu", 0xffff_ffff, 0, 0xffff_ffff), ("lwu", 0x1234_5678_9abc, 2, 0x1234_5678),
    ("sb", 0x1234, 0, 0xffff_ffff_ffff_ff34), ("sb", 0, 7, 0x00ff_ffff_ffff_ffff), ("sh", 0x1_2345, 2, 0xffff_ffff_2345_ffff),
    ("sh", 0, 3, 0xffff_ff00_00ff_ffff), ("sw", 0x1_0000_0002, 4, 0x0000_0002_ffff_ffff), ("sd", 77, 0, 77),
    ("addi", ONES, 1, 0), ("addi", MAX, 1, MIN), ("addi", 5, 0xfff, 4), ("addi", 0, 0x7ff, 0x7ff),
    ("slti", ONES, 0, 1), ("slti", 0, 0xfff, 0), ("sltiu", 0, 0xfff, 1), ("sltiu", 1, 1, 0),
    ("xori", 0xf0, 0xfff, !0xf0), ("ori", 0xf0, 0x0f, 0xff), ("andi", 0xff, 0xff0, 0xf0),
    ("slli", 1, 63, MIN), ("slli", 3, 32, 0x3_0000_0000), ("srli", MIN, 63, 1), ("srai", MIN, 63, ONES), ("srai", MAX, 62, 1),
    ("addiw", 0x7fff_ffff, 1, MIN_WORD), ("addiw", 0xffff_ffff_0000_0000, 0xfff, ONES), ("slliw", 1, 31, MIN_WORD),
    ("srliw", MIN_WORD, 31, 1), ("srliw", ONES, 0, ONES), ("sraiw", 0x8000_0000, 4, 0xffff_ffff_f800_0000),
    ("add", ONES, 2, 1), ("add", MAX, MAX, ONES - 1), ("sub", 0, 1, ONES), ("sub", MIN, 1, MAX),
    ("sll", 1, 64 + 5, 32), ("slt", MIN, MAX, 1), ("slt", 1, 1, 0), ("sltu", MIN, MAX, 0), ("sltu", 0, 1, 1),
    ("xor", 0b1100, 0b1010, 0b0110), ("or", 0b1100, 0b1010, 0b1110), ("and", 0b1100, 0b1010, 0b1000),
    ("srl", ONES, 127, 1), ("sra", MIN, 4, 0xf800_0000_0000_0000),
    ("mul", ONES, ONES, 1), ("mul", 0x1_0000_0001, 0x1_0000_0001, 0x2_0000_0001), ("mulh", ONES, ONES, 0), ("mulh", MIN, MIN, 1 << 62),
    ("mulh", MIN, 2, ONES), ("mulhsu", ONES, ONES, ONES), ("mulhsu", MIN, MIN, 0xc000_0000_0000_0000), ("mulhsu", 2, ONES, 1),
    ("mulhu", ONES, ONES, ONES - 1), ("mulhu", MIN, 2, 1),
    ("div", 20, 6, 3), ("div", 20u64.wrapping_neg(), 6, 3u64.wrapping_neg()), ("div", 5, 0, ONES), ("div", MIN, ONES, MIN),
    ("divu", 20, 6, 3), ("divu", ONES, 2, MAX), ("divu", 5, 0, ONES),
    ("rem", 20u64.wrapping_neg(), 6, 2u64.wrapping_neg()), ("rem", 5, 0, 5), ("rem", MIN, ONES, 0), ("remu", 20, 6, 2), ("remu", 7, 0, 7),
    ("addw", 0x7fff_ffff, 1, MIN_WORD), ("subw", 0, 1, ONES), ("subw", 0x8000_0000, 1, 0x7fff_ffff), ("sllw", 1, 32 + 31, MIN_WORD),
    ("srlw", ONES, 1, 0x7fff_ffff), ("srlw", 0x8000_0000, 32, MIN_WORD), ("sraw", 0x8000_0000, 31, ONES),
    ("mulw", 0x7fff_ffff, 2, ONES - 1), ("divw", 0x8000_0000, ONES, MIN_WORD), ("divw", 7, 0, ONES), ("divw", 0x1_0000_0009, 3, 3),
    ("divuw", 0xffff_ffff, 1, ONES), ("divuw", 8, 0, ONES), ("divuw", ONES, 2, 0x7fff_ffff),
    ("remw", 0x8000_0000, ONES, 0), ("remw", 0xffff_fff9, 4, 3u64.wrapping_neg()), ("remw", 0x8000_0001, 0, 0xffff_ffff_8000_0001),
    ("remuw", 0xffff_ffff, 0, ONES), ("remuw", 10, 4, 2),
    ("fence", 0, 0, 0), ("fence.i", 0, 0, 0),
    ("csrrw", 0xe5, 3, 0), ("csrrs", 0x1f, 1, 0), ("csrrc", 0xff, 2, 0), ("csrrwi", 0, 3, 0), ("csrrsi", 0, 1, 0), ("csrrci", 0, 2, 0),
    ("lr.w", 0x8000_0000, 0, MIN_WORD), ("lr.d", MIN, 0, MIN),
    ("sc.w", 1, 5, 1), ("sc.d", 1, 5, 1),
    ("amoswap.w", 0x1_8000_0000, 7, MIN_WORD), ("amoadd.w", 5, ONES, 5), ("amoxor.w", 6, 3, 6), ("amoand.w", 6, 3, 6),
    ("amoor.w", 6, 3, 6), ("amomin.w", 1, ONES, 1), ("amomax.w", ONES, 1, ONES), ("amominu.w", 1, ONES, 1), ("amomaxu.w", 1, ONES, 1),
    ("amoswap.d", MIN, 7, MIN), ("amoadd.d", 5, ONES, 5), ("amoxor.d", 6, 3, 6), ("amoand.d", 6, 3, 6),
    ("amoor.d", 6, 3, 6), ("amomin.d", 1, ONES, 1), ("amomax.d", ONES, 1, ONES), ("amominu.d", 1, ONES, 1), ("amomaxu.d", 1, ONES, 1),
];

/// Atomic instruction, doubleword in memory before, operand, doubleword in memory after.
const ATOMIC: &[(&str, u64, u64, u64)] = &[
    ("amoswap.w", ONES, 7, 0xffff_ffff_0000_0007),
    ("amoadd.w", 0xffff_ffff, 1, 0),
    ("amoxor.w", 6, 3, 5),
    ("amoand.w", 6, 3, 2),
    ("amoor.w", 6, 3, 7),
    ("amomin.w", 1, ONES, 0xffff_ffff),
    ("amomax.w", 0xffff_ffff, 1, 1),
    ("amominu.w", 1, ONES, 1),
    ("amomaxu.w", 1, ONES, 0xffff_ffff),
    ("amoswap.d", ONES, 7, 7),
    ("amoadd.d", ONES, 2, 1),
    ("amoxor.d", 6, 3, 5),
    ("amoand.d", 6, 3, 2),
    ("amoor.d", 6, 3, 7),
    ("amomin.d", 1, ONES, ONES),
    ("amomax.d", ONES, 1, 1),
    ("amominu.d", 1, ONES, 1),
    ("amomaxu.d", 1, ONES, ONES),
];

const BOX: u64 = 0xffff_ffff_0000_0000;
/// Single-precision numbers in registers: 1, 1.5, 2, 3, -1, infinity, canonical NaN, smallest subnormal.
const S1: u64 = BOX | 0x3f80_0000;
const S1_5: u64 = BOX | 0x3fc0_0000;
const S2: u64 = BOX | 0x4000_0000;
const S3: u64 = BOX | 0x4040_0000;
const S_MINUS_1: u64 = BOX | 0xbf80_0000;
const S_INFINITY: u64 = BOX | 0x7f80_0000;
const S_NAN: u64 = BOX | 0x7fc0_0000;
const S_SIGNAL: u64 = BOX | 0x7f80_0001;
/// Double-precision numbers.
const D1: u64 = 0x3ff0_0000_0000_0000;
const D1_5: u64 = 0x3ff8_0000_0000_0000;
const D2: u64 = 0x4000_0000_0000_0000;
const D3: u64 = 0x4008_0000_0000_0000;
const D_MINUS_1: u64 = 0xbff0_0000_0000_0000;
const D_INFINITY: u64 = 0x7ff0_0000_0000_0000;
const D_NAN: u64 = 0x7ff8_0000_0000_0000;
const D_SIGNAL: u64 = 0x7ff0_0000_0000_0001;
const NX: u8 = 1;
const OF: u8 = 4;
const DZ: u8 = 8;
const NV: u8 = 16;

/// Floating-point instruction, operands, result, flags. A load's first operand is the doubleword in memory; a
/// store's result is the doubleword in memory.
#[rustfmt::skip]
const FLOAT: &[(&str, [u64; 3], u64, u8)] = &[
    ("flw", [0x1_3f80_0000, 0, 0], S1, 0), ("fld", [D2, 0, 0], D2, 0),
    ("fsw", [0x3f80_0000, 0, 0], BOX | 0x3f80_0000, 0), ("fsd", [D3, 0, 0], D3, 0),
    ("fmadd.s", [S1_5, S2, S1], BOX | 0x4080_0000, 0), ("fmsub.s", [S1_5, S2, S1], S2, 0),
    ("fnmsub.s", [S1_5, S2, S1], BOX | 0xc000_0000, 0), ("fnmadd.s", [S1_5, S2, S1], BOX | 0xc080_0000, 0),
    ("fmadd.s", [S_INFINITY, BOX, S_NAN], S_NAN, NV),
    ("fmadd.d", [D1_5, D2, D1], 0x4010_0000_0000_0000, 0), ("fmsub.d", [D1_5, D2, D1], D2, 0),
    ("fnmsub.d", [D1_5, D2, D1], 0xc000_0000_0000_0000, 0), ("fnmadd.d", [D1_5, D2, D1], 0xc010_0000_0000_0000, 0),
    ("fmadd.d", [0x3ff0_0000_0000_0001, 0x3ff0_0000_0000_0001, 0xbff0_0000_0000_0002], 0x3970_0000_0000_0000, 0),
    ("fadd.s", [S1, S2, 0], S3, 0), ("fadd.s", [BOX | 0x7f7f_ffff, BOX | 0x7f7f_ffff, 0], S_INFINITY, OF | NX),
    ("fadd.s", [0x3f80_0000, S1, 0], S_NAN, 0), ("fsub.s", [S3, S1, 0], S2, 0), ("fsub.s", [S_INFINITY, S_INFINITY, 0], S_NAN, NV),
    ("fmul.s", [S1_5, S2, 0], S3, 0), ("fdiv.s", [S1, BOX, 0], S_INFINITY, DZ), ("fdiv.s", [S1, S3, 0], BOX | 0x3eaa_aaab, NX),
    ("fsqrt.s", [BOX | 0x4080_0000, 0, 0], S2, 0), ("fsqrt.s", [S_MINUS_1, 0, 0], S_NAN, NV),
    ("fsgnj.s", [S1, S_MINUS_1, 0], S_MINUS_1, 0), ("fsgnjn.s", [S1, S1, 0], S_MINUS_1, 0), ("fsgnjx.s", [S_MINUS_1, S_MINUS_1, 0], S1, 0),
    ("fsgnj.s", [0, S_MINUS_1, 0], BOX | 0xffc0_0000, 0),
    ("fmin.s", [S1, S_NAN, 0], S1, 0), ("fmin.s", [BOX, BOX | 0x8000_0000, 0], BOX | 0x8000_0000, 0), ("fmin.s", [S_SIGNAL, S1, 0], S1, NV),
    ("fmax.s", [S1, S2, 0], S2, 0), ("fmax.s", [BOX | 0x8000_0000, BOX, 0], BOX, 0),
    ("fcvt.w.s", [S_MINUS_1, 0, 0], ONES, 0), ("fcvt.w.s", [S_NAN, 0, 0], 0x7fff_ffff, NV), ("fcvt.wu.s", [S_MINUS_1, 0, 0], 0, NV),
    ("fcvt.wu.s", [BOX | 0x4f80_0000, 0, 0], ONES, NV), ("fcvt.l.s", [S1_5, 0, 0], 2, NX), ("fcvt.lu.s", [S3, 0, 0], 3, 0),
    ("fmv.x.w", [BOX | 0x8000_0000, 0, 0], MIN_WORD, 0), ("fmv.x.w", [0x1234_5678, 0, 0], 0x1234_5678, 0),
    ("feq.s", [S1, S1, 0], 1, 0), ("feq.s", [S1, S_NAN, 0], 0, 0), ("feq.s", [S_SIGNAL, S1, 0], 0, NV),
    ("flt.s", [S_MINUS_1, S1, 0], 1, 0), ("flt.s", [S1, S_NAN, 0], 0, NV), ("fle.s", [BOX, BOX | 0x8000_0000, 0], 1, 0),
    ("fclass.s", [S_SIGNAL, 0, 0], 1 << 8, 0), ("fclass.s", [S1, 0, 0], 1 << 6, 0),
    ("fcvt.s.w", [ONES, 0, 0], S_MINUS_1, 0), ("fcvt.s.wu", [ONES, 0, 0], BOX | 0x4f80_0000, NX), ("fcvt.s.l", [3, 0, 0], S3, 0),
    ("fcvt.s.lu", [ONES, 0, 0], BOX | 0x5f80_0000, NX), ("fmv.w.x", [0x1_3f80_0000, 0, 0], S1, 0),
    ("fadd.d", [D1, D2, 0], D3, 0), ("fadd.d", [D1, 1, 0], D1, NX), ("fsub.d", [D3, D1, 0], D2, 0), ("fmul.d", [D1_5, D2, 0], D3, 0),
    ("fmul.d", [1, D1_5, 0], 2, 2 | NX), ("fdiv.d", [D3, D1_5, 0], D2, 0), ("fdiv.d", [0, 0, 0], D_NAN, NV),
    ("fsqrt.d", [0x4010_0000_0000_0000, 0, 0], D2, 0), ("fsqrt.d", [D2, 0, 0], 0x3ff6_a09e_667f_3bcd, NX),
    ("fsgnj.d", [D1, D_MINUS_1, 0], D_MINUS_1, 0), ("fsgnjn.d", [D1, D_MINUS_1, 0], D1, 0), ("fsgnjx.d", [D_MINUS_1, D1, 0], D_MINUS_1, 0),
    ("fmin.d", [D1, D2, 0], D1, 0), ("fmin.d", [D_NAN, D_SIGNAL, 0], D_NAN, NV), ("fmax.d", [D_NAN, D1, 0], D1, 0),
    ("fcvt.s.d", [D1_5, 0, 0], S1_5, 0), ("fcvt.s.d", [D_SIGNAL, 0, 0], S_NAN, NV), ("fcvt.s.d", [0x3ff0_0000_0000_0001, 0, 0], S1, NX),
    ("fcvt.d.s", [S1_5, 0, 0], D1_5, 0), ("fcvt.d.s", [BOX | 1, 0, 0], 0x36a0_0000_0000_0000, 0),
    ("feq.d", [D1, D1, 0], 1, 0), ("flt.d", [D1, D2, 0], 1, 0), ("flt.d", [D2, D1, 0], 0, 0), ("fle.d", [D_NAN, D1, 0], 0, NV),
    ("fclass.d", [D_INFINITY, 0, 0], 1 << 7, 0),
    ("fcvt.w.d", [0x41e0_0000_0000_0000, 0, 0], 0x7fff_ffff, NV), ("fcvt.w.d", [0x4004_0000_0000_0000, 0, 0], 2, NX),
    ("fcvt.wu.d", [0x41ef_ffff_ffe0_0000, 0, 0], ONES, 0), ("fcvt.l.d", [D_MINUS_1, 0, 0], ONES, 0),
    ("fcvt.l.d", [D_INFINITY, 0, 0], MAX, NV), ("fcvt.lu.d", [D_NAN, 0, 0], ONES, NV), ("fcvt.lu.d", [D_MINUS_1, 0, 0], 0, NV),
    ("fmv.x.d", [D_NAN, 0, 0], D_NAN, 0), ("fcvt.d.w", [ONES, 0, 0], D_MINUS_1, 0), ("fcvt.d.wu", [3, 0, 0], D3, 0),
    ("fcvt.d.l", [MIN, 0, 0], 0xc3e0_0000_0000_0000, 0), ("fcvt.d.lu", [ONES, 0, 0], 0x43f0_0000_0000_0000, NX),
    ("fmv.d.x", [D1, 0, 0], D1, 0),
];

/// Returns the row of an instruction.
fn row(mnemonic: &str) -> &'static Row {
    TABLE.iter().find(|row| row.mnemonic == mnemonic).unwrap_or_else(|| panic!("no instruction {mnemonic}"))
}

/// Encodes an instruction of a row: rd is register 10, rs1 11, rs2 12, rs3 13.
fn encode(row: &Row, immediate: u64) -> u32 {
    let imm = immediate as u32;
    let (rd, rs1, rs2, rs3) = (10 << 7, 11 << 15, 12 << 20, 13 << 27);
    row.value
        | match row.format {
            Format::U => rd | imm & 0xffff_f000,
            Format::J => rd | (imm & 0x7fe) << 20,
            Format::B => rs1 | rs2 | (imm & 0x1e) << 7,
            Format::Store | Format::FloatStore => rs1 | rs2 | (imm & 31) << 7 | (imm >> 5) << 25,
            Format::Fence | Format::FenceI | Format::Bare => 0,
            Format::I
            | Format::Load
            | Format::FloatLoad
            | Format::Jalr
            | Format::Shift
            | Format::ShiftWord => rd | rs1 | imm << 20,
            Format::Csr => rd | rs1 | imm << 20,
            Format::CsrImmediate => rd | 5 << 15 | imm << 20,
            Format::LoadReserved => rd | rs1,
            Format::Fused => rd | rs1 | rs2 | rs3,
            Format::FloatFromFloat
            | Format::IntegerFromFloat
            | Format::FloatFromInteger
            | Format::MoveToInteger
            | Format::MoveToFloat => rd | rs1,
            _ => rd | rs1 | rs2,
        }
}

/// Returns a space with an instruction and a doubleword of data.
fn space(bits: u32, data: u64) -> Space {
    let mut space = Space::new(1 << 20);
    space.map(CODE, 0x1000, Permissions::EXECUTE).unwrap();
    space.map(DATA, 0x1000, Permissions::READ | Permissions::WRITE).unwrap();
    space.initialise(CODE, &bits.to_le_bytes()).unwrap();
    space.write(DATA, &data.to_le_bytes()).unwrap();
    space
}

fn doubleword(space: &mut Space) -> u64 {
    let mut bytes = [0; 8];
    space.read(DATA, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

#[test]
fn every_instruction_has_a_row_here() {
    let mut missing: BTreeSet<&str> = TABLE.iter().map(|row| row.mnemonic).collect();
    for mnemonic in
        INTEGER.iter().map(|row| row.0).chain(FLOAT.iter().map(|row| row.0)).chain(["ecall", "ebreak"])
    {
        missing.remove(mnemonic);
    }
    assert!(missing.is_empty(), "instructions without a test: {missing:?}");
}

#[test]
fn integer_instructions_have_the_specified_results() {
    for &(mnemonic, a, b, expected) in INTEGER {
        let row = row(mnemonic);
        let context = format!("{mnemonic} of {a:#x} and {b:#x}");
        let uses_memory =
            matches!(row.format, Format::Load | Format::Store | Format::Atomic | Format::LoadReserved);
        let immediate = if row.format == Format::B { 16 } else { b };
        let mut space = space(encode(row, immediate), if row.format == Format::Store { ONES } else { a });
        let mut hart = Hart::new(CODE);
        hart.set_x(Register::R11, if uses_memory { DATA } else { a });
        hart.set_x(Register::R12, if row.format == Format::Store { a } else { b });
        assert_eq!(hart.run(&mut space, &mut Blocks::new(), 1), Exit::Budget, "{context}");
        let next = hart.pc - CODE;
        match row.format {
            Format::B => {
                assert_eq!(next, if expected == 1 { 16 } else { 4 }, "{context}");
                continue;
            }
            Format::J | Format::Jalr => {
                assert_eq!((next, hart.x(Register::R10)), (expected, CODE + 4), "{context}");
                continue;
            }
            Format::Store => assert_eq!(doubleword(&mut space), expected, "{context}"),
            _ => assert_eq!(hart.x(Register::R10), expected, "{context}"),
        }
        assert_eq!((next, hart.retired), (4, 1), "{context}");
    }
}

#[test]
fn atomic_instructions_change_memory_as_specified() {
    for &(mnemonic, before, operand, after) in ATOMIC {
        let mut space = space(encode(row(mnemonic), 0), before);
        let mut hart = Hart::new(CODE);
        hart.set_x(Register::R11, DATA);
        hart.set_x(Register::R12, operand);
        assert_eq!(hart.run(&mut space, &mut Blocks::new(), 1), Exit::Budget);
        assert_eq!(doubleword(&mut space), after, "{mnemonic} of {before:#x} and {operand:#x}");
    }
}

#[test]
fn float_instructions_have_the_specified_results_and_flags() {
    for &(mnemonic, operands, expected, flags) in FLOAT {
        let row = row(mnemonic);
        let context = format!("{mnemonic} of {operands:x?}");
        let is_store = row.format == Format::FloatStore;
        let mut space = space(encode(row, 0), if is_store { ONES } else { operands[0] });
        let mut hart = Hart::new(CODE);
        let uses_memory = matches!(row.format, Format::FloatLoad | Format::FloatStore);
        hart.set_x(Register::R11, if uses_memory { DATA } else { operands[0] });
        hart.set_f(Register::R11, operands[0]);
        hart.set_f(Register::R12, if is_store { operands[0] } else { operands[1] });
        hart.set_f(Register::R13, operands[2]);
        assert_eq!(hart.run(&mut space, &mut Blocks::new(), 1), Exit::Budget, "{context}");
        let result = if is_store {
            doubleword(&mut space)
        } else if row.format.writes_integer() {
            hart.x(Register::R10)
        } else {
            hart.f(Register::R10)
        };
        assert_eq!((result, hart.flags.0), (expected, flags), "{context}");
    }
}

#[test]
fn control_registers_are_read_and_changed() {
    // Instruction, fcsr before, operand, result, fcsr after. Register 1 is fflags, 2 frm, 3 both; the
    // immediate is 5.
    for (mnemonic, register, before, operand, result, after) in [
        ("csrrw", 3, 0x7f, 0xe5, 0x7f, 0xe5),
        ("csrrw", 2, 0x7f, 4, 3, 0x9f),
        ("csrrs", 1, 0x60, 0x1f, 0, 0x7f),
        ("csrrc", 3, 0xff, 0x0f, 0xff, 0xf0),
        ("csrrwi", 1, 0, 0, 0, 5),
        ("csrrsi", 3, 0x18, 0, 0x18, 0x1d),
        ("csrrci", 1, 0x1f, 0, 0x1f, 0x1a),
    ] {
        let mut space = space(encode(row(mnemonic), register), 0);
        let mut hart = Hart::new(CODE);
        hart.set_fcsr(before);
        hart.set_x(Register::R11, operand);
        assert_eq!(hart.run(&mut space, &mut Blocks::new(), 1), Exit::Budget);
        assert_eq!((hart.x(Register::R10), hart.fcsr()), (result, after), "{mnemonic} of {register}");
    }
    // A counter can be read and not written; machine registers do not exist.
    for (bits, is_legal) in
        [(0xc020_2573, true), (0xc000_2573, true), (0xc020_1073, false), (0x3000_2573, false)]
    {
        let mut hart = Hart::new(CODE);
        let exit = hart.run(&mut space(bits, 0), &mut Blocks::new(), 1);
        let expected = if is_legal { Exit::Budget } else { Exit::IllegalInstruction { pc: CODE, bits } };
        assert_eq!(exit, expected, "{bits:#x}");
    }
}

#[test]
fn an_invalid_rounding_mode_is_illegal() {
    let bits = row("fadd.d").value | 7 << 12;
    let mut hart = Hart::new(CODE);
    hart.set_fcsr(5 << 5);
    assert_eq!(
        hart.run(&mut space(bits, 0), &mut Blocks::new(), 1),
        Exit::IllegalInstruction { pc: CODE, bits }
    );
    assert_eq!(hart.retired, 0);
}

#[test]
fn store_conditional_needs_an_unbroken_reservation() {
    // lr.d a0, (a1); then a store to the line, or not; then sc.d a0, a2, (a1).
    let nop = 0x13;
    for (between, is_broken) in
        [(nop, false), (0x00b5_b423 /* sd a1, 8(a1) */, true), (0x04b5_b023 /* sd a1, 64(a1) */, false)]
    {
        let mut space = space(row("lr.d").value | 10 << 7 | 11 << 15, 3);
        space.initialise(CODE + 4, &u32::to_le_bytes(between)).unwrap();
        space.initialise(CODE + 8, &encode(row("sc.d"), 0).to_le_bytes()).unwrap();
        let mut hart = Hart::new(CODE);
        hart.set_x(Register::R11, DATA);
        hart.set_x(Register::R12, 77);
        assert_eq!(hart.run(&mut space, &mut Blocks::new(), 3), Exit::Budget);
        assert_eq!(hart.x(Register::R10), u64::from(is_broken), "{between:#x}");
        assert_eq!(doubleword(&mut space), if is_broken { 3 } else { 77 }, "{between:#x}");
        assert_eq!(hart.reservation, None);
    }
}

#[test]
fn accesses_that_are_refused_change_nothing() {
    for (mnemonic, address, kind) in [
        ("ld", 0x3_0000, "load at 0x30000: nothing is mapped there"),
        ("sd", 0x2_0ffc, "store at 0x21000: nothing is mapped there"),
        ("sb", CODE, "store at 0x10000: the mapping does not permit it"),
        ("lb", CODE, "load at 0x10000: the mapping does not permit it"),
        ("lr.w", DATA + 2, "load at 0x20002: an atomic operation needs an aligned address"),
        ("amoadd.d", DATA + 4, "store at 0x20004: an atomic operation needs an aligned address"),
        ("ld", ONES - 3, "load at 0xfffffffffffffffc: nothing is mapped there"),
        ("sd", ONES - 3, "store at 0xfffffffffffffffc: nothing is mapped there"),
    ] {
        let mut space = space(encode(row(mnemonic), 0), 3);
        let mut hart = Hart::new(CODE);
        hart.set_x(Register::R10, 99);
        hart.set_x(Register::R11, address);
        let before = hart.clone();
        match hart.run(&mut space, &mut Blocks::new(), 5) {
            Exit::Fault { pc: CODE, fault } => assert_eq!(fault.to_string(), kind, "{mnemonic}"),
            other => panic!("{mnemonic} at {address:#x}: {other:?}"),
        }
        assert_eq!(hart, before, "{mnemonic}");
        let mut bytes = [0; 4];
        space.read(DATA + 0xffc, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 4], "{mnemonic}: nothing is stored to the first page");
    }
}

#[test]
fn calls_and_breakpoints_stop_the_hart() {
    let mut space = space(0x73, 0);
    space.initialise(CODE + 4, &0x0010_0073_u32.to_le_bytes()).unwrap();
    let mut hart = Hart::new(CODE);
    let mut blocks = Blocks::new();
    assert_eq!(hart.run(&mut space, &mut blocks, 5), Exit::EnvironmentCall);
    assert_eq!((hart.pc, hart.retired), (CODE + 4, 1));
    assert_eq!(hart.run(&mut space, &mut blocks, 5), Exit::Breakpoint);
    assert_eq!((hart.pc, hart.retired), (CODE + 4, 1));
    assert_eq!(hart.run(&mut space, &mut blocks, 0), Exit::Budget);
}

/// Operands with which instructions are compared with QEMU's.
#[rustfmt::skip]
const OPERANDS: [u64; 30] = [
    0, 1, 2, 7, 63, ONES, ONES - 1, MIN, MAX, MIN_WORD, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x1234_5678_9abc_def0,
    S1, S1_5, S_MINUS_1, S_INFINITY, S_NAN, S_SIGNAL, BOX | 1, BOX | 0x0080_0000, BOX | 0x7f7f_ffff,
    D1_5, D_MINUS_1, D_INFINITY, D_NAN, D_SIGNAL, 0x0010_0000_0000_0000, 0x3fd5_5555_5555_5555,
];

/// Returns the assembly text of an instruction of a row with its operands in fixed registers; `None` for
/// those that other tests have.
fn assembly(row: &Row, rounding: &str) -> Option<String> {
    let name = row.mnemonic;
    Some(match row.format {
        Format::R => format!("{name} a0, a1, a2"),
        Format::I => format!("{name} a0, a1, -1357"),
        Format::Shift => format!("{name} a0, a1, 37"),
        Format::ShiftWord => format!("{name} a0, a1, 13"),
        Format::Fused => format!("{name} fa0, fa1, fa2, fa3, {rounding}"),
        Format::FloatRounded => format!("{name} fa0, fa1, fa2, {rounding}"),
        // The assembler takes no rounding mode for what is always exact.
        Format::FloatFromFloat if name == "fcvt.d.s" => format!("{name} fa0, fa1"),
        Format::FloatFromFloat => format!("{name} fa0, fa1, {rounding}"),
        Format::Float => format!("{name} fa0, fa1, fa2"),
        Format::Compare => format!("{name} a0, fa1, fa2"),
        Format::IntegerFromFloat => format!("{name} a0, fa1, {rounding}"),
        Format::FloatFromInteger if name == "fcvt.d.w" || name == "fcvt.d.wu" => format!("{name} fa0, a1"),
        Format::FloatFromInteger => format!("{name} fa0, a1, {rounding}"),
        Format::MoveToInteger => format!("{name} a0, fa1"),
        Format::MoveToFloat => format!("{name} fa0, a1"),
        _ => return None,
    })
}

/// Returns a C program that executes each instruction of the table with each pair of operands and prints a
/// checksum of results and flags per operand.
fn program() -> String {
    let mut text =
        String::from("#include <stdio.h>\ntypedef unsigned long u64;\nstatic const u64 operands[] = {");
    for operand in OPERANDS {
        let _ = write!(text, "{operand:#x}UL, ");
    }
    text.push_str("};\n#define COUNT (sizeof operands / sizeof *operands)\n");
    let mut calls = String::new();
    let mut number = 0;
    for row in TABLE {
        let roundings: &[&str] =
            if row.value & 0x7000 == 0 && row.mask & 0x7000 == 0 && assembly(row, "rne").is_some() {
                &["rne", "rtz", "rdn", "rup", "rmm"]
            } else {
                &["dyn"]
            };
        for rounding in roundings {
            let Some(instruction) = assembly(row, rounding) else { continue };
            let _ = write!(
                text,
                "static void test{number}(void) {{ for (unsigned i = 0; i < COUNT; i++) {{ u64 sum = 0;\n\
                 for (unsigned j = 0; j < COUNT; j++) {{ u64 x, f, flags;\n\
                 asm volatile(\"mv a1, %3\\nmv a2, %4\\nfmv.d.x fa1, %3\\nfmv.d.x fa2, %4\\nfmv.d.x fa3, %5\\n\"\n\
                 \"fmv.d.x fa0, zero\\nli a0, 0\\nfsflags zero\\n{instruction}\\nmv %0, a0\\nfmv.x.d %1, fa0\\nfrflags %2\"\n\
                 : \"=&r\"(x), \"=&r\"(f), \"=&r\"(flags)\n\
                 : \"r\"(operands[i]), \"r\"(operands[j]), \"r\"(operands[(i + 7 * j) % COUNT])\n\
                 : \"a0\", \"a1\", \"a2\", \"fa0\", \"fa1\", \"fa2\", \"fa3\");\n\
                 sum = (sum ^ x) * 0x9e3779b97f4a7c15UL + (f ^ flags << 7); sum ^= sum >> 29; }}\n\
                 printf(\"{instruction} of %lx: %lx\\n\", operands[i], sum); }} }}\n"
            );
            let _ = writeln!(calls, "test{number}();");
            number += 1;
        }
    }
    let _ = write!(text, "int main(void) {{\n{calls}return 0;\n}}\n");
    text
}

#[test]
fn instructions_do_as_under_qemu() {
    let test = "instructions_do_as_under_qemu";
    let Some(compiler) = system::compiler() else { return system::skip(test, "gcc-riscv64-linux-gnu") };
    let Some(emulator) = system::emulator() else { return system::skip(test, "qemu-user") };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("instructions.c");
    std::fs::write(&source, program()).unwrap();
    let target = folder.path().join("instructions");
    let file = system::compile(&compiler, &source, &target, &["-O1"]);
    let expected = Command::new(&emulator).arg(&target).output().unwrap();
    let outcome =
        system::run(&file, &["instructions"], &mut Space::new(256 << 20), &mut Blocks::new(), u64::MAX);
    let (found, expected) =
        (String::from_utf8_lossy(&outcome.output), String::from_utf8_lossy(&expected.stdout));
    assert!(expected.lines().count() > 3000, "QEMU printed {} lines", expected.lines().count());
    let different: Vec<_> =
        found.lines().zip(expected.lines()).filter(|(found, expected)| found != expected).take(20).collect();
    assert!(different.is_empty(), "found and expected: {different:#?}");
    assert_eq!(found.len(), expected.len());
}
