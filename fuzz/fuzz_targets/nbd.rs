//! A disk exported by NBD, and a client that sends anything.
//!
//! The export lives as long as the process, and serves a client that keeps to the protocol after each input.
//!
//! Failures that this looks for: a command is outside the disk; a message is taken for another one; the next client
//! is not served; descriptors and connections are left behind.

#![no_main]
#![expect(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_fuzz::disk::{Checked, DISK_BYTES};
use bywash_fuzz::{Steps, Value, settled};
use bywash_nbd::{Disk, Export, Options};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(8);
const STEPS_MAX: usize = 40;

/// Number in a message: one of those that are valid, or any.
#[derive(Clone, Copy, Debug)]
struct Number(Option<u8>, Value);

impl<'a> Arbitrary<'a> for Number {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Number> {
        Ok(match input.arbitrary::<u8>()? {
            fits @ 0..220 => Number(Some(fits), Value::default()),
            _ => Number(None, input.arbitrary()?),
        })
    }
}

impl Number {
    /// Returns one of `those`, or any number.
    fn of(self, those: &[u64]) -> u64 {
        self.0.map_or(self.1.get(), |which| those[usize::from(which) % those.len()])
    }
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// The handshake up to the transmission, with structured replies or without.
    Enter {
        is_structured: bool,
    },
    Flags(Number),
    Option {
        number: u8,
        data: Vec<u8>,
        length: Option<u32>,
    },
    Export {
        option: bool,
        name: Number,
        wanted: Vec<u16>,
    },
    Context {
        option: bool,
        queries: Number,
        length: Number,
    },
    Request {
        kind: u8,
        flags: Number,
        offset: Number,
        length: Number,
        payload: Number,
    },
    Bytes(Vec<u8>),
    /// Receives what has come.
    Receive,
}

fn option(number: u32, data: &[u8], length: u32) -> Vec<u8> {
    [&b"IHAVEOPT"[..], &number.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

fn whole(number: u32, data: &[u8]) -> Vec<u8> {
    option(number, data, data.len() as u32)
}

fn go() -> Vec<u8> {
    whole(7, &[0, 0, 0, 4, b'd', b'i', b's', b'k', 0, 1, 0, 3])
}

fn request(kind: u16, flags: u16, offset: u64, length: u32) -> Vec<u8> {
    let (flags, kind) = (flags.to_be_bytes(), kind.to_be_bytes());
    let parts = [&[0x25, 0x60, 0x95, 0x13][..], &flags, &kind, &[7; 8], &offset.to_be_bytes()];
    [&parts.concat()[..], &length.to_be_bytes()].concat()
}

impl Step {
    fn bytes(self) -> Vec<u8> {
        let (end, block) = (DISK_BYTES, 512);
        match self {
            Step::Enter { is_structured } => {
                let structured = if is_structured { whole(8, &[]) } else { Vec::new() };
                [&3u32.to_be_bytes()[..], &structured, &go()].concat()
            }
            Step::Flags(flags) => (flags.of(&[3, 1, 0]) as u32).to_be_bytes().to_vec(),
            Step::Option { number, data, length } => {
                option(u32::from(number) % 14, &data, length.unwrap_or(data.len() as u32))
            }
            Step::Export { option, name, wanted } => {
                let mut data = (name.of(&[4, 0]) as u32).to_be_bytes().to_vec();
                data.extend(b"disk");
                data.extend((wanted.len() as u16).to_be_bytes());
                data.extend(wanted.iter().flat_map(|kind| kind.to_be_bytes()));
                whole(if option { 6 } else { 7 }, &data)
            }
            Step::Context { option, queries, length } => {
                let mut data = vec![0, 0, 0, 4, b'd', b'i', b's', b'k'];
                data.extend((queries.of(&[1, 0, 2]) as u32).to_be_bytes());
                data.extend((length.of(&[15, 5]) as u32).to_be_bytes());
                data.extend(b"base:allocation");
                whole(if option { 9 } else { 10 }, &data)
            }
            Step::Request { kind, flags, offset, length, payload } => {
                let flags = flags.of(&[0, 1, 2, 4, 8, 16]) as u16;
                let length = length.of(&[block, 0, 4096, 3 * block, 1 << 16, 1 << 17, end]) as u32;
                let offset = offset.of(&[0, block, end - block, end, 4096, 1 << 16]);
                let payload = match kind % 10 {
                    1 => payload.of(&[length.into(), 0, block]).min(1 << 18) as usize,
                    _ => 0,
                };
                [request(u16::from(kind % 10), flags, offset, length), vec![kind; payload]].concat()
            }
            Step::Bytes(bytes) => bytes,
            Step::Receive => Vec::new(),
        }
    }
}

/// The export, and where clients connect.
struct Served {
    _folder: tempfile::TempDir,
    path: PathBuf,
    _export: Export,
}

impl Served {
    fn start() -> Served {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nbd");
        let listener = UnixListener::bind(&path).unwrap();
        let disks = vec![Disk::new("disk", Checked::default())];
        let export = Export::start(listener, disks, Options::new(), |_| ()).unwrap();
        Served { _folder: folder, path, _export: export }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// Checks that a client that keeps to the protocol reads what it wrote.
    fn check(&self) {
        let mut client = self.connect();
        let write = [&3u32.to_be_bytes()[..], &go(), &request(1, 0, 0, 512), &[0xa5; 512]];
        client.write_all(&write.concat()).unwrap();
        // Greeting, two pieces of information, an acknowledgement, and the reply to the write. Requests in flight take effect
        // in any order, so the read comes after that.
        client.read_exact(&mut [0; 18 + 32 + 34 + 20 + 16]).unwrap();
        client.write_all(&[request(0, 0, 0, 512), request(2, 0, 0, 0)].concat()).unwrap();
        let mut replies = Vec::new();
        client.read_to_end(&mut replies).unwrap();
        assert_eq!(replies.len(), 16 + 512);
        assert_eq!(replies[16..], [0xa5; 512]);
    }
}

thread_local! {
    static SERVED: RefCell<Option<Served>> = const { RefCell::new(None) };
}

fuzz_target!(|steps: Steps<Step>| settled(LIMIT, || SERVED.with_borrow_mut(|served| {
    let served = served.get_or_insert_with(Served::start);
    let mut client = served.connect();
    client.set_nonblocking(true).unwrap();
    for step in steps.into_iter().take(STEPS_MAX) {
        let mut bytes = &step.bytes()[..];
        while !bytes.is_empty() {
            match client.write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                // The client has to receive first, or has been disconnected.
                Err(_) => match client.read(&mut [0; 1 << 16]) {
                    Ok(0) => break,
                    Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break,
                    _ => std::thread::yield_now(),
                },
            }
        }
        while client.read(&mut [0; 1 << 16]).is_ok_and(|bytes| bytes > 0) {}
    }
    drop(client);
    served.check();
})));
