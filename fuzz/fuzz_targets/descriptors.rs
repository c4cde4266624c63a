//! Descriptors of every kind, wherever a device server receives descriptors.
//!
//! Each step is a connection of another user, which passes the wrong descriptors: as a file to be opened, as
//! the socket of a channel, as a channel's memory, with messages that take none, and in wrong numbers.
//!
//! Failures that this looks for: the server maps or reads memory that can be taken away, or blocks on it; it
//! keeps a descriptor or a mapping; the good client waits, is refused something, or finds its bytes changed.

#![no_main]
#![expect(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_fuzz::served::{CHUNK, Good, SETTLING, Served, Volume};
use bywash_fuzz::{Kind, Steps, Value, hello, settled};
use bywash_link::{Messages, socket_pair};
use bywash_protocol::{Access, ControlReply, ControlRequest};
use bywash_support::peers::{offered, send};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

const USER: u32 = 1001;
const VOLUMES: [Volume; 2] = [
    Volume { name: "good", device: "fast", bytes: CHUNK, owner: 0, mode: 0o600 },
    Volume { name: "theirs", device: "fast", bytes: CHUNK, owner: USER, mode: 0o600 },
];
/// Size of control memory for rings of eight entries, in bytes.
const CONTROL_BYTES: usize = (32 + 8 * 8 + 32 + 8 * 2) * 8;
/// Greatest time that a step may take.
const STEP_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum Step {
    /// Descriptors to be opened as a volume.
    File(Vec<Kind>, bool),
    /// Descriptors passed as the socket of a channel.
    Socket(Vec<Kind>),
    /// Descriptors of control memory and arena, right ones if `None`, and further descriptors.
    Memory { control: Option<Kind>, arena: Option<Kind>, more: Vec<Kind>, bytes: Value, depth: u8 },
    /// Descriptors with a request that takes none.
    Along(u8, Vec<Kind>),
    /// Descriptors before the handshake.
    First(Vec<Kind>),
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Step> {
        Ok(match input.arbitrary::<u8>()? % 16 {
            0..6 => Step::File(vec![input.arbitrary()?], input.arbitrary()?),
            6 => Step::File(input.arbitrary()?, input.arbitrary()?),
            7 => Step::Socket(vec![input.arbitrary()?]),
            8 => Step::Socket(input.arbitrary()?),
            9..13 => Step::Memory {
                control: input.arbitrary()?,
                arena: input.arbitrary()?,
                more: if input.arbitrary::<u8>()? < 40 { input.arbitrary()? } else { vec![] },
                bytes: input.arbitrary()?,
                depth: input.arbitrary()?,
            },
            13..15 => Step::Along(input.arbitrary()?, input.arbitrary()?),
            _ => Step::First(input.arbitrary()?),
        })
    }
}

struct World {
    served: Served,
    good: Good,
}

fn passed(kinds: &[Kind]) -> Vec<RawFd> {
    kinds.iter().take(20).map(|kind| kind.descriptor()).collect()
}

impl World {
    fn new() -> World {
        let mut served = Served::start(&["fast=mem:8M,pages=4K"]);
        let good = Good::come(&mut served, &VOLUMES, &["good"]);
        World { served, good }
    }

    /// Sends a request with descriptors, and returns the answer.
    fn ask(&mut self, messages: &Messages, ask: &ControlRequest, files: &[RawFd]) -> Option<ControlReply> {
        let copy = messages.as_fd().try_clone_to_owned().unwrap();
        // Bypasses `Messages`, which would refuse to send so many descriptors.
        assert!(send(&copy, &ask.to_bytes().unwrap(), files), "{:?}", std::io::Error::last_os_error());
        let (bytes, _) = self.served.receive(messages, ask)?;
        Some(ControlReply::from_bytes(&bytes).unwrap())
    }

    fn greet(&mut self) -> Messages {
        let (_, connection) = self.served.connection_of(USER);
        self.served.greet(connection)
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::File(kinds, is_closed) => {
                let messages = self.greet();
                let answer = self.ask(&messages, &ControlRequest::OpenDescriptor {}, &passed(&kinds));
                if let Some(ControlReply::Granted(granted)) = answer {
                    assert!(kinds.len() == 1 && kinds[0].is_file(), "{kinds:?} was opened");
                    if is_closed {
                        self.ask(&messages, &ControlRequest::Close { grant: granted.grant }, &[]);
                    }
                }
            }
            Step::Socket(kinds) => {
                let messages = self.greet();
                let answer = self.ask(&messages, &ControlRequest::SetUpChannel {}, &passed(&kinds));
                assert_ne!(answer, Some(ControlReply::Done {}), "there is a channel over {kinds:?}");
            }
            Step::Memory { control, arena, more, bytes, depth } => {
                self.take_memory(control, arena, &more, bytes, depth);
            }
            Step::Along(which, kinds) => {
                let messages = self.greet();
                let asks = [
                    ControlRequest::Volumes {},
                    ControlRequest::Open { volume: "theirs".into(), access: Access::Read },
                    ControlRequest::Status {},
                ];
                let files = passed(&kinds);
                let answer = self.ask(&messages, &asks[usize::from(which) % asks.len()], &files);
                let is_refused = matches!(answer, None | Some(ControlReply::Refused(_)));
                assert!(is_refused || files.is_empty(), "{answer:?} to what came with {kinds:?}");
            }
            Step::First(kinds) => {
                let (_, connection) = self.served.connection_of(USER);
                send(&connection, &ControlRequest::Volumes {}.to_bytes().unwrap(), &passed(&kinds));
                (0..4).for_each(|_| self.served.step());
            }
        }
    }

    fn take_memory(
        &mut self,
        control: Option<Kind>,
        arena: Option<Kind>,
        more: &[Kind],
        bytes: Value,
        depth: u8,
    ) {
        let messages = self.greet();
        let (here, there) = socket_pair().unwrap();
        let is_right = control.is_none() && arena.is_none() && more.is_empty();
        let or = |kind: Option<Kind>, right: &OwnedFd| kind.map_or(right.as_raw_fd(), Kind::descriptor);
        let right = [offered(CONTROL_BYTES), offered(1 << 14)];
        let mut files = vec![or(control, &right[0]), or(arena, &right[1])];
        files.extend(passed(more));
        let bytes = if is_right { 1 << 14 } else { bytes.get() };
        let rings = [if is_right { 8 } else { u32::from(depth) }; 2];
        assert!(send(&here, &hello(b"bywash c", 1, 1, bytes, rings), &files));
        let answer = self.ask(&messages, &ControlRequest::SetUpChannel {}, &[there.as_raw_fd()]);
        let is_made = answer == Some(ControlReply::Done {});
        assert!(is_made || !is_right, "a channel that should be was refused: {answer:?}");
        // Memory that can be taken away after it was mapped must be refused.
        let stays = |kind: Option<Kind>| kind.is_none_or(Kind::stays);
        assert!(
            !is_made || (stays(control) && stays(arena) && more.is_empty()),
            "{control:?}, {arena:?}, {more:?}"
        );
        drop(here);
    }
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fuzz_target!(|steps: Steps<Step>| settled(SETTLING, || WORLD.with_borrow_mut(|world| {
    let world = world.get_or_insert_with(World::new);
    for step in steps.into_iter().take(16) {
        let begun = Instant::now();
        let what = format!("{step:?}");
        world.take(step);
        assert!(begun.elapsed() < STEP_LIMIT, "{what} took {:?}", begun.elapsed());
    }
    world.served.settle(1);
    world.good.check_all(&mut world.served);
})));
