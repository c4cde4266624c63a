//! Usage of a run: bytes on the device, page faults, CPU time.
//!
//! Device bytes come from the counters of the block device under the place, so they count everybody's
//! traffic on that device; the caller syncs before it takes a snapshot, so that writes still in the cache are
//! counted for the run that made them. Faults and CPU time are those of the children waited for.

use crate::error::{Attempt, Error};
use crate::statistics::Summary;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::ClockId;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The counters of a block device: fields 3 and 7 of the kernel's Documentation/block/stat.rst, in sectors of 512 bytes.
#[derive(Clone, Debug)]
pub struct BlockDevice(PathBuf);

impl BlockDevice {
    /// The device of `directory`'s file system; `None` where it has no block device of its own (tmpfs).
    pub fn under(directory: &Path) -> Result<Option<BlockDevice>, Error> {
        let device = rustix::fs::stat(directory).doing("look at", directory)?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let counters = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        Ok(counters.exists().then_some(BlockDevice(counters)))
    }

    fn bytes(&self) -> Result<[u64; 2], Error> {
        let text = fs::read_to_string(&self.0).doing("read", &self.0)?;
        let sectors = |field| text.split_whitespace().nth(field)?.parse::<u64>().ok();
        let both = sectors(2).zip(sectors(6)).map(|(read, written)| [read * 512, written * 512]);
        both.ok_or_else(|| std::io::Error::other(text.clone())).doing("make sense of", &self.0)
    }
}

/// Usage of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Usage {
    /// Bytes that the device read; null where the place has no device.
    pub device_read_bytes: Option<u64>,
    /// Bytes that the device wrote, a sync after the run included.
    pub device_written_bytes: Option<u64>,
    /// Page faults served without reading from a device.
    pub faults_minor: u64,
    /// Page faults that waited for a device.
    pub faults_major: u64,
    /// CPU time, user and system.
    pub cpu_seconds: f64,
}

impl Usage {
    /// Returns the usage of all children that were waited for, and of `device` since it appeared.
    pub fn now(device: Option<&BlockDevice>) -> Result<Usage, Error> {
        let bytes = device.map(BlockDevice::bytes).transpose()?;
        let children = getrusage(UsageWho::RUSAGE_CHILDREN)
            .map_err(|errno| Error::failed("getrusage", std::io::Error::from(errno).to_string()))?;
        Ok(Usage {
            device_read_bytes: bytes.map(|bytes| bytes[0]),
            device_written_bytes: bytes.map(|bytes| bytes[1]),
            faults_minor: children.minor_page_faults() as u64,
            faults_major: children.major_page_faults() as u64,
            cpu_seconds: (children.user_time() + children.system_time()).num_microseconds() as f64 / 1e6,
        })
    }

    pub fn since(&self, earlier: &Usage) -> Usage {
        let change = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Usage {
            device_read_bytes: change(self.device_read_bytes, earlier.device_read_bytes),
            device_written_bytes: change(self.device_written_bytes, earlier.device_written_bytes),
            faults_minor: self.faults_minor - earlier.faults_minor,
            faults_major: self.faults_major - earlier.faults_major,
            cpu_seconds: self.cpu_seconds - earlier.cpu_seconds,
        }
    }

    pub fn median(runs: &[Usage]) -> Usage {
        let middle = |figure: fn(&Usage) -> Option<f64>| {
            Summary::of(&runs.iter().map(figure).collect::<Option<Vec<f64>>>()?).map(|summary| summary.median)
        };
        let whole = |figure| middle(figure).map(|value| value.round() as u64);
        Usage {
            device_read_bytes: whole(|usage| usage.device_read_bytes.map(|bytes| bytes as f64)),
            device_written_bytes: whole(|usage| usage.device_written_bytes.map(|bytes| bytes as f64)),
            faults_minor: whole(|usage| Some(usage.faults_minor as f64)).unwrap_or(0),
            faults_major: whole(|usage| Some(usage.faults_major as f64)).unwrap_or(0),
            cpu_seconds: middle(|usage| Some(usage.cpu_seconds)).unwrap_or(0.0),
        }
    }
}

/// Fields of proc_pid_stat(5) of a process: its parent (field 4), and CPU time in ticks, its own (14 and 15) and that of
/// children that it has waited for (16 and 17).
pub(crate) struct Stat {
    pub parent: u32,
    pub own: u64,
    pub waited: u64,
}

impl Stat {
    pub fn of(process: u32) -> Result<Stat, Error> {
        let path = PathBuf::from(format!("/proc/{process}/stat"));
        let text = fs::read_to_string(&path).doing("read", &path)?;
        Stat::parse(&text).ok_or_else(|| std::io::Error::other("it lacks fields")).doing("parse", &path)
    }

    /// All processes that can be read; one that has ended meanwhile is left out.
    pub fn of_all() -> Result<HashMap<u32, Stat>, Error> {
        let proc = Path::new("/proc");
        let entries = fs::read_dir(proc).doing("list", proc)?.flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(ids.filter_map(|id| Some((id, Stat::of(id).ok()?))).collect())
    }

    fn parse(text: &str) -> Option<Stat> {
        let fields = stat_fields(text)?;
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let [own, waited] = [14, 16].map(|field| Some(number(field)? + number(field + 1)?));
        Some(Stat { parent: number(4)? as u32, own: own?, waited: waited? })
    }
}

/// Seconds of so many ticks of the CPU time that proc_pid_stat(5) has.
pub(crate) fn ticks_to_seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// CPU time until now of a process and all its descendants, in seconds; that of those who have ended, in ticks.
pub(crate) fn family_seconds(process: u32) -> Result<f64, Error> {
    let (mut seconds, mut found, all) = (0.0, vec![process], Stat::of_all()?);
    while let Some(id) = found.pop() {
        // One that has ended meanwhile has no clock.
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(id as i32)).and_then(ClockId::now);
        let waited = all.get(&id).map_or(0, |stat| stat.waited);
        seconds += clock.map_or(0.0, |time| time.num_nanoseconds() as f64 / 1e9) + ticks_to_seconds(waited);
        found.extend(all.iter().filter(|(_, stat)| stat.parent == id).map(|(id, _)| *id));
    }
    Ok(seconds)
}

/// The fields of proc_pid_stat(5) from the third on; the second is a name in parentheses that may itself hold anything.
pub(crate) fn stat_fields(text: &str) -> Option<Vec<&str>> {
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_of_a_run_and_the_median_of_each_figure() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let device = BlockDevice(file.path().into());
        fs::write(file.path(), " 1 2 3 4 5 6 7 8").unwrap();
        assert_eq!(device.bytes().unwrap(), [3 * 512, 7 * 512]);
        fs::write(file.path(), "1 2").unwrap();
        device.bytes().unwrap_err();
        assert_eq!(stat_fields("7 (a ) b) S 4 5"), Some(vec!["S", "4", "5"]));
        let stat = Stat::parse("7 (a ) b) S 2 5 6 7 8 9 10 11 12 13 14 15 16 17 18").unwrap();
        assert_eq!((stat.parent, stat.own, stat.waited), (2, 14 + 15, 16 + 17));
        assert!(family_seconds(std::process::id()).unwrap() > 0.0);
        assert!(Stat::of(u32::MAX).is_err() && Stat::parse("7 (a) S 2 5").is_none());
        let before = Usage::now(None).unwrap();
        assert!(std::process::Command::new("true").status().unwrap().success());
        let usage = Usage::now(None).unwrap().since(&before);
        assert!(usage.faults_minor > 10 && usage.device_read_bytes.is_none(), "{usage:?}");
        let run = |faults_minor, read| Usage { faults_minor, device_read_bytes: read, ..Usage::default() };
        let median = Usage::median(&[run(1, Some(9)), run(5, Some(7)), run(9, Some(8))]);
        assert_eq!((median.faults_minor, median.device_read_bytes), (5, Some(8)));
        assert_eq!(Usage::median(&[run(1, None)]).device_read_bytes, None);
    }
}
