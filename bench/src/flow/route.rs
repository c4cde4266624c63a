//! Routes on this machine's storage, and the two ends of a copy.
//!
//! Invariant: every run begins with the same state. The source is in the page cache and on the device. A file as the sink
//! does not exist; a device as the sink is in the page cache. The result of a run is removed untimed, just before the next
//! run, which then gets the same pages from the kernel ([`make_room`]). A loop device loses its cached pages with its last
//! user, so it is kept open here.

use super::transfer::{Net, Protocol, Transfer, Values};
use super::{MIB, Outcome};
use crate::child;
use crate::engine::Side;
use crate::error::{Attempt, Error};
use crate::mount;
use crate::place::{Kind, Place, Places, name_of};
use crate::programs::require;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// Route of a copy: the file systems of the source and the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub kinds: [Kind; 2],
    /// From block device to block device, without a file system.
    pub is_raw: bool,
}

impl Route {
    pub const TMPFS: Route = Route { kinds: [Kind::Tmpfs; 2], is_raw: false };
    pub const DISK: Route = Route { kinds: [Kind::DiskLarge; 2], is_raw: false };
    /// Within XFS, where files can share blocks.
    pub const XFS: Route = Route { kinds: [Kind::Xfs; 2], is_raw: false };
    pub const DISK_TO_XFS: Route = Route { kinds: [Kind::DiskLarge, Kind::Xfs], is_raw: false };
    pub const TMPFS_TO_DISK: Route = Route { kinds: [Kind::Tmpfs, Kind::DiskLarge], is_raw: false };
    pub const RAW: Route = Route { is_raw: true, ..Route::DISK };

    /// Name in rows; `folder` is the one on disk.
    pub fn name(self, folder: &Path) -> String {
        let [from, to] = self.kinds.map(|kind| name_of(kind, folder).replace(" large folios", ""));
        match self.is_raw {
            true => "raw partitions".into(),
            false if from == to => from,
            false => format!("{from} to {to}"),
        }
    }
}

/// Source and sink of a copy; removed when dropped.
pub struct Ends {
    pub source: PathBuf,
    pub sink: PathBuf,
    pub bytes: u64,
    /// Source and sink if they are devices, kept open so that their pages stay in the cache.
    devices: Option<[File; 2]>,
    /// Ends of an empty file, for which the same program runs just before each copy, whose time is reduced by that.
    empty: Option<Box<Ends>>,
}

/// Memory that is used at once, as a multiple of the bytes that a run moves: source, sink, and the kernel's copies of both.
const MEMORY_FACTOR: u64 = 4;
/// Least memory that is touched before larger measurements, in bytes.
const WARM_BYTES_MIN: u64 = 2 << 30;
/// Greatest size for which the run that is not measured touches enough memory, in bytes.
const COLD_BYTES_MAX: u64 = 16 << 20;
const PAGE: u64 = 4096;
static FILLING: [u8; MIB as usize] = [0x5a; MIB as usize];

impl Ends {
    /// Makes the source of `route` with `bytes` bytes of noise in it.
    pub fn make(route: Route, places: &Places, bytes: u64) -> Result<Ends, Error> {
        let need = bytes * MEMORY_FACTOR;
        if memory_available() < need {
            return Err(Error::Unavailable(format!("it needs {} MiB of free memory", need >> 20)));
        }
        let [from, to] = route.kinds;
        let (from, to) = (places.find(from)?, places.find(to)?);
        let ends = if route.is_raw {
            if !rustix::process::geteuid().is_root() {
                return Err(Error::Unavailable("loop devices need root: run as root for this place".into()));
            }
            require("losetup", "util-linux")?;
            let (source, from) = device(from, bytes)?;
            let (sink, to) = device(to, bytes)?;
            settle(&from).doing("read", &source)?;
            Ends { source, sink, bytes, devices: Some([from, to]), empty: None }
        } else {
            let (source, sink) = (from.root.join("flow-source"), to.root.join("flow-sink"));
            let ends = Ends { source, sink, bytes, devices: None, empty: None };
            from.write_file(&ends.source, bytes, bytes)?;
            ends
        };
        warm(bytes);
        Ok(ends)
    }

    /// From now on copies are measured without the start of the program; between files only.
    pub fn without_start(&mut self) -> Result<(), Error> {
        let [source, sink] = [&self.source, &self.sink].map(|path| path.with_extension("empty"));
        File::create(&source).doing("create", &source)?;
        self.empty = Some(Box::new(Ends { source, sink, bytes: 0, devices: None, empty: None }));
        Ok(())
    }

    /// Source and sink as endpoints of `bywash flow`.
    pub fn words(&self) -> [String; 2] {
        let head = if self.devices.is_some() { "raw" } else { "file" };
        [&self.source, &self.sink].map(|path| format!("{head}:{}", path.display()))
    }

    /// Values of lines: `{from}` and `{to}` are paths, `{source}` and `{sink}` endpoints.
    pub fn values(&self) -> Values {
        let [from, to] = [&self.source, &self.sink].map(|path| path.display().to_string());
        let [source, sink] = self.words();
        vec![("{from}", from), ("{to}", to), ("{source}", source), ("{sink}", sink)]
    }

    /// Moves the source to the sink by the programs of these lines, as in [`Transfer`]. With a program in the middle, the
    /// CPU time is that of this program, and the time ends with the receiver.
    pub fn run(&self, net: &Net, lines: [&str; 3], is_told: bool) -> Result<Outcome, Error> {
        let values = self.values();
        let done = net.run(&Transfer { protocol: Protocol::Tcp, lines, is_told, values })?;
        let seconds = if lines[1].is_empty() { done.seconds_of_both } else { done.seconds };
        Ok(Outcome { bytes: self.bytes as f64, seconds, cpu_seconds: done.cpu_seconds?, lost: 0.0 })
    }

    /// Moves the source to the sink by the program of one line.
    pub fn copy(&self, line: &str) -> Result<Outcome, Error> {
        let run = |ends: &Ends| ends.run(&Net(None), [line, "", ""], false);
        let Some(empty) = &self.empty else { return run(self) };
        empty.clear()?;
        let start = run(empty)?;
        Ok(run(self)?.less(start))
    }

    /// The side of the program of one line.
    pub fn copying(&self, name: &str, line: impl Into<String>) -> Side<'_, Outcome> {
        let line = line.into();
        self.side(name, move || self.copy(&line))
    }

    /// Makes a side of which each run begins with the same state; the first run is checked and not measured.
    pub fn side<'a>(
        &'a self,
        name: impl Into<String>,
        run: impl Fn() -> Result<Outcome, Error> + 'a,
    ) -> Side<'a, Outcome> {
        let run = Rc::new(run);
        let first = Rc::clone(&run);
        let measured = move || self.clear().and_then(|()| run());
        Side::new(name, measured).warm_up(move || {
            self.scratch()?;
            first()?;
            equal(&self.source, &self.sink)
        })
    }

    /// Restores the state that every run begins with.
    pub fn clear(&self) -> Result<(), Error> {
        match &self.devices {
            Some([_, sink]) => settle(sink).doing("settle", &self.sink),
            None => make_room(&self.sink, self.bytes).doing("make room with", &self.sink),
        }
    }

    /// Restores the state, and makes a device differ from the source in every mebibyte.
    fn scratch(&self) -> Result<(), Error> {
        let Some([_, sink]) = &self.devices else { return self.clear() };
        let mut offsets = (0..self.bytes).step_by(MIB as usize).chain([self.bytes - PAGE]);
        let scratched = offsets.try_for_each(|offset| sink.write_all_at(&FILLING[..PAGE as usize], offset));
        scratched.doing("write", &self.sink)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // Loop devices disappear with their last user.
        if self.devices.is_none() {
            let _ = (fs::remove_file(&self.source), fs::remove_file(&self.sink));
        }
    }
}

/// Makes a loop device of `bytes` that disappears with its last user, as does the image under it.
fn device(place: &Place, bytes: u64) -> Result<(PathBuf, File), Error> {
    let image = place.root.join("flow.image");
    let made = place.write_file(&image, bytes, bytes).and_then(|()| mount::attach(&image).map(PathBuf::from));
    // The device holds the image.
    let _ = fs::remove_file(&image);
    let path = made?;
    let file = File::options().read(true).write(true).open(&path);
    let detached = child::run(Command::new("losetup").arg("--detach").arg(&path));
    let file = file.doing("open", &path).map_err(Error::into_absence)?;
    detached?;
    Ok((path, file))
}

/// Writes dirty pages of `device` back and brings all of it into the page cache, in folios as large as its readers and
/// writers of mebibytes make them.
fn settle(mut device: &File) -> io::Result<()> {
    device.sync_data()?;
    device.rewind()?;
    let mut buffer = vec![0; MIB as usize];
    while device.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Touches several times the memory that copies of `bytes` take, and frees it. Memory that the host of a virtual machine
/// has reclaimed costs ten times as much to get as the machine's own, and the first side would pay for it.
fn warm(bytes: u64) {
    if bytes > COLD_BYTES_MAX {
        let wanted = (bytes * MEMORY_FACTOR).max(WARM_BYTES_MIN).min(memory_available() / 2);
        drop(std::hint::black_box(vec![1u8; wanted as usize]));
    }
}

/// Removes `sink` so that the next run finds as many recently used free pages as `bytes` need.
///
/// A mover that goes past the page cache leaves none, and a virtual machine returns free pages to its host, from where
/// they cost ten times as much. So the sink is written once more before it is removed, whatever mover has written it.
fn make_room(sink: &Path, bytes: u64) -> io::Result<()> {
    let file = File::options().create(true).truncate(false).write(true).open(sink)?;
    for offset in (0..bytes).step_by(MIB as usize) {
        file.write_all_at(&FILLING[..(bytes - offset).min(MIB) as usize], offset)?;
    }
    fs::remove_file(sink)
}

/// Compares every byte of two files or devices.
pub fn equal(one: &Path, other: &Path) -> Result<(), Error> {
    let mut compare = Command::new(require("cmp", "diffutils")?);
    child::run(compare.args([one, other])).map(drop).map_err(|error| match error {
        Error::Failed { .. } => Error::failed("the copy", format!("differs from its source: {error}")),
        error => error,
    })
}

fn memory_available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs root for devices; without it, the error has to be an absence.
    #[test]
    fn ends_differ_until_every_byte_is_copied_and_no_sink_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::make(folder.path(), &[Kind::Tmpfs, Kind::DiskLarge], "").unwrap();
        for route in [Route::TMPFS, Route::RAW] {
            match Ends::make(route, &places, 2 * MIB) {
                Ok(ends) => {
                    ends.scratch().unwrap();
                    assert!(equal(&ends.source, &ends.sink).is_err());
                    ends.copy("cp {from} {to}").unwrap();
                    equal(&ends.source, &ends.sink).unwrap();
                    let sink = File::options().read(true).write(true).open(&ends.sink).unwrap();
                    let mut last = [0];
                    sink.read_exact_at(&mut last, 2 * MIB - 1).unwrap();
                    sink.write_all_at(&[!last[0]], 2 * MIB - 1).unwrap();
                    let message = equal(&ends.source, &ends.sink).unwrap_err().to_string();
                    assert!(message.contains("differs from its source"), "{message}");
                    if !route.is_raw {
                        sink.write_all_at(&last, 2 * MIB - 1).unwrap();
                        sink.write_all_at(&last, 2 * MIB).unwrap();
                        assert!(equal(&ends.source, &ends.sink).is_err(), "one is longer");
                    }
                    ends.clear().unwrap();
                    assert_eq!(ends.sink.exists(), route.is_raw);
                    let source = ends.source.clone();
                    drop(ends);
                    assert!(route.is_raw || !source.exists());
                }
                Err(error) => assert!(error.is_absence(), "{error}"),
            }
        }
    }
}
