//! The same workload by our ways and by the peers, in turns.

use super::bound::Bound;
use super::client::{self, Figures, Target};
use super::export::Exported;
use super::ours::{Ours, Waiting, Way};
use super::peer::{CLIENT_CORE, Peer, SERVER_CORE, Stage, cores};
use super::server::{Device, Server, volume};
use super::sides::{self, Metric, Runs, Side};
use super::workload::{Direction, Order, Until, Workload};
use crate::error::Error;
use crate::number;
use crate::row::Row;
use std::fs;
use std::time::Duration;

/// Streams that the first of the papers has.
pub const STREAMS: usize = 23;
/// Clients at most of the other cases.
pub const CLIENTS_MAX: usize = 8;
/// What a command takes on the slow device.
pub const SLOW_NS: u64 = 4000;
/// Bytes a second of the device that clients share fairly.
const SHARED_BANDWIDTH: u64 = 400 << 20;

/// Our memory by vhost-user-blk, in rows.
const EXPORT: &str = "vhost-user-blk";
/// Rounds of what has no goal.
const PAIRS_WITHOUT_GOAL: u32 = 3;

/// Where our bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Memory.
    Fast,
    /// Memory whose commands take [`SLOW_NS`].
    Slow,
    /// Memory with a bandwidth that its clients share.
    Shared,
    /// A file on the disk.
    Disk,
}

impl Home {
    fn device(self) -> &'static str {
        match self {
            Home::Fast => "fast",
            Home::Slow => "slow",
            Home::Shared => "shared",
            Home::Disk => "disk",
        }
    }

    /// Clients that have a volume there.
    fn clients(self) -> usize {
        match self {
            Home::Fast => STREAMS,
            Home::Shared => CLIENTS_MAX,
            Home::Slow | Home::Disk => 1,
        }
    }
}

/// Everything that contests are held with.
pub struct House<'a> {
    /// What the peers have.
    pub stage: Stage<'a>,
    /// Whether it works, not how fast.
    pub quick: bool,
    /// Rounds.
    pub pairs: u32,
    /// Its core looks for requests for ever, while there are clients.
    spinning: Server,
    /// As servers are.
    usual: Server,
    /// Why there is no file on the disk.
    no_disk: Option<String>,
}

impl<'a> House<'a> {
    /// Starts our servers.
    ///
    /// # Errors
    /// What keeps them from serving.
    pub fn open(stage: Stage<'a>, quick: bool, pairs: u32) -> Result<House<'a>, Error> {
        let bytes = medium_bytes(quick);
        let device = |home: Home, kind: String| Device {
            spec: format!("{}={kind}", home.device()),
            volumes: home.clients(),
            volume_bytes: bytes,
        };
        let memory = |home: Home, options: &str| {
            device(home, format!("mem:{}{options}", home.clients() as u64 * bytes))
        };
        let mut devices = vec![memory(Home::Fast, "")];
        let usual = Server::start(stage.program, stage.folder, "usual", &devices, false, core())?;
        devices.push(memory(Home::Slow, &format!(",latency={SLOW_NS}")));
        devices.push(memory(Home::Shared, &format!(",bandwidth={SHARED_BANDWIDTH}/s")));
        let no_disk = match stage.media.folder(super::medium::Medium::Disk) {
            Err(error) if error.is_absence() => Some(error.to_string()),
            Err(error) => return Err(error),
            Ok(folder) => {
                let file = folder.join("device");
                // The server makes it as large as it is to be, with all its blocks, and those of its label.
                let _ = fs::remove_file(&file);
                let size = bytes + bywash_volume::RESERVED_BYTES;
                devices.push(device(Home::Disk, format!("file:{},size={size}", escaped(&file)?)));
                None
            }
        };
        // Where there is one core only, nobody else would have it.
        let spinning = Server::start(stage.program, stage.folder, "spinning", &devices, cores() > 1, core())?;
        Ok(House { stage, quick, pairs, spinning, usual, no_disk })
    }

    /// A workload on the media that there are.
    pub fn workload(&self, direction: Direction, block: usize, depth: usize) -> Workload {
        Workload {
            direction,
            order: Order::Random(1),
            block,
            medium_bytes: medium_bytes(self.quick),
            depth,
            at_a_time: 1,
            until: Until::Time(if self.quick { TIME_QUICK } else { TIME }),
        }
    }

    /// A shorter one, for a point of a curve.
    pub fn short(&self, direction: Direction, block: usize, depth: usize) -> Workload {
        let until = Until::Time(if self.quick { TIME_QUICK } else { TIME_OF_POINT });
        Workload { until, ..self.workload(direction, block, depth) }
    }

    /// Rounds of what has no goal.
    pub fn few(&self) -> u32 {
        self.pairs.min(PAIRS_WITHOUT_GOAL)
    }

    /// The server whose core looks for requests for ever, while there are clients.
    pub fn spinning(&self) -> &Server {
        &self.spinning
    }

    /// The server that sleeps when nobody asks for anything.
    pub fn usual(&self) -> &Server {
        &self.usual
    }

    /// Carries `workload` out by an export, from one client of the kind that other servers of that protocol have.
    fn run_export(&self, workload: &Workload) -> Result<Figures, Error> {
        let (program, folder) = (self.stage.program, self.stage.folder);
        let volume = volume(Home::Fast.device(), 0);
        let exported = Exported::start(program, self.usual.socket(), &volume, folder, core())?;
        let target = Target::VhostUser { socket: exported.socket().to_owned() };
        let on: &[usize] = if cores() > 1 { &[CLIENT_CORE] } else { &[] };
        client::run(program, &[target], workload, Some(exported.id()), on)
    }

    /// Carries `workload` out by a bound, whose clients have a volume of our memory each. The server has no part in it.
    fn run_bound(&self, bound: Bound, workload: &Workload, clients: usize) -> Result<Figures, Error> {
        let cores = bound.cores(clients)?;
        let target = |number| Target::Bound {
            socket: self.usual.socket().to_owned(),
            volume: volume(Home::Fast.device(), number),
            bound,
        };
        let targets: Vec<Target> = (0..clients).map(target).collect();
        client::run(self.stage.program, &targets, workload, None, &cores)
    }
}

/// How long a run goes on.
const TIME: Duration = Duration::from_millis(250);
const TIME_OF_POINT: Duration = Duration::from_millis(120);
const TIME_QUICK: Duration = Duration::from_millis(20);
/// Bytes of each client's medium.
const MEDIUM_BYTES: u64 = 32 << 20;
const MEDIUM_BYTES_QUICK: u64 = 4 << 20;

/// Bytes of each client's medium.
pub fn medium_bytes(quick: bool) -> u64 {
    if quick { MEDIUM_BYTES_QUICK } else { MEDIUM_BYTES }
}

/// Where our server's core runs.
pub fn core() -> Option<usize> {
    (cores() > 1).then_some(SERVER_CORE)
}

/// A path as a device's is written.
fn escaped(path: &std::path::Path) -> Result<String, Error> {
    let text = path
        .to_str()
        .ok_or_else(|| Error::Unavailable(format!("a device's path has to be UTF-8: {}", path.display())))?;
    Ok(text.replace('\\', "\\\\").replace(',', "\\,"))
}

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Our server, or its memory.
    Ours(Home, Way),
    /// Our memory by vhost-user-blk.
    Export,
    /// Somebody else's.
    Peer(Peer),
    /// Our memory, by what no way to it can be faster than.
    Bound(Bound),
}

impl Contender {
    /// Its name in rows.
    pub fn name(self) -> String {
        match self {
            Contender::Ours(_, way) => way.name().into(),
            Contender::Export => EXPORT.into(),
            Contender::Peer(peer) => peer.name(),
            Contender::Bound(bound) => bound.name().into(),
        }
    }

    /// Carries `workload` out, by so many clients.
    ///
    /// # Errors
    /// [`Error::is_absence`] when it cannot be had here; what failed.
    pub fn run(self, house: &House<'_>, workload: &Workload, clients: usize) -> Result<Figures, Error> {
        match self {
            Contender::Peer(peer) => peer.run(&house.stage, workload, clients),
            Contender::Export => house.run_export(workload),
            Contender::Bound(bound) => house.run_bound(bound, workload, clients),
            Contender::Ours(home, way) => {
                // Nobody looks for requests where there are none.
                let server = if way.is_mapped() { &house.usual } else { &house.spinning };
                match (&house.no_disk, home) {
                    (Some(why), Home::Disk) => Err(Error::Unavailable(why.clone())),
                    _ => run_ours(house.stage.program, server, home.device(), way, workload, clients),
                }
            }
        }
    }
}

/// Carries `workload` out at a device of ours. Its core has a processor of its own, on which no client of the channel runs.
///
/// # Errors
/// What failed.
pub fn run_ours(
    program: &super::talk::Program,
    server: &Server,
    device: &str,
    way: Way,
    workload: &Workload,
    clients: usize,
) -> Result<Figures, Error> {
    let wait = match clients {
        1 if cores() > 1 => Waiting::Spin,
        // Whoever looks for completions only keeps the others from the few cores.
        many if many > CLIENTS_MAX => Waiting::Sleep,
        _ => Waiting::Adaptive,
    };
    let target = |number| {
        let (socket, volume) = (server.socket().to_owned(), volume(device, number));
        Target::Ours(Ours { socket, volume, way, wait })
    };
    let targets: Vec<Target> = (0..clients).map(target).collect();
    let on: Vec<usize> = match (clients, cores()) {
        (_, 1) => Vec::new(),
        (1, _) => vec![CLIENT_CORE],
        _ if way.is_mapped() => Vec::new(),
        (_, cores) => (0..cores).filter(|core| *core != SERVER_CORE).collect(),
    };
    client::run(program, &targets, workload, Some(server.id()), &on)
}

/// What came of a contest.
pub struct Contest {
    contenders: Vec<Contender>,
    runs: Vec<Runs>,
}

/// Holds a contest: `workload` by so many clients, by each of `contenders` in turns.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn hold(
    house: &House<'_>,
    workload: &Workload,
    clients: usize,
    contenders: &[Contender],
    pairs: u32,
) -> Result<Contest, Error> {
    let sides = contenders.iter().map(|contender| Side {
        name: contender.name(),
        run: Box::new(move || contender.run(house, workload, clients)),
    });
    Ok(Contest { contenders: contenders.to_vec(), runs: sides::run(sides.collect(), pairs)? })
}

impl Contest {
    /// The runs of one of them.
    ///
    /// # Panics
    /// If it took no part.
    pub fn of(&self, contender: Contender) -> &Runs {
        let place = self.contenders.iter().position(|other| *other == contender);
        &self.runs[place.expect("it took part")]
    }

    /// Everybody's.
    pub fn runs(&self) -> &[Runs] {
        &self.runs
    }

    /// Our ways, by their names.
    pub fn ours(&self) -> impl Iterator<Item = &Runs> {
        let all = self.contenders.iter().zip(&self.runs);
        let is_ours = |contender: &Contender| matches!(contender, Contender::Ours(..) | Contender::Export);
        all.filter(move |(contender, _)| is_ours(contender)).map(|(_, runs)| runs)
    }

    /// The peers.
    pub fn peers(&self) -> impl Iterator<Item = &Runs> {
        let all = self.contenders.iter().zip(&self.runs);
        all.filter(|(contender, _)| matches!(contender, Contender::Peer(_))).map(|(_, runs)| runs)
    }

    /// The peer that is best by a metric of which more is better; the first one that has failed, if one has.
    pub fn best_peer(&self, metric: Metric) -> Option<&Runs> {
        let failed = self.peers().find(|runs| runs.figures.as_ref().is_err_and(|error| !error.is_absence()));
        let value = |runs: &&Runs| runs.median(metric).unwrap_or(f64::NEG_INFINITY);
        failed.or_else(|| self.peers().max_by(|one, other| value(one).total_cmp(&value(other))))
    }
}

/// A row of one of our ways against `peer`.
pub fn row(case: &str, metric: Metric, ours: &Runs, peer: &Runs, goal: Option<f64>) -> Row {
    let empty = Row { case: format!("{case}: {}", ours.name), ..Row::default() };
    let row = sides::row(empty, metric, ours, peer, goal);
    if row.ratio.is_none() {
        return row;
    }
    // The tests hold the library to that.
    let is_own_choice = [Way::MappedCalls, Way::MappedQueue].iter().any(|way| way.name() == ours.name);
    let choice = if is_own_choice { "the library's own choice; " } else { "" };
    let note = format!("{choice}CPU a request: {}; it: {}", cpu_of(ours), cpu_of(peer));
    Row { note, ..row }
}

/// A row of one of our ways against the best of `bounds` by `metric`, with what binds. Our ways differ in how far above their
/// bound they may be: the goal says it.
///
/// # Panics
/// If a bound took no part in `contest`, or there is none.
pub fn row_against(
    case: &str,
    metric: Metric,
    ours: &Runs,
    contest: &Contest,
    bounds: &[Bound],
    goal: f64,
) -> Row {
    let best = bounds.iter().map(|bound| (bound, contest.of(Contender::Bound(*bound))));
    let best = best.min_by(|(_, one), (_, other)| metric.order(one, other));
    let (bound, runs) = best.expect("a bound is named");
    let row = row(case, metric, ours, runs, Some(goal));
    match row.ratio {
        Some(_) => Row { note: format!("{}; {}", bound.binds(), row.note), ..row },
        None => row,
    }
}

/// Whose CPU time a request took.
fn cpu_of(runs: &Runs) -> String {
    let ns = |value: Option<f64>| value.map_or("-".into(), |ns| number::quantity(ns, "ns"));
    let (client, both) = (runs.median(Metric::ClientCpu), runs.median(Metric::BothCpu));
    let all = runs.median(Metric::AllCpu);
    let difference = |more: Option<f64>, less: Option<f64>| Some((more? - less?).max(0.0));
    let mut text = format!("client {}", ns(client));
    for (who, more, less) in [("server", both, client), ("kernel threads", all, both)] {
        let ns_of = difference(more, less);
        if ns_of.is_some_and(|value| value >= 1.0) {
            text.push_str(&format!(", {who} {}", ns(ns_of)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Bound = Bound::Copy { past_caches: false, on_one_core: true };
    const FAST: Bound = Bound::Copy { past_caches: true, on_one_core: true };

    /// A contest of a way of ours and two bounds, by how many requests each did in a second.
    fn contest(ours: u64, slow: u64, fast: Result<u64, Error>) -> Contest {
        let runs = |contender: Contender, requests: Result<u64, Error>| Runs {
            name: contender.name(),
            figures: requests.map(|requests| {
                vec![Figures { requests, bytes: requests, seconds: 1.0, ..Figures::default() }]
            }),
        };
        let contenders =
            vec![Contender::Ours(Home::Fast, Way::Channel), Contender::Bound(SLOW), Contender::Bound(FAST)];
        let figures = [Ok(ours), Ok(slow), fast];
        let runs = contenders.iter().zip(figures).map(|(contender, figures)| runs(*contender, figures));
        Contest { runs: runs.collect(), contenders }
    }

    fn row_of(contest: &Contest) -> Row {
        let ours = contest.of(Contender::Ours(Home::Fast, Way::Channel));
        row_against("streams", Metric::Bandwidth, ours, contest, &[SLOW, FAST], 0.8)
    }

    #[test]
    fn the_best_bound_binds() {
        let row = row_of(&contest(700, 800, Ok(1000)));
        assert_eq!((row.peer.as_str(), row.ratio, row.met), (FAST.name(), Some(0.7), Some(false)));
        assert!(row.note.starts_with("one core copies the bytes of all clients; "), "{}", row.note);
        let row = row_of(&contest(700, 800, Ok(600)));
        assert_eq!((row.peer.as_str(), row.ratio, row.met), (SLOW.name(), Some(0.875), Some(true)));
    }

    #[test]
    fn a_bound_that_fails_is_told_and_never_replaced_by_the_other() {
        let row = row_of(&contest(700, 800, Err(Error::failed("a bound", "no memory".into()))));
        assert_eq!((row.ratio, row.met, row.failed), (None, Some(false), true));
        assert!(row.note.contains("no memory"), "{}", row.note);
    }

    #[test]
    fn bounds_are_neither_ours_nor_rivals() {
        let contest = contest(1, 2, Ok(3));
        assert_eq!((contest.ours().count(), contest.peers().count()), (1, 0));
    }
}
