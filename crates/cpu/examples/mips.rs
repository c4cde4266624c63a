//! Measures how many million instructions per second the interpreter executes, and QEMU beside it where it is
//! installed.
//!
//! `cargo run --release -p bywash-cpu --example mips` compiles the programs of the tests by the cross
//! compiler (gcc-riscv64-linux-gnu) and runs each three times: in flat memory, in memory wrapped by a model
//! that counts, and under qemu-riscv64. The best of three runs counts.

#![allow(clippy::unwrap_used)] // helpers of the tests, which this example shares

#[path = "../tests/system/mod.rs"]
mod system;

#[path = "../tests/counting/mod.rs"]
mod counting;

use std::process::{Command, ExitCode};
use std::time::Instant;

use bywash_cpu::Blocks;
use bywash_cpu::memory::Space;
use counting::Counting;

/// Programs, and the argument with which each runs for about a second.
const PROGRAMS: [(&str, &str); 3] = [("sieve", "120"), ("sort", "400000"), ("float", "60")];

/// Number of runs of which the fastest counts.
const RUNS: usize = 3;

fn main() -> ExitCode {
    let Some(compiler) = system::compiler() else {
        eprintln!(
            "mips: riscv64-linux-gnu-gcc is not installed; install gcc-riscv64-linux-gnu and libc6-dev-riscv64-cross"
        );
        return ExitCode::FAILURE;
    };
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("mips: cannot make a temporary folder: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "{:8} {:>14} {:>10} {:>10} {:>10} {:>7}",
        "program", "instructions", "flat", "counting", "qemu", "ratio"
    );
    for (name, argument) in PROGRAMS {
        let target = folder.path().join(name);
        let file =
            system::compile(&compiler, &system::sources().join(name).with_extension("c"), &target, &[]);
        let mut retired = 0;
        let flat = seconds(|| {
            let mut space = Space::new(1 << 30);
            retired = system::run(&file, &[name, argument], &mut space, &mut Blocks::new(), u64::MAX).retired;
        });
        let counting = seconds(|| {
            let mut memory = Counting::new(Space::new(1 << 30));
            system::run(&file, &[name, argument], &mut memory, &mut Blocks::new(), u64::MAX);
        });
        let mips = |seconds: f64| retired as f64 / seconds / 1e6;
        print!("{name:8} {retired:14} {:10.0} {:10.0}", mips(flat), mips(counting));
        match system::emulator() {
            Some(emulator) => {
                let qemu = seconds(|| {
                    let run = Command::new(&emulator).arg(&target).arg(argument).output();
                    assert!(run.is_ok_and(|output| output.status.success()), "{name} fails under QEMU");
                });
                println!(" {:10.0} {:7.1}", mips(qemu), flat / qemu);
            }
            None => println!("  (qemu-user is not installed)"),
        }
    }
    ExitCode::SUCCESS
}

/// Returns the time of the fastest of several runs.
fn seconds(mut run: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}
