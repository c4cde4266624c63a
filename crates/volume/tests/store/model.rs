//! Random operations on a store and on a simple model, which knows each block's volume and whose data it
//! holds.
//!
//! Failures that this looks for: a volume differs from what was asked for; two volumes have the same block; a
//! volume gets a block with another one's data in it; free blocks are not found; an operation is refused that
//! is possible, or succeeds although it is not.
//!
//! `BYWASH_STRESS_ROUNDS=100 cargo test -p bywash-volume --test store model` runs for longer, and
//! `BYWASH_STRESS_SEED` repeats a run.

use crate::operation::{BLOCK, Operation, state};
use bywash_support::peers::{Random, rounds};
use bywash_volume::{Blocks, Bytes, Error, Extent, NewBlocks, Ownership, Store};
use std::collections::BTreeMap;

/// Use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Clearing,
    /// The block is in the volume with this id.
    Volume(u64),
}

#[derive(Clone, Debug)]
struct Block {
    used: Use,
    /// Owner of the data in the block: the id of a volume, or 0 for an owner before the device was attached.
    data: Option<u64>,
}

#[derive(Clone, Debug)]
struct Volume {
    id: u64,
    generation: u64,
    device: String,
    /// Block of the device behind each block of the volume; `None` where a thin volume has none.
    blocks: Vec<Option<u64>>,
    is_thin: bool,
    ownership: Ownership,
}

#[derive(Debug, Default)]
struct Model {
    devices: BTreeMap<String, Vec<Block>>,
    volumes: BTreeMap<String, Volume>,
    generation: u64,
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    NoDevice,
    NoVolume,
    Exists,
    Occupied,
    OtherDevice,
    Full,
    Low,
    NotThin,
    Size,
}

/// Number of blocks that thin volumes of this test allocate at a time.
const CLUSTER: u64 = 64;

fn outcome(done: &Result<(), Error>) -> Outcome {
    match done {
        Ok(()) => Outcome::Done,
        Err(Error::NoDevice(_)) => Outcome::NoDevice,
        Err(Error::NoVolume(_)) => Outcome::NoVolume,
        Err(Error::Exists(_)) => Outcome::Exists,
        Err(Error::Occupied { .. }) => Outcome::Occupied,
        Err(Error::OtherDevice { .. }) => Outcome::OtherDevice,
        Err(Error::Full { .. }) => Outcome::Full,
        Err(Error::PoolLow { .. }) => Outcome::Low,
        Err(Error::NotThin(_)) => Outcome::NotThin,
        Err(Error::Size { .. }) => Outcome::Size,
        Err(other) => panic!("{other}"),
    }
}

impl Model {
    /// Returns the result that an operation must have.
    fn expected(&self, operation: &Operation) -> Outcome {
        let free = |device: &str| self.devices[device].iter().filter(|block| block.used == Use::Free).count();
        match operation {
            Operation::Attach { device, blocks, .. } => match self.devices.get(device) {
                Some(known) if known.len() as u64 > *blocks => Outcome::OtherDevice,
                _ => Outcome::Done,
            },
            Operation::Forget { device } if !self.devices.contains_key(device) => Outcome::NoDevice,
            Operation::Forget { device } if self.volumes.values().any(|volume| volume.device == *device) => {
                Outcome::Occupied
            }
            Operation::Create { name, .. } | Operation::CreateThin { name, .. }
                if self.volumes.contains_key(name) =>
            {
                Outcome::Exists
            }
            Operation::Create { device, .. } | Operation::CreateThin { device, .. }
                if !self.devices.contains_key(device) =>
            {
                Outcome::NoDevice
            }
            Operation::Create { device, blocks, .. } if free(device) < *blocks as usize => Outcome::Full,
            Operation::Resize { name, .. }
            | Operation::Rename { name, .. }
            | Operation::Remove { name }
            | Operation::SetOwnership { name, .. }
            | Operation::Allocate { name, .. }
            | Operation::Release { name, .. }
                if !self.volumes.contains_key(name) =>
            {
                Outcome::NoVolume
            }
            Operation::Allocate { name, .. } | Operation::Release { name, .. }
                if !self.volumes[name].is_thin =>
            {
                Outcome::NotThin
            }
            Operation::Allocate { name, from, to } => {
                let volume = &self.volumes[name];
                if *to > volume.blocks.len() as u64 {
                    return Outcome::Size;
                }
                let clusters = touched(*from, *to)
                    .filter(|cluster| volume.blocks[(cluster * CLUSTER) as usize].is_none());
                let asked = clusters.count() as u64 * CLUSTER;
                let device = &self.devices[&volume.device];
                let clearing = device.iter().filter(|block| block.used == Use::Clearing).count();
                let (free, kept) = (free(&volume.device) as u64, device.len().div_ceil(64) as u64);
                match () {
                    () if asked == 0 => Outcome::Done,
                    () if asked > (free + clearing as u64).saturating_sub(kept) => Outcome::Low,
                    () if asked > free => Outcome::Full,
                    () => Outcome::Done,
                }
            }
            Operation::Resize { name, .. } if self.volumes[name].is_thin => Outcome::Done,
            Operation::Resize { name, blocks } => {
                let volume = &self.volumes[name];
                let more = (*blocks as usize).saturating_sub(volume.blocks.len());
                if free(&volume.device) < more { Outcome::Full } else { Outcome::Done }
            }
            Operation::Rename { to, .. } if self.volumes.contains_key(to) => Outcome::Exists,
            Operation::Clear { device, .. } if !self.devices.contains_key(device) => Outcome::NoDevice,
            _ => Outcome::Done,
        }
    }

    /// Applies an operation that succeeded. The choice of blocks is the store's; the model checks that they
    /// were free.
    fn follow(&mut self, operation: &Operation, store: &Store) {
        match operation {
            Operation::Attach { device, blocks, contents } => {
                let new = match contents {
                    NewBlocks::Cleared => Block { used: Use::Free, data: None },
                    NewBlocks::Uncleared => Block { used: Use::Clearing, data: Some(0) },
                };
                let known = self.devices.entry(device.clone()).or_default();
                known.resize(*blocks as usize, new);
            }
            Operation::Forget { device } => drop(self.devices.remove(device)),
            Operation::Create { name, device, ownership, .. }
            | Operation::CreateThin { name, device, ownership, .. } => {
                let is_thin = matches!(operation, Operation::CreateThin { .. });
                let (made, _) = store.get(name).unwrap();
                assert_eq!(made.id, made.generation);
                let volume = Volume {
                    id: made.id,
                    generation: self.generation,
                    device: device.clone(),
                    blocks: Vec::new(),
                    is_thin,
                    ownership: *ownership,
                };
                self.volumes.insert(name.clone(), volume);
                self.changed(name, store);
                self.take_blocks(name, store, 0..0);
            }
            Operation::Allocate { name, from, to } => {
                let clusters = touched(*from, *to);
                self.take_blocks(name, store, clusters.start * CLUSTER..clusters.end * CLUSTER);
            }
            Operation::Release { name, from, to } => {
                let volume = self.volumes.get_mut(name).unwrap();
                let device = self.devices.get_mut(&volume.device).unwrap();
                let end = *to.min(&(volume.blocks.len() as u64)) / CLUSTER * CLUSTER;
                for block in from.next_multiple_of(CLUSTER)..end {
                    if let Some(number) = volume.blocks[block as usize].take() {
                        device[number as usize].used = Use::Clearing;
                    }
                }
                self.take_blocks(name, store, 0..0);
            }
            Operation::Resize { name, blocks } => {
                let is_thin = self.volumes[name].is_thin;
                let blocks = if is_thin { blocks.next_multiple_of(CLUSTER) } else { *blocks };
                self.changed(name, store);
                self.give_blocks(name, blocks as usize);
                self.take_blocks(name, store, 0..0);
            }
            Operation::Rename { name, to } => {
                let volume = self.volumes.remove(name).unwrap();
                self.volumes.insert(to.clone(), volume);
                self.changed(to, store);
            }
            Operation::Remove { name } => {
                self.give_blocks(name, 0);
                self.volumes.remove(name);
            }
            Operation::SetOwnership { name, ownership } => {
                self.volumes.get_mut(name).unwrap().ownership = *ownership;
                self.changed(name, store);
            }
            Operation::Clear { device, .. } => {
                let Some(part) = operation.part_of(&self.clearing(device)) else { return };
                for number in part.start.0..part.start.0 + part.length.0 {
                    let block = &mut self.devices.get_mut(device).unwrap()[number as usize];
                    assert_eq!(block.used, Use::Clearing);
                    *block = Block { used: Use::Free, data: None };
                }
            }
        }
    }

    /// Checks that a volume has a new generation, which no volume ever had.
    fn changed(&mut self, name: &str, store: &Store) {
        let generation = store.get(name).unwrap().0.generation;
        assert!(generation > self.generation);
        self.generation = generation;
        self.volumes.get_mut(name).unwrap().generation = generation;
    }

    /// Takes over the blocks that the store has added to a volume: of a thin one, `expected`; of another, all.
    /// Checks that they were free and held nobody's data; then the volume's owner writes all of them.
    fn take_blocks(&mut self, name: &str, store: &Store, expected: std::ops::Range<u64>) {
        let volume = self.volumes.get_mut(name).unwrap();
        let blocks = blocks(store, name);
        let device = self.devices.get_mut(&volume.device).unwrap();
        for (at, number) in blocks.iter().enumerate() {
            let before = volume.blocks.get(at).copied().flatten();
            let is_expected = !volume.is_thin || expected.contains(&(at as u64));
            assert_eq!(number.is_some(), before.is_some() || is_expected, "block {at} of {name}");
            if let (Some(number), None) = (number, before) {
                let block = &mut device[*number as usize];
                assert_eq!((block.used, block.data), (Use::Free, None), "block {number} of {name}");
                *block = Block { used: Use::Volume(volume.id), data: Some(volume.id) };
            } else {
                assert_eq!(*number, before, "block {at} of {name}");
            }
        }
        assert!(blocks.len() >= volume.blocks.len());
        volume.blocks = blocks;
    }

    /// Removes blocks from the end of a volume until `left` are left; they are to be cleared.
    fn give_blocks(&mut self, name: &str, left: usize) {
        let volume = self.volumes.get_mut(name).unwrap();
        let device = self.devices.get_mut(&volume.device).unwrap();
        for number in volume.blocks.drain(left.min(volume.blocks.len())..).flatten() {
            device[number as usize].used = Use::Clearing;
        }
    }

    /// Returns the maximal extents of a device that are to be cleared.
    fn clearing(&self, device: &str) -> Vec<Extent> {
        self.stretches(device, Use::Clearing)
    }

    fn stretches(&self, device: &str, used: Use) -> Vec<Extent> {
        let mut found: Vec<Extent> = Vec::new();
        for (number, block) in self.devices[device].iter().enumerate() {
            match found.last_mut() {
                _ if block.used != used => {}
                Some(last) if last.end() == Some(Blocks(number as u64)) => last.length.0 += 1,
                _ => found.push(Extent::new(number as u64, 1)),
            }
        }
        found
    }

    /// Checks that the store's answers agree with the model.
    fn hold(&self, store: &Store) {
        let listed = store.list().unwrap();
        assert!(listed.iter().map(|volume| &volume.name).eq(self.volumes.keys()));
        for volume in listed {
            let known = &self.volumes[&volume.name];
            let (again, extents) = store.get(&volume.name).unwrap();
            assert_eq!(again, volume);
            assert_eq!(volume.cluster, known.is_thin.then_some(Blocks(CLUSTER)));
            assert_eq!((volume.id, volume.generation), (known.id, known.generation));
            assert_eq!((&volume.device, volume.ownership), (&known.device, known.ownership));
            assert_eq!(volume.size(), Bytes(known.blocks.len() as u64 * BLOCK));
            assert_eq!(
                (blocks(store, &volume.name), extents.len() as u32),
                (known.blocks.clone(), volume.extents)
            );
            assert_eq!(volume.allocated.0, known.blocks.iter().flatten().count() as u64);
        }
        let devices = store.devices().unwrap();
        assert!(devices.iter().map(|device| &device.name).eq(self.devices.keys()));
        for device in devices {
            let count = |used| {
                Blocks(self.stretches(&device.name, used).iter().map(|stretch| stretch.length.0).sum())
            };
            assert_eq!((device.free, device.to_clear), (count(Use::Free), count(Use::Clearing)));
            assert_eq!(store.to_clear(&device.name, usize::MAX).unwrap(), self.clearing(&device.name));
        }
    }
}

/// Returns the block of the device behind each block of a volume.
fn blocks(store: &Store, name: &str) -> Vec<Option<u64>> {
    let (volume, mapped) = store.mapping(name).unwrap();
    let mut blocks = vec![None; volume.blocks.0 as usize];
    for one in mapped {
        for at in 0..one.extent.length.0 {
            let before = blocks[(one.logical.0 + at) as usize].replace(one.extent.start.0 + at);
            assert_eq!(before, None);
        }
    }
    blocks
}

/// Returns the clusters that a range of blocks touches.
fn touched(from: u64, to: u64) -> std::ops::Range<u64> {
    from / CLUSTER..to.div_ceil(CLUSTER)
}

#[test]
fn as_the_model() {
    let mut random = Random::seeded("model");
    let mut outcomes = BTreeMap::new();
    for _ in 0..rounds(4) {
        let folder = tempfile::tempdir_in(super::kill::fast_folder()).unwrap();
        let path = folder.path().join("volumes");
        let mut store = Store::open(&path).unwrap();
        let mut model = Model::default();
        for _ in 0..500 {
            let operation = Operation::random(&mut random);
            let expected = model.expected(&operation);
            let before = (expected != Outcome::Done).then(|| state(&store));
            let done = operation.run(&store);
            assert_eq!(outcome(&done), expected, "{operation:?}: {done:?}");
            match before {
                Some(before) => {
                    assert_eq!(state(&store), before, "{operation:?} was refused, and changed something")
                }
                None => model.follow(&operation, &store),
            }
            *outcomes.entry(format!("{expected:?}")).or_insert(0) += 1;
            if random.below(20) == 0 {
                model.hold(&store);
            }
            if random.below(50) == 0 {
                // Opening the store checks its consistency.
                drop(store);
                store = Store::open(&path).unwrap();
            }
        }
        model.hold(&store);
    }
    eprintln!("{outcomes:?}");
    assert_eq!(outcomes.len(), 10, "something never happened");
}
