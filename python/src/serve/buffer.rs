//! Memory of a queue's arena, whose ownership moves with requests and their completions.

use crate::container::{BRIEF_BYTES, contiguous};
use crate::errors::{OrRaise, exception};
use crate::serve::{bytes_mut_of, bytes_of, writable};
use bywash_client::{Buffer as Inner, RequestMemory};
use bywash_container::Error;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory that moves to the server and back without a copy. ``Queue.alloc`` makes it.
///
/// Pass a buffer to ``Queue.write`` or ``Queue.read_into``: it is in flight until its completion is reaped,
/// whose ``data`` it is, and using it meanwhile raises ``ValueError``. A new buffer holds zeros or the bytes
/// of its last use.
///
/// A buffer is filled and read by copying, since a server that breaks the protocol could write there at any
/// time. With a client made by ``trusted=True`` it is also a writable Python buffer, for ``memoryview`` and
/// NumPy; while such a view exists, it cannot be submitted, resized or freed (``BufferError``).
#[pyclass(frozen, module = "bywash.serve")]
pub(crate) struct Buffer {
    slot: Mutex<Slot>,
}

struct Slot {
    state: State,
    /// Number of views in use.
    exports: usize,
}

enum State {
    Here(Inner),
    InFlight,
    Lost,
    Freed,
}

impl Slot {
    fn inner(&mut self) -> PyResult<&mut Inner> {
        Err(PyValueError::new_err(match &mut self.state {
            State::Here(inner) => return Ok(inner),
            State::InFlight => "the buffer is in flight with a request; reap it first",
            State::Lost => {
                "the buffer was lost: its device did not answer in time, or the server went; allocate another"
            }
            State::Freed => "the buffer was freed; allocate another",
        }))
    }

    fn check_unseen(&self, what: &str) -> PyResult<()> {
        match self.exports {
            0 => Ok(()),
            views => Err(PyBufferError::new_err(format!(
                "the buffer cannot be {what} while it is looked at through {views} view(s), such as a memoryview or a \
                 NumPy array; release or delete them first"
            ))),
        }
    }
}

impl Buffer {
    pub(super) fn new(inner: Inner) -> Buffer {
        Buffer { slot: Mutex::new(Slot { state: State::Here(inner), exports: 0 }) }
    }

    /// Locks the slot. No code under this lock waits or runs Python, which could come back here.
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the memory out, to submit it, and marks the buffer as in flight.
    pub(super) fn take(&self) -> PyResult<Inner> {
        let mut slot = self.slot();
        slot.check_unseen("submitted")?;
        slot.inner()?;
        match std::mem::replace(&mut slot.state, State::InFlight) {
            State::Here(inner) => Ok(inner),
            _ => unreachable!("this was looked at above"),
        }
    }

    /// Puts back the memory that a completion returned; with `None`, or other memory, the buffer is lost.
    pub(super) fn put_back(&self, room: Option<RequestMemory>) {
        self.slot().state = match room {
            Some(RequestMemory::Arena(inner)) => State::Here(inner),
            _ => State::Lost,
        };
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.slot().inner()?.len())
    }

    /// Size of the buffer's memory, in bytes: the largest size that ``resize`` accepts.
    #[getter]
    fn capacity(&self) -> PyResult<usize> {
        Ok(self.slot().inner()?.capacity())
    }

    /// Changes the number of bytes that a request with this buffer reads or writes, up to ``capacity``.
    /// Raises ``TooLargeError`` above it.
    fn resize(&self, py: Python<'_>, nbytes: usize) -> PyResult<()> {
        let mut slot = self.slot();
        slot.check_unseen("resized")?;
        let inner = slot.inner()?;
        let (fits, most) = (inner.resize(nbytes), inner.capacity());
        drop(slot);
        if fits { Ok(()) } else { Err(exception(py, &Error::TooLarge { asked: nbytes, most })) }
    }

    /// Copies all bytes of ``data`` into the buffer, from ``offset`` on. Returns the number of bytes copied.
    #[pyo3(signature = (data, offset=0))]
    fn copy_from(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: usize) -> PyResult<usize> {
        let data = contiguous(data)?;
        // SAFETY: the bytes are valid while `data` is held; a thread that writes to them meanwhile mixes them
        // up, see `bytes_of`.
        let from = unsafe { bytes_of(&data) };
        self.copied(py, from.len(), |inner| {
            let length = inner.len();
            match offset.checked_add(from.len()).is_some_and(|end| end <= length) {
                true => Ok(inner.write(offset, from)),
                false => Err(length),
            }
        })?
        .map_err(|length| {
            let bytes = from.len();
            let text = format!(
                "{bytes} bytes at {offset} do not fit into a buffer of {length}; allocate a larger one"
            );
            PyValueError::new_err(text)
        })
    }

    /// Copies bytes from ``offset`` on into ``buffer``, as many as it has room for. Returns the number of
    /// bytes copied.
    #[pyo3(signature = (buffer, offset=0))]
    fn copy_to(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: usize) -> PyResult<usize> {
        let buffer = writable(buffer)?;
        // SAFETY: the room is valid while `buffer` is held; a thread that uses it meanwhile mixes up the
        // bytes, see `bytes_mut_of`.
        let to = unsafe { bytes_mut_of(&buffer) };
        self.copied(py, to.len(), |inner| inner.read(offset, to))
    }

    /// Returns a copy of the bytes.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let length = self.__len__()?;
        PyBytes::new_with(py, length, |to| self.copied(py, length, |inner| inner.read(0, to)).map(drop))
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.tobytes(py)
    }

    /// Frees the memory now. Does nothing if it was freed before.
    fn free(&self) -> PyResult<()> {
        let mut slot = self.slot();
        slot.check_unseen("freed")?;
        match slot.state {
            State::InFlight => slot.inner().map(drop),
            _ => {
                slot.state = State::Freed;
                Ok(())
            }
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (class, *_rest))]
    fn __exit__(&self, class: &Bound<'_, PyAny>, _rest: &Bound<'_, PyAny>) -> PyResult<()> {
        let freed = self.free();
        if class.is_none() { freed } else { Ok(()) }
    }

    fn __repr__(&self) -> String {
        match &self.slot().state {
            State::Here(inner) => format!("<bywash.serve.Buffer: {} bytes>", inner.len()),
            State::InFlight => "<bywash.serve.Buffer: in flight>".into(),
            State::Lost => "<bywash.serve.Buffer: lost>".into(),
            State::Freed => "<bywash.serve.Buffer: freed>".into(),
        }
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no place for the view was given"));
        }
        // SAFETY: `view` is not null, and Python passes one to be filled. Python requires a null `obj` where
        // no view is made.
        unsafe { (*view).obj = ptr::null_mut() };
        let (at, length) = slf.get().export()?.or_raise(slf.py())?;
        // SAFETY: the bytes stay until the view is released: the view keeps this object, which moves its
        // memory nowhere while views exist. By `trusted`, the program has promised that the server does not
        // write there meanwhile.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), at.cast(), length as ffi::Py_ssize_t, 0, flags)
        };
        if filled != 0 {
            // No view was made, so Python will not release one.
            slf.get().release();
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.release();
    }
}

impl Buffer {
    /// Returns the address and length of the bytes and counts a view. The bytes stay in place until
    /// [`Buffer::release`] was called once for each successful call of this function.
    fn export(&self) -> PyResult<Result<(*mut u8, usize), Error>> {
        let mut slot = self.slot();
        let mapped = slot.inner()?.map_mut().map(|bytes| (bytes.as_mut_ptr(), bytes.len()));
        slot.exports += usize::from(mapped.is_ok());
        Ok(mapped)
    }

    fn release(&self) {
        self.slot().exports -= 1;
    }

    /// Copies from or to the memory. Other threads run during a copy of more than [`BRIEF_BYTES`], for which
    /// the buffer counts as in flight, so that no other thread can use it.
    fn copied<R: Send>(
        &self,
        py: Python<'_>,
        bytes: usize,
        copy: impl FnOnce(&mut Inner) -> R + Send,
    ) -> PyResult<R> {
        let mut slot = self.slot();
        if bytes <= BRIEF_BYTES || slot.exports > 0 {
            return slot.inner().map(copy);
        }
        drop(slot);
        let mut inner = self.take()?;
        let answer = py.detach(|| copy(&mut inner));
        self.slot().state = State::Here(inner);
        Ok(answer)
    }
}
