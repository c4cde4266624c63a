//! Conversion of Python keywords to the options of a client.

use crate::options::{number, one_of, seconds};
use crate::serve::is_interrupted;
use bywash_client::{Options, PathChoice, Reconnect, Wait};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Duration;

const CHOICES: [(&str, PathChoice); 3] =
    [("automatic", PathChoice::Automatic), ("mapped", PathChoice::Mapped), ("channel", PathChoice::Channel)];
const WAITS: [(&str, Wait); 3] = [("adaptive", Wait::Adaptive), ("spin", Wait::Spin), ("sleep", Wait::Sleep)];
const KEYWORDS: &str = "name, limit, depth, arena_bytes, wait, reconnect, choice, trusted";
/// Default timeout of a request; the same as that of `Options::new`.
const LIMIT: Duration = Duration::from_secs(10);

/// Options of a client, and the values among them that a queue needs.
#[derive(Clone)]
pub(super) struct ClientOptions {
    pub(super) options: Options,
    /// Greatest time that the server may take to complete a request.
    pub(super) limit: Duration,
    /// True if calls that submit or only look may wait for a new connection to the server.
    pub(super) reconnects: bool,
}

/// Parses the keywords of `bywash.serve.Client`.
pub(super) fn parse_options(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<ClientOptions> {
    let mut options = Options::new().limit(LIMIT).interrupted_by(is_interrupted);
    let (mut limit, mut reconnects) = (LIMIT, false);
    for (name, value) in keywords.into_iter().flatten() {
        let name: String = name.extract()?;
        options = match name.as_str() {
            "name" => options.name(value.extract::<String>()?),
            "limit" => {
                limit = seconds(&name, &value)?;
                options.limit(limit)
            }
            "depth" => options.depth(number(&name, &value)?),
            "arena_bytes" => options.arena_bytes(number(&name, &value)?),
            "wait" => options.wait(one_of(&name, &value, &WAITS)?),
            "reconnect" if value.is_none() => options,
            "reconnect" => {
                reconnects = true;
                options.reconnect(Reconnect::Within(seconds(&name, &value)?))
            }
            "choice" => options.choice(one_of(&name, &value, &CHOICES)?),
            "trusted" if value.is_truthy()? => {
                // SAFETY: the program promises by 'trusted' that the server keeps to the rules of
                // `Options::trusted`; the documentation of `bywash.serve.Client` says so.
                unsafe { options.trusted() }
            }
            "trusted" => options,
            _ => {
                let text = format!("there is no option {name}; there are {KEYWORDS}");
                return Err(PyTypeError::new_err(text));
            }
        };
    }
    Ok(ClientOptions { options, limit, reconnects })
}
