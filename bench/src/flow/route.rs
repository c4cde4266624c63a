//! From where to where on this machine's storage, and the two ends of it.
//!
//! Invariant: every run finds the same. The source is in the page cache and on the device; a file as the sink is not
//! there, a device as the sink is there and in the page cache. What a side left is taken away outside of the time that
//! is measured, just before the next one, and the kernel hands that one the same pages ([`make_room`]). (A loop device forgets its pages with its last
//! user, so it is kept open here.)

use super::rounds::State;
use crate::child;
use crate::error::Error;
use crate::mount;
use crate::place::{Kind, Offer, Place, Places, name_of};
use crate::programs::installed;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Within memory's file system.
    Tmpfs,
    /// Within the disk's file system.
    Disk,
    /// Within XFS, where files can share blocks.
    Xfs,
    /// From the disk's file system to XFS.
    DiskToXfs,
    /// From memory's file system to the disk's.
    TmpfsToDisk,
    /// From a block device to a block device, without a file system.
    Raw,
}

impl Route {
    /// What it needs.
    pub fn places(self) -> [Kind; 2] {
        match self {
            Route::Tmpfs => [Kind::Tmpfs; 2],
            Route::Disk | Route::Raw => [Kind::DiskLarge; 2],
            Route::Xfs => [Kind::Xfs; 2],
            Route::DiskToXfs => [Kind::DiskLarge, Kind::Xfs],
            Route::TmpfsToDisk => [Kind::Tmpfs, Kind::DiskLarge],
        }
    }

    /// Its name in rows, with the disk's places in `folder`.
    pub fn name(self, folder: &Path) -> String {
        let name = |kind| name_of(kind, folder).trim_end_matches(" large folios").to_owned();
        match (self, self.places()) {
            (Route::Raw, _) => "raw partitions".into(),
            (_, [from, to]) if from == to => name(from),
            (_, [from, to]) => format!("{} to {}", name(from), name(to)),
        }
    }
}

/// The two ends of a route; removed when dropped.
pub struct Ends {
    /// Where from.
    pub source: PathBuf,
    /// Where to.
    pub sink: PathBuf,
    bytes: u64,
    /// Held open, so that their pages stay: source and sink, if they are devices.
    devices: Option<[File; 2]>,
    images: Vec<PathBuf>,
}

/// Bytes in memory at once, as a multiple of what a run moves: source, sink, and what the kernel keeps of both.
const MEMORY_FACTOR: u64 = 4;
/// The least that is touched before a measurement of more than a few blocks.
const WARM_BYTES_MIN: u64 = 2 << 30;
/// Of less, what is touched by the run that is not measured is enough.
const COLD_BYTES_MAX: u64 = 16 << 20;
const MIB: usize = 1 << 20;
/// Written over a device before a run that is checked, in every mebibyte.
const SCRATCH: [u8; 4096] = [0xa5; 4096];
static FILLING: [u8; MIB] = [0x5a; MIB];

impl Ends {
    /// Makes the source of `route` with `bytes` bytes of noise in it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the reason when this machine or user has no such place; the kernel's.
    pub fn make(route: Route, places: &Places, bytes: u64) -> Result<Ends, Error> {
        let need = bytes * MEMORY_FACTOR;
        if memory_available() < need {
            return Err(Error::Unavailable(format!("it needs {} MiB of free memory", need >> 20)));
        }
        let [from, to] = route.places();
        let (from, to) = (had(places, from)?, had(places, to)?);
        if route == Route::Raw {
            return Ends::make_raw(from, bytes);
        }
        let (source, sink) = (from.root.join("flow-source"), to.root.join("flow-sink"));
        let ends = Ends { source, sink, bytes, devices: None, images: Vec::new() };
        from.write_file(&ends.source, bytes, bytes)?;
        warm(bytes);
        Ok(ends)
    }

    /// An empty file beside the source, and a sink for it; none beside devices, which have the size that they have.
    ///
    /// # Errors
    /// The kernel's.
    pub fn empty(&self) -> Result<Option<Ends>, Error> {
        if self.is_raw() {
            return Ok(None);
        }
        let [source, sink] = [&self.source, &self.sink].map(|path| path.with_extension("empty"));
        File::create(&source).map_err(|error| Error::io("create", &source, error))?;
        Ok(Some(Ends { source, sink, bytes: 0, devices: None, images: Vec::new() }))
    }

    fn make_raw(place: &Place, bytes: u64) -> Result<Ends, Error> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Unavailable("loop devices need root: run as root for this place".into()));
        }
        if !installed("losetup") {
            return Err(Error::Missing { what: "losetup".into(), package: "util-linux" });
        }
        let images = ["flow-source.image", "flow-sink.image"].map(|name| place.root.join(name)).to_vec();
        let mut ends = Ends { source: PathBuf::new(), sink: PathBuf::new(), bytes, devices: None, images };
        for image in &ends.images {
            place.write_file(image, bytes, bytes)?;
        }
        let (source, from) = device(&ends.images[0])?;
        let (sink, to) = device(&ends.images[1])?;
        settle(&from).map_err(|error| Error::io("read", &source, error))?;
        (ends.source, ends.sink, ends.devices) = (source, sink, Some([from, to]));
        warm(bytes);
        Ok(ends)
    }

    /// Whether they are devices.
    pub fn is_raw(&self) -> bool {
        self.devices.is_some()
    }

    /// The two as `bywash flow` wants them.
    pub fn words(&self) -> [String; 2] {
        let head = if self.is_raw() { "raw" } else { "file" };
        [&self.source, &self.sink].map(|path| format!("{head}:{}", path.display()))
    }
}

impl State for Ends {
    fn clear(&self) -> Result<(), Error> {
        match &self.devices {
            Some([_, sink]) => settle(sink).map_err(|error| Error::io("settle", &self.sink, error)),
            None => make_room(&self.sink, self.bytes),
        }
    }

    /// A device differs from the source in every mebibyte.
    fn scratch(&self) -> Result<(), Error> {
        let Some([_, sink]) = &self.devices else { return self.clear() };
        let scratched = || {
            let mut end = sink;
            let bytes = end.seek(SeekFrom::End(0))?;
            let last = bytes.saturating_sub(SCRATCH.len() as u64);
            let mut here = (0..bytes).step_by(MIB).chain([last]);
            here.try_for_each(|at| sink.write_all_at(&SCRATCH, at))
        };
        scratched().map_err(|error| Error::io("write", &self.sink, error))
    }

    fn check(&self) -> Result<(), Error> {
        equal(&self.source, &self.sink)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // The devices go with their last user.
        let files = [&self.source, &self.sink];
        let files = files.into_iter().filter(|_| self.devices.is_none() && self.images.is_empty());
        for path in files.chain(&self.images) {
            let _ = fs::remove_file(path);
        }
    }
}

/// A loop device over `image`, which goes as soon as nobody has it open.
fn device(image: &Path) -> Result<(PathBuf, File), Error> {
    let path = PathBuf::from(mount::attach(image)?);
    let file = File::options().read(true).write(true).open(&path);
    let detached = child::run(Command::new("losetup").arg("--detach").arg(&path));
    let file =
        file.map_err(|error| Error::Unavailable(format!("cannot open {}: {error}", path.display())))?;
    detached?;
    Ok((path, file))
}

/// Brings all of `device` into the page cache, as it is on the device: nobody has to write what another one left to be
/// written, nor to find pages for what another one threw out.
fn settle(mut device: &File) -> std::io::Result<()> {
    device.sync_data()?;
    device.rewind()?;
    let mut buffer = vec![0; MIB];
    while device.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Touches several times the memory that copies of `bytes` take, and gives it back: what the host of a virtual machine has
/// taken from it costs ten times as much to get as what is its own, and would fall on whoever comes first.
pub fn warm(bytes: u64) {
    if bytes <= COLD_BYTES_MAX {
        return;
    }
    let wanted = (bytes * MEMORY_FACTOR).max(WARM_BYTES_MIN).min(memory_available() / 2);
    drop(std::hint::black_box(vec![1u8; wanted as usize]));
}

/// Takes `sink` away, so that the next one finds as many free pages as `bytes` need that have just been used.
///
/// A mover that goes past the page cache leaves none; and a virtual machine hands free pages back to its host, from where
/// they cost ten times as much. So before the sink goes it is written once more, whoever has written it.
///
/// # Errors
/// The kernel's.
pub fn make_room(sink: &Path, bytes: u64) -> Result<(), Error> {
    let file = File::options().create(true).truncate(false).write(true).open(sink);
    let written = file.and_then(|file| {
        (0..bytes).step_by(MIB).try_for_each(|at| {
            let length = (bytes - at).min(MIB as u64) as usize;
            file.write_all_at(&FILLING[..length], at)
        })
    });
    written.and_then(|()| fs::remove_file(sink)).map_err(|error| Error::io("make room with", sink, error))
}

/// Compares every byte of two files or devices.
///
/// # Errors
/// That they differ; the kernel's.
pub fn equal(one: &Path, other: &Path) -> Result<(), Error> {
    let open = |path: &Path| File::open(path).map_err(|error| Error::io("open", path, error));
    let (mut first, mut second) = (open(one)?, open(other)?);
    let (mut here, mut there) = (vec![0; MIB], vec![0; MIB]);
    let mut at = 0u64;
    loop {
        let length = fill(&mut first, &mut here).map_err(|error| Error::io("read", one, error))?;
        let other_length = fill(&mut second, &mut there).map_err(|error| Error::io("read", other, error))?;
        if here[..length] != there[..other_length] {
            return Err(Error::failed("the copy", format!("differs from its source behind byte {at}")));
        }
        if length == 0 {
            return Ok(());
        }
        at += length as u64;
    }
}

/// Reads until `buffer` is full or there is no more.
fn fill(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..])? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}

/// The place of that kind.
///
/// # Errors
/// [`Error::Unavailable`] with the reason why there is none.
pub fn had(places: &Places, kind: Kind) -> Result<&Place, Error> {
    match places.offers.iter().find(|offer| offer.kind() == kind) {
        Some(Offer::Here(place)) => Ok(place),
        Some(Offer::Absent { why, .. }) => Err(Error::Unavailable(why.clone())),
        None => Err(Error::Unavailable("nobody has asked for this place".into())),
    }
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
    fn nothing_is_there_when_a_run_begins() {
        let folder = tempfile::tempdir().unwrap();
        let sink = folder.path().join("sink");
        make_room(&sink, 3 * MIB as u64 + 1).unwrap();
        fs::write(&sink, "left").unwrap();
        make_room(&sink, 1).unwrap();
        assert!(!sink.exists());
    }

    /// Needs root; without it, the refusal has to say so.
    #[test]
    fn ends_are_made_and_gone_again() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::make(folder.path(), &[Kind::Tmpfs, Kind::DiskLarge], "").unwrap();
        for route in [Route::Tmpfs, Route::Raw] {
            match Ends::make(route, &places, 1 << 20) {
                Ok(ends) => {
                    assert_eq!(ends.is_raw(), route == Route::Raw);
                    ends.scratch().unwrap();
                    assert!(ends.check().is_err());
                    let mut from = File::open(&ends.source).unwrap();
                    let mut to = File::options().create(!ends.is_raw()).write(true).open(&ends.sink).unwrap();
                    std::io::copy(&mut from, &mut to).unwrap();
                    ends.check().unwrap();
                    let source = ends.source.clone();
                    drop((from, to, ends));
                    assert!(route == Route::Raw || !source.exists());
                }
                Err(error) => assert!(error.is_absence(), "{error}"),
            }
        }
    }
}
