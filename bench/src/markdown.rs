//! The report as Markdown tables: one of all ratios, which the README shows, and one a bench with all columns.

use crate::curve;
use crate::number;
use crate::row::{Report, Row, Verdict};
use std::fmt::Write;

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut text = format!("Measured on {} by bywash {}.\n", report.machine.sentence(), report.version);
    if report.rows.iter().any(|row| row.peer == "kernel") {
        text.push_str(&summary(report));
    }
    for bench in report.benches() {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.bench == bench).collect();
        let (curves, rows): (Vec<&Row>, Vec<&Row>) = rows.into_iter().partition(|row| row.point.is_some());
        text.push_str(&tables_of_curves(bench, &curves));
        if rows.is_empty() {
            continue;
        }
        if !bench.starts_with("run/") {
            text.push_str(&without_calls(bench, &rows));
            continue;
        }
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n### {bench}\n\n| case | place | against | it | bywash | ratio (quartiles) | goal | calls at user level | \
             device read, written (it → bywash) | faults (it → bywash) |\n\
             |---|---|---|---:|---:|---:|---:|---:|---|---|\n"
        );
        for row in rows {
            let _ = writeln!(text, "{}", line(row));
        }
    }
    text
}

/// The rows of a bench in which nothing is preloaded, so that there are no calls to be counted.
fn without_calls(bench: &str, rows: &[&Row]) -> String {
    let noted = rows.iter().any(|row| row.ratio.is_some() && !row.note.is_empty());
    let timed = rows.iter().any(|row| row.ours_cpu_per_message.is_some());
    let mut head = String::from("case | metric | against | it | bywash | ratio (quartiles) | goal |");
    let mut line = String::from("---|---|---|---:|---:|---:|---:|");
    if timed {
        head.push_str(" CPU a message (it → bywash) |");
        line.push_str("---:|");
    }
    if noted {
        head.push_str(" note |");
        line.push_str("---|");
    }
    let mut text = format!("\n### {bench}\n\n| {head}\n|{line}\n");
    for row in rows {
        let cpu = if timed { format!(" {} |", cpu_cell(row)) } else { String::new() };
        let note = match (noted, row.ratio) {
            (true, Some(_)) => format!(" {} |", escape(&row.note)),
            (true, None) => " |".into(),
            (false, _) => String::new(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |{cpu}{note}",
            escape(&row.case),
            row.metric,
            escape(&row.peer),
            quantity(row, row.peer_value),
            quantity(row, row.ours),
            row.ratio.map_or_else(|| escape(&row.note), |ratio| ratio_cell(row, ratio)),
            goal_cell(row)
        );
    }
    text
}

/// Processor time for a message, of the peer and of ours.
fn cpu_cell(row: &Row) -> String {
    let time = |seconds: Option<f64>| {
        seconds.map_or_else(|| "-".into(), |seconds| number::quantity(seconds * 1e9, "ns"))
    };
    match (row.peer_cpu_per_message, row.ours_cpu_per_message) {
        (None, None) => "-".into(),
        (theirs, ours) => format!("{} → {}", time(theirs), time(ours)),
    }
}

/// A table for each figure: a line for each curve, a column for each of its points.
fn tables_of_curves(bench: &str, rows: &[&Row]) -> String {
    let mut text = String::new();
    for figure in curve::figures(rows) {
        if text.is_empty() {
            text = format!("\n### {bench}\n");
        }
        let sizes: Vec<String> = figure.sizes().into_iter().map(|size| figure.label(size)).collect();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n{}, over {}\n\n| | {} |\n|---|{}\n",
            escape(&figure.title),
            figure.axis,
            sizes.join(" | "),
            "---:|".repeat(sizes.len())
        );
        for line in &figure.lines {
            let cells = figure.sizes().into_iter().map(|size| {
                let point = line.points.iter().find(|point| point.0 == size);
                point.map_or_else(|| "-".into(), |point| format!("{:.2}", point.1))
            });
            let _ = writeln!(text, "| {} | {} |", escape(&line.name), cells.collect::<Vec<_>>().join(" | "));
        }
    }
    text
}

fn quantity(row: &Row, value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| number::quantity(value, &row.unit))
}

/// The ratio with its quartiles.
fn ratio_cell(row: &Row, ratio: f64) -> String {
    let quartiles = match (row.ratio_low, row.ratio_high) {
        (Some(low), Some(high)) => format!(" ({}-{})", number::ratio(low), number::ratio(high)),
        _ => String::new(),
    };
    format!("**{}**{quartiles}", number::ratio(ratio))
}

/// The goal, and whether it was reached.
fn goal_cell(row: &Row) -> String {
    row.goal.map_or("-".into(), |goal| format!("{}{}", number::ratio(goal), mark(row)))
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

/// Every case against the kernel, one line each, one column a place.
fn summary(report: &Report) -> String {
    let has_goal = |row: &Row| row.bench.starts_with("run/") && row.goal.is_some();
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.peer == "kernel" || has_goal(row)).collect();
    let mut places: Vec<&str> = Vec::new();
    let mut cases: Vec<(&str, String)> = Vec::new();
    for row in &rows {
        if !places.contains(&row.place.as_str()) {
            places.push(&row.place);
        }
        let case = (row.bench.as_str(), case_and_rival(row));
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    let mut text =
        format!("\n| | goal | {} |\n|---|---:|{}\n", places.join(" | "), "---:|".repeat(places.len()));
    for (bench, case) in &cases {
        let of_case = || rows.iter().filter(|row| row.bench == *bench && case_and_rival(row) == *case);
        let goal = of_case().find_map(|row| row.goal).map_or("-".into(), number::ratio);
        let cells = places.iter().map(|place| {
            of_case().find(|row| row.place == **place).map_or(String::new(), |row| {
                row.ratio.map_or("-".into(), |ratio| format!("{}{}", number::ratio(ratio), mark(row)))
            })
        });
        let cells: Vec<String> = cells.collect();
        let name = bench.strip_prefix("run/").unwrap_or(bench);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {name}: {case} | {goal} | {} |", cells.join(" | "));
    }
    text
}

/// The case, and whom it is compared with if that is not the kernel alone.
fn case_and_rival(row: &Row) -> String {
    let rival = if row.peer == "kernel" { String::new() } else { format!(", against {}", escape(&row.peer)) };
    format!("{}{rival}", case_of(row))
}

fn case_of(row: &Row) -> String {
    let metric = if row.metric == "throughput" { String::new() } else { format!(" ({})", row.metric) };
    format!("{}{metric}", escape(row.what()))
}

fn line(row: &Row) -> String {
    let case = case_of(row);
    let goal = goal_cell(row);
    let Some(ratio) = row.ratio else {
        return format!(
            "| {case} | {} | {} | - | - | - | {goal} | {} | - | - |",
            row.place,
            row.peer,
            escape(&row.note)
        );
    };
    format!(
        "| {case} | {} | {} | {} | {} | {} | {goal} | {} | {} | {} |",
        row.place,
        escape(&row.peer),
        quantity(row, row.peer_value),
        quantity(row, row.ours),
        ratio_cell(row, ratio),
        user_level(row),
        device(row),
        faults(row),
    )
}

/// The share of calls served at user level.
pub fn user_level(row: &Row) -> String {
    match (row.calls_user, row.calls_kernel) {
        (Some(user), Some(kernel)) if user + kernel > 0 => {
            format!(
                "{:.1} % of {}",
                100.0 * user as f64 / (user + kernel) as f64,
                number::grouped(user + kernel)
            )
        }
        _ => "none counted".into(),
    }
}

/// Device bytes of both sides.
pub fn device(row: &Row) -> String {
    let (Some(ours), Some(peer)) = (&row.ours_usage, &row.peer_usage) else { return "-".into() };
    let change = |peer: Option<u64>, ours: Option<u64>| {
        let (peer, ours) = (peer? as f64, ours? as f64);
        Some(format!("{} → {}", number::bytes(peer), number::bytes(ours)))
    };
    match (
        change(peer.device_read_bytes, ours.device_read_bytes),
        change(peer.device_written_bytes, ours.device_written_bytes),
    ) {
        (Some(read), Some(written)) => format!("{read}, {written}"),
        _ => "no device".into(),
    }
}

/// Page faults of both sides.
pub fn faults(row: &Row) -> String {
    let (Some(ours), Some(peer)) = (&row.ours_usage, &row.peer_usage) else { return "-".into() };
    let all = |usage: &crate::usage::Usage| number::grouped(usage.faults_minor + usage.faults_major);
    format!("{} → {}", all(peer), all(ours))
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row;

    #[test]
    fn every_line_of_a_table_has_the_same_columns() {
        let mut report = row::sample();
        report.rows[1].note = "not run: a | b".into();
        let text = render(&report);
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        let (summary, text) = text.split_once("### ").unwrap();
        let lines: Vec<&str> = summary.lines().filter(|line| line.starts_with('|')).collect();
        assert!(lines.iter().all(|line| columns(line) == columns(lines[0])), "{summary}");
        assert!(summary.contains("2.00 ✓"), "{summary}");
        let table: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(table.len(), 4, "{text}");
        assert!(table.iter().all(|line| columns(line) == columns(table[0])), "{text}");
        assert!(
            summary.contains("Test CPU") && text.contains("**2.00** (1.88-2.12)") && text.contains("1.80 ✓")
        );
    }

    #[test]
    fn a_row_without_a_goal_has_no_sign() {
        let mut report = row::sample();
        for row in &mut report.rows {
            (row.goal, row.met) = (None, None);
        }
        let text = render(&report);
        assert!(text.contains("2.00") && !text.contains('✗') && !text.contains('✓'), "{text}");
    }

    #[test]
    fn curves_are_a_table_for_each_figure_and_notes_have_a_column_where_there_are_some() {
        let mut report = row::sample();
        for row in &mut report.rows {
            row.bench = "flow/disk".into();
        }
        report.rows.extend(curve::sample());
        let text = render(&report);
        let (disk, figures) = text.split_once("### flow/figures").unwrap();
        assert!(disk.contains("| goal | note |") && disk.contains("99.0 % of 1,000 calls"), "{disk}");
        assert_eq!(figures.matches("|---|").count(), 2, "{figures}");
        assert!(figures.contains("| splice | 2.00 | 4.00 | 6.00 |"), "{figures}");
        assert!(figures.contains("| read and write | 1.00 | 2.00 | 3.00 |"), "{figures}");
    }
}
