//! Jumps out of functions, and contexts: what they leave in the middle, and the masks that they restore.
//!
//! A signal handler can interrupt a copy and leave by a jump. What the copy protected is then given up here,
//! as soon as the jump's target shows that the copy does not go on (`bywash_file`'s `stack`). The masks that
//! jumps and contexts restore are the kernel's, without the fault signals that the program believes to be
//! blocked ([`crate::masks`]); those lie in the last word of the same set, which neither the C library nor the
//! kernel uses, behind a mark.
//!
//! All of these functions depend on who called them, so each one here becomes the C library's own by a jump,
//! with the caller's registers and stack. The layout is glibc's (setjmp.h, jmpbuf-offsets.h, ucontext.h).

use crate::masks::{set_word_of, word_of};
use crate::signals;
use bywash_file::process;
use bywash_file::sys::SignalSet;
use bywash_file::threads::{self, FAULT_SIGNALS};
use core::arch::asm;
use libc::{sigset_t, ucontext_t};

/// `struct __jmp_buf_tag` of x86-64.
#[repr(C)]
pub struct JumpBuffer {
    /// rbx, rbp, r12 to r15, rsp, return address; rbp and the last two are mangled.
    registers: [usize; 8],
    mask_was_saved: i32,
    mask: sigset_t,
}

const STACK_POINTER: usize = 6;
const _: () = assert!(size_of::<JumpBuffer>() == 200);

/// Mark in the last word of a signal set that this library has changed; the fault signals are below the mark.
const MARK: u64 = 0x6279_7761_7368_0000;
const MARK_MASK: u64 = !0xffff;
const _: () = assert!(FAULT_SIGNALS & MARK_MASK == 0);
const LAST_WORD: usize = size_of::<sigset_t>() / size_of::<u64>() - 1;

/// Returns true if the library is active in this thread, so that a call may concern it.
fn concerned() -> bool {
    (process::is_ready() || signals::is_installed()) && !threads::bypassed()
}

/// Keeps the program's view of the mask beside a mask that is about to be saved.
unsafe fn keep_view(set: *mut sigset_t) {
    // SAFETY: the set is the program's, to be written by the function that follows; the caller's promise.
    unsafe { set.cast::<u64>().add(LAST_WORD).write(MARK | threads::blocked()) };
}

/// The view that was kept beside a mask, with which the program's view becomes what the mask says.
unsafe fn restore_view(set: *mut sigset_t) {
    if !signals::is_installed() {
        return;
    }
    // SAFETY: a set that was saved before; the caller's promise.
    let (set, last) = unsafe { (&mut *set, set.cast::<u64>().add(LAST_WORD)) };
    // SAFETY: the last word lies in the set.
    let kept = unsafe { last.read() };
    let kept: SignalSet = if kept & MARK_MASK == MARK { kept & FAULT_SIGNALS } else { 0 };
    let faults = word_of(set) & FAULT_SIGNALS;
    let waiting = threads::waiting() & (kept | faults);
    if faults & !waiting != 0 {
        // SAFETY: as above.
        unsafe { last.write(MARK | kept | faults) };
    }
    let word = word_of(set) & !FAULT_SIGNALS | waiting;
    if word != word_of(set) {
        set_word_of(set, word);
    }
    threads::set_blocked(kept | faults);
    threads::set_waiting(waiting);
}

/// Undoes glibc's PTR_MANGLE: rotated by 17, and mixed with the thread's pointer guard.
fn demangle(word: usize) -> usize {
    let guard: usize;
    // SAFETY: reads the thread's pointer guard, at a fixed place of the thread control block.
    unsafe { asm!("mov {guard}, fs:[0x30]", guard = out(reg) guard, options(nostack, readonly)) };
    word.rotate_right(17) ^ guard
}

extern "C" fn before_save(buffer: *mut JumpBuffer, saves_mask: i32) {
    if saves_mask != 0 && concerned() {
        // SAFETY: the program's buffer for `sigsetjmp`, which with a mask has its full size.
        unsafe { keep_view(&raw mut (*buffer).mask) };
    }
}

extern "C" fn before_bsd_save(buffer: *mut JumpBuffer, _: usize) {
    before_save(buffer, 1);
}

extern "C" fn before_jump(buffer: *mut JumpBuffer, _: i32) {
    if !concerned() {
        return;
    }
    // SAFETY: a buffer that the program filled in by `setjmp`; without a mask its second half may be missing.
    unsafe {
        if let Some(thread) = threads::known()
            && thread.is_in_the_middle()
        {
            thread.jumps_to(demangle((*buffer).registers[STACK_POINTER]));
        }
        if (*buffer).mask_was_saved != 0 {
            restore_view(&raw mut (*buffer).mask);
        }
    }
}

extern "C" fn before_get(context: *mut ucontext_t, _: usize) {
    if !concerned() {
        return;
    }
    if let Some(thread) = threads::known() {
        thread.saves_context();
    }
    // SAFETY: the program's context, about to be filled in.
    unsafe { keep_view(&raw mut (*context).uc_sigmask) };
}

extern "C" fn before_set(context: *mut ucontext_t, _: usize) {
    if concerned() {
        // SAFETY: a context that the program filled in.
        unsafe { restore_view(&raw mut (*context).uc_sigmask) };
    }
}

extern "C" fn before_swap(saved: *mut ucontext_t, next: *mut ucontext_t) {
    before_get(saved, 0);
    before_set(next, 0);
}

macro_rules! then_the_librarys {
    ($($(#[$doc:meta])* $name:ident => $before:ident;)*) => {
        /// Addresses of the C library's functions, by their names.
        #[allow(non_upper_case_globals)]
        mod symbols {
            $(pub static $name: crate::real::Symbol = crate::real::Symbol::new();)*
        }

        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                extern "C" fn address() -> usize {
                    symbols::$name.address($crate::c_name!($name))
                }
                // Two arguments in registers are kept over the calls; no more are used. Three pushes leave
                // the stack aligned.
                core::arch::naked_asm!(
                    "push rdi", "push rsi", "sub rsp, 8",
                    "call {before}",
                    "call {address}",
                    "add rsp, 8", "pop rsi", "pop rdi",
                    "jmp rax",
                    before = sym $before,
                    address = sym address,
                )
            }
        )*
    };
}

/// Looks up the jump by which a shell's child leaves what it was forked in ([`crate::real::look_up_for_children`]).
pub fn look_up_for_children() {
    symbols::__longjmp_chk.address(crate::c_name!(__longjmp_chk));
}

then_the_librarys! {
    /// `sigsetjmp`, by the name that its macro calls.
    __sigsetjmp => before_save;
    /// `setjmp` as a function, which saves the mask.
    setjmp => before_bsd_save;
    /// `longjmp`, and `siglongjmp`.
    longjmp => before_jump;
    /// `longjmp` without a mask.
    _longjmp => before_jump;
    /// `longjmp` with the mask.
    siglongjmp => before_jump;
    /// `longjmp` of programs built with _FORTIFY_SOURCE.
    __longjmp_chk => before_jump;
    /// `getcontext`.
    getcontext => before_get;
    /// `setcontext`.
    setcontext => before_set;
    /// `swapcontext`.
    swapcontext => before_swap;
}
