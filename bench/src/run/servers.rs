//! MariaDB and PostgreSQL, each started on a folder of its own for every run and reached through a socket in
//! that folder. Only the server runs on the side under test; the client never has the library.

use super::launch::Run;
use super::{Amount, Case, Data, Done, NOT_SLOWER, Stage, case, line, unreadable};
use crate::child::{self, Process};
use crate::error::Error;
use crate::interrupt;
use crate::place::Kind;
use rustix::process::Signal;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longest time that a server takes to start, or to recover.
const START_LIMIT: Duration = Duration::from_secs(30);
/// sockaddr_un holds 108 bytes, its end included; `/.s.PGSQL.5432` is the longest name put there.
const SOCKET_FOLDER_BYTES: usize = 107 - "/.s.PGSQL.5432".len();
/// Runs a program that is ended when this process is, however that ends.
const ENDS_WITH_US: &str = "setpriv --pdeathsig QUIT --";
/// PostgreSQL refuses to run as root. In a user namespace root is shown to it as an ordinary user, so that its
/// folder needs neither another owner nor a path that others may enter.
const UNPRIVILEGED: &str = "unshare --user --map-user=1000 --map-group=1000 --";
const SYSBENCH: &str = "sysbench --mysql-socket={work}/socket --mysql-user=root --tables=1 --threads=1 --rand-seed=1 \
                        --table-size={50000|2000}";

/// A server: the command lines that make its folder, start it, say that it answers, and fill its table.
struct Server {
    install: String,
    start: String,
    /// Succeeds once the server answers; if empty, it answers once its socket does.
    answers: &'static str,
    load: Vec<String>,
    /// Words before the rate in the client's output.
    mark: &'static str,
    end: Signal,
}

fn mariadb() -> Server {
    Server {
        install: "mariadb-install-db --no-defaults --user=root --skip-test-db --auth-root-authentication-method=normal \
                  --datadir={work}"
            .into(),
        start: format!(
            "{ENDS_WITH_US} {{=mariadbd}} --no-defaults --skip-networking --innodb-buffer-pool-size=8M --user=root \
             --innodb-log-file-size=16M --innodb-flush-method=fsync --datadir={{work}} --socket={{work}}/socket \
             --pid-file={{work}}/pid"
        ),
        answers: "",
        load: vec![
            "mariadb-admin --no-defaults --user=root --socket={work}/socket create sbtest".into(),
            format!("{SYSBENCH} oltp_read_write prepare"),
        ],
        mark: "transactions:",
        end: Signal::TERM,
    }
}

fn postgresql() -> Server {
    let as_other = if rustix::process::geteuid().is_root() { UNPRIVILEGED } else { "env" };
    let as_other = format!("{as_other} {ENDS_WITH_US}");
    Server {
        install: format!("{as_other} {{=initdb}} --username=bench --auth=trust --no-sync -D {{work}}"),
        start: format!(
            "{as_other} {{=postgres}} -D {{work}} -k {{work}} -c listen_addresses= -c shared_buffers=8MB"
        ),
        answers: "pg_isready --quiet -h {work}",
        load: vec!["pgbench --username=bench -h {work} --initialize --quiet --scale={4|1} postgres".into()],
        mark: "tps = ",
        // The fast shutdown, which does not wait for clients.
        end: Signal::INT,
    }
}

impl Server {
    /// Makes the server's folder and its table.
    fn load(&self, stage: &Stage, master: &Path) -> Result<(), Error> {
        let plain = Run::of_kernel();
        let mut load = Vec::new();
        for line in &self.load {
            load.push(line::command(line, stage, &plain, 0, master)?);
        }
        if master.as_os_str().len() > SOCKET_FOLDER_BYTES {
            let master = master.display();
            return Err(Error::Unavailable(format!(
                "{master} is too long a path for a socket: name a shorter folder with --dir",
            )));
        }
        child::run(&mut line::command(&self.install, stage, &plain, 0, master)?)?;
        let mut server = self.start(stage, &plain, master)?;
        load.iter_mut().try_for_each(|command| child::run(command).map(drop))?;
        server.stop(self.end)
    }

    /// Starts the server on `folder` and waits until it answers.
    fn start(&self, stage: &Stage, run: &Run, folder: &Path) -> Result<Process, Error> {
        let mut command = line::command(&self.start, stage, run, 0, folder)?;
        let mut server = Process::start_logging(&mut command, &stage.folder.join("server.log"))?;
        let deadline = Instant::now() + START_LIMIT;
        while !self.is_answering(stage, folder) {
            interrupt::check()?;
            if server.has_ended() || Instant::now() > deadline {
                return Err(server.failure(format!("did not answer within {} s", START_LIMIT.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn is_answering(&self, stage: &Stage, folder: &Path) -> bool {
        if self.answers.is_empty() {
            return UnixStream::connect(folder.join("socket")).is_ok();
        }
        let probe = line::command(self.answers, stage, &Run::of_kernel(), 0, folder);
        probe.and_then(|mut probe| child::run(&mut probe)).is_ok()
    }

    /// Does one run with the client of `line`.
    fn run(&self, line: &str, stage: &Stage, run: &Run) -> Result<Done, Error> {
        let folder = stage.work();
        let mut server = self.start(stage, run, &folder)?;
        let output = child::run(&mut line::command(line, stage, &Run::of_kernel(), 0, &folder)?)?.stdout;
        server.stop(self.end)?;
        let rate = parse_rate(&output, self.mark).ok_or_else(|| unreadable("the client", &output))?;
        Ok(Done { rate, seconds: stage.pick(2.0, 1.0), sum: None })
    }
}

/// The rate in sysbench's `transactions: N (RATE per sec.)` or pgbench's `tps = RATE (without ...)`.
fn parse_rate(output: &str, mark: &str) -> Option<f64> {
    let line = output.lines().find_map(|line| line.trim().strip_prefix(mark))?;
    let inside = line.split_once('(').map(|(_, inside)| inside).filter(|inside| inside.contains("per sec"));
    inside.unwrap_or(line).split_whitespace().next()?.parse().ok().filter(|rate| *rate > 0.0)
}

/// The cases of `servers`.
pub fn cases() -> Vec<Case> {
    let (mariadb, postgresql) = (Rc::new(mariadb()), Rc::new(postgresql()));
    let sysbench = |script| format!("{SYSBENCH} --time={{2|1}} {script} run");
    let pgbench = |script| {
        let words = "--client=1 --no-vacuum --random-seed=1 --time={2|1} postgres";
        format!("pgbench --username=bench -h {{work}} --builtin={script} {words}")
    };
    [
        (&mariadb, "mariadb", "MariaDB, point select", sysbench("oltp_point_select")),
        (&mariadb, "mariadb", "MariaDB, read-write", sysbench("oltp_read_write")),
        (&postgresql, "postgresql", "PostgreSQL, pgbench -S", pgbench("select-only")),
        (&postgresql, "postgresql", "PostgreSQL, pgbench -N", pgbench("simple-update")),
    ]
    .map(|(server, master, name, line)| {
        let (loaded, server) = (Rc::clone(server), Rc::clone(server));
        let data = Data::Tree(master.into(), Box::new(move |stage, master| loaded.load(stage, master)));
        let figure = ("transactions/s", NOT_SLOWER);
        let run = move |stage: &Stage, run: &Run, _| server.run(&line, stage, run);
        let case = case("servers", name, figure, Amount::Fixed, data, run);
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
