//! The commit log of a run: made for it, and removed behind it, so that every run begins with an empty log and a keeper of
//! its own, whose counters are those of the run.

use crate::child::{self, Process};
use crate::error::{Attempt, Error};
use crate::interrupt;
use crate::place::Place;
use crate::programs::line::find_bywash;
use crate::usage::family_seconds;
use rustix::process::Signal;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Name of a log that is a file.
const FILE: &str = "commits.log";
/// Duration of a command on the slow device, in nanoseconds, as in `bywash bench serve`.
const SLOW_NS: u64 = crate::serve::contest::SLOW_NS;
/// Greatest time until a server listens.
const LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);

/// Device that a log lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A file beside the program's data.
    SameDisk,
    /// A file of another ext4 on a loop device over memory.
    OwnDisk,
    /// A volume in memory, which programs map.
    Mapped,
    /// The same volume, which the device server writes.
    Channel,
    /// A volume of a device whose commands take [`SLOW_NS`].
    SlowChannel,
}

impl Device {
    /// Name of the log in a case; empty where it needs none.
    pub fn name(self) -> &'static str {
        match self {
            Device::SameDisk => "",
            Device::OwnDisk => "log file",
            Device::Mapped => "mapped volume",
            Device::Channel => "volume by channel",
            Device::SlowChannel => "volume by channel, 4 us a command",
        }
    }

    /// Name of the volume, which is that of its device, and the option of a log that chooses how it is written.
    fn volume(self) -> Option<(&'static str, &'static str)> {
        match self {
            Device::SameDisk | Device::OwnDisk => None,
            Device::Mapped => Some(("fast", "mapped")),
            Device::Channel => Some(("fast", "channel")),
            Device::SlowChannel => Some(("slow", "channel")),
        }
    }

    /// True for a volume of a device server.
    pub fn is_volume(self) -> bool {
        self.volume().is_some()
    }

    /// True for memory, which forgets everything when the power fails.
    pub fn is_volatile(self) -> bool {
        self != Device::SameDisk
    }
}

/// Maker of the logs of a case, one for each run, and the server of those that are volumes.
pub struct Logs<'a> {
    /// Folder of the case, with the data that the logs are for.
    folder: &'a Path,
    other_disk: Result<&'a Place, Error>,
    /// Words that run a command as the user who has the logs.
    as_user: Vec<OsString>,
    bytes: u64,
    socket: PathBuf,
    server: Option<Process>,
}

impl<'a> Logs<'a> {
    /// Starts a server if any of `devices` needs one. The logs are for data in `folder`, lie there or on `other_disk`, have
    /// so many bytes, and are those of the user whose programs the words of `as_other` start, if it is another one.
    pub fn prepare(
        folder: &'a Path,
        other_disk: Result<&'a Place, Error>,
        devices: &[Device],
        as_other: &str,
        bytes: u64,
    ) -> Result<Logs<'a>, Error> {
        // The user's sockets do not mix with those of logs that are in use on this machine.
        let runtime = folder.join("runtime");
        fs::create_dir_all(&runtime).doing("create", &runtime)?;
        let mut variable = OsString::from("XDG_RUNTIME_DIR=");
        variable.push(&runtime);
        let as_other = as_other.split(' ').filter(|word| !word.is_empty()).map(OsString::from);
        let as_user = as_other.chain(["env".into(), variable]).collect();
        let socket = folder.join("socket");
        let mut logs = Logs { folder, other_disk, as_user, bytes, socket, server: None };
        if devices.iter().any(|device| device.is_volume()) {
            logs.serve()?;
        }
        Ok(logs)
    }

    /// Starts the server, and makes its volumes.
    fn serve(&mut self) -> Result<(), Error> {
        // Room for the volume, and for what a device rounds up to.
        let memory = 2 * self.bytes;
        let devices = [
            ("fast", format!("fast=mem:{memory}")),
            ("slow", format!("slow=mem:{memory},latency={SLOW_NS}")),
        ];
        let mut command = self.command(&["setpriv", "--pdeathsig", "KILL", "--"])?;
        command.args(["serve", "--socket"]).arg(&self.socket);
        command.args(devices.iter().flat_map(|(_, device)| ["--device", device]));
        // An earlier server may have left it.
        let _ = fs::remove_file(&self.socket);
        let server = Process::start_logging(&mut command, &self.folder.join("serve.log"))?;
        let server = self.server.insert(server);
        let deadline = Instant::now() + LIMIT;
        while !self.socket.exists() {
            interrupt::check()?;
            if server.has_ended() || Instant::now() > deadline {
                return Err(server.failure("does not listen".into()));
            }
            std::thread::sleep(LOOK);
        }
        for (name, _) in devices {
            let mut command = self.command(&[])?;
            command.args(["volume", "create", name, &self.bytes.to_string(), "--device", name, "--socket"]);
            child::run(command.arg(&self.socket))?;
        }
        Ok(())
    }

    /// A command that runs this program as the user, started by the words of `before`.
    fn command(&self, before: &[&str]) -> Result<Command, Error> {
        let mut command = Command::new(&self.as_user[0]);
        command.args(&self.as_user[1..]).args(before).arg(find_bywash()?);
        Ok(command)
    }

    /// Makes the log of a run.
    pub fn create(&self, device: Device) -> Result<CommitLog<'_>, Error> {
        let beside = |folder: &Path| folder.join(FILE).into_os_string();
        let word = match (device.volume(), &self.other_disk) {
            (Some((volume, path)), _) => {
                format!("volume:{}/{volume},path={path}", self.socket.display()).into()
            }
            (None, _) if device == Device::SameDisk => beside(self.folder),
            (None, Ok(disk)) => beside(&disk.root),
            (None, Err(why)) => return Err(Error::Unavailable(why.to_string())),
        };
        let log = CommitLog { logs: self, word, device, server_seconds: self.server_seconds()? };
        let size = self.bytes.to_string();
        let options: &[&str] = if device.is_volume() { &[] } else { &["--size", &size] };
        log.tool("create", &[options, log.volatile()].concat())?;
        Ok(log)
    }

    /// CPU time of the server until now.
    fn server_seconds(&self) -> Result<f64, Error> {
        self.server.as_ref().map_or(Ok(0.0), |server| family_seconds(server.id()))
    }
}

/// A log; removed when dropped, and its keeper ended.
pub struct CommitLog<'l> {
    logs: &'l Logs<'l>,
    /// Word that names it on a command line.
    word: OsString,
    device: Device,
    /// CPU time of the server before.
    server_seconds: f64,
}

/// State and counters of a log's keeper.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Keeper {
    pub pid: u32,
    pub counters: BTreeMap<String, u64>,
    /// CPU time of the keeper, and of the device server if the log is a volume.
    #[serde(skip)]
    pub cpu_seconds: f64,
}

/// The status of a log, as `bywash log status --json` has it.
#[derive(Deserialize)]
pub struct Status {
    pub keeper: Option<Keeper>,
}

impl CommitLog<'_> {
    fn volatile(&self) -> &[&'static str] {
        if self.device.is_volatile() { &["--volatile"] } else { &[] }
    }

    /// Words that start a program with the log, which makes commits of files in the folder of the case alone.
    pub fn launcher(&self) -> Result<Vec<OsString>, Error> {
        let mut words = self.as_user().to_vec();
        words.extend([find_bywash()?.into(), "run".into()]);
        words.extend(self.options());
        words.extend(["--only".into(), self.logs.folder.into(), "--".into()]);
        Ok(words)
    }

    /// Words that start a command which finds the log's keeper. The line of a program says who runs it.
    pub fn as_user(&self) -> &[OsString] {
        let user = &self.logs.as_user;
        &user[user.len() - 2..]
    }

    /// Options of `bywash run` that name the log.
    pub fn options(&self) -> impl Iterator<Item = OsString> {
        let volatile = self.volatile().iter().map(OsString::from);
        ["--log".into(), self.word.clone()].into_iter().chain(volatile)
    }

    /// Runs `bywash log` on the log.
    pub fn tool(&self, verb: &str, options: &[&str]) -> Result<child::Ended, Error> {
        child::run(self.logs.command(&[])?.args(["log", verb]).arg(&self.word).args(options))
    }

    pub fn status(&self) -> Result<Status, Error> {
        let told = self.tool("status", &["--json"])?.stdout;
        serde_json::from_str(&told)
            .map_err(|error| Error::failed("bywash log status", format!("tells what is no status: {error}")))
    }

    /// Ends the keeper, so that it does not disturb the next run, and returns what it has counted.
    pub fn finish(&self) -> Result<Keeper, Error> {
        let gone =
            || Error::failed("the keeper of the log", "ended before its programs' runs were over".into());
        let keeper = self.status()?.keeper.ok_or_else(gone)?;
        let server_seconds = self.logs.server_seconds()? - self.server_seconds;
        let cpu_seconds = family_seconds(keeper.pid)? + server_seconds;
        child::end_other(keeper.pid, Signal::TERM)?;
        Ok(Keeper { cpu_seconds, ..keeper })
    }
}

impl Drop for CommitLog<'_> {
    fn drop(&mut self) {
        // After a failure the keeper may still be there.
        let _ = self.finish();
        if self.tool("remove", &[]).is_err() && !self.device.is_volume() {
            let _ = fs::remove_file(&self.word);
        }
    }
}

impl Keeper {
    pub fn count(&self, counter: &str) -> u64 {
        self.counters.get(counter).copied().unwrap_or(0)
    }

    /// Syncs that the log absorbed: commits, and syncs of files that had nothing to commit.
    pub fn absorbed(&self) -> u64 {
        self.count("commits") + self.count("clean")
    }

    /// Syncs that were the kernel's, by reason.
    pub fn by_kernel(&self) -> impl Iterator<Item = (&str, u64)> {
        let counters = self.counters.iter();
        counters.filter_map(|(name, count)| Some((name.strip_prefix("kernel_")?, *count)))
    }

    /// The sum of what several keepers have counted.
    pub fn sum<'k>(keepers: impl Iterator<Item = &'k Keeper>) -> Keeper {
        keepers.fold(Keeper::default(), |mut sum, keeper| {
            sum.cpu_seconds += keeper.cpu_seconds;
            for (name, count) in &keeper.counters {
                *sum.counters.entry(name.clone()).or_default() += count;
            }
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_keepers_are_added_and_syncs_are_the_logs_or_the_kernels() {
        let text = r#"{"log": "/l", "bytes": 4096, "keeper": {"pid": 7, "used_bytes": 0,
            "counters": {"commits": 90, "clean": 6, "kernel_first": 3, "kernel_full": 1, "checkpoints": 2}}}"#;
        let status: Status = serde_json::from_str(text).unwrap();
        let keeper = Keeper { cpu_seconds: 0.5, ..status.keeper.unwrap() };
        let sum = Keeper::sum([keeper.clone(), keeper].iter());
        assert_eq!((sum.absorbed(), sum.count("checkpoints"), sum.cpu_seconds), (192, 4, 1.0));
        assert_eq!(sum.by_kernel().collect::<Vec<_>>(), [("first", 6), ("full", 2)]);
        let without: Status = serde_json::from_str(r#"{"keeper": null}"#).unwrap();
        assert!(without.keeper.is_none());
    }
}
