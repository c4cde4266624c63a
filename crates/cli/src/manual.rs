//! Man pages and shell completions, generated from the command line's definition.
//!
//! Called by `bywash man` and `bywash completions`, which the build uses to make the installed files.

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::error::Failure;
use clap::CommandFactory;
use std::io::{self, Write};

/// Writes one page for the command and one for each subcommand: `bywash.1`, `bywash-run.1`, ...
pub fn write_pages(arguments: &ManArgs) -> Result<i32, Failure> {
    let out = &arguments.out;
    std::fs::create_dir_all(out)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), out))
        .map_err(|source| Failure::Write { path: out.clone(), source })?;
    Ok(0)
}

/// Prints the completion script of one shell.
pub fn print_completions(arguments: &CompletionsArgs) -> Result<i32, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "bywash", &mut script);
    io::stdout().write_all(&script).map_err(Failure::Output)?;
    Ok(0)
}
