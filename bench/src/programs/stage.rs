//! A run's surroundings: where it works, the data that it starts from, and how much it does.

use super::Programs;
use super::line::{Run, Turn};
use crate::engine::Runs;
use crate::error::{Attempt, Error};
use crate::place::Place;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Divisor of the length of a run, in a quick one.
const QUICK_DIVISOR: f64 = 8.0;

/// File system that a case works on, and a folder there, shared by the cases of one bench.
pub struct Stage<'a> {
    pub place: &'a Place,
    pub folder: PathBuf,
    pub programs: &'a Programs,
    pub library: &'a Path,
    pub quick: bool,
}

impl Stage<'_> {
    /// The first of two sizes, or the second one in a quick run.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Folder that a run works in; it is made anew for every run.
    pub fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// File that a run may write; it is removed before every run.
    pub fn output(&self) -> PathBuf {
        self.folder.join("output")
    }
}

/// Function that makes a file or folder of that path.
type Fill = Box<dyn Fn(&Stage, &Path) -> Result<(), Error>>;

/// Data that every run of a case starts from: a file, or a folder of which every run has a copy as [`Stage::work`]. It is
/// made once for all cases of a bench that name it.
pub struct Data {
    /// Its name in the folder of the bench; empty if there is none.
    pub name: String,
    pub fill: Fill,
    /// If true, the file is dropped from the page cache before each run.
    pub drop_cache: bool,
}

impl Data {
    pub fn new(name: &str, fill: impl Fn(&Stage, &Path) -> Result<(), Error> + 'static) -> Data {
        Data { name: name.into(), fill: Box::new(fill), drop_cache: false }
    }

    pub fn nothing() -> Data {
        Data::new("", |_, _| Ok(()))
    }

    /// A file of noise, of these sizes in a full run and in a quick one.
    pub fn noise([full, quick]: [u64; 2]) -> Data {
        let fill = move |stage: &Stage, file: &Path| stage.place.write_file(file, stage.pick(full, quick), 1);
        Data::new(&format!("data-{full}"), fill)
    }

    pub fn text(name: &str, text: impl Fn(&Stage) -> Vec<u8> + 'static) -> Data {
        Data::new(name, move |stage, file| stage.place.write_content(file, &text(stage)))
    }

    pub fn loaded(name: &str, line: String) -> Data {
        Data::new(name, move |stage, folder| {
            fs::create_dir_all(folder).doing("create", folder)?;
            Turn { stage, run: &Run::of_kernel(), operations: 0, work: folder }.told(&line).map(drop)
        })
    }

    /// Makes it, or takes what another case of the bench has made.
    pub fn prepare(&self, stage: &Stage) -> Result<(), Error> {
        let master = stage.folder.join(&self.name);
        if self.name.is_empty() || master.exists() {
            return Ok(());
        }
        (self.fill)(stage, &master).inspect_err(|_| drop(fs::remove_dir_all(&master)))
    }

    pub fn reset(&self, stage: &Stage) -> Result<(), Error> {
        let (work, output, master) = (stage.work(), stage.output(), stage.folder.join(&self.name));
        if work.exists() {
            fs::remove_dir_all(&work).doing("remove", &work)?;
        }
        if output.exists() {
            fs::remove_file(&output).doing("remove", &output)?;
        }
        if !self.name.is_empty() && master.is_dir() {
            return stage.place.copy_tree(&master, &work);
        }
        fs::create_dir(&work).doing("create", &work)?;
        if self.name.is_empty() {
            return Ok(());
        }
        let file = File::open(&master).doing("open", &master)?;
        file.sync_all().doing("sync", &master)?;
        match self.drop_cache {
            true => rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
                .doing("drop from the cache", &master),
            false => Ok(()),
        }
    }
}

/// Amount of work of a run.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// Number of operations of a full run and of a quick one.
    Of([u64; 2]),
    /// As many operations as the kernel alone does in so many seconds; so many are tried first to find out.
    For(u64, f64),
}

impl Amount {
    /// Always the same, which the program knows.
    pub const FREE: Amount = Amount::Of([0; 2]);

    /// Returns the number of operations of a run. `trial` does so many by the kernel alone and returns the seconds that they
    /// took; it also brings programs and data into memory.
    pub fn size_up(
        self,
        quick: bool,
        mut trial: impl FnMut(u64) -> Result<f64, Error>,
    ) -> Result<u64, Error> {
        match self {
            Amount::Of([_, some]) if quick => Ok(some),
            Amount::Of([full, _]) => trial(full).map(|_| full),
            Amount::For(first, seconds) => {
                let wanted = if quick { seconds / QUICK_DIVISOR } else { seconds };
                // A trial too short to be timed well may not make a run endless, nor a slow one trivial.
                let factor = (wanted / trial(first)?).clamp(0.25, 1000.0);
                // A multiple of 64 keeps batches (transactions, groups of writes) whole.
                Ok(((first as f64 * factor) as u64).next_multiple_of(64))
            }
        }
    }
}

/// Checks that the last runs of all sides have the same sum.
pub fn check_sums<S>(runs: &[Runs<S>], sum: impl Fn(&S) -> Option<&String>) -> Result<(), Error> {
    let last = |runs: &Runs<S>| Some(sum(runs.samples.as_ref().ok()?.last()?).cloned());
    let sums: Vec<String> =
        runs.iter().filter_map(last).map(|sum| sum.unwrap_or_else(|| "nothing".into())).collect();
    let other = sums.iter().find(|sum| **sum != sums[0]);
    other.map_or(Ok(()), |other| {
        Err(Error::failed("the program", format!("computed {other}, and {} by the kernel alone", sums[0])))
    })
}

/// One bench's folder at a time, so that a run needs no more room than its largest bench.
pub fn make_room(in_use: &mut Option<PathBuf>, folder: &Path) -> Result<(), Error> {
    if let Some(old) = in_use.take_if(|old| old != folder).filter(|old| old.exists()) {
        fs::remove_dir_all(&old).doing("remove", &old)?;
    }
    fs::create_dir_all(folder).doing("create", folder)?;
    *in_use = Some(folder.to_path_buf());
    Ok(())
}

/// Calls `work` with a stage in a temporary folder.
#[cfg(test)]
pub fn on_stage<T>(quick: bool, work: impl FnOnce(&Stage) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let (place, programs) = (crate::place::in_folder(folder.path()), Programs::new(folder.path()));
    let library = Path::new("/no/such.so");
    work(&Stage { place: &place, folder: folder.path().into(), programs: &programs, library, quick })
}
