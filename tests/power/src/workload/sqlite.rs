//! SQLite: transactions that move money between accounts, in each of its ways to commit.

use super::acknowledged::{self, Commits};
use crate::campaign::{Site, Workload};
use crate::disk::{Disk, Format};
use crate::recording::Position;

/// Journal of a database (`PRAGMA journal_mode`), with the least `PRAGMA synchronous` that makes a commit durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// A rollback journal that is unlinked. With FULL the kernel may lose the last commit, since the folder is not synced.
    Delete,
    /// A rollback journal whose header is overwritten.
    Persist,
    /// A write-ahead log.
    Wal,
}

/// SQLite on one disk.
#[derive(Clone, Copy, Debug)]
pub struct Sqlite {
    journal: Journal,
    format: Format,
    transactions: u64,
    is_careless: bool,
}

impl Sqlite {
    /// Makes the workload with this number of transactions of each of two processes.
    pub fn new(journal: Journal, format: Format, transactions: u64) -> Sqlite {
        Sqlite { journal, format, transactions, is_careless: false }
    }

    /// Returns the workload with `synchronous=OFF`.
    pub fn careless(self) -> Sqlite {
        Sqlite { is_careless: true, ..self }
    }

    fn modes(self) -> [&'static str; 2] {
        let (journal, synchronous) = match self.journal {
            Journal::Delete => ("DELETE", "EXTRA"),
            Journal::Persist => ("PERSIST", "FULL"),
            Journal::Wal => ("WAL", "FULL"),
        };
        [journal, if self.is_careless { "OFF" } else { synchronous }]
    }
}

impl Workload for Sqlite {
    fn disks(&self) -> Vec<Disk> {
        vec![Disk::new("data", self.format)]
    }

    fn prepare(&self, site: &Site) -> Result<(), String> {
        let [journal, _] = self.modes();
        let script = format!(
            "PRAGMA journal_mode={journal};
             CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER, note TEXT);
             CREATE TABLE history(number INTEGER PRIMARY KEY, source, target, amount, note BLOB);
             CREATE INDEX by_source ON history(source, amount);
             CREATE TABLE counter(number INTEGER);
             INSERT INTO counter VALUES(0);
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<{ACCOUNTS}-1)
               INSERT INTO account SELECT i, 1000, hex(zeroblob(40)) FROM n;"
        );
        site.machine.run(["sqlite3", "-batch", "-bail", &site.data(DATABASE), &script], LIMIT_S).map(drop)
    }

    fn run(&self, site: &Site, seed: u64) -> Result<(), String> {
        let machine = site.machine;
        let [acknowledged, index] = [machine.memory().join(acknowledged::FILE), machine.index()]
            .map(|path| path.display().to_string());
        let [journal, synchronous] = self.modes();
        let (database, seed, transactions) =
            (site.data(DATABASE), seed.to_string(), self.transactions.to_string());
        // Debian's own, which uses Debian's SQLite.
        let python = ["/usr/bin/python3", "-I", "-S", DRIVER];
        let rest = [&database, journal, synchronous, &index, &acknowledged, &seed, &transactions];
        machine.run(site.launched(&[&python[..], &rest[..]].concat()), LIMIT_S).map(drop)
    }

    fn check(&self, site: &Site, cut: Position) -> Result<u64, String> {
        let script = format!(
            "PRAGMA integrity_check; SELECT sum(balance)-{ACCOUNTS}*1000 FROM account;
             SELECT (SELECT count(*) FROM history)-(SELECT number FROM counter); SELECT number FROM counter;"
        );
        let database = site.data(DATABASE);
        let answer = site.machine.run(["sqlite3", "-batch", "-bail", &database, &script], LIMIT_S)?;
        let committed = answer.strip_prefix("ok\n0\n0\n").map(|number| format!("0 {number}"));
        let there = committed.and_then(|committed| Commits::parse(committed.lines()));
        let there = there.ok_or_else(|| format!("the database is damaged: {answer}"))?;
        Commits::acknowledged(&site.machine.memory(), cut)?.all_in(&there)
    }
}

const DATABASE: &str = "bank.db";
const ACCOUNTS: u64 = 200;
/// Program that does the transactions.
const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/drivers/bank_of_sqlite.py");
/// Greatest time of a command, in s.
const LIMIT_S: u64 = 120;
