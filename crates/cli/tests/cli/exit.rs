//! Exit statuses: the program's, or 125, 126, 127.

use crate::place::{TestFolder, stderr};
use std::os::unix::process::ExitStatusExt;

/// Both ways of running: bywash becomes the program, or waits for it.
const WAYS: [&[&str]; 2] = [&[], &["--stats"]];

#[test]
fn the_programs_status_is_passed_on() {
    let place = TestFolder::new();
    for flags in WAYS {
        for status in [0, 1, 42, 125, 255] {
            let output = place.sh(flags, &format!("exit {status}"));
            assert_eq!(output.status.code(), Some(status), "{flags:?}");
        }
    }
}

#[test]
fn the_signal_that_kills_the_program_kills_bywash() {
    let place = TestFolder::new();
    for flags in WAYS {
        for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGPIPE, libc::SIGUSR1] {
            let output = place.sh(flags, &format!("kill -{signal} $$"));
            assert_eq!(output.status.signal(), Some(signal), "{flags:?}");
        }
    }
}

#[test]
fn bywash_leaves_no_core_dump_of_its_own() {
    let place = TestFolder::new();
    let output = place.sh(&["--stats"], "ulimit -c 0; kill -ABRT $$");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    assert!(!output.status.core_dumped());
}

#[test]
fn a_missing_program_is_127() {
    let place = TestFolder::new();
    for flags in WAYS {
        for program in ["no-such-program-here", "./missing", "/no/such/folder/program"] {
            let output = place.bywash(&["run"]).args(flags).args(["--", program]).output().unwrap();
            assert_eq!(output.status.code(), Some(127), "{flags:?} {program}");
            let message = stderr(&output);
            assert!(
                message.starts_with(&format!("bywash: cannot run '{program}': No such file")),
                "{message}"
            );
        }
    }
}

#[test]
fn a_program_that_cannot_be_executed_is_126() {
    let place = TestFolder::new();
    place.file("text", "no program");
    for flags in WAYS {
        for program in ["./text", "/tmp"] {
            let output = place.bywash(&["run"]).args(flags).args(["--", program]).output().unwrap();
            assert_eq!(output.status.code(), Some(126), "{flags:?} {program}: {}", stderr(&output));
        }
    }
}

#[test]
fn a_script_without_an_interpreter_line_is_run_by_the_shell() {
    let place = TestFolder::new();
    place.script("script", "exit 7\n");
    for flags in WAYS {
        let output = place.bywash(&["run"]).args(flags).args(["--", "./script"]).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{flags:?}");
    }
}

#[test]
fn a_wrong_command_line_is_125() {
    let place = TestFolder::new();
    for arguments in [&["run", "--no-such-flag", "ls"][..], &["run"], &["no-such-command"], &[]] {
        let output = place.bywash(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(stderr(&output).contains("Usage:"), "{arguments:?}");
    }
}
