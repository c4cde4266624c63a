//! The program: its options, its signals, what it says.

use bywash_example_http::testing::{Client, settle, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bywash-video");

/// Program that is killed when the test fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn counts_are_told_on_request_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "some text").unwrap();
    settle();
    // At this rate a chunk is late after half a minute: none is, however busy the machine may be.
    let options = ["--listen", "127.0.0.1:0", "--calibration", "0", "--memory", "2M", "--rate", "64kbit"];
    let mut command = Command::new(PROGRAM);
    command.arg(folder.path()).args(options);
    let mut program = Ended(command.stderr(Stdio::piped()).spawn().unwrap());
    let pid = Pid::from_child(&program.0);
    let mut lines = BufReader::new(program.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let address = first.rsplit_once("http://").unwrap().1.parse().unwrap();
    let mut client = Client::connect(address);
    for _ in 0..3 {
        assert_eq!(client.get("/a", "").contents, b"some text");
    }
    let counts = "bywash-video: connections 1, refused 0, requests 3, streams 3, no_memory 0, no_disk 0, no_processor 0, \
                  no_network 0, chunks 3, bytes 27, late 0, slow 0, errors 0, broken 0, delay p50 ";
    let state = "streams now 0, 0 kbit/s given out, memory 0 of 2097152, disk unknown, processor unknown";
    wait_for("the end of the last stream", || {
        kill_process(pid, Signal::USR1).unwrap();
        let told = lines.next().unwrap();
        assert!(told.starts_with(counts) && told.contains(", reads by "), "{told}");
        told.contains(state)
    });
    kill_process(pid, Signal::TERM).unwrap();
    let told = lines.next().unwrap();
    assert!(told.starts_with(counts) && told.ends_with(" ms"), "{told}");
    assert!(program.0.wait().unwrap().success());
}

#[test]
fn an_error_says_what_was_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let error = |options: &[&str]| {
        let output = Command::new(PROGRAM).args(options).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(error(&["/nowhere"]), "bywash-video: /nowhere: No such file or directory (os error 2)\n");
    assert_eq!(error(&[folder, "--period", "1ms"]), "bywash-video: --period is 1ms; give it 50ms to 10s\n");
    assert_eq!(
        error(&[folder, "--rates", "/nowhere"]),
        "bywash-video: --rates /nowhere: No such file or directory (os error 2)\n"
    );
    assert!(error(&[folder, "--rate", "fast"]).contains("'fast' is no rate; write it as 8Mbit"));
    assert!(error(&[folder, "--memory", "1K"]).contains("--memory is 1024 bytes; give it 1048576"));
}
