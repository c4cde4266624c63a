//! Connecting two programs: by a name, or over a pair of sockets.

use crate::errors::{closed, exception};
use crate::options::chosen;
use crate::path::Path;
use crate::waiting::{Attempt, Limit, in_slices};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Waits for peers at a name in the file system.
///
/// ``Listener.bind(name)`` makes the name, which stays until somebody removes it; a socket there that nobody listens at
/// any more is replaced. Who may connect is what the permissions of the name say, and ``path.peer`` tells who did.
#[pyclass(frozen, module = "bywash")]
pub(crate) struct Listener {
    listener: Mutex<Option<Arc<bywash_container::Listener>>>,
}

impl Listener {
    fn open(&self) -> PyResult<Arc<bywash_container::Listener>> {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener.clone().ok_or_else(|| closed("listener"))
    }
}

#[pymethods]
impl Listener {
    /// Makes the name.
    #[staticmethod]
    fn bind(py: Python<'_>, name: PathBuf) -> PyResult<Listener> {
        let listener = bywash_container::Listener::bind(name).map_err(|error| exception(py, &error))?;
        Ok(Listener { listener: Mutex::new(Some(Arc::new(listener))) })
    }

    /// Waits for a peer and makes a path to it, no longer than ``timeout`` in all; keywords as told at ``Path``. A peer
    /// that connects and says nothing keeps no other one waiting.
    #[pyo3(
        signature = (timeout=None, **options),
        text_signature = "($self, timeout=None, *, class_='checked', **options)"
    )]
    fn accept(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Path> {
        let limit = Limit::of(timeout)?;
        let chosen = chosen(py, options)?;
        let path = in_slices(py, limit, |slice| match self.open() {
            Ok(listener) => Attempt::Done(listener.accept_within(&chosen.options, slice)),
            Err(gone) => Attempt::Over(gone),
        })?;
        Ok(Path::new(path, chosen.access, chosen.class))
    }

    /// The listener's descriptor, which is readable when ``accept`` would find somebody.
    fn fileno(&self) -> PyResult<c_int> {
        Ok(self.open()?.as_fd().as_raw_fd())
    }

    /// Ends it. The name stays; remove it.
    fn close(&self) {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(listener);
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
    fn __exit__(&self, _why: &Bound<'_, PyAny>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        match self.open() {
            Ok(listener) => format!("<bywash.Listener: descriptor {}>", listener.as_fd().as_raw_fd()),
            Err(_) => "<bywash.Listener: closed>".into(),
        }
    }
}

/// Makes two connected sockets, as ``socket.socket``: keep one and give the other to whom the path shall lead to. Each
/// end calls ``Path.over`` in its own process. A process of ``multiprocessing`` takes the socket as an argument, one
/// of ``subprocess`` inherits it (``pass_fds``).
#[pyfunction]
pub(crate) fn socket_pair(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Bound<'_, PyAny>)> {
    let (one, other) = bywash_container::socket_pair().map_err(|error| exception(py, &error))?;
    Ok((python_socket(py, one)?, python_socket(py, other)?))
}

fn python_socket(py: Python<'_>, socket: OwnedFd) -> PyResult<Bound<'_, PyAny>> {
    let number = socket.into_raw_fd();
    let keywords = PyDict::new(py);
    let made = keywords
        .set_item("fileno", number)
        .and_then(|()| py.import("socket")?.getattr("socket")?.call((), Some(&keywords)));
    if made.is_err() {
        // SAFETY: open, and nobody has it: Python did not take it.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
    made
}
