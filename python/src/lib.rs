//! The Python package `bywash`: containers, paths and flows for Python programs.
//!
//! What the methods do is what [`bywash_container`] and [`bywash_flow`] do; their documentation says why. Here are
//! Python's ways of saying it: classes in place of owned values, keywords in place of options, exceptions in place of an error enum, and
//! the buffer protocol where Rust borrows. `python/bywash/` has the rest of the package: the exceptions, the
//! types for checkers, a helper for asyncio.
//!
//! - `path`, `listener`, `options`: how two programs come together
//! - `container`, `message`: what moves
//! - `flow`: what goes from here to there, and one that was started
//! - `hold`: who owns a container that Python has, and how long its memory stays where views of it are
//! - `waiting`: calls that wait let other threads run, and see Ctrl-C
//! - `errors`, `records`: what becomes of errors and of plain values
//! - `fork`: whether this process is the one that made something

mod container;
mod errors;
mod flow;
mod hold;
mod listener;
mod message;
mod options;
mod path;
mod records;
mod waiting;

use pyo3::prelude::*;

/// What `bywash` consists of that is not written in Python.
#[pymodule]
mod _bywash {
    #[pymodule_export]
    use crate::container::Container;
    #[pymodule_export]
    use crate::flow::{Flow, Running};
    #[pymodule_export]
    use crate::listener::{Listener, socket_pair};
    #[pymodule_export]
    use crate::message::{Message, Received};
    #[pymodule_export]
    use crate::path::Path;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("MESSAGE_PIECES_MAX", bywash_container::MESSAGE_PIECES_MAX)
    }
}
