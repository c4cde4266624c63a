//! Containers that are filled here, and the buffer protocol of all.

use crate::errors::{OrRaise, exception};
use crate::hold::{Access, Hold};
use bywash_container::{Cargo, Error};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::ptr;

/// Copies of more bytes are made while other threads run.
pub(crate) const BRIEF_BYTES: usize = 64 << 10;

/// Memory that can be filled and shipped: ``Path.alloc`` makes it.
///
/// It is a writable buffer: ``memoryview(container)`` and ``numpy.frombuffer(container, dtype)`` lead to its bytes
/// without a copy. What is in it at first is what was in it when it was used last, or zeros.
///
/// It cannot be shipped, freed or resized while there is such a view (``BufferError``). When it has been
/// shipped it is the peer's, and every use is a ``ValueError``. One that is not shipped is freed with its last
/// reference, by ``free()``, or at the end of a ``with`` block.
#[pyclass(frozen, module = "bywash")]
pub(crate) struct Container {
    pub(crate) hold: Hold,
}

impl Container {
    pub(crate) fn new(container: bywash_container::Container) -> Container {
        Container { hold: Hold::new(Cargo::Own(container), Access::Fill) }
    }
}

#[pymethods]
impl Container {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.hold.length().or_raise(py)
    }

    /// Bytes that it could hold.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<usize> {
        self.hold.capacity().or_raise(py)
    }

    /// Changes how many bytes will be shipped, up to ``capacity``.
    fn resize(&self, py: Python<'_>, nbytes: usize) -> PyResult<()> {
        let changed = self.hold.fill("resized", |container| {
            if container.resize(nbytes) { Ok(()) } else { Err(container.capacity()) }
        });
        changed.or_raise(py)?.map_err(|most| exception(py, &Error::TooLarge { asked: nbytes, most }))
    }

    /// Copies all bytes of ``data`` into it, from ``offset`` on; answers how many.
    #[pyo3(signature = (data, offset=0))]
    fn copy_from(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>, offset: usize) -> PyResult<usize> {
        let py = slf.py();
        let data = contiguous(data)?;
        let bytes = data.len_bytes();
        let place = slf.get().hold.export().or_raise(py)?;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= place.length);
        if fits && place.writable {
            // SAFETY: within the container, whose bytes stay until `release`, and within what `data` keeps. Somebody
            // who writes there meanwhile mixes up the bytes, as with any call that reads into a buffer.
            unsafe { copy(py, data.buf_ptr().cast(), place.at.add(offset), bytes) };
        }
        slf.get().hold.release();
        match (fits, place.writable) {
            (true, true) => Ok(bytes),
            (true, false) => Err(PyBufferError::new_err(
                "the container was sealed by a ship that did not find room; ship it again, or free it",
            )),
            (false, _) => Err(PyValueError::new_err(format!(
                "{bytes} bytes at {offset} do not fit into a container of {}; resize it, or allocate a larger one",
                place.length
            ))),
        }
    }

    /// Gives the memory back now. Freeing twice, or what was shipped, does nothing.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        self.hold.free().or_raise(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (class, *_rest))]
    fn __exit__(&self, py: Python<'_>, class: &Bound<'_, PyAny>, _rest: &Bound<'_, PyAny>) -> PyResult<()> {
        free_at_exit(py, &self.hold, class)
    }

    fn __repr__(&self) -> String {
        format!("<bywash.Container: {}>", self.hold.describe())
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: Python's view, to be filled for `slf`, which has the hold.
        unsafe { fill_view(slf.as_any(), &slf.get().hold, view, flags) }
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.hold.release();
    }
}

/// Answers a request for a view of a container's bytes.
///
/// # Safety
/// `view` is null or Python's to fill, `object` has the hold, and its `__releasebuffer__` releases it.
pub(crate) unsafe fn fill_view(
    object: &Bound<'_, PyAny>,
    hold: &Hold,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let py = object.py();
    if view.is_null() {
        return Err(PyBufferError::new_err("no place for the view was given"));
    }
    // SAFETY: not null. Python asks for this where no view is made.
    unsafe { (*view).obj = ptr::null_mut() };
    let place = hold.export().or_raise(py)?;
    let length = place.length as ffi::Py_ssize_t;
    // SAFETY: the bytes stay in place until the view is released: the hold has counted it, and the view keeps the
    // object, and so the hold. They may be written if the place says so.
    let filled = unsafe {
        let read_only = c_int::from(!place.writable);
        ffi::PyBuffer_FillInfo(view, object.as_ptr(), place.at.cast(), length, read_only, flags)
    };
    if filled != 0 {
        // There is no view that would be released.
        hold.release();
        return Err(PyErr::fetch(py));
    }
    Ok(())
}

/// Frees at the end of a `with` block. An exception on its way keeps the variables of the block, and with
/// them views; it is more important, and what is viewed is freed after the last view.
pub(crate) fn free_at_exit(py: Python<'_>, hold: &Hold, class: &Bound<'_, PyAny>) -> PyResult<()> {
    let freed = hold.free();
    if class.is_none() { freed.or_raise(py) } else { Ok(()) }
}

/// Source and destination of a copy that is made without the interpreter lock.
struct Places(*const u8, *mut u8);

// SAFETY: addresses; who makes the copy says what may be done there.
unsafe impl Send for Places {}

/// Copies bytes that may overlap.
///
/// # Safety
/// Both places have so many bytes, which stay during the call.
unsafe fn copy(py: Python<'_>, from: *const u8, to: *mut u8, bytes: usize) {
    let places = Places(from, to);
    let work = move || {
        let Places(from, to) = { places };
        // SAFETY: what the caller promises.
        unsafe { ptr::copy(from, to, bytes) };
    };
    if bytes <= BRIEF_BYTES { work() } else { py.detach(work) }
}

/// A buffer of the caller's whose bytes are in one piece.
pub(crate) fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    if buffer.is_c_contiguous() {
        Ok(buffer)
    } else {
        Err(PyBufferError::new_err("the bytes of the buffer are not in one piece; copy them together first"))
    }
}
