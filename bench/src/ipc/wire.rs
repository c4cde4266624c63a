//! The ways of the bytes between two processes, each behind the same calls. Whatever the way, every word is written
//! and summed (`words`).

use super::words::{fill, sum};
use crate::error::Error;
use crate::interrupt;
use bywash_container::{Options, Path, Wait};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

/// A way, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Containers that are looked at where they are; an end that waits does it so.
    Trusted(Wait),
    /// As [`Way::Trusted`], for an end that an event loop calls: it takes what is there, arms the path and sleeps in poll(2).
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

const UNIX_LARGE: usize = 4 << 20;
/// Messages on their way at a time on a path.
const DEPTH: u32 = 256;
/// Attempts of an end that polls between two questions whether the bench was interrupted.
const LOOKS: u32 = 1 << 16;

/// Every way and its name on the command line of the second process.
pub const WAYS: &[(&str, Way)] = &[
    ("trusted-spin", Way::Trusted(Wait::Spin)),
    ("trusted-sleep", Way::Trusted(Wait::Sleep)),
    ("trusted-adaptive", Way::Trusted(Wait::Adaptive)),
    ("trusted-loop", Way::TrustedLoop),
    ("checked-spin", Way::Checked(Wait::Spin)),
    ("answers-spin", Way::Answers(Wait::Spin)),
    ("answers-sleep", Way::Answers(Wait::Sleep)),
    ("answers-adaptive", Way::Answers(Wait::Adaptive)),
    ("requests-spin", Way::Requests(Wait::Spin)),
    ("unix", Way::Unix(None)),
    ("unix-large", Way::Unix(Some(UNIX_LARGE))),
    ("unix-polled", Way::UnixPolled),
    ("pipe", Way::Pipe),
    ("pipe-polled", Way::PipePolled),
    ("pipe-loop", Way::PipeLoop),
    ("futex", Way::Futex),
];

/// The name of a way.
pub fn name_of(way: Way) -> &'static str {
    WAYS.iter().find(|(_, known)| *known == way).map_or("?", |(name, _)| name)
}

/// One end of a way.
pub trait Wire {
    /// Sends a message of `bytes`, each word of which is made from `seed`; answers their sum.
    ///
    /// # Errors
    /// What failed.
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Error>;

    /// Receives a message of `bytes` and answers the sum of its words.
    ///
    /// # Errors
    /// What failed, or that it was of another length.
    fn receive(&mut self, bytes: usize) -> Result<u64, Error>;
}

/// What the second process gets as its standard input and output.
pub struct Ends {
    /// This process's: to read from and to write to.
    pub ours: (OwnedFd, OwnedFd),
    /// The other's.
    pub theirs: (OwnedFd, OwnedFd),
}

fn kernel(error: impl Into<std::io::Error>) -> Error {
    Error::failed("two processes", error.into().to_string())
}

/// Size of an end's arena, in bytes, for messages of so many bytes.
fn arena_bytes(bytes: usize) -> usize {
    (bytes * 8).max(16 << 20)
}

/// Messages of so many bytes that can be on their way at a time in containers: those that fit into the arena, and at most
/// the depth of a path. iceoryx2 gets buffers for as many.
pub(super) fn buffers(bytes: usize) -> usize {
    (arena_bytes(bytes) / bytes.max(1)).min(DEPTH as usize)
}

impl Way {
    /// Manner in which an end of this way waits, for notes.
    pub fn waits(self) -> &'static str {
        match self {
            Way::Trusted(wait) | Way::Checked(wait) | Way::Answers(wait) | Way::Requests(wait) => {
                match wait {
                    Wait::Spin => "spins",
                    Wait::Sleep => "sleeps",
                    Wait::Adaptive => "spins, then sleeps",
                }
            }
            Way::TrustedLoop | Way::PipeLoop => "sleeps in poll(2)",
            Way::Unix(_) | Way::Pipe => "sleeps in the kernel",
            Way::UnixPolled | Way::PipePolled => "polls by system calls",
            Way::Futex => "sleeps on a futex",
        }
    }

    /// The same way with ends that poll, for one whose ends sleep in the kernel.
    pub fn polled(self) -> Option<Way> {
        match self {
            Way::Unix(None) => Some(Way::UnixPolled),
            Way::Pipe => Some(Way::PipePolled),
            _ => None,
        }
    }

    /// Makes what connects the two processes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ends(self) -> Result<Ends, Error> {
        if matches!(self, Way::Pipe | Way::PipePolled | Way::PipeLoop) {
            let there = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(kernel)?;
            let back = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(kernel)?;
            return Ok(Ends { ours: (back.0, there.1), theirs: (there.0, back.1) });
        }
        if self == Way::Futex {
            let memory =
                rustix::fs::memfd_create("bywash-bench", rustix::fs::MemfdFlags::CLOEXEC).map_err(kernel)?;
            rustix::fs::ftruncate(&memory, super::futex::BYTES as u64).map_err(kernel)?;
            let both =
                || Ok::<_, Error>((memory.try_clone().map_err(kernel)?, memory.try_clone().map_err(kernel)?));
            return Ok(Ends { ours: both()?, theirs: both()? });
        }
        let kind = if matches!(self, Way::Unix(_) | Way::UnixPolled) {
            SocketType::STREAM
        } else {
            SocketType::SEQPACKET
        };
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).map_err(kernel)?;
        let both = |end: OwnedFd| Ok::<_, Error>((end.try_clone().map_err(kernel)?, end));
        Ok(Ends { ours: both(ours)?, theirs: both(theirs)? })
    }

    /// Opens one end; `second`: that of the second process. `service` names what has no descriptor.
    ///
    /// # Errors
    /// What failed.
    pub fn open(
        self,
        ends: (OwnedFd, OwnedFd),
        bytes: usize,
        second: bool,
        service: &str,
    ) -> Result<Box<dyn Wire>, Error> {
        let _ = (second, service);
        let options = |wait| {
            let options = Options::new().wait(wait).depth(DEPTH).arena_bytes(arena_bytes(bytes));
            options.peer_arena_bytes_max(1 << 30)
        };
        let path =
            |options: Options, ends: (OwnedFd, OwnedFd)| Path::over(ends.1, &options).map_err(container);
        Ok(match self {
            Way::Trusted(wait) => Box::new(Trusted(path(trusted(options(wait)), ends)?)),
            Way::TrustedLoop => Box::new(Looped(Trusted(path(trusted(options(Wait::Sleep)), ends)?))),
            Way::Checked(wait) => {
                Box::new(Checked { path: path(options(wait), ends)?, copy: vec![0; bytes] })
            }
            Way::Answers(wait) | Way::Requests(wait) => {
                super::channel::open(ends.1, bytes, wait, matches!(self, Way::Answers(_)), second)?
            }
            Way::Unix(buffers) => {
                for end in [&ends.0, &ends.1] {
                    if let Some(bytes) = buffers {
                        set_socket_send_buffer_size(end, bytes).map_err(kernel)?;
                        set_socket_recv_buffer_size(end, bytes).map_err(kernel)?;
                    }
                }
                Box::new(Stream::new(ends, bytes))
            }
            Way::Pipe => Box::new(Stream::new(ends, bytes)),
            Way::Futex => Box::new(super::futex::Futex::open(&ends.0, second)?),
            Way::UnixPolled | Way::PipePolled | Way::PipeLoop => {
                for end in [&ends.0, &ends.1] {
                    let flags = fcntl_getfl(end).map_err(kernel)?;
                    fcntl_setfl(end, flags | OFlags::NONBLOCK).map_err(kernel)?;
                }
                let stream = Stream::new(ends, bytes);
                if self == Way::PipeLoop {
                    Box::new(LoopedPipe(Polled(stream)))
                } else {
                    Box::new(Polled(stream))
                }
            }
        })
    }
}

#[expect(unsafe_code, reason = "to trust the peer is the caller's promise")]
pub(super) fn trusted(options: Options) -> Options {
    // SAFETY: the peer is this program, which does not reach around the library.
    unsafe { options.trusted() }
}

/// An error of a path, told as what went wrong with the second process.
pub(super) fn container(error: impl std::fmt::Display) -> Error {
    Error::failed("two processes", error.to_string())
}

pub(super) fn check_length(got: usize, wanted: usize) -> Result<(), Error> {
    match got == wanted {
        true => Ok(()),
        false => Err(Error::failed("two processes", format!("received {got} bytes instead of {wanted}"))),
    }
}

struct Trusted(Path);

impl Wire for Trusted {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Error> {
        let mut container = self.0.alloc(bytes).map_err(self::container)?;
        let sum = fill(&mut container, seed);
        self.0.ship(container).map_err(self::container)?;
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Error> {
        let message = self.0.receive().map_err(container)?;
        check_length(message.len(), bytes)?;
        Ok(sum(&message.first().map().map_err(container)?))
    }
}

/// A path's end in an event loop of its own.
struct Looped(Trusted);

impl Wire for Looped {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Error> {
        self.0.send(bytes, seed)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Error> {
        let path = &self.0.0;
        loop {
            if let Some(message) = path.try_receive().map_err(container)? {
                check_length(message.len(), bytes)?;
                return Ok(sum(&message.first().map().map_err(container)?));
            }
            if !path.arm().map_err(container)? {
                sleep_until_readable(path)?;
            }
        }
    }
}

/// Sleeps until something can be read, as an event loop does.
fn sleep_until_readable(descriptor: &impl AsFd) -> Result<(), Error> {
    loop {
        interrupt::check()?;
        match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(kernel(error)),
        }
    }
}

struct Checked {
    path: Path,
    copy: Vec<u8>,
}

impl Wire for Checked {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Error> {
        let mut container = self.path.alloc(bytes).map_err(self::container)?;
        let sum = fill(&mut container, seed);
        self.path.ship(container).map_err(self::container)?;
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Error> {
        let message = self.path.receive().map_err(container)?;
        check_length(message.len(), bytes)?;
        let copied = message.copy_to(&mut self.copy).map_err(container)?;
        drop(message);
        Ok(sum(&self.copy[..copied]))
    }
}

/// A socket or two pipes.
struct Stream {
    from: File,
    to: File,
    buffer: Vec<u8>,
}

impl Stream {
    fn new(ends: (OwnedFd, OwnedFd), bytes: usize) -> Stream {
        Stream { from: ends.0.into(), to: ends.1.into(), buffer: vec![0; bytes] }
    }
}

impl Wire for Stream {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Error> {
        let sum = fill(&mut self.buffer[..bytes], seed);
        self.to.write_all(&self.buffer[..bytes]).map_err(kernel)?;
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Error> {
        self.from.read_exact(&mut self.buffer[..bytes]).map_err(kernel)?;
        Ok(sum(&self.buffer[..bytes]))
    }
}

/// A socket or two pipes whose descriptors do not block: an end that waits asks again at once.
struct Polled(Stream);

impl Wire for Polled {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Error> {
        let Stream { to, buffer, .. } = &mut self.0;
        let sum = fill(&mut buffer[..bytes], seed);
        poll_until_done(bytes, |done| to.write(&buffer[done..bytes]))?;
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Error> {
        let Stream { from, buffer, .. } = &mut self.0;
        poll_until_done(bytes, |done| from.read(&mut buffer[done..bytes]))?;
        Ok(sum(&buffer[..bytes]))
    }
}

/// Two pipes in an event loop of their own, which sends as one that is polled does.
struct LoopedPipe(Polled);

impl Wire for LoopedPipe {
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Error> {
        self.0.send(bytes, seed)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Error> {
        let Stream { from, buffer, .. } = &mut self.0.0;
        let mut done = 0;
        while done < bytes {
            match from.read(&mut buffer[done..bytes]) {
                Ok(0) => return Err(kernel(ErrorKind::UnexpectedEof)),
                Ok(moved) => done += moved,
                Err(error) if error.kind() == ErrorKind::WouldBlock => sleep_until_readable(from)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(kernel(error)),
            }
        }
        Ok(sum(&buffer[..bytes]))
    }
}

/// Calls `attempt`, which is told how many bytes were moved before, until all `bytes` are.
fn poll_until_done(
    bytes: usize,
    mut attempt: impl FnMut(usize) -> std::io::Result<usize>,
) -> Result<(), Error> {
    let (mut done, mut looks) = (0, 0u32);
    while done < bytes {
        match attempt(done) {
            Ok(0) => return Err(kernel(ErrorKind::UnexpectedEof)),
            Ok(moved) => done += moved,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(LOOKS) {
                    interrupt::check()?;
                }
                std::hint::spin_loop();
            }
            Err(error) => return Err(kernel(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_that_poll_move_everything_and_hear_of_the_end() {
        for way in [Way::UnixPolled, Way::PipePolled] {
            // More than what the kernel buffers, so that both sides find nothing to do now and then.
            const BYTES: usize = 1 << 20;
            let ends = way.ends().unwrap();
            let mut here = way.open(ends.ours, BYTES, false, "").unwrap();
            let theirs = ends.theirs;
            let sender = std::thread::spawn(move || {
                way.open(theirs, BYTES, true, "").unwrap().send(BYTES, 7).unwrap()
            });
            let received = here.receive(BYTES).unwrap();
            assert_eq!(received, sender.join().unwrap());
            let error = here.receive(8).unwrap_err().to_string();
            assert!(error.contains("end of file"), "{error}");
        }
    }

    #[test]
    fn ends_in_event_loops_sleep_until_something_comes() {
        for way in [Way::TrustedLoop, Way::PipeLoop] {
            let ends = way.ends().unwrap();
            let theirs = ends.theirs;
            let sender = std::thread::spawn(move || {
                let mut there = way.open(theirs, 64, true, "").unwrap();
                let sent = (0..20).map(|seed| {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    there.send(64, seed).unwrap()
                });
                let sum = sent.fold(0u64, u64::wrapping_add);
                assert_eq!(there.receive(64).unwrap(), super::super::words::sum_of(8, 7));
                sum
            });
            let mut here = way.open(ends.ours, 64, false, "").unwrap();
            let received = (0..20).map(|_| here.receive(64).unwrap()).fold(0u64, u64::wrapping_add);
            here.send(64, 7).unwrap();
            assert_eq!(received, sender.join().unwrap(), "{way:?}");
        }
    }

    #[test]
    fn rivals_have_as_many_buffers_as_a_path() {
        assert_eq!([64, 4 << 10, 64 << 10, 1 << 20].map(buffers), [256, 256, 256, 16]);
        assert_eq!(buffers(32 << 20), 8);
    }
}
