//! Programs whose output and status must be those that they have under QEMU, on one processor and on several.

#![allow(clippy::unwrap_used)] // helpers of the tests

mod toolchain;

use std::process::Command;

use bywash_execute::{End, FileSystem, Program};

/// Programs, each with the status with which it exits. They get a folder of their own as their argument.
const PROGRAMS: [(&str, u8); 6] =
    [("files", 0), ("memory", 0), ("threads", 0), ("signals", 7), ("waits", 0), ("sockets", 0)];

#[test]
fn programs_do_as_under_qemu() {
    let test = "programs_do_as_under_qemu";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let Some(emulator) = toolchain::emulator() else { return toolchain::skip(test, "qemu-user") };
    let folder = tempfile::tempdir().unwrap();
    for (name, status) in PROGRAMS {
        let file = toolchain::compile(&compiler, name, folder.path());
        let own = tempfile::tempdir().unwrap();
        let expected = Command::new(&emulator).arg(&file).arg(own.path()).output().unwrap();
        assert_eq!(expected.status.code(), Some(status.into()), "{name} under QEMU");
        for processors in [1, 3] {
            let mut files = FileSystem::new(64 << 20);
            files.add_folder("/own").unwrap();
            let run = toolchain::run(&file, Program::new([name, "/own"]).files(files), processors);
            assert_eq!(
                run.output,
                String::from_utf8_lossy(&expected.stdout),
                "{name}, {processors} processors"
            );
            assert_eq!(run.end, End::Exited(status), "{name}, {processors} processors: {}", run.errors);
        }
    }
}

#[test]
fn a_run_is_the_same_each_time() {
    let test = "a_run_is_the_same_each_time";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    for name in ["threads", "sockets", "waits"] {
        let file = toolchain::compile(&compiler, name, folder.path());
        let run = |seed| toolchain::run(&file, Program::new([name]).seed(seed), 4);
        let (first, second, third) = (run(1), run(1), run(2));
        let facts = |run: &toolchain::Run| (run.retired, run.calls, run.time, run.output.clone());
        assert_eq!(facts(&first), facts(&second), "{name}");
        assert_eq!(first.output, third.output, "{name} with another seed");
        assert!(first.calls.0 > 50, "{name} makes calls");
    }
    let file = toolchain::compile(&compiler, "random", folder.path());
    let run = |seed| toolchain::run(&file, Program::new(["random"]).seed(seed), 1).output;
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6), "random numbers come from the seed");
}

#[test]
fn an_end_by_a_signal_names_the_function() {
    let test = "an_end_by_a_signal_names_the_function";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let file = toolchain::compile(&compiler, "signals", folder.path());
    let end = |argument| toolchain::run(&file, Program::new(["signals", argument]), 1).end;
    let End::Killed { signal: 11, message } = end("fault") else { panic!("no SIGSEGV: {:?}", end("fault")) };
    assert!(message.contains("store at 0x10") && message.contains("in main at 0x"), "{message}");
    assert!(matches!(end("abort"), End::Killed { signal: 6, .. }), "{:?}", end("abort"));
}

#[test]
fn calls_that_are_not_served_are_named() {
    let test = "calls_that_are_not_served_are_named";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let file = toolchain::compile(&compiler, "unserved", folder.path());
    for (argument, parts) in [
        ("unknown", ["calls unknown (system call 1234) in", "(called by main)"]),
        ("known", ["calls mount (system call 40) in", "(called by main)"]),
        ("fork", ["calls clone in", "to make a process"]),
        ("execve", ["calls execve in", "to start another program"]),
    ] {
        let error =
            toolchain::try_run(&file, Program::new(["unserved", argument]), 1).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{argument}: {error}");
    }
}

#[test]
fn memory_beyond_the_limit_is_an_error_that_says_so() {
    let test = "memory_beyond_the_limit_is_an_error_that_says_so";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let file = toolchain::compile(&compiler, "memory", folder.path());
    let mut files = FileSystem::new(1 << 20);
    files.add_folder("/own").unwrap();
    let program = Program::new(["memory", "/own"]).files(files).memory_bytes(700 << 10);
    let error = toolchain::try_run(&file, program, 1).unwrap_err().to_string();
    assert!(error.contains("more memory than the limit of 716800 bytes"), "{error}");
}
