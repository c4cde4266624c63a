//! `bywash bench run`: unmodified programs, with the preloaded library and by the kernel alone.
//!
//! A case is a row of a table in [`files`], [`databases`], [`servers`] or [`processes`]: a bench, a name, goals, the data
//! that a run starts from and a closure that does one run of a program. [`sides`] measures a case on one file system. A goal
//! is a ratio to the kernel in the same rounds; where nothing more is asked of a case it is [`NOT_SLOWER`].

mod databases;
mod files;
mod launch;
mod line;
mod processes;
mod servers;
mod sides;

use crate::campaign::{self, Audience, Choice};
use crate::error::{Attempt, Error};
use crate::place::{self, Kind, Offer, Place, Places};
use crate::programs::Programs;
use crate::row::{Report, Row};
use crate::workspace::Workspace;
use launch::{Launcher, Run};
use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Ratio below which no program may fall.
pub const NOT_SLOWER: f64 = 0.97;
/// Ratio of device bytes: the device may read at most 1.1 times as much.
pub const NOT_MORE_BYTES: f64 = 1.0 / 1.1;

/// File system and folder that a case works in.
pub struct Stage<'a> {
    /// The file system.
    pub place: &'a Place,
    /// A folder there, shared by the cases of one bench.
    pub folder: PathBuf,
    /// The C programs.
    pub programs: &'a Programs,
    /// If true, small sizes will do.
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

/// Result of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// Operations (or bytes) a second.
    pub rate: f64,
    /// Seconds that the measured part took.
    pub seconds: f64,
    /// Sum over the results, equal on every side if the work was done right; `None` where the program offers none.
    pub sum: Option<String>,
}

/// Data that every run of a case starts from.
pub enum Data {
    /// No data.
    Nothing,
    /// A file of noise, written back before each run.
    Noise {
        /// Size of the file in bytes, of a full run and of a quick one.
        bytes: [u64; 2],
        /// If true, the file is dropped from the page cache before each run.
        drop_cache: bool,
    },
    /// A file with a name and a content.
    Text(&'static str, fn(&Stage) -> Vec<u8>),
    /// A copy, in [`Stage::work`], of the folder of that name, which the function has filled.
    Tree(String, Fill),
}

/// Function that fills the folder that trees are copied from.
type Fill = Box<dyn Fn(&Stage, &Path) -> Result<(), Error>>;
/// Function that does one run of about so many operations.
type Work = Box<dyn Fn(&Stage, &Run, u64) -> Result<Done, Error>>;

impl Data {
    /// Path of the file of noise, for a command line.
    fn path(&self) -> String {
        match self {
            Data::Noise { bytes: [full, quick], .. } => format!("{{folder}}/data-{{{full}|{quick}}}"),
            _ => String::new(),
        }
    }

    /// The file or folder that is made before the first run.
    fn master(&self, stage: &Stage) -> Option<PathBuf> {
        let name = match self {
            Data::Nothing => return None,
            Data::Noise { bytes, .. } => format!("data-{}", stage.pick(bytes[0], bytes[1])),
            Data::Text(name, _) => (*name).to_owned(),
            Data::Tree(name, _) => name.clone(),
        };
        Some(stage.folder.join(name))
    }

    /// Makes what the runs start from, or takes what another case of the bench has made.
    fn prepare(&self, stage: &Stage) -> Result<(), Error> {
        let Some(master) = self.master(stage).filter(|master| !master.exists()) else { return Ok(()) };
        match self {
            Data::Nothing => Ok(()),
            Data::Noise { bytes, .. } => stage.place.write_file(&master, stage.pick(bytes[0], bytes[1]), 1),
            Data::Text(_, text) => stage.place.write_content(&master, &text(stage)),
            Data::Tree(_, fill) => fill(stage, &master).inspect_err(|_| drop(fs::remove_dir_all(&master))),
        }
    }

    /// Brings back the state that every run starts from.
    fn reset(&self, stage: &Stage) -> Result<(), Error> {
        let (work, output) = (stage.work(), stage.output());
        if work.exists() {
            fs::remove_dir_all(&work).doing("remove", &work)?;
        }
        if output.exists() {
            fs::remove_file(&output).doing("remove", &output)?;
        }
        let Some(master) = self.master(stage) else { return Ok(()) };
        match self {
            Data::Nothing | Data::Text(..) => Ok(()),
            Data::Noise { drop_cache, .. } => {
                let file = File::open(&master).doing("open", &master)?;
                file.sync_all().doing("sync", &master)?;
                if !drop_cache {
                    return Ok(());
                }
                let advice = rustix::fs::Advice::DontNeed;
                rustix::fs::fadvise(&file, 0, None, advice).doing("drop from the cache", &master)
            }
            Data::Tree(..) => stage.place.copy_tree(&master, &work),
        }
    }
}

/// Amount of work of a run.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// Always the same, which the program knows.
    Fixed,
    /// A fixed number of operations.
    Operations(u64),
    /// As many operations as the kernel alone does in so many seconds; so many are tried first to find out.
    For(u64, f64),
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
    /// Its name.
    pub name: String,
    /// Unit of the rate.
    pub unit: &'static str,
    /// Figures that have a row each, with their goals.
    pub readings: Vec<(Reading, Option<f64>)>,
    /// File systems that it runs on.
    pub places: &'static [Kind],
    /// Amount of work of a run.
    pub amount: Amount,
    /// Third side and its goal: a program's own way to do without calls, or a bound.
    pub rival: Option<(&'static str, Option<f64>)>,
    /// If true, `--quick` includes it.
    pub in_quick: bool,
    /// Data that every run starts from.
    pub data: Data,
    /// Does one run.
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

/// Every case of every bench, in the order in which they run.
fn all() -> Vec<Case> {
    let parts = [files::cases(), databases::cases(), processes::cases(), servers::cases()];
    parts.into_iter().flatten().collect()
}

/// The cases that were chosen. A quick run leaves out what is not part of it, unless that would leave nothing.
fn chosen(choice: &Choice) -> Result<Vec<Case>, Error> {
    let named: Vec<(String, Case)> =
        all().into_iter().map(|case| (format!("{}: {}", case.bench, case.name), case)).collect();
    let named = campaign::choose(named, &choice.names, |(name, _)| name)?;
    let shortens = choice.quick && named.iter().any(|(_, case)| case.in_quick);
    Ok(named.into_iter().map(|(_, case)| case).filter(|case| case.in_quick || !shortens).collect())
}

/// The chosen cases and their goals, as text.
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
    let launcher = Launcher::find()?;
    let workspace = Workspace::create(choice.folder.as_deref())?;
    let programs = Programs::new(workspace.programs());
    let is_wanted = |kind: &Kind| cases.iter().any(|case| case.places.contains(kind));
    let wanted: Vec<Kind> = Kind::ALL.iter().copied().filter(is_wanted).collect();
    let places = Places::make(workspace.run(), &wanted, &choice.place)?;
    if places.offers.is_empty() {
        let names: Vec<String> = wanted.iter().map(|kind| place::name_of(*kind, workspace.run())).collect();
        return Err(Error::Usage(format!(
            "--place {} names no file system of these cases: they run on {}",
            choice.place,
            names.join(", ")
        )));
    }
    let folder_in_use = RefCell::new(None);
    let (launcher, programs, folder_in_use) = (&launcher, &programs, &folder_in_use);
    let measured = plan(&cases, &places.offers, choice.quick).into_iter().map(|(case, offer)| {
        let name = format!("{}: {}, {}", case.bench, case.name, offer.name);
        campaign::Case::new(name, sides::declared(case, &offer.name), move || {
            let place = offer.place()?;
            let folder = place.root.join(case.bench);
            make_room(&mut folder_in_use.borrow_mut(), &folder)?;
            let stage = Stage { place, folder, programs, quick: choice.quick };
            sides::measure(case, &stage, launcher, choice.rounds())
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

/// Reads the line `ops=N seconds=S sum=X` that the C programs end with.
fn parse_done(output: &str) -> Option<Done> {
    let field = |name: &str| {
        output.split_whitespace().rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let number = |name: &str| field(name)?.parse::<f64>().ok();
    let (operations, seconds) = (number("ops")?, number("seconds").filter(|seconds| *seconds > 0.0)?);
    Some(Done { rate: operations / seconds, seconds, sum: Some(field("sum")?.to_owned()) })
}

/// The error for output that lacks what it should have.
fn unreadable(program: &str, output: &str) -> Error {
    let how = "gave output that cannot be read".into();
    Error::Failed { program: program.to_owned(), how, tail: crate::child::tail(output) }
}

/// A row of a case on a place, without figures.
fn head(case: &Case, place: &str) -> Row {
    Row::head(&format!("run/{}", case.bench), &case.name, place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn count(names: &[&str], quick: bool) -> usize {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        chosen(&Choice { names, quick, ..Choice::default() }).unwrap().len()
    }

    #[test]
    fn every_case_has_a_bench_a_place_and_a_name_of_its_own() {
        let mut names = HashSet::new();
        for case in all() {
            assert!(!case.places.is_empty() && !case.readings.is_empty());
            assert!(names.insert((case.bench, case.name.clone())), "{} twice", case.name);
        }
        assert_eq!(count(&[], false), all().len());
        assert_eq!(count(&["sqlite", "tools"], false), count(&["sqlite"], false) + 5);
        // A quick run leaves servers out, unless nothing would be left.
        assert_eq!((count(&["servers"], true), count(&["servers", "tools"], true)), (4, 5));
        let text = list(&Choice::default()).unwrap();
        assert!(text.contains("\ntools: cat  ") && text.contains(" throughput >= 0.97\n"), "{text}");
    }

    #[test]
    fn a_full_plan_is_every_case_on_every_place_and_a_quick_one_visits_all_places() {
        let absent = |kind: &Kind| Offer { kind: *kind, name: String::new(), place: Err(String::new()) };
        let (all, offers) = (all(), Kind::ALL.iter().map(absent).collect::<Vec<Offer>>());
        let rows: usize = all.iter().map(|case| case.places.len()).sum();
        assert_eq!(plan(&all, &offers, false).len(), rows);
        let quick = plan(&all, &offers, true);
        assert_eq!(quick.len(), all.len());
        assert!(offers.iter().all(|place| quick.iter().any(|(_, at)| at.kind == place.kind)));
    }

    #[test]
    fn the_last_line_of_a_driver() {
        let done = parse_done("noise\nops=100 seconds=0.5 sum=ab\n").unwrap();
        assert_eq!(done, Done { rate: 200.0, seconds: 0.5, sum: Some("ab".into()) });
        for broken in ["", "ops=1 seconds=0 sum=1", "ops=1 sum=1"] {
            assert_eq!(parse_done(broken), None, "{broken}");
        }
    }
}
