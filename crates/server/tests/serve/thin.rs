//! Thin volumes: blocks are allocated at the first write and given back by discards, whatever happens meanwhile.
//!
//! Failures that this looks for: a byte that was never written reads as another one than zero; two volumes have the
//! same block; a request waits for ever, or fails although there is room; what was durable is lost in a crash, or
//! another volume's data appears.
//!
//! `BYWASH_STRESS_ROUNDS` makes the random tests longer, and `BYWASH_STRESS_SEED` repeats a run.

use crate::device::{BYTES, SharedDevice, memory, over};
use crate::peer::{LIMIT, Peer, Served, pattern};
use crate::process::Serving;
use bywash_channel::Submission;
use bywash_device::Operation;
use bywash_device::testing::{Crash, FaultEffect};
use bywash_protocol::layout::{FUA, GrantRange, Opcode, Status};
use bywash_protocol::{Access, ControlRequest, RefusalKind};
use bywash_server::{NewBlocks, OpenDevice, Server};
use bywash_support::peers::{Random, rounds};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Size in which small thin volumes allocate, in bytes.
const CLUSTER: u64 = 256 << 10;

fn thin(peer: &Peer, volume: &str, device: &str, bytes: u64) -> u64 {
    peer.create_thin(volume, device, bytes);
    peer.open(volume, Access::ReadWrite).unwrap().grant
}

fn allocated(peer: &Peer, volume: &str) -> u64 {
    peer.volume(volume).allocated.unwrap()
}

#[test]
fn blocks_are_allocated_at_the_first_write() {
    let served = Served::file(16 << 20);
    let mut peer = served.peer().with_channel();
    // Larger than the device.
    let grant = thin(&peer, "thin", "disk", (1 << 30) + 1);
    let made = peer.volume("thin");
    assert_eq!((made.bytes, made.cluster, made.allocated), ((1 << 30) + CLUSTER, Some(CLUSTER), Some(0)));
    assert_eq!(peer.read(grant, 4096, 1 << 20).unwrap(), vec![0; 1 << 20]);
    peer.plain(Opcode::WriteZeroes, grant, 0, 1 << 20).unwrap();
    peer.plain(Opcode::Discard, grant, 0, 1 << 20).unwrap();
    peer.plain(Opcode::Flush, grant, 0, 0).unwrap();
    assert_eq!(allocated(&peer, "thin"), 0);
    // Another client has the volume open already, and sees what is written.
    let mut other = served.peer().with_channel();
    let same = other.open("thin", Access::Read).unwrap().grant;
    let at = (1 << 29) + 2 * CLUSTER - 4096;
    peer.write(grant, at, &pattern(1, 8192)).unwrap();
    assert_eq!(allocated(&peer, "thin"), 2 * CLUSTER);
    let around = other.read(same, at - CLUSTER, 3 * CLUSTER as usize).unwrap();
    let (before, behind) = (CLUSTER as usize, CLUSTER as usize + 8192);
    assert_eq!(around[before..behind], pattern(1, 8192));
    assert!(around[..before].iter().chain(&around[behind..]).all(|byte| *byte == 0));
    assert_eq!(other.write(same, at, &[1; 512]), Err(Status::AccessDenied));
    // Comparing needs the block.
    let both = [&[0; 4096][..], &pattern(3, 4096)].concat();
    let wrong = [&[1; 4096][..], &pattern(3, 4096)].concat();
    let place = [grant, 8 * CLUSTER, 4096, 0, 0, 0];
    if peer.open("thin", Access::Read).unwrap().block == 4096 {
        assert_eq!(peer.done(Opcode::CompareAndWrite, 0, place, Some(&wrong)), Err(Status::Mismatch));
        peer.done(Opcode::CompareAndWrite, FUA, place, Some(&both)).unwrap();
        assert_eq!(peer.read(grant, 8 * CLUSTER, 4096).unwrap(), pattern(3, 4096));
    }
    assert_eq!(peer.read(grant, 1 << 30, 2 * CLUSTER as usize), Err(Status::OutOfBounds));
    let status = served.status();
    let device = &status.devices[0];
    assert_eq!((device.thin, device.thin_allocated), (made.bytes, allocated(&peer, "thin")));
    assert_eq!(device.thin_left, device.free - 272 * 1024, "a part of 17 MiB is kept");
    assert!(!device.is_low);
}

#[test]
fn a_request_may_touch_several_thin_volumes_and_others() {
    let served = Served::file(16 << 20);
    let mut peer = served.peer().with_channel();
    peer.create("thick", "disk", 1 << 20);
    let thick = peer.open("thick", Access::ReadWrite).unwrap().grant;
    let (one, other) = (thin(&peer, "one", "disk", 1 << 24), thin(&peer, "other", "disk", 1 << 24));
    peer.write(one, CLUSTER, &pattern(9, 4096)).unwrap();
    let places = [(thick, 4096), (one, CLUSTER - 4096), (other, 5 * CLUSTER), (one, 9 * CLUSTER)];
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
    assert_eq!((allocated(&peer, "one"), allocated(&peer, "other")), (3 * CLUSTER, CLUSTER));
    buffer[head..].fill(7);
    let (status, _, read) = peer.request(Opcode::ReadRanges as u8, 0, arguments, Some(&buffer));
    assert_eq!((status, &read[head..]), (Status::Success, &pattern(4, 4 * 8192)[..]));
}

#[test]
fn what_is_discarded_is_given_back_and_reads_as_zeros() {
    let served = Served::file(16 << 20);
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", "disk", 1 << 26);
    let data = pattern(1, 4 * CLUSTER as usize);
    peer.write(grant, 0, &data).unwrap();
    assert_eq!(allocated(&peer, "thin"), 4 * CLUSTER);
    // Two whole clusters, and parts of two others.
    peer.plain(Opcode::Discard, grant, CLUSTER - 4096, 2 * CLUSTER + 8192).unwrap();
    assert_eq!(allocated(&peer, "thin"), 2 * CLUSTER);
    let read = peer.read(grant, 0, 4 * CLUSTER as usize).unwrap();
    let cluster = CLUSTER as usize;
    assert_eq!(read[..cluster - 4096], data[..cluster - 4096]);
    assert!(read[cluster..3 * cluster].iter().all(|byte| *byte == 0));
    assert_eq!(read[3 * cluster + 4096..], data[3 * cluster + 4096..]);
    // What is written again is allocated again, and the rest of the cluster is zeros.
    peer.write(grant, CLUSTER + 4096, &pattern(2, 4096)).unwrap();
    let read = peer.read(grant, CLUSTER, cluster).unwrap();
    assert_eq!(read[4096..8192], pattern(2, 4096));
    assert!(read[..4096].iter().chain(&read[8192..]).all(|byte| *byte == 0));
    // Part of a cluster gives nothing back.
    peer.plain(Opcode::Discard, grant, 4096, CLUSTER - 4096).unwrap();
    assert_eq!(allocated(&peer, "thin"), 3 * CLUSTER);
    peer.plain(Opcode::Discard, grant, 0, 1 << 26).unwrap();
    assert_eq!(allocated(&peer, "thin"), 0);
}

/// Requests without data reach over many clusters, each with an extent of its own.
#[test]
fn a_scattered_volume_is_zeroed_and_discarded_at_once() {
    let served = Served::file(64 << 20);
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", "disk", 1 << 30);
    for cluster in 0..150 {
        peer.write(grant, cluster * 2 * CLUSTER, &pattern(cluster, 4096)).unwrap();
    }
    assert_eq!(peer.read(grant, 0, 4 << 20).map(|read| read.len()), Ok(4 << 20));
    peer.plain(Opcode::WriteZeroes, grant, 0, 1 << 30).unwrap();
    assert_eq!(allocated(&peer, "thin"), 150 * CLUSTER);
    assert_eq!(peer.read(grant, 298 * CLUSTER, 4096).unwrap(), vec![0; 4096]);
    peer.plain(Opcode::Discard, grant, 4096, (1 << 30) - 4096).unwrap();
    assert_eq!(allocated(&peer, "thin"), CLUSTER);
}

#[test]
fn a_full_device_refuses_new_blocks_only() {
    let served = Served::file(4 << 20);
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", "disk", 1 << 30);
    let written =
        (0..64).take_while(|cluster| match peer.write(grant, cluster * CLUSTER, &pattern(*cluster, 4096)) {
            Ok(()) => true,
            Err(status) => {
                assert_eq!(status, Status::NoSpace);
                false
            }
        });
    // Of 5 MiB with the label, 80 KiB are kept, so one of 16 clusters is not given.
    let written = written.count() as u64;
    assert_eq!((written, allocated(&peer, "thin")), (15, 15 * CLUSTER));
    let device = &served.status().devices[0];
    assert!(device.is_low && device.free >= CLUSTER && device.thin_left < CLUSTER, "{device:?}");
    // What is there can be read and written, and a request that needs a block more changes nothing.
    peer.write(grant, 3 * CLUSTER, &pattern(99, 8192)).unwrap();
    assert_eq!(peer.write(grant, written * CLUSTER - 4096, &[1; 8192]), Err(Status::NoSpace));
    assert_eq!(peer.read(grant, written * CLUSTER - 4096, 8192).unwrap(), vec![0; 8192]);
    assert_eq!(peer.read(grant, 3 * CLUSTER, 8192).unwrap(), pattern(99, 8192));
    // Administrators can still create a volume with what is kept.
    peer.create("thick", "disk", CLUSTER);
    // Room is made in the thin volume itself.
    peer.plain(Opcode::Discard, grant, 0, 2 * CLUSTER).unwrap();
    peer.write(grant, 40 * CLUSTER, &pattern(40, 4096)).unwrap();
    assert_eq!(
        peer.read(grant, 40 * CLUSTER, CLUSTER as usize).unwrap()[4096..],
        vec![0; CLUSTER as usize - 4096]
    );
    assert_eq!(peer.write(grant, 41 * CLUSTER, &[1; 4096]), Err(Status::NoSpace));
    assert_eq!(peer.read(grant, 0, CLUSTER as usize).unwrap(), vec![0; CLUSTER as usize]);
}

/// When the device is nearly full, small requests are served although a large one beside them is not.
#[test]
fn a_large_request_takes_no_small_one_with_it() {
    let served = Served::file(4 << 20);
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", "disk", 1 << 30);
    peer.write(grant, 0, &pattern(0, 3 << 20)).unwrap();
    let channel = peer.channel.as_mut().unwrap();
    for (number, length) in [(100u64, 4096), (200, 2 << 20), (300, 4096)] {
        let buffer = channel.alloc(length).unwrap();
        let at = [grant, number * CLUSTER, length as u64, 0, 0, 0];
        let submission = Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer);
        channel.submit(submission.user_data(number)).unwrap();
    }
    for _ in 0..3 {
        let done = channel.reap_within(LIMIT).unwrap();
        let expected = if done.user_data == 200 { Status::NoSpace } else { Status::Success };
        assert_eq!(Status::from_number(done.status), Some(expected), "{}", done.user_data);
    }
}

#[test]
fn memory_devices_have_thin_volumes_that_are_not_mapped() {
    let served = Served::memory();
    let mut peer = served.peer().with_channel();
    peer.create_thin("thin", "fast", 1 << 30);
    let granted = peer.open("thin", Access::ReadWrite).unwrap();
    assert!(granted.unmappable_reason.unwrap().contains("thin"));
    let refused = peer.ask(ControlRequest::Map { grant: granted.grant, from: 0 }).unwrap_err();
    assert_eq!(refused.code, RefusalKind::Unfit);
    let cluster = peer.volume("thin").cluster.unwrap();
    peer.write(granted.grant, cluster - 4096, &pattern(1, 8192)).unwrap();
    assert_eq!(allocated(&peer, "thin"), 2 * cluster);
    peer.plain(Opcode::Discard, granted.grant, 0, 2 * cluster).unwrap();
    assert_eq!(allocated(&peer, "thin"), 0);
    assert_eq!(peer.read(granted.grant, cluster - 4096, 8192).unwrap(), vec![0; 8192]);
    // Again and again, so that blocks of before are given again.
    for round in 0..20 {
        peer.write(granted.grant, round * cluster, &pattern(round, 4096)).unwrap();
        let read = peer.read(granted.grant, round * cluster, 8192).unwrap();
        assert_eq!((&read[..4096], &read[4096..]), (&pattern(round, 4096)[..], &[0; 4096][..]));
        peer.plain(Opcode::Discard, granted.grant, round * cluster, cluster).unwrap();
    }
}

#[test]
fn a_thin_volume_is_resized_renamed_and_removed() {
    let served = Served::file(16 << 20);
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", "disk", 1 << 22);
    peer.write(grant, 0, &pattern(1, 1 << 22)).unwrap();
    peer.ask(ControlRequest::Rename { volume: "thin".into(), to: "slim".into() }).unwrap();
    peer.ask(ControlRequest::Resize { volume: "slim".into(), bytes: 1 << 30 }).unwrap();
    // The grant keeps its size, and its volume is still allocated.
    assert_eq!(peer.write(grant, 1 << 22, &[1; 512]), Err(Status::OutOfBounds));
    let larger = peer.open("slim", Access::ReadWrite).unwrap();
    assert_eq!(larger.bytes, 1 << 30);
    peer.write(larger.grant, 1 << 29, &pattern(2, 4096)).unwrap();
    peer.plain(Opcode::Discard, grant, 0, CLUSTER).unwrap();
    peer.write(grant, 0, &pattern(3, 4096)).unwrap();
    assert_eq!(peer.read(larger.grant, 0, 4096).unwrap(), pattern(3, 4096));
    assert_eq!(allocated(&peer, "slim"), (1 << 22) + CLUSTER);
    peer.ask(ControlRequest::Resize { volume: "slim".into(), bytes: 1 << 20 }).unwrap();
    assert_eq!(peer.read(larger.grant, 0, 512), Err(Status::Revoked));
    assert_eq!(allocated(&peer, "slim"), 1 << 20);
    let grant = peer.open("slim", Access::ReadWrite).unwrap().grant;
    assert_eq!(peer.read(grant, 0, 4096).unwrap(), pattern(3, 4096));
    peer.ask(ControlRequest::Remove { volume: "slim".into() }).unwrap();
    // All of the device is there for another volume, and is cleared first.
    peer.create("thick", "disk", 16 << 20);
    let grant = peer.open("thick", Access::Read).unwrap().grant;
    for mebibyte in 0..16 {
        assert_eq!(peer.read(grant, mebibyte << 20, 1 << 20).unwrap(), vec![0; 1 << 20]);
    }
}

/// Revocation waits for a request that waits for its block, and neither waits for ever.
#[test]
fn what_waits_for_a_block_is_drained() {
    let served = Served::file(64 << 20);
    let admin = served.peer();
    admin.create_thin("thin", "disk", 1 << 30);
    for round in 0..10 {
        let mut peer = served.peer().with_channel();
        let grant = peer.open("thin", Access::ReadWrite).unwrap().grant;
        let channel = peer.channel.as_mut().unwrap();
        for number in 0..32u64 {
            let buffer = channel.alloc(4096).unwrap();
            let at = [grant, (round * 32 + number) * CLUSTER / 2, 4096, 0, 0, 0];
            channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
        }
        if round % 2 == 0 {
            admin.ask(ControlRequest::Revoke { volume: "thin".into() }).unwrap();
        } else {
            // The client is gone while its requests wait.
            drop(peer);
            continue;
        }
        for _ in 0..32 {
            let status = Status::from_number(channel.reap_within(LIMIT).unwrap().status).unwrap();
            assert!(matches!(status, Status::Success | Status::Revoked), "{status:?}");
        }
    }
    served.until("all are gone", |status| status.clients.len() == 1);
    admin.ask(ControlRequest::Remove { volume: "thin".into() }).unwrap();
    assert_eq!(served.status().devices[0].thin_allocated, 0);
}

/// A discard waits until a write to the same blocks, of another client, is done, so that the write does not land in
/// another volume.
#[test]
fn blocks_are_given_back_when_no_write_to_them_is_left() {
    let device = SharedDevice::over(memory(), 5);
    let served = over(&device, LIMIT);
    let mut slow = served.peer().with_channel();
    let grant = thin(&slow, "thin", "disk", BYTES);
    slow.write(grant, 0, &pattern(1, 4096)).unwrap();
    device.inject(Operation::Write, FaultEffect::Delay(Duration::from_millis(400)));
    let channel = slow.channel.as_mut().unwrap();
    let mut buffer = channel.alloc(512).unwrap();
    buffer.write(0, &[7; 512]);
    let at = [grant, 0, 512, 0, 0, 0];
    channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
    served.until("it is in flight", |status| status.devices[0].in_flight == 1);
    let mut quick = served.peer().with_channel();
    let same = quick.open("thin", Access::ReadWrite).unwrap().grant;
    let began = Instant::now();
    quick.plain(Opcode::Discard, same, 0, CLUSTER).unwrap();
    assert!(began.elapsed() > Duration::from_millis(200), "{:?}", began.elapsed());
    assert_eq!(slow.channel.as_mut().unwrap().reap_within(LIMIT).unwrap().status, 0);
    assert_eq!(quick.read(same, 0, 4096).unwrap(), vec![0; 4096]);
}

/// A write waits for one block while another one, which it had, is given back: it gets a new one, and does not land in
/// the old one, which may be another volume's by then.
#[test]
fn a_write_that_waits_finds_its_blocks_anew() {
    let served = Served::file(4 << 20);
    let mut peer = served.peer().with_channel();
    let grant = thin(&peer, "thin", "disk", 1 << 26);
    let other = thin(&peer, "other", "disk", 1 << 26);
    for round in 0..20u64 {
        let at = round * 2 * CLUSTER;
        peer.write(grant, at, &pattern(round, 4096)).unwrap();
        let channel = peer.channel.as_mut().unwrap();
        let discard = Submission::new(Opcode::Discard as u8).arguments([grant, at, CLUSTER, 0, 0, 0]);
        channel.submit(discard.user_data(1)).unwrap();
        let mut buffer = channel.alloc(8192).unwrap();
        buffer.write(0, &pattern(100 + round, 8192));
        let write =
            Submission::new(Opcode::Write as u8).arguments([grant, at + CLUSTER - 4096, 8192, 0, 0, 0]);
        channel.submit(write.buffer(buffer).user_data(2)).unwrap();
        for _ in 0..2 {
            let done = channel.reap_within(LIMIT).unwrap();
            assert_eq!(done.status, 0, "round {round}: request {}", done.user_data);
        }
        // The core parks the write behind the discard, whose blocks may be anybody's afterwards.
        peer.write(other, 0, &pattern(200 + round, 4096)).unwrap();
        assert_eq!(
            peer.read(grant, at + CLUSTER - 4096, 8192).unwrap(),
            pattern(100 + round, 8192),
            "round {round}"
        );
        assert_eq!(peer.read(grant, at, 4096).unwrap(), vec![0; 4096]);
        assert_eq!(
            peer.read(other, 4096, CLUSTER as usize - 4096).unwrap(),
            vec![0; CLUSTER as usize - 4096]
        );
        peer.plain(Opcode::Discard, other, 0, CLUSTER).unwrap();
        peer.plain(Opcode::Discard, grant, 0, 1 << 26).unwrap();
    }
}

/// A grant that is opened while blocks are given back does not have them, since another volume may get them.
#[test]
fn a_grant_that_is_opened_meanwhile_has_no_block_that_is_given_back() {
    let device = SharedDevice::over(memory(), 6);
    let served = over(&device, LIMIT);
    let mut slow = served.peer().with_channel();
    let grant = thin(&slow, "thin", "disk", BYTES);
    slow.write(grant, 0, &pattern(1, 4096)).unwrap();
    device.inject(Operation::Write, FaultEffect::Delay(Duration::from_millis(600)));
    let channel = slow.channel.as_mut().unwrap();
    let buffer = channel.alloc(512).unwrap();
    let at = [grant, 0, 512, 0, 0, 0];
    channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
    served.until("it is in flight", |status| status.devices[0].in_flight == 1);
    let mut quick = served.peer().with_channel();
    let same = quick.open("thin", Access::ReadWrite).unwrap().grant;
    std::thread::scope(|scope| {
        let discarding = scope.spawn(|| quick.plain(Opcode::Discard, same, 0, CLUSTER).unwrap());
        // The discard waits for the write.
        std::thread::sleep(Duration::from_millis(200));
        let mut opener = served.peer().with_channel();
        let opened = opener.open("thin", Access::Read).unwrap().grant;
        assert!(!discarding.is_finished(), "the test was too slow");
        discarding.join().unwrap();
        // Nearly all blocks of the device, the released ones among them.
        let other = thin(&slow, "other", "disk", BYTES);
        slow.channel.as_mut().unwrap().reap_within(LIMIT).unwrap();
        slow.write(other, 0, &vec![7; 15 * CLUSTER as usize]).unwrap();
        assert_eq!(opener.read(opened, 0, CLUSTER as usize).unwrap(), vec![0; CLUSTER as usize]);
    });
}

/// A client's part of a volume, and what it must contain: a version for each block, 0 for zeros.
struct Part {
    first: u64,
    versions: Vec<u64>,
}

const BLOCK: u64 = 4096;

impl Part {
    /// Makes a random request, and checks what is read.
    fn step(&mut self, peer: &mut Peer, grant: u64, version: u64, random: &mut Random) {
        let count = self.versions.len() as u64;
        let from = random.below(count);
        let length = 1 + random.below((count - from).min(80));
        let (at, bytes) = ((self.first + from) * BLOCK, length * BLOCK);
        let blocks = from as usize..(from + length) as usize;
        match random.below(10) {
            0..5 => {
                let data = self.data(version, blocks.clone());
                let flags = if random.below(4) == 0 { FUA } else { 0 };
                let arguments = [grant, at, bytes, 0, 0, 0];
                match peer.done(Opcode::Write, flags, arguments, Some(&data)) {
                    Ok(()) => self.versions[blocks].fill(version),
                    Err(status) => assert_eq!(status, Status::NoSpace),
                }
            }
            5 => {
                peer.plain(Opcode::WriteZeroes, grant, at, bytes).unwrap();
                self.versions[blocks].fill(0);
            }
            6 => {
                // Whole clusters, since what is left of others is not defined.
                let cluster = random.below(count / 64) * 64;
                peer.plain(Opcode::Discard, grant, (self.first + cluster) * BLOCK, CLUSTER).unwrap();
                self.versions[cluster as usize..cluster as usize + 64].fill(0);
            }
            _ => {
                let read = peer.read(grant, at, bytes as usize).unwrap();
                for (number, block) in read.chunks(BLOCK as usize).enumerate() {
                    self.check(from as usize + number, block);
                }
            }
        }
    }

    /// Returns the contents of some blocks in a version.
    fn data(&self, version: u64, blocks: std::ops::Range<usize>) -> Vec<u8> {
        blocks
            .flat_map(|block| pattern(version << 24 | (self.first + block as u64), BLOCK as usize))
            .collect()
    }

    fn check(&self, number: usize, found: &[u8]) {
        let version = self.versions[number];
        let is_right = match version {
            0 => found.iter().all(|byte| *byte == 0),
            _ => found == self.data(version, number..number + 1),
        };
        assert!(is_right, "block {} is not version {version}", self.first as usize + number);
    }
}

/// Several clients write, discard and read parts of two thin volumes, which together are larger than the device.
#[test]
fn as_if_all_were_allocated() {
    let mut seeds = Random::seeded("as_if_all_were_allocated");
    let served = Served::file(24 << 20);
    let admin = served.peer();
    const PARTS: u64 = 4;
    const BLOCKS: u64 = 1024;
    for volume in ["one", "other"] {
        admin.create_thin(volume, "disk", PARTS * BLOCKS * BLOCK);
    }
    let steps = rounds(150);
    let begin = Barrier::new(2 * PARTS as usize);
    std::thread::scope(|scope| {
        for (number, volume) in (0..2 * PARTS).map(|number| (number, ["one", "other"][number as usize % 2])) {
            let (seed, begin, served) = (seeds.number(), &begin, &served);
            scope.spawn(move || {
                let mut random = Random(seed);
                let mut peer = served.peer().with_channel();
                let grant = peer.open(volume, Access::ReadWrite).unwrap().grant;
                let mut part = Part { first: number / 2 * BLOCKS, versions: vec![0; BLOCKS as usize] };
                begin.wait();
                for step in 0..steps {
                    part.step(&mut peer, grant, number * 1_000_000 + step + 1, &mut random);
                }
            });
        }
    });
    served.until("all are gone", |status| status.clients.len() == 1);
    // The store is consistent, and the counts agree with it.
    let sum = ["one", "other"].map(|volume| allocated(&admin, volume)).iter().sum::<u64>();
    assert_eq!(served.status().devices[0].thin_allocated, sum);
}

/// The power fails while two thin volumes are written and discarded. Afterwards each block has the contents of the
/// last flush or write with FUA, or of a later write of its own volume; what was discarded is zeros.
#[test]
fn what_was_flushed_is_there_after_a_crash() {
    const BLOCKS: usize = 512;
    let mut random = Random::seeded("thin_after_a_crash");
    let mut refused = 0;
    for round in 0..rounds(20) {
        let device = SharedDevice::over(memory(), random.number());
        let mut served = over(&device, Duration::from_millis(400));
        let mut peer = served.peer().with_channel();
        let grants = ["one", "other"].map(|volume| thin(&peer, volume, "disk", BLOCKS as u64 * 8 * BLOCK));
        // Versions that each block may have after a crash: the durable one, and those that were written since. Only
        // every eighth block is used, so that a cluster has eight.
        let mut may_be = [(); 2].map(|()| vec![vec![0u64]; BLOCKS]);
        for version in 1..=150u64 {
            let which = random.below(2) as usize;
            let (grant, blocks) = (grants[which], &mut may_be[which]);
            let block = random.below(96) as usize * BLOCKS / 96;
            let at = [grant, block as u64 * 8 * BLOCK, 512, 0, 0, 0];
            let data = pattern(2 * version + which as u64, 512);
            let outcome = match random.below(12) {
                0 => {
                    peer.plain(Opcode::Flush, grant, 0, 0).unwrap();
                    // A flush is the device's.
                    may_be
                        .iter_mut()
                        .flatten()
                        .for_each(|versions| drop(versions.drain(..versions.len() - 1)));
                    Ok(())
                }
                1 | 2 => {
                    let cluster = block / 8;
                    peer.plain(Opcode::Discard, grant, cluster as u64 * CLUSTER, CLUSTER).unwrap();
                    blocks[cluster * 8..cluster * 8 + 8].fill(vec![0]);
                    Ok(())
                }
                3 => {
                    let done = peer.done(Opcode::Write, FUA, at, Some(&data));
                    done.map(|()| blocks[block] = vec![version])
                }
                _ => peer.done(Opcode::Write, 0, at, Some(&data)).map(|()| blocks[block].push(version)),
            };
            if let Err(status) = outcome {
                assert_eq!(status, Status::NoSpace);
                refused += 1;
            }
        }
        // More requests wait for blocks, or are in flight, when the power fails.
        let channel = peer.channel.as_mut().unwrap();
        for number in 0..16 {
            let which = random.below(2) as usize;
            let block = random.below(96) as usize * BLOCKS / 96;
            let version = 1000 + number;
            let mut buffer = channel.alloc(512).unwrap();
            buffer.write(0, &pattern(2 * version + which as u64, 512));
            let at = [grants[which], block as u64 * 8 * BLOCK, 512, 0, 0, 0];
            channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
            may_be[which][block].push(version);
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        let how = random.one_of(&[Crash::Lose, Crash::Keep, Crash::Prefix, Crash::Any]);
        let after = device.crash(how);
        let policy = served.folder.path().join("volumes");
        drop((peer, served.server.take()));
        // The machine restarts: another server, the same store, and what the device has kept.
        let socket = served.folder.path().join("again");
        let opened = OpenDevice {
            name: "disk".into(),
            device: Box::new(SharedDevice::over(after, 0)),
            contents: NewBlocks::Uncleared,
            is_volatile: false,
        };
        let again = Server::with_devices(crate::peer::options(&socket).policy(policy), vec![opened]).unwrap();
        let mut peer = Peer::connect(&socket).with_channel();
        for (which, volume) in ["one", "other"].into_iter().enumerate() {
            let grant = peer.open(volume, Access::Read).unwrap().grant;
            for (block, versions) in may_be[which].iter().enumerate() {
                let found = peer.read(grant, block as u64 * 8 * BLOCK, 512).unwrap();
                let is_one = versions.iter().any(|version| match version {
                    0 => found.iter().all(|byte| *byte == 0),
                    version => found == pattern(2 * version + which as u64, 512),
                });
                assert!(
                    is_one,
                    "round {round}: block {block} of {volume} is none of {versions:?} after {how:?}"
                );
                // What was never written is zeros.
                let behind = peer.read(grant, block as u64 * 8 * BLOCK + 512, 7 * 512).unwrap();
                assert!(
                    behind.iter().all(|byte| *byte == 0),
                    "round {round}: behind block {block} of {volume}"
                );
            }
        }
        drop(peer);
        again.stop();
    }
    assert!(refused > 0, "the device was never full");
}

/// kill -9 of the server while blocks are allocated and released: the next server has what was durable.
#[test]
fn a_server_that_is_killed_loses_nothing() {
    let mut random = Random::seeded("a_server_that_is_killed_loses_nothing");
    let mut serving = Serving::start("fast=mem:4M,pages=4K", "");
    serving.peer().create_thin("thin", "disk", 1 << 26);
    let mut versions = vec![0u64; 256];
    for round in 0..rounds(8) {
        let mut peer = serving.peer().with_channel();
        let grant = peer.open("thin", Access::ReadWrite).unwrap().grant;
        for (number, version) in versions.iter().enumerate() {
            let found = peer.read(grant, number as u64 * CLUSTER, 4096).unwrap();
            let expected = if *version == 0 { vec![0; 4096] } else { pattern(*version, 4096) };
            assert!(found == expected, "round {round}: cluster {number} is not version {version}");
        }
        for step in 0..random.below(40) {
            let number = random.below(48);
            let version = round * 1000 + step + 1;
            if random.below(3) == 0 {
                peer.plain(Opcode::Discard, grant, number * CLUSTER, CLUSTER).unwrap();
                versions[number as usize] = 0;
            } else {
                let at = [grant, number * CLUSTER, 4096, 0, 0, 0];
                match peer.done(Opcode::Write, FUA, at, Some(&pattern(version, 4096))) {
                    Ok(()) => versions[number as usize] = version,
                    Err(status) => assert_eq!(status, Status::NoSpace),
                }
            }
        }
        // Blocks that nobody looks at later are being allocated and released when the server is killed.
        let channel = peer.channel.as_mut().unwrap();
        for number in 100..116u64 {
            let buffer = channel.alloc(4096).unwrap();
            let at = [grant, number * CLUSTER, 4096, 0, 0, 0];
            channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
        }
        let at = [grant, 100 * CLUSTER, 8 * CLUSTER, 0, 0, 0];
        channel.submit(Submission::new(Opcode::Discard as u8).arguments(at)).unwrap();
        std::thread::sleep(Duration::from_micros(random.below(10_000)));
        serving.kill();
        serving.start_again();
        let mut peer = serving.peer().with_channel();
        let grant = peer.open("thin", Access::ReadWrite).unwrap().grant;
        peer.plain(Opcode::Discard, grant, 100 * CLUSTER, 16 * CLUSTER).unwrap();
    }
}
