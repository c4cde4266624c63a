//! The table of instructions: mnemonic, format, value and mask of each, from which decoder, disassembler and
//! tests are made.
//!
//! Source: The RISC-V Instruction Set Manual, volume I, 20191213, chapter 24 (RV32/64G listings) and tables
//! 16.5 to 16.7 (compressed instructions).

use super::Format;

/// Defines [`Operation`] and [`TABLE`] from rows of variant, mnemonic, format, value and mask.
macro_rules! instructions {
    ($($variant:ident $mnemonic:literal $format:ident $value:expr, $mask:expr;)* @fused $($fused:ident)*) => {
        /// Operation of an instruction; compressed instructions have the operation of the instruction that
        /// they stand for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Operation {
            $($variant,)*
            /// Bits that no row of the table matches, or a reserved rounding mode.
            Illegal,
            $(#[doc(hidden)] $fused,)*
        }

        /// Instructions of 32 bits, in the order of their major opcodes' first appearance.
        pub const TABLE: &[Row] = &[
            $(Row { mnemonic: $mnemonic, operation: Operation::$variant, format: Format::$format, value: $value, mask: $mask },)*
        ];
    };
}

/// Row of the table of instructions.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name of the instruction in assembly language.
    pub mnemonic: &'static str,
    /// Operation that the instruction carries out.
    pub operation: Operation,
    /// Arrangement of the operands in the instruction.
    pub format: Format,
    /// Values of the bits that identify the instruction.
    pub value: u32,
    /// Bits that identify the instruction.
    pub mask: u32,
}

impl Row {
    /// Returns whether an instruction is one of this row.
    pub const fn matches(&self, bits: u32) -> bool {
        bits & self.mask == self.value
    }
}

/// Mask of the major opcode.
const O: u32 = 0x7f;
/// Mask of the major opcode and funct3.
const F3: u32 = 0x707f;
/// Mask of the major opcode, funct3 and funct7.
const F37: u32 = 0xfe00_707f;
/// Mask of the major opcode, funct3 and the upper six bits of funct7.
const S6: u32 = 0xfc00_707f;
/// Mask of the major opcode and funct7: funct3 is a rounding mode.
const F7: u32 = 0xfe00_007f;
/// Mask of the major opcode, funct7 and rs2: funct3 is a rounding mode.
const F7R: u32 = 0xfff0_007f;
/// Mask of the major opcode, funct3, funct7 and rs2.
const F37R: u32 = 0xfff0_707f;
/// Mask of the major opcode and the two bits of fmt: funct3 is a rounding mode.
const F2: u32 = 0x0600_007f;
/// Mask of the major opcode, funct3 and the five bits of an atomic operation, without acquire and release.
const A5: u32 = 0xf800_707f;
/// Mask of a load-reserved: as of an atomic operation, and rs2.
const A5R: u32 = 0xf9f0_707f;

/// Returns the value of a major opcode and funct3.
const fn i(opcode: u32, funct3: u32) -> u32 {
    opcode | funct3 << 12
}

/// Returns the value of a major opcode, funct3 and funct7.
const fn r(opcode: u32, funct3: u32, funct7: u32) -> u32 {
    opcode | funct3 << 12 | funct7 << 25
}

/// Returns the value of an atomic operation: funct5 and the width's funct3.
const fn a(funct5: u32, funct3: u32) -> u32 {
    0x2f | funct3 << 12 | funct5 << 27
}

/// Returns the value of a floating-point operation: funct7, rs2 and funct3.
const fn f(funct7: u32, rs2: u32, funct3: u32) -> u32 {
    0x53 | funct3 << 12 | rs2 << 20 | funct7 << 25
}

instructions! {
    Lui "lui" U 0x37, O;
    Auipc "auipc" U 0x17, O;
    Jal "jal" J 0x6f, O;
    Jalr "jalr" Jalr i(0x67, 0), F3;
    Beq "beq" B i(0x63, 0), F3;
    Bne "bne" B i(0x63, 1), F3;
    Blt "blt" B i(0x63, 4), F3;
    Bge "bge" B i(0x63, 5), F3;
    Bltu "bltu" B i(0x63, 6), F3;
    Bgeu "bgeu" B i(0x63, 7), F3;
    Lb "lb" Load i(0x03, 0), F3;
    Lh "lh" Load i(0x03, 1), F3;
    Lw "lw" Load i(0x03, 2), F3;
    Ld "ld" Load i(0x03, 3), F3;
    Lbu "lbu" Load i(0x03, 4), F3;
    Lhu "lhu" Load i(0x03, 5), F3;
    Lwu "lwu" Load i(0x03, 6), F3;
    Sb "sb" Store i(0x23, 0), F3;
    Sh "sh" Store i(0x23, 1), F3;
    Sw "sw" Store i(0x23, 2), F3;
    Sd "sd" Store i(0x23, 3), F3;
    Addi "addi" I i(0x13, 0), F3;
    Slti "slti" I i(0x13, 2), F3;
    Sltiu "sltiu" I i(0x13, 3), F3;
    Xori "xori" I i(0x13, 4), F3;
    Ori "ori" I i(0x13, 6), F3;
    Andi "andi" I i(0x13, 7), F3;
    Slli "slli" Shift i(0x13, 1), S6;
    Srli "srli" Shift i(0x13, 5), S6;
    Srai "srai" Shift i(0x13, 5) | 0x4000_0000, S6;
    Addiw "addiw" I i(0x1b, 0), F3;
    Slliw "slliw" ShiftWord r(0x1b, 1, 0), F37;
    Srliw "srliw" ShiftWord r(0x1b, 5, 0), F37;
    Sraiw "sraiw" ShiftWord r(0x1b, 5, 0x20), F37;
    Add "add" R r(0x33, 0, 0), F37;
    Sub "sub" R r(0x33, 0, 0x20), F37;
    Sll "sll" R r(0x33, 1, 0), F37;
    Slt "slt" R r(0x33, 2, 0), F37;
    Sltu "sltu" R r(0x33, 3, 0), F37;
    Xor "xor" R r(0x33, 4, 0), F37;
    Srl "srl" R r(0x33, 5, 0), F37;
    Sra "sra" R r(0x33, 5, 0x20), F37;
    Or "or" R r(0x33, 6, 0), F37;
    And "and" R r(0x33, 7, 0), F37;
    Mul "mul" R r(0x33, 0, 1), F37;
    Mulh "mulh" R r(0x33, 1, 1), F37;
    Mulhsu "mulhsu" R r(0x33, 2, 1), F37;
    Mulhu "mulhu" R r(0x33, 3, 1), F37;
    Div "div" R r(0x33, 4, 1), F37;
    Divu "divu" R r(0x33, 5, 1), F37;
    Rem "rem" R r(0x33, 6, 1), F37;
    Remu "remu" R r(0x33, 7, 1), F37;
    Addw "addw" R r(0x3b, 0, 0), F37;
    Subw "subw" R r(0x3b, 0, 0x20), F37;
    Sllw "sllw" R r(0x3b, 1, 0), F37;
    Srlw "srlw" R r(0x3b, 5, 0), F37;
    Sraw "sraw" R r(0x3b, 5, 0x20), F37;
    Mulw "mulw" R r(0x3b, 0, 1), F37;
    Divw "divw" R r(0x3b, 4, 1), F37;
    Divuw "divuw" R r(0x3b, 5, 1), F37;
    Remw "remw" R r(0x3b, 6, 1), F37;
    Remuw "remuw" R r(0x3b, 7, 1), F37;
    Fence "fence" Fence i(0x0f, 0), F3;
    FenceI "fence.i" FenceI i(0x0f, 1), F3;
    Ecall "ecall" Bare 0x73, 0xffff_ffff;
    Ebreak "ebreak" Bare 0x0010_0073, 0xffff_ffff;
    Csrrw "csrrw" Csr i(0x73, 1), F3;
    Csrrs "csrrs" Csr i(0x73, 2), F3;
    Csrrc "csrrc" Csr i(0x73, 3), F3;
    Csrrwi "csrrwi" CsrImmediate i(0x73, 5), F3;
    Csrrsi "csrrsi" CsrImmediate i(0x73, 6), F3;
    Csrrci "csrrci" CsrImmediate i(0x73, 7), F3;
    LrW "lr.w" LoadReserved a(2, 2), A5R;
    ScW "sc.w" Atomic a(3, 2), A5;
    AmoswapW "amoswap.w" Atomic a(1, 2), A5;
    AmoaddW "amoadd.w" Atomic a(0, 2), A5;
    AmoxorW "amoxor.w" Atomic a(4, 2), A5;
    AmoandW "amoand.w" Atomic a(12, 2), A5;
    AmoorW "amoor.w" Atomic a(8, 2), A5;
    AmominW "amomin.w" Atomic a(16, 2), A5;
    AmomaxW "amomax.w" Atomic a(20, 2), A5;
    AmominuW "amominu.w" Atomic a(24, 2), A5;
    AmomaxuW "amomaxu.w" Atomic a(28, 2), A5;
    LrD "lr.d" LoadReserved a(2, 3), A5R;
    ScD "sc.d" Atomic a(3, 3), A5;
    AmoswapD "amoswap.d" Atomic a(1, 3), A5;
    AmoaddD "amoadd.d" Atomic a(0, 3), A5;
    AmoxorD "amoxor.d" Atomic a(4, 3), A5;
    AmoandD "amoand.d" Atomic a(12, 3), A5;
    AmoorD "amoor.d" Atomic a(8, 3), A5;
    AmominD "amomin.d" Atomic a(16, 3), A5;
    AmomaxD "amomax.d" Atomic a(20, 3), A5;
    AmominuD "amominu.d" Atomic a(24, 3), A5;
    AmomaxuD "amomaxu.d" Atomic a(28, 3), A5;
    Flw "flw" FloatLoad i(0x07, 2), F3;
    Fld "fld" FloatLoad i(0x07, 3), F3;
    Fsw "fsw" FloatStore i(0x27, 2), F3;
    Fsd "fsd" FloatStore i(0x27, 3), F3;
    FmaddS "fmadd.s" Fused 0x43, F2;
    FmsubS "fmsub.s" Fused 0x47, F2;
    FnmsubS "fnmsub.s" Fused 0x4b, F2;
    FnmaddS "fnmadd.s" Fused 0x4f, F2;
    FmaddD "fmadd.d" Fused 0x0200_0043, F2;
    FmsubD "fmsub.d" Fused 0x0200_0047, F2;
    FnmsubD "fnmsub.d" Fused 0x0200_004b, F2;
    FnmaddD "fnmadd.d" Fused 0x0200_004f, F2;
    FaddS "fadd.s" FloatRounded f(0x00, 0, 0), F7;
    FsubS "fsub.s" FloatRounded f(0x04, 0, 0), F7;
    FmulS "fmul.s" FloatRounded f(0x08, 0, 0), F7;
    FdivS "fdiv.s" FloatRounded f(0x0c, 0, 0), F7;
    FsqrtS "fsqrt.s" FloatFromFloat f(0x2c, 0, 0), F7R;
    FsgnjS "fsgnj.s" Float f(0x10, 0, 0), F37;
    FsgnjnS "fsgnjn.s" Float f(0x10, 0, 1), F37;
    FsgnjxS "fsgnjx.s" Float f(0x10, 0, 2), F37;
    FminS "fmin.s" Float f(0x14, 0, 0), F37;
    FmaxS "fmax.s" Float f(0x14, 0, 1), F37;
    FcvtWS "fcvt.w.s" IntegerFromFloat f(0x60, 0, 0), F7R;
    FcvtWuS "fcvt.wu.s" IntegerFromFloat f(0x60, 1, 0), F7R;
    FcvtLS "fcvt.l.s" IntegerFromFloat f(0x60, 2, 0), F7R;
    FcvtLuS "fcvt.lu.s" IntegerFromFloat f(0x60, 3, 0), F7R;
    FmvXW "fmv.x.w" MoveToInteger f(0x70, 0, 0), F37R;
    FeqS "feq.s" Compare f(0x50, 0, 2), F37;
    FltS "flt.s" Compare f(0x50, 0, 1), F37;
    FleS "fle.s" Compare f(0x50, 0, 0), F37;
    FclassS "fclass.s" MoveToInteger f(0x70, 0, 1), F37R;
    FcvtSW "fcvt.s.w" FloatFromInteger f(0x68, 0, 0), F7R;
    FcvtSWu "fcvt.s.wu" FloatFromInteger f(0x68, 1, 0), F7R;
    FcvtSL "fcvt.s.l" FloatFromInteger f(0x68, 2, 0), F7R;
    FcvtSLu "fcvt.s.lu" FloatFromInteger f(0x68, 3, 0), F7R;
    FmvWX "fmv.w.x" MoveToFloat f(0x78, 0, 0), F37R;
    FaddD "fadd.d" FloatRounded f(0x01, 0, 0), F7;
    FsubD "fsub.d" FloatRounded f(0x05, 0, 0), F7;
    FmulD "fmul.d" FloatRounded f(0x09, 0, 0), F7;
    FdivD "fdiv.d" FloatRounded f(0x0d, 0, 0), F7;
    FsqrtD "fsqrt.d" FloatFromFloat f(0x2d, 0, 0), F7R;
    FsgnjD "fsgnj.d" Float f(0x11, 0, 0), F37;
    FsgnjnD "fsgnjn.d" Float f(0x11, 0, 1), F37;
    FsgnjxD "fsgnjx.d" Float f(0x11, 0, 2), F37;
    FminD "fmin.d" Float f(0x15, 0, 0), F37;
    FmaxD "fmax.d" Float f(0x15, 0, 1), F37;
    FcvtSD "fcvt.s.d" FloatFromFloat f(0x20, 1, 0), F7R;
    FcvtDS "fcvt.d.s" FloatFromFloat f(0x21, 0, 0), F7R;
    FeqD "feq.d" Compare f(0x51, 0, 2), F37;
    FltD "flt.d" Compare f(0x51, 0, 1), F37;
    FleD "fle.d" Compare f(0x51, 0, 0), F37;
    FclassD "fclass.d" MoveToInteger f(0x71, 0, 1), F37R;
    FcvtWD "fcvt.w.d" IntegerFromFloat f(0x61, 0, 0), F7R;
    FcvtWuD "fcvt.wu.d" IntegerFromFloat f(0x61, 1, 0), F7R;
    FcvtLD "fcvt.l.d" IntegerFromFloat f(0x61, 2, 0), F7R;
    FcvtLuD "fcvt.lu.d" IntegerFromFloat f(0x61, 3, 0), F7R;
    FmvXD "fmv.x.d" MoveToInteger f(0x71, 0, 0), F37R;
    FcvtDW "fcvt.d.w" FloatFromInteger f(0x69, 0, 0), F7R;
    FcvtDWu "fcvt.d.wu" FloatFromInteger f(0x69, 1, 0), F7R;
    FcvtDL "fcvt.d.l" FloatFromInteger f(0x69, 2, 0), F7R;
    FcvtDLu "fcvt.d.lu" FloatFromInteger f(0x69, 3, 0), F7R;
    FmvDX "fmv.d.x" MoveToFloat f(0x79, 0, 0), F37R;
    @fused
    Constant
}

/// Defines [`COMPRESSED`] from rows of mnemonic, operation, format, value and mask.
macro_rules! compressed {
    ($($mnemonic:literal $operation:ident $format:ident $value:expr, $mask:expr;)*) => {
        /// Instructions of 16 bits, each with the operation that it stands for; the first row that matches
        /// applies.
        pub const COMPRESSED: &[Row] = &[
            $(Row { mnemonic: $mnemonic, operation: Operation::$operation, format: Format::$format, value: $value, mask: $mask },)*
        ];
    };
}

compressed! {
    "c.addi4spn" Addi CAddi4spn 0x0000, 0xe003;
    "c.fld" Fld CFloatLoadDouble 0x2000, 0xe003;
    "c.lw" Lw CLoadWord 0x4000, 0xe003;
    "c.ld" Ld CLoadDouble 0x6000, 0xe003;
    "c.fsd" Fsd CFloatStoreDouble 0xa000, 0xe003;
    "c.sw" Sw CStoreWord 0xc000, 0xe003;
    "c.sd" Sd CStoreDouble 0xe000, 0xe003;
    "c.nop" Addi CNop 0x0001, 0xef83;
    "c.addi" Addi CAddi 0x0001, 0xe003;
    "c.addiw" Addiw CAddiw 0x2001, 0xe003;
    "c.li" Addi CLi 0x4001, 0xe003;
    "c.addi16sp" Addi CAddi16sp 0x6101, 0xef83;
    "c.lui" Lui CLui 0x6001, 0xe003;
    "c.srli" Srli CShiftRight 0x8001, 0xec03;
    "c.srai" Srai CShiftRight 0x8401, 0xec03;
    "c.andi" Andi CAndi 0x8801, 0xec03;
    "c.sub" Sub CArithmetic 0x8c01, 0xfc63;
    "c.xor" Xor CArithmetic 0x8c21, 0xfc63;
    "c.or" Or CArithmetic 0x8c41, 0xfc63;
    "c.and" And CArithmetic 0x8c61, 0xfc63;
    "c.subw" Subw CArithmetic 0x9c01, 0xfc63;
    "c.addw" Addw CArithmetic 0x9c21, 0xfc63;
    "c.j" Jal CJump 0xa001, 0xe003;
    "c.beqz" Beq CBranch 0xc001, 0xe003;
    "c.bnez" Bne CBranch 0xe001, 0xe003;
    "c.slli" Slli CSlli 0x0002, 0xe003;
    "c.fldsp" Fld CFloatLoadDoubleSp 0x2002, 0xe003;
    "c.lwsp" Lw CLoadWordSp 0x4002, 0xe003;
    "c.ldsp" Ld CLoadDoubleSp 0x6002, 0xe003;
    "c.jr" Jalr CJr 0x8002, 0xf07f;
    "c.mv" Add CMv 0x8002, 0xf003;
    "c.ebreak" Ebreak CBare 0x9002, 0xffff;
    "c.jalr" Jalr CJalr 0x9002, 0xf07f;
    "c.add" Add CAdd 0x9002, 0xf003;
    "c.fsdsp" Fsd CFloatStoreDoubleSp 0xa002, 0xe003;
    "c.swsp" Sw CStoreWordSp 0xc002, 0xe003;
    "c.sdsp" Sd CStoreDoubleSp 0xe002, 0xe003;
}
