//! The library that the tests look at, and the tools with which they do.

use std::path::PathBuf;
use std::process::Command;

/// The library, as Cargo builds it for the tests.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap();
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "-p", "bywash-shim"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if folder.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
    folder.join("libbywash_shim.so")
}

/// Standard output of a command that succeeds.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
