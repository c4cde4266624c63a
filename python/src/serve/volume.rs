//! Volumes that are read and written by calls that wait.

use crate::container::contiguous;
use crate::errors::{closed, storage_exception};
use crate::serve::{bytes_mut_of, bytes_of, call, writable};
use bywash_client::{Error, Volume as Opened};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};

/// An open volume. ``Client.open`` and ``Client.open_descriptor`` make it.
///
/// Offsets and lengths are in bytes, and multiples of ``block``; a range that is misaligned or ends beyond
/// the volume raises ``RangeError``. Any contiguous buffer will do, NumPy arrays included; a buffer to read
/// into must be writable. A call of more than 1 MiB is split into several requests, so a reader of the same
/// bytes may see some of its blocks written and others not. If a call fails, some of its bytes may have been
/// read or written.
///
/// ``RevokedError``: the grant to the volume was revoked. ``DeniedError``: the volume was opened without this
/// access. ``DeviceError``: the device failed, is full, or did not complete in time. ``ServerGone``: the
/// server ended, or closed the connection. Threads may share a volume.
#[pyclass(frozen, module = "bywash.serve")]
pub(crate) struct Volume {
    volume: Mutex<Option<Opened>>,
}

impl Volume {
    pub(super) fn new(volume: Opened) -> Volume {
        Volume { volume: Mutex::new(Some(volume)) }
    }

    pub(super) fn open(&self) -> PyResult<Opened> {
        let volume = self.volume.lock().unwrap_or_else(PoisonError::into_inner);
        volume.clone().ok_or_else(|| closed("volume"))
    }
}

/// Raises `ValueError` if buffers overlap.
pub(super) fn check_apart<'a>(buffers: impl Iterator<Item = &'a PyUntypedBuffer>) -> PyResult<()> {
    let mut places: Vec<(usize, usize)> =
        buffers.map(|buffer| (buffer.buf_ptr() as usize, buffer.len_bytes())).collect();
    places.retain(|place| place.1 > 0);
    places.sort_unstable();
    match places.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0) {
        true => Ok(()),
        false => Err(PyValueError::new_err("the buffers overlap; give each piece one of its own")),
    }
}

#[pymethods]
impl Volume {
    /// Name of the volume; for a volume that was opened by a descriptor, a name that the library made.
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.open()?.name().to_string())
    }

    /// Size of the volume, in bytes.
    #[getter]
    fn nbytes(&self) -> PyResult<u64> {
        Ok(self.open()?.len())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.nbytes()?)?)
    }

    /// Block size of the volume, in bytes.
    #[getter]
    fn block(&self) -> PyResult<u32> {
        Ok(self.open()?.block())
    }

    /// Access that the volume was opened for: ``"read"``, ``"write"`` or ``"read-write"``.
    #[getter]
    fn access(&self) -> PyResult<String> {
        Ok(self.open()?.access().to_string())
    }

    /// Name of the device that the volume is on.
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(self.open()?.device().to_string())
    }

    /// Way that the volume's bytes move, as text for people: ``"mapped"``, or ``"through the channel: ..."``
    /// with the reason.
    #[getter]
    fn path(&self) -> PyResult<String> {
        Ok(self.open()?.path().to_string())
    }

    /// True if the volume is mapped in this process, so that calls do not involve the server.
    #[getter]
    fn mapped(&self) -> PyResult<bool> {
        Ok(self.open()?.path().is_mapped())
    }

    /// Reads ``nbytes`` bytes from ``offset`` on.
    fn read_at<'py>(&self, py: Python<'py>, nbytes: usize, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        let volume = self.open()?;
        let (length, bytes) = (nbytes as u64, volume.len());
        if length > bytes {
            // Memory is allocated only for a read that fits into the volume.
            let error = Error::OutOfBounds { volume: volume.name(), offset, length, bytes };
            return Err(storage_exception(py, &error));
        }
        PyBytes::new_with(py, nbytes, |to| call(py, || volume.read_at(to, offset)))
    }

    /// Reads from ``offset`` on and fills ``buffer``. Returns the number of bytes read.
    fn readinto_at(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let (volume, buffer) = (self.open()?, writable(buffer)?);
        // SAFETY: the room is valid while `buffer` is held; a thread that uses it meanwhile mixes up the
        // bytes.
        let to = unsafe { bytes_mut_of(&buffer) };
        call(py, || volume.read_at(to, offset))?;
        Ok(buffer.len_bytes())
    }

    /// Writes all bytes of ``data``, from ``offset`` on. Returns the number of bytes written. The bytes are
    /// durable after the next ``flush``; with ``durable``, when this returns.
    #[pyo3(signature = (data, offset, durable=false))]
    fn write_at(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        offset: u64,
        durable: bool,
    ) -> PyResult<usize> {
        let (volume, data) = (self.open()?, contiguous(data)?);
        // SAFETY: the bytes are valid while `data` is held; a thread that writes to them meanwhile mixes them
        // up.
        let from = unsafe { bytes_of(&data) };
        call(py, || match durable {
            true => volume.write_at_durable(from, offset),
            false => volume.write_at(from, offset),
        })?;
        Ok(from.len())
    }

    /// Makes all writes that completed before this call durable, as far as the medium keeps data.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let volume = self.open()?;
        call(py, || volume.flush())
    }

    /// Tells the device that a range's contents are no longer needed (TRIM, deallocate). The bytes may have
    /// any value until they are written again.
    fn discard(&self, py: Python<'_>, offset: u64, nbytes: u64) -> PyResult<()> {
        let volume = self.open()?;
        call(py, || volume.discard(offset, nbytes))
    }

    /// Writes zeros to a range. ``durable``: see ``write_at``.
    #[pyo3(signature = (offset, nbytes, durable=false))]
    fn write_zeroes(&self, py: Python<'_>, offset: u64, nbytes: u64, durable: bool) -> PyResult<()> {
        let volume = self.open()?;
        call(py, || match durable {
            true => volume.write_zeroes_durable(offset, nbytes),
            false => volume.write_zeroes(offset, nbytes),
        })
    }

    /// Writes ``new`` if the volume holds ``expected`` at ``offset``, atomically towards all other calls of
    /// this kind through the server. Returns true if it wrote. Both buffers must have the same length; most
    /// devices accept only one block.
    ///
    /// Raises ``UnknownError`` if the server went meanwhile and it is unknown if it wrote.
    fn compare_and_write(
        &self,
        py: Python<'_>,
        offset: u64,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (volume, expected, new) = (self.open()?, contiguous(expected)?, contiguous(new)?);
        // SAFETY: the bytes are valid while both buffers are held; a thread that writes to them meanwhile
        // mixes them up.
        let (expected, new) = unsafe { (bytes_of(&expected), bytes_of(&new)) };
        call(py, || volume.compare_and_write(offset, expected, new))
    }

    /// Closes the volume. Its grant is returned when no other thread is in a call of it any more.
    fn close(&self, py: Python<'_>) {
        let volume = self.volume.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(volume));
    }

    /// True if the volume was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.open().is_err()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_why))]
    fn __exit__(&self, py: Python<'_>, _why: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        match self.open() {
            Ok(volume) => {
                format!("<bywash.serve.Volume: {}, {} bytes, {}>", volume.name(), volume.len(), volume.path())
            }
            Err(_) => "<bywash.serve.Volume: closed>".into(),
        }
    }
}
