//! An execution of a program, with clients or without, in steps of some number of instructions.

use super::error::Error;
use bywash_execute::clients::{Clients, Load, Moment};
use bywash_execute::{End, Execution, Progress, Time};
use bywash_sim::program::{
    ClientTimes, FunctionUse, ProgramReport, ProgramTimeline, TimedMachine, functions,
};

/// Greatest number of bytes of a program's output that are kept.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Reason for which an execution is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// The program has ended.
    Ended(End),
    /// The load was measured.
    Measured,
    /// The limit of simulated time was reached.
    Limit,
}

/// Execution that goes on in steps.
pub struct ProgramRun {
    state: State,
    /// Use of the machine at the beginning and at the end of the clients' measurement.
    reports: Vec<ProgramReport>,
    /// Simulated time at which the execution is over at the latest.
    limit: Time,
    /// Reason for which it is over, once it is.
    over: Option<Over>,
    /// Output that was not taken yet.
    output: Vec<u8>,
    /// Number of bytes of output, with those that were taken.
    written: usize,
}

enum State {
    Alone(Box<Execution<TimedMachine>>),
    Served(Box<Clients<TimedMachine>>),
}

/// Result of an execution.
pub struct Finished {
    /// Use of the machine, with clients from the beginning to the end of their measurement.
    pub report: ProgramReport,
    /// Measurements of the clients, if there were any.
    pub clients: Option<ClientTimes>,
    /// Functions that took the time, the greatest first.
    pub functions: Vec<FunctionUse>,
    /// Spans of threads and devices.
    pub timeline: ProgramTimeline,
    /// Simulated time at which the execution was over, in seconds.
    pub end: f64,
}

impl ProgramRun {
    /// Makes an execution, with the clients of a load if there is one.
    ///
    /// # Errors
    /// [`Error::Load`] if the load is impossible.
    pub fn new(
        execution: Execution<TimedMachine>,
        load: Option<Load>,
        limit: Time,
    ) -> Result<ProgramRun, Error> {
        let state = match load {
            None => State::Alone(Box::new(execution)),
            Some(load) => State::Served(Box::new(Clients::new(execution, load)?)),
        };
        Ok(ProgramRun { state, reports: Vec::new(), limit, over: None, output: Vec::new(), written: 0 })
    }

    /// Returns the execution.
    pub fn execution(&self) -> &Execution<TimedMachine> {
        match &self.state {
            State::Alone(execution) => execution,
            State::Served(clients) => clients.execution(),
        }
    }

    /// Returns the number of responses that clients have received.
    pub fn responses(&self) -> u64 {
        match &self.state {
            State::Alone(_) => 0,
            State::Served(clients) => clients.completed(),
        }
    }

    /// Returns the reason for which the execution is over; `None` before.
    pub fn over(&self) -> Option<&Over> {
        self.over.as_ref()
    }

    /// Executes about so many instructions, with those of the system.
    ///
    /// # Errors
    /// [`Error::Execute`] or [`Error::Load`] if the program needs what the simulated system does not have, or does not
    /// serve its clients.
    pub fn step(&mut self, instructions: u64) -> Result<(), Error> {
        if self.over.is_some() {
            return Ok(());
        }
        let limit = self.limit;
        let over = match &mut self.state {
            State::Alone(execution) => alone(execution, limit, instructions, &mut self.output)?,
            State::Served(clients) => {
                let reports = &mut self.reports;
                let mut observe = |_: Moment, execution: &mut Execution<TimedMachine>| {
                    reports.push(execution.machine().report())
                };
                let is_measured = clients.run_for(limit, instructions, &mut observe);
                self.output.extend(&clients.output()[self.written..]);
                self.written = clients.output().len();
                is_measured?.then_some(Over::Measured)
            }
        };
        self.over = over.or_else(|| (self.execution().time() >= self.limit).then_some(Over::Limit));
        Ok(())
    }

    /// Takes the output since the last time, up to the last whole character.
    pub fn take_output(&mut self) -> String {
        let whole = match std::str::from_utf8(&self.output) {
            // The first bytes of a character that was not written to its end.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.output.len(),
        };
        let rest = self.output.split_off(whole);
        let text = String::from_utf8_lossy(&self.output).into_owned();
        self.output = rest;
        text
    }

    /// Ends the execution, and returns its result so far.
    pub fn finish(self) -> Finished {
        let end = self.execution().time();
        let mut reports = self.reports;
        let (execution, clients) = match self.state {
            State::Alone(execution) => (*execution, None),
            State::Served(clients) => {
                let (report, execution) =
                    clients.finish(&mut |_: Moment, execution: &mut Execution<TimedMachine>| {
                        reports.push(execution.machine().report());
                    });
                (execution, Some(ClientTimes::new(&report)))
            }
        };
        let report = match reports.as_slice() {
            [begin, end] => end.since(begin),
            _ => execution.machine().report(),
        };
        Finished {
            report,
            clients,
            functions: functions(&execution),
            timeline: execution.machine().timeline().unwrap_or_default(),
            end: end.picoseconds() as f64 / 1e12,
        }
    }
}

/// Executes a program without clients for some instructions, or until a time, and adds what it writes to `output`. Returns
/// the reason for which it is over.
fn alone(
    execution: &mut Execution<TimedMachine>,
    limit: Time,
    mut instructions: u64,
    output: &mut Vec<u8>,
) -> Result<Option<Over>, Error> {
    let mut over = None;
    while over.is_none() && execution.time() < limit && instructions > 0 {
        let progress = execution.run_for(limit, &mut instructions)?;
        let room = OUTPUT_BYTES_MAX.saturating_sub(output.len());
        output.extend(execution.output().into_iter().flat_map(|(_, bytes)| bytes).take(room));
        match progress {
            Progress::Ended(end) => over = Some(Over::Ended(end)),
            Progress::Input => execution.input(b"", true),
            Progress::Idle => return Err(Error::Idle),
            _ => {}
        }
    }
    Ok(over)
}
