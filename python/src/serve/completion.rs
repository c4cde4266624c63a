//! Completions of requests of a queue.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;

/// Completion of a request of a queue.
#[pyclass(frozen, module = "bywash.serve")]
pub(crate) struct Completion {
    /// The object that was passed with the request.
    #[pyo3(get)]
    user_data: Py<PyAny>,
    /// The ``Error`` that the request failed with; None if it succeeded.
    #[pyo3(get)]
    error: Option<Py<PyBaseException>>,
    /// The bytes that were read, or the buffer that was passed with the request; None if the request has
    /// neither, or if its bytes were not read.
    #[pyo3(get)]
    data: Option<Py<PyAny>>,
}

impl Completion {
    pub(super) fn new(
        user_data: Py<PyAny>,
        error: Option<Py<PyBaseException>>,
        data: Option<Py<PyAny>>,
    ) -> Completion {
        Completion { user_data, error, data }
    }
}

#[pymethods]
impl Completion {
    /// ``data``, or raises ``error``.
    fn result(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        match &self.error {
            Some(error) => Err(PyErr::from_value(error.bind(py).clone().into_any())),
            None => Ok(self.data.as_ref().map(|data| data.clone_ref(py))),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let user_data = self.user_data.bind(py).repr()?;
        Ok(match &self.error {
            Some(error) => format!("<bywash.serve.Completion: {user_data}, {}>", error.bind(py).repr()?),
            None => format!("<bywash.serve.Completion: {user_data}, done>"),
        })
    }
}
