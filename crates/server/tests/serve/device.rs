//! A device that fails, holds commands or loses power when the test says so; test and server share it.

use crate::peer::Served;
use bywash_device::testing::{Crash, Fault, FaultEffect, Faulty};
use bywash_device::{Command, Completion, Device, Geometry, Memory, MemoryOptions, Operation, QueueFull};
use bywash_link::HugePages;
use bywash_server::{NewBlocks, OpenDevice, Options, Server, Timeouts};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Size of the device, in bytes.
pub const BYTES: u64 = 4 << 20;

/// Greatest number of commands in flight on the device.
pub const DEPTH: usize = 64;

pub fn memory() -> Memory {
    Memory::new(MemoryOptions { pages: HugePages::No, ..MemoryOptions::new(BYTES) }).unwrap()
}

/// Handle of a device that the test and the server share.
#[derive(Clone)]
pub struct SharedDevice(Arc<Mutex<Option<Faulty<Memory>>>>);

impl SharedDevice {
    pub fn over(memory: Memory, seed: u64) -> SharedDevice {
        SharedDevice(Arc::new(Mutex::new(Some(Faulty::over(memory, seed)))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Faulty<Memory>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn inject(&self, operation: Operation, what: FaultEffect) {
        let fault = Fault { operation: Some(operation), range: 0..u64::MAX, skip: 0, times: 1, what };
        self.with(|device| device.inject(fault));
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut Faulty<Memory>) -> T) -> T {
        act(self.lock().as_mut().unwrap())
    }

    /// Cuts the power, and returns what the memory contains afterwards.
    pub fn crash(&self, crash: Crash) -> Memory {
        self.lock().take().unwrap().crash(crash)
    }
}

/// After a power failure the device accepts and completes no command.
impl Device for SharedDevice {
    fn geometry(&self) -> Geometry {
        self.with(|device| device.geometry())
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        match self.lock().as_mut() {
            Some(device) if device.in_flight() < DEPTH => device.submit(command),
            _ => Err(QueueFull(command)),
        }
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        self.lock().as_mut().map_or(0, |device| device.reap(done))
    }

    fn arm(&mut self) -> bool {
        self.lock().as_mut().is_some_and(Faulty::arm)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn in_flight(&self) -> usize {
        self.lock().as_ref().map_or(0, Faulty::in_flight)
    }

    fn description(&self) -> String {
        "a device of a test".into()
    }
}

/// Starts a server over this device.
pub fn over(device: &SharedDevice, request: Duration) -> Served {
    over_all(&[("disk", device)], request)
}

/// Starts a server over several devices, given with their names.
pub fn over_all(devices: &[(&str, &SharedDevice)], request: Duration) -> Served {
    over_with(devices, request, |options| options)
}

/// Like [`over_all`], on this number of cores.
pub fn over_on(devices: &[(&str, &SharedDevice)], request: Duration, cores: usize) -> Served {
    over_with(devices, request, |options| options.cores(cores))
}

fn over_with(
    devices: &[(&str, &SharedDevice)],
    request: Duration,
    change: impl FnOnce(Options) -> Options,
) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let options = change(crate::peer::options(&socket));
    let options =
        options.policy(folder.path().join("volumes")).timeouts(Timeouts::default().request(request));
    let opened = |(name, device): &(&str, &SharedDevice)| OpenDevice {
        name: (*name).into(),
        device: Box::new((*device).clone()),
        contents: NewBlocks::Cleared,
        is_volatile: false,
    };
    let opened = devices.iter().map(opened).collect();
    let server = Some(Server::with_devices(options, opened).unwrap());
    Served { server, socket, folder }
}
