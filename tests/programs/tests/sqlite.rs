//! Tests of sqlite3: the same work gives the same database, and no crash loses or creates money.
//!
//! In a crash loop several shells transfer money between accounts of one database until they are killed. Each
//! may lose its last transactions. The sum over all accounts, one row of history for each transfer, and the
//! database's structure (`PRAGMA integrity_check`) must stay correct.

use bywash_programs::{CrashRounds, Program, Running, ScenarioRun, crew, on_both_file_systems};
use std::fs;

on_both_file_systems!(
    the_same_database,
    crashes_in_wal_mode,
    crashes_with_a_rollback_journal,
    half_under_the_library,
    many_small_transactions,
);

const ACCOUNTS: u64 = 400;

fn sqlite<'a>(stage: &'a ScenarioRun, script: &str) -> Program<'a> {
    stage.program("sqlite3").args(["-batch", "-bail", "bank.db"]).input(script)
}

/// Runs one script of all statements that access files in a way of their own, with a small cache.
fn the_same_database(stage: &ScenarioRun) {
    for mode in ["delete", "wal", "truncate", "persist"] {
        let file = format!("{mode}.db");
        let mut script = format!(
            "PRAGMA page_size=1024; PRAGMA cache_size=20; PRAGMA journal_mode={mode};
             CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT UNIQUE, body BLOB);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1500)
               INSERT INTO t SELECT i, 'name '||i, zeroblob(i%700) FROM n;\n"
        );
        for _ in 0..60 {
            let (from, many) = (stage.seed().below(1500), stage.seed().below(50));
            script += &format!(
                "BEGIN; UPDATE t SET body=zeroblob(300+id%{many}0) WHERE id BETWEEN {from} AND {from}+{many};
                 SAVEPOINT s; DELETE FROM t WHERE id%97={many}; ROLLBACK TO s; {};
                 SELECT count(*), sum(length(body)) FROM t WHERE id>{from};\n",
                if from % 5 == 0 { "ROLLBACK" } else { "COMMIT" }
            );
        }
        script += "DELETE FROM t WHERE id%3=0; PRAGMA incremental_vacuum; VACUUM; REINDEX; ANALYZE;
             PRAGMA integrity_check; SELECT name, length(body) FROM t WHERE id%50=1 ORDER BY name DESC;\n";
        script += &format!(".backup copy-of-{file}\n.sha3sum\n.dump\n");
        stage.program("sqlite3").args(["-batch", "-bail", &file]).input(&script).run().note().ok();
    }
    stage.program("sqlite3").args(["copy-of-wal.db", ".sha3sum", "PRAGMA integrity_check"]).run().note();
    stage.expect_served("sqlite3");
    // The head of a journal that is kept contains a random number, so the journal cannot be compared.
    fs::remove_file(stage.path("persist.db-journal")).expect("the journal");
    stage.note_tree();
}

fn open_the_bank(stage: &ScenarioRun, mode: &str) {
    let script = format!(
        "PRAGMA page_size=1024; PRAGMA journal_mode={mode};
         CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER, moves INTEGER, note TEXT);
         CREATE TABLE history(id INTEGER PRIMARY KEY, source, target, amount);
         CREATE INDEX by_source ON history(source, amount);
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<{ACCOUNTS}-1)
           INSERT INTO account SELECT i, 1000, 0, hex(zeroblob(40)) FROM n;"
    );
    sqlite(stage, &script).plain().run().ok();
}

/// Makes a script of transfers, a few per transaction, with each transaction on a line of its own.
fn transfers(stage: &ScenarioRun, transactions: usize) -> String {
    let mut script = ".timeout 20000\nPRAGMA cache_size=10; PRAGMA cache_spill=5;\n".to_owned();
    for _ in 0..transactions {
        script += "BEGIN IMMEDIATE;";
        for _ in 0..1 + stage.seed().below(4) {
            let [source, target] = [(); 2].map(|()| stage.seed().below(ACCOUNTS));
            let amount = stage.seed().below(100);
            script += &format!(
                "UPDATE account SET balance=balance-{amount}, moves=moves+1 WHERE id={source}; \
                 UPDATE account SET balance=balance+{amount} WHERE id={target}; \
                 INSERT INTO history(source, target, amount) VALUES({source}, {target}, {amount});"
            );
        }
        script += if stage.seed().below(8) == 0 { "ROLLBACK;\n" } else { "COMMIT;\n" };
    }
    script
}

/// Checks the database, by the kernel and on the stage's own side.
fn audit(stage: &ScenarioRun, round: u32) {
    let script = format!(
        ".timeout 20000
         PRAGMA integrity_check; SELECT sum(balance)-{ACCOUNTS}*1000 FROM account;
         SELECT (SELECT sum(moves) FROM account)-(SELECT count(*) FROM history);
         SELECT (SELECT total(amount) FROM history)
           -(SELECT total(amount) FROM history INDEXED BY by_source WHERE source>=0);"
    );
    for answer in [sqlite(stage, &script).run().ok(), sqlite(stage, &script).plain().run().ok()] {
        assert_eq!(answer, "ok\n0\n0\n0.0\n", "the audit after round {round} found that");
    }
}

/// Members of a crew that run without the library.
#[derive(Clone, Copy, PartialEq)]
enum Mixed {
    No,
    EveryOther,
}

fn crash_loop(stage: &ScenarioRun, mode: &str, mixed: Mixed) {
    open_the_bank(stage, mode);
    let script = transfers(stage, 3000);
    for round in CrashRounds::at_least(20) {
        let crew: Vec<Running> = (0..3)
            .map(|member| {
                // Each member begins at another line of the script.
                let lines: Vec<&str> = script.lines().collect();
                let skipped = stage.seed().below(2000) as usize;
                let own =
                    lines[..2].iter().chain(&lines[2 + skipped..]).copied().collect::<Vec<_>>().join("\n");
                let shell = sqlite(stage, &own);
                let plain = mixed == Mixed::EveryOther && member % 2 == 0;
                if plain { shell.plain().start() } else { shell.start() }
            })
            .collect();
        let ms = 10 + stage.seed().below(90);
        crew::kill_after(ms, crew);
        audit(stage, round);
    }
    stage.note("the bank is sound after every round");
    assert!(history(stage) > 0, "no round got as far as one transfer");
    stage.expect_served("sqlite3");
}

fn history(stage: &ScenarioRun) -> u64 {
    let count = sqlite(stage, "SELECT count(*) FROM history").plain().run().ok();
    count.trim().parse().expect("a count")
}

fn crashes_in_wal_mode(stage: &ScenarioRun) {
    crash_loop(stage, "wal", Mixed::No);
}

fn crashes_with_a_rollback_journal(stage: &ScenarioRun) {
    crash_loop(stage, "delete", Mixed::No);
}

fn half_under_the_library(stage: &ScenarioRun) {
    for mode in ["wal", "delete"] {
        crash_loop(stage, mode, Mixed::EveryOther);
        stage.program("sh").plain().args(["-c", "rm bank.db*"]).run().ok();
    }
}

/// Two shells run at the same time, without crashes, and the result is the same as on the other side.
fn many_small_transactions(stage: &ScenarioRun) {
    for (mode, synchronous) in [("wal", "normal"), ("delete", "full"), ("wal", "off"), ("truncate", "off")] {
        open_the_bank(stage, mode);
        let scripts = [(); 2].map(|()| {
            transfers(stage, 150).replacen("PRAGMA", &format!("PRAGMA synchronous={synchronous}; PRAGMA"), 1)
        });
        let crew: Vec<Running> = scripts.iter().map(|script| sqlite(stage, script).start()).collect();
        for shell in crew {
            shell.wait().ok();
        }
        audit(stage, 0);
        let all = "SELECT id, balance, moves FROM account; SELECT source, target, amount FROM history ORDER BY 1,2,3;";
        stage.note(sqlite(stage, all).run().ok());
        stage.program("sh").plain().args(["-c", "rm bank.db*"]).run().ok();
    }
    stage.expect_served("sqlite3");
}
