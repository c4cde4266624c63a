//! The tables of the guides are those of the program; help and man pages have every row.

use crate::place::{TestFolder, stdout};
use bywash_device::device_kinds;
use bywash_flow::syntax::{endpoints, movers, stages};
use bywash_nvme::DEVICE_KIND;
use bywash_options::{Row, guide};
use bywash_session::settings::SETTINGS;
use std::fmt::Write;
use std::fs;

const GUIDES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/");

fn movers_table() -> String {
    let mut table = String::from("| mover | | for |\n|---|---|---|\n");
    for row in movers() {
        writeln!(table, "| `{}` | {} | {} |", row.name(), row.sentence(), row.used_for()).unwrap();
    }
    table
}

fn settings_table() -> String {
    let mut table = String::from("| flag | variable | value of the variable | |\n|---|---|---|---|\n");
    for setting in SETTINGS {
        let flag = match (setting.flag, setting.value) {
            ("", _) => String::new(),
            (flag, "") => format!("`--{flag}`"),
            (flag, value) => format!("`--{flag} {value}`"),
        };
        let default = setting.default.map_or(String::new(), |default| format!(" (default {default})"));
        let (variable, value, sentence) = (setting.variable, setting.variable_value, setting.sentence);
        writeln!(table, "| {flag} | `{variable}` | {value} | {sentence}{default} |").unwrap();
    }
    table
}

/// Returns the page with `table` between the marks of `name`.
fn replaced(page: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("the guide lacks {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("the guide lacks {end}"));
    format!("{before}{begin}\n{table}\n{end}{after}")
}

#[test]
fn the_tables_of_the_guides_are_those_of_the_program() {
    for (page, name, table) in [
        ("flow.md", "endpoints", guide("endpoint", endpoints())),
        ("flow.md", "stages", guide("stage", stages())),
        ("flow.md", "movers", movers_table()),
        ("serve.md", "devices", guide("device", devices())),
        ("run.md", "settings", settings_table()),
    ] {
        let path = format!("{GUIDES}{page}");
        let text = fs::read_to_string(&path).unwrap();
        let expected = replaced(&text, name, &table);
        if std::env::var_os("BYWASH_UPDATE_DOCS").is_some() {
            fs::write(&path, expected).unwrap();
            continue;
        }
        let other = text.lines().zip(expected.lines()).find(|(there, here)| there != here);
        assert!(
            text == expected,
            "docs/guide/{page} is stale; to bring it up to date: BYWASH_UPDATE_DOCS=1 cargo test -p bywash-cli --test cli tables; {other:?}"
        );
    }
}

/// Checks that a line of the help and of the man page of `command` begins with each of `names`.
fn check_lines(command: &str, names: impl Iterator<Item = String>) {
    let place = TestFolder::new();
    let help = stdout(&place.bywash(&[command, "--help"]).output().unwrap());
    assert!(place.bywash(&["man", "--out", "man/man1"]).status().unwrap().success());
    let page = place.path().join(format!("man/man1/bywash-{command}.1"));
    let page = fs::read_to_string(page).unwrap().replace("\\-", "-");
    for name in names {
        for (what, text) in [("help", &help), ("page", &page)] {
            let begins = |line: &str| {
                let rest = line.trim_start().strip_prefix(&name);
                rest.is_some_and(|rest| !rest.starts_with('-'))
            };
            assert!(text.lines().any(begins), "the {what} of {command} lacks '{name}'");
        }
    }
}

/// Returns the rows of all kinds of devices.
fn devices() -> impl Iterator<Item = &'static Row> {
    device_kinds().chain([&DEVICE_KIND.row])
}

fn syntaxes(row: &'static Row) -> impl Iterator<Item = String> {
    std::iter::once(row.syntax()).chain(row.options.iter().map(|option| option.syntax()))
}

#[test]
fn help_and_man_pages_have_every_row() {
    let rows = endpoints().chain(stages()).flat_map(syntaxes);
    check_lines("flow", rows.chain(movers().map(|row| row.name().to_owned())));
    check_lines("serve", devices().flat_map(syntaxes));
    check_lines("run", SETTINGS.iter().map(|setting| setting.variable.to_owned()));
    let help = stdout(&TestFolder::new().bywash(&["run", "--help"]).output().unwrap());
    for setting in SETTINGS.iter().filter(|setting| !setting.flag.is_empty()) {
        assert!(help.contains(&format!("--{}", setting.flag)), "{}", setting.flag);
    }
}
