//! Tables of a report, from which [`markdown`](crate::markdown) and [`html`](crate::html) are written, and rows on a
//! terminal, one line each as they come.

use crate::curve;
use crate::number::{bytes, grouped, quantity, ratio};
use crate::row::{Report, Row, Verdict};
use crate::usage::Usage;

/// A table: a caption, columns and lines.
pub struct Table {
    /// Line above the table, if it needs one.
    pub caption: String,
    /// Columns, and whether each holds numbers.
    pub columns: Vec<(String, bool)>,
    /// Cells of each line.
    pub lines: Vec<Vec<Cell>>,
}

/// A cell.
#[derive(Debug, Default)]
pub struct Cell {
    /// Beginning that stands out.
    pub strong: String,
    /// The rest.
    pub text: String,
    /// Standing of the row to its goal, in the cell of the goal.
    pub verdict: Option<Verdict>,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }
}

/// Width of the case on a terminal.
const CASE_COLUMNS: usize = 70;

fn or_dash(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

fn columns(names: &[&str], numbers: &[&str]) -> Vec<(String, bool)> {
    names.iter().map(|name| ((*name).to_owned(), numbers.contains(name))).collect()
}

/// The table of all cases against the kernel, a column a place; `None` if the report has no such case.
pub fn summary(report: &Report) -> Option<Table> {
    report.rows.iter().find(|row| row.peer == "kernel")?;
    let has_goal = |row: &Row| row.bench.starts_with("run/") && row.goal.is_some();
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.peer == "kernel" || has_goal(row)).collect();
    let case_of = |row: &Row| {
        let rival = if row.peer == "kernel" { String::new() } else { format!(", against {}", row.peer) };
        format!("{}: {}{rival}", row.bench.strip_prefix("run/").unwrap_or(&row.bench), case_and_metric(row))
    };
    let (mut places, mut cases): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    for row in &rows {
        if !places.contains(&row.place.as_str()) {
            places.push(&row.place);
        }
        if !cases.contains(&case_of(row)) {
            cases.push(case_of(row));
        }
    }
    let line = |case: String| {
        let here: Vec<&&Row> = rows.iter().filter(|row| case_of(row) == case).collect();
        let goal = or_dash(here.iter().find_map(|row| row.goal), ratio);
        let cells = places.iter().map(|place| {
            let row = here.iter().find(|row| row.place == **place);
            row.map_or(String::new(), |row| {
                or_dash(row.ratio, |value| format!("{}{}", ratio(value), mark(row)))
            })
        });
        [case, goal].into_iter().chain(cells).map(Cell::from).collect()
    };
    let lines = cases.into_iter().map(line).collect();
    let names: Vec<&str> = ["", "goal"].into_iter().chain(places.iter().copied()).collect();
    Some(Table { caption: String::new(), columns: columns(&names, &names[1..]), lines })
}

/// The tables of a bench: one for each figure, and one of the other rows.
pub fn of_bench(report: &Report, bench: &str) -> Vec<Table> {
    let (points, rows): (Vec<&Row>, Vec<&Row>) =
        report.rows.iter().filter(|row| row.bench == bench).partition(|row| row.point.is_some());
    let mut tables: Vec<Table> = curve::figures(&points).iter().map(of_figure).collect();
    if !rows.is_empty() {
        let preloads = bench.starts_with("run/");
        tables.push(if preloads { with_calls(&rows) } else { without_calls(&rows) });
    }
    tables
}

/// A line for each curve, a column for each of its points.
fn of_figure(figure: &curve::Figure) -> Table {
    let sizes = figure.sizes();
    let lines = figure.curves.iter().map(|curve| {
        let value = |size: &f64| curve.points.iter().find(|point| point.0 == *size).map(|point| point.1);
        let cells = sizes.iter().map(|size| or_dash(value(size), |value| format!("{value:.2}")));
        std::iter::once(curve.name.clone()).chain(cells).map(Cell::from).collect()
    });
    let names = sizes.iter().map(|size| (figure.label(*size), true));
    Table {
        caption: format!("{}, over {}", figure.title, figure.axis),
        columns: std::iter::once((String::new(), false)).chain(names).collect(),
        lines: lines.collect(),
    }
}

/// Rows of a bench that preloads the library and counts calls.
fn with_calls(rows: &[&Row]) -> Table {
    let line = |row: &&Row| -> Vec<Cell> {
        let start = [case_and_metric(row), row.place.clone(), row.peer.clone()];
        let middle = match row.ratio {
            Some(_) => [quantity_cell(row, row.peer_value), quantity_cell(row, row.ours)],
            None => ["-".into(), "-".into()],
        };
        let end = match row.ratio {
            Some(_) => [user_level(row), device(row), faults(row)],
            None => [row.note.clone(), "-".into(), "-".into()],
        };
        let cells = start.into_iter().chain(middle).map(Cell::from);
        cells.chain([ratio_cell(row, "-"), goal_cell(row)]).chain(end.map(Cell::from)).collect()
    };
    let columns = columns(
        &[
            "case",
            "place",
            "against",
            "it",
            "bywash",
            "ratio (quartiles)",
            "goal",
            "calls at user level",
            "device read, written (it → bywash)",
            "faults (it → bywash)",
        ],
        &["it", "bywash", "ratio (quartiles)", "goal", "calls at user level"],
    );
    Table { caption: String::new(), columns, lines: rows.iter().map(line).collect() }
}

/// Rows of a bench in which nothing is preloaded.
fn without_calls(rows: &[&Row]) -> Table {
    let is_noted = rows.iter().any(|row| row.ratio.is_some() && !row.note.is_empty());
    let is_timed = rows.iter().any(|row| row.ours_cpu_per_message.is_some());
    const CPU: &str = "CPU a message (it → bywash)";
    let mut names = vec!["case", "metric", "against", "it", "bywash", "ratio (quartiles)", "goal"];
    names.extend(is_timed.then_some(CPU));
    names.extend(is_noted.then_some("note"));
    let line = |row: &&Row| -> Vec<Cell> {
        let mut cells: Vec<Cell> = [row.case.clone(), row.metric.clone(), row.peer.clone()]
            .into_iter()
            .chain([quantity_cell(row, row.peer_value), quantity_cell(row, row.ours)])
            .map(Cell::from)
            .collect();
        cells.extend([ratio_cell(row, &row.note), goal_cell(row)]);
        cells.extend(is_timed.then(|| Cell::from(cpu(row))));
        cells.extend(is_noted.then(|| Cell::from(row.ratio.map_or("", |_| row.note.as_str()))));
        cells
    };
    let columns = columns(&names, &["it", "bywash", "ratio (quartiles)", "goal", CPU]);
    Table { caption: String::new(), columns, lines: rows.iter().map(line).collect() }
}

fn case_and_metric(row: &Row) -> String {
    let metric = if row.metric == "throughput" { String::new() } else { format!(" ({})", row.metric) };
    format!("{}{metric}", row.what())
}

fn quantity_cell(row: &Row, value: Option<f64>) -> String {
    or_dash(value, |value| quantity(value, &row.unit))
}

/// The ratio with its quartiles.
fn ratio_cell(row: &Row, without: &str) -> Cell {
    match (row.ratio, quartiles(row)) {
        (None, _) => without.into(),
        (Some(value), None) => Cell { strong: ratio(value), ..Cell::default() },
        (Some(value), Some(quartiles)) => {
            Cell { strong: ratio(value), text: format!(" ({quartiles})"), verdict: None }
        }
    }
}

fn quartiles(row: &Row) -> Option<String> {
    Some(format!("{}-{}", ratio(row.ratio_low?), ratio(row.ratio_high?)))
}

/// The goal, and whether it was reached.
fn goal_cell(row: &Row) -> Cell {
    let text = or_dash(row.goal, |goal| format!("{}{}", ratio(goal), mark(row)));
    Cell { text, verdict: row.verdict(), ..Cell::default() }
}

/// Sign behind a number that says how the row stands to its goal; none for a row without one.
fn mark(row: &Row) -> &'static str {
    match row.verdict() {
        Some(Verdict::Reached) => " ✓",
        Some(Verdict::Missed) => " ✗",
        Some(Verdict::Undecided) => " ≈",
        None => "",
    }
}

/// Processor time for a message, of the peer and of ours.
fn cpu(row: &Row) -> String {
    let time = |seconds: Option<f64>| or_dash(seconds, |seconds| quantity(seconds * 1e9, "ns"));
    match (row.peer_cpu_per_message, row.ours_cpu_per_message) {
        (None, None) => "-".into(),
        (theirs, ours) => format!("{} → {}", time(theirs), time(ours)),
    }
}

/// Share of the calls that were served at user level.
fn user_level(row: &Row) -> String {
    let all = row.calls_user.zip(row.calls_kernel).map(|(user, kernel)| (user, user + kernel));
    all.filter(|(_, all)| *all > 0).map_or_else(
        || "none counted".into(),
        |(user, all)| format!("{:.1} % of {}", 100.0 * user as f64 / all as f64, grouped(all)),
    )
}

/// Device bytes of both sides.
fn device(row: &Row) -> String {
    let (Some(ours), Some(peer)) = (&row.ours_usage, &row.peer_usage) else { return "-".into() };
    let change = |bytes_of: fn(&Usage) -> Option<u64>| {
        Some(format!("{} → {}", bytes(bytes_of(peer)? as f64), bytes(bytes_of(ours)? as f64)))
    };
    match (change(|usage| usage.device_read_bytes), change(|usage| usage.device_written_bytes)) {
        (Some(read), Some(written)) => format!("{read}, {written}"),
        _ => "no device".into(),
    }
}

/// Page faults of both sides.
fn faults(row: &Row) -> String {
    let (Some(ours), Some(peer)) = (&row.ours_usage, &row.peer_usage) else { return "-".into() };
    format!("{} → {}", grouped(peer.faults()), grouped(ours.faults()))
}

/// The line above the rows on a terminal.
pub fn head() -> String {
    cells(["case", "peer", "bywash", "ratio", "quartiles", "goal", "note"].map(String::from))
}

/// One row on a terminal.
pub fn line(row: &Row) -> String {
    let goal = match row.verdict() {
        Some(Verdict::Reached) => " ok",
        Some(Verdict::Missed) => " NO",
        Some(Verdict::Undecided) => " ?",
        None => "",
    };
    cells([
        name(row),
        quantity_cell(row, row.peer_value),
        quantity_cell(row, row.ours),
        or_dash(row.ratio, ratio),
        quartiles(row).unwrap_or_else(|| "-".into()),
        format!("{}{goal}", or_dash(row.goal, ratio)),
        note(row),
    ])
}

fn cells([case, peer, ours, ratio, quartiles, goal, note]: [String; 7]) -> String {
    let line =
        format!("{case:<CASE_COLUMNS$} {peer:>14} {ours:>14} {ratio:>6} {quartiles:>12} {goal:>8}  {note}");
    line.trim_end().to_owned()
}

/// Subject of a row in one line: the bench, the case, and what is not usual about it.
fn name(row: &Row) -> String {
    let bench = row.bench.strip_prefix("run/").unwrap_or(&row.bench);
    format!("{bench}: {}{}", row.case, unusual(row))
}

/// Metric and peer of a row, unless they are the usual ones.
pub fn unusual(row: &Row) -> String {
    let metric = if row.metric == "throughput" { String::new() } else { format!(" [{}]", row.metric) };
    let peer = match row.peer.as_str() {
        "kernel" => String::new(),
        peer => format!(" [against {}]", peer.strip_prefix("kernel with ").unwrap_or(peer)),
    };
    format!("{metric}{peer}")
}

/// The note, with the usage of both sides: ours / the peer's.
fn note(row: &Row) -> String {
    let mut note = row.note.clone();
    let (Some(ours), Some(peer)) = (&row.ours_usage, &row.peer_usage) else { return note };
    for (verb, ours, peer) in [
        ("read", ours.device_read_bytes, peer.device_read_bytes),
        ("wrote", ours.device_written_bytes, peer.device_written_bytes),
    ] {
        // Nothing on both sides is not worth a reader's time.
        if let Some((ours, peer)) = ours.zip(peer).filter(|(ours, peer)| ours + peer > 0) {
            note.push_str(&format!("; device {verb} {} / {}", bytes(ours as f64), bytes(peer as f64)));
        }
    }
    note.push_str(&format!("; faults {} / {}", grouped(ours.faults()), grouped(peer.faults())));
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

    #[test]
    fn every_line_of_a_table_has_the_same_columns() {
        let mut report = row::sample();
        report.rows.extend(curve::sample());
        let tables = summary(&report).into_iter();
        let tables =
            tables.chain(["run/micro", "flow/figures"].iter().flat_map(|bench| of_bench(&report, bench)));
        let tables: Vec<Table> = tables.collect();
        assert_eq!(tables.len(), 4);
        for table in tables {
            assert!(!table.lines.is_empty());
            assert!(table.lines.iter().all(|line| line.len() == table.columns.len()), "{:?}", table.lines);
        }
    }
}
