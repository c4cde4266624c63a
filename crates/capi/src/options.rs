//! How an end of a path is made: setters that collect what becomes a [`bywash_container::Options`].

use crate::error::bywash_error::{BYWASH_ERROR_ARGUMENT, BYWASH_ERROR_OPTION};
use crate::error::{Failure, answer};
use crate::handles::{Table, bywash_options, consume, put};
use ::bywash_container::{HugePages, Options, Wait};
use std::ffi::c_int;
use std::time::Duration;

/// What an end does with what it receives, and how it ships. The two ends choose on their own, but both or
/// neither must be sealed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_class {
    /// What is received is copied out before it is believed, since the peer could change it meanwhile. The
    /// default, and the one to take if in doubt.
    BYWASH_CLASS_CHECKED = 0,
    /// What is received is looked at where it is. By choosing this you promise that the peer writes nothing
    /// that it has shipped until it has come back. A peer that uses this library and nothing else keeps that;
    /// one that others may have written or broken into does not. If the promise is broken, what you look at
    /// changes under your eyes.
    BYWASH_CLASS_TRUSTED = 1,
    /// As BYWASH_CLASS_TRUSTED, and who receives a container from here may write it in place, if both ends say
    /// so. You also promise that the peer writes nothing that it does not have.
    BYWASH_CLASS_TRUSTED_TO_WRITE = 2,
    /// Each container is memory of its own that nobody can write any more once it was shipped. It can be looked
    /// at where it is without any promise, kept, and shipped on. It costs some system calls for each.
    BYWASH_CLASS_SEALED = 3,
    /// What is received is never mapped here, only shipped on.
    BYWASH_CLASS_FORWARD = 4,
}

/// How an end waits for the other.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_wait {
    /// Spin where that has paid, for 100 us at most, then sleep. The default.
    BYWASH_WAIT_ADAPTIVE = 0,
    /// Spin and never sleep: the shortest latency, for a core of its own.
    BYWASH_WAIT_SPIN = 1,
    /// Sleep at once: nothing to pay while waiting, and the end of the peer is seen at once.
    BYWASH_WAIT_SLEEP = 2,
}

/// Pages of 2 MiB for an arena.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_huge_pages {
    /// Ordinary memory, all of it taken at once and made into huge pages where the kernel can.
    BYWASH_HUGE_PAGES_COLLAPSE = 0,
    /// Pages that were reserved for it (/proc/sys/vm/nr_hugepages), else BYWASH_ERROR_IO.
    BYWASH_HUGE_PAGES_RESERVED = 1,
    /// None; memory is taken as it is used. The default.
    BYWASH_HUGE_PAGES_NO = 2,
}

use bywash_class::*;

/// What has been set. The class is applied last, since it is what may be changed back.
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
            // SAFETY: who chose this class promised what is asked for; see its documentation.
            BYWASH_CLASS_TRUSTED => unsafe { rest.trusted() },
            // SAFETY: as above.
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

/// Makes options: a checked end with an arena of 16 MiB. Free them with bywash_options_free(); paths that were
/// made with them do not need them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_new(options: *mut bywash_options) -> c_int {
    if options.is_null() {
        return answer(Err(Failure::null(c"the pointer for the new options is null")));
    }
    let made = OPTIONS.insert(Chosen { class: BYWASH_CLASS_CHECKED, rest: Options::new() });
    // SAFETY: the caller's variable.
    answer(made.and_then(|made| unsafe { put(options, made, c"") }))
}

/// Frees options and zeroes the handle. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_free(options: *mut bywash_options) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe { consume(&OPTIONS, options) }.map(drop))
}

/// Sets the class, one of enum bywash_class. Read there what the trusted ones ask you to promise.
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

/// Sets the bytes of this end's arena: what it can have out and in the making at a time. Rounded up to pages,
/// from 2 MiB on to 2 MiB. 0: it ships only what it received. Default 16 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_arena_bytes(options: bywash_options, bytes: usize) -> c_int {
    set(options, |rest| rest.arena_bytes(bytes))
}

/// Sets whether the arena has pages of 2 MiB, one of enum bywash_huge_pages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_huge_pages(options: bywash_options, huge_pages: c_int) -> c_int {
    match kind_of_huge_pages(huge_pages) {
        Ok(huge_pages) => set(options, |rest| rest.huge_pages(huge_pages)),
        Err(failure) => answer(Err(failure)),
    }
}

/// Sets how many messages can be on their way at a time: a power of two up to 4096 (else making a path fails
/// with BYWASH_ERROR_OPTION). Default 256.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_depth(options: bywash_options, messages: u32) -> c_int {
    set(options, |rest| rest.depth(messages))
}

/// Sets how many containers the peer can have at a time: a power of two up to 65536 (else making a path fails
/// with BYWASH_ERROR_OPTION). Default 1024.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_containers_out_max(
    options: bywash_options,
    containers: u32,
) -> c_int {
    set(options, |rest| rest.containers_out_max(containers))
}

/// Sets how this end waits, one of enum bywash_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_wait(options: bywash_options, wait: c_int) -> c_int {
    match way_to_wait(wait) {
        Ok(wait) => set(options, |rest| rest.wait(wait)),
        Err(failure) => answer(Err(failure)),
    }
}

/// Sets how many bytes the peer's arena, and those that it passes on, may have together. Default 64 MiB. A peer that
/// brings more is BYWASH_ERROR_MISFIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_peer_arena_bytes_max(
    options: bywash_options,
    bytes: usize,
) -> c_int {
    set(options, |rest| rest.peer_arena_bytes_max(bytes))
}

/// A time that the peer may take to present itself.
pub(crate) fn greeting_limit(limit_ns: i64) -> Result<Duration, Failure> {
    const NEGATIVE: Failure =
        Failure::fixed(BYWASH_ERROR_OPTION, c"the time to present oneself is negative; it must have an end");
    u64::try_from(limit_ns).map(Duration::from_nanos).map_err(|_| NEGATIVE)
}

/// Sets how long, in nanoseconds, the peer may take to present itself when a path is made. Not negative.
/// Default 10 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_options_set_greeting_limit(options: bywash_options, limit_ns: i64) -> c_int {
    match greeting_limit(limit_ns) {
        Ok(limit) => set(options, |rest| rest.greeting_limit(limit)),
        Err(failure) => answer(Err(failure)),
    }
}
