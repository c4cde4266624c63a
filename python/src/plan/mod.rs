//! Performance prediction for servers: descriptions, answers of the model and of the simulator, and sweeps
//! over many descriptions.
//!
//! - `description`: a machine and its workload, as a value
//! - `answers`: the model's answer for one description, the paper's figures, the acceptance table
//! - `recorded`: recorded calls of programs, and their replay on a description's machine
//! - `sizes`: the most load, or the fewest parts, with a response time under a limit
//! - `papers`: the papers' simulated results, simulated again
//! - `points`: the points of a sweep; any range of them can be computed anywhere
//! - `trials`: simulation of one description, or of the points of a sweep
//!
//! Invariant: each result follows from the arguments alone, to the last bit. `python/bywash/plan/` cuts
//! sweeps into pieces for threads and machines, and joins the results, whoever computed them.

mod answers;
mod description;
mod papers;
mod points;
mod recorded;
mod sizes;
mod trials;

pub(crate) use answers::{check, evaluate, figure};
pub(crate) use description::Description;
pub(crate) use papers::{bars, targets};
pub(crate) use points::{Points, values_of};
pub(crate) use recorded::{Trace, replay, trace};
pub(crate) use sizes::size;
pub(crate) use trials::{Trials, simulate};

use crate::options::one_of;
use bywash_model::describe::Key;
use bywash_model::{Architecture, Resource, figures};
use bywash_sim::preset::PRESETS;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Adds the constants that list valid names and numbers to the module.
pub(crate) fn add_names(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("ARCHITECTURES", PyTuple::new(py, Architecture::ALL.map(Architecture::name))?)?;
    module.add("RESOURCES", PyTuple::new(py, Resource::ALL.map(Resource::name))?)?;
    module.add("FIGURES", PyTuple::new(py, figures::NUMBERS.collect::<Vec<_>>())?)?;
    let presets = PyDict::new(py);
    for preset in PRESETS {
        presets.set_item(preset.name, preset.about)?;
    }
    module.add("PRESETS", presets)?;
    module.add("KEYS", PyTuple::new(py, Key::all().map(|key| key.name).collect::<Vec<_>>())?)
}

/// Parses the name of an architecture.
fn architecture(given: &Bound<'_, PyAny>) -> PyResult<Architecture> {
    one_of("architecture", given, &Architecture::ALL.map(|one| (one.name(), one)))
}
