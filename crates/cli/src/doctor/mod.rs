//! `bywash doctor`: features of this machine, their costs, and reasons why a path cannot be used.
//!
//! Every probe tries the feature itself, as the calling user, and leaves nothing behind. A probe that fails
//! is a finding, not an error: it becomes a line with the reason and the remedy. Costs are meant to be
//! compared with one another on this machine, not with other machines.
//!
//! - [`machine`]: kernel, cores, memory
//! - [`paths`]: features that can be used
//! - [`costs`]: their costs, and the threshold that follows
//! - [`kernel`]: system calls and mappings: the unsafe part
//! - [`table`]: the findings for people

pub mod costs;
mod kernel;
pub mod machine;
mod paths;
mod table;

use crate::cli::DoctorArgs;
use crate::error::Failure;
use costs::{Copying, Cost};
use machine::Machine;
use paths::Finding;
use serde::Serialize;
use std::io::{self, Write};

/// All findings, with the members that `--json` prints.
#[derive(Serialize)]
struct Findings {
    /// Version of the format: rises when a member changes its meaning or is removed; new members may be
    /// added.
    version: u32,
    bywash: &'static str,
    machine: Machine,
    paths: Vec<Finding>,
    costs: Vec<Cost>,
    copying: Vec<Copying>,
    /// Largest request in bytes for which a copy from a mapping is clearly cheaper than a system call in
    /// every place measured; null if there is none.
    threshold_bytes: Option<u64>,
}

/// Probes, measures and prints, and returns the exit status.
pub fn main(arguments: &DoctorArgs) -> Result<i32, Failure> {
    let paths = paths::probe();
    let copying = costs::copying();
    let findings = Findings {
        version: 1,
        bywash: env!("CARGO_PKG_VERSION"),
        machine: Machine::look(),
        paths,
        costs: costs::measure(),
        threshold_bytes: costs::threshold(&copying),
        copying,
    };
    let text = if arguments.json {
        // Numbers and strings always have a JSON form, so serialisation cannot fail.
        serde_json::to_string_pretty(&findings).unwrap_or_default() + "\n"
    } else {
        table::render(&findings)
    };
    io::stdout().write_all(text.as_bytes()).map_err(Failure::Output)?;
    Ok(0)
}
