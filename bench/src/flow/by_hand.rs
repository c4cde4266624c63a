//! Movers as a programmer writes them for one pair of ends: the peers of flows besides programs.
//!
//! They run in processes of their own (`bywash bench peer flow`), as the flows do; [`read_write`] is also called in the
//! bench's process.
//!
//! Datagrams are sent by one call each, and nobody looks whether they arrive. An empty datagram marks the end. It is sent
//! several times, since any of them may be lost; if all are, silence marks the end.

use crate::error::Error;
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Names of the loops that move a stream.
pub const SEND_READ_WRITE: &str = "send-read-write";
pub const SEND_SENDFILE: &str = "send-sendfile";
pub const RECEIVE_READ_WRITE: &str = "receive-read-write";
pub const RECEIVE_SPLICE: &str = "receive-splice";
pub const FORWARD_SPLICE: &str = "forward-splice";
/// Names of the loops that move datagrams.
pub const SEND_DATAGRAMS: &str = "send-datagrams";
pub const RECEIVE_DATAGRAMS: &str = "receive-datagrams";
pub const FORWARD_DATAGRAMS: &str = "forward-datagrams";

/// Size of the buffer, of the pipe, and of what one call moves of a stream, in bytes.
const MIB: usize = 1 << 20;
/// Number of datagrams that mark the end, and the time between them.
const ENDS: u32 = 10;
const BETWEEN_ENDS: Duration = Duration::from_millis(2);
/// Time without a datagram that marks the end.
const SILENCE: Duration = Duration::from_millis(500);
/// Greatest time until the first datagram arrives.
const TIMEOUT: Duration = Duration::from_secs(20);
/// More than the largest datagram.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;

/// Runs the loop of that name between `from` and `to`, which are files or addresses; datagrams are sent with `block` bytes.
/// The receiver of datagrams prints how many bytes arrived and how long it waited at the end, in seconds.
///
/// # Errors
/// [`Error::Usage`] if there is no such loop, [`Error::Io`] with what the kernel refused.
pub fn peer(name: &str, from: &str, to: &str, block: usize) -> Result<(), Error> {
    let address = |text: &str| {
        text.parse::<SocketAddr>()
            .map_err(|_| Error::Usage(format!("'{text}' is no address with a port, such as 127.0.0.1:7301")))
    };
    let ended = match name {
        SEND_READ_WRITE => send(from, address(to)?),
        SEND_SENDFILE => send_pages(from, address(to)?),
        RECEIVE_READ_WRITE => receive(address(from)?, to),
        RECEIVE_SPLICE => receive_pages(address(from)?, to),
        FORWARD_SPLICE => forward(address(from)?, address(to)?),
        SEND_DATAGRAMS => send_datagrams(from, address(to)?, block),
        RECEIVE_DATAGRAMS => receive_datagrams(address(from)?, to)
            .and_then(|(bytes, silence)| writeln!(io::stdout(), "{bytes} {}", silence.as_secs_f64())),
        FORWARD_DATAGRAMS => forward_datagrams(address(from)?, address(to)?),
        _ => return Err(Error::Usage(format!("there is no hand-written loop '{name}'"))),
    };
    ended.map_err(|error| Error::io(name, Path::new(from), error))
}

/// Reads and writes blocks of `block` bytes until the end.
///
/// # Errors
/// The kernel's.
pub fn read_write(from: &mut impl Read, to: &mut impl Write, block: usize) -> io::Result<()> {
    let mut buffer = vec![0; block];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => to.write_all(&buffer[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn send(from: &str, to: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    read_write(&mut File::open(from)?, &mut stream, MIB)?;
    leave(stream)
}

fn send_pages(from: &str, to: SocketAddr) -> io::Result<()> {
    let stream = TcpStream::connect(to)?;
    let file = File::open(from)?;
    while retried(|| sendfile(&stream, &file, None, MIB))? > 0 {}
    leave(stream)
}

fn receive(at: SocketAddr, to: &str) -> io::Result<()> {
    read_write(&mut accept(at)?, &mut File::create(to)?, MIB)
}

fn receive_pages(at: SocketAddr, to: &str) -> io::Result<()> {
    splice_all(&accept(at)?, &File::create(to)?)
}

fn forward(at: SocketAddr, to: SocketAddr) -> io::Result<()> {
    let from = accept(at)?;
    let to = TcpStream::connect(to)?;
    splice_all(&from, &to)?;
    leave(to)
}

/// Moves a stream through a pipe of a mebibyte, or of the size that this user may have.
fn splice_all(from: &impl AsFd, to: &impl AsFd) -> io::Result<()> {
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

/// Ends the stream and waits until the peer has ended it too, which then has all bytes.
fn leave(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.read(&mut [0]).map(drop)
}

fn send_datagrams(from: &str, to: SocketAddr, block: usize) -> io::Result<()> {
    let (mut file, socket) = (File::open(from)?, connected(to)?);
    let mut buffer = vec![0; block];
    loop {
        match file.read(&mut buffer)? {
            0 => return end(&socket),
            read => put(&socket, &buffer[..read])?,
        }
    }
}

/// Writes datagrams to a file; returns their bytes, and the silence at the end.
fn receive_datagrams(at: SocketAddr, to: &str) -> io::Result<(u64, Duration)> {
    let mut file = File::create(to)?;
    let mut bytes = 0;
    let silence = each(&UdpSocket::bind(at)?, |datagram| {
        bytes += datagram.len() as u64;
        file.write_all(datagram)
    })?;
    Ok((bytes, silence))
}

/// Passes datagrams on, and the answers to the first sender.
fn forward_datagrams(at: SocketAddr, to: SocketAddr) -> io::Result<()> {
    let (here, there) = (UdpSocket::bind(at)?, connected(to)?);
    let (from_there, to_here) = (there.try_clone()?, here.try_clone()?);
    // Beside the loop that is measured; it ends with the process.
    thread::spawn(move || -> io::Result<()> {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let sender = to_here.peek_from(&mut [0])?.1;
        loop {
            let length = from_there.recv(&mut buffer)?;
            to_here.send_to(&buffer[..length], sender)?;
        }
    });
    each(&here, |datagram| put(&there, datagram))?;
    end(&there)
}

/// Passes every datagram to `take`; returns the silence at the end.
fn each(socket: &UdpSocket, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<Duration> {
    socket.set_read_timeout(Some(TIMEOUT))?;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut is_first = true;
    loop {
        match socket.recv(&mut buffer) {
            Ok(0) => return Ok(Duration::ZERO),
            Ok(length) => take(&buffer[..length])?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !is_first => return Ok(SILENCE),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if std::mem::take(&mut is_first) {
            socket.set_read_timeout(Some(SILENCE))?;
        }
    }
}

fn connected(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(to)?;
    Ok(socket)
}

/// Sends a datagram; one that is refused counts as lost on its way.
fn put(socket: &UdpSocket, datagram: &[u8]) -> io::Result<()> {
    match socket.send(datagram) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        other => other.map(drop),
    }
}

fn end(socket: &UdpSocket) -> io::Result<()> {
    for _ in 0..ENDS {
        put(socket, &[])?;
        thread::sleep(BETWEEN_ENDS);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::process::free_address;
    use super::*;
    use std::fs;
    use std::time::Instant;

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    /// Runs a loop as soon as it can connect.
    fn run_patiently(name: &str, from: &str, to: &str) {
        let begin = Instant::now();
        while let Err(error) = peer(name, from, to, MIB) {
            let is_early = error.to_string().contains("refused") && begin.elapsed() < Duration::from_secs(10);
            assert!(is_early, "{error}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn blocks_of_any_size_move_everything() {
        for block in [1, 1000, MIB] {
            let mut moved = Vec::new();
            read_write(&mut content(10_000).as_slice(), &mut moved, block).unwrap();
            assert_eq!(moved, content(10_000));
        }
        assert!(matches!(peer("send", "x", "y", 0), Err(Error::Usage(_))));
    }

    #[test]
    fn every_pair_moves_equal_bytes_also_through_a_forwarder() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (source, sink) = (path("source"), path("sink"));
        // More than a pipe holds, and no multiple of a page.
        fs::write(&source, content(3 * MIB + 4097)).unwrap();
        for send in [SEND_READ_WRITE, SEND_SENDFILE] {
            for receive in [RECEIVE_READ_WRITE, RECEIVE_SPLICE] {
                for forwarded in [false, true] {
                    let _ = fs::remove_file(&sink);
                    let ends = [(); 2].map(|()| free_address().unwrap().to_string());
                    thread::scope(|scope| {
                        scope.spawn(|| peer(receive, &ends[0], &sink, MIB).unwrap());
                        if forwarded {
                            // A forwarder connects as soon as its peer does: the receiver has to listen before.
                            thread::sleep(Duration::from_millis(100));
                            scope.spawn(|| peer(FORWARD_SPLICE, &ends[1], &ends[0], MIB).unwrap());
                        }
                        run_patiently(send, &source, &ends[usize::from(forwarded)]);
                    });
                    assert!(
                        fs::read(&sink).unwrap() == content(3 * MIB + 4097),
                        "{send} {receive} {forwarded}"
                    );
                }
            }
        }
    }

    #[test]
    fn datagrams_come_through_a_forwarder_and_end() {
        let folder = tempfile::tempdir().unwrap();
        let (source, sink) = (folder.path().join("source"), folder.path().join("sink"));
        // Few enough for any buffer.
        fs::write(&source, content(50_000)).unwrap();
        let [first, second] = [(); 2].map(|()| free_address().unwrap());
        let (bytes, silence) = thread::scope(|scope| {
            let receiver = scope.spawn(|| receive_datagrams(second, sink.to_str().unwrap()).unwrap());
            thread::sleep(Duration::from_millis(100));
            let forwarder = scope.spawn(|| forward_datagrams(first, second).unwrap());
            thread::sleep(Duration::from_millis(100));
            send_datagrams(source.to_str().unwrap(), first, 1000).unwrap();
            forwarder.join().unwrap();
            receiver.join().unwrap()
        });
        assert_eq!((bytes, silence), (50_000, Duration::ZERO));
        assert!(fs::read(&sink).unwrap() == content(50_000));
    }
}
