//! Jumps out of functions, and contexts: end interrupted copies, and adapt the masks that jumps restore.
//!
//! A signal handler can interrupt a copy and leave it by a jump. The file that the copy protected is released
//! here as soon as the jump's target shows that the copy will not continue (`bywash_file`'s `stack`). Jumps
//! and contexts restore the kernel's mask, which lacks the fault signals that the program believes to be
//! blocked ([`crate::masks`]). Those are stored in the last word of the same set, with a mark; neither the C
//! library nor the kernel uses that word.
//!
//! All these functions depend on their caller, so each function here ends with a jump to the C library's own,
//! with the caller's registers and stack. The layout is glibc's (setjmp.h, jmpbuf-offsets.h, ucontext.h).

use crate::masks::{set_word_of, word_of};
use crate::signals;
use bywash_file::state;
use bywash_file::sys::SignalSet;
use bywash_file::threads::{self, FAULT_SIGNALS};
use core::arch::asm;
use libc::{sigset_t, ucontext_t};

/// Layout of `struct __jmp_buf_tag` on x86-64.
#[repr(C)]
pub struct JumpBuffer {
    /// rbx, rbp, r12 to r15, rsp and the return address; rbp and the last two are mangled.
    registers: [usize; 8],
    mask_was_saved: i32,
    mask: sigset_t,
}

/// Index of rsp among the registers.
const STACK_POINTER: usize = 6;
const _: () = assert!(size_of::<JumpBuffer>() == 200);

/// Mark in the upper bits of a set's last word that this library wrote; the fault signals are below it.
const MARK: u64 = 0x6279_7761_7368_0000;
const MARK_MASK: u64 = !0xffff;
const _: () = assert!(FAULT_SIGNALS & MARK_MASK == 0);
/// Index of the last word of a set.
const LAST_WORD: usize = size_of::<sigset_t>() / size_of::<u64>() - 1;

/// Returns true if the library is in use in this process and this is not a vfork child.
fn concerned() -> bool {
    (state::is_ready() || signals::is_installed()) && !threads::bypassed()
}

/// Stores the fault signals that the program believes to be blocked in a set to which a mask is about to be
/// saved.
///
/// # Safety
/// `set` points to a set that may be written.
unsafe fn keep_view(set: *mut sigset_t) {
    // SAFETY: the caller promises a set that may be written; the last word lies in it.
    unsafe { set.cast::<u64>().add(LAST_WORD).write(MARK | threads::blocked()) };
}

/// Takes the fault signals out of a saved mask that is about to be restored, and makes the program's view of
/// the mask the saved one.
///
/// # Safety
/// `set` points to a set that was saved and may be written.
unsafe fn restore_view(set: *mut sigset_t) {
    if !signals::is_installed() {
        return;
    }
    // SAFETY: the caller promises a saved set that may be written; the last word lies in it.
    let (set, last) = unsafe { (&mut *set, set.cast::<u64>().add(LAST_WORD)) };
    // SAFETY: the last word lies in the set, which the caller promises to be valid.
    let kept = unsafe { last.read() };
    let kept: SignalSet = if kept & MARK_MASK == MARK { kept & FAULT_SIGNALS } else { 0 };
    let faults = word_of(set) & FAULT_SIGNALS;
    let waiting = threads::waiting() & (kept | faults);
    if faults & !waiting != 0 {
        // SAFETY: the last word lies in the set, which the caller promises may be written.
        unsafe { last.write(MARK | kept | faults) };
    }
    let word = word_of(set) & !FAULT_SIGNALS | waiting;
    if word != word_of(set) {
        set_word_of(set, word);
    }
    threads::set_blocked(kept | faults);
    threads::set_waiting(waiting);
}

/// Undoes glibc's PTR_MANGLE: rotates by 17 bits and applies the thread's pointer guard.
fn demangle(word: usize) -> usize {
    let guard: usize;
    // SAFETY: reads the thread's pointer guard, which lies at a fixed offset of the thread control block.
    unsafe { asm!("mov {guard}, fs:[0x30]", guard = out(reg) guard, options(nostack, readonly)) };
    word.rotate_right(17) ^ guard
}

extern "C" fn before_save(buffer: *mut JumpBuffer, saves_mask: i32) {
    if saves_mask != 0 && concerned() {
        // SAFETY: the program's buffer for `sigsetjmp` has room for the mask if the mask is to be saved.
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
    // SAFETY: `setjmp` has filled in the buffer. Its mask is used only if it was saved, because a buffer
    // without a mask may be shorter.
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
    // SAFETY: the program passes a context that the C library's function is about to fill in.
    unsafe { keep_view(&raw mut (*context).uc_sigmask) };
}

extern "C" fn before_set(context: *mut ucontext_t, _: usize) {
    if concerned() {
        // SAFETY: the program passes a context that was filled in.
        unsafe { restore_view(&raw mut (*context).uc_sigmask) };
    }
}

extern "C" fn before_swap(saved: *mut ucontext_t, next: *mut ucontext_t) {
    before_get(saved, 0);
    before_set(next, 0);
}

macro_rules! then_the_librarys {
    ($($(#[$doc:meta])* $name:ident => $before:ident;)*) => {
        /// Addresses of the C library's functions, by name.
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
                // The two arguments in registers are saved over the calls; the functions have no more. Two
                // pushes and eight bytes leave the stack aligned.
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

/// Looks up the jump by which a child of a shell leaves the function that forked it
/// ([`crate::real::look_up_for_children`]).
pub fn look_up_for_children() {
    symbols::__longjmp_chk.address(crate::c_name!(__longjmp_chk));
}

then_the_librarys! {
    /// `sigsetjmp`, under the name that its macro calls.
    __sigsetjmp => before_save;
    /// `setjmp` as a function, which saves the mask.
    setjmp => before_bsd_save;
    /// `longjmp`, and `siglongjmp`.
    longjmp => before_jump;
    /// `longjmp` that restores no mask.
    _longjmp => before_jump;
    /// `longjmp` that restores the mask.
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
