//! Programs of the cross compiler, whose output and status must be those that they have under QEMU.

#![allow(clippy::unwrap_used)] // helpers of the tests

mod counting;
mod system;

use std::process::Command;

use bywash_cpu::Blocks;
use bywash_cpu::memory::Space;
use counting::Counting;

/// Programs with small arguments, so that the tests are quick unoptimised, too.
const PROGRAMS: [(&str, &[&str]); 4] =
    [("sieve", &["1"]), ("sort", &["2000"]), ("float", &["1"]), ("library", &["beta", "alpha", "gamma"])];

#[test]
fn programs_do_as_under_qemu() {
    let test = "programs_do_as_under_qemu";
    let Some(compiler) = system::compiler() else { return system::skip(test, "gcc-riscv64-linux-gnu") };
    let Some(emulator) = system::emulator() else { return system::skip(test, "qemu-user") };
    let folder = tempfile::tempdir().unwrap();
    for (name, arguments) in PROGRAMS {
        for (kind, options) in
            [("fixed", &[] as &[&str]), ("independent", &["-static-pie"]), ("full", &["-march=rv64g"])]
        {
            let target = folder.path().join(format!("{name}-{kind}"));
            let file = system::compile(
                &compiler,
                &system::sources().join(name).with_extension("c"),
                &target,
                options,
            );
            let expected = Command::new(&emulator).arg0(name).arg(&target).args(arguments).output().unwrap();
            let words: Vec<&str> = [&[name], arguments].concat();
            let outcome =
                system::run(&file, &words, &mut Space::new(256 << 20), &mut Blocks::new(), u64::MAX);
            for (found, expected) in
                [(&outcome.output, &expected.stdout), (&outcome.errors, &expected.stderr)]
            {
                let (found, expected) = (String::from_utf8_lossy(found), String::from_utf8_lossy(expected));
                assert_eq!(found, expected, "{name}, {kind}");
            }
            assert_eq!(outcome.status as i32, expected.status.code().unwrap(), "{name}, {kind}");
        }
    }
}

#[test]
fn a_run_depends_neither_on_blocks_nor_slices_nor_the_memory_around() {
    let test = "a_run_depends_neither_on_blocks_nor_slices_nor_the_memory_around";
    let Some(compiler) = system::compiler() else { return system::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    for (name, arguments) in PROGRAMS {
        let target = folder.path().join(name);
        let file =
            system::compile(&compiler, &system::sources().join(name).with_extension("c"), &target, &[]);
        let words: Vec<&str> = [&[name], arguments].concat();
        let space = || Space::new(256 << 20);
        let expected = system::run(&file, &words, &mut space(), &mut Blocks::plain(), u64::MAX);
        for slice in [u64::MAX, 1000, 97, 7] {
            let outcome = system::run(&file, &words, &mut space(), &mut Blocks::new(), slice);
            assert_eq!(outcome, expected, "{name} in slices of {slice}");
        }
        let mut counting = Counting::new(space());
        assert_eq!(
            system::run(&file, &words, &mut counting, &mut Blocks::new(), u64::MAX),
            expected,
            "{name}, counted"
        );
        assert_eq!(counting.instructions, expected.retired, "{name}: each instruction is entered once");
        let mut stopping = Counting::new(space());
        stopping.stop_every = 3;
        assert_eq!(
            system::run(&file, &words, &mut stopping, &mut Blocks::new(), 1000),
            expected,
            "{name}, stopped"
        );
        assert_eq!(
            (stopping.loads, stopping.stores, stopping.atomics),
            (counting.loads, counting.stores, counting.atomics),
            "{name}: each access is made once"
        );
    }
}

use std::os::unix::process::CommandExt as _;
