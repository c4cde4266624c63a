//! Tests of the client against the real server: both paths, revoked grants, changed permissions, a server
//! that stops.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_client::{
    Access, Client, Error, NewVolume, Options, PathChoice, Permissions, Range, ReadPiece, Reconnect,
    RefusalKind, VolumePath, WritePiece,
};
use bywash_server::Server;
use bywash_support::peers::rounds;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The example program that the guide shows.
#[expect(dead_code, reason = "it begins in the middle here")]
#[path = "../examples/log.rs"]
mod log;

/// The example program that the guide to NVMe shows.
#[expect(dead_code, reason = "it begins in the middle here")]
#[path = "../examples/sum.rs"]
mod sum;

struct Bench {
    folder: TempDir,
    server: Option<Server>,
}

impl Bench {
    fn new() -> Bench {
        let mut bench = Bench { folder: tempfile::tempdir().unwrap(), server: None };
        bench.start();
        bench
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn start(&mut self) {
        let disk = self.folder.path().join("disk");
        let options = bywash_server::Options::new(self.socket())
            .cores(bywash_support::cores::server_cores())
            .device("memory=mem:32M".parse().unwrap())
            .device(format!("disk=file:{},size=32M", disk.display()).parse().unwrap())
            .policy(self.folder.path().join("volumes"));
        self.server = Some(Server::start(options).unwrap());
    }

    fn stop(&mut self) {
        self.server.take().unwrap().stop();
    }

    /// Connects a client and creates the volumes `fast`, in memory, and `slow`, in a file, unless they exist.
    fn client(&self, options: Options) -> Client {
        let client = Client::connect(self.socket(), options).unwrap();
        for (name, device) in [("fast", "memory"), ("slow", "disk")] {
            let made = client.create(NewVolume::new(name, device, 5 << 20));
            assert!(made.is_ok() || made.as_ref().is_err_and(|error| error.code().is_some()), "{made:?}");
        }
        client
    }
}

fn options(choice: PathChoice) -> Options {
    Options::new().choice(choice).limit(Duration::from_secs(10))
}

#[test]
fn both_ways_lead_to_the_same_bytes() {
    let bench = Bench::new();
    let client = bench.client(options(PathChoice::Automatic));
    let other = Client::connect(bench.socket(), options(PathChoice::Channel)).unwrap();
    let mapped = client.open("fast", Access::ReadWrite).unwrap();
    let channel = other.open("fast", Access::ReadWrite).unwrap();
    let slow = client.open("slow", Access::ReadWrite).unwrap();
    assert_eq!(mapped.path(), VolumePath::Mapped);
    assert!(!channel.path().is_mapped() && !slow.path().is_mapped(), "{:?}", slow.path());
    // The contents cross chunk boundaries, and are longer than one request over the channel.
    let contents: Vec<u8> = (0..3 << 20).map(|at: usize| (at / 333) as u8).collect();
    for (writer, reader) in [(&mapped, &channel), (&channel, &mapped), (&slow, &slow)] {
        let block = u64::from(writer.block().max(reader.block()));
        writer.write_at(&contents, block).unwrap();
        writer.flush().unwrap();
        let mut bytes = vec![0; contents.len()];
        reader.read_at(&mut bytes, block).unwrap();
        assert!(bytes == contents);
        writer.write_zeroes(block, 1 << 20).unwrap();
        writer.discard(2 << 20, 1 << 20).unwrap();
        reader.read_at(&mut bytes[..1 << 20], block).unwrap();
        assert!(bytes[..1 << 20].iter().all(|byte| *byte == 0));
        let (zeros, ones) = (vec![0; block as usize], vec![1; block as usize]);
        assert!(writer.compare_and_write(block, &zeros, &ones).unwrap());
        assert!(!writer.compare_and_write(block, &zeros, &ones).unwrap());
    }
    let block = slow.block() as usize;
    let (one, other) = (vec![6; block], vec![7; block]);
    let pieces = [
        WritePiece { volume: &mapped, offset: 0, from: &one },
        WritePiece { volume: &slow, offset: 0, from: &other },
    ];
    client.write_many_durable(&pieces).unwrap();
    let (mut one, mut other) = (vec![0; block], vec![0; block]);
    let pieces = &mut [
        ReadPiece { volume: &slow, offset: 0, to: &mut one },
        ReadPiece { volume: &mapped, offset: 0, to: &mut other },
    ];
    client.read_many(pieces).unwrap();
    assert_eq!((one[0], other[0]), (7, 6));
    let names: Vec<String> = client.volumes().unwrap().into_iter().map(|volume| volume.name).collect();
    assert_eq!(names, ["fast", "slow"]);
    assert_eq!(client.status().unwrap().clients.len(), 2);
}

#[test]
fn a_queue_keeps_many_requests_in_flight() {
    let bench = Bench::new();
    let mut queue = bench.client(options(PathChoice::Automatic)).queue().unwrap();
    let volumes = ["fast", "slow"].map(|name| queue.open(name, Access::ReadWrite).unwrap());
    let block = volumes.map(|volume| queue.block(volume).unwrap() as usize).into_iter().max().unwrap();
    for (number, volume) in (0..256u64).zip(volumes.into_iter().cycle()) {
        if queue.in_flight() == queue.depth() {
            queue.reap().unwrap().outcome.unwrap();
        }
        queue.write_from(volume, number * block as u64, &vec![number as u8; block], false, number).unwrap();
    }
    while queue.in_flight() > 0 {
        queue.reap().unwrap().outcome.unwrap();
    }
    for (at, volume) in volumes.into_iter().enumerate() {
        let range = Range { volume, offset: (128 + at as u64) * block as u64, length: block };
        queue.read_many(&[range; 2], vec![0; 2 * block], 1).unwrap();
        let done = queue.reap().unwrap();
        done.outcome.unwrap();
        let mut bytes = vec![0; 2 * block];
        done.memory.unwrap().read(0, &mut bytes);
        assert_eq!(bytes, vec![128 + at as u8; 2 * block]);
    }
}

/// A program that writes while its grant is revoked gets an error, and all writes reported as done are in the
/// volume.
#[test]
fn grants_are_taken_back_on_either_way() {
    let bench = Bench::new();
    let client = bench.client(options(PathChoice::Automatic));
    for round in 0..rounds(20) {
        for name in ["fast", "slow"] {
            let volume = client.open(name, Access::ReadWrite).unwrap();
            let block = volume.block() as usize;
            let contents = |number: u64| number.to_le_bytes().repeat(block / 8);
            let confirmed = AtomicU64::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 1u64.. {
                        match volume.write_at(&contents(number), 0) {
                            Ok(()) => confirmed.store(number, Relaxed),
                            Err(Error::Revoked { .. }) => return,
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
                while confirmed.load(Relaxed) == 0 {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_micros(round * 31 % 500));
                client.revoke(name).unwrap();
            });
            let confirmed = confirmed.into_inner();
            assert!(matches!(volume.write_at(&contents(0), 0), Err(Error::Revoked { .. })));
            let mut there = vec![0; block];
            client.open(name, Access::Read).unwrap().read_at(&mut there, 0).unwrap();
            let first = u64::from_le_bytes(there[..8].try_into().unwrap());
            // The write that failed may nevertheless be in the volume; of a mapped block, only a part may be.
            assert!([confirmed, confirmed + 1].contains(&first), "{first}, and {confirmed} was done");
        }
    }
}

#[test]
fn what_may_only_be_read_is_said_at_open() {
    let bench = Bench::new();
    let client = bench.client(options(PathChoice::Automatic));
    let before = client.open("fast", Access::ReadWrite).unwrap();
    client.permit("fast", Permissions::default().read_only(true)).unwrap();
    assert!(matches!(before.read_at(&mut [0; 512], 0), Err(Error::Revoked { .. })));
    assert_eq!(client.open("fast", Access::ReadWrite).unwrap_err().code(), Some(RefusalKind::Denied));
    let reading = client.open("fast", Access::Read).unwrap();
    assert_eq!(reading.path(), VolumePath::Mapped);
    assert!(matches!(reading.write_at(&[0; 512], 0), Err(Error::Denied { .. })));
}

#[test]
fn a_server_that_is_stopped_and_started_is_found_again() {
    let mut bench = Bench::new();
    let again = options(PathChoice::Channel).reconnect(Reconnect::Within(Duration::from_secs(10)));
    let client = bench.client(again);
    let slow = client.open("slow", Access::ReadWrite).unwrap();
    let block = slow.block() as usize;
    let mut queue = client.queue().unwrap();
    let queued = queue.open("slow", Access::ReadWrite).unwrap();
    for round in 1..5u8 {
        slow.write_at_durable(&vec![round; block], 0).unwrap();
        queue.write_from(queued, block as u64, &vec![round; block], true, 1).unwrap();
        bench.stop();
        bench.start();
        let mut bytes = vec![0; block];
        slow.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, vec![round; block]);
        queue.reap().unwrap().outcome.unwrap();
        slow.read_at(&mut bytes, block as u64).unwrap();
        assert_eq!(bytes, vec![round; block]);
    }
    let gone = bench.client(options(PathChoice::Automatic));
    let volume = gone.open("fast", Access::ReadWrite).unwrap();
    bench.stop();
    assert!(matches!(volume.flush(), Err(Error::Gone { .. })));
}

#[test]
fn a_file_is_passed() {
    let bench = Bench::new();
    let client = bench.client(options(PathChoice::Automatic));
    let path = bench.folder.path().join("passed");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let volume = client.open_descriptor(std::fs::File::open(&path).unwrap()).unwrap();
    assert_eq!((volume.len(), volume.access()), (1 << 20, Access::Read));
    let mut bytes = vec![0; 1 << 20];
    volume.read_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7));
}

/// A device needs 3 s for a request. The program ends its wait earlier and goes on using the same connection.
#[test]
fn a_program_ends_a_wait() {
    let bench = Bench::new();
    let late = bench.folder.path().join("late");
    let given = bywash_server::Options::new(&late).device("late=mem:4M,latency=3000ms".parse().unwrap());
    let server = Server::start(given).unwrap();
    let asked = std::sync::Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    let options = options(PathChoice::Automatic).interrupted_by(move || count.fetch_add(1, Relaxed) == 3);
    let client = Client::connect(&late, options).unwrap();
    client.create(NewVolume::new("volume", "late", 1 << 20)).unwrap();
    let volume = client.open("volume", Access::ReadWrite).unwrap();
    let begin = Instant::now();
    let ended = volume.read_at(&mut [0; 4096], 0).unwrap_err();
    assert!(matches!(ended, Error::Interrupted), "{ended}");
    assert_eq!(asked.load(Relaxed), 4);
    assert!((Duration::from_millis(150)..Duration::from_secs(2)).contains(&begin.elapsed()));
    volume.write_at(&[7; 4096], 0).unwrap();
    assert!(asked.load(Relaxed) > 30, "it is asked some twenty times a second");
    server.stop();
}

#[test]
fn the_program_of_the_guide_works() {
    let page = include_str!("../../../docs/guide/serve.md");
    let shown = page.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(include_str!("../examples/log.rs").ends_with(shown), "the guide shows another program");
    let bench = Bench::new();
    let client = bench.client(options(PathChoice::Automatic));
    client.create(NewVolume::new("log", "memory", 1 << 20)).unwrap();
    log::use_log(bench.socket().to_str().unwrap()).unwrap();
    let mut bytes = [0; 4096];
    client.open("log", Access::Read).unwrap().read_at(&mut bytes, 8192).unwrap();
    assert_eq!(bytes, [7; 4096]);
}

#[test]
fn the_program_of_the_guide_to_nvme_works() {
    let page = include_str!("../../../docs/guide/nvme.md");
    let shown = page.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(include_str!("../examples/sum.rs").ends_with(shown), "the guide shows another program");
    for choice in [PathChoice::Mapped, PathChoice::Channel] {
        let bench = Bench::new();
        let client = bench.client(options(choice));
        client.create(NewVolume::new("log", "memory", 1 << 20)).unwrap();
        client.open("log", Access::ReadWrite).unwrap().write_at(&[7; 4096], 8192).unwrap();
        assert_eq!(sum::sum(bench.socket().to_str().unwrap()).unwrap(), 7 * 4096);
    }
}
