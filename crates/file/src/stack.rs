//! Whether a function that was interrupted by a signal handler can still go on, by where its frame lies.
//!
//! A handler that jumps out (longjmp and its kin) leaves the interrupted function for good; one that just makes
//! calls will return to it. Both look alike but for the stack: a handler runs *below* what it interrupted, on
//! the same stack, or on the alternate one. So code that runs above the frame, or at its height, has left it.
//!
//! Called by [`crate::threads`], and only when a thread finds that it was in the middle of something.

use crate::sys;
use core::arch::asm;

/// Bytes that lie at least between an interrupted function and its handler: the kernel saves all registers
/// there, those of the floating point unit alone are 512.
const HANDLER_DISTANCE_MIN: usize = 512;
/// Largest distance, in bytes, at which two addresses are taken to be on one stack.
const STACK_BYTES_MAX: usize = 1 << 30;

/// The stack pointer of the calling function.
#[inline(always)]
pub(crate) fn pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe {
        asm!("mov {pointer}, rsp", pointer = out(reg) pointer, options(nomem, nostack, preserves_flags))
    };
    pointer
}

/// Whether a thread whose stack pointer is `now`, or will be after a jump, has left the function whose stack
/// pointer was `frame`.
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
            // SAFETY: this thread's alternate stack, which no handler uses; stack_t is three words.
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
