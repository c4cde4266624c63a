//! The Python package `bywash`: containers, paths, pools, flows, surfaces, volumes and plans for Python programs.
//!
//! The methods do the same as those of [`bywash_container`], [`bywash_flow`], [`bywash_display`], [`bywash_client`],
//! [`bywash_model`] and [`bywash_sim`], whose documentation explains the design. This crate translates to
//! Python: classes in place of owned values, keywords in place of options, exceptions in place of an error
//! enum, and the buffer protocol in place of borrows. `python/bywash/` contains the rest of the package: the
//! exceptions, the type stubs, and the asyncio helpers.
//!
//! - `path`, `listener`, `options`: make a path between two programs
//! - `container`, `message`: containers to fill, and containers received
//! - `flow`: flows, and flows that were started
//! - `serve`: volumes of a device server
//! - `pool`: containers for a process that maps an arena by itself
//! - `surface`: windows and screens, and their frames
//! - `plan`: descriptions of servers, and predictions from them
//! - `hold`: ownership of a container that Python refers to, and the lifetime of its views
//! - `view`: the same for frames and containers of pools
//! - `waiting`: calls that wait, let other threads run, and end at Ctrl-C
//! - `errors`, `records`: convert errors to exceptions and plain values to named tuples

mod container;
mod errors;
mod flow;
mod hold;
mod listener;
mod message;
mod options;
mod path;
mod plan;
mod pool;
mod records;
mod serve;
mod surface;
mod view;
mod waiting;

use pyo3::prelude::*;

/// The part of the package `bywash` that is written in Rust.
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
        Description, Points, Trace, Trials, bars, check, evaluate, figure, replay, simulate, size, targets,
        trace, values_of,
    };
    #[pymodule_export]
    use crate::pool::{Pool, PoolContainer};
    #[pymodule_export]
    use crate::serve::{Buffer, Client, Completion, Queue, Volume, VolumeId};

    #[pymodule_export]
    use crate::surface::{Frame, Surface};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::plan::add_names(module)?;
        module.add("MESSAGE_PIECES_MAX", bywash_container::MESSAGE_PIECES_MAX)
    }
}
