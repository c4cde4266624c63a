//! Routes on this machine's storage, and the two ends of a copy.
//!
//! Invariant: every run begins with the same state. The source is in the page cache and on the device. A file as the sink
//! does not exist; a device as the sink is in the page cache. The result of a run is removed untimed, just before the next
//! run, which then gets the same pages from the kernel ([`make_room`]). A loop device loses its cached pages with its last
//! user, so it is kept open here.

use super::Outcome;
use crate::child;
use crate::engine::Side;
use crate::error::Error;
use crate::mount;
use crate::place::{Kind, Place, Places, name_of};
use crate::programs::require;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// Route of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Tmpfs,
    Disk,
    /// Within XFS, where files can share blocks.
    Xfs,
    DiskToXfs,
    TmpfsToDisk,
    /// From block device to block device, without a file system.
    Raw,
}

impl Route {
    /// File systems of the source and the sink.
    pub fn kinds(self) -> [Kind; 2] {
        match self {
            Route::Tmpfs => [Kind::Tmpfs; 2],
            Route::Disk | Route::Raw => [Kind::DiskLarge; 2],
            Route::Xfs => [Kind::Xfs; 2],
            Route::DiskToXfs => [Kind::DiskLarge, Kind::Xfs],
            Route::TmpfsToDisk => [Kind::Tmpfs, Kind::DiskLarge],
        }
    }

    /// Name in rows; `folder` is the one on disk.
    pub fn name(self, folder: &Path) -> String {
        let name = |kind| name_of(kind, folder).trim_end_matches(" large folios").to_owned();
        match (self, self.kinds()) {
            (Route::Raw, _) => "raw partitions".into(),
            (_, [from, to]) if from == to => name(from),
            (_, [from, to]) => format!("{} to {}", name(from), name(to)),
        }
    }
}

/// Source and sink of a copy; removed when dropped.
pub struct Ends {
    pub source: PathBuf,
    pub sink: PathBuf,
    bytes: u64,
    /// Source and sink if they are devices, kept open so that their pages stay in the cache.
    devices: Option<[File; 2]>,
    images: Vec<PathBuf>,
}

/// Memory that is used at once, as a multiple of the bytes that a run moves: source, sink, and the kernel's copies of both.
const MEMORY_FACTOR: u64 = 4;
/// Least memory that is touched before larger measurements, in bytes.
const WARM_BYTES_MIN: u64 = 2 << 30;
/// Greatest size for which the run that is not measured touches enough memory, in bytes.
const COLD_BYTES_MAX: u64 = 16 << 20;
const MIB: usize = 1 << 20;
/// Written to a device in every mebibyte before a run that is checked.
const SCRATCH: [u8; 4096] = [0xa5; 4096];
static FILLING: [u8; MIB] = [0x5a; MIB];

impl Ends {
    /// Makes the source of `route` with `bytes` bytes of noise in it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Missing`] if this machine or user has no such file system, device or memory.
    pub fn make(route: Route, places: &Places, bytes: u64) -> Result<Ends, Error> {
        let need = bytes * MEMORY_FACTOR;
        if memory_available() < need {
            return Err(Error::Unavailable(format!("it needs {} MiB of free memory", need >> 20)));
        }
        let [from, to] = route.kinds();
        let (from, to) = (find(places, from)?, find(places, to)?);
        let ends = match route {
            Route::Raw => Ends::make_raw(from, bytes)?,
            _ => {
                let (source, sink) = (from.root.join("flow-source"), to.root.join("flow-sink"));
                let ends = Ends { source, sink, bytes, devices: None, images: Vec::new() };
                from.write_file(&ends.source, bytes, bytes)?;
                ends
            }
        };
        warm(bytes);
        Ok(ends)
    }

    fn make_raw(place: &Place, bytes: u64) -> Result<Ends, Error> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Unavailable("loop devices need root: run as root for this place".into()));
        }
        require("losetup", "util-linux")?;
        let images = ["flow-source.image", "flow-sink.image"].map(|name| place.root.join(name)).to_vec();
        let mut ends = Ends { source: PathBuf::new(), sink: PathBuf::new(), bytes, devices: None, images };
        for image in &ends.images {
            place.write_file(image, bytes, bytes)?;
        }
        let (source, from) = device(&ends.images[0])?;
        let (sink, to) = device(&ends.images[1])?;
        settle(&from).map_err(|error| Error::io("read", &source, error))?;
        (ends.source, ends.sink, ends.devices) = (source, sink, Some([from, to]));
        Ok(ends)
    }

    /// Makes an empty file beside the source, and a sink for it; none beside devices, whose size is fixed.
    ///
    /// # Errors
    /// [`Error::Io`] with the path.
    pub fn empty(&self) -> Result<Option<Ends>, Error> {
        if self.is_raw() {
            return Ok(None);
        }
        let [source, sink] = [&self.source, &self.sink].map(|path| path.with_extension("empty"));
        File::create(&source).map_err(|error| Error::io("create", &source, error))?;
        Ok(Some(Ends { source, sink, bytes: 0, devices: None, images: Vec::new() }))
    }

    /// Returns whether source and sink are devices.
    pub fn is_raw(&self) -> bool {
        self.devices.is_some()
    }

    /// Source and sink as endpoints of `bywash flow`.
    pub fn words(&self) -> [String; 2] {
        let head = if self.is_raw() { "raw" } else { "file" };
        [&self.source, &self.sink].map(|path| format!("{head}:{}", path.display()))
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
    ///
    /// # Errors
    /// [`Error::Io`] with the path of the sink.
    pub fn clear(&self) -> Result<(), Error> {
        match &self.devices {
            Some([_, sink]) => settle(sink).map_err(|error| Error::io("settle", &self.sink, error)),
            None => make_room(&self.sink, self.bytes),
        }
    }

    /// Restores the state, and makes a device differ from the source in every mebibyte.
    fn scratch(&self) -> Result<(), Error> {
        let Some([_, sink]) = &self.devices else { return self.clear() };
        let scratched = || {
            let mut end = sink;
            let bytes = end.seek(SeekFrom::End(0))?;
            let last = bytes.saturating_sub(SCRATCH.len() as u64);
            let mut offsets = (0..bytes).step_by(MIB).chain([last]);
            offsets.try_for_each(|offset| sink.write_all_at(&SCRATCH, offset))
        };
        scratched().map_err(|error| Error::io("write", &self.sink, error))
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // Loop devices disappear with their last user.
        let files = [&self.source, &self.sink];
        let files = files.into_iter().filter(|_| self.devices.is_none() && self.images.is_empty());
        for path in files.chain(&self.images) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Makes a loop device over `image` that disappears with its last user.
fn device(image: &Path) -> Result<(PathBuf, File), Error> {
    let path = PathBuf::from(mount::attach(image)?);
    let file = File::options().read(true).write(true).open(&path);
    let detached = child::run(Command::new("losetup").arg("--detach").arg(&path));
    let file =
        file.map_err(|error| Error::Unavailable(format!("cannot open {}: {error}", path.display())))?;
    detached?;
    Ok((path, file))
}

/// Writes dirty pages of `device` back and brings all of it into the page cache.
fn settle(mut device: &File) -> std::io::Result<()> {
    device.sync_data()?;
    device.rewind()?;
    let mut buffer = vec![0; MIB];
    while device.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Touches several times the memory that copies of `bytes` take, and frees it. Memory that the host of a virtual machine
/// has reclaimed costs ten times as much to get as the machine's own, and the first side would pay for it.
fn warm(bytes: u64) {
    if bytes <= COLD_BYTES_MAX {
        return;
    }
    let wanted = (bytes * MEMORY_FACTOR).max(WARM_BYTES_MIN).min(memory_available() / 2);
    drop(std::hint::black_box(vec![1u8; wanted as usize]));
}

/// Removes `sink` so that the next run finds as many recently used free pages as `bytes` need.
///
/// A mover that goes past the page cache leaves none, and a virtual machine returns free pages to its host, from where
/// they cost ten times as much. So the sink is written once more before it is removed, whatever mover has written it.
fn make_room(sink: &Path, bytes: u64) -> Result<(), Error> {
    let file = File::options().create(true).truncate(false).write(true).open(sink);
    let written = file.and_then(|file| {
        (0..bytes).step_by(MIB).try_for_each(|offset| {
            let length = (bytes - offset).min(MIB as u64) as usize;
            file.write_all_at(&FILLING[..length], offset)
        })
    });
    written.and_then(|()| fs::remove_file(sink)).map_err(|error| Error::io("make room with", sink, error))
}

/// Compares every byte of two files or devices.
///
/// # Errors
/// [`Error::Failed`] with the offset if they differ.
pub fn equal(one: &Path, other: &Path) -> Result<(), Error> {
    let open = |path: &Path| File::open(path).map_err(|error| Error::io("open", path, error));
    let (mut first, mut second) = (open(one)?, open(other)?);
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let mut offset = 0;
    loop {
        for (file, path, buffer) in [(&mut first, one, &mut here), (&mut second, other, &mut there)] {
            buffer.clear();
            file.take(MIB as u64).read_to_end(buffer).map_err(|error| Error::io("read", path, error))?;
        }
        if here != there {
            let how = format!("differs from its source behind byte {offset}");
            return Err(Error::failed("the copy", how));
        }
        if here.is_empty() {
            return Ok(());
        }
        offset += here.len();
    }
}

/// Finds the place of a kind.
///
/// # Errors
/// [`Error::Unavailable`] with the reason why there is none.
pub fn find(places: &Places, kind: Kind) -> Result<&Place, Error> {
    places.find(kind)
}

fn memory_available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(u64::MAX, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_a_name_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let all = [Route::Tmpfs, Route::Disk, Route::Xfs, Route::DiskToXfs, Route::TmpfsToDisk, Route::Raw];
        let names: Vec<String> = all.iter().map(|route| route.name(folder.path())).collect();
        assert!(names[3].ends_with("to xfs") && !names[1].contains("folios"), "{names:?}");
        for (number, name) in names.iter().enumerate() {
            assert!(!names[..number].contains(name) || name == "tmpfs", "{names:?}");
        }
    }

    #[test]
    fn a_copy_that_lacks_something_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let mut content = vec![7; 2 * MIB + 5];
        fs::write(&one, &content).unwrap();
        fs::write(&other, &content).unwrap();
        equal(&one, &other).unwrap();
        fs::write(&other, &content[1..]).unwrap();
        assert!(equal(&one, &other).is_err());
        content[2 * MIB + 4] = 8;
        fs::write(&other, &content).unwrap();
        assert!(equal(&one, &other).unwrap_err().to_string().contains("behind byte 2097152"));
    }

    #[test]
    fn no_sink_exists_when_a_run_begins() {
        let folder = tempfile::tempdir().unwrap();
        let sink = folder.path().join("sink");
        make_room(&sink, 3 * MIB as u64 + 1).unwrap();
        fs::write(&sink, "left").unwrap();
        make_room(&sink, 1).unwrap();
        assert!(!sink.exists());
    }

    /// Needs root; without it, the error has to be an absence.
    #[test]
    fn ends_are_made_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::make(folder.path(), &[Kind::Tmpfs, Kind::DiskLarge], "").unwrap();
        for route in [Route::Tmpfs, Route::Raw] {
            match Ends::make(route, &places, 1 << 20) {
                Ok(ends) => {
                    assert_eq!(ends.is_raw(), route == Route::Raw);
                    ends.scratch().unwrap();
                    assert!(equal(&ends.source, &ends.sink).is_err());
                    let mut from = File::open(&ends.source).unwrap();
                    let mut to = File::options().create(!ends.is_raw()).write(true).open(&ends.sink).unwrap();
                    std::io::copy(&mut from, &mut to).unwrap();
                    equal(&ends.source, &ends.sink).unwrap();
                    let source = ends.source.clone();
                    drop((from, to, ends));
                    assert!(route == Route::Raw || !source.exists());
                }
                Err(error) => assert!(error.is_absence(), "{error}"),
            }
        }
    }
}
