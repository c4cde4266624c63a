//! `bywash bench log`: programs that commit, with a commit log, by the kernel alone, and with syncs that do nothing.
//!
//! Every case runs on the disk and on a file system over memory, whose logs lie on the same memory. Both sides of a ratio
//! make commits equally durable; the bound is libeatmydata, with which nothing is durable, and its name in a row says so.
//!
//! - [`cases`]: the programs
//! - [`sides`]: one case on one file system, and its rows
//! - [`commit_log`]: the log of a run
//! - [`recovery`]: the time that recovery takes

mod cases;
pub(crate) mod commit_log;
mod recovery;
mod sides;

use crate::campaign::{self, Audience, Choice, Declared};
use crate::engine::Rounds;
use crate::error::{Attempt, Error};
use crate::place::{Kind, Place, Places};
use crate::programs::Programs;
use crate::programs::line::find_library;
use crate::programs::stage::{Stage, make_room};
use crate::row::{Report, Row};
use crate::workspace::Workspace;
use commit_log::Device;
use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

/// File systems of the data, with the devices of logs that cases there compare.
const DISKS: [(Kind, &str, &[Device]); 2] = [
    (Kind::DiskSmall, "disk", &[Device::SameDisk]),
    (Kind::LoopExt4, "memory", &[Device::OwnDisk, Device::Mapped, Device::Channel, Device::SlowChannel]),
];

/// Resources of all cases.
struct Ground {
    data: Places,
    /// File system of logs that do not share that of the data.
    logs: Places,
    programs: Programs,
    library: PathBuf,
    quick: bool,
    rounds: Rounds,
    folder_in_use: RefCell<Option<PathBuf>>,
}

impl Ground {
    /// The disk of logs that do not share that of the data.
    fn other_disk(&self) -> Result<&Place, Error> {
        self.logs.find(Kind::LoopExt4)
    }

    /// The stage of a bench's cases on the file system of `kind`.
    fn stage(&self, bench: &str, kind: Kind) -> Result<Stage<'_>, Error> {
        let place = self.data.find(kind)?;
        let folder = place.root.join(bench);
        make_room(&mut self.folder_in_use.borrow_mut(), &folder)?;
        let Ground { programs, library, quick, .. } = self;
        Ok(Stage { place, folder, programs, library, quick: *quick })
    }
}

/// A case on the file system of a kind, and whether a quick run has it.
struct Planned {
    kind: Kind,
    in_quick: bool,
    case: Declared<Ground>,
}

/// Measures what was chosen. Returns the report, and whether it was interrupted.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let named = all().map(|planned| (planned.case.name().to_owned(), planned)).collect();
    let chosen = campaign::shortened(named, choice, |planned: &Planned| planned.in_quick)?;
    let library = find_library()?;
    let workspace = Workspace::create(choice.folder.as_deref())?;
    let programs = Programs::new(workspace.programs());
    audience.progress(0, chosen.len() as u64, "making file systems");
    let make = |name: &str, kinds: &[Kind]| {
        let is_wanted = |kind: &Kind| chosen.iter().any(|planned| planned.kind == *kind);
        let kinds: Vec<Kind> = kinds.iter().copied().filter(is_wanted).collect();
        let folder = workspace.run().join(name);
        fs::create_dir_all(&folder).doing("create", &folder)?;
        Places::make(&folder, &kinds, "")
    };
    let (data, logs) = (make("data", &DISKS.map(|(kind, ..)| kind))?, make("logs", &[Kind::LoopExt4])?);
    let (quick, rounds) = (choice.quick, choice.rounds().limited());
    let ground = Ground { data, logs, programs, library, quick, rounds, folder_in_use: RefCell::new(None) };
    Ok(campaign::run(chosen.into_iter().map(|planned| planned.case.on(&ground)).collect(), audience))
}

/// All cases; those of one bench on one file system come together, as they share files.
fn all() -> impl Iterator<Item = Planned> {
    DISKS.into_iter().flat_map(|(kind, disk, devices)| {
        let programs = cases::all().into_iter().map(move |case| {
            let head = Row::head(&format!("log/{}", case.bench), case.name, disk);
            let in_quick = case.quick_on.contains(&kind);
            let measure =
                move |ground: &Ground, head: &Row| sides::measure(&case, ground, kind, devices, head);
            Planned { kind, in_quick, case: Declared::new(head, measure) }
        });
        let head = Row::head("log/recovery", "a full log", disk);
        let device = devices[0];
        let measure = move |ground: &Ground, head: &Row| recovery::measure(ground, kind, device, head);
        programs.chain([Planned { kind, in_quick: true, case: Declared::new(head, measure) }])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_case_has_a_name_of_its_own_and_a_quick_run_has_two_servers() {
        let chosen = |names: &[&str], quick| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let choice = Choice { names, quick, ..Choice::default() };
            let named = all().map(|planned| (planned.case.name().to_owned(), planned)).collect();
            campaign::shortened(named, &choice, |planned: &Planned| planned.in_quick).unwrap()
        };
        let names: HashSet<String> =
            chosen(&[], false).iter().map(|planned| planned.case.name().to_owned()).collect();
        assert_eq!(names.len(), all().count());
        assert!(names.contains("sqlite: WAL, memory") && names.contains("recovery: a full log, disk"));
        // The others run when they are the only ones that were chosen.
        let counts = [(&["servers"][..], true), (&[], true), (&["shipped"], true)].map(|(names, quick)| {
            let all = chosen(names, quick);
            all.iter().filter(|planned| planned.case.head.bench == "log/servers").count()
        });
        assert_eq!(counts, [2, 2, 4]);
        let peers = chosen(&["sqlite"], false);
        assert!(peers.iter().all(|planned| planned.case.head.bench == "log/sqlite"));
    }
}
