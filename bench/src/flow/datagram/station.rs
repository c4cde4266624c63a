//! Programs in the hosts of a row, and what those that receive tell.

use super::super::by_hand;
use super::super::process::{Process, this_program};
use super::super::wires;
use crate::child;
use crate::error::Error;
use std::fs::File;
use std::process::Command;

/// A program whose output is kept.
pub struct Telling {
    process: Process,
    stdout: File,
}

impl Telling {
    /// Starts `command` by `start`, which puts it into a host.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn start(
        mut command: Command,
        start: impl FnOnce(Command) -> Result<Process, Error>,
    ) -> Result<Telling, Error> {
        let stdout = child::capture()?;
        command.stdout(child::share(&stdout)?);
        Ok(Telling { process: start(command)?, stdout })
    }

    /// The program.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Ends it, however it takes that.
    ///
    /// # Errors
    /// As [`Process::end`].
    pub fn end(self) -> Result<(), Error> {
        self.process.end().map(drop)
    }

    /// What it wrote, when it has ended, however that may be.
    ///
    /// # Errors
    /// As [`Process::told`].
    pub fn told(mut self) -> Result<String, Error> {
        self.process.told(&mut self.stdout)
    }
}

/// `bywash flow` with `flags` that tells what it did.
///
/// # Errors
/// When this program cannot be found.
pub fn flow(flags: &[String], from: &str, to: &str) -> Result<Command, Error> {
    let mut flow = this_program()?;
    flow.args(["flow", "--json"]).args(flags).args([from, to]);
    Ok(flow)
}

/// A hand-written part that sends datagrams of `block` bytes.
///
/// # Errors
/// When this program cannot be found.
pub fn by_hand(part: by_hand::Part, from: &str, to: &str, block: u64) -> Result<Command, Error> {
    let mut command = wires::by_hand(part, from, to)?;
    command.arg(block.to_string());
    Ok(command)
}

/// What an end of datagrams says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Account {
    /// Payload that it took or gave.
    pub bytes: u64,
    /// How long that took it.
    pub seconds: f64,
    /// Datagrams that the sender says to have sent.
    pub packets_sent: u64,
    /// Of those, the ones that did not come.
    pub packets_lost: u64,
    /// Bytes that did not come.
    pub bytes_missing: u64,
}

impl Account {
    /// Of what `bywash flow --json` told.
    ///
    /// # Errors
    /// That it told something else.
    pub fn of(told: &str) -> Result<Account, Error> {
        let failed = |how: String| Error::failed("bywash flow", how);
        let told: serde_json::Value = serde_json::from_str(told)
            .map_err(|error| failed(format!("said '{}', which is no JSON: {error}", told.trim())))?;
        let end = &told["pieces"][0]["datagrams"][0];
        let number = |name: &str| {
            end[name].as_u64().ok_or_else(|| {
                failed(format!("does not say {name}: {}", told["error"].as_str().unwrap_or("no reason")))
            })
        };
        Ok(Account {
            bytes: told["bytes"].as_u64().unwrap_or(0),
            seconds: told["seconds"].as_f64().unwrap_or(0.0),
            packets_sent: number("packets_sent")?,
            packets_lost: number("lost")?,
            bytes_missing: number("missing_bytes")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_flow_tells_is_understood() {
        let told = r#"{"bytes": 9, "seconds": 0.5, "error": null, "pieces": [{"datagrams":
            [{"packets_sent": 3, "lost": 1, "missing_bytes": 4}]}]}"#;
        let account = Account::of(told).unwrap();
        let wanted = Account { bytes: 9, seconds: 0.5, packets_sent: 3, packets_lost: 1, bytes_missing: 4 };
        assert_eq!(account, wanted);
        let refused = Account::of(r#"{"pieces": [], "error": "nobody answers"}"#).unwrap_err().to_string();
        assert!(refused.contains("nobody answers"), "{refused}");
        assert!(Account::of("").is_err());
    }
}
