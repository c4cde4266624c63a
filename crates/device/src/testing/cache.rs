//! What a volatile cache may hold back: for each block, what it has durably and every write to it since.
//!
//! Invariant: after a crash a block may have any of the contents that are kept for it here, and no other. Blocks that are
//! not here have what they have, durably.

use std::collections::BTreeMap;
use std::ops::Range;

/// Most writes that are kept of a block; the oldest becomes durable, as it might at any time.
const VERSIONS_MAX: usize = 16;

#[derive(Debug)]
struct Version {
    /// The command that wrote it; they are in the order of these.
    command: u64,
    bytes: Box<[u8]>,
    /// When that was given out as done.
    done: Option<u64>,
}

#[derive(Debug)]
struct History {
    durable: Box<[u8]>,
    versions: Vec<Version>,
}

impl History {
    /// All up to the version at `last` is durable.
    fn settle(&mut self, last: usize) {
        for version in self.versions.drain(..=last) {
            self.durable = version.bytes;
        }
    }
}

/// Blocks that were written since they were durable.
#[derive(Debug, Default)]
pub(super) struct Cache(BTreeMap<u64, History>);

impl Cache {
    /// Whether it is known what the block has durably.
    pub(super) fn knows(&self, block: u64) -> bool {
        self.0.contains_key(&block)
    }

    /// What a block has durably.
    pub(super) fn learn(&mut self, block: u64, durable: &[u8]) {
        self.0.entry(block).or_insert_with(|| History { durable: durable.into(), versions: Vec::new() });
    }

    /// A write, perhaps one that came before others that are known already.
    ///
    /// # Panics
    /// If it is not known what the block has durably.
    pub(super) fn write(&mut self, block: u64, command: u64, bytes: &[u8]) {
        let history = self.0.get_mut(&block).expect("a block that was learnt");
        let at = history.versions.partition_point(|version| version.command < command);
        history.versions.insert(at, Version { command, bytes: bytes.into(), done: None });
        if history.versions.len() > VERSIONS_MAX {
            history.settle(0);
        }
    }

    /// A write was given out as done.
    pub(super) fn done(&mut self, blocks: Range<u64>, command: u64, now: u64) {
        for (_, history) in self.0.range_mut(blocks) {
            for version in history.versions.iter_mut().filter(|version| version.command == command) {
                version.done = Some(now);
            }
        }
    }

    /// The write is durable.
    pub(super) fn settle(&mut self, blocks: Range<u64>, command: u64) {
        for (_, history) in self.0.range_mut(blocks) {
            if let Some(last) = history.versions.iter().rposition(|version| version.command == command) {
                history.settle(last);
            }
        }
    }

    /// All that was done at a time is durable.
    pub(super) fn flush(&mut self, time: u64) {
        for history in self.0.values_mut() {
            let is_covered = |version: &Version| version.done.is_some_and(|done| done <= time);
            if let Some(last) = history.versions.iter().rposition(is_covered) {
                history.settle(last);
            }
        }
        self.0.retain(|_, history| !history.versions.is_empty());
    }

    /// Commands whose writes are here, in order.
    pub(super) fn commands(&self) -> Vec<u64> {
        let mut commands: Vec<u64> =
            self.0.values().flat_map(|history| &history.versions).map(|version| version.command).collect();
        commands.sort_unstable();
        commands.dedup();
        commands
    }

    /// Decides for each block which of its contents it has: `choose` is given the commands that wrote it, and answers
    /// how many of those have come through.
    pub(super) fn crash(
        self,
        mut choose: impl FnMut(&mut dyn Iterator<Item = u64>) -> usize,
    ) -> Vec<(u64, Box<[u8]>)> {
        let decided = self.0.into_iter().map(|(block, mut history)| {
            let kept = choose(&mut history.versions.iter().map(|version| version.command));
            if kept > 0 {
                history.settle(kept - 1);
            }
            (block, history.durable)
        });
        decided.collect()
    }
}
