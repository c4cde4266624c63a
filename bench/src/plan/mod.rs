//! `bywash bench plan`: the simulator and the model, against what one would write in Python and what they may take.
//!
//! - `engine`: events of small nets, and the same nets in SimPy
//! - `net`: those nets
//! - `server`: a simulated server, in a process of its own
//! - `sweep`: the model over a million points, and the same formula in NumPy
//! - `turns`: two sides in turns
//! - `python`: an environment with SimPy and NumPy in it, and scripts that run there

mod engine;
mod net;
mod python;
mod server;
mod sweep;
mod turns;

use crate::campaign::{Audience, Choice};
use crate::error::Error;
use crate::machine::Machine;
use crate::row::{Report, Row};
use crate::workspace::Workspace;
use python::Python;

/// What parts are measured with.
struct Stage<'a> {
    /// Where the peers run, or why they cannot.
    python: &'a Result<Python, Error>,
    /// Whether it works, not how fast.
    quick: bool,
    /// Rounds in which each side has its turn.
    pairs: u32,
}

impl Stage<'_> {
    /// Where the peers run.
    ///
    /// # Errors
    /// Why they cannot.
    fn python(&self) -> Result<&Python, Error> {
        self.python.as_ref().map_err(|error| Error::Unavailable(error.to_string()))
    }
}

/// How a part makes its rows.
type Measure = Box<dyn Fn(&Stage<'_>) -> Result<Vec<Row>, Error>>;

/// A part of the bench.
struct Part {
    bench: &'static str,
    case: String,
    measure: Measure,
}

impl Part {
    /// Its name, by which it is chosen.
    fn name(&self) -> String {
        format!("{}: {}", self.bench.trim_start_matches("plan/"), self.case)
    }

    /// A row of it without figures.
    fn empty(&self) -> Row {
        Row { bench: self.bench.into(), case: self.case.clone(), peer: "-".into(), ..Row::default() }
    }
}

/// Measures everything whose name contains one of `names`, or all of it if there is none, in `pairs` rounds in which
/// each side has its turn; what is kept for the next run lies under `folder`.
///
/// # Errors
/// That no name contains that, or the folder cannot be used. What failed becomes the note of its rows, and after an
/// interruption what is there so far is answered with it.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let (names, quick, pairs, folder) =
        (&choice.names, choice.quick, choice.rounds, choice.folder.as_deref());
    let parts = chosen(names)?;
    let workspace = Workspace::create(folder)?;
    let mut report =
        Report { machine: Machine::this(), version: env!("CARGO_PKG_VERSION").into(), rows: Vec::new() };
    audience.progress(0, parts.len() as u64, "looking for SimPy and NumPy");
    let python = match Python::prepare(workspace.programs(), workspace.run()) {
        Err(Error::Interrupted) => return Ok((report, true)),
        python => python,
    };
    let stage = Stage { python: &python, quick, pairs };
    for (number, part) in parts.iter().enumerate() {
        audience.progress(number as u64, parts.len() as u64, &part.name());
        let rows = match (part.measure)(&stage) {
            Err(Error::Interrupted) => return Ok((report, true)),
            Err(error) => vec![part.empty().without_numbers("", &error)],
            Ok(rows) => rows,
        };
        for row in rows {
            let row = Row { bench: part.bench.into(), case: part.case.clone(), ..row };
            audience.row(&row);
            report.rows.push(row);
        }
    }
    Ok((report, false))
}

fn chosen(names: &[String]) -> Result<Vec<Part>, Error> {
    let mut parts = engine::parts();
    parts.extend(server::parts());
    parts.extend(sweep::parts());
    parts.retain(|part| names.is_empty() || names.iter().any(|name| part.name().contains(name.as_str())));
    match parts.is_empty() {
        true => Err(Error::Usage(format!("no part has '{}' in its name", names.join("' or '")))),
        false => Ok(parts),
    }
}

/// The process that simulates a server of that structure.
///
/// # Errors
/// What failed.
pub fn peer(structure: &str, requests: u64) -> Result<(), Error> {
    server::peer(structure, requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_name_of_its_own_and_names_choose() {
        let parts = chosen(&[]).unwrap();
        for (number, part) in parts.iter().enumerate() {
            assert!(parts[..number].iter().all(|other| other.name() != part.name()), "{} twice", part.name());
        }
        let some = chosen(&["model".into()]).unwrap();
        assert!(!some.is_empty() && some.iter().all(|part| part.bench == "plan/model"));
        assert!(chosen(&["no such".into()]).is_err());
    }
}
