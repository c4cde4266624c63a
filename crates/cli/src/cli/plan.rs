//! The command line of `bywash plan`.

mod execute;

pub use execute::ExecuteArgs;

use bywash_model::Architecture;
use bywash_sim::Stop;
use clap::{ArgGroup, Args, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Numbers of the figures that can be drawn: curves of the model, then bars of the simulator.
pub const FIGURES: RangeInclusive<u32> = 2..=9;

/// `bywash plan`.
#[derive(Args)]
pub struct PlanArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: PlanCommand,
}

impl PlanArgs {
    /// Returns true if the command starts a program that inherits the state of this process.
    pub fn starts_a_program(&self) -> bool {
        matches!(self.command, PlanCommand::Record(_))
    }
}

/// Subcommands of `bywash plan`.
#[derive(Subcommand)]
pub enum PlanCommand {
    /// Draw the paper's figures as SVG, with their numbers as CSV
    Figure(FigureArgs),
    /// Compute the greatest throughput of a described machine, its bottleneck and its response times
    #[command(after_help = MODEL_NOTES)]
    Model(ModelArgs),
    /// Simulate a described machine: throughput, latency, utilisation of each resource
    #[command(after_help = SIMULATE_NOTES)]
    Simulate(SimulateArgs),
    /// Simulate several descriptions, or the four structures of one, side by side
    Compare(CompareArgs),
    /// Find the most load, or the fewest parts, with a response time under a limit
    ///
    /// Halves intervals over simulations until the answer and a neighbour that does not hold the limit are known
    /// with 95 % confidence. Prints all trials, and the resource that limits the answer.
    #[command(after_help = SIZE_NOTES)]
    Size(SizeArgs),
    /// Run a program for RISC-V Linux inside a described machine
    ///
    /// The program runs unmodified, instruction by instruction, on processors with caches; a simulated operating system
    /// serves its calls, and the machine's memory, interconnect, disks and interfaces take their time. The same run
    /// gives the same numbers on every computer.
    #[command(after_help = execute::NOTES)]
    Execute(Box<ExecuteArgs>),
    /// List the predefined descriptions, or print one
    Presets(PresetsArgs),
    /// Compute the papers' figures and compare them with the published ones
    Check(CheckArgs),
    /// Measure this machine and write its description
    ///
    /// Measures system calls, copies, messages between threads, the page cache, the device under --dir and TCP
    /// over loopback, in less than 20 seconds. The description is TOML; a comment on each number states what
    /// was measured. Run it on an idle machine.
    Calibrate(CalibrateArgs),
    /// Predict simple runs on this machine, make them, and report the error of the prediction
    ///
    /// The runs copy a file, read blocks of a file through the page cache and past it, and serve files over
    /// loopback. The example servers bywash-web and bywash-video are run, too, if they are beside this command. The
    /// predictions follow from FILE alone, or from a calibration in each turn of the runs, so that a machine which changes
    /// is described as it is then; nothing is fitted to the runs. What a server computes by itself is measured in the turns
    /// before.
    Validate(ValidateArgs),
    /// Convert a recording of strace or blkparse into a trace
    ///
    /// A trace is CSV with a line for each call: time, process, call (read, write, sync, receive, send), file,
    /// offset, length. Standard error reports the kind of the recording, and the lines that were left out and
    /// why.
    #[command(after_help = TRACE_NOTES)]
    Trace(TraceArgs),
    /// Run a program and record its calls as a trace, with little disturbance
    ///
    /// A preloaded library notes start and end of each call that bywash run would intercept, and of those in which
    /// a thread waits, in this program and in those that it starts. The cost of a note is measured first and
    /// subtracted. The trace is that of bywash plan trace with two more columns: the end of each call, and the time
    /// that the thread computed before it. Exits as the program exits.
    #[command(after_help = RECORD_NOTES)]
    Record(RecordArgs),
    /// Predict how much faster a program would be under bywash run
    ///
    /// Runs the program several times, with a recorder and without, makes its calls on files again with the library of
    /// bywash run and without, and computes the time that the program would take. The program must do the same each
    /// time; --before restores what it changes. Refuses on a machine that does other work.
    #[command(after_help = PREDICT_NOTES)]
    Predict(PredictArgs),
    /// Make the calls of a script again, and print their times
    #[command(hide = true)]
    Repeat(RepeatArgs),
    /// Serve the planner as a web page: sliders, curves, machines side by side, simulations
    ///
    /// The page computes in the browser. Programs of this machine can connect, other machines cannot. Ctrl-C
    /// ends the command.
    #[command(after_help = WEB_NOTES)]
    Web(WebArgs),
}

/// `bywash plan figure`.
#[derive(Args)]
pub struct FigureArgs {
    /// Number of the figure: 2 to 9, or all
    #[arg(value_name = "NUMBER", value_parser = figure_choice)]
    pub number: FigureChoice,

    /// Folder to write to; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
}

/// Figures that `bywash plan figure` draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureChoice {
    /// The figure with this number.
    One(u32),
    /// All figures.
    All,
}

fn figure_choice(text: &str) -> Result<FigureChoice, String> {
    let numbers = FIGURES;
    match text {
        "all" => Ok(FigureChoice::All),
        _ => {
            let number = text.parse().ok().filter(|number| numbers.contains(number));
            number
                .map(FigureChoice::One)
                .ok_or_else(|| format!("give a number from {} to {}, or all", numbers.start(), numbers.end()))
        }
    }
}

/// `bywash plan model`.
#[derive(Args)]
pub struct ModelArgs {
    /// Description in TOML (in JSON if its name ends in .json), or preset:NAME for a predefined one
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Change a number of the description; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    #[command(flatten)]
    pub sweep: SweepArgs,

    /// Print JSON, in bytes and seconds
    #[arg(long)]
    pub json: bool,
}

/// Options of sweeps.
#[derive(Args)]
pub struct SweepArgs {
    /// Vary a number; may be repeated, and the last one varies fastest
    #[arg(long = "sweep", value_name = "KEY=FROM:TO:STEP")]
    pub axes: Vec<String>,

    /// Print a sweep as CSV, in bytes and seconds
    #[arg(long, requires = "axes", conflicts_with = "json")]
    pub csv: bool,

    /// Draw the response times of a sweep over one number, as SVG
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath, requires = "axes")]
    pub plot: Option<PathBuf>,
}

/// `bywash plan size`.
#[derive(Args)]
#[command(group = ArgGroup::new("quantity").required(true), group = ArgGroup::new("statistic").required(true))]
pub struct SizeArgs {
    /// Description in TOML (in JSON if its name ends in .json), or preset:NAME for a predefined one
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Find the greatest number of requests a second; the description's own load is not used
    #[arg(long, value_name = "WHAT", value_enum, group = "quantity")]
    pub most: Option<Greatest>,

    /// Find the least number of these parts for the description's load
    #[arg(long, value_name = "PARTS", value_enum, group = "quantity")]
    pub fewest: Option<Parts>,

    /// Limit of the mean response time
    #[arg(long, value_name = "TIME", value_parser = limit, group = "statistic")]
    pub mean: Option<f64>,

    /// Limit of the median
    #[arg(long, value_name = "TIME", value_parser = limit, group = "statistic")]
    pub p50: Option<f64>,

    /// Limit that 90 % of the response times hold
    #[arg(long, value_name = "TIME", value_parser = limit, group = "statistic")]
    pub p90: Option<f64>,

    /// Limit that 99 % of the response times hold
    #[arg(long, value_name = "TIME", value_parser = limit, group = "statistic")]
    pub p99: Option<f64>,

    /// Limit that 99.9 % of the response times hold
    #[arg(long, value_name = "TIME", value_parser = limit, group = "statistic")]
    pub p999: Option<f64>,

    /// Structure to simulate instead of the description's: conventional, user-level, active or direct
    #[arg(long = "as", value_name = "ARCHITECTURE", value_parser = architecture)]
    pub architecture: Option<Architecture>,

    /// Change a number of the description; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Seed of the random numbers; the same seed gives the same answer
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Length of each run after the warm-up: a number of requests, or a simulated time, such as 2s
    #[arg(long, value_name = "TIME|REQUESTS", default_value = "20000", value_parser = until)]
    pub until: Stop,

    /// Number of independent runs of a trial, on all cores; up to four times as many if it is not clear
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub replications: u32,

    /// Print JSON, in seconds
    #[arg(long)]
    pub json: bool,
}

/// Quantity of which a server is to bear as much as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Greatest {
    /// Requests that arrive per second
    Load,
}

/// Parts of a server whose number can be searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Parts {
    /// Disks
    Disks,
    /// Network interfaces
    Interfaces,
    /// Processors
    Processors,
}

fn limit(text: &str) -> Result<f64, String> {
    let time = text.parse::<bywash_model::units::Time>().ok().filter(|time| time.0 > 0.0);
    time.map(|time| time.0).ok_or_else(|| "give a time, such as '2 s' or 10ms".into())
}

const SIZE_NOTES: &str = "\
Response times of arrivals include the wait for a free thread of the server (load.threads). load.burst makes requests
arrive several at a time.

Examples:
  bywash plan size server.toml --most load --p99 10ms
  bywash plan size server.toml --set 'load.arrivals=9000 /s' --fewest disks --p99 10ms
  bywash plan size preset:today-10g --as user-level --most load --p999 '5 ms' --replications 12";

/// `bywash plan simulate`.
#[derive(Args)]
pub struct SimulateArgs {
    /// Description in TOML (in JSON if its name ends in .json), or preset:NAME for a predefined one
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Structure to simulate instead of the description's: conventional, user-level, active or direct
    #[arg(long = "as", value_name = "ARCHITECTURE", value_parser = architecture)]
    pub architecture: Option<Architecture>,

    #[command(flatten)]
    pub runs: RunsArgs,

    #[command(flatten)]
    pub sweep: SweepArgs,

    /// Write a timeline of all resources to OUT, for ui.perfetto.dev or chrome://tracing
    #[arg(
        long,
        value_name = "OUT",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["replications", "replay", "axes"]
    )]
    pub trace: Option<PathBuf>,
}

/// `bywash plan compare`.
#[derive(Args)]
pub struct CompareArgs {
    /// Descriptions, each simulated with its own structure; a single one is simulated with all four
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,

    #[command(flatten)]
    pub runs: RunsArgs,
}

/// Options of simulation runs.
#[derive(Args)]
pub struct RunsArgs {
    /// Change a number of the description; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Seed of the random numbers; the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Length of the run after the warm-up: a number of requests, or a simulated time, such as 2s
    #[arg(long, value_name = "TIME|REQUESTS", default_value = "100000", value_parser = until)]
    pub until: Stop,

    /// Simulate the calls of a trace instead of the description's requests: the output of bywash plan trace,
    /// strace or blkparse
    #[arg(long, value_name = "TRACE", value_hint = ValueHint::FilePath, conflicts_with_all = ["until", "replications"])]
    pub replay: Option<PathBuf>,

    /// Times of a trace's calls
    #[arg(long, value_name = "PACE", value_enum, default_value_t = Pacing::Recorded, requires = "replay")]
    pub pace: Pacing,

    /// Number of independent runs, on all cores, for the mean and its confidence interval
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub replications: Option<u32>,

    /// Print JSON, in bytes and seconds
    #[arg(long)]
    pub json: bool,
}

/// Times at which the calls of a trace are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pacing {
    /// The recorded times
    Recorded,
    /// Each call as soon as its process has completed the one before
    Fastest,
    /// Each call after the recorded computing; waits for other processes keep their order. For traces of bywash plan
    /// record
    Computed,
}

fn architecture(text: &str) -> Result<Architecture, String> {
    let names = Architecture::ALL.map(Architecture::name);
    let found = Architecture::ALL.into_iter().find(|one| one.name() == text);
    found.ok_or_else(|| format!("there are {}", names.join(", ")))
}

fn until(text: &str) -> Result<Stop, String> {
    if let Ok(requests) = text.parse::<u64>() {
        return if requests > 0 {
            Ok(Stop::Requests(requests))
        } else {
            Err("give one request at least".into())
        };
    }
    let time = text.parse::<bywash_model::units::Time>().ok().filter(|time| time.0 > 0.0);
    time.map(|time| Stop::Seconds(time.0))
        .ok_or_else(|| "give a number of requests, such as 20000, or a time, such as '2 s' or 500ms".into())
}

/// `bywash plan presets`.
#[derive(Args)]
pub struct PresetsArgs {
    /// Name of the description to print
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// `bywash plan check`.
#[derive(Args)]
pub struct CheckArgs {
    /// Print also the simulated ratios with other values of parameters that the papers do not give; takes a minute
    #[arg(long)]
    pub sensitivity: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `bywash plan web`.
#[derive(Args)]
pub struct WebArgs {
    /// Port on 127.0.0.1; 0: any free port
    #[arg(long, value_name = "PORT", default_value_t = 8470)]
    pub port: u16,

    /// Write the page to DIR/index.html, which works without a server, instead of serving it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "port")]
    pub export: Option<PathBuf>,
}

const WEB_NOTES: &str = "\
Examples:
  bywash plan web                       prints an address to open in a browser
  bywash plan web --export planner      writes planner/index.html, which can be opened or sent

Exit status: 128 plus the signal's number, since a signal ends it; 125 if it cannot start.";

/// `bywash plan calibrate`.
#[derive(Args)]
pub struct CalibrateArgs {
    /// File to write the description to, in place of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,

    /// Folder on the device to measure; 256 MiB are written there into an unnamed file, and freed at the end
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,

    /// Fewer and shorter rounds, and 64 MiB: less than 5 seconds, less reliable
    #[arg(long)]
    pub quick: bool,

    /// Print JSON: the measurements, in bytes, seconds and cycles, and the description
    #[arg(long)]
    pub json: bool,
}

/// `bywash plan validate`.
#[derive(Args)]
pub struct ValidateArgs {
    /// Description of this machine that `bywash plan calibrate` has written; without it the machine is measured anew for
    /// each turn of the runs
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,

    /// Folder on the described device; 512 MiB (without FILE: 768 MiB) are written there into unnamed files, and 272 MiB for
    /// the example servers into a folder; all of it is removed at the end
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,

    /// Fewer and shorter rounds; 128 MiB (192 MiB) and 80 MiB
    #[arg(long)]
    pub quick: bool,

    /// Print JSON, in operations and bytes a second
    #[arg(long)]
    pub json: bool,
}

const SIMULATE_NOTES: &str = "\
Without [machine.memory] nothing waits for memory; without rotating or flash a disk has only its rate. docs/guide/plan.md
lists every key.

Examples:
  bywash plan simulate server.toml --as active
  bywash plan simulate preset:carrera-table-4 --set load.threads=128 --until 500000 --replications 8
  bywash plan simulate server.toml --until 50ms --trace server.json
  bywash plan simulate server.toml --set 'load.arrivals=8000 /s' --set load.burst=4
  bywash plan simulate server.toml --sweep 'load.arrivals=2000 /s:10000 /s:2000 /s' --plot load.svg
  bywash plan compare server.toml";

/// `bywash plan record`.
#[derive(Args)]
#[command(override_usage = "bywash plan record --out FILE [--] PROGRAM [ARGS]...")]
pub struct RecordArgs {
    /// File to write the trace to
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// `bywash plan predict`.
#[derive(Args)]
#[command(override_usage = "bywash plan predict [OPTIONS] [--] PROGRAM [ARGS]...")]
pub struct PredictArgs {
    /// Run the program under bywash run, too, in turns, and print predicted against measured
    #[arg(long)]
    pub verify: bool,

    /// Predict bywash run --log LOG: commits go to this log (`bywash log create`)
    #[arg(long, value_name = "LOG", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,

    /// Accept a log in memory, where no commit survives a power failure
    #[arg(long, requires = "log")]
    pub volatile: bool,

    /// Command of the shell to run before each run, untimed: to restore what the program changes
    #[arg(long, value_name = "COMMAND")]
    pub before: Option<OsString>,

    /// Least number of runs of each kind, of which the fastest half count; up to 4 times as many until those agree
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=100))]
    pub runs: u32,

    /// Print JSON, in seconds
    #[arg(long)]
    pub json: bool,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

const PREDICT_NOTES: &str = "\
The program's standard input is empty, and its output is discarded. Its gain is the time that it takes by the kernel alone,
divided by its time under bywash run; below 1 it would lose.

Examples:
  bywash plan predict -- sqlite3 orders.db 'SELECT count(*) FROM orders'
  bywash plan predict --verify --before 'rm -f new.db' -- db5.3_load -f records.txt new.db
  bywash plan predict --log commits.log -- sqlite3 orders.db '.read orders.sql'";

/// `bywash plan repeat`.
#[derive(Args)]
pub struct RepeatArgs {
    /// Script of the calls
    #[arg(value_name = "SCRIPT")]
    pub script: PathBuf,
}

const RECORD_NOTES: &str = "\
Not recorded: calls that the C library makes itself (fread, getline), system calls by instruction, and statically linked,
set-user-ID and Go programs. After 16 million calls the recording is full; later calls are counted.

Examples:
  bywash plan record --out calls.csv -- sqlite3 orders.db 'SELECT count(*) FROM orders'
  bywash plan simulate preset:today-25g --replay calls.csv --pace computed";

/// `bywash plan trace`.
#[derive(Args)]
pub struct TraceArgs {
    /// Output of strace or blkparse, or a trace
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// File to write the trace to, in place of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}

const TRACE_NOTES: &str = "\
Examples:
  strace -f -ttt -y -o calls.txt -e trace=%desc,%network,%process PROGRAM
  bywash plan trace calls.txt --out program.csv
  blktrace -d /dev/sda -w 60 -o - | blkparse -i - > requests.txt
  bywash plan trace requests.txt --out sda.csv";

const MODEL_NOTES: &str = "\
A description with all required keys:

  [machine]
  processors = { count = 1, speed = \"1.5 GHz\" }
  interconnect = { rate = \"2 GiB/s\" }
  interfaces = { count = 4, rate = \"116 MiB/s\", processor = \"300 MHz\" }
  disks = { count = 4, rate = \"6.7 MiB/s\", processor = \"300 MHz\" }

  [request.web]
  file = \"16 KiB\"
  miss = \"10 %\"

Other requests: video (file), streams (block, writes), blocks (block, writes, in-order), database (page, pages, miss, log,
compute), dynamic (page, compute, data). [load] has threads and think, or threads and arrivals, such as \"2000 /s\", and
burst; [costs] server, tcp, file-system and system in cycles/B; docs/guide/plan.md lists every key.

Examples:
  bywash plan model server.toml
  bywash plan model server.toml --sweep 'request.web.miss=0 %:20 %:1 %' --sweep machine.disks.count=1:8:1
  bywash plan model server.toml --sweep load.threads=1:512:16 --csv";
