//! Transports of messages between two processes, each behind the same calls. Whatever the transport, every word is written
//! and summed ([`words`](super::words)).

use super::channel;
use super::futex::{self, Futex};
use super::wire::{Wait, Wire, check_length};
use super::words::{fill, sum};
use super::{broken, trusted};
use crate::error::Error;
use crate::interrupt;
use bywash_container::{Message, Options, Path};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

/// Connection between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// Containers that are read in place.
    Trusted(Wait),
    /// As [`Transport::Trusted`], in an event loop: an end takes what is there, arms the path and sleeps in poll(2).
    TrustedLoop,
    /// Containers that are copied out first.
    Checked(Wait),
    /// Requests over a channel, each answered in its buffer.
    Answers(Wait),
    /// Requests over a channel, as many at a time as it is deep, of which the server only takes note.
    Requests(Wait),
    /// A Unix stream socket, with buffers of so many bytes, or the usual ones.
    Unix(Option<usize>),
    /// A Unix stream socket with the usual buffers, which both ends read and write with O_NONBLOCK in a loop.
    UnixPolled,
    /// A pipe for each direction.
    Pipe,
    /// A pipe for each direction, which both ends read and write with O_NONBLOCK in a loop.
    PipePolled,
    /// A pipe for each direction, whose receiver takes what is there and sleeps in poll(2).
    PipeLoop,
    /// Shared memory and a bare futex, for messages of 64 bytes.
    Futex,
}

/// Messages in flight at a time on a path.
const DEPTH: u32 = 256;
/// Attempts of an end that polls between two questions whether the bench was interrupted.
const LOOKS: u32 = 1 << 16;

/// Descriptors of an end: to read from and to write to.
pub type End = (OwnedFd, OwnedFd);

/// Size of an end's arena, in bytes, for messages of so many bytes.
fn arena_bytes(bytes: usize) -> usize {
    (bytes * 8).max(16 << 20)
}

/// Messages of so many bytes that can be in flight at a time in containers: those that fit into the arena, and at most
/// the depth of a path. iceoryx2 gets buffers for as many.
pub fn buffers(bytes: usize) -> usize {
    (arena_bytes(bytes) / bytes.max(1)).min(DEPTH as usize)
}

impl Transport {
    /// Manner in which an end waits, for notes.
    pub fn waits(self) -> &'static str {
        match self {
            Transport::Trusted(wait)
            | Transport::Checked(wait)
            | Transport::Answers(wait)
            | Transport::Requests(wait) => match wait {
                Wait::Spin => "spins",
                Wait::Sleep => "sleeps",
                Wait::Adaptive => "spins, then sleeps",
            },
            Transport::TrustedLoop | Transport::PipeLoop => "sleeps in poll(2)",
            Transport::Unix(_) | Transport::Pipe => "sleeps in the kernel",
            Transport::UnixPolled | Transport::PipePolled => "polls by system calls",
            Transport::Futex => "sleeps on a futex",
        }
    }

    /// The same transport with ends that poll, and its name, for one whose ends sleep in the kernel.
    pub fn polled(self) -> Option<(&'static str, Transport)> {
        match self {
            Transport::Unix(None) => Some(("AF_UNIX, polled", Transport::UnixPolled)),
            Transport::Pipe => Some(("pipe, polled", Transport::PipePolled)),
            _ => None,
        }
    }

    /// Makes the descriptors that connect two processes.
    ///
    /// # Errors
    /// [`Error::Failed`] if the kernel refuses.
    pub fn ends(self) -> Result<[End; 2], Error> {
        let twice = |end: OwnedFd| Ok::<_, Error>((end.try_clone().map_err(broken)?, end));
        let socket = match self {
            Transport::Pipe | Transport::PipePolled | Transport::PipeLoop => {
                let there = pipe_with(PipeFlags::CLOEXEC).map_err(broken)?;
                let back = pipe_with(PipeFlags::CLOEXEC).map_err(broken)?;
                return Ok([(back.0, there.1), (there.0, back.1)]);
            }
            Transport::Futex => {
                let memory = memfd_create("bywash-bench", MemfdFlags::CLOEXEC).map_err(broken)?;
                ftruncate(&memory, futex::BYTES as u64).map_err(broken)?;
                return Ok([twice(memory.try_clone().map_err(broken)?)?, twice(memory)?]);
            }
            Transport::Unix(_) | Transport::UnixPolled => SocketType::STREAM,
            _ => SocketType::SEQPACKET,
        };
        let pair = socketpair(AddressFamily::UNIX, socket, SocketFlags::CLOEXEC, None).map_err(broken)?;
        Ok([twice(pair.0)?, twice(pair.1)?])
    }

    /// Opens one end, for messages of at most `bytes`; `second`: that of the second process.
    ///
    /// # Errors
    /// [`Error::Failed`] if the end cannot be opened.
    pub fn open(self, ends: End, bytes: usize, second: bool) -> Result<Box<dyn Wire>, Error> {
        let path = |wait: Wait, ends: End, trusts: bool| {
            let options = Options::new().wait(wait.into()).depth(DEPTH).arena_bytes(arena_bytes(bytes));
            let options = options.peer_arena_bytes_max(1 << 30);
            let options = if trusts { trusted(options) } else { options };
            Path::over(ends.1, &options).map_err(broken)
        };
        let is_in_loop = self == Transport::TrustedLoop;
        Ok(match self {
            Transport::Trusted(wait) => {
                Box::new(Containers { path: path(wait, ends, true)?, copy: None, is_in_loop })
            }
            Transport::TrustedLoop => {
                Box::new(Containers { path: path(Wait::Sleep, ends, true)?, copy: None, is_in_loop })
            }
            Transport::Checked(wait) => Box::new(Containers {
                path: path(wait, ends, false)?,
                copy: Some(vec![0; bytes]),
                is_in_loop,
            }),
            Transport::Answers(wait) | Transport::Requests(wait) => {
                channel::open(ends.1, bytes, wait, matches!(self, Transport::Answers(_)), second)?
            }
            Transport::Futex => Box::new(Futex::open(&ends.0, second)?),
            Transport::Unix(_)
            | Transport::UnixPolled
            | Transport::Pipe
            | Transport::PipePolled
            | Transport::PipeLoop => Box::new(Stream::open(self, ends, bytes)?),
        })
    }
}

/// Containers over a path.
struct Containers {
    path: Path,
    /// Memory that messages are copied to before they are read.
    copy: Option<Vec<u8>>,
    is_in_loop: bool,
}

impl Containers {
    /// Takes the next message as an event loop does.
    fn receive_in_loop(&self) -> Result<Message, Error> {
        loop {
            if let Some(message) = self.path.try_receive().map_err(broken)? {
                return Ok(message);
            }
            if !self.path.arm().map_err(broken)? {
                sleep_until_readable(&self.path)?;
            }
        }
    }
}

impl Wire for Containers {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Error> {
        let mut container = self.path.alloc(bytes).map_err(broken)?;
        let sum = fill(&mut container, seed);
        self.path.ship(container).map_err(broken)?;
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Error> {
        let message =
            if self.is_in_loop { self.receive_in_loop()? } else { self.path.receive().map_err(broken)? };
        check_length(message.len(), bytes)?;
        let Some(copy) = &mut self.copy else { return Ok(sum(&message.first().map().map_err(broken)?)) };
        let copied = message.copy_to(copy).map_err(broken)?;
        drop(message);
        Ok(sum(&copy[..copied]))
    }
}

/// Sleeps until something can be read, as an event loop does.
fn sleep_until_readable(descriptor: &impl AsFd) -> Result<(), Error> {
    loop {
        interrupt::check()?;
        match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(broken(error)),
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
    fn open(transport: Transport, ends: End, bytes: usize) -> Result<Stream, Error> {
        for end in [&ends.0, &ends.1] {
            match transport {
                Transport::Unix(Some(bytes)) => {
                    set_socket_send_buffer_size(end, bytes).map_err(broken)?;
                    set_socket_recv_buffer_size(end, bytes).map_err(broken)?;
                }
                Transport::Unix(None) | Transport::Pipe => {}
                _ => {
                    let flags = fcntl_getfl(end).map_err(broken)?;
                    fcntl_setfl(end, flags | OFlags::NONBLOCK).map_err(broken)?;
                }
            }
        }
        let is_in_loop = transport == Transport::PipeLoop;
        Ok(Stream { from: ends.0.into(), to: ends.1.into(), buffer: vec![0; bytes], is_in_loop })
    }
}

impl Wire for Stream {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Error> {
        let sum = fill(&mut self.buffer[..bytes], seed);
        repeat_until_done(bytes, None, |done| self.to.write(&self.buffer[done..bytes]))?;
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Error> {
        let from = &self.from;
        let sleeper = self.is_in_loop.then_some(from);
        repeat_until_done(bytes, sleeper, |done| (&mut &*from).read(&mut self.buffer[done..bytes]))?;
        Ok(sum(&self.buffer[..bytes]))
    }
}

/// Calls `attempt`, which is told how many bytes were moved before, until all `bytes` are. An attempt that would block is
/// repeated at once, or when `sleeper` can be read.
fn repeat_until_done(
    bytes: usize,
    sleeper: Option<&File>,
    mut attempt: impl FnMut(usize) -> std::io::Result<usize>,
) -> Result<(), Error> {
    let (mut done, mut looks) = (0, 0u32);
    while done < bytes {
        match (attempt(done), sleeper) {
            (Ok(0), _) => return Err(broken(std::io::Error::from(ErrorKind::UnexpectedEof))),
            (Ok(moved), _) => done += moved,
            (Err(error), Some(sleeper)) if error.kind() == ErrorKind::WouldBlock => {
                sleep_until_readable(sleeper)?
            }
            (Err(error), _) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(LOOKS) {
                    interrupt::check()?;
                }
                std::hint::spin_loop();
            }
            (Err(error), _) => return Err(broken(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_that_poll_move_everything_and_hear_of_the_end() {
        for transport in [Transport::UnixPolled, Transport::PipePolled] {
            // More than what the kernel buffers, so that both sides find nothing to do now and then.
            const BYTES: usize = 1 << 20;
            let [ours, theirs] = transport.ends().unwrap();
            let mut here = transport.open(ours, BYTES, false).unwrap();
            let sender = std::thread::spawn(move || {
                transport.open(theirs, BYTES, true).unwrap().send(BYTES, 7).unwrap()
            });
            let received = here.receive(BYTES).unwrap();
            assert_eq!(received, sender.join().unwrap());
            let error = here.receive(8).unwrap_err().to_string();
            assert!(error.contains("end of file"), "{error}");
        }
    }

    #[test]
    fn ends_in_event_loops_sleep_until_something_comes() {
        for transport in [Transport::TrustedLoop, Transport::PipeLoop] {
            let [ours, theirs] = transport.ends().unwrap();
            let sender = std::thread::spawn(move || {
                let mut there = transport.open(theirs, 64, true).unwrap();
                let sent = (0..20).map(|seed| {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    there.send(64, seed).unwrap()
                });
                let sum = sent.fold(0u64, u64::wrapping_add);
                assert_eq!(there.receive(64).unwrap(), super::super::words::sum_of(8, 7));
                sum
            });
            let mut here = transport.open(ours, 64, false).unwrap();
            let received = (0..20).map(|_| here.receive(64).unwrap()).fold(0u64, u64::wrapping_add);
            here.send(64, 7).unwrap();
            assert_eq!(received, sender.join().unwrap(), "{transport:?}");
        }
    }

    #[test]
    fn rivals_have_as_many_buffers_as_a_path() {
        assert_eq!([64, 4 << 10, 64 << 10, 1 << 20].map(buffers), [256, 256, 256, 16]);
        assert_eq!(buffers(32 << 20), 8);
    }
}
