//! Hart: the registers of a hardware thread, and the interpreter that runs it.
//!
//! A [`Hart`] is a thread's whole state. It is small and can be cloned, so that an operating system keeps one
//! per thread and runs it on a processor in turn with others. Which hart runs, and for how many instructions,
//! is the caller's decision.

mod control;
mod exit;
mod run;

pub use exit::Exit;

use crate::float::Flags;
use crate::memory::Reservation;
use crate::register::{Register, Registers};

/// Registers of a hardware thread in user mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hart {
    /// Integer registers; the one of x0 stays zero.
    x: Registers,
    /// Floating-point registers.
    f: Registers,
    /// Address of the next instruction.
    pub pc: u64,
    /// Number of retired instructions.
    pub retired: u64,
    /// Exception flags of floating-point instructions.
    pub flags: Flags,
    /// Rounding mode of instructions that name none (`frm`), 0 to 7; 5 to 7 are invalid.
    rounding: u8,
    /// Reservation of the last load-reserved.
    pub reservation: Option<Reservation>,
}

impl Hart {
    /// Makes a hart whose registers are zero.
    pub fn new(pc: u64) -> Hart {
        Hart {
            x: [0; 33],
            f: [0; 33],
            pc,
            retired: 0,
            flags: Flags::default(),
            rounding: 0,
            reservation: None,
        }
    }

    /// Returns an integer register.
    pub fn x(&self, register: Register) -> u64 {
        self.x[register as usize]
    }

    /// Sets an integer register; x0 stays zero.
    pub fn set_x(&mut self, register: Register, value: u64) {
        if register != Register::R0 {
            self.x[register as usize] = value;
        }
    }

    /// Returns a floating-point register.
    pub fn f(&self, register: Register) -> u64 {
        self.f[register as usize]
    }

    /// Sets a floating-point register.
    pub fn set_f(&mut self, register: Register, value: u64) {
        self.f[register as usize] = value;
    }

    /// Returns the control register `fcsr`: flags in bits 0 to 4, rounding mode in bits 5 to 7.
    pub fn fcsr(&self) -> u32 {
        u32::from(self.flags.0) | u32::from(self.rounding) << 5
    }

    /// Sets the control register `fcsr`; bits above the eighth are ignored.
    pub fn set_fcsr(&mut self, value: u32) {
        self.flags = Flags(value as u8 & 31);
        self.rounding = (value >> 5 & 7) as u8;
    }
}
