//! Requests a second by the number of our server's cores, up to the processors of the machine.
//!
//! Each core has two clients, which read their own volumes on one memory device. Cores and clients share the processors, so a
//! machine shows the scaling of as many cores as half of its processors; beyond that, the rows say so.

use super::contest::{Contender, Home, Setup, cores};
use super::figure::Figures;
use super::ours::Path;
use super::server::{Device, Server};
use super::workload::{Direction, Workload};
use super::{client, contest};
use crate::campaign::Declared;
use crate::engine::{Metric, Runs, Side};
use crate::error::Error;
use crate::row::{Point, Row, Unit};

/// Greatest number of cores.
const CORES_MAX: usize = 32;
/// Number of clients of each core.
const CLIENTS_PER_CORE: usize = 2;
/// Queue depth of each client.
const DEPTH: usize = 32;

pub(super) fn cases() -> Vec<Declared<Setup>> {
    vec![Declared::new(Row::head("serve/cores", "cores", ""), measure)]
}

/// Returns 1, 2, 4 and so on, up to the processors, but 2 at least.
fn counts(processors: usize) -> Vec<usize> {
    let most = processors.clamp(2, CORES_MAX);
    std::iter::successors(Some(1), |count| Some(2 * count)).take_while(|count| *count <= most).collect()
}

fn measure(setup: &Setup, head: &Row) -> Result<Vec<Row>, Error> {
    let (bytes, processors) = (contest::medium_bytes(setup.quick), cores());
    let counts = counts(processors);
    let start = |count: &usize| {
        let volumes = count * CLIENTS_PER_CORE;
        let device = Device { home: Home::Fast, kind: format!("mem:{}", volumes as u64 * bytes), volumes };
        Server::start_on(&setup.folder, &format!("cores-{count}"), &[device], bytes, *count)
    };
    let servers = counts.iter().map(start).collect::<Result<Vec<Server>, Error>>()?;
    let mut rows = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        let workload = setup.workload(direction, 4096, DEPTH);
        let side = |(server, count): (_, &usize)| {
            let (count, workload) = (*count, workload.clone());
            Side::new(name(count), move || run(server, &workload, count))
        };
        let sides = servers.iter().zip(&counts).map(side).collect();
        let runs = setup.rounds(false).run(sides)?;
        rows.extend(
            counts
                .iter()
                .zip(&runs)
                .map(|(count, ours)| row(head, (*count, processors), direction, ours, &runs[0])),
        );
    }
    Ok(rows)
}

fn name(count: usize) -> String {
    if count == 1 { "1 core".into() } else { format!("{count} cores") }
}

/// Has all clients of the server work; they run on any processor.
fn run(server: &Server, workload: &Workload, count: usize) -> Result<Figures, Error> {
    let side = Contender::Ours(Home::Fast, Path::Channel);
    let sockets = vec![server.socket.clone(); count * CLIENTS_PER_CORE];
    client::run(side, &sockets, workload, Some(server.id()), &[])
}

fn row(
    head: &Row,
    (count, processors): (usize, usize),
    direction: Direction,
    ours: &Runs<Figures>,
    one: &Runs<Figures>,
) -> Row {
    let verb = if direction == Direction::Read { "reads" } else { "writes" };
    let requests = Metric::rate("requests", "op/s", |run: &Figures| run.requests as f64 / run.seconds);
    let note = match count * (1 + CLIENTS_PER_CORE) > processors {
        true => format!(
            "{} and {} clients share {processors} processors: this shows no scaling, which needs more of them",
            name(count),
            count * CLIENTS_PER_CORE
        ),
        false => format!("{} clients on {processors} processors", count * CLIENTS_PER_CORE),
    };
    let point = Point {
        figure: format!("4 KiB {verb} by the cores of the server"),
        axis: "cores".into(),
        unit: Unit::Count,
        x: count as u64,
        line: "two clients for each core".into(),
    };
    let case = format!("{}, 4 KiB {verb}, {DEPTH} at a time", name(count));
    requests.row(&Row { case, note, point: Some(point), ..head.clone() }, ours, one, None)
}

#[cfg(test)]
mod tests {
    #[test]
    fn cores_double_up_to_the_processors() {
        assert_eq!(super::counts(1), [1, 2]);
        assert_eq!(super::counts(2), [1, 2]);
        assert_eq!(super::counts(12), [1, 2, 4, 8]);
        assert_eq!(super::counts(256), [1, 2, 4, 8, 16, 32]);
    }
}
