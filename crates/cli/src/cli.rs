//! The command line: flags, help texts and exit codes. Help, man pages and completions all come from here.

pub mod flow;
pub mod log;
pub mod serve;

use bywash_bench::command::BenchArgs;
use bywash_model::Architecture;
use bywash_options::help_entry;
use bywash_quantity::size;
use bywash_session::settings::{self, Setting};
use bywash_sim::Stop;
use clap::{ArgGroup, Args, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
use flow::FlowArgs;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Numbers of the figures that can be drawn: curves of the model, then bars of the simulator.
pub const FIGURES: RangeInclusive<u32> = 2..=9;

/// User-level, copy-free I/O for unmodified programs.
#[derive(Parser)]
#[command(name = "bywash", version, max_term_width = 100, after_long_help = MAIN_NOTES)]
#[command(infer_subcommands = false, arg_required_else_help = true)]
pub struct Cli {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses the command line of this process. A `run` is parsed with its own options alone, since
    /// describing every subcommand takes as long as starting a program.
    ///
    /// # Errors
    /// The error of clap: a wrong command line, or the requested help or version.
    pub fn read() -> Result<Cli, clap::Error> {
        match read_run(std::env::args_os()) {
            Some(arguments) => Ok(Cli { command: Command::Run(arguments) }),
            None => Cli::try_parse(),
        }
    }
}

/// Parses a correct `bywash run`; `None` for anything else, which the full parser then reads, so that
/// messages and help come from the full parser.
fn read_run(words: impl IntoIterator<Item = OsString>) -> Option<RunArgs> {
    let mut words = words.into_iter().skip(1);
    if words.next()? != "run" {
        return None;
    }
    let command = RunArgs::augment_args(clap::Command::new("run").no_binary_name(true));
    RunArgs::from_arg_matches(&command.try_get_matches_from(words).ok()?).ok()
}

/// Subcommands of `bywash`.
#[derive(Subcommand)]
pub enum Command {
    /// Run an unmodified program whose file reads are served at user level
    ///
    /// Small and medium reads of regular files are copied from a mapping of the file, without a system call.
    /// The kernel carries out everything else, including writes (but see --writes). The program is not
    /// changed. Its child processes and the programs that it starts are covered, too. Statically linked,
    /// set-user-ID and Go programs run as usual and are not covered.
    Run(RunArgs),
    /// Move data from a source to a sink, by the fastest mechanism of this machine
    ///
    /// SRC and DST are files, devices, standard input and output, sockets or memory; STAGEs process the data
    /// on the way. The mover is chosen by the kinds of the two ends and the features of the kernel: --explain
    /// prints the choice with its reasons, and a report at the end states what was done. A file appears under
    /// its name when it is complete.
    Flow(FlowArgs),
    /// Predict the performance of a server with conventional and other structures of I/O
    ///
    /// A model and a simulator of servers whose operating system carries out the I/O (conventional), whose
    /// programs do (user-level), whose devices run the file system and TCP (active), and whose devices
    /// transfer data to each other (direct).
    Plan(PlanArgs),
    /// Share fast devices between programs that do not trust each other
    ///
    /// Each client has a channel of its own, over which it reads and writes without system calls. Permissions
    /// are checked when it opens a volume or passes a descriptor, and its grants for each request. A client
    /// can map the memory of a memory device that its grant covers, and no other.
    #[command(after_help = serve::notes())]
    Serve(serve::ServeArgs),
    /// Create, list, change and remove the volumes of a device server
    #[command(after_help = serve::VOLUME_NOTES)]
    Volume(serve::VolumeArgs),
    /// Make, show, recover and remove a commit log, which makes fsync fast for `bywash run --log`
    ///
    /// A log holds what a program has committed until the file system has written it. After a crash of the machine
    /// the data is written into the files again.
    #[command(after_help = log::NOTES)]
    Log(log::LogArgs),
    /// Check and measure the features of this machine that Bywash uses
    ///
    /// Prints what is available, what it costs, and for each missing feature the reason and the remedy. Takes
    /// about two seconds, needs no privileges, and changes nothing. Run it on an idle machine.
    Doctor(DoctorArgs),
    /// Measure the published figures, in turns with the kernel's
    Bench(BenchArgs),
    /// Write the man pages
    Man(ManArgs),
    /// Print a shell's completion script
    Completions(CompletionsArgs),
}

/// `bywash plan`.
#[derive(Args)]
pub struct PlanArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: PlanCommand,
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
    /// loopback. The predictions follow from FILE alone, or from a calibration that is made first; nothing is
    /// fitted to the runs.
    Validate(ValidateArgs),
    /// Convert a recording of strace or blkparse into a trace
    ///
    /// A trace is CSV with a line for each call: time, process, call (read, write, sync, receive, send), file,
    /// offset, length. Standard error reports the kind of the recording, and the lines that were left out and
    /// why.
    #[command(after_help = TRACE_NOTES)]
    Trace(TraceArgs),
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

/// What a server is to bear as much of as possible.
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

/// When a trace's calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pacing {
    /// The recorded times
    Recorded,
    /// Each call as soon as its process has completed the one before
    Fastest,
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
    /// Description of this machine that `bywash plan calibrate` has written; without it one is made first
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,

    /// Folder on the described device; 512 MiB are written there into an unnamed file, and freed at the end
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,

    /// Fewer and shorter rounds, and 128 MiB
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

/// Keeper of the positions of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Positions {
    /// The kernel keeps positions, and serves `read`, `write` and `lseek`: right for every program
    Kernel,
    /// The library keeps positions where it can, and serves small `read`s, too: wrong if the program makes
    /// system calls past the C library
    User,
}

impl Positions {
    /// Returns the value of `BYWASH_POSITIONS` that selects this keeper.
    pub fn name(self) -> &'static str {
        match self {
            Positions::Kernel => "kernel",
            Positions::User => "user",
        }
    }
}

/// `bywash run`.
#[derive(Args, Debug)]
#[command(after_help = run_notes(), override_usage = "bywash run [OPTIONS] [--] PROGRAM [ARGS]...")]
pub struct RunArgs {
    /// Print to standard error, when the program has ended, how many calls were served at user level and why
    /// not all
    #[arg(long)]
    pub stats: bool,

    /// Write the same to FILE as JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,

    /// Paths that are served.
    #[arg(long, help = settings::ONLY.sentence, value_name = settings::ONLY.value, value_hint = ValueHint::AnyPath)]
    pub only: Vec<PathBuf>,

    /// Paths that are left to the kernel.
    #[arg(long, help = settings::EXCEPT.sentence, value_name = settings::EXCEPT.value, value_hint = ValueHint::AnyPath)]
    pub except: Vec<PathBuf>,

    /// Size of the largest request that is served from a mapping.
    #[arg(long, help = help(&settings::THRESHOLD), value_name = settings::THRESHOLD.value, value_parser = size)]
    pub threshold: Option<u64>,

    /// Bound of the mapped bytes of a process.
    #[arg(long, help = settings::RESIDENT.sentence, value_name = settings::RESIDENT.value, value_parser = size)]
    pub resident: Option<u64>,

    /// Keeper of file positions.
    #[arg(long, help = help(&settings::POSITIONS), value_name = settings::POSITIONS.value)]
    pub positions: Option<Positions>,

    /// True if files on tmpfs are written through mappings.
    #[arg(long, help = settings::WRITES.sentence)]
    pub writes: bool,

    /// Commit log.
    #[arg(long, help = settings::LOG.sentence, value_name = settings::LOG.value, value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,

    /// Accept a log in memory (tmpfs, RAM disk), where no commit survives a power failure: for benchmarks
    #[arg(long, requires = "log")]
    pub volatile: bool,

    /// True if the library leaves everything to the kernel.
    #[arg(long, help = settings::OFF.sentence)]
    pub off: bool,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// `bywash doctor`.
#[derive(Args)]
pub struct DoctorArgs {
    /// Print JSON in place of a table
    #[arg(long)]
    pub json: bool,
}

/// `bywash man`.
#[derive(Args)]
pub struct ManArgs {
    /// Folder for the pages; created if it does not exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
}

/// `bywash completions`.
#[derive(Args)]
pub struct CompletionsArgs {
    /// Shell to print the script for
    pub shell: clap_complete::Shell,
}

const MAIN_NOTES: &str = "\
Examples:
  bywash run --stats -- sqlite3 orders.db 'select count(*) from orders'
  bywash flow big.img /mnt/backup/
  bywash doctor

Exit status: 0, or 125 if bywash itself fails or its command line is wrong. `bywash run` has that of PROGRAM;
`bywash flow --help` and `bywash bench run --help` list theirs.";

const RUN_NOTES: &str = "\
Examples:
  bywash run -- sqlite3 orders.db 'select count(*) from orders'
  bywash run --stats --only /var/lib/data -- db_bench --benchmarks=readrandom
  bywash run --report counts.json --threshold 64K -- make -j4
  bywash run --off -- fio job.fio

Exit status:
  that of PROGRAM; if a signal killed PROGRAM, bywash dies of the same signal
  125  bywash itself failed (the message says why)
  126  PROGRAM was found but could not be started
  127  PROGRAM was not found

Without --stats and --report bywash replaces itself by PROGRAM. With them it waits for PROGRAM and
forwards the signals HUP, INT, QUIT, TERM, USR1, USR2, ALRM, WINCH, TSTP and CONT.

";

/// Returns the sentence of a setting, with its default.
fn help(setting: &Setting) -> String {
    setting.sentence.to_owned()
        + &setting.default.map_or(String::new(), |default| format!(" [default: {default}]"))
}

/// Returns the help text behind the options of `bywash run`.
fn run_notes() -> String {
    let variables = settings::SETTINGS.map(|setting| {
        let meaning = match setting.flag {
            "" => help(setting),
            flag => format!("as --{flag}"),
        };
        help_entry(setting.variable, &format!("{}; {meaning}", setting.variable_value))
    });
    format!(
        "{RUN_NOTES}Environment (set by the flags above, or by hand with LD_PRELOAD=/path/to/libbywash_shim.so):\n\
         {}A flag overrides its variable. A size is in bytes, or with K, M, G or T (1024-based; KB is 1000).",
        variables.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher_options;
    use clap::CommandFactory;
    use std::os::unix::ffi::OsStrExt;

    /// Returns every line of up to four words from those that matter to the launcher.
    fn lines() -> impl Iterator<Item = Vec<OsString>> {
        const WORDS: [&str; 11] =
            ["run", "--", "--off", "--writes", "--stats", "--off=1", "-", "-x", "", "true", "help"];
        let of = |mut number: usize, length: usize| {
            let word = move |_| {
                let word = WORDS[number % WORDS.len()];
                number /= WORDS.len();
                word.into()
            };
            (0..length).map(word).collect()
        };
        (0..=4u32).flat_map(move |length| (0..WORDS.len().pow(length)).map(move |n| of(n, length as usize)))
    }

    #[test]
    fn what_the_launcher_reads_means_the_same_to_the_command() {
        let mut read = 0;
        for words in lines().map(|words| [vec!["run".into()], words].concat()) {
            let Some(options) = launcher_options::read(words.iter().map(|word| word.as_bytes())) else {
                continue;
            };
            let all = || [OsString::from("bywash")].into_iter().chain(words.iter().cloned());
            let run = read_run(all()).unwrap_or_else(|| panic!("{words:?} is refused by the command"));
            let told = (run.off, run.writes, &run.program[..]);
            assert_eq!(told, (options.off, options.writes, &words[options.program..]), "{words:?}");
            let others = (run.stats, run.report, run.only, run.except);
            assert_eq!(others, (false, None, Vec::new(), Vec::new()), "{words:?}");
            assert!(run.threshold.is_none() && run.resident.is_none() && run.positions.is_none());
            assert!(run.log.is_none() && !run.volatile);
            read += 1;
        }
        assert!(read > 500, "{read}");
        let plain = ["run", "--", "true"].map(str::as_bytes);
        assert_eq!(launcher_options::read(plain.into_iter()).unwrap().program, 2);
        assert!(launcher_options::read([&b"doctor"[..]].into_iter()).is_none());
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_run_that_is_read_alone_is_what_it_is_among_all() {
        for line in [
            "bywash run true",
            "bywash run -- true",
            "bywash run -- -x",
            "bywash run --stats ls --stats -x -- y",
            "bywash run --only /a --only=/b --except /c --threshold 64K --off -- p q",
            "bywash run --report r.json --writes p",
            "bywash run help",
        ] {
            let words = || line.split(' ').map(OsString::from);
            let alone = read_run(words()).unwrap_or_else(|| panic!("{line} is not read alone"));
            let Command::Run(among) = Cli::try_parse_from(words()).unwrap().command else {
                panic!("not run")
            };
            assert_eq!(format!("{alone:?}"), format!("{among:?}"), "{line}");
        }
        for line in [
            "bywash",
            "bywash run",
            "bywash run --",
            "bywash run --help",
            "bywash run -h true",
            "bywash run --no-such-option true",
            "bywash run --threshold x true",
            "bywash --version run true",
            "bywash doctor",
        ] {
            assert!(read_run(line.split(' ').map(OsString::from)).is_none(), "{line}");
        }
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let cli =
            Cli::try_parse_from(["bywash", "run", "--stats", "ls", "--stats", "-x", "--", "y"]).unwrap();
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert!(run.stats);
        assert_eq!(run.program, ["ls", "--stats", "-x", "--", "y"]);
    }

    #[test]
    fn a_mistyped_flag_is_not_taken_for_the_program() {
        assert!(Cli::try_parse_from(["bywash", "run", "--stast", "--", "ls"]).is_err());
        assert!(Cli::try_parse_from(["bywash", "run"]).is_err());
    }
}
