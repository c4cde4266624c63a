//! The table of pairs of operations in docs/formats/log.md: the model performs each pair, so the power cuts of `cuts.rs` and
//! the faults of `mutants.rs` try it.

use bywash_power::campaign::{Site, Workload};
use bywash_power::disk::Format;
use bywash_power::launch::Launch;
use bywash_power::machine::{Machine, missing};
use bywash_power::model::pairs::PAIRS;
use bywash_power::model::{HISTORY, history};
use bywash_power::workload::model::Model;
use std::path::Path;

/// Returns the first two cells of each row.
fn rows(document: &str) -> Vec<[String; 2]> {
    let table = document.split("\n## Why replay is right").nth(1).expect("the section with the table");
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = |row: &str| {
        let mut cells = row.split('|').skip(1).map(|cell| cell.trim().to_owned());
        [cells.next(), cells.next()].map(|cell| cell.expect("two cells"))
    };
    rows.map(cells).collect()
}

#[test]
fn every_row_of_the_table_has_a_walk() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/log.md");
    let document = std::fs::read_to_string(document).expect("the format of the log");
    let walked: Vec<[String; 2]> =
        PAIRS.iter().map(|(first, then, _)| [(*first).to_owned(), (*then).to_owned()]).collect();
    assert_eq!(rows(&document), walked, "a row of docs/formats/log.md and one of src/model/pairs.rs");
    assert!(PAIRS.iter().all(|(_, _, walks)| !walks.is_empty()));
}

/// Runs the model with a log and looks whether every walk is in its history, and whether most syncs were commits.
#[test]
fn the_model_performs_every_pair_with_a_log() {
    if let Some(why) = missing() {
        return println!("left out: {why}");
    }
    let launch = Launch::with_commit_log();
    let model = Model::new(Format::Ext4, OPERATIONS);
    let machine =
        Machine::new(Path::new(env!("CARGO_BIN_EXE_bywash-power")), model.disks()).expect("a machine");
    let site = Site { machine: &machine, launch: &launch };
    let mounted = machine.mount("now").expect("a disk");
    model.prepare(&site).expect("files");
    machine.hook(&launch.prepare).expect("a log");
    std::fs::write(machine.index(), []).expect("an empty recording");
    // The keeper is asked for its counters while a program uses the log.
    let script = r#""$@" && exec "$0" log status --json {log}"#;
    let words = [&launch.prefix[0], "-c", script].map(|word| word.to_owned());
    let words = Launch::with_log(&words, &machine.log());
    let model_words = model.words(&site, 1);
    let words =
        ["sh", &words[1], &words[2], &words[0]].into_iter().chain(model_words.iter().map(String::as_str));
    let status = machine.run(site.launched(&words.collect::<Vec<_>>()), 60).expect("a run of the model");
    mounted.unmount().expect("an idle disk");
    let events = history::read(&machine.memory().join(HISTORY)).expect("a history");
    for (first, then, walks) in PAIRS {
        for walk in walks {
            assert!(walk.is_in(&events), "{first}, {then}: {walk:?} is not in the history");
        }
    }
    let commits = counter(&status, "commits");
    let kernel: u64 =
        ["kernel_changed", "kernel_first", "kernel_unsuited"].iter().map(|name| counter(&status, name)).sum();
    println!("{commits} commits, {kernel} syncs by the kernel");
    assert!(
        commits * 2 > kernel,
        "{commits} commits and {kernel} syncs by the kernel: the log is hardly tried"
    );
}

/// Returns a counter of a log's status in JSON.
fn counter(status: &str, name: &str) -> u64 {
    let rest =
        status.split(&format!("\"{name}\": ")).nth(1).unwrap_or_else(|| panic!("no {name} in {status}"));
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().expect("a number")
}

/// Operations of each process, of which a version takes twelve, and each method of being unseen two versions.
const OPERATIONS: u64 = 400;
