//! What a function answers: 0, or a negative number and a text.
//!
//! The text is kept for each thread apart. It is made only when something goes wrong, and costs an allocation
//! then, except where "wrong" is everyday: nothing there yet.

use ::bywash_client::{Code, Error as ClientError};
use ::bywash_container::Error;
use ::bywash_flow::Error as FlowError;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};

/// What functions answer that did not do what they were asked to. All are negative; 0 is success.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_error {
    /// Done.
    BYWASH_OK = 0,
    /// The handle is zero, was freed, closed or shipped, or never was one.
    BYWASH_ERROR_HANDLE = -1,
    /// Another thread is in a call with this handle, and only one at a time can be. Or callbacks reap.
    BYWASH_ERROR_BUSY = -2,
    /// A pointer is null, or a number is none that there is.
    BYWASH_ERROR_ARGUMENT = -3,
    /// It did not happen within the time that was given. With a time of 0: not at once.
    BYWASH_ERROR_TIMED_OUT = -4,
    /// The peer has closed its end, and everything that it had sent has been received.
    BYWASH_ERROR_CLOSED = -5,
    /// The peer is gone without having closed its end.
    BYWASH_ERROR_PEER_DIED = -6,
    /// The peer broke the protocol. The path or channel is of no use any more.
    BYWASH_ERROR_PEER = -7,
    /// The two ends do not fit together.
    BYWASH_ERROR_MISFIT = -8,
    /// No container or buffer of this size can ever be had here.
    BYWASH_ERROR_TOO_LARGE = -9,
    /// A message has from one to BYWASH_PIECES_MAX pieces (on sealed paths to 16); a request to volumes one to 32.
    BYWASH_ERROR_PIECES = -10,
    /// The contents cannot be looked at where they are. Copy them out.
    BYWASH_ERROR_NOT_MAPPED = -11,
    /// This container cannot be shipped on this path, this buffer is of another channel or queue, or this mover cannot
    /// move this flow.
    BYWASH_ERROR_UNFIT = -12,
    /// The end belongs to the process that made it, and this one was forked off.
    BYWASH_ERROR_FORKED = -13,
    /// An option, or what a flow was told, is something that cannot be.
    BYWASH_ERROR_OPTION = -14,
    /// A call of the kernel failed; bywash_last_error_number() says how.
    BYWASH_ERROR_IO = -15,
    /// A million handles of a kind were made and not freed. What was to get one was freed.
    BYWASH_ERROR_FULL = -16,
    /// The arena is used up for now, or as many requests are under way as the channel is deep.
    BYWASH_ERROR_NO_ROOM = -17,
    /// The flow was cancelled.
    BYWASH_ERROR_CANCELLED = -18,
    /// What a flow moved is not what it should be: shorter than it was, not compressed, not of the hash expected.
    BYWASH_ERROR_DATA = -19,
    /// Datagrams were lost on the way.
    BYWASH_ERROR_LOST = -20,
    /// A program that a flow went through failed.
    BYWASH_ERROR_PROGRAM = -21,
    /// You may not do that with the volume, or it was not opened for that.
    BYWASH_ERROR_DENIED = -22,
    /// There is no such volume.
    BYWASH_ERROR_MISSING = -23,
    /// The device server refused it for another reason, which the text tells.
    BYWASH_ERROR_REFUSED = -24,
    /// The right to the volume was taken back. Open it again, if that is still allowed.
    BYWASH_ERROR_REVOKED = -25,
    /// Not whole blocks, or not all within the volume, or lengths that do not fit together.
    BYWASH_ERROR_RANGE = -26,
    /// The device failed, has no room, did not answer in time, or cannot do that.
    BYWASH_ERROR_DEVICE = -27,
    /// The bytes were not what was expected, and nothing was written.
    BYWASH_ERROR_DIFFERS = -28,
    /// The server went while it compared and wrote: whether it wrote is unknown.
    BYWASH_ERROR_UNKNOWN = -29,
    /// Nothing is under way that could be waited for.
    BYWASH_ERROR_IDLE = -30,
}

use bywash_error::*;

/// What went wrong, before C hears of it.
#[derive(Debug)]
pub(crate) struct Failure {
    code: bywash_error,
    number: c_int,
    text: Cow<'static, CStr>,
}

impl Failure {
    pub(crate) const fn fixed(code: bywash_error, text: &'static CStr) -> Failure {
        Failure { code, number: 0, text: Cow::Borrowed(text) }
    }

    pub(crate) const fn null(text: &'static CStr) -> Failure {
        Failure::fixed(BYWASH_ERROR_ARGUMENT, text)
    }

    pub(crate) fn new(code: bywash_error, text: String) -> Failure {
        Failure { code, number: 0, text: Cow::Owned(c_text(text)) }
    }

    /// Nothing was there, or no room, and the caller did not want to wait.
    pub(crate) const NOT_NOW: Failure = Failure::fixed(BYWASH_ERROR_TIMED_OUT, c"not at once");
}

/// A text without zeros in it.
pub(crate) fn c_text(text: String) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::TimedOut | Error::AllocTimedOut { .. } => BYWASH_ERROR_TIMED_OUT,
            Error::Closed => BYWASH_ERROR_CLOSED,
            Error::PeerDied { .. } => BYWASH_ERROR_PEER_DIED,
            Error::Peer { .. } => BYWASH_ERROR_PEER,
            Error::Misfit(_) => BYWASH_ERROR_MISFIT,
            Error::TooLarge { .. } => BYWASH_ERROR_TOO_LARGE,
            Error::UsedUp { .. } | Error::Full { .. } => BYWASH_ERROR_NO_ROOM,
            Error::Pieces { .. } => BYWASH_ERROR_PIECES,
            Error::NotMapped(_) => BYWASH_ERROR_NOT_MAPPED,
            Error::Unfit(_) => BYWASH_ERROR_UNFIT,
            Error::Forked => BYWASH_ERROR_FORKED,
            Error::Option { .. } => BYWASH_ERROR_OPTION,
            Error::Io { .. } => BYWASH_ERROR_IO,
        };
        let number = match &error {
            Error::Io { source, .. } => source.raw_os_error().unwrap_or(0),
            _ => 0,
        };
        Failure { number, ..Failure::new(code, error.to_string()) }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        use ClientError as E;
        let code = match &error {
            E::TimedOut { .. } => BYWASH_ERROR_TIMED_OUT,
            E::Gone { .. } => BYWASH_ERROR_PEER_DIED,
            E::Broken { .. } => BYWASH_ERROR_PEER,
            E::Unknown => BYWASH_ERROR_UNKNOWN,
            E::Refused { refused, .. } => match refused.code {
                Code::Denied => BYWASH_ERROR_DENIED,
                Code::Missing => BYWASH_ERROR_MISSING,
                _ => BYWASH_ERROR_REFUSED,
            },
            E::Denied { .. } => BYWASH_ERROR_DENIED,
            E::NoGrant { .. } | E::Revoked { .. } => BYWASH_ERROR_REVOKED,
            E::OutOfBounds { .. } | E::Misaligned { .. } | E::Lengths { .. } | E::Malformed { .. } => {
                BYWASH_ERROR_RANGE
            }
            E::Scattered { .. } => BYWASH_ERROR_RANGE,
            E::DeviceFailed { .. } | E::DeviceTimedOut { .. } => BYWASH_ERROR_DEVICE,
            E::NoSpace { .. } | E::NotSupported { .. } => BYWASH_ERROR_DEVICE,
            E::Differs { .. } => BYWASH_ERROR_DIFFERS,
            E::NotMapped { .. } => BYWASH_ERROR_NOT_MAPPED,
            E::TooLarge { .. } => BYWASH_ERROR_TOO_LARGE,
            E::UsedUp { .. } | E::Full { .. } => BYWASH_ERROR_NO_ROOM,
            E::Busy => BYWASH_ERROR_BUSY,
            E::Idle => BYWASH_ERROR_IDLE,
            E::Pieces { .. } => BYWASH_ERROR_PIECES,
            E::Foreign { .. } => BYWASH_ERROR_HANDLE,
            E::Option { .. } => BYWASH_ERROR_OPTION,
            // C gives nobody the means to do that.
            E::Interrupted => BYWASH_ERROR_CANCELLED,
            E::Forked => BYWASH_ERROR_FORKED,
            E::Io { .. } => BYWASH_ERROR_IO,
        };
        let number = match &error {
            E::Io { source, .. } => source.raw_os_error().unwrap_or(0),
            _ => 0,
        };
        Failure { number, ..Failure::new(code, error.to_string()) }
    }
}

impl From<&FlowError> for Failure {
    fn from(error: &FlowError) -> Failure {
        let code = match error {
            FlowError::Unfit { .. } => BYWASH_ERROR_UNFIT,
            FlowError::Io { .. } => BYWASH_ERROR_IO,
            FlowError::Data(_) => BYWASH_ERROR_DATA,
            FlowError::Lost(_) => BYWASH_ERROR_LOST,
            FlowError::Program(_) => BYWASH_ERROR_PROGRAM,
            FlowError::Cancelled => BYWASH_ERROR_CANCELLED,
            // What was asked for cannot be.
            _ => BYWASH_ERROR_OPTION,
        };
        let number = match error {
            FlowError::Io { source, .. } => source.raw_os_error().unwrap_or(0),
            _ => 0,
        };
        Failure { number, ..Failure::new(code, error.to_string()) }
    }
}

impl From<FlowError> for Failure {
    fn from(error: FlowError) -> Failure {
        Failure::from(&error)
    }
}

thread_local! {
    static LAST_TEXT: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
    static LAST_NUMBER: Cell<c_int> = const { Cell::new(0) };
}

/// What a function answers to C; keeps the text if something went wrong.
pub(crate) fn answer(done: Result<(), Failure>) -> c_int {
    match done {
        Ok(()) => BYWASH_OK as c_int,
        Err(Failure { code, number, text }) => {
            // A thread that is about to end has no place for it any more.
            let _ = LAST_TEXT.try_with(|last| last.replace(text));
            LAST_NUMBER.set(number);
            code as c_int
        }
    }
}

/// What the last function that failed on this thread has to say: what was wrong, with what, and what to do.
/// Empty if none has failed. Never null. Valid until another function fails on this thread, or the thread ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_last_error_message() -> *const c_char {
    LAST_TEXT.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The kernel's number (errno) for the last failure on this thread, if that was BYWASH_ERROR_IO; else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_last_error_number() -> c_int {
    LAST_NUMBER.get()
}

/// The version that the program is running with: major * 1000000 + minor * 1000 + patch. Compare it with
/// BYWASH_VERSION, the one that it was compiled for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_version() -> u32 {
    const fn number(text: &str) -> u32 {
        let (text, mut value, mut at) = (text.as_bytes(), 0, 0);
        while at < text.len() {
            value = value * 10 + (text[at] - b'0') as u32;
            at += 1;
        }
        value
    }
    const {
        number(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
            + number(env!("CARGO_PKG_VERSION_MINOR")) * 1000
            + number(env!("CARGO_PKG_VERSION_PATCH"))
    }
}
