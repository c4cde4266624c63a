//! Plans: descriptions of servers, results of the model and the simulator, and sweeps over many of them.
//!
//! - `description`: a machine and its work, as a value
//! - `answers`: one description, the paper's figures, the acceptance table
//! - `papers`: the papers' simulations, repeated
//! - `points`: the points of a sweep, any stretch of which can be computed anywhere
//! - `trials`: one description, or the points of a sweep, in detail
//!
//! Invariant: what is answered follows from the arguments alone, to the last bit. `python/bywash/plan/` cuts sweeps into
//! pieces for threads and machines, and puts the answers together, whoever computed them.

mod answers;
mod description;
mod papers;
mod points;
mod trials;

pub(crate) use answers::{check, evaluate, figure};
pub(crate) use description::Description;
pub(crate) use papers::{bars, targets};
pub(crate) use points::{Points, values_of};
pub(crate) use trials::{Trials, simulate};

use crate::options::one_of;
use bywash_model::describe::Key;
use bywash_model::{Architecture, Resource, figures};
use bywash_sim::preset::PRESETS;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The names and numbers that there are.
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

/// The architecture of that name.
fn architecture(given: &Bound<'_, PyAny>) -> PyResult<Architecture> {
    one_of("architecture", given, &Architecture::ALL.map(|one| (one.name(), one)))
}
