//! Power cuts under programs that commit by the kernel (or by what BYWASH_POWER_PREFIX names), and by a commit log.

use bywash_power::campaign::{Campaign, Workload};
use bywash_power::disk::Format;
use bywash_power::launch::Launch;
use bywash_power::machine::missing;
use bywash_power::workload::model::Model;
use bywash_power::workload::servers::Bank;
use bywash_power::workload::sqlite::{Journal, Sqlite};
use std::path::Path;

/// Cuts the power `cuts` times, or BYWASH_POWER_CUTS times: in several recordings if there are many.
fn survives(test: &str, workload: impl Fn() -> Box<dyn Workload>, cuts: usize) {
    survives_by(test, Launch::from_environment(), workload, cuts);
}

/// Cuts the power under a workload that commits by a log beside its data, or on a disk of its own with a file system.
fn survives_with_log(
    test: &str,
    disk_of_log: Option<Format>,
    workload: impl Fn() -> Box<dyn Workload>,
    cuts: usize,
) {
    survives_by(test, Launch { log: disk_of_log, ..Launch::with_commit_log() }, workload, cuts);
}

fn survives_by(test: &str, launch: Launch, workload: impl Fn() -> Box<dyn Workload>, cuts: usize) {
    if let Some(why) = missing() {
        return println!("left out: {why}");
    }
    let all = Campaign { launch, ..Campaign::from_environment(cuts) };
    println!("BYWASH_POWER_SEED={}", all.seed);
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("power-{test}"));
    let keep = all.replay.is_none().then(|| kept.clone());
    for (round, begin) in (0..all.cuts).step_by(CUTS_OF_A_RECORDING).enumerate() {
        let (seed, cuts) = (all.seed + round as u64, CUTS_OF_A_RECORDING.min(all.cuts - begin));
        let again = format!(
            "BYWASH_POWER_SEED={seed} BYWASH_POWER_CUTS={cuts} cargo test -p bywash-power --test cuts {test}\n\
             with the same recording, if it was kept: BYWASH_POWER_REPLAY={}",
            kept.display()
        );
        let campaign = Campaign { seed, cuts, keep: keep.clone(), ..all.clone() };
        let program = Path::new(env!("CARGO_BIN_EXE_bywash-power"));
        let outcome = campaign.run(program, &*workload()).unwrap_or_else(|why| panic!("{why}\n{again}"));
        assert!(outcome.failure.is_none(), "{}\n{again}", outcome.failure.unwrap_or_default());
        assert!(outcome.commits > 0, "nothing was acknowledged\n{again}");
        println!("{test}: {outcome}");
    }
}

/// Greatest number of cuts of one recording, of which each has some two thousand requests.
const CUTS_OF_A_RECORDING: usize = 500;

#[test]
fn model_on_ext4() {
    survives("model_on_ext4", || Box::new(Model::new(Format::Ext4, 400)), 40);
}

#[test]
fn model_on_xfs() {
    survives("model_on_xfs", || Box::new(Model::new(Format::Xfs, 400)), 15);
}

#[test]
fn sqlite_with_a_deleted_journal() {
    survives(
        "sqlite_with_a_deleted_journal",
        || Box::new(Sqlite::new(Journal::Delete, Format::Ext4, 60)),
        15,
    );
}

#[test]
fn sqlite_with_a_persistent_journal() {
    survives(
        "sqlite_with_a_persistent_journal",
        || Box::new(Sqlite::new(Journal::Persist, Format::Ext4, 60)),
        15,
    );
}

#[test]
fn sqlite_with_a_write_ahead_log() {
    survives("sqlite_with_a_write_ahead_log", || Box::new(Sqlite::new(Journal::Wal, Format::Ext4, 60)), 15);
}

#[test]
fn berkeley_db() {
    survives("berkeley_db", || Box::new(Bank::in_berkeley_db(60)), 5);
}

#[test]
fn mariadb() {
    survives("mariadb", || Box::new(Bank::in_mariadb(40)), 5);
}

#[test]
fn postgresql() {
    survives("postgresql", || Box::new(Bank::in_postgresql(40)), 5);
}

#[test]
fn rocksdb() {
    survives("rocksdb", || Box::new(Bank::in_rocksdb(60)), 5);
}

#[test]
fn log_under_the_model_on_ext4() {
    survives_with_log("log_under_the_model_on_ext4", None, || Box::new(Model::new(Format::Ext4, 400)), 80);
}

#[test]
fn log_under_the_model_on_xfs() {
    survives_with_log("log_under_the_model_on_xfs", None, || Box::new(Model::new(Format::Xfs, 400)), 50);
}

#[test]
fn log_on_another_disk_under_the_model() {
    let disk = Some(Format::Ext4);
    survives_with_log(
        "log_on_another_disk_under_the_model",
        disk,
        || Box::new(Model::new(Format::Ext4, 400)),
        70,
    );
}

#[test]
fn log_under_sqlite() {
    for journal in [Journal::Delete, Journal::Persist, Journal::Wal] {
        let workload = || -> Box<dyn Workload> { Box::new(Sqlite::new(journal, Format::Ext4, 60)) };
        survives_with_log("log_under_sqlite", None, workload, 67);
    }
}

#[test]
fn log_under_berkeley_db() {
    survives_with_log("log_under_berkeley_db", None, || Box::new(Bank::in_berkeley_db(60)), 5);
}

#[test]
fn log_under_mariadb() {
    survives_with_log("log_under_mariadb", None, || Box::new(Bank::in_mariadb(40)), 5);
}

#[test]
fn log_under_postgresql() {
    survives_with_log("log_under_postgresql", None, || Box::new(Bank::in_postgresql(40)), 5);
}

#[test]
fn log_under_rocksdb() {
    survives_with_log("log_under_rocksdb", None, || Box::new(Bank::in_rocksdb(60)), 5);
}
