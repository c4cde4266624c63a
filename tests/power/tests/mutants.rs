//! Tests of the tests: programs and disks that break their promises. Each must be convicted.

use bywash_power::campaign::{Campaign, Workload};
use bywash_power::disk::Format;
use bywash_power::image::Fault;
use bywash_power::launch::Launch;
use bywash_power::machine::missing;
use bywash_power::workload::model::Model;
use bywash_power::workload::servers::Bank;
use bywash_power::workload::sqlite::{Journal, Sqlite};
use std::path::Path;

/// Cuts the power until a check fails, as it has to within `cuts` cuts.
fn is_convicted(mutant: &str, workload: &dyn Workload, fault: Fault, cuts: usize) {
    is_convicted_by(mutant, Launch::default(), workload, fault, cuts);
}

fn is_convicted_by(mutant: &str, launch: Launch, workload: &dyn Workload, fault: Fault, cuts: usize) {
    if let Some(why) = missing() {
        return println!("left out: {why}");
    }
    let campaign =
        Campaign { cuts, launch, replay: None, ..Campaign::from_environment(cuts).with_fault(fault) };
    let program = Path::new(env!("CARGO_BIN_EXE_bywash-power"));
    let outcome = campaign.run(program, workload).expect("a campaign");
    let why = outcome.failure.as_deref().unwrap_or_else(|| {
        panic!("{mutant} was not noticed in {outcome}; BYWASH_POWER_SEED={}", campaign.seed)
    });
    println!("{mutant}, after {outcome}: {why}");
    assert!(is_verdict(why), "{mutant} was not convicted, but this failed: {why}");
}

/// Returns true if a checker said it, a server that cannot recover, or a mount that found its file system damaged; and not a
/// tool that is missing.
fn is_verdict(why: &str) -> bool {
    let of_checkers =
        ["made durable", "was durable", "acknowledged", "never written", "bytes, not one of", "is gone"];
    let of_databases = ["damaged", "malformed", "half there", " check /"];
    // Recovery of a commit log refuses a log that has lost a batch before the last one.
    let of_logs = ["is corrupt: batch"];
    of_checkers
        .iter()
        .chain(&of_databases)
        .chain(&of_logs)
        .chain(&["mount"])
        .any(|verdict| why.contains(verdict))
}

#[test]
fn a_model_without_syncs() {
    is_convicted("a model without syncs", &Model::new(Format::Ext4, 300).careless(), Fault::None, 40);
}

#[test]
fn an_sqlite_without_syncs() {
    for journal in [Journal::Delete, Journal::Wal] {
        let workload = Sqlite::new(journal, Format::Ext4, 60).careless();
        is_convicted("an SQLite without syncs", &workload, Fault::None, 40);
    }
}

#[test]
fn a_disk_that_ignores_a_flush() {
    is_convicted("an ignored flush", &Model::new(Format::Ext4, 300), Fault::FlushIgnored, 40);
    let workload = Sqlite::new(Journal::Wal, Format::Ext4, 60);
    is_convicted("an ignored flush under SQLite", &workload, Fault::FlushIgnored, 40);
}

#[test]
fn a_disk_that_loses_a_flushed_write() {
    is_convicted("a lost write", &Model::new(Format::Ext4, 300), Fault::WriteLost, 80);
    let workload = Sqlite::new(Journal::Persist, Format::Ext4, 60);
    is_convicted("a lost write under SQLite", &workload, Fault::WriteLost, 80);
}

#[test]
fn a_disk_that_ignores_a_flush_under_servers() {
    let banks = [
        ("Berkeley DB", Bank::in_berkeley_db(60)),
        ("MariaDB", Bank::in_mariadb(40)),
        ("PostgreSQL", Bank::in_postgresql(40)),
        ("RocksDB", Bank::in_rocksdb(60)),
    ];
    for (name, bank) in banks {
        is_convicted(&format!("an ignored flush under {name}"), &bank, Fault::FlushIgnored, 40);
    }
}

/// A commit log of which nothing is written into the files: what was acknowledged is in the log alone.
#[test]
fn a_log_without_recovery() {
    let workloads: [&dyn Workload; 2] =
        [&Model::new(Format::Ext4, 300), &Sqlite::new(Journal::Wal, Format::Ext4, 60)];
    for workload in workloads {
        let launch = Launch { recover: Vec::new(), ..Launch::with_commit_log() };
        is_convicted_by("a log without recovery", launch, workload, Fault::None, 40);
    }
}

/// A disk that ignores a flush loses what a log on it has acknowledged.
#[test]
fn a_disk_that_ignores_a_flush_of_a_log() {
    let workload = Sqlite::new(Journal::Wal, Format::Ext4, 60);
    is_convicted_by(
        "an ignored flush of a log",
        Launch::with_commit_log(),
        &workload,
        Fault::FlushIgnored,
        80,
    );
}
