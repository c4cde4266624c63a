//! The report as Markdown: a table of all ratios, which the README shows, and the tables of each bench.

use crate::row::Report;
use crate::table::{self, Cell, Table};

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut text = format!("Measured on {} by bywash {}.\n", report.machine.sentence(), report.version);
    text.extend(table::summary(report).as_ref().map(lines));
    for bench in report.benches() {
        text.push_str(&format!("\n### {bench}\n"));
        text.extend(table::of_bench(report, bench).iter().map(lines));
    }
    text
}

fn lines(table: &Table) -> String {
    let caption =
        if table.caption.is_empty() { String::new() } else { format!("\n{}\n", escape(&table.caption)) };
    let name = |(name, _): &(String, bool)| if name.is_empty() { " |".into() } else { format!(" {name} |") };
    let rule = |(_, is_number): &(String, bool)| if *is_number { "---:|" } else { "---|" };
    let line = |cells: &Vec<Cell>| format!("|{}\n", cells.iter().map(cell).collect::<String>());
    let head: String = table.columns.iter().map(name).collect();
    let rule: String = table.columns.iter().map(rule).collect();
    format!("{caption}\n|{head}\n|{rule}\n{}", table.lines.iter().map(line).collect::<String>())
}

fn cell(cell: &Cell) -> String {
    let strong = if cell.strong.is_empty() { String::new() } else { format!("**{}**", escape(&cell.strong)) };
    format!(" {strong}{} |", escape(&cell.text))
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Row;
    use crate::{curve, row};

    #[test]
    fn every_line_of_a_table_has_the_same_columns() {
        let mut report = row::sample();
        report.rows[1].note = "not run: a | b".into();
        report.rows.extend(curve::sample());
        let noted = Row { bench: "flow/disk".into(), goal: None, met: None, ..report.rows[0].clone() };
        report.rows.push(noted);
        let text = render(&report);
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
