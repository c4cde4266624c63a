//! Several cores: clients are spread over them, one volume is used from all, and what takes rights or devices away
//! waits for each.

use crate::attack::as_attacker;
use crate::device::{SharedDevice, memory, over_on};
use crate::peer::{LIMIT, Peer, Served, pattern};
use bywash_channel::Submission;
use bywash_device::Operation;
use bywash_device::testing::{Fault, FaultEffect, Faulty};
use bywash_protocol::layout::{Opcode, Status};
use bywash_protocol::{Access, ControlRequest};
use bywash_server::Options;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which a test checks that nothing happens.
const WHILE: Duration = Duration::from_millis(200);
const CORES: usize = 2;

fn on_cores(devices: &[&str]) -> Served {
    Served::with(devices, |options: Options| options.cores(CORES))
}

/// Connects clients until each core has one, in the order of the cores.
fn one_on_each(served: &Served) -> Vec<Peer> {
    let mut peers: Vec<Option<Peer>> = (0..CORES).map(|_| None).collect();
    let mut more = Vec::new();
    for _ in 0..8 * CORES {
        let peer = served.peer().with_channel();
        let core = core_of(served, &peer);
        match &mut peers[core] {
            place @ None => *place = Some(peer),
            Some(_) => more.push(peer),
        }
        if peers.iter().all(Option::is_some) {
            return peers.into_iter().flatten().collect();
        }
    }
    panic!("no client came onto some core: {:?}", served.status().clients);
}

fn core_of(served: &Served, peer: &Peer) -> usize {
    let status = served.status();
    status.clients.iter().find(|client| client.client == peer.number).unwrap().core as usize
}

fn submit(peer: &mut Peer, grant: u64, offset: u64, data: &[u8]) {
    let channel = peer.channel.as_mut().unwrap();
    let mut buffer = channel.alloc(data.len()).unwrap();
    buffer.write(0, data);
    let at = [grant, offset, data.len() as u64, 0, 0, 0];
    channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
}

fn hold(device: &SharedDevice, operation: Operation, times: u32) {
    let what = FaultEffect::Hold;
    device.with(|device| {
        device.inject(Fault { operation: Some(operation), range: 0..u64::MAX, skip: 0, times, what })
    });
}

fn held(served: &Served, count: u64) {
    served.until("as many are in flight", |status| {
        status.devices.iter().map(|device| device.in_flight).sum::<u64>() == count
    });
}

/// Devices of which each core has a queue of its own, and one that all cores share.
const DEVICES: [&str; 3] =
    ["disk=mem:16M,pages=4K", "disk=file:FOLDER/disk,size=17M", "disk=mem:16M,pages=4K,latency=5us,depth=64"];

fn on_each_device(test: impl Fn(&str, Served)) {
    for device in DEVICES {
        let folder = tempfile::tempdir().unwrap();
        let text = device.replace("FOLDER", &folder.path().display().to_string());
        test(device, on_cores(&[&text]));
    }
}

#[test]
fn clients_are_spread_over_more_cores_than_processors() {
    let served = Served::with(&["fast=mem:4M,pages=4K"], |options| options.cores(8));
    served.peer().create("log", "fast", 1 << 20);
    served.until("the first client is gone", |status| status.clients.is_empty());
    let mut peers: Vec<Peer> = (0..16).map(|_| served.peer().with_channel()).collect();
    let status = served.status();
    assert_eq!(status.cores.iter().map(|core| core.core).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    assert_eq!(status.cores.iter().map(|core| core.clients).sum::<u64>(), 16);
    assert!(status.cores.iter().all(|core| core.clients <= 3), "{:?}", status.cores);
    for (number, peer) in peers.iter_mut().enumerate() {
        let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
        let at = number as u64 * 4096;
        peer.write(grant, at, &pattern(at, 4096)).unwrap();
        assert_eq!(peer.read(grant, at, 4096).unwrap(), pattern(at, 4096));
    }
    // The counters of a device are those of all its queues.
    served.until("all are counted", |status| status.devices[0].counts.requests() == 32);
}

#[test]
fn one_volume_is_written_from_two_cores() {
    on_each_device(|name, served| {
        served.peer().create("log", "disk", 8 << 20);
        let peers = one_on_each(&served);
        thread::scope(|scope| {
            for (number, mut peer) in peers.into_iter().enumerate() {
                scope.spawn(move || {
                    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
                    for round in 0..300u64 {
                        // Blocks that both write, each whole and of one of them; and blocks of each one's own.
                        peer.write(grant, 0, &vec![(round * 2 + number as u64) as u8; 8192]).unwrap();
                        let there = peer.read(grant, 0, 8192).unwrap();
                        for block in there.chunks(4096) {
                            assert!(block.iter().all(|byte| *byte == block[0]), "{name}: a torn block");
                        }
                        let (at, own) =
                            ((1 + number as u64) << 20, pattern(round << 1 | number as u64, 4096));
                        peer.write(grant, at + round % 64 * 4096, &own).unwrap();
                        assert!(peer.read(grant, at + round % 64 * 4096, 4096).unwrap() == own, "{name}");
                    }
                });
            }
        });
    });
}

/// Both cores add to one number by compare-and-write, and no addition is lost.
#[test]
fn compare_and_write_is_atomic_between_cores() {
    on_each_device(|name, served| {
        served.peer().create("log", "disk", 1 << 20);
        let block = served.status().devices[0].block as usize;
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes[..8].try_into().unwrap());
        thread::scope(|scope| {
            for mut peer in one_on_each(&served) {
                scope.spawn(move || {
                    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
                    let mut added = 0;
                    while added < 100 {
                        let before = peer.read(grant, 0, block).unwrap();
                        let mut after = before.clone();
                        after[..8].copy_from_slice(&(number(&before) + 1).to_ne_bytes());
                        let at = [grant, 0, block as u64, 0, 0, 0];
                        let both = [before, after].concat();
                        match peer.done(Opcode::CompareAndWrite, 0, at, Some(&both)) {
                            Ok(()) => added += 1,
                            Err(status) => assert_eq!(status, Status::Mismatch, "{name}"),
                        }
                    }
                });
            }
        });
        let mut peer = served.peer().with_channel();
        let grant = peer.open("log", Access::Read).unwrap().grant;
        assert_eq!(number(&peer.read(grant, 0, block).unwrap()), 200, "{name}");
    });
}

/// A revocation is done when both cores have ended what was under way, and nothing is done by the grants afterwards.
#[test]
fn a_revocation_waits_for_both_cores() {
    let device = SharedDevice::over(memory(), 1);
    let served = over_on(&[("disk", &device)], LIMIT, CORES);
    let admin = served.peer();
    admin.create("log", "disk", 1 << 20);
    let mut peers = one_on_each(&served);
    for late in 0..CORES {
        let open = |peer: &Peer| peer.open("log", Access::ReadWrite).unwrap().grant;
        let grants: Vec<u64> = peers.iter().map(open).collect();
        hold(&device, Operation::Write, 1);
        submit(&mut peers[late], grants[late], 0, &pattern(late as u64, 4096));
        held(&served, 1);
        let began = Instant::now();
        thread::scope(|scope| {
            let revoke = scope.spawn(|| {
                admin.ask(ControlRequest::Revoke { volume: "log".into() }).unwrap();
                began.elapsed()
            });
            thread::sleep(WHILE);
            device.with(Faulty::release);
            assert!(revoke.join().unwrap() >= WHILE, "revoked while core {late} was writing");
        });
        assert_eq!(peers[late].channel.as_mut().unwrap().reap_within(LIMIT).unwrap().status, 0);
        for (peer, grant) in peers.iter_mut().zip(&grants) {
            assert_eq!(peer.write(*grant, 0, &[7; 4096]), Err(Status::Revoked));
        }
    }
}

/// Both cores write without pause while the grants are taken back, again and again.
#[test]
fn grants_are_revoked_while_both_cores_write() {
    let served = on_cores(&["disk=mem:4M,pages=4K"]);
    let admin = served.peer();
    admin.create("log", "disk", 1 << 20);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = one_on_each(&served)
            .into_iter()
            .enumerate()
            .map(|(number, mut peer)| {
                let stop = &stop;
                scope.spawn(move || {
                    let (mut revoked, mut written) = (0, 0u64);
                    while !stop.load(Relaxed) {
                        // A volume that is just being changed can be opened a moment later.
                        let Ok(granted) = peer.open("log", Access::ReadWrite) else { continue };
                        loop {
                            match peer.write(granted.grant, 0, &vec![number as u8 + 1; 4096]) {
                                Ok(()) if stop.load(Relaxed) => break,
                                Ok(()) => written += 1,
                                Err(status) => {
                                    assert_eq!(status, Status::Revoked);
                                    break revoked += 1;
                                }
                            }
                        }
                    }
                    (revoked, written)
                })
            })
            .collect();
        for _ in 0..20 {
            admin.ask(ControlRequest::Revoke { volume: "log".into() }).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Relaxed);
        for writer in writers {
            let (revoked, written) = writer.join().unwrap();
            assert!(revoked > 0 && written > 0, "{revoked} {written}");
        }
    });
}

/// A device goes when both cores have released it, again and again, and its name is free at once.
#[test]
fn a_device_is_removed_from_both_cores() {
    let served = on_cores(&["other=mem:4M,pages=4K"]);
    let admin = served.peer();
    let mut peers = one_on_each(&served);
    let path = served.folder.path().join("late");
    let devices = [
        ("late", format!("late=file:{},size=8M", path.display())),
        ("slow", "slow=mem:4M,pages=4K,latency=2us".to_owned()),
        ("quick", "quick=mem:4M,pages=4K".to_owned()),
    ];
    for round in 0..9u64 {
        let (name, device) = &devices[round as usize % 3];
        admin.ask(ControlRequest::AddDevice { device: device.clone() }).unwrap();
        admin.create("log", name, 1 << 20);
        for (number, peer) in (0..).zip(&mut peers) {
            let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
            let data = pattern(round * 2 + number, 4096);
            peer.write(grant, number * 4096, &data).unwrap();
            assert_eq!(peer.read(grant, number * 4096, 4096).unwrap(), data);
            peer.ask(ControlRequest::Close { grant }).unwrap();
        }
        admin.ask(ControlRequest::Remove { volume: "log".into() }).unwrap();
        admin.ask(ControlRequest::DropDevice { device: (*name).into() }).unwrap();
        assert_eq!(served.status().devices.len(), 1);
    }
}

/// A client dies with requests under way on one core: those of the other core are served on, and nothing is left.
#[test]
fn the_death_of_a_client_concerns_its_core_alone() {
    let device = SharedDevice::over(memory(), 1);
    let served = over_on(&[("disk", &device)], LIMIT, CORES);
    served.peer().create("log", "disk", 1 << 20);
    for dies in 0..CORES {
        let mut peers = one_on_each(&served);
        let grants: Vec<u64> =
            peers.iter().map(|peer| peer.open("log", Access::ReadWrite).unwrap().grant).collect();
        hold(&device, Operation::Write, 3);
        for number in 0..3 {
            submit(&mut peers[dies], grants[dies], number * 4096, &pattern(number, 4096));
        }
        held(&served, 3);
        drop(peers.remove(dies));
        let (lives, grant) = (&mut peers[0], grants[1 - dies]);
        for round in 0..100 {
            lives.write(grant, 65536, &pattern(round, 4096)).unwrap();
            assert_eq!(lives.read(grant, 65536, 4096).unwrap(), pattern(round, 4096));
        }
        device.with(Faulty::release);
        held(&served, 0);
        drop(peers);
        served.until("all are gone", |status| status.clients.is_empty());
    }
}

/// Blocks of a thin volume are allocated and released by both cores at a time.
#[test]
fn a_thin_volume_grows_and_shrinks_from_both_cores() {
    let served = on_cores(&["disk=mem:64M,pages=4K,chunk=2M"]);
    served.peer().create_thin("log", "disk", 32 << 20);
    thread::scope(|scope| {
        for (number, mut peer) in one_on_each(&served).into_iter().enumerate() {
            scope.spawn(move || {
                let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
                // Both use every cluster: the even blocks are one's, the odd ones the other's.
                for round in 0..3u64 {
                    for at in 0..48u64 {
                        let offset = at * (512 << 10) + number as u64 * 4096;
                        peer.write(grant, offset, &pattern(round * 100 + at, 4096)).unwrap();
                    }
                    for at in 0..48u64 {
                        let offset = at * (512 << 10) + number as u64 * 4096;
                        let there = peer.read(grant, offset, 4096).unwrap();
                        assert!(there == pattern(round * 100 + at, 4096), "core {number}, block {at}");
                    }
                    // Space beyond what is read, which each gives back.
                    let own = (24 << 20) + number as u64 * (4 << 20);
                    peer.write(grant, own, &pattern(round, 65536)).unwrap();
                    peer.plain(Opcode::Discard, grant, own, 4 << 20).unwrap();
                    assert_eq!(peer.read(grant, own, 4096).unwrap(), vec![0; 4096]);
                }
            });
        }
    });
}

/// Returns the bytes that the clients of root and of another user have moved together, in this time. Every client always
/// has requests.
fn moved(served: &Served, roots: Vec<Peer>, others: Vec<Peer>, time: Duration) -> (u64, u64) {
    let stop = AtomicBool::new(false);
    let work = |mut peer: Peer, stop: &AtomicBool| {
        let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
        let channel = peer.channel.as_mut().unwrap();
        // As many as complete in some tens of milliseconds, so that a client that gets no processor for a while still has
        // some in flight.
        let mut buffers: Vec<_> = (0..64).map(|_| channel.alloc(4096).unwrap()).collect();
        while !stop.load(Relaxed) {
            while let Some(buffer) = buffers.pop() {
                let at = [grant, 0, 4096, 0, 0, 0];
                channel.submit(Submission::new(Opcode::Read as u8).arguments(at).buffer(buffer)).unwrap();
            }
            buffers.extend(channel.reap_within(LIMIT).unwrap().buffer);
        }
    };
    let read = |uid| {
        let status = served.status();
        status.users.iter().find(|user| user.uid == Some(uid)).map_or(0, |user| user.counts.bytes_read)
    };
    thread::scope(|scope| {
        for peer in roots.into_iter().chain(others) {
            let stop = &stop;
            scope.spawn(move || work(peer, stop));
        }
        thread::sleep(Duration::from_secs(1));
        let before = (read(0), read(crate::attack::ATTACKER));
        thread::sleep(time);
        let after = (read(0), read(crate::attack::ATTACKER));
        stop.store(true, Relaxed);
        (after.0 - before.0, after.1 - before.1)
    })
}

/// A user gets half of a device whatever the number of the other user's clients, and whichever cores they are on.
#[test]
fn users_have_the_same_on_whichever_cores_their_clients_are() {
    if !rustix::process::geteuid().is_root() {
        return println!("left out: only root can become another user");
    }
    for (name, same_core) in [("each user on a core", false), ("one user on both cores", true)] {
        let served = on_cores(&["disk=mem:16M,pages=4K,bandwidth=4M/s,depth=64"]);
        let mode = rustix::fs::Mode::from_raw_mode(0o755);
        rustix::fs::chmod(served.folder.path(), mode).unwrap();
        served.peer().create_as("log", "disk", 1 << 20, 0, 0o666).unwrap();
        served.until("the first client is gone", |status| status.clients.is_empty());
        let other = as_attacker(|| served.peer()).with_channel();
        let at = core_of(&served, &other);
        let (mut roots, mut unused) = (Vec::new(), Vec::new());
        while roots.len() < 3 {
            let peer = served.peer().with_channel();
            let core = core_of(&served, &peer);
            let is_wanted = if same_core { roots.len() == 2 || core == at } else { core != at };
            if is_wanted { roots.push(peer) } else { unused.push(peer) }
        }
        drop(unused);
        let (root, other) = moved(&served, roots, vec![other], Duration::from_secs(3));
        let part = other as f64 / (root + other) as f64;
        println!("{name}: {part:.3} of {} bytes", root + other);
        assert!((part / 0.5 - 1.0).abs() < 0.15, "{name}: {part} of {}", root + other);
    }
}
