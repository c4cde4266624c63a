//! Clients that break the protocol, disconnect midway, or exceed their limits: they are refused and counted,
//! and other clients notice nothing.

use crate::by_hand::{ByHand, WORDS};
use crate::peer::{LIMIT, Peer, Served, pattern};
use bywash_channel::{Options as ChannelOptions, Submission, Wait};
use bywash_link::{Messages, connect, socket_pair};
use bywash_protocol::layout::{GRANT_RANGES_MAX, GrantRange, Opcode, Status};
use bywash_protocol::{Access, ControlReply, ControlRequest, MESSAGE_BYTES_MAX, RefusalKind, VERSION};
use bywash_support::peers::{Random, offered, rounds, send};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

#[test]
fn places_and_lengths_that_are_none() {
    let served = Served::memory();
    let mut peer = served.peer().with_channel();
    peer.create("log", "fast", 2 << 20);
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    let end = 2u64 << 20;
    for (offset, length, status) in [
        (end, 512, Status::OutOfBounds),
        (end - 512, 1024, Status::OutOfBounds),
        (u64::MAX - 511, 512, Status::OutOfBounds),
        (u64::MAX, 512, Status::OutOfBounds),
        (1 << 63, 512, Status::OutOfBounds),
        (1, 512, Status::Malformed),
        (0, 511, Status::Malformed),
        (511, 1, Status::Malformed),
    ] {
        let data = vec![1; length as usize];
        assert_eq!(peer.write(grant, offset, &data), Err(status), "{offset} {length}");
        assert_eq!(peer.plain(Opcode::WriteZeroes, grant, offset, length), Err(status), "{offset} {length}");
    }
    for length in [u64::MAX, 1 << 63, end + 512] {
        assert_eq!(peer.plain(Opcode::Discard, grant, 0, length), Err(Status::OutOfBounds), "{length}");
    }
    assert_eq!(peer.read(grant, 0, 4096).unwrap(), vec![0; 4096]);
}

#[test]
fn pieces_that_are_none() {
    let served = Served::memory();
    let mut peer = served.peer().with_channel();
    peer.create("log", "fast", 2 << 20);
    let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
    let mut send = |count: u64, pieces: &[GrantRange], data: usize| {
        let mut bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_bytes()).collect();
        bytes.resize(bytes.len() + data, 9);
        let (status, value, _) =
            peer.request(Opcode::WriteRanges as u8, 0, [count, 0, 0, 0, 0, 0], Some(&bytes));
        (status, value)
    };
    let piece = |offset, length| GrantRange { grant, offset, length };
    assert_eq!(send(2, &[piece(0, 512), piece(512, 512)], 512), (Status::Malformed, 1));
    assert_eq!(send(1, &[piece(0, 512)], 1024), (Status::Malformed, 1));
    assert_eq!(send(1, &[piece(0, u64::MAX)], 1024), (Status::Malformed, 0));
    assert_eq!(send(2, &[piece(0, 512), piece(u64::MAX - 511, 512)], 1024), (Status::OutOfBounds, 1));
    assert_eq!(send(0, &[], 64), (Status::Malformed, 0));
    assert_eq!(send(GRANT_RANGES_MAX as u64 + 1, &[piece(0, 512)], 4096), (Status::Malformed, 0));
    let other = GrantRange { grant: grant + (1 << 32), offset: 0, length: 512 };
    assert_eq!(send(2, &[piece(0, 512), other], 1024), (Status::NoGrant, 1));
    assert_eq!(peer.read(grant, 0, 512).unwrap(), vec![0; 512]);
}

/// Random requests from one client, while another writes and reads correctly.
#[test]
fn rubbish_is_refused_and_nobody_else_notices() {
    let served = Served::memory();
    let mut good = served.peer().with_channel();
    good.create("good", "fast", 2 << 20);
    good.create("bad", "fast", 2 << 20);
    let own = good.open("good", Access::ReadWrite).unwrap().grant;
    let mut bad = served.peer().with_channel();
    let theirs = bad.open("bad", Access::ReadWrite).unwrap().grant;
    let mut random = Random::seeded("rubbish_is_refused_and_nobody_else_notices");
    for round in 0..rounds(3000) {
        let mut number = || random.number();
        let mut arguments = [0u64; 6];
        for argument in &mut arguments {
            *argument = match number() % 5 {
                0 => number(),
                1 => number() % 8,
                2 => theirs,
                3 => number() % 64 * 512,
                _ => 0,
            };
        }
        let (opcode, flags) = (number() as u8 % 12, (number() % 3) as u8);
        let data: Vec<u8> = (0..number() % 4 * 512).map(|_| number() as u8).collect();
        bad.request(opcode, flags, arguments, (!data.is_empty()).then_some(data.as_slice()));
        if round % 50 == 0 {
            let data = pattern(round, 4096);
            good.write(own, round % 512 * 4096, &data).unwrap();
            assert_eq!(good.read(own, round % 512 * 4096, 4096).unwrap(), data);
        }
    }
    let status = served.status();
    let refusals =
        |number: u64| status.clients.iter().find(|client| client.client == number).unwrap().counts.refusals;
    assert!(refusals(bad.number) > 1000);
    assert_eq!(refusals(good.number), 0);
}

#[test]
fn messages_that_are_none() {
    let served = Served::memory();
    for bytes in [&b"rubbish"[..], b"{}", b"{\"ask\":\"open\"}", &[0xff; 64], &[0; MESSAGE_BYTES_MAX + 1]] {
        let messages = Messages::over(connect(&served.socket).unwrap(), MESSAGE_BYTES_MAX);
        messages.send(bytes, &[], LIMIT).unwrap();
        let answer = ControlReply::from_bytes(&messages.receive(LIMIT).unwrap().bytes).unwrap();
        assert!(
            matches!(&answer, ControlReply::Refused(refused) if refused.code == RefusalKind::Malformed),
            "{answer:?}"
        );
        assert!(matches!(messages.receive(LIMIT), Err(bywash_link::Error::Closed)));
    }
    assert!(served.status().clients_refused >= 5);
}

#[test]
fn hello_comes_first_and_once() {
    let served = Served::memory();
    let messages = Messages::over(connect(&served.socket).unwrap(), MESSAGE_BYTES_MAX);
    let ask = |ask: ControlRequest| match crate::peer::ask(&messages, &ask, &[]).0 {
        ControlReply::Refused(refused) => refused.code,
        answer => panic!("{answer:?}"),
    };
    assert_eq!(ask(ControlRequest::Volumes {}), RefusalKind::Malformed);
    assert_eq!(
        ask(ControlRequest::Hello { version: VERSION + 1, name: String::new() }),
        RefusalKind::Version
    );
    assert_eq!(ask(ControlRequest::Hello { version: VERSION, name: "\n".into() }), RefusalKind::Malformed);
    let peer = served.peer();
    let again = peer.ask(ControlRequest::Hello { version: VERSION, name: "again".into() }).unwrap_err();
    assert_eq!(again.code, RefusalKind::Malformed);
    // Only messages that need a descriptor may have one attached.
    let (one, _other) = socket_pair().unwrap();
    assert_eq!(
        peer.ask_with(ControlRequest::Volumes {}, &[one.as_fd()]).unwrap_err().code,
        RefusalKind::Malformed
    );
    assert_eq!(peer.ask(ControlRequest::SetUpChannel {}).unwrap_err().code, RefusalKind::Malformed);
}

#[test]
fn a_channel_that_does_not_come_about_holds_nobody_up() {
    let served = Served::memory();
    // Sockets whose other end is silent, or is no end of a channel.
    let silent: Vec<(Peer, _)> = (0..8)
        .map(|_| {
            let peer = served.peer();
            let (here, there) = socket_pair().unwrap();
            peer.messages
                .send(&ControlRequest::SetUpChannel {}.to_bytes().unwrap(), &[there.as_fd()], LIMIT)
                .unwrap();
            (peer, here)
        })
        .collect();
    let null = std::fs::File::open("/dev/null").unwrap();
    let peer = served.peer();
    assert_eq!(
        peer.ask_with(ControlRequest::SetUpChannel {}, &[null.as_fd()]).unwrap_err().code,
        RefusalKind::Unfit
    );
    let began = Instant::now();
    let mut good = served.peer().with_channel();
    good.create("log", "fast", 1);
    let grant = good.open("log", Access::ReadWrite).unwrap().grant;
    good.write(grant, 0, &[1; 512]).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    drop(silent);
    // A client may have one channel, not two.
    let (_here, there) = socket_pair().unwrap();
    assert_eq!(
        good.ask_with(ControlRequest::SetUpChannel {}, &[there.as_fd()]).unwrap_err().code,
        RefusalKind::Limit
    );
}

/// As many handshakes of channels hang as one user may have at a time. The user's next channel waits until
/// one of them ends.
#[test]
fn a_user_does_not_open_all_channels_at_a_time() {
    let served = Served::memory();
    let ask = ControlRequest::SetUpChannel {}.to_bytes().unwrap();
    let mut silent: Vec<_> = (0..16)
        .map(|_| {
            let peer = served.peer();
            let (here, there) = socket_pair().unwrap();
            peer.messages.send(&ask, &[there.as_fd()], LIMIT).unwrap();
            (peer, here)
        })
        .collect();
    let next = served.peer();
    let next = std::thread::spawn(move || next.with_channel());
    std::thread::sleep(Duration::from_millis(300));
    assert!(!next.is_finished());
    let (peer, here) = silent.pop().unwrap();
    drop(here);
    let answer = ControlReply::from_bytes(&peer.messages.receive(LIMIT).unwrap().bytes).unwrap();
    assert!(matches!(answer, ControlReply::Refused(refused) if refused.code == RefusalKind::Unfit));
    let began = Instant::now();
    drop(next.join().unwrap());
    // The other handshakes expire only after ten seconds.
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// Descriptors that refer to the server itself: the client's own control socket, one socket for two channels,
/// the server's socket in the file system, the file of its device.
#[test]
fn descriptors_that_lead_back_are_no_harm() {
    let served = Served::file(4 << 20);
    let mut good = served.peer().with_channel();
    good.create("log", "disk", 1 << 20);
    let grant = good.open("log", Access::ReadWrite).unwrap().grant;
    let ask = ControlRequest::SetUpChannel {}.to_bytes().unwrap();
    let own = served.peer();
    let itself = own.messages.as_fd().try_clone_to_owned().unwrap();
    own.messages.send(&ask, &[itself.as_fd()], LIMIT).unwrap();
    let (here, there) = socket_pair().unwrap();
    let twins = [served.peer(), served.peer()];
    for twin in &twins {
        twin.messages.send(&ask, &[there.as_fd()], LIMIT).unwrap();
    }
    drop(there);
    let peer = served.peer();
    let (path, flags) = (&served.socket, rustix::fs::OFlags::PATH);
    let name = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap();
    for other in [name.as_fd(), peer.messages.as_fd(), here.as_fd()] {
        assert_eq!(
            peer.ask_with(ControlRequest::OpenDescriptor {}, &[other]).unwrap_err().code,
            RefusalKind::Unfit
        );
    }
    // A user who may open the device's file may write it anyway. It becomes one more device, which ends with
    // its grant.
    let path = served.folder.path().join("disk");
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    if let Ok((ControlReply::Granted(granted), _)) =
        peer.ask_with(ControlRequest::OpenDescriptor {}, &[file.as_fd()])
    {
        peer.ask(ControlRequest::Close { grant: granted.grant }).unwrap();
    }
    for round in 0..100 {
        good.write(grant, round % 64 * 4096, &pattern(round, 4096)).unwrap();
        assert_eq!(good.read(grant, round % 64 * 4096, 4096).unwrap(), pattern(round, 4096));
    }
    drop(here);
    for twin in &twins {
        let answer = ControlReply::from_bytes(&twin.messages.receive(LIMIT).unwrap().bytes).unwrap();
        assert!(matches!(answer, ControlReply::Refused(refused) if refused.code == RefusalKind::Unfit));
    }
    // The client is disconnected when the handshake over its own control socket has timed out.
    let end = Instant::now() + LIMIT;
    while !matches!(own.messages.receive(LIMIT), Err(bywash_link::Error::Closed)) {
        assert!(Instant::now() < end, "it is still there");
    }
    drop((own, itself, twins));
    served.until("they are gone", |status| status.clients.len() == 2 && status.devices.len() == 1);
}

/// Clients that send doorbells without end lose their channels, and another client does not wait.
#[test]
fn who_rings_all_the_time_is_not_heard() {
    let served = Served::memory();
    let mut good = served.peer().with_channel();
    good.create("log", "fast", 1);
    let grant = good.open("log", Access::ReadWrite).unwrap().grant;
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let liar = ByHand::over(served.peer(), &offered(1 << 16), 1 << 16).unwrap();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    send(&liar.socket, &[1], &[]);
                }
            });
        }
        let mut longest = Duration::ZERO;
        for round in 0..200 {
            let began = Instant::now();
            good.write(grant, 0, &pattern(round, 512)).unwrap();
            longest = longest.max(began.elapsed());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(longest < Duration::from_secs(2), "{longest:?}");
    });
}

#[test]
fn a_ring_with_rubbish_ends_that_channel_alone() {
    let served = Served::memory();
    let mut good = served.peer().with_channel();
    good.create("log", "fast", 1);
    let grant = good.open("log", Access::ReadWrite).unwrap().grant;
    let mut random = Random::seeded("a_ring_with_rubbish_ends_that_channel_alone");
    for round in 0..rounds(100) {
        let peer = served.peer();
        let theirs = peer.open("log", Access::ReadWrite).unwrap().grant;
        let liar = ByHand::over(peer, &offered(1 << 16), 1 << 16).unwrap();
        for _ in 0..50 {
            // Random words that are nearly valid: a turn, a tag, a grant, an offset.
            let word = match random.below(4) {
                0 => random.number(),
                1 => random.below(8) << 48 | random.below(10) << 32 | random.below(3),
                2 => theirs,
                _ => random.below(1 << 17),
            };
            liar.control.set(random.below(WORDS as u64) as usize, word);
        }
        good.write(grant, 0, &pattern(round, 4096)).unwrap();
        assert_eq!(good.read(grant, 0, 4096).unwrap(), pattern(round, 4096));
        drop(liar);
    }
    served.until("they are gone", |status| status.clients.len() == 1);
}

/// Clients that send messages without end do not keep another client from getting its replies.
#[test]
fn a_flood_of_messages_drowns_nobody() {
    let served = Served::memory();
    let good = served.peer();
    good.create("log", "fast", 1);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let peer = served.peer();
                let message = ControlRequest::Volumes {}.to_bytes().unwrap();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    // This client never receives its replies.
                    if peer.messages.send(&message, &[], Duration::from_millis(1)).is_err() {
                        break;
                    }
                }
            });
        }
        let began = Instant::now();
        for _ in 0..20 {
            let grant = good.open("log", Access::Read).unwrap().grant;
            good.ask(ControlRequest::Close { grant }).unwrap();
        }
        assert!(began.elapsed() < LIMIT / 2);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_client_that_is_gone_takes_its_own_with_it() {
    let served = Served::memory();
    let good = served.peer();
    good.create("log", "fast", 2 << 20);
    for round in 0..50u64 {
        let mut peer = served.peer();
        peer.make_channel(ChannelOptions::new().depth(16).arena_bytes(1 << 20).wait(Wait::Spin));
        let grant = peer.open("log", Access::ReadWrite).unwrap().grant;
        let channel = peer.channel.as_mut().unwrap();
        for number in 0..round % 16 {
            let buffer = channel.alloc(4096).unwrap();
            let at = [grant, number * 4096, 4096, 0, 0, 0];
            channel.submit(Submission::new(Opcode::Write as u8).arguments(at).buffer(buffer)).unwrap();
        }
    }
    served.until("they are gone", |status| status.clients.len() == 1);
    assert_eq!(served.status().clients[0].client, good.number);
}

/// A client that asks for chunks and does not receive the replies is disconnected before the server runs out
/// of descriptors.
#[test]
fn answers_that_nobody_takes_are_few() {
    let served = Served::memory();
    let peer = served.peer();
    peer.create("log", "fast", 16 << 20);
    let grant = peer.open("log", Access::Read).unwrap().grant;
    let message = ControlRequest::Map { grant, from: 0 }.to_bytes().unwrap();
    let mut asked = 0;
    while peer.messages.send(&message, &[], LIMIT).is_ok() {
        asked += 1;
        assert!(asked < 10_000, "nobody is thrown out");
    }
    served.until("it is thrown out", |status| status.clients_refused == 1);
    let mut taken = 0;
    while let Ok(packet) = peer.messages.receive(LIMIT) {
        taken += packet.descriptors.len();
    }
    assert!(taken < 1000, "{taken} descriptors waited");
}
