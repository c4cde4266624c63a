//! Workloads whose commits go to a commit log: a file beside the data, or a volume of a device server.

use super::{PLAIN, Workload};
use crate::log::commit_log::Device;

/// Common part of SQLite's workloads: single rows, each committed.
const SQLITE: Workload = Workload {
    needs: &["sqlite3"],
    before: "rm -f commits.db*; sqlite3 commits.db 'CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)'",
    program: "sqlite3 commits.db '.read commits.sql'",
    ..PLAIN
};

/// Script that writes 1,000 commits in the write-ahead log of SQLite, which syncs each.
const WAL: &str = "{ echo 'PRAGMA journal_mode=wal; PRAGMA synchronous=full;'; for i in $(seq $((1000 / SCALE))); do \
                   echo \"INSERT INTO t(b) VALUES('row $i');\"; done; } > commits.sql";
/// Script that writes 1,000 commits with a rollback journal that is kept.
const PERSIST: &str = "{ echo 'PRAGMA journal_mode=persist;'; for i in $(seq $((1000 / SCALE))); do \
                       echo \"INSERT INTO t(b) VALUES('row $i');\"; done; } > commits.sql";

/// Workload of RocksDB: writes, each synced.
const ROCKSDB: Workload = Workload {
    needs: &["db_bench"],
    before: "rm -rf rocks",
    program: "db_bench --benchmarks=fillrandom --sync=1 --num=3000 --threads=1 --compression_type=none --seed=1 --db=rocks",
    ..PLAIN
};

/// Workloads with a commit log.
pub(super) const WORKLOADS: [Workload; 6] = [
    Workload {
        name: "SQLite, WAL, log beside the data",
        prepare: WAL,
        log: Some(Device::SameDisk),
        ..SQLITE
    },
    Workload {
        name: "SQLite, WAL, log on a mapped volume",
        prepare: WAL,
        log: Some(Device::Mapped),
        ..SQLITE
    },
    Workload {
        name: "SQLite, WAL, log on a volume by channel",
        prepare: WAL,
        log: Some(Device::Channel),
        ..SQLITE
    },
    Workload {
        name: "SQLite, PERSIST, log on a mapped volume",
        prepare: PERSIST,
        log: Some(Device::Mapped),
        ..SQLITE
    },
    Workload { name: "RocksDB, log beside the data", log: Some(Device::SameDisk), ..ROCKSDB },
    Workload { name: "RocksDB, log on a mapped volume", log: Some(Device::Mapped), ..ROCKSDB },
];
