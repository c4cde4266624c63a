//! From file to file and from device to device: what `bywash flow` chooses against each mover that it could be made to
//! take, and against the programs that copy.
//!
//! All sides are processes, so that starting one is part of it, as it is for a user. Where a copy takes about as long as
//! the start, further rows have the copy alone.

use super::part::{Part, Stage, repeats};
use super::process::{Process, command, this_program};
use super::rounds::{self, Frame, Metric, Outcome, Runs, Side, State, Work};
use super::route::{Ends, Route};
use crate::child;
use crate::error::Error;
use crate::programs::require;
use crate::row::Row;
use bywash_flow::plan::Mover;
use bywash_flow::size::Bytes;
use bywash_flow::{Endpoint, Flow};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const MIB: u64 = 1 << 20;
const SIZES: [u64; 5] = [MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1 << 30];
const SIZES_QUICK: [u64; 2] = [MIB, 16 * MIB];
/// The size with which the other programs are measured.
const WITH_PROGRAMS: u64 = 256 * MIB;
const WITH_PROGRAMS_QUICK: u64 = 16 * MIB;
const ROUTES: [Route; 5] = [Route::Tmpfs, Route::Disk, Route::DiskToXfs, Route::TmpfsToDisk, Route::Raw];

/// At most 1.1 times the CPU time of the best mover.
const GOAL_CPU: f64 = 1.0 / 1.1;
/// The choice is within 5 % of the best mover.
pub const GOAL_CHOICE: f64 = 0.95;
/// Speed against cp that a copy must have where the file system shares blocks.
const GOAL_CP: f64 = 1.0;
/// A copy of this size takes about as long as the start of its process.
const START_COUNTS: u64 = 16 * MIB;
/// From here on processor time may be preferred: what is measured is more than the start.
const WITH_PREFERENCE: u64 = 256 * MIB;
/// Durable, on the disk.
const GOAL_DURABLE: f64 = 3.0;

const BENCH: &str = "flow/disk";
/// Each mover has rows of its own, which would bury the others.
pub const BENCH_MOVERS: &str = "flow/movers";
/// As a peer: that mover which was best.
pub const BEST: &str = "best mover";
const CP_SYNC: &str = "cp && sync";
const PREFER_CPU: &str = "--prefer cpu";

/// The parts of this bench.
pub fn parts(folder: &Path, quick: bool) -> Vec<Part> {
    let part = |what: String, route: Route, bytes: u64, headline, measure| Part {
        frame: Frame { bench: BENCH, what, place: route.name(folder), bytes, note: String::new() },
        kinds: route.places().to_vec(),
        headline,
        measure,
    };
    let mut parts = Vec::new();
    for bytes in if quick { SIZES_QUICK.as_slice() } else { &SIZES } {
        for route in ROUTES {
            let headline = (Metric::Throughput, "cp", goal_with_start(*bytes, route == Route::Raw));
            let measure = move |stage: &Stage<'_>, frame: &Frame| copy(stage, frame, route);
            parts.push(part(Bytes(*bytes).to_string(), route, *bytes, headline, Box::new(measure)));
        }
    }
    let large = if quick { 64 * MIB } else { 1 << 30 };
    let headline = (Metric::Throughput, CP_SYNC, Some(GOAL_DURABLE));
    let name = |what| format!("{}, {what}", Bytes(large));
    parts.push(part(name("durable"), Route::Disk, large, headline, Box::new(durable)));
    let headline = (Metric::Time, "cp", Some(GOAL_CP));
    parts.push(part(name("shared blocks"), Route::Xfs, large, headline, Box::new(reflink)));
    parts
}

/// The least that a copy of so many bytes may reach of the best mover's throughput, and of that of cp: finding out which
/// mover is the best costs the less the longer the copy is.
fn goal_of_choice(bytes: u64) -> f64 {
    const LONG: u64 = 1 << 30;
    match bytes {
        ..=67_108_863 => 1.0 / 1.10,
        67_108_864..LONG => 1.0 / 1.05,
        _ => 1.0 / 1.02,
    }
}

/// The goal of a row in which starting the process is a part: none where the same part has rows of the copy alone.
fn goal_with_start(bytes: u64, is_raw: bool) -> Option<f64> {
    (bytes != START_COUNTS || is_raw).then(|| goal_of_choice(bytes))
}

/// One size on one route.
fn copy(stage: &Stage<'_>, frame: &Frame, route: Route) -> Result<Vec<Row>, Error> {
    let ends = Ends::make(route, stage.places, frame.bytes)?;
    let took = movers_taken(&ends, &[])?;
    let movers = movers(&ends)?;
    let mut sides = vec![Side::new("bywash", || flow(&ends, &[]))];
    for mover in &movers {
        let ends = &ends;
        sides.push(Side::new(mover.to_string(), move || flow(ends, &["--via", &mover.to_string()])));
    }
    let with_preference = frame.bytes >= WITH_PREFERENCE;
    if with_preference {
        sides.push(Side::new(PREFER_CPU, || flow(&ends, &["--prefer", "cpu"])));
    }
    let with_programs = frame.bytes == if stage.quick { WITH_PROGRAMS_QUICK } else { WITH_PROGRAMS };
    for program in PROGRAMS.iter().take(if with_programs { PROGRAMS.len() } else { 1 }) {
        let ends = &ends;
        sides.push(Side::new(program.name, move || timed((program.command)(ends)?)));
    }
    let runs = rounds::run(sides, &work(stage, frame, &ends))?;
    let frame = Frame { note: format!("bywash took {took}"), ..frame.clone() };
    let (ours, others) = (&runs[0], &runs[1..]);
    let (by_mover, others) = others.split_at(movers.len());
    let (preferring, by_program) = others.split_at(usize::from(with_preference));
    let goal = goal_with_start(frame.bytes, ends.is_raw());
    let mut rows = rows_of(&frame, goal, ours, by_mover, by_program);
    if goal.is_none()
        && let Some(empty) = ends.empty()?
    {
        rows.extend(without_start(stage, &frame, &ends, &empty, &movers)?);
    }
    if let [preferring] = preferring {
        let all: Vec<&Runs> = by_mover.iter().collect();
        let frame = Frame { what: format!("{}, {PREFER_CPU}", frame.what), note: String::new(), ..frame };
        rows.extend(frame.row_of_best(Metric::Cpu, preferring, &all, BEST, Some(GOAL_CPU)));
        rows.push(frame.row(Metric::Cpu, preferring, ours, None));
        rows.push(frame.row(Metric::Throughput, preferring, ours, None));
    }
    Ok(rows)
}

/// The copy alone: from every run is taken what the same program takes for an empty file just before.
fn without_start(
    stage: &Stage<'_>,
    frame: &Frame,
    ends: &Ends,
    empty: &Ends,
    movers: &[Mover],
) -> Result<Vec<Row>, Error> {
    fn apart<'a>(
        name: impl Into<String>,
        ends: [&'a Ends; 2],
        run: impl Fn(&Ends) -> Result<Outcome, Error> + 'a,
    ) -> Side<'a> {
        let [empty, ends] = ends;
        Side::new(name, move || {
            empty.clear()?;
            let start = run(empty)?;
            Ok(run(ends)?.less(start))
        })
    }
    let both = [empty, ends];
    let mut sides = vec![apart("bywash", both, |ends| flow(ends, &[]))];
    sides.push(apart("cp", both, |ends| timed(cp(ends)?)));
    for mover in movers {
        let via = mover.to_string();
        sides.push(apart(via.clone(), both, move |ends| flow(ends, &["--via", &via])));
    }
    let runs = rounds::run(sides, &work(stage, frame, ends))?;
    let note = format!("less what the same program takes for an empty file; {}", frame.note);
    let frame = Frame { what: format!("{}, start-up apart", frame.what), note, ..frame.clone() };
    let goal = Some(goal_of_choice(frame.bytes));
    let movers: Vec<&Runs> = runs[2..].iter().collect();
    let mut rows = vec![frame.row(Metric::Throughput, &runs[0], &runs[1], goal)];
    rows.extend(frame.row_of_best(Metric::Throughput, &runs[0], &movers, BEST, goal));
    Ok(rows)
}

/// Rows of what is chosen against each mover and each program; `goal` is that of throughput.
fn rows_of(
    frame: &Frame,
    goal: Option<f64>,
    ours: &Runs,
    by_mover: &[Runs],
    by_program: &[Runs],
) -> Vec<Row> {
    let all: Vec<&Runs> = by_mover.iter().collect();
    let goals = [(Metric::Throughput, goal), (Metric::Cpu, Some(GOAL_CPU))];
    let mut rows: Vec<Row> = goals
        .into_iter()
        .filter_map(|(metric, goal)| frame.row_of_best(metric, ours, &all, BEST, goal))
        .collect();
    for program in by_program {
        let goal = goal.filter(|_| program.name == "cp");
        rows.push(frame.row(Metric::Throughput, ours, program, goal));
        rows.push(frame.row(Metric::Cpu, ours, program, None));
    }
    let each = Frame { bench: BENCH_MOVERS, ..frame.clone() };
    for mover in by_mover {
        rows.extend([Metric::Throughput, Metric::Cpu].map(|metric| each.row(metric, ours, mover, None)));
    }
    rows
}

/// What is on the device when it ends.
fn durable(stage: &Stage<'_>, frame: &Frame) -> Result<Vec<Row>, Error> {
    /// Those that can come into question; the others take as long as cp.
    const VIAS: [&str; 2] = ["direct", "dontcache"];
    let ends = Ends::make(Route::Disk, stage.places, frame.bytes)?;
    let took = movers_taken(&ends, &["--sync"])?;
    let mut sides = vec![Side::new("bywash", || flow(&ends, &["--sync"]))];
    for via in VIAS {
        let ends = &ends;
        sides.push(Side::new(via, move || flow(ends, &["--sync", "--via", via])));
    }
    sides.push(Side::new(CP_SYNC, || {
        let mut both = command("sh");
        both.args(["-c", "cp \"$1\" \"$2\" && sync \"$2\"", "sh"]).args([&ends.source, &ends.sink]);
        timed(both)
    }));
    let runs = rounds::run(sides, &work(stage, frame, &ends))?;
    let frame = Frame { note: format!("bywash took {took}"), ..frame.clone() };
    let (ours, movers, cp) = (&runs[0], [&runs[1], &runs[2]], &runs[3]);
    let mut rows = vec![
        frame.row(Metric::Throughput, ours, cp, Some(GOAL_DURABLE)),
        frame.row(Metric::Cpu, ours, cp, None),
    ];
    rows.extend(frame.row_of_best(Metric::Throughput, ours, &movers, BEST, Some(GOAL_CHOICE)));
    rows.extend(frame.row_of_best(Metric::Cpu, ours, &movers, BEST, Some(GOAL_CPU)));
    Ok(rows)
}

/// Where blocks can be shared, nothing has to be copied.
fn reflink(stage: &Stage<'_>, frame: &Frame) -> Result<Vec<Row>, Error> {
    let ends = Ends::make(Route::Xfs, stage.places, frame.bytes)?;
    let took = movers_taken(&ends, &[])?;
    if took != Mover::Reflink.to_string() {
        return Err(Error::failed("bywash flow", format!("took {took} where blocks can be shared")));
    }
    let copies = |how: &'static str| {
        let ends = &ends;
        move || {
            let mut cp = command("cp");
            cp.args([how.as_ref(), ends.source.as_os_str(), ends.sink.as_os_str()]);
            timed(cp)
        }
    };
    let sides = vec![
        Side::new("bywash", || flow(&ends, &[])),
        Side::new("cp", copies("--reflink=auto")),
        Side::new("cp --reflink=never", copies("--reflink=never")),
    ];
    let runs = rounds::run(sides, &Work { repeats: 1, ..work(stage, frame, &ends) })?;
    let frame = Frame { note: format!("bywash took {took}"), ..frame.clone() };
    Ok(vec![
        frame.row(Metric::Time, &runs[0], &runs[1], Some(GOAL_CP)),
        frame.row(Metric::Time, &runs[0], &runs[2], None),
    ])
}

fn work<'a>(stage: &Stage<'_>, frame: &Frame, ends: &'a Ends) -> Work<'a> {
    Work { state: ends, repeats: repeats(frame.bytes, stage.quick), pairs: stage.pairs }
}

/// The movers that can be had between these ends: those that can be planned, and that the kernel then goes along with
/// for a first piece.
///
/// # Errors
/// That the library does not understand its own words.
pub fn movers(ends: &Ends) -> Result<Vec<Mover>, Error> {
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
        // What fails for another reason is to be seen as a row that says so.
        if !matches!(tried, Err(bywash_flow::Error::Unfit { .. })) {
            movers.push(mover);
        }
    }
    Ok(movers)
}

/// The flow between these ends, in this process.
///
/// # Errors
/// As [`movers`].
pub fn flow_of(ends: &Ends) -> Result<Flow, Error> {
    let [source, sink] = ends.words();
    flow_between(&source, &sink)
}

/// The flow between two ends in words.
///
/// # Errors
/// As [`movers`].
pub fn flow_between(source: &str, sink: &str) -> Result<Flow, Error> {
    let end = |words: &str| words.parse::<Endpoint>().map_err(|error| failed(&error.to_string()));
    Ok(Flow::new(end(source)?, end(sink)?))
}

/// The movers that a flow took in the end, as it says itself.
fn movers_taken(ends: &Ends, flags: &[&str]) -> Result<String, Error> {
    ends.clear()?;
    let mut command = this_program()?;
    command.args(["flow", "--json"]).args(flags).args(ends.words());
    let told: serde_json::Value = serde_json::from_str(&child::run(&mut command)?.stdout)
        .map_err(|error| failed(&format!("said what is no JSON: {error}")))?;
    let pieces = told["pieces"].as_array().map(Vec::as_slice).unwrap_or_default();
    let movers: Vec<&str> = pieces.iter().filter_map(|piece| piece["mover"].as_str()).collect();
    match movers.is_empty() {
        true => Err(failed("does not say which mover it took")),
        false => Ok(movers.join(", ")),
    }
}

fn failed(how: &str) -> Error {
    Error::failed("bywash flow", how.into())
}

/// `bywash flow` with `flags`, once.
fn flow(ends: &Ends, flags: &[&str]) -> Result<Outcome, Error> {
    let mut command = this_program()?;
    command.args(["flow", "--quiet"]).args(flags).args(ends.words());
    timed(command)
}

/// Runs `command` to its end.
fn timed(command: Command) -> Result<Outcome, Error> {
    let begin = Instant::now();
    let cpu_seconds = Process::start(command)?.finish()?;
    Ok(Outcome { seconds: begin.elapsed().as_secs_f64(), cpu_seconds, lost: 0.0 })
}

/// A program that copies.
struct Program {
    name: &'static str,
    command: fn(&Ends) -> Result<Command, Error>,
}

/// cp first, which is measured everywhere.
const PROGRAMS: [Program; 5] = [
    Program { name: "cp", command: cp },
    Program { name: "pv", command: pv },
    Program { name: "mbuffer", command: mbuffer },
    Program { name: "socat", command: socat },
    Program { name: "dd bs=1M", command: dd },
];

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
    let sink = |path: &Path| match ends.is_raw() {
        true => format!("OPEN:{},wronly", path.display()),
        false => format!("CREATE:{}", path.display()),
    };
    command.args(["-u".to_owned(), format!("OPEN:{},rdonly", ends.source.display()), sink(&ends.sink)]);
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
    use super::*;

    fn runs(name: &str, seconds: f64) -> Runs {
        Runs {
            name: name.into(),
            outcomes: Ok(vec![Outcome { seconds, cpu_seconds: seconds, lost: 0.0 }; 3]),
        }
    }

    #[test]
    fn the_goals_are_there_and_nothing_has_the_same_name_twice() {
        let frame = Frame {
            bench: BENCH,
            what: "1 MiB".into(),
            place: "tmpfs".into(),
            bytes: 1,
            note: "bywash took splice".into(),
        };
        let movers = [runs("splice", 1.0), runs("buffer", 2.0)];
        let programs = [runs("cp", 1.0), runs("pv", 1.0)];
        let rows = rows_of(&frame, Some(goal_of_choice(1)), &runs("bywash", 1.0), &movers, &programs);
        let goals: Vec<(&str, &str, f64)> = rows
            .iter()
            .filter_map(|row| row.goal.map(|goal| (row.peer.as_str(), row.metric.as_str(), goal)))
            .collect();
        let wanted =
            [(BEST, "throughput", 1.0 / 1.10), (BEST, "cpu", GOAL_CPU), ("cp", "throughput", 1.0 / 1.10)];
        assert_eq!(goals, wanted);
        assert!(rows[0].note.contains("splice"), "{}", rows[0].note);
        for (number, row) in rows.iter().enumerate() {
            let name =
                |row: &Row| (row.bench.clone(), row.case.clone(), row.metric.clone(), row.peer.clone());
            assert!(rows[..number].iter().all(|other| name(other) != name(row)), "{row:?}");
        }
    }

    #[test]
    fn a_copy_that_takes_as_long_as_a_start_has_its_goal_without_it() {
        assert_eq!(goal_with_start(START_COUNTS, false), None);
        for (bytes, is_raw) in [(MIB, false), (START_COUNTS, true), (64 * MIB, false)] {
            assert_eq!(goal_with_start(bytes, is_raw), Some(goal_of_choice(bytes)));
        }
    }

    #[test]
    fn programs_copy() {
        let folder = tempfile::tempdir().unwrap();
        let places = crate::place::Places::make(folder.path(), &Route::Tmpfs.places()[..1], "").unwrap();
        let Ok(ends) = Ends::make(Route::Tmpfs, &places, MIB) else { return };
        for program in &PROGRAMS {
            ends.clear().unwrap();
            match (program.command)(&ends).and_then(timed) {
                Ok(outcome) => {
                    assert!(outcome.seconds > 0.0);
                    ends.check().unwrap();
                }
                Err(error) => assert!(error.is_absence(), "{}: {error}", program.name),
            }
        }
    }

    #[test]
    fn movers_between_files() {
        let folder = tempfile::tempdir().unwrap();
        let places = crate::place::Places::make(folder.path(), &Route::Tmpfs.places()[..1], "").unwrap();
        let Ok(ends) = Ends::make(Route::Tmpfs, &places, MIB) else { return };
        let movers = movers(&ends).unwrap();
        assert!(movers.contains(&Mover::Buffer) && !movers.contains(&Mover::Ring), "{movers:?}");
    }
}
