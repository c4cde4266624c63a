//! Options of the two ends of a channel: setters that build a [`bywash_channel::Options`] or a
//! [`bywash_channel::ServerOptions`].
//!
//! Client, server and path have handles of different types, since hardly a setter means the same for all
//! three. The C compiler so rejects an option that an end does not have.

use crate::error::{Failure, answer};
use crate::handles::{Table, consume, handles, put};
use crate::options::{handshake_timeout, kind_of_huge_pages, way_to_wait};
use crate::path::check_place;
use ::bywash_channel::{Options, ServerOptions};
use std::ffi::{CStr, c_int};

/// Options of the client's end of a channel. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_channel_client_options {
    /// Number of the handle; 0 stands for the defaults where a channel is made.
    pub id: u64,
}

/// Options of the server's end of a channel: limits for its client, and its method of waiting. Used by one
/// thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_channel_server_options {
    /// Number of the handle; 0 stands for the defaults where a channel is made.
    pub id: u64,
}

handles! { bywash_channel_client_options bywash_channel_server_options }

/// Options set so far. Trust is applied last, so that the program can set it several times.
#[derive(Default)]
struct Chosen {
    trusted: bool,
    rest: Options,
}

static CLIENT_OPTIONS: Table<Chosen> = Table::new();
static SERVER_OPTIONS: Table<ServerOptions> = Table::new();

const NULL: &CStr = c"the pointer for the new options is null";

/// The options of a handle, or the defaults for zero.
pub(crate) fn client_options(handle: bywash_channel_client_options) -> Result<Options, Failure> {
    if handle.id == 0 {
        return Ok(Options::new());
    }
    CLIENT_OPTIONS.look(handle, |chosen| {
        let rest = chosen.rest.clone();
        // SAFETY: whoever called `bywash_channel_client_options_set_trusted` promised that the server keeps to the
        // protocol, and touches a buffer only while a request with that buffer is in flight.
        if chosen.trusted { unsafe { rest.trusted() } } else { rest }
    })
}

/// As [`client_options`].
pub(crate) fn server_options(handle: bywash_channel_server_options) -> Result<ServerOptions, Failure> {
    if handle.id == 0 {
        return Ok(ServerOptions::new());
    }
    SERVER_OPTIONS.look(handle, |options| options.clone())
}

/// Changes a client's options by what was made of a number.
fn set<V>(
    handle: bywash_channel_client_options,
    value: Result<V, Failure>,
    change: impl FnOnce(Options, V) -> Options,
) -> c_int {
    answer(value.and_then(|value| {
        CLIENT_OPTIONS.look(handle, |chosen| chosen.rest = change(std::mem::take(&mut chosen.rest), value))
    }))
}

/// As [`set`], of a server.
fn allow<V>(
    handle: bywash_channel_server_options,
    value: Result<V, Failure>,
    change: impl FnOnce(ServerOptions, V) -> ServerOptions,
) -> c_int {
    answer(value.and_then(|value| {
        SERVER_OPTIONS.look(handle, |options| *options = change(std::mem::take(options), value))
    }))
}

/// Creates a client's options with the defaults: a depth of 256, an arena of 16 MiB, a server that is not
/// trusted. Free them with bywash_channel_client_options_free(), at any time after the last channel was made
/// with them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_options_new(
    options: *mut bywash_channel_client_options,
) -> c_int {
    answer(check_place(options, NULL).and_then(|()| {
        let made = CLIENT_OPTIONS.insert(Chosen::default())?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(options, made, NULL) }
    }))
}

/// Frees options and zeroes the handle. A zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_options_free(
    options: *mut bywash_channel_client_options,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&CLIENT_OPTIONS, options) }.map(drop))
}

/// Sets the depth, the greatest number of requests in flight: a power of two up to 16384 (else making a
/// channel fails with BYWASH_ERROR_OPTION). Default 256.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_options_set_depth(
    options: bywash_channel_client_options,
    requests: u32,
) -> c_int {
    set(options, Ok(requests), Options::depth)
}

/// Sets the size of the arena for buffers, in bytes. Rounded up to pages, from 2 MiB on to multiples of 2
/// MiB. With 0 requests have no buffers. Default 16 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_options_set_arena_bytes(
    options: bywash_channel_client_options,
    bytes: usize,
) -> c_int {
    set(options, Ok(bytes), Options::arena_bytes)
}

/// Sets the use of huge pages for the arena: BYWASH_HUGE_PAGES_COLLAPSE, or BYWASH_HUGE_PAGES_NO, the
/// default. With BYWASH_HUGE_PAGES_RESERVED making a channel fails with BYWASH_ERROR_OPTION, since a server
/// that may write to the arena could punch holes into reserved huge pages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_options_set_huge_pages(
    options: bywash_channel_client_options,
    huge_pages: c_int,
) -> c_int {
    set(options, kind_of_huge_pages(huge_pages), Options::huge_pages)
}

/// Sets whether buffers can be used in place (bywash_buffer_map()); 0 is no, the default. With any other
/// value you promise that the server touches a buffer only while a request with the buffer is in flight. A
/// server that uses only this library keeps that promise; a server written or compromised by somebody else
/// may not. If the promise is broken, contents change while you read them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_options_set_trusted(
    options: bywash_channel_client_options,
    trusted: c_int,
) -> c_int {
    answer(CLIENT_OPTIONS.look(options, |chosen| chosen.trusted = trusted != 0))
}

/// Sets the method of waiting, one of enum bywash_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_options_set_wait(
    options: bywash_channel_client_options,
    wait: c_int,
) -> c_int {
    set(options, way_to_wait(wait), Options::wait)
}

/// Sets the timeout of the handshake, in nanoseconds. Not negative. Default 10 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_client_options_set_handshake_timeout(
    options: bywash_channel_client_options,
    limit_ns: i64,
) -> c_int {
    set(options, handshake_timeout(limit_ns), Options::handshake_timeout)
}

/// Creates a server's options with the defaults: depths up to 4096 and arenas up to 64 MiB are allowed. Free
/// them with bywash_channel_server_options_free(), at any time after the last channel was made with them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_options_new(
    options: *mut bywash_channel_server_options,
) -> c_int {
    answer(check_place(options, NULL).and_then(|()| {
        let made = SERVER_OPTIONS.insert(ServerOptions::new())?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(options, made, NULL) }
    }))
}

/// Frees options and zeroes the handle. A zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_options_free(
    options: *mut bywash_channel_server_options,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&SERVER_OPTIONS, options) }.map(drop))
}

/// Sets the greatest depth that a client may choose: a power of two up to 16384 (else making a channel fails
/// with BYWASH_ERROR_OPTION). Default 4096. A greater depth fails with BYWASH_ERROR_MISFIT at both ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_options_set_depth_max(
    options: bywash_channel_server_options,
    requests: u32,
) -> c_int {
    allow(options, Ok(requests), ServerOptions::depth_max)
}

/// Sets the greatest size of a client's arena, in bytes. Default 64 MiB. The arena occupies address space of
/// the server; its memory is charged to the client. A larger arena fails with BYWASH_ERROR_MISFIT at both
/// ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_options_set_arena_bytes_max(
    options: bywash_channel_server_options,
    bytes: usize,
) -> c_int {
    allow(options, Ok(bytes), ServerOptions::arena_bytes_max)
}

/// Sets the method of waiting, one of enum bywash_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_options_set_wait(
    options: bywash_channel_server_options,
    wait: c_int,
) -> c_int {
    allow(options, way_to_wait(wait), ServerOptions::wait)
}

/// Sets the timeout of the handshake, in nanoseconds. Not negative. Default 10 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_channel_server_options_set_handshake_timeout(
    options: bywash_channel_server_options,
    limit_ns: i64,
) -> c_int {
    allow(options, handshake_timeout(limit_ns), ServerOptions::handshake_timeout)
}
