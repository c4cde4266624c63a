//! Listeners at a name in the file system, and pairs of sockets to make a path over.

use crate::errors::{closed, exception};
use crate::options::parse_options;
use crate::path::Path;
use crate::waiting::{Attempt, Deadline, in_slices};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Waits for peers at a name in the file system.
///
/// ``Listener.bind(name)`` creates the name, which stays until somebody removes it. It replaces a socket at
/// which no process listens any more. The permissions of the name decide who may connect, and ``path.peer``
/// gives the credentials of the peer.
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
    /// Creates the socket at ``name`` and listens there.
    #[staticmethod]
    fn bind(py: Python<'_>, name: PathBuf) -> PyResult<Listener> {
        let listener = bywash_container::Listener::bind(name).map_err(|error| exception(py, &error))?;
        Ok(Listener { listener: Mutex::new(Some(Arc::new(listener))) })
    }

    /// Waits at most ``timeout`` seconds for a peer and makes a path to it. The keywords are those of
    /// ``Path``. A peer that connects and does not complete the handshake does not delay other peers.
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
        let limit = Deadline::after(timeout)?;
        let chosen = parse_options(py, options)?;
        let path = in_slices(py, limit, |slice| match self.open() {
            Ok(listener) => Attempt::Done(listener.accept_within(&chosen.options, slice)),
            Err(gone) => Attempt::Abandoned(gone),
        })?;
        Ok(Path::new(path, chosen.access, chosen.class))
    }

    /// Returns the listener's descriptor, which is readable when a peer waits for ``accept``.
    fn fileno(&self) -> PyResult<c_int> {
        Ok(self.open()?.as_fd().as_raw_fd())
    }

    /// Closes the listener. The name in the file system stays; remove it yourself.
    fn close(&self) {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(listener);
    }

    /// True if the listener was closed.
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

/// Makes two connected sockets, each a ``socket.socket``: keep one, and give the other one to the process
/// that shall be the peer. Each end calls ``Path.over`` in its own process. A process of ``multiprocessing``
/// takes the socket as an argument, one of ``subprocess`` inherits it (``pass_fds``).
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
        // SAFETY: the descriptor is open, and Python did not take ownership of it.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
    made
}
