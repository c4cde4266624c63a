//! Texts that are made from rows: help of a command, and tables of a guide.

use crate::table::{OptionRow, Row};
use std::fmt::Write;

/// Greatest width of a line of a help text, in columns.
const WIDTH: usize = 100;
/// Column at which the sentences of a help text begin.
const INDENT: usize = 30;

/// Returns the help text of the rows: a line or more for each kind and for each of its options. Options that
/// a row shares with the row before it are named and not repeated.
pub fn help(rows: impl IntoIterator<Item = &'static Row>) -> String {
    let mut text = String::new();
    for Entry { row, shared, options } in entries(rows) {
        text += &help_entry(&row.syntax(), row.sentence);
        if let Some(other) = shared {
            text += &help_entry(&format!("    options of {}:", other.name), "");
        }
        for option in options {
            text += &help_entry(&format!("    {}", option.syntax()), &option.description());
        }
    }
    text
}

/// Returns the lines of a help text for one term: its sentence is wrapped, and all lines of the sentence begin
/// at the same column.
pub fn help_entry(term: &str, sentence: &str) -> String {
    let mut text = String::new();
    let mut line = format!("  {term}");
    let mut is_first = true;
    for word in sentence.split(' ').filter(|word| !word.is_empty()) {
        let begins = is_first && line.len() + 2 <= INDENT;
        if begins {
            line = format!("{line:INDENT$}{word}");
        } else if is_first || line.len() + 1 + word.len() > WIDTH {
            text += &line;
            text.push('\n');
            line = format!("{:INDENT$}{word}", "");
        } else {
            line += " ";
            line += word;
        }
        is_first = false;
    }
    text += &line;
    text.push('\n');
    text
}

/// Returns the table of a guide, in Markdown, that has these rows under the heading `head`.
pub fn guide(head: &str, rows: impl IntoIterator<Item = &'static Row>) -> String {
    let mut table = format!("| {head} | option | |\n|---|---|---|\n");
    // Writing to a text cannot fail.
    for Entry { row, shared, options } in entries(rows) {
        let _ = writeln!(table, "| `{}` | | {} |", cell(&row.syntax()), cell(row.sentence));
        if let Some(other) = shared {
            let end = if options.is_empty() { "" } else { ", and" };
            let _ = writeln!(table, "| | | the options of `{}:`{end} |", other.name);
        }
        for option in options {
            let _ = writeln!(table, "| | `{}` | {} |", cell(&option.syntax()), cell(&option.description()));
        }
    }
    table
}

/// Returns a text as it stands in a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// A row, and its options without those that it shares with the row before it.
struct Entry {
    row: &'static Row,
    shared: Option<&'static Row>,
    options: &'static [OptionRow],
}

fn entries(rows: impl IntoIterator<Item = &'static Row>) -> impl Iterator<Item = Entry> {
    let mut before: Option<&'static Row> = None;
    rows.into_iter().map(move |row| {
        let options = before.map_or(row.options, |before| row.options_beyond(before));
        let shared = before.filter(|_| options.len() < row.options.len());
        before = Some(row);
        Entry { row, shared, options }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Value;

    const OFFSET: OptionRow = OptionRow::new("offset", Value::Size, "first byte").or("0");
    static ROWS: [Row; 2] = [
        Row { name: "a", address: "PATH", sentence: "one", options: &[OFFSET] },
        Row { name: "b", address: "", sentence: "two", options: &[OFFSET, OptionRow::flag("late", "x|y")] },
    ];

    #[test]
    fn rows_become_help_and_tables() {
        let help = help(&ROWS);
        assert!(help.contains("  a:PATH                      one\n"), "{help}");
        assert!(help.contains("      offset=SIZE             first byte (default 0)\n"), "{help}");
        assert!(help.contains("      options of a:\n") && help.matches("offset").count() == 1, "{help}");
        let table = guide("thing", &ROWS);
        assert!(table.starts_with("| thing | option | |\n|---|---|---|\n| `a:PATH` | | one |\n"), "{table}");
        assert!(table.ends_with("| | | the options of `a:`, and |\n| | `late` | x\\|y |\n"), "{table}");
    }

    #[test]
    fn long_sentences_are_wrapped() {
        let text = help_entry("x", &"word ".repeat(20)) + &help_entry(&"y".repeat(INDENT), "next line");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].starts_with("  x  ") && lines.iter().all(|line| line.len() <= WIDTH), "{text}");
        assert_eq!(lines[3], format!("{:INDENT$}next line", ""));
    }
}
