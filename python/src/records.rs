//! Conversion of plain values to named tuples of `bywash.records` and `bywash.plan.records`.

use bywash_container::{Credentials, Stats};
use bywash_flow::plan::{Plan, RankedMover};
use bywash_flow::{Piece, Report};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::os::fd::RawFd;

/// Makes a named tuple from its module, class name and fields, and caches the class.
macro_rules! record {
    ($py:expr, $module:expr, $name:literal, { $($field:ident: $value:expr),* $(,)? }) => {{
        static CLASS: pyo3::sync::PyOnceLock<pyo3::Py<pyo3::types::PyType>> = pyo3::sync::PyOnceLock::new();
        let fields = pyo3::types::PyDict::new($py);
        $(fields.set_item(stringify!($field), $value)?;)*
        CLASS.import($py, $module, $name)?.call((), Some(&fields))
    }};
}
pub(crate) use record;

const MODULE: &str = "bywash.records";

/// Converts each of `values` with `make` and returns a tuple of the results.
pub(crate) fn tuple<'py, V>(
    py: Python<'py>,
    values: &[V],
    make: impl Fn(&V) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, values.iter().map(make).collect::<PyResult<Vec<_>>>()?)
}

pub(crate) fn credentials<'py>(py: Python<'py>, known: Credentials) -> PyResult<Bound<'py, PyAny>> {
    record!(py, MODULE, "Credentials", { pid: known.pid, uid: known.uid, gid: known.gid })
}

pub(crate) fn memory_range<'py>(
    py: Python<'py>,
    (fd, offset, length): (RawFd, usize, usize),
) -> PyResult<Bound<'py, PyAny>> {
    record!(py, MODULE, "MemoryRange", { fd: fd, offset: offset, length: length })
}

pub(crate) fn stats<'py>(py: Python<'py>, known: Stats) -> PyResult<Bound<'py, PyAny>> {
    macro_rules! counted {
        ($($name:ident)*) => { record!(py, MODULE, "Stats", { $($name: known.$name),* }) };
    }
    counted! {
        shipped shipped_bytes received received_bytes inline copied_out_bytes forwarded
        spins futex_sleeps socket_sleeps futex_wakes doorbells no_room
        arena_bytes arena_held arena_held_bytes arena_shipped arena_shipped_bytes arena_largest_free
    }
}

fn choice<'py>(py: Python<'py>, known: &RankedMover) -> PyResult<Bound<'py, PyAny>> {
    record!(py, MODULE, "Choice", { mover: known.mover.to_string(), why: &known.why })
}

pub(crate) fn plan<'py>(py: Python<'py>, known: &Plan) -> PyResult<Bound<'py, PyAny>> {
    let promises = record!(py, MODULE, "Promises", {
        by_value: known.promises.by_value,
        ordered: known.promises.ordered,
        lossless: known.promises.lossless,
        durable: known.promises.durable,
    })?;
    record!(py, MODULE, "Plan", {
        source: &known.source,
        sink: &known.sink,
        movers: tuple(py, &known.movers, |one| choice(py, one))?,
        others: tuple(py, &known.others, |one| choice(py, one))?,
        block: known.block,
        keeps_holes: known.keeps_holes,
        promises: promises,
    })
}

fn piece<'py>(py: Python<'py>, known: &Piece) -> PyResult<Bound<'py, PyAny>> {
    record!(py, MODULE, "Piece", {
        source: &known.source,
        sink: &known.sink,
        mover: known.mover.to_string(),
        block: known.block,
        bytes: known.bytes,
        holes: known.holes,
        copies: known.copies,
        zerocopy_sends: known.zerocopy_sends,
        zerocopy_copied: known.zerocopy_copied,
        datagrams: tuple(py, &known.datagrams, |account| {
            // Numbers, strings and lists always have a JSON form, so serialisation cannot fail.
            py.import("json")?.call_method1("loads", (serde_json::to_string(account).unwrap_or_default(),))
        })?,
        fallbacks: tuple(py, &known.fallbacks, |one| {
            record!(py, MODULE, "Choice", { mover: one.mover.to_string(), why: &one.why })
        })?,
    })
}

pub(crate) fn report<'py>(py: Python<'py>, known: &Report) -> PyResult<Bound<'py, PyAny>> {
    record!(py, MODULE, "Report", {
        bytes: known.bytes,
        seconds: known.seconds,
        cpu_seconds: known.cpu_seconds,
        pieces: tuple(py, &known.pieces, |one| piece(py, one))?,
        hashes: tuple(py, &known.hashes, |one| {
            record!(py, MODULE, "Hash", { algorithm: one.algorithm.to_string(), digits: &one.digits })
        })?,
        accelerations: tuple(py, &known.accelerations, |work| {
            // Numbers and strings always have a JSON form, so serialisation cannot fail.
            py.import("json")?.call_method1("loads", (serde_json::to_string(work).unwrap_or_default(),))
        })?,
        presentations: tuple(py, &known.presentations, |shown| {
            // Numbers and strings always have a JSON form, so serialisation cannot fail.
            py.import("json")?.call_method1("loads", (serde_json::to_string(shown).unwrap_or_default(),))
        })?,
        live_streams: tuple(py, &known.live_streams, |stream| {
            // Numbers and strings always have a JSON form, so serialisation cannot fail.
            py.import("json")?.call_method1("loads", (serde_json::to_string(stream).unwrap_or_default(),))
        })?,
        notes: PyTuple::new(py, &known.notes)?,
        whole: known.whole,
        partial: known.partial.as_deref(),
    })
}
