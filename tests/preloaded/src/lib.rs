//! Libraries that are preloaded into programs, and the tools with which the tests inspect them.

use std::path::PathBuf;
use std::process::Command;

/// Returns the path of the library of `bywash run`, built with the profile of the tests.
///
/// # Panics
/// If it cannot be built.
pub fn library() -> PathBuf {
    bywash_support::built::file("bywash-shim", "libbywash_shim.so")
}

/// Returns the path of the recorder, built with the profile of the tests.
///
/// # Panics
/// If it cannot be built.
pub fn recorder() -> PathBuf {
    bywash_support::built::file("bywash-recorder", "libbywash_recorder.so")
}

/// Runs a command that must succeed; returns its standard output.
///
/// # Panics
/// If the command fails, or prints what is not UTF-8.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap_or_else(|error| panic!("{command:?} prints no text: {error}"))
}
