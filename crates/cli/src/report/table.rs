//! The report as a table, as `--stats` prints it.
//!
//! Totals first, then the reasons for calls to the kernel, faults, and the files and processes with the most
//! calls. Lines fit into 100 columns: a path that is too long loses its beginning, since its end says more.

use super::{ProgramEnd, Report, words};
use bywash_quantity::{Bytes, Count};
use bywash_session::{Counter, RecordView};
use std::fmt::Write;

/// Number of processes and files in a list; the others share one line.
const NAMED: usize = 12;
/// Width of a path, in columns.
const PATH_COLUMNS: usize = 52;

/// Returns the whole table. Writing to a string cannot fail, so results of `write!` are ignored.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, report);
    if !report.records.is_empty() {
        calls(&mut out, report);
        reasons(&mut out, report);
        events(&mut out, report);
        files(&mut out, report);
        processes(&mut out, report);
    }
    if let Some(log) = &report.log {
        let _ = write!(out, "\n{}", crate::log::run_table(log));
    }
    not_served(&mut out, report);
    out
}

fn head(out: &mut String, report: &Report) {
    let end = match report.end {
        ProgramEnd::Exit(status) => format!("exit status {status}"),
        ProgramEnd::Signal(signal) => format!("killed by signal {signal}"),
    };
    let wall = report.wall.as_secs_f64();
    let _ = writeln!(out, "bywash: {} ran {wall:.2} s, {end}", report.program[0]);
    if let Some(reason) = &report.absent {
        let _ = writeln!(out, "{} did not load the library ({reason})", report.program[0]);
        if report.records.is_empty() {
            let _ = writeln!(out, "nothing was counted");
        }
    }
    if report.overflowed {
        let _ = writeln!(out, "some processes are not counted: there were more than one session holds");
    }
    match report.still_running {
        0 => {}
        1 => {
            let _ = writeln!(out, "1 process still running, counted up to now");
        }
        more => {
            let _ = writeln!(out, "{more} processes still running, counted up to now");
        }
    }
}

/// A row of the first table: name, calls and bytes at user level, calls and bytes by the kernel.
type Kind = (&'static str, Counter, Option<Counter>, Counter, Option<Counter>);

const KINDS: [Kind; 3] = [
    (
        "reads",
        Counter::UserReads,
        Some(Counter::UserReadBytes),
        Counter::KernelReads,
        Some(Counter::KernelReadBytes),
    ),
    (
        "writes",
        Counter::UserWrites,
        Some(Counter::UserWriteBytes),
        Counter::KernelWrites,
        Some(Counter::KernelWriteBytes),
    ),
    ("look-ups", Counter::UserSeeks, None, Counter::KernelSeeks, None),
];

fn calls(out: &mut String, report: &Report) {
    let _ = writeln!(out, "\n{:<10}{:>26}{:>26}{:>10}", "", "at user level", "by the kernel", "share");
    let mut sums = [0; 2];
    for (name, user, user_bytes, kernel, kernel_bytes) in KINDS {
        let [user, kernel] = [user, kernel].map(|counter| report.total(counter));
        let [user_bytes, kernel_bytes] = [user_bytes, kernel_bytes].map(|counter| {
            counter.map_or_else(String::new, |counter| Bytes(report.total(counter)).to_string())
        });
        sums = [sums[0] + user, sums[1] + kernel];
        let _ = writeln!(
            out,
            "{name:<10}{:>15}{user_bytes:>11}{:>15}{kernel_bytes:>11}{:>10}",
            Count(user),
            Count(kernel),
            share(user, kernel)
        );
    }
    let _ = writeln!(
        out,
        "{:<10}{:>15}{:11}{:>15}{:11}{:>10}",
        "all",
        Count(sums[0]),
        "",
        Count(sums[1]),
        "",
        share(sums[0], sums[1])
    );
    let syncs = report.total(Counter::KernelSyncs);
    if syncs > 0 {
        let _ = writeln!(out, "{:<10}{:26}{:>15}", "syncs", "", Count(syncs));
    }
}

/// Returns the share of calls served at user level, in percent.
fn share(user: u64, kernel: u64) -> String {
    match user + kernel {
        0 => "-".into(),
        // Rounds down, so that it is never '100.0 %' beside a call by the kernel.
        all => format!("{:.1} %", (user as f64 / all as f64 * 1000.0).floor() / 10.0),
    }
}

fn reasons(out: &mut String, report: &Report) {
    let mut reasons: Vec<(u64, &str)> = Counter::ALL
        .iter()
        .filter_map(|counter| Some((report.total(*counter), words::reason(*counter)?)))
        .filter(|(times, _)| *times > 0)
        .collect();
    if reasons.is_empty() {
        return;
    }
    reasons.sort_by_key(|(times, _)| std::cmp::Reverse(*times));
    let _ = writeln!(out, "\nwhy the kernel");
    for (times, reason) in reasons {
        let _ = writeln!(out, "{:>15}  {reason}", Count(times));
    }
}

fn events(out: &mut String, report: &Report) {
    let total = |counter| Count(report.total(counter));
    let _ = writeln!(
        out,
        "\nfiles opened {}, given a user-level path {}; windows mapped {}, given up {}; size checks {}\n\
         mapped of files at most {}",
        total(Counter::FilesOpened),
        total(Counter::FilesPromoted),
        total(Counter::WindowsMapped),
        total(Counter::WindowsEvicted),
        total(Counter::SizeChecks),
        Bytes(report.total(Counter::MappedBytesMost))
    );
    if report.total(Counter::FaultsBus) + report.total(Counter::FaultsSegv) > 0 {
        let _ = writeln!(
            out,
            "faults caught: {} in the file (cut short, disk full, I/O error), {} in the program's buffer",
            total(Counter::FaultsBus),
            total(Counter::FaultsSegv)
        );
    }
}

fn files(out: &mut String, report: &Report) {
    let files = report.files();
    if files.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{:<PATH_COLUMNS$}{:>13}{:>10}{:>13}{:>10}", "file", "user", "", "kernel", "");
    for file in files.iter().take(NAMED) {
        let _ = writeln!(
            out,
            "{:<PATH_COLUMNS$}{:>13}{:>10}{:>13}{:>10}",
            tail(&file.path, PATH_COLUMNS - 1),
            Count(file.user_calls),
            Bytes(file.user_bytes),
            Count(file.kernel_calls),
            Bytes(file.kernel_bytes)
        );
    }
    rest(out, files.len(), files[files.len().min(NAMED)..].iter().map(|f| (f.user_calls, f.kernel_calls)));
}

fn processes(out: &mut String, report: &Report) {
    let mut busiest: Vec<(&RecordView, u64, u64)> = report
        .records
        .iter()
        .map(|record| {
            let sum = |pick: fn(&Kind) -> Counter| KINDS.iter().map(|kind| record.counter(pick(kind))).sum();
            (record, sum(|kind| kind.1), sum(|kind| kind.3))
        })
        .collect();
    busiest.sort_by_key(|(_, user, kernel)| std::cmp::Reverse(user + kernel));
    let _ = writeln!(out, "\n{:<PATH_COLUMNS$}{:>13}{:10}{:>13}", "process", "user", "", "kernel");
    for (record, user, kernel) in busiest.iter().take(NAMED) {
        let named = format!("{:<9}{}", record.pid(), tail(record.program(), PATH_COLUMNS - 10));
        let _ = writeln!(out, "{named:<PATH_COLUMNS$}{:>13}{:10}{:>13}", Count(*user), "", Count(*kernel));
    }
    rest(
        out,
        busiest.len(),
        busiest[busiest.len().min(NAMED)..].iter().map(|(_, user, kernel)| (*user, *kernel)),
    );
}

fn not_served(out: &mut String, report: &Report) {
    if report.unserved.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{:>15}  not served (executed without the library)", "times");
    for program in report.unserved.iter().take(NAMED) {
        let path = tail(&program.program, PATH_COLUMNS - 20);
        let _ = writeln!(out, "{:>15}  {path} ({})", Count(program.times as u64), program.reason);
    }
    if let Some(more) = report.unserved.get(NAMED..).filter(|more| !more.is_empty()) {
        let times = more.iter().map(|program| program.times as u64).sum();
        let _ = writeln!(out, "{:>15}  {} more", Count(times), more.len());
    }
}

/// Writes one line for all entries that were not listed.
fn rest(out: &mut String, all: usize, unnamed: impl Iterator<Item = (u64, u64)>) {
    if all > NAMED {
        let (user, kernel) = unnamed.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        let named = format!("{} more", all - NAMED);
        let _ = writeln!(out, "{named:<PATH_COLUMNS$}{:>13}{:10}{:>13}", Count(user), "", Count(kernel));
    }
}

/// Returns the last `columns` characters of `text`, with a mark if it was cut. Replaces control characters,
/// which a file name may contain, since they would change the terminal.
fn tail(text: &str, columns: usize) -> String {
    let clean: Vec<char> = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    match clean.len().checked_sub(columns) {
        None | Some(0) => clean.into_iter().collect(),
        Some(excess) => std::iter::once('…').chain(clean[excess + 1..].iter().copied()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn totals_come_first_then_reasons_most_first() {
        let table = render(&example());
        let line = |name: &str| table.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        let words = |name: &str| line(name).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(table.lines().next().unwrap(), "bywash: p10 ran 1.23 s, exit status 0");
        assert_eq!(words("reads"), "reads 1,020 510 KiB 200 0 B 83.6 %");
        assert_eq!(words("writes"), "writes 0 0 B 0 0 B -");
        assert_eq!(words("/data/shared.db"), "/data/shared.db 1,020 510 KiB 200 0 B");
        assert_eq!(words("10 "), "10 /usr/bin/p10 1,000 100");
        let reasons: Vec<&str> =
            table.lines().skip_while(|l| *l != "why the kernel").skip(1).take(3).collect();
        assert!(reasons[0].ends_with("198  first use of this part of the file"), "{table}");
        assert!(reasons[1].ends_with("2  larger than the threshold"), "{table}");
        assert_eq!(reasons[2], "", "only what is not zero");
        assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
        assert!(!table.contains("faults caught"));
    }

    #[test]
    fn the_share_is_never_rounded_up_to_all() {
        assert_eq!(share(999_999, 1), "99.9 %");
        assert_eq!(share(1, 0), "100.0 %");
        assert_eq!(share(0, 0), "-");
    }

    #[test]
    fn many_processes_are_named_up_to_a_limit() {
        let mut report = example();
        report.records = std::iter::repeat_n(report.records[1].clone(), 40).collect();
        let table = render(&report);
        assert_eq!(table.matches("/usr/bin/p11").count(), NAMED);
        assert!(table.contains("28 more"), "{table}");
    }

    #[test]
    fn programs_without_the_library_are_named_with_the_reason() {
        let mut report = example();
        let table = render(&report);
        assert!(table.contains("              2  /bin/m (statically linked)"), "{table}");
        report.unserved = std::iter::repeat_n(report.unserved[0].clone(), 40).collect();
        assert!(render(&report).contains("             56  28 more"), "{}", render(&report));
        report.unserved.clear();
        assert!(!render(&report).contains("not served"));
    }

    #[test]
    fn long_paths_lose_their_beginning_and_control_characters() {
        assert_eq!(tail("/a/b", 4), "/a/b");
        assert_eq!(tail("/a/b/c", 4), "…b/c");
        assert_eq!(tail("/\u{1b}[2J", 9), "/?[2J");
    }

    #[test]
    fn a_program_without_the_library_and_what_runs_on_are_said() {
        let mut report = example();
        report.records.clear();
        report.absent = Some("statically linked".into());
        report.still_running = 2;
        let table = render(&report);
        assert!(table.contains("p10 did not load the library (statically linked)"), "{table}");
        assert!(table.contains("nothing was counted"), "{table}");
        assert!(table.contains("2 processes still running"), "{table}");
    }
}
