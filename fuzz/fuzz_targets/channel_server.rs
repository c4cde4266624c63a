//! The server's end of a channel, with a malicious client.
//!
//! Failures that this looks for: a request is accepted whose buffer lies outside the arena, or whose tag is
//! invalid; requests arrive twice or out of order before any violation; a client that was found misbehaving
//! is listened to again; a descriptor from the socket is never closed; pages are allocated for the client; a
//! call does not return.

#![no_main]
#![expect(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_channel::{Completer, Error, Request, RequestReceiver, Server, ServerOptions, Wait, socket_pair};
use bywash_fuzz::{
    ARENA, Few, Packet, Ring, Size, Steps, Value, Where, arena, hello, is_in_a_picture, offered_arena,
    watched,
};
use bywash_support::peers::{Words, backed_bytes, offered, receive, send};
use libfuzzer_sys::fuzz_target;
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

const DEPTH: usize = 4;
const REQUESTS: Ring = Ring { start: 0, capacity: DEPTH, entry_words: 8 };
const COMPLETIONS: Ring = Ring { start: REQUESTS.words(), capacity: DEPTH, entry_words: 2 };
const CONTROL_BYTES: usize = (REQUESTS.words() + COMPLETIONS.words()) * 8;
const CLIENT: u32 = 1;
const FENCES: u32 = 4;

#[derive(Arbitrary, Debug)]
struct Input {
    fences: bool,
    sleeps: bool,
    arena: Arena,
    /// If true, the peer keeps to the protocol, and malicious steps are skipped.
    honest: bool,
    steps: Steps<Step>,
}

/// Arena that a client offers.
#[derive(Clone, Copy, Debug)]
enum Arena {
    None,
    /// An arena whose second half is not backed by pages.
    Half,
    Whole,
}

#[derive(Debug)]
enum Step {
    /// Server: takes a request without waiting. The following steps are the server's too.
    TryNext,
    Next,
    Complete {
        which: u8,
        status: u16,
        value: u64,
    },
    Look(u8),
    Arm,
    DropRequests,
    DropCompleter,
    /// Honest client: submits a request with a part of its arena. The following steps are an honest client's
    /// too.
    Submit {
        tag: u8,
        opcode: u8,
        flags: u8,
        offset: u8,
        length: Size,
        argument: u64,
    },
    Reap,
    /// Announces that the client sleeps, and is to be woken by a futex (true) or through the socket.
    Sleep(bool),
    Doorbell,
    Close,
    Leave,
    /// Malicious client: overwrites a word of control memory. The following steps are malicious too.
    Word(u16, Value),
    Request {
        at: Where,
        tag: Few,
        offset: Value,
        length: Value,
    },
    Completion(Where, Few),
    Index(Few),
    Say(Packet),
}

impl<'a> Arbitrary<'a> for Arena {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Arena> {
        Ok(match input.arbitrary::<u8>()? % 4 {
            0 => Arena::Whole,
            2 => Arena::Half,
            _ => Arena::None,
        })
    }
}

/// One byte chooses the step, so that inputs are short. Steps that reach further code are more frequent than
/// those that end the channel.
impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Step> {
        Ok(match input.arbitrary::<u8>()? % 51 {
            0..4 => Step::TryNext,
            4..6 => Step::Next,
            6..11 => Step::Complete {
                which: input.arbitrary()?,
                status: input.arbitrary()?,
                value: input.arbitrary()?,
            },
            11..15 => Step::Look(input.arbitrary()?),
            15..17 => Step::Arm,
            17..25 => Step::Submit {
                tag: input.arbitrary()?,
                opcode: input.arbitrary()?,
                flags: input.arbitrary()?,
                offset: input.arbitrary()?,
                length: input.arbitrary()?,
                argument: input.arbitrary()?,
            },
            25..29 => Step::Reap,
            29..31 => Step::Sleep(input.arbitrary()?),
            31 => Step::Doorbell,
            32 => Step::Close,
            33 => Step::Leave,
            34 => Step::DropRequests,
            35 => Step::DropCompleter,
            36..39 => Step::Word(input.arbitrary()?, input.arbitrary()?),
            39..45 => Step::Request {
                at: input.arbitrary()?,
                tag: input.arbitrary()?,
                offset: input.arbitrary()?,
                length: input.arbitrary()?,
            },
            45..47 => Step::Completion(input.arbitrary()?, input.arbitrary()?),
            47..49 => Step::Index(input.arbitrary()?),
            _ => Step::Say(input.arbitrary()?),
        })
    }
}

/// Client, honest or malicious.
struct Client {
    socket: Option<OwnedFd>,
    control: Words,
    honest: bool,
    never_lies: bool,
    submitted: u64,
    reaped: u64,
    /// Tags of requests in flight.
    in_flight: BTreeSet<u64>,
    /// Requests that the server has not taken: first argument, offset and length of the buffer.
    expected: VecDeque<(u64, usize, usize)>,
    /// Completions that the client has not reaped: first word without the turn, and value.
    completed: VecDeque<(u64, u64)>,
    closed: bool,
    arena: OwnedFd,
    /// Number of bytes of the arena that are backed by pages.
    arena_bytes: usize,
}

struct Victim {
    requests: Option<RequestReceiver>,
    completer: Option<Completer>,
    /// Requests taken and not completed; with their tags as long as the client is honest.
    held: Vec<(Request, u64)>,
    /// True for each half that has found the client misbehaving: the one that takes requests, and the one
    /// that completes.
    accused: [bool; 2],
}

fuzz_target!(|input: Input| watched(|| {
    let (mut victim, mut client) = meet(&input);
    for step in input.steps {
        step.take(&mut victim, &mut client);
    }
    if client.honest && victim.requests.is_some() {
        while !client.expected.is_empty() {
            Step::TryNext.take(&mut victim, &mut client);
        }
    }
    assert_eq!(backed_bytes(&client.arena), client.arena_bytes, "memory was taken for the client");
}));

fn meet(input: &Input) -> (Victim, Client) {
    let (here, there) = socket_pair().unwrap();
    let flags = CLIENT | if input.fences { FENCES } else { 0 };
    let (bytes, arena_bytes) = match input.arena {
        Arena::None => (0, 0),
        Arena::Half => (ARENA as u64, ARENA / 2),
        Arena::Whole => (ARENA as u64, ARENA),
    };
    let (control, arena) = (offered(CONTROL_BYTES), offered_arena(arena_bytes));
    // Once the server has the memory, nobody can map it for writing any more.
    let words = Words::map(&control, CONTROL_BYTES);
    let files = [control.as_raw_fd(), arena.as_raw_fd()];
    let files = if bytes == 0 { &files[..1] } else { &files };
    assert!(send(&there, &hello(b"bywash c", 1, flags, bytes, [DEPTH as u32; 2]), files));
    let wait = if input.sleeps { Wait::Sleep } else { Wait::Adaptive };
    let server = Server::over(here, &ServerOptions::new().wait(wait)).unwrap();
    receive(&there);
    let (requests, completer) = server.split();
    let victim = Victim {
        requests: Some(requests),
        completer: Some(completer),
        held: Vec::new(),
        accused: [false; 2],
    };
    let client = Client {
        socket: Some(there),
        control: words,
        honest: true,
        never_lies: input.honest,
        submitted: 0,
        reaped: 0,
        in_flight: BTreeSet::new(),
        expected: VecDeque::new(),
        completed: VecDeque::new(),
        closed: false,
        arena,
        arena_bytes,
    };
    (victim, client)
}

impl Client {
    /// Checks that a half of the server may get this error.
    fn check(&self, error: &Error, accused: &mut bool) {
        assert!(!*accused || matches!(error, Error::Protocol { .. }), "{error}");
        match error {
            Error::TimedOut => {}
            Error::Protocol { .. } => *accused = true,
            // A malicious client may change the word of control memory that says whether the ring is closed.
            Error::Closed => assert!(self.closed || !self.honest, "{error}"),
            Error::PeerDied { .. } => assert!(self.socket.is_none() || !self.honest, "{error}"),
            other => panic!("{other}"),
        }
        assert!(!self.honest || !*accused, "{error}");
    }
}

impl Victim {
    fn took(&mut self, client: &mut Client, next: Result<Option<Request>, Error>) {
        match next {
            Ok(None) => assert!(!client.honest || client.expected.is_empty(), "a request is lost"),
            Err(error) => {
                client.check(&error, &mut self.accused[0]);
                assert!(!client.honest || client.expected.is_empty(), "{error}: a request is lost");
            }
            Ok(Some(request)) => {
                assert!(!self.accused[0], "a liar is heard again");
                assert!(request.len() <= ARENA);
                let mut tag = 0;
                if client.honest {
                    let (argument, offset, length) = client.expected.pop_front().unwrap();
                    assert_eq!((request.arguments()[0], request.len()), (argument, length));
                    tag = request.arguments()[1];
                    if length > 0 {
                        let mut bytes = vec![0; length];
                        let requests = self.requests.as_ref().unwrap();
                        assert_eq!(requests.memory(&request).read(0, &mut bytes), length);
                        assert_eq!(bytes, arena().part(offset, length));
                    }
                }
                // No more requests can be in flight than there are tags.
                assert!(self.held.len() < DEPTH);
                self.held.push((request, tag));
            }
        }
    }
}

impl Step {
    fn take(self, victim: &mut Victim, client: &mut Client) {
        match self {
            Step::TryNext => {
                let next = victim.requests.as_mut().map(RequestReceiver::try_next);
                next.into_iter().for_each(|next| victim.took(client, next));
            }
            Step::Next => {
                let next = victim.requests.as_mut().map(|half| half.next_within(Duration::ZERO).map(Some));
                next.into_iter().for_each(|next| victim.took(client, next));
            }
            Step::Complete { which, status, value } => {
                let Some(completer) = &mut victim.completer else { return };
                if victim.held.is_empty() {
                    return;
                }
                let (request, tag) = victim.held.swap_remove(usize::from(which) % victim.held.len());
                match completer.complete(request, status, value) {
                    Ok(()) => {
                        assert!(!victim.accused[1], "a liar is heard again");
                        client.completed.push_back((tag << 48 | u64::from(status) << 32, value));
                    }
                    Err(error) => client.check(&error, &mut victim.accused[1]),
                }
            }
            Step::Look(which) => {
                let Some(requests) = &victim.requests else { return };
                if victim.held.is_empty() {
                    return;
                }
                let (request, _) = &victim.held[usize::from(which) % victim.held.len()];
                let memory = requests.memory(request);
                let mut bytes = vec![0; memory.len() + 1];
                assert_eq!(memory.read(0, &mut bytes), request.len());
                bytes.pop();
                assert!(bytes.len() < 8 || is_in_a_picture(&bytes), "{} bytes from elsewhere", bytes.len());
                // Writes the contents that are there already, in the second half.
                let half = bytes.len() / 2;
                assert_eq!(memory.write(half, &bytes[half..]), bytes.len() - half);
            }
            Step::Arm => match victim.requests.as_mut().map(RequestReceiver::arm) {
                Some(Err(error)) => client.check(&error, &mut victim.accused[0]),
                Some(Ok(ready)) => {
                    assert!(!victim.accused[0], "a liar is heard again");
                    let over = client.closed || client.socket.is_none();
                    assert!(!client.honest || ready || (client.expected.is_empty() && !over));
                }
                None => {}
            },
            Step::DropRequests => victim.requests = None,
            Step::DropCompleter => victim.completer = None,
            Step::Submit { tag, opcode, flags, offset, length, argument } => {
                let tag = u64::from(tag) % DEPTH as u64;
                if !client.honest || client.closed || client.in_flight.contains(&tag) {
                    return;
                }
                let offset = (usize::from(offset) * 64).min(client.arena_bytes);
                let length = length.get() % (client.arena_bytes - offset + 1);
                let head = tag << 48 | u64::from(flags) << 40 | u64::from(opcode) << 32;
                let granules = offset as u64 / 64;
                let entry = [head, (length as u64) << 32 | granules, argument, tag, 3, 4, 5, 6];
                if REQUESTS.put(&client.control, client.submitted, &entry) {
                    client.submitted += 1;
                    client.in_flight.insert(tag);
                    client.expected.push_back((argument, offset, length));
                }
            }
            Step::Reap => {
                if client.honest {
                    let found = COMPLETIONS.take(&client.control, client.reaped);
                    let found = found.map(|entry| (entry[0] >> 32 << 32, entry[1]));
                    assert_eq!(found, client.completed.pop_front());
                    if let Some((head, _)) = found {
                        client.reaped += 1;
                        assert!(client.in_flight.remove(&(head >> 48)));
                    }
                }
            }
            Step::Sleep(futex) => COMPLETIONS.sleep(&client.control, true, futex),
            Step::Doorbell => drop(client.socket.as_ref().map(|socket| send(socket, &[1], &[]))),
            Step::Close => {
                REQUESTS.close(&client.control);
                client.closed = true;
            }
            Step::Leave => client.socket = None,
            _ if client.never_lies => {}
            lie => {
                client.honest = false;
                lie.lie(client);
            }
        }
    }

    fn lie(self, client: &mut Client) {
        let control = &client.control;
        match self {
            Step::Word(at, value) => control.set(usize::from(at) % control.count, value.get()),
            Step::Request { at, tag, offset, length } => {
                let (at, turn) = REQUESTS.place(control, at);
                control.set(at + 1, length.half() << 32 | offset.half());
                control.set(at, tag.of(DEPTH) << 48 | turn);
            }
            Step::Completion(at, tag) => {
                let (at, turn) = COMPLETIONS.place(control, at);
                control.set(at, tag.of(DEPTH) << 48 | turn);
            }
            // Index up to which the client claims to have reaped completions.
            Step::Index(reaped) => control.set(COMPLETIONS.start, reaped.of(2 * DEPTH)),
            Step::Say(packet) => client.socket.iter().for_each(|socket| packet.send(socket)),
            _ => {}
        }
    }
}
