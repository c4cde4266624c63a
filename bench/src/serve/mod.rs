//! `bywash bench serve`: our device server, and its clients, against the kernel's ways to memory and to the disk, and against a
//! vhost-user-blk server.
//!
//! One workload for every side, carried out by clients that are processes of their own and differ in nothing but the
//! engine that takes their requests:
//!
//! - [`workload`]: what is asked for; [`engine`]: what takes it, and the loop around it
//! - [`calls`], [`uring`], [`vhost`], [`ours`]: the engines
//! - [`bound`], `handover`: engines that no way can be faster than, against which goals are
//! - [`client`]: the processes, and what they did; [`server`], [`export`]: our server in one; [`talk`]: how the bench talks to them
//! - [`histogram`], [`processor`]: how long it took them, and whom; [`moved`]: whether it was done
//! - [`medium`]: file systems that are made for this, and the disk; [`peer`](mod@peer): a way to one, to be run
//! - [`contest`], [`sides`]: everybody in turns, and the rows of that
//! - [`part`]: what is measured: [`goals`], [`limits`], [`requests`], [`paper`], [`check`], [`registered`]

pub mod bound;
pub mod calls;
pub mod check;
pub mod client;
pub mod contest;
pub mod engine;
pub mod export;
pub mod goals;
mod handover;
pub mod histogram;
pub mod limits;
pub mod medium;
pub mod moved;
pub mod ours;
pub mod paper;
pub mod part;
pub mod peer;
pub mod processor;
pub mod registered;
pub mod requests;
pub mod server;
pub mod sides;
pub mod talk;
pub mod uring;
pub mod vhost;
pub mod workload;

use crate::campaign::{Audience, Choice};
use crate::error::Error;
use crate::machine::Machine;
use crate::row::{Report, Row};
use crate::workspace::Workspace;
use contest::{House, STREAMS, medium_bytes};
use medium::{Media, Medium};
use part::Part;
use peer::Stage;
use talk::Program;

/// Measures everything whose name contains one of `names`, or all of it if there is none, in `pairs` rounds in which
/// each side has its turn; files lie in `folder`.
///
/// # Errors
/// That no name contains that, the folder cannot be used, or our server does not start. What failed becomes the note of its
/// rows, and after an interruption what is there so far is answered with it.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let (names, quick, pairs, folder) =
        (&choice.names, choice.quick, choice.rounds, choice.folder.as_deref());
    let parts = chosen(names)?;
    let workspace = Workspace::create(folder)?;
    let mut report =
        Report { machine: Machine::this(), version: env!("CARGO_PKG_VERSION").into(), rows: Vec::new() };
    audience.progress(0, parts.len() as u64, "making file systems and servers");
    match run(&parts, &workspace, quick, pairs, audience, &mut report.rows) {
        Ok(()) => Ok((report, false)),
        Err(Error::Interrupted) => Ok((report, true)),
        Err(error) => Err(error),
    }
}

fn run(
    parts: &[Part],
    workspace: &Workspace,
    quick: bool,
    pairs: u32,
    audience: &mut dyn Audience,
    rows: &mut Vec<Row>,
) -> Result<(), Error> {
    let program = Program::this()?;
    let bytes = STREAMS as u64 * medium_bytes(quick);
    let media = Media::make(workspace.run(), &Medium::ALL, bytes)?;
    let stage = Stage { media: &media, program: &program, folder: workspace.run() };
    let house = House::open(stage, quick, pairs)?;
    for (number, part) in parts.iter().enumerate() {
        audience.progress(number as u64, parts.len() as u64, &part.name());
        for row in part.rows(&house)? {
            audience.row(&row);
            rows.push(row);
        }
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<Part>, Error> {
    let mut parts = goals::parts();
    parts.extend(limits::parts());
    parts.extend(check::parts());
    parts.extend(registered::parts());
    parts.extend(requests::parts());
    parts.extend(paper::parts());
    parts.retain(|part| names.is_empty() || names.iter().any(|name| part.name().contains(name.as_str())));
    match parts.is_empty() {
        true => Err(Error::Usage(format!("no part has '{}' in its name", names.join("' or '")))),
        false => Ok(parts),
    }
}

/// Another process of the bench; `what` is what the first one called it, `job` what it is to do.
///
/// # Errors
/// What failed.
pub fn peer(what: &str, job: &str) -> Result<(), Error> {
    match what {
        client::CLIENT => client::client(job),
        server::SERVER => server::server(job),
        export::EXPORT => export::export(job),
        limits::IDLE => limits::be_idle(job),
        _ => Err(Error::Usage(format!("{what} is no part of this bench"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_name_of_its_own_and_names_choose() {
        let parts = chosen(&[]).unwrap();
        for (number, part) in parts.iter().enumerate() {
            assert!(parts[..number].iter().all(|other| other.name() != part.name()), "{} twice", part.name());
        }
        let some = chosen(&["tmpfs".into()]).unwrap();
        assert!(!some.is_empty() && some.iter().all(|part| part.bench == "serve/tmpfs"));
        assert!(chosen(&["no such".into()]).is_err() && peer("nobody", "{}").is_err());
    }
}
