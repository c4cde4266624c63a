//! `bywash bench`: its flags, its output, its exit status.
//!
//! Exit status: 0 when everything chosen was measured or was left out for a reason its row names; 1 when a
//! case failed (a goal that was not reached is no failure: the table shows it); 2 when the command line or a
//! file it names cannot be used; 130 after Ctrl-C or SIGTERM.

use crate::campaign::{Audience, Choice};
use crate::error::{Attempt, Error};
use crate::row::{Report, Row, Verdict};
use crate::say::say;
use crate::{display, flow, html, interrupt, ipc, log, nvme, plan, run, serve, table};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Rounds of a full run, and of a quick one, which is about whether everything works.
const ROUNDS: u32 = 5;
const ROUNDS_QUICK: u32 = 2;

/// Measure, and write down, what is published.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Bench to run.
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand, Debug)]
enum Bench {
    /// Unmodified programs with `bywash run` against the kernel alone
    #[command(after_help = "Examples:
  bywash bench run --quick                     does everything work? (under a minute)
  bywash bench run --html report.html          everything (about 35 minutes)
  bywash bench run sqlite micro/tight          one bench, and the cases of another whose name has 'tight'
  bywash bench run rocksdb --place tmpfs       on one file system only

The library lies beside the command, or BYWASH_LIBRARY names it. Device bytes are those of the whole
device, so use the machine for nothing else meanwhile. Exit status: 0 measured, 1 a case failed, 2 wrong usage,
130 interrupted.")]
    Run(RunArgs),
    /// Programs that commit, with `bywash run --log` against the kernel alone
    #[command(after_help = "Examples:
  bywash bench log --quick              does everything work? (under a minute)
  bywash bench log --html log.html      everything (about ten minutes)
  bywash bench log sqlite 'page'        cases with 'sqlite' or 'page' in their names
  bywash bench log servers disk         database servers, and all cases on the disk

Data and log lie on the disk, or both in memory, for which root is needed. The bound is libeatmydata, with which
nothing is durable. 2 GiB of free memory, 2 GiB on disk. Exit status: 0 measured, 1 a case failed, 2 wrong usage,
130 interrupted.")]
    Log(FolderArgs),
    /// Containers and channels against other transports between two processes
    #[command(after_help = "Examples:
  bywash bench ipc --quick              does everything work? (some seconds)
  bywash bench ipc --html ipc.html      everything (about five minutes)
  bywash bench ipc '64 KiB, trusted'    one case

Two processes, each on a core of its own; the sender writes every word of a message and the receiver sums every
word. Exit status: 0 measured, 1 a case failed, 2 wrong usage, 130 interrupted.")]
    Ipc(CommonArgs),
    /// Flows against the programs and hand-written loops that move the same bytes
    #[command(after_help = "Examples:
  bywash bench flow --quick             does everything work? (about two minutes)
  bywash bench flow --html flow.html    everything (about 25 minutes)
  bywash bench flow tcp forward         cases with 'tcp' or 'forward' in their names
  bywash bench flow 'disk: 256 MiB'     one size of the copies on disk

Both sides move the same bytes, which are compared once, into files that are not there yet. XFS and raw partitions lie
on loop devices and need root; without it their rows say so. 5 GiB of free memory and 6 GiB on disk for everything.
Exit status: 0 measured, 1 a case failed, 2 wrong usage, 130 interrupted.")]
    Flow(FolderArgs),
    /// The simulator against SimPy, the model against NumPy, programs in the machine, and predictions against what comes
    #[command(after_help = "Examples:
  bywash bench plan --quick             does everything work? (a minute)
  bywash bench plan engine server model machine    all but predictions (a few minutes)
  bywash bench plan predict/sort        a prediction (minutes for each)
  bywash bench plan --html plan.html    everything (an hour or two)

Each prediction runs a program 7 to 28 times in each way; an idle machine is needed. Everything else runs on one core. pip installs SimPy and NumPy once, into an environment of the bench's own under DIR; if it
cannot, their rows say so. Exit status: 0 measured, 1 a case failed, 2 wrong usage, 130 interrupted.")]
    Plan(FolderArgs),
    /// Our device server against the kernel's paths to memory and disk, and against qemu-storage-daemon
    #[command(after_help = "Examples:
  bywash bench serve --quick              does everything work? (under a minute)
  bywash bench serve --html serve.html    everything (about seven minutes)
  bywash bench serve tmpfs 'a check'      cases with 'tmpfs' or 'a check' in their names

Clients and servers are processes, each on a core of its own where there are two. A file system on a loop device over
memory, and a tmpfs, are made for this and need root; without it, and without qemu-storage-daemon, their rows say so.
5 GiB of free memory for everything. Exit status: 0 measured, 1 a case failed, 2 wrong usage, 130 interrupted.")]
    Serve(FolderArgs),
    /// Instructions of a read by our NVMe driver, and by the kernel's paths, counted in a virtual machine
    #[command(after_help = "Examples:
  bywash bench nvme --quick               does everything work? (under a minute)
  bywash bench nvme --markdown            everything (a few minutes)

QEMU emulates a machine with one processor and two NVMe disks (Debian: qemu-system-x86, busybox-static), and a plugin counts
what the processor executes; the C compiler makes the plugin (gcc). The kernel is Debian's, which apt-get downloads once. The
numbers are instructions, not time, and the same on every host. Exit status: 0 measured, 1 a case failed, 2 wrong usage, 130
interrupted.")]
    Nvme(FolderArgs),
    /// Frames that a display server maps, against frames that are copied
    #[command(after_help = "Examples:
  bywash bench display --quick            does everything work? (half a minute)
  bywash bench display --markdown         everything (about eight minutes)
  bywash bench display 'Xvfb), 720p'      one size on one system
  bywash bench display stream             streams of 60 frames a second

Xvfb and Weston show the frames without a screen (Debian: xvfb, weston). The figures are the program's CPU time without the
drawing, the display server's CPU time, and frames and MB a second, which a compositor limits to those of its screen. SDL 2 and
mpv are compared if they are installed (libsdl2-2.0-0 and gcc; mpv). Exit status: 0 measured, 1 a case failed, 2 wrong usage, 130
interrupted.")]
    Display(CommonArgs),
    /// Another process of a bench
    #[command(hide = true)]
    Peer {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

#[derive(Args, Debug)]
struct CommonArgs {
    /// Cases to measure: those with TEXT in their names; BENCH/TEXT: those of BENCH with TEXT in their names
    #[arg(value_name = "TEXT")]
    names: Vec<String>,
    /// Short runs in two rounds, which show whether everything works; the figures mean little
    #[arg(long)]
    quick: bool,
    /// Write the rows as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report with plots that opens without a network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print Markdown tables to stdout at the end (the rows then go to stderr as they come)
    #[arg(long)]
    markdown: bool,
    /// Number of rounds, in each of which every side runs once [default: 5, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: Option<u32>,
}

#[derive(Args, Debug)]
struct FolderArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Folder on a disk for temporary files [default: tmp in the target folder, else /var/tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct RunArgs {
    #[command(flatten)]
    with_folder: FolderArgs,
    /// List the benches and their cases, and measure nothing
    #[arg(long)]
    list: bool,
    /// Measure only on file systems whose name contains TEXT
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    place: String,
}

impl CommonArgs {
    fn choice(&self, folder: Option<PathBuf>, place: String) -> Choice {
        let rounds = self.pairs.unwrap_or(if self.quick { ROUNDS_QUICK } else { ROUNDS });
        Choice { names: self.names.clone(), quick: self.quick, rounds, folder, place }
    }
}

/// Function that measures what was chosen of a bench; it returns the report, and whether it was interrupted.
type Measure = fn(&Choice, &mut dyn Audience) -> Result<(Report, bool), Error>;

/// Runs the command.
pub fn main(arguments: BenchArgs) -> ExitCode {
    let with_folder = |args: FolderArgs, run| measure(&args.common, args.dir, String::new(), run);
    let outcome = match arguments.bench {
        Bench::Run(RunArgs { with_folder: FolderArgs { common, .. }, list: true, place }) => {
            run::list(&common.choice(None, place)).map(|text| {
                print(&text);
                ExitCode::SUCCESS
            })
        }
        Bench::Run(RunArgs { with_folder: FolderArgs { common, dir }, place, .. }) => {
            measure(&common, dir, place, run::measure)
        }
        Bench::Log(args) => with_folder(args, log::measure),
        Bench::Ipc(common) => measure(&common, None, String::new(), ipc::measure),
        Bench::Display(common) => measure(&common, None, String::new(), display::measure),
        Bench::Flow(args) => with_folder(args, flow::measure),
        Bench::Plan(args) => with_folder(args, plan::measure),
        Bench::Serve(args) => with_folder(args, serve::measure),
        Bench::Nvme(args) => with_folder(args, nvme::measure),
        Bench::Peer { words } => {
            peer(&words.iter().map(String::as_str).collect::<Vec<_>>()).map(|()| ExitCode::SUCCESS)
        }
    };
    outcome.unwrap_or_else(|error| {
        say(format_args!("bywash bench: {error}"));
        ExitCode::from(match error {
            Error::Usage(_) => 2,
            Error::Interrupted => 130,
            _ => 1,
        })
    })
}

/// Another process of a bench, as [`crate::child::peer`] starts it.
fn peer(words: &[&str]) -> Result<(), Error> {
    let number = |word: &str| {
        word.parse().map_err(|_| Error::Usage(format!("'{word}' stands where a number has to be")))
    };
    match words {
        ["ipc", words @ ..] => ipc::peer(words),
        ["flow", what, from, to, block] => flow::peer(what, from, to, number(block)? as usize),
        ["plan", structure, requests] => plan::peer(structure, number(requests)?),
        ["serve", job] => serve::peer(job),
        ["nvme", words @ ..] => nvme::peer(words),
        _ => Err(Error::Usage(format!("'{}' is no process of a bench", words.join(" ")))),
    }
}

fn measure(
    common: &CommonArgs,
    folder: Option<PathBuf>,
    place: String,
    measure: Measure,
) -> Result<ExitCode, Error> {
    // A file that cannot be written is found out now, not after half an hour.
    for path in [&common.json, &common.html].into_iter().flatten() {
        fs::File::create(path).doing("write", path).map_err(|error| Error::Usage(error.to_string()))?;
    }
    interrupt::listen();
    // Hidden by itself when stderr is no terminal.
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:24} {percent:>3} %  {elapsed} (left: {eta})  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut screen = Screen { bar, to_stderr: common.markdown };
    screen.line(&table::head());
    let outcome = measure(&common.choice(folder, place), &mut screen);
    screen.bar.finish_and_clear();
    let (report, interrupted) = outcome?;
    let json = serde_json::to_string_pretty(&report).map(|json| format!("{json}\n"));
    let json = json.map_err(|error| Error::failed("the report", format!("cannot be JSON: {error}")))?;
    for (path, text) in [(&common.json, json), (&common.html, html::render(&report))] {
        if let Some(path) = path {
            fs::write(path, text).doing("write", path)?;
        }
    }
    if common.markdown {
        print(&table::markdown(&report));
    }
    // Again, since it may have gone by hundreds of lines above.
    report.rows.iter().filter(|row| row.failed).for_each(|row| say(table::line(row)));
    say(verdict(&report));
    if interrupted {
        say("bywash bench: interrupted; what was measured until then has been written");
        return Ok(ExitCode::from(130));
    }
    Ok(ExitCode::from(u8::from(report.rows.iter().any(|row| row.failed))))
}

/// Prints to standard output. A reader that went away (`| head`) is no error.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn verdict(report: &Report) -> String {
    let count = |is: &dyn Fn(&Row) -> bool| report.rows.iter().filter(|row| is(row)).count();
    let of = |verdict| count(&|row| row.verdict() == Some(verdict));
    let some = |number: usize, text: &str| {
        if number > 0 { text.replace('#', &number.to_string()) } else { String::new() }
    };
    format!(
        "{} rows: {} reached their goal, {} did not{}{}{}",
        report.rows.len(),
        of(Verdict::Reached),
        of(Verdict::Missed),
        some(count(&|row| row.failed), " (# of them failed)"),
        some(of(Verdict::Undecided), ", # are within their spread of it"),
        some(count(&|row| row.ratio.is_none() && !row.failed), ", # could not be run here"),
    )
}

/// The progress bar on a terminal's stderr, the rows above it.
struct Screen {
    bar: ProgressBar,
    to_stderr: bool,
}

impl Screen {
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

    #[test]
    fn words_that_are_wrong_are_refused_before_anything_runs() {
        let parsed =
            Whole::try_parse_from(["bench", "ipc", "a", "--quick", "--json", "/no/such/x.json", "b/c"]);
        let Bench::Ipc(common) = parsed.unwrap().bench.bench else { panic!("another bench") };
        assert_eq!((common.choice(None, String::new()).rounds, common.names.len()), (ROUNDS_QUICK, 2));
        let error = measure(&common, None, String::new(), |_, _| unreachable!()).unwrap_err();
        assert!(matches!(&error, Error::Usage(message) if message.contains("/no/such")), "{error}");
        for wrong in [&["bench", "run", "--pairs", "0"][..], &["bench"], &["bench", "ipc", "--dir", "/tmp"]] {
            assert!(Whole::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
        let many = &["flow", "x", "y", "z", "many"];
        for words in [&["run"][..], many, &["flow", "nobody", "y", "z", "0"], &["ipc", "x"]] {
            assert!(matches!(peer(words), Err(Error::Usage(_))), "{words:?}");
        }
        let text = "2 rows: 1 reached their goal, 0 did not, 1 could not be run here";
        assert_eq!(verdict(&crate::row::sample()), text);
    }
}
