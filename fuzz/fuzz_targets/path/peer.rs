//! The peer of a path, which speaks the protocol by hand as drawn in crates/container/src/layout.rs. A peer
//! that keeps to the protocol knows what the tested side must receive.
//!
//! Invariant: the peer checks the tested side only until the peer first breaks the protocol, so that it does
//! not take the effects for an error of the library. Called by the fuzz target `path`.

use crate::Class;
use bywash_container::Received;
use bywash_fuzz::{ARENA, Kind, Ring, SEALED_BYTES, Size, arena, is_in_a_picture, other_arena, seeded};
use bywash_support::peers::{Words, receive, send};
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Acquire;

/// Number of entries of either lane's ring, and of containers that can be out.
pub const DEPTH: usize = 4;
pub const TICKETS: usize = 8;
/// Rings of a lane; both lanes have the same sizes, each in its own memory.
pub const SHIPPED: Ring = Ring { start: 0, capacity: DEPTH, entry_words: 16 };
pub const RETURNED: Ring = Ring { start: SHIPPED.words(), capacity: TICKETS, entry_words: 1 };
pub const CONTROL_BYTES: usize = (SHIPPED.words() + RETURNED.words()) * 8;
/// Greatest number of bytes, and of pieces, that an entry can contain.
pub const INLINE: usize = 120;
pub const PIECES: usize = 7;

/// Peer of a path, honest or malicious.
pub struct Peer {
    pub class: Class,
    pub no_arena: bool,
    pub socket: Option<OwnedFd>,
    /// Control memory of the lane in which the peer ships, and the tested side returns.
    pub ours: Words,
    /// Control memory of the lane in which the tested side ships, and the peer returns.
    pub theirs: Words,
    /// Arena of the tested side.
    pub their_arena: Option<File>,
    /// True as long as the peer has kept to the protocol; `never_lies` is true if it always does.
    pub honest: bool,
    pub never_lies: bool,
    pub closed: bool,
    pub shipped: u64,
    pub reclaimed: u64,
    pub taken: u64,
    pub returned: u64,
    /// Tickets that the peer can ship with.
    pub free: Vec<u64>,
    /// Tickets of containers that the peer has from the tested side.
    pub held: Vec<u64>,
    pub introduced: bool,
    /// Messages that the tested side has not received yet.
    pub expected: VecDeque<Vec<Contents>>,
    /// Messages that the tested side has shipped and the peer has not taken yet.
    pub shipments: VecDeque<Vec<SentContainer>>,
}

/// Contents that the tested side must find in a container from an honest peer.
#[derive(Clone, Debug)]
pub enum Contents {
    Bytes(Vec<u8>),
    Arena { other: bool, offset: usize, length: usize },
    Sealed,
}

impl Contents {
    fn bytes(&self) -> &[u8] {
        match self {
            Contents::Bytes(bytes) => bytes,
            Contents::Arena { other: false, offset, length } => arena().part(*offset, *length),
            Contents::Arena { other: true, offset, length } => other_arena().part(*offset, *length),
            // A sealed container is compared by its size only.
            Contents::Sealed => &[],
        }
    }

    fn len(&self) -> usize {
        if let Contents::Sealed = self { SEALED_BYTES } else { self.bytes().len() }
    }
}

/// Contents that an honest peer must find in a container from the tested side.
#[derive(Clone, Copy, Debug)]
pub struct SentContainer {
    pub length: usize,
    /// Seed of the contents, if the tested side made the container.
    pub seed: Option<u8>,
}

impl Peer {
    /// Makes a peer after the handshake, with the memory of both lanes and the tested side's arena.
    pub fn new(
        class: Class,
        no_arena: bool,
        never_lies: bool,
        socket: OwnedFd,
        (ours, theirs, their_arena): (Words, Words, Option<File>),
    ) -> Peer {
        Peer {
            class,
            no_arena,
            socket: Some(socket),
            ours,
            theirs,
            their_arena,
            honest: true,
            never_lies,
            closed: false,
            shipped: 0,
            reclaimed: 0,
            taken: 0,
            returned: 0,
            free: (0..TICKETS as u64).collect(),
            held: Vec::new(),
            introduced: false,
            expected: VecDeque::new(),
            shipments: VecDeque::new(),
        }
    }

    fn can_ship(&self) -> bool {
        self.honest && !self.closed && self.socket.is_some()
    }

    /// Returns the number of entries that the tested side has not taken.
    fn in_flight(&self) -> usize {
        (self.shipped - self.ours.at(SHIPPED.start).load(Acquire)) as usize
    }

    fn put(&mut self, entry: &[u64]) {
        assert!(SHIPPED.put(&self.ours, self.shipped, entry));
        self.shipped += 1;
    }

    pub fn ship_inline(&mut self, length: usize, word: u64) {
        if !self.can_ship() || self.class == Class::Sealed || self.in_flight() == DEPTH {
            return;
        }
        let mut entry = [word; 16];
        entry[0] = (length as u64) << 40 | 1 << 32;
        self.put(&entry);
        let bytes: Vec<u8> = entry[1..].iter().flat_map(|word| word.to_le_bytes()).take(length).collect();
        self.expected.push_back(vec![Contents::Bytes(bytes)]);
    }

    /// Ships a message with parts of its own arena, or of the arena that it has introduced.
    pub fn ship_pieces(&mut self, pieces: &[(u8, Size)]) {
        let count = pieces.len().min(self.free.len());
        let room = DEPTH - if self.can_ship() { self.in_flight() } else { DEPTH };
        if count == 0 || self.class == Class::Sealed || count.div_ceil(PIECES) > room {
            return;
        }
        if self.no_arena && !self.introduced {
            return;
        }
        let mut contents = Vec::new();
        let mut entries: Vec<Vec<u64>> = Vec::new();
        for (number, (at, length)) in pieces[..count].iter().enumerate() {
            let other = self.introduced && (self.no_arena || at % 2 == 1);
            let bytes = if other { ARENA / 2 } else { ARENA };
            let offset = usize::from(*at) * 64 % bytes;
            let length = length.get() % (bytes - offset + 1);
            if number % PIECES == 0 {
                entries.push(vec![2 << 32]);
            }
            let entry = entries.last_mut().unwrap();
            entry[0] += 1 << 40;
            entry.push(u64::from(other) << 32 | self.free.pop().unwrap());
            entry.push((length as u64) << 32 | (offset / 64) as u64);
            contents.push(Contents::Arena { other, offset, length });
        }
        let last = entries.len() - 1;
        for (number, mut entry) in entries.into_iter().enumerate() {
            entry[0] |= u64::from(number < last) << 48;
            self.put(&entry);
        }
        self.expected.push_back(contents);
    }

    pub fn ship_sealed(&mut self, count: usize) {
        if !self.can_ship() || self.class != Class::Sealed {
            return;
        }
        let lengths = (0..count).flat_map(|_| (SEALED_BYTES as u64).to_le_bytes());
        let note: Vec<u8> = std::iter::once(3).chain(lengths).collect();
        let socket = self.socket.as_ref().unwrap();
        if send(socket, &note, &vec![Kind::Frozen.descriptor(); count]) {
            self.expected.push_back(vec![Contents::Sealed; count]);
        }
    }

    /// Introduces an arena that it claims to have from another peer.
    pub fn introduce(&mut self) {
        if !self.can_ship() || self.class == Class::Sealed || self.introduced {
            return;
        }
        let note = [&[2, 1, 0][..], &(ARENA as u64 / 2).to_le_bytes()].concat();
        self.introduced = send(self.socket.as_ref().unwrap(), &note, &[Kind::OtherArena.descriptor()]);
    }

    /// Takes the next message that the tested side shipped, and compares it with the recorded one.
    pub fn take(&mut self) {
        if !self.honest || self.socket.is_none() {
            return;
        }
        if self.class == Class::Sealed {
            return self.take_sealed();
        }
        while self.hear().is_some() {}
        let Some(shipments) = self.shipments.pop_front() else {
            assert_eq!(SHIPPED.take(&self.theirs, self.taken), None);
            return;
        };
        let mut left = shipments.into_iter();
        loop {
            let entry = SHIPPED.take(&self.theirs, self.taken).unwrap();
            self.taken += 1;
            let count = (entry[0] >> 40 & 0xff) as usize;
            if entry[0] >> 32 & 0xff == 1 {
                let shipment = left.next().unwrap();
                assert_eq!(count, shipment.length);
                let bytes: Vec<u8> =
                    entry[1..].iter().flat_map(|word| word.to_le_bytes()).take(count).collect();
                assert!(shipment.seed.is_none_or(|seed| bytes == seeded(seed, count)));
                break;
            }
            (0..count).for_each(|number| {
                self.check_piece(entry[1 + 2 * number], entry[2 + 2 * number], left.next())
            });
            if entry[0] >> 48 & 1 == 0 {
                break;
            }
        }
        assert!(left.next().is_none());
    }

    fn check_piece(&mut self, first: u64, second: u64, shipment: Option<SentContainer>) {
        let (ticket, arena) = (first & 0xffff_ffff, first >> 32);
        let (offset, length) = ((second & 0xffff_ffff) * 64, (second >> 32) as usize);
        let shipment = shipment.unwrap();
        assert_eq!(length, shipment.length);
        assert!(ticket < TICKETS as u64 && !self.held.contains(&ticket));
        self.held.push(ticket);
        if arena == 0 {
            let mut bytes = vec![0; length];
            self.their_arena.as_ref().unwrap().read_exact_at(&mut bytes, offset).unwrap();
            assert!(shipment.seed.is_none_or(|seed| bytes == seeded(seed, length)));
        }
    }

    fn take_sealed(&mut self) {
        let packet = loop {
            match self.hear() {
                Some((bytes, _)) if bytes == [1] => {}
                other => break other,
            }
        };
        let (packet, shipments) = (packet, self.shipments.pop_front());
        assert_eq!(packet.is_some(), shipments.is_some());
        let (Some((bytes, files)), Some(shipments)) = (packet, shipments) else { return };
        assert_eq!((bytes.len(), files.len()), (1 + 8 * shipments.len(), shipments.len()));
        for ((length, file), shipment) in bytes[1..].chunks(8).zip(files).zip(shipments) {
            assert_eq!(length, (shipment.length as u64).to_le_bytes());
            let mut bytes = vec![0; shipment.length];
            File::from(file).read_exact_at(&mut bytes, 0).unwrap();
            assert!(shipment.seed.is_none_or(|seed| bytes == seeded(seed, bytes.len())));
        }
    }

    /// Receives a message from the tested side through the socket, if there is one.
    fn hear(&self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let socket = self.socket.as_ref()?;
        let mut polled = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the array has one element and outlives the call.
        let ready = unsafe { libc::poll(&mut polled, 1, 0) };
        if ready <= 0 || polled.revents & libc::POLLIN == 0 {
            return None;
        }
        if polled.revents & libc::POLLERR != 0 {
            // An end that was dropped with unread messages resets the connection. The kernel reports that
            // once, before the messages that the end had sent.
            let (mut error, mut bytes) = (0i32, size_of::<i32>() as libc::socklen_t);
            let (level, option) = (libc::SOL_SOCKET, libc::SO_ERROR);
            // SAFETY: the value outlives the call, and its size is given.
            unsafe {
                libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut error).cast(), &mut bytes);
            }
        }
        let (bytes, files) = receive(socket);
        // A message of no bytes is the end of the connection.
        (!bytes.is_empty()).then_some((bytes, files))
    }

    pub fn give_back(&mut self, which: u8) {
        let Some(at) = pick(which, self.held.len()).filter(|_| self.honest) else { return };
        let ticket = self.held.swap_remove(at);
        assert!(RETURNED.put(&self.theirs, self.returned, &[ticket << 32]));
        self.returned += 1;
    }

    /// Takes the tickets that the tested side has returned.
    pub fn reclaim(&mut self) {
        while self.honest
            && let Some(entry) = RETURNED.take(&self.ours, self.reclaimed)
        {
            self.reclaimed += 1;
            let ticket = entry[0] >> 32;
            assert!(
                ticket < TICKETS as u64 && !self.free.contains(&ticket),
                "ticket {ticket} came back twice"
            );
            self.free.push(ticket);
        }
    }
}

/// Checks that a container has the contents that an honest peer sent.
pub fn same(piece: &Received, contents: &Contents) {
    assert_eq!(piece.len(), contents.len());
    match (piece.to_vec(), contents) {
        (Ok(bytes), Contents::Sealed) => assert!(is_in_a_picture(&bytes)),
        (Ok(bytes), _) => assert_eq!(bytes, contents.bytes()),
        (Err(_), contents) => assert!(matches!(contents, Contents::Arena { .. })),
    }
}

/// Returns an index below `count`, or `None` if that is 0.
pub fn pick(which: u8, count: usize) -> Option<usize> {
    (count > 0).then(|| usize::from(which) % count)
}
