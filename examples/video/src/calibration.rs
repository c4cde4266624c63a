//! Calibration: the capacity of the disk and the processor's time for a byte, measured on this machine when the server
//! starts, with the server's own reads and files.
//!
//! The disk: reads of a chunk at random offsets of the served files, [`DEPTH`] at a time. The processor: the time of the
//! thread for chunks that are read and sent one after the other, with pauses, as streams are, over a TCP connection on the
//! loopback interface, whose receiver is another thread. Both are corrected by the load afterwards (`admission`).

use crate::chunks::{BLOCK, CHUNK_MAX, CHUNK_MIN};
use crate::options::{Options, ReadsFrom};
use crate::reads::{Reads, Request};
use crate::worker::thread_times;
use bywash_container::Container;
use bywash_example_http::Memory;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Capacities that were measured; `None` for what could not be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Bytes per second of the disk.
    pub disk: Option<u64>,
    /// Time of a thread for a byte, in nanoseconds.
    pub nanoseconds_per_byte: Option<f64>,
}

/// Measures for the time that the options state.
///
/// # Errors
/// If there is no runtime, no socket or no thread to be had.
pub fn calibrate(options: &Options, memory: &Memory) -> io::Result<Measured> {
    if options.calibration.is_zero() {
        return Ok(Measured::default());
    }
    let wanted = (options.rate as f64 * options.period.as_secs_f64()) as u64;
    let most = (memory.usage().0 / DEPTH as u64).clamp(BLOCK as u64, CHUNK_MAX) / BLOCK as u64 * BLOCK as u64;
    let bytes = wanted.clamp(CHUNK_MIN, CHUNK_MAX).min(most).next_multiple_of(BLOCK as u64) as usize;
    let files = files(&options.listening.folder, bytes as u64, options.reads);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if files.is_empty() {
        return Ok(Measured::default());
    }
    let time = options.calibration / 2;
    runtime.block_on(async {
        let files = Arc::new(files);
        let disk = reading(files.clone(), bytes, memory, time).await;
        let nanoseconds_per_byte = streaming(files, bytes, memory, time).await?;
        Ok(Measured { disk, nanoseconds_per_byte })
    })
}

/// Returns files below a folder that have at least `bytes` bytes, and their lengths; at most [`FILES_MAX`], of at most
/// [`ENTRIES_MAX`] names.
fn files(folder: &Path, bytes: u64, from: ReadsFrom) -> Files {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    let mut names = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            names += 1;
            if names > ENTRIES_MAX || found.len() == FILES_MAX {
                return found;
            }
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file()
                && entry.metadata().is_ok_and(|metadata| metadata.len() >= bytes)
                && let Some(file) = open(&entry.path(), from)
                && let Ok(length) = file.metadata().map(|metadata| metadata.len())
            {
                found.push((Arc::new(file.into()), length));
            }
        }
    }
    found
}

fn open(path: &Path, from: ReadsFrom) -> Option<File> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    let with = |flags| File::options().read(true).custom_flags(flags).open(path).ok();
    if from == ReadsFrom::Disk { with(direct).or_else(|| with(0)) } else { with(0) }
}

/// Returns the bytes per second of reads; `None` if a file cannot be read.
async fn reading(files: Arc<Files>, bytes: usize, memory: &Memory, time: Duration) -> Option<u64> {
    let (reads, begin) = (Arc::new(Reads::new()), Instant::now());
    let mut readers = JoinSet::new();
    for seed in 1..=DEPTH as u64 {
        // With less memory than that, fewer reads are in flight.
        let Ok(Some(container)) = memory.try_alloc(bytes) else { break };
        readers.spawn(reader(reads.clone(), files.clone(), container, bytes, (seed, begin + time)));
    }
    let all = async {
        let mut sum = Some(0);
        while let Some(read) = readers.join_next().await {
            sum = sum.zip(read.ok()?.ok()).map(|(sum, read)| sum + read);
        }
        sum.filter(|sum| *sum > 0)
    };
    let read = tokio::select! {
        read = all => read?,
        () = reads.attend() => return None,
    };
    Some((read as f64 / begin.elapsed().as_secs_f64()) as u64)
}

/// Reads chunks at random offsets until a time. Returns the number of bytes.
async fn reader(
    reads: Arc<Reads>,
    files: Arc<Files>,
    mut container: Container,
    bytes: usize,
    (seed, end): (u64, Instant),
) -> io::Result<u64> {
    let mut anywhere = Anywhere::new(&files, bytes, seed);
    let mut read = 0;
    while Instant::now() < end {
        let (file, offset) = anywhere.next();
        let finished = reads.read(Request { file, container, offset, bytes }).end().await?;
        read += finished.result? as u64;
        container = finished.container;
    }
    Ok(read)
}

/// Returns the thread's time for a byte that is read and sent, in nanoseconds; `None` if a file cannot be read.
async fn streaming(
    files: Arc<Files>,
    bytes: usize,
    memory: &Memory,
    time: Duration,
) -> io::Result<Option<f64>> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let sender = TcpStream::connect(listener.local_addr()?).await?;
    let (mut receiver, _) = listener.accept()?;
    let receiver = std::thread::Builder::new().name("calibration".to_owned()).spawn(move || {
        let mut buffer = vec![0; CHUNK_MIN as usize];
        while receiver.read(&mut buffer).is_ok_and(|read| read > 0) {}
    })?;
    let (reads, (ran, _)) = (Arc::new(Reads::new()), thread_times());
    let sent = tokio::select! {
        sent = stream(&reads, &files, &sender, memory.try_alloc(bytes).ok().flatten(), (bytes, time)) => sent.ok(),
        () = reads.attend() => None,
    };
    let ran = thread_times().0.saturating_sub(ran);
    drop(sender);
    // It ends with the connection.
    let _ = receiver.join();
    Ok(sent.filter(|sent| *sent > 0).map(|sent| ran.as_nanos() as f64 / sent as f64))
}

/// Reads chunks and sends them for a time, with pauses. Returns the number of bytes.
async fn stream(
    reads: &Arc<Reads>,
    files: &Files,
    socket: &TcpStream,
    container: Option<Container>,
    (bytes, time): (usize, Duration),
) -> io::Result<u64> {
    let Some(mut container) = container else { return Ok(0) };
    let (mut anywhere, mut sent, end) = (Anywhere::new(files, bytes, 1), 0, Instant::now() + time);
    while Instant::now() < end {
        let (file, offset) = anywhere.next();
        let finished = reads.read(Request { file, container, offset, bytes }).end().await?;
        let mut left = &finished.container[..finished.result?];
        sent += left.len() as u64;
        while !left.is_empty() {
            socket.writable().await?;
            match socket.try_write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        container = finished.container;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(sent)
}

/// Open files and their lengths.
type Files = Vec<(Arc<OwnedFd>, u64)>;

/// Random chunks of files.
struct Anywhere<'a> {
    files: &'a Files,
    bytes: u64,
    random: u64,
}

impl Anywhere<'_> {
    fn new(files: &Files, bytes: usize, seed: u64) -> Anywhere<'_> {
        Anywhere { files, bytes: bytes as u64, random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// Returns a file, and the offset of a chunk in it.
    fn next(&mut self) -> (Arc<OwnedFd>, u64) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let (file, length) = &self.files[(self.random >> 32) as usize % self.files.len()];
        let offset = (self.random >> 8) % (length / self.bytes).max(1) * self.bytes;
        (file.clone(), offset)
    }
}

/// Time between two chunks that are sent: enough for the threads of a connection to sleep.
const PAUSE: Duration = Duration::from_millis(2);
/// Number of reads in flight while the disk is measured.
const DEPTH: usize = 8;
/// Greatest number of files that are read to measure the disk.
const FILES_MAX: usize = 64;
/// Greatest number of names that are looked at to find these files.
const ENTRIES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_container::HugePages;
    use clap::Parser;

    #[test]
    fn a_machine_has_capacities() {
        let folder = tempfile::tempdir().unwrap();
        let options =
            Options::parse_from(["bywash-video", folder.path().to_str().unwrap(), "--calibration", "200ms"]);
        let memory = Memory::new(8 << 20, HugePages::No).unwrap();
        // Nothing to read.
        std::fs::write(folder.path().join("small"), "text").unwrap();
        assert_eq!(calibrate(&options, &memory).unwrap().disk, None);
        std::fs::create_dir(folder.path().join("films")).unwrap();
        std::fs::write(folder.path().join("films/a"), vec![7; 4 << 20]).unwrap();
        let measured = calibrate(&options, &memory).unwrap();
        // Everything that runs this reads more than 1 MB/s, and copies a byte in less than 100 ns.
        assert!(measured.disk.unwrap() > 1_000_000, "{measured:?}");
        let cost = measured.nanoseconds_per_byte.unwrap();
        assert!(cost > 0.001 && cost < 100.0, "{measured:?}");
        assert_eq!(memory.usage().1, 0);
    }
}
