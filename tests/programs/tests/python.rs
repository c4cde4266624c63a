//! Python's own tests of its files, processes and memory maps: each test must have the same result on both
//! sides.
//!
//! `subprocess` starts children by vfork(2) and closes descriptors in them. `test_io` checks positions for
//! every way of opening a file twice.

use bywash_programs::{ScenarioRun, installed, on_both_file_systems};

on_both_file_systems!(os_and_posix, files_and_positions, maps_and_locks, archives_and_copies, subprocesses);

/// Runs modules of Python's tests and notes each test's result, by name.
fn python_tests(stage: &ScenarioRun, modules: &[&str]) {
    installed::require("/usr/lib/python3.11/test/test_io.py", "libpython3.11-testsuite");
    let report = stage.spare().join("junit.xml");
    let mut left_out = Vec::new();
    for pattern in SLOW_OR_CHANCE {
        left_out.extend(["-i", pattern]);
    }
    let python = stage.program("/usr/bin/python3").args(["-W", "ignore", "-m", "test", "--tempdir"]);
    let python = python.arg(stage.folder()).arg("--junit-xml").arg(&report).args(left_out).args(modules);
    let ended = python.limit(110).run();
    let report = std::fs::read_to_string(&report).unwrap_or_else(|error| {
        panic!("{error}: no report; python3 wrote:\n{}\n{}", ended.stdout, ended.stderr)
    });
    let results = results(&report);
    assert!(results.len() > 20, "only {} tests were run:\n{}", results.len(), ended.stdout);
    stage.note(format!("{:?}\n{}", ended.status.code(), results.join("\n")));
    stage.expect_loaded(&std::fs::canonicalize("/usr/bin/python3").expect("python3"));
}

/// Patterns of tests to leave out: tests that wait for seconds, move gigabytes, repeat others by select(2) or
/// with a slower compression, or depend on chance.
const SLOW_OR_CHANCE: [&str; 11] = [
    "*Lzma*",
    "*Bzip2*",
    "test_interrupted_*",
    "test_daemon_threads_*",
    "*timeout*",
    "test_*_dead",
    "*NoPoll*",
    "*ThreadTests*",
    "test_*_large_*",
    "TestCopyfile",
    "TestSocketSendfile",
];

/// Returns `name: passed|skipped|failed` for every `testcase` of a JUnit report, sorted.
fn results(report: &str) -> Vec<String> {
    let cases = report.split("<testcase ").skip(1);
    let mut results: Vec<String> = cases
        .map(|case| {
            let name = case.split("name=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("?");
            let how = [("<skipped", "skipped"), ("<failure", "failed"), ("<error", "failed")];
            let how = how.iter().find(|(mark, _)| case.contains(mark)).map_or("passed", |(_, how)| *how);
            format!("{name}: {how}")
        })
        .collect();
    results.sort();
    results
}

fn os_and_posix(stage: &ScenarioRun) {
    python_tests(stage, &["test_os", "test_posix"]);
}

fn files_and_positions(stage: &ScenarioRun) {
    python_tests(stage, &["test_io", "test_file", "test_fileio", "test_largefile", "test_bufio"]);
}

fn maps_and_locks(stage: &ScenarioRun) {
    python_tests(stage, &["test_mmap", "test_fcntl", "test_dbm_dumb", "test_univnewlines"]);
}

fn archives_and_copies(stage: &ScenarioRun) {
    python_tests(stage, &["test_tempfile", "test_shutil", "test_zipfile", "test_gzip"]);
}

fn subprocesses(stage: &ScenarioRun) {
    python_tests(stage, &["test_subprocess"]);
}
