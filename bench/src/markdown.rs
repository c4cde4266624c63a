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
    let head: String = table.columns.iter().map(name).collect();
    let rule: String = table.columns.iter().map(rule).collect();
    let lines: String = table
        .lines
        .iter()
        .map(|cells| format!("|{}\n", cells.iter().map(cell).collect::<String>()))
        .collect();
    format!("{caption}\n|{head}\n|{rule}\n{lines}")
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
    use crate::{curve, row};

    #[test]
    fn every_line_of_a_table_has_the_same_columns() {
        let mut report = row::sample();
        report.rows[1].note = "not run: a | b".into();
        let text = render(&report);
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        let (summary, text) = text.split_once("### ").unwrap();
        let lines: Vec<&str> = summary.lines().filter(|line| line.starts_with('|')).collect();
        assert!(lines.iter().all(|line| columns(line) == columns(lines[0])), "{summary}");
        assert!(
            summary.contains("| | goal | tmpfs | xfs |\n|---|---:|---:|---:|") && summary.contains("2.00 ✓"),
            "{summary}"
        );
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
