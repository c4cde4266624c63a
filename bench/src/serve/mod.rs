//! `bywash bench serve`: our device server and its clients against the kernel's paths to memory and disk, and against other
//! servers of vhost-user-blk and NBD.
//!
//! Every side carries out the same workload, by clients that are processes and differ in their engine alone:
//!
//! - `workload`: the work, and the loop that submits it to an engine
//! - `file`, `vhost`, `ours`, `nbd`: engines; `bound`: engines that no path can be faster than
//! - `client`, `server`, `daemon`: processes; `process`: their jobs and reports
//! - `processor`: CPU time; `moved`: whether the bytes were moved; `figure`: figures of a run
//! - `medium`: file systems that are made for this, and the disk
//! - `contest`: the sides, and what they run with
//! - `cases`, `limits`, `check`, `registered`, `cores`, `thin`: the cases

mod cases;
mod check;
mod cores;
mod daemon;
mod figure;
mod file;
mod limits;
mod moved;
mod process;
mod processor;
mod registered;
mod server;
mod thin;
pub(crate) mod vhost;

// Public for the integration test, which needs processes of its own.
#[doc(hidden)]
pub mod bound;
#[doc(hidden)]
pub mod client;
#[doc(hidden)]
pub mod contest;
#[doc(hidden)]
pub mod medium;
#[doc(hidden)]
pub mod nbd;
#[doc(hidden)]
pub mod ours;
#[doc(hidden)]
pub mod workload;

use crate::campaign::{self, Audience, Choice, Declared};
use crate::error::Error;
use crate::row::Report;
use crate::workspace::Workspace;
use contest::Setup;

pub use process::peer;

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
    let goals = [
        cases::with_goals(),
        limits::cases(),
        check::cases(),
        registered::cases(),
        cores::cases(),
        thin::cases(),
    ];
    goals.into_iter().flatten().chain(cases::without_goals(quick)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names: Vec<String> = cases(false).iter().map(|case| case.name().to_owned()).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(peer("{}").is_err());
    }
}
