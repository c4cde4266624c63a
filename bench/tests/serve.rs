//! Our device server and every peer of it, by clients that are processes: this program is also those and the server, so
//! it has no harness.
//!
//! A peer that cannot be had here has to say so by an absence; all others have to do what they are asked for.

use bywash_bench::error::Error;
use bywash_bench::interrupt;
use bywash_bench::row::Row;
use bywash_bench::serve;
use bywash_bench::serve::bound::Bound;
use bywash_bench::serve::client::{self, CLIENT, Target};
use bywash_bench::serve::contest::{self, Contender, Home, House};
use bywash_bench::serve::goals;
use bywash_bench::serve::medium::{Media, Medium};
use bywash_bench::serve::ours::Way as OurWay;
use bywash_bench::serve::peer::{PEERS, Peer, Stage, Way};
use bywash_bench::serve::sides::{self, Metric, Side};
use bywash_bench::serve::talk::Program;
use bywash_bench::serve::workload::{Direction, Order, Until, Workload};
use bywash_bench::workspace::Workspace;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BENCH: &str = "bench";
const BYTES: u64 = 4 << 20;
/// Every bound; what they have moved is looked at as with everybody else.
const BOUNDS: [Bound; 6] = [
    Bound::Copy { past_caches: false, on_one_core: false },
    Bound::Copy { past_caches: true, on_one_core: false },
    Bound::Copy { past_caches: false, on_one_core: true },
    Bound::Copy { past_caches: true, on_one_core: true },
    Bound::HandOver { is_staged: false },
    Bound::HandOver { is_staged: true },
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, folder] = arguments.as_slice()
        && word == BENCH
    {
        return run_for_long(Path::new(folder));
    }
    if let [word, job] = arguments.as_slice() {
        return serve::peer(word, job).expect("the bench hears its processes");
    }
    let program = program();
    let folder = tempfile::tempdir().expect("a folder");
    every_peer_does_as_many_requests_as_asked_for(&program, &folder);
    every_way_of_ours_does_as_many_requests_as_asked_for(&program, &folder);
    memory_is_held_against_bounds_and_not_against_what_one_machine_had(&program, &folder);
    what_fails_in_a_client_is_told(&program, &folder);
    clients_of_a_killed_bench_end(&program, &folder);
    nothing_is_left_of_an_interrupted_bench_and_of_a_killed_one(&program);
    println!("peers of a device server: all as they should be");
}

fn program() -> Program {
    Program { path: std::env::current_exe().expect("this program"), words: Vec::new() }
}

fn workload(block: usize, depth: usize, until: Until) -> Workload {
    let order = Order::Random(1);
    Workload { direction: Direction::Write, order, block, medium_bytes: BYTES, depth, at_a_time: 1, until }
}

fn every_peer_does_as_many_requests_as_asked_for(program: &Program, folder: &tempfile::TempDir) {
    let workspace = Workspace::create(Some(folder.path())).expect("a workspace");
    let media = Media::make(workspace.run(), &Medium::ALL, 4 * BYTES).expect("no interruption");
    let stage = Stage { media: &media, program, folder: workspace.run() };
    for (block, depth, clients) in [(512, 1, 1), (4096, 8, 1), (4096, 4, 3)] {
        let workload = workload(block, depth, Until::Requests(200));
        let sides = PEERS.iter().map(|peer| {
            let (stage, workload) = (&stage, &workload);
            Side { name: peer.name(), run: Box::new(move || peer.run(stage, workload, clients)) }
        });
        let runs = sides::run(sides.collect(), 1).expect("no interruption");
        for run in &runs {
            let figures = match &run.figures {
                Ok(figures) => &figures[0],
                Err(error) => {
                    assert!(error.is_absence(), "{}: {error}", run.name);
                    println!("{}: not run: {error}", run.name);
                    continue;
                }
            };
            let wanted = 200 * clients as u64;
            assert_eq!((figures.requests, figures.bytes), (wanted, wanted * block as u64), "{}", run.name);
            assert_eq!(figures.latency.count(), if depth == 1 { wanted } else { 0 }, "{}", run.name);
            assert!(figures.seconds > 0.0 && figures.client_seconds > 0.0, "{}: {figures:?}", run.name);
            let is_served = run.name.contains("qemu");
            assert_eq!(figures.used.server_seconds.is_some(), is_served, "{}", run.name);
            // A side against itself: the row has figures, and they are equal.
            let row = sides::row(Row::default(), Metric::Requests, run, run, None);
            assert_eq!((row.ratio, row.runs), (Some(1.0), 1));
        }
    }
    let run = workspace.run().to_path_buf();
    drop((media, workspace));
    assert!(!run.exists(), "{} is still there", run.display());
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(run.to_str().expect("UTF-8")), "{mounts}");
}

fn every_way_of_ours_does_as_many_requests_as_asked_for(program: &Program, folder: &tempfile::TempDir) {
    let workspace = Workspace::create(Some(folder.path())).expect("a workspace");
    let media = Media::make(workspace.run(), &[Medium::Disk], BYTES).expect("no interruption");
    let stage = Stage { media: &media, program, folder: workspace.run() };
    let house = House::open(stage, true, 1).expect("our servers");
    let own_way = house.usual().own_way("fast").expect("a volume");
    assert_eq!(own_way, "mapped");
    let ways = [
        OurWay::MappedCalls,
        OurWay::MappedQueue,
        OurWay::ChannelCalls,
        OurWay::Channel,
        OurWay::ChannelCopied,
    ];
    let mut all: Vec<Contender> = ways.map(|way| Contender::Ours(Home::Fast, way)).into();
    all.extend([Home::Slow, Home::Disk].map(|home| Contender::Ours(home, OurWay::Channel)));
    all.extend(BOUNDS.map(Contender::Bound));
    for direction in [Direction::Write, Direction::Read] {
        for (block, depth) in [(512, 1), (4096, 8), (64 << 10, 3)] {
            let workload = house.workload(direction, block, depth);
            let workload = Workload { until: Until::Requests(200), ..workload };
            let contest = contest::hold(&house, &workload, 1, &all, 1).expect("no interruption");
            for run in contest.runs() {
                let figures = match &run.figures {
                    Ok(figures) => &figures[0],
                    // The folder may be on a tmpfs, which is no disk; and nothing is handed over on one core.
                    Err(error) => {
                        assert!(error.is_absence(), "{}: {error}", run.name);
                        continue;
                    }
                };
                assert_eq!((figures.requests, figures.bytes), (200, 200 * block as u64), "{}", run.name);
                assert_eq!(figures.rates.len(), 1, "{}", run.name);
                let is_bound = run.name.starts_with("bound: ");
                assert_eq!(figures.used.server_seconds.is_none(), is_bound, "{}", run.name);
            }
        }
    }
    let workload = Workload { until: Until::Requests(200), ..house.workload(Direction::Write, 4096, 8) };
    let several =
        Contender::Ours(Home::Shared, OurWay::Channel).run(&house, &workload, 3).expect("three clients");
    assert_eq!((several.requests, several.rates.len()), (600, 3));
    let exported = Contender::Export.run(&house, &workload, 1).expect("an export");
    assert_eq!(exported.requests, 200);
    let server = house.usual().id();
    drop(house);
    let ended = || !Path::new(&format!("/proc/{server}")).exists();
    assert!(within(Duration::from_secs(5), ended), "the server is still there");
}

/// A ratio to pwrite(2) on a tmpfs follows from what a system call costs beside a copy, which differs between makers.
fn memory_is_held_against_bounds_and_not_against_what_one_machine_had(
    program: &Program,
    folder: &tempfile::TempDir,
) {
    let workspace = Workspace::create(Some(folder.path())).expect("a workspace");
    let bytes = contest::medium_bytes(true);
    let media = Media::make(workspace.run(), &[Medium::Tmpfs], bytes).expect("no interruption");
    let house =
        House::open(Stage { media: &media, program, folder: workspace.run() }, true, 1).expect("servers");
    let has_two_cores = std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
    let parts = goals::parts().into_iter().filter(|part| ["serve/tmpfs", "serve/qemu"].contains(&part.bench));
    let rows: Vec<Row> = parts.flat_map(|part| part.rows(&house).expect("no interruption")).collect();
    let ways = rows.iter().map(|row| &row.case).collect::<std::collections::HashSet<_>>();
    for way in ways {
        let of_way = || rows.iter().filter(|row| row.case == *way);
        let bound = of_way().find(|row| row.peer.starts_with("bound: ")).expect("a bound");
        assert!(bound.goal.is_some_and(|goal| goal < 1.0), "{way}: {bound:?}");
        assert!(!has_two_cores || bound.ratio.is_some_and(|ratio| ratio > 0.0), "{way}: {bound:?}");
        let mut others = of_way().filter(|row| !row.peer.starts_with("bound: "));
        assert!(others.all(|row| row.goal.is_none_or(|goal| goal <= 1.0)), "{way}");
    }
    assert!(rows.len() > 20, "{}", rows.len());
}

fn what_fails_in_a_client_is_told(program: &Program, folder: &tempfile::TempDir) {
    let path = folder.path().join("short");
    fs::write(&path, vec![0; 4096]).expect("a file");
    let reads = Workload { direction: Direction::Read, ..workload(4096, 1, Until::Requests(100)) };
    let run = |target: Target| client::run(program, &[target], &reads, None, &[]).expect_err("a failure");
    let error = run(Target::Calls { path, is_direct: false });
    assert!(error.to_string().contains("a request of 4096 bytes moved 0"), "{error}");
    let error = run(Target::Uring { path: folder.path().join("none"), is_direct: false });
    assert!(error.to_string().contains("none"), "{error}");
    let away = Program { path: folder.path().join("no-such-program"), ..program.clone() };
    let target = Target::Calls { path: folder.path().join("short"), is_direct: false };
    let error = client::run(&away, &[target], &reads, None, &[]).expect_err("no program");
    assert!(matches!(error, Error::Io { .. }) && error.to_string().contains("no-such-program"), "{error}");
}

/// A client that is ready and hears nothing more than the end of its standard input.
fn clients_of_a_killed_bench_end(program: &Program, folder: &tempfile::TempDir) {
    let job = client::Job {
        target: Target::Calls { path: folder.path().join("whole"), is_direct: false },
        workload: workload(4096, 1, Until::Time(Duration::from_secs(600))),
        cores: Vec::new(),
    };
    fs::write(folder.path().join("whole"), vec![0; BYTES as usize]).expect("a file");
    let output = Command::new(&program.path)
        .arg(CLIENT)
        .arg(serde_json::to_string(&job).expect("a job"))
        .stdin(Stdio::null())
        .output()
        .expect("a client");
    let told = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(told.starts_with("\"Ready\"\n") && told.contains("interrupted"), "{told}");
}

/// A bench that goes on until it is told to end.
fn run_for_long(folder: &Path) {
    interrupt::listen();
    let workspace = Workspace::create(Some(folder)).expect("a workspace");
    let media = Media::make(workspace.run(), &Medium::ALL, 2 * BYTES).expect("no interruption");
    let stage = Stage { media: &media, program: &program(), folder: workspace.run() };
    let peer = Peer { medium: Medium::Disk, way: Way::VhostUser };
    let error = peer.run(&stage, &workload(4096, 4, Until::Time(LONG)), 2).expect_err("an end");
    assert!(matches!(error, Error::Interrupted) || error.is_absence(), "{error}");
}

const LONG: Duration = Duration::from_secs(20);

fn nothing_is_left_of_an_interrupted_bench_and_of_a_killed_one(program: &Program) {
    for signal in [Signal::TERM, Signal::KILL] {
        let folder = tempfile::tempdir().expect("a folder");
        let bench =
            Command::new(&program.path).arg(BENCH).arg(folder.path()).stderr(Stdio::inherit()).spawn();
        let mut bench = bench.expect("a bench");
        let run = folder.path().join(format!("bywash-bench/run-{}", bench.id()));
        let is_going = || run.join("0.sock").exists() && run.join("1.sock").exists();
        if !within(Duration::from_secs(10), || is_going() || bench.try_wait().expect("a child").is_some()) {
            panic!("the bench does not begin");
        }
        // Into the run, or while it begins; both have to do.
        std::thread::sleep(Duration::from_millis(if signal == Signal::TERM { 200 } else { 20 }));
        let _ = kill_process(Pid::from_child(&bench), signal);
        assert!(has_ended(&mut bench), "{signal:?} does not end it");
        // What a killed one left is taken away by the next one.
        let next = Workspace::create(Some(folder.path())).expect("a workspace");
        assert!(!run.exists(), "{} is still there after {signal:?}", run.display());
        drop(next);
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        assert!(!mounts.contains(folder.path().to_str().expect("UTF-8")), "{signal:?}: {mounts}");
        let no_server = || servers_in(folder.path()).is_empty();
        assert!(within(Duration::from_secs(5), no_server), "{signal:?}: {:?}", servers_in(folder.path()));
    }
}

fn has_ended(bench: &mut Child) -> bool {
    within(LONG / 2, || bench.try_wait().expect("a child").is_some())
}

fn within(limit: Duration, is_so: impl FnMut() -> bool) -> bool {
    let (begin, mut is_so) = (Instant::now(), is_so);
    while begin.elapsed() < limit {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Processes whose command line names something in `folder`, but for this one.
fn servers_in(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().expect("UTF-8");
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(folder)).collect()
}
