//! Random operations on a store and on a simple model, which knows each block's volume and whose data it
//! holds.
//!
//! Failures that this looks for: a volume differs from what was asked for; two volumes have the same block; a
//! volume gets a block with another one's data in it, or a copy of a shared one that others have; a block is free that
//! a snapshot has; free blocks are not found; an operation is refused that is possible, or succeeds although it is not.
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
    /// The block is in this number of volumes.
    Volumes(u64),
}

#[derive(Clone, Debug)]
struct Block {
    used: Use,
    /// Owner of the data in the block: the id of a volume, or 0 for an owner before the device was attached.
    data: Option<u64>,
}

impl Block {
    /// Notes that a volume has given the block up.
    fn lose_user(&mut self) {
        self.used = match self.used {
            Use::Volumes(1) => Use::Clearing,
            Use::Volumes(users) => Use::Volumes(users - 1),
            used => panic!("no volume had a block that is {used:?}"),
        };
    }
}

#[derive(Clone, Debug)]
struct Volume {
    id: u64,
    generation: u64,
    device: String,
    /// Block of the device behind each block of the volume; `None` where a thin volume has none.
    blocks: Vec<Option<u64>>,
    is_thin: bool,
    is_snapshot: bool,
    /// Id of the volume that this one was made of.
    origin: Option<u64>,
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
    NotThinVolume,
    Snapshot,
    NotSnapshot,
    OtherOrigin,
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
        Err(Error::NotThinVolume(_)) => Outcome::NotThinVolume,
        Err(Error::Snapshot { .. }) => Outcome::Snapshot,
        Err(Error::NotSnapshot(_)) => Outcome::NotSnapshot,
        Err(Error::OtherOrigin { .. }) => Outcome::OtherOrigin,
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
            | Operation::Copy { name, .. }
            | Operation::Snapshot { volume: name, .. }
            | Operation::Clone { snapshot: name, .. }
            | Operation::Rollback { snapshot: name, .. }
                if !self.volumes.contains_key(name) =>
            {
                Outcome::NoVolume
            }
            Operation::Allocate { name, .. }
            | Operation::Release { name, .. }
            | Operation::Copy { name, .. }
                if !self.volumes[name].is_thin =>
            {
                Outcome::NotThin
            }
            Operation::Snapshot { volume: name, .. }
            | Operation::Clone { snapshot: name, .. }
            | Operation::Rollback { snapshot: name, .. }
                if !self.volumes[name].is_thin =>
            {
                Outcome::NotThinVolume
            }
            Operation::Allocate { name, .. }
            | Operation::Release { name, .. }
            | Operation::Resize { name, .. }
                if self.volumes[name].is_snapshot =>
            {
                Outcome::Snapshot
            }
            Operation::SetOwnership { name, ownership }
                if self.volumes[name].is_snapshot && !ownership.read_only =>
            {
                Outcome::Snapshot
            }
            Operation::Snapshot { volume, .. } if self.volumes[volume].is_snapshot => Outcome::Snapshot,
            Operation::Clone { snapshot, .. } if !self.volumes[snapshot].is_snapshot => Outcome::NotSnapshot,
            Operation::Snapshot { name, .. } | Operation::Clone { name, .. }
                if self.volumes.contains_key(name) =>
            {
                Outcome::Exists
            }
            Operation::Rollback { volume, snapshot } => match self.volumes.get(volume) {
                None => Outcome::NoVolume,
                Some(volume) if !volume.is_thin => Outcome::NotThinVolume,
                Some(volume) if volume.is_snapshot => Outcome::Snapshot,
                Some(_) if !self.volumes[snapshot].is_snapshot => Outcome::NotSnapshot,
                Some(volume) if self.volumes[snapshot].origin != Some(volume.id) => Outcome::OtherOrigin,
                Some(_) => Outcome::Done,
            },
            Operation::Copy { name, from, to } => {
                let volume = &self.volumes[name];
                let clusters = touched(*from, *to);
                let device = &self.devices[&volume.device];
                let asked = self.shared_in(volume, clusters.clone());
                let clearing = device.iter().filter(|block| block.used == Use::Clearing).count();
                let (free, kept) = (free(&volume.device), device.len().div_ceil(64));
                match () {
                    () if asked == 0 => Outcome::Done,
                    () if volume.is_snapshot => Outcome::Snapshot,
                    () if clusters.end * CLUSTER > volume.blocks.len() as u64 => Outcome::Size,
                    () if asked > (free + clearing).saturating_sub(kept) => Outcome::Low,
                    () => Outcome::Done,
                }
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
                    is_snapshot: false,
                    origin: None,
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
                        device[number as usize].lose_user();
                    }
                }
                self.take_blocks(name, store, 0..0);
            }
            Operation::Snapshot { volume, name } | Operation::Clone { snapshot: volume, name } => {
                let is_snapshot = matches!(operation, Operation::Snapshot { .. });
                let of = self.volumes[volume].clone();
                let ownership = Ownership { read_only: is_snapshot, ..of.ownership };
                let id = store.get(name).unwrap().0.id;
                self.gain_users(&of.device, &of.blocks);
                let made = Volume { id, is_snapshot, origin: Some(of.id), ownership, ..of };
                self.volumes.insert(name.clone(), made);
                self.changed(name, store);
            }
            Operation::Rollback { volume, snapshot } => {
                self.give_blocks(volume, 0);
                let from = self.volumes[snapshot].clone();
                self.gain_users(&from.device, &from.blocks);
                self.volumes.get_mut(volume).unwrap().blocks = from.blocks;
                self.changed(volume, store);
            }
            Operation::Copy { name, from, to } => self.follow_copy(name, touched(*from, *to), store),
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

    /// Returns an operation on thin volumes and snapshots that there are, if there are any.
    fn guided(&self, random: &mut Random) -> Option<Operation> {
        let of_kind = |is_snapshot| {
            let all = self
                .volumes
                .iter()
                .filter(move |(_, volume)| volume.is_thin && volume.is_snapshot == is_snapshot);
            all.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let (thin, snapshots) = (of_kind(false), of_kind(true));
        let mut one_of = |names: &[String]| {
            (!names.is_empty()).then(|| names[random.below(names.len() as u64) as usize].clone())
        };
        let (volume, snapshot) = (one_of(&thin)?, one_of(&snapshots));
        let from = random.below(6) * CLUSTER + random.below(CLUSTER);
        // At times more than there is.
        let clusters = if random.below(8) == 0 { 12 } else { 2 };
        let to = from + 1 + random.below(clusters * CLUSTER);
        let name = format!("volume-{}", random.below(12));
        Some(match random.below(8) {
            0..3 => Operation::Allocate { name: volume, from, to },
            3 => Operation::Snapshot { volume, name },
            4 => Operation::Clone { snapshot: if to.is_multiple_of(5) { volume } else { snapshot? }, name },
            5 if to.is_multiple_of(5) => Operation::Rollback { volume, snapshot: snapshot? },
            5 => {
                let origin = self.volumes[snapshot.as_ref()?].origin;
                let volume = self.volumes.iter().find(|(_, volume)| Some(volume.id) == origin)?.0.clone();
                Operation::Rollback { volume, snapshot: snapshot? }
            }
            _ => Operation::Copy { name: volume, from, to },
        })
    }

    /// Follows the copying of shared blocks in some clusters of a volume. Some free blocks may be to be cleared then.
    fn follow_copy(&mut self, name: &str, clusters: std::ops::Range<u64>, store: &Store) {
        let after = blocks(store, name);
        let volume = self.volumes.get_mut(name).unwrap();
        let device = self.devices.get_mut(&volume.device).unwrap();
        for at in 0..volume.blocks.len() {
            let is_in = clusters.contains(&(at as u64 / CLUSTER));
            let shared = volume.blocks[at].filter(|number| {
                is_in && matches!(device[*number as usize].used, Use::Volumes(users) if users > 1)
            });
            let Some(number) = shared else {
                assert_eq!(after[at], volume.blocks[at], "block {at} of {name}");
                continue;
            };
            device[number as usize].lose_user();
            let new = &mut device[after[at].unwrap() as usize];
            assert!(matches!(new.used, Use::Free | Use::Clearing), "block {at} of {name}");
            *new = Block { used: Use::Volumes(1), data: Some(volume.id) };
        }
        volume.blocks = after;
        for extent in store.to_clear(&volume.device, usize::MAX).unwrap() {
            for number in extent.start.0..extent.start.0 + extent.length.0 {
                let block = &mut device[number as usize];
                assert!(matches!(block.used, Use::Free | Use::Clearing));
                block.used = Use::Clearing;
            }
        }
    }

    /// Returns the number of blocks in some clusters of a volume that other volumes have, too.
    fn shared_in(&self, volume: &Volume, clusters: std::ops::Range<u64>) -> usize {
        let device = &self.devices[&volume.device];
        let is_shared = |number: &&u64| matches!(device[**number as usize].used, Use::Volumes(2..));
        let blocks = clusters.start * CLUSTER..clusters.end * CLUSTER;
        let inside = volume.blocks.iter().enumerate().filter(|(at, _)| blocks.contains(&(*at as u64)));
        inside.filter_map(|(_, block)| block.as_ref()).filter(is_shared).count()
    }

    /// Notes that one volume more has these blocks of a device.
    fn gain_users(&mut self, device: &str, blocks: &[Option<u64>]) {
        let device = self.devices.get_mut(device).unwrap();
        for number in blocks.iter().flatten() {
            let Use::Volumes(users) = &mut device[*number as usize].used else { panic!("block {number}") };
            *users += 1;
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
                *block = Block { used: Use::Volumes(1), data: Some(volume.id) };
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
            device[number as usize].lose_user();
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
            let origin = self.volumes.iter().find(|(_, other)| Some(other.id) == known.origin);
            assert_eq!(volume.origin.as_ref(), origin.map(|(name, _)| name));
            assert_eq!(volume.is_snapshot, known.is_snapshot);
            // The blocks that must not be written are those that other volumes have.
            let device = &self.devices[&known.device];
            let mut shared = 0;
            for part in store.mapping(&volume.name).unwrap().1 {
                for number in part.extent.start.0..part.extent.start.0 + part.extent.length.0 {
                    let is_shared = matches!(device[number as usize].used, Use::Volumes(2..));
                    assert_eq!(part.is_shared, is_shared, "block {number} of {}", volume.name);
                    shared += u64::from(is_shared);
                }
            }
            if known.is_thin {
                assert_eq!(store.shared_blocks().unwrap()[&volume.id], Blocks(shared));
            }
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
    let (mut outcomes, mut copied) = (BTreeMap::new(), 0);
    for _ in 0..rounds(6) {
        let folder = tempfile::tempdir_in(super::kill::fast_folder()).unwrap();
        let path = folder.path().join("volumes");
        let mut store = Store::open(&path).unwrap();
        let mut model = Model::default();
        for _ in 0..500 {
            let guided = if random.below(2) == 0 { model.guided(&mut random) } else { None };
            let operation = guided.unwrap_or_else(|| Operation::random(&mut random));
            let expected = model.expected(&operation);
            let before = (expected != Outcome::Done).then(|| state(&store));
            let done = operation.run(&store);
            assert_eq!(outcome(&done), expected, "{operation:?}: {done:?}");
            if let (Operation::Copy { name, from, to }, Outcome::Done) = (&operation, expected) {
                copied += model.shared_in(&model.volumes[name], touched(*from, *to));
            }
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
    eprintln!("{outcomes:?}, {copied} blocks copied");
    assert!(copied > 0, "nothing shared was ever copied");
    assert_eq!(outcomes.len(), 14, "something never happened");
}
