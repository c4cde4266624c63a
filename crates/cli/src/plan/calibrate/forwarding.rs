//! Cost of what a server of large files does: it reads a piece past the page cache, and sends it by TCP.
//!
//! Both are measured with the same pieces, since what a byte costs depends on where it is. The pieces are containers of an
//! arena in huge pages, as a server of this library has them: a device that reads into ordinary pages has to be told each of
//! them. They are more than a cache holds; what a device has just written can be in one all the same, and is then cheaper
//! to send than what has been in memory for a while.

use crate::doctor::machine::{cores, pin};
use crate::plan::measure::loopback::{drain, pair};
use crate::plan::measure::rounds::Effort;
use crate::plan::measure::scratch::{Anywhere, Scratch};
use crate::plan::measure::{MIB, joined, processor_time};
use bywash_bench::statistics::Summary;
use bywash_container::{Container, HugePages, Options, Path, socket_pair};
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Measured costs.
pub struct Forwarding {
    /// Processor time of reading a piece, in seconds.
    pub read: Summary,
    /// Processor time of the sender for a byte of a piece, in seconds.
    pub sent: Summary,
}

/// Size of a piece, in bytes: larger than a socket's buffer.
pub const PIECE: usize = MIB;
/// Size of the arena, in bytes: more than a processor's cache holds.
const ARENA: usize = 64 * MIB;

impl Forwarding {
    /// Measures with pieces of a file that the page cache does not hold. They are read through the page cache if the file
    /// system cannot do otherwise.
    ///
    /// # Errors
    /// The error of a system call on the file or on a socket.
    pub fn measure(effort: &Effort, scratch: &Scratch) -> io::Result<Forwarding> {
        scratch.direct(true)?;
        let (mut pieces, _paths) = pieces().map_err(io::Error::other)?;
        let [read, sent] = effort.rounds_of(|| forward(scratch, &mut pieces, effort.stretch))?;
        scratch.direct(false)?;
        Ok(Forwarding { read, sent })
    }
}

/// Returns all containers of an arena, and the two ends of the path that it belongs to.
fn pieces() -> Result<(Vec<Container>, [Path; 2]), bywash_container::Error> {
    let (here, there) = socket_pair()?;
    let other = Options::new().forward().arena_bytes(0).peer_arena_bytes_max(2 * ARENA);
    // Both ends wait for each other's handshake.
    let other_end = std::thread::spawn(move || Path::over(there, &other));
    let path = Path::over(here, &Options::new().arena_bytes(ARENA).huge_pages(HugePages::Collapse));
    let other_end = match other_end.join() {
        Ok(other_end) => other_end,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    let path = path?;
    let pieces = std::iter::from_fn(|| path.try_alloc(PIECE).transpose()).collect::<Result<_, _>>()?;
    Ok((pieces, [path, other_end?]))
}

/// Forwards pieces for `time`. Returns the processor time of reading a piece, and of sending a byte.
fn forward(scratch: &Scratch, pieces: &mut [Container], time: Duration) -> io::Result<[f64; 2]> {
    // On two processors, where there are two: with the receiver on the sender's, a byte costs another time each time.
    let cores = cores();
    let [here, there] = [cores.first().copied(), cores.last().copied()];
    let (sender, receiver) = pair()?;
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            here.map_or(Ok(()), pin)?;
            send(scratch, pieces, sender, time)
        });
        let receiving = scope.spawn(move || {
            there.map_or(Ok(()), pin)?;
            drain(receiver)
        });
        let sent = joined(sending.join());
        joined(receiving.join()).and(sent)
    })
}

fn send(
    scratch: &Scratch,
    pieces: &mut [Container],
    mut sender: TcpStream,
    time: Duration,
) -> io::Result<[f64; 2]> {
    let (mut anywhere, mut count) = (Anywhere::new(PIECE, scratch.bytes(), 0), 0.0);
    let (mut reading, mut sending, begin) = (0.0, 0.0, Instant::now());
    loop {
        for piece in &mut *pieces {
            let start = processor_time();
            scratch.file().read_exact_at(piece, anywhere.next())?;
            let read = processor_time();
            sender.write_all(piece)?;
            reading += read - start;
            sending += processor_time() - read;
            count += 1.0;
            if begin.elapsed() >= time {
                return Ok([reading / count, sending / (count * PIECE as f64)]);
            }
        }
    }
}
