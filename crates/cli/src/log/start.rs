//! The keeper that a run needs: finds the one that listens, or starts one.
//!
//! A keeper must not be a child of the program, which would find a process that it did not start. So a run starts a process
//! that starts the keeper and ends, and the keeper has a session of its own. Until programs can attach, the keeper's standard
//! output is a pipe of the run, over which it tells the outcome; from then on the system's log has its failures.

use crate::error::Failure;
use crate::standard;
use bywash_keeper::{Attached, Client, Error};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time within which a keeper must answer, in which another keeper may finish, or recover the log.
const LIMIT: Duration = Duration::from_secs(120);
/// Time between two attempts.
const INTERVAL: Duration = Duration::from_millis(20);
/// First words of the three outcomes.
const READY: &str = "ready";
const BUSY: &str = "busy";

/// Attaches to a log's keeper, which is started if none listens.
///
/// # Errors
/// [`Failure::Log`], or [`Failure::Keeper`] with the keeper's own message.
pub fn attach(log: &Path, is_volatile_allowed: bool) -> Result<Attached, Failure> {
    let end = Instant::now() + LIMIT;
    loop {
        match Client::connect(log)? {
            Some(client) => {
                if let Some(attached) = client.attach()? {
                    return Ok(attached);
                }
            }
            None => start(log, is_volatile_allowed)?,
        }
        if Instant::now() > end {
            return Err(Error::InUse(log.to_owned()).into());
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Starts a keeper and waits until it is ready. That another process has the log is no failure: it may be a keeper that is
/// not ready yet.
fn start(log: &Path, is_volatile_allowed: bool) -> Result<(), Failure> {
    let failed = |source| Failure::Supervise { what: "start the keeper of the log", source };
    let mut starter = keeper(&bywash_keeper::absolute(log)?, is_volatile_allowed).map_err(failed)?;
    let mut child = starter.arg("--detach").stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut outcome = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut outcome).map_err(failed)?;
    }
    child.wait().map_err(failed)?;
    match outcome.trim_end() {
        READY | BUSY => Ok(()),
        "" => Err(Failure::Keeper("it ended without a word".into())),
        message => Err(Failure::Keeper(message.into())),
    }
}

/// Returns the command that is a keeper, without the variables of a run: the library has no business in it.
fn keeper(log: &Path, is_volatile_allowed: bool) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["log", "keep"]).arg(log);
    if is_volatile_allowed {
        command.arg("--volatile");
    }
    for (name, _) in std::env::vars_os() {
        if name == "LD_PRELOAD" || name.to_string_lossy().starts_with("BYWASH_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Starts the keeper in a session of its own, without the descriptors of whoever started this process, and returns.
pub fn detach(log: &Path, is_volatile_allowed: bool) -> Result<(), Failure> {
    let failed = |source| Failure::Supervise { what: "start the keeper of the log", source };
    bywash_keeper::close_inherited();
    rustix::process::setsid().map_err(|error| failed(error.into()))?;
    rustix::process::chdir("/").map_err(|error| failed(error.into()))?;
    keeper(log, is_volatile_allowed).and_then(|mut keeper| keeper.spawn()).map_err(failed)?;
    Ok(())
}

/// Is the keeper. Tells the outcome of its start to standard output, and later failures to the system's log.
pub fn keep(log: &Path, is_volatile_allowed: bool) -> Result<i32, Failure> {
    let mut is_ready = false;
    let kept = bywash_keeper::keep(log, is_volatile_allowed, || {
        is_ready = true;
        tell(READY);
        if let Err(error) = bywash_keeper::close_output() {
            bywash_keeper::log_to_system(&format!("cannot open /dev/null: {error}"));
        }
    });
    match kept {
        Ok(()) => return Ok(0),
        Err(error) if is_ready => bywash_keeper::log_to_system(&error.to_string()),
        Err(Error::InUse(_)) => tell(BUSY),
        Err(error) => tell(&error.to_string()),
    }
    Ok(crate::error::EXIT_OWN_FAILURE)
}

fn tell(outcome: &str) {
    // Nobody reads it if the run has been ended meanwhile.
    if let Err(error) = writeln!(io::stdout(), "{outcome}").and_then(|()| io::stdout().flush()) {
        standard::say(format_args!("bywash: {outcome} ({error})"));
    }
}
