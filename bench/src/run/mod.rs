//! `bywash bench run`: unmodified programs, with the preloaded library and by the kernel alone.
//!
//! A case is a row of a table in [`cases`] or [`servers`]: a bench, a name, goals, the data that a run starts from and a
//! closure that does one run of a program. [`sides`] measures a case on one file system. A goal is a ratio to the kernel in
//! the same rounds; where nothing more is asked of a case it is [`NOT_SLOWER`].
//!
//! - [`line`]: command lines with placeholders, and programs on one of the sides
//! - [`output`]: figures in what programs tell

mod cases;
mod line;
mod output;
mod servers;
mod sides;

use crate::campaign::{self, Audience, Choice};
use crate::error::{Attempt, Error};
use crate::place::{self, Kind, Offer, Place, Places};
use crate::programs::Programs;
use crate::row::{Report, Row};
use crate::workspace::Workspace;
use line::{Run, Turn};
use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Ratio below which no program may fall.
const NOT_SLOWER: f64 = 0.97;

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

/// Result of one run: operations (or bytes) a second, and the seconds that the measured part took.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    pub rate: f64,
    pub seconds: f64,
    /// Sum over the results, equal on every side if the work was done right; `None` where the program offers none.
    pub sum: Option<String>,
}

/// Function that makes a file or folder of that path.
type Fill = Box<dyn Fn(&Stage, &Path) -> Result<(), Error>>;
/// Function that does one run of about so many operations.
type Work = Box<dyn Fn(&Stage, &Run, u64) -> Result<Done, Error>>;

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
    fn new(name: &str, fill: impl Fn(&Stage, &Path) -> Result<(), Error> + 'static) -> Data {
        Data { name: name.into(), fill: Box::new(fill), drop_cache: false }
    }

    fn nothing() -> Data {
        Data::new("", |_, _| Ok(()))
    }

    /// A file of noise, of these sizes in a full run and in a quick one.
    fn noise([full, quick]: [u64; 2]) -> Data {
        let fill = move |stage: &Stage, file: &Path| stage.place.write_file(file, stage.pick(full, quick), 1);
        Data::new(&format!("data-{full}"), fill)
    }

    fn text(name: &str, text: impl Fn(&Stage) -> Vec<u8> + 'static) -> Data {
        Data::new(name, move |stage, file| stage.place.write_content(file, &text(stage)))
    }

    fn loaded(name: &str, line: String) -> Data {
        Data::new(name, move |stage, folder| {
            fs::create_dir_all(folder).doing("create", folder)?;
            Turn { stage, run: &Run::of_kernel(), operations: 0, work: folder }.told(&line).map(drop)
        })
    }

    /// Makes it, or takes what another case of the bench has made.
    fn prepare(&self, stage: &Stage) -> Result<(), Error> {
        let master = stage.folder.join(&self.name);
        if self.name.is_empty() || master.exists() {
            return Ok(());
        }
        (self.fill)(stage, &master).inspect_err(|_| drop(fs::remove_dir_all(&master)))
    }

    fn reset(&self, stage: &Stage) -> Result<(), Error> {
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
    const FREE: Amount = Amount::Of([0; 2]);
}

/// Figure that is read off a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// [`Done::rate`]: more is better.
    Rate,
    /// Bytes that the device read: less is better.
    DeviceRead,
    /// Time of an operation. Its ratio is that of a limit, in nanoseconds, to the time that was added to the peer's.
    Added(u32),
}

/// One case. [`case`] makes a usual one; a table overrides single fields.
pub struct Case {
    /// The bench it belongs to, without the family.
    pub bench: &'static str,
    pub name: String,
    pub unit: &'static str,
    /// Figures that have a row each, with their goals.
    pub readings: Vec<(Reading, Option<f64>)>,
    pub places: &'static [Kind],
    pub amount: Amount,
    /// Third side and its goal: a program's own way to do without calls, or a bound.
    pub rival: Option<(&'static str, Option<f64>)>,
    pub in_quick: bool,
    pub data: Data,
    pub run: Work,
}

/// A case on all file systems that is compared by its rate and is part of a quick run.
pub fn case(
    bench: &'static str,
    name: impl Into<String>,
    (unit, goal): (&'static str, f64),
    amount: Amount,
    data: Data,
    run: impl Fn(&Stage, &Run, u64) -> Result<Done, Error> + 'static,
) -> Case {
    Case {
        bench,
        name: name.into(),
        unit,
        readings: vec![(Reading::Rate, Some(goal))],
        places: Kind::ALL,
        amount,
        rival: None,
        in_quick: true,
        data,
        run: Box::new(run),
    }
}

fn all() -> impl Iterator<Item = Case> {
    cases::all().into_iter().chain(servers::cases())
}

/// The cases that were chosen. A quick run leaves out what is not part of it, unless that would leave nothing.
fn chosen(choice: &Choice) -> Result<Vec<Case>, Error> {
    let named: Vec<(String, Case)> =
        all().map(|case| (format!("{}: {}", case.bench, case.name), case)).collect();
    let named = campaign::choose(named, &choice.names, |(name, _)| name)?;
    let shortens = choice.quick && named.iter().any(|(_, case)| case.in_quick);
    Ok(named.into_iter().map(|(_, case)| case).filter(|case| case.in_quick || !shortens).collect())
}

pub fn list(choice: &Choice) -> Result<String, Error> {
    let line = |case: &Case| {
        let goals = sides::declared(case, "").into_iter().map(|row| {
            let goal = row.goal.map_or_else(|| "no goal".into(), |goal| format!(">= {goal:.2}"));
            format!("{} {goal}", row.metric)
        });
        let name = format!("{}: {}", case.bench, case.name);
        format!("{name:<70} {}\n", goals.collect::<Vec<_>>().join(", "))
    };
    Ok(chosen(choice)?.iter().map(line).collect())
}

/// Measures what was chosen, on every file system that there is. Returns the report, and whether it was interrupted.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let cases = chosen(choice)?;
    let library = line::find_library()?;
    let workspace = Workspace::create(choice.folder.as_deref())?;
    let programs = Programs::new(workspace.programs());
    let is_wanted = |kind: &Kind| cases.iter().any(|case| case.places.contains(kind));
    let wanted: Vec<Kind> = Kind::ALL.iter().copied().filter(is_wanted).collect();
    let places = Places::make(workspace.run(), &wanted, &choice.place)?;
    if places.offers.is_empty() {
        let names: Vec<String> = wanted.iter().map(|kind| place::name_of(*kind, workspace.run())).collect();
        let (place, names) = (&choice.place, names.join(", "));
        let why = format!("--place {place} names no file system of these cases: they run on {names}");
        return Err(Error::Usage(why));
    }
    let folder_in_use = RefCell::new(None);
    let (library, programs, folder_in_use) = (&library, &programs, &folder_in_use);
    let measured = plan(&cases, &places.offers, choice.quick).into_iter().map(|(case, offer)| {
        let name = format!("{}: {}, {}", case.bench, case.name, offer.name);
        campaign::Case::new(name, sides::declared(case, &offer.name), move || {
            let place = offer.place()?;
            let folder = place.root.join(case.bench);
            make_room(&mut folder_in_use.borrow_mut(), &folder)?;
            let stage = Stage { place, folder, programs, library, quick: choice.quick };
            sides::measure(case, &stage, choice.rounds())
        })
    });
    Ok(campaign::run(measured.collect(), audience))
}

/// Cases with the places that they run on. All of one bench on one place come together, as they share files; a quick run
/// takes each case to one place only, the next case to the next.
fn plan<'a>(cases: &'a [Case], offers: &'a [Offer], quick: bool) -> Vec<(&'a Case, &'a Offer)> {
    let fits = |case: &Case, offer: &Offer| case.places.contains(&offer.kind);
    if quick {
        let one = |(number, case): (usize, &'a Case)| {
            let fitting: Vec<&Offer> = offers.iter().filter(|offer| fits(case, offer)).collect();
            fitting.get(number % fitting.len().max(1)).map(|offer| (case, *offer))
        };
        return cases.iter().enumerate().filter_map(one).collect();
    }
    let of_bench = |bench: &'a [Case]| {
        let on =
            move |offer| bench.iter().filter(move |case| fits(case, offer)).map(move |case| (case, offer));
        offers.iter().flat_map(on)
    };
    cases.chunk_by(|one, next| one.bench == next.bench).flat_map(of_bench).collect()
}

/// One bench's folder at a time, so that a run needs no more room than its largest bench.
fn make_room(in_use: &mut Option<PathBuf>, folder: &Path) -> Result<(), Error> {
    if let Some(old) = in_use.take_if(|old| old != folder).filter(|old| old.exists()) {
        fs::remove_dir_all(&old).doing("remove", &old)?;
    }
    fs::create_dir_all(folder).doing("create", folder)?;
    *in_use = Some(folder.to_path_buf());
    Ok(())
}

fn unreadable(program: &str, output: &str) -> Error {
    let how = "gave output that cannot be read".into();
    Error::Failed { program: program.to_owned(), how, tail: crate::child::tail(output) }
}

fn head(case: &Case, place: &str) -> Row {
    Row::head(&format!("run/{}", case.bench), &case.name, place)
}

/// Calls `work` with a stage in a temporary folder.
#[cfg(test)]
fn on_stage<T>(quick: bool, work: impl FnOnce(&Stage) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let (place, programs) = (place::in_folder(folder.path()), Programs::new(folder.path()));
    let library = Path::new("/no/such.so");
    work(&Stage { place: &place, folder: folder.path().into(), programs: &programs, library, quick })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_case_is_planned_on_every_place_and_a_quick_run_visits_all_places() {
        let all: Vec<Case> = all().collect();
        let names: HashSet<_> = all.iter().map(|case| (case.bench, &case.name)).collect();
        assert_eq!(names.len(), all.len());
        let count = |names: &[&str], quick: bool| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            chosen(&Choice { names, quick, ..Choice::default() }).unwrap().len()
        };
        assert_eq!(count(&["sqlite", "tools"], false), count(&["sqlite"], false) + 5);
        // A quick run leaves servers out, unless nothing would be left.
        assert_eq!((count(&["servers"], true), count(&["servers", "tools"], true)), (4, 5));
        let text = list(&Choice::default()).unwrap();
        assert!(text.contains("\ntools: cat  ") && text.contains(" throughput >= 0.97\n"), "{text}");
        let absent = |kind: &Kind| Offer { kind: *kind, name: String::new(), place: Err(String::new()) };
        let offers: Vec<Offer> = Kind::ALL.iter().map(absent).collect();
        let rows: usize = all.iter().map(|case| case.places.len()).sum();
        assert_eq!(plan(&all, &offers, false).len(), rows);
        let quick = plan(&all, &offers, true);
        assert_eq!(quick.len(), all.len());
        assert!(offers.iter().all(|place| quick.iter().any(|(_, at)| at.kind == place.kind)));
    }
}
