//! Tests of guests without any knowledge of Bywash that use one of its disks.

#![cfg(target_arch = "x86_64")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_client::{Access, Client, NewVolume, Options as ClientOptions, Queue};
use bywash_device::testing::Late;
use bywash_device::{Device, Spec};
use bywash_support::guest::{Disk, Guest, HUGE_PAGES, check_files, script};
use bywash_support::huge_pages::HugePages;
use bywash_vhost::{Event, Export, OnVolume, Options};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Opens the device of a disk's image.
fn open(disk: &Disk, options: &str) -> Box<dyn Device> {
    format!("disk=file:{}{options}", disk.image().display()).parse::<Spec>().unwrap().open().unwrap()
}

fn serve(disk: &Disk, options: &str, queues: u16) -> Export {
    let listener = UnixListener::bind(disk.socket()).unwrap();
    let device = open(disk, options);
    let report = |event| {
        if let Event::CutOff(error) = event {
            panic!("{error}");
        }
    };
    Export::start(listener, device, Options::new().queues(queues).name("test-0001"), report).unwrap()
}

#[test]
fn it_makes_a_file_system() {
    let disk = Disk::new(64 << 20);
    let export = serve(&disk, "", 2);
    let look = r#"
say serial $(cat /sys/block/vda/serial)
say sectors $(cat /sys/block/vda/size)
for name in discard_max_bytes write_zeroes_max_bytes logical_block_size write_cache max_segments; do
    say $name $(cat /sys/block/vda/queue/$name)
done
say queues $(ls /sys/block/vda/mq | wc -l)
"#;
    let mut guest = Guest::new(&disk.socket()).queues(2).boot(&format!("{look}{}", script::FILE_SYSTEM));
    guest.wait_for("queues 2");
    assert_eq!(
        guest.said(),
        [
            "serial test-0001",
            "sectors 131072",
            "discard_max_bytes 1073741824",
            "write_zeroes_max_bytes 1073741824",
            "logical_block_size 512",
            "write_cache write back",
            "max_segments 15",
            "queues 2"
        ]
    );
    let said = guest.wait_for_end();
    let stats = export.stats();
    println!("{stats:?}");
    assert_eq!((stats.frontends, stats.refused, stats.failed), (1, 0, 0));
    assert!(stats.under_way_max > 1, "{stats:?}");
    drop(export);
    check_files(&disk.image(), &said);
}

#[test]
fn one_that_is_killed_leaves_a_sound_disk_to_the_next() {
    let disk = Disk::new(64 << 20);
    let export = serve(&disk, "", 1);
    let mut first = Guest::new(&disk.socket()).boot(
        r#"
step /sbin/mke2fs -q -F -t ext4 /dev/vda
step mount -t ext4 /dev/vda /mnt
step dd if=/dev/urandom of=/mnt/kept bs=64k count=8 conv=fsync
say kept $(sha256sum < /mnt/kept)
say writing
while true; do
    dd if=/dev/urandom of=/mnt/first bs=16k count=64 conv=fsync 2> /dev/null &
    dd if=/dev/urandom of=/mnt/other bs=64k count=64 2> /dev/null
    mv /mnt/first /mnt/second; sync; rm /mnt/second
done
"#,
    );
    let kept = first.wait_for("kept");
    first.wait_for("writing");
    let before = export.stats();
    // The guest is killed while it writes, some two hundred requests later.
    for _ in 0..2000 {
        if export.stats().requests > before.requests + 200 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    first.kill();
    let mut second = Guest::new(&disk.socket()).boot(
        r#"
step mount -t ext4 /dev/vda /mnt
say kept $(sha256sum < /mnt/kept)
step umount /mnt
step /sbin/e2fsck -f -n /dev/vda
"#,
    );
    assert_eq!(second.wait_for("kept"), kept);
    second.wait_for_end();
    let stats = export.stats();
    assert!(before.requests + 200 < stats.requests, "{before:?}, {stats:?}");
    assert_eq!((stats.frontends, stats.refused, stats.failed), (2, 0, 0));
    drop(export);
    script::check_image(&disk.image());
}

/// Environment variable that makes this test program serve a disk, in a process that is killed.
const SERVES: &str = "BYWASH_TEST_SERVES";
/// Environment variable with the number of commands after which that process completes none any more.
const COMMANDS: &str = "BYWASH_TEST_COMMANDS";

struct Server(Child);

impl Server {
    /// Starts a process that serves the disk until it has begun `commands` commands.
    fn start(disk: &Disk, commands: u64) -> Server {
        // The socket of a server that was killed still has its name.
        let _ = std::fs::remove_file(disk.socket());
        let program = std::env::current_exe().unwrap();
        let child = Command::new(program)
            .args(["--exact", "serves_until_it_is_killed", "--nocapture"])
            .env(SERVES, disk.image().parent().unwrap())
            .env(COMMANDS, commands.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        disk.wait_for_socket();
        Server(child)
    }

    /// Kills the process when its last command is in flight.
    fn kill(self, disk: &Disk) {
        let (mark, end) = (mark(disk, self.0.id()), Instant::now() + Duration::from_secs(60));
        while !mark.exists() {
            assert!(Instant::now() < end, "the guest asks for too little");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns the file that a server creates when its last command is in flight.
fn mark(disk: &Disk, process: u32) -> PathBuf {
    disk.image().with_file_name(format!("held-{process}"))
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing fails only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Body of the process that [`Server`] starts; does nothing when run as a test. The disk is slow, so that
/// several requests are in flight, and the process writes the number of resumed requests to a file.
#[test]
fn serves_until_it_is_killed() {
    let Some(folder) = std::env::var_os(SERVES) else { return };
    let disk = Disk::at(folder.as_ref());
    let commands = std::env::var(COMMANDS).unwrap().parse().unwrap();
    let mark = mark(&disk, std::process::id());
    let slow = Late::new(open(&disk, ""), Duration::from_millis(15), commands, mark);
    let listener = UnixListener::bind(disk.socket()).unwrap();
    let report = |event| eprintln!("the disk's server: {event:?}");
    let export = Export::start(listener, slow, Options::new().queues(2), report).unwrap();
    // The process ends with its parent.
    let parent = std::os::unix::process::parent_id();
    while std::os::unix::process::parent_id() == parent {
        std::thread::sleep(Duration::from_millis(5));
        let resumed = export.stats().resumed;
        if resumed > 0 {
            let name = format!("resumed-{}", std::process::id());
            std::fs::write(disk.image().with_file_name(name), resumed.to_string()).unwrap();
        }
    }
}

/// Returns the number of requests that a later server than the one that had first taken them carried out.
fn resumed(disk: &Disk) -> u64 {
    let entries = std::fs::read_dir(disk.image().parent().unwrap()).unwrap().flatten();
    let counts = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("resumed-"));
    counts.filter_map(|entry| std::fs::read_to_string(entry.path()).unwrap().parse::<u64>().ok()).sum()
}

#[test]
fn one_whose_server_is_killed_goes_on_with_the_next() {
    let disk = Disk::new(64 << 20);
    let first = Server::start(&disk, 20);
    let guest = Guest::new(&disk.socket()).queues(2).reconnects().boot(script::FILE_SYSTEM);
    first.kill(&disk);
    for commands in [1, 40, 80] {
        // QEMU tries to connect again every second.
        Server::start(&disk, commands).kill(&disk);
    }
    let server = Server::start(&disk, u64::MAX);
    let said = guest.wait_for_end();
    drop(server);
    // Servers that are killed at once may not have told their number.
    assert!(resumed(&disk) > 0, "no request in flight was carried out again");
    check_files(&disk.image(), &said);
}

#[test]
fn what_may_only_be_read_is_read() {
    let disk = Disk::new(1 << 20);
    std::fs::write(disk.image(), [b'a'; 1 << 20]).unwrap();
    let export = serve(&disk, ",read-only", 1);
    let guest = Guest::new(&disk.socket()).boot(
        r#"
say read-only $(cat /sys/block/vda/ro)
say letters $(tr -d a < /dev/vda | wc -c) $(wc -c < /dev/vda)
dd if=/dev/zero of=/dev/vda bs=4k count=1 2> /dev/null && fail "written"
"#,
    );
    assert_eq!(guest.wait_for_end(), ["read-only 1", "letters 0 1048576", "end"]);
    assert_eq!(export.stats().bytes_written, 0);
    assert_eq!(std::fs::read(disk.image()).unwrap(), [b'a'; 1 << 20]);
}

/// A volume grows, and the guest's disk with it, without another boot.
#[test]
fn it_sees_that_its_disk_has_grown() {
    let disk = Disk::new(0);
    let folder = disk.image().parent().unwrap().to_owned();
    let device = format!("disk=file:{},size=64M", folder.join("medium").display());
    let options = bywash_server::Options::new(folder.join("server")).device(device.parse().unwrap());
    let _server = bywash_server::Server::start(options).unwrap();
    let client = Client::connect(folder.join("server"), ClientOptions::new()).unwrap();
    client.create(NewVolume::new("root", "disk", 16 << 20)).unwrap();
    let queue = Queue::connect(folder.join("server"), ClientOptions::new()).unwrap();
    let volume = OnVolume::open(queue, "root", Access::ReadWrite).unwrap();
    let listener = UnixListener::bind(disk.socket()).unwrap();
    let export = Export::start(listener, volume, Options::new().queues(2), |_| ()).unwrap();
    let mut guest = Guest::new(&disk.socket()).queues(2).boot(
        r#"
step /sbin/mke2fs -q -F -t ext4 /dev/vda
say before $(cat /sys/block/vda/size)
while [ $(cat /sys/block/vda/size) = 32768 ]; do sleep 0.1; done
say after $(cat /sys/block/vda/size)
step dd if=/dev/urandom of=/dev/vda bs=64k seek=500 count=12 conv=fsync
step /sbin/e2fsck -f -n /dev/vda
"#,
    );
    assert_eq!(guest.wait_for("before"), "32768");
    client.resize("root", 32 << 20).unwrap();
    export.refresh();
    assert_eq!(guest.wait_for("after"), "65536");
    guest.wait_for_end();
    let stats = export.stats();
    assert_eq!((stats.frontends, stats.refused, stats.failed), (1, 0, 0));
}

/// Memory of reserved huge pages, as SPDK wants it.
#[test]
fn its_memory_can_be_of_huge_pages() {
    let _pages = match HugePages::reserve(HUGE_PAGES) {
        Ok(pages) => pages,
        Err(reason) => return eprintln!("left out: {reason}"),
    };
    let disk = Disk::new(64 << 20);
    let export = serve(&disk, "", 2);
    let said = Guest::new(&disk.socket()).queues(2).huge_pages().boot(script::FILE_SYSTEM).wait_for_end();
    let stats = export.stats();
    assert_eq!((stats.frontends, stats.refused, stats.failed), (1, 0, 0));
    drop(export);
    check_files(&disk.image(), &said);
}
