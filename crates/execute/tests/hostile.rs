//! Calls with hostile arguments end with an error number, a signal, or a wait, and never with a panic.

#![allow(clippy::unwrap_used)] // helpers of the tests

mod toolchain;

use bywash_execute::{ExecuteError, FileSystem, Program, Progress, Time, is_served};

/// Greatest number of a call.
const CALLS: u64 = 460;
/// Time after which a program is taken for one that waits, in simulated nanoseconds.
const LIMIT: u64 = 200_000_000;

#[test]
fn hostile_arguments_are_refused() {
    let test = "hostile_arguments_are_refused";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let rounds: u64 = std::env::var("BYWASH_HOSTILE_ROUNDS").map_or(2, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = toolchain::compile(&compiler, "hostile", folder.path());
    let mut served = 0;
    for call in (0..CALLS).filter(|&call| is_served(call)) {
        served += 1;
        for seed in 0..rounds {
            // A failure's replay is these two arguments.
            println!("hostile {call} {seed}");
            let mut files = FileSystem::new(1 << 20);
            files.add_file("/data/file", &[7; 10_000]).unwrap();
            let program = Program::new(["hostile".into(), call.to_string(), seed.to_string()]);
            let program = program.files(files).memory_bytes(16 << 20).cache_pages(64);
            let mut execution = toolchain::load(&file, program, 2);
            loop {
                match execution.run_until(Time::from_nanoseconds(LIMIT)) {
                    Ok(Progress::Input) => execution.input(b"text", true),
                    Ok(Progress::Output) => drop(execution.output()),
                    Ok(Progress::Clients) => drop(execution.client_events()),
                    Ok(Progress::Ended(_) | Progress::Time | Progress::Idle) => break,
                    Err(ExecuteError::Unserved(_)) => break,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(served > 120, "{served} calls");
}
