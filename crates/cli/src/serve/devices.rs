//! `bywash serve add` and `bywash serve drop`: devices of a running server.

use crate::cli::serve::{AddArgs, DropArgs};
use crate::error::Failure;
use crate::socket::absolute;
use std::io::{self, Write};
use std::path::Path;

/// Adds a device, and prints how its commands are carried out.
///
/// # Errors
/// [`Failure::NoServer`] if no server accepts a connection, [`Failure::Client`] if it refuses, [`Failure::Path`] if
/// the device's path cannot be made absolute, [`Failure::Output`] if standard output cannot be written.
pub fn add(arguments: &AddArgs) -> Result<i32, Failure> {
    let client = super::connect(&arguments.socket, "bywash serve add")?;
    // The server's current folder may be another one.
    let folder = absolute(Path::new(".")).map_err(Failure::Path)?;
    client.add_device(&arguments.device.clone().in_folder(&folder).to_string())?;
    let name = &arguments.device.name;
    if let Some(device) = client.status()?.devices.iter().find(|device| device.name == *name) {
        writeln!(io::stdout(), "device {name}: {}", device.how).map_err(Failure::Output)?;
    }
    Ok(0)
}

/// Takes a device away.
///
/// # Errors
/// [`Failure::NoServer`] if no server accepts a connection, [`Failure::Client`] if it refuses.
pub fn drop(arguments: &DropArgs) -> Result<i32, Failure> {
    super::connect(&arguments.socket, "bywash serve drop")?.drop_device(&arguments.name)?;
    Ok(0)
}
