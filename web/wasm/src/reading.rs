//! Descriptions as they come in, and why there may be no answer.

use bywash_model::Description;
use bywash_model::describe;
use serde::Serialize;
use serde_json::Value;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The page asks for what there is not.
    #[error("this is not a question: {0}")]
    Question(serde_json::Error),
    /// The model has no such machine or work.
    #[error("{0}")]
    Description(#[from] describe::Error),
    /// The simulator has not.
    #[error("{0}")]
    Simulation(#[from] bywash_sim::server::Error),
    /// It would take minutes.
    #[error("{0} threads take too long on a page: ask `bywash plan model`")]
    TooMany(f64),
    /// There is no slider for it.
    #[error("there is no slider for '{0}'")]
    NoSlider(String),
    /// A result that cannot be written.
    #[error("cannot write it: {0}")]
    Write(String),
}

/// What a file says, with its values as they are written there, and with what it leaves out. A text that begins like JSON
/// is JSON.
///
/// # Errors
/// What is wrong with it, and in which line.
pub fn read(text: &str) -> Result<Value, Refused> {
    let unreadable = |message: String| Refused::Description(describe::Error::Unreadable(message));
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

/// A description out of a question, held against the same rules as one in a file.
///
/// # Errors
/// What is wrong with it.
pub fn checked(description: &Value) -> Result<Description, Refused> {
    Ok(Description::from_json(&description.to_string())?)
}

/// As JSON.
///
/// # Errors
/// That it has no such form.
pub fn json(told: &impl Serialize) -> Result<Value, Refused> {
    serde_json::to_value(told).map_err(|error| Refused::Write(error.to_string()))
}

/// Puts the values of `written` in the place of those of `whole`, which has the same names.
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
