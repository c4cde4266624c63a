//! Descriptions of servers, as values of Python.
//!
//! A description keeps the text that it was read from and the numbers that were set since, and is pickled as
//! those: text written anew would differ in the last digit of some numbers, and another process would compute
//! another result.

use crate::errors;
use crate::options::one_of;
use bywash_model::Description as Described;
use bywash_model::describe::{Error, Key, implied_costs};
use bywash_sim::preset::{PRESETS, Preset};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyString, PyTuple};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A machine and its workload, in the format of ``bywash plan``: one file for the model and the simulator.
///
/// text
///     The description, with its units.
/// form
///     ``"toml"`` or ``"json"``.
/// numbers
///     Values that replace numbers of the text, by their keys, in base units: bytes, seconds, cycles, shares
///     of one.
///
/// A description is a value: ``with_`` returns another one. An invalid description raises a
/// ``DescriptionError`` that names the line. ``description["request.web.miss"]`` is a number of it in base
/// units, ``description.keys()`` are the names.
#[pyclass(frozen, module = "bywash.plan")]
pub(crate) struct Description {
    pub(crate) known: Described,
    text: String,
    form: Form,
    /// Values that were set after reading the text, by the names of their keys.
    numbers: BTreeMap<&'static str, f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Toml,
    Json,
}

const FORMS: [(&str, Form); 2] = [("toml", Form::Toml), ("json", Form::Json)];

impl Description {
    fn read(text: String, form: Form) -> Result<Description, Error> {
        let known = match form {
            Form::Toml => Described::from_toml(&text)?,
            Form::Json => Described::from_json(&text)?,
        };
        Ok(Description { known, text, form, numbers: BTreeMap::new() })
    }

    fn set(&self, numbers: impl IntoIterator<Item = (Key, f64)>) -> Result<Description, Error> {
        let mut known = self.known;
        let mut all = self.numbers.clone();
        for (key, number) in numbers {
            let at = key.number_in(&mut known)?;
            if !number.is_finite() || number < 0.0 {
                let (key, value) = (key.name, number.to_string());
                return Err(Error::OutOfRange { key, value, must: "a number from 0 on" });
            }
            *at = number;
            all.insert(key.name, number);
        }
        Ok(Description { known: known.checked()?, text: self.text.clone(), form: self.form, numbers: all })
    }
}

/// Parses a value of `key`: text with its unit, or a number of Python for a count. Returns the value in base
/// units.
pub(super) fn value(key: Key, given: &Bound<'_, PyAny>) -> PyResult<f64> {
    let is_number = given.is_instance_of::<PyInt>() || given.is_instance_of::<PyFloat>();
    let is_number = is_number || given.hasattr("__float__")?;
    if !is_number && !given.is_instance_of::<PyString>() {
        let what = given.get_type().name()?;
        return Err(PyTypeError::new_err(format!("{} is text with its unit, not {what}", key.name)));
    }
    key.value(given.str()?.to_str()?).map_err(|error| errors::description(given.py(), &error, None))
}

#[pymethods]
impl Description {
    #[new]
    #[pyo3(
        signature = (text, form=None, numbers=None),
        text_signature = "(text, form='toml', numbers=None)"
    )]
    fn new(
        py: Python<'_>,
        text: String,
        form: Option<&Bound<'_, PyAny>>,
        numbers: Option<BTreeMap<String, f64>>,
    ) -> PyResult<Description> {
        let refused = |error: Error| errors::description(py, &error, None);
        let form = form.map_or(Ok(Form::Toml), |form| one_of("form", form, &FORMS))?;
        let numbers = numbers.unwrap_or_default().into_iter();
        let numbers: Vec<(Key, f64)> = numbers
            .map(|(name, number)| Ok((Key::by_name(&name)?, number)))
            .collect::<Result<_, _>>()
            .map_err(refused)?;
        Description::read(text, form).and_then(|read| read.set(numbers)).map_err(refused)
    }

    /// Reads a description from TOML text.
    #[staticmethod]
    fn from_toml(py: Python<'_>, text: String) -> PyResult<Description> {
        Description::read(text, Form::Toml).map_err(|error| errors::description(py, &error, None))
    }

    /// Reads a description from JSON text.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: String) -> PyResult<Description> {
        Description::read(text, Form::Json).map_err(|error| errors::description(py, &error, None))
    }

    /// Returns a built-in description by its name, one of ``bywash.plan.PRESETS``.
    #[staticmethod]
    fn preset(py: Python<'_>, name: &str) -> PyResult<Description> {
        let preset = Preset::named(name).ok_or_else(|| {
            let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
            errors::option(py, format!("there is no preset '{name}'; there are {}", names.join(", ")))
        })?;
        Description::from_toml(py, preset.text.into())
    }

    /// Reads a description from a file: JSON if its name ends in ``.json``, otherwise TOML.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Description> {
        let options = PyDict::new(py);
        options.set_item("encoding", "utf-8")?;
        let text = py.import("pathlib")?.call_method1("Path", (&path,))?;
        let text: String = text.call_method("read_text", (), Some(&options))?.extract()?;
        let is_json = path.extension().is_some_and(|ending| ending == "json");
        Description::read(text, if is_json { Form::Json } else { Form::Toml })
            .map_err(|error| errors::description(py, &error, Some(&path.display().to_string())))
    }

    /// Reads a description from a dictionary of dictionaries: the result of ``to_dict``, or of ``json`` or
    /// ``tomllib``.
    #[staticmethod]
    fn from_dict(py: Python<'_>, description: &Bound<'_, PyDict>) -> PyResult<Description> {
        let text: String = py.import("json")?.call_method1("dumps", (description,))?.extract()?;
        Description::from_json(py, text)
    }

    /// Returns the description as JSON, which ``bywash plan`` reads from a file whose name ends in ``.json``.
    fn to_json(&self) -> String {
        // Numbers, names and tables of them always have a JSON form, so serialisation cannot fail.
        serde_json::to_string_pretty(&self.known).unwrap_or_default()
    }

    /// Returns the description as a dictionary of dictionaries.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("json")?.call_method1("loads", (self.to_json(),))
    }

    /// Returns a copy of the description with another value of one number:
    /// ``description.with_("request.web.miss", "20 %")``. The value has its unit; a count may be a number.
    /// ``bywash.plan.KEYS`` lists the names.
    fn with_(&self, py: Python<'_>, key: &str, value: &Bound<'_, PyAny>) -> PyResult<Description> {
        let refused = |error: Error| errors::description(py, &error, None);
        let key = Key::by_name(key).map_err(refused)?;
        self.set([(key, self::value(key, value)?)]).map_err(refused)
    }

    /// Returns the names of the numbers in this description that can be varied.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let mut known = self.known;
        let there = Key::all().filter(|key| key.number_in(&mut known).is_ok()).map(|key| key.name);
        PyTuple::new(py, there.collect::<Vec<_>>())
    }

    /// Architecture of the server's I/O that is used unless another one is given.
    #[getter]
    fn architecture(&self) -> &'static str {
        self.known.architecture.name()
    }

    /// Architectures that the machine can have: without processors in its devices, they are not active or direct.
    #[getter]
    fn architectures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.known.supported().into_iter().map(|one| one.name()))
    }

    /// Costs per byte that the text leaves out and ``with_`` has not set, by their keys, in cycles a byte: those of
    /// a paper of 2003 are taken for them.
    #[getter]
    fn implied_costs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (name, cost) in implied_costs(&self.text) {
            let key = format!("costs.{name}");
            if !self.numbers.contains_key(&*key) {
                all.set_item(key, cost.0)?;
            }
        }
        Ok(all)
    }

    fn __getitem__(&self, key: &str) -> PyResult<f64> {
        let mut known = self.known;
        let number = Key::by_name(key).and_then(|key| key.number_in(&mut known).copied());
        number.map_err(|error| PyKeyError::new_err(error.to_string()))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Description>().is_ok_and(|other| other.get().known == self.known)
    }

    fn __getnewargs__(&self) -> (&str, &'static str, BTreeMap<&'static str, f64>) {
        let form = if self.form == Form::Toml { FORMS[0].0 } else { FORMS[1].0 };
        (&self.text, form, self.numbers.clone())
    }

    fn __repr__(&self) -> String {
        format!("<bywash.plan.Description: {}>", serde_json::to_string(&self.known).unwrap_or_default())
    }
}
