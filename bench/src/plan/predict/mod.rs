//! Predictions of programs by `bywash plan predict`, against the same programs under `bywash run`.
//!
//! The workloads are those of `docs/internals/prediction.md`, with the programs of Debian 12. Each is predicted
//! and measured in turns, in a process of its own; `ratio` is the predicted gain over the measured one, and the
//! note has the error of somebody who always predicts no change.
//!
//! - [`tried`]: workloads on which the method was tried
//! - [`held_back`]: workloads that first ran when it was finished
//! - [`logged`]: workloads whose commits go to a commit log, by `bywash run --log`

mod held_back;
mod logged;
mod tried;

use super::Stage;
use crate::child;
use crate::error::{Attempt, Error};
use crate::log::commit_log::{Device, Logs};
use crate::programs::executables;
use crate::row::Row;
use serde::Deserialize;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Goal: the predicted gain is within so much of the measured one.
const ERROR_MAX: f64 = 0.15;
/// The longest that a prediction with its verification may take: up to 28 runs of each kind.
const LIMIT: Duration = Duration::from_secs(3600);
/// Size of a commit log, in bytes.
const LOG_BYTES: u64 = 64 << 20;

/// Start of a command as an ordinary user, who owns what root owns.
const AS_USER: &str = "unshare --user --map-user=1000 --map-group=1000 -- ";

/// A program that is predicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// Programs that it needs.
    needs: &'static [&'static str],
    /// Script that makes its files, in the folder of the run.
    prepare: &'static str,
    /// Script before each run; empty for none.
    before: &'static str,
    /// Program and arguments, run in that folder by the shell's rules for words.
    program: &'static str,
    /// True if a quick run has it.
    in_quick: bool,
    /// True if the program refuses to run as root: root is then shown to it as an ordinary user.
    is_unprivileged: bool,
    /// Device of the commit log to which its commits go.
    log: Option<Device>,
}

/// Common part of the workloads.
const PLAIN: Workload = Workload {
    name: "",
    needs: &[],
    prepare: "",
    before: "",
    program: "",
    in_quick: false,
    is_unprivileged: false,
    log: None,
};

/// All workloads, with the group of their rows.
pub(super) fn workloads() -> impl Iterator<Item = (&'static str, Workload)> {
    let tried = tried::WORKLOADS.map(|workload| ("plan/predict", workload));
    let held_back = held_back::WORKLOADS.map(|workload| ("plan/predict-held-back", workload));
    let logged = logged::WORKLOADS.map(|workload| ("plan/predict-log", workload));
    tried.into_iter().chain(held_back).chain(logged)
}

/// Report of `bywash plan predict --verify --json`, as far as it is used.
#[derive(Debug, Deserialize)]
struct Report {
    gain: Range,
    measured: Measured,
}

#[derive(Debug, Deserialize)]
struct Range {
    median: f64,
    low: f64,
    high: f64,
}

#[derive(Debug, Deserialize)]
struct Measured {
    gain: f64,
    error: f64,
    no_change_error: f64,
}

/// Common part of a workload's row.
pub(super) fn head(group: &str, workload: &Workload) -> Row {
    let (metric, peer) = ("gain".into(), "measured under bywash run".into());
    Row { metric, peer, ..Row::head(group, workload.name, "") }
}

pub(super) fn measure(stage: &Stage, head: &Row, workload: &Workload) -> Result<Vec<Row>, Error> {
    if stage.quick && !workload.in_quick {
        return Err(Error::Unavailable("it takes too long for a quick run".into()));
    }
    for needed in workload.needs {
        if executables::find(needed).is_none() {
            return Err(Error::Unavailable(format!("the program {needed} is not installed")));
        }
    }
    let folder = tempfile::tempdir_in(&stage.folder).doing("create", &stage.folder)?;
    shell(workload.prepare, folder.path(), stage.quick)?;
    let runs = if stage.quick { "3" } else { "7" };
    let user = if workload.is_unprivileged { AS_USER } else { "" };
    let make = |device| {
        let no_disk = Err(Error::Unavailable("no disk is for logs alone".into()));
        Logs::prepare(folder.path(), no_disk, &[device], "", LOG_BYTES)
    };
    let logs = workload.log.map(make).transpose()?;
    let log = logs.as_ref().zip(workload.log).map(|(logs, device)| logs.create(device)).transpose()?;
    let mut line = format!("exec {user}\"${{@:2}}\" --verify --json --runs {runs} ");
    if !workload.before.is_empty() {
        line += "--before \"$1\" ";
    }
    line += "-- ";
    line += workload.program;
    let mut command = bash(folder.path())?;
    command.args(["-c", &line, "bash", workload.before]);
    command.args(log.iter().flat_map(|log| log.as_user()));
    command.arg(child::this_program()?).args(["plan", "predict"]);
    command.args(log.iter().flat_map(|log| log.options()));
    let ended = child::run_within(&mut command, LIMIT).map_err(|error| match error {
        // A busy machine is no failure of a case, and has no figure.
        Error::Failed { tail, .. } if tail.contains("no prediction: ") => {
            Error::Unavailable(tail.trim_start_matches(": ").to_owned())
        }
        error => error,
    })?;
    let report: Report = serde_json::from_str(&ended.stdout)
        .map_err(|error| Error::failed("bywash plan predict", error.to_string()))?;
    let Report { gain, measured } = report;
    Ok(vec![Row {
        unit: "".into(),
        ours: Some(gain.median),
        peer_value: Some(measured.gain),
        ratio: Some(gain.median / measured.gain),
        ratio_low: Some(gain.low / measured.gain),
        ratio_high: Some(gain.high / measured.gain),
        spread: Some((gain.high - gain.low) / measured.gain),
        runs: if stage.quick { 3 } else { 7 },
        met: Some(measured.error.abs() <= ERROR_MAX),
        note: format!(
            "off by {:+.1} %; 'no change' by {:+.1} %",
            measured.error * 100.0,
            measured.no_change_error * 100.0
        ),
        ..head.clone()
    }])
}

/// Runs a script of bash in `folder`, with `SCALE` set: the number by which sizes are divided.
fn shell(script: &str, folder: &Path, quick: bool) -> Result<(), Error> {
    let mut command = bash(folder)?;
    command.args(["-ec", script]).env("SCALE", if quick { "20" } else { "1" });
    child::run(&mut command).map(|_| ())
}

/// Creates a command of bash in `folder`, which finds what the benches find.
fn bash(folder: &Path) -> Result<Command, Error> {
    let path = std::env::join_paths(executables::folders())
        .map_err(|error| Error::Unavailable(format!("the search path of programs: {error}")))?;
    let mut command = Command::new("bash");
    command.current_dir(folder).env("PATH", path);
    Ok(command)
}
