//! `bywash plan execute`: a program inside a described machine.

use crate::place::{TestFolder, stderr, stdout};
use bywash_support::riscv;
use serde_json::Value;
use std::process::Output;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments) {
    char line[256];
    FILE *file = fopen("/numbers", "r"), *out = fopen("/sum", "w");
    long sum = 0, number;
    while (file && fscanf(file, "%ld", &number) == 1) sum += number;
    while (fgets(line, sizeof line, stdin)) printf("read %zu\n", strlen(line));
    printf("%s: %ld\n", arguments[count - 1], sum);
    fprintf(out, "%ld\n", sum);
    fclose(out);
    return (int)sum;
}
"#;

/// Compiles the program; false without a compiler.
fn compile(place: &TestFolder, test: &str) -> bool {
    let Some(compiler) = riscv::compiler() else {
        riscv::skip(test, "gcc-riscv64-linux-gnu");
        return false;
    };
    place.file("sum.c", PROGRAM);
    let path = |name: &str| place.path().join(name);
    riscv::build(&compiler, &[path("sum.c")], &[], &path("sum"));
    true
}

fn execute(place: &TestFolder, words: &[&str]) -> Output {
    place.bywash(&["plan", "execute"]).args(words).output().unwrap()
}

#[test]
fn a_program_runs_with_its_files_input_and_status_and_is_reported() {
    let place = TestFolder::new();
    if !compile(&place, "a_program_runs_with_its_files_input_and_status_and_is_reported") {
        return;
    }
    std::fs::create_dir(place.path().join("data")).unwrap();
    place.file("data/numbers", "3\n1\n2\n");
    place.file("text", "one\nthree\n");
    let words = ["--machine", "preset:today-10g", "--files", "data", "--input", "text", "--out", "after"];
    let more = ["--profile", "--timeline", "spans.json", "./sum", "--", "-x"];
    let output = execute(&place, &[&words[..], &more].concat());
    assert_eq!(stdout(&output), "read 4\nread 6\n-x: 6\n", "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(6));
    let said = stderr(&output);
    for part in ["conventional: ", " instructions, ", "system calls ", "memory bus ", "function "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(std::fs::read_to_string(place.path().join("after/sum")).unwrap(), "6\n");
    let spans: Value =
        serde_json::from_slice(&std::fs::read(place.path().join("spans.json")).unwrap()).unwrap();
    let events = spans["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|event| event["name"] == "thread 1" && event["dur"].as_f64() > Some(0.0)));

    // The same run gives the same numbers, and another structure others.
    let json = |structure: &str| -> Value {
        let words =
            ["./sum", "--files", "data", "--as", structure, "--json", "--machine", "preset:carrera-table-4"];
        let output = execute(&place, &words);
        assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
        assert!(stderr(&output).contains("./sum: 6"));
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    let (conventional, active) = (json("conventional"), json("active"));
    assert_eq!(conventional, json("conventional"));
    assert_eq!(conventional["instructions"], active["instructions"]);
    assert_ne!(conventional["seconds"], active["seconds"]);
    assert_eq!(conventional["status"], 6);
}

#[test]
fn the_cost_of_a_call_without_io_is_told_and_has_its_effect() {
    let place = TestFolder::new();
    if !compile(&place, "the_cost_of_a_call_without_io_is_told_and_has_its_effect") {
        return;
    }
    let preset = stdout(&place.bywash(&["plan", "presets", "carrera-table-4"]).output().unwrap());
    place.file("old.toml", &preset);
    let run = |more: &[&str]| {
        let output = execute(&place, &[&["./sum", "--machine", "old.toml", "--json"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        (report["seconds"].as_f64().unwrap(), report["processors"].to_string(), stderr(&output))
    };
    let (implied, processors, said) = run(&[]);
    assert!(
        said.contains("old.toml: ") && said.contains("(costs.trap)") && said.contains("322 cycles"),
        "{said}"
    );
    let (same, same_processors, said) = run(&["--set", "costs.trap=322 cycles"]);
    assert!(!said.contains("costs.trap") && (same, same_processors) == (implied, processors), "{said}");
    assert!(run(&["--set", "costs.trap=100000 cycles"]).0 > implied);
}

#[test]
fn what_cannot_be_executed_is_refused_with_the_reason() {
    let place = TestFolder::new();
    let refused = |words: &[&str], reason: &str| {
        let output = execute(&place, words);
        assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    };
    place.file("text", "no program\n");
    refused(&["./absent"], "absent");
    refused(&["./text"], "cannot load the program");
    refused(&["/bin/true"], "cannot load the program");
    refused(&["./text", "--machine", "preset:carrera-table-2"], "has no machine.memory");
    refused(&["./text", "--machine", "preset:today-25g", "--as", "active"], "conventional or user-level");
    if !compile(&place, "what_cannot_be_executed_is_refused_with_the_reason") {
        return;
    }
    refused(&["./sum", "--files", "absent"], "absent");
    refused(&["./sum", "--clients", "2", "--get", "/"], "the program ended");
    let output = execute(&place, &["./sum", "--until", "1us"]);
    assert_eq!(output.status.code(), Some(124));
    assert!(stderr(&output).contains("--until"));
}
