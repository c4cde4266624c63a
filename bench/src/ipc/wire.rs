//! The ways of the bytes between two processes, each behind the same calls. Whatever the way, every word is written
//! and summed (`words`).

use super::words::{fill, sum};
use crate::error::Error;
use bywash_container::{Options, Path, Wait};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

/// A way, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Containers that are looked at where they are; an end that waits does it so.
    Trusted(Wait),
    /// Containers that are copied out first.
    Checked(Wait),
    /// Requests over a channel, each answered in its buffer.
    Answers(Wait),
    /// Requests over a channel, as many at a time as it is deep, of which the server only takes note.
    Requests(Wait),
    /// A Unix stream socket, with buffers of so many bytes, or the usual ones.
    Unix(Option<usize>),
    /// A pipe for each direction.
    Pipe,
    /// iceoryx2, publish and subscribe, polling.
    #[cfg(feature = "iceoryx2")]
    Iceoryx2,
}

const UNIX_LARGE: usize = 4 << 20;

/// Every way and its name on the command line of the second process.
pub const WAYS: &[(&str, Way)] = &[
    ("trusted-spin", Way::Trusted(Wait::Spin)),
    ("trusted-sleep", Way::Trusted(Wait::Sleep)),
    ("trusted-adaptive", Way::Trusted(Wait::Adaptive)),
    ("checked-spin", Way::Checked(Wait::Spin)),
    ("answers-spin", Way::Answers(Wait::Spin)),
    ("answers-sleep", Way::Answers(Wait::Sleep)),
    ("requests-spin", Way::Requests(Wait::Spin)),
    ("unix", Way::Unix(None)),
    ("unix-large", Way::Unix(Some(UNIX_LARGE))),
    ("pipe", Way::Pipe),
    #[cfg(feature = "iceoryx2")]
    ("iceoryx2", Way::Iceoryx2),
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

impl Way {
    /// Makes what connects the two processes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ends(self) -> Result<Ends, Error> {
        if self == Way::Pipe {
            let there = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(kernel)?;
            let back = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(kernel)?;
            return Ok(Ends { ours: (back.0, there.1), theirs: (there.0, back.1) });
        }
        let kind = if matches!(self, Way::Unix(_)) { SocketType::STREAM } else { SocketType::SEQPACKET };
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
        let options = |wait| Options::new().wait(wait).arena_bytes((bytes * 8).max(16 << 20));
        let path =
            |options: Options, ends: (OwnedFd, OwnedFd)| Path::over(ends.1, &options).map_err(container);
        Ok(match self {
            Way::Trusted(wait) => Box::new(Trusted(path(trusted(options(wait)), ends)?)),
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
            #[cfg(feature = "iceoryx2")]
            Way::Iceoryx2 => Box::new(super::iceoryx2::Iceoryx2::open(bytes, second, service)?),
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
