//! `bywash bench plan`: the simulator and the model against programs in Python, and against limits.
//!
//! - `engine`: events of small networks of queues, and the same networks in SimPy
//! - `server`: a simulated server, in a process of its own
//! - `sweep`: the model over a million points, and the same formula in NumPy
//! - `python`: an environment that has SimPy and NumPy, and scripts that run in it
//!
//! All sides compute on one core and wait for nothing, so their seconds are CPU time: the other programs of the machine
//! do not count.

mod engine;
mod python;
mod server;
mod sweep;

use crate::campaign::{self, Audience, Choice, Declared};
use crate::engine::{Rounds, Runs, uninterrupted};
use crate::error::Error;
use crate::row::Report;
use crate::workspace::Workspace;
use python::Python;

/// Resources of all cases.
struct Stage {
    /// Environment of the peers, or the reason why there is none.
    python: Result<Python, Error>,
    quick: bool,
    rounds: Rounds,
}

impl Stage {
    fn python(&self) -> Result<&Python, Error> {
        self.python.as_ref().map_err(|error| Error::Unavailable(error.to_string()))
    }
}

/// Measures the chosen cases. Returns the report, and whether the run was interrupted.
///
/// # Errors
/// [`Error::Usage`] if no case has such a name, [`Error::Io`] if the folder cannot be used.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let cases = campaign::choose(cases(), &choice.names, Declared::name)?;
    let workspace = Workspace::create(choice.folder.as_deref())?;
    audience.progress(0, cases.len() as u64, "SimPy and NumPy");
    let python = uninterrupted(Python::prepare(workspace.programs(), workspace.run()))?;
    let stage = Stage { python, quick: choice.quick, rounds: choice.rounds() };
    let cases = cases.into_iter().map(|case| case.on(&stage)).collect();
    Ok(campaign::run(cases, audience))
}

fn cases() -> Vec<Declared<Stage>> {
    [engine::cases(), server::cases(), sweep::cases()].into_iter().flatten().collect()
}

/// Simulates a server of that structure in this process; see `server::peer`.
///
/// # Errors
/// Those of `server::peer`.
pub fn peer(structure: &str, requests: u64) -> Result<(), Error> {
    server::peer(structure, requests)
}

/// Lets the second of `runs` fail unless both sides have computed the same.
fn compare<S>(runs: &mut [Runs<S>], agree: impl Fn(&[S], &[S]) -> Result<(), Error>) {
    let [ours, peer] = runs else { return };
    if let (Ok(ours), Ok(theirs)) = (&ours.samples, &peer.samples)
        && let Err(error) = agree(ours, theirs)
    {
        peer.samples = Err(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let cases = cases();
        for (number, case) in cases.iter().enumerate() {
            assert!(cases[..number].iter().all(|other| other.name() != case.name()), "{} twice", case.name());
        }
    }
}
