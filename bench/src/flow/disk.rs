//! From file to file and from device to device: what `bywash flow` chooses, against each mover that it can be forced to
//! use and against the programs that copy.
//!
//! All sides are processes, so that the start of a process counts, as it does for a user. Where a copy takes about as long
//! as the start, further rows have the copy alone.

use super::Figure::{Cpu, Throughput, Time};
use super::route::{Ends, Route};
use super::transfer::{Net, Protocol, Transfer, reported};
use super::{BEST_MOVER, Figure, GOAL_CHOICE, Goal, Group, MIB, MOVERS, Needing, Peer, Stage, case};
use crate::error::Error;
use crate::row::Row;
use bywash_flow::plan::Mover;
use bywash_flow::{Endpoint, Flow};
use bywash_quantity::Bytes;
use std::path::Path;

const SIZES: [u64; 5] = [MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1 << 30];
/// Greatest size of a quick run.
const QUICK: u64 = 16 * MIB;
/// Size with which the programs other than cp are measured; in a quick run the greatest.
const WITH_PROGRAMS: u64 = 256 * MIB;
/// Size from which on `--prefer cpu` is measured: copies that take longer than the start of a process.
const WITH_PREFERENCE: u64 = 256 * MIB;
/// Size of a copy that takes about as long as the start of its process.
const START_COUNTS: u64 = 16 * MIB;
const ROUTES: [Route; 5] = [Route::TMPFS, Route::DISK, Route::DISK_TO_XFS, Route::TMPFS_TO_DISK, Route::RAW];

/// Goal of CPU time: at most 1.1 times that of the best mover.
const GOAL_CPU: Goal = (BEST_MOVER, Cpu, Some(1.0 / 1.1));
/// Goals of a durable copy on the disk, and of time with shared blocks.
const GOALS_DURABLE: [Goal; 3] =
    [(CP_SYNC.0, Throughput, Some(3.0)), (BEST_MOVER, Throughput, Some(GOAL_CHOICE)), GOAL_CPU];
const GOAL_SHARED: Goal = ("cp", Time, Some(1.0));
const PREFER_CPU: &str = "--prefer cpu";

/// Programs that copy; the first is measured with every size.
pub(super) const PROGRAMS: [(&str, &str); 5] = [
    ("cp", "cp {from} {to}"),
    ("pv", "pv -q {from} >{to}"),
    ("mbuffer", "mbuffer -q -f -i {from} -o {to}"),
    ("socat", "socat -u OPEN:{from},rdonly OPEN:{to},wronly,creat"),
    ("dd bs=1M", "dd if={from} of={to} bs=1M status=none"),
];
/// A copy that is on the device when the program ends.
pub(super) const CP_SYNC: (&str, &str) =
    ("cp && sync", "sh -c 'cp \"$0\" \"$1\" && sync \"$1\"' {from} {to}");
/// Copies with and without shared blocks.
const SHARING: [(&str, &str); 2] =
    [("cp", "cp --reflink=auto {from} {to}"), ("cp --reflink=never", "cp --reflink=never {from} {to}")];
/// The movers that can be best in a durable copy; the others take as long as cp.
const DURABLE: [&str; 2] = ["direct", "dontcache"];

pub(super) fn cases(folder: &Path, quick: bool) -> Vec<Needing> {
    let head = |bytes, more: &str, route: Route| {
        Row::head("flow/disk", &format!("{}{more}", Bytes(bytes)), &route.name(folder))
    };
    let mut cases: Vec<Needing> = Vec::new();
    for bytes in SIZES.into_iter().filter(|bytes| !quick || *bytes <= QUICK) {
        cases.extend(ROUTES.map(|route| {
            let measure = move |stage: &Stage, head: &Row| copy(stage, head, bytes, route);
            case(&route.kinds, &head(bytes, "", route), goals(bytes, route)[0], measure)
        }));
    }
    let large = if quick { 64 * MIB } else { 1 << 30 };
    let measure = move |stage: &Stage, head: &Row| durable(stage, head, large);
    let head_of_durable = head(large, ", durable", Route::DISK);
    cases.push(case(&Route::DISK.kinds, &head_of_durable, GOALS_DURABLE[0], measure));
    let measure = move |stage: &Stage, head: &Row| shared(stage, head, large);
    cases.push(case(&Route::XFS.kinds, &head(large, ", shared blocks", Route::XFS), GOAL_SHARED, measure));
    cases
}

/// Goal of a copy's throughput, as a share of the best mover's and of cp's. The longer a copy is, the less do the trials
/// of the movers cost.
fn goal_of_choice(bytes: u64) -> f64 {
    match bytes >> 20 {
        ..64 => 1.0 / 1.10,
        64..1024 => 1.0 / 1.05,
        _ => 1.0 / 1.02,
    }
}

/// Goals of a copy. None of throughput if another row has the copy without the start of the process.
fn goals(bytes: u64, route: Route) -> [Goal; 3] {
    let goal = (bytes != START_COUNTS || route.is_raw).then(|| goal_of_choice(bytes));
    [("cp", Throughput, goal), (BEST_MOVER, Throughput, goal), GOAL_CPU]
}

/// Our flow, and the flow by each mover.
fn flows<'a>(ends: &'a Ends, flags: &str, movers: &[String]) -> Vec<Peer<'a>> {
    let forced = |via: &String| (Group::Movers, ends.copying(via, flow(&format!("{flags} --via={via}"))));
    let ours = (Group::Ours, ends.copying("bywash", flow(flags)));
    std::iter::once(ours).chain(movers.iter().map(forced)).collect()
}

/// One size on one route.
fn copy(stage: &Stage, head: &Row, bytes: u64, route: Route) -> Result<Vec<Row>, Error> {
    let mut ends = Ends::make(route, &stage.places, bytes)?;
    let head = took(&ends, head, "")?;
    let movers: Vec<String> = movers(&ends)?.iter().map(Mover::to_string).collect();
    let mut peers = flows(&ends, "", &movers);
    if bytes >= WITH_PREFERENCE {
        peers.push((Group::Ours, ends.copying(PREFER_CPU, flow("--prefer=cpu"))));
    }
    let with_programs = bytes == if stage.quick { QUICK } else { WITH_PROGRAMS };
    for (name, line) in &PROGRAMS[..if with_programs { PROGRAMS.len() } else { 1 }] {
        peers.push((Group::Programs, ends.copying(name, *line)));
    }
    let contest = stage.contest(stage.rounds, bytes, peers)?;
    let goals = goals(bytes, route);
    let mut rows = contest.rows(&head, &[Throughput, Cpu], &goals);
    if let Some((_, preferring)) = contest.0.iter().find(|peer| peer.1.name == PREFER_CPU) {
        let head = Row { note: String::new(), ..renamed(&head, PREFER_CPU) };
        rows.extend(contest.row_of_best(&head, preferring, Group::Movers, Cpu, &goals));
        let row = |figure: Figure| figure.metric().row(&head, preferring, contest.ours(), None);
        rows.extend([Cpu, Throughput].map(row));
    }
    if goals[0].2.is_none() {
        ends.without_start()?;
        rows.extend(without_start(stage, &head, &ends, &movers)?);
    }
    Ok(rows)
}

/// The head of further rows of a case.
fn renamed(head: &Row, more: &str) -> Row {
    Row { case: Row::head("", &format!("{}, {more}", head.what()), &head.place).case, ..head.clone() }
}

fn without_start(stage: &Stage, head: &Row, ends: &Ends, movers: &[String]) -> Result<Vec<Row>, Error> {
    let note = format!("less what the same program takes for an empty file; {}", head.note);
    let head = Row { note, ..renamed(head, "start-up apart") };
    let goals = ["cp", BEST_MOVER].map(|peer| (peer, Throughput, Some(goal_of_choice(ends.bytes))));
    let mut peers = flows(ends, "", movers);
    peers.push((Group::Programs, ends.copying(PROGRAMS[0].0, PROGRAMS[0].1)));
    let mut rows = stage.contest(stage.rounds, ends.bytes, peers)?.rows(&head, &[Throughput], &goals);
    rows.retain(|row| row.bench != MOVERS);
    Ok(rows)
}

fn durable(stage: &Stage, head: &Row, bytes: u64) -> Result<Vec<Row>, Error> {
    let ends = Ends::make(Route::DISK, &stage.places, bytes)?;
    let head = took(&ends, head, "--sync")?;
    let mut peers = flows(&ends, "--sync", &DURABLE.map(String::from));
    peers.push((Group::Programs, ends.copying(CP_SYNC.0, CP_SYNC.1)));
    let contest = stage.contest(stage.rounds, bytes, peers)?;
    let mut rows = contest.rows(&head, &[Throughput, Cpu], &GOALS_DURABLE);
    rows.retain(|row| row.bench != MOVERS);
    Ok(rows)
}

/// A copy within a file system whose files can share blocks, where nothing has to be copied.
fn shared(stage: &Stage, head: &Row, bytes: u64) -> Result<Vec<Row>, Error> {
    let ends = Ends::make(Route::XFS, &stage.places, bytes)?;
    let head = took(&ends, head, "")?;
    if !head.note.ends_with(&Mover::Reflink.to_string()) {
        return Err(Error::failed(&head.note, "where blocks can be shared".into()));
    }
    let mut peers = flows(&ends, "", &[]);
    peers.extend(SHARING.map(|(name, line)| (Group::Programs, ends.copying(name, line))));
    // Each of them is timed alone, however short it is.
    Ok(stage.contest(stage.rounds, u64::MAX, peers)?.rows(&head, &[Time], &[GOAL_SHARED]))
}

fn flow(flags: &str) -> String {
    format!("bywash flow --quiet {flags} {{source}} {{sink}}")
}

/// The head with the mover that a flow takes, as it reports it.
fn took(ends: &Ends, head: &Row, flags: &str) -> Result<Row, Error> {
    ends.clear()?;
    let line = flow(flags).replace("--quiet", "--json");
    let (protocol, values) = (Protocol::Tcp, ends.values());
    let done = Net(None).run(&Transfer { protocol, lines: [&line, "", ""], is_told: false, values })?;
    done.cpu_seconds?;
    let mover: String = reported(&done.told[0], "/pieces/0/mover")?;
    Ok(Row { note: format!("bywash took {mover}"), ..head.clone() })
}

/// Lists the movers that are possible between these ends: those that can be planned and that the kernel then accepts for
/// a first piece.
pub(super) fn movers(ends: &Ends) -> Result<Vec<Mover>, Error> {
    let [source, sink] = ends.words();
    let piece = flow_between(&format!("{source},length={MIB}"), &sink)?;
    let mut movers = Vec::new();
    for mover in planned(&flow_between(&source, &sink)?) {
        ends.clear()?;
        let running = piece.clone().via(mover).start();
        let tried = running.and_then(|running| running.wait().map_err(|failed| failed.error));
        // A mover that fails for another reason gets a row that says so.
        if !matches!(tried, Err(bywash_flow::Error::Unfit { .. })) {
            movers.push(mover);
        }
    }
    Ok(movers)
}

/// Lists the movers that the planner accepts for a flow.
pub(super) fn planned(flow: &Flow) -> Vec<Mover> {
    Mover::all().filter(|mover| flow.clone().via(*mover).plan().is_ok()).collect()
}

/// Makes a flow of this process between two endpoints in words.
pub(super) fn flow_between(source: &str, sink: &str) -> Result<Flow, Error> {
    let failed = |error: bywash_flow::Error| Error::failed("bywash flow", error.to_string());
    let endpoint = |words: &str| words.parse::<Endpoint>().map_err(failed);
    Ok(Flow::new(endpoint(source)?, endpoint(sink)?))
}
