//! A malicious client, which sends any requests, and writes anything into its rings and its arena.

use super::{BLOCK, CHUNK, Served};
use crate::{Few, Kind, Packet, Ring, Value, Where, hello};
use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_link::{Messages, socket_pair};
use bywash_protocol::layout::FUA;
use bywash_protocol::{Access, ControlReply, ControlRequest, RefusalKind, VERSION};
use bywash_support::peers::{Words, offered, send};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const DEPTH: usize = 8;
const REQUESTS: Ring = Ring { start: 0, capacity: DEPTH, entry_words: 8 };
const COMPLETIONS: Ring = Ring { start: REQUESTS.words(), capacity: DEPTH, entry_words: 2 };
const CONTROL_BYTES: usize = (REQUESTS.words() + COMPLETIONS.words()) * 8;
/// Index of the word of control memory in which the consumer of requests announces that it sleeps.
const SERVER_SLEEPS: usize = 8;
const CLIENT: u32 = 1;
const ARENA: usize = 1 << 15;
/// Greatest number of chunks that a client keeps mapped.
const MAPPED_MAX: usize = 8;

/// Volume whose name a hostile client knows.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Name of the volume.
    pub name: &'static str,
    /// If true, the client never opens the volume for writing, even if it is allowed to.
    pub is_left_alone: bool,
    /// Expected rights to read and to write; `None` while they change.
    pub may: Option<[bool; 2]>,
}

/// Argument of a request.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// Number of one of the client's grants.
    Grant(u8),
    /// Offset or length, in blocks.
    Block(u8),
    /// Any number.
    Number(Value),
}

impl<'a> Arbitrary<'a> for Argument {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Argument> {
        Ok(match input.arbitrary::<u8>()? {
            grant @ 0..120 => Argument::Grant(grant),
            block @ 120..220 => Argument::Block(block - 120),
            _ => Argument::Number(input.arbitrary()?),
        })
    }
}

/// Action of a hostile client.
#[expect(missing_docs, reason = "each field is one of a message's or a request's")]
#[derive(Debug)]
pub enum Deed {
    /// Opens a volume. This and the following actions use the client's socket.
    Open(u8, u8),
    OpenDescriptor(Kind),
    OpenChunk(u8),
    Close(Argument),
    Map(Argument, Few),
    Volumes,
    Again,
    With(Vec<Kind>),
    Say(Packet),
    Unanswered(u8),
    Administer(u8),
    /// Submits a request. This and the following actions use the client's rings and memory.
    Request {
        opcode: u8,
        grant: u8,
        block: u8,
        blocks: u8,
        buffer: u8,
        durable: bool,
    },
    Raw {
        place: Where,
        tag: Few,
        opcode: u8,
        flags: u8,
        buffer: Value,
        arguments: [Argument; 4],
    },
    Many {
        count: u8,
        pieces: [(u8, u8, u8); 3],
        writes: bool,
    },
    Take,
    Word(u16, Value),
    Arena(u16, Value),
    Mapped(u8, u16),
    Doorbells(u8),
    LeaveChannel,
    /// The server makes some steps.
    Steps(u8),
}

impl<'a> Arbitrary<'a> for Deed {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Deed> {
        Ok(match input.arbitrary::<u8>()? % 51 {
            0..6 => Deed::Open(input.arbitrary()?, input.arbitrary()?),
            6 => Deed::OpenDescriptor(input.arbitrary()?),
            7 => Deed::OpenChunk(input.arbitrary()?),
            8..10 => Deed::Close(input.arbitrary()?),
            10..12 => Deed::Map(input.arbitrary()?, input.arbitrary()?),
            12 => Deed::Volumes,
            13 => Deed::Again,
            14 => Deed::With(input.arbitrary()?),
            15 => Deed::Say(input.arbitrary()?),
            16 => Deed::Unanswered(input.arbitrary()?),
            17..31 => Deed::Request {
                opcode: input.arbitrary()?,
                grant: input.arbitrary()?,
                block: input.arbitrary()?,
                blocks: input.arbitrary()?,
                buffer: input.arbitrary()?,
                durable: input.arbitrary()?,
            },
            31..35 => Deed::Raw {
                place: input.arbitrary()?,
                tag: input.arbitrary()?,
                opcode: input.arbitrary()?,
                flags: input.arbitrary()?,
                buffer: input.arbitrary()?,
                arguments: input.arbitrary()?,
            },
            35..38 => Deed::Many {
                count: input.arbitrary()?,
                pieces: input.arbitrary()?,
                writes: input.arbitrary()?,
            },
            38..41 => Deed::Take,
            41..43 => Deed::Word(input.arbitrary()?, input.arbitrary()?),
            43..45 => Deed::Arena(input.arbitrary()?, input.arbitrary()?),
            45..47 => Deed::Mapped(input.arbitrary()?, input.arbitrary()?),
            47 => Deed::Doorbells(input.arbitrary()?),
            48 => Deed::LeaveChannel,
            49 => Deed::Administer(input.arbitrary()?),
            _ => Deed::Steps(input.arbitrary()?),
        })
    }
}

/// Control memory and an arena, all zeros. The server takes the right to write to them from all other
/// descriptors, so each client needs its own.
struct Room {
    files: [OwnedFd; 2],
    control: Words,
    arena: Words,
}

impl Room {
    fn new() -> Room {
        let files = [offered(CONTROL_BYTES), offered(ARENA)];
        let (control, arena) = (Words::map(&files[0], CONTROL_BYTES), Words::map(&files[1], ARENA));
        Room { files, control, arena }
    }
}

/// Hostile client.
pub struct Hostile {
    messages: Messages,
    socket: Option<OwnedFd>,
    room: Room,
    known: Vec<Known>,
    /// True if the server regards the client as an administrator; it then sends no administrator's requests.
    is_administrator: bool,
    grants: Vec<u64>,
    chunks: Vec<(OwnedFd, Words)>,
    put: u64,
    taken: u64,
    /// Number of answers that the client has not received yet.
    owed: usize,
    is_over: bool,
}

impl Hostile {
    /// Connects the client, and sets up its channel.
    pub fn come(
        served: &mut Served,
        connection: OwnedFd,
        known: Vec<Known>,
        is_administrator: bool,
    ) -> Hostile {
        let messages = served.greet(connection);
        let (here, there) = socket_pair().unwrap();
        let room = Room::new();
        let said = hello(b"bywash c", 1, CLIENT, ARENA as u64, [DEPTH as u32; 2]);
        assert!(send(&here, &said, &room.files.each_ref().map(AsRawFd::as_raw_fd)));
        assert_eq!(
            served.ask(&messages, &ControlRequest::SetUpChannel {}, &[there.as_fd()]).unwrap().0,
            ControlReply::Done {}
        );
        Hostile {
            messages,
            socket: Some(here),
            room,
            known,
            is_administrator,
            grants: Vec::new(),
            chunks: Vec::new(),
            put: 0,
            taken: 0,
            owed: 0,
            is_over: false,
        }
    }

    /// Returns the words of its arena, which the server may have written.
    pub fn arena(&self) -> &Words {
        &self.room.arena
    }

    fn ask(
        &mut self,
        served: &mut Served,
        ask: &ControlRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Option<(ControlReply, Vec<OwnedFd>)> {
        while self.owed > 0 && !self.is_over {
            self.owed -= 1;
            self.is_over = served.receive(&self.messages, ask).is_none();
        }
        if self.is_over {
            return None;
        }
        let answer = served.ask(&self.messages, ask, descriptors);
        self.is_over = answer.is_none();
        answer
    }

    fn grant(&self, which: u8) -> u64 {
        self.grants.get(usize::from(which) % self.grants.len().max(1)).copied().unwrap_or(1 << 32)
    }

    fn argument(&self, argument: Argument) -> u64 {
        match argument {
            Argument::Grant(which) => self.grant(which),
            Argument::Block(block) => u64::from(block) * BLOCK,
            Argument::Number(value) => value.get(),
        }
    }

    /// Writes a request where the server reads next, and wakes the server if it sleeps.
    fn submit(&mut self, opcode: u8, flags: u8, (offset, length): (u64, u64), arguments: [u64; 3]) {
        let tag = self.put % DEPTH as u64;
        let head = tag << 48 | u64::from(flags) << 40 | u64::from(opcode) << 32;
        let buffer = length << 32 | offset >> 6;
        let entry = [head, buffer, arguments[0], arguments[1], arguments[2], 0, 0, 0];
        if REQUESTS.put(&self.room.control, self.put, &entry) {
            self.put += 1;
        }
        self.wake();
    }

    fn wake(&self) {
        if self.room.control.at(SERVER_SLEEPS).swap(0, SeqCst) != 0 {
            self.ring(1);
        }
    }

    fn ring(&self, times: usize) {
        for _ in 0..times {
            self.socket.iter().for_each(|socket| _ = send(socket, &[1], &[]));
        }
    }

    fn grant_asked(
        &mut self,
        served: &mut Served,
        ask: &ControlRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Option<bool> {
        match self.ask(served, ask, descriptors)?.0 {
            ControlReply::Granted(granted) => {
                self.grants.push(granted.grant);
                Some(true)
            }
            _ => Some(false),
        }
    }

    fn open(&mut self, served: &mut Served, which: u8, access: u8) {
        let mut access = [Access::Read, Access::Write, Access::ReadWrite][usize::from(access) % 3];
        let Some(known) = self.known.get(usize::from(which) % (self.known.len() + 1)).copied() else {
            self.grant_asked(served, &ControlRequest::Open { volume: "nothing".into(), access }, &[]);
            return;
        };
        if known.is_left_alone {
            access = Access::Read;
        }
        let ask = ControlRequest::Open { volume: known.name.into(), access };
        let granted = self.grant_asked(served, &ask, &[]);
        if let (Some(granted), Some([read, write])) = (granted, known.may) {
            let allowed = (read || access == Access::Write) && (write || access == Access::Read);
            assert!(allowed || !granted, "{access:?} of {} was granted, and must not be", known.name);
            // The server refuses more than its greatest number of grants.
            let is_full = self.grants.len() >= 1024;
            assert!(granted || !allowed || is_full, "{access:?} of {} was refused", known.name);
        }
    }

    fn map(&mut self, served: &mut Served, grant: u64, from: u32) {
        let answer = self.ask(served, &ControlRequest::Map { grant, from }, &[]);
        if let Some((ControlReply::Chunks { chunk_bytes, .. }, files)) = answer {
            assert_eq!(chunk_bytes, CHUNK);
            for file in files {
                // A chunk that may only be read cannot be mapped for writing.
                if is_writable(&file) && self.chunks.len() < MAPPED_MAX {
                    let words = Words::map(&file, CHUNK as usize);
                    self.chunks.push((file, words));
                }
            }
        }
    }

    /// Sends a request that only an administrator may make, and checks that it is denied.
    fn administer(&mut self, served: &mut Served, which: u8) {
        if self.is_administrator {
            return;
        }
        let volume: String = self.known.first().map_or("nothing", |known| known.name).into();
        let asks = [
            ControlRequest::Revoke { volume: volume.clone() },
            ControlRequest::Remove { volume: volume.clone() },
            ControlRequest::Rename { volume: volume.clone(), to: "mine".into() },
            ControlRequest::Resize { volume, bytes: 1 << 20 },
            ControlRequest::Status {},
        ];
        match self.ask(served, &asks[usize::from(which) % asks.len()], &[]) {
            Some((ControlReply::Refused(refused), _)) => assert_eq!(refused.code, RefusalKind::Denied),
            Some(other) => panic!("nobody but an administrator may hear {other:?}"),
            None => {}
        }
    }

    /// Carries out an action, and then steps the server.
    pub fn act(&mut self, served: &mut Served, deed: Deed) {
        self.do_it(served, deed);
        served.step();
    }

    fn do_it(&mut self, served: &mut Served, deed: Deed) {
        match deed {
            Deed::Open(which, access) => self.open(served, which, access),
            Deed::OpenDescriptor(kind) => {
                // SAFETY: the descriptor of a kind stays open as long as the process.
                let file = unsafe { BorrowedFd::borrow_raw(kind.descriptor()) };
                self.grant_asked(served, &ControlRequest::OpenDescriptor {}, &[file]);
            }
            Deed::OpenChunk(which) => {
                let count = self.chunks.len().max(1);
                let Some((chunk, _)) = self.chunks.get(usize::from(which) % count) else { return };
                let chunk = chunk.try_clone().unwrap();
                self.grant_asked(served, &ControlRequest::OpenDescriptor {}, &[chunk.as_fd()]);
            }
            Deed::Close(grant) => {
                drop(self.ask(served, &ControlRequest::Close { grant: self.argument(grant) }, &[]))
            }
            Deed::Map(grant, from) => self.map(served, self.argument(grant), from.of(2) as u32),
            Deed::Volumes => drop(self.ask(served, &ControlRequest::Volumes {}, &[])),
            Deed::Again => {
                drop(self.ask(served, &ControlRequest::Hello { version: VERSION, name: "x".into() }, &[]))
            }
            Deed::With(kinds) => self.ask_with(served, &kinds),
            Deed::Say(packet) => self.say(packet),
            Deed::Unanswered(count) => {
                let ask = ControlRequest::Map { grant: self.grant(0), from: 0 }.to_bytes().unwrap();
                for _ in 0..count % 32 {
                    match self.messages.send(&ask, &[], Duration::ZERO) {
                        Ok(()) => self.owed += 1,
                        Err(_) => return,
                    }
                }
            }
            Deed::Administer(which) => self.administer(served, which),
            Deed::LeaveChannel => self.socket = None,
            Deed::Steps(count) => (0..count % 8).for_each(|_| served.step()),
            deed => self.lie(deed),
        }
    }

    fn ask_with(&mut self, served: &mut Served, kinds: &[Kind]) {
        // SAFETY: the descriptors of kinds stay open as long as the process.
        let files = kinds.iter().take(3).map(|kind| unsafe { BorrowedFd::borrow_raw(kind.descriptor()) });
        let files: Vec<_> = files.collect();
        // The server refuses a second channel, since the client has one.
        self.ask(
            served,
            if files.len() == 1 { &ControlRequest::SetUpChannel {} } else { &ControlRequest::Volumes {} },
            &files,
        );
    }

    fn say(&mut self, packet: Packet) {
        let is_ask = matches!(&packet, Packet::Bytes(bytes, _) if ControlRequest::from_bytes(bytes).is_ok());
        if (is_ask && self.is_administrator) || self.is_over {
            return;
        }
        let copy = self.messages.as_fd().try_clone_to_owned().unwrap();
        packet.send(&copy);
        self.is_over = true;
    }

    /// Writes to the rings, to the arena, or to mapped memory of a device, as `deed` says.
    fn lie(&mut self, deed: Deed) {
        let (control, arena) = (&self.room.control, &self.room.arena);
        match deed {
            Deed::Request { opcode, grant, block, blocks, buffer, durable } => {
                let opcode = [1, 2, 2, 3, 4, 5, 6, 1][usize::from(opcode) % 8];
                let length = u64::from(blocks % 9) * BLOCK;
                let bytes = match opcode {
                    1 | 2 => length,
                    6 => 2 * length,
                    _ => 0,
                };
                let at = if opcode == 3 { [0, 0] } else { [u64::from(block) * BLOCK, length] };
                let flags = if durable && [2, 5, 6].contains(&opcode) { FUA } else { 0 };
                let offset = u64::from(buffer) * 64;
                self.submit(opcode, flags, (offset, bytes), [self.grant(grant), at[0], at[1]]);
            }
            Deed::Many { count, pieces, writes } => {
                let count = usize::from(count % 5);
                let mut bytes = 0;
                for (number, (grant, block, blocks)) in pieces.iter().enumerate() {
                    let length = u64::from(blocks % 5) * BLOCK;
                    let words = [self.grant(*grant), u64::from(*block) * BLOCK, length];
                    for (word, value) in words.into_iter().enumerate() {
                        arena.set(number * 3 + word, value);
                    }
                    bytes += if number < count { length } else { 0 };
                }
                let opcode = if writes { 8 } else { 7 };
                self.submit(opcode, 0, (0, count as u64 * 24 + bytes), [count as u64, 0, 0]);
            }
            Deed::Raw { place, tag, opcode, flags, buffer, arguments } => {
                let (at, turn) = REQUESTS.place(control, place);
                for (number, argument) in arguments.into_iter().enumerate() {
                    control.set(at + 2 + number, self.argument(argument));
                }
                control.set(at + 1, buffer.get());
                let head = tag.of(DEPTH) << 48 | u64::from(flags) << 40 | u64::from(opcode % 12) << 32;
                control.set(at, head | turn);
                self.ring(1);
            }
            Deed::Take => {
                let taken = COMPLETIONS.take(control, self.taken);
                self.taken += u64::from(taken.is_some());
            }
            Deed::Word(at, value) => control.set(usize::from(at) % control.count, value.get()),
            Deed::Arena(at, value) => arena.set(usize::from(at) % arena.count, value.get()),
            Deed::Mapped(which, at) => {
                let count = self.chunks.len().max(1);
                let Some((_, words)) = self.chunks.get(usize::from(which) % count) else { return };
                words.set(usize::from(at) * 4 % words.count, u64::MAX);
            }
            Deed::Doorbells(count) => self.ring(count.into()),
            _ => {}
        }
    }
}

/// Returns true if a descriptor was opened for reading and writing.
fn is_writable(file: &OwnedFd) -> bool {
    // SAFETY: the call takes an open descriptor and a plain number.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) & libc::O_ACCMODE == libc::O_RDWR }
}
