//! A connection to a device server, for all threads of a program.

use crate::error::{Failure, answer, c_text};
use crate::handles::{Table, consume, handles, put};
use crate::options::{one_of, way_to_wait};
use crate::path::{check_place, name_of};
use crate::text;
use crate::text::bywash_text;
use ::bywash_client::{Client, Options, PathChoice, Reconnect};
use std::ffi::{CStr, c_char, c_int};
use std::time::Duration;

/// A connection to a device server. May be used by several threads at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_client {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

/// Options of a connection to a device server. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_client_options {
    /// Number of the handle; 0 stands for the defaults.
    pub id: u64,
}

handles! { bywash_client bywash_client_options }

/// Choice between mapped memory and the channel for access to volumes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_choice {
    /// Mapped memory where the device is memory that can be mapped, else the channel. The default.
    BYWASH_CHOICE_AUTOMATIC = 0,
    /// Mapped memory; opening a volume that cannot be mapped fails.
    BYWASH_CHOICE_MAPPED = 1,
    /// The channel, always.
    BYWASH_CHOICE_CHANNEL = 2,
}

pub(crate) static CLIENTS: Table<Client> = Table::new();
static OPTIONS: Table<Chosen> = Table::new();

/// Options that C has.
#[derive(Default)]
struct Chosen {
    rest: Options,
    trusted: bool,
}

const NULL_CLIENT: &CStr = c"the pointer for the new connection is null";
const NULL_OPTIONS: &CStr = c"the pointer for the new options is null";

/// A client that stays alive as long as the answer.
pub(crate) fn client(handle: bywash_client) -> Result<Client, Failure> {
    CLIENTS.look(handle, |client| client.clone())
}

/// Changes options by what was made of a number.
fn set<V>(
    options: bywash_client_options,
    value: Result<V, Failure>,
    change: impl FnOnce(Options, V) -> Options,
) -> c_int {
    answer(value.and_then(|value| {
        OPTIONS.look(options, |chosen| chosen.rest = change(std::mem::take(&mut chosen.rest), value))
    }))
}

/// Creates options with the defaults: a timeout of 10 s for every response, a depth of 256 and an arena of 16
/// MiB (or as much as the server allows), no reconnecting. Free them with bywash_client_options_free(), at
/// any time after the last connection was made with them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_new(options: *mut bywash_client_options) -> c_int {
    answer(check_place(options, NULL_OPTIONS).and_then(|()| {
        let made = OPTIONS.insert(Chosen::default())?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(options, made, NULL_OPTIONS) }
    }))
}

/// Frees options and zeroes the handle. A zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_free(options: *mut bywash_client_options) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&OPTIONS, options) }.map(drop))
}

/// Sets the name of the program in the server's reports: 64 bytes at most (else connecting fails with
/// BYWASH_ERROR_OPTION). Default: the name of the program's file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_name(
    options: bywash_client_options,
    name: *const c_char,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a text that ends with a zero.
    let name = unsafe { name_of(name) }.map(|name| name.to_string_lossy().into_owned());
    set(options, name, |options, name| options.name(name))
}

/// Sets the timeout for every response of the server, in nanoseconds. Default 10 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_limit(
    options: bywash_client_options,
    limit_ns: u64,
) -> c_int {
    set(options, Ok(Duration::from_nanos(limit_ns)), Options::limit)
}

/// Sets the depth, the greatest number of requests in flight: a power of two (else making a channel fails
/// with BYWASH_ERROR_OPTION).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_depth(
    options: bywash_client_options,
    requests: u32,
) -> c_int {
    set(options, Ok(requests), Options::depth)
}

/// Sets the size, in bytes, of the arena through which reads and writes of volumes that are not mapped are
/// copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_arena_bytes(
    options: bywash_client_options,
    bytes: usize,
) -> c_int {
    set(options, Ok(bytes), Options::arena_bytes)
}

/// Sets the method of waiting for completions, one of enum bywash_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_wait(
    options: bywash_client_options,
    wait: c_int,
) -> c_int {
    set(options, way_to_wait(wait), Options::wait)
}

/// Sets the choice between mapped memory and the channel, one of enum bywash_choice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_choice(
    options: bywash_client_options,
    choice: c_int,
) -> c_int {
    let choices = [PathChoice::Automatic, PathChoice::Mapped, PathChoice::Channel];
    set(options, one_of("the way to volumes", choice, &choices), Options::choice)
}

/// Sets how long, in nanoseconds, the library tries to reconnect after the server has ended. Requests without
/// a completion are then submitted again, except compare-and-write (BYWASH_ERROR_UNKNOWN). With 0, the
/// default, requests in flight and all later ones fail with BYWASH_ERROR_PEER_DIED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_reconnect(
    options: bywash_client_options,
    within_ns: u64,
) -> c_int {
    let reconnect = match within_ns {
        0 => Reconnect::No,
        within => Reconnect::Within(Duration::from_nanos(within)),
    };
    set(options, Ok(reconnect), Options::reconnect)
}

/// Sets whether buffers of queues can be used in place (bywash_buffer_map()); 0 is no, the default. With any
/// other value you promise that the server touches a buffer only while a request with the buffer is in
/// flight. If the promise is broken, contents change while you read them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_options_set_trusted(
    options: bywash_client_options,
    trusted: c_int,
) -> c_int {
    answer(OPTIONS.look(options, |chosen| chosen.trusted = trusted != 0))
}

/// Connects to the device server that listens at a name. Options of 0 stand for the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_connect(
    name: *const c_char,
    options: bywash_client_options,
    client: *mut bywash_client,
) -> c_int {
    answer(check_place(client, NULL_CLIENT).and_then(|()| {
        let options = match options.id {
            0 => Options::new(),
            _ => OPTIONS.look(options, |Chosen { rest, trusted }| match trusted {
                false => rest.clone(),
                // SAFETY: whoever called `bywash_client_options_set_trusted` promised that the server keeps to the
                // protocol, and touches a buffer only while a request with that buffer is in flight.
                true => unsafe { rest.clone().trusted() },
            })?,
        };
        // SAFETY: the header's rule: a pointer is null or valid, here to a text that ends with a zero.
        let connected = Client::connect(unsafe { name_of(name) }?, options)?;
        let handle = CLIENTS.insert(connected)?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(client, handle, NULL_CLIENT) }
    }))
}

/// Closes a connection and zeroes the handle. Volumes that were opened with the connection remain open. A
/// zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_close(client: *mut bywash_client) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&CLIENTS, client) }.map(drop))
}

/// Hands a report over as JSON.
///
/// # Safety
/// As [`put`].
unsafe fn hand_report(
    report: Result<impl serde::Serialize, ::bywash_client::Error>,
    text: *mut bywash_text,
) -> c_int {
    answer(check_place(text, text::NULL_TEXT).and_then(|()| {
        let json = serde_json::to_string(&report?).map_err(std::io::Error::from);
        let json = json.map_err(|error| ::bywash_channel::Error::io("write a report", error))?;
        // SAFETY: the caller keeps the contract in this function's Safety section.
        unsafe { text::hand_out(c_text(json), text) }
    }))
}

/// Returns the volumes that the user may see, as a JSON list. Free the text with bywash_text_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_volumes(client: bywash_client, text: *mut bywash_text) -> c_int {
    match self::client(client) {
        // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
        Ok(client) => unsafe { hand_report(client.volumes(), text) },
        Err(failure) => answer(Err(failure)),
    }
}

/// Returns the status of the server, as JSON. Free the text with bywash_text_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_client_status(client: bywash_client, text: *mut bywash_text) -> c_int {
    match self::client(client) {
        // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
        Ok(client) => unsafe { hand_report(client.status(), text) },
        Err(failure) => answer(Err(failure)),
    }
}
