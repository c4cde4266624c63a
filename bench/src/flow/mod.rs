//! `bywash bench flow`: flows against the programs and the hand-written loops that move the same bytes.
//!
//! - `part`: a part of the bench; each of the following makes some
//! - `disk`: from file to file, from device to device
//! - `figures`: every mover over transfer size and buffer size
//! - `tcp`: a file over TCP into a file
//! - `forward`: a TCP connection through a process in the middle
//! - `datagram`: datagrams and frames between hosts
//! - `rounds`: the sides in turns, and the rows
//! - `route`, `wires`: the two ends, on storage and on the network
//! - `by_hand`: movers as one writes them by hand
//! - `process`: programs beside each other, and their CPU time

mod by_hand;
mod datagram;
mod disk;
mod figures;
mod forward;
mod part;
pub(crate) mod process;
pub(crate) mod rounds;
mod route;
mod tcp;
mod wires;

use crate::campaign::{Audience, Choice};
use crate::error::Error;
use crate::machine::Machine;
use crate::place::{Kind, Places};
use crate::row::Report;
use crate::workspace::Workspace;
use part::{Part, Stage};
use std::path::Path;

/// Measures what was chosen. After an interruption what is there so far is answered with it.
///
/// # Errors
/// That no part has such a name, or the folder cannot be used; what failed becomes the note of its rows.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let workspace = Workspace::create(choice.folder.as_deref())?;
    let parts = chosen(parts(workspace.run(), choice.quick), &choice.names)?;
    let wanted: Vec<Kind> =
        Kind::ALL.iter().copied().filter(|kind| parts.iter().any(|part| part.kinds.contains(kind))).collect();
    let mut report =
        Report { machine: Machine::this(), version: env!("CARGO_PKG_VERSION").into(), rows: Vec::new() };
    let places = Places::make(workspace.run(), &wanted, "")?;
    let stage = Stage { places: &places, folder: workspace.run(), quick: choice.quick, pairs: choice.rounds };
    for (number, part) in parts.iter().enumerate() {
        audience.progress(number as u64, parts.len() as u64, &part.name());
        let rows = match part.rows(&stage) {
            Err(Error::Interrupted) => return Ok((report, true)),
            rows => rows?,
        };
        for row in rows {
            audience.row(&row);
            report.rows.push(row);
        }
    }
    Ok((report, false))
}

/// All parts, in the order in which they are measured; another bench adds its own here.
fn parts(folder: &Path, quick: bool) -> Vec<Part> {
    let mut parts = disk::parts(folder, quick);
    parts.extend(figures::parts(folder, quick));
    parts.extend(tcp::parts(quick));
    parts.extend(forward::parts(quick));
    parts.extend(datagram::parts(quick));
    parts
}

fn chosen(mut parts: Vec<Part>, names: &[String]) -> Result<Vec<Part>, Error> {
    let all: Vec<String> = parts.iter().map(Part::name).collect();
    let fits = |part: &str, name: &String| match all.contains(name) {
        true => part == name,
        false => part.contains(name.as_str()),
    };
    parts.retain(|part| names.is_empty() || names.iter().any(|name| fits(&part.name(), name)));
    match parts.is_empty() {
        true => Err(Error::Usage(format!("no part has '{}' in its name", names.join("' or '")))),
        false => Ok(parts),
    }
}

/// The part of another process.
///
/// # Errors
/// What failed.
pub fn peer(what: &str, from: &str, to: &str, block: usize) -> Result<(), Error> {
    match by_hand::Part::parse(what) {
        Some(part) => part.run(from, to, block),
        None => Err(Error::Usage(format!("{what} is no part of this bench"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_name_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        for quick in [false, true] {
            let parts = parts(folder.path(), quick);
            for (number, part) in parts.iter().enumerate() {
                assert!(
                    parts[..number].iter().all(|other| other.name() != part.name()),
                    "{} twice",
                    part.name()
                );
            }
            for bench in ["flow/disk", "flow/tcp", "flow/forward", "flow/datagram"] {
                let goal = |part: &&Part| part.frame.bench == bench && part.headline.2.is_some();
                assert!(parts.iter().any(|part| goal(&part)), "{bench}");
            }
        }
    }

    #[test]
    fn names_choose() {
        let folder = tempfile::tempdir().unwrap();
        let some = chosen(parts(folder.path(), false), &["raw partitions".into(), "tcp".into()]).unwrap();
        assert!(some.iter().all(|part| part.name().contains("raw") || part.name().starts_with("tcp:")));
        assert!(chosen(parts(folder.path(), false), &["no such".into()]).is_err());
        // The whole name of one is the beginning of another's.
        let one = chosen(parts(folder.path(), false), &["disk: 16 MiB, tmpfs".into()]).unwrap();
        assert_eq!(one.iter().map(Part::name).collect::<Vec<_>>(), ["disk: 16 MiB, tmpfs"]);
    }
}
