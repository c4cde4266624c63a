//! `bywash bench plan`: the simulator and the model against programs in Python, and against limits.
//!
//! - `engine`: events of small networks of queues, and the same networks in SimPy
//! - `predict`: predicted gains of strangers' programs, against measured ones
//! - `machine`: programs inside the simulated machine, and in QEMU
//! - `server`: a simulated server, in a process of its own
//! - `sweep`: the model over a million points, and the same formula in NumPy
//!
//! But for `predict`, all sides compute on one core and wait for nothing, so their seconds are CPU time: the other programs
//! of the machine do not count.

mod engine;
mod machine;
mod predict;
mod server;
mod sweep;

use crate::campaign::{self, Audience, Choice, Declared};
use crate::engine::{Rounds, Runs, Side, uninterrupted};
use crate::error::Error;
use crate::python::Python;
use crate::row::{Report, Row};
use crate::workspace::Workspace;
use bywash_model::Architecture;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub use server::peer;

/// Packages with the versions that the bench compares with.
const PACKAGES: [&str; 2] = ["simpy==4.1.2", "numpy==2.4.6"];

/// Resources of all cases.
struct Stage {
    /// Environment of the peers, or the reason why there is none.
    python: Result<Python, Error>,
    quick: bool,
    rounds: Rounds,
    /// Folder of the run.
    folder: PathBuf,
}

/// One turn of a side. The sides of Python and of other processes print it as JSON, without what they do not have.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Turn {
    /// CPU time.
    seconds: f64,
    /// Result of the computation, which must be the same on all sides.
    results: Vec<f64>,
    /// Requests of a server that were simulated.
    requests: f64,
    events: f64,
    peak_bytes: f64,
    versions: String,
}

impl Stage {
    /// Runs ours and a script of Python in turns, which have to compute the same but for a relative `difference`; the script
    /// gets `order` of the number of its turn. The versions of Python's side are added to the head's note.
    fn against_python(
        &self,
        head: &Row,
        ours: impl FnMut() -> Result<Turn, Error>,
        (name, script): (&str, &str),
        order: impl Fn(u32) -> serde_json::Value,
        difference: f64,
    ) -> Result<(Row, Vec<Runs<Turn>>), Error> {
        let mut turn = 0;
        let theirs = || {
            turn += 1;
            let python = self.python.as_ref().map_err(|error| Error::Unavailable(error.to_string()))?;
            python.run(name, script, &order(turn))
        };
        let mut runs = self.rounds.run(vec![Side::new("bywash", ours), Side::new(name, theirs)])?;
        compare(&mut runs, difference);
        let versions = runs[1].samples.iter().flatten().next().map_or("", |turn| &turn.versions);
        Ok((Row { note: format!("{}{versions}", head.note), ..head.clone() }, runs))
    }
}

/// Lets each of `runs` behind the first fail unless it has computed the same as the first.
fn compare(runs: &mut [Runs<Turn>], difference: f64) {
    let means = |turns: &[Turn]| {
        let sum = |place| turns.iter().filter_map(|turn| turn.results.get(place)).sum::<f64>();
        (0..turns.first().map_or(0, |turn| turn.results.len()))
            .map(|place| sum(place) / turns.len() as f64)
            .collect::<Vec<f64>>()
    };
    let Some((ours, peers)) = runs.split_first_mut() else { return };
    let Ok(mine) = ours.samples.as_deref().map(means) else { return };
    let is_near = |(mine, theirs): (&f64, &f64)| mine == theirs || (mine / theirs - 1.0).abs() <= difference;
    for peer in peers {
        let Ok(theirs) = peer.samples.as_deref().map(means) else { continue };
        if mine.len() != theirs.len() || !mine.iter().zip(&theirs).all(is_near) {
            let how = format!("computed {theirs:?}, and bywash {mine:?}");
            peer.samples = Err(Error::failed(&peer.name, how));
        }
    }
}

/// Measures the chosen cases. Returns the report, and whether the run was interrupted.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let cases = campaign::choose(cases(), &choice.names, Declared::name)?;
    let workspace = Workspace::create(choice.folder.as_deref())?;
    audience.progress(0, cases.len() as u64, "SimPy and NumPy");
    let python = uninterrupted(Python::prepare(workspace.programs(), workspace.run(), "python", &PACKAGES))?;
    let folder = workspace.run().to_owned();
    let stage = Stage { python, quick: choice.quick, rounds: choice.rounds(), folder };
    let cases = cases.into_iter().map(|case| case.on(&stage)).collect();
    Ok(campaign::run(cases, audience))
}

fn cases() -> Vec<Declared<Stage>> {
    let engine = engine::NETS.map(|(name, shape, customers)| {
        let measure = move |stage: &Stage, head: &Row| engine::measure(stage, head, shape, customers);
        Declared::new(Row::head("plan/engine", name, ""), measure)
    });
    let server = Architecture::ALL.map(|structure| {
        let head = Row::head("plan/server", &format!("Table IV, {}", structure.name()), "");
        Declared::new(head, move |stage, head| server::measure(stage, head, structure))
    });
    let model = Architecture::ALL.map(|structure| {
        let head = Row::head("plan/model", &format!("1,000,000 points, {}", structure.name()), "");
        Declared::new(head, move |stage, head| sweep::measure(stage, head, structure))
    });
    let predict = predict::workloads().map(|(group, workload)| {
        let measure = move |stage: &Stage, head: &Row| predict::measure(stage, head, &workload);
        Declared::new(predict::head(group, &workload), measure)
    });
    let machine = machine::CASES.map(|case| {
        let measure = move |stage: &Stage, head: &Row| machine::measure(stage, head, case);
        Declared::new(Row::head("plan/machine", case.name, ""), measure)
    });
    let waiting =
        Declared::new(Row::head("plan/machine", machine::WAITING.name, ""), machine::measure_waiting);
    engine.into_iter().chain(server).chain(model).chain(machine).chain([waiting]).chain(predict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let cases = cases();
        let names: std::collections::HashSet<_> = cases.iter().map(Declared::name).collect();
        assert!(cases.len() > 30);
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn sides_that_have_computed_something_else_fail() {
        let of = |name: &str, results: &[f64]| {
            let turn = Turn { results: results.into(), ..Turn::default() };
            Runs { name: name.into(), samples: Ok(vec![turn]) }
        };
        for (theirs, is_same) in [
            (&[1.0 + 1e-12, 0.0, 7.0][..], true),
            (&[1.1, 0.0, 7.0], false),
            (&[1.0, 1.0, 7.0], false),
            (&[1.0, 0.0, 0.0], false),
            (&[1.0, 0.0], false),
        ] {
            let mut runs = [of("bywash", &[1.0, 0.0, 7.0]), of("NumPy", theirs)];
            compare(&mut runs, 1e-9);
            assert_eq!((runs[0].samples.is_ok(), runs[1].samples.is_ok()), (true, is_same), "{theirs:?}");
        }
    }
}
