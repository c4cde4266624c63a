//! A connection to a device server, for all threads of a program.

use crate::error::{Failure, answer, c_text};
use crate::handles::{Table, consume, handles, put};
use crate::options::{one_of, way_to_wait};
use crate::path::{check_place, name_of};
use crate::text;
use crate::text::bywash_text;
use ::bywash_client::{Choice, Client, Options, Reconnect};
use std::ffi::{CStr, c_char, c_int};
use std::time::Duration;

/// A connection to a device server. May be used by several threads at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_storage {
    /// 0: none.
    pub id: u64,
}

/// How a connection to a device server is made. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_storage_options {
    /// 0: none, which stands for the defaults.
    pub id: u64,
}

handles! { bywash_storage bywash_storage_options }

/// Which way to volumes is wanted.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_choice {
    /// Mapped where the medium is memory that can be mapped, else through the channel. The default.
    BYWASH_CHOICE_AUTOMATIC = 0,
    /// Mapped, or not at all.
    BYWASH_CHOICE_MAPPED = 1,
    /// Through the channel, always.
    BYWASH_CHOICE_CHANNEL = 2,
}

pub(crate) static STORAGE: Table<Client> = Table::new();
static OPTIONS: Table<Chosen> = Table::new();

/// Options that C has.
#[derive(Default)]
struct Chosen {
    rest: Options,
    trusted: bool,
}

const NULL_STORAGE: &CStr = c"the pointer for the new connection is null";
const NULL_OPTIONS: &CStr = c"the pointer for the new options is null";

/// A client that stays alive as long as the answer.
pub(crate) fn storage(handle: bywash_storage) -> Result<Client, Failure> {
    STORAGE.look(handle, |client| client.clone())
}

/// Changes options by what was made of a number.
fn set<V>(
    options: bywash_storage_options,
    value: Result<V, Failure>,
    change: impl FnOnce(Options, V) -> Options,
) -> c_int {
    answer(value.and_then(|value| {
        OPTIONS.look(options, |chosen| chosen.rest = change(std::mem::take(&mut chosen.rest), value))
    }))
}

/// Makes options: 10 s for every answer, a depth of 256 and an arena of 16 MiB or what the server allows, no connecting
/// again. Free them with bywash_storage_options_free(); connections that were made with them do not need them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_options_new(options: *mut bywash_storage_options) -> c_int {
    answer(check_place(options, NULL_OPTIONS).and_then(|()| {
        let made = OPTIONS.insert(Chosen::default())?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(options, made, NULL_OPTIONS) }
    }))
}

/// Frees options and zeroes the handle. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_options_free(options: *mut bywash_storage_options) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe { consume(&OPTIONS, options) }.map(drop))
}

/// Sets what the server's reports call the program: 64 bytes at most (else connecting fails with BYWASH_ERROR_OPTION).
/// Default: its file's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_options_set_name(
    options: bywash_storage_options,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller's text, or null.
    let name = unsafe { name_of(name) }.map(|name| name.to_string_lossy().into_owned());
    set(options, name, |options, name| options.name(name))
}

/// Sets how long the server may take for every answer. Default 10 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_options_set_limit(
    options: bywash_storage_options,
    limit_ns: u64,
) -> c_int {
    set(options, Ok(Duration::from_nanos(limit_ns)), Options::limit)
}

/// Sets how many requests can be under way at a time: a power of two (else BYWASH_ERROR_OPTION when there is to be a
/// channel).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_options_set_depth(
    options: bywash_storage_options,
    requests: u32,
) -> c_int {
    set(options, Ok(requests), Options::depth)
}

/// Sets the bytes of the arena that what is read and written is copied through where it is not mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_options_set_arena_bytes(
    options: bywash_storage_options,
    bytes: usize,
) -> c_int {
    set(options, Ok(bytes), Options::arena_bytes)
}

/// Sets how completions are waited for, to one of enum bywash_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_options_set_wait(
    options: bywash_storage_options,
    wait: c_int,
) -> c_int {
    set(options, way_to_wait(wait), Options::wait)
}

/// Sets which way to volumes is wanted, to one of enum bywash_choice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_options_set_choice(
    options: bywash_storage_options,
    choice: c_int,
) -> c_int {
    let choices = [Choice::Automatic, Choice::Mapped, Choice::Channel];
    set(options, one_of("the way to volumes", choice, &choices), Options::choice)
}

/// Sets for how long it is tried to connect again when the server has gone; what was not completed is submitted again
/// then, but for comparing and writing (BYWASH_ERROR_UNKNOWN). 0, the default: what is under way fails with
/// BYWASH_ERROR_PEER_DIED, and so does what comes later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_options_set_reconnect(
    options: bywash_storage_options,
    within_ns: u64,
) -> c_int {
    let reconnect = match within_ns {
        0 => Reconnect::No,
        within => Reconnect::Within(Duration::from_nanos(within)),
    };
    set(options, Ok(reconnect), Options::reconnect)
}

/// Sets whether buffers of queues can be looked at and written where they are (bywash_buffer_map()); 0 is no, the default.
/// By anything else you promise that the server does not touch a buffer but while a request with it is under way. If the
/// promise is broken, what you look at changes under your eyes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_options_set_trusted(
    options: bywash_storage_options,
    trusted: c_int,
) -> c_int {
    answer(OPTIONS.look(options, |chosen| chosen.trusted = trusted != 0))
}

/// Connects to the device server that listens at a name. Zero options are the defaults.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_connect(
    name: *const c_char,
    options: bywash_storage_options,
    storage: *mut bywash_storage,
) -> c_int {
    answer(check_place(storage, NULL_STORAGE).and_then(|()| {
        let options = match options.id {
            0 => Options::new(),
            _ => OPTIONS.look(options, |Chosen { rest, trusted }| match trusted {
                false => rest.clone(),
                // SAFETY: who set this promised what is asked for; see `bywash_storage_options_set_trusted`.
                true => unsafe { rest.clone().trusted() },
            })?,
        };
        // SAFETY: the caller's text, or null.
        let client = Client::connect(unsafe { name_of(name) }?, options)?;
        let handle = STORAGE.insert(client)?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(storage, handle, NULL_STORAGE) }
    }))
}

/// Closes a connection and zeroes the handle; volumes that were opened with it stay open. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_close(storage: *mut bywash_storage) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe { consume(&STORAGE, storage) }.map(drop))
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
        // SAFETY: what the caller promises.
        unsafe { text::hand_out(c_text(json), text) }
    }))
}

/// Tells which volumes you may see, as a JSON list. Free the text with bywash_text_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_volumes(storage: bywash_storage, text: *mut bywash_text) -> c_int {
    match self::storage(storage) {
        // SAFETY: the caller's variable, or null.
        Ok(client) => unsafe { hand_report(client.volumes(), text) },
        Err(failure) => answer(Err(failure)),
    }
}

/// Tells what the server does, as JSON. Free the text with bywash_text_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_storage_status(storage: bywash_storage, text: *mut bywash_text) -> c_int {
    match self::storage(storage) {
        // SAFETY: the caller's variable, or null.
        Ok(client) => unsafe { hand_report(client.status(), text) },
        Err(failure) => answer(Err(failure)),
    }
}
