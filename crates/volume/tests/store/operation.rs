//! Random operations that a seed determines, and a description of a store's whole state.

use bywash_support::peers::Random;
use bywash_volume::{BlockSize, Blocks, Bytes, CopyRoom, Error, Extent, Mode, NewBlocks, Ownership, Store};

pub const BLOCK: u64 = 4096;
/// Number of names of volumes; small, so that operations affect the volumes of earlier ones.
const VOLUMES: u64 = 12;
const DEVICES: u64 = 3;

/// Operation on a store.
#[derive(Clone, Debug)]
pub enum Operation {
    Attach {
        device: String,
        blocks: u64,
        contents: NewBlocks,
    },
    Forget {
        device: String,
    },
    Create {
        name: String,
        device: String,
        blocks: u64,
        ownership: Ownership,
    },
    CreateThin {
        name: String,
        device: String,
        blocks: u64,
        ownership: Ownership,
    },
    /// Allocate the clusters of a thin volume that its blocks `from..to` touch.
    Allocate {
        name: String,
        from: u64,
        to: u64,
    },
    /// Release the clusters of a thin volume within its blocks `from..to`.
    Release {
        name: String,
        from: u64,
        to: u64,
    },
    Snapshot {
        volume: String,
        name: String,
    },
    Clone {
        snapshot: String,
        name: String,
    },
    Rollback {
        volume: String,
        snapshot: String,
    },
    /// Copy the shared clusters of a thin volume that its blocks `from..to` touch.
    Copy {
        name: String,
        from: u64,
        to: u64,
    },
    Resize {
        name: String,
        blocks: u64,
    },
    Rename {
        name: String,
        to: String,
    },
    Remove {
        name: String,
    },
    SetOwnership {
        name: String,
        ownership: Ownership,
    },
    /// Report a part of the first extent to be cleared as cleared: from `from` to `to`, in hundredths of its
    /// length.
    Clear {
        device: String,
        from: u64,
        to: u64,
    },
}

fn volume(random: &mut Random) -> String {
    format!("volume-{}", random.below(VOLUMES))
}

/// Returns one of the names that most thin volumes have, and at times any other one.
fn thin(random: &mut Random) -> String {
    if random.below(8) == 0 { volume(random) } else { format!("volume-{}", random.below(VOLUMES / 3)) }
}

/// Returns one of the names that most snapshots have, which other volumes may have, too.
fn snapshot(random: &mut Random) -> String {
    format!("volume-{}", VOLUMES - 1 - random.below(VOLUMES / 3))
}

fn device(random: &mut Random) -> String {
    format!("device-{}", random.below(DEVICES))
}

fn ownership(random: &mut Random) -> Ownership {
    let mode = Mode::new(random.number() as u16 & 0o666).unwrap();
    let (owner, group) = (random.below(5) as u32, random.below(5) as u32);
    Ownership { owner, group, mode, read_only: random.below(2) == 0 }
}

/// Returns a range of blocks that is within many thin volumes, and mostly touches few clusters.
fn blocks_of_thin(random: &mut Random) -> (u64, u64) {
    let from = random.below(500);
    (from, from + 1 + random.below(160))
}

impl Operation {
    pub fn random(random: &mut Random) -> Operation {
        match random.below(138) {
            100..112 => Operation::Snapshot { volume: thin(random), name: snapshot(random) },
            112..118 => Operation::Clone { snapshot: snapshot(random), name: thin(random) },
            118..126 => Operation::Rollback { volume: thin(random), snapshot: snapshot(random) },
            126..138 => {
                let (from, to) = blocks_of_thin(random);
                Operation::Copy { name: thin(random), from, to }
            }
            0..6 => Operation::Attach {
                device: device(random),
                blocks: 100 + random.below(700),
                contents: if random.below(2) == 0 { NewBlocks::Cleared } else { NewBlocks::Uncleared },
            },
            6..8 => Operation::Forget { device: device(random) },
            8..24 => Operation::Create {
                name: volume(random),
                device: device(random),
                blocks: 1 + random.below(60),
                ownership: ownership(random),
            },
            24..34 => Operation::CreateThin {
                name: thin(random),
                device: device(random),
                blocks: 1 + random.below(600),
                ownership: ownership(random),
            },
            34..48 => {
                let (from, to) = blocks_of_thin(random);
                Operation::Allocate { name: thin(random), from, to }
            }
            48..54 => {
                let (from, to) = blocks_of_thin(random);
                Operation::Release { name: thin(random), from, to }
            }
            54..60 => Operation::Resize { name: volume(random), blocks: 1 + random.below(80) },
            60..65 => Operation::Rename { name: volume(random), to: volume(random) },
            65..75 => Operation::Remove { name: volume(random) },
            75..80 => Operation::SetOwnership { name: volume(random), ownership: ownership(random) },
            _ => {
                let from = random.below(100);
                Operation::Clear { device: device(random), from, to: from + 1 + random.below(100 - from) }
            }
        }
    }

    /// Carries out the operation.
    pub fn run(&self, store: &Store) -> Result<(), Error> {
        match self {
            Operation::Attach { device, blocks, contents } => {
                let block = BlockSize::new(Bytes(BLOCK)).unwrap();
                store.attach_device(device, Bytes(blocks * BLOCK), block, *contents).map(drop)
            }
            Operation::Forget { device } => store.forget_device(device),
            Operation::Create { name, device, blocks, ownership } => {
                store.create(name, device, Bytes(blocks * BLOCK), *ownership).map(drop)
            }
            Operation::CreateThin { name, device, blocks, ownership } => {
                store.create_thin(name, device, Bytes(blocks * BLOCK), *ownership).map(drop)
            }
            Operation::Allocate { name, from, to } => {
                let id = store.get(name)?.0.id;
                store.allocate(id, &[Extent::new(*from, to - from)]).map(drop)
            }
            Operation::Release { name, from, to } => {
                let id = store.get(name)?.0.id;
                store.release(id, &[Extent::new(*from, to - from)]).map(drop)
            }
            Operation::Snapshot { volume, name } => store.snapshot(volume, name).map(drop),
            Operation::Clone { snapshot, name } => store.clone_snapshot(snapshot, name).map(drop),
            Operation::Rollback { volume, snapshot } => store.rollback(volume, snapshot).map(drop),
            Operation::Copy { name, from, to } => {
                let id = store.get(name)?.0.id;
                let room = CopyRoom { most: Blocks(u64::MAX), taken: &[], only_free: false };
                match store.plan_copies(id, &[Extent::new(*from, to - from)], room)? {
                    copies if copies.is_empty() => Ok(()),
                    copies => store.copied(id, &copies).map(drop),
                }
            }
            Operation::Resize { name, blocks } => store.resize(name, Bytes(blocks * BLOCK)).map(drop),
            Operation::Rename { name, to } => store.rename(name, to).map(drop),
            Operation::Remove { name } => store.remove(name),
            Operation::SetOwnership { name, ownership } => {
                store.set_ownership(name, |changed| *changed = *ownership).map(drop)
            }
            Operation::Clear { device, .. } => {
                let pieces = store.to_clear(device, 1)?;
                match self.part_of(&pieces) {
                    Some(part) => store.cleared(device, part),
                    None => Ok(()),
                }
            }
        }
    }

    /// Returns the part of the first piece that the operation reports as cleared.
    pub fn part_of(&self, pieces: &[Extent]) -> Option<Extent> {
        let (Operation::Clear { from, to, .. }, Some(first)) = (self, pieces.first()) else { return None };
        let length = first.length.0;
        let (from, to) = (length * from / 100, (length * to).div_ceil(100));
        Some(Extent::new(first.start.0 + from, to - from))
    }
}

/// Describes everything that can be read from a store.
pub fn state(store: &Store) -> String {
    let volumes: Vec<_> =
        store.list().unwrap().iter().map(|volume| store.mapping(&volume.name).unwrap()).collect();
    let devices = store.devices().unwrap();
    let clearing = devices.iter().map(|device| store.to_clear(&device.name, usize::MAX).unwrap());
    let clearing: Vec<_> = clearing.collect();
    format!("{volumes:#?}\n{devices:#?}\n{clearing:#?}")
}
