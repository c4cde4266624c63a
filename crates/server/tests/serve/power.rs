//! Random operations on thin volumes, snapshots and clones, beside a simple model, with power cuts at any moment: of the
//! device, of the store's file, and of both at one instant. The device loses, tears and reorders what was not flushed, and so does the
//! store's file.
//!
//! Failures that this looks for: a volume or snapshot does not read as one of the states that it may be in; an operation is
//! there in part after a cut, or one that was acknowledged is not; a snapshot changes; the store contradicts itself; blocks
//! are lost, or appear in another volume.
//!
//! `BYWASH_STRESS_ROUNDS` makes it longer, and `BYWASH_STRESS_SEED` repeats a run.

use crate::device::SharedDevice;
use crate::peer::{Peer, pattern};
use bywash_channel::Submission;
use bywash_device::testing::Crash;
use bywash_device::{Memory, MemoryOptions};
use bywash_link::HugePages;
use bywash_protocol::layout::{FUA, Opcode, Status};
use bywash_protocol::{Access, ControlRequest};
use bywash_server::{NewBlocks, OpenDevice, Options, Server, Timeouts};
use bywash_support::peers::{Random, rounds};
use bywash_volume::testing::PowerCutFile;
use std::collections::BTreeMap;
use std::time::Duration;

/// Size of the device, in bytes: enough that clusters are allocated ahead.
const BYTES: u64 = 8 << 20;
/// Size in which thin volumes allocate, in bytes.
const CLUSTER: u64 = 256 << 10;
/// Number of clusters of a volume that the test uses, and of blocks in each.
const CLUSTERS: u64 = 8;
const PLACES: u64 = 8;
/// Size of a block, in bytes.
const BLOCK: usize = 512;
/// Greatest number of volumes.
const VOLUMES: u64 = 9;

/// Volume of the model.
#[derive(Clone, Debug)]
struct Volume {
    /// Versions that each block may have after a power cut: the durable one, and those that were written since. The last one
    /// is read as long as the power stays. Version 0 is zeros.
    blocks: Vec<Vec<u64>>,
    is_snapshot: bool,
    /// Name and number of the volume that this was made of.
    origin: Option<(String, u64)>,
    /// Number that no other volume of the model had.
    number: u64,
}

/// Operation of an administrator that is under way when the power is cut.
#[derive(Clone, Debug)]
enum Pending {
    Nothing,
    Made { name: String, volume: Volume },
    RolledBack { name: String, to: Vec<Vec<u64>> },
    Removed { name: String },
}

fn memory() -> Memory {
    Memory::new(MemoryOptions { pages: HugePages::No, ..MemoryOptions::new(BYTES) }).unwrap()
}

fn offset(block: usize) -> u64 {
    block as u64 / PLACES * CLUSTER + block as u64 % PLACES * (CLUSTER / PLACES)
}

fn contents(version: u64) -> Vec<u8> {
    if version == 0 { vec![0; BLOCK] } else { pattern(version, BLOCK) }
}

/// A server over a device and a store whose power can be cut.
struct Machine {
    device: SharedDevice,
    file: PowerCutFile,
    server: Option<Server>,
    folder: tempfile::TempDir,
    peer: Option<Peer>,
    /// Grants by the names of volumes.
    grants: BTreeMap<String, u64>,
}

impl Machine {
    fn start(disk: Memory, store: Vec<u8>, contents: NewBlocks, seed: u64) -> Machine {
        let device = SharedDevice::over(disk, seed);
        let file = PowerCutFile::with(store);
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let options = Options::new(&socket).timeouts(Timeouts::default().request(Duration::from_secs(5)));
        let opened = OpenDevice {
            name: "disk".into(),
            device: Box::new(device.clone()),
            contents,
            is_volatile: false,
        };
        // Opening the store checks its consistency.
        let server = Server::with_store(options, file.open().unwrap(), vec![opened]).unwrap();
        let peer = Some(Peer::connect(&socket).with_channel());
        Machine { device, file, server: Some(server), folder, peer, grants: BTreeMap::new() }
    }

    /// Cuts the power of the device, of the store's file, or of both at one instant, and starts another server on what is
    /// left.
    fn cut(mut self, random: &mut Random) -> Machine {
        let (is_device_cut, is_store_cut) =
            random.one_of(&[(true, true), (true, true), (true, false), (false, true)]);
        let how = match is_device_cut {
            true => random.one_of(&[Crash::Lose, Crash::Keep, Crash::Prefix, Crash::Any]),
            false => Crash::Keep,
        };
        let device = self.device.clone();
        let mut dice = Random(random.number());
        let mut below = |below| dice.below(below);
        let below: Option<&mut dyn FnMut(u64) -> u64> = if is_store_cut { Some(&mut below) } else { None };
        let (store, disk) = self.file.at_an_instant(|| device.crash(how), below);
        drop((self.peer.take(), self.server.take()));
        Machine::start(disk, store, NewBlocks::Uncleared, random.number())
    }

    /// Stops the server in order, and starts another one.
    fn restart(mut self, random: &mut Random) -> Machine {
        drop((self.peer.take(), self.server.take()));
        let disk = self.device.crash(Crash::Lose);
        Machine::start(disk, self.file.durable(), NewBlocks::Uncleared, random.number())
    }

    fn peer(&mut self) -> &mut Peer {
        self.peer.as_mut().unwrap()
    }

    fn grant(&mut self, name: &str, volume: &Volume) -> u64 {
        if let Some(grant) = self.grants.get(name) {
            return *grant;
        }
        let access = if volume.is_snapshot { Access::Read } else { Access::ReadWrite };
        let grant = self.peer().open(name, access).unwrap().grant;
        self.grants.insert(name.to_owned(), grant);
        grant
    }

    /// Closes a volume that is to be rolled back or removed.
    fn close(&mut self, name: &str) {
        if let Some(grant) = self.grants.remove(name) {
            self.peer().ask(ControlRequest::Close { grant }).unwrap();
        }
    }

    fn read(&mut self, grant: u64, block: usize) -> Vec<u8> {
        let read = self.peer().read(grant, offset(block), 2 * BLOCK).unwrap();
        assert_eq!(read[BLOCK..], [0; BLOCK], "behind block {block}");
        read[..BLOCK].to_vec()
    }
}

#[derive(Default)]
struct Model {
    volumes: BTreeMap<String, Volume>,
    versions: u64,
    numbers: u64,
    /// Number of times that each kind of operation succeeded.
    done: BTreeMap<&'static str, u32>,
}

impl Model {
    fn some(&self, random: &mut Random, is_meant: impl Fn(&Volume) -> bool) -> Option<String> {
        let names: Vec<&String> =
            self.volumes.iter().filter(|(_, volume)| is_meant(volume)).map(|(name, _)| name).collect();
        (!names.is_empty()).then(|| names[random.below(names.len() as u64) as usize].clone())
    }

    fn unused(&self, random: &mut Random) -> Option<String> {
        let name = format!("volume-{}", random.below(VOLUMES));
        (!self.volumes.contains_key(&name)).then_some(name)
    }

    fn made(&mut self, blocks: Vec<Vec<u64>>, origin: Option<String>, is_snapshot: bool) -> Volume {
        self.numbers += 1;
        let origin = origin.map(|name| (name.clone(), self.volumes[&name].number));
        Volume { blocks, is_snapshot, origin, number: self.numbers }
    }

    /// Everything that was written is durable, as a flush of the device has completed.
    fn flushed(&mut self) {
        let blocks = self.volumes.values_mut().flat_map(|volume| &mut volume.blocks);
        blocks.for_each(|versions| drop(versions.drain(..versions.len() - 1)));
    }

    /// Returns a volume and one of its snapshots.
    fn with_snapshot(&self, random: &mut Random) -> Option<(String, String)> {
        let snapshot = self.some(random, |volume| volume.is_snapshot)?;
        let (origin, number) = self.volumes[&snapshot].origin.clone()?;
        let is_there = self.volumes.get(&origin).is_some_and(|volume| volume.number == number);
        is_there.then_some((origin, snapshot))
    }

    /// Makes a random operation and waits for its end.
    fn step(&mut self, machine: &mut Machine, random: &mut Random) -> Option<()> {
        let kind = match random.below(24) {
            0..9 => {
                let name = self.some(random, |volume| !volume.is_snapshot)?;
                let grant = machine.grant(&name, &self.volumes[&name]);
                let block = random.below(CLUSTERS * PLACES) as usize;
                self.versions += 1;
                let (version, is_durable) = (self.versions, random.below(4) == 0);
                let at = [grant, offset(block), BLOCK as u64, 0, 0, 0];
                let flags = if is_durable { FUA } else { 0 };
                match machine.peer().done(Opcode::Write, flags, at, Some(&contents(version))) {
                    Ok(()) => {}
                    Err(Status::NoSpace) => return self.count("no space"),
                    Err(status) => panic!("{status:?}"),
                }
                let versions = &mut self.volumes.get_mut(&name).unwrap().blocks[block];
                versions.push(version);
                if is_durable {
                    versions.drain(..versions.len() - 1);
                }
                "write"
            }
            9 => {
                let name = self.some(random, |volume| !volume.is_snapshot)?;
                let grant = machine.grant(&name, &self.volumes[&name]);
                machine.peer().plain(Opcode::Flush, grant, 0, 0).unwrap();
                self.flushed();
                "flush"
            }
            10 | 11 => {
                let name = self.some(random, |volume| !volume.is_snapshot)?;
                let grant = machine.grant(&name, &self.volumes[&name]);
                let cluster = random.below(CLUSTERS);
                machine.peer().plain(Opcode::Discard, grant, cluster * CLUSTER, CLUSTER).unwrap();
                let blocks = (cluster * PLACES) as usize..((cluster + 1) * PLACES) as usize;
                self.volumes.get_mut(&name).unwrap().blocks[blocks].fill(vec![0]);
                "discard"
            }
            12 => {
                let name = self.some(random, |volume| !volume.is_snapshot)?;
                let grant = machine.grant(&name, &self.volumes[&name]);
                let block = random.below(CLUSTERS * PLACES) as usize;
                match machine.peer().plain(Opcode::WriteZeroes, grant, offset(block), BLOCK as u64) {
                    Ok(()) => self.volumes.get_mut(&name).unwrap().blocks[block].push(0),
                    Err(status) => assert_eq!(status, Status::NoSpace),
                }
                "zeros"
            }
            13 => {
                let name = self.unused(random)?;
                machine.peer().create_thin(&name, "disk", CLUSTERS * CLUSTER);
                let made = self.made(vec![vec![0]; (CLUSTERS * PLACES) as usize], None, false);
                self.volumes.insert(name, made);
                "create"
            }
            14..17 => {
                let (volume, name) = (self.some(random, |volume| !volume.is_snapshot)?, self.unused(random)?);
                machine.peer().snapshot(&volume, &name).unwrap();
                self.flushed();
                let made = self.made(self.volumes[&volume].blocks.clone(), Some(volume), true);
                self.volumes.insert(name, made);
                "snapshot"
            }
            17 => {
                let (snapshot, name) =
                    (self.some(random, |volume| volume.is_snapshot)?, self.unused(random)?);
                machine.peer().clone_snapshot(&snapshot, &name).unwrap();
                let made = self.made(self.volumes[&snapshot].blocks.clone(), Some(snapshot), false);
                self.volumes.insert(name, made);
                "clone"
            }
            18 => {
                let (volume, snapshot) = self.with_snapshot(random)?;
                machine.close(&volume);
                machine.peer().rollback(&volume, &snapshot).unwrap();
                self.volumes.get_mut(&volume).unwrap().blocks = self.volumes[&snapshot].blocks.clone();
                "rollback"
            }
            19 => {
                let name = self.some(random, |_| true)?;
                machine.close(&name);
                machine.peer().remove(&name).unwrap();
                self.volumes.remove(&name);
                "remove"
            }
            _ => {
                let name = self.some(random, |_| true)?;
                let grant = machine.grant(&name, &self.volumes[&name]);
                let block = random.below(CLUSTERS * PLACES) as usize;
                let version = *self.volumes[&name].blocks[block].last().unwrap();
                let found = machine.read(grant, block);
                assert!(found == contents(version), "block {block} of {name} is not version {version}");
                "read"
            }
        };
        self.count(kind)
    }

    fn count(&mut self, kind: &'static str) -> Option<()> {
        *self.done.entry(kind).or_default() += 1;
        Some(())
    }

    /// Begins writes and an operation of an administrator, and does not wait for them.
    fn begin(&mut self, machine: &mut Machine, random: &mut Random) -> Pending {
        let (kind, pending) = match random.below(6) {
            0 | 1 => match (self.some(random, |volume| !volume.is_snapshot), self.unused(random)) {
                (Some(volume), Some(name)) => {
                    let ask = ControlRequest::Snapshot { volume: volume.clone(), name: name.clone() };
                    let made = self.made(Vec::new(), Some(volume), true);
                    (Some(ask), Pending::Made { name, volume: made })
                }
                _ => (None, Pending::Nothing),
            },
            2 => match (self.some(random, |volume| volume.is_snapshot), self.unused(random)) {
                (Some(snapshot), Some(name)) => {
                    let ask = ControlRequest::Clone { snapshot: snapshot.clone(), name: name.clone() };
                    let made = self.made(self.volumes[&snapshot].blocks.clone(), Some(snapshot), false);
                    (Some(ask), Pending::Made { name, volume: made })
                }
                _ => (None, Pending::Nothing),
            },
            3 => match self.with_snapshot(random) {
                Some((volume, snapshot)) => {
                    machine.close(&volume);
                    let to = self.volumes[&snapshot].blocks.clone();
                    let ask = ControlRequest::Rollback { volume: volume.clone(), snapshot };
                    (Some(ask), Pending::RolledBack { name: volume, to })
                }
                None => (None, Pending::Nothing),
            },
            4 => match self.some(random, |_| true) {
                Some(name) => {
                    machine.close(&name);
                    (Some(ControlRequest::Remove { volume: name.clone() }), Pending::Removed { name })
                }
                None => (None, Pending::Nothing),
            },
            _ => (None, Pending::Nothing),
        };
        let is_apart = |name: &str| match &pending {
            Pending::RolledBack { name: other, .. } | Pending::Removed { name: other } => name != other,
            _ => true,
        };
        // The grants are opened before, since the administrator's answer is not waited for.
        let names: Vec<String> = self.volumes.keys().filter(|name| is_apart(name)).cloned().collect();
        for name in names.iter().filter(|name| !self.volumes[*name].is_snapshot) {
            machine.grant(name, &self.volumes[name]);
        }
        let writes = |model: &mut Model, machine: &mut Machine, random: &mut Random, count: u64| {
            for _ in 0..count {
                let Some(name) =
                    model.some(random, |volume| !volume.is_snapshot).filter(|name| is_apart(name))
                else {
                    continue;
                };
                let grant = machine.grants[&name];
                let block = random.below(CLUSTERS * PLACES) as usize;
                model.versions += 1;
                let channel = machine.peer().channel.as_mut().unwrap();
                let mut buffer = channel.alloc(BLOCK).unwrap();
                buffer.write(0, &contents(model.versions));
                let at = [grant, offset(block), BLOCK as u64, 0, 0, 0];
                channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
                model.volumes.get_mut(&name).unwrap().blocks[block].push(model.versions);
            }
        };
        let count = random.below(12);
        writes(self, machine, random, count);
        if let Some(ask) = kind {
            machine.peer().messages.send(&ask.to_bytes().unwrap(), &[], Duration::from_secs(5)).unwrap();
        }
        let count = random.below(6);
        writes(self, machine, random, count);
        // What was written before or meanwhile may be in the snapshot.
        match pending {
            Pending::Made { name, volume } if volume.is_snapshot => {
                let (origin, _) = volume.origin.clone().unwrap();
                let blocks = self.volumes[&origin].blocks.clone();
                Pending::Made { name, volume: Volume { blocks, ..volume } }
            }
            pending => pending,
        }
    }

    /// Checks all volumes after a power cut, and takes over what they contain.
    fn check(&mut self, machine: &mut Machine, pending: Pending, said: &str) {
        let names = machine.peer().volumes();
        let is_there = |name: &str| names.iter().any(|volume| volume.name == name);
        let mut rolled_back = None;
        match pending {
            Pending::Made { name, volume } if is_there(&name) => {
                self.volumes.insert(name, volume);
            }
            Pending::Removed { name } if !is_there(&name) => drop(self.volumes.remove(&name)),
            Pending::RolledBack { name, to } => rolled_back = Some((name, to)),
            _ => {}
        }
        assert!(names.iter().map(|volume| &volume.name).eq(self.volumes.keys()), "{said}: {names:?}");
        for (name, volume) in &mut self.volumes {
            let grant = machine.grant(name, volume);
            let found: Vec<Vec<u8>> =
                (0..volume.blocks.len()).map(|block| machine.read(grant, block)).collect();
            let version_of = |found: &[u8], versions: &[u64]| {
                versions.iter().copied().find(|version| found == contents(*version))
            };
            let all_of = |blocks: &[Vec<u64>]| {
                found
                    .iter()
                    .zip(blocks)
                    .map(|(found, versions)| version_of(found, versions))
                    .collect::<Option<Vec<_>>>()
            };
            // A volume that was being rolled back is as before, or all of it is the snapshot's.
            let to = rolled_back.as_ref().filter(|(other, _)| other == name).map(|(_, to)| to);
            let Some(versions) = all_of(&volume.blocks).or_else(|| to.and_then(|to| all_of(to))) else {
                let wrong =
                    found.iter().zip(&volume.blocks).position(|(found, of)| version_of(found, of).is_none());
                panic!(
                    "{said}: {name} is not as before or after: block {wrong:?}: {volume:?}, rolled back to {to:?}"
                );
            };
            volume.blocks = versions.into_iter().map(|version| vec![version]).collect();
        }
    }
}

#[test]
fn as_the_model_after_power_cuts() {
    let mut random = Random::seeded("as_the_model_after_power_cuts");
    let mut model = Model::default();
    let mut machine = Machine::start(memory(), Vec::new(), NewBlocks::Cleared, random.number());
    let mut changed = 0;
    for round in 0..rounds(40) {
        for _ in 0..random.below(60) {
            model.step(&mut machine, &mut random);
        }
        if random.below(6) == 0 {
            machine = machine.restart(&mut random);
            // The server has flushed the devices.
            model.flushed();
            model.check(&mut machine, Pending::Nothing, &format!("round {round}, restarted"));
            continue;
        }
        let pending = model.begin(&mut machine, &mut random);
        std::thread::sleep(Duration::from_micros(random.below(4000)));
        changed += u32::from(!matches!(pending, Pending::Nothing));
        let said = format!("round {round}, {pending:?}");
        machine = machine.cut(&mut random);
        model.check(&mut machine, pending, &said);
    }
    eprintln!("{:?}, {changed} operations of administrators were cut", model.done);
    assert!(changed > 0 && model.done.len() == 11, "something never happened: {:?}", model.done);
    // Nothing is lost, and nothing of the volumes appears in another one.
    let names: Vec<String> = model.volumes.keys().cloned().collect();
    for name in names {
        machine.close(&name);
        machine.peer().remove(&name).unwrap();
    }
    machine.peer().create("all", "disk", BYTES);
    let grant = machine.peer().open("all", Access::Read).unwrap().grant;
    for cluster in 0..BYTES / CLUSTER {
        let read = machine.peer().read(grant, cluster * CLUSTER, CLUSTER as usize).unwrap();
        assert!(read.iter().all(|byte| *byte == 0), "cluster {cluster}");
    }
    drop(machine.folder);
}
