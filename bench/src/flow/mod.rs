//! `bywash bench flow`: flows against the programs and the hand-written loops that move the same bytes.
//!
//! - `disk`: from file to file, from device to device
//! - `tcp`: a file over TCP into a file, directly and through a process in the middle
//! - `accel`: from file to file through an accelerator
//! - `datagrams`: the highest rate at which datagrams and frames pass through a host without loss
//! - `figures`: every mover, and datagrams, over transfer size and buffer size
//! - `route`: the two ends of a copy
//! - `transfer`: the programs of a side, as lines of words, and the hosts that they run in
//! - `by_hand`: movers as a programmer writes them
//!
//! Each side runs once before the rounds, and what arrived is compared with what was sent. That also makes every page,
//! buffer and program warm.

mod accel;
mod by_hand;
mod datagrams;
mod disk;
mod figures;
mod route;
mod tcp;
mod transfer;

use crate::campaign::{self, Audience, Choice, Declared};
use crate::engine::{Metric, Rounds, Runs, Side};
use crate::error::Error;
use crate::place::{Kind, Places};
use crate::row::{Report, Row};
use crate::workspace::Workspace;
use std::path::{Path, PathBuf};

pub use by_hand::peer;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Goal of the planner's choice, as a share of the best mover's throughput.
const GOAL_CHOICE: f64 = 0.95;

/// Resources of all cases.
struct Stage {
    places: Places,
    /// Folder of the environments of Python.
    programs: PathBuf,
    quick: bool,
    rounds: u32,
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Outcome {
    /// Bytes that were sent.
    bytes: f64,
    seconds: f64,
    /// CPU time of the processes that are looked at.
    cpu_seconds: f64,
    /// Share of the bytes that did not arrive.
    lost: f64,
}

impl Outcome {
    /// Difference to a shorter run; next to nothing if that one took longer.
    fn less(self, other: Outcome) -> Outcome {
        let seconds = (self.seconds - other.seconds).max(1e-6);
        let cpu_seconds = (self.cpu_seconds - other.cpu_seconds).max(1e-6);
        Outcome { seconds, cpu_seconds, ..self }
    }

    /// Mean of runs that move the same bytes and lose none.
    fn mean(all: &[Outcome]) -> Outcome {
        let mean = |figure: fn(&Outcome) -> f64| all.iter().map(figure).sum::<f64>() / all.len() as f64;
        Outcome { seconds: mean(|one| one.seconds), cpu_seconds: mean(|one| one.cpu_seconds), ..all[0] }
    }
}

/// Figure by which sides are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Throughput,
    Cpu,
    Time,
    Arrived,
}

impl Figure {
    fn metric(self) -> Metric<'static, Outcome> {
        match self {
            // Of the bytes that arrived.
            Figure::Throughput => {
                Metric::rate("throughput", "B/s", |run: &Outcome| run.bytes * (1.0 - run.lost) / run.seconds)
            }
            // Less than the kernel's clock shows counts as its least.
            Figure::Cpu => Metric::cost("cpu", "s/GB", |run: &Outcome| run.cpu_seconds / (run.bytes / 1e9))
                .ratio(|ours, peer| peer.max(1e-9) / ours.max(1e-9)),
            Figure::Time => Metric::cost("time", "ms", |run: &Outcome| run.seconds * 1e3),
            Figure::Arrived => Metric::rate("arrived", "%", |run: &Outcome| 100.0 * (1.0 - run.lost)),
        }
    }

    fn goal(self, goals: &[Goal], peer: &str) -> Option<f64> {
        goals.iter().find(|goal| goal.0 == peer && goal.1 == self)?.2
    }
}

/// Kind of side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Ours,
    /// Flows that are forced to use a mover.
    Movers,
    ByHand,
    Programs,
}

impl Group {
    /// Name of the best as a peer.
    const fn best(self) -> &'static str {
        if matches!(self, Group::Movers) { "best mover" } else { "best pair by hand" }
    }
}

const BEST_MOVER: &str = Group::Movers.best();
/// Bench of the rows of each mover, which would bury the others.
const MOVERS: &str = "flow/movers";

type Peer<'a> = (Group, Side<'a, Outcome>);

/// Ratio asked for against a peer by a figure.
type Goal = (&'static str, Figure, Option<f64>);

impl Stage {
    /// Runs the sides in turns, ours first, each as often a round as makes runs of `bytes` long enough to be timed.
    fn contest(&self, rounds: u32, bytes: u64, peers: Vec<Peer<'_>>) -> Result<Contest, Error> {
        let repeats = repeats(bytes, self.quick);
        let (groups, sides): (Vec<_>, Vec<_>) = peers.into_iter().unzip();
        let runs = Rounds::new(rounds).repeats(repeats).limited().run(sides)?;
        let runs = runs.into_iter().map(|runs| runs.merged(repeats, Outcome::mean));
        Ok(Contest(groups.into_iter().zip(runs).collect()))
    }
}

/// Runs of all sides, ours first.
struct Contest(Vec<(Group, Runs<Outcome>)>);

impl Contest {
    fn ours(&self) -> &Runs<Outcome> {
        &self.0[0].1
    }

    /// Rows of our side by each of `figures`, against the best mover and pair by hand, and against every peer.
    fn rows(&self, head: &Row, figures: &[Figure], goals: &[Goal]) -> Vec<Row> {
        let mut rows = Vec::new();
        for group in [Group::Movers, Group::ByHand] {
            let row = |figure: &Figure| self.row_of_best(head, self.ours(), group, *figure, goals);
            rows.extend(figures.iter().filter_map(row));
        }
        for (group, peer) in self.0.iter().filter(|peer| peer.0 != Group::Ours) {
            let bench = if *group == Group::Movers { MOVERS } else { &head.bench };
            let head = Row { bench: bench.into(), ..head.clone() };
            for figure in figures {
                let goal = figure.goal(goals, &peer.name);
                rows.push(figure.metric().row(&head, self.ours(), peer, goal));
            }
        }
        rows
    }

    /// The row of `ours` against the best of a group, which the note names; none if none of the group has run.
    fn row_of_best(
        &self,
        head: &Row,
        ours: &Runs<Outcome>,
        group: Group,
        figure: Figure,
        goals: &[Goal],
    ) -> Option<Row> {
        let peers = self.0.iter().filter(|peer| peer.0 == group).map(|peer| &peer.1);
        let best = figure.metric().best(peers)?;
        let goal = figure.goal(goals, group.best());
        let mut row = Row { peer: group.best().into(), ..figure.metric().row(head, ours, best, goal) };
        if row.ratio.is_some() {
            let more = if head.note.is_empty() { "" } else { "; " };
            row.note = format!("{}: {}{more}{}", group.best(), best.name, head.note);
        }
        Some(row)
    }
}

fn repeats(bytes: u64, quick: bool) -> u32 {
    let (whole, most) = if quick { (16 * MIB, 4) } else { (64 * MIB, 16) };
    u32::try_from(whole / bytes.max(1)).unwrap_or(most).clamp(1, most)
}

/// A case with the file systems that it needs.
type Needing = (Vec<Kind>, Declared<Stage>);

/// A case on file systems of `kinds`, which has the row of `goal` if it cannot be measured.
fn case(
    kinds: &[Kind],
    head: &Row,
    (peer, figure, goal): Goal,
    measure: impl Fn(&Stage, &Row) -> Result<Vec<Row>, Error> + 'static,
) -> Needing {
    (kinds.to_vec(), Declared::new(figure.metric().head(head, peer, goal), measure))
}

/// Measures the chosen cases. Returns the report, and whether the run was interrupted.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let workspace = Workspace::create(choice.folder.as_deref())?;
    let cases = cases(workspace.run(), choice.quick);
    let cases = campaign::choose(cases, &choice.names, |(_, case)| case.name())?;
    let wanted = |kind: &Kind| cases.iter().any(|(kinds, _)| kinds.contains(kind));
    let wanted: Vec<Kind> = Kind::ALL.iter().copied().filter(wanted).collect();
    let stage = Stage {
        places: Places::make(workspace.run(), &wanted, "")?,
        programs: workspace.programs().to_path_buf(),
        quick: choice.quick,
        rounds: choice.rounds,
    };
    let cases = cases.into_iter().map(|(_, case)| case.on(&stage)).collect();
    Ok(campaign::run(cases, audience))
}

/// All cases in the order in which they are measured; `folder` is the one on disk.
fn cases(folder: &Path, quick: bool) -> Vec<Needing> {
    let mut cases = disk::cases(folder, quick);
    cases.extend(accel::cases(folder, quick));
    cases.extend(figures::cases_of_copies(folder, quick));
    cases.extend(tcp::cases(quick));
    cases.extend(datagrams::cases());
    cases.extend(figures::cases_of_datagrams(quick));
    cases
}

#[cfg(test)]
mod tests {
    use super::Figure::{Cpu, Throughput};
    use super::*;

    /// Runs of so many seconds, half of them CPU time.
    pub(super) fn runs(name: &str, seconds: f64, lost: f64) -> Runs<Outcome> {
        let outcome = Outcome { bytes: 1e9, seconds, cpu_seconds: seconds / 2.0, lost };
        Runs { name: name.into(), samples: Ok(vec![outcome; 3]) }
    }

    #[test]
    fn every_case_has_a_name_of_its_own_and_every_bench_a_goal() {
        let folder = tempfile::tempdir().unwrap();
        for (quick, count) in [(false, 104), (true, 51)] {
            let cases = cases(folder.path(), quick);
            let names: std::collections::HashSet<_> = cases.iter().map(|case| case.1.name()).collect();
            assert_eq!((cases.len(), names.len()), (count, count));
            for bench in ["flow/accel", "flow/disk", "flow/tcp", "flow/forward", "flow/datagram"] {
                let has_goal = |case: &Needing| case.1.head.bench == bench && case.1.head.goal.is_some();
                assert!(cases.iter().any(has_goal), "{bench}");
            }
        }
    }

    #[test]
    fn short_runs_are_repeated_averaged_and_reduced_by_the_start() {
        assert_eq!([MIB, 16 * MIB, 1 << 30, u64::MAX].map(|bytes| repeats(bytes, false)), [16, 4, 1, 1]);
        let outcome = |seconds, cpu_seconds| Outcome { seconds, cpu_seconds, bytes: 7.0, lost: 0.0 };
        assert_eq!(outcome(3.0, 2.0).less(outcome(1.0, 1.5)), outcome(2.0, 0.5));
        assert_eq!(outcome(1.0, 2.0).less(outcome(1.5, 1.5)), outcome(1e-6, 0.5));
        assert_eq!(Outcome::mean(&[outcome(1.0, 2.0), outcome(3.0, 4.0)]), outcome(2.0, 3.0));
    }

    #[test]
    fn every_peer_has_its_rows_and_the_best_of_a_group_is_named() {
        let broken = Runs { name: "broken".into(), samples: Err(Error::failed("x", "failed".into())) };
        let contest = Contest(vec![
            (Group::Ours, runs("bywash", 1.0, 0.0)),
            (Group::Movers, broken),
            (Group::Movers, runs("fast", 0.5, 0.0)),
            (Group::Movers, runs("slow", 3.0, 0.0)),
            (Group::Programs, runs("cp", 2.0, 0.0)),
        ]);
        let head = Row { note: "took splice".into(), ..Row::head("flow/disk", "1 GB", "tmpfs") };
        let goals = [("broken", Cpu, Some(1.0)), ("cp", Cpu, Some(2.5)), (BEST_MOVER, Throughput, Some(0.4))];
        let rows = contest.rows(&head, &[Throughput, Cpu], &goals);
        let named = (rows[0].ratio, rows[0].peer.as_str(), rows[0].note.as_str(), rows[0].met);
        assert_eq!(named, (Some(0.5), "best mover", "best mover: fast; took splice", Some(true)));
        let shown = |row: &Row| (row.bench.clone(), row.ratio, row.met, row.failed);
        assert_eq!(rows.len(), 2 + 4 * 2);
        assert_eq!(shown(&rows[3]), ("flow/movers".into(), None, Some(false), true));
        assert_eq!(shown(&rows[8]), ("flow/disk".into(), Some(2.0), None, false));
        assert_eq!((rows[9].ours, rows[9].peer_value, rows[9].met), (Some(0.5), Some(1.0), Some(false)));
    }
}
