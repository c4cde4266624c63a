//! The doctor's findings as a table.

use super::Findings;
use super::costs::Copying;
use bywash_quantity::Bytes;
use std::fmt::Write;
use std::path::Path;

/// Width of a line, of a finding's name and of its state, in columns.
const COLUMNS: usize = 100;
const NAME_COLUMNS: usize = 27;
const STATE_COLUMNS: usize = 12;

/// Returns the whole table. Writing to a string cannot fail, so results of `write!` are ignored.
pub fn render(findings: &Findings) -> String {
    let mut out = String::new();
    let machine = &findings.machine;
    let _ = writeln!(
        out,
        "bywash {} on Linux {} ({}): {} {}, {} of memory, pages of {}\n",
        findings.bywash,
        machine.kernel,
        machine.architecture,
        machine.cores,
        if machine.cores == 1 { "core" } else { "cores" },
        Bytes(machine.memory_bytes),
        Bytes(machine.page_bytes)
    );
    paths(&mut out, findings);
    costs(&mut out, findings);
    copying(&mut out, &findings.copying);
    threshold(&mut out, findings.threshold_bytes);
    out
}

fn paths(out: &mut String, findings: &Findings) {
    for finding in &findings.paths {
        let (state, text) = match &finding.remedy {
            None => ("usable", finding.detail.clone()),
            Some(remedy) => ("not usable", format!("{}; remedy: {remedy}", finding.detail)),
        };
        let mut lines = wrap(&text, COLUMNS - NAME_COLUMNS - STATE_COLUMNS).into_iter();
        let first = lines.next().unwrap_or_default();
        let _ = writeln!(out, "{:<NAME_COLUMNS$}{state:<STATE_COLUMNS$}{first}", finding.name);
        for line in lines {
            let _ = writeln!(out, "{:1$}{line}", "", NAME_COLUMNS + STATE_COLUMNS);
        }
    }
}

/// Wraps `text` into lines of at most `columns`; a longer word gets a line of its own.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

fn costs(out: &mut String, findings: &Findings) {
    let _ = writeln!(out);
    for cost in &findings.costs {
        let _ = match (cost.ns, &cost.why_not) {
            (Some(ns), _) => writeln!(out, "{:<38}{:>12}", cost.what, time(ns)),
            (None, reason) => {
                writeln!(out, "{:<38}{:>12}  {}", cost.what, "-", reason.as_deref().unwrap_or_default())
            }
        };
    }
}

fn copying(out: &mut String, rows: &[Copying]) {
    let mut place: Option<&Path> = None;
    for row in rows {
        if place != Some(&row.place) {
            place = Some(&row.place);
            let title = format!("reads in {} ({}), from memory", row.place.display(), row.file_system);
            let _ = writeln!(out, "\n{title:<38}{:>12}{:>12}{:>8}", "pread", "mapped", "ratio");
        }
        let _ = writeln!(
            out,
            "{:>10}{:28}{:>12}{:>12}{:>8.1}",
            Bytes(row.bytes as u64),
            "",
            time(row.pread_ns),
            time(row.mapped_ns),
            row.pread_ns / row.mapped_ns
        );
    }
}

fn threshold(out: &mut String, bytes: Option<u64>) {
    let _ = match bytes {
        Some(bytes) => writeln!(
            out,
            "\nrecommended: --threshold {} (larger requests win too little from a mapping)",
            flag(bytes)
        ),
        None => {
            writeln!(out, "\nno --threshold recommended: no copy from a mapping was clearly cheaper here")
        }
    };
}

/// Returns a size in the form that `--threshold` takes.
fn flag(bytes: u64) -> String {
    match bytes {
        bytes if bytes % (1 << 20) == 0 => format!("{}M", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{}K", bytes >> 10),
        bytes => bytes.to_string(),
    }
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 999.5 => format!("{ns:.0} ns"),
        ns if ns < 99_950.0 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.0} us", ns / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recommended_flag_is_read_back() {
        for bytes in [512, 4096, 65_536, 1 << 20] {
            assert_eq!(bywash_quantity::size(&flag(bytes)), Ok(bytes));
        }
    }

    #[test]
    fn long_findings_are_wrapped_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("unbreakable", 3), ["unbreakable"]);
    }

    #[test]
    fn times_have_three_digits_or_so() {
        for (ns, text) in [(133.4, "133 ns"), (999.6, "1.0 us"), (27_444.0, "27.4 us"), (1e6, "1000 us")] {
            assert_eq!(time(ns), text);
        }
    }
}
