//! Cost of a message between threads: through a pipe, and through TCP over loopback; and throughput of TCP.
//!
//! Between two threads on one processor the cost is work only: calls, the switch between the threads, the
//! protocol. Between two threads that the kernel places freely there is also waiting: a processor that slept
//! has to wake.

use crate::doctor::machine::{cores, pin};
use crate::plan::measure::loopback::{drain, pair};
use crate::plan::measure::rounds::{Effort, mapped};
use crate::plan::measure::{KIB, joined, processor_time};
use bywash_bench::statistics::Summary;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Measured costs. A message takes half of a round trip; times are in seconds.
pub struct Messages {
    /// A byte into a pipe and out of it, by one thread: two calls.
    pub alone: Summary,
    /// A byte through a pipe to another thread of the same processor.
    pub pipe: Summary,
    /// A byte through TCP to another thread of the same processor.
    pub tcp: Summary,
    /// Half a round trip with a question of [`LARGE`] bytes and an answer of one byte, through TCP on one
    /// processor.
    pub large: Summary,
    /// A byte through TCP to a thread that the kernel places freely.
    pub tcp_apart: Summary,
    /// Throughput of one connection at full load, in bytes a second.
    pub rate: Summary,
    /// Processor time for a byte of this connection, of both ends together, in seconds.
    pub byte: Summary,
}

/// Number of round trips between two checks of the clock.
const BATCH: usize = 5;
/// Size of a large question, and of a call of a stream, in bytes.
pub const LARGE: usize = 64 * KIB;

impl Messages {
    /// Measures the costs.
    ///
    /// # Errors
    /// The error of a socket or pipe call, and a timeout if a thread does not respond.
    pub fn measure(effort: &Effort) -> io::Result<Messages> {
        let one_core = cores().last().copied();
        let [rate, byte] = effort.rounds_of(|| transfer(effort.stretch))?;
        Ok(Messages {
            alone: alone(effort)?,
            pipe: hop(effort, pipes()?, 1, one_core)?,
            tcp: hop(effort, ends()?, 1, one_core)?,
            large: hop(effort, ends()?, LARGE, one_core)?,
            tcp_apart: hop(effort, ends()?, 1, None)?,
            rate,
            byte,
        })
    }
}

/// Reading and writing end of one thread.
type PipeEnds<R, W> = (R, W);

fn pipes() -> io::Result<[PipeEnds<io::PipeReader, io::PipeWriter>; 2]> {
    let (question, asking) = io::pipe()?;
    let (answer, answering) = io::pipe()?;
    Ok([(answer, asking), (question, answering)])
}

fn ends() -> io::Result<[PipeEnds<TcpStream, TcpStream>; 2]> {
    let (one, other) = pair()?;
    Ok([(one.try_clone()?, one), (other.try_clone()?, other)])
}

fn alone(effort: &Effort) -> io::Result<Summary> {
    let (mut reader, mut writer) = io::pipe()?;
    effort.each(100, || {
        writer.write_all(b"?")?;
        reader.read_exact(&mut [0])
    })
}

/// Measures half a round trip of a question of `bytes` bytes and an answer of one byte between two threads,
/// both on `core` if it is given.
fn hop<R: Read + Send, W: Write + Send>(
    effort: &Effort,
    ends: [PipeEnds<R, W>; 2],
    bytes: usize,
    core: Option<usize>,
) -> io::Result<Summary> {
    let [(mut answer, mut asking), (mut question, mut answering)] = ends;
    let settle = move || core.map_or(Ok(()), pin);
    let both = std::thread::scope(|scope| {
        let answerer = scope.spawn(move || {
            settle()?;
            let mut asked = vec![0; bytes];
            loop {
                match question.read_exact(&mut asked) {
                    Ok(()) => answering.write_all(b"!")?,
                    // The asking thread has dropped its end.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        });
        let asker = scope.spawn(move || {
            settle()?;
            let question = vec![1; bytes];
            effort.each(BATCH, || {
                asking.write_all(&question)?;
                answer.read_exact(&mut [0])
            })
        });
        let asked = joined(asker.join());
        joined(answerer.join()).and(asked)
    })?;
    Ok(mapped(both, |seconds| seconds / 2.0))
}

/// Sends bytes in one direction at full speed for `time`. Returns bytes a second, and processor time for a byte, in seconds.
fn transfer(time: Duration) -> io::Result<[f64; 2]> {
    let (mut sender, receiver) = pair()?;
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let (block, begin, used) = (vec![1; LARGE], Instant::now(), processor_time());
            while begin.elapsed() < time {
                sender.write_all(&block)?;
            }
            Ok(processor_time() - used)
        });
        let receiving = scope.spawn(move || {
            let (begin, used) = (Instant::now(), processor_time());
            let bytes = drain(receiver)?;
            Ok((bytes as f64, begin.elapsed().as_secs_f64(), processor_time() - used))
        });
        let sent = joined(sending.join());
        let (bytes, elapsed, received) = joined(receiving.join())?;
        Ok([bytes / elapsed, (sent? + received) / bytes.max(1.0)])
    })
}
