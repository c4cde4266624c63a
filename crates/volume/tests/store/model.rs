//! Operations at random, and a simple model beside the store: for each block of each device whose it is and whose data
//! is in it.
//!
//! What could go wrong: a volume is other than what was asked for; two have the same block; one gets a block with the
//! data of another in it; what is free is not found; something is refused that can be done, or done that cannot.
//!
//! `BYWASH_STRESS_ROUNDS=100 cargo test -p bywash-volume --test store model` goes on for longer, and
//! `BYWASH_STRESS_SEED` repeats a run.

use crate::operation::{BLOCK, Operation, state};
use bywash_peers::{Random, rounds};
use bywash_volume::{Blocks, Bytes, Contents, Error, Extent, Ownership, Store};
use std::collections::BTreeMap;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Clearing,
    /// Of the volume with that id.
    Volume(u64),
}

#[derive(Clone, Debug)]
struct Block {
    used: Use,
    /// Whose data is in it: the volume with that id, or 0 for somebody from before.
    data: Option<u64>,
}

#[derive(Clone, Debug)]
struct Volume {
    id: u64,
    generation: u64,
    device: String,
    blocks: Vec<u64>,
    ownership: Ownership,
}

#[derive(Debug, Default)]
struct Model {
    devices: BTreeMap<String, Vec<Block>>,
    volumes: BTreeMap<String, Volume>,
    generation: u64,
}

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    NoDevice,
    NoVolume,
    Exists,
    Occupied,
    OtherDevice,
    Full,
}

fn outcome(done: &Result<(), Error>) -> Outcome {
    match done {
        Ok(()) => Outcome::Done,
        Err(Error::NoDevice(_)) => Outcome::NoDevice,
        Err(Error::NoVolume(_)) => Outcome::NoVolume,
        Err(Error::Exists(_)) => Outcome::Exists,
        Err(Error::Occupied { .. }) => Outcome::Occupied,
        Err(Error::OtherDevice { .. }) => Outcome::OtherDevice,
        Err(Error::Full { .. }) => Outcome::Full,
        Err(other) => panic!("{other}"),
    }
}

impl Model {
    /// What must become of an operation.
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
            Operation::Create { name, .. } if self.volumes.contains_key(name) => Outcome::Exists,
            Operation::Create { device, .. } if !self.devices.contains_key(device) => Outcome::NoDevice,
            Operation::Create { device, blocks, .. } if free(device) < *blocks as usize => Outcome::Full,
            Operation::Resize { name, .. }
            | Operation::Rename { name, .. }
            | Operation::Remove { name }
            | Operation::SetOwnership { name, .. }
                if !self.volumes.contains_key(name) =>
            {
                Outcome::NoVolume
            }
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

    /// Does what was done. Which blocks were chosen is the store's business; that they could be is checked.
    fn follow(&mut self, operation: &Operation, store: &Store) {
        match operation {
            Operation::Attach { device, blocks, contents } => {
                let new = match contents {
                    Contents::Cleared => Block { used: Use::Free, data: None },
                    Contents::Unknown => Block { used: Use::Clearing, data: Some(0) },
                };
                let known = self.devices.entry(device.clone()).or_default();
                known.resize(*blocks as usize, new);
            }
            Operation::Forget { device } => drop(self.devices.remove(device)),
            Operation::Create { name, device, ownership, .. } => {
                let (made, _) = store.get(name).unwrap();
                assert_eq!(made.id, made.generation);
                let volume = Volume {
                    id: made.id,
                    generation: self.generation,
                    device: device.clone(),
                    blocks: Vec::new(),
                    ownership: *ownership,
                };
                self.volumes.insert(name.clone(), volume);
                self.changed(name, store);
                self.take_blocks(name, store);
            }
            Operation::Resize { name, blocks } => {
                self.changed(name, store);
                self.give_blocks(name, *blocks as usize);
                self.take_blocks(name, store);
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

    /// A volume has a generation that none ever had.
    fn changed(&mut self, name: &str, store: &Store) {
        let generation = store.get(name).unwrap().0.generation;
        assert!(generation > self.generation);
        self.generation = generation;
        self.volumes.get_mut(name).unwrap().generation = generation;
    }

    /// Blocks of a volume that the model does not know yet: they were free, and nobody's data is in them. Its owner
    /// writes all of them.
    fn take_blocks(&mut self, name: &str, store: &Store) {
        let volume = self.volumes.get_mut(name).unwrap();
        let blocks = blocks(&store.get(name).unwrap().1);
        assert_eq!(blocks[..volume.blocks.len()], volume.blocks);
        let device = self.devices.get_mut(&volume.device).unwrap();
        for number in &blocks[volume.blocks.len()..] {
            let block = &mut device[*number as usize];
            assert_eq!((block.used, block.data), (Use::Free, None), "block {number} of {name}");
            *block = Block { used: Use::Volume(volume.id), data: Some(volume.id) };
        }
        volume.blocks = blocks;
    }

    /// Leaves a volume so many blocks.
    fn give_blocks(&mut self, name: &str, left: usize) {
        let volume = self.volumes.get_mut(name).unwrap();
        let device = self.devices.get_mut(&volume.device).unwrap();
        for number in volume.blocks.drain(left.min(volume.blocks.len())..) {
            device[number as usize].used = Use::Clearing;
        }
    }

    /// Stretches of a device that are to be cleared, as long as they can be.
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

    /// Whether the store says what the model says.
    fn hold(&self, store: &Store) {
        let listed = store.list().unwrap();
        assert!(listed.iter().map(|volume| &volume.name).eq(self.volumes.keys()));
        for volume in listed {
            let known = &self.volumes[&volume.name];
            let (again, extents) = store.get(&volume.name).unwrap();
            assert_eq!(again, volume);
            assert_eq!((volume.id, volume.generation), (known.id, known.generation));
            assert_eq!((&volume.device, volume.ownership), (&known.device, known.ownership));
            assert_eq!(volume.size(), Bytes(known.blocks.len() as u64 * BLOCK));
            assert_eq!((blocks(&extents), extents.len() as u32), (known.blocks.clone(), volume.extents));
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

/// The blocks of extents, in order.
fn blocks(extents: &[Extent]) -> Vec<u64> {
    extents.iter().flat_map(|extent| extent.start.0..extent.start.0 + extent.length.0).collect()
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
                // Opening holds everything against everything else.
                drop(store);
                store = Store::open(&path).unwrap();
            }
        }
        model.hold(&store);
    }
    eprintln!("{outcomes:?}");
    assert_eq!(outcomes.len(), 7, "something never happened");
}
