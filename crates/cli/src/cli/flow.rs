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
    /// Use this mover only; --explain lists the usable ones
    #[arg(long, value_name = "MOVER")]
    pub via: Option<Mover>,

    /// Cost by which a trial compares movers: time, or cpu (processor time)
    #[arg(long, value_name = "COST", default_value = "time")]
    pub prefer: Prefer,

    /// Form in which DST gets the data: copied when SRC is read, or as references to SRC's pages
    #[arg(long, value_name = "HOW", default_value = "value")]
    pub by: By,

    /// Size of a block, 512 to 4M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub block: Option<u64>,

    /// Greatest number of bytes a second; for datagrams `auto`: the highest rate without loss
    #[arg(long, value_name = "RATE|auto", value_parser = rate)]
    pub rate: Option<Rate>,

    /// Greatest number of bytes to move
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub limit: Option<u64>,

    /// Fail unless SRC has exactly this size; for transports on which a killed sender looks like a complete one
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub expect_size: Option<u64>,

    /// Fail unless the data that DST gets has this hash, such as sha256:HEX
    #[arg(long, value_name = "ALGO:HEX", value_parser = expected_hash)]
    pub expect_hash: Option<Stage>,

    /// Continue from DST.partial where it differs from SRC, which must be a file or a device
    #[arg(long)]
    pub resume: bool,

    /// Make the data durable before the flow reports success
    #[arg(long)]
    pub sync: bool,

    /// Report a hash of the data that DST got: sha256, sha512 or blake3
    #[arg(long, value_name = "ALGO")]
    pub hash: Option<HashAlgorithm>,

    /// Between two sockets, move data only from SRC to DST
    #[arg(long)]
    pub one_way: bool,

    /// Show progress even if standard error is no terminal
    #[arg(long)]
    pub progress: bool,

    /// Print only errors
    #[arg(long, short, conflicts_with = "progress")]
    pub quiet: bool,

    /// Print the plan and its alternatives with reasons, and move nothing
    #[arg(long)]
    pub explain: bool,

    /// Print the report, or the plan, as JSON: to standard output, or to standard error if DST is `-`
    #[arg(long)]
    pub json: bool,

    /// Source, any number of stages, and sink
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
    /// A copy: the contents of the source when it was read
    Value,
    /// References: the contents of the source's pages when the network sends them
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
Endpoints, with options behind commas; write a comma that belongs to a name as '\\,'.
SIZE is in bytes, or with K, M, G or T (1024-based; KB is 1000). A path alone is a file.
";

const BETWEEN: &str = "\
Between two stream sockets data moves in both directions. Between two datagram endpoints each
datagram is forwarded, and replies go back.

Stages, which run in the order of the command line:
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

Exit status: 0 if all data has arrived; 1 after an error (the message says why; an incomplete file
is kept as DST.partial or DST.partial.N, unless the disk is full); 125 for wrong usage; 128 plus
the signal's number after a signal.";

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
