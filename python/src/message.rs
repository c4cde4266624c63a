//! Messages and containers that were received from a peer.

use crate::container::{BRIEF_BYTES, contiguous, fill_view, free_at_exit};
use crate::errors::{ContainerError, OrRaise};
use crate::hold::{Access, ContainerSlot};
use crate::records::{credentials, memory_range};
use bywash_container::{Credentials, Shipment};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::ffi::c_int;

/// A container that was received from a peer.
///
/// On trusted and sealed paths the container is a buffer: ``memoryview(received)`` and
/// ``numpy.frombuffer(received, dtype)`` show its bytes in place, without a copy. The view is read-only
/// unless both ends have set ``writable=True``. On checked paths, where the peer could change the bytes
/// meanwhile, a view raises ``BufferError``: copy the bytes out by ``tobytes()`` or ``copy_to()``. On forward
/// paths the bytes cannot be read at all.
///
/// The container returns to the peer with its last reference, by ``free()``, or at the end of a ``with``
/// block; until then the peer cannot reuse its memory. It can be shipped on. Both raise ``BufferError`` while
/// a view exists.
#[pyclass(frozen, module = "bywash")]
pub(crate) struct Received {
    pub(crate) hold: ContainerSlot,
    origin: Credentials,
}

#[pymethods]
impl Received {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.hold.length().or_raise(py)
    }

    /// Credentials of the process that shipped the container here: process, user, group, as the kernel
    /// reports them.
    #[getter]
    fn origin<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        credentials(py, self.origin)
    }

    /// Returns a private copy of the bytes.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        bytes_of(py, &[&self.hold])
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.tobytes(py)
    }

    /// Copies as many bytes as fit into ``buffer`` (a bytearray, a NumPy array). Returns the number of bytes
    /// copied. The peer cannot change the copy after you have checked it.
    fn copy_to(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        copy_to_buffer(py, &[&self.hold], buffer)
    }

    /// Descriptor, offset and length of the memory, for a process that maps it by itself, such as a display server.
    /// The descriptor remains the library's: duplicate it, or pass it through a socket. On a
    /// checked path the shipper may write there at any time. Raises
    /// ``NotMappedError`` for contents that are so small that they are outside of shared memory, and if both ends
    /// may write.
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        memory_range(py, self.hold.memory().or_raise(py)?)
    }

    /// Returns the container to the peer now. Does nothing if it was freed or shipped on before.
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
        format!("<bywash.Received: {}>", self.hold.describe())
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: Python passes a view to fill for `slf`, which owns the hold.
        unsafe { fill_view(slf.as_any(), &slf.get().hold, view, flags) }
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.hold.release();
    }
}

/// Containers that were shipped together: a sequence of one or several.
///
/// ``[frame] = path.receive()`` or ``header, frame = path.receive()`` takes the message apart;
/// ``len(message)`` is the number of containers, ``message.nbytes`` the number of bytes.
/// ``path.ship(message)`` ships all containers on unchanged.
#[pyclass(frozen, sequence, module = "bywash")]
pub(crate) struct Message {
    pieces: Py<PyTuple>,
    origin: Credentials,
}

impl Message {
    pub(crate) fn new(
        py: Python<'_>,
        message: bywash_container::Message,
        access: Access,
    ) -> PyResult<Message> {
        let origin = message.origin();
        let made = |piece: bywash_container::Received| {
            let origin = piece.origin();
            Py::new(py, Received { hold: ContainerSlot::new(Shipment::Received(piece), access), origin })
        };
        let pieces: Vec<Py<Received>> = message.into_pieces().map(made).collect::<PyResult<_>>()?;
        Ok(Message { pieces: PyTuple::new(py, pieces)?.unbind(), origin })
    }

    /// Returns the containers of the message.
    pub(crate) fn pieces<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, Received>>> {
        self.pieces.bind(py).iter().map(|piece| Ok(piece.cast_into()?)).collect()
    }

    fn with_holds<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&[&ContainerSlot]) -> PyResult<R>,
    ) -> PyResult<R> {
        let pieces = self.pieces(py)?;
        let holds: Vec<&ContainerSlot> = pieces.iter().map(|piece| &piece.get().hold).collect();
        work(&holds)
    }
}

#[pymethods]
impl Message {
    fn __len__(&self, py: Python<'_>) -> usize {
        self.pieces.bind(py).len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.pieces.bind(py).as_any().get_item(index)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.pieces.bind(py).try_iter()?.into_any())
    }

    /// Returns the position of a container in the message.
    fn index(&self, py: Python<'_>, piece: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.pieces.bind(py).index(piece)
    }

    /// Returns the number of times that a container occurs in the message: 0 or 1.
    fn count<'py>(&self, py: Python<'py>, piece: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.pieces.bind(py).call_method1("count", (piece,))
    }

    /// Number of bytes in all containers together.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.with_holds(py, |holds| total(holds).or_raise(py))
    }

    /// Credentials of the process that shipped the message here: process, user, group, as the kernel reports
    /// them.
    #[getter]
    fn origin<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        credentials(py, self.origin)
    }

    /// Returns a private copy of the bytes of all containers, one after the other.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.with_holds(py, |holds| bytes_of(py, holds))
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.tobytes(py)
    }

    /// Copies the bytes of all containers into ``buffer``, one after the other, as many as fit. Returns the
    /// number of bytes copied.
    fn copy_to(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.with_holds(py, |holds| copy_to_buffer(py, holds, buffer))
    }

    /// Returns all containers to the peer now. Containers with views stay (``BufferError``); the others are
    /// freed.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        self.with_holds(py, |holds| {
            let freed: Vec<_> = holds.iter().map(|hold| hold.free()).collect();
            freed.into_iter().collect::<Result<(), _>>().or_raise(py)
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (class, *_rest))]
    fn __exit__(&self, py: Python<'_>, class: &Bound<'_, PyAny>, _rest: &Bound<'_, PyAny>) -> PyResult<()> {
        let freed = self.free(py);
        // An exception that leaves the block matters more than a failure to free, as in `free_at_exit`.
        if class.is_none() { freed } else { Ok(()) }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let pieces = self.pieces(py)?;
        let all: Vec<String> = pieces.iter().map(|piece| piece.get().hold.describe()).collect();
        Ok(format!("<bywash.Message: {}>", all.join("; ")))
    }
}

fn total(holds: &[&ContainerSlot]) -> Result<usize, ContainerError> {
    holds.iter().map(|hold| hold.length()).sum()
}

/// Address in a caller's buffer that is written while other threads may run.
struct SendPtr(*mut u8);

// SAFETY: this is a plain address; `copy_out` answers for the memory behind it.
unsafe impl Send for SendPtr {}

impl SendPtr {
    fn address(&self) -> *mut u8 {
        self.0
    }
}

/// Copies the containers' bytes to `to`, one container after the other, at most `room` bytes. Returns the
/// number of bytes copied.
///
/// # Safety
/// `to` must be writable for `room` bytes and stay in place during the call.
unsafe fn copy_out(py: Python<'_>, holds: &[&ContainerSlot], to: *mut u8, room: usize) -> PyResult<usize> {
    let target = SendPtr(to);
    let copy = move || {
        holds.iter().try_fold(0, |done, hold| -> Result<usize, ContainerError> {
            // SAFETY: the caller keeps `to` writable for `room` bytes, of which `done` are filled.
            unsafe { Ok(done + hold.copy_to(target.address().add(done), room - done)?) }
        })
    };
    if room <= BRIEF_BYTES { copy() } else { py.detach(copy) }.or_raise(py)
}

fn bytes_of<'py>(py: Python<'py>, holds: &[&ContainerSlot]) -> PyResult<Bound<'py, PyBytes>> {
    let length = total(holds).or_raise(py)?;
    PyBytes::new_with(py, length, |bytes| {
        // SAFETY: the bytes are those of a new object to which nobody else refers yet.
        let copied = unsafe { copy_out(py, holds, bytes.as_mut_ptr(), length)? };
        // The length cannot have changed since `total`: only containers that are being filled can be resized,
        // and these were received.
        debug_assert_eq!(copied, length);
        Ok(())
    })
}

fn copy_to_buffer(py: Python<'_>, holds: &[&ContainerSlot], buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
    let target = contiguous(buffer)?;
    if target.readonly() {
        let text = "the buffer cannot be written; give a bytearray or a writable array";
        return Err(PyBufferError::new_err(text));
    }
    // SAFETY: the buffer is writable, and `target` holds it until the copy is done. Another thread that
    // writes there meanwhile mixes up the bytes, as with any call that reads into a buffer.
    unsafe { copy_out(py, holds, target.buf_ptr().cast(), target.len_bytes()) }
}
