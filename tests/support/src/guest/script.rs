//! Work that several tests do in a guest, and the host's checks of its result.

use crate::guest::installed::output;
use std::path::Path;

/// Environment variable that says to a test program that it runs in a guest.
const IS_INSIDE: &str = "BYWASH_TEST_INSIDE";

/// Shell function `inside NAME`, for guests that have a test program as `/sbin/tests`: runs its ignored test
/// `inside::NAME`, and fails if there is no such test.
pub const INSIDE: &str = r#"
inside() {
    BYWASH_TEST_INSIDE=1 /sbin/tests --ignored --exact "inside::$1" --nocapture --test-threads 1 > /tmp/inside 2>&1
    result=$?
    cat /tmp/inside
    [ $result = 0 ] || fail "$1"
    grep -q '1 passed' /tmp/inside || fail "$1 was not run"
}
"#;

/// Shell functions for guests that have the command as `/sbin/bywash`. `refused` runs a command that has to fail with a message
/// that contains the first argument. `serve_with` starts a server with more options, at the socket `/tmp/socket` with the volumes
/// of `/tmp/volumes`; its process is `$server`, and it prints to `/tmp/serve`.
pub const COMMAND: &str = r#"
refused() {
    message=$1; shift
    "$@" > /tmp/refused 2>&1 && fail "$* was not refused"
    grep -qF "$message" /tmp/refused || { cat /tmp/refused; fail "$* did not say '$message'"; }
}
serve_with() {
    /sbin/bywash serve --socket /tmp/socket --policy /tmp/volumes "$@" > /tmp/serve 2>&1 &
    server=$!
    count=0
    until grep -q '^serving at' /tmp/serve; do
        count=$((count + 1)); [ $count -lt 600 ] && [ -d /proc/$server ] || { cat /tmp/serve; fail 'nothing is served'; }
        sleep 0.1
    done
}
"#;

/// Checks that this test program runs in a guest, by [`INSIDE`] or with the variable set.
///
/// # Panics
/// If it does not.
pub fn check_is_inside() {
    assert!(std::env::var_os(IS_INSIDE).is_some(), "this test runs in a guest only");
}

/// Makes a file system on the disk, fills it with files of random contents, several of them at the same time,
/// unmounts and checks it, and reads every file again from the disk. Prints `file HASH NAME` for each file,
/// and after reading it again `again HASH NAME`.
pub const FILE_SYSTEM: &str = r#"
step /sbin/mke2fs -q -F -t ext4 /dev/vda
step mount -t ext4 /dev/vda /mnt
step mkdir /mnt/files
step dd if=/dev/urandom of=/mnt/files/large bs=64k count=96
in_steps() {
    part=0
    while [ $part -lt 10 ]; do
        dd if=/dev/urandom of=/mnt/files/steps$1 bs=3k count=4 seek=$((part * 4)) conv=notrunc,fsync 2> /dev/null
        part=$((part + 1))
    done
}
for number in 1 2 3 4; do
    in_steps $number &
    writers="$writers $!"
done
number=0
while [ $number -lt 60 ]; do
    step dd if=/dev/urandom of=/mnt/files/small$number bs=$((number * 131 + 1)) count=3
    number=$((number + 1))
done
wait $writers
step rm /mnt/files/small0 /mnt/files/small7
step sync
step fstrim /mnt
cd /mnt/files; sha256sum * | while read hash name; do say file $hash $name; done; cd /
step umount /mnt
step /sbin/e2fsck -f -n /dev/vda
echo 3 > /proc/sys/vm/drop_caches
step mount -t ext4 -o ro /dev/vda /mnt
cd /mnt/files; sha256sum * | while read hash name; do say again $hash $name; done; cd /
step umount /mnt
"#;

/// Checks the file system in an image with the host's e2fsck.
///
/// # Panics
/// If the file system has errors, with e2fsck's output.
pub fn check_image(image: &Path) {
    output("e2fsck", &["-f", "-n", &image.to_string_lossy()]);
}

/// Copies the folder `folder` out of the file system in an image.
///
/// # Panics
/// If the file system cannot be read.
pub fn copy_out(image: &Path, folder: &str, to: &Path) {
    let request = format!("rdump {folder} {}", to.display());
    output("debugfs", &["-R", &request, &image.to_string_lossy()]);
}
