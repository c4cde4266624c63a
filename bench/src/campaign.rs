//! Chosen cases, measured one after the other, and the report that they make.
//!
//! A bench has a function that takes a [`Choice`], [`choose`]s among its cases by their names, makes what they need (folders,
//! servers), and hands them to [`run`]. A case that fails becomes rows that say so; only Ctrl-C ends a run early.

use crate::engine::Rounds;
use crate::error::Error;
use crate::machine::Machine;
use crate::row::{Report, Row};
use crate::table::distinct;
use std::path::PathBuf;

/// Choice of what to measure, as the command line says.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Names as in [`choose`]; none means everything.
    pub names: Vec<String>,
    /// Small sizes, few cases: whether it works, not how fast.
    pub quick: bool,
    pub rounds: u32,
    /// Folder on disk to work in, if not the usual one.
    pub folder: Option<PathBuf>,
    /// Only file systems whose name contains this.
    pub place: String,
}

impl Choice {
    /// The rounds of a case.
    pub fn rounds(&self) -> Rounds {
        Rounds::new(self.rounds)
    }
}

/// Watcher of a run.
pub trait Audience {
    /// Tells that `done` of `all` cases are over, and that `what` begins.
    fn progress(&mut self, done: u64, all: u64, what: &str);
    /// Tells a row that is complete.
    fn row(&mut self, row: &Row);
}

/// A case: the name that it is chosen by (`BENCH: CASE`), rows without figures, which take the reason if the case cannot be
/// measured, and a function that measures it.
pub struct Case<'a> {
    pub name: String,
    declared: Vec<Row>,
    measure: Box<dyn FnOnce() -> Result<Vec<Row>, Error> + 'a>,
}

impl<'a> Case<'a> {
    pub fn new(
        name: impl Into<String>,
        declared: Vec<Row>,
        measure: impl FnOnce() -> Result<Vec<Row>, Error> + 'a,
    ) -> Case<'a> {
        Case { name: name.into(), declared, measure: Box::new(measure) }
    }
}

/// A case that is declared before the resources `S` of its bench (folders, servers) exist: what they have to be follows
/// from the chosen cases.
pub struct Declared<S> {
    /// Row without figures: the bench, the case, and the headline of a case that cannot be measured.
    pub head: Row,
    name: String,
    measure: MeasureOn<S>,
}

type MeasureOn<S> = Box<dyn Fn(&S, &Row) -> Result<Vec<Row>, Error>>;

impl<S> Declared<S> {
    /// A case whose rows have `head` in common.
    pub fn new(head: Row, measure: impl Fn(&S, &Row) -> Result<Vec<Row>, Error> + 'static) -> Declared<S> {
        let bench = head.bench.split('/').next_back().unwrap_or_default();
        Declared { name: format!("{bench}: {}", head.case), head, measure: Box::new(measure) }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The case with its resources.
    pub fn on(self, stage: &S) -> Case<'_> {
        let Declared { head, name, measure } = self;
        Case::new(name, vec![head.clone()], move || measure(stage, &head))
    }
}

/// Measures `cases`. Returns the report, and whether the run was interrupted.
pub fn run(cases: Vec<Case<'_>>, audience: &mut dyn Audience) -> (Report, bool) {
    let (machine, version) = (Machine::this(), env!("CARGO_PKG_VERSION").into());
    let (mut report, all) = (Report { machine, version, rows: Vec::new() }, cases.len() as u64);
    for (case, done) in cases.into_iter().zip(0..) {
        audience.progress(done, all, &case.name);
        let rows = match (case.measure)() {
            Err(Error::Interrupted) => return (report, true),
            Err(error) => case.declared.into_iter().map(|row| row.without_numbers("", &error)).collect(),
            Ok(rows) => rows,
        };
        rows.iter().for_each(|row| audience.row(row));
        report.rows.extend(rows);
    }
    (report, false)
}

/// The cases that `names` choose; all of them if there is no name. A name chooses the case that has exactly that name, else
/// those whose name contains it, whatever its letters' case; `BENCH/TEXT` chooses the cases of a bench whose name contains
/// TEXT.
pub fn choose<C>(cases: Vec<C>, names: &[String], name_of: impl Fn(&C) -> &str) -> Result<Vec<C>, Error> {
    let all: Vec<String> = cases.iter().map(|case| name_of(case).to_lowercase()).collect();
    let fits = |case: &String, name: &String| {
        let wanted = name.to_lowercase();
        let is_of_bench = |(bench, text): (&str, &str)| {
            case.split_once(": ").is_some_and(|(own, case)| own == bench && case.contains(text))
        };
        match all.contains(&wanted) {
            true => *case == wanted,
            false => case.contains(&wanted) || wanted.split_once('/').is_some_and(is_of_bench),
        }
    };
    if let Some(name) = names.iter().find(|name| !all.iter().any(|case| fits(case, name))) {
        let benches = distinct(cases.iter().map(|case| name_of(case).split(": ").next().unwrap_or_default()));
        return Err(Error::Usage(format!(
            "no case has '{name}' in its name: give a part of one of {}, or BENCH/TEXT for the cases of one whose \
             name contains TEXT",
            benches.join(", ")
        )));
    }
    let is_chosen = |case: &String| names.is_empty() || names.iter().any(|name| fits(case, name));
    let named = cases.into_iter().zip(&all);
    Ok(named.filter(|(_, name)| is_chosen(name)).map(|(case, _)| case).collect())
}

/// The cases of a bench that were chosen, each with its name. A quick run leaves out what is not part of it, unless that would
/// leave nothing.
pub fn shortened<C>(
    named: Vec<(String, C)>,
    choice: &Choice,
    in_quick: impl Fn(&C) -> bool,
) -> Result<Vec<C>, Error> {
    let cases = choose(named, &choice.names, |(name, _)| name)?.into_iter().map(|(_, case)| case);
    let (short, long): (Vec<C>, Vec<C>) = match choice.quick {
        true => cases.partition(in_quick),
        false => (cases.collect(), Vec::new()),
    };
    Ok(if short.is_empty() { long } else { short })
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Audience for Vec<String> {
        fn progress(&mut self, done: u64, all: u64, what: &str) {
            self.push(format!("{done}/{all} {what}"));
        }

        fn row(&mut self, row: &Row) {
            self.push(row.note.clone());
        }
    }

    #[test]
    fn names_choose_and_a_case_that_fails_has_its_declared_rows_and_an_interruption_ends_the_run() {
        let case = |name, outcome: fn() -> Result<Vec<Row>, Error>| {
            Case::new(name, vec![Row { goal: Some(1.0), ..Row::default() }], outcome)
        };
        let cases = vec![
            case("a", || Ok(vec![Row { note: "measured".into(), ..Row::default() }])),
            case("b", || Err(Error::failed("b", "broke".into()))),
            case("c", || Err(Error::Interrupted)),
            case("d", || unreachable!()),
        ];
        let mut log = Vec::new();
        let (report, interrupted) = run(cases, &mut log);
        assert!(interrupted && report.rows.len() == 2 && report.rows[1].failed);
        assert_eq!(log, ["0/4 a", "measured", "1/4 b", "failed: b broke", "2/4 c"]);
        let cases = ["disk: 16 MiB, tmpfs", "disk: 16 MiB, tmpfs to ext4", "tcp: Copy", "sqlite: SELECT 1"];
        let chosen = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
            choose(cases.to_vec(), &names, |case| case)
        };
        assert_eq!(chosen(&[]).unwrap(), cases);
        assert_eq!(chosen(&["16 mib", "tcp"]).unwrap(), cases[..3]);
        assert_eq!(chosen(&["sqlite/select", "tcp/co"]).unwrap(), cases[2..]);
        // The whole name of one is the beginning of another's.
        assert_eq!(chosen(&["disk: 16 MiB, tmpfs"]).unwrap(), cases[..1]);
        let message = chosen(&["disk", "sqllite"]).unwrap_err().to_string();
        assert!(message.contains("sqllite") && message.contains("disk, tcp, sqlite"), "{message}");
    }
}
