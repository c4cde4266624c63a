//! Blocks between the caller of a session and its threads.
//!
//! ```text
//!   inputs (free) -> caller fills -> waiting -> thread computes -> results (in order) -> caller takes -> outputs (free)
//!        ^                                           |  takes the oldest block,
//!        '-------------------------------------------'  and a free output with it
//! ```
//!
//! Invariants:
//! - Threads take blocks in order. So the blocks that have an output buffer are the oldest ones, and the oldest of all,
//!   whose output the caller takes next, never waits for an output buffer that a younger one has.
//! - At most `blocks` blocks are waiting or being computed; at most twice as many are waiting, being computed or not yet
//!   taken.
//! - There is one input buffer more than can be in these states: the caller always has one to fill.

use super::Cpu;
use super::buffer::Buffer;
use super::worker::Layout;
use crate::device::{Device, Statistics};
use crate::error::Error;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Work of a thread.
#[derive(Debug)]
pub(super) enum Job {
    /// Block with its number, and the buffer for its output, which a kernel that passes its input on does not need.
    Block { number: u64, input: Buffer, bytes: usize, output: Option<Buffer> },
    /// End of the input, with the buffer for the output behind the last block.
    End { number: u64, output: Buffer },
}

/// Computed block.
#[derive(Debug)]
pub(super) struct Computed {
    pub(super) buffer: Buffer,
    pub(super) bytes: usize,
    pub(super) origin: Origin,
}

/// Buffers that a computed block's buffer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Input,
    Output,
    Tail,
}

/// State that the caller and the threads share.
#[derive(Debug)]
pub(super) struct Queue {
    blocks: usize,
    waiting: VecDeque<Job>,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
    /// Results of the blocks from number `taken` on; `None`: being computed.
    results: VecDeque<Option<Result<Computed, Error>>>,
    /// Number of blocks that were submitted, and of those whose result was taken.
    submitted: u64,
    taken: u64,
    /// Blocks whose buffer the caller has, as output.
    lent: usize,
    /// Number of blocks that are being computed.
    running: usize,
    running_since: Option<Instant>,
    busy: Duration,
    /// Number of threads that wait for work, and whether the ends of the session wait: signals to nobody are system calls,
    /// too.
    pub(super) idle: usize,
    pub(super) waits_for_output: bool,
    pub(super) waits_for_room: bool,
    computed: u64,
    in_flight_max: u64,
    pub(super) input_bytes: u64,
    pub(super) copied_bytes: u64,
    /// True behind the last block of the input.
    has_ended: bool,
    /// True if the threads are to end.
    pub(super) is_closed: bool,
    /// True if no further block is to be computed.
    is_stopped: bool,
    /// Error that ended the session, once an end has got it.
    failure: Option<Error>,
}

impl Queue {
    /// Allocates all buffers of a session. `block_bytes` is a multiple of the unit.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(super) fn new(layout: &Layout, block_bytes: usize, blocks: usize) -> Result<Queue, Error> {
        // A kernel that passes its input on has the buffers of both directions as inputs.
        let (inputs, outputs) = if layout.passes_on { (2 * blocks, 0) } else { (blocks, blocks) };
        let input = || Buffer::new(block_bytes, layout.history_bytes);
        let output_bytes = (block_bytes / layout.unit_bytes).saturating_mul(layout.output_bytes);
        let inputs_bytes = (inputs + 1).saturating_mul(block_bytes.saturating_add(layout.history_bytes));
        check_available(inputs_bytes.saturating_add(outputs.saturating_mul(output_bytes)))?;
        Ok(Queue {
            blocks,
            waiting: VecDeque::new(),
            inputs: (0..=inputs).map(|_| input()).collect::<Result<_, _>>()?,
            outputs: (0..outputs).map(|_| Buffer::new(output_bytes, 0)).collect::<Result<_, _>>()?,
            results: VecDeque::new(),
            submitted: 0,
            taken: 0,
            lent: 0,
            running: 0,
            running_since: None,
            busy: Duration::ZERO,
            idle: 0,
            waits_for_output: false,
            waits_for_room: false,
            computed: 0,
            in_flight_max: 0,
            input_bytes: 0,
            copied_bytes: 0,
            has_ended: false,
            is_closed: false,
            is_stopped: false,
            failure: None,
        })
    }

    /// Returns true if one more block can be submitted.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight() < self.blocks
            && self.waiting.len() + self.results.len() + self.lent < 2 * self.blocks
    }

    /// Returns a free input buffer. There is one at the start, and whenever [`Queue::has_room`].
    pub(super) fn free_input(&mut self) -> Buffer {
        self.inputs.pop().expect("one input buffer more than blocks that use one")
    }

    /// Adds a block.
    pub(super) fn submit(&mut self, input: Buffer, bytes: usize) {
        self.waiting.push_back(Job::Block { number: self.submitted, input, bytes, output: None });
        self.submitted += 1;
        self.in_flight_max = self.in_flight_max.max(self.in_flight() as u64);
    }

    /// Ends the input, with a buffer for the output behind the last block if there can be some.
    pub(super) fn end(&mut self, output: Option<Buffer>) {
        self.has_ended = true;
        if let Some(output) = output {
            self.waiting.push_back(Job::End { number: self.submitted, output });
            self.submitted += 1;
        }
    }

    /// Keeps the error that ends the session, unless there is one already. Returns the one that ended it.
    pub(super) fn fail(&mut self, error: Error) -> Error {
        self.is_stopped = true;
        self.failure.get_or_insert(error).clone()
    }

    /// Checks that the session has not failed.
    ///
    /// # Errors
    /// The error that ended the session.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Returns the next work of a thread, if there is some that can be begun.
    pub(super) fn next_job(&mut self, passes_on: bool) -> Option<Job> {
        if self.is_stopped {
            return None;
        }
        match self.waiting.front()? {
            Job::Block { .. } if !passes_on && self.outputs.is_empty() => return None,
            Job::End { .. } if self.running > 0 => return None,
            Job::Block { .. } | Job::End { .. } => {}
        }
        let mut job = self.waiting.pop_front()?;
        if let Job::Block { output, .. } = &mut job {
            *output = if passes_on { None } else { self.outputs.pop() };
        }
        self.results.push_back(None);
        if self.running == 0 {
            self.running_since = Some(Instant::now());
        }
        self.running += 1;
        Some(job)
    }

    /// Takes over what a thread has computed. `input` is a buffer that the result does not need.
    pub(super) fn complete(&mut self, number: u64, result: Result<Computed, Error>, input: Option<Buffer>) {
        self.running -= 1;
        if self.running == 0 {
            self.busy += self.running_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        }
        self.is_stopped |= result.is_err();
        self.computed += u64::from(!matches!(&result, Ok(Computed { origin: Origin::Tail, .. }) | Err(_)));
        self.inputs.extend(input);
        // Results are taken from the front, which is the block `taken`.
        let index = (number - self.taken) as usize;
        self.results[index] = Some(result);
    }

    /// Returns true if the end for the output waits for what there is now.
    pub(super) fn is_output_awaited(&self) -> bool {
        let has_news =
            matches!(self.results.front(), Some(Some(_))) || self.has_ended() || self.failure.is_some();
        self.waits_for_output && has_news
    }

    /// Returns true if the end for the input waits, and need not any more.
    pub(super) fn is_room_awaited(&self) -> bool {
        self.waits_for_room && (self.has_room() || self.failure.is_some())
    }

    /// Returns true if a thread waits for the work that there is.
    pub(super) fn has_idle(&self) -> bool {
        self.idle > 0 && !self.waiting.is_empty()
    }

    /// Takes the oldest result, if it has been computed.
    pub(super) fn take(&mut self) -> Option<Result<Computed, Error>> {
        self.results.front()?.as_ref()?;
        self.taken += 1;
        self.lent += 1;
        self.results.pop_front()?
    }

    /// Takes back a buffer that was taken.
    pub(super) fn release(&mut self, computed: Computed) {
        self.lent -= 1;
        match computed.origin {
            Origin::Input => self.inputs.push(computed.buffer),
            Origin::Output => self.outputs.push(computed.buffer),
            Origin::Tail => {}
        }
    }

    /// Returns true if all results of all input were taken.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended && self.waiting.is_empty() && self.results.is_empty()
    }

    /// Returns the counters, but for those of the output that was taken.
    pub(super) fn statistics(&self) -> Statistics {
        let running = self.running_since.map_or(Duration::ZERO, |since| since.elapsed());
        Statistics {
            input_bytes: self.input_bytes,
            output_bytes: 0,
            copied_bytes: self.copied_bytes,
            blocks: self.computed,
            busy: self.busy + running,
            in_flight_max: self.in_flight_max,
        }
    }

    /// Returns the number of blocks that are waiting or being computed.
    fn in_flight(&self) -> usize {
        self.waiting.len() + self.running
    }
}

/// Refuses more memory than there is. The kernel would promise it, and end some process once the pages are used.
///
/// # Errors
/// [`Error::Memory`].
fn check_available(bytes: usize) -> Result<(), Error> {
    match Cpu.memory_bytes() {
        Some(available) if bytes as u64 > available => Err(Error::Memory {
            device: Cpu.name(),
            bytes: bytes as u64,
            remedy: "ask for smaller or fewer blocks",
        }),
        _ => Ok(()),
    }
}
