//! The command line of `bywash plan execute`.

use super::architecture;
use bywash_model::Architecture;
use bywash_model::units::{PerSecond, Size, Time};
use clap::{ArgGroup, Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

/// `bywash plan execute`.
#[derive(Args)]
#[command(group = ArgGroup::new("load"))]
pub struct ExecuteArgs {
    /// Program for RISC-V Linux: RV64GC, statically linked
    #[arg(value_name = "PROGRAM", value_hint = ValueHint::FilePath)]
    pub program: PathBuf,

    /// Arguments of the program; behind -- if one begins with a dash
    #[arg(value_name = "ARGS")]
    pub arguments: Vec<OsString>,

    /// Description of the machine in TOML (in JSON if its name ends in .json), or preset:NAME for a predefined one
    #[arg(long, value_name = "FILE", default_value = "preset:today-25g", value_hint = ValueHint::FilePath)]
    pub machine: PathBuf,

    /// Structure to use instead of the description's: conventional, user-level, active or direct
    #[arg(long = "as", value_name = "ARCHITECTURE", value_parser = architecture)]
    pub architecture: Option<Architecture>,

    /// Change a number of the description; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Folder whose files the program finds in its root folder; they are copied, and never changed
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub files: Option<PathBuf>,

    /// Folder to write the program's root folder to at the end; created if it does not exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,

    /// File that the program reads as its standard input, or - for that of this command; empty without it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub input: Option<PathBuf>,

    /// Limit of the program's memory
    #[arg(long, value_name = "SIZE", default_value = "1 GiB")]
    pub memory: Size,

    /// Size of the page cache of the simulated system
    #[arg(long, value_name = "SIZE", default_value = "256 MiB")]
    pub page_cache: Size,

    /// Simulated time after which the run ends
    #[arg(long, value_name = "TIME")]
    pub until: Option<Time>,

    /// Seed of the random numbers; the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Clients that each send their next request when the response has come
    #[arg(long, value_name = "N", group = "load", requires = "get",
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub clients: Option<u32>,

    /// Requests that arrive per second, at random, whatever the responses
    #[arg(long, value_name = "RATE", group = "load", requires = "get")]
    pub arrivals: Option<PerSecond>,

    /// Path that clients get by HTTP, each as often as the others; may be repeated
    #[arg(long, value_name = "PATH", requires = "load")]
    pub get: Vec<String>,

    /// Port that the program listens at
    #[arg(long, value_name = "PORT", default_value_t = 8080, requires = "load")]
    pub port: u16,

    /// Number of responses that are measured; a tenth as many come before
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "load",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: u64,

    /// Print which functions of the program took the time
    #[arg(long)]
    pub profile: bool,

    /// Write a timeline of threads and devices, for Perfetto (ui.perfetto.dev) or chrome://tracing
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub timeline: Option<PathBuf>,

    /// Print the report as JSON to standard output, and what the program prints to standard error
    #[arg(long)]
    pub json: bool,
}

pub(super) const NOTES: &str = "\
What the program prints is printed, and the report follows on standard error. Nothing of this machine is used: the
program sees the files of --files, a clock that begins at 0, and clients of the simulation.

Examples:
  riscv64-linux-gnu-gcc -O2 -static sort.c -o sort
  bywash plan execute ./sort 1000 --machine server.toml
  bywash plan execute --machine preset:carrera-table-4 --as active --files www \\
      --clients 64 --get /index.html ./web -- --port 8080 --root /
  bywash plan execute ./sort --profile --timeline sort.json

Exit status: that of the program; 128 plus the signal's number if a signal ended it or this command; 124 after --until; 125 if
it cannot be executed.";
