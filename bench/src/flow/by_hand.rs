//! Movers as one writes them by hand: what flows are compared with besides programs.
//!
//! Each is the straight loop that a programmer who knows the kernel would write for this one pair of ends. They run in
//! processes of their own (`bywash bench flow-peer`), as the flows do, but for [`read_write`], which is also called in
//! this one.

use crate::error::Error;
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;

/// The buffer, the pipe, and the most that one call moves.
pub const MIB: usize = 1 << 20;

/// A hand-written part, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A file to who listens: read(2) and write(2).
    SendReadWrite,
    /// A file to who listens: sendfile(2).
    SendSendfile,
    /// Who connects to a file: read(2) and write(2).
    ReceiveReadWrite,
    /// Who connects to a file: splice(2) through a pipe.
    ReceiveSplice,
    /// Who connects to who listens: splice(2) through a pipe, one way.
    ForwardSplice,
}

const NAMES: [(&str, Part); 5] = [
    ("send-read-write", Part::SendReadWrite),
    ("send-sendfile", Part::SendSendfile),
    ("receive-read-write", Part::ReceiveReadWrite),
    ("receive-splice", Part::ReceiveSplice),
    ("forward-splice", Part::ForwardSplice),
];

impl Part {
    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|known| known.1 == self).map_or("?", |known| known.0)
    }

    /// The part of that name.
    pub fn parse(name: &str) -> Option<Part> {
        NAMES.iter().find(|known| known.0 == name).map(|known| known.1)
    }

    /// Does its work between `from` and `to`, which are files or ports of the loopback interface.
    ///
    /// # Errors
    /// What failed.
    pub fn run(self, from: &str, to: &str) -> Result<(), Error> {
        self.moves(from, to).map_err(|error| Error::io(self.name(), Path::new(from), error))
    }

    fn moves(self, from: &str, to: &str) -> io::Result<()> {
        match self {
            Part::SendReadWrite => {
                let mut stream = connect(to)?;
                read_write(&mut File::open(from)?, &mut stream, MIB)?;
                leave(stream)
            }
            Part::SendSendfile => {
                let stream = connect(to)?;
                let file = File::open(from)?;
                while retried(|| sendfile(&stream, &file, None, MIB))? > 0 {}
                leave(stream)
            }
            Part::ReceiveReadWrite => {
                let mut stream = accept(from)?;
                read_write(&mut stream, &mut File::create(to)?, MIB).map(drop)
            }
            Part::ReceiveSplice => {
                let stream = accept(from)?;
                splice_all(&stream, &File::create(to)?)
            }
            Part::ForwardSplice => {
                let from = accept(from)?;
                let to = connect(to)?;
                splice_all(&from, &to)?;
                leave(to)
            }
        }
    }
}

/// Reads and writes blocks of `block` bytes to the end; answers the bytes.
///
/// # Errors
/// The kernel's.
pub fn read_write(from: &mut impl Read, to: &mut impl Write, block: usize) -> io::Result<u64> {
    let mut buffer = vec![0; block];
    let mut moved = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(moved),
            Ok(length) => {
                to.write_all(&buffer[..length])?;
                moved += length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Through a pipe of a mebibyte, or of what this user may have.
fn splice_all(from: &impl std::os::fd::AsFd, to: &impl std::os::fd::AsFd) -> io::Result<()> {
    let (pipe_out, pipe_in) = pipe_with(PipeFlags::CLOEXEC)?;
    let _ = fcntl_setpipe_size(&pipe_in, MIB);
    loop {
        let mut inside = retried(|| splice(from, None, &pipe_in, None, MIB, SpliceFlags::empty()))?;
        if inside == 0 {
            return Ok(());
        }
        while inside > 0 {
            inside -= retried(|| splice(&pipe_out, None, to, None, inside, SpliceFlags::empty()))?;
        }
    }
}

fn retried(mut call: impl FnMut() -> Result<usize, Errno>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

fn port(text: &str) -> io::Result<u16> {
    text.parse().map_err(|_| io::Error::other(format!("'{text}' is no port")))
}

fn connect(to: &str) -> io::Result<TcpStream> {
    TcpStream::connect(("127.0.0.1", port(to)?))
}

fn accept(at: &str) -> io::Result<TcpStream> {
    TcpListener::bind(("127.0.0.1", port(at)?))?.accept().map(|accepted| accepted.0)
}

/// Ends the stream and waits until the peer has ended it too, which then has everything.
fn leave(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.read(&mut [0]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::process::free_port;
    use super::*;
    use std::fs;
    use std::thread;
    use std::time::{Duration, Instant};

    /// More than a pipe holds, and no multiple of a page.
    const BYTES: usize = 3 * MIB + 4097;

    /// Runs `part` as soon as it can connect.
    fn run_patiently(part: Part, from: &str, to: &str) {
        let begin = Instant::now();
        while let Err(error) = part.run(from, to) {
            assert!(
                error.to_string().contains("refused") && begin.elapsed() < Duration::from_secs(10),
                "{error}"
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn every_pair_moves_equal_bytes_also_through_a_forwarder() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (source, sink) = (path("source"), path("sink"));
        let content: Vec<u8> = (0..BYTES).map(|at| (at * 7 + at / 251) as u8).collect();
        fs::write(&source, &content).unwrap();
        for send in [Part::SendReadWrite, Part::SendSendfile] {
            for receive in [Part::ReceiveReadWrite, Part::ReceiveSplice] {
                for forwarded in [false, true] {
                    let _ = fs::remove_file(&sink);
                    let ports = [free_port().unwrap().to_string(), free_port().unwrap().to_string()];
                    thread::scope(|scope| {
                        scope.spawn(|| receive.run(&ports[0], &sink).unwrap());
                        if forwarded {
                            // It connects as soon as it is connected to: the one behind it has to be there first.
                            thread::sleep(Duration::from_millis(100));
                            scope.spawn(|| Part::ForwardSplice.run(&ports[1], &ports[0]).unwrap());
                        }
                        run_patiently(send, &source, &ports[usize::from(forwarded)]);
                    });
                    assert!(fs::read(&sink).unwrap() == content, "{send:?} {receive:?} {forwarded}");
                }
            }
        }
    }

    #[test]
    fn blocks_of_any_size_move_everything() {
        let content: Vec<u8> = (0..10_000).map(|at| at as u8).collect();
        for block in [1, 1000, MIB] {
            let mut moved = Vec::new();
            assert_eq!(read_write(&mut content.as_slice(), &mut moved, block).unwrap(), 10_000);
            assert_eq!(moved, content);
        }
    }

    #[test]
    fn every_part_has_a_name() {
        for (name, part) in NAMES {
            assert_eq!((Part::parse(name), part.name()), (Some(part), name));
        }
        assert_eq!(Part::parse("send"), None);
    }
}
