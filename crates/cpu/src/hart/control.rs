//! Control and status registers of user mode (Zicsr): floating-point state and counters.

use super::Hart;
use crate::float::Flags;
use crate::memory::{Counter, Memory};

/// Change that an instruction makes to a control register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Replaces the value (CSRRW).
    Write,
    /// Sets the operand's bits (CSRRS).
    Set,
    /// Clears the operand's bits (CSRRC).
    Clear,
}

/// Control registers (table 24.3).
mod number {
    /// Floating-point exception flags.
    pub const FFLAGS: u32 = 1;
    /// Floating-point rounding mode.
    pub const FRM: u32 = 2;
    /// Both.
    pub const FCSR: u32 = 3;
    /// Clock cycles.
    pub const CYCLE: u32 = 0xc00;
    /// Real time.
    pub const TIME: u32 = 0xc01;
    /// Retired instructions.
    pub const INSTRET: u32 = 0xc02;
}

impl Hart {
    /// Changes a control register and returns its former value; `None` if it does not exist or cannot be
    /// written.
    ///
    /// `operand` is `None` if the instruction only reads: CSRRS and CSRRC whose source is x0 or 0.
    pub(super) fn control<M: Memory>(
        &mut self,
        register: u32,
        change: Change,
        operand: Option<u64>,
        retired: u64,
        memory: &mut M,
    ) -> Option<u64> {
        let counter = match register {
            number::CYCLE => Some(Counter::Cycle),
            number::TIME => Some(Counter::Time),
            number::INSTRET => Some(Counter::Retired),
            _ => None,
        };
        if let Some(counter) = counter {
            return if operand.is_some() { None } else { Some(memory.counter(counter, retired)) };
        }
        let old = match register {
            number::FFLAGS => u64::from(self.flags.0),
            number::FRM => u64::from(self.rounding),
            number::FCSR => u64::from(self.fcsr()),
            _ => return None,
        };
        if let Some(operand) = operand {
            let new = match change {
                Change::Write => operand,
                Change::Set => old | operand,
                Change::Clear => old & !operand,
            };
            match register {
                number::FFLAGS => self.flags = Flags(new as u8 & 31),
                number::FRM => self.rounding = new as u8 & 7,
                _ => self.set_fcsr(new as u32),
            }
        }
        Some(old)
    }
}
