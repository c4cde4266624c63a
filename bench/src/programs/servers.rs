//! MariaDB and PostgreSQL, each started on a folder of its own for every run and reached through a socket in
//! that folder. Only the server runs on the side under test; the client never has the library.

use super::line::{Run, Turn};
use super::stage::Stage;
use crate::child::Process;
use crate::error::{Attempt, Error};
use crate::interrupt;
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

/// A server: the command lines that make its folder, start it, succeed once it answers, and fill its table.
#[derive(Clone)]
pub struct Server {
    install: String,
    start: String,
    answers: &'static str,
    /// Words that start it as another user, if it has to be one.
    pub as_other: &'static str,
    /// Line that queries `{sums}`.
    pub sums: &'static str,
    pub load: Vec<String>,
    /// Words by which sysbench connects.
    connection: &'static str,
    end: Signal,
}

/// MariaDB with further options.
pub fn mariadb(options: &str) -> Server {
    let mut server = Server {
        install: "mariadb-install-db --no-defaults --user=root --skip-test-db --auth-root-authentication-method=normal \
                  --datadir={work}"
            .into(),
        start: format!(
            "{ENDS_WITH_US} {{=mariadbd}} --no-defaults --skip-networking --user=root --innodb-log-file-size=16M \
             --datadir={{work}} --socket={{work}}/socket --pid-file={{work}}/pid {options}"
        ),
        answers: "mariadb-admin --no-defaults --user=root --socket={work}/socket ping",
        as_other: "",
        sums: "mariadb --no-defaults --user=root --socket={work}/socket --batch --skip-column-names --execute={sums} sbtest",
        load: vec!["mariadb-admin --no-defaults --user=root --socket={work}/socket create sbtest".into()],
        connection: "--mysql-socket={work}/socket --mysql-user=root",
        end: Signal::TERM,
    };
    server.load.push(server.sysbench(1, "oltp_read_write prepare"));
    server
}

/// PostgreSQL with further options.
pub fn postgresql(options: &str) -> Server {
    let as_other = if rustix::process::geteuid().is_root() { UNPRIVILEGED } else { "env" };
    Server {
        install: format!(
            "{as_other} {ENDS_WITH_US} {{=initdb}} --username=bench --auth=trust --no-sync -D {{work}}"
        ),
        start: format!(
            "{as_other} {{launch}} {ENDS_WITH_US} {{=postgres}} -D {{work}} -k {{work}} -c listen_addresses= {options}"
        ),
        answers: "pg_isready --quiet -h {work}",
        as_other,
        sums: "psql --no-psqlrc --username=bench -h {work} --tuples-only --no-align --command={sums} postgres",
        load: vec!["pgbench --username=bench -h {work} --initialize --quiet --scale={4|1} postgres".into()],
        connection: "--db-driver=pgsql --pgsql-host={work} --pgsql-user=bench --pgsql-db=postgres",
        // The fast shutdown, which does not wait for clients.
        end: Signal::INT,
    }
}

impl Server {
    /// The line of sysbench on the server's table with so many clients.
    pub fn sysbench(&self, clients: u32, words: &str) -> String {
        let connection = self.connection;
        format!(
            "sysbench {connection} --tables=1 --table-size={{50000|2000}} --rand-seed=1 --threads={clients} {words}"
        )
    }

    /// Makes the server's folder, and fills its table.
    pub fn fill(&self, stage: &Stage, folder: &Path) -> Result<(), Error> {
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

    /// Starts the server on the side of `run`, lets `clients` work, which know its process and are the kernel's, and ends it.
    pub fn run<T>(
        &self,
        stage: &Stage,
        run: &Run,
        operations: u64,
        clients: impl FnOnce(&Turn, u32) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let turn = Turn { stage, run, operations, work: &stage.work() };
        let mut server = self.start(&turn)?;
        let done = clients(&Turn { run: &Run::of_kernel(), ..turn }, server.id())?;
        server.stop(self.end)?;
        Ok(done)
    }
}
