//! Commands that a device holds back: their grant is not drained, a client that leaves is not gone yet, and a
//! server that is told to stop still stops.

use crate::device::{BYTES, SharedDevice, memory, over, over_on};
use crate::peer::{LIMIT, Peer, Served, pattern};
use bywash_channel::Submission;
use bywash_device::Operation;
use bywash_device::testing::{Fault, FaultEffect, Faulty};
use bywash_link::{Messages, connect};
use bywash_protocol::layout::{FUA, Opcode, Status};
use bywash_protocol::{Access, ControlReply, ControlRequest, MESSAGE_BYTES_MAX, RefusalKind, VERSION};
use bywash_server::LimitsFile;
use std::time::{Duration, Instant};

/// Time for which a test checks that nothing happens.
const WHILE: Duration = Duration::from_millis(300);

fn hold(device: &SharedDevice, operation: Operation, times: u32) {
    let fault =
        Fault { operation: Some(operation), range: 0..u64::MAX, skip: 0, times, what: FaultEffect::Hold };
    device.with(|device| device.inject(fault));
}

fn submit(peer: &mut Peer, grant: u64, offset: u64, data: &[u8]) {
    let channel = peer.channel.as_mut().unwrap();
    let mut buffer = channel.alloc(data.len()).unwrap();
    buffer.write(0, data);
    let at = [grant, offset, data.len() as u64, 0, 0, 0];
    channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
}

fn in_flight(served: &Served, count: u64) {
    served.until("as many are in flight", |status| {
        status.devices.iter().map(|device| device.in_flight).sum::<u64>() == count
    });
}

/// A client closes its grant while a write is in flight. The volume is removed and its blocks go to another
/// one, which must not contain the late write.
#[test]
fn what_its_client_has_closed_is_waited_for() {
    let device = SharedDevice::over(memory(), 1);
    let served = over(&device, LIMIT);
    let admin = served.peer();
    admin.create("old", "disk", BYTES);
    let mut peer = served.peer().with_channel();
    let grant = peer.open("old", Access::ReadWrite).unwrap().grant;
    hold(&device, Operation::Write, 1);
    submit(&mut peer, grant, 0, &pattern(1, 4096));
    in_flight(&served, 1);
    peer.messages.send(&ControlRequest::Close { grant }.to_bytes().unwrap(), &[], LIMIT).unwrap();
    std::thread::sleep(WHILE / 3);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let removing = scope.spawn(|| {
            admin.ask(ControlRequest::Remove { volume: "old".into() }).unwrap();
            began.elapsed()
        });
        std::thread::sleep(WHILE);
        device.with(Faulty::release);
        assert!(removing.join().unwrap() >= WHILE, "the volume went while it was written to");
    });
    assert_eq!(
        ControlReply::from_bytes(&peer.messages.receive(LIMIT).unwrap().bytes),
        Ok(ControlReply::Done {})
    );
}

/// The device fails while blocks are cleared. The work's slot is freed once, so that two later requests get
/// one each.
#[test]
fn clearing_that_fails_leaves_nothing_behind() {
    for skip in 0..4 {
        let device = SharedDevice::over(memory(), 2);
        let served = over(&device, LIMIT);
        let mut peers = [served.peer().with_channel(), served.peer().with_channel()];
        peers[0].create("log", "disk", 1 << 20);
        peers[0].create("old", "disk", BYTES - (1 << 20));
        peers[0].ask(ControlRequest::Remove { volume: "old".into() }).unwrap();
        let operation = Some(Operation::WriteZeroes);
        let what = FaultEffect::Fail(libc::EIO);
        device.with(|device| device.inject(Fault { operation, range: 0..u64::MAX, skip, times: 1, what }));
        let refused = peers[0].create_as("new", "disk", 2 << 20, 0, 0o600).unwrap_err();
        assert_eq!(refused.code, RefusalKind::Failed);
        let grants = [0, 1].map(|number: usize| peers[number].open("log", Access::ReadWrite).unwrap().grant);
        hold(&device, Operation::Write, 2);
        for (number, peer) in peers.iter_mut().enumerate() {
            submit(peer, grants[number], number as u64 * 4096, &pattern(number as u64, 4096));
        }
        in_flight(&served, 2);
        device.with(Faulty::release);
        for peer in &mut peers {
            assert_eq!(peer.channel.as_mut().unwrap().reap_within(LIMIT).unwrap().status, 0);
        }
        for number in 0..2u64 {
            let there = peers[0].read(grants[0], number * 4096, 4096).unwrap();
            assert_eq!(there, pattern(number, 4096), "{skip} slices were cleared before");
        }
        peers[0].create("new", "disk", 2 << 20);
    }
}

/// One device is full while a part of it is to be cleared. Another device's flush after a write still goes
/// on.
#[test]
fn a_device_that_is_full_holds_up_no_other() {
    let (full, other) = (SharedDevice::over(memory(), 3), SharedDevice::over(memory(), 4));
    // One core, since several would share the depth of the device.
    let served = over_on(&[("full", &full), ("other", &other)], LIMIT, 1);
    let mut peer = served.peer().with_channel();
    for (volume, device, bytes) in
        [("kept", "full", 1 << 20), ("old", "full", 3 << 20), ("log", "other", BYTES)]
    {
        peer.create(volume, device, bytes);
    }
    peer.ask(ControlRequest::Remove { volume: "old".into() }).unwrap();
    let kept = peer.open("kept", Access::ReadWrite).unwrap().grant;
    let mut good = served.peer().with_channel();
    let grant = good.open("log", Access::ReadWrite).unwrap().grant;
    hold(&full, Operation::Write, 64);
    for number in 0..64 {
        submit(&mut peer, kept, number * 512, &[1; 512]);
    }
    in_flight(&served, 64);
    let create = ControlRequest::Create {
        volume: "new".into(),
        device: "full".into(),
        bytes: 3 << 20,
        owner: 0,
        group: 0,
        mode: 0o600,
        is_thin: false,
    };
    peer.messages.send(&create.to_bytes().unwrap(), &[], LIMIT).unwrap();
    std::thread::sleep(WHILE / 3);
    let began = Instant::now();
    let at = [grant, 0, 4096, 0, 0, 0];
    good.done(Opcode::WriteZeroes, FUA, at, None).unwrap();
    assert!(began.elapsed() < LIMIT / 2);
    full.with(Faulty::release);
    assert_eq!(
        ControlReply::from_bytes(&peer.messages.receive(LIMIT).unwrap().bytes),
        Ok(ControlReply::Done {})
    );
}

/// A device completes nothing any more: an administrator who waits for it gets an error, and the server stops
/// when it is told to.
#[test]
fn nobody_waits_for_ever_for_a_device() {
    let device = SharedDevice::over(memory(), 5);
    let mut served = over(&device, WHILE);
    let admin = served.peer();
    admin.create("old", "disk", BYTES);
    admin.ask(ControlRequest::Remove { volume: "old".into() }).unwrap();
    hold(&device, Operation::WriteZeroes, 1);
    let refused = admin.create_as("new", "disk", BYTES, 0, 0o600).unwrap_err();
    assert!(refused.code == RefusalKind::Failed && refused.message.contains("TimedOut"), "{refused}");
    device.with(Faulty::release);
    admin.create("new", "disk", BYTES);
    // An administrator who waits for a grant to be drained does not keep the server from stopping.
    let mut peer = served.peer().with_channel();
    let grant = peer.open("new", Access::ReadWrite).unwrap().grant;
    hold(&device, Operation::Write, 1);
    submit(&mut peer, grant, 0, &[1; 512]);
    in_flight(&served, 1);
    admin
        .messages
        .send(&ControlRequest::Revoke { volume: "new".into() }.to_bytes().unwrap(), &[], LIMIT)
        .unwrap();
    std::thread::sleep(WHILE / 3);
    let began = Instant::now();
    served.server.take().unwrap().stop();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

/// A client that leaves with requests in flight still counts: otherwise a user could connect again and again,
/// each time with another arena.
#[test]
fn who_has_left_and_is_not_gone_counts() {
    let device = SharedDevice::over(memory(), 6);
    let folder = tempfile::tempdir().unwrap();
    let limits = folder.path().join("limits");
    std::fs::write(&limits, "[default]\nclients = 3").unwrap();
    let socket = folder.path().join("socket");
    let options = crate::peer::options(&socket).limits(LimitsFile::read(&limits).unwrap());
    let contents = bywash_server::NewBlocks::Cleared;
    let opened = bywash_server::OpenDevice {
        name: "disk".into(),
        device: Box::new(device.clone()),
        contents,
        is_volatile: false,
    };
    let server = bywash_server::Server::with_devices(options, vec![opened]).unwrap();
    let served = Served { server: Some(server), socket, folder };
    let admin = served.peer();
    admin.create("log", "disk", BYTES);
    hold(&device, Operation::Write, 2);
    for number in 0..2 {
        let mut peer = served.peer().with_channel();
        let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
        submit(&mut peer, grant, 0, &[1; 512]);
        in_flight(&served, number + 1);
    }
    let hello = ControlRequest::Hello { version: VERSION, name: String::new() };
    let come = || {
        let messages = Messages::over(connect(&served.socket).unwrap(), MESSAGE_BYTES_MAX);
        // The server may refuse the connection before the hello message is sent.
        let _ = messages.send(&hello.to_bytes().unwrap(), &[], LIMIT);
        ControlReply::from_bytes(&messages.receive(LIMIT).unwrap().bytes).unwrap()
    };
    // A client that has left counts again a while after the server has noticed, whenever that is.
    let end = std::time::Instant::now() + LIMIT;
    while !matches!(come(), ControlReply::Refused(refused) if refused.code == RefusalKind::Limit) {
        assert!(std::time::Instant::now() < end, "everybody is let in");
        std::thread::sleep(WHILE / 10);
    }
    device.with(Faulty::release);
    served.until("they are gone", |status| status.clients.len() == 1);
    // Their memory is unmapped a moment later.
    let end = std::time::Instant::now() + LIMIT;
    while !matches!(come(), ControlReply::Welcome { .. }) {
        assert!(std::time::Instant::now() < end, "nobody is let in again");
    }
}

/// A request that has timed out is still in flight on the device: its grant is not drained before the device
/// completes it.
#[test]
fn what_was_given_up_is_drained_later() {
    let device = SharedDevice::over(memory(), 7);
    let served = over(&device, WHILE / 2);
    let admin = served.peer();
    admin.create("log", "disk", BYTES);
    let mut peer = served.peer().with_channel();
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    hold(&device, Operation::Write, 1);
    assert_eq!(peer.write(grant, 0, &[1; 512]), Err(Status::TimedOut));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let revoking = scope.spawn(|| {
            admin.ask(ControlRequest::Revoke { volume: "log".into() }).unwrap();
            began.elapsed()
        });
        std::thread::sleep(WHILE);
        device.with(Faulty::release);
        assert!(revoking.join().unwrap() >= WHILE);
    });
    // The timeout has freed the request's tag, and the late completion must not complete another request.
    let again = peer.open("log", Access::ReadWrite).unwrap().grant;
    for number in 0..200 {
        peer.write(again, 0, &pattern(number, 512)).unwrap();
    }
    assert_eq!(peer.read(again, 0, 512).unwrap(), pattern(199, 512));
}
