//! Verification of a namespace: whether each of its blocks can be read, before somebody relies on the disk.
//!
//! A controller that offers the command Verify (NVM Command Set Specification, section 3.2.5) reads the blocks by itself, and no
//! data moves. The blocks of another one are read into memory of the driver. Both ask for the medium instead of a cache (FUA).
//!
//! ```text
//!   range ──► parts of at most one command ──► in flight, DEPTH at most ──► checked
//!                  ▲                                   │ fails
//!                  └──── two halves of the part ◄──────┘ ... down to one block ──► failed range
//! ```
//!
//! A part that fails is cut into halves until the blocks that cannot be read are known. Failed blocks that follow one another
//! with the same status are one range. A command that does not complete has the controller reset; its part is cut as if it
//! had failed, and the other parts in flight are sent again.
//!
//! Invariant: each block of a range is counted as checked, or is in a failed range, or neither, if the verification ended
//! before; never both. Nothing is written. Limits: [`RANGES_MAX`] failed ranges, after which the verification ends;
//! [`REPEATS_MAX`] repetitions of a part whose status says that it can be repeated; as many resets in a row as the controller
//! takes. Called by `bywash nvme verify`.

use crate::command::{BLOCKS_MAX, Command};
use crate::completion::{IoEntry, StatusField};
use crate::controller::{Controller, Identity, Settings};
use crate::data::{Piece, prp};
use crate::dma::{DmaMemory, PAGE};
use crate::error::Error;
use crate::event::ResetReason;
use crate::function::Function;
use crate::queue::QueuePair;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Number of commands in flight.
const DEPTH: usize = 16;
/// Greatest number of bytes of a Verify command, so that the progress is seen and an end comes soon.
const VERIFY_BYTES_MAX: u64 = 32 << 20;
/// Greatest number of bytes of a Read command, which has one page for its list of pages.
const READ_BYTES_MAX: u64 = 512 << 10;
/// Greatest number of failed ranges; a verification that finds more ends.
const RANGES_MAX: usize = 1024;
/// Greatest number of repetitions of a part whose status says that it can be repeated.
const REPEATS_MAX: u8 = 3;

/// Means by which blocks are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyMethod {
    /// The controller reads the blocks by itself, by its command Verify; no data moves.
    Verify,
    /// The blocks are read into memory.
    Read,
}

/// Consecutive blocks that cannot be read, for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRange {
    /// Number of the first block.
    pub first: u64,
    /// Number of blocks.
    pub count: u64,
    /// Status of the controller in words, with its two codes; or that it did not complete the command.
    pub reason: String,
}

/// Reason for the end of a verification.
#[derive(Debug)]
#[non_exhaustive]
pub enum VerifyEnd {
    /// Each block of the range was checked or has failed.
    Complete,
    /// The caller has ended the verification.
    Stopped,
    /// More ranges have failed than a report lists: 1024.
    TooManyFailures,
    /// The controller cannot be used any more, or refuses the command itself.
    Failed(Error),
}

/// Outcome of a verification.
#[derive(Debug)]
pub struct VerifyReport {
    /// Number of blocks that can be read.
    pub checked: u64,
    /// Blocks that cannot be read, in ascending order.
    pub failed: Vec<FailedRange>,
    /// Reason for the end.
    pub end: VerifyEnd,
}

/// Controller whose namespace is verified.
pub struct Verifier<F: Function> {
    /// Dropped first, so that the controller has stopped before its memory is freed.
    controller: Controller<F>,
    /// The only pair of queues.
    queues: Vec<QueuePair<F>>,
    function: Arc<F>,
    identity: Identity,
    timeout: Duration,
    /// Memory that blocks are read into and lists of its pages, for each command in flight; `None` if no data moves.
    memory: Option<[DmaMemory<F>; 2]>,
    /// Greatest number of blocks of a command.
    blocks_max: u64,
}

impl<F: Function> Verifier<F> {
    /// Resets the controller of `function` and prepares the verification of a namespace, by default of the only one. The
    /// default of `method` is Verify where the controller says that it offers that; some carry it out and do not say so
    /// (QEMU's). A command that takes longer than `timeout` counts as failed.
    ///
    /// # Errors
    /// Same as [`Nvme::open`](crate::Nvme::open).
    pub fn open(
        function: F,
        namespace: Option<u32>,
        method: Option<VerifyMethod>,
        timeout: Duration,
    ) -> Result<Verifier<F>, Error> {
        let function = Arc::new(function);
        let settings = Settings {
            namespace,
            queues: 1,
            depth: DEPTH,
            interrupts: false,
            vectors: false,
            shadow_doorbells: false,
        };
        let mut controller = Controller::new(&function, settings)?;
        let identity = controller.wait_until_ready(&mut [])?;
        let queues = controller.take_queues();
        let limit = |most: u64, own: Option<u64>| {
            let bytes = own.map_or(most, |own| own.min(most));
            (bytes / u64::from(identity.namespace.block)).clamp(1, BLOCKS_MAX)
        };
        let offered = if identity.controller.has_verify { VerifyMethod::Verify } else { VerifyMethod::Read };
        let (blocks_max, memory) = match method.unwrap_or(offered) {
            VerifyMethod::Verify => (limit(VERIFY_BYTES_MAX, identity.limits.verify_max), None),
            VerifyMethod::Read => {
                let data = DmaMemory::new(&function, DEPTH * READ_BYTES_MAX as usize)?;
                let lists = DmaMemory::new(&function, DEPTH * PAGE)?;
                (limit(READ_BYTES_MAX, identity.controller.transfer_max), Some([data, lists]))
            }
        };
        Ok(Verifier { controller, queues, function, identity, timeout, memory, blocks_max })
    }

    /// Returns the means by which blocks are checked.
    pub fn method(&self) -> VerifyMethod {
        if self.memory.is_none() { VerifyMethod::Verify } else { VerifyMethod::Read }
    }

    /// Returns true if the controller says that it offers Verify (ONCS bit 7).
    pub fn offers_verify(&self) -> bool {
        self.identity.controller.has_verify
    }

    /// Returns the number of the namespace.
    pub fn namespace(&self) -> u32 {
        self.identity.namespace.number
    }

    /// Returns the size of the namespace, in blocks.
    pub fn blocks(&self) -> u64 {
        self.identity.namespace.blocks
    }

    /// Returns the size of a block, in bytes.
    pub fn block(&self) -> u32 {
        self.identity.namespace.block
    }

    /// Checks a range of blocks. `go_on` is told again and again how many blocks have been checked or have failed; the verification ends
    /// when it returns false.
    ///
    /// # Errors
    /// [`Error::Option`] if the range is empty or goes beyond the namespace. Whatever goes wrong later is in the report.
    pub fn verify(
        &mut self,
        blocks: Range<u64>,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<VerifyReport, Error> {
        if blocks.is_empty() || blocks.end > self.blocks() {
            let what = format!(
                "names the blocks {} to {}, and the namespace has {}: name some of these",
                blocks.start,
                blocks.end,
                self.blocks()
            );
            return Err(Error::Option { option: "range", what });
        }
        let mut parts = Parts::new(blocks, self.blocks_max);
        let mut in_flight: [Option<InFlight>; DEPTH] = Default::default();
        let end = loop {
            if !go_on(parts.seen()) {
                break VerifyEnd::Stopped;
            }
            if parts.failed.len() > RANGES_MAX {
                break VerifyEnd::TooManyFailures;
            }
            self.submit(&mut parts, &mut in_flight);
            if in_flight.iter().all(Option::is_none) {
                break VerifyEnd::Complete;
            }
            match self.reap(&mut parts, &mut in_flight) {
                Ok(0) => {}
                Ok(_) => continue,
                Err(refused) => break VerifyEnd::Failed(refused),
            }
            if let Err(lost) = self.recover(&mut parts, &mut in_flight) {
                break VerifyEnd::Failed(lost);
            }
        };
        Ok(parts.report(end))
    }

    /// Submits commands as long as there are parts and room.
    fn submit(&mut self, parts: &mut Parts, in_flight: &mut [Option<InFlight>; DEPTH]) {
        let until = self.function.now() + self.timeout;
        let queue = &mut self.queues[0];
        let room = usize::from(queue.entries) - 1;
        for (slot, place) in in_flight.iter_mut().enumerate().take(room).filter(|(_, place)| place.is_none())
        {
            let Some(part) = parts.next() else { break };
            let (number, identifier) = (self.identity.namespace.number, slot as u16);
            let command = match &self.memory {
                None => Command::verify(identifier, number, part.first, part.count),
                Some([data, lists]) => {
                    let bytes = (part.count * u64::from(self.identity.namespace.block)) as usize;
                    let address = data.address(slot * READ_BYTES_MAX as usize);
                    let list = slot * PAGE;
                    let write = |entry: usize, value| lists.write64(list + 8 * entry, value);
                    let piece = std::iter::once(Piece { address, bytes });
                    let pointer = prp(piece, lists.address(list), write);
                    Command::read_uncached(identifier, number, part.first, part.count).data(pointer)
                }
            };
            queue.push(&command);
            *place = Some(InFlight { part, until });
        }
        queue.ring(&self.function);
    }

    /// Takes completions, and returns their number.
    ///
    /// # Errors
    /// [`Error::Admin`] if the controller refuses the command, whatever blocks it names.
    fn reap(&mut self, parts: &mut Parts, in_flight: &mut [Option<InFlight>; DEPTH]) -> Result<usize, Error> {
        let mut count = 0;
        while let Some(entry) = self.queues[0].pop_io().map(IoEntry::entry) {
            count += 1;
            let done = in_flight.get_mut(usize::from(entry.identifier)).and_then(Option::take);
            // A completion of no command in flight is a fault of the controller without an effect here.
            let Some(InFlight { part, .. }) = done else { continue };
            self.controller.note_progress();
            if names_a_fault_of_the_command(entry.status) {
                let command = if self.memory.is_none() { "Verify" } else { "Read" };
                return Err(Error::Admin { command, status: entry.status.to_string() });
            }
            parts.completed(part, entry.status);
        }
        self.queues[0].free(&self.function);
        Ok(count)
    }

    /// Looks at the controller, waits a little, and resets it if a command has not completed in time.
    ///
    /// # Errors
    /// The reason why the controller cannot be used any more.
    fn recover(&mut self, parts: &mut Parts, in_flight: &mut [Option<InFlight>; DEPTH]) -> Result<(), Error> {
        self.function.pause();
        self.controller.poll_admin();
        let now = self.function.now();
        if let Some(reason) = self.controller.check(now) {
            self.controller.reset(reason);
        }
        let is_late = |waiting: &InFlight| now > waiting.until;
        if self.controller.is_ready() {
            if !in_flight.iter().flatten().any(is_late) {
                return Ok(());
            }
            self.controller.reset(ResetReason::Timeout);
        }
        self.controller.wait_until_ready(&mut self.queues)?;
        for waiting in in_flight.iter_mut().filter_map(Option::take) {
            match is_late(&waiting) {
                true => parts.not_completed(waiting.part),
                false => parts.put_back(waiting.part),
            }
        }
        Ok(())
    }
}

/// Returns true if a command with this status would fail whatever blocks it named: its opcode, a field, its namespace or its
/// range is wrong.
fn names_a_fault_of_the_command(status: StatusField) -> bool {
    // Invalid Command Opcode, Invalid Field in Command, Invalid Namespace or Format, PRP Offset Invalid, LBA Out of Range.
    matches!((status.kind(), status.code()), (0, 0x01 | 0x02 | 0x0b | 0x13 | 0x80))
}

/// Command in flight.
struct InFlight {
    part: Part,
    /// Time at which the command is late.
    until: Duration,
}

/// Consecutive blocks that one command checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    first: u64,
    count: u64,
    /// Number of times that the part was repeated.
    repeats: u8,
}

/// Status of blocks that cannot be read; `None` if the command did not complete.
type Failure = Option<StatusField>;

/// Parts of a range: those that are to be checked, and what became of the others.
#[derive(Debug)]
struct Parts {
    /// Blocks of which no part was taken yet.
    rest: Range<u64>,
    blocks_max: u64,
    /// Parts that are to be checked again, the last one first: at most two for each command in flight and halving.
    again: Vec<Part>,
    checked: u64,
    failed_blocks: u64,
    /// Failed ranges by their first blocks: number of blocks and status.
    failed: BTreeMap<u64, (u64, Failure)>,
}

impl Parts {
    fn new(rest: Range<u64>, blocks_max: u64) -> Parts {
        Parts { rest, blocks_max, again: Vec::new(), checked: 0, failed_blocks: 0, failed: BTreeMap::new() }
    }

    /// Returns the number of blocks that were checked or have failed.
    fn seen(&self) -> u64 {
        self.checked + self.failed_blocks
    }

    /// Takes the next part.
    fn next(&mut self) -> Option<Part> {
        if let Some(part) = self.again.pop() {
            return Some(part);
        }
        let (first, count) = (self.rest.start, (self.rest.end - self.rest.start).min(self.blocks_max));
        self.rest.start += count;
        (count > 0).then_some(Part { first, count, repeats: 0 })
    }

    /// Puts a part back that was not carried out.
    fn put_back(&mut self, part: Part) {
        self.again.push(part);
    }

    /// Notes that the command of a part completed.
    fn completed(&mut self, part: Part, status: StatusField) {
        if status.is_success() {
            self.checked += part.count;
        } else if status.can_be_repeated() && part.repeats < REPEATS_MAX {
            self.again.push(Part { repeats: part.repeats + 1, ..part });
        } else {
            self.narrow(part, Some(status));
        }
    }

    /// Notes that the command of a part did not complete in time.
    fn not_completed(&mut self, part: Part) {
        self.narrow(part, None);
    }

    /// Cuts a part that has failed into halves, or notes its only block.
    fn narrow(&mut self, part: Part, failure: Failure) {
        let Part { first, count, .. } = part;
        if count > 1 {
            let half = count / 2;
            self.again.push(Part { first: first + half, count: count - half, repeats: 0 });
            self.again.push(Part { first, count: half, repeats: 0 });
        } else {
            self.fail(first, failure);
        }
    }

    /// Adds a block to the failed ranges, and joins it with its neighbours of the same status.
    fn fail(&mut self, block: u64, failure: Failure) {
        self.failed_blocks += 1;
        let (mut first, mut count) = (block, 1);
        let before = self.failed.range(..block).next_back().map(|(first, range)| (*first, *range));
        if let Some((start, (blocks, same))) = before
            && start + blocks == block
            && same == failure
        {
            (first, count) = (start, blocks + 1);
        }
        if let Some((blocks, same)) = self.failed.get(&(block + 1)).copied()
            && same == failure
        {
            self.failed.remove(&(block + 1));
            count += blocks;
        }
        self.failed.insert(first, (count, failure));
    }

    fn report(self, end: VerifyEnd) -> VerifyReport {
        let failed = self.failed.into_iter().map(|(first, (count, failure))| {
            let late = || "the controller did not complete the command in time".into();
            FailedRange { first, count, reason: failure.map_or_else(late, |status| status.to_string()) }
        });
        VerifyReport { checked: self.checked, failed: failed.take(RANGES_MAX).collect(), end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const UNREADABLE: StatusField = StatusField(0x281);

    proptest! {
        /// Each block is checked or failed, once; failed ranges are the bad blocks, and as few as there can be; commands
        /// complete in any order, and some not at all.
        #[test]
        fn failed_ranges_are_the_bad_blocks(
            blocks in 1u64..300,
            most in 1u64..70,
            bad in prop::collection::btree_set(0u64..300, 0..60),
            order in prop::collection::vec(0usize..16, 1..50),
        ) {
            let bad: BTreeSet<u64> = bad.into_iter().filter(|block| *block < blocks).collect();
            let mut parts = Parts::new(0..blocks, most);
            let (mut in_flight, mut steps) = (Vec::new(), order.iter().cycle());
            // Parts are put back by resets, which do not go on for ever.
            let mut resets = 0..100;
            loop {
                while in_flight.len() < DEPTH {
                    let Some(part) = parts.next() else { break };
                    prop_assert!((1..=most).contains(&part.count));
                    in_flight.push(part);
                }
                if in_flight.is_empty() {
                    break;
                }
                let step = *steps.next().unwrap();
                let part: Part = in_flight.swap_remove(step % in_flight.len());
                match (bad.range(part.first..part.first + part.count).next(), step) {
                    (_, 3) if resets.next().is_some() => parts.put_back(part),
                    (None, 5) if part.repeats < REPEATS_MAX => parts.completed(part, StatusField::ABORTED),
                    (None, _) => parts.completed(part, StatusField(0)),
                    (Some(_), _) => parts.completed(part, UNREADABLE),
                }
                prop_assert!(parts.again.len() <= 2 * DEPTH * 17);
            }
            prop_assert_eq!(parts.checked, blocks - bad.len() as u64);
            prop_assert_eq!(parts.seen(), blocks);
            let report = parts.report(VerifyEnd::Complete);
            let found: BTreeSet<u64> =
                report.failed.iter().flat_map(|range| range.first..range.first + range.count).collect();
            prop_assert_eq!(&found, &bad);
            let runs = bad.iter().filter(|block| **block == 0 || !bad.contains(&(**block - 1))).count();
            prop_assert_eq!(report.failed.len(), runs);
        }
    }

    #[test]
    fn ranges_of_different_statuses_are_not_joined() {
        let mut parts = Parts::new(0..8, 8);
        for (block, failure) in [(4, None), (2, Some(UNREADABLE)), (3, Some(UNREADABLE)), (1, None)] {
            parts.fail(block, failure);
        }
        let report = parts.report(VerifyEnd::Complete);
        let ranges: Vec<_> = report.failed.iter().map(|range| (range.first, range.count)).collect();
        assert_eq!(ranges, [(1, 1), (2, 2), (4, 1)]);
        assert_eq!(report.failed[0].reason, "the controller did not complete the command in time");
        assert!(report.failed[1].reason.starts_with("Unrecovered Read Error"));
    }
}
