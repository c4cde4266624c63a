//! Tests of Berkeley DB: loaded, dumped, verified, and killed in the middle of transactions.

use bywash_programs::{CrashRounds, Running, ScenarioRun, crew, installed, on_both_file_systems};
use std::path::{Path, PathBuf};

on_both_file_systems!(loaded_and_dumped, killed_in_transactions, without_transactions);

fn loaded_and_dumped(stage: &ScenarioRun) {
    let mut text = String::new();
    for record in 0..6000 {
        let (key, length) = (stage.seed().below(1 << 40), stage.seed().below(60));
        text += &format!("key {key}\nvalue {record} {}\n", "x".repeat(length as usize));
    }
    stage.write("records", text);
    for kind in ["btree", "hash"] {
        let (file, again) = (format!("{kind}.db"), format!("again-{kind}.db"));
        let run = |program: &str, args: &[&str]| stage.program(program).args(args).run().note().ok();
        run("db5.3_load", &["-T", "-t", kind, "-c", "db_pagesize=512", "-f", "records", &file]);
        run("db5.3_verify", &[&file]);
        let dump = run("db5.3_dump", &[&file]);
        stage.write("dump", dump);
        run("db5.3_load", &["-f", "dump", &again]);
        run("db5.3_verify", &[&again]);
        run("db5.3_dump", &["-p", &again]);
        run("db5.3_upgrade", &[&again]);
    }
}

/// Compiles `drivers/bank_of_bdb.c` and returns the path of the program.
fn bank(stage: &ScenarioRun) -> PathBuf {
    installed::require("/usr/include/db.h", "libdb5.3-dev");
    stage.driver("bank_of_bdb", &["-ldb", "-lpthread"])
}

/// Recovers and verifies the bank after a crash, and checks that no money was lost or created.
fn audit(stage: &ScenarioRun, bank: &Path, round: u32) {
    stage.program("db5.3_recover").args(["-h", "env"]).run().ok();
    for file in ["accounts.db", "history.db"] {
        stage.program("db5.3_verify").args(["-h", "env", file]).run().ok();
    }
    let sum = stage.program(bank).args(["sum", "env"]).run().ok();
    assert_eq!(sum, "sum 0\n", "after round {round}");
    // The kernel alone must find the same. The environment is left for the next round to recover.
    let sum = stage.program(bank).args(["sum", "env"]).plain().run().ok();
    assert_eq!(sum, "sum 0\n", "after round {round}, asked by the kernel");
}

fn killed_in_transactions(stage: &ScenarioRun) {
    // Recovery trusts the number at the beginning of a page, and does not redo a page that is half written.
    stage.without_mapped_writes();
    let bank = bank(stage);
    stage.make_folder("env");
    stage.program(&bank).args(["make", "env"]).run().ok();
    for round in CrashRounds::at_least(20) {
        let crew: Vec<Running> = (0..2)
            .map(|member| {
                let seed = stage.seed().below(1 << 30);
                let how = if (round + member) % 3 == 0 { "sync" } else { "nosync" };
                stage.program(&bank).args(["transfer", "env", how, &seed.to_string()]).start()
            })
            .collect();
        let ms = 20 + stage.seed().below(80);
        crew::kill_after(ms, crew);
        audit(stage, &bank, round);
    }
    let transfers = stage.program(&bank).args(["count", "env"]).plain().run().ok();
    assert_ne!(transfers, "count 0\n", "no round got as far as one transfer");
    stage.note("sound after every round");
    stage.expect_served(&bank);
}

/// Random updates through a cache much smaller than the data, the work that the user level speeds up.
fn without_transactions(stage: &ScenarioRun) {
    let bank = bank(stage);
    for kind in ["btree", "hash"] {
        let file = format!("{kind}.db");
        let seed = stage.seed().below(1 << 30).to_string();
        stage.program(&bank).args(["fill", &file, kind, &seed]).run().note().ok();
        stage.program("db5.3_verify").arg(&file).run().note().ok();
        stage.program("db5.3_dump").arg(&file).run().note().ok();
    }
    stage.expect_served(&bank);
}
