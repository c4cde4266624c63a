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

#[derive(Clone, Copy)]
struct Server {
    product: Product,
    /// sysbench's script, or pgbench's flag.
    script: &'static str,
}

impl Server {
    /// Makes the server's folder and its table.
    fn load(&self, stage: &Stage, master: &Path) -> Result<(), Error> {
        match self.product {
            Product::MariaDb => drop(programs::require("sysbench", "sysbench")?),
            Product::PostgreSql => drop(postgresql("pgbench")?),
        }
        if master.as_os_str().len() > SOCKET_FOLDER_BYTES {
            return Err(Error::Unavailable(format!(
                "{} is too long a path for a socket: name a shorter folder with --dir",
                master.display()
            )));
        }
        let plain = Run::of_kernel();
        match self.product {
            Product::MariaDb => {
                let mut install = Command::new(programs::require("mariadb-install-db", "mariadb-server")?);
                install.args(["--no-defaults", "--user=root", "--skip-test-db"]);
                install.arg("--auth-root-authentication-method=normal");
                child::run(install.arg(format!("--datadir={}", master.display())))?;
            }
            Product::PostgreSql => {
                let mut install = as_unprivileged(&plain, &postgresql("initdb")?);
                install.args(["--username=bench", "--auth=trust", "--no-sync", "-D"]).arg(master);
                child::run(&mut install)?;
            }
        }
        let mut server = self.start(stage, &plain, master)?;
        match self.product {
            Product::MariaDb => {
                let mut create = Command::new(programs::require("mariadb", "mariadb-client")?);
                create.args(["--no-defaults", "--user=root", "--execute=CREATE DATABASE sbtest"]);
                child::run(create.arg(format!("--socket={}", master.join("socket").display())))?;
                child::run(sysbench(stage, master)?.args(["oltp_read_write", "prepare"]))?;
            }
            Product::PostgreSql => {
                let scale = if stage.quick { "--scale=1" } else { "--scale=4" };
                child::run(pgbench(master)?.args(["--initialize", "--quiet", scale, "postgres"]))?;
            }
        }
        self.stop(&mut server)
    }

    /// Starts the server on `folder` and waits until it answers.
    fn start(&self, stage: &Stage, run: &Run, folder: &Path) -> Result<Process, Error> {
        let mut command = match self.product {
            Product::MariaDb => {
                let mut command = run.command(programs::require("setpriv", "util-linux")?);
                command.args(ENDS_WITH_US).arg(programs::require("mariadbd", "mariadb-server")?);
                command.args(["--no-defaults", "--skip-networking", "--innodb-buffer-pool-size=8M"]);
                command.args(["--user=root", "--innodb-log-file-size=16M", "--innodb-flush-method=fsync"]);
                command.arg(format!("--datadir={}", folder.display()));
                command.arg(format!("--socket={}", folder.join("socket").display()));
                command.arg(format!("--pid-file={}", folder.join("pid").display()));
                command
            }
            Product::PostgreSql => {
                let mut command = as_unprivileged(run, &postgresql("postgres")?);
                command.arg("-D").arg(folder).arg("-k").arg(folder);
                command.args(["-c", "listen_addresses=", "-c", "shared_buffers=8MB"]);
                command
            }
        };
        let log = stage.folder.join("server.log");
        let mut server = Process::start_logging(&mut command, &log)?;
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

    fn answers(&self, folder: &Path) -> bool {
        match self.product {
            Product::MariaDb => std::os::unix::net::UnixStream::connect(folder.join("socket")).is_ok(),
            Product::PostgreSql => postgresql("pg_isready").is_ok_and(|program| {
                let mut probe = Command::new(program);
                child::run(probe.args(["--quiet", "-h"]).arg(folder)).is_ok()
            }),
        }
    }

    fn stop(&self, server: &mut Process) -> Result<(), Error> {
        server.stop(match self.product {
            Product::MariaDb => Signal::TERM,
            // The fast shutdown, which does not wait for clients.
            Product::PostgreSql => Signal::INT,
        })
    }

    fn run(&self, stage: &Stage, run: &Run) -> Result<Done, Error> {
        let folder = stage.work();
        let mut server = self.start(stage, run, &folder)?;
        let seconds = if stage.quick { 1 } else { 2 };
        let (mut client, program, mark) = match self.product {
            Product::MariaDb => {
                let mut client = sysbench(stage, &folder)?;
                client.arg(format!("--time={seconds}")).args([self.script, "run"]);
                (client, "sysbench", "transactions:")
            }
            Product::PostgreSql => {
                let mut client = pgbench(&folder)?;
                client.args([self.script, "--client=1", "--no-vacuum", "--random-seed=1"]);
                client.arg(format!("--time={seconds}")).arg("postgres");
                (client, "pgbench", "tps = ")
            }
        };
        let output = child::run(&mut client)?.stdout;
        self.stop(&mut server)?;
        let rate = parse_rate(&output, mark).ok_or_else(|| unreadable(program, &output))?;
        Ok(Done { rate, seconds: f64::from(seconds), sum: None })
    }
}

/// The rate in sysbench's `transactions: N (RATE per sec.)` or pgbench's `tps = RATE (without ...)`.
fn parse_rate(output: &str, mark: &str) -> Option<f64> {
    let line = output.lines().find_map(|line| line.trim().strip_prefix(mark))?;
    let figure = line.split_once('(').map_or(
        line,
        |(before, inside)| {
            if inside.contains("per sec") { inside } else { before }
        },
    );
    figure.split_whitespace().next()?.parse().ok().filter(|rate| *rate > 0.0)
}

fn sysbench(stage: &Stage, folder: &Path) -> Result<Command, Error> {
    let mut command = Command::new(programs::require("sysbench", "sysbench")?);
    command.arg(format!("--mysql-socket={}", folder.join("socket").display()));
    command.args(["--mysql-user=root", "--tables=1", "--threads=1", "--rand-seed=1"]);
    command.arg(if stage.quick { "--table-size=2000" } else { "--table-size=50000" });
    Ok(command)
}

fn pgbench(folder: &Path) -> Result<Command, Error> {
    let mut command = Command::new(postgresql("pgbench")?);
    command.args(["--username=bench", "-h"]).arg(folder);
    Ok(command)
}

/// A program of PostgreSQL's, which Debian keeps in a folder by version.
fn postgresql(name: &str) -> Result<PathBuf, Error> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin").join(name)))
        })
        .filter(|(_, program)| program.is_file())
        .collect();
    found.sort();
    match found.pop() {
        Some((_, program)) => Ok(program),
        None => programs::require(name, "postgresql"),
    }
}

/// PostgreSQL refuses to run as root. In a user namespace root is shown to it as an ordinary user, so that its
/// folder needs neither another owner nor a path that others may enter.
fn as_unprivileged(run: &Run, program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        let mut command = run.command("setpriv");
        command.args(ENDS_WITH_US).arg(program);
        return command;
    }
    let mut command = run.command_of_other_user("unshare");
    command.args(["--user", "--map-user=1000", "--map-group=1000", "--", "setpriv"]).args(ENDS_WITH_US);
    command.arg(program);
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
        let server = Server { product, script };
        let master = if product == Product::MariaDb { "mariadb" } else { "postgresql" };
        let data = Data::Tree(master.into(), Box::new(move |stage, master| server.load(stage, master)));
        let figure = ("transactions/s", NOT_SLOWER);
        let case =
            case("servers", name, figure, Amount::Fixed, data, move |stage, run, _| server.run(stage, run));
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
