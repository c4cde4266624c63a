//! Clients of the library, which put loads on the Web server of the papers.

#![allow(clippy::unwrap_used)] // helpers of the tests

mod toolchain;

use std::path::Path;

use bywash_execute::clients::{Body, Clients, Load, LoadError, Mix, Moment, Report, Request, Span};
use bywash_execute::{Execution, FileSystem, Functional, Program, Time};

const PORT: u16 = 8080;
/// Number of files that the server has.
const FILES: usize = 24;
/// Size of a file, in bytes.
const FILE_BYTES: usize = 16 << 10;

/// Returns a file's content.
fn content(number: usize) -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at * 7 + at / 256 + number * 13) as u8).collect()
}

/// Returns the request for a file, with its content as the body that is right.
fn request(number: usize) -> Request {
    Request::get(&format!("/{number}")).body(Body::bytes(content(number)))
}

/// Returns the requests for all files.
fn requests() -> impl Iterator<Item = Request> {
    (0..FILES).map(request)
}

/// Starts the server with a number of threads.
fn start(file: &Path, threads: usize) -> Execution<Functional> {
    let mut files = FileSystem::new(64 << 20);
    for number in 0..FILES {
        files.add_file(&format!("/www/{number}"), &content(number)).unwrap();
    }
    let threads = threads.to_string();
    let program = Program::new(["web", "--root", "/www", "--threads", &threads, "--cache", "1M"]);
    toolchain::load(file, program.files(files), 2)
}

/// Puts a load on the server; returns the report with the number and the hash of all system calls.
fn run(file: &Path, threads: usize, load: Load) -> Result<(Report, (u64, u64)), LoadError> {
    Clients::new(start(file, threads), load)?.run().map(|(report, execution)| (report, execution.calls()))
}

/// Returns the server's executable; `None` without a compiler.
fn server(test: &str) -> Option<(tempfile::TempDir, std::path::PathBuf)> {
    let Some(compiler) = toolchain::compiler() else {
        toolchain::skip(test, "gcc-riscv64-linux-gnu");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = toolchain::compile_program(&compiler, "web", folder.path());
    Some((folder, file))
}

fn microseconds(time: u64) -> Time {
    Time::from_nanoseconds(time * 1000)
}

#[test]
fn closed_loads_obey_littles_law_and_are_the_same_each_time() {
    let Some((_folder, file)) = server("closed_loads_obey_littles_law_and_are_the_same_each_time") else {
        return;
    };
    for (think, keeps) in [(Time::ZERO, true), (Time::ZERO, false), (microseconds(800), true)] {
        let load = |seed| {
            let load = Load::closed(PORT, 6, Mix::uniform(requests())).think(think).seed(seed);
            let load = load.warm_up(Span::Responses(100)).measure(Span::Responses(800));
            if keeps { load } else { load.connection_per_request() }
        };
        let (report, calls) = run(&file, 6, load(1)).unwrap();
        assert_eq!(report.statuses, [(200, 800)].into());
        assert!(report.bytes.abs_diff(800 * FILE_BYTES as u64) <= 6 * FILE_BYTES as u64, "{}", report.bytes);
        assert_eq!(report.output, "listening at port 8080\n");
        // All connections are there before the measurement, or each response has one.
        assert!(if keeps { report.connections == 0 } else { report.connections.abs_diff(800) <= 6 });
        let (first, whole) = (&report.first_byte, &report.whole);
        assert!((1..=100).all(|percent| {
            let share = f64::from(percent) / 100.0;
            first.quantile(share) <= whole.quantile(share)
        }));
        // A request passes the interface twice, and so does the establishment of a connection.
        let least = microseconds(if keeps { 40 } else { 60 });
        assert!(first.quantile(0.0) > least, "{:?}", first.quantile(0.0));
        // Clients = throughput * (response time + think time); six think now and then, at random.
        let seconds = (whole.mean().picoseconds() + think.picoseconds()) as f64 * 1e-12;
        let clients = report.responses_per_second() * seconds;
        let tolerance = if think == Time::ZERO { 0.1 } else { 0.6 };
        assert!((clients - 6.0).abs() < tolerance, "{clients} clients with {think:?}");
        assert!(report.calls >= 800 * 2 && report.instructions > 800 * 100, "{report:?}");
        let again = run(&file, 6, load(1)).unwrap();
        assert_eq!((&report, calls), (&again.0, again.1), "the same seed");
        assert_ne!(report, run(&file, 6, load(2)).unwrap().0, "another seed");
    }
}

#[test]
fn open_loads_arrive_at_their_rate() {
    let Some((_folder, file)) = server("open_loads_arrive_at_their_rate") else { return };
    let load = |burst: f64| {
        let load = Load::open(PORT, 4000.0, Mix::in_order(requests())).burst(burst).connections(8).seed(5);
        load.warm_up(Span::Time(microseconds(50_000))).measure(Span::Time(microseconds(400_000)))
    };
    let report = |burst| {
        let (report, _) = run(&file, 8, load(burst)).unwrap();
        assert_eq!(report.duration, microseconds(400_000));
        // 1600 arrivals are expected, with the deviation of a (batch) Poisson process: sqrt(rate * time * (2b - 1)).
        let deviation = (1600.0 * (2.0 * burst - 1.0)).sqrt();
        let difference = (report.responses() as f64 - 1600.0).abs();
        assert!(difference < 3.0 * deviation, "{} responses", report.responses());
        assert_eq!(report, run(&file, 8, load(burst)).unwrap().0, "the same seed");
        report
    };
    let (single, burst) = (report(1.0), report(8.0));
    let tail = |report: &Report| report.whole.quantile(0.95);
    assert!(tail(&burst) > tail(&single), "bursts wait: {:?} and {:?}", tail(&burst), tail(&single));
}

#[test]
fn requests_come_once_and_the_execution_goes_on() {
    let Some((_folder, file)) = server("requests_come_once_and_the_execution_goes_on") else { return };
    let load = Load::closed(PORT, 5, Mix::once(requests()));
    let mut moments = Vec::new();
    let clients = Clients::new(start(&file, 5), load).unwrap();
    let (report, execution) =
        clients.run_observed(|moment, execution| moments.push((moment, execution.time()))).unwrap();
    assert_eq!((report.responses(), report.in_flight, report.connections), (24, 0, 5));
    assert_eq!(report.bytes, (FILES * FILE_BYTES) as u64);
    assert_eq!(moments.len(), 2);
    assert_eq!(moments[1].1.since(moments[0].1), report.duration);
    // The same program serves another load, whose files are all cached.
    let wanted = "responses 48\nhits 24\nmisses 24\nerrors 0\ncached bytes 393216\n";
    let (report, execution) =
        Clients::new(execution, Load::closed(PORT, 1, Mix::once(requests()))).unwrap().run().unwrap();
    assert_eq!(report.responses(), 24);
    let status = Request::get("/server-status").body(Body::bytes(wanted.as_bytes()));
    Clients::new(execution, Load::closed(PORT, 1, Mix::once([status]))).unwrap().run().unwrap();
}

#[test]
fn pauses_do_not_change_a_run() {
    let Some((_folder, file)) = server("pauses_do_not_change_a_run") else { return };
    let load = || Load::closed(PORT, 5, Mix::uniform(requests())).measure(Span::Responses(200)).seed(3);
    let (whole, execution) = Clients::new(start(&file, 5), load()).unwrap().run().unwrap();
    let mut clients = Clients::new(start(&file, 5), load()).unwrap();
    let (mut moments, mut steps) = (Vec::new(), 0);
    let mut observe = |moment, _: &mut Execution<Functional>| moments.push(moment);
    while !clients.run_for(Time::MAX, 3000, &mut observe).unwrap() {
        steps += 1;
    }
    assert!(steps > 50 && clients.completed() >= 200, "{steps}");
    let (report, stepped) = clients.finish(&mut observe);
    assert_eq!((report, stepped.calls()), (whole, execution.calls()));
    assert_eq!(moments, [Moment::Begin, Moment::End]);
}

#[test]
fn errors_name_the_request_and_what_came() {
    let Some((folder, file)) = server("errors_name_the_request_and_what_came") else { return };
    let once = |request: Request| Load::closed(PORT, 1, Mix::once([Request::get("/0"), request]));
    let short = microseconds(5000);
    for (load, part) in [
        (
            once(Request::get("/missing")),
            "request 2, \"GET /missing\" of client 0 went wrong: its response has the status 404 instead of 200",
        ),
        (once(Request::get("/1").body(Body::Length(5))), "has a body of 16384 bytes instead of 5"),
        (
            once(request(1).body(Body::bytes(content(2)))),
            "byte 0 of its response's body is 0x0d instead of 0x1a",
        ),
        (
            once(Request::raw("half", *b"GET / HTTP/1.1\r\n", Body::Any)).timeout(short),
            "nothing was received for 5 ms of simulated time with 1 requests in flight, of which the oldest is request 2, \"half\" of client 0",
        ),
        (once(Request::raw("raw", *b"GET /\r\n\r\n", Body::Length(3))), "bytes follow its response"),
        (
            Load::closed(81, 1, Mix::once([request(0)])).timeout(short),
            "nothing listens at port 81 after 5 ms",
        ),
        (Load::closed(PORT, 5000, Mix::uniform([request(0)])), "too many connections wait to be accepted"),
        (
            Load::open(PORT, 1e9, Mix::uniform([request(0)])).connections(1),
            "65536 requests wait for a connection",
        ),
        (Load::closed(PORT, 0, Mix::once([request(0)])), "it has no clients"),
        (Load::open(PORT, 0.0, Mix::once([request(0)])), "its rate is not a positive number"),
        (Load::open(PORT, 1.0, Mix::once([request(0)])).burst(0.5), "its mean burst is less than 1"),
        (
            Load::closed(PORT, 1, Mix::once([request(0)])).timeout(Time::MAX),
            "its timeout is longer than an hour",
        ),
        (Load::closed(PORT, 1, Mix::once([])), "the mix has no requests"),
    ] {
        let error = run(&file, 2, load).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    // A program that does not serve: its output tells why.
    let program = Program::new(["web", "--root", "/nowhere"]);
    let load = Load::closed(PORT, 1, Mix::once([request(0)]));
    let error = Clients::new(toolchain::load(&file, program, 1), load).unwrap().run().map(drop).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("the program ended (Exited(1)) with 0 requests") && text.contains("/nowhere: No such"),
        "{text}"
    );
    drop(folder);
}
