//! Our device server and every peer of it, with clients that are processes. This program is also those processes and the
//! server, so it has no harness.
//!
//! A peer that this machine lacks has to name its absence; all others have to carry out what is submitted.

use bywash_bench::error::Error;
use bywash_bench::interrupt;
use bywash_bench::serve;
use bywash_bench::serve::client;
use bywash_bench::serve::contest::Contender::{self, Bound, Calls, Daemon, Export, Nbd, Ours, Uring};
use bywash_bench::serve::contest::{Home, Setup};
use bywash_bench::serve::medium::Medium;
use bywash_bench::serve::nbd::NbdServer;
use bywash_bench::serve::ours::Path as OurPath;
use bywash_bench::serve::workload::{Direction, Workload};
use bywash_bench::workspace::Workspace;
use bywash_client::{Access, Options, PathChoice, VolumePath};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const BENCH: &str = "run-for-long";
const BYTES: u64 = 4 << 20;
const LONG: Duration = Duration::from_secs(20);
/// Peers; over the loop device, a server would only be slower than over the memory below it.
const PEERS: [Contender; 8] = [
    Calls(Medium::Tmpfs),
    Uring(Medium::Tmpfs),
    Daemon(Medium::Tmpfs),
    Calls(Medium::LoopExt4),
    Uring(Medium::LoopExt4),
    Calls(Medium::Disk),
    Uring(Medium::Disk),
    Daemon(Medium::Disk),
];

/// Servers of NBD clients, which have one client.
const NBD: [Contender; 4] =
    [Nbd(NbdServer::Ours), Nbd(NbdServer::Daemon), Nbd(NbdServer::Nbdkit), Nbd(NbdServer::Bare)];

/// Sides that have one client, but for the peers.
fn ours() -> Vec<Contender> {
    use OurPath::{Channel, ChannelCalls, ChannelCopied, MappedCalls, MappedQueue};
    use serve::bound::Bound::*;
    let paths = [MappedCalls, MappedQueue, ChannelCalls, Channel, ChannelCopied];
    let bounds = [Copy, CopyPastCaches, CopyOnOneCore, CopyPastCachesOnOneCore, HandOver, StagedHandOver];
    let others = [Ours(Home::Slow, Channel), Ours(Home::Disk, Channel), Export];
    paths.map(|path| Ours(Home::Fast, path)).into_iter().chain(others).chain(bounds.map(Bound)).collect()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [BENCH, folder] => return run_for_long(Path::new(folder)),
        ["bench", "peer", "serve", job] => return serve::peer(job).expect("the bench hears its processes"),
        _ => {}
    }
    every_side_carries_out_as_many_requests_as_submitted();
    a_failure_of_a_client_is_reported();
    nothing_is_left_of_an_interrupted_bench_and_of_a_killed_one();
    println!("sides of a device server: all as they should be");
}

/// Random writes, until the time is over or 200 requests are done.
fn workload(block: usize, depth: usize, time: Duration) -> Workload {
    let requests = if time < Duration::MAX { u64::MAX } else { 200 };
    let (direction, seed) = (Direction::Write, Some(1));
    Workload { direction, seed, block, medium_bytes: BYTES, depth, batch: 1, requests, time }
}

fn every_side_carries_out_as_many_requests_as_submitted() {
    let folder = tempfile::tempdir().expect("a folder");
    let workspace = Workspace::create(Some(folder.path())).expect("a workspace");
    let setup = Setup::open(workspace.run(), true, 1).expect("file systems and servers");
    // Notes call this the library's own choice.
    let options = Options::new().choice(PathChoice::Automatic);
    let client = bywash_client::Client::connect(&setup.usual.socket, options).expect("a server");
    let volume = client.open("fast-0", Access::ReadWrite).expect("a volume");
    assert!(matches!(volume.path(), VolumePath::Mapped));
    let alone = [&PEERS[..], &NBD, &ours()].concat();
    for direction in [Direction::Write, Direction::Read] {
        for (block, depth) in [(512, 1), (4096, 8), (64 << 10, 3)] {
            check(&setup, &alone, &Workload { direction, ..workload(block, depth, Duration::MAX) }, 1);
        }
    }
    let several = [&PEERS[..], &[Ours(Home::Shared, OurPath::Channel)]].concat();
    check(&setup, &several, &workload(4096, 4, Duration::MAX), 3);
    let (server, run) = (setup.usual.id(), workspace.run().to_path_buf());
    drop((volume, client, setup, workspace));
    let ended = || !Path::new(&format!("/proc/{server}")).exists();
    assert!(within(Duration::from_secs(5), ended), "the server still runs");
    assert!(!run.exists() && !mounts().contains(run.to_str().expect("UTF-8")), "{} is left", run.display());
}

fn check(setup: &Setup, sides: &[Contender], workload: &Workload, clients: usize) {
    let runs = setup.hold(sides, workload, clients, true).expect("no interruption");
    for (side, run) in sides.iter().zip(&runs) {
        let figures = match &run.samples {
            Ok(figures) => &figures[0],
            // The folder may be on a tmpfs, which is no disk; and a hand-over takes two cores.
            Err(error) => {
                assert!(error.is_absence(), "{}: {error}", run.name);
                println!("{}: not run: {error}", run.name);
                continue;
            }
        };
        let wanted = 200 * clients as u64;
        let bytes = wanted * workload.block as u64;
        assert_eq!((figures.requests, figures.bytes), (wanted, bytes), "{}", run.name);
        assert_eq!(figures.latency.is_some(), workload.depth == 1, "{}", run.name);
        assert_eq!(figures.rates.len(), clients, "{}", run.name);
        assert!(figures.seconds > 0.0 && figures.client_seconds > 0.0, "{}: {figures:?}", run.name);
        let is_served = side.is_ours() || matches!(side, Daemon(_) | Nbd(_));
        assert_eq!(figures.server_seconds.is_some(), is_served, "{}", run.name);
    }
}

fn a_failure_of_a_client_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let short = folder.path().join("short");
    fs::write(&short, vec![0; 4096]).expect("a file");
    let run = |side: Contender, path: PathBuf| {
        let reads = Workload { direction: Direction::Read, ..workload(4096, 1, Duration::MAX) };
        client::run(side, &[path], &reads, None, &[]).expect_err("a failure").to_string()
    };
    let error = run(Calls(Medium::Tmpfs), short);
    assert!(
        error.contains("is not what was") || error.contains("a request of 4096 bytes moved 0"),
        "{error}"
    );
    let error = run(Uring(Medium::Tmpfs), folder.path().join("none"));
    assert!(error.contains("none"), "{error}");
}

/// Runs a bench until it is told to end.
fn run_for_long(folder: &Path) {
    interrupt::listen();
    let workspace = Workspace::create(Some(folder)).expect("a workspace");
    let error = Setup::open(workspace.run(), true, 1)
        .and_then(|setup| Daemon(Medium::Disk).run(&setup, &workload(4096, 4, LONG), 2))
        .expect_err("an end");
    assert!(matches!(error, Error::Interrupted) || error.is_absence(), "{error}");
}

fn nothing_is_left_of_an_interrupted_bench_and_of_a_killed_one() {
    for signal in [Signal::TERM, Signal::KILL] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut bench = Command::new(std::env::current_exe().expect("this program"));
        let mut bench = bench.arg(BENCH).arg(folder.path()).spawn().expect("a bench");
        let run = folder.path().join(format!("bywash-bench/run-{}", bench.id()));
        let is_going = || run.join("0.sock").exists() && run.join("1.sock").exists();
        if !within(LONG, || is_going() || bench.try_wait().expect("a child").is_some()) {
            panic!("the bench does not begin");
        }
        // Into the run, or while it begins; both have to do.
        std::thread::sleep(Duration::from_millis(if signal == Signal::TERM { 200 } else { 20 }));
        let _ = kill_process(Pid::from_child(&bench), signal);
        let has_ended = within(LONG / 2, || bench.try_wait().expect("a child").is_some());
        assert!(has_ended, "{signal:?} does not end it");
        // What a killed bench left is removed by the next one.
        let next = Workspace::create(Some(folder.path())).expect("a workspace");
        assert!(!run.exists(), "{} is still there after {signal:?}", run.display());
        drop(next);
        let folder = folder.path().to_str().expect("UTF-8");
        assert!(!mounts().contains(folder), "{signal:?}: {}", mounts());
        let no_server = || servers_in(folder).is_empty();
        assert!(within(Duration::from_secs(5), no_server), "{signal:?}: {:?}", servers_in(folder));
    }
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mounts").expect("mounts")
}

fn within(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Command lines of the processes that name something in `folder`.
fn servers_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(folder)).collect()
}
