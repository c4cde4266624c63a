//! Programs that run in the guest: the server, its clients, and a hostile client.

use super::NAMESPACE_BYTES;
use bywash_client::{
    Access, Client, Error, NewVolume, Options, PathChoice, Queue, Range, RefusalKind, TransferId,
    TransferKind, Volume, VolumeId, VolumePath,
};
use bywash_device::Spec;
use bywash_link::{Messages, connect};
use bywash_nvme::{Address, DEVICE_KIND, Function, Vfio};
use bywash_protocol::{ControlReply, ControlRequest, MESSAGE_BYTES_MAX, VERSION};
use bywash_server::{LimitsFile, Server};
use bywash_support::guest::script::check_is_inside;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

const SOCKET: &str = "/tmp/socket";
const DEVICE: &str = "disk=nvme:0000:01:00.0,vfs=2";
/// Size of a volume, in bytes: a namespace without its labels.
const VOLUME: u64 = NAMESPACE_BYTES - (1 << 20);
const BLOCK: usize = 4096;
const PIECE: usize = 64 << 10;
/// Distance of the pieces that are written and read, in bytes.
const STRIDE: usize = 1 << 20;
/// Greatest time that something takes in the guest.
const LIMIT: Duration = Duration::from_secs(100);

fn client(choice: PathChoice) -> Client {
    check_is_inside();
    Client::connect(SOCKET, Options::new().choice(choice).limit(LIMIT)).unwrap()
}

/// Opens a volume, which another client may just have given back.
fn open(client: &Client, name: &str) -> Volume {
    let end = Instant::now() + LIMIT;
    loop {
        match client.open(name, Access::ReadWrite) {
            Err(error) if error.code() == Some(RefusalKind::Limit) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Opens a volume directly, which another client may just have given back.
fn open_directly(client: &Client, name: &str) -> Volume {
    let end = Instant::now() + LIMIT;
    loop {
        let volume = open(client, name);
        if volume.path().is_direct() {
            return volume;
        }
        assert!(Instant::now() < end, "{name} is {}", volume.path());
        drop(volume);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns bytes in which no block of 512 is like another, or like one of another seed.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let word = |number: u64| (seed << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..bytes as u64 / 8).flat_map(word).collect()
}

#[test]
#[ignore = "run in the guest by the test above"]
fn serves() {
    check_is_inside();
    let options = bywash_server::Options::new(SOCKET)
        .device(Spec::parse(DEVICE, &[&DEVICE_KIND]).unwrap())
        .limits(LimitsFile::read(Path::new("/tmp/limits")).unwrap())
        .policy(Some("/tmp/volumes".into()));
    let server = Server::start(options).unwrap();
    println!("it serves");
    while !Path::new("/tmp/stop").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop();
}

#[test]
#[ignore = "run in the guest by the test above"]
fn makes_volumes() {
    let client = client(PathChoice::Automatic);
    for (name, device) in [("one", "disk.1"), ("two", "disk.2")] {
        client.create(NewVolume::new(name, device, VOLUME).mode(0o666)).unwrap();
    }
}

#[test]
#[ignore = "run in the guest by the test above"]
fn has_each_namespace_by_its_function() {
    let (first, second) = (client(PathChoice::Automatic), client(PathChoice::Automatic));
    let (one, two) = (open_directly(&first, "one"), open_directly(&second, "two"));
    assert_eq!(
        one.path(),
        VolumePath::Direct {
            // QEMU's controller lets whoever has a function change others.
            needs_trust: true,
            function: "0000:01:00.1".into(),
            why_copied: None,
        }
    );
    assert_eq!(two.path().to_string(), "direct, trusted: function 0000:01:00.2");
    // Nobody else has them meanwhile.
    let other = client(PathChoice::Channel);
    let refused = other.open("one", Access::Read).unwrap_err();
    assert!(refused.to_string().contains("has device 'disk.1' to itself, by a direct grant"), "{refused}");
    let refused = other.drop_device("disk.1").unwrap_err();
    assert_eq!(refused.code(), Some(RefusalKind::Limit), "{refused}");
    let mut read = vec![0; PIECE];
    for (volume, seed) in [(&one, 1), (&two, 2)] {
        for at in (0..VOLUME).step_by(STRIDE) {
            volume.write_at(&pattern(seed << 20 | at, PIECE), at).unwrap();
        }
        volume.write_at_durable(&pattern(seed, BLOCK), 0).unwrap();
        volume.flush().unwrap();
        volume.write_zeroes(PIECE as u64, PIECE as u64).unwrap();
        volume.discard(2 * PIECE as u64, PIECE as u64).unwrap();
        assert!(volume.compare_and_write(0, &pattern(seed, 512), &pattern(9, 512)).unwrap());
        assert!(!volume.compare_and_write(0, &pattern(seed, 512), &pattern(8, 512)).unwrap());
    }
    for (volume, seed) in [(&one, 1), (&two, 2)] {
        volume.read_at(&mut read, 0).unwrap();
        assert!(read[..512] == pattern(9, 512) && read[512..BLOCK] == pattern(seed, BLOCK)[512..]);
        volume.read_at(&mut read, PIECE as u64).unwrap();
        assert!(read.iter().all(|byte| *byte == 0));
        for at in (STRIDE as u64..VOLUME).step_by(STRIDE) {
            volume.read_at(&mut read, at).unwrap();
            assert!(read == pattern(seed << 20 | at, PIECE), "volume {seed} at {at}");
        }
    }
    drop((one, two));
    // The server finds the same in the namespaces.
    for (name, seed) in [("one", 1), ("two", 2)] {
        let volume = open(&other, name);
        assert_eq!(volume.path(), VolumePath::Channel { why: "it was opened that way".into() });
        for at in (STRIDE as u64..VOLUME).step_by(STRIDE) {
            volume.read_at(&mut read, at).unwrap();
            assert!(read == pattern(seed << 20 | at, PIECE), "volume {seed} at {at}");
        }
    }
}

#[test]
#[ignore = "run in the guest by the test above"]
fn tells_what_does_not_fit() {
    let (direct, channel) = (client(PathChoice::Automatic), client(PathChoice::Channel));
    let told = |volume: &Volume| {
        let mut block = vec![0; BLOCK];
        [
            volume.read_at(&mut block, VOLUME).unwrap_err().to_string(),
            volume.read_at(&mut block, 100).unwrap_err().to_string(),
            volume.write_at(&block[..100], 0).unwrap_err().to_string(),
            volume.write_at(&block, u64::MAX - 4095).unwrap_err().to_string(),
            volume.discard(0, VOLUME + 512).unwrap_err().to_string(),
            volume.compare_and_write(0, &block[..512], &block[..1024]).unwrap_err().to_string(),
            format!("{:?}", volume.map().unwrap_err()).split_once('{').unwrap().0.to_owned(),
        ]
    };
    let volume = open_directly(&direct, "one");
    let directly = told(&volume);
    drop(volume);
    assert_eq!(directly, told(&open(&channel, "one")));
    // While a volume is used through the channel, it is not handed over.
    let used = open(&channel, "one");
    let volume = open(&direct, "one");
    let VolumePath::Channel { why } = volume.path() else { panic!("{}", volume.path()) };
    assert!(why.contains("cannot be granted directly now: it is in use: volume 'one' by client"), "{why}");
    drop(used);
    // Two volumes on a device are never handed over.
    drop(volume);
    channel.remove("one").unwrap();
    channel.create(NewVolume::new("small", "disk.1", 1 << 20)).unwrap();
    let small = open(&direct, "small");
    let VolumePath::Channel { why } = small.path() else { panic!("{}", small.path()) };
    assert!(why.contains("it is not all of device 'disk.1'"), "{why}");
    drop(small);
    channel.remove("small").unwrap();
    channel.create(NewVolume::new("one", "disk.1", VOLUME).mode(0o666)).unwrap();
}

#[test]
#[ignore = "run in the guest by the test above"]
fn goes_through_the_channel_where_it_is_not_trusted() {
    check_is_inside();
    let name = "inside::is_not_trusted";
    let program = std::env::current_exe().unwrap();
    let output =
        Command::new(program).args(["--ignored", "--exact", name, "--nocapture"]).uid(1000).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    print!("{said}");
}

#[test]
#[ignore = "run in the guest by the test above"]
fn is_not_trusted() {
    let client = client(PathChoice::Automatic);
    let volume = open(&client, "one");
    let VolumePath::Channel { why } = volume.path() else { panic!("{}", volume.path()) };
    assert!(why.contains("user 1000 is not trusted"), "{why}");
    // QEMU's secondary controllers carry these out for everybody, and have neither Sanitize nor commands of their own.
    for command in ["Namespace Attachment", "Format NVM", "Virtualization Management"] {
        assert!(why.contains(command), "{why}");
    }
    assert!(!why.contains("Sanitize") && !why.contains("vendor specific"), "{why}");
    println!("guest: {why}");
    volume.write_at(&pattern(7, BLOCK), 0).unwrap();
    drop(volume);
    let answer =
        Raw::connect().ask(&ControlRequest::OpenDirect { volume: "one".into(), access: Access::ReadWrite });
    let ControlReply::Refused(refused) = answer.0 else { panic!("{answer:?}") };
    assert!(refused.message.contains("user 1000 is not trusted") && answer.1.is_empty(), "{refused}");
}

#[test]
#[ignore = "run in the guest by the test above"]
fn revokes_under_load() {
    let administrator = client(PathChoice::Channel);
    let unharmed = client(PathChoice::Automatic);
    let other = open_directly(&unharmed, "two");
    other.write_at(&pattern(3, PIECE), 0).unwrap();
    let options = Options::new().limit(LIMIT).depth(32);
    let mut queue = Queue::connect(SOCKET, options).unwrap();
    let volume = queue.open("one", Access::ReadWrite).unwrap();
    assert!(queue.path(volume).unwrap().is_direct(), "{}", queue.path(volume).unwrap());
    let mut buffers: Vec<_> = (0..32).map(|_| queue.alloc(BLOCK).unwrap()).collect();
    let revoker = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        administrator.revoke("one").unwrap();
    });
    let (mut done, mut revoked, mut number) = (0u64, 0, 0u64);
    while revoked == 0 {
        while let Some(mut buffer) = buffers.pop() {
            let (tag, at) = (number, number * BLOCK as u64 % VOLUME);
            number += 1;
            let submitted = if number % 2 == 0 {
                buffer.write(0, &pattern(tag, BLOCK));
                queue.write(volume, at, buffer, false, tag)
            } else {
                queue.read(volume, at, buffer, tag)
            };
            if let Err(refused) = submitted {
                panic!("{refused}");
            }
        }
        let completion = queue.reap().unwrap();
        match completion.outcome {
            Ok(()) => done += 1,
            Err(Error::Revoked { .. }) => revoked += 1,
            Err(error) => panic!("after {done}: {error}"),
        }
        match completion.memory {
            Some(bywash_client::RequestMemory::Arena(buffer)) => buffers.push(buffer),
            memory => panic!("a request lost its buffer: {memory:?}"),
        }
    }
    // Each of the others in flight ends as well, once.
    while queue.in_flight() > 0 {
        match queue.reap().unwrap().outcome {
            Ok(()) | Err(Error::Revoked { .. }) => revoked += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(revoked, 32);
    assert!(done > 32, "only {done} requests were completed");
    revoker.join().unwrap();
    // Later requests fail, too.
    let buffer = queue.alloc(BLOCK).unwrap();
    queue.read(volume, 0, buffer, 0).unwrap();
    assert!(matches!(queue.reap().unwrap().outcome, Err(Error::Revoked { .. })));
    let mut read = vec![0; PIECE];
    other.read_at(&mut read, 0).unwrap();
    assert!(read == pattern(3, PIECE), "the other client's data has changed");
    // The function is missing until its former holder has closed it.
    let again = client(PathChoice::Automatic);
    let refused = again.open("one", Access::ReadWrite).unwrap_err().to_string();
    assert!(refused.contains("was taken back from a client, and cannot be opened yet"), "{refused}");
    assert!(refused.contains("another process has it in tests (process"), "{refused}");
    queue.close(volume).unwrap();
    let one = open_directly(&again, "one");
    one.read_at(&mut read, 0).unwrap();
    println!("guest: {done} requests until the revocation");
}

/// Opens the volume 'one' directly by a queue, when another client has given it back.
fn open_queue() -> (Queue, VolumeId) {
    let mut queue = Queue::connect(SOCKET, Options::new().limit(LIMIT).depth(32)).unwrap();
    let volume = open_one(&mut queue);
    (queue, volume)
}

fn open_one(queue: &mut Queue) -> VolumeId {
    let end = Instant::now() + LIMIT;
    loop {
        let found = match queue.open("one", Access::ReadWrite) {
            Ok(volume) if queue.path(volume).unwrap().is_direct() => return volume,
            Ok(volume) => {
                let path = queue.path(volume).unwrap().to_string();
                queue.close(volume).unwrap();
                path
            }
            Err(refused) => refused.to_string(),
        };
        assert!(Instant::now() < end, "one: {found}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "run in the guest by the test above"]
fn carries_out_transfers() {
    let (mut queue, volume) = open_queue();
    // Of one page, and of as many as need a list.
    for bytes in [BLOCK, PIECE] {
        let mut prepare = |kind| {
            let buffer = queue.alloc(bytes).unwrap();
            queue.prepare(volume, kind, buffer).unwrap()
        };
        let writes: Vec<TransferId> = (0..8).map(|_| prepare(TransferKind::Write)).collect();
        let reads: Vec<TransferId> = (0..8).map(|_| prepare(TransferKind::Read)).collect();
        let offset = |round: u64, at: usize| (round * 8 + at as u64) * bytes as u64;
        let mut read = vec![0; bytes];
        for round in 0..4 {
            for (at, write) in writes.iter().enumerate() {
                let number =
                    queue.transfer_buffer(*write).unwrap().write(0, &pattern(offset(round, at), bytes));
                assert_eq!(number, bytes);
                queue.submit_transfer(*write, offset(round, at), at as u64).unwrap();
            }
            for (at, transfer) in reads.iter().enumerate() {
                // Each finds what the write before it has written, whose completion nobody has waited for.
                queue.submit_transfer(*transfer, offset(round, at), 100 + at as u64).unwrap();
                assert!(matches!(queue.submit_transfer(*transfer, 0, 0), Err(Error::Busy)));
            }
            // Another request beside them.
            queue.read(volume, VOLUME - BLOCK as u64, vec![0; BLOCK], 200).unwrap();
            let mut done: Vec<u64> = (0..17)
                .map(|_| {
                    if round % 2 == 1
                        && let Some(user_data) = queue.try_reap_transfer()
                    {
                        return user_data;
                    }
                    let completion = queue.reap().unwrap();
                    completion.outcome.unwrap();
                    completion.user_data
                })
                .collect();
            done.sort_unstable();
            assert!(done.iter().copied().eq((0..8).chain(100..108).chain([200])), "{done:?}");
            for (at, transfer) in reads.iter().enumerate() {
                queue.transfer_buffer(*transfer).unwrap().read(0, &mut read);
                assert!(read == pattern(offset(round, at), bytes), "{bytes} bytes, round {round}, {at}");
            }
        }
        let last = VOLUME - bytes as u64;
        assert!(matches!(queue.submit_transfer(reads[0], last + 512, 0), Err(Error::OutOfBounds { .. })));
        assert!(matches!(queue.submit_transfer(reads[0], 100, 0), Err(Error::Misaligned { .. })));
        for transfer in reads.iter().chain(&writes) {
            assert!(queue.release_transfer(*transfer).unwrap().is_some());
        }
    }
    // A request that has completed and was not reaped is in flight.
    let buffer = queue.alloc(BLOCK).unwrap();
    let read = queue.prepare(volume, TransferKind::Read, buffer).unwrap();
    queue.submit_transfer(read, 0, 1).unwrap();
    queue.wait_for(1, LIMIT).unwrap();
    assert!(matches!(queue.submit_transfer(read, 0, 2), Err(Error::Busy)));
    assert!(matches!(queue.release_transfer(read), Err(Error::Busy)));
    assert_eq!(queue.reap().unwrap().user_data, 1);
    // The depth counts requests by transfers, too.
    let others: Vec<_> = (0..queue.depth() as u64)
        .map(|number| queue.read(volume, number * BLOCK as u64, vec![0; BLOCK], number))
        .collect();
    assert!(others.iter().all(Result::is_ok));
    assert!(matches!(queue.submit_transfer(read, 0, 2), Err(Error::Full { .. })));
    while queue.in_flight() > 0 {
        queue.reap().unwrap().outcome.unwrap();
    }
    queue.release_transfer(read).unwrap();
    // Requests of several ranges.
    let (first, second) = (pattern(31, BLOCK), pattern(32, PIECE));
    queue.write_many(&[(volume, 0, &first), (volume, 1 << 20, &second)], true, 1).unwrap();
    queue.reap().unwrap().outcome.unwrap();
    let range = |offset, length| Range { volume, offset, length };
    let room = vec![0; 512 + PIECE];
    queue.read_many(&[range(512, 512), range(1 << 20, PIECE)], room, 2).unwrap();
    let done = queue.reap().unwrap();
    assert!(done.user_data == 2 && done.outcome.is_ok() && queue.in_flight() == 0, "{done:?}");
    let mut read = vec![0; 512 + PIECE];
    assert_eq!(done.memory.unwrap().read(0, &mut read), read.len());
    assert!(read[..512] == first[512..1024] && read[512..] == second);
    // The server's administrator takes the volume back while transfers are in flight.
    let buffers: Vec<_> = (0..8).map(|_| queue.alloc(BLOCK).unwrap()).collect();
    let reads: Vec<TransferId> = buffers
        .into_iter()
        .map(|buffer| queue.prepare(volume, TransferKind::Read, buffer).unwrap())
        .collect();
    let revoker = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(200));
        client(PathChoice::Channel).revoke("one").unwrap();
    });
    let (mut done, mut revoked, mut idle) = (0u64, 0, reads.clone());
    while revoked == 0 {
        for transfer in idle.drain(..) {
            let number = reads.iter().position(|one| *one == transfer).unwrap() as u64;
            queue.submit_transfer(transfer, number * BLOCK as u64, number).unwrap();
        }
        let completion = queue.reap().unwrap();
        idle.push(reads[completion.user_data as usize]);
        match completion.outcome {
            Ok(()) => done += 1,
            Err(Error::Revoked { .. }) => revoked += 1,
            Err(error) => panic!("after {done}: {error}"),
        }
    }
    while queue.in_flight() > 0 {
        match queue.reap().unwrap().outcome {
            Ok(()) | Err(Error::Revoked { .. }) => revoked += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(revoked == 8 && done > 8, "{done} requests were completed, and {revoked} revoked");
    queue.submit_transfer(reads[0], 0, 0).unwrap();
    assert!(matches!(queue.reap().unwrap().outcome, Err(Error::Revoked { .. })));
    revoker.join().unwrap();
    queue.close(volume).unwrap();
    println!("guest: {done} transfers until the revocation");
}

/// Returns the number of interrupts that functions of controllers have passed on to programs.
fn interrupts() -> u64 {
    let all = std::fs::read_to_string("/proc/interrupts").unwrap();
    let counts = |line: &str| -> u64 {
        line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).sum()
    };
    all.lines().filter(|line| line.contains("vfio-msix")).map(counts).sum()
}

fn sleep(queue: &Queue) {
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    let found = poll(&mut [PollFd::new(queue, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(found, 1, "nothing has woken the program");
}

/// Waits in an event loop until a request has completed.
fn reap_by_events(queue: &mut Queue) -> u64 {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(completion) = queue.try_reap().unwrap() {
            completion.outcome.unwrap();
            return completion.user_data;
        }
        assert!(Instant::now() < end);
        if !queue.arm().unwrap() {
            sleep(queue);
        }
    }
}

#[test]
#[ignore = "run in the guest by the test above"]
fn sleeps_until_requests_complete() {
    let (mut queue, volume) = open_queue();
    let read = |queue: &mut Queue, tag| {
        let buffer = queue.alloc(BLOCK).unwrap();
        queue.read(volume, 0, buffer, tag).unwrap();
    };
    let before = interrupts();
    for tag in 0..100 {
        read(&mut queue, tag);
        while queue.try_reap().unwrap().is_none() {}
    }
    assert_eq!(interrupts(), before, "a queue that was only polled has interrupts");
    assert!(!queue.arm().unwrap(), "nothing is there");
    for tag in 0..100 {
        read(&mut queue, tag);
        // The queue was armed before, and the request makes its descriptor readable nevertheless.
        sleep(&queue);
        assert_eq!(reap_by_events(&mut queue), tag);
        assert!(!queue.arm().unwrap());
    }
    assert!(interrupts() >= before + 100, "{before}, {}", interrupts());
    // Side by side with requests over the channel, and by calls that wait.
    let mut client = Queue::connect(SOCKET, Options::new().limit(LIMIT).choice(PathChoice::Channel)).unwrap();
    for tag in 0..10 {
        (0..16).for_each(|number| read(&mut queue, tag * 16 + number));
        queue.wait_for(16, LIMIT).unwrap();
        let mut done: Vec<u64> = (0..16).map(|_| queue.reap().unwrap().user_data).collect();
        done.sort_unstable();
        assert!(done.iter().copied().eq(tag * 16..tag * 16 + 16), "{done:?}");
    }
    let two = client.open("two", Access::ReadWrite).unwrap();
    client.read(two, 0, vec![0; BLOCK], 1).unwrap();
    assert_eq!(reap_by_events(&mut client), 1);
    // A thread for callbacks sleeps as well, before the volume is opened, too.
    drop(queue);
    let (sender, receiver) = std::sync::mpsc::channel();
    let queue = Queue::connect(SOCKET, Options::new().limit(LIMIT).depth(32)).unwrap();
    let called = queue.dispatch(move |done| sender.send(done.unwrap().user_data).unwrap()).unwrap();
    let volume = called.with(open_one);
    for tag in 0..50 {
        called
            .with(|queue| queue.read(volume, 0, vec![0; BLOCK], tag))
            .map_err(|error| error.to_string())
            .unwrap();
        assert_eq!(receiver.recv_timeout(LIMIT).unwrap(), tag);
    }
}

#[test]
#[ignore = "run in the guest by the test above"]
fn keeps_its_data() {
    let client = client(PathChoice::Automatic);
    let volume = open_directly(&client, "two");
    let (memory, mut read) = (pattern(5, 4 << 20), vec![0; PIECE]);
    for at in (0..VOLUME).step_by(STRIDE) {
        volume.write_at(&pattern(at, PIECE), at).unwrap();
    }
    println!("it looks");
    let end = Instant::now() + LIMIT;
    let mut is_last = false;
    while !is_last {
        assert!(Instant::now() < end, "nobody attacks");
        is_last = Path::new("/tmp/attacked").exists();
        for at in (0..VOLUME).step_by(STRIDE) {
            volume.read_at(&mut read, at).unwrap();
            assert!(read == pattern(at, PIECE), "the data at {at} has changed");
        }
        assert!(memory == pattern(5, 4 << 20), "memory has changed");
    }
}

/// A connection to the server that does what it likes.
struct Raw(Messages);

impl Raw {
    fn connect() -> Raw {
        check_is_inside();
        let raw = Raw(Messages::over(connect(Path::new(SOCKET)).unwrap(), MESSAGE_BYTES_MAX));
        let hello = ControlRequest::Hello { version: VERSION, name: "hostile".into() };
        assert!(matches!(raw.ask(&hello).0, ControlReply::Welcome { .. }));
        raw
    }

    fn ask(&self, ask: &ControlRequest) -> (ControlReply, Vec<std::os::fd::OwnedFd>) {
        self.0.send(&ask.to_bytes().unwrap(), &[], LIMIT).unwrap();
        let packet = self.0.receive(LIMIT).unwrap();
        (ControlReply::from_bytes(&packet.bytes).unwrap(), packet.descriptors)
    }
}

/// Pages of this process that a function may access: the hostile client's own queues.
struct Pages {
    base: NonNull<u8>,
    address: u64,
}

const ADMIN_SUBMISSIONS: usize = 0;
const ADMIN_COMPLETIONS: usize = 1;
const SUBMISSIONS: usize = 2;
const COMPLETIONS: usize = 3;
const LIST: usize = 4;
const PAGES: usize = 8;
/// Number of entries of each queue of the hostile client.
const ENTRIES: u32 = 64;
/// Registers and doorbells.
const CC: usize = 0x14;
const CSTS: usize = 0x1c;
const AQA: usize = 0x24;
const ASQ: usize = 0x28;
const ACQ: usize = 0x30;
const DOORBELLS: usize = 0x1000;

impl Pages {
    #[expect(unsafe_code, reason = "memory that a controller accesses")]
    fn new(function: &Vfio) -> Pages {
        let memory = Box::leak(Box::new([[0u64; 512]; PAGES + 1]));
        let base = memory.as_mut_ptr().cast::<u8>();
        let base = base.wrapping_add(base.align_offset(4096));
        // SAFETY: the memory is leaked, and accessed by volatile stores and loads only.
        let address = unsafe { function.map(base, PAGES * 4096) }.unwrap();
        Pages { base: NonNull::new(base).unwrap(), address }
    }

    fn address(&self, page: usize) -> u64 {
        self.address + 4096 * page as u64
    }

    #[expect(unsafe_code, reason = "memory that a controller accesses")]
    fn write(&self, page: usize, word: usize, value: u64) {
        assert!(page < PAGES && word < 512);
        // SAFETY: the word is within the leaked pages.
        unsafe { self.base.cast::<u64>().add(page * 512 + word).write_volatile(value) };
    }

    /// Writes a command of eight words.
    fn command(&self, page: usize, entry: usize, words: [u64; 8]) {
        (0..8).for_each(|word| self.write(page, entry * 8 + word, words[word]));
    }
}

fn wait_for(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !is_so() {
        if Instant::now() > end {
            println!("in vain: {what}");
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Enables the controller with admin queues at these addresses. Returns true if it becomes ready.
fn enable(function: &Vfio, submissions: u64, completions: u64, limit: Duration) -> bool {
    function.write32(CC, 0);
    wait_for("it is disabled", limit, || function.read32(CSTS) & 1 == 0);
    function.write32(AQA, (ENTRIES - 1) << 16 | (ENTRIES - 1));
    function.write64(ASQ, submissions);
    function.write64(ACQ, completions);
    function.write32(CC, 4 << 20 | 6 << 16 | 1);
    wait_for("it is enabled", limit, || function.read32(CSTS) & 1 == 1)
}

/// A hostile client: it has its controller write to all physical memory and to the addresses of others, writes rubbish
/// into its registers, doorbells and queues, and goes on after the grant was revoked.
#[test]
#[ignore = "run in the guest by the test above"]
fn attacks() {
    const SECOND: Duration = Duration::from_secs(1);
    let raw = Raw::connect();
    let ask = ControlRequest::OpenDirect { volume: "one".into(), access: Access::ReadWrite };
    let end = Instant::now() + LIMIT;
    let (address, descriptors) = loop {
        match raw.ask(&ask) {
            (ControlReply::GrantedDirect { address, .. }, descriptors) => break (address, descriptors),
            (ControlReply::Refused(refused), _) if refused.code == RefusalKind::Limit => {
                assert!(Instant::now() < end, "{refused}");
                std::thread::sleep(Duration::from_millis(20));
            }
            (answer, _) => panic!("{answer:?}"),
        }
    };
    let address: Address = address.parse().unwrap();
    let function = Vfio::from_descriptors(&address, descriptors).unwrap();
    let pages = Pages::new(&function);
    assert!(enable(&function, pages.address(ADMIN_SUBMISSIONS), pages.address(ADMIN_COMPLETIONS), LIMIT));
    // A pair of queues: Create I/O Completion Queue, Create I/O Submission Queue.
    let size = u64::from(ENTRIES - 1) << 16 | 1;
    let completions = [0x05 | 1 << 16, 0, 0, pages.address(COMPLETIONS), 0, size | 1 << 32, 0, 0];
    let submissions = [0x01 | 2 << 16, 0, 0, pages.address(SUBMISSIONS), 0, size | (1 << 16 | 1) << 32, 0, 0];
    pages.command(ADMIN_SUBMISSIONS, 0, completions);
    pages.command(ADMIN_SUBMISSIONS, 1, submissions);
    function.write32(DOORBELLS, 2);
    std::thread::sleep(SECOND);
    // Reads of the own namespace, 2 MiB each, to all physical addresses, by lists that are in own memory.
    let mut tail = 0;
    for target in (0..512 << 20).step_by(2 << 20) {
        (0..512).for_each(|page| pages.write(LIST, page, target + 4096 * page as u64));
        // 2 MiB as 4096 blocks of 512 bytes; the first page is in the command.
        let words = [0x02 | (tail as u64) << 16 | 1 << 32, 0, 0, target, pages.address(LIST) + 8, 0, 4095, 0];
        pages.command(SUBMISSIONS, tail, words);
        tail = (tail + 1) % ENTRIES as usize;
        function.write32(DOORBELLS + 8, tail as u32);
        function.write32(DOORBELLS + 12, tail as u32);
        std::thread::sleep(Duration::from_millis(2));
    }
    // Writes of foreign memory to the own namespace, lists that are foreign, and namespaces of others. The label at the
    // beginning of the own namespace is left alone: its loss would be nobody else's.
    for (number, (opcode, namespace, first, second)) in [
        (0x01u64, 1u64, 0x10_0000, 0x20_0000),
        (0x02, 1, 0x10_0000, 0x7fff_f000),
        (0x02, 2, pages.address(LIST), 0),
        (0x01, 2, pages.address(LIST), 0),
        (0x01, 0xffff_ffff, pages.address(LIST), 0),
        (0x02, 1, u64::MAX - 4095, u64::MAX - 4095),
    ]
    .into_iter()
    .enumerate()
    {
        pages.command(
            SUBMISSIONS,
            tail,
            [opcode | (number as u64) << 16 | namespace << 32, 0, 0, first, second, 8192, 15, 0],
        );
        tail = (tail + 1) % ENTRIES as usize;
        function.write32(DOORBELLS + 8, tail as u32);
        std::thread::sleep(Duration::from_millis(20));
    }
    // Rubbish: commands, doorbells, registers.
    let mut word = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word
    };
    for _ in 0..20 {
        for entry in 0..ENTRIES as usize {
            // The admin commands that could harm others are what the user is trusted not to use; all others come.
            let rubbish = [(); 8].map(|()| next());
            pages.command(SUBMISSIONS, entry, rubbish);
        }
        for doorbell in 0..8 {
            function.write32(DOORBELLS + 4 * doorbell, next() as u32);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Queues at foreign addresses.
    enable(&function, 0x10_0000, 0x20_0000, SECOND);
    function.write32(DOORBELLS, 8);
    std::thread::sleep(Duration::from_millis(100));
    for register in (0..0x40).step_by(4).filter(|register| *register != CC) {
        function.write32(register, next() as u32);
    }
    // Taken back, it does not come to life again, whatever its holder does.
    let administrator = client(PathChoice::Channel);
    administrator.revoke("one").unwrap();
    assert!(!enable(&function, pages.address(ADMIN_SUBMISSIONS), pages.address(ADMIN_COMPLETIONS), SECOND));
    function.cut_off();
    assert!(!enable(&function, pages.address(ADMIN_SUBMISSIONS), pages.address(ADMIN_COMPLETIONS), SECOND));
    let refused = administrator.open("one", Access::ReadWrite).unwrap_err().to_string();
    assert!(refused.contains("was taken back from a client, and cannot be opened yet"), "{refused}");
    drop(function);
    open_directly(&client(PathChoice::Automatic), "one").flush().unwrap();
}

#[test]
#[ignore = "run in the guest by the test above"]
fn writes_until_it_is_killed() {
    let client = client(PathChoice::Automatic);
    let volume = open_directly(&client, "one");
    println!("it writes");
    let end = Instant::now() + LIMIT;
    for number in 0u64.. {
        volume.write_at(&pattern(number, 1 << 20), (number % 8) << 20).unwrap();
        assert!(Instant::now() < end, "nobody kills it");
    }
}

#[test]
#[ignore = "run in the guest by the test above"]
fn writes_until_the_server_is_gone() {
    let client = client(PathChoice::Automatic);
    let volume = open_directly(&client, "one");
    println!("it writes");
    let end = Instant::now() + LIMIT;
    for number in 0u64.. {
        let written = volume
            .write_at(&pattern(number, 1 << 20), (number % 8) << 20)
            .and_then(|()| volume.check_server());
        assert!(Instant::now() < end, "the server is still there");
        match written {
            Ok(()) => {}
            Err(Error::Gone { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}
