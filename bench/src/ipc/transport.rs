//! Transports of messages between two processes, each behind the same calls. Whatever the transport, every word is written
//! and summed ([`words`](super::words)).

use super::bare::Bare;
use super::channel;
use super::exchange::{Failure, Wire, check_length};
use super::words::{fill, sum};
use crate::interrupt;
use bywash_container::{Message, Options, Path, Wait};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// Containers that are read in place.
    Trusted(Waits),
    /// Containers that are copied out first; the ends spin.
    Checked,
    /// Requests over a channel, each answered in its buffer.
    Answers(Waits),
    /// Requests over a channel, as many at a time as it is deep, which the server completes without an answer.
    Requests,
    /// A Unix stream socket, with buffers of so many bytes, or the usual ones.
    Unix(Waits, Option<usize>),
    Pipe(Waits),
    /// Bare memory and a futex.
    Futex,
    /// A bare cache line for each direction, which carries no message.
    CacheLine,
    /// Bare memory that one core writes and the other one sums, in `buffers` buffers; `None`: in the fastest number up to as
    /// many as a path has.
    HandOver {
        copies: bool,
        buffers: Option<usize>,
    },
    /// iceoryx2, publish and subscribe, in a program that is built apart.
    Iceoryx2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waits {
    /// It polls memory, or with O_NONBLOCK the kernel.
    Spin,
    Sleep,
    Adaptive,
    /// As an event loop: an end takes what is there, arms the path, if it is one, and sleeps in poll(2).
    Loop,
}

impl Waits {
    /// The manner for the library, which sleeps in poll(2) for nobody.
    fn wait(self) -> Wait {
        match self {
            Waits::Spin => Wait::Spin,
            Waits::Sleep | Waits::Loop => Wait::Sleep,
            Waits::Adaptive => Wait::Adaptive,
        }
    }
}

/// Messages in flight at a time on a path.
const DEPTH: usize = 256;
/// Attempts of an end that polls between two questions whether the bench was interrupted.
const LOOKS: u32 = 1 << 16;

/// Descriptors of an end: to read from and to write to.
pub type Ends = (OwnedFd, OwnedFd);

fn arena_bytes(bytes: usize) -> usize {
    (bytes * 8).max(16 << 20)
}

/// Messages of so many bytes that can be in flight at a time in containers: those that fit into the arena, and at most
/// the depth of a path. iceoryx2 gets buffers for as many.
pub fn buffers(bytes: usize) -> usize {
    (arena_bytes(bytes) / bytes.max(1)).min(DEPTH)
}

#[expect(unsafe_code, reason = "to trust the peer is the caller's promise")]
pub fn trusted(options: Options) -> Options {
    // SAFETY: the peer is this program, which does not reach around the library.
    unsafe { options.trusted() }
}

impl Transport {
    /// Manner in which an end waits, for notes.
    pub fn waits(self) -> &'static str {
        use Transport::{Answers, Futex, Pipe, Trusted, Unix};
        match self {
            Unix(Waits::Spin, _) | Pipe(Waits::Spin) => "polls by system calls",
            Unix(Waits::Sleep, _) | Pipe(Waits::Sleep) => "sleeps in the kernel",
            Futex => "sleeps on a futex",
            Trusted(waits) | Answers(waits) | Unix(waits, _) | Pipe(waits) => match waits {
                Waits::Spin => "spins",
                Waits::Sleep => "sleeps",
                Waits::Adaptive => "spins, then sleeps",
                Waits::Loop => "sleeps in poll(2)",
            },
            _ => "spins",
        }
    }

    fn bare(self, bytes: usize) -> Option<Bare> {
        let bare = |slots, bytes| Bare { slots, bytes, copies: false, sleeps: false };
        match self {
            Transport::Futex => Some(Bare { sleeps: true, ..bare(DEPTH, bytes) }),
            Transport::CacheLine => Some(bare(1, 0)),
            Transport::HandOver { copies, buffers: count } => {
                Some(Bare { copies, ..bare(count.unwrap_or_else(|| buffers(bytes)), bytes) })
            }
            _ => None,
        }
    }

    /// Makes the descriptors that connect two processes, for messages of at most `bytes`.
    pub fn ends(self, bytes: usize) -> Result<[Ends; 2], Failure> {
        let twice = |end: OwnedFd| Ok::<_, Failure>((end.try_clone()?, end));
        if let Some(bare) = self.bare(bytes) {
            let memory = bare.create()?;
            return Ok([twice(memory.try_clone()?)?, twice(memory)?]);
        }
        let socket = match self {
            Transport::Pipe(_) => {
                let (there, back) = (pipe_with(PipeFlags::CLOEXEC)?, pipe_with(PipeFlags::CLOEXEC)?);
                return Ok([(back.0, there.1), (there.0, back.1)]);
            }
            Transport::Unix(..) => SocketType::STREAM,
            _ => SocketType::SEQPACKET,
        };
        let pair = socketpair(AddressFamily::UNIX, socket, SocketFlags::CLOEXEC, None)?;
        Ok([twice(pair.0)?, twice(pair.1)?])
    }

    /// Opens one end, for messages of at most `bytes`; `second`: that of the second process.
    pub fn open(self, ends: Ends, bytes: usize, second: bool) -> Result<Box<dyn Wire>, Failure> {
        let options = |waits: Waits| {
            let options =
                Options::new().wait(waits.wait()).depth(DEPTH as u32).arena_bytes(arena_bytes(bytes));
            options.peer_arena_bytes_max(1 << 30)
        };
        Ok(match self {
            Transport::Trusted(waits) => {
                let path = Path::over(ends.1, &trusted(options(waits)))?;
                Box::new(Containers { path, copy: None, is_in_loop: waits == Waits::Loop })
            }
            Transport::Checked => {
                let path = Path::over(ends.1, &options(Waits::Spin))?;
                Box::new(Containers { path, copy: Some(vec![0; bytes]), is_in_loop: false })
            }
            Transport::Answers(waits) if second => Box::new(channel::server(ends.1, bytes, waits.wait())?),
            Transport::Answers(waits) => Box::new(channel::client(ends.1, bytes, waits.wait(), true)?),
            Transport::Requests if second => Box::new(channel::server(ends.1, bytes, Wait::Spin)?),
            Transport::Requests => Box::new(channel::client(ends.1, bytes, Wait::Spin, false)?),
            Transport::Unix(waits, buffers) => Box::new(Stream::open(ends, bytes, waits, buffers)?),
            Transport::Pipe(waits) => Box::new(Stream::open(ends, bytes, waits, None)?),
            _ => {
                let bare = self.bare(bytes).ok_or("iceoryx2 opens its ends in a program of its own")?;
                Box::new(bare.open(&ends.0, second)?)
            }
        })
    }
}

struct Containers {
    path: Path,
    /// Memory that messages are copied to before they are read.
    copy: Option<Vec<u8>>,
    is_in_loop: bool,
}

impl Containers {
    fn receive_in_loop(&self) -> Result<Message, Failure> {
        loop {
            if let Some(message) = self.path.try_receive()? {
                return Ok(message);
            }
            if !self.path.arm()? {
                sleep_until_readable(&self.path)?;
            }
        }
    }
}

impl Wire for Containers {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Failure> {
        let mut container = self.path.alloc(bytes)?;
        let sum = fill(&mut container, seed);
        self.path.ship(container)?;
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Failure> {
        let message = if self.is_in_loop { self.receive_in_loop()? } else { self.path.receive()? };
        check_length(message.len(), bytes)?;
        let Some(copy) = &mut self.copy else { return Ok(sum(&message.first().map()?)) };
        let copied = message.copy_to(copy)?;
        drop(message);
        Ok(sum(&copy[..copied]))
    }
}

/// Sleeps until something can be read, as an event loop does.
fn sleep_until_readable(descriptor: &impl AsFd) -> Result<(), Failure> {
    loop {
        interrupt::check()?;
        match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A socket or two pipes. Where its descriptors do not block, an end that waits asks again at once, or sleeps in poll(2)
/// for something to read.
struct Stream {
    from: File,
    to: File,
    buffer: Vec<u8>,
    is_in_loop: bool,
}

impl Stream {
    fn open(ends: Ends, bytes: usize, waits: Waits, buffers: Option<usize>) -> Result<Stream, Failure> {
        for end in [&ends.0, &ends.1] {
            if let Some(bytes) = buffers {
                set_socket_send_buffer_size(end, bytes)?;
                set_socket_recv_buffer_size(end, bytes)?;
            }
            if waits != Waits::Sleep {
                fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
            }
        }
        let is_in_loop = waits == Waits::Loop;
        Ok(Stream { from: ends.0.into(), to: ends.1.into(), buffer: vec![0; bytes], is_in_loop })
    }
}

impl Wire for Stream {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Failure> {
        let sum = fill(&mut self.buffer[..bytes], seed);
        let mut rest = &self.buffer[..bytes];
        while !rest.is_empty() {
            rest = &rest[repeat(None, || self.to.write(rest))?..];
        }
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Failure> {
        let (from, mut rest) = (&self.from, &mut self.buffer[..bytes]);
        while !rest.is_empty() {
            let read = repeat(self.is_in_loop.then_some(from), || (&mut &*from).read(rest))?;
            rest = &mut rest[read..];
        }
        Ok(sum(&self.buffer[..bytes]))
    }
}

/// Repeats a call that would block, at once or when `sleeper` can be read, until it has moved something.
fn repeat(sleeper: Option<&File>, mut call: impl FnMut() -> io::Result<usize>) -> Result<usize, Failure> {
    for look in 1u32.. {
        match (call(), sleeper) {
            (Ok(0), _) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            (Ok(moved), _) => return Ok(moved),
            (Err(error), Some(sleeper)) if error.kind() == ErrorKind::WouldBlock => {
                sleep_until_readable(sleeper)?
            }
            (Err(error), _) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                if look.is_multiple_of(LOOKS) {
                    interrupt::check()?;
                }
                std::hint::spin_loop();
            }
            (Err(error), _) => return Err(error.into()),
        }
    }
    Err("the other end is too slow".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::{CASES, exchange::Exchange};
    use crate::table::distinct;

    /// Every transport of the table moves messages between two threads, and [`Exchange::first`] compares their sums.
    #[test]
    fn everything_arrives_whatever_the_transport() {
        let of = |case: &crate::ipc::Case| {
            case.peers.iter().map(|peer| peer.1).chain([case.ours]).collect::<Vec<_>>()
        };
        let mut sides: Vec<Transport> = CASES.iter().flat_map(of).collect();
        sides.push(Transport::HandOver { copies: true, buffers: Some(1) });
        for side in distinct(sides.into_iter().filter(|side| *side != Transport::Iceoryx2)) {
            for answered in [true, false] {
                // A bare cache line carries nothing that a stream's receiver could sum.
                let needs_answers = matches!(side, Transport::CacheLine | Transport::Answers(_));
                let has_none = matches!(side, Transport::Requests);
                if (answered && has_none) || (!answered && needs_answers) {
                    continue;
                }
                let exchange = Exchange { bytes: 4096, messages: 600, answered, period: None, cores: [0, 1] };
                let [ours, theirs] = side.ends(4096).unwrap();
                let second = std::thread::spawn(move || {
                    exchange.second(side.open(theirs, 4096, true).unwrap().as_mut()).unwrap();
                });
                let mut wire = side.open(ours, 4096, false).unwrap();
                let spent = exchange.first(wire.as_mut(), std::process::id()).unwrap();
                assert!(spent.wall > 0.0 && spent.cpu > 0.0, "{side:?}: {spent:?}");
                second.join().unwrap();
            }
        }
    }

    #[test]
    fn ends_that_poll_hear_of_the_end_and_bare_memory_that_is_spoilt_has_another_sum() {
        for transport in [Transport::Unix(Waits::Spin, None), Transport::Pipe(Waits::Spin)] {
            let [ours, theirs] = transport.ends(64).unwrap();
            let mut here = transport.open(ours, 64, false).unwrap();
            transport.open(theirs, 64, true).unwrap().send(8, 7).unwrap();
            assert_eq!(here.receive(8).unwrap(), 7);
            let error = here.receive(8).unwrap_err().to_string();
            assert!(error.contains("end of file"), "{error}");
        }
        for copies in [false, true] {
            let shape = Bare { slots: 2, bytes: 64, copies, sleeps: false };
            let memory = shape.create().unwrap();
            let [mut here, mut there] = [false, true].map(|second| shape.open(&memory, second).unwrap());
            assert_eq!(here.send(64, 7).unwrap(), there.receive(64).unwrap());
            let sent = here.send(64, 8).unwrap();
            // Message 2 is in the first buffer, behind the page of the slots.
            rustix::io::pwrite(&memory, &[0xff], 4096 + 8).unwrap();
            assert_ne!(there.receive(64).unwrap(), sent, "{copies}");
            here.send(128, 9).unwrap_err();
        }
        // Rivals have as many buffers as a path.
        assert_eq!([64, 64 << 10, 1 << 20, 32 << 20].map(buffers), [256, 256, 16, 8]);
    }
}
