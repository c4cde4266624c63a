//! SQLite with a page cache of 100 pages.

use super::{Amount, Case, Done, Metric, NOT_SLOWER, Native, Stage, Workload, parse_done};
use crate::error::Error;
use crate::launch::{Run, Side};
use crate::place::Kind;
use crate::{child, programs};
use std::path::PathBuf;
use std::process::Command;

const ROWS: u64 = 100_000;
const ROWS_QUICK: u64 = 10_000;
/// More than the database: SQLite maps all of it.
const MMAP_BYTES: u64 = 1 << 30;

struct Sqlite {
    kind: &'static str,
    journal: &'static str,
    synchronous: &'static str,
}

fn master(stage: &Stage) -> PathBuf {
    stage.folder.join("master")
}

fn work(stage: &Stage) -> PathBuf {
    stage.folder.join("work")
}

fn rows(stage: &Stage) -> u64 {
    if stage.quick { ROWS_QUICK } else { ROWS }
}

impl Workload for Sqlite {
    fn prepare(&mut self, stage: &Stage) -> Result<(), Error> {
        let program = stage.programs.executable(&programs::SQLITE)?;
        let master = master(stage);
        if master.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&master).map_err(|error| Error::io("create", &master, error))?;
        let mut load = Command::new(program);
        load.arg("load").arg(master.join("db")).arg(rows(stage).to_string());
        child::run(&mut load).map(drop)
    }

    fn reset(&mut self, stage: &Stage) -> Result<(), Error> {
        stage.place.copy_tree(&master(stage), &work(stage))
    }

    fn run(&mut self, stage: &Stage, run: &Run, operations: u64) -> Result<Done, Error> {
        let mmap = if run.side() == Side::Native { MMAP_BYTES } else { 0 };
        let mut command = run.command(stage.programs.executable(&programs::SQLITE)?);
        command.arg("run").arg(work(stage).join("db")).arg(rows(stage).to_string()).arg(self.kind);
        command.args([operations.to_string(), "1".to_owned()]);
        command.args([self.journal, self.synchronous]).arg(mmap.to_string());
        parse_done("sqlite", &child::run(&mut command)?.stdout)
    }
}

/// The `sqlite` bench.
pub fn cases() -> Vec<Case> {
    const MMAP_SIZE: &str = "kernel with PRAGMA mmap_size";
    let select = |name: &str, kind, goal, native| Case {
        bench: "sqlite",
        name: name.into(),
        metrics: vec![Metric::rate("op/s", goal)],
        places: Kind::ALL,
        amount: Amount::For { first: 2000, seconds: 0.3 },
        native: Some(native),
        in_quick: true,
        work: Box::new(Sqlite { kind, journal: "DELETE", synchronous: "OFF" }),
    };
    let mut cases = vec![
        select("select inside a transaction", "select-transaction", 1.5, Native::rival(MMAP_SIZE, 1.0)),
        select("select, autocommit", "select-autocommit", NOT_SLOWER, Native::control(MMAP_SIZE)),
    ];
    for journal in ["WAL", "DELETE"] {
        for synchronous in ["OFF", "NORMAL", "FULL"] {
            cases.push(Case {
                name: format!("4 updates, {journal}, synchronous {synchronous}"),
                metrics: vec![Metric::rate("transactions/s", NOT_SLOWER)],
                // Long enough for the device's moods to even out.
                amount: Amount::For { first: 200, seconds: 1.0 },
                native: (synchronous == "OFF").then_some(Native::control(MMAP_SIZE)),
                in_quick: synchronous != "NORMAL",
                work: Box::new(Sqlite { kind: "update", journal, synchronous }),
                ..select("", "", NOT_SLOWER, Native::control(MMAP_SIZE))
            });
        }
    }
    cases
}
