//! `bywash-power`: the server of the recorded disks, the model program, and what writes down the acknowledged commits of
//! programs that cannot. The tests start them; `make demo` starts the last one.
//!
//! ```text
//! bywash-power serve FOLDER INDEX DATA IMAGE...
//! bywash-power model DATA MEMORY INDEX SEED OPERATIONS CARELESS
//! bywash-power model-process DATA MEMORY INDEX SEED OPERATIONS CARELESS NUMBER
//! bywash-power acknowledge INDEX ACKNOWLEDGED < NUMBERS
//! bywash-power recover [--crashed] LOG          (with the feature `mutants`)
//! bywash-power demo BYWASH
//! ```

#![forbid(unsafe_code)]

use bywash_power::demo::demo;
use bywash_power::model::program::{self, Arguments};
use bywash_power::serve::serve;
use bywash_power::workload::acknowledged::write_down;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["serve", at, index, data, ref images @ ..] => {
            let images: Vec<&Path> = images.iter().map(Path::new).collect();
            serve(Path::new(at), Path::new(index), Path::new(data), &images, ready)
        }
        ["acknowledge", index, acknowledged] => {
            write_down(io::stdin().lock(), Path::new(index), Path::new(acknowledged))
        }
        ["demo", bywash] => demo(Path::new(bywash)),
        ["model", ref words @ ..] => numbers(words).and_then(|(arguments, _)| program::run(&arguments)),
        ["model-process", ref words @ ..] => {
            numbers(words).and_then(|(arguments, number)| program::process(&arguments, number))
        }
        #[cfg(feature = "mutants")]
        ["recover", log] => recover(log, false),
        #[cfg(feature = "mutants")]
        ["recover", "--crashed", log] => recover(log, true),
        _ => Err(io::Error::other("this program is started by the tests: cargo test -p bywash-power")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bywash-power {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// Recovers a log as `bywash log recover` does, with the fault that the environment chooses.
#[cfg(feature = "mutants")]
fn recover(log: &str, has_crashed: bool) -> io::Result<()> {
    let mut recovery =
        bywash_keeper::Recovery { is_dry_run: false, has_crashed, given_up: &[], before: &mut |_| true };
    bywash_keeper::recover_at(Path::new(log), &mut recovery).map(drop).map_err(io::Error::other)
}

fn ready() {
    // Nobody waits for the line if the harness has ended.
    let _ = writeln!(io::stdout(), "ready");
}

/// Reads the words after `model`, and the number of a process if there is one.
fn numbers(words: &[&str]) -> io::Result<(Arguments, u64)> {
    let [data, memory, index, ref numbers @ ..] = words[..] else {
        return Err(io::Error::other("three folders and files are needed"));
    };
    let numbers: Result<Vec<u64>, _> = numbers.iter().map(|number| number.parse()).collect();
    let numbers = numbers.map_err(io::Error::other)?;
    let [seed, operations, careless, ref rest @ ..] = numbers[..] else {
        return Err(io::Error::other("three numbers are needed"));
    };
    let arguments = Arguments {
        data: data.into(),
        memory: memory.into(),
        index: index.into(),
        seed,
        operations,
        is_careless: careless != 0,
    };
    Ok((arguments, rest.first().copied().unwrap_or(0)))
}
