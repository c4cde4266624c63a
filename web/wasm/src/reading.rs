//! Parsing of descriptions, and the errors that the page reports.

use bywash_model::Description;
use bywash_model::describe;
use serde::Serialize;
use serde_json::Value;

/// Reason for refusing a question.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not a valid question.
    #[error("this is not a question: {0}")]
    Question(serde_json::Error),
    /// The description is invalid.
    #[error("{0}")]
    Description(#[from] describe::Error),
    /// The simulator refuses the description.
    #[error("{0}")]
    Simulation(#[from] bywash_sim::server::Error),
    /// The description has too many threads for an evaluation in a page.
    #[error("{0} threads take too long on a page: ask `bywash plan model`")]
    TooMany(f64),
    /// No slider has this key.
    #[error("there is no slider for '{0}'")]
    NoSlider(String),
    /// The result cannot be serialized.
    #[error("cannot write it: {0}")]
    Write(String),
}

/// Returns sentences about the costs that a file leaves out and what is taken for them; empty if it has all.
pub fn implied(text: &str) -> String {
    let costs: Vec<String> =
        describe::implied_costs(text).into_iter().map(|(name, cost)| format!("{name} {cost}")).collect();
    let costs = (!costs.is_empty())
        .then(|| format!("Costs that it leaves out are those of a paper of 2003: {}.", costs.join(", ")));
    let trap = describe::implied_trap(text)
        .map(|trap| format!("In programs, a system call without I/O costs {trap}: getppid(2) of Linux 6.1."));
    costs.into_iter().chain(trap).collect::<Vec<_>>().join(" ")
}

/// Parses a file into a description that keeps the values as they are written and adds those that the file
/// omits. A text that begins with `{` is JSON, any other text is TOML.
///
/// # Errors
/// [`Error::Description`] with the line if the file is invalid; [`Error::Write`] if the result has no
/// JSON form.
pub fn read(text: &str) -> Result<Value, Error> {
    let unreadable = |message: String| Error::Description(describe::Error::Unreadable(message));
    let (description, written): (_, Value) = if text.trim_start().starts_with('{') {
        let description = Description::from_json(text)?;
        (description, serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?)
    } else {
        let description = Description::from_toml(text)?;
        (description, toml::from_str(text).map_err(|error| unreadable(error.to_string()))?)
    };
    let mut whole = json(&description)?;
    overwrite(&mut whole, written);
    Ok(whole)
}

/// Parses and checks a description from a question by the same rules as one from a file.
///
/// # Errors
/// [`Error::Description`] if the description is invalid.
pub fn checked(description: &Value) -> Result<Description, Error> {
    Ok(Description::from_json(&description.to_string())?)
}

/// Converts a value to JSON.
///
/// # Errors
/// [`Error::Write`] if the value has no JSON form.
pub fn json(told: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(told).map_err(|error| Error::Write(error.to_string()))
}

/// Replaces values of `whole` by the values of `written` with the same names.
fn overwrite(whole: &mut Value, written: Value) {
    match (whole, written) {
        (Value::Object(whole), Value::Object(written)) => {
            for (name, value) in written {
                overwrite(whole.entry(name).or_insert(Value::Null), value);
            }
        }
        (place, value) => *place = value,
    }
}
