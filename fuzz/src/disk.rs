//! A disk exported by vhost-user, a frontend that speaks the protocol by hand, and a guest's memory.
//!
//! The disk lives as long as the process, and is served by threads of its own; each input has a new frontend.
//! The disk's device checks that each command is one that it can carry out, and accesses all of its memory.

use bywash_device::{Access, Command, Completion, Device, Geometry, Operation, QueueFull, Segment};
use bywash_support::peers::{Words, memory};
use bywash_vhost::{Export, Options};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::time::{Duration, Instant};

/// Size of the disk, in bytes.
pub const DISK_BYTES: u64 = 1 << 18;
/// Size of a guest's memory, in bytes.
pub const GUEST_BYTES: usize = 1 << 16;
/// Address of the guest's memory in the frontend.
pub const FRONTEND: u64 = 0x7000_0000_0000;
/// Address of the descriptor table in the guest's memory.
pub const TABLE: u64 = 0x1000;
/// Address of the available ring in the guest's memory.
pub const AVAILABLE: u64 = 0x2000;
/// Address of the used ring in the guest's memory.
pub const USED: u64 = 0x3000;
/// Address of the request headers and of indirect descriptor tables in the guest's memory.
pub const HEADS: u64 = 0x4000;
/// Address of the status bytes of requests in the guest's memory.
pub const STATES: u64 = 0x5000;
/// Address of the data of requests in the guest's memory.
pub const DATA: u64 = 0x8000;
/// Number of entries of a ring.
pub const ENTRIES: u16 = 64;
/// Greatest number of commands in the device at once.
const DEPTH: usize = 8;
/// Greatest time that the disk may take for one step of an input.
const LIMIT: Duration = Duration::from_secs(8);

/// Numbers of the frontend's messages in vhost-user.
pub mod message {
    #![expect(missing_docs, reason = "they are the protocol's names")]
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const GET_CONFIG: u32 = 24;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
}

/// VIRTIO_F_VERSION_1 and VHOST_USER_F_PROTOCOL_FEATURES.
pub const FEATURES: u64 = 1 << 32 | 1 << 30;
/// VIRTIO_F_EVENT_IDX.
pub const EVENT_INDEX: u64 = 1 << 29;

struct Waiting {
    operation: Operation,
    offset: usize,
    segments: Vec<Segment>,
    /// Owner of the segments' memory, with the command's token.
    completion: Completion,
}

/// Device of [`DISK_BYTES`] of memory that carries out the last command first, and checks that each can be carried
/// out.
pub struct Checked {
    bytes: Vec<u8>,
    waiting: Vec<Waiting>,
}

impl Default for Checked {
    fn default() -> Checked {
        Checked { bytes: vec![0; DISK_BYTES as usize], waiting: Vec::new() }
    }
}

impl Checked {
    fn carry_out(&mut self, operation: Operation, mut offset: usize, segments: &[Segment]) {
        for segment in segments {
            let here = self.bytes[offset..offset + segment.bytes()].as_mut_ptr();
            // SAFETY: the command's owner keeps the segment mapped, which this access tests; `here` has
            // `segment.bytes()` bytes.
            unsafe {
                match operation {
                    Operation::Read => segment.base().copy_from_nonoverlapping(here, segment.bytes()),
                    _ => here.copy_from_nonoverlapping(segment.base(), segment.bytes()),
                }
            }
            offset += segment.bytes();
        }
    }
}

impl Device for Checked {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: DISK_BYTES,
            block: 512,
            optimal: 4096,
            transfer_max: 1 << 16,
            range_max: 1 << 16,
            segments_max: 8,
            access: Access::ReadWrite,
        }
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        let checked = command.check(&self.geometry());
        assert!(checked.is_ok(), "{command:?}: {checked:?}");
        let (operation, segments) = (command.operation(), command.segments().to_vec());
        assert!(operation.moves_data() != segments.is_empty(), "{command:?}");
        if self.waiting.len() >= DEPTH {
            return Err(QueueFull(command));
        }
        let offset = command.offset() as usize;
        let completion = command.done(Ok(()));
        let token = completion.token;
        assert!(self.waiting.iter().all(|waiting| waiting.completion.token != token), "{token} is in flight");
        assert!(
            completion.owner.is_some() || segments.is_empty(),
            "nothing keeps the memory of {token} mapped"
        );
        self.waiting.push(Waiting { operation, offset, segments, completion });
        Ok(())
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        let count = self.waiting.len();
        while let Some(Waiting { operation, offset, segments, completion }) = self.waiting.pop() {
            self.carry_out(operation, offset, &segments);
            done(completion);
        }
        count
    }

    fn arm(&mut self) -> bool {
        !self.waiting.is_empty()
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    fn description(&self) -> String {
        "memory that checks its commands".to_owned()
    }
}

/// Exported disk, and the memory and event counters of its guests.
pub struct Disk {
    export: Export,
    folder: tempfile::TempDir,
    file: OwnedFd,
    /// The guest's memory.
    pub words: Words,
    events: [OwnedFd; 2],
    honest: u64,
}

/// Connection of a frontend to the disk.
pub struct Frontend(UnixStream);

impl Disk {
    /// Exports the disk at a new socket.
    pub fn start() -> Disk {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let export = Export::start(listener, Checked::default(), Options::new().queues(2), |_| {}).unwrap();
        let file = memory(GUEST_BYTES, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW);
        let words = Words::map(&file, GUEST_BYTES);
        let events = [crate::files::event(), crate::files::event()];
        Disk { export, folder, file, words, events, honest: 0 }
    }

    /// Connects a frontend, and clears the guest's memory.
    pub fn connect(&self) -> Frontend {
        self.words.clear();
        let socket = UnixStream::connect(self.folder.path().join("socket")).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut frontend = Frontend(socket);
        // Since Linux 6.16 the kernel passes no descriptors to the disk before its first reply, so wait for
        // that.
        assert!(frontend.say(message::GET_FEATURES, &[], &[]));
        frontend.0.read_exact(&mut [0; 20]).expect("a frontend that has just come is answered");
        frontend
    }

    /// Notifies the disk that the available ring has new chains.
    pub fn kick(&self) {
        // SAFETY: the buffer has eight bytes and outlives the call. If the counter is full, it is readable
        // already.
        unsafe { libc::write(self.events[0].as_raw_fd(), 1u64.to_ne_bytes().as_ptr().cast(), 8) };
    }

    /// Sends all messages that start a ring at chain 0, with `features` in addition to the usual ones.
    pub fn start_ring(&self, frontend: &Frontend, features: u64) {
        let region = [0, GUEST_BYTES as u64, FRONTEND, 0];
        let address = [0, FRONTEND + TABLE, FRONTEND + USED, FRONTEND + AVAILABLE, 0];
        let ring = |value: u32| u64::from(value) << 32;
        let [kick, call] = self.events.each_ref().map(AsRawFd::as_raw_fd);
        frontend.say(message::SET_OWNER, &[], &[]);
        frontend.say(message::SET_FEATURES, &[FEATURES | features], &[]);
        let table = [&[1][..], &region].concat();
        frontend.say(message::SET_MEM_TABLE, &table, &[self.file.as_raw_fd()]);
        frontend.say(message::SET_VRING_NUM, &[ring(ENTRIES.into())], &[]);
        frontend.say(message::SET_VRING_BASE, &[ring(0)], &[]);
        frontend.say(message::SET_VRING_ADDR, &address, &[]);
        frontend.say(message::SET_VRING_CALL, &[0], &[call]);
        frontend.say(message::SET_VRING_KICK, &[0], &[kick]);
        frontend.say(message::SET_VRING_ENABLE, &[ring(1)], &[]);
    }

    /// Writes bytes into the guest's memory; bytes beyond its end are dropped.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        for (place, byte) in (at..GUEST_BYTES as u64).zip(bytes) {
            self.exchange(place, 0xff, (*byte).into());
        }
    }

    /// Writes a 16-bit number atomically, since the disk may read it at any time.
    fn put_half(&self, at: u64, half: u16) {
        self.exchange(at, 0xffff, half.into());
    }

    /// Replaces some bits of one word atomically; the disk may change the other bits meanwhile.
    fn exchange(&self, at: u64, mask: u64, bits: u64) {
        let (word, shift) = (self.words.at((at / 8) as usize), at % 8 * 8);
        let mut old = word.load(Acquire);
        while let Err(now) =
            word.compare_exchange(old, old & !(mask << shift) | bits << shift, SeqCst, Acquire)
        {
            old = now;
        }
    }

    /// Writes a descriptor into a table.
    pub fn put_descriptor(&self, table: u64, number: u16, (at, bytes, flags, next): (u64, u32, u16, u16)) {
        let place = table + 16 * u64::from(number);
        let rest = u64::from(bytes) | u64::from(flags) << 32 | u64::from(next) << 48;
        self.put(place, &[at.to_le_bytes(), rest.to_le_bytes()].concat());
    }

    /// Makes the chain that begins with descriptor `first` available, as the `position`th.
    pub fn offer(&self, position: u16, first: u16) {
        self.put(AVAILABLE + 4 + 2 * u64::from(position % ENTRIES), &first.to_le_bytes());
        self.put_half(AVAILABLE + 2, position.wrapping_add(1));
    }

    /// Reads the 16-bit number at an address.
    fn half(&self, at: u64) -> u16 {
        (self.words.at((at / 8) as usize).load(Acquire) >> (at % 8 * 8)) as u16
    }

    /// Connects a frontend that keeps to the protocol, which writes a page and reads it again.
    pub fn check(&mut self) {
        self.honest += 1;
        let (frontend, page, seed) = (self.connect(), self.honest % 32, self.honest as u8);
        self.start_ring(&frontend, 0);
        for (round, kind) in [(0u16, 1u32), (1, 0)] {
            let (head, data) = (HEADS + 32 * u64::from(round), DATA + 4096 * u64::from(round));
            self.put(head, &kind.to_le_bytes());
            self.put(head + 8, &(page * 8).to_le_bytes());
            if round == 0 {
                self.put(data, &[seed; 4096]);
            }
            self.put(STATES + u64::from(round), &[0xff]);
            let first = 3 * round;
            self.put_descriptor(TABLE, first, (head, 16, 1, first + 1));
            self.put_descriptor(TABLE, first + 1, (data, 4096, if kind == 0 { 3 } else { 1 }, first + 2));
            self.put_descriptor(TABLE, first + 2, (STATES + u64::from(round), 1, 2, 0));
            self.offer(round, first);
            self.kick();
            let end = Instant::now() + LIMIT;
            while self.half(USED + 2) != round + 1 {
                assert!(Instant::now() < end, "an honest guest waits");
                std::thread::yield_now();
            }
            assert_eq!((self.half(STATES) >> (8 * round)) as u8, 0, "an honest guest's request fails");
        }
        let word = u64::from_ne_bytes([seed; 8]);
        let first = ((DATA + 4096) / 8) as usize;
        assert!((first..first + 512).all(|index| self.words.at(index).load(Acquire) == word), "other bytes");
        frontend.end();
        let stats = self.export.stats();
        assert!(stats.refused <= stats.requests && stats.failed == 0, "{stats:?}");
    }
}

impl Frontend {
    /// Sends a message with these words as its payload, and descriptors; false if the disk no longer
    /// receives.
    pub fn say(&self, request: u32, words: &[u64], files: &[RawFd]) -> bool {
        let payload: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.say_bytes(request, 1, payload.len() as u32, &payload, files)
    }

    /// Sends a message with any header and payload.
    pub fn say_bytes(&self, request: u32, flags: u32, size: u32, payload: &[u8], files: &[RawFd]) -> bool {
        let mut bytes: Vec<u8> = [request, flags, size].iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(payload);
        self.send(&bytes, files)
    }

    /// Sends any bytes.
    pub fn send(&self, bytes: &[u8], files: &[RawFd]) -> bool {
        let socket = OwnedFd::from(self.0.try_clone().unwrap());
        bywash_support::peers::send(&socket, bytes, files)
    }

    /// Ends the sending direction, and waits until the disk has handled all messages and closed the
    /// connection.
    pub fn end(mut self) {
        // Fails if the disk has closed the connection already.
        let _ = self.0.shutdown(std::net::Shutdown::Write);
        let mut answers = [0; 4096];
        loop {
            match self.0.read(&mut answers) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
                // The fuzzer's own timer interrupts system calls.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("the disk does not let a frontend go: {error}"),
            }
        }
    }
}
