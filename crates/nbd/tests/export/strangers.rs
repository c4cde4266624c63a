//! Tests with the clients of other projects: libnbd's, QEMU's, nbdkit's and fio's, where they are installed.

use crate::served::{BYTES, Served, memory};
use bywash_nbd::{Disk, Options};
use std::path::Path;
use std::process::Command;

/// Folders of Debian's programs: nbdsh has its module for Debian's Python alone.
const PATH: &str = "/usr/bin:/bin";

/// Returns true if a program is installed; else says that the test is skipped.
pub fn has(program: &str, package: &str) -> bool {
    let found = PATH.split(':').any(|folder| Path::new(folder).join(program).exists());
    if !found {
        eprintln!("skipped: {program}: {package} is not installed (scripts/packages test installs it)");
    }
    found
}

fn uri(served: &Served, name: &str) -> String {
    format!("nbd+unix:///{name}?socket={}", served.path().display())
}

/// Runs a program that must succeed, and returns its output.
pub fn run(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).env("PATH", PATH).current_dir(folder).output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    text
}

fn data(folder: &Path) -> Vec<u8> {
    let data: Vec<u8> = (0..BYTES).map(|at| (at / 512 * 7 + at % 13) as u8).collect();
    std::fs::write(folder.join("data"), &data).unwrap();
    data
}

#[test]
fn nbdinfo_shows_the_exports() {
    if !has("nbdinfo", "libnbd-bin") {
        return;
    }
    let disks =
        vec![Disk::new("disk", memory()).description("a disk of the tests"), Disk::new("other", memory())];
    let served = Served::new(disks, Options::new());
    let folder = tempfile::tempdir().unwrap();
    let text = run(folder.path(), "nbdinfo", &[&uri(&served, "disk")]);
    for line in [
        "newstyle-fixed without TLS, using structured packets",
        "export-size: 8388608 (8M)",
        "description: a disk of the tests",
        "base:allocation",
        "is_read_only: false",
        "can_fast_zero: true",
        "can_multi_conn: true",
        "can_cache: false",
        "can_df: true",
        "can_flush: true",
        "can_fua: true",
        "can_trim: true",
        "can_zero: true",
        "block_size_minimum: 512",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let listed = run(folder.path(), "nbdinfo", &["--list", &uri(&served, "")]);
    assert!(listed.contains("export=\"disk\"") && listed.contains("export=\"other\""), "{listed}");
    let map = run(folder.path(), "nbdinfo", &["--map", &uri(&served, "disk")]);
    assert!(map.contains("8388608") && map.contains("data"), "{map}");
    assert_eq!(served.stats().cut_off, 0);
}

#[test]
fn nbdcopy_copies_over_several_connections() {
    if !has("nbdcopy", "libnbd-bin") {
        return;
    }
    let served = Served::one(memory());
    let folder = tempfile::tempdir().unwrap();
    let data = data(folder.path());
    run(folder.path(), "nbdcopy", &["--flush", "data", &uri(&served, "disk")]);
    run(folder.path(), "nbdcopy", &[&uri(&served, "disk"), "copy"]);
    assert!(std::fs::read(folder.path().join("copy")).unwrap() == data);
    assert!(served.stats().clients >= 3, "{:?}", served.stats());
}

#[test]
fn nbdsh_gets_the_errors_of_the_protocol() {
    if !has("nbdsh", "python3-libnbd") {
        return;
    }
    let served = Served::one(memory());
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
import errno
h.set_strict_mode(0)
def fails(number, call):
    try:
        call()
    except nbd.Error as error:
        assert error.errnum == number, error
    else:
        raise AssertionError(number)
assert h.get_size() == 8388608
h.pwrite(b"x" * 4096, 4096, nbd.CMD_FLAG_FUA)
assert h.pread(4096, 4096) == b"x" * 4096
h.zero(2048, 4096, nbd.CMD_FLAG_NO_HOLE)
assert h.pread(4096, 4096) == b"\0" * 2048 + b"x" * 2048
h.trim(4096, 4096)
h.flush()
fails(errno.EINVAL, lambda: h.pread(100, 0))
fails(errno.EINVAL, lambda: h.pread(512, 100))
fails(errno.EINVAL, lambda: h.pread(512, 8388608))
fails(errno.ENOSPC, lambda: h.pwrite(b"x" * 512, 8388608))
fails(errno.EINVAL, lambda: h.pwrite(b"x" * 511, 0))
fails(errno.ENOTSUP, lambda: h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO))
fails(errno.EINVAL, lambda: h.cache(4096, 0))
found = []
h.block_status(8388608, 0, lambda *all: found.append(all[:3]))
assert found == [("base:allocation", 0, [8388608, 0])], found
many = [h.aio_pread(nbd.Buffer(65536), 65536 * at) for at in range(64)]
while h.aio_in_flight() > 0:
    h.poll(-1)
assert all(h.aio_command_completed(cookie) for cookie in many)
h.shutdown()
"#;
    run(folder.path(), "nbdsh", &["--base-allocation", "-u", &uri(&served, "disk"), "-c", script]);
    assert_eq!(served.stats().cut_off, 0);
}

#[test]
fn qemu_img_converts_and_compares() {
    if !has("qemu-img", "qemu-utils") {
        return;
    }
    let served = Served::one(memory());
    let folder = tempfile::tempdir().unwrap();
    data(folder.path());
    let uri = uri(&served, "disk");
    let text = run(folder.path(), "qemu-img", &["info", &uri]);
    assert!(text.contains("virtual size: 8 MiB"), "{text}");
    run(folder.path(), "qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "data", &uri]);
    run(folder.path(), "qemu-img", &["compare", "-f", "raw", "-F", "raw", "data", &uri]);
    run(folder.path(), "qemu-img", &["bench", "-f", "raw", "-c", "200", "-d", "32", &uri]);
    run(
        folder.path(),
        "qemu-img",
        &["bench", "-f", "raw", "-w", "-c", "200", "--flush-interval", "40", "-d", "32", &uri],
    );
    assert_eq!((served.stats().cut_off, served.stats().failed), (0, 0));
}

#[test]
fn qemu_io_reads_what_it_wrote() {
    if !has("qemu-io", "qemu-utils") {
        return;
    }
    let served = Served::one(memory());
    let folder = tempfile::tempdir().unwrap();
    let commands = [
        "write -P 0x5a 1M 64k",
        "write -f -P 0xa5 2M 512",
        "read -P 0x5a 1M 64k",
        "write -z 1M 32k",
        "write -z -u 3M 1M",
        "read -P 0 1M 32k",
        "discard 4M 1M",
        "flush",
        "read -P 0xa5 2M 512",
        "aio_write -P 1 0 1M",
        "aio_flush",
        "read -P 1 0 1M",
    ];
    let uri = uri(&served, "disk");
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|command| arguments.extend(["-c", *command]));
    arguments.push(&uri);
    let text = run(folder.path(), "qemu-io", &arguments);
    assert!(!text.contains("failed") && !text.contains("Pattern"), "{text}");
    assert_eq!(served.stats().cut_off, 0);
}

/// nbdkit's client is its plugin nbd: a server that passes requests on to another one.
#[test]
fn nbdkit_passes_requests_on() {
    if !has("nbdkit", "nbdkit") || !has("nbdcopy", "libnbd-bin") {
        return;
    }
    let served = Served::one(memory());
    let folder = tempfile::tempdir().unwrap();
    let data = data(folder.path());
    let uri = format!("uri={}", uri(&served, "disk"));
    let copies = r#"nbdcopy --flush data "$uri" && nbdcopy "$uri" copy"#;
    run(folder.path(), "nbdkit", &["--unix", "-", "nbd", &uri, "--run", copies]);
    assert!(std::fs::read(folder.path().join("copy")).unwrap() == data);
    assert_eq!((served.stats().cut_off, served.stats().failed), (0, 0));
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !has("fio", "fio") {
        return;
    }
    let engines = Command::new("fio").env("PATH", PATH).arg("--enghelp").output().unwrap();
    if !String::from_utf8_lossy(&engines.stdout).contains("nbd") {
        eprintln!("skipped: this fio has no engine for NBD");
        return;
    }
    let served = Served::one(memory());
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("--uri={}", uri(&served, "disk"));
    let arguments = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bsrange=512-64k",
        "--size=8m",
        "--iodepth=32",
        "--verify=crc32c",
        "--do_verify=1",
        "--randrepeat=0",
    ];
    let text = run(folder.path(), "fio", &arguments);
    assert!(text.contains("err= 0"), "{text}");
    assert!(served.stats().bytes_read >= BYTES, "{:?}", served.stats());
}
