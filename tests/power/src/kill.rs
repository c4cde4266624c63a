//! Kills on a machine that goes on: the model, its log's keeper and all else that uses the log end at once (SIGKILL), and the
//! log is recovered. Nothing is lost then, since the kernel has all that was written; and recovery must write nothing, since
//! what the kernel has may be newer than the log.

use crate::campaign::{Site, Workload};
use crate::launch::{Launch, confined, run};
use crate::machine::Machine;
use crate::model::checker::Checker;
use crate::model::{HISTORY, history};
use crate::random::Random;
use crate::recording::Position;
use crate::workload::model::Model;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// Kills the model at a moment that the seed chooses, recovers its log and checks its files. Returns the reason for which
/// they are not as the model left them; `None` if they are.
///
/// # Errors
/// A sentence that says what could not be done.
pub fn kill_and_recover(
    program: &Path,
    launch: &Launch,
    model: &Model,
    seed: u64,
) -> Result<Option<String>, String> {
    let machine = Machine::new(program, model.disks())?;
    let site = Site { machine: &machine, launch };
    let mounted = machine.mount("now")?;
    model.prepare(&site)?;
    machine.hook(&launch.prepare)?;
    fs::write(machine.index(), []).map_err(|error| format!("an empty recording: {error}"))?;
    let words = model.words(&site, seed);
    let words = site.launched(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let mut limit = Duration::from_millis(EARLIEST_MS + Random::new(seed).below(LATEST_MS - EARLIEST_MS));
    let events = loop {
        // That it took too long is what is wanted; it may also have ended just before.
        if let Err(why) = run(confined().args(&words), &machine.memory(), limit)
            && !why.contains("did not end")
        {
            return Err(why);
        }
        recover(&machine, launch)?;
        match history::read(&machine.memory().join(HISTORY)) {
            // On a busy machine it had not begun. Then it gets more time.
            Err(error) if error.kind() == ErrorKind::NotFound && limit < BEGIN_LIMIT => limit *= 2,
            read => break read.map_err(|error| format!("the history: {error}"))?,
        }
    };
    let checked = Checker::of_living_machine(events).check(&machine.path("data"), Position(u64::MAX));
    mounted.unmount()?;
    Ok(checked.err())
}

/// Recovers the log of programs that have been killed. Until the last of them has ended, recovery refuses it.
fn recover(machine: &Machine, launch: &Launch) -> Result<(), String> {
    let words: Vec<String> = launch.recover.iter().filter(|word| *word != "--crashed").cloned().collect();
    let end = Instant::now() + END_LIMIT;
    loop {
        match machine.hook(&words) {
            Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            done => return done,
        }
    }
}

/// Least and greatest time from the start of the model to its kill, in ms.
const EARLIEST_MS: u64 = 250;
const LATEST_MS: u64 = 500;
/// Greatest time in which the model begins on a busy machine.
const BEGIN_LIMIT: Duration = Duration::from_secs(16);
/// Greatest time in which killed programs end.
const END_LIMIT: Duration = Duration::from_secs(5);
