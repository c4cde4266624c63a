//! Help, man pages and completions: made from one definition, and complete.

use crate::place::{TestFolder, stdout};
use std::fs;
use std::process::Command;

#[test]
fn help_has_examples_and_the_exit_statuses() {
    let output = TestFolder::new().bywash(&["run", "--help"]).output().unwrap();
    assert!(output.status.success());
    let help = stdout(&output);
    for part in ["Examples:", "Exit status:", "125", "126", "127", "BYWASH_THRESHOLD", "--except"] {
        assert!(help.contains(part), "{part} is missing:\n{help}");
    }
}

#[test]
fn every_command_has_a_page_that_names_its_flags() {
    let place = TestFolder::new();
    assert!(place.bywash(&["man", "--out", "man/man1"]).status().unwrap().success());
    let page = |name: &str| fs::read_to_string(place.path().join("man/man1").join(name)).unwrap();
    assert!(page("bywash.1").contains("bywash\\-doctor(1)"));
    assert!(page("bywash-doctor.1").contains("\\-\\-json"));
    let run = page("bywash-run.1");
    for flag in ["stats", "report", "only", "except", "threshold", "positions", "log", "volatile", "off"] {
        assert!(run.contains(&format!("\\-\\-{flag}")), "{flag}");
    }
}

#[test]
fn the_shell_takes_its_completions() {
    let place = TestFolder::new();
    for shell in ["bash", "zsh", "fish", "elvish"] {
        let output = place.bywash(&["completions", shell]).output().unwrap();
        let script = stdout(&output);
        assert!(script.contains("threshold"), "{shell}");
        if shell == "bash" {
            let path = place.file("completions", script);
            assert!(Command::new("bash").arg("-n").arg(path).status().unwrap().success());
        }
    }
}

#[test]
fn an_unwritable_folder_for_pages_is_named() {
    let place = TestFolder::new();
    place.file("taken", "");
    let output = place.bywash(&["man", "--out", "taken/man1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let message = crate::place::stderr(&output);
    assert!(message.starts_with("bywash: cannot write 'taken/man1': "), "{message}");
}
