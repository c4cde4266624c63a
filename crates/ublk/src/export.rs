//! An export: a disk of the kernel, from when it is made or taken over until it is stopped or left.
//!
//! ```text
//!   made ──► parameters set ──┐
//!                             ├─► thread serves ──► started ──► /dev/ublkbN ──► stopped, deleted
//!   left by a process ────────┘                                     └─► left, while it is in use
//! ```
//!
//! Called by programs that serve devices.

use crate::control::Control;
use crate::layout::{ANY, Info, Parameters, SECTOR, State, feature};
use crate::queue::{End, Queue};
use crate::stats::{Counters, Stats};
use bywash_device::{Device, Geometry};
use bywash_export::{Error, ExportThread, Signal};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Greatest number of requests of a disk that are in flight.
pub const DEPTH_MAX: usize = 1024;
/// Number by which the driver remembers that a disk was made here.
const MARK: u64 = u64::from_be_bytes(*b"bywash\0\x01");
/// Greatest size of a request's data, in bytes. The kernel makes few that are larger.
const TRANSFER_MAX: u64 = 512 << 10;
/// Greatest length of a request without data, in bytes.
const RANGE_MAX: u64 = 1 << 30;
/// Time that the driver has to start a disk, which reads the partition table.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Time that the driver has to notice that a process has ended: some look every five seconds.
const RECOVERY_LIMIT: Duration = Duration::from_secs(20);
/// Time for which the files of a disk may be missing after it was made.
const FILE_LIMIT: Duration = Duration::from_secs(5);

/// A device that becomes a disk.
pub struct Disk {
    device: Box<dyn Device>,
    name: String,
}

impl Disk {
    /// Takes a device. `name` is for messages and for the thread.
    pub fn new(name: impl Into<String>, device: impl Device + 'static) -> Disk {
        Disk { device: Box::new(device), name: name.into() }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Disk").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Options of an export.
#[derive(Clone, Debug)]
pub struct Options {
    number: Option<u32>,
    depth: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { number: None, depth: 128 }
    }
}

impl Options {
    /// Makes options with the default values.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the number of the disk, N of `/dev/ublkbN`; by default the first one that is free. A disk of this number that an
    /// export has left is taken over.
    pub fn number(mut self, number: u32) -> Options {
        self.number = Some(number);
        self
    }

    /// Sets the greatest number of requests that are in flight, 1 to [`DEPTH_MAX`]; 128 by default. The device may allow
    /// fewer.
    pub fn depth(mut self, depth: usize) -> Options {
        self.depth = depth;
        self
    }

    fn check(&self) -> Result<(), Error> {
        let refused = |option, value: String, allowed: String| Err(Error::Option { option, value, allowed });
        match self {
            // The driver takes numbers as large as a device number's.
            Options { number: Some(number @ 1_048_576..), .. } => {
                refused("the number of a disk", number.to_string(), "a number below 1048576".into())
            }
            Options { depth, .. } if *depth == 0 || *depth > DEPTH_MAX => {
                refused("the number of requests in flight", depth.to_string(), format!("1 to {DEPTH_MAX}"))
            }
            _ => Ok(()),
        }
    }
}

/// Event of an export.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A disk that an earlier process had left is served again, and its requests that waited are carried out.
    TakenOver,
    /// The disk is in use, so it stays: its requests wait until a later process serves it.
    Left,
    /// The disk was stopped by somebody else.
    Stopped,
    /// The disk is not served any more, since the driver refused to go on.
    Failed(Error),
}

/// A disk of the kernel that a thread serves, until this value is dropped. Then the disk is stopped and deleted, unless it is
/// in use, as by a mounted file system: it stays then, and its requests wait until [`Export::start`] takes it over.
#[derive(Debug)]
pub struct Export {
    number: u32,
    path: PathBuf,
    counters: Arc<Counters>,
    /// True from when this export stops the disk.
    is_over: Arc<AtomicBool>,
    /// The thread that serves; `None` after the disk was removed.
    thread: Mutex<Option<ExportThread>>,
    events: Arc<Mutex<Reporter>>,
}

struct Reporter(Box<dyn FnMut(Event) + Send>);

impl fmt::Debug for Reporter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Reporter")
    }
}

impl Export {
    /// Makes a disk of a device and serves it. Calls `report` for each event.
    ///
    /// With [`Options::number`], a disk of this number that an export has left, or whose process was killed, is taken over:
    /// programs that use it have only waited, and requests that were in flight are carried out again. The device has to be
    /// the same.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the driver is missing or may not be used, if the device cannot be a disk, or if there is another
    /// disk of that number; [`Error::Option`] if an option has an invalid value; [`Error::Io`] if a system call or the driver
    /// fails.
    pub fn start(
        disk: Disk,
        options: Options,
        report: impl FnMut(Event) + Send + 'static,
    ) -> Result<Export, Error> {
        options.check()?;
        let geometry = disk.device.geometry();
        let parameters = parameters(&geometry)?;
        let depth = options.depth.min(disk.device.depth()).max(1);
        let mut control = Control::open()?;
        let wanted = Info {
            queues: 1,
            depth: depth as u16,
            state: State::Dead,
            transfer_max: parameters.transfer_sectors_max * SECTOR as u32,
            disk: options.number.unwrap_or(ANY),
            process: -1,
            features: feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE,
            mark: MARK,
        };
        let left = match options.number {
            Some(number) => find_left(&mut control, number, &parameters)?,
            None => None,
        };
        let (info, is_recovered) = match left {
            Some(left) if usize::from(left.depth) > disk.device.depth() => {
                let (wanted, depth) = (left.depth, disk.device.depth());
                return Err(Error::Unfit(format!(
                    "the disk has {wanted} requests in flight, and it {depth}"
                )));
            }
            Some(left) => {
                control.start_recovery(left.disk, RECOVERY_LIMIT)?;
                (left, true)
            }
            None => (control.add(wanted)?, false),
        };
        let serving = serve(&mut control, disk, &info, parameters, is_recovered, report);
        if serving.is_err() && !is_recovered {
            // The first error is the one to be told.
            let _ = control.delete(info.disk);
        }
        serving
    }

    /// Returns the path of the disk: `/dev/ublkbN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of the disk.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// Stops and deletes the disk, and closes the device. Does nothing if that was done before.
    ///
    /// # Errors
    /// [`Error::InUse`] if the disk is in use, as by a mounted file system; it is served as before. [`Error::Io`] if the
    /// driver refuses.
    pub fn remove(&self) -> Result<(), Error> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            return Ok(());
        }
        // Nobody can begin to use it from now on, until it has vanished.
        let own = match open(&self.path, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::BUSY) => return Err(Error::InUse(self.path.display().to_string())),
            own => own.ok(),
        };
        let mut control = Control::open()?;
        self.is_over.store(true, Relaxed);
        let stopped = control.stop(self.number);
        drop((own, thread.take()));
        // If somebody else has stopped and deleted it, all is done.
        match stopped.and_then(|()| control.delete(self.number)) {
            Err(error) if control.info(self.number)?.is_some() => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let event = match self.remove() {
            Ok(()) => return,
            Err(Error::InUse(_)) => Event::Left,
            Err(error) => Event::Failed(error),
        };
        // The thread first completes what is in flight.
        drop(self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        tell(&self.events, event);
    }
}

fn tell(events: &Mutex<Reporter>, event: Event) {
    let mut reporter = events.lock().unwrap_or_else(PoisonError::into_inner);
    (reporter.0)(event);
}

/// Returns the parameters of a disk for a device.
///
/// # Errors
/// [`Error::Unfit`] if the device cannot be a disk of the kernel.
fn parameters(geometry: &Geometry) -> Result<Parameters, Error> {
    let page = rustix::param::page_size() as u64;
    let Geometry { bytes, block, optimal, transfer_max, range_max, access, .. } = *geometry;
    let unfit = |what: String| Err(Error::Unfit(what));
    if !access.allows_read() {
        return unfit("it may only be written".into());
    }
    if bytes == 0 {
        return unfit("it has no blocks".into());
    }
    if !block.is_power_of_two() || u64::from(block) < SECTOR || u64::from(block) > page {
        return unfit(format!(
            "its blocks have {block} bytes; the kernel wants a power of two from 512 to {page}"
        ));
    }
    let transfer_max = transfer_max.min(TRANSFER_MAX) / page * page;
    if transfer_max == 0 {
        return unfit(format!("its commands have fewer bytes than a page ({page})"));
    }
    let range_max = range_max.min(RANGE_MAX) / u64::from(block) * u64::from(block);
    let physical = optimal.clamp(block, page as u32);
    Ok(Parameters {
        is_read_only: !access.allows_write(),
        logical_shift: block.trailing_zeros() as u8,
        physical_shift: physical.ilog2() as u8,
        sectors: bytes / SECTOR,
        transfer_sectors_max: (transfer_max / SECTOR) as u32,
        range_sectors_max: (range_max / SECTOR) as u32,
    })
}

/// Looks for a disk that an export has left. Returns `None` if there is no disk of this number.
///
/// # Errors
/// [`Error::Unfit`] if there is one that was not left, was made by another program, or differs from the device.
fn find_left(control: &mut Control, number: u32, parameters: &Parameters) -> Result<Option<Info>, Error> {
    let Some(info) = control.info(number)? else { return Ok(None) };
    let path = disk_path(number);
    let unfit = |what: String| Err(Error::Unfit(format!("{} is there already: {what}", path.display())));
    if info.mark != MARK {
        return unfit("another program has made it, which must delete it".into());
    }
    let runs = info.process > 0 && Path::new("/proc").join(info.process.to_string()).exists();
    match info.state {
        State::Live if runs => return unfit(format!("process {} serves it", info.process)),
        State::Live | State::Quiesced => {}
        State::Dead | State::FailIo | State::Other(_) => {
            // Nothing waits for it. One that nobody has started yet is somebody's who is about to.
            if runs {
                return unfit(format!("process {} is about to serve it, or has failed to", info.process));
            }
            control.delete(number)?;
            return Ok(None);
        }
    }
    let theirs = control.parameters(number)?;
    if theirs != *parameters {
        return unfit(format!(
            "it was left by another device, of {} bytes with blocks of {}",
            theirs.sectors * SECTOR,
            1u64 << theirs.logical_shift
        ));
    }
    Ok(Some(info))
}

/// Serves a disk that was made or taken over, and starts it.
fn serve(
    control: &mut Control,
    Disk { device, name }: Disk,
    info: &Info,
    parameters: Parameters,
    is_recovered: bool,
    report: impl FnMut(Event) + Send + 'static,
) -> Result<Export, Error> {
    if !is_recovered {
        control.set_parameters(info.disk, parameters)?;
    }
    let file = open_requests(info.disk)?;
    let (stop, counters) = (Signal::new()?, Arc::new(Counters::default()));
    let events = Arc::new(Mutex::new(Reporter(Box::new(report))));
    let sizes = (usize::from(info.depth), info.transfer_max as usize);
    let (their_stop, their_counters, their_events) = (stop.clone(), counters.clone(), events.clone());
    let (encoding, thread_name) = (control.encoding, format!("ublk {name}"));
    let is_over = Arc::new(AtomicBool::new(false));
    let their_end = is_over.clone();
    let (ready, is_ready) = channel();
    let work = move || {
        // The driver wants all commands of the queue from one thread, so that the thread makes the ring.
        let queue = match Queue::new(device, file, sizes, encoding, their_stop, their_counters) {
            Ok(queue) => queue,
            // Nobody listens only if this function was left.
            Err(error) => return drop(ready.send(Err(error))),
        };
        let _ = ready.send(Ok(()));
        match queue.run() {
            End::Stopped if their_end.load(Relaxed) => {}
            End::Left => {}
            End::Stopped => tell(&their_events, Event::Stopped),
            End::Failed(error) => tell(&their_events, Event::Failed(error)),
        }
    };
    let thread = ExportThread::start(&thread_name, &stop, work)?;
    is_ready.recv().unwrap_or(Err(Error::Ended))?;
    control.start(info.disk, is_recovered, START_LIMIT)?;
    if is_recovered {
        tell(&events, Event::TakenOver);
    }
    let path = disk_path(info.disk);
    wait_for_file(&path)?;
    Ok(Export { number: info.disk, path, counters, is_over, thread: Mutex::new(Some(thread)), events })
}

fn disk_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

/// Opens the file of a disk's requests, which comes with the disk, or a moment later.
fn open_requests(number: u32) -> Result<OwnedFd, Error> {
    let path = PathBuf::from(format!("/dev/ublkc{number}"));
    wait_for_file(&path)?;
    let end = Instant::now() + RECOVERY_LIMIT;
    loop {
        match open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
            // A process that was killed has it for another moment.
            Err(Errno::BUSY) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            opened => return opened.map_err(|error| Error::io("open the requests of a disk", error)),
        }
    }
}

fn wait_for_file(path: &Path) -> Result<(), Error> {
    let end = Instant::now() + FILE_LIMIT;
    while !path.exists() {
        if Instant::now() > end {
            let what = format!("the driver has made it, but {} does not appear", path.display());
            return Err(Error::Unfit(what));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_device::{Access, Memory, MemoryOptions};

    const GEOMETRY: Geometry = Geometry {
        bytes: 1 << 20,
        block: 512,
        optimal: 4096,
        transfer_max: 4 << 20,
        range_max: 1 << 40,
        segments_max: 1,
        access: Access::ReadWrite,
    };

    #[test]
    fn the_kernel_is_told_what_the_device_can() {
        let told = parameters(&GEOMETRY).unwrap();
        assert_eq!((told.logical_shift, told.physical_shift, told.sectors), (9, 12, 2048));
        assert_eq!(u64::from(told.transfer_sectors_max) * SECTOR, TRANSFER_MAX);
        assert_eq!(u64::from(told.range_sectors_max) * SECTOR, RANGE_MAX);
        assert!(!told.is_read_only);
        let read_only = Geometry { access: Access::Read, range_max: 1 << 20, ..GEOMETRY };
        let told = parameters(&read_only).unwrap();
        assert!(told.is_read_only && told.range_sectors_max == 2048);
    }

    #[test]
    fn devices_that_are_no_disks_are_refused() {
        for (geometry, reason) in [
            (Geometry { access: Access::Write, ..GEOMETRY }, "only be written"),
            (Geometry { bytes: 0, ..GEOMETRY }, "no blocks"),
            (Geometry { block: 520, ..GEOMETRY }, "power of two"),
            (Geometry { block: 1 << 20, ..GEOMETRY }, "power of two"),
            (Geometry { transfer_max: 512, ..GEOMETRY }, "page"),
        ] {
            let refusal = parameters(&geometry).unwrap_err().to_string();
            assert!(refusal.contains(reason), "{refusal}");
        }
    }

    #[test]
    fn options_are_checked_before_anything_is_made() {
        let disk = || Disk::new("disk", Memory::new(MemoryOptions::new(1 << 20)).unwrap());
        for (options, reason) in [
            (Options::new().depth(0), "1 to 1024"),
            (Options::new().depth(1025), "1 to 1024"),
            (Options::new().number(1 << 20), "below 1048576"),
        ] {
            let refusal = Export::start(disk(), options, |_| {}).unwrap_err().to_string();
            assert!(refusal.contains(reason), "{refusal}");
        }
    }
}
