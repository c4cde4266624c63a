//! Volumes of a device server, which Python has as `bywash.serve`.
//!
//! ```text
//!     asks over the server's socket ──► beside: a thread of its own, given up at Ctrl-C
//!     calls of a volume ──────────────► in this thread without the interpreter, asked about Ctrl-C on the way
//!     a queue's waits ────────────────► in slices
//! ```
//!
//! Calls of a volume are not made in a thread of their own, since that would take longer than most of them do, and such
//! a thread would go on writing to a buffer that its program has got back.
//!
//! Invariant: nothing here waits for a lock of the library's, or of a queue's, while it has the interpreter: whoever holds
//! one may be asking about Ctrl-C, for which it needs the interpreter.
//!
//! - `client`, `options`: the connection, and how it is made
//! - `volume`: calls that wait
//! - `queue`, `completion`, `kept`, `buffer`: calls that do not, and what they take along

mod buffer;
mod client;
mod completion;
mod kept;
mod options;
mod queue;
mod volume;

pub(crate) use buffer::Buffer;
pub(crate) use client::Client;
pub(crate) use completion::Completion;
pub(crate) use queue::{Queue, VolumeId};
pub(crate) use volume::Volume;

use crate::container::contiguous;
use crate::errors::storage_exception;
use crate::waiting;
use bywash_client::{Access, Error};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use std::cell::Cell;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::slice;

const ACCESSES: [(&str, Access); 3] =
    [("read", Access::Read), ("write", Access::Write), ("read-write", Access::ReadWrite)];

thread_local! {
    /// Exception that a signal's handler raised while this thread waited in a call.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Returns true if a wait of this thread must end because a signal's handler raised. Handlers run only in the main thread, so
/// that the result is false in all others.
fn is_interrupted() -> bool {
    let asked = Python::try_attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(raised) => {
            RAISED.set(Some(raised));
            true
        }
    });
    // Without an interpreter there is nobody to wait for it.
    asked.unwrap_or(true)
}

/// Calls the library; other threads run meanwhile.
fn call<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    let done = py.detach(work);
    match RAISED.take() {
        // Whatever the library has made of it.
        Some(raised) => Err(raised),
        None => done.map_err(|error| storage_exception(py, &error)),
    }
}

/// Calls the library in a thread of its own: see [`waiting::beside`].
fn beside<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    waiting::beside(py, move || Ok(work()))?.map_err(|error| storage_exception(py, &error))
}

/// A buffer of the caller's that can be written.
fn writable(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = contiguous(object)?;
    if buffer.readonly() {
        return Err(PyBufferError::new_err(
            "the buffer cannot be written; give one that can, as a bytearray",
        ));
    }
    Ok(buffer)
}

/// Returns the bytes of a buffer of the caller.
///
/// # Safety
/// As for any call that is given a buffer: who writes there meanwhile mixes up the bytes.
unsafe fn bytes_of(buffer: &PyUntypedBuffer) -> &[u8] {
    match buffer.len_bytes() {
        0 => &[],
        // SAFETY: in one piece, which stays as long as the buffer is held; the rest is what the caller promises.
        length => unsafe { slice::from_raw_parts(buffer.buf_ptr().cast(), length) },
    }
}

/// Returns the bytes of a buffer of [`writable`], to be written.
///
/// # Safety
/// As [`bytes_of`]; and there must be no other reference to these bytes.
#[expect(clippy::mut_from_ref, reason = "the memory is Python's, and not the value's")]
unsafe fn room_of(buffer: &PyUntypedBuffer) -> &mut [u8] {
    match buffer.len_bytes() {
        0 => &mut [],
        // SAFETY: as in `bytes_of`; it can be written.
        length => unsafe { slice::from_raw_parts_mut(buffer.buf_ptr().cast(), length) },
    }
}

/// A copy of the descriptor of a file object, or of a number.
fn copy_of_descriptor(file: &Bound<'_, PyAny>) -> PyResult<OwnedFd> {
    let number: i32 = match file.extract() {
        Ok(number) => number,
        Err(_) => file.call_method0("fileno")?.extract()?,
    };
    let no = || pyo3::exceptions::PyValueError::new_err(format!("descriptor {number} is not open"));
    if number < 0 {
        return Err(no());
    }
    // SAFETY: borrowed to be copied; a number that is not open is found out by that.
    let copied = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned();
    copied.map_err(|_| no())
}
