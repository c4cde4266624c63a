//! Library under test, and the tools with which the tests inspect it.

use std::path::PathBuf;
use std::process::Command;

/// Returns the path of the library, built with the profile of the tests.
pub fn library() -> PathBuf {
    bywash_support::built::library("bywash-shim", "libbywash_shim.so")
}

/// Runs a command that must succeed; returns its standard output.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
