//! Records real processes: what they called is in the recording, whatever ends them.

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_session::recording::{Function, RecordedRun, Recording, VARIABLE};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::{Command, Output};

/// Compiles the program of `recorder/program.c`, and runs one of its cases under the recorder.
fn recorded(case: &str) -> (Output, RecordedRun) {
    let library = bywash_preloaded::recorder();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorder/program.c");
    let built =
        Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let recording = Recording::create(64).unwrap();
    recording.set_clock(1 << 32, 1 << 20);
    let output = Command::new(&program)
        .arg(case)
        .current_dir(folder.path())
        .env("LD_PRELOAD", library)
        .env(VARIABLE, OsString::from_vec(recording.path().into_bytes()))
        .output()
        .unwrap();
    (output, recording.read())
}

fn functions(run: &RecordedRun) -> Vec<Function> {
    run.calls.iter().map(|call| call.function).collect()
}

#[test]
fn calls_have_their_files_offsets_and_lengths() {
    let (output, run) = recorded("file");
    assert!(output.status.success(), "{output:?}");
    use Function::*;
    assert_eq!(functions(&run), [Start, Open, Write, WriteAt, Seek, Read, ReadAt, Read, Sync, Close, Exit]);
    let of = |index: usize| (run.calls[index].offset, run.calls[index].length);
    assert_eq!([of(2), of(3), of(5), of(6)], [(None, 100), (Some(100), 50), (None, 150), (Some(20), 30)]);
    assert!(run.calls[7].length == 0 && !run.calls[7].failed, "a read at the end");
    let names: Vec<&str> =
        (2..10).map(|index| run.files[run.calls[index].file as usize].name.as_str()).collect();
    assert!(names.iter().all(|name| name.ends_with("/data")), "{names:?}");
    for pair in run.calls.windows(2) {
        assert!(pair[0].start <= pair[0].end && pair[0].end <= pair[1].start);
    }
}

#[test]
fn a_child_and_its_pipe_are_recorded_apart_from_the_parent() {
    let (output, run) = recorded("child");
    assert!(output.status.success(), "{output:?}");
    let parent = run.calls[0].owner;
    let of = |own: bool| -> Vec<Function> {
        run.calls
            .iter()
            .filter(|call| (call.owner.pid == parent.pid) == own)
            .map(|call| call.function)
            .collect()
    };
    use Function::*;
    assert_eq!(of(true), [Start, Fork, Close, Read, WaitChild, Exit]);
    assert_eq!(of(false), [Close, Write, Exit]);
    let read = run.calls.iter().find(|call| call.function == Read).unwrap();
    let write = run.calls.iter().find(|call| call.function == Write).unwrap();
    assert_eq!(run.files[read.file as usize].inode, run.files[write.file as usize].inode);
    let waited = run.calls.iter().find(|call| call.function == WaitChild).unwrap();
    assert_eq!(waited.length, write.owner.pid);
    assert_eq!(write.owner.parent, parent.pid);
}

#[test]
fn threads_add_to_chunks_of_their_own() {
    let (output, run) = recorded("threads");
    assert!(output.status.success(), "{output:?}");
    let mut threads: Vec<u32> = run.calls.iter().map(|call| call.owner.thread).collect();
    threads.dedup();
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads.len(), 5, "main and four more");
    let reads = run.calls.iter().filter(|call| call.function == Function::ReadAt);
    assert_eq!(reads.count(), 4 * 3000);
    assert_eq!((run.lost, run.nested), (0, 0));
}

#[test]
fn a_killed_program_leaves_the_calls_that_it_made() {
    let (output, run) = recorded("killed");
    assert!(!output.status.success());
    assert_eq!(functions(&run), [Function::Start, Function::Open, Function::Write]);
}

#[test]
fn errors_and_results_are_those_of_the_c_library() {
    // The case checks by itself, and says what differs.
    let (output, run) = recorded("errors");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(run.calls.iter().any(|call| call.failed && call.function == Function::Read));
}
