//! What the examples have in common: other processes of the same program, with a path to each.

use bywash_container::{Options, Path};
use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Starts this program once more, to play `role`, with `input` as its standard input and `output` as its
/// standard output: sockets that paths are made over.
pub fn start(role: &str, input: OwnedFd, output: Stdio) -> Result<Child> {
    Ok(Command::new(std::env::current_exe()?).arg(role).stdin(input).stdout(output).spawn()?)
}

/// The path over this process's standard input, which [`start`] has set.
pub fn inherited(options: &Options) -> Result<Path> {
    Ok(Path::over(std::io::stdin().as_fd().try_clone_to_owned()?, options)?)
}

/// The role that was given, or the number of messages.
pub fn argument(usual: u64) -> std::result::Result<u64, String> {
    match std::env::args().nth(1) {
        None => Ok(usual),
        Some(word) => word.parse().map_err(|_| word),
    }
}

/// Waits for a process of [`start`].
pub fn finish(mut child: Child) -> Result<()> {
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("another process ended with {status}").into()) }
}
