//! The client library of device servers, with a server whose answers are the input.
//!
//! A thread plays the server: it makes the handshake and answers each request with the input's next answer.
//! The requests come over the socket and, once the client has its channel, through the rings.
//!
//! Failures that this looks for: an impossible answer is accepted, and memory is mapped that is too small or
//! can be taken away; a completion is accepted for a request that is not in flight, so that memory of the
//! program is returned twice, or never; a call does not return in time; descriptors and mappings are left
//! behind.

#![no_main]
#![expect(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_client::{
    Access, Error, Options, PathChoice, Queue, Range, RequestMemory, VolumeId, VolumePath, Wait,
};
use bywash_fuzz::{Few, Kind, Ring, Steps, Value, Where, hello, settled};
use bywash_link::{Listener, Messages};
use bywash_protocol::layout::Status;
use bywash_protocol::{
    ControlReply, ControlRequest, GrantInfo, MESSAGE_BYTES_MAX, Refusal, RefusalKind, VERSION,
};
use bywash_support::peers::{FIXED, Words, accept, memory, receive, send};
use libfuzzer_sys::fuzz_target;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

const DEPTH: usize = 4;
const REQUESTS: Ring = Ring { start: 0, capacity: DEPTH, entry_words: 8 };
const COMPLETIONS: Ring = Ring { start: REQUESTS.words(), capacity: DEPTH, entry_words: 2 };
const CONTROL_BYTES: usize = (REQUESTS.words() + COMPLETIONS.words()) * 8;
const SERVER: u32 = 2;
const ARENA: usize = 1 << 16;
const BLOCK: usize = 512;
/// Timeout that the client uses.
const LIMIT: Duration = Duration::from_millis(20);
/// Additional time that a call may take on a busy machine.
const SLACK: Duration = Duration::from_secs(4);

/// Next answer of the server.
#[derive(Debug)]
enum Said {
    /// The right answer.
    Right,
    Granted {
        grant: Value,
        bytes: Value,
        block: Value,
        access: u8,
        mapped: bool,
    },
    Chunks {
        bytes: Value,
        count: Value,
        kinds: Vec<Kind>,
    },
    Refused(u8),
    Other(u8, Vec<Kind>),
    Bytes(Vec<u8>, Vec<Kind>),
    /// No answer: the server closes the connection.
    Nothing,
}

impl<'a> Arbitrary<'a> for Said {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Said> {
        Ok(match input.arbitrary::<u8>()? % 16 {
            0..6 => Said::Right,
            6..9 => Said::Granted {
                grant: input.arbitrary()?,
                bytes: input.arbitrary()?,
                block: input.arbitrary()?,
                access: input.arbitrary()?,
                mapped: input.arbitrary()?,
            },
            9..12 => Said::Chunks {
                bytes: input.arbitrary()?,
                count: input.arbitrary()?,
                kinds: input.arbitrary()?,
            },
            12 => Said::Refused(input.arbitrary()?),
            13 => Said::Other(input.arbitrary()?, input.arbitrary()?),
            14 => Said::Bytes(input.arbitrary()?, input.arbitrary()?),
            _ => Said::Nothing,
        })
    }
}

#[derive(Debug)]
enum Step {
    /// Client: opens a volume or a descriptor. The following steps are the client's too.
    Open {
        write: bool,
        descriptor: bool,
    },
    Close(u8),
    Submit {
        what: u8,
        volume: u8,
        block: u8,
        blocks: u8,
    },
    TryReap,
    Reap,
    Arm,
    Inspect(u8),
    /// Server: completes a request, rightly or not. The following steps are the server's too.
    Complete {
        right: bool,
        which: u8,
        status: u8,
        value: Value,
    },
    Completion(Where, Few),
    Word(u16, Value),
    CloseRings,
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Step> {
        Ok(match input.arbitrary::<u8>()? % 32 {
            0..5 => Step::Open { write: input.arbitrary()?, descriptor: input.arbitrary::<u8>()? < 30 },
            5 => Step::Close(input.arbitrary()?),
            6..16 => Step::Submit {
                what: input.arbitrary()?,
                volume: input.arbitrary()?,
                block: input.arbitrary()?,
                blocks: input.arbitrary()?,
            },
            16..19 => Step::TryReap,
            19 => Step::Reap,
            20 => Step::Arm,
            21 => Step::Inspect(input.arbitrary()?),
            22..27 => Step::Complete {
                right: input.arbitrary::<u8>()? < 200,
                which: input.arbitrary()?,
                status: input.arbitrary()?,
                value: input.arbitrary()?,
            },
            27..29 => Step::Completion(input.arbitrary()?, input.arbitrary()?),
            29..31 => Step::Word(input.arbitrary()?, input.arbitrary()?),
            _ => Step::CloseRings,
        })
    }
}

#[derive(Arbitrary, Debug)]
struct Input {
    /// Answers to the handshake, to the request for a channel, and then to the requests of the steps.
    greeting: Option<Said>,
    channel: Option<Said>,
    trusted: bool,
    mapped: bool,
    said: [Said; 6],
    steps: Steps<Step>,
}

/// Rings of the current client, and the socket of its channel.
#[derive(Default)]
struct Rings {
    control: Option<Words>,
    socket: Option<OwnedFd>,
    taken: u64,
    completed: u64,
    /// Requests that the server has taken: their tags, and the lengths of their buffers.
    held: Vec<(u64, u64)>,
}

/// The thread that plays the server.
struct Liar {
    socket: PathBuf,
    scripts: Sender<VecDeque<Said>>,
    ended: Receiver<()>,
    rings: Arc<Mutex<Rings>>,
    _folder: tempfile::TempDir,
}

impl Liar {
    fn start() -> Liar {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = Listener::bind(&socket).unwrap();
        let ((scripts, script), (end, ended)) = (channel::<VecDeque<Said>>(), channel());
        let rings = Arc::new(Mutex::new(Rings::default()));
        let shared = rings.clone();
        std::thread::spawn(move || {
            for said in script {
                serve(&Messages::over(accept(&listener), MESSAGE_BYTES_MAX), said, &shared);
                end.send(()).unwrap();
            }
        });
        Liar { socket, scripts, ended, rings, _folder: folder }
    }
}

/// Answers one client until it leaves, or until the input says so.
fn serve(messages: &Messages, mut said: VecDeque<Said>, rings: &Mutex<Rings>) {
    while let Ok(packet) = messages.receive(SLACK * 4) {
        let ask = ControlRequest::from_bytes(&packet.bytes).unwrap();
        let next = match (&ask, said.is_empty()) {
            // The client does not wait for the answer to a close, so it takes none from the input.
            (ControlRequest::Close { .. }, _) | (_, true) => Said::Right,
            _ => said.pop_front().unwrap(),
        };
        let is_right = matches!(next, Said::Right);
        let Some((bytes, files)) = answer(&ask, next) else { return };
        if is_right && matches!(ask, ControlRequest::SetUpChannel {}) && packet.descriptors.len() == 1 {
            meet(packet.descriptors.into_iter().next().unwrap(), &mut rings.lock().unwrap());
        }
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        if messages.send(&bytes, &files, SLACK).is_err() {
            return;
        }
    }
}

fn answer(ask: &ControlRequest, said: Said) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    // SAFETY: the descriptors of kinds stay open as long as the process.
    let again =
        |kind: &Kind| unsafe { BorrowedFd::borrow_raw(kind.descriptor()) }.try_clone_to_owned().unwrap();
    let files = |kinds: Vec<Kind>| kinds.iter().take(16).map(again).collect::<Vec<_>>();
    let granted = |grant, bytes, block, access, mapped: bool| {
        let not_mapped = (!mapped).then(|| "no".to_owned());
        ControlReply::Granted(GrantInfo {
            grant,
            bytes,
            block,
            access,
            device: "liar".into(),
            unmappable_reason: not_mapped,
            is_volatile: mapped,
            can_be_direct: false,
        })
    };
    let (answer, files) = match said {
        Said::Right => match ask {
            ControlRequest::Hello { .. } => {
                let welcome = ControlReply::Welcome {
                    version: VERSION,
                    client: 1,
                    depth_max: DEPTH as u32,
                    arena_bytes_max: ARENA as u64,
                    grants_max: 8,
                };
                (welcome, vec![memory(4096, FIXED)])
            }
            ControlRequest::Open { access, .. } => {
                (granted(1 << 32, 8192, BLOCK as u32, *access, true), vec![])
            }
            ControlRequest::OpenDescriptor {} => {
                (granted(2 << 32 | 1, 8192, BLOCK as u32, Access::Read, false), vec![])
            }
            ControlRequest::Map { .. } => {
                (ControlReply::Chunks { chunk_bytes: 8192, count: 1 }, vec![memory(8192, FIXED)])
            }
            _ => (ControlReply::Done {}, vec![]),
        },
        Said::Granted { grant, bytes, block, access, mapped } => {
            let access = [Access::Read, Access::Write, Access::ReadWrite][usize::from(access) % 3];
            let grant = (grant.get() % 16 + 1) << 32 | grant.get() >> 4;
            (granted(grant, bytes.get(), block.get() as u32, access, mapped), vec![])
        }
        Said::Chunks { bytes, count, kinds } => {
            (ControlReply::Chunks { chunk_bytes: bytes.get(), count: count.get() as u32 }, files(kinds))
        }
        Said::Refused(code) => {
            let code = [RefusalKind::Denied, RefusalKind::Limit, RefusalKind::Missing, RefusalKind::Failed]
                [usize::from(code) % 4];
            (ControlReply::Refused(Refusal::new(code, "no")), vec![])
        }
        Said::Other(which, kinds) => {
            let others = [
                ControlReply::Done {},
                ControlReply::Report {},
                ControlReply::Welcome {
                    version: 1,
                    client: 9,
                    depth_max: 0,
                    arena_bytes_max: 0,
                    grants_max: u32::from(which),
                },
            ];
            (others[usize::from(which) % 3].clone(), files(kinds))
        }
        Said::Bytes(bytes, kinds) => return Some((bytes, files(kinds))),
        Said::Nothing => return None,
    };
    Some((answer.to_bytes().unwrap(), files))
}

/// Makes the server's end of a channel, by hand.
fn meet(socket: OwnedFd, rings: &mut Rings) {
    let (_, files) = receive(&socket);
    // Fails if the client has given up already.
    send(&socket, &hello(b"bywash c", 1, SERVER, 1 << 30, [DEPTH as u32; 2]), &[]);
    let control = files.first().map(|file| Words::map(file, CONTROL_BYTES));
    *rings = Rings { control, socket: Some(socket), ..Rings::default() };
}

/// State of the client, and what it must have.
struct Victim {
    queue: Queue,
    volumes: Vec<VolumeId>,
    /// Requests in flight, with the length of the buffer that must be returned with each.
    in_flight: BTreeMap<u64, usize>,
    submitted: u64,
}

/// Checks that a server can cause the error; errors of the client's own use must not occur.
fn check(error: &Error) {
    assert!(!matches!(error, Error::Forked | Error::Option { .. }), "{error}");
}

impl Victim {
    fn reaped(&mut self, done: bywash_client::Completion) {
        let bytes = self.in_flight.remove(&done.user_data).expect("it was not under way, or comes twice");
        if let Some(room) = done.memory {
            assert_eq!(room.len(), bytes);
            if let RequestMemory::Arena(buffer) = room {
                buffer.read(0, &mut vec![0; bytes]);
            }
        }
    }

    fn submit(&mut self, what: u8, volume: u8, block: u8, blocks: u8) {
        let Some(volume) = self.volumes.get(usize::from(volume) % self.volumes.len().max(1)).copied() else {
            return;
        };
        let (offset, length) = (u64::from(block) * BLOCK as u64, usize::from(blocks % 8) * BLOCK);
        let (queue, number) = (&mut self.queue, self.submitted);
        let range = Range { volume, offset, length };
        let outcome = match what % 9 {
            0 => queue.read(volume, offset, vec![1; length], number).map(|()| length),
            1 => match queue.alloc(length.max(1)) {
                Ok(buffer) => queue.read(volume, offset, buffer, number).map(|()| length.max(1)),
                Err(_) => return,
            },
            2 => queue.write_from(volume, offset, &vec![2; length], true, number).map(|()| 0),
            3 => queue.flush(volume, number).map(|()| 0),
            4 => queue.discard(volume, offset, length as u64, number).map(|()| 0),
            5 => queue.write_zeroes(volume, offset, length as u64, false, number).map(|()| 0),
            6 => queue.compare_and_write(volume, offset, &[0; BLOCK], &[1; BLOCK], number).map(|()| 0),
            7 => queue.read_many(&[range; 2], vec![0; 2 * length], number).map(|()| 2 * length),
            _ => queue.write_many(&[(volume, offset, &vec![3; length][..]); 2], false, number).map(|()| 0),
        };
        match outcome {
            Ok(bytes) => {
                self.submitted += 1;
                self.in_flight.insert(number, bytes);
            }
            Err(refused) => check(&refused.error),
        }
        assert_eq!(self.queue.in_flight(), self.in_flight.len());
    }
}

impl Step {
    fn take(self, victim: &mut Victim, rings: &Mutex<Rings>) {
        match self {
            Step::Open { write, descriptor } => {
                let opened = match descriptor {
                    true => {
                        // SAFETY: the descriptors of kinds stay open as long as the process.
                        let file = unsafe { BorrowedFd::borrow_raw(Kind::Plain.descriptor()) };
                        victim.queue.open_descriptor(file.try_clone_to_owned().unwrap())
                    }
                    false => victim.queue.open("x", if write { Access::ReadWrite } else { Access::Read }),
                };
                match opened {
                    Ok(volume) => victim.volumes.push(volume),
                    Err(error) => check(&error),
                }
            }
            Step::Close(which) => {
                if !victim.volumes.is_empty() {
                    let at = usize::from(which) % victim.volumes.len();
                    if victim.queue.close(victim.volumes[at]).is_ok() {
                        victim.volumes.swap_remove(at);
                    }
                }
            }
            Step::Submit { what, volume, block, blocks } => victim.submit(what, volume, block, blocks),
            Step::TryReap => match victim.queue.try_reap() {
                Ok(Some(done)) => victim.reaped(done),
                Ok(None) => {}
                Err(error) => check(&error),
            },
            Step::Reap => match victim.queue.reap_within(Duration::ZERO) {
                Ok(done) => victim.reaped(done),
                Err(error) => check(&error),
            },
            Step::Arm => drop(victim.queue.arm()),
            Step::Inspect(which) => {
                if let Some(volume) = victim.volumes.get(usize::from(which) % victim.volumes.len().max(1)) {
                    let block = victim.queue.block(*volume).unwrap_or(1);
                    assert!(block.is_power_of_two());
                    if victim.queue.path(*volume).is_ok_and(|path| path == VolumePath::Mapped) {
                        // All of a mapped volume exists, so reading its last block must not fault.
                        let bytes = victim.queue.len(*volume).unwrap();
                        let last =
                            bytes.saturating_sub(u64::from(block)) / u64::from(block) * u64::from(block);
                        let room = vec![0; (bytes - last).min(1 << 16) as usize];
                        let number = victim.submitted;
                        let length = room.len();
                        if victim.queue.read(*volume, last, room, number).is_ok() {
                            victim.submitted += 1;
                            victim.in_flight.insert(number, length);
                        }
                    }
                }
            }
            step => step.lie(&mut rings.lock().unwrap()),
        }
    }

    fn lie(self, rings: &mut Rings) {
        let Rings { control: Some(control), socket, held, taken, completed } = rings else { return };
        match self {
            Step::Complete { right, which, status, value } => {
                while let Some(entry) = REQUESTS.take(control, *taken) {
                    *taken += 1;
                    held.push((entry[0] >> 48, entry[1] >> 32));
                }
                if held.is_empty() {
                    return;
                }
                let (tag, bytes) = held.swap_remove(usize::from(which) % held.len());
                let (status, value) = match right {
                    true => (0, bytes),
                    false => {
                        (Status::ALL[usize::from(status) % 12] as u64 + u64::from(status > 250), value.get())
                    }
                };
                if COMPLETIONS.put(control, *completed, &[tag << 48 | status << 32, value]) {
                    *completed += 1;
                }
                // The client may sleep, so the server rings the doorbell.
                socket.iter().for_each(|socket| _ = send(socket, &[1], &[]));
            }
            Step::Completion(at, tag) => {
                let (at, turn) = COMPLETIONS.place(control, at);
                control.set(at, tag.of(DEPTH) << 48 | turn);
            }
            Step::Word(at, value) => control.set(usize::from(at) % control.count, value.get()),
            Step::CloseRings => COMPLETIONS.close(control),
            _ => {}
        }
    }
}

fn run(input: Input, liar: &Liar) {
    let first = [input.greeting.unwrap_or(Said::Right), input.channel.unwrap_or(Said::Right)];
    liar.scripts.send(first.into_iter().chain(input.said).collect()).unwrap();
    let choice = if input.mapped { PathChoice::Mapped } else { PathChoice::Automatic };
    let options =
        Options::new().choice(choice).limit(LIMIT).depth(DEPTH as u32).arena_bytes(ARENA).wait(Wait::Sleep);
    // SAFETY: the server of this process never writes to the arena.
    let options = if input.trusted { unsafe { options.trusted() } } else { options };
    match Queue::connect(&liar.socket, options) {
        Ok(queue) => {
            let mut victim = Victim { queue, volumes: Vec::new(), in_flight: BTreeMap::new(), submitted: 0 };
            for step in input.steps {
                let begun = Instant::now();
                step.take(&mut victim, &liar.rings);
                assert!(begun.elapsed() < LIMIT * 4 + SLACK, "a call took {:?}", begun.elapsed());
            }
        }
        Err(error) => check(&error),
    }
    liar.ended.recv().unwrap();
    *liar.rings.lock().unwrap() = Rings::default();
}

fuzz_target!(|input: Input| {
    static LIAR: LazyLock<Mutex<Liar>> = LazyLock::new(|| Mutex::new(Liar::start()));
    settled(SLACK, || run(input, &LIAR.lock().unwrap()));
});
