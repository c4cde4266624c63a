//! Effects of each kind of request, on memory and on a file.

use crate::peer::{Peer, Served, pattern};
use bywash_protocol::Access;
use bywash_protocol::layout::{FUA, GrantRange, Opcode, Status};

fn both(test: impl Fn(&mut Peer, &str)) {
    let served = Served::memory();
    test(&mut served.peer().with_channel(), "fast");
    let served = Served::file(16 << 20);
    test(&mut served.peer().with_channel(), "disk");
}

fn opened(peer: &Peer, volume: &str, device: &str, bytes: u64) -> u64 {
    peer.create(volume, device, bytes);
    peer.open(volume, Access::ReadWrite).unwrap().grant
}

#[test]
fn what_is_written_is_read() {
    both(|peer, device| {
        let grant = opened(peer, "log", device, 1 << 20);
        assert_eq!(peer.read(grant, 0, 4096).unwrap(), vec![0; 4096]);
        for (offset, length) in [(0, 512), (4096, 4096), (8192, 128 << 10), (1 << 19, 1 << 19)] {
            let data = pattern(offset, length);
            peer.write(grant, offset, &data).unwrap();
            assert_eq!(peer.read(grant, offset, length).unwrap(), data, "{device} {offset} {length}");
        }
        peer.plain(Opcode::Flush, grant, 0, 0).unwrap();
        peer.done(Opcode::Write, FUA, [grant, 0, 512, 0, 0, 0], Some(&pattern(9, 512))).unwrap();
        assert_eq!(peer.read(grant, 0, 512).unwrap(), pattern(9, 512));
        // A request of several slices: nothing is lost or written twice.
        let long = pattern(77, (1 << 20) - 512);
        peer.write(grant, 512, &long).unwrap();
        assert_eq!(peer.read(grant, 512, long.len()).unwrap(), long);
    });
}

#[test]
fn zeroes_and_discards() {
    both(|peer, device| {
        let grant = opened(peer, "zeroes", device, 1 << 20);
        peer.write(grant, 0, &pattern(1, 1 << 20)).unwrap();
        peer.plain(Opcode::WriteZeroes, grant, 4096, (1 << 20) - 8192).unwrap();
        let bytes = peer.read(grant, 0, 1 << 20).unwrap();
        assert_eq!(bytes[..4096], pattern(1, 1 << 20)[..4096]);
        assert!(bytes[4096..(1 << 20) - 4096].iter().all(|byte| *byte == 0));
        assert_eq!(bytes[(1 << 20) - 4096..], pattern(1, 1 << 20)[(1 << 20) - 4096..]);
        peer.done(Opcode::WriteZeroes, FUA, [grant, 0, 4096, 0, 0, 0], None).unwrap();
        assert_eq!(peer.read(grant, 0, 4096).unwrap(), vec![0; 4096]);
        peer.plain(Opcode::Discard, grant, 0, 1 << 20).unwrap();
        // A discarded range may read as anything, but still belongs to the volume.
        peer.write(grant, 0, &pattern(3, 512)).unwrap();
        assert_eq!(peer.read(grant, 0, 512).unwrap(), pattern(3, 512));
    });
}

#[test]
fn a_sector_is_compared_and_written() {
    both(|peer, device| {
        let granted = {
            peer.create("sector", device, 1 << 20);
            peer.open("sector", Access::ReadWrite).unwrap()
        };
        let (grant, block) = (granted.grant, granted.block as usize);
        let (old, new) = (vec![0; block], pattern(5, block));
        let both = |one: &[u8], other: &[u8]| [one, other].concat();
        let at = [grant, block as u64, block as u64, 0, 0, 0];
        peer.done(Opcode::CompareAndWrite, 0, at, Some(&both(&old, &new))).unwrap();
        assert_eq!(peer.read(grant, block as u64, block).unwrap(), new);
        let again = peer.done(Opcode::CompareAndWrite, FUA, at, Some(&both(&old, &new)));
        assert_eq!(again, Err(Status::Mismatch));
        peer.done(Opcode::CompareAndWrite, FUA, at, Some(&both(&new, &old))).unwrap();
        assert_eq!(peer.read(grant, block as u64, block).unwrap(), old);
        let two = [grant, 0, 2 * block as u64, 0, 0, 0];
        let refused = peer.done(Opcode::CompareAndWrite, 0, two, Some(&vec![0; 4 * block]));
        assert_eq!(refused, Err(Status::Malformed));
    });
}

#[test]
fn several_grants_in_one_request() {
    both(|peer, device| {
        let log = opened(peer, "one", device, 1 << 20);
        let pages = opened(peer, "other", device, 1 << 20);
        let pieces = [
            GrantRange { grant: log, offset: 4096, length: 512 },
            GrantRange { grant: pages, offset: 8192, length: 8192 },
            GrantRange { grant: log, offset: 0, length: 4096 },
        ];
        let head: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_bytes()).collect();
        let data = pattern(11, 512 + 8192 + 4096);
        let all = [head.as_slice(), &data].concat();
        let (status, value, _) = peer.request(Opcode::WriteRanges as u8, FUA, [3, 0, 0, 0, 0, 0], Some(&all));
        assert_eq!((status, value), (Status::Success, data.len() as u64));
        assert_eq!(peer.read(log, 4096, 512).unwrap(), data[..512]);
        assert_eq!(peer.read(pages, 8192, 8192).unwrap(), data[512..8704]);
        assert_eq!(peer.read(log, 0, 4096).unwrap(), data[8704..]);
        let empty = [head.as_slice(), &vec![0; data.len()]].concat();
        let (status, _, bytes) = peer.request(Opcode::ReadRanges as u8, 0, [3, 0, 0, 0, 0, 0], Some(&empty));
        assert_eq!((status, &bytes[head.len()..]), (Status::Success, &data[..]));
        // The refused piece is named, and the other pieces are not written.
        let bad = [pieces[0], GrantRange { grant: pages, offset: 1 << 30, length: 512 }];
        let head: Vec<u8> = bad.iter().flat_map(|piece| piece.to_bytes()).collect();
        let all = [head.as_slice(), &vec![0xaa; 1024]].concat();
        let (status, value, _) = peer.request(Opcode::WriteRanges as u8, 0, [2, 0, 0, 0, 0, 0], Some(&all));
        assert_eq!((status, value), (Status::OutOfBounds, 1));
        assert_eq!(peer.read(log, 4096, 512).unwrap(), data[..512]);
    });
}

#[test]
fn many_are_in_flight() {
    both(|peer, device| {
        let grant = opened(peer, "deep", device, 4 << 20);
        let channel = peer.channel.as_mut().unwrap();
        let (mut next, mut done) = (0u64, 0u64);
        while done < 2000 {
            while next < 2000 && channel.in_flight() < 64 {
                let mut buffer = channel.alloc(4096).unwrap();
                buffer.write(0, &pattern(next, 4096));
                let at = [grant, next % 1024 * 4096, 4096, 0, 0, 0];
                let submission = bywash_channel::Submission::new(Opcode::Write as u8);
                channel.submit(submission.arguments(at).buffer(buffer)).unwrap();
                next += 1;
            }
            let completion = channel.reap_within(crate::peer::LIMIT).unwrap();
            assert_eq!((completion.status, completion.value), (0, 4096));
            done += 1;
        }
        // Blocks that were written twice and never had two writes in flight.
        for number in [1024u64, 1500, 1999] {
            let found = peer.read(grant, number % 1024 * 4096, 4096).unwrap();
            assert_eq!(found, pattern(number, 4096));
        }
    });
}

#[test]
fn nothing_is_asked_for_and_nothing_is_done() {
    let served = Served::memory();
    let mut peer = served.peer().with_channel();
    let grant = opened(&peer, "none", "fast", 2 << 20);
    assert_eq!(
        peer.request(Opcode::Discard as u8, 0, [grant, 0, 0, 0, 0, 0], None),
        (Status::Success, 0, vec![])
    );
    assert_eq!(peer.request(Opcode::Write as u8, 0, [grant, 2 << 20, 0, 0, 0, 0], None).0, Status::Success);
    assert_eq!(
        peer.request(Opcode::Write as u8, 0, [grant, 4 << 20, 0, 0, 0, 0], None).0,
        Status::OutOfBounds
    );
}
