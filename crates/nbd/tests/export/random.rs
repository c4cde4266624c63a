//! Random clients: those that keep to the protocol, against a model of the disk; and those that send anything.

use crate::client::*;
use crate::held::HeldDevice;
use crate::served::{Served, devices, memory};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Bytes of the disk that the clients of the model use.
const USED: usize = 256 << 10;

#[derive(Clone, Debug)]
enum Step {
    Read(usize, usize),
    Write(usize, usize, u8, bool),
    Zero(usize, usize, u16),
    Flush,
    Status(usize, usize),
}

fn range() -> impl Strategy<Value = (usize, usize)> {
    (0..USED / 512, prop_oneof![4 => 1..9usize, 1 => 1..200usize])
        .prop_map(|(first, count)| (first * 512, count.min(USED / 512 - first) * 512))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => range().prop_map(|(offset, length)| Step::Read(offset, length)),
        4 => (range(), any::<u8>(), any::<bool>())
            .prop_map(|((offset, length), byte, is_durable)| Step::Write(offset, length, byte, is_durable)),
        2 => (range(), 0..4u16).prop_map(|((offset, length), flags)| Step::Zero(offset, length, flags)),
        1 => Just(Step::Flush),
        1 => range().prop_map(|(offset, length)| Step::Status(offset, length)),
    ]
}

/// Sends all steps at once, in batches whose requests do not overlap in time, and checks every reply.
fn follow(client: &mut Client, model: &mut [u8], steps: &[Step]) {
    for batch in steps.chunks(8) {
        let mut expected = HashMap::new();
        let mut touched: Vec<(usize, usize)> = Vec::new();
        for (cookie, step) in batch.iter().enumerate() {
            let (offset, length) = match *step {
                Step::Read(offset, length) | Step::Write(offset, length, ..) => (offset, length),
                Step::Zero(offset, length, _) | Step::Status(offset, length) => (offset, length),
                Step::Flush => (0, 0),
            };
            // Requests in flight that overlap take effect in any order, so they are left out.
            if touched.iter().any(|(from, bytes)| offset < from + bytes && *from < offset + length) {
                continue;
            }
            touched.push((offset, length));
            let header = |kind, flags| request(kind, flags, cookie as u64, offset as u64, length as u32);
            let here = &mut model[offset..offset + length];
            let mut data = None;
            match *step {
                Step::Read(..) => {
                    client.send(&header(READ, 0));
                    data = Some(here.to_vec());
                }
                Step::Write(.., byte, is_durable) => {
                    here.fill(byte);
                    client.send(&[&header(WRITE, u16::from(is_durable))[..], here].concat());
                }
                Step::Zero(_, _, flags) => {
                    here.fill(0);
                    client.send(&header(WRITE_ZEROES, flags));
                }
                Step::Flush => client.send(&header(FLUSH, 0)),
                Step::Status(..) => {
                    client.send(&header(BLOCK_STATUS, 0));
                    data = Some(vec![]);
                }
            }
            expected.insert(cookie as u64, data);
        }
        while !expected.is_empty() {
            check_reply(client, &mut expected);
        }
    }
}

fn check_reply(client: &mut Client, expected: &mut HashMap<u64, Option<Vec<u8>>>) {
    let magic = client.take(4);
    if magic == [0x67, 0x44, 0x66, 0x98] {
        let rest = client.take(12);
        assert_eq!(rest[..4], [0; 4]);
        let cookie = u64::from_be_bytes(rest[4..].try_into().unwrap());
        if let Some(data) = expected.remove(&cookie).unwrap() {
            assert!(!client.is_structured);
            assert_eq!(client.take(data.len()), data);
        }
        return;
    }
    let head = client.take(16);
    assert_eq!(head[..2], [0, 1], "the last chunk");
    let length = u32::from_be_bytes(head[12..].try_into().unwrap());
    let payload = client.take(length as usize);
    let data = expected.remove(&u64::from_be_bytes(head[4..12].try_into().unwrap())).unwrap().unwrap();
    match head[3] {
        1 => assert!(payload[8..] == data),
        kind => assert_eq!((kind, payload.len(), data.len()), (5, 12, 0)),
    }
}

#[test]
fn every_device_is_like_its_model() {
    let config = ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in prop::collection::vec(step(), 1..200))| {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        for (_, device) in devices(&folder) {
            let served = Served::one(device);
            let mut model = vec![0; USED];
            // Two connections in turn: what one has completed the other sees.
            let mut clients = [served.structured(), served.structured()];
            for (turn, steps) in steps.chunks(40).enumerate() {
                follow(&mut clients[turn % 2], &mut model, steps);
            }
            assert!(clients[0].read(0, USED) == model);
        }
        let (device, control) = HeldDevice::new(3, 1024);
        control.flow(true);
        let served = Served::one(device);
        let mut model = vec![0; USED];
        follow(&mut served.structured(), &mut model, &steps);
        assert!(served.structured().read(0, USED) == model);
    });
}

/// Message of a step that is carried out at once, so that replies come in the order of requests.
fn message(step: &Step, cookie: u64) -> Vec<u8> {
    let header = |kind, flags, offset: usize, length: usize| {
        request(kind, flags, cookie, offset as u64, length as u32)
    };
    match *step {
        Step::Read(offset, length) => header(READ, 0, offset, length),
        Step::Write(offset, length, byte, is_durable) => {
            [header(WRITE, u16::from(is_durable), offset, length), vec![byte; length]].concat()
        }
        Step::Zero(offset, length, _) => header(WRITE_ZEROES, 0, offset, length),
        Step::Flush => header(FLUSH, 0, 0, 0),
        Step::Status(offset, length) => header(BLOCK_STATUS, 0, offset, length),
    }
}

/// Sends `bytes` to a new disk in pieces that end at `cuts`, and returns all that its server sends.
fn converse(bytes: &[u8], cuts: &[usize]) -> Vec<u8> {
    let served = Served::one(memory());
    let mut stream = UnixStream::connect(served.path()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut receiving = stream.try_clone().unwrap();
    let receiver = std::thread::spawn(move || {
        let mut all = Vec::new();
        receiving.read_to_end(&mut all).unwrap();
        all
    });
    let mut from = 0;
    for to in cuts.iter().copied().chain([bytes.len()]) {
        stream.write_all(&bytes[from..to]).unwrap();
        // The server mostly receives what has come by now.
        std::thread::sleep(Duration::from_micros(300));
        from = to;
    }
    receiver.join().unwrap()
}

#[test]
fn messages_may_come_in_any_pieces() {
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() };
    let cuts = || prop::collection::vec(any::<prop::sample::Index>(), 0..20);
    proptest!(config, |(steps in prop::collection::vec(step(), 1..20), cuts in cuts(), is_structured in any::<bool>())| {
        let mut bytes = 3u32.to_be_bytes().to_vec();
        if is_structured {
            bytes.extend(option(STRUCTURED_REPLY, b""));
        }
        bytes.extend(option(GO, &go("disk")));
        for (cookie, step) in steps.iter().enumerate() {
            bytes.extend(message(step, cookie as u64));
        }
        bytes.extend(request(DISC, 0, 0, 0, 0));
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        prop_assert!(converse(&bytes, &cuts) == converse(&bytes, &[]));
    });
}

#[derive(Clone, Debug)]
enum Piece {
    Flags(u32),
    Option(u32, Vec<u8>),
    Go,
    Structured,
    Request(u16, u16, u64, u32),
    Payload(u16),
    Bytes(Vec<u8>),
}

fn piece() -> impl Strategy<Value = Piece> {
    let word = prop_oneof![Just(0), Just(512), Just(4096), Just(1 << 20), any::<u32>()];
    let offset = prop_oneof![Just(0), Just(512), Just((8 << 20) - 512), Just(8 << 20), any::<u64>()];
    prop_oneof![
        4 => prop_oneof![Just(3u32), any::<u32>()].prop_map(Piece::Flags),
        2 => (0..12u32, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(number, data)| Piece::Option(number, data)),
        4 => Just(Piece::Go),
        1 => Just(Piece::Structured),
        8 => (0..9u16, prop_oneof![Just(0), 0..32u16], offset, word)
            .prop_map(|(kind, flags, offset, length)| Piece::Request(kind, flags, offset, length)),
        2 => any::<u16>().prop_map(Piece::Payload),
        1 => prop::collection::vec(any::<u8>(), 0..60).prop_map(Piece::Bytes),
    ]
}

#[test]
fn no_message_harms_the_server() {
    let served = Served::one(memory());
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(pieces in prop::collection::vec(piece(), 0..24), is_good in any::<bool>())| {
        let mut stream = UnixStream::connect(served.path()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = Vec::new();
        if is_good {
            bytes.extend(3u32.to_be_bytes());
            bytes.extend(option(GO, &go("disk")));
        }
        for piece in &pieces {
            match piece {
                Piece::Flags(flags) => bytes.extend(flags.to_be_bytes()),
                Piece::Option(number, data) => bytes.extend(option(*number, data)),
                Piece::Go => bytes.extend(option(GO, &go("disk"))),
                Piece::Structured => bytes.extend(option(STRUCTURED_REPLY, b"")),
                Piece::Request(kind, flags, offset, length) => {
                    bytes.extend(request(*kind, *flags, 1, *offset, *length));
                }
                Piece::Payload(count) => bytes.resize(bytes.len() + usize::from(*count), 0),
                Piece::Bytes(some) => bytes.extend(some),
            }
        }
        let mut receiving = stream.try_clone().unwrap();
        let receiver = std::thread::spawn(move || {
            let mut sink = Vec::new();
            // A reset is as good an end as any.
            let _ = receiving.read_to_end(&mut sink);
        });
        // The server may have closed the connection by now.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        receiver.join().unwrap();
        served.check();
    });
    served.wait_until(|stats| stats.connected == 0);
}
