//! The paper's analytic figures, 2 to 7, as curves. The command draws them, and [`crate::check`] reuses their
//! points.
//!
//! Some figures vary more than Tables II and III give. These assumptions are read off the paper's text: the
//! file system's cost while TCP stays on the host (3), TCP's cost, which a conventional host pays too (5),
//! hosts with four interfaces and four disks each (6), additional work of the host per request (7).

use crate::bound::bound;
use crate::demand::Architecture::{self, Active, Conventional, Direct};
use crate::machine::Machine;
use crate::units::{CyclesPerByte, Rate};
use crate::work::{Costs, Workload};

/// One figure of the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Number of the figure in the paper, 2 to 7.
    pub number: u32,
    /// Title of the figure.
    pub title: &'static str,
    /// Label of the x axis: the quantity that varies, with its unit.
    pub x: &'static str,
    /// Curves of throughput over x, in MiB/s.
    pub curves: Vec<Curve>,
    /// Points that the paper's text mentions.
    pub marks: Vec<Mark>,
}

/// One curve of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Name of the curve for the legend: the architecture, and the parameter that distinguishes the curve.
    pub name: String,
    /// Points of the curve: x in the figure's unit, and throughput in MiB/s. x increases.
    pub points: Vec<(f64, f64)>,
}

/// Point of a figure that the paper's text mentions.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Position: x in the figure's unit, and throughput in MiB/s.
    pub position: (f64, f64),
    /// Statement of the text about the point.
    pub statement: &'static str,
}

const MIB: f64 = 1048576.0;
/// Number of steps of a curve, which has one point more than steps.
const STEPS: usize = 200;

/// Machine and workload at one x.
type Point = (Machine, Workload);

/// Numbers of the figures that [`figure`] computes.
pub const NUMBERS: std::ops::RangeInclusive<u32> = 2..=7;

/// Computes the figure `number`, or returns `None` if the paper has no analytic figure of this number.
pub fn figure(number: u32) -> Option<Figure> {
    Some(match number {
        2 => miss_rate(),
        3 => file_system_cost(),
        4 => interface_rate(),
        5 => tcp_cost(),
        6 => hosts(),
        7 => host_work(),
        _ => return None,
    })
}

/// Returns the throughput bound of `at` in MiB/s.
pub(crate) fn mib(at: Point, architecture: Architecture) -> f64 {
    bound(&at.0, &at.1, architecture).throughput / MIB
}

fn curve(
    name: impl Into<String>,
    range: (f64, f64),
    architecture: Architecture,
    at: impl Fn(f64) -> Point,
) -> Curve {
    let (from, to) = range;
    let points = (0..=STEPS).map(|step| from + (to - from) * step as f64 / STEPS as f64);
    Curve { name: name.into(), points: points.map(|x| (x, mib(at(x), architecture))).collect() }
}

/// Returns the conventional and the active curve for a count of 1, 2 and 4. `letter` names the count in the
/// legend.
fn one_two_four(range: (f64, f64), letter: &str, at: fn(f64, f64) -> Point) -> Vec<Curve> {
    let all = [1.0, 2.0, 4.0].into_iter().flat_map(|count| [(count, Conventional), (count, Active)]);
    all.map(|(count, one)| {
        curve(format!("{}, {letter} = {count}", one.name()), range, one, move |x| at(x, count))
    })
    .collect()
}

/// Returns Figure 2's machine and workload at a miss rate of `percent` %, with `disks` disks.
pub(crate) fn at_miss(percent: f64, disks: f64) -> Point {
    let mut machine = Machine::carrera_2003();
    machine.disks.count = disks;
    (machine, Workload::web(percent / 100.0))
}

fn miss_rate() -> Figure {
    let range = (0.0, 20.0);
    let curves = [1.0, 4.0].into_iter().flat_map(|disks| {
        [Conventional, Active, Direct].map(|architecture| {
            let name = format!("{}, d = {disks}", architecture.name());
            curve(name, range, architecture, move |x| at_miss(x, disks))
        })
    });
    Figure {
        number: 2,
        title: "Throughput over the miss rate of the cache",
        x: "miss rate in %",
        curves: curves.collect(),
        marks: vec![
            Mark {
                position: (0.0, mib(at_miss(0.0, 4.0), Active)),
                statement: "1.8 times the conventional server",
            },
            Mark { position: (4.0, mib(at_miss(4.0, 1.0), Conventional)), statement: "one disk binds" },
        ],
    }
}

/// Returns Figure 3's machine and workload at a file-system cost of `x` cycles/B, with TCP on the host under
/// every architecture.
pub(crate) fn at_file_system_cost(x: f64, miss: f64) -> Point {
    let mut work = Workload::web(miss);
    // The program's own cost includes TCP and the rest of the system, so that no architecture moves them to a
    // device.
    work.costs = Costs {
        server: CyclesPerByte(8.5),
        tcp: CyclesPerByte(0.0),
        file_system: CyclesPerByte(x),
        system: CyclesPerByte(0.0),
        ..Costs::default()
    };
    (Machine::carrera_2003(), work)
}

fn file_system_cost() -> Figure {
    let range = (0.0, 20.0);
    let both = [Conventional, Active];
    Figure {
        number: 3,
        title: "Throughput over the cost of the file system, TCP on the host",
        x: "file system cost in cycles/B",
        curves: both.map(|one| curve(one.name(), range, one, |x| at_file_system_cost(x, 0.10))).to_vec(),
        marks: vec![Mark {
            position: (5.0, mib(at_file_system_cost(5.0, 0.10), Active)),
            statement: "small gains up to here",
        }],
    }
}

/// Returns Figure 4's machine and workload with `interfaces` network interfaces of `x` MiB/s each.
pub(crate) fn at_interface_rate(x: f64, interfaces: f64) -> Point {
    let mut machine = Machine::carrera_2003();
    machine.interfaces.count = interfaces;
    machine.interfaces.rate = Rate(x * MIB);
    (machine, Workload::web(0.10))
}

fn interface_rate() -> Figure {
    Figure {
        number: 4,
        title: "Throughput over the rate of a network interface",
        x: "rate of an interface in MiB/s",
        curves: one_two_four((1.0, 200.0), "n", at_interface_rate),
        marks: vec![
            Mark {
                position: (116.0, mib(at_interface_rate(116.0, 4.0), Active)),
                statement: "268: the disks bind",
            },
            Mark {
                position: (116.0, mib(at_interface_rate(116.0, 4.0), Conventional)),
                statement: "168: the host binds",
            },
            Mark {
                position: (75.3, mib(at_interface_rate(75.3, 1.0), Active)),
                statement: "its processor binds from here",
            },
        ],
    }
}

/// Returns Figure 5's machine and workload at a TCP cost of `x` cycles/B, with `interfaces` network
/// interfaces.
pub(crate) fn at_tcp_cost(x: f64, interfaces: f64) -> Point {
    let mut machine = Machine::carrera_2003();
    machine.interfaces.count = interfaces;
    let mut work = Workload::web(0.10);
    work.costs.tcp = CyclesPerByte(x);
    (machine, work)
}

fn tcp_cost() -> Figure {
    Figure {
        number: 5,
        title: "Throughput over the cost of TCP",
        x: "TCP cost in cycles/B",
        curves: one_two_four((0.1, 10.0), "n", at_tcp_cost),
        marks: vec![Mark {
            position: (2.466, mib(at_tcp_cost(2.466, 1.0), Active)),
            statement: "limit of one interface",
        }],
    }
}

/// Returns Figure 6's machine and workload with `hosts` hosts of four interfaces and four disks each, and an
/// interconnect of `gib` GiB/s.
pub(crate) fn at_hosts(hosts: f64, gib: f64) -> Point {
    let mut machine = Machine::carrera_2003();
    machine.processors.count = hosts;
    machine.interfaces.count = 4.0 * hosts;
    machine.disks.count = 4.0 * hosts;
    machine.interconnect.rate = Rate(gib * 1024.0 * MIB);
    (machine, Workload::web(0.10))
}

fn hosts() -> Figure {
    const HOSTS: u32 = 10;
    let mut curves = Vec::new();
    for gib in [1.0, 2.0] {
        for one in [Conventional, Active, Direct] {
            let points = (1..=HOSTS).map(|hosts| {
                let hosts = f64::from(hosts);
                (hosts, mib(at_hosts(hosts, gib), one))
            });
            let name = format!("{}, {gib} GiB/s", one.name());
            curves.push(Curve { name, points: points.collect() });
        }
    }
    Figure {
        number: 6,
        title: "Throughput over the number of hosts",
        x: "hosts, with four interfaces and four disks each",
        curves,
        marks: vec![
            Mark {
                position: (4.0, mib(at_hosts(4.0, 1.0), Active)),
                statement: "4 active hosts fill 1 GiB/s",
            },
            Mark {
                position: (6.0, mib(at_hosts(6.0, 1.0), Conventional)),
                statement: "6 conventional ones do",
            },
        ],
    }
}

/// Returns Figure 7's machine and workload with `x` cycles/B on the host that no device can take over, and
/// `hosts` hosts.
pub(crate) fn at_host_work(x: f64, hosts: f64) -> Point {
    let mut machine = Machine::carrera_2003();
    machine.processors.count = hosts;
    let mut work = Workload::web(0.10);
    work.costs.server = CyclesPerByte(x);
    (machine, work)
}

fn host_work() -> Figure {
    Figure {
        number: 7,
        title: "Throughput over the work of a request on the host",
        x: "host work in cycles/B",
        curves: one_two_four((0.1, 100.0), "h", at_host_work),
        marks: vec![Mark {
            position: (5.3, mib(at_host_work(5.3, 1.0), Active)),
            statement: "the disks bind up to here",
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_curves_of_positive_numbers_and_marks_on_them() {
        for number in NUMBERS {
            let figure = figure(number).unwrap();
            assert_eq!(figure.number, number);
            assert!(!figure.marks.is_empty());
            for curve in &figure.curves {
                assert!(
                    curve.points.iter().all(|point| point.1.is_finite() && point.1 > 0.0),
                    "{number}: {}",
                    curve.name
                );
                assert!(curve.points.windows(2).all(|two| two[0].0 < two[1].0));
            }
            let names: Vec<&str> = figure.curves.iter().map(|curve| &*curve.name).collect();
            assert!(names.iter().enumerate().all(|(at, name)| !names[..at].contains(name)), "{names:?}");
        }
        assert_eq!((figure(1), figure(8)), (None, None));
    }
}
