//! Tests of RocksDB by its own benchmark and checkers.

use bywash_programs::{ScenarioRun, on_both_file_systems};

on_both_file_systems!(filled_and_checked, killed_while_filling);

const KEYS: u32 = 20_000;

/// Runs db_bench with one thread and a fixed seed, so that its counts are reproducible.
fn db_bench(stage: &ScenarioRun, benchmarks: &str, more: &[&str]) -> String {
    let fixed = ["--seed=4711", "--threads=1", "--compression_type=none", "--cache_size=65536"];
    let small = ["--value_size=100", "--write_buffer_size=262144", "--target_file_size_base=262144"];
    let bench = stage.program("db_bench").args(["--db=db", "--statistics=0"]);
    let bench =
        bench.args(fixed).args(small).args([format!("--num={KEYS}"), format!("--benchmarks={benchmarks}")]);
    bench.args(more).limit(50).run().ok()
}

/// Returns the lines that tell the number of keys found, without the times.
fn counts(output: &str) -> String {
    let found = output.lines().filter_map(|line| line.split_once('('));
    let found = found.filter(|(_, tail)| tail.contains(" of ") && tail.contains(" found"));
    found.map(|(head, tail)| format!("{} ({tail}\n", head.split(' ').next().unwrap_or(""))).collect()
}

fn check(stage: &ScenarioRun) -> String {
    stage.program("ldb").args(["--db=db", "checkconsistency"]).run().note().ok();
    let verify =
        stage.program("sst_dump").args(["--file=db", "--command=verify", "--verify_checksum"]).run().ok();
    for bad in ["orrupt", "ailed", "rror"] {
        assert!(!verify.contains(bad), "sst_dump found:\n{verify}");
    }
    let rows = "ldb --db=db scan --hex | sha256sum";
    stage.program("bash").args(["-o", "pipefail", "-c", rows]).run().ok()
}

fn filled_and_checked(stage: &ScenarioRun) {
    let output = db_bench(stage, "fillrandom,readrandom,readrandom,readmissing,readseq,seekrandom", &[]);
    let found = counts(&output);
    assert!(found.contains("readrandom"), "db_bench counted nothing:\n{output}");
    stage.note(found);
    stage.note(check(stage));
    let kept = "--use_existing_db=1";
    stage.note(counts(&db_bench(stage, "overwrite,compact,readrandom,verifychecksum", &[kept, "--sync=0"])));
    stage.note(check(stage));
    stage.note(counts(&db_bench(stage, "overwrite,readrandom", &[kept, "--sync=1", "--num=300"])));
    stage.note(counts(&db_bench(stage, "readrandom", &[kept, "--mmap_read=1"])));
    stage.note(counts(&db_bench(stage, "readrandom", &[kept, "--use_direct_reads=1"])));
    stage.note(check(stage));
    stage.expect_served("db_bench");
}

/// A database that is killed while it is filled can be opened again and is consistent.
fn killed_while_filling(stage: &ScenarioRun) {
    for round in 0..3 {
        let mut arguments = vec!["--db=db", "--num=100000000", "--benchmarks=fillrandom"];
        arguments.extend(["--write_buffer_size=262144", "--compression_type=none", "--value_size=100"]);
        if round > 0 {
            arguments.push("--use_existing_db=1");
        }
        let mut filling = stage.program("db_bench").args(arguments).limit(20).start();
        filling.wait_until("a first file", || holds_a_table(stage));
        let ms = 100 + stage.seed().below(400);
        bywash_programs::crew::kill_after(ms, vec![filling]);
        check(stage);
    }
}

fn holds_a_table(stage: &ScenarioRun) -> bool {
    let Ok(entries) = std::fs::read_dir(stage.path("db")) else { return false };
    entries.flatten().any(|entry| entry.path().extension().is_some_and(|kind| kind == "sst"))
}
