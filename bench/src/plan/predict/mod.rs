//! Predictions of programs by `bywash plan predict`, against the same programs under `bywash run`.
//!
//! The workloads are those of `docs/internals/prediction.md`, with the programs of Debian 12. Each is predicted
//! and measured in turns, in a process of its own; `ratio` is the predicted gain over the measured one, and the
//! note has the error of somebody who always predicts no change.

use super::Stage;
use crate::child;
use crate::error::{Attempt, Error};
use crate::row::Row;
use serde::Deserialize;
use std::path::Path;
use std::process::Command;

/// Goal: the predicted gain is within so much of the measured one.
const ERROR_MAX: f64 = 0.15;

/// A program that is predicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// Programs that it needs.
    needs: &'static [&'static str],
    /// Script that makes its files, in the folder of the run.
    prepare: &'static str,
    /// Script before each run; empty for none.
    before: &'static str,
    /// Program and arguments, run in that folder by the shell's rules for words.
    program: &'static str,
    /// True if a quick run has it.
    in_quick: bool,
}

/// Name of the Debian release's own Python, also where another is first in PATH.
const PYTHON: &str = "/usr/bin/python3";

/// Workloads on which the method was tried.
pub(super) const TRIED: [Workload; 10] = [
    Workload {
        name: "SQLite, commits",
        needs: &["sqlite3"],
        prepare: "{ echo 'PRAGMA journal_mode=wal;'; for i in $(seq $((2000 / SCALE))); do \
                  echo \"INSERT INTO t(b) VALUES('row $i');\"; done; } > commits.sql",
        before: "rm -f commits.db*; sqlite3 commits.db 'CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)'",
        program: "sqlite3 commits.db '.read commits.sql'",
        in_quick: false,
    },
    Workload {
        name: "SQLite, scan",
        needs: &["sqlite3"],
        prepare: "sqlite3 scan.db \"PRAGMA journal_mode=off; PRAGMA synchronous=off; CREATE TABLE t(a INTEGER, b TEXT); \
                  WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<$((700000 / SCALE))) \
                  INSERT INTO t SELECT x, hex(randomblob(250)) FROM c;\" > log",
        before: "",
        program: "sqlite3 scan.db 'PRAGMA cache_size=-2000; SELECT count(*), sum(length(b)) FROM t'",
        in_quick: true,
    },
    Workload {
        name: "Berkeley DB",
        needs: &["db5.3_load"],
        prepare: "awk -v n=$((200000 / SCALE)) 'BEGIN { srand(1); for (i = 0; i < n; i++) \
                  printf \"key%08d\\n%050d\\n\", rand() * 100000000, i }' > records.txt; \
                  echo 'set_cachesize 0 1048576 1' > DB_CONFIG",
        before: "rm -f new.db __db.*",
        program: "db5.3_load -h . -T -t btree -f records.txt new.db",
        in_quick: false,
    },
    Workload {
        name: "RocksDB",
        needs: &["db_bench"],
        prepare: "db_bench --benchmarks=fillrandom,compact --num=$((1900000 / SCALE)) --value_size=100 \
                  --compression_type=none --db=rocks > log 2>&1",
        before: "",
        program: "db_bench --benchmarks=readrandom --use_existing_db=1 --num=1900000 --reads=200000 --threads=1 \
                  --compression_type=none --cache_size=1048576 --seed=1 --db=rocks",
        in_quick: false,
    },
    Workload {
        name: "MariaDB",
        needs: &["mariadbd", "mariadb-install-db", "sysbench", "setpriv"],
        prepare: "mkdir -p my; chmod 777 . my; \
                  mariadb-install-db --no-defaults --datadir=$PWD/my --auth-root-authentication-method=normal \
                  --skip-test-db --user=root > log 2>&1; cat > serve.sh <<'END'\n\
                  mariadbd --no-defaults --user=root --datadir=$PWD/my --socket=$PWD/my/s --skip-networking \
                  --innodb-buffer-pool-size=16M > my/log 2>&1 &\n\
                  until [ -S my/s ]; do sleep 0.05; done\n\
                  \"$@\"; status=$?; kill %1; wait; exit $status\nEND\n\
                  cat > sysbench.sh <<'END'\n\
                  exec sysbench oltp_read_only --mysql-socket=$PWD/my/s --mysql-user=root --mysql-db=sb --threads=1 \
                  --tables=1 --table-size=200000 --rand-seed=1 --time=0 --events=1000 $1\nEND\n\
                  bash serve.sh mariadb --no-defaults -u root -S my/s -e 'CREATE DATABASE sb' && \
                  bash serve.sh sh sysbench.sh prepare > log",
        before: "",
        program: "bash serve.sh sh sysbench.sh run",
        in_quick: false,
    },
    Workload {
        name: "fio",
        needs: &["fio"],
        prepare: "head -c $((256 * 1048576 / SCALE)) /dev/urandom > fio.data",
        before: "",
        program: "fio --ioengine=psync --name=b --norandommap --randseed=1 --invalidate=0 --allow_file_create=0 \
                  --filename=fio.data --io_size=1g --rw=randread --bs=4k",
        in_quick: false,
    },
    Workload {
        name: "grep",
        needs: &["grep"],
        prepare: "mkdir files; for i in $(seq $((3000 / SCALE))); do \
                  head -c 49152 /dev/urandom | base64 -w 76 | head -c 65536 > files/$i; done",
        before: "",
        program: "sh -c 'grep -r \"no such word\" files || test $? = 1'",
        in_quick: true,
    },
    Workload {
        name: "sort",
        needs: &["sort"],
        prepare: "head -c $((150 * 1048576 / SCALE)) /dev/urandom | base64 -w 60 > lines",
        before: "",
        program: "sort -S 16M -o sorted lines",
        in_quick: false,
    },
    Workload {
        name: "Python",
        needs: &[PYTHON],
        prepare: "awk -v n=$((1500000 / SCALE)) 'BEGIN { srand(2); for (i = 0; i < n; i++) { for (j = 0; j < 9; j++) \
                  printf \"%d,\", rand() * 1000000; print i } }' > data.csv",
        before: "",
        program: "/usr/bin/python3 -c 'import csv; print(sum(len(row) for row in csv.reader(open(\"data.csv\"))))'",
        in_quick: false,
    },
    Workload {
        name: "cp",
        needs: &["cp"],
        prepare: "head -c $((1024 * 1048576 / SCALE)) /dev/urandom > whole",
        before: "rm -f copy",
        program: "cp whole copy",
        in_quick: false,
    },
];

/// Report of `bywash plan predict --verify --json`, as far as it is used.
#[derive(Debug, Deserialize)]
struct Report {
    gain: Range,
    measured: Measured,
}

#[derive(Debug, Deserialize)]
struct Range {
    median: f64,
    low: f64,
    high: f64,
}

#[derive(Debug, Deserialize)]
struct Measured {
    gain: f64,
    error: f64,
    no_change_error: f64,
}

/// Common part of a workload's row.
pub(super) fn head(workload: &Workload) -> Row {
    let (metric, peer) = ("gain".into(), "measured under bywash run".into());
    Row { metric, peer, ..Row::head("plan/predict", workload.name, "") }
}

pub(super) fn measure(stage: &Stage, head: &Row, workload: &Workload) -> Result<Vec<Row>, Error> {
    if stage.quick && !workload.in_quick {
        return Err(Error::Unavailable("it takes too long for a quick run".into()));
    }
    for needed in workload.needs {
        let found = Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null", needed]).status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(Error::Unavailable(format!("the program {needed} is not installed")));
        }
    }
    let folder = tempfile::tempdir_in(&stage.folder).doing("create", &stage.folder)?;
    shell(workload.prepare, folder.path(), stage.quick)?;
    let runs = if stage.quick { "3" } else { "7" };
    let mut line = format!("exec \"$0\" plan predict --verify --json --runs {runs} ");
    if !workload.before.is_empty() {
        line += "--before \"$1\" ";
    }
    line += "-- ";
    line += workload.program;
    let mut command = Command::new("bash");
    command.args(["-c", &line]).arg(child::this_program()?).arg(workload.before).current_dir(folder.path());
    let output = command.output().doing("start", Path::new("bash"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim_end().lines().last().unwrap_or("it says nothing").to_owned();
        // A busy machine is no failure of a case, and has no figure.
        return Err(if last.contains("no prediction: ") {
            Error::Unavailable(last)
        } else {
            Error::failed("bywash plan predict", last)
        });
    }
    let report: Report = serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::failed("bywash plan predict", error.to_string()))?;
    let Report { gain, measured } = report;
    Ok(vec![Row {
        unit: "".into(),
        ours: Some(gain.median),
        peer_value: Some(measured.gain),
        ratio: Some(gain.median / measured.gain),
        ratio_low: Some(gain.low / measured.gain),
        ratio_high: Some(gain.high / measured.gain),
        spread: Some((gain.high - gain.low) / measured.gain),
        runs: if stage.quick { 3 } else { 7 },
        met: Some(measured.error.abs() <= ERROR_MAX),
        note: format!(
            "off by {:+.1} %; 'no change' by {:+.1} %",
            measured.error * 100.0,
            measured.no_change_error * 100.0
        ),
        ..head.clone()
    }])
}

/// Runs a script of bash in `folder`, with `SCALE` set: the number by which sizes are divided.
fn shell(script: &str, folder: &Path, quick: bool) -> Result<(), Error> {
    let mut command = Command::new("bash");
    command.args(["-ec", script]).current_dir(folder).env("SCALE", if quick { "20" } else { "1" });
    child::run(&mut command).map(|_| ())
}
