//! The examples run, with small numbers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

/// Runs an example. Cargo builds a package's examples along with its tests, into `examples` beside `deps`.
fn run(example: &str, number: &str) -> String {
    let test: PathBuf = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join(example);
    assert!(program.exists(), "build the examples: cargo test -p bywash-container does, without --test");
    let output = Command::new(&program).arg(number).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}: {text}{}",
        program.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[test]
fn pingpong() {
    assert!(run("pingpong", "1000").starts_with("1000 rounds"));
}

#[test]
fn stream() {
    assert!(run("stream", "8").starts_with("8 MiB"));
}

#[test]
fn forwarder() {
    assert!(run("forwarder", "1000").starts_with("1000 messages"));
}

#[cfg(feature = "async")]
#[test]
fn tokio() {
    assert!(run("tokio", "10").starts_with("1000 answers to 100 clients"));
}
