//! `bywash serve --ublk` and `bywash volume export --ublk` with the kernel's driver, in a guest.

#![cfg(target_arch = "x86_64")]

use bywash_support::guest::Guest;
use bywash_support::guest::kernel::Release;
use bywash_support::guest::script::COMMAND;
use std::path::Path;

/// Functions of a guest's script, beside those of [`COMMAND`].
const FUNCTIONS: &str = r#"
serve() {
    serve_with --device disk=file:/image,size=64M,sparse $1
}
volume() {
    step /sbin/bywash volume --socket /tmp/socket "$@"
}
"#;

#[test]
fn a_volume_is_a_disk_of_the_machine() {
    let script = r#"
serve
volume create root 32M --device disk
refused 'modprobe ublk_drv' /sbin/bywash volume --socket /tmp/socket export root --ublk any
step insmod /modules/ublk_drv.ko
volume export root --ublk any
step /sbin/bywash serve status --socket /tmp/socket
grep -q '/dev/ublkb0' /tmp/step || { cat /tmp/step; fail 'the status does not name the disk'; }
refused 'exported at /dev/ublkb0 already' /sbin/bywash volume --socket /tmp/socket export root --ublk /dev/ublkb0
say exported

step /sbin/mke2fs -q -F -t ext4 /dev/ublkb0
step mount -t ext4 /dev/ublkb0 /mnt
step dd if=/dev/urandom of=/mnt/file bs=64k count=64 conv=fsync
sum=$(sha256sum < /mnt/file)
refused '/dev/ublkb0 is in use: unmount it' /sbin/bywash volume --socket /tmp/socket unexport root
say in use

kill -9 $server
wait $server
(dd if=/mnt/file of=/mnt/copy bs=64k conv=fsync; echo $? > /tmp/copied) 2> /dev/null &
copier=$!
sleep 1
[ -e /tmp/copied ] && fail 'something is written without a server'
serve --ublk=root=/dev/ublkb0
wait $copier
[ "$(cat /tmp/copied)" = 0 ] || fail 'a program that waited has failed'
[ "$sum" = "$(sha256sum < /mnt/copy)" ] || fail 'the copy differs'
say taken over

kill -TERM $server
wait $server || { cat /tmp/serve; fail 'the server did not end well'; }
grep -q 'is in use and stays' /tmp/serve || { cat /tmp/serve; fail 'nothing is said of the disk'; }
echo 3 > /proc/sys/vm/drop_caches
serve --ublk=root=/dev/ublkb0
grep -q 'volume root as the disk /dev/ublkb0' /tmp/serve || { cat /tmp/serve; fail 'the disk is not told'; }
[ "$sum" = "$(sha256sum < /mnt/copy)" ] || fail 'the copy differs'
step umount /mnt
refused 'is not exported at /dev/ublkb1' /sbin/bywash volume --socket /tmp/socket unexport root --ublk /dev/ublkb1
volume unexport root --ublk /dev/ublkb0
[ -e /dev/ublkb0 ] && fail 'the disk is still there'
kill -TERM $server
wait $server || { cat /tmp/serve; fail 'the server did not end well'; }
say removed
"#;
    let mut guest = Guest::without_disk()
        .kernel(Release::Recent)
        .later_module("drivers/block/ublk_drv")
        .program("bywash", Path::new(env!("CARGO_BIN_EXE_bywash-command")))
        .seconds_max(600)
        .boot(&format!("{COMMAND}{FUNCTIONS}{script}"));
    for what in ["exported", "in use", "taken over", "removed"] {
        guest.wait_for(what);
    }
    guest.wait_for_end();
}
