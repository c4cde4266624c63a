//! The command line of `bywash flow`.
//!
//! The lists of endpoints, stages and movers in the help text come from the tables of the library
//! ([`bywash_flow::syntax`]).

use bywash_flow::plan::{Mover, Prefer};
use bywash_flow::syntax::{endpoints, movers, stages};
use bywash_flow::{HashAlgorithm, Stage};
use bywash_options::{help, help_entry};
use bywash_quantity::size;
use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;

/// `bywash flow`.
#[derive(Args)]
#[command(after_help = notes(), override_usage = "bywash flow [OPTIONS] SRC [STAGE]... DST")]
pub struct FlowArgs {
    /// By this mover and no other; --explain lists them
    #[arg(long, value_name = "MOVER")]
    pub via: Option<Mover>,

    /// By what movers are compared that take turns over the first pieces: time, or cpu (processor time)
    #[arg(long, value_name = "COST", default_value = "time")]
    pub prefer: Prefer,

    /// Contents that DST gets: those of SRC when it was read, or those of its pages when they leave
    #[arg(long, value_name = "HOW", default_value = "value")]
    pub by: By,

    /// Bytes of a block, 512 to 4M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub block: Option<u64>,

    /// No more than so many bytes a second; `auto` for datagrams: the highest rate at which nothing is lost
    #[arg(long, value_name = "RATE|auto", value_parser = rate)]
    pub rate: Option<Rate>,

    /// No more than so many bytes in all
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub limit: Option<u64>,

    /// Fail unless SRC gives exactly that many bytes, for peers that cannot say whether they were cut off
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub expect_size: Option<u64>,

    /// Fail unless what DST gets has that hash, as sha256:HEX
    #[arg(long, value_name = "ALGO:HEX", value_parser = expected_hash)]
    pub expect_hash: Option<Stage>,

    /// Go on with DST.partial: what agrees with SRC, which must be a file, is not moved again
    #[arg(long)]
    pub resume: bool,

    /// Have everything on the device in the end
    #[arg(long)]
    pub sync: bool,

    /// Tell a hash of what DST got: sha256, sha512, blake3
    #[arg(long, value_name = "ALGO")]
    pub hash: Option<HashAlgorithm>,

    /// Between two sockets, only from SRC to DST, and not back too
    #[arg(long)]
    pub one_way: bool,

    /// Tell how far it is even where standard error is no terminal
    #[arg(long)]
    pub progress: bool,

    /// Say nothing but errors
    #[arg(long, short, conflicts_with = "progress")]
    pub quiet: bool,

    /// Tell the plan, the alternatives and why not, and move nothing
    #[arg(long)]
    pub explain: bool,

    /// Tell the report, or the plan, as JSON: to standard output, or to standard error where DST is `-`
    #[arg(long)]
    pub json: bool,

    /// SRC, any number of stages, and DST
    #[arg(value_name = "WORD", required = true, num_args = 2.., value_hint = ValueHint::AnyPath)]
    pub words: Vec<OsString>,
}

/// Rate of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// At most this many bytes a second.
    Bytes(u64),
    /// The highest rate at which no datagram is lost.
    Auto,
}

fn rate(text: &str) -> Result<Rate, String> {
    match text {
        "auto" => Ok(Rate::Auto),
        bytes => bywash_quantity::rate(bytes).map(Rate::Bytes).map_err(|error| format!("{error}, or auto")),
    }
}

fn expected_hash(text: &str) -> Result<Stage, String> {
    let example = "give ALGO:HEX, as in sha256:ba7816bf...";
    let (algorithm, digits) = text.split_once(':').ok_or_else(|| format!("no colon: {example}"))?;
    let stage = algorithm.parse().and_then(|algorithm| Stage::expect_hash(algorithm, digits));
    stage.map_err(|error| format!("{error}; {example}"))
}

/// Contents that a sink gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Contents of the source when it was read.
    Value,
    /// Contents of the source's pages when they leave.
    Reference,
}

/// Returns the help text behind the options.
fn notes() -> String {
    let movers = movers().map(|row| {
        help_entry(row.name(), &format!("{}; for {}", row.sentence(), row.used_for()).replace('`', ""))
    });
    let movers: String = movers.collect();
    [HEAD, &help(endpoints()), BETWEEN, &help(stages()), "\nMovers (--via):\n", &movers, EXAMPLES].concat()
}

const HEAD: &str = "\
SRC and DST, with options behind commas; a comma that is part of a name has a backslash in front.
SIZE is in bytes, or with K, M, G or T (1024-based; KB is 1000). A path alone is a file.
";

const BETWEEN: &str = "\
Between two stream sockets data moves both ways; between two endpoints of datagrams each datagram
is passed on, and answers go back.

Stages, in the order in which they are done:
";

const EXAMPLES: &str = "
Examples:
  bywash flow big.img /mnt/backup/                   copy; holes stay holes
  bywash flow --sync --hash sha256 disk.img raw:/dev/sdb
  bywash flow /data/x compress:zstd tcp:host:9000    there: ... tcp-listen:9000 decompress: x
  bywash flow tcp-listen::8080,fork tcp:backend:80   forward connections, both ways
  bywash flow - tee:copy.log 'exec:grep -v debug' -  in a pipeline
  bywash flow --rate auto big.img udp:host:9000,sequenced
                                                     there: ... udp-listen:9000,sequenced big.img
  bywash flow --explain big.img tcp:host:9000

Exit status: 0 everything has arrived; 1 it has not (the message says why; what there is of a file
is kept as DST.partial or DST.partial.N, unless the disk is full); 125 wrong usage; 128 and the
signal's number after a signal.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notes_fit_the_width() {
        for line in notes().lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
