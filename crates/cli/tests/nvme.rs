//! `bywash nvme` and `bywash serve --device NAME=nvme:...` with QEMU's NVMe controllers, in a guest.
//!
//! This test program runs in the guest as well: the tests below [`inside`] are clients there, and are ignored on the host.

#![cfg(target_arch = "x86_64")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_support::guest::script::{COMMAND, INSIDE};
use bywash_support::guest::system::VFIO;
use bywash_support::guest::{Disk, Guest};
use std::path::Path;
use std::process::Command;

/// Describes a guest with a controller at 0000:00:04.0, the modules of VFIO, the command as `/sbin/bywash`, and this
/// program as `/sbin/tests`.
fn guest(disk: &Disk) -> Guest {
    let plain = format!("driver=file,node-name=plain,filename={}", disk.image().display());
    Guest::without_disk()
        .hardware(&["-blockdev", &plain, "-device", "nvme,drive=plain,serial=plain,addr=4"])
        .modules(&VFIO)
        .program("bywash", Path::new(env!("CARGO_BIN_EXE_bywash-command")))
        .program("tests", &std::env::current_exe().unwrap())
        .seconds_max(400)
}

/// Functions of a guest's script, beside those of [`COMMAND`].
const FUNCTIONS: &str = r#"
listed() {
    step /sbin/bywash nvme list
    cat /tmp/step
    grep -qF "$1" /tmp/step || fail "the list does not say '$1'"
}
serve() {
    serve_with --device disk=nvme:00:04.0,$1
    cat /tmp/serve
}
"#;

#[test]
fn a_controller_is_taken_served_and_given_back() {
    let disk = Disk::new(16 << 20);
    let script = r#"
controller=0000:00:04.0
listed "can be served after bywash nvme bind $controller"
grep -q 'namespaces  1: nvme0n1 (16 MiB)' /tmp/step || fail 'no namespace is listed'
refused "bywash nvme bind $controller" /sbin/bywash serve --socket /tmp/socket --device disk=nvme:$controller
step /sbin/mke2fs -q -F -t ext4 /dev/nvme0n1
step mkdir /disk
step mount -t ext4 /dev/nvme0n1 /disk
refused '/dev/nvme0n1 is mounted at /disk: end that use first' /sbin/bywash nvme bind $controller
refused 'before that: /dev/nvme0n1 is mounted at /disk' /sbin/bywash serve --socket /tmp/socket --device disk=nvme:$controller
listed 'cannot be served: /dev/nvme0n1 is mounted at /disk'
step umount /disk
sleep 100 < /dev/nvme0n1 &
reader=$!
refused "(process $reader): end that use first" /sbin/bywash nvme bind $controller
kill $reader
wait $reader
say refused

step /sbin/bywash nvme bind $controller
[ -e /dev/nvme0n1 ] && fail 'the kernel still has the disk'
listed "ready: bywash serve --device NAME=nvme:$controller"
refused 'it has no active namespace 7' /sbin/bywash serve --socket /tmp/socket --device disk=nvme:$controller,namespace=7
refused 'adopt' /sbin/bywash serve --socket /tmp/socket --policy /tmp/volumes --device disk=nvme:$controller
inside tells_another_user_what_to_do
step /sbin/bywash volume --policy /tmp/volumes adopt disk=nvme:$controller --force 'ext2, ext3 or ext4'
say bound

serve depth=64
grep -q 'namespace 1 of the NVMe controller QEMU NVMe Ctrl' /tmp/serve || fail 'the device is not described'
listed 'used by bywash'
refused "a process has it open in bywash (process $server)" /sbin/bywash nvme unbind $controller
refused "another process has it in bywash (process $server)" /sbin/bywash serve --socket /tmp/other --device disk=nvme:$controller
step /sbin/bywash volume --socket /tmp/socket create data 4M --device disk
inside writes_and_reads_without_copies
say served

BYWASH_TEST_INSIDE=1 /sbin/tests --ignored --exact inside::writes_until_the_server_is_gone --nocapture > /tmp/writer 2>&1 &
writer=$!
count=0
until grep -q 'it writes' /tmp/writer; do
    count=$((count + 1)); [ $count -lt 600 ] || { cat /tmp/writer; fail 'nothing is written'; }
    sleep 0.1
done
kill -9 $server
wait $server
wait $writer || { cat /tmp/writer; fail 'the writer did not notice that the server is gone'; }
serve polled,queues=2
grep -q '2 pairs of queues.*polling' /tmp/serve || fail 'the options have no effect'
inside finds_what_was_written
say started again

step /sbin/bywash serve drop --socket /tmp/socket disk
listed "ready: bywash serve --device NAME=nvme:$controller"
step /sbin/bywash serve add --socket /tmp/socket disk=nvme:$controller,depth=32
inside finds_what_was_written
say added again

kill -TERM $server
wait $server || { cat /tmp/serve; fail 'the server did not end well'; }
step /sbin/bywash nvme unbind $controller
grep -q 'is bound to nvme: /dev/nvme[0-9]*n1' /tmp/step || { cat /tmp/step; fail 'the disk is not back'; }
inside finds_it_on_the_disk_of_the_kernel
dmesg | grep -q 'DMAR:.*fault addr' && fail 'an access was rejected'
say given back
"#;
    let guest =
        guest(&disk).hardware(&["-device", "intel-iommu,intremap=on"]).kernel_option("intel_iommu=on");
    let mut guest = guest.boot(&format!("{INSIDE}{COMMAND}{FUNCTIONS}{script}"));
    for what in ["refused", "bound", "served", "started again", "added again", "given back"] {
        guest.wait_for(what);
    }
    guest.wait_for_end();
}

#[test]
fn disks_are_verified() {
    let (disk, bad) = (Disk::new(16 << 20), Disk::new(1 << 20));
    // Block 256 of the second controller's disk cannot be read; the third takes 100 ms for each command.
    let broken = format!(
        "driver=blkdebug,node-name=bad,image.driver=file,image.filename={},inject-error.0.event=none,\
         inject-error.0.iotype=read,inject-error.0.sector=256,inject-error.0.errno=5,inject-error.0.once=off",
        bad.image().display()
    );
    let slow = "driver=null-co,node-name=slow,size=1073741824,read-zeroes=on,latency-ns=100000000";
    let script = r#"
plain=0000:00:04.0; bad=0000:00:05.0; slow=0000:00:06.0
refused "bywash nvme bind $plain" /sbin/bywash nvme verify $plain
for controller in $plain $bad $slow; do step /sbin/bywash nvme bind $controller; done
said() { grep -qF "$1" /tmp/step || { cat /tmp/step; fail "it was not said: '$1'"; }; }
# QEMU's controllers carry out Verify, and do not say so.
step /sbin/bywash nvme verify $plain
said "$plain: namespace 1, 16 MiB in blocks of 512 bytes: it is read into memory, since the controller does not say"
said 'all of 16 MiB can be read'
step /sbin/bywash nvme verify $plain --by verify
said "$plain: namespace 1, 16 MiB in blocks of 512 bytes: the controller reads it by itself (Verify), and no data moves"
said 'all of 16 MiB can be read'
refused 'both have to be multiples of a block' /sbin/bywash nvme verify $plain --offset 100
refused 'it has no active namespace 7' /sbin/bywash nvme verify $plain --namespace 7
step /sbin/bywash nvme verify $plain --namespace 1 --offset 1M --length 64K
said 'all of 64 KiB can be read'
say verified

for means in verify read; do
    /sbin/bywash nvme verify $bad --by $means > /tmp/step 2>&1
    [ $? = 1 ] || { cat /tmp/step; fail 'the exit status of a bad disk'; }
    cat /tmp/step
    said 'cannot be read: 512 B at offset 131072 (blocks 256 to 256): '
    said '512 B of 1 MiB cannot be read: do not rely on this disk'
done
step /sbin/bywash nvme verify $bad --length 128K
said 'all of 128 KiB can be read'
say bad block

# By reads: QEMU itself crashes now and then if a Verify is in flight when the controller is disabled.
/sbin/bywash nvme verify $slow --by read > /tmp/step 2>&1 &
verifier=$!
count=0
until grep -q 'read into memory' /tmp/step; do
    count=$((count + 1)); [ $count -lt 600 ] || { cat /tmp/step; fail 'it does not begin'; }
    sleep 0.1
done
sleep 1
# SIGTERM, since a shell has its background processes ignore SIGINT.
kill -TERM $verifier
wait $verifier
[ $? = 143 ] || { cat /tmp/step; fail 'the exit status after a signal'; }
said 'not complete: '
cat /tmp/step
say ended
dmesg | grep -q 'DMAR:.*fault addr' && fail 'an access was rejected'
"#;
    let guest = guest(&disk)
        .hardware(&["-device", "intel-iommu,intremap=on"])
        .hardware(&["-blockdev", &broken, "-device", "nvme,drive=bad,serial=bad,addr=5"])
        .hardware(&["-blockdev", slow, "-device", "nvme,drive=slow,serial=slow,addr=6"])
        .kernel_option("intel_iommu=on");
    let mut guest = guest.boot(&format!("{COMMAND}{FUNCTIONS}{script}"));
    for what in ["verified", "bad block", "ended"] {
        guest.wait_for(what);
    }
    guest.wait_for_end();
}

#[test]
fn without_an_iommu_nothing_is_taken() {
    let script = r#"
refused 'it is behind no IOMMU' /sbin/bywash nvme bind 0000:00:04.0
listed 'cannot be served: it is behind no IOMMU'
refused 'is no NVMe controller' /sbin/bywash nvme bind 0000:00:00.0
[ -e /dev/nvme0n1 ] || fail 'the kernel has lost the disk'
say left alone
"#;
    let disk = Disk::new(1 << 20);
    let mut guest = guest(&disk).boot(&format!("{COMMAND}{FUNCTIONS}{script}"));
    guest.wait_for("left alone");
    guest.wait_for_end();
}

#[test]
fn the_bench_has_each_row() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bywash-command"));
    bench.args(["bench", "nvme", "--quick", "--json"]).arg(&report);
    let output = bench.output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let find = |case: &str, peer: &str| {
        let is_it = |row: &&serde_json::Value| row["case"] == case && row["peer"] == peer;
        rows.iter().find(is_it).unwrap_or_else(|| panic!("no row has '{case}' against '{peer}':\n{said}"))
    };
    let (one, many) = ("4 KiB, one at a time", "4 KiB, 32 at a time");
    let ring = "fixed buffer and file";
    for (case, peers) in [
        (
            format!("{one}: driver alone"),
            vec![
                "a goal of 90 instructions".into(),
                "pread, O_DIRECT, asleep meanwhile".into(),
                format!("io_uring, {ring}, asleep meanwhile"),
                format!("io_uring IOPOLL, {ring}"),
                format!("io_uring passthrough, {ring}"),
                "io_uring passthrough, fixed file".into(),
                format!("io_uring passthrough IOPOLL, {ring}"),
                "io_uring passthrough IOPOLL, fixed file".into(),
            ],
        ),
        (
            format!("{many}: driver alone"),
            vec![
                "a goal of 60 instructions".into(),
                format!("io_uring, {ring}"),
                format!("io_uring IOPOLL, {ring}"),
                format!("io_uring passthrough IOPOLL, {ring}"),
            ],
        ),
        (format!("{one}: channel, client and server"), vec!["a goal of 600 instructions".into()]),
        (format!("{many}: channel, client and server"), vec!["a goal of 600 instructions".into()]),
        (format!("{one}: vhost-user-blk, server"), vec!["a goal of 1,500 instructions".into()]),
        (format!("{many}: vhost-user-blk, server"), vec!["a goal of 1,500 instructions".into()]),
        (format!("{one}: direct grant, client library"), vec!["a goal of 120 instructions".into()]),
        (format!("{many}: direct grant, client library"), vec!["a goal of 120 instructions".into()]),
        ("23 streams of 64 KiB: direct grant, client library".into(), vec!["libaio".into()]),
        (
            "23 streams of 64 KiB: driver alone".into(),
            vec!["pread, O_DIRECT, 23 threads".into(), format!("io_uring, {ring}"), "libaio".into()],
        ),
    ] {
        for peer in peers {
            let row = find(&case, &peer);
            let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{case}, {peer}: {row}"));
            // This command was not optimised.
            assert!((20.0..100_000.0).contains(&number("ours")), "{row}");
            assert!(number("peer_value") >= 60.0 && number("ratio") > 0.0, "{row}");
        }
    }
    // Whether a read completes before the program sleeps, the host's load decides.
    for path in ["pread, O_DIRECT".into(), format!("io_uring, {ring}")] {
        find(&format!("{one}: driver alone"), &format!("{path}, complete before sleep"));
    }
    let channel = find(&format!("{one}: channel, client and server"), "a goal of 600 instructions");
    let note = channel["note"].as_str().unwrap();
    assert!(
        note.contains("client ") && note.contains("server ") && note.contains("system calls 0"),
        "{note}"
    );
}

/// Clients that run in the guest.
mod inside {
    use bywash_client::{Access, Client, Options, Volume};
    use bywash_support::guest::script::check_is_inside;
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// Size of a write, in bytes.
    const PIECE: usize = 64 << 10;
    /// Size of the part of the volume that keeps its contents, in bytes.
    const KEPT: usize = 1 << 20;
    /// Size of the volume, in bytes.
    const VOLUME: usize = 4 << 20;

    /// Connects to the server in the guest, and opens its volume.
    fn open() -> (Client, Volume) {
        check_is_inside();
        let client = Client::connect("/tmp/socket", Options::new()).unwrap();
        let volume = client.open("data", Access::ReadWrite).unwrap();
        assert_eq!(volume.len(), VOLUME as u64);
        (client, volume)
    }

    /// Returns bytes in which no block of 512 is like another, or like one of another seed.
    fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
        let word = |number: u64| (seed << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        (0..bytes as u64 / 8).flat_map(word).collect()
    }

    /// Returns the number of bytes that the device has copied, from its description.
    fn copied(client: &Client) -> u64 {
        let how = client.status().unwrap().devices.remove(0).how;
        let copied = how.split_once("interrupts; ").map(|(_, rest)| rest.split(' ').next().unwrap());
        copied.map_or(0, |copied| copied.parse().unwrap())
    }

    #[test]
    #[ignore = "run in the guest by the test above"]
    fn tells_another_user_what_to_do() {
        check_is_inside();
        let serve = ["serve", "--socket", "/tmp/another", "--device", "disk=nvme:00:04.0"];
        let refused = Command::new("/sbin/bywash").args(serve).uid(1000).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("this process may not open /dev/vfio/"), "{said}");
        assert!(said.contains("run it as root, or give its user that file (`chown USER"), "{said}");
    }

    #[test]
    #[ignore = "run in the guest by the test above"]
    fn writes_and_reads_without_copies() {
        let (client, volume) = open();
        let (mut read, mut rounds) = (vec![0; PIECE], 0);
        let end = Instant::now() + Duration::from_secs(100);
        loop {
            let before = copied(&client);
            rounds += 1;
            for at in (KEPT..VOLUME).step_by(PIECE) {
                let written = pattern(rounds << 16 | at as u64, PIECE);
                volume.write_at(&written, at as u64).unwrap();
                volume.read_at(&mut read, at as u64).unwrap();
                assert!(read == written, "at {at}");
            }
            if copied(&client) == before {
                break;
            }
            assert!(Instant::now() < end, "data is still copied: {}", copied(&client));
        }
        println!(
            "guest: {} bytes were copied until the arena was mapped, in {rounds} rounds",
            copied(&client)
        );
        volume.write_at_durable(&pattern(1, KEPT), 0).unwrap();
    }

    #[test]
    #[ignore = "run in the guest by the test above"]
    fn writes_until_the_server_is_gone() {
        let (_client, volume) = open();
        let end = Instant::now() + Duration::from_secs(100);
        for number in 0u64.. {
            assert!(Instant::now() < end, "the server is still there");
            // Several commands at a time.
            let written = pattern(number, KEPT);
            if volume.write_at(&written, (1 + number % 2) * KEPT as u64).is_err() {
                return;
            }
            if number == 4 {
                println!("it writes");
            }
        }
    }

    #[test]
    #[ignore = "run in the guest by the test above"]
    fn finds_what_was_written() {
        let (_client, volume) = open();
        let mut read = vec![0; KEPT];
        volume.read_at(&mut read, 0).unwrap();
        assert!(read == pattern(1, KEPT), "what was durable is lost");
        volume.write_at(&pattern(2, PIECE), VOLUME as u64 - PIECE as u64).unwrap();
        volume.flush().unwrap();
    }

    #[test]
    #[ignore = "run in the guest by the test above"]
    fn finds_it_on_the_disk_of_the_kernel() {
        check_is_inside();
        // The kernel counts controllers as it finds them.
        let mut names = std::fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().path());
        let is_disk = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("nvme") && name.ends_with("n1")
        };
        let disk = std::fs::read(names.find(is_disk).expect("the kernel's disk")).unwrap();
        for (seed, bytes) in [(1, KEPT), (2, PIECE)] {
            let expected = pattern(seed, bytes);
            let at = disk.chunks(4096).position(|block| block == &expected[..4096]);
            let at = at.expect("the first block is on the disk") * 4096;
            assert!(disk[at..at + bytes] == expected, "seed {seed} at {at}");
        }
    }
}
