//! The model program as a workload.

use crate::campaign::{Site, Workload};
use crate::disk::{Disk, Format};
use crate::model::checker::Checker;
use crate::model::{HISTORY, UNSEEN, history, program};
use crate::recording::Position;
use std::cell::OnceCell;

/// The model program on one disk.
#[derive(Debug)]
pub struct Model {
    format: Format,
    operations: u64,
    is_careless: bool,
    checker: OnceCell<Checker>,
}

impl Model {
    /// Makes the workload with this number of operations of each process.
    pub fn new(format: Format, operations: u64) -> Model {
        Model { format, operations, is_careless: false, checker: OnceCell::new() }
    }

    /// Returns the workload with every sync left out.
    pub fn careless(self) -> Model {
        Model { is_careless: true, ..self }
    }

    /// Returns the command line of the program, without what a launch puts before it.
    pub fn words(&self, site: &Site, seed: u64) -> Vec<String> {
        let machine = site.machine;
        let [program, data, memory, index] =
            [machine.program().into(), machine.path("data"), machine.memory(), machine.index()];
        let [program, data, memory, index] =
            [program, data, memory, index].map(|path| path.display().to_string());
        let numbers = [seed, self.operations, u64::from(self.is_careless)].map(|number| number.to_string());
        let [seed, operations, careless] = &numbers;
        let words = [&program, "model", &data, &memory, &index, seed, operations, careless];
        words.map(str::to_owned).to_vec()
    }
}

impl Workload for Model {
    fn disks(&self) -> Vec<Disk> {
        vec![Disk::new("data", self.format)]
    }

    fn prepare(&self, site: &Site) -> Result<(), String> {
        let program = site.machine.memory().join(UNSEEN).display().to_string();
        let words = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", &program, UNSEEN_SOURCE, "-luring"];
        site.machine.run(words, LIMIT_S)?;
        program::prepare(&site.machine.path("data"))
            .map_err(|error| format!("the files of the model: {error}"))
    }

    fn run(&self, site: &Site, seed: u64) -> Result<(), String> {
        let words = self.words(site, seed);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        site.machine.run(site.launched(&words), LIMIT_S).map(drop)
    }
    fn check(&self, site: &Site, cut: Position) -> Result<u64, String> {
        if self.checker.get().is_none() {
            let events = history::read(&site.machine.memory().join(HISTORY));
            let events = events.map_err(|error| format!("the history: {error}"))?;
            // It was empty.
            let _ = self.checker.set(Checker::new(&events));
        }
        let checker = self.checker.get().ok_or("there is no history")?;
        checker.check(&site.machine.path("data"), cut)
    }
}

/// Source of the program that changes a file unseen.
const UNSEEN_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/drivers/unseen.c");
/// Greatest time of a run, in s.
const LIMIT_S: u64 = 120;
