//! Messages of the FUSE protocol that a server of fixed files needs (Linux, `include/uapi/linux/fuse.h`, version 7.36).
//!
//! The kernel and its server run on one machine, so all numbers are in its byte order.

/// Size of the header of a request, in bytes.
pub const IN_HEADER: usize = 40;
/// Size of the header of an answer, in bytes.
pub const OUT_HEADER: usize = 16;
/// Version of the protocol that is spoken here.
pub const VERSION: (u32, u32) = (7, 36);

/// Open flag FOPEN_DIRECT_IO: the page cache is bypassed, so that requests arrive as they are made.
pub const OPEN_DIRECT_IO: u32 = 1;
/// Open flag FOPEN_PARALLEL_DIRECT_WRITES: writes need no lock of the inode, as those of a disk.
pub const OPEN_PARALLEL_WRITES: u32 = 1 << 6;

/// Flags of INIT: FUSE_ASYNC_READ, FUSE_BIG_WRITES, FUSE_ASYNC_DIO, FUSE_MAX_PAGES.
pub const INIT_FLAGS: u32 = 1 | 1 << 5 | 1 << 15 | 1 << 22;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Looks a name up in the root.
    Lookup,
    /// Drops references to nodes; has no answer.
    Forget,
    /// Asks for attributes, or tries to change them, which is answered alike.
    Attributes,
    /// Opens a file.
    Open,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Asks for the block size of the file system.
    Statfs,
    /// Closes a descriptor or the file, or asks for a permission: always granted.
    Granted,
    /// Makes completed writes durable.
    Fsync,
    /// Begins the session.
    Init,
    /// Discards a range or fills it with zeroes.
    Fallocate,
    /// Tells that another request is not waited for any more; has no answer.
    Interrupt,
    /// Anything else.
    Other,
}

impl From<u32> for Operation {
    fn from(code: u32) -> Operation {
        match code {
            1 => Operation::Lookup,
            2 | 42 => Operation::Forget,
            3 | 4 => Operation::Attributes,
            14 => Operation::Open,
            15 => Operation::Read,
            16 => Operation::Write,
            17 => Operation::Statfs,
            // RELEASE, FLUSH, ACCESS, DESTROY.
            18 | 25 | 34 | 38 => Operation::Granted,
            20 => Operation::Fsync,
            26 => Operation::Init,
            36 => Operation::Interrupt,
            43 => Operation::Fallocate,
            _ => Operation::Other,
        }
    }
}

/// A request of the kernel.
#[derive(Debug)]
pub struct Request {
    /// Operation.
    pub operation: Operation,
    /// Number that the answer repeats.
    pub unique: u64,
    /// Node that the operation concerns; 1 is the root.
    pub node: u64,
    body: Vec<u8>,
}

impl Request {
    /// Reads a request, or returns nothing if the bytes are not a whole one.
    pub fn decode(bytes: &[u8]) -> Option<Request> {
        let header = Fields(bytes);
        if header.u32(0)? as usize != bytes.len() {
            return None;
        }
        let operation = Operation::from(header.u32(4)?);
        Some(Request {
            operation,
            unique: header.u64(8)?,
            node: header.u64(16)?,
            body: bytes.get(IN_HEADER..)?.into(),
        })
    }

    /// Returns the name that LOOKUP asks for.
    pub fn name(&self) -> Option<&str> {
        std::str::from_utf8(self.body.strip_suffix(b"\0")?).ok()
    }

    /// Returns the version of the protocol that the kernel offers with INIT.
    pub fn version(&self) -> Option<(u32, u32)> {
        Some((self.fields().u32(0)?, self.fields().u32(4)?))
    }

    /// Returns offset and length of READ, WRITE or FALLOCATE, in bytes.
    pub fn range(&self) -> Option<(u64, u64)> {
        let length = match self.operation {
            Operation::Fallocate => self.fields().u64(16)?,
            _ => self.fields().u32(16)?.into(),
        };
        Some((self.fields().u64(8)?, length))
    }

    /// Returns the data of WRITE.
    pub fn data(&self) -> Option<&[u8]> {
        self.body.get(40..40 + self.range()?.1 as usize)
    }

    /// Returns the mode of FALLOCATE, as fallocate(2) has it.
    pub fn mode(&self) -> Option<u32> {
        self.fields().u32(24)
    }

    fn fields(&self) -> Fields<'_> {
        Fields(&self.body)
    }
}

/// Numbers at fixed places of a message.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }
}

/// An answer that is being written.
#[derive(Debug)]
pub struct Answer(Vec<u8>);

impl Answer {
    /// Makes an answer without a body, with an error number or 0.
    pub fn new(unique: u64, error: i32) -> Answer {
        let mut bytes = Vec::with_capacity(OUT_HEADER + 128);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(-error).to_ne_bytes());
        bytes.extend_from_slice(&unique.to_ne_bytes());
        Answer(bytes)
    }

    /// Makes an answer with these bytes as its body.
    pub fn with(unique: u64, body: &[u8]) -> Answer {
        let mut answer = Answer::new(unique, 0);
        answer.0.extend_from_slice(body);
        answer
    }

    fn u16(mut self, value: u16) -> Answer {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Answer {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Answer {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    /// Makes the answer to INIT: `struct fuse_init_out`.
    pub fn init(unique: u64, minor: u32, write_bytes_max: u32, pages_max: u16) -> Answer {
        let answer = Answer::new(unique, 0).u32(VERSION.0).u32(minor).u32(0).u32(INIT_FLAGS);
        // Requests in the background, and the number from which they count as too many.
        let mut answer = answer.u16(64).u16(48).u32(write_bytes_max).u32(1).u16(pages_max).u16(0);
        answer.0.resize(OUT_HEADER + 64, 0);
        answer
    }

    /// Makes the answer to OPEN: `struct fuse_open_out`.
    pub fn open(unique: u64) -> Answer {
        Answer::new(unique, 0).u64(0).u32(OPEN_DIRECT_IO | OPEN_PARALLEL_WRITES).u32(0)
    }

    /// Makes the answer to WRITE: `struct fuse_write_out`.
    pub fn written(unique: u64, bytes: u32) -> Answer {
        Answer::new(unique, 0).u32(bytes).u32(0)
    }

    /// Makes the answer to STATFS: `struct fuse_statfs_out`, of which only the block size says something. Without that a
    /// loop device passes no discards on.
    pub fn statfs(unique: u64) -> Answer {
        let mut answer = Answer::new(unique, 0).u64(0).u64(0).u64(0).u64(0).u64(0).u32(BLOCK_BYTES).u32(255);
        answer.0.resize(OUT_HEADER + 80, 0);
        answer
    }

    /// Makes the answer to LOOKUP: `struct fuse_entry_out`.
    pub fn entry(unique: u64, node: u64, size: u64) -> Answer {
        Answer::new(unique, 0).u64(node).u64(0).u64(VALID_S).u64(VALID_S).u64(0).attributes(node, size)
    }

    /// Makes the answer to GETATTR and SETATTR: `struct fuse_attr_out`.
    pub fn attr(unique: u64, node: u64, size: u64) -> Answer {
        Answer::new(unique, 0).u64(VALID_S).u64(0).attributes(node, size)
    }

    /// Adds a `struct fuse_attr`: a folder if the node is the root, else a file.
    fn attributes(self, node: u64, size: u64) -> Answer {
        let mode = if node == ROOT { 0o040_700 } else { 0o100_600 };
        let times = self.u64(node).u64(size).u64(size / 512).u64(0).u64(0).u64(0).u32(0).u32(0).u32(0);
        // Links, owner, group, device, block size, flags.
        times.u32(mode).u32(1).u32(0).u32(0).u32(0).u32(BLOCK_BYTES).u32(0)
    }

    /// Returns the bytes of the finished answer.
    pub fn finish(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// Block size of the file system, in bytes.
const BLOCK_BYTES: u32 = 4096;
/// Node of the root.
pub const ROOT: u64 = 1;
/// Time for which the kernel may keep attributes and names, which never change, in s.
const VALID_S: u64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_sizes_of_the_headers() {
        assert_eq!(Answer::init(1, 36, 1 << 20, 256).finish().len(), OUT_HEADER + 64);
        assert_eq!(Answer::entry(1, 2, 4096).finish().len(), OUT_HEADER + 128);
        assert_eq!(Answer::attr(1, 2, 4096).finish().len(), OUT_HEADER + 104);
        assert_eq!(Answer::statfs(1).finish().len(), OUT_HEADER + 80);
        assert_eq!(Answer::open(1).finish().len(), OUT_HEADER + 16);
        assert_eq!(Answer::written(1, 2).finish().len(), OUT_HEADER + 8);
    }

    #[test]
    fn a_write_is_read() {
        let mut bytes = vec![0; IN_HEADER + 40];
        bytes.extend_from_slice(b"data");
        let length = bytes.len() as u32;
        for (at, value) in [(0, length), (4, 16), (8, 7), (16, 2), (IN_HEADER + 8, 512), (IN_HEADER + 16, 4)]
        {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let request = Request::decode(&bytes).unwrap();
        assert_eq!((request.operation, request.unique, request.node), (Operation::Write, 7, 2));
        assert_eq!((request.range(), request.data()), (Some((512, 4)), Some(&b"data"[..])));
        assert!(Request::decode(&bytes[1..]).is_none());
    }
}
