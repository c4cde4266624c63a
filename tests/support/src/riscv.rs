//! Cross compiler and emulator for RISC-V, where they are installed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the cross compiler; `None` if it is not installed.
pub fn compiler() -> Option<PathBuf> {
    installed("riscv64-linux-gnu-gcc")
}

/// Returns QEMU's emulator of programs; `None` if it is not installed.
pub fn emulator() -> Option<PathBuf> {
    installed("qemu-riscv64").or_else(|| installed("qemu-riscv64-static"))
}

/// Returns the path of the source of a program for the simulated machine, by its name in `crates/execute/programs`.
///
/// # Panics
/// If there is no such program.
pub fn program(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/execute/programs");
    let path = folder.join(name).with_extension("c");
    assert!(path.is_file(), "there is no {}", path.display());
    path
}

/// Says that a test was skipped, and why.
pub fn skip(test: &str, missing: &str) {
    eprintln!("skipped: {test}: {missing} is not installed (scripts/packages test installs it)");
}

/// Compiles sources into a statically linked executable.
///
/// # Panics
/// If the compiler refuses the sources.
pub fn build(compiler: &Path, sources: &[PathBuf], options: &[String], target: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-O2", "-static", "-o"]).arg(target).args(options).args(sources);
    let output = command.args(["-lpthread", "-lm"]).output().expect("the compiler was found");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn installed(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}
