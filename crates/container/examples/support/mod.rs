//! Support for the examples: starting this program again as another process, with a path to it.

use bywash_container::{Options, Path};
use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Starts this program once more in the role `role`. `input` becomes its standard input and `output` its
/// standard output: sockets that paths are made over.
pub fn start(role: &str, input: OwnedFd, output: Stdio) -> Result<Child> {
    Ok(Command::new(std::env::current_exe()?).arg(role).stdin(input).stdout(output).spawn()?)
}

/// Makes the path over standard input, where [`start`] has put a socket.
pub fn inherited(options: &Options) -> Result<Path> {
    Ok(Path::over(std::io::stdin().as_fd().try_clone_to_owned()?, options)?)
}

/// Reads the first argument: the number of messages, `usual` if it is missing. `Err` is the role of
/// [`start`].
pub fn argument(usual: u64) -> std::result::Result<u64, String> {
    match std::env::args().nth(1) {
        None => Ok(usual),
        Some(word) => word.parse().map_err(|_| word),
    }
}

/// Waits for a process that [`start`] started, and returns an error if it failed.
pub fn finish(mut child: Child) -> Result<()> {
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("another process ended with {status}").into()) }
}
