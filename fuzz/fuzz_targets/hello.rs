//! The handshake with a peer that sends any bytes, with descriptors of every kind.
//!
//! Failures that this looks for: a size, a number of entries or a seal is trusted, and memory is mapped that
//! is too small or can shrink, so that a later access faults; a path or channel is made that panics in use; a
//! descriptor is never closed; a call does not return.

#![no_main]
#![expect(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

use arbitrary::Arbitrary;
use bywash_channel::{Client, Server, ServerOptions, Submission};
use bywash_container::{Error, HugePages, Options, Path, socket_pair};
use bywash_fuzz::{ARENA, Kind, Value, hello, offered_arena, watched};
use bywash_support::peers::{FIXED, memory, offered, send};
use libfuzzer_sys::fuzz_target;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;
/// Depth of the rings that the tested side asks for.
const DEPTH: u32 = 4;

#[derive(Arbitrary, Debug)]
struct Input {
    victim: Victim,
    said: Said,
    passed: Vec<Passed>,
    /// Bytes of a further message.
    then: Vec<u8>,
    leaves: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Victim {
    Checked,
    Sealed,
    Forward,
    NoArena,
    Client,
    Server,
}

#[derive(Arbitrary, Debug)]
enum Said {
    Nothing,
    Bytes(Vec<u8>),
    Fields {
        path: bool,
        version: Value,
        flags: u8,
        arena: Value,
        rings: [Entries; 2],
    },
    /// A valid hello message in which one byte is changed.
    Nearly {
        at: u8,
        byte: u8,
        rings: [u8; 2],
        arena: bool,
    },
}

/// Number of entries of a ring.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Entries {
    Power(u8),
    Any(u32),
}

#[derive(Arbitrary, Debug)]
enum Passed {
    /// Memory for the rings of the hello message, too large or too small by some bytes.
    Control {
        more: i8,
        seals: Seals,
    },
    /// An arena as a client offers it.
    Offered,
    Any(Kind),
}

/// Seals of the memory for rings.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Seals {
    Nothing,
    Resizing,
    /// Sealed against resizing, but not against further seals, as a client offers it.
    ResizingAlone,
}

impl Entries {
    fn get(self) -> u32 {
        match self {
            Entries::Power(power) => 1u32 << (power % 18),
            Entries::Any(number) => number,
        }
    }
}

impl Victim {
    fn is_path(self) -> bool {
        !matches!(self, Victim::Client | Victim::Server)
    }

    /// Returns the flags that the tested side expects from its peer.
    fn flags(self) -> u32 {
        match self {
            Victim::Sealed | Victim::Server => 1,
            Victim::Client => 2,
            _ => 0,
        }
    }

    /// Returns the size of the control memory for rings with these numbers of entries, in bytes.
    fn control_bytes(self, rings: [u32; 2]) -> usize {
        let [first, second] = rings.map(|entries| entries as usize & 0x1_ffff);
        match self.is_path() {
            true => (64 + first * 16 + second) * 8,
            false => (64 + first * 8 + second * 2) * 8,
        }
    }
}

fuzz_target!(|input: Input| watched(|| {
    let (here, there) = socket_pair().unwrap();
    let victim = input.victim;
    let (bytes, rings) = input.said.bytes(victim);
    let mut made: Vec<OwnedFd> = Vec::new();
    let mut files = Vec::new();
    for passed in input.passed.iter().take(20) {
        match passed {
            Passed::Control { more, seals } => {
                let bytes = victim.control_bytes(rings).saturating_add_signed(isize::from(*more));
                made.push(match seals {
                    Seals::Nothing => memory(bytes, 0),
                    Seals::Resizing => memory(bytes, FIXED),
                    Seals::ResizingAlone => offered(bytes),
                });
                files.extend(made.last().map(AsRawFd::as_raw_fd));
            }
            Passed::Offered => {
                made.push(offered_arena(ARENA));
                files.extend(made.last().map(AsRawFd::as_raw_fd));
            }
            Passed::Any(kind) => files.push(kind.descriptor()),
        }
    }
    if let Some(bytes) = bytes {
        send(&there, &bytes, &files);
    }
    if !input.then.is_empty() {
        send(&there, &input.then, &[]);
    }
    drop(made);
    let there = if input.leaves { None } else { Some(there) };
    let outcome = match victim {
        Victim::Client => be_client(here),
        Victim::Server => be_server(here),
        _ => be_path(here, victim),
    };
    match outcome {
        Ok(()) | Err(Error::TimedOut | Error::Closed | Error::PeerDied { .. }) => {}
        Err(
            Error::Protocol { .. } | Error::Incompatible(_) | Error::WrongPath(_) | Error::TooLarge { .. },
        ) => {}
        // Mapping fails for memory that cannot be written, and receiving fails for a message that is too
        // long.
        Err(Error::Io { what, .. }) => assert!(what.contains("map ") || what.contains("learn"), "{what}"),
        Err(other) => panic!("{other}"),
    }
    drop(there);
}));

impl Said {
    /// Returns the bytes of the hello message, and the numbers of entries in it.
    fn bytes(&self, victim: Victim) -> (Option<Vec<u8>>, [u32; 2]) {
        let magic = |path: bool| if path { b"bywash p" } else { b"bywash c" };
        match self {
            Said::Nothing => (None, [DEPTH; 2]),
            Said::Bytes(bytes) => (Some(bytes.clone()), [DEPTH; 2]),
            Said::Fields { path, version, flags, arena, rings } => {
                let rings = rings.map(Entries::get);
                let version = version.half() as u32;
                (Some(hello(magic(*path), version, u32::from(*flags), arena.get(), rings)), rings)
            }
            Said::Nearly { at, byte, rings, arena } => {
                let rings = rings.map(|power| 1u32 << (power % 8));
                let rings = if victim.is_path() { rings } else { [rings[0]; 2] };
                let arena = if *arena { ARENA as u64 } else { 0 };
                let mut bytes = hello(magic(victim.is_path()), 1, victim.flags(), arena, rings);
                if let Some(place) = bytes.get_mut(usize::from(*at)) {
                    *place = *byte;
                }
                (Some(bytes), rings)
            }
        }
    }
}

fn be_path(socket: OwnedFd, victim: Victim) -> Result<(), Error> {
    let options = Options::new()
        .arena_bytes(if let Victim::NoArena = victim { 0 } else { ARENA })
        .depth(DEPTH)
        .containers_shipped_max(DEPTH)
        .huge_pages(HugePages::No)
        .peer_arena_bytes_max(1 << 24)
        .handshake_timeout(NOW);
    let options = match victim {
        Victim::Sealed => options.sealed(),
        Victim::Forward => options.forward(),
        _ => options,
    };
    let path = Path::over(socket, &options)?;
    path.arm()?;
    let container = path.alloc_within(if let Victim::NoArena = victim { 100 } else { 1000 }, NOW)?;
    path.ship_within(container, NOW).map_err(|refused| refused.error)?;
    let message = path.receive_within(NOW)?;
    message.to_vec().map(drop)
}

fn be_client(socket: OwnedFd) -> Result<(), Error> {
    let options = bywash_channel::Options::new().arena_bytes(ARENA).depth(DEPTH).huge_pages(HugePages::No);
    let mut client = Client::over(socket, &options.handshake_timeout(NOW))?;
    client.arm()?;
    let buffer = client.alloc(1000)?;
    client.submit(Submission::new(1).buffer(buffer)).map_err(|refused| refused.error)?;
    client.reap_within(NOW).map(drop)
}

fn be_server(socket: OwnedFd) -> Result<(), Error> {
    let options = ServerOptions::new().arena_bytes_max(1 << 24).handshake_timeout(NOW);
    let mut server = Server::over(socket, &options)?;
    server.arm()?;
    let request = server.next_within(NOW)?;
    server.complete(request, 0, 0)
}
