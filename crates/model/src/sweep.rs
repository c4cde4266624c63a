//! Sweeps: evaluates one description for every combination of values of some of its numbers.
//!
//! A point costs one evaluation of [`crate::bound::from_demand`] and one row of the table: nothing is
//! allocated and no name is looked up per point. The command and the web page call it.

use crate::bound::bound;
use crate::demand::{Architecture, Resource};
use crate::describe::{Description, Error, Key};
use crate::performance::{Performance, performance};
use std::str::FromStr;

/// One varied number of a description, with the values that the number takes.
#[derive(Clone)]
pub struct Axis {
    /// Number of the description that varies.
    pub key: Key,
    /// Values of the number, in base units: bytes, seconds, cycles, shares of one.
    pub values: Vec<f64>,
}

/// Greatest number of points of a sweep. More points usually follow from a mistyped step and would fill the
/// memory.
pub const POINTS_MAX: usize = 50_000_000;

impl FromStr for Axis {
    type Err = Error;

    /// Parses `KEY=FROM:TO:STEP`, where each of the three values has its unit.
    fn from_str(text: &str) -> Result<Axis, Error> {
        let wrong = |why: &str| Error::Unreadable(format!("'{text}': {why}; write KEY=FROM:TO:STEP"));
        let (name, range) = text.split_once('=').ok_or_else(|| wrong("there is no '='"))?;
        let key = Key::by_name(name.trim())?;
        let parts: Vec<&str> = range.split(':').collect();
        let [from, to, step] = parts[..] else { return Err(wrong("there are not three values")) };
        let (from, to, step) = (key.value(from)?, key.value(to)?, key.value(step)?);
        if step <= 0.0 {
            return Err(wrong("the step is nothing"));
        }
        if to < from {
            return Err(wrong("it ends before it begins"));
        }
        // The tolerance keeps the last value where rounding errors make the steps fall just short of `to`.
        let count = ((to - from) / step + 1e-9).floor() + 1.0;
        if count > POINTS_MAX as f64 {
            return Err(wrong("there are too many values"));
        }
        Ok(Axis { key, values: (0..count as usize).map(|at| from + step * at as f64).collect() })
    }
}

/// Result of a sweep, column by column, with one row per point. The last axis varies fastest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Throughput at each point, in bytes per second.
    pub throughput: Vec<f64>,
    /// Resource that limits the throughput at each point.
    pub binding: Vec<Resource>,
}

/// Greatest number of points of a sweep with response times, each of which takes steps for every thread.
pub const LOADED_POINTS_MAX: usize = 1_000_000;

/// Computes the performance under its load for every combination of the values of `axes`, in the order of
/// [`Table`]'s rows.
///
/// # Errors
/// [`Error::NoSuchKey`] if `description` does not contain the number of an axis; [`Error::Unreadable`] if
/// there are more than [`LOADED_POINTS_MAX`] points; [`Error::MissingProcessor`] if the devices lack
/// processors that `architecture` needs; [`Error::OutOfRange`] if a value makes the description impossible.
pub fn loaded(
    description: &Description,
    axes: &[Axis],
    architecture: Architecture,
) -> Result<Vec<Performance>, Error> {
    let points = axes.iter().try_fold(1usize, |points, axis| points.checked_mul(axis.values.len()));
    let Some(points) = points.filter(|points| *points <= LOADED_POINTS_MAX) else {
        return Err(Error::Unreadable(format!(
            "a sweep with response times has at most {LOADED_POINTS_MAX} points: take larger steps"
        )));
    };
    let mut here = *description;
    for axis in axes {
        axis.key.number_in(&mut here)?;
    }
    let (mut all, mut refused) = (Vec::with_capacity(points), None);
    each(&mut here, axes, &mut |point| {
        if refused.is_none() {
            match point.checked().and_then(|point| point.supports(architecture)) {
                Ok(()) => all.push(performance(&point.machine, &point.workload(), architecture)),
                Err(why) => refused = Some(why),
            }
        }
    })?;
    refused.map_or(Ok(all), Err)
}

/// Computes the throughput bound for every combination of the values of `axes`.
///
/// # Errors
/// [`Error::NoSuchKey`] if `description` does not contain the number of an axis; [`Error::Unreadable`] if
/// there are more than [`POINTS_MAX`] points.
pub fn sweep(description: &Description, axes: &[Axis], architecture: Architecture) -> Result<Table, Error> {
    let points = axes.iter().try_fold(1usize, |points, axis| points.checked_mul(axis.values.len()));
    let Some(points) = points.filter(|points| *points <= POINTS_MAX) else {
        return Err(Error::Unreadable(format!("a sweep has at most {POINTS_MAX} points: take larger steps")));
    };
    let mut here = *description;
    for axis in axes {
        axis.key.number_in(&mut here)?;
    }
    let mut table = Table { throughput: Vec::with_capacity(points), binding: Vec::with_capacity(points) };
    each(&mut here, axes, &mut |point| {
        let bound = bound(&point.machine, &point.workload(), architecture);
        table.throughput.push(bound.throughput);
        table.binding.push(bound.binding);
    })?;
    Ok(table)
}

fn each(here: &mut Description, axes: &[Axis], point: &mut impl FnMut(&Description)) -> Result<(), Error> {
    let Some((axis, rest)) = axes.split_first() else {
        point(here);
        return Ok(());
    };
    for value in &axis.values {
        *axis.key.number_in(here)? = *value;
        each(here, rest, point)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::work::Workload;

    fn web() -> Description {
        Description::new(Machine::carrera_2003(), Workload::web(0.1))
    }

    #[test]
    fn points_are_those_that_one_would_compute_alone() {
        let axes: Vec<Axis> = ["request.web.miss=0 %:20 %:5 %", "machine.disks.count=1:4:1"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let table = sweep(&web(), &axes, Architecture::Active).unwrap();
        assert_eq!(table.throughput.len(), 5 * 4);
        let mut alone = web();
        alone.machine.disks.count = 2.0;
        let wanted = bound(&alone.machine, &Workload::web(0.1), Architecture::Active);
        assert_eq!(
            (table.throughput[2 * 4 + 1], table.binding[2 * 4 + 1]),
            (wanted.throughput, wanted.binding)
        );
    }

    #[test]
    fn response_times_change_with_the_load_where_the_bound_does_not() {
        let axis: Axis = "load.threads=1:401:100".parse().unwrap();
        let bounds = sweep(&web(), std::slice::from_ref(&axis), Architecture::Active).unwrap();
        assert!(bounds.throughput.windows(2).all(|two| two[0] == two[1]));
        let all = loaded(&web(), &[axis], Architecture::Active).unwrap();
        assert!(
            all.windows(2)
                .all(|two| two[0].response < two[1].response && two[0].throughput < two[1].throughput)
        );
        let arrivals: Axis = "load.arrivals=1000 /s:21000 /s:10000 /s".parse().unwrap();
        let all = loaded(&web(), &[arrivals], Architecture::Active).unwrap();
        assert_eq!(all.iter().map(Performance::is_overloaded).collect::<Vec<_>>(), [false, false, true]);
        let burst: Axis = "load.burst=1:4:1".parse().unwrap();
        let refused = loaded(&web(), &[burst], Architecture::Active).unwrap_err().to_string();
        assert!(refused.contains("load.burst is 2, and must be 1 unless"), "{refused}");
        let mut bare = web();
        bare.machine.disks.processor.0 = 0.0;
        let refused = loaded(&bare, &[], Architecture::Active).unwrap_err().to_string();
        assert!(refused.contains("the disks have no processor"), "{refused}");
    }

    #[test]
    fn what_cannot_be_swept_is_said() {
        for (text, wanted) in [
            ("request.web.miss", "KEY=FROM:TO:STEP"),
            ("wheels=1:2:1", "there is no 'wheels'"),
            ("machine.disks.rate=1:2:1", "is not a rate"),
            ("machine.disks.count=4:1:1", "ends before it begins"),
            ("machine.disks.count=1:4:0", "the step is nothing"),
            ("machine.disks.count=1:1e9:1e-9", "too many"),
        ] {
            let error = text.parse::<Axis>().err().unwrap().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        let compute: Axis = "request.dynamic.compute=0 cycles:9 cycles:1 cycles".parse().unwrap();
        assert!(sweep(&web(), &[compute], Architecture::Active).is_err());
    }
}
