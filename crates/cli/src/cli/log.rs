//! The command line of `bywash log`.

use bywash_quantity::size;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `bywash log`.
#[derive(Args)]
pub struct LogArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: LogCommand,
}

/// Subcommands of `bywash log`.
#[derive(Subcommand)]
pub enum LogCommand {
    /// Make a log: a file that is written full once, an existing block device, or a volume of a device server
    Create {
        #[command(flatten)]
        log: LogArg,

        /// Size of the log: 256M for a file, that of the device or volume
        #[arg(long, value_name = "SIZE", value_parser = size)]
        size: Option<u64>,

        /// Accept memory (tmpfs, RAM disk, volume on a memory device), where no commit survives a power failure: for
        /// benchmarks
        #[arg(long)]
        volatile: bool,

        /// Overwrite a block device or volume that holds other data
        #[arg(long)]
        force: bool,
    },
    /// Show the state of a log: its size, its files with live records, what its keeper has counted
    Status {
        #[command(flatten)]
        log: LogArg,

        /// Print JSON, in bytes
        #[arg(long)]
        json: bool,
    },
    /// Write what is in a log and not in the files into the files, after a crash of the machine
    ///
    /// `bywash run --log` does this by itself. Can be interrupted and repeated. Nothing is written if the log is
    /// damaged, or a file is not the one that was committed to. As root, for a log of another user, with that user's
    /// rights.
    Recover {
        #[command(flatten)]
        log: LogArg,

        /// Check everything, print what would be done, and write nothing
        #[arg(long)]
        dry_run: bool,

        /// Print JSON, in bytes
        #[arg(long)]
        json: bool,

        /// The page cache is lost although the machine was not started again: for crash tests with loop devices
        #[arg(long)]
        crashed: bool,

        /// Give up the data of FILE that is in the log alone; may be repeated
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        give_up: Vec<PathBuf>,
    },
    /// Make all files durable that have records in a log
    Checkpoint {
        #[command(flatten)]
        log: LogArg,
    },
    /// Remove a log without live records
    Remove {
        #[command(flatten)]
        log: LogArg,
    },
    /// Keep a log while programs use it; `bywash run --log` starts this
    #[command(hide = true)]
    Keep {
        #[command(flatten)]
        log: LogArg,

        /// Accept a log in memory
        #[arg(long)]
        volatile: bool,

        /// Start the keeper in a session of its own, and end
        #[arg(long)]
        detach: bool,
    },
}

/// A log.
#[derive(Args)]
pub struct LogArg {
    /// File or block device of the log, or volume:[SOCKET/]NAME[,path=channel|mapped]
    #[arg(value_name = "LOG", value_hint = ValueHint::FilePath)]
    pub path: PathBuf,
}

/// Text behind the options of `bywash log`.
pub const NOTES: &str = "\
Examples:
  bywash log create /var/lib/orders/log --size 512M
  bywash run --log /var/lib/orders/log --only /var/lib/orders -- PROGRAM
  bywash log status /var/lib/orders/log
  bywash log recover --dry-run /var/lib/orders/log";
