//! `bywash bench flow`: flows against the programs and the hand-written loops that move the same bytes.
//!
//! - `disk`: from file to file, from device to device
//! - `figures`: every mover over transfer size and buffer size
//! - `stream`: a file over TCP into a file, directly and through a process in the middle
//! - `relay`, `transfer`: datagrams and frames between hosts
//! - `route`: the two ends of a copy; `net`: hosts, and the programs in them
//! - `by_hand`: movers as a programmer writes them
//! - `process`: programs beside each other, and their CPU time
//!
//! Each side runs once before the rounds, and what arrived is compared with what was sent. That also makes every page,
//! buffer and program warm.

mod by_hand;
mod disk;
mod figures;
mod net;
pub(crate) mod process;
mod relay;
mod route;
mod stream;
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
/// Bench of the rows of each mover, which would bury the others.
const MOVERS: &str = "flow/movers";
/// Peer that is the best of the movers.
const BEST: &str = "best mover";
/// Goal of the planner's choice, as a share of the best mover's throughput.
const GOAL_CHOICE: f64 = 0.95;

/// Resources of all cases.
struct Stage {
    places: Places,
    /// Folder on disk of this run.
    folder: PathBuf,
    quick: bool,
    rounds: u32,
}

impl Stage {
    /// Runs the sides in turns, each as often a round as makes runs of `bytes` long enough to be timed.
    fn run(
        &self,
        sides: Vec<Side<'_, Outcome>>,
        bytes: u64,
        rounds: u32,
    ) -> Result<Vec<Runs<Outcome>>, Error> {
        let repeats = repeats(bytes, self.quick);
        let runs = Rounds::new(rounds).repeats(repeats).limited().run(sides)?;
        Ok(runs.into_iter().map(|runs| runs.merged(repeats, Outcome::mean)).collect())
    }
}

fn repeats(bytes: u64, quick: bool) -> u32 {
    let (whole, most) = if quick { (16 * MIB, 4) } else { (64 * MIB, 16) };
    u32::try_from(whole / bytes.max(1)).unwrap_or(most).clamp(1, most)
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Outcome {
    seconds: f64,
    /// CPU time of the processes that are looked at.
    cpu_seconds: f64,
    /// Share of the bytes that did not arrive.
    lost: f64,
}

impl Outcome {
    fn new(seconds: f64, cpu_seconds: f64) -> Outcome {
        Outcome { seconds, cpu_seconds, lost: 0.0 }
    }

    /// Difference to a shorter run; next to nothing if that one took longer.
    fn less(self, other: Outcome) -> Outcome {
        let difference = |one: f64, other: f64| (one - other).max(1e-6);
        Outcome {
            seconds: difference(self.seconds, other.seconds),
            cpu_seconds: difference(self.cpu_seconds, other.cpu_seconds),
            lost: self.lost,
        }
    }

    fn mean(all: &[Outcome]) -> Outcome {
        let mean = |figure: fn(&Outcome) -> f64| all.iter().map(figure).sum::<f64>() / all.len() as f64;
        Outcome {
            seconds: mean(|one| one.seconds),
            cpu_seconds: mean(|one| one.cpu_seconds),
            lost: mean(|one| one.lost),
        }
    }
}

/// Bytes a second that arrived, of runs that move `bytes`.
fn throughput(bytes: u64) -> Metric<'static, Outcome> {
    Metric::rate("throughput", "B/s", move |run: &Outcome| bytes as f64 * (1.0 - run.lost) / run.seconds)
}

/// CPU seconds for 10^9 bytes. Less than the kernel's clock shows counts as its least.
fn cpu(bytes: u64) -> Metric<'static, Outcome> {
    Metric::cost("cpu", "s/GB", move |run: &Outcome| run.cpu_seconds / (bytes as f64 / 1e9))
        .ratio(|ours, peer| peer.max(1e-9) / ours.max(1e-9))
}

/// Duration in milliseconds.
fn time() -> Metric<'static, Outcome> {
    Metric::cost("time", "ms", |run: &Outcome| run.seconds * 1e3)
}

/// Share of the bytes that arrived, in percent.
fn arrived() -> Metric<'static, Outcome> {
    Metric::rate("arrived", "%", |run: &Outcome| 100.0 * (1.0 - run.lost))
}

/// The row of `ours` against the best of `peers`, which `called` names as a group; none if none of them has run.
fn row_of_best<'a, S: 'a>(
    metric: &Metric<'_, S>,
    head: &Row,
    ours: &Runs<S>,
    peers: impl IntoIterator<Item = &'a Runs<S>>,
    called: &str,
    goal: Option<f64>,
) -> Option<Row> {
    let best = metric.best(peers)?;
    let row = Row { peer: called.into(), ..metric.row(head, ours, best, goal) };
    let named =
        format!("{called}: {}{}{}", best.name, if head.note.is_empty() { "" } else { "; " }, head.note);
    Some(if row.ratio.is_some() { Row { note: named, ..row } } else { row })
}

/// A case with the file systems that it needs.
type Needing = (Vec<Kind>, Declared<Stage>);

/// Measures the chosen cases. Returns the report, and whether the run was interrupted.
///
/// # Errors
/// [`Error::Usage`] if no case has such a name, [`Error::Io`] if the folder cannot be used.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let workspace = Workspace::create(choice.folder.as_deref())?;
    let cases = cases(workspace.run(), choice.quick);
    let cases = campaign::choose(cases, &choice.names, |(_, case)| case.name())?;
    let wanted = |kind: &Kind| cases.iter().any(|(kinds, _)| kinds.contains(kind));
    let wanted: Vec<Kind> = Kind::ALL.iter().copied().filter(wanted).collect();
    let stage = Stage {
        places: Places::make(workspace.run(), &wanted, "")?,
        folder: workspace.run().to_owned(),
        quick: choice.quick,
        rounds: choice.rounds,
    };
    let cases = cases.into_iter().map(|(_, case)| case.on(&stage)).collect();
    Ok(campaign::run(cases, audience))
}

/// All cases in the order in which they are measured; `folder` is the one on disk.
fn cases(folder: &Path, quick: bool) -> Vec<Needing> {
    let mut cases = disk::cases(folder, quick);
    cases.extend(figures::cases(folder, quick));
    cases.extend(stream::cases(quick));
    cases.extend(relay::cases());
    cases.extend(transfer::cases(quick));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of so many seconds, half of them CPU time.
    pub(super) fn runs(name: &str, seconds: f64) -> Runs<Outcome> {
        Runs { name: name.into(), samples: Ok(vec![Outcome::new(seconds, seconds / 2.0); 3]) }
    }

    #[test]
    fn every_case_has_a_name_of_its_own_and_every_bench_a_goal() {
        let folder = tempfile::tempdir().unwrap();
        for quick in [false, true] {
            let cases = cases(folder.path(), quick);
            for (number, (_, case)) in cases.iter().enumerate() {
                let others = &cases[..number];
                assert!(others.iter().all(|other| other.1.name() != case.name()), "{} twice", case.name());
            }
            for bench in ["flow/disk", "flow/tcp", "flow/forward", "flow/datagram"] {
                let has_goal = |case: &Needing| case.1.head.bench == bench && case.1.head.goal.is_some();
                assert!(cases.iter().any(has_goal), "{bench}");
            }
        }
    }

    #[test]
    fn short_runs_are_repeated() {
        assert_eq!([MIB, 16 * MIB, 1 << 30].map(|bytes| repeats(bytes, false)), [16, 4, 1]);
        assert_eq!(repeats(MIB, true), 4);
    }

    #[test]
    fn outcomes_are_subtracted_and_averaged() {
        let outcome = |seconds, cpu_seconds| Outcome { seconds, cpu_seconds, lost: 0.5 };
        assert_eq!(outcome(3.0, 2.0).less(outcome(1.0, 1.5)), outcome(2.0, 0.5));
        assert_eq!(outcome(1.0, 2.0).less(outcome(1.5, 1.5)), outcome(1e-6, 0.5));
        assert_eq!(Outcome::mean(&[outcome(1.0, 2.0), outcome(3.0, 4.0)]), outcome(2.0, 3.0));
    }

    #[test]
    fn figures_of_a_run() {
        let (ours, peer) = (runs("ours", 1.0), runs("cp", 2.0));
        for metric in [throughput(1_000_000_000), cpu(1_000_000_000), time()] {
            assert_eq!(metric.row(&Row::default(), &ours, &peer, None).ratio, Some(2.0));
        }
        let row = cpu(1_000_000_000).row(&Row::default(), &ours, &peer, Some(2.5));
        assert_eq!((row.ours, row.peer_value, row.met), (Some(0.5), Some(1.0), Some(false)));
    }

    #[test]
    fn the_best_peer_is_named() {
        let failed = Runs { name: "broken".into(), samples: Err(Error::failed("x", "failed".into())) };
        let peers = [runs("slow", 3.0), failed, runs("fast", 0.5)];
        let best = |peers| row_of_best(&time(), &Row::default(), &runs("ours", 1.0), peers, BEST, None);
        let row = best(&peers[..]).unwrap();
        assert_eq!((row.ratio, row.peer.as_str(), row.note.as_str()), (Some(0.5), BEST, "best mover: fast"));
        assert!(best(&peers[1..2]).is_none());
    }
}
