//! Programs of the papers in the simulated system: the Web server, the video server and the streams.

#![allow(clippy::unwrap_used)] // helpers of the tests

mod toolchain;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bywash_cpu::memory::Space;
use bywash_cpu::{Blocks, Exit, Hart};
use bywash_execute::clients::{Body, Clients, Load, Mix, Moment, Request, Span};
use bywash_execute::machine::{
    Continuation, Device, Event, Machine, Request as DeviceRequest, Tag, ThreadId, Work,
};
use bywash_execute::{End, Execution, FileSystem, Functional, Latencies, Program, Time, call_name};

const PORT: u16 = 8080;

/// Machine that counts the requests to its disk, and their bytes.
struct Counter {
    inner: Functional,
    requests: u64,
    bytes: u64,
}

impl Counter {
    fn new(processors: usize) -> Counter {
        Counter { inner: Functional::new(processors, Latencies::default()), requests: 0, bytes: 0 }
    }
}

impl Machine for Counter {
    fn processors(&self) -> usize {
        self.inner.processors()
    }

    fn now(&self, processor: usize) -> Time {
        self.inner.now(processor)
    }

    fn time(&self) -> Time {
        self.inner.time()
    }

    fn next(&mut self, occupied: &[bool], alarm: Option<Time>) -> Event {
        self.inner.next(occupied, alarm)
    }

    fn run(&mut self, processor: usize, hart: &mut Hart, space: &mut Space, blocks: &mut Blocks) -> Exit {
        self.inner.run(processor, hart, space, blocks)
    }

    fn work(
        &mut self,
        processor: usize,
        thread: Option<ThreadId>,
        work: &[Work],
        space: &mut Space,
    ) -> Continuation {
        self.inner.work(processor, thread, work, space)
    }

    fn submit(&mut self, processor: Option<usize>, tag: Tag, request: DeviceRequest) {
        if let DeviceRequest::Disk { bytes, .. } = request {
            assert_eq!(request.device(), Device::Disk);
            self.requests += 1;
            self.bytes += bytes;
        }
        self.inner.submit(processor, tag, request);
    }
}

/// Loads a program on a machine with two processors.
fn load(file: &Path, arguments: &[&str], files: FileSystem, cache_pages: usize) -> Execution<Counter> {
    let program = Program::new(arguments).files(files).cache_pages(cache_pages);
    Execution::new(&std::fs::read(file).unwrap(), program, Counter::new(2)).unwrap()
}

/// Returns the content of a file: bytes that differ from file to file and do not repeat with a power of two.
fn content(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251 + number * 13) as u8).collect()
}

/// Makes a file system with numbered files of one length in `/www`.
fn folder_of(numbers: std::ops::Range<usize>, length: usize) -> FileSystem {
    let mut files = FileSystem::new(256 << 20);
    for number in numbers {
        files.add_file(&format!("/www/{number}"), &content(number, length)).unwrap();
    }
    files
}

/// Compiles a program for this machine.
fn compile_native(name: &str, folder: &Path) -> PathBuf {
    let target = folder.join(format!("{name}.native"));
    let mut command = Command::new("cc");
    command.args(["-O1", "-w", "-pthread", "-o"]).arg(&target).arg(toolchain::program(name));
    assert!(command.status().unwrap().success(), "{command:?}");
    target
}

/// Server that runs on this machine, until it is dropped.
struct Native {
    child: Child,
    port: u16,
}

impl Native {
    fn start(file: &Path, root: &Path, options: &[&str]) -> Native {
        let mut command = Command::new(file);
        command.args(["--port", "0", "--root"]).arg(root).args(options).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        Native { child, port }
    }

    /// Sends bytes and their end, and returns all that comes.
    fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        response
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests, each with what its response begins with and ends with. The connection is closed behind each.
fn http_requests() -> Vec<(Vec<u8>, &'static str, &'static str)> {
    let fields = "Host: x\r\nConnection: close\r\n\r\n";
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\n{fields}").into_bytes();
    let long = |count: usize| "x".repeat(count);
    vec![
        (get("/small"), "HTTP/1.1 200 OK\r\n", "\r\n\r\nsmall"),
        (get("/"), "HTTP/1.1 200 OK\r\n", "the index"),
        (get("/folder/"), "HTTP/1.1 200 OK\r\n", "inner index"),
        (get("/folder/./index.html?query"), "HTTP/1.1 200 OK\r\n", "inner index"),
        (get("//folder//%69ndex.html"), "HTTP/1.1 200 OK\r\n", "inner index"),
        (get("http://host:80/small"), "HTTP/1.1 200 OK\r\n", "small"),
        (get("/empty"), "HTTP/1.1 200 OK\r\n", "Connection: close\r\n\r\n"),
        (get("/large"), "HTTP/1.1 200 OK\r\n", ""),
        (get("/missing"), "HTTP/1.1 404 Not Found\r\n", "404 Not Found\n"),
        (get("/folder"), "HTTP/1.1 404 Not Found\r\n", "404 Not Found\n"),
        (get("/../secret"), "HTTP/1.1 400 Bad Request\r\n", "400 Bad Request\n"),
        (get("/folder/%2e%2E/%2e%2e/secret"), "HTTP/1.1 400 Bad Request\r\n", "400 Bad Request\n"),
        (get("/small%00"), "HTTP/1.1 400 Bad Request\r\n", "400 Bad Request\n"),
        (get("/small%4"), "HTTP/1.1 400 Bad Request\r\n", "400 Bad Request\n"),
        (get("small"), "HTTP/1.1 400 Bad Request\r\n", "400 Bad Request\n"),
        (get(&format!("/{}", long(3000))), "HTTP/1.1 414 URI Too Long\r\n", "414 URI Too Long\n"),
        (get(&format!("/{}", long(9000))), "HTTP/1.1 414 URI Too Long\r\n", "414 URI Too Long\n"),
        (
            format!("GET / HTTP/1.1\r\nX: {}\r\n{fields}", long(9000)).into_bytes(),
            "HTTP/1.1 431 Request Header Fields Too Large\r\n",
            "Large\n",
        ),
        (format!("HEAD /large HTTP/1.1\r\n{fields}").into_bytes(), "HTTP/1.1 200 OK\r\n", "close\r\n\r\n"),
        (
            format!("POST /small HTTP/1.1\r\nContent-Length: 5\r\n{fields}12345").into_bytes(),
            "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\n",
            "Allowed\n",
        ),
        (b"GET /small HTTP/1.1\r\n\r\n".to_vec(), "HTTP/1.1 400 Bad Request\r\n", "Request\n"),
        (
            b"GET /small HTTP/2.0\r\nHost: x\r\n\r\n".to_vec(),
            "HTTP/1.1 505 HTTP Version Not Supported\r\n",
            "\n",
        ),
        (b"GET /small HTTP/1.0\r\n\r\n".to_vec(), "HTTP/1.1 200 OK\r\n", "Connection: close\r\n\r\nsmall"),
        (b"GET /small\r\n\r\n".to_vec(), "HTTP/1.1 400 Bad Request\r\n", "Request\n"),
        (b"GET /small HTTP/1.1\r\nHost x\r\n\r\n".to_vec(), "HTTP/1.1 400 Bad Request\r\n", "Request\n"),
        (b"\0\r\n\r\n".to_vec(), "HTTP/1.1 400 Bad Request\r\n", "Request\n"),
        // Two requests by one connection, sent at once.
        (
            [b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), get("/small")].concat(),
            "HTTP/1.1 200 OK\r\n",
            "close\r\n\r\nsmall",
        ),
    ]
}

/// Gives a server's requests to it on this machine and in the simulated system: the responses are the same bytes.
fn compare(test: &str, name: &str, options: &[&str], further: Vec<(Vec<u8>, &'static str, &'static str)>) {
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("www");
    std::fs::create_dir_all(root.join("folder")).unwrap();
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    let large = content(0, 300_000);
    for (name, bytes) in [
        ("small", b"small" as &[u8]),
        ("index.html", b"the index"),
        ("folder/index.html", b"inner index"),
        ("empty", b""),
        ("large", &large),
    ] {
        std::fs::write(root.join(name), bytes).unwrap();
    }
    let native = Native::start(&compile_native(name, folder.path()), &root, options);
    let mut requests = Vec::new();
    for (bytes, begin, end) in http_requests().into_iter().chain(further) {
        let response = native.exchange(&bytes);
        let (sent, text) = (String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&response));
        assert!(text.starts_with(begin) && text.ends_with(end), "{sent}: {text}");
        if sent.starts_with("GET /large HTTP") && !sent.contains("Range") {
            assert!(response.ends_with(&large));
        }
        requests.push(Request::raw(&sent.chars().take(40).collect::<String>(), bytes, Body::bytes(response)));
    }
    let mut files = FileSystem::new(64 << 20);
    files.import(folder.path(), "/data").unwrap();
    let file = toolchain::compile_program(&compiler, name, folder.path());
    let arguments = [&[name, "--root", "/data/www"], options].concat();
    let count = requests.len() as u64;
    let load_of = Load::closed(PORT, 1, Mix::once(requests)).connection_per_request();
    let execution = load(&file, &arguments, files, 1000);
    let (report, _) =
        Clients::new(execution, load_of).unwrap().run().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.responses(), count);
}

#[test]
fn the_web_server_responds_as_on_this_machine() {
    let test = "the_web_server_responds_as_on_this_machine";
    // The large file needs more than a quarter of the cache, and is sent in pieces.
    compare(test, "web", &["--threads", "2", "--cache", "100K"], Vec::new());
}

#[test]
fn the_video_server_responds_as_on_this_machine() {
    let test = "the_video_server_responds_as_on_this_machine";
    let ranges = [
        ("bytes=0-9", "HTTP/1.1 206 Partial Content\r\n"),
        ("bytes=299990-400000", "HTTP/1.1 206 Partial Content\r\n"),
        ("bytes=1000-", "HTTP/1.1 206 Partial Content\r\n"),
        ("bytes=-7", "HTTP/1.1 206 Partial Content\r\n"),
        ("bytes=-400000", "HTTP/1.1 206 Partial Content\r\n"),
        ("bytes=300000-", "HTTP/1.1 416 Range Not Satisfiable\r\n"),
        ("bytes=-0", "HTTP/1.1 416 Range Not Satisfiable\r\n"),
        ("bytes=5-2", "HTTP/1.1 200 OK\r\n"),
        ("bytes=1-2,4-5", "HTTP/1.1 200 OK\r\n"),
        ("lines=1-2", "HTTP/1.1 200 OK\r\n"),
    ];
    let request =
        |range| format!("GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\nRange: {range}\r\n\r\n");
    let further = ranges.map(|(range, begin)| (request(range).into_bytes(), begin, ""));
    compare(test, "video", &["--threads", "2", "--request", "100K"], further.to_vec());
    compare(test, "video", &["--threads", "2", "--request", "100K", "--sendfile"], further.to_vec());
}

#[test]
fn hits_of_the_web_servers_cache_do_not_read_the_disk_and_each_miss_does_once() {
    let test = "hits_of_the_web_servers_cache_do_not_read_the_disk_and_each_miss_does_once";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let file = toolchain::compile_program(&compiler, "web", folder.path());
    const BYTES: usize = 16 << 10;
    let request =
        |number: usize| Request::get(&format!("/{number}")).body(Body::bytes(content(number, BYTES)));
    // The server's cache has room for 64 files, the page cache for 16.
    let arguments = ["web", "--root", "/www", "--threads", "4", "--cache", "1M"];
    let execution = load(&file, &arguments, folder_of(0..88, BYTES), 64);
    let once = |execution, requests: Vec<Request>| {
        let load = Load::closed(PORT, 1, Mix::once(requests));
        let (_, execution): (_, Execution<Counter>) = Clients::new(execution, load).unwrap().run().unwrap();
        execution
    };
    let execution = once(execution, (0..8).map(request).collect());
    assert_eq!((execution.machine().requests, execution.machine().bytes), (8, 8 * BYTES as u64));
    // Hits: two calls each, recvfrom and writev, and now and then one for the cache's lock.
    let hits = Load::closed(PORT, 4, Mix::uniform((0..8).map(request))).measure(Span::Responses(400));
    let (report, execution) = Clients::new(execution, hits).unwrap().run().unwrap();
    assert_eq!(execution.machine().requests, 8);
    assert!((800..1200).contains(&report.calls), "{} calls", report.calls);
    // Misses: 80 files in turn, of which the cache has lost each before its next turn.
    let mix = Mix::with_misses((0..8).map(request), (8..88).map(request), 0.25);
    let load = Load::closed(PORT, 4, mix).measure(Span::Responses(1000)).seed(3);
    let mut disk = Vec::new();
    let clients = Clients::new(execution, load).unwrap();
    let (_, execution) = clients
        .run_observed(|moment, execution| {
            disk.push((moment == Moment::End, execution.machine().requests));
        })
        .unwrap();
    let misses = execution.machine().requests - 8;
    assert!((200..300).contains(&misses), "{misses} of 1000 requests are misses");
    // The last misses may have come after the measurement.
    assert!(disk[0] == (false, 8) && disk[1].1.abs_diff(8 + misses) <= 4, "{disk:?}");
    assert_eq!(execution.machine().bytes, (8 + misses) * BYTES as u64);
    let status = Request::get("/server-status").body(Body::Any);
    once(execution, vec![status, request(0)]);
}

#[test]
fn the_video_server_reads_in_order_by_requests_of_its_size() {
    let test = "the_video_server_reads_in_order_by_requests_of_its_size";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let file = toolchain::compile_program(&compiler, "video", folder.path());
    const BYTES: usize = 2_000_000;
    let run = |options: &[&str], call: &str| {
        let arguments = ["video", "--root", "/www", "--threads", "3", "--request", "100K"];
        let arguments = [&arguments, options].concat();
        let mut execution = load(&file, &arguments, folder_of(0..3, BYTES), 400);
        execution.set_recording(true);
        let request =
            |number: usize| Request::get(&format!("/{number}")).body(Body::bytes(content(number, BYTES)));
        let load = Load::closed(PORT, 3, Mix::once((0..3).map(request)));
        let (report, mut execution) = Clients::new(execution, load).unwrap().run().unwrap();
        assert_eq!((report.responses(), report.bytes), (3, 3 * BYTES as u64));
        // Each byte is read from the disk once, by whole pages.
        let pages = 3 * BYTES.div_ceil(4096) as u64;
        assert_eq!(execution.machine().bytes, pages * 4096);
        let records = execution.records();
        let of = |name: &str| records.iter().filter(|call| call_name(call.number) == name).count();
        assert_eq!(of("pread64") + of("sendfile"), of(call));
        (report, of(call), execution.calls())
    };
    let reads = run(&[], "pread64");
    assert_eq!(reads.1, 3 * BYTES.div_ceil(100 << 10));
    assert_eq!(reads, run(&[], "pread64"), "the same each time");
    // One sendfile(2) for each request, unless the socket takes less at a time.
    assert!(run(&["--sendfile"], "sendfile").1 >= reads.1);
}

/// Runs the streams and returns what they write.
fn run_streams(file: &Path, options: &[&str], paths: &[String], length: usize) -> (String, u64) {
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let arguments = [&["streams"], options, &paths].concat();
    let mut execution = load(file, &arguments, folder_of(0..paths.len(), length), 1000);
    let mut output = String::new();
    loop {
        let progress = execution.run().unwrap();
        output.extend(execution.output().into_iter().map(|(_, text)| String::from_utf8(text).unwrap()));
        if let bywash_execute::Progress::Ended(end) = progress {
            assert_eq!(end, End::Exited(0), "{output}");
            return (output, execution.machine().bytes);
        }
    }
}

#[test]
fn streams_read_all_bytes_at_their_rates() {
    let test = "streams_read_all_bytes_at_their_rates";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let file = toolchain::compile_program(&compiler, "streams", folder.path());
    const STREAMS: usize = 23;
    const BYTES: usize = 100_001;
    let paths: Vec<String> = (0..STREAMS).map(|number| format!("/www/{number}")).collect();
    let (output, disk_bytes) = run_streams(&file, &["--touch", "--request", "16K"], &paths, BYTES);
    assert_eq!(disk_bytes, (STREAMS * BYTES.div_ceil(4096) * 4096) as u64);
    for (number, line) in output.lines().take(STREAMS).enumerate() {
        let bytes = content(number, BYTES);
        let words = bytes.chunks(8).map(|word| {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            u64::from_le_bytes(padded)
        });
        // Each request but the last is a multiple of eight bytes.
        let sum = words.fold(0_u64, |sum, word| sum.wrapping_add(word));
        assert!(line.starts_with(&format!("/www/{number}: {BYTES} bytes, ")), "{line}");
        assert!(line.ends_with(&format!(", 0 late, sum {sum:016x}")), "{line}, and not {sum:016x}");
    }
    let last = output.lines().last().unwrap();
    assert!(last.starts_with(&format!("23 streams: {} bytes, ", STREAMS * BYTES)), "{last}");
    assert_eq!(
        output,
        run_streams(&file, &["--touch", "--request", "16K"], &paths, BYTES).0,
        "the same each time"
    );

    // At a rate that the disk's latency of 100 us allows, and at one that it does not.
    let options = ["--request", "4K", "--bytes", "120K", "--rate"];
    for (rate, is_late) in [("4M", false), ("200M", true)] {
        let (output, _) = run_streams(&file, &[&options as &[&str], &[rate]].concat(), &paths[..3], BYTES);
        for line in output.lines().take(3) {
            let number = |index: usize| line.split(' ').nth(index).unwrap().parse::<f64>().unwrap();
            assert_eq!((number(1), number(7) > 0.0), (122_880.0, is_late), "{line}");
            if !is_late {
                assert!((number(3) / (4 << 20) as f64 - 1.0).abs() < 0.02, "{line}");
            }
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let test = "wrong_arguments_are_named";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    for (name, arguments, part) in [
        ("web", &["--root", "/tmp", "--cache", "1X"] as &[&str], "--cache needs a number of bytes"),
        ("web", &[], "usage: web --root FOLDER"),
        (
            "video",
            &["--root", "/tmp", "--port", "70000"],
            "--port needs a number from 0 to 65535, not '70000'",
        ),
        ("video", &["--root", "/missing"], "/missing: No such file or directory"),
        ("streams", &["--rate", "0", "/x"], "--rate needs a number of bytes"),
        ("streams", &["/x"], "/x: No such file or directory"),
    ] {
        let file = folder.path().join(name);
        let file =
            if file.exists() { file } else { toolchain::compile_program(&compiler, name, folder.path()) };
        let run = toolchain::run(&file, Program::new([&[name], arguments].concat()), 1);
        assert!(
            run.errors.contains(part) && run.end != End::Exited(0),
            "{name} {arguments:?}: {}",
            run.errors
        );
    }
}
