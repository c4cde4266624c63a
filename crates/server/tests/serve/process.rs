//! A server in its own process, and measurements of that process.

use crate::peer::{LIMIT, Peer};
use bywash_server::{LimitsFile, Server};
use bywash_support::peers::{Child, role};
use rustix::process::{Pid, Resource, getrlimit, prlimit};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The server, over the device that its role names and a file beside its socket.
#[test]
fn a_server() {
    let Some(role) = role() else { return };
    let (folder, device) = role.split_once(' ').unwrap();
    let folder = Path::new(folder);
    let options = crate::peer::options(folder.join("socket"))
        .policy(folder.join("volumes"))
        .limits(LimitsFile::read(&folder.join("limits")).unwrap())
        .device(device.parse().unwrap())
        .device(format!("disk=file:{},size=16M", folder.join("disk").display()).parse().unwrap());
    let _server = Server::start(options).unwrap();
    std::thread::sleep(Duration::from_secs(36_000));
}

/// Handle of the server's process, which is killed when this is dropped.
pub struct Serving {
    child: Child,
    folder: TempDir,
    device: String,
}

/// Resources of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub descriptors: usize,
    pub mappings: usize,
    /// Resident memory in bytes, and the anonymous part of it.
    pub resident: u64,
    pub anonymous: u64,
    /// Processor time, in hundredths of a second.
    pub ticks: u64,
}

impl Serving {
    /// Starts a server with this device besides `disk`, and with these limits.
    pub fn start(device: &str, limits: &str) -> Serving {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("limits"), limits).unwrap();
        let child = Serving::child(folder.path(), device);
        let serving = Serving { child, folder, device: device.into() };
        serving.wait();
        serving
    }

    fn child(folder: &Path, device: &str) -> Child {
        Child::start("process::a_server", &format!("{} {device}", folder.display()), Vec::new())
    }

    fn wait(&self) {
        let end = Instant::now() + LIMIT;
        while bywash_link::connect(&self.socket()).is_err() {
            assert!(Instant::now() < end, "the server does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn kill(&mut self) {
        self.child.kill();
    }

    pub fn start_again(&mut self) {
        self.child = Serving::child(self.folder.path(), &self.device);
        self.wait();
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub fn peer(&self) -> Peer {
        Peer::connect(&self.socket())
    }

    /// Allows the server to open further files, or forbids it.
    pub fn may_open(&self, is_so: bool) {
        let pid = Pid::from_raw(self.child.pid() as i32);
        let mut limit = prlimit(pid, Resource::Nofile, getrlimit(Resource::Nofile)).unwrap();
        // Files that are open already stay open.
        limit.current = if is_so { limit.maximum } else { Some(0) };
        prlimit(pid, Resource::Nofile, limit).unwrap();
    }

    /// Sets the server's limit of open files.
    pub fn limit_open_files(&self, most: u64) {
        let pid = Pid::from_raw(self.child.pid() as i32);
        let mut limit = prlimit(pid, Resource::Nofile, getrlimit(Resource::Nofile)).unwrap();
        limit.current = Some(most);
        prlimit(pid, Resource::Nofile, limit).unwrap();
    }

    /// Returns the numbers of the threads that have this name.
    pub fn threads(&self, name: &str) -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.pid())).unwrap();
        let named =
            |path: &PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
        let paths = tasks.map(|task| task.unwrap().path()).filter(named);
        paths.map(|path| path.file_name().unwrap().to_str().unwrap().parse().unwrap()).collect()
    }

    /// Counts the buffers of at least `bytes` bytes that the server's io_uring rings have registered. The
    /// kernel shows none for a ring that is busy.
    pub fn registered(&self, bytes: u64) -> usize {
        let folder = std::fs::read_dir(format!("/proc/{}/fdinfo", self.child.pid())).unwrap();
        let of_ring = |text: String| {
            let buffers = text.lines().skip_while(|line| !line.starts_with("UserBufs:")).skip(1);
            let sizes = buffers.filter_map(|line| line.split_once(": 0x")?.1.split_once('/')?.1.parse().ok());
            sizes.filter(|size: &u64| *size >= bytes).count()
        };
        // A descriptor may be closed meanwhile.
        let infos = folder.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        infos.map(of_ring).sum()
    }

    pub fn process(&self) -> Process {
        let of = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", self.child.pid())).unwrap();
        let status = of("status");
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
        };
        // The fields follow the process's name, which may contain any character.
        let stat = of("stat");
        let times: Vec<u64> = stat[stat.rfind(')').unwrap()..]
            .split(' ')
            .skip(12)
            .take(2)
            .map(|ticks| ticks.parse().unwrap())
            .collect();
        Process {
            descriptors: std::fs::read_dir(format!("/proc/{}/fd", self.child.pid())).unwrap().count(),
            mappings: of("maps").lines().filter(|line| line.contains("memfd:")).count(),
            resident: bytes("VmRSS:"),
            anonymous: bytes("RssAnon:"),
            ticks: times.iter().sum(),
        }
    }
}
