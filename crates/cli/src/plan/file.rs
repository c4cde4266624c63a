//! Descriptions as named on the command line.

use crate::error::Failure;
use crate::standard::Unfailing;
use bywash_model::Description;
use bywash_model::describe::{Key, implied_costs, implied_trap};
use bywash_sim::preset::{PRESETS, Preset};
use std::fs;
use std::io::Write;
use std::path::Path;

/// Prefix of the name of a built-in description.
const PRESET: &str = "preset:";

/// Reads the description in `path`, or the built-in one named by `preset:NAME`, and applies the changes in
/// `set`. Tells on standard error which costs the description leaves out, and what is taken for them.
///
/// # Errors
/// [`Failure::Read`] if the file cannot be read, [`Failure::Description`] if the description or a change is
/// invalid.
pub fn read(path: &Path, set: &[String]) -> Result<Description, Failure> {
    read_and_tell(path, set, tell_implied)
}

/// Reads a description as [`read`] does, for the execution of a program, and tells of the cost that only it has.
///
/// # Errors
/// Those of [`read`].
pub fn read_to_execute(path: &Path, set: &[String]) -> Result<Description, Failure> {
    read_and_tell(path, set, |path, text, set| {
        tell_implied(path, text, set);
        if let Some(trap) = implied_trap(text).filter(|_| !is_set(set, "trap")) {
            let path = path.display();
            let _ = writeln!(
                Unfailing,
                "{path}: a system call without I/O (costs.trap), which it leaves out, is taken to cost {trap}: \
                 getppid(2) of Linux 6.1"
            );
        }
    })
}

/// Reads a description, and lets `tell` say what the text of a file leaves out.
fn read_and_tell(
    path: &Path,
    set: &[String],
    tell: impl Fn(&Path, &str, &[String]),
) -> Result<Description, Failure> {
    let refused = |reason: String| Failure::Description { path: path.into(), reason };
    let mut description = match path.to_str().and_then(|text| text.strip_prefix(PRESET)) {
        Some(name) => named(name).map_err(refused)?.description(),
        None => {
            let text =
                fs::read_to_string(path).map_err(|source| Failure::Read { path: path.into(), source })?;
            let is_json = path.extension().is_some_and(|ending| ending == "json");
            let read = if is_json { Description::from_json(&text) } else { Description::from_toml(&text) };
            let description = read.map_err(|why| refused(why.to_string()))?;
            tell(path, &text, set);
            description
        }
    };
    for one in set {
        let (name, value) =
            one.split_once('=').ok_or_else(|| refused(format!("'{one}': write KEY=VALUE")))?;
        let changed = Key::by_name(name.trim()).and_then(|key| {
            let value = key.value(value)?;
            *key.number_in(&mut description)? = value;
            Ok(())
        });
        changed.map_err(|why| refused(why.to_string()))?;
    }
    description.checked().map_err(|why| refused(why.to_string()))
}

/// Tells which costs are implied by `text` and not changed by `set`.
fn tell_implied(path: &Path, text: &str, set: &[String]) {
    let implied = implied_costs(text).into_iter().filter(|(name, _)| !is_set(set, name));
    let costs: Vec<String> = implied.map(|(name, cost)| format!("{name} {cost}")).collect();
    if !costs.is_empty() {
        let (path, costs) = (path.display(), costs.join(", "));
        let _ = writeln!(
            Unfailing,
            "{path}: costs that it leaves out are those of a paper of 2003: {costs}; presets have today's"
        );
    }
}

/// Returns true if `set` changes a cost.
fn is_set(set: &[String], cost: &str) -> bool {
    set.iter()
        .any(|one| one.split('=').next().and_then(|key| key.trim().strip_prefix("costs.")) == Some(cost))
}

/// Returns the built-in description of this name.
///
/// # Errors
/// A text that lists the names, if none matches.
pub fn named(name: &str) -> Result<Preset, String> {
    let names = || PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
    Preset::named(name).ok_or_else(|| format!("there is no preset '{name}'; there are {}", names()))
}
