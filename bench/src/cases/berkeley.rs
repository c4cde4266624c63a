//! Berkeley DB with a cache smaller than its data.

use super::{Amount, Case, Done, Metric, NOT_SLOWER, Stage, Workload, parse_done};
use crate::error::Error;
use crate::launch::{Run, Side};
use crate::place::Kind;
use crate::{child, programs};
use std::path::PathBuf;
use std::process::Command;

const RECORDS: u64 = 100_000;
const RECORDS_QUICK: u64 = 10_000;
/// A sixteenth of the data.
const CACHE_BYTES: u64 = 1 << 20;
const CACHE_BYTES_QUICK: u64 = 1 << 16;

struct Berkeley {
    kind: &'static str,
    transactions: &'static str,
}

impl Berkeley {
    fn master(&self, stage: &Stage) -> PathBuf {
        stage.folder.join(format!("master-{}", self.kind))
    }
}

fn work(stage: &Stage) -> PathBuf {
    stage.folder.join("work")
}

fn records(stage: &Stage) -> u64 {
    if stage.quick { RECORDS_QUICK } else { RECORDS }
}

impl Workload for Berkeley {
    fn prepare(&mut self, stage: &Stage) -> Result<(), Error> {
        let program = stage.programs.executable(&programs::BERKELEY)?;
        let master = self.master(stage);
        if master.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&master).map_err(|error| Error::io("create", &master, error))?;
        let mut load = Command::new(program);
        load.arg("load").arg(&master).args([self.kind, "none", &records(stage).to_string()]);
        child::run(&mut load).map(drop)
    }

    fn reset(&mut self, stage: &Stage) -> Result<(), Error> {
        stage.place.copy_tree(&self.master(stage), &work(stage))
    }

    fn run(&mut self, stage: &Stage, run: &Run, operations: u64) -> Result<Done, Error> {
        debug_assert_ne!(run.side(), Side::Native);
        let cache = if stage.quick { CACHE_BYTES_QUICK } else { CACHE_BYTES };
        let mut command = run.command(stage.programs.executable(&programs::BERKELEY)?);
        command.arg("run").arg(work(stage)).args([self.kind, self.transactions]);
        command.args([records(stage), operations, cache, 1].map(|number| number.to_string()));
        parse_done("berkeley", &child::run(&mut command)?.stdout)
    }
}

/// The `berkeley` bench.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in ["btree", "hash"] {
        for (transactions, name, goal, first) in [
            ("none", "no transactions", 1.3, 4000),
            ("nosync", "transactions NOSYNC", NOT_SLOWER, 4000),
            ("sync", "transactions SYNC", NOT_SLOWER, 400),
        ] {
            cases.push(Case {
                bench: "berkeley",
                name: format!("{kind}, {name}"),
                metrics: vec![Metric::rate("op/s", goal)],
                places: Kind::ALL,
                amount: Amount::For { first, seconds: 0.8 },
                native: None,
                in_quick: kind == "btree" || transactions == "none",
                work: Box::new(Berkeley { kind, transactions }),
            });
        }
    }
    cases
}
