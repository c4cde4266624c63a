//! The programs that commit, in the order in which they run.

use super::commit_log::Device;
use super::sides::Worked;
use crate::error::{Attempt, Error};
use crate::place::Kind;
use crate::programs::line::{Run, Told, Turn};
use crate::programs::output::{self, Commits, Done, unreadable};
use crate::programs::servers::{Server, mariadb, postgresql};
use crate::programs::stage::{Amount, Data, Stage};
use crate::usage::family_seconds;
use std::fs;

/// Least ratios of a case.
#[derive(Clone, Copy)]
pub struct Goals {
    /// To the kernel, with the log on the disk of the data.
    disk: f64,
    /// To the kernel, with the log on a volume in memory: mapped, and by channel.
    volume: [Option<f64>; 2],
    /// To libeatmydata, with the log on a volume in memory.
    bound: Option<f64>,
}

impl Goals {
    /// The goals with the log on a device: to the kernel, and to libeatmydata.
    pub fn on(&self, device: Device) -> [Option<f64>; 2] {
        match device {
            Device::SameDisk => [Some(self.disk), None],
            Device::OwnDisk | Device::SlowChannel => [None; 2],
            Device::Mapped => [self.volume[0], self.bound],
            Device::Channel => [self.volume[1], self.bound],
        }
    }
}

/// Function that does one run of about so many operations.
type Work = Box<dyn Fn(&Stage, &Run, u64) -> Result<Worked, Error>>;

/// A program that commits.
pub struct Case {
    pub bench: &'static str,
    pub name: &'static str,
    pub amount: Amount,
    pub data: Data,
    pub run: Work,
    /// A bound of the same commits, and the line that does it.
    pub bare: Option<(&'static str, &'static str)>,
    /// Words that start the program as another user, if it has to be one.
    pub as_other: &'static str,
    pub goals: Goals,
    /// File systems on which a quick run has it.
    pub quick_on: &'static [Kind],
}

/// Goals of what is not to gain.
const NOT_SLOWER: Goals = Goals { disk: 0.97, volume: [None; 2], bound: None };
/// Goals of a program, besides those of its own.
const PROGRAM: Goals = Goals { bound: Some(0.6), ..NOT_SLOWER };
const ROWS: &str = "{10000|1000}";
const PAGES_BYTES: u64 = 16 << 20;
/// A commit of one page takes a header, the page, and what is left of the second block.
const APPEND: (&str, &str) =
    ("bound: appends of 8 KiB, O_DIRECT and O_DSYNC", "commit {work}/append direct 8192 {ops} 16777216 1");
/// Not as shipped: its log is a file like any other.
const BUFFERED: &str = "--innodb-log-file-buffering=ON --innodb-use-native-aio=OFF";

pub fn all() -> Vec<Case> {
    let parts = [pages(), sqlite(), berkeley(), rocksdb(), servers()];
    parts.into_iter().flatten().collect()
}

/// A case whose run is the program of `line`, from whose output `read` takes the commits.
fn program(
    bench: &'static str,
    name: &'static str,
    amount: Amount,
    data: Data,
    line: String,
    read: fn(&Told) -> Option<Commits>,
) -> Case {
    let run = move |stage: &Stage, run: &Run, operations| {
        let told = Turn { stage, run, operations, work: &stage.work() }.told(&line)?;
        let commits = read(&told).ok_or_else(|| unreadable(bench, &told.output))?;
        Ok((commits, told.cpu_seconds))
    };
    let run = Box::new(run);
    let quick_on = &[Kind::DiskSmall, Kind::LoopExt4];
    Case { bench, name, amount, data, run, bare: None, as_other: "", goals: PROGRAM, quick_on }
}

/// A folder with two files of pages.
pub fn two_files(name: &str, bytes: u64) -> Data {
    Data::new(name, move |stage, folder| {
        fs::create_dir_all(folder).doing("create", folder)?;
        ["pages", "append"].iter().try_for_each(|file| stage.place.write_file(&folder.join(file), bytes, 1))
    })
}

/// Commits of a page, as a loop of our own makes them.
fn pages() -> Vec<Case> {
    let cases =
        [("a page in place", "in-place pages"), ("a page appended", "growing new")].map(|(name, words)| {
            let (mode, file) = words.split_once(' ').unwrap_or_default();
            let line = format!("commit {{work}}/{file} {mode} 4096 {{ops}} {PAGES_BYTES} 1");
            let data = two_files("master", PAGES_BYTES);
            let case = program("page", name, Amount::For(500, 1.0), data, line, output::driver_commits);
            Case { bare: Some(APPEND), goals: NOT_SLOWER, ..case }
        });
    cases.into()
}

/// Transactions of a single update.
fn sqlite() -> Vec<Case> {
    let cases = [("WAL", 1.3, Some(2.0)), ("PERSIST", 1.3, Some(3.0)), ("DELETE", PROGRAM.disk, None)];
    let cases = cases.map(|(journal, disk, volume)| {
        let data = Data::loaded("master", format!("sqlite load {{work}}/db {ROWS}"));
        let line = format!("sqlite run {{work}}/db {ROWS} commit {{ops}} 1 {journal} FULL 0");
        let case = program("sqlite", journal, Amount::For(500, 1.0), data, line, output::driver_commits);
        Case { goals: Goals { disk, volume: [volume; 2], ..PROGRAM }, ..case }
    });
    cases.into()
}

/// Transactions of three look-ups and an update, in a cache that holds everything. DB_TXN_SYNC is what transactions have
/// that say nothing else.
fn berkeley() -> Vec<Case> {
    let data = Data::loaded("master", format!("berkeley load {{work}} btree none {ROWS}"));
    let line = format!("berkeley run {{work}} btree sync {ROWS} {{ops}} 67108864 1");
    let amount = Amount::For(2000, 1.0);
    let case = program("berkeley", "transactions SYNC", amount, data, line, output::driver_commits);
    vec![Case { goals: Goals { volume: [Some(10.0), Some(5.7)], ..PROGRAM }, ..case }]
}

/// Writes of a key each; how many keys there are at the end is looked at.
fn rocksdb() -> Vec<Case> {
    let cases = [("fillrandom --sync, 1 client", 1), ("fillrandom --sync, 8 clients", 8)].map(|(name, threads)| {
        let line = format!(
            "db_bench --compression_type=none --value_size=100 --seed=1 --histogram=1 --sync=1 --threads={threads} \
             --num={{ops}} --benchmarks=fillrandom,readseq --db={{work}}/db"
        );
        let amount = Amount::For(500 / threads, 1.0);
        let case = program("rocksdb", name, amount, Data::nothing(), line, output::db_bench_commits);
        Case { goals: Goals { disk: 1.3, ..PROGRAM }, ..case }
    });
    cases.into()
}

/// Updates of a row by its key, each a transaction.
fn servers() -> Vec<Case> {
    let shipped = || mariadb("--innodb-buffer-pool-size=64M");
    let buffered = || mariadb(&format!("--innodb-buffer-pool-size=64M {BUFFERED}"));
    let postgresql = || {
        let mut server = postgresql("-c shared_buffers=64MB");
        server.load = vec![server.sysbench(1, "oltp_update_index prepare")];
        server
    };
    let cases = [
        (shipped(), "mariadb", "MariaDB as shipped, 1 client", 1),
        (shipped(), "mariadb", "MariaDB as shipped, 8 clients", 8),
        (buffered(), "mariadb", "MariaDB with a buffered log, 1 client", 1),
        (buffered(), "mariadb", "MariaDB with a buffered log, 8 clients", 8),
        (postgresql(), "postgresql", "PostgreSQL, 1 client", 1),
        (postgresql(), "postgresql", "PostgreSQL, 8 clients", 8),
    ]
    .map(|(server, master, name, clients)| {
        let (filled, as_other) = (server.clone(), server.as_other);
        let data = Data::new(master, move |stage, folder| filled.fill(stage, folder));
        let run =
            move |stage: &Stage, run: &Run, operations| served(&server, clients, stage, run, operations);
        let (bench, amount) = ("servers", Amount::For(200, 1.0));
        let run = Box::new(run);
        let goals = match name {
            _ if name.contains("as shipped") => NOT_SLOWER,
            _ if name.contains("buffered") => Goals { volume: [Some(1.7); 2], ..PROGRAM },
            _ => PROGRAM,
        };
        // A folder of hundreds of files is copied fast in memory alone.
        let in_quick = clients == 1 && !name.contains("as shipped");
        let quick_on: &[Kind] = if in_quick { &[Kind::LoopExt4] } else { &[] };
        Case { bench, name, amount, data, run, bare: None, as_other, goals, quick_on }
    });
    cases.into()
}

/// Lets sysbench commit to a server. The sum of the keys says how many updates it made.
fn served(server: &Server, clients: u32, stage: &Stage, run: &Run, operations: u64) -> Result<Worked, Error> {
    let words = "--events={ops} --time=0 --histogram=on oltp_update_index run";
    let line = server.sysbench(clients, words);
    server.run(stage, run, operations, |turn, id| {
        let before = family_seconds(id)?;
        let told = turn.told(&line)?;
        let cpu_seconds = family_seconds(id)? - before;
        let read = output::sysbench_commits(&told).ok_or_else(|| unreadable("sysbench", &told.output))?;
        let sum = Some(turn.told(server.sums)?.output);
        Ok((Commits { done: Done { sum, ..read.done }, ..read }, cpu_seconds))
    })
}
