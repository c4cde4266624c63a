//! Signal mask that the program believes in.
//!
//! A fault in a copy while its signal is blocked kills the process. So from the first time that the program
//! blocks SIGBUS or SIGSEGV, the kernel does not block the two: the program's view is kept in
//! [`threads::blocked`] and reported to the program. Every function of the C library that sets a mask is in
//! this module or in [`crate::jumps`]; `tests/exports.rs` checks the list against the C library's headers.
//!
//! Children inherit the kernel's mask, so the kernel gets the program's view while a child is made
//! ([`shown`]).

use crate::{lookups, real, signals};
use bywash_file::copy::{guarded_copy, guarded_word};
use bywash_file::state;
use bywash_file::sys::{self, MaskChange, SignalSet};
use bywash_file::threads::{self, FAULT_SIGNALS};
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use libc::{sigset_t, timespec};

/// Returns the kernel's 64 signals of a C library's set.
pub fn word_of(set: &sigset_t) -> SignalSet {
    // SAFETY: a `sigset_t` begins with the kernel's word and is aligned for it.
    unsafe { *core::ptr::from_ref(set).cast::<SignalSet>() }
}

/// Replaces the kernel's 64 signals of a C library's set.
pub fn set_word_of(set: &mut sigset_t, word: SignalSet) {
    // SAFETY: a `sigset_t` begins with the kernel's word and is aligned for it.
    unsafe { *core::ptr::from_mut(set).cast::<SignalSet>() = word };
}

fn set_of(word: SignalSet) -> sigset_t {
    // SAFETY: a `sigset_t` consists of integers; all zeroes are the empty set.
    let mut set: sigset_t = unsafe { core::mem::zeroed() };
    set_word_of(&mut set, word);
    set
}

/// Returns true if the kernel's mask is the program's view: before the handlers are installed or the data
/// path is set up, in a vfork child, and where the library is switched off.
fn is_plain() -> bool {
    threads::bypassed() || !state::is_ready() && !signals::is_installed()
}

/// Runs `call` while the kernel has the mask that the program believes in; no copy begins meanwhile.
pub fn shown<T>(call: impl FnOnce() -> T) -> T {
    show();
    let result = call();
    hide();
    result
}

/// Gives the kernel the mask that the program believes in, until [`hide`].
pub fn show() {
    let blocked = threads::blocked();
    if blocked != 0 && !threads::bypassed() {
        threads::set_waiting(blocked);
        sys::change_mask(MaskChange::Block, blocked);
    }
}

/// Takes the fault signals out of the kernel's mask again, after [`show`].
pub fn hide() {
    let blocked = threads::blocked();
    if blocked != 0 && !threads::bypassed() {
        // A signal that was sent meanwhile stays blocked and pending.
        let waiting = sys::pending_signals() & blocked;
        threads::set_waiting(waiting);
        sys::change_mask(MaskChange::Unblock, blocked & !waiting);
    }
}

/// Moves the fault signals from the kernel's mask to the program's view, after the mask was inherited or set
/// without this library.
pub fn take_over() {
    let blocked = sys::change_mask(MaskChange::Block, 0) & FAULT_SIGNALS & !threads::waiting();
    if blocked == 0 || !signals::ready() {
        return;
    }
    threads::set_blocked(threads::blocked() | blocked);
    let pending = sys::pending_signals() & blocked;
    threads::set_waiting(threads::waiting() | pending);
    sys::change_mask(MaskChange::Unblock, blocked & !pending);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    if is_plain() || !matches!(how, libc::SIG_BLOCK | libc::SIG_UNBLOCK | libc::SIG_SETMASK) {
        // SAFETY: the program keeps the contract of `pthread_sigmask` for all arguments.
        return unsafe { real::pthread_sigmask(how, set, old) };
    }
    let (believed, waited) = (threads::blocked(), threads::waiting());
    // SAFETY: the program passes null or a readable set, as `pthread_sigmask` requires.
    let mut argument = (!set.is_null()).then(|| unsafe { *set });
    if let Some(set) = &mut argument {
        let faults = word_of(set) & FAULT_SIGNALS;
        let blocked = match how {
            libc::SIG_BLOCK => believed | faults,
            libc::SIG_UNBLOCK => believed & !faults,
            _ => faults,
        };
        if blocked != 0 && !signals::ready() {
            // SAFETY: the program keeps the contract of `pthread_sigmask`; without handlers no copy can run.
            return unsafe { real::pthread_sigmask(how, set, old) };
        }
        let waiting = waited & blocked;
        let word = match how {
            libc::SIG_UNBLOCK => word_of(set),
            _ => word_of(set) & !FAULT_SIGNALS | waiting,
        };
        set_word_of(set, word);
        // The view changes before the call, because a pending signal is delivered within it.
        threads::set_blocked(blocked);
        threads::set_waiting(waiting);
    }
    let argument = argument.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: `argument` is null or a local set; the program passes null or a writable `old`.
    let result = unsafe { real::pthread_sigmask(how, argument, old) };
    if result != 0 {
        threads::set_blocked(believed);
        threads::set_waiting(waited);
    // SAFETY: the call succeeded, so the kernel has written `old` if it is not null.
    } else if let Some(old) = unsafe { old.as_mut() } {
        let word = word_of(old) | believed;
        set_word_of(old, word);
    }
    result
}

/// Sets the program's `errno` and returns -1.
fn failed(error: c_int) -> c_int {
    // SAFETY: the location is the C library's `errno` of this thread, which is always valid.
    unsafe { *libc::__errno_location() = error };
    -1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: `pthread_sigmask` has the same contract and differs only in how it reports an error.
    match unsafe { pthread_sigmask(how, set, old) } {
        0 => 0,
        error => failed(error),
    }
}

/// Changes the mask by `word`; returns the mask that the program believed in before.
fn change(how: c_int, word: SignalSet) -> SignalSet {
    let set = set_of(word);
    let mut old = set_of(0);
    // SAFETY: both sets are local variables of the right type.
    unsafe { pthread_sigmask(how, &raw const set, &raw mut old) };
    word_of(&old)
}

/// Returns the bit of a signal number in a set, if the number is valid.
fn bit(signal: c_int) -> Option<SignalSet> {
    const SIGNALS: c_int = 64;
    (1..=SIGNALS).contains(&signal).then(|| 1 << (signal - 1))
}

/// Blocks the signals of a BSD mask, which has 32 signals.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigblock(mask: c_int) -> c_int {
    change(libc::SIG_BLOCK, mask as u32 as SignalSet) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigsetmask(mask: c_int) -> c_int {
    change(libc::SIG_SETMASK, mask as u32 as SignalSet) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn siggetmask() -> c_int {
    change(libc::SIG_BLOCK, 0) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sighold(signal: c_int) -> c_int {
    bit(signal).map_or_else(
        || failed(libc::EINVAL),
        |bit| {
            change(libc::SIG_BLOCK, bit);
            0
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigrelse(signal: c_int) -> c_int {
    bit(signal).map_or_else(
        || failed(libc::EINVAL),
        |bit| {
            change(libc::SIG_UNBLOCK, bit);
            0
        },
    )
}

/// Sets a handler and unblocks the signal, or blocks the signal for `SIG_HOLD`. Returns the previous handler,
/// or `SIG_HOLD` if the signal was blocked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(signal: c_int, handler: usize) -> usize {
    const SIG_HOLD: usize = 2;
    let Some(bit) = bit(signal).filter(|_| handler != libc::SIG_ERR) else {
        failed(libc::EINVAL);
        return libc::SIG_ERR;
    };
    // SAFETY: a `sigaction` consists of integers and pointers, for which all zeroes are valid.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { core::mem::zeroed() };
    new.sa_sigaction = handler;
    let held = handler == SIG_HOLD;
    let before = if held { change(libc::SIG_BLOCK, bit) } else { 0 };
    if held && before & bit != 0 {
        return SIG_HOLD;
    }
    let action = if held { core::ptr::null() } else { &raw const new };
    // SAFETY: `action` is null or local, and `old` is local.
    if unsafe { signals::sigaction(signal, action, &raw mut old) } != 0 {
        return libc::SIG_ERR;
    }
    if !held && change(libc::SIG_UNBLOCK, bit) & bit != 0 {
        return SIG_HOLD;
    }
    old.sa_sigaction
}

/// Runs `call`, which installs the mask `set` while it waits, with a mask that blocks no fault signal.
///
/// # Safety
/// `set` is null or readable.
unsafe fn waiting_with<T>(set: *const sigset_t, call: impl FnOnce(*const sigset_t) -> T) -> T {
    if set.is_null() || is_plain() {
        return call(set);
    }
    // SAFETY: the caller promises that a set which is not null is readable.
    waiting_with_word(word_of(unsafe { &*set }), |word| {
        let set = set_of(word);
        call(&raw const set)
    })
}

/// Like [`waiting_with`], but for the kernel's word of a mask.
fn waiting_with_word<T>(wanted: SignalSet, call: impl FnOnce(SignalSet) -> T) -> T {
    let faults = wanted & FAULT_SIGNALS;
    let (believed, waited) = (threads::blocked(), threads::waiting());
    if faults | believed == 0 || !signals::ready() {
        return call(wanted);
    }
    let waiting = waited & faults;
    threads::set_blocked(faults);
    threads::set_waiting(waiting);
    let result = call(wanted & !FAULT_SIGNALS | waiting);
    // The kernel has restored the previous mask, in which the signals of `waited` are blocked.
    threads::set_blocked(believed);
    threads::set_waiting(threads::waiting() | waited);
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigsuspend(set: *const sigset_t) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { waiting_with(set, |set| real::sigsuspend(set)) }
}

/// Waits with the mask that the program believes in, without `signal`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __xpg_sigpause(signal: c_int) -> c_int {
    let Some(bit) = bit(signal) else { return failed(libc::EINVAL) };
    let set = set_of(change(libc::SIG_BLOCK, 0) & !bit);
    // SAFETY: the set is a local variable, readable as `sigsuspend` requires.
    unsafe { sigsuspend(&raw const set) }
}

/// Waits with a mask of 32 signals (BSD).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigpause(mask: c_int) -> c_int {
    let set = set_of(mask as u32 as SignalSet);
    // SAFETY: the set is a local variable, readable as `sigsuspend` requires.
    unsafe { sigsuspend(&raw const set) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigpause(signal_or_mask: c_int, is_signal: c_int) -> c_int {
    // SAFETY: neither function has a contract beyond its integer argument.
    unsafe { if is_signal != 0 { __xpg_sigpause(signal_or_mask) } else { sigpause(signal_or_mask) } }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    list: *mut c_void,
    count: libc::nfds_t,
    limit: *const timespec,
    set: *const sigset_t,
) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { waiting_with(set, |set| real::ppoll(list, count, limit, set)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    list: *mut c_void,
    count: libc::nfds_t,
    limit: *const timespec,
    set: *const sigset_t,
    room: usize,
) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { waiting_with(set, |set| real::__ppoll_chk(list, count, limit, set, room)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    readable: *mut c_void,
    writable: *mut c_void,
    exceptional: *mut c_void,
    limit: *const timespec,
    set: *const sigset_t,
) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { waiting_with(set, |set| real::pselect(count, readable, writable, exceptional, limit, set)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    fd: c_int,
    events: *mut c_void,
    count: c_int,
    limit_ms: c_int,
    set: *const sigset_t,
) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { waiting_with(set, |set| real::epoll_pwait(fd, events, count, limit_ms, set)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    fd: c_int,
    events: *mut c_void,
    count: c_int,
    limit: *const timespec,
    set: *const sigset_t,
) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    unsafe { waiting_with(set, |set| real::epoll_pwait2(fd, events, count, limit, set)) }
}

/// Waits for signals of a set, which must be blocked in the kernel, as they are in the program's view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    shown(|| unsafe { real::sigwait(set, signal) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigwaitinfo(set: *const sigset_t, info: *mut libc::siginfo_t) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    shown(|| unsafe { real::sigwaitinfo(set, info) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigtimedwait(
    set: *const sigset_t,
    info: *mut libc::siginfo_t,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    shown(|| unsafe { real::sigtimedwait(set, info, limit) })
}

/// Function and argument of a thread that is to begin with fault signals blocked in its view.
struct Begin {
    entry: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
}

extern "C" fn begin_thread(begin: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below allocated and initialised the value, for this thread alone.
    let Begin { entry, argument } = unsafe {
        let begin = begin.cast::<Begin>();
        let kept = begin.read();
        libc::free(begin.cast());
        kept
    };
    take_over();
    entry(argument)
}

/// Returns true if a thread's attributes contain a signal mask.
///
/// # Safety
/// `attributes` is null or initialised thread attributes.
unsafe fn has_mask(attributes: *const c_void) -> bool {
    static LOOK_UP: AtomicUsize = AtomicUsize::new(1);
    type Get = unsafe extern "C" fn(*const c_void, *mut sigset_t) -> c_int;
    if attributes.is_null() {
        return false;
    }
    let mut address = LOOK_UP.load(Relaxed);
    if address == 1 {
        // SAFETY: the name is a C string; glibc has the function since version 2.32.
        address = unsafe { lookups::look_up(libc::RTLD_NEXT, c"pthread_attr_getsigmask_np") };
        LOOK_UP.store(address, Relaxed);
    }
    if address == 0 {
        return false;
    }
    let mut set = set_of(0);
    // SAFETY: the C library's function of this name has this type; the caller promises the attributes.
    unsafe { core::mem::transmute::<usize, Get>(address)(attributes, &raw mut set) == 0 }
}

/// Creates a thread, which gets the view of its creator's mask, or the mask of its attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    entry: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the program keeps the contract of `pthread_create`; memory from malloc is large and aligned
    // enough for a `Begin`.
    unsafe {
        if is_plain() || threads::blocked() == 0 && !has_mask(attributes) {
            return real::pthread_create(thread, attributes, entry, argument);
        }
        let begin = libc::malloc(size_of::<Begin>()).cast::<Begin>();
        if begin.is_null() {
            return libc::EAGAIN;
        }
        begin.write(Begin { entry, argument });
        let result = shown(|| real::pthread_create(thread, attributes, begin_thread, begin.cast()));
        if result != 0 {
            libc::free(begin.cast());
        }
        result
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(
    thread: *mut c_void,
    entry: *mut c_void,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the program keeps the contract of the C library's function that it called.
    shown(|| unsafe { real::thrd_create(thread, entry, argument) })
}

/// Serves a system call made by number that sets a mask. Returns `None` if the kernel must serve the call,
/// because it sets no mask or its arguments are invalid.
///
/// # Safety
/// The arguments are those of the system call, as the program passed them.
pub unsafe fn by_number(number: c_long, a: [usize; 6]) -> Option<c_long> {
    const MASK_BYTES: usize = size_of::<SignalSet>();
    if is_plain() {
        return None;
    }
    // SAFETY: loads and stores at the program's addresses catch faults; the caller promises the other
    // arguments.
    unsafe {
        let word = |at: usize, bytes: usize| {
            let readable = at != 0 && bytes == MASK_BYTES && signals::ready();
            readable.then(|| guarded_word(at as *const u8).ok()).flatten()
        };
        let call = |a: [usize; 6]| real::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
        let with = |mask: SignalSet, place: usize| {
            waiting_with_word(mask, |mask| {
                let mut arguments = a;
                arguments[place] = &raw const mask as usize;
                call(arguments)
            })
        };
        match number {
            libc::SYS_rt_sigprocmask => {
                let new = set_of(word(a[1], a[3])?);
                let mut old = set_of(0);
                let result = sigprocmask(a[0] as c_int, &raw const new, &raw mut old);
                let old = word_of(&old);
                if result == 0
                    && a[2] != 0
                    && guarded_copy(a[2] as _, (&raw const old).cast(), MASK_BYTES).is_err()
                {
                    return Some(failed(libc::EFAULT).into());
                }
                Some(result.into())
            }
            libc::SYS_rt_sigsuspend => Some(with(word(a[0], a[1])?, 0)),
            libc::SYS_ppoll => Some(with(word(a[3], a[4])?, 3)),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Some(with(word(a[4], a[5])?, 4)),
            libc::SYS_pselect6 | SYS_IO_PGETEVENTS => {
                // The argument is the address of a pair: a pointer to the mask and the mask's size.
                let pointer = word(a[5], MASK_BYTES)?;
                let bytes = word(a[5] + MASK_BYTES, MASK_BYTES)?;
                let mask = word(pointer as usize, bytes as usize)?;
                Some(waiting_with_word(mask, |mask| {
                    let pair = [&raw const mask as usize, MASK_BYTES];
                    call([a[0], a[1], a[2], a[3], a[4], pair.as_ptr() as usize])
                }))
            }
            _ => None,
        }
    }
}

/// Number of io_pgetevents(2), which the libc crate does not define.
pub const SYS_IO_PGETEVENTS: c_long = 333;
