//! Limits of our server alone: clients get equal shares, it takes little memory, and idle clients cost nothing.

use super::contest::{CLIENTS_MAX, Contender, Home, Setup};
use super::figure::Figures;
use super::ours::Path;
use super::processor::{Snapshot, own_bytes};
use super::server::idle_clients;
use super::workload::{Direction, Workload};
use crate::campaign::Declared;
use crate::engine::{Metric, Runs, Side};
use crate::error::Error;
use crate::row::Row;
use std::time::{Duration, Instant};

/// Number of idle clients, and the time for which the server is observed.
const IDLE: (usize, Duration) = (1000, Duration::from_secs(2));
const IDLE_QUICK: (usize, Duration) = (50, Duration::from_millis(200));
/// Time for which the server polls for requests of clients that have just connected.
const SETTLING: Duration = Duration::from_millis(300);
/// Limit of a processor that counts as none, in percent: a tick of the kernel's clock in two seconds.
const NO_CORE_PERCENT: f64 = 0.5;
/// Limit of the server's memory besides its devices and arenas, in bytes.
const MEMORY: f64 = 32.0 * 1024.0 * 1024.0;
/// Least share of a client, in percent of the greatest.
const FAIR_PERCENT: f64 = 95.0;
/// Duration of a run in which a scheduler's turns become even.
const FAIR_TIME: Duration = Duration::from_secs(1);

pub(super) fn cases() -> Vec<Declared<Setup>> {
    let head = |case: &str| Row::head("serve/limits", case, "");
    vec![
        Declared::new(head("eight clients get the same"), fair),
        Declared::new(head("memory"), memory),
        Declared::new(head("idle clients"), idle),
    ]
}

/// Least by greatest share, where clients wait for the device, and where they wait for processors.
fn fair(setup: &Setup, head: &Row) -> Result<Vec<Row>, Error> {
    let share = Metric::rate("least by most", "%", |figures: &Figures| {
        let least = figures.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = figures.rates.iter().copied().fold(0.0, f64::max);
        100.0 * least / most
    });
    let workload = setup.workload(Direction::Write, 4096, 32);
    let workload = Workload { time: if setup.quick { workload.time } else { FAIR_TIME }, ..workload };
    let row = |home: Home, what: &str| {
        let side = Contender::Ours(home, Path::Channel);
        let runs = setup.hold(&[side], &workload, CLIENTS_MAX, true)?;
        let case = format!("{CLIENTS_MAX} clients, 4 KiB writes, 32 at a time: {what}");
        Ok(share.row_of_limit(&Row { case, ..head.clone() }, &runs[0], "95 %", FAIR_PERCENT, 1.0))
    };
    let of_device = row(Home::Shared, "a device of 400 MiB/s")?;
    Ok(vec![of_device, row(Home::Fast, "memory, the clients on the other core")?.without_goal()])
}

/// Memory of a server that eight clients have just used.
fn memory(setup: &Setup, head: &Row) -> Result<Vec<Row>, Error> {
    let workload = setup.workload(Direction::Write, 4096, 128);
    let side = Side::new("bywash", || {
        Contender::Ours(Home::Fast, Path::Channel).run(setup, &workload, CLIENTS_MAX)?;
        own_bytes(setup.spinning.id())
    });
    let runs = setup.rounds(true).run(vec![side])?.remove(0);
    let case = format!("behind {CLIENTS_MAX} clients");
    let note = "without its devices and its clients' arenas; with the program's own pages".into();
    Ok(vec![row_of_memory(&Row { case, note, ..head.clone() }, &runs)])
}

fn row_of_memory(head: &Row, runs: &Runs<u64>) -> Row {
    let bytes = Metric::cost("memory", "B", |bytes: &u64| *bytes as f64);
    bytes.row_of_limit(head, runs, "a limit of 32 MiB", MEMORY, 1.0)
}

/// CPU time and memory of a server with many clients that do nothing.
fn idle(setup: &Setup, head: &Row) -> Result<Vec<Row>, Error> {
    let (clients, time) = if setup.quick { IDLE_QUICK } else { IDLE };
    let server = setup.usual.id();
    let idle = idle_clients(&setup.usual.socket, clients)?;
    std::thread::sleep(SETTLING);
    let side = Side::new("bywash", || {
        let (before, begin) = (Snapshot::take(Some(server))?, Instant::now());
        std::thread::sleep(time);
        let used = Snapshot::take(Some(server))?.since(&before).0.unwrap_or(0.0);
        Ok((100.0 * used / begin.elapsed().as_secs_f64(), own_bytes(server)?))
    });
    let runs = setup.rounds(false).run(vec![side])?.remove(0);
    drop(idle);
    let head = Row { case: format!("{clients} clients that do nothing"), ..head.clone() };
    // The clock counts in ticks, and does not show less than one of them.
    let percent = |run: &(f64, u64)| run.0.max(NO_CORE_PERCENT / 10.0);
    let cpu = Metric::cost("cpu of the server", "% of a core", percent);
    let cpu = cpu.row_of_limit(&head, &runs, "a tick in two seconds", NO_CORE_PERCENT, 1.0);
    Ok(vec![cpu, row_of_memory(&head, &runs.map(|run| run.1))])
}
