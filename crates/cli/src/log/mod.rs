//! `bywash log`: makes, shows, recovers, checkpoints and removes a commit log; and the log of `bywash run --log`.
//!
//! The work is done by `bywash_keeper`; this module starts the keeper's process and prints.
//!
//! - [`start`]: the keeper that a run needs: finding it, or starting it
//! - [`counted`]: commits of one run
//! - [`table`]: what is told, for people

mod counted;
mod start;
mod table;

pub use counted::{Counted, RunCounts};
pub use start::attach;
pub use table::counted as run_table;

use crate::cli::log::{LogArgs, LogCommand};
use crate::error::Failure;
use bywash_keeper::{NewLog, Recovery};
use serde::Serialize;
use std::io::{self, Write};

/// Carries out `bywash log` and returns the exit status.
pub fn main(arguments: &LogArgs) -> Result<i32, Failure> {
    match &arguments.command {
        LogCommand::Create { log, size, volatile, force } => {
            let new = NewLog { bytes: *size, is_volatile_allowed: *volatile, overwrites_device: *force };
            let geometry = bywash_keeper::create(&log.path, &new)?;
            print(&table::created(&log.path, &geometry))?;
        }
        LogCommand::Status { log, json } => {
            let status = bywash_keeper::status_at(&log.path)?;
            print(&if *json { to_json(&status)? } else { table::status(&status) })?;
        }
        LogCommand::Recover { log, dry_run, json, crashed, give_up } => {
            let mut recovery = Recovery {
                is_dry_run: *dry_run,
                has_crashed: *crashed,
                given_up: give_up,
                before: &mut |_| true,
            };
            let recovered = bywash_keeper::recover_at(&log.path, &mut recovery)?;
            print(&if *json { to_json(&recovered)? } else { table::recovered(&recovered) })?;
        }
        LogCommand::Checkpoint { log } => bywash_keeper::checkpoint_at(&log.path)?,
        LogCommand::Remove { log } => bywash_keeper::remove(&log.path)?,
        LogCommand::Keep { log, volatile, detach: true } => start::detach(&log.path, *volatile)?,
        LogCommand::Keep { log, volatile, detach: false } => return start::keep(&log.path, *volatile),
    }
    Ok(0)
}

fn print(text: &str) -> Result<(), Failure> {
    io::stdout().write_all(text.as_bytes()).map_err(Failure::Output)
}

fn to_json(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::Output(error.into()))?;
    Ok(text + "\n")
}
