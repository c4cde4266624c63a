//! Workloads on which the method was tried as often as necessary.

use super::{PLAIN, Workload};

/// Name of the Debian release's own Python, also where another is first in PATH.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// Workloads on which the method was tried.
pub(super) const WORKLOADS: [Workload; 10] = [
    Workload {
        name: "SQLite, commits",
        needs: &["sqlite3"],
        prepare: "{ echo 'PRAGMA journal_mode=wal;'; for i in $(seq $((2000 / SCALE))); do \
                  echo \"INSERT INTO t(b) VALUES('row $i');\"; done; } > commits.sql",
        before: "rm -f commits.db*; sqlite3 commits.db 'CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)'",
        program: "sqlite3 commits.db '.read commits.sql'",
        ..PLAIN
    },
    Workload {
        name: "SQLite, scan",
        needs: &["sqlite3"],
        prepare: "sqlite3 scan.db \"PRAGMA journal_mode=off; PRAGMA synchronous=off; CREATE TABLE t(a INTEGER, b TEXT); \
                  WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<$((700000 / SCALE))) \
                  INSERT INTO t SELECT x, hex(randomblob(250)) FROM c;\" > log",
        program: "sqlite3 scan.db 'PRAGMA cache_size=-2000; SELECT count(*), sum(length(b)) FROM t'",
        in_quick: true,
        ..PLAIN
    },
    Workload {
        name: "Berkeley DB",
        needs: &["db5.3_load"],
        prepare: "awk -v n=$((200000 / SCALE)) 'BEGIN { srand(1); for (i = 0; i < n; i++) \
                  printf \"key%08d\\n%050d\\n\", rand() * 100000000, i }' > records.txt; \
                  echo 'set_cachesize 0 1048576 1' > DB_CONFIG",
        before: "rm -f new.db __db.*",
        program: "db5.3_load -h . -T -t btree -f records.txt new.db",
        ..PLAIN
    },
    Workload {
        name: "RocksDB",
        needs: &["db_bench"],
        prepare: "db_bench --benchmarks=fillrandom,compact --num=$((1900000 / SCALE)) --value_size=100 \
                  --compression_type=none --db=rocks > log 2>&1",
        program: "db_bench --benchmarks=readrandom --use_existing_db=1 --num=1900000 --reads=200000 --threads=1 \
                  --compression_type=none --cache_size=1048576 --seed=1 --db=rocks",
        ..PLAIN
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
        program: "bash serve.sh sh sysbench.sh run",
        ..PLAIN
    },
    Workload {
        name: "fio",
        needs: &["fio"],
        prepare: "head -c $((256 * 1048576 / SCALE)) /dev/urandom > fio.data",
        program: "fio --ioengine=psync --name=b --norandommap --randseed=1 --invalidate=0 --allow_file_create=0 \
                  --filename=fio.data --io_size=1g --rw=randread --bs=4k",
        ..PLAIN
    },
    Workload {
        name: "grep",
        needs: &["grep"],
        prepare: "mkdir files; for i in $(seq $((3000 / SCALE))); do \
                  head -c 49152 /dev/urandom | base64 -w 76 | head -c 65536 > files/$i; done",
        program: "sh -c 'grep -r \"no such word\" files || test $? = 1'",
        in_quick: true,
        ..PLAIN
    },
    Workload {
        name: "sort",
        needs: &["sort"],
        prepare: "head -c $((150 * 1048576 / SCALE)) /dev/urandom | base64 -w 60 > lines",
        program: "sort -S 16M -o sorted lines",
        ..PLAIN
    },
    Workload {
        name: "Python",
        needs: &[PYTHON],
        prepare: "awk -v n=$((1500000 / SCALE)) 'BEGIN { srand(2); for (i = 0; i < n; i++) { for (j = 0; j < 9; j++) \
                  printf \"%d,\", rand() * 1000000; print i } }' > data.csv",
        program: "/usr/bin/python3 -c 'import csv; print(sum(len(row) for row in csv.reader(open(\"data.csv\"))))'",
        ..PLAIN
    },
    Workload {
        name: "cp",
        needs: &["cp"],
        prepare: "head -c $((1024 * 1048576 / SCALE)) /dev/urandom > whole",
        before: "rm -f copy",
        program: "cp whole copy",
        ..PLAIN
    },
];
