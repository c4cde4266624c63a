//! `bywash bench serve`: our device server and its clients against the kernel's paths to memory and disk, and against a
//! vhost-user-blk server.
//!
//! Every side carries out the same workload, by clients that are processes and differ in their engine alone:
//!
//! - `workload`: the work, and the loop that submits it to an engine
//! - `file`, `vhost`, `ours`: engines; `bound`: engines that no path can be faster than
//! - `client`, `server`, `daemon`: processes; `talk`: messages between them and the bench
//! - `histogram`, `processor`: latencies, CPU time; `moved`: whether the bytes were moved
//! - `medium`: file systems that are made for this, and the disk
//! - `contest`: the sides, and what they run with
//! - `cases`, `limits`, `check`, `registered`: the cases

mod cases;
mod check;
mod limits;
mod registered;

// Public for the integration test, which needs processes of its own.
#[doc(hidden)]
pub mod bound;
#[doc(hidden)]
pub mod client;
#[doc(hidden)]
pub mod contest;
mod daemon;
mod file;
mod histogram;
#[doc(hidden)]
pub mod medium;
mod moved;
#[doc(hidden)]
pub mod ours;
mod processor;
#[doc(hidden)]
pub mod server;
#[doc(hidden)]
pub mod talk;
mod vhost;
#[doc(hidden)]
pub mod workload;

use crate::campaign::{self, Audience, Choice, Declared};
use crate::error::Error;
use crate::row::Report;
use crate::workspace::Workspace;
use contest::Setup;

pub use talk::peer;

/// Measures the chosen cases. Returns the report, and whether the run was interrupted.
///
/// # Errors
/// [`Error::Usage`] if no case has such a name, [`Error::Io`] if the folder cannot be used, [`Error::Failed`] if our server
/// does not start.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let cases = campaign::choose(cases(choice.quick), &choice.names, Declared::name)?;
    let workspace = Workspace::create(choice.folder.as_deref())?;
    audience.progress(0, cases.len() as u64, "making file systems and servers");
    let setup = Setup::open(workspace.run(), choice.quick, choice.rounds)?;
    let cases = cases.into_iter().map(|case| case.on(&setup)).collect();
    Ok(campaign::run(cases, audience))
}

fn cases(quick: bool) -> Vec<Declared<Setup>> {
    let mut all = cases::cases();
    all.extend(limits::cases());
    all.extend(check::cases());
    all.extend(registered::cases());
    all.extend(cases::cases_without_goals(quick));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        for quick in [false, true] {
            let cases = cases(quick);
            for (number, case) in cases.iter().enumerate() {
                let others = &cases[..number];
                assert!(others.iter().all(|other| other.name() != case.name()), "{} twice", case.name());
            }
        }
        assert!(peer("{}").is_err());
    }
}
