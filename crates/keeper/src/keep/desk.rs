//! The keeper's socket: takes requests of clients, one thread each, and passes them to the keeper's loop.
//!
//! While there is a client the keeper does not end by itself: until the connection is closed and, if the client has asked for
//! the memory, until its process ends. That process becomes the program, which may open the memory much later.

use crate::error::Error;
use crate::keep::{files, volume};
use crate::log_file::LogFile;
use crate::report::{KeeperStatus, Latency, counters};
use bywash_client::SharedMapping;
use bywash_link::{SocketFile, listen_at};
use bywash_log::layout::BLOCK;
use bywash_log::shared::{Shared, entry_state};
use bywash_log::sys;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, PidfdFlags};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Greatest number of connections at a time; further ones wait to be accepted or are closed.
const CLIENTS_MAX: usize = 1024;
/// Size of a client's thread's stack, in bytes.
const STACK_BYTES: usize = 256 << 10;
/// Time in which a client must have sent its request.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Size of the longest request, in bytes.
const REQUEST_MAX: u64 = 64;

/// State that the threads of clients share with the keeper's loop.
#[derive(Debug)]
pub struct Desk {
    shared: Shared,
    log_file: Arc<LogFile>,
    /// Path of the log's memory.
    memory: String,
    /// Memory of the volume that the log is on, for programs that write it.
    window: OnceLock<SharedMapping>,
    clients: AtomicUsize,
    is_ending: AtomicBool,
    /// Files that the last checkpoint could not make durable.
    pub failed: AtomicUsize,
    rounds: Mutex<Rounds>,
    done: Condvar,
}

/// Checkpoints that were asked for and made, by number.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    wanted: u64,
    made: u64,
    failed: usize,
}

impl Desk {
    /// State of a keeper without clients.
    pub fn new(shared: Shared, log_file: Arc<LogFile>, memory: String) -> Desk {
        Desk {
            shared,
            log_file,
            memory,
            window: OnceLock::new(),
            clients: AtomicUsize::new(0),
            is_ending: AtomicBool::new(false),
            failed: AtomicUsize::new(0),
            rounds: Mutex::default(),
            done: Condvar::new(),
        }
    }

    /// Listens at a path, and starts the thread that accepts. The name is removed when the returned value is dropped.
    ///
    /// # Errors
    /// [`Error::Socket`] or [`Error::Io`].
    pub fn open(self: &Arc<Desk>, path: &Path) -> Result<SocketFile, Error> {
        let failed = || Error::io("listen at", path);
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|error| failed()(error.into()))?;
        let name = listen_at(path, &socket, CLIENTS_MAX as i32, |_| Ok(()))?;
        let (desk, listener) = (Arc::clone(self), UnixListener::from(socket));
        thread::Builder::new().name("desk".into()).spawn(move || desk.accept(&listener)).map_err(failed())?;
        Ok(name)
    }

    /// Passes the memory of a volume to programs that ask for it, from here on.
    pub fn pass(&self, window: SharedMapping) {
        // It is passed once.
        let _ = self.window.set(window);
    }

    /// Returns true if a client is connected.
    pub fn has_clients(&self) -> bool {
        self.clients.load(SeqCst) > 0
    }

    /// Refuses all requests from here on: the keeper is ending.
    pub fn close(&self) {
        self.is_ending.store(true, SeqCst);
    }

    /// Returns the number of a checkpoint that was asked for and not made yet.
    pub fn requested_round(&self) -> Option<u64> {
        let rounds = *self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        (rounds.wanted > rounds.made).then_some(rounds.wanted)
    }

    /// Tells clients that a checkpoint was made, and the number of files that are not durable.
    pub fn made(&self, round: u64, failed: usize) {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        (rounds.made, rounds.failed) = (round, failed);
        self.done.notify_all();
    }

    fn accept(self: Arc<Desk>, listener: &UnixListener) {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // Out of descriptors for instance: the client waits meanwhile.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            if self.clients.fetch_add(1, SeqCst) >= CLIENTS_MAX {
                self.clients.fetch_sub(1, SeqCst);
                continue;
            }
            let desk = Arc::clone(&self);
            let serve = move || {
                // A client that breaks off is gone, and nothing is to be said to it.
                let _ = desk.serve(stream);
                desk.clients.fetch_sub(1, SeqCst);
            };
            if thread::Builder::new().name("client".into()).stack_size(STACK_BYTES).spawn(serve).is_err() {
                self.clients.fetch_sub(1, SeqCst);
            }
        }
    }

    /// Answers one request, and waits until the client closes the connection.
    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
            return Ok(());
        }
        stream.set_read_timeout(Some(REQUEST_LIMIT))?;
        let mut request = String::new();
        BufReader::new(&stream).take(REQUEST_MAX).read_line(&mut request)?;
        let answer = match request.trim_end() {
            _ if self.is_ending.load(SeqCst) => "ending".to_owned(),
            "open" if peer.uid != rustix::process::geteuid() => "error the log is another user's".to_owned(),
            "open" => format!("ok {}", self.memory),
            "window" if peer.uid == rustix::process::geteuid() => {
                return match self.window.get() {
                    Some(window) => volume::pass(&mut stream, window),
                    None => Ok(()),
                };
            }
            "checkpoint" => match self.checkpoint() {
                0 => "ok done".to_owned(),
                files => format!("error {files} files could not be made durable; their records are kept"),
            },
            "status" => format!("ok {}", serde_json::to_string(&self.status()).map_err(io::Error::other)?),
            other => format!("error '{other}' is no request; use the bywash that started the keeper"),
        };
        stream.write_all(format!("{answer}\n").as_bytes())?;
        stream.set_read_timeout(None)?;
        // Returns when the client ends, or executes another program.
        let read = stream.read(&mut [0]);
        if request.trim_end() == "open" {
            wait_for_end(peer.pid)?;
        }
        read.map(drop)
    }

    /// Has the keeper's loop make a checkpoint; returns the number of files that are not durable.
    fn checkpoint(&self) -> usize {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.wanted += 1;
        let round = rounds.wanted;
        self.wake();
        while rounds.made < round {
            rounds = self.done.wait(rounds).unwrap_or_else(PoisonError::into_inner);
        }
        rounds.failed
    }

    fn wake(&self) {
        let word = &self.shared.header().room_wanted;
        word.fetch_add(1, SeqCst);
        sys::wake(word);
    }

    fn status(&self) -> KeeperStatus {
        let header = self.shared.header();
        KeeperStatus {
            pid: std::process::id(),
            used_bytes: used_blocks(&self.shared) * BLOCK as u64,
            files_failed: self.failed.load(Relaxed),
            failure: header.failure.load(Relaxed),
            files: self.live_files(),
            oldest_record_ms: oldest_record_ms(&self.shared),
            counters: counters(&header.counts),
            latency: header.counts.latencies().map(Latency::from),
        }
    }

    fn live_files(&self) -> Vec<crate::report::LiveFile> {
        let used = self.shared.entries().iter().filter(|entry| entry.state.load(SeqCst) == entry_state::USED);
        used.filter(|entry| entry.oldest.load(Relaxed) != 0)
            .filter_map(|entry| {
                let slot = entry.slot.load(SeqCst).checked_sub(1)?;
                let path = files::recorded_path(&self.log_file, &self.shared, slot)?;
                let path = path.to_string_lossy().into_owned();
                Some(crate::report::LiveFile { path, records: None, bytes: None })
            })
            .collect()
    }
}

/// Waits until a process ends; one that has ended already is not waited for.
fn wait_for_end(process: Pid) -> io::Result<()> {
    let Ok(process) = rustix::process::pidfd_open(process, PidfdFlags::empty()) else { return Ok(()) };
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut polled, None) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(()),
        }
    }
}

/// Returns the time since which the oldest live record waits for a checkpoint, in milliseconds; `None` if there is none.
fn oldest_record_ms(shared: &Shared) -> Option<u64> {
    let entries = shared.entries().iter();
    let live = entries
        .filter(|entry| entry.state.load(SeqCst) == entry_state::USED && entry.oldest.load(SeqCst) != 0);
    let oldest_ns = live.map(|entry| entry.oldest_ns.load(Relaxed)).min()?;
    Some(sys::monotonic_ns().saturating_sub(oldest_ns) / 1_000_000)
}

/// Returns the number of blocks of the area from the oldest batch to the end of the log.
pub fn used_blocks(shared: &Shared) -> u64 {
    let header = shared.header();
    let durable = header.durable.load(SeqCst);
    let head = header.head_block[(durable % 2) as usize].load(Relaxed);
    let (tail, number) = (header.tail_block.load(Relaxed), header.tail_number.load(Relaxed));
    let area = shared.geometry().map_or(0, |geometry| geometry.area_blocks());
    if number > durable {
        0
    } else if head > tail {
        head - tail
    } else {
        area - tail + head
    }
}
