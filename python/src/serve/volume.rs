//! Volumes that are read and written by calls that wait.

use crate::container::contiguous;
use crate::errors::{closed, storage_exception};
use crate::serve::{bytes_of, call, room_of, writable};
use bywash_client::{Error, Volume as Opened};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Mutex, PoisonError};

/// An open volume: ``Client.open`` and ``Client.open_descriptor`` make it.
///
/// Offsets and lengths are bytes, and multiples of ``block`` (``RangeError`` else, and beyond the end). Any buffer will do
/// whose bytes are in one piece, NumPy arrays included; those to be read into must be writable. A call that is longer
/// than 1 MiB is several requests: others who read the same bytes meanwhile may find some blocks of it written, and some
/// not. If a call fails, some of its bytes may have been read or written.
///
/// ``RevokedError``: the right to it was taken back. ``DeniedError``: it was opened for less. ``DeviceError``: the device
/// failed, has no room, or did not answer in time. ``ServerGone``: so it is. Threads may share a volume.
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

/// Raises if buffers overlap.
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
    /// Its name; of one that was opened by a descriptor, what the library calls it.
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.open()?.name().to_string())
    }

    /// Its bytes.
    #[getter]
    fn nbytes(&self) -> PyResult<u64> {
        Ok(self.open()?.len())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.nbytes()?)?)
    }

    /// Bytes of a block.
    #[getter]
    fn block(&self) -> PyResult<u32> {
        Ok(self.open()?.block())
    }

    /// Rights to the volume: ``"read"``, ``"write"`` or ``"read-write"``.
    #[getter]
    fn access(&self) -> PyResult<String> {
        Ok(self.open()?.access().to_string())
    }

    /// The device it is on, by its name.
    #[getter]
    fn device(&self) -> PyResult<String> {
        Ok(self.open()?.device().to_string())
    }

    /// Which way its bytes go, for people: ``"mapped"``, or ``"through the channel: ..."`` with why.
    #[getter]
    fn path(&self) -> PyResult<String> {
        Ok(self.open()?.path().to_string())
    }

    /// True if the volume's memory is mapped, so that the server takes no part in reads and writes.
    #[getter]
    fn mapped(&self) -> PyResult<bool> {
        Ok(self.open()?.path().is_mapped())
    }

    /// Reads ``nbytes`` from ``offset`` on.
    fn read_at<'py>(&self, py: Python<'py>, nbytes: usize, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        let volume = self.open()?;
        let (length, bytes) = (nbytes as u64, volume.len());
        if length > bytes {
            // No memory is taken for what cannot be read.
            let error = Error::OutOfBounds { volume: volume.name(), offset, length, bytes };
            return Err(storage_exception(py, &error));
        }
        PyBytes::new_with(py, nbytes, |to| call(py, || volume.read_at(to, offset)))
    }

    /// Reads as many bytes as ``buffer`` has, from ``offset`` on; answers how many.
    fn readinto_at(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let (volume, buffer) = (self.open()?, writable(buffer)?);
        // SAFETY: as for any call that reads into a buffer.
        let to = unsafe { room_of(&buffer) };
        call(py, || volume.read_at(to, offset))?;
        Ok(buffer.len_bytes())
    }

    /// Writes all bytes of ``data``, from ``offset`` on; answers how many. They are durable after the next ``flush``, or
    /// with ``durable`` when this returns.
    #[pyo3(signature = (data, offset, durable=false))]
    fn write_at(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        offset: u64,
        durable: bool,
    ) -> PyResult<usize> {
        let (volume, data) = (self.open()?, contiguous(data)?);
        // SAFETY: as for any call that writes what is in a buffer.
        let from = unsafe { bytes_of(&data) };
        call(py, || match durable {
            true => volume.write_at_durable(from, offset),
            false => volume.write_at(from, offset),
        })?;
        Ok(from.len())
    }

    /// Everything whose writing had been completed before is durable when this returns, as far as the medium is.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let volume = self.open()?;
        call(py, || volume.flush())
    }

    /// Tells the device that the contents of a range are no longer needed (TRIM). The bytes are undefined until they are
    /// written again.
    fn discard(&self, py: Python<'_>, offset: u64, nbytes: u64) -> PyResult<()> {
        let volume = self.open()?;
        call(py, || volume.discard(offset, nbytes))
    }

    /// Changes bytes to zeros; ``durable`` as with ``write_at``.
    #[pyo3(signature = (offset, nbytes, durable=false))]
    fn write_zeroes(&self, py: Python<'_>, offset: u64, nbytes: u64, durable: bool) -> PyResult<()> {
        let volume = self.open()?;
        call(py, || match durable {
            true => volume.write_zeroes_durable(offset, nbytes),
            false => volume.write_zeroes(offset, nbytes),
        })
    }

    /// Writes ``new`` if what is there is ``expected``, as one step for all who do so through the server; answers whether
    /// it was. Both have as many bytes, with most devices those of one block.
    ///
    /// ``UnknownError``: the server went meanwhile, and whether it wrote is unknown.
    fn compare_and_write(
        &self,
        py: Python<'_>,
        offset: u64,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (volume, expected, new) = (self.open()?, contiguous(expected)?, contiguous(new)?);
        // SAFETY: as for any call that writes what is in buffers.
        let (expected, new) = unsafe { (bytes_of(&expected), bytes_of(&new)) };
        call(py, || volume.compare_and_write(offset, expected, new))
    }

    /// Closes it; the right to it is given back when no other thread is in a call with it any more.
    fn close(&self, py: Python<'_>) {
        let volume = self.volume.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(volume));
    }

    /// True if this object was closed.
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
