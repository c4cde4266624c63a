//! Memory that a simulated machine needs on the host beside what the program in it uses. The test has a process of its own,
//! because it looks at the greatest size that the process has had.

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_execute::{End, Execution, Program, Progress};
use bywash_model::Architecture;
use bywash_sim::Preset;
use bywash_sim::program::TimedMachine;
use bywash_support::riscv;
use std::path::Path;

/// Greatest size beside the program's memory, in bytes.
const LIMIT: u64 = 256 << 20;
/// Number of bytes that a program here uses.
const BYTES: u64 = 8 << 20;

#[test]
fn a_machine_needs_little_memory_beside_the_programs() {
    let test = "a_machine_needs_little_memory_beside_the_programs";
    let Some(compiler) = riscv::compiler() else { return riscv::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let [bytes, rounds] = [BYTES.to_string(), "1".to_owned()];
    let sizes =
        [("sorts", 1, ["1", "1000"]), ("sorts", 16, ["16", "1000"]), ("lines", 16, [&bytes, &rounds])].map(
            |(name, processors, arguments)| {
                let source = Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("tests/programs")
                    .join(name)
                    .with_extension("c");
                let target = folder.path().join(name);
                riscv::build(&compiler, &[source], &["-w".into()], &target);
                let mut description = Preset::named("carrera-table-4").unwrap().description();
                description.machine.processors.count = f64::from(processors);
                let machine = TimedMachine::new(&description, Architecture::Conventional, 1).unwrap();
                let machine = machine.with_profile().with_timeline(100_000);
                let program = Program::new([&[name], &arguments[..]].concat());
                let mut execution =
                    Execution::new(&std::fs::read(&target).unwrap(), program, machine).unwrap();
                while !matches!(execution.run().unwrap(), Progress::Ended(End::Exited(0))) {
                    execution.output();
                }
                (processors, greatest_size())
            },
        );
    println!("greatest sizes, in bytes, so far: {sizes:?}");
    let [.., (_, greatest)] = sizes;
    assert!(greatest > BYTES && greatest < LIMIT + BYTES, "{sizes:?}");
}

/// Returns the greatest resident size of this process so far, in bytes.
fn greatest_size() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
