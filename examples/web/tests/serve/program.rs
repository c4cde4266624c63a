//! The program: its options, its signals, what it says.

use crate::{Client, settle};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bywash-web");

#[test]
fn counts_are_told_on_request_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "some text").unwrap();
    settle();
    let mut command = Command::new(PROGRAM);
    command.arg(folder.path()).args(["--listen", "127.0.0.1:0", "--cache", "2M"]).stderr(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let pid = Pid::from_child(&program);
    let mut lines = BufReader::new(program.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let address = first.rsplit_once("http://").unwrap().1.parse().unwrap();
    let mut client = Client::connect(address);
    for _ in 0..3 {
        assert_eq!(client.get("/a", "").contents, b"some text");
    }
    let counts =
        "bywash-web: connections 1, refused 0, requests 3, hits 2, misses 1, bytes 27, errors 0, broken 0";
    kill_process(pid, Signal::USR1).unwrap();
    assert_eq!(lines.next().unwrap(), format!("{counts}, memory 0 of 2097152"));
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(lines.next().unwrap(), counts);
    assert!(program.wait().unwrap().success());
}

#[test]
fn an_error_says_what_was_wrong() {
    let output = Command::new(PROGRAM).arg("/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, "bywash-web: /nowhere: No such file or directory (os error 2)\n");
    let output = Command::new(PROGRAM).args(["/", "--part", "many"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
