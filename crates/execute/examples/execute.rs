//! Runs a program in the simulated operating system, with this program's standard input and output.
//!
//! `cargo run --release -p bywash-execute --example execute -- [OPTIONS] PROGRAM [ARGUMENTS]`
//!
//! - `--folder HOST=PATH`: copies a folder of the host to a path of the simulated file system before the start
//! - `--export PATH=HOST`: copies a file or folder back after the end
//! - `--in PATH`: begins in a folder
//! - `--processors N`, `--seed N`
//! - `--trace`: prints each finished call to standard error
//! - `--summary`: prints instructions, calls and the simulated time to standard error
//!
//! Exits with the program's status; with 128 plus the number of the signal that ended it; with 125 if it cannot
//! be run.

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;

use bywash_execute::{End, Execution, FileSystem, Functional, Latencies, Program, Progress, call_name};

/// Status if the program cannot be run.
const CANNOT_RUN: u8 = 125;
/// Sum of the lengths of all files, in bytes.
const FILES: u64 = 4 << 30;

/// Options of the command.
struct Options {
    /// Program's file and arguments.
    arguments: Vec<String>,
    /// Folders to import, as host's folder and path.
    imports: Vec<(String, String)>,
    /// Paths to export, as path and host's path.
    exports: Vec<(String, String)>,
    /// First folder.
    folder: String,
    /// Number of processors.
    processors: usize,
    /// Seed.
    seed: u64,
    /// Prints calls.
    is_tracing: bool,
    /// Prints a summary.
    is_summing: bool,
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options).map_err(|error| error.to_string())) {
        Ok(status) => ExitCode::from(status),
        Err(message) => {
            eprintln!("execute: {message}");
            ExitCode::from(CANNOT_RUN)
        }
    }
}

/// Reads the command's arguments.
fn options() -> Result<Options, String> {
    let mut options = Options {
        arguments: Vec::new(),
        imports: Vec::new(),
        exports: Vec::new(),
        folder: "/".into(),
        processors: 1,
        seed: 0,
        is_tracing: false,
        is_summing: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let pair = |text: String| {
            let pair = text.split_once('=').map(|(one, other)| (one.to_owned(), other.to_owned()));
            pair.ok_or(format!("{word} needs two paths with '=' between them, not '{text}'"))
        };
        let number =
            |text: String| text.parse::<u64>().map_err(|_| format!("{word} needs a number, not '{text}'"));
        match word.as_str() {
            "--folder" => options.imports.push(pair(value()?)?),
            "--export" => options.exports.push(pair(value()?)?),
            "--in" => options.folder = value()?,
            "--processors" => options.processors = number(value()?)?.clamp(1, 64) as usize,
            "--seed" => options.seed = number(value()?)?,
            "--trace" => options.is_tracing = true,
            "--summary" => options.is_summing = true,
            _ if word.starts_with("--") => return Err(format!("there is no option {word}")),
            _ => {
                options.arguments = std::iter::once(word).chain(words).collect();
                return Ok(options);
            }
        }
    }
    Err("name a program: a static executable of RISC-V Linux (riscv64-linux-gnu-gcc -static)".into())
}

/// Runs the program and returns its status.
fn run(options: &Options) -> Result<u8, Box<dyn std::error::Error>> {
    let path = &options.arguments[0];
    let file = std::fs::read(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    let mut files = FileSystem::new(FILES);
    for (host, path) in &options.imports {
        files.import(Path::new(host), path)?;
    }
    let program = Program::new(&options.arguments).files(files).folder(&options.folder).seed(options.seed);
    let program = program.variable("PATH=/bin:/usr/bin").variable("HOME=/");
    let machine = Functional::new(options.processors, Latencies::default());
    let mut execution = Execution::new(&file, program, machine)?;
    execution.set_recording(options.is_tracing);
    let mut input = std::io::stdin().lock();
    let end = loop {
        let progress = execution.run();
        for (number, text) in execution.output() {
            let written = if number == 1 {
                std::io::stdout().write_all(&text)
            } else {
                std::io::stderr().write_all(&text)
            };
            written.map_err(|error| format!("cannot write the program's output: {error}"))?;
        }
        for call in execution.records() {
            let [a, b, c, d, ..] = call.arguments;
            let (time, thread, value) = (call.time.nanoseconds(), call.thread.0, call.value as i64);
            eprintln!(
                "{time:>12} ns {thread}: {}({a:#x}, {b:#x}, {c:#x}, {d:#x}) = {value}",
                call_name(call.number)
            );
        }
        match progress? {
            Progress::Ended(end) => break end,
            Progress::Input => {
                std::io::stdout().flush()?;
                let bytes = input.fill_buf()?.to_vec();
                input.consume(bytes.len());
                execution.input(&bytes, bytes.is_empty());
            }
            Progress::Idle => return Err("all threads wait, and nothing can wake them".into()),
            _ => {}
        }
    };
    std::io::stdout().flush()?;
    for (path, host) in &options.exports {
        execution.files().export(path, Path::new(host))?;
    }
    if options.is_summing {
        let (calls, digest) = execution.calls();
        let time = execution.time().nanoseconds();
        eprintln!("{} instructions, {calls} calls ({digest:016x}), {time} ns", execution.retired());
    }
    Ok(match end {
        End::Exited(status) => status,
        End::Killed { signal, message } => {
            eprintln!("execute: signal {signal} ended the program: {message}");
            128 + signal as u8
        }
    })
}
