//! Tests of transfers on mapped memory and through the channel; those of hardware are in `bywash-nvme`.

use crate::model::BLOCK;
use crate::{BYTES, Bench, options};
use bywash_client::{Access, Error, PathChoice, Queue, Reconnect, TransferId, TransferKind, VolumeId};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const BYTES_OF_TRANSFER: usize = 4 * BLOCK as usize;

fn fill(queue: &mut Queue, transfer: TransferId, byte: u8) {
    assert_eq!(
        queue.transfer_buffer(transfer).unwrap().write(0, &[byte; BYTES_OF_TRANSFER]),
        BYTES_OF_TRANSFER
    );
}

fn contents(queue: &mut Queue, transfer: TransferId) -> Vec<u8> {
    let mut bytes = vec![0; BYTES_OF_TRANSFER];
    assert_eq!(queue.transfer_buffer(transfer).unwrap().read(0, &mut bytes), BYTES_OF_TRANSFER);
    bytes
}

fn prepare(queue: &mut Queue, volume: VolumeId, kind: TransferKind) -> TransferId {
    let buffer = queue.alloc(BYTES_OF_TRANSFER).unwrap();
    queue.prepare(volume, kind, buffer).unwrap()
}

fn run(queue: &mut Queue, transfer: TransferId, offset: u64, user_data: u64) -> Result<(), Error> {
    queue.submit_transfer(transfer, offset, user_data)?;
    let done = queue.reap()?;
    assert_eq!((done.user_data, done.memory.is_none()), (user_data, true));
    done.outcome
}

#[test]
fn transfers_move_bytes_again_and_again_on_both_paths() {
    for (volume, choice) in
        [("fast", PathChoice::Mapped), ("fast", PathChoice::Channel), ("slow", PathChoice::Automatic)]
    {
        let bench = Bench::new();
        let mut queue = Queue::connect(&bench.socket, options(choice)).unwrap();
        let volume = queue.open(volume, Access::ReadWrite).unwrap();
        let (write, read) = (
            prepare(&mut queue, volume, TransferKind::Write),
            prepare(&mut queue, volume, TransferKind::Read),
        );
        for turn in 0..50u64 {
            let offset = turn * u64::from(BLOCK);
            fill(&mut queue, write, turn as u8 + 1);
            run(&mut queue, write, offset, turn).unwrap();
            run(&mut queue, read, offset, turn).unwrap();
            assert_eq!(contents(&mut queue, read), vec![turn as u8 + 1; BYTES_OF_TRANSFER]);
        }
        let last = BYTES - BYTES_OF_TRANSFER as u64;
        run(&mut queue, read, last, 7).unwrap();
        let refused = queue.submit_transfer(read, last + u64::from(BLOCK), 8);
        assert!(matches!(refused, Err(Error::OutOfBounds { .. })), "{refused:?}");
        assert!(matches!(queue.submit_transfer(read, 1, 8), Err(Error::Misaligned { .. })));
        let buffer = queue.release_transfer(read).unwrap().unwrap();
        assert_eq!(buffer.len(), BYTES_OF_TRANSFER);
        assert!(matches!(queue.submit_transfer(read, 0, 8), Err(Error::Foreign { .. })));
        assert!(matches!(queue.release_transfer(read), Err(Error::Foreign { .. })));
        queue.close(volume).unwrap();
        assert!(matches!(queue.submit_transfer(write, 0, 8), Err(Error::Foreign { .. })));
        assert_eq!((queue.in_flight(), queue.release_transfer(write).unwrap().is_some()), (0, true));
    }
}

#[test]
fn a_transfer_has_one_request_in_flight() {
    let bench = Bench::new();
    let mut queue = Queue::connect(&bench.socket, options(PathChoice::Channel)).unwrap();
    let volume = queue.open("slow", Access::ReadWrite).unwrap();
    let read = prepare(&mut queue, volume, TransferKind::Read);
    bench.world.knobs.hold.store(true, Relaxed);
    queue.submit_transfer(read, 0, 1).unwrap();
    assert!(matches!(queue.submit_transfer(read, 0, 2), Err(Error::Busy)));
    assert!(matches!(queue.transfer_buffer(read), Err(Error::Busy)));
    assert!(matches!(queue.release_transfer(read), Err(Error::Busy)));
    assert!(matches!(queue.close(volume), Err(Error::Busy)));
    assert_eq!(queue.in_flight(), 1);
    bench.world.knobs.hold.store(false, Relaxed);
    assert_eq!(queue.reap().unwrap().user_data, 1);
    run(&mut queue, read, 0, 3).unwrap();
}

#[test]
fn what_cannot_be_prepared_is_refused_with_its_buffer() {
    let bench = Bench::new();
    let mut queue = Queue::connect(&bench.socket, options(PathChoice::Automatic)).unwrap();
    let volume = queue.open("slow", Access::Read).unwrap();
    let refused = |queue: &mut Queue, kind, bytes: usize| {
        let mut buffer = queue.alloc(bytes.max(1)).unwrap();
        buffer.resize(bytes);
        let refused = queue.prepare(volume, kind, buffer).unwrap_err();
        assert_eq!(refused.memory.map(|memory| memory.len()), Some(bytes));
        refused.error
    };
    assert!(matches!(refused(&mut queue, TransferKind::Write, 512), Error::Denied { .. }));
    assert!(matches!(refused(&mut queue, TransferKind::Read, 100), Error::Misaligned { .. }));
    assert!(matches!(refused(&mut queue, TransferKind::Read, 0), Error::Misaligned { .. }));
    assert!(matches!(
        refused(&mut queue, TransferKind::Read, BYTES as usize + 512),
        Error::OutOfBounds { .. }
    ));
    let all: Vec<_> = (0..queue.depth()).map(|_| prepare(&mut queue, volume, TransferKind::Read)).collect();
    assert!(matches!(refused(&mut queue, TransferKind::Read, 512), Error::Full { .. }));
    queue.release_transfer(all[3]).unwrap();
    prepare(&mut queue, volume, TransferKind::Read);
}

#[test]
fn transfers_go_on_with_a_server_that_was_started_again() {
    for choice in [PathChoice::Automatic, PathChoice::Channel] {
        let mut bench = Bench::new();
        let options = options(choice).reconnect(Reconnect::Within(Duration::from_secs(4)));
        let mut queue = Queue::connect(&bench.socket, options).unwrap();
        let volume = queue.open("slow", Access::ReadWrite).unwrap();
        let (write, read) = (
            prepare(&mut queue, volume, TransferKind::Write),
            prepare(&mut queue, volume, TransferKind::Read),
        );
        fill(&mut queue, write, 1);
        run(&mut queue, write, 0, 1).unwrap();
        bench.world.knobs.hold.store(true, Relaxed);
        fill(&mut queue, write, 2);
        queue.submit_transfer(write, 0, 2).unwrap();
        bench.kill();
        bench.world.knobs.hold.store(false, Relaxed);
        bench.start();
        // The request is submitted again, and the transfer has a buffer of the new arena afterwards.
        let done = queue.reap().unwrap();
        assert!((done.user_data, done.outcome.is_ok()) == (2, true), "{done:?}");
        assert_eq!(queue.reconnects(), 1);
        run(&mut queue, read, 0, 3).unwrap();
        assert_eq!(contents(&mut queue, read), [2; BYTES_OF_TRANSFER]);
        fill(&mut queue, write, 3);
        run(&mut queue, write, 0, 4).unwrap();
        run(&mut queue, read, 0, 5).unwrap();
        assert_eq!(contents(&mut queue, read), [3; BYTES_OF_TRANSFER]);
    }
}
