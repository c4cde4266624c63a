//! Kernels of shared libraries: the example and a kernel with a state, compiled and run; and all that can be wrong with one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_accelerator::{Cpu, Device, Error, Kernel, Output, Session, SessionOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Variable that tells this program to be the process that a kernel ends.
const VICTIM: &str = "BYWASH_TEST_OVERRUN";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a source, with macros, to a library in `folder`.
fn compile(folder: &TempDir, source: &str, macros: &[&str]) -> PathBuf {
    let library = folder.path().join(format!("kernel{}.so", macros.concat().replace('=', "")));
    let mut command = Command::new("cc");
    command
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I"])
        .arg(root().join("include"));
    command.args(macros.iter().map(|definition| format!("-D{definition}")));
    let status = command.arg("-o").arg(&library).arg(root().join(source)).status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
    library
}

fn options() -> SessionOptions {
    SessionOptions::default().block_bytes(1000).threads(2)
}

/// Sends input through the kernel of a library.
fn through(library: &Path, input: &[u8]) -> Result<Vec<u8>, Error> {
    let mut session = Cpu.session(&Kernel::Library(library.into()), &options())?;
    let (mut rest, mut output, mut has_ended) = (input, Vec::new(), false);
    loop {
        if let Some(buffer) = session.input.buffer(Duration::ZERO)?.filter(|_| !rest.is_empty()) {
            let bytes = buffer.len().min(rest.len());
            buffer[..bytes].copy_from_slice(&rest[..bytes]);
            rest = &rest[bytes..];
            session.input.submit(bytes)?;
            continue;
        }
        if rest.is_empty() && !has_ended {
            session.input.finish()?;
            has_ended = true;
        }
        match session.output.next(Duration::from_secs(20))? {
            Output::Block => output.extend_from_slice(session.output.block()),
            Output::None => panic!("no output within 20 s"),
            Output::End => return Ok(output),
        }
    }
}

fn message(result: Result<Vec<u8>, Error>, library: &Path) -> String {
    match result {
        Err(Error::Kernel { path, message }) => {
            assert_eq!(path, library);
            message
        }
        result => panic!("{}: {result:?}", library.display()),
    }
}

#[test]
fn the_example_scales_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let library = compile(&folder, "examples/scale.c", &[]);
    let bytes = |scale: f32| {
        (0..100_001).flat_map(|number| (number as f32 * scale).to_le_bytes()).collect::<Vec<u8>>()
    };
    assert!(through(&library, &bytes(1.0)).unwrap() == bytes(2.5));
    // Its unit is a number.
    let error = through(&library, &[0; 4003]).unwrap_err();
    assert!(matches!(&error, Error::Input(message) if message.contains("3 bytes are left over")), "{error}");
}

#[test]
fn a_kernel_with_a_state_gets_blocks_in_order_and_has_the_last_word() {
    let folder = tempfile::tempdir().unwrap();
    let library = compile(&folder, "tests/library/running.c", &[]);
    for length in [0, 1, 999, 1000, 123_456] {
        let input: Vec<u8> = (0..length).map(|number| (number * 7 % 256) as u8).collect();
        let sums = input.iter().scan(0, |sum, byte| {
            *sum += u64::from(*byte);
            Some(*sum)
        });
        let expected: Vec<u8> = sums.chain([length]).flat_map(u64::to_le_bytes).collect();
        assert!(through(&library, &input).unwrap() == expected, "{length} bytes");
    }
    // A session that is dropped frees the state, too.
    let mut session = Cpu.session(&Kernel::Library(library), &options()).unwrap();
    session.input.submit(1000).unwrap();
}

#[test]
fn what_is_no_kernel_is_refused_with_the_loaders_message() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.so");
    assert!(message(through(&missing, &[]), &missing).contains("No such file"));
    let text = folder.path().join("text.so");
    std::fs::write(&text, "no library, but text\n".repeat(500)).unwrap();
    let told = message(through(&text, &[]), &text);
    assert!(told.contains("invalid ELF header"), "{told}");
    for (definition, words) in [
        ("NAME=another", "undefined symbol: bywash_kernel"),
        ("VERSION=7", "has version 7, this program runs version 1"),
        ("FLAGS=6", "flags are 0x6"),
        ("INPUT_BYTES=0", "input_bytes is 0, but can be 1 to 16777216"),
        ("OUTPUT_BYTES=99999999", "output_bytes is 99999999, but can be 1 to 16777216"),
        ("END=0", "the function end is null"),
        ("BEGIN_FAILS", "begin failed with the error -12"),
    ] {
        let library = compile(&folder, "tests/library/running.c", &[definition]);
        let told = message(through(&library, &[]), &library);
        assert!(told.contains(words), "{definition}: {told}");
    }
}

#[test]
fn a_kernel_that_fails_ends_the_session() {
    let folder = tempfile::tempdir().unwrap();
    for (definition, words) in [
        ("RUN_FAILS=3000", "run failed with the error -5"),
        ("RUN_BOASTS", "run returned 8001 bytes of output, but may write 8000"),
        ("OUTPUT_BYTES=7", "run returned 8000 bytes of output, but may write 7000"),
    ] {
        let library = compile(&folder, "tests/library/running.c", &[definition]);
        let told = message(through(&library, &[1; 10_000]), &library);
        assert!(told.contains(words), "{definition}: {told}");
    }
    // Blocks before the one that failed are output, and the error stays.
    let library = compile(&folder, "tests/library/running.c", &["RUN_FAILS=1000"]);
    let mut session = Cpu.session(&Kernel::Library(library), &options()).unwrap();
    for _ in 0..3 {
        session.input.submit(1000).unwrap();
    }
    let take = |session: &mut Session| match session.output.next(Duration::from_secs(20)) {
        Ok(Output::Block) => Ok(session.output.block().len()),
        Ok(output) => panic!("{output:?}"),
        Err(error) => Err(error.to_string()),
    };
    assert_eq!(take(&mut session), Ok(8000));
    let error = take(&mut session).unwrap_err();
    assert!(error.contains("error -5"), "{error}");
    assert_eq!(take(&mut session), Err(error));
    assert!(session.input.buffer(Duration::ZERO).is_err() && session.input.finish().is_err());
}

#[test]
fn a_kernel_that_writes_beyond_its_output_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    const SIGSEGV: i32 = 11;

    if let Some(library) = std::env::var_os(VICTIM) {
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Core, none).unwrap();
        let _ = through(Path::new(&library), &[1; 4096]);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let library = compile(&folder, "tests/library/running.c", &["RUN_OVERRUNS"]);
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "a_kernel_that_writes_beyond_its_output_ends_the_process";
    let output = command.args(["--exact", name]).env(VICTIM, &library).output().unwrap();
    assert_eq!(output.status.signal(), Some(SIGSEGV), "{output:?}");
}
