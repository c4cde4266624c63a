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

/// Returns the folder of a package that `crates/execute` names for the source that it carries: `lua-src` or
/// `libsqlite3-sys`. The package is fetched if Cargo does not have it.
///
/// # Panics
/// If the package cannot be fetched, or is not named.
pub fn package(name: &str) -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/execute/Cargo.toml");
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        command.args(arguments).arg("--manifest-path").arg(&manifest);
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    };
    let metadata = || cargo(&["metadata", "--offline", "--format-version", "1"]);
    let mut output = metadata();
    if !output.status.success() {
        let fetched = cargo(&["fetch", "--locked"]);
        let errors = String::from_utf8_lossy(&fetched.stderr);
        assert!(fetched.status.success(), "cargo fetch --locked: {errors}");
        output = metadata();
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let paths = text.split("\"manifest_path\":\"").filter_map(|part| part.split('"').next());
    let mut folders = paths.filter_map(|path| Path::new(path).parent());
    let is_version = |rest: &str| rest.starts_with(|digit: char| digit.is_ascii_digit());
    let is_named = |folder: &&Path| {
        let folder = folder.file_name().unwrap_or_default().to_string_lossy();
        folder.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_version)
    };
    let found = folders.find(is_named);
    found.unwrap_or_else(|| panic!("cargo metadata names no package {name}")).into()
}

/// Returns the sources of the program `database`, and options with which a compiler makes it of them.
pub fn database() -> (Vec<PathBuf>, Vec<String>) {
    let folder = package("libsqlite3-sys").join("sqlite3");
    let include = format!("-I{}", folder.display());
    // As SQLite's documentation recommends for a program with one thread.
    let features =
        ["THREADSAFE=0", "OMIT_LOAD_EXTENSION", "DEFAULT_MEMSTATUS=0", "DQS=0", "OMIT_SHARED_CACHE"];
    let features = features.map(|feature| format!("-DSQLITE_{feature}"));
    let options = [include, "-w".into()].into_iter().chain(features).collect();
    (vec![program("database"), folder.join("sqlite3.c")], options)
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
