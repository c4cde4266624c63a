//! Datagrams over UDP, by hand: one call for each, and nobody who looks whether they come.
//!
//! An empty datagram says that no more comes. It is sent several times, as any of them may be lost; should all of them
//! be, silence says the same.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

/// How often, and how far apart, the end is said.
const ENDS: u32 = 10;
const BETWEEN_ENDS: Duration = Duration::from_millis(2);
/// So long nothing has come: the end.
const SILENCE: Duration = Duration::from_millis(500);
/// Before the first datagram comes.
const PATIENCE: Duration = Duration::from_secs(20);
/// More than the largest datagram.
const ROOM: usize = 1 << 16;

/// A file as datagrams of `block` bytes.
pub fn send(from: &str, to: SocketAddr, block: usize) -> io::Result<()> {
    let (mut file, socket) = (File::open(from)?, socket_to(to)?);
    let mut buffer = vec![0; block];
    loop {
        match file.read(&mut buffer)? {
            0 => return end(&socket),
            read => put(&socket, &buffer[..read])?,
        }
    }
}

/// Datagrams to a file; answers their bytes, and for how long nothing came at the end.
pub fn receive(at: SocketAddr, to: &str) -> io::Result<(u64, Duration)> {
    let mut file = File::create(to)?;
    let mut bytes = 0;
    let silence = each(&UdpSocket::bind(at)?, |datagram| {
        bytes += datagram.len() as u64;
        file.write_all(datagram)
    })?;
    Ok((bytes, silence))
}

/// Datagrams from here to there, and what is answered to whoever sent first.
pub fn forward(at: SocketAddr, to: SocketAddr) -> io::Result<()> {
    let (here, there) = (UdpSocket::bind(at)?, socket_to(to)?);
    let (from_there, to_here) = (there.try_clone()?, here.try_clone()?);
    // Beside the loop that is measured; it ends with the process.
    thread::spawn(move || -> io::Result<()> {
        let mut room = vec![0; ROOM];
        let sender = to_here.peek_from(&mut [0])?.1;
        loop {
            let length = from_there.recv(&mut room)?;
            to_here.send_to(&room[..length], sender)?;
        }
    });
    each(&here, |datagram| put(&there, datagram))?;
    end(&there)
}

/// Gives `take` every datagram that comes; answers for how long nothing came at the end.
fn each(socket: &UdpSocket, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<Duration> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut room = vec![0; ROOM];
    let mut is_first = true;
    loop {
        match socket.recv(&mut room) {
            Ok(0) => return Ok(Duration::ZERO),
            Ok(length) => take(&room[..length])?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !is_first => return Ok(SILENCE),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if std::mem::take(&mut is_first) {
            socket.set_read_timeout(Some(SILENCE))?;
        }
    }
}

fn socket_to(to: SocketAddr) -> io::Result<UdpSocket> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    Ok(socket)
}

/// What is refused is lost, like what is dropped on its way.
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
    use super::*;
    use crate::flow::process::free_address;

    #[test]
    fn datagrams_come_through_a_forwarder_and_end() {
        let folder = tempfile::tempdir().unwrap();
        let (source, sink) = (folder.path().join("source"), folder.path().join("sink"));
        // Few enough for any buffer.
        let content: Vec<u8> = (0..50_000).map(|at| (at * 7 + at / 251) as u8).collect();
        std::fs::write(&source, &content).unwrap();
        let [first, second] = [(); 2].map(|()| free_address().unwrap());
        let (bytes, silence) = thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(second, sink.to_str().unwrap()).unwrap());
            thread::sleep(Duration::from_millis(100));
            let forwarder = scope.spawn(|| forward(first, second).unwrap());
            thread::sleep(Duration::from_millis(100));
            send(source.to_str().unwrap(), first, 1000).unwrap();
            forwarder.join().unwrap();
            receiver.join().unwrap()
        });
        assert_eq!((bytes, silence), (50_000, Duration::ZERO));
        assert!(std::fs::read(&sink).unwrap() == content);
    }
}
