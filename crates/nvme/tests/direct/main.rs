//! Direct grants: a device server hands clients the virtual functions of QEMU's NVMe controller, behind an IOMMU, in a guest.
//!
//! This test program runs in the guest as well: the tests below [`inside`] are the server, its clients and a hostile client,
//! and are ignored on the host. The guest has a controller with two virtual functions and two namespaces of
//! [`NAMESPACE_BYTES`].

#![cfg(target_arch = "x86_64")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod inside;

use bywash_support::guest::script::INSIDE;
use bywash_support::guest::system::VFIO;
use bywash_support::guest::{Disk, Guest};

/// Size of a namespace, in bytes.
const NAMESPACE_BYTES: u64 = 16 << 20;

/// Describes a guest with the controller, the modules of VFIO, and this program as `/sbin/tests`.
fn guest(disks: &[Disk; 2]) -> Guest {
    let controller = "nvme,id=controller,serial=test,subsys=subsystem,bus=root,max_ioqpairs=8,msix_qsize=8,sriov_max_vfs=2,\
                      sriov_vq_flexible=4,sriov_vi_flexible=4";
    let mut guest = Guest::without_disk()
        .hardware(&["-device", "intel-iommu,intremap=on"])
        .hardware(&["-device", "pcie-root-port,id=root,chassis=1,slot=1,addr=5"])
        .hardware(&["-device", "nvme-subsys,id=subsystem,nqn=subsystem", "-device", controller])
        .kernel_option("intel_iommu=on")
        .modules(&VFIO)
        .program("tests", &std::env::current_exe().unwrap())
        .seconds_max(400);
    for (number, disk) in (1..).zip(disks) {
        let drive = format!("driver=file,node-name=disk{number},filename={}", disk.image().display());
        let namespace =
            format!("nvme-ns,drive=disk{number},bus=controller,nsid={number},shared=on,detached=on");
        guest = guest.hardware(&["-blockdev", &drive, "-device", &namespace]);
    }
    guest
}

/// Shell functions that start a test of this program in the background, and wait for its end.
const BACKGROUND: &str = r#"
begin() {
    # What an earlier one has said does not count.
    : > /tmp/$1
    BYWASH_TEST_INSIDE=1 /sbin/tests --ignored --exact "inside::$1" --nocapture --test-threads 1 > /tmp/$1 2>&1 &
    begun=$!
}
until_said() {
    count=0
    until grep -q "$2" /tmp/$1; do
        count=$((count + 1)); [ $count -lt 600 ] && [ -d /proc/$begun ] || { cat /tmp/$1; fail "$1 never said '$2'"; }
        sleep 0.1
    done
}
ended() {
    wait $2 || { cat /tmp/$1; fail "$1"; }
    grep -q '1 passed' /tmp/$1 || { cat /tmp/$1; fail "$1 was not run"; }
}
"#;

#[test]
fn functions_are_granted_used_and_taken_back() {
    let disks = [Disk::new(NAMESPACE_BYTES), Disk::new(NAMESPACE_BYTES)];
    let script = r#"
printf '[user.0]\ntrusted = true\n' > /tmp/limits
begin serves; server=$begun
until_said serves 'it serves'
inside makes_volumes
inside has_each_namespace_by_its_function
inside tells_what_does_not_fit
inside carries_out_transfers
inside sleeps_until_requests_complete
inside goes_through_the_channel_where_it_is_not_trusted
say granted
inside revokes_under_load
say revoked
dmesg | grep -q 'DMAR:.*fault addr' && fail 'an access was rejected'

begin keeps_its_data; victim=$begun
until_said keeps_its_data 'it looks'
inside attacks
dmesg | grep -q 'DMAR:.*fault addr' || fail 'no access of the hostile client was rejected'
touch /tmp/attacked
ended keeps_its_data $victim
say attacked

begin writes_until_it_is_killed; writer=$begun
until_said writes_until_it_is_killed 'it writes'
kill -9 $writer
wait $writer
inside has_each_namespace_by_its_function
say client killed

begin writes_until_the_server_is_gone; writer=$begun
until_said writes_until_the_server_is_gone 'it writes'
kill -9 $server
wait $server
ended writes_until_the_server_is_gone $writer
begin serves; server=$begun
until_said serves 'it serves'
inside has_each_namespace_by_its_function
say server killed

touch /tmp/stop
ended serves $server
[ "$(cat /sys/bus/pci/devices/0000:01:00.0/sriov_numvfs)" = 0 ] || fail 'virtual functions are left'
say stopped
"#;
    let mut guest = guest(&disks).boot(&format!("{INSIDE}{BACKGROUND}{script}"));
    for what in ["granted", "revoked", "attacked", "client killed", "server killed", "stopped"] {
        guest.wait_for(what);
    }
    guest.wait_for_end();
}
