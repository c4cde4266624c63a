//! Ownership of memory that Python draws into and gives away: frames of surfaces and containers of pools.
//!
//! The memory stays in place while its owner exists, so that views share its address. Views are counted: while one exists,
//! the owner can be neither given away nor freed. No code here makes a reference to the bytes, since a display server may
//! write them.

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Owner of memory that a program may write.
pub(crate) trait Writable {
    /// Returns the address of the first byte, and the number of bytes.
    fn range(&mut self) -> (*mut u8, usize);
}

/// Owner of memory, until it is given away.
pub(crate) struct ViewSlot<T> {
    slot: Mutex<Slot<T>>,
    /// Kind of the object, for errors.
    what: &'static str,
}

struct Slot<T> {
    owner: Option<T>,
    /// Reason for which there is no owner, as a participle.
    gone: &'static str,
    /// Number of views in use.
    exports: usize,
}

impl<T: Writable> ViewSlot<T> {
    pub(crate) fn new(what: &'static str, owner: T) -> ViewSlot<T> {
        ViewSlot { slot: Mutex::new(Slot { owner: Some(owner), gone: "", exports: 0 }), what }
    }

    fn slot(&self) -> MutexGuard<'_, Slot<T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the owner.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        let mut slot = self.slot();
        let gone = slot.gone;
        slot.owner.as_mut().map(look).ok_or_else(|| self.absent(gone))
    }

    /// Takes the owner out, to do with it as the participle says.
    pub(crate) fn take(&self, participle: &'static str) -> PyResult<T> {
        let mut slot = self.slot();
        if slot.exports > 0 {
            let (what, views) = (self.what, slot.exports);
            drop(slot);
            return Err(PyBufferError::new_err(format!(
                "the {what} cannot be {participle} while it is looked at through {views} view(s), such as a memoryview \
                 or a NumPy array; release or delete them first"
            )));
        }
        match slot.owner.take() {
            Some(owner) => {
                slot.gone = participle;
                Ok(owner)
            }
            None => Err(self.absent(slot.gone)),
        }
    }

    /// Puts an owner back.
    pub(crate) fn put_back(&self, owner: T) {
        self.slot().owner = Some(owner);
    }

    /// Returns the state as text, for debugging.
    pub(crate) fn describe(&self) -> String {
        let mut slot = self.slot();
        let (gone, exports) = (slot.gone, slot.exports);
        match &mut slot.owner {
            Some(owner) if exports > 0 => format!("{} bytes, {exports} view(s)", owner.range().1),
            Some(owner) => format!("{} bytes", owner.range().1),
            None => gone.into(),
        }
    }

    fn absent(&self, gone: &str) -> PyErr {
        PyValueError::new_err(format!("the {} was {gone}; take another", self.what))
    }

    /// Fills in a view of the bytes, as Python's buffer protocol asks for.
    ///
    /// # Safety
    /// `view` must be null or valid for Python to fill, `object` must own this slot, and the `__releasebuffer__` of
    /// `object` must call [`ViewSlot::release`].
    pub(crate) unsafe fn fill(
        &self,
        object: &Bound<'_, PyAny>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no place for the view was given"));
        }
        // SAFETY: `view` is not null, and the caller says that it is valid. Python requires a null `obj` where no view is
        // made.
        unsafe { (*view).obj = ptr::null_mut() };
        let (at, length) = {
            let mut slot = self.slot();
            let gone = slot.gone;
            let range = slot.owner.as_mut().map(Writable::range).ok_or_else(|| self.absent(gone))?;
            slot.exports += 1;
            range
        };
        // SAFETY: the bytes stay in place until the view is released: it was counted, and `take` refuses while it is; the
        // view keeps `object`, and so this slot.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, object.as_ptr(), at.cast(), length as ffi::Py_ssize_t, 0, flags)
        };
        if filled != 0 {
            // No view was made, so Python will not release one.
            self.release();
            return Err(PyErr::fetch(object.py()));
        }
        Ok(())
    }

    /// Ends a view.
    pub(crate) fn release(&self) {
        self.slot().exports -= 1;
    }
}
