//! Snapshots and clones of thin volumes, and rolling back: what is shared is copied before it is written, and nobody sees
//! another one's contents.
//!
//! Failures that this looks for: a snapshot changes, or has a write of after it and lacks one of before; a write to a shared
//! cluster appears in another volume, or destroys what is around it; blocks that a snapshot has are given to another volume;
//! a device that is full, slow or fails loses something.

use crate::device::{BYTES, SharedDevice, memory, over};
use crate::peer::{LIMIT, Peer, Served, pattern};
use bywash_channel::Submission;
use bywash_device::Operation;
use bywash_device::testing::{FaultEffect, Faulty};
use bywash_protocol::layout::{FUA, GrantRange, Opcode, Status};
use bywash_protocol::{Access, ControlRequest, Refusal, RefusalKind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Size in which small thin volumes allocate, in bytes.
const CLUSTER: u64 = 256 << 10;

impl Peer {
    pub fn snapshot(&self, volume: &str, name: &str) -> Result<(), Refusal> {
        self.ask(ControlRequest::Snapshot { volume: volume.into(), name: name.into() }).map(drop)
    }

    pub fn clone_snapshot(&self, snapshot: &str, name: &str) -> Result<(), Refusal> {
        self.ask(ControlRequest::Clone { snapshot: snapshot.into(), name: name.into() }).map(drop)
    }

    pub fn rollback(&self, volume: &str, snapshot: &str) -> Result<(), Refusal> {
        self.ask(ControlRequest::Rollback { volume: volume.into(), snapshot: snapshot.into() }).map(drop)
    }

    pub fn remove(&self, volume: &str) -> Result<(), Refusal> {
        self.ask(ControlRequest::Remove { volume: volume.into() }).map(drop)
    }
}

fn thin(peer: &Peer, volume: &str, bytes: u64) -> u64 {
    peer.create_thin(volume, "disk", bytes);
    peer.open(volume, Access::ReadWrite).unwrap().grant
}

/// Returns what a volume has on its device, and the part that it shares, in clusters.
fn space(peer: &Peer, volume: &str) -> (u64, u64) {
    let found = peer.volume(volume);
    (found.allocated.unwrap() / CLUSTER, found.shared.unwrap() / CLUSTER)
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let served = Served::file(16 << 20);
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", 1 << 26);
    let data = pattern(1, 4 * CLUSTER as usize);
    peer.write(grant, 0, &data).unwrap();
    peer.snapshot("thin", "monday").unwrap();
    assert_eq!((space(&peer, "thin"), space(&peer, "monday")), ((4, 4), (4, 4)));
    // The grant is the same, and what was written before is there.
    assert_eq!(peer.read(grant, 0, data.len()).unwrap(), data);
    // A write in the middle of a cluster, across two, and one where nothing was.
    peer.write(grant, 8192, &pattern(2, 4096)).unwrap();
    peer.write(grant, 3 * CLUSTER - 4096, &pattern(3, 8192)).unwrap();
    peer.write(grant, 9 * CLUSTER, &pattern(4, 4096)).unwrap();
    assert_eq!((space(&peer, "thin"), space(&peer, "monday")), ((5, 1), (4, 1)));
    let mut expected = data.clone();
    expected[8192..12288].copy_from_slice(&pattern(2, 4096));
    let across = 3 * CLUSTER as usize - 4096;
    expected[across..across + 8192].copy_from_slice(&pattern(3, 8192));
    assert_eq!(peer.read(grant, 0, data.len()).unwrap(), expected);
    let monday = peer.open("monday", Access::Read).unwrap();
    assert_eq!(monday.bytes, 1 << 26);
    assert_eq!(peer.read(monday.grant, 0, data.len()).unwrap(), data);
    assert_eq!(peer.read(monday.grant, 9 * CLUSTER, 4096).unwrap(), vec![0; 4096]);
    let report = peer.volume("monday");
    assert!(report.is_snapshot && report.read_only && report.origin.as_deref() == Some("thin"));
    // Space that two have counts once: 4 of the snapshot, 3 copies and 1 new cluster.
    assert_eq!(served.status().devices[0].thin_allocated, 8 * CLUSTER);
    // A clone begins with the snapshot's contents, and goes its own way.
    peer.clone_snapshot("monday", "trial").unwrap();
    let trial = peer.open("trial", Access::ReadWrite).unwrap().grant;
    assert_eq!(peer.read(trial, 0, data.len()).unwrap(), data);
    peer.plain(Opcode::WriteZeroes, trial, 0, CLUSTER).unwrap();
    peer.plain(Opcode::Discard, trial, CLUSTER, CLUSTER).unwrap();
    // Part of a cluster that is shared is not discarded on the device.
    peer.plain(Opcode::Discard, trial, 2 * CLUSTER, 4096).unwrap();
    assert_eq!(peer.read(trial, 0, 2 * CLUSTER as usize).unwrap(), vec![0; 2 * CLUSTER as usize]);
    assert_eq!(peer.read(monday.grant, 0, data.len()).unwrap(), data);
    assert_eq!(space(&peer, "trial"), (3, 2));
    let report = peer.volume("trial");
    assert!(!report.is_snapshot && !report.read_only && report.origin.as_deref() == Some("monday"));
    // The origin goes; its snapshot and the clone stay, and what only it had is given to others.
    peer.remove("thin").unwrap();
    assert_eq!(peer.volume("monday").origin, None);
    assert_eq!(space(&peer, "monday"), (4, 2));
    peer.create("thick", "disk", 9 << 20);
    let thick = peer.open("thick", Access::ReadWrite).unwrap().grant;
    for mebibyte in 0..9 {
        peer.write(thick, mebibyte << 20, &vec![0xee; 1 << 20]).unwrap();
    }
    assert_eq!(peer.read(monday.grant, 0, data.len()).unwrap(), data);
    assert_eq!(peer.read(trial, 2 * CLUSTER, 2 * CLUSTER as usize).unwrap(), data[2 * CLUSTER as usize..]);
    peer.remove("monday").unwrap();
    assert_eq!(space(&peer, "trial"), (3, 0));
    // What was shared is the clone's alone now, and is written without a copy.
    peer.write(trial, 3 * CLUSTER, &pattern(5, 4096)).unwrap();
    assert_eq!(space(&peer, "trial"), (3, 0));
    assert_eq!(
        peer.read(trial, 2 * CLUSTER, CLUSTER as usize).unwrap(),
        data[2 * CLUSTER as usize..][..CLUSTER as usize]
    );
    peer.remove("trial").unwrap();
    assert_eq!(served.status().devices[0].thin_allocated, 0);
}

#[test]
fn a_volume_is_rolled_back() {
    let served = Served::file(16 << 20);
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", 1 << 22);
    peer.write(grant, CLUSTER, &pattern(1, 8192)).unwrap();
    peer.snapshot("thin", "before").unwrap();
    peer.write(grant, CLUSTER, &pattern(2, 8192)).unwrap();
    peer.write(grant, 5 * CLUSTER, &pattern(3, 4096)).unwrap();
    peer.ask(ControlRequest::Resize { volume: "thin".into(), bytes: 1 << 30 }).unwrap();
    // Whoever writes would go on as if its writes were there.
    let refused = peer.rollback("thin", "before").unwrap_err();
    assert_eq!(refused.code, RefusalKind::Limit);
    assert!(refused.message.contains("open for writing by client"), "{}", refused.message);
    peer.ask(ControlRequest::Close { grant }).unwrap();
    let reading = peer.open("thin", Access::Read).unwrap().grant;
    peer.rollback("thin", "before").unwrap();
    assert_eq!(peer.read(reading, CLUSTER, 4096), Err(Status::Revoked));
    let again = peer.open("thin", Access::ReadWrite).unwrap();
    assert_eq!(again.bytes, 1 << 22);
    assert_eq!(peer.read(again.grant, CLUSTER, 8192).unwrap(), pattern(1, 8192));
    assert_eq!(peer.read(again.grant, 5 * CLUSTER, 4096).unwrap(), vec![0; 4096]);
    // Again and again, without losing the snapshot.
    for round in 0..3 {
        let grant = peer.open("thin", Access::ReadWrite).unwrap().grant;
        peer.write(grant, CLUSTER + 4096, &pattern(10 + round, 4096)).unwrap();
        peer.ask(ControlRequest::Revoke { volume: "thin".into() }).unwrap();
        peer.rollback("thin", "before").unwrap();
        assert_eq!((space(&peer, "thin"), space(&peer, "before")), ((1, 1), (1, 1)));
    }
    let before = peer.open("before", Access::Read).unwrap().grant;
    assert_eq!(peer.read(before, CLUSTER, 8192).unwrap(), pattern(1, 8192));
}

#[test]
fn what_snapshots_refuse() {
    let served = Served::file(16 << 20);
    let peer = served.peer();
    peer.create("thick", "disk", 1 << 20);
    peer.create_thin("thin", "disk", 1 << 24);
    peer.create_thin("other", "disk", 1 << 24);
    peer.snapshot("thin", "snapshot").unwrap();
    let text = |refused: Result<(), Refusal>, code, words: &str| {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, code, "{}", refused.message);
        assert!(refused.message.contains(words), "{}", refused.message);
    };
    text(peer.snapshot("thick", "new"), RefusalKind::Unfit, "not thin");
    text(peer.snapshot("none", "new"), RefusalKind::Missing, "'none'");
    text(peer.snapshot("thin", "other"), RefusalKind::Exists, "'other'");
    text(peer.snapshot("thin", "no/name"), RefusalKind::Unfit, "cannot be a name");
    text(peer.snapshot("snapshot", "new"), RefusalKind::Unfit, "is a snapshot");
    text(peer.clone_snapshot("thin", "new"), RefusalKind::Unfit, "not a snapshot");
    text(peer.clone_snapshot("snapshot", "thin"), RefusalKind::Exists, "'thin'");
    text(peer.rollback("other", "snapshot"), RefusalKind::Unfit, "not a snapshot of volume 'other'");
    text(peer.rollback("snapshot", "snapshot"), RefusalKind::Unfit, "stays as it is");
    text(peer.rollback("thin", "other"), RefusalKind::Unfit, "not a snapshot");
    let resize = ControlRequest::Resize { volume: "snapshot".into(), bytes: 1 << 30 };
    text(peer.ask(resize).map(drop), RefusalKind::Unfit, "keeps its size");
    let (owner, group, mode, read_only) = (None, None, Some(0o666), Some(false));
    let volume = "snapshot".to_owned();
    let permit = ControlRequest::SetOwnership { volume: volume.clone(), owner, group, mode, read_only };
    text(peer.ask(permit).map(drop), RefusalKind::Unfit, "nobody can write");
    let permit = ControlRequest::SetOwnership { volume, owner, group, mode, read_only: None };
    peer.ask(permit).unwrap();
    let refused = peer.open("snapshot", Access::ReadWrite).unwrap_err();
    assert_eq!(refused.code, RefusalKind::Denied);
    // The volume is written as before.
    assert!(peer.open("thin", Access::ReadWrite).is_ok());
}

/// Thin volumes of memory have snapshots, too. Nobody can map any of them.
#[test]
fn memory_devices_have_snapshots() {
    let served = Served::memory();
    let mut peer = served.peer().with_channel();
    peer.create_thin("thin", "fast", 1 << 28);
    let grant = peer.open("thin", Access::ReadWrite).unwrap().grant;
    let cluster = peer.volume("thin").cluster.unwrap();
    peer.write(grant, 0, &pattern(1, 8192)).unwrap();
    for round in 0..6u64 {
        let name = format!("snapshot-{round}");
        peer.snapshot("thin", &name).unwrap();
        peer.write(grant, 4096, &pattern(10 + round, 4096)).unwrap();
        let granted = peer.open(&name, Access::Read).unwrap();
        assert!(granted.unmappable_reason.unwrap().contains("thin"));
        let read = peer.read(granted.grant, 0, 8192).unwrap();
        let second = if round == 0 { pattern(1, 8192)[4096..].to_vec() } else { pattern(9 + round, 4096) };
        assert_eq!((&read[..4096], &read[4096..]), (&pattern(1, 8192)[..4096], &second[..]));
        if round >= 2 {
            peer.remove(&format!("snapshot-{}", round - 2)).unwrap();
        }
    }
    assert_eq!(peer.read(grant, 8192, cluster as usize - 8192).unwrap(), vec![0; cluster as usize - 8192]);
}

/// A snapshot of a volume that several clients write has the contents of one instant: all that was acknowledged before it,
/// none that was submitted after it, and of two writes, of which the later one waited for the earlier one, the earlier one if
/// it has the later.
#[test]
fn a_snapshot_is_of_one_instant() {
    const WRITERS: usize = 3;
    const PLACES: u64 = 5;
    let served = Served::file(64 << 20);
    let admin = served.peer();
    admin.create_thin("thin", "disk", 1 << 28);
    let (acknowledged, submitted) =
        ([(); WRITERS].map(|()| AtomicU64::new(0)), [(); WRITERS].map(|()| AtomicU64::new(0)));
    let is_over = AtomicBool::new(false);
    // The places of one writer are in several clusters, and share them with those of others.
    let place = |writer: usize, place: u64| place * CLUSTER + writer as u64 * 4096;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (served, acknowledged, submitted, is_over) = (&served, &acknowledged, &submitted, &is_over);
            scope.spawn(move || {
                let mut peer = served.peer().with_channel();
                let grant = peer.open("thin", Access::ReadWrite).unwrap().grant;
                for version in 1.. {
                    if is_over.load(SeqCst) {
                        break;
                    }
                    submitted[writer].store(version, SeqCst);
                    for at in 0..PLACES {
                        let data = [version.to_le_bytes(); 512].concat();
                        peer.write(grant, place(writer, at), &data).unwrap();
                    }
                    acknowledged[writer].store(version, SeqCst);
                }
            });
        }
        let mut reader = served.peer().with_channel();
        for round in 0..15 {
            while acknowledged.iter().any(|version| version.load(SeqCst) < round) {
                std::thread::yield_now();
            }
            let before: Vec<u64> = acknowledged.iter().map(|version| version.load(SeqCst)).collect();
            let name = format!("snapshot-{round}");
            admin.snapshot("thin", &name).unwrap();
            let after: Vec<u64> = submitted.iter().map(|version| version.load(SeqCst)).collect();
            let grant = reader.open(&name, Access::Read).unwrap().grant;
            for look in 0..2 {
                for writer in 0..WRITERS {
                    let versions: Vec<u64> = (0..PLACES)
                        .map(|at| {
                            let read = reader.read(grant, place(writer, at), 4096).unwrap();
                            let words: Vec<u64> =
                                read.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
                            assert!(words.iter().all(|word| *word == words[0]), "a write is torn");
                            words[0]
                        })
                        .collect();
                    let (first, last) = (versions[0], versions[PLACES as usize - 1]);
                    let said = format!("round {round}, look {look}, writer {writer}: {versions:?}");
                    assert!(versions.is_sorted_by(|one, next| one >= next) && first - last <= 1, "{said}");
                    assert!(last >= before[writer] && first <= after[writer], "{said} {before:?} {after:?}");
                }
            }
            if round % 3 == 0 {
                admin.remove(&name).unwrap();
            }
        }
        is_over.store(true, SeqCst);
    });
}

/// When too little is left, a write to what is shared fails and changes nothing, and goes on when there is room.
#[test]
fn a_full_device_refuses_copies() {
    let served = Served::file(4 << 20);
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", 1 << 30);
    // Of 16 clusters 15 are given to thin volumes.
    let data = pattern(1, 10 * CLUSTER as usize);
    // Not in order, so that no cluster is allocated ahead.
    peer.write(grant, 5 * CLUSTER, &data[5 * CLUSTER as usize..]).unwrap();
    peer.write(grant, 0, &data[..5 * CLUSTER as usize]).unwrap();
    peer.snapshot("thin", "snapshot").unwrap();
    for cluster in 0..5 {
        peer.write(grant, cluster * CLUSTER + 512, &pattern(2, 512)).unwrap();
    }
    assert_eq!(peer.write(grant, 5 * CLUSTER, &[9; 512]), Err(Status::NoSpace));
    assert_eq!(peer.plain(Opcode::WriteZeroes, grant, 6 * CLUSTER, CLUSTER), Err(Status::NoSpace));
    assert!(served.status().devices[0].is_low);
    assert_eq!(
        peer.read(grant, 5 * CLUSTER, CLUSTER as usize).unwrap(),
        data[5 * CLUSTER as usize..][..CLUSTER as usize]
    );
    // What is the volume's alone is written.
    peer.write(grant, 4096, &pattern(3, 4096)).unwrap();
    // A request for more copies than there is room makes none.
    peer.plain(Opcode::Discard, grant, 0, CLUSTER).unwrap();
    assert_eq!(peer.plain(Opcode::WriteZeroes, grant, 5 * CLUSTER, 3 * CLUSTER), Err(Status::NoSpace));
    assert_eq!(space(&peer, "thin"), (9, 5));
    peer.write(grant, 5 * CLUSTER, &pattern(4, 512)).unwrap();
    assert_eq!(peer.write(grant, 6 * CLUSTER, &[9; 512]), Err(Status::NoSpace));
    // A snapshot is taken of a full device, too, and removing snapshots gives room.
    peer.snapshot("thin", "second").unwrap();
    assert_eq!(peer.write(grant, CLUSTER, &[9; 512]), Err(Status::NoSpace));
    peer.remove("snapshot").unwrap();
    peer.write(grant, CLUSTER, &pattern(5, 512)).unwrap();
    let second = peer.open("second", Access::Read).unwrap().grant;
    let mut expected = data.clone();
    expected[..CLUSTER as usize].fill(0);
    for cluster in 1..5 {
        expected[cluster * CLUSTER as usize + 512..][..512].copy_from_slice(&pattern(2, 512));
    }
    expected[5 * CLUSTER as usize..][..512].copy_from_slice(&pattern(4, 512));
    assert_eq!(peer.read(second, 0, 4 << 20).unwrap()[..data.len()], expected);
}

/// One request writes what is shared of two volumes, and what is not.
#[test]
fn a_request_may_have_several_copies() {
    let served = Served::file(16 << 20);
    let mut peer = served.peer().with_channel();
    let (one, other) = (thin(&peer, "one", 1 << 24), thin(&peer, "other", 1 << 24));
    peer.write(one, 0, &pattern(1, 2 * CLUSTER as usize)).unwrap();
    peer.write(other, 0, &pattern(2, 4096)).unwrap();
    peer.snapshot("one", "one-before").unwrap();
    peer.snapshot("other", "other-before").unwrap();
    peer.write(other, 4 * CLUSTER, &pattern(3, 4096)).unwrap();
    let places = [(one, CLUSTER - 4096), (other, 0), (other, 4 * CLUSTER), (other, 8 * CLUSTER)];
    let mut buffer = Vec::new();
    for (grant, offset) in places {
        buffer.extend(GrantRange { grant, offset, length: 8192 }.to_bytes());
    }
    let head = buffer.len();
    buffer.extend(pattern(4, 4 * 8192));
    let arguments = [places.len() as u64, 0, 0, 0, 0, 0];
    let (status, value, _) = peer.request(Opcode::WriteRanges as u8, FUA, arguments, Some(&buffer));
    assert_eq!((status, value), (Status::Success, 4 * 8192));
    for ((grant, offset), data) in places.into_iter().zip(buffer[head..].chunks(8192)) {
        assert_eq!(peer.read(grant, offset, 8192).unwrap(), data);
    }
    let before = peer.open("one-before", Access::Read).unwrap().grant;
    assert_eq!(peer.read(before, 0, 2 * CLUSTER as usize).unwrap(), pattern(1, 2 * CLUSTER as usize));
    let before = peer.open("other-before", Access::Read).unwrap().grant;
    assert_eq!(peer.read(before, 0, 4096).unwrap(), pattern(2, 4096));
    // A part that is compared and written is copied, too.
    let block = peer.open("one", Access::Read).unwrap().block as usize;
    peer.snapshot("one", "one-later").unwrap();
    let expected = peer.read(one, 0, block).unwrap();
    let both = [&expected[..], &pattern(6, block)].concat();
    peer.done(Opcode::CompareAndWrite, 0, [one, 0, block as u64, 0, 0, 0], Some(&both)).unwrap();
    let later = peer.open("one-later", Access::Read).unwrap().grant;
    assert_eq!(peer.read(later, 0, block).unwrap(), expected);
    assert_eq!(peer.read(one, 0, block).unwrap(), pattern(6, block));
}

/// A copy that fails on the device fails the write that needs it, and nothing else; the next attempt succeeds.
#[test]
fn a_copy_that_fails_changes_nothing() {
    let device = SharedDevice::over(memory(), 11);
    let served = over(&device, LIMIT);
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", BYTES);
    peer.write(grant, 0, &pattern(1, CLUSTER as usize)).unwrap();
    device.inject(Operation::Flush, FaultEffect::Fail(libc::EIO));
    let refused = peer.snapshot("thin", "snapshot").unwrap_err();
    assert!(refused.message.contains("cannot make the contents of 'thin' durable"), "{}", refused.message);
    peer.write(grant, 4096, &pattern(2, 4096)).unwrap();
    peer.snapshot("thin", "snapshot").unwrap();
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        device.inject(operation, FaultEffect::Fail(libc::EIO));
        assert_eq!(peer.write(grant, 8192, &[9; 512]), Err(Status::Failed), "{operation:?}");
        assert_eq!(space(&peer, "thin"), (1, 1));
    }
    let mut expected = pattern(1, CLUSTER as usize);
    expected[4096..8192].copy_from_slice(&pattern(2, 4096));
    assert_eq!(peer.read(grant, 0, CLUSTER as usize).unwrap(), expected);
    peer.write(grant, 8192, &pattern(3, 512)).unwrap();
    let snapshot = peer.open("snapshot", Access::Read).unwrap().grant;
    assert_eq!(peer.read(snapshot, 0, CLUSTER as usize).unwrap(), expected);
    expected[8192..8704].copy_from_slice(&pattern(3, 512));
    assert_eq!(peer.read(grant, 0, CLUSTER as usize).unwrap(), expected);
}

/// A copy takes long: reads of the cluster, and writes to others, go on meanwhile.
#[test]
fn a_copy_holds_up_only_writes_to_its_cluster() {
    let device = SharedDevice::over(memory(), 12);
    let served = over(&device, LIMIT);
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", BYTES);
    peer.write(grant, 0, &pattern(1, CLUSTER as usize)).unwrap();
    peer.snapshot("thin", "snapshot").unwrap();
    peer.write(grant, CLUSTER, &pattern(2, 4096)).unwrap();
    device.inject(Operation::Write, FaultEffect::Delay(Duration::from_millis(700)));
    let channel = peer.channel.as_mut().unwrap();
    let mut buffer = channel.alloc(512).unwrap();
    buffer.write(0, &pattern(3, 512));
    let at = [grant, 0, 512, 0, 0, 0];
    channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
    served.until("the copy is in flight", |status| status.devices[0].in_flight == 1);
    let mut other = served.peer().with_channel();
    let same = other.open("thin", Access::ReadWrite).unwrap().grant;
    for round in 0..10 {
        assert_eq!(other.read(same, 0, 4096).unwrap(), pattern(1, CLUSTER as usize)[..4096]);
        other.write(same, CLUSTER, &pattern(20 + round, 4096)).unwrap();
    }
    assert_eq!(served.status().devices[0].in_flight, 1, "the test was too slow");
    assert_eq!(peer.channel.as_mut().unwrap().reap_within(LIMIT).unwrap().status, 0);
    assert_eq!(peer.read(grant, 0, 512).unwrap(), pattern(3, 512));
    assert_eq!(peer.read(grant, 512, 512).unwrap(), pattern(1, 1024)[512..]);
}

/// A snapshot waits for a write that is in flight, and has it.
#[test]
fn a_snapshot_waits_for_writes_in_flight() {
    let device = SharedDevice::over(memory(), 13);
    let served = over(&device, LIMIT);
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", BYTES);
    peer.write(grant, 0, &pattern(1, 4096)).unwrap();
    device.inject(Operation::Write, FaultEffect::Delay(Duration::from_millis(400)));
    let channel = peer.channel.as_mut().unwrap();
    let mut buffer = channel.alloc(512).unwrap();
    buffer.write(0, &pattern(2, 512));
    let at = [grant, 0, 512, 0, 0, 0];
    channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
    served.until("it is in flight", |status| status.devices[0].in_flight == 1);
    let admin = served.peer();
    let mut other = served.peer().with_channel();
    let same = other.open("thin", Access::ReadWrite).unwrap().grant;
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| admin.snapshot("thin", "snapshot").unwrap());
        std::thread::sleep(Duration::from_millis(100));
        // Submitted behind the snapshot's instant: it waits, and is not in the snapshot.
        other.write(same, 512, &pattern(3, 512)).unwrap();
        taking.join().unwrap();
    });
    assert!(began.elapsed() > Duration::from_millis(200), "{:?}", began.elapsed());
    assert_eq!(peer.channel.as_mut().unwrap().reap_within(LIMIT).unwrap().status, 0);
    let snapshot = other.open("snapshot", Access::Read).unwrap().grant;
    assert_eq!(other.read(snapshot, 0, 512).unwrap(), pattern(2, 512));
    assert_eq!(other.read(snapshot, 512, 512).unwrap(), pattern(1, 1024)[512..]);
    assert_eq!(other.read(same, 0, 1024).unwrap(), [pattern(2, 512), pattern(3, 512)].concat());
}

/// A device is stuck with a copy: the client is told so, and the blocks of the copy are given to nobody until the device has
/// ended it.
#[test]
fn a_late_copy_lands_in_no_other_volume() {
    let device = SharedDevice::over(memory(), 14);
    let served = over(&device, Duration::from_millis(300));
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", BYTES);
    peer.write(grant, 0, &pattern(1, 4096)).unwrap();
    peer.snapshot("thin", "snapshot").unwrap();
    device.inject(Operation::Write, FaultEffect::Hold);
    assert_eq!(peer.write(grant, 0, &pattern(2, 512)), Err(Status::TimedOut));
    // The device goes on, but still has the write of the copy.
    let is_stuck = |status: &bywash_protocol::report::Status| status.devices[0].is_stuck;
    served.until("the device is stuck", is_stuck);
    let admin = served.peer();
    std::thread::scope(|scope| {
        // All that is free and to be cleared, without the blocks of the copy.
        let creating = scope.spawn(|| {
            let bytes = served.status().devices[0].free;
            admin.create_as("thick", "disk", bytes, 0, 0o600)
        });
        std::thread::sleep(Duration::from_millis(500));
        assert!(!creating.is_finished(), "the blocks of the copy were given away");
        device.with(Faulty::release);
        creating.join().unwrap().unwrap();
    });
    let thick = peer.open("thick", Access::Read).unwrap();
    for offset in (0..thick.bytes).step_by(1 << 18) {
        let length = (thick.bytes - offset).min(1 << 18) as usize;
        assert_eq!(peer.read(thick.grant, offset, length).unwrap(), vec![0; length], "{offset}");
    }
    let again = peer.open("thin", Access::Read).unwrap().grant;
    assert_eq!(peer.read(again, 0, 4096).unwrap(), pattern(1, 4096));
}

/// A device is stuck with the clearing of blocks: they are given to nobody until it has ended that, whoever tries again.
#[test]
fn blocks_that_are_cleared_late_are_given_to_nobody() {
    let device = SharedDevice::over(memory(), 15);
    let served = over(&device, Duration::from_millis(300));
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", BYTES);
    peer.write(grant, 0, &pattern(1, 14 * CLUSTER as usize)).unwrap();
    peer.plain(Opcode::Discard, grant, 0, 14 * CLUSTER).unwrap();
    device.inject(Operation::WriteZeroes, FaultEffect::Hold);
    // Two of sixteen clusters are free.
    let refused = peer.write(grant, 0, &pattern(2, 3 * CLUSTER as usize)).unwrap_err();
    assert!(matches!(refused, Status::TimedOut | Status::Failed), "{refused:?}");
    served.until("the device is stuck", |status| status.devices[0].is_stuck);
    let channel = peer.channel.as_mut().unwrap();
    let admin = served.peer();
    std::thread::scope(|scope| {
        let creating = scope.spawn(|| admin.create_as("thick", "disk", 8 * CLUSTER, 0, 0o600));
        std::thread::sleep(Duration::from_millis(500));
        assert!(!creating.is_finished(), "the blocks were given away");
        device.with(Faulty::release);
        creating.join().unwrap().unwrap();
    });
    assert!(channel.try_reap().unwrap().is_none());
    let thick = peer.open("thick", Access::Read).unwrap().grant;
    assert_eq!(peer.read(thick, 0, 8 * CLUSTER as usize).unwrap(), vec![0; 8 * CLUSTER as usize]);
}
