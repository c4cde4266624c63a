//! How the two ends of a channel are made: setters that collect what becomes a [`bywash_channel::Options`], or a
//! [`bywash_channel::ServerOptions`].
//!
//! They are two kinds of handles, and not the options of a path, since hardly a setter means the same for all
//! three: who sets what an end does not have hears of it from the compiler.

use crate::error::{Failure, answer};
use crate::handles::{Table, consume, handles, put};
use crate::options::{greeting_limit, kind_of_huge_pages, way_to_wait};
use crate::path::check_place;
use ::bywash_channel::{Options, ServerOptions};
use std::ffi::{CStr, c_int};

/// How the client's end of a channel is made. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_client_options {
    /// 0: none, which stands for the defaults where a channel is made.
    pub id: u64,
}

/// What a server allows its client, and how it waits. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_server_options {
    /// 0: none, which stands for the defaults where a channel is made.
    pub id: u64,
}

handles! { bywash_client_options bywash_server_options }

/// What has been set. Trust is applied last, since it is what may be changed back.
#[derive(Default)]
struct Chosen {
    trusted: bool,
    rest: Options,
}

static CLIENT_OPTIONS: Table<Chosen> = Table::new();
static SERVER_OPTIONS: Table<ServerOptions> = Table::new();

const NULL: &CStr = c"the pointer for the new options is null";

/// The options of a handle, or the defaults for zero.
pub(crate) fn client_options(handle: bywash_client_options) -> Result<Options, Failure> {
    if handle.id == 0 {
        return Ok(Options::new());
    }
    CLIENT_OPTIONS.look(handle, |chosen| {
        let rest = chosen.rest.clone();
        // SAFETY: who set this promised what is asked for; see `bywash_client_options_set_trusted`.
        if chosen.trusted { unsafe { rest.trusted() } } else { rest }
    })
}

/// As [`client_options`].
pub(crate) fn server_options(handle: bywash_server_options) -> Result<ServerOptions, Failure> {
    if handle.id == 0 {
        return Ok(ServerOptions::new());
    }
    SERVER_OPTIONS.look(handle, |options| options.clone())
}

/// Changes a client's options by what was made of a number.
fn set<V>(
    handle: bywash_client_options,
    value: Result<V, Failure>,
    change: impl FnOnce(Options, V) -> Options,
) -> c_int {
    answer(value.and_then(|value| {
        CLIENT_OPTIONS.look(handle, |chosen| chosen.rest = change(std::mem::take(&mut chosen.rest), value))
    }))
}

/// As [`set`], of a server.
fn allow<V>(
    handle: bywash_server_options,
    value: Result<V, Failure>,
    change: impl FnOnce(ServerOptions, V) -> ServerOptions,
) -> c_int {
    answer(value.and_then(|value| {
        SERVER_OPTIONS.look(handle, |options| *options = change(std::mem::take(options), value))
    }))
}

/// Makes options of a client: a depth of 256, an arena of 16 MiB, a server that is not trusted. Free them with
/// bywash_client_options_free(); channels that were made with them do not need them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_new(options: *mut bywash_client_options) -> c_int {
    answer(check_place(options, NULL).and_then(|()| {
        let made = CLIENT_OPTIONS.insert(Chosen::default())?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(options, made, NULL) }
    }))
}

/// Frees options and zeroes the handle. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_free(options: *mut bywash_client_options) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe { consume(&CLIENT_OPTIONS, options) }.map(drop))
}

/// Sets how many requests can be under way at a time: a power of two up to 16384 (else making a channel fails
/// with BYWASH_ERROR_OPTION). Default 256.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_depth(
    options: bywash_client_options,
    requests: u32,
) -> c_int {
    set(options, Ok(requests), Options::depth)
}

/// Sets the bytes of the arena that buffers are cut from. Rounded up to pages, from 2 MiB on to 2 MiB. 0:
/// requests have no buffers. Default 16 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_arena_bytes(
    options: bywash_client_options,
    bytes: usize,
) -> c_int {
    set(options, Ok(bytes), Options::arena_bytes)
}

/// Sets whether the arena has pages of 2 MiB: BYWASH_HUGE_PAGES_COLLAPSE, or BYWASH_HUGE_PAGES_NO, the default.
/// With BYWASH_HUGE_PAGES_RESERVED making a channel fails with BYWASH_ERROR_OPTION: the server may write to the
/// arena, so it could take such pages away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_huge_pages(
    options: bywash_client_options,
    huge_pages: c_int,
) -> c_int {
    set(options, kind_of_huge_pages(huge_pages), Options::huge_pages)
}

/// Sets whether buffers can be looked at and written where they are (bywash_buffer_map()); 0 is no, the default.
/// By anything else you promise that the server does not touch a buffer but while a request with it is under
/// way. A server that uses this library and nothing else keeps that; one that others may have written or broken
/// into does not. If the promise is broken, what you look at changes under your eyes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_trusted(
    options: bywash_client_options,
    trusted: c_int,
) -> c_int {
    answer(CLIENT_OPTIONS.look(options, |chosen| chosen.trusted = trusted != 0))
}

/// Sets how this end waits, one of enum bywash_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_wait(
    options: bywash_client_options,
    wait: c_int,
) -> c_int {
    set(options, way_to_wait(wait), Options::wait)
}

/// Sets how long, in nanoseconds, the server may take to present itself. Not negative. Default 10 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_greeting_limit(
    options: bywash_client_options,
    limit_ns: i64,
) -> c_int {
    set(options, greeting_limit(limit_ns), Options::greeting_limit)
}

/// Makes options of a server: depths up to 4096 and arenas up to 64 MiB are allowed. Free them with
/// bywash_server_options_free(); channels that were made with them do not need them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_options_new(options: *mut bywash_server_options) -> c_int {
    answer(check_place(options, NULL).and_then(|()| {
        let made = SERVER_OPTIONS.insert(ServerOptions::new())?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(options, made, NULL) }
    }))
}

/// Frees options and zeroes the handle. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_options_free(options: *mut bywash_server_options) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe { consume(&SERVER_OPTIONS, options) }.map(drop))
}

/// Sets how many requests a client may have under way: a power of two up to 16384 (else making a channel fails
/// with BYWASH_ERROR_OPTION). Default 4096. A client that asks for more is BYWASH_ERROR_MISFIT, on both sides.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_options_set_depth_max(
    options: bywash_server_options,
    requests: u32,
) -> c_int {
    allow(options, Ok(requests), ServerOptions::depth_max)
}

/// Sets how many bytes a client's arena may have. Default 64 MiB. It takes address space here; its memory is the
/// client's. A client that asks for more is BYWASH_ERROR_MISFIT, on both sides.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_options_set_arena_bytes_max(
    options: bywash_server_options,
    bytes: usize,
) -> c_int {
    allow(options, Ok(bytes), ServerOptions::arena_bytes_max)
}

/// Sets how this end waits, one of enum bywash_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_options_set_wait(
    options: bywash_server_options,
    wait: c_int,
) -> c_int {
    allow(options, way_to_wait(wait), ServerOptions::wait)
}

/// Sets how long, in nanoseconds, a client may take to present itself. Not negative. Default 10 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_server_options_set_greeting_limit(
    options: bywash_server_options,
    limit_ns: i64,
) -> c_int {
    allow(options, greeting_limit(limit_ns), ServerOptions::greeting_limit)
}
