//! Reasons for which a hart stops.

use crate::memory::Fault;

/// Reason for which [`Hart::run`] returned.
///
/// [`Hart::run`]: super::Hart::run
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// The hart executed ECALL, which counts as retired. `pc` is behind it: the caller serves the call and
    /// runs the hart again.
    EnvironmentCall,
    /// The hart is at an EBREAK, which it has not executed.
    Breakpoint,
    /// As many instructions as were allowed have been retired.
    Budget,
    /// The memory asked the hart to stop; the instruction has been retired.
    Stop,
    /// The hart is at an instruction that does not exist, or that names an invalid rounding mode or control
    /// register.
    IllegalInstruction {
        /// Address of the instruction.
        pc: u64,
        /// Bits of the instruction: 16 of a compressed one.
        bits: u32,
    },
    /// The hart is at an instruction whose fetch, load or store the memory refused. It has changed nothing.
    Fault {
        /// Address of the instruction.
        pc: u64,
        /// Refused access.
        fault: Fault,
    },
}
