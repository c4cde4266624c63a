//! Programs that are executed on the machine of a description: times against closed forms, and results against the
//! machine without caches.

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_execute::{End, Execution, FileSystem, Functional, Latencies, Program, Progress};
use bywash_model::describe::Key;
use bywash_model::{Architecture, Description};
use bywash_sim::Preset;
use bywash_sim::program::{MachineError, ProgramReport, TimedMachine};
use bywash_support::riscv;
use std::path::{Path, PathBuf};

/// Compiles a program of this crate's tests, or of another one's; `None` without a compiler.
fn compile(test: &str, name: &str, folder: &Path) -> Option<PathBuf> {
    let Some(compiler) = riscv::compiler() else {
        riscv::skip(test, "gcc-riscv64-linux-gnu");
        return None;
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).with_extension("c");
    let target = folder.join(source.file_stem().unwrap());
    riscv::build(&compiler, &[source], &["-w".into()], &target);
    Some(target)
}

fn description(sets: &[(&str, f64)]) -> Description {
    let mut description = Preset::named("carrera-table-4").unwrap().description();
    for (key, value) in sets {
        *Key::by_name(key).unwrap().number_in(&mut description).unwrap() = *value;
    }
    description
}

/// Returns a file of so many bytes at /data.
fn files(bytes: usize) -> FileSystem {
    let mut files = FileSystem::new(64 << 20);
    let content: Vec<u8> = (0..bytes).map(|at| (at / 64) as u8).collect();
    files.add_file("/data", &content).unwrap();
    files
}

/// Runs a program to its end, and returns its output.
fn finish<M: bywash_execute::machine::Machine>(execution: &mut Execution<M>) -> String {
    let mut text = Vec::new();
    loop {
        let progress = execution.run().unwrap();
        text.extend(execution.output().into_iter().flat_map(|(_, bytes)| bytes));
        let text = String::from_utf8_lossy(&text);
        match progress {
            Progress::Ended(end) => {
                assert_eq!(end, End::Exited(0), "{text}");
                return text.into_owned();
            }
            Progress::Input => execution.input(b"", true),
            Progress::Output => {}
            other => panic!("{other:?}: {text}"),
        }
    }
}

/// Runs a program on the machine of a description.
fn run(
    file: &Path,
    arguments: &[&str],
    architecture: Architecture,
    description: &Description,
    seed: u64,
) -> (String, ProgramReport) {
    let machine = TimedMachine::new(description, architecture, seed).unwrap();
    let program = Program::new([&["program"], arguments].concat()).files(files(1 << 20));
    let mut execution = Execution::new(&std::fs::read(file).unwrap(), program, machine).unwrap();
    let text = finish(&mut execution);
    (text, execution.machine().report())
}

fn assert_near(name: &str, found: f64, wanted: f64, share: f64) {
    assert!((found / wanted - 1.0).abs() < share, "{name}: found {found}, expected {wanted}");
}

#[test]
fn a_load_that_misses_waits_for_a_bank_and_for_the_bus() {
    let folder = tempfile::tempdir().unwrap();
    let Some(file) = compile(
        "a_load_that_misses_waits_for_a_bank_and_for_the_bus",
        "sim/tests/programs/lines",
        folder.path(),
    ) else {
        return;
    };
    let description = description(&[("machine.processors.count", 1.0)]);
    let report = |bytes: &str, rounds: &str| {
        run(&file, &[bytes, rounds], Architecture::Conventional, &description, 1).1
    };
    // Twice the rounds: the difference is that of the rounds alone.
    let seconds = |bytes: &str| {
        let [few, many] = ["4", "8"].map(|rounds| report(bytes, rounds));
        let instructions = (many.instructions - few.instructions) as f64;
        (many.seconds - few.seconds, instructions / 1.5e9)
    };
    // 1 MiB is eight times the second-level cache.
    let (found, instructions) = seconds("1048576");
    let line = 60e-9 + 64.0 / 1064e6;
    assert_near("beyond the caches", found, instructions + 4.0 * 16384.0 * line, 0.01);
    // 16 KiB are in the first level.
    let (found, instructions) = seconds("16384");
    assert_near("in the first level", found, instructions, 0.01);
    // 64 KiB are in the second level, and their lines come from there in no time unless it is given.
    let (found, instructions) = seconds("65536");
    assert_near("in the second level", found, instructions, 0.02);
    let mut description = description;
    description.machine.memory.as_mut().unwrap().l2_latency.0 = 10e-9;
    let report = |rounds: &str| run(&file, &["65536", rounds], Architecture::Conventional, &description, 1).1;
    let [few, many] = ["4", "8"].map(report);
    let instructions = (many.instructions - few.instructions) as f64 / 1.5e9;
    assert_near("with a latency", many.seconds - few.seconds, instructions + 4.0 * 1024.0 * 10e-9, 0.02);
}

#[test]
fn counters_in_one_line_cost_its_movement_at_each_change_of_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let test = "counters_in_one_line_cost_its_movement_at_each_change_of_its_owner";
    let Some(file) = compile(test, "sim/tests/programs/counters", folder.path()) else { return };
    let runs = |write_buffer: f64| {
        let description = description(&[("machine.memory.write-buffer", write_buffer)]);
        ["1", "8"].map(|distance| run(&file, &[distance], Architecture::Conventional, &description, 1))
    };
    // Threads that share a line wait for it again and again, those apart only at first. A processor with a write buffer
    // goes on while the line of its store comes, and adds a few more times before another one takes the line.
    for (write_buffer, more_misses, more_time) in [(0.0, 20.0, 10.0), (1024.0, 3.0, 2.0)] {
        let [shared, apart] = runs(write_buffer);
        assert_eq!((shared.0.as_str(), apart.0.as_str()), ("80000\n", "80000\n"));
        let misses = shared.1.second_misses as f64 / apart.1.second_misses as f64;
        let time = shared.1.seconds / apart.1.seconds;
        assert!(misses > more_misses && time > more_time, "{write_buffer} B: {misses} {time}");
    }
}

#[test]
fn user_level_reads_spare_the_copy_and_active_ones_the_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let test = "user_level_reads_spare_the_copy_and_active_ones_the_file_system";
    let Some(file) = compile(test, "sim/tests/programs/reads", folder.path()) else { return };
    let description = description(&[("machine.processors.count", 1.0)]);
    let run = |architecture| run(&file, &["/data", "16384"], architecture, &description, 1);
    let [conventional, user, active] =
        [Architecture::Conventional, Architecture::UserLevel, Architecture::Active].map(run);
    assert_eq!((&conventional.0, &conventional.0), (&user.0, &active.0));
    let cycles = |report: &ProgramReport| report.processors[0].system_cycles as f64;
    let stalled = |report: &ProgramReport| report.processors[0].system_stalled as f64 / 1e12;
    // 4.55 cycles a byte for the copy, of which a part is stalls, and 1.5 for the file system.
    let bytes = f64::from(1 << 20);
    let spared = cycles(&conventional.1) - cycles(&user.1) + stalled(&conventional.1) * 1.5e9;
    assert_near("the copy", spared, 4.55 * bytes, 0.1);
    assert_near("the file system", cycles(&user.1) - cycles(&active.1), 1.5 * bytes, 0.01);
    assert_eq!((conventional.1.processors[0].copied, user.1.processors[0].copied), (1 << 20, 0));
    // The disk reads a megabyte at 40 MB/s in requests of 128 KiB, positions its head for the first, and the bus passes it on.
    for (_, report) in [&conventional, &user, &active] {
        assert!(report.seconds > bytes / 40e6 + 0.002 && report.seconds < 0.06, "{report:?}");
    }
}

#[test]
fn results_are_those_of_a_machine_without_caches_and_equal_seeds_give_equal_runs() {
    let folder = tempfile::tempdir().unwrap();
    let test = "results_are_those_of_a_machine_without_caches_and_equal_seeds_give_equal_runs";
    let description = description(&[("machine.processors.count", 4.0)]);
    for name in ["cpu/tests/programs/sort", "execute/tests/programs/threads"] {
        let Some(file) = compile(test, name, folder.path()) else { return };
        let (text, report) = run(&file, &[], Architecture::Conventional, &description, 7);
        let again = run(&file, &[], Architecture::Conventional, &description, 7);
        assert_eq!((&text, &report), (&again.0, &again.1), "{name}");
        let program = Program::new(["program"]).files(files(1 << 20));
        let machine = Functional::new(4, Latencies::default());
        let mut execution = Execution::new(&std::fs::read(&file).unwrap(), program, machine).unwrap();
        assert_eq!(text, finish(&mut execution), "{name}");
    }
}

#[test]
fn iterations_of_waiting_loops_that_are_counted_are_those_that_are_executed() {
    let folder = tempfile::tempdir().unwrap();
    let test = "iterations_of_waiting_loops_that_are_counted_are_those_that_are_executed";
    let Some(file) = compile(test, "sim/tests/programs/spins", folder.path()) else { return };
    let file = std::fs::read(file).unwrap();
    for (processors, latency, words) in
        [(1, 0.0, ["2", "2", "50"]), (4, 0.0, ["4", "20", "300"]), (4, 10e-9, ["5", "4", "40"])]
    {
        let mut description = description(&[("machine.processors.count", f64::from(processors))]);
        description.machine.memory.as_mut().unwrap().l2_latency.0 = latency;
        let run = |executes_each: bool| {
            let machine =
                TimedMachine::new(&description, Architecture::Conventional, 1).unwrap().with_profile();
            let machine = if executes_each { machine.executing_each_iteration() } else { machine };
            let program = Program::new([&["spins"], &words[..]].concat());
            let mut execution = Execution::new(&file, program, machine).unwrap();
            let text = finish(&mut execution);
            let profile: Vec<_> = execution.machine().profile().unwrap().shares().collect();
            (text, execution.machine().report(), profile)
        };
        let (counted, executed) = (run(false), run(true));
        assert_eq!(counted, executed, "{processors} processors, {words:?}");
    }
}

#[test]
fn a_description_without_what_programs_need_is_refused() {
    let refused = |preset: &str, architecture| {
        let description = Preset::named(preset).unwrap().description();
        TimedMachine::new(&description, architecture, 1).err().unwrap()
    };
    assert_eq!(refused("carrera-table-2", Architecture::Conventional), MachineError::NoMemory);
    assert!(matches!(refused("today-25g", Architecture::Active), MachineError::MissingProcessor(_)));
    let mut description = description(&[]);
    description.machine.memory.as_mut().unwrap().l1.0 = 0.0;
    let refused = TimedMachine::new(&description, Architecture::Conventional, 1).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "machine.memory.l1 is 0, and a program needs a cache there; give its size, such as \"32 KiB\""
    );
}
