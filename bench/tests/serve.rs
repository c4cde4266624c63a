//! Our device server and every peer of it, with clients that are processes. This program is also those processes and the
//! server, so it has no harness.
//!
//! A peer that this machine lacks has to name its absence; all others have to carry out what is submitted.

use bywash_bench::engine::Rounds;
use bywash_bench::error::Error;
use bywash_bench::interrupt;
use bywash_bench::serve;
use bywash_bench::serve::bound::Bound;
use bywash_bench::serve::client::{self, Target};
use bywash_bench::serve::contest::{Contender, Home, Setup};
use bywash_bench::serve::medium::Medium;
use bywash_bench::serve::ours::Path as OurPath;
use bywash_bench::serve::talk::Job;
use bywash_bench::serve::workload::{Direction, Order, Until, Workload};
use bywash_bench::workspace::Workspace;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BENCH: &str = "run-for-long";
const BYTES: u64 = 4 << 20;
const LONG: Duration = Duration::from_secs(20);
/// Peers; over the loop device, a server would only be slower than over the memory below it.
const PEERS: [Contender; 8] = [
    Contender::Calls(Medium::Tmpfs),
    Contender::Uring(Medium::Tmpfs),
    Contender::Daemon(Medium::Tmpfs),
    Contender::Calls(Medium::LoopExt4),
    Contender::Uring(Medium::LoopExt4),
    Contender::Calls(Medium::Disk),
    Contender::Uring(Medium::Disk),
    Contender::Daemon(Medium::Disk),
];
const OURS: [Contender; 8] = [
    Contender::Ours(Home::Fast, OurPath::MappedCalls),
    Contender::Ours(Home::Fast, OurPath::MappedQueue),
    Contender::Ours(Home::Fast, OurPath::ChannelCalls),
    Contender::Ours(Home::Fast, OurPath::Channel),
    Contender::Ours(Home::Fast, OurPath::ChannelCopied),
    Contender::Ours(Home::Slow, OurPath::Channel),
    Contender::Ours(Home::Disk, OurPath::Channel),
    Contender::Export,
];
const BOUNDS: [Contender; 6] = [
    Contender::Bound(Bound::Copy { past_caches: false, on_one_core: false }),
    Contender::Bound(Bound::Copy { past_caches: true, on_one_core: false }),
    Contender::Bound(Bound::Copy { past_caches: false, on_one_core: true }),
    Contender::Bound(Bound::Copy { past_caches: true, on_one_core: true }),
    Contender::Bound(Bound::HandOver { is_staged: false }),
    Contender::Bound(Bound::HandOver { is_staged: true }),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [BENCH, folder] => return run_for_long(Path::new(folder)),
        ["bench", "peer", "serve", job] => return serve::peer(job).expect("the bench hears its processes"),
        _ => {}
    }
    every_side_carries_out_as_many_requests_as_submitted();
    a_failure_of_a_client_is_reported();
    clients_of_a_killed_bench_end();
    nothing_is_left_of_an_interrupted_bench_and_of_a_killed_one();
    println!("sides of a device server: all as they should be");
}

fn workload(block: usize, depth: usize, until: Until) -> Workload {
    let order = Order::Random(1);
    Workload { direction: Direction::Write, order, block, medium_bytes: BYTES, depth, batch: 1, until }
}

fn every_side_carries_out_as_many_requests_as_submitted() {
    let folder = tempfile::tempdir().expect("a folder");
    let workspace = Workspace::create(Some(folder.path())).expect("a workspace");
    let setup = Setup::open(workspace.run(), true, 1).expect("file systems and servers");
    assert_eq!(setup.usual.own_path("fast").expect("a volume"), "mapped");
    let alone = [&PEERS[..], &OURS, &BOUNDS].concat();
    for direction in [Direction::Write, Direction::Read] {
        for (block, depth) in [(512, 1), (4096, 8), (64 << 10, 3)] {
            check(&setup, &alone, &Workload { direction, ..workload(block, depth, Until::Requests(200)) }, 1);
        }
    }
    let several = [&PEERS[..], &[Contender::Ours(Home::Shared, OurPath::Channel)]].concat();
    check(&setup, &several, &workload(4096, 4, Until::Requests(200)), 3);
    let (server, run) = (setup.usual.id(), workspace.run().to_path_buf());
    drop((setup, workspace));
    let ended = || !Path::new(&format!("/proc/{server}")).exists();
    assert!(within(Duration::from_secs(5), ended), "the server still runs");
    assert!(!run.exists() && !mounts().contains(run.to_str().expect("UTF-8")), "{} is left", run.display());
}

fn check(setup: &Setup, sides: &[Contender], workload: &Workload, clients: usize) {
    let runs = setup.hold(sides, workload, clients, Rounds::new(1)).expect("no interruption");
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
        assert_eq!(figures.latency.count(), if workload.depth == 1 { wanted } else { 0 }, "{}", run.name);
        assert_eq!(figures.rates.len(), clients, "{}", run.name);
        assert!(figures.seconds > 0.0 && figures.client_seconds > 0.0, "{}: {figures:?}", run.name);
        let is_served = side.is_ours() || matches!(side, Contender::Daemon(_));
        assert_eq!(figures.used.server_seconds.is_some(), is_served, "{}", run.name);
    }
}

fn a_failure_of_a_client_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("short");
    fs::write(&path, vec![0; 4096]).expect("a file");
    let reads = Workload { direction: Direction::Read, ..workload(4096, 1, Until::Requests(100)) };
    let run = |target: Target| client::run(&[target], &reads, None, &[]).expect_err("a failure").to_string();
    let error = run(Target::Calls { path, is_direct: false });
    assert!(error.contains("a request of 4096 bytes moved 0"), "{error}");
    let error = run(Target::Uring { path: folder.path().join("none"), is_direct: false });
    assert!(error.contains("none"), "{error}");
}

/// Runs a client that becomes ready and then sees the end of its standard input.
fn clients_of_a_killed_bench_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("whole");
    fs::write(&path, vec![0; BYTES as usize]).expect("a file");
    let job = Job::Client(client::Job {
        target: Target::Calls { path, is_direct: false },
        workload: workload(4096, 1, Until::Time(Duration::from_secs(600))),
        cores: Vec::new(),
    });
    let job = serde_json::to_string(&job).expect("a job");
    let mut client = Command::new(std::env::current_exe().expect("this program"));
    let output =
        client.args(["bench", "peer", "serve", &job]).stdin(Stdio::null()).output().expect("a client");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.starts_with("\"Ready\"\n") && text.contains("interrupted"), "{text}");
}

/// Runs a bench until it is told to end.
fn run_for_long(folder: &Path) {
    interrupt::listen();
    let workspace = Workspace::create(Some(folder)).expect("a workspace");
    let error = Setup::open(workspace.run(), true, 1)
        .and_then(|setup| {
            Contender::Daemon(Medium::Disk).run(&setup, &workload(4096, 4, Until::Time(LONG)), 2)
        })
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
        assert!(has_ended(&mut bench), "{signal:?} does not end it");
        // What a killed bench left is removed by the next one.
        let next = Workspace::create(Some(folder.path())).expect("a workspace");
        assert!(!run.exists(), "{} is still there after {signal:?}", run.display());
        drop(next);
        let mounts = mounts();
        assert!(!mounts.contains(folder.path().to_str().expect("UTF-8")), "{signal:?}: {mounts}");
        let no_server = || servers_in(folder.path()).is_empty();
        assert!(within(Duration::from_secs(5), no_server), "{signal:?}: {:?}", servers_in(folder.path()));
    }
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mounts").expect("mounts")
}

fn has_ended(bench: &mut Child) -> bool {
    within(LONG / 2, || bench.try_wait().expect("a child").is_some())
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
fn servers_in(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().expect("UTF-8");
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(folder)).collect()
}
