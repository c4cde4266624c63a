//! Execution of a program with clients.

use super::machine::TimedMachine;
use super::report::ProgramReport;
use bywash_execute::Execution;
use bywash_execute::clients::{Clients, Load, LoadError, Report};

/// Runs a program with the clients of a load until the load was measured. Returns what the clients measured, the use of the
/// machine in that time, and the execution.
///
/// # Errors
/// [`LoadError`] if the load is impossible, or the program does not serve it.
pub fn run_load(
    execution: Execution<TimedMachine>,
    load: Load,
) -> Result<(Report, ProgramReport, Execution<TimedMachine>), LoadError> {
    let mut reports = Vec::new();
    let clients = Clients::new(execution, load)?;
    // The observer is called at the beginning and at the end of the measurement.
    let (measured, execution) =
        clients.run_observed(|_, execution| reports.push(execution.machine().report()))?;
    let used = match reports.as_slice() {
        [begin, end] => end.since(begin),
        _ => execution.machine().report(),
    };
    Ok((measured, used, execution))
}
