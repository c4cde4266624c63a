//! The tests of riscv-software-src/riscv-tests for user-level instructions, if BYWASH_RISCV_TESTS names a
//! folder with the built `rv64u*-p-*` files.
//!
//! These files set up a machine before they begin: they write control registers of machine mode and return to
//! user mode. The test does as much of that as they need: writes are ignored but for `mepc`, reads give zero,
//! and `mret` jumps to `mepc`. At the end they make a call with 93 in a7 and the number of the failed case in
//! a0, or zero.

#![allow(clippy::unwrap_used)] // helpers of the tests

use std::path::Path;

use bywash_cpu::elf::Image;
use bywash_cpu::memory::Space;
use bywash_cpu::{Blocks, Exit, Hart, Register};

/// Instructions after which a test counts as endless.
const BUDGET: u64 = 10_000_000;
/// Control register with the address to which `mret` jumps.
const MEPC: u32 = 0x341;
/// Return from machine mode.
const MRET: u32 = 0x3020_0073;

#[test]
fn riscv_tests_pass() {
    let Some(folder) = std::env::var_os("BYWASH_RISCV_TESTS") else {
        eprintln!(
            "skipped: riscv_tests_pass: BYWASH_RISCV_TESTS does not name a folder of built riscv-tests"
        );
        return;
    };
    let files = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("BYWASH_RISCV_TESTS is {folder:?}: {error}"));
    let mut count = 0;
    let mut failed = Vec::new();
    for path in files.map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_wanted = ["rv64ui-p-", "rv64um-p-", "rv64ua-p-", "rv64uf-p-", "rv64ud-p-", "rv64uc-p-"]
            .iter()
            .any(|prefix| name.starts_with(prefix) && path.extension().is_none());
        if is_wanted {
            count += 1;
            if let Err(reason) = run(&path) {
                failed.push(format!("{name}: {reason}"));
            }
        }
    }
    assert!(count > 0, "{folder:?} has no files rv64u*-p-*");
    assert!(failed.is_empty(), "{} of {count} fail:\n{}", failed.len(), failed.join("\n"));
    eprintln!("{count} files of riscv-tests pass");
}

/// Runs a file to its call at the end.
fn run(path: &Path) -> Result<(), String> {
    let file = std::fs::read(path).map_err(|error| error.to_string())?;
    let mut space = Space::new(64 << 20);
    let loaded =
        Image::parse(&file).and_then(|image| image.load(&mut space, 0)).map_err(|error| error.to_string())?;
    let mut hart = Hart::new(loaded.entry);
    let mut blocks = Blocks::new();
    let mut mepc = 0;
    while hart.retired < BUDGET {
        match hart.run(&mut space, &mut blocks, BUDGET) {
            Exit::EnvironmentCall if hart.x(Register::R17) == 93 => {
                let failed = hart.x(Register::R10);
                return if failed == 0 { Ok(()) } else { Err(format!("case {} fails", failed >> 1)) };
            }
            Exit::IllegalInstruction { bits: MRET, .. } => hart.pc = mepc,
            Exit::IllegalInstruction { pc, bits } if bits & 0x7f == 0x73 && bits & 0x7000 != 0 => {
                if bits >> 20 == MEPC {
                    mepc = hart.x(Register::new(bits >> 15));
                }
                hart.set_x(Register::new(bits >> 7), 0);
                hart.pc = pc + 4;
            }
            other => return Err(format!("{other:x?}")),
        }
    }
    Err(format!("no end after {BUDGET} instructions"))
}
