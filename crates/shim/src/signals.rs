//! The fault handler, and the program's own actions behind it.
//!
//! A copy from or to a mapping can raise SIGBUS or SIGSEGV. From the first window on, both signals reach
//! [`on_fault`], which returns a fault of the guarded copy to the copy as an error. All other signals are
//! passed to the program's own action, which is stored here: `sigaction` and `signal` work for the program as
//! usual.
//!
//! A blocked fault signal would kill the process. So the kernel never gets the two signals in the mask of a
//! handler; the program's masks are stored and reported to it ([`crate::masks`] does the same for the
//! thread's mask).
//!
//! Invariant: calls of the program change `ACTIONS` only under [`LOCK`], which blocks signals. A handler
//! changes its own action without the lock, if the program asked for SA_RESETHAND.

use crate::masks::{self, set_word_of, word_of};
use crate::real;
use bywash_file::copy::resume_after_fault;
use bywash_file::lock::Lock;
use bywash_file::state;
use bywash_file::sys::{self, SignalSet};
use bywash_file::threads::{self, FAULT_SIGNALS};
use bywash_session::Counter;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use libc::{SIG_DFL, SIG_IGN, SIGBUS, SIGSEGV, siginfo_t, ucontext_t};

static LOCK: Lock = Lock::new();
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Actions of the program for SIGBUS and for SIGSEGV.
struct Actions(UnsafeCell<[libc::sigaction; 2]>);
// SAFETY: calls of the program write an action under LOCK only. Not excluded: the handler reads, and with
// SA_RESETHAND writes, an action without the lock, so in another thread it may copy an action that is just
// being written.
unsafe impl Sync for Actions {}
// SAFETY: a `sigaction` consists of integers and pointers; all zeroes are the default action.
static ACTIONS: Actions = Actions(UnsafeCell::new(unsafe { core::mem::zeroed() }));
/// Signals whose handlers the program wants to run with SIGBUS, or with SIGSEGV, blocked; one bit per signal.
static WANTED_BLOCKED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

fn place(signal: c_int) -> usize {
    usize::from(signal == SIGSEGV)
}

fn action(signal: c_int) -> libc::sigaction {
    // SAFETY: the array is valid for ever; `Actions` says which writes are not excluded.
    unsafe { (*ACTIONS.0.get())[place(signal)] }
}

fn set_action(signal: c_int, action: libc::sigaction) {
    // SAFETY: the array is valid for ever, and callers hold LOCK; the handler, for SA_RESETHAND, does not.
    unsafe { (*ACTIONS.0.get())[place(signal)] = action };
}

fn is_fault_signal(signal: c_int) -> bool {
    signal == SIGBUS || signal == SIGSEGV
}

/// Installs the handlers unless they are installed; returns true if they are installed now.
pub fn ready() -> bool {
    if INSTALLED.load(Ordering::Acquire) {
        return true;
    }
    let held = LOCK.hold();
    let mut good = true;
    if !INSTALLED.load(Ordering::Relaxed) {
        for signal in [SIGBUS, SIGSEGV] {
            // SAFETY: an all-zero `sigaction` is valid, and the call overwrites it.
            let mut old: libc::sigaction = unsafe { core::mem::zeroed() };
            // SAFETY: the first call writes to a local variable, and the second installs `on_fault`, which
            // has the type of a handler with SA_SIGINFO.
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

/// Returns true if the handlers were installed.
pub fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Returns true if both signals still reach [`on_fault`]. Called before each mapping, because a program can
/// set handlers without the C library.
pub fn still_ready() -> bool {
    ready()
        && [SIGBUS, SIGSEGV].into_iter().all(|signal| {
            // The kernel's struct sigaction begins with the handler.
            let mut now = [0usize; 4];
            let arguments = [signal as usize, 0, now.as_mut_ptr() as usize, 8, 0, 0];
            // SAFETY: the kernel writes 32 bytes, which is the size of the array.
            let answer = unsafe { sys::call(sys::nr::RT_SIGACTION, arguments) };
            answer == 0 && now[0] == on_fault as *const () as usize
        })
}

/// Returns true if a raw rt_sigaction with these arguments would replace the handler of a fault signal.
pub fn concerns(signal: c_int, new: usize) -> bool {
    is_installed() && new != 0 && is_fault_signal(signal)
}

/// Removes the handlers and gives the program's actions to the kernel.
pub fn withdraw() {
    let held = LOCK.hold();
    if INSTALLED.swap(false, Ordering::AcqRel) {
        for signal in [SIGBUS, SIGSEGV] {
            // SAFETY: the action is the one that the program set for this signal.
            unsafe { real::sigaction(signal, &action(signal), core::ptr::null_mut()) };
        }
    }
    drop(held);
}

/// Gives the kernel the ignored and the blocked fault signals, which stay so over exec.
pub fn before_exec() {
    show_ignored();
    masks::show();
}

/// Restores the mask after an exec that failed, so that the program continues.
pub fn exec_failed() {
    masks::hide();
}

fn show_ignored() {
    if !INSTALLED.load(Ordering::Acquire) || threads::bypassed() {
        return;
    }
    for signal in [SIGBUS, SIGSEGV] {
        if action(signal).sa_sigaction == SIG_IGN {
            // SAFETY: the action is the program's own. Should exec fail, the next mapping finds the handler
            // missing.
            unsafe { real::sigaction(signal, &action(signal), core::ptr::null_mut()) };
        }
    }
}

/// Returns the action to install in place of the program's, with the same stack, mask and restart behaviour.
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
        threads::count(counter, 1);
        return;
    }
    // SAFETY: the arguments are those that the kernel passed to this handler.
    unsafe { hand_on(signal, info, context) };
}

/// Carries out the program's action for a signal that no guarded copy raised.
///
/// # Safety
/// The arguments are those of a handler with SA_SIGINFO.
unsafe fn hand_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let wanted = action(signal);
    // SAFETY: the caller promises the information that the kernel passed to the handler.
    let by_fault = unsafe { (*info).si_code } > 0;
    let bit = 1 << (signal - 1);
    let blocked = threads::blocked() & bit != 0;
    if blocked && !by_fault {
        // The signal was sent by a process and stays pending in the kernel; the thread makes no copies
        // meanwhile.
        threads::set_waiting(threads::waiting() | bit);
        // SAFETY: the kernel passes a machine context to a handler with SA_SIGINFO, and restores the mask
        // from it when the handler returns.
        let mask = unsafe { &mut (*context.cast::<ucontext_t>()).uc_sigmask };
        let word = word_of(mask) | bit;
        set_word_of(mask, word);
        // SAFETY: the information is the kernel's, as the caller promises.
        unsafe { send_again(signal, info) };
        return;
    }
    match wanted.sa_sigaction {
        SIG_IGN if !by_fault => {}
        SIG_DFL | SIG_IGN => die_of(signal, by_fault),
        _ if blocked => die_of(signal, by_fault),
        handler => {
            if wanted.sa_flags & libc::SA_RESETHAND != 0 {
                // SAFETY: a `sigaction` consists of integers and pointers; all zeroes are the default action.
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

/// Sets the default action, so that the process dies when the faulting instruction runs again, or at once of
/// a signal that was sent.
fn die_of(signal: c_int, by_fault: bool) {
    // SAFETY: an all-zero `sigaction` is valid and means the default action.
    unsafe {
        let default: libc::sigaction = core::mem::zeroed();
        real::sigaction(signal, &raw const default, core::ptr::null_mut());
    }
    if !by_fault {
        send_to_this_thread(signal);
    }
}

fn send_to_this_thread(signal: c_int) {
    // SAFETY: the calls have integer arguments; the signal goes to the calling thread.
    unsafe {
        let thread = sys::call(libc::SYS_gettid as usize, [0; 6]);
        let process = sys::call(libc::SYS_getpid as usize, [0; 6]);
        let arguments = [process as usize, thread as usize, signal as usize, 0, 0, 0];
        sys::call(libc::SYS_tgkill as usize, arguments);
    }
}

/// Sends a signal again, with its information, to its original target: to this thread if `tgkill` or a
/// similar call sent it, otherwise to the process, in which another thread may wait for it.
///
/// # Safety
/// `info` is the information that the kernel passed to the handler.
unsafe fn send_again(signal: c_int, info: *mut siginfo_t) {
    // SAFETY: the caller promises the kernel's information, which a process may send to itself unchanged.
    unsafe {
        let process = sys::call(libc::SYS_getpid as usize, [0; 6]) as usize;
        let [signal_word, info_word] = [signal as usize, info as usize];
        // The signal is blocked first, so that it is not delivered to this thread at once.
        sys::change_mask(sys::MaskChange::Block, 1 << (signal - 1));
        if (*info).si_code == libc::SI_TKILL {
            let thread = sys::call(libc::SYS_gettid as usize, [0; 6]) as usize;
            let arguments = [process, thread, signal_word, info_word, 0, 0];
            sys::call(libc::SYS_rt_tgsigqueueinfo as usize, arguments);
        } else {
            let arguments = [process, signal_word, info_word, 0, 0, 0];
            if sys::call(libc::SYS_rt_sigqueueinfo as usize, arguments) < 0 {
                // Only the first thread of a process may send information of another sender's kill(2).
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
    if threads::bypassed() || state::is_aside() && !INSTALLED.load(Ordering::Acquire) {
        // SAFETY: the program keeps the contract of `sigaction` for all arguments.
        return unsafe { real::sigaction(signal, new, old) };
    }
    // SAFETY: the program passes null or a readable action, as `sigaction` requires.
    let wanted = (!new.is_null()).then(|| unsafe { *new });
    // The lock blocks signals by two system calls, which are saved if nothing stored here changes.
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
    // SAFETY: `argument` is null or a local action; the program passes null or a writable `old`.
    let result = unsafe { real::sigaction(signal, argument, old) };
    if result == 0 {
        // SAFETY: the call succeeded, so the kernel has written `old` if it is not null.
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

/// Sets a handler with these flags, for a fault signal whose installed handler is `on_fault`; returns the
/// previous handler.
///
/// # Safety
/// `handler` is a handler for this signal, SIG_DFL or SIG_IGN.
unsafe fn signal_by_sigaction(signal: c_int, handler: usize, flags: c_int) -> usize {
    // SAFETY: a `sigaction` consists of integers and pointers, for which all zeroes are valid.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { core::mem::zeroed() };
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    // SAFETY: both actions are local variables; the caller promises the handler.
    if unsafe { sigaction(signal, &raw const new, &raw mut old) } == 0 {
        old.sa_sigaction
    } else {
        libc::SIG_ERR
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program keeps the contract of the C library's function that it called.
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
    // SAFETY: the same function under another name, with the same contract.
    unsafe { signal(number, handler) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the program keeps the contract of the C library's function that it called.
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
    // SAFETY: the same function under another name, with the same contract.
    unsafe { __sysv_signal(signal, handler) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigignore(number: c_int) -> c_int {
    // SAFETY: an all-zero `sigaction` is valid, and the action is a local variable.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = SIG_IGN;
        sigaction(number, &raw const action, core::ptr::null_mut())
    }
}

/// Sets whether the handler of a signal interrupts system calls or lets them continue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(number: c_int, interrupts: c_int) -> c_int {
    if !is_fault_signal(number) || !is_installed() {
        // SAFETY: the program keeps the contract of the C library's function that it called.
        return unsafe { real::siginterrupt(number, interrupts) };
    }
    let mut action = action(number);
    action.sa_flags &= !libc::SA_RESTART;
    if interrupts == 0 {
        action.sa_flags |= libc::SA_RESTART;
    }
    // SAFETY: the action is a local variable, copied from a valid action.
    unsafe { sigaction(number, &raw const action, core::ptr::null_mut()) }
}
