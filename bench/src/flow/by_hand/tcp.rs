//! Streams over TCP, by hand.

use super::{MIB, read_write};
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::fs::File;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

/// A file to who listens: read(2) and write(2).
pub fn send(from: &str, to: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    read_write(&mut File::open(from)?, &mut stream, MIB)?;
    leave(stream)
}

/// A file to who listens: sendfile(2).
pub fn send_pages(from: &str, to: SocketAddr) -> io::Result<()> {
    let stream = TcpStream::connect(to)?;
    let file = File::open(from)?;
    while retried(|| sendfile(&stream, &file, None, MIB))? > 0 {}
    leave(stream)
}

/// Who connects to a file: read(2) and write(2).
pub fn receive(at: SocketAddr, to: &str) -> io::Result<()> {
    read_write(&mut accept(at)?, &mut File::create(to)?, MIB).map(drop)
}

/// Who connects to a file: splice(2) through a pipe.
pub fn receive_pages(at: SocketAddr, to: &str) -> io::Result<()> {
    splice_all(&accept(at)?, &File::create(to)?)
}

/// Who connects to who listens: splice(2) through a pipe, one way.
pub fn forward(at: SocketAddr, to: SocketAddr) -> io::Result<()> {
    let from = accept(at)?;
    let to = TcpStream::connect(to)?;
    splice_all(&from, &to)?;
    leave(to)
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

fn accept(at: SocketAddr) -> io::Result<TcpStream> {
    TcpListener::bind(at)?.accept().map(|accepted| accepted.0)
}

/// Ends the stream and waits until the peer has ended it too, which then has everything.
fn leave(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.read(&mut [0]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::Part;
    use super::*;
    use crate::flow::process::free_address;
    use std::fs;
    use std::thread;
    use std::time::{Duration, Instant};

    /// More than a pipe holds, and no multiple of a page.
    const BYTES: usize = 3 * MIB + 4097;

    /// Runs `part` as soon as it can connect.
    fn run_patiently(part: Part, from: &str, to: &str) {
        let begin = Instant::now();
        while let Err(error) = part.run(from, to, MIB) {
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
                    let ends = [(); 2].map(|()| free_address().unwrap().to_string());
                    thread::scope(|scope| {
                        scope.spawn(|| receive.run(&ends[0], &sink, MIB).unwrap());
                        if forwarded {
                            // It connects as soon as it is connected to: the one behind it has to be there first.
                            thread::sleep(Duration::from_millis(100));
                            scope.spawn(|| Part::ForwardSplice.run(&ends[1], &ends[0], MIB).unwrap());
                        }
                        run_patiently(send, &source, &ends[usize::from(forwarded)]);
                    });
                    assert!(fs::read(&sink).unwrap() == content, "{send:?} {receive:?} {forwarded}");
                }
            }
        }
    }
}
