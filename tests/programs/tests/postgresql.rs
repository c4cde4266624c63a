//! Test of PostgreSQL: pgbench, a kill of every process of the server meanwhile, recovery, and the server's
//! own checks.
//!
//! Each transaction of pgbench adds the same amount to an account, a teller, a branch and the history, so the
//! four sums are equal in every committed state.

use bywash_programs::{Program, Running, ScenarioRun, crew, on_both_file_systems, server};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

on_both_file_systems!(loaded_killed_and_checked);

const USER: &str = "postgres";

fn start(stage: &ScenarioRun, plain: bool) -> Running<'_> {
    let data = stage.path("data");
    let settings = [
        "listen_addresses=",
        "unix_socket_directories=run",
        // Buffers smaller than the data, and in the folder, so that a kill leaves nothing elsewhere.
        "shared_buffers=1MB",
        "dynamic_shared_memory_type=mmap",
        "full_page_writes=on",
        "autovacuum=off",
        "max_connections=8",
    ];
    let mut postgres = stage.program("postgres").user(USER).arg("-D").arg(&data);
    for setting in settings {
        postgres = postgres.args(["-c", setting]);
    }
    server::start(if plain { postgres.plain() } else { postgres }, || client(stage, "pg_isready"))
}

fn client<'a>(stage: &'a ScenarioRun, program: &str) -> Program<'a> {
    stage.program(program).env("PGHOST", stage.path("data/run")).env("PGUSER", USER).env("PGDATABASE", USER)
}

/// Stops the server by pg_ctl, which sends SIGINT to its first process: a fast shutdown.
fn stop(stage: &ScenarioRun, server: Running) {
    stage.program("pg_ctl").user(USER).args(["stop", "-m", "fast", "-D", "data"]).run().ok();
    server.wait().ok();
}

fn check(stage: &ScenarioRun) {
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) - sum(tbalance),
        sum(tbalance) - (SELECT sum(bbalance) FROM pgbench_branches),
        sum(tbalance) - (SELECT sum(delta) FROM pgbench_history),
        (SELECT count(*) FROM pgbench_accounts) FROM pgbench_tellers";
    let sums = client(stage, "psql").args(["-X", "-A", "-t", "-c", sums]).run().ok();
    assert_eq!(sums, "0|0|0|100000\n");
    client(stage, "pg_amcheck").args(["--install-missing", "--heapallindexed", "--all"]).limit(50).run().ok();
}

/// Removes, when dropped, the System V segment by which the server marks its folder as in use. A killed
/// server leaves the segment; the seventh line of postmaster.pid names it.
struct Interlock(PathBuf);

impl Drop for Interlock {
    fn drop(&mut self) {
        let Ok(lock) = fs::read_to_string(&self.0) else { return };
        if let Some(segment) = lock.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            // A failure cannot be reported from here, and most often the test has failed already.
            let _ = Command::new("ipcrm").args(["-m", segment]).status();
        }
    }
}

fn loaded_killed_and_checked(stage: &ScenarioRun) {
    let _interlock = Interlock(stage.path("data/postmaster.pid"));
    server::own_folder(stage, "data", USER);
    let initdb = stage.program("initdb").user(USER).args(["-D", "data", "--data-checksums", "--auth=trust"]);
    initdb.args(["-U", USER, "--locale=C", "--wal-segsize=1"]).limit(50).run().ok();
    server::own_folder(stage, "data/run", USER);

    let first = start(stage, false);
    client(stage, "pgbench").args(["-i", "-q", "-s", "1"]).run().ok();
    client(stage, "pgbench").args(["-n", "-c", "2", "-t", "250"]).run().ok();
    client(stage, "pgbench").args(["-n", "-S", "-c", "2", "-t", "500"]).run().ok();
    let endless = client(stage, "pgbench").args(["-n", "-c", "3", "-T", "60"]).start();
    let ms = 500 + stage.seed().below(700);
    crew::kill_after(ms, vec![first]);
    drop(endless);

    let second = start(stage, false);
    check(stage);
    client(stage, "pgbench").args(["-n", "-c", "2", "-t", "100"]).run().ok();
    client(stage, "psql").args(["-X", "-c", "VACUUM FULL", "-c", "CHECKPOINT"]).run().ok();
    stop(stage, second);
    stage.program("pg_checksums").user(USER).args(["--check", "-D", "data"]).run().ok();
    let by_the_kernel = start(stage, true);
    check(stage);
    stop(stage, by_the_kernel);
    stage.program("pg_checksums").user(USER).args(["--check", "-D", "data"]).plain().run().ok();
    stage.note("sound after the crash and after the end");
    stage.expect_served("postgres");
}
