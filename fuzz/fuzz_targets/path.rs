//! One or two ends of paths of every class, with malicious peers.
//!
//! Failures that this looks for: a piece is accepted that lies outside its arena, or in an arena that the
//! peer can shrink; a ticket is returned that is not out; a malicious peer ends the path to another, honest
//! one, or keeps that one's containers for ever; what was shipped correctly arrives changed, twice, out of
//! order or not at all; a peer that was found misbehaving is listened to again; a descriptor or a mapping is
//! lost; a call does not return.

#![no_main]
#![expect(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

#[path = "path/peer.rs"]
mod peer;

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_container::{Container, Error, HugePages, Message, Options, Path, Shipment, Wait, socket_pair};
use bywash_fuzz::{
    ARENA, Few, Packet, Size, Steps, Value, Where, arena, hello, is_in_a_picture, seeded, watched,
};
use bywash_support::peers::{Words, offered, receive, send};
use libfuzzer_sys::fuzz_target;
use peer::{
    CONTROL_BYTES, Contents, DEPTH, INLINE, PIECES, Peer, RETURNED, SHIPPED, SentContainer, TICKETS, pick,
    same,
};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

const FLAG_SEALED: u32 = 1;
const FLAG_WRITABLE: u32 = 2;
const FLAG_FENCES: u32 = 4;
/// Greatest number of messages and of containers that the tested side keeps.
const KEPT: usize = 16;
const NOW: Duration = Duration::ZERO;

#[derive(Arbitrary, Debug)]
struct Input {
    ends: [Setup; 2],
    steps: Steps<Step>,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Checked,
    Trusted,
    Writable,
    Sealed,
    Forward,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Setup {
    class: Class,
    sleeps: bool,
    fences: bool,
    /// If true, the peer has no arena.
    no_arena: bool,
    /// If true, the peer keeps to the protocol, and malicious steps are skipped.
    honest: bool,
}

#[derive(Arbitrary, Debug)]
struct Step {
    /// Number of the end that takes the step: the second if true.
    other: bool,
    what: What,
    /// If true, the tested side tries to receive a message afterwards.
    receives: bool,
}

#[derive(Debug)]
enum What {
    /// Tested side: receives a message. The following steps are the tested side's too.
    Receive,
    TryReceive,
    Look(u8),
    Drop(u8),
    Alloc(Size),
    Free(u8),
    Ship(u8),
    /// Allocates a container and ships it.
    Send(Size),
    ShipTwo(u8, u8),
    ShipOn(u8),
    Arm,
    End,
    /// Honest peer: ships a message within an entry. The following steps are an honest peer's too.
    Inline(u8, u64),
    Pieces(Vec<(u8, Size)>),
    Sealed(u8),
    Introduce,
    Take,
    Return(u8),
    /// Takes a message and returns all its containers.
    Serve,
    Reclaim,
    /// Announces that the peer sleeps until there is a message, or until there is room.
    Sleep {
        for_room: bool,
        futex: bool,
    },
    Doorbell,
    Close,
    Leave,
    /// Malicious peer: overwrites a word of control memory, of the lane in which the peer ships (`ours`) or
    /// of the other one. The following steps are malicious too.
    Word {
        ours: bool,
        at: u16,
        value: Value,
    },
    Entry {
        at: Where,
        kind: Few,
        count: Few,
        more: bool,
        piece: Piece,
    },
    Rubbish {
        at: Where,
        word: u64,
    },
    Ticket {
        ours: bool,
        at: Where,
        ticket: Few,
    },
    Index {
        returned: bool,
        index: Few,
    },
    Say(Packet),
}

/// One byte chooses the step, so that inputs are short. Steps that reach further code are more frequent than
/// those that end the path.
impl<'a> Arbitrary<'a> for What {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<What> {
        Ok(match input.arbitrary::<u8>()? % 86 {
            0..2 => What::Receive,
            2..5 => What::TryReceive,
            5..7 => What::Look(input.arbitrary()?),
            7..10 => What::Drop(input.arbitrary()?),
            10..12 => What::Alloc(input.arbitrary()?),
            12 => What::Free(input.arbitrary()?),
            13..15 => What::Ship(input.arbitrary()?),
            15..23 => What::Send(input.arbitrary()?),
            23..25 => What::ShipTwo(input.arbitrary()?, input.arbitrary()?),
            25..30 => What::ShipOn(input.arbitrary()?),
            30..32 => What::Arm,
            32..35 => What::Inline(input.arbitrary()?, input.arbitrary()?),
            35..42 => What::Pieces(input.arbitrary()?),
            42..46 => What::Sealed(input.arbitrary()?),
            46..48 => What::Introduce,
            48..50 => What::Take,
            50..52 => What::Return(input.arbitrary()?),
            52..57 => What::Serve,
            57..60 => What::Reclaim,
            60..62 => What::Sleep { for_room: input.arbitrary()?, futex: input.arbitrary()? },
            62 => What::Doorbell,
            63 => What::Close,
            64 => What::Leave,
            65 => What::End,
            66..69 => {
                What::Word { ours: input.arbitrary()?, at: input.arbitrary()?, value: input.arbitrary()? }
            }
            69..76 => What::Entry {
                at: input.arbitrary()?,
                kind: input.arbitrary()?,
                count: input.arbitrary()?,
                more: input.arbitrary()?,
                piece: input.arbitrary()?,
            },
            76 => What::Rubbish { at: input.arbitrary()?, word: input.arbitrary()? },
            77..80 => {
                What::Ticket { ours: input.arbitrary()?, at: input.arbitrary()?, ticket: input.arbitrary()? }
            }
            80..82 => What::Index { returned: input.arbitrary()?, index: input.arbitrary()? },
            _ => What::Say(input.arbitrary()?),
        })
    }
}

/// Descriptors of an entry's pieces, as a malicious peer writes them.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Piece {
    arena: Few,
    /// Ticket of the first piece; the others have the following numbers.
    ticket: Few,
    offset: Value,
    length: Value,
}

/// End of the tested side, and its peer.
struct End {
    /// `None` after the end was dropped.
    path: Option<Path>,
    peer: Peer,
    accused: bool,
}

/// Messages that the tested side has received, and containers that it may ship.
#[derive(Default)]
struct Hands {
    /// Received messages, each with the number of the end that received it.
    kept: Vec<(usize, Message)>,
    made: Vec<(usize, Container, u8)>,
    seed: u8,
}

fuzz_target!(|input: Input| watched(|| {
    let mut ends = [None, None];
    let mut hands = Hands::default();
    for step in input.steps {
        let number = usize::from(step.other);
        let end = ends[number].get_or_insert_with(|| meet(input.ends[number]));
        step.what.take(number, end, &mut hands);
        if step.receives {
            What::TryReceive.take(number, end, &mut hands);
        }
    }
    // Messages that honest peers have sent still arrive, once each.
    for (number, end) in ends.iter_mut().enumerate() {
        let Some(end) = end else { continue };
        while end.peer.honest && end.path.is_some() && !end.peer.expected.is_empty() {
            What::TryReceive.take(number, end, &mut hands);
            hands.kept.clear();
        }
    }
    hands.made.clear();
    hands.kept.clear();
    // Containers that were shipped on are returned when the end is dropped over which they were shipped.
    let [one, other] = ends;
    let mut peers = Vec::new();
    for end in [one, other].into_iter().flatten() {
        drop(end.path);
        peers.push(end.peer);
    }
    for mut peer in peers.into_iter().filter(|peer| peer.honest) {
        peer.reclaim();
        let unreceived = peer.expected.iter().flatten();
        let unreceived = unreceived.filter(|contents| matches!(contents, Contents::Arena { .. })).count();
        assert_eq!(peer.free.len() + unreceived, TICKETS, "a container was never returned");
    }
}));

fn meet(setup: Setup) -> End {
    let (here, there) = socket_pair().unwrap();
    let control = offered(CONTROL_BYTES);
    // Once the tested side has the memory, nobody can map it for writing any more.
    let ours = Words::map(&control, CONTROL_BYTES);
    let (class, no_arena) = (setup.class, setup.no_arena || setup.class == Class::Sealed);
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    let flags = flag(class == Class::Sealed, FLAG_SEALED)
        | flag(class == Class::Writable, FLAG_WRITABLE)
        | flag(setup.fences, FLAG_FENCES);
    let bytes = if no_arena { 0 } else { ARENA as u64 };
    let files = [control.as_raw_fd(), arena().file.as_raw_fd()];
    let greeting = hello(b"bywash p", 1, flags, bytes, [DEPTH as u32, TICKETS as u32]);
    assert!(send(&there, &greeting, &files[..if no_arena { 1 } else { 2 }]));
    let options = Options::new()
        .arena_bytes(ARENA)
        .depth(DEPTH as u32)
        .containers_shipped_max(TICKETS as u32)
        .huge_pages(HugePages::No)
        .peer_arena_bytes_max(1 << 20);
    let options = match class {
        Class::Checked => options,
        // SAFETY: the peers of this target, malicious or not, never write to their arena.
        Class::Trusted => unsafe { options.trusted() },
        // SAFETY: the peers of this target never write to their arena or to the tested side's.
        Class::Writable => unsafe { options.trusted_to_write() },
        Class::Sealed => options.sealed(),
        Class::Forward => options.forward(),
    };
    let wait = if setup.sleeps { Wait::Sleep } else { Wait::Adaptive };
    let path = Path::over(here, &options.wait(wait)).unwrap();
    let (_, files) = receive(&there);
    let mut files = files.into_iter();
    let theirs = Words::map(&files.next().unwrap(), CONTROL_BYTES);
    let memory = (ours, theirs, files.next().map(File::from));
    let peer = Peer::new(class, no_arena, setup.honest, there, memory);
    End { path: Some(path), peer, accused: false }
}

impl What {
    fn take(self, number: usize, end: &mut End, hands: &mut Hands) {
        match self {
            What::Receive => {
                let received = end.path.as_ref().map(|path| path.receive_within(NOW).map(Some));
                received.into_iter().for_each(|received| end.received(number, received, hands));
            }
            What::TryReceive => {
                let received = end.path.as_ref().map(Path::try_receive);
                received.into_iter().for_each(|received| end.received(number, received, hands));
            }
            What::Look(which) => {
                if let Some(at) = pick(which, hands.kept.len()) {
                    look_at(&mut hands.kept[at].1);
                }
            }
            What::Drop(which) => {
                pick(which, hands.kept.len()).map(|at| hands.kept.swap_remove(at));
            }
            What::Alloc(bytes) => end.alloc(number, bytes.get(), hands),
            What::Free(which) => {
                if let Some(at) = pick(which, hands.made.len()) {
                    let (_, container, seed) = hands.made.swap_remove(at);
                    assert!(*container == *seeded(seed, container.len()), "two containers overlap");
                }
            }
            What::Ship(which) => end.ship(number, &[which], hands),
            What::Send(bytes) => {
                end.alloc(number, bytes.get(), hands);
                end.ship(number, &[hands.made.len().saturating_sub(1) as u8], hands);
            }
            What::ShipTwo(one, other) => end.ship(number, &[one, other], hands),
            What::ShipOn(which) => end.ship_on(which, hands),
            What::Arm => match end.path.as_ref().map(Path::arm) {
                Some(Err(error)) => end.check(&error),
                Some(Ok(ready)) => {
                    assert!(!end.accused, "a liar is heard again");
                    let over = end.peer.closed || end.peer.socket.is_none();
                    assert!(!end.peer.honest || ready || (end.peer.expected.is_empty() && !over));
                }
                None => {}
            },
            What::End => end.path = None,
            honest_or_not => honest_or_not.say(&mut end.peer),
        }
    }

    /// Carries out a step of the peer.
    fn say(self, peer: &mut Peer) {
        match self {
            What::Inline(length, word) => peer.ship_inline(usize::from(length) % (INLINE + 1), word),
            What::Pieces(pieces) => peer.ship_pieces(&pieces),
            What::Sealed(count) => peer.ship_sealed(1 + usize::from(count % 3)),
            What::Introduce => peer.introduce(),
            What::Take => peer.take(),
            What::Return(which) => peer.give_back(which),
            What::Serve => {
                peer.take();
                (0..peer.held.len()).for_each(|_| peer.give_back(0));
            }
            What::Reclaim => peer.reclaim(),
            What::Sleep { for_room: true, futex } => SHIPPED.sleep(&peer.ours, false, futex),
            What::Sleep { for_room: false, futex } => SHIPPED.sleep(&peer.theirs, true, futex),
            What::Doorbell => drop(peer.socket.as_ref().map(|socket| send(socket, &[1], &[]))),
            What::Close => {
                SHIPPED.close(&peer.ours);
                peer.closed = true;
            }
            What::Leave => peer.socket = None,
            _ if peer.never_lies => {}
            lie => {
                peer.honest = false;
                lie.lie(peer);
            }
        }
    }

    fn lie(self, peer: &Peer) {
        let memory = |ours: bool| if ours { &peer.ours } else { &peer.theirs };
        match self {
            What::Word { ours, at, value } => {
                memory(ours).set(usize::from(at) % (CONTROL_BYTES / 8), value.get());
            }
            What::Entry { at, kind, count, more, piece } => {
                let (at, turn) = SHIPPED.place(&peer.ours, at);
                let most = if kind.of(2) == 1 { INLINE } else { PIECES };
                for number in 0..PIECES {
                    let ticket = piece.ticket.of(TICKETS) + number as u64;
                    peer.ours.set(at + 1 + 2 * number, piece.arena.of(2) << 32 | ticket);
                    peer.ours.set(at + 2 + 2 * number, piece.length.half() << 32 | piece.offset.half());
                }
                let head = u64::from(more) << 48 | (count.of(most) & 0xff) << 40 | (kind.of(2) & 0xff) << 32;
                peer.ours.set(at, head | turn);
            }
            What::Rubbish { at, word } => {
                let (at, turn) = SHIPPED.place(&peer.ours, at);
                peer.ours.set(at, word << 32 | turn);
            }
            What::Ticket { ours, at, ticket } => {
                let (at, turn) = RETURNED.place(memory(ours), at);
                memory(ours).set(at, ticket.of(TICKETS) << 32 | turn);
            }
            // Index up to which the peer claims to have taken shipped entries, or returned ones.
            What::Index { returned: false, index } => peer.theirs.set(SHIPPED.start, index.of(2 * DEPTH)),
            What::Index { returned: true, index } => peer.ours.set(RETURNED.start, index.of(2 * TICKETS)),
            What::Say(packet) => peer.socket.iter().for_each(|socket| packet.send(socket)),
            _ => {}
        }
    }
}

/// Checks that every piece lies within memory of a peer, or came within an entry.
fn look_at(message: &mut Message) {
    let mut total = 0;
    for piece in message.pieces() {
        total += piece.len();
        assert!(piece.len() <= ARENA, "a piece of {} bytes", piece.len());
        match piece.to_vec() {
            Ok(bytes) => {
                assert!(
                    bytes.len() <= INLINE || is_in_a_picture(&bytes),
                    "{} bytes from elsewhere",
                    bytes.len()
                );
                if let Ok(inside) = piece.map() {
                    assert!(*inside == bytes);
                }
            }
            Err(Error::NotMapped(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(message.len(), total);
    if let Ok(inside) = message.first_mut().map_mut() {
        // Writes the contents that are there already.
        let last = inside.len().saturating_sub(1);
        inside.copy_within(last.., last);
    }
}

impl End {
    /// Checks that the tested side may get this error.
    fn check(&mut self, error: &Error) {
        let peer = &self.peer;
        match error {
            Error::TimedOut | Error::AllocTimedOut { .. } => {}
            Error::Protocol { .. } => self.accused = true,
            // A malicious peer may change the word of control memory that says whether the lane is closed.
            // The error may also be an earlier one.
            Error::Closed => assert!(peer.closed || peer.socket.is_none() || !peer.honest, "{error}"),
            Error::PeerDied { .. } => assert!(peer.socket.is_none() || !peer.honest, "{error}"),
            // Errors that the tested side causes itself.
            Error::TooLarge { .. }
            | Error::ArenaFull { .. }
            | Error::WrongPath(_)
            | Error::MessageSize { .. } => {}
            other => panic!("{other}"),
        }
        assert!(!peer.honest || !self.accused, "{error}");
    }

    fn received(&mut self, number: usize, received: Result<Option<Message>, Error>, hands: &mut Hands) {
        let peer = &mut self.peer;
        match received {
            Ok(None) => {
                assert!(!self.accused, "a liar is heard again");
                assert!(!peer.honest || peer.expected.is_empty(), "a message is lost");
            }
            Err(error) => {
                assert!(!peer.honest || peer.expected.is_empty(), "{error}: a message is lost");
                assert!(!self.accused || matches!(error, Error::Protocol { .. }), "{error}");
                self.check(&error);
            }
            Ok(Some(mut message)) => {
                assert!(!self.accused, "a liar is heard again");
                look_at(&mut message);
                assert_eq!(message.origin().pid, std::process::id());
                if peer.honest {
                    let expected = peer.expected.pop_front().unwrap();
                    assert_eq!(message.pieces().count(), expected.len());
                    message.pieces().zip(&expected).for_each(|(piece, contents)| same(piece, contents));
                }
                hands.kept.push((number, message));
                if hands.kept.len() > KEPT {
                    hands.kept.remove(0);
                }
            }
        }
    }

    fn alloc(&mut self, number: usize, bytes: usize, hands: &mut Hands) {
        let Some(path) = &self.path else { return };
        match path.alloc_within(bytes, NOW) {
            Ok(mut container) => {
                assert!(container.len() == bytes && container.capacity() >= bytes);
                hands.seed = hands.seed.wrapping_add(1);
                container.copy_from_slice(seeded(hands.seed, bytes));
                hands.made.push((number, container, hands.seed));
                if hands.made.len() > KEPT {
                    hands.made.remove(0);
                }
            }
            Err(error) => self.check(&error),
        }
    }

    /// Ships containers, made at any end, as one message.
    fn ship(&mut self, number: usize, which: &[u8], hands: &mut Hands) {
        let Some(path) = &self.path else { return };
        let (mut shipment, mut shipments) = (Vec::new(), Vec::new());
        for which in which {
            let Some(at) = pick(*which, hands.made.len()) else { continue };
            let (home, container, seed) = hands.made.swap_remove(at);
            assert!(*container == *seeded(seed, container.len()), "two containers overlap");
            shipments.push((home, SentContainer { length: container.len(), seed: Some(seed) }));
            shipment.push(Shipment::Own(container));
        }
        let shipped = match shipment.len() {
            1 => path
                .ship_within(shipment.remove(0), NOW)
                .map_err(|refused| (refused.error, vec![*refused.shipment])),
            _ => path.ship_all_within(shipment, NOW).map_err(|refused| (refused.error, refused.shipment)),
        };
        match shipped {
            Ok(()) => {
                self.peer.shipments.push_back(shipments.into_iter().map(|(_, shipment)| shipment).collect())
            }
            Err((error, shipment)) => {
                self.check(&error);
                let again = shipment.len() == shipments.len();
                assert!(again || matches!(error, Error::Protocol { .. }), "{error}: containers are lost");
                for (refused, (home, sent)) in shipment.into_iter().zip(shipments) {
                    // A container that was sealed or copied into this end's arena before the refusal can
                    // still be shipped, from this end.
                    if let (Shipment::Own(container), Some(seed)) = (refused, sent.seed)
                        && again
                    {
                        hands.made.push((
                            if container.len() > INLINE { home } else { number },
                            container,
                            seed,
                        ));
                    }
                }
            }
        }
    }

    /// Ships a received message on, as it came, from any end.
    fn ship_on(&mut self, which: u8, hands: &mut Hands) {
        let Some(path) = &self.path else { return };
        let Some(at) = pick(which, hands.kept.len()) else { return };
        let (_, message) = hands.kept.swap_remove(at);
        let shipment: Vec<Shipment> = message.into_pieces().map(Shipment::Received).collect();
        let shipments =
            shipment.iter().map(|shipment| SentContainer { length: shipment.len(), seed: None }).collect();
        match path.ship_all_within(shipment, NOW) {
            Ok(()) => self.peer.shipments.push_back(shipments),
            Err(refused) => self.check(&refused.error),
        }
    }
}
