//! A device server and several clients at once: three malicious ones of different users, which may die, and
//! one that keeps to the protocol.
//!
//! The server and the good client live as long as the process; each input has new other clients, and
//! interleaves their steps. Each of them has a volume of its own and knows the names of all volumes.
//!
//! Failures that this looks for: a client is granted what only another user may have, or is refused what is
//! its own, or may administer; a secret of the good client is in another client's memory; a byte of the good
//! client's volumes changes; it is refused something, or waits; descriptors and mappings are left behind.

#![no_main]
#![expect(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_fuzz::served::{CHUNK, Deed, Good, Hostile, Known, SETTLING, Served, Volume};
use bywash_fuzz::{Steps, settled};
use bywash_protocol::ControlRequest;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;

/// User IDs and the names of their volumes.
const USERS: [(u32, &str); 3] = [(1001, "one"), (1002, "two"), (1003, "three")];

const fn volume(name: &'static str, device: &'static str, bytes: u64, owner: u32, mode: u16) -> Volume {
    Volume { name, device, bytes, owner, mode }
}

/// Adjacent volumes.
const VOLUMES: [Volume; 7] = [
    volume("before", "fast", CHUNK, 0, 0o600),
    volume("one", "fast", CHUNK, 1001, 0o600),
    volume("first", "slow", 8192, 0, 0o600),
    volume("two", "slow", 1 << 16, 1002, 0o600),
    volume("secret", "slow", 8192, 0, 0o600),
    volume("three", "fast", CHUNK, 1003, 0o600),
    volume("shared", "slow", 8192, 0, 0o644),
];
const GOOD: [&str; 3] = ["before", "first", "shared"];

/// Greatest number of steps of an input, and of changes of volumes among them, each of which writes to the
/// store.
const STEPS_MAX: usize = 60;
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
    /// Administrator: revokes the grants of a volume. The following steps are the administrator's too.
    Revoke(u8),
    Renew(u8),
    /// Hostile client, by number: carries out an action.
    Deed(u8, Deed),
    Die(u8),
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
            5..9 => Step::Read { volume: input.arbitrary()?, block: input.arbitrary()? },
            9 => Step::Revoke(input.arbitrary()?),
            10 => Step::Renew(input.arbitrary()?),
            11 => Step::Die(input.arbitrary()?),
            which => Step::Deed(which, input.arbitrary()?),
        })
    }
}

impl Step {
    fn is_change(&self) -> bool {
        matches!(self, Step::Revoke(_) | Step::Renew(_))
    }
}

/// Server, good client, and the word that its secret volume is filled with.
struct World {
    served: Served,
    good: Good,
    secret: u64,
}

impl World {
    fn new() -> World {
        // `slow` cannot be mapped, has latency, and takes only four commands at a time.
        let mut served =
            Served::start(&["fast=mem:8M,pages=4K", "slow=mem:1M,pages=4K,latency=20us,depth=4"]);
        let mut good = Good::come(&mut served, &VOLUMES, &GOOD);
        let secret = good.hide(&mut served, "secret");
        World { served, good, secret }
    }

    /// Connects one of the hostile clients.
    fn hostile(&mut self, which: usize) -> Hostile {
        let (uid, connection) = self.served.connection_of(USERS[which].0);
        let known = |volume: &Volume| {
            let has = uid == volume.owner || uid == 0;
            let may = [has || volume.mode & 0o004 != 0, has];
            Known { name: volume.name, is_left_alone: false, may: Some(may) }
        };
        let known = VOLUMES.iter().map(known).collect();
        let is_administrator = uid != USERS[which].0;
        Hostile::come(&mut self.served, connection, known, is_administrator)
    }

    fn take(&mut self, step: Step, hostile: &mut [Option<Hostile>]) {
        let World { served, good, .. } = self;
        match step {
            Step::Write { volume, block, blocks, seed } => {
                good.write(served, volume.into(), block.into(), blocks.into(), seed);
            }
            Step::Read { volume, block } => good.check(served, volume.into(), block.into(), 16),
            Step::Revoke(which) => {
                let volume = USERS[usize::from(which) % USERS.len()].1.into();
                good.administer(served, ControlRequest::Revoke { volume });
            }
            Step::Renew(which) => {
                let (_, name) = USERS[usize::from(which) % USERS.len()];
                good.renew(served, VOLUMES.iter().find(|volume| volume.name == name).unwrap());
            }
            Step::Deed(which, deed) => {
                let which = usize::from(which) % hostile.len();
                let mut client = hostile[which].take().unwrap_or_else(|| self.hostile(which));
                client.act(&mut self.served, deed);
                hostile[which] = Some(client);
            }
            Step::Die(which) => {
                let which = usize::from(which) % hostile.len();
                self.look(hostile[which].take());
            }
        }
    }

    /// Checks that a client's memory does not contain the secret; the client then disconnects.
    fn look(&self, hostile: Option<Hostile>) {
        let Some(hostile) = hostile else { return };
        let arena = hostile.arena();
        // Compared by arithmetic: the fuzzer would copy the operands of a comparison into its inputs.
        let is_there = |index: usize| {
            let differs = arena.at(index).load(std::sync::atomic::Ordering::Relaxed) ^ self.secret;
            !(differs | differs.wrapping_neg()) >> 63
        };
        let found: u64 = (0..arena.count).map(is_there).sum();
        assert!(found == 0, "a client has what only another one may read");
    }
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fuzz_target!(|steps: Steps<Step>| settled(SETTLING, || WORLD.with_borrow_mut(|world| {
    let world = world.get_or_insert_with(World::new);
    let mut hostile: [Option<Hostile>; USERS.len()] = Default::default();
    let mut changes = 0;
    for step in steps.into_iter().take(STEPS_MAX) {
        changes += usize::from(step.is_change());
        if !step.is_change() || changes <= CHANGES_MAX {
            world.take(step, &mut hostile);
        }
    }
    hostile.into_iter().for_each(|one| world.look(one));
    world.served.settle(1);
    world.good.check_all(&mut world.served);
})));
