//! Every chosen case on every place, one row after the other.

use crate::cases::{self, BENCHES, Case, Stage};
use crate::error::Error;
use crate::launch::Launcher;
use crate::machine::Machine;
use crate::pairs;
use crate::place::{self, Kind, Offer, Places};
use crate::programs::Programs;
use crate::row::{Report, Row};
use crate::workspace::Workspace;
use std::path::PathBuf;

/// Fewest pairs of a full run.
pub const PAIRS: u32 = 5;
/// Pairs of a quick run, which is about whether everything works.
pub const PAIRS_QUICK: u32 = 2;

/// What to measure.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Names as in [`chosen`]; none means everything.
    pub names: Vec<String>,
    /// Only places whose name contains this.
    pub place: Option<String>,
    /// Small sizes, few cases, few pairs.
    pub quick: bool,
    /// Pairs, if not the usual number.
    pub pairs: Option<u32>,
    /// The folder on disk.
    pub folder: Option<PathBuf>,
}

/// Whoever shows what happens.
pub trait Audience {
    /// `done` of `all` measurements are over; now comes `what`.
    fn progress(&mut self, done: u64, all: u64, what: &str);
    /// A row is complete.
    fn row(&mut self, row: &Row);
}

/// Runs what was chosen. After an interruption what is there so far is answered with it.
///
/// # Errors
/// An unknown name, or a folder or library that cannot be used; cases that cannot run become rows that say so.
pub fn run(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let mut cases = chosen(choice)?;
    let machine = Machine::this();
    let launcher = Launcher::find()?;
    let workspace = Workspace::create(choice.folder.as_deref())?;
    let programs = Programs::new(workspace.programs());
    let wanted: Vec<Kind> = Kind::ALL
        .iter()
        .copied()
        .filter(|kind| cases.iter().any(|case| case.places.contains(kind)))
        .collect();
    let part = choice.place.as_deref().unwrap_or_default();
    let places = Places::make(workspace.run(), &wanted, part)?;
    if places.offers.is_empty() {
        let names: Vec<String> = wanted.iter().map(|kind| place::name_of(*kind, workspace.run())).collect();
        return Err(Error::Usage(format!(
            "--place {part} names no file system of these cases: they run on {}",
            names.join(", ")
        )));
    }
    let offers: Vec<&Offer> = places.offers.iter().collect();
    let plan = plan(&cases, &offers, choice.quick);
    let pairs = choice.pairs.unwrap_or(if choice.quick { PAIRS_QUICK } else { PAIRS });
    let mut report = Report { machine, version: env!("CARGO_PKG_VERSION").into(), rows: Vec::new() };
    let mut folder_in_use = None;
    for (number, (case, offer)) in plan.iter().enumerate() {
        let case = &mut cases[*case];
        let rows = match offers[*offer] {
            Offer::Absent { name, why, .. } => {
                pairs::rows_without_numbers(case, name, &Error::Unavailable(why.clone()))
            }
            Offer::Here(place) => {
                let stage = Stage {
                    place,
                    folder: place.root.join(case.bench),
                    programs: &programs,
                    quick: choice.quick,
                };
                make_room(&mut folder_in_use, &stage.folder)?;
                let what = format!("{}: {}, {}", case.bench, case.name, place.name);
                let (done, all) = (number as u64 * u64::from(pairs), plan.len() as u64 * u64::from(pairs));
                // The audience is told of each pair from inside the measurement.
                let teller = std::cell::RefCell::new(&mut *audience);
                teller.borrow_mut().progress(done, all, &what);
                let tell = |pair: u32| teller.borrow_mut().progress(done + u64::from(pair), all, &what);
                match pairs::measure(case, &stage, &launcher, pairs, &tell) {
                    Err(Error::Interrupted) => return Ok((report, true)),
                    other => other?,
                }
            }
        };
        for row in rows {
            audience.row(&row);
            report.rows.push(row);
        }
    }
    Ok((report, false))
}

/// The cases that the names choose: `BENCH`, or `BENCH/TEXT` for those whose name contains TEXT. Servers and
/// what `--quick` leaves out come only when named.
///
/// # Errors
/// A name that chooses nothing; the message lists the benches.
pub fn chosen(choice: &Choice) -> Result<Vec<Case>, Error> {
    let mut cases = cases::all();
    for name in &choice.names {
        if !cases.iter().any(|case| names(name, case)) {
            let benches: Vec<&str> = BENCHES.iter().map(|(bench, _)| *bench).collect();
            return Err(Error::Usage(format!(
                "{name} names no case: give one of {}, or BENCH/TEXT for those whose name contains TEXT \
                 (bywash bench run --list shows all)",
                benches.join(", ")
            )));
        }
    }
    cases.retain(|case| match choice.names.as_slice() {
        [] => case.in_quick || !choice.quick,
        given => given.iter().any(|name| {
            // A bench named as a whole is still shortened by --quick, unless that would leave nothing.
            let whole = name == case.bench && case.bench != "servers";
            names(name, case) && (case.in_quick || !choice.quick || !whole)
        }),
    });
    Ok(cases)
}

fn names(name: &str, case: &Case) -> bool {
    match name.split_once('/') {
        None => name == case.bench,
        Some((bench, text)) => bench == case.bench && case.name.to_lowercase().contains(&text.to_lowercase()),
    }
}

/// Pairs of indexes into `cases` and `offers`. All of one bench on one place come together, as they share
/// files; a quick run takes each case to one place only, the next case to the next.
fn plan(cases: &[Case], offers: &[&Offer], quick: bool) -> Vec<(usize, usize)> {
    let fits = |case: &Case, offer: &Offer| case.places.contains(&offer.kind());
    if quick {
        let place_of = |number: usize| {
            let fitting: Vec<usize> =
                (0..offers.len()).filter(|offer| fits(&cases[number], offers[*offer])).collect();
            fitting.get(number % fitting.len().max(1)).map(|offer| (number, *offer))
        };
        return (0..cases.len()).filter_map(place_of).collect();
    }
    let mut plan = Vec::new();
    for (bench, _) in BENCHES {
        for (place, offer) in offers.iter().enumerate() {
            let here = cases.iter().enumerate().filter(|(_, case)| case.bench == *bench && fits(case, offer));
            plan.extend(here.map(|(number, _)| (number, place)));
        }
    }
    plan
}

/// One bench's folder at a time, so that a run needs no more room than its largest bench.
fn make_room(in_use: &mut Option<PathBuf>, folder: &std::path::Path) -> Result<(), Error> {
    if in_use.as_deref() != Some(folder) {
        if let Some(old) = in_use.take()
            && old.exists()
        {
            std::fs::remove_dir_all(&old).map_err(|error| Error::io("remove", &old, error))?;
        }
        std::fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, error))?;
        *in_use = Some(folder.to_path_buf());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(names: &[&str], quick: bool) -> usize {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        chosen(&Choice { names, quick, ..Choice::default() }).unwrap().len()
    }

    #[test]
    fn names_choose() {
        assert_eq!(count(&["sqlite/SELECT"], false), 2);
        assert_eq!(count(&["sqlite", "tools"], false), count(&["sqlite"], false) + 5);
        assert!(count(&["sqlite"], true) < count(&["sqlite"], false));
        assert_eq!(count(&["servers"], true), 4);
        assert_eq!(count(&[], false), cases::all().len());
        assert!(
            !chosen(&Choice { quick: true, ..Choice::default() })
                .unwrap()
                .iter()
                .any(|c| c.bench == "servers")
        );
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_list() {
        let error = chosen(&Choice { names: vec!["sqllite".into()], ..Choice::default() }).err().unwrap();
        let message = error.to_string();
        assert!(message.contains("sqllite") && message.contains("berkeley"), "{message}");
    }

    #[test]
    fn a_full_plan_is_every_case_on_every_place_and_a_quick_one_visits_all_places() {
        let absent = |kind| Offer::Absent { kind, name: String::new(), why: String::new() };
        let offers: Vec<Offer> = Kind::ALL.iter().map(|kind| absent(*kind)).collect();
        let offers: Vec<&Offer> = offers.iter().collect();
        let all = cases::all();
        let pairs: usize = all.iter().map(|case| case.places.len()).sum();
        assert_eq!(plan(&all, &offers, false).len(), pairs);
        let quick = plan(&all, &offers, true);
        assert_eq!(quick.len(), all.len());
        assert!((0..offers.len()).all(|place| quick.iter().any(|(_, at)| *at == place)));
    }
}
