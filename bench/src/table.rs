//! Rows on a terminal, one line each as they come.

use crate::number;
use crate::row::{Row, Verdict};

const CASE_COLUMNS: usize = 70;

/// The line above the rows.
pub fn head() -> String {
    format!(
        "{:<CASE_COLUMNS$} {:>14} {:>14} {:>6} {:>12} {:>8}  {}",
        "case", "peer", "bywash", "ratio", "quartiles", "goal", "note"
    )
}

/// One row.
pub fn line(row: &Row) -> String {
    let quantity =
        |value: Option<f64>| value.map_or_else(|| "-".into(), |value| number::quantity(value, &row.unit));
    let ratio = |value: Option<f64>| value.map_or_else(|| "-".into(), number::ratio);
    let quartiles = match (row.ratio_low, row.ratio_high) {
        (Some(low), Some(high)) => format!("{}-{}", number::ratio(low), number::ratio(high)),
        _ => "-".into(),
    };
    let goal = match row.verdict() {
        Some(Verdict::Reached) => format!("{} ok", ratio(row.goal)),
        Some(Verdict::Missed) => format!("{} NO", ratio(row.goal)),
        Some(Verdict::Undecided) => format!("{} ?", ratio(row.goal)),
        None => ratio(row.goal),
    };
    let line = format!(
        "{:<CASE_COLUMNS$} {:>14} {:>14} {:>6} {:>12} {:>8}  {}",
        name(row),
        quantity(row.peer_value),
        quantity(row.ours),
        ratio(row.ratio),
        quartiles,
        goal,
        note(row)
    );
    line.trim_end().to_owned()
}

/// What a row is about, in one line: the bench, the case, and what is not usual about it.
pub fn name(row: &Row) -> String {
    let bench = row.bench.strip_prefix("run/").unwrap_or(&row.bench);
    let metric = if row.metric == "throughput" { String::new() } else { format!(" [{}]", row.metric) };
    let peer = match row.peer.as_str() {
        "kernel" => String::new(),
        peer => format!(" [against {}]", peer.strip_prefix("kernel with ").unwrap_or(peer)),
    };
    format!("{bench}: {}{metric}{peer}", row.case)
}

/// The note, with what both sides used: ours / the peer's.
pub fn note(row: &Row) -> String {
    let (Some(ours), Some(peer)) = (&row.ours_usage, &row.peer_usage) else { return row.note.clone() };
    let mut note = row.note.clone();
    let mut device = |what, ours: Option<u64>, peer: Option<u64>| {
        // Nothing on both sides is not worth a reader's time.
        if let (Some(ours), Some(peer)) = (ours, peer)
            && ours + peer > 0
        {
            let (ours, peer) = (number::bytes(ours as f64), number::bytes(peer as f64));
            note.push_str(&format!("; device {what} {ours} / {peer}"));
        }
    };
    device("read", ours.device_read_bytes, peer.device_read_bytes);
    device("wrote", ours.device_written_bytes, peer.device_written_bytes);
    let faults = |usage: &crate::usage::Usage| number::grouped(usage.faults_minor + usage.faults_major);
    note.push_str(&format!("; faults {} / {}", faults(ours), faults(peer)));
    note.push_str(&format!("; CPU {:.2} / {:.2} s", ours.cpu_seconds, peer.cpu_seconds));
    note
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row;

    #[test]
    fn a_line_has_the_numbers_and_the_note() {
        let report = row::sample();
        let line = line(&report.rows[0]);
        for part in [
            "micro: pread 4 KiB random, tmpfs",
            "1.00 M op/s",
            "2.00 M op/s",
            "1.88-2.12",
            "1.80 ok",
            "faults 20 / 10",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(super::line(&report.rows[1]).ends_with("not run: <mkfs.xfs> is not installed & so on"));
    }

    #[test]
    fn another_peer_is_named() {
        let mut report = row::sample();
        report.rows[0].peer = "kernel with --mmap_read".into();
        assert!(name(&report.rows[0]).ends_with("[against --mmap_read]"));
    }
}
