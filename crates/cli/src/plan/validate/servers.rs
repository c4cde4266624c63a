//! The example servers as programs, which are found beside the command: a Web server and a video server.
//!
//! Each runs on a processor of its own, and its clients on another one, if there are two. A result is the processor time of
//! the server for a request. The server's own work, the time that it spends in user mode, is an input of the predictions:
//! what a program computes does not follow from the machine. It is that of all runs before, since the kernel tells it in
//! ticks of its clock, of which a run has few.
//!
//! The files need names, so they are in a folder that is removed at the end. A signal ends the run in good order.

use super::clients::{Received, receive};
use crate::doctor::machine::{cores, pin};
use crate::plan::measure::others::parse_family;
use crate::plan::measure::scratch::Anywhere;
use crate::plan::measure::{KIB, joined};
use crate::signals::Signals;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// An example server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The Web server: files of [`PAGE_FILE`] bytes, of which its cache lacks the share [`MISS`] and the page cache none.
    Web,
    /// The video server: streams in chunks of [`CHUNK`] bytes, which are read from the device.
    Video,
}

/// Work of a server: processor time, in seconds, the part of it in user mode, and the requests for which it was used.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    processor: f64,
    own: f64,
    requests: f64,
}

/// Files of the servers, and what ends their runs.
pub struct Site {
    folder: TempDir,
    signals: Signals,
    film_bytes: u64,
    streams: usize,
    /// Work of the runs so far, by kind.
    works: Mutex<[Work; Kind::ALL.len()]>,
}

/// Size of a file of the Web server, in bytes, and the number of files.
pub const PAGE_FILE: usize = 16 * KIB;
const FILES: usize = 1000;
/// Share of the files that the Web server's cache has no memory for.
pub const MISS: f64 = 0.1;
/// Number of connections to the Web server.
const CONNECTIONS: usize = 64;

/// Size of a chunk of the video server, in bytes: what it sends in one [`PERIOD`] of a stream, in whole blocks.
pub const CHUNK: usize = 245 * 4 * KIB;
const PERIOD: Duration = Duration::from_millis(50);
/// Rate of a stream, in bytes per second.
const RATE: f64 = CHUNK as f64 / 0.05;
/// Greatest number of streams, and the share of the disk's rate that they have at most.
const STREAMS: f64 = 12.0;
const DISK_SHARE: f64 = 0.4;

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 2] = [Kind::Web, Kind::Video];

    /// Returns the program, if it is beside the command.
    pub fn program(self) -> Option<PathBuf> {
        let name = match self {
            Kind::Web => "bywash-web",
            Kind::Video => "bywash-video",
        };
        let program = std::env::current_exe().ok()?.with_file_name(name);
        program.is_file().then_some(program)
    }
}

impl Site {
    /// Makes the files in a new folder in `folder`: a film of `film_bytes` bytes. The streams take a part of `disk_rate`, in
    /// bytes per second.
    ///
    /// # Errors
    /// The error of a system call, if the folder cannot be written or the disk is full.
    pub fn new(folder: &Path, film_bytes: usize, disk_rate: f64) -> io::Result<Site> {
        // From here on a signal ends nothing at once, so that the files are removed.
        let signals = Signals::listen();
        let folder = tempfile::Builder::new().prefix(".bywash-plan-").tempdir_in(folder)?;
        for file in 0..FILES {
            fs::write(folder.path().join(file.to_string()), vec![file as u8; PAGE_FILE])?;
        }
        let mut film = File::create(folder.path().join(FILM))?;
        // Blocks that differ, so that no layer below can leave any out.
        let mut block = vec![0; CHUNK];
        for number in 0..(film_bytes / CHUNK).max(1) as u64 {
            for page in block.chunks_exact_mut(4 * KIB) {
                page[..8].copy_from_slice(&number.to_le_bytes());
            }
            film.write_all(&block)?;
        }
        film.sync_all()?;
        let streams = (DISK_SHARE * disk_rate / RATE).clamp(1.0, STREAMS) as usize;
        let film_bytes = film.metadata()?.len();
        let site = Site { folder, signals, film_bytes, streams, works: Default::default() };
        // A file that has just changed is not cached by a server that keeps its promises.
        std::thread::sleep(SETTLING);
        Ok(site)
    }

    /// Checks that no signal has arrived.
    ///
    /// # Errors
    /// `Interrupted` if one has.
    pub fn check(&self) -> io::Result<()> {
        self.signals.seen().map_or(Ok(()), |_| Err(io::ErrorKind::Interrupted.into()))
    }

    /// Returns the time that a server has spent in user mode for a request, in seconds, in the runs so far; 0 before the
    /// first one.
    pub fn own(&self, kind: Kind) -> f64 {
        let Work { own, requests, .. } = self.works()[kind as usize];
        own / requests.max(1.0)
    }

    /// Runs a server under load for `time`. Returns the processor time for a request, in seconds.
    ///
    /// # Errors
    /// The error of starting the server, or of a client; `Interrupted` after a signal.
    pub fn measure(&self, kind: Kind, time: Duration) -> io::Result<f64> {
        let [here, there] = processors();
        let server = Server::start(&mut self.command(kind)?, there)?;
        // A thread, since this thread's processors are for other runs, too.
        let done = std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                pin(here)?;
                self.load(kind, &server, time)
            });
            joined(client.join())
        })?;
        let work = &mut self.works()[kind as usize];
        *work = work.and(done);
        Ok(done.processor / done.requests)
    }

    fn works(&self) -> MutexGuard<'_, [Work; Kind::ALL.len()]> {
        // Nothing panics while it holds the lock.
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn command(&self, kind: Kind) -> io::Result<Command> {
        let program = kind.program().ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        command.arg(self.folder.path()).args(["--listen", "127.0.0.1:0", "--threads", "1"]);
        match kind {
            Kind::Web => {
                let cache = ((1.0 - MISS) * (FILES * PAGE_FILE) as f64) as u64;
                command.args(["--cache", &cache.to_string(), "--part", "64K"]);
            }
            Kind::Video => {
                let memory = (16 << 20) + 2 * self.streams * CHUNK * 9 / 8;
                let rate = format!("{}bit", 8.0 * RATE);
                command.args(["--memory", &memory.to_string(), "--share", "100", "--calibration", "0"]);
                command.args(["--rate", &rate, "--period", &format!("{}ms", PERIOD.as_millis())]);
            }
        }
        Ok(command)
    }

    fn load(&self, kind: Kind, server: &Server, time: Duration) -> io::Result<Work> {
        let get = |name: &str, range: &str| format!("GET /{name} HTTP/1.1\r\nHost: localhost\r\n{range}\r\n");
        let is_stopped = || self.signals.seen().is_some();
        // On a busy machine the first response can take longer than the run.
        let least_bytes = match kind {
            Kind::Web => PAGE_FILE,
            Kind::Video => CHUNK,
        };
        let load = |count: usize, time: Duration, next: &mut dyn FnMut(usize) -> Option<String>| {
            receive(server.address, count, Instant::now() + time, least_bytes as u64, next, &is_stopped)
        };
        match kind {
            Kind::Web => {
                // Each file once, so that the cache is full.
                let mut all = 0..FILES;
                load(CONNECTIONS, WARMING, &mut |_| all.next().map(|file| get(&file.to_string(), "")))?;
                let mut files = Anywhere::new(1, FILES.next_power_of_two(), 0);
                let mut some = || loop {
                    let file = files.next();
                    if file < FILES as u64 {
                        return Some(get(&file.to_string(), ""));
                    }
                };
                let before = server.times()?;
                let Received { responses, .. } = load(CONNECTIONS, time, &mut |_| some())?;
                server.times()?.since(before, responses as f64)
            }
            Kind::Video => {
                let part = self.film_bytes / CHUNK as u64 / self.streams as u64;
                let before = server.times()?;
                let mut next = |stream: usize| {
                    let first = stream as u64 * part * CHUNK as u64;
                    Some(get(FILM, &format!("Range: bytes={first}-{}\r\n", first + part * CHUNK as u64 - 1)))
                };
                let Received { bytes, .. } = load(self.streams, time, &mut next)?;
                server.times()?.since(before, bytes as f64 / CHUNK as f64)
            }
        }
    }
}

/// Running server; ended when dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

/// Processor time that a process has used so far, in seconds, and the part of it in user mode.
#[derive(Clone, Copy, Debug)]
struct Times {
    processor: f64,
    own: f64,
}

impl Server {
    /// Starts a server on a processor, and waits until it tells its address.
    fn start(command: &mut Command, processor: usize) -> io::Result<Server> {
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let mut told = String::new();
        if let Some(stderr) = child.stderr.take() {
            BufReader::new(stderr).read_line(&mut told)?;
        }
        let mut server = Server { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let address = told.trim_end().rsplit_once("http://").and_then(|(_, address)| address.parse().ok());
        server.address =
            address.ok_or_else(|| io::Error::other(format!("the server said: {}", told.trim_end())))?;
        let mut set = CpuSet::new();
        set.set(processor);
        for task in server.tasks()? {
            sched_setaffinity(Pid::from_raw(task), &set)?;
        }
        Ok(server)
    }

    fn tasks(&self) -> io::Result<Vec<i32>> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()))?;
        tasks.map(|task| task?.file_name().to_string_lossy().parse().map_err(io::Error::other)).collect()
    }

    /// Reads the times of all threads. The whole is exact; its part in user mode is what the kernel's clock ticks saw.
    fn times(&self) -> io::Result<Times> {
        let (id, mut nanoseconds) = (self.child.id(), 0);
        for task in self.tasks()? {
            let text = fs::read_to_string(format!("/proc/{id}/task/{task}/schedstat"))?;
            nanoseconds +=
                text.split(' ').next().unwrap_or_default().parse::<u64>().map_err(io::Error::other)?;
        }
        let [ticks, ..] = parse_family(&fs::read_to_string(format!("/proc/{id}/stat"))?)
            .ok_or(io::ErrorKind::InvalidData)?;
        let own = ticks / rustix::param::clock_ticks_per_second() as f64;
        Ok(Times { processor: nanoseconds as f64 * 1e-9, own })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Times {
    /// Returns the work of `requests` requests since `before`.
    fn since(self, before: Times, requests: f64) -> io::Result<Work> {
        if requests < 1.0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no request was answered in time"));
        }
        Ok(Work { processor: self.processor - before.processor, own: self.own - before.own, requests })
    }
}

impl Work {
    fn and(self, other: Work) -> Work {
        Work {
            processor: self.processor + other.processor,
            own: self.own + other.own,
            requests: self.requests + other.requests,
        }
    }
}

/// Returns two processors that this process may use; the same one twice if there is but one.
fn processors() -> [usize; 2] {
    let cores = cores();
    let first = cores.first().copied().unwrap_or(0);
    [first, cores.get(1).copied().unwrap_or(first)]
}

/// Name of the film in the folder.
const FILM: &str = "film";
/// Time after which a file that has changed may be cached.
const SETTLING: Duration = Duration::from_millis(200);
/// Greatest time of filling the cache.
const WARMING: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_work_is_that_of_all_runs() {
        let (before, now) = (Times { processor: 1.0, own: 0.5 }, Times { processor: 3.0, own: 0.9 });
        let work = now.since(before, 4.0).unwrap();
        let all = Work::default().and(work).and(Work { processor: 1.0, own: 0.6, requests: 6.0 });
        assert!((all.processor - 3.0).abs() < 1e-9 && (all.own - 1.0).abs() < 1e-9 && all.requests == 10.0);
        assert!(now.since(before, 0.0).is_err());
    }

    #[test]
    fn a_program_that_is_no_server_is_an_error() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo it cannot >&2; exec sleep 100"]);
        let error = Server::start(&mut command, processors()[0]).err().unwrap();
        assert_eq!(error.to_string(), "the server said: it cannot");
    }
}
