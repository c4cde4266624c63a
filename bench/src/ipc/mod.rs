//! `bywash bench ipc`: containers and channels against the other ways between two processes.
//!
//! - `case`: what is compared with what, and the table of it
//! - `words`: what both sides do with every message
//! - `wire`, `channel`, `futex`: the ways, behind the same calls
//! - `line`, `handed`: what no way can be faster than
//! - `iceoryx2`: the same work by a program that is built apart
//! - `run`: two processes and the work that they do
//! - `forward`: a third one in the middle; `neighbour`: a second pair beside the first

mod case;
mod channel;
mod forward;
mod futex;
mod handed;
mod iceoryx2;
mod line;
mod neighbour;
mod run;
mod wire;
mod words;

use crate::campaign::{Audience, Choice};
use crate::error::Error;
use crate::machine::Machine;
use crate::row::{Report, Row};
use run::Work;

/// A part of the bench: its name, and what measures it.
type Part<'a> = (&'static str, Box<dyn Fn() -> Result<Vec<Row>, Error> + 'a>);

/// Measures everything whose name contains one of `names`, or all of it if there is none, in `pairs` rounds in which
/// each side has its turn.
///
/// # Errors
/// That no name contains that. What failed becomes the note of its rows, and after an interruption what is there so far
/// is answered with it.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let (names, quick, pairs) = (&choice.names, choice.quick, choice.rounds);
    let mut report =
        Report { machine: Machine::this(), version: env!("CARGO_PKG_VERSION").into(), rows: Vec::new() };
    let cores = report.machine.cores;
    let cases = case::cases();
    let mut parts: Vec<Part<'_>> = Vec::new();
    for case in &cases {
        parts.push((case.name, Box::new(move || case.measure(quick, pairs))));
    }
    parts.push(("forwarding", Box::new(move || forward::rows(quick, pairs))));
    parts.push(("beside a second pair", Box::new(move || neighbour::rows(quick, pairs, cores))));
    parts.retain(|(name, _)| names.is_empty() || names.iter().any(|wanted| name.contains(wanted.as_str())));
    if parts.is_empty() {
        return Err(Error::Usage(format!("no case has '{}' in its name", names.join("' or '"))));
    }
    let all = parts.len() as u64;
    for (number, (name, measure)) in parts.iter().enumerate() {
        audience.progress(number as u64, all, name);
        let rows = match measure() {
            Err(Error::Interrupted) => return Ok((report, true)),
            Err(error) => vec![case::failed(name, &error)],
            Ok(rows) => rows,
        };
        for row in rows {
            audience.row(&row);
            report.rows.push(row);
        }
    }
    Ok((report, false))
}

/// The part of another process; `what` is what the first one called it.
///
/// # Errors
/// What failed.
pub fn peer(words: &[&str]) -> Result<(), Error> {
    let wrong = || Error::Usage(format!("'{}' is no process of this bench", words.join(" ")));
    let &[what, bytes, messages, service] = words else { return Err(wrong()) };
    let (Ok(bytes), Ok(messages)) = (bytes.parse(), messages.parse()) else { return Err(wrong()) };
    match what {
        forward::MIDDLE => forward::middle(bytes, messages, false),
        forward::MIDDLE_COPYING => forward::middle(bytes, messages, true),
        forward::SINK => forward::sink(messages),
        neighbour::PAIR | neighbour::WORK => neighbour::neighbour(what, bytes, messages),
        _ => match Work::parse(what, bytes, messages) {
            Some(work) => work.second(service),
            None => Err(Error::Usage(format!("{what} is no part of this bench"))),
        },
    }
}
