//! `bywash serve add` and `bywash serve drop`: devices of a running server.

use crate::cli::serve::{AddArgs, DropArgs};
use crate::error::Failure;
use crate::socket::absolute;
use bywash_device::Spec;
use bywash_options::Escaped;
use std::io::{self, Write};
use std::path::Path;

/// Adds a device, and prints how its commands are carried out.
///
/// # Errors
/// [`Failure::NoServer`] if no server accepts a connection, [`Failure::Client`] if it refuses, [`Failure::Path`] if
/// the device's path cannot be made absolute, [`Failure::Output`] if standard output cannot be written.
pub fn add(arguments: &AddArgs) -> Result<i32, Failure> {
    let client = super::connect(&arguments.socket, "bywash serve add")?;
    client.add_device(&with_absolute_path(&arguments.device)?)?;
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

/// Returns a device's text with the path of its file made absolute, for a server whose current folder is another one.
fn with_absolute_path(device: &Spec) -> Result<String, Failure> {
    let text = device.to_string();
    let is_relative = |kind: &str| {
        let rest = text.strip_prefix(&format!("{}={kind}:", device.name));
        rest.filter(|rest| !rest.starts_with('/')).map(|rest| (kind.to_owned(), rest.to_owned()))
    };
    let Some((kind, rest)) = ["file", "block"].into_iter().find_map(is_relative) else { return Ok(text) };
    let folder = absolute(Path::new(".")).map_err(Failure::Path)?;
    let folder = folder.to_string_lossy();
    Ok(format!("{}={kind}:{}/{rest}", device.name, Escaped(&folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_absolute_and_all_else_stays() {
        let folder = std::env::current_dir().unwrap();
        for (text, expected) in [
            ("a=mem:4096", "a=mem:4096".to_owned()),
            ("a=file:/x\\,y,sparse", "a=file:/x\\,y,sparse".to_owned()),
            ("a=block:x\\,y,read-only", format!("a=block:{}/x\\,y,read-only", folder.display())),
        ] {
            assert_eq!(with_absolute_path(&text.parse().unwrap()).unwrap(), expected);
        }
    }
}
