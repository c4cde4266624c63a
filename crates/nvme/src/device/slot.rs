//! A command of the device in flight, and the sequence of the controller's commands that carries it out.
//!
//! ```text
//!   read, write     a part of the command's memory, or of a bounce piece, at a time
//!   compare-write   take what is given into a piece; Compare, or Read and compare here; Write
//!   write zeroes    Write Zeroes, or Write from a page of zeros
//!   flush, discard  Flush; Dataset Management, if the controller has it
//! ```
//!
//! Invariant: at most one of the controller's commands is in flight for a slot, under the slot's number as its
//! identifier, and nothing that it refers to changes meanwhile. Every one of them can be repeated after a reset of the
//! controller: no other command that overlaps it is in flight, and its effect is the same the second time. Called by the
//! device.

use super::bounce::BounceBuffers;
use super::issue::{Issue, Key};
use super::regions::Lookup;
use super::shape::{Limits, Shape};
use crate::command::{self, Command};
use crate::data::{DataPointer, Piece, fits_prp, prp, sgl};
use crate::dma::{DmaMemory, PAGE};
use crate::function::Function;
use bywash_device::{
    CommandError, Completion, MemoryOwner, Operation, SEGMENTS_MAX, Segment, gather, scatter,
};
use std::ops::Range;
use std::time::Duration;

/// Path of the data of a command.
#[derive(Clone, Copy, Debug)]
enum DataPath {
    /// Copied through a bounce piece.
    Bounce,
    /// Directly, described by physical region pages.
    Pages(Lookup),
    /// Directly, described by a scatter/gather list.
    List(Lookup),
}

/// Progress of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Another command of the controller is to be submitted.
    More,
    /// The command is carried out.
    Done,
    /// The blocks to be compared differ.
    Mismatch,
}

/// A command in flight, or an unused slot.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) issue: Issue,
    /// Greatest offset at which the slot's transfer is within the device.
    pub(super) last: u64,
    /// Number of earlier commands that overlap this one, which waits for them.
    pub(super) blockers: u16,
    pub(super) token: u64,
    pub(super) offset: u64,
    /// Operation and number of bytes; the other fields count for direct commands alone.
    pub(super) shape: Shape,
    /// Double words 0 and 1 of the controller's direct commands, without the opcode: identifier and namespace.
    first: u64,
    owner: Option<MemoryOwner>,
    /// Bytes of `bytes` that are done.
    done: u64,
    /// Bytes that the controller's command in flight moves or sets.
    part: u64,
    segments: Vec<Segment>,
    path: DataPath,
    pub(super) piece: Option<u16>,
    /// True if a compare-and-write has compared its block and is to write.
    has_compared: bool,
    /// True if the command has claimed its range.
    pub(super) has_claim: bool,
    /// Time at which the command in flight is late; `None` until it is first looked at.
    pub(super) deadline: Option<Duration>,
}

impl Slot {
    /// Makes the unused slot `number`, whose commands the pair of queues `queue` carries out.
    pub(super) fn empty(number: u16, queue: u16, limits: &Limits) -> Slot {
        Slot {
            issue: Issue::unused(queue),
            last: 0,
            blockers: 0,
            token: 0,
            offset: 0,
            shape: Shape::empty(Operation::Flush, 0),
            first: Command::new(0, number, limits.namespace).0[0],
            owner: None,
            done: 0,
            part: 0,
            segments: Vec::with_capacity(SEGMENTS_MAX),
            path: DataPath::Bounce,
            piece: None,
            has_compared: false,
            has_claim: false,
            deadline: None,
        }
    }

    /// Sets the shape of the slot's direct commands. The slot's page of `lists` has the list of pages from then on, if there
    /// is one.
    #[inline(always)]
    pub(super) fn set_shape<F: Function>(&mut self, number: u16, mut shape: Shape, lists: &DmaMemory<F>) {
        if shape.listed > 0 {
            shape.second = lists.write_pages(usize::from(number) * PAGE, shape.second, shape.listed.into());
        }
        self.shape = shape;
    }

    /// Begins a direct command of the slot's shape at an offset, as issued, and returns the words of the controller's command
    /// that are not always zero: 0, 3, 4, 5 and 6.
    #[inline(always)]
    pub(super) fn begin_direct(
        &mut self,
        token: u64,
        offset: u64,
        changes: bool,
        limits: &Limits,
    ) -> [u64; 5] {
        self.issue.reset(Issue::IN_FLIGHT | if changes { Issue::CHANGES } else { 0 });
        self.begin(token, offset, limits)
    }

    /// Begins a direct read of the slot's transfer at an offset, like [`Slot::begin_direct`]. The slot has no command.
    #[inline(always)]
    pub(super) fn begin_reading(&mut self, token: u64, offset: u64, limits: &Limits) -> [u64; 5] {
        self.issue.begin_reading();
        self.begin(token, offset, limits)
    }

    #[inline(always)]
    fn begin(&mut self, token: u64, offset: u64, limits: &Limits) -> [u64; 5] {
        (self.token, self.offset, self.deadline) = (token, offset, None);
        self.direct(offset, limits)
    }

    /// Keeps the owner of a direct command's memory.
    #[inline(always)]
    pub(super) fn set_owner(&mut self, owner: MemoryOwner) {
        debug_assert!(self.owner.is_none(), "an unused slot has no owner");
        self.owner = Some(owner);
    }

    /// Returns the words of a direct command of the controller that are not always zero.
    #[inline(always)]
    fn direct(&self, offset: u64, limits: &Limits) -> [u64; 5] {
        let Shape { address, second, blocks, opcode, .. } = self.shape;
        [self.first | u64::from(opcode), address, second, offset >> limits.block_shift, blocks]
    }

    /// Returns true if the slot belongs to a transfer.
    #[inline]
    pub(super) fn is_reserved(&self) -> bool {
        self.issue.has(Issue::RESERVED)
    }

    /// Gives the slot, which has no command, to a transfer, or takes it back.
    pub(super) fn reserve(&mut self, is_reserved: bool) {
        self.issue.set(Issue::RESERVED, is_reserved);
        self.set_key(Key::NONE);
    }

    /// Sets the key of the slot's transfer.
    pub(super) fn set_key(&mut self, key: Key) {
        self.issue = self.issue.with_key(key);
    }

    /// Completes the direct read of the slot's transfer, and returns its token.
    #[inline(always)]
    pub(super) fn complete_reading(&mut self) -> u64 {
        self.issue.end_reading();
        self.token
    }

    /// Completes a direct command, and empties the slot.
    #[inline(always)]
    pub(super) fn complete_direct(&mut self) -> Completion {
        self.issue.reset(0);
        let owner = if self.owner.is_some() { self.owner.take() } else { None };
        Completion { token: self.token, owner, result: Ok(()) }
    }

    /// Returns true if the slot has a command.
    pub(super) fn is_used(&self) -> bool {
        self.issue.has(Issue::USED)
    }

    /// Returns true if a command of the controller is in flight for the slot's command.
    pub(super) fn is_issued(&self) -> bool {
        self.issue.has(Issue::ISSUED)
    }

    /// Notes that a command of the controller is in flight.
    pub(super) fn set_issued(&mut self) {
        self.issue.set(Issue::ISSUED, true);
        self.issue.set(Issue::ABORTED, false);
        self.deadline = None;
    }

    /// Notes that no command of the controller is in flight any more.
    pub(super) fn clear_issued(&mut self) {
        self.issue.set(Issue::ISSUED, false);
    }

    /// Returns true if the command of the controller in flight is being aborted.
    pub(super) fn is_aborted(&self) -> bool {
        self.issue.has(Issue::ABORTED)
    }

    /// Notes that the command of the controller in flight is being aborted.
    pub(super) fn set_aborted(&mut self) {
        self.issue.set(Issue::ABORTED, true);
    }

    /// Counts a repetition, and returns the number of repetitions of the slot's command, at most 255.
    pub(super) fn count_repeat(&mut self) -> u32 {
        self.issue.count_repeat()
    }

    /// Returns the index of the pair of queues that carries out the slot's commands.
    #[inline]
    pub(super) fn queue(&self) -> usize {
        self.issue.queue()
    }

    /// Returns true if the slot's command changes the device.
    #[inline]
    pub(super) fn is_write(&self) -> bool {
        self.shape.operation.is_write()
    }

    /// Returns true if the slot's command affects bytes of a range, and one of both commands changes the device.
    pub(super) fn conflicts(&self, range: &Range<u64>, changes: bool) -> bool {
        self.is_used()
            && (changes || self.shape.operation.is_write())
            && self.shape.bytes > 0
            && self.offset < range.end
            && range.start < self.offset + self.shape.bytes
    }

    /// Returns the range that the slot's command has to claim, in bytes, where devices share a controller, and true if it claims it
    /// for itself alone. A compare-and-write keeps all that changes its block away.
    pub(super) fn claimed(&self) -> Option<(Range<u64>, bool)> {
        match self.shape.operation {
            Operation::CompareAndWrite => Some((self.range(), true)),
            Operation::Write | Operation::WriteDurable | Operation::WriteZeroes => {
                Some((self.range(), false))
            }
            Operation::Read | Operation::Flush | Operation::Discard => None,
        }
    }

    /// Returns the range of the slot's command, in bytes.
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.shape.bytes
    }

    /// Sets up the slot for a checked command that affects `bytes` bytes of the device. `find` returns the registered
    /// region that contains all segments.
    #[inline]
    pub(super) fn fill(
        &mut self,
        command: bywash_device::Command<'_>,
        bytes: u64,
        limits: &Limits,
        find: impl FnOnce(&[Segment]) -> Option<Lookup>,
    ) {
        let operation = command.operation();
        (self.offset, self.shape, self.done) = (command.offset(), Shape::empty(operation, bytes), 0);
        self.issue.reset(Issue::USED);
        self.set_key(Key::NONE);
        (self.has_compared, self.deadline) = (false, None);
        self.segments.clear();
        // Room for all is there: the check found at most `SEGMENTS_MAX`.
        self.segments.extend(command.segments().iter().filter(|segment| segment.bytes() > 0));
        let is_direct = matches!(operation, Operation::Read | Operation::Write | Operation::WriteDurable);
        self.path = DataPath::Bounce;
        if is_direct && let Some(lookup) = find(&self.segments) {
            let all = || parts(&self.segments, lookup, 0, bytes as usize);
            let is_aligned = |piece: Piece| piece.address.is_multiple_of(4) && piece.bytes.is_multiple_of(4);
            if fits_prp(all()) {
                self.path = DataPath::Pages(lookup);
            } else if limits.has_sgl && (!limits.sgl_is_aligned || all().all(is_aligned)) {
                self.path = DataPath::List(lookup);
            }
        }
        let Completion { token, owner, .. } = command.done(Ok(()));
        (self.token, self.owner) = (token, owner);
    }

    /// Returns the entry of the registered region that the slot uses.
    #[inline]
    pub(super) fn region(&self) -> Option<u32> {
        match self.path {
            _ if self.issue.has(Issue::DIRECT) => Some(self.shape.region),
            DataPath::Bounce => None,
            DataPath::Pages(lookup) | DataPath::List(lookup) => Some(lookup.index),
        }
    }

    /// Forgets the registered region. Returns the entry that the slot used.
    pub(super) fn forget_region(&mut self) -> Option<u32> {
        let region = self.region();
        self.path = DataPath::Bounce;
        region
    }

    /// Returns the next command of the controller, or `None` if the slot waits for a bounce piece, as a command that was
    /// never submitted to the controller or one that is repeated. `list` is the
    /// slot's page in the memory of lists, `zeroes` the address of a page of zeros.
    #[inline]
    pub(super) fn next<F: Function>(
        &mut self,
        number: u16,
        limits: &Limits,
        bounce: &mut BounceBuffers<F>,
        lists: &DmaMemory<F>,
        zeroes: u64,
    ) -> Option<Command> {
        let page = usize::from(number) * PAGE;
        let (list, write) =
            (lists.address(page), |index: usize, value| lists.write64(page + 8 * index, value));
        let (first, left) = ((self.offset + self.done) >> limits.block_shift, self.shape.bytes - self.done);
        let blocks = |part: u64| part >> limits.block_shift;
        let namespace = limits.namespace;
        if self.issue.has(Issue::DIRECT) {
            let [first, address, second, first_block, blocks] = self.direct(self.offset, limits);
            return Some(Command([first, 0, 0, address, second, first_block, blocks, 0]));
        }
        Some(match self.shape.operation {
            Operation::Flush => Command::flush(number, namespace),
            Operation::Discard => {
                self.part = left.min(limits.deallocate_max);
                let range = command::deallocated_range(first, blocks(self.part) as u32);
                (0..2).for_each(|index| write(index, range[index]));
                let data = DataPointer { words: [list, 0], is_sgl: false };
                Command::deallocate(number, namespace).data(data)
            }
            Operation::WriteZeroes if limits.zeroes_max > 0 => {
                self.part = left.min(limits.zeroes_max);
                Command::write_zeroes(number, namespace, first, blocks(self.part))
            }
            Operation::WriteZeroes => {
                self.part = left.min(limits.part_max);
                // The same page again and again.
                let pieces = (0..self.part).step_by(PAGE).map(|done| {
                    let bytes = (self.part - done).min(PAGE as u64) as usize;
                    Piece { address: zeroes, bytes }
                });
                let data = prp(pieces, list, write);
                Command::write(number, namespace, first, blocks(self.part), false).data(data)
            }
            Operation::CompareAndWrite => {
                let piece = self.take_piece(number, bounce)?;
                self.compare_and_write(number, limits, bounce, piece).data_of(list, write)
            }
            Operation::Read | Operation::Write | Operation::WriteDurable => {
                let data = match self.path {
                    DataPath::Bounce => {
                        let piece = self.take_piece(number, bounce)?;
                        self.part = left.min(limits.part_max).min(bounce.piece_bytes() as u64);
                        self.copy_in(bounce, piece);
                        prp([bounce.piece(piece, 0, self.part as usize)].into_iter(), list, write)
                    }
                    DataPath::Pages(lookup) => {
                        self.part = left.min(limits.part_max);
                        prp(
                            parts(&self.segments, lookup, self.done as usize, self.part as usize),
                            list,
                            write,
                        )
                    }
                    DataPath::List(lookup) => {
                        self.part = left.min(limits.part_max);
                        sgl(
                            parts(&self.segments, lookup, self.done as usize, self.part as usize),
                            list,
                            write,
                        )
                    }
                };
                let count = blocks(self.part);
                match self.shape.operation {
                    Operation::Read => Command::read(number, namespace, first, count).data(data),
                    other => {
                        Command::write(number, namespace, first, count, other == Operation::WriteDurable)
                            .data(data)
                    }
                }
            }
        })
    }

    fn take_piece<F: Function>(&mut self, number: u16, bounce: &mut BounceBuffers<F>) -> Option<u16> {
        if self.piece.is_none() {
            self.piece = bounce.numbers.take(number);
        }
        self.piece
    }

    /// Copies the next part of a write into the bounce piece.
    #[expect(unsafe_code, reason = "memory of users is accessed by raw pointers")]
    fn copy_in<F: Function>(&self, bounce: &BounceBuffers<F>, piece: u16) {
        if self.shape.operation != Operation::Read {
            let (skip, bytes) = (self.done as usize, self.part as usize);
            // SAFETY: the command was checked, so its segments, which are mapped as `Segment::new` requires, have
            // `skip + bytes` bytes; the piece has room, belongs to this slot, and no command on it is in flight.
            unsafe { gather(&self.segments, skip, bounce.at(piece, 0), bytes) };
        }
    }

    /// Copies the part that was read out of the bounce piece.
    #[expect(unsafe_code, reason = "memory of users is accessed by raw pointers")]
    fn copy_out<F: Function>(&self, bounce: &BounceBuffers<F>, piece: u16) {
        let (skip, bytes) = (self.done as usize, self.part as usize);
        // SAFETY: the command was checked, so its segments, which are mapped for writing as `Segment::new` requires,
        // have `skip + bytes` bytes; the piece has as many, and no command on it is in flight.
        unsafe { scatter(&self.segments, skip, bounce.at(piece, 0).cast_const(), bytes) };
    }

    /// Returns the next command of a compare-and-write. The piece holds three blocks: the expected contents, the new
    /// contents, and the contents that were read.
    #[expect(unsafe_code, reason = "memory of users is accessed by raw pointers")]
    fn compare_and_write<F: Function>(
        &mut self,
        number: u16,
        limits: &Limits,
        bounce: &BounceBuffers<F>,
        piece: u16,
    ) -> WithPiece {
        let (block, first) = (1usize << limits.block_shift, self.offset >> limits.block_shift);
        if self.has_compared {
            let command = Command::write(number, limits.namespace, first, 1, false);
            return WithPiece { command, piece: bounce.piece(piece, block, block) };
        }
        // SAFETY: the command was checked, so its segments have two blocks; the piece has room for three, belongs to
        // this slot, and no command on it is in flight.
        unsafe { gather(&self.segments, 0, bounce.at(piece, 0), 2 * block) };
        if limits.has_compare {
            let command = Command::compare(number, limits.namespace, first, 1);
            WithPiece { command, piece: bounce.piece(piece, 0, block) }
        } else {
            let command = Command::read(number, limits.namespace, first, 1);
            WithPiece { command, piece: bounce.piece(piece, 2 * block, block) }
        }
    }

    /// Takes the success of the controller's command in flight.
    #[inline]
    pub(super) fn succeeded<F: Function>(&mut self, limits: &Limits, bounce: &BounceBuffers<F>) -> Progress {
        match (self.shape.operation, self.piece) {
            _ if self.issue.has(Issue::DIRECT) => return Progress::Done,
            (Operation::Flush, _) => return Progress::Done,
            (Operation::CompareAndWrite, _) if self.has_compared => return Progress::Done,
            (Operation::CompareAndWrite, Some(piece)) => {
                let block = 1usize << limits.block_shift;
                self.has_compared = limits.has_compare || bounce.has_equal(piece, 0, 2 * block, block);
                return if self.has_compared { Progress::More } else { Progress::Mismatch };
            }
            (Operation::Read, Some(piece)) => self.copy_out(bounce, piece),
            _ => {}
        }
        self.done += self.part;
        if self.done < self.shape.bytes { Progress::More } else { Progress::Done }
    }

    /// Returns the number of bytes that were copied through the bounce piece.
    pub(super) fn copied(&self) -> u64 {
        self.done
    }

    /// Returns the completion with its result, and empties the slot.
    #[inline]
    pub(super) fn complete(&mut self, result: Result<(), CommandError>) -> Option<Completion> {
        let is_used = self.is_used();
        self.issue.reset(0);
        is_used.then(|| Completion { token: self.token, owner: self.owner.take(), result })
    }
}

/// A command of the controller, and the piece of memory that it moves.
struct WithPiece {
    command: Command,
    piece: Piece,
}

impl WithPiece {
    fn data_of(self, list: u64, write: impl FnMut(usize, u64)) -> Command {
        self.command.data(prp([self.piece].into_iter(), list, write))
    }
}

/// Returns the pieces of registered memory that `bytes` bytes of the segments lie in, after the first `skip` bytes.
#[inline]
fn parts(
    segments: &[Segment],
    region: Lookup,
    mut skip: usize,
    mut bytes: usize,
) -> impl Iterator<Item = Piece> {
    segments.iter().filter_map(move |segment| {
        let passed = skip.min(segment.bytes());
        skip -= passed;
        let length = (segment.bytes() - passed).min(bytes);
        bytes -= length;
        let offset = segment.base().addr() - region.base + passed;
        (length > 0).then_some(Piece { address: region.address + offset as u64, bytes: length })
    })
}
