//! `bywash bench run`: unmodified programs, with the preloaded library and by the kernel alone.
//!
//! A case is a row of a table in [`cases`] or [`servers`]: a bench, a name, goals, the data that a run starts from and a
//! closure that does one run of a program. [`sides`] measures a case on one file system. A goal is a ratio to the kernel in
//! the same rounds; where nothing more is asked of a case it is [`NOT_SLOWER`].

mod cases;
mod servers;
mod sides;

use crate::campaign::{self, Audience, Choice};
use crate::error::Error;
use crate::place::{self, Kind, Offer, Places};
use crate::programs::Programs;
use crate::programs::line::{Run, find_library};
use crate::programs::output::Done;
use crate::programs::stage::{Amount, Data, Stage, make_room};
use crate::row::{Report, Row};
use crate::workspace::Workspace;
use std::cell::RefCell;

/// Ratio below which no program may fall.
const NOT_SLOWER: f64 = 0.97;

/// Function that does one run of about so many operations.
type Work = Box<dyn Fn(&Stage, &Run, u64) -> Result<Done, Error>>;

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

fn chosen(choice: &Choice) -> Result<Vec<Case>, Error> {
    let named = all().map(|case| (format!("{}: {}", case.bench, case.name), case)).collect();
    campaign::shortened(named, choice, |case: &Case| case.in_quick)
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
    let library = find_library()?;
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

fn head(case: &Case, place: &str) -> Row {
    Row::head(&format!("run/{}", case.bench), &case.name, place)
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
