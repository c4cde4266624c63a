//! Finds out whether a function that a signal handler interrupted can still continue.
//!
//! A handler that jumps out (longjmp and similar calls) leaves the interrupted function for good; any other
//! handler returns to it. Only the stack tells them apart: a handler runs *below* the interrupted function on
//! the same stack, or on the alternate stack. So code that runs above the function's frame, or at its height,
//! has left the function.
//!
//! [`crate::threads`] calls this module, and only if a thread finds that it was in the middle of an
//! operation.

use crate::sys;
use core::arch::asm;

/// Least distance between an interrupted function and its handler, in bytes: the kernel saves all registers
/// between them, and those of the floating-point unit alone take 512 bytes.
const HANDLER_DISTANCE_MIN: usize = 512;
/// Largest distance of two addresses on one stack, in bytes.
const STACK_BYTES_MAX: usize = 1 << 30;

/// Returns the stack pointer of the calling function.
#[inline(always)]
pub(crate) fn pointer() -> usize {
    let pointer: usize;
    // SAFETY: the instruction copies a register and touches no memory.
    unsafe {
        asm!("mov {pointer}, rsp", pointer = out(reg) pointer, options(nomem, nostack, preserves_flags))
    };
    pointer
}

/// Returns true if a thread has left the function whose stack pointer was `frame`; `now` is the thread's
/// stack pointer, or the one that it will have after a jump.
pub(crate) fn is_left(frame: usize, now: usize) -> bool {
    let alternate = sys::alternate_stack();
    match (alternate.contains(&frame), alternate.contains(&now)) {
        (true, false) => true,
        (false, true) => false,
        _ => {
            let above = now.wrapping_add(HANDLER_DISTANCE_MIN);
            above >= frame && above - frame < STACK_BYTES_MAX
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn frames_above_and_below() {
        let frame = pointer();
        assert!(is_left(frame, frame));
        assert!(is_left(frame, frame + 10_000));
        assert!(!is_left(frame, frame - 10_000));
        assert!(!is_left(usize::MAX, frame));
        assert!(!is_left(frame, frame + 2 * STACK_BYTES_MAX));
    }

    #[test]
    fn a_handler_on_the_alternate_stack_has_left_nothing() {
        let mut stack = vec![0u8; 65_536];
        let base = stack.as_mut_ptr() as usize;
        let frame = pointer();
        std::thread::spawn(move || {
            let set = [base, 0, 65_536];
            // SAFETY: `set` has the three words of a stack_t; the alternate stack is this thread's and no
            // handler uses it.
            unsafe { sys::call(sys::nr::SIGALTSTACK, [set.as_ptr() as usize, 0, 0, 0, 0, 0]) };
            assert!(!is_left(frame, base + 1000));
            assert!(is_left(base + 1000, frame));
            assert!(is_left(base + 1000, base + 2000));
        })
        .join()
        .unwrap();
        drop(stack);
    }
}
