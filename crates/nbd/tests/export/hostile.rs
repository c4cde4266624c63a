//! Tests of clients that break the protocol, are slow, or disappear. Others are served meanwhile.

use crate::client::*;
use crate::held::HeldDevice;
use crate::served::{BYTES, Served, memory};
use bywash_nbd::{Disk, Options};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn impatient() -> Served {
    let options = Options::new().progress_timeout(Duration::from_secs(1));
    Served::new(vec![Disk::new("disk", memory())], options)
}

#[test]
fn messages_that_break_the_protocol_end_the_connection_alone() {
    let served = Served::one(memory());
    let mut other = served.structured();
    let long = |number: u32, length: u32| [&option(number, b"")[..12], &length.to_be_bytes()].concat();
    for (bytes, reason) in [
        (8u32.to_be_bytes().to_vec(), "unknown bits"),
        ([&3u32.to_be_bytes()[..], b"IHAVEOPX", &[0; 8]].concat(), "magic number"),
        ([&3u32.to_be_bytes()[..], &option(EXPORT_NAME, b"x")].concat(), "no export 'x'"),
        ([&3u32.to_be_bytes()[..], &long(LIST, u32::MAX)].concat(), "bytes of data"),
        ([&3u32.to_be_bytes()[..], &long(EXPORT_NAME, 1 << 20)].concat(), "bytes of data"),
        ([&0u32.to_be_bytes()[..], &option(LIST, b"")].concat(), "fixed newstyle"),
    ] {
        let mut client = Client::greeted(&served.path());
        client.send(&bytes);
        assert_eq!(client.rest(), b"", "{reason}");
        let told = served.cut_off();
        assert!(told.contains(reason), "{told}");
    }
    for (bytes, reason) in [
        (vec![0; 28], "magic number"),
        (request(READ, 0, 0, 0, 512)[1..].repeat(2), "magic number"),
        (request(WRITE, 0, 0, 0, (32 << 20) + 512), "bytes of payload"),
        (request(WRITE, 0, 0, u64::MAX, u32::MAX), "bytes of payload"),
        // An option after the handshake.
        (option(LIST, &[0; 12]), "magic number"),
    ] {
        let mut client = served.simple();
        client.send(&bytes);
        assert_eq!(client.rest(), b"", "{reason}");
        let told = served.cut_off();
        assert!(told.contains(reason), "{told}");
    }
    assert_eq!(other.read(0, 512), [0; 512]);
    assert_eq!(served.stats().cut_off, 11);
    served.check();
}

#[test]
fn a_write_of_which_a_part_has_come_has_no_effect() {
    let served = Served::one(memory());
    let mut other = served.simple();
    for (length, sent) in [(4096u32, 0), (4096, 4095), (1 << 20, 300_000), (32 << 20, 1 << 20)] {
        let length = length.min(BYTES as u32);
        let mut client = served.simple();
        client.send(&request(WRITE, 0, 1, 0, length));
        client.send(&vec![9; sent]);
        drop(client);
        served.wait_until(|stats| stats.connected == 1);
        assert_eq!(other.read(0, 4096), [0; 4096], "{sent} of {length}");
    }
    assert_eq!(served.stats().cut_off, 0);
}

#[test]
fn a_client_that_disappears_leaves_its_requests_to_complete() {
    let (device, control) = HeldDevice::new(64, 1 << 20);
    let served = Served::one(device);
    for round in 1..=3 {
        let mut client = served.simple();
        for number in 0..10u64 {
            client.send(&[&request(WRITE, 0, 1, number * 512, 512)[..], &[round; 512]].concat());
            client.send(&request(READ, 0, 1, 4096, 65536));
        }
        control.wait_for(20);
        drop(client);
        // Its place is taken by another client before its requests have completed.
        let mut next = served.simple();
        next.send(&request(READ, 0, 5, 0, 512));
        control.wait_for(21);
        control.flow(true);
        assert_eq!(next.reply(), (0, 5));
        assert_eq!(next.take(512), [round; 512]);
        control.flow(false);
        drop(next);
        served.wait_until(|stats| stats.connected == 0);
    }
}

#[test]
fn a_client_that_does_not_go_on_is_cut_off() {
    let served = impatient();
    let mut idle = served.simple();
    for (messages, reason) in [
        (vec![], "the handshake"),
        (3u32.to_be_bytes().to_vec(), "the handshake"),
        ([&3u32.to_be_bytes()[..], b"IHAVE"].concat(), "the handshake"),
    ] {
        let mut client = Client::greeted(&served.path());
        client.send(&messages);
        assert_eq!(client.rest(), b"");
        let told = served.cut_off();
        assert!(told.contains(reason), "{told}");
    }
    for part in [request(READ, 0, 1, 0, 512)[..27].to_vec(), request(WRITE, 0, 1, 0, 1 << 20)] {
        let mut client = served.simple();
        client.send(&part);
        assert_eq!(client.rest(), b"");
        let told = served.cut_off();
        assert!(told.contains("the rest of a message"), "{told}");
    }
    // A client without anything to do may be silent.
    assert_eq!(idle.read(0, 512), [0; 512]);
}

#[test]
fn a_client_that_does_not_receive_is_bounded_and_cut_off() {
    let served = impatient();
    let stream = UnixStream::connect(served.path()).unwrap();
    let mut slow = Client::over(stream.try_clone().unwrap());
    slow.send(&3u32.to_be_bytes());
    slow.go("disk");
    stream.set_nonblocking(true).unwrap();
    let requests = request(READ, 0, 1, 0, 1 << 20).repeat(1000);
    let sent = std::io::Write::write(&mut &stream, &requests).unwrap();
    assert!(sent > 28 * 40, "{sent}");
    // Meanwhile others are served, with memory of their own.
    let began = Instant::now();
    let mut other = served.structured();
    let data = vec![5; 4 << 20];
    assert_eq!(other.write(0, 0, &data), 0);
    assert_eq!(other.read(0, data.len()), data);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let told = served.cut_off();
    assert!(told.contains("receive replies"), "{told}");
    let stats = served.stats();
    assert!(stats.memory_bytes_max <= (32 << 20) + (8 << 20), "{stats:?}");
    served.check();
}

#[test]
fn a_slow_client_gets_everything_if_it_goes_on() {
    let served = Served::one(memory());
    let mut client = served.structured();
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 512 % 251) as u8).collect();
    assert_eq!(client.write(0, 0, &data), 0);
    // As many as the socket takes of both, which is more than the depth.
    client.send(&request(READ, 0, 1, 0, 64 << 10).repeat(300));
    std::thread::sleep(Duration::from_millis(200));
    for _ in 0..300 {
        assert_eq!(client.chunk().payload[8..], data[..64 << 10]);
    }
}

/// The client that waits is the first of three, which are looked at in order; memory comes back behind it, and after that
/// nothing happens any more.
#[test]
fn a_client_that_waits_for_memory_goes_on_when_others_give_it_back() {
    let (device, control) = HeldDevice::sized(32 << 20, 64, 16 << 20);
    let options = Options::new().memory_bytes_max(64 << 20);
    let served = Served::new(vec![Disk::new("disk", device)], options);
    let mut first = served.simple();
    let mut others = [served.simple(), served.simple()];
    let data = vec![7; 32 << 20];
    for client in &mut others {
        client.send(&[&request(WRITE, 0, 1, 0, 32 << 20)[..], &data].concat());
    }
    control.wait_for(4);
    first.send(&request(READ, 0, 2, 4096, 2 << 20));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(control.held(), 4, "all memory is in use");
    control.flow(true);
    assert_eq!(first.reply(), (0, 2));
    assert_eq!(first.take(2 << 20), data[..2 << 20]);
    for client in &mut others {
        assert_eq!(client.reply(), (0, 1));
    }
}

#[test]
fn clients_beyond_the_limit_wait() {
    let served = Served::new(vec![Disk::new("disk", memory())], Options::new().clients_max(2));
    let mut first = served.simple();
    let second = served.simple();
    let path = served.path();
    let third = std::thread::spawn(move || Client::simple(&path, "disk").read(0, 512));
    assert_eq!(first.read(0, 512), [0; 512]);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!third.is_finished());
    drop(second);
    assert_eq!(third.join().unwrap(), [0; 512]);
}

#[test]
fn descriptors_are_not_taken() {
    let served = Served::one(memory());
    let mut client = served.simple();
    let stream = UnixStream::connect(served.path()).unwrap();
    let passed = [stream.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&passed)));
    match sendmsg(&stream, &[IoSlice::new(b"\0")], &mut control, SendFlags::empty()) {
        // The kernel refuses them from Linux 6.16 on.
        Err(error) => assert_eq!(error, rustix::io::Errno::PERM),
        Ok(_) => assert!(served.cut_off().contains("descriptors")),
    }
    assert_eq!(client.read(0, 512), [0; 512]);
}

/// Whenever a check looks, a half of a request is there; between two checks there are moments with none.
#[test]
fn a_client_that_goes_on_between_checks_stays() {
    let served = impatient();
    let mut client = served.simple();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(3500) {
        let request = request(READ, 0, 1, 0, 512);
        client.send(&request[..14]);
        std::thread::sleep(Duration::from_millis(200));
        client.send(&request[14..]);
        assert_eq!((client.reply(), client.take(512)), ((0, 1), vec![0; 512]));
    }
    assert_eq!(served.stats().cut_off, 0);
}
