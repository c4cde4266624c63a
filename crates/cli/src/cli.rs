//! The command line: flags, help texts and exit codes. Help, man pages and completions all come from here.

pub mod addresses;
pub mod flow;
pub mod log;
pub mod nvme;
pub mod plan;
pub mod serve;
pub mod volume;

use bywash_bench::command::BenchArgs;
use bywash_options::help_entry;
use bywash_quantity::size;
use bywash_session::settings::{self, Setting};
use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
use flow::FlowArgs;
use plan::PlanArgs;
use std::ffi::OsString;
use std::path::PathBuf;

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
    #[command(after_help = volume::NOTES)]
    Volume(volume::VolumeArgs),
    /// List NVMe controllers, take them from the kernel for `bywash serve`, and give them back
    #[command(after_help = nvme::NOTES)]
    Nvme(nvme::NvmeArgs),
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
