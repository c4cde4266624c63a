//! Devices that fail, are slow, or lose power, and a server that is killed.

use crate::device::{BYTES, SharedDevice, memory, over};
use crate::peer::{LIMIT, Peer, Served, pattern};
use bywash_channel::Submission;
use bywash_device::Operation;
use bywash_device::testing::{Crash, FaultEffect, Faulty};
use bywash_protocol::Access;
use bywash_protocol::layout::{FUA, Opcode, Status};
use bywash_server::{NewBlocks, OpenDevice, Server};
use bywash_support::peers::{Child, Random, role, rounds};
use std::path::Path;
use std::time::{Duration, Instant};

fn opened(served: &Served) -> (Peer, u64) {
    let peer = served.peer().with_channel();
    peer.create("log", "disk", BYTES);
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    (peer, grant)
}

#[test]
fn what_the_device_fails_fails_alone() {
    let device = SharedDevice::over(memory(), 1);
    let served = over(&device, LIMIT);
    let (mut peer, grant) = opened(&served);
    peer.write(grant, 0, &pattern(1, 4096)).unwrap();
    for (operation, code, status) in [
        (Operation::Read, libc::EIO, Status::Failed),
        (Operation::Write, libc::EIO, Status::Failed),
        (Operation::Write, libc::ENOSPC, Status::NoSpace),
        (Operation::Discard, libc::EOPNOTSUPP, Status::NotSupported),
        (Operation::Flush, libc::EIO, Status::Failed),
    ] {
        device.inject(operation, FaultEffect::Fail(code));
        let outcome = match operation {
            Operation::Read => peer.read(grant, 0, 512).map(drop),
            Operation::Write => peer.write(grant, 8192, &[1; 512]),
            Operation::Discard => peer.plain(Opcode::Discard, grant, 8192, 512),
            _ => peer.plain(Opcode::Flush, grant, 0, 0),
        };
        assert_eq!(outcome, Err(status), "{operation:?}");
        assert_eq!(peer.read(grant, 0, 4096).unwrap(), pattern(1, 4096));
        peer.write(grant, 4096, &pattern(2, 512)).unwrap();
        peer.plain(Opcode::Flush, grant, 0, 0).unwrap();
    }
    // A request of several slices fails as a whole, when none of its commands is in flight.
    device.inject(Operation::Write, FaultEffect::Fail(libc::EIO));
    assert_eq!(peer.write(grant, 0, &pattern(3, 2 << 20)), Err(Status::Failed));
    peer.write(grant, 0, &pattern(3, 2 << 20)).unwrap();
    assert_eq!(peer.read(grant, 0, 2 << 20).unwrap(), pattern(3, 2 << 20));
}

#[test]
fn a_command_that_does_not_come_back_is_given_up() {
    let device = SharedDevice::over(memory(), 2);
    let served = over(&device, Duration::from_millis(300));
    let (mut peer, grant) = opened(&served);
    device.inject(Operation::Write, FaultEffect::Hold);
    let began = Instant::now();
    assert_eq!(peer.write(grant, 0, &[1; 4096]), Err(Status::TimedOut));
    assert!(began.elapsed() < LIMIT / 2);
    // The device has completed nothing for the request timeout: further requests fail at once, until it
    // completes something.
    served.until("the device is stuck", |status| status.devices[0].is_stuck);
    assert_eq!(peer.read(grant, 0, 512), Err(Status::TimedOut));
    device.with(Faulty::release);
    served.until("the device answers", |status| !status.devices[0].is_stuck);
    peer.write(grant, 8192, &pattern(1, 4096)).unwrap();
    assert_eq!(peer.read(grant, 8192, 4096).unwrap(), pattern(1, 4096));
}

#[test]
fn a_slow_command_holds_up_no_other() {
    let device = SharedDevice::over(memory(), 3);
    let served = over(&device, LIMIT);
    let (mut slow, grant) = opened(&served);
    let mut quick = served.peer().with_channel();
    let same = quick.open("log", Access::ReadWrite).unwrap().grant;
    device.inject(Operation::Write, FaultEffect::Delay(Duration::from_secs(3)));
    let channel = slow.channel.as_mut().unwrap();
    let buffer = channel.alloc(512).unwrap();
    let at = [grant, 0, 512, 0, 0, 0];
    channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let began = Instant::now();
    for number in 1..20u64 {
        quick.write(same, number * 512, &[1; 512]).unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(channel.reap_within(LIMIT).unwrap().status, 0);
}

/// A grant is revoked while a request by it is in flight: the revocation completes after this request, not
/// before.
#[test]
fn what_is_in_flight_is_drained() {
    let device = SharedDevice::over(memory(), 4);
    let served = over(&device, LIMIT);
    let (mut peer, grant) = opened(&served);
    let admin = served.peer();
    device.inject(Operation::Write, FaultEffect::Delay(Duration::from_millis(400)));
    let channel = peer.channel.as_mut().unwrap();
    let mut buffer = channel.alloc(512).unwrap();
    buffer.write(0, &[7; 512]);
    let at = [grant, 0, 512, 0, 0, 0];
    channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
    served.until("it is in flight", |status| status.devices[0].in_flight == 1);
    let began = Instant::now();
    admin.ask(bywash_protocol::ControlRequest::Revoke { volume: "log".into() }).unwrap();
    assert!(began.elapsed() > Duration::from_millis(200));
    assert_eq!(channel.reap_within(LIMIT).unwrap().status, 0);
    assert_eq!(peer.write(grant, 0, &[1; 512]), Err(Status::Revoked));
}

/// The power fails after many writes. Afterwards each block has the contents of the last flush or write with
/// FUA, or of a later write, and the volume still exists.
#[test]
fn what_was_flushed_is_there_after_a_crash() {
    let mut random = Random::seeded("what_was_flushed_is_there_after_a_crash");
    for _ in 0..rounds(30) {
        let device = SharedDevice::over(memory(), random.number());
        let mut served = over(&device, Duration::from_millis(200));
        let (mut peer, grant) = opened(&served);
        const BLOCKS: usize = 64;
        // Versions that each block may have after a crash: the durable one, and those that were written
        // since.
        let mut may_be: Vec<Vec<u64>> = vec![vec![0]; BLOCKS];
        for version in 1..=200u64 {
            let block = random.below(BLOCKS as u64);
            let at = [grant, block * 512, 512, 0, 0, 0];
            let data = pattern(version, 512);
            match random.below(10) {
                0 => {
                    peer.plain(Opcode::Flush, grant, 0, 0).unwrap();
                    for versions in &mut may_be {
                        versions.drain(..versions.len() - 1);
                    }
                }
                1 => {
                    peer.done(Opcode::Write, FUA, at, Some(&data)).unwrap();
                    may_be[block as usize] = vec![version];
                }
                _ => {
                    peer.done(Opcode::Write, 0, at, Some(&data)).unwrap();
                    may_be[block as usize].push(version);
                }
            }
        }
        let how = random.one_of(&[Crash::Lose, Crash::Keep, Crash::Prefix, Crash::Any]);
        let after = device.crash(how);
        let policy = served.folder.path().join("volumes");
        drop((peer, served.server.take()));
        // The machine restarts: another server, the same store, and what the device has kept.
        let socket = served.folder.path().join("again");
        let options = crate::peer::options(&socket).policy(policy);
        let opened = OpenDevice {
            name: "disk".into(),
            device: Box::new(SharedDevice::over(after, 0)),
            contents: NewBlocks::Uncleared,
            is_volatile: false,
        };
        let again = Server::with_devices(options, vec![opened]).unwrap();
        let mut peer = Peer::connect(&socket).with_channel();
        let grant = peer.open("log", Access::Read).unwrap().grant;
        for (block, versions) in may_be.iter().enumerate() {
            let found = peer.read(grant, block as u64 * 512, 512).unwrap();
            let is_one = versions.iter().any(|version| match version {
                0 => found.iter().all(|byte| *byte == 0),
                version => found == pattern(*version, 512),
            });
            assert!(is_one, "block {block} is none of {versions:?} after {how:?}");
        }
        drop(peer);
        again.stop();
    }
}

/// A server in its own process, at the socket that its role names, over a file beside it.
#[test]
fn a_server() {
    let Some(folder) = role() else { return };
    let folder = Path::new(&folder);
    let spec = format!("disk=file:{},size=4M", folder.join("disk").display());
    let options = crate::peer::options(folder.join("socket"));
    let options = options.policy(folder.join("volumes")).device(spec.parse().unwrap());
    let _server = Server::start(options).unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

/// kill -9 of the server while requests are in flight: the client gets an error before the timeout, and what
/// was flushed is there afterwards.
#[test]
fn a_server_that_is_killed_loses_nothing_that_was_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut flushed = 0u64;
    for round in 0..5u64 {
        let mut child = Child::start("faults::a_server", folder.path().to_str().unwrap(), Vec::new());
        let end = Instant::now() + LIMIT;
        while bywash_link::connect(&socket).is_err() {
            assert!(Instant::now() < end, "the server does not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut peer = Peer::connect(&socket).with_channel();
        if round == 0 {
            peer.create("log", "disk", 1 << 20);
        }
        let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
        if flushed > 0 {
            assert_eq!(peer.read(grant, 0, 4096).unwrap(), pattern(flushed, 4096), "round {round}");
        }
        flushed = round + 1;
        peer.write(grant, 0, &pattern(flushed, 4096)).unwrap();
        peer.plain(Opcode::Flush, grant, 0, 0).unwrap();
        // More writes are in flight when the server is killed.
        let channel = peer.channel.as_mut().unwrap();
        for number in 1..32u64 {
            let buffer = channel.alloc(4096).unwrap();
            let at = [grant, number * 4096, 4096, 0, 0, 0];
            channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
        }
        child.kill();
        let began = Instant::now();
        let error = loop {
            if let Err(error) = channel.reap_within(LIMIT) {
                break error;
            }
        };
        assert!(began.elapsed() < LIMIT / 2, "{error}");
        assert!(!matches!(error, bywash_channel::Error::TimedOut), "{error}");
    }
}
