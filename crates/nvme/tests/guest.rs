//! Tests of the driver on QEMU's NVMe controllers, behind an IOMMU, in a guest.
//!
//! This test program runs in the guest as well: the tests below [`inside`] are run there, and are ignored on the host.
//! The guest has three controllers: one with an ordinary disk, one whose blocks from 256 on cannot be read, and one that
//! takes [`LATENCY_MS`] for each command.

#![cfg(target_arch = "x86_64")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_device::testing::conformance::CASES;
use bywash_support::guest::script::INSIDE;
use bywash_support::guest::system::VFIO;
use bywash_support::guest::{Disk, Guest};

/// PCI address of the controller with an ordinary disk.
const PLAIN: &str = "0000:00:04.0";
/// PCI address of the controller whose blocks from 256 on cannot be read.
const BAD: &str = "0000:00:05.0";
/// PCI address of the controller that is slow.
const SLOW: &str = "0000:00:06.0";
/// Time that the slow controller takes for a command, in milliseconds.
const LATENCY_MS: u64 = 1000;

/// Describes a guest with the three controllers, the modules of VFIO, and this program as `/sbin/tests`.
fn guest(disk: &Disk, bad: &Disk) -> Guest {
    let plain = format!("driver=file,node-name=plain,filename={}", disk.image().display());
    let broken = format!(
        "driver=blkdebug,node-name=bad,image.driver=file,image.filename={},inject-error.0.event=none,\
         inject-error.0.iotype=read,inject-error.0.sector=256,inject-error.0.errno=5,inject-error.0.once=off",
        bad.image().display()
    );
    let slow = format!(
        "driver=null-co,node-name=slow,size=1048576,read-zeroes=on,latency-ns={}",
        LATENCY_MS * 1_000_000
    );
    Guest::without_disk()
        .hardware(&["-device", "intel-iommu,intremap=on"])
        .hardware(&["-blockdev", &plain, "-device", "nvme,drive=plain,serial=plain,addr=4"])
        .hardware(&["-blockdev", &broken, "-device", "nvme,drive=bad,serial=bad,addr=5"])
        .hardware(&["-blockdev", &slow, "-device", "nvme,drive=slow,serial=slow,addr=6"])
        .kernel_option("intel_iommu=on")
        .modules(&VFIO)
        .program("tests", &std::env::current_exe().unwrap())
        .seconds_max(400)
}

#[test]
fn it_passes_the_conformance_suite() {
    let (disk, bad) = (Disk::new(1 << 20), Disk::new(1 << 20));
    let script = "inside passes_the_conformance_suite; say passed";
    let mut guest = guest(&disk, &bad).boot(&format!("{INSIDE}{script}"));
    guest.wait_for("passed");
    let said = guest.wait_for_end();
    let cases = said.iter().filter(|line| line.starts_with("case ")).count();
    assert_eq!(cases, 2 * CASES.len(), "{said:?}");
}

#[test]
fn it_survives_what_goes_wrong() {
    let (disk, bad) = (Disk::new(16 << 20), Disk::new(1 << 20));
    let script = r#"
disk() { ls /sys/bus/pci/devices/0000:00:04.0/nvme/nvme*/ | grep '^nvme[0-9]*n1$'; }
step mkdir /disk
step /sbin/mke2fs -q -F -t ext4 /dev/$(disk)
step mount -t ext4 /dev/$(disk) /disk
step dd if=/dev/urandom of=/disk/kept bs=64k count=8 conv=fsync
kept=$(sha256sum < /disk/kept)
inside refuses_a_mounted_disk
step umount /disk
inside gives_the_disk_back
step mount -t ext4 /dev/$(disk) /disk
[ "$(sha256sum < /disk/kept)" = "$kept" ] || fail "the file has changed"
step umount /disk
step /sbin/e2fsck -f -n /dev/$(disk)
say given back
inside tells_of_media_errors
say media errors
inside resets_a_slow_controller
say reset
inside divides_its_queues_among_threads
say divided
inside moves_registered_memory_without_a_copy
say registered
dmesg | grep -q 'DMAR:.*fault addr' && fail "an access was rejected"
inside has_wrong_addresses_rejected
dmesg | grep -q 'DMAR:.*fault addr' || fail "no access was rejected"
say rejected
BYWASH_TEST_INSIDE=1 /sbin/tests --ignored --exact inside::writes_until_it_is_killed --nocapture > /tmp/writes 2>&1 &
writer=$!
count=0
until grep -q 'in flight' /tmp/writes; do
    count=$((count + 1)); [ $count -lt 600 ] || { cat /tmp/writes; fail "nothing is written"; }
    sleep 0.1
done
sleep 1
kill -9 $writer
wait $writer
inside starts_again_after_a_kill
say started again
"#;
    let mut guest = guest(&disk, &bad).boot(&format!("{INSIDE}{script}"));
    for what in ["given back", "media errors", "reset", "divided", "registered", "rejected", "started again"]
    {
        guest.wait_for(what);
    }
    guest.wait_for_end();
}

/// Tests that run in the guest.
mod inside {
    use super::{BAD, LATENCY_MS, PLAIN, SLOW};
    use bywash_device::testing::conformance::{Area, CASES, Subject, pattern};
    use bywash_device::{Command, CommandError, Completion, Device, Region, queues};
    use bywash_nvme::{Address, Error, Function, Nvme, Options, Sysfs, Vfio};
    use bywash_support::guest::script::check_is_inside;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::collections::BTreeSet;
    use std::os::fd::BorrowedFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn bind(at: &str) {
        Sysfs::new().bind(&address(at)).unwrap();
    }

    fn open(at: &str, options: &Options) -> Nvme<Vfio> {
        bind(at);
        let device = Nvme::open(Vfio::open(&address(at)).unwrap(), options).unwrap();
        println!("{}", device.description());
        device
    }

    fn finish<F: Function>(device: &mut Nvme<F>) -> Vec<Completion> {
        let (mut all, end) = (Vec::new(), Instant::now() + Duration::from_secs(60));
        while device.in_flight() > 0 {
            device.reap(&mut |done| all.push(done));
            assert!(Instant::now() < end, "{device:?} is stuck");
        }
        all
    }

    fn run<F: Function>(device: &mut Nvme<F>, command: Command<'_>) -> Result<(), CommandError> {
        device.submit(command).unwrap();
        finish(device)[0].result
    }

    fn write<F: Function>(device: &mut Nvme<F>, offset: u64, bytes: &[u8]) -> Result<(), CommandError> {
        let area = Area::holding(bytes);
        let segments = [area.segment(0, bytes.len())];
        run(device, Command::write(1, offset, &segments).owner(area.clone()))
    }

    fn read<F: Function>(device: &mut Nvme<F>, offset: u64, bytes: usize) -> Result<Vec<u8>, CommandError> {
        let area = Area::new(bytes);
        let segments = [area.segment(0, bytes)];
        run(device, Command::read(1, offset, &segments).owner(area.clone())).map(|()| area.get(0, bytes))
    }

    #[test]
    #[ignore = "run in the guest by the tests above"]
    fn passes_the_conformance_suite() {
        check_is_inside();
        for (queues, depth, shadow_doorbells) in [(1, 64, true), (2, 64, false)] {
            let options = Options { queues, depth, shadow_doorbells, ..Options::default() };
            for (name, case) in CASES {
                let mut device = open(PLAIN, &options);
                assert_eq!(device.description().contains("shadow doorbells"), shadow_doorbells);
                // The suite expects a device that contains zeros.
                let bytes = device.geometry().bytes;
                let start = Instant::now();
                assert_eq!(write(&mut device, 0, &vec![0; bytes as usize]), Ok(()));
                case(Subject::new(Box::new(device), vec![]));
                println!("guest: case {name}, {} ms", start.elapsed().as_millis());
            }
        }
    }

    #[test]
    #[ignore = "run in the guest by the tests above"]
    fn refuses_a_mounted_disk() {
        check_is_inside();
        let found = Sysfs::new().list().unwrap();
        println!("{found:?}");
        assert_eq!(found.len(), 3);
        let error = Sysfs::new().bind(&address(PLAIN)).unwrap_err();
        assert!(
            matches!(&error, Error::Refused { reason, .. } if reason.contains("is mounted at /disk")),
            "{error}"
        );
        let error = Vfio::open(&address(PLAIN)).unwrap_err();
        assert!(error.to_string().contains("bound to nvme"), "{error}");
    }

    #[test]
    #[ignore = "run in the guest by the tests above"]
    fn gives_the_disk_back() {
        check_is_inside();
        let before = Sysfs::new().find(&address(PLAIN)).unwrap();
        let bound = Sysfs::new().bind(&address(PLAIN)).unwrap();
        assert_eq!(bound.previous.as_deref(), Some("nvme"));
        let device = open(PLAIN, &Options::default());
        let error = Vfio::open(&address(PLAIN)).unwrap_err();
        assert!(error.to_string().contains("another process has it"), "{error}");
        let error = Sysfs::new().restore(&bound).unwrap_err();
        assert!(error.to_string().contains("a process has it open"), "{error}");
        drop(device);
        Sysfs::new().restore(&bound).unwrap();
        // The kernel looks for namespaces on a thread of its own.
        let end = Instant::now() + Duration::from_secs(20);
        while Sysfs::new().find(&address(PLAIN)).unwrap().disks != before.disks {
            assert!(Instant::now() < end, "{:?}", Sysfs::new().find(&address(PLAIN)));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    #[ignore = "run in the guest by the tests above"]
    fn tells_of_media_errors() {
        check_is_inside();
        let mut device = open(BAD, &Options::default());
        assert_eq!(write(&mut device, 0, &pattern(1, 256 << 10)), Ok(()));
        assert_eq!(read(&mut device, 256 * 512, 512), Err(CommandError::Io(libc::EIO)));
        assert_eq!(read(&mut device, 0, 256 << 10), Err(CommandError::Io(libc::EIO)));
        assert_eq!(read(&mut device, 0, 64 << 10).unwrap(), pattern(1, 256 << 10)[..64 << 10]);
        assert_eq!(device.stats().resets, 0);
    }

    #[test]
    #[ignore = "run in the guest by the tests above"]
    fn resets_a_slow_controller() {
        check_is_inside();
        // QEMU ends no command by Abort; each reset waits for those in flight.
        let (timeout, abort_timeout) = (Duration::from_millis(300), Duration::from_millis(200));
        let mut device = open(SLOW, &Options { depth: 8, timeout, abort_timeout, ..Options::default() });
        let area = Area::new(4096);
        for token in 0..8 {
            let segments = [area.segment(token as usize * 512, 512)];
            device.submit(Command::read(token, token * 512, &segments).owner(area.clone())).unwrap();
        }
        let done = finish(&mut device);
        let tokens: BTreeSet<u64> = done.iter().map(|done| done.token).collect();
        assert_eq!((done.len(), tokens.len()), (8, 8), "each completes once");
        assert!(done.iter().all(|done| done.result == Err(CommandError::Io(libc::ETIMEDOUT))), "{done:?}");
        let stats = device.stats();
        println!("{stats:?}");
        assert!(stats.resets >= 3 && stats.aborts > 0, "{stats:?}");
        drop((device, done));
        assert_eq!(Arc::strong_count(&area), 1);
        // With more patience the same controller is sound.
        let mut device = open(SLOW, &Options::default());
        let start = Instant::now();
        assert_eq!(read(&mut device, 0, 4096).unwrap(), [0; 4096]);
        assert!(start.elapsed() >= Duration::from_millis(LATENCY_MS / 2));
        assert_eq!(device.stats().resets, 0);
    }

    #[test]
    #[ignore = "run in the guest by the tests above"]
    fn divides_its_queues_among_threads() {
        check_is_inside();
        let count = 3;
        // Each thread is woken by the interrupt of its own queue.
        let all = queues(Box::new(open(SLOW, &Options::default())), count).unwrap();
        let reads = |(number, mut device): (usize, Box<dyn Device>)| {
            assert!(
                device.description().contains("a pair of queues for each thread"),
                "{}",
                device.description()
            );
            let area = Area::holding(&pattern(1, 512));
            let segments = [area.segment(0, 512)];
            device.submit(Command::read(number as u64, 0, &segments).owner(area.clone())).unwrap();
            let (mut wakes, mut done) = (0, 0);
            while done == 0 {
                if !device.arm() {
                    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
                    let polled =
                        poll(&mut [PollFd::new(&device.descriptor().unwrap(), PollFlags::IN)], Some(&limit));
                    assert_eq!(polled.unwrap(), 1, "thread {number} was not woken");
                    wakes += 1;
                }
                done +=
                    device.reap(&mut |done| assert_eq!((done.token, done.result), (number as u64, Ok(()))));
            }
            assert!(wakes < 5, "thread {number} was woken {wakes} times");
            assert_eq!(area.get(0, 512), [0; 512]);
        };
        std::thread::scope(|scope| {
            all.into_iter().enumerate().for_each(|one| drop(scope.spawn(move || reads(one))))
        });
        // The resets that the commands of one thread need are those of all.
        let (timeout, abort_timeout) = (Duration::from_millis(300), Duration::from_millis(200));
        let all =
            queues(Box::new(open(SLOW, &Options { timeout, abort_timeout, ..Options::default() })), count);
        let fails = |mut device: Box<dyn Device>| {
            let area = Area::new(512);
            let segments = [area.segment(0, 512)];
            device.submit(Command::read(1, 0, &segments).owner(area.clone())).unwrap();
            let mut results = Vec::new();
            while device.in_flight() > 0 {
                device.reap(&mut |done| results.push(done.result));
            }
            assert_eq!(results, [Err(CommandError::Io(libc::ETIMEDOUT))]);
        };
        std::thread::scope(|scope| {
            all.unwrap().into_iter().for_each(|one| drop(scope.spawn(move || fails(one))))
        });
        // Two threads with blocks of their own on a sound controller, in turns with each other's.
        let all = queues(Box::new(open(PLAIN, &Options::default())), count).unwrap();
        let writes = |(number, mut device): (usize, Box<dyn Device>)| {
            for round in 0..100u64 {
                let at = (round * count as u64 + number as u64) * 4096;
                let area = Area::holding(&pattern(at, 4096));
                let segments = [area.segment(0, 4096)];
                for command in [Command::write(1, at, &segments), Command::read(2, at, &segments)] {
                    device.submit(command.owner(area.clone())).unwrap();
                }
                while device.in_flight() > 0 {
                    device.reap(&mut |done| assert_eq!(done.result, Ok(())));
                }
                assert!(area.get(0, 4096) == pattern(at, 4096), "thread {number}, round {round}");
            }
        };
        std::thread::scope(|scope| {
            all.into_iter().enumerate().for_each(|one| drop(scope.spawn(move || writes(one))))
        });
    }

    #[test]
    #[ignore = "run in the guest by the tests above"]
    fn moves_registered_memory_without_a_copy() {
        check_is_inside();
        let mut device = open(PLAIN, &Options::default());
        let bytes = 1 << 20;
        let area = Area::holding(&pattern(5, bytes));
        // SAFETY: the area owns its memory, and the test reads and writes it by copying only.
        let memory = unsafe { Region::new(area.base(), bytes, area.clone()) };
        let memory = Arc::new(memory.pin(&*device.pinner().unwrap()).unwrap());
        let region = device.register(&memory).unwrap();
        for (at, length) in [(0, bytes), (512, 300 << 10), (4096, 4096), (0xe00, 1024)] {
            let before = area.get(0, bytes);
            let segments = [area.segment(at, length)];
            let command = Command::write_durable(1, 4096, &segments).owner(area.clone()).region(region);
            assert_eq!(run(&mut device, command), Ok(()));
            area.put(at, &vec![0; length]);
            let command = Command::read(1, 4096, &segments).owner(area.clone()).region(region);
            assert_eq!(run(&mut device, command), Ok(()));
            assert!(area.get(0, bytes) == before, "{length} bytes at {at}");
        }
        assert_eq!(device.stats().bytes_copied, 0);
    }

    /// Function that gives wrong addresses of memory when it is told to.
    struct Lying {
        function: Vfio,
        lies: AtomicBool,
    }

    /// Distance of a wrong address from the right one.
    const LIE: u64 = 1 << 37;

    #[expect(unsafe_code, reason = "the trait's method is unsafe")]
    impl Function for Lying {
        fn read32(&self, register: usize) -> u32 {
            self.function.read32(register)
        }
        fn read64(&self, register: usize) -> u64 {
            self.function.read64(register)
        }
        fn write32(&self, register: usize, value: u32) {
            self.function.write32(register, value);
        }
        fn write64(&self, register: usize, value: u64) {
            self.function.write64(register, value);
        }
        fn register_bytes(&self) -> usize {
            self.function.register_bytes()
        }
        unsafe fn map(&self, base: *mut u8, bytes: usize) -> Result<u64, Error> {
            let lie = if self.lies.load(Relaxed) { LIE } else { 0 };
            // SAFETY: the caller's promise is passed on.
            Ok(unsafe { self.function.map(base, bytes) }? + lie)
        }
        fn unmap(&self, address: u64, bytes: usize) -> bool {
            self.function.unmap(if address >= LIE { address - LIE } else { address }, bytes)
        }
        fn now(&self) -> Duration {
            self.function.now()
        }
        fn pause(&self) {
            self.function.pause();
        }
        fn vectors(&self) -> u16 {
            self.function.vectors()
        }
        fn use_vectors(&self, count: u16) -> Result<(), Error> {
            self.function.use_vectors(count)
        }
        fn descriptor(&self, vector: u16) -> Option<BorrowedFd<'_>> {
            self.function.descriptor(vector)
        }
        fn arm(&self, vector: u16, alarm: Option<Duration>) -> bool {
            self.function.arm(vector, alarm)
        }
        fn silence(&self) -> Result<(), Error> {
            self.function.silence()
        }
        fn wake(&self, vector: u16) {
            self.function.wake(vector);
        }
        fn cut_off(&self) {
            self.function.cut_off();
        }
        fn description(&self) -> String {
            self.function.description()
        }
    }

    #[test]
    #[ignore = "run in the guest by the tests above"]
    fn has_wrong_addresses_rejected() {
        check_is_inside();
        bind(PLAIN);
        let function = Lying { function: Vfio::open(&address(PLAIN)).unwrap(), lies: AtomicBool::new(false) };
        let mut device = Nvme::open(function, &Options::default()).unwrap();
        assert_eq!(write(&mut device, 0, &pattern(1, 4096)), Ok(()));
        let area = Area::holding(&pattern(2, 4096));
        // SAFETY: the area owns its memory, and the test reads and writes it by copying only.
        let memory = unsafe { Region::new(area.base(), 4096, area.clone()) };
        device.function().lies.store(true, Relaxed);
        let memory = Arc::new(memory.pin(&*device.pinner().unwrap()).unwrap());
        device.function().lies.store(false, Relaxed);
        let region = device.register(&memory).unwrap();
        let segments = [area.segment(0, 4096)];
        // QEMU's controller completes the command all the same; the memory shows that nothing was written.
        let result = run(&mut device, Command::read(1, 0, &segments).owner(area.clone()).region(region));
        println!("a read to a wrong address: {result:?}");
        assert!(area.get(0, 4096) == pattern(2, 4096), "memory was written");
        device.unregister(region.unwrap());
        assert_eq!(read(&mut device, 0, 4096).unwrap(), pattern(1, 4096));
    }

    #[test]
    #[ignore = "run in the guest by the tests above"]
    fn writes_until_it_is_killed() {
        check_is_inside();
        let mut device = open(PLAIN, &Options::default());
        let area = Area::holding(&pattern(3, 1 << 20));
        // SAFETY: the area owns its memory, and the test reads and writes it by copying only.
        let memory = unsafe { Region::new(area.base(), 1 << 20, area.clone()) };
        let memory = Arc::new(memory.pin(&*device.pinner().unwrap()).unwrap());
        let region = device.register(&memory).unwrap();
        let end = Instant::now() + Duration::from_secs(120);
        for token in 0.. {
            while device.in_flight() == device.depth() {
                device.reap(&mut |done| assert_eq!(done.result, Ok(())));
            }
            let at = token as usize % 16 * (64 << 10);
            let segments = [area.segment(at, 64 << 10)];
            let command = if token % 2 == 0 {
                Command::write(token, at as u64, &segments)
            } else {
                Command::read(token, 8 << 20, &segments)
            };
            device.submit(command.owner(area.clone()).region(region)).unwrap();
            if token == 1000 {
                println!("commands are in flight");
            }
            assert!(Instant::now() < end, "nobody has killed it");
        }
    }

    #[test]
    #[ignore = "run in the guest by the tests above"]
    fn starts_again_after_a_kill() {
        check_is_inside();
        // The kernel closes the files of a killed process on a thread of that process.
        let end = Instant::now() + Duration::from_secs(20);
        let function = loop {
            match Vfio::open(&address(PLAIN)) {
                Ok(function) => break function,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut device = Nvme::open(function, &Options::default()).unwrap();
        assert_eq!(write(&mut device, 0, &pattern(4, 1 << 20)), Ok(()));
        assert_eq!(read(&mut device, 0, 1 << 20).unwrap(), pattern(4, 1 << 20));
        drop(device);
        Sysfs::new().release(&address(PLAIN)).unwrap();
    }
}
