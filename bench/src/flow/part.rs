//! A part of the bench: its name, what it needs, and what measures it.

use super::rounds::{Frame, Metric};
use crate::error::Error;
use crate::place::{Kind, Places};
use crate::row::Row;
use std::path::Path;

/// How a part makes its rows.
type Measure = Box<dyn Fn(&Stage<'_>, &Frame) -> Result<Vec<Row>, Error>>;

/// What a part is measured with.
pub struct Stage<'a> {
    /// The file systems.
    pub places: &'a Places,
    /// A folder on disk that is this run's own.
    pub folder: &'a Path,
    /// Whether it works, not how fast.
    pub quick: bool,
    /// Rounds in which each side has its turn.
    pub pairs: u32,
}

/// One part.
pub struct Part {
    /// What its rows have in common.
    pub frame: Frame,
    /// The file systems that it needs.
    pub kinds: Vec<Kind>,
    /// What stands for it where it cannot be measured: by what, against whom, and the ratio asked for.
    pub headline: (Metric, &'static str, Option<f64>),
    /// Makes its rows.
    pub measure: Measure,
}

impl Part {
    /// Its name, by which it is chosen.
    pub fn name(&self) -> String {
        let row = self.frame.empty(Metric::Throughput, "-", None);
        format!("{}: {}", self.frame.bench.trim_start_matches("flow/"), row.case)
    }

    /// Its rows; one that says why, if there are none.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only.
    pub fn rows(&self, stage: &Stage<'_>) -> Result<Vec<Row>, Error> {
        match (self.measure)(stage, &self.frame) {
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error) => {
                let (metric, peer, goal) = self.headline;
                Ok(vec![self.frame.empty(metric, peer, goal).without_numbers("", &error)])
            }
            rows => rows,
        }
    }
}

/// Runs that are added up so that one too short to be timed is not timed alone.
pub fn repeats(bytes: u64, quick: bool) -> u32 {
    let (whole, most) = if quick { (16 << 20, 4) } else { (64 << 20, 16) };
    u32::try_from(whole / bytes.max(1)).unwrap_or(most).clamp(1, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_runs_are_repeated() {
        assert_eq!([1 << 20, 16 << 20, 1 << 30].map(|bytes| repeats(bytes, false)), [16, 4, 1]);
        assert_eq!(repeats(1 << 20, true), 4);
    }

    #[test]
    fn what_cannot_be_had_here_is_a_row_with_the_goal() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::make(folder.path(), &[], "").unwrap();
        let frame = Frame {
            bench: "flow/disk",
            what: "1 MiB".into(),
            place: "xfs".into(),
            bytes: 1,
            note: String::new(),
        };
        let part = Part {
            frame,
            kinds: Vec::new(),
            headline: (Metric::Throughput, "cp", Some(1.0)),
            measure: Box::new(|_, _| Err(Error::Unavailable("it needs root".into()))),
        };
        assert_eq!(part.name(), "disk: 1 MiB, xfs");
        let stage = Stage { places: &places, folder: folder.path(), quick: true, pairs: 1 };
        let rows = part.rows(&stage).unwrap();
        assert_eq!((rows[0].goal, rows[0].met, rows[0].failed), (Some(1.0), None, false));
        assert_eq!(rows[0].note, "not run: it needs root");
    }
}
