//! Options of one end of a path: setters that build a [`bywash_container::Options`].

use crate::error::bywash_error::{BYWASH_ERROR_ARGUMENT, BYWASH_ERROR_OPTION};
use crate::error::{Failure, answer};
use crate::handles::{Table, bywash_options, consume, put};
use ::bywash_container::{HugePages, Options, Wait};
use std::ffi::c_int;
use std::time::Duration;

/// Treatment of received containers, and manner of shipping. Each end chooses its own class, but both ends or
/// neither must be sealed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_class {
    /// Received contents are copied out before use, since the peer could change them meanwhile. The default,
    /// and the right choice if in doubt.
    BYWASH_CLASS_CHECKED = 0,
    /// Received contents are used in place. By choosing this class you promise that the peer does not write a
    /// container between shipping it and getting it back. A peer that uses only this library keeps that
    /// promise; a peer written or compromised by somebody else may not. If the promise is broken, contents
    /// change while you read them.
    BYWASH_CLASS_TRUSTED = 1,
    /// Like BYWASH_CLASS_TRUSTED, and a receiver may also write containers of the other end in place, if both
    /// ends choose this class. You also promise that the peer writes only containers that it holds.
    BYWASH_CLASS_TRUSTED_TO_WRITE = 2,
    /// Each container is memory of its own, sealed against writing when it is shipped. The receiver can use
    /// it in place without any promise, keep it, and ship it on. Each container costs some system calls.
    BYWASH_CLASS_SEALED = 3,
    /// Received containers are never mapped at this end, only shipped on.
    BYWASH_CLASS_FORWARD = 4,
}

/// Method of waiting for the other end.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_wait {
    /// Spin for up to 100 us where spinning has paid recently, then sleep. The default.
    BYWASH_WAIT_ADAPTIVE = 0,
    /// Spin and never sleep: the shortest latency, at the price of a processor core.
    BYWASH_WAIT_SPIN = 1,
    /// Sleep at once: waiting costs no processor time, and the death of the peer is noticed at once.
    BYWASH_WAIT_SLEEP = 2,
}

/// Use of huge pages (2 MiB) for an arena.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_huge_pages {
    /// Ordinary memory, all of it allocated at once and collapsed into huge pages where the kernel can.
    BYWASH_HUGE_PAGES_COLLAPSE = 0,
    /// Reserved huge pages (/proc/sys/vm/nr_hugepages); BYWASH_ERROR_IO if too few are reserved.
    BYWASH_HUGE_PAGES_RESERVED = 1,
    /// No huge pages; pages are allocated when they are first used. The default.
    BYWASH_HUGE_PAGES_NO = 2,
}

use bywash_class::*;

/// Options set so far. The class is applied last, so that the program can set it several times.
pub(crate) struct Chosen {
    class: bywash_class,
    rest: Options,
}

pub(crate) static OPTIONS: Table<Chosen> = Table::new();

impl Chosen {
    fn options(&self) -> Options {
        let rest = self.rest.clone();
        match self.class {
            BYWASH_CLASS_CHECKED => rest,
            // SAFETY: by choosing this class the caller promised what its documentation requires.
            BYWASH_CLASS_TRUSTED => unsafe { rest.trusted() },
            // SAFETY: by choosing this class the caller promised what its documentation requires.
            BYWASH_CLASS_TRUSTED_TO_WRITE => unsafe { rest.trusted_to_write() },
            BYWASH_CLASS_SEALED => rest.sealed(),
            BYWASH_CLASS_FORWARD => rest.forward(),
        }
    }
}

/// The options of a handle, or the defaults for zero.
pub(crate) fn chosen(handle: bywash_options) -> Result<Options, Failure> {
    if handle.id == 0 { Ok(Options::new()) } else { OPTIONS.look(handle, |chosen| chosen.options()) }
}

fn set(handle: bywash_options, change: impl FnOnce(Options) -> Options) -> c_int {
    answer(OPTIONS.look(handle, |chosen| chosen.rest = change(std::mem::take(&mut chosen.rest))))
}

/// One of the values of an enum.
pub(crate) fn one_of<V: Copy>(what: &str, number: c_int, values: &[V]) -> Result<V, Failure> {
    let found = usize::try_from(number).ok().and_then(|at| values.get(at).copied());
    found.ok_or_else(|| {
        let most = values.len() - 1;
        Failure::new(BYWASH_ERROR_ARGUMENT, format!("{what} {number} is none of 0 to {most}"))
    })
}

/// One of enum bywash_wait.
pub(crate) fn way_to_wait(number: c_int) -> Result<Wait, Failure> {
    one_of("the way to wait", number, &[Wait::Adaptive, Wait::Spin, Wait::Sleep])
}

/// One of enum bywash_huge_pages.
pub(crate) fn kind_of_huge_pages(number: c_int) -> Result<HugePages, Failure> {
    one_of("the kind of huge pages", number, &[HugePages::Collapse, HugePages::Reserved, HugePages::No])
}

/// Creates options with the defaults: a checked end with an arena of 16 MiB. Free them with
/// bywash_options_free(), at any time after the last path was made with them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_new(options: *mut bywash_options) -> c_int {
    if options.is_null() {
        return answer(Err(Failure::null(c"the pointer for the new options is null")));
    }
    let made = OPTIONS.insert(Chosen { class: BYWASH_CLASS_CHECKED, rest: Options::new() });
    // SAFETY: valid by the header's rule for pointers, and the variable is the caller's.
    answer(made.and_then(|made| unsafe { put(options, made, c"") }))
}

/// Frees options and zeroes the handle. A zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_free(options: *mut bywash_options) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&OPTIONS, options) }.map(drop))
}

/// Sets the class, one of enum bywash_class, which states what the trusted classes require you to promise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_class(options: bywash_options, which: c_int) -> c_int {
    let all = [
        BYWASH_CLASS_CHECKED,
        BYWASH_CLASS_TRUSTED,
        BYWASH_CLASS_TRUSTED_TO_WRITE,
        BYWASH_CLASS_SEALED,
        BYWASH_CLASS_FORWARD,
    ];
    let class = one_of("the class", which, &all);
    answer(class.and_then(|class| OPTIONS.look(options, |chosen| chosen.class = class)))
}

/// Sets the size of this end's arena, in bytes: the greatest sum of containers that are being filled or are
/// held by the peer. Rounded up to pages, from 2 MiB on to multiples of 2 MiB. With 0 this end ships only
/// what it received. Default 16 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_arena_bytes(options: bywash_options, bytes: usize) -> c_int {
    set(options, |rest| rest.arena_bytes(bytes))
}

/// Sets the use of huge pages for the arena, one of enum bywash_huge_pages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_huge_pages(options: bywash_options, huge_pages: c_int) -> c_int {
    match kind_of_huge_pages(huge_pages) {
        Ok(huge_pages) => set(options, |rest| rest.huge_pages(huge_pages)),
        Err(failure) => answer(Err(failure)),
    }
}

/// Sets the greatest number of messages in flight in each direction: a power of two up to 4096 (else making a
/// path fails with BYWASH_ERROR_OPTION). Default 256.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_depth(options: bywash_options, messages: u32) -> c_int {
    set(options, |rest| rest.depth(messages))
}

/// Sets the greatest number of containers that the peer can hold: a power of two up to 65536 (else making a
/// path fails with BYWASH_ERROR_OPTION). Default 1024.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_containers_out_max(
    options: bywash_options,
    containers: u32,
) -> c_int {
    set(options, |rest| rest.containers_shipped_max(containers))
}

/// Sets the method of waiting, one of enum bywash_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_wait(options: bywash_options, wait: c_int) -> c_int {
    match way_to_wait(wait) {
        Ok(wait) => set(options, |rest| rest.wait(wait)),
        Err(failure) => answer(Err(failure)),
    }
}

/// Sets the greatest sum of the peer's arena and the arenas that the peer passes on, in bytes. Default 64
/// MiB. A peer with more is refused with BYWASH_ERROR_MISFIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_peer_arena_bytes_max(
    options: bywash_options,
    bytes: usize,
) -> c_int {
    set(options, |rest| rest.peer_arena_bytes_max(bytes))
}

/// A time that the peer may take to present itself.
pub(crate) fn handshake_timeout(limit_ns: i64) -> Result<Duration, Failure> {
    const NEGATIVE: Failure =
        Failure::fixed(BYWASH_ERROR_OPTION, c"the time to present oneself is negative; it must have an end");
    u64::try_from(limit_ns).map(Duration::from_nanos).map_err(|_| NEGATIVE)
}

/// Sets the timeout of the handshake, in nanoseconds, when a path is made. Not negative. Default 10 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_handshake_timeout(
    options: bywash_options,
    limit_ns: i64,
) -> c_int {
    match handshake_timeout(limit_ns) {
        Ok(limit) => set(options, |rest| rest.handshake_timeout(limit)),
        Err(failure) => answer(Err(failure)),
    }
}
