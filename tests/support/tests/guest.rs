//! A check of the guest and its scripts themselves, against another project's server of disks:
//! qemu-storage-daemon.

#![cfg(target_arch = "x86_64")]

use bywash_support::guest::installed::find;
use bywash_support::guest::{Disk, Guest, check_files, script};
use std::process::{Child, Command};

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // Killing fails only if the daemon has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_guest_makes_a_file_system() {
    let disk = Disk::new(64 << 20);
    let (image, socket) = (disk.image(), disk.socket());
    let export = format!(
        "type=vhost-user-blk,id=export,node-name=image,addr.type=unix,addr.path={},writable=on",
        socket.display()
    );
    let node = format!("driver=file,node-name=image,filename={}", image.display());
    let program = find("qemu-storage-daemon");
    let daemon = Command::new(program)
        .args(["--blockdev", &node, "--export", &export])
        .spawn()
        .expect("qemu-storage-daemon starts");
    let _daemon = Daemon(daemon);
    disk.wait_for_socket();
    let said = Guest::new(&socket).boot(script::FILE_SYSTEM).wait_for_end();
    check_files(&image, &said);
}
