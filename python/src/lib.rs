//! The Python package `bywash`: containers, paths, flows, volumes and plans for Python programs.
//!
//! What the methods do is what [`bywash_container`], [`bywash_flow`], [`bywash_client`], [`bywash_model`] and [`bywash_sim`]
//! do; their documentation says why. Here are Python's ways of saying it: classes in place of owned values, keywords in
//! place of options, exceptions in place of an error enum, and the buffer protocol where Rust borrows. `python/bywash/` has
//! the rest of the package: the exceptions, the types for checkers, helpers for asyncio.
//!
//! - `path`, `listener`, `options`: how two programs come together
//! - `container`, `message`: what moves
//! - `flow`: what goes from here to there, and one that was started
//! - `serve`: volumes of a device server
//! - `plan`: descriptions of servers, and what they come to
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
mod plan;
mod records;
mod serve;
mod waiting;

use pyo3::prelude::*;

/// Part of the package `bywash` that is written in Rust.
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
    #[pymodule_export]
    use crate::plan::{
        Description, Points, Trials, bars, check, evaluate, figure, simulate, targets, values_of,
    };
    #[pymodule_export]
    use crate::serve::{Buffer, Client, Completion, Queue, Volume, VolumeId};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::plan::add_names(module)?;
        module.add("MESSAGE_PIECES_MAX", bywash_container::MESSAGE_PIECES_MAX)
    }
}
