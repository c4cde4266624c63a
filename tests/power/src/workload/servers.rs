//! Database servers and libraries, each driven by a script in `drivers`: Berkeley DB, MariaDB, PostgreSQL, RocksDB.

use super::acknowledged::{self, Commits};
use crate::campaign::{Site, Workload};
use crate::disk::{Disk, Format};
use crate::recording::Position;
use std::path::Path;

/// A bank in a database server.
#[derive(Clone, Copy, Debug)]
pub struct Bank {
    script: &'static str,
    disk: Disk,
    transactions: u64,
}

impl Bank {
    /// Makes the bank in Berkeley DB, which cannot repair a page of which only a part was written: its disk writes blocks
    /// of the size of a page whole.
    pub fn in_berkeley_db(transactions: u64) -> Bank {
        let disk = Disk { tear_bytes: 4096, ..Disk::new("data", Format::Ext4) };
        Bank { script: "berkeley_db", disk, transactions }
    }

    /// Makes the bank in MariaDB's InnoDB.
    pub fn in_mariadb(transactions: u64) -> Bank {
        Bank { script: "mariadb", disk: Disk::new("data", Format::Ext4).with_bytes(256 << 20), transactions }
    }

    /// Makes the bank in PostgreSQL.
    pub fn in_postgresql(transactions: u64) -> Bank {
        Bank {
            script: "postgresql",
            disk: Disk::new("data", Format::Ext4).with_bytes(192 << 20),
            transactions,
        }
    }

    /// Makes the bank in RocksDB.
    pub fn in_rocksdb(transactions: u64) -> Bank {
        Bank { script: "rocksdb", disk: Disk::new("data", Format::Ext4), transactions }
    }

    fn call(&self, site: &Site, mode: &str, seed: u64) -> Result<String, String> {
        let machine = site.machine;
        let script = Path::new(DRIVERS).join(self.script);
        let paths = [&machine.path("data"), &machine.memory(), machine.program(), &machine.index()];
        let mut words = vec![script.display().to_string(), mode.to_owned()];
        words.extend(paths.map(|path: &Path| path.display().to_string()));
        words.extend([seed, self.transactions].map(|number| number.to_string()));
        words.extend(site.launched(&[]));
        machine.run(words, LIMIT_S)
    }
}

impl Workload for Bank {
    fn disks(&self) -> Vec<Disk> {
        vec![self.disk]
    }

    fn owner(&self) -> Option<&'static str> {
        // Its server refuses to run as root.
        (self.script == "postgresql").then_some("postgres")
    }

    fn prepare(&self, site: &Site) -> Result<(), String> {
        self.call(site, "prepare", 0).map(drop)
    }

    fn run(&self, site: &Site, seed: u64) -> Result<(), String> {
        self.call(site, "run", seed)?;
        let path = site.machine.memory().join(acknowledged::FILE);
        let commits = path.metadata().map_or(0, |found| found.len() / acknowledged::ENTRY_BYTES as u64);
        match commits == CLIENTS * self.transactions {
            true => Ok(()),
            false => {
                Err(format!("{commits} commits were acknowledged instead of those of {CLIENTS} clients"))
            }
        }
    }

    fn check(&self, site: &Site, cut: Position) -> Result<u64, String> {
        let answer = self.call(site, "check", 0)?;
        let there = answer.strip_prefix("sound\n").and_then(|lines| Commits::parse(lines.lines()));
        let there = there.ok_or_else(|| format!("the bank is damaged: {answer}"))?;
        Commits::acknowledged(&site.machine.memory(), cut)?.all_in(&there)
    }
}

/// Number of clients of each bank.
const CLIENTS: u64 = 2;
/// Folder of the scripts.
const DRIVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/drivers");
/// Greatest time of a command, in s.
const LIMIT_S: u64 = 120;
