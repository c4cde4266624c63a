//! The fault handler, and the program's own handlers beside it.
//!
//! A copy from or to a mapping can raise SIGBUS or SIGSEGV. From the first window on, both signals reach
//! [`on_fault`], which sends a fault of the guarded copy back into the copy and hands everything else to
//! the program's own action, kept here: for the program `sigaction` and `signal` work as always.
//!
//! A blocked fault signal would kill the process, so the kernel never sees the two in the mask of any handler;
//! what the program believes is remembered and answered ([`crate::masks`] does the same for the mask itself).
//!
//! Invariant: `ACTIONS` changes only under [`LOCK`], which keeps signals out.

use crate::masks::{self, set_word_of, word_of};
use crate::real;
use bywash_file::copy::resume_after_fault;
use bywash_file::lock::Lock;
use bywash_file::process;
use bywash_file::sys::{self, SignalSet};
use bywash_file::threads::{self, FAULT_SIGNALS};
use bywash_session::Counter;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use libc::{SIG_DFL, SIG_IGN, SIGBUS, SIGSEGV, siginfo_t, ucontext_t};

static LOCK: Lock = Lock::new();
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Actions that the program has set for SIGBUS and SIGSEGV.
struct Actions(UnsafeCell<[libc::sigaction; 2]>);
// SAFETY: written under LOCK only; a handler reads it while it may be written, and then acts on the old or
// the new action, as it would if the kernel kept it. Each action is read once, by copy.
unsafe impl Sync for Actions {}
// SAFETY: all zeroes is the default action.
static ACTIONS: Actions = Actions(UnsafeCell::new(unsafe { core::mem::zeroed() }));
/// Which signals' handlers the program wants to run with SIGBUS, or SIGSEGV, blocked (bit per signal).
static WANTED_BLOCKED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

fn place(signal: c_int) -> usize {
    usize::from(signal == SIGSEGV)
}

fn action(signal: c_int) -> libc::sigaction {
    // SAFETY: see `Actions`.
    unsafe { (*ACTIONS.0.get())[place(signal)] }
}

fn set_action(signal: c_int, action: libc::sigaction) {
    // SAFETY: see `Actions`; callers hold LOCK or are the handler itself.
    unsafe { (*ACTIONS.0.get())[place(signal)] = action };
}

fn is_fault_signal(signal: c_int) -> bool {
    signal == SIGBUS || signal == SIGSEGV
}

/// Installs the handlers if they are not; whether they are in place now.
pub fn ready() -> bool {
    if INSTALLED.load(Ordering::Acquire) {
        return true;
    }
    let held = LOCK.hold();
    let mut good = true;
    if !INSTALLED.load(Ordering::Relaxed) {
        for signal in [SIGBUS, SIGSEGV] {
            // SAFETY: an all-zero action is valid and is overwritten.
            let mut old: libc::sigaction = unsafe { core::mem::zeroed() };
            // SAFETY: asks for the program's action, then puts ours before it.
            unsafe {
                good &= real::sigaction(signal, core::ptr::null(), &raw mut old) == 0;
                set_action(signal, old);
                good &= real::sigaction(signal, &ours(&old), core::ptr::null_mut()) == 0;
            }
        }
        INSTALLED.store(good, Ordering::Release);
    }
    drop(held);
    good
}

/// Returns true if the library's handlers are installed.
pub fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Returns true if the library's handlers are still those of the kernel. Called before each mapping, since a program can
/// bypass the C library.
pub fn still_ready() -> bool {
    ready()
        && [SIGBUS, SIGSEGV].into_iter().all(|signal| {
            // The kernel's struct sigaction begins with the handler.
            let mut now = [0usize; 4];
            let arguments = [signal as usize, 0, now.as_mut_ptr() as usize, 8, 0, 0];
            // SAFETY: the kernel writes 32 bytes.
            let answer = unsafe { sys::call(sys::nr::RT_SIGACTION, arguments) };
            answer == 0 && now[0] == on_fault as *const () as usize
        })
}

/// Returns true if a raw rt_sigaction would replace the library's handler of a fault signal.
pub fn concerns(signal: c_int, new: usize) -> bool {
    is_installed() && new != 0 && is_fault_signal(signal)
}

/// Gives the program's actions back to the kernel.
pub fn withdraw() {
    let held = LOCK.hold();
    if INSTALLED.swap(false, Ordering::AcqRel) {
        for signal in [SIGBUS, SIGSEGV] {
            // SAFETY: the program's own action.
            unsafe { real::sigaction(signal, &action(signal), core::ptr::null_mut()) };
        }
    }
    drop(held);
}

/// A signal that is ignored stays so over exec, and one with a handler does not; a blocked one stays blocked.
pub fn before_exec() {
    show_ignored();
    masks::show();
}

/// The program was not replaced, and goes on.
pub fn exec_failed() {
    masks::hide();
}

fn show_ignored() {
    if !INSTALLED.load(Ordering::Acquire) || threads::bypassed() {
        return;
    }
    for signal in [SIGBUS, SIGSEGV] {
        if action(signal).sa_sigaction == SIG_IGN {
            // SAFETY: the program's own action; should exec fail, the next mapping finds it out.
            unsafe { real::sigaction(signal, &action(signal), core::ptr::null_mut()) };
        }
    }
}

/// Our action in the place of the program's: on the same stack, with the same mask, restarting alike.
fn ours(program: &libc::sigaction) -> libc::sigaction {
    let mut action = *program;
    action.sa_sigaction = on_fault as *const () as usize;
    let kept = libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
    action.sa_flags = libc::SA_SIGINFO | (program.sa_flags & kept);
    if program.sa_sigaction == SIG_DFL || program.sa_sigaction == SIG_IGN {
        action.sa_flags |= libc::SA_ONSTACK;
    }
    set_word_of(&mut action.sa_mask, word_of(&program.sa_mask) & !FAULT_SIGNALS);
    action
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a machine context to a handler with SA_SIGINFO.
    let registers = unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs };
    let instruction = &mut registers[libc::REG_RIP as usize];
    if let Some(resume) = resume_after_fault(*instruction as usize) {
        *instruction = resume as i64;
        let counter = if signal == SIGBUS { Counter::FaultsBus } else { Counter::FaultsSegv };
        process::count(counter, 1);
        return;
    }
    // SAFETY: the arguments of this handler.
    unsafe { hand_on(signal, info, context) };
}

/// Does what the program wanted to happen.
unsafe fn hand_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let wanted = action(signal);
    // SAFETY: the kernel passes the information.
    let by_fault = unsafe { (*info).si_code } > 0;
    let bit = 1 << (signal - 1);
    let blocked = threads::blocked() & bit != 0;
    if blocked && !by_fault {
        // Somebody sent it: it goes on waiting, in the kernel, and the thread does without copies.
        threads::set_waiting(threads::waiting() | bit);
        // SAFETY: the kernel passes a machine context to a handler with SA_SIGINFO, and takes the mask from
        // it when the handler returns.
        let mask = unsafe { &mut (*context.cast::<ucontext_t>()).uc_sigmask };
        let word = word_of(mask) | bit;
        set_word_of(mask, word);
        // SAFETY: the kernel passed the information.
        unsafe { send_again(signal, info) };
        return;
    }
    match wanted.sa_sigaction {
        SIG_IGN if !by_fault => {}
        SIG_DFL | SIG_IGN => die_of(signal, by_fault),
        _ if blocked => die_of(signal, by_fault),
        handler => {
            if wanted.sa_flags & libc::SA_RESETHAND != 0 {
                // SAFETY: all zeroes is the default action.
                set_action(signal, unsafe { core::mem::zeroed() });
            }
            // SAFETY: the program installed a function of this type for this signal.
            let run = || unsafe {
                if wanted.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                        core::mem::transmute(handler);
                    handler(signal, info, context);
                } else {
                    let handler: unsafe extern "C" fn(c_int) = core::mem::transmute(handler);
                    handler(signal);
                }
            };
            match threads::known() {
                Some(thread) => thread.without_copies(run),
                None => run(),
            }
        }
    }
}

/// The default action: when the faulting instruction runs again it kills the process, as it would have.
fn die_of(signal: c_int, by_fault: bool) {
    // SAFETY: zeroes are the default action.
    unsafe {
        let default: libc::sigaction = core::mem::zeroed();
        real::sigaction(signal, &raw const default, core::ptr::null_mut());
    }
    if !by_fault {
        send_to_this_thread(signal);
    }
}

fn send_to_this_thread(signal: c_int) {
    // SAFETY: a signal to ourselves.
    unsafe {
        let thread = sys::call(libc::SYS_gettid as usize, [0; 6]);
        let process = sys::call(libc::SYS_getpid as usize, [0; 6]);
        let arguments = [process as usize, thread as usize, signal as usize, 0, 0, 0];
        sys::call(libc::SYS_tgkill as usize, arguments);
    }
}

/// Sends a signal once more, with what came with it, to whom it was sent: to this thread by `tgkill` and
/// alike, else to the process, where another thread may be waiting for it.
unsafe fn send_again(signal: c_int, info: *mut siginfo_t) {
    // SAFETY: the information is the kernel's; a signal to ourselves may say who sent it.
    unsafe {
        let process = sys::call(libc::SYS_getpid as usize, [0; 6]) as usize;
        let [signal_word, info_word] = [signal as usize, info as usize];
        // So that it does not come back to this thread at once.
        sys::change_mask(sys::MaskChange::Block, 1 << (signal - 1));
        if (*info).si_code == libc::SI_TKILL {
            let thread = sys::call(libc::SYS_gettid as usize, [0; 6]) as usize;
            let arguments = [process, thread, signal_word, info_word, 0, 0];
            sys::call(libc::SYS_rt_tgsigqueueinfo as usize, arguments);
        } else {
            let arguments = [process, signal_word, info_word, 0, 0, 0];
            if sys::call(libc::SYS_rt_sigqueueinfo as usize, arguments) < 0 {
                // Only the first thread may say that it is somebody else's kill(2).
                (*info).si_code = libc::SI_QUEUE;
                sys::call(libc::SYS_rt_sigqueueinfo as usize, arguments);
            }
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if threads::bypassed() || process::is_aside() && !INSTALLED.load(Ordering::Acquire) {
        // SAFETY: as the program promised for this function; the same throughout.
        return unsafe { real::sigaction(signal, new, old) };
    }
    // SAFETY: the program's action is readable as for the C library's function.
    let wanted = (!new.is_null()).then(|| unsafe { *new });
    // The lock masks signals, by two system calls; where nothing changes here they are saved.
    let blocks = |action: &libc::sigaction| word_of(&action.sa_mask) & FAULT_SIGNALS;
    let changes =
        is_fault_signal(signal) || wanted.is_some_and(|action| blocks(&action) != wanted_blocked(signal));
    let held = changes.then(|| LOCK.hold());
    let ours_installed = is_fault_signal(signal) && INSTALLED.load(Ordering::Relaxed);
    let stripped = wanted.map(|mut action| {
        if ours_installed {
            action = ours(&action);
        }
        let word = word_of(&action.sa_mask) & !FAULT_SIGNALS;
        set_word_of(&mut action.sa_mask, word);
        action
    });
    let before = action(signal);
    let wanted_blocked = wanted_blocked(signal);
    let argument = stripped.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: as above.
    let result = unsafe { real::sigaction(signal, argument, old) };
    if result == 0 {
        // SAFETY: the kernel has just written it.
        if let Some(old) = unsafe { old.as_mut() } {
            if ours_installed {
                *old = before;
            } else {
                let word = word_of(&old.sa_mask) | wanted_blocked;
                set_word_of(&mut old.sa_mask, word);
            }
        }
        if let Some(action) = wanted {
            if ours_installed {
                set_action(signal, action);
            }
            if changes {
                want_blocked(signal, word_of(&action.sa_mask));
            }
        }
    }
    drop(held);
    result
}

fn wanted_blocked(signal: c_int) -> SignalSet {
    let wants = |place: usize| WANTED_BLOCKED[place].load(Ordering::Relaxed) >> (signal & 63) & 1;
    wants(0) << (SIGBUS - 1) | wants(1) << (SIGSEGV - 1)
}

fn want_blocked(signal: c_int, mask: SignalSet) {
    for (fault, words) in [SIGBUS, SIGSEGV].into_iter().zip(&WANTED_BLOCKED) {
        let bit = 1u64 << (signal & 63);
        if mask >> (fault - 1) & 1 != 0 {
            words.fetch_or(bit, Ordering::Relaxed);
        } else {
            words.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// `signal` with these flags, for a fault signal whose handler is ours.
unsafe fn signal_by_sigaction(signal: c_int, handler: usize, flags: c_int) -> usize {
    // SAFETY: zeroes are a valid action.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { core::mem::zeroed() };
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    // SAFETY: both actions are ours.
    if unsafe { sigaction(signal, &raw const new, &raw mut old) } == 0 {
        old.sa_sigaction
    } else {
        libc::SIG_ERR
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: as `sigaction`.
    unsafe {
        if is_fault_signal(signal) && INSTALLED.load(Ordering::Acquire) {
            signal_by_sigaction(signal, handler, libc::SA_RESTART)
        } else {
            real::signal(signal, handler)
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsd_signal(number: c_int, handler: usize) -> usize {
    // SAFETY: the same function.
    unsafe { signal(number, handler) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: as `sigaction`.
    unsafe {
        if is_fault_signal(signal) && INSTALLED.load(Ordering::Acquire) {
            signal_by_sigaction(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
        } else {
            real::__sysv_signal(signal, handler)
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the same function.
    unsafe { __sysv_signal(signal, handler) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigignore(number: c_int) -> c_int {
    // SAFETY: zeroes are a valid action, which is ours.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = SIG_IGN;
        sigaction(number, &raw const action, core::ptr::null_mut())
    }
}

/// Interposed siginterrupt(3): sets whether a handler interrupts system calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(number: c_int, interrupts: c_int) -> c_int {
    if !is_fault_signal(number) || !is_installed() {
        // SAFETY: as `sigaction`.
        return unsafe { real::siginterrupt(number, interrupts) };
    }
    let mut action = action(number);
    action.sa_flags &= !libc::SA_RESTART;
    if interrupts == 0 {
        action.sa_flags |= libc::SA_RESTART;
    }
    // SAFETY: the action is ours.
    unsafe { sigaction(number, &raw const action, core::ptr::null_mut()) }
}
