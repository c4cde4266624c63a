//! A device server, a client that keeps to the protocol, and one that does not.
//!
//! The server lives as long as the process, and with it the good client, whose volumes a model knows byte by byte. The
//! hostile one is new for each input. It has volumes of its own beside the good one's, asks for anything, puts anything
//! into its rings and its arena while the server works on it, maps chunks and writes there when they have long been
//! taken back, and leaves at any moment.
//!
//! What could go wrong: a byte changes in a volume of the good client, or is not what it was told; a volume that is new
//! has what another one had; the good client is refused something, or waits; descriptors and mappings are left behind.

#![no_main]
#![expect(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_channel::{Client, HugePages, Options, Submission, Wait};
use bywash_fuzz::{Few, Kind, Packet, Ring, Steps, Value, Where, hello, settled};
use bywash_link::{Messages, connect, socket_pair};
use bywash_peers::{FIXED, Words, memory, send};
use bywash_protocol::layout::{FUA, Opcode};
use bywash_protocol::{Access, Answer, Ask, MESSAGE_BYTES_MAX, VERSION};
use bywash_server::Server;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// For everything: whoever waits longer hangs.
const LIMIT: Duration = Duration::from_secs(8);
const DEPTH: usize = 8;
const REQUESTS: Ring = Ring { start: 0, capacity: DEPTH, entry_words: 8 };
const COMPLETIONS: Ring = Ring { start: REQUESTS.words(), capacity: DEPTH, entry_words: 2 };
const CONTROL_BYTES: usize = (REQUESTS.words() + COMPLETIONS.words()) * 8;
/// Where whoever takes requests says that it sleeps.
const SERVER_SLEEPS: usize = 8;
const CLIENT: u32 = 1;
const ARENA: usize = 1 << 16;
const BLOCK: u64 = 512;
const CHUNK: u64 = 2 << 20;

/// Volumes of the good client: on which device, how large.
const GOOD: [(&str, &str, u64); 4] =
    [("before", "fast", CHUNK), ("first", "slow", 8192), ("last", "slow", 8192), ("shared", "slow", 8192)];
/// Those of the hostile one, which lie between.
const THEIRS: [(&str, &str, u64); 3] =
    [("mine", "fast", 2 * CHUNK), ("slowly", "slow", 1 << 16), ("new", "fast", CHUNK)];
/// Bytes that are read at a time to be held against the model.
const LOOKED_AT: u64 = 8192;

#[derive(Clone, Copy, Debug)]
enum Argument {
    Grant(u8),
    Block(u8),
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

#[derive(Debug)]
enum Step {
    /// The good client's.
    Write {
        volume: u8,
        block: u16,
        blocks: u8,
        seed: u8,
    },
    Read {
        volume: u8,
        block: u16,
    },
    Zero {
        volume: u8,
        block: u16,
        blocks: u8,
    },
    /// The administrator's.
    Revoke(u8),
    Renew,
    Resize(u8),
    ReadOnly(bool),
    /// The hostile one's, over its socket.
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
    /// In its rings and its arena.
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
    /// It leaves.
    LeaveChannel,
    Leave,
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Step> {
        Ok(match input.arbitrary::<u8>()? % 64 {
            0..5 => Step::Write {
                volume: input.arbitrary()?,
                block: input.arbitrary()?,
                blocks: input.arbitrary()?,
                seed: input.arbitrary()?,
            },
            5..8 => Step::Read { volume: input.arbitrary()?, block: input.arbitrary()? },
            8 => Step::Zero {
                volume: input.arbitrary()?,
                block: input.arbitrary()?,
                blocks: input.arbitrary()?,
            },
            9 => Step::Revoke(input.arbitrary()?),
            10 => Step::Renew,
            11 => Step::Resize(input.arbitrary()?),
            12 => Step::ReadOnly(input.arbitrary()?),
            13..19 => Step::Open(input.arbitrary()?, input.arbitrary()?),
            19 => Step::OpenDescriptor(input.arbitrary()?),
            20 => Step::OpenChunk(input.arbitrary()?),
            21..23 => Step::Close(input.arbitrary()?),
            23..25 => Step::Map(input.arbitrary()?, input.arbitrary()?),
            25 => Step::Volumes,
            26 => Step::Again,
            27 => Step::With(input.arbitrary()?),
            28 => Step::Say(input.arbitrary()?),
            29 => Step::Unanswered(input.arbitrary()?),
            30..44 => Step::Request {
                opcode: input.arbitrary()?,
                grant: input.arbitrary()?,
                block: input.arbitrary()?,
                blocks: input.arbitrary()?,
                buffer: input.arbitrary()?,
                durable: input.arbitrary()?,
            },
            44..48 => Step::Raw {
                place: input.arbitrary()?,
                tag: input.arbitrary()?,
                opcode: input.arbitrary()?,
                flags: input.arbitrary()?,
                buffer: input.arbitrary()?,
                arguments: input.arbitrary()?,
            },
            48..51 => Step::Many {
                count: input.arbitrary()?,
                pieces: input.arbitrary()?,
                writes: input.arbitrary()?,
            },
            51..55 => Step::Take,
            55..57 => Step::Word(input.arbitrary()?, input.arbitrary()?),
            57..59 => Step::Arena(input.arbitrary()?, input.arbitrary()?),
            59..61 => Step::Mapped(input.arbitrary()?, input.arbitrary()?),
            61 => Step::Doorbells(input.arbitrary()?),
            62 => Step::LeaveChannel,
            _ => Step::Leave,
        })
    }
}

/// The server and the good client.
struct World {
    server: Server,
    folder: tempfile::TempDir,
    messages: Messages,
    channel: Client,
    /// By the number of the volume: its grant, and what is in it.
    grants: Vec<u64>,
    model: Vec<Vec<u8>>,
    /// How many inputs there were.
    inputs: usize,
}

fn ask_over(
    messages: &Messages,
    ask: &Ask,
    descriptors: &[BorrowedFd<'_>],
) -> Option<(Answer, Vec<OwnedFd>)> {
    messages.send(&ask.to_bytes().unwrap(), descriptors, LIMIT).ok()?;
    match messages.receive(LIMIT) {
        Ok(packet) => Some((Answer::of_bytes(&packet.bytes).unwrap(), packet.descriptors)),
        Err(bywash_link::Error::Closed) => None,
        Err(error) => panic!("{ask:?}: {error}"),
    }
}

fn greet(socket: &std::path::Path) -> Option<Messages> {
    let messages = Messages::over(connect(socket).unwrap(), MESSAGE_BYTES_MAX);
    let hello = Ask::Hello { version: VERSION, name: "fuzz".into() };
    match ask_over(&messages, &hello, &[])? {
        (Answer::Welcome { .. }, page) if page.len() == 1 => Some(messages),
        other => panic!("{other:?}"),
    }
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let mut options = bywash_server::Options::new(&socket);
        options.devices.push("fast=mem:12M,pages=4K".parse().unwrap());
        // One that cannot be mapped, takes its time, and takes few commands at a time.
        options.devices.push("slow=mem:1M,pages=4K,latency=20us,depth=4".parse().unwrap());
        let server = Server::start(options).unwrap();
        let messages = greet(&socket).unwrap();
        let (here, there) = socket_pair().unwrap();
        let options =
            Options::new().depth(8).arena_bytes(4 << 20).wait(Wait::Adaptive).huge_pages(HugePages::No);
        let making = std::thread::spawn(move || Client::over(here, &options).unwrap());
        assert_eq!(ask_over(&messages, &Ask::Channel {}, &[there.as_fd()]).unwrap().0, Answer::Done {});
        let channel = making.join().unwrap();
        let mut world =
            World { server, folder, messages, channel, grants: Vec::new(), model: Vec::new(), inputs: 0 };
        for number in [0, 1] {
            world.create(GOOD[number]);
        }
        THEIRS.iter().for_each(|volume| world.create(*volume));
        for number in [2, 3] {
            world.create(GOOD[number]);
        }
        for (name, _, bytes) in GOOD {
            world.grants.push(world.open(name, Access::ReadWrite));
            world.model.push(vec![0; bytes as usize]);
        }
        for volume in 0..GOOD.len() {
            for block in 0..16 {
                world.write(volume, block, 1, volume as u8 + 1);
            }
        }
        world
    }

    fn administer(&self, ask: Ask) {
        assert_eq!(ask_over(&self.messages, &ask, &[]).unwrap().0, Answer::Done {}, "{ask:?}");
    }

    fn create(&self, (volume, device, bytes): (&str, &str, u64)) {
        let (volume, device) = (volume.into(), device.into());
        self.administer(Ask::Create { volume, device, bytes, owner: 0, group: 0, mode: 0o600 });
    }

    fn open(&self, volume: &str, access: Access) -> u64 {
        match ask_over(&self.messages, &Ask::Open { volume: volume.into(), access }, &[]).unwrap().0 {
            Answer::Granted(granted) => granted.grant,
            other => panic!("{volume}: {other:?}"),
        }
    }

    fn request(&mut self, opcode: Opcode, at: [u64; 3], data: Option<&mut [u8]>) {
        let arguments = [at[0], at[1], at[2], 0, 0, 0];
        let mut submission = Submission::new(opcode as u8).arguments(arguments);
        if let Some(data) = &data {
            let mut buffer = self.channel.alloc(data.len()).unwrap();
            buffer.write(0, data);
            submission = submission.buffer(buffer);
        }
        self.channel.submit(submission).unwrap();
        let done = self.channel.reap_within(LIMIT).unwrap();
        assert_eq!((done.status, done.value), (0, at[2]), "{opcode:?} of the good client");
        if let (Some(data), Some(buffer)) = (data, done.buffer) {
            buffer.read(0, data);
        }
    }

    /// Blocks of a volume, from any number on.
    fn part(&self, volume: usize, block: u64, blocks: u64) -> std::ops::Range<usize> {
        let has = self.model[volume].len() as u64 / BLOCK;
        let first = block % has;
        let end = (first + blocks.max(1)).min(has);
        (first * BLOCK) as usize..(end * BLOCK) as usize
    }

    fn write(&mut self, volume: usize, block: u64, blocks: u64, seed: u8) {
        let part = self.part(volume, block, blocks);
        self.model[volume][part.clone()].fill(seed);
        let mut data = vec![seed; part.len()];
        let at = [self.grants[volume], part.start as u64, part.len() as u64];
        self.request(Opcode::Write, at, Some(&mut data));
    }

    fn zero(&mut self, volume: usize, block: u64, blocks: u64) {
        let part = self.part(volume, block, blocks);
        self.model[volume][part.clone()].fill(0);
        let at = [self.grants[volume], part.start as u64, part.len() as u64];
        self.request(Opcode::WriteZeroes, at, None);
    }

    fn check(&mut self, volume: usize, block: u64, blocks: u64) {
        let part = self.part(volume, block, blocks);
        let mut there = vec![0xee; part.len()];
        let at = [self.grants[volume], part.start as u64, part.len() as u64];
        self.request(Opcode::Read, at, Some(&mut there));
        assert!(there == self.model[volume][part], "bytes of {} have changed", GOOD[volume].0);
    }

    /// A volume that is new has nothing of what was where it is.
    fn renew(&mut self) {
        let (name, ..) = THEIRS[2];
        self.administer(Ask::Remove { volume: name.into() });
        self.create(THEIRS[2]);
        let grant = self.open(name, Access::Read);
        for at in [0, CHUNK / 2, CHUNK - LOOKED_AT] {
            let mut there = vec![1; LOOKED_AT as usize];
            self.request(Opcode::Read, [grant, at, LOOKED_AT], Some(&mut there));
            assert!(there.iter().all(|byte| *byte == 0), "a new volume has what somebody wrote");
        }
        self.administer(Ask::Close { grant });
    }
}

/// The hostile client.
struct Hostile {
    messages: Messages,
    socket: Option<OwnedFd>,
    control: Words,
    arena: Words,
    grants: Vec<u64>,
    chunks: Vec<(OwnedFd, Words)>,
    put: u64,
    taken: u64,
    /// Answers that it has not taken.
    owed: usize,
    is_over: bool,
}

impl Hostile {
    fn come(world: &World) -> Hostile {
        let messages = greet(&world.folder.path().join("socket")).unwrap();
        let (here, there) = socket_pair().unwrap();
        let (control, arena) = (memory(CONTROL_BYTES, FIXED), memory(ARENA, FIXED));
        let said = hello(b"bywash c", 1, CLIENT, ARENA as u64, [DEPTH as u32; 2]);
        assert!(send(&here, &said, &[control.as_raw_fd(), arena.as_raw_fd()]));
        assert_eq!(ask_over(&messages, &Ask::Channel {}, &[there.as_fd()]).unwrap().0, Answer::Done {});
        Hostile {
            messages,
            socket: Some(here),
            control: Words::map(&control, CONTROL_BYTES),
            arena: Words::map(&arena, ARENA),
            grants: Vec::new(),
            chunks: Vec::new(),
            put: 0,
            taken: 0,
            owed: 0,
            is_over: false,
        }
    }

    fn ask(&mut self, ask: &Ask, descriptors: &[BorrowedFd<'_>]) -> Option<(Answer, Vec<OwnedFd>)> {
        while self.owed > 0 && !self.is_over {
            self.owed -= 1;
            self.is_over = self.messages.receive(LIMIT).is_err();
        }
        if self.is_over {
            return None;
        }
        let answer = ask_over(&self.messages, ask, descriptors);
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

    /// Puts a request where the server looks next, and wakes it if it sleeps.
    fn submit(&mut self, opcode: u8, flags: u8, (offset, length): (u64, u64), arguments: [u64; 3]) {
        let tag = self.put % DEPTH as u64;
        let head = tag << 48 | u64::from(flags) << 40 | u64::from(opcode) << 32;
        let buffer = length << 32 | offset >> 6;
        let entry = [head, buffer, arguments[0], arguments[1], arguments[2], 0, 0, 0];
        if REQUESTS.put(&self.control, self.put, &entry) {
            self.put += 1;
        }
        if self.control.at(SERVER_SLEEPS).swap(0, std::sync::atomic::Ordering::SeqCst) != 0 {
            self.ring(1);
        }
    }

    fn ring(&self, times: usize) {
        for _ in 0..times {
            self.socket.iter().for_each(|socket| _ = send(socket, &[1], &[]));
        }
    }

    fn open(&mut self, ask: &Ask, descriptors: &[BorrowedFd<'_>]) {
        if let Some((Answer::Granted(granted), _)) = self.ask(ask, descriptors) {
            self.grants.push(granted.grant);
        }
    }

    fn map(&mut self, grant: u64, from: u32) {
        if let Some((Answer::Chunks { chunk_bytes, .. }, files)) = self.ask(&Ask::Map { grant, from }, &[]) {
            assert_eq!(chunk_bytes, CHUNK);
            for file in files {
                // What may only be read cannot be mapped for writing.
                if is_writable(&file) && self.chunks.len() < 8 {
                    let words = Words::map(&file, CHUNK as usize);
                    self.chunks.push((file, words));
                }
            }
        }
    }
}

/// Whether a descriptor was opened for writing.
fn is_writable(file: &OwnedFd) -> bool {
    // SAFETY: a system call on a descriptor that lives.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) & libc::O_ACCMODE == libc::O_RDWR }
}

impl Step {
    fn take(self, world: &mut World, hostile: &mut Hostile) {
        let good = |volume: u8| usize::from(volume) % GOOD.len();
        match self {
            Step::Write { volume, block, blocks, seed } => {
                world.write(good(volume), block.into(), blocks.into(), seed);
            }
            Step::Read { volume, block } => world.check(good(volume), block.into(), 16),
            Step::Zero { volume, block, blocks } => world.zero(good(volume), block.into(), blocks.into()),
            Step::Revoke(which) => {
                let (name, ..) = THEIRS[usize::from(which) % THEIRS.len()];
                world.administer(Ask::Revoke { volume: name.into() });
            }
            Step::Renew => world.renew(),
            Step::Resize(blocks) => {
                let bytes = u64::from(blocks % 16 + 1) * 4096;
                world.administer(Ask::Resize { volume: "slowly".into(), bytes });
            }
            Step::ReadOnly(read_only) => {
                let (owner, group, mode, read_only) = (None, None, None, Some(read_only));
                world.administer(Ask::Permit { volume: "mine".into(), owner, group, mode, read_only });
            }
            Step::LeaveChannel => hostile.socket = None,
            Step::Leave => *hostile = Hostile::come(world),
            step => step.lie(hostile),
        }
    }

    fn lie(self, hostile: &mut Hostile) {
        match self {
            Step::Open(which, access) => {
                let access = [Access::Read, Access::Write, Access::ReadWrite][usize::from(access) % 3];
                // Of what is shared it has a right to read; the good client's own it leaves alone, which is what it
                // would be refused as another user.
                let (volume, access) = match usize::from(which) % 5 {
                    3 => ("shared", Access::Read),
                    4 => ("nothing", access),
                    which => (THEIRS[which].0, access),
                };
                hostile.open(&Ask::Open { volume: volume.into(), access }, &[]);
            }
            Step::OpenDescriptor(kind) => {
                // SAFETY: it stays open.
                let file = unsafe { BorrowedFd::borrow_raw(kind.descriptor()) };
                hostile.open(&Ask::OpenDescriptor {}, &[file]);
            }
            Step::OpenChunk(which) => {
                let count = hostile.chunks.len().max(1);
                let Some((chunk, _)) = hostile.chunks.get(usize::from(which) % count) else { return };
                let chunk = chunk.try_clone().unwrap();
                hostile.open(&Ask::OpenDescriptor {}, &[chunk.as_fd()]);
            }
            Step::Close(grant) => drop(hostile.ask(&Ask::Close { grant: hostile.argument(grant) }, &[])),
            Step::Map(grant, from) => hostile.map(hostile.argument(grant), from.of(2) as u32),
            Step::Volumes => drop(hostile.ask(&Ask::Volumes {}, &[])),
            Step::Again => drop(hostile.ask(&Ask::Hello { version: VERSION, name: "x".into() }, &[])),
            Step::With(kinds) => {
                // SAFETY: they stay open.
                let files =
                    kinds.iter().take(3).map(|kind| unsafe { BorrowedFd::borrow_raw(kind.descriptor()) });
                let files: Vec<_> = files.collect();
                // No second channel comes of it: the client has one.
                hostile.ask(if files.len() == 1 { &Ask::Channel {} } else { &Ask::Volumes {} }, &files);
            }
            Step::Say(packet) => {
                // Nothing that an administrator could ask.
                if matches!(&packet, Packet::Bytes(bytes, _) if Ask::of_bytes(bytes).is_ok())
                    || hostile.is_over
                {
                    return;
                }
                let copy = hostile.messages.as_fd().try_clone_to_owned().unwrap();
                packet.send(&copy);
                hostile.is_over = true;
            }
            Step::Unanswered(count) => {
                let ask = Ask::Map { grant: hostile.grant(0), from: 0 }.to_bytes().unwrap();
                for _ in 0..count % 32 {
                    match hostile.messages.send(&ask, &[], Duration::ZERO) {
                        Ok(()) => hostile.owed += 1,
                        Err(_) => return,
                    }
                }
            }
            Step::Request { opcode, grant, block, blocks, buffer, durable } => {
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
                hostile.submit(opcode, flags, (offset, bytes), [hostile.grant(grant), at[0], at[1]]);
            }
            Step::Many { count, pieces, writes } => {
                let count = usize::from(count % 5);
                let mut bytes = 0;
                for (number, (grant, block, blocks)) in pieces.iter().enumerate() {
                    let length = u64::from(blocks % 5) * BLOCK;
                    let words = [hostile.grant(*grant), u64::from(*block) * BLOCK, length];
                    for (word, value) in words.into_iter().enumerate() {
                        hostile.arena.set(number * 3 + word, value);
                    }
                    bytes += if number < count { length } else { 0 };
                }
                let opcode = if writes { 8 } else { 7 };
                hostile.submit(opcode, 0, (0, count as u64 * 24 + bytes), [count as u64, 0, 0]);
            }
            Step::Raw { place, tag, opcode, flags, buffer, arguments } => {
                let (at, turn) = REQUESTS.place(&hostile.control, place);
                for (number, argument) in arguments.into_iter().enumerate() {
                    hostile.control.set(at + 2 + number, hostile.argument(argument));
                }
                hostile.control.set(at + 1, buffer.get());
                let head = tag.of(DEPTH) << 48 | u64::from(flags) << 40 | u64::from(opcode % 12) << 32;
                hostile.control.set(at, head | turn);
                hostile.ring(1);
            }
            Step::Take => {
                let taken = COMPLETIONS.take(&hostile.control, hostile.taken);
                hostile.taken += u64::from(taken.is_some());
            }
            Step::Word(at, value) => {
                hostile.control.set(usize::from(at) % hostile.control.count, value.get());
            }
            Step::Arena(at, value) => hostile.arena.set(usize::from(at) % hostile.arena.count, value.get()),
            Step::Mapped(which, at) => {
                let count = hostile.chunks.len().max(1);
                let Some((_, words)) = hostile.chunks.get(usize::from(which) % count) else { return };
                words.set(usize::from(at) * 4 % words.count, u64::MAX);
            }
            Step::Doorbells(count) => hostile.ring(count.into()),
            _ => {}
        }
    }
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fuzz_target!(|steps: Steps<Step>| settled(LIMIT, || WORLD.with_borrow_mut(|world| {
    let world = world.get_or_insert_with(World::new);
    let mut hostile = Hostile::come(world);
    for step in steps {
        step.take(world, &mut hostile);
    }
    drop(hostile);
    world.inputs += 1;
    let place = world.inputs as u64 * (LOOKED_AT / BLOCK);
    (0..GOOD.len()).for_each(|volume| world.check(volume, place, LOOKED_AT / BLOCK));
    if world.inputs.is_multiple_of(64) {
        (0..GOOD.len()).for_each(|volume| world.check(volume, 0, CHUNK / BLOCK));
    }
    let end = Instant::now() + LIMIT;
    while world.server.status().is_ok_and(|status| status.clients.len() > 1) {
        assert!(Instant::now() < end, "who has left is still there");
        std::thread::yield_now();
    }
})));
