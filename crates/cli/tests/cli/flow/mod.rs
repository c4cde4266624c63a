//! `bywash flow` as it is used.
//!
//! - [`files`]: between files and devices, by every mover
//! - [`streams`]: pipes, sockets, memory
//! - [`stages`]: what is done on the way
//! - [`display`]: frames in windows
//! - [`alsa`]: sound devices
//! - [`live`]: streams in real time
//! - [`rtp`]: streams by RTP, to and from other programs and hosts
//! - [`faults`]: every kind of end and every fault, as the table in the docs has them
//! - [`failures`]: everything that can go wrong
//! - [`peers`]: nc, socat, curl, nginx at the other end
//! - [`serving`]: many connections at a time
//! - [`whole`]: what is not whole is told from what is
//! - [`hosts`]: datagrams and frames from host to host

mod accel;
mod alsa;
mod display;
mod failures;
mod faults;
mod files;
mod hosts;
mod live;
mod peers;
mod rtp;
mod serving;
mod stages;
mod streams;
mod whole;

use crate::place::{TestFolder, stderr};
use bywash_support::disks::FileSystem;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// `bywash flow` with these words; it has not failed.
fn flows(place: &TestFolder, words: &[&str]) -> Output {
    let output = flow(place, words);
    assert!(output.status.success(), "bywash flow {}: {}", words.join(" "), stderr(&output));
    output
}

fn flow(place: &TestFolder, words: &[&str]) -> Output {
    place.bywash(&["flow"]).args(words).output().unwrap()
}

/// `bywash flow` with these words and no more than 32 MiB of memory to write to (RLIMIT_DATA); it has not
/// failed.
fn flows_in_32_mib(place: &TestFolder, words: &[&str]) {
    let bywash = place.bywash(&["flow"]);
    let mut limited = place.command("sh");
    limited.args(["-c", "ulimit -d 32768 && exec \"$@\"", "sh"]).arg(bywash.get_program());
    run(limited.args(bywash.get_args()).args(words));
}

/// A program that goes on beside the test, and not longer.
struct BackgroundChild(Child);

impl BackgroundChild {
    fn start(command: &mut Command) -> BackgroundChild {
        BackgroundChild(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Starts `bywash flow` with these arguments.
    fn flow(place: &TestFolder, words: &[&str]) -> BackgroundChild {
        BackgroundChild::start(place.bywash(&["flow"]).args(words))
    }

    /// Waits for the program to end, and returns its exit status and output.
    fn finish(mut self) -> Output {
        let end = Instant::now() + LIMIT;
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        std::io::Read::read_to_end(&mut self.0.stdout.take().unwrap(), &mut stdout).unwrap();
        std::io::Read::read_to_end(&mut self.0.stderr.take().unwrap(), &mut stderr).unwrap();
        Output { status: self.0.wait().unwrap(), stdout, stderr }
    }

    /// It has not failed.
    fn succeeds(self) -> Output {
        let output = self.finish();
        assert!(output.status.success(), "{}", stderr(&output));
        output
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for BackgroundChild {
    fn drop(&mut self) {
        // Mostly it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes that are no pattern, the same ones each time.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// A port that nobody has at this moment.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Waits until somebody listens at a port, without connecting to it.
fn wait_for_port(port: u16) {
    let wanted = format!(":{port:04X} ");
    wait_for("somebody listens", || {
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
            let table = fs::read_to_string(table).unwrap();
            table.lines().any(|line| line.contains(&wanted) && line.contains(" 0A "))
        })
    });
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is() {
        assert!(Instant::now() < end, "{what} does not come true");
        thread::sleep(Duration::from_millis(5));
    }
}

fn connect(port: u16) -> TcpStream {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap()
}

/// Closes a connection without a goodbye.
fn reset(socket: std::net::TcpStream) {
    rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO)).unwrap();
}

/// The names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn assert_same(one: &Path, other: &Path) {
    assert!(
        fs::read(one).unwrap() == fs::read(other).unwrap(),
        "{} and {} differ",
        one.display(),
        other.display()
    );
}

/// A file system of this test's own, with a folder on another one beside it. Needs root.
struct Mounted {
    place: TestFolder,
    files: FileSystem,
}

impl Mounted {
    fn make(kind: &str, bytes: u64) -> Mounted {
        Mounted { files: FileSystem::new(kind, bytes).unwrap(), place: TestFolder::new() }
    }

    fn path(&self) -> String {
        self.files.path().to_str().unwrap().to_owned()
    }
}

/// Runs a command that must not fail; this test needs to be root's.
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {} (this test needs root)", stderr(&output));
    output
}
