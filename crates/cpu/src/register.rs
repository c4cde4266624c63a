//! Numbers of registers, as a type whose values index an array of registers without a check.

/// Number of an integer or a floating-point register.
///
/// As an enumeration it cannot exceed the length of an array of registers, so that the compiler leaves out
/// the check of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
#[rustfmt::skip]
pub enum Register {
    R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12, R13, R14, R15,
    R16, R17, R18, R19, R20, R21, R22, R23, R24, R25, R26, R27, R28, R29, R30, R31,
    /// Receiver of results that an instruction writes to x0; nothing reads it.
    Sink,
}

/// Values of 32 registers, and of [`Register::Sink`].
pub(crate) type Registers = [u64; 33];

impl Register {
    /// Returns the register of the five lowest bits of a number.
    pub const fn new(number: u32) -> Register {
        ALL[(number & 31) as usize]
    }

    /// Returns the register's number, 0 to 31; 0 for the sink, whose instruction names x0.
    pub const fn number(self) -> u32 {
        self as u32 & 31
    }

    /// Returns the name of the integer register in the calling convention: `zero`, `ra`, `sp`, `a0`.
    pub const fn integer_name(self) -> &'static str {
        INTEGER_NAMES[self.number() as usize]
    }

    /// Returns the name of the floating-point register in the calling convention: `ft0`, `fs0`, `fa0`.
    pub const fn float_name(self) -> &'static str {
        FLOAT_NAMES[self.number() as usize]
    }
}

/// Registers by number.
#[rustfmt::skip]
const ALL: [Register; 32] = {
    use Register::*;
    [
        R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12, R13, R14, R15,
        R16, R17, R18, R19, R20, R21, R22, R23, R24, R25, R26, R27, R28, R29, R30, R31,
    ]
};

/// Names of the integer registers in the calling convention.
#[rustfmt::skip]
const INTEGER_NAMES: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5",
    "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];

/// Names of the floating-point registers in the calling convention.
#[rustfmt::skip]
const FLOAT_NAMES: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2", "fa3", "fa4", "fa5",
    "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9", "fs10", "fs11", "ft8", "ft9", "ft10", "ft11",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_their_numbers_and_names() {
        for number in 0..32 {
            assert_eq!(Register::new(number).number(), number);
        }
        assert_eq!(Register::new(10).integer_name(), "a0");
        assert_eq!(Register::new(10).float_name(), "fa0");
        assert_eq!(Register::Sink.number(), 0);
    }
}
