//! Programs of the tests: compiling them, and runs of programs in the simulated system.

#![allow(dead_code)] // Each test uses a part.

use std::path::{Path, PathBuf};

use bywash_execute::{End, ExecuteError, Execution, FileSystem, Functional, Latencies, Program, Progress};
use bywash_support::riscv;
pub use bywash_support::riscv::*;

/// Result of a program's run.
#[derive(Debug)]
pub struct Run {
    pub output: String,
    pub errors: String,
    pub end: End,
    pub retired: u64,
    pub calls: (u64, u64),
    pub time: u64,
    pub files: FileSystem,
}

/// Compiles a program of the tests, and returns the path of its executable.
pub fn compile(compiler: &Path, name: &str, folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c");
    build(compiler, &[source], &[], &folder.join(name))
}

/// Compiles one of the programs for the simulated machine, and returns the path of its executable.
pub fn compile_program(compiler: &Path, name: &str, folder: &Path) -> PathBuf {
    build(compiler, &[program(name)], &["-pthread".into()], &folder.join(name))
}

/// Compiles sources without warnings, and returns the path of the executable.
pub fn build(compiler: &Path, sources: &[PathBuf], options: &[String], target: &Path) -> PathBuf {
    let options = [&["-w".into()], options].concat();
    riscv::build(compiler, sources, &options, target);
    target.into()
}

/// Loads a program on a machine with a number of processors.
pub fn load(file: &Path, program: Program, processors: usize) -> Execution<Functional> {
    let file = std::fs::read(file).unwrap();
    Execution::new(&file, program, Functional::new(processors, Latencies::default())).unwrap()
}

/// Runs a program to its end, without input.
pub fn run(file: &Path, program: Program, processors: usize) -> Run {
    try_run(file, program, processors).unwrap()
}

/// Runs a program to its end, without input; an error if it needs what the system does not have.
pub fn try_run(file: &Path, program: Program, processors: usize) -> Result<Run, ExecuteError> {
    let mut execution = load(file, program, processors);
    let mut texts = [Vec::new(), Vec::new()];
    loop {
        let progress = execution.run()?;
        for (number, text) in execution.output() {
            texts[usize::from(number) - 1].extend(text);
        }
        let end = match progress {
            Progress::Ended(end) => end,
            Progress::Input => {
                execution.input(b"", true);
                continue;
            }
            Progress::Output => continue,
            other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&texts[0])),
        };
        let [output, errors] = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
        return Ok(Run {
            output,
            errors,
            end,
            retired: execution.retired(),
            calls: execution.calls(),
            time: execution.time().picoseconds(),
            files: execution.files().clone(),
        });
    }
}
