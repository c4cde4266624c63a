//! From file to file and from device to device: what `bywash flow` chooses, against each mover that it can be forced to
//! use and against the programs that copy.
//!
//! All sides are processes, so that the start of a process counts, as it does for a user. Where a copy takes about as long
//! as the start, further rows have the copy alone.

use super::process::{self, Process, command};
use super::route::{Ends, Route};
use super::{BEST, GOAL_CHOICE, MIB, MOVERS, Needing, Outcome, Stage, cpu, row_of_best, throughput, time};
use crate::campaign::Declared;
use crate::child;
use crate::engine::Runs;
use crate::error::Error;
use crate::programs::require;
use crate::row::Row;
use bywash_flow::plan::Mover;
use bywash_flow::{Endpoint, Flow};
use bywash_quantity::Bytes;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const SIZES: [u64; 5] = [MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1 << 30];
const SIZES_QUICK: [u64; 2] = [MIB, 16 * MIB];
/// Size with which the programs other than cp are measured.
const WITH_PROGRAMS: u64 = 256 * MIB;
const WITH_PROGRAMS_QUICK: u64 = 16 * MIB;
/// Size from which on `--prefer cpu` is measured: copies that take longer than the start of a process.
const WITH_PREFERENCE: u64 = 256 * MIB;
/// Size of a copy that takes about as long as the start of its process.
const START_COUNTS: u64 = 16 * MIB;
const ROUTES: [Route; 5] = [Route::Tmpfs, Route::Disk, Route::DiskToXfs, Route::TmpfsToDisk, Route::Raw];

/// Goal of CPU time: at most 1.1 times that of the best mover.
const GOAL_CPU: f64 = 1.0 / 1.1;
/// Goal of a copy with shared blocks, against cp.
const GOAL_SHARED: f64 = 1.0;
/// Goal of a durable copy on the disk, against cp and sync.
const GOAL_DURABLE: f64 = 3.0;
const CP_SYNC: &str = "cp && sync";
const PREFER_CPU: &str = "--prefer cpu";

pub(super) fn cases(folder: &Path, quick: bool) -> Vec<Needing> {
    let mut cases: Vec<Needing> = Vec::new();
    let head = |what: String, route: Route| Row::head("flow/disk", &what, &route.name(folder));
    for bytes in if quick { SIZES_QUICK.as_slice() } else { &SIZES }.iter().copied() {
        for route in ROUTES {
            let goal = goal_with_start(bytes, route == Route::Raw);
            let head = throughput(bytes).head(&head(Bytes(bytes).to_string(), route), "cp", goal);
            let case = Declared::new(head, move |stage, head| copy(stage, head, bytes, route));
            cases.push((route.kinds().to_vec(), case));
        }
    }
    let large = if quick { 64 * MIB } else { 1 << 30 };
    let name = |what| format!("{}, {what}", Bytes(large));
    let durable_head =
        throughput(large).head(&head(name("durable"), Route::Disk), CP_SYNC, Some(GOAL_DURABLE));
    let shared_head = time().head(&head(name("shared blocks"), Route::Xfs), "cp", Some(GOAL_SHARED));
    let durable = Declared::new(durable_head, move |stage, head| durable(stage, head, large));
    let shared = Declared::new(shared_head, move |stage, head| shared(stage, head, large));
    cases.push((Route::Disk.kinds().to_vec(), durable));
    cases.push((Route::Xfs.kinds().to_vec(), shared));
    cases
}

/// Goal of a copy's throughput, as a share of the best mover's and of cp's. The longer a copy is, the less do the trials
/// of the movers cost.
fn goal_of_choice(bytes: u64) -> f64 {
    const LONG: u64 = 1 << 30;
    match bytes {
        ..=67_108_863 => 1.0 / 1.10,
        67_108_864..LONG => 1.0 / 1.05,
        _ => 1.0 / 1.02,
    }
}

/// Goal of a row that includes the start of the process: none if another row has the copy alone.
fn goal_with_start(bytes: u64, is_raw: bool) -> Option<f64> {
    (bytes != START_COUNTS || is_raw).then(|| goal_of_choice(bytes))
}

/// One size on one route.
fn copy(stage: &Stage, head: &Row, bytes: u64, route: Route) -> Result<Vec<Row>, Error> {
    let ends = Ends::make(route, &stage.places, bytes)?;
    let took = movers_taken(&ends, &[])?;
    let movers = movers(&ends)?;
    let mut sides = vec![ends.side("bywash", || flow(&ends, &[]))];
    for mover in &movers {
        let ends = &ends;
        sides.push(ends.side(mover.to_string(), move || flow(ends, &["--via", &mover.to_string()])));
    }
    let with_preference = bytes >= WITH_PREFERENCE;
    if with_preference {
        sides.push(ends.side(PREFER_CPU, || flow(&ends, &["--prefer", "cpu"])));
    }
    let with_programs = bytes == if stage.quick { WITH_PROGRAMS_QUICK } else { WITH_PROGRAMS };
    for (name, command) in PROGRAMS.iter().take(if with_programs { PROGRAMS.len() } else { 1 }) {
        let ends = &ends;
        sides.push(ends.side(*name, move || timed(&mut command(ends)?)));
    }
    let runs = stage.run(sides, bytes, stage.rounds)?;
    let head = Row { note: format!("bywash took {took}"), ..head.clone() };
    let (ours, others) = (&runs[0], &runs[1..]);
    let (by_mover, others) = others.split_at(movers.len());
    let (preferring, by_program) = others.split_at(usize::from(with_preference));
    let goal = goal_with_start(bytes, ends.is_raw());
    let mut rows = rows_of(&head, bytes, goal, ours, by_mover, by_program);
    if goal.is_none()
        && let Some(empty) = ends.empty()?
    {
        rows.extend(without_start(stage, &head, bytes, [&empty, &ends], &movers)?);
    }
    if let [preferring] = preferring {
        let head = Row { note: String::new(), ..renamed(&head, PREFER_CPU) };
        rows.extend(row_of_best(&cpu(bytes), &head, preferring, by_mover, BEST, Some(GOAL_CPU)));
        rows.push(cpu(bytes).row(&head, preferring, ours, None));
        rows.push(throughput(bytes).row(&head, preferring, ours, None));
    }
    Ok(rows)
}

/// The head of further rows of a case.
fn renamed(head: &Row, more: &str) -> Row {
    let head = head.clone();
    let case = match head.case.strip_suffix(&format!(", {}", head.place)) {
        Some(what) => format!("{what}, {more}, {}", head.place),
        None => format!("{}, {more}", head.case),
    };
    Row { case, ..head }
}

/// One run between two ends.
type Run = Box<dyn Fn(&Ends) -> Result<Outcome, Error>>;

/// The copy alone: each run is reduced by the time that the same program takes for an empty file just before.
fn without_start(
    stage: &Stage,
    head: &Row,
    bytes: u64,
    [empty, ends]: [&Ends; 2],
    movers: &[Mover],
) -> Result<Vec<Row>, Error> {
    let apart = |name: &str, run: Run| {
        ends.side(name, move || {
            empty.clear()?;
            let start = run(empty)?;
            Ok(run(ends)?.less(start))
        })
    };
    let mut sides = vec![
        apart("bywash", Box::new(|ends| flow(ends, &[]))),
        apart("cp", Box::new(|ends| timed(&mut cp(ends)?))),
    ];
    for via in movers.iter().map(Mover::to_string) {
        sides.push(apart(&via.clone(), Box::new(move |ends| flow(ends, &["--via", &via]))));
    }
    let runs = stage.run(sides, bytes, stage.rounds)?;
    let note = format!("less what the same program takes for an empty file; {}", head.note);
    let head = Row { note, ..renamed(head, "start-up apart") };
    let (metric, goal) = (throughput(bytes), Some(goal_of_choice(bytes)));
    let mut rows = vec![metric.row(&head, &runs[0], &runs[1], goal)];
    rows.extend(row_of_best(&metric, &head, &runs[0], &runs[2..], BEST, goal));
    Ok(rows)
}

/// Rows of the planner's choice against each mover and each program; `goal` is that of throughput.
fn rows_of(
    head: &Row,
    bytes: u64,
    goal: Option<f64>,
    ours: &Runs<Outcome>,
    by_mover: &[Runs<Outcome>],
    by_program: &[Runs<Outcome>],
) -> Vec<Row> {
    let metrics = [(throughput(bytes), goal), (cpu(bytes), Some(GOAL_CPU))];
    let best =
        metrics.iter().filter_map(|(metric, goal)| row_of_best(metric, head, ours, by_mover, BEST, *goal));
    let mut rows: Vec<Row> = best.collect();
    for program in by_program {
        let goal = goal.filter(|_| program.name == "cp");
        rows.push(throughput(bytes).row(head, ours, program, goal));
        rows.push(cpu(bytes).row(head, ours, program, None));
    }
    let each = Row { bench: MOVERS.into(), ..head.clone() };
    for mover in by_mover {
        rows.extend(metrics.iter().map(|(metric, _)| metric.row(&each, ours, mover, None)));
    }
    rows
}

/// A copy that is on the device when the program ends.
fn durable(stage: &Stage, head: &Row, bytes: u64) -> Result<Vec<Row>, Error> {
    /// The movers that can be best; the others take as long as cp.
    const VIAS: [&str; 2] = ["direct", "dontcache"];
    let ends = Ends::make(Route::Disk, &stage.places, bytes)?;
    let took = movers_taken(&ends, &["--sync"])?;
    let mut sides = vec![ends.side("bywash", || flow(&ends, &["--sync"]))];
    for via in VIAS {
        let ends = &ends;
        sides.push(ends.side(via, move || flow(ends, &["--sync", "--via", via])));
    }
    sides.push(ends.side(CP_SYNC, || {
        let mut both = command("sh");
        both.args(["-c", "cp \"$1\" \"$2\" && sync \"$2\"", "sh"]).args([&ends.source, &ends.sink]);
        timed(&mut both)
    }));
    let runs = stage.run(sides, bytes, stage.rounds)?;
    let head = Row { note: format!("bywash took {took}"), ..head.clone() };
    let (ours, movers, cp) = (&runs[0], &runs[1..=VIAS.len()], &runs[VIAS.len() + 1]);
    let mut rows = vec![
        throughput(bytes).row(&head, ours, cp, Some(GOAL_DURABLE)),
        cpu(bytes).row(&head, ours, cp, None),
    ];
    rows.extend(row_of_best(&throughput(bytes), &head, ours, movers, BEST, Some(GOAL_CHOICE)));
    rows.extend(row_of_best(&cpu(bytes), &head, ours, movers, BEST, Some(GOAL_CPU)));
    Ok(rows)
}

/// A copy within a file system whose files can share blocks, where nothing has to be copied.
fn shared(stage: &Stage, head: &Row, bytes: u64) -> Result<Vec<Row>, Error> {
    let ends = Ends::make(Route::Xfs, &stage.places, bytes)?;
    let took = movers_taken(&ends, &[])?;
    if took != Mover::Reflink.to_string() {
        return Err(failed(&format!("took {took} where blocks can be shared")));
    }
    let ends = &ends;
    let cp = |name: &str, flag: &'static str| {
        ends.side(name, move || {
            let mut cp = command("cp");
            timed(cp.arg(flag).args([&ends.source, &ends.sink]))
        })
    };
    let sides = vec![
        ends.side("bywash", || flow(ends, &[])),
        cp("cp", "--reflink=auto"),
        cp("cp --reflink=never", "--reflink=never"),
    ];
    // Each of them is timed alone, however short it is.
    let runs = stage.run(sides, u64::MAX, stage.rounds)?;
    let head = Row { note: format!("bywash took {took}"), ..head.clone() };
    Ok(vec![
        time().row(&head, &runs[0], &runs[1], Some(GOAL_SHARED)),
        time().row(&head, &runs[0], &runs[2], None),
    ])
}

/// Lists the movers that are possible between these ends: those that can be planned and that the kernel then accepts for
/// a first piece.
///
/// # Errors
/// [`Error::Failed`] if the library does not accept the endpoints.
pub(super) fn movers(ends: &Ends) -> Result<Vec<Mover>, Error> {
    let [source, sink] = ends.words();
    let whole = flow_between(&source, &sink)?;
    let piece = flow_between(&format!("{source},length={MIB}"), &sink)?;
    let mut movers = Vec::new();
    for mover in Mover::all().filter(|mover| whole.clone().via(*mover).plan().is_ok()) {
        ends.clear()?;
        let tried = piece
            .clone()
            .via(mover)
            .start()
            .and_then(|running| running.wait().map_err(|failed| failed.error));
        // A mover that fails for another reason gets a row that says so.
        if !matches!(tried, Err(bywash_flow::Error::Unfit { .. })) {
            movers.push(mover);
        }
    }
    Ok(movers)
}

/// Makes a flow of this process between two endpoints in words.
///
/// # Errors
/// [`Error::Failed`] if the library does not accept the endpoints.
pub(super) fn flow_between(source: &str, sink: &str) -> Result<Flow, Error> {
    let endpoint = |words: &str| words.parse::<Endpoint>().map_err(|error| failed(&error.to_string()));
    Ok(Flow::new(endpoint(source)?, endpoint(sink)?))
}

/// Runs a flow and returns the movers that it took, as it reports them.
fn movers_taken(ends: &Ends, flags: &[&str]) -> Result<String, Error> {
    ends.clear()?;
    let [source, sink] = ends.words();
    let mut command = process::flow(["--json"].iter().chain(flags), source, sink)?;
    let report: serde_json::Value = serde_json::from_str(&child::run(&mut command)?.stdout)
        .map_err(|error| failed(&format!("printed what is no JSON: {error}")))?;
    let pieces = report["pieces"].as_array().map(Vec::as_slice).unwrap_or_default();
    let movers: Vec<&str> = pieces.iter().filter_map(|piece| piece["mover"].as_str()).collect();
    match movers.is_empty() {
        true => Err(failed("does not report which mover it took")),
        false => Ok(movers.join(", ")),
    }
}

fn failed(how: &str) -> Error {
    Error::failed("bywash flow", how.into())
}

fn flow(ends: &Ends, flags: &[&str]) -> Result<Outcome, Error> {
    let [source, sink] = ends.words();
    timed(&mut process::flow(["--quiet"].iter().chain(flags), source, sink)?)
}

/// Runs a command to its end.
fn timed(command: &mut Command) -> Result<Outcome, Error> {
    let begin = Instant::now();
    let cpu_seconds = Process::start(command)?.finish()?;
    Ok(Outcome::new(begin.elapsed().as_secs_f64(), cpu_seconds))
}

/// Makes the command of a copy.
type Make = fn(&Ends) -> Result<Command, Error>;

/// Programs that copy; the first is measured with every size.
const PROGRAMS: [(&str, Make); 5] =
    [("cp", cp), ("pv", pv), ("mbuffer", mbuffer), ("socat", socat), ("dd bs=1M", dd)];

fn cp(ends: &Ends) -> Result<Command, Error> {
    let mut command = command(require("cp", "coreutils")?);
    command.args([&ends.source, &ends.sink]);
    Ok(command)
}

fn pv(ends: &Ends) -> Result<Command, Error> {
    let mut command = command(require("pv", "pv")?);
    let sink = File::options().create(!ends.is_raw()).truncate(!ends.is_raw()).write(true).open(&ends.sink);
    let sink = sink.map_err(|error| Error::io("open", &ends.sink, error))?;
    command.arg("-q").arg(&ends.source).stdout(sink);
    Ok(command)
}

fn mbuffer(ends: &Ends) -> Result<Command, Error> {
    let mut command = command(require("mbuffer", "mbuffer")?);
    command.args(["-q", "-f", "-i"]).arg(&ends.source).arg("-o").arg(&ends.sink);
    Ok(command)
}

fn socat(ends: &Ends) -> Result<Command, Error> {
    let mut command = command(require("socat", "socat")?);
    let sink = match ends.is_raw() {
        true => format!("OPEN:{},wronly", ends.sink.display()),
        false => format!("CREATE:{}", ends.sink.display()),
    };
    command.args(["-u".to_owned(), format!("OPEN:{},rdonly", ends.source.display()), sink]);
    Ok(command)
}

fn dd(ends: &Ends) -> Result<Command, Error> {
    let mut command = command(require("dd", "coreutils")?);
    let end = |name: &str, path: &Path| format!("{name}={}", path.display());
    command.args([end("if", &ends.source), end("of", &ends.sink), "bs=1M".into(), "status=none".into()]);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::super::route::equal;
    use super::super::tests::runs;
    use super::*;
    use crate::place::{Kind, Places};

    #[test]
    fn the_goals_are_there_and_no_row_is_there_twice() {
        let head = Row { note: "bywash took splice".into(), ..Row::head("flow/disk", "1 MiB", "tmpfs") };
        let movers = [runs("splice", 1.0), runs("buffer", 2.0)];
        let programs = [runs("cp", 1.0), runs("pv", 1.0)];
        let rows = rows_of(&head, 1, Some(goal_of_choice(1)), &runs("bywash", 1.0), &movers, &programs);
        let with_goal =
            rows.iter().filter_map(|row| Some((row.peer.as_str(), row.metric.as_str(), row.goal?)));
        let wanted =
            [(BEST, "throughput", 1.0 / 1.10), (BEST, "cpu", GOAL_CPU), ("cp", "throughput", 1.0 / 1.10)];
        assert_eq!(with_goal.collect::<Vec<_>>(), wanted);
        assert!(rows[0].note.contains("splice"), "{}", rows[0].note);
        for (number, row) in rows.iter().enumerate() {
            let name = |row: &Row| [&row.bench, &row.case, &row.metric, &row.peer].map(String::clone);
            assert!(rows[..number].iter().all(|other| name(other) != name(row)), "{row:?}");
        }
        assert_eq!(renamed(&head, "durable").case, "1 MiB, durable, tmpfs");
    }

    #[test]
    fn a_copy_that_takes_as_long_as_a_start_has_its_goal_without_it() {
        assert_eq!(goal_with_start(START_COUNTS, false), None);
        for (bytes, is_raw) in [(MIB, false), (START_COUNTS, true), (64 * MIB, false)] {
            assert_eq!(goal_with_start(bytes, is_raw), Some(goal_of_choice(bytes)));
        }
    }

    #[test]
    fn programs_copy_and_movers_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::make(folder.path(), &[Kind::Tmpfs], "").unwrap();
        let Ok(ends) = Ends::make(Route::Tmpfs, &places, MIB) else { return };
        for (name, command) in &PROGRAMS {
            ends.clear().unwrap();
            match command(&ends).and_then(|mut command| timed(&mut command)) {
                Ok(outcome) => {
                    assert!(outcome.seconds > 0.0);
                    equal(&ends.source, &ends.sink).unwrap();
                }
                Err(error) => assert!(error.is_absence(), "{name}: {error}"),
            }
        }
        let movers = movers(&ends).unwrap();
        assert!(movers.contains(&Mover::Buffer) && !movers.contains(&Mover::Ring), "{movers:?}");
    }
}
