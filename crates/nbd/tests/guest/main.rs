//! The Linux kernel's own client, in a guest without any knowledge of Bywash: it makes a file system on an export while
//! its server is killed again and again, and nothing is lost.
//!
//! ```text
//!   host     server, killed ◄──── TCP ────► /dev/nbd0, file system     guest
//!            server, killed                 this program: connects, and gives the kernel connections
//!            server
//! ```
//!
//! This program runs in the guest as well: it does what nbd-client does, and replaces each connection that has ended.

#![cfg(target_arch = "x86_64")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kernel;

use bywash_device::testing::Late;
use bywash_device::{Device, Spec};
use bywash_nbd::{Disk, Export, Options};
use bywash_support::guest::{Disk as Image, Guest, HOST, check_files, script};
use kernel::Kernel;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variable that makes this program serve a disk, in a process that is killed: the disk's folder.
const SERVES: &str = "BYWASH_TEST_SERVES";
/// Port at which that process listens.
const PORT: &str = "BYWASH_TEST_PORT";
/// Number of commands after which it completes none any more.
const COMMANDS: &str = "BYWASH_TEST_COMMANDS";
/// Environment variable that makes this program attach an export to the kernel that it runs on: the server's address.
const ATTACHES: &str = "BYWASH_TEST_ATTACHES";

/// Connections of the kernel's client.
const CONNECTIONS: usize = 2;
/// Time after which the kernel sends a request again, and for which requests wait for a server, in seconds.
const TIMEOUT_SECONDS: u64 = 3;
const DEAD_SECONDS: u64 = 60;
/// Interval between attempts to reach a server.
const RETRY: Duration = Duration::from_millis(50);

struct Server(Child);

impl Server {
    /// Starts a process that serves the disk until it has begun `commands` commands.
    fn start(disk: &Image, port: u16, commands: u64) -> Server {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "serves_until_it_is_killed", "--nocapture"])
            .env(SERVES, disk.image().parent().unwrap())
            .env(PORT, port.to_string())
            .env(COMMANDS, commands.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Server(child)
    }

    /// Kills the process when its last command is in flight.
    fn kill(self, disk: &Image) {
        let (mark, end) = (mark(disk, self.0.id()), Instant::now() + Duration::from_secs(60));
        while !mark.exists() {
            assert!(Instant::now() < end, "the guest asks for too little");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing fails only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the file that a server creates when its last command is in flight.
fn mark(disk: &Image, process: u32) -> PathBuf {
    disk.image().with_file_name(format!("held-{process}"))
}

/// Body of the process that [`Server`] starts; does nothing when run as a test. The disk is slow, so that several requests
/// are in flight.
#[test]
#[ignore = "a process of the other test"]
fn serves_until_it_is_killed() {
    let folder = std::env::var_os(SERVES).expect("started by the other test only");
    let disk = Image::at(folder.as_ref());
    let setting = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let spec = format!("disk=file:{}", disk.image().display()).parse::<Spec>().unwrap();
    let device: Box<dyn Device> = spec.open().unwrap();
    let slow =
        Late::new(device, Duration::from_millis(2), setting(COMMANDS), mark(&disk, std::process::id()));
    let listener = TcpListener::bind(("127.0.0.1", setting(PORT) as u16)).unwrap();
    let report = |event| eprintln!("the disk's server: {event:?}");
    let _export = Export::start(listener, vec![Disk::new("disk", slow)], Options::new(), report).unwrap();
    // The process ends with its parent.
    let parent = std::os::unix::process::parent_id();
    while std::os::unix::process::parent_id() == parent {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Connects to the only export of a server. Returns the connection, and the export's size and flags.
fn enter(address: &str) -> io::Result<(TcpStream, (u64, u16))> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.read_exact(&mut [0; 18])?;
    // The fixed newstyle without zeros, and EXPORT_NAME without a name.
    stream.write_all(&[&3u32.to_be_bytes()[..], b"IHAVEOPT", &1u32.to_be_bytes(), &[0; 4]].concat())?;
    let mut export = [0; 10];
    stream.read_exact(&mut export)?;
    let bytes = u64::from_be_bytes(*export.first_chunk().unwrap());
    Ok((stream, (bytes, u16::from_be_bytes([export[8], export[9]]))))
}

/// Connects as soon as there is a server; the guest ends by itself if there is none.
fn enter_some_time(address: &str) -> (TcpStream, (u64, u16)) {
    loop {
        match enter(address) {
            Ok(entered) => return entered,
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

/// Body of the process in the guest; does nothing when run as a test. Makes `/dev/nbd0` of an export, and gives the kernel
/// another connection for each that ends.
#[test]
#[ignore = "run in the guest by the other test"]
fn attaches_the_disk() {
    let address = std::env::var(ATTACHES).expect("run in a guest only");
    let mut kernel = Kernel::open();
    let (first, export) = enter_some_time(&address);
    let mut connections = vec![first];
    connections.resize_with(CONNECTIONS, || enter_some_time(&address).0);
    kernel.connect(&connections, export, TIMEOUT_SECONDS, DEAD_SECONDS);
    loop {
        // The kernel reads from the connections; here only their end is waited for.
        let mut waiting: Vec<_> =
            connections.iter().map(|connection| PollFd::new(connection, PollFlags::RDHUP)).collect();
        poll(&mut waiting, None).unwrap();
        let ended: Vec<bool> = waiting.iter().map(|one| !one.revents().is_empty()).collect();
        for (connection, _) in connections.iter_mut().zip(ended).filter(|(_, has_ended)| *has_ended) {
            *connection = enter_some_time(&address).0;
            while kernel.replace(connection).is_err() {
                std::thread::sleep(RETRY);
            }
        }
    }
}

/// Makes the disk of a guest, before what it does with it.
fn attach(port: u16) -> String {
    format!(
        r#"
step ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
{ATTACHES}={HOST}:{port} /sbin/guest --ignored --exact attaches_the_disk --nocapture > /tmp/attaches 2>&1 &
tries=0
until [ "$(cat /sys/block/nbd0/size)" -gt 0 ]; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || {{ cat /tmp/attaches; fail 'no disk'; }}
    sleep 0.1
done
say sectors $(cat /sys/block/nbd0/size)
say write cache $(cat /sys/block/nbd0/queue/write_cache)
say fua $(cat /sys/block/nbd0/queue/fua)
"#
    )
}

#[test]
fn the_kernels_client_loses_its_server_and_nothing_else() {
    let disk = Image::new(64 << 20);
    // Nobody else takes a port that was just free.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let first = Server::start(&disk, port, 40);
    let work = script::FILE_SYSTEM.replace("/dev/vda", "/dev/nbd0");
    let guest = Guest::on_network()
        .modules(&["drivers/block/nbd"])
        .program("guest", &std::env::current_exe().unwrap())
        .boot(&[attach(port), work].concat());
    first.kill(&disk);
    for commands in [1, 80] {
        Server::start(&disk, port, commands).kill(&disk);
    }
    let server = Server::start(&disk, port, u64::MAX);
    let said = guest.wait_for_end();
    drop(server);
    for line in ["sectors 131072", "write cache write back", "fua 1"] {
        assert!(said.iter().any(|said| said == line), "{line}: {said:?}");
    }
    check_files(&disk.image(), &said);
}
