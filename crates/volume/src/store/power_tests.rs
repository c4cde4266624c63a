//! Tests of the store with power failures: of the writes since the last sync some reach the medium and some
//! do not, in any order, and a write may be torn.
//!
//! Failures that this looks for: the store does not open; an operation that had returned is lost; an
//! operation is there in part. `BYWASH_STRESS_SEED` repeats a run, `BYWASH_STRESS_ROUNDS` makes it longer.

use super::*;
use crate::right::Mode;
use bywash_support::peers::{Random, rounds};
use redb::StorageBackend;
use std::io;
use std::sync::{Arc, Mutex};

/// Change of the medium that a power failure may lose.
#[derive(Clone, Debug)]
enum Pending {
    Write(u64, Vec<u8>),
    Length(u64),
}

/// Simulated medium: its durable contents, the changes since, and the contents with all changes.
#[derive(Clone, Debug, Default)]
struct Medium {
    synced: Vec<u8>,
    pending: Vec<Pending>,
    seen: Vec<u8>,
    /// Number of calls until the power fails (0 for never), and a copy of the medium at that moment.
    fuse: u64,
    failed: Option<Box<Medium>>,
}

fn apply(bytes: &mut Vec<u8>, pending: &Pending) {
    match pending {
        Pending::Length(length) => bytes.resize(*length as usize, 0),
        Pending::Write(offset, data) => {
            let (from, to) = (*offset as usize, *offset as usize + data.len());
            bytes.resize(bytes.len().max(to), 0);
            bytes[from..to].copy_from_slice(data);
        }
    }
}

impl Medium {
    fn tell(&mut self, pending: Pending) {
        self.burn();
        apply(&mut self.seen, &pending);
        self.pending.push(pending);
    }

    fn burn(&mut self) {
        if self.fuse == 1 {
            self.failed = Some(Box::new(self.clone()));
        }
        self.fuse = self.fuse.saturating_sub(1);
    }

    /// Returns contents that may be found after the power failure.
    fn after_failure(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        let mut pending = self.pending.clone();
        for at in (1..pending.len()).rev() {
            pending.swap(at, random.below(at as u64 + 1) as usize);
        }
        for mut one in pending {
            if let Pending::Write(_, data) = &mut one
                && random.below(4) == 0
            {
                // The write is torn at any byte, within a sector or between two.
                data.truncate(random.below(data.len() as u64 + 1) as usize);
            }
            if random.below(2) == 0 {
                apply(&mut bytes, &one);
            }
        }
        bytes
    }
}

#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Medium>>);

impl Shared {
    fn with(bytes: Vec<u8>) -> Shared {
        let medium = Medium { synced: bytes.clone(), seen: bytes, ..Medium::default() };
        Shared(Arc::new(Mutex::new(medium)))
    }
}

impl StorageBackend for Shared {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.lock().unwrap().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let medium = self.0.lock().unwrap();
        let part = medium.seen.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.lock().unwrap().tell(Pending::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut medium = self.0.lock().unwrap();
        medium.burn();
        medium.synced = medium.seen.clone();
        medium.pending.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.0.lock().unwrap().tell(Pending::Write(offset, data.to_vec()));
        Ok(())
    }
}

/// Describes everything that can be read from a store.
fn state(store: &Store) -> String {
    let volumes: Vec<_> =
        store.list().unwrap().iter().map(|volume| store.mapping(&volume.name).unwrap()).collect();
    let devices = store.devices().unwrap();
    let clearing: Vec<_> =
        devices.iter().map(|device| store.to_clear(&device.name, usize::MAX).unwrap()).collect();
    format!("{volumes:?} {devices:?} {clearing:?}")
}

fn operate(store: &Store, random: &mut Random) {
    let name = format!("volume-{}", random.below(6));
    let size = Bytes((1 + random.below(40)) * 512);
    let ownership =
        Ownership { owner: random.below(3) as u32, group: 0, mode: Mode::PRIVATE, read_only: false };
    // Refused operations count as well: they must change nothing.
    let range = |random: &mut Random| {
        let id = store.list().unwrap().first().map_or(0, |volume| volume.id);
        (id, [Extent::new(random.below(2000), 1 + random.below(1200))])
    };
    let _ = match random.below(9) {
        6 => store.create_thin(&name, "disk", Bytes((1 + random.below(3000)) * 512), ownership).map(drop),
        7 => {
            let (id, range) = range(random);
            store.allocate(id, &range).map(drop)
        }
        8 => {
            let (id, range) = range(random);
            store.release(id, &range).map(drop)
        }
        0 | 1 => store.create(&name, "disk", size, ownership).map(drop),
        2 => store.resize(&name, size).map(drop),
        3 => store.remove(&name),
        4 => store.set_ownership(&name, |changed| *changed = ownership).map(drop),
        _ => store.to_clear("disk", 1).and_then(|pieces| match pieces.first() {
            Some(piece) => store.cleared("disk", *piece),
            None => Ok(()),
        }),
    };
}

#[test]
fn what_was_returned_is_there_after_a_failure() {
    let mut random = Random::seeded("power");
    let path = Path::new("of a test");
    let mut bytes = Vec::new();
    {
        let shared = Shared::default();
        let store = opening::open_backend(path, shared.clone()).unwrap();
        store.lay_out().unwrap();
        let block = BlockSize::new(Bytes(512)).unwrap();
        store.attach_device("disk", Bytes(3000 * 512), block, NewBlocks::Cleared).unwrap();
        // The store is not closed first, since a power failure does not close it either.
        bytes.clone_from(&shared.0.lock().unwrap().synced);
    }
    let (mut undone, mut done) = (0, 0);
    for round in 0..rounds(60) {
        let shared = Shared::with(bytes.clone());
        let mut store = opening::open_backend(path, shared.clone()).unwrap();
        let (mut before, mut after) = (state(&store), state(&store));
        // The power fails between two operations, or during one.
        let mut idle_after = if random.below(4) == 0 { 1 + random.below(20) } else { 0 };
        shared.0.lock().unwrap().fuse = if idle_after > 0 { 0 } else { 1 + random.below(400) };
        let mut operations = 0;
        while shared.0.lock().unwrap().failed.is_none() {
            if random.below(20) == 0 {
                // The power may also fail while the store is closed or opened.
                drop(store);
                store = opening::open_backend(path, shared.clone()).unwrap();
            } else {
                operate(&store, &mut random);
            }
            before = std::mem::replace(&mut after, state(&store));
            if idle_after > 0 {
                idle_after -= 1;
                if idle_after == 0 {
                    let mut medium = shared.0.lock().unwrap();
                    medium.failed = Some(Box::new(medium.clone()));
                    before.clone_from(&after);
                }
            }
            operations += 1;
            assert!(operations < 10_000, "nothing is written");
        }
        let failed = shared.0.lock().unwrap().failed.take().unwrap();
        bytes = failed.after_failure(&mut random);
        let store = opening::open_backend(path, Shared::with(bytes.clone())).unwrap();
        store.check_layout(path).unwrap();
        store.verify().unwrap();
        let found = state(&store);
        assert!(
            found == before || found == after,
            "round {round}: {found}\nbefore: {before}\nafter: {after}"
        );
        if before != after {
            undone += u64::from(found == before);
            done += u64::from(found == after);
        }
    }
    eprintln!("the operation in flight was there {done} times, and was not {undone} times");
    assert!(undone + done > 0, "the power failed at no moment that matters");
}
