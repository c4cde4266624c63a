//! Tables of a report, as Markdown and as HTML, and rows on a terminal, one line each as they come.
//!
//! [`of_rows`] has the columns of a bench's table; [`summary`] is the table of all ratios, which the README shows.

use crate::figure;
use crate::number::{bytes, grouped, quantity, ratio};
use crate::row::{Report, Row, Verdict};
use crate::usage::Usage;

/// A table. Text between two `**` stands out.
pub struct Table {
    pub caption: String,
    /// Columns, and whether each holds numbers.
    pub columns: Vec<(String, bool)>,
    pub lines: Vec<Vec<String>>,
}

impl Table {
    fn markdown(&self) -> String {
        let escape = |text: &str| text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ");
        let cell = |text: &String| format!("{} |", format!(" {}", escape(text)).trim_end());
        let rule = |(_, is_number): &(String, bool)| if *is_number { "---:|" } else { "---|" };
        let line = |cells: &Vec<String>| format!("|{}\n", cells.iter().map(cell).collect::<String>());
        let head: String = self.columns.iter().map(|(name, _)| cell(name)).collect();
        let rule: String = self.columns.iter().map(rule).collect();
        let lines: String = self.lines.iter().map(line).collect();
        let caption = Some(&self.caption).filter(|caption| !caption.is_empty());
        let caption = caption.map_or(String::new(), |caption| format!("\n{}\n", escape(caption)));
        format!("{caption}\n|{head}\n|{rule}\n{lines}")
    }

    pub fn html(&self) -> String {
        let head: String =
            self.columns.iter().map(|(name, _)| format!("<th>{}</th>", escape(name))).collect();
        let cell = |(text, (_, is_number)): (&String, &(String, bool))| {
            let class = match text.chars().last() {
                Some('✓') => "number met",
                Some('✗') => "number missed",
                _ if *is_number => "number",
                _ => "",
            };
            let text = escape(text).replacen("**", "<b>", 1).replacen("**", "</b>", 1);
            format!("<td class=\"{class}\">{text}</td>")
        };
        let line = |cells: &Vec<String>| {
            format!("<tr>{}</tr>\n", cells.iter().zip(&self.columns).map(cell).collect::<String>())
        };
        let (caption, lines) = (escape(&self.caption), self.lines.iter().map(line).collect::<String>());
        format!("<p>{caption}</p><div class=\"wide\"><table><tr>{head}</tr>\n{lines}</table></div>\n")
    }
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub fn markdown(report: &Report) -> String {
    let mut text = format!("Measured on {} by bywash {}.\n", report.machine.sentence(), report.version);
    text.extend(summary(report).map(|table| table.markdown()));
    for bench in report.benches() {
        text += &format!("\n### {bench}\n");
        text.extend(of_bench(report, bench).iter().map(Table::markdown));
    }
    text
}

fn or_dash(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

/// Each value once, in the order in which they come first.
pub(crate) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut known, value| {
        if !known.contains(&value) {
            known.push(value);
        }
        known
    })
}

/// The table of all cases against the kernel, a column a place; `None` if the report has no such case.
fn summary(report: &Report) -> Option<Table> {
    report.rows.iter().find(|row| row.peer == "kernel")?;
    let has_goal = |row: &Row| row.bench.starts_with("run/") && row.goal.is_some();
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.peer == "kernel" || has_goal(row)).collect();
    let case_of = |row: &Row| {
        let rival = if row.peer == "kernel" { String::new() } else { format!(", against {}", row.peer) };
        format!("{}: {}{rival}", row.bench.strip_prefix("run/").unwrap_or(&row.bench), case_and_metric(row))
    };
    let places = distinct(rows.iter().map(|row| row.place.as_str()));
    let line = |case: String| {
        let here: Vec<&&Row> = rows.iter().filter(|row| case_of(row) == case).collect();
        let goal = or_dash(here.iter().find_map(|row| row.goal), ratio);
        let cells = places.iter().map(|place| {
            let row = here.iter().find(|row| row.place == **place);
            row.map_or(String::new(), |row| or_dash(row.ratio, |value| ratio(value) + mark(row)))
        });
        [case, goal].into_iter().chain(cells).collect()
    };
    let lines = distinct(rows.iter().map(|row| case_of(row))).into_iter().map(line).collect();
    let names = ["", "goal"].iter().chain(&places);
    let columns = names.enumerate().map(|(number, name)| ((*name).to_owned(), number > 0)).collect();
    Some(Table { caption: String::new(), columns, lines })
}

/// The tables of a bench: one for each figure, and one of the other rows.
pub fn of_bench(report: &Report, bench: &str) -> Vec<Table> {
    let (points, rows): (Vec<&Row>, Vec<&Row>) =
        report.rows.iter().filter(|row| row.bench == bench).partition(|row| row.point.is_some());
    let figures = figure::figures(&points);
    let rows = (!rows.is_empty()).then(|| of_rows(&rows, bench.starts_with("run/")));
    figures.iter().map(of_figure).chain(rows).collect()
}

/// A line for each curve, a column for each of its points.
fn of_figure(figure: &figure::Figure) -> Table {
    let sizes = figure.sizes();
    let lines = figure.curves.iter().map(|curve| {
        let value = |size: &f64| curve.points.iter().find(|point| point.0 == *size).map(|point| point.1);
        let cells = sizes.iter().map(|size| or_dash(value(size), |value| format!("{value:.2}")));
        std::iter::once(curve.name.clone()).chain(cells).collect()
    });
    let names = sizes.iter().map(|size| (figure.label(*size), true));
    Table {
        caption: format!("{}, over {}", figure.title, figure.axis),
        columns: std::iter::once((String::new(), false)).chain(names).collect(),
        lines: lines.collect(),
    }
}

/// Name, whether it holds numbers, whether it is shown, and its cell.
type Column<'a> = (&'a str, bool, bool, &'a dyn Fn(&Row) -> String);

/// A line for each row. A bench that preloads the library counts calls, and has the place in a column of its own.
fn of_rows(rows: &[&Row], preloads: bool) -> Table {
    let is_noted = rows.iter().any(|row| row.ratio.is_some() && !row.note.is_empty());
    let is_timed = rows.iter().any(|row| row.ours_cpu_per_message.is_some());
    let case = if preloads { case_and_metric } else { |row: &Row| row.case.clone() };
    let columns: [Column<'_>; 13] = [
        ("case", false, true, &case),
        ("place", false, preloads, &|row| row.place.clone()),
        ("metric", false, !preloads, &|row| row.metric.clone()),
        ("against", false, true, &|row| row.peer.clone()),
        ("it", true, true, &|row| or_dash(row.peer_value, |value| quantity(value, &row.unit))),
        ("bywash", true, true, &|row| or_dash(row.ours, |value| quantity(value, &row.unit))),
        ("ratio (quartiles)", true, true, &ratio_or_reason),
        ("goal", true, true, &goal),
        ("calls at user level", true, preloads, &user_level),
        ("device read, written (it → bywash)", false, preloads, &device),
        ("faults (it → bywash)", false, preloads, &faults),
        ("CPU a message (it → bywash)", true, is_timed, &cpu),
        ("note", false, !preloads && is_noted, &|row| row.ratio.map_or("", |_| &row.note).into()),
    ];
    let shown: Vec<_> = columns.iter().filter(|column| column.2).collect();
    Table {
        caption: String::new(),
        columns: shown.iter().map(|column| (column.0.to_owned(), column.1)).collect(),
        lines: rows.iter().map(|row| shown.iter().map(|column| column.3(row)).collect()).collect(),
    }
}

fn case_and_metric(row: &Row) -> String {
    let metric = if row.metric == "throughput" { String::new() } else { format!(" ({})", row.metric) };
    format!("{}{metric}", row.what())
}

fn ratio_or_reason(row: &Row) -> String {
    let Some(value) = row.ratio else { return row.note.clone() };
    let quartiles = quartiles(row).map_or(String::new(), |quartiles| format!(" ({quartiles})"));
    format!("**{}**{quartiles}", ratio(value))
}

fn quartiles(row: &Row) -> Option<String> {
    Some(format!("{}-{}", ratio(row.ratio_low?), ratio(row.ratio_high?)))
}

fn goal(row: &Row) -> String {
    or_dash(row.goal, |goal| ratio(goal) + mark(row))
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
    let time = |seconds| or_dash(seconds, |seconds: f64| quantity(seconds * 1e9, "ns"));
    match (row.peer_cpu_per_message, row.ours_cpu_per_message) {
        (None, None) => "-".into(),
        (theirs, ours) => format!("{} → {}", time(theirs), time(ours)),
    }
}

fn user_level(row: &Row) -> String {
    match row.calls_user.zip(row.calls_kernel) {
        None => "-".into(),
        Some((0, 0)) => "none counted".into(),
        Some((user, kernel)) => share(user, user + kernel),
    }
}

pub(crate) fn share(user: u64, all: u64) -> String {
    format!("{:.1} % of {}", 100.0 * user as f64 / all as f64, grouped(all))
}

/// A figure of the peer's usage and of ours; `None` where either is unknown.
fn change(row: &Row, show: impl Fn(&Usage) -> Option<String>) -> Option<String> {
    Some(format!("{} → {}", show(row.peer_usage.as_ref()?)?, show(row.ours_usage.as_ref()?)?))
}

fn device(row: &Row) -> String {
    let show = |value: Option<u64>| value.map(|value| bytes(value as f64));
    let read = change(row, |usage| show(usage.device_read_bytes));
    let written = change(row, |usage| show(usage.device_written_bytes));
    let absent = if row.ours_usage.is_some() && row.peer_usage.is_some() { "no device" } else { "-" };
    read.zip(written).map_or_else(|| absent.into(), |(read, written)| format!("{read}, {written}"))
}

fn faults(row: &Row) -> String {
    change(row, |usage| Some(grouped(usage.faults_minor + usage.faults_major))).unwrap_or_else(|| "-".into())
}

pub fn head() -> String {
    terminal(["case", "peer", "bywash", "ratio", "quartiles", "goal", "note"].map(String::from))
}

pub fn line(row: &Row) -> String {
    let bench = row.bench.strip_prefix("run/").unwrap_or(&row.bench);
    terminal([
        format!("{bench}: {}{}", row.case, unusual(row)),
        or_dash(row.peer_value, |value| quantity(value, &row.unit)),
        or_dash(row.ours, |value| quantity(value, &row.unit)),
        or_dash(row.ratio, ratio),
        quartiles(row).unwrap_or_else(|| "-".into()),
        goal(row).replace('✓', "ok").replace('✗', "NO").replace('≈', "?"),
        row.note.clone(),
    ])
}

fn terminal([case, peer, ours, ratio, quartiles, goal, note]: [String; 7]) -> String {
    let line = format!("{case:<70} {peer:>14} {ours:>14} {ratio:>6} {quartiles:>12} {goal:>8}  {note}");
    line.trim_end().to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row;

    #[test]
    fn a_line_and_the_tables_have_the_numbers_and_the_notes() {
        let mut report = row::sample();
        let text = line(&report.rows[0]);
        for part in
            ["micro: pread 4 KiB random, tmpfs ", "1.00 M op/s", "1.88-2.12", "1.80 ok", "1,000 calls"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(line(&report.rows[1]).ends_with("not run: <mkfs.xfs> is not installed & so on"));
        let mapped = Row { peer: "kernel with --mmap_read".into(), ..report.rows[0].clone() };
        assert!(line(&mapped).contains(", tmpfs [against --mmap_read]"));
        report.rows[1].note = "not run: a | b".into();
        report.rows.extend(figure::sample());
        let noted = Row { bench: "flow/disk".into(), goal: None, met: None, ..report.rows[0].clone() };
        report.rows.push(noted);
        let text = markdown(&report);
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        for table in text.split("\n\n") {
            let lines: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
            assert!(lines.iter().all(|line| columns(line) == columns(lines[0])), "{table}");
        }
        for part in [
            "Test CPU",
            "| | goal | tmpfs | xfs |\n|---|---:|---:|---:|\n| micro: pread 4 KiB random | 1.80 | 2.00 ✓ | - |",
            "| pread 4 KiB random | tmpfs | kernel | 1.00 M op/s | 2.00 M op/s | **2.00** (1.88-2.12) | 1.80 ✓ | 99.0 % of 1,000 |",
            "not run: a \\| b | 1.80 | - | - | - |",
            "| read and write | 1.00 | 2.00 | 3.00 |\n| splice | 2.00 | 4.00 | 6.00 |",
            "| goal | note |",
            "(1.88-2.12) | - | 99.0 % of 1,000 calls at user level |",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
