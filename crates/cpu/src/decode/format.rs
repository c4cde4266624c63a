//! Formats: which bits of an instruction are which operand.

use crate::register::Register;

/// Arrangement of operands in an instruction.
///
/// Names without C are formats of 32 bits; some have the same bits and differ in the kind of register that
/// they name, by which the disassembler writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Format {
    R,
    I,
    Load,
    Jalr,
    Shift,
    ShiftWord,
    Store,
    B,
    U,
    J,
    Fence,
    FenceI,
    Bare,
    Csr,
    CsrImmediate,
    Atomic,
    LoadReserved,
    FloatLoad,
    FloatStore,
    Fused,
    FloatRounded,
    FloatFromFloat,
    Float,
    Compare,
    IntegerFromFloat,
    FloatFromInteger,
    MoveToInteger,
    MoveToFloat,
    CAddi4spn,
    CLoadWord,
    CLoadDouble,
    CFloatLoadDouble,
    CStoreWord,
    CStoreDouble,
    CFloatStoreDouble,
    CNop,
    CAddi,
    CAddiw,
    CLi,
    CAddi16sp,
    CLui,
    CShiftRight,
    CAndi,
    CArithmetic,
    CJump,
    CBranch,
    CSlli,
    CLoadWordSp,
    CLoadDoubleSp,
    CFloatLoadDoubleSp,
    CJr,
    CMv,
    CBare,
    CJalr,
    CAdd,
    CStoreWordSp,
    CStoreDoubleSp,
    CFloatStoreDoubleSp,
}

/// Operands of an instruction; those that it lacks are zero.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    /// Destination.
    pub rd: Register,
    /// First source.
    pub rs1: Register,
    /// Second source.
    pub rs2: Register,
    /// Third source.
    pub rs3: Register,
    /// Rounding mode.
    pub rounding: u8,
    /// Immediate operand.
    pub immediate: i64,
}

impl Operands {
    /// Operands of an instruction that has none.
    pub const NONE: Operands = Operands {
        rd: Register::R0,
        rs1: Register::R0,
        rs2: Register::R0,
        rs3: Register::R0,
        rounding: 0,
        immediate: 0,
    };

    /// Returns operands with the registers and the immediate of a compressed instruction.
    fn compressed(rd: u32, rs1: u32, rs2: u32, immediate: i64) -> Operands {
        Operands {
            rd: Register::new(rd),
            rs1: Register::new(rs1),
            rs2: Register::new(rs2),
            immediate,
            ..Operands::NONE
        }
    }
}

impl Format {
    /// Returns whether the instruction's destination is an integer register.
    pub const fn writes_integer(self) -> bool {
        !matches!(
            self,
            Format::Store
                | Format::B
                | Format::Fence
                | Format::FenceI
                | Format::Bare
                | Format::FloatLoad
                | Format::FloatStore
                | Format::Fused
                | Format::FloatRounded
                | Format::FloatFromFloat
                | Format::Float
                | Format::FloatFromInteger
                | Format::MoveToFloat
        )
    }

    /// Extracts the operands of an instruction; `None` if the encoding is reserved.
    pub(super) fn operands(self, bits: u32) -> Option<Operands> {
        if bits & 3 == 3 { self.full(bits) } else { self.compressed(bits) }
    }

    /// Extracts the operands of an instruction of 32 bits (chapter 2.2, immediates in chapter 2.3).
    fn full(self, bits: u32) -> Option<Operands> {
        let signed = bits as i32;
        let immediate = match self {
            Format::I | Format::Load | Format::Jalr | Format::FloatLoad | Format::Fence | Format::FenceI => {
                signed >> 20
            }
            Format::Shift => field(bits, 20, 6) as i32,
            Format::ShiftWord => field(bits, 20, 5) as i32,
            Format::Store | Format::FloatStore => signed >> 25 << 5 | field(bits, 7, 5) as i32,
            Format::B => {
                signed >> 31 << 12
                    | (field(bits, 7, 1) << 11 | field(bits, 25, 6) << 5 | field(bits, 8, 4) << 1) as i32
            }
            Format::U => signed >> 12 << 12,
            Format::J => {
                signed >> 31 << 20
                    | (field(bits, 12, 8) << 12 | field(bits, 20, 1) << 11 | field(bits, 21, 10) << 1) as i32
            }
            Format::Csr | Format::CsrImmediate => field(bits, 20, 12) as i32,
            _ => 0,
        };
        let has_rounding = matches!(
            self,
            Format::Fused
                | Format::FloatRounded
                | Format::FloatFromFloat
                | Format::IntegerFromFloat
                | Format::FloatFromInteger
        );
        let rounding = if has_rounding { field(bits, 12, 3) as u8 } else { 0 };
        if rounding == 5 || rounding == 6 {
            return None;
        }
        let register =
            |is_present, low| if is_present { Register::new(field(bits, low, 5)) } else { Register::R0 };
        Some(Operands {
            rd: register(self.has_rd(), 7),
            rs1: register(self.has_rs1(), 15),
            rs2: register(self.has_rs2(), 20),
            rs3: register(self == Format::Fused, 27),
            rounding,
            immediate: immediate.into(),
        })
    }

    /// Returns whether an instruction of 32 bits has a destination.
    fn has_rd(self) -> bool {
        !matches!(
            self,
            Format::Store | Format::FloatStore | Format::B | Format::Fence | Format::FenceI | Format::Bare
        )
    }

    /// Returns whether an instruction of 32 bits has a first source; for [`Format::CsrImmediate`] these bits
    /// are the operand itself.
    fn has_rs1(self) -> bool {
        !matches!(self, Format::U | Format::J | Format::Fence | Format::FenceI | Format::Bare)
    }

    /// Returns whether an instruction of 32 bits has a second source.
    fn has_rs2(self) -> bool {
        matches!(
            self,
            Format::R
                | Format::Store
                | Format::FloatStore
                | Format::B
                | Format::Atomic
                | Format::Fused
                | Format::FloatRounded
                | Format::Float
                | Format::Compare
        )
    }

    /// Extracts the operands of an instruction of 16 bits (chapter 16).
    fn compressed(self, bits: u32) -> Option<Operands> {
        let f = |low, count| field(bits, low, count);
        // Registers x8 to x15 in three bits; all registers in five.
        let (low, high) = (8 + f(2, 3), 8 + f(7, 3));
        let (rd, rs2) = (f(7, 5), f(2, 5));
        let small = sign_extend(f(12, 1) << 5 | f(2, 5), 6);
        let shift = (f(12, 1) << 5 | f(2, 5)) as i64;
        let word = (f(5, 1) << 6 | f(10, 3) << 3 | f(6, 1) << 2) as i64;
        let double = (f(5, 2) << 6 | f(10, 3) << 3) as i64;
        let new = Operands::compressed;
        let operands = match self {
            Format::CAddi4spn => {
                let offset = f(7, 4) << 6 | f(11, 2) << 4 | f(5, 1) << 3 | f(6, 1) << 2;
                (offset != 0).then(|| new(low, SP, 0, offset.into()))?
            }
            Format::CLoadWord => new(low, high, 0, word),
            Format::CLoadDouble | Format::CFloatLoadDouble => new(low, high, 0, double),
            Format::CStoreWord => new(0, high, low, word),
            Format::CStoreDouble | Format::CFloatStoreDouble => new(0, high, low, double),
            Format::CNop => new(0, 0, 0, 0),
            Format::CAddi => new(rd, rd, 0, small),
            Format::CAddiw => (rd != 0).then(|| new(rd, rd, 0, small))?,
            Format::CLi => new(rd, 0, 0, small),
            Format::CAddi16sp => {
                let offset = f(12, 1) << 9 | f(3, 2) << 7 | f(5, 1) << 6 | f(2, 1) << 5 | f(6, 1) << 4;
                (offset != 0).then(|| new(SP, SP, 0, sign_extend(offset, 10)))?
            }
            Format::CLui => (small != 0).then(|| new(rd, 0, 0, small << 12))?,
            Format::CShiftRight => new(high, high, 0, shift),
            Format::CAndi => new(high, high, 0, small),
            Format::CArithmetic => new(high, high, low, 0),
            Format::CJump => {
                let offset = f(12, 1) << 11
                    | f(8, 1) << 10
                    | f(9, 2) << 8
                    | f(6, 1) << 7
                    | f(7, 1) << 6
                    | f(2, 1) << 5
                    | f(11, 1) << 4
                    | f(3, 3) << 1;
                new(0, 0, 0, sign_extend(offset, 12))
            }
            Format::CBranch => {
                let offset = f(12, 1) << 8 | f(5, 2) << 6 | f(2, 1) << 5 | f(10, 2) << 3 | f(3, 2) << 1;
                new(0, high, 0, sign_extend(offset, 9))
            }
            Format::CSlli => new(rd, rd, 0, shift),
            Format::CLoadWordSp => {
                let offset = f(2, 2) << 6 | f(12, 1) << 5 | f(4, 3) << 2;
                (rd != 0).then(|| new(rd, SP, 0, offset.into()))?
            }
            Format::CLoadDoubleSp => {
                let offset = f(2, 3) << 6 | f(12, 1) << 5 | f(5, 2) << 3;
                (rd != 0).then(|| new(rd, SP, 0, offset.into()))?
            }
            Format::CFloatLoadDoubleSp => {
                new(rd, SP, 0, (f(2, 3) << 6 | f(12, 1) << 5 | f(5, 2) << 3).into())
            }
            Format::CStoreWordSp => new(0, SP, rs2, (f(7, 2) << 6 | f(9, 4) << 2).into()),
            Format::CStoreDoubleSp | Format::CFloatStoreDoubleSp => {
                new(0, SP, rs2, (f(7, 3) << 6 | f(10, 3) << 3).into())
            }
            Format::CJr => (rd != 0).then(|| new(0, rd, 0, 0))?,
            Format::CJalr => new(RA, rd, 0, 0),
            Format::CMv => new(rd, 0, rs2, 0),
            Format::CAdd => new(rd, rd, rs2, 0),
            Format::CBare => Operands::NONE,
            _ => return None,
        };
        Some(operands)
    }
}

/// Number of the register with the return address.
const RA: u32 = 1;
/// Number of the stack pointer.
const SP: u32 = 2;

/// Returns `count` bits from bit `low` on.
const fn field(bits: u32, low: u32, count: u32) -> u32 {
    bits >> low & ((1 << count) - 1)
}

/// Extends a number of `count` bits by its sign.
const fn sign_extend(value: u32, count: u32) -> i64 {
    (((value << (32 - count)) as i32) >> (32 - count)) as i64
}
