//! `bywash bench`: its flags, its output, its exit status.
//!
//! Exit status: 0 when everything chosen was measured or was left out for a reason its row names; 1 when a
//! case failed (a goal that was not reached is no failure: the table shows it); 2 when the command line or a
//! file it names cannot be used; 130 after Ctrl-C or SIGTERM.

use crate::campaign::{self, Audience, Choice, PAIRS, PAIRS_QUICK};
use crate::cases::{self, BENCHES};
use crate::error::Error;
use crate::row::{Report, Row, Verdict};
use crate::say::say;
use crate::{flow, html, interrupt, ipc, markdown, plan, serve, table};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measure, and write down, what is published.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    family: Family,
}

#[derive(Subcommand, Debug)]
enum Family {
    /// Unmodified programs with `bywash run` against the kernel alone
    #[command(after_help = EXAMPLES)]
    Run(RunArgs),
    /// Containers and channels against the other ways between two processes
    #[command(after_help = IPC_EXAMPLES)]
    Ipc(Chosen),
    /// Flows against the programs and hand-written loops that move the same bytes
    #[command(after_help = FLOW_EXAMPLES)]
    Flow(ChosenWithFolder),
    /// The simulator against SimPy, sweeps of the model against NumPy, and what both may take
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(ChosenWithFolder),
    /// Our device server against the kernel's ways to memory and disk, and against qemu-storage-daemon
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ChosenWithFolder),
    /// Another process of `bywash bench flow`
    #[command(hide = true)]
    FlowPeer(FlowPeerArgs),
    /// Another process of `bywash bench ipc`
    #[command(hide = true)]
    IpcPeer(IpcPeerArgs),
    /// Another process of `bywash bench plan`
    #[command(hide = true)]
    PlanPeer(PlanPeerArgs),
    /// Another process of `bywash bench serve`
    #[command(hide = true)]
    ServePeer(ServePeerArgs),
}

const EXAMPLES: &str = "Examples:
  bywash bench run --quick                     does everything work? (under a minute)
  bywash bench run --html report.html          everything (about 35 minutes)
  bywash bench run sqlite micro/tight          one bench, and the cases of another whose name has 'tight'
  bywash bench run rocksdb --place tmpfs       on one file system only

The library is taken from beside the command, or from BYWASH_LIBRARY. Device bytes are those of the whole
device: leave the machine alone while it measures. Exit status: 0 measured, 1 a case failed, 2 wrong usage,
130 interrupted.";

const IPC_EXAMPLES: &str = "Examples:
  bywash bench ipc --quick              does everything work? (some seconds)
  bywash bench ipc --html ipc.html      everything (about five minutes)
  bywash bench ipc '64 KiB, trusted'    one case

Two processes, each on a core of its own; the sender writes every word of a message and the receiver sums every
word. Exit status: 0 measured, 1 a case failed, 2 wrong usage, 130 interrupted.";

const FLOW_EXAMPLES: &str = "Examples:
  bywash bench flow --quick             does everything work? (about two minutes)
  bywash bench flow --html flow.html    everything (about 25 minutes)
  bywash bench flow tcp forward         what has 'tcp' or 'forward' in its name
  bywash bench flow 'disk: 256 MiB'     one size of the copies on disk

Both sides move the same bytes, which are compared once, into files that are not there yet. XFS and raw partitions lie
on loop devices and need root; without it their rows say so. 5 GiB of free memory and 6 GiB on disk for everything.
Exit status: 0 measured, 1 a case failed, 2 wrong usage, 130 interrupted.";

const PLAN_EXAMPLES: &str = "Examples:
  bywash bench plan --quick             does everything work? (some seconds)
  bywash bench plan --html plan.html    everything (about a minute)
  bywash bench plan engine              what has 'engine' in its name

One core. SimPy and NumPy are installed once, by pip, into an environment of the bench's own under DIR; where that cannot
be done their rows say so. Exit status: 0 measured, 1 a case failed, 2 wrong usage, 130 interrupted.";

const SERVE_EXAMPLES: &str = "Examples:
  bywash bench serve --quick              does everything work? (under a minute)
  bywash bench serve --html serve.html    everything (about seven minutes)
  bywash bench serve tmpfs 'a check'      what has 'tmpfs' or 'a check' in its name

Clients and servers are processes, each on a core of its own where there are two. A file system on a loop device over
memory, and a tmpfs, are made for this and need root; without it, and without qemu-storage-daemon, their rows say so.
5 GiB of free memory for everything. Exit status: 0 measured, 1 a case failed, 2 wrong usage, 130 interrupted.";

/// What a bench without programs of its own is told.
#[derive(Args, Debug)]
struct Chosen {
    /// Only what has TEXT in its name
    #[arg(value_name = "TEXT")]
    names: Vec<String>,
    /// Short runs, two pairs: whether it works, not how fast
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: Output,
    /// Rounds in which each side has its turn [default: 5, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: Option<u32>,
}

impl Chosen {
    fn pairs(&self) -> u32 {
        self.pairs.unwrap_or(if self.quick { PAIRS_QUICK } else { PAIRS })
    }
}

#[derive(Args, Debug)]
struct ChosenWithFolder {
    #[command(flatten)]
    chosen: Chosen,
    /// A folder on disk to work in [default: tmp in the target folder, else /var/tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct FlowPeerArgs {
    what: String,
    from: String,
    to: String,
    #[arg(default_value_t = 0)]
    block: usize,
}

#[derive(Args, Debug)]
struct IpcPeerArgs {
    what: String,
    bytes: usize,
    messages: u64,
    service: String,
}

#[derive(Args, Debug)]
struct PlanPeerArgs {
    structure: String,
    requests: u64,
}

#[derive(Args, Debug)]
struct ServePeerArgs {
    what: String,
    job: String,
}

/// Where the rows go.
#[derive(Args, Debug)]
struct Output {
    /// Write the rows as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report with plots that opens without a network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print Markdown tables to stdout at the end (the rows then go to stderr as they come)
    #[arg(long)]
    markdown: bool,
}

#[derive(Args, Debug)]
struct RunArgs {
    /// A bench, or BENCH/TEXT for its cases whose name contains TEXT; everything if there is none
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Small sizes, two pairs, each case on one file system: whether it works, not how fast
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: Output,
    /// List the benches and their cases, and measure nothing
    #[arg(long)]
    list: bool,
    /// Only on file systems whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    place: Option<String>,
    /// Kernel/bywash pairs of each case [default: 5, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: Option<u32>,
    /// A folder on disk to work in, 3 GiB free [default: tmp in the target folder, else /var/tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs the command.
pub fn main(arguments: BenchArgs) -> ExitCode {
    let outcome = match arguments.family {
        Family::Run(arguments) if arguments.list => list(&arguments),
        Family::Run(arguments) => {
            measure(&arguments.output, |screen| campaign::run(&choice(&arguments), screen))
        }
        Family::Ipc(arguments) => measure(&arguments.output, |screen| {
            ipc::measure(&arguments.names, arguments.quick, arguments.pairs(), screen)
        }),
        Family::Flow(ChosenWithFolder { chosen, dir }) => measure(&chosen.output, |screen| {
            let choice = flow::Choice {
                names: chosen.names.clone(),
                quick: chosen.quick,
                pairs: chosen.pairs(),
                folder: dir.clone(),
            };
            flow::measure(&choice, screen)
        }),
        Family::Plan(ChosenWithFolder { chosen, dir }) => measure(&chosen.output, |screen| {
            plan::measure(&chosen.names, chosen.quick, chosen.pairs(), dir.as_deref(), screen)
        }),
        Family::Serve(ChosenWithFolder { chosen, dir }) => measure(&chosen.output, |screen| {
            serve::measure(&chosen.names, chosen.quick, chosen.pairs(), dir.as_deref(), screen)
        }),
        Family::ServePeer(peer) => serve::peer(&peer.what, &peer.job).map(|()| ExitCode::SUCCESS),
        Family::FlowPeer(peer) => {
            flow::peer(&peer.what, &peer.from, &peer.to, peer.block).map(|()| ExitCode::SUCCESS)
        }
        Family::PlanPeer(peer) => plan::peer(&peer.structure, peer.requests).map(|()| ExitCode::SUCCESS),
        Family::IpcPeer(peer) => {
            ipc::peer(&peer.what, peer.bytes, peer.messages, &peer.service).map(|()| ExitCode::SUCCESS)
        }
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            say(format_args!("bywash bench: {error}"));
            ExitCode::from(match error {
                Error::Usage(_) => 2,
                Error::Interrupted => 130,
                _ => 1,
            })
        }
    }
}

fn choice(arguments: &RunArgs) -> Choice {
    Choice {
        names: arguments.names.clone(),
        place: arguments.place.clone(),
        quick: arguments.quick,
        pairs: arguments.pairs,
        folder: arguments.dir.clone(),
    }
}

fn list(arguments: &RunArgs) -> Result<ExitCode, Error> {
    let cases = campaign::chosen(&choice(arguments))?;
    let mut text = String::new();
    for (bench, about) in BENCHES {
        let mut here = cases.iter().filter(|case| case.bench == *bench).peekable();
        if here.peek().is_some() {
            text.push_str(&format!("{bench}: {about}\n"));
        }
        for case in here {
            let goals: Vec<String> = case.metrics.iter().map(goal_of).collect();
            text.push_str(&format!("    {:<60} {}\n", case.name, goals.join(", ")));
        }
    }
    print(&text);
    Ok(ExitCode::SUCCESS)
}

fn goal_of(metric: &cases::Metric) -> String {
    let goal = metric.goal.map_or_else(|| "no goal".into(), |goal| format!(">= {goal:.2}"));
    format!("{} {goal}", metric.name())
}

/// Runs `campaign`, which answers its report and whether it was interrupted.
fn measure(
    output: &Output,
    campaign: impl FnOnce(&mut Screen) -> Result<(Report, bool), Error>,
) -> Result<ExitCode, Error> {
    // A file that cannot be written is found out now, not after half an hour.
    for path in [&output.json, &output.html].into_iter().flatten() {
        fs::File::create(path)
            .map_err(|error| Error::Usage(format!("cannot write {}: {error}", path.display())))?;
    }
    interrupt::listen();
    let mut screen = Screen::new(output.markdown);
    screen.line(&table::head());
    let outcome = campaign(&mut screen);
    screen.bar.finish_and_clear();
    let (report, interrupted) = outcome?;
    save(output, &report)?;
    say(verdict(&report));
    Ok(ExitCode::from(match (interrupted, report.rows.iter().any(|row| row.failed)) {
        (true, _) => {
            say("bywash bench: interrupted; what was measured until then has been written");
            130
        }
        (false, true) => 1,
        (false, false) => 0,
    }))
}

fn save(output: &Output, report: &Report) -> Result<(), Error> {
    if let Some(path) = &output.json {
        let mut json = serde_json::to_string_pretty(report)
            .map_err(|error| Error::io("make JSON for", path, std::io::Error::other(error)))?;
        json.push('\n');
        write(path, &json)?;
    }
    if let Some(path) = &output.html {
        write(path, &html::render(report))?;
    }
    if output.markdown {
        print(&markdown::render(report));
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|error| Error::io("write", path, error))
}

/// A reader that went away (`| head`) is no error.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn verdict(report: &Report) -> String {
    let count = |verdict| report.rows.iter().filter(|row| row.verdict() == Some(verdict)).count();
    let undecided = count(Verdict::Undecided);
    let failed = report.rows.iter().filter(|row| row.failed).count();
    let absent = report.rows.iter().filter(|row| row.ratio.is_none() && !row.failed).count();
    format!(
        "{} rows: {} reached their goal, {} did not{}{}{}",
        report.rows.len(),
        count(Verdict::Reached),
        count(Verdict::Missed),
        if failed > 0 { format!(" ({failed} of them failed)") } else { String::new() },
        if undecided > 0 { format!(", {undecided} are within their spread of it") } else { String::new() },
        if absent > 0 { format!(", {absent} could not be run here") } else { String::new() },
    )
}

/// The progress bar on a terminal's stderr, the rows above it.
struct Screen {
    bar: ProgressBar,
    to_stderr: bool,
}

impl Screen {
    fn new(to_stderr: bool) -> Screen {
        // Hidden by itself when stderr is no terminal.
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:24} {percent:>3} %  {elapsed} (left: {eta})  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Screen { bar, to_stderr }
    }

    fn line(&self, text: &str) {
        self.bar.suspend(|| if self.to_stderr { say(text) } else { print(&format!("{text}\n")) });
    }
}

impl Audience for Screen {
    fn progress(&mut self, done: u64, all: u64, what: &str) {
        self.bar.set_length(all);
        self.bar.set_position(done);
        self.bar.set_message(what.to_owned());
    }

    fn row(&mut self, row: &Row) {
        self.line(&table::line(row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Whole {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parsed(words: &[&str]) -> RunArgs {
        match Whole::try_parse_from(words).unwrap().bench.family {
            Family::Run(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_and_names() {
        let arguments = parsed(&["bench", "run", "sqlite", "--quick", "--json", "x.json", "micro/tight"]);
        assert_eq!(arguments.names, ["sqlite", "micro/tight"]);
        assert!(arguments.quick && !arguments.list && arguments.output.json == Some("x.json".into()));
        assert!(Whole::try_parse_from(["bench", "run", "--pairs", "0"]).is_err());
        assert!(Whole::try_parse_from(["bench"]).is_err());
    }

    #[test]
    fn the_verdict_counts() {
        assert_eq!(
            verdict(&crate::row::sample()),
            "2 rows: 1 reached their goal, 0 did not, 1 could not be run here"
        );
    }

    #[test]
    fn a_report_that_cannot_be_written_is_refused_before_anything_runs() {
        let arguments = parsed(&["bench", "run", "--json", "/no/such/folder/x.json"]);
        let error = measure(&arguments.output, |_| unreachable!()).unwrap_err();
        assert!(matches!(&error, Error::Usage(message) if message.contains("/no/such/folder")), "{error}");
    }
}
