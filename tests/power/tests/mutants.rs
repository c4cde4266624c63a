//! Tests of the tests: programs and disks that break their promises. Each must be convicted.

use bywash_power::campaign::{Campaign, Workload};
use bywash_power::disk::Format;
use bywash_power::image::Fault;
use bywash_power::kill::kill_and_recover;
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
    // Recovery refuses a log that has lost what is older than its last batch.
    let of_logs = ["is corrupt:"];
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
    let workloads: [&dyn Workload; 3] = [
        &Model::new(Format::Ext4, 300),
        &Sqlite::new(Journal::Wal, Format::Ext4, 60),
        // Its server and the log are another user's.
        &Bank::in_postgresql(40),
    ];
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

/// Cuts the power under a log with a fault: in several recordings, since a fault that needs two processes at one moment may
/// be in one of them seldom.
fn log_is_convicted(mutant: &str, log: Option<Format>) {
    if let Some(why) = missing() {
        return println!("left out: {why}");
    }
    let all = Campaign {
        launch: Launch { log, ..Launch::with_mutant(mutant) },
        replay: None,
        ..Campaign::from_environment(CUTS_OF_A_RECORDING)
    };
    println!("BYWASH_POWER_SEED={}", all.seed);
    let program = Path::new(env!("CARGO_BIN_EXE_bywash-power"));
    for seed in all.seed..all.seed + RECORDINGS {
        let campaign = Campaign { seed, cuts: CUTS_OF_A_RECORDING, ..all.clone() };
        let outcome = campaign.run(program, &Model::new(Format::Ext4, 400)).expect("a campaign");
        if let Some(why) = &outcome.failure {
            println!("{mutant}, seed {seed}, after {outcome}: {why}");
            return assert!(is_verdict(why), "{mutant} was not convicted, but this failed: {why}");
        }
    }
    panic!("{mutant} was not noticed in {RECORDINGS} recordings; BYWASH_POWER_SEED={}", all.seed);
}

/// Greatest number of recordings until a fault of a log is convicted, and of cuts of each.
const RECORDINGS: u64 = 6;
const CUTS_OF_A_RECORDING: usize = 200;

#[test]
fn a_log_without_flushes() {
    log_is_convicted("flush-left-out", Some(Format::Ext4));
}

#[test]
fn a_log_in_wrong_order() {
    log_is_convicted("wrong-order", Some(Format::Ext4));
}

#[test]
fn a_log_without_checksums() {
    log_is_convicted("checksum-missing", Some(Format::Ext4));
}

#[test]
fn a_mark_that_is_written_late() {
    log_is_convicted("mark-late", None);
}

#[test]
fn a_sequence_number_that_is_drawn_late() {
    log_is_convicted("sequence-late", None);
}

#[test]
fn a_truncation_that_is_logged_late() {
    log_is_convicted("truncation-late", None);
}

/// The programs that have the faults built in pass when none is chosen.
#[test]
fn a_log_without_a_fault() {
    if let Some(why) = missing() {
        return println!("left out: {why}");
    }
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("power-a_log_without_a_fault");
    for log in [None, Some(Format::Ext4)] {
        let campaign = Campaign {
            launch: Launch { log, ..Launch::with_mutant("") },
            replay: None,
            keep: Some(kept.clone()),
            ..Campaign::from_environment(20)
        };
        let program = Path::new(env!("CARGO_BIN_EXE_bywash-power"));
        let outcome = campaign.run(program, &Model::new(Format::Ext4, 400)).expect("a campaign");
        let again =
            format!("BYWASH_POWER_SEED={}, its recording is kept in {}", campaign.seed, kept.display());
        assert!(outcome.failure.is_none(), "{}\n{again}", outcome.failure.unwrap_or_default());
    }
}

#[test]
fn kills_on_a_machine_that_goes_on() {
    if let Some(why) = missing() {
        return println!("left out: {why}");
    }
    let seed = Campaign::from_environment(1).seed;
    println!("BYWASH_POWER_SEED={seed}");
    let model = Model::new(Format::Ext4, 4000);
    let program = Path::new(env!("CARGO_BIN_EXE_bywash-power"));
    let kill = |launch: &Launch, seed| kill_and_recover(program, launch, &model, seed).expect("a machine");
    let launch = Launch::with_commit_log();
    for seed in seed..seed + 5 {
        assert_eq!(kill(&launch, seed), None, "BYWASH_POWER_SEED={seed}");
    }
    let launch = Launch::with_mutant("replay-after-kill");
    let why = (seed..seed + 20).find_map(|seed| kill(&launch, seed).inspect(|_| println!("seed {seed}")));
    let why =
        why.unwrap_or_else(|| panic!("a replay after a kill was not noticed; BYWASH_POWER_SEED={seed}"));
    assert!(is_verdict(&why), "{why}");
    println!("a replay after a kill: {why}");
}

/// The library and the command that everybody else builds have no fault that could be chosen.
#[test]
fn no_trace_of_faults_is_built_without_their_feature() {
    let launch = Launch::with_commit_log();
    let command = Path::new(&launch.prefix[0]).with_file_name("bywash-command");
    for path in [command.with_file_name("libbywash_shim.so"), command] {
        let bytes = std::fs::read(&path).expect("what was built");
        let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(has("BYWASH_"), "{}", path.display());
        for trace in ["MUTANT_OF_BYWASH", "flush-left-out", "replay-after-kill"] {
            assert!(!has(trace), "{} has {trace}", path.display());
        }
    }
    let faulty = Launch::with_mutant("").prefix[2].clone();
    let library = std::fs::read(Path::new(&faulty).with_file_name("libbywash_shim.so")).expect("the library");
    assert!(library.windows(16).any(|window| window == b"MUTANT_OF_BYWASH"), "the test would find a trace");
}
