//! Signals: actions, masks, pending signals, and the frame on the stack with which a handler begins and returns.
//!
//! The frame is that of RISC-V Linux (`struct rt_sigframe`):
//!
//! ```text
//!     offset
//!        0   siginfo_t, 128 bytes
//!      128   ucontext: flags, link, stack (24 bytes), mask (128 bytes), padding to a multiple of 16
//!      304     pc, x1 to x31
//!      560     f0 to f31, fcsr, room for registers of 128 bits: 528 bytes
//!     1088   end
//! ```

use std::collections::{BTreeMap, VecDeque};

use bywash_cpu::{Hart, Register};

use crate::address_space::{AddressSpace, TRAMPOLINE};
use crate::errno::Errno;

/// Greatest number of a signal.
pub const SIGNALS: u32 = 64;
/// Greatest number of pending signals of a thread or of the process.
pub const PENDING_LIMIT: usize = 1024;

/// Numbers of signals that the operating system sends or knows.
#[allow(missing_docs)]
pub mod number {
    pub const ILL: u32 = 4;
    pub const TRAP: u32 = 5;
    pub const BUS: u32 = 7;
    pub const KILL: u32 = 9;
    pub const SEGV: u32 = 11;
    pub const PIPE: u32 = 13;
    pub const ALRM: u32 = 14;
    pub const CHLD: u32 = 17;
    pub const CONT: u32 = 18;
    pub const STOP: u32 = 19;
    pub const TTOU: u32 = 22;
    pub const URG: u32 = 23;
    pub const WINCH: u32 = 28;
}

/// Flag of actions: the handler runs on the alternate stack (`SA_ONSTACK`).
pub const ON_ALTERNATE_STACK: u64 = 0x0800_0000;
/// Flag of actions: interrupted calls are repeated (`SA_RESTART`).
pub const RESTART: u64 = 0x1000_0000;
/// Flag of actions: the signal is not blocked while its handler runs (`SA_NODEFER`).
pub const NO_DEFER: u64 = 0x4000_0000;
/// Flag of actions: the action is the default one after its first use (`SA_RESETHAND`).
pub const RESET: u64 = 0x8000_0000;

/// Length of the frame, in bytes.
const FRAME_BYTES: u64 = 1088;
/// Offset of the ucontext in the frame.
const CONTEXT: u64 = 128;
/// Offset of the alternate stack in the frame.
const STACK: u64 = CONTEXT + 16;
/// Offset of the signal mask in the frame.
const MASK: u64 = CONTEXT + 40;
/// Offset of the integer registers in the frame.
const INTEGERS: u64 = CONTEXT + 176;
/// Offset of the floating-point registers in the frame.
const FLOATS: u64 = INTEGERS + 256;

/// Instructions that return from a handler: `li a7, 139; ecall`.
pub const TRAMPOLINE_CODE: [u32; 2] = [0x08b0_0893, 0x0000_0073];

/// Action of a signal (sigaction(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// Address of the handler; 0 for the default action, 1 to ignore the signal.
    pub handler: u64,
    /// Flags.
    pub flags: u64,
    /// Signals that are blocked while the handler runs.
    pub mask: u64,
}

/// Signal that was sent, with what its handler is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Information {
    /// Number.
    pub signal: u32,
    /// Cause (`si_code`).
    pub code: i32,
    /// Address of the access that a fault refused; 0 for all else.
    pub address: u64,
}

impl Information {
    /// Returns the information of a signal that a thread of the program sent: by kill (0) or tgkill (-6).
    pub fn sent(signal: u32, code: i32) -> Information {
        Information { signal, code, address: 0 }
    }
}

/// Pending signals, the lowest number first.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    /// Signals by their number; one of each below 32.
    by_number: BTreeMap<u32, VecDeque<Information>>,
    /// Number of all.
    count: usize,
}

impl Pending {
    /// Adds a signal. A signal below 32 is pending once.
    ///
    /// # Errors
    ///
    /// [`Errno::EAGAIN`]: there are [`PENDING_LIMIT`].
    pub fn add(&mut self, information: Information) -> Result<(), Errno> {
        let queue = self.by_number.entry(information.signal).or_default();
        if information.signal < 32 && !queue.is_empty() {
            return Ok(());
        }
        if self.count >= PENDING_LIMIT {
            return Err(Errno::EAGAIN);
        }
        self.count += 1;
        queue.push_back(information);
        Ok(())
    }

    /// Returns the set of pending signals.
    pub fn set(&self) -> u64 {
        self.by_number.iter().filter(|(_, queue)| !queue.is_empty()).map(|(&signal, _)| bit(signal)).sum()
    }

    /// Takes the first signal of a set.
    pub fn take(&mut self, set: u64) -> Option<Information> {
        let found =
            self.by_number.iter_mut().find(|(signal, queue)| set & bit(**signal) != 0 && !queue.is_empty());
        let information = found?.1.pop_front();
        self.count -= 1;
        information
    }
}

/// Alternate stack (sigaltstack(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlternateStack {
    /// Lowest address.
    pub start: u64,
    /// Flags; 2 if there is none (`SS_DISABLE`).
    pub flags: u32,
    /// Length in bytes.
    pub length: u64,
}

impl Default for AlternateStack {
    fn default() -> AlternateStack {
        AlternateStack { start: 0, flags: 2, length: 0 }
    }
}

impl AlternateStack {
    /// Returns whether an address is on the stack.
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.length && self.flags & 2 == 0
    }
}

/// Signals of a thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadSignals {
    /// Blocked signals, bit 0 for signal 1.
    pub mask: u64,
    /// Mask that replaces the present one once a handler has begun, or the call has returned (sigsuspend(2),
    /// ppoll(2)).
    pub saved_mask: Option<u64>,
    /// Signals sent to the thread.
    pub pending: Pending,
    /// Alternate stack.
    pub stack: AlternateStack,
}

/// Signals of the process.
#[derive(Clone, Debug)]
pub struct Signals {
    /// Actions by the signal's number.
    actions: [Action; SIGNALS as usize + 1],
    /// Signals sent to the process.
    pub pending: Pending,
}

impl Default for Signals {
    fn default() -> Signals {
        Signals { actions: [Action::default(); SIGNALS as usize + 1], pending: Pending::default() }
    }
}

/// Effect of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None.
    Ignore,
    /// The program ends.
    End,
    /// The program would stop, which is not possible here.
    Stop,
    /// A handler runs.
    Handle(Action),
}

impl Signals {
    /// Returns the action of a signal from 1 to [`SIGNALS`].
    pub fn action(&self, signal: u32) -> Action {
        self.actions[signal.min(SIGNALS) as usize]
    }

    /// Sets the action of a signal.
    pub fn set_action(&mut self, signal: u32, action: Action) {
        self.actions[signal.min(SIGNALS) as usize] = action;
    }

    /// Returns what a signal does.
    pub fn effect(&self, signal: u32) -> Effect {
        match (self.action(signal).handler, signal) {
            (0, number::CHLD | number::CONT | number::URG | number::WINCH) | (1, _) => Effect::Ignore,
            (0, number::STOP..=number::TTOU) => Effect::Stop,
            (0, _) => Effect::End,
            _ => Effect::Handle(self.action(signal)),
        }
    }
}

/// Returns the bit of a signal in a set.
pub fn bit(signal: u32) -> u64 {
    1_u64.checked_shl(signal.wrapping_sub(1)).unwrap_or(0)
}

/// Returns a set without the signals that cannot be blocked.
pub fn blockable(set: u64) -> u64 {
    set & !(bit(number::KILL) | bit(number::STOP))
}

/// Writes the frame of a handler to the stack and lets the thread begin it. `mask` is the one that the return
/// restores.
///
/// # Errors
///
/// [`Errno::EFAULT`]: the stack cannot be stored to.
pub fn begin(
    hart: &mut Hart,
    signals: &ThreadSignals,
    memory: &mut AddressSpace,
    information: Information,
    action: Action,
    mask: u64,
) -> Result<(), Errno> {
    let sp = hart.x(Register::R2);
    let stack = signals.stack;
    let use_alternate = action.flags & ON_ALTERNATE_STACK != 0 && stack.flags & 2 == 0 && !stack.contains(sp);
    let top = if use_alternate { stack.start.wrapping_add(stack.length) } else { sp };
    let frame = top.wrapping_sub(FRAME_BYTES) & !15;
    let mut bytes = [0_u8; FRAME_BYTES as usize];
    let mut put =
        |at: u64, value: &[u8]| bytes[at as usize..at as usize + value.len()].copy_from_slice(value);
    put(0, &information.signal.to_le_bytes());
    put(8, &information.code.to_le_bytes());
    if information.address != 0 {
        put(16, &information.address.to_le_bytes());
    } else {
        // Number of the sending process; its user is 0.
        put(16, &1_u32.to_le_bytes());
    }
    put(STACK, &stack.start.to_le_bytes());
    put(STACK + 8, &stack.flags.to_le_bytes());
    put(STACK + 16, &stack.length.to_le_bytes());
    put(MASK, &mask.to_le_bytes());
    put(INTEGERS, &hart.pc.to_le_bytes());
    for number in 1..32 {
        put(INTEGERS + 8 * u64::from(number), &hart.x(Register::new(number)).to_le_bytes());
    }
    for number in 0..32 {
        put(FLOATS + 8 * u64::from(number), &hart.f(Register::new(number)).to_le_bytes());
    }
    put(FLOATS + 256, &hart.fcsr().to_le_bytes());
    memory.write(frame, &bytes)?;
    hart.pc = action.handler;
    hart.set_x(Register::R1, TRAMPOLINE);
    hart.set_x(Register::R2, frame);
    hart.set_x(Register::R10, information.signal.into());
    hart.set_x(Register::R11, frame);
    hart.set_x(Register::R12, frame + CONTEXT);
    // A store-conditional behind the handler must fail.
    hart.reservation = None;
    Ok(())
}

/// Restores the registers, the mask and the alternate stack from the frame at the stack pointer
/// (rt_sigreturn(2)).
///
/// # Errors
///
/// [`Errno::EFAULT`]: the frame cannot be loaded.
pub fn end(hart: &mut Hart, signals: &mut ThreadSignals, memory: &mut AddressSpace) -> Result<(), Errno> {
    let frame = hart.x(Register::R2);
    let integers = memory.words::<32>(frame.wrapping_add(INTEGERS))?;
    let floats = memory.words::<32>(frame.wrapping_add(FLOATS))?;
    let fcsr = memory.word32(frame.wrapping_add(FLOATS + 256))?;
    let [start, flags, length, mask] = memory.words(frame.wrapping_add(STACK))?;
    hart.pc = integers[0];
    for (number, &value) in (1..32).zip(&integers[1..]) {
        hart.set_x(Register::new(number), value);
    }
    for (number, &value) in (0..32).zip(&floats) {
        hart.set_f(Register::new(number), value);
    }
    hart.set_fcsr(fcsr);
    hart.reservation = None;
    signals.mask = blockable(mask);
    signals.stack = AlternateStack { start, flags: flags as u32 & 2, length };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_cpu::memory::{Permissions, Space};

    #[test]
    fn a_handler_returns_to_all_registers() {
        let mut memory = AddressSpace::new(Space::new(1 << 20), 0);
        memory.map(0x10_0000, 0x2000, Permissions::READ | Permissions::WRITE).unwrap();
        let mut hart = Hart::new(0x1234);
        for number in 1..32 {
            hart.set_x(Register::new(number), u64::from(number) << 40);
            hart.set_f(Register::new(number), u64::from(number) << 50);
        }
        hart.set_x(Register::R2, 0x10_2000);
        hart.set_fcsr(0x61);
        let before = hart.clone();
        let mut signals = ThreadSignals { mask: 5, ..ThreadSignals::default() };
        let action = Action { handler: 0x5678, flags: 0, mask: 0 };
        begin(&mut hart, &signals, &mut memory, Information::sent(10, 0), action, 5).unwrap();
        assert_eq!((hart.pc, hart.x(Register::R10), hart.x(Register::R2) % 16), (0x5678, 10, 0));
        signals.mask = u64::MAX;
        end(&mut hart, &mut signals, &mut memory).unwrap();
        assert_eq!((hart, signals.mask), (before, 5));
    }

    #[test]
    fn a_frame_that_does_not_fit_is_refused() {
        let mut memory = AddressSpace::new(Space::new(1 << 20), 0);
        let mut hart = Hart::new(0);
        let signals = ThreadSignals::default();
        let begun = begin(&mut hart, &signals, &mut memory, Information::sent(11, 0), Action::default(), 0);
        assert_eq!(begun, Err(Errno::EFAULT));
        assert_eq!(end(&mut hart, &mut ThreadSignals::default(), &mut memory), Err(Errno::EFAULT));
    }

    #[test]
    fn signals_are_pending_once_below_32() {
        let mut pending = Pending::default();
        for signal in [10, 10, 40, 40] {
            pending.add(Information::sent(signal, 0)).unwrap();
        }
        assert_eq!(pending.set(), bit(10) | bit(40));
        let taken: Vec<_> = std::iter::from_fn(|| pending.take(u64::MAX)).map(|taken| taken.signal).collect();
        assert_eq!(taken, [10, 40, 40]);
    }
}
