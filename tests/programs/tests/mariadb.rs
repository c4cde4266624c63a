//! Test of MariaDB: an OLTP load, a kill in the middle of it, recovery, and the server's own check.
//!
//! Each transaction of sysbench deletes a row and inserts it again, so a table has [`ROWS`] rows in every
//! committed state.

use bywash_programs::{Program, Running, ScenarioRun, crew, on_both_file_systems, server};

on_both_file_systems!(loaded_killed_and_checked);

const USER: &str = "mysql";
const ROWS: u32 = 600;

fn start(stage: &ScenarioRun, plain: bool) -> Running<'_> {
    let data = stage.path("data");
    let (socket, temporary) = (data.join("socket"), data.join("temporary"));
    let mut daemon = stage.program("mariadbd").arg("--no-defaults").user(USER);
    for (option, path) in [("datadir", &data), ("socket", &socket), ("tmpdir", &temporary)] {
        daemon = daemon.arg(format!("--{option}={}", path.display()));
    }
    // Buffered files, and a pool smaller than the data. By default the server opens its files with O_DIRECT.
    let small = ["--innodb-buffer-pool-size=8M", "--innodb-flush-method=fsync", "--innodb-log-file-size=8M"];
    daemon = daemon.args(small).args(["--skip-networking", "--pid-file=pid", "--innodb-use-native-aio=0"]);
    server::start(if plain { daemon.plain() } else { daemon }, || client(stage, "mariadb-admin").arg("ping"))
}

fn client<'a>(stage: &'a ScenarioRun, program: &str) -> Program<'a> {
    stage.program(program).args(["--no-defaults", "--user=root", "--socket=data/socket"])
}

fn sysbench<'a>(stage: &'a ScenarioRun, command: &str, events: u32) -> Program<'a> {
    let sysbench =
        stage.program("sysbench").args(["oltp_read_write", "--mysql-user=root", "--mysql-db=bank"]);
    let sysbench = sysbench.args(["--tables=2", "--threads=2", "--time=0", "--mysql-socket=data/socket"]);
    sysbench.args([format!("--table-size={ROWS}"), format!("--events={events}")]).arg(command)
}

fn stop(stage: &ScenarioRun, server: Running) {
    client(stage, "mariadb-admin").arg("shutdown").run().ok();
    server.wait().ok();
}

/// Returns true if a line of mariadb-check reports nothing worse than what a killed server may leave.
///
/// Even without the library, 2 of 60 killed servers left a deleted entry of an index whose row was already
/// removed. Readers skip such an entry, and the check only warns of it (MDEV-24402). The table's name and
/// `status : OK` are then lines of their own.
fn is_sound(line: &str) -> bool {
    let is_name = line.starts_with("bank.sbtest") && !line.contains(' ');
    let is_left_over = line.starts_with("Warning  : InnoDB: Clustered index record not found for index")
        && line.contains("info_bits=32,");
    line.trim().is_empty() || line.ends_with("OK") || is_name || is_left_over
}

/// Runs the server's own check of every table, and checks the numbers of rows.
fn check(stage: &ScenarioRun) {
    let report = client(stage, "mariadb-check").args(["--all-databases", "--extended"]).limit(50).run().ok();
    let bad: Vec<&str> = report.lines().filter(|line| !is_sound(line)).collect();
    assert!(bad.is_empty(), "mariadb-check found: {bad:?}");
    let count =
        "SELECT count(*), count(DISTINCT id) FROM sbtest1; SELECT count(*), min(id), max(id) FROM sbtest2;
        SELECT count(*) FROM sbtest1 FORCE INDEX (k_1) WHERE k >= 0;";
    let counts =
        client(stage, "mariadb").args(["--batch", "--skip-column-names", "bank", "-e", count]).run().ok();
    assert_eq!(counts, format!("{ROWS}\t{ROWS}\n{ROWS}\t1\t{ROWS}\n{ROWS}\n"));
}

fn loaded_killed_and_checked(stage: &ScenarioRun) {
    let data = server::own_folder(stage, "data", USER);
    server::own_folder(stage, "data/temporary", USER);
    let install = stage.program("mariadb-install-db").args(["--no-defaults", "--skip-test-db", "--force"]);
    let install = install.args(["--auth-root-authentication-method=normal", "--innodb-log-file-size=8M"]);
    let install = install.arg(format!("--datadir={}", data.display())).env("TMPDIR", data.join("temporary"));
    install.user(USER).limit(50).run().ok();

    let first = start(stage, false);
    client(stage, "mariadb").args(["-e", "CREATE DATABASE bank"]).run().ok();
    sysbench(stage, "prepare", 0).run().ok();
    sysbench(stage, "run", 150).run().ok();
    let endless = sysbench(stage, "run", 1_000_000).start();
    let ms = 300 + stage.seed().below(700);
    crew::kill_after(ms, vec![first]);
    drop(endless);

    let second = start(stage, false);
    check(stage);
    sysbench(stage, "run", 50).run().ok();
    stop(stage, second);
    let by_the_kernel = start(stage, true);
    check(stage);
    stop(stage, by_the_kernel);
    stage.note("sound after the crash and after the end");
}
