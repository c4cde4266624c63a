//! The tests of riscv-software-src/riscv-tests for user-level instructions, if BYWASH_RISCV_TESTS names a checkout of
//! their sources.
//!
//! That project's own environments set up machine mode or page tables before a test begins, of which this interpreter
//! has neither. So each `isa/rv64u*/*.S` is assembled with the environment in `tests/user_mode`, in which a test is a
//! program of Linux whose exit status tells the failed case. The same file runs under QEMU, where that is installed:
//! a test that fails there, too, is not the interpreter's.

#![allow(clippy::unwrap_used)] // helpers of the tests

mod system;

use std::path::{Path, PathBuf};
use std::process::Command;

use bywash_cpu::elf::Image;
use bywash_cpu::memory::Space;
use bywash_cpu::{Blocks, Exit, Hart, Register};

/// Variable with the path of the checkout.
const VARIABLE: &str = "BYWASH_RISCV_TESTS";
/// Folders of the tests for the extensions of RV64GC, in `isa`.
const FOLDERS: [&str; 6] = ["rv64ui", "rv64um", "rv64ua", "rv64uf", "rv64ud", "rv64uc"];
/// Instructions after which a test counts as endless.
const BUDGET: u64 = 10_000_000;
/// Number of exit(2).
const EXIT: u64 = 93;

#[test]
fn riscv_tests_pass() {
    let test = "riscv_tests_pass";
    let Some(checkout) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        return eprintln!("skipped: {test}: {VARIABLE} names no checkout of riscv-tests");
    };
    let Some(compiler) = system::compiler() else { return system::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let sources = sources(&checkout);
    assert!(!sources.is_empty(), "{VARIABLE} is {checkout:?}, which has no isa/rv64u*/*.S");
    let mut failed = Vec::new();
    for source in &sources {
        let name = source.strip_prefix(checkout.join("isa")).unwrap().display().to_string();
        let target = folder.path().join("program");
        let outcome =
            assemble(&compiler, &checkout, source, &target).and_then(|()| run(&target)).map_err(|reason| {
                let emulated = system::emulator().map(|path| Command::new(path).arg(&target).status());
                format!("{name}: {reason}; under QEMU: {emulated:?}")
            });
        failed.extend(outcome.err());
    }
    assert!(failed.is_empty(), "{} of {} fail:\n{}", failed.len(), sources.len(), failed.join("\n"));
    eprintln!("{} of riscv-tests pass", sources.len());
}

/// The environment reports the number of a failed case, so that no test passes by not being understood.
#[test]
fn a_failed_case_of_riscv_tests_is_reported() {
    let test = "a_failed_case_of_riscv_tests_is_reported";
    let Some(compiler) = system::compiler() else { return system::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("program");
    for (wanted, expected) in [(7, Ok(())), (8, Err("case 3 fails".to_owned()))] {
        let source = folder.path().join("case.S");
        let text = format!(
            "#include \"riscv_test.h\"\nRVTEST_RV64U\nRVTEST_CODE_BEGIN\nli TESTNUM, 3\nli a0, 7\nli a1, {wanted}\n\
             bne a0, a1, fail\nRVTEST_PASS\nfail: RVTEST_FAIL\nRVTEST_CODE_END\n.data\nRVTEST_DATA_BEGIN\nRVTEST_DATA_END\n"
        );
        std::fs::write(&source, text).unwrap();
        assemble(&compiler, folder.path(), &source, &target).unwrap();
        assert_eq!(run(&target), expected);
    }
}

/// Returns the sources of the tests, in order.
fn sources(checkout: &Path) -> Vec<PathBuf> {
    let folders = FOLDERS.map(|name| checkout.join("isa").join(name));
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut sources: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|it| it == "S")).collect();
    sources.sort();
    sources
}

/// Makes a program of a test.
fn assemble(compiler: &Path, checkout: &Path, source: &Path, target: &Path) -> Result<(), String> {
    let mut command = Command::new(compiler);
    command.args(["-march=rv64g", "-mabi=lp64d", "-mcmodel=medany", "-static", "-no-pie"]);
    // The test of fence.i writes to its code, for which -N makes one segment of all. The register gp has the number of
    // the case, so the linker must not address data by it.
    command.args(["-nostdlib", "-nostartfiles", "-Wl,--no-relax,-N,--no-warn-rwx-segments"]);
    command.arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/user_mode"));
    command.arg("-I").arg(checkout.join("isa/macros/scalar"));
    let output = command.arg(source).arg("-o").arg(target).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Runs a test to its end.
fn run(path: &Path) -> Result<(), String> {
    let file = std::fs::read(path).map_err(|error| error.to_string())?;
    let mut space = Space::new(64 << 20);
    let loaded =
        Image::parse(&file).and_then(|image| image.load(&mut space, 0)).map_err(|error| error.to_string())?;
    let mut hart = Hart::new(loaded.entry);
    let mut blocks = Blocks::new();
    match hart.run(&mut space, &mut blocks, BUDGET) {
        Exit::EnvironmentCall if hart.x(Register::R17) == EXIT => match hart.x(Register::R10) {
            0 => Ok(()),
            status => Err(format!("case {} fails", status >> 1)),
        },
        Exit::Budget => Err(format!("no end after {BUDGET} instructions")),
        other => Err(format!("{other:x?}, in case {}", hart.x(Register::R3))),
    }
}
