//! Model of a volatile cache: for each block, its durable contents and every write since.
//!
//! Invariant: after a crash a block may have any of the contents kept here, and no others. Blocks without an
//! entry are durable as they are. Called by [`super::faulty`].

use std::collections::BTreeMap;
use std::ops::Range;

/// Greatest number of writes kept for a block; one more makes the oldest durable, as a cache may do at any
/// time.
const VERSIONS_MAX: usize = 16;

#[derive(Debug)]
struct Version {
    /// Number of the command that wrote the block; versions are sorted by it.
    command: u64,
    bytes: Box<[u8]>,
    /// Time at which the command's completion was reported, as counted by the device; `None` if not yet.
    done: Option<u64>,
}

#[derive(Debug)]
struct History {
    durable: Box<[u8]>,
    versions: Vec<Version>,
}

impl History {
    /// Makes all versions up to index `last` durable.
    fn settle(&mut self, last: usize) {
        for version in self.versions.drain(..=last) {
            self.durable = version.bytes;
        }
    }
}

/// Blocks that have been written since they were last durable, by number.
#[derive(Debug, Default)]
pub(super) struct Cache(BTreeMap<u64, History>);

impl Cache {
    /// Returns true if the durable contents of the block are known.
    pub(super) fn knows(&self, block: u64) -> bool {
        self.0.contains_key(&block)
    }

    /// Records the durable contents of a block, unless they are known.
    pub(super) fn learn(&mut self, block: u64, durable: &[u8]) {
        self.0.entry(block).or_insert_with(|| History { durable: durable.into(), versions: Vec::new() });
    }

    /// Records a write. Writes of one block may be recorded in another order than that of their command
    /// numbers.
    ///
    /// # Panics
    /// If the durable contents of the block are not known.
    pub(super) fn write(&mut self, block: u64, command: u64, bytes: &[u8]) {
        let history = self.0.get_mut(&block).expect("a block that was learnt");
        let at = history.versions.partition_point(|version| version.command < command);
        history.versions.insert(at, Version { command, bytes: bytes.into(), done: None });
        if history.versions.len() > VERSIONS_MAX {
            history.settle(0);
        }
    }

    /// Records that a command's completion was reported at time `now`.
    pub(super) fn done(&mut self, blocks: Range<u64>, command: u64, now: u64) {
        for (_, history) in self.0.range_mut(blocks) {
            for version in history.versions.iter_mut().filter(|version| version.command == command) {
                version.done = Some(now);
            }
        }
    }

    /// Records that a command's write is durable, and with it all earlier writes of the same blocks.
    pub(super) fn settle(&mut self, blocks: Range<u64>, command: u64) {
        for (_, history) in self.0.range_mut(blocks) {
            if let Some(last) = history.versions.iter().rposition(|version| version.command == command) {
                history.settle(last);
            }
        }
    }

    /// Records a flush: every write whose completion was reported at `time` or before is durable.
    pub(super) fn flush(&mut self, time: u64) {
        for history in self.0.values_mut() {
            let is_covered = |version: &Version| version.done.is_some_and(|done| done <= time);
            if let Some(last) = history.versions.iter().rposition(is_covered) {
                history.settle(last);
            }
        }
        self.0.retain(|_, history| !history.versions.is_empty());
    }

    /// Returns the numbers of the commands whose writes are not durable, in ascending order.
    pub(super) fn commands(&self) -> Vec<u64> {
        let mut commands: Vec<u64> =
            self.0.values().flat_map(|history| &history.versions).map(|version| version.command).collect();
        commands.sort_unstable();
        commands.dedup();
        commands
    }

    /// Decides the contents of each block after a crash. `choose` takes the commands that wrote the block, in
    /// order, and returns how many of their writes, from the first on, have reached the medium.
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
