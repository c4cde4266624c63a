//! The client's end of a channel, with a malicious server.
//!
//! Failures that this looks for: a completion is accepted whose tag is not in flight, so that a buffer is
//! returned twice or a wrong one is; two buffers overlap; a server that was found misbehaving is listened to
//! again; a descriptor from the socket is never closed; a call does not return.

#![no_main]
#![expect(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_channel::{
    Buffer, Client, Completion, Error, HugePages, Options, Reaper, Submission, Submitter, Wait, socket_pair,
};
use bywash_fuzz::{ARENA, Few, Packet, Ring, Size, Steps, Value, Where, hello, seeded, watched};
use bywash_support::peers::{Words, receive, send};
use libfuzzer_sys::fuzz_target;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::Duration;

const DEPTH: usize = 4;
const REQUESTS: Ring = Ring { start: 0, capacity: DEPTH, entry_words: 8 };
const COMPLETIONS: Ring = Ring { start: REQUESTS.words(), capacity: DEPTH, entry_words: 2 };
const CONTROL_BYTES: usize = (REQUESTS.words() + COMPLETIONS.words()) * 8;
const SERVER: u32 = 2;
const FENCES: u32 = 4;

#[derive(Arbitrary, Debug)]
struct Input {
    fences: bool,
    sleeps: bool,
    trusted: bool,
    /// If true, the peer keeps to the protocol, and malicious steps are skipped.
    honest: bool,
    steps: Steps<Step>,
}

#[derive(Debug)]
enum Step {
    /// Client: allocates a buffer. The following steps are the client's too.
    Alloc(Size),
    Resize(u8, Size),
    Free(u8),
    Submit {
        buffer: Option<u8>,
        argument: u64,
    },
    TryReap,
    Reap,
    Arm,
    DropSubmitter,
    DropReaper,
    /// Honest server: takes a request. The following steps are an honest server's too.
    Take,
    Complete {
        which: u8,
        status: u16,
        value: u64,
    },
    /// Announces that the server sleeps, and is to be woken by a futex (true) or through the socket.
    Sleep(bool),
    Doorbell,
    Close,
    Leave,
    /// Malicious server: overwrites a word of control memory. The following steps are malicious too.
    Word(u16, Value),
    Completion(Where, Few),
    Request(Where, Few),
    Index(Few),
    Say(Packet),
}

/// One byte chooses the step, so that inputs are short. Steps that reach further code are more frequent than
/// those that end the channel.
impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Step> {
        Ok(match input.arbitrary::<u8>()? % 56 {
            0..4 => Step::Alloc(input.arbitrary()?),
            4 => Step::Resize(input.arbitrary()?, input.arbitrary()?),
            5 => Step::Free(input.arbitrary()?),
            6..14 => Step::Submit { buffer: input.arbitrary()?, argument: input.arbitrary()? },
            14..18 => Step::TryReap,
            18..20 => Step::Reap,
            20..22 => Step::Arm,
            22..28 => Step::Take,
            28..34 => Step::Complete {
                which: input.arbitrary()?,
                status: input.arbitrary()?,
                value: input.arbitrary()?,
            },
            34..36 => Step::Sleep(input.arbitrary()?),
            36 => Step::Doorbell,
            37 => Step::Close,
            38 => Step::Leave,
            39 => Step::DropSubmitter,
            40 => Step::DropReaper,
            41..44 => Step::Word(input.arbitrary()?, input.arbitrary()?),
            44..50 => Step::Completion(input.arbitrary()?, input.arbitrary()?),
            50..52 => Step::Request(input.arbitrary()?, input.arbitrary()?),
            52..54 => Step::Index(input.arbitrary()?),
            _ => Step::Say(input.arbitrary()?),
        })
    }
}

/// Server, honest or malicious.
struct Server {
    socket: Option<OwnedFd>,
    control: Words,
    honest: bool,
    never_lies: bool,
    taken: u64,
    completed: u64,
    /// Tags of requests that the server has taken and not completed.
    held: Vec<u64>,
    /// Requests that the server has not taken: tag, argument, and length of the buffer.
    submitted: VecDeque<(u64, u64, usize)>,
    /// Completions that the client has not reaped: first word without the turn, and value.
    expected: VecDeque<(u64, u64)>,
    closed: bool,
}

/// Buffer, and the seed of its contents, which stay the same unless somebody else writes to it.
struct Filled {
    buffer: Buffer,
    seed: u8,
}

struct Victim {
    submitter: Option<Submitter>,
    reaper: Option<Reaper>,
    trusted: bool,
    buffers: Vec<Filled>,
    seed: u8,
    /// Requests in flight by tag, with the length and seed of the buffer of each, if there is one.
    in_flight: BTreeMap<usize, Option<(usize, u8)>>,
    /// True for each half that has found the server misbehaving: the submitter, and the reaper.
    accused: [bool; 2],
}

fuzz_target!(|input: Input| watched(|| {
    let (mut victim, mut server) = meet(&input);
    for step in input.steps {
        step.take(&mut victim, &mut server);
    }
    if server.honest && victim.reaper.is_some() {
        while !server.expected.is_empty() {
            Step::TryReap.take(&mut victim, &mut server);
        }
    }
    victim.buffers.iter().for_each(|filled| filled.check(victim.trusted));
}));

fn meet(input: &Input) -> (Victim, Server) {
    let (here, there) = socket_pair().unwrap();
    let flags = SERVER | if input.fences { FENCES } else { 0 };
    assert!(send(&there, &hello(b"bywash c", 1, flags, 1 << 30, [DEPTH as u32; 2]), &[]));
    let wait = if input.sleeps { Wait::Sleep } else { Wait::Adaptive };
    let options = Options::new().wait(wait).arena_bytes(ARENA).depth(DEPTH as u32).huge_pages(HugePages::No);
    // SAFETY: the server of this process never writes to the arena.
    let options = if input.trusted { unsafe { options.trusted() } } else { options };
    let (submitter, reaper) = Client::over(here, &options).unwrap().split();
    let (_, files) = receive(&there);
    let victim = Victim {
        submitter: Some(submitter),
        reaper: Some(reaper),
        trusted: input.trusted,
        buffers: Vec::new(),
        seed: 0,
        in_flight: BTreeMap::new(),
        accused: [false; 2],
    };
    let server = Server {
        socket: Some(there),
        control: Words::map(&files[0], CONTROL_BYTES),
        honest: true,
        never_lies: input.honest,
        taken: 0,
        completed: 0,
        held: Vec::new(),
        submitted: VecDeque::new(),
        expected: VecDeque::new(),
        closed: false,
    };
    (victim, server)
}

impl Server {
    /// Checks that a half of the client may get this error.
    fn check(&self, error: &Error, accused: &mut bool) {
        assert!(!*accused || matches!(error, Error::Protocol { .. }), "{error}");
        match error {
            Error::TimedOut => {}
            Error::Protocol { .. } => *accused = true,
            // A malicious server may change the word of control memory that says whether the ring is closed.
            Error::Closed => assert!(self.closed || !self.honest, "{error}"),
            Error::PeerDied { .. } => assert!(self.socket.is_none() || !self.honest, "{error}"),
            other => panic!("{other}"),
        }
        assert!(!self.honest || !*accused, "{error}");
    }
}

impl Filled {
    fn new(mut buffer: Buffer, seed: u8) -> Filled {
        let bytes = seeded(seed, buffer.len());
        assert_eq!(buffer.write(0, bytes), bytes.len());
        Filled { buffer, seed }
    }

    fn check(&self, trusted: bool) {
        let mut bytes = vec![0; self.buffer.len()];
        assert_eq!(self.buffer.read(0, &mut bytes), bytes.len());
        assert!(bytes == seeded(self.seed, bytes.len()), "two buffers overlap");
        assert_eq!(self.buffer.map().is_ok_and(|inside| inside == bytes), trusted);
    }
}

impl Victim {
    fn reaped(&mut self, server: &mut Server, done: Result<Option<Completion>, Error>) {
        match done {
            Ok(None) => assert!(!server.honest || server.expected.is_empty(), "a completion is lost"),
            Err(error) => {
                server.check(&error, &mut self.accused[1]);
                assert!(!server.honest || server.expected.is_empty(), "{error}: a completion is lost");
            }
            Ok(Some(done)) => {
                assert!(!self.accused[1], "a liar is heard again");
                // Even from a malicious server, exactly the buffer of this request must be returned, and only
                // once.
                let sent = self.in_flight.remove(&done.tag.index()).unwrap();
                assert_eq!(done.buffer.as_ref().map(Buffer::len), sent.map(|(bytes, _)| bytes));
                if let (Some(buffer), Some((_, seed))) = (done.buffer, sent) {
                    let filled = Filled { buffer, seed };
                    filled.check(self.trusted);
                    self.buffers.push(filled);
                }
                if server.honest {
                    let head = (done.tag.index() as u64) << 48 | u64::from(done.status) << 32;
                    assert_eq!(Some((head, done.value)), server.expected.pop_front());
                }
            }
        }
    }

    fn submit(&mut self, server: &mut Server, buffer: Option<u8>, argument: u64) {
        let Some(submitter) = &mut self.submitter else { return };
        let filled = match buffer {
            Some(which) if !self.buffers.is_empty() => {
                Some(self.buffers.swap_remove(usize::from(which) % self.buffers.len()))
            }
            _ => None,
        };
        filled.iter().for_each(|filled| filled.check(self.trusted));
        let sent = filled.as_ref().map(|filled| (filled.buffer.len(), filled.seed));
        let mut submission = Submission::new(7).arguments([argument; 6]);
        submission.buffer = filled.map(|filled| filled.buffer);
        match submitter.submit(submission) {
            Ok(tag) => {
                assert!(!self.accused[0], "a liar is heard again");
                assert_eq!(self.in_flight.insert(tag.index(), sent), None, "a tag was given out twice");
                server.submitted.push_back((
                    tag.index() as u64,
                    argument,
                    sent.map_or(0, |(bytes, _)| bytes),
                ));
            }
            Err(refused) => {
                let buffer = refused.submission.buffer;
                assert_eq!(buffer.as_ref().map(Buffer::len), sent.map(|(bytes, _)| bytes));
                if let (Some(buffer), Some((_, seed))) = (buffer, sent) {
                    self.buffers.push(Filled { buffer, seed });
                }
                match refused.error {
                    Error::Full { .. } => assert_eq!(self.in_flight.len(), DEPTH),
                    error => server.check(&error, &mut self.accused[0]),
                }
            }
        }
        if let Some(reaper) = &self.reaper {
            assert_eq!(reaper.in_flight(), self.in_flight.len());
        }
    }
}

impl Step {
    fn take(self, victim: &mut Victim, server: &mut Server) {
        match self {
            Step::Alloc(bytes) => {
                let Some(submitter) = &victim.submitter else { return };
                match submitter.alloc(bytes.get()) {
                    Ok(buffer) => {
                        victim.seed = victim.seed.wrapping_add(1);
                        victim.buffers.push(Filled::new(buffer, victim.seed));
                    }
                    Err(Error::TooLarge { .. } | Error::ArenaFull { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            Step::Resize(which, bytes) => {
                let count = victim.buffers.len().max(1);
                let Some(filled) = victim.buffers.get_mut(usize::from(which) % count) else { return };
                let fits = bytes.get() <= filled.buffer.capacity();
                assert_eq!(filled.buffer.resize(bytes.get()), fits);
                let bytes = seeded(filled.seed, filled.buffer.len());
                filled.buffer.write(0, bytes);
            }
            Step::Free(which) => {
                if !victim.buffers.is_empty() {
                    let filled = victim.buffers.swap_remove(usize::from(which) % victim.buffers.len());
                    filled.check(victim.trusted);
                }
            }
            Step::Submit { buffer, argument } => victim.submit(server, buffer, argument),
            Step::TryReap => {
                let done = victim.reaper.as_mut().map(Reaper::try_reap);
                done.into_iter().for_each(|done| victim.reaped(server, done));
            }
            Step::Reap => {
                let done = victim.reaper.as_mut().map(|half| half.reap_within(Duration::ZERO).map(Some));
                done.into_iter().for_each(|done| victim.reaped(server, done));
            }
            Step::Arm => match victim.reaper.as_mut().map(Reaper::arm) {
                Some(Err(error)) => server.check(&error, &mut victim.accused[1]),
                Some(Ok(ready)) => {
                    assert!(!victim.accused[1], "a liar is heard again");
                    let over = server.closed || server.socket.is_none();
                    assert!(!server.honest || ready || (server.expected.is_empty() && !over));
                }
                None => {}
            },
            Step::DropSubmitter => victim.submitter = None,
            Step::DropReaper => victim.reaper = None,
            Step::Take => {
                if server.honest {
                    let found = REQUESTS.take(&server.control, server.taken);
                    let found = found.map(|entry| (entry[0] >> 48, entry[2], (entry[1] >> 32) as usize));
                    assert_eq!(found, server.submitted.pop_front());
                    server.taken += u64::from(found.is_some());
                    server.held.extend(found.map(|(tag, ..)| tag));
                }
            }
            Step::Complete { which, status, value } => {
                if server.honest && !server.closed && !server.held.is_empty() {
                    let tag = server.held.swap_remove(usize::from(which) % server.held.len());
                    let entry = [tag << 48 | u64::from(status) << 32, value];
                    assert!(
                        COMPLETIONS.put(&server.control, server.completed, &entry),
                        "no room for a completion"
                    );
                    server.completed += 1;
                    server.expected.push_back((entry[0], value));
                }
            }
            Step::Sleep(futex) => REQUESTS.sleep(&server.control, true, futex),
            Step::Doorbell => drop(server.socket.as_ref().map(|socket| send(socket, &[1], &[]))),
            Step::Close => {
                COMPLETIONS.close(&server.control);
                server.closed = true;
            }
            Step::Leave => server.socket = None,
            _ if server.never_lies => {}
            lie => {
                server.honest = false;
                lie.lie(server);
            }
        }
    }

    fn lie(self, server: &mut Server) {
        let control = &server.control;
        match self {
            Step::Word(at, value) => control.set(usize::from(at) % control.count, value.get()),
            Step::Completion(at, tag) => {
                let (at, turn) = COMPLETIONS.place(control, at);
                control.set(at, tag.of(DEPTH) << 48 | turn);
            }
            Step::Request(at, tag) => {
                let (at, turn) = REQUESTS.place(control, at);
                control.set(at, tag.of(DEPTH) << 48 | turn);
            }
            // Index up to which the server claims to have taken requests.
            Step::Index(taken) => control.set(REQUESTS.start, taken.of(2 * DEPTH)),
            Step::Say(packet) => server.socket.iter().for_each(|socket| packet.send(socket)),
            _ => {}
        }
    }
}
