//! A program under bywash finds what it would have found without: arguments, signal mask, ignored signals,
//! descriptors, parent and group; and nothing on the terminal that is not its own.

use crate::place::{TestFolder, stdout};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

const WAYS: [&[&str]; 2] = [&[], &["--report", "report.json"]];

/// Asserts that `script` prints the same without bywash as with it, with a report and without. `prepare` sets up
/// each command.
fn same(script: &str, prepare: impl Fn(&mut Command)) {
    let place = TestFolder::new();
    let run = |mut command: Command| -> Output {
        prepare(&mut command);
        command.output().unwrap()
    };
    let mut bare = place.command("sh");
    bare.args(["-c", script]);
    let expected = run(bare);
    assert!(!expected.stdout.is_empty(), "the script says nothing: {script}");
    for flags in WAYS {
        let mut command = place.bywash(&["run"]);
        command.args(flags).args(["--", "sh", "-c", script]);
        let found = run(command);
        assert_eq!(stdout(&found), stdout(&expected), "{flags:?}");
        assert_eq!(found.stderr, expected.stderr, "{flags:?}");
        assert_eq!(found.status, expected.status, "{flags:?}");
    }
}

#[test]
fn signals_that_are_ignored_or_blocked_stay_so() {
    same("grep -E 'Sig(Ign|Blk|Cgt)' /proc/self/status", |command| {
        // SAFETY: sigprocmask and signal are async-signal-safe; ignoring is no handler.
        unsafe {
            command.pre_exec(|| {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, libc::SIGUSR2);
                libc::sigaddset(&raw mut set, libc::SIGTERM);
                libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
                for signal in [libc::SIGHUP, libc::SIGPIPE, libc::SIGQUIT] {
                    libc::signal(signal, libc::SIG_IGN);
                }
                Ok(())
            });
        }
    });
}

#[test]
fn a_child_signal_that_is_ignored_still_gives_the_status() {
    same("grep SigIgn /proc/self/status; exit 9", |command| {
        // SAFETY: signal is async-signal-safe; ignoring is no handler.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                Ok(())
            });
        }
    });
}

#[test]
fn no_descriptor_is_added_or_lost() {
    // `ls` has one of its own for the directory.
    same("exec ls /proc/self/fd", |_| {});
    same("exec ls /proc/self/fd", |command| {
        // SAFETY: close and dup2 are async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::close(0);
                libc::dup2(1, 9);
                Ok(())
            });
        }
    });
}

#[test]
fn the_report_does_not_get_into_a_closed_standard_error() {
    let place = TestFolder::new();
    let mut command = place.bywash(&["run", "--stats", "--report", "r.json", "--", "true"]);
    // SAFETY: close is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            for standard in 0..3 {
                libc::close(standard);
            }
            Ok(())
        });
    }
    assert!(command.status().unwrap().success());
    let report = std::fs::read_to_string(place.path().join("r.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(value["exit"]["status"], 0);
}

#[test]
fn the_environment_is_the_callers_but_for_the_library() {
    let names = "env -u LD_PRELOAD -u BYWASH_SESSION -u _ | sort";
    same(names, |command| {
        command.env("KEPT", "a=b c").env("EMPTY", "");
    });
}

#[test]
fn arguments_are_not_interpreted() {
    let place = TestFolder::new();
    let output = place
        .bywash(&["run", "--", "printf", "%s|", "--stats", "--", "", "a b", "*", "-h"])
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "--stats|--||a b|*|-h|");
}

#[test]
fn the_group_the_session_and_the_limits_stay() {
    same("cut -d' ' -f5-6 /proc/self/stat | grep -c .; ulimit -a; umask", |command| {
        // SAFETY: umask is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::umask(0o027);
                Ok(())
            });
        }
    });
    let place = TestFolder::new();
    let output =
        place.bywash(&["run", "--stats", "--", "sh", "-c", "cut -d' ' -f5 /proc/self/stat"]).output();
    // SAFETY: asks only.
    let own_group = unsafe { libc::getpgrp() };
    assert_eq!(stdout(&output.unwrap()).trim(), own_group.to_string());
}

#[test]
fn without_stats_bywash_becomes_the_program() {
    let place = TestFolder::new();
    let child = place
        .bywash(&["run", "--", "sh", "-c", "echo $$"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    assert_eq!(stdout(&child.wait_with_output().unwrap()).trim(), pid);
}

#[test]
fn what_was_preloaded_before_stays_behind_the_library() {
    let place = TestFolder::new();
    let output = place
        .bywash(&["run", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .env("LD_PRELOAD", "libm.so.6")
        .output()
        .unwrap();
    let library = crate::place::bywash().with_file_name("libbywash_shim.so");
    assert_eq!(stdout(&output), format!("{}:libm.so.6\n", library.display()));
}

#[test]
fn flags_become_the_librarys_variables() {
    let place = TestFolder::new();
    let flags = ["--only", "/data", "--only", "rel", "--except", "/data/x", "--threshold", "64K"];
    let flags = [&flags[..], &["--positions", "user", "--off"]].concat();
    let output = place.sh(&flags, "env | grep ^BYWASH_ | sort");
    let here = place.path().canonicalize().unwrap();
    assert_eq!(
        stdout(&output),
        format!(
            "BYWASH_EXCEPT=/data/x\nBYWASH_OFF=1\nBYWASH_ONLY=/data:{}/rel\nBYWASH_POSITIONS=user\n\
             BYWASH_THRESHOLD=65536\n",
            here.display()
        )
    );
}

#[test]
fn what_no_flag_sets_is_left_as_the_caller_set_it() {
    let place = TestFolder::new();
    let output = place
        .bywash(&["run", "--threshold", "1", "--", "sh", "-c", "env | grep ^BYWASH_ | sort"])
        .env("BYWASH_RESIDENT", "5")
        .env("BYWASH_THRESHOLD", "7")
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "BYWASH_RESIDENT=5\nBYWASH_THRESHOLD=1\n");
}
