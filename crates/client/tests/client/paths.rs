//! Property tests: any sequence of operations on a volume, on every path, has the same effect as on a vector
//! of bytes.

use crate::model::BLOCK;
use crate::{BYTES, Bench, options};
use bywash_client::{
    Access, Client, Error, PathChoice, Queue, Range, ReadPiece, RequestMemory, VolumePath, WritePiece,
};
use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const BLOCKS: u64 = BYTES / BLOCK as u64;
const BLOCK_BYTES: usize = BLOCK as usize;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Read,
    Write,
    WriteDurable,
    Zero,
    Discard,
    CompareRight,
    CompareWrong,
    Flush,
    ReadMany,
    WriteMany,
}

fn operation() -> impl Strategy<Value = (Operation, u64, u64, u8)> {
    use Operation::*;
    let one = prop::sample::select(vec![
        Read,
        Write,
        WriteDurable,
        Zero,
        Discard,
        CompareRight,
        CompareWrong,
        Flush,
        ReadMany,
        WriteMany,
    ]);
    // The lengths are a few blocks, or many, so that ranges cross chunk boundaries.
    let blocks = prop_oneof![1..8u64, 100..300u64];
    (one, 0..BLOCKS, blocks, 1..=255u8).prop_map(|(one, at, blocks, byte)| {
        let blocks = blocks.min(BLOCKS - at);
        (one, at * u64::from(BLOCK), blocks * u64::from(BLOCK), byte)
    })
}

/// A volume, and the contents that it must have.
struct Checked {
    client: Client,
    volume: bywash_client::Volume,
    expected: Vec<u8>,
}

impl Checked {
    fn step(&mut self, (operation, offset, length, byte): (Operation, u64, u64, u8)) {
        let Checked { client, volume, expected } = self;
        let range = offset as usize..(offset + length) as usize;
        let contents: Vec<u8> = (0..length as usize).map(|at| byte.wrapping_add((at / 7) as u8)).collect();
        let first = offset as usize..offset as usize + BLOCK_BYTES;
        match operation {
            Operation::Read => {
                let mut bytes = vec![0; length as usize];
                volume.read_at(&mut bytes, offset).unwrap();
                assert!(bytes == expected[range], "what was read at {offset}");
            }
            Operation::Write => {
                volume.write_at(&contents, offset).unwrap();
                expected[range].copy_from_slice(&contents);
            }
            Operation::WriteDurable => {
                volume.write_at_durable(&contents, offset).unwrap();
                expected[range].copy_from_slice(&contents);
            }
            Operation::Zero => {
                volume.write_zeroes(offset, length).unwrap();
                expected[range].fill(0);
            }
            Operation::Discard => {
                // The model server sets discarded bytes to zero.
                volume.discard(offset, length).unwrap();
                expected[range].fill(0);
            }
            Operation::CompareRight => {
                let there = expected[first.clone()].to_vec();
                assert!(volume.compare_and_write(offset, &there, &contents[..BLOCK_BYTES]).unwrap());
                expected[first].copy_from_slice(&contents[..BLOCK_BYTES]);
            }
            Operation::CompareWrong => {
                let mut other = expected[first].to_vec();
                other[usize::from(byte)] ^= 1;
                assert!(!volume.compare_and_write(offset, &other, &contents[..BLOCK_BYTES]).unwrap());
            }
            Operation::Flush => volume.flush().unwrap(),
            Operation::ReadMany => {
                let (mut one, mut other) = (vec![0; length as usize], vec![0; BLOCK_BYTES]);
                let pieces = &mut [
                    ReadPiece { volume, offset, to: &mut one },
                    ReadPiece { volume, offset: 0, to: &mut other },
                ];
                client.read_many(pieces).unwrap();
                assert!(one == expected[range] && other == expected[..BLOCK_BYTES]);
            }
            Operation::WriteMany => {
                let last = BYTES as usize - BLOCK_BYTES;
                let pieces = [
                    WritePiece { volume, offset, from: &contents },
                    WritePiece { volume, offset: last as u64, from: &[byte; BLOCK_BYTES] },
                ];
                // Pieces that overlap are written in no particular order, so overlapping ones are left out.
                if range.end <= last {
                    client.write_many(&pieces).unwrap();
                    expected[range].copy_from_slice(&contents);
                    expected[last..].fill(byte);
                }
            }
        }
    }
}

/// Carries out the operation through a queue, one at a time, with a buffer of the arena or own memory by
/// turns.
fn step_queued(
    queue: &mut Queue,
    volume: bywash_client::VolumeId,
    expected: &mut [u8],
    (operation, offset, length, byte): (Operation, u64, u64, u8),
) {
    let range = offset as usize..(offset + length) as usize;
    let contents: Vec<u8> = (0..length as usize).map(|at| byte.wrapping_add((at / 7) as u8)).collect();
    let first = offset as usize..offset as usize + BLOCK_BYTES;
    let is_odd = byte & 1 == 1;
    match operation {
        Operation::Read => {
            let room: RequestMemory = match is_odd {
                true => queue.alloc(length as usize).unwrap().into(),
                false => vec![0; length as usize].into(),
            };
            queue.read(volume, offset, room, 5).unwrap();
            let done = queue.reap().unwrap();
            done.outcome.unwrap();
            let mut bytes = vec![0; length as usize];
            assert_eq!(done.memory.unwrap().read(0, &mut bytes), bytes.len());
            assert!(bytes == expected[range], "what was read at {offset}");
            return;
        }
        Operation::Write | Operation::WriteDurable if is_odd => {
            let mut buffer = queue.alloc(contents.len()).unwrap();
            buffer.write(0, &contents);
            queue.write(volume, offset, buffer, matches!(operation, Operation::WriteDurable), 5).unwrap();
            expected[range].copy_from_slice(&contents);
        }
        Operation::Write | Operation::WriteDurable => {
            queue.write_from(volume, offset, &contents, false, 5).unwrap();
            expected[range].copy_from_slice(&contents);
        }
        Operation::Zero => {
            queue.write_zeroes(volume, offset, length, false, 5).unwrap();
            expected[range].fill(0);
        }
        Operation::Discard => {
            queue.discard(volume, offset, length, 5).unwrap();
            expected[range].fill(0);
        }
        Operation::CompareRight => {
            let there = expected[first.clone()].to_vec();
            queue.compare_and_write(volume, offset, &there, &contents[..BLOCK_BYTES], 5).unwrap();
            expected[first].copy_from_slice(&contents[..BLOCK_BYTES]);
        }
        Operation::CompareWrong => {
            let mut other = expected[first].to_vec();
            other[usize::from(byte)] ^= 1;
            queue.compare_and_write(volume, offset, &other, &contents[..BLOCK_BYTES], 5).unwrap();
            assert!(matches!(queue.reap().unwrap().outcome, Err(Error::CompareFailed { .. })));
            return;
        }
        Operation::Flush => queue.flush(volume, 5).unwrap(),
        Operation::ReadMany => {
            let ranges = [
                Range { volume, offset, length: length as usize },
                Range { volume, offset: 0, length: BLOCK_BYTES },
            ];
            queue.read_many(&ranges, vec![0; length as usize + BLOCK_BYTES], 5).unwrap();
            let done = queue.reap().unwrap();
            done.outcome.unwrap();
            let Some(RequestMemory::Own(bytes)) = done.memory else { panic!("the room is gone") };
            assert!(bytes == [&expected[range], &expected[..BLOCK_BYTES]].concat());
            return;
        }
        Operation::WriteMany => {
            let last = BYTES as usize - BLOCK_BYTES;
            if range.end > last {
                return;
            }
            let pieces: [(_, _, &[u8]); 2] =
                [(volume, offset, &contents), (volume, last as u64, &[byte; BLOCK_BYTES])];
            queue.write_many(&pieces, false, 5).unwrap();
            expected[range].copy_from_slice(&contents);
            expected[last..].fill(byte);
        }
    }
    let done = queue.reap().unwrap();
    done.outcome.unwrap();
    assert_eq!(done.user_data, 5);
}

/// Paths to test: name of the volume, choice of the path, and true if the volume must then be mapped.
const WAYS: [(&str, PathChoice, bool); 3] = [
    ("fast", PathChoice::Automatic, true),
    ("fast", PathChoice::Channel, false),
    ("slow", PathChoice::Automatic, false),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn volumes_are_vectors(operations in prop::collection::vec(operation(), 1..60)) {
        for (name, choice, is_mapped) in WAYS {
            let bench = Bench::new();
            let client = Client::connect(&bench.socket, options(choice)).unwrap();
            let volume = client.open(name, Access::ReadWrite).unwrap();
            prop_assert_eq!(volume.path().is_mapped(), is_mapped);
            let mut checked = Checked { client, volume, expected: vec![0; BYTES as usize] };
            operations.iter().for_each(|one| checked.step(*one));
            prop_assert!(bench.world.contents(name) == checked.expected);
        }
    }

    #[test]
    fn queues_are_vectors(operations in prop::collection::vec(operation(), 1..60)) {
        for (name, choice, is_mapped) in WAYS {
            let bench = Bench::new();
            let mut queue = Queue::connect(&bench.socket, options(choice)).unwrap();
            let volume = queue.open(name, Access::ReadWrite).unwrap();
            prop_assert_eq!(queue.path(volume).unwrap().is_mapped(), is_mapped);
            let mut expected = vec![0; BYTES as usize];
            operations.iter().for_each(|one| step_queued(&mut queue, volume, &mut expected, *one));
            prop_assert!(bench.world.contents(name) == expected);
            prop_assert_eq!((queue.in_flight(), queue.lost_bytes()), (0, 0));
        }
    }
}

#[test]
fn a_queue_mixes_both_ways_and_many_requests() {
    let bench = Bench::new();
    let mut queue = Queue::connect(&bench.socket, options(PathChoice::Automatic)).unwrap();
    let fast = queue.open("fast", Access::ReadWrite).unwrap();
    let slow = queue.open("slow", Access::ReadWrite).unwrap();
    let why = VolumePath::Channel { why: "its device is a file".into() };
    assert_eq!((queue.path(fast).unwrap(), queue.path(slow).unwrap()), (VolumePath::Mapped, why));
    let (mut submitted, mut seen) = (0u64, vec![0u32; 400]);
    while submitted < 400 || queue.in_flight() > 0 {
        while submitted < 400 {
            let volume = if submitted.is_multiple_of(3) { slow } else { fast };
            let block = [submitted as u8; BLOCK_BYTES];
            match queue.write_from(volume, submitted * 512, &block, false, submitted) {
                Ok(()) => submitted += 1,
                Err(refused) => {
                    assert!(matches!(refused.error, Error::Full { depth: 8 }), "{refused}");
                    break;
                }
            }
        }
        assert!(queue.in_flight() <= queue.depth());
        queue
            .reap_each(3, |done| {
                done.outcome.unwrap();
                seen[done.user_data as usize] += 1;
            })
            .unwrap();
    }
    assert!(seen.iter().all(|times| *times == 1));
    assert!(matches!(queue.reap(), Err(Error::Idle)));
    let (fast, slow) = (bench.world.contents("fast"), bench.world.contents("slow"));
    for number in 0..400usize {
        let contents = if number.is_multiple_of(3) { &slow } else { &fast };
        assert_eq!(contents[number * 512], number as u8);
    }
}

#[test]
fn many_are_waited_for_at_once() {
    let bench = Bench::new();
    for (name, choice, _) in WAYS {
        let mut queue = Queue::connect(&bench.socket, options(choice)).unwrap();
        let volume = queue.open(name, Access::ReadWrite).unwrap();
        for round in 0..50 {
            for number in 0..8 {
                queue.write_from(volume, number * 512, &[round; 512], false, number).unwrap();
            }
            queue.wait_for(if round.is_multiple_of(2) { 5 } else { 99 }, Duration::from_secs(10)).unwrap();
            let least = if round.is_multiple_of(2) { 5 } else { 8 };
            for _ in 0..least {
                queue.try_reap().unwrap().expect("it was waited for").outcome.unwrap();
            }
            while queue.in_flight() > 0 {
                queue.reap().unwrap().outcome.unwrap();
            }
        }
        queue.wait_for(1, Duration::ZERO).unwrap();
    }
}

#[test]
fn a_file_that_is_passed_is_what_its_descriptor_allows() {
    let bench = Bench::new();
    let path = bench.folder.path().join("passed");
    std::fs::write(&path, vec![7; 8192]).unwrap();
    let client = Client::connect(&bench.socket, options(PathChoice::Automatic)).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let volume = client.open_descriptor(file.try_clone().unwrap()).unwrap();
    let mut bytes = [0; 512];
    volume.read_at(&mut bytes, 512).unwrap();
    assert_eq!((bytes, volume.len(), volume.access()), ([7; 512], 8192, Access::ReadWrite));
    volume.write_at(&[8; 512], 1024).unwrap();
    file.read_exact_at(&mut bytes, 1024).unwrap();
    assert_eq!(bytes, [8; 512]);
    let reading = client.open_descriptor(File::open(&path).unwrap()).unwrap();
    assert!(matches!(reading.write_at(&bytes, 0), Err(Error::Denied { .. })));
}

#[test]
fn memory_that_is_lent_is_read_into() {
    let bench = Bench::new();
    for (name, choice, _) in WAYS {
        let mut queue = Queue::connect(&bench.socket, options(choice)).unwrap();
        let volume = queue.open(name, Access::ReadWrite).unwrap();
        queue.write_from(volume, 512, &[9; 512], true, 1).unwrap();
        queue.reap().unwrap().outcome.unwrap();
        let mut bytes = vec![0; 512];
        let place = std::ptr::NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: `bytes` lives, and nobody else accesses it, until the request was reaped.
        unsafe { queue.read_to(volume, 512, place, 512, 2) }.unwrap();
        let done = queue.reap().unwrap();
        done.outcome.unwrap();
        assert_eq!((done.user_data, bytes), (2, vec![9; 512]));
    }
}

#[test]
fn pieces_go_straight_to_mapped_memory_and_nowhere_else() {
    let bench = Bench::new();
    let mut queue = Queue::connect(&bench.socket, options(PathChoice::Automatic)).unwrap();
    let (fast, slow) =
        (queue.open("fast", Access::ReadWrite).unwrap(), queue.open("slow", Access::ReadWrite).unwrap());
    assert!(queue.is_mapped(fast) && !queue.is_mapped(slow));
    let mut from: Vec<u8> = (0..1024).map(|at| (at / 7) as u8).collect();
    let mut to = vec![0; 1024];
    let (from_start, to_start) = (from.as_mut_ptr(), to.as_mut_ptr());
    // Both ranges are in two pieces, which are cut at different offsets.
    let written = [(from_start, 100), (from_start.wrapping_add(100), 924)];
    let read = [(to_start, 1000), (to_start.wrapping_add(1000), 24)];
    // SAFETY: the vectors live, and nobody else accesses them, until the last request was submitted.
    unsafe {
        queue.write_from_pieces(fast, 512, written.into_iter(), 1).unwrap();
        queue.read_to_pieces(fast, 512, read.into_iter(), 2).unwrap();
        let refused = queue.write_from_pieces(slow, 512, written.into_iter(), 3).unwrap_err();
        assert!(matches!(refused.error, Error::NotMapped { .. }));
        let refused = queue.read_to_pieces(fast, BYTES - 512, read.into_iter(), 4).unwrap_err();
        assert!(matches!(refused.error, Error::OutOfBounds { .. }));
    }
    for number in [1, 2] {
        let done = queue.reap().unwrap();
        done.outcome.unwrap();
        assert_eq!(done.user_data, number);
    }
    assert!(from == to);
    // A request of pieces is confirmed when it is reaped, like all others.
    // SAFETY: the vector `from` lives, and nobody else accesses it, until the request was submitted.
    unsafe { queue.write_from_pieces(fast, 0, written.into_iter(), 5) }.unwrap();
    bench.world.revoke("fast");
    assert!(matches!(queue.reap().unwrap().outcome, Err(Error::Revoked { .. })));
}

#[test]
fn what_the_device_has_in_many_pieces_is_asked_for_in_pieces() {
    let bench = Bench::new();
    bench.world.knobs.bytes_max.store(1536, std::sync::atomic::Ordering::Relaxed);
    let client = Client::connect(&bench.socket, options(PathChoice::Channel)).unwrap();
    let volume = client.open("slow", Access::ReadWrite).unwrap();
    let contents: Vec<u8> = (0..20 * 512).map(|at| (at / 100) as u8).collect();
    volume.write_at(&contents, 512).unwrap();
    volume.write_zeroes(1024, 4096).unwrap();
    volume.discard(8192, 2048).unwrap();
    let mut bytes = vec![1; contents.len()];
    volume.read_at(&mut bytes, 512).unwrap();
    let mut expected = contents;
    expected[512..4608].fill(0);
    expected[7680..9728].fill(0);
    assert!(bytes == expected);
    let mut queue = client.queue().unwrap();
    let slow = queue.open("slow", Access::Read).unwrap();
    queue.read(slow, 512, vec![0; 2048], 0).unwrap();
    let outcome = queue.reap().unwrap().outcome;
    assert!(matches!(outcome, Err(Error::TooManyExtents { offset: 512, bytes: 1536, .. })), "{outcome:?}");
}
