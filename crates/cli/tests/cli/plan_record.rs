//! `bywash plan record` and `bywash plan predict`: a program's calls become a trace, and a prediction.

use crate::place::{TestFolder, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::process::Output;

fn plan(place: &TestFolder, words: &[&str]) -> Output {
    let mut bywash = place.bywash(&["plan"]);
    // A keeper's socket is apart from all others.
    bywash.env("XDG_RUNTIME_DIR", place.path()).args(words).output().unwrap()
}

#[test]
fn a_program_s_calls_become_a_trace_and_its_status_is_kept() {
    let place = TestFolder::new();
    place.file("data", "x".repeat(10_000));
    let script = "head -c 5000 data > copy; cat copy | wc -c; exit 7";
    let output = plan(&place, &["record", "--out", "calls.csv", "--", "sh", "-c", script]);
    assert_eq!((output.status.code(), stdout(&output).trim()), (Some(7), "5000"), "{}", stderr(&output));
    let csv = fs::read_to_string(place.path().join("calls.csv")).unwrap();
    assert!(csv.starts_with("time,process,call,file,offset,length,end,computed\n"), "{csv}");
    let reads =
        |name: &str| csv.lines().filter(|line| line.contains(",read,") && line.contains(name)).count();
    assert!(reads("/data,0,5000") == 1 && reads("/copy,0,5000") == 1, "{csv}");
    assert!(csv.contains(",wait,pipe:[") && csv.contains(",wait,child,"), "{csv}");
    let said = stderr(&output);
    assert!(said.starts_with("calls.csv: ") && said.contains("the recorder took "), "{said}");

    // The trace is read again, and replayed with the program's computing.
    let again = plan(&place, &["trace", "calls.csv"]);
    assert_eq!(stdout(&again), csv, "{}", stderr(&again));
    let words = ["simulate", "preset:today-25g", "--replay", "calls.csv", "--pace", "computed", "--json"];
    let replayed = plan(&place, &words);
    let report: Value =
        serde_json::from_str(&stdout(&replayed)).unwrap_or_else(|_| panic!("{}", stderr(&replayed)));
    assert_eq!(report["requests"].as_u64(), Some(csv.lines().count() as u64 - 1), "{report}");
}

#[test]
fn a_killed_program_leaves_a_trace_and_others_are_refused() {
    let place = TestFolder::new();
    let output = plan(&place, &["record", "--out", "calls.csv", "--", "sh", "-c", "echo >file; kill -9 $$"]);
    assert!(output.status.code().is_none(), "dies as the program died");
    assert!(fs::read_to_string(place.path().join("calls.csv")).unwrap().contains(",other,start,"));
    let output = plan(&place, &["record", "--out", "calls.csv", "--", "./nowhere"]);
    assert_eq!(output.status.code(), Some(127));
    place.file("old.csv", "time,process,call,file,offset,length\n0,1,read,a,0,1\n");
    let output = plan(&place, &["simulate", "preset:today-25g", "--replay", "old.csv", "--pace", "computed"]);
    assert!(stderr(&output).contains("record it with `bywash plan record`"), "{}", stderr(&output));
}

#[test]
fn a_prediction_is_made_or_refused_with_the_reason() {
    let place = TestFolder::new();
    place.file("data", "x".repeat(1 << 20));
    predict(&place, &["--", "cat", "data"], "bywash run");
}

#[test]
fn a_prediction_of_commits_goes_to_the_log() {
    let place = TestFolder::new();
    let missing = plan(&place, &["predict", "--log", "no-log", "--", "true"]);
    assert!(stderr(&missing).contains("there is no log"), "{}", stderr(&missing));
    let created = place.bywash(&["log", "create", "log", "--size", "8M", "--volatile"]).output().unwrap();
    assert!(created.status.success(), "{}", stderr(&created));
    let words = [
        "--log",
        "log",
        "--volatile",
        "--",
        "dd",
        "if=/dev/zero",
        "of=out",
        "bs=4k",
        "count=80",
        "conv=fsync",
    ];
    predict(&place, &words, "bywash run --log");
}

/// Predicts a program that is started once. The test's machine may be too busy, which is then said.
fn predict(place: &TestFolder, words: &[&str], command: &str) {
    let output = plan(place, &[&["predict", "--verify", "--json", "--runs", "3"], words].concat());
    if output.status.code() == Some(125) {
        let said = stderr(&output);
        assert!(said.contains("no prediction: ") && said.contains("try again on an idle machine"), "{said}");
        return;
    }
    let answer: Value =
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let gain = &answer["gain"];
    assert!(
        gain["low"].as_f64() <= gain["median"].as_f64() && gain["median"].as_f64() <= gain["high"].as_f64()
    );
    assert!(answer["measured"]["gain"].as_f64().unwrap() > 0.0 && answer["starts"] == 1, "{answer}");
    assert_eq!(answer["command"], command);
}

#[test]
fn a_program_that_fails_is_not_predicted() {
    let place = TestFolder::new();
    let output = plan(&place, &["predict", "--", "sh", "-c", "echo no such thing >&2; exit 3"]);
    assert_eq!(output.status.code(), Some(125));
    let said = stderr(&output);
    assert!(said.contains("(status 3): no such thing") || said.contains("no prediction: "), "{said}");
}
