//! Movers as a programmer writes them for one pair of ends: the peers of flows besides programs.
//!
//! They run in processes of their own (`bywash bench peer flow`), as the flows do; [`read_write`] is also called in the
//! bench's process.
//!
//! Datagrams are sent by one call each, and nobody looks whether they arrive. An empty datagram marks the end. It is sent
//! several times, since any of them may be lost; if all are, silence marks the end.

use crate::error::Error;
use rustix::fs::sendfile;
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

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

/// Runs the loop `name` between `from` and `to`, which are files or addresses. A name is a task (`send` a file, `receive`
/// one, `forward`) and the means. Datagrams are sent with `block` bytes; their receiver prints how many bytes arrived and
/// how long it waited at the end, in seconds.
pub fn peer(name: &str, from: &str, to: &str, block: usize) -> Result<(), Error> {
    let (task, means) = name.split_once('-').unwrap_or((name, ""));
    let ended = match (task, means) {
        ("send", "datagrams") => send_datagrams(from, to, block),
        ("receive", "datagrams") => receive_datagrams(from, to),
        ("forward", "datagrams") => forward_datagrams(from, to),
        ("send" | "receive" | "forward", "read-write") => {
            stream(task, from, to, |from, to| read_write(from, to, MIB))
        }
        ("send", "sendfile") => stream(task, from, to, sendfile_all),
        ("receive" | "forward", "splice") => stream(task, from, to, splice_all),
        ("accel", part) => super::accel::peer(part, Path::new(from), Path::new(to)),
        _ => return Err(Error::Usage(format!("there is no hand-written loop '{name}'"))),
    };
    ended.map_err(|error| Error::io(name, Path::new(from), error))
}

/// Opens both ends of a stream and moves everything by `move_all`. A connection that it made ends when the peer has ended
/// it too, which then has all bytes.
fn stream(
    task: &str,
    from: &str,
    to: &str,
    move_all: fn(&mut File, &mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut source = match task {
        "send" => File::open(from)?,
        _ => File::from(OwnedFd::from(TcpListener::bind(from)?.accept()?.0)),
    };
    if task == "receive" {
        return move_all(&mut source, &mut File::create(to)?);
    }
    let mut connection = TcpStream::connect(to)?;
    move_all(&mut source, &mut File::from(OwnedFd::from(connection.try_clone()?)))?;
    connection.shutdown(Shutdown::Write)?;
    connection.read(&mut [0]).map(drop)
}

/// Reads and writes blocks of `block` bytes until the end.
pub fn read_write(from: &mut File, to: &mut File, block: usize) -> io::Result<()> {
    each(block, |buffer| from.read(buffer), |bytes| to.write_all(bytes))
}

/// Passes every block that is read to `write`, until one is empty.
fn each(
    block: usize,
    mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; block];
    loop {
        match read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => write(&buffer[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn sendfile_all(from: &mut File, to: &mut File) -> io::Result<()> {
    while retry_on_intr(|| sendfile(&*to, &*from, None, MIB))? > 0 {}
    Ok(())
}

/// Moves a stream through a pipe of a mebibyte, or of the size that this user may have.
fn splice_all(from: &mut File, to: &mut File) -> io::Result<()> {
    let (pipe_out, pipe_in) = pipe_with(PipeFlags::CLOEXEC)?;
    let _ = fcntl_setpipe_size(&pipe_in, MIB);
    loop {
        let mut inside = retry_on_intr(|| splice(&*from, None, &pipe_in, None, MIB, SpliceFlags::empty()))?;
        if inside == 0 {
            return Ok(());
        }
        while inside > 0 {
            inside -= retry_on_intr(|| splice(&pipe_out, None, &*to, None, inside, SpliceFlags::empty()))?;
        }
    }
}

fn send_datagrams(from: &str, to: &str, block: usize) -> io::Result<()> {
    let (mut file, socket) = (File::open(from)?, connected(to)?);
    each(block, |buffer| file.read(buffer), |datagram| put(&socket, datagram))?;
    end(&socket)
}

fn receive_datagrams(at: &str, to: &str) -> io::Result<()> {
    let (mut file, mut bytes) = (File::create(to)?, 0);
    let silence = each_datagram(&UdpSocket::bind(at)?, |datagram| {
        bytes += datagram.len();
        file.write_all(datagram)
    })?;
    writeln!(io::stdout(), "[{bytes}, {silence}]")
}

/// Passes datagrams on, and the answers to the first sender.
fn forward_datagrams(at: &str, to: &str) -> io::Result<()> {
    let (here, there) = (UdpSocket::bind(at)?, connected(to)?);
    let (from_there, to_here) = (there.try_clone()?, here.try_clone()?);
    // Beside the loop that is measured; it ends with the process.
    thread::spawn(move || {
        let sender = to_here.peek_from(&mut [0])?.1;
        let answer = |datagram: &[u8]| to_here.send_to(datagram, sender).map(drop);
        each(DATAGRAM_BYTES_MAX, |buffer| from_there.recv(buffer), answer)
    });
    each_datagram(&here, |datagram| put(&there, datagram))?;
    end(&there)
}

/// Passes every datagram to `take`; returns the silence at the end, in seconds.
fn each_datagram(socket: &UdpSocket, take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<f64> {
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.peek(&mut [0])?;
    socket.set_read_timeout(Some(SILENCE))?;
    match each(DATAGRAM_BYTES_MAX, |buffer| socket.recv(buffer), take) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(SILENCE.as_secs_f64()),
        ended => ended.map(|()| 0.0),
    }
}

fn connected(to: &str) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
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
    use super::super::transfer::free_address;
    use super::*;
    use std::fs;

    #[test]
    fn every_pair_moves_equal_bytes_also_through_a_forwarder() {
        let folder = tempfile::tempdir().unwrap();
        let [source, sink] = ["source", "sink"].map(|name| folder.path().join(name).display().to_string());
        // A receiver listens before its sender connects.
        let later = || thread::sleep(Duration::from_millis(200));
        for (send, forward, receive, bytes) in [
            // More than a pipe holds, and no multiple of a page.
            ("send-read-write", "forward-splice", "receive-splice", 3 * MIB + 4097),
            ("send-sendfile", "forward-read-write", "receive-read-write", 3 * MIB + 4097),
            // Few enough for any buffer.
            ("send-datagrams", "forward-datagrams", "receive-datagrams", 50_000),
        ] {
            let content: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect();
            fs::write(&source, &content).unwrap();
            let [first, last] = [(); 2].map(|()| free_address().unwrap().to_string());
            thread::scope(|scope| {
                scope.spawn(|| peer(receive, &last, &sink, 1000).unwrap());
                later();
                scope.spawn(|| peer(forward, &first, &last, 1000).unwrap());
                later();
                peer(send, &source, &first, 1000).unwrap();
            });
            assert!(fs::read(&sink).unwrap() == content, "{send}");
        }
        assert!(matches!(peer("send", "x", "y", 0), Err(Error::Usage(_))));
    }
}
