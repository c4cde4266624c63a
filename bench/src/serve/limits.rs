//! What is asked of our server alone: that clients get the same, that it takes little memory, and that those who do nothing
//! cost nothing.

use super::client;
use super::contest::{CLIENTS_MAX, Contender, Home, House, hold};
use super::ours::Way;
use super::part::Part;
use super::processor::Snapshot;
use super::talk::{self, Talk};
use super::workload::Direction;
use crate::error::Error;
use crate::row::Row;
use crate::statistics::Summary;
use bywash_client::{Options, Queue};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What makes a process of the bench many clients that do nothing.
pub const IDLE: &str = "idle";
/// How many.
const IDLE_CLIENTS: usize = 1000;
const IDLE_CLIENTS_QUICK: usize = 50;
/// How long they do it.
const IDLE_TIME: Duration = Duration::from_secs(2);
const IDLE_TIME_QUICK: Duration = Duration::from_millis(200);
/// Of a processor, what counts as none of it: a tick of the clock that it is counted by, of two seconds.
const NO_CORE: f64 = 0.005;
/// What the server may take besides its devices and arenas.
const MEMORY: f64 = 32.0 * 1024.0 * 1024.0;
/// How far apart clients may be.
const FAIR: f64 = 0.95;

/// All of them.
pub fn parts() -> Vec<Part> {
    vec![
        Part::new("serve/limits", "eight clients get the same", fair),
        Part::new("serve/limits", "memory", memory),
        Part::new("serve/limits", "idle clients", idle),
    ]
}

/// The least that a client got by the most, where the device is what they wait for, and where it is the processors.
fn fair(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let homes = [
        (Home::Shared, "a device of 400 MiB/s", Some(1.0)),
        (Home::Fast, "memory, the clients on the other core", None),
    ];
    for (home, what, goal) in homes {
        let contender = Contender::Ours(home, Way::Channel);
        let mut workload = house.workload(Direction::Write, 4096, 32);
        if !house.quick {
            workload.until = super::workload::Until::Time(FAIR_TIME);
        }
        let contest = hold(house, &workload, CLIENTS_MAX, &[contender], house.pairs)?;
        let empty = Row {
            case: format!("{CLIENTS_MAX} clients, 4 KiB writes, 32 at a time: {what}"),
            metric: "least by most".into(),
            unit: "%".into(),
            peer: "95 %".into(),
            peer_value: Some(100.0 * FAIR),
            goal,
            ..Row::default()
        };
        rows.push(match &contest.of(contender).figures {
            Err(error) => empty.without_numbers("", error),
            Ok(figures) => {
                let shares: Vec<f64> = figures.iter().map(least_by_most).collect();
                let ratios: Vec<f64> = shares.iter().map(|share| share / FAIR).collect();
                let ours = Summary::of(&shares).map(|summary| 100.0 * summary.median);
                Row { ours, runs: shares.len() as u32, ..empty }.with_ratio(Summary::of(&ratios), goal)
            }
        });
    }
    Ok(rows)
}

/// Long enough for a scheduler's turns to be even.
const FAIR_TIME: Duration = Duration::from_secs(1);

fn least_by_most(figures: &client::Figures) -> f64 {
    let (least, most) = figures
        .rates
        .iter()
        .fold((f64::INFINITY, 0f64), |(least, most), rate| (least.min(*rate), most.max(*rate)));
    least / most
}

/// Of a server that has just been used by eight clients.
fn memory(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let mut values = Vec::new();
    for _ in 0..house.pairs {
        let contender = Contender::Ours(Home::Fast, Way::Channel);
        hold(house, &house.workload(Direction::Write, 4096, 128), CLIENTS_MAX, &[contender], 1)?;
        values.push(own_bytes(house.spinning().id())? as f64);
    }
    let empty = Row {
        case: format!("behind {CLIENTS_MAX} clients"),
        metric: "memory".into(),
        unit: "B".into(),
        peer: "a limit of 32 MiB".into(),
        note: "without its devices and its clients' arenas; with the program's own pages".into(),
        ..Row::default()
    };
    Ok(vec![limited(empty, &values, MEMORY)])
}

/// Many that are attached, and of them the processor time of the server.
fn idle(house: &House<'_>) -> Result<Vec<Row>, Error> {
    let (clients, time) = match house.quick {
        true => (IDLE_CLIENTS_QUICK, IDLE_TIME_QUICK),
        false => (IDLE_CLIENTS, IDLE_TIME),
    };
    let server = house.usual();
    let job = Idle { socket: server.socket().to_owned(), clients };
    let mut idle = Talk::start("idle clients", house.stage.program, IDLE, &job)?;
    idle.ready()?;
    // Those who have just come are looked at for a while.
    std::thread::sleep(SETTLING);
    let (mut shares, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..house.few() {
        crate::interrupt::check()?;
        let (before, begin) = (Snapshot::take(Some(server.id()))?, Instant::now());
        std::thread::sleep(time);
        let used = Snapshot::take(Some(server.id()))?.since(&before);
        shares.push(used.server_seconds.unwrap_or(0.0) / begin.elapsed().as_secs_f64());
        memory.push(own_bytes(server.id())? as f64);
    }
    idle.finish()?;
    let case = format!("{clients} clients that do nothing");
    let row = |metric: &str, unit: &str, peer: &str| Row {
        case: case.clone(),
        metric: metric.into(),
        unit: unit.into(),
        peer: peer.into(),
        ..Row::default()
    };
    // A clock that counts in ticks says nothing of less than one of them.
    let shares: Vec<f64> = shares.into_iter().map(|share| 100.0 * share.max(NO_CORE / 10.0)).collect();
    Ok(vec![
        limited(row("cpu of the server", "% of a core", "a tick in two seconds"), &shares, 100.0 * NO_CORE),
        limited(row("memory", "B", "a limit of 32 MiB"), &memory, MEMORY),
    ])
}

const SETTLING: Duration = Duration::from_millis(300);

/// What took `values` and may take `limit`.
fn limited(row: Row, values: &[f64], limit: f64) -> Row {
    let ratios: Vec<f64> = values.iter().map(|value| limit / value).collect();
    let ours = Summary::of(values).map(|summary| summary.median);
    let row = Row { ours, peer_value: Some(limit), runs: values.len() as u32, ..row };
    row.with_ratio(Summary::of(&ratios), Some(1.0))
}

/// Resident bytes of a process but for the memory of devices and of arenas.
fn own_bytes(process: u32) -> Result<u64, Error> {
    let path = PathBuf::from(format!("/proc/{process}/smaps"));
    let text = fs::read_to_string(&path).map_err(|error| Error::io("read", &path, error))?;
    parse(&text).ok_or_else(|| unreadable(&path))
}

/// As proc_pid_smaps(5) has them: a line for a mapping, which ends with its name, and what there is of it.
fn parse(smaps: &str) -> Option<u64> {
    let (mut is_counted, mut kib, mut seen) = (true, 0, false);
    for line in smaps.lines() {
        if let Some(rest) = line.strip_prefix("Rss:") {
            seen = true;
            if is_counted {
                kib += rest.split_whitespace().next()?.parse::<u64>().ok()?;
            }
        } else if line
            .split_whitespace()
            .next()
            .is_some_and(|word| word.contains('-') && !word.ends_with(':'))
        {
            is_counted = !NOT_ITS_OWN.iter().any(|name| line.contains(name));
        }
    }
    seen.then_some(kib << 10)
}

/// The names of the memory of devices and of arenas.
const NOT_ITS_OWN: [&str; 2] = ["/memfd:bywash-device", "/memfd:bywash-arena"];

fn unreadable(path: &Path) -> Error {
    Error::io("make sense of", path, std::io::Error::other("it has no sizes"))
}

#[derive(Serialize, Deserialize)]
struct Idle {
    socket: PathBuf,
    clients: usize,
}

/// The part of many clients; `job` is what the bench has put on its command line.
///
/// # Errors
/// As [`talk::be`].
pub fn be_idle(job: &str) -> Result<(), Error> {
    talk::be(
        job,
        |_: &Idle| &[],
        |job: &Idle| {
            let mut limit = getrlimit(Resource::Nofile);
            limit.current = limit.maximum;
            setrlimit(Resource::Nofile, limit)
                .map_err(|errno| Error::Unavailable(format!("as many descriptors cannot be had: {errno}")))?;
            let options = || Options::new().depth(8).arena_bytes(64 << 10);
            let queue = |_| Queue::connect(&job.socket, options());
            let clients = (0..job.clients).map(queue).collect::<Result<Vec<Queue>, _>>();
            let clients = clients.map_err(|error| Error::failed("an idle client", error.to_string()))?;
            while talk::ready()? {}
            drop(clients);
            Ok(())
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_its_own_is_counted() {
        let smaps = "55d0-55d1 r-xp 00000000 08:01 1 /usr/bin/bywash\nSize: 8 kB\nRss:                  8 kB\n\
                     7f00-7f01 rw-s 00000000 00:01 2 /memfd:bywash-arena (deleted)\nRss:                 64 kB\n\
                     7f02-7f03 rw-p 00000000 00:00 0\nRss:                  4 kB\n";
        assert_eq!(parse(smaps), Some(12 << 10));
        assert_eq!(parse("nothing"), None);
        assert!(own_bytes(std::process::id()).unwrap() > 1 << 20);
    }

    #[test]
    fn limits_are_reached_or_not() {
        let row = limited(Row::default(), &[10.0, 10.0, 40.0], 20.0);
        assert_eq!((row.ratio, row.met), (Some(2.0), Some(true)));
        assert_eq!(limited(Row::default(), &[40.0], 20.0).met, Some(false));
    }
}
