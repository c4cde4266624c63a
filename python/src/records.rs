//! Plain values become named tuples of `bywash.records`.

use bywash_container::{Credentials, Stats};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

static CREDENTIALS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static STATS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

pub(crate) fn credentials<'py>(py: Python<'py>, known: Credentials) -> PyResult<Bound<'py, PyAny>> {
    let class = CREDENTIALS.import(py, "bywash.records", "Credentials")?;
    class.call1((known.pid, known.uid, known.gid))
}

pub(crate) fn stats<'py>(py: Python<'py>, known: Stats) -> PyResult<Bound<'py, PyAny>> {
    let counted = PyDict::new(py);
    macro_rules! copy {
        ($($name:ident)*) => { $(counted.set_item(stringify!($name), known.$name)?;)* };
    }
    copy! {
        shipped shipped_bytes received received_bytes inline copied_out_bytes forwarded
        spins futex_sleeps socket_sleeps futex_wakes doorbells no_room
    }
    STATS.import(py, "bywash.records", "Stats")?.call((), Some(&counted))
}
