//! SQLite in the simulated system: a small database, built from SQLite's source.

#![allow(clippy::unwrap_used)] // helpers of the tests

mod toolchain;

use std::path::{Path, PathBuf};
use std::process::Command;

use bywash_execute::{End, FileSystem, Program, Progress, call_name};

const ROWS: [&str; 2] = ["--rows", "300"];
/// Number of commits of so many rows: one for fifty of them.
const COMMITS: usize = 6;

/// Compiles the program for this machine.
fn compile_native(folder: &Path) -> PathBuf {
    let target = folder.join("native");
    let (sources, options) = toolchain::database();
    let mut command = Command::new("cc");
    command.args(options).arg("-o").arg(&target).args(sources).arg("-lm");
    assert!(command.status().unwrap().success(), "{command:?}");
    target
}

/// Result of a run in the simulated system.
#[derive(Debug, PartialEq)]
struct Run {
    output: String,
    database: Vec<u8>,
    syncs: usize,
    calls: (u64, u64),
    time: u64,
}

/// Runs the program in the simulated system.
fn simulate(file: &Path, options: &[&str]) -> Run {
    let mut files = FileSystem::new(64 << 20);
    files.add_folder("/data").unwrap();
    let arguments = [&["database", "/data/file"], options].concat();
    let mut execution = toolchain::load(file, Program::new(arguments).files(files), 1);
    execution.set_recording(true);
    let (mut output, mut syncs) = (String::new(), 0);
    loop {
        let progress = execution.run().unwrap();
        output.extend(execution.output().into_iter().map(|(_, text)| String::from_utf8(text).unwrap()));
        let is_sync = |number| matches!(call_name(number), "fsync" | "fdatasync");
        syncs += execution.records().iter().filter(|call| is_sync(call.number) && call.value == 0).count();
        if let Progress::Ended(end) = progress {
            assert_eq!(end, End::Exited(0), "{output}");
            break;
        }
    }
    let target = tempfile::tempdir().unwrap();
    let exported = target.path().join("file");
    execution.files().export("/data/file", &exported).unwrap();
    let database = std::fs::read(exported).unwrap();
    Run { output, database, syncs, calls: execution.calls(), time: execution.time().picoseconds() }
}

/// Runs the program on this machine, perhaps by an emulator; returns its output and the database.
fn run(program: &[&Path], options: &[&str]) -> (String, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let mut command = Command::new(program[0]);
    let output = command.args(&program[1..]).arg(&file).args(options).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), std::fs::read(file).unwrap())
}

#[test]
fn sqlite_makes_the_same_database_as_on_this_machine() {
    let test = "sqlite_makes_the_same_database_as_on_this_machine";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("database");
    let native = std::thread::scope(|scope| {
        let native = scope.spawn(|| compile_native(folder.path()));
        let (sources, options) = toolchain::database();
        // The compiler takes longer than the program: without optimisation both are done sooner.
        toolchain::build(&compiler, &sources, &[options, vec!["-O0".into()]].concat(), &file);
        native.join().unwrap()
    });
    for (options, syncs) in [(&ROWS as &[&str], 2 * COMMITS), (&[ROWS[0], ROWS[1], "--log"], COMMITS)] {
        let simulated = simulate(&file, options);
        let expected = run(&[&native], options);
        assert_eq!((&simulated.output, &simulated.database), (&expected.0, &expected.1), "{options:?}");
        assert!(simulated.output.starts_with("300 rows written, "), "{}", simulated.output);
        assert!(simulated.syncs >= syncs, "{} calls wait for the disk with {options:?}", simulated.syncs);
        assert_eq!(simulated, simulate(&file, options), "the same each time");
        match toolchain::emulator() {
            Some(emulator) => assert_eq!(run(&[&emulator, &file], options), expected, "{options:?}"),
            None => toolchain::skip(test, "qemu-user"),
        }
    }
}
