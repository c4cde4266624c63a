//! Tests of a guest whose disk is a volume of a device server.

use crate::driver::{DATA_BYTES, Driver, FLUSH, READ, SLOTS, WRITE};
use bywash_client::{Access, Client, NewVolume, Options as ClientOptions, PathChoice, Queue};
use bywash_device::{Command, CommandError, Device, Operation, Segment};
use bywash_server::Server;
use bywash_vhost::{Error, Export, OnVolume, Options};
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Bench {
    folder: TempDir,
    server: Option<Server>,
}

impl Bench {
    /// Starts a server with two volumes of 64 MiB: `fast`, in memory, and `slow`, in a file.
    fn new() -> Bench {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let disk = format!("disk=file:{},size=96M", folder.path().join("disk").display());
        let options = bywash_server::Options::new(folder.path().join("server"))
            .cores(bywash_support::cores::server_cores())
            .device("memory=mem:96M".parse().unwrap())
            .device(disk.parse().unwrap())
            .policy(folder.path().join("volumes"));
        let server = Some(Server::start(options).unwrap());
        let bench = Bench { folder, server };
        let client = bench.client();
        for (name, device) in [("fast", "memory"), ("slow", "disk")] {
            client.create(NewVolume::new(name, device, 64 << 20)).unwrap();
        }
        bench
    }

    fn options(&self) -> ClientOptions {
        ClientOptions::new().limit(Duration::from_secs(10))
    }

    fn client(&self) -> Client {
        Client::connect(self.folder.path().join("server"), self.options()).unwrap()
    }

    fn queue(&self, choice: PathChoice) -> Queue {
        Queue::connect(self.folder.path().join("server"), self.options().choice(choice)).unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("guest")
    }

    fn serve(&self, device: OnVolume) -> Export {
        let _ = std::fs::remove_file(self.socket());
        let listener = UnixListener::bind(self.socket()).unwrap();
        Export::start(listener, device, Options::new(), |_| {}).unwrap()
    }
}

#[test]
fn it_is_read_and_written_by_either_way() {
    let bench = Bench::new();
    for (name, choice) in
        [("fast", PathChoice::Automatic), ("fast", PathChoice::Channel), ("slow", PathChoice::Automatic)]
    {
        let device = OnVolume::open(bench.queue(choice), name, Access::ReadWrite).unwrap();
        let export = bench.serve(device);
        let mut driver = Driver::attach(&bench.socket(), 0);
        for slot in 0..SLOTS {
            driver.fill(slot, 100 + slot as u8);
            driver.ask(slot, WRITE, 3 * u64::from(slot));
        }
        driver.wait(SLOTS);
        driver.ask(0, FLUSH, 0);
        driver.wait(1);
        for slot in 0..SLOTS {
            driver.fill(slot, 0);
            driver.ask(slot, READ, 3 * u64::from(slot));
        }
        driver.wait(SLOTS);
        for slot in 0..SLOTS {
            assert_eq!(
                (driver.status(slot), driver.data(slot)),
                (0, vec![100 + slot as u8; DATA_BYTES]),
                "{name}"
            );
        }
        drop((driver, export));
        let mut bytes = vec![0; DATA_BYTES];
        let volume = bench.client().open(name, Access::Read).unwrap();
        volume.read_at(&mut bytes, 3 * 5 * DATA_BYTES as u64).unwrap();
        assert_eq!(bytes, [105; DATA_BYTES]);
    }
}

#[test]
fn requests_to_a_mapped_volume_are_carried_out_at_once() {
    let mut bench = Bench::new();
    let mut memory = vec![7u8; 1024];
    let mut carry_out = |device: &mut OnVolume, operation, offset| {
        // SAFETY: the memory outlives the call, and nothing else accesses it meanwhile.
        let segments = unsafe { [Segment::new(memory.as_mut_ptr(), 1024)] };
        let done = device.carry_out(&Command::new(0, operation, offset, 0, &segments));
        (done, memory[0], std::mem::replace(&mut memory[0], 1))
    };
    let open =
        |bench: &Bench, choice, name| OnVolume::open(bench.queue(choice), name, Access::ReadWrite).unwrap();
    for (choice, name) in [(PathChoice::Channel, "fast"), (PathChoice::Automatic, "slow")] {
        let mut device = open(&bench, choice, name);
        assert_eq!(carry_out(&mut device, Operation::Read, 0).0, None, "{name}: not mapped");
    }
    let mut device = open(&bench, PathChoice::Automatic, "fast");
    assert_eq!(carry_out(&mut device, Operation::Write, 4096).0, Some(Ok(())));
    assert_eq!(carry_out(&mut device, Operation::Read, 8192), (Some(Ok(())), 0, 0));
    assert_eq!(carry_out(&mut device, Operation::Read, 4096).0, Some(Ok(())));
    assert_eq!(carry_out(&mut device, Operation::Read, 1).0, Some(Err(CommandError::Unaligned)));
    assert_eq!(carry_out(&mut device, Operation::Flush, 0).0, None);
    assert_eq!(device.in_flight(), 0);
    bench.server.take().unwrap().stop();
    // The library looks now and then whether the server is alive.
    let failed = (0..100_000).any(|_| carry_out(&mut device, Operation::Write, 0).0 != Some(Ok(())));
    assert!(failed, "writes to memory of a server that is gone count");
    let after = carry_out(&mut device, Operation::Write, 0).0;
    assert!(!matches!(after, Some(Ok(()))), "{after:?}");
}

#[test]
fn when_the_server_is_gone_every_request_fails() {
    let mut bench = Bench::new();
    let export =
        bench.serve(OnVolume::open(bench.queue(PathChoice::Automatic), "slow", Access::ReadWrite).unwrap());
    let mut driver = Driver::attach(&bench.socket(), 0);
    driver.ask(0, WRITE, 0);
    driver.wait(1);
    assert_eq!(driver.status(0), 0);
    bench.server.take().unwrap().stop();
    for slot in 0..SLOTS {
        driver.ask(slot, if slot % 2 == 0 { READ } else { WRITE }, 0);
    }
    driver.wait(SLOTS);
    assert!((0..SLOTS).all(|slot| driver.status(slot) == 1));
    assert_eq!(export.stats().failed, u64::from(SLOTS));
}

#[test]
fn what_may_not_be_had_is_no_disk() {
    let bench = Bench::new();
    for (name, access, why) in [("slow", Access::Write, "written only"), ("other", Access::Read, "other")] {
        match OnVolume::open(bench.queue(PathChoice::Automatic), name, access) {
            Err(Error::Unfit(said)) => assert!(said.contains(why), "{said}"),
            _ => panic!("{name} was opened"),
        }
    }
}

/// Copies a volume into a file.
#[cfg(target_arch = "x86_64")]
fn copy_volume(client: &Client, name: &str, to: &Path) {
    use std::io::Write;
    let volume = client.open(name, Access::Read).unwrap();
    let mut image = std::fs::File::create(to).unwrap();
    let mut bytes = vec![0; 1 << 20];
    for part in 0..64 {
        volume.read_at(&mut bytes, part << 20).unwrap();
        image.write_all(&bytes).unwrap();
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_guest_makes_a_file_system_on_it() {
    let bench = Bench::new();
    let export =
        bench.serve(OnVolume::open(bench.queue(PathChoice::Automatic), "slow", Access::ReadWrite).unwrap());
    let said = bywash_support::guest::Guest::new(&bench.socket())
        .boot(bywash_support::guest::script::FILE_SYSTEM)
        .wait_for_end();
    let stats = export.stats();
    assert_eq!((stats.refused, stats.failed), (0, 0), "{stats:?}");
    drop(export);
    let image = bench.folder.path().join("copy");
    copy_volume(&bench.client(), "slow", &image);
    bywash_support::guest::check_files(&image, &said);
}

/// A volume changes its size while a guest uses it: the frontend is notified, and requests keep to the new size.
#[test]
fn the_size_of_a_volume_changes_while_it_is_used() {
    let bench = Bench::new();
    let client = bench.client();
    for name in ["fast", "slow"] {
        let device = OnVolume::open(bench.queue(PathChoice::Automatic), name, Access::ReadWrite).unwrap();
        let export = bench.serve(device);
        let mut driver = Driver::attach(&bench.socket(), 0);
        let mut notified = driver.listen();
        assert_eq!(driver.bytes(), 64 << 20);
        for megabytes in [72, 32, 80] {
            client.resize(name, megabytes << 20).unwrap();
            export.refresh();
            let mut message = [0; 12];
            notified.read_exact(&mut message).unwrap();
            assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], "the configuration has changed");
            assert_eq!(driver.bytes(), megabytes << 20);
            let pages = (megabytes << 20) / DATA_BYTES as u64;
            driver.fill(0, megabytes as u8);
            driver.ask(0, WRITE, pages - 1);
            driver.ask(1, WRITE, pages);
            driver.wait(2);
            assert_eq!((driver.status(0), driver.status(1)), (0, 1), "{name} of {megabytes} MiB");
            driver.ask(1, READ, pages - 1);
            driver.wait(1);
            assert_eq!(driver.data(1), [megabytes as u8; DATA_BYTES]);
        }
        // The grants of former sizes were given back.
        let grants =
            || client.status().unwrap().clients.iter().map(|client| client.grants.len()).sum::<usize>();
        let end = Instant::now() + Duration::from_secs(20);
        while grants() != 1 {
            assert!(Instant::now() < end, "{} grants are held", grants());
        }
        // Nothing is told of if nothing has changed.
        export.refresh();
        driver.ask(0, FLUSH, 0);
        driver.wait(1);
        notified.set_nonblocking(true).unwrap();
        assert!(notified.read(&mut [0]).is_err());
    }
}

/// A size that changes while nobody is connected is seen by whoever connects next.
#[test]
fn the_next_frontend_sees_the_new_size() {
    let bench = Bench::new();
    let device = OnVolume::open(bench.queue(PathChoice::Automatic), "slow", Access::ReadWrite).unwrap();
    let export = bench.serve(device);
    bench.client().resize("slow", 80 << 20).unwrap();
    export.refresh();
    let mut driver = Driver::attach(&bench.socket(), 0);
    assert_eq!(driver.bytes(), 80 << 20);
}

/// A guest that kicks only when the disk has asked for it, with pauses in which the disk's thread goes on looking, or falls
/// asleep.
#[test]
fn a_guest_that_kicks_as_it_is_asked_to_is_never_forgotten() {
    let bench = Bench::new();
    let device = OnVolume::open(bench.queue(PathChoice::Channel), "fast", Access::ReadWrite).unwrap();
    let export = bench.serve(device);
    let mut driver = Driver::attach(&bench.socket(), 0);
    let mut kicks = 0;
    for number in 0..REQUESTS {
        driver.fill(0, number as u8);
        kicks += u32::from(driver.ask_if_wanted(0, WRITE, u64::from(number % 16)));
        driver.wait(1);
        assert_eq!(driver.status(0), 0);
        std::thread::sleep(Duration::from_micros([0, 0, 0, 20, 60, 150, 400][number as usize % 7]));
    }
    assert!((1..=REQUESTS).contains(&kicks), "{kicks}");
    let stats = export.stats();
    assert_eq!(
        (stats.requests, stats.bytes_written),
        (u64::from(REQUESTS), u64::from(REQUESTS) * DATA_BYTES as u64)
    );
}

/// Number of requests of a guest that pauses between them.
const REQUESTS: u32 = 2000;

#[test]
fn buffers_that_are_kept_make_room_for_a_large_request() {
    let bench = Bench::new();
    let options = bench.options().choice(PathChoice::Channel).arena_bytes(1 << 20);
    let queue = Queue::connect(bench.folder.path().join("server"), options).unwrap();
    let mut device = OnVolume::open(queue, "fast", Access::ReadWrite).unwrap();
    let largest = device.geometry().transfer_max as usize;
    let mut memory = vec![0u8; largest];
    let mut read = |device: &mut OnVolume, count: usize, bytes: usize| {
        for token in 0..count {
            // SAFETY: the memory outlives the commands, which are reaped below, and nothing else accesses it meanwhile.
            let segments = unsafe { [Segment::new(memory.as_mut_ptr(), bytes)] };
            let submitted = device.submit(Command::new(token as u64, Operation::Read, 0, 0, &segments));
            assert!(submitted.is_ok(), "{bytes} bytes, number {token}");
        }
        let end = Instant::now() + Duration::from_secs(10);
        let mut done = 0;
        while done < count {
            device.reap(&mut |completion| {
                assert_eq!(completion.result, Ok(()));
                done += 1;
            });
            assert!(Instant::now() < end, "{done} of {count} are done");
        }
    };
    // The largest request takes the whole arena, of which buffers of the others are kept.
    for _ in 0..3 {
        read(&mut device, 32, 16 << 10);
        read(&mut device, 1, largest);
        read(&mut device, 1, 512);
    }
}
