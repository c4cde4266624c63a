//! A device server, a client that keeps to the protocol, and a malicious one.
//!
//! The server lives as long as the process, and so does the good client, whose volumes are compared with a
//! model byte by byte. Each input has a new hostile client. It has volumes of its own beside the good
//! client's, sends any requests, writes anything into its rings and its arena, writes to mapped chunks after
//! they were revoked, and leaves at any moment.
//!
//! Failures that this looks for: a byte of the good client's volumes changes, or is read wrongly; a new
//! volume has the contents of an old one; the good client is refused something, or waits; descriptors and
//! mappings are left behind.

#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_fuzz::served::{CHUNK, Deed, Good, Hostile, Known, SETTLING, Served, Volume};
use bywash_fuzz::{Steps, settled};
use bywash_protocol::ControlRequest;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;

const fn volume(name: &'static str, device: &'static str, bytes: u64) -> Volume {
    Volume { name, device, bytes, owner: 0, mode: 0o600 }
}

/// Adjacent volumes; those of the hostile client lie between the others.
const VOLUMES: [Volume; 7] = [
    volume("before", "fast", CHUNK),
    volume("first", "slow", 8192),
    volume("mine", "fast", 2 * CHUNK),
    volume("slowly", "slow", 1 << 16),
    volume("new", "fast", CHUNK),
    volume("last", "slow", 8192),
    volume("shared", "slow", 8192),
];
const GOOD: [&str; 4] = ["before", "first", "last", "shared"];
const THEIRS: [&str; 3] = ["mine", "slowly", "new"];

/// Greatest number of steps of an input, and of changes of volumes among them, each of which writes to the
/// store.
const STEPS_MAX: usize = 40;
const CHANGES_MAX: usize = 2;

#[derive(Debug)]
enum Step {
    /// Good client: writes blocks of a volume. The following steps are the good client's too.
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
    /// Administrator: revokes the grants of a volume. The following steps are the administrator's too.
    Revoke(u8),
    Renew,
    Resize(u8),
    ReadOnly(bool),
    /// Hostile client: carries out an action.
    Deed(Deed),
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
            13 => Step::Leave,
            _ => Step::Deed(input.arbitrary()?),
        })
    }
}

impl Step {
    fn is_change(&self) -> bool {
        matches!(self, Step::Revoke(_) | Step::Renew | Step::Resize(_) | Step::ReadOnly(_))
    }
}

/// Server and good client.
struct World {
    served: Served,
    good: Good,
}

impl World {
    fn new() -> World {
        // `slow` cannot be mapped, has latency, and takes only four commands at a time.
        let mut served =
            Served::start(&["fast=mem:12M,pages=4K", "slow=mem:1M,pages=4K,latency=20us,depth=4"]);
        let good = Good::come(&mut served, &VOLUMES, &GOOD);
        World { served, good }
    }

    /// Connects a hostile client. It only reads the shared volume, and never opens the good client's own
    /// volumes, which another user would be refused.
    fn hostile(&mut self) -> Hostile {
        let known = |name, is_left_alone| Known { name, is_left_alone, may: None };
        let mut all: Vec<Known> = THEIRS.iter().map(|name| known(name, false)).collect();
        all.push(known("shared", true));
        let connection = self.served.connection();
        Hostile::come(&mut self.served, connection, all, true)
    }

    fn administer(&mut self, ask: ControlRequest) {
        self.good.administer(&mut self.served, ask);
    }

    fn take(&mut self, step: Step, hostile: &mut Hostile) {
        let World { served, good } = self;
        match step {
            Step::Write { volume, block, blocks, seed } => {
                good.write(served, volume.into(), block.into(), blocks.into(), seed);
            }
            Step::Read { volume, block } => good.check(served, volume.into(), block.into(), 16),
            Step::Zero { volume, block, blocks } => {
                good.zero(served, volume.into(), block.into(), blocks.into());
            }
            Step::Revoke(which) => {
                self.administer(ControlRequest::Revoke {
                    volume: THEIRS[usize::from(which) % THEIRS.len()].into(),
                });
            }
            Step::Renew => good.renew(served, &VOLUMES[4]),
            Step::Resize(blocks) => {
                let bytes = u64::from(blocks % 16 + 1) * 4096;
                self.administer(ControlRequest::Resize { volume: "slowly".into(), bytes });
            }
            Step::ReadOnly(read_only) => {
                let (owner, group, mode, read_only) = (None, None, None, Some(read_only));
                self.administer(ControlRequest::SetOwnership {
                    volume: "mine".into(),
                    owner,
                    group,
                    mode,
                    read_only,
                });
            }
            Step::Deed(deed) => hostile.act(served, deed),
            Step::Leave => *hostile = self.hostile(),
        }
    }
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fuzz_target!(|steps: Steps<Step>| settled(SETTLING, || WORLD.with_borrow_mut(|world| {
    let world = world.get_or_insert_with(World::new);
    let mut hostile = world.hostile();
    let mut changes = 0;
    for step in steps.into_iter().take(STEPS_MAX) {
        changes += usize::from(step.is_change());
        if !step.is_change() || changes <= CHANGES_MAX {
            world.take(step, &mut hostile);
        }
    }
    drop(hostile);
    world.served.settle(1);
    world.good.check_all(&mut world.served);
})));
