//! Exports that the tests serve.

use crate::client::Client;
use bywash_device::{Device, EngineKind, File, FileKind, FileOptions, Memory, MemoryOptions};
use bywash_nbd::{Disk, Event, Export, Options};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub struct Served {
    folder: TempDir,
    pub export: Option<Export>,
    pub events: Receiver<Event>,
}

/// Size of the disks, in bytes.
pub const BYTES: u64 = 8 << 20;

impl Served {
    pub fn new(disks: Vec<Disk>, options: Options) -> Served {
        // Served from a file system with O_DIRECT.
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let listener = UnixListener::bind(folder.path().join("nbd")).unwrap();
        let (sender, events) = channel();
        // A test that does not look at events has no receiver any more at its end.
        let report = move |event| drop(sender.send(event));
        let export = Some(Export::start(listener, disks, options, report).unwrap());
        Served { folder, export, events }
    }

    /// Serves a device by the name `disk`.
    pub fn one(device: impl Device + 'static) -> Served {
        Served::new(vec![Disk::new("disk", device).description("a disk of the tests")], Options::new())
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("nbd")
    }

    pub fn simple(&self) -> Client {
        Client::simple(&self.path(), "disk")
    }

    pub fn structured(&self) -> Client {
        Client::structured(&self.path(), "disk")
    }

    pub fn stats(&self) -> bywash_nbd::Stats {
        self.export.as_ref().unwrap().stats()
    }

    /// Waits for the report that a client was cut off, and returns the reason.
    pub fn cut_off(&self) -> String {
        loop {
            match self.events.recv_timeout(Duration::from_secs(20)).unwrap() {
                Event::CutOff { error, .. } => return error.to_string(),
                _ => continue,
            }
        }
    }

    /// Checks that another client is served.
    pub fn check(&self) {
        let mut client = self.structured();
        let data = vec![0xa5; 4096];
        assert_eq!(client.write(0, BYTES.min(1 << 20) - 4096, &data), 0);
        assert_eq!(client.read(BYTES.min(1 << 20) - 4096, 4096), data);
    }

    /// Waits until a condition of the counters holds.
    pub fn wait_until(&self, is_there: impl Fn(&bywash_nbd::Stats) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !is_there(&self.stats()) {
            assert!(Instant::now() < end, "{:?}", self.stats());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

pub fn memory() -> Memory {
    Memory::new(MemoryOptions::new(BYTES)).unwrap()
}

/// Devices of each kind: those that carry commands out at once, in time, and by the kernel.
pub fn devices(folder: &TempDir) -> Vec<(&'static str, Box<dyn Device>)> {
    let mut late = MemoryOptions::new(BYTES);
    late.latency_ns = 20_000;
    let file = |name: &str, engine: Option<EngineKind>| {
        let options = FileOptions::new(FileKind::File, &folder.path().join(name));
        Box::new(File::open(&FileOptions { bytes: Some(BYTES), engine, ..options }).unwrap())
    };
    vec![
        ("memory", Box::new(memory())),
        ("late memory", Box::new(Memory::new(late).unwrap())),
        ("a file", file("ring", None)),
        ("a file by threads", file("threads", Some(EngineKind::Threads))),
    ]
}
