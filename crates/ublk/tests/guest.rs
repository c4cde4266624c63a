//! Disks of the kernel in a guest: what programs see of them, and what is left when the process that serves them ends in
//! different manners.
//!
//! ```text
//!   guest    this program: device ◄── export ◄── io_uring ── /dev/ublkb0 ◄── mke2fs, mount, dd, this program
//! ```
//!
//! This program runs in the guest: the tests below [`inside`] do, and are ignored on the host.

#![cfg(target_arch = "x86_64")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_support::guest::Guest;
use bywash_support::guest::kernel::Release;
use bywash_support::guest::script::{FILE_SYSTEM, INSIDE};

/// Describes a guest with the driver, and this program as `/sbin/tests`.
fn guest() -> Guest {
    Guest::without_disk()
        .kernel(Release::Recent)
        .modules(&["drivers/block/ublk_drv"])
        .program("tests", &std::env::current_exe().unwrap())
        .seconds_max(600)
}

/// Function of a guest's script that serves the file `/image` as `/dev/ublkb0`, by a process whose number is `$server`.
const SERVE: &str = r#"
serve() {
    rm -f /tmp/served /tmp/stop
    BYWASH_TEST_INSIDE=1 /sbin/tests --ignored --exact inside::serves_a_file --nocapture > /tmp/serve 2>&1 &
    server=$!
    count=0
    until [ -e /tmp/served ]; do
        count=$((count + 1)); [ $count -lt 600 ] && [ -d /proc/$server ] || { cat /tmp/serve; fail 'nothing is served'; }
        sleep 0.1
    done
}
"#;

/// Returns what follows a word in the lines of a guest, sorted.
fn with<'a>(said: &'a [String], word: &str) -> Vec<&'a str> {
    let mut lines: Vec<_> = said.iter().filter_map(|line| line.strip_prefix(word)).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_disk_of_the_kernel_does_what_disks_do() {
    let names = [
        "passes_the_conformance_suite",
        "limits_are_the_devices",
        "errors_are_the_devices",
        "disks_come_and_go",
    ];
    let script: String = names.iter().map(|name| format!("inside {name}\nsay {name}\n")).collect();
    let said = guest().boot(&format!("{INSIDE}{script}")).wait_for_end();
    println!("{}", said.join("\n"));
    for name in names {
        assert!(said.iter().any(|line| line == name), "{name}: {said:?}");
    }
}

#[test]
fn a_file_system_outlives_the_process_that_serves_it() {
    // The process is killed while files are written, three times, and another one goes on.
    let work = FILE_SYSTEM.replace("/dev/vda", "/dev/ublkb0");
    let script = r#"
step dd if=/dev/zero of=/image bs=1M count=0 seek=64
serve
(
    for turn in 1 2 3; do
        sleep 1.5
        kill -9 $server
        wait $server
        serve
        grep -q TakenOver /tmp/serve || fail 'the disk was not taken over'
        echo "guest: taken over $turn"
    done
    echo $server > /tmp/last
) &
killer=$!
WORK
wait $killer
server=$(cat /tmp/last)
# A server that ends well leaves a disk that is in use to the next one.
step mount -t ext4 -o ro /dev/ublkb0 /mnt
touch /tmp/stop
while [ -d /proc/$server ]; do sleep 0.1; done
cat /tmp/serve
grep -q Left /tmp/serve || fail 'the disk was not left'
[ -e /dev/ublkb0 ] || fail 'the disk is gone, though it is mounted'
serve
grep -q TakenOver /tmp/serve || fail 'the disk was not taken over'
cd /mnt/files; sha256sum * | while read hash name; do say last $hash $name; done; cd /
step umount /mnt
touch /tmp/stop
wait $server
[ -e /dev/ublkb0 ] && fail 'the disk is still there'
step /sbin/e2fsck -f -n /image
"#;
    let script = script.replace("WORK", &work);
    let said = guest().boot(&format!("{SERVE}{script}")).wait_for_end();
    let files = with(&said, "file ");
    assert!(files.len() > 60, "{said:?}");
    assert_eq!(with(&said, "again "), files);
    assert_eq!(with(&said, "last "), files);
    assert_eq!(with(&said, "taken over "), ["1", "2", "3"]);
}

/// Tests that run in the guest.
mod inside {
    use bywash_device::testing::conformance::{CASES, Subject};
    use bywash_device::testing::{Fault, FaultEffect, Faulty};
    use bywash_device::{Device, File, FileKind, FileOptions, Memory, MemoryOptions, Operation};
    use bywash_support::guest::script::check_is_inside;
    use bywash_ublk::{Disk, Error, Export, Options};
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    use std::path::Path;
    use std::time::{Duration, Instant};

    const BYTES: u64 = 4 << 20;

    /// Makes a memory device, whose commands complete at once, or after some microseconds.
    fn memory(latency_us: u64) -> Memory {
        Memory::new(MemoryOptions { latency_ns: latency_us * 1000, ..MemoryOptions::new(BYTES) }).unwrap()
    }

    fn start(device: impl Device + 'static, options: Options) -> Export {
        Export::start(Disk::new("disk", device), options, |event| panic!("{event:?}")).unwrap()
    }

    /// Returns a limit of a disk, as the kernel has it.
    fn limit(export: &Export, name: &str) -> String {
        let path = format!("/sys/block/ublkb{}/queue/{name}", export.number());
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_owned()
    }

    #[test]
    #[ignore = "run in a guest by the other tests"]
    fn passes_the_conformance_suite() {
        check_is_inside();
        for (name, case) in CASES {
            let begin = Instant::now();
            // Commands complete later; the other tests have a device that does them at once.
            let export = start(memory(200), Options::new());
            let disk = File::open(&FileOptions::new(FileKind::Block, export.path())).unwrap();
            case(Subject::new(Box::new(disk), vec![]));
            assert!(export.stats().requests > 0);
            drop(export);
            println!("guest: case {name}, {} ms", begin.elapsed().as_millis());
        }
    }

    #[test]
    #[ignore = "run in a guest by the other tests"]
    fn limits_are_the_devices() {
        check_is_inside();
        let export = start(memory(0), Options::new().depth(7));
        for (name, value) in [
            ("logical_block_size", "512"),
            ("physical_block_size", "4096"),
            ("write_cache", "write back"),
            ("fua", "1"),
            ("max_hw_sectors_kb", "512"),
            ("nr_requests", "7"),
        ] {
            assert_eq!(limit(&export, name), value, "{name}");
        }
        assert_ne!(limit(&export, "discard_max_bytes"), "0");
        assert_ne!(limit(&export, "write_zeroes_max_bytes"), "0");
        assert_eq!(
            fs::read_to_string(format!("/sys/block/ublkb{}/size", export.number())).unwrap().trim(),
            (BYTES / 512).to_string()
        );
        drop(export);

        fs::write("/read-only", vec![7; 1 << 20]).unwrap();
        let kind = FileKind::File;
        let options = FileOptions { read_only: true, ..FileOptions::new(kind, Path::new("/read-only")) };
        let export = start(File::open(&options).unwrap(), Options::new());
        assert_eq!(fs::read(export.path()).unwrap(), vec![7; 1 << 20]);
        let written = OpenOptions::new().write(true).open(export.path());
        let error = written.and_then(|disk| disk.write_at(&[1; 512], 0)).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)), "{error}");
    }

    #[test]
    #[ignore = "run in a guest by the other tests"]
    fn errors_are_the_devices() {
        check_is_inside();
        let mut device = Faulty::over(memory(0), 1);
        let fault = |operation, range| Fault {
            operation: Some(operation),
            range,
            skip: 0,
            times: u32::MAX,
            what: FaultEffect::Fail(libc::EIO),
        };
        device.inject(fault(Operation::Read, 1 << 20..2 << 20));
        device.inject(fault(Operation::Write, 2 << 20..3 << 20));
        let export = start(device, Options::new());
        let mut direct = OpenOptions::new();
        direct.read(true).write(true).custom_flags(libc::O_DIRECT);
        let disk = direct.open(export.path()).unwrap();
        let mut page = Page([3; 4096]);
        disk.write_all_at(&page.0, 0).unwrap();
        page.0.fill(0);
        disk.read_exact_at(&mut page.0, 0).unwrap();
        assert_eq!(page.0, [3; 4096]);
        let error = disk.read_at(&mut page.0, 1 << 20).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        let error = disk.write_at(&page.0, 2 << 20).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        disk.read_exact_at(&mut page.0, 2 << 20).unwrap();
        assert!(export.stats().failed >= 2);
    }

    /// Memory at a multiple of its size, for O_DIRECT.
    #[repr(align(4096))]
    struct Page([u8; 4096]);

    #[test]
    #[ignore = "run in a guest by the other tests"]
    fn disks_come_and_go() {
        check_is_inside();
        for number in [0, 17] {
            let export = start(memory(0), Options::new().number(number));
            assert_eq!(export.path(), Path::new(&format!("/dev/ublkb{number}")));
            let again = Export::start(Disk::new("again", memory(0)), Options::new().number(number), |_| {});
            let refusal = again.unwrap_err().to_string();
            let expected = format!("process {} serves it", std::process::id());
            assert!(refusal.contains(&expected), "{refusal}");

            // What has a disk for itself, as a mounted file system does, is not disturbed.
            let own = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(export.path()).unwrap();
            assert!(matches!(export.remove(), Err(Error::InUse(_))));
            assert_eq!(own.read_at(&mut [0; 512], 0).unwrap(), 512);
            drop(own);
            export.remove().unwrap();
            assert!(!export.path().exists());
            export.remove().unwrap();
        }
        // Several at a time, each with its own contents, and requests in flight when they are removed.
        let exports: Vec<_> = (0..5).map(|_| start(memory(100), Options::new())).collect();
        for (number, export) in exports.iter().enumerate() {
            fs::write(export.path(), vec![number as u8 + 1; BYTES as usize]).unwrap();
        }
        for (number, export) in exports.iter().enumerate() {
            assert!(fs::read(export.path()).unwrap().iter().all(|byte| *byte == number as u8 + 1));
        }
        let path = exports[0].path().to_owned();
        let reader = std::thread::spawn(move || {
            let disk = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
            let mut page = Page([0; 4096]);
            (0..).find(|at| disk.read_at(&mut page.0, at % 4096 * 4096).is_err()).unwrap()
        });
        std::thread::sleep(Duration::from_millis(200));
        drop(exports);
        assert!(reader.join().unwrap() > 0);
        assert!(!Path::new("/dev/ublkb0").exists() && !Path::new("/dev/ublkc0").exists());
    }

    /// Serves `/image` until there is a file `/tmp/stop`, or it is killed.
    #[test]
    #[ignore = "run in a guest by the other tests"]
    fn serves_a_file() {
        check_is_inside();
        let file = File::open(&FileOptions::new(FileKind::File, Path::new("/image"))).unwrap();
        let report = |event| println!("the disk: {event:?}");
        let export = Export::start(Disk::new("image", file), Options::new().number(0), report).unwrap();
        fs::write("/tmp/served", export.path().display().to_string()).unwrap();
        while !Path::new("/tmp/stop").exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
