//! `bywash plan execute`: a program inside a described machine.

use super::file;
use super::timeline;
use super::words::{json, print, rate, time};
use crate::cli::plan::ExecuteArgs;
use crate::error::Failure;
use crate::signals::Signals;
use crate::standard::Unfailing;
use bywash_execute::clients::{Load, LoadError, Mix, Report, Request, Span};
use bywash_execute::{End, Execution, FILE_BYTES, FileSystem, Program, Progress, Time};
use bywash_model::Architecture;
use bywash_sim::program::{ClientTimes, FunctionUse, ProgramReport, TimedMachine, functions, run_load};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Exit status of a run that --until has ended.
const OVER: i32 = 124;
/// Number of instructions between two looks at signals.
const LOOK_INSTRUCTIONS: u64 = 1_000_000;
/// Number of functions of a printed profile.
const FUNCTIONS_MAX: usize = 20;
/// Size of a page of the page cache, in bytes.
const PAGE_BYTES: f64 = 4096.0;

/// Runs a program and reports its execution. Returns the program's exit status.
///
/// # Errors
/// [`Failure::Read`] or [`Failure::Description`] if the description, the program or the input cannot be used,
/// [`Failure::Simulated`] if the program cannot be executed, [`Failure::Write`] or [`Failure::Output`] if a result cannot
/// be written.
pub fn execute(arguments: &ExecuteArgs) -> Result<i32, Failure> {
    let description = file::read_to_execute(&arguments.machine, &arguments.set)?;
    let architecture = arguments.architecture.unwrap_or(description.architecture);
    let refused = |why: &dyn std::fmt::Display| Failure::Simulated {
        program: arguments.program.clone(),
        reason: why.to_string(),
    };
    let machine = TimedMachine::new(&description, architecture, arguments.seed)
        .map_err(|why| Failure::Description { path: arguments.machine.clone(), reason: why.to_string() })?;
    let machine = if arguments.profile { machine.with_profile() } else { machine };
    let machine = match arguments.timeline {
        Some(_) => machine.with_timeline(timeline::SPANS_MAX),
        None => machine,
    };
    let bytes = read(&arguments.program)?;
    let mut files = FileSystem::new(FILE_BYTES);
    if let Some(folder) = &arguments.files {
        files.import(folder, "/").map_err(|why| refused(&why))?;
    }
    let name = arguments.program.as_os_str();
    let names = std::iter::once(name).chain(arguments.arguments.iter().map(|one| one.as_os_str()));
    let program = Program::new(names.map(OsStr::as_bytes))
        .files(files)
        .seed(arguments.seed)
        .memory_bytes(arguments.memory.0 as u64)
        .cache_pages((arguments.page_cache.0 / PAGE_BYTES) as usize)
        .direct_reads(architecture != Architecture::Conventional && description.mechanisms.transfer);
    let execution = Execution::new(&bytes, program, machine).map_err(|why| refused(&why))?;
    let signals = Signals::listen();
    let outcome = match load(arguments) {
        None => alone(execution, arguments, &signals)?,
        Some(load) => with_clients(execution, load).map_err(|why| refused(&why))?,
    };
    finish(arguments, architecture, outcome)
}

/// Returns the bytes of a file.
fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|source| Failure::Read { path: path.into(), source })
}

/// Result of a run.
struct Outcome {
    execution: Execution<TimedMachine>,
    /// End of the program, unless it still runs.
    end: Option<End>,
    /// Signal that ended this command's run.
    signal: Option<i32>,
    /// Measurements of the clients, if there were any.
    clients: Option<Report>,
    /// Use of the machine, with clients from the beginning to the end of their measurement.
    report: ProgramReport,
}

/// Returns the load of the arguments, if there is one.
fn load(arguments: &ExecuteArgs) -> Option<Load> {
    let mix = Mix::uniform(arguments.get.iter().map(|path| Request::get(path)));
    let load = match (arguments.clients, arguments.arrivals) {
        (Some(clients), _) => Load::closed(arguments.port, clients as usize, mix),
        (_, Some(rate)) => Load::open(arguments.port, rate.0, mix),
        _ => return None,
    };
    let load = load.warm_up(Span::Responses(arguments.requests.div_ceil(10)));
    Some(load.measure(Span::Responses(arguments.requests)).seed(arguments.seed))
}

/// Runs a program that no client uses, to its end.
fn alone(
    mut execution: Execution<TimedMachine>,
    arguments: &ExecuteArgs,
    signals: &Signals,
) -> Result<Outcome, Failure> {
    let refused = |why: &dyn std::fmt::Display| Failure::Simulated {
        program: arguments.program.clone(),
        reason: why.to_string(),
    };
    let mut input = match arguments.input.as_deref() {
        None => Vec::new(),
        Some(path) if path == Path::new("-") => {
            let mut bytes = Vec::new();
            let source = io::stdin().read_to_end(&mut bytes);
            source.map_err(|source| Failure::Read { path: path.into(), source })?;
            bytes
        }
        Some(path) => read(path)?,
    };
    let limit = arguments.until.map_or(Time::MAX, |limit| Time::from_picoseconds((limit.0 * 1e12) as u64));
    let mut end = None;
    while end.is_none() && signals.seen().is_none() && execution.time() < limit {
        let mut instructions = LOOK_INSTRUCTIONS;
        let progress = execution.run_for(limit, &mut instructions).map_err(|why| refused(&why))?;
        pass_output(&mut execution, arguments.json)?;
        match progress {
            Progress::Ended(how) => end = Some(how),
            Progress::Input => execution.input(&std::mem::take(&mut input), true),
            Progress::Idle => {
                let why = "all its threads wait for each other, or for clients; give it --clients and --get, or --until";
                return Err(refused(&why));
            }
            _ => {}
        }
    }
    let report = execution.machine().report();
    Ok(Outcome { end, signal: signals.seen(), clients: None, report, execution })
}

/// Prints what the program has written.
fn pass_output(execution: &mut Execution<TimedMachine>, is_moved: bool) -> Result<(), Failure> {
    for (number, bytes) in execution.output() {
        if number == 1 && !is_moved {
            io::stdout().write_all(&bytes).map_err(Failure::Output)?;
        } else {
            let _ = Unfailing.write_all(&bytes);
        }
    }
    io::stdout().flush().map_err(Failure::Output)
}

/// Runs a program with the clients of a load, until the load was measured.
fn with_clients(execution: Execution<TimedMachine>, load: Load) -> Result<Outcome, LoadError> {
    let (clients, report, execution) = run_load(execution, load)?;
    let _ = Unfailing.write_all(clients.output.as_bytes());
    Ok(Outcome { end: None, signal: None, clients: Some(clients), report, execution })
}

/// Writes the results, and returns the exit status.
fn finish(arguments: &ExecuteArgs, architecture: Architecture, mut outcome: Outcome) -> Result<i32, Failure> {
    if let Some(folder) = &arguments.out {
        let written = outcome.execution.files().export("/", folder);
        written.map_err(|why| Failure::Simulated {
            program: arguments.program.clone(),
            reason: why.to_string(),
        })?;
    }
    if let (Some(path), Some(spans)) = (&arguments.timeline, outcome.execution.machine().timeline()) {
        timeline::write_program(path, &spans)?;
    }
    let functions = functions(&outcome.execution);
    let clients = outcome.clients.as_ref().map(ClientTimes::new);
    let (text, status) = match (&outcome.end, outcome.signal) {
        (Some(End::Exited(status)), _) => (String::new(), i32::from(*status)),
        (Some(End::Killed { signal, message }), _) => {
            (format!("the program was ended by signal {signal}: {message}\n"), 128 + *signal as i32)
        }
        (None, Some(signal)) => {
            ("stopped by a signal; this is what was executed until then\n".into(), 128 + signal)
        }
        (None, None) if clients.is_some() => (String::new(), 0),
        (None, None) => ("the program had not ended at the time of --until\n".into(), OVER),
    };
    if arguments.json {
        let all = All { architecture, status, report: &outcome.report, clients, functions };
        return print(&json(&all)).map(|_| status);
    }
    let text = text + &in_words(architecture, &outcome.report, clients.as_ref(), &functions);
    let _ = Unfailing.write_all(text.as_bytes());
    Ok(status)
}

/// Report as JSON.
#[derive(Serialize)]
struct All<'a> {
    architecture: Architecture,
    /// Exit status of the program.
    status: i32,
    #[serde(flatten)]
    report: &'a ProgramReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<ClientTimes>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    functions: Vec<FunctionUse>,
}

fn in_words(
    architecture: Architecture,
    report: &ProgramReport,
    clients: Option<&ClientTimes>,
    functions: &[FunctionUse],
) -> String {
    let ProgramReport { shares, processors, .. } = report;
    let mut text = format!(
        "{}: {}, {} instructions, {} processors of {:.2} GHz\n\n",
        architecture.name(),
        time(report.seconds),
        grouped(report.instructions),
        processors.len(),
        report.hertz as f64 / 1e9
    );
    let mut line = |name: &str, value: String, note: &str| {
        text += format!("{name:16} {value:>16}  {note}").trim_end();
        text.push('\n');
    };
    if let Some(clients) = clients {
        let each = |number: u64| number as f64 / clients.responses.max(1) as f64;
        line("responses", format!("{:.0} /s", clients.responses_per_second), &statuses(&clients.statuses));
        line("throughput", rate(clients.bytes_per_second), "of their bodies");
        line("response time", time(clients.mean), "");
        for (name, value) in [
            ("  50 %", clients.p50),
            ("  90 %", clients.p90),
            ("  99 %", clients.p99),
            ("  longest", clients.max),
        ] {
            line(name, time(value), "");
        }
        line("a request takes", format!("{:.0}", each(report.instructions)), "instructions of the program");
        line("", format!("{:.0}", each(report.sum(|one| one.system_cycles))), "cycles of the system");
        line("", format!("{:.2}", each(report.sum(|one| one.calls))), "system calls");
    }
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    line("program", share(shares.program), "of the processors' time");
    line("  stalled", share(shares.program_stalled), "waiting for caches and memory");
    line("system", share(shares.system), "of the processors' time");
    line("  stalled", share(shares.system_stalled), "waiting for memory in copies and checksums");
    line("idle", share(shares.idle), "");
    line("system calls", grouped(report.sum(|one| one.calls)), "");
    line("requests", grouped(report.sum(|one| one.requests)), "to disks and interfaces");
    line("interrupts", grouped(report.sum(|one| one.interrupts)), "or completions that were found");
    line("copied", grouped(report.sum(|one| one.copied)), "bytes, by the system");
    line("misses", grouped(report.first_misses), "of the first-level caches");
    line("", grouped(report.second_misses), "of the second-level caches");
    text += &format!("\n{:24} {:>6} {:>9} {:>9} {:>12}\n", "", "of", "taken", "working", "served");
    for part in &report.parts {
        text += &format!(
            "{:24} {:>6} {:>7.1} % {:>7.1} % {:>12}\n",
            part.name,
            part.count,
            part.taken * 100.0,
            part.working * 100.0,
            grouped(part.served)
        );
    }
    if !functions.is_empty() {
        let all: u64 = functions.iter().map(|one| one.instructions).sum();
        text += &format!("\n{:40} {:>12} {:>14}\n", "function", "instructions", "stalled");
        for one in functions.iter().take(FUNCTIONS_MAX) {
            let part = one.instructions as f64 / all.max(1) as f64 * 100.0;
            text += &format!("{:40} {part:>10.1} % {:>14}\n", one.name, time(one.stalled));
        }
    }
    text
}

/// Returns the statuses of responses, if not all were fine.
fn statuses(statuses: &BTreeMap<u16, u64>) -> String {
    let others: Vec<String> =
        statuses.iter().map(|(status, count)| format!("{count} of status {status}")).collect();
    if statuses.keys().all(|status| *status == 200) { String::new() } else { others.join(", ") }
}

/// Formats a number with a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
