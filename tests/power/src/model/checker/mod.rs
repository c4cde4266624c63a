//! Check of the model's files after a cut, against its history.

use crate::model::history::{Event, Kind, SAME_SIZE, Target};
use crate::model::unseen::{BLOCK_BYTES, Method};
use crate::model::{LIMIT_BYTES, UNSEEN_BYTES, WORD, append_bytes, version_length, version_word};
use crate::recording::Position;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// An operation of the history.
#[derive(Clone, Copy, Debug)]
struct Operation {
    begin: usize,
    /// Place of its end in the history; the greatest number if it never ended.
    end: usize,
    /// As it ended, or as it began.
    event: Event,
    /// Recorder's position at its begin.
    begun_at: Position,
}

/// All operations of a history, by file.
#[derive(Debug)]
pub struct Checker {
    operations: HashMap<Target, Vec<Operation>>,
    /// Operations that concern each word of a file of words, as indexes of its list.
    by_word: HashMap<Target, Vec<Vec<u32>>>,
}

impl Checker {
    /// Prepares the check of the states of one history.
    pub fn new(events: &[Event]) -> Checker {
        let mut operations: HashMap<Target, Vec<Operation>> = HashMap::new();
        let mut open: HashMap<u64, usize> = HashMap::new();
        for (place, event) in events.iter().enumerate() {
            let list = operations.entry(event.target).or_default();
            match open.get(&event.operation).filter(|_| event.is_end) {
                Some(index) => (list[*index].end, list[*index].event) = (place, *event),
                None => {
                    open.insert(event.operation, list.len());
                    let begun_at = event.position;
                    list.push(Operation { begin: place, end: usize::MAX, event: *event, begun_at });
                }
            }
        }
        let mut by_word = HashMap::new();
        for target in Target::WORDS {
            let mut words = vec![Vec::new(); (LIMIT_BYTES * 2 / WORD) as usize];
            for (index, operation) in operations.entry(target).or_default().iter().enumerate() {
                let Some((begin, end)) = words_of(&operation.event) else { continue };
                let end = end.min(words.len());
                words[begin.min(end)..end].iter_mut().for_each(|word| word.push(index as u32));
            }
            by_word.insert(target, words);
        }
        Checker { operations, by_word }
    }

    /// Prepares the check of a machine that goes on after its programs were killed: all that was over is there, synced or not.
    pub fn of_living_machine(mut events: Vec<Event>) -> Checker {
        for (target, number) in Target::WORDS.into_iter().chain([Target::Appended]).zip(1..) {
            for is_end in [false, true] {
                events.push(Event {
                    operation: number,
                    is_end,
                    kind: Kind::Sync,
                    target,
                    offset: 0,
                    length: 0,
                    size: SAME_SIZE,
                    position: Position::default(),
                });
            }
        }
        Checker::new(&events)
    }

    /// Checks the files in the folder `data` after a cut. Returns the number of syncs that had been acknowledged.
    ///
    /// # Errors
    /// A sentence that says which file holds what it must not.
    pub fn check(&self, data: &Path, cut: Position) -> Result<u64, String> {
        let mut acknowledged = 0;
        for target in Target::WORDS {
            acknowledged += self.words(data, target, cut)?;
        }
        acknowledged += self.appended(data, cut)?;
        for target in [Target::Replaced, Target::Reused, Target::Linked] {
            acknowledged += self.version(data, target, cut)?;
        }
        acknowledged += self.unseen(data, cut)?;
        Ok(acknowledged)
    }

    fn of(&self, target: Target) -> &[Operation] {
        self.operations.get(&target).map_or(&[], Vec::as_slice)
    }

    /// Returns the syncs of a file that had been acknowledged, and the last begin of one.
    fn syncs(&self, target: Target, cut: Position) -> (u64, usize) {
        let syncs = self.of(target).iter().filter(|operation| operation.event.kind == Kind::Sync);
        let begins = syncs.filter(|operation| operation.is_over(cut)).map(|operation| operation.begin);
        begins.fold((0, 0), |(count, last), begin| (count + 1, last.max(begin)))
    }

    fn words(&self, data: &Path, target: Target, cut: Position) -> Result<u64, String> {
        let bytes = read(data, target)?.ok_or_else(|| format!("{} is gone", target.name()))?;
        let operations = self.of(target);
        let (syncs, durable_before) = self.syncs(target, cut);
        self.size(target, bytes.len() as u64, cut, durable_before)?;
        let undone = self.undone_truncation(target, bytes.len() as u64, cut);
        let is_durable = |operation: &Operation| {
            operation.end < durable_before
                || operation.event.kind == Kind::SyncedWrite && operation.is_over(cut)
        };
        let durable: Vec<bool> = operations.iter().map(is_durable).collect();
        let numbers: HashMap<u64, u32> =
            operations.iter().zip(0..).map(|(operation, index)| (operation.event.operation, index)).collect();
        let newest = |of_word: &[u32]| {
            let indexes = of_word.iter().map(|index| *index as usize).filter(|index| durable[*index]);
            indexes.max_by_key(|index| operations[*index].begin).map(|index| &operations[index])
        };
        let absent = self.by_word[&target].iter().enumerate().skip(bytes.len() / WORD as usize);
        for (word, of_word) in absent {
            // Only a truncation takes away what was made durable.
            let Some(newest) = newest(of_word).filter(|newest| newest.event.is_write()) else { continue };
            let is_cut = of_word.iter().map(|index| &operations[*index as usize]).any(|operation| {
                operation.event.kind == Kind::Truncate
                    && operation.end >= newest.begin
                    && operation.begun_at <= cut
            });
            if !is_cut && !self.is_behind_the_durable_size(target, newest, word, durable_before) {
                let number = newest.event.operation;
                return Err(format!("{} word {word} is missing, {number:#x} was durable", target.name()));
            }
        }
        for (word, (value, of_word)) in bytes.chunks(WORD as usize).zip(&self.by_word[&target]).enumerate() {
            let value = value.try_into().map(u64::from_le_bytes).map_err(|_| "a size within a word")?;
            let Some(newest) = newest(of_word) else {
                if value != 0 {
                    let writer = numbers.get(&value).filter(|index| of_word.contains(index));
                    let writer = writer.ok_or_else(|| foreign(target, word, value))?;
                    operations[*writer as usize].was_begun(target, word, cut)?;
                }
                continue;
            };
            // What zeroes come from: every operation that leaves them. The beginning is older than any durable operation.
            let mut sources =
                of_word.iter().map(|index| &operations[*index as usize]).filter(|operation| match value {
                    0 => {
                        operation.begun_at <= cut
                            && matches!(operation.event.kind, Kind::Truncate | Kind::Punch)
                            && !undone.is_some_and(|(undone, first)| {
                                operation.event.operation == undone && word >= first
                            })
                    }
                    number => operation.event.operation == number && operation.event.is_write(),
                });
            let is_allowed = |source: &Operation| source.end >= newest.begin;
            if let Some(source) = sources.clone().find(|source| is_allowed(source)) {
                source.was_begun(target, word, cut)?;
            } else if sources.next().is_some() || value == 0 {
                return Err(format!(
                    "{} word {word}: {value:#x} is older than {:#x} ({:?}), which was made durable",
                    target.name(),
                    newest.event.operation,
                    newest.event.kind
                ));
            } else {
                return Err(foreign(target, word, value));
            }
        }
        Ok(syncs)
    }

    /// Returns true if a synced write lies in a part of the file that another operation had added and nobody had synced. ext4
    /// makes only the range of such a write durable: not the size, where the range's blocks were allocated before.
    fn is_behind_the_durable_size(
        &self,
        target: Target,
        write: &Operation,
        word: usize,
        durable_before: usize,
    ) -> bool {
        let is_extension = |other: &&Operation| {
            let size = other.event.size;
            other.event.operation != write.event.operation
                && size != SAME_SIZE
                && size > word as u64 * WORD
                && other.end >= durable_before
                && other.begin < write.end
        };
        let is_by_itself = write.event.kind == Kind::SyncedWrite && write.end >= durable_before;
        is_by_itself && self.of(target).iter().any(|other| is_extension(&other))
    }

    /// Returns the last change of a file's size if it was a truncation that did not reach the disk, since the file is longer,
    /// and the first word that it cannot have made zero. The end of the truncated block is zero in memory before the size
    /// changes, and may be written by itself.
    fn undone_truncation(&self, target: Target, size: u64, cut: Position) -> Option<(u64, usize)> {
        let changes = self
            .of(target)
            .iter()
            .filter(|operation| operation.event.size != SAME_SIZE && operation.begun_at <= cut);
        let Event { operation, kind, length, .. } = changes.max_by_key(|operation| operation.begin)?.event;
        let first = length.next_multiple_of(BLOCK_BYTES) / WORD;
        (kind == Kind::Truncate && size > length).then_some((operation, first as usize))
    }

    /// Checks a size: that after the last durable change, or one that a later change leads to.
    fn size(&self, target: Target, size: u64, cut: Position, durable_before: usize) -> Result<(), String> {
        let is_sync = |operation: &&Operation| operation.event.kind == Kind::Sync && operation.is_over(cut);
        let syncs = || self.of(target).iter().filter(is_sync);
        let (mut least, mut most) = (LIMIT_BYTES / 2, LIMIT_BYTES / 2);
        let mut allowed = vec![(least, most)];
        for operation in self.of(target).iter().filter(|operation| operation.event.size != SAME_SIZE) {
            let after = operation.event.size;
            // The kernel makes a file longer piece by piece (XFS writes the end of its last block first, even for
            // ftruncate), and shorter at once. But a sync that overlaps with a truncation may leave a size between the old
            // one and the new one: XFS writes no size that is greater than the one in memory, which is the new one then.
            let is_overlapped = syncs().any(|sync| sync.begin < operation.end && operation.begin < sync.end);
            let steps = (least.min(after), if is_overlapped { most.max(after) } else { after });
            if operation.end < durable_before {
                allowed.clear();
                allowed.push((after, after));
            } else if operation.begun_at <= cut {
                allowed.push(steps);
            }
            // One that was killed may have happened or not.
            let is_sure = operation.end != usize::MAX;
            (least, most) = if is_sure { (after, after) } else { (least.min(after), most.max(after)) };
        }
        match allowed.iter().any(|(least, most)| (*least..=*most).contains(&size)) {
            true => Ok(()),
            false => Err(format!("{} has {size} bytes, not one of {allowed:?}", target.name())),
        }
    }

    fn appended(&self, data: &Path, cut: Position) -> Result<u64, String> {
        let target = Target::Appended;
        let bytes = read(data, target)?.ok_or("the appended file is gone")?;
        let (syncs, durable_before) = self.syncs(target, cut);
        let appends = self.of(target).iter().filter(|operation| operation.event.kind == Kind::Append);
        for operation in appends.filter(|operation| operation.end < durable_before) {
            let Event { operation: number, offset, length, .. } = operation.event;
            let found = bytes.get(offset as usize..(offset + length) as usize);
            if found != Some(&append_bytes(number, length)) {
                return Err(format!(
                    "the {length} bytes that {number:#x} appended at {offset} were made durable and are not there \
                     (the file has {} bytes)",
                    bytes.len()
                ));
            }
        }
        Ok(syncs)
    }

    /// Checks the file that is changed unseen.
    fn unseen(&self, data: &Path, cut: Position) -> Result<u64, String> {
        let target = Target::Unseen;
        let (acknowledged, begun) = self.versions(target, cut);
        let method = Method::of_version(begun);
        let is_made_anew = begun > acknowledged && method.is_none();
        let Some(bytes) = read(data, target)? else {
            return if is_made_anew { Ok(acknowledged) } else { Err(format!("{} is gone", target.name())) };
        };
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let moves = begun > acknowledged && method.is_some_and(Method::moves_blocks);
        let is_right_size = match bytes.len() as u64 {
            UNSEEN_BYTES => true,
            size if moves => size.abs_diff(UNSEEN_BYTES) <= BLOCK_BYTES,
            size => is_made_anew && size < UNSEEN_BYTES,
        };
        let may_be_zero = is_made_anew || moves;
        let is_right = |word: &u64| {
            (version_word(acknowledged)..=version_word(begun)).contains(word) || *word == 0 && may_be_zero
        };
        match is_right_size && words.iter().all(is_right) {
            true => Ok(acknowledged),
            false => Err(format!(
                "{}: {} bytes, words {:?}; {acknowledged} was acknowledged and {begun} begun, by {method:?}",
                target.name(),
                bytes.len(),
                runs(&words)
            )),
        }
    }

    /// Returns the greatest version of a file that was acknowledged before a cut, and the greatest that was begun.
    fn versions(&self, target: Target, cut: Position) -> (u64, u64) {
        let last = |is_counted: &dyn Fn(&Operation) -> bool| {
            let versions = self.of(target).iter().filter(|operation| is_counted(operation));
            versions.map(|operation| operation.event.offset).max().unwrap_or(0)
        };
        (last(&|operation| operation.is_over(cut)), last(&|operation| operation.begun_at <= cut))
    }

    /// Checks a file that has versions: the acknowledged one, or the one that was being made.
    fn version(&self, data: &Path, target: Target, cut: Position) -> Result<u64, String> {
        let (acknowledged, begun) = self.versions(target, cut);
        let name = target.name();
        let bytes = match (read(data, target)?, target) {
            (Some(bytes), _) => bytes,
            (None, Target::Linked) => {
                // Between unlinking one name and renaming the other.
                fs::read(data.join("linked.other"))
                    .map_err(|error| format!("both names of {name} are gone: {error}"))?
            }
            (None, Target::Reused) if begun > acknowledged => return Ok(acknowledged),
            (None, _) => return Err(format!("{name} is gone")),
        };
        let allowed = |version: u64| (acknowledged..=begun).contains(&version);
        let words = bytes.chunks(WORD as usize).map(|word| word.try_into().map(u64::from_le_bytes));
        let words: Result<Vec<u64>, _> = words.collect();
        let words = words.map_err(|_| format!("{name} has {} bytes", bytes.len()))?;
        let first = words.first().map_or(begun, |word| word.wrapping_sub(1));
        let is_whole = allowed(first)
            && bytes.len() as u64 == version_length(first)
            && words.iter().all(|word| *word == first + 1);
        let state = || format!("{name}: version {first}, {} bytes, words {:?}", bytes.len(), runs(&words));
        let is_right = match target {
            Target::Linked => is_mixture(&words, acknowledged, begun),
            // A new file that is not yet acknowledged may be there in part.
            Target::Reused if begun > acknowledged && !is_whole => {
                words.iter().all(|word| *word == 0 || *word == begun + 1)
            }
            _ => is_whole,
        };
        match is_right {
            true => Ok(acknowledged),
            false => Err(format!("{}; {acknowledged} was acknowledged and {begun} begun", state())),
        }
    }
}

impl Operation {
    /// Returns true if the operation was acknowledged when the power was cut.
    fn is_over(&self, cut: Position) -> bool {
        self.end != usize::MAX && self.event.position <= cut
    }

    /// Checks that what is on the disk was not written after the cut, which would be an error of the harness.
    fn was_begun(&self, target: Target, word: usize, cut: Position) -> Result<(), String> {
        match self.begun_at <= cut {
            true => Ok(()),
            false => Err(format!("{} word {word} is of the time after the cut: {self:?}", target.name())),
        }
    }
}

impl Event {
    fn is_write(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::SyncedWrite)
    }
}

/// Returns true if each word of a file that is written in place is of the newest acknowledged version that covers it, or of
/// the version that was begun.
fn is_mixture(words: &[u64], acknowledged: u64, begun: u64) -> bool {
    let longest = (0..=acknowledged).map(version_length).max().unwrap_or(0) / WORD;
    words.len() as u64 >= longest
        && words.iter().enumerate().all(|(index, word)| {
            let covers = |version: &u64| version_length(*version) > index as u64 * WORD;
            let durable = (0..=acknowledged).rev().find(covers).map_or(0, |version| version + 1);
            *word == durable || *word == begun + 1 && covers(&begun)
        })
}

/// Returns the words that an operation changes, as a range.
fn words_of(event: &Event) -> Option<(usize, usize)> {
    let word = |offset: u64| (offset / WORD) as usize;
    match event.kind {
        Kind::Write | Kind::SyncedWrite | Kind::Punch => {
            Some((word(event.offset), word(event.offset + event.length)))
        }
        Kind::Truncate => Some((word(event.length), usize::MAX)),
        _ => None,
    }
}

fn read(data: &Path, target: Target) -> Result<Option<Vec<u8>>, String> {
    match fs::read(data.join(target.name())) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", target.name())),
    }
}

fn foreign(target: Target, word: usize, value: u64) -> String {
    format!("{} word {word}: {value:#x} was never written there", target.name())
}

/// Returns the values of words, each with the number of its repetitions.
fn runs(words: &[u64]) -> Vec<(u64, usize)> {
    words.chunk_by(|one, other| one == other).map(|run| (run[0], run.len())).collect()
}

#[cfg(test)]
mod tests;
