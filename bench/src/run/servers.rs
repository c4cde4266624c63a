//! MariaDB and PostgreSQL, each started on a folder of its own for every run and reached through a socket in
//! that folder. Only the server runs on the side under test; the client never has the library.

use super::launch::Run;
use super::{Amount, Case, Data, Done, NOT_SLOWER, Stage, case, unreadable};
use crate::child::{self, Process};
use crate::error::Error;
use crate::place::Kind;
use crate::{interrupt, programs};
use rustix::process::Signal;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest time that a server takes to start, or to recover.
const START_LIMIT: Duration = Duration::from_secs(30);
/// sockaddr_un holds 108 bytes, its end included; `/.s.PGSQL.5432` is the longest name put there.
const SOCKET_FOLDER_BYTES: usize = 107 - "/.s.PGSQL.5432".len();
/// Words for setpriv(1): the program is ended when this process is, however that ends.
const ENDS_WITH_US: [&str; 3] = ["--pdeathsig", "QUIT", "--"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Product {
    MariaDb,
    PostgreSql,
}

impl Product {
    /// Makes the server's folder and its table.
    fn load(self, stage: &Stage, master: &Path) -> Result<(), Error> {
        drop(self.client(stage, master)?);
        if master.as_os_str().len() > SOCKET_FOLDER_BYTES {
            let master = master.display();
            return Err(Error::Unavailable(format!(
                "{master} is too long a path for a socket: name a shorter folder with --dir",
            )));
        }
        let plain = Run::of_kernel();
        let mut install = match self {
            Product::MariaDb => {
                let mut install = Command::new(programs::require("mariadb-install-db", "mariadb-server")?);
                install.args(["--no-defaults", "--user=root", "--skip-test-db"]);
                install.arg("--auth-root-authentication-method=normal");
                install.arg(format!("--datadir={}", master.display()));
                install
            }
            Product::PostgreSql => {
                let mut install = as_unprivileged(&plain, &postgresql("initdb")?);
                install.args(["--username=bench", "--auth=trust", "--no-sync", "-D"]).arg(master);
                install
            }
        };
        child::run(&mut install)?;
        let mut server = self.start(stage, &plain, master)?;
        let mut fill = self.client(stage, master)?;
        match self {
            Product::MariaDb => {
                let mut create = Command::new(programs::require("mariadb", "mariadb-client")?);
                create.args(["--no-defaults", "--user=root", "--execute=CREATE DATABASE sbtest"]);
                child::run(create.arg(format!("--socket={}", master.join("socket").display())))?;
                fill.args(["oltp_read_write", "prepare"]);
            }
            Product::PostgreSql => {
                let scale = stage.pick("--scale=4", "--scale=1");
                fill.args(["--initialize", "--quiet", scale, "postgres"]);
            }
        }
        child::run(&mut fill)?;
        self.stop(&mut server)
    }

    /// Starts the server on `folder` and waits until it answers.
    fn start(self, stage: &Stage, run: &Run, folder: &Path) -> Result<Process, Error> {
        let mut command = match self {
            Product::MariaDb => {
                let mut command = run.command(programs::require("setpriv", "util-linux")?);
                command.args(ENDS_WITH_US).arg(programs::require("mariadbd", "mariadb-server")?);
                command.args(["--no-defaults", "--skip-networking", "--innodb-buffer-pool-size=8M"]);
                command.args(["--user=root", "--innodb-log-file-size=16M", "--innodb-flush-method=fsync"]);
                let files = [("datadir", ""), ("socket", "socket"), ("pid-file", "pid")];
                command.args(files.map(|(name, file)| format!("--{name}={}", folder.join(file).display())));
                command
            }
            Product::PostgreSql => {
                let mut command = as_unprivileged(run, &postgresql("postgres")?);
                command.arg("-D").arg(folder).arg("-k").arg(folder);
                command.args(["-c", "listen_addresses=", "-c", "shared_buffers=8MB"]);
                command
            }
        };
        let mut server = Process::start_logging(&mut command, &stage.folder.join("server.log"))?;
        let deadline = Instant::now() + START_LIMIT;
        while !self.answers(folder) {
            interrupt::check()?;
            if server.has_ended() || Instant::now() > deadline {
                return Err(server.failure(format!("did not answer within {} s", START_LIMIT.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn answers(self, folder: &Path) -> bool {
        match self {
            Product::MariaDb => UnixStream::connect(folder.join("socket")).is_ok(),
            Product::PostgreSql => postgresql("pg_isready").is_ok_and(|program| {
                let mut probe = Command::new(program);
                child::run(probe.args(["--quiet", "-h"]).arg(folder)).is_ok()
            }),
        }
    }

    fn stop(self, server: &mut Process) -> Result<(), Error> {
        // PostgreSQL's fast shutdown does not wait for clients.
        server.stop(if self == Product::MariaDb { Signal::TERM } else { Signal::INT })
    }

    /// Does one run with sysbench's script, or pgbench's flag.
    fn run(self, script: &str, stage: &Stage, run: &Run) -> Result<Done, Error> {
        let folder = stage.work();
        let mut server = self.start(stage, run, &folder)?;
        let seconds = stage.pick(2, 1);
        let mut client = self.client(stage, &folder)?;
        client.arg(format!("--time={seconds}"));
        let (program, mark) = match self {
            Product::MariaDb => {
                client.args([script, "run"]);
                ("sysbench", "transactions:")
            }
            Product::PostgreSql => {
                client.args([script, "--client=1", "--no-vacuum", "--random-seed=1", "postgres"]);
                ("pgbench", "tps = ")
            }
        };
        let output = child::run(&mut client)?.stdout;
        self.stop(&mut server)?;
        let rate = parse_rate(&output, mark).ok_or_else(|| unreadable(program, &output))?;
        Ok(Done { rate, seconds: f64::from(seconds), sum: None })
    }

    /// sysbench or pgbench, for the server of `folder`.
    fn client(self, stage: &Stage, folder: &Path) -> Result<Command, Error> {
        let mut command;
        match self {
            Product::MariaDb => {
                command = Command::new(programs::require("sysbench", "sysbench")?);
                command.arg(format!("--mysql-socket={}", folder.join("socket").display()));
                command.args(["--mysql-user=root", "--tables=1", "--threads=1", "--rand-seed=1"]);
                command.arg(stage.pick("--table-size=50000", "--table-size=2000"));
            }
            Product::PostgreSql => {
                command = Command::new(postgresql("pgbench")?);
                command.args(["--username=bench", "-h"]).arg(folder);
            }
        }
        Ok(command)
    }
}

/// The rate in sysbench's `transactions: N (RATE per sec.)` or pgbench's `tps = RATE (without ...)`.
fn parse_rate(output: &str, mark: &str) -> Option<f64> {
    let line = output.lines().find_map(|line| line.trim().strip_prefix(mark))?;
    let inside = line.split_once('(').map(|(_, inside)| inside).filter(|inside| inside.contains("per sec"));
    inside.unwrap_or(line).split_whitespace().next()?.parse().ok().filter(|rate| *rate > 0.0)
}

/// A program of PostgreSQL's, which Debian keeps in a folder by version.
fn postgresql(name: &str) -> Result<PathBuf, Error> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((version, entry.path().join("bin").join(name))).filter(|(_, program)| program.is_file())
    });
    found.max().map_or_else(|| programs::require(name, "postgresql"), |(_, program)| Ok(program))
}

/// PostgreSQL refuses to run as root. In a user namespace root is shown to it as an ordinary user, so that its
/// folder needs neither another owner nor a path that others may enter.
fn as_unprivileged(run: &Run, program: &Path) -> Command {
    let mut command;
    if rustix::process::geteuid().is_root() {
        command = run.command_of_other_user("unshare");
        command.args(["--user", "--map-user=1000", "--map-group=1000", "--", "setpriv"]);
    } else {
        command = run.command("setpriv");
    }
    command.args(ENDS_WITH_US).arg(program);
    command
}

/// The cases of `servers`.
pub fn cases() -> Vec<Case> {
    [
        (Product::MariaDb, "MariaDB, point select", "oltp_point_select"),
        (Product::MariaDb, "MariaDB, read-write", "oltp_read_write"),
        (Product::PostgreSql, "PostgreSQL, pgbench -S", "--builtin=select-only"),
        (Product::PostgreSql, "PostgreSQL, pgbench -N", "--builtin=simple-update"),
    ]
    .map(|(product, name, script)| {
        let master = if product == Product::MariaDb { "mariadb" } else { "postgresql" };
        let data = Data::Tree(master.into(), Box::new(move |stage, master| product.load(stage, master)));
        let figure = ("transactions/s", NOT_SLOWER);
        let case = case("servers", name, figure, Amount::Fixed, data, move |stage, run, _| {
            product.run(script, stage, run)
        });
        // As a server itself writes its files: page by page.
        Case { places: &[Kind::DiskSmall], in_quick: false, ..case }
    })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_both_clients() {
        let sysbench = "SQL statistics:\n    transactions:        14785  (14719.45 per sec.)\n";
        assert_eq!(parse_rate(sysbench, "transactions:"), Some(14719.45));
        let pgbench = "latency average = 0.082 ms\ntps = 12228.321013 (without initial connection time)\n";
        assert_eq!(parse_rate(pgbench, "tps = "), Some(12_228.321_013));
        assert_eq!(parse_rate("transactions: 0 (0.00 per sec.)", "transactions:"), None);
    }
}
