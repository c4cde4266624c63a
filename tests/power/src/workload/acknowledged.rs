//! Commits that a program wrote down as acknowledged, where no power cut harms them.
//!
//! An entry is two numbers of 8 bytes, little-endian: the recorder's position after the commit returned, and the number of
//! the commit. The upper half of that is the number of the client, the lower half counts its commits.

use crate::recording::{self, Position};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::path::Path;

/// Name of the file in the machine's memory.
pub const FILE: &str = "acknowledged";
/// Size of an entry, in bytes.
pub const ENTRY_BYTES: usize = 16;

/// Commits of each client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commits(BTreeMap<u64, u64>);

impl Commits {
    /// Reads the commits in the folder `memory` that had been acknowledged at a cut.
    ///
    /// # Errors
    /// A sentence that says why the file cannot be read.
    pub fn acknowledged(memory: &Path, cut: Position) -> Result<Commits, String> {
        let path = memory.join(FILE);
        let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut found = Commits::default();
        for entry in bytes.as_chunks::<ENTRY_BYTES>().0 {
            let [position, number] = [&entry[..8], &entry[8..]].map(number);
            if position <= cut.0 {
                let last = found.0.entry(number >> 32).or_default();
                *last = (*last).max(number & u64::from(u32::MAX));
            }
        }
        Ok(found)
    }

    /// Reads lines that each have the number of a client and that of its commits.
    pub fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Commits> {
        let pair = |line: &str| {
            let mut numbers = line.split_whitespace().map(|word| word.parse().ok());
            Some((numbers.next()??, numbers.next()??))
        };
        lines.map(pair).collect::<Option<_>>().map(Commits)
    }

    /// Checks that each client's acknowledged commits are among those that are `there`. Returns their number.
    ///
    /// # Errors
    /// A sentence that says how many are there.
    pub fn all_in(&self, there: &Commits) -> Result<u64, String> {
        for (client, acknowledged) in &self.0 {
            let found = there.0.get(client).copied().unwrap_or(0);
            if found < *acknowledged {
                return Err(format!(
                    "{found} commits of client {client} are there, {acknowledged} were acknowledged"
                ));
            }
        }
        Ok(self.0.values().sum())
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Writes down, as acknowledged, each number that comes as a line, with the position of the recorder at that moment.
///
/// # Errors
/// An error of a file, or `InvalidData` if a line is no number.
pub fn write_down(lines: impl BufRead, index: &Path, acknowledged: &Path) -> io::Result<()> {
    let index = File::open(index)?;
    let mut file = File::options().append(true).create(true).open(acknowledged)?;
    for line in lines.lines() {
        let number: u64 = line?.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        let Position(position) = recording::position(&index)?;
        file.write_all(&[position.to_le_bytes(), number.to_le_bytes()].concat())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_before_the_cut() {
        let folder = tempfile::tempdir().unwrap();
        let entries = [7, 300, 9, 299, 10, 301, 9, 1 << 32 | 5_u64];
        let entries: Vec<u8> = entries.iter().flat_map(|number| number.to_le_bytes()).collect();
        std::fs::write(folder.path().join(FILE), entries).unwrap();
        let at = |position| Commits::acknowledged(folder.path(), Position(position)).unwrap();
        assert_eq!(at(6), Commits::default());
        assert_eq!(at(9), Commits([(0, 300), (1, 5)].into()));
        assert_eq!(at(10), Commits([(0, 301), (1, 5)].into()));
    }

    #[test]
    fn a_client_that_lacks_a_commit_is_named() {
        let there = Commits::parse("0 301\n1\t4".lines()).unwrap();
        assert_eq!(there, Commits([(0, 301), (1, 4)].into()));
        assert_eq!(Commits([(0, 300)].into()).all_in(&there), Ok(300));
        assert!(
            Commits([(0, 300), (1, 5)].into()).all_in(&there).unwrap_err().contains("4 commits of client 1")
        );
        assert_eq!(Commits::parse("damaged".lines()), None);
    }

    #[test]
    fn lines_are_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().join("index");
        std::fs::write(&index, [0; 64]).unwrap();
        write_down(&b"1\n2\n"[..], &index, &folder.path().join(FILE)).unwrap();
        assert_eq!(Commits::acknowledged(folder.path(), Position(1)), Ok(Commits::default()));
        assert_eq!(Commits::acknowledged(folder.path(), Position(2)), Ok(Commits([(0, 2)].into())));
    }
}
