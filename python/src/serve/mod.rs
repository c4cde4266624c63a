//! Volumes of a device server, which Python knows as `bywash.serve`.
//!
//! ```text
//!     requests to the server's socket ──► beside: a thread of its own, abandoned at Ctrl-C
//!     calls of a volume ────────────────► this thread, without the interpreter; signals are polled on the way
//!     waits of a queue ─────────────────► in slices
//! ```
//!
//! Calls of a volume do not run in a thread of their own: this would take longer than most calls, and such a
//! thread would go on writing to a buffer after its program has got the buffer back.
//!
//! Invariant: no code here waits for a lock of the library or of a queue while it holds the interpreter. A
//! thread that holds such a lock may be polling for signals, for which it needs the interpreter.
//!
//! - `client`, `options`: the connection and its options
//! - `volume`: calls that wait
//! - `queue`, `completion`, `kept`, `buffer`: requests that do not wait, and their memory

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
    /// Exception that a signal handler raised while this thread waited in a call.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Returns true if a wait of this thread must end because a signal handler raised. Signal handlers run in the
/// main thread only; in other threads this returns false.
fn is_interrupted() -> bool {
    let asked = Python::try_attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(raised) => {
            RAISED.set(Some(raised));
            true
        }
    });
    // Without an interpreter no caller waits for the result, so the wait ends.
    asked.unwrap_or(true)
}

/// Calls the library in this thread, while other threads run Python.
fn call<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    let done = py.detach(work);
    match RAISED.take() {
        // A signal handler's exception replaces the library's result.
        Some(raised) => Err(raised),
        None => done.map_err(|error| storage_exception(py, &error)),
    }
}

/// Calls the library in a thread of its own: see [`waiting::beside`].
fn in_own_thread<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    waiting::in_own_thread(py, move || Ok(work()))?.map_err(|error| storage_exception(py, &error))
}

/// Returns a caller's buffer, and an error unless it is contiguous and writable.
fn writable(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = contiguous(object)?;
    if buffer.readonly() {
        return Err(PyBufferError::new_err(
            "the buffer cannot be written; give one that can, as a bytearray",
        ));
    }
    Ok(buffer)
}

/// Returns the bytes of a caller's buffer.
///
/// # Safety
/// No other thread may write to the buffer while the slice is used. Python cannot enforce this: a program
/// that does so mixes up its bytes, as with any call that is given a buffer.
unsafe fn bytes_of(buffer: &PyUntypedBuffer) -> &[u8] {
    match buffer.len_bytes() {
        0 => &[],
        // SAFETY: the buffer is contiguous and stays in place as long as `buffer` is held; the caller answers
        // for writes by others.
        length => unsafe { slice::from_raw_parts(buffer.buf_ptr().cast(), length) },
    }
}

/// Returns the bytes of a buffer of [`writable`], to write to them.
///
/// # Safety
/// Same as [`bytes_of`]; and no other reference to these bytes may exist.
#[expect(clippy::mut_from_ref, reason = "the memory is Python's, and not the value's")]
unsafe fn bytes_mut_of(buffer: &PyUntypedBuffer) -> &mut [u8] {
    match buffer.len_bytes() {
        0 => &mut [],
        // SAFETY: `writable` has checked that the buffer is contiguous and writable; the caller excludes
        // other references.
        length => unsafe { slice::from_raw_parts_mut(buffer.buf_ptr().cast(), length) },
    }
}

/// Duplicates the descriptor of a file object, or the descriptor of a number.
fn copy_of_descriptor(file: &Bound<'_, PyAny>) -> PyResult<OwnedFd> {
    let number: i32 = match file.extract() {
        Ok(number) => number,
        Err(_) => file.call_method0("fileno")?.extract()?,
    };
    let no = || pyo3::exceptions::PyValueError::new_err(format!("descriptor {number} is not open"));
    if number < 0 {
        return Err(no());
    }
    // SAFETY: the descriptor is borrowed only to be duplicated, which fails if the number is not open.
    let copied = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned();
    copied.map_err(|_| no())
}
