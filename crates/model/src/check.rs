//! Acceptance table of Figures 2 to 7: the statements of the paper's text beside the numbers computed here.
//!
//! A line agrees if the computed number is what the text states, and differs otherwise, with the reason where
//! it is known. A statement without a number ("small", "sharply") cannot be tested, so its line is a
//! reference: it shows the computed number without a verdict. Every call computes all numbers anew. The
//! command prints the table.

use crate::bound::bound;
use crate::claim::Verdict;
use crate::demand::Architecture::{Active, Conventional, Direct};
use crate::demand::Resource;
use crate::figures::{
    at_file_system_cost, at_host_work, at_hosts, at_interface_rate, at_miss, at_tcp_cost, mib,
};
use crate::machine::Machine;
use crate::work::Workload;
use serde::Serialize;

/// One line of the acceptance table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AcceptanceLine {
    /// Number of the figure that the text is about.
    pub figure: u32,
    /// Quantity or property that the text is about.
    pub point: &'static str,
    /// Statement of the text, as it words it; "-" where it makes none.
    pub says: &'static str,
    /// Number or property computed here, with its unit.
    pub computed: String,
    /// Result of the comparison.
    pub verdict: Verdict,
    /// Reason for a difference; empty where there is none.
    pub note: &'static str,
}

/// Tolerance for computed numbers, as a share of the stated value.
const TOLERANCE: f64 = 0.005;
/// Tolerance for values that the text calls 'about', as a share of the stated value.
const ABOUT: f64 = 0.05;

fn is(computed: f64, said: f64, tolerance: f64) -> bool {
    (computed - said).abs() <= said * tolerance
}

/// Returns the point between `low` and `high` from which `wanted` holds, by bisection. `wanted` must be false
/// at `low`, true at `high`, and change once between them.
fn crossing(low: f64, high: f64, wanted: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (low, high);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if wanted(middle) { high = middle } else { low = middle }
    }
    high
}

fn binding(at: (Machine, Workload), architecture: crate::Architecture) -> Resource {
    bound(&at.0, &at.1, architecture).binding
}

/// Computes the whole table, in the order of the figures.
pub fn table() -> Vec<AcceptanceLine> {
    let mut lines = miss_rate();
    lines.extend(file_system_cost());
    lines.extend(interface_rate());
    lines.extend(tcp_cost());
    lines.extend(hosts());
    lines.extend(host_work());
    lines
}

fn line(
    figure: u32,
    point: &'static str,
    says: &'static str,
    computed: String,
    agrees: bool,
) -> AcceptanceLine {
    AcceptanceLine { figure, point, says, computed, verdict: Verdict::on(agrees), note: "" }
}

/// Returns a line without a published number: `says` is at most an adjective.
fn reference(figure: u32, point: &'static str, says: &'static str, computed: String) -> AcceptanceLine {
    AcceptanceLine { figure, point, says, computed, verdict: Verdict::Reference, note: "" }
}

fn miss_rate() -> Vec<AcceptanceLine> {
    let ratio = |percent| mib(at_miss(percent, 4.0), Active) / mib(at_miss(percent, 4.0), Conventional);
    let knee = |disks, one| crossing(0.0, 30.0, |x| binding(at_miss(x, disks), one) == Resource::Disks);
    let [c1, a1, c4, a4] =
        [(1.0, Conventional), (1.0, Active), (4.0, Conventional), (4.0, Active)].map(|(d, one)| knee(d, one));
    let at = |one| mib(at_miss(10.0, 4.0), one);
    vec![
        line(
            2,
            "active over conventional at a low miss rate, d = 4",
            "1.8",
            format!("{:.3} at m = 0, {:.3} at m = 3.3 %", ratio(0.0), ratio(3.3)),
            is(ratio(0.0), 1.8, 0.01) && is(ratio(3.3), 1.8, TOLERANCE),
        ),
        reference(
            2,
            "d = 1: where the disk binds",
            "a very low miss rate",
            format!("conventional from {c1:.1} %, active from {a1:.1} %"),
        ),
        reference(
            2,
            "d = 4: where the disks bind",
            "-",
            format!("conventional from {c4:.1} %, active from {a4:.1} %"),
        ),
        reference(
            2,
            "d = 4, m = 10 %",
            "-",
            format!("conventional {:.1}, active {:.1} MiB/s", at(Conventional), at(Active)),
        ),
    ]
}

fn file_system_cost() -> Vec<AcceptanceLine> {
    let gain = |x| {
        100.0
            * (mib(at_file_system_cost(x, 0.1), Active) / mib(at_file_system_cost(x, 0.1), Conventional)
                - 1.0)
    };
    let flat = |x, miss| mib(at_file_system_cost(x, miss), Active);
    let knee = crossing(0.0, 0.5, |miss| binding(at_file_system_cost(1.0, miss), Active) == Resource::Disks);
    vec![
        reference(
            3,
            "gain of active up to 5 cycles/B",
            "small",
            format!("m = 10 %: {:.1} % at 1.5 cycles/B, {:.1} % at 5", gain(1.5), gain(5.0)),
        ),
        line(
            3,
            "active",
            "flat",
            format!("{:.1} MiB/s at any cost, while m <= {:.1} %", flat(5.0, 0.1), 100.0 * knee),
            is(flat(20.0, 0.1), flat(0.1, 0.1), TOLERANCE),
        ),
    ]
}

fn interface_rate() -> Vec<AcceptanceLine> {
    let at = |interfaces, one| mib(at_interface_rate(116.0, interfaces), one);
    let conventional = at(4.0, Conventional);
    let falls = |n| {
        crossing(1.0, 200.0, |x| {
            mib(at_interface_rate(x, n), Active) < mib(at_interface_rate(x, n), Conventional) - 1e-6
        })
    };
    let mut limit = line(
        4,
        "conventional's limit",
        "168",
        format!("{conventional:.1} MiB/s"),
        is(conventional, 168.0, TOLERANCE),
    );
    limit.note = "168.3 come out where misses cost nothing (8.5 cycles/B instead of 8.5 + 1.5 m)";
    vec![
        limit,
        line(
            4,
            "active with n >= 4",
            "268, the disks",
            format!(
                "{:.1} MiB/s, {}",
                at(4.0, Active),
                binding(at_interface_rate(116.0, 4.0), Active).name()
            ),
            is(at(4.0, Active), 268.0, TOLERANCE)
                && binding(at_interface_rate(116.0, 4.0), Active) == Resource::Disks,
        ),
        line(
            4,
            "active with n = 1, 2 falls below conventional from",
            "about 75",
            format!("{:.1} and {:.1} MiB/s", falls(1.0), falls(2.0)),
            is(falls(1.0), 75.0, ABOUT) && is(falls(2.0), 75.0, ABOUT),
        ),
        line(
            4,
            "plateau of active with n = 2",
            "below conventional",
            format!("{:.1} against {conventional:.1} MiB/s", at(2.0, Active)),
            at(2.0, Active) < conventional,
        ),
    ]
}

fn tcp_cost() -> Vec<AcceptanceLine> {
    let limit =
        crossing(0.1, 10.0, |x| binding(at_tcp_cost(x, 1.0), Active) == Resource::InterfaceProcessors);
    let two =
        crossing(0.1, 10.0, |x| mib(at_tcp_cost(x, 2.0), Active) < mib(at_tcp_cost(x, 2.0), Conventional));
    let host = binding(at_tcp_cost(3.8, 4.0), Conventional);
    vec![
        line(
            5,
            "where the processor of one interface binds",
            "about 2.5 cycles/B",
            format!("{limit:.3} cycles/B"),
            is(limit, 2.5, ABOUT),
        ),
        reference(
            5,
            "two interfaces",
            "a similar effect",
            format!("below conventional from {two:.2} cycles/B"),
        ),
        line(
            5,
            "more than 4 interfaces for conventional",
            "do not help",
            format!("{} bind with 4", host.name()),
            host == Resource::Processors,
        ),
    ]
}

fn hosts() -> Vec<AcceptanceLine> {
    let fill =
        |one| (1..=12u32).find(|h| binding(at_hosts(f64::from(*h), 1.0), one) == Resource::Interconnect);
    let at = |h, one| mib(at_hosts(h, 1.0), one);
    let saturated = |one, h: f64| {
        format!("{:.0} MiB/s at h = {}, {:.0} at h = {h}", at(h - 1.0, one), h - 1.0, at(h, one))
    };
    let (active, direct) = (at(8.0, Active), at(8.0, Direct));
    vec![
        line(6, "hosts that fill 1 GiB/s, active", "4", saturated(Active, 4.0), fill(Active) == Some(4)),
        line(
            6,
            "hosts that fill 1 GiB/s, conventional",
            "6",
            saturated(Conventional, 6.0),
            fill(Conventional) == Some(6),
        ),
        line(
            6,
            "active saturates below direct by",
            "about 10 %",
            format!("{active:.0} against {direct:.0} MiB/s: {:.1} %", 100.0 * (1.0 - active / direct)),
            is(1.0 - active / direct, 0.10, 0.1),
        ),
    ]
}

fn host_work() -> Vec<AcceptanceLine> {
    let until = |h, one| crossing(0.01, 200.0, |x| binding(at_host_work(x, h), one) == Resource::Processors);
    let [a1, a2, a4] = [1.0, 2.0, 4.0].map(|h| until(h, Active));
    let [c1, c2, c4] = [1.0, 2.0, 4.0].map(|h| until(h, Conventional));
    let gain = |x| mib(at_host_work(x, 1.0), Active) / mib(at_host_work(x, 1.0), Conventional);
    let mut low = line(
        7,
        "the disks bind at little work",
        "yes",
        format!(
            "active until {a1:.1}, {a2:.1}, {a4:.1} (h = 1, 2, 4); conventional until {c2:.1}, {c4:.1} (h = 2, 4), \
             {} at h = 1",
            if c1 < 0.02 { "never".into() } else { format!("until {c1:.1}") }
        ),
        c1 >= 0.02,
    );
    low.note = "one conventional host is the bottleneck at any work";
    vec![
        low,
        reference(
            7,
            "active's advantage at much work",
            "shrinks sharply",
            format!(
                "h = 1: {:.2} at 10, {:.2} at 50, {:.2} at 100 cycles/B",
                gain(10.0),
                gain(50.0),
                gain(100.0)
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table has exactly these verdicts and numbers.
    #[test]
    fn the_table_is_as_it_was_worked_out_by_hand() {
        use Verdict::{Agrees, Differs, Reference};
        let wanted = [
            (Agrees, "1.789 at m = 0, 1.800 at m = 3.3 %"),
            (Reference, "conventional from 4.0 %, active from 2.2 %"),
            (Reference, "conventional from 16.4 %, active from 8.9 %"),
            (Reference, "conventional 165.4, active 268.0 MiB/s"),
            (Reference, "m = 10 %: 1.8 % at 1.5 cycles/B, 5.9 % at 5"),
            (Agrees, "168.3 MiB/s at any cost, while m <= 15.9 %"),
            (Differs, "165.4 MiB/s"),
            (Agrees, "268.0 MiB/s, disks"),
            (Agrees, "75.3 and 75.3 MiB/s"),
            (Agrees, "150.6 against 165.4 MiB/s"),
            (Agrees, "2.466 cycles/B"),
            (Reference, "below conventional from 3.23 cycles/B"),
            (Agrees, "processors bind with 4"),
            (Agrees, "804 MiB/s at h = 3, 931 at h = 4"),
            (Agrees, "827 MiB/s at h = 5, 931 at h = 6"),
            (Agrees, "931 against 1024 MiB/s: 9.1 %"),
            (
                Differs,
                "active until 5.3, 10.7, 21.4 (h = 1, 2, 4); conventional until 2.2, 12.9 (h = 2, 4), never at h = 1",
            ),
            (Reference, "h = 1: 1.85 at 10, 1.17 at 50, 1.08 at 100 cycles/B"),
        ];
        let table = table();
        for (line, (verdict, computed)) in table.iter().zip(wanted) {
            assert_eq!(
                (line.verdict, &*line.computed),
                (verdict, computed),
                "figure {}: {}",
                line.figure,
                line.point
            );
        }
        assert_eq!(table.len(), wanted.len());
        assert!(table.iter().all(|line| line.verdict != Differs || !line.note.is_empty()));
    }
}
