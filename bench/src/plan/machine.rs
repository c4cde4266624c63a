//! Programs inside the simulated machine: instructions a second, alone and with caches, against QEMU's emulator of programs.
//!
//! All sides run the same executable, and what it prints must be the same. The seconds are CPU time, with the start of the
//! program and, on QEMU's side, of QEMU.

use super::{Stage, Turn};
use crate::child;
use crate::clock::thread_seconds;
use crate::engine::{Metric, Side};
use crate::error::{Attempt, Error};
use crate::row::Row;
use bywash_execute::machine::Machine;
use bywash_execute::{End, Execution, Functional, Latencies, Program, Progress};
use bywash_model::Architecture;
use bywash_sim::preset::Preset;
use bywash_sim::program::TimedMachine;
use bywash_support::riscv;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Goals, in millions of instructions a second: without a model of time, with caches on one processor, and with caches on
/// sixteen in all.
const GOALS: [f64; 3] = [200.0, 20.0, 8.0];
/// Goal against QEMU.
const GOAL_QEMU: f64 = 1.0 / 12.0;

/// Program of a case.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub name: &'static str,
    source: &'static str,
    arguments: &'static [&'static str],
    /// Number of processors of the machine with caches.
    processors: usize,
}

pub(super) const CASES: [Case; 4] = [
    Case {
        name: "sieve",
        source: include_str!("../../../crates/cpu/tests/programs/sieve.c"),
        arguments: &[],
        processors: 1,
    },
    Case {
        name: "sort",
        source: include_str!("../../../crates/cpu/tests/programs/sort.c"),
        arguments: &[],
        processors: 1,
    },
    Case {
        name: "16 threads sort",
        source: include_str!("../../../crates/sim/tests/programs/sorts.c"),
        arguments: &["16", "20000"],
        processors: 16,
    },
    Case {
        name: "a thread sorts",
        source: include_str!("../../../crates/sim/tests/programs/sorts.c"),
        arguments: &["1", "200000"],
        processors: 1,
    },
];

/// Case of threads that wait by looking at memory: it is compared with itself, because QEMU's threads look as often as it
/// happens.
pub(super) const WAITING: Case = Case {
    name: "16 threads wait in turn",
    source: include_str!("../../../crates/sim/tests/programs/spins.c"),
    arguments: &["16", "20", "1000"],
    processors: 16,
};

/// Measures how much faster a machine with caches is that counts iterations of loops that wait, against one that executes
/// each. Both must have executed the same number of instructions.
pub(super) fn measure_waiting(stage: &Stage, head: &Row) -> Result<Vec<Row>, Error> {
    let file = compile(stage, WAITING)?;
    let bytes = fs::read(&file).doing("read", &file)?;
    let side = |name: &str, executes_each: bool| {
        let file = bytes.clone();
        Side::new(name, move || {
            let machine = timed(WAITING)?;
            let machine = if executes_each { machine.executing_each_iteration() } else { machine };
            let turn = run(&file, WAITING, machine)?;
            Ok(Turn { results: [turn.results, vec![turn.events]].concat(), ..turn })
        })
    };
    let sides = vec![side("bywash", false), side("each iteration executed", true)];
    let mut runs = stage.rounds.run(sides)?;
    super::compare(&mut runs, 0.0);
    let [counted, executed] = [&runs[0], &runs[1]];
    let rate = Metric::rate("with caches", "MIPS", |turn: &Turn| turn.events / turn.seconds / 1e6);
    Ok(vec![
        rate.row(head, counted, executed, None),
        rate.row_of_limit(head, counted, "a goal of 8 MIPS in all", GOALS[2], 1.0),
    ])
}

/// Makes the machine with caches of a case.
fn timed(case: Case) -> Result<TimedMachine, Error> {
    let preset = Preset::named("carrera-table-4").ok_or_else(|| failed("has no preset".into()))?;
    let mut description = preset.description();
    description.machine.processors.count = case.processors as f64;
    TimedMachine::new(&description, Architecture::Conventional, 1).map_err(|why| failed(why.to_string()))
}

pub(super) fn measure(stage: &Stage, head: &Row, case: Case) -> Result<Vec<Row>, Error> {
    let file = compile(stage, case)?;
    let bytes = fs::read(&file).doing("read", &file)?;
    let (functional_file, timed_file) = (bytes.clone(), bytes);
    let functional = Side::new("bywash", move || {
        run(&functional_file, case, Functional::new(case.processors, Latencies::default()))
    });
    let timed = Side::new("bywash, with caches", move || run(&timed_file, case, timed(case)?));
    let qemu = Side::new("qemu-riscv64", move || {
        let emulator =
            riscv::emulator().ok_or_else(|| Error::Unavailable("qemu-riscv64 is not installed".into()))?;
        let mut command = Command::new(emulator);
        let ended = child::run(command.arg(&file).args(case.arguments))?;
        Ok(Turn {
            seconds: ended.cpu_seconds,
            results: vec![hash(ended.stdout.as_bytes())],
            ..Turn::default()
        })
    });
    let mut runs = stage.rounds.run(vec![functional, timed, qemu])?;
    super::compare(&mut runs, 0.0);
    let [functional, timed, qemu] = [&runs[0], &runs[1], &runs[2]];
    // QEMU executes as many instructions as the functional machine, which counts them.
    let count = functional.median(|turn| turn.events).unwrap_or_default();
    let rate = |name| Metric::rate(name, "MIPS", move |turn: &Turn| count / turn.seconds / 1e6);
    let (goal, words) = match case.processors {
        1 => (GOALS[1], "a goal of 20 MIPS"),
        _ => (GOALS[2], "a goal of 8 MIPS in all"),
    };
    Ok(vec![
        rate("alone").row_of_limit(head, functional, "a goal of 200 MIPS", GOALS[0], 1.0),
        rate("alone").row(head, functional, qemu, Some(GOAL_QEMU)),
        rate("with caches").row_of_limit(head, timed, words, goal, 1.0),
    ])
}

/// Compiles the program of a case, and returns the executable's path.
fn compile(stage: &Stage, case: Case) -> Result<PathBuf, Error> {
    let compiler = riscv::compiler()
        .ok_or_else(|| Error::Unavailable("riscv64-linux-gnu-gcc is not installed".into()))?;
    let [source, target] = ["c", "riscv"].map(|ending| stage.folder.join(case.name).with_extension(ending));
    fs::write(&source, case.source).doing("write", &source)?;
    riscv::build(&compiler, &[source], &["-w".into()], &target);
    Ok(target)
}

/// Executes the program; the results are a hash of what it prints, and the events its instructions.
fn run(file: &[u8], case: Case, machine: impl Machine) -> Result<Turn, Error> {
    let program = Program::new([&[case.name], case.arguments].concat());
    let begin = thread_seconds();
    let mut execution = Execution::new(file, program, machine).map_err(|why| failed(why.to_string()))?;
    let mut text = Vec::new();
    loop {
        let progress = execution.run().map_err(|why| failed(why.to_string()))?;
        text.extend(execution.output().into_iter().flat_map(|(_, bytes)| bytes));
        match progress {
            Progress::Ended(End::Exited(0)) => break,
            Progress::Input => execution.input(b"", true),
            Progress::Output => {}
            other => return Err(failed(format!("{other:?}"))),
        }
    }
    let seconds = thread_seconds() - begin;
    Ok(Turn { seconds, results: vec![hash(&text)], events: execution.retired() as f64, ..Turn::default() })
}

/// Returns a number that tells different outputs apart (FNV-1a, of which 48 bits are kept).
fn hash(bytes: &[u8]) -> f64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    (bytes.iter().fold(0xcbf2_9ce4_8422_2325, step) >> 16) as f64
}

fn failed(why: String) -> Error {
    Error::failed("the program in the simulated machine", why)
}
