//! A campaign: one recorded run of a workload, and a check after each of many power cuts.

use crate::disk::Disk;
use crate::image::{Cut, Fault, Image, plan};
use crate::launch::Launch;
use crate::machine::Machine;
use crate::random::Random;
use crate::recording::{Position, Recording};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Machine and commands of a workload.
#[derive(Debug)]
pub struct Site<'a> {
    /// The machine; the workload's disk is named `data`.
    pub machine: &'a Machine,
    /// Commands around the workload.
    pub launch: &'a Launch,
}

impl Site<'_> {
    /// Returns the words of a command line that runs under the prefix of [`Launch`].
    pub fn launched(&self, words: &[&str]) -> Vec<String> {
        let prefix = Launch::with_log(&self.launch.prefix, &self.machine.log());
        prefix.into_iter().chain(words.iter().map(|word| (*word).to_owned())).collect()
    }

    /// Returns the path of a name on the disk `data`, as text.
    pub fn data(&self, name: &str) -> String {
        self.machine.path("data").join(name).to_string_lossy().into_owned()
    }
}

/// A program that commits, and its checker.
pub trait Workload {
    /// Returns the disks that it needs, of which one is named `data`.
    fn disks(&self) -> Vec<Disk>;

    /// Returns the user who runs the program, and whose the log must be, unless it is root.
    fn owner(&self) -> Option<&'static str> {
        None
    }

    /// Fills the disks before anything is recorded.
    ///
    /// # Errors
    /// A sentence that says what failed.
    fn prepare(&self, site: &Site) -> Result<(), String>;

    /// Does the work, and writes to the machine's memory what was acknowledged at which position.
    ///
    /// # Errors
    /// A sentence that says what failed.
    fn run(&self, site: &Site, seed: u64) -> Result<(), String>;

    /// Checks the disks after a cut. Returns the number of commits that had been acknowledged and are there.
    ///
    /// # Errors
    /// A sentence that says what is missing, half there or damaged.
    fn check(&self, site: &Site, cut: Position) -> Result<u64, String>;
}

/// Settings of a campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Seed of everything that is left to chance.
    pub seed: u64,
    /// Number of cuts.
    pub cuts: usize,
    /// Defect of the disks, for tests of the harness.
    pub fault: Fault,
    /// Commands around the workload.
    pub launch: Launch,
    /// Folder of a recording that was kept, to check once more; nothing is recorded then.
    pub replay: Option<PathBuf>,
    /// Folder that the recording is kept in if a check fails.
    pub keep: Option<PathBuf>,
}

impl Campaign {
    /// Takes the settings from BYWASH_POWER_SEED (else from the time), BYWASH_POWER_CUTS (else `cuts`), BYWASH_POWER_REPLAY
    /// and the variables of [`Launch`].
    ///
    /// # Panics
    /// If one of them is not a whole number.
    pub fn from_environment(cuts: usize) -> Campaign {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text}: a whole number is needed")))
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let chosen = now.map_or(1, |since| since.as_nanos() as u64 % 1_000_000_007);
        Campaign {
            seed: number("BYWASH_POWER_SEED").unwrap_or(chosen),
            cuts: number("BYWASH_POWER_CUTS").map_or(cuts, |cuts| cuts as usize),
            fault: Fault::None,
            launch: Launch::from_environment(),
            replay: std::env::var_os("BYWASH_POWER_REPLAY").map(PathBuf::from),
            keep: None,
        }
    }

    /// Returns the campaign with a defect of the disks.
    pub fn with_fault(self, fault: Fault) -> Campaign {
        Campaign { fault, ..self }
    }

    /// Records the workload and checks it after each cut, until one check fails.
    ///
    /// # Errors
    /// A sentence that says what could not be done; a failed check is no error.
    pub fn run(&self, program: &Path, workload: &dyn Workload) -> Result<Outcome, String> {
        let log = self.launch.log.map(|format| Disk::new("log", format));
        let disks = workload.disks().into_iter().chain(log).collect();
        let machine = match &self.replay {
            Some(kept) => Machine::again(program, disks, kept)?,
            None => Machine::new(program, disks)?,
        };
        let site = Site { machine: &machine, launch: &self.launch };
        let begun = Instant::now();
        if self.replay.is_none() {
            self.record(&site, workload)?;
        }
        let from = begin(&machine)?;
        let recorded = begun.elapsed();
        let recording = machine.recording()?;
        let cuts = plan(&recording, from, self.cuts.max(1), &mut Random::new(self.seed));
        let mut images = images(&machine)?;
        let begun = Instant::now();
        let mut outcome = Outcome { requests: recording.records.len(), recorded, ..Outcome::default() };
        for cut in &cuts {
            match self.check(&site, workload, &recording, cut, &mut images) {
                Ok(commits) => {
                    outcome.cuts += 1;
                    outcome.commits = outcome.commits.max(commits);
                }
                Err(why) => {
                    outcome.failure = Some(format!("{cut:?} of {} requests: {why}", outcome.requests));
                    self.keep.iter().try_for_each(|folder| machine.keep(folder))?;
                    break;
                }
            }
        }
        outcome.checked = begun.elapsed();
        Ok(outcome)
    }

    /// Does the work on recorded disks.
    fn record(&self, site: &Site, workload: &dyn Workload) -> Result<(), String> {
        let plain = site.machine.mount("now")?;
        workload.prepare(site)?;
        site.machine.prepare(&self.launch.prepare, workload.owner())?;
        plain.unmount()?;
        let recorded = site.machine.record()?;
        let begin = site.machine.memory().join(BEGIN);
        let Position(position) = site.machine.position()?;
        fs::write(&begin, position.to_string()).map_err(|error| format!("{}: {error}", begin.display()))?;
        workload.run(site, self.seed)?;
        recorded.unmount()
    }

    fn check(
        &self,
        site: &Site,
        workload: &dyn Workload,
        recording: &Recording,
        cut: &Cut,
        images: &mut [Image],
    ) -> Result<u64, String> {
        for image in images {
            image.cut(recording, cut, self.fault).map_err(|error| format!("an image: {error}"))?;
        }
        let mounted = site.machine.mount("cut")?;
        site.machine.hook(&self.launch.recover)?;
        let commits = workload.check(site, cut.position)?;
        mounted.unmount()?;
        Ok(commits)
    }
}

/// Returns the position at which a recorded workload began.
fn begin(machine: &Machine) -> Result<Position, String> {
    let path = machine.memory().join(BEGIN);
    let position = fs::read_to_string(&path).ok().and_then(|text| text.parse().ok()).map(Position);
    position.ok_or_else(|| format!("{} has no position", path.display()))
}

/// Name of the file in the machine's memory that holds the position at which the workload began.
const BEGIN: &str = "begin";

fn images(machine: &Machine) -> Result<Vec<Image>, String> {
    let disks = machine.disks().iter().enumerate();
    let image = |(number, disk): (usize, &Disk)| {
        Image::new(number as u32, disk.tear_bytes, &machine.image(disk, "base"), &machine.image(disk, "cut"))
    };
    disks.map(image).collect::<std::io::Result<_>>().map_err(|error| format!("an image: {error}"))
}

/// Result of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Cuts after which all was right.
    pub cuts: usize,
    /// Requests that were recorded.
    pub requests: usize,
    /// Greatest number of acknowledged commits that a check has found.
    pub commits: u64,
    /// Time of preparing and recording.
    pub recorded: Duration,
    /// Time of all cuts and checks.
    pub checked: Duration,
    /// The first cut whose check failed, and why.
    pub failure: Option<String>,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rate = self.cuts as f64 / self.checked.as_secs_f64().max(1e-9);
        write!(
            formatter,
            "{} cuts ({rate:.1} a second), {} requests recorded in {:.1} s, up to {} commits",
            self.cuts,
            self.requests,
            self.recorded.as_secs_f64(),
            self.commits
        )
    }
}
