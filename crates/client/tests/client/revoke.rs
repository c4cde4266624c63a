//! Tests of grants that are revoked while they are in use.
//!
//! Failures that this looks for: a write is reported as done although it went to memory that was not the
//! volume's any more; a read returns bytes of a volume that has changed since.

use crate::{BYTES, Bench, options};
use bywash_client::{Access, Client, Error, PathChoice, Queue, WritePiece};
use bywash_support::peers::rounds;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Returns a block whose 64 words all hold its number.
fn block(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(64)
}

/// Returns the number in the word at offset `at`.
fn number_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn what_was_confirmed_is_in_what_others_see() {
    let bench = Bench::new();
    let client = Client::connect(&bench.socket, options(PathChoice::Mapped)).unwrap();
    for round in 0..rounds(60) {
        let volume = client.open("fast", Access::ReadWrite).unwrap();
        let begun = AtomicU64::new(0);
        let confirmed = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut confirmed = 0;
                loop {
                    // The blocks are written in turn, so that the last ones are spread over the whole volume.
                    let at = (confirmed + 1) % (BYTES / 512) * 512;
                    match volume.write_at(&block(confirmed + 1), at) {
                        Ok(()) => confirmed += 1,
                        Err(Error::Revoked { .. }) => return confirmed,
                        Err(other) => panic!("{other}"),
                    }
                    begun.store(confirmed, Relaxed);
                }
            });
            while begun.load(Relaxed) == 0 {
                thread::yield_now();
            }
            thread::sleep(Duration::from_micros(round * 7 % 300));
            bench.world.revoke("fast");
            writer.join().unwrap()
        });
        let contents = bench.world.contents("fast");
        let oldest = (confirmed + 1).saturating_sub(BYTES / 512 - 1).max(1);
        for number in oldest..=confirmed {
            let at = (number % (BYTES / 512) * 512) as usize;
            let there = number_at(&contents, at);
            // The write that failed with the revocation may have overwritten the block.
            assert!(there == number || there == confirmed + 1, "block {number} of {confirmed} is {there}");
        }
        assert!(matches!(volume.read_at(&mut [0; 512], 0), Err(Error::Revoked { .. })));
        assert!(matches!(volume.flush(), Err(Error::Revoked { .. })));
    }
}

#[test]
fn a_queue_finds_out_when_it_reaps() {
    let bench = Bench::new();
    let mut queue = Queue::connect(&bench.socket, options(PathChoice::Mapped)).unwrap();
    let volume = queue.open("fast", Access::ReadWrite).unwrap();
    let write = |queue: &mut Queue, number: u64| {
        queue.write_from(volume, number * 512, &block(number), false, number).unwrap();
    };
    write(&mut queue, 0);
    write(&mut queue, 1);
    queue.reap().unwrap().outcome.unwrap();
    write(&mut queue, 2);
    bench.world.revoke("fast");
    write(&mut queue, 3);
    queue.read(volume, 0, vec![0; 512], 4).unwrap();
    queue.flush(volume, 5).unwrap();
    // Request 1 was confirmed together with request 0, before the grant was revoked.
    let done = queue.reap().unwrap();
    assert_eq!(done.user_data, 1);
    done.outcome.unwrap();
    for number in 2..6 {
        let done = queue.reap().unwrap();
        assert_eq!(done.user_data, number);
        assert!(matches!(done.outcome, Err(Error::Revoked { .. })));
    }
    // Opening the volume again gives a new grant, which is valid.
    let again = queue.open("fast", Access::ReadWrite).unwrap();
    queue.read(again, 0, vec![0; 1024], 6).unwrap();
    let done = queue.reap().unwrap();
    done.outcome.unwrap();
    let mut bytes = vec![0; 1024];
    done.memory.unwrap().read(0, &mut bytes);
    assert_eq!((number_at(&bytes, 0), number_at(&bytes, 512)), (0, 1));
}

#[test]
fn the_channel_says_so_too() {
    let bench = Bench::new();
    for (name, choice) in [("fast", PathChoice::Channel), ("slow", PathChoice::Automatic)] {
        let client = Client::connect(&bench.socket, options(choice)).unwrap();
        let volume = client.open(name, Access::ReadWrite).unwrap();
        volume.write_at(&block(1), 0).unwrap();
        bench.world.revoke(name);
        assert!(matches!(volume.write_at(&block(2), 0), Err(Error::Revoked { .. })));
        let other = client.open(name, Access::ReadWrite).unwrap();
        let (good, bad) = (&other, &volume);
        let pieces = [good, bad].map(|volume| WritePiece { volume, offset: 512, from: &[7; 512] });
        // The request is refused as a whole: the piece with the valid grant is not written either.
        let Err(Error::Revoked { .. }) = client.write_many(&pieces) else { panic!("it was done") };
        let mut bytes = vec![1; 1024];
        other.read_at(&mut bytes, 0).unwrap();
        assert_eq!((number_at(&bytes, 0), number_at(&bytes, 512)), (1, 0));
    }
}
