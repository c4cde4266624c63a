//! MariaDB and PostgreSQL.

use super::{Case, NOT_SLOWER, case};
use crate::place::Kind;
use crate::programs::line::Run;
use crate::programs::output::{self, unreadable};
use crate::programs::servers::{mariadb, postgresql};
use crate::programs::stage::{Amount, Data, Stage};

pub fn cases() -> Vec<Case> {
    let mariadb = || mariadb("--innodb-buffer-pool-size=8M --innodb-flush-method=fsync");
    let postgresql = || postgresql("-c shared_buffers=8MB");
    let sysbench = |script| mariadb().sysbench(1, &format!("--time={{2|1}} {script} run"));
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
        let run = move |stage: &Stage, run: &Run, _| {
            let told = server.run(stage, run, 0, |clients, _| clients.told(&line))?;
            output::transactions(&told).ok_or_else(|| unreadable("the client", &told.output))
        };
        let case = case("servers", name, figure, Amount::FREE, data, run);
        // As a server itself writes its files: page by page.
        Case { places: &[Kind::DiskSmall], in_quick: false, ..case }
    });
    cases.into()
}
