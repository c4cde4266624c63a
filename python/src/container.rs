//! Containers that this program allocates and fills, and the buffer protocol of all containers.

use crate::errors::{OrRaise, exception};
use crate::hold::{Access, ContainerSlot};
use crate::records::memory_range;
use bywash_container::{Error, Shipment};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::ptr;

/// Largest copy that is made without releasing the interpreter, in bytes. Other threads run during a larger
/// copy.
pub(crate) const BRIEF_BYTES: usize = 64 << 10;

/// Memory that a program fills and ships to its peer. ``Path.alloc`` makes it.
///
/// A container is a writable buffer: ``memoryview(container)`` and ``numpy.frombuffer(container, dtype)``
/// give its bytes without a copy. A new container holds zeros or the bytes of its last use.
///
/// While such a view exists, the container cannot be shipped, freed or resized (``BufferError``). A container
/// that was shipped belongs to the peer, and every use of it raises ``ValueError``. A container that was not
/// shipped is freed with its last reference, by ``free()``, or at the end of a ``with`` block.
#[pyclass(frozen, module = "bywash")]
pub(crate) struct Container {
    pub(crate) hold: ContainerSlot,
}

impl Container {
    pub(crate) fn new(container: bywash_container::Container) -> Container {
        Container { hold: ContainerSlot::new(Shipment::Own(container), Access::Fill) }
    }
}

#[pymethods]
impl Container {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.hold.length().or_raise(py)
    }

    /// Size of the container's memory, in bytes: the largest size that ``resize`` accepts.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<usize> {
        self.hold.capacity().or_raise(py)
    }

    /// Changes the number of bytes that will be shipped, up to ``capacity``.
    fn resize(&self, py: Python<'_>, nbytes: usize) -> PyResult<()> {
        let changed = self.hold.with_container("resized", |container| {
            if container.resize(nbytes) { Ok(()) } else { Err(container.capacity()) }
        });
        changed.or_raise(py)?.map_err(|most| exception(py, &Error::TooLarge { asked: nbytes, most }))
    }

    /// Copies all bytes of ``data`` into the container, from ``offset`` on. Returns the number of bytes
    /// copied.
    #[pyo3(signature = (data, offset=0))]
    fn copy_from(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>, offset: usize) -> PyResult<usize> {
        let py = slf.py();
        let data = contiguous(data)?;
        let bytes = data.len_bytes();
        let place = slf.get().hold.export().or_raise(py)?;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= place.length);
        if fits && place.writable {
            // SAFETY: the target range lies within the container, whose bytes stay in place until `release`;
            // `data` keeps the source bytes. Another thread that writes to either meanwhile mixes up the
            // bytes, as with any call that reads into a buffer.
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

    /// Descriptor, offset and length of the memory, for a process that maps it by itself, such as a display server.
    /// The descriptor remains the library's: duplicate it, or pass it through a socket. That process can
    /// read the whole arena. Raises
    /// ``NotMappedError`` for contents that are so small that they are outside of shared memory, on a sealed path before
    /// the container is shipped, and if both ends
    /// may write.
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        memory_range(py, self.hold.memory().or_raise(py)?)
    }

    /// Frees the memory now. Does nothing if the container was freed or shipped before.
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
        // SAFETY: Python passes a view to fill for `slf`, which owns the hold.
        unsafe { fill_view(slf.as_any(), &slf.get().hold, view, flags) }
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.hold.release();
    }
}

/// Fills in a view of a container's bytes, as Python's buffer protocol asks for.
///
/// # Safety
/// `view` must be null or valid for Python to fill, `object` must own `hold`, and the `__releasebuffer__` of
/// `object` must release the hold.
pub(crate) unsafe fn fill_view(
    object: &Bound<'_, PyAny>,
    hold: &ContainerSlot,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let py = object.py();
    if view.is_null() {
        return Err(PyBufferError::new_err("no place for the view was given"));
    }
    // SAFETY: `view` is not null, and the caller says that it is valid. Python requires a null `obj` where no
    // view is made.
    unsafe { (*view).obj = ptr::null_mut() };
    let place = hold.export().or_raise(py)?;
    let length = place.length as ffi::Py_ssize_t;
    // SAFETY: the bytes stay in place until the view is released: `hold.export` has counted the view, which
    // keeps `object` and so the hold. The view is writable only if `place.writable` says so.
    let filled = unsafe {
        let read_only = c_int::from(!place.writable);
        ffi::PyBuffer_FillInfo(view, object.as_ptr(), place.at.cast(), length, read_only, flags)
    };
    if filled != 0 {
        // No view was made, so Python will not release one.
        hold.release();
        return Err(PyErr::fetch(py));
    }
    Ok(())
}

/// Frees a container at the end of a `with` block. If an exception leaves the block, a failure to free is not
/// raised: the exception matters more. The traceback keeps the block's variables and their views, and a
/// viewed container is freed after its last view.
pub(crate) fn free_at_exit(py: Python<'_>, hold: &ContainerSlot, class: &Bound<'_, PyAny>) -> PyResult<()> {
    let freed = hold.free();
    if class.is_none() { freed.or_raise(py) } else { Ok(()) }
}

/// Source and target of a copy that is made while other threads run.
struct CopyRange(*const u8, *mut u8);

// SAFETY: these are plain addresses; the function that copies answers for the memory behind them.
unsafe impl Send for CopyRange {}

/// Copies `bytes` bytes; the two ranges may overlap.
///
/// # Safety
/// `from` must be readable and `to` writable for `bytes` bytes, and both ranges must stay in place during the
/// call.
unsafe fn copy(py: Python<'_>, from: *const u8, to: *mut u8, bytes: usize) {
    let places = CopyRange(from, to);
    let work = move || {
        let CopyRange(from, to) = { places };
        // SAFETY: the caller keeps both ranges valid during the call.
        unsafe { ptr::copy(from, to, bytes) };
    };
    if bytes <= BRIEF_BYTES { work() } else { py.detach(work) }
}

/// Returns a caller's buffer, and an error unless its bytes are contiguous.
pub(crate) fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    if buffer.is_c_contiguous() {
        Ok(buffer)
    } else {
        Err(PyBufferError::new_err("the bytes of the buffer are not in one piece; copy them together first"))
    }
}
