//! `bywash plan trace`: recordings become traces.

use crate::place::{TestFolder, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::process::Output;

/// Output of strace 6.1.
const SQLITE: &str = include_str!("../../../sim/src/trace/recordings/sqlite.txt");
/// Output of blkparse 1.2.0.
const BLKPARSE: &str = include_str!("../../../sim/src/trace/recordings/blkparse.txt");
const HEADER: &str = "time,process,call,file,offset,length\n";

fn trace(place: &TestFolder, words: &[&str]) -> Output {
    place.bywash(&["plan", "trace"]).args(words).output().unwrap()
}

#[test]
fn what_strace_printed_becomes_a_trace_on_standard_output() {
    let place = TestFolder::new();
    place.file("calls.txt", SQLITE);
    let output = trace(&place, &["calls.txt"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let csv = stdout(&output);
    assert!(csv.starts_with(&format!("{HEADER}0,23304,write,/data/orders.db-journal,0,512\n")), "{csv}");
    assert!(csv.contains(",23304,sync,/data/orders.db,0,0\n"), "{csv}");
    let said = stderr(&output);
    let (calls, files) = (csv.lines().count() - 1, 3);
    let told =
        format!("calls.txt: what strace prints; {calls} calls, 1 process and {files} files in 0.009 s\n");
    assert!(said.starts_with(&told), "{said}");
    assert!(said.contains("left out:\n") && said.contains("calls on terminals and other devices"), "{said}");
}

#[test]
fn a_trace_is_written_where_it_is_asked_for_and_read_again() {
    let place = TestFolder::new();
    place.file("requests.txt", BLKPARSE);
    let output = trace(&place, &["requests.txt", "--out", "disk.csv"]);
    assert!(output.status.success() && stdout(&output).is_empty(), "{}", stderr(&output));
    assert!(stderr(&output).contains("what blkparse prints; 10 calls, 3 processes and 1 file"));
    let csv = fs::read_to_string(place.path().join("disk.csv")).unwrap();
    assert!(csv.starts_with(&format!("{HEADER}0,697,write,\"8,0\",114426880,4096\n")), "{csv}");
    let again = trace(&place, &["disk.csv"]);
    assert_eq!(stdout(&again), csv);
    assert_eq!(stderr(&again), "disk.csv: a trace; 10 calls, 3 processes and 1 file in 2.000 s\n");
}

#[test]
fn what_is_no_recording_is_refused_with_what_to_do() {
    let place = TestFolder::new();
    place.file("notes.txt", "nothing of the kind\n");
    place.file("wrong.csv", format!("{HEADER}0,1,read,a,0,4k\n"));
    place.file("untimed.txt", "read(3</data/a>, \"\"..., 4096) = 4096\n");
    for (file, wanted) in [
        ("notes.txt", "record with `strace"),
        ("wrong.csv", "'wrong.csv': line 2: length '4k'"),
        ("untimed.txt", "no line has a time"),
        ("none.txt", "cannot read 'none.txt'"),
    ] {
        let output = trace(&place, &[file]);
        assert_eq!(output.status.code(), Some(125), "{file}");
        assert!(stderr(&output).contains(wanted), "{}", stderr(&output));
        assert!(stdout(&output).is_empty());
    }
    place.file("calls.txt", SQLITE);
    let output = trace(&place, &["calls.txt", "--out", "none/calls.csv"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("cannot write 'none/calls.csv'"), "{}", stderr(&output));
}

#[test]
fn what_was_recorded_is_replayed_on_any_machine() {
    let place = TestFolder::new();
    place.file("calls.txt", SQLITE);
    let calls = stdout(&trace(&place, &["calls.txt"])).lines().count() as u64 - 1;
    let run = |words: &[&str]| -> Value {
        let output = place.bywash(&["plan"]).args(words).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    let recorded = run(&["simulate", "preset:today-400g", "--replay", "calls.txt", "--json"]);
    assert_eq!((recorded["requests"].as_u64(), &recorded["is_whole"]), (Some(calls), &true.into()));
    let compared =
        run(&["compare", "preset:today-400g", "--replay", "calls.txt", "--pace", "fastest", "--json"]);
    let seconds = |report: &Value| report["seconds"].as_f64().unwrap();
    let column = |number: usize| &compared[number]["report"];
    assert!(seconds(column(0)) < seconds(&recorded), "nothing is waited for but the call before");
    let processor = |report: &Value| report["processor_seconds"].as_f64().unwrap();
    assert!(processor(column(1)) < processor(column(0)), "user-level I/O costs the host less");
    place.file("rubbish.txt", "nothing that anybody prints\n");
    for (words, wanted) in [
        (&["--replay", "rubbish.txt"][..], "rubbish.txt"),
        (&["--replay", "none.txt"], "cannot read 'none.txt'"),
        (&["--replay", "calls.txt", "--until", "9"], "--until"),
        (&["--pace", "fastest"], "--replay"),
    ] {
        let mut all = vec!["plan", "simulate", "preset:today-400g"];
        all.extend(words);
        let output = place.bywash(&all).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{words:?}");
        assert!(stderr(&output).contains(wanted), "{}", stderr(&output));
    }
}
