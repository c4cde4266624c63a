//! Results of functions: 0, or a negative error number and a message.
//!
//! The text is kept for each thread apart. It is made only when something goes wrong, and costs an allocation
//! then, except where "wrong" is everyday: nothing there yet.

use ::bywash_client::{Error as ClientError, RefusalKind};
use ::bywash_container::Error;
use ::bywash_display::Error as DisplayError;
use ::bywash_flow::Error as FlowError;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};

/// Results of functions: 0 is success, every error is negative.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum bywash_error {
    /// Success.
    BYWASH_OK = 0,
    /// The handle is zero, was freed, closed or shipped, or never was one.
    BYWASH_ERROR_HANDLE = -1,
    /// Another thread is in a call with this handle, which one thread at a time may use; or a dispatcher
    /// reaps.
    BYWASH_ERROR_BUSY = -2,
    /// A pointer is null, or a number is not one of its enumeration.
    BYWASH_ERROR_ARGUMENT = -3,
    /// The timeout expired; with a timeout of 0, nothing was ready.
    BYWASH_ERROR_TIMED_OUT = -4,
    /// The peer has closed its end, and everything that the peer had sent has been received; or the user has closed the
    /// window.
    BYWASH_ERROR_CLOSED = -5,
    /// The peer died without closing its end; or the display is gone.
    BYWASH_ERROR_PEER_DIED = -6,
    /// The peer broke the protocol. The path or channel has ended.
    BYWASH_ERROR_PEER = -7,
    /// The two ends have incompatible options or versions.
    BYWASH_ERROR_MISFIT = -8,
    /// The requested container or buffer is larger than the arena allows.
    BYWASH_ERROR_TOO_LARGE = -9,
    /// The number of pieces is out of range: a message has 1 to BYWASH_PIECES_MAX (on sealed paths 1 to 16),
    /// a request to volumes 1 to 32.
    BYWASH_ERROR_PIECES = -10,
    /// The contents cannot be mapped. Copy them out.
    BYWASH_ERROR_NOT_MAPPED = -11,
    /// This container cannot be shipped on this path, this buffer is of another channel or queue, this frame is of
    /// another surface, this mover cannot move this flow, or this display cannot show a surface.
    BYWASH_ERROR_UNFIT = -12,
    /// The handle belongs to the parent of this forked process.
    BYWASH_ERROR_FORKED = -13,
    /// An option, an endpoint or a stage has an invalid value, or no display is named.
    BYWASH_ERROR_OPTION = -14,
    /// A system call failed; bywash_last_error_number() returns its errno.
    BYWASH_ERROR_IO = -15,
    /// A million handles of one kind are in use. The value that needed a new handle was freed.
    BYWASH_ERROR_FULL = -16,
    /// The arena has no free memory at present, as many requests are in flight as the channel is deep, or the program
    /// holds all frames of the surface.
    BYWASH_ERROR_NO_ROOM = -17,
    /// The flow was cancelled.
    BYWASH_ERROR_CANCELLED = -18,
    /// The data of a flow is wrong: the source shrank, is not compressed as stated, or has another hash than
    /// expected.
    BYWASH_ERROR_DATA = -19,
    /// Datagrams were lost on the way.
    BYWASH_ERROR_LOST = -20,
    /// A program that is a stage or an endpoint of a flow failed.
    BYWASH_ERROR_PROGRAM = -21,
    /// The user has no right to do this with the volume, or the volume was opened without that right.
    BYWASH_ERROR_DENIED = -22,
    /// No volume has this name.
    BYWASH_ERROR_MISSING = -23,
    /// The device server refused the request for another reason, or the display did; the message names it.
    BYWASH_ERROR_REFUSED = -24,
    /// The grant to the volume was revoked. Open the volume again, if that is still allowed.
    BYWASH_ERROR_REVOKED = -25,
    /// The range is not a multiple of the block size, exceeds the volume, or the lengths differ.
    BYWASH_ERROR_RANGE = -26,
    /// The device failed, is full, exceeded its timeout, or does not support the operation.
    BYWASH_ERROR_DEVICE = -27,
    /// The volume held other bytes than expected, and nothing was written.
    BYWASH_ERROR_DIFFERS = -28,
    /// The server ended during a compare-and-write: whether the write happened is unknown.
    BYWASH_ERROR_UNKNOWN = -29,
    /// No request is in flight, so that waiting would never end.
    BYWASH_ERROR_IDLE = -30,
}

use bywash_error::*;

/// Error of a call, before it is reported to C.
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
            Error::Protocol { .. } => BYWASH_ERROR_PEER,
            Error::Incompatible(_) => BYWASH_ERROR_MISFIT,
            Error::TooLarge { .. } => BYWASH_ERROR_TOO_LARGE,
            Error::ArenaFull { .. } | Error::Full { .. } => BYWASH_ERROR_NO_ROOM,
            Error::MessageSize { .. } => BYWASH_ERROR_PIECES,
            Error::NotMapped(_) => BYWASH_ERROR_NOT_MAPPED,
            Error::WrongPath(_) => BYWASH_ERROR_UNFIT,
            Error::Forked => BYWASH_ERROR_FORKED,
            Error::Option { .. } => BYWASH_ERROR_OPTION,
            // An error of the kernel, or a later kind of error that has no code yet.
            _ => BYWASH_ERROR_IO,
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
            E::ProtocolViolation { .. } => BYWASH_ERROR_PEER,
            E::OutcomeUnknown => BYWASH_ERROR_UNKNOWN,
            E::Refused { refused, .. } => match refused.code {
                RefusalKind::Denied => BYWASH_ERROR_DENIED,
                RefusalKind::Missing => BYWASH_ERROR_MISSING,
                _ => BYWASH_ERROR_REFUSED,
            },
            E::Denied { .. } => BYWASH_ERROR_DENIED,
            E::NoGrant { .. } | E::Revoked { .. } => BYWASH_ERROR_REVOKED,
            E::OutOfBounds { .. } | E::Misaligned { .. } | E::LengthMismatch { .. } | E::Malformed { .. } => {
                BYWASH_ERROR_RANGE
            }
            E::TooManyExtents { .. } => BYWASH_ERROR_RANGE,
            E::DeviceFailed { .. } | E::DeviceTimedOut { .. } | E::BufferLost => BYWASH_ERROR_DEVICE,
            E::NoSpace { .. } | E::NotSupported { .. } => BYWASH_ERROR_DEVICE,
            E::CompareFailed { .. } => BYWASH_ERROR_DIFFERS,
            E::NotMapped { .. } => BYWASH_ERROR_NOT_MAPPED,
            E::TooLarge { .. } => BYWASH_ERROR_TOO_LARGE,
            E::ArenaFull { .. } | E::Full { .. } => BYWASH_ERROR_NO_ROOM,
            E::Busy => BYWASH_ERROR_BUSY,
            E::Idle => BYWASH_ERROR_IDLE,
            E::PieceCount { .. } => BYWASH_ERROR_PIECES,
            E::Foreign { .. } => BYWASH_ERROR_HANDLE,
            E::Option { .. } => BYWASH_ERROR_OPTION,
            // C gives nobody the means to do that.
            E::Interrupted => BYWASH_ERROR_CANCELLED,
            E::Forked => BYWASH_ERROR_FORKED,
            // An error of the kernel, or a later kind of error that has no code yet.
            _ => BYWASH_ERROR_IO,
        };
        let number = match &error {
            E::Io { source, .. } => source.raw_os_error().unwrap_or(0),
            _ => 0,
        };
        Failure { number, ..Failure::new(code, error.to_string()) }
    }
}

impl From<DisplayError> for Failure {
    fn from(error: DisplayError) -> Failure {
        use DisplayError as E;
        let code = match error {
            E::Memory(error) => return Failure::from(error),
            E::NoDisplay(_) | E::Option { .. } => BYWASH_ERROR_OPTION,
            E::Unsupported { .. } | E::OtherSurface => BYWASH_ERROR_UNFIT,
            E::Gone { .. } => BYWASH_ERROR_PEER_DIED,
            E::Refused { .. } => BYWASH_ERROR_REFUSED,
            E::NotReturned { .. } | E::Silent { .. } => BYWASH_ERROR_TIMED_OUT,
            E::Closed => BYWASH_ERROR_CLOSED,
            E::AllTaken(_) => BYWASH_ERROR_NO_ROOM,
            // An error of the kernel, or a later kind of error that has no code yet.
            _ => BYWASH_ERROR_IO,
        };
        let number = match &error {
            E::Connect { source, .. } | E::Io { source, .. } => source.raw_os_error().unwrap_or(0),
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

/// Converts a result into the return value of a C function, and stores the message of an error for the
/// thread.
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

/// Returns the message of the last function that failed on this thread: the problem, the object, and the
/// remedy. Empty if none has failed; never null. Valid until another function fails on this thread, or the
/// thread ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_last_error_message() -> *const c_char {
    LAST_TEXT.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the errno of the last failure on this thread if that was BYWASH_ERROR_IO, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_last_error_number() -> c_int {
    LAST_NUMBER.get()
}

/// Returns the version of the library that the program runs with: major * 1000000 + minor * 1000 + patch.
/// Compare it with BYWASH_VERSION, the version that the program was compiled for.
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
