//! A client that writes and reads messages byte by byte, as proto.md of the NBD project describes them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const FAST_ZERO: u16 = 16;

pub const EXPORT_NAME: u32 = 1;
pub const LIST: u32 = 3;
pub const GO: u32 = 7;
pub const STRUCTURED_REPLY: u32 = 8;
pub const SET_META_CONTEXT: u32 = 10;

pub const ACK: u32 = 1;

pub const DATA: u16 = 1;
pub const DONE: u16 = 1;
pub const ERROR: u16 = (1 << 15) + 1;
pub const ERROR_OFFSET: u16 = (1 << 15) + 2;

/// Greatest time that a reply may take.
const LIMIT: Duration = Duration::from_secs(20);

pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

pub struct Client {
    pub stream: Box<dyn Stream>,
    pub is_structured: bool,
    /// Size and flags of the export, after the handshake.
    pub bytes: u64,
    pub flags: u16,
}

/// Chunk of a structured reply.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk {
    pub flags: u16,
    pub kind: u16,
    pub cookie: u64,
    pub payload: Vec<u8>,
}

/// Option or request in bytes.
pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

pub fn request(kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = vec![0x25, 0x60, 0x95, 0x13];
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// Data of `GO`, which asks for the block size.
pub fn go(name: &str) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes(), name.as_bytes(), &[0, 1, 0, 3]].concat()
}

/// Data of `SET_META_CONTEXT`, which selects base:allocation.
pub fn context(name: &str) -> Vec<u8> {
    let query = b"base:allocation";
    let length = (query.len() as u32).to_be_bytes();
    [&(name.len() as u32).to_be_bytes(), name.as_bytes(), &1u32.to_be_bytes(), &length, query].concat()
}

impl Client {
    /// Connects and reads the greeting.
    pub fn greeted(path: &Path) -> Client {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        Client::over(stream)
    }

    pub fn over(stream: impl Stream + 'static) -> Client {
        let mut client = Client { stream: Box::new(stream), is_structured: false, bytes: 0, flags: 0 };
        assert_eq!(client.take(18), b"NBDMAGICIHAVEOPT\0\x03");
        client
    }

    pub fn over_tcp(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Client::over(stream)
    }

    /// Connects and agrees on the fixed newstyle without zeros.
    pub fn fixed(path: &Path) -> Client {
        let mut client = Client::greeted(path);
        client.send(&3u32.to_be_bytes());
        client
    }

    /// Connects to an export with simple replies.
    pub fn simple(path: &Path, name: &str) -> Client {
        let mut client = Client::fixed(path);
        client.go(name);
        client
    }

    /// Connects to an export with structured replies and the context base:allocation.
    pub fn structured(path: &Path, name: &str) -> Client {
        let mut client = Client::fixed(path);
        assert_eq!(client.option(STRUCTURED_REPLY, b""), [(ACK, vec![])]);
        assert_eq!(client.option(SET_META_CONTEXT, &context(name)).len(), 2);
        client.go(name);
        client.is_structured = true;
        client
    }

    pub fn go(&mut self, name: &str) {
        let replies = self.option(GO, &go(name));
        assert_eq!(replies.last(), Some(&(ACK, vec![])), "{replies:?}");
        let export = &replies[0].1;
        self.bytes = u64::from_be_bytes(export[2..10].try_into().unwrap());
        self.flags = u16::from_be_bytes(export[10..12].try_into().unwrap());
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Reads until the server closes the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the connection was not closed: {error}"),
        }
        bytes
    }

    fn number(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    /// Sends an option, and returns the types and data of its replies up to the last one.
    pub fn option(&mut self, number: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send(&option(number, data));
        let mut all = Vec::new();
        loop {
            assert_eq!(self.take(8), 0x0003_e889_0455_65a9u64.to_be_bytes());
            assert_eq!(self.number(), number);
            let (kind, length) = (self.number(), self.number());
            let data = self.take(length as usize);
            all.push((kind, data));
            if kind == ACK || kind >> 31 == 1 {
                return all;
            }
        }
    }

    /// Reads the head of a simple reply: its error and cookie.
    pub fn reply(&mut self) -> (u32, u64) {
        let head = self.take(16);
        assert_eq!(head[..4], [0x67, 0x44, 0x66, 0x98], "the magic number of a simple reply");
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        (error, u64::from_be_bytes(head[8..].try_into().unwrap()))
    }

    pub fn chunk(&mut self) -> Chunk {
        let head = self.take(20);
        assert_eq!(head[..4], [0x66, 0x8e, 0x33, 0xef], "the magic number of a chunk");
        let word = |at: usize| u16::from_be_bytes(head[at..at + 2].try_into().unwrap());
        let length = u32::from_be_bytes(head[16..].try_into().unwrap());
        let cookie = u64::from_be_bytes(head[8..16].try_into().unwrap());
        Chunk { flags: word(4), kind: word(6), cookie, payload: self.take(length as usize) }
    }

    /// Reads the head of any reply without payload, or with an error: its error and cookie.
    pub fn outcome(&mut self) -> (u32, u64) {
        let mut magic = [0; 4];
        self.stream.read_exact(&mut magic).unwrap();
        let rest = self.take(12);
        let cookie = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
        if magic == [0x67, 0x44, 0x66, 0x98] {
            return (u32::from_be_bytes(rest[..4].try_into().unwrap()), cookie(&rest[4..]));
        }
        assert_eq!(magic, [0x66, 0x8e, 0x33, 0xef]);
        let kind = u16::from_be_bytes(rest[2..4].try_into().unwrap());
        let length = self.number() as usize;
        let payload = self.take(length);
        assert!(kind == 0 || kind == ERROR || kind == ERROR_OFFSET, "chunk {kind}");
        let error = if kind == 0 { 0 } else { u32::from_be_bytes(payload[..4].try_into().unwrap()) };
        (error, cookie(&rest[4..]))
    }

    /// Sends a request without payload in the reply, and returns its error.
    pub fn ask(&mut self, kind: u16, flags: u16, offset: u64, length: u32) -> u32 {
        self.send(&request(kind, flags, 0x1234, offset, length));
        let (error, cookie) = self.outcome();
        assert_eq!(cookie, 0x1234);
        error
    }

    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        self.send(&[&request(WRITE, flags, 7, offset, data.len() as u32)[..], data].concat());
        let (error, cookie) = self.outcome();
        assert_eq!(cookie, 7);
        error
    }

    /// Reads a range that can be read.
    pub fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        self.send(&request(READ, 0, 9, offset, length as u32));
        if !self.is_structured {
            assert_eq!(self.reply(), (0, 9));
            return self.take(length);
        }
        let chunk = self.chunk();
        assert_eq!((chunk.flags, chunk.kind, chunk.cookie), (DONE, DATA, 9));
        assert_eq!(chunk.payload[..8], offset.to_be_bytes());
        chunk.payload[8..].to_vec()
    }
}
