//! Tools that read a large file from end to end: the rule that nothing becomes slower.

use super::{Amount, Case, Done, Metric, NOT_SLOWER, Stage, Workload};
use crate::error::Error;
use crate::launch::Run;
use crate::place::Kind;
use crate::{child, programs};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Read by cat, grep and tar.
const LARGE_BYTES: usize = 96 << 20;
const LARGE_BYTES_QUICK: usize = 4 << 20;
/// Read by gzip and sort, which compute more.
const MEDIUM_BYTES: usize = 12 << 20;
const MEDIUM_BYTES_QUICK: usize = 1 << 20;

struct Tool {
    name: &'static str,
    package: &'static str,
    arguments: &'static [&'static str],
    medium: bool,
    /// How many times the file is named, so that a run is long enough to be timed.
    times: usize,
}

impl Tool {
    fn bytes(&self, stage: &Stage) -> usize {
        match (self.medium, stage.quick) {
            (true, true) => MEDIUM_BYTES_QUICK,
            (true, false) => MEDIUM_BYTES,
            (false, true) => LARGE_BYTES_QUICK,
            (false, false) => LARGE_BYTES,
        }
    }

    /// A name without a folder: tar writes it into the archive.
    fn file_name(&self) -> &'static str {
        if self.medium { "medium" } else { "large" }
    }
}

fn output(stage: &Stage) -> PathBuf {
    stage.folder.join("output")
}

impl Workload for Tool {
    fn prepare(&mut self, stage: &Stage) -> Result<(), Error> {
        programs::require(self.name, self.package)?;
        let path = stage.folder.join(self.file_name());
        if path.exists() { Ok(()) } else { stage.place.write_content(&path, &lines(self.bytes(stage))) }
    }

    fn reset(&mut self, stage: &Stage) -> Result<(), Error> {
        let output = output(stage);
        match std::fs::remove_file(&output) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", &output, error))
            }
            _ => Ok(()),
        }
    }

    fn run(&mut self, stage: &Stage, run: &Run, _operations: u64) -> Result<Done, Error> {
        let mut command = run.command(programs::require(self.name, self.package)?);
        command.current_dir(&stage.folder).args(self.arguments);
        command.args(std::iter::repeat_n(self.file_name(), self.times));
        let target = output(stage);
        // cat's output is not looked at; a file of that size would measure the writes.
        let to_file = self.name != "cat";
        command.stdout(if to_file {
            Stdio::from(File::create(&target).map_err(|error| Error::io("create", &target, error))?)
        } else {
            Stdio::null()
        });
        let seconds = child::run_to(&mut command)?.as_secs_f64();
        let sum = if to_file { Some(hash_of(&target)?) } else { None };
        Ok(Done { rate: (self.bytes(stage) * self.times) as f64 / seconds, seconds, sum })
    }
}

/// Lines of words, always the same.
fn lines(bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 8] = ["water", "around", "a", "dam", "carries", "channel", "mapping", "page"];
    let mut text = Vec::with_capacity(bytes + 64);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.extend_from_slice(format!("{:08x}", state >> 32).as_bytes());
        for place in 0..6 {
            text.push(b' ');
            text.extend_from_slice(WORDS[(state >> (place * 3)) as usize % WORDS.len()].as_bytes());
        }
        text.push(b'\n');
    }
    text.truncate(bytes);
    text
}

/// FNV-1a over words of eight bytes, and the length.
fn hash_of(path: &Path) -> Result<String, Error> {
    let content = std::fs::read(path).map_err(|error| Error::io("read", path, error))?;
    let hash = content.chunks(8).fold(0xcbf2_9ce4_8422_2325u64, |hash, chunk| {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x100_0000_01b3)
    });
    Ok(format!("{} bytes, {hash:016x}", content.len()))
}

/// The `tools` bench.
pub fn cases() -> Vec<Case> {
    let tools: [Tool; 5] = [
        Tool { name: "cat", package: "coreutils", arguments: &[], medium: false, times: 8 },
        // Counting, as grep stops at the first match when its output is thrown away.
        Tool {
            name: "grep",
            package: "grep",
            arguments: &["-c", "-h", "ffff.*dam"],
            medium: false,
            times: 2,
        },
        Tool { name: "gzip", package: "gzip", arguments: &["-1", "-c", "-n"], medium: true, times: 1 },
        // To a pipe or file, as tar reads nothing when its archive is /dev/null.
        Tool {
            name: "tar",
            package: "tar",
            arguments: &["--hard-dereference", "-cf", "-"],
            medium: false,
            times: 4,
        },
        Tool { name: "sort", package: "coreutils", arguments: &[], medium: true, times: 1 },
    ];
    tools
        .into_iter()
        .map(|tool| Case {
            bench: "tools",
            name: tool.name.into(),
            metrics: vec![Metric::rate("B/s", NOT_SLOWER)],
            places: Kind::ALL,
            amount: Amount::Fixed,
            native: None,
            in_quick: true,
            work: Box::new(tool),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_same_every_time_and_of_the_size_asked_for() {
        let text = lines(10_000);
        assert_eq!(text.len(), 10_000);
        assert_eq!(text, lines(10_000));
        assert!(text.iter().filter(|byte| **byte == b'\n').count() > 100);
    }

    #[test]
    fn the_hash_sees_one_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"0123456789").unwrap();
        let before = hash_of(&path).unwrap();
        std::fs::write(&path, b"0123456788").unwrap();
        assert_ne!(before, hash_of(&path).unwrap());
    }
}
