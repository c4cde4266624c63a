//! Servers of NBD clients, and the engine that is the client of each of them.
//!
//! The engine sends all requests that were submitted by one system call, and receives all replies that are there by one,
//! which are simple ones. It sleeps while there are none, as the clients of NBD do. One of the servers does nothing but to
//! receive, copy and send: with the same client no other can be much faster.

use super::file::Buffers;
use super::moved::FILLING;
use super::workload::{Direction, Engine, Request, Tag, Workload};
use crate::error::{Attempt, Error};
use serde::{Deserialize, Serialize};
use std::io::{IoSlice, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use vm_memory::{Bytes, VolatileSlice};

/// Size of a request's header, in bytes.
const REQUEST: usize = 28;
/// Size of a reply's header, in bytes.
const REPLY: usize = 16;
/// Room for what is received, in bytes.
const RECEIVED: usize = 1 << 20;
/// Size of the greeting of a server, in bytes.
const GREETING: usize = 18;
/// Size of the reply that ends the handshake, in bytes.
const EXPORT_REPLY: usize = 10;
/// Name of the export of each server.
pub const EXPORT: &str = "disk";
/// Size of a write that fills a medium, in bytes.
const FILL_BYTES: usize = 1 << 20;
/// Client flags: the fixed newstyle, and no zeros behind the reply that ends the handshake.
const FLAGS: [u8; 4] = 3u32.to_be_bytes();
/// Greatest time without a reply.
const LIMIT: Duration = Duration::from_secs(10);

fn failed(how: impl Into<String>) -> Error {
    Error::failed("the server", how.into())
}

/// Server of NBD clients, whose medium is memory or a file in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NbdServer {
    /// A volume of our server, exported by a process of its own.
    Ours,
    /// qemu-storage-daemon over a file of a tmpfs.
    Daemon,
    /// nbdkit's memory plugin.
    Nbdkit,
    /// A server that does nothing but to receive, copy and send: a bound.
    Bare,
}

impl NbdServer {
    pub fn name(self) -> &'static str {
        match self {
            NbdServer::Ours => "NBD",
            NbdServer::Daemon => "tmpfs: qemu-storage-daemon, NBD",
            NbdServer::Nbdkit => "nbdkit, memory plugin",
            NbdServer::Bare => "bound: a bare NBD server",
        }
    }
}

/// Medium behind an NBD server.
pub struct Nbd {
    stream: UnixStream,
    buffers: Buffers,
    block: usize,
    directions: Vec<Direction>,
    in_flight: usize,
    /// Requests that were submitted and not sent.
    unsent: Vec<u8>,
    received: Vec<u8>,
    /// Bytes of `received` that are not consumed.
    filled: std::ops::Range<usize>,
}

impl Nbd {
    /// Connects to the server at `socket`, for requests of `workload`.
    pub fn connect(socket: &Path, workload: &Workload) -> Result<Nbd, Error> {
        let (stream, bytes) =
            attach(socket).map_err(|error| failed(format!("at {}: {error}", socket.display())))?;
        workload.check_size(bytes)?;
        Ok(Nbd {
            stream,
            buffers: Buffers::alone(workload)?,
            block: workload.block,
            directions: vec![Direction::Read; workload.depth],
            in_flight: 0,
            unsent: Vec::new(),
            received: vec![0; RECEIVED],
            filled: 0..0,
        })
    }

    /// Takes the replies that are there wholly.
    fn take(&mut self, done: &mut Vec<Tag>) -> Result<(), Error> {
        loop {
            let received = &self.received[self.filled.clone()];
            let Some(head) = received.first_chunk::<REPLY>() else { return Ok(()) };
            let [m0, m1, m2, m3, e0, e1, e2, e3, _, _, _, _, _, _, t0, t1] = *head;
            if [m0, m1, m2, m3] != 0x6744_6698u32.to_be_bytes() {
                return Err(failed("breaks the protocol: a reply does not begin with the magic number"));
            }
            let (error, tag) = (u32::from_be_bytes([e0, e1, e2, e3]), u16::from_be_bytes([t0, t1]));
            if error != 0 {
                return Err(Error::failed("a request", format!("ended with the protocol's error {error}")));
            }
            let Some(direction) = self.directions.get(usize::from(tag)) else {
                return Err(failed(format!("breaks the protocol: a reply to request {tag}")));
            };
            let bytes = if *direction == Direction::Read { self.block } else { 0 };
            let Some(data) = received.get(REPLY..REPLY + bytes) else { return Ok(()) };
            if bytes > 0 {
                self.buffers.buffer(tag).copy_from(data);
            }
            self.filled.start += REPLY + bytes;
            self.in_flight -= 1;
            done.push(tag);
        }
    }
}

impl Engine for Nbd {
    fn submit(&mut self, Request { tag, direction, offset }: Request) -> Result<(), Error> {
        self.directions[usize::from(tag)] = direction;
        self.unsent.extend(head(direction, tag.into(), offset, self.block as u32));
        if direction == Direction::Write {
            let begin = self.unsent.len();
            self.unsent.resize(begin + self.block, 0);
            let buffer = self.buffers.buffer(tag);
            let copied = buffer.read_slice(&mut self.unsent[begin..], 0);
            copied.map_err(|error| Error::failed("a buffer", error.to_string()))?;
        }
        self.in_flight += 1;
        Ok(())
    }

    fn reap(&mut self, _: usize, done: &mut Vec<Tag>) -> Result<(), Error> {
        let gone = |error: std::io::Error| failed(format!("is gone: {error}"));
        self.stream.write_all(&self.unsent).map_err(gone)?;
        self.unsent.clear();
        let before = done.len();
        loop {
            self.take(done)?;
            if done.len() > before {
                return Ok(());
            }
            self.received.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
            match self.stream.read(&mut self.received[self.filled.end..]).map_err(gone)? {
                0 => return Err(failed(format!("is gone, with {} requests in flight", self.in_flight))),
                bytes => self.filled.end += bytes,
            }
        }
    }

    fn buffer(&mut self, tag: Tag) -> VolatileSlice<'_> {
        self.buffers.buffer(tag)
    }
}

/// Connects to the export of the server at `socket`. Returns the connection, and the size of the export.
fn attach(socket: &Path) -> std::io::Result<(UnixStream, u64)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.read_exact(&mut [0; GREETING])?;
    // EXPORT_NAME, which every server knows.
    let length = (EXPORT.len() as u32).to_be_bytes();
    let option = [&FLAGS[..], b"IHAVEOPT", &1u32.to_be_bytes(), &length, EXPORT.as_bytes()];
    stream.write_all(&option.concat())?;
    let mut export = [0; EXPORT_REPLY];
    stream.read_exact(&mut export)?;
    Ok((stream, export.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))))
}

/// Fills the export of the server at `socket`.
pub fn fill(socket: &Path, bytes: u64) -> Result<(), Error> {
    let filled = || -> std::io::Result<()> {
        let (mut stream, _) = attach(socket)?;
        let filling = vec![FILLING; FILL_BYTES];
        for offset in (0..bytes).step_by(FILL_BYTES) {
            let data = &filling[..FILL_BYTES.min((bytes - offset) as usize)];
            stream.write_all(&head(Direction::Write, 0, offset, data.len() as u32))?;
            stream.write_all(data)?;
            stream.read_exact(&mut [0; REPLY])?;
        }
        Ok(())
    };
    filled().doing("fill the export at", socket)
}

/// Returns the header of a request.
fn head(direction: Direction, cookie: u64, offset: u64, length: u32) -> [u8; REQUEST] {
    let mut head = [0; REQUEST];
    head[..4].copy_from_slice(&0x2560_9513u32.to_be_bytes());
    head[7] = u8::from(direction == Direction::Write);
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    head[16..24].copy_from_slice(&offset.to_be_bytes());
    head[24..].copy_from_slice(&length.to_be_bytes());
    head
}

/// Serves memory of `bytes` bytes to one client, with nothing in between: no check, no other client, no other request than
/// reads and writes. Calls `ready` when clients can connect, which returns when the server may end.
pub fn serve_bare(
    socket: &Path,
    bytes: usize,
    ready: impl FnOnce() -> Result<(), Error> + Send,
) -> Result<(), Error> {
    // An earlier server may have left its socket.
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).doing("listen at", socket)?;
    let mut memory = vec![FILLING; bytes];
    std::thread::scope(|scope| {
        // The end of `ready` is the end of the bench's side; the client is gone by then.
        let waiting = scope.spawn(ready);
        let (stream, _) = listener.accept().doing("accept a client at", socket)?;
        // A client that breaks the protocol, or goes, is the end.
        let _ = serve_client(stream, &mut memory);
        waiting.join().unwrap_or_else(|_| Err(failed("has panicked")))
    })
}

fn serve_client(mut stream: UnixStream, memory: &mut [u8]) -> std::io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    stream.read_exact(&mut [0; 4 + 16 + EXPORT.len()])?;
    stream.write_all(&[&(memory.len() as u64).to_be_bytes()[..], &[0, 1]].concat())?;
    let (mut received, mut filled) = (vec![0; RECEIVED], 0..0);
    let mut replies: Vec<([u8; REPLY], std::ops::Range<usize>)> = Vec::new();
    loop {
        let input = &received[filled.clone()];
        let header = input.first_chunk::<REQUEST>().map(|head| {
            let cookie: [u8; 8] = std::array::from_fn(|at| head[8 + at]);
            let offset = u64::from_be_bytes(std::array::from_fn(|at| head[16 + at])) as usize;
            let length = u32::from_be_bytes(std::array::from_fn(|at| head[24 + at])) as usize;
            (head[7] == 1, cookie, offset, length)
        });
        let payload = header.map_or(0, |(is_write, .., length)| if is_write { length } else { 0 });
        match header {
            Some((is_write, cookie, offset, length)) if input.len() >= REQUEST + payload => {
                let mut reply = [0; REPLY];
                reply[..4].copy_from_slice(&0x6744_6698u32.to_be_bytes());
                reply[8..].copy_from_slice(&cookie);
                let range = offset..offset + length;
                if is_write {
                    memory[range].copy_from_slice(&input[REQUEST..REQUEST + length]);
                    replies.push((reply, 0..0));
                } else {
                    replies.push((reply, range));
                }
                filled.start += REQUEST + payload;
                continue;
            }
            _ => {}
        }
        let parts = replies.iter().flat_map(|(head, range)| [&head[..], &memory[range.clone()]]);
        let mut parts: Vec<IoSlice> = parts.map(IoSlice::new).collect();
        let mut unsent = &mut parts[..];
        while !unsent.is_empty() {
            let sent = stream.write_vectored(unsent)?;
            IoSlice::advance_slices(&mut unsent, sent);
        }
        replies.clear();
        received.copy_within(filled.clone(), 0);
        filled = 0..filled.len();
        match stream.read(&mut received[filled.end..])? {
            0 => return Ok(()),
            bytes => filled.end += bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::drive;
    use super::super::workload::tests::workload;
    use super::*;

    #[test]
    fn the_bare_server_stores_what_the_engine_writes() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("nbd");
        let path = socket.clone();
        let (sender, listening) = std::sync::mpsc::channel();
        let listens = move || {
            sender.send(()).unwrap();
            Ok(())
        };
        let server = std::thread::spawn(move || serve_bare(&path, 1 << 20, listens));
        listening.recv().unwrap();
        let workload = workload(8, 1000);
        let mut engine = Nbd::connect(&socket, &workload).unwrap();
        (0..8).for_each(|tag| engine.buffer(tag).copy_from(&[tag as u8 + 1; 4096]));
        assert_eq!(drive(&mut engine, &workload).unwrap().requests, 1000);
        engine.submit(Request { tag: 0, direction: Direction::Read, offset: 4096 }).unwrap();
        let mut done = Vec::new();
        engine.reap(1, &mut done).unwrap();
        assert_eq!(done, [0]);
        let mut block = [0u8; 4096];
        engine.buffer(0).copy_to(&mut block);
        assert!((1..=8).contains(&block[0]) && block == [block[0]; 4096]);
        drop(engine);
        server.join().unwrap().unwrap();
    }
}
