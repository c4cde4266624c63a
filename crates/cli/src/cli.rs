//! The command line: flags, help texts and exit codes. Help, man pages and completions all come from here.

use bywash_bench::command::BenchArgs;
use bywash_flow::size;
use clap::{Args, Parser, Subcommand, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// bywash itself failed, or its command line was wrong.
pub const EXIT_OWN_FAILURE: i32 = 125;
/// The program is there but could not be started.
pub const EXIT_NOT_EXECUTABLE: i32 = 126;
/// The program was not found.
pub const EXIT_NOT_FOUND: i32 = 127;

/// User-level, copy-free I/O for unmodified programs.
#[derive(Parser)]
#[command(name = "bywash", version, max_term_width = 100, after_long_help = MAIN_NOTES)]
#[command(infer_subcommands = false, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `bywash` can do.
#[derive(Subcommand)]
pub enum Command {
    /// Run a program with its file data at user level
    ///
    /// Small and medium reads and writes of regular files are served in user space, as copies from and to a
    /// shared mapping of the file; everything else, and everything that cannot be served so, goes to the
    /// kernel as always. The program is not changed. Its children and the programs it starts are covered
    /// too. Statically linked, set-user-ID and Go programs run unharmed but are not covered.
    Run(RunArgs),
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

/// `bywash run`.
#[derive(Args)]
#[command(after_help = RUN_NOTES, override_usage = "bywash run [OPTIONS] [--] PROGRAM [ARGS]...")]
pub struct RunArgs {
    /// Print to standard error, when the program has ended, what was served where
    #[arg(long)]
    pub stats: bool,

    /// Write the same to FILE as JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,

    /// Serve only the file or folder PREFIX and what is below it; may be repeated
    #[arg(long, value_name = "PREFIX", value_hint = ValueHint::AnyPath)]
    pub only: Vec<PathBuf>,

    /// Leave the file or folder PREFIX and what is below it to the kernel; may be repeated
    #[arg(long, value_name = "PREFIX", value_hint = ValueHint::AnyPath)]
    pub except: Vec<PathBuf>,

    /// Largest request served from a mapping, as 4096, 64K or 1M; `bywash doctor` recommends one
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub threshold: Option<u64>,

    /// Load the library but leave everything to the kernel, for comparisons
    #[arg(long)]
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
  bywash doctor

Exit status: that of PROGRAM for `bywash run`; what `bywash bench run --help` says for `bywash bench`;
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

Environment (set by the flags above, or by hand with LD_PRELOAD=/path/to/libbywash_shim.so):
  BYWASH_OFF=1                   as --off
  BYWASH_ONLY, BYWASH_EXCEPT     absolute path prefixes, separated by colons
  BYWASH_THRESHOLD               bytes
  BYWASH_WINDOWS                 bytes of address space for mappings, in total
  BYWASH_HOT_WRITES              writes of a page between two fsyncs before it is written mapped
  BYWASH_SESSION                 where to count (set by --stats and --report)
A flag overrides its variable.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
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
