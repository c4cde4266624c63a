//! Tests of refused operations and of the errors that report them.

use crate::model::BLOCK;
use crate::{BYTES, Bench, forking, options, until};
use bywash_client::{
    Access, Client, Error, NewVolume, Options, PathChoice, Permissions, Queue, Range, ReadPiece, RefusalKind,
    VolumePath, WritePiece,
};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

#[test]
fn what_is_no_whole_block_or_beyond_the_end_is_refused_on_both_ways() {
    let bench = Bench::new();
    for choice in [PathChoice::Mapped, PathChoice::Channel] {
        let client = Client::connect(&bench.socket, options(choice)).unwrap();
        let volume = client.open("fast", Access::ReadWrite).unwrap();
        assert_eq!((volume.len(), volume.block()), (BYTES, BLOCK));
        let mut queue = client.queue().unwrap();
        let queued = queue.open("fast", Access::ReadWrite).unwrap();
        for (offset, length) in [(1, 512), (512, 511), (0, 1), (u64::MAX, 512)] {
            let wrong = |error| matches!(error, Error::Misaligned { block: BLOCK, .. });
            assert!(wrong(volume.write_at(&vec![1; length], offset).unwrap_err()));
            assert!(wrong(volume.read_at(&mut vec![1; length], offset).unwrap_err()));
            assert!(wrong(volume.write_zeroes(offset, length as u64).unwrap_err()));
            assert!(wrong(volume.discard(offset, length as u64).unwrap_err()));
            assert!(wrong(queue.write_from(queued, offset, &vec![1; length], false, 0).unwrap_err().error));
        }
        for (offset, length) in
            [(BYTES, 512), (BYTES - 512, 1024), (u64::MAX - 511, 512), (0, BYTES as usize + 512)]
        {
            let error = volume.write_at(&vec![1; length], offset).unwrap_err();
            let says = format!("{length} bytes at {offset} are not all within fast, which has {BYTES}");
            assert_eq!(error.to_string(), says);
            assert!(matches!(volume.read_at(&mut vec![1; length], offset), Err(Error::OutOfBounds { .. })));
            let refused = queue.read(queued, offset, vec![1; length], 0).unwrap_err();
            assert!(matches!(refused.error, Error::OutOfBounds { .. }));
            assert_eq!(refused.memory.unwrap().len(), length);
        }
        assert!(matches!(
            volume.compare_and_write(0, &[0; 512], &[0; 1024]),
            Err(Error::LengthMismatch { .. })
        ));
        // An empty range is allowed everywhere in the volume, even at its end.
        queue.read(queued, BYTES, vec![], 3).unwrap();
        queue.write_from(queued, 0, &[], false, 3).unwrap();
        for _ in 0..2 {
            let done = queue.reap().unwrap();
            assert!(done.user_data == 3 && done.outcome.is_ok());
        }
        volume.write_at(&[], BYTES).unwrap();
        volume.read_at(&mut [], 0).unwrap();
    }
    assert!(bench.world.contents("fast").iter().all(|byte| *byte == 0));
}

#[test]
fn rights_are_those_of_the_grant() {
    let bench = Bench::new();
    for choice in [PathChoice::Automatic, PathChoice::Channel] {
        let client = Client::connect(&bench.socket, options(choice)).unwrap();
        let reading = client.open("fast", Access::Read).unwrap();
        let writing = client.open("fast", Access::Write).unwrap();
        assert!(matches!(writing.path(), VolumePath::Channel { .. }));
        let denied = |outcome: Result<(), Error>| matches!(outcome, Err(Error::Denied { .. }));
        assert!(denied(reading.write_at(&[1; 512], 0)) && denied(reading.discard(0, 512)));
        assert!(denied(reading.write_zeroes(0, 512)) && denied(writing.read_at(&mut [1; 512], 0)));
        assert!(denied(reading.compare_and_write(0, &[0; 512], &[1; 512]).map(drop)));
        let pieces = [WritePiece { volume: &reading, offset: 0, from: &[1; 512] }];
        assert!(denied(client.write_many(&pieces)));
        writing.write_at(&[3; 512], 0).unwrap();
        let mut bytes = [0; 512];
        reading.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [3; 512]);
    }
    // The processor enforces the right too: the mapping is not writable.
    let client = Client::connect(&bench.socket, options(PathChoice::Mapped)).unwrap();
    let volume = client.open("fast", Access::Read).unwrap();
    let lent = volume.map().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.starts_with(&format!("{:x}-", lent.as_ptr() as usize))).unwrap();
    assert!(line.contains(" r--s ") && lent.len() as u64 == BYTES, "{line}");
    // SAFETY: the byte is mapped for reading while `lent` lives, and nobody writes it now.
    assert_eq!(unsafe { lent.as_ptr().read_volatile() }, 3);
    lent.confirm().unwrap();
}

#[test]
fn what_cannot_be_opened_says_why() {
    let bench = Bench::new();
    let client = Client::connect(&bench.socket, options(PathChoice::Mapped)).unwrap();
    let error = client.open("none", Access::Read).unwrap_err();
    assert_eq!(error.code(), Some(RefusalKind::Missing));
    assert_eq!(error.to_string(), "cannot open none: there is no such volume; see volumes");
    let error = client.open("slow", Access::Read).unwrap_err().to_string();
    assert!(error.starts_with("slow cannot be mapped: its device is a file"), "{error}");
    let long = client.open(&"x".repeat(5000), Access::Read).unwrap_err();
    assert!(matches!(long, Error::Io { .. }), "{long}");
    let nobody = Client::connect(bench.folder.path().join("nobody"), Options::new()).unwrap_err();
    assert!(matches!(nobody, Error::Io { .. }), "{nobody}");
    let named = Client::connect(&bench.socket, Options::new().name("x".repeat(65))).unwrap_err();
    assert!(matches!(named, Error::Option { .. }), "{named}");
    let deep = Queue::connect(&bench.socket, options(PathChoice::Automatic).depth(2048)).unwrap_err();
    assert!(deep.to_string().contains("2048"), "{deep}");
    let odd = Queue::connect(&bench.socket, options(PathChoice::Automatic).depth(3)).unwrap_err();
    assert!(matches!(odd, Error::Option { .. }), "{odd}");
}

#[test]
fn what_is_dropped_is_given_back() {
    let bench = Bench::new();
    let client = Client::connect(&bench.socket, options(PathChoice::Automatic)).unwrap();
    // The loop opens more grants than can be open at a time, so dropped ones must be given back.
    for _ in 0..200 {
        client.open("fast", Access::ReadWrite).unwrap();
    }
    let kept = client.open("fast", Access::Read).unwrap();
    until("one grant", || bench.world.grants() == 1);
    let mut queue = client.queue().unwrap();
    for _ in 0..200 {
        let volume = queue.open("slow", Access::Read).unwrap();
        queue.flush(volume, 0).unwrap();
        assert!(matches!(queue.close(volume), Err(Error::Busy)));
        queue.reap().unwrap();
        queue.close(volume).unwrap();
        assert!(matches!(queue.len(volume), Err(Error::Foreign { .. })));
    }
    drop((queue, kept, client));
    until("no grant", || bench.world.grants() == 0);
}

#[test]
fn things_of_others_are_refused() {
    let bench = Bench::new();
    let connect = || Client::connect(&bench.socket, options(PathChoice::Automatic)).unwrap();
    let (one, other) = (connect(), connect());
    let volume = other.open("fast", Access::ReadWrite).unwrap();
    let mut bytes = [0; 512];
    let pieces = &mut [ReadPiece { volume: &volume, offset: 0, to: &mut bytes }];
    assert!(matches!(one.read_many(pieces), Err(Error::Foreign { .. })));
    assert!(matches!(one.read_many(&mut []), Err(Error::PieceCount { asked: 0, most: 32 })));
    let (mut one, mut other) = (one.queue().unwrap(), other.queue().unwrap());
    let of_one = one.open("fast", Access::ReadWrite).unwrap();
    let of_other = other.open("fast", Access::ReadWrite).unwrap();
    assert!(matches!(one.flush(of_other, 0).unwrap_err().error, Error::Foreign { .. }));
    let slow = one.open("slow", Access::ReadWrite).unwrap();
    let buffer = other.alloc(512).unwrap();
    // Both queues are on their first connection, and their arenas must be distinguished all the same.
    let refused = one.write(slow, 0, buffer, false, 0).unwrap_err();
    assert!(refused.memory.is_some(), "{refused}");
    assert!(refused.to_string().contains("another"), "{refused}");
    one.flush(of_one, 0).unwrap();
    one.reap().unwrap().outcome.unwrap();
}

#[test]
fn refusals_of_requests_name_what_was_wrong() {
    let bench = Bench::new();
    let client = Client::connect(&bench.socket, options(PathChoice::Channel)).unwrap();
    let volume = client.open("slow", Access::ReadWrite).unwrap();
    let mut queue = client.queue().unwrap();
    let queued = queue.open("slow", Access::ReadWrite).unwrap();
    for (status, says) in [
        (13, "does not allow to read it"),
        (9, "no such grant of slow"),
        (116, "the grant of slow was revoked"),
        (6, "512 bytes at 1024 are not all within slow"),
        (22, "finds the request to read slow malformed"),
        (5, "the device failed to read slow"),
        (28, "no room to read slow"),
        (110, "did not read slow in time"),
        (84, "differ from the expected"),
        (95, "the device of slow cannot read"),
        (1, "status 1, which there is not"),
    ] {
        bench.world.knobs.status.store(status, Relaxed);
        let error = volume.read_at(&mut [0; 512], 1024).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        queue.read(queued, 1024, vec![0; 512], 0).unwrap();
        let done = queue.reap().unwrap();
        let error = done.outcome.unwrap_err().to_string();
        assert!(error.contains(says) && done.memory.is_some(), "{error}");
    }
    // A refusal of a request of several pieces names the piece; a failure of the device concerns all of them.
    bench.world.knobs.value.store(1, Relaxed);
    for (status, says) in [(13, "does not allow to read it"), (5, "to read one of several volumes")] {
        bench.world.knobs.status.store(status, Relaxed);
        let (mut one, mut other) = ([0; 512], [0; 512]);
        let pieces = &mut [
            ReadPiece { volume: &volume, offset: 0, to: &mut one },
            ReadPiece { volume: &volume, offset: 512, to: &mut other },
        ];
        let error = client.read_many(pieces).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        let range = Range { volume: queued, offset: 0, length: 512 };
        queue.read_many(&[range; 2], vec![0; 1024], 0).unwrap();
        let error = queue.reap().unwrap().outcome.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    bench.world.knobs.value.store(0, Relaxed);
    bench.world.knobs.status.store(0, Relaxed);
    // The memory of the two requests that the device did not complete in time is not reused.
    assert!(client.lost_bytes() >= 512 && queue.lost_bytes() >= 512);
    bench.world.knobs.value.store(1, Relaxed);
    let error = volume.read_at(&mut [0; 512], 0).unwrap_err().to_string();
    assert!(error.contains("513 bytes went, and 512 were asked"), "{error}");
}

#[test]
fn calls_end_within_their_limit() {
    let bench = Bench::new();
    let limit = Duration::from_millis(100);
    let client = Client::connect(&bench.socket, options(PathChoice::Channel).limit(limit)).unwrap();
    let volume = client.open("slow", Access::ReadWrite).unwrap();
    volume.write_at(&[1; 512], 0).unwrap();
    let mut queue = client.queue().unwrap();
    let queued = queue.open("slow", Access::ReadWrite).unwrap();
    bench.world.knobs.hold.store(true, Relaxed);
    let begun = Instant::now();
    assert!(matches!(volume.write_at(&[2; 512], 0), Err(Error::TimedOut { .. })));
    queue.write_from(queued, 512, &[2; 512], false, 7).unwrap();
    assert!(matches!(queue.reap(), Err(Error::TimedOut { .. })));
    assert!(begun.elapsed() >= limit && begun.elapsed() < 20 * limit);
    bench.world.knobs.hold.store(false, Relaxed);
    // The server completes the request after its timeout, and the channel goes on.
    assert_eq!(queue.reap().unwrap().user_data, 7);
    volume.read_at(&mut [0; 512], 0).unwrap();
    bench.world.knobs.slow_ms.store(250, Relaxed);
    let begun = Instant::now();
    assert!(matches!(client.volumes(), Err(Error::TimedOut { .. })));
    assert!(matches!(client.open("fast", Access::Read), Err(Error::TimedOut { .. })));
    assert!(begun.elapsed() < 20 * limit);
    bench.world.knobs.slow_ms.store(0, Relaxed);
    // A late reply is not taken for the reply to another message, and a late grant is given back.
    until("an answer in time", || client.volumes().is_ok());
    assert_eq!(client.volumes().unwrap().len(), 2);
    until("late grants given back", || client.status().is_ok() && bench.world.grants() == 2);
}

#[test]
fn an_administrator_makes_and_removes_volumes() {
    let bench = Bench::new();
    let client = Client::connect(&bench.socket, options(PathChoice::Automatic)).unwrap();
    client.create(NewVolume::new("new", "model", 4096).owner(0).group(0).mode(0o600)).unwrap();
    let volume = client.open("new", Access::ReadWrite).unwrap();
    volume.write_at(&[5; 4096], 0).unwrap();
    client.rename("new", "old").unwrap();
    client.resize("old", 8192).unwrap();
    let volume = client.open("old", Access::ReadWrite).unwrap();
    let mut bytes = vec![0; 8192];
    volume.read_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [[5; 4096], [0; 4096]].concat());
    client.permit("old", Permissions::default().read_only(true)).unwrap();
    assert!(matches!(volume.write_at(&bytes, 0), Err(Error::Revoked { .. })));
    assert_eq!(client.open("old", Access::Write).unwrap_err().code(), Some(RefusalKind::Denied));
    let names =
        |client: &Client| client.volumes().unwrap().into_iter().map(|one| one.name).collect::<Vec<_>>();
    assert_eq!(names(&client), ["fast", "old", "slow"]);
    client.revoke("old").unwrap();
    client.remove("old").unwrap();
    assert_eq!(names(&client), ["fast", "slow"]);
    assert_eq!(client.resize("old", 4096).unwrap_err().code(), Some(RefusalKind::Missing));
    assert_eq!(client.status().unwrap().pid, std::process::id());
}

#[test]
fn a_forked_child_is_not_the_client() {
    let bench = Bench::new();
    let mapped = Client::connect(&bench.socket, options(PathChoice::Mapped)).unwrap();
    let channel = Client::connect(&bench.socket, options(PathChoice::Channel)).unwrap();
    let volumes = [&mapped, &channel].map(|client| client.open("fast", Access::ReadWrite).unwrap());
    volumes.iter().for_each(|volume| volume.write_at(&[1; 512], 0).unwrap());
    let _forking = forking();
    // SAFETY: the child uses only what its single thread has, and calls `_exit` without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = |outcome: Result<(), Error>| matches!(outcome, Err(Error::Forked));
        let all = volumes
            .iter()
            .all(|volume| forked(volume.write_at(&[2; 512], 0)) && forked(volume.read_at(&mut [0; 512], 0)));
        let all = all && matches!(mapped.open("fast", Access::Read), Err(Error::Forked));
        drop(volumes);
        // SAFETY: `_exit` ends the child's process without running its destructors.
        unsafe { libc::_exit(if all { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `child` is the process that was just forked, and `status` is a live variable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    // Dropping the volumes in the child has not closed the parent's grants.
    for volume in &volumes {
        volume.flush().unwrap();
        let mut bytes = [0; 512];
        volume.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [1; 512]);
    }
}
