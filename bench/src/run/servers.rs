//! MariaDB and PostgreSQL, each started on a folder of its own for every run and reached through a socket in
//! that folder. Only the server runs on the side under test; the client never has the library.

use super::line::{Run, Turn};
use super::{Amount, Case, Data, Done, NOT_SLOWER, Stage, case, output, unreadable};
use crate::child::Process;
use crate::error::{Attempt, Error};
use crate::interrupt;
use crate::place::Kind;
use rustix::process::Signal;
use std::fs;
use std::path::Path;
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

/// A server: the command lines that make its folder, start it, succeed once it answers, and fill its table.
#[derive(Clone)]
struct Server {
    install: String,
    start: String,
    answers: &'static str,
    load: Vec<String>,
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
        answers: "mariadb-admin --no-defaults --user=root --socket={work}/socket ping",
        load: vec![
            "mariadb-admin --no-defaults --user=root --socket={work}/socket create sbtest".into(),
            format!("{SYSBENCH} oltp_read_write prepare"),
        ],
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
        // The fast shutdown, which does not wait for clients.
        end: Signal::INT,
    }
}

impl Server {
    fn fill(&self, stage: &Stage, folder: &Path) -> Result<(), Error> {
        let plain = Turn { stage, run: &Run::of_kernel(), operations: 0, work: folder };
        // A client that is missing is found before anything is made.
        self.load.iter().try_for_each(|line| plain.command(line).map(drop))?;
        if folder.as_os_str().len() > SOCKET_FOLDER_BYTES {
            let folder = folder.display();
            let why = format!("{folder} is too long a path for a socket: name a shorter folder with --dir");
            return Err(Error::Unavailable(why));
        }
        fs::create_dir_all(folder).doing("create", folder)?;
        plain.told(&self.install)?;
        let mut server = self.start(&plain)?;
        self.load.iter().try_for_each(|line| plain.told(line).map(drop))?;
        server.stop(self.end)
    }

    /// Starts the server and waits until it answers.
    fn start(&self, turn: &Turn) -> Result<Process, Error> {
        let log = turn.stage.folder.join("server.log");
        let mut server = Process::start_logging(&mut turn.command(&self.start)?, &log)?;
        let deadline = Instant::now() + START_LIMIT;
        while (Turn { run: &Run::of_kernel(), ..*turn }).told(self.answers).is_err() {
            interrupt::check()?;
            if server.has_ended() || Instant::now() > deadline {
                return Err(server.failure(format!("did not answer within {} s", START_LIMIT.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Does one run with the client of `line`.
    fn run(&self, line: &str, stage: &Stage, run: &Run) -> Result<Done, Error> {
        let turn = Turn { stage, run, operations: 0, work: &stage.work() };
        let mut server = self.start(&turn)?;
        let told = Turn { run: &Run::of_kernel(), ..turn }.told(line)?;
        server.stop(self.end)?;
        output::transactions(&told).ok_or_else(|| unreadable("the client", &told.output))
    }
}

pub fn cases() -> Vec<Case> {
    let sysbench = |script| format!("{SYSBENCH} --time={{2|1}} {script} run");
    let pgbench = |script| {
        let words = "--client=1 --no-vacuum --random-seed=1 --time={2|1} postgres";
        format!("pgbench --username=bench -h {{work}} --builtin={script} {words}")
    };
    let cases = [
        (mariadb(), "MariaDB, point select", sysbench("oltp_point_select")),
        (mariadb(), "MariaDB, read-write", sysbench("oltp_read_write")),
        (postgresql(), "PostgreSQL, pgbench -S", pgbench("select-only")),
        (postgresql(), "PostgreSQL, pgbench -N", pgbench("simple-update")),
    ]
    .map(|(server, name, line)| {
        let (master, filled) =
            (if name.starts_with("Maria") { "mariadb" } else { "postgresql" }, server.clone());
        let data = Data::new(master, move |stage, folder| filled.fill(stage, folder));
        let figure = ("transactions/s", NOT_SLOWER);
        let run = move |stage: &Stage, run: &Run, _| server.run(&line, stage, run);
        let case = case("servers", name, figure, Amount::FREE, data, run);
        // As a server itself writes its files: page by page.
        Case { places: &[Kind::DiskSmall], in_quick: false, ..case }
    });
    cases.into()
}
