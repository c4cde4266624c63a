//! The guide's tables of endpoints, stages and movers are those of the library.

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_flow::syntax::{OptionRow, Row, Side, endpoints, movers, stages};
use std::fmt::Write;
use std::fs;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/flow.md");

/// Returns a text as it stands in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn option(option: &OptionRow) -> String {
    let side = match option.side() {
        Side::Both => "",
        Side::Source => "source: ",
        Side::Sink => "sink: ",
    };
    let default = option.default().map_or(String::new(), |default| format!(" (default {default})"));
    format!("| | `{}` | {side}{}{default} |\n", cell(&option.syntax()), cell(option.sentence()))
}

fn rows(head: &str, rows: impl Iterator<Item = &'static Row>) -> String {
    let mut table = format!("| {head} | option | |\n|---|---|---|\n");
    let mut before: Option<&Row> = None;
    for row in rows {
        writeln!(table, "| `{}` | | {} |", cell(&row.syntax()), cell(row.sentence())).unwrap();
        let options = before.map_or(row.options(), |before| row.options_beyond(before));
        if let Some(before) = before.filter(|_| options.len() < row.options().len()) {
            writeln!(
                table,
                "| | | the options of `{}:`{} |",
                before.name(),
                if options.is_empty() { "" } else { ", and" }
            )
            .unwrap();
        }
        table.extend(options.iter().map(option));
        before = Some(row);
    }
    table
}

fn tables() -> [(&'static str, String); 3] {
    let mut of_movers = String::from("| mover | | for |\n|---|---|---|\n");
    for row in movers() {
        writeln!(of_movers, "| `{}` | {} | {} |", row.name(), row.sentence(), row.used_for()).unwrap();
    }
    [("endpoints", rows("endpoint", endpoints())), ("stages", rows("stage", stages())), ("movers", of_movers)]
}

/// Returns the guide with `table` between the marks of `name`.
fn replaced(guide: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    let (before, rest) = guide.split_once(&begin).unwrap_or_else(|| panic!("the guide lacks {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("the guide lacks {end}"));
    format!("{before}{begin}\n{table}\n{end}{after}")
}

#[test]
fn the_tables_of_the_guide_are_those_of_the_library() {
    let guide = fs::read_to_string(GUIDE).unwrap();
    let expected = tables().iter().fold(guide.clone(), |guide, (name, table)| replaced(&guide, name, table));
    if std::env::var_os("BYWASH_UPDATE_DOCS").is_some() {
        fs::write(GUIDE, expected).unwrap();
        return;
    }
    let other = guide.lines().zip(expected.lines()).find(|(there, here)| there != here);
    assert!(
        guide == expected,
        "docs/guide/flow.md is stale; to bring it up to date: BYWASH_UPDATE_DOCS=1 cargo test -p bywash-flow --test guide; {other:?}"
    );
}
