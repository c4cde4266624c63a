//! Pools: containers for a process that maps the arena by itself.

use crate::errors::{OrRaise, closed};
use crate::options::one_of;
use crate::records::memory_range;
use crate::view::{ViewSlot, Writable};
use bywash_container::{MemoryRange, Trust};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// Trusts by their names.
const TRUSTS: [(&str, Trust); 2] = [("reader", Trust::Reader), ("writer", Trust::Writer)];

/// Arena whose containers go to a process that maps it by itself, such as a display server.
///
/// ``trust`` says what those may do who get its descriptor: ``"reader"``, read only, which the kernel enforces; or
/// ``"writer"``, also write, at any time, as a Wayland compositor does.
#[pyclass(frozen, module = "bywash")]
pub(crate) struct Pool {
    pool: Mutex<Option<bywash_container::Pool>>,
}

impl Pool {
    fn open(&self) -> PyResult<bywash_container::Pool> {
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.clone().ok_or_else(|| closed("pool"))
    }
}

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (nbytes, *, trust=None), text_signature = "(nbytes, *, trust='reader')")]
    fn new(py: Python<'_>, nbytes: usize, trust: Option<&Bound<'_, PyAny>>) -> PyResult<Pool> {
        let trust = trust.map_or(Ok(Trust::Reader), |trust| one_of("trust", trust, &TRUSTS))?;
        let pool = bywash_container::Pool::create(nbytes, trust).or_raise(py)?;
        Ok(Pool { pool: Mutex::new(Some(pool)) })
    }

    /// Size of the pool, in bytes: ``nbytes``, rounded up.
    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        Ok(self.open()?.bytes())
    }

    /// Descriptor of the memory, for the other process. It remains the library's: duplicate it, or pass it through a
    /// socket.
    fn fileno(&self) -> PyResult<RawFd> {
        Ok(self.open()?.as_fd().as_raw_fd())
    }

    /// Allocates a container of ``nbytes`` bytes. Raises ``TooLargeError`` if the pool can never hold so many, and
    /// ``NoRoomError`` if it has no room now.
    fn alloc(&self, py: Python<'_>, nbytes: usize) -> PyResult<PoolContainer> {
        let container = self.open()?.alloc(nbytes).or_raise(py)?;
        Ok(PoolContainer { container: ViewSlot::new("container", container), shipped: Mutex::new(None) })
    }

    /// Closes the pool. Its containers stay valid, and its memory is freed with the last of them.
    fn close(&self) {
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(pool);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_why))]
    fn __exit__(&self, _why: &Bound<'_, PyAny>) {
        self.close();
    }
}

impl Writable for bywash_container::PoolContainer {
    fn range(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.len())
    }
}

/// Memory of a pool that a program fills, and ships to the process that has mapped the pool. ``Pool.alloc`` makes it.
///
/// It is a writable buffer, as ``Container`` is. While a view of it exists, it can be neither shipped nor freed
/// (``BufferError``).
#[pyclass(frozen, module = "bywash")]
pub(crate) struct PoolContainer {
    container: ViewSlot<bywash_container::PoolContainer>,
    shipped: Mutex<Option<bywash_container::PoolShipment>>,
}

/// Copies a range, so that it does not borrow from the container.
pub(crate) fn plain(memory: MemoryRange<'_>) -> (RawFd, usize, usize) {
    (memory.descriptor.as_raw_fd(), memory.offset, memory.length)
}

#[pymethods]
impl PoolContainer {
    fn __len__(&self) -> PyResult<usize> {
        self.container.look(|container| container.len())
    }

    /// Descriptor, offset and length of the memory, for the other process.
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let shipped = self.shipped.lock().unwrap_or_else(PoisonError::into_inner);
        let range = shipped.as_ref().map(|shipment| plain(shipment.memory()));
        drop(shipped);
        let range = range.map_or_else(|| self.container.look(|container| plain(container.memory())), Ok)?;
        memory_range(py, range)
    }

    /// Ships the container: it can be neither looked at nor allocated again until ``returned()``. Tell the other process
    /// its offset.
    fn ship(&self) -> PyResult<()> {
        let container = self.container.take("shipped")?;
        *self.shipped.lock().unwrap_or_else(PoisonError::into_inner) = Some(container.ship());
        Ok(())
    }

    /// Takes a shipped container back. You state that the other process has returned it; otherwise it sees what you write
    /// next.
    fn returned(&self) -> PyResult<()> {
        let shipped = self.shipped.lock().unwrap_or_else(PoisonError::into_inner).take();
        let shipped = shipped.ok_or_else(|| {
            PyValueError::new_err("the container was not shipped, so that it cannot be returned")
        })?;
        self.container.put_back(shipped.returned());
        Ok(())
    }

    /// Frees the memory now. Does nothing if it was freed before, and to a container that is shipped.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        match self.container.take("freed") {
            Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(()),
            other => other.map(drop),
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (class, *_rest))]
    fn __exit__(&self, py: Python<'_>, class: &Bound<'_, PyAny>, _rest: &Bound<'_, PyAny>) -> PyResult<()> {
        let freed = self.free(py);
        if class.is_none() { freed } else { Ok(()) }
    }

    fn __repr__(&self) -> String {
        format!("<bywash.PoolContainer: {}>", self.container.describe())
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: Python passes a view to fill for `slf`, which owns the slot and releases it below.
        unsafe { slf.get().container.fill(slf.as_any(), view, flags) }
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.container.release();
    }
}
