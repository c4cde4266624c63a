//! Programs that the library cannot serve run without it, and it is said why.

use crate::place::{TestFolder, stderr, stdout};
use serde_json::Value;
use std::fs;

fn musl_program(place: &TestFolder) {
    let source = "#include <stdio.h>\n#include <stdlib.h>\n\
        int main(void) { char *value = getenv(\"LD_PRELOAD\"); puts(value ? value : \"unset\"); return 4; }\n";
    place.file("p.c", source);
    let built = place.command("musl-gcc").args(["-o", "p", "p.c"]).status();
    assert!(built.is_ok_and(|status| status.success()), "musl-gcc: Debian's musl-tools");
}

#[test]
fn a_musl_program_starts_and_other_preloaded_libraries_stay() {
    let place = TestFolder::new();
    musl_program(&place);
    let output = place.bywash(&["run", "--", "./p"]).output().unwrap();
    assert_eq!((output.status.code(), &*stdout(&output), &*stderr(&output)), (Some(4), "unset\n", ""));
    let output = place.bywash(&["run", "--", "sh", "-c", "LD_PRELOAD=$LD_PRELOAD: ./p"]).output().unwrap();
    assert_eq!((output.status.code(), &*stdout(&output)), (Some(4), "unset\n"));
}

#[test]
fn the_program_itself_and_what_it_starts_are_named_with_the_reason() {
    let place = TestFolder::new();
    musl_program(&place);
    let output = place.bywash(&["run", "--stats", "--report", "r.json", "--", "./p"]).output().unwrap();
    let table = stderr(&output);
    assert!(
        table.contains("./p did not load the library (musl loader; the library needs glibc's)"),
        "{table}"
    );
    let report = |name: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(place.path().join(name)).unwrap()).unwrap()
    };
    assert_eq!(report("r.json")["not_served"][0]["times"], 1);
    assert_eq!(report("r.json")["loaded"], false);

    let output = place.sh(&["--stats", "--report", "s.json"], "./p; ./p; true");
    let table = stderr(&output);
    assert!(table.contains("/p (musl loader; the library needs glibc's)"), "{table}");
    let own = place.path().canonicalize().unwrap().join("p");
    let expected = serde_json::json!([
        {"program": own.to_str().unwrap(), "reason": "musl loader; the library needs glibc's", "times": 2}
    ]);
    assert_eq!(report("s.json")["not_served"], expected);
    assert_eq!(report("s.json")["loaded"], true);
}
