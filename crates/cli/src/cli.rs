//! The command line: flags, help texts and exit codes. Help, man pages and completions all come from here.

pub mod flow;
pub mod serve;

use bywash_bench::command::BenchArgs;
use bywash_model::Architecture;
use bywash_options::help_entry;
use bywash_quantity::size;
use bywash_session::settings::{self, Setting};
use bywash_sim::Stop;
use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
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
    /// Run a program with its file data at user level
    ///
    /// Small and medium reads and writes of regular files are served in user space, as copies from and to a
    /// shared mapping of the file; everything else, and everything that cannot be served so, goes to the
    /// kernel as always. The program is not changed. Its children and the programs it starts are covered
    /// too. Statically linked, set-user-ID and Go programs run unharmed but are not covered.
    Run(RunArgs),
    /// Move data from here to there, the best way that this machine has
    ///
    /// SRC and DST are files, devices, standard input and output, sockets, memory; STAGEs are done on the
    /// way. The mover is chosen by what the two ends are and what the kernel can do; --explain tells which it
    /// would be and why, and what was done is told in the end. Files appear under their name when they are
    /// whole.
    Flow(FlowArgs),
    /// Say what a server could do, and what another structure of its I/O would change
    ///
    /// A model of servers whose operating system does the I/O (conventional), whose programs do it
    /// (user-level), whose devices run the file system and TCP (active), and whose devices pass data on to
    /// each other (direct).
    Plan(PlanArgs),
    /// Share fast devices between programs that do not trust each other
    ///
    /// Each client has a channel of its own, on which it reads and writes without a system call; rights are
    /// decided when it opens a volume or passes a descriptor, and checked for each request. What is memory
    /// can be mapped, exactly as far as the right goes.
    #[command(after_help = serve::notes())]
    Serve(serve::ServeArgs),
    /// Make, list, change and remove the volumes of a device server
    #[command(after_help = serve::VOLUME_NOTES)]
    Volume(serve::VolumeArgs),
    /// Say what this machine offers, what it costs, and why a path cannot be used
    ///
    /// Takes about two seconds, needs no rights, changes nothing. Run it on a quiet machine.
    Doctor(DoctorArgs),
    /// Measure what is published, interleaved with the kernel
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
    /// Say what a described machine can do at most, what binds it, and how it answers
    #[command(after_help = MODEL_NOTES)]
    Model(ModelArgs),
    /// Run a described machine in detail: throughput, latency, how busy everything is
    #[command(after_help = SIMULATE_NOTES)]
    Simulate(SimulateArgs),
    /// Simulate several descriptions, or the four structures of one, side by side
    Compare(CompareArgs),
    /// List the descriptions that come along, or print one
    Presets(PresetsArgs),
    /// Compute what the papers say, and say which lines agree
    Check(CheckArgs),
    /// Measure this machine and write a description of it
    ///
    /// Calls, copies, messages between threads, the page cache, the device under --dir and TCP over loopback;
    /// under 20 seconds. The description is TOML with a comment on each number that says what was measured.
    /// Run it on a quiet machine.
    Calibrate(CalibrateArgs),
    /// Predict simple runs on this machine, make them, and say how far off the prediction was
    ///
    /// Copying a file, reading blocks of one through the page cache and past it, serving files over loopback.
    /// The predictions follow from FILE alone, or from a calibration that is made first; nothing is fitted to
    /// the runs.
    Validate(ValidateArgs),
    /// Read what strace or blkparse recorded, and write it as a trace
    ///
    /// A trace is CSV, a line a call: time, process, call (read, write, sync, receive, send), file, offset,
    /// length. Standard error tells what the recording was, and what of it the trace does not have and why.
    #[command(after_help = TRACE_NOTES)]
    Trace(TraceArgs),
    /// Serve the planner as a page: sliders, curves, machines side by side, simulations
    ///
    /// The page computes in the browser; this machine's other programs can reach it, other machines cannot.
    /// It ends with Ctrl-C.
    #[command(after_help = WEB_NOTES)]
    Web(WebArgs),
}

/// `bywash plan figure`.
#[derive(Args)]
pub struct FigureArgs {
    /// 2 to 9, or all
    #[arg(value_name = "NUMBER", value_parser = figure_choice)]
    pub number: FigureChoice,

    /// The folder to write to, which is made if it is not there
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
            number.map(FigureChoice::One).ok_or_else(|| {
                format!("there are {} to {}, and all of them: all", numbers.start(), numbers.end())
            })
        }
    }
}

/// `bywash plan model`.
#[derive(Args)]
pub struct ModelArgs {
    /// The description, in TOML (or JSON, if it is called .json); preset:NAME is one that comes along
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Change a number of it; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Vary a number; may be repeated, and the last one varies fastest
    #[arg(long, value_name = "KEY=FROM:TO:STEP")]
    pub sweep: Vec<String>,

    /// Print JSON, in bytes and seconds
    #[arg(long)]
    pub json: bool,
}

/// `bywash plan simulate`.
#[derive(Args)]
pub struct SimulateArgs {
    /// The description, in TOML (or JSON, if it is called .json); preset:NAME is one that comes along
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Division of I/O work between host and devices, in place of the description's
    #[arg(long = "as", value_name = "ARCHITECTURE", value_parser = architecture)]
    pub architecture: Option<Architecture>,

    #[command(flatten)]
    pub runs: RunsArgs,

    /// Write who had what when, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath, conflicts_with_all = ["replications", "replay"])]
    pub trace: Option<PathBuf>,
}

/// `bywash plan compare`.
#[derive(Args)]
pub struct CompareArgs {
    /// Descriptions, each as it says; of one alone, its four structures
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

    /// The same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// When to end, behind a warm-up: after so many requests, or so much simulated time, as in 2s
    #[arg(long, value_name = "TIME|REQUESTS", default_value = "100000", value_parser = until)]
    pub until: Stop,

    /// Instead of the description's requests, the calls of a trace, as of bywash plan trace, strace or
    /// blkparse
    #[arg(long, value_name = "TRACE", value_hint = ValueHint::FilePath, conflicts_with_all = ["until", "replications"])]
    pub replay: Option<PathBuf>,

    /// When a trace's calls are made: when they were, or each as soon as its process has done the one before
    #[arg(long, value_name = "PACE", value_enum, default_value_t = Pacing::Recorded, requires = "replay")]
    pub pace: Pacing,

    /// Independent runs, on all cores, for the mean and its confidence
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub replications: Option<u32>,

    /// Print JSON, in bytes and seconds
    #[arg(long)]
    pub json: bool,
}

/// When a trace's calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pacing {
    /// When they were.
    Recorded,
    /// Each as soon as its process has done the one before.
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
            Err("no requests say nothing".into())
        };
    }
    let time = text.parse::<bywash_model::units::Time>().ok().filter(|time| time.0 > 0.0);
    time.map(|time| Stop::Seconds(time.0))
        .ok_or_else(|| "write how many requests, as in 20000, or how much time, as in '2 s' or 500ms".into())
}

/// `bywash plan presets`.
#[derive(Args)]
pub struct PresetsArgs {
    /// The one to print
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// `bywash plan check`.
#[derive(Args)]
pub struct CheckArgs {
    /// Tell also what the simulated ratios are when what the papers do not give is otherwise; takes a minute
    #[arg(long)]
    pub sensitivity: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `bywash plan web`.
#[derive(Args)]
pub struct WebArgs {
    /// The port on 127.0.0.1; 0: any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8470)]
    pub port: u16,

    /// Write the page to DIR/index.html, which opens without a server, and serve nothing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "port")]
    pub export: Option<PathBuf>,
}

const WEB_NOTES: &str = "\
Examples:
  bywash plan web                       and open the address that it prints
  bywash plan web --export planner      and open planner/index.html, or send it to somebody

Exit status: 128 and the signal's number after a signal, which is how it ends; 125 if it cannot begin.";
/// `bywash plan calibrate`.
#[derive(Args)]
pub struct CalibrateArgs {
    /// File to write the description to, in place of standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,

    /// A folder on the device to measure; 256 MiB are written there, without a name, and are gone afterwards
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,

    /// Fewer and shorter rounds, and 64 MiB: under 5 seconds, and less to be relied upon
    #[arg(long)]
    pub quick: bool,

    /// Print JSON: what was measured, in bytes, seconds and cycles, and the description
    #[arg(long)]
    pub json: bool,
}

/// `bywash plan validate`.
#[derive(Args)]
pub struct ValidateArgs {
    /// The description of this machine, as `bywash plan calibrate` writes it; without it one is made first
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,

    /// A folder on the device that the description is of; 512 MiB are written there, without a name, and are
    /// gone afterwards
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
Without [machine.memory] nothing waits for memory; without rotating or flash a disk only has its rate. docs/guide/plan.md
has every key.

Examples:
  bywash plan simulate server.toml --as active
  bywash plan simulate preset:carrera-table-4 --set load.threads=128 --until 500000 --replications 8
  bywash plan simulate server.toml --until 50ms --trace server.json
  bywash plan compare server.toml";
/// `bywash plan trace`.
#[derive(Args)]
pub struct TraceArgs {
    /// Output of strace or blkparse, or a trace
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Write the trace to FILE and not to standard output
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
A description, with everything that there must be:

  [machine]
  processors = { count = 1, speed = \"1.5 GHz\" }
  interconnect = { rate = \"2 GiB/s\" }
  interfaces = { count = 4, rate = \"116 MiB/s\", processor = \"300 MHz\" }
  disks = { count = 4, rate = \"6.7 MiB/s\", processor = \"300 MHz\" }

  [request.web]
  file = \"16 KiB\"
  miss = \"10 %\"

Other requests: video (file), streams (block, writes), blocks (block, writes, in-order), database (page, pages, miss, log,
compute), dynamic (page, compute, data). [load] has threads and think, [costs] server, tcp, file-system and system in
cycles/B; docs/guide/plan.md has all of it.

Examples:
  bywash plan model server.toml
  bywash plan model server.toml --sweep 'request.web.miss=0 %:20 %:1 %' --sweep machine.disks.count=1:8:1";

/// Keeper of the positions of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Positions {
    /// The kernel serves `read`, `write` and `lseek` at the position: right for every program
    Kernel,
    /// Small `read`s are served too; wrong if the program makes system calls past the C library
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
    /// Print to standard error, when the program has ended, what was served where
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
    /// Directory for the pages; it is made if need be
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
}

/// `bywash completions`.
#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

const MAIN_NOTES: &str = "\
Examples:
  bywash run --stats -- sqlite3 orders.db 'select count(*) from orders'
  bywash flow big.img /mnt/backup/
  bywash doctor

Exit status: that of PROGRAM for `bywash run`; what `bywash flow --help` and `bywash bench run --help` say;
otherwise 0, or 125 when bywash itself fails or its command line is wrong.";

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
passes on HUP, INT, QUIT, TERM, USR1, USR2, ALRM, WINCH, TSTP and CONT that are sent to it.

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
