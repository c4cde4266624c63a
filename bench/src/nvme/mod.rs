//! `bywash bench nvme`: instructions of a read by our NVMe driver, and by the paths of the kernel to the same disk.
//!
//! Instructions are counted in a virtual machine, by a plugin of its emulator, and not estimated from time: they are the same
//! on every host. They are no time: a write of a doorbell counts as one, and so does a load that misses all caches.
//!
//! - [`guest`]: the virtual machine; `programs/count.c`: the plugin; [`mark`]: instructions that it knows
//! - [`inside`]: the programs in the virtual machine
//! - [`counted`]: samples, by the names of their series
//! - [`rows`]: the rows that are made of them

mod counted;
mod guest;
mod inside;
mod mark;
mod rows;

use crate::campaign::{self, Audience, Choice, Declared};
use crate::engine::uninterrupted;
use crate::error::Error;
use crate::row::Report;
use crate::workspace::Workspace;
use counted::Counted;

pub use inside::run as peer;

/// Operations of each path, and of a quick run.
const OPERATIONS: usize = 1000;
const OPERATIONS_QUICK: usize = 96;

/// Measures the chosen cases: everything is counted in one run of the virtual machine. Returns the report, and whether the
/// run was interrupted.
///
/// # Errors
/// [`Error::Usage`] if no case has such a name, [`Error::Io`] if the folder cannot be used.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let cases = campaign::choose(rows::cases(), &choice.names, Declared::name)?;
    let workspace = Workspace::create(choice.folder.as_deref())?;
    let operations = if choice.quick { OPERATIONS_QUICK } else { OPERATIONS };
    audience.progress(0, 1, "starting a virtual machine");
    let counted = guest::count(&workspace, operations, &mut |series| {
        audience.progress(0, 1, &format!("counting: {series}"))
    });
    let stage = Stage(uninterrupted(counted)?);
    let cases = cases.into_iter().map(|case| case.on(&stage)).collect();
    Ok(campaign::run(cases, audience))
}

/// Counts of all paths, from which each case takes its own, or the reason why nothing was counted.
struct Stage(Result<Counted, Error>);

impl Stage {
    /// Returns everything that was counted.
    fn counted(&self) -> Result<&Counted, Error> {
        self.0.as_ref().map_err(|error| match error.is_absence() {
            true => Error::Unavailable(error.to_string()),
            false => Error::failed("the virtual machine", error.to_string()),
        })
    }
}
