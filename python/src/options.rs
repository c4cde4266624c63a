//! Conversion of Python keywords to the options of a path.

use crate::errors::option;
use crate::hold::Access;
use bywash_container::{HugePages, Options, Wait};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Duration;

/// Options of a path's end, and the access that they give to the containers it receives.
#[derive(Clone)]
pub(crate) struct PathOptions {
    pub(crate) options: Options,
    pub(crate) access: Access,
    pub(crate) class: &'static str,
}

const CLASSES: [&str; 4] = ["checked", "trusted", "sealed", "forward"];
const WAITS: [(&str, Wait); 3] = [("adaptive", Wait::Adaptive), ("spin", Wait::Spin), ("sleep", Wait::Sleep)];
const PAGES: [(&str, HugePages); 3] =
    [("collapse", HugePages::Collapse), ("reserved", HugePages::Reserved), ("no", HugePages::No)];
const KEYWORDS: &str = "class_, writable, arena_bytes, huge_pages, depth, containers_out_max, wait, \
                        peer_arena_bytes_max, handshake_timeout";
/// Greatest handshake timeout that is passed on, in seconds: longer than any peer takes, and small enough to
/// be added to any time of the clock.
const GREETING_SECONDS_MAX: f64 = 1e9;

/// Parses the keywords of `bywash.Path`.
pub(crate) fn parse_options(py: Python<'_>, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<PathOptions> {
    let mut options = Options::new();
    let (mut class, mut writable) = (CLASSES[0], false);
    for (name, value) in keywords.into_iter().flatten() {
        let name: String = name.extract()?;
        options = match name.as_str() {
            "class_" => {
                class = one_of(&name, &value, &CLASSES.map(|class| (class, class)))?;
                options
            }
            "writable" => {
                writable = value.is_truthy()?;
                options
            }
            "arena_bytes" => options.arena_bytes(number(&name, &value)?),
            "huge_pages" => options.huge_pages(one_of(&name, &value, &PAGES)?),
            "depth" => options.depth(number(&name, &value)?),
            "containers_out_max" => options.containers_shipped_max(number(&name, &value)?),
            "wait" => options.wait(one_of(&name, &value, &WAITS)?),
            "peer_arena_bytes_max" => options.peer_arena_bytes_max(number(&name, &value)?),
            "handshake_timeout" => options.handshake_timeout(seconds(&name, &value)?),
            _ => {
                let text = format!("there is no option {name}; there are {KEYWORDS}");
                return Err(PyTypeError::new_err(text));
            }
        };
    }
    if writable && class != "trusted" {
        let text = format!("writable goes with class_='trusted' only, and class_ is '{class}'");
        return Err(option(py, text));
    }
    let (options, access) = match class {
        // SAFETY: the program promises by 'trusted' and 'writable' that the peer keeps to the rules of
        // `trusted_to_write`; the documentation of `bywash.Path` says so.
        "trusted" if writable => (unsafe { options.trusted_to_write() }, Access::Write),
        // SAFETY: the program promises by 'trusted' that the peer keeps to the rules of `trusted`; the
        // documentation of `bywash.Path` says so.
        "trusted" => (unsafe { options.trusted() }, Access::Look),
        "sealed" => (options.sealed(), Access::Look),
        "forward" => (options.forward(), Access::Never),
        _ => (options, Access::Copy),
    };
    Ok(PathOptions { options, access, class })
}

fn cannot_be(name: &str, value: &Bound<'_, PyAny>, allowed: &str) -> PyErr {
    let given = value.repr().map_or_else(|_| "something".into(), |text| text.to_string());
    option(value.py(), format!("{name} is {given}, and must be {allowed}"))
}

pub(crate) fn number<N: TryFrom<u64>>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<N> {
    let found = value.extract::<u64>().ok().and_then(|number| N::try_from(number).ok());
    found.ok_or_else(|| {
        let most = if size_of::<N>() == 4 { u64::from(u32::MAX) } else { u64::MAX };
        cannot_be(name, value, &format!("a whole number from 0 to {most}"))
    })
}

pub(crate) fn seconds(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let found = value.extract::<f64>().ok().filter(|seconds| *seconds >= 0.0);
    let found = found.and_then(|seconds| Duration::try_from_secs_f64(seconds.min(GREETING_SECONDS_MAX)).ok());
    found.ok_or_else(|| cannot_be(name, value, "a number of seconds from 0 on"))
}

pub(crate) fn one_of<V: Copy>(name: &str, value: &Bound<'_, PyAny>, all: &[(&str, V)]) -> PyResult<V> {
    let given: Option<String> = value.extract().ok();
    let found = all.iter().find(|(text, _)| given.as_deref() == Some(*text));
    found.map(|(_, found)| *found).ok_or_else(|| {
        let texts: Vec<String> = all.iter().map(|(text, _)| format!("'{text}'")).collect();
        cannot_be(name, value, &format!("one of {}", texts.join(", ")))
    })
}
